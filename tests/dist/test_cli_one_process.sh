#!/usr/bin/env bash
# A run of one process neither links nor opens MPI or NCCL, and makes no socket: with no variable of a launcher, and as rank 0 of 1.
set -euo pipefail
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache"
trap 'rm -rf "$tmp"' EXIT
! ldd "$AFINAR" | grep -iE 'libmpi|libnccl|libpmi' || { echo "the program is linked with a library of ranks"; exit 1; }
cat > "$tmp/run.yaml" <<YAML
base_model: $AF_GOLDEN/models/qwen2
datasets: [{path: $AF_GOLDEN/models/data/train_tokens.jsonl}]
adapter: lora
lora_r: 4
learning_rate: 1e-3
max_steps: 1
device: cpu
threads: 1
YAML
run() { # what the loader opened is in $tmp/$1.log
    local name=$1
    shift
    LD_DEBUG=files LD_DEBUG_OUTPUT="$tmp/$name.log" env "$@" "$AFINAR" train "$tmp/run.yaml" -q output_dir="$tmp/$name"
    cat "$tmp/$name.log".* > "$tmp/$name.all"
    grep -q 'libc\.so' "$tmp/$name.all" || { echo "LD_DEBUG shows nothing"; exit 1; }
    ! grep -oiE 'file=lib(mpi|mpich|nccl|pmix|ucp)[^ ]*' "$tmp/$name.all" || { echo "$name: a library of ranks was opened"; exit 1; }
}
run alone A=b
run one_of_one RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=1
echo "one process opens no library of ranks"
