#!/usr/bin/env bash
# Signals that schedulers send before a time limit, two at once, one again and again, and an output folder that somebody moves away: what
# was trained is saved, and a resumed run ends with the same bytes.
set -euo pipefail
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache"
pid=
trap '[ -z "$pid" ] || kill -9 $pid 2> /dev/null || :; rm -rf "$tmp"' EXIT
cd "$tmp"
cat > run.yaml <<YAML
base_model: $AF_GOLDEN/models/qwen2
datasets: [{path: $AF_GOLDEN/models/data/train_tokens.jsonl}]
adapter: lora
lora_r: 4
lora_dropout: 0.1
learning_rate: 1e-3
lr_scheduler: constant
max_steps: 1000000
device: cpu
threads: 1
YAML
fail() { echo "$1"; cat said 2> /dev/null; exit 1; }
begin() { # KEYS: a run in the background that has taken steps
    rm -rf out
    "$AFINAR" train run.yaml output_dir=out "$@" > said 2>&1 &
    pid=$!
    until [ "$(wc -l 2> /dev/null < out/metrics.jsonl || echo 0)" -ge 3 ]; do kill -0 $pid 2> /dev/null || fail "the run ended"; sleep 0.02; done
}
end() { # STATUS NAME
    local rc=0
    wait $pid || rc=$?
    pid=
    [ $rc = "$1" ] || fail "$2: status $rc, not $1"
}
resumed() { # NAME: one more step than the checkpoint has, as an undisturbed run
    local at
    at=$(ls -d out/checkpoint-* | sed 's/.*-//')
    grep -q "^afinar train: stopped after step $at of 1000000; checkpoint-$at is in 'out'$" said || fail "$1: no word of the checkpoint"
    "$AFINAR" train run.yaml -q output_dir=out max_steps=$((at + 1)) resume_from_checkpoint=auto
    "$AFINAR" train run.yaml -q output_dir=whole --force max_steps=$((at + 1))
    cmp whole/adapter_model.safetensors out/adapter_model.safetensors || fail "$1: other bytes"
}
for signal in USR1 USR2 XCPU HUP; do
    begin
    kill -$signal $pid
    end $((128 + $(kill -l $signal))) $signal
    resumed $signal
done
begin
kill -TERM $pid
sleep 0.01
kill -USR1 $pid 2> /dev/null || : # of a launcher that heard the same
end 143 "twice"
resumed "twice"

# beyond a limit of CPU time SIGXCPU comes every second: the step is made and saved all the same
rm -rf out
passes=300 # of a step that lasts longer than both signals
[ -z "${ASAN_OPTIONS-}" ] || passes=60
"$AFINAR" train run.yaml output_dir=out gradient_accumulation_steps=$passes > said 2>&1 &
pid=$!
from=$(date +%s%N)
until [ -e out/metrics.jsonl ]; do kill -0 $pid 2> /dev/null || fail "the run ended"; sleep 0.02; done
fifth=$(awk "BEGIN { print ($(date +%s%N) - $from) / 5e9 }") # of the first step: both come in the second one
for _ in 1 2; do sleep "$fifth"; kill -XCPU $pid 2> /dev/null || :; done
end 152 "a limit of CPU time"
grep -q "^afinar train: stopped after step [0-9]* of 1000000; checkpoint-[0-9]* is in 'out'$" said || fail "a limit of CPU time: nothing is saved"

# the folder is moved away: the weights are written to a new one
begin
mv out moved
end 1 "a folder that is moved away"
grep -q "^the weights of step [0-9]* are in 'out', without the optimizer's state" said && [ -s out/adapter_model.safetensors ] || fail "a folder that is moved away: weights are lost"
echo "signals and moved folders: what was trained is saved"
