#!/usr/bin/env bash
# `afinar init` looks at a model and a dataset and writes a run file that `afinar train` accepts as it is.
set -euo pipefail
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache" HF_HOME="$tmp/hf"
trap 'rm -rf "$tmp"' EXIT
model=$AF_GOLDEN/models/qwen2
data=$AF_GOLDEN/models/data/train.jsonl
"$AFINAR" init "$model" "$data" -o "$tmp/run.yaml" 2> /dev/null
(cd "$tmp" && "$AFINAR" init "$model" "$data" -o - 2> /dev/null | cmp - run.yaml && [ ! -e ./- ]) || { echo "-o - is not stdout"; exit 1; }
for word in "qwen2" "64 records of type messages" "the longest 91" "sequence_len: 128" "adapter: lora"; do
    grep -qF "$word" "$tmp/run.yaml" || { echo "the run file does not contain '$word'"; cat "$tmp/run.yaml"; exit 1; }
done
cmp "$tmp/run.yaml" <("$AFINAR" init "$model" "$data") # the same on stdout
"$AFINAR" train "$tmp/run.yaml" -q max_steps=2 device=cpu output_dir="$tmp/out"
[ -s "$tmp/out/adapter_model.safetensors" ]

if "$AFINAR" init "$model" "$data" -o "$tmp/run.yaml" 2> "$tmp/err"; then echo "a run file was replaced"; exit 1; fi
grep -q "run.yaml' exists: choose another name, or replace it with --force" "$tmp/err"
"$AFINAR" init "$model" "$data" -o "$tmp/run.yaml" --force 2> /dev/null
echo "# my own line" >> "$tmp/run.yaml"
if "$AFINAR" init "$model" "$data" -o "$tmp/run.yaml" --force 2> "$tmp/err"; then echo "an edited run file was replaced"; exit 1; fi
grep -q "run.yaml' has been changed since afinar wrote it" "$tmp/err"
grep -q "# my own line" "$tmp/run.yaml"

printf '{"text": "one"}\n{"text": "two words"}\n' > "$tmp/text.jsonl"
"$AFINAR" init "$model" "$tmp/text.jsonl" > "$tmp/text.yaml"
grep -q "type: text" "$tmp/text.yaml"
# long texts lose nothing; pairs and labelled answers are trained on as such; labels are pointed out
python3 -c 'import json; print(json.dumps({"text": "one two three four " * 2000}))' > "$tmp/long.jsonl"
"$AFINAR" init "$model" "$tmp/long.jsonl" -o "$tmp/long.yaml" 2> /dev/null
"$AFINAR" data check "$tmp/long.yaml" > "$tmp/checked" 2>&1
grep -q "^truncated to sequence_len  *0$" "$tmp/checked" && [ "$(awk '$1 == "records" { print $2 }' "$tmp/checked")" -gt 4 ] ||
    { echo "a long text is cut off: $(cat "$tmp/checked")"; exit 1; }
printf '{"prompt": "a", "chosen": "b", "rejected": "c"}\n{"prompt": "d", "chosen": "e", "rejected": "f"}\n' > "$tmp/pairs.jsonl"
printf '{"prompt": "a", "completion": "b", "label": true}\n{"prompt": "d", "completion": "e", "label": false}\n' > "$tmp/kto.jsonl"
for f in pairs:dpo kto:kto; do
    "$AFINAR" init "$model" "$tmp/${f%:*}.jsonl" -o "$tmp/${f%:*}.yaml" 2> /dev/null
    grep -q "^rl: ${f#*:} " "$tmp/${f%:*}.yaml"
    "$AFINAR" train "$tmp/${f%:*}.yaml" -q max_steps=1 device=cpu output_dir="$tmp/out.$f"
done
# rows of pairs are not packed, however short they are; the same texts as answers are
for kind in 'chosen": "b", "rejected:false' 'completion:true'; do
    printf "{\"prompt\": \"a\", \"${kind%:*}\": \"c\"}\n%.0s" $(seq 20000) > "$tmp/many.jsonl"
    "$AFINAR" init "$model" "$tmp/many.jsonl" 2> /dev/null > "$tmp/many.yaml"
    grep -q "^sample_packing: ${kind##*:} " "$tmp/many.yaml" || { cat "$tmp/many.yaml"; exit 1; }
done
printf '{"text": "a", "label": 1}\n' > "$tmp/labels.jsonl"
"$AFINAR" init "$model" "$tmp/labels.jsonl" 2> /dev/null | grep -q "^# task_type: SEQ_CLS"
for bad in "$tmp/absent.jsonl" "$tmp/err"; do # missing; not a dataset
    if "$AFINAR" init "$model" "$bad" -o "$tmp/bad.yaml" 2> "$tmp/why"; then echo "$bad was accepted"; exit 1; fi
    [ "$(wc -l < "$tmp/why")" = 1 ] && [ ! -e "$tmp/bad.yaml" ]
done
if "$AFINAR" init "$tmp" "$data" 2> "$tmp/why"; then echo "an empty folder was accepted as a model"; exit 1; fi

rc=0; "$AFINAR" init "$model" "$data" --json > "$tmp/json" 2> /dev/null || rc=$?
[ $rc = 2 ] && [ "$(cat "$tmp/json")" = '{"error": "--json is not supported; a run file is YAML"}' ] || { echo "YAML where JSON was asked for"; exit 1; }

# a list of turns under another name
printf '{"id": 1, "conversation": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]}\n' > "$tmp/turns.jsonl"
"$AFINAR" init "$model" "$tmp/turns.jsonl" 2> /dev/null > "$tmp/turns.yaml"
[ "$(grep -c "^    type: messages$\|^    field_messages: conversation$" "$tmp/turns.yaml")" = 2 ] || { cat "$tmp/turns.yaml"; exit 1; }
"$AFINAR" data check "$tmp/turns.yaml" > /dev/null 2>&1

# its own field names, as in a run file
printf '{"q": "one", "a": "two"}\n' > "$tmp/qa.jsonl"
"$AFINAR" init "$model" "{path: $tmp/qa.jsonl, field_prompt: q, field_completion: a}" > "$tmp/qa.yaml"
grep -qF "  - {path: $tmp/qa.jsonl, field_prompt: q, field_completion: a}" "$tmp/qa.yaml"
"$AFINAR" train "$tmp/qa.yaml" -q max_steps=1 device=cpu output_dir="$tmp/qa"

# a field that is the question is not its input as well; a question in messages with two answers
printf '{"input": "one", "output": "two"}\n' > "$tmp/io.jsonl"
"$AFINAR" init "$model" "$tmp/io.jsonl" 2> /dev/null > "$tmp/io.yaml"
"$AFINAR" data preview "$tmp/io.yaml" --json 2> /dev/null | python3 -c 'import json, sys; assert json.loads(sys.stdin.readline())["text"].count("one") == 1'
printf '{"messages": [{"role": "user", "content": "a"}], "chosen_response": {"role": "assistant", "content": "b"}, "rejected_response": {"role": "assistant", "content": "c"}}\n' > "$tmp/open.jsonl"
"$AFINAR" init "$model" "$tmp/open.jsonl" 2> /dev/null > "$tmp/open.yaml"
grep -q "^rl: dpo " "$tmp/open.yaml"
"$AFINAR" data check "$tmp/open.yaml" > /dev/null 2>&1
