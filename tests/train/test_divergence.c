/* test_divergence.c - the nodes of distillation against TRL's generalised JSD and Axolotl's loss
 * over the k most likely tokens: values, and gradients by the student's logits. */
#include "test.h"

#include "backend/cpu/cpu.h"
#include "train/step/divergence.h"
#include "worse.h"

#include <jansson.h>
#include <math.h>

enum { ROWS_MAX = 16, TOKENS_MAX = 64 };

typedef struct unit {
    double beta, temperature;
    int64_t k; /* 0: all tokens */
    bool normalize;
    int64_t rows, V;
    const json_t *labels, *student, *teacher;
} unit;

static double number_at(const json_t *rows, int64_t r, int64_t v)
{
    return json_number_value(json_array_get(json_array_get(rows, (size_t)r), (size_t)v));
}

static bool has_label(const unit *u, int64_t r)
{
    return json_integer_value(json_array_get(u->labels, (size_t)r)) != -100;
}

/* The k largest of the teacher's logits, their logarithms at the temperature summing to 1. */
static void best_of(const unit *u, int64_t r, int32_t *id, float *share)
{
    bool taken[TOKENS_MAX] = {false};
    double sum = 0;
    for (int64_t k = 0; k < u->k; k++) {
        int64_t best = -1;
        for (int64_t v = 0; v < u->V; v++)
            if (!taken[v] &&
                (best < 0 || number_at(u->teacher, r, v) > number_at(u->teacher, r, best)))
                best = v;
        taken[best] = true;
        id[k] = (int32_t)best;
    }
    const double most = number_at(u->teacher, r, id[0]);
    for (int64_t k = 0; k < u->k; k++)
        sum += exp((number_at(u->teacher, r, id[k]) - most) / u->temperature);
    for (int64_t k = 0; k < u->k; k++)
        share[k] = (float)fmax((number_at(u->teacher, r, id[k]) - most) / u->temperature - log(sum),
                               (double)AF_SHARE_LEAST);
}

/* Sum over the rows with a label; its gradient. */
static double run(const unit *u, double *grad)
{
    af_graph *g = NULL;
    af_device *dev = NULL;
    af_error err = {0};
    const int64_t dim[2] = {u->rows, u->V}, best_dim[2] = {u->rows, u->k ? u->k : 1};
    assert_int_equal(af_cpu_open(&dev, 1, NULL), AF_OK);
    assert_int_equal(af_graph_new(&g, NULL), AF_OK);
    af_divergence d = {.graph = g, .beta = u->beta};
    af_tensor *z = af_graph_param(g, "z", AF_DTYPE_F32, 2, dim),
              *w = af_graph_input(g, "w", AF_DTYPE_F32, 1, &u->rows), *q, *y = NULL, *id = NULL,
              *share = NULL;
    af_tensor *p = af_log_shares(g, z, u->temperature);
    if (u->k) {
        id = af_graph_input(g, "id", AF_DTYPE_I32, 2, best_dim);
        share = af_graph_input(g, "share", AF_DTYPE_F32, 2, best_dim);
        q = af_divergence_best(&d, g, id, share, u->V, u->normalize, &p);
    } else {
        y = af_graph_input(g, "y", AF_DTYPE_F32, 2, dim);
        q = af_log_shares(g, y, u->temperature);
    }
    af_tensor *loss = af_sum_all(g, af_mul(g, af_divergence_rows(&d, p, q), w));
    af_graph_output(g, loss);
    af_graph_backward(g, loss);
    CHECK_OK(af_graph_prepare(g, dev, &err), err);
    CHECK_OK(af_divergence_load(&d, &err), err);
    for (int64_t r = 0; r < u->rows; r++) {
        af_st(w, r, has_label(u, r));
        for (int64_t v = 0; v < u->V; v++) {
            af_st(z, r * u->V + v, number_at(u->student, r, v));
            if (y)
                af_st(y, r * u->V + v, number_at(u->teacher, r, v));
        }
        if (u->k)
            best_of(u, r, (int32_t *)id->data + r * u->k, (float *)share->data + r * u->k);
    }
    CHECK_OK(af_graph_run(g, AF_RUN_GRAD, &err), err);
    for (int64_t i = 0; i < u->rows * u->V; i++)
        grad[i] = af_ld(z->grad, i);
    const double value = af_ld(loss, 0);
    af_graph_free(g);
    af_device_close(dev);
    return value;
}

/* What TRL divides by; Axolotl gives sums, the loss with the square of the temperature, its
 * gradient without. */
static void check(const unit *u, const json_t *want, const char *name)
{
    static double grad[ROWS_MAX * TOKENS_MAX];
    double labels = 0, most = 0, off = 0;
    for (int64_t r = 0; r < u->rows; r++)
        labels += has_label(u, r);
    const double by = u->k ? 1 : labels, square = u->k ? u->temperature * u->temperature : 1;
    const double loss = run(u, grad) * square / by,
                 expected = json_number_value(json_object_get(want, u->k ? "loss_sum" : "loss"));
    CHECK_MSG(fabs(loss - expected) <= 1e-5 * fmax(fabs(expected), 0.1), "%s: %.9g, not %.9g", name,
              loss, expected);
    const json_t *g = json_object_get(want, "grad_student_logits");
    for (int64_t r = 0; r < u->rows; r++)
        for (int64_t v = 0; v < u->V; v++) {
            most = worse(most, fabs(number_at(g, r, v)));
            off = worse(off, fabs(number_at(g, r, v) - grad[r * u->V + v] / by));
        }
    CHECK_MSG(off <= 1e-5 * fmax(most, 0.1), "%s: a gradient is off by %g of %g", name, off, most);
}

static void test_units_are_trls_and_axolotls(void **state)
{
    (void)state;
    char path[600];
    json_error_t why;
    json_t *want;
    size_t i, checked = 0;
    if (!shared_dir())
        skip_because("no shared goldens");
    snprintf(path, sizeof path, "%s/golden/preference/units/distill.json", shared_dir());
    json_t *units = json_load_file(path, 0, &why);
    CHECK_MSG(units, "%s: %s", path, why.text);
    json_array_foreach(json_object_get(units, "results"), i, want)
    {
        const char *name = json_string_value(json_object_get(want, "case"));
        const json_t *jsd = json_object_get(json_object_get(units, "jsd_cases"), name),
                     *best = json_object_get(json_object_get(units, "topk_cases"), name),
                     *s = jsd ? jsd : best,
                     *b =
                         json_array_get(json_object_get(units, "batches"),
                                        (size_t)json_integer_value(json_object_get(want, "batch")));
        unit u = {
            .beta = json_number_value(json_object_get(s, "beta")),
            .temperature = json_number_value(json_object_get(s, "temperature")),
            .k = json_integer_value(json_object_get(s, "k")),
            .normalize = json_is_true(json_object_get(s, "normalize_topk")),
            .labels = json_object_get(b, "labels"),
            .student = json_object_get(b, "student_logits"),
            .teacher = json_object_get(b, "teacher_logits"),
            .rows = (int64_t)json_array_size(json_object_get(b, "labels")),
            .V = (int64_t)json_array_size(json_array_get(json_object_get(b, "student_logits"), 0))};
        u.k = u.k < u.V ? u.k : u.V;
        assert_true(u.rows <= ROWS_MAX && u.V <= TOKENS_MAX);
        check(&u, want, name);
        checked++;
    }
    assert_int_equal(checked, 234);
    json_decref(units);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_units_are_trls_and_axolotls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
