#!/usr/bin/env bash
# Preference training from the command line: keys that contradict each other and wrong data (one line on stderr that names the
# problem, exit 1 or 2, no output folder), keys of other trainers, and what train, eval and plan print.
set -uo pipefail
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache"
trap 'rm -rf "$tmp"' EXIT
cat > "$tmp/base.yaml" <<YAML
base_model: $AF_GOLDEN/models/qwen2
datasets: [{path: $AF_GOLDEN/preference/data/preferences.jsonl}]
output_dir: $tmp/out
max_steps: 2
device: cpu
YAML
. "$(dirname "$0")/../cli/refused_runs.sh"
key() { check "$1" "$tmp/base.yaml" "${@:2}"; }
more() { { cat "$tmp/base.yaml"; printf '%s\n' "$2"; } > "$tmp/run.yaml"; check "$1" "$tmp/run.yaml"; }
data() { printf '%s\n' "$2" > "$tmp/data.jsonl"; check "$1" "$tmp/base.yaml" "datasets=[{path: $tmp/data.jsonl}]" "${@:3}"; }

# --- keys
key "metric_for_best_model is 'f1', but evaluations of this run have loss, accuracy, entropy, logits/chosen" rl=dpo val_set_size=2 \
    metric_for_best_model=f1 eval_delay=2
key "metric_for_best_model is 'entropy'|nll_loss, rewards/accuracies" rl=cpo val_set_size=2 metric_for_best_model=entropy
key "rl is 'grpo'|dpo" rl=grpo
more "run.yaml:6|('beta')|rl_beta has no effect without 'rl'" 'beta: 0.1'
more "run.yaml:6|dpo_loss_type has no effect without 'rl'" 'loss_type: hinge'
more "run.yaml:6|simpo_gamma has no effect without 'rl: simpo'" 'simpo_gamma: 1'
key "rl_beta is 0|not be compared" rl=dpo rl_beta=0
key "rl_beta is|-1" rl=dpo rl_beta=-1
key "'sigmod' is not a loss of 'rl: dpo'|sigmoid, hinge" rl=dpo dpo_loss_type=sigmod
key "'hinge' is not a loss of 'rl: ipo'|ipo" rl=ipo dpo_loss_type=hinge
key "'sigmoid' is not a loss of 'rl: kto'|kto, apo_zero_unpaired" rl=kto dpo_loss_type=sigmoid
key "'robust' is not a loss of 'rl: cpo'|simpo" rl=cpo dpo_loss_type=robust
key "dpo_loss_type has 2 losses; 'rl: cpo' takes 1" rl=cpo 'dpo_loss_type=[sigmoid, hinge]'
key "dpo_loss_type has no effect without 'rl'" rl=orpo dpo_loss_type=sigmoid
key "dpo_loss_weights has 2 numbers for 1 losses" rl=dpo 'dpo_loss_weights=[1, 2]'
key "dpo_loss_weights has 'x', which is not a number" rl=dpo 'dpo_loss_type=[sigmoid, sft]' 'dpo_loss_weights=[1, x]'
key "exo_pair needs dpo_label_smoothing above 0" rl=dpo dpo_loss_type=exo_pair
key "dpo_label_smoothing is 0.5: robust needs it below 0.5" rl=dpo dpo_loss_type=robust dpo_label_smoothing=0.5
key "dpo_label_smoothing|the loss has no label smoothing" rl=dpo dpo_label_smoothing=0.1
key "dpo_use_weighting weighs pairs, and the loss sft has none" rl=dpo 'dpo_loss_type=[sigmoid, sft]' dpo_use_weighting=true
key "f_divergence_type has no effect on nca_pair" rl=dpo dpo_loss_type=nca_pair f_divergence_type=js_divergence
key "f_alpha_divergence_coef|is not alpha_divergence" rl=dpo f_alpha_divergence_coef=2
key "discopop_tau|the loss is not discopop" rl=dpo discopop_tau=2
key "ld_alpha is|2" rl=dpo ld_alpha=2
key "orpo_alpha 0.2 and rl_beta 0.3 contradict each other" rl=orpo orpo_alpha=0.2 rl_beta=0.3
key "micro_batch_size is 1: KTO compares" rl=kto micro_batch_size=1
key "kto_desirable_weight and kto_undesirable_weight are both 0" rl=kto kto_desirable_weight=0 kto_undesirable_weight=0
key "cpo_alpha has no effect without 'rl: cpo'" rl=dpo cpo_alpha=1
key "precompute_ref_log_probs has no effect without" rl=simpo precompute_ref_log_probs=true
key "'stage: pt' trains on plain text, 'rl: dpo' on preferences" rl=dpo stage=pt
key "the auxiliary loss of routers is not added to 'rl: reward'" rl=reward router_aux_loss_coef=0.1
key "train_on_inputs has no effect with 'rl: dpo'" rl=dpo train_on_inputs=true
more "'ref_model' with 'x' is not supported|the model that the run starts from" $'rl: dpo\nref_model: x'
more "'max_completion_length' with '64' is not supported|sequence_len" $'rl: dpo\nmax_completion_length: 64'
more "run.yaml:6|max_prompt_length has no effect without 'rl'" 'max_prompt_length: 64'
more "run.yaml:6|('max_prompt_len')|max_prompt_length has no effect without 'rl'" 'max_prompt_len: 64'
key "max_prompt_length has no effect without 'rl'" rl=reward max_prompt_length=64
key "max_prompt_length is -1|0" rl=dpo max_prompt_length=-1
key "max_prompt_length must be a whole number, not 'x'" rl=dpo max_prompt_length=x
more "'pref_loss' with 'kto_pair' is not supported" $'stage: dpo\npref_loss: kto_pair'

# --- data
key "preferences.jsonl|choose a method with 'rl'|dpo" # pairs without rl
check "train.jsonl|rl" "$tmp/base.yaml" rl=dpo "datasets=[{path: $AF_GOLDEN/models/data/train.jsonl}]"
data "data.jsonl:1" '{"prompt": "a", "chosen": " b"}' rl=dpo
data "data.jsonl" '{"prompt": "a", "completion": " b"}' rl=kto
data "no record of the datasets is left" '{"prompt": "a b c d e f g h i j", "chosen": " b", "rejected": " c"}' rl=dpo sequence_len=2
[ $failed = 0 ] || { echo "$failed of $cases messages are wrong"; exit 1; }

# --- keys of other trainers mean the same: the same bytes
run() { # NAME KEYS
    { sed "s|^output_dir:.*|output_dir: $tmp/$1|" "$tmp/base.yaml"; printf '%s\n' "$2"; } > "$tmp/$1.yaml"
    "$AFINAR" train "$tmp/$1.yaml" > "$tmp/stdout" 2> "$tmp/err" || { cat "$tmp/err"; echo "$1 failed"; exit 1; }
}
same() { cmp -s "$tmp/$1/adapter_model.safetensors" "$tmp/$2/adapter_model.safetensors" || { echo "$1 and $2 differ"; exit 1; }; }
lora=$'adapter: lora\nlora_r: 4\nlora_target_modules: [q_proj]'
run ours "rl: dpo"$'\n'"rl_beta: 0.3"$'\n'"dpo_loss_type: [hinge, sft]"$'\n'"dpo_loss_weights: [1, 0.5]"$'\n'"$lora"
run trl "rl: dpo"$'\n'"beta: 0.3"$'\n'"loss_type: [hinge, sft]"$'\n'"loss_weights: [1, 0.5]"$'\n'"$lora"
run factory "stage: dpo"$'\n'"pref_beta: 0.3"$'\n'"pref_loss: hinge"$'\n'"pref_ftx: 0.5"$'\n'"$lora"
same ours trl
same ours factory

# --- max_prompt_length: its own tokens in the cache, the same by its other name, nothing above the prompts and at 0
differ() { ! cmp -s "$tmp/$1/adapter_model.safetensors" "$tmp/$2/adapter_model.safetensors" || { echo "$1 and $2 are the same"; exit 1; }; }
run whole "rl: dpo"$'\n'"$lora"
run four "rl: dpo"$'\n'"max_prompt_length: 4"$'\n'"$lora"
run five "rl: dpo"$'\n'"max_prompt_length: 5"$'\n'"$lora"
differ whole four
differ four five
run four-axolotl "rl: dpo"$'\n'"max_prompt_len: 4"$'\n'"$lora"
same four four-axolotl
run long "rl: dpo"$'\n'"max_prompt_length: 2000"$'\n'"$lora"
same whole long
run none "rl: dpo"$'\n'"max_prompt_length: 0"$'\n'"$lora"
same whole none
shown() { # RL KEYS: prompt and chosen text of the first record
    "$AFINAR" data preview "$tmp/base.yaml" "rl=$1" "datasets=[{path: $tmp/data.jsonl}]" -n 1 --json "${@:2}" 2> "$tmp/err" |
        python3 -c 'import json, sys; r = json.loads(sys.stdin.readline()); print(r["prompt_text"] + "|" + r["chosen"]["text"])'
}
printf '%s\n' '{"prompt": "a b c d e f", "chosen": " g", "rejected": " h"}' > "$tmp/data.jsonl"
[ "$(shown dpo max_prompt_length=2)" = ' e f| e f g<|im_end|>' ] || { shown dpo max_prompt_length=2; echo "no short prompt"; exit 1; }
[ "$(shown orpo max_prompt_length=2)" = 'a b c d e f|a b c d e f g' ] || { shown orpo max_prompt_length=2; echo "a short prompt"; exit 1; }
[ "$(shown orpo max_prompt_length=2 sequence_len=4)" = ' e f| e f g<|im_end|>' ] || { shown orpo max_prompt_length=2 sequence_len=4; echo "no short prompt of ORPO"; exit 1; }
run simpo "rl: simpo"$'\n'"$lora"
run simpo-factory "stage: dpo"$'\n'"pref_loss: simpo"$'\n'"pref_beta: 2"$'\n'"$lora"
same simpo simpo-factory
run reward "rl: reward"$'\n'"$lora"
run reward-axolotl "reward_model: true"$'\n'"dpo_use_logits_to_keep: true"$'\n'"$lora"
same reward reward-axolotl
run liger "rl: dpo"$'\n'"rl_beta: 0.3"$'\n'"loss_type: [hinge, sft]"$'\n'"loss_weights: [1, 0.5]"$'\n'"dpo_use_liger_kernel: true"$'\n'"ref_model_mixup_alpha: 0.6"$'\n'"$lora"
same ours liger

# --- reference values of a loss without KL rows have none for KTO (neftune: both lay out whole copies)
noise="neftune_noise_alpha: 1"$'\n'"$lora"
run kto "rl: kto"$'\n'"$noise"
rm -rf "$XDG_CACHE_HOME"
run kto-unpaired "rl: kto"$'\n'"dpo_loss_type: apo_zero_unpaired"$'\n'"$noise"
run kto-after "rl: kto"$'\n'"$noise"
grep -q 'kept in the cache' "$tmp/err" || { cat "$tmp/err"; echo "KTO takes reference values without KL"; exit 1; }
same kto kto-after

# --- a start by loftq is another model with other matrices
start="rl: dpo"$'\n'"adapter: qlora"$'\n'"lora_r: 4"$'\n'"peft_init_lora_weights: loftq"
run loftq "$start"$'\n'"lora_target_modules: [q_proj]"
run loftq-other "$start"$'\n'"lora_target_modules: [o_proj, down_proj]"
grep -q 'kept in the cache' "$tmp/err" || { cat "$tmp/err"; echo "reference of another start"; exit 1; }

# --- what is printed
run shown "rl: dpo"$'\n'"val_set_size: 4"$'\n'"$lora"
grep -qE '^step 2/2 .* margin [-0-9.]+ accuracy [0-9.]+ ' "$tmp/err" || { cat "$tmp/err"; echo "no margin in the progress"; exit 1; }
grep -qE '^step 2/2: eval_loss [0-9.]+ margin [-0-9.]+ accuracy' "$tmp/err" || { echo "no margin of the evaluation"; exit 1; }
grep -q '"eval_rewards/accuracies"' "$tmp/shown/metrics.jsonl" || { echo "no metrics"; exit 1; }
grep -q 'margin</b> of rewards' "$tmp/shown/report.html" || { echo "no chart of margins"; exit 1; }
grep -qa 'train/rewards/margins' "$tmp"/shown/events.out.* || { echo "no margins in TensorBoard"; exit 1; }
"$AFINAR" eval "$tmp/shown.yaml" --json > "$tmp/stdout" 2> "$tmp/err" || { cat "$tmp/err"; exit 1; }
grep -qE '"accuracy": [0-9.]+, "margin": [-0-9.e]+' "$tmp/stdout" || { cat "$tmp/stdout"; echo "no margin of eval"; exit 1; }
want=$(grep -o '"eval_loss": [0-9.]*' "$tmp/shown/metrics.jsonl" | tail -1 | cut -d' ' -f2)
got=$(grep -o '"loss": [0-9.]*' "$tmp/stdout" | cut -d' ' -f2)
[ "${want:0:12}" = "${got:0:12}" ] || { echo "eval gives $got, the run's last evaluation $want"; exit 1; }
# of reward models and labels, too; each name once in a row, and always JSON
texts=$'task_type: SEQ_CLS\nval_set_size: 2\n'"$lora"
for i in 1 2 3 4 5 6; do echo '{"text": "lamp '$i'", "label": '$((i % 2))'}'; done > "$tmp/texts.jsonl"
run reward-shown "rl: reward"$'\n'"val_set_size: 4"$'\n'"$lora"
grep -qE '^step 2/2 .* margin [-0-9.]+ accuracy [0-9.]+ ' "$tmp/err" || { cat "$tmp/err"; echo "no margin of a reward model"; exit 1; }
grep -qE '^step 2/2: eval_loss [0-9.]+ margin [-0-9.]+ accuracy' "$tmp/err" || { cat "$tmp/err"; echo "no margin of its evaluation"; exit 1; }
grep -q 'margin</b> of rewards' "$tmp/reward-shown/report.html" || { echo "no chart of its margins"; exit 1; }
"$AFINAR" eval "$tmp/reward-shown.yaml" --json > "$tmp/stdout" 2> "$tmp/err" || { cat "$tmp/err"; exit 1; }
grep -qE '"accuracy": [0-9.]+, "margin": [-0-9.e]+' "$tmp/stdout" || { cat "$tmp/stdout"; echo "no margin of its eval"; exit 1; }
sed -i "s|^datasets:.*|datasets: [{path: $tmp/texts.jsonl}]|" "$tmp/base.yaml"
run classes "$texts"
run numbers "$texts"$'\n'"num_labels: 1"
[ "$(grep '"eval_loss"' "$tmp/classes/metrics.jsonl" | tail -1 | grep -o '"eval_accuracy"' | wc -l)" = 1 ] || { echo "eval_accuracy is not there once"; exit 1; }
grep -q '"eval_mse"' "$tmp/numbers/metrics.jsonl" && ! grep -q eval_accuracy "$tmp/numbers/metrics.jsonl" || { echo "metrics of numbers"; exit 1; }
key "metric_for_best_model is 'accuracy', but evaluations of this run have loss, mse" task_type=SEQ_CLS num_labels=1 val_set_size=2 \
    metric_for_best_model=accuracy eval_delay=2
key "metric_for_best_model is 'mse', but evaluations of this run have loss, accuracy, f1" task_type=SEQ_CLS val_set_size=2 \
    metric_for_best_model=mse eval_delay=2
"$AFINAR" eval "$tmp/classes.yaml" --json 2> /dev/null | grep -qE '^\{"loss": [0-9.]+, "accuracy": [0-9.]+, "f1": [0-9.]+, "rows": 2\}$' || { echo "eval of classes"; exit 1; }
"$AFINAR" eval "$tmp/numbers.yaml" --json 2> /dev/null | grep -qE '^\{"loss": [0-9.]+, "mse": [0-9.]+, "rows": 2\}$' || { echo "eval of numbers"; exit 1; }
# the records are as long as 'data check' counts them, and scores have no tokens with loss: the line, the card and the report
for name in classes numbers reward-shown; do
    tokens=$("$AFINAR" data check "$tmp/$name.yaml" 2> /dev/null | awk '$1 == "tokens" {print $2}')
    "$AFINAR" train "$tmp/$name.yaml" --force max_steps=1 > /dev/null 2> "$tmp/err"
    grep -qE "^data: [0-9]+ records, $tokens tokens; 1 steps$" "$tmp/err" || { grep '^data' "$tmp/err"; echo "$name has $tokens tokens"; exit 1; }
    grep -qE "^[0-9]+ records, $tokens tokens[;.]" "$tmp/$name/README.md" || { grep records, "$tmp/$name/README.md"; echo "card of $name"; exit 1; }
    ! grep -q 'tokens with loss' "$tmp/$name/report.html" || { echo "report of $name"; exit 1; }
done
"$AFINAR" plan "$tmp/shown.yaml" > "$tmp/stdout" 2> "$tmp/err"
grep -q 'computed once for both answers' "$tmp/stdout" || { cat "$tmp/stdout"; echo "plan does not say it"; exit 1; }
echo "$cases messages"
