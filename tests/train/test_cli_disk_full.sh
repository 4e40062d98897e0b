#!/usr/bin/env bash
# A run that cannot write a checkpoint ends at once with status 1; earlier checkpoints and the weights stay, and it resumes with the same bytes.
# The optimizer's state is larger than files may be here (ulimit -f, as a full disk), the weights are not.
set -euo pipefail
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache"
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat > run.yaml <<YAML
base_model: $AF_GOLDEN/models/qwen2
datasets: [{path: $AF_GOLDEN/models/data/train_tokens.jsonl}]
learning_rate: 1e-3
micro_batch_size: 1
max_steps: 60
save_steps: 2
save_total_limit: 1
device: cpu
threads: 1
YAML
fail() { echo "$1"; cat said 2> /dev/null; exit 1; }
limited() { (trap '' XFSZ; ulimit -f 600; "$AFINAR" train run.yaml "$@" > said 2>&1); }

"$AFINAR" train run.yaml -q output_dir=whole max_steps=8 lr_scheduler=constant
"$AFINAR" train run.yaml -q output_dir=out max_steps=4 lr_scheduler=constant
rc=0; limited output_dir=out max_steps=60 lr_scheduler=constant save_steps=6 resume_from_checkpoint=auto || rc=$?
[ $rc = 1 ] || fail "a checkpoint that is not written: status $rc"
[ "$(grep -c 'the checkpoint was not written: cannot write .*optimizer.safetensors.: File too large' said)" = 1 ] || fail "no reason"
grep -q "the weights of step [67] are in 'out', without the optimizer's state" said || fail "no weights, or not at once"
grep -q 'resume with: ' said || fail "no way to go on"
[ "$(ls -d out/checkpoint-*)" = out/checkpoint-4 ] || fail "checkpoints: $(ls -d out/checkpoint-*)"
"$AFINAR" generate out --prompt-ids 1,2,3 -n 1 > /dev/null || fail "the weights cannot be used"
"$AFINAR" train run.yaml -q output_dir=out max_steps=8 lr_scheduler=constant resume_from_checkpoint=auto
cmp whole/model.safetensors out/model.safetensors || fail "a resumed run: other bytes"
cmp whole/checkpoint-8/optimizer.safetensors out/checkpoint-8/optimizer.safetensors || fail "a resumed run: another state"

# at the end, and without checkpoints
rc=0; limited output_dir=end max_steps=8 lr_scheduler=constant save_steps=0 || rc=$?
[ $rc = 1 ] && cmp whole/model.safetensors end/model.safetensors || fail "the end of a run: status $rc"
[ ! -e end/run_state.json ] || fail "a run without its last checkpoint counts as finished"
limited output_dir=none max_steps=8 lr_scheduler=constant save_strategy=no || fail "save_strategy=no"
cmp whole/model.safetensors none/model.safetensors || fail "save_strategy=no: other bytes"
[ -e none/run_state.json ] && ! ls -d none/checkpoint-* 2> /dev/null || fail "save_strategy=no: $(ls none)"

# on a disk of one megabyte, where this user may mount one
mkdir disk
unshare -rm mount -t tmpfs -o size=1m none disk 2> /dev/null || { echo "no file system can be mounted here: room on the disk is not tested"; exit 0; }
small() { unshare -rm sh -c 'mount -t tmpfs -o size=$1 none disk && shift && exec "$@"' sh "$@" > said 2>&1; }
small 1m "$AFINAR" train run.yaml output_dir=disk/out && fail "no room for a checkpoint"
grep -q "a checkpoint with the result needs 1.5 MB, and 'disk/out' has 1.0 MB free" said || fail "no room: no reason"
small 1m "$AFINAR" train run.yaml output_dir=disk/out save_strategy=no max_steps=2 || fail "room for the result"
small 2m "$AFINAR" train run.yaml output_dir=disk/out max_steps=6 && fail "room for one checkpoint"
grep -q "the result with 2 checkpoints at a time needs 2.7 MB, and 'disk/out' has 2.1 MB free" said || fail "no warning"
small 3m "$AFINAR" train run.yaml output_dir=disk/out max_steps=6 || fail "room for two checkpoints"
small 3m "$AFINAR" train run.yaml output_dir=disk/out num_epochs=2 max_steps=null save_steps=0 saves_per_epoch=1 save_total_limit=0 || fail "two epochs"
grep -q 'checkpoints at a time' said && fail "two epochs have two checkpoints, and there is room"
# conversions know what they need before they begin
"$AFINAR" train run.yaml -q output_dir=lora adapter=lora lora_r=2 max_steps=1 save_steps=0
full() { # NEED COMMAND: refused, and nothing is left
    local rc=0 need=$1
    shift
    unshare -rm sh -c 'mount -t tmpfs -o size=64k none disk && { "$@"; rc=$?; ls -A disk; exit $rc; }' sh "$AFINAR" "$@" > said 2>&1 || rc=$?
    [ $rc = 1 ] && tail -n 1 said | grep -q "^afinar $1: $need, and 'disk' has 0.[01] MB free$" || fail "no room, status $rc"
}
full "'m.gguf' needs 0.1 MB" quantize whole --type q8_0 -o disk/m.gguf
full "'m.gguf' needs 0.4 MB" export whole --type f32 -o disk/m.gguf
full "'model.safetensors' needs 0.2 MB" quantize whole --type nf4 -o disk/m
full "'model.safetensors' needs 0.4 MB" merge "$AF_GOLDEN/models/qwen2" --adapter lora -o disk/m
# a cache on a full disk does not stop a run
XDG_CACHE_HOME="$tmp/disk/cache" small 4k "$AFINAR" train run.yaml -q output_dir=uncached max_steps=8 lr_scheduler=constant || fail "a full cache"
grep -q '^warning: no cache is used, .*: cannot .*/disk/cache.*: No space left on device$' said || fail "a full cache: no warning"
cmp whole/model.safetensors uncached/model.safetensors || fail "a full cache: other bytes"
XDG_CACHE_HOME="$tmp/disk/cache" small 8k "$AFINAR" train run.yaml -q output_dir=uncached2 max_steps=8 lr_scheduler=constant || fail "a cache that fills up"
grep -q '^warning: no cache is used, .*: cannot write .*\.tokens.: No space left on device$' said || fail "a cache that fills up: no warning"
cmp whole/model.safetensors uncached2/model.safetensors || fail "a cache that fills up: other bytes"
echo "full disks: what was saved stays, and runs resume with the same bytes"
