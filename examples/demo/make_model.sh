#!/usr/bin/env bash
# Rebuilds the demo's base model: text, tokenizer, random weights, pre-training with afinar, bf16.
# Takes some twenty minutes of one core; needs the Python package `tokenizers` (the demo does not).
# make_model.sh [FOLDER]: where the work is done [build/demo-model]; the model goes to base/.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=${1:-$root/build/demo-model}
mkdir -p "$work/init"
cd "$work"
"$here/make_text.py" text.jsonl 40000 1
"$here/make_text.py" text_eval.jsonl 100 2
"$here/make_tokenizer.py" text.jsonl init
"$here/make_base.py" init 1
"${AFINAR:-$root/build/afinar}" train "$here/pretrain.yaml" resume_from_checkpoint=auto
mkdir -p "$here/base"
cp init/tokenizer.json init/tokenizer_config.json "$here/base/"
sed 's/"float32"/"bfloat16"/' init/config.json >"$here/base/config.json"
"$here/make_base.py" --round trained/model.safetensors "$here/base/model.safetensors"
cp trained/metrics.jsonl "$here/pretrain_metrics.jsonl"
