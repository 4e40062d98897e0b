/* test_apollo.c - APOLLO against the package of its authors with the same random projections
 * (tests/golden/ops/make_apollo.py), its projections, and what a matrix without a step keeps. */
#include "test.h"

#include "backend/cpu/cpu.h"
#include "ops/optim/optimizer.h"
#include "worse.h"

#include <math.h>

enum { P = 3, TALL = 24 * 7, WIDE = 7 * 24, MATRICES = TALL + WIDE, VECTOR = 13, STEPS = 5 };

/* As in the script. */
static double formula(int64_t i, int64_t k, int64_t step)
{
    const int64_t r = (i * 7919 + step * 104729 + k * 15485863) % 2001 - 1000;
    return (double)(float)((double)r / 1000.0);
}

typedef struct model {
    af_graph *g;
    af_device *d;
    af_tensor *p[P], *x[P];
} model;

static void open_model(model *t, const af_optimizer_opts *o, bool twin, int threads)
{
    static const int64_t dim[P][2] = {{24, 7}, {7, 24}, {VECTOR, 1}};
    const af_dtype type = twin ? AF_DTYPE_F64 : AF_DTYPE_F32;
    af_error err = {0};
    af_tensor *loss = NULL;
    CHECK_OK(af_graph_new(&t->g, &err), err);
    CHECK_OK(af_cpu_open(&t->d, threads, &err), err);
    for (int k = 0; k < P; k++) {
        char name[2][4];
        snprintf(name[0], sizeof name[0], "p%d", k);
        snprintf(name[1], sizeof name[1], "x%d", k);
        t->p[k] = af_graph_param(t->g, name[0], type, k < 2 ? 2 : 1, dim[k]);
        t->x[k] = af_graph_input(t->g, name[1], type, k < 2 ? 2 : 1, dim[k]);
        af_tensor *y = af_sum_all(t->g, af_mul(t->g, t->p[k], t->x[k]));
        loss = loss ? af_add(t->g, loss, y) : y;
    }
    af_graph_backward(t->g, loss);
    af_graph_optimizer(t->g, o);
    CHECK_OK(af_graph_prepare(t->g, t->d, &err), err);
    af_graph_set_learning_rate(t->g, 0.01);
    for (int k = 0; k < P; k++)
        for (int64_t i = 0; i < af_count(t->p[k]); i++)
            af_st(t->p[k], i, formula(i, k, 0));
}

static void close_model(model *t)
{
    af_graph_free(t->g);
    af_device_close(t->d);
}

static void step(model *t, int number, double size)
{
    af_error err = {0};
    for (int k = 0; k < P; k++)
        for (int64_t i = 0; i < af_count(t->x[k]); i++)
            af_st(t->x[k], i, formula(i, k + P, number) * size);
    CHECK_OK(af_graph_run(t->g, AF_RUN_STEP, &err), err);
}

static double value(const model *t, int i)
{
    return i < TALL ? af_ld(t->p[0], i) : af_ld(t->p[1], i - TALL);
}

static const af_optimizer_opts channels = {.kind = AF_OPTIMIZER_APOLLO,
                                           .eps = 1e-3,
                                           .weight_decay = 0.1,
                                           .seed = 42,
                                           .rank = 4,
                                           .gap = 2,
                                           .scale = 1};

static void test_updates_are_those_of_the_package(void **state)
{
    (void)state;
    static const double size[STEPS] = {1, 3, 0.5, 8, 1};
    af_optimizer_opts mini = channels, front = channels;
    mini.rank = 1, mini.gap = 200, mini.scale = 128, mini.per_tensor = true;
    front.rank = 9, front.gap = 3, front.scale = 32, front.scale_front = true;
    const af_optimizer_opts *const cases[] = {&channels, &mini, &front};
    char path[4096];
    float want[AF_LEN(cases)][MATRICES];
    snprintf(path, sizeof path, "%s/ops/apollo.f32", golden_dir());
    FILE *f = fopen(path, "rb");
    CHECK_MSG(f && fread(want, 1, sizeof want, f) == sizeof want, "%s cannot be read", path);
    fclose(f);
    for (size_t c = 0; c < 2 * AF_LEN(cases); c++) {
        model t;
        double worst = 0;
        open_model(&t, cases[c / 2], c % 2, 2);
        for (int s = 1; s <= STEPS; s++)
            step(&t, s, size[s - 1]);
        for (int i = 0; i < MATRICES; i++)
            worst = worse(worst, fabs(value(&t, i) - (double)want[c / 2][i]));
        CHECK_MSG(worst < 2e-6, "case %zu (%s): %.3g from the package", c / 2,
                  c % 2 ? "f64" : "f32", worst);
        close_model(&t);
    }
}

/* Vectors and matrices outside the model learn as with AdamW. */
static void test_other_parameters_learn_with_adamw(void **state)
{
    (void)state;
    af_optimizer_opts adamw = channels;
    adamw.kind = AF_OPTIMIZER_ADAMW;
    model t[2];
    open_model(&t[0], &channels, false, 2);
    open_model(&t[1], &adamw, false, 2);
    for (int s = 1; s <= 3; s++) {
        step(&t[0], s, 1);
        step(&t[1], s, 1);
    }
    for (int i = 0; i < VECTOR; i++)
        assert_true(fabs(af_ld(t[0].p[2], i) - af_ld(t[1].p[2], i)) < 1e-7);
    close_model(&t[0]);
    close_model(&t[1]);
}

/* The result is a function of the seed alone, whatever the threads; another seed projects
 * otherwise. */
static void test_projections_come_from_the_seed(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed;
        int threads;
        bool same;
    } cases[] = {{42, 1, true}, {42, 3, true}, {43, 2, false}};
    model first;
    open_model(&first, &channels, false, 2);
    for (int s = 1; s <= 3; s++)
        step(&first, s, 1);
    for (size_t c = 0; c < AF_LEN(cases); c++) {
        af_optimizer_opts o = channels;
        int differ = 0;
        model t;
        o.seed = cases[c].seed;
        open_model(&t, &o, false, cases[c].threads);
        for (int s = 1; s <= 3; s++)
            step(&t, s, 1);
        for (int i = 0; i < MATRICES; i++)
            differ += value(&t, i) < value(&first, i) || value(&t, i) > value(&first, i);
        CHECK_MSG((differ == 0) == cases[c].same, "case %zu: %d values differ", c, differ);
        close_model(&t);
    }
    close_model(&first);
}

/* Two steps, the state and the count moved to a new graph, and two more: the bits of four. */
static void test_a_resumed_run_has_the_same_bits(void **state)
{
    (void)state;
    model t[2];
    open_model(&t[0], &channels, false, 2);
    open_model(&t[1], &channels, false, 2);
    step(&t[0], 1, 1);
    step(&t[0], 2, 3);
    for (int i = 0; i < t[0].g->n_tensors; i++) {
        const af_tensor *from = t[0].g->tensors[i];
        if (from->role == AF_ROLE_STATE || from->role == AF_ROLE_PARAM)
            memcpy(t[1].g->tensors[i]->data, from->data, af_tensor_bytes(from));
    }
    af_graph_set_step(t[1].g, 3);
    for (int k = 0; k < 2; k++) {
        step(&t[k], 3, 1);
        step(&t[k], 4, 5);
    }
    for (int k = 0; k < P; k++)
        assert_memory_equal(t[0].p[k]->data, t[1].p[k]->data, af_tensor_bytes(t[0].p[k]));
    close_model(&t[0]);
    close_model(&t[1]);
}

/* What projections have: mean 0 and variance 1 / rank, so that lengths stay on average. Without
 * moments (both rates 0) the direction has length 1 for each number, and the length of the update
 * tells that of the projected gradient. */
static void test_projections_keep_lengths(void **state)
{
    (void)state;
    enum { R = 400, C = 64, RANK = 16 };
    af_error err = {0};
    af_graph *g = NULL;
    af_device *d = NULL;
    const int64_t dim[2] = {R, C};
    const double tiny = 1e-300; /* 0 is the usual rate */
    CHECK_OK(af_graph_new(&g, &err), err);
    CHECK_OK(af_cpu_open(&d, 2, &err), err);
    af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F32, 2, dim);
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 2, dim);
    af_graph_backward(g, af_sum_all(g, af_mul(g, p, x)));
    af_graph_optimizer(
        g, &(af_optimizer_opts){
               .kind = AF_OPTIMIZER_APOLLO, .beta1 = tiny, .beta2 = tiny, .seed = 7, .rank = RANK});
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    af_graph_set_learning_rate(g, 1);
    for (int i = 0; i < R; i++)
        for (int k = 0; k < C; k++)
            af_st(x, i * C + k, i % C == k ? 3 : 0); /* |g| = 3: rows pick rows of P */
    CHECK_OK(af_graph_run(g, AF_RUN_STEP, &err), err);
    double mean = 0;
    for (int i = 0; i < C; i++) { /* w = -3 sqrt(rank) / length */
        const double length = 3 * sqrt(RANK) / -af_ld(p, i * C + i);
        mean += length * length / C;
    }
    CHECK_MSG(fabs(mean / 9 - 1) < 0.2, "projected rows of length 3 have %.3g on average",
              sqrt(mean));
    af_graph_free(g);
    af_device_close(d);
}

/* Sizes that are not those of tiles, and more rows than a thread has. */
static void test_large_matrices_in_f32_are_those_of_the_twin(void **state)
{
    (void)state;
    static const int64_t dims[][2] = {{301, 77}, {66, 259}, {130, 130}};
    for (size_t c = 0; c < AF_LEN(dims); c++) {
        const int64_t n = dims[c][0] * dims[c][1];
        af_tensor *p[3];
        af_graph *g[3];
        af_device *d[3];
        double worst = 0;
        for (int k = 0; k < 3; k++) { /* the twin, and two numbers of threads */
            af_error err = {0};
            const af_dtype type = k ? AF_DTYPE_F32 : AF_DTYPE_F64;
            CHECK_OK(af_graph_new(&g[k], &err), err);
            CHECK_OK(af_cpu_open(&d[k], k == 2 ? 1 : 3, &err), err);
            p[k] = af_graph_param(g[k], "p", type, 2, dims[c]);
            af_tensor *x = af_graph_input(g[k], "x", type, 2, dims[c]);
            af_graph_backward(g[k], af_sum_all(g[k], af_mul(g[k], p[k], x)));
            af_graph_optimizer(g[k], &(af_optimizer_opts){.kind = AF_OPTIMIZER_APOLLO,
                                                          .eps = 1e-3,
                                                          .seed = 9,
                                                          .rank = 37,
                                                          .max_grad_norm = 100});
            CHECK_OK(af_graph_prepare(g[k], d[k], &err), err);
            af_graph_set_learning_rate(g[k], 0.01);
            for (int s = 1; s <= 3; s++) {
                for (int64_t i = 0; i < n; i++)
                    af_st(x, i, formula(i, 2, s));
                CHECK_OK(af_graph_run(g[k], AF_RUN_STEP, &err), err);
            }
        }
        for (int64_t i = 0; i < n; i++)
            worst = worse(worst, fabs(af_ld(p[1], i) - af_ld(p[0], i)));
        CHECK_MSG(worst < 4e-8, "case %zu: %.3g from the twin", c, worst);
        assert_memory_equal(p[1]->data, p[2]->data, af_tensor_bytes(p[1]));
        for (int k = 0; k < 3; k++) {
            af_graph_free(g[k]);
            af_device_close(d[k]);
        }
    }
}

/* A gradient that is not finite, and none at all. */
static void test_a_matrix_without_a_step(void **state)
{
    (void)state;
    for (int c = 0; c < 4; c++) {
        af_optimizer_opts o = channels;
        af_error err = {0};
        model t;
        double before[MATRICES];
        o.weight_decay = 0;
        open_model(&t, &o, c % 2, 2);
        if (c < 2)
            step(&t, 1, 1);
        for (int i = 0; i < MATRICES; i++)
            before[i] = value(&t, i);
        if (c < 2) {
            af_st(t.x[0], 3, (double)NAN);
            CHECK_OK(af_graph_run(t.g, AF_RUN_STEP, &err), err);
        } else {
            step(&t, 1, 0);
        }
        for (int i = 0; i < MATRICES; i++)
            CHECK_MSG(!(value(&t, i) < before[i] || value(&t, i) > before[i]), "case %d moves", c);
        step(&t, 2, 1); /* the norm of nothing limits nothing */
        double moved = 0;
        for (int i = 0; i < MATRICES; i++)
            moved = worse(moved, fabs(value(&t, i) - before[i]));
        CHECK_MSG(moved > 1e-3, "case %d: %.3g", c, moved);
        close_model(&t);
    }
}

/* Each matrix of a parameter that is several has moments and a norm of its own. */
static void test_matrices_of_one_parameter(void **state)
{
    (void)state;
    const int64_t n = MATRICES, part[2][2] = {{24, 7}, {7, 24}};
    af_error err = {0};
    model apart;
    af_graph *g = NULL;
    af_device *d = NULL;
    double worst = 0;
    open_model(&apart, &channels, false, 2);
    CHECK_OK(af_graph_new(&g, &err), err);
    CHECK_OK(af_cpu_open(&d, 2, &err), err);
    af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F32, 1, &n);
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 1, &n);
    af_param_parts(g, p, 2, part);
    af_graph_backward(g, af_sum_all(g, af_mul(g, p, x)));
    af_graph_optimizer(g, &channels);
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    af_graph_set_learning_rate(g, 0.01);
    for (int i = 0; i < MATRICES; i++)
        af_st(p, i, value(&apart, i));
    for (int s = 1; s <= 3; s++) {
        step(&apart, s, s);
        for (int i = 0; i < MATRICES; i++)
            af_st(x, i, af_ld(apart.x[i >= TALL], i >= TALL ? i - TALL : i));
        CHECK_OK(af_graph_run(g, AF_RUN_STEP, &err), err);
    }
    for (int i = 0; i < MATRICES; i++)
        worst = worse(worst, fabs(af_ld(p, i) - value(&apart, i)));
    CHECK_MSG(worst < 1e-7, "%.3g", worst);
    close_model(&apart);
    af_graph_free(g);
    af_device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_updates_are_those_of_the_package),
        cmocka_unit_test(test_other_parameters_learn_with_adamw),
        cmocka_unit_test(test_projections_come_from_the_seed),
        cmocka_unit_test(test_a_resumed_run_has_the_same_bits),
        cmocka_unit_test(test_projections_keep_lengths),
        cmocka_unit_test(test_large_matrices_in_f32_are_those_of_the_twin),
        cmocka_unit_test(test_a_matrix_without_a_step),
        cmocka_unit_test(test_matrices_of_one_parameter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
