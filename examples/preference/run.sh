#!/usr/bin/env bash
# DPO on the CPU: the demo's base model learns to name the day before the town, which it has never
# read, and is scored on held-out prompts before and after.
# AFINAR: the program [build/afinar]; PREFERENCE_OUT: where everything goes [build/preference].
# Further arguments are passed to `afinar train` (rl_beta=0.3, num_epochs=1, ...).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
afinar=${AFINAR:-$root/build/afinar}
out=${PREFERENCE_OUT:-$root/build/preference}
base=$root/examples/demo/base
mkdir -p "$out"
start=$SECONDS

say() { printf '\n== %s (%d s)\n' "$1" $((SECONDS - start)); }
answer() { # answer FILE [OPTIONS]: the model's greedy answers to the prompts
    local to=$1
    shift
    "$afinar" generate "$base" --device cpu -f "$out/prompts.jsonl" -n 12 --json "$@" >"$to"
}
keys=(base_model="$base" datasets="[{path: $out/train.jsonl}]" test_datasets="[{path: $out/test.jsonl}]"
    output_dir="$out/adapter" "$@")

python3 "$here/make_pairs.py" "$out/train.jsonl" "$out/test.jsonl"
python3 "$here/score.py" prompts "$out/test.jsonl" "$out/prompts.jsonl"
say "the base model continues $(wc -l <"$out/prompts.jsonl") held-out prompts"
answer "$out/before.jsonl"
say "DPO on $(wc -l <"$out/train.jsonl") pairs"
"$afinar" train "$here/run.yaml" --device cpu "${keys[@]}"
say "the held-out pairs, by the policy and its reference"
"$afinar" eval "$here/run.yaml" --device cpu "${keys[@]}"
say "the trained model continues the same prompts"
answer "$out/after.jsonl" --adapter "$out/adapter"
say "done"
echo "adapter: $out/adapter"
echo "report:  $out/adapter/report.html"
python3 "$here/score.py" table "$out/test.jsonl" "$out/before.jsonl" "$out/after.jsonl"
