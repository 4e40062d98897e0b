#!/usr/bin/env bash
# Kills a run with SIGKILL at random moments, resumes it, and compares the final adapter with that of an uninterrupted run,
# byte for byte. Also: a full disk for a while, a damaged and a truncated newest checkpoint. AF_KILLS sets the number of kills,
# AF_DEVICE the device, AF_KILL_SEED the moments.
set -euo pipefail
kills=${AF_KILLS:-10}
seed=${AF_KILL_SEED:-$RANDOM}
echo "AF_KILL_SEED=$seed"
RANDOM=$seed
tmp=$(mktemp -d)
export XDG_CACHE_HOME="$tmp/cache"
trap 'umount "$tmp/small" 2>/dev/null || true; rm -rf "$tmp"' EXIT
cat > "$tmp/run.yaml" <<YAML
base_model: $AF_GOLDEN/models/qwen2
datasets: [{path: $AF_GOLDEN/models/data/train_tokens.jsonl}]
adapter: lora
lora_r: 4
lora_dropout: 0.1
learning_rate: 1e-3
max_steps: 60
save_steps: 3
save_total_limit: 3
val_set_size: 4
eval_steps: 10
device: ${AF_DEVICE:-cpu}
threads: 1
YAML
train() { "$AFINAR" train "$tmp/run.yaml" -q "$@"; }
steps_once() { # every step is in metrics.jsonl exactly once
    [ "$(grep -c '"loss"' "$1/metrics.jsonl")" = 60 ] || { echo "steps are missing or doubled in $1/metrics.jsonl"; exit 1; }
}
same() {
    cmp "$tmp/whole/adapter_model.safetensors" "$1/adapter_model.safetensors" || { echo "$2: other bytes"; exit 1; }
    steps_once "$1"
}
start=$(date +%s%N)
train output_dir="$tmp/whole"
ms=$((($(date +%s%N) - start) / 1000000))
steps_once "$tmp/whole"

done_kills=0
rounds=0
while [ $done_kills -lt "$kills" ]; do
    rm -rf "$tmp/cut"
    while :; do
        "$AFINAR" train "$tmp/run.yaml" -q output_dir="$tmp/cut" resume_from_checkpoint=auto & pid=$!
        wait_ms=$((RANDOM * RANDOM % (ms + ms / 4) + 1))
        sleep "$(printf '%d.%03d' $((wait_ms / 1000)) $((wait_ms % 1000)))"
        if kill -9 $pid 2>/dev/null; then
            wait $pid 2>/dev/null || true
            done_kills=$((done_kills + 1))
            [ $done_kills -ge "$kills" ] && break
        else
            wait $pid
            break
        fi
    done
    train output_dir="$tmp/cut" resume_from_checkpoint=auto
    same "$tmp/cut" "after $done_kills kills"
    rounds=$((rounds + 1))
done
echo "$done_kills kills in $rounds runs: same bytes"

# A checkpoint cut short, one with a flipped bit and one that lacks a file are skipped, and the run still ends the same.
# One that cannot be read may be whole: the run stops there.
for damage in truncate flip unread missing; do
    rm -rf "$tmp/hurt"
    "$AFINAR" train "$tmp/run.yaml" -q output_dir="$tmp/hurt" & pid=$!
    until [ "$(ls -d "$tmp"/hurt/checkpoint-*[0-9] 2>/dev/null | wc -l)" -ge 2 ] || ! kill -0 $pid 2>/dev/null; do :; done
    kill -9 $pid 2>/dev/null || true
    wait $pid 2>/dev/null || true
    rm -f "$tmp/hurt/run_state.json"
    newest=$(ls -d "$tmp"/hurt/checkpoint-*[0-9] | sort -t- -k2 -n | tail -1)
    file=$newest/optimizer.safetensors
    if [ $damage = truncate ]; then
        truncate -s -5 "$file"
    elif [ $damage = missing ]; then
        rm "$file"
    elif [ $damage = unread ]; then
        mv "$file" "$tmp/file"
        mkdir "$file"
        ! train output_dir="$tmp/hurt" resume_from_checkpoint=auto 2> "$tmp/log" || { echo "unread: went on"; exit 1; }
        grep -q "$(basename "$newest"): .*optimizer.safetensors" "$tmp/log" || { cat "$tmp/log"; exit 1; }
        rmdir "$file"
        mv "$tmp/file" "$file"
        train output_dir="$tmp/hurt" resume_from_checkpoint=auto
        same "$tmp/hurt" "$damage"
        continue
    else
        printf '\377' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 9)) conv=notrunc status=none
    fi
    "$AFINAR" train "$tmp/run.yaml" output_dir="$tmp/hurt" resume_from_checkpoint=auto 2> "$tmp/log"
    grep -q "skipping $(basename "$newest")" "$tmp/log" || { echo "$damage: the broken checkpoint was not named"; exit 1; }
    same "$tmp/hurt" "$damage"
done

# A disk that is full for a while: the run fails with one message, loses nothing, and resumes when there is space.
mkdir "$tmp/small"
if mount -t tmpfs -o size=260k tmpfs "$tmp/small" 2>/dev/null; then
    if train output_dir="$tmp/small/out" 2> "$tmp/log"; then
        echo "the small disk was not small enough"; exit 1
    fi
    grep -q "No space left\|MB free$" "$tmp/log" || { cat "$tmp/log"; exit 1; }
    [ "$(grep -vc '^warning: the result with 4 checkpoints' "$tmp/log")" = 1 ] || { cat "$tmp/log"; exit 1; }
    mount -o remount,size=8m "$tmp/small"
    train output_dir="$tmp/small/out" resume_from_checkpoint=auto
    same "$tmp/small/out" "full disk"
    echo "full disk: same bytes"
else
    echo "no small file system here: the full-disk part was skipped"
fi
