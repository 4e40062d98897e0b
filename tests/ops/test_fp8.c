/* test_fp8.c - projections in FP8: the rounding, both products against sums of codes worked out
 * here in double, gradients of adapters against differences, the fast version against the twin. */
#include "fastcheck.h"
#include "gradcheck.h"

#include "ops/linear/fp8_linear.h"
#include "tensor/fp8_round.h"

static float clamped(float x) { return x > 448 ? 448.0f : x < -448 ? -448.0f : x; }

static void check_round(float x)
{
    const float got = af_fp8_round(x), want = af_f32_from_e4m3(af_e4m3_from_f32(clamped(x)));
    if (isnan(x)) {
        CHECK_MSG(isnan(got) && (af_fp8_code(x) & 0x7f) == 0x7f, "NaN does not stay");
        return;
    }
    CHECK_MSG(got == want && !signbit(got) == !signbit(want), "%a becomes %a, not %a", (double)x,
              (double)got, (double)want);
    CHECK_MSG(af_fp8_code(x) == af_e4m3_from_f32(clamped(x)), "%a: code", (double)x);
}

/* Every code, both sides of every boundary between two, and many other numbers. The single
 * conversions it is compared with are tested in test_dtype.c, by definition, for all codes. */
static void test_rounding(void **state)
{
    (void)state;
    for (int c = 0; c < 256; c++) {
        const float v = af_f32_from_e4m3((uint8_t)c);
        check_round(v);
        if (isnan(v))
            continue;
        CHECK_MSG(af_fp8_code(v) == c, "code %d does not come back", c);
        const float next =
            (c & 0x7f) == 0x7e ? copysignf(480, v) : af_f32_from_e4m3((uint8_t)(c + 1));
        const float middle = (v + next) / 2;
        check_round(middle);
        check_round(nextafterf(middle, 0));
        check_round(nextafterf(middle, copysignf(INFINITY, middle)));
    }
    for (uint64_t i = 0; i < 300000; i++) {
        const uint32_t bits = (uint32_t)(af_rng_f64(3, 0, i) * 0x1p32);
        float x;
        memcpy(&x, &bits, sizeof x);
        check_round(x);
        check_round((float)(8 * normal(1, i)));
    }
}

static void test_scales(void **state)
{
    (void)state;
    const float row[] = {0.5f, -3.0f, 2.0f}, bad[] = {1, NAN, 2}, far[] = {1, -INFINITY};
    assert_true(af_fp8_largest(row, 3, 0) == 3.0f && af_fp8_largest(row, 3, 7) == 7.0f);
    assert_true(isnan(af_fp8_scale_of(af_fp8_largest(bad, 3, 0)).scale));
    assert_true(isnan(af_fp8_scale_of(af_fp8_largest(far, 2, 0)).scale));
    const af_fp8_scale zero = af_fp8_scale_of(0x1p-101f), s = af_fp8_scale_of(3);
    assert_true(zero.scale == 0 && zero.inverse == 0);
    assert_true(s.scale == 0x1p-7f && s.inverse == 0x1p7f);
    assert_true(af_fp8_scale_of(448).scale == 1 && af_fp8_scale_of(449).scale == 2);
    assert_true(af_fp8_scale_of(0x1.fffffep127f).inverse == 0x1p-120f &&
                af_fp8_scale_of(0x1p-100f).scale == 0x1p-108f);
    float x[] = {3, -3, 0.001f, 0};
    af_fp8_round_row(x, 4, s);
    assert_true(x[0] == 3 && x[1] == -3 && x[3] == 0);
    assert_true(fabsf(x[2] - 0.001f) <= 0.001f / 16);
}

/* ---- the two products ---- */

enum { ROWS = 7, IN = 45, OUT_A = 9, OUT_B = 14, OUT = OUT_A + OUT_B, RANK = 3 };

typedef struct product_case {
    af_dtype type, weights;
    double limit;
} product_case;

typedef struct product {
    af_graph *g;
    af_device *d;
    af_tensor *x, *w[2], *bias, *a, *b, *y, *mix;
} product;

/* Parameters are wider than bf16. */
static af_dtype param_type(af_dtype t) { return t == AF_DTYPE_BF16 ? AF_DTYPE_F32 : t; }

static product record(const product_case *c, int threads, bool twins)
{
    product p = {0};
    af_error err = {0};
    CHECK_OK(af_graph_new(&p.g, &err), err);
    CHECK_OK(af_cpu_open(&p.d, threads, &err), err);
    ((af_cpu *)p.d)->twins_only = twins;
    ((af_cpu *)p.d)->poison = true;
    p.x = af_graph_param(p.g, "x", param_type(c->type), 2, (int64_t[]){ROWS, IN});
    p.w[0] = af_graph_weight(p.g, "q", c->weights, 2, (int64_t[]){OUT_A, IN});
    p.w[1] = af_graph_weight(p.g, "k", c->weights, 2, (int64_t[]){OUT_B, IN});
    p.bias = af_graph_weight(p.g, "bias", c->type, 1, (int64_t[]){OUT_B});
    p.a = af_graph_param(p.g, "a", AF_DTYPE_F32, 2, (int64_t[]){RANK, IN});
    p.b = af_graph_param(p.g, "b", AF_DTYPE_F32, 1, (int64_t[]){OUT_B * RANK});
    p.y = af_linear(p.g, af_cast(p.g, p.x, c->type),
                    &(af_linear_opts){.weight = {p.w[0], p.w[1]},
                                      .bias = {NULL, p.bias},
                                      .pieces = 2,
                                      .a = p.a,
                                      .b = p.b,
                                      .part[0] = {OUT_A, OUT_B, 0, RANK, 0.5f},
                                      .parts = 1,
                                      .fp8 = true});
    p.mix = af_graph_input(p.g, "mix", c->type, 2, (int64_t[]){ROWS, OUT});
    af_graph_output(p.g, p.y);
    af_graph_backward(p.g, af_sum_all(p.g, af_mul(p.g, p.y, p.mix)));
    CHECK_OK(af_graph_prepare(p.g, p.d, &err), err);
    af_tensor *const fill[] = {p.x, p.w[0], p.w[1], p.bias, p.a, p.b, p.mix};
    for (size_t k = 0; k < AF_LEN(fill); k++)
        for (int64_t i = 0; i < af_count(fill[k]); i++) /* columns of very different sizes */
            af_st(fill[k], i,
                  af_f32_from_bf16(af_bf16_from_f32(
                      (float)ldexp(normal(40 + k, (uint64_t)i), (int)(i % 11) - 5))));
    CHECK_OK(af_graph_run(p.g, AF_RUN_GRAD, &err), err);
    return p;
}

/* n values from `first` on, `step` apart, as codes and a scale. */
static double encode(const double *v, int n, int step, double *q)
{
    float most = 0;
    for (int i = 0; i < n; i++)
        most = fmaxf(most, fabsf((float)v[i * step]));
    float s = 0x1p-100f;
    while (448 * s < most)
        s *= 2;
    for (int i = 0; i < n; i++) {
        const float scaled = (float)v[i * step] / s;
        q[i * step] = af_f32_from_e4m3(af_e4m3_from_f32(clamped(scaled)));
    }
    return s;
}

static double distance(const af_tensor *t, const double *want, double *size)
{
    double e = 0;
    *size = 0;
    for (int64_t i = 0; i < af_count(t); i++) {
        e += (af_ld(t, i) - want[i]) * (af_ld(t, i) - want[i]);
        *size += want[i] * want[i];
    }
    return sqrt(e);
}

static void load(const af_tensor *t, double *out) { af_ld_row(t, 0, af_count(t), out); }

static void want_y(const product *p, double *y)
{
    static double x[ROWS * IN], w[OUT * IN], bias[OUT_B], a[RANK * IN], b[OUT_B * RANK];
    static double qx[ROWS * IN], qw[OUT * IN], sx[ROWS], sw[OUT];
    load(p->x, x), load(p->w[0], w), load(p->w[1], w + OUT_A * IN), load(p->bias, bias);
    load(p->a, a), load(p->b, b);
    for (int n = 0; n < ROWS; n++)
        sx[n] = encode(x + n * IN, IN, 1, qx + n * IN);
    for (int o = 0; o < OUT; o++)
        sw[o] = encode(w + o * IN, IN, 1, qw + o * IN);
    for (int n = 0; n < ROWS; n++)
        for (int o = 0; o < OUT; o++) {
            double sum = 0;
            for (int i = 0; i < IN; i++)
                sum += qx[n * IN + i] * qw[o * IN + i];
            sum *= sx[n] * sw[o];
            for (int r = 0; r < RANK && o >= OUT_A; r++) {
                double xa = 0;
                for (int i = 0; i < IN; i++)
                    xa += 0.5 * x[n * IN + i] * a[r * IN + i];
                sum += xa * b[(o - OUT_A) * RANK + r];
            }
            y[n * OUT + o] = sum + (o >= OUT_A ? bias[o - OUT_A] : 0);
        }
}

static void want_dx(const product *p, double *dx)
{
    static double dy[ROWS * OUT], w[OUT * IN], a[RANK * IN], b[OUT_B * RANK];
    static double qy[ROWS * OUT], qw[OUT * IN], sy[ROWS], sw[IN];
    load(p->mix, dy), load(p->w[0], w), load(p->w[1], w + OUT_A * IN);
    load(p->a, a), load(p->b, b);
    for (int n = 0; n < ROWS; n++)
        sy[n] = encode(dy + n * OUT, OUT, 1, qy + n * OUT);
    for (int i = 0; i < IN; i++)
        sw[i] = encode(w + i, OUT, IN, qw + i);
    for (int n = 0; n < ROWS; n++)
        for (int i = 0; i < IN; i++) {
            double sum = 0;
            for (int o = 0; o < OUT; o++)
                sum += qy[n * OUT + o] * qw[o * IN + i];
            sum *= sy[n] * sw[i];
            for (int r = 0; r < RANK; r++) {
                double g = 0;
                for (int o = 0; o < OUT_B; o++)
                    g += 0.5 * dy[n * OUT + OUT_A + o] * b[o * RANK + r];
                sum += g * a[r * IN + i];
            }
            dx[n * IN + i] = sum;
        }
}

/* Twins round only at the end; f32 sums of the fast version lose a little, bf16 rounds results to
 * 2^-9 and the adapter's low-rank values, too. */
static void test_products(void **state)
{
    (void)state;
    static const product_case cases[] = {
        {AF_DTYPE_F32, AF_DTYPE_F32, 1e-6},   {AF_DTYPE_F32, AF_DTYPE_BF16, 1e-6},
        {AF_DTYPE_BF16, AF_DTYPE_BF16, 1e-2}, {AF_DTYPE_F64, AF_DTYPE_F32, 1e-7},
        {AF_DTYPE_F32, AF_DTYPE_E4M3, 1e-6},
    };
    double y[ROWS * OUT], dx[ROWS * IN], size;
    for (size_t k = 0; k < AF_LEN(cases); k++)
        for (int run = 0; run < 3; run++) {
            const product p = record(&cases[k], run == 2 ? 3 : 1, run == 0);
            want_y(&p, y);
            double e = distance(p.y, y, &size);
            CHECK_MSG(e <= cases[k].limit * sqrt(size), "case %zu, run %d: y is %g off", k, run,
                      e / sqrt(size));
            want_dx(&p, dx);
            e = distance(p.x->grad, dx, &size);
            CHECK_MSG(e <= cases[k].limit * sqrt(size), "case %zu, run %d: dx is %g off", k, run,
                      e / sqrt(size));
            af_graph_free(p.g);
            af_device_close(p.d);
        }
}

/* A row with a NaN or an infinity must not become a number, and only that row. */
static void test_not_finite(void **state)
{
    (void)state;
    const product p = record(&(product_case){AF_DTYPE_F32, AF_DTYPE_F32, 0}, 1, true);
    af_error err = {0};
    af_st(p.x, 2 * IN + 3, INFINITY);
    af_st(p.b, 0, 0);
    CHECK_OK(af_graph_run(p.g, AF_RUN_FORWARD, &err), err);
    for (int n = 0; n < ROWS; n++)
        CHECK_MSG(isfinite(af_ld(p.y, n * OUT)) == (n != 2), "row %d", n);
    af_graph_free(p.g);
    af_device_close(p.d);
}

/* ---- gradients of adapters around it ---- */

static void fill_frozen(gradcheck *c, af_tensor *t)
{
    if (strcmp(t->name, "frozen") == 0)
        gc_fill(c, t, -1, 1);
}

/* The second adapter feels the first one only through x W, whose gradient is rounded: the first is
 * checked behind a layer in FP8, the last one directly. */
static af_tensor *build_adapter(gradcheck *c)
{
    const int64_t I = c->shape[0], O = c->shape[1], r = c->shape[2];
    af_tensor *x = af_graph_input(c->g, "frozen", AF_DTYPE_F64, 2, (int64_t[]){5, I});
    af_tensor *w = af_graph_input(c->g, "frozen", AF_DTYPE_F64, 2, (int64_t[]){O, I});
    return af_linear(c->g, x,
                     &(af_linear_opts){.weight = {w},
                                       .pieces = 1,
                                       .a = gc_param2(c, r, I),
                                       .b = gc_param(c, 1, (int64_t[]){O * r}),
                                       .part[0] = {0, O, 0, (int)r, 2.0f},
                                       .parts = 1,
                                       .fp8 = true});
}

static void test_adapter_gradients(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{7, 5, 2}, {33, 17, 4}, {64, 3, 1}};
    gradcheck_shapes("an adapter on FP8 weights", build_adapter, (gradcheck){.fill = fill_frozen},
                     shapes, AF_LEN(shapes));
}

/* ---- fast version and threads ---- */

static af_tensor *build_fast(fastcheck *c)
{
    const int64_t I = c->shape[1], O = c->shape[2];
    af_tensor *x = af_cast(
        c->g, af_graph_param(c->g, "x", AF_DTYPE_F32, 2, (int64_t[]){c->shape[0], I}), c->type);
    af_tensor *w = af_graph_input(c->g, "w", AF_DTYPE_BF16, 2, (int64_t[]){O, I});
    return af_linear(c->g, x,
                     &(af_linear_opts){.weight = {w},
                                       .pieces = 1,
                                       .a = fc_param(c, "a", 4, I),
                                       .b = fc_param(c, "b", 0, O * 4),
                                       .part[0] = {0, O, 0, 4, 0.5f},
                                       .parts = 1,
                                       .fp8 = true});
}

static void test_fast_and_threads(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{5, 33, 17}, {130, 96, 80}, {67, 320, 257}};
    for (size_t i = 0; i < AF_LEN(shapes); i++)
        for (int k = 0; k < 2; k++)
            fastcheck_run(
                "linear in FP8", build_fast,
                (fastcheck){.type = k ? AF_DTYPE_BF16 : AF_DTYPE_F32, .shape = shapes[i]});
}

/* ---- refusals ---- */

static void test_trained_weights(void **state)
{
    (void)state;
    af_graph *g;
    af_error err = {0};
    CHECK_OK(af_graph_new(&g, &err), err);
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){2, 8});
    af_tensor *w = af_graph_param(g, "w", AF_DTYPE_F32, 2, (int64_t[]){4, 8});
    af_linear(g, x, &(af_linear_opts){.weight = {w}, .pieces = 1, .fp8 = true});
    assert_int_equal(af_graph_status(g, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "'w' is trained"), "%s", err.msg);
    af_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding),          cmocka_unit_test(test_scales),
        cmocka_unit_test(test_products),          cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_adapter_gradients), cmocka_unit_test(test_fast_and_threads),
        cmocka_unit_test(test_trained_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
