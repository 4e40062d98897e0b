/* test_head_rows.c - the head with values per row and weights per row: against plain sums over the
 * vocabulary, finite differences, and runs whose backward pass comes later. */
#include "normal.h"
#include "test.h"

#include "backend/cpu/cpu.h"

#include <math.h>

enum { N = 37, D = 24, V = 53 };

typedef struct head {
    af_graph *g;
    af_device *d;
    af_tensor *h, *w, *labels, *weight, *rows, *loss;
} head;

/* f64: the twin, else the fast version. The head is trained or frozen. */
static head head_open(bool twin, bool trained, double softcap)
{
    head t = {0};
    const af_dtype type = twin ? AF_DTYPE_F64 : AF_DTYPE_F32;
    const int64_t hd[2] = {N, D}, wd[2] = {V, D}, n = N;
    assert_int_equal(af_cpu_open(&t.d, 2, NULL), AF_OK);
    assert_int_equal(af_graph_new(&t.g, NULL), AF_OK);
    t.h = af_graph_param(t.g, "h", type, 2, hd);
    t.w = trained ? af_graph_param(t.g, "w", type, 2, wd) : af_graph_weight(t.g, "w", type, 2, wd);
    t.labels = af_graph_input(t.g, "labels", AF_DTYPE_I32, 1, &n);
    t.weight = af_graph_input(t.g, "weight", AF_DTYPE_F32, 1, &n);
    const af_head_opts o = {.softcap = softcap,
                            .logit_scale = 0.7,
                            .chunk_rows = 8,
                            .rows = &t.rows,
                            .stats = true,
                            .row_weight = t.weight};
    t.loss = af_head_loss(t.g, t.h, t.w, t.labels, &o);
    af_graph_output(t.g, t.rows);
    af_graph_backward(t.g, t.loss);
    af_error err = {0};
    if (af_graph_prepare(t.g, t.d, &err) != AF_OK)
        fail_msg("%s", err.msg);
    for (int64_t i = 0; i < N * D; i++)
        af_st(t.h, i, normal(1, (uint64_t)i));
    double value[V * D];
    float narrow[V * D];
    for (int64_t i = 0; i < V * D; i++) {
        value[i] = 0.4 * normal(2, (uint64_t)i);
        narrow[i] = (float)value[i];
    }
    assert_int_equal(af_tensor_write(t.g, t.w, twin ? (void *)value : (void *)narrow,
                                     af_tensor_bytes(t.w), NULL),
                     AF_OK);
    for (int32_t i = 0; i < N; i++)
        ((int32_t *)t.labels->data)[i] = i % 5 == 2 ? -100 : i * 7 % V;
    return t;
}

static void head_close(head *t)
{
    af_graph_free(t->g);
    af_device_close(t->d);
}

static float weight_of(int64_t row) { return (float)normal(3, (uint64_t)row); }

/* The forward pass, then the weights, then the backward pass. */
static void run_apart(const head *t)
{
    float u[N];
    assert_int_equal(af_graph_run(t->g, AF_RUN_FORWARD | AF_RUN_KEEP, NULL), AF_OK);
    for (int64_t i = 0; i < N; i++)
        u[i] = weight_of(i);
    assert_int_equal(af_tensor_write(t->g, t->weight, u, sizeof u, NULL), AF_OK);
    assert_int_equal(af_graph_run(t->g, AF_RUN_BACKWARD, NULL), AF_OK);
}

static void logits_of(const head *t, int64_t row, double softcap, double *z)
{
    for (int64_t v = 0; v < V; v++) {
        double sum = 0;
        for (int64_t d = 0; d < D; d++)
            sum += af_ld(t->h, row * D + d) * af_ld(t->w, v * D + d);
        z[v] = softcap > 0 ? softcap * tanh(0.7 * sum / softcap) : 0.7 * sum;
    }
}

static void check_near(double got, double want, double tolerance, int64_t row, const char *what)
{
    if (!(fabs(got - want) <= tolerance * fmax(1, fabs(want))))
        fail_msg("row %d: %s is %.9g, expected %.9g", (int)row, what, got, want);
}

/* Rows are f32 in either version. */
static void check_stats(const head *t, double softcap)
{
    const int32_t *label = t->labels->data;
    for (int64_t r = 0; r < N; r++) {
        double z[V], sum = 0, mean = 0, squares = 0, all = 0;
        int64_t best = 0;
        const int64_t at = r * AF_HEAD_STATS;
        logits_of(t, r, softcap, z);
        for (int64_t v = 0; v < V; v++) {
            sum += exp(z[v]);
            all += z[v];
            best = z[v] > z[best] ? v : best;
        }
        for (int64_t v = 0; v < V; v++) {
            const double p = exp(z[v]) / sum;
            mean += -p * log(p);
            squares += p * p;
        }
        const bool counts = label[r] != -100;
        check_near(af_ld(t->rows, at), counts ? log(sum) - z[label[r]] : 0, 1e-6, r, "loss");
        check_near(af_ld(t->rows, at + 1), counts && best == label[r], 0, r, "hit");
        check_near(af_ld(t->rows, at + 2), counts ? mean : 0, 1e-6, r, "entropy");
        check_near(af_ld(t->rows, at + 3), counts ? all / V : 0, 1e-6, r, "mean logit");
        check_near(af_ld(t->rows, at + 4), counts ? log(squares) : 0, 1e-6, r, "log sum p^2");
    }
}

/* The sum of weight times loss of a row. */
static double objective(const head *t, double softcap)
{
    const int32_t *label = t->labels->data;
    double total = 0;
    for (int64_t r = 0; r < N; r++) {
        double z[V], sum = 0;
        logits_of(t, r, softcap, z);
        for (int64_t v = 0; v < V; v++)
            sum += exp(z[v]);
        total += label[r] == -100 ? 0 : (double)weight_of(r) * (log(sum) - z[label[r]]);
    }
    return total;
}

static void check_gradient(const head *t, af_tensor *x, double softcap)
{
    for (int64_t i = 0; i < af_count(x); i += 29) {
        const double was = af_ld(x, i), step = 1e-5;
        af_st(x, i, was + step);
        const double up = objective(t, softcap);
        af_st(x, i, was - step);
        const double down = objective(t, softcap);
        af_st(x, i, was);
        check_near(af_ld(x->grad, i), (up - down) / (2 * step), 1e-7, i / D, "gradient");
    }
}

static void test_rows_have_the_values_of_plain_sums(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        const double softcap = k % 2 ? 3 : 0;
        head t = head_open(k < 2, false, softcap);
        run_apart(&t);
        check_stats(&t, softcap);
        head_close(&t);
    }
}

static void test_gradients_are_by_the_weights_of_rows(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        const double softcap = k % 2 ? 3 : 0;
        head t = head_open(true, k < 2, softcap);
        run_apart(&t);
        check_gradient(&t, t.h, softcap);
        if (k < 2)
            check_gradient(&t, t.w, softcap);
        head_close(&t);
    }
}

static void test_the_fast_head_is_near_the_twin(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        head slow = head_open(true, k, 0), fast = head_open(false, k, 0);
        run_apart(&slow);
        run_apart(&fast);
        for (int64_t i = 0; i < N * D; i++)
            check_near(af_ld(fast.h->grad, i), af_ld(slow.h->grad, i), 5e-6, i / D, "dh");
        for (int64_t i = 0; i < V * D && k; i++)
            check_near(af_ld(fast.w->grad, i), af_ld(slow.w->grad, i), 2e-5, i / D, "dw");
        head_close(&slow);
        head_close(&fast);
    }
}

/* Where the weights do not depend on the forward pass, one run is the same as two. */
static void test_one_run_has_the_bits_of_two(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        head one = head_open(false, k, 0), two = head_open(false, k, 0);
        run_apart(&two);
        for (int64_t i = 0; i < N; i++)
            ((float *)one.weight->data)[i] = weight_of(i);
        assert_int_equal(af_graph_run(one.g, AF_RUN_GRAD, NULL), AF_OK);
        assert_memory_equal(one.h->grad->data, two.h->grad->data, N * D * sizeof(float));
        head_close(&one);
        head_close(&two);
    }
}

/* Where a gradient is written and not added, a batch without a row makes it zero. */
static void test_a_batch_without_rows_has_no_gradient(void **state)
{
    (void)state;
    for (int twin = 0; twin < 2; twin++) {
        const af_dtype type = twin ? AF_DTYPE_F64 : AF_DTYPE_F32;
        const int64_t n = N;
        af_error err = {0};
        af_device *d;
        af_graph *g;
        CHECK_OK(af_cpu_open(&d, 2, &err), err);
        CHECK_OK(af_graph_new(&g, &err), err);
        af_graph_set_rows(g, N);
        af_graph_set_one_pass(g);
        af_tensor *h = af_graph_input(g, "h", type, 2, (int64_t[]){N, D});
        af_tensor *w = af_graph_param(g, "w", type, 2, (int64_t[]){V, D});
        af_tensor *labels = af_graph_input(g, "labels", AF_DTYPE_I32, 1, &n);
        af_graph_backward(g, af_head_loss(g, h, w, labels, &(af_head_opts){.logit_scale = 1}));
        af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW});
        CHECK_OK(af_graph_prepare(g, d, &err), err);
        for (int64_t i = 0; i < N * D; i++)
            af_st(h, i, normal(1, (uint64_t)i));
        for (int64_t i = 0; i < V * D; i++)
            af_st(w, i, normal(2, (uint64_t)i));
        for (int32_t i = 0; i < N; i++)
            ((int32_t *)labels->data)[i] = i;
        for (int64_t live = N; live >= 0; live -= N) {
            double sum = 0;
            af_graph_set_live_rows(g, live);
            CHECK_OK(af_graph_run(g, AF_RUN_GRAD, &err), err);
            for (int64_t i = 0; i < V * D; i++)
                sum += fabs(af_ld(w->grad, i));
            CHECK_MSG(live ? sum > 0.1 : sum == 0, "%d rows: %g", (int)live, sum);
        }
        af_graph_free(g);
        af_device_close(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_have_the_values_of_plain_sums),
        cmocka_unit_test(test_gradients_are_by_the_weights_of_rows),
        cmocka_unit_test(test_the_fast_head_is_near_the_twin),
        cmocka_unit_test(test_one_run_has_the_bits_of_two),
        cmocka_unit_test(test_a_batch_without_rows_has_no_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
