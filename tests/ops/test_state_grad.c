/* test_state_grad.c - the gradient rules of the ops with a state against central differences. */
#include "ops/gradcheck.h"

/* Bounds: sequences of 1, none, and the rest; two rows after the last when there are enough. */
static void fill_bounds(gradcheck *c, af_tensor *t)
{
    int32_t *p = t->data;
    if (strcmp(t->name, "bounds") != 0)
        return;
    const int32_t rows = (int32_t)c->shape[0], used = rows > 4 ? rows - 2 : rows;
    p[0] = rows > 6 ? 1 : 0;
    p[1] = p[0] + (used > 1 ? 1 : used);
    p[2] = p[1];
    p[3] = rows > 8 ? p[2] + 4 : used;
    p[4] = used;
}

static af_tensor *bounds(gradcheck *c)
{
    return af_graph_input(c->g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){5});
}

static const int64_t odd[][3] = {{1, 1, 1}, {3, 5, 2}, {17, 3, 4}, {12, 2, 5}};

static void shapes(const char *name, gradcheck_build *build, int variant)
{
    gradcheck c = {.variant = variant, .fill = fill_bounds};
    gradcheck_shapes(name, build, c, odd, (int)AF_LEN(odd));
}

static af_tensor *build_conv(gradcheck *c)
{
    const int64_t C = c->shape[1], K = c->shape[2];
    af_tensor *x = gc_param2(c, c->shape[0], C), *w = gc_param2(c, C, K),
              *bias = c->variant & 2 ? gc_param(c, 1, &C) : NULL;
    return af_conv(c->g, x, w, bias, bounds(c), c->variant & 1);
}

static void test_conv(void **state)
{
    (void)state;
    for (int v = 0; v < 4; v++)
        shapes("conv", build_conv, v);
}

/* variant bit 0: delta; bit 1: skip; bit 2: heads share keys; bit 3: a decay per channel. */
static af_tensor *build_scan(gradcheck *c)
{
    const int v = c->variant;
    const af_scan_opts o = {.heads = v & 4 ? 4 : 2,
                            .key_heads = 2,
                            .key_dim = (int)c->shape[1],
                            .head_dim = (int)c->shape[2],
                            .delta = v & 1};
    const int64_t H = o.heads, N = c->shape[0], D = v & 8 ? H * o.key_dim : H;
    af_tensor *x = gc_param2(c, N, 2 * o.key_heads * o.key_dim + H * o.head_dim);
    af_tensor *decay =
        af_softplus(c->g, gc_param2(c, N, D), gc_param(c, 1, &D), gc_param(c, 1, &D));
    af_tensor *beta = v & 1 ? af_sigmoid(c->g, gc_param2(c, N, H))
                            : af_softplus(c->g, gc_param2(c, N, H), gc_param(c, 1, &H), NULL);
    return af_scan(c->g, x, decay, beta, v & 2 ? gc_param(c, 1, &H) : NULL, bounds(c), &o);
}

static void test_scan_and_softplus(void **state)
{
    (void)state;
    for (int v = 0; v < 8; v++)
        shapes("scan", build_scan, v);
    shapes("scan per channel", build_scan, 1 | 8);
    shapes("scan per channel, shared keys", build_scan, 1 | 4 | 8);
}

static af_tensor *build_selective(gradcheck *c)
{
    const int64_t N = c->shape[0], I = c->shape[1], n = c->shape[2];
    af_tensor *x = gc_param2(c, N, I),
              *dt = af_softplus(c->g, gc_param2(c, N, I), gc_param(c, 1, &I), NULL),
              *a = af_scale(c->g, af_exp(c->g, gc_param2(c, I, n)), -1);
    return af_selective(
        c->g, &(af_selective_opts){x, dt, a, gc_param2(c, N, n), gc_param2(c, N, n), bounds(c)});
}

static void test_selective(void **state)
{
    (void)state;
    shapes("selective", build_selective, 0);
}

static af_tensor *build_gated_norm(gradcheck *c)
{
    const int64_t D = 3 * c->shape[1], E = c->variant & 2 ? D : c->shape[1];
    return af_gated_norm(c->g, gc_param2(c, c->shape[0], D), gc_param2(c, c->shape[0], D),
                         gc_param(c, 1, &E), 1e-3, c->variant & 1);
}

static void test_gated_norm(void **state)
{
    (void)state;
    for (int v = 0; v < 4; v++)
        shapes("gated_norm", build_gated_norm, v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv), cmocka_unit_test(test_scan_and_softplus),
        cmocka_unit_test(test_selective), cmocka_unit_test(test_gated_norm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
