"""Tiny random models of many families, as HF folders."""
import os
import shutil

import torch
import transformers as tf
from transformers import AutoModelForCausalLM

TOKENIZER_FILES = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]


def base(r, head=None):
    heads = r.choice([2, 3, 4, 6])
    kv = r.choice([k for k in (1, 2, 3, heads) if heads % k == 0])
    size = r.choice([8, 12, 16, 20])
    o = dict(vocab_size=512, hidden_size=heads * size, intermediate_size=r.choice([40, 64, 96, 104]),
             num_hidden_layers=r.randint(1, 3), num_attention_heads=heads, num_key_value_heads=kv,
             max_position_embeddings=256, rms_norm_eps=r.choice([1e-6, 1e-5]), bos_token_id=None,
             eos_token_id=511, pad_token_id=509, tie_word_embeddings=r.random() < 0.5,
             rope_parameters={"rope_type": "default", "rope_theta": r.choice([1e4, 5e5])})
    if head:
        o["head_dim"] = r.choice([8, 16, 24])
    return o


def llama3(r):
    o = base(r)
    o["rope_parameters"] = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0,
                            "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
    return tf.LlamaConfig(**o)


def gemma2(r):
    o = base(r, True)
    o["tie_word_embeddings"] = True
    return tf.Gemma2Config(**o, query_pre_attn_scalar=o["head_dim"], sliding_window=7,
                           attn_logit_softcapping=3.0, final_logit_softcapping=5.0,
                           hidden_activation="gelu_pytorch_tanh")


def gemma3(r):
    o = base(r, True)
    o["tie_word_embeddings"] = True
    o["num_hidden_layers"] = 3
    o["rope_parameters"] = {"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    return tf.Gemma3TextConfig(**o, query_pre_attn_scalar=o["head_dim"], sliding_window=9,
                               layer_types=["sliding_attention", "sliding_attention", "full_attention"])


def phi3(r):
    o = base(r)
    o["rope_parameters"]["partial_rotary_factor"] = r.choice([1.0, 0.5])
    return tf.Phi3Config(**o, original_max_position_embeddings=256)


def moe(r):
    o = base(r, True)
    return tf.Qwen3MoeConfig(**o, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                             norm_topk_prob=r.random() < 0.5, decoder_sparse_step=1, mlp_only_layers=[])


FAMILIES = {
    "llama": lambda r: tf.LlamaConfig(**base(r), attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3),
    "llama3rope": llama3,
    "qwen2": lambda r: tf.Qwen2Config(**base(r)),
    "qwen3": lambda r: tf.Qwen3Config(**base(r, True)),
    "qwen3_moe": moe,
    "mistral": lambda r: tf.MistralConfig(**base(r), sliding_window=r.choice([5, 16, None])),
    "gemma": lambda r: tf.GemmaConfig(**{**base(r, True), "tie_word_embeddings": True},
                                      hidden_act="gelu_pytorch_tanh"),
    "gemma2": gemma2,
    "gemma3": gemma3,
    "phi3": phi3,
    "smollm3": lambda r: tf.SmolLM3Config(**base(r), no_rope_layer_interval=2),
    "olmo2": lambda r: tf.Olmo2Config(**base(r)),
    "granite": lambda r: tf.GraniteConfig(**base(r), embedding_multiplier=3.0, residual_multiplier=0.7,
                                          attention_multiplier=0.2, logits_scaling=2.0),
}


def make(r, family, seed, folder, tokenizer):
    config = FAMILIES[family](r)
    config.dtype = torch.float32
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
    gen = torch.Generator().manual_seed(seed)
    centred = family.startswith("gemma")
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=gen)
            if p.ndim == 1:
                p.copy_(0.1 * noise + (0.0 if name.endswith("bias") or centred else 1.0))
            else:
                p.copy_((0.16 if any(x in name for x in ("q_proj", "k_proj", "qkv", "o_proj", "down")) else 0.08)
                        * noise)
    model.tie_weights()
    model.save_pretrained(folder)
    for name in TOKENIZER_FILES:
        shutil.copy(os.path.join(tokenizer, name), folder)
    again = load(folder)
    return again


def load(folder):
    m = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    if hasattr(m.config, "_experts_implementation"):
        m.config._experts_implementation = "eager"
    m.config.use_cache = False
    return m


def reload(folder, changed):
    """The model of the folder with the (maybe 4-bit) weights of `changed`."""
    m = load(folder)
    values = dict(changed.named_parameters())
    with torch.no_grad():
        for name, p in m.named_parameters():
            p.copy_(values[name])
    return m


def put(model, name, value):
    """Writes a tensor of the folder into the model in memory."""
    parts = name.split(".")
    if "experts" not in parts:
        model.get_parameter(name).data.copy_(value)
        return
    at = parts.index("experts")
    fused = "down_proj" if parts[at + 2] == "down_proj" else "gate_up_proj"
    t = model.get_parameter(".".join(parts[:at + 1] + [fused])).data[int(parts[at + 1])]
    half = value.shape[0]
    if parts[at + 2] == "up_proj":
        t[half:].copy_(value)
    else:
        t[:half].copy_(value)


def disk_names(tensors):
    """Experts are one tensor in memory and one matrix each on disk."""
    out = {}
    for name, t in tensors.items():
        stem = name[:name.rfind(".") + 1]
        if name.endswith("mlp.experts.gate_up_proj"):
            for e in range(t.shape[0]):
                gate, up = t[e].chunk(2, dim=0)
                out[f"{stem}{e}.gate_proj.weight"], out[f"{stem}{e}.up_proj.weight"] = gate, up
        elif name.endswith("mlp.experts.down_proj"):
            for e in range(t.shape[0]):
                out[f"{stem}{e}.down_proj.weight"] = t[e]
        else:
            out[name] = t
    return out
