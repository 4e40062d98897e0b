"""Random configs of the families that are not plain llama, for judge_models.py: one function each."""
import transformers as T

LINEAR = ["default", "linear", "yarn", "llama3"]


def plain(j, r, kinds=("default", "linear", "llama3", "yarn"), dims=(8, 12, 16), partial=None):
    c = j.common(r, kinds=list(kinds), dims=dims, partial=partial)
    c["attention_dropout"] = 0.0
    return c


def no_head(c, r):
    """Families whose head size is hidden_size / heads."""
    c["hidden_size"] = c["num_attention_heads"] * c.pop("head_dim")
    return c


def layer_norm(c, key="layer_norm_eps"):
    c[key] = c.pop("rms_norm_eps")
    return c


def part(c, r, choices=(0.25, 0.5, 1.0), kinds=("default",)):
    """Only a part of each head turns; a scaling that has no other length than its factor may come on top."""
    c["rope_parameters"] = {"rope_type": r.choice(kinds), "rope_theta": r.choice([1e4, 777.0, 1e6]),
                            "partial_rotary_factor": r.choice(choices)}
    if c["rope_parameters"]["rope_type"] != "default":
        c["rope_parameters"].update(factor=r.choice([2.0, 3.5]), original_max_position_embeddings=16,
                                    low_freq_factor=1.0, high_freq_factor=4.0)
    if c["rope_parameters"]["rope_type"] == "linear":
        for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"):
            c["rope_parameters"].pop(k)
    return c


def olmo3(j, r):
    c = no_head(plain(j, r), r)
    full = c.pop("rope_parameters")
    return T.Olmo3Config(**c, sliding_window=r.choice([3, 9]), layer_types=j.layer_types(r, c), rope_parameters={
        "full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": full["rope_theta"]}})


def ministral3(j, r):
    c = plain(j, r, kinds=["yarn"])
    c["rope_parameters"]["llama_4_scaling_beta"] = r.choice([0.1, 0.5])
    if r.random() < .6:  # as published, and as GGUF can say it
        c["rope_parameters"].pop("attention_factor", None)
        c["rope_parameters"].update(mscale=1.0, mscale_all_dim=1.0)
    c["rope_parameters"]["max_position_embeddings"] = c["max_position_embeddings"]
    return T.Ministral3Config(**c)


def seed_oss(j, r):
    return T.SeedOssConfig(**plain(j, r), attention_bias=r.random() < .7, attention_out_bias=r.random() < .3,
                           residual_dropout=0.0, mlp_bias=r.random() < .3)


def ernie4_5(j, r):
    c = plain(j, r)
    c.pop("attention_dropout")
    return T.Ernie4_5Config(**c, use_bias=r.random() < .5)


def hunyuan_v1_dense(j, r):
    c = plain(j, r, kinds=["default"])
    if r.random() < .5:
        c["rope_parameters"].update(rope_type="dynamic", alpha=r.choice([10.0, 1000.0]), factor=1.0)
    return T.HunYuanDenseV1Config(**c, attention_bias=r.random() < .3)


def apertus(j, r):
    return T.ApertusConfig(**no_head(plain(j, r), r), attention_bias=r.random() < .3)


def arcee(j, r):
    return T.ArceeConfig(**plain(j, r), attention_bias=r.random() < .3, mlp_bias=r.random() < .3)


def exaone4(j, r):
    c = no_head(plain(j, r), r)
    if r.random() < .5:
        return T.Exaone4Config(**c, sliding_window=None, layer_types=["full_attention"] * c["num_hidden_layers"])
    return T.Exaone4Config(**c, sliding_window=r.choice([4, 20]), sliding_window_pattern=r.choice([2, 3]))


def cohere(j, r):
    c = layer_norm(no_head(plain(j, r), r))
    c["tie_word_embeddings"] = True
    return T.CohereConfig(**c, use_qk_norm=r.random() < .5, logit_scale=r.choice([0.1, 1.0]), attention_bias=r.random() < .3)


def cohere2(j, r):
    c = layer_norm(plain(j, r))
    c["tie_word_embeddings"] = True
    return T.Cohere2Config(**c, logit_scale=r.choice([0.1, 1.0]), sliding_window=r.choice([3, 8]),
                           layer_types=j.layer_types(r, c))


def cohere_compass_text(j, r):
    c = layer_norm(no_head(plain(j, r, kinds=["default"]), r))
    c.update(layer_types=j.layer_types(r, c), tie_word_embeddings=r.random() < .5)
    rope = {"rope_type": "default", "rope_theta": r.choice([1e4, 5e4])}
    c["rope_parameters"] = {"sliding_attention": rope, "full_attention": r.choice([None, {**rope, "rope_theta": 3e4}])}
    return T.CohereCompassTextConfig(**c, logit_scale=r.choice([None, 0.25]), sliding_window=r.choice([3, 8]))


def modernbert_decoder(j, r):
    c = no_head(plain(j, r, kinds=["default"]), r)
    c.pop("num_key_value_heads"), c.pop("rope_parameters")
    c.update(norm_eps=c.pop("rms_norm_eps"), pad_token_id=r.choice([0, 3]))
    return T.ModernBertDecoderConfig(**c, hidden_activation="gelu", attention_bias=r.random() < .4, local_attention=r.choice([4, 9, 128]),
                                     global_attn_every_n_layers=r.choice([1, 2, 3]), global_rope_theta=r.choice([1e4, 16e4]),
                                     local_rope_theta=r.choice([1e4, 500.0]))


def starcoder2(j, r):
    c = layer_norm(no_head(plain(j, r, kinds=LINEAR), r), "norm_epsilon")
    return T.Starcoder2Config(**c, sliding_window=r.choice([None, 5]), use_bias=r.random() < .7)


def stablelm(j, r):
    c = part(layer_norm(no_head(plain(j, r, dims=(8, 16)), r)), r, kinds=LINEAR)
    return T.StableLmConfig(**c, use_qkv_bias=r.random() < .5, use_parallel_residual=r.random() < .5,
                            qk_layernorm=r.random() < .4)


def nemotron(j, r):
    c = part(layer_norm(plain(j, r, dims=(8, 16)), "norm_eps"), r, (0.5, 1.0), LINEAR)
    return T.NemotronConfig(**c, attention_bias=r.random() < .3, mlp_bias=r.random() < .3)


def phi(j, r):
    c = part(layer_norm(no_head(plain(j, r, dims=(8, 16)), r)), r, (0.5, 1.0), LINEAR)
    c["tie_word_embeddings"] = False
    return T.PhiConfig(**c, qk_layernorm=r.random() < .3)


def glm4(j, r):
    return T.Glm4Config(**part(plain(j, r, dims=(8, 16)), r, (0.5, 1.0), LINEAR), attention_bias=r.random() < .7)


def glm(j, r):
    return T.GlmConfig(**part(plain(j, r, dims=(8, 16)), r, (0.5, 1.0), LINEAR), attention_bias=r.random() < .7)


def mixtral(j, r):
    return T.MixtralConfig(**plain(j, r), sliding_window=r.choice([None, 4]), num_local_experts=r.choice([3, 4, 8]), num_experts_per_tok=r.choice([1, 2, 3]))


def qwen2_moe(j, r):
    c = no_head(plain(j, r), r)
    return T.Qwen2MoeConfig(**c, num_experts=r.choice([4, 6]), num_experts_per_tok=r.choice([1, 2, 3]),
                            moe_intermediate_size=r.choice([24, 40]), shared_expert_intermediate_size=r.choice([20, 48]),
                            norm_topk_prob=r.random() < .5, decoder_sparse_step=r.choice([1, 1, 2]), qkv_bias=True,
                            mlp_only_layers=r.choice([[], [0]]))


def linear_layers(r, c, kind):
    return [r.choice([kind, "full_attention"]) for _ in range(c["num_hidden_layers"] - 1)] + ["full_attention"]


def qwen3_5_text(j, r):
    c = part(plain(j, r, dims=(16, 32)), r, (0.25, 0.5))
    keys = r.choice([1, 2])
    return T.Qwen3_5TextConfig(**c, linear_conv_kernel_dim=r.choice([2, 4]), linear_key_head_dim=r.choice([8, 12]),
                               linear_value_head_dim=r.choice([8, 20]), linear_num_key_heads=keys,
                               linear_num_value_heads=keys * r.choice([1, 2, 3]),
                               layer_types=linear_layers(r, c, "linear_attention"))


def qwen3_next(j, r):
    c = part(plain(j, r, dims=(16, 32)), r, (0.25, 0.5))
    keys = r.choice([1, 2])
    return T.Qwen3NextConfig(**c, linear_conv_kernel_dim=r.choice([2, 4]), linear_key_head_dim=r.choice([8, 12]),
                             linear_value_head_dim=r.choice([8, 20]), linear_num_key_heads=keys,
                             linear_num_value_heads=keys * r.choice([1, 2, 3]), num_experts=r.choice([4, 6]),
                             num_experts_per_tok=r.choice([1, 2, 3]), moe_intermediate_size=24,
                             shared_expert_intermediate_size=r.choice([20, 36]), norm_topk_prob=r.random() < .5,
                             mlp_only_layers=r.choice([[], [0]]), layer_types=linear_layers(r, c, "linear_attention"))


def olmo_hybrid(j, r):
    c = no_head(plain(j, r, kinds=LINEAR), r)
    if r.random() < .5:  # as published: no rotation
        c["rope_parameters"] = {"rope_type": "default", "rope_theta": None}
    keys, sizes = r.choice([1, 2, 3]), {}
    if r.random() < .8:
        sizes = dict(linear_num_key_heads=keys, linear_num_value_heads=keys * r.choice([1, 2, 3]),
                     linear_key_head_dim=r.choice([8, 9, 12]), linear_value_head_dim=r.choice([7, 8, 20]))
    return T.OlmoHybridConfig(**c, **sizes, linear_conv_kernel_dim=r.choice([2, 4]), attention_bias=r.random() < .3,
                              linear_allow_neg_eigval=r.random() < .7,
                              layer_types=["linear_attention"] + linear_layers(r, c, "linear_attention")[1:])


def granitemoehybrid(j, r):
    c = no_head(plain(j, r, kinds=["default"]), r)
    heads = r.choice([4, 8])
    return T.GraniteMoeHybridConfig(**c, mamba_n_heads=heads, mamba_n_groups=r.choice([1, 2, 4]), mamba_d_conv=r.choice([2, 4]),
                                    mamba_d_state=r.choice([5, 16]), mamba_conv_bias=r.random() < .5,
                                    mamba_proj_bias=r.random() < .3, num_local_experts=r.choice([0, 4]),
                                    num_experts_per_tok=2, shared_intermediate_size=r.choice([20, 48]),
                                    position_embedding_type=r.choice(["nope", "rope"]), embedding_multiplier=2.0,
                                    residual_multiplier=0.7, attention_multiplier=0.2, logits_scaling=1.5,
                                    layer_types=linear_layers(r, c, "linear_attention"))


def gpt_oss(j, r):
    c = plain(j, r)
    more = dict(layer_types=j.layer_types(r, c)) if r.random() < .5 else {}
    return T.GptOssConfig(**c, **more, attention_bias=r.random() < .8, num_local_experts=r.choice([4, 6]), num_experts_per_tok=r.choice([1, 2, 3]),
                          sliding_window=r.choice([3, 9]))


def lfm2(j, r):
    c = no_head(plain(j, r, kinds=["default"]), r)
    c["norm_eps"] = c.pop("rms_norm_eps")
    return T.Lfm2Config(**c, conv_L_cache=r.choice([2, 3, 4]), conv_bias=r.random() < .3,
                        block_auto_adjust_ff_dim=r.random() < .5, block_multiple_of=8, layer_types=linear_layers(r, c, "conv"))


def lfm3(j, r):
    c = plain(j, r, kinds=["default"])
    c.pop("rope_parameters")
    c["norm_eps"] = c.pop("rms_norm_eps")
    n = c["num_hidden_layers"] = r.choice([3, 4, 5])
    kinds = [r.choice(["conv", "full_attention", "sliding_attention"]) for _ in range(n)]
    ropes = {"full_attention": r.choice([{"rope_type": "proportional", "partial_rotary_factor": r.choice([0.25, 0.5, 1.0])},
                                         {"rope_type": "default"}, {"rope_type": "linear", "factor": 3.5}]),
             "sliding_attention": {"rope_type": "default"}}
    for v in ropes.values():
        v["rope_theta"] = r.choice([1e4, 777.0, 1e6])
    return T.Lfm3Config(**c, conv_L_cache=r.choice([2, 3, 7]), conv_bias=r.random() < .3, attention_bias=r.random() < .3,
                        sliding_window=r.choice([3, 9]), use_sandwich_norm=r.random() < .7, use_attention_gate=r.random() < .7,
                        layer_types=r.choice([None, kinds, kinds]), rope_parameters=r.choice([None, ropes, ropes]))


def glm4_moe(j, r):
    c = part(plain(j, r, dims=(8, 16)), r, (0.5, 1.0), LINEAR)
    return T.Glm4MoeConfig(**c, **deepseek_words(r), attention_bias=r.random() < .5, use_qk_norm=r.random() < .5,
                           num_nextn_predict_layers=0)


def olmoe(j, r):
    c = no_head(plain(j, r, kinds=LINEAR), r)
    return T.OlmoeConfig(**c, num_experts=r.choice([4, 7]), num_experts_per_tok=r.choice([1, 2, 4]),
                         norm_topk_prob=r.random() < .5, attention_bias=r.random() < .3, clip_qkv=r.choice([None, 0.5, 1.5]))


def deepseek_words(r, first=True):
    """A mixture in the words of DeepSeek."""
    groups = r.choice([1, 1, 2, 3])
    k = r.choice([1, 2, 3])
    d = dict(n_routed_experts=6 * r.choice([1, 2]), num_experts_per_tok=k, moe_intermediate_size=r.choice([12, 24]),
             n_shared_experts=r.choice([1, 2]), routed_scaling_factor=r.choice([1.0, 1.7, 2.5]), n_group=groups,
             topk_group=r.choice([1, groups]) if k < 3 else groups, norm_topk_prob=r.random() < .5)
    return dict(d, first_k_dense_replace=r.choice([0, 1, 2, 9])) if first else d


def dots1(j, r):
    c = plain(j, r)
    words = deepseek_words(r)
    if r.random() < .5:
        words.update(sliding_window=5, layer_types=j.layer_types(r, c))
    return T.Dots1Config(**c, **words, attention_bias=r.random() < .3)


def latent(j, r):
    c = plain(j, r, kinds=LINEAR)
    c.pop("head_dim")
    c["num_key_value_heads"] = c["num_attention_heads"]
    nope, rope, v = r.choice([(8, 4, 6), (6, 8, 14), (10, 6, 10), (4, 2, 4)])
    q = r.choice([None, 9, 16])
    return dict(c, q_lora_rank=q, kv_lora_rank=r.choice([7, 16]), qk_nope_head_dim=nope, qk_rope_head_dim=rope,
                v_head_dim=v, attention_bias=r.random() < .3)


def deepseek_v2(j, r):
    c, words = latent(j, r), deepseek_words(r)
    c["kv_lora_rank"] = 16  # torch's complex numbers want even strides
    words.update(topk_method=r.choice(["greedy", "group_limited_greedy"]))
    return T.DeepseekV2Config(**c, **words)


def deepseek_v3(j, r):
    return T.DeepseekV3Config(**latent(j, r), **deepseek_words(r), rope_interleave=r.random() < .7)


def axk1(j, r):
    c = latent(j, r)
    return T.AXK1Config(**dict(c, q_lora_rank=c["q_lora_rank"] or 12), **deepseek_words(r), rope_interleave=r.random() < .7)


def kolibri1(j, r):
    c = plain(j, r, kinds=LINEAR)
    c.pop("intermediate_size")
    kinds = j.layer_types(r, c) if r.random() < .7 else None
    none = kinds is not None and "sliding_attention" not in kinds and r.random() < .5
    return T.Kolibri1Config(**c, num_experts=r.choice([4, 7]), num_experts_per_tok=r.choice([1, 2, 3]), layer_types=kinds,
                            moe_intermediate_size=r.choice([12, 24]), shared_expert_intermediate_size=r.choice([10, 24]),
                            sliding_window=None if none else r.choice([3, 9]), norm_topk_prob=r.random() < .5)


def longcat_flash(j, r):
    c = latent(j, r)
    n, ffn = c.pop("num_hidden_layers"), c.pop("intermediate_size")
    return T.LongcatFlashConfig(**dict(c, q_lora_rank=c["q_lora_rank"] or 12), num_layers=(n + 1) // 2, ffn_hidden_size=ffn,
                                head_dim=c["qk_rope_head_dim"], n_routed_experts=r.choice([4, 6]), zero_expert_num=r.choice([0, 2, 5]),
                                moe_topk=r.choice([2, 3, 4]), expert_ffn_hidden_size=r.choice([12, 24]),
                                routed_scaling_factor=r.choice([1.0, 1.7]))


def indexer(j, r):
    c = latent(j, r)
    return dict(c, q_lora_rank=c["q_lora_rank"] or 12, **deepseek_words(r), index_topk=512, index_n_heads=r.choice([1, 3]),
                index_head_dim=r.choice([8, 12]))


def axk2(j, r):
    return T.AXK2Config(**dict(indexer(j, r), n_group=None, topk_group=None), gated_norm_rank=r.choice([2, 5]))


def deepseek_v32(j, r):
    return T.DeepseekV32Config(**indexer(j, r))


def glm_moe_dsa(j, r):
    how = r.choice([dict(index_topk_freq=2, index_skip_topk_offset=1), dict(index_topk_freq=3), dict(index_topk_pattern="FSSFSF"), {}])
    return T.GlmMoeDsaConfig(**indexer(j, r), **how)


def bailing_hybrid(j, r):
    c, words = latent(j, r), deepseek_words(r)
    c.pop("q_lora_rank")
    words["num_local_experts"] = words.pop("n_routed_experts")
    c["tie_word_embeddings"] = False
    gguf = r.random() < .5  # as GGUF can say it
    if gguf:
        c.update(attention_bias=False, rms_norm_eps=1e-6)
    return T.BailingHybridConfig(**c, **words, head_dim=r.choice([7, 8, 20]), short_conv_kernel_size=r.choice([2, 4]),
                                 kda_safe_gate=gguf or r.random() < .5, kda_lower_bound=r.choice([-5.0, -1.5]),
                                 layer_types=["linear_attention"] + linear_layers(r, c, "linear_attention")[1:])


def kimi_linear(j, r):
    c, words = latent(j, r), deepseek_words(r, False)
    c.pop("rope_parameters")
    words["num_local_experts"] = words.pop("n_routed_experts")
    c["tie_word_embeddings"] = False
    dense, heads = r.choice([0, 1, 2]), r.choice([1, 2, 3])
    if r.random() < .5:  # as GGUF can say it
        c.update(q_lora_rank=None, attention_bias=False, rms_norm_eps=1e-6)
        words.update(norm_topk_prob=True)
        heads = c["num_attention_heads"]
    return T.KimiLinearConfig(**c, **words, linear_num_heads=heads, linear_head_dim=r.choice([7, 8, 20]),
                              linear_conv_kernel_dim=r.choice([2, 4]),
                              layer_types=["linear_attention"] + linear_layers(r, c, "linear_attention")[1:],
                              mlp_layer_types=["dense" if i < dense else "sparse" for i in range(c["num_hidden_layers"])])


def glm4_moe_lite(j, r):
    c = latent(j, r)
    kinds = [r.choice(["dense", "sparse"] if r.random() < .3 else ["sparse"]) for _ in range(c["num_hidden_layers"])]
    more = dict(mlp_layer_types=kinds) if r.random() < .5 else {}
    return T.Glm4MoeLiteConfig(**c, **deepseek_words(r, False), **more)


def lfm2_moe(j, r):
    c = no_head(plain(j, r, kinds=["default"]), r)
    c["norm_eps"] = c.pop("rms_norm_eps")
    c.pop("attention_dropout")
    return T.Lfm2MoeConfig(**c, conv_L_cache=r.choice([2, 3, 4]), conv_bias=r.random() < .3, num_experts=r.choice([4, 6]),
                           num_experts_per_tok=r.choice([1, 2, 3]), moe_intermediate_size=r.choice([12, 24]),
                           num_dense_layers=r.choice([0, 1, 2]), use_expert_bias=r.random() < .6,
                           norm_topk_prob=r.random() < .5, routed_scaling_factor=r.choice([1.0, 1.6]),
                           layer_types=linear_layers(r, c, "conv"))


def qwen3_5_moe_text(j, r):
    c = part(plain(j, r, dims=(16, 32)), r, (0.25, 0.5, 1.0))
    keys = r.choice([1, 2])
    c.pop("intermediate_size")
    return T.Qwen3_5MoeTextConfig(**c, linear_conv_kernel_dim=r.choice([2, 4]), linear_key_head_dim=r.choice([8, 12]),
                                  linear_value_head_dim=r.choice([8, 20]), linear_num_key_heads=keys,
                                  linear_num_value_heads=keys * r.choice([1, 2, 3]), num_experts=r.choice([4, 6]),
                                  num_experts_per_tok=r.choice([1, 2, 3]), moe_intermediate_size=24,
                                  shared_expert_intermediate_size=r.choice([20, 36]),
                                  layer_types=linear_layers(r, c, "linear_attention"))


def aria_text(j, r):
    c = plain(j, r)
    c["hidden_size"] = c["num_attention_heads"] * r.choice([6, 8])  # must be a multiple
    return T.AriaTextConfig(**c, moe_num_experts=r.choice([4, 6]), moe_topk=r.choice([1, 2, 3]), attention_bias=r.random() < .3,
                            moe_num_shared_experts=r.choice([1, 2]))


def gemma4_keys(j, r):
    c = plain(j, r, kinds=["default"])
    n = c["num_hidden_layers"] = r.choice([3, 4, 5])
    kinds = [r.choice(["full_attention", "sliding_attention"]) for _ in range(n - 1)] + ["full_attention"]
    shared = r.choice([0, 0, 1])
    if shared and "full_attention" not in kinds[:n - shared]:
        kinds[0] = "full_attention"
    wide = r.choice([8, 16, 24])
    equal = r.random() < .4
    c.update(layer_types=kinds, global_head_dim=wide, attention_k_eq_v=equal, num_kv_shared_layers=shared,
             use_double_wide_mlp=r.random() < .5, sliding_window=r.choice([3, 9]),
             final_logit_softcapping=r.choice([None, 5.0]), attention_bias=r.random() < .2, rope_parameters={
                 "full_attention": {"rope_type": "proportional", "rope_theta": 1e6,
                                    "partial_rotary_factor": r.choice([0.25, 0.5, 1.0])},
                 "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})
    if equal:
        c["num_global_key_value_heads"] = 1
    return c


def gemma4_text(j, r):
    c = gemma4_keys(j, r)
    inputs = [6] if c["num_kv_shared_layers"] else [0, 6]  # transformers 5.23 fails with shared layers and no inputs
    c.update(hidden_size_per_layer_input=r.choice(inputs), vocab_size_per_layer_input=c["vocab_size"])
    if r.random() < .4:
        c.update(enable_moe_block=True, num_experts=r.choice([4, 6]), top_k_experts=r.choice([1, 2, 3]),
                 moe_intermediate_size=r.choice([10, 24]))
    return T.Gemma4TextConfig(**c)


def gemma4_unified_text(j, r):
    return T.Gemma4UnifiedTextConfig(**gemma4_keys(j, r))


def granitemoe_keys(j, r):
    c = no_head(plain(j, r, kinds=LINEAR), r)
    return dict(c, num_local_experts=r.choice([3, 4, 6]), num_experts_per_tok=r.choice([1, 2, 3]),
                attention_bias=r.random() < .3, embedding_multiplier=r.choice([1.0, 6.0]),
                attention_multiplier=r.choice([1.0, 0.2]), residual_multiplier=r.choice([1.0, 0.3]),
                logits_scaling=r.choice([1.0, 4.0]))


def granitemoe(j, r):
    return T.GraniteMoeConfig(**granitemoe_keys(j, r))


def granitemoeshared(j, r):
    return T.GraniteMoeSharedConfig(**granitemoe_keys(j, r), shared_intermediate_size=r.choice([0, 20, 48]))


def windows(j, r, c):
    """Windows by a list or by the family's pattern."""
    more = dict(layer_types=j.layer_types(r, c)) if r.random() < .5 else {}
    return dict(more, sliding_window=r.choice([3, 9]))


def thetas(r, c):
    return dict(layer_rope_theta=[r.choice([0, 1e4, 777.0]) for _ in range(c["num_hidden_layers"])]) if r.random() < .6 else {}


def granitemoe_swa(j, r):
    c = granitemoe_keys(j, r)
    return T.GraniteMoeSWAConfig(**c, **windows(j, r, c), **thetas(r, c), shared_intermediate_size=r.choice([0, 20]))


def granite_swa(j, r):
    c = granitemoe_keys(j, r)
    for k in ("num_local_experts", "num_experts_per_tok"):
        c.pop(k)
    return T.GraniteSWAConfig(**c, **windows(j, r, c), **thetas(r, c))


def cwm(j, r):
    c = plain(j, r, kinds=LINEAR)
    return T.CwmConfig(**c, **windows(j, r, c), mlp_bias=r.random() < .3)


def ministral(j, r):
    c = plain(j, r, kinds=LINEAR)
    return T.MinistralConfig(**c, **windows(j, r, c))


def helium(j, r):
    c = plain(j, r, kinds=LINEAR)
    c["hidden_size"] = c["num_attention_heads"] * c["head_dim"]
    return T.HeliumConfig(**c, attention_bias=r.random() < .4, mlp_bias=r.random() < .3)


def jais2(j, r):
    c = layer_norm(no_head(plain(j, r, kinds=LINEAR), r))
    return T.Jais2Config(**c, attention_bias=r.random() < .7, mlp_bias=r.random() < .7)


def vaultgemma(j, r):
    c = plain(j, r, kinds=LINEAR)
    c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 14])
    return T.VaultGemmaConfig(**c, **windows(j, r, c), query_pre_attn_scalar=r.choice([16, 24]),
                              attn_logit_softcapping=r.choice([None, 2.0]),
                              final_logit_softcapping=r.choice([None, 3.0]), attention_bias=r.random() < .3)


def hunyuan_v1_moe(j, r):
    c = plain(j, r, kinds=["default"])
    if r.random() < .5:
        c["rope_parameters"].update(rope_type="dynamic", alpha=r.choice([10.0, 1000.0]), factor=1.0)
    k = r.choice([1, 2, 3])
    return T.HunYuanMoEV1Config(**c, attention_bias=r.random() < .3, num_experts=r.choice([3, 6]),
                                moe_topk=[k] * c["num_hidden_layers"] if r.random() < .5 else k)


def ernie4_5_moe(j, r):
    c = plain(j, r, kinds=LINEAR)
    c.pop("attention_dropout")
    no_head(c, r)
    return T.Ernie4_5_MoeConfig(**c, moe_num_experts=r.choice([4, 7]), moe_k=r.choice([1, 2, 3]), moe_intermediate_size=20,
                                moe_num_shared_experts=r.choice([0, 1, 2]), moe_layer_start_index=r.choice([0, 1, 2]),
                                moe_layer_end_index=r.choice([-1, 2]), moe_layer_interval=r.choice([1, 1, 2]))


def minimax_m2(j, r):
    c = part(plain(j, r, dims=(8, 16)), r, (0.25, 0.5, 1.0), LINEAR)
    return T.MiniMaxM2Config(**c, num_local_experts=r.choice([3, 6]), num_experts_per_tok=r.choice([1, 2, 3]))


def flex_olmo(j, r):
    c = no_head(plain(j, r, kinds=LINEAR), r)
    return T.FlexOlmoConfig(**c, num_experts=r.choice([3, 6]), num_experts_per_tok=r.choice([1, 2, 3]),
                            norm_topk_prob=r.random() < .5, attention_bias=r.random() < .3)


def mellum(j, r):
    c = plain(j, r, kinds=LINEAR)
    full = c.pop("rope_parameters")
    kinds = [r.choice(["dense", "sparse"] if r.random() < .3 else ["sparse"]) for _ in range(c["num_hidden_layers"])]
    return T.MellumConfig(**c, num_experts=r.choice([3, 6]), num_experts_per_tok=r.choice([1, 2, 3]), sliding_window=4,
                          moe_intermediate_size=20, norm_topk_prob=r.random() < .5, attention_bias=r.random() < .3,
                          mlp_layer_types=kinds, layer_types=j.layer_types(r, c), rope_parameters={
                              "full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": 777.0}})


def solar_open(j, r):
    c = plain(j, r, kinds=LINEAR)
    c.pop("intermediate_size")
    return T.SolarOpenConfig(**c, **deepseek_words(r, False), attention_bias=r.random() < .5)


def exaone_moe(j, r):
    c, words = no_head(plain(j, r, kinds=LINEAR), r), deepseek_words(r, False)
    words["num_experts"], words["num_shared_experts"] = words.pop("n_routed_experts"), words.pop("n_shared_experts")
    return T.ExaoneMoeConfig(**c, **words, sliding_window=r.choice([4, 20]), sliding_window_pattern=r.choice([2, 3]),
                             first_k_dense_replace=r.choice([0, 1, 2]))


def afmoe(j, r):
    c = plain(j, r, kinds=LINEAR)
    more = dict(layer_types=j.layer_types(r, c)) if r.random() < .5 else dict(global_attn_every_n_layers=r.choice([2, 4]))
    return T.AfmoeConfig(**c, **more, sliding_window=r.choice([3, 9]), num_experts=r.choice([4, 6]), moe_intermediate_size=20,
                         num_experts_per_tok=r.choice([1, 2, 3]), num_shared_experts=r.choice([1, 2]),
                         num_dense_layers=r.choice([0, 1, 2]), route_scale=r.choice([1.0, 2.4]),
                         mup_enabled=r.random() < .7, attention_bias=r.random() < .2)


def youtu(j, r):
    return T.YoutuConfig(**latent(j, r), rope_interleave=r.random() < .7)


def mistral4(j, r):
    c = latent(j, r)
    c["rope_parameters"] = j.rope(r, "yarn", 0, c["max_position_embeddings"], 1e4)
    c["rope_parameters"]["llama_4_scaling_beta"] = r.choice([0.1, 0.5])
    if r.random() < .6:  # as published, and as GGUF can say it
        c["rope_parameters"].pop("attention_factor", None)
        c["rope_parameters"].update(mscale=1.0, mscale_all_dim=1.0)
    return T.Mistral4Config(**c, **deepseek_words(r), rope_interleave=r.random() < .7)


def gpt_neox(j, r):
    c = layer_norm(no_head(part(plain(j, r, dims=(8, 16)), r, (0.25, 0.5, 1.0), LINEAR), r))
    c.pop("num_key_value_heads")
    return T.GPTNeoXConfig(**c, use_parallel_residual=r.random() < .7, attention_bias=r.random() < .8,
                           hidden_act=r.choice(["gelu"] * 5 + ["gelu_new", "relu"]))


def falcon(j, r):
    c = layer_norm(no_head(plain(j, r, kinds=LINEAR), r), "layer_norm_epsilon")
    kv, ffn = c.pop("num_key_value_heads"), c.pop("intermediate_size")
    c["pad_token_id"] = r.choice([3, None])
    newer = r.random() < .5
    more = dict(num_kv_heads=kv, num_ln_in_parallel_attn=r.choice([None, 1, 2])) if newer else dict(
        multi_query=r.random() < .5, parallel_attn=r.random() < .7)
    return T.FalconConfig(**c, **more, new_decoder_architecture=newer, bias=r.random() < .3,
                          ffn_hidden_size=r.choice([None, ffn]))


def gpt(j, r, words=("n_embd", "n_layer", "n_head", "n_positions"), eps="layer_norm_epsilon"):
    c = layer_norm(no_head(plain(j, r, kinds=["default"], dims=(8, 12, 16)), r), eps)
    for k in ("num_key_value_heads", "rope_parameters", "attention_dropout"):
        c.pop(k)
    for old, new in zip(("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"), words):
        c[new] = c.pop(old)
    c["n_inner"] = r.choice([None, c.pop("intermediate_size")])
    c["n_positions"] = max(c["n_positions"], 128)
    c["pad_token_id"] = r.choice([3, None])  # which freezes no embedding here
    return dict(c, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)


def gpt2(j, r):
    return T.GPT2Config(**gpt(j, r), activation_function=r.choice(["gelu_new", "gelu_new", "gelu", "relu"]))


def openai_gpt(j, r):
    c = gpt(j, r)
    c.pop("n_inner")
    return T.OpenAIGPTConfig(**c, afn=r.choice(["gelu", "gelu", "relu", "silu"]))


def fairseq(j, r, eps):
    c = layer_norm(no_head(plain(j, r, kinds=["default"]), r), eps)
    for k in ("num_key_value_heads", "rope_parameters", "attention_dropout"):
        c.pop(k)
    c["max_position_embeddings"] = max(c["max_position_embeddings"], 128)
    c["pad_token_id"] = r.choice([1, 3, None])
    return dict(c, scale_embedding=r.random() < .6)


def biogpt(j, r):
    return T.BioGptConfig(**fairseq(j, r, "layer_norm_eps"), hidden_act=r.choice(["gelu", "gelu", "relu"]), hidden_dropout_prob=0.0,
                          attention_probs_dropout_prob=0.0)


def xglm(j, r):
    c = fairseq(j, r, "unread")
    for old, new in (("hidden_size", "d_model"), ("num_hidden_layers", "num_layers"), ("num_attention_heads", "attention_heads"),
                     ("intermediate_size", "ffn_dim")):
        c[new] = c.pop(old)
    return T.XGLMConfig(**c, activation_function=r.choice(["gelu", "gelu", "relu"]), dropout=0.0, attention_dropout=0.0)


def gpt_bigcode(j, r):
    return T.GPTBigCodeConfig(**gpt(j, r), multi_query=r.random() < .6)


def gptj(j, r):
    c = gpt(j, r)
    c["tie_word_embeddings"] = False  # a head with a bias
    return T.GPTJConfig(**c, rotary_dim=r.choice([2, 4, 8]))


def codegen(j, r):
    c = gpt(j, r)
    c["tie_word_embeddings"] = False
    head = c["n_embd"] // c["n_head"]
    c["n_head"] = r.choice([4, 8])
    c["n_embd"] = c["n_head"] * head
    return T.CodeGenConfig(**c, rotary_dim=r.choice([2, 4, 8]))


def opt(j, r):
    c = no_head(plain(j, r, kinds=["default"]), r)
    for k in ("num_key_value_heads", "rope_parameters", "rms_norm_eps"):
        c.pop(k)
    c["max_position_embeddings"] = max(c["max_position_embeddings"], 128)
    c["pad_token_id"] = r.choice([1, None])
    return T.OPTConfig(**c, dropout=0.0, ffn_dim=c.pop("intermediate_size"), enable_bias=r.random() < .7)


def opt_350m(j, r):
    c = opt(j, r)
    c.do_layer_norm_before = r.random() < .3
    c._remove_final_layer_norm = r.random() < .3
    c.layer_norm_elementwise_affine = r.random() < .7
    c.word_embed_proj_dim = r.choice([c.hidden_size, 12, 40])
    return c


def alibi_heads(r):
    """Heads, of which some numbers are no power of two, and the width."""
    heads = r.choice([1, 2, 3, 4, 6, 8, 11, 12])
    return heads, heads * r.choice([4, 6, 8, 12, 16])


def bloom(j, r):
    heads, hidden = alibi_heads(r)
    return T.BloomConfig(vocab_size=r.choice([512, 517, 600]), hidden_size=hidden, n_layer=r.choice([2, 3]), n_head=heads,
                         layer_norm_epsilon=r.choice([1e-6, 1e-5, 1e-3]), tie_word_embeddings=r.random() < .7,
                         pad_token_id=r.choice([3, None]), bos_token_id=1, eos_token_id=2,
                         apply_residual_connection_post_layernorm=r.random() < .3)


def mpt(j, r):
    heads, hidden = alibi_heads(r)
    own = dict(clip_qkv=r.choice([None, None, 0.3]),
               softmax_scale=r.choice([None, None, 0.4]))
    return T.MptConfig(vocab_size=r.choice([512, 517, 600]), d_model=hidden, n_layers=r.choice([2, 3]), n_heads=heads,
                       max_seq_len=r.choice([64, 128]), layer_norm_epsilon=r.choice([1e-6, 1e-5, 1e-3]),
                       attn_config=r.choice([None, own]), pad_token_id=r.choice([3, None]))


def dbrx(j, r):
    heads, kv = r.choice([(4, 2), (6, 3), (4, 4), (3, 1)])
    return T.DbrxConfig(vocab_size=r.choice([512, 517]), d_model=heads * r.choice([8, 12, 16]), n_heads=heads,
                        n_layers=r.choice([2, 3]), max_seq_len=r.choice([64, 128]), pad_token_id=r.choice([3, None]),
                        attn_config=dict(kv_n_heads=kv, clip_qkv=r.choice([0.3, 8.0]), rope_theta=1e4),
                        rope_parameters={"rope_type": "default", "rope_theta": r.choice([1e4, 5e5])},
                        ffn_config=dict(ffn_hidden_size=r.choice([20, 36]), moe_num_experts=r.choice([4, 5]),
                                        moe_top_k=r.choice([1, 2, 3]), moe_normalize_expert_weights=r.choice([1.0, 1.0, None]),
                                        ffn_act_fn={"name": r.choice(["silu", "silu", "gelu"])}))


def falcon_alibi(j, r):
    c = falcon(j, r)
    c.alibi = True
    return c


def persimmon(j, r):
    c = layer_norm(no_head(part(plain(j, r, dims=(8, 16)), r, (0.5, 1.0), LINEAR), r))
    c.pop("num_key_value_heads")
    return T.PersimmonConfig(**c, qk_layernorm=r.random() < .7)


def phimoe(j, r):
    c = plain(j, r, kinds=["default"])
    return T.PhimoeConfig(**c, num_local_experts=r.choice([3, 6]), num_experts_per_tok=2, attention_bias=r.random() < .5,
                          lm_head_bias=not c["tie_word_embeddings"] and r.random() < .5, sliding_window=r.choice([None, 5]),
                          router_jitter_noise=r.choice([0.01, 0.2, 0.5]))


def hyperclovax(j, r):
    c = plain(j, r)
    c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 12])
    return T.HyperCLOVAXConfig(**c, attention_bias=r.random() < .3, mlp_bias=r.random() < .3, use_post_norm=r.random() < .7,
                               embedding_multiplier=r.choice([1.0, 3.0]), residual_multiplier=r.choice([1.0, 0.4]),
                               attention_multiplier=r.choice([None, 0.2]), logits_scaling=r.choice([1.0, 0.3]))


def minicpm3(j, r):
    c = plain(j, r, kinds=["default"])
    c.pop("head_dim")
    c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 10])
    c["num_key_value_heads"] = c["num_attention_heads"]
    rope = r.choice([4, 8])
    if r.random() < .6:
        c["rope_parameters"] = {"rope_type": "longrope", "rope_theta": 1e4, "factor": r.choice([1.0, 2.0]),
                                "short_factor": [1.0 + r.random() for _ in range(rope // 2)],
                                "long_factor": [1.0 + 3 * r.random() for _ in range(rope // 2)],
                                "original_max_position_embeddings": r.choice([2, 64])}
    mup = r.choice([dict(scale_emb=12, scale_depth=1.4, dim_model_base=256),  # those of llama.cpp
                    dict(scale_emb=r.choice([1, 2.5]), scale_depth=r.choice([None, 1.4]), dim_model_base=r.choice([None, 16]))])
    return T.MiniCPM3Config(**c, **mup, q_lora_rank=r.choice([None, 12, 12]), kv_lora_rank=r.choice([8, 16]), qk_rope_head_dim=rope,
                            qk_nope_head_dim=r.choice([6, 8]), v_head_dim=r.choice([None, 6, 8]), attention_bias=r.random() < .3)


def hy_v3(j, r):
    c = plain(j, r)
    n = c["num_hidden_layers"]
    return T.HYV3Config(**c, attention_bias=r.random() < .3, num_experts=r.choice([3, 6]), num_experts_per_tok=r.choice([1, 2]),
                        num_shared_experts=r.choice([1, 2]), moe_intermediate_size=r.choice([8, 16]),
                        router_scaling_factor=r.choice([1.0, 2.5]),
                        mlp_layer_types=r.choice([None, [r.choice(["dense", "sparse"]) for _ in range(n)]]))


def llama4_text(j, r):
    c = plain(j, r)
    if r.random() < .3:  # what llama.cpp has a form for
        c["num_hidden_layers"] = r.choice([3, 5])
        return T.Llama4TextConfig(**c, intermediate_size_mlp=r.choice([24, 40]), num_local_experts=r.choice([3, 6]),
                                  num_experts_per_tok=r.choice([1, 1, 2]), interleave_moe_layer_step=r.choice([1, 2]))
    n = c["num_hidden_layers"]
    more = r.choice([{}, dict(moe_layers=[i for i in range(n) if r.random() < .6]), dict(interleave_moe_layer_step=2)])
    return T.Llama4TextConfig(**c, **more, intermediate_size_mlp=r.choice([24, 40]), num_local_experts=r.choice([3, 6]),
                              num_experts_per_tok=r.choice([1, 1, 2]), use_qk_norm=r.random() < .7, attention_bias=r.random() < .3,
                              no_rope_layers=r.choice([None, [r.choice([0, 1]) for _ in range(n)]]),
                              no_rope_layer_interval=r.choice([2, 3, 4]), attention_chunk_size=r.choice([3, 8, 8192]),
                              attn_temperature_tuning=r.random() < .8, floor_scale=r.choice([2, 5, 8192]),
                              attn_scale=r.choice([0.1, 0.4]), layer_types=r.choice([None, None, [
                                  r.choice(["chunked_attention", "full_attention"]) for _ in range(n)]]))


def gemma3n_text(j, r):
    c = plain(j, r, kinds=["default"])
    n = c["num_hidden_layers"]
    c["hidden_size"] = c["num_attention_heads"] * r.choice([6, 10, 14])
    c.pop("rope_parameters")
    kinds = [r.choice(["sliding_attention", "full_attention"]) for _ in range(n)]
    shared = r.choice([0, 1, 2])
    kinds[0], kinds[1] = "sliding_attention", "full_attention"
    shared = min(shared, n - 2)
    streams = r.choice([2, 3, 4])
    return T.Gemma3nTextConfig(**{**c, "intermediate_size": r.choice([36, [r.choice([20, 36]) for _ in range(n)]])}, sliding_window=r.choice([3, 9]), layer_types=kinds, num_kv_shared_layers=shared,
                               vocab_size_per_layer_input=c["vocab_size"], hidden_size_per_layer_input=r.choice([4, 8]),
                               laurel_rank=r.choice([3, 8]), altup_num_inputs=streams, altup_active_idx=r.randrange(streams),
                               altup_correct_scale=r.random() < .7, attention_bias=r.random() < .3,
                               final_logit_softcapping=r.choice([3.0, 30.0]), activation_sparsity_pattern=r.choice([
                                   None, [r.choice([0.0, 0.5, 0.95, 0.3]) for _ in range(n)]]),
                               rope_parameters={k + "_attention": {"rope_type": "default", "rope_theta": r.choice([1e4, 777.0])}
                                                for k in ("full", "sliding")})


def gemma3n_sizes(j, r):
    """Of the sizes that llama.cpp has in its source: 4 streams, 20 layers with keys, 10 sparse ones."""
    c = plain(j, r, kinds=["default"])
    n = c["num_hidden_layers"] = r.choice([20, 22, 23])
    c["hidden_size"] = c["num_attention_heads"] * r.choice([6, 10])
    c.pop("rope_parameters")
    kinds = [("full" if (i + 1) % 5 == 0 else "sliding") + "_attention" for i in range(n)]
    return T.Gemma3nTextConfig(**{**c, "intermediate_size": 36}, sliding_window=r.choice([3, 9]), layer_types=kinds,
                               num_kv_shared_layers=n - 20, vocab_size_per_layer_input=c["vocab_size"],
                               hidden_size_per_layer_input=256, laurel_rank=64, altup_num_inputs=4, altup_active_idx=0,
                               final_logit_softcapping=30.0,
                               activation_sparsity_pattern=[0.95] * 10 + [0.0] * (n - 10),
                               rope_parameters={k + "_attention": {"rope_type": "default", "rope_theta": r.choice([1e4, 777.0])}
                                                for k in ("full", "sliding")})


def internlm3(j, r):
    c = plain(j, r)
    bias = r.random() < .5
    return T.InternLM3Config(**c, attention_bias=bias, mlp_bias=bias)


def iquestcoder(j, r):
    return T.IQuestCoderConfig(**plain(j, r), attention_bias=r.random() < .3, mlp_bias=r.random() < .3)


def laguna(j, r):
    c = plain(j, r, kinds=["default"], dims=(8, 16))
    n, kv = c["num_hidden_layers"], c["num_key_value_heads"]
    c.pop("rope_parameters")
    ropes = {k + "_attention": {"rope_type": "default", "rope_theta": r.choice([1e4, 777.0]),
                                "partial_rotary_factor": r.choice([0.5, 1.0])} for k in ("full", "sliding")}
    return T.LagunaConfig(**c, rope_parameters=r.choice([None, ropes, ropes]), attention_bias=r.random() < .3,
                          sliding_window=r.choice([3, 9]), gating=r.choice([True, "per-head", "per-element"]),
                          num_attention_heads_per_layer=r.choice([None, [kv * r.choice([1, 2, 3]) for _ in range(n)]]),
                          moe_intermediate_size=r.choice([8, 16]), shared_expert_intermediate_size=r.choice([8, 24]),
                          num_experts=r.choice([3, 6]), num_experts_per_tok=r.choice([1, 2]), moe_routed_scaling_factor=r.choice([1.0, 2.5]),
                          moe_router_logit_softcapping=r.choice([0.0, 0.7]),
                          mlp_layer_types=r.choice([None, [r.choice(["dense", "sparse"]) for _ in range(n)]]),
                          layer_types=r.choice([None, [r.choice(["full_attention", "sliding_attention"]) for _ in range(n)]]))


def mimo_v2_flash(j, r):
    c = plain(j, r, kinds=["default"], dims=(8, 12, 16))
    n, e, kv = c["num_hidden_layers"], c["head_dim"], r.choice([1, 2])
    c.update(num_key_value_heads=kv, num_attention_heads=2 * kv * r.choice([1, 2, 3]))
    c.pop("rope_parameters")
    ropes = {k + "_attention": {"rope_type": "default", "rope_theta": r.choice([1e4, 777.0]),
                                "partial_rotary_factor": r.choice([0.334, 0.5, 1.0])} for k in ("full", "sliding")}
    groups = r.choice([(1, 1), (3, 2)])
    return T.MiMoV2FlashConfig(**c, rope_parameters=r.choice([None, ropes, ropes]), v_head_dim=r.choice([4, 5, e]),
                               attention_bias=r.random() < .3, sliding_window=r.choice([3, 9]), n_routed_experts=6,
                               attention_value_scale=r.choice([0.707, None, 1.3]), n_group=groups[0], topk_group=groups[1],
                               moe_intermediate_size=r.choice([8, 16]), num_experts_per_tok=r.choice([1, 2, 3]),
                               norm_topk_prob=r.random() < .7, routed_scaling_factor=r.choice([1.0, 1.0, 2.5]),
                               mlp_layer_types=r.choice([None, [r.choice(["dense", "sparse"]) for _ in range(n)]]),
                               layer_types=r.choice([None, [r.choice(["full_attention", "sliding_attention"]) for _ in range(n)]]))


def minimax(j, r):
    c = plain(j, r)
    n = c["num_hidden_layers"]
    factors = {f"{k}_{f}_factor": r.choice([1, 1, 0.7, 3.5]) for k in ("full_attn", "linear_attn", "mlp") for f in ("alpha", "beta")}
    return T.MiniMaxConfig(**c, **factors, block_size=r.choice([4, 16, 256]), sliding_window=r.choice([None, None, 5]),
                           num_local_experts=r.choice([3, 6]), num_experts_per_tok=r.choice([1, 2]),
                           layer_types=r.choice([None, [r.choice(["full_attention", "linear_attention"]) for _ in range(n)]]))


def minimax_m3_vl_text(j, r):
    c = part(plain(j, r, dims=(8, 16)), r)
    n, kv = c["num_hidden_layers"], c["num_key_value_heads"]
    return T.MiniMaxM3VLTextConfig(**c, num_local_experts=r.choice([3, 6]), num_experts_per_tok=r.choice([1, 2]), index_n_heads=kv,
                                   shared_intermediate_size=r.choice([8, 24]), dense_intermediate_size=r.choice([8, 20]),
                                   routed_scaling_factor=r.choice([1.0, 2.0]), swiglu_limit=r.choice([0.5, 7.0]),
                                   index_head_dim=r.choice([8, 16]), index_block_size=r.choice([16, 128]), index_topk_blocks=32,
                                   mlp_layer_types=r.choice([None, [r.choice(["dense", "sparse"]) for _ in range(n)]]),
                                   layer_types=r.choice([None, [r.choice(["full_attention", "minimax_m3_sparse"]) for _ in range(n)]]))


def flint(j, r):
    c = plain(j, r)
    n = c["num_hidden_layers"]
    return T.FlintConfig(**c, attention_bias=r.random() < .3, sliding_window=r.choice([3, 9]), moe_intermediate_size=r.choice([8, 16]),
                         shared_expert_intermediate_size=r.choice([8, 24]), num_experts=r.choice([3, 6]), num_experts_per_tok=r.choice([1, 2]),
                         norm_topk_prob=r.random() < .7, mlp_only_layers=r.choice([None, [], [1]]), decoder_sparse_step=r.choice([1, 1, 2]),
                         layer_types=r.choice([None, [r.choice(["full_attention", "sliding_attention"]) for _ in range(n)]]))


def cohere2_moe(j, r):
    c = plain(j, r, kinds=["default"])
    if r.random() < .6:
        c.pop("rms_norm_eps")
    return T.Cohere2MoeConfig(**c, logit_scale=r.choice([0.1, 0.5]), sliding_window=r.choice([3, 9]),
                              sliding_window_pattern=r.choice([2, 3]), first_k_dense_replace=r.choice([0, 1]),
                              prefix_dense_sliding_window_pattern=r.choice([1, 2]), num_experts=r.choice([3, 6]),
                              prefix_dense_intermediate_size=r.choice([None, 24]), num_shared_experts=r.choice([0, 1, 2]),
                              num_experts_per_tok=2, expert_selection_fn=r.choice(["softmax", "sigmoid"]),
                              shared_expert_combination_strategy=r.choice(["average", "sum"]),
                              norm_topk_prob=r.random() < .7, attention_bias=r.random() < .3)


def olmo(j, r):
    c = no_head(plain(j, r), r)
    c.pop("rms_norm_eps")
    return T.OlmoConfig(**c, clip_qkv=r.choice([None, 0.05, 8.0]), attention_bias=r.random() < .2)


def nanochat(j, r):
    return T.NanoChatConfig(**plain(j, r), final_logit_softcapping=r.choice([None, 3.0, 15.0]), attention_bias=r.random() < .3)


def gpt_neo(j, r):
    c = layer_norm(no_head(plain(j, r, kinds=["default"]), r), "layer_norm_epsilon")
    for k in ("num_key_value_heads", "rope_parameters"):
        c.pop(k)
    c["num_layers"], c["num_heads"] = c.pop("num_hidden_layers"), c.pop("num_attention_heads")
    c["intermediate_size"] = r.choice([None, c["intermediate_size"]])
    c["max_position_embeddings"] = max(c["max_position_embeddings"], 128)
    kinds = [[[r.choice(["global", "local"])], 1] for _ in range(c["num_layers"])]
    return T.GPTNeoConfig(**c, window_size=r.choice([3, 9]), attention_types=kinds)


def mamba_words(r):
    """Sizes of Mamba-2 layers in the words of mamba2 and nemotron_h."""
    return dict(n_groups=r.choice([1, 2, 4]), conv_kernel=r.choice([2, 4]), use_conv_bias=r.random() < .6, chunk_size=8,
                use_bias=r.random() < .3)


def nemotron_h(j, r):
    c = layer_norm(plain(j, r, kinds=["default"]), "layer_norm_epsilon")
    c.pop("rope_parameters")
    c.pop("num_hidden_layers")
    experts = r.choice([6, 8])
    return T.NemotronHConfig(**c, **mamba_words(r), mamba_num_heads=r.choice([4, 8]), mamba_head_dim=r.choice([6, 8]),
                             ssm_state_size=r.choice([5, 16]), time_step_min=r.choice([0.001, 0.4]),
                             hybrid_override_pattern=r.choice(["M*", "M-M*-", "ME*EM", "MM*-E", "-M*"]), n_routed_experts=experts,
                             n_group=r.choice([1, 2]), topk_group=1, num_experts_per_tok=r.choice([1, 2]),
                             norm_topk_prob=r.random() < .7, routed_scaling_factor=r.choice([1.0, 2.5]), moe_intermediate_size=24,
                             moe_shared_expert_intermediate_size=r.choice([20, 36]), moe_latent_size=r.choice([None, None, 16]))


def bamba(j, r):
    c = no_head(plain(j, r, kinds=["default", "linear"], dims=(8, 16)), r)
    return T.BambaConfig(**c, mamba_n_heads=r.choice([4, 8]), mamba_n_groups=r.choice([1, 2, 4]), mamba_d_conv=r.choice([2, 4]),
                         mamba_d_state=r.choice([5, 16]), mamba_conv_bias=r.random() < .5, mamba_proj_bias=r.random() < .3,
                         attention_bias=r.random() < .3, mlp_bias=r.random() < .3, mamba_chunk_size=8,
                         attn_layer_indices=r.choice([[0], [1]]), time_step_limit=r.choice([[0.0, float("inf")], [0.3, 0.9]]))


def mamba2(j, r):
    c = layer_norm(plain(j, r, kinds=["default"]), "layer_norm_epsilon")
    for k in ("rope_parameters", "num_attention_heads", "num_key_value_heads", "intermediate_size", "max_position_embeddings",
              "head_dim", "attention_dropout"):
        c.pop(k)
    heads, c["hidden_size"] = r.choice([4, 8]), r.choice([16, 40])
    return T.Mamba2Config(**c, **mamba_words(r), num_heads=heads, head_dim=2 * c["hidden_size"] // heads,
                          state_size=r.choice([5, 16]), time_step_limit=r.choice([[0.0, float("inf")], [0.3, 0.9]]))


def mamba(j, r, kind="MambaConfig"):
    c = layer_norm(plain(j, r, kinds=["default"]), "layer_norm_epsilon")
    for k in ("rope_parameters", "num_attention_heads", "num_key_value_heads", "intermediate_size", "max_position_embeddings",
              "head_dim", "attention_dropout"):
        c.pop(k)
    if kind == "FalconMambaConfig" and r.random() < .6:  # llama.cpp has one epsilon for all norms
        c["layer_norm_epsilon"] = 1e-6
    return getattr(T, kind)(**c, state_size=r.choice([3, 16]), conv_kernel=r.choice([2, 4]), expand=r.choice([1, 2]),
                            use_bias=r.random() < .3, use_conv_bias=r.random() < .7, time_step_rank=r.choice(["auto", 5]))


def falcon_mamba(j, r):
    return mamba(j, r, "FalconMambaConfig")


def jamba(j, r):
    c = no_head(plain(j, r, kinds=["default"]), r)
    c.pop("rope_parameters")
    period, other = r.choice([2, 3]), r.choice([1, 2])
    return T.JambaConfig(**c, attn_layer_period=period, attn_layer_offset=r.randrange(period), expert_layer_period=other,
                         expert_layer_offset=r.randrange(other), num_experts=r.choice([1, 3, 6]), num_experts_per_tok=r.choice([1, 2]),
                         mamba_d_state=r.choice([3, 16]), mamba_d_conv=r.choice([2, 4]), mamba_expand=r.choice([1, 2]),
                         mamba_dt_rank=r.choice(["auto", 5]), mamba_conv_bias=r.random() < .7, mamba_proj_bias=r.random() < .3)


def falcon_h1(j, r):
    c = no_head(plain(j, r, kinds=["default", "linear"]), r)
    heads, size, some = r.choice([4, 8]), r.choice([6, 8]), lambda n: [r.choice([0.7, 1.0, 1.3]) for _ in range(n)]
    return T.FalconH1Config(**c, mamba_n_heads=heads, mamba_d_ssm=heads * size, mamba_d_head=size, mamba_n_groups=r.choice([1, 2, 4]),
                            mamba_d_conv=r.choice([2, 4]), mamba_d_state=r.choice([5, 16]), mamba_conv_bias=r.random() < .5,
                            mamba_proj_bias=r.random() < .3, projectors_bias=r.random() < .3, mamba_rms_norm=r.random() < .6,
                            mamba_norm_before_gate=r.random() < .5, attention_bias=r.random() < .3, mlp_bias=r.random() < .3,
                            mamba_chunk_size=8, ssm_multipliers=some(5), mlp_multipliers=some(2),
                            **{k + "_multiplier": some(1)[0] for k in ("lm_head", "embedding", "key", "attention_in", "attention_out",
                                                                       "ssm_in", "ssm_out")})


def zamba2(j, r):
    c = no_head(plain(j, r, kinds=["default", "linear"]), r)
    adapters, n = r.random() < .5, r.choice([4, 6])
    if adapters:
        c["num_key_value_heads"] = c["num_attention_heads"]
    c["hidden_size"] = 4 * c["num_attention_heads"] * r.choice([1, 2])
    c["num_hidden_layers"], c["tie_word_embeddings"] = n, True
    kinds = [r.choice(["mamba", "hybrid"]) for _ in range(n - 2)] + ["hybrid", "mamba"]
    return T.Zamba2Config(**c, layers_block_type=kinds, mamba_d_state=r.choice([5, 16]), mamba_d_conv=r.choice([2, 4]),
                          mamba_ngroups=r.choice([1, 2]), n_mamba_heads=r.choice([2, 4]), chunk_size=8,
                          num_mem_blocks=r.choice([1, 2, 3]), use_shared_attention_adapter=adapters, adapter_rank=r.choice([2, 5]),
                          use_mem_rope=r.random() < .5, add_bias_linear=r.random() < .3, time_step_min=r.choice([0.001, 0.5]))


def jetmoe(j, r):
    c = plain(j, r)
    c["kv_channels"], _ = c.pop("head_dim"), c.pop("num_attention_heads")
    return T.JetMoeConfig(**c, num_local_experts=r.choice([3, 8]), num_experts_per_tok=r.choice([1, 2, 3]),
                          activation_function=r.choice(["silu", "gelu"]))


def diffllama(j, r):
    c = plain(j, r)
    c["num_key_value_heads"], c["num_attention_heads"] = 2 * c["num_key_value_heads"], 2 * c["num_attention_heads"]
    return T.DiffLlamaConfig(**c, attention_bias=r.random() < .3)


def bitnet(j, r):
    c = no_head(plain(j, r), r)
    return T.BitNetConfig(**c, attention_bias=r.random() < .3, hidden_act=r.choice(["relu2", "relu2", "silu"]))


def bitnet_online(j, r):
    return bitnet(j, r)


def bitnet_packed(j, r):
    c = bitnet(j, r)
    c.attention_bias = False
    c.intermediate_size, c.hidden_size = c.intermediate_size // 4 * 4, c.num_attention_heads * r.choice([8, 16])
    return c


CONFIGS = {f.__name__: f for f in (
    olmo3, ministral3, seed_oss, ernie4_5, hunyuan_v1_dense, apertus, arcee, exaone4, cohere, cohere2, cohere_compass_text,
    modernbert_decoder, starcoder2,
    stablelm, nemotron, phi, glm4, glm, mixtral, qwen2_moe, qwen3_5_text, qwen3_next, olmo_hybrid, granitemoehybrid, gpt_oss, lfm2, lfm3,
    glm4_moe, olmoe, dots1, deepseek_v2, deepseek_v3, kimi_linear, bailing_hybrid, axk1, axk2, kolibri1, longcat_flash, deepseek_v32, glm_moe_dsa, glm4_moe_lite, lfm2_moe, qwen3_5_moe_text, gemma4_text, gemma4_unified_text,
    aria_text,
    granitemoe, granitemoeshared, granitemoe_swa, granite_swa, cwm, ministral, helium, jais2, vaultgemma, hunyuan_v1_moe,
    ernie4_5_moe, minimax, minimax_m2, minimax_m3_vl_text, flex_olmo, mellum, solar_open, exaone_moe, afmoe, youtu, mistral4,
    gpt_neox, falcon, gpt2, openai_gpt, biogpt, xglm, gpt_bigcode, gptj, codegen, opt, persimmon, phimoe, hyperclovax,
    minicpm3, hy_v3, internlm3, iquestcoder, laguna, mimo_v2_flash, flint, llama4_text, gemma3n_text, gemma3n_sizes, cohere2_moe, olmo, nanochat, gpt_neo, nemotron_h, bamba, mamba2, mamba, falcon_mamba, jamba, falcon_h1,
    bloom, mpt, falcon_alibi, zamba2, jetmoe, diffllama, bitnet, bitnet_online, bitnet_packed,
    opt_350m, dbrx)}
