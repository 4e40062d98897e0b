"""Families whose code lies in their own repositories. transformers has no class for them, but one of equal formulas: a model of
that class, and the folder it would be if it were published as such a family. For judge_models.py and make_families.py.

A folder is made by renaming and joining tensors (`publish`); the way back (`recover`) follows from the same function."""
import re
import types

import torch
import transformers as T

from family_configs import deepseek_v3, no_head, plain

LLAMA_KEYS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
              "hidden_act", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings", "bos_token_id", "eos_token_id",
              "pad_token_id")
GATED = {"mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2"}


def old_rope(c):
    """As transformers 4 wrote it."""
    p = dict(c["rope_parameters"])
    kind = p.pop("rope_type", "default")
    out = {"rope_theta": p.pop("rope_theta")}
    if "partial_rotary_factor" in p:
        out["partial_rotary_factor"] = p.pop("partial_rotary_factor")
    out["rope_scaling"] = None if kind == "default" else dict(p, type=kind)
    return out


def keys(c, *more, **own):
    return {**{k: c.get(k) for k in LLAMA_KEYS + more}, **old_rope(c), **own}


def internlm2(c):
    return keys(c, bias=c["attention_bias"])


def minicpm(c):
    return keys(c, scale_emb=c["embedding_multiplier"], scale_depth=c["residual_multiplier"] * c["num_hidden_layers"] ** 0.5,
                dim_model_base=round(c["hidden_size"] / c["logits_scaling"]))


def exaone(c):
    out = keys(c, num_layers=c["num_hidden_layers"], activation_function=c["hidden_act"], layer_norm_epsilon=c["rms_norm_eps"])
    for k in ("num_hidden_layers", "hidden_act", "rms_norm_eps"):
        out.pop(k)
    return out


def orion(c):
    return keys(c, rms_norm_eps=c["layer_norm_eps"])


ROUTED = ("moe_intermediate_size", "num_experts_per_tok", "first_k_dense_replace")


def deepseek(c):
    return keys(c, *ROUTED, "n_routed_experts", "n_shared_experts", "norm_topk_prob", "attention_bias")


def bailing_moe(c):
    return keys(c, *ROUTED, "head_dim", num_experts=c["n_routed_experts"], num_shared_experts=c["n_shared_experts"],
                norm_topk_prob=c["norm_topk_prob"], use_qkv_bias=c["attention_bias"], use_bias=False)


def bailing_moe_v2(c):
    """As published: the type of the first version."""
    return {**bailing_moe(c), "model_type": "bailing_moe", "architectures": ["BailingMoeV2ForCausalLM"],
            **{k: c[k] for k in ("n_group", "topk_group", "routed_scaling_factor", "use_qk_norm")}}


LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_routed_experts", "n_shared_experts",
          "n_group", "topk_group", "routed_scaling_factor", "norm_topk_prob", "attention_bias")
LING = {"model.embed_tokens": "model.word_embeddings", "self_attn.o_proj": "attention.dense",
        "self_attn.q_norm": "attention.query_layernorm", "self_attn.k_norm": "attention.key_layernorm",
        "gate.e_score_correction_bias": "gate.expert_bias"}


def softmax_router(self, hidden_states):
    """Of the first mixtures: in place of glm4_moe's."""
    x = hidden_states.view(-1, self.hidden_dim).float()
    logits = torch.nn.functional.linear(x, self.weight.float())
    weights, chosen = logits.softmax(-1).topk(self.top_k)
    if self.norm_topk_prob and self.top_k > 1:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return logits, weights, chosen


def baichuan(c):
    out = keys(c, model_max_length=c["max_position_embeddings"])
    out.pop("num_key_value_heads")
    if c["linear_biases"]:
        out.pop("max_position_embeddings")
    return {**out, **({"z_loss_weight": 0} if c["norm_head"] else {})}


def chatglm(c):
    rope = c["rope_parameters"]
    return dict(num_layers=c["num_hidden_layers"], padded_vocab_size=c["vocab_size"], ffn_hidden_size=c["intermediate_size"],
                kv_channels=c["head_dim"], seq_length=c["max_position_embeddings"], layernorm_epsilon=c["rms_norm_eps"],
                add_qkv_bias=c["attention_bias"], multi_query_attention=True, multi_query_group_num=c["num_key_value_heads"],
                rope_ratio=rope["rope_theta"] / 1e4, rmsnorm=True, post_layer_norm=True, add_bias_linear=False,
                **{k: c.get(k) for k in ("hidden_size", "num_attention_heads", "tie_word_embeddings", "eos_token_id", "pad_token_id")})


def slopes(n):
    """ALiBi: of the power of two below, then every second one of the power above."""
    power = 2 ** (n.bit_length() - 1)
    first = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return torch.tensor(first + [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * (n - power), 2)])


def patch_baichuan(model):
    """Llama with ALiBi in place of the rotation, and a head whose rows have length 1."""
    if model.config.norm_head:
        head = model.lm_head
        head.forward = lambda x: torch.nn.functional.linear(x, torch.nn.functional.normalize(head.weight))
    if not model.config.linear_biases:
        return
    model.model.rotary_emb.forward = lambda x, position_ids: (
        torch.ones(*position_ids.shape, 1), torch.zeros(*position_ids.shape, 1))
    for layer in model.model.layers:
        def forward(hidden_states, attention_mask=None, inner=layer.self_attn.forward, **more):
            n, H = hidden_states.shape[1], model.config.num_attention_heads
            bias = slopes(H).view(1, H, 1, 1) * torch.arange(n).float()
            hidden = torch.full((n, n), float("-inf")).triu(1)
            return inner(hidden_states=hidden_states, attention_mask=bias + hidden, **more)
        layer.self_attn.forward = forward


LAYERNORMS = {"full_attn": "full_attention", "linear_attn": "linear_attention", "mlp": "mlp"}


def minimax_text_01(c):
    return keys(c, "head_dim", "num_local_experts", "num_experts_per_tok", "sliding_window", "rotary_dim", postnorm=True,
                attn_type_list=[int(k == "full_attention") for k in c["layer_types"]], shared_intermediate_size=0,
                shared_moe_mode="sigmoid", **{f"layernorm_{own}_{x}": c[f"{hf}_{x}_factor"]
                                              for hf, own in LAYERNORMS.items() for x in ("alpha", "beta")})


def patch_minimax(model):
    """Its own code rotates the first rotary_dim values of a head, and has the slopes of ALiBi."""
    from transformers.models.minimax import modeling_minimax
    config = model.config
    n, count = config.rotary_dim, config.num_hidden_layers

    def table(x, position_ids):
        steps = config.rope_parameters["rope_theta"] ** (-torch.arange(0, n, 2).float() / n)
        angle = torch.cat([position_ids[..., None].float() * steps] * 2, -1)
        return angle.cos(), angle.sin()

    def turn(q, k, cos, sin):
        def one(x):
            a, b = x[..., :n // 2], x[..., n // 2:n]
            return torch.cat([x[..., :n] * cos[:, None] + torch.cat([-b, a], -1) * sin[:, None], x[..., n:]], -1)
        return one(q), one(k)

    model.model.rotary_emb.forward = table
    modeling_minimax.apply_rotary_pos_emb = turn
    for i, layer in enumerate(model.model.layers):
        attention = layer.self_attn
        if hasattr(attention, "slope_rate"):
            attention.slope_rate = slopes(config.num_attention_heads).view(-1, 1, 1) * (1 - i / (count - 1) + 1e-5)
            attention.query_decay, attention.key_decay, attention.diagonal_decay = attention.decay_factors(attention.slope_rate)


def patch(model):
    """What families have otherwise than the class: routers, positions, heads."""
    if getattr(model.config, "published", None) == "minimax_text_01":
        patch_minimax(model)
    if getattr(model.config, "published", None) == "baichuan":
        patch_baichuan(model)
    if getattr(model.config, "published", None) in ("deepseek", "bailing_moe"):
        for m in model.modules():
            if type(m).__name__ == "Glm4MoeTopkRouter":
                m.forward = types.MethodType(softmax_router, m)
    return model


# name -> (keys of config.json, names, name of the fused projection and whether its heads are grouped)
FAMILIES = {
    "internlm2": (internlm2, {"model.embed_tokens": "model.tok_embeddings", "input_layernorm": "attention_norm",
                              "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attention.wo", **GATED,
                              "lm_head": "output"}, ("attention.wqkv", True)),
    "minicpm": (minicpm, {}, None),
    "exaone": (exaone, {"model.embed_tokens": "transformer.wte", "model.layers": "transformer.h", "input_layernorm": "ln_1",
                        "post_attention_layernorm": "ln_2", "self_attn.o_proj": "attn.attention.out_proj",
                        "self_attn": "attn.attention", "mlp.gate_proj": "mlp.c_fc_0", "mlp.up_proj": "mlp.c_fc_1",
                        "mlp.down_proj": "mlp.c_proj", "model.norm": "transformer.ln_f"}, None),
    "orion": (orion, {}, None),
    "xverse": (keys, {}, None),
    "kimi_k2": (lambda c: keys(c, *ROUTED, *LATENT), {}, None),
    "chatglm": (chatglm, {"model.embed_tokens": "transformer.embedding.word_embeddings", "model.layers": "transformer.encoder.layers",
                          "self_attn.o_proj": "self_attention.dense", "mlp.gate_up_proj": "mlp.dense_h_to_4h",
                          "mlp.down_proj": "mlp.dense_4h_to_h", "model.norm": "transformer.encoder.final_layernorm",
                          "lm_head": "transformer.output_layer"}, ("self_attention.query_key_value", False)),
    "baichuan": (baichuan, {}, ("self_attn.W_pack", False)),
    "deepseek": (deepseek, {}, None),
    "bailing_moe": (bailing_moe, LING, ("attention.query_key_value", False)),
    "bailing_moe_v2": (bailing_moe_v2, LING, ("attention.query_key_value", False)),
    "minimax_text_01": (minimax_text_01, {}, None),
    "mimo": (lambda c: keys(c, "use_sliding_window", "sliding_window", "max_window_layers", num_nextn_predict_layers=1), {}, None),
}


def published_config(family, config):
    """Of the dictionary of a transformers config."""
    return {"model_type": family, **FAMILIES[family][0](config)}


def join(q, k, v, kv, grouped):
    if not grouped:
        return torch.cat([q, k, v])
    size = len(k) // kv
    parts = [x.reshape(kv, -1, size, *x.shape[1:]) for x in (q, k, v)]
    return torch.cat(parts, 1).reshape(-1, *q.shape[1:])


def rename(family, name):
    """What a tensor or module is called; None: it is part of the fused projection."""
    _, names, fused = FAMILIES[family]
    if fused and re.search(r"self_attn\.[kv]_proj", name):
        return None
    name = name.replace("self_attn.q_proj", fused[0]) if fused else name
    for old, new in names.items():
        name = name.replace(old, new)
    return name


def publish(family, config, tensors):
    """Tensors of a folder that transformers wrote, as the family has them."""
    fused, out = FAMILIES[family][2], {}
    for name, x in tensors.items():
        if fused and "self_attn.q_proj." in name:
            q, k, v = (tensors[name.replace("q_proj", c + "_proj")] for c in "qkv")
            x = join(q, k, v, config.num_key_value_heads, fused[1])
        if family in ("deepseek", "bailing_moe") and "e_score_correction_bias" in name:
            continue  # zeros of the class
        if name.endswith(("slope_rate", "_decay")):
            continue  # tables that the config alone gives
        if rename(family, name):
            out[rename(family, name)] = x.contiguous()
    return out


def recover(family, config, tensors, like):
    """Tensors of such a folder as transformers has them; like: their shapes."""
    total, at = 0, {}
    for name, x in ((k, v) for k, v in like.items() if not k.endswith(("slope_rate", "_decay"))):
        at[name] = torch.arange(total, total + x.numel()).reshape(x.shape)
        total += x.numel()
    flat = torch.zeros(total)
    for name, index in publish(family, config, at).items():
        flat[index.flatten()] = tensors[name].flatten().float()
    return {name: flat[index.flatten()].reshape(index.shape) for name, index in at.items()}


# ---- random configs ----


def as_published(family, config):
    """A config of equal formulas, of a model that is written as the family has it: published.py."""
    config.published = family
    return config


def internlm2_config(j, r):
    c = no_head(plain(j, r, kinds=("default", "linear", "dynamic")), r)
    return as_published("internlm2", T.LlamaConfig(**c, attention_bias=r.random() < .3))


def minicpm_config(j, r):
    c = no_head(plain(j, r, kinds=("default", "linear", "dynamic")), r)
    return as_published("minicpm", T.GraniteConfig(
        **c, embedding_multiplier=r.choice([1.0, 12.0]), residual_multiplier=r.choice([1.0, 1.4]) / c["num_hidden_layers"] ** 0.5,
        logits_scaling=c["hidden_size"] / r.choice([8, 20, 256]), attention_multiplier=(c["hidden_size"] / c["num_attention_heads"]) ** -0.5))


def exaone_config(j, r):
    return as_published("exaone", T.LlamaConfig(**no_head(plain(j, r), r)))


def orion_config(j, r):
    c = no_head(plain(j, r, kinds=["default"]), r)
    c["layer_norm_eps"] = c.pop("rms_norm_eps")
    c["rope_parameters"]["partial_rotary_factor"] = 1.0
    return as_published("orion", T.StableLmConfig(**c))


def xverse_config(j, r):
    return as_published("xverse", T.LlamaConfig(**no_head(plain(j, r, kinds=["default"]), r)))


def mimo_config(j, r):
    c = no_head(plain(j, r, kinds=["default", "yarn"]), r)
    return as_published("mimo", T.Qwen2Config(**c))


def mixture(j, r, X, kinds=("default",), **more):
    c = plain(j, r, kinds=kinds)
    c["rope_parameters"]["partial_rotary_factor"] = 1.0
    return dict(c, n_routed_experts=X, moe_intermediate_size=r.choice([12, 20]), num_experts_per_tok=r.choice([1, 2, 3]), n_shared_experts=r.choice([1, 2]),
                first_k_dense_replace=r.choice([0, 1]), **more)


def kimi_k2_config(j, r):
    c = deepseek_v3(j, r)
    c.rope_interleave = True
    return as_published("kimi_k2", c)


def deepseek_config(j, r):
    c = no_head(mixture(j, r, r.choice([4, 6]), norm_topk_prob=r.random() < .3), r)
    return as_published("deepseek", T.Glm4MoeConfig(**c, use_qk_norm=False, n_group=1, topk_group=1))


def bailing_moe_config(j, r):
    c = mixture(j, r, r.choice([4, 6]), norm_topk_prob=r.random() < .7)
    return as_published("bailing_moe", T.Glm4MoeConfig(**c, use_qk_norm=False, n_group=1, topk_group=1))


def bailing_moe_v2_config(j, r):
    c = mixture(j, r, 8, norm_topk_prob=True, kinds=("default", "yarn"))
    c["num_experts_per_tok"] = r.choice([2, 3])
    c["rope_parameters"]["partial_rotary_factor"] = r.choice([0.5, 1.0])
    return as_published("bailing_moe_v2", T.Glm4MoeConfig(**c, use_qk_norm=r.random() < .7, n_group=r.choice([1, 2, 4]), topk_group=1,
                                                         attention_bias=r.random() < .3, routed_scaling_factor=r.choice([1.0, 2.5])))


def baichuan_config(j, r):
    c = no_head(plain(j, r, kinds=["default"]), r)
    c["num_key_value_heads"], c["tie_word_embeddings"] = c["num_attention_heads"], False
    c = as_published("baichuan", T.LlamaConfig(**c))
    c.norm_head, c.linear_biases = r.random() < .6, r.random() < .5
    if r.random() < .4:  # what llama.cpp has
        c.num_hidden_layers = 40 if c.linear_biases else 32
    return c


def chatglm_config(j, r):
    c = plain(j, r, kinds=["default"], dims=(8, 16))
    c["rope_parameters"] = {"rope_type": "default", "rope_theta": r.choice([1e4, 5e5]), "partial_rotary_factor": 0.5}
    return as_published("chatglm", T.GlmConfig(**c, attention_bias=r.random() < .7))


CONFIGS = {f.__name__.removesuffix("_config"): f for f in (
    internlm2_config, minicpm_config, exaone_config, orion_config, xverse_config, mimo_config,
    chatglm_config, baichuan_config, kimi_k2_config, deepseek_config, bailing_moe_config, bailing_moe_v2_config)}
