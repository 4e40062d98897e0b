#!/usr/bin/env bash
# Times conversions of a random model of about 0.5B shape against other programs on this machine, same threads.
# usage: bench_convert.sh AFINAR WORKDIR [PYTHON]   (PYTHON with llama_cpp, bitsandbytes, torch for the comparison)
# MERGEKIT=path of mergekit-yaml, to time the merge with it as well
set -euo pipefail
afinar=$(realpath "$1"); work=$2; python=${3:-}
threads=${THREADS:-2}
mkdir -p "$work"; cd "$work"
say() { printf '%-34s %8.2f s\n' "$1" "$2"; }
timed() { local what=$1; shift; local a b; a=$(date +%s.%N); "$@" >/dev/null 2>&1; b=$(date +%s.%N); say "$what" "$(echo "$b - $a" | bc)"; }

[ -f 0.5b/model.safetensors ] || python3 - <<'P'
import json, os, struct, random
H, F, L, V = 896, 4864, 24, 32000
os.makedirs("0.5b", exist_ok=True)
cfg = dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=V, hidden_size=H, intermediate_size=F, num_hidden_layers=L,
           num_attention_heads=14, num_key_value_heads=2, head_dim=64, max_position_embeddings=4096, rms_norm_eps=1e-5, hidden_act="silu",
           tie_word_embeddings=True, torch_dtype="bfloat16", bos_token_id=1, eos_token_id=2)
json.dump(cfg, open("0.5b/config.json", "w"))
t = [("model.embed_tokens.weight", [V, H]), ("model.norm.weight", [H])]
for i in range(L):
    p = f"model.layers.{i}."
    t += [(p + "input_layernorm.weight", [H]), (p + "post_attention_layernorm.weight", [H]), (p + "self_attn.q_proj.weight", [896, H]),
          (p + "self_attn.k_proj.weight", [128, H]), (p + "self_attn.v_proj.weight", [128, H]), (p + "self_attn.o_proj.weight", [H, 896]),
          (p + "mlp.gate_proj.weight", [F, H]), (p + "mlp.up_proj.weight", [F, H]), (p + "mlp.down_proj.weight", [H, F])]
off, head = 0, {"__metadata__": {"format": "pt"}}
for n, s in t:
    size = 2
    for x in s: size *= x
    head[n] = {"dtype": "BF16", "shape": s, "data_offsets": [off, off + size]}
    off += size
j = json.dumps(head).encode(); j += b" " * (-len(j) % 8)
random.seed(1)
# values of about normal size: random sign and mantissa, exponents of 0.01
block = b"".join(struct.pack("<H", random.getrandbits(1) << 15 | random.randint(0x3c00, 0x3d00)) for _ in range(1 << 16))
with open("0.5b/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(j)) + j)
    left = off
    while left > 0:
        f.write(block[:min(left, len(block))]); left -= len(block)
P
for m in a b c; do [ -d $m ] || cp -r 0.5b $m; done
printf 'merge_method: ties\nbase_model: 0.5b\ndtype: bfloat16\nmodels:\n' > ties.yml
for m in a b c; do printf '  - {model: %s, parameters: {weight: 0.4, density: 0.5}}\n' $m >> ties.yml; done

timed "read and write the bytes (cp)" cp 0.5b/model.safetensors copy.safetensors
timed "afinar quantize nf4" "$afinar" quantize 0.5b -o nf4 --force --type nf4 --threads "$threads" -q
timed "afinar quantize q4_k_m" "$afinar" quantize 0.5b -o q4km.gguf --force --type q4_k_m --threads "$threads" -q
timed "afinar merge ties, three models" "$afinar" merge ties.yml -o ties --force --threads "$threads" -q
if [ -n "$python" ]; then
    "$afinar" quantize 0.5b -o bf16.gguf --type bf16 -q >/dev/null 2>&1
    timed "llama.cpp Q4_K_M" "$python" -c "
import ctypes, llama_cpp
p = llama_cpp.llama_model_quantize_default_params(); p.ftype = 15; p.nthread = $threads
llama_cpp.llama_model_quantize(b'bf16.gguf', b'theirs.gguf', ctypes.byref(p))"
    timed "bitsandbytes nf4 (CPU)" "$python" -c "
import torch, bitsandbytes.functional as F; from safetensors import safe_open
torch.set_num_threads($threads)
f = safe_open('0.5b/model.safetensors', 'pt')
for k in f.keys():
    t = f.get_tensor(k)
    if t.ndim == 2 and 'layers' in k: F.quantize_4bit(t, quant_type='nf4', compress_statistics=True)"
fi
if [ -n "${MERGEKIT:-}" ]; then
    timed "mergekit ties, three models" env OMP_NUM_THREADS="$threads" "$MERGEKIT" ties.yml theirs --quiet
fi
