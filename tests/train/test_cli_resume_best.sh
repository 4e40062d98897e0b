#!/usr/bin/env bash
# A run that resumes in another folder takes its best checkpoint along.
set -euo pipefail
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache"
trap 'rm -rf "$tmp"' EXIT
cat > "$tmp/run.yaml" <<YAML
base_model: $AF_GOLDEN/models/qwen2
datasets: [{path: $AF_GOLDEN/models/data/train_tokens.jsonl}]
adapter: lora
lora_r: 4
lr_scheduler: constant
learning_rate: 1e-3
val_set_size: 8
eval_steps: 1
save_steps: 1
max_steps: 12
load_best_model_at_end: true
greater_is_better: true # of losses that fall: an early one is the best
device: cpu
threads: 1
YAML
die() { echo "$1"; exit 1; }
train() { "$AFINAR" train "$tmp/run.yaml" -q output_dir="$tmp/$1" "${@:2}"; }
best() { sed -n "s/.*\"$2\": \(.*\),/\1/p" "$tmp/$1/trainer_state.json" | tr -d '"'; }
rows() { sed 's/"tok_s.*//; s/"eval_runtime.*//' "$tmp/$1/metrics.jsonl"; }
# same A B: weights, choice and rows; all of B's is in B
same() {
    cmp "$tmp/$1/adapter_model.safetensors" "$tmp/$2/adapter_model.safetensors" || die "$1 and $2 differ"
    [ "$(best "$1" best_global_step) $(best "$1" best_metric)" = "$(best "$2" best_global_step) $(best "$2" best_metric)" ] ||
        die "the best step of $2 is $(best "$2" best_global_step), not $(best "$1" best_global_step)"
    [ "$(best "$2" best_model_checkpoint)" = "$tmp/$2/checkpoint-$(best "$1" best_global_step)" ] || die "$(best "$2" best_model_checkpoint)"
    [ "$(rows "$1")" = "$(rows "$2")" ] || die "other rows: $(rows "$2")"
}

train here
least=$(best here best_global_step)
[ "$least" -gt 0 ] && [ "$least" -le 8 ] || die "the best step is $least: nothing was tested"
from=$((least + 2)) # it lies before the place to resume from

train there resume_from_checkpoint="$tmp/here/checkpoint-$from" 2> "$tmp/err"
same here there
! grep -q 'best' "$tmp/err" || die "$(cat "$tmp/err")"
[ ! -e "$tmp/there/checkpoint-$((least - 1))" ] && [ ! -e "$tmp/there/checkpoint-$((least + 1))" ] || die "more than the best one was copied"
# from the best one itself, under any name
mkdir "$tmp/kept" && cp -r "$tmp/here/checkpoint-$least" "$tmp/kept/first" && cp "$tmp/here/metrics.jsonl" "$tmp/kept"
train renamed resume_from_checkpoint="$tmp/kept/first"
same here renamed

# killed in the new folder after a step, and while the best one was copied: no use is made of the old folder any more
cp -r "$tmp/there" "$tmp/killed"
(cd "$tmp/killed" && rm -r adapter_* *_results.json run_state.json report.html checkpoint-1[0-9] && mkdir -p "checkpoint-$((from + 1))")
mv "$tmp/here" "$tmp/away"
ls -d "$tmp/killed/checkpoint-$least" > /dev/null
train killed resume_from_checkpoint=auto save_total_limit=1
mv "$tmp/away" "$tmp/here"
same here killed
cp -r "$tmp/killed/checkpoint-$least" "$tmp/killed/checkpoint-$least.tmp" # as a kill leaves it
rm -r "$tmp/killed/run_state.json" "$tmp/killed/checkpoint-$least.tmp/manifest.json" "$tmp/killed/checkpoint-$least.tmp/progress.json"
train killed resume_from_checkpoint=auto
[ ! -e "$tmp/killed/checkpoint-$least.tmp" ] || die "half a copy is left"
same here killed

# early stopping goes on counting: the same last step
stop="early_stopping_patience=3 max_steps=40"
train stopped $stop
train stops $stop resume_from_checkpoint="$tmp/stopped/checkpoint-$(($(best stopped best_global_step) + 1))"
same stopped stops
[ "$(best stopped global_step)" = "$(best stops global_step)" ] || die "stopped after step $(best stops global_step)"

# one that is lost, damaged or of another run: a warning, and later ones count
lost() { # NAME WHY
    train "$1" resume_from_checkpoint="$tmp/lost/checkpoint-$from" 2> "$tmp/err"
    grep -q "^warning: the best evaluation so far, of step $least, does not count any more, as its checkpoint is not there: .*$2" "$tmp/err" ||
        die "$1: $(cat "$tmp/err")"
    [ "$(best "$1" best_global_step)" -gt "$from" ] || die "$1: the best step is $(best "$1" best_global_step)"
    cmp "$(best "$1" best_model_checkpoint)/adapter_model.safetensors" "$tmp/$1/adapter_model.safetensors"
}
mkdir "$tmp/lost" && cp -r "$tmp/here/checkpoint-$from" "$tmp/lost"
lost gone "does not exist"
cp -r "$tmp/here/checkpoint-$least" "$tmp/lost"
printf '\377' | dd of="$tmp/lost/checkpoint-$least/adapter_model.safetensors" bs=1 seek=2000 conv=notrunc 2> /dev/null
lost damaged "is damaged"
rm -r "$tmp/lost/checkpoint-$least"
train other learning_rate=2e-3 max_steps="$least"
cp -r "$tmp/other/checkpoint-$least" "$tmp/lost"
lost foreign "belongs to another run"
