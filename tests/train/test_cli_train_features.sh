#!/usr/bin/env bash
# One short run for each feature of training, and what must be true of its results.
set -euo pipefail
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache"
trap 'rm -rf "$tmp"' EXIT
cat > "$tmp/run.yaml" <<YAML
base_model: $AF_GOLDEN/models/qwen2
datasets: [{path: $AF_GOLDEN/models/data/train_tokens.jsonl}]
adapter: lora
lora_r: 4
learning_rate: 1e-2
max_steps: 4
device: cpu
threads: 1
YAML
sed '/^adapter\|^lora_r/d' "$tmp/run.yaml" > "$tmp/full.yaml"
die() { echo "$1"; exit 1; }
ends_with() { # CODE PID WHAT
    local rc=0
    wait "$2" || rc=$?
    [ $rc = "$1" ] || die "$3: exit $rc, not $1: $(cat "$tmp/err")"
}
# train NAME [key=value ...] -> $tmp/NAME
train() { "$AFINAR" train "$tmp/run.yaml" -q output_dir="$tmp/$1" "${@:2}"; }
names() { "$AFINAR" inspect --all "$tmp/$1/adapter_model.safetensors" | grep -o 'base_model[^ ]*' || true; }
config() { grep -q "$2" "$tmp/$1/adapter_config.json" || die "$1: the config does not contain $2"; }
# loss NAME STEP: as text
loss() { sed -n "s/^{\"step\": $2, .*\"loss\": \([^,]*\),.*/\1/p" "$tmp/$1/metrics.jsonl"; }
differ() { cmp -s "$tmp/$1/adapter_model.safetensors" "$tmp/$2/adapter_model.safetensors" && die "$2 has no effect" || true; }
same() { cmp "$tmp/$1/adapter_model.safetensors" "$tmp/$2/adapter_model.safetensors" || die "$1 and $2 differ"; }

train plain
[ "$(names plain | grep -c lora_A)" = 14 ] || die "not every linear has an adapter"

for key in train_runtime train_loss train_steps_per_second '"global_step": 4'; do
    grep -q "$key" "$tmp/plain/trainer_state.json" || die "trainer_state.json has no $key"
done

# the first step of Adam without bias correction is (1 - 0.9) / sqrt(1 - 0.999) = 3.1623 times as large
adam="optimizer=adam lr_scheduler=constant max_steps=2 max_grad_norm=0"
train biased $adam learning_rate=1e-3 adam_bias_correction=false
train larger $adam learning_rate=3.16227766e-3
train usual $adam learning_rate=1e-3
awk "BEGIN { d = $(loss biased 2) - $(loss larger 2); exit !(d < 1e-5 && d > -1e-5) }" || die "not corrected: $(loss biased 2), $(loss larger 2)"
[ "$(loss biased 2)" != "$(loss usual 2)" ] || die "adam_bias_correction has no effect"
train lion optimizer=lion adam_bias_correction=false 2> "$tmp/err" && die "lion has a correction" || grep -q "unless 'optimizer' is adam" "$tmp/err"

# the result is the last checkpoint's; the manifest has the digests of what is there
same plain plain/checkpoint-4
for f in adapter_model.safetensors optimizer.safetensors tokenizer.json; do
    grep -q "$(sha256sum < "$tmp/plain/checkpoint-4/$f" | cut -d' ' -f1)" "$tmp/plain/checkpoint-4/manifest.json" || die "another digest of $f"
done

# --verbose: where the time of a run goes, a line each, in order
"$AFINAR" train "$tmp/run.yaml" --verbose output_dir="$tmp/timed" max_steps=1 2>&1 | sed -n 's/^time [0-9.]* s (+ [0-9.]*): //p' > "$tmp/times"
for line in device "headers of the model" "tokenizer and data" weights "first step" "checkpoint: on the disk" checkpoint result "end of the run"; do
    grep -qx "$line" "$tmp/times" || die "no time of: $line"
done
[ "$(head -1 "$tmp/times")" = device ] && [ "$(tail -1 "$tmp/times")" = "end of the run" ] || die "times are not in order"

# LoRA+: at step 1 only B moves (A's gradient is 0 while B is 0), 16 times as far
train loraplus loraplus_lr_ratio=16
differ plain loraplus

train rslora peft_use_rslora=true
config rslora '"use_rslora": true'
differ plain rslora

train dora peft_use_dora=true
config dora '"use_dora": true'
[ "$(names dora | grep -c lora_magnitude_vector)" = 14 ] || die "DoRA has no magnitudes"

train leaning lora_bias=true peft_init_lora_weights=gaussian
config leaning '"lora_bias": true'
config leaning '"init_lora_weights": true' # PEFT reads no other start next to a bias

train layers 'lora_layers_to_transform=[1]'
names layers | grep -q layers.1. || die "layer 1 has no adapter"
! names layers | grep -q layers.0. || die "layer 0 has an adapter"

train exclude 'lora_exclude_modules=[o_proj, down_proj]'
[ "$(names exclude | grep -c lora_A)" = 10 ] || die "excluded modules have adapters"

train outside 'lora_exclude_modules=.*_proj'  2> "$tmp/err" && die "an adapter of nothing"
train outside 'lora_exclude_modules=.*[kv]_proj'
[ "$(names outside | grep -c lora_A)" = 10 ] || die "the regular expression excluded something else"

train regex "lora_target_modules='.*\\.1\\..*(q|v)_proj'"
[ "$(names regex | grep -c lora_A)" = 2 ] || die "the regular expression matched something else"
config regex '"target_modules": ".*'

# an expression that names experts means the names it matches, as PEFT reads it, and not some layers
echo '{"input_ids": [1, 2, 3, 4]}' > "$tmp/few.jsonl"
few=("base_model=$AF_GOLDEN/models/qwen3_moe" "datasets=[{path: $tmp/few.jsonl}]")
train routed "${few[@]}" "lora_target_modules='.*\\.(q_proj|gate_proj|up_proj|down_proj)'"
config routed '"gate_up_proj"'
config routed '"q_proj"'
train some "${few[@]}" "lora_target_modules='.*layers\\.0\\..*q_proj|.*down_proj'" 2> "$tmp/err" && die "some layers"
grep -q "names experts or routers of this qwen3_moe model" "$tmp/err" || die "$(cat "$tmp/err")"

train listed 'lora_target_modules=[q_proj, v_proj]'
[ "$(names listed | grep -c lora_A)" = 4 ] || die "the list matched something else"

# the head alone: a tied model is untied, and embeddings stay as they were
train save 'lora_modules_to_save=[lm_head]'
names save | grep -q 'base_model.model.lm_head.weight' || die "the head is not saved"
! names save | grep -q 'embed_tokens' || die "the embeddings are saved, too"
train both 'lora_modules_to_save=[lm_head, embed_tokens]'
names both | grep -q 'embed_tokens.weight' || die "the embeddings are not saved"
for d in save both; do
    "$AFINAR" eval "$AF_GOLDEN/models/qwen2" --adapter "$tmp/$d" --data "$AF_GOLDEN/models/data/train_tokens.jsonl" --json \
        --device cpu -q > "$tmp/eval"
done

# the last evaluation of a run is that of the adapter it wrote
train judged "test_datasets=[{path: $AF_GOLDEN/models/data/train_tokens.jsonl}]" eval_steps=2
logged=$(sed -n 's/.*"eval_loss": \([0-9.e-]*\).*/\1/p' "$tmp/judged/metrics.jsonl" | tail -1)
"$AFINAR" eval "$AF_GOLDEN/models/qwen2" --adapter "$tmp/judged" --data "$AF_GOLDEN/models/data/train_tokens.jsonl" --json \
    --device cpu -q > "$tmp/eval"
found=$(sed -n 's/.*"loss": \([0-9.e-]*\).*/\1/p' "$tmp/eval")
awk -v a="$logged" -v b="$found" 'BEGIN { exit !(a > 0 && (a - b) / a < 1e-6 && (b - a) / a < 1e-6) }' ||
    die "the run logged an eval loss of '$logged', its adapter has '$found'"

# training continues from an adapter: 2 + 2 steps with a constant rate and no momentum are 4 steps
plain="optimizer=sgd lr_scheduler=constant shuffle=false micro_batch_size=64"
train whole $plain
train half $plain max_steps=2
sed '/^lora_r/d' "$tmp/run.yaml" > "$tmp/go.yaml"
"$AFINAR" train "$tmp/go.yaml" -q output_dir="$tmp/rest" $plain max_steps=2 lora_model_dir="$tmp/half"
same whole rest

# logging every 2 steps: the mean of both
train log logging_steps=2
[ "$(wc -l < "$tmp/log/metrics.jsonl")" = 2 ]
awk -v a="$(loss plain 3)" -v b="$(loss plain 4)" -v c="$(loss log 4)" \
    'BEGIN { d = (a + b) / 2 - c; exit !(d * d < 1e-12) }' || die "the logged loss is not the mean"
same plain log
grep -q '"memory_bytes": [0-9]*}' "$tmp/log/metrics.jsonl" || die "a count of bytes is not a whole number"
! grep -qE '"(tokens|memory_bytes)": [0-9.]*e' "$tmp/plain/metrics.jsonl" || die "a count has an exponent"

# a run prints the warnings about data and model as well, also a quiet run
{
    cat "$AF_GOLDEN/models/data/train.jsonl"
    echo '{"messages": [{"role": "user", "content": "and?"}]}'
} > "$tmp/look.jsonl"
"$AFINAR" train "$tmp/run.yaml" -q output_dir="$tmp/look" "datasets=[{path: $tmp/look.jsonl}]" max_steps=1 2> "$tmp/err"
grep -q "^warning: $tmp/look.jsonl:65: .*record skipped" "$tmp/err" || die "a skipped record is not reported: $(cat "$tmp/err")"

# the chat template of a run is saved with its results, in both places where readers look, and is used again
printf '%s' '{% for m in messages %}[{{ m.role }}]{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}' \
    > "$tmp/own.jinja"
base=$AF_GOLDEN/models/qwen2
conversations="datasets=[{path: $AF_GOLDEN/models/data/train.jsonl}]"
train styled "$conversations" chat_template="$tmp/own.jinja" max_steps=2
"$AFINAR" train "$tmp/full.yaml" -q output_dir="$tmp/styled_full" "$conversations" chat_template="$tmp/own.jinja" max_steps=2 save_steps=1
"$AFINAR" merge "$base" --adapter "$tmp/styled" -o "$tmp/styled_merged" -q > /dev/null
"$AFINAR" export "$base" --adapter "$tmp/styled" -o "$tmp/styled.gguf" --force --device cpu -q > /dev/null
for d in styled styled_full styled_full/checkpoint-1 styled_merged; do
    cmp "$tmp/own.jinja" "$tmp/$d/chat_template.jinja" || die "$d: another template than the run's"
    grep -qF '"{% for m in messages %}[{{ m.role }}]' "$tmp/$d/tokenizer_config.json" || die "$d: tokenizer_config.json has another template"
done
"$AFINAR" quantize "$base" -o "$tmp/plain.gguf" -t q8_0 -q > /dev/null
"$AFINAR" export "$tmp/plain.gguf" --adapter "$tmp/styled" -o "$tmp/styled2.gguf" --force --device cpu -q > /dev/null
for d in styled styled_merged styled.gguf styled2.gguf; do
    echo '{"messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": true}' | "$AFINAR" template "$tmp/$d" > "$tmp/out"
    grep -qF '"[user]hi<|im_end|>[assistant]"' "$tmp/out" || die "$d renders $(cat "$tmp/out")"
done
"$AFINAR" generate "$base" --adapter "$tmp/styled" --chat -p hi -n 1 --json --device cpu -q > "$tmp/with"
"$AFINAR" generate "$base" -p '[user]hi<|im_end|>[assistant]' -n 1 --json --device cpu -q > "$tmp/without"
[ "$(cut -d']' -f1 "$tmp/with")" = "$(cut -d']' -f1 "$tmp/without")" ] || die "the adapter is prompted with another template"

# a checkpoint uses the template of the final adapter; without a tokenizer next to it, the special tokens are the base's
answer() { "$AFINAR" generate "$base" --adapter "$1" --chat -p hi -n 3 --json --device cpu -q; }
[ "$(answer "$tmp/styled")" = "$(answer "$tmp/styled/checkpoint-2")" ] || die "a checkpoint answers otherwise: $(answer "$tmp/styled/checkpoint-2")"
mkdir "$tmp/bare" && cp "$tmp"/styled/adapter_* "$tmp/bare"
printf '%s' '{{ eos_token }}{% for m in messages %}{{ m.content }}{% endfor %}' > "$tmp/bare/chat_template.jinja"
"$AFINAR" generate "$base" -p '<|im_end|>hi' -n 1 --json --device cpu -q > "$tmp/without"
[ "$(answer "$tmp/bare" | cut -d']' -f1)" = "$(cut -d']' -f1 "$tmp/without")" ] || die "a template without a tokenizer knows no special tokens"

# a template file is read once: what is written is what the run was trained with, whatever happened to the file since
cp "$tmp/own.jinja" "$tmp/gone.jinja"
"$AFINAR" train "$tmp/full.yaml" -q output_dir="$tmp/gone" "$conversations" chat_template="$tmp/gone.jinja" max_steps=1000000 2> "$tmp/err" &
run=$!
until [ -s "$tmp/gone/metrics.jsonl" ] || ! kill -0 $run; do sleep 0.05; done
rm "$tmp/gone.jinja"
kill -INT $run
ends_with 130 $run "a run whose template is gone"
cmp "$tmp/own.jinja" "$(echo "$tmp"/gone/checkpoint-*)/chat_template.jinja" || die "another template than the one that was read"
echo 'no tags' > "$tmp/gone.jinja"
train tagless "$conversations" chat_template="$tmp/gone.jinja" 2> "$tmp/err" && die "a template without tags passes"
grep -q "chat_template: $tmp/gone.jinja has neither {{ nor {%: every conversation" "$tmp/err" || die "$(cat "$tmp/err")"

# when the reader of a run's output exits, the run continues; a closed terminal counts as Ctrl-C
"$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/alone" max_steps=200 2>&1 | head -1 > /dev/null
[ -f "$tmp/alone/run_state.json" ] || die "a run ends when the reader of its output exits"
"$AFINAR" train "$tmp/run.yaml" -q output_dir="$tmp/hung" max_steps=1000000 2> "$tmp/err" &
run=$!
until [ -s "$tmp/hung/metrics.jsonl" ] || ! kill -0 $run; do sleep 0.05; done
for how in resume_from_checkpoint=auto overwrite_output_dir=true; do # two runs would overwrite each other's files
    "$AFINAR" train "$tmp/run.yaml" -q output_dir="$tmp/hung" max_steps=1000000 $how 2> "$tmp/why" && die "a second run writes to the folder"
    grep -q "another run is writing to '$tmp/hung'" "$tmp/why" || die "$(cat "$tmp/why")"
done
how=HUP code=129
case $(sed -n 's/^SigIgn:\s*//p' /proc/self/status) in *[13579bdf]) how=TERM code=143 ;; esac # under nohup no run ends by SIGHUP
kill -$how $run
ends_with $code $run "a run without its terminal"
ls -d "$tmp"/hung/checkpoint-* > /dev/null || die "a run without its terminal leaves no checkpoint"

# a finished run continues when more steps are requested, and is left alone otherwise
flat="lr_scheduler=constant save_steps=2"
train six $flat max_steps=6
train longer $flat
train longer $flat resume_from_checkpoint=auto
[ "$(wc -l < "$tmp/longer/metrics.jsonl")" = 4 ] || die "a finished run continued"
train longer $flat max_steps=6 resume_from_checkpoint=auto
same six longer
[ "$(wc -l < "$tmp/longer/metrics.jsonl")" = 6 ] || die "steps are missing or doubled"
# keys that an earlier version did not know are no difference unless the run sets them
was=$tmp/six/checkpoint-4 was_bytes=$(wc -c < "$tmp/six/checkpoint-4/run.yaml")
was_digest=$(sha256sum < "$was/run.yaml" | cut -d' ' -f1)
sed -i '/^label_smoothing_factor\|^use_dft_loss\|^split_turns/d' "$was/run.yaml"
sed -i "s/$was_digest/$(sha256sum < "$was/run.yaml" | cut -d' ' -f1)/; s/\(: *\)$was_bytes\b/\1$(wc -c < "$was/run.yaml")/" "$was/manifest.json"
"$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/later" $flat max_steps=6 resume_from_checkpoint="$was" use_dft_loss=false 2> "$tmp/err"
grep -q "^resumed from $was" "$tmp/err" || die "$(cat "$tmp/err")"
[ "$(grep -c '^note: ' "$tmp/err")" = 1 ] || die "$(grep '^note: ' "$tmp/err")"
grep -q '^note: use_dft_loss is false now; the checkpoint was made with not set$' "$tmp/err" || die "$(cat "$tmp/err")"
same six later
train longer $flat max_steps=6 resume_from_checkpoint=true
train longer $flat max_steps=5 resume_from_checkpoint=auto
same six longer
rm -r "$tmp"/longer/checkpoint-* # then it cannot, and its result must not be lost
train longer $flat max_steps=8 resume_from_checkpoint=auto 2> "$tmp/err" && die "a finished run without a checkpoint continued"
grep -q "without a checkpoint to resume from" "$tmp/err" || die "$(cat "$tmp/err")"
same six longer

# schedules that are probably mistakes
train floor lr_scheduler=cosine_with_min_lr max_steps=2 2> "$tmp/err" || die "$(cat "$tmp/err")"
grep -q "lr_scheduler 'cosine_with_min_lr' ends at 0: set cosine_min_lr_ratio or min_lr" "$tmp/err" || die "no word of the floor: $(cat "$tmp/err")"
train decay lr_scheduler=warmup_stable_decay lr_decay_steps=3 max_steps=2 2> "$tmp/err" || die "$(cat "$tmp/err")"
grep -q "the decay of 3 are longer than the run of 2, which does not reach" "$tmp/err" || die "no word of the decay: $(cat "$tmp/err")"

# checkpoints: limit, per epoch
train limit save_steps=1 save_total_limit=2 max_steps=5
[ "$(cd "$tmp/limit" && echo checkpoint-*)" = "checkpoint-4 checkpoint-5" ] || die "save_total_limit kept $(ls "$tmp/limit")"
train epoch saves_per_epoch=2 max_steps=-1 num_epochs=1 micro_batch_size=8
[ "$(cd "$tmp/epoch" && echo checkpoint-*)" = "checkpoint-4 checkpoint-8" ] || die "saves_per_epoch kept $(ls "$tmp/epoch")"

# a conversation in two rows (the generation prompt opens a thought that earlier answers lack) is held out as one record
cat > "$tmp/thinks.jinja" <<'JINJA'
{% for m in messages %}<|im_start|>{% if m.role == 'assistant' and loop.last %}T{% endif %}{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>T{% endif %}
JINJA
for i in 1 2 3 4; do
    echo '{"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}]}'
done > "$tmp/talks.jsonl"
for seed in 1 2 3; do
    "$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/held$seed" datasets="[{path: $tmp/talks.jsonl}]" chat_template="$tmp/thinks.jinja" \
        val_set_size=1 max_steps=1 seed=$seed 2> "$tmp/err" || die "$(cat "$tmp/err")"
    grep -q "evaluated on 2 held-out records" "$tmp/err" || die "the rows of a record are on both sides: $(cat "$tmp/err")"
    # rows of other records between them, too
    sed 's/"p"/"o"/' "$tmp/talks.jsonl" > "$tmp/others.jsonl"
    "$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/mixed$seed" datasets="[{path: $tmp/talks.jsonl}, {path: $tmp/others.jsonl}]" \
        mix_strategy=interleave_under chat_template="$tmp/thinks.jinja" val_set_size=1 max_steps=1 seed=$seed 2> "$tmp/err" || die "$(cat "$tmp/err")"
    grep -q "evaluated on 2 held-out records" "$tmp/err" || die "rows of a mixed record are on both sides: $(cat "$tmp/err")"
done

# a learning rate so high that evaluation gets worse: the run stops, and the best model is kept
worse="val_set_size=8 eval_steps=1 early_stopping_patience=2 max_steps=40 learning_rate=1 lr_scheduler=constant generate_samples=[hello] generate_samples_steps=1"
train early $worse
[ "$(ls -d "$tmp"/early/checkpoint-* | wc -l)" = 1 ]
steps=$(grep -c '"loss"' "$tmp/early/metrics.jsonl")
[ "$steps" -lt 40 ] || die "the run did not stop early"
# exactly two evaluations after the best one
least=$(sed -n 's/.*"eval_loss": \([^,]*\),.*/\1/p' "$tmp/early/metrics.jsonl" | cat -n | sort -gk2 | head -1 | awk '{ print $1 - 1 }')
[ "$steps" = $((least + 2)) ] || die "stopped after step $steps; the best evaluation came after step $least"
# the checkpoint of the best evaluation is named if and only if it exists
best() { sed -n "s/.*\"$2\": \(.*\),/\1/p" "$tmp/$1/trainer_state.json" | tr -d '"'; }
for rate in 2 3 1 4 5 7; do # which rate ends worse than its best step depends on the processor
    rough="val_set_size=8 eval_steps=1 max_steps=14 learning_rate=$rate lr_scheduler=constant"
    train unkept $rough overwrite_output_dir=true
    [ "$(best unkept best_global_step)" -eq 14 ] || break
done
[ "$(best unkept best_global_step)" -lt 14 ] || die "every last evaluation is the best one: nothing was tested"
[ "$(best unkept best_model_checkpoint)" = null ] || die "$(best unkept best_model_checkpoint) is named, but missing"
train kept $rough load_best_model_at_end=true
cmp "$(best kept best_model_checkpoint)/adapter_model.safetensors" "$tmp/kept/adapter_model.safetensors"
grep -q "\"eval_loss\": $(best kept best_metric)" "$tmp/kept/eval_results.json" || die "eval_results.json does not describe the saved model"
# parts of epochs of 64 records in steps of 12: every 2.67 steps, and none in the first epoch
train parts max_steps=-1 num_epochs=2 micro_batch_size=12 evals_per_epoch=2 val_set_size=0 eval_delay=1 \
    "test_datasets=[{path: $AF_GOLDEN/models/data/train_tokens.jsonl}]"
parts=$(sed -n 's/.*"step": \([0-9]*\),.*"eval_loss".*/\1/p' "$tmp/parts/metrics.jsonl" | tr '\n' ' ')
[ "$parts" = "6 8 11 " ] || die "evaluated after steps $parts"
# by another metric than the loss
train hits $rough load_best_model_at_end=true metric_for_best_model=eval_accuracy
most=$(sed -n 's/.*"step": \([0-9]*\),.*"eval_accuracy": \([^,]*\),.*/\1 \2/p' "$tmp/hits/metrics.jsonl" | sed 1d | sort -srgk2 | head -1)
[ "$(best hits best_global_step) $(best hits best_metric)" = "$most" ] || die "the most accurate is $(best hits best_global_step), not $most"
cmp "$(best hits best_model_checkpoint)/adapter_model.safetensors" "$tmp/hits/adapter_model.safetensors"
train none $rough metric_for_best_model=rouge eval_delay=2 2> "$tmp/err" && die "an unknown metric is accepted"
[ ! -e "$tmp/none" ] || die "an unknown metric is found after the first steps"
grep -q "metric_for_best_model is 'rouge', but evaluations of this run have loss, accuracy, mean_token_accuracy" "$tmp/err" || die "$(cat "$tmp/err")"
# one that was damaged in the meantime is not written
cp -r "$tmp/kept" "$tmp/hurt"
rm "$tmp/hurt/run_state.json" "$tmp/hurt/adapter_model.safetensors"
hurt=$tmp/hurt/checkpoint-$(best kept best_global_step)/adapter_model.safetensors
printf '\377' | dd of="$hurt" bs=1 seek="$(($(stat -c %s "$hurt") - 3))" conv=notrunc 2> /dev/null
train hurt $rough load_best_model_at_end=true resume_from_checkpoint=auto 2> "$tmp/err" && die "a damaged model is accepted as the best one"
grep -q "cannot write the best model of the run (load_best_model_at_end: false .*is damaged" "$tmp/err" || die "$(cat "$tmp/err")"
[ ! -e "$tmp/hurt/adapter_model.safetensors" ] || die "a damaged model was written"
train hurt $rough resume_from_checkpoint=auto
same hurt unkept
# also where all are worse than the model before the run
train spoilt $rough max_steps=2 learning_rate=50 load_best_model_at_end=true
evals=$(sed -n 's/.*"eval_loss": \([^,]*\),.*/\1/p' "$tmp/spoilt/metrics.jsonl")
[ "$(best spoilt best_global_step)" = "$(echo "$evals" | sed 1d | cat -n | sort -gk2 | head -1 | awk '{print $1}')" ] || die "the best step is $(best spoilt best_global_step)"
cmp "$(best spoilt best_model_checkpoint)/adapter_model.safetensors" "$tmp/spoilt/adapter_model.safetensors"
# more rows in a step than there are
"$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/more" max_steps=1 micro_batch_size=40 gradient_accumulation_steps=2 -q 2> "$tmp/err"
grep -q "warning: a step takes 80 rows .* there are only 64: " "$tmp/err" || die "no warning about records that are repeated within a step"
# its last step is logged, whatever logging_steps says, and the mean is that of all steps
train rare $worse logging_steps=30
[ "$(grep -c '"loss"' "$tmp/rare/metrics.jsonl")" = 1 ] || die "the step at which a run stopped early is not logged"
mean() { sed -n 's/ *"train_loss": \([0-9]*\.[0-9]\{4\}\).*/\1/p' "$tmp/$1/train_results.json"; }
[ "$(mean rare)" = "$(mean early)" ] || die "the mean loss is $(mean rare), not $(mean early)"
"$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/rare" overwrite_output_dir=true $worse 2>&1 | grep -q "evaluated on 8 held-out records" ||
    die "no message about the held-out records"
# killed when only its results were left to write: a resume runs no further step
cp -r "$tmp/early" "$tmp/killed"
(cd "$tmp/killed" && rm -r adapter_* *_results.json run_state.json report.html)
train killed $worse resume_from_checkpoint=auto
[ "$(grep -c '"loss"' "$tmp/killed/metrics.jsonl")" = "$steps" ] || die "a resumed run continued after its early stop"
same early killed
cmp "$tmp/early/samples.jsonl" "$tmp/killed/samples.jsonl" || die "a resumed run generated its last samples twice"
# the best checkpoint survives save_total_limit, although later ones came ($rough: its last step is not its best one)
train best $rough load_best_model_at_end=true save_steps=1 save_total_limit=1
best=$(sed -n 's/.*"best_global_step": \([0-9]*\).*/\1/p' "$tmp/best/trainer_state.json")
[ "$best" -gt 0 ] && [ "$best" -lt 14 ] || die "the best step is $best: nothing was tested"
cmp "$tmp/best/adapter_model.safetensors" "$tmp/best/checkpoint-$best/adapter_model.safetensors" || die "not the best one"

# caught SIGNAL LINE NAME KEYS ...: the run is sent the signal when it has printed LINE; its exit status is in $rc. On a busy
# machine it may have ended before: then again.
caught() {
    local signal=$1 line=$2 name=$3 tries pid
    for tries in $(seq 20); do
        rm -rf "${tmp:?}/$name"
        : > "$tmp/err" # do not wait for lines of an earlier run
        "$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/$name" "${@:4}" 2> "$tmp/err" & pid=$!
        until grep -q "$line" "$tmp/err" || ! kill -0 $pid 2> /dev/null; do :; done
        kill -"$signal" $pid 2> /dev/null || true
        rc=0; wait $pid 2> /dev/null || rc=$?
        [ -e "$tmp/$name/run_state.json" ] || return 0
    done
    die "20 runs ended before they could be stopped"
}
# Ctrl-C: a checkpoint, exit 130, and the resumed run ends with the same bytes
train long max_steps=300 lora_dropout=0.1
caught INT '^step' cut max_steps=300 lora_dropout=0.1
[ $rc = 130 ] || die "Ctrl-C: exit $rc: $(cat "$tmp/err")"
grep -q "stopped after step" "$tmp/err" || die "the run did not report that it stopped"
grep -q "^saving a checkpoint and stopping; press Ctrl-C again to quit now" "$tmp/err" || die "Ctrl-C is not answered"
[ "$(ls -d "$tmp"/cut/checkpoint-* | wc -l)" = 1 ] && [ ! -e "$tmp/cut/adapter_model.safetensors" ]
train cut max_steps=300 lora_dropout=0.1 resume_from_checkpoint=auto
same long cut
train cut max_steps=300 lora_dropout=0.1 resume_from_checkpoint=auto # nothing to do

# Ctrl-C during an evaluation or during samples does not wait for their end: the step's checkpoint records what is pending, the
# resumed run begins with it, and ends as the uninterrupted one did; also before the first step, and when that is stopped as well
for i in $(seq 6); do cat "$AF_GOLDEN/models/data/train_tokens.jsonl"; done > "$tmp/much.jsonl"
slow=("test_datasets=[{path: $tmp/much.jsonl}]" eval_steps=2 max_steps=4 learning_rate=1 lr_scheduler=constant lora_dropout=0.1 logging_steps=3
    early_stopping_patience=1 load_best_model_at_end=true generate_samples=[Hello] generate_samples_steps=2 generate_samples_tokens=200)
rows_of() { sed 's/"tok_s.*//; s/"eval_runtime.*//' "$tmp/$1/metrics.jsonl"; }
train calm "${slow[@]}"
rounds=0
until [ -f "$tmp/hasty/run_state.json" ]; do
    rounds=$((rounds + 1))
    [ $rounds -lt 60 ] || die "a run that is stopped again and again never ends"
    : > "$tmp/err"
    "$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/hasty" resume_from_checkpoint=auto "${slow[@]}" 2> "$tmp/err" & pid=$!
    until grep -q 'resident expected' "$tmp/err" || ! kill -0 $pid 2> /dev/null; do sleep 0.01; done
    sleep "$(awk "BEGIN { print $rounds * 0.04 * 1.08 ^ $rounds }")" # long enough in the end, on a slow machine too
    kill -INT $pid 2> /dev/null || true
    rc=0; wait $pid || rc=$?
    [ $rc = 130 ] || [ $rc = 0 ] || die "stopped: exit $rc, $(cat "$tmp/err")"
    [ -d "$tmp/pending" ] || ! grep -q "step 2 .*not evaluated yet" "$tmp/err" || cp -r "$tmp/hasty" "$tmp/pending"
    grep -E "not evaluated yet|samples are not generated yet|before its samples" "$tmp/err" >> "$tmp/hasty_pending" || true
done
[ -s "$tmp/hasty_pending" ] || die "no stop came during an evaluation: nothing was tested"
same calm hasty
[ "$(rows_of calm)" = "$(rows_of hasty)" ] || die "other rows: $(diff <(rows_of calm) <(rows_of hasty))"
cmp "$tmp/calm/samples.jsonl" "$tmp/hasty/samples.jsonl" || die "other samples"
if [ -d "$tmp/pending" ]; then # and killed after the pending work was done: nothing is written twice
    cp -r "$tmp/pending/checkpoint-2" "$tmp/pending_checkpoint"
    train pending "${slow[@]}" resume_from_checkpoint=auto
    (cd "$tmp/pending" && rm -r run_state.json checkpoint-[24] && cp -r ../pending_checkpoint checkpoint-2)
    train pending "${slow[@]}" resume_from_checkpoint=auto
    same calm pending
    [ "$(rows_of calm)" = "$(rows_of pending)" ] && cmp "$tmp/calm/samples.jsonl" "$tmp/pending/samples.jsonl" || die "rows written twice: $(diff <(rows_of calm) <(rows_of pending))"
fi

# Ctrl-C before anything was written
mkfifo "$tmp/slow"
"$AFINAR" train "$tmp/slow" output_dir="$tmp/never" 2> "$tmp/err" & pid=$!
exec 9> "$tmp/slow" # it waits for its run file now
kill -INT $pid
cat "$tmp/run.yaml" >&9
exec 9>&-
ends_with 130 $pid "Ctrl-C before the first step"
grep -q "stopped before the first step" "$tmp/err" || die "$(cat "$tmp/err")"
[ ! -e "$tmp/never" ] || die "a run that did not begin left a folder"
# and twice: it ends at once, and does not announce a checkpoint again
: > "$tmp/err"
"$AFINAR" train "$tmp/slow" output_dir="$tmp/never" 2> "$tmp/err" & pid=$!
exec 9> "$tmp/slow"
kill -INT $pid
until grep -q "^saving a checkpoint and stopping" "$tmp/err"; do kill -0 $pid; done
kill -INT $pid
rc=0; wait $pid 2> /dev/null || rc=$?
exec 9>&-
[ $rc = 130 ] || die "a second Ctrl-C: exit $rc"
[ "$(grep -c "^saving a checkpoint and stopping" "$tmp/err")" = 1 ] || die "a second Ctrl-C: $(cat "$tmp/err")"

# samples during training: once per step, also across a stop and a resume
ask='generate_samples=[Hello, "How many?"]'
asked=(max_steps=300 "$ask" generate_samples_steps=60 generate_samples_tokens=4 save_steps=50)
caught KILL '^step 7[0-9]/' asked "${asked[@]}"
train asked "${asked[@]}" resume_from_checkpoint=auto
got=$(sed 's/.*"step":\([0-9]*\),.*/\1/' "$tmp/asked/samples.jsonl" | tr '\n' ' ')
[ "$got" = "0 0 60 60 120 120 180 180 240 240 300 300 " ] || die "samples of steps: $got"
grep -q 'class="samples"' "$tmp/asked/report.html" || die "no samples in the report"

# with a learning rate of nearly 0, samples from the weights in training and from the saved model are the same
for run in "run lora" "run bf16=true" "run adapter=qlora" "run peft_use_dora=true" "full optimizer=adamw_torch" "full bf16=true"; do
    read -r file keys <<< "$run"
    [ "$keys" = lora ] && keys=
    "$AFINAR" train "$tmp/$file.yaml" -q output_dir="$tmp/still" learning_rate=1e-30 max_steps=2 "$ask" generate_samples_steps=1 \
        generate_samples_tokens=9 overwrite_output_dir=true $keys
    [ "$(wc -l < "$tmp/still/samples.jsonl")" = 6 ] || die "$run: not six answers"
    [ "$(sed 's/"step":[0-9]*,//' "$tmp/still/samples.jsonl" | sort -u | wc -l)" = 2 ] || die "$run: answers differ"
done
# and the plan includes the memory of sampling
printf '%s' "{% for m in messages %}$(seq -s ' ' 900){{ m.content }}{% endfor %}" > "$tmp/long.jinja"
bytes() { "$AFINAR" plan "$tmp/run.yaml" output_dir="$tmp/none" --json "$@" | sed 's/.*"samples_bytes":\([0-9]*\).*/\1/'; }
[ "$(bytes)" = 0 ] && [ "$(bytes "$ask" generate_samples_tokens=400)" -gt "$(bytes "$ask" generate_samples_tokens=4)" ] \
    || die "samples are not planned"
[ "$(bytes "$ask" chat_template="$tmp/long.jinja")" -gt "$(bytes "$ask")" ] || die "samples are planned with another template"

# full fine-tuning leaves a model that opens
"$AFINAR" train "$tmp/full.yaml" -q output_dir="$tmp/full" learning_rate=1e-3
"$AFINAR" eval "$tmp/full" --data "$AF_GOLDEN/models/data/train_tokens.jsonl" --json --device cpu -q > "$tmp/eval"
of_model() { "$AFINAR" eval "$tmp/$1" --data "$AF_GOLDEN/models/data/train.jsonl" --json --device cpu -q; }
[ "$(of_model full)" = "$(of_model full/checkpoint-4)" ] || die "a checkpoint is not a model, or a different one"
# a run that replaces one of another kind leaves no files of it
train full overwrite_output_dir=true
[ -e "$tmp/full/adapter_model.safetensors" ] && [ ! -e "$tmp/full/model.safetensors" ] || die "two models in one folder"
# an adapter is read from its own file, whatever else is in the folder
cp "$AF_GOLDEN/models/qwen2/model.safetensors" "$tmp/full"
train next_to lora_model_dir="$tmp/full" max_steps=1

# with dropout, too, recomputation keeps less: a sum is not rebuilt from two values kept for it
for keys in lora_dropout=0 lora_dropout=0.1 peft_use_dora=true; do
    json=$("$AFINAR" plan "$tmp/run.yaml" $keys sequence_len=1024 output_dir="$tmp/none" --json)
    of() { sed "s/.*\"$1\":{[^}]*\"activations\":\([0-9]*\).*/\1/" <<< "$json"; }
    [ "$(($(of cheap) * 10))" -lt "$(($(of none) * 9))" ] || die "$keys: cheap $(of cheap), none $(of none)"
done

# a resumed run reports what has changed, and refuses another optimizer's state
again() { rm -f "$tmp/changed/run_state.json"; "$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/changed" resume_from_checkpoint=auto "$@" 2> "$tmp/err"; }
train changed
again optimizer=lion && die "lion continued with the state of adamw"
grep -q 'the optimizer is lion, .* the state of adamw' "$tmp/err" || die "not reported: $(cat "$tmp/err")"
again max_steps=5 threads=2 logging_steps=2
[ "$(grep -c '^note' "$tmp/err")" = 1 ] && grep -q '^note: max_steps is 5 now; .* with 4' "$tmp/err" || die "$(cat "$tmp/err")"
head -9 "$AF_GOLDEN/models/data/train_tokens.jsonl" > "$tmp/nine.jsonl"
again -q max_steps=6 datasets="[{path: $tmp/nine.jsonl}]" # also a quiet run says this
grep -q '^warning: the datasets have 9 records' "$tmp/err" || die "$(cat "$tmp/err")"

# a template file with changed content, but the same name and number of tokens
cp "$tmp/own.jinja" "$tmp/edited.jinja"
again overwrite_output_dir=true resume_from_checkpoint=null "$conversations" chat_template="$tmp/edited.jinja"
again max_steps=6 "$conversations" chat_template="$tmp/edited.jinja"
! grep -q 'chat template' "$tmp/err" || die "an unchanged template is reported as changed"
sed -i 's/\[{{ m.role }}\]/({{ m.role }})/; s/\[assistant\]/(assistant)/' "$tmp/edited.jinja"
again -q max_steps=7 "$conversations" chat_template="$tmp/edited.jinja" || die "$(cat "$tmp/err")"
grep -q '^warning: the chat template differs from the checkpoint' "$tmp/err" || die "$(cat "$tmp/err")"
again overwrite_output_dir=true resume_from_checkpoint=null "$conversations"
again max_steps=6 "$conversations"
! grep -q 'chat template' "$tmp/err" || die "the model's own template is reported as changed"

# a checkpoint of another folder: the same result, and the same rows
rows() { sed 's/"tok_s.*//; s/"eval_runtime.*//' "$tmp/$1/metrics.jsonl"; }
there="val_set_size=8 eval_steps=1 save_steps=2 max_steps=6 lora_dropout=0.1"
train here $there
train moved $there resume_from_checkpoint="$tmp/here/checkpoint-2"
same here moved
[ "$(rows here)" = "$(rows moved)" ] || die "other rows: $(rows moved)"
train moved $there resume_from_checkpoint="$tmp/here/checkpoint-2" 2> "$tmp/err" && die "a run replaced another one"
train moved $there resume_from_checkpoint="$tmp/here/checkpoint-4" overwrite_output_dir=true load_best_model_at_end=true
train here $there resume_from_checkpoint="$tmp/here/checkpoint-2" overwrite_output_dir=true 2> "$tmp/err" && die "its own folder"
mkdir "$tmp/lost" && cp -r "$tmp/here/checkpoint-4" "$tmp/lost" # only the checkpoint is left
train lost $there resume_from_checkpoint=auto
same here lost
[ "$(rows lost | grep -c '"loss"')" = 2 ] || die "rows after the loss: $(rows lost)"

# a run file that names the fields as sharegpt does gives sharegpt's turns, including function calls
gpt=$AF_GOLDEN/data/files/sharegpt.jsonl
for more in '' ', type: chat_template, message_property_mappings: {role: from, content: value}' \
    ', field_messages: conversations, message_field_role: from, message_field_content: value'; do
    "$AFINAR" data preview "$tmp/run.yaml" "datasets=[{path: $gpt$more}]" --json -n 0 > "$tmp/turns" 2> "$tmp/err" || die "$more: $(cat "$tmp/err")"
    [ -n "$more" ] || cp "$tmp/turns" "$tmp/turns_as_they_are"
    cmp "$tmp/turns" "$tmp/turns_as_they_are" || die "other tokens: $more"
done

# a file is the split "train", as in the Hugging Face loaders
train split "datasets=[{path: $AF_GOLDEN/models/data/train_tokens.jsonl, split: train}]"
same plain split

# a folder is its split "train", too: neither its test file nor its README is trained on
mkdir "$tmp/published"
cp "$AF_GOLDEN/models/data/train_tokens.jsonl" "$tmp/published/train-0.jsonl"
head -3 "$AF_GOLDEN/models/data/train_tokens.jsonl" > "$tmp/published/test.jsonl"
for f in README.md LICENSE dataset_infos.json .gitattributes; do echo '{"about": "it"}' > "$tmp/published/$f"; done
train folder "datasets=[{path: $tmp/published}]" 2> "$tmp/err"
same plain folder
grep -q "^warning: $tmp/published: 1 of 2 files belong to splits other than train and are skipped" "$tmp/err" || die "not reported: $(cat "$tmp/err")"
[ "$(grep -c 'are skipped' "$tmp/err")" = 1 ] || die "reported twice: $(cat "$tmp/err")"
records() { "$AFINAR" data check "$tmp/run.yaml" "datasets=[{path: $tmp/published${1:-}}]" 2> /dev/null | sed -n 's/^records *//p'; }
[ "$(records ', split: test')" = 3 ] || die "the split test has $(records ', split: test') records"
rm "$tmp/published/train-0.jsonl"
[ "$(records)" = 3 ] || die "a folder of test files alone has $(records) records"
rm "$tmp/published/test.jsonl"
echo 'this is it' > "$tmp/published/test.txt"
[ "$(records)" = 2 ] || die "a README replaced the test file: $(records) records"
rm "$tmp"/published/*.json*
echo "another text" > "$tmp/published/guide.md"
[ "$(records)" = 2 ] || die "a folder of two texts has $(records) records"

# a check reads the evaluation data, too: a run would refuse faulty ones
cp "$AF_GOLDEN/models/data/train.jsonl" "$tmp/good.jsonl"
{ head -2 "$tmp/good.jsonl"; echo '{"text": "another shape"}'; } > "$tmp/faulty.jsonl"
checked() { "$AFINAR" data check "$tmp/run.yaml" "datasets=[{path: $tmp/good.jsonl}]" "test_datasets=[{path: $tmp/$1}]" --json 2> "$tmp/err"; }
checked good.jsonl | grep -q '"records": 64, .*"errors": 0, "test_records": 64}' || die "test_datasets are not counted"
checked faulty.jsonl > "$tmp/out" && die "faulty test_datasets pass"
grep -q '"errors": 1, "test_records": 2, "error": ' "$tmp/out" && grep -q "^error: $tmp/faulty.jsonl:3: " "$tmp/err" || die "$(cat "$tmp/out" "$tmp/err")"
checked absent.jsonl > /dev/null && die "absent test_datasets pass"

# checkpoints of another trainer are not removed unless requested
mkdir -p "$tmp/used/checkpoint-500"
train used 2> "$tmp/err" && die "checkpoints of another trainer were removed"
[ -d "$tmp/used/checkpoint-500" ] || die "a refused run removed a checkpoint"
train used overwrite_output_dir=true

# a GGUF base: its tokenizer and template are saved with the adapter and its checkpoints, too
"$AFINAR" export "$AF_GOLDEN/models/qwen2" -o "$tmp/base.gguf" --force --type q8_0 --no-verify -q > /dev/null
train gguf base_model="$tmp/base.gguf"
for f in {,checkpoint-4/}{tokenizer.json,tokenizer_config.json,chat_template.jinja}; do
    [ -s "$tmp/gguf/$f" ] || die "no $f of the adapter of a GGUF model"
done
[ -z "$(find "$tmp/gguf" -name '*.tmp')" ] && cmp "$tmp/gguf/chat_template.jinja" "$AF_GOLDEN/models/qwen2/chat_template.jinja"

# a NaN: the error names the step, the tensor and the records, and there is a replay file
cp -r "$AF_GOLDEN/models/qwen2" "$tmp/bad"
chmod -R u+w "$tmp/bad"
printf '\300\177\300\177' | dd of="$tmp/bad/model.safetensors" bs=1 conv=notrunc status=none \
    seek=$(($(stat -c %s "$tmp/bad/model.safetensors") - 4))
train nan base_model="$tmp/bad" lora_dropout=0.1 2> "$tmp/err" && die "a run on a NaN continued"
grep -q 'step 1: loss -\?nan.* the first tensor that is not finite is model\.[a-z0-9_.]*weight, in a batch of train_tokens.jsonl:' "$tmp/err" ||
    die "not named: $(cat "$tmp/err")"
grep -q '"first_bad": "model\.' "$tmp/nan/replay-1.json" || die "no replay file"
train nan_eval base_model="$tmp/bad" val_set_size=8 2> "$tmp/err" && die "an evaluation of NaN continued"
grep -q 'step 0: .*evaluation is not finite: the first tensor that is not finite is model\.' "$tmp/err" || die "not named: $(cat "$tmp/err")"
# finite gradients whose norm is not: the largest is named, with the records of the whole step; and the replay reproduces it
"$AFINAR" train "$tmp/full.yaml" -q output_dir="$tmp/inf" optimizer=sgd max_grad_norm=0 learning_rate=100 lr_scheduler=constant \
    max_steps=100 save_steps=1 gradient_accumulation_steps=2 2> "$tmp/err" && die "a run that diverges to infinity succeeded"
step=$(sed -n 's/.*step \([0-9]*\): loss.*/\1/p' "$tmp/err")
grep -q "not finite is the .*train_tokens.jsonl:[0-9]*, .*good checkpoint is checkpoint-$((step - 1));.*replay-$step.json" "$tmp/err" ||
    die "not named: $(cat "$tmp/err")"
grep -q '"input_ids": \[[0-9,]*\], "labels": \[' "$tmp/inf/replay-$step.json" || die "the records are not there"
for again in first second; do
    "$AFINAR" train "$tmp/inf/replay-$step.yaml" -q 2> "$tmp/replayed" && die "the $again replay succeeded"
    [ "$(sed 's/, in a batch.*//' "$tmp/err")" = "$(sed 's/, in a batch.*//' "$tmp/replayed")" ] || die "$(cat "$tmp/replayed")"
done

# dropout of a config: that of attention is refused unless the run file turns it off, that of Phi-3's branches is applied
cp -r "$AF_GOLDEN/models/qwen2" "$tmp/drops"
chmod -R u+w "$tmp/drops"
sed -i 's/"attention_dropout": [0-9.]*/"attention_dropout": 0.1/' "$tmp/drops/config.json"
for command in train plan; do
    "$AFINAR" $command "$tmp/run.yaml" output_dir="$tmp/dropped" base_model="$tmp/drops" 2> "$tmp/err" > /dev/null && die "$command with attention_dropout"
    grep -q "attention_dropout 0.1 of the model's config is not supported: set 'attention_dropout: 0'" "$tmp/err" || die "$(cat "$tmp/err")"
done
"$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/dropped" base_model="$tmp/drops" attention_dropout=0 -q 2> "$tmp/err" || die "$(cat "$tmp/err")"
cp -r "$AF_GOLDEN/models/phi3_longrope" "$tmp/phi"
chmod -R u+w "$tmp/phi"
echo '{"input_ids": [3, 5, 7, 9, 11], "labels": [3, 5, 7, 9, 11]}' > "$tmp/five.jsonl"
phi() { # OUT KEYS...
    "$AFINAR" train - output_dir="$tmp/$1" "${@:2}" -q 2> "$tmp/err" << EOF || die "$(cat "$tmp/err")"
base_model: $tmp/phi
adapter: lora
datasets: [{path: $tmp/five.jsonl, type: tokens}]
max_steps: 3
sequence_len: 64
device: cpu
EOF
}
phi phi_plain
sed -i 's/"resid_pdrop": [0-9.]*/"resid_pdrop": 0.3/' "$tmp/phi/config.json"
grep -q '"resid_pdrop": 0.3' "$tmp/phi/config.json" || die "no resid_pdrop in the golden config"
phi phi_drops threads=1
phi phi_again threads=2
cmp -s "$tmp/phi_plain/adapter_model.safetensors" "$tmp/phi_drops/adapter_model.safetensors" && die "resid_pdrop changes nothing"
cmp "$tmp/phi_drops/adapter_model.safetensors" "$tmp/phi_again/adapter_model.safetensors" || die "resid_pdrop depends on threads"

# other optimizers change the weights, too
for o in lion adafactor adamw_8bit adam sgd adagrad nadam radam adopt_adamw stable_adamw schedule_free_radam; do
    train "opt_$o" optimizer=$o max_steps=2
    differ plain "opt_$o"
done

# a run that resumes from a named checkpoint does not use the later ones: `auto` does not take them, whether it was killed before
# its first checkpoint or after; they are renamed, those of other trainers are not, and they can still be named
branch="save_steps=2 lr_scheduler=constant max_steps=8"
train left $branch
mkdir "$tmp/left/checkpoint-900"
cp -r "$tmp/left/checkpoint-6" "$tmp/six_before"
"$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/left" $branch max_steps=3 seed=7 resume_from_checkpoint="$tmp/left/checkpoint-2" 2> "$tmp/err"
grep -q "note: 3 checkpoints after step 2 renamed to checkpoint-STEP.left" "$tmp/err" || die "$(cat "$tmp/err")"
[ "$(cd "$tmp/left" && echo checkpoint-*)" = "checkpoint-2 checkpoint-3 checkpoint-4.left checkpoint-6.left checkpoint-8.left checkpoint-900" ] ||
    die "left: $(ls "$tmp/left")"
diff -r "$tmp/six_before" "$tmp/left/checkpoint-6.left" || die "a renamed checkpoint has changed"
cp -r "$tmp/left" "$tmp/left_killed"
rm -r "$tmp"/left_killed/{checkpoint-3,run_state.json} # as if killed before it
for d in left left_killed; do train $d $branch seed=7 resume_from_checkpoint=auto 2> "$tmp/err"; done
train left_alone $branch
cp -r "$tmp/left_alone/checkpoint-2" "$tmp/two"
train left_alone $branch seed=7 resume_from_checkpoint="$tmp/two" overwrite_output_dir=true
for d in left left_killed; do same left_alone $d; done
[ "$(grep -c '"loss"' "$tmp/left/metrics.jsonl")" = 8 ] || die "steps are missing or doubled after a branch"
train left $branch resume_from_checkpoint="$tmp/left/checkpoint-6.left"
train left_whole $branch
same left_whole left
steps_of() { sed -n 's/^{"step": \([0-9]*\), .*}$/\1/p' "$tmp/$1/metrics.jsonl" | tr '\n' ' '; }
[ "$(steps_of left)" = "1 2 3 4 5 6 7 8 " ] && [ "$(wc -l < "$tmp/left/metrics.jsonl")" = 8 ] || die "rows: $(cat "$tmp/left/metrics.jsonl")"

# a file that was half written when a run was killed is removed when it resumes, and TensorBoard gets the step of the resume
train halved save_steps=2
mkdir "$tmp/halved/checkpoint-3.tmp"
rm -rf "$tmp/halved/checkpoint-4" "$tmp/halved/run_state.json"
train halved save_steps=2 resume_from_checkpoint=auto
[ ! -e "$tmp/halved/checkpoint-3.tmp" ] || die "half a checkpoint stays for ever"
restart=$(printf '\x10\x03\x3a\x02\x08\x01') # step 3, SessionLog.START
[ "$(grep -laF "$restart" "$tmp"/halved/events.out.tfevents.* | wc -l)" = 1 ] || die "the events do not mark the resume"

# a skipped checkpoint does not count against save_total_limit, and is not lost when the run starts from scratch
train skipped save_steps=1
for step in 4 3; do truncate -s -1 "$tmp/skipped/checkpoint-$step/optimizer.safetensors"; done
rm "$tmp/skipped/run_state.json" # as if killed
"$AFINAR" train "$tmp/run.yaml" -q output_dir="$tmp/skipped" save_steps=1 save_total_limit=1 resume_from_checkpoint=auto \
    max_steps=3 2> "$tmp/err" || die "$(cat "$tmp/err")"
[ -d "$tmp/skipped/checkpoint-3" ] && [ ! -d "$tmp/skipped/checkpoint-2" ] || die "the wrong checkpoint was removed: $(ls "$tmp/skipped")"
train foreign save_steps=1 save_total_limit=1
mkdir -p "$tmp/foreign/checkpoint-500"
echo theirs > "$tmp/foreign/checkpoint-500/optimizer.pt"
"$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/foreign" save_steps=1 save_total_limit=1 max_steps=5 resume_from_checkpoint=auto 2> "$tmp/err" ||
    die "$(cat "$tmp/err")"
grep -q "skipping checkpoint-500: .*not a checkpoint of afinar" "$tmp/err" || die "no message about another trainer's checkpoint"
[ -f "$tmp/foreign/checkpoint-500/optimizer.pt" ] || die "another trainer's checkpoint was removed"
[ "$(cd "$tmp/foreign" && echo checkpoint-*)" = "checkpoint-5 checkpoint-500" ] || die "$(ls "$tmp/foreign")"

# measured memory is at most what was expected and not far below, also when the best model is copied at the end (its file is larger
# than the tolerance)
if ! grep -qa __asan_init "$AFINAR"; then
    "$AFINAR" train "$tmp/full.yaml" output_dir="$tmp/resident" base_model="$AF_SOURCE/examples/demo/base" \
        datasets="[{path: $AF_SOURCE/examples/demo/train.jsonl}]" learning_rate=1e-5 val_set_size=8 eval_steps=1 load_best_model_at_end=true 2> "$tmp/err"
    grep -Eq 'peak resident, [0-9.]* expected \((-([0-9]|1[0-9])\.|\+0\.0)' "$tmp/err" || die "$(grep 'peak resident' "$tmp/err")"
    # and the plan reports the same in advance, the program itself included
    for keys in "" "adapter=lora lora_r=8" "adapter=qlora lora_r=8"; do
        set -- base_model="$AF_SOURCE/examples/demo/base" datasets="[{path: $AF_SOURCE/examples/demo/train.jsonl}]" sequence_len=256 pad_to_sequence_len=true $keys
        planned=$("$AFINAR" plan "$tmp/full.yaml" output_dir="$tmp/none" "$@" --json | sed 's/.*"resident_bytes":\([0-9]*\).*/\1/')
        rm -rf "$tmp/planned"
        "$AFINAR" train "$tmp/full.yaml" output_dir="$tmp/planned" "$@" 2> "$tmp/err" || die "$(cat "$tmp/err")"
        sed -n 's/.*memory: \([0-9.]*\) MiB peak resident.*/\1/p' "$tmp/err" | awk -v p="$planned" '{ d = $1 * 1048576 / p - 1; exit !(d <= 0 && d > -0.2) }' \
            || die "'$keys': $planned bytes resident planned, $(grep 'peak resident' "$tmp/err")"
    done
    # nor do the tokens of a large dataset stay in memory after they were checked
    awk 'BEGIN { for (i = 0; i < 6000; i++) { printf "{\"text\": \"%d", i; for (k = 0; k < 250; k++) printf " x"; print "\"}" } }' > "$tmp/large.jsonl"
    for again in made kept; do
        "$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/large_$again" datasets="[{path: $tmp/large.jsonl}]" max_steps=1 2> "$tmp/err"
        grep -Eq 'peak resident, [0-9.]* expected \([+-]([0-9]|[12][0-9])\.' "$tmp/err" || die "large, $again: $(grep 'peak resident' "$tmp/err")"
    done
fi
echo "every feature"
