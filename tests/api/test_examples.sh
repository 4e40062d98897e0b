#!/usr/bin/env bash
# The examples that need a model, on the tiny one: the loss falls, and the program loads the adapter they write.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
model=$AF_GOLDEN/models/qwen2
printf 'the cat sat on the mat. %.0s' {1..40} >"$tmp/text.txt"

falls() { # LOG: the last loss is below the first
    awk '/^step/ { for (i = 1; i < NF; i++) if ($i == "loss") { if (!n++) first = $(i + 1); last = $(i + 1) } }
         END { exit !(n > 1 && last < first) }' "$1" || { echo "the loss does not fall:"; cat "$1"; exit 1; }
}

"$AF_BUILD/example_custom_loss" "$model" "$tmp/text.txt" "$tmp/custom" 6 >"$tmp/log"
falls "$tmp/log"
"$AFINAR" eval "$model" --adapter "$tmp/custom" --data "$tmp/text.txt" --device cpu -q --json >"$tmp/after"
"$AFINAR" eval "$model" --data "$tmp/text.txt" --device cpu -q --json >"$tmp/before"
python3 - "$tmp/before" "$tmp/after" <<'PY' || { echo "the adapter of custom_loss does not help"; exit 1; }
import json, sys
before, after = (json.load(open(p))["loss"] for p in sys.argv[1:])
sys.exit(after >= before)
PY

rc=0
"$AF_BUILD/example_custom_loss" "$model" /dev/null "$tmp/none" 2>"$tmp/err" || rc=$?
[ $rc = 1 ] && grep -q "has 0 tokens" "$tmp/err" || { echo "custom_loss without text: exit $rc"; cat "$tmp/err"; exit 1; }

"$AF_BUILD/example_finetune" "$model" "$AF_GOLDEN/models/data/train.jsonl" "$tmp/run" device=cpu max_steps=6 sequence_len=128 \
    learning_rate=1e-2 shuffle=false lora_r=4 >"$tmp/log" 2>"$tmp/err" || { cat "$tmp/err"; exit 1; }
[ "$(grep -c '^step' "$tmp/log")" = 6 ] || { cat "$tmp/log"; exit 1; }
[ -s "$tmp/run/adapter_model.safetensors" ]
"$AFINAR" generate "$model" --adapter "$tmp/run" -p hello -n 3 --device cpu -q >/dev/null
for bad in "no_such_key=1" "lora_r" "lora_r=many"; do
    if "$AF_BUILD/example_finetune" "$model" "$AF_GOLDEN/models/data/train.jsonl" "$tmp/bad" "$bad" >/dev/null 2>"$tmp/err"; then
        echo "$bad is accepted"; exit 1
    fi
    [ "$(wc -l <"$tmp/err")" = 1 ] || { cat "$tmp/err"; exit 1; }
done
