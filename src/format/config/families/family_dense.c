/* family_dense.c - dense families with other norms, residual order or MLP than llama. */
#include "format/config/families/families.h"

#include <jansson.h>

/* The v4 spelling has one rope: its scaling is that of the full layers. */
static void olmo3_keys(af_config_source *s, af_hf_config *c)
{
    (void)s;
    if (c->has_local_rope)
        return;
    c->has_local_rope = true;
    c->local_rope = c->rope;
    c->local_rope.type = AF_ROPE_DEFAULT;
    c->local_rope.factor = 1;
}

/* Windows come with sliding layers only, and those keep the plain rope. */
static void olmo3_gguf(const af_gguf *g, const char *arch, af_hf_config *c)
{
    (void)g;
    (void)arch;
    olmo3_keys(NULL, c);
}

/* llama.cpp gives windows to the model of 64 layers alone. */
static void exaone4_gguf(const af_gguf *g, const char *arch, af_hf_config *c)
{
    const double window = af_family_gguf_num(g, arch, "attention.sliding_window", 4096);
    c->rope_sliding_only = c->num_hidden_layers == 64;
    c->sliding_window = c->rope_sliding_only && window < 1e9 ? (int64_t)window : 0;
}

void af_config_exaone_windows(af_config_source *s, af_hf_config *c)
{
    (void)s;
    c->rope_sliding_only = c->sliding_window > 0;
    if (c->sliding_window_pattern == 0) /* written when there is no window */
        c->sliding_window_pattern = 1;
}

static void logit_scale_key(af_config_source *s, af_hf_config *c)
{
    c->logit_scale = af_config_num(s, "logit_scale", 0.0625);
    if (!(c->logit_scale > 0 && c->logit_scale < 1e9))
        af_config_wrong(s, "logit_scale", "a positive number in range");
}

static void cohere_keys(af_config_source *s, af_hf_config *c)
{
    logit_scale_key(s, c);
    c->qk_norm = af_config_bool(s, "use_qk_norm", false);
}

static void cohere2_keys(af_config_source *s, af_hf_config *c)
{
    logit_scale_key(s, c);
    c->rope_sliding_only = true;
}

static void cohere_gguf(const af_gguf *g, const char *arch, af_hf_config *c)
{
    c->logit_scale = af_family_gguf_num(g, arch, "logit_scale", 1);
    c->logits_scaling = 1;
    c->rope_sliding_only = strcmp(c->model_type, "cohere2") == 0;
}

static void stablelm_gguf(const af_gguf *g, const char *arch, af_hf_config *c)
{
    char key[128];
    snprintf(key, sizeof key, "%.60s.use_parallel_residual", arch);
    c->use_parallel_residual = af_gguf_bool(g, key, true);
    c->qk_norm = af_gguf_find(g, "blk.0.attn_q_norm.weight") != NULL;
}

static void starcoder2_keys(af_config_source *s, af_hf_config *c)
{
    c->attention_bias = c->attention_out_bias = c->mlp_bias = af_config_bool(s, "use_bias", true);
    c->rms_norm_eps = af_config_num(s, "norm_epsilon", c->rms_norm_eps);
}

static void stablelm_keys(af_config_source *s, af_hf_config *c)
{
    c->attention_bias = af_config_bool(s, "use_qkv_bias", false);
    c->attention_out_bias = false;
    c->use_parallel_residual = af_config_bool(s, "use_parallel_residual", false);
    c->qk_norm = af_config_bool(s, "qk_layernorm", false);
}

static void nemotron_keys(af_config_source *s, af_hf_config *c)
{
    c->rms_norm_eps = af_config_num(s, "norm_eps", c->rms_norm_eps);
}

static void phi_keys(af_config_source *s, af_hf_config *c)
{
    c->attention_bias = c->attention_out_bias = c->mlp_bias = true;
    c->qk_norm = af_config_bool(s, "qk_layernorm", false);
}

static void glm_keys(af_config_source *s, af_hf_config *c)
{
    c->attention_bias = af_config_bool(s, "attention_bias", true);
    c->attention_out_bias = false;
}

static void jais2_keys(af_config_source *s, af_hf_config *c)
{
    c->attention_bias = c->attention_out_bias = af_config_bool(s, "attention_bias", true);
    c->mlp_bias = af_config_bool(s, "mlp_bias", true);
}

static void hyperclovax_keys(af_config_source *s, af_hf_config *c)
{
    c->no_post_norm = !af_config_bool(s, "use_post_norm", true);
}

/* LayerNorms without weights, whose epsilon is in the code; values of q, k and v may be clipped. */
static void olmo_keys(af_config_source *s, af_hf_config *c)
{
    c->rms_norm_eps = 1e-5;
    c->mlp_bias = false;
    c->qkv_clip = af_config_clip(s);
}

static void olmo_gguf(const af_gguf *g, const char *arch, af_hf_config *c)
{
    c->rms_norm_eps = 1e-5;
    c->qkv_clip = af_family_gguf_num(g, arch, "attention.clamp_kqv", 0);
}

static void nanochat_keys(af_config_source *s, af_hf_config *c)
{
    (void)s;
    c->mlp_bias = false;
    c->rope.reverse = true;
}

static void diffllama_keys(af_config_source *s, af_hf_config *c)
{
    c->attention_out_bias = c->attention_bias;
    c->mlp_bias = false;
    if (c->num_key_value_heads % 2)
        af_config_wrong(s, "num_key_value_heads", "an even number");
}

static void bitnet_keys(af_config_source *s, af_hf_config *c)
{
    c->attention_out_bias = c->attention_bias;
    c->mlp_bias = false;
    if (c->head_dim && (double)c->num_attention_heads * (double)c->head_dim !=
                           (double)c->hidden_size) /* its norm before o_proj is as wide as that */
        af_config_wrong(s, "head_dim", "hidden_size / num_attention_heads");
}

static void apertus_keys(af_config_source *s, af_hf_config *c) { af_config_llama3(s, c, 12e6, 8); }

const af_family af_families_dense[] = {
    {.model_type = "olmo3",
     .gguf = "olmo2",
     .act = "silu",
     .eps = 1e-5,
     .theta = 5e5,
     .window = 4096,
     .pattern = 4,
     .sliding = AF_SLIDING_PATTERN,
     .pad = 2,
     .keys = olmo3_keys,
     .gguf_keys = olmo3_gguf},
    {.model_type = "apertus",
     .gguf = "apertus",
     .act = "xielu",
     .eps = 1e-5,
     .theta = 12e6,
     .pad = 4,
     .keys = apertus_keys},
    {.model_type = "arcee", .gguf = "arcee", .act = "relu2", .eps = 1e-5, .theta = 1e4},
    {.model_type = "exaone4",
     .gguf = "exaone4",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .window = 4096,
     .pattern = 4,
     .sliding = AF_SLIDING_PATTERN,
     .keys = af_config_exaone_windows,
     .gguf_keys = exaone4_gguf},
    {.model_type = "cohere",
     .gguf = "command-r",
     .act = "silu",
     .eps = 1e-5,
     .theta = 5e5,
     .tied = true,
     .pad = 1,
     .keys = cohere_keys,
     .gguf_keys = cohere_gguf},
    {.model_type = "cohere2",
     .gguf = "cohere2",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .window = 4096,
     .pattern = 4,
     .sliding = AF_SLIDING_PATTERN,
     .tied = true,
     .pad = 1,
     .keys = cohere2_keys,
     .gguf_keys = cohere_gguf},
    {.model_type = "starcoder2",
     .gguf = "starcoder2",
     .act = "gelu_pytorch_tanh",
     .eps = 1e-5,
     .theta = 1e4,
     .kv_heads = 2,
     .sliding = AF_SLIDING_ALL,
     .tied = true,
     .keys = starcoder2_keys},
    {.model_type = "stablelm",
     .gguf = "stablelm",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .partial = 0.25,
     .keys = stablelm_keys,
     .gguf_keys = stablelm_gguf},
    {.model_type = "nemotron",
     .gguf = "nemotron",
     .act = "relu2",
     .eps = 1e-5,
     .theta = 1e4,
     .partial = 0.5,
     .keys = nemotron_keys},
    {.model_type = "phi",
     .gguf = "phi2",
     .act = "gelu_new",
     .eps = 1e-5,
     .theta = 1e4,
     .partial = 0.5,
     .keys = phi_keys},
    {.model_type = "glm4",
     .gguf = "glm4",
     .act = "silu",
     .eps = 1.5625e-07,
     .theta = 1e4,
     .kv_heads = 2,
     .head_dim = 128,
     .partial = 0.5,
     .pad = 151330,
     .keys = glm_keys},
    {.model_type = "glm",
     .gguf = "chatglm",
     .act = "silu",
     .eps = 1.5625e-07,
     .theta = 1e4,
     .kv_heads = 2,
     .head_dim = 128,
     .partial = 0.5,
     .pad = 151330,
     .keys = glm_keys},
    {.model_type = "jais2",
     .gguf = "jais2",
     .act = "relu2",
     .eps = 1e-5,
     .theta = 1e4,
     .keys = jais2_keys},
    {.model_type = "hyperclovax",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .keys = hyperclovax_keys},
    {.model_type = "olmo",
     .gguf = "olmo",
     .act = "silu",
     .eps = 1e-5,
     .theta = 1e4,
     .pad = 2,
     .keys = olmo_keys,
     .gguf_keys = olmo_gguf},
    {.model_type = "nanochat",
     .act = "relu2",
     .eps = 1e-6,
     .theta = 1e4,
     .pad = 2,
     .final_softcap = 15,
     .keys = nanochat_keys},
    {.model_type = "diffllama", .act = "silu", .eps = 1e-5, .theta = 1e4, .keys = diffllama_keys},
    {.model_type = "bitnet",
     .act = "relu2",
     .eps = 1e-5,
     .theta = 5e5,
     .heads = 20,
     .kv_heads = 5,
     .keys = bitnet_keys},
    {0},
};
