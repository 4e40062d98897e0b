/* hf_config_check.c - the judgement over a config, wherever it was read from. */
#include "format/config/hf_config_check.h"

#include <math.h>

static const char *const rope_names[] = {
    [AF_ROPE_DEFAULT] = "default",           [AF_ROPE_LINEAR] = "linear",
    [AF_ROPE_DYNAMIC] = "dynamic",           [AF_ROPE_YARN] = "yarn",
    [AF_ROPE_LONGROPE] = "longrope",         [AF_ROPE_LLAMA3] = "llama3",
    [AF_ROPE_PROPORTIONAL] = "proportional",
};

const char *af_rope_type_name(af_rope_type t)
{
    return (unsigned)t < AF_LEN(rope_names) ? rope_names[t] : "?";
}

static af_status bad(const char *name, const char *key, double value, const char *want,
                     af_error *err)
{
    return af_fail(err, AF_EFORMAT, "%s: %s is %.17g, not %s", name, key, value, want);
}

static bool slides(const af_hf_config *c, const af_family *f, int64_t i)
{
    if (c->sliding_window == 0)
        return false;
    switch (f->sliding) {
    case AF_SLIDING_NEVER:
    case AF_SLIDING_LISTED:
        return false;
    case AF_SLIDING_ALL:
        return true;
    case AF_SLIDING_SWITCHED:
        return c->use_sliding_window;
    case AF_SLIDING_UPPER:
        return c->use_sliding_window && i >= c->max_window_layers;
    case AF_SLIDING_ABOVE:
        return i >= c->max_window_layers;
    case AF_SLIDING_BUT_FIRST:
        return i % c->sliding_window_pattern != 0;
    case AF_SLIDING_PATTERN:
        return (i + 1) % c->sliding_window_pattern != 0;
    case AF_SLIDING_ROPELESS:
        return c->use_sliding_window && c->no_rope && c->no_rope[i];
    case AF_SLIDING_TURNING:
        return !(c->no_rope && c->no_rope[i]);
    }
    return false;
}

static af_status fill_layers(af_hf_config *c, const af_family *f, af_error *err)
{
    af_layer_type *types = af_arena_take(&c->arena, (uint64_t)c->num_hidden_layers * sizeof *types);
    if (!types)
        return af_fail_nomem(err, "layer types", (uint64_t)c->num_hidden_layers * sizeof *types);
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        types[i] = slides(c, f, i) ? AF_LAYER_SLIDING : AF_LAYER_FULL;
    c->layer_types = types;
    return AF_OK;
}

static af_status check_factors(const char *name, const char *key, const double *v, int n,
                               int64_t want, af_error *err)
{
    if (n != want)
        return af_fail(err, AF_EFORMAT, "%s: %s has %d values where the head needs %" PRId64, name,
                       key, n, want);
    for (int i = 0; i < n; i++)
        if (!(v[i] > 0) || !isfinite(v[i]))
            return bad(name, key, v[i], "a positive number", err);
    return AF_OK;
}

static af_status check_by_type(const af_hf_config *c, const af_rope_config *r, const char *name,
                               af_error *err)
{
    const int64_t dim = c->latent.qk_rope_dim > 0 ? c->latent.qk_rope_dim : c->head_dim;
    const int64_t pairs = (int64_t)((double)dim * r->partial_rotary_factor) / 2;
    if (r->type == AF_ROPE_LLAMA3) {
        if (!(r->low_freq_factor > 0) || !isfinite(r->low_freq_factor))
            return bad(name, "low_freq_factor", r->low_freq_factor, "a positive number", err);
        if (!(r->high_freq_factor >= r->low_freq_factor) || !isfinite(r->high_freq_factor))
            return bad(name, "high_freq_factor", r->high_freq_factor, "low_freq_factor or above",
                       err);
        if (r->original_max_position_embeddings == 0)
            return bad(name, "original_max_position_embeddings", 0, "a positive number", err);
    }
    if (r->type == AF_ROPE_YARN && !(r->beta_fast >= r->beta_slow))
        return bad(name, "beta_fast", r->beta_fast, "beta_slow or above", err);
    if (r->type == AF_ROPE_LONGROPE) {
        const af_status st =
            check_factors(name, "short_factor", r->short_factor, r->short_count, pairs, err);
        if (st != AF_OK)
            return st;
        return check_factors(name, "long_factor", r->long_factor, r->long_count, pairs, err);
    }
    if (r->freq_factor)
        return check_factors(name, "rope_freqs", r->freq_factor, r->freq_count, pairs, err);
    return AF_OK;
}

AF_CHECKED static af_status check_rope(const af_hf_config *c, af_rope_config *r, const char *name,
                                       af_error *err)
{
    const struct {
        const char *key;
        double value;
        bool may_be_zero;
    } positive[] = {
        {"rope_theta", r->theta, false},
        {"the rope factor", r->factor, false},
        {"attention_factor", r->attention_factor, true},
        {"beta_fast", r->beta_fast, false},
        {"beta_slow", r->beta_slow, false},
        {"mscale", r->mscale, true},
        {"mscale_all_dim", r->mscale_all_dim, true},
    };
    for (size_t i = 0; i < AF_LEN(positive); i++) {
        const double v = positive[i].value;
        if (!isfinite(v) || v < 0 || (v == 0 && !positive[i].may_be_zero))
            return bad(name, positive[i].key, v, "a positive number", err);
    }
    if (!(r->partial_rotary_factor > 0) || r->partial_rotary_factor > 1)
        return bad(name, "partial_rotary_factor", r->partial_rotary_factor, "above 0 and up to 1",
                   err);
    if (r->original_max_position_embeddings == 0 &&
        (r->type == AF_ROPE_YARN || r->type == AF_ROPE_DYNAMIC || r->type == AF_ROPE_LONGROPE ||
         r->type == AF_ROPE_LLAMA3))
        r->original_max_position_embeddings = c->max_position_embeddings;
    return check_by_type(c, r, name, err);
}

static af_status check_sizes(const af_hf_config *c, const char *name, af_error *err)
{
    const struct {
        const char *key;
        int64_t value, min, max;
    } sizes[] = {
        {"vocab_size", c->vocab_size, 1, AF_CONFIG_VOCAB_MAX},
        {"hidden_size", c->hidden_size, 1, AF_CONFIG_WIDTH_MAX},
        {"intermediate_size", c->intermediate_size, 1, AF_CONFIG_WIDTH_MAX},
        {"num_hidden_layers", c->num_hidden_layers, 1, AF_CONFIG_LAYERS_MAX},
        {"num_attention_heads", c->num_attention_heads, 1, AF_CONFIG_HEADS_MAX},
        {"num_key_value_heads", c->num_key_value_heads, 1, AF_CONFIG_HEADS_MAX},
        {"head_dim", c->head_dim, 1, AF_CONFIG_WIDTH_MAX},
        {"max_position_embeddings", c->max_position_embeddings, 1, INT64_C(1) << 40},
        {"sliding_window", c->sliding_window, 0, INT64_C(1) << 40},
        {"sliding_window_pattern", c->sliding_window_pattern, 1, AF_CONFIG_LAYERS_MAX},
        {"max_window_layers", c->max_window_layers, 0, INT64_C(1) << 31},
        {"num_experts", c->num_experts, 0, AF_CONFIG_EXPERTS_MAX},
        {"num_experts_per_tok", c->num_experts_per_tok, 0, AF_CONFIG_EXPERTS_MAX},
        {"moe_intermediate_size", c->moe_intermediate_size, 0, AF_CONFIG_WIDTH_MAX},
        {"the width of a dense MLP", c->dense_ffn, 0, AF_CONFIG_WIDTH_MAX},
        {"decoder_sparse_step", c->decoder_sparse_step, 0, AF_CONFIG_LAYERS_MAX},
    };
    for (size_t i = 0; i < AF_LEN(sizes); i++)
        if (sizes[i].value < sizes[i].min || sizes[i].value > sizes[i].max)
            return af_fail(err, AF_EFORMAT,
                           "%s: %s is %" PRId64 ", not between %" PRId64 " and %" PRId64, name,
                           sizes[i].key, sizes[i].value, sizes[i].min, sizes[i].max);
    if (c->num_attention_heads % c->num_key_value_heads)
        return af_fail(err, AF_EFORMAT,
                       "%s: num_attention_heads %" PRId64
                       " is not a multiple of num_key_value_heads %" PRId64,
                       name, c->num_attention_heads, c->num_key_value_heads);
    if (c->num_experts && (c->num_experts_per_tok < 1 || c->num_experts_per_tok > c->num_experts))
        return af_fail(err, AF_EFORMAT,
                       "%s: num_experts_per_tok is %" PRId64 " of num_experts %" PRId64, name,
                       c->num_experts_per_tok, c->num_experts);
    const af_router_keys *r = &c->router;
    if (r->groups > 1 &&
        (c->num_experts % r->groups || r->groups_used < 1 || r->groups_used > r->groups ||
         r->group_best > c->num_experts / r->groups ||
         c->num_experts_per_tok > c->num_experts / r->groups * r->groups_used))
        return af_fail(err, AF_EFORMAT,
                       "%s: %" PRId64 " of %" PRId64 " groups (n_group, topk_group) cannot give "
                       "%" PRId64 " of %" PRId64 " experts",
                       name, r->groups_used, r->groups, c->num_experts_per_tok, c->num_experts);
    return AF_OK;
}

static af_status check_numbers(const af_hf_config *c, const char *name, af_error *err)
{
    const struct {
        const char *key;
        double value, min, max; /* min < value <= max, or 0 where min is negative */
    } numbers[] = {
        {"rms_norm_eps", c->rms_norm_eps, 0, 1},
        {"query_pre_attn_scalar", c->query_pre_attn_scalar, -1, 1e9},
        {"attn_logit_softcapping", c->attn_logit_softcapping, -1, 1e9},
        {"final_logit_softcapping", c->final_logit_softcapping, -1, 1e9},
        {"embedding_multiplier", c->embedding_multiplier, 0, 1e9},
        {"attention_multiplier", c->attention_multiplier, -1, 1e9},
        {"residual_multiplier", c->residual_multiplier, 0, 1e9},
        {"logits_scaling", c->logits_scaling, 0, 1e9},
        {"clip_qkv", c->qkv_clip, -1, 1e9},
        {"routed_scaling_factor", c->router.scale, -1, 1e9},
        {"alibi_bias_max", c->alibi, -1, 1000},
        {"router_aux_loss_coef", c->router_aux_loss_coef, -1, 1e9},
    };
    for (size_t i = 0; i < AF_LEN(numbers); i++) {
        const double v = numbers[i].value;
        if (!isfinite(v) || v < 0 || v <= numbers[i].min || v > numbers[i].max)
            return bad(name, numbers[i].key, v, "a positive number in range", err);
    }
    return AF_OK;
}

static af_status check_tokens(const af_hf_config *c, const char *name, af_error *err)
{
    const int64_t limit = AF_CONFIG_VOCAB_MAX;
    if (c->bos_token_id < -1 || c->bos_token_id >= limit)
        return bad(name, "bos_token_id", (double)c->bos_token_id, "a token id", err);
    if (c->pad_token_id < -1 || c->pad_token_id >= limit)
        return bad(name, "pad_token_id", (double)c->pad_token_id, "a token id", err);
    for (int i = 0; i < c->eos_count; i++)
        if (c->eos_token_id[i] < 0 || c->eos_token_id[i] >= limit)
            return bad(name, "eos_token_id", (double)c->eos_token_id[i], "a token id", err);
    return AF_OK;
}

af_status af_hf_config_finish(af_hf_config *c, const af_family *f, bool explicit_types,
                              const char *name, af_error *err)
{
    af_status st = AF_OK;
    if (c->head_dim == 0) {
        if (c->num_attention_heads > 0 && c->hidden_size % c->num_attention_heads)
            return af_fail(err, AF_EFORMAT,
                           "%s: hidden_size %" PRId64
                           " is not a multiple of num_attention_heads %" PRId64,
                           name, c->hidden_size, c->num_attention_heads);
        c->head_dim =
            c->num_attention_heads > 0 ? c->hidden_size / c->num_attention_heads : c->hidden_size;
    }
    AF_TRY(check_sizes(c, name, err));
    AF_TRY(check_numbers(c, name, err));
    AF_TRY(check_tokens(c, name, err));
    AF_TRY(check_rope(c, &c->rope, name, err));
    if (c->has_local_rope)
        AF_TRY(check_rope(c, &c->local_rope, name, err));
    if (!explicit_types)
        AF_TRY(fill_layers(c, f, err));
    bool any = false;
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        any |= c->layer_types[i] == AF_LAYER_SLIDING;
    if (any && c->sliding_window == 0)
        return af_fail(err, AF_EFORMAT,
                       "%s: layer_types has sliding layers but sliding_window is not set", name);
    if (!any)
        c->sliding_window = 0; /* nothing uses it */
done:
    return st;
}
