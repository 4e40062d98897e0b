#!/usr/bin/env bash
# Ranks under the mpirun of Open MPI and of MPICH, with one binary, give the bytes of one process. Each is skipped where it is absent.
set -euo pipefail
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
trap 'rm -rf "$tmp"' EXIT
cat > "$tmp/run.yaml" <<YAML
base_model: $AF_GOLDEN/models/qwen2
datasets: [{path: $AF_GOLDEN/models/data/train_tokens.jsonl}]
adapter: lora
lora_r: 4
learning_rate: 1e-3
micro_batch_size: 1
max_steps: 2
device: cpu
threads: 1
YAML
fail() { echo "$1"; exit 1; }
"$AFINAR" train "$tmp/run.yaml" -q output_dir="$tmp/one" gradient_accumulation_steps=4
skipped=0
compare() { # NAME RANKS COMMAND...
    local name=$1 n=$2
    shift 2
    command -v "$1" > /dev/null || { echo "SKIP: $1 is not installed"; skipped=1; return; }
    for stage in 0 3; do
        "$@" -n "$n" "$AFINAR" train "$tmp/run.yaml" -q output_dir="$tmp/$name-$stage" gradient_accumulation_steps=$((4 / n)) zero_stage=$stage > "$tmp/said" 2>&1 ||
            fail "$name, $n ranks, zero_stage $stage: $(cat "$tmp/said")"
        cmp "$tmp/one/adapter_model.safetensors" "$tmp/$name-$stage/adapter_model.safetensors" || fail "$name, $n ranks, zero_stage $stage: other bytes"
    done
    # a value that differs
    if "$@" -n 2 sh -c "exec \"$AFINAR\" train \"$tmp/run.yaml\" -q output_dir=\"$tmp/differs\" seed=\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK}" > "$tmp/said" 2>&1; then
        fail "$name: ranks with two seeds train"
    fi
    grep -q 'seed.* differs: rank 0 has 0, rank 1 has 1' "$tmp/said" || fail "$name: two seeds: $(cat "$tmp/said")"
}
compare openmpi 2 mpirun.openmpi --oversubscribe
compare mpich 4 mpirun.mpich
[ $skipped = 0 ] || exit 77
echo "Open MPI and MPICH: the bytes of one process"
