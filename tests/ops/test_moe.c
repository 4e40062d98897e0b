/* test_moe.c - mixtures of experts: every router and every part of the experts against central
 * differences, the fast versions against the twins on any number of threads, and frozen experts of
 * stored types against their decoded values. test_lm_golden.c has PyTorch's numbers. */
#include "ops/fastcheck.h"
#include "ops/gradcheck.h"

#include "graph/backend.h"
#include "ops/moe/moe_fuse.h"
#include "tensor/codec.h"

enum {
    SIGMOID = 1,
    CHOICE = 2,
    NORM = 4,
    GROUPS = 8,
    BIAS = 16,
    LORA = 32,
    CLAMP = 64,
    NEAR = 128,
    CHEAP = 256, /* modes of recomputation */
    BLOCK = 512,
    PLAIN = 1024,    /* experts without a gate */
    IDENTITY = 2048, /* two more experts that give back what they read */
    BY_LOGIT = 4096
};

enum { X = 6, K = 3, F = 3, R = 2 };

static af_route_opts router(af_graph *g, int v, af_dtype t)
{
    af_route_opts o = {.used = K, .score = v & SIGMOID ? AF_ROUTE_SIGMOID : AF_ROUTE_SOFTMAX};
    o.norm = v & NORM;
    o.eps = v & NORM ? 0.125 : 0;
    o.scale = v & CHOICE ? 1.75 : 0;
    if (v & NEAR) {
        o.score = AF_ROUTE_NEAR;
        o.eps = 0.6;
        o.scale = 1.25;
    }
    if (v & BY_LOGIT)
        o.by_logit = true, o.eps = 0;
    if (v & CHOICE)
        o.bias = af_graph_input(g, "choice", t, 1, (int64_t[]){X});
    if (v & GROUPS)
        o.groups = 3, o.groups_used = 2, o.group_best = v & SIGMOID ? 2 : 1;
    return o;
}

/* ---- gradients ---- */

static af_expert_linear linear_of(gradcheck *c, af_tensor *weight, int64_t out, int64_t in)
{
    af_expert_linear l = {.weight = weight, .scale = 0.75};
    if (c->variant & BIAS)
        l.bias = gc_param(c, 2, (int64_t[]){X, out});
    if (c->variant & LORA) {
        l.a = gc_param(c, 3, (int64_t[]){X, R, in});
        l.b = gc_param(c, 3, (int64_t[]){X, out, R});
    }
    return l;
}

static af_expert_linear grad_linear(gradcheck *c, int64_t out, int64_t in)
{
    return linear_of(c, gc_param(c, 3, (int64_t[]){X, out, in}), out, in);
}

static af_tensor *build_grad(gradcheck *c)
{
    const int64_t N = c->shape[0], D = c->shape[1];
    const int more = c->variant & IDENTITY ? 2 : 0;
    af_tensor *logits = gc_param2(c, N, X + more), *x = gc_param2(c, N, D), *index;
    const af_route_opts route = router(c->g, c->variant, AF_DTYPE_F64);
    af_tensor *w = af_moe_route(c->g, logits, &route, &index);
    const af_experts_opts o = {.identity = more,
                               .gate_up = grad_linear(c, c->variant & PLAIN ? F : 2 * F, D),
                               .down = grad_linear(c, D, F),
                               .act = AF_ACT_GELU_TANH,
                               .plain = c->variant & PLAIN,
                               .relu2 = c->variant & NORM,
                               .clamp = c->variant & CLAMP ? 0.5 : 0};
    return af_moe_ffn(c->g, x, w, index, &o);
}

static void test_gradients_agree_with_differences(void **state)
{
    (void)state;
    static const int64_t shape[][3] = {{1, 1, 0}, {5, 4, 0}};
    static const int variants[] = {0,
                                   NORM,
                                   SIGMOID,
                                   SIGMOID | NORM | CHOICE,
                                   GROUPS,
                                   CHOICE,
                                   GROUPS | CHOICE | NORM | SIGMOID,
                                   NEAR,
                                   BIAS,
                                   LORA,
                                   LORA | BIAS | NORM | CLAMP,
                                   PLAIN,
                                   PLAIN | LORA | NORM,
                                   IDENTITY,
                                   IDENTITY | SIGMOID | LORA | NORM,
                                   BY_LOGIT | SIGMOID,
                                   BY_LOGIT | SIGMOID | CHOICE | NORM};
    for (size_t i = 0; i < AF_LEN(variants); i++) {
        const gradcheck c = {.variant = variants[i]};
        gradcheck_shapes("moe", build_grad, c, shape, (int)AF_LEN(shape));
    }
}

/* ---- fused as on a GPU ---- */

static int fused, summed, gated; /* mixtures, sums and units that were, since they were last set */

static void rewrite(af_graph *g)
{
    af_moe_fuse(g);
    for (int i = 0; i < g->n_nodes; i++) {
        fused += g->nodes[i]->op == AF_OP_MOE_GLU_BWD;
        summed += g->nodes[i]->op == AF_OP_MOE_COMBINE && g->nodes[i]->attr.moe.plus;
        gated += g->nodes[i]->op == AF_OP_MOE_LINEAR && g->nodes[i]->attr.moe.glu;
    }
}

/* As build_grad, with `down` frozen but for what the variant gives it; x has another reader. */
static af_tensor *build_fused(gradcheck *c)
{
    static af_backend_ops ops;
    const int64_t N = c->shape[0], D = c->shape[1];
    af_tensor *logits = gc_param2(c, N, X), *x = af_neg(c->g, gc_param2(c, N, D)), *index;
    ops = *c->device->ops;
    ops.rewrite = rewrite;
    c->device->ops = &ops;
    af_tensor *w = af_moe_route(c->g, logits, &(af_route_opts){.used = K, .norm = true}, &index);
    const int64_t dim[] = {X, D, F};
    af_graph_set_recompute(c->g,
                           c->variant & BLOCK   ? AF_RECOMPUTE_BLOCK
                           : c->variant & CHEAP ? AF_RECOMPUTE_CHEAP
                                                : AF_RECOMPUTE_NONE,
                           1);
    af_graph_set_block(c->g, 0);
    const af_experts_opts o = {
        .gate_up = grad_linear(c, 2 * F, D),
        .down = linear_of(c,
                          c->variant & CHOICE ? gc_param(c, 3, dim) /* trained */
                                              : af_graph_input(c->g, "w", AF_DTYPE_F64, 3, dim),
                          D, F),
        .act = (af_act)c->shape[2],
        .clamp = c->variant & CLAMP ? 0.5 : 0};
    af_tensor *y = af_moe_ffn(c->g, x, w, index, &o);
    af_graph_set_block(c->g, -1);
    return af_add(c->g, x, y);
}

static void test_fused_gradients_agree_with_differences(void **state)
{
    (void)state;
    static const int64_t shape[][3] = {
        {1, 1, AF_ACT_SILU}, {5, 4, AF_ACT_GELU_TANH}, {4, 3, AF_ACT_GELU}, {5, 3, AF_ACT_SILU}};
    static const int variants[] = {0, CHEAP, BLOCK, BIAS, LORA, CLAMP, CHOICE};
    for (size_t i = 0; i < AF_LEN(variants); i++) {
        const int v = variants[i];
        fused = summed = gated = 0;
        gradcheck_shapes("moe, fused", build_fused, (gradcheck){.variant = v}, shape,
                         (int)AF_LEN(shape));
        assert_int_equal(fused, v & ~(CHEAP | BLOCK) ? 0 : (int)AF_LEN(shape));
        assert_int_equal(summed, (int)AF_LEN(shape));
        assert_int_equal(gated, v & (LORA | CLAMP | CHOICE) ? 0 : (int)AF_LEN(shape));
    }
}

/* ---- choices ---- */

/* Row r of `logits` and what is taken of it. */
static void check_route(const float *logits, const float *choice, af_route_opts o, int experts,
                        const int32_t *want, const float *weights)
{
    af_error err = {0};
    af_graph *g;
    af_device *d;
    CHECK_OK(af_graph_new(&g, &err), err);
    CHECK_OK(af_cpu_open(&d, 1, &err), err);
    af_tensor *z = af_graph_input(g, "z", AF_DTYPE_F32, 2, (int64_t[]){1, experts}), *index;
    if (choice)
        o.bias = af_graph_input(g, "c", AF_DTYPE_F32, 1, (int64_t[]){experts});
    af_tensor *w = af_moe_route(g, z, &o, &index);
    af_graph_output(g, w);
    af_graph_output(g, index);
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    memcpy(z->data, logits, (size_t)experts * sizeof *logits);
    if (choice)
        memcpy(o.bias->data, choice, (size_t)experts * sizeof *choice);
    CHECK_OK(af_graph_run(g, AF_RUN_FORWARD, &err), err);
    for (int j = 0; j < o.used; j++) {
        CHECK_MSG(((int32_t *)index->data)[j] == want[j], "choice %d is %d, not %d", j,
                  ((int32_t *)index->data)[j], want[j]);
        CHECK_MSG(fabsf(((float *)w->data)[j] - weights[j]) < 1e-6f, "weight %d is %g, not %g", j,
                  (double)((float *)w->data)[j], (double)weights[j]);
    }
    af_graph_free(g);
    af_device_close(d);
}

static float sigmoid(float x) { return 1 / (1 + expf(-x)); }

static void test_choices_follow_bias_and_groups(void **state)
{
    (void)state;
    const float z[4] = {2, 1, 0, -1}, bias[4] = {0, 0, 0.75f, 0};
    /* 2 wins by its bias, which its weight does not have */
    check_route(z, bias, (af_route_opts){.used = 2, .score = AF_ROUTE_SIGMOID, .scale = 2}, 4,
                (int32_t[]){2, 0}, (float[]){2 * sigmoid(0), 2 * sigmoid(2)});
    /* 1.5 is near 2 (0.5 <= 0.3 * 2), 1 is not; then 1 is not near 1.5, and -2 is near nothing */
    check_route((float[]){1, 2, -2, 1.5f}, NULL,
                (af_route_opts){.used = 2, .score = AF_ROUTE_NEAR, .eps = 0.3}, 4,
                (int32_t[]){1, 3}, (float[]){1 / (1 + expf(-0.5f)), 1});
    /* equal logits: the lower first */
    check_route((float[]){1, 3, 3, 3}, NULL, (af_route_opts){.used = 2, .norm = true}, 4,
                (int32_t[]){1, 2}, (float[]){0.5f, 0.5f});
    /* group {4, -9} has the best one, {3, 3} the best two */
    const float two[4] = {4, -9, 3, 3};
    af_route_opts o = {
        .used = 1, .score = AF_ROUTE_SIGMOID, .groups = 2, .groups_used = 1, .group_best = 2};
    check_route(two, NULL, o, 4, (int32_t[]){2}, (float[]){sigmoid(3)});
    o.group_best = 1;
    check_route(two, NULL, o, 4, (int32_t[]){0}, (float[]){sigmoid(4)});
}

/* ---- fast versions ---- */

static af_expert_linear fast_linear(fastcheck *c, int64_t out, int64_t in)
{
    af_graph *g = c->g;
    af_expert_linear l = {.scale = 0.5};
    l.weight = af_graph_param(g, "w", AF_DTYPE_F32, 3, (int64_t[]){X, out, in});
    if (c->variant & BIAS)
        l.bias = af_graph_param(g, "bias", AF_DTYPE_F32, 2, (int64_t[]){X, out});
    if (c->variant & LORA) {
        l.a = af_graph_param(g, "a", AF_DTYPE_F32, 3, (int64_t[]){X, R, in});
        l.b = af_graph_param(g, "b", AF_DTYPE_F32, 3, (int64_t[]){X, out, R});
    }
    return l;
}

static af_tensor *build_fast(fastcheck *c)
{
    const int64_t D = c->shape[1], width = c->shape[2];
    af_tensor *x = fc_rows(c, D), *index;
    const int more = c->variant & IDENTITY ? 2 : 0;
    af_tensor *logits = fc_rows(c, X + more);
    const af_route_opts route = router(c->g, c->variant, AF_DTYPE_F32);
    af_tensor *w = af_moe_route(c->g, logits, &route, &index);
    const af_experts_opts o = {.identity = more,
                               .gate_up = fast_linear(c, c->variant & PLAIN ? width : 2 * width, D),
                               .down = fast_linear(c, D, width),
                               .plain = c->variant & PLAIN,
                               .relu2 = true,
                               .clamp = c->variant & CLAMP ? 0.5 : 0};
    return af_moe_ffn(c->g, x, w, index, &o);
}

static void test_fast_versions_are_the_twins(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 5, 3}, {19, 40, 24}};
    static const int variants[] = {NORM,
                                   PLAIN | NORM,
                                   BIAS | CLAMP,
                                   PLAIN | LORA,
                                   LORA | NORM,
                                   LORA | BIAS | SIGMOID | CHOICE | GROUPS | NORM,
                                   BY_LOGIT | SIGMOID | CHOICE | NORM,
                                   IDENTITY | LORA};
    for (size_t v = 0; v < AF_LEN(variants); v++)
        for (size_t i = 0; i < AF_LEN(shapes); i++)
            for (int bf16 = 0; bf16 < 2; bf16++) {
                fastcheck c = {.variant = variants[v],
                               .shape = shapes[i],
                               .type = bf16 ? AF_DTYPE_BF16 : AF_DTYPE_F32,
                               .limit = bf16 ? 1e-2 : 0};
                fastcheck_run("moe", build_fast, c);
                c.live = i && v % 2 ? (shapes[i][0] + 1) / 2 : 0;
                if (c.live)
                    fastcheck_run("moe, some rows", build_fast, c);
            }
}

/* ---- stored types ---- */

/* The same mixture with frozen experts of a type and with their decoded values. */
static void check_type(af_dtype type, bool twins)
{
    enum { N = 3 };
    const int64_t D = af_dtype_get(type)->elems, W = D; /* one block a row */
    af_error err = {0};
    af_graph *g;
    af_device *d;
    CHECK_OK(af_graph_new(&g, &err), err);
    CHECK_OK(af_cpu_open(&d, 2, &err), err);
    ((af_cpu *)d)->twins_only = twins;
    af_tensor *x[2], *y[2], *weight[2][2], *loss = NULL;
    const int64_t dim[2][3] = {{X, 2 * W, D}, {X, D, W}};
    af_tensor *z = af_graph_input(g, "z", AF_DTYPE_F32, 2, (int64_t[]){N, X}), *index;
    af_tensor *w = af_moe_route(g, z, &(af_route_opts){.used = K, .norm = true}, &index);
    for (int i = 0; i < 2; i++) {
        x[i] = af_graph_param(g, i ? "x1" : "x0", AF_DTYPE_F32, 2, (int64_t[]){N, D});
        for (int k = 0; k < 2; k++)
            weight[i][k] = af_graph_weight(g, "w", i ? AF_DTYPE_F32 : type, 3, dim[k]);
        y[i] = af_moe_ffn(
            g, x[i], w, index,
            &(af_experts_opts){.gate_up.weight = weight[i][0], .down.weight = weight[i][1]});
        af_graph_output(g, y[i]);
        loss = loss ? af_add(g, loss, af_sum_all(g, y[i])) : af_sum_all(g, y[i]);
    }
    af_graph_backward(g, loss);
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    for (int k = 0; k < 2; k++) {
        const int64_t n = af_count(weight[0][k]);
        float *v = calloc((size_t)n, sizeof *v);
        for (int64_t i = 0; i < n; i++)
            v[i] = 0.1f * (float)normal(7, (uint64_t)(i + k));
        af_codec_encode_row(type, v, weight[0][k]->data, n, NULL);
        af_codec_decode_row(type, weight[0][k]->data, weight[1][k]->data, n);
        free(v);
    }
    for (int64_t i = 0; i < N * X; i++)
        ((float *)z->data)[i] = (float)normal(8, (uint64_t)i);
    for (int64_t i = 0; i < N * D; i++)
        ((float *)x[0]->data)[i] = ((float *)x[1]->data)[i] = (float)normal(9, (uint64_t)i);
    CHECK_OK(af_graph_run(g, AF_RUN_GRAD, &err), err);
    for (int64_t i = 0; i < N * D; i++)
        CHECK_MSG(af_ld(y[0], i) == af_ld(y[1], i) && af_ld(x[0]->grad, i) == af_ld(x[1]->grad, i),
                  "%s: element %d differs", af_dtype_name(type), (int)i);
    af_graph_free(g);
    af_device_close(d);
}

static void test_frozen_experts_of_stored_types(void **state)
{
    (void)state;
    static const af_dtype types[] = {AF_DTYPE_Q8_0, AF_DTYPE_Q4_K, AF_DTYPE_IQ4_NL, AF_DTYPE_MXFP4};
    for (size_t i = 0; i < AF_LEN(types); i++)
        for (int twins = 0; twins < 2; twins++)
            check_type(types[i], twins);
}

/* ---- wrong calls ---- */

static void refused(af_route_opts o, const char *what)
{
    af_error err = {0};
    af_graph *g;
    CHECK_OK(af_graph_new(&g, &err), err);
    af_tensor *index, *z = af_graph_input(g, "z", AF_DTYPE_F32, 2, (int64_t[]){2, X});
    af_moe_route(g, z, &o, &index);
    CHECK_MSG(af_graph_status(g, &err) != AF_OK && strstr(err.msg, what), "'%s'", err.msg);
    af_graph_free(g);
}

static void test_wrong_routers_are_refused(void **state)
{
    (void)state;
    refused((af_route_opts){.used = 7}, "7 experts");
    refused((af_route_opts){.used = 0}, "0 experts");
    refused((af_route_opts){.used = 2, .groups = 4, .groups_used = 1, .group_best = 1},
            "1 of 4 groups");
    refused((af_route_opts){.used = 4, .groups = 2, .groups_used = 1, .group_best = 1},
            "cannot give 4 of 6 experts");
    refused((af_route_opts){.used = 2, .groups = 2, .groups_used = 3, .group_best = 1},
            "3 of 2 groups");
    refused((af_route_opts){.used = 2, .groups = 6, .groups_used = 3, .group_best = 2},
            "their 2 best");
    refused((af_route_opts){.used = 2, .score = (af_route_score)9}, "score 9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_agree_with_differences),
        cmocka_unit_test(test_fused_gradients_agree_with_differences),
        cmocka_unit_test(test_choices_follow_bias_and_groups),
        cmocka_unit_test(test_fast_versions_are_the_twins),
        cmocka_unit_test(test_frozen_experts_of_stored_types),
        cmocka_unit_test(test_wrong_routers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
