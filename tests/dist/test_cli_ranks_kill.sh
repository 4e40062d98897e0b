#!/usr/bin/env bash
# kill -9 of a random rank at a random moment: the others end with status 1 soon after ddp_timeout and name it; resumed, perhaps with another
# number of ranks and another zero_stage, the run ends with the bytes of an undisturbed one. AF_KILLS sets the number of kills, AF_KILL_SEED the moments.
# AF_KILL_STAGE: that zero_stage always.
# A rank that is killed before it has joined is noticed by the others after ddp_timeout only.
set -euo pipefail
kills=${AF_KILLS:-2}
seed=${AF_KILL_SEED:-$RANDOM}
echo "AF_KILL_SEED=$seed"
RANDOM=$seed
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache" MASTER_ADDR=127.0.0.1
trap 'rm -rf "$tmp"' EXIT
cat > "$tmp/run.yaml" <<YAML
base_model: $AF_GOLDEN/models/qwen2
datasets: [{path: $AF_GOLDEN/models/data/train_tokens.jsonl}]
adapter: lora
lora_r: 4
lora_dropout: 0.1
learning_rate: 1e-3
micro_batch_size: 1
max_steps: 24
save_steps: 3
save_total_limit: 3
ddp_timeout: 15
device: ${AF_DEVICE:-cpu}
threads: 1
YAML
fail() { echo "$1"; exit 1; }
pids=()
start() { # N: N ranks of 4 micro-batches; rank r prints into $tmp/said.r
    local n=$1 r stage=$((RANDOM % 4))
    stage=${AF_KILL_STAGE:-$stage}
    pids=()
    MASTER_PORT=$((26000 + RANDOM % 6000)) # below those of clients (32768), not those of test_cli_ranks
    while (exec 3<> "/dev/tcp/127.0.0.1/$MASTER_PORT") 2> /dev/null; do MASTER_PORT=$((MASTER_PORT + 1)); done
    for ((r = 0; r < n; r++)); do
        MASTER_PORT=$MASTER_PORT RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r "$AFINAR" train "$tmp/run.yaml" -q output_dir="$tmp/cut" \
            gradient_accumulation_steps=$((4 / n)) zero_stage=$stage resume_from_checkpoint=auto > "$tmp/said.$r" 2>&1 &
        pids+=($!)
    done
}
all_good() { # every rank ends with 0
    local r
    for r in "${!pids[@]}"; do
        wait "${pids[r]}" || fail "rank $r failed: $(cat "$tmp/said.$r")"
    done
}
begun=$(date +%s%N)
"$AFINAR" train "$tmp/run.yaml" -q output_dir="$tmp/whole" gradient_accumulation_steps=4
ms=$((($(date +%s%N) - begun) / 1000000))

worst=0
for ((k = 1; k <= kills; k++)); do
    rm -rf "$tmp/cut"
    n=$((2 << (RANDOM % 2)))
    start $n
    victim=$((RANDOM % n))
    wait_ms=$((RANDOM * RANDOM % ms))
    sleep "$(printf '%d.%03d' $((wait_ms / 1000)) $((wait_ms % 1000)))"
    if kill -9 "${pids[victim]}" 2> /dev/null && wait "${pids[victim]}" 2> /dev/null; then
        all_good # it had ended before
    else
        at=$(date +%s%N)
        for r in "${!pids[@]}"; do
            [ "$r" != $victim ] || continue
            status=0
            wait "${pids[r]}" || status=$?
            # killed after all had met at the end: the bytes below show that everything was written
            [ $status != 0 ] || continue
            [ $status = 1 ] || fail "seed $seed, kill $k: rank $r ends with $status: $(cat "$tmp/said.$r")"
            grep -q "^afinar: rank $victim " "$tmp/said.$r" || fail "seed $seed, kill $k of rank $victim: rank $r says '$(cat "$tmp/said.$r")'"
        done
        took=$((($(date +%s%N) - at) / 1000000))
        [ $took -lt $((20000 + 20 * ms)) ] || fail "seed $seed, kill $k: the others ended after $took ms"
        [ $took -le $worst ] || worst=$took
        [ -d "$tmp/cut" ] || continue
        start $((1 << (RANDOM % 3)))
        all_good
    fi
    cmp "$tmp/whole/adapter_model.safetensors" "$tmp/cut/adapter_model.safetensors" || fail "seed $seed, kill $k: other bytes"
done
echo "$kills kills: the others ended within $worst ms and named the rank; the resumed runs have the same bytes"
