#!/usr/bin/env python3
"""Tiny models as GGUF (f32), named and permuted as llama.cpp's converter does it, and the logits of
transformers for the same weights. llama.cpp itself loads these files and agrees to the rounding of
its f16 cache (about 1e-3), which was checked with llama-cpp-python 0.3.36.

    python make_tiny_gguf.py             # writes gguf/NAME.gguf and gguf/NAME.safetensors

Needs torch, transformers, safetensors, gguf."""
import json
import pathlib
import tempfile

import gguf
import numpy as np
import torch
import transformers as tf
from safetensors.numpy import load_file, save_file

import make_tiny_models as tiny

HERE = pathlib.Path(__file__).parent
IDS = [3, 9, 4, 11, 30, 7, 5, 22]
MODELS = {
    "llama3": ("llama", tf.LlamaConfig, dict(head_dim=8, rope_parameters=tiny.rope(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=32))),
    "gemma": ("gemma", tf.GemmaConfig, dict(head_dim=8, num_key_value_heads=1)),
    "phi3": ("phi3", tf.Phi3Config, dict(hidden_size=32, rope_parameters=tiny.rope("default"))),
    "olmo2": ("olmo2", tf.Olmo2Config, dict()),
    "granite": ("granite", tf.GraniteConfig, dict(
        embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.7,
        logits_scaling=2.5)),
    "smollm3": ("smollm3", tf.SmolLM3Config, dict(num_hidden_layers=4)),
    "qwen3moe": ("qwen3moe", tf.Qwen3MoeConfig, dict(
        head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
        norm_topk_prob=True)),
}
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up",
    "input_layernorm": "attn_norm", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate": "ffn_gate_inp",
    "post_feedforward_layernorm": "post_ffw_norm"}
OUTER = {"model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight",
         "model.norm.weight": "output_norm.weight"}
EXPERTS = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}


def permute(w, heads):
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def rope_factors(rp, head):
    inv = 1.0 / rp["rope_theta"] ** (np.arange(0, head, 2) / head)
    low, high, f = rp["low_freq_factor"], rp["high_freq_factor"], rp["factor"]
    old, out = rp["original_max_position_embeddings"], []
    for x in inv:
        wave = 2 * np.pi / x
        s = (old / wave - low) / (high - low)
        out.append(1.0 if wave < old / high else f if wave > old / low else 1 / ((1 - s) / f + s))
    return np.array(out, dtype=np.float32)


def write_keys(w, arch, c, heads, kv, head):
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_key_length(head)
    w.add_value_length(head)
    w.add_rope_dimension_count(head)
    w.add_rope_freq_base(c["rope_parameters"]["rope_theta"])
    w.add_vocab_size(c["vocab_size"])
    w.add_tokenizer_model("none")
    if arch == "granite":
        w.add_embedding_scale(c["embedding_multiplier"])
        w.add_residual_scale(c["residual_multiplier"])
        w.add_logit_scale(c["logits_scaling"])
        w.add_attention_scale(c["attention_multiplier"])
    if arch == "qwen3moe":
        w.add_expert_count(c.get("num_local_experts") or c["num_experts"])
        w.add_expert_used_count(c["num_experts_per_tok"])
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    if arch == "phi3":
        w.add_rope_scaling_orig_ctx_len(c["max_position_embeddings"])


def convert(arch, folder, out):
    c = json.loads((folder / "config.json").read_text())
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    head = c.get("head_dim") or c["hidden_size"] // heads
    w = gguf.GGUFWriter(out, arch)
    write_keys(w, arch, c, heads, kv, head)
    if c["rope_parameters"]["rope_type"] == "llama3":
        w.add_tensor("rope_freqs.weight", rope_factors(c["rope_parameters"], head))
    permuted = arch in ("llama", "granite", "smollm3")
    after = "post_attention_norm" if arch == "olmo2" else "ffn_norm"
    experts = {}
    for name, v in load_file(folder / "model.safetensors").items():
        if name in OUTER:
            to = OUTER[name]
        else:
            part = name.split(".")
            layer, module = part[2], ".".join(part[3:-1])
            if "experts" in module:
                experts.setdefault((layer, part[-2]), {})[int(part[5])] = v
                continue
            to = f"blk.{layer}.{dict(NAMES, post_attention_layernorm=after)[module]}.{part[-1]}"
            if permuted and module.endswith(("q_proj", "k_proj")):
                v = permute(v, heads if module.endswith("q_proj") else kv)
        if arch == "gemma" and "norm" in to:
            v = v + 1
        w.add_tensor(to, np.ascontiguousarray(v.astype(np.float32)))
    for (layer, kind), parts in experts.items():
        w.add_tensor(f"blk.{layer}.{EXPERTS[kind]}.weight",
                     np.stack([parts[i] for i in range(len(parts))]))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    (HERE / "gguf").mkdir(exist_ok=True)
    for k, (name, (arch, kind, more)) in enumerate(MODELS.items()):
        config = kind(**{**tiny.COMMON, **more}, attn_implementation="eager", dtype="float32")
        model = tf.AutoModelForCausalLM.from_config(config).float()
        tiny.randomise(model, 500 + k)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([IDS])).logits[0].numpy()
        with tempfile.TemporaryDirectory() as tmp:
            model.save_pretrained(tmp)
            convert(arch, pathlib.Path(tmp), HERE / "gguf" / f"{name}.gguf")
        save_file({"ids": np.array(IDS, dtype=np.int32), "logits": np.ascontiguousarray(logits)},
                  HERE / "gguf" / f"{name}.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
