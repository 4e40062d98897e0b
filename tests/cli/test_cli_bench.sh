#!/usr/bin/env bash
# afinar bench and afinar doctor: every method and type gives a finite loss, no allocation in a step,
# and consistent figures; wrong arguments give an error message.
set -euo pipefail
afinar=${AFINAR:-build/afinar}
fail() { echo "test_cli_bench: $*" >&2; exit 1; }

for method in lora qlora oft full; do
    for dtype in f32 bf16; do
        for memory in auto min; do
            line=$("$afinar" bench --shape tiny --batch 2 --seq 24 --method $method --dtype $dtype \
                --memory $memory --device cpu --threads 2 --seconds 0.025 --json)
            case $line in *'"allocations": 0'*) ;; *) fail "a step allocates: $line" ;; esac
            case $line in *'"loss": 7.'* | *'"loss": 6.'* | *'"loss": 5.'*) ;;
                *) fail "losses of a vocabulary of 1024 begin near ln 1024 = 6.93: $line" ;; esac
            for key in ms_per_step tok_s peak_gb startup_s first_step_s flop_s floor_ms attention_ms kernels; do
                case $line in *"\"$key\": "*) ;; *) fail "no $key in $line" ;; esac
            done
        done
    done
done

# by op: every phase of a step has its rows, and they add up to no more than the step
tiny=(bench --shape tiny --batch 2 --seq 24 --device cpu --threads 2 --seconds 0.025)
line=$("$afinar" "${tiny[@]}" --by-op --json)
for row in '"ops": [{"op": ' '"op": "linear", "phase": "forward", "nodes": ' \
    '"op": "attention_bwd", "phase": "backward", ' '"op": "adam", "phase": "update", "nodes": 1, "ms": '; do
    case $line in *"$row"*) ;; *) fail "no $row in $line" ;; esac
done
kernels=${line#*\"kernels\": } kernels=${kernels%%,*}
nodes=$(grep -o '"nodes": [0-9]*' <<<"$line" | awk '{n += $2} END {print n}')
[ "$nodes" = "$kernels" ] || fail "$nodes nodes are timed of $kernels"
case $("$afinar" "${tiny[@]}" --json) in *'"ops"'*) fail "times by op without --by-op" ;; esac
case $("$afinar" "${tiny[@]}" --by-op) in *"head_loss "*) ;; *) fail "no table of ops" ;; esac

if "$afinar" bench --shape 3b --device cpu 2>/dev/null; then fail "an unknown shape was accepted"; fi
message=$("$afinar" bench --shape 3b --device cpu 2>&1 || true)
case $message in *"unknown shape '3b'"*) ;; *) fail "prints '$message'" ;; esac

# a model's shape in place of a named one
model=$AF_GOLDEN/models/qwen2
line=$("$afinar" bench "$model" --batch 2 --seq 24 --device cpu --threads 2 --seconds 0.025 --dtype f32 --json)
case $line in *"\"shape\": \"$model\""*'"loss": 6.'*) ;; *) fail "another shape, or vocabulary than 512: $line" ;; esac
message=$("$afinar" bench "$model" --shape tiny 2>&1 || true)
case $message in *"give either --shape or a model, not both"*) ;; *) fail "prints '$message'" ;; esac

# a mixture with latent attention has no k_proj and v_proj to adapt
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/config.json" <<'JSON'
{"model_type": "deepseek_v2", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32,
 "num_hidden_layers": 2, "first_k_dense_replace": 1, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
 "num_attention_heads": 2, "num_key_value_heads": 2, "kv_lora_rank": 32, "q_lora_rank": null, "qk_nope_head_dim": 32,
 "qk_rope_head_dim": 16, "v_head_dim": 32, "norm_topk_prob": false, "topk_method": "greedy", "rms_norm_eps": 1e-6}
JSON
line=$("$afinar" bench "$tmp" --batch 2 --seq 24 --device cpu --threads 2 --seconds 0.025 --dtype f32 --json)
case $line in *'"loss": 6.'*) ;; *) fail "a mixture with latent attention: $line" ;; esac

message=$("$afinar" bench --shape tiny --device cpu --attention flash 2>&1 || true)
case $message in *"unknown attention 'flash'; use auto, own or cudnn"*) ;; *) fail "prints '$message'" ;; esac

message=$("$afinar" bench --shape tiny --device cpu --seq 2000000 2>&1 || true)
case $message in *"seq 2000000 (2 to 1048576)"*) ;; *) fail "prints '$message'" ;; esac
message=$("$afinar" bench --shape tiny --device cpu --batch 4096 --seq 1048576 2>&1 || true)
case $message in *"4096 sequences of 1048576 are too many tokens"*) ;; *) fail "prints '$message'" ;; esac

doctor=$("$afinar" doctor --device cpu --threads 1)
for word in processor threads memory "GPU driver" NVRTC cuBLASLt cuDNN GEMM; do
    case $doctor in *"$word"*) ;; *) fail "doctor does not mention $word" ;; esac
done
echo "test_cli_bench: passed"
