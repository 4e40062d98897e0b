/* test_grad_general.c - the gradient rules of the general ops against central differences. */
#include "ops/gradcheck.h"

static const int64_t odd[][3] = {{1, 1, 1}, {3, 17, 2}, {2, 3, 5}, {1, 65, 3}, {17, 1, 4}};

#define SHAPES(name, build, ...)                                                                   \
    gradcheck_shapes(name, build, (gradcheck){__VA_ARGS__}, odd, (int)AF_LEN(odd))

/* ---- element-wise ---- */

static af_tensor *build_binary(gradcheck *c)
{
    static af_tensor *(*const op[])(af_graph *, af_tensor *, af_tensor *) = {af_add, af_sub, af_mul,
                                                                             af_div};
    const int64_t *s = c->shape;
    af_tensor *a = gc_param(c, 3, (int64_t[]){s[0], 1, s[2]});
    af_tensor *b = gc_param(c, 2, (int64_t[]){s[1], s[2]});
    af_tensor *d = gc_param(c, 1, (int64_t[]){s[2]});
    return op[c->variant](c->g, op[c->variant](c->g, a, b), d);
}

static void test_binary_with_broadcasting(void **state)
{
    (void)state;
    for (int v = 0; v < 4; v++)
        SHAPES("binary", build_binary, .variant = v, .low = 0.5, .high = 2);
}

static af_tensor *(*const unary_op[])(af_graph *, af_tensor *) = {
    af_neg, af_exp, af_log, af_sqrt, af_tanh, af_sigmoid, af_relu, af_gelu, af_gelu_tanh, af_silu};

static af_tensor *build_unary(gradcheck *c)
{
    return unary_op[c->variant](c->g, gc_param2(c, c->shape[0], c->shape[1]));
}

static af_tensor *build_scale_softcap(gradcheck *c)
{
    return af_softcap(c->g, af_scale(c->g, gc_param2(c, c->shape[0], c->shape[1]), -2.5), 1.7);
}

static af_tensor *build_clip(gradcheck *c)
{
    return af_clip(c->g, gc_param2(c, c->shape[0], c->shape[1]), 0.8);
}

static void test_unary(void **state)
{
    (void)state;
    for (int v = 0; v < (int)AF_LEN(unary_op); v++) {
        const bool positive = unary_op[v] == af_log || unary_op[v] == af_sqrt;
        SHAPES("unary", build_unary, .variant = v, .low = positive ? 0.2 : -2,
               .high = positive ? 2 : 1.9);
    }
    SHAPES("softcap of scale", build_scale_softcap, .variant = 0);
    SHAPES("clip", build_clip, .variant = 0, .low = -2, .high = 1.9);
}

static af_tensor *build_twice(gradcheck *c)
{
    af_tensor *x = gc_param2(c, c->shape[0], c->shape[1]);
    af_tensor *y = af_mul(c->g, af_tanh(c->g, x), x); /* x reaches the loss on four paths */
    return af_add(c->g, af_add(c->g, y, y), af_mul(c->g, x, y));
}

static void test_a_value_used_twice_gets_both_gradients(void **state)
{
    (void)state;
    SHAPES("used twice", build_twice, .variant = 0);
}

/* ---- matmul ---- */

static af_tensor *build_matmul(gradcheck *c)
{
    const int kind = c->variant & 3, batch = c->variant >> 2; /* 0 none, 1 both, 2 b is shared */
    const int64_t M = c->shape[0], K = c->shape[1], N = c->shape[2];
    const int64_t a[4] = {2, 3, kind & AF_MATMUL_TN ? K : M, kind & AF_MATMUL_TN ? M : K};
    const int64_t b[4] = {2, 3, kind & AF_MATMUL_NT ? N : K, kind & AF_MATMUL_NT ? K : N};
    af_tensor *pa = batch ? gc_param(c, 4, a) : gc_param(c, 2, a + 2);
    af_tensor *pb = batch == 1 ? gc_param(c, 4, b) : gc_param(c, 2, b + 2);
    return af_matmul(c->g, pa, pb, (af_matmul_kind)kind);
}

static void test_matmul_all_transposes_and_batches(void **state)
{
    (void)state;
    for (int v = 0; v < 12; v++)
        SHAPES("matmul", build_matmul, .variant = v);
}

/* ---- shapes ---- */

static af_tensor *build_transpose(gradcheck *c)
{
    static const int perm[][4] = {{0, 2, 1, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}, {2, 3, 0, 1}};
    const int64_t *s = c->shape;
    return af_transpose(c->g, gc_param(c, 4, (int64_t[]){s[0], s[1], 2, s[2]}), perm[c->variant]);
}

static af_tensor *build_reshape(gradcheck *c)
{
    const int64_t *s = c->shape;
    af_tensor *x = gc_param(c, 3, s);
    af_tensor *y = af_reshape(c->g, x, 2, (int64_t[]){s[0] * s[1], s[2]});
    /* both the parameter and its view are read */
    return af_mul(c->g, af_reshape(c->g, y, 1, (int64_t[]){s[0] * s[1] * s[2]}),
                  af_reshape(c->g, af_exp(c->g, x), 1, (int64_t[]){s[0] * s[1] * s[2]}));
}

static af_tensor *build_slice_concat(gradcheck *c)
{
    const int axis = c->variant;
    int64_t a[3] = {c->shape[0], c->shape[1], c->shape[2]}, b[3] = {a[0], a[1], a[2]};
    a[axis] += 2;
    b[axis] += 4;
    af_tensor *x = gc_param(c, 3, a), *y = gc_param(c, 3, b);
    af_tensor *part[] = {af_slice(c->g, x, axis, 1, a[axis] - 1), y,
                         af_slice(c->g, y, axis - 3, b[axis] - 2, 2)};
    return af_concat(c->g, part, 3, axis);
}

static void test_shapes(void **state)
{
    (void)state;
    for (int v = 0; v < 4; v++)
        SHAPES("transpose", build_transpose, .variant = v);
    SHAPES("reshape", build_reshape, .variant = 0);
    for (int v = 0; v < 3; v++)
        SHAPES("slice and concat", build_slice_concat, .variant = v);
}

/* ---- reductions ---- */

static af_tensor *build_reduce(gradcheck *c)
{
    static af_tensor *(*const op[])(af_graph *, af_tensor *, int, bool) = {af_sum, af_mean, af_max};
    af_tensor *x = gc_param(c, 3, c->shape);
    const int axis = c->variant % 3 - (c->variant / 9) * 3; /* negative ones too */
    return af_mul(c->g, op[c->variant / 3 % 3](c->g, x, axis, true), x);
}

static af_tensor *build_reduce_away(gradcheck *c)
{
    af_tensor *x = gc_param(c, 3, c->shape);
    af_tensor *m = af_max(c->g, af_sum(c->g, x, 1, false), 0, false);
    return af_add(c->g, af_mul(c->g, m, af_mean_all(c->g, x)),
                  af_sum_all(c->g, af_mul(c->g, x, x)));
}

static void test_reductions(void **state)
{
    (void)state;
    for (int v = 0; v < 18; v++)
        SHAPES("reduce", build_reduce, .variant = v);
    SHAPES("reduce without the axis", build_reduce_away, .variant = 0);
}

static af_tensor *build_dropout(gradcheck *c)
{
    af_tensor *x = gc_param(c, 3, c->shape);
    return af_mul(c->g, af_dropout(c->g, af_tanh(c->g, x), 0.3, 7), af_dropout(c->g, x, 0.5, 8));
}

static void test_dropout_backward_uses_the_same_mask(void **state)
{
    (void)state;
    SHAPES("dropout", build_dropout, .variant = 0);
}

/* ---- rows ---- */

static af_tensor *build_softmax(gradcheck *c)
{
    af_tensor *x = gc_param(c, 3, c->shape);
    return c->variant ? af_log_softmax(c->g, x) : af_softmax(c->g, x);
}

static af_tensor *build_layernorm(gradcheck *c)
{
    const int64_t D = c->shape[1] + 1; /* one column has no variance: eps alone would be tested */
    af_tensor *x = gc_param(c, 3, (int64_t[]){c->shape[0], c->shape[2], D});
    return af_layernorm(c->g, x, gc_param(c, 1, &D), gc_param(c, 1, &D), 1e-2);
}

static void test_softmax_and_layernorm(void **state)
{
    (void)state;
    SHAPES("softmax", build_softmax, .variant = 0);
    SHAPES("log softmax", build_softmax, .variant = 1);
    SHAPES("layernorm", build_layernorm, .variant = 0);
}

/* ---- losses ---- */

static af_tensor *build_loss(gradcheck *c)
{
    const int64_t *s = c->shape;
    af_tensor *x = gc_param2(c, s[0], s[1]);
    af_tensor *t = af_graph_input(c->g, "target", AF_DTYPE_F64, 2, s);
    switch (c->variant) {
    case 0:
        return af_mse(c->g, x, t);
    case 1:
        return af_l1(c->g, x, t);
    case 2:
        return af_huber(c->g, x, t, 0.7);
    case 3:
        return af_bce_with_logits(c->g, x, t);
    case 4:
        return af_kl(c->g, af_log_softmax(c->g, x), t);
    default: /* both sides are trained */
        return af_add(c->g, af_mse(c->g, x, gc_param2(c, s[0], s[1])),
                      af_huber(c->g, x, gc_param2(c, s[0], s[1]), 0.5));
    }
}

static af_tensor *build_cross_entropy(gradcheck *c)
{
    const int64_t rows = c->shape[0] * c->shape[1], V = c->shape[2] + 2;
    af_tensor *labels = af_graph_input(c->g, "labels", AF_DTYPE_I32, 1, &rows); /* some are -100 */
    return af_cross_entropy(c->g, gc_param2(c, rows, V), labels, c->variant ? 0.1 : 0);
}

static void test_losses(void **state)
{
    (void)state;
    for (int v = 0; v < 6; v++)
        SHAPES("loss", build_loss, .variant = v);
    SHAPES("cross entropy", build_cross_entropy, .variant = 0);
    SHAPES("cross entropy with smoothing", build_cross_entropy, .variant = 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_binary_with_broadcasting),
        cmocka_unit_test(test_unary),
        cmocka_unit_test(test_a_value_used_twice_gets_both_gradients),
        cmocka_unit_test(test_matmul_all_transposes_and_batches),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_dropout_backward_uses_the_same_mask),
        cmocka_unit_test(test_softmax_and_layernorm),
        cmocka_unit_test(test_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
