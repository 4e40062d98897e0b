/* gguf_state.c - see gguf_state.h. */
#include "format/config/gguf_state.h"

#include "base/log.h"

#include <math.h>

typedef struct state_source {
    const af_gguf *g;
    const char *arch;
    af_hf_config *c;
    af_layer_type *types; /* [num_hidden_layers] */
    af_error *err;
    char key[256];
} state_source;

static const char *key_of(state_source *s, const char *suffix)
{
    snprintf(s->key, sizeof s->key, "%s.%s", s->arch, suffix);
    return s->key;
}

static af_status get_size(state_source *s, const char *suffix, int64_t max, int64_t *out)
{
    *out = af_gguf_int(s->g, key_of(s, suffix), 0);
    if (*out >= 1 && *out <= max)
        return AF_OK;
    return af_fail(s->err, AF_EFORMAT, "%s is %" PRId64 ", not between 1 and %" PRId64, s->key,
                   *out, max);
}

/* Layers without heads of keys and values are `other`. */
static af_status get_kv_heads(state_source *s, af_layer_type other)
{
    af_hf_config *c = s->c;
    const af_gguf_kv *kv = af_gguf_find_kv(s->g, key_of(s, "attention.head_count_kv"));
    if (!kv || kv->str || (kv->count != 1 && kv->count != (uint64_t)c->num_hidden_layers))
        return af_fail(s->err, AF_EFORMAT, "%s is not one number per layer", s->key);
    c->num_key_value_heads = 0;
    for (int64_t i = 0; i < c->num_hidden_layers; i++) {
        const int64_t heads = af_gguf_item_int(kv, kv->count == 1 ? 0 : (uint64_t)i);
        s->types[i] = heads ? AF_LAYER_FULL : other;
        if (heads && c->num_key_value_heads && heads != c->num_key_value_heads)
            return af_fail(s->err, AF_EUNSUPPORTED, "%s differs between layers", s->key);
        c->num_key_value_heads = heads ? heads : c->num_key_value_heads;
    }
    if (c->num_key_value_heads == 0) /* nobody reads it */
        c->num_key_value_heads = c->num_attention_heads;
    return AF_OK;
}

static bool any_layer_has(const state_source *s, const char *tensor)
{
    char name[96];
    bool found = false;
    for (int64_t i = 0; i < s->c->num_hidden_layers && !found; i++) {
        snprintf(name, sizeof name, "blk.%" PRId64 ".%s", i, tensor);
        found = af_gguf_find(s->g, name) != NULL;
    }
    return found;
}

/* ---- short convolutions ---- */

static af_status get_conv(state_source *s)
{
    af_status st = AF_OK;
    af_hf_config *c = s->c;
    AF_TRY(get_kv_heads(s, AF_LAYER_CONV));
    AF_TRY(get_size(s, "shortconv.l_cache", AF_STATE_KERNEL_MAX, &c->state.conv_kernel));
    if (strcmp(s->arch, "lfm2moe") != 0)
        return AF_OK;
    const int64_t dense =
        AF_MIN(AF_MAX(af_gguf_int(s->g, key_of(s, "leading_dense_block_count"), 0), 0),
               c->num_hidden_layers);
    int64_t *layers = af_arena_take(&c->arena, (uint64_t)AF_MAX(dense, 1) * sizeof *layers);
    if (!layers)
        return af_fail_nomem(s->err, "dense layers", (uint64_t)dense * sizeof *layers);
    for (int64_t i = 0; i < dense; i++)
        layers[i] = i;
    c->mlp_only_layers = layers;
    c->mlp_only_count = (int)dense;
    c->router.sigmoid = c->router.choice_bias = true;
    c->router.eps = 1e-6;
    c->router.scale = 1;
done:
    return st;
}

/* ---- gated delta net ---- */

static af_status get_delta_layers(state_source *s)
{
    const int64_t n = s->c->num_hidden_layers;
    const af_gguf_kv *kv = af_gguf_find_kv(s->g, key_of(s, "attention.recurrent_layers"));
    const int64_t every = af_gguf_int(s->g, key_of(s, "full_attention_interval"), 4);
    if (every < 1)
        return af_fail(s->err, AF_EFORMAT, "%s is %" PRId64, s->key, every);
    if (kv && (kv->str || kv->count < (uint64_t)n))
        return af_fail(s->err, AF_EFORMAT,
                       "%s.attention.recurrent_layers is not one value per layer", s->arch);
    for (int64_t i = 0; i < n; i++) {
        const bool state = kv ? af_gguf_item_int(kv, (uint64_t)i) != 0 : (i + 1) % every != 0;
        s->types[i] = state ? AF_LAYER_LINEAR : AF_LAYER_FULL;
    }
    return AF_OK;
}

/* Heads, their values and their groups. */
static af_status get_ssm(state_source *s)
{
    af_status st = AF_OK;
    af_state_keys *k = &s->c->state;
    int64_t width;
    AF_TRY(get_size(s, "ssm.conv_kernel", AF_STATE_KERNEL_MAX, &k->conv_kernel));
    AF_TRY(get_size(s, "ssm.state_size", AF_STATE_DIM_MAX, &k->key_dim));
    AF_TRY(get_size(s, "ssm.group_count", AF_CONFIG_HEADS_MAX, &k->key_heads));
    AF_TRY(get_size(s, "ssm.time_step_rank", AF_CONFIG_HEADS_MAX, &k->heads));
    AF_TRY(get_size(s, "ssm.inner_size", (int64_t)AF_STATE_DIM_MAX * AF_CONFIG_HEADS_MAX, &width));
    k->head_dim = width / k->heads;
    if (width % k->heads || k->heads % k->key_heads || k->head_dim > AF_STATE_DIM_MAX)
        return af_fail(s->err, AF_EFORMAT,
                       "%s.ssm: inner_size %" PRId64 ", time_step_rank %" PRId64
                       " and group_count %" PRId64 " do not divide",
                       s->arch, width, k->heads, k->key_heads);
done:
    return st;
}

static af_status get_delta(state_source *s)
{
    af_status st = AF_OK;
    af_hf_config *c = s->c;
    AF_TRY(get_kv_heads(s, AF_LAYER_LINEAR));
    AF_TRY(get_delta_layers(s));
    AF_TRY(get_ssm(s));
    c->state.by_key_head = strcmp(s->arch, "qwen3next") == 0;
    if (c->num_experts) {
        c->router.shared_gate = true;
        AF_TRY(get_size(s, "expert_shared_feed_forward_length", AF_CONFIG_WIDTH_MAX,
                        &c->router.shared_ffn));
    }
done:
    return st;
}

static af_status no_rotation(state_source *s)
{
    const uint64_t n = (uint64_t)s->c->num_hidden_layers;
    bool *none = af_arena_take(&s->c->arena, n * sizeof *none);
    if (!none)
        return af_fail_nomem(s->err, "layers without rotation", n);
    memset(none, 1, n * sizeof *none);
    s->c->no_rope = none;
    return AF_OK;
}

/* Kimi delta attention has the heads of attention. */
static af_status get_kda(state_source *s)
{
    af_status st = AF_OK;
    af_hf_config *c = s->c;
    af_state_keys *k = &c->state;
    const bool bound = strcmp(s->arch, "bailingmoe3") == 0;
    AF_TRY(get_kv_heads(s, AF_LAYER_LINEAR));
    AF_TRY(get_size(s, "ssm.conv_kernel", AF_STATE_KERNEL_MAX, &k->conv_kernel));
    AF_TRY(get_size(s, "kda.head_dim", AF_STATE_DIM_MAX, &k->head_dim));
    k->heads = k->key_heads = c->num_attention_heads;
    k->key_dim = k->head_dim;
    k->channels = k->apart = true;
    if (!bound) {
        k->gate_rank = k->head_dim;
        return no_rotation(s);
    }
    k->decay_bound = af_gguf_float(s->g, key_of(s, "kda.gate_lower_bound"), 0);
    if (!(k->decay_bound < 0) || k->decay_bound < -1e4)
        return af_fail(s->err, AF_EFORMAT, "%s is %g, not below 0", s->key, k->decay_bound);
done:
    return st;
}

/* ---- Mamba-2 ---- */

static af_status get_mamba(state_source *s)
{
    af_status st = AF_OK;
    af_hf_config *c = s->c;
    AF_TRY(get_kv_heads(s, AF_LAYER_MAMBA));
    AF_TRY(get_ssm(s));
    c->state.norm_groups = c->state.key_heads;
    c->state.conv_bias = any_layer_has(s, "ssm_conv1d.bias");
    c->attention_bias = any_layer_has(s, "attn_q.bias");
    if (c->num_experts) {
        c->moe_intermediate_size = c->intermediate_size;
        AF_TRY(get_size(s, "expert_shared_feed_forward_length", AF_CONFIG_WIDTH_MAX,
                        &c->router.shared_ffn));
    }
    if (strcmp(c->model_type, "bamba") == 0 && !af_gguf_find_kv(s->g, "afinar.file.config.json"))
        af_log_write(
            AF_LOG_WARN,
            "this bamba is what llama.cpp computes of the file; llama.cpp's converter "
            "orders rows of q_proj and k_proj as if whole heads were rotated, which is another "
            "model than the one it converts");
    if (!af_gguf_bool(s->g, key_of(s, "rope.scaling.finetuned"), false)) { /* its word for rope */
        AF_TRY(no_rotation(s));
    }
done:
    return st;
}

/* ---- Mamba-1 ---- */

/* Channels, states of one, and the rank of time steps. */
static af_status get_selective(state_source *s)
{
    af_status st = AF_OK;
    af_state_keys *k = &s->c->state;
    const int64_t D = s->c->hidden_size;
    AF_TRY(get_size(s, "ssm.conv_kernel", AF_STATE_KERNEL_MAX, &k->conv_kernel));
    AF_TRY(get_size(s, "ssm.state_size", AF_STATE_DIM_MAX, &k->key_dim));
    AF_TRY(get_size(s, "ssm.time_step_rank", AF_CONFIG_WIDTH_MAX, &k->step_rank));
    AF_TRY(get_size(s, "ssm.inner_size", 64 * (int64_t)AF_CONFIG_WIDTH_MAX, &k->inner));
    if (D < 1 || k->inner % D || k->inner / D > 64)
        return af_fail(s->err, AF_EFORMAT,
                       "%s is %" PRId64 ", not embedding_length %" PRId64 " times 1 to 64", s->key,
                       k->inner, D);
    k->heads = k->inner; /* states are [heads][key_dim] */
    k->head_dim = k->key_heads = 1;
done:
    return st;
}

/* Whether layers of a kind are every so many, from an offset below that: config.json has no other.
 */
static bool every_so_many(const bool *is, int64_t n)
{
    int64_t first = 0, next;
    while (first < n && !is[first])
        first++;
    next = first + 1;
    while (next < n && !is[next])
        next++;
    const int64_t period = next < n ? next - first : n;
    for (int64_t i = next; i < n; i++)
        if (is[i] != ((i - first) % period == 0))
            return false;
    return first == n || first < period;
}

/* Layers without a router have no experts. */
static af_status get_jamba(state_source *s)
{
    af_status st = AF_OK;
    af_hf_config *c = s->c;
    const int64_t n = c->num_hidden_layers;
    bool attends[AF_CONFIG_LAYERS_MAX], routes[AF_CONFIG_LAYERS_MAX];
    int64_t *dense = af_arena_take(&c->arena, (uint64_t)n * sizeof *dense);
    if (!dense)
        return af_fail_nomem(s->err, "dense layers", (uint64_t)n * sizeof *dense);
    AF_TRY(get_kv_heads(s, AF_LAYER_MAMBA));
    AF_TRY(get_selective(s));
    AF_TRY(no_rotation(s));
    c->state.conv_bias = any_layer_has(s, "ssm_conv1d.bias");
    c->state.step_norms = true;
    c->state.step_eps = c->rms_norm_eps;
    if (c->num_experts < 2)
        c->num_experts = c->num_experts_per_tok = 1;
    c->moe_intermediate_size = c->intermediate_size;
    c->decoder_sparse_step = 1;
    c->norm_topk_prob = false;
    for (int64_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%" PRId64 ".ffn_gate_inp.weight", i);
        attends[i] = s->types[i] == AF_LAYER_FULL;
        routes[i] = c->num_experts > 1 && af_gguf_find(s->g, name);
        if (!routes[i])
            dense[c->mlp_only_count++] = i;
    }
    c->mlp_only_layers = dense;
    if (!every_so_many(attends, n) || !every_so_many(routes, n))
        return af_fail(s->err, AF_EUNSUPPORTED,
                       "jamba: layers with %s are not every so many layers",
                       every_so_many(attends, n) ? "experts" : "attention");
done:
    return st;
}

/* ---- Mamba layers alone ---- */

/* There is no attention and no MLP: their sizes are not used. llama.cpp has one epsilon for all
 * norms of falcon_mamba; that of its time steps is the one of the models. */
static af_status get_bare_mamba(state_source *s)
{
    af_status st = AF_OK;
    af_hf_config *c = s->c;
    AF_TRY(strcmp(s->arch, "mamba") == 0 ? get_selective(s) : get_ssm(s));
    if (strcmp(c->model_type, "falcon_mamba") == 0)
        c->state.step_eps = 1e-6;
    AF_TRY(no_rotation(s));
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        s->types[i] = AF_LAYER_MAMBA;
    c->num_attention_heads = c->num_key_value_heads = c->intermediate_size = 1;
    c->head_dim = 2;
    if (!c->state.inner)
        c->state.norm_groups = c->state.key_heads;
    c->state.conv_bias = af_gguf_find(s->g, "blk.0.ssm_conv1d.bias") != NULL;
done:
    return st;
}

/* ---- attention next to Mamba-2 ---- */

/* Weights are multiplied with what the model's config has; files that do not say it have 1. */
static af_status get_multipliers(state_source *s)
{
    af_mup_keys *m = &s->c->mup;
    double *to[AF_MUP_COUNT] = {&m->attn_in, &m->attn_out,
                                &m->key,     &m->ssm_in,
                                &m->ssm_out, &m->ssm[0],
                                &m->ssm[1],  &m->ssm[2],
                                &m->ssm[3],  &m->ssm[4],
                                &m->gate,    &m->down,
                                &m->head,    &s->c->embedding_multiplier};
    const af_gguf_kv *kv = af_gguf_find_kv(s->g, AF_MUP_KEY);
    bool fits = !kv || (!kv->str && kv->count == AF_MUP_COUNT);
    m->given = true;
    for (int i = 0; i < AF_MUP_COUNT; i++) {
        *to[i] = kv && fits ? af_gguf_item_float(kv, (uint64_t)i) : 1;
        fits &= fabs(*to[i]) > 0 && fabs(*to[i]) <= 1e6;
    }
    return fits ? AF_OK
                : af_fail(s->err, AF_EFORMAT, AF_MUP_KEY " is not %d numbers other than 0",
                          AF_MUP_COUNT);
}

static af_status get_falcon_h1(state_source *s)
{
    af_status st = AF_OK;
    af_hf_config *c = s->c;
    AF_TRY(get_kv_heads(s, AF_LAYER_MAMBA));
    AF_TRY(get_ssm(s));
    AF_TRY(get_multipliers(s));
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        s->types[i] = AF_LAYER_MAMBA;
    c->state.norm_groups = c->state.key_heads;
    c->state.conv_bias = any_layer_has(s, "ssm_conv1d.bias");
    c->state.no_norm = !any_layer_has(s, "ssm_norm.weight");
done:
    return st;
}

/* ---- layers of one half alone ---- */

/* Layers with an MLP or experts have its width, and no heads. */
static af_status get_mlp_layers(state_source *s)
{
    af_hf_config *c = s->c;
    const af_gguf_kv *kv = af_gguf_find_kv(s->g, key_of(s, "feed_forward_length"));
    if (!kv || kv->str || kv->count != (uint64_t)c->num_hidden_layers)
        return af_fail(s->err, AF_EFORMAT, "%s is not one number per layer", s->key);
    c->intermediate_size = 0;
    for (int64_t i = 0; i < c->num_hidden_layers; i++) {
        const int64_t width = af_gguf_item_int(kv, (uint64_t)i);
        if (width == 0)
            continue;
        if (c->intermediate_size && width != c->intermediate_size)
            return af_fail(s->err, AF_EUNSUPPORTED, "%s differs between layers", s->key);
        c->intermediate_size = width;
        s->types[i] = c->num_experts ? AF_LAYER_EXPERTS : AF_LAYER_MLP;
    }
    c->intermediate_size = c->intermediate_size ? c->intermediate_size : 1; /* nobody reads it */
    return AF_OK;
}

static af_status get_plain_experts(state_source *s)
{
    af_status st = AF_OK;
    af_router_keys *r = &s->c->router;
    AF_TRY(get_size(s, "expert_shared_feed_forward_length", AF_CONFIG_WIDTH_MAX, &r->shared_ffn));
    if (af_gguf_find_kv(s->g, key_of(s, "moe_latent_size")))
        AF_TRY(get_size(s, "moe_latent_size", AF_CONFIG_WIDTH_MAX, &r->latent));
    r->sigmoid = r->choice_bias = true;
    r->eps = 1e-20;
    r->scale = af_gguf_float(s->g, key_of(s, "expert_weights_scale"), 1);
    r->groups = AF_MAX(af_gguf_int(s->g, key_of(s, "expert_group_count"), 1), 1);
    r->groups_used = af_gguf_int(s->g, key_of(s, "expert_group_used_count"), 1);
    r->group_best = 2;
    s->c->norm_topk_prob = af_gguf_bool(s->g, key_of(s, "expert_weights_norm"), false);
done:
    return st;
}

/* llama.cpp does not limit time steps; the limit is that of the models. */
static af_status get_nemotron(state_source *s)
{
    af_status st = AF_OK;
    af_hf_config *c = s->c;
    AF_TRY(get_kv_heads(s, AF_LAYER_MAMBA));
    AF_TRY(get_mlp_layers(s));
    AF_TRY(get_ssm(s));
    c->state.conv_bias = any_layer_has(s, "ssm_conv1d.bias");
    c->state.norm_groups = c->state.key_heads;
    c->state.step_min = 0.001;
    c->mlp_bias = any_layer_has(s, "ffn_up.bias");
    if (c->num_experts)
        AF_TRY(get_plain_experts(s));
    AF_TRY(no_rotation(s));
done:
    return st;
}

af_status af_config_gguf_state(af_hf_config *c, const af_gguf *g, const char *arch, af_error *err)
{
    state_source s = {.g = g, .arch = arch, .c = c, .err = err};
    const int64_t n = c->num_hidden_layers;
    if (n < 1 || n > AF_CONFIG_LAYERS_MAX)
        return af_fail(err, AF_EFORMAT, "%s.block_count is %" PRId64, arch, n);
    s.types = af_arena_take(&c->arena, (uint64_t)n * sizeof *s.types);
    if (!s.types)
        return af_fail_nomem(err, "layer types", (uint64_t)n * sizeof *s.types);
    c->layer_types = s.types;
    return strncmp(arch, "qwen", 4) == 0          ? get_delta(&s)
           : strncmp(arch, "nemotron_h", 10) == 0 ? get_nemotron(&s)
           : strcmp(arch, "kimi-linear") == 0     ? get_kda(&s)
           : strcmp(arch, "bailingmoe3") == 0     ? get_kda(&s)
           : strcmp(arch, "granitehybrid") == 0   ? get_mamba(&s)
           : strncmp(arch, "mamba", 5) == 0       ? get_bare_mamba(&s)
           : strcmp(arch, "jamba") == 0           ? get_jamba(&s)
           : strcmp(arch, "falcon-h1") == 0       ? get_falcon_h1(&s)
                                                  : get_conv(&s);
}
