#!/usr/bin/env bash
# generate, logits and eval through the program: exit codes, JSON, and the same answer twice.
set -u
fail() { echo "FAILED: $1"; exit 1; }
models=$AF_GOLDEN/models
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

"$AFINAR" generate "$models/llama3_tiny" --device cpu --prompt-ids 5,9,17,4 -n 6 --ignore-eos --json \
    >"$tmp/a" 2>"$tmp/err" || fail "generate: $(cat "$tmp/err")"
grep -qE '^\{"prompt_ids": \[5, 9, 17, 4\], "ids": \[[0-9, ]+\], "text": null, "stop": "length"\}$' "$tmp/a" ||
    fail "unexpected JSON: $(cat "$tmp/a")"
"$AFINAR" generate "$models/llama3_tiny" --device cpu --threads 1 --prompt-ids 5,9,17,4 -n 6 --ignore-eos --json \
    >"$tmp/b" 2>/dev/null || fail "generate with one thread"
cmp -s "$tmp/a" "$tmp/b" || fail "another number of threads gives other tokens"
"$AFINAR" generate "$models/llama3_tiny" --device cpu --adapter "$models/adapters/lora=0" --prompt-ids 5,9,17,4 -n 6 \
    --ignore-eos --json >"$tmp/b" 2>/dev/null || fail "generate with an adapter"
cmp -s "$tmp/a" "$tmp/b" || fail "an adapter of weight 0 gives other tokens"

"$AFINAR" generate "$models/llama3_tiny" --device cpu >/dev/null 2>&1
[ $? -eq 2 ] || fail "no prompt is not wrong usage"
"$AFINAR" generate "$tmp/nothing" --device cpu --prompt-ids 1 >"$tmp/out" 2>"$tmp/err"
[ $? -eq 1 ] || fail "no model is not a failure"
[ ! -s "$tmp/out" ] || fail "a failure writes to stdout"
"$AFINAR" generate "$models/llama3_tiny" --device cpu --prompt-ids 5,99 >/dev/null 2>"$tmp/err"
[ $? -eq 1 ] || fail "a token outside the vocabulary passes"
grep -q 99 "$tmp/err" || fail "the message does not name the token"

# an adapter's folder where a model belongs: its base and the option are named, whatever the command
lora=$models/adapters/lora
for words in "generate $lora --prompt-ids 1" "chat $lora" "eval $lora --data $tmp/a" "logits $lora --ids $tmp/a -o $tmp/x" \
    "quantize $lora -o $tmp/x --type q8_0" "merge $lora --adapter $lora -o $tmp/x" "init $lora $tmp/a"; do
    "$AFINAR" $words >/dev/null 2>"$tmp/err" </dev/null
    [ $? -eq 1 ] || fail "an adapter passes as a model: $words"
    grep -qF "is an adapter, not a model: give its base, 'llama3_tiny', as the model and --adapter" "$tmp/err" ||
        fail "$words: $(cat "$tmp/err")"
done
"$AFINAR" merge "$lora" -o "$tmp/x" 2>"$tmp/err"
grep -q "is a folder, not a merge file" "$tmp/err" || fail "merge of a folder: $(cat "$tmp/err")"

"$AFINAR" genrate 2>"$tmp/err"
[ $? -eq 2 ] || fail "an unknown command is not wrong usage"
grep -q "no command 'genrate'; did you mean 'generate'?" "$tmp/err" || fail "$(cat "$tmp/err")"
"$AFINAR" generate x --promt-ids=1 2>"$tmp/err"
[ $? -eq 2 ] || fail "an unknown option is not wrong usage"
grep -q "unknown option '--promt-ids=1'; did you mean '--prompt-ids'?" "$tmp/err" || fail "$(cat "$tmp/err")"

"$AFINAR" logits "$models/qwen2_tiny" --device cpu --ids "$models/qwen2_tiny/golden.safetensors" -o "$tmp/l.safetensors" \
    2>"$tmp/err" || fail "logits: $(cat "$tmp/err")"
[ -s "$tmp/l.safetensors" ] || fail "no logits were written"
printf '{"input_ids": [3, 4, 5, 6], "labels": [-100, 4, 5, 6]}\n' >"$tmp/rows.jsonl"
"$AFINAR" logits "$models/qwen2_tiny" --device cpu --ids "$tmp/rows.jsonl" -o "$tmp/x" 2>/dev/null && fail "jsonl as ids passes"
[ ! -e "$tmp/x" ] || fail "a failed command leaves a file"
echo passed
