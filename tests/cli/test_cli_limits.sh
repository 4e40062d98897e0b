#!/usr/bin/env bash
# Long and hostile inputs: each either works in a time that grows with its length, or ends with a sentence that names the limit.
# No time is compared here: what grew with the square of its length would take minutes and run into ctest's limit.
# AF_TIMES=1 prints seconds of the processor (docs/measurements/tests.md).
set -uo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="$tmp/cache"
failed=0
fail() { echo "FAILED: $*"; failed=1; }
base="$AF_SOURCE/examples/demo/base"
python3 - "$tmp" "$base" <<'PY' || exit 1
import copy, json, os, shutil, struct, sys
tmp, base = sys.argv[1:]
def put(name, text):
    open(os.path.join(tmp, name), "w").write(text)
def turns(n, kind):
    for i in range(n):
        if kind == "assistant":
            role = "assistant"
        elif kind == "agent" and i > 1:
            role = ("tool", "assistant")[i % 2] if i % 200 else "user"
        else:
            role = ("user", "assistant")[i % 2]
        yield {"role": role, "content": f"turn {i}" + " again" * (i % 5)}
for name, n, kind in (("short", 900, "chat"), ("agent", 900, "agent"), ("long", 10000, "chat"), ("most", 16385, "chat"),
                      ("whole", 4000, "assistant")):
    put(name + ".jsonl", json.dumps({"messages": list(turns(n, kind))}) + "\n")
chatml = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}%s"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
body = "{{ m['content'] + '<|im_end|>' }}"
mark = "{% if m['role'] == 'assistant' %}{% generation %}" + body + "{% endgeneration %}{% else %}" + body + "{% endif %}"
loop = body + "{% for i in range(400) %}{% endfor %}"   # many steps per message
last = "{% if loop.last and m['role'] == 'assistant' %}{{ '<think>' }}{% endif %}" + body   # the last turn has a text of its own
put("plain.jinja", chatml.replace("%s", body + "{{ '\\n' }}"))
put("marked.jinja", chatml.replace("%s", mark + "{{ '\\n' }}"))
put("loops.jinja", chatml.replace("%s", loop + "{{ '\\n' }}"))
put("last.jinja", chatml.replace("%s", last + "{{ '\\n' }}"))
for t in "plain", "marked", "last", "loops":
    for d in "short", "agent", "long", "most", "whole":
        put(f"{t}.{d}.yaml", f"base_model: {base}\ndatasets: [{{path: {tmp}/{d}.jsonl}}]\noutput_dir: {tmp}/out\n"
            f"sequence_len: 1000000\nchat_template: {tmp}/{t}.jinja\n")
put("deep.yaml", "a: " + "[" * 50000 + "]" * 50000 + "\n")
put("indent.yaml", "- " * 50000 + "x\n")
put("anchors.yaml", "".join(f"k{i}: &a{i} 1\n" for i in range(200000)))
put("sets.jinja", "".join("{%% set v%d = 1 %%}" % i for i in range(100000)))
put("macros.jinja", "".join("{%% macro m%d() %%}x{%% endmacro %%}" % i for i in range(50000)))
put("recursion.jinja", "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(240) }}")
put("row.jsonl", json.dumps({"messages": [{"role": "user", "content": "x"}]}) + "\n")
put("spaces.jsonl", json.dumps({"text": " " * 100000}) + "\n")
put("word.jsonl", json.dumps({"text": "a <tok39999> a"}) + "\n")
tokenizer = json.load(open(base + "/tokenizer.json"))
first = max([t["id"] for t in tokenizer["added_tokens"]] + list(tokenizer["model"]["vocab"].values())) + 1
flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
def model(name, change):
    t = copy.deepcopy(tokenizer)
    change(t)
    shutil.copytree(base, os.path.join(tmp, name))
    put(name + "/tokenizer.json", json.dumps(t))
model("added", lambda t: t["added_tokens"].extend(
    {**flags, "id": first + i, "content": f"<tok{i}>", "normalized": bool(i % 2)} for i in range(40000)))
model("strip", lambda t: t["added_tokens"].append({**flags, "id": first, "content": " ", "lstrip": True, "rstrip": True}))
model("grow", lambda t: t.update(normalizer={"type": "Sequence", "normalizers":
    [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 40}))
names = {f"t{i * 7919 % 25000}.w{i}x.q{i * 31}": {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i in range(25000)}
head = json.dumps(names).encode()
open(tmp + "/names.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + b"\0" * 100000)
put("density.yml", f"merge_method: ties\nbase_model: {base}\nmodels:\n  - model: {tmp}/strip\n    parameters: {{weight: 1, density: 1.0e+308}}\n")
PY

# timed COMMAND...
timed() {
    local TIMEFORMAT="%U + %S s of the processor: ${*//$tmp\/}"
    [ -n "${AF_TIMES-}" ] || { "$@"; return; }
    { time "$@" 2>&3; } 3>&2 2>> "$tmp/times"
}
# wants EXIT TEXT COMMAND...: the exit status and a text in what was printed
wants() {
    local code=$1 text=$2 status=0
    shift 2
    timed "$@" > "$tmp/said" 2>&1 || status=$?
    [ "$status" = "$code" ] || fail "$*: exit $status, not $code: $(tail -c 300 "$tmp/said")"
    grep -qF -- "$text" "$tmp/said" || fail "$*: no '$text' in: $(tail -c 300 "$tmp/said")"
}
stdin() { local from=$1; shift; "$@" < "$tmp/$from"; }

# messages: the masks found in windows are those that the template marks itself, and those of short conversations
preview() { timed "$AFINAR" data preview "$tmp/$1.yaml" --json | python3 -c 'import json, sys; r = json.loads(sys.stdin.readline()); print(r["labels"] if "labels" in r else r["mask"])'; }
long=long
[ -z "${ASAN_OPTIONS-}" ] || long= # the sanitizers see as much in the short ones
for d in short agent $long; do
    preview "plain.$d" > "$tmp/plain" && preview "marked.$d" > "$tmp/marked" || fail "no preview of $d"
    [ "$(wc -c < "$tmp/plain")" -gt 1000 ] && cmp "$tmp/plain" "$tmp/marked" || fail "$d: the mask differs from the template's own"
done
wants 0 "tokens with loss" "$AFINAR" data check "$tmp/last.short.yaml"
wants 1 "a conversation of 16385 messages; at most 16384 are allowed" "$AFINAR" data check "$tmp/plain.most.yaml"
[ -z "$long" ] || wants 1 "takes too long; split the record" "$AFINAR" data check "$tmp/loops.whole.yaml"

wants 1 "deep.yaml:1: more than 32 levels of nesting" "$AFINAR" train "$tmp/deep.yaml"
wants 1 "indent.yaml:1: more than 32 levels of nesting" "$AFINAR" train "$tmp/indent.yaml"
wants 1 "anchors.yaml:1025: more than 1024 anchors" "$AFINAR" train "$tmp/anchors.yaml"
wants 0 "the template takes more than 20000000 steps" stdin row.jsonl "$AFINAR" template "$tmp/sets.jinja"
[ -z "$long" ] || wants 0 "the template takes more than 20000000 steps" stdin row.jsonl "$AFINAR" template "$tmp/macros.jinja"
wants 0 '{"text": ""}' stdin row.jsonl "$AFINAR" template "$tmp/recursion.jinja"
if [ -z "${ASAN_OPTIONS-}" ]; then # a small stack: the command works with the usual one
    cat > "$tmp/small.yaml" <<END
base_model: $base
datasets: [{path: $tmp/short.jsonl}]
output_dir: $tmp/out
adapter: lora
lora_r: 4
max_steps: 1
sequence_len: 8192
device: cpu
END
    (
        ulimit -s 64
        wants 0 '{"text": ""}' stdin row.jsonl "$AFINAR" template "$tmp/recursion.jinja"
        wants 0 "tensors are equal, 0 differ" "$AFINAR" inspect "$base" --diff "$base"
        wants 0 "" "$AFINAR" train "$tmp/small.yaml" -q
        exit $failed
    ) || failed=1
fi
wants 0 "$((39999 + $(python3 -c "import json; t = json.load(open('$base/tokenizer.json')); print(max([a['id'] for a in t['added_tokens']] + list(t['model']['vocab'].values())) + 1)")))" \
    stdin word.jsonl "$AFINAR" tokenize "$tmp/added"
wants 0 '{"ids": [' stdin spaces.jsonl "$AFINAR" tokenize "$tmp/strip"
wants 1 "normalizer makes more than 64 bytes of each byte of text" stdin word.jsonl "$AFINAR" tokenize "$tmp/grow"
wants 0 "25000 tensors" "$AFINAR" inspect "$tmp/names.safetensors"
wants 1 "density 1e+308 of" "$AFINAR" merge "$tmp/density.yml" -o "$tmp/merged"
[ ! -e "$tmp/merged" ] || fail "a refused merge leaves a folder"
[ -z "${AF_TIMES-}" ] || sed "s|$AFINAR|afinar|" "$tmp/times"
exit $failed
