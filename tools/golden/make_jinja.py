#!/usr/bin/env python3
"""Renders the rows of tests/golden/text/jinja_more.jsonl (and jinja_units.jsonl) with jinja2 and compares.

usage: make_jinja.py FILE.jsonl [--write]

The first row holds the variables of all others, the others a template each. The environment is that of
transformers' chat templates: sandbox, trim_blocks, lstrip_blocks, loop controls, the generation tag, tojson
without HTML escapes, raise_exception and strftime_now. Errors keep their kind, not their text. To add cases,
append {"template": "..."} rows and run with --write. Needs jinja2 3.1.6."""
import argparse
import datetime
import json
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox
import jinja2.utils


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: a separate scope, rendered as it is."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("render_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def render_body(self, caller):
        return caller()


class Namespace(jinja2.utils.Namespace):
    """As in transformers 5: no attribute may begin with an underscore."""

    def __init__(*args, **kwargs):  # as its parent, so that self= may be a name
        jinja2.utils.Namespace.__init__(*args, **kwargs)
        for name in kwargs:
            refuse(name)

    def __setitem__(self, name, value):
        refuse(name)
        super().__setitem__(name, value)


def refuse(name):
    if name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"namespace attribute {name}")


def environment(now):
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["namespace"] = Namespace
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = now.strftime
    return env


def render(env, template, variables):
    try:
        return {"expected": env.from_string(template).render(**variables)}
    except jinja2.exceptions.TemplateSyntaxError:
        return {"expected": {"error": "", "kind": "syntax"}}
    except Exception as e:  # whatever the template made Python raise
        if type(e) is jinja2.exceptions.TemplateError:
            return {"expected": {"error": str(e), "kind": "raise"}}
        return {"expected": {"error": "", "kind": "runtime"}}


def same(a, b):
    if isinstance(a, dict) and isinstance(b, dict):
        return a.get("kind") == b.get("kind") and (a["kind"] != "raise" or a["error"] == b["error"])
    return a == b


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("file", help="jinja_more.jsonl or jinja_units.jsonl")
    p.add_argument("--write", action="store_true", help="replace the file")
    a = p.parse_args()
    with open(a.file, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    head, wrong = rows[0], 0
    env = environment(datetime.datetime.fromisoformat(head["now"]))
    for i, row in enumerate(rows[1:], 2):
        variables = json.loads(json.dumps(head["vars"]))  # a fresh copy: templates may change lists
        made = render(env, row["template"], variables)
        if "expected" in row and not same(row["expected"], made["expected"]):
            print(f"{a.file}:{i}: {row['template']!r}: {row['expected']!r} here, jinja2 says {made['expected']!r}")
            wrong += 1
        row.update(made)
    if a.write:
        with open(a.file, "w", encoding="utf-8") as f:
            f.writelines(json.dumps(r, ensure_ascii=False, separators=(",", ":")) + "\n" for r in rows)
    print(f"{a.file}: {len(rows) - 1} templates, {wrong} differ (jinja2 {jinja2.__version__})")
    return 1 if wrong and not a.write else 0


if __name__ == "__main__":
    sys.exit(main())
