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
"$AFINAR" generate "$models/llama3_tiny" --device cpu --prompt-ids 5,9,17,4 --prompt-ids 3 -n 6 --ignore-eos --json \
    >"$tmp/b" 2>/dev/null || fail "generate from two lists of ids"
[ "$(wc -l <"$tmp/b")" = 2 ] && cmp -s "$tmp/a" <(head -n 1 "$tmp/b") || fail "one of two --prompt-ids is lost"

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
    grep -qF "is an adapter, not a model: pass its base, 'llama3_tiny', as the model and --adapter" "$tmp/err" ||
        fail "$words: $(cat "$tmp/err")"
done
"$AFINAR" merge "$lora" -o "$tmp/x" 2>"$tmp/err"
grep -q "is a folder, not a merge file" "$tmp/err" || fail "merge of a folder: $(cat "$tmp/err")"

"$AFINAR" genrate 2>"$tmp/err"
[ $? -eq 2 ] || fail "an unknown command is not wrong usage"
grep -q "unknown command 'genrate'; did you mean 'generate'?" "$tmp/err" || fail "$(cat "$tmp/err")"
"$AFINAR" generate x --promt-ids=1 2>"$tmp/err"
[ $? -eq 2 ] || fail "an unknown option is not wrong usage"
grep -q "unknown option '--promt-ids=1'; did you mean '--prompt-ids'?" "$tmp/err" || fail "$(cat "$tmp/err")"

"$AFINAR" logits "$models/qwen2_tiny" --device cpu --ids "$models/qwen2_tiny/golden.safetensors" -o "$tmp/l.safetensors" \
    2>"$tmp/err" || fail "logits: $(cat "$tmp/err")"
[ -s "$tmp/l.safetensors" ] || fail "no logits were written"
printf '{"input_ids": [3, 4, 5, 6], "labels": [-100, 4, 5, 6]}\n' >"$tmp/rows.jsonl"
"$AFINAR" logits "$models/qwen2_tiny" --device cpu --ids "$tmp/rows.jsonl" -o "$tmp/x" 2>/dev/null && fail "jsonl as ids passes"
[ ! -e "$tmp/x" ] || fail "a failed command leaves a file"

# contradictory options are reported before a model is opened
usage() {
    "$AFINAR" "${@:2}" >"$tmp/out" 2>"$tmp/err"
    [ $? -eq 2 ] || fail "not wrong usage: ${*:2}"
    grep -qF -- "$1" "$tmp/err" || fail "${*:2}: $(cat "$tmp/err")"
}
qwen=$models/qwen2_tiny
usage "--system has no effect without --chat" generate "$qwen" --prompt-ids 1 --system x
usage "--chat has no effect on --prompt-ids" generate "$qwen" --prompt-ids 1 --chat
usage "--stop has an empty text" generate "$qwen" -p x --stop ""
usage "--max-new-tokens must be at least 0" generate "$qwen" --prompt-ids 1 -n -3
usage "--seq applies to plain text" eval "$qwen" --data "$tmp/rows.jsonl" --seq 64
usage "must be at least 2" eval "$qwen" --data "$tmp/rows.jsonl" --sequence-len -4
printf 'a text \xff of bytes' > "$tmp/bytes.txt"
"$AFINAR" eval "$AF_GOLDEN/models/qwen2" --data "$tmp/bytes.txt" --device cpu > /dev/null 2> "$tmp/err" && fail "a text that is not UTF-8"
grep -q "afinar eval: $tmp/bytes.txt: the text is not UTF-8 at byte 7 of 17" "$tmp/err" || fail "the file is not named: $(cat "$tmp/err")"
usage "no effect on plain text" eval "$qwen" --data x.txt --type messages
"$AFINAR" generate "$qwen" --device cpu -f "$tmp" >/dev/null 2>"$tmp/err"
[ $? -eq 1 ] || fail "a folder as a prompt passes"
grep -q "cannot read '$tmp'" "$tmp/err" || fail "a folder as a prompt: $(cat "$tmp/err")"
"$AFINAR" generate "$qwen/model.safetensors" --device cpu --prompt-ids 1 2>"$tmp/err" && fail "a file of a folder passes"
grep -qF "pass its folder, '$qwen'" "$tmp/err" || fail "a file of a folder: $(cat "$tmp/err")"

# NaN weights: a failure, and no 'nan' in the JSON output
cp -r "$qwen" "$tmp/nan" && chmod -R u+w "$tmp/nan"
bytes=$(wc -c <"$tmp/nan/model.safetensors")
printf '\377\377\377\377' | dd of="$tmp/nan/model.safetensors" bs=1 seek=$((bytes - 4)) conv=notrunc status=none
"$AFINAR" eval "$qwen" --device cpu --data "$tmp/rows.jsonl" --json >/dev/null 2>"$tmp/err" || fail "eval: $(cat "$tmp/err")"
"$AFINAR" eval "$tmp/nan" --device cpu --data "$tmp/rows.jsonl" --json >"$tmp/out" 2>"$tmp/err"
[ $? -eq 1 ] || fail "a loss that is not finite passes"
grep -q '^{"error": ".*is not finite"}$' "$tmp/out" || fail "it is printed: $(cat "$tmp/out")"
grep -q "is not finite" "$tmp/err" || fail "$(cat "$tmp/err")"

# ids as --json prints them, a prompt from a pipe, and invalid lists, files and pairs of options
chat_model=$AF_GOLDEN/models/qwen2
gen() { "$AFINAR" generate "$chat_model" --device cpu -n 3 --json -q "$@" 2>"$tmp/err"; }
for list in "1, 2 ,3" "[1, 2, 3]"; do
    [ "$(gen --prompt-ids "$list")" = "$(gen --prompt-ids 1,2,3)" ] || fail "ids '$list': $(cat "$tmp/err")"
done
for list in "1 2" "[1,2" "1]" "1,,2" "-1"; do
    gen --prompt-ids "$list" && fail "ids '$list' pass"
    grep -qF "'$list' is not a list of token ids" "$tmp/err" || fail "ids '$list': $(cat "$tmp/err")"
done
[ "$(printf 'hello' | gen -f -)" = "$(gen -p hello)" ] || fail "a prompt from a pipe: $(cat "$tmp/err")"
# the newline with which a text file ends is not part of the prompt, as in llama.cpp; one before it is
echo hello >"$tmp/p.txt"
[ "$(gen -f "$tmp/p.txt")" = "$(gen -p hello)" ] || fail "the newline at the end of the file is part of the prompt"
echo >>"$tmp/p.txt"
[ "$(gen -f "$tmp/p.txt")" = "$(gen -p $'hello\n')" ] || fail "an empty line at the end is lost"
: >"$tmp/p.jsonl"
gen -f "$tmp/p.jsonl" && fail "no prompts pass"
grep -q "p.jsonl: no prompts" "$tmp/err" || fail "$(cat "$tmp/err")"
printf '{"prompt": "hi"}\n{"prompt": \n' >"$tmp/p.jsonl"
gen -f "$tmp/p.jsonl" && fail "a broken line passes"
grep -q "p.jsonl:2: .*end of file" "$tmp/err" || fail "$(cat "$tmp/err")"
printf '{"prompt": "hi"}\n5\n' >"$tmp/p.jsonl"
gen -f "$tmp/p.jsonl" && fail "a line of one character is skipped"
grep -q "p.jsonl:2: " "$tmp/err" || fail "$(cat "$tmp/err")"
for words in "-p \377" "-p hello --system \377"; do # shellcheck disable=SC2059,SC2046 # bytes that are not text
    gen --chat $(printf -- "$words") && fail "not UTF-8: $words"
    grep -q "not valid UTF-8" "$tmp/err" || fail "not UTF-8: $(cat "$tmp/err")"
done
# an answer that ends like a stop string begins is printed to its end
demo() { "$AFINAR" generate "$AF_SOURCE/examples/demo/base" --device cpu --chat -p Hello -q "$@"; }
whole=$(demo)
[ "$(demo --stop "${whole: -4} and")" = "$whole" ] || fail "the end of '$whole' is held back: '$(demo --stop "${whole: -4} and")'"
gen -p hello --bf16 --f32 && fail "two types pass"
grep -q -- "give either --bf16 or --f32" "$tmp/err" || fail "$(cat "$tmp/err")"
# the smallest possible set is the most likely token; greedy decoding ignores sets
[ "$(gen -p hello --temperature 1 --top-p 0)" = "$(gen -p hello)" ] || fail "--top-p 0 is not the most likely token"
gen -p hello --top-k 3 >/dev/null && grep -q "^warning: .*--top-k .*no effect at temperature 0" "$tmp/err" || fail "$(cat "$tmp/err")"
# beyond the context: one warning, and none within it
gen -p hello -n 253 --ignore-eos >/dev/null && [ ! -s "$tmp/err" ] || fail "253 + 3 tokens: $(cat "$tmp/err")"
gen -p hello -n 300 --ignore-eos >/dev/null && [ "$(cat "$tmp/err")" = "warning: a text is longer than the model's context of 256 tokens" ] ||
    fail "303 tokens: $(cat "$tmp/err")"

printf 'what is it, this or that? it is this. %.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 >"$tmp/long.txt"
for words in "--seq 256" "--seq 257"; do # shellcheck disable=SC2086 # arguments of a command
    "$AFINAR" eval "$chat_model" --device cpu --data "$tmp/long.txt" $words -q 2>&1 >/dev/null
done >"$tmp/err"
[ "$(cat "$tmp/err")" = "warning: a text is longer than the model's context of 256 tokens" ] || fail "eval beyond the context: $(cat "$tmp/err")"

# a missing chat template is reported before the first line is read
usage "--max-new-tokens must be at least 1" chat "$chat_model" -n -1
"$AFINAR" chat "$qwen" --device cpu -q </dev/null 2>"$tmp/err" && fail "a chat without a template begins"
grep -q "no chat template" "$tmp/err" || fail "$(cat "$tmp/err")"

# a conversation that is reset keeps its system message; --top-k 0 disables top-k, whatever the model suggests
chat() { "$AFINAR" chat "$1" --device cpu -n 9 --json -q "${@:2}" 2>"$tmp/err"; }
printf 'hi there\n/reset\nhi there\n/system\nhi there\n' | chat "$chat_model" --system "be brief" >"$tmp/out" || fail "chat: $(cat "$tmp/err")"
[ "$(sed -n 1p "$tmp/out")" = "$(sed -n 2p "$tmp/out")" ] || fail "/reset: $(cat "$tmp/out")"
[ "$(sed -n 1p "$tmp/out")" != "$(sed -n 3p "$tmp/out")" ] || fail "/system: $(cat "$tmp/out")"
printf 'H\351\nhi there\n' | chat "$chat_model" >"$tmp/out" && fail "a file with a line that is not UTF-8: $(cat "$tmp/out")"
! grep -q '"text"' "$tmp/out" && grep -q "not valid UTF-8" "$tmp/err" || fail "not UTF-8: $(cat "$tmp/out" "$tmp/err")"
cp -r "$chat_model" "$tmp/suggests" && chmod -R u+w "$tmp/suggests"
echo '{"do_sample": true, "temperature": 1.0, "top_k": 1}' >"$tmp/suggests/generation_config.json"
echo hi >"$tmp/line"
[ "$(chat "$tmp/suggests" <"$tmp/line")" = "$(chat "$chat_model" <"$tmp/line")" ] || fail "a suggested top_k is not used"
[ "$(chat "$tmp/suggests" --top-k 0 <"$tmp/line")" != "$(chat "$chat_model" <"$tmp/line")" ] || fail "--top-k 0 is not used"

echo '{"do_sample": true, "temperature": 1.0, "min_p": 1}' >"$tmp/suggests/generation_config.json"
[ "$(chat "$tmp/suggests" <"$tmp/line")" = "$(chat "$chat_model" <"$tmp/line")" ] || fail "a suggested min_p is not used"
[ "$(chat "$tmp/suggests" --min-p 0 <"$tmp/line")" != "$(chat "$chat_model" <"$tmp/line")" ] || fail "--min-p 0 is not used"

# a name of the local cache, for every command that takes a model
hub=$tmp/hf/hub/models--acme--tiny
mkdir -p "$hub/refs" "$hub/snapshots" && printf abc >"$hub/refs/main" && cp -r "$AF_GOLDEN/models/qwen2" "$hub/snapshots/abc"
for words in "tokenize acme/tiny" "template acme/tiny" "tokenize acme/tiny --decode"; do
    echo '{"text": "hi", "ids": [5], "messages": []}' | HF_HOME=$tmp/hf "$AFINAR" $words >"$tmp/out" 2>"$tmp/err" ||
        fail "$words of the cache: $(cat "$tmp/err")"
    [ -s "$tmp/out" ] || fail "$words prints nothing"
done

# a dataset with its own field names, as in a run file
printf '{"q": "what is it", "a": "this"}\n' >"$tmp/qa.jsonl"
"$AFINAR" eval "$AF_GOLDEN/models/qwen2" --device cpu --data "{path: $tmp/qa.jsonl, field_prompt: q, field_completion: a}" --json -q \
    >"$tmp/out" 2>"$tmp/err" || fail "eval of named fields: $(cat "$tmp/err")"
grep -q '"rows": 1}' "$tmp/out" || fail "eval of named fields: $(cat "$tmp/out")"

# plain text under the names other trainers use
for f in text.txt wiki.test.raw; do
    printf 'what is it, this or that? it is this. ' >"$tmp/$f"
    "$AFINAR" eval "$AF_GOLDEN/models/qwen2" --device cpu --data "$tmp/$f" --json -q 2>&1
done >"$tmp/out"
[ "$(wc -l <"$tmp/out") $(sort -u "$tmp/out" | wc -l)" = "2 1" ] || fail "eval of plain text: $(cat "$tmp/out")"

# integers are not weights, and a tensor of a wrong shape is not also reported as unexpected
sed 's/"F32"/"I32"/g' "$qwen/model.safetensors" >"$tmp/nan/model.safetensors"
"$AFINAR" generate "$tmp/nan" --device cpu --prompt-ids 1 2>"$tmp/err" && fail "weights of type I32 pass"
grep -q "has type i32" "$tmp/err" || fail "$(cat "$tmp/err")"
cp "$qwen/model.safetensors" "$tmp/nan/" && sed -i 's/"vocab_size": [0-9]*/"vocab_size": 999/' "$tmp/nan/config.json"
"$AFINAR" generate "$tmp/nan" --device cpu --prompt-ids 1 2>"$tmp/err" && fail "another vocabulary passes"
grep -q "of another shape" "$tmp/err" || fail "$(cat "$tmp/err")"
grep -q "not of this model" "$tmp/err" && fail "reported twice: $(cat "$tmp/err")"
mv "$tmp/nan/model.safetensors" "$tmp/nan/pytorch_model.bin"
"$AFINAR" generate "$tmp/nan" --device cpu --prompt-ids 1 2>"$tmp/err" && fail "a renamed file passes"
grep -q "pytorch_model.bin: this is not a file of torch.save" "$tmp/err" || fail "$(cat "$tmp/err")"

# answers that must fit a schema or a grammar
held() { "$AFINAR" generate "$AF_GOLDEN/models/qwen2" --device cpu -q -p Hi --temperature 1 "$@" 2>"$tmp/err"; }
echo '{"type": "object", "properties": {"a": {"enum": [7]}}, "required": ["a"]}' >"$tmp/schema.json"
for seed in 1 2 3; do
    held --seed $seed --json-schema-file "$tmp/schema.json" | tr -d ' \t\n' >"$tmp/out"
    [ "$(cat "$tmp/out")" = '{"a":7}' ] || fail "a schema: $(cat "$tmp/out" "$tmp/err")"
done
echo 'root ::= "yes" | "no"' >"$tmp/rules"
for words in "--grammar-file $tmp/rules" "--json-schema {\"enum\":[\"yes\",\"no\"]}"; do
    held -p Ho -p Hu $words | tr -d '"' >"$tmp/out" # no space in the words
    [ "$(grep -cxE 'yes|no' "$tmp/out")" = 3 ] || fail "$words: $(cat "$tmp/out" "$tmp/err")"
done
held --json-schema '{"not": {}}' && fail "a keyword that is not kept passes"
grep -q "schema keyword 'not' is not supported" "$tmp/err" || fail "$(cat "$tmp/err")"
echo 'root = x' >"$tmp/rules"
held --grammar-file "$tmp/rules" && fail "a wrong grammar passes"
grep -q "$tmp/rules: grammar line 1" "$tmp/err" || fail "$(cat "$tmp/err")"
usage "give one of --json-schema" generate "$qwen" -p x --grammar a --json-schema '{}'
usage "--ignore-eos cannot be used" generate "$qwen" -p x --grammar a --ignore-eos

# output that cannot be written is a failure; the descriptor of a closed stream is not reused for an output file
if [ -w /dev/full ]; then
    for words in "inspect $qwen --json" "--help" "generate $qwen --device cpu --prompt-ids 1 -n 2 -q" "init --help" \
        "eval $qwen --device cpu --data $tmp/rows.jsonl -q"; do
        "$AFINAR" $words >/dev/full 2>"$tmp/err"
        [ $? -eq 1 ] || fail "a full disk passes: $words"
        grep -q "cannot write the output: No space" "$tmp/err" || fail "$words: $(cat "$tmp/err")"
    done
    echo '{"messages": []}' | "$AFINAR" template "$AF_GOLDEN/models/qwen2" >/dev/full 2>"$tmp/err"
    [ $? -eq 1 ] && [ "$(wc -l <"$tmp/err")" = 1 ] || fail "template on a full disk: $(cat "$tmp/err")"
fi
"$AFINAR" logits "$qwen" --device cpu --ids "$qwen/golden.safetensors" -o "$tmp/m.safetensors" -q >&- 2>"$tmp/err"
cmp "$tmp/l.safetensors" "$tmp/m.safetensors" || fail "a file differs when stdout is closed"
echo passed
