#!/usr/bin/env bash
# Runs that are resumed with other keys than they were begun with: what a checkpoint lacks, or has and the run does not train, is
# refused by its name, whatever the optimizer keeps; keys that change the result are named, also where nothing is left to do.
set -euo pipefail
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache"
trap 'rm -rf "$tmp"' EXIT
die() { echo "$1"; exit 1; }
cat > "$tmp/run.yaml" <<YAML
base_model: $AF_GOLDEN/models/qwen2
datasets: [{path: $AF_GOLDEN/models/data/train_tokens.jsonl}]
adapter: lora
lora_r: 4
lora_target_modules: [q_proj, v_proj]
optimizer: sgd # keeps no state that could differ
learning_rate: 1e-2
max_steps: 2
resume_from_checkpoint: auto
device: cpu
threads: 1
YAML
sed '/^lora_r/d; /^lora_target/d; s/^adapter: lora/adapter: freeze\nfreeze_trainable_layers: 2/' "$tmp/run.yaml" > "$tmp/freeze.yaml"
train() { "$AFINAR" train "$tmp/$1.yaml" output_dir="$tmp/$1" "${@:2}" 2> "$tmp/err"; }
refused() { # RUN MESSAGE KEYS...: the checkpoint does not fit these keys
    cp -a "$tmp/$1" "$tmp/copy"
    train "$1" output_dir="$tmp/copy" max_steps=3 "${@:3}" && die "resumed with ${*:3}: $(cat "$tmp/err")"
    grep -qF -- "$2" "$tmp/err" || die "${*:3}: $(cat "$tmp/err")"
    rm -r "$tmp/copy"
}

train run || die "$(cat "$tmp/err")"
at=model.layers.0.self_attn
refused run "has an adapter on '$at.v_proj', this run has none: resume with the keys it was made with" 'lora_target_modules=[q_proj]'
refused run "has no adapter on '$at.o_proj', this run has one" 'lora_target_modules=[q_proj, v_proj, o_proj]'
refused run "has an adapter on 'model.layers.0.self_attn.q_proj', this run has none" 'lora_layers_to_transform=[1]'
refused run "has rank 4 on '$at.q_proj', the run has 2" 'lora_rank_pattern={q_proj: 2}'
refused run "has no magnitude of DoRA on '$at.q_proj', this run has one" adapter=dora
refused run "has no bias of an adapter on '$at.q_proj', this run has one" lora_bias=true
refused run "has no trained tensor on 'model.embed_tokens.weight', this run has one" 'lora_modules_to_save=[embed_tokens]'
refused run "has 0 trained rows of the embedding, this run 1" 'trainable_token_indices=[5]'

train freeze || die "$(cat "$tmp/err")"
refused freeze "freeze_trainable_layers is 1 now, the checkpoint was made with 2: what it has learnt" freeze_trainable_layers=1
refused freeze "adapter is full now, the checkpoint was made with freeze" adapter=full freeze_trainable_layers=null

# keys that are allowed to change are named; another base, too
cp -r "$AF_GOLDEN/models/qwen2" "$tmp/base"
train run learning_rate=0.5 base_model="$tmp/base" || die "$(cat "$tmp/err")"
grep -q "^note: learning_rate is 0.5 now; the run was made with 0.01$" "$tmp/err" || die "a complete run: $(cat "$tmp/err")"
grep -q "^note: base_model is \"$tmp/base\" now; the run was made with" "$tmp/err" || die "another base: $(cat "$tmp/err")"
grep -q "already complete; nothing to do" "$tmp/err" || die "$(cat "$tmp/err")"
train run optimizer=adamw || die "$(cat "$tmp/err")"
grep -q "^note: optimizer is adamw now; the run was made with sgd$" "$tmp/err" || die "another optimizer: $(cat "$tmp/err")"
train run || die "$(cat "$tmp/err")"
! grep -q "^note:" "$tmp/err" || die "nothing differs: $(cat "$tmp/err")"
train run max_steps=3 base_model="$tmp/base" || die "$(cat "$tmp/err")"
grep -q "^note: base_model is \"$tmp/base\" now; the checkpoint was made with" "$tmp/err" || die "another base: $(cat "$tmp/err")"

# a trial of a few steps goes on to the end of its epochs; where they are done, it is complete
train run output_dir="$tmp/trial" max_steps=2 logging_steps=5 resume_from_checkpoint=null || die "$(cat "$tmp/err")"
train run output_dir="$tmp/trial" max_steps=null num_epochs=0.05 || die "$(cat "$tmp/err")"
grep -q "already complete; nothing to do" "$tmp/err" || die "0.05 epochs are 2 steps: $(cat "$tmp/err")"
train run output_dir="$tmp/trial" max_steps=null num_epochs=0.1 || die "$(cat "$tmp/err")"
grep -q "^done: 4 steps" "$tmp/err" || die "0.1 epochs are 4 steps: $(cat "$tmp/err")"

# a checkpoint that is not there, or is none, is named as such, whatever output_dir holds
named() { train run resume_from_checkpoint="$1" && die "resumed from $1"; grep -qF -- "$2" "$tmp/err" || die "$1: $(cat "$tmp/err")"; }
named "$tmp/run/checkpoint-9" "checkpoint folder '$tmp/run/checkpoint-9' does not exist"
named "$tmp" "'$tmp' has no manifest.json: it is not a checkpoint of afinar"

# records that were added are named by the run that reads them first
head -8 "$AF_GOLDEN/models/data/train.jsonl" > "$tmp/data.jsonl"
growing() { train run output_dir="$tmp/growing" "datasets=[{path: $tmp/data.jsonl}]" "$@" || die "$(cat "$tmp/err")"; }
growing
head -9 "$AF_GOLDEN/models/data/train.jsonl" > "$tmp/data.jsonl"
growing max_steps=3
grep -q "the datasets have 9 records and [0-9]* tokens now, the checkpoint was made with 8 and" "$tmp/err" || die "$(cat "$tmp/err")"
growing max_steps=4
! grep -q "the datasets have" "$tmp/err" || die "nothing was added: $(cat "$tmp/err")"
