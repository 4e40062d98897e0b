/* test_bf16_weights.c - parameters in bf16: the three roundings of bf16_weights.h against formulas
 * in double, on the twin's path and the fast one, in any number of threads and shards. */
#include "test.h"

#include "backend/cpu/cpu.h"
#include "base/rng.h"
#include "graph/graph_access.h"
#include "ops/optim/optimizer.h"
#include "tensor/half.h"

#include <math.h>

enum { N = 1200, STEPS = 5 };
static const double LR = 1e-3;

typedef struct setup {
    af_dtype type;
    af_optimizer_kind kind;
    af_rounding rounding;
    uint64_t seed;
    int threads, rank, ranks;
    bool uncorrected;
} setup;

typedef struct one_param {
    af_graph *g;
    af_device *d;
    af_tensor *w, *x;
} one_param;

static double formula(int64_t i, int64_t step)
{
    return (double)((i * 7919 + step * 104729) % 2001 - 1000) / 1000.0;
}

static double start(int64_t i)
{
    return (double)af_f32_from_bf16(af_bf16_from_f32((float)formula(i, 0)));
}

static void open_param(one_param *t, const setup *s)
{
    af_error err = {0};
    CHECK_OK(af_graph_new(&t->g, &err), err);
    CHECK_OK(af_cpu_open(&t->d, s->threads ? s->threads : 2, &err), err);
    t->w = af_graph_param(t->g, "w", s->type, 1, (int64_t[]){N});
    t->x = af_graph_input(t->g, "x", AF_DTYPE_F32, 1, (int64_t[]){N});
    af_tensor *w = s->type == AF_DTYPE_BF16 ? af_cast(t->g, t->w, AF_DTYPE_F32) : t->w;
    af_graph_backward(t->g, af_sum_all(t->g, af_mul(t->g, w, t->x)));
    if (s->ranks)
        af_graph_set_shard(t->g, s->rank, s->ranks, AF_SHARD_STATE);
    af_graph_optimizer(t->g, &(af_optimizer_opts){.kind = s->kind,
                                                  .weight_decay = 0.1,
                                                  .rounding = s->rounding,
                                                  .seed = s->seed,
                                                  .uncorrected = s->uncorrected});
    CHECK_OK(af_graph_prepare(t->g, t->d, &err), err);
    af_graph_set_learning_rate(t->g, LR);
    for (int64_t i = 0; i < N; i++)
        af_st(t->w, i, start(i));
}

static void close_param(one_param *t)
{
    af_graph_free(t->g);
    af_device_close(t->d);
}

/* A gradient that is not finite in step `bad` (none: -1). */
static void run_steps(one_param *t, int steps, int bad)
{
    for (int s = 1; s <= steps; s++) {
        af_error err = {0};
        for (int64_t i = 0; i < N; i++)
            af_st(t->x, i, s == bad && i == 7 ? INFINITY : formula(i, s));
        CHECK_OK(af_graph_run(t->g, AF_RUN_STEP, &err), err);
    }
}

/* AdamW in double, by its formulas; `round` after each step. */
static void reference(double *w, int steps, void (*round)(double *, int64_t, int), bool uncorrected,
                      int64_t i)
{
    double m = 0, v = 0;
    for (int s = 1; s <= steps; s++) {
        const double g = formula(i, s);
        m = 0.9 * m + 0.1 * g;
        v = 0.999 * v + 0.001 * g * g;
        *w -= LR * 0.1 * *w;
        const double c1 = uncorrected ? 1 : 1 - pow(0.9, s);
        const double c2 = uncorrected ? 1 : 1 - pow(0.999, s);
        *w -= LR * (m / c1) / (sqrt(v / c2) + 1e-8);
        if (round)
            round(w, i, s);
    }
}

static void to_nearest(double *w, int64_t i, int step)
{
    (void)i, (void)step;
    *w = (double)af_f32_from_bf16(af_bf16_from_f32((float)*w));
}

/* Between the neighbours below and above in size: up when the part that is cut off is more than the
 * random number leaves. */
static void by_chance(double *w, int64_t i, int step)
{
    int e;
    frexp(*w, &e);
    const double unit = ldexp(1, e - 8), low = floor(fabs(*w) / unit) * unit;
    const uint32_t word = af_rng_u32(42, AF_ROUNDING_STREAM + (uint64_t)step, (uint64_t)i / 2);
    const double r = (double)(i % 2 ? word >> 16 : word & 0xffff) / 65536;
    *w = copysign((fabs(*w) - low) / unit + r >= 1 ? low + unit : low, *w);
}

static void test_values_are_those_of_the_formulas(void **state)
{
    (void)state;
    static const struct {
        af_rounding rounding;
        void (*round)(double *, int64_t, int);
        double most; /* of a value; rounding may fall on the other side where f32 is on an edge */
        int others;
        bool uncorrected;
    } cases[] = {{AF_ROUNDING_NEAREST, to_nearest, 0, 6, false},
                 {AF_ROUNDING_STOCHASTIC, by_chance, 0, 6, false},
                 {AF_ROUNDING_STOCHASTIC, by_chance, 0, 40, true}, /* larger steps */
                 {AF_ROUNDING_KAHAN, NULL, 0x1p-8, 6, false}};
    for (size_t c = 0; c < AF_LEN(cases); c++) {
        one_param t;
        open_param(&t, &(setup){.type = AF_DTYPE_BF16,
                                .kind = AF_OPTIMIZER_ADAMW,
                                .rounding = cases[c].rounding,
                                .seed = 42,
                                .uncorrected = cases[c].uncorrected});
        run_steps(&t, STEPS, -1);
        int others = 0;
        for (int64_t i = 0; i < N; i++) {
            double w = start(i);
            reference(&w, STEPS, cases[c].round, cases[c].uncorrected, i);
            const double off = fabs(af_ld(t.w, i) - w), size = fmax(fabs(w), 1e-3);
            others += off > cases[c].most * size;
            CHECK_MSG(off <= fmax(size, 2e-3) * 0x1p-6, "rounding %zu, element %d: %.9g, not %.9g",
                      c, (int)i, af_ld(t.w, i), w);
        }
        CHECK_MSG(others <= cases[c].others, "rounding %zu: %d of %d values differ", c, others, N);
        close_param(&t);
    }
}

/* The largest distance from AdamW in double after many steps of one sign, far below half a step of
 * bf16 each. */
static double drift(af_rounding rounding, af_optimizer_kind kind, double *mean)
{
    one_param t;
    double worst = 0;
    open_param(&t, &(setup){.type = AF_DTYPE_BF16, .kind = kind, .rounding = rounding, .seed = 42});
    af_graph_set_learning_rate(t.g, 1e-5);
    for (int64_t i = 0; i < N; i++)
        af_st(t.w, i, 1);
    for (int s = 0; s < 100; s++) {
        af_error err = {0};
        for (int64_t i = 0; i < N; i++)
            af_st(t.x, i, 1);
        CHECK_OK(af_graph_run(t.g, AF_RUN_STEP, &err), err);
    }
    *mean = 0;
    const double want = pow(1 - 1e-6, 100) - 1e-3; /* decay, and 1e-5 per step */
    for (int64_t i = 0; i < N; i++) {
        worst = fmax(worst, fabs(af_ld(t.w, i) - want));
        *mean += (af_ld(t.w, i) - want) / N;
    }
    close_param(&t);
    return worst;
}

static void test_small_updates_are_not_lost(void **state)
{
    (void)state;
    static const af_optimizer_kind kinds[] = {AF_OPTIMIZER_ADAMW, AF_OPTIMIZER_ADAM};
    for (size_t k = 0; k < AF_LEN(kinds); k++) {
        double mean;
        assert_true(drift(AF_ROUNDING_NEAREST, kinds[k], &mean) > 1e-3 - 1e-6); /* none came */
        assert_true(mean > 0.9e-3);
        /* each within a few steps of bf16 below 1 (0.0039), all together where they belong */
        assert_true(drift(AF_ROUNDING_STOCHASTIC, kinds[k], &mean) < 0x1p-6);
        CHECK_MSG(fabs(mean) < 2e-4, "mean %.3g", mean);
        assert_true(drift(AF_ROUNDING_KAHAN, kinds[k], &mean) < 0x1p-9);
    }
}

/* What the second number of Kahan's sum holds: both together are within 2^-16 of f32's value. */
static void test_rest_keeps_what_is_cut_off(void **state)
{
    (void)state;
    one_param t, f;
    open_param(
        &t,
        &(setup){.type = AF_DTYPE_BF16, .kind = AF_OPTIMIZER_ADAMW, .rounding = AF_ROUNDING_KAHAN});
    open_param(&f, &(setup){.type = AF_DTYPE_F32, .kind = AF_OPTIMIZER_ADAMW});
    run_steps(&t, 1, -1);
    run_steps(&f, 1, -1);
    const af_tensor *rest = NULL;
    for (int i = 0; i < t.g->n_tensors; i++)
        if (strstr(t.g->tensors[i]->name, ".rest"))
            rest = t.g->tensors[i];
    assert_non_null(rest);
    for (int64_t i = 0; i < N; i++) {
        const double sum = af_ld(t.w, i) + af_ld(rest, i), want = af_ld(f.w, i);
        CHECK_MSG(fabs(sum - want) <= fabs(want) * 0x1p-16 + 1e-9, "element %d: %.9g, not %.9g",
                  (int)i, sum, want);
    }
    close_param(&t);
    close_param(&f);
}

static void check_bits(const one_param *a, const one_param *b, int64_t from, int64_t to)
{
    assert_memory_equal((const uint16_t *)a->w->data + from, (const uint16_t *)b->w->data + from,
                        (size_t)(to - from) * sizeof(uint16_t));
}

static void test_threads_and_shards_do_not_matter(void **state)
{
    (void)state;
    static const af_optimizer_kind kinds[] = {AF_OPTIMIZER_ADAMW, AF_OPTIMIZER_ADAMW_8BIT};
    for (int c = 0; c < 4; c++) {
        const setup s = {.type = AF_DTYPE_BF16,
                         .kind = kinds[c % 2],
                         .rounding = c / 2 ? AF_ROUNDING_KAHAN : AF_ROUNDING_STOCHASTIC,
                         .seed = 42,
                         .threads = 1};
        one_param whole, other;
        open_param(&whole, &s);
        run_steps(&whole, STEPS, -1);
        setup three = s;
        three.threads = 3;
        open_param(&other, &three);
        run_steps(&other, STEPS, -1);
        check_bits(&whole, &other, 0, N);
        close_param(&other);
        for (int r = 0; r < 2; r++) {
            setup shard = s;
            shard.ranks = 2;
            shard.rank = r;
            open_param(&other, &shard);
            run_steps(&other, STEPS, -1);
            const int64_t *cut = af_graph_cuts(other.g);
            assert_true(cut[r] < cut[r + 1]);
            check_bits(&whole, &other, cut[r], AF_MIN(cut[r + 1], N));
            close_param(&other);
        }
        close_param(&whole);
    }
}

static void test_seed_and_update_matter(void **state)
{
    (void)state;
    setup s = {.type = AF_DTYPE_BF16,
               .kind = AF_OPTIMIZER_ADAMW,
               .rounding = AF_ROUNDING_STOCHASTIC,
               .seed = 42};
    one_param a, b;
    open_param(&a, &s);
    run_steps(&a, 1, -1);
    for (int later = 0; later < 2; later++) { /* another seed; update 1 with the numbers of 9 */
        s.seed = later ? 42 : 43;
        open_param(&b, &s);
        if (later)
            af_graph_set_step(b.g, 9);
        run_steps(&b, 1, -1);
        assert_memory_not_equal(a.w->data, b.w->data, N * sizeof(uint16_t));
        close_param(&b);
    }
    close_param(&a);
}

static void test_step_that_is_not_finite_changes_nothing(void **state)
{
    (void)state;
    for (int r = AF_ROUNDING_NEAREST; r <= AF_ROUNDING_KAHAN; r++) {
        one_param t;
        open_param(&t, &(setup){.type = AF_DTYPE_BF16,
                                .kind = AF_OPTIMIZER_ADAMW,
                                .rounding = (af_rounding)r,
                                .seed = 42});
        run_steps(&t, 1, 1);
        for (int64_t i = 0; i < N; i++)
            assert_true(af_ld(t.w, i) == start(i));
        close_param(&t);
    }
}

static void check_refused(af_dtype type, af_optimizer_kind kind, af_rounding r, const char *why)
{
    af_graph *g;
    af_error err = {0};
    CHECK_OK(af_graph_new(&g, &err), err);
    af_tensor *w = af_graph_param(g, "weights", type, 1, (int64_t[]){8});
    af_graph_backward(g, af_sum_all(g, af_cast(g, w, AF_DTYPE_F32)));
    af_graph_optimizer(g, &(af_optimizer_opts){.kind = kind, .rounding = r});
    assert_int_equal(af_graph_status(g, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, why), "'%s'", err.msg);
    af_graph_free(g);
}

static void test_refused(void **state)
{
    (void)state;
    check_refused(AF_DTYPE_BF16, AF_OPTIMIZER_LION, AF_ROUNDING_NEAREST, "bf16 parameters");
    check_refused(AF_DTYPE_BF16, AF_OPTIMIZER_MUON, AF_ROUNDING_KAHAN, "bf16 parameters");
    check_refused(AF_DTYPE_F32, AF_OPTIMIZER_ADAMW, AF_ROUNDING_KAHAN, "'weights' is f32");
    check_refused(AF_DTYPE_BF16, AF_OPTIMIZER_ADAMW, (af_rounding)3, "rounding 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_those_of_the_formulas),
        cmocka_unit_test(test_small_updates_are_not_lost),
        cmocka_unit_test(test_rest_keeps_what_is_cut_off),
        cmocka_unit_test(test_threads_and_shards_do_not_matter),
        cmocka_unit_test(test_seed_and_update_matter),
        cmocka_unit_test(test_step_that_is_not_finite_changes_nothing),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
