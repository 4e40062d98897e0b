/* test_values_general.c - forward values of the general ops against numbers computed by PyTorch in
 * float64, and what gradient checks cannot see: dropout's statistics, masks, live rows, types. */
#include "test.h"

#include "backend/cpu/cpu.h"
#include "ops/fakequant/fake_float.h"
#include "worse.h"

#include <math.h>

static af_device *cpu(void)
{
    af_error err = {0};
    af_device *d;
    CHECK_OK(af_cpu_open(&d, 2, &err), err);
    ((af_cpu *)d)->twins_only = true;
    return d;
}

static af_graph *graph(void)
{
    af_error err = {0};
    af_graph *g;
    CHECK_OK(af_graph_new(&g, &err), err);
    return g;
}

static void prepare(af_graph *g, af_device *d)
{
    af_error err = {0};
    CHECK_OK(af_graph_prepare(g, d, &err), err);
}

static void run(af_graph *g, int what)
{
    af_error err = {0};
    CHECK_OK(af_graph_run(g, what, &err), err);
}

static void fill(af_tensor *t, const double *v)
{
    for (int64_t i = 0; i < af_count(t); i++)
        af_st(t, i, v[i]);
}

static void expect(const char *why, const af_tensor *t, const double *want, double limit)
{
    for (int64_t i = 0; i < af_count(t); i++)
        CHECK_MSG(fabs(af_ld(t, i) - want[i]) <= limit, "%s: element %d is %.17g, not %.17g", why,
                  (int)i, af_ld(t, i), want[i]);
}

static af_tensor *softcap2(af_graph *g, af_tensor *x) { return af_softcap(g, x, 2); }
static af_tensor *clip2(af_graph *g, af_tensor *x) { return af_clip(g, x, 2); }
static af_tensor *norm(af_graph *g, af_tensor *x)
{
    af_tensor *w[5], *b[5];
    for (int i = 0; i < 5; i++) {
        w[i] = af_graph_constant(g, AF_DTYPE_F64, 1, (int64_t[]){1}, i + 1);
        b[i] = af_graph_constant(g, AF_DTYPE_F64, 1, (int64_t[]){1}, 0.1 * (i + 1));
    }
    return af_layernorm(g, x, af_concat(g, w, 5, 0), af_concat(g, b, 5, 0), 1e-5);
}

static void test_functions_have_the_values_of_pytorch(void **state)
{
    (void)state;
    static const double x5[] = {-2.5, -0.3, 0.0, 0.7, 3.1}, x3[] = {0.4, 2.2, 5.0};
    static const struct {
        const char *why;
        af_tensor *(*op)(af_graph *, af_tensor *);
        double want[5];
    } cases[] = {
        {"neg", af_neg, {2.5, 0.3, 0.0, -0.7, -3.1}},
        {"exp",
         af_exp,
         {0.0820849986238988, 0.740818220681718, 1, 2.01375270747048, 22.1979512814416}},
        {"tanh",
         af_tanh,
         {-0.98661429815143, -0.291312612451591, 0, 0.604367777117163, 0.9959493592219}},
        {"sigmoid",
         af_sigmoid,
         {0.0758581800212435, 0.425557483188341, 0.5, 0.668187772168166, 0.956892745058914}},
        {"relu", af_relu, {0, 0, 0, 0.7, 3.1}},
        {"gelu",
         af_gelu,
         {-0.0155241633144404, -0.114626573343314, 0, 0.530625443443849, 3.09700043003902}},
        {"gelu_tanh",
         af_gelu_tanh,
         {-0.0150842660899986, -0.114629076457241, 0, 0.530570134705117, 3.09737338976945}},
        {"silu",
         af_silu,
         {-0.189645450053109, -0.127667244956502, 0, 0.467731440517716, 2.96636750968263}},
        {"softcap",
         softcap2,
         {-1.69656727991503, -0.297770067246636, 0, 0.672751088672664, 1.82757098023566}},
        {"clip", clip2, {-2, -0.3, 0, 0.7, 2}},
        {"softmax",
         af_softmax,
         {0.00315291865044881, 0.0284551333829182, 0.038410412417682, 0.0773490720011648,
          0.852632463547786}},
        {"log_softmax",
         af_log_softmax,
         {-5.75942669943432, -3.55942669943432, -3.25942669943432, -2.55942669943432,
          -0.159426699434323}},
        {"layernorm",
         norm,
         {-1.39814926419987, -0.354870097851803, -0.0329220587110823, 1.50974019570361,
          8.54561641885114}},
        {"log", af_log, {-0.916290731874155, 0.7884573603642703, 1.6094379124341003}},
        {"sqrt", af_sqrt, {0.6324555320336759, 1.4832396974191326, 2.23606797749979}},
    };
    af_device *d = cpu();
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_graph *g = graph();
        const bool positive = cases[i].op == af_log || cases[i].op == af_sqrt;
        af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F64, 1, (int64_t[]){positive ? 3 : 5});
        af_tensor *y = cases[i].op(g, x);
        af_graph_output(g, y);
        prepare(g, d);
        fill(x, positive ? x3 : x5);
        run(g, AF_RUN_FORWARD);
        expect(cases[i].why, y, cases[i].want, 2e-13);
        af_graph_free(g);
    }
    af_device_close(d);
}

static void test_losses_have_the_values_of_pytorch(void **state)
{
    (void)state;
    static const double x[] = {-2.5, -0.3, 0.0, 0.7, 3.1, -1.2, 1, 2, 3, 0, 0, 0};
    static const double t[] = {0.2, 0.5, 0.3, 0.0, 0.9, 0.1};
    static const int32_t labels[] = {2, 0, -100, 1}, none[] = {-100, -100, -100, -100};
    af_device *d = cpu();
    af_graph *g = graph();
    af_tensor *px = af_graph_input(g, "x", AF_DTYPE_F64, 2, (int64_t[]){2, 3});
    af_tensor *pt = af_graph_input(g, "t", AF_DTYPE_F64, 2, (int64_t[]){2, 3});
    af_tensor *x4 = af_graph_input(g, "x4", AF_DTYPE_F64, 2, (int64_t[]){4, 3});
    af_tensor *l4 = af_graph_input(g, "l", AF_DTYPE_I32, 1, (int64_t[]){4});
    af_tensor *y[] = {
        af_mse(g, px, pt),
        af_l1(g, px, pt),
        af_huber(g, px, pt, 0.7),
        af_bce_with_logits(g, px, pt),
        af_kl(g, af_log_softmax(g, px), pt),
        af_cross_entropy(g, x4, l4, 0),
        af_cross_entropy(g, x4, l4, 0.1),
    };
    static const double want[] = {2.5066666666666673, 1.3333333333333333,  0.7016666666666667,
                                  0.6361541072471808, 0.21244692716580393, 1.3994140434852465,
                                  1.4249695990408022};
    for (size_t i = 0; i < AF_LEN(y); i++)
        af_graph_output(g, y[i]);
    prepare(g, d);
    fill(px, x);
    fill(pt, t);
    fill(x4, x);
    memcpy(l4->data, labels, sizeof labels);
    run(g, AF_RUN_FORWARD);
    for (size_t i = 0; i < AF_LEN(y); i++)
        expect("loss", y[i], &want[i], 1e-14);
    memcpy(l4->data, none, sizeof none);
    run(g, AF_RUN_FORWARD);
    expect("all rows ignored", y[5], &(double){0}, 0);
    ((int32_t *)l4->data)[1] = 3; /* no such class */
    run(g, AF_RUN_FORWARD);
    assert_true(isnan(af_ld(y[5], 0)));
    af_graph_free(g);
    af_device_close(d);
}

static void test_fake_quant_values_and_straight_through(void **state)
{
    (void)state;
    static const double x[] = {-1.0, -0.33, 0.02, 0.5, 0.77, 1.9};
    static const double asym[] = {-0.9666666388511658, -0.3866666555404663, 0.0,
                                  0.5799999833106995,  0.7733333110809326,  1.9333332777023315};
    static const double sym[] = {-1.0857142210006714, -0.27142855525016785, 0.0,
                                 0.5428571105003357,  0.8142856359481812,   1.8999998569488525};
    static const double tie[] = {-5.5, 9.5, 3.0, 0, 0, 0};
    af_device *d = cpu();
    for (int symmetric = 0; symmetric < 2; symmetric++) {
        af_graph *g = graph();
        af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F64, 2, (int64_t[]){2, 3});
        af_tensor *whole = af_fake_quant(g, p, 4, 0, symmetric);
        af_tensor *rows = af_fake_quant(g, p, 8, -1, symmetric);
        af_graph_output(g, whole);
        af_graph_output(g, rows);
        af_graph_backward(g, af_sum_all(g, whole));
        prepare(g, d);
        fill(p, x);
        run(g, AF_RUN_GRAD);
        expect("one grid", whole, symmetric ? sym : asym, 1e-6);
        for (int i = 0; i < 6; i++) /* a row's grid has 255 or 256 steps over its range */
            assert_true(fabs(af_ld(rows, i) - x[i]) < 3.8 / 254);
        fill(p, tie); /* asymmetric: 9.5 rounds to 10, beyond the grid: clipped to 9 */
        memset(af_tensor_gradient(p)->data, 0, af_tensor_bytes(p));
        run(g, AF_RUN_GRAD);
        assert_true(af_ld(af_tensor_gradient(p), 0) == 1);
        assert_true(af_ld(af_tensor_gradient(p), 1) == (symmetric ? 1 : 0));
        if (!symmetric)
            assert_true(af_ld(whole, 1) == 9);
        af_graph_free(g);
    }
    af_device_close(d);
}

/* x times itself as a constant: the gradient is x, not 2 x. */
static void test_no_gradient_passes_detach(void **state)
{
    (void)state;
    static const double x[] = {-1.0, 0.5, 3.0}, square[] = {1.0, 0.25, 9.0};
    af_device *d = cpu();
    af_graph *g = graph();
    af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F64, 1, (int64_t[]){3});
    af_tensor *y = af_mul(g, p, af_detach(g, p));
    af_graph_output(g, y);
    af_graph_backward(g, af_sum_all(g, y));
    prepare(g, d);
    fill(p, x);
    run(g, AF_RUN_GRAD);
    expect("detach", y, square, 0);
    expect("its gradient", af_tensor_gradient(p), x, 0);
    af_graph_free(g);
    af_device_close(d);
}

/* transformers' WeightQuant of these weights; its gradient passes unchanged. */
static void test_ternary_values_and_straight_through(void **state)
{
    (void)state;
    static const double w[] = {-1.0, -0.33, 0.02, 0.5, 0.77, 1.9};
    static const double want[] = {-0.7533333, 0, 0, 0.7533333, 0.7533333, 0.7533333};
    af_device *d = cpu();
    af_graph *g = graph();
    af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F64, 2, (int64_t[]){2, 3});
    af_tensor *y = af_ternary(g, p, AF_DTYPE_F64);
    af_graph_output(g, y);
    af_graph_backward(g, af_sum_all(g, af_mul(g, y, y)));
    prepare(g, d);
    fill(p, w);
    run(g, AF_RUN_GRAD);
    expect("ternary", y, want, 1e-6);
    for (int i = 0; i < 6; i++)
        assert_true(fabs(af_ld(af_tensor_gradient(p), i) - 2 * want[i]) < 1e-6);
    af_graph_free(g);
    af_device_close(d);
}

enum { FLOATS = 256, ROW = 64 };

static void float_values(double *x)
{
    static const double ties[] = {6, -5, 3.5, -2.5, 1.75, -1.25, 0.75, -0.25};
    for (int i = 0; i < FLOATS; i++)
        x[i] = ((i * 7919 + 104729) % 2001 - 1000) / 1000.0 * ldexp(1, -(i / 16 % 5));
    memcpy(x, ties, sizeof ties);
}

/* torchao's bits (make_fake_float.py): nvfp4, mxfp4, fp8, fp8 of bf16; the gradient is dy. */
static void test_small_floats_are_torchaos(void **state)
{
    (void)state;
    static const af_qat_type type[] = {AF_QAT_NVFP4, AF_QAT_MXFP4, AF_QAT_FP8, AF_QAT_FP8};
    char path[512];
    double x[FLOATS];
    float want[4][FLOATS];
    float_values(x);
    snprintf(path, sizeof path, "%s/ops/fake-float.f32", golden_dir());
    FILE *f = fopen(path, "rb");
    CHECK_MSG(f && fread(want, 1, sizeof want, f) == sizeof want, "cannot read %s", path);
    fclose(f);
    for (int k = 0; k < 8; k++) {
        af_device *d = cpu();
        ((af_cpu *)d)->twins_only = k & 1;
        af_graph *g = graph();
        af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F32, 2, (int64_t[]){FLOATS / ROW, ROW});
        af_tensor *v = k / 2 == 3 ? af_cast(g, p, AF_DTYPE_BF16) : p;
        af_tensor *y = af_fake_float(g, v, type[k / 2], NULL, af_tensor_dtype(v));
        af_graph_output(g, y);
        af_graph_backward(g, af_sum_all(g, y));
        prepare(g, d);
        fill(p, x);
        run(g, AF_RUN_GRAD);
        for (int i = 0; i < FLOATS; i++)
            CHECK_MSG((float)af_ld(y, i) == want[k / 2][i], "case %d, %d: %.9g, not %.9g", k, i,
                      af_ld(y, i), (double)want[k / 2][i]);
        assert_true(af_ld(af_tensor_gradient(p), 0) == 1);
        af_graph_free(g);
        af_device_close(d);
    }
}

/* Zeros stay zeros, where torchao has NaN; NaN shows; rows past `rows` have no part in the scale
 * of all: the largest value is among them, and is clipped to that of the others. */
static void test_small_floats_of_zeros_and_some_rows(void **state)
{
    (void)state;
    double x[FLOATS] = {0};
    for (int k = 0; k < 6; k++) {
        af_device *d = cpu();
        ((af_cpu *)d)->twins_only = k & 1;
        af_graph *g = graph();
        af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F32, 2, (int64_t[]){FLOATS / ROW, ROW});
        af_tensor *rows = af_graph_input(g, "rows", AF_DTYPE_I32, 1, (int64_t[]){1});
        af_tensor *y = af_fake_float(g, p, (af_qat_type)(AF_QAT_NVFP4 + k / 2), k < 2 ? rows : NULL,
                                     AF_DTYPE_F32);
        af_graph_output(g, y);
        prepare(g, d);
        if (k < 2)
            *(int32_t *)rows->data = 3;
        memset(x, 0, sizeof x);
        fill(p, x);
        run(g, AF_RUN_FORWARD);
        for (int i = 0; i < FLOATS; i++)
            assert_true(af_ld(y, i) == 0);
        float_values(x);
        x[FLOATS - 1] = 1000;
        x[FLOATS - ROW] = NAN;
        fill(p, x);
        run(g, AF_RUN_FORWARD);
        CHECK_MSG(isnan(af_ld(y, FLOATS - ROW)), "case %d", k);
        if (k < 2)
            CHECK_MSG(fabs(af_ld(y, 0) - 6) < 1e-5 && fabs(af_ld(y, FLOATS - 1) - 6) < 1e-5,
                      "case %d: %g and %g", k, af_ld(y, 0), af_ld(y, FLOATS - 1));
        af_graph_free(g);
        af_device_close(d);
    }
}

/* In f16 a small scale of fp8 is 0: zeros, too, and not their quotient. */
static void test_small_values_of_fp8_in_f16(void **state)
{
    (void)state;
    double x[FLOATS] = {1e-6, 0, -2e-6};
    for (int k = 0; k < 2; k++) {
        af_device *d = cpu();
        ((af_cpu *)d)->twins_only = k & 1;
        af_graph *g = graph();
        af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F32, 2, (int64_t[]){FLOATS / ROW, ROW});
        af_tensor *y =
            af_fake_float(g, af_cast(g, p, AF_DTYPE_F16), AF_QAT_FP8, NULL, AF_DTYPE_F32);
        af_graph_output(g, y);
        prepare(g, d);
        fill(p, x);
        run(g, AF_RUN_FORWARD);
        for (int i = 0; i < FLOATS; i++)
            CHECK_MSG(af_ld(y, i) == 0, "case %d, %d: %g", k, i, af_ld(y, i));
        af_graph_free(g);
        af_device_close(d);
    }
}

enum { WIDE = 20000 };

static void test_dropout_keeps_the_mean_and_changes_every_run(void **state)
{
    (void)state;
    af_device *d = cpu();
    af_graph *g = graph();
    af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F32, 1, (int64_t[]){WIDE});
    af_tensor *a = af_dropout(g, p, 0.3, 1), *b = af_dropout(g, p, 0.3, 2);
    af_graph_output(g, a);
    af_graph_output(g, b);
    af_graph_backward(g, af_sum_all(g, a));
    prepare(g, d);
    for (int i = 0; i < WIDE; i++)
        af_st(p, i, 1);
    af_graph_set_seed(g, 77);
    float first[WIDE], second[WIDE];
    for (int pass = 0; pass < 3; pass++) {
        run(g, AF_RUN_GRAD);
        int kept = 0, same = 0;
        for (int i = 0; i < WIDE; i++) {
            const double v = af_ld(a, i);
            assert_true(v == 0 || fabs(v - 1 / 0.7) < 1e-6);
            kept += v != 0;
            same += (v != 0) == (af_ld(b, i) != 0);
            if (pass == 0) /* the gradient saw the same mask */
                assert_true(af_ld(af_tensor_gradient(p), i) == v);
        }
        assert_true(abs(kept - 14000) < 5 * 65); /* five standard deviations */
        assert_true(abs(same - 11600) < 5 * 70); /* two streams: 0.7^2 + 0.3^2 */
        memcpy(pass == 0 ? first : second, a->data, sizeof first);
        if (pass == 1) {
            assert_memory_not_equal(first, second, sizeof first);
            af_graph_set_seed(g, 77); /* from the start again */
        }
    }
    assert_memory_equal(first, second, sizeof first);
    af_graph_free(g);
    af_device_close(d);
}

static void test_dropout_is_the_identity_without_a_backward_pass(void **state)
{
    (void)state;
    af_device *d = cpu();
    af_graph *g = graph();
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 1, (int64_t[]){5});
    af_tensor *y = af_dropout(g, x, 0.9, 1);
    af_graph_output(g, y);
    prepare(g, d);
    fill(x, (double[]){1, 2, 3, 4, 5});
    run(g, AF_RUN_FORWARD);
    expect("dropout at rest", y, (double[]){1, 2, 3, 4, 5}, 0);
    af_graph_free(g);
    af_device_close(d);
}

/* NEFTune: strength by the row's own sequence, another noise each run, none in evaluation, and the
 * gradient passes unchanged. */
static void test_noise_is_as_strong_as_its_sequence_is_short(void **state)
{
    (void)state;
    enum { N = 90, D = 64 };
    af_device *d = cpu();
    af_graph *g = graph();
    af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F32, 2, (int64_t[]){N, D});
    af_tensor *bounds = af_graph_input(g, "b", AF_DTYPE_I32, 1, (int64_t[]){4});
    af_tensor *y = af_neftune_noise(g, p, bounds, 5, 1);
    af_graph_output(g, y);
    af_graph_backward(g, af_sum_all(g, y));
    prepare(g, d);
    for (int i = 0; i < N * D; i++)
        af_st(p, i, 1);
    memcpy(bounds->data, (int32_t[]){0, 16, 16, 80}, 16);
    af_graph_set_seed(g, 3);
    float first[N * D];
    for (int pass = 0; pass < 2; pass++) {
        run(g, AF_RUN_GRAD);
        double most[3] = {0}, sum = 0;
        for (int i = 0; i < N * D; i++) {
            const int part = i / D < 16 ? 0 : i / D < 80 ? 1 : 2;
            most[part] = worse(most[part], fabs(af_ld(y, i) - 1));
            sum += af_ld(y, i) - 1;
            if (pass == 0)
                assert_true(af_ld(af_tensor_gradient(p), i) == 1);
        }
        const double strong = 5 / sqrt(16.0 * D), weak = 5 / sqrt(64.0 * D);
        assert_true(most[0] <= strong * 1.000001 && most[0] > strong * 0.98);
        assert_true(most[1] <= weak * 1.000001 && most[1] > weak * 0.98);
        assert_true(most[2] == 0);
        assert_true(fabs(sum) < 5 * strong * sqrt(N * D / 3.0));
        if (pass == 0)
            memcpy(first, y->data, sizeof first);
        else
            assert_memory_not_equal(first, y->data, sizeof first);
    }
    af_graph_set_training(g, false);
    run(g, AF_RUN_FORWARD);
    for (int i = 0; i < N * D; i++)
        assert_true(af_ld(y, i) == 1);
    af_graph_free(g);
    af_device_close(d);
}

static void test_live_rows_leave_the_rest_out(void **state)
{
    (void)state;
    enum { N = 4, D = 4, LIVE = 3 }; /* as wide as long: columns must not be taken for rows */
    af_device *d = cpu();
    af_graph *g = graph();
    af_graph_set_rows(g, N);
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F64, 2, (int64_t[]){N, D});
    af_tensor *t = af_graph_input(g, "t", AF_DTYPE_F64, 2, (int64_t[]){N, D});
    af_tensor *w = af_graph_param(g, "w", AF_DTYPE_F64, 2, (int64_t[]){D, D});
    af_tensor *b = af_graph_param(g, "b", AF_DTYPE_F64, 1, (int64_t[]){D});
    af_tensor *y = af_add(g, af_matmul(g, x, w, AF_MATMUL_NN), b);
    af_tensor *loss = af_mse(g, y, t), *mean = af_mean_all(g, y);
    af_graph_output(g, mean);
    af_graph_backward(g, loss);
    prepare(g, d);
    for (int i = 0; i < N * D; i++) {
        af_st(w, i, 0.1 * i);
        af_st(x, i, i < LIVE * D ? 0.3 * i - 1 : NAN);
        af_st(t, i, i < LIVE * D ? 1 : NAN);
    }
    af_graph_set_live_rows(g, LIVE);
    run(g, AF_RUN_GRAD);
    double want = 0, want_mean = 0, db[D] = {0}, dw[D * D] = {0};
    for (int r = 0; r < LIVE; r++)
        for (int c = 0; c < D; c++) {
            double v = 0;
            for (int k = 0; k < D; k++)
                v += af_ld(x, r * D + k) * af_ld(w, k * D + c);
            want += (v - 1) * (v - 1) / (LIVE * D);
            want_mean += v / (LIVE * D);
            const double dy = 2 * (v - 1) / (LIVE * D);
            db[c] += dy;
            for (int k = 0; k < D; k++)
                dw[k * D + c] += af_ld(x, r * D + k) * dy;
        }
    expect("loss", loss, &want, 1e-12);
    expect("mean", mean, &want_mean, 1e-12);
    expect("db", af_tensor_gradient(b), db, 1e-12);
    expect("dw", af_tensor_gradient(w), dw, 1e-12);
    af_graph_free(g);
    af_device_close(d);
}

static void test_half_types_round_once(void **state)
{
    (void)state;
    af_device *d = cpu();
    static const af_dtype types[] = {AF_DTYPE_BF16, AF_DTYPE_F16};
    for (size_t k = 0; k < AF_LEN(types); k++) {
        af_graph *g = graph();
        af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F32, 2, (int64_t[]){3, 5});
        af_tensor *h = af_cast(g, p, types[k]);
        af_tensor *y = af_matmul(g, h, h, AF_MATMUL_NT), *f = af_cast(g, y, AF_DTYPE_F32);
        af_graph_output(g, y);
        af_graph_backward(g, af_sum_all(g, f));
        prepare(g, d);
        for (int i = 0; i < 15; i++)
            af_st(p, i, 0.01 * (i * i % 23) - 0.07);
        run(g, AF_RUN_GRAD);
        for (int r = 0; r < 3; r++)
            for (int c = 0; c < 3; c++) {
                double sum = 0;
                uint16_t bits, want;
                for (int i = 0; i < 5; i++) {
                    af_store_f64(&bits, types[k], 0, af_ld(p, r * 5 + i));
                    const double a = af_load_f64(&bits, types[k], 0);
                    af_store_f64(&bits, types[k], 0, af_ld(p, c * 5 + i));
                    sum += a * af_load_f64(&bits, types[k], 0);
                }
                af_store_f64(&want, types[k], 0, sum);
                assert_int_equal(((uint16_t *)y->data)[r * 3 + c], want);
            }
        assert_true(isfinite(af_ld(af_tensor_gradient(p), 0)) &&
                    af_ld(af_tensor_gradient(p), 0) != 0);
        af_graph_free(g);
    }
    af_device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions_have_the_values_of_pytorch),
        cmocka_unit_test(test_losses_have_the_values_of_pytorch),
        cmocka_unit_test(test_fake_quant_values_and_straight_through),
        cmocka_unit_test(test_no_gradient_passes_detach),
        cmocka_unit_test(test_ternary_values_and_straight_through),
        cmocka_unit_test(test_small_floats_are_torchaos),
        cmocka_unit_test(test_small_floats_of_zeros_and_some_rows),
        cmocka_unit_test(test_small_values_of_fp8_in_f16),
        cmocka_unit_test(test_dropout_keeps_the_mean_and_changes_every_run),
        cmocka_unit_test(test_dropout_is_the_identity_without_a_backward_pass),
        cmocka_unit_test(test_noise_is_as_strong_as_its_sequence_is_short),
        cmocka_unit_test(test_live_rows_leave_the_rest_out),
        cmocka_unit_test(test_half_types_round_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
