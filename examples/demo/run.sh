#!/usr/bin/env bash
# The demo: teaches a small base model, with QLoRA on the CPU, to turn a sentence into JSON, and
# scores it on held-out sentences before and after. `make demo` builds the program and runs this.
# AFINAR: the program [build/afinar]; DEMO_OUT: where everything goes [build/demo].
# Further arguments are passed to `afinar train` (max_steps=20, lora_r=8, ...).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
afinar=${AFINAR:-$root/build/afinar}
out=${DEMO_OUT:-$root/build/demo}
mkdir -p "$out"
start=$SECONDS

say() { printf '\n== %s (%d s)\n' "$1" $((SECONDS - start)); }
answer() { # answer FILE [OPTIONS]: the model's greedy answers to the test sentences
    local to=$1
    shift
    "$afinar" generate "$here/base" --load-in-4bit --device cpu -f "$out/prompts.jsonl" -n 48 --json "$@" >"$to"
}

python3 "$here/score.py" prompts "$here/test.jsonl" "$out/prompts.jsonl"
say "the base model answers $(wc -l <"$out/prompts.jsonl") held-out sentences"
answer "$out/before.jsonl"
say "QLoRA fine-tuning on $(wc -l <"$here/train.jsonl") records"
"$afinar" train "$here/run.yaml" --device cpu base_model="$here/base" \
    datasets="[{path: $here/train.jsonl}]" output_dir="$out/adapter" "$@"
say "the fine-tuned model answers the same sentences"
answer "$out/after.jsonl" --adapter "$out/adapter"
say "done"
echo "adapter: $out/adapter"
echo "report:  $out/adapter/report.html"
python3 "$here/score.py" table "$here/test.jsonl" "$out/before.jsonl" "$out/after.jsonl"
