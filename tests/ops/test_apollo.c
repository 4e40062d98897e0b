/* test_apollo.c - APOLLO against the package of its authors with the same random projections
 * (tests/golden/ops/make_apollo.py), its projections, and what a matrix without a step keeps. */
#include "test.h"

/* As in the script. */
static double formula(int64_t i, int64_t k, int64_t step)
{
    const int64_t r = (i * 7919 + step * 104729 + k * 15485863) % 2001 - 1000;
    return (double)(float)((double)r / 1000.0);
}

#include "ops/lowrank_model.h"

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
    check_package("apollo.f32", cases, AF_LEN(cases), size, 2e-6);
}

static void test_other_parameters_learn_with_adamw(void **state)
{
    (void)state;
    check_others_learn_with_adamw(&channels);
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

static void test_a_resumed_run_has_the_same_bits(void **state)
{
    (void)state;
    check_resumes(&channels);
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

static void test_matrices_of_one_parameter(void **state)
{
    (void)state;
    check_parts(&channels);
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
