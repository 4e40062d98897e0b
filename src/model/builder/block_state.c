/* block_state.c - layers with a state: gated delta net, Mamba, short convolution, lightning. In
 * generation the window of the convolution and the state of the recurrence are carried from run to
 * run. */
#include "model/arch/decay.h"
#include "model/builder/blocks.h"

static af_tensor *columns(const af_forward *f, af_tensor *x, int64_t from, int64_t count)
{
    return af_slice(f->g, x, 1, from, count);
}

/* The causal convolution of a layer. */
static af_tensor *convolve(const af_forward *f, int layer, af_tensor *x, bool silu)
{
    af_graph *g = f->g;
    af_tensor *w = af_layer_leaf(f, layer, AF_SLOT_CONV),
              *bias = af_layer_leaf(f, layer, AF_SLOT_CONV_BIAS);
    if (af_graph_status(g, NULL) != AF_OK)
        return x;
    w = af_reshape(g, w, 2, (int64_t[]){af_tensor_dim(w, 0), af_tensor_dim(w, 2)});
    if (!f->o.cache)
        return af_conv(g, x, w, bias, f->in->bounds, silu);
    return af_conv_cached(g, x, w, bias, f->o.cache[layer].conv, f->in->bounds, f->in->start, silu);
}

static af_tensor *scan(const af_forward *f, int layer, af_tensor *x, af_tensor *decay,
                       af_tensor *beta, bool delta)
{
    const af_state_keys *k = &f->s->state;
    const af_scan_opts o = {.heads = (int)k->heads,
                            .key_heads = (int)k->key_heads,
                            .key_dim = (int)k->key_dim,
                            .head_dim = (int)k->head_dim,
                            .delta = delta};
    af_tensor *skip = af_layer_leaf(f, layer, AF_SLOT_D);
    if (!f->o.cache)
        return af_scan(f->g, x, decay, beta, skip, f->in->bounds, &o);
    return af_scan_cached(f->g, x, decay, beta, skip, f->o.cache[layer].state, f->in->bounds,
                          f->in->start, &o);
}

static void state_caches(const af_model_leaves *l, int layer, int64_t seqs, int64_t width,
                         bool state, af_layer_cache *out)
{
    const af_state_keys *k = &l->spec->state;
    char name[64];
    snprintf(name, sizeof name, "window.%d", layer);
    if (k->conv_kernel)
        out->conv = af_graph_state(l->graph, name, l->compute, 3,
                                   (int64_t[]){seqs, AF_MAX(k->conv_kernel - 1, 1), width});
    if (!state)
        return;
    snprintf(name, sizeof name, "state.%d", layer);
    out->state = af_graph_state(l->graph, name, AF_DTYPE_F32, 3,
                                (int64_t[]){seqs, k->heads, k->key_dim * k->head_dim});
}

/* ---- gated delta net ---- */

/* What the projections of a layer give. */
typedef struct delta_inputs {
    af_tensor *qkv, *z, *b, *a;
} delta_inputs;

/* Columns [from, from + count) of every key head's share of x [N][J][..], as [N][J * count]. */
static af_tensor *of_heads(const af_forward *f, af_tensor *x, int64_t from, int64_t count)
{
    af_tensor *y = af_slice(f->g, x, 2, from, count);
    return af_reshape(f->g, y, 2, (int64_t[]){af_tensor_dim(x, 0), f->s->state.key_heads * count});
}

/* qwen3_next: a key head's q, k, v, z; its b, a. */
static delta_inputs split_heads(const af_forward *f, af_tensor *in, af_tensor *gates)
{
    const af_state_keys *k = &f->s->state;
    const int64_t J = k->key_heads, share = k->heads / J, V = share * k->head_dim, K = k->key_dim,
                  N = af_tensor_dim(in, 0);
    in = af_reshape(f->g, in, 3, (int64_t[]){N, J, 2 * K + 2 * V});
    gates = af_reshape(f->g, gates, 3, (int64_t[]){N, J, 2 * share});
    af_tensor *qkv[] = {of_heads(f, in, 0, K), of_heads(f, in, K, K), of_heads(f, in, 2 * K, V)};
    return (delta_inputs){.qkv = af_concat(f->g, qkv, 3, 1),
                          .z = of_heads(f, in, 2 * K + V, V),
                          .b = of_heads(f, gates, 0, share),
                          .a = of_heads(f, gates, share, share)};
}

/* Kimi delta attention: b, and what decays and gates are made of, which may be low-rank. */
static delta_inputs split_channels(const af_forward *f, int layer, af_tensor *in, af_tensor *gates,
                                   af_tensor *h)
{
    const int64_t H = f->s->state.heads, R = f->s->state.gate_rank;
    return (delta_inputs){
        .qkv = in,
        .b = columns(f, gates, 0, H),
        .a = af_project(f, layer, AF_GROUP_STEP_OUT, R ? columns(f, gates, H, R) : h),
        .z = af_project(f, layer, AF_GROUP_IN_Z, R ? columns(f, gates, H + R, R) : h)};
}

/* A vector [heads], each value as often as a head has channels. */
static af_tensor *of_channels(const af_forward *f, af_tensor *x)
{
    const af_state_keys *k = &f->s->state;
    const int64_t all = k->heads * k->key_dim;
    af_tensor *stretch =
        af_graph_constant(f->g, af_tensor_dtype(x), 2, (int64_t[]){1, k->key_dim}, 0);
    x = af_add(f->g, af_reshape(f->g, x, 2, (int64_t[]){k->heads, 1}), stretch);
    return af_reshape(f->g, x, 1, &all);
}

static af_tensor *decays(const af_forward *f, int layer, af_tensor *a)
{
    af_graph *g = f->g;
    const double bound = f->s->state.decay_bound;
    af_tensor *bias = af_layer_leaf(f, layer, AF_SLOT_DT_BIAS),
              *a_log = af_layer_leaf(f, layer, AF_SLOT_A_LOG);
    if (f->s->state.channels)
        a_log = of_channels(f, a_log);
    if (bound == 0)
        return af_softplus(g, a, bias, a_log);
    af_tensor *rate = af_exp(g, af_as_type(g, a_log, AF_DTYPE_F32));
    a = af_add(g, af_as_type(g, a, AF_DTYPE_F32), af_as_type(g, bias, AF_DTYPE_F32));
    return af_scale(g, af_sigmoid(g, af_mul(g, a, rate)), bound);
}

/* The norm of each head and the gate z, a sigmoid where decays are per channel. */
static af_tensor *gate_heads(const af_forward *f, int layer, af_tensor *y, af_tensor *z)
{
    af_graph *g = f->g;
    const af_state_keys *k = &f->s->state;
    const double eps = k->norm_eps > 0 ? k->norm_eps : f->s->eps;
    const int64_t N = af_tensor_dim(y, 0);
    af_tensor *w = af_layer_leaf(f, layer, AF_SLOT_STATE_NORM);
    if (!k->channels)
        return af_gated_norm(g, y, z, w, eps, false);
    y = af_rmsnorm(g, af_reshape(g, y, 3, (int64_t[]){N, k->heads, k->head_dim}), w, eps, false);
    return af_mul(g, af_reshape(g, y, 2, (int64_t[]){N, k->heads * k->head_dim}), af_sigmoid(g, z));
}

static af_tensor *record_delta(const af_forward *f, int layer, af_tensor *h)
{
    af_graph *g = f->g;
    const af_state_keys *k = &f->s->state;
    af_tensor *in = af_project(f, layer, AF_GROUP_IN, h),
              *gates = af_project(f, layer, AF_GROUP_IN_GATES, h);
    if (af_graph_status(g, NULL) != AF_OK)
        return h;
    const delta_inputs d = k->by_key_head ? split_heads(f, in, gates)
                           : k->channels
                               ? split_channels(f, layer, in, gates, h)
                               : (delta_inputs){.qkv = in,
                                                .z = af_project(f, layer, AF_GROUP_IN_Z, h),
                                                .b = columns(f, gates, 0, k->heads),
                                                .a = columns(f, gates, k->heads, k->heads)};
    af_tensor *decay = decays(f, layer, d.a), *beta = af_sigmoid(g, d.b);
    if (k->twice_beta)
        beta = af_scale(g, beta, 2);
    af_tensor *y = scan(f, layer, convolve(f, layer, d.qkv, true), decay, beta, true);
    return af_project(f, layer, AF_GROUP_OUT, gate_heads(f, layer, y, d.z));
}

static void caches_delta(const af_model_leaves *l, int layer, const af_cache_sizes *z,
                         af_layer_cache *out)
{
    const af_state_keys *k = &l->spec->state;
    state_caches(l, layer, z->seqs, 2 * k->key_heads * k->key_dim + k->heads * k->head_dim, true,
                 out);
}

const af_mixer_block af_block_delta_net = {record_delta, caches_delta};

/* ---- Mamba-2 ---- */

/* x between the limits of time steps: lo + relu(x - lo), and hi - relu(hi - x). */
static af_tensor *limit_steps(const af_forward *f, af_tensor *x)
{
    af_graph *g = f->g;
    const af_state_keys *k = &f->s->state;
    const double limit[] = {k->step_min, k->step_max};
    for (int i = 0; i < 2; i++) {
        af_tensor *at = af_graph_constant(g, af_tensor_dtype(x), 1, &k->heads, limit[i]);
        if (limit[i] > 0)
            x = i ? af_sub(g, at, af_relu(g, af_sub(g, at, x)))
                  : af_add(g, af_relu(g, af_sub(g, x, at)), at);
    }
    return x;
}

/* The gated norm over each of the groups: one weight for all columns. */
static af_tensor *group_norm(const af_forward *f, int layer, af_tensor *y, af_tensor *gate)
{
    af_graph *g = f->g;
    af_tensor *w = af_layer_leaf(f, layer, AF_SLOT_STATE_NORM);
    const int64_t groups = f->s->state.norm_groups;
    const double eps = f->s->state.norm_eps > 0 ? f->s->state.norm_eps : f->s->eps;
    const bool first = !f->s->state.gate_after;
    if (!w)
        return af_mul(g, y, af_silu(g, gate));
    if (groups <= 1)
        return af_gated_norm(g, y, gate, w, eps, first);
    const int64_t size = af_tensor_dim(w, 0) / groups;
    af_tensor *one = af_graph_constant(g, af_tensor_dtype(w), 1, &size, 1);
    return af_mul(g, af_gated_norm(g, y, gate, one, eps, first),
                  af_as_type(g, w, af_tensor_dtype(y)));
}

static af_tensor *record_mamba(const af_forward *f, int layer, af_tensor *h)
{
    af_graph *g = f->g;
    const af_state_keys *k = &f->s->state;
    const int64_t values = k->heads * k->head_dim, width = 2 * k->key_heads * k->key_dim + values;
    af_tensor *in = af_project(f, layer, AF_GROUP_IN, h);
    if (af_graph_status(g, NULL) != AF_OK)
        return h;
    if (f->s->mup.given) {
        const int64_t keys = k->key_heads * k->key_dim,
                      width_of[] = {values, values, keys, keys, k->heads};
        in = af_mul_parts(f, in, f->s->mup.ssm, width_of, AF_MUP_PARTS);
    }
    af_tensor *gate = columns(f, in, 0, values), *step = columns(f, in, values + width, k->heads),
              *bias = af_layer_leaf(f, layer, AF_SLOT_DT_BIAS);
    af_tensor *x = convolve(f, layer, columns(f, in, values, width), true);
    af_tensor *a_log = af_layer_leaf(f, layer, AF_SLOT_A_LOG), *decay;
    af_tensor *dt = af_softplus(g, step, bias, NULL);
    if (k->step_min > 0 || k->step_max > 0) {
        dt = limit_steps(f, dt);
        decay =
            af_scale(g, af_mul(g, dt, af_exp(g, af_as_type(g, a_log, af_tensor_dtype(dt)))), -1);
    } else {
        decay = af_softplus(g, step, bias, a_log);
    }
    af_tensor *y = group_norm(f, layer, scan(f, layer, x, decay, dt, false), gate);
    return af_project(f, layer, AF_GROUP_OUT, y);
}

const af_mixer_block af_block_mamba2 = {record_mamba, caches_delta};

/* ---- Mamba-1 ---- */

static af_tensor *step_norm(const af_forward *f, int layer, af_tensor *x, af_slot slot)
{
    const double eps = f->s->state.step_eps;
    af_tensor *w = af_layer_leaf(f, layer, slot);
    if (eps == 0)
        return x;
    return af_rmsnorm(f->g, x, w ? w : af_bare_norm(f, af_tensor_dim(x, 1)), eps, false);
}

static af_tensor *selective_scan(const af_forward *f, int layer, af_tensor *x, af_tensor *dt,
                                 af_tensor *b, af_tensor *c)
{
    af_graph *g = f->g;
    af_tensor *a = af_as_type(g, af_layer_leaf(f, layer, AF_SLOT_A_LOG), af_tensor_dtype(dt));
    a = af_scale(g, af_exp(g, a), -1);
    const af_selective_opts o = {x, dt, a, b, c, f->in->bounds};
    return f->o.cache ? af_selective_cached(g, &o, f->o.cache[layer].state, f->in->start)
                      : af_selective(g, &o);
}

static af_tensor *record_mamba1(const af_forward *f, int layer, af_tensor *h)
{
    af_graph *g = f->g;
    const af_state_keys *k = &f->s->state;
    const int64_t I = k->inner, R = k->step_rank, n = k->key_dim;
    af_tensor *in = af_project(f, layer, AF_GROUP_IN, h);
    if (af_graph_status(g, NULL) != AF_OK)
        return h;
    af_tensor *x = convolve(f, layer, columns(f, in, 0, I), true), *gate = columns(f, in, I, I);
    af_tensor *p = af_project(f, layer, AF_GROUP_STEP_IN, x);
    af_tensor *step = step_norm(f, layer, columns(f, p, 0, R), AF_SLOT_STEP_NORM),
              *b = step_norm(f, layer, columns(f, p, R, n), AF_SLOT_STEP_B_NORM),
              *c = step_norm(f, layer, columns(f, p, R + n, n), AF_SLOT_STEP_C_NORM);
    step = af_project(f, layer, AF_GROUP_STEP_OUT, step);
    af_tensor *dt = af_softplus(g, step, af_layer_leaf(f, layer, AF_SLOT_DT_BIAS), NULL);
    af_tensor *y = selective_scan(f, layer, x, dt, b, c);
    af_tensor *skip = af_as_type(g, af_layer_leaf(f, layer, AF_SLOT_D), af_tensor_dtype(x));
    y = af_mul(g, af_add(g, y, af_mul(g, x, skip)), af_silu(g, gate));
    return af_project(f, layer, AF_GROUP_OUT, y);
}

static void caches_mamba1(const af_model_leaves *l, int layer, const af_cache_sizes *z,
                          af_layer_cache *out)
{
    state_caches(l, layer, z->seqs, l->spec->state.inner, true, out);
}

const af_mixer_block af_block_mamba1 = {record_mamba1, caches_mamba1};

/* ---- attention and Mamba-2 next to each other ---- */

af_tensor *af_mul_parts(const af_forward *f, af_tensor *x, const double *factor,
                        const int64_t *width, int parts)
{
    af_tensor *part[AF_MUP_PARTS];
    bool any = false;
    if (af_graph_status(f->g, NULL) != AF_OK)
        return x;
    for (int i = 0; i < parts; i++) {
        part[i] = af_graph_constant(f->g, af_tensor_dtype(x), 1, &width[i], factor[i]);
        any |= factor[i] != 1;
    }
    return any ? af_mul(f->g, x, af_concat(f->g, part, parts, 0)) : x;
}

static af_tensor *record_hybrid(const af_forward *f, int layer, af_tensor *h)
{
    const af_mup_keys *m = &f->s->mup;
    af_tensor *state = record_mamba(f, layer, af_times(f, h, m->ssm_in));
    af_tensor *attention = af_block_attention.record(f, layer, af_times(f, h, m->attn_in));
    return af_add(f->g, af_times(f, state, m->ssm_out), af_times(f, attention, m->attn_out));
}

static void caches_hybrid(const af_model_leaves *l, int layer, const af_cache_sizes *z,
                          af_layer_cache *out)
{
    caches_delta(l, layer, z, out);
    af_block_attention.caches(l, layer, z, out);
}

const af_mixer_block af_block_hybrid = {record_hybrid, caches_hybrid};

/* ---- short convolution ---- */

static af_tensor *record_conv(const af_forward *f, int layer, af_tensor *h)
{
    const int64_t D = f->s->width;
    af_tensor *in = af_project(f, layer, AF_GROUP_IN, h); /* B, C, x */
    af_tensor *x = af_mul(f->g, columns(f, in, 0, D), columns(f, in, 2 * D, D));
    af_tensor *y = convolve(f, layer, x, false);
    return af_project(f, layer, AF_GROUP_OUT, af_mul(f->g, columns(f, in, D, D), y));
}

static void caches_conv(const af_model_leaves *l, int layer, const af_cache_sizes *z,
                        af_layer_cache *out)
{
    state_caches(l, layer, z->seqs, l->spec->width, false, out);
}

const af_mixer_block af_block_short_conv = {record_conv, caches_conv};

/* ---- lightning attention ---- */

/* Linear attention: the scan of Mamba-2 with steps of 1 and decays that are not learned. */
static af_tensor *record_lightning(const af_forward *f, int layer, af_tensor *h)
{
    static const double NORM_EPS = 1e-6; /* whatever rms_norm_eps says */
    af_graph *g = f->g;
    const int64_t H = f->s->state.heads, E = f->s->state.head_dim;
    af_tensor *in = af_activate(f, layer, af_project(f, layer, AF_GROUP_IN, h)),
              *gate = af_project(f, layer, AF_GROUP_IN_Z, h);
    if (af_graph_status(g, NULL) != AF_OK)
        return h;
    const int64_t N = af_tensor_dim(h, 0), column[2] = {N, 1}, all[2] = {N, H};
    in = af_reshape(g, in, 3, (int64_t[]){N, H, 3 * E}); /* q, k, v of each head */
    af_tensor *vkq[] = {of_heads(f, in, 2 * E, E), of_heads(f, in, E, E), of_heads(f, in, 0, E)};
    af_tensor *rate = af_graph_constant(g, AF_DTYPE_F32, 2, column, -af_decay_factor(f->s, layer));
    af_tensor *y = scan(f, layer, af_concat(g, vkq, 3, 1), af_mul(g, rate, f->l->decay),
                        af_graph_constant(g, AF_DTYPE_F32, 2, all, 1), false);
    y = af_rmsnorm(g, y, af_layer_leaf(f, layer, AF_SLOT_STATE_NORM), NORM_EPS, false);
    return af_project(f, layer, AF_GROUP_OUT, af_mul(g, y, af_sigmoid(g, gate)));
}

const af_mixer_block af_block_lightning = {record_lightning, caches_delta};
