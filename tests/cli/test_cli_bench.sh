#!/usr/bin/env bash
# afinar bench and afinar doctor: every method and type gives a finite loss, no allocation in a step,
# and figures that fit together; wrong words are errors with a sentence.
set -euo pipefail
afinar=${AFINAR:-build/afinar}
fail() { echo "test_cli_bench: $*" >&2; exit 1; }

for method in lora qlora full; do
    for dtype in f32 bf16; do
        for memory in auto min; do
            line=$("$afinar" bench --shape tiny --batch 2 --seq 24 --method $method --dtype $dtype \
                --memory $memory --device cpu --threads 2 --seconds 0.05 --json)
            case $line in *'"allocations": 0'*) ;; *) fail "a step allocates: $line" ;; esac
            case $line in *'"loss": 7.'* | *'"loss": 6.'* | *'"loss": 5.'*) ;;
                *) fail "losses of a vocabulary of 1024 begin near ln 1024 = 6.93: $line" ;; esac
            for key in ms_per_step tok_s peak_gb startup_s first_step_s flop_s floor_ms kernels; do
                case $line in *"\"$key\": "*) ;; *) fail "no $key in $line" ;; esac
            done
        done
    done
done

if "$afinar" bench --shape 3b --device cpu 2>/dev/null; then fail "an unknown shape was taken"; fi
message=$("$afinar" bench --shape 3b --device cpu 2>&1 || true)
case $message in *"unknown shape '3b'"*) ;; *) fail "says '$message'" ;; esac

message=$("$afinar" bench --shape tiny --device cpu --attention flash 2>&1 || true)
case $message in *"unknown attention 'flash': auto, own or cudnn"*) ;; *) fail "says '$message'" ;; esac

doctor=$("$afinar" doctor --device cpu --threads 1)
for word in processor threads memory "GPU driver" NVRTC cuBLASLt cuDNN "matrix product"; do
    case $doctor in *"$word"*) ;; *) fail "doctor does not speak of $word" ;; esac
done
echo "test_cli_bench: passed"
