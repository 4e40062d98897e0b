/* test_fast_state.c - the fast versions of the ops with a state against their twins: sequences of
 * 1, 63, 64, 65 and 150 rows in one batch, none, and rows outside all of them; and the cached
 * forms: a sequence fed in pieces gives what it gives whole. */
#include "fastcheck.h"

static const int32_t ends[] = {2, 3, 3, 66, 130, 195, 345};
enum { SEQUENCES = AF_LEN(ends) - 1, ROWS = 350 };
static const int64_t shape[] = {ROWS, 0, 0};

static void fill_bounds(fastcheck *c, af_tensor *t)
{
    (void)c;
    if (strcmp(t->name, "bounds") == 0)
        memcpy(t->data, ends, sizeof ends);
}
static af_tensor *bounds(fastcheck *c)
{
    return af_graph_input(c->g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){AF_LEN(ends)});
}

static void check(const char *name, fastcheck_build *build, int variants)
{
    for (int v = 0; v < 2 * variants; v++) {
        fastcheck c = {.type = v & 1 ? AF_DTYPE_BF16 : AF_DTYPE_F32,
                       .shape = shape,
                       .variant = v / 2,
                       .fill = fill_bounds,
                       .limit = v & 1 ? 1e-2 : 1e-5,
                       .live = v % 4 == 2 ? ROWS - 3 : 0};
        fastcheck_run(name, build, c);
    }
}

static af_tensor *build_conv(fastcheck *c)
{
    const int64_t C = c->variant & 1 ? 37 : 16, K = c->variant & 2 ? 4 : 3;
    af_tensor *bias = c->variant & 1 ? fc_param(c, "bias", 0, C) : NULL;
    return af_conv(c->g, fc_rows(c, C), fc_param(c, "taps", C, K), bias, bounds(c), c->variant & 2);
}

static void test_conv(void **state)
{
    (void)state;
    check("conv", build_conv, 4);
}

static af_tensor *build_gated_norm(fastcheck *c)
{
    const int64_t E = c->variant & 2 ? 36 : 12;
    return af_gated_norm(c->g, fc_rows(c, 36), fc_rows(c, 36), fc_param(c, "norm", 0, E), 1e-3,
                         c->variant & 1);
}

static void test_gated_norm(void **state)
{
    (void)state;
    check("gated_norm", build_gated_norm, 4);
}

/* Slow decay, so that the state of one chunk is felt in the next. */
static af_tensor *build_scan(fastcheck *c)
{
    const bool delta = c->variant & 1;
    const af_scan_opts o = {.heads = 4,
                            .key_heads = c->variant & 2 ? 2 : 4,
                            .key_dim = 8,
                            .head_dim = 12,
                            .delta = delta};
    af_tensor *x = fc_rows(c, 2 * o.key_heads * o.key_dim + o.heads * o.head_dim);
    af_tensor *shift = af_graph_constant(c->g, AF_DTYPE_F32, 1, (int64_t[]){4}, -4.0);
    af_tensor *a_log = af_add(c->g, fc_param(c, "a_log", 0, 4), shift);
    af_tensor *decay = af_softplus(c->g, fc_rows(c, 4), fc_param(c, "dt", 0, 4), a_log);
    af_tensor *beta = delta ? af_sigmoid(c->g, fc_rows(c, 4))
                            : af_softplus(c->g, fc_rows(c, 4), fc_param(c, "dt", 0, 4), NULL);
    return af_scan(c->g, x, decay, beta, delta ? NULL : fc_param(c, "skip", 0, 4), bounds(c), &o);
}

static void test_scan(void **state)
{
    (void)state;
    check("scan", build_scan, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_conv),
                                       cmocka_unit_test(test_gated_norm),
                                       cmocka_unit_test(test_scan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
