#!/usr/bin/env bash
# report_to: what the stores of experiment trackers hold after a run, after a resumed run, and when they cannot be written.
set -uo pipefail
tmp=$(mktemp -d)
export PYTHONDONTWRITEBYTECODE=1 XDG_CACHE_HOME="$tmp/cache" HF_HOME="$tmp/hf" TRACKIO_DIR="$tmp/trackio"
unset MLFLOW_TRACKING_URI MLFLOW_EXPERIMENT_NAME WANDB_DIR WANDB_PROJECT WANDB_NAME WANDB_RUN_ID WANDB_MODE
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
here=$(cd "$(dirname "$0")" && pwd)
failed=0
die() { failed=1; echo "$1"; [ -s "$tmp/err" ] && sed 's/^/    /' "$tmp/err"; }
cd "$tmp" || exit 1
cat > run.yaml <<YAML
base_model: $AF_GOLDEN/models/qwen2
datasets: [{path: $AF_GOLDEN/models/data/train.jsonl}]
val_set_size: 2
output_dir: out
run_name: "a: 'run'"
sequence_len: 64
max_steps: 3
save_steps: 2
learning_rate: 1e-3
device: cpu
YAML
train() { "$AFINAR" train run.yaml "$@" > stdout 2> err; }
check() { python3 "$here/trackers_check.py" "$@" || die "check $*"; }

all=(report_to=all mlflow_experiment_name='"one: two"' wandb_project=proj wandb_run_id=idOne trackio_project=my.proj)
train "${all[@]}" || die "train: exit $?"
check out all FINISHED 3 "one: two"
# --- a resumed run goes on in the same store, without the rows of steps that are done again
train "${all[@]}" resume_from_checkpoint=out/checkpoint-2 max_steps=4 || die "resume: exit $?"
check out all FINISHED 4 "one: two"
# --- a run that fails
# every weight times -999 in each step: sooner or later one is infinite, on any processor
train "${all[@]}" output_dir=failed optimizer=sgd learning_rate=100 lr_scheduler=constant weight_decay=10 max_grad_norm=0 max_steps=20 \
    save_steps=0 trackio_project=f && die "loss NaN: exit 0"
grep -q "the first tensor that is not finite" err || die "no NaN"
for t in mlflow wandb; do check failed $t FAILED "$(wc -l < failed/metrics.jsonl | awk '{ print $1 - 1 }')" "one: two"; done
# --- environment, and one tracker of many
MLFLOW_TRACKING_URI="file://$tmp/store" MLFLOW_EXPERIMENT_NAME=env train 'report_to=[tensorboard, mlflow]' output_dir=env ||
    die "environment: exit $?"
[ -e env/mlruns ] && die "MLFLOW_TRACKING_URI is not used"
check env mlflow FINISHED 3 env "$tmp/store"
MLFLOW_TRACKING_URI="http://localhost:1" train report_to=mlflow output_dir=net || die "network: exit $?"
grep -q "warning: the MLflow store 'http://localhost:1' is not a local folder; the run is written to net/mlruns" err || die "network"
check net mlflow FINISHED 3 Default
WANDB_MODE=disabled train report_to=wandb output_dir=disabled || die "disabled: exit $?"
[ -e disabled/wandb ] && die "WANDB_MODE=disabled: something is written"
WANDB_DIR=$tmp/runs WANDB_MODE=online train report_to=wandb output_dir=dir wandb_project="$(printf 'x%.0s' {1..100000})" || die "long name: exit $?"
PYTHONPATH=$here python3 - "$tmp"/runs/wandb/offline-run-*/run-*.wandb << 'PY' || die "long record"
import pathlib, sys
from wandb_file import fields, records
log = [list(fields(r)) for r in records(pathlib.Path(sys.argv[1]))]
assert dict(fields(log[1][1][1]))[3] == b"x" * 100000
PY
# --- none, unknown, unwritable
train report_to=none output_dir=none || die "none: exit $?"
ls none | grep -q 'mlruns\|wandb\|trackers' && die "none: something is written"
cmp -s <(grep -o '"loss": [^,]*' none/metrics.jsonl) <(grep -o '"loss": [^,]*' net/metrics.jsonl) || die "losses differ"
train report_to=mlflw output_dir=bad && die "unknown name: accepted"
grep -q "report_to 'mlflw' is not known; it is" err || die "unknown name"
train mlflow_experiment_name=x output_dir=bad && die "key without effect: accepted"
grep -q "mlflow_experiment_name has no effect without 'report_to: mlflow'" err || die "key without effect"
: > file
TRACKIO_DIR=$tmp/file train report_to=trackio output_dir=notrackio || die "trackio unwritable: exit $?"
grep -q "warning: trackio does not get the metrics of this run any more: .*file" err || die "trackio unwritable"
train report_to=mlflow mlflow_tracking_uri=file/store output_dir=unwritable || die "unwritable: exit $?"
grep -q "warning: mlflow does not get the metrics of this run any more: .*file" err || die "unwritable"
exit $failed
