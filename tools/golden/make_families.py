#!/usr/bin/env python3
"""tests/golden/families/NAME.json: what transformers computes for tiny models whose weights come from a formula.

Only results are stored: the loss, the logits of the last token of each row, and of every gradient its norm and its
product with a pseudo-random vector. tests/model/family_case.h has the same formula.

    make_families.py [NAME...]        (all without a name; needs torch and transformers)

A family is one entry of FAMILIES: the class of its config and what differs from the common sizes."""
import copy
import json
import pathlib
import re
import sys
import tempfile
import warnings

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "judge"))
import published as repositories  # noqa: E402

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/families"

BASE = dict(vocab_size=48, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=128, bos_token_id=None, eos_token_id=None, pad_token_id=None,
            tie_word_embeddings=False, attention_dropout=0.0)
SHORT, LONG = [11, 7, 4], [70, 9]

# First rule whose text is part of a tensor's name: base and spread of its uniform values.
RULES = [["A_log", -3, 2], ["dt_bias", 0, 0.7], ["sinks", 0, 1], ["conv", 0, 0.6], ["alpha_", 0.5, 0.3],
         ["act_fn.beta", 0.5, 0], ["act_fn.eps", -1e-6, 0], ["bias", 0, 0.2], ["norm", 1, 0.2], ["mamba.D", 1, 0.2],
         ["layer_scalar", 0.8, 0], ["scale", 1, 0.2], ["gate.weight", 0, 0.7], ["router", 0, 0.7], ["embed", 0, 1],
         ["lm_head", 0, 0.4], ["", 0, 0.35]]


def rope(theta=10000.0, **more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **more}}


def layers(text):
    names = {"S": "sliding_attention", "F": "full_attention", "L": "linear_attention", "C": "conv"}
    return {"layer_types": [names[c] for c in text]}


def block(group, mult):
    return {"attention": {"n_heads_in_group": group, "no_op": group is None, "replace_with_linear": False, "window_length": None},
            "ffn": {"ffn_mult": mult, "no_op": mult is None, "replace_with_linear": False}}


DELTA = dict(head_dim=8, linear_conv_kernel_dim=3, linear_key_head_dim=6, linear_value_head_dim=5,
             linear_num_key_heads=2, linear_num_value_heads=6)
EXPERTS = dict(num_experts=5, num_experts_per_tok=3, moe_intermediate_size=12, shared_expert_intermediate_size=10)
MAMBA = dict(mamba_n_heads=6, mamba_n_groups=3, mamba_d_state=7, mamba_d_head=8, mamba_d_conv=3, mamba_expand=2,
             mamba_chunk_size=64, embedding_multiplier=3.0, residual_multiplier=0.7, attention_multiplier=0.3,
             logits_scaling=1.2, position_embedding_type="nope", **layers("LF"), **rope())

# name -> (config class, changes of BASE; None removes a key, options)
# options: published (the family whose code lies in its own repository: the config is of one with equal formulas), long (rows that cross a chunk of 64), rules (put before RULES), hub (changes of the written config.json),
# small (a smaller vocabulary, and one number for the gradients of tensors that differ in their layer or expert alone)
FAMILIES = {
    "llama": ("LlamaConfig", dict(**rope(5e5)), {}),
    "ministral3": ("Ministral3Config", dict(head_dim=8, rope_parameters={
        "rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 4, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.5, "llama_4_scaling_beta": 0.4,
        "max_position_embeddings": 128}), {}),
    "seed_oss": ("SeedOssConfig", dict(head_dim=8, residual_dropout=0.0, attention_out_bias=True, **rope(1e5)), {}),
    "ernie4_5": ("Ernie4_5Config", dict(head_dim=10, use_bias=True, attention_dropout="none", **rope(5e5)), {}),
    "hunyuan_v1_dense": ("HunYuanDenseV1Config", dict(head_dim=8, attention_bias=True, rope_parameters={
        "rope_type": "dynamic", "rope_theta": 1e4, "alpha": 50.0, "factor": 1.0}), {}),
    "olmo3": ("Olmo3Config", dict(sliding_window=4, **layers("SF"), rope_parameters={
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e5},
        "full_attention": {"rope_type": "yarn", "rope_theta": 5e5, "factor": 8.0, "truncate": False,
                           "original_max_position_embeddings": 16}}), {}),
    "apertus": ("ApertusConfig", dict(rope_parameters={
        "rope_type": "llama3", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0}), {}),
    "arcee": ("ArceeConfig", dict(head_dim=6, mlp_bias=True, **rope()), {}),
    "exaone4": ("Exaone4Config", dict(num_hidden_layers=3, sliding_window=4, sliding_window_pattern=3, **rope(1e6)), {}),
    "cohere": ("CohereConfig", dict(logit_scale=0.4, attention_bias=True, **rope()), {}),
    "cohere2": ("Cohere2Config", dict(head_dim=6, logit_scale=0.3, sliding_window=3, **layers("FS"), **rope()), {}),
    "cohere_compass": ("CohereCompassTextConfig", dict(logit_scale=0.3, sliding_window=3, **layers("FS"), rope_parameters={
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}, "full_attention": None}), {}),
    "muse_glimmer": ("MuseGlimmerTextConfig", dict(head_dim=8, num_hidden_layers=3, sliding_window=4, **layers("SSF"), vocab_size=32,
                                                   qk_scale_factor=1.7, output_multiplier=0.6, post_norm_eps=0.01,
                                                   final_logit_softcapping=3.0, layer_rope_theta=[0, 1e4, 0], **rope()),
                     {"small": True, "rules": [["model.norm", 1, 0.2], ["norm", 0, 0.2]]}),
    "modernbert_decoder": ("ModernBertDecoderConfig", dict(
        num_hidden_layers=3, local_attention=8, vocab_size=32, tie_word_embeddings=True, attention_bias=True, num_key_value_heads="none",
        pad_token_id=3, bos_token_id=1, cls_token_id=1, sep_token_id=2, eos_token_id=2,
        rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 2e4},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}),
        {"small": True, "hub": {"rope_parameters": None, "layer_types": None, "global_rope_theta": 2e4, "local_rope_theta": 100.0,
                                "global_attn_every_n_layers": 3}}),
    "nemotron_nas": ("LlamaConfig", dict(vocab_size=32, num_hidden_layers=4, block_configs=[
        block(2, 1.5), block(None, 20.0), block(4, None), block(1, 5.0)], **rope(5e5)),
        {"small": True, "hub": {"model_type": "nemotron-nas", "intermediate_size": None, "num_key_value_heads": None}}),
    "starcoder2": ("Starcoder2Config", dict(**rope(1e5)), {}),
    "stablelm": ("StableLmConfig", dict(use_qkv_bias=True, use_parallel_residual=True, hidden_size=32,
                                        **rope(partial_rotary_factor=0.5)), {}),
    "nemotron": ("NemotronConfig", dict(head_dim=8, mlp_bias=True, **rope(partial_rotary_factor=0.5)),
                 {"rules": [["norm.weight", 0, 0.2], ["norm.bias", 0, 0.2]]}),
    "phi": ("PhiConfig", dict(hidden_size=32, resid_pdrop=0.0, embd_pdrop=0.0, **rope(partial_rotary_factor=0.5)), {}),
    "glm4": ("Glm4Config", dict(head_dim=8, attention_bias=True, **rope(partial_rotary_factor=0.5)), {}),
    "glm": ("GlmConfig", dict(head_dim=8, attention_bias=True, **rope(partial_rotary_factor=0.5)), {}),
    "mixtral": ("MixtralConfig", dict(num_local_experts=5, num_experts_per_tok=2, **rope(1e6)), {}),
    "qwen2_moe": ("Qwen2MoeConfig", dict(num_experts=5, num_experts_per_tok=3, moe_intermediate_size=12,
                                         shared_expert_intermediate_size=14, num_hidden_layers=3, mlp_only_layers=[1],
                                         decoder_sparse_step=1, **rope(1e6)), {}),
    "gpt_oss": ("GptOssConfig", dict(head_dim=6, num_local_experts=5, num_experts_per_tok=3, sliding_window=4,
                                     swiglu_limit=0.8, **layers("SF"), rope_parameters={
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 16,
        "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}), {}),
    "glm4_moe": ("Glm4MoeConfig", dict(head_dim=8, attention_bias=True, use_qk_norm=True, n_routed_experts=6, n_group=3,
                                       topk_group=2, num_experts_per_tok=3, moe_intermediate_size=10, n_shared_experts=2,
                                       routed_scaling_factor=1.6, first_k_dense_replace=1,
                                       **rope(partial_rotary_factor=0.5)), {}),
    "glm4_moe_lite": ("Glm4MoeLiteConfig", dict(q_lora_rank=10, kv_lora_rank=8, qk_nope_head_dim=6, qk_rope_head_dim=4,
                                                v_head_dim=10, n_routed_experts=4, num_experts_per_tok=2,
                                                num_key_value_heads=4, moe_intermediate_size=10, n_shared_experts=1,
                                                attention_bias=True, mlp_layer_types=["sparse", "dense"], **rope()), {}),
    "deepseek_v2": ("DeepseekV2Config", dict(q_lora_rank=None, kv_lora_rank=8, qk_nope_head_dim=6, qk_rope_head_dim=4,
                                             v_head_dim=5, n_routed_experts=6, num_experts_per_tok=2, n_group=3,
                                             topk_group=2, topk_method="group_limited_greedy", num_key_value_heads=4,
                                             moe_intermediate_size=10, n_shared_experts=2, routed_scaling_factor=1.3,
                                             first_k_dense_replace=1, rope_parameters={
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 16, "mscale": 0.7,
        "mscale_all_dim": 0.7, "beta_fast": 32.0, "beta_slow": 1.0}), {}),
    "deepseek_v3": ("DeepseekV3Config", dict(q_lora_rank=10, kv_lora_rank=8, qk_nope_head_dim=6, qk_rope_head_dim=4,
                                             v_head_dim=5, n_routed_experts=8, num_experts_per_tok=3, n_group=4,
                                             topk_group=2, num_key_value_heads=4, moe_intermediate_size=10,
                                             n_shared_experts=1, routed_scaling_factor=2.5, first_k_dense_replace=1,
                                             rope_parameters={
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 16, "mscale": 1.0,
        "mscale_all_dim": 0.6, "beta_fast": 32.0, "beta_slow": 1.0}), {}),
    "gemma4": ("Gemma4TextConfig", dict(num_hidden_layers=5, head_dim=6, global_head_dim=8, attention_k_eq_v=False,
                                        num_kv_shared_layers=2, use_double_wide_mlp=True, sliding_window=4,
                                        hidden_size_per_layer_input=5, vocab_size_per_layer_input=48,
                                        final_logit_softcapping=4.0, **layers("SFSSF"), rope_parameters={
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}), {}),
    "gemma4_moe": ("Gemma4TextConfig", dict(head_dim=6, global_head_dim=8, num_global_key_value_heads=1,
                                            attention_k_eq_v=True, sliding_window=4, hidden_size_per_layer_input=0,
                                            enable_moe_block=True, num_experts=5, top_k_experts=3,
                                            moe_intermediate_size=10, **layers("SF"), rope_parameters={
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}), {}),
    "qwen3_5": ("Qwen3_5TextConfig", dict(**DELTA, num_hidden_layers=3, **layers("LFL"),
                                          **rope(1e6, partial_rotary_factor=0.5)),
                {"long": True, "rules": [["linear_attn.norm", 1, 0.2], ["norm", 0, 0.2]]}),
    "qwen3_next": ("Qwen3NextConfig", dict(**DELTA, **EXPERTS, norm_topk_prob=False, mlp_only_layers=[1], **layers("LF"),
                                           **rope(1e6, partial_rotary_factor=0.5)), {"long": True}),
    "olmoe": ("OlmoeConfig", dict(num_experts=5, num_experts_per_tok=3, norm_topk_prob=True, **rope()), {}),
    "olmoe_gguf": ("OlmoeConfig", dict(num_experts=5, num_experts_per_tok=3, **rope()), {}),
    "dots1": ("Dots1Config", dict(head_dim=6, n_routed_experts=6, num_experts_per_tok=2, n_group=3, topk_group=2,
                                  moe_intermediate_size=10, n_shared_experts=2, norm_topk_prob=True,
                                  routed_scaling_factor=1.4, first_k_dense_replace=1, attention_bias=True, sliding_window=3,
                                  max_window_layers=1, **rope()), {}),
    "lfm2": ("Lfm2Config", dict(conv_L_cache=4, conv_bias=True, attention_dropout="none", block_multiple_of=8,
                                num_hidden_layers=3, **layers("CFC"), **rope(1e6)), {"long": True}),
    "lfm2_moe": ("Lfm2MoeConfig", dict(conv_L_cache=2, attention_dropout="none", num_dense_layers=1, num_experts=5,
                                       num_experts_per_tok=3, moe_intermediate_size=12, routed_scaling_factor=1.4,
                                       **layers("CF"), **rope(1e6)), {"long": True}),
    "granitemoehybrid": ("GraniteMoeHybridConfig", dict(**MAMBA, num_local_experts=5, num_experts_per_tok=3,
                                                        shared_intermediate_size=14), {"long": True}),
    "granitehybrid_dense": ("GraniteMoeHybridConfig", {**MAMBA, "num_local_experts": 0, "shared_intermediate_size": 18,
                                                       "position_embedding_type": "rope"}, {"long": True}),
    # what llama.cpp has a form for, where the entries above go beyond it
    "arcee_gguf": ("ArceeConfig", dict(head_dim=8, **rope()), {}),
    "cohere_gguf": ("CohereConfig", dict(tie_word_embeddings=True, logit_scale=0.4, **rope()), {}),
    "cohere2_gguf": ("Cohere2Config", dict(num_hidden_layers=4, head_dim=6, tie_word_embeddings=True, logit_scale=0.3,
                                           sliding_window=3, **layers("SSSF"), **rope()), {}),
    "ernie4_5_gguf": ("Ernie4_5Config", dict(head_dim=10, attention_dropout="none", **rope()), {}),
    "exaone4_gguf": ("Exaone4Config", dict(sliding_window=None, **layers("FF"), **rope(1e6)), {}),
    "qwen3_next_gguf": ("Qwen3NextConfig", {**DELTA, **EXPERTS, "linear_value_head_dim": 6, "norm_topk_prob": True,
                                            **layers("LF"), **rope(1e6, partial_rotary_factor=0.5)}, {"long": True}),
    "granitehybrid_gguf": ("GraniteMoeHybridConfig", {**MAMBA, "mamba_n_groups": 1, "num_local_experts": 5,
                                                      "num_experts_per_tok": 3, "shared_intermediate_size": 14},
                           {"long": True}),
    "glm_gguf": ("GlmConfig", dict(hidden_size=32, head_dim=8, **rope(partial_rotary_factor=0.5)), {}),
    "hunyuan_gguf": ("HunYuanDenseV1Config", dict(head_dim=8, **rope()), {}),
    "nemotron_gguf": ("NemotronConfig", dict(hidden_size=32, head_dim=8, **rope(partial_rotary_factor=0.5)),
                      {"rules": [["norm.weight", 0, 0.2], ["norm.bias", 0, 0.2]]}),
    "olmo3_gguf": ("Olmo3Config", dict(num_hidden_layers=4, sliding_window=4, **layers("SSSF"), rope_parameters={
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e5},
        "full_attention": {"rope_type": "yarn", "rope_theta": 5e5, "factor": 8.0,
                           "original_max_position_embeddings": 16}}), {}),
    "seed_oss_gguf": ("SeedOssConfig", dict(head_dim=8, residual_dropout=0.0, **rope(1e5)), {}),
}


GRANITE = dict(embedding_multiplier=3.0, residual_multiplier=0.7, attention_multiplier=0.3, logits_scaling=1.2)
TOP2 = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8)
LATENT = dict(num_key_value_heads=4, q_lora_rank=8, kv_lora_rank=6, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=5)
ROUTED = dict(n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, n_shared_experts=1, n_group=2, topk_group=2,
              routed_scaling_factor=1.4)
INDEXER = dict(index_topk=16, index_head_dim=6, index_n_heads=2)
THETAS = dict(num_hidden_layers=3, sliding_window=3, layer_rope_theta=[1e4, 0, 500.0])
GPT = dict(num_key_value_heads="none", intermediate_size="none", attention_dropout="none")
SMALL = {
    "granitemoe": ("GraniteMoeConfig", dict(**GRANITE, num_local_experts=4, num_experts_per_tok=2, **rope())),
    "granitemoeshared": ("GraniteMoeSharedConfig", dict(**GRANITE, num_local_experts=4, num_experts_per_tok=2,
                                                        shared_intermediate_size=10, **rope())),
    "granitemoe_swa": ("GraniteMoeSWAConfig", dict(**GRANITE, **THETAS, num_local_experts=4, num_experts_per_tok=2,
                                                   shared_intermediate_size=10, **rope())),
    "granite_swa": ("GraniteSWAConfig", dict(**GRANITE, **THETAS, attention_bias=True, **rope())),
    "cwm": ("CwmConfig", dict(head_dim=8, bos_token_id=0, eos_token_id=1, num_hidden_layers=3, sliding_window=3, **rope(1e6))),
    "ministral": ("MinistralConfig", dict(head_dim=8, sliding_window=3, **rope())),
    "helium": ("HeliumConfig", dict(head_dim=6, attention_bias=True, **rope(1e5))),
    "cohere_qk_norm": ("CohereConfig", dict(tie_word_embeddings=True, use_qk_norm=True, logit_scale=0.4, **rope())),
    "jais2": ("Jais2Config", dict(**rope())),
    "vaultgemma": ("VaultGemmaConfig", dict(head_dim=8, sliding_window=3, query_pre_attn_scalar=10,
                                            attn_logit_softcapping=2.0, final_logit_softcapping=3.0, **rope())),
    "hunyuan_v1_moe": ("HunYuanMoEV1Config", dict(head_dim=8, num_experts=4, moe_topk=[2, 2], **rope())),
    "ernie4_5_moe": ("Ernie4_5_MoeConfig", dict(moe_num_experts=4, moe_k=2, moe_intermediate_size=8, attention_dropout="none",
                                                moe_num_shared_experts=1, **rope(5e5))),
    "minimax_m2": ("MiniMaxM2Config", dict(head_dim=8, num_local_experts=4, num_experts_per_tok=2,
                                           **rope(5e6, partial_rotary_factor=0.5))),
    "minimax_m3": ("MiniMaxM3VLTextConfig", dict(head_dim=8, num_local_experts=4, num_experts_per_tok=2, intermediate_size=8,
                                                 shared_intermediate_size=10, dense_intermediate_size=14, swiglu_limit=0.8,
                                                 mlp_layer_types=["dense", "sparse"], index_n_heads=2, index_head_dim=6,
                                                 index_block_size=4, index_topk_blocks=4,
                                                 layer_types=["full_attention", "minimax_m3_sparse"],
                                                 **rope(5e6, partial_rotary_factor=0.5))),
    "flex_olmo": ("FlexOlmoConfig", dict(num_experts=4, num_experts_per_tok=2, norm_topk_prob=True, **rope(5e5))),
    "mellum": ("MellumConfig", dict(head_dim=6, sliding_window=3, mlp_layer_types=["sparse", "dense"], **TOP2, **layers("SF"),
                                    rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 5e5},
                                                     "sliding_attention": {"rope_type": "default", "rope_theta": 1e3}})),
    "solar_open": ("SolarOpenConfig", dict(head_dim=6, attention_bias=True, intermediate_size="none", **ROUTED, **rope(1e6))),
    "exaone_moe": ("ExaoneMoeConfig", dict(sliding_window=3, sliding_window_pattern=2, num_shared_experts=1, **TOP2,
                                           **rope(1e6))),
    "afmoe": ("AfmoeConfig", dict(head_dim=6, sliding_window=3, global_attn_every_n_layers=2, num_shared_experts=1,
                                  mup_enabled=True, route_scale=1.4, **TOP2, **rope())),
    "youtu": ("YoutuConfig", dict(**LATENT, **rope())),
    "axk1": ("AXK1Config", {**LATENT, **ROUTED, "q_lora_rank": 9, "mlp_layer_types": ["dense", "sparse"], **rope()}),
    "kolibri1": ("Kolibri1Config", dict(head_dim=6, sliding_window=3, num_hidden_layers=2, intermediate_size="none",
                                        shared_expert_intermediate_size=10, norm_topk_prob=True, **TOP2, **layers("SF"), **rope())),
    "longcat_flash": ("LongcatFlashConfig", {**LATENT, "num_hidden_layers": "none", "intermediate_size": "none", "num_layers": 2,
                                             "ffn_hidden_size": 20, "head_dim": 4, "n_routed_experts": 4, "zero_expert_num": 3,
                                             "moe_topk": 3, "expert_ffn_hidden_size": 8, "routed_scaling_factor": 1.7, **rope()}),
    "axk2": ("AXK2Config", {**LATENT, **ROUTED, **INDEXER, "n_group": "none", "topk_group": "none", "gated_norm_rank": 3,
                            "mlp_layer_types": ["dense", "sparse"], **rope()}),
    "deepseek_v32": ("DeepseekV32Config", {**LATENT, **ROUTED, **INDEXER, "first_k_dense_replace": 1, **rope()}),
    "glm_moe_dsa": ("GlmMoeDsaConfig", {**LATENT, **ROUTED, **INDEXER, "mlp_layer_types": ["sparse", "dense"],
                                        "indexer_types": ["full", "shared"], **rope()}),
    "mistral4": ("Mistral4Config", {**LATENT, **ROUTED, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 4, "mscale": 1.0,
        "mscale_all_dim": 0.6, "llama_4_scaling_beta": 0.3}}),
    "gpt_neox": ("GPTNeoXConfig", dict(hidden_size=32, num_key_value_heads="none", **rope(partial_rotary_factor=0.5))),
    "falcon": ("FalconConfig", dict(num_key_value_heads="none", intermediate_size="none", ffn_hidden_size=20, num_kv_heads=2,
                                    new_decoder_architecture=True, **rope())),
    "falcon_old": ("FalconConfig", dict(num_key_value_heads="none", intermediate_size="none", multi_query=False,
                                        parallel_attn=False, bias=True, ffn_hidden_size=20, **rope())),
    "gpt2": ("GPT2Config", dict(**GPT, n_inner=20, tie_word_embeddings=True)),
    "openai_gpt": ("OpenAIGPTConfig", dict(**GPT, tie_word_embeddings=True)),
    "biogpt": ("BioGptConfig", dict(num_key_value_heads="none", attention_dropout="none", num_hidden_layers=1,
                                    tie_word_embeddings=True, pad_token_id=1)),
    "xglm": ("XGLMConfig", dict(num_key_value_heads="none", intermediate_size="none", ffn_dim=20, num_hidden_layers=1,
                                tie_word_embeddings=True, pad_token_id=3)),
    "gpt_bigcode": ("GPTBigCodeConfig", dict(**GPT, tie_word_embeddings=True)),
    "gpt_bigcode_mha": ("GPTBigCodeConfig", dict(**GPT, n_inner=20, multi_query=False)),
    "gptj": ("GPTJConfig", dict(**GPT, rotary_dim=4)),
    "codegen": ("CodeGenConfig", dict(**GPT, n_inner=20, rotary_dim=2)),
    "opt": ("OPTConfig", dict(num_key_value_heads="none", intermediate_size="none", ffn_dim=20, tie_word_embeddings=True,
                              pad_token_id=1)),
    "olmoe_clip": ("OlmoeConfig", dict(num_experts=3, num_experts_per_tok=2, clip_qkv=0.8, **rope())),
    "dbrx": ("DbrxConfig", dict(num_key_value_heads="none", intermediate_size="none", attention_dropout="none",
                                num_attention_heads="none", num_hidden_layers="none", hidden_size="none",
                                max_position_embeddings="none", d_model=24, n_heads=4, n_layers=2, max_seq_len=128,
                                attn_config=dict(kv_n_heads=2, clip_qkv=0.9, rope_theta=5e5), ffn_config=dict(
                                    ffn_hidden_size=12, moe_num_experts=4, moe_top_k=2), **rope(5e5))),
    "opt_350m": ("OPTConfig", dict(num_key_value_heads="none", intermediate_size="none", ffn_dim=20, tie_word_embeddings=True,
                                   word_embed_proj_dim=14, do_layer_norm_before=False)),
    "persimmon": ("PersimmonConfig", dict(hidden_size=32, num_key_value_heads="none", **rope(partial_rotary_factor=0.5))),
    "stablelm_qk_norm": ("StableLmConfig", dict(hidden_size=32, qk_layernorm=True, **rope(partial_rotary_factor=0.5))),
    "phi_qk_norm": ("PhiConfig", dict(hidden_size=32, num_key_value_heads=4, qk_layernorm=True,
                                      **rope(partial_rotary_factor=0.5))),
    "phimoe": ("PhimoeConfig", dict(num_local_experts=4, num_experts_per_tok=2, router_jitter_noise=0.3, attention_bias=True,
                                    lm_head_bias=True, **rope(1e6))),
    "hyperclovax": ("HyperCLOVAXConfig", dict(**GRANITE, head_dim=8, **rope())),
    "minicpm3": ("MiniCPM3Config", {**LATENT, "scale_emb": 3, "scale_depth": 0.9, "dim_model_base": 10, "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 1e4, "factor": 2.0, "short_factor": [1.0, 1.3], "long_factor": [1.5, 2.0],
        "original_max_position_embeddings": 2}}),
    "hy_v3": ("HYV3Config", dict(head_dim=6, router_scaling_factor=1.4, num_shared_experts=1, **TOP2, **rope())),
    "llama4_text": ("Llama4TextConfig", dict(head_dim=6, num_hidden_layers=3, intermediate_size=12, intermediate_size_mlp=20,
                                             interleave_moe_layer_step=2, num_local_experts=4, num_experts_per_tok=2,
                                             no_rope_layers=[1, 0, 1], attention_chunk_size=3, floor_scale=2, attn_scale=0.3,
                                             **rope())),
    "gemma3n": ("Gemma3nTextConfig", dict(head_dim=6, num_hidden_layers=4, intermediate_size=[20, 12, 20, 16], sliding_window=3,
                                          **layers("SFSF"), num_kv_shared_layers=2, vocab_size_per_layer_input=20,
                                          hidden_size_per_layer_input=5, laurel_rank=3, altup_num_inputs=3, altup_active_idx=1,
                                          activation_sparsity_pattern=[0.7, 0.0, 0.3, 0.0], final_logit_softcapping=3.0,
                                          tie_word_embeddings=True, rope_parameters={
        "full_attention": {"rope_type": "default", "rope_theta": 1e4},
        "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}})),
    "gemma4_unified": ("Gemma4UnifiedTextConfig", dict(head_dim=6, num_hidden_layers=4, global_head_dim=8, sliding_window=3,
                                                       num_global_key_value_heads=1, attention_k_eq_v=True,
                                                       num_kv_shared_layers=1, use_double_wide_mlp=True,
                                                       final_logit_softcapping=4.0, **layers("SFSF"), rope_parameters={
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})),
    "aria": ("AriaTextConfig", dict(head_dim=8, intermediate_size=10, moe_num_experts=5, moe_topk=3, moe_num_shared_experts=2,
                                    attention_bias=True, **rope())),
    "laguna": ("LagunaConfig", dict(head_dim=8, num_hidden_layers=2, num_attention_heads_per_layer=[4, 6], sliding_window=3,
                                    shared_expert_intermediate_size=10, moe_routed_scaling_factor=1.4,
                                    moe_router_logit_softcapping=0.9, **layers("SF"), **TOP2, rope_parameters={
        "full_attention": {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0}})),
    "internlm3": ("InternLM3Config", dict(head_dim=8, attention_bias=True, mlp_bias=True, **rope())),
    "iquestcoder": ("IQuestCoderConfig", dict(head_dim=8, **rope())),
    "flint": ("FlintConfig", dict(head_dim=6, num_hidden_layers=3, sliding_window=3, mlp_only_layers=[1],
                                  shared_expert_intermediate_size=10, **layers("FSS"), **TOP2, **rope())),
    "cohere2_moe": ("Cohere2MoeConfig", dict(head_dim=6, num_hidden_layers=3, tie_word_embeddings=True, logit_scale=0.3,
                                             sliding_window=3, sliding_window_pattern=2, first_k_dense_replace=1,
                                             prefix_dense_intermediate_size=14, num_shared_experts=1, num_experts=4,
                                             num_experts_per_tok=2, expert_selection_fn="sigmoid", **rope())),
    "olmo": ("OlmoConfig", dict(clip_qkv=0.6, **rope())),
    "jetmoe": ("JetMoeConfig", dict(num_attention_heads="none", kv_channels=8, num_local_experts=4, num_experts_per_tok=2,
                                    rms_norm_eps=1e-3, **rope())),
    "diffllama": ("DiffLlamaConfig", dict(head_dim=8, attention_bias=True, **rope())),
    "bitnet": ("BitNetConfig", dict(attention_bias=True, **rope(5e5))),
    "bitnet_online": ("BitNetConfig", dict(tie_word_embeddings=True, **rope(5e5))),
    "nanochat": ("NanoChatConfig", dict(head_dim=8, final_logit_softcapping=3.0, **rope())),
    "gpt_neo": ("GPTNeoConfig", dict(num_key_value_heads="none", num_hidden_layers="none", num_attention_heads="none",
                                     num_layers=2, num_heads=4, window_size=4, attention_types=[[["global", "local"], 1]],
                                     tie_word_embeddings=True)),
    "bloom": ("BloomConfig", dict(num_key_value_heads="none", intermediate_size="none", max_position_embeddings="none",
                                  num_attention_heads=3, tie_word_embeddings=True)),
    "bloom_normed": ("BloomConfig", dict(num_key_value_heads="none", intermediate_size="none", max_position_embeddings="none",
                                         num_hidden_layers=1, apply_residual_connection_post_layernorm=True)),
    "opt_bare": ("OPTConfig", dict(num_key_value_heads="none", intermediate_size="none", ffn_dim=20, num_hidden_layers=1,
                                   layer_norm_elementwise_affine=False, enable_bias=False)),
    "mpt": ("MptConfig", dict(num_key_value_heads="none", intermediate_size="none", max_position_embeddings="none",
                              attention_dropout="none", num_attention_heads=4, attn_config=dict(clip_qkv=0.6),
                              tie_word_embeddings=True)),
    "falcon_alibi": ("FalconConfig", dict(num_key_value_heads="none", intermediate_size="none", ffn_hidden_size=20, alibi=True,
                                          num_attention_heads=3, bias=True, **rope())),
    "mimo_v2_flash": ("MiMoV2FlashConfig", dict(num_hidden_layers=3, num_key_value_heads=1, head_dim=8, v_head_dim=5,
                                                sliding_window=3, **layers("FSS"), attention_bias=True, n_routed_experts=6,
                                                n_group=3, topk_group=2, num_experts_per_tok=2, moe_intermediate_size=8,
                                                routed_scaling_factor=1.4, mlp_layer_types=["sparse", "dense", "sparse"],
                                                rope_parameters={
        "full_attention": {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}})),
    # what llama.cpp has a form for, where the entries above go beyond it
    "minicpm3_gguf": ("MiniCPM3Config", {**LATENT, "q_lora_rank": 9, "scale_emb": 12, "scale_depth": 1.4,
                                         "dim_model_base": 256, **rope()}),
    "llama4_gguf": ("Llama4TextConfig", dict(head_dim=6, num_hidden_layers=4, intermediate_size=12, intermediate_size_mlp=20,
                                             interleave_moe_layer_step=2, num_local_experts=4, num_experts_per_tok=1, **rope())),
    "afmoe_gguf": ("AfmoeConfig", dict(head_dim=6, num_hidden_layers=4, sliding_window=3, num_shared_experts=1,
                                       mup_enabled=True, route_scale=1.4, **TOP2, **rope())),
    "mellum_gguf": ("MellumConfig", dict(head_dim=6, sliding_window=3, mlp_layer_types=["sparse"] * 2, **TOP2, **layers("SF"),
                                         rope_parameters={k + "_attention": {"rope_type": "default", "rope_theta": 5e5}
                                                          for k in ("full", "sliding")})),
    "dots1_gguf": ("Dots1Config", dict(num_key_value_heads=4, head_dim=6, first_k_dense_replace=1, norm_topk_prob=True,
                                       **ROUTED, **rope())),
    "mistral4_gguf": ("Mistral4Config", {**LATENT, **ROUTED, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 4, "mscale": 1.0,
        "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3}}),
}
FAMILIES.update({k: (v[0], {"vocab_size": 20, **v[1]}, {"small": True, "rules": [["expert_bias", 0, 0.2]] + (
    [["norm", 0, 0.2]] if k in ("vaultgemma", "minimax_m3") else [["embed", 0, 0.2]] if k in ("opt", "opt_350m", "opt_bare") else
    [["Wqkv", 0, 0.35], ["out_proj", 0, 0.35]] if k == "dbrx" else [["sink", 0, 1]] if k == "mimo_v2_flash" else [])}) for k, v in SMALL.items()})

ONE_ROUTER = dict(use_qk_norm=False, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, n_shared_experts=2, n_group=1,
                  topk_group=1)
PUBLISHED = {
    "internlm2": ("LlamaConfig", dict(attention_bias=True, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e6, "factor": 2.0})),
    "internlm2_gguf": ("LlamaConfig", dict(num_hidden_layers=1, **rope(1e6))),
    "minicpm": ("GraniteConfig", {**GRANITE, "attention_multiplier": 6 ** -0.5, "logits_scaling": 3.0, "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.2, 1.3], "long_factor": [1.5, 2.0, 2.5],
        "original_max_position_embeddings": 2}}),
    "minicpm_gguf": ("GraniteConfig", {**GRANITE, "num_hidden_layers": 1, "attention_multiplier": 6 ** -0.5, "logits_scaling": 3.0,
                                       "tie_word_embeddings": True, **rope()}),
    "exaone": ("LlamaConfig", dict(rope_parameters={
        "rope_type": "llama3", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0})),
    "orion": ("StableLmConfig", rope(partial_rotary_factor=1.0)),
    "xverse": ("LlamaConfig", dict(num_hidden_layers=1, **rope())),
    "kimi_k2": ("DeepseekV3Config", {**LATENT, **ROUTED, "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "first_k_dense_replace": 0,
                                     "num_hidden_layers": 1, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 5e4, "factor": 32.0, "original_max_position_embeddings": 16, "mscale": 1.0,
        "mscale_all_dim": 1.0, "beta_fast": 1.0, "beta_slow": 1.0}}),
    "deepseek": ("Glm4MoeConfig", dict(**ONE_ROUTER, norm_topk_prob=False, first_k_dense_replace=1, head_dim=6,
                                       **rope(partial_rotary_factor=1.0))),
    "bailing_moe": ("Glm4MoeConfig", dict(**ONE_ROUTER, norm_topk_prob=True, first_k_dense_replace=0, head_dim=8, num_hidden_layers=1,
                                          **rope(6e5, partial_rotary_factor=1.0))),
    "bailing_moe_v2": ("Glm4MoeConfig", dict(**{**ROUTED, "n_routed_experts": 8, "n_group": 4}, norm_topk_prob=True, use_qk_norm=True,
                                             first_k_dense_replace=1, head_dim=6, **rope(6e5, partial_rotary_factor=0.667))),
    "chatglm": ("GlmConfig", dict(head_dim=8, attention_bias=True, **rope(5e6, partial_rotary_factor=0.5))),
    "baichuan": ("LlamaConfig", dict(num_key_value_heads=4, norm_head=True, linear_biases=False, **rope())),
    "baichuan_gguf": ("LlamaConfig", dict(hidden_size=8, intermediate_size=6, num_attention_heads=2, num_key_value_heads=2,
                                          num_hidden_layers=32, norm_head=True, linear_biases=False, **rope())),
    "baichuan_alibi": ("LlamaConfig", dict(num_attention_heads=3, num_key_value_heads=3, norm_head=False, linear_biases=True, **rope())),
    "mimo": ("Qwen2Config", dict(num_hidden_layers=1, **rope(64e4))),
    "minimax_text_01": ("MiniMaxConfig", dict(num_hidden_layers=3, num_key_value_heads=2, head_dim=6, rotary_dim=4, block_size=16,
                                              num_local_experts=3, num_experts_per_tok=2, intermediate_size=10, **layers("LFL"),
                                              full_attn_alpha_factor=1.3, full_attn_beta_factor=0.8, linear_attn_alpha_factor=1.2,
                                              linear_attn_beta_factor=0.9, mlp_alpha_factor=0.7, mlp_beta_factor=1.1, **rope(1e7))),
}
FAMILIES.update({k: (v[0], {"vocab_size": 20, **v[1]}, {"small": True, "rules": [["ln_", 1, 0.2]], "published": k.removesuffix("_gguf").removesuffix("_alibi")})
                 for k, v in PUBLISHED.items()})

WORDS = dict(head_dim=6, ssm_state_size=7, mamba_num_heads=6, mamba_head_dim=8, n_groups=3, conv_kernel=3, num_hidden_layers="none")
STATE = {
    "nemotron_h": ("NemotronHConfig", dict(**WORDS, hybrid_override_pattern="M*-E", n_routed_experts=6, n_group=3, topk_group=2,
                                           num_experts_per_tok=2, moe_intermediate_size=8, moe_latent_size=12,
                                           moe_shared_expert_intermediate_size=10, routed_scaling_factor=1.4,
                                           time_step_min=0.5)),
    "nemotron_h_gguf": ("NemotronHConfig", dict(**WORDS, hybrid_override_pattern="M-*M")),
    "nemotron_h_moe_gguf": ("NemotronHConfig", dict(**WORDS, hybrid_override_pattern="ME*", n_routed_experts=4, topk_group=1,
                                                    num_experts_per_tok=2, moe_intermediate_size=8, moe_latent_size=16,
                                                    moe_shared_expert_intermediate_size=10, routed_scaling_factor=1.4)),
    "bamba": ("BambaConfig", dict(num_hidden_layers=2, attn_layer_indices=[1], mamba_n_heads=6, mamba_d_head=8, mamba_n_groups=3,
                                  mamba_d_state=7, mamba_d_conv=3, mamba_proj_bias=True, attention_bias=True, mlp_bias=True,
                                  head_dim="none", hidden_size=24, time_step_limit=[0.4, 0.9])),
    "falcon_h1": ("FalconH1Config", dict(mamba_n_heads=6, mamba_d_head=8, mamba_d_ssm=48, mamba_n_groups=3, mamba_d_state=7,
                                         mamba_d_conv=3, mamba_rms_norm=True, mamba_norm_before_gate=False, projectors_bias=True,
                                         attention_bias=True, key_multiplier=0.6, attention_in_multiplier=1.1,
                                         attention_out_multiplier=0.8, ssm_in_multiplier=1.2, ssm_out_multiplier=0.7,
                                         ssm_multipliers=[0.9, 1.1, 0.8, 1.2, 0.95], mlp_multipliers=[0.7, 1.3],
                                         lm_head_multiplier=0.6, embedding_multiplier=1.7, **rope())),
    "falcon_h1_plain": ("FalconH1Config", dict(num_hidden_layers=1, mamba_n_heads=4, mamba_d_head=12, mamba_d_ssm=48,
                                               mamba_n_groups=1, mamba_d_state=5, mlp_bias=True, mamba_proj_bias=True, **rope())),
    "olmo_hybrid": ("OlmoHybridConfig", dict(num_hidden_layers=3, linear_conv_kernel_dim=3, linear_key_head_dim=6,
                                             linear_value_head_dim=5, linear_num_key_heads=2, linear_num_value_heads=4,
                                             attention_bias=True, **layers("LFL"), **rope(None))),
    "olmo_hybrid_rope": ("OlmoHybridConfig", dict(linear_allow_neg_eigval=False, **layers("LF"), **rope(5e5))),
    "lfm3": ("Lfm3Config", dict(num_hidden_layers=4, head_dim=6, conv_L_cache=7, conv_bias=True, attention_bias=True,
                                sliding_window=5, **layers("CSFC"), rope_parameters={
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}})),
    "lfm3_plain": ("Lfm3Config", dict(head_dim=8, conv_L_cache=3, use_sandwich_norm=False, use_attention_gate=False,
                                      tie_word_embeddings=True, **layers("CF"))),
    "minimax": ("MiniMaxConfig", dict(num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=1, head_dim=6, block_size=16,
                                      num_local_experts=3, num_experts_per_tok=2, intermediate_size=10, **layers("LFL"),
                                      full_attn_alpha_factor=1.3, full_attn_beta_factor=0.8, linear_attn_alpha_factor=1.2,
                                      linear_attn_beta_factor=0.9, mlp_alpha_factor=0.7, mlp_beta_factor=1.1, **rope(1e6))),
    "kimi_linear": ("KimiLinearConfig", dict(num_hidden_layers=3, num_key_value_heads=4, kv_lora_rank=8, qk_nope_head_dim=6,
                                             qk_rope_head_dim=4, v_head_dim=5, num_local_experts=6, num_experts_per_tok=2,
                                             n_group=3, topk_group=2, moe_intermediate_size=10, linear_head_dim=5,
                                             linear_num_heads=4, linear_conv_kernel_dim=3, **layers("LFL"))),
    "bailing_hybrid": ("BailingHybridConfig", dict(num_hidden_layers=3, num_key_value_heads=4, kv_lora_rank=8, qk_nope_head_dim=6,
                                                   qk_rope_head_dim=4, v_head_dim=5, num_local_experts=6, num_experts_per_tok=2,
                                                   n_group=3, topk_group=2, moe_intermediate_size=10, head_dim=5,
                                                   short_conv_kernel_size=3, first_k_dense_replace=1, kda_lower_bound=-2.0,
                                                   **layers("LFL"), **rope(5e5))),
    "mamba2_gguf": ("Mamba2Config", dict(num_key_value_heads="none", intermediate_size="none", num_attention_heads="none",
                                         max_position_embeddings="none", attention_dropout="none", num_heads=6, head_dim=8,
                                         n_groups=3, state_size=7, conv_kernel=3)),
    "mamba": ("MambaConfig", dict(num_key_value_heads="none", intermediate_size="none", num_attention_heads="none",
                                  max_position_embeddings="none", attention_dropout="none", state_size=3, conv_kernel=3,
                                  use_bias=True)),
    "falcon_mamba": ("FalconMambaConfig", dict(num_key_value_heads="none", intermediate_size="none", num_attention_heads="none",
                                               max_position_embeddings="none", attention_dropout="none", state_size=3,
                                               time_step_rank=4)),
    "jamba": ("JambaConfig", dict(num_hidden_layers=3, attn_layer_period=3, attn_layer_offset=1, num_experts=4,
                                  num_experts_per_tok=2, mamba_d_state=3, mamba_d_conv=3, mamba_proj_bias=True)),
    "zamba2": ("Zamba2Config", dict(num_hidden_layers=5, layers_block_type=["mamba", "hybrid", "hybrid", "mamba", "hybrid"],
                                    num_key_value_heads=4, mamba_d_state=7, mamba_d_conv=3, mamba_ngroups=2, n_mamba_heads=6,
                                    num_mem_blocks=2, use_shared_attention_adapter=True, adapter_rank=3, use_mem_rope=True,
                                    add_bias_linear=True, rms_norm_eps=1e-3, tie_word_embeddings=True, time_step_min=0.4,
                                    chunk_size=64, **rope())),
    "mamba2": ("Mamba2Config", dict(num_key_value_heads="none", intermediate_size="none", num_attention_heads="none",
                                    max_position_embeddings="none", attention_dropout="none", num_heads=6, head_dim=8,
                                    n_groups=3, state_size=7, conv_kernel=3, use_bias=True)),
}
FAMILIES.update({k: (v[0], {"vocab_size": 20, **v[1]}, {"small": True, "long": True}) for k, v in STATE.items()})


def uniform(stream, n):
    h = 14695981039346656037
    for b in stream.encode():
        h = (h ^ b) * 1099511628211 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(h) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94d049bb133111eb)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.float64) / 8388608.0 - 1.0


def tensor(name, like, rules):
    base, spread = next((b, s) for text, b, s in rules if text in name)
    values = base + spread * uniform(name, like.numel())
    return torch.from_numpy(values.astype(np.float32)).reshape(like.shape).contiguous()


def tokens(lengths, vocab):
    flat = ((uniform("tokens", sum(lengths)) + 1) / 2 * vocab).astype(np.int64)
    rows, at = [], 0
    for n in lengths:
        rows.append(torch.from_numpy(flat[at:at + n]))
        at += n
    return rows


def muse_glimmer():
    """Its text model with the head of MuseGlimmerForConditionalGeneration, which has no class there."""
    from transformers.modeling_outputs import CausalLMOutput
    from transformers.models.muse_glimmer import modeling_muse_glimmer as muse

    class MuseGlimmerForCausalLM(muse.MuseGlimmerPreTrainedModel, transformers.GenerationMixin):
        def __init__(self, config):
            super().__init__(config)
            self.model = muse.MuseGlimmerTextModel(config)
            self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
            self.post_init()

        def forward(self, input_ids):
            cap, logits = self.config.final_logit_softcapping, self.lm_head(self.model(input_ids).last_hidden_state)
            return CausalLMOutput(logits=cap * torch.tanh(logits * self.config.output_multiplier / cap))

    return MuseGlimmerForCausalLM


def nemotron_nas():
    """Llama with blocks of several sizes that may lack attention or the MLP, as the code in those repositories has it."""
    from transformers.models.llama import modeling_llama as llama

    class Layer(llama.LlamaDecoderLayer):
        def forward(self, hidden_states, **kwargs):
            if hasattr(self, "self_attn"):
                hidden_states = hidden_states + self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)[0]
            if hasattr(self, "mlp"):
                hidden_states = hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))
            return hidden_states

    class DeciLMForCausalLM(llama.LlamaForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            for i, (layer, block) in enumerate(zip(self.model.layers, config.block_configs)):
                own, layer.__class__ = copy.deepcopy(config), Layer
                if block["attention"]["no_op"]:
                    del layer.self_attn, layer.input_layernorm
                else:
                    own.num_key_value_heads = config.num_attention_heads // block["attention"]["n_heads_in_group"]
                    layer.self_attn = llama.LlamaAttention(own, i)
                if block["ffn"]["no_op"]:
                    del layer.mlp, layer.post_attention_layernorm
                else:
                    own.intermediate_size = -(-int(2 * block["ffn"]["ffn_mult"] * config.hidden_size / 3) // 256) * 256
                    layer.mlp = llama.LlamaMLP(own)
            self.post_init()

    return DeciLMForCausalLM


def class_of(config):
    if hasattr(config, "block_configs"):
        return nemotron_nas()
    if config.model_type == "mistral4":  # only part of a multimodal model there
        from transformers.models.mistral4.modeling_mistral4 import Mistral4ForCausalLM
        return Mistral4ForCausalLM
    if config.model_type == "muse_glimmer_text":
        return muse_glimmer()
    return AutoModelForCausalLM


def load(folder, config):
    how = "sdpa" if getattr(config, "alibi", False) else "eager"  # falcon's eager attention adds alibi's biases twice
    model = class_of(config).from_pretrained(folder, dtype=torch.float32, attn_implementation=how).eval()
    for part in {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}.values():
        part._experts_implementation = "eager"
        part.use_cache = False
    return repositories.patch(model)


def published(config, values):
    """Transformers 5.23 writes olmo_hybrid otherwise than the published folders: convolutions cut into thirds, and a norm
    of attention layers under the name it has in the other layers; and an MLP of kimi_linear under the name of experts."""
    if config.model_type == "kimi_linear":
        return {re.sub(r"block_sparse_moe(?=\.\w+_proj)", "mlp", k): v for k, v in values.items()}
    if config.model_type != "olmo_hybrid":
        return values
    keys, out = config.linear_num_key_heads * config.linear_key_head_dim, {}
    for k, v in values.items():
        i = int(k.split(".")[2]) if ".layers." in k else 0
        if "_conv1d" in k:
            stem = re.sub("[qkv]_conv1d", "%s_conv1d", k)
            whole = torch.cat([values[stem % c] for c in "qkv"])
            part = "qkv".index(k.split("_conv1d")[0][-1])
            v = whole.split([keys, keys, len(whole) - 2 * keys])[part].contiguous()
        elif config.layer_types[i] == "full_attention":
            k = k.replace("feedforward_layer_norm", "post_attention_layernorm")
        out[k] = v
    return out


def on_disk(model, values, family):
    """Parameters under the names and in the layout of the folder."""
    if getattr(model, "hf_quantizer", None):  # which would write the model's own values; bitnet's names are the same
        return values
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch, state_dict={k: v.detach().clone().contiguous() for k, v in values.items()})
        out = published(model.config, load_file(scratch + "/model.safetensors"))
    return repositories.publish(family, model.config, out) if family else out


# adapters whose values come from the formula, too (test_family_adapters.c)
LORA = {"bitnet_online": ["q_proj", "v_proj", "down_proj"],
        "zamba2": ["q_proj", "o_proj", "gate_up_proj", "linear", "in_proj"]}


def lora_logits(model, row, targets):
    """Logits of the last token with such an adapter of PEFT."""
    from peft import LoraConfig, get_peft_model
    peft = get_peft_model(model, LoraConfig(r=2, lora_alpha=4, target_modules=targets))
    with torch.no_grad():
        for k, p in peft.named_parameters():
            if "lora_" in k:
                p.copy_(tensor(k.replace(".default", ""), p, [["", 0, 0.1]]))
        return [float(f"{v:.7g}") for v in peft(input_ids=row[None]).logits[0, -1].tolist()]


def make(name):
    kind, changes, options = FAMILIES[name]
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**{k: v for k, v in {**BASE, **changes}.items() if v != "none"})
    rules, family = options.get("rules", []) + RULES, options.get("published")
    if family:
        config.published = family
    with tempfile.TemporaryDirectory() as folder:
        kind = class_of(config)
        (kind.from_config if kind is AutoModelForCausalLM else kind)(config).float().save_pretrained(folder)
        path = pathlib.Path(folder)
        like = published(config, load_file(path / "model.safetensors"))
        own = repositories.publish(family, config, like) if family else like
        weights = {k: tensor(k, v, rules) for k, v in own.items()
                   if not k.endswith(("slope_rate", "_decay"))}  # tables that the config alone gives (minimax)
        stored = repositories.recover(family, config, weights, like) if family else weights
        save_file(stored, path / "model.safetensors", metadata={"format": "pt"})
        if name == "bitnet_online":
            text = json.loads((path / "config.json").read_text())
            text["quantization_config"] = dict(quant_method="bitnet", linear_class="autobitlinear", quantization_mode="online")
            (path / "config.json").write_text(json.dumps(text))
        model = load(folder, config)
        written = json.loads((path / "config.json").read_text())
        written = repositories.published_config(family, config.to_dict()) if family else written
    rows = tokens(LONG if options.get("long") else SHORT, config.vocab_size)
    total, count, last = 0.0, sum(len(r) - 1 for r in rows), []
    for row in rows:                                            # one by one: no padding, no packing
        logits = model(input_ids=row[None]).logits[0]
        total = total + torch.nn.functional.cross_entropy(logits[:-1], row[1:], reduction="sum")
        last.append([float(f"{v:.7g}") for v in logits[-1].tolist()])
    loss = total / count
    loss.backward()
    grads = on_disk(model, {k: p.grad for k, p in model.named_parameters() if p.grad is not None}, family)
    numbers = {}
    for k, g in sorted(grads.items()):
        g = g.double().flatten()
        dot = float(g @ torch.from_numpy(uniform("grad." + k, g.numel())))
        numbers[k] = [float(f"{float(g.norm()):.8g}"), float(f"{dot:.8g}")]
    if options.get("small"):
        sums = {}
        for k, g in grads.items():
            g = g.double().flatten()
            one = sums.setdefault(re.sub(r"\.\d+(?=\.)", "", k), [0.0, 0.0])
            one[0] += float(g @ g)
            one[1] += float(g @ torch.from_numpy(uniform("grad." + k, g.numel())))
        numbers = {k: [float(f"{v[0] ** 0.5:.8g}"), float(f"{v[1]:.8g}")] for k, v in sorted(sums.items())}
        used = []
        for k in weights:
            used.append(next(r for r in rules if r[0] in k))
        rules = [r for r in rules if r in used]
        written = {k: v for k, v in written.items() if (v is not None or k == "pad_token_id") and k not in (
            "initializer_range", "attention_dropout", *(["router_jitter_noise"] if name != "phimoe" else []), "embedding_initializer_range", *([] if family else ["architectures"]))}
    for key in ("dtype", "transformers_version", "_name_or_path", "use_cache"):
        written.pop(key, None)
    written.update(options.get("hub", {}))
    out = {"config": written, "rules": rules, "lengths": [len(r) for r in rows], "loss": float(f"{float(loss):.9g}"),
           "logits": last, "grads": numbers}
    if options.get("small"):
        out["together"] = True
    if name in LORA:
        out["lora"] = {"target_modules": LORA[name], "logits": lora_logits(model, rows[0], LORA[name])}
    text = json.dumps(out, indent=None if options.get("small") else 1)
    text = re.sub(r"\[[^\[\]{}]*\]", lambda m: re.sub(r"\s+", " ", m[0]).replace("[ ", "[").replace(" ]", "]"), text)
    OUT.mkdir(exist_ok=True)
    (OUT / f"{name}.json").write_text(text + "\n")
    print(f"{name}: loss {float(loss):.5f}, {len(numbers)} gradients, {len(text)} bytes")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for chosen in sys.argv[1:] or FAMILIES:
        make(chosen)
