#!/usr/bin/env bash
# Many prompts at once give the answers of each alone, in the order of the file; eval --generate counts those that are as expected.
set -u
fail() { echo "FAILED: $1"; exit 1; }
base=$AF_SOURCE/examples/demo/base
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
run() { "$AFINAR" "$@" --device cpu -q 2>"$tmp/err"; }

# 40 prompts of different lengths: more than one batch, and the answers end at different steps
python3 - "$AF_SOURCE/examples/demo/test.jsonl" "$tmp" <<'PY' || fail "prompts"
import json, sys
rows = [json.loads(l)["messages"][0] for l in open(sys.argv[1])][:40]
for i, r in enumerate(rows):
    r["content"] = r["content"] * (1 + i % 3)
open(sys.argv[2] + "/prompts.jsonl", "w").writelines(json.dumps({"messages": [r]}) + "\n" for r in rows)
PY
run generate "$base" -f "$tmp/prompts.jsonl" -n 24 --json >"$tmp/many" || fail "generate: $(cat "$tmp/err")"
[ "$(wc -l <"$tmp/many")" = 40 ] || fail "answers to 40 prompts: $(wc -l <"$tmp/many")"
[ "$(grep -c '"stop": "eos"' "$tmp/many")" -gt 5 ] || fail "answers do not end at different steps"
for i in 1 2 3 17 33 40; do
    sed -n "${i}p" "$tmp/prompts.jsonl" >"$tmp/one.jsonl"
    run generate "$base" -f "$tmp/one.jsonl" -n 24 --json >"$tmp/one" || fail "generate one"
    [ "$(sed -n "${i}p" "$tmp/many")" = "$(cat "$tmp/one")" ] || fail "prompt $i has another answer alone"
done

# what it generates as the expected answer of 30 records; 9 expect something else, and 1 is too long
python3 - "$tmp" <<'PY' || fail "records"
import json, sys
tmp = sys.argv[1]
with open(tmp + "/data.jsonl", "w") as f:
    for i, (p, a) in enumerate(zip(open(tmp + "/prompts.jsonl"), open(tmp + "/many"))):
        messages, a = json.loads(p)["messages"], json.loads(a)
        text = a["text"].replace("<|im_end|>", "")
        if i < 8:
            text += " no" if i % 2 else ""
            text = text if i % 2 else "no " + text
        elif i == 38:
            text = "y"
        elif i == 39:
            messages[0]["content"] *= 40
        f.write(json.dumps({"messages": messages + [{"role": "assistant", "content": text}]}) + "\n")
PY
run eval "$base" --data "$tmp/data.jsonl" --generate -n 24 --sequence-len 200 -o "$tmp/answers.jsonl" --json >"$tmp/out" ||
    fail "eval --generate: $(cat "$tmp/err")"
python3 - "$tmp" <<'PY' || fail "$(cat "$tmp/out")"
import json, sys
tmp = sys.argv[1]
r = json.load(open(tmp + "/out"))
answers = [json.loads(l) for l in open(tmp + "/answers.jsonl")]
many = [json.loads(l) for l in open(tmp + "/many")]
assert r["answers"] == 39 and r["left_out"] == 1, r
assert abs(r["exact_match"] - 30 / 39) < 1e-12, r
assert [a["match"] for a in answers] == [False] * 8 + [True] * 30 + [False], answers
assert [a["record"] for a in answers] == list(range(39)), answers
for a, m in zip(answers[:38], many):
    assert a["answer"] == m["text"].replace("<|im_end|>", "") and a["stop"] == m["stop"], (a, m)
assert r["tokens"] >= sum(len(m["ids"]) for m in many[:38]), r
PY
run eval "$base" --data "$tmp/data.jsonl" --generate -n 24 --sequence-len 200 >"$tmp/out" || fail "eval: $(cat "$tmp/err")"
grep -q '^exact_match 0.7692  answers 39  left out 1  tokens ' "$tmp/out" || fail "$(cat "$tmp/out")"

run eval "$base" --data "$tmp/data.jsonl" --generate -o "$tmp/answers.jsonl" >/dev/null && fail "an existing file is overwritten"
grep -q "answers.jsonl" "$tmp/err" || fail "an existing file: $(cat "$tmp/err")"
odd="$tmp/two
lines, \"it's\" \\n"
cp "$tmp/data.jsonl" "$odd.jsonl"
run eval "$base" --data "$odd.jsonl" --sequence-len 200 >"$tmp/out" || fail "a path with quotes and a new line: $(cat "$tmp/err")"
run eval "$base" --data "$odd.jsonl" --type "it's" >/dev/null && fail "a type with a quote passes"
grep -q "it's" "$tmp/err" || fail "a type with a quote: $(cat "$tmp/err")"
printf '{"text": "no prompt at all"}\n' >"$tmp/text.jsonl"
run eval "$base" --data "$tmp/text.jsonl" --generate >/dev/null && fail "records without prompts pass"
grep -q "none of the 1 records of '$tmp/text.jsonl' has a prompt and an answer" "$tmp/err" || fail "$(cat "$tmp/err")"
run eval "$base" --data "$tmp/data.jsonl" --generate --sequence-len 5 >/dev/null && fail "records that are all too long pass"
grep -q "of the records of '$tmp/data.jsonl', 40 are longer than 5 tokens" "$tmp/err" || fail "too long: $(cat "$tmp/err")"
usage() {
    "$AFINAR" eval "${@:2}" >/dev/null 2>"$tmp/err"
    [ $? -eq 2 ] || fail "not wrong usage: ${*:2}"
    grep -qF -- "$1" "$tmp/err" || fail "${*:2}: $(cat "$tmp/err")"
}
usage "no effect without --generate" "$base" --data "$tmp/data.jsonl" -n 4
usage "not plain text" "$base" --data x.txt --generate
usage "at least 1" "$base" --data x.jsonl --generate -n 0
usage "--generate needs MODEL --data FILE" run.yaml --generate
echo ok
