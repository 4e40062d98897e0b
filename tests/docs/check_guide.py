"""Checks the examples of the documentation against the program: check_guide.py AFINAR SOURCE

Commands and their options exist, keys of run files exist, every dataset record of docs/guide/data.md is read, names of the C sources
in docs/extending.md and docs/architecture.md exist, and the latter lists the folders that there are."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

PAGES = ["README.md", "CONTRIBUTING.md", "docs/guide/*.md", "man/notes/*.txt"]


def commands(text):
    """(line number, words) of every command in an indented block."""
    for number, line in enumerate(text.splitlines(), 1):
        m = re.match(r"^    (?:\$ )?(?:\S+ \| *)?afinar (.*)$", line)
        if m and not line.startswith("    afinar:"):
            yield number, re.sub(r"'[^']*'|\"[^\"]*\"", "TEXT", m[1]).split("  #")[0].split()


def check_command(words, options):
    if not words or words[0].startswith("-") or words[0] in ("help", "COMMAND"):
        return None
    if words[0] not in options:
        return f"no command {words[0]}"
    for w in words[1:]:
        name = re.match(r"^--?([a-z][a-z0-9-]*)", w)
        if name and name[1] not in options[words[0]]:
            return f"afinar {words[0]} has no option {w}"
    return None


def check_keys(words, keys):
    if words and words[0] in ("train", "plan", "data"):
        for w in words[1:]:
            m = re.match(r"^([a-z0-9_]+)=", w)
            if m and m[1] not in keys:
                return f"no key {m[1]}"
    return None


def fences(text, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.M | re.S)


def code_spans(page):
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S))


def check_sources(source):
    """Faults of the pages that describe the sources."""
    files = [p for top in ("src", "cli", "include", "tests") for p in source.glob(f"{top}/**/*.[ch]*") if p.suffix in (".c", ".h", ".cu", ".cpp")]
    words = set(re.findall(r"\w+", "\n".join(p.read_text() for p in files)))
    for page in ("docs/extending.md", "docs/architecture.md"):
        for span in code_spans(source / page):
            for name in re.findall(r"\b(?:af|AF)_\w+", span):
                if name not in words and not re.search("_name(_|$)", name):  # of the recipe for an op
                    yield f"{page}: no {name} in the sources"
    listed = set()
    for span in code_spans(source / "docs/architecture.md"):
        head, _, rest = span.partition("{")
        if re.match(r"(src|cli)/[a-z_/]*$", head):
            listed |= {head + part for part in rest.rstrip("}").split(",")}
    for folder in listed:
        if not (source / folder).exists():
            yield f"docs/architecture.md: no {folder}"
    for folder in {str(p.parent.relative_to(source)) for p in files if p.suffix == ".c"}:
        if folder.startswith("src/") and folder.count("/") <= 2 and not any(l.startswith(folder) for l in listed):
            yield f"docs/architecture.md does not have {folder}"


def main():
    program, source = sys.argv[1], pathlib.Path(sys.argv[2])
    t = json.loads(subprocess.run([program, "__options"], check=True, capture_output=True, text=True).stdout)
    common = [n for o in t["common"] for n in (o["name"], o["letter"])]
    options = {c["name"]: {n for o in c["help"]["options"] for n in (o["name"], o["letter"])} | set(common)
               for c in t["commands"]}
    keys = {n for k in t["run_file"]["keys"] for n in [k["name"], *k["aliases"]]}
    faults, seen = sorted(check_sources(source)), 0
    for page in sorted(p for pattern in PAGES for p in source.glob(pattern)):
        text = page.read_text()
        for number, words in commands(text):
            seen += 1
            why = check_command(words, options) or check_keys(words, keys)
            if why:
                faults.append(f"{page.relative_to(source)}:{number}: {why}")
        for block in fences(text, "yaml"):
            if "merge_method" in block:
                continue
            for key in re.findall(r"^([a-z0-9_]+):", block, re.M):
                seen += 1
                if key not in keys:
                    faults.append(f"{page.relative_to(source)}: no key {key}")
    records = [l for block in fences((source / "docs/guide/data.md").read_text(), "json") for l in block.splitlines() if l]
    with tempfile.TemporaryDirectory() as tmp:
        for i, record in enumerate(records):
            data = pathlib.Path(tmp, f"{i}.jsonl")
            data.write_text(record + "\n")
            run = pathlib.Path(tmp, "run.yaml")
            run.write_text(f"base_model: {source}/tests/golden/models/qwen2\noutput_dir: {tmp}/out\ndatasets: [{{path: {data}}}]\n")
            done = subprocess.run([program, "data", "preview", run], capture_output=True, text=True)
            if done.returncode != 0 or "record 1" not in done.stdout:
                faults.append(f"docs/guide/data.md: {record[:60]}...: {done.stderr.strip()}")
    print("\n".join(faults) or f"{seen} commands and keys, {len(records)} dataset records of the documentation are as the program has them")
    return 1 if faults or seen < 50 or len(records) < 10 else 0


sys.exit(main())
