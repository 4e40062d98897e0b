/* test_galore.c - GaLore against the package of its authors with our signs of singular vectors
 * (tests/golden/ops/make_galore.py), its subspace iteration, and what a matrix without a step
 * keeps.
 */
#include "test.h"

/* As in the script. */
static double formula(int64_t i, int64_t k, int64_t step)
{
    const int64_t h = (i * 7919 + step * 104729 + k * 15485863) % 2003;
    return (double)(float)((double)(h * h % 2003 - 1001) / 1000.0);
}

#include "ops/lowrank_model.h"
#include "tensor/half.h"
#include "tensor/svd.h"

static const af_optimizer_opts std = {
    .kind = AF_OPTIMIZER_GALORE, .eps = 1e-3, .weight_decay = 0.1, .seed = 42, .rank = 4, .gap = 2};

static af_optimizer_opts other(af_projection projection, int64_t rank, int64_t gap, double scale)
{
    af_optimizer_opts o = std;
    o.projection = projection, o.rank = rank, o.gap = gap, o.scale = scale;
    return o;
}

static void test_updates_are_those_of_the_package(void **state)
{
    (void)state;
    static const double size[STEPS] = {1, 1, 1, 1, 1};
    const af_optimizer_opts reverse = other(AF_PROJECTION_REVERSE_STD, 3, 200, 2),
                            right = other(AF_PROJECTION_RIGHT, 9, 3, 1),
                            left = other(AF_PROJECTION_LEFT, 5, 1, 1),
                            full = other(AF_PROJECTION_FULL, 5, 2, 1);
    const af_optimizer_opts *const cases[] = {&std, &reverse, &right, &left, &full};
    check_package("galore.f32", cases, AF_LEN(cases), size, 2e-6);
}

static void test_other_parameters_learn_with_adamw(void **state)
{
    (void)state;
    check_others_learn_with_adamw(&std);
}

static void test_a_resumed_run_has_the_same_bits(void **state)
{
    (void)state;
    const af_optimizer_opts full = other(AF_PROJECTION_FULL, 5, 3, 1);
    check_resumes(&std);
    check_resumes(&full);
}

static void test_matrices_of_one_parameter(void **state)
{
    (void)state;
    check_parts(&std);
}

/* ---- larger matrices: the iteration ---- */

typedef struct one {
    af_graph *g;
    af_device *d;
    af_tensor *p, *x;
} one;

static void open_one(one *t, const af_optimizer_opts *o, bool twin, int threads, const int64_t *dim)
{
    af_error err = {0};
    const af_dtype type = twin ? AF_DTYPE_F64 : AF_DTYPE_F32;
    CHECK_OK(af_graph_new(&t->g, &err), err);
    CHECK_OK(af_cpu_open(&t->d, threads, &err), err);
    t->p = af_graph_param(t->g, "p", type, 2, dim);
    t->x = af_graph_input(t->g, "x", type, 2, dim);
    af_graph_backward(t->g, af_sum_all(t->g, af_mul(t->g, t->p, t->x)));
    af_graph_optimizer(t->g, o);
    CHECK_OK(af_graph_prepare(t->g, t->d, &err), err);
    af_graph_set_learning_rate(t->g, 0.01);
}

static void close_one(one *t)
{
    af_graph_free(t->g);
    af_device_close(t->d);
}

static void run_one(one *t)
{
    af_error err = {0};
    CHECK_OK(af_graph_run(t->g, AF_RUN_STEP, &err), err);
}

static af_tensor *state_of(const one *t, const char *name)
{
    for (int i = 0; i < t->g->n_tensors; i++)
        if (t->g->tensors[i]->role == AF_ROLE_STATE && strcmp(t->g->tensors[i]->name, name) == 0)
            return t->g->tensors[i];
    return NULL;
}

/* The gradient: a sum of `count` products of two vectors, each `fall` times the one before. */
static void set_gradient(one *t, int count, double fall, int step)
{
    const int64_t R = t->x->dim[0], C = t->x->dim[1];
    for (int64_t i = 0; i < R * C; i++) {
        double sum = 0, size = 1;
        for (int k = 0; k < count; k++, size *= fall)
            sum += size * formula(i / C, 3 * k, step) * formula(i % C, 3 * k + 1, step);
        af_st(t->x, i, sum);
    }
}

/* How far columns of v [rows][rank] are from orthonormal. */
static double skew(const af_tensor *v, int64_t rank)
{
    const int64_t rows = af_count(v) / rank;
    double worst = 0;
    for (int64_t a = 0; a < rank; a++)
        for (int64_t b = 0; b <= a; b++) {
            double dot = 0;
            for (int64_t r = 0; r < rows; r++)
                dot += af_ld(v, r * rank + a) * af_ld(v, r * rank + b);
            worst = worse(worst, fabs(dot - (a == b)));
        }
    return worst;
}

static const int64_t dims[][2] = {{150, 77}, {66, 259}, {130, 130}};

/* In f32 next to the twin, and the bits of any number of threads. */
static void test_large_matrices_in_f32_are_those_of_the_twin(void **state)
{
    (void)state;
    static const af_projection kinds[] = {AF_PROJECTION_STD, AF_PROJECTION_REVERSE_STD,
                                          AF_PROJECTION_FULL};
    for (size_t c = 0; c < AF_LEN(dims); c++) {
        af_optimizer_opts o = other(kinds[c], 12, 2, 1);
        double worst = 0;
        one t[3];
        o.max_grad_norm = 0.5;
        for (int k = 0; k < 3; k++) { /* the twin, and two numbers of threads */
            open_one(&t[k], &o, k == 0, k == 2 ? 1 : 3, dims[c]);
            for (int s = 1; s <= 3; s++) {
                set_gradient(&t[k], 60, 0.7, s);
                run_one(&t[k]);
            }
        }
        for (int64_t i = 0; i < af_count(t[0].p); i++)
            worst = worse(worst, fabs(af_ld(t[1].p, i) - af_ld(t[0].p, i)));
        CHECK_MSG(worst < 1.6e-8, "case %zu: %.3g from the twin", c, worst);
        assert_memory_equal(t[1].p->data, t[2].p->data, af_tensor_bytes(t[1].p));
        for (int k = 0; k < 3; k++)
            close_one(&t[k]);
    }
}

/* Singular vectors by another method (Jacobi on the whole matrix). */
static void test_vectors_are_those_of_the_gradient(void **state)
{
    (void)state;
    enum { RANK = 12 };
    for (size_t c = 0; c < AF_LEN(dims); c++)
        for (int twin = 0; twin < 2; twin++) {
            const af_optimizer_opts o = other(AF_PROJECTION_FULL, RANK, 200, 1);
            const int64_t R = dims[c][0], C = dims[c][1], n = R * C;
            float *x = malloc((size_t)n * sizeof *x);
            double s[RANK], *u = malloc((size_t)(RANK * R) * sizeof *u),
                            *v = malloc((size_t)(RANK * C) * sizeof *v), worst = 0;
            af_error err = {0};
            one t;
            assert_true(x && u && v);
            open_one(&t, &o, twin, 2, dims[c]);
            set_gradient(&t, 60, 0.93, 1);
            for (int64_t i = 0; i < n; i++)
                x[i] = (float)af_ld(t.x, i);
            CHECK_OK(af_svd(x, R, C, RANK, 0, 1, NULL, s, u, v, &err), err);
            run_one(&t);
            const af_tensor *right = state_of(&t, "optimizer.0.right"),
                            *left = state_of(&t, "optimizer.0.left");
            for (int k = 0; k < RANK; k++) {
                double of_v = 0, of_u = 0;
                for (int64_t i = 0; i < C; i++)
                    of_v += v[k * C + i] * af_ld(right, i * RANK + k);
                for (int64_t i = 0; i < R; i++)
                    of_u += u[k * R + i] * af_ld(left, i * RANK + k);
                worst = worse(worst, worse(1 - fabs(of_u), 1 - fabs(of_v)));
            }
            CHECK_MSG(worst < 3e-7, "case %zu.%d: %.3g", c, twin, worst);
            CHECK_MSG(worse(skew(left, RANK), skew(right, RANK)) < 3e-7, "case %zu: %.3g", c,
                      worse(skew(left, RANK), skew(right, RANK)));
            close_one(&t);
            free(x);
            free(u);
            free(v);
        }
}

/* Of a gradient of few directions, none at all, or one that is not finite the projections are
 * orthonormal too, and the next step learns. */
static void test_projections_are_whole_whatever_the_gradient(void **state)
{
    (void)state;
    enum { RANK = 12 };
    for (size_t c = 0; c < AF_LEN(dims); c++)
        for (int i = 0; i < 6; i++) {
            const af_optimizer_opts o = other(AF_PROJECTION_FULL, RANK, 200, 1);
            double moved = 0;
            one t;
            open_one(&t, &o, i % 2, 2, dims[c]);
            set_gradient(&t, i < 2 ? 3 : 0, 1, 1);
            if (i >= 4)
                af_st(t.x, 5, (double)NAN);
            run_one(&t);
            const double left = skew(state_of(&t, "optimizer.0.left"), RANK),
                         right = skew(state_of(&t, "optimizer.0.right"), RANK);
            CHECK_MSG(worse(left, right) < 3e-7, "case %zu.%d: %.3g, %.3g", c, i, left, right);
            if (i >= 2)
                assert_true(!(af_ld(t.p, 7) < 0) && !(af_ld(t.p, 7) > 0));
            set_gradient(&t, 60, 0.9, 2);
            run_one(&t);
            for (int64_t k = 0; k < af_count(t.p); k++)
                moved = worse(moved, fabs(af_ld(t.p, k)));
            CHECK_MSG(moved > 1e-5, "case %zu.%d: %.3g", c, i, moved);
            close_one(&t);
        }
}

/* A later gradient that is not finite changes nothing, projections included, though they were due;
 * those of a finite one point as the ones before. */
static void test_projections_stay_and_keep_their_signs(void **state)
{
    (void)state;
    enum { RANK = 12 };
    for (int twin = 0; twin < 2; twin++) {
        af_optimizer_opts o = other(AF_PROJECTION_STD, RANK, 1, 1);
        one t;
        o.weight_decay = 0;
        open_one(&t, &o, twin, 2, dims[0]);
        set_gradient(&t, 60, 0.7, 1);
        run_one(&t);
        const af_tensor *right = state_of(&t, "optimizer.0.right");
        double before[77 * RANK], w = af_ld(t.p, 3);
        for (int i = 0; i < 77 * RANK; i++)
            before[i] = af_ld(right, i);
        af_st(t.x, 5, (double)INFINITY);
        run_one(&t);
        for (int i = 0; i < 77 * RANK; i++)
            assert_true(!(af_ld(right, i) < before[i]) && !(af_ld(right, i) > before[i]));
        assert_true(!(af_ld(t.p, 3) < w) && !(af_ld(t.p, 3) > w));
        set_gradient(&t, 60, 0.7, 1);
        for (int64_t i = 0; i < af_count(t.x); i++) /* the same vectors, the other way */
            af_st(t.x, i, -2 * af_ld(t.x, i));
        run_one(&t);
        for (int k = 0; k < RANK; k++) {
            double along = 0;
            for (int i = 0; i < 77; i++)
                along += before[i * RANK + k] * af_ld(right, i * RANK + k);
            CHECK_MSG(along > 0.99999, "vector %d: %.3g", k, along);
        }
        close_one(&t);
    }
}

/* Between renewals projections are left alone; another seed iterates from elsewhere. */
static void test_projections_change_after_the_gap(void **state)
{
    (void)state;
    static const bool changes[] = {true, false, false, true, false};
    const af_optimizer_opts o = other(AF_PROJECTION_STD, 4, 3, 1);
    float last[77 * 4] = {0};
    one t;
    open_one(&t, &o, false, 2, dims[0]);
    const af_tensor *right = state_of(&t, "optimizer.0.right");
    for (int s = 0; s < (int)AF_LEN(changes); s++) {
        set_gradient(&t, 60, 0.7, s + 1);
        run_one(&t);
        assert_int_equal(af_tensor_bytes(right), sizeof last);
        assert_int_equal(memcmp(last, right->data, sizeof last) != 0, changes[s]);
        memcpy(last, right->data, sizeof last);
    }
    close_one(&t);
}

/* ---- parameters in bf16 ---- */

/* `parts`: two matrices in one parameter, the second of which begins at an odd place. */
static void open_bf16(one *t, af_rounding rounding, af_dtype type, int threads, bool parts)
{
    static const int64_t whole[] = {150, 77}, flat[] = {2 * 35 * 33},
                         part[2][2] = {{35, 33}, {33, 35}};
    af_optimizer_opts o = other(AF_PROJECTION_STD, 6, 2, 1);
    af_error err = {0};
    o.rounding = type == AF_DTYPE_BF16 ? rounding : AF_ROUNDING_NEAREST;
    CHECK_OK(af_graph_new(&t->g, &err), err);
    CHECK_OK(af_cpu_open(&t->d, threads, &err), err);
    t->p = af_graph_param(t->g, "p", type, parts ? 1 : 2, parts ? flat : whole);
    t->x = af_graph_input(t->g, "x", AF_DTYPE_F32, parts ? 1 : 2, parts ? flat : whole);
    if (parts)
        af_param_parts(t->g, t->p, 2, part);
    af_tensor *w = type == AF_DTYPE_BF16 ? af_cast(t->g, t->p, AF_DTYPE_F32) : t->p;
    af_graph_backward(t->g, af_sum_all(t->g, af_mul(t->g, w, t->x)));
    af_graph_optimizer(t->g, &o);
    CHECK_OK(af_graph_prepare(t->g, t->d, &err), err);
    af_graph_set_learning_rate(t->g, 0.01);
    for (int64_t i = 0; i < af_count(t->p); i++)
        af_st(t->p, i, (double)af_bf16_up(af_bf16_down((float)formula(i, 1, 0))));
}

/* Gradients that a cast to bf16 and back leaves as they are. */
static void step_bf16(one *t, int s)
{
    for (int64_t i = 0; i < af_count(t->x); i++) {
        const double x = formula(i / 77, 2, s) * formula(i % 77, 5, s) + 0.1 * formula(i, 8, s);
        af_st(t->x, i, (double)af_bf16_up(af_bf16_down((float)x)));
    }
    run_one(t);
}

/* The kept rest of element i, of the states of the matrices in order. */
static double rest_of(const one *t, bool parts, int64_t i)
{
    const int64_t first = parts ? 35 * 33 : af_count(t->p);
    return i < first ? af_ld(state_of(t, "optimizer.0.rest"), i)
                     : af_ld(state_of(t, "optimizer.1.rest"), i - first);
}

/* Next to f32 parameters with the same gradients, after one step and, with what is kept, three. */
static void test_parameters_in_bf16(void **state)
{
    (void)state;
    for (int c = 0; c < 6; c++) {
        const af_rounding rounding = (af_rounding)(c / 2);
        const bool parts = c % 2;
        double bias = 0, worst = 0;
        int64_t up = 0, n;
        one t[3];
        open_bf16(&t[0], rounding, AF_DTYPE_F32, 2, parts);
        open_bf16(&t[1], rounding, AF_DTYPE_BF16, 1, parts);
        open_bf16(&t[2], rounding, AF_DTYPE_BF16, 3, parts);
        n = af_count(t[0].p);
        for (int k = 0; k < 3; k++)
            step_bf16(&t[k], 1);
        for (int64_t i = 0; i < n; i++) {
            const float exact = (float)af_ld(t[0].p, i), got = (float)af_ld(t[1].p, i);
            const float near = af_bf16_up(af_bf16_down(exact)), ulp = fabsf(exact) / 128;
            up += got > exact;
            bias += (double)((got - exact) / ulp);
            CHECK_MSG(rounding == AF_ROUNDING_STOCHASTIC ? fabsf(got - exact) < ulp
                                                         : memcmp(&got, &near, sizeof got) == 0,
                      "case %d, %d: %.9g, not %.9g", c, (int)i, (double)got, (double)exact);
        }
        CHECK_MSG(fabs(bias) / (double)n < 0.02 && up > n / 3 && up < 2 * n / 3,
                  "case %d: %.3g, %d of %d up", c, bias / (double)n, (int)up, (int)n);
        for (int s = 2; s <= 3; s++)
            for (int k = 0; k < 3; k++)
                step_bf16(&t[k], s);
        for (int64_t i = 0; i < n && rounding == AF_ROUNDING_KAHAN; i++)
            worst =
                worse(worst, fabs(af_ld(t[1].p, i) + rest_of(&t[1], parts, i) - af_ld(t[0].p, i)));
        CHECK_MSG(worst < 4e-5, "case %d: %.3g", c, worst);
        assert_memory_equal(t[1].p->data, t[2].p->data, af_tensor_bytes(t[1].p));
        for (int k = 0; k < 3; k++)
            close_one(&t[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_updates_are_those_of_the_package),
        cmocka_unit_test(test_other_parameters_learn_with_adamw),
        cmocka_unit_test(test_a_resumed_run_has_the_same_bits),
        cmocka_unit_test(test_matrices_of_one_parameter),
        cmocka_unit_test(test_large_matrices_in_f32_are_those_of_the_twin),
        cmocka_unit_test(test_vectors_are_those_of_the_gradient),
        cmocka_unit_test(test_projections_are_whole_whatever_the_gradient),
        cmocka_unit_test(test_projections_stay_and_keep_their_signs),
        cmocka_unit_test(test_projections_change_after_the_gap),
        cmocka_unit_test(test_parameters_in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
