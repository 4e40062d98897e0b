/* test_optimizer.c - every optimizer against the trajectory of the original in Python (see
 * tests/golden/README.md), clipping, bad gradients, accumulation.
 *
 * The gradient of sum(p * x) with respect to p is x: an input sets any gradient. */
#include "test.h"

#include "backend/cpu/cpu.h"
#include "ops/optim/optimizer.h"
#include "optimizer_trainer.h"
#include "tensor/dynamic_map.h"
#include "worse.h"

#include <math.h>

static void test_trajectories_are_those_of_the_originals(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        af_optimizer_opts o;
        bool groups;
    } cases[] = {
        {"sgd.f32", {.kind = AF_OPTIMIZER_SGD, .weight_decay = 0.1}, false},
        {"sgd-momentum.f32",
         {.kind = AF_OPTIMIZER_SGD, .momentum = 0.9, .weight_decay = 0.1},
         false},
        {"sgd-nesterov.f32", {.kind = AF_OPTIMIZER_SGD, .momentum = 0.9, .nesterov = true}, false},
        {"adam.f32", {.kind = AF_OPTIMIZER_ADAM, .weight_decay = 0.1}, false},
        {"adamw.f32", {.kind = AF_OPTIMIZER_ADAMW, .weight_decay = 0.1}, false},
        {"adamw.f32", {.kind = AF_OPTIMIZER_ADAMW_8BIT, .weight_decay = 0.1}, false}, /* small */
        {"adamw-clip.f32",
         {.kind = AF_OPTIMIZER_ADAMW,
          .beta1 = 0.8,
          .beta2 = 0.95,
          .eps = 1e-6,
          .weight_decay = 0.1,
          .max_grad_norm = 0.5},
         false},
        {"adamw-groups.f32", {.kind = AF_OPTIMIZER_ADAMW, .weight_decay = 0.1}, true},
        {"lion.f32", {.kind = AF_OPTIMIZER_LION, .weight_decay = 0.1}, false},
        {"adafactor.f32", {.kind = AF_OPTIMIZER_ADAFACTOR}, false},
        {"rmsprop.f32", {.kind = AF_OPTIMIZER_RMSPROP, .weight_decay = 0.1}, false},
        {"lion.f32", {.kind = AF_OPTIMIZER_LION_8BIT, .weight_decay = 0.1}, false}, /* small */
        {"rmsprop.f32", {.kind = AF_OPTIMIZER_RMSPROP_8BIT, .weight_decay = 0.1}, false},
        {"ademamix.f32", {.kind = AF_OPTIMIZER_ADEMAMIX_8BIT, .weight_decay = 0.1}, false},
        {"ademamix.f32", {.kind = AF_OPTIMIZER_ADEMAMIX, .weight_decay = 0.1}, false},
        {"rmsprop-alpha.f32",
         {.kind = AF_OPTIMIZER_RMSPROP, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.1},
         false},
        {"ademamix-slow.f32",
         {.kind = AF_OPTIMIZER_ADEMAMIX, .slow_beta = 0.99, .slow_share = 2, .weight_decay = 0.1},
         false},
        {"adagrad.f32",
         {.kind = AF_OPTIMIZER_ADAGRAD, .weight_decay = 0.1, .lr_decay = 0.1},
         false},
        {"nadam.f32", {.kind = AF_OPTIMIZER_NADAM, .weight_decay = 0.1}, false},
        {"radam.f32", {.kind = AF_OPTIMIZER_RADAM, .weight_decay = 0.1}, false},
        {"stable-adamw.f32", {.kind = AF_OPTIMIZER_STABLE_ADAMW, .weight_decay = 0.1}, false},
        {"adopt.f32", {.kind = AF_OPTIMIZER_ADOPT, .beta2 = 0.999, .weight_decay = 0.1}, false},
        {"adamw.f32", {.kind = AF_OPTIMIZER_ADAMW_4BIT, .weight_decay = 0.1}, false}, /* small */
        {"adam-mini.f32", {.kind = AF_OPTIMIZER_ADAM_MINI, .weight_decay = 0.1}, false},
        {"adafactor-decay.f32", {.kind = AF_OPTIMIZER_ADAFACTOR, .weight_decay = 0.1}, false},
    };
    for (size_t c = 0; c < AF_LEN(cases); c++) {
        float *want = load(cases[c].file, sizeof(float) * STEPS * ALL);
        for (int f64 = 0; f64 < 2; f64++) {
            trainer t;
            open_trainer(&t, f64 ? AF_DTYPE_F64 : AF_DTYPE_F32, &cases[c].o, cases[c].groups);
            double worst = 0;
            for (int s = 0; s < STEPS; s++) {
                set_gradients(&t, s + 1, 1);
                run(&t, AF_RUN_STEP);
                for (int i = 0; i < ALL; i++)
                    worst = worse(worst, fabs(value(&t, i) - (double)want[s * ALL + i]));
            }
            /* values up to 1: a few roundings of f32 apart, after ten steps */
            CHECK_MSG(worst < 4e-7, "%s (%s): %.3g from the original", cases[c].file,
                      f64 ? "f64" : "f32", worst);
            close_trainer(&t);
        }
        free(want);
    }
}

static void test_dynamic_maps_are_bitsandbytes(void **state)
{
    (void)state;
    float *want = load("dynamic-maps.f32", 2 * AF_DYNAMIC_CODES * sizeof(float));
    float map[AF_DYNAMIC_CODES];
    for (int k = 0; k < 2; k++) {
        af_dynamic_map(map, k == 0);
        assert_memory_equal(map, want + k * AF_DYNAMIC_CODES, sizeof map);
        for (int i = 0; i < AF_DYNAMIC_CODES; i++)
            assert_int_equal(af_dynamic_code(map, map[i]), i);
    }
    free(want);
}

static void test_8bit_adam_is_bitsandbytes(void **state)
{
    (void)state;
    enum { N = 13 * 321 };
    static const float size[] = {1, 0.125f, 0.015625f, 0.001953125f};
    af_graph *g;
    af_device *d;
    open_graph(&g, &d, 2);
    af_tensor *small = af_graph_param(g, "small", AF_DTYPE_F32, 1, (int64_t[]){5});
    af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F32, 2, (int64_t[]){13, 321});
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){13, 321});
    af_tensor *loss = af_add(g, af_sum_all(g, af_mul(g, p, x)), af_sum_all(g, small));
    learn(g, d, loss, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW_8BIT, .weight_decay = 0.1});
    for (int i = 0; i < N; i++)
        af_st(p, i, formula(i, 0, 0));
    for (int s = 1; s <= 5; s++) {
        for (int i = 0; i < N; i++)
            af_st(x, i, formula(i, 2, s) * size[i % 4]);
        run_graph(g, AF_RUN_STEP);
    }
    float *want = load("adamw-8bit.f32", N * sizeof(float));
    uint8_t *codes = load("adamw-8bit.u8", 2 * N);
    const uint8_t *m8 = NULL, *v8 = NULL;
    for (int i = 0; i < g->n_tensors; i++) {
        const char *name = g->tensors[i]->name;
        if (strcmp(name, "optimizer.1.m8") == 0)
            m8 = g->tensors[i]->data;
        if (strcmp(name, "optimizer.1.v8") == 0)
            v8 = g->tensors[i]->data;
    }
    assert_non_null(m8);
    assert_non_null(v8);
    int off = 0, flipped = 0;
    for (int i = 0; i < N; i++) {
        off += fabs(af_ld(p, i) - (double)want[i]) > 1e-6;
        flipped += (m8[i] != codes[i]) + (v8[i] != codes[N + i]);
        CHECK_MSG(abs(m8[i] - codes[i]) <= 1 && abs(v8[i] - codes[N + i]) <= 1, "code %d", i);
    }
    /* a value on the border of two codes may round to either */
    CHECK_MSG(off <= 4 && flipped <= 8, "%d values and %d codes differ", off, flipped);
    free(want);
    free(codes);
    close_graph(g, d);
}

/* `norm` is cut to `limit`; the epsilon of 1e-6 is added to the norm, as PyTorch does. */
static void check_cut(double limit, double norm_wanted)
{
    trainer t;
    open_trainer(&t, AF_DTYPE_F64,
                 &(af_optimizer_opts){.kind = AF_OPTIMIZER_SGD, .max_grad_norm = limit}, false);
    set_gradients(&t, 1, 1);
    double sum = 0, norm;
    bool finite;
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < af_count(t.x[k]); i++)
            sum += af_ld(t.x[k], i) * af_ld(t.x[k], i);
    const double factor = norm_wanted / sqrt(sum);
    set_gradients(&t, 1, factor);
    run(&t, AF_RUN_STEP);
    af_error err = {0};
    CHECK_OK(af_graph_grad_norm(t.g, &norm, &finite, &err), err);
    assert_true(finite);
    assert_true(fabs(norm - norm_wanted) < 1e-6 * norm_wanted); /* before clipping */
    const double moved = formula(0, 0, 0) - value(&t, 0), g = formula(0, 2, 1) * factor;
    const double want = 0.01 * g * limit / (norm_wanted + 1e-6);
    CHECK_MSG(fabs(moved - want) < 1e-6 * fabs(want) + 1e-15, "norm %g, limit %g: %g, not %g",
              norm_wanted, limit, moved, want);
    close_trainer(&t);
}

static void test_a_norm_above_the_limit_is_cut_to_it(void **state)
{
    (void)state;
    check_cut(1, 10);
    check_cut(1e-5, 1e-4); /* here the epsilon is 1 % of the norm */
}

/* The first tensor of the optimizer's state, or NULL. */
static const af_tensor *moments_of(const af_graph *g)
{
    for (int i = 0; i < g->n_tensors; i++)
        if (g->tensors[i]->role == AF_ROLE_STATE)
            return g->tensors[i];
    return NULL;
}

static void test_a_bad_gradient_changes_nothing_but_the_gradients(void **state)
{
    (void)state;
    static const af_optimizer_kind kinds[] = {AF_OPTIMIZER_SGD,     AF_OPTIMIZER_ADAMW,
                                              AF_OPTIMIZER_LION,    AF_OPTIMIZER_ADAFACTOR,
                                              AF_OPTIMIZER_ADAGRAD, AF_OPTIMIZER_STABLE_ADAMW,
                                              AF_OPTIMIZER_ADOPT,   AF_OPTIMIZER_ADAM_MINI};
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < AF_LEN(kinds); k++)
        for (size_t b = 0; b < AF_LEN(bad); b++) {
            trainer t;
            open_trainer(
                &t, AF_DTYPE_F32,
                &(af_optimizer_opts){.kind = kinds[k], .weight_decay = 0.1, .max_grad_norm = 1},
                false);
            set_gradients(&t, 1, 1);
            run(&t, AF_RUN_STEP);
            double before[ALL], norm;
            bool finite;
            for (int i = 0; i < ALL; i++)
                before[i] = value(&t, i);
            const af_tensor *state_of = moments_of(t.g);
            const uint64_t bytes = state_of ? af_tensor_bytes(state_of) : 0;
            uint8_t *moments = malloc(bytes + 1);
            if (state_of)
                memcpy(moments, state_of->data, bytes);
            af_st(t.x[1], 7, bad[b]);
            run(&t, AF_RUN_STEP);
            af_error err = {0};
            CHECK_OK(af_graph_grad_norm(t.g, &norm, &finite, &err), err);
            assert_false(finite);
            for (int i = 0; i < ALL; i++)
                assert_true(before[i] == value(&t, i));
            if (state_of)
                assert_memory_equal(moments, state_of->data, bytes);
            for (int64_t i = 0; i < af_count(t.g->grads_flat); i++)
                assert_true(af_ld(t.g->grads_flat, i) == 0);
            set_gradients(&t, 2, 1); /* and the next step works */
            run(&t, AF_RUN_STEP);
            CHECK_OK(af_graph_grad_norm(t.g, &norm, &finite, &err), err);
            assert_true(finite && value(&t, 0) != before[0]);
            free(moments);
            close_trainer(&t);
        }
}

static void test_gradients_of_two_micro_batches_add_up(void **state)
{
    (void)state;
    trainer one, two;
    const af_optimizer_opts o = {.kind = AF_OPTIMIZER_ADAMW, .weight_decay = 0.01};
    open_trainer(&one, AF_DTYPE_F64, &o, false);
    open_trainer(&two, AF_DTYPE_F64, &o, false);
    for (int s = 1; s < 4; s++) {
        for (int k = 0; k < 2; k++)
            for (int64_t i = 0; i < af_count(one.x[k]); i++)
                af_st(one.x[k], i,
                      (double)formula(i, k + 2, 2 * s) + (double)formula(i, k + 2, 2 * s + 1));
        run(&one, AF_RUN_STEP);
        set_gradients(&two, 2 * s, 1);
        run(&two, AF_RUN_GRAD);
        set_gradients(&two, 2 * s + 1, 1);
        run(&two, AF_RUN_GRAD);
        run(&two, AF_RUN_UPDATE);
        for (int i = 0; i < ALL; i++)
            assert_true(value(&one, i) == value(&two, i));
    }
    close_trainer(&one);
    close_trainer(&two);
}

static void test_the_first_step_with_rate_zero_only_fills_the_moments(void **state)
{
    (void)state;
    trainer t;
    open_trainer(&t, AF_DTYPE_F32,
                 &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW, .weight_decay = 0.1}, false);
    af_graph_set_learning_rate(t.g, 0);
    set_gradients(&t, 1, 1);
    run(&t, AF_RUN_STEP);
    for (int i = 0; i < ALL; i++)
        assert_true((float)value(&t, i) == (i < A ? formula(i, 0, 0) : formula(i - A, 1, 0)));
    af_graph_set_learning_rate(t.g, 0.01);
    run(&t, AF_RUN_STEP);
    assert_true(value(&t, 1) != formula(1, 0, 0));
    close_trainer(&t);
}

/* Matrices, and three steps on them as one parameter or as several. */
typedef struct matrices {
    af_optimizer_kind kind;
    int n;
    int64_t dim[3][2];
} matrices;

static int64_t elements(const matrices *m, int k) { return m->dim[k][0] * m->dim[k][1]; }

static void step_on_matrices(const matrices *m, float *out, int64_t all, bool together)
{
    af_graph *g;
    af_device *d;
    open_graph(&g, &d, 1);
    af_tensor *p[3], *x[3], *loss = NULL;
    const int n = together ? 1 : m->n;
    for (int k = 0; k < n; k++) {
        const int64_t count = together ? all : 0, *dim = together ? &count : m->dim[k];
        p[k] = af_graph_param(g, "p", AF_DTYPE_F32, together ? 1 : 2, dim);
        x[k] = af_graph_input(g, "x", AF_DTYPE_F32, together ? 1 : 2, dim);
        af_tensor *sum = af_sum_all(g, af_mul(g, p[k], x[k]));
        loss = loss ? af_add(g, loss, sum) : sum;
    }
    if (together)
        af_param_parts(g, p[0], m->n, m->dim);
    learn(g, d, loss, &(af_optimizer_opts){.kind = m->kind, .weight_decay = 0.1});
    for (int step = 0; step <= 3; step++) {
        int64_t i = 0;
        for (int k = 0; k < m->n; k++)
            for (int64_t e = 0; e < elements(m, k); e++, i++) {
                af_tensor *w = p[together ? 0 : k], *grad = x[together ? 0 : k];
                const int64_t at = together ? i : e;
                if (step == 0)
                    af_st(w, at, formula((int)i, 0, 0));
                out[i] = (float)af_ld(w, at);
                af_st(grad, at, formula((int)i, 2, step + 1));
            }
        if (step < 3)
            run_graph(g, AF_RUN_STEP);
    }
    close_graph(g, d);
}

static void test_matrices_that_share_memory_are_matrices_of_their_own(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        matrices m;
    } cases[] = {
        {"a second moment for each", {AF_OPTIMIZER_ADAM_MINI, 2, {{3, 17}, {13, 5}}}},
        {"a rate for each", {AF_OPTIMIZER_STABLE_ADAMW, 2, {{3, 17}, {13, 5}}}},
        {"factored apart", {AF_OPTIMIZER_ADAFACTOR, 2, {{3, 17}, {13, 5}}}},
        {"no block of 256 has elements of two",
         {AF_OPTIMIZER_ADAMW_8BIT, 2, {{20, 250}, {30, 150}}}},
        {"f32 moments below 4096 elements only",
         {AF_OPTIMIZER_ADAMW_8BIT, 3, {{16, 576}, {16, 64}, {100, 43}}}},
        {"Lion's, too", {AF_OPTIMIZER_LION_8BIT, 2, {{20, 250}, {30, 150}}}},
        {"the small one first", {AF_OPTIMIZER_ADAMW_8BIT, 2, {{16, 64}, {16, 576}}}},
    };
    enum { MOST = 20000 };
    static float together[MOST], apart[MOST];
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        int64_t all = 0;
        for (int k = 0; k < cases[i].m.n; k++)
            all += elements(&cases[i].m, k);
        assert_true(all <= MOST);
        step_on_matrices(&cases[i].m, together, all, true);
        step_on_matrices(&cases[i].m, apart, all, false);
        CHECK_MSG(memcmp(together, apart, (size_t)all * sizeof *apart) == 0, "%s", cases[i].why);
    }
}

/* Five steps of 8-bit Adam on 7000 elements; the weights, followed by the codes. */
static void eight_bits(bool twin, float *out, uint8_t *codes)
{
    enum { N = 7000 };
    af_graph *g;
    af_device *d;
    const int64_t n = N;
    open_graph(&g, &d, 2);
    ((af_cpu *)d)->twins_only = twin;
    af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F32, 1, &n),
              *x = af_graph_input(g, "x", AF_DTYPE_F32, 1, &n);
    learn(g, d, af_sum_all(g, af_mul(g, p, x)),
          &(af_optimizer_opts){
              .kind = AF_OPTIMIZER_ADAMW_8BIT, .weight_decay = 0.1, .max_grad_norm = 1});
    for (int s = 0; s < 5; s++) { /* sizes over six decades, zeros among them */
        for (int64_t i = 0; i < n; i++)
            af_st(x, i, i % 11 ? formula((int)i, 2, s) * pow(10, -(double)(i % 7)) : 0);
        run_graph(g, AF_RUN_STEP);
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)af_ld(p, i);
    int at = 0;
    for (int i = 0; i < g->n_tensors; i++)
        if (g->tensors[i]->role == AF_ROLE_STATE && g->tensors[i]->dtype == AF_DTYPE_U8) {
            memcpy(codes + at, g->tensors[i]->data, N);
            at += N;
        }
    close_graph(g, d);
}

static void test_eight_bits_in_f32_are_those_of_the_twin(void **state)
{
    (void)state;
    enum { N = 7000 };
    static float w[2][N];
    static uint8_t codes[2][2 * N];
    int other = 0;
    for (int k = 0; k < 2; k++)
        eight_bits(k == 0, w[k], codes[k]);
    for (int i = 0; i < N; i++)
        assert_true(fabsf(w[0][i] - w[1][i]) <= 2e-3f);
    for (int i = 0; i < 2 * N; i++) {
        assert_true(abs(codes[0][i] - codes[1][i]) <= 1);
        other += codes[0][i] != codes[1][i];
    }
    CHECK_MSG(other <= 2 * N / 500, "%d of %d codes differ", other, 2 * N); /* roundings at a tie */
}

enum { FACTORED = 1 << 18 };

/* Values and moments of one parameter after five steps of Adafactor; how many. */
static int factored(int ndim, const int64_t *dim, bool twin, int threads, float *out)
{
    af_graph *g;
    af_device *d;
    open_graph(&g, &d, threads);
    ((af_cpu *)d)->twins_only = twin;
    af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F32, ndim, dim),
              *x = af_graph_input(g, "x", AF_DTYPE_F32, ndim, dim);
    learn(g, d, af_sum_all(g, af_mul(g, p, x)),
          &(af_optimizer_opts){
              .kind = AF_OPTIMIZER_ADAFACTOR, .weight_decay = 0.1, .max_grad_norm = 1});
    for (int64_t i = 0; i < af_count(p); i++)
        af_st(p, i, formula(i, 1, 0));
    for (int s = 0; s < 5; s++) { /* sizes over six decades; rows, columns and values of zero */
        const int64_t cols = af_last(x);
        for (int64_t i = 0; i < af_count(x); i++)
            af_st(x, i,
                  i % 11 == 0 || i % cols == 3 || i / cols == 5
                      ? 0
                      : formula(i, 2, s) * pow(10, -(double)(i % 7)));
        if (s == 3) /* changes nothing */
            af_st(x, 1, NAN);
        run_graph(g, AF_RUN_STEP);
    }
    int n = 0;
    for (int i = 0; i < g->n_tensors; i++) {
        const af_tensor *t = g->tensors[i];
        const bool wanted = t == p || t == p->grad || t->role == AF_ROLE_STATE;
        for (int64_t k = 0; wanted && k < af_count(t); k++) {
            assert_true(n < FACTORED);
            out[n++] = (float)af_ld(t, k);
        }
    }
    close_graph(g, d);
    return n;
}

static void test_adafactor_in_f32_is_that_of_the_twin(void **state)
{
    static const struct {
        int ndim;
        int64_t dim[3];
    } shapes[] = {
        {1, {700}}, {2, {150, 701}}, {2, {2, 5000}}, {2, {5000, 3}}, {3, {3, 40, 333}}, {2, {1, 1}},
    };
    static float twin[FACTORED], fast[FACTORED], more[FACTORED];
    (void)state;
    for (size_t i = 0; i < AF_LEN(shapes); i++) {
        const int n = factored(shapes[i].ndim, shapes[i].dim, true, 1, twin);
        int64_t values = 1; /* come first, then the moments */
        double worst = 0, moments = 0;
        for (int k = 0; k < shapes[i].ndim; k++)
            values *= shapes[i].dim[k];
        assert_int_equal(factored(shapes[i].ndim, shapes[i].dim, false, 1, fast), n);
        for (int k = 0; k < n; k++) {
            const double off = fabs((double)fast[k] - (double)twin[k]);
            if (k < values)
                worst = worse(worst, off);
            else if (off > 0)
                moments = worse(moments, off / fabs((double)twin[k]));
        }
        CHECK_MSG(worst <= 1e-6 && moments <= 1e-6,
                  "shape %zu: values are %g from the twin's, moments %g of theirs", i, worst,
                  moments);
        for (int threads = 2; threads <= 3; threads++) {
            factored(shapes[i].ndim, shapes[i].dim, false, threads, more);
            assert_memory_equal(more, fast, (size_t)n * sizeof *fast);
        }
    }
}

static void test_whole_moments_are_those_of_adamw(void **state)
{
    (void)state;
    const int64_t n = 5000;
    double after[2];
    for (int k = 0; k < 2; k++) {
        af_graph *g;
        af_device *d;
        open_graph(&g, &d, 1);
        af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F32, 1, &n);
        af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 1, &n);
        af_param_whole_moments(p);
        learn(g, d, af_sum_all(g, af_mul(g, p, x)),
              &(af_optimizer_opts){.kind = k ? AF_OPTIMIZER_ADAMW_8BIT : AF_OPTIMIZER_ADAMW});
        for (int s = 0; s < 3; s++) { /* element 0: a small gradient once, then none */
            for (int64_t i = 0; i < n; i++)
                af_st(x, i, i ? 1 : s ? 0 : 1e-6);
            run_graph(g, AF_RUN_STEP);
        }
        after[k] = af_ld(p, 0);
        close_graph(g, d);
    }
    assert_true(after[0] == after[1]);
}

static void test_lion_moves_nothing_without_a_gradient(void **state)
{
    (void)state;
    static const af_dtype types[] = {AF_DTYPE_F32, AF_DTYPE_F64};
    for (size_t k = 0; k < AF_LEN(types); k++) {
        double before[ALL];
        trainer t;
        open_trainer(&t, types[k], &(af_optimizer_opts){.kind = AF_OPTIMIZER_LION}, false);
        for (int i = 0; i < ALL; i++)
            before[i] = value(&t, i);
        set_gradients(&t, 1, 0);
        run(&t, AF_RUN_STEP);
        for (int i = 0; i < ALL; i++)
            assert_true(value(&t, i) == before[i]);
        close_trainer(&t);
    }
}

/* A value that never has a gradient does not keep the rate of its matrix from shrinking, however
 * small eps is. */
static void test_a_tiny_eps_of_stable_adamw(void **state)
{
    static const double eps[] = {1e-12, 1e-28};
    double after[AF_LEN(eps)];
    (void)state;
    for (size_t k = 0; k < AF_LEN(eps); k++) {
        trainer t;
        open_trainer(&t, AF_DTYPE_F32,
                     &(af_optimizer_opts){.kind = AF_OPTIMIZER_STABLE_ADAMW, .eps = eps[k]}, false);
        for (int step = 1; step <= 2; step++) {
            set_gradients(&t, step, step == 1 ? 1e-3 : 1); /* far more than was expected */
            af_st(t.x[0], 7, 0);
            run(&t, AF_RUN_STEP);
        }
        after[k] = value(&t, 0);
        close_trainer(&t);
    }
    CHECK_MSG(fabs(after[0] - after[1]) < 1e-6, "%.9g, not %.9g", after[1], after[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trajectories_are_those_of_the_originals),
        cmocka_unit_test(test_lion_moves_nothing_without_a_gradient),
        cmocka_unit_test(test_dynamic_maps_are_bitsandbytes),
        cmocka_unit_test(test_8bit_adam_is_bitsandbytes),
        cmocka_unit_test(test_a_norm_above_the_limit_is_cut_to_it),
        cmocka_unit_test(test_a_bad_gradient_changes_nothing_but_the_gradients),
        cmocka_unit_test(test_gradients_of_two_micro_batches_add_up),
        cmocka_unit_test(test_the_first_step_with_rate_zero_only_fills_the_moments),
        cmocka_unit_test(test_matrices_that_share_memory_are_matrices_of_their_own),
        cmocka_unit_test(test_eight_bits_in_f32_are_those_of_the_twin),
        cmocka_unit_test(test_adafactor_in_f32_is_that_of_the_twin),
        cmocka_unit_test(test_whole_moments_are_those_of_adamw),
        cmocka_unit_test(test_a_tiny_eps_of_stable_adamw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
