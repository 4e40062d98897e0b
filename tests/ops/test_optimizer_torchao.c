/* test_optimizer_torchao.c - 4-bit and 8-bit AdamW against torchao, and Muon against its formulas
 * in float64 (tests/golden/ops/make_torchao.py). */
#include "test.h"

#include "backend/cpu/cpu.h"
#include "ops/optim/optimizer.h"
#include "worse.h"

#include <math.h>

/* As in test_optimizer.c. */
static float formula(int64_t i, int64_t k, int64_t step)
{
    return (float)((double)((i * 7919 + step * 104729 + k * 15485863) % 2001 - 1000) / 1000.0);
}

static void *load(const char *name, const char *end, size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/ops/%s.%s", golden_dir(), name, end);
    FILE *f = fopen(path, "rb");
    CHECK_MSG(f, "cannot open %s", path);
    void *data = malloc(bytes);
    CHECK_MSG(fread(data, 1, bytes, f) == bytes && fgetc(f) == EOF, "%s is not %zu bytes", path,
              bytes);
    fclose(f);
    return data;
}

typedef struct one_param {
    af_graph *g;
    af_device *d;
    af_tensor *p, *v, *x, *y; /* v, y: a vector next to it */
} one_param;

static void open_param(one_param *t, const af_optimizer_opts *o, int64_t rows, int64_t cols,
                       int64_t vector, bool twin)
{
    const af_dtype type = twin ? AF_DTYPE_F64 : AF_DTYPE_F32;
    const int64_t dim[2] = {rows, cols};
    af_error err = {0};
    CHECK_OK(af_graph_new(&t->g, &err), err);
    CHECK_OK(af_cpu_open(&t->d, 2, &err), err);
    t->p = af_graph_param(t->g, "p", type, 2, dim);
    t->x = af_graph_input(t->g, "x", type, 2, dim);
    t->v = af_graph_param(t->g, "v", type, 1, &vector);
    t->y = af_graph_input(t->g, "y", type, 1, &vector);
    af_graph_backward(t->g, af_add(t->g, af_sum_all(t->g, af_mul(t->g, t->p, t->x)),
                                   af_sum_all(t->g, af_mul(t->g, t->v, t->y))));
    af_graph_optimizer(t->g, o);
    CHECK_OK(af_graph_prepare(t->g, t->d, &err), err);
    af_graph_set_learning_rate(t->g, 0.01);
    for (int64_t i = 0; i < rows * cols; i++)
        af_st(t->p, i, formula(i, 0, 0));
    for (int64_t i = 0; i < vector; i++)
        af_st(t->v, i, formula(i, 1, 0));
}

static void close_param(one_param *t)
{
    af_graph_free(t->g);
    af_device_close(t->d);
}

static const uint8_t *codes_of(const af_graph *g, const char *name)
{
    for (int i = 0; i < g->n_tensors; i++)
        if (strstr(g->tensors[i]->name, name))
            return g->tensors[i]->data;
    fail_msg("no state '%s'", name);
    return NULL;
}

/* Codes that differ; none by more than a step. */
static int differing(const uint8_t *a, const uint8_t *b, int n, bool four)
{
    int off = 0;
    for (int i = 0; i < n; i++) {
        const int high = four ? abs((a[i] >> 4) - (b[i] >> 4)) : abs(a[i] - b[i]);
        const int low = four ? abs((a[i] & 15) - (b[i] & 15)) : 0;
        CHECK_MSG(high <= 1 && low <= 1, "codes %d and %d of byte %d", a[i], b[i], i);
        off += (high != 0) + (low != 0);
    }
    return off;
}

static void check_low_bit(const char *golden, af_optimizer_kind kind, bool four)
{
    enum { N = 34 * 128, STEPS = 5 };
    static const float size[] = {1, 0.125f, 0.015625f, 0.001953125f};
    const int bytes = four ? N / 2 : N;
    af_error err = {0};
    float *want = load(golden, "f32", N * sizeof(float));
    uint8_t *codes = load(golden, "u8", 2 * (size_t)bytes);
    for (int twin = 0; twin < 2; twin++) {
        one_param t;
        open_param(&t, &(af_optimizer_opts){.kind = kind, .weight_decay = 0.1}, 34, 128, 5, twin);
        for (int s = 1; s <= STEPS; s++) {
            for (int i = 0; i < N; i++)
                af_st(t.x, i, formula(i, 2, s) * size[i % 4]);
            CHECK_OK(af_graph_run(t.g, AF_RUN_STEP, &err), err);
        }
        int off = 0;
        for (int i = 0; i < N; i++)
            off += fabs(af_ld(t.p, i) - (double)want[i]) > 1e-6;
        const int flipped =
            differing(codes_of(t.g, four ? ".m4" : ".m8"), codes, bytes, four) +
            differing(codes_of(t.g, four ? ".v4" : ".v8"), codes + bytes, bytes, four);
        /* a value on the border of two codes may round to either */
        CHECK_MSG(off <= 8 && flipped <= 8, "%s (%s): %d values and %d codes differ", golden,
                  twin ? "f64" : "f32", off, flipped);
        close_param(&t);
    }
    free(want);
    free(codes);
}

static void test_4bit_adamw_is_torchaos(void **state)
{
    (void)state;
    check_low_bit("adamw-4bit", AF_OPTIMIZER_ADAMW_4BIT, true);
}

static void test_8bit_adamw_is_torchaos(void **state)
{
    (void)state;
    check_low_bit("adamw-torch-8bit", AF_OPTIMIZER_ADAMW_TORCH_8BIT, false);
}

/* torchao leaves what is small, or not whole blocks, in f32; bitsandbytes fills the last block. */
static void test_which_moments_are_coded(void **state)
{
    (void)state;
    static const struct {
        af_optimizer_kind kind;
        int64_t cols;
        bool coded;
    } cases[] = {
        {AF_OPTIMIZER_ADAMW_4BIT, 4096, true},        {AF_OPTIMIZER_ADAMW_4BIT, 4096 + 64, false},
        {AF_OPTIMIZER_ADAMW_4BIT, 3968, false},       {AF_OPTIMIZER_ADAMW_TORCH_8BIT, 4352, true},
        {AF_OPTIMIZER_ADAMW_TORCH_8BIT, 4224, false}, {AF_OPTIMIZER_ADAMW_8BIT, 4224, true},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        one_param t;
        bool coded = false;
        open_param(&t, &(af_optimizer_opts){.kind = cases[i].kind}, 1, cases[i].cols, 4, false);
        for (int k = 0; k < t.g->n_tensors; k++)
            coded |= strstr(t.g->tensors[k]->name, ".m_scale") != NULL;
        CHECK_MSG(coded == cases[i].coded, "case %zu", i);
        close_param(&t);
    }
}

/* A matrix of whole blocks after one that ends inside a block: its codes are its own, without the
 * gap up to the next parameter. */
static void test_blocks_of_a_later_part(void **state)
{
    (void)state;
    enum { FIRST = 65 * 64, SECOND = 64 * 64, N = FIRST + SECOND };
    const int64_t n = N, part[2][2] = {{65, 64}, {64, 64}};
    af_error err = {0};
    af_graph *g = NULL;
    af_device *d = NULL;
    CHECK_OK(af_graph_new(&g, &err), err);
    CHECK_OK(af_cpu_open(&d, 2, &err), err);
    af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F32, 1, &n);
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 1, &n);
    af_param_parts(g, p, 2, part);
    af_graph_backward(g, af_sum_all(g, af_mul(g, p, x)));
    af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW_4BIT});
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    af_graph_set_learning_rate(g, 0.01);
    for (int i = 0; i < N; i++)
        af_st(x, i, 1);
    CHECK_OK(af_graph_run(g, AF_RUN_STEP, &err), err);
    int coded = 0;
    for (int i = 0; i < g->n_tensors; i++)
        if (strstr(g->tensors[i]->name, ".m4")) {
            assert_int_equal(af_count(g->tensors[i]), SECOND / 2);
            coded++;
        }
    assert_int_equal(coded, 1);
    for (int i = 0; i < N; i++) /* the first step of Adam is the learning rate */
        CHECK_MSG(fabs(af_ld(p, i) + 0.01) < 1e-7, "value %d is %g", i, af_ld(p, i));
    af_graph_free(g);
    af_device_close(d);
}

static void test_muon_orthogonalises(void **state)
{
    (void)state;
    enum { STEPS = 10, A = 3 * 17, B = 65 };
    static const struct {
        const char *golden;
        int64_t rows, cols;
    } cases[] = {{"muon", 3, 17}, {"muon-tall", 17, 3}};
    af_error err = {0};
    for (int i = 0; i < 2 * (int)AF_LEN(cases); i++) {
        one_param t;
        double worst = 0;
        float *want = load(cases[i / 2].golden, "f32", sizeof(float) * STEPS * (A + B));
        open_param(&t, &(af_optimizer_opts){.kind = AF_OPTIMIZER_MUON, .weight_decay = 0.1},
                   cases[i / 2].rows, cases[i / 2].cols, B, i % 2);
        for (int s = 1; s <= STEPS; s++) {
            for (int k = 0; k < A; k++)
                af_st(t.x, k, formula(k, 2, s));
            for (int k = 0; k < B; k++)
                af_st(t.y, k, formula(k, 3, s));
            CHECK_OK(af_graph_run(t.g, AF_RUN_STEP, &err), err);
            const float *row = want + (s - 1) * (A + B);
            for (int k = 0; k < A + B; k++)
                worst = worse(worst,
                              fabs((k < A ? af_ld(t.p, k) : af_ld(t.v, k - A)) - (double)row[k]));
        }
        CHECK_MSG(worst < 1e-6, "%s (%s): %.3g from the original", cases[i / 2].golden,
                  i % 2 ? "f64" : "f32", worst);
        close_param(&t);
        free(want);
    }
}

/* Also where the norm is hardly more than the epsilon that is added to it. */
static void test_muon_in_f32_is_that_of_the_twin(void **state)
{
    (void)state;
    enum { ROWS = 24, COLS = 72, ALL = ROWS * COLS };
    static const double scales[] = {1, 1e-8};
    const af_optimizer_opts o = {.kind = AF_OPTIMIZER_MUON};
    af_error err = {0};
    for (size_t i = 0; i < AF_LEN(scales); i++) {
        one_param t[2];
        double worst = 0, moved = 0;
        for (int twin = 0; twin < 2; twin++) {
            open_param(&t[twin], &o, ROWS, COLS, 4, twin);
            for (int k = 0; k < ALL; k++)
                af_st(t[twin].x, k, (double)(float)(scales[i] * (double)formula(k, 2, 1)));
            CHECK_OK(af_graph_run(t[twin].g, AF_RUN_STEP, &err), err);
        }
        for (int k = 0; k < ALL; k++) {
            worst = worse(worst, fabs(af_ld(t[0].p, k) - af_ld(t[1].p, k)));
            moved = worse(moved, fabs(af_ld(t[1].p, k) - (double)formula(k, 0, 0)));
        }
        CHECK_MSG(worst < 1e-6 && moved > 1e-4, "gradients of %g: %.3g from the twin of %.3g",
                  scales[i], worst, moved);
        close_param(&t[0]);
        close_param(&t[1]);
    }
}

/* All bytes of the matrix and of the states, one after another; malloc'ed. */
static uint8_t *trained_bytes(const one_param *t, uint64_t *size)
{
    uint8_t *out = NULL;
    *size = 0;
    for (int i = 0; i < t->g->n_tensors; i++) {
        const af_tensor *x = t->g->tensors[i];
        if (x != t->p && x->role != AF_ROLE_STATE)
            continue;
        out = realloc(out, *size + af_tensor_bytes(x));
        assert_non_null(out);
        memcpy(out + *size, x->data, af_tensor_bytes(x));
        *size += af_tensor_bytes(x);
    }
    return out;
}

/* Gradients that are not finite change neither a matrix nor its states, in f32 and in the twin. */
static void test_bad_gradients_change_nothing(void **state)
{
    (void)state;
    enum { N = 64 }; /* a matrix whose moments are coded */
    static const af_optimizer_kind kinds[] = {
        AF_OPTIMIZER_MUON,       AF_OPTIMIZER_ADAMW_4BIT,
        AF_OPTIMIZER_ADAMW_8BIT, AF_OPTIMIZER_ADAMW_TORCH_8BIT,
        AF_OPTIMIZER_RMSPROP,    AF_OPTIMIZER_ADEMAMIX};
    af_error err = {0};
    for (size_t k = 0; k < 2 * AF_LEN(kinds); k++) {
        one_param t;
        uint64_t before_size, size;
        open_param(&t, &(af_optimizer_opts){.kind = kinds[k / 2], .weight_decay = 0.1}, N, N, 4,
                   k % 2);
        for (int i = 0; i < N * N; i++)
            af_st(t.x, i, formula(i, 2, 1));
        CHECK_OK(af_graph_run(t.g, AF_RUN_STEP, &err), err);
        uint8_t *before = trained_bytes(&t, &before_size);
        af_st(t.x, 3, k % 2 ? (double)INFINITY : (double)NAN);
        CHECK_OK(af_graph_run(t.g, AF_RUN_STEP, &err), err);
        uint8_t *after = trained_bytes(&t, &size);
        assert_true(size == before_size && size > N * N * sizeof(float));
        CHECK_MSG(memcmp(before, after, size) == 0, "kind %d (%s) has other bytes",
                  (int)kinds[k / 2], k % 2 ? "f64" : "f32");
        free(before);
        free(after);
        close_param(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_4bit_adamw_is_torchaos),
        cmocka_unit_test(test_8bit_adamw_is_torchaos),
        cmocka_unit_test(test_which_moments_are_coded),
        cmocka_unit_test(test_blocks_of_a_later_part),
        cmocka_unit_test(test_muon_orthogonalises),
        cmocka_unit_test(test_muon_in_f32_is_that_of_the_twin),
        cmocka_unit_test(test_bad_gradients_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
