/* test_fast_rows.c - the row kernels against their twins, on odd shapes. */
#include "fastcheck.h"

#include "ops/fakequant/fake_float.h"

static const af_dtype types[] = {AF_DTYPE_F32, AF_DTYPE_BF16};
static const int64_t shapes[][3] = {{1, 3, 2}, {3, 17, 6}, {65, 64, 24}, {130, 97, 34}};

static void each(const char *why, fastcheck_build *build, int variants, fastcheck base)
{
    for (size_t t = 0; t < AF_LEN(types); t++)
        for (size_t s = 0; s < AF_LEN(shapes); s++)
            for (int v = 0; v < variants; v++)
                for (int live = 0; live < 2; live++) {
                    if (!test_takes(t + s + (size_t)v + (size_t)live))
                        continue;
                    fastcheck c = base;
                    c.type = types[t];
                    c.shape = shapes[s];
                    c.variant = v;
                    c.live = live ? (shapes[s][0] + 1) / 2 : 0;
                    fastcheck_run(why, build, c);
                }
}

static af_tensor *build_rmsnorm(fastcheck *c) /* variant 2: x is a vector */
{
    af_tensor *x = c->variant == 2 ? fc_param(c, "x", 0, c->shape[1]) : fc_rows(c, c->shape[1]);
    return af_rmsnorm(c->g, x, fc_param(c, "n", 0, c->shape[1]), 1e-5, c->variant == 1);
}

/* Variant 1: nobody wants the gradients of its scales. 2: x is a vector. */
static af_tensor *build_layernorm(fastcheck *c)
{
    const int64_t D = c->shape[1];
    af_tensor *x = c->variant == 2 ? fc_param(c, "x", 0, D) : fc_rows(c, D);
    af_tensor *scale[2];
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "b" : "n";
        scale[i] =
            c->variant == 1 ? af_graph_input(c->g, name, c->type, 1, &D) : fc_param(c, name, 0, D);
    }
    return af_layernorm(c->g, x, scale[0], scale[1], 1e-5);
}

static af_tensor *build_activation(fastcheck *c)
{
    af_tensor *x = fc_rows(c, c->shape[1]);
    return c->variant == 0   ? af_gelu(c->g, x)
           : c->variant == 1 ? af_gelu_tanh(c->g, x)
                             : af_silu(c->g, x);
}

/* Variant 1: nobody wants the gradients of its slopes, and a wide flat part. */
static af_tensor *build_xielu(fastcheck *c)
{
    const int64_t one = 1;
    af_tensor *x = fc_rows(c, c->shape[1]), *slope[2];
    for (int i = 0; i < 2; i++)
        slope[i] = c->variant ? af_graph_constant(c->g, AF_DTYPE_F32, 1, &one, 0.3 + i)
                              : fc_param(c, i ? "q" : "p", 0, 1);
    return af_xielu(c->g, x, slope[0], slope[1],
                    af_graph_constant(c->g, AF_DTYPE_F32, 1, &one, 0.5),
                    af_graph_constant(c->g, AF_DTYPE_F32, 1, &one, c->variant ? -0.7 : -1e-6));
}

/* Parts of rows, of their middle axis, and of a parameter, whose gradients are added to. */
static af_tensor *build_shape(fastcheck *c)
{
    af_graph *g = c->g;
    const int64_t N = c->shape[0], D = c->shape[1], axis = c->variant == 3 ? 0 : 1;
    af_tensor *x = fc_rows(c, 3 * D), *part[3];
    if (c->variant == 1)
        x = af_reshape(g, x, 3, (int64_t[]){N, 3, D});
    if (c->variant >= 2)
        x = fc_param(c, "p", 3 * D, 3 * D);
    const int64_t step = c->variant == 1 ? 1 : D;
    for (int i = 0; i < 3; i++)
        part[i] = af_slice(g, x, (int)axis, i * step, step);
    af_tensor *less = af_slice(g, part[2], (int)axis, 0, (step + 1) / 2);
    af_tensor *order[] = {less, af_mul(g, part[0], part[1]), part[0], c->variant < 2 ? part[1] : x};
    af_tensor *y = af_concat(g, order, 4, (int)axis);
    return c->variant == 1 ? af_slice(g, y, 2, D / 3, D / 2) : y;
}

/* Values with one of their row, and groups that are rounded. (Of a parameter: what is rounded must
 * not differ in a digit.) */
static af_tensor *build_groups(fastcheck *c)
{
    af_graph *g = c->g;
    af_tensor *x = fc_rows(c, c->shape[1]), *p = fc_param(c, "p", 7, c->shape[1]);
    af_tensor *most = af_max(g, p, 1, true), *scale = af_exp(g, most);
    af_tensor *y = af_div(g, af_mul(g, af_sub(g, p, most), scale), af_add(g, scale, scale));
    af_tensor *rounded = af_fake_quant(g, p, c->variant ? 8 : 4, -1, c->variant == 1);
    y = af_sum(g, af_sub(g, y, rounded), 0, false);
    if (c->type != AF_DTYPE_F32)
        y = af_cast(g, y, c->type);
    return af_mul(g, af_sub(g, x, af_max(g, x, 1, true)), y);
}

/* Of a parameter, as above. */
static af_tensor *build_small_floats(fastcheck *c)
{
    af_graph *g = c->g;
    af_tensor *x = fc_rows(c, 64), *p = fc_param(c, "p", 7, 64);
    const af_qat_type type = (af_qat_type)(AF_QAT_NVFP4 + c->variant);
    af_tensor *y = af_sum(g, af_fake_float(g, p, type, NULL, c->type), 0, false);
    return af_mul(g, x, y);
}

static af_tensor *build_rmsnorm_add(fastcheck *c)
{
    af_tensor *x = fc_rows(c, c->shape[1]), *r = fc_rows(c, c->shape[1]), *sum;
    af_tensor *y =
        af_rmsnorm_add(c->g, x, r, fc_param(c, "n", 0, c->shape[1]), 1e-5, c->variant == 1, &sum);
    return af_add(c->g, y, sum);
}

static af_tensor *build_glu(fastcheck *c)
{
    return af_glu(c->g, fc_rows(c, 2 * c->shape[1]), (af_act)c->variant);
}

static af_tensor *build_binary(fastcheck *c)
{
    af_tensor *x = fc_rows(c, c->shape[1]), *y = fc_rows(c, c->shape[1]);
    af_tensor *row = af_graph_input(c->g, "r", c->type, 1, (int64_t[]){c->shape[1]});
    return c->variant ? af_mul(c->g, af_mul(c->g, x, row), y)
                      : af_add(c->g, af_add(c->g, x, row), y);
}

static af_tensor *build_dropout(fastcheck *c)
{
    af_tensor *x = fc_rows(c, c->shape[1]);
    return af_dropout(c->g, af_dropout(c->g, x, 0.3, 11), c->variant ? 0.999 : 0.05, 12);
}

/* Two pieces of a weight, adapters on the first and on part of the second. */
static af_tensor *build_dora(fastcheck *c)
{
    const int64_t D = c->shape[1], O = 9, R = 5;
    const af_linear_opts o = {.weight = {fc_param(c, "w0", 4, D), fc_param(c, "w1", 5, D)},
                              .pieces = 2,
                              .a = fc_param(c, "a", R, D),
                              .b = fc_param(c, "b", 0, 4 * 2 + 3 * 3),
                              .part = {{0, 4, 0, 2, 0.5f}, {5, 3, 2, 3, 1.5f}},
                              .parts = 2};
    af_tensor *norm = af_dora_norm(c->g, &o), *x = fc_rows(c, O);
    return af_mul(c->g, x, c->type == AF_DTYPE_F32 ? norm : af_cast(c->g, norm, c->type));
}

/* Adapters on pieces of a projection; variants: parts of different scales and ranks, one that is as
 * wide as all of it, one that leaves columns out, odd ranks of one scale (whose factors are taken
 * together), 192 ranks in all, a rank that the skinny kernels do not support. The last shape's
 * sizes fill tiles, others do not. */
static af_tensor *build_adapter(fastcheck *c)
{
    static const af_adapter_part parts[][3] = {
        {{0, 64, 0, 16, 0.5f}, {64, 32, 16, 32, 1.5f}, {96, 32, 48, 16, 0.5f}},
        {{0, 128, 0, 48, 2.0f}},
        {{32, 64, 0, 16, 1.0f}, {96, 31, 16, 7, 1.0f}},
        {{0, 49, 0, 1, 2.0f}, {49, 3, 1, 3, 2.0f}, {60, 68, 4, 17, 2.0f}},
        {{0, 48, 0, 64, 0.5f}, {48, 48, 64, 64, 0.5f}, {96, 32, 128, 64, 0.5f}},
        {{0, 64, 0, 65, 1.0f}, {64, 64, 65, 8, 1.0f}},
    };
    static const int count[] = {3, 1, 2, 3, 3, 2};
    const int64_t I = c->shape[1], v = c->variant;
    int64_t ranks = 0, values = 0;
    af_linear_opts o = {.pieces = 1, .parts = count[v], .weight = {fc_param(c, "base", 128, I)}};
    for (int i = 0; i < count[v]; i++) {
        o.part[i] = parts[v][i];
        ranks += o.part[i].rank;
        values += o.part[i].rank * o.part[i].out_rows;
    }
    o.a = fc_param(c, "a", ranks, I);
    o.b = fc_param(c, "b", 0, values);
    return af_linear(c->g, fc_rows(c, I), &o);
}

static void fill_positions(fastcheck *c, af_tensor *t)
{
    if (strcmp(t->name, "positions") == 0)
        for (int64_t i = 0; i < af_count(t); i++)
            ((int32_t *)t->data)[i] = (int32_t)(i * 37 % 1001);
    if (strcmp(t->name, "inv_freq") == 0)
        for (int64_t i = 0; i < af_count(t); i++)
            ((float *)t->data)[i] = powf(10000.0f, -(float)i / (float)af_count(t));
    (void)c;
}

/* variants: plain, partial rotary, norms of heads, norms of rows, norms without rotation,
 * neighbours instead of halves, queries scaled by position */
static af_tensor *build_rope(fastcheck *c)
{
    enum { H = 4, K = 2 };
    const int64_t E = c->shape[2], rotary = c->variant == 1 ? E / 2 / 2 * 2 : E;
    af_tensor *x = fc_rows(c, (H + 2 * K) * E);
    af_tensor *p = af_graph_input(c->g, "positions", AF_DTYPE_I32, 1, (int64_t[]){c->shape[0]});
    af_tensor *f = rotary && c->variant != 4
                       ? af_graph_input(c->g, "inv_freq", AF_DTYPE_F32, 1, (int64_t[]){rotary / 2})
                       : NULL;
    af_rope_opts o = {.heads = H, .kv_heads = K, .head_dim = (int)E, .rotary_dim = (int)rotary};
    o.scale = c->variant == 1 ? 1.25 : 0;
    o.norm_eps = 1e-6;
    o.pairs = c->variant == 5;
    o.query_beta = c->variant == 6 ? 0.4 : 0;
    o.query_length = 3;
    if (c->variant >= 2 && c->variant < 6) {
        o.q_norm = fc_param(c, "qn", 0, c->variant == 3 ? H * E : E);
        o.k_norm = fc_param(c, "kn", 0, c->variant == 3 ? K * E : E);
        o.norm_plus_one = c->variant == 4;
    }
    return af_rope(c->g, x, p, f, &o);
}

static void fill_ids(fastcheck *c, af_tensor *t)
{
    if (strcmp(t->name, "ids") == 0)
        for (int64_t i = 0; i < af_count(t); i++)
            ((int32_t *)t->data)[i] = (int32_t)(i * 7 % c->shape[2]);
}

static af_tensor *build_embedding(fastcheck *c)
{
    af_tensor *ids = af_graph_input(c->g, "ids", AF_DTYPE_I32, 1, (int64_t[]){c->shape[0]});
    return af_embedding(c->g, ids, fc_param(c, "table", c->shape[2], c->shape[1]),
                        c->variant ? AF_DTYPE_F32 : c->type);
}

/* AdamW with clipping on parameters of several shapes; f32 only: parameters are masters */
static af_tensor *build_update(fastcheck *c)
{
    return af_rmsnorm(c->g, fc_rows(c, c->shape[1]), fc_param(c, "n", 0, c->shape[1]), 1e-5, false);
}

static void test_rmsnorm(void **state)
{
    (void)state, each("rmsnorm", build_rmsnorm, 3, (fastcheck){0});
}
static void test_layernorm(void **state)
{
    (void)state, each("layernorm", build_layernorm, 3, (fastcheck){0});
}
static void test_activation(void **state)
{
    (void)state, each("activation", build_activation, 3, (fastcheck){0});
}
static void test_rmsnorm_add(void **state)
{
    (void)state;
    each("rmsnorm_add", build_rmsnorm_add, 2, (fastcheck){0});
}
static void test_glu(void **state) { (void)state, each("glu", build_glu, 4, (fastcheck){0}); }
static void test_dropout(void **state)
{
    (void)state, each("dropout", build_dropout, 2, (fastcheck){0});
}
static void test_dora_norm(void **state)
{
    (void)state, each("dora_norm", build_dora, 1, (fastcheck){0});
}
static void test_adapters(void **state)
{
    static const int64_t sizes[][3] = {{5, 9, 0}, {70, 96, 0}, {129, 64, 0}, {200, 160, 0}};
    (void)state;
    for (size_t t = 0; t < AF_LEN(types); t++)
        for (size_t s = 0; s < AF_LEN(sizes); s++)
            for (int v = 0; v < 6; v++)
                for (int live = 0; live < 2; live++) {
                    if (!test_takes(t + s + (size_t)v + (size_t)live))
                        continue;
                    fastcheck c = {.type = types[t], .shape = sizes[s], .variant = v};
                    c.many = s == 3 && !live;
                    c.live = live ? (sizes[s][0] + 1) / 2 : 0;
                    fastcheck_run("adapter", build_adapter, c);
                }
}
static void test_binary(void **state)
{
    (void)state, each("binary", build_binary, 2, (fastcheck){0});
}
static void test_xielu(void **state) { (void)state, each("xielu", build_xielu, 2, (fastcheck){0}); }
static void test_shape(void **state) { (void)state, each("shape", build_shape, 4, (fastcheck){0}); }
static void test_groups(void **state)
{
    (void)state, each("groups", build_groups, 2, (fastcheck){0});
    each("small floats", build_small_floats, 2, (fastcheck){0});
}
static void test_rope(void **state)
{
    (void)state;
    each("rope", build_rope, 7, (fastcheck){.fill = fill_positions});
}
static void test_embedding(void **state)
{
    (void)state;
    each("embedding", build_embedding, 2, (fastcheck){.fill = fill_ids});
}
static void test_update(void **state)
{
    (void)state;
    for (size_t s = 0; s < AF_LEN(shapes); s++)
        fastcheck_run(
            "adamw and grad_norm", build_update,
            (fastcheck){.type = AF_DTYPE_F32, .shape = shapes[s], .update = true, .steps = 5});
}

/* A value is rounded the same in a full vector and in a tail: which one it is in depends on the
 * number of rows. */
static void test_rounding_does_not_depend_on_the_position(void **state)
{
    static const float values[] = {1.00390625f, -3e-39f, 1e-45f, 3.4e38f, INFINITY, NAN};
    enum { MOST = 40 };
    (void)state;
    for (int t = 0; af_fast_at(t); t++)
        for (size_t v = 0; v < AF_LEN(values); v++)
            for (int n = 1; n <= MOST; n++) {
                float x[MOST];
                uint16_t y[MOST], one;
                for (int i = 0; i < n; i++)
                    x[i] = values[v];
                af_fast_at(t)->to_bf16(&one, x, 1);
                af_fast_at(t)->to_bf16(y, x, n);
                for (int i = 0; i < n; i++)
                    CHECK_MSG(y[i] == one, "%s: %g becomes %04x at %d of %d, alone %04x",
                              af_fast_at(t)->name, (double)x[i], y[i], i, n, one);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding_does_not_depend_on_the_position),
        cmocka_unit_test(test_rmsnorm),
        cmocka_unit_test(test_layernorm),
        cmocka_unit_test(test_activation),
        cmocka_unit_test(test_rmsnorm_add),
        cmocka_unit_test(test_glu),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_xielu),
        cmocka_unit_test(test_shape),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_update),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_dora_norm),
        cmocka_unit_test(test_adapters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
