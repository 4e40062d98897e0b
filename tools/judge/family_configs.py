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


def part(c, r, choices=(0.25, 0.5, 1.0)):
    c["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": r.choice(choices)}
    return c


def olmo3(j, r):
    c = no_head(plain(j, r), r)
    full = c.pop("rope_parameters")
    return T.Olmo3Config(**c, sliding_window=r.choice([3, 9]), layer_types=j.layer_types(r, c), rope_parameters={
        "full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": full["rope_theta"]}})


def ministral3(j, r):
    c = plain(j, r, kinds=["yarn"])
    c["rope_parameters"]["llama_4_scaling_beta"] = r.choice([0.1, 0.5])
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
    return T.CohereConfig(**c, logit_scale=r.choice([0.1, 1.0]), attention_bias=r.random() < .3)


def cohere2(j, r):
    c = layer_norm(plain(j, r))
    c["tie_word_embeddings"] = True
    return T.Cohere2Config(**c, logit_scale=r.choice([0.1, 1.0]), sliding_window=r.choice([3, 8]),
                           layer_types=j.layer_types(r, c))


def starcoder2(j, r):
    c = layer_norm(no_head(plain(j, r, kinds=["default"]), r), "norm_epsilon")
    return T.Starcoder2Config(**c, sliding_window=r.choice([None, 5]), use_bias=r.random() < .7)


def stablelm(j, r):
    c = part(layer_norm(no_head(plain(j, r, dims=(8, 16)), r)), r)
    return T.StableLmConfig(**c, use_qkv_bias=r.random() < .5, use_parallel_residual=r.random() < .5)


def nemotron(j, r):
    c = part(layer_norm(plain(j, r, dims=(8, 16)), "norm_eps"), r, (0.5, 1.0))
    return T.NemotronConfig(**c, attention_bias=r.random() < .3, mlp_bias=r.random() < .3)


def phi(j, r):
    c = part(layer_norm(no_head(plain(j, r, dims=(8, 16)), r)), r, (0.5,))
    c["tie_word_embeddings"] = False
    return T.PhiConfig(**c)


def glm4(j, r):
    return T.Glm4Config(**part(plain(j, r, dims=(8, 16)), r, (0.5,)), attention_bias=r.random() < .7)


def glm(j, r):
    return T.GlmConfig(**part(plain(j, r, dims=(8, 16)), r, (0.5,)), attention_bias=r.random() < .7)


def mixtral(j, r):
    return T.MixtralConfig(**plain(j, r), num_local_experts=r.choice([3, 4, 8]), num_experts_per_tok=r.choice([1, 2, 3]))


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
    return T.GptOssConfig(**plain(j, r), num_local_experts=r.choice([4, 6]), num_experts_per_tok=r.choice([1, 2, 3]),
                          sliding_window=r.choice([3, 9]))


def lfm2(j, r):
    c = no_head(plain(j, r, kinds=["default"]), r)
    c["norm_eps"] = c.pop("rms_norm_eps")
    return T.Lfm2Config(**c, conv_L_cache=r.choice([2, 3, 4]), conv_bias=r.random() < .3,
                        block_auto_adjust_ff_dim=False, layer_types=linear_layers(r, c, "conv"))


def glm4_moe(j, r):
    c = part(plain(j, r, dims=(8, 16)), r, (0.5,))
    return T.Glm4MoeConfig(**c, attention_bias=r.random() < .5, use_qk_norm=r.random() < .5, n_routed_experts=6,
                           num_experts_per_tok=2, moe_intermediate_size=24, n_shared_experts=r.choice([1, 2]),
                           routed_scaling_factor=r.choice([1.0, 1.7]), n_group=r.choice([1, 3]), topk_group=1,
                           first_k_dense_replace=1, norm_topk_prob=r.random() < .5, num_nextn_predict_layers=0)


CONFIGS = {f.__name__: f for f in (
    olmo3, ministral3, seed_oss, ernie4_5, hunyuan_v1_dense, apertus, arcee, exaone4, cohere, cohere2, starcoder2,
    stablelm, nemotron, phi, glm4, glm, mixtral, qwen2_moe, qwen3_5_text, qwen3_next, granitemoehybrid, gpt_oss, lfm2,
    glm4_moe)}
