#!/usr/bin/env python3
"""Makes tests/golden/turn_tools/texts.json: records with tools and calls in templates of LLaMA-Factory, as its own code writes them.

    pip download --no-deps llamafactory==0.9.5 && unzip llamafactory-0.9.5-*.whl -d FOLDER
    tools/golden/make_turn_tools.py FOLDER

Of that package only data/template.py and what it needs of text is imported; images, datasets and logging are empty modules here."""
import json
import pathlib
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/golden/turn_tools/texts.json"
TEMPLATES = ["mistral", "llava_next_mistral", "ministral", "mistral_small", "glm4", "chatglm3", "glmz1", "qwen3_5", "qwen3_5_nothink",
             "qwen3_6", "llama3", "llama4", "qwen", "chatml"]
TOOLS = [{"name": "f", "description": "d é \"q\"\n", "parameters": {"type": "object", "properties": {
    "a": {"type": "string", "description": "x", "enum": ["u", "v"]}, "b": {"type": "array", "items": {"type": "integer"}}},
    "required": ["b"], "max": 1e16, "list": [1, -2.5, True, None, [], {}, [[]]]}},
    {"type": "function", "function": {"name": "g", "parameters": {"properties": {}}}}]
CALL = {"name": "f", "arguments": {"a": "line\n\"é\"", "b": [1, {"c": 0.1}], "d": {}, "e": None}}


def stub(name, **members):
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module
    return module


def load(folder):
    for name in ("llamafactory", "llamafactory.data"):
        stub(name, __path__=[str(pathlib.Path(folder) / name.replace(".", "/"))])
    log = types.SimpleNamespace(info_rank0=print, warning_rank0=print, warning_rank0_once=print)
    stub("llamafactory.extras", logging=stub("llamafactory.extras.logging", get_logger=lambda name: log))
    stub("llamafactory.data.mm_plugin", get_mm_plugin=lambda *names, **options: None)
    stub("fsspec")
    stub("datasets", DatasetDict=None, concatenate_datasets=None, interleave_datasets=None)
    from llamafactory.data.template import TEMPLATES as table
    return table


class Texts:
    """A tokenizer whose tokens are the strings themselves; that of tests/golden/models/qwen2 has no bos."""
    bos_token_id = None
    eos_token_id = eos_token = "<|im_end|>"

    def encode(self, text, add_special_tokens=False):
        return [text]

    def convert_tokens_to_ids(self, token):
        return token


def main():
    table, out = load(sys.argv[1]), []
    for name in TEMPLATES:
        template = table[name]
        template.enable_thinking = True
        for system, tools, calls in (("", TOOLS, CALL), ("S", TOOLS[:1], [CALL]), ("S", None, [CALL, CALL])):
            if name.startswith("llama") and tools or len(calls) == 2 and isinstance(calls, list) and name in ("glm4", "chatglm3", "glmz1"):
                continue  # a date in the text of the tools; one call at a time
            turns = [("user", "q"), ("function", json.dumps(calls)), ("observation", "42"), ("assistant", "ok")]
            text = ""
            pairs = template.encode_multiturn(Texts(), [dict(role=r, content=c) for r, c in turns], system,
                                              json.dumps(tools) if tools else "")
            for prompt, answer in pairs:
                text += "".join(prompt) + "".join(answer)
            text += Texts.eos_token if template.efficient_eos else ""
            roles = dict(user="human", function="function_call", observation="observation", assistant="gpt")
            record = {"conversations": [{"from": roles[r], "value": c} for r, c in turns], "system": system,
                      "tools": json.dumps(tools) if tools else ""}
            out.append({"template": name, "record": record, "text": text})
    OUT.write_text("[" + ",\n ".join(json.dumps(o, ensure_ascii=False) for o in out) + "]\n")
    print(f"{len(out)} texts")


if __name__ == "__main__":
    main()
