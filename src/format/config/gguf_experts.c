/* gguf_experts.c - what families with experts say about routers and shared experts in the metadata
 * of GGUF files: see gguf_state.h. */
#include "format/config/gguf_state.h"

#include <math.h>

typedef struct metadata {
    af_hf_config *c;
    const af_gguf *g;
    const char *arch;
} metadata;

static const char *key_of(const metadata *m, const char *suffix, char buf[128])
{
    snprintf(buf, 128, "%.60s.%.60s", m->arch, suffix);
    return buf;
}

static int64_t get_int(const metadata *m, const char *suffix, int64_t absent)
{
    char key[128];
    return af_gguf_int(m->g, key_of(m, suffix, key), absent);
}

static double get_num(const metadata *m, const char *suffix, double absent)
{
    char key[128];
    return af_gguf_float(m->g, key_of(m, suffix, key), absent);
}

/* The first layers have no experts. */
static af_status get_dense_lead(const metadata *m, af_error *err)
{
    af_hf_config *c = m->c;
    const int64_t n = AF_MIN(AF_MAX(get_int(m, "leading_dense_block_count", 0), 0),
                             (int64_t)AF_CONFIG_LAYERS_MAX);
    int64_t *dense = af_arena_take(&c->arena, (uint64_t)AF_MAX(n, 1) * sizeof *dense);
    if (!dense)
        return af_fail_nomem(err, "dense layers", (uint64_t)n * sizeof *dense);
    for (int64_t i = 0; i < n; i++)
        dense[i] = i;
    c->mlp_only_layers = dense;
    c->mlp_only_count = (int)n;
    return AF_OK;
}

static af_status get_deepseek(const metadata *m, bool norm_absent, af_error *err)
{
    af_hf_config *c = m->c;
    af_status st = AF_OK;
    char name[64];
    AF_TRY(get_dense_lead(m, err));
    snprintf(name, sizeof name, "blk.%d.exp_probs_b.bias", c->mlp_only_count);
    c->router.sigmoid = true;
    c->router.choice_bias = af_gguf_find(m->g, name) != NULL;
    c->router.eps = 1e-20;
    c->router.group_best = 2;
    c->router.groups = get_int(m, "expert_group_count", 1);
    c->router.groups_used = get_int(m, "expert_group_used_count", 1);
    c->router.scale = get_num(m, "expert_weights_scale", 1);
    c->router.shared_ffn = get_int(m, "expert_shared_count", 0);
    if (c->router.shared_ffn < 0 || c->router.shared_ffn > AF_CONFIG_EXPERTS_MAX ||
        c->moe_intermediate_size < 0 || c->moe_intermediate_size > AF_CONFIG_WIDTH_MAX)
        return af_fail(err, AF_EFORMAT, "expert_shared_count is %" PRId64, c->router.shared_ffn);
    c->router.shared_ffn *= c->moe_intermediate_size;
    c->norm_topk_prob = get_int(m, "expert_weights_norm", norm_absent) != 0;
    c->attention_out_bias = false;
    c->qk_norm = af_gguf_find(m->g, "blk.0.attn_q_norm.weight") != NULL;
done:
    return st;
}

af_status af_config_gguf_deepseek(af_hf_config *c, const af_gguf *g, const char *arch,
                                  bool norm_absent, af_error *err)
{
    return get_deepseek(&(metadata){c, g, arch}, norm_absent, err);
}

static void get_gpt_oss(af_hf_config *c)
{
    c->router.bias = c->router.expert_bias = true;
    c->router.clamp = 7;
    c->attention_out_bias = c->attention_bias = true;
    c->rope.truncate = false;
}

static af_status get_shared_width(const metadata *m, int64_t absent, af_error *err)
{
    const int64_t n = get_int(m, "expert_shared_feed_forward_length", absent);
    m->c->router.shared_ffn = n;
    if (n >= 0 && n <= AF_CONFIG_WIDTH_MAX)
        return AF_OK;
    return af_fail(err, AF_EFORMAT, "expert_shared_feed_forward_length is %" PRId64, n);
}

/* A list of layers that slide; without one, all but every n-th slide. */
static af_status get_slides(const metadata *m, af_error *err)
{
    char key[128];
    const af_gguf_kv *kv =
        af_gguf_find_kv(m->g, key_of(m, "attention.sliding_window_pattern", key));
    const int64_t n = m->c->num_hidden_layers;
    if (!kv || kv->str || kv->count < 2 || n < 1 || n > AF_CONFIG_LAYERS_MAX)
        return AF_OK;
    const int64_t next = AF_MAX(get_int(m, "nextn_predict_layers", 0), 0); /* not counted in n */
    if (kv->count - (uint64_t)n != (uint64_t)next)
        return af_fail(err, AF_EFORMAT, "%s has %" PRIu64 " entries for %" PRId64 " layers", key,
                       kv->count, n);
    af_layer_type *types = af_arena_take(&m->c->arena, (uint64_t)n * sizeof *types);
    if (!types)
        return af_fail_nomem(err, "layer types", (uint64_t)n * sizeof *types);
    for (int64_t i = 0; i < n; i++)
        types[i] = af_gguf_item_int(kv, (uint64_t)i) ? AF_LAYER_SLIDING : AF_LAYER_FULL;
    m->c->layer_types = types;
    return AF_OK;
}

/* Which layers have rope, all with the same base. */
static af_status get_granite_swa(const metadata *m, af_error *err)
{
    af_hf_config *c = m->c;
    af_status st = AF_OK;
    char key[128];
    const int64_t n = c->num_hidden_layers;
    const af_gguf_kv *kv = af_gguf_find_kv(m->g, key_of(m, "attention.rope_pattern", key));
    AF_TRY(get_slides(m, err));
    if (c->num_experts) {
        c->moe_intermediate_size = c->intermediate_size;
        AF_TRY(get_shared_width(m, 0, err));
    }
    if (!kv || n < 1 || n > AF_CONFIG_LAYERS_MAX)
        return AF_OK;
    if (kv->str || kv->count != (uint64_t)n)
        return af_fail(err, AF_EFORMAT, "%s is not one value per layer", key);
    double *theta = af_arena_take(&c->arena, (uint64_t)n * sizeof *theta);
    if (!theta)
        return af_fail_nomem(err, key, (uint64_t)n * sizeof *theta);
    for (int64_t i = 0; i < n; i++)
        theta[i] = af_gguf_item_int(kv, (uint64_t)i) ? c->rope.theta : 0;
    c->per_layer.rope_theta = theta;
done:
    return st;
}

/* Layers without a router have no experts. */
static af_status get_dense_layers(const metadata *m, af_error *err)
{
    af_hf_config *c = m->c;
    const int64_t n = AF_MIN(AF_MAX(c->num_hidden_layers, 0), (int64_t)AF_CONFIG_LAYERS_MAX);
    int64_t *dense = af_arena_take(&c->arena, (uint64_t)AF_MAX(n, 1) * sizeof *dense);
    if (!dense)
        return af_fail_nomem(err, "dense layers", (uint64_t)n * sizeof *dense);
    c->mlp_only_layers = dense;
    c->mlp_only_count = 0;
    for (int64_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%" PRId64 ".ffn_gate_inp.weight", i);
        if (!af_gguf_find(m->g, name))
            dense[c->mlp_only_count++] = i;
    }
    return AF_OK;
}

static af_status get_hy_v3(const metadata *m, af_error *err)
{
    af_hf_config *c = m->c;
    af_status st = AF_OK;
    AF_TRY(get_dense_layers(m, err));
    AF_TRY(get_shared_width(m, c->moe_intermediate_size, err));
    c->router.sigmoid = c->router.choice_bias = true;
    c->router.eps = 1e-20;
    c->router.scale = get_num(m, "expert_weights_scale", 1);
    c->norm_topk_prob = get_int(m, "expert_weights_norm", 0) != 0;
done:
    return st;
}

/* What the file does not say is the same in all of llama.cpp's. */
static af_status get_llama4(const metadata *m, af_error *err)
{
    enum { CHUNK = 8192, MAVERICK = 128 };
    af_hf_config *c = m->c;
    char key[128];
    if (af_gguf_find_kv(m->g, key_of(m, "attention.sliding_window", key)) && !c->sliding_window)
        return af_fail(err, AF_EUNSUPPORTED, "%s is 0: a llama4 without chunks is not supported",
                       key);
    c->dense_ffn = c->intermediate_size;
    c->intermediate_size = c->router.shared_ffn = c->moe_intermediate_size;
    c->decoder_sparse_step = get_int(m, "interleave_moe_layer_step", 1);
    c->norm_topk_prob = false;
    c->router.sigmoid = c->router.scale_input = true;
    c->qk_norm = c->num_experts != MAVERICK;
    c->query_scaling_beta = 0.1;
    c->query_scaling_length = c->sliding_window = CHUNK;
    return AF_OK;
}

static af_status get_layer_heads(const metadata *m, af_error *err)
{
    af_hf_config *c = m->c;
    char key[128];
    const int64_t n = c->num_hidden_layers;
    const af_gguf_kv *kv = af_gguf_find_kv(m->g, key_of(m, "attention.head_count", key));
    if (!kv || kv->count < 2 || n < 1 || n > AF_CONFIG_LAYERS_MAX)
        return AF_OK;
    int64_t *heads = af_arena_take(&c->arena, (uint64_t)n * sizeof *heads);
    if (!heads)
        return af_fail_nomem(err, key, (uint64_t)n * sizeof *heads);
    for (int64_t i = 0; i < n; i++) {
        heads[i] = !kv->str && kv->count == (uint64_t)n ? af_gguf_item_int(kv, (uint64_t)i) : 0;
        if (heads[i] < 1 || heads[i] > AF_CONFIG_HEADS_MAX)
            return af_fail(err, AF_EFORMAT, "%s is not one number of 1 or more per layer", key);
    }
    c->layer_heads = heads;
    return AF_OK;
}

/* Layers with a window have a rotation of their own. */
static af_status get_laguna(const metadata *m, af_error *err)
{
    af_hf_config *c = m->c;
    af_status st = AF_OK;
    const int64_t n = AF_MIN(AF_MAX(c->num_hidden_layers, 1), (int64_t)AF_CONFIG_LAYERS_MAX);
    const af_stored *gate = af_gguf_find(m->g, "blk.0.attn_gate.weight");
    AF_TRY(get_deepseek(m, true, err));
    AF_TRY(get_shared_width(m, c->moe_intermediate_size, err));
    AF_TRY(get_layer_heads(m, err));
    AF_TRY(get_slides(m, err));
    if (!c->layer_types) {
        af_layer_type *types = af_arena_take(&c->arena, (uint64_t)n * sizeof *types);
        if (!types)
            return af_fail_nomem(err, "layer types", (uint64_t)n * sizeof *types);
        for (int64_t i = 0; i < n; i++)
            types[i] = c->sliding_window && i % 4 ? AF_LAYER_SLIDING : AF_LAYER_FULL;
        c->layer_types = types;
    }
    c->router.eps = 0;
    c->attn_gate_heads = gate && gate->dim[0] == c->num_attention_heads;
    const int64_t dims = get_int(m, "rope.dimension_count_swa", 0);
    if (dims > 0 && c->head_dim > 0)
        c->local_rope.partial_rotary_factor = (double)dims / (double)c->head_dim;
done:
    return st;
}

/* Layers with a window have twice the kv heads. */
static af_status get_mimo_heads(const metadata *m, af_error *err)
{
    af_hf_config *c = m->c;
    char key[128];
    const int64_t n = c->num_hidden_layers;
    const af_gguf_kv *kv = af_gguf_find_kv(m->g, key_of(m, "attention.head_count_kv", key));
    if (!kv || kv->str || n < 1 || n > AF_CONFIG_LAYERS_MAX || kv->count < (uint64_t)n)
        return af_fail(err, AF_EFORMAT, "%s is not one number per layer", key);
    for (int64_t i = 0; i < n; i++) {
        const int64_t twice = c->layer_types[i] == AF_LAYER_SLIDING ? 2 : 1,
                      heads = af_gguf_item_int(kv, (uint64_t)i);
        c->num_key_value_heads = i ? c->num_key_value_heads : heads / twice;
        if (heads < 1 || heads % twice || heads / twice != c->num_key_value_heads)
            return af_fail(err, AF_EUNSUPPORTED,
                           "%s is not the same in all layers but twice in those with a window",
                           key);
    }
    return AF_OK;
}

static af_status get_mimo(const metadata *m, af_error *err)
{
    af_hf_config *c = m->c;
    af_status st = AF_OK;
    AF_TRY(get_deepseek(m, true, err));
    AF_TRY(get_dense_layers(m, err));
    AF_TRY(get_slides(m, err));
    if (!c->layer_types)
        return af_fail(err, AF_EFORMAT, "mimo2.attention.sliding_window_pattern is missing");
    AF_TRY(get_mimo_heads(m, err));
    c->router.choice_bias = c->norm_topk_prob = true; /* whatever the file says */
    c->router.scale = 1;
    c->router.shared_ffn = 0;
    c->latent.v_dim = get_int(m, "attention.value_length", c->head_dim);
    c->value_scale = get_num(m, "attention.value_scale", 1);
    if (c->latent.v_dim < 1 || c->latent.v_dim > c->head_dim)
        return af_fail(err, AF_EFORMAT, "mimo2.attention.value_length is %" PRId64,
                       c->latent.v_dim);
    if (!(c->value_scale > 0) || c->value_scale > 1e9)
        return af_fail(err, AF_EFORMAT, "mimo2.attention.value_scale is %g", c->value_scale);
done:
    return st;
}

/* Layers without experts have rope, and of the others those with a window. */
static af_status get_cohere2moe(const metadata *m, af_error *err)
{
    enum { SOFTMAX = 1 };
    af_hf_config *c = m->c;
    af_status st = AF_OK;
    char key[128];
    AF_TRY(get_dense_lead(m, err));
    AF_TRY(get_slides(m, err));
    AF_TRY(get_shared_width(m, get_int(m, "expert_shared_count", 0) ? c->moe_intermediate_size : 0,
                            err));
    c->dense_ffn = c->intermediate_size;
    c->intermediate_size = c->moe_intermediate_size;
    c->router.shared_mean = true;
    c->router.sigmoid = get_int(m, "expert_gating_func", 0) != SOFTMAX;
    c->norm_topk_prob = get_int(m, "expert_weights_norm", 0) != 0;
    c->rms_norm = af_gguf_find_kv(m->g, key_of(m, "attention.layer_norm_rms_epsilon", key)) != NULL;
    c->rope_sliding_only = c->rope_dense = true;
    c->logit_scale = get_num(m, "logit_scale", 0.0625);
    c->logits_scaling = 1;
    if (!(c->logit_scale > 0) || c->logit_scale > 1e9)
        return af_fail(err, AF_EFORMAT, "cohere2moe.logit_scale is %g", c->logit_scale);
done:
    return st;
}

af_status af_config_gguf_experts(af_hf_config *c, const af_gguf *g, const char *arch, af_error *err)
{
    const metadata m = {c, g, arch};
    af_status st = AF_OK;
    if (strcmp(arch, "gpt-oss") == 0)
        get_gpt_oss(c);
    if (strcmp(arch, "glm4moe") == 0 || strcmp(arch, "dots1") == 0)
        AF_TRY(get_deepseek(&m, strcmp(arch, "glm4moe") == 0, err));
    if (strcmp(arch, "deepseek") == 0 || strcmp(arch, "bailingmoe") == 0) {
        AF_TRY(get_deepseek(&m, false, err));
        c->router.sigmoid = c->router.choice_bias = false;
        c->router.groups = c->router.groups_used = 0;
        c->norm_topk_prob &= strcmp(arch, "deepseek") != 0;
    }
    if (strcmp(arch, "bailingmoe2") == 0)
        AF_TRY(get_deepseek(&m, false, err));
    if (strcmp(arch, "granitemoe") == 0) {
        c->moe_intermediate_size = c->intermediate_size;
        AF_TRY(get_shared_width(&m, 0, err));
    }
    if (strcmp(arch, "granite_swa") == 0)
        AF_TRY(get_granite_swa(&m, err));
    if (strcmp(arch, "hunyuan-moe") == 0)
        AF_TRY(get_shared_width(&m, c->intermediate_size, err));
    if (strcmp(arch, "minimax-m2") == 0)
        c->router.sigmoid = c->router.choice_bias = true;
    if (strcmp(arch, "ernie4_5-moe") == 0) {
        AF_TRY(get_dense_lead(&m, err));
        AF_TRY(get_shared_width(&m, 0, err));
        c->router.choice_bias = true;
    }
    if (strcmp(arch, "exaone-moe") == 0) { /* layers without a window have no rope */
        AF_TRY(get_deepseek(&m, false, err));
        AF_TRY(get_slides(&m, err));
        c->rope_sliding_only = true;
    }
    if (strcmp(arch, "afmoe") == 0) {
        AF_TRY(get_deepseek(&m, false, err));
        c->embedding_multiplier = sqrt((double)c->hidden_size);
        c->rope_sliding_only = true;
    }
    if (strcmp(arch, "mellum") == 0)
        AF_TRY(get_slides(&m, err));
    if (strcmp(arch, "hy_v3") == 0)
        AF_TRY(get_hy_v3(&m, err));
    if (strcmp(arch, "laguna") == 0)
        AF_TRY(get_laguna(&m, err));
    if (strcmp(arch, "mimo2") == 0)
        AF_TRY(get_mimo(&m, err));
    if (strcmp(arch, "cohere2moe") == 0)
        AF_TRY(get_cohere2moe(&m, err));
    if (strcmp(arch, "llama4") == 0)
        AF_TRY(get_llama4(&m, err));
done:
    return st;
}
