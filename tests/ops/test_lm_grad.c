/* test_lm_grad.c - the gradient rules of the language-model ops against central differences. */
#include "ops/gradcheck.h"

/* Inputs by name: ids, positions, bounds. Bounds: three sequences, of which one is empty and one
 * has a single token, and two rows after the last when there are enough. */
static void fill_ints(gradcheck *c, af_tensor *t)
{
    int32_t *p = t->data;
    const int64_t n = af_count(t);
    if (strcmp(t->name, "ids") == 0)
        for (int64_t i = 0; i < n; i++)
            p[i] = (int32_t)af_rng_below(c->seed, 3, (uint64_t)i, 5);
    if (strcmp(t->name, "positions") == 0)
        for (int64_t i = 0; i < n; i++)
            p[i] = (int32_t)(i * 7 % 11);
    if (strcmp(t->name, "bounds") == 0) {
        const int32_t rows = (int32_t)c->shape[0], used = rows > 4 ? rows - 2 : rows;
        p[0] = 0;
        p[1] = used > 1 ? 1 : used;
        p[2] = p[1];
        p[3] = used;
    }
}

static af_tensor *ints(gradcheck *c, const char *name, int64_t n)
{
    return af_graph_input(c->g, name, AF_DTYPE_I32, 1, &n);
}

static const int64_t odd[][3] = {{1, 1, 1}, {3, 17, 2}, {17, 3, 5}, {5, 65, 3}};

static void shapes(const char *name, gradcheck_build *build, int variant)
{
    gradcheck c = {.variant = variant, .fill = fill_ints};
    gradcheck_shapes(name, build, c, odd, (int)AF_LEN(odd));
}

/* ---- embedding ---- */

static af_tensor *build_embedding(gradcheck *c)
{
    return af_embedding(c->g, ints(c, "ids", c->shape[0]), gc_param2(c, 6, c->shape[1]),
                        AF_DTYPE_F64);
}

static void test_embedding_adds_repeated_ids(void **state)
{
    (void)state;
    shapes("embedding", build_embedding, 0);
}

/* ---- norms ---- */

static af_tensor *build_rmsnorm(gradcheck *c)
{
    return af_rmsnorm(c->g, gc_param2(c, c->shape[0], c->shape[1]), gc_param(c, 1, &c->shape[1]),
                      1e-3, c->variant);
}

/* The sum is used again, as a residual stream does; variant bit 1: only y, bit 2: only the sum. */
static af_tensor *build_rmsnorm_add(gradcheck *c)
{
    af_tensor *x = gc_param2(c, c->shape[0], c->shape[1]),
              *r = gc_param2(c, c->shape[0], c->shape[1]), *w = gc_param(c, 1, &c->shape[1]), *sum;
    af_tensor *y = af_rmsnorm_add(c->g, x, r, w, 1e-3, c->variant & 1, &sum);
    if (c->variant & 2)
        return y;
    return af_add(c->g, af_tanh(c->g, y), af_mul(c->g, sum, sum));
}

static void test_norms(void **state)
{
    (void)state;
    for (int v = 0; v < 4; v++) {
        if (v < 2)
            shapes("rmsnorm", build_rmsnorm, v);
        shapes("rmsnorm_add", build_rmsnorm_add, v);
    }
}

/* ---- rope ---- */

static af_tensor *build_rope(gradcheck *c)
{
    const int H = 4, K = 2, E = 6, v = c->variant;
    af_rope_opts o = {.heads = H, .kv_heads = K, .head_dim = E, .norm_eps = 1e-3};
    o.rotary_dim = v & 1 ? 4 : 0;
    o.scale = v & 1 ? 1.3 : 0;
    o.norm_plus_one = v & 8;
    o.pairs = v & 32;
    o.query_beta = v & 64 ? 0.7 : 0;
    o.query_length = 2;
    af_tensor *qkv = gc_param2(c, c->shape[0], (H + 2 * K) * E);
    if (v & 6) {
        const int64_t q = v & 4 ? H * E : E, k = v & 4 ? K * E : E;
        o.q_norm = gc_param(c, 1, &q);
        o.k_norm = gc_param(c, 1, &k);
    }
    const int64_t half = (o.rotary_dim ? o.rotary_dim : E) / 2;
    af_tensor *freq = v & 16 ? NULL : af_graph_input(c->g, "freq", AF_DTYPE_F64, 1, &half);
    return af_rope(c->g, qkv, ints(c, "positions", c->shape[0]), freq, &o);
}

static void test_rope_partial_scaled_normed(void **state)
{
    (void)state;
    const int variants[] = {0,      1,  2,  3,      4,      5,  2 | 8, 5 | 8, 2 | 16,
                            4 | 16, 32, 33, 32 | 3, 32 | 4, 64, 65,    64 | 3};
    for (size_t i = 0; i < AF_LEN(variants); i++)
        shapes("rope", build_rope, variants[i]);
}

/* ---- attention ---- */

static af_tensor *build_attention(gradcheck *c)
{
    const int v = c->variant, E = 3, H = 4, K = v & 1 ? 4 : v & 2 ? 1 : 2;
    af_attention_opts o = {.heads = H, .kv_heads = K, .head_dim = E, .causal = true};
    o.window = v & 4 ? 3 : 0;
    o.softcap = v & 8 ? 1.5 : 0;
    o.causal = !(v & 16);
    o.scale = v & 8 ? 0.9 : 0;
    o.sinks = v & 32 ? gc_param(c, 1, &(int64_t){H}) : NULL;
    return af_attention(c->g, gc_param2(c, c->shape[0], (H + 2 * K) * E), ints(c, "bounds", 4), &o);
}

static void test_attention_grouped_windowed_capped(void **state)
{
    (void)state;
    const int variants[] = {0, 1, 2, 4, 8, 4 | 8, 16, 16 | 8 | 1, 32, 32 | 4 | 8, 32 | 16};
    for (size_t i = 0; i < AF_LEN(variants); i++)
        shapes("attention", build_attention, variants[i]);
}

/* ---- xielu ---- */

static af_tensor *build_xielu(gradcheck *c)
{
    const int64_t one = 1;
    af_tensor *x = gc_param2(c, c->shape[0], c->shape[1]);
    af_tensor *p = gc_param(c, 1, &one), *n = gc_param(c, 1, &one);
    af_tensor *beta = af_graph_constant(c->g, AF_DTYPE_F64, 1, &one, 0.5);
    af_tensor *eps = af_graph_constant(c->g, AF_DTYPE_F64, 1, &one, c->variant ? -0.3 : -1e-6);
    return af_xielu(c->g, x, p, n, beta, eps);
}

static void test_xielu(void **state)
{
    (void)state;
    shapes("xielu", build_xielu, 0);
    shapes("xielu with a flat part", build_xielu, 1);
}

/* ---- glu ---- */

static af_tensor *build_glu(gradcheck *c)
{
    return af_glu(c->g, gc_param2(c, c->shape[0], 2 * c->shape[1]), (af_act)c->variant);
}

static void test_glu_every_activation(void **state)
{
    (void)state;
    for (int v = AF_ACT_SILU; v <= AF_ACT_RELU; v++)
        shapes("glu", build_glu, v);
}

/* ---- linear ---- */

/* variant: bit 0 bias, bit 1 adapter, bit 2 three pieces, bit 3 no weights, bit 4 x is 3-d */
static af_tensor *build_linear(gradcheck *c)
{
    const int v = c->variant;
    const int64_t N = c->shape[0], I = c->shape[1], rows[3] = {4, c->shape[2], 3};
    af_linear_opts o = {.pieces = v & 8 ? 0 : v & 4 ? 3 : 1, .out = v & 8 ? 7 : 0};
    int64_t O = v & 8 ? 7 : 0;
    for (int i = 0; i < o.pieces; i++) {
        o.weight[i] = gc_param2(c, rows[i], I);
        o.bias[i] = v & 1 && i != 1 ? gc_param(c, 1, &rows[i]) : NULL;
        O += rows[i];
    }
    if (v & 2) {
        o.parts = 2;
        o.part[0] = (af_adapter_part){
            .out_from = 0, .out_rows = 3, .rank_from = 0, .rank = 2, .scale = 0.5f};
        o.part[1] = (af_adapter_part){
            .out_from = 2, .out_rows = O - 2, .rank_from = 2, .rank = 3, .scale = 2.0f};
        const int64_t flat = 3 * 2 + (O - 2) * 3;
        o.a = gc_param2(c, 5, I);
        o.b = gc_param(c, 1, &flat);
    }
    af_tensor *x = v & 16 ? gc_param(c, 3, (int64_t[]){2, N, I}) : gc_param2(c, N, I);
    o.adapter_x = v & 32 ? gc_param2(c, N, I) : NULL;
    return af_linear(c->g, x, &o);
}

static void test_linear_pieces_biases_adapters(void **state)
{
    (void)state;
    const int variants[] = {0, 1, 2, 3, 4, 7, 2 | 8, 1 | 2 | 16, 2 | 32, 7 | 32};
    for (size_t i = 0; i < AF_LEN(variants); i++)
        shapes("linear", build_linear, variants[i]);
}

/* ---- head ---- */

/* variant: bit 0 soft cap and logit scale, bit 1 smoothing, bit 2 scaled loss and a seed that is
 * not 1, bit 3 frozen weight */
static af_tensor *build_head(gradcheck *c)
{
    const int v = c->variant;
    const int64_t N = 2 * c->shape[0] + 30, D = c->shape[2], V = c->shape[1] + 3;
    af_head_opts o = {.softcap = v & 1 ? 2.5 : 0, .logit_scale = v & 1 ? 0.7 : 0};
    o.smoothing = v & 2 ? 0.2 : 0;
    o.scale = v & 4 ? af_graph_input(c->g, "scale", AF_DTYPE_F32, 1, (int64_t[]){1}) : NULL;
    af_tensor *h = gc_param2(c, N, D);
    af_tensor *w = v & 8 ? af_graph_input(c->g, "frozen", AF_DTYPE_F64, 2, (int64_t[]){V, D})
                         : gc_param2(c, V, D);
    af_tensor *labels = ints(c, "labels", N);
    af_tensor *loss = af_head_loss(c->g, h, w, labels, &o);
    return v & 4 ? af_scale(c->g, af_mul(c->g, loss, loss), 0.01) : loss;
}

static void test_head_loss_masked_capped_smoothed(void **state)
{
    (void)state;
    for (int v = 0; v < 16; v++)
        shapes("head_loss", build_head, v);
}

/* ---- mixture of experts ---- */

static af_tensor *build_moe(gradcheck *c)
{
    const int64_t N = c->shape[0], D = c->shape[2], X = 4, F = 3;
    af_tensor *logits = gc_param2(c, N, X), *x = gc_param2(c, N, D), *index;
    af_tensor *gate_up = gc_param(c, 3, (int64_t[]){X, 2 * F, D});
    af_tensor *down = gc_param(c, 3, (int64_t[]){X, D, F});
    af_tensor *w =
        af_moe_route(c->g, logits, &(af_route_opts){.used = 2, .norm = c->variant}, &index);
    return af_moe_ffn(c->g, x, w, index,
                      &(af_experts_opts){.gate_up.weight = gate_up, .down.weight = down});
}

static af_tensor *build_moe_project(gradcheck *c)
{
    const int64_t N = c->shape[0], D = c->shape[2], X = 4;
    af_tensor *logits = gc_param2(c, N, X), *x = gc_param2(c, N, D), *index;
    af_tensor *w = af_moe_route(c->g, logits, &(af_route_opts){.used = 2}, &index);
    const af_expert_linear o = {.weight = gc_param(c, 3, (int64_t[]){X, 3, D})};
    return af_moe_project(c->g, x, w, index, &o);
}

static void test_moe_route_and_experts(void **state)
{
    (void)state;
    shapes("moe_project", build_moe_project, 0);
    shapes("moe", build_moe, 0);
    shapes("moe renormalised", build_moe, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding_adds_repeated_ids),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_rope_partial_scaled_normed),
        cmocka_unit_test(test_attention_grouped_windowed_capped),
        cmocka_unit_test(test_xielu),
        cmocka_unit_test(test_glu_every_activation),
        cmocka_unit_test(test_linear_pieces_biases_adapters),
        cmocka_unit_test(test_head_loss_masked_capped_smoothed),
        cmocka_unit_test(test_moe_route_and_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
