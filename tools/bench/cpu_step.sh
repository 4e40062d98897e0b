#!/usr/bin/env bash
# cpu_step.sh PEFT_STEP.py OUT.jsonl [AFINAR] [PYTHON]: a training step of the 135M shape, PyTorch + PEFT
# and afinar one after the other, one thread, batch 1 x 256. Compare ms_cpu with cpu_ms: processor
# time, so that a busy machine counts less. SHAPE, BATCH, SEQ, THREADS, CASES can be set.
set -euo pipefail
peer=$1 out=$2 afinar=${3:-build/afinar} python=${4:-python3}
shape=${SHAPE:-135m} batch=${BATCH:-1} seq=${SEQ:-256} threads=${THREADS:-1}
for case in ${CASES:-lora:f32 lora:bf16 full:f32 full:bf16}; do
    method=${case%:*} dtype=${case#*:}
    common=(--shape "$shape" --batch "$batch" --seq "$seq" --dtype "$dtype" --threads "$threads")
    "$afinar" bench --device cpu "${common[@]}" --method "$method" --seconds 4 --json >>"$out"
    OMP_NUM_THREADS=$threads "$python" "$peer" --device cpu --mode "$method" --warm 2 --steps 3 \
        --budget 4 "${common[@]}" >>"$out"
    "$afinar" bench --device cpu "${common[@]}" --method "$method" --seconds 4 --json >>"$out"
done
