#!/usr/bin/env bash
# Run files in the style of Axolotl, LLaMA-Factory, TRL and mlx-lm: plan, data check and train accept and refuse the same
# ones, keys without effect are summarised in one line, and what run-level keys ask for happens.
set -uo pipefail
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache" HF_HOME="$tmp/hf"
trap 'rm -rf "$tmp"' EXIT
model=$AF_GOLDEN/models/qwen2
data=$AF_GOLDEN/models/data/train.jsonl
failed=0
die() { failed=1; echo "$1"; [ -s "$tmp/err" ] && sed 's/^/    /' "$tmp/err"; }
cd "$tmp" || exit 1

# all three commands agree: verdict STATUS FILE [option ...]
verdict() {
    local want=$1 file=$2 rc
    shift 2
    for words in "plan" "data check" "train"; do
        rm -rf out
        # shellcheck disable=SC2086
        "$AFINAR" $words "$file" "$@" > "$tmp/stdout" 2> "$tmp/err"
        rc=$?
        [ $rc = "$want" ] || die "$words $file: exit $rc"
    done
}

# --- Axolotl
cat > axolotl.yml <<YAML
base_model: $model
model_type: LlamaForCausalLM
tokenizer_type: AutoTokenizer
trust_remote_code: true
strict: false
load_in_8bit: false
load_in_4bit: false
plugins:
  - axolotl.integrations.liger.LigerPlugin
  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin
liger_rms_norm: true
datasets:
  - path: $data
dataset_prepared_path: last_run_prepared
val_set_size: 0.0
output_dir: out
adapter: lora
lora_model_dir:
lora_r: 4
lora_alpha: 8
lora_target_linear: true
lora_target_modules: [q_proj, v_proj]
wandb_project:
wandb_name:
future_key:
sequence_len: 64
eval_sample_packing: false
batch_size: 4
micro_batch_size: 2
max_steps: 4
optimizer: adamw_bnb_8bit
lr_scheduler: cosine
learning_rate: 0.0002
bf16: auto
tf32: true
gradient_checkpointing: true
gradient_checkpointing_kwargs: {use_reentrant: false}
attn_implementation: flash_attention_2
logging_steps: 1
save_steps: 0.5
evals_per_epoch: 4
weight_decay: 0.0
fsdp_config: {fsdp_offload_params: false}
special_tokens:
device: cpu
YAML
verdict 0 axolotl.yml
[ -d out/checkpoint-2 ] && [ ! -d out/checkpoint-1 ] && [ ! -d out/checkpoint-3 ] || die "save_steps: 0.5 of 4 steps: $(ls out)"
grep -rqs '^gradient_accumulation_steps: 2$' out || die "batch_size: 4"
[ "$(grep -c 'keys have no effect here; -v lists them' err)" = 1 ] || die "no summary"
"$AFINAR" plan axolotl.yml -v > stdout 2> err || die "plan -v"
for key in model_type trust_remote_code liger_rms_norm dataset_prepared_path tf32 attn_implementation evals_per_epoch fsdp_config; do
    grep -q "axolotl.yml:[0-9]*: '$key' has no effect here: ." err || die "-v does not list $key"
done
grep -q "special_tokens\|future_key\|wandb" err && die "an empty key is listed"
verdict 1 axolotl.yml --strict
grep -q "axolotl.yml:2: 'model_type' has no effect here: .*strict" err || die "not strict"

# --- towers that the text model does not have
{ cat axolotl.yml; echo "lora_exclude_modules: ['.*vision.*', multi_modal_projector]"; } > towers.yml
verdict 0 towers.yml
{ cat axolotl.yml; echo 'lora_exclude_modules: [q_porj]'; } > bad.yml
verdict 1 bad.yml
grep -q "lora_exclude_modules has 'q_porj', no module of this qwen2 model" err || die "a misspelt module"

# --- what is not supported, and what is unknown: the same from all three
refused() { # WORDS LINE
    { cat axolotl.yml; printf '%s\n' "$2"; } > bad.yml
    verdict 1 bad.yml
    local IFS='|'
    for word in $1; do grep -qF -- "$word" err || die "no '$word'"; done
}
refused "bad.yml:46: rl is 'grpo', which is not supported" 'rl: grpo'
refused "qat.weight_dtype 'int8' is not supported" 'qat: {weight_dtype: int8}'
refused "'id2label' is not supported" 'id2label: {0: a}'
refused "unknown key 'lora_rnak'; did you mean 'lora_r" 'lora_rnak: 3'
refused "unknown key 'my_key'" 'my_key: 3'
sed 's/^lr_scheduler:.*/lr_scheduler: stairs/' axolotl.yml > bad.yml
verdict 1 bad.yml
grep -q "lr_scheduler 'stairs' is not supported" err || die "a schedule"

# --- LLaMA-Factory
cat > factory.yaml <<YAML
### model
model_name_or_path: $model
quantization_bit: 4
trust_remote_code: true
### method
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 4
lora_target: all
### dataset
datasets: [{path: $data}]
cutoff_len: 64
overwrite_cache: true
preprocessing_num_workers: 16
dataloader_num_workers: 4
### output
output_dir: out
logging_steps: 10
save_steps: 500
plot_loss: true
overwrite_output_dir: true
save_only_model: false
report_to: none
### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
learning_rate: 1.0e-4
num_train_epochs: 3.0
max_steps: 2
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
resume_from_checkpoint: null
device: cpu
YAML
verdict 0 factory.yaml
grep -q 'keys and defaults of LLaMA-Factory' err || die "not known as LLaMA-Factory's"
sed 's/^stage:.*/template: no_such\n&/' factory.yaml > template.yaml
verdict 1 template.yaml
grep -q "template.yaml:6 ('template'): chat_template 'no_such' is not supported" err || die "the key of a template is not named"

# --- TRL
cat > trl.yaml <<YAML
model_name_or_path: $model
model_revision: main
torch_dtype: bfloat16
attn_implementation: flash_attention_2
use_peft: true
lora_r: 4
lora_alpha: 8
datasets: [{path: $data}]
assistant_only_loss: true
bf16: true
do_eval: true
eval_strategy: "no"
gradient_checkpointing: true
hub_model_id: someone/something
push_to_hub: true
log_level: info
logging_steps: 5
logging_strategy: steps
lr_scheduler_type: cosine_with_min_lr
lr_scheduler_kwargs: {min_lr_rate: 0.1}
max_length: 64
max_steps: 2
num_train_epochs: 1
output_dir: out
per_device_eval_batch_size: 8
per_device_train_batch_size: 2
remove_unused_columns: true
report_to: [tensorboard, wandb]
save_strategy: "no"
seed: 42
device: cpu
YAML
verdict 0 trl.yaml
ls -d out/checkpoint-* 2> /dev/null && die "save_strategy: no"

# a dataset's split 'test' is evaluated where that is asked for
mkdir -p both
cp "$data" both/train.jsonl
head -n 3 "$data" > both/test.jsonl
sed 's|^datasets:.*|dataset_name: both|; /^eval_strategy/d' trl.yaml > split.yaml
"$AFINAR" train split.yaml --force > stdout 2> err || die "a split for tests"
grep -q 'evaluated on' err && die "evaluates unasked"
echo 'eval_strategy: epoch' >> split.yaml
"$AFINAR" train split.yaml --force > stdout 2> err || die "a split for tests"
grep -q 'evaluated on 3 records of test_datasets' err || die "the split 'test' of TRL"

# --- mlx-lm
cat > mlx.yaml <<YAML
model: $model
train: true
fine_tune_type: lora
datasets: [{path: $data}]
seed: 0
batch_size: 2
iters: 2
val_batches: 25
learning_rate: 1e-5
steps_per_report: 1
adapter_path: out
save_every: 100
max_seq_length: 64
grad_checkpoint: false
lora_parameters: {rank: 4, dropout: 0.0, scale: 20.0}
device: cpu
YAML
verdict 0 mlx.yaml

# --- what an adapter leaves without effect is said by its name
{ cat axolotl.yml; echo 'unfrozen_parameters: ["^lm_head"]'; } > frozen.yml
"$AFINAR" plan frozen.yml > stdout 2> err || die "unfrozen_parameters with an adapter"
grep -q 'warning: frozen.yml:46: unfrozen_parameters has no effect with an adapter' err || die "unfrozen_parameters: no warning"

# --- tokens that end a turn
"$AFINAR" data check axolotl.yml 'eot_tokens=["<|im_end|>"]' > stdout 2> err || die "eot_tokens"
grep -q warning.*eot_tokens err && die "eot_tokens: a warning"
"$AFINAR" data check axolotl.yml 'eot_tokens=["<|endoftext|>"]' chat_template=chatml > stdout 2> err || die "eot_tokens of no template"
grep -q "warning: eot_tokens: the chat template has no <|endoftext|>" err || die "eot_tokens: no warning"

# --- fewer records than a file was written for
sed 's/^val_set_size: .*/val_set_size: 1000/' axolotl.yml > held.yml
"$AFINAR" train held.yml output_dir=held max_steps=1 2> err || die "val_set_size: 1000"
grep -q 'warning: held.yml:[0-9]*: val_set_size holds out 1000 of .* are held out instead' err || die "val_set_size: no warning"
"$AFINAR" plan factory.yaml optim=muon > stdout 2> err && grep -q '^method .*optimizer muon' stdout || die "plan does not name the optimizer"
"$AFINAR" plan factory.yaml use_adam_mini=true finetuning_type=full > stdout 2> err && grep -q '^method .*optimizer adam_mini' stdout || die "use_adam_mini: $(cat err)"

# --- text to pre-train on, as LLaMA-Factory lists it
mkdir -p info
printf '{"text": "one two three"}\n{"text": "four five six seven"}\n' > info/c4.jsonl
printf '[{"instruction": "a question", "output": "an answer"}]' > info/pairs.json
echo '{"c4": {"file_name": "c4.jsonl", "columns": {"prompt": "text"}}, "pairs": {"file_name": "pairs.json"}}' > info/dataset_info.json
sed 's/^stage: sft/stage: pt/; s/^datasets:.*/dataset: c4, pairs\ndataset_dir: info/' factory.yaml > pt.yaml
verdict 0 pt.yaml
"$AFINAR" data preview pt.yaml -n 9 > stdout 2> err || die "preview of stage: pt"
grep -q 'a question' stdout && ! grep -q 'an answer' stdout || die "stage: pt trains the first column"
grep -rqs '^sample_packing: true$' out || die "stage: pt packs"

# --- the watchdog stops a run, and its model is written
"$AFINAR" train axolotl.yml output_dir=dog max_steps=9 loss_watchdog_threshold=0.001 loss_watchdog_patience=2 2> err || die "watchdog"
grep -q 'early stop after step 2: the loss was above loss_watchdog_threshold 0.001 after 2 steps' err || die "watchdog: no word"
[ -s dog/adapter_model.safetensors ] || die "watchdog: no adapter"
"$AFINAR" train axolotl.yml output_dir=calm max_steps=2 loss_watchdog_threshold=1000 2> err || die "calm"
grep -q 'early stop' err && die "the watchdog barks at nothing"

# --- strategies
"$AFINAR" train axolotl.yml output_dir=best save_steps=null save_strategy=best val_set_size=4 max_steps=2 evals_per_epoch=null eval_steps=1 2> err || die "best"
ls -d best/checkpoint-[12] > stdout 2>&1 || die "save_strategy=best: $(ls best)"
"$AFINAR" train axolotl.yml output_dir=none save_steps=null val_set_size=4 max_steps=2 eval_strategy=no 2> err || die "eval_strategy=no"
grep -q eval_loss err && die "eval_strategy=no evaluates"
exit $failed
