#!/usr/bin/env bash
# The demo's steps on a few records: answers before, three steps of QLoRA, answers after, the score.
# Such a short run must not pass: the test checks that the score is refused.
set -u
fail() { echo "FAILED: $1"; exit 1; }
root=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME="$tmp/cache" PYTHONDONTWRITEBYTECODE=1

# A copy with six test sentences; the data must be what the scripts make.
cp -r "$root/examples/demo" "$tmp/demo" || fail "copy"
"$tmp/demo/make_task.py" "$tmp/train.jsonl" "$tmp/test.jsonl" || fail "make_task.py"
cmp -s "$tmp/train.jsonl" "$root/examples/demo/train.jsonl" || fail "train.jsonl is not what make_task.py makes"
cmp -s "$tmp/test.jsonl" "$root/examples/demo/test.jsonl" || fail "test.jsonl is not what make_task.py makes"
head -6 "$tmp/test.jsonl" >"$tmp/demo/test.jsonl"

size=$(wc -c <"$root/examples/demo/base/model.safetensors")
[ "$size" -lt 8388608 ] || fail "the base model has $size bytes, more than 8 MiB"

DEMO_OUT="$tmp/out" "$tmp/demo/run.sh" max_steps=3 logging_steps=1 generate_samples_tokens=4 >"$tmp/log" 2>&1
[ $? -eq 1 ] || fail "three steps pass as a demo: $(tail -3 "$tmp/log")"
grep -q '^exact match on 6 held-out sentences: before ' "$tmp/log" || fail "no score: $(tail -5 "$tmp/log")"
[ "$(wc -l <"$tmp/out/before.jsonl")" = 6 ] || fail "not six answers before"
[ "$(wc -l <"$tmp/out/after.jsonl")" = 6 ] || fail "not six answers after"
[ -s "$tmp/out/adapter/adapter_model.safetensors" ] || fail "no adapter"
[ -s "$tmp/out/adapter/report.html" ] || fail "no report"

# The score compares texts: perfect answers pass, wrong ones do not.
python3 - "$tmp" <<'PY' || exit 1
import json, sys
t = sys.argv[1]
with open(t + "/demo/test.jsonl") as f, open(t + "/right.jsonl", "w") as o:
    for line in f:
        o.write(json.dumps({"text": json.loads(line)["messages"][-1]["content"] + "<|im_end|>"}) + "\n")
PY
python3 "$tmp/demo/score.py" table "$tmp/demo/test.jsonl" "$tmp/out/before.jsonl" "$tmp/right.jsonl" >/dev/null ||
    fail "right answers do not pass"
python3 "$tmp/demo/score.py" table "$tmp/demo/test.jsonl" "$tmp/right.jsonl" "$tmp/right.jsonl" >/dev/null 2>&1 &&
    fail "a base model that already does the task passes"
echo passed
