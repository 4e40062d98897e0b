#!/usr/bin/env bash
# What a user sees around a run: announcements, the end with its next commands, stops with the way to go on, and report.html at
# every moment.
set -euo pipefail
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache" HF_HOME="$tmp/hf"
trap 'rm -rf "$tmp"' EXIT
die() { echo "$1"; exit 1; }
has() { # FILE WORDS ...: each is in the file
    local file=$1 word
    shift
    for word in "$@"; do grep -qF -- "$word" "$file" || die "$(basename "$file") has no '$word': $(head -c 3000 "$file")"; done
}
cd "$tmp"
cat > run.yaml <<YAML
base_model: $AF_GOLDEN/models/qwen2
datasets: [{path: $AF_GOLDEN/models/data/train.jsonl}]
adapter: lora
lora_r: 4
learning_rate: 1e-3
max_steps: 6
val_set_size: 4
eval_steps: 3
device: cpu
threads: 1
YAML

# --- a run from its first line to the commands it ends with
"$AFINAR" train run.yaml output_dir="my out" 2> err
has err "evaluating the base model on 4 records before the first step" "adapter: my out/adapter_model.safetensors" \
    "report: my out/report.html" "next:"
[ "$(grep -n 'evaluating the base' err | cut -d: -f1)" -lt "$(grep -n '^step 0/6: eval_loss' err | cut -d: -f1)" ] || die "announced too late"
grep -q 'no GPU is used' err && die "a run on the CPU that was asked for speaks of a GPU"
sed -n 's/^  afinar //p' err > next
[ "$(wc -l < next)" = 3 ] || die "not three commands: $(cat next)"
while read -r line; do # as pasted into a shell
    [ "${line%% *}" != generate ] || line="$line -n 2"
    eval "\"\$AFINAR\" $line" > pasted 2>&1 < /dev/null || die "cannot be pasted: $line: $(cat pasted)"
done < next
[ -f "my out-merged/config.json" ] && [ -f "my out.gguf" ] || die "merge and export: $(ls)"

# --- of a model that GGUF cannot hold
"$AFINAR" train run.yaml base_model="$AF_SOURCE/examples/demo/base" output_dir=demo max_steps=1 2> demo.err
sed -n 's/^  afinar //p' demo.err | grep -q '^merge' || die "no merge: $(cat demo.err)"
grep -q 'afinar export' demo.err demo/report.html && die "a command that would be refused: $(cat demo.err)"

# --- its report
report="my out/report.html"
has "$report" "<h1>my out: done</h1>" "<dt>Date</dt><dd>20" "<dt>Duration</dt>" "LoRA, rank 4, alpha 8" "<dd>0.001, cosine</dd>" "2 x 1 = 2 rows" \
    "step 6 of 6" "train.jsonl; 64 records" "<th class=\"n\">perplexity</th>" "(before training)" "Next steps" "afinar merge"
[ "$(sed 's/.*<h2>Evaluations/x/' "$report" | grep -c '<tr><td>')" -ge 3 ] || die "not every evaluation"
accuracy=$(sed -n 's/.*"step": 6,.*"eval_accuracy": \([0-9.e-]*\),.*/\1/p' "my out/metrics.jsonl")
has "$report" "$(awk "BEGIN { printf \"%.2f %%\", 100 * $accuracy }")"
has "$report" '<g class="v"><rect' 'step 3, loss' ', evaluation loss ' # values under the pointer
grep -qE '<script|https?://|src=|url\(|http-equiv' "$report" && die "the report asks for something outside, or runs a script"

# --- no GPU: said in the device line of a run and of a plan, not by other commands
if ! "$AFINAR" eval "$AF_GOLDEN/models/qwen2" --data "$AF_GOLDEN/models/data/train.jsonl" --device cuda > /dev/null 2>&1; then
    sed '/^device/d' run.yaml > auto.yaml
    "$AFINAR" train auto.yaml output_dir=auto max_steps=1 2> err
    [ "$(grep -c 'no GPU is used' err)" = 1 ] && grep -q '^device: cpu.*no GPU is used' err || die "train: $(cat err)"
    "$AFINAR" plan auto.yaml > out 2> err
    [ "$(cat out err | grep -c 'no GPU is used')" = 1 ] || die "plan: $(cat out err)"
    if [ ! -e /dev/nvidiactl ]; then
        "$AFINAR" generate "$AF_GOLDEN/models/qwen2" -p x -n 1 > out 2> err
        grep -q 'no GPU' err && die "generate speaks of a GPU that nobody misses: $(cat err)"
        "$AFINAR" generate "$AF_GOLDEN/models/qwen2" -p x -n 1 -v > out 2> err
        has err "no GPU is used: no NVIDIA driver"
    fi
fi

# --- stopped by a signal: its exit status, the report, and the exact way to go on
for how in "INT 130" "TERM 143"; do
    read -r signal code <<< "$how"
    : > err # not the lines of an earlier run
    "$AFINAR" train run.yaml output_dir="it's $signal" max_steps=1000000 'lora_target_modules=[q_proj, v_proj]' --json > out 2> err & pid=$!
    until grep -q '^step 3/' err 2> /dev/null; do kill -0 $pid; sleep 0.02; done
    has "it's $signal/report.html" ": running</h1>" 'http-equiv="refresh"'
    kill -$signal $pid
    rc=0; wait $pid || rc=$?
    [ $rc = "$code" ] || die "SIG$signal: exit $rc"
    has err "stopped after step"
    has "it's $signal/report.html" "it's $signal: stopped</h1>" "stopped after step" "resume_from_checkpoint=auto" "<polyline"
    grep -q 'http-equiv' "it's $signal/report.html" && die "the report of a stopped run reloads itself"
    resume=$(sed -n 's/^resume with: afinar //p' err)
    [ "$resume" = "train run.yaml 'output_dir=it'\\''s $signal' max_steps=1000000 'lora_target_modules=[q_proj, v_proj]' resume_from_checkpoint=auto" ] \
        || die "resume with: $resume"
    grep -q '^{"steps": .*"stopped": true.*"resume": "afinar train run.yaml .*"}$' out || die "--json: $(cat out)"
    step=$(sed -n 's/.*stopped after step \([0-9]*\) of.*/\1/p' err)
    eval "\"\$AFINAR\" ${resume/max_steps=1000000/max_steps=$((step + 2))}" 2> err || die "$(cat err)"
    has err "resumed from it's $signal/checkpoint-$step at step $step"
done
# a run that may overwrite its folder must not do so when it resumes
: > err # not the lines of an earlier run
"$AFINAR" train run.yaml output_dir=over overwrite_output_dir=true max_steps=1000000 2> err & pid=$!
until grep -q '^step 3/' err 2> /dev/null; do kill -0 $pid; sleep 0.02; done
kill -INT $pid
wait $pid || true
resume=$(sed -n 's/^resume with: afinar //p' err)
step=$(sed -n 's/.*stopped after step \([0-9]*\) of.*/\1/p' err)
eval "\"\$AFINAR\" ${resume/max_steps=1000000/max_steps=$((step + 1))}" 2> err || die "$resume: $(cat err)"
has err "resumed from over/checkpoint-$step"
# a run file from a pipe cannot be read again: the run's own copy is
: > err # not the lines of an earlier run
"$AFINAR" train - output_dir=piped max_steps=1000000 < run.yaml 2> err & pid=$!
until grep -q '^step 3/' err 2> /dev/null; do kill -0 $pid; sleep 0.02; done
kill -INT $pid
wait $pid || true
has err "resume with: afinar train piped/run.yaml resume_from_checkpoint=auto"
: > err # not the lines of an earlier run
"$AFINAR" train piped/run.yaml resume_from_checkpoint=auto max_steps=1000000 2> err & pid=$!
until grep -q '^resumed from' err 2> /dev/null; do kill -0 $pid; sleep 0.02; done
kill -INT $pid
wait $pid || true

# --- a run that fails after its start has a report that says why
sed '/^adapter/d; /^lora/d; /^learning/d' run.yaml > full.yaml
diverge=(learning_rate=100 optimizer=sgd lr_scheduler=constant max_steps=400 max_grad_norm=0)
rc=0; "$AFINAR" train full.yaml output_dir=failed "${diverge[@]}" 2> err || rc=$?
[ $rc = 1 ] || die "a run that diverges: exit $rc"
has failed/report.html "failed: failed</h1>" "not finite" "full fine-tuning"
grep -q 'resume' err && die "there is no checkpoint to resume from: $(cat err)"
rc=0; "$AFINAR" train full.yaml output_dir=failed2 "${diverge[@]}" save_steps=1 2> err || rc=$?
has failed2/report.html "failed2: failed</h1>" "Next steps" "resume_from_checkpoint=auto"
has err "resume with: afinar train full.yaml output_dir=failed2 learning_rate=100"
