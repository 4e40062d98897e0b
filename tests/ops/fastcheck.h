/* fastcheck.h - does a fast kernel compute what its reference kernel computes?
 *
 * A case records a small network. It runs with the twins, then with the fast versions on 1, 2 and 3
 * threads (with `many` on 8 and 16 too), with every output and dead value filled with NaN,
 * forward and backward twice over (so that gradients are added to). The result and all parameter
 * gradients must agree with the twins within a tolerance, and among the thread counts bit for bit
 * (f32 up to planes_threads of the machine, and above them within the tolerance).
 *
 * Tolerances (relative L2 of a whole tensor). f32: sums of up to a few hundred terms in f32
 * against double lose about sqrt(K) * 6e-8, some ops later less than 1e-5. bf16: both round to bf16
 * at the same places, from sums that differ in the last f32 bits: a value lands on the other
 * neighbour (2^-8 of it) about once in 1e3, and GEMMs round their partial sums once more:
 * under 5e-3. */
#ifndef AF_FASTCHECK_H
#define AF_FASTCHECK_H

#include "normal.h"
#include "test.h"

#include "backend/cpu/cpu.h"
#include "cpu/cpu_kernels.h"

#include <math.h>

enum { FC_MAX = 24 };

typedef struct fastcheck {
    af_graph *g;
    af_device *device;
    af_dtype type;        /* of activations */
    const int64_t *shape; /* of the case; shape[0] rows */
    int variant;
    int64_t live; /* 0 = all rows */
    int steps;    /* forward + backward so often; with update = optimizer steps */
    bool update;
    bool many;                                       /* on 8 and 16 threads as well */
    void (*fill)(struct fastcheck *c, af_tensor *t); /* integer inputs by name, or NULL */
    double limit;                                    /* 0 = the type's */
    /* results of one run */
    double *value[FC_MAX];
    int64_t count[FC_MAX];
    int results;
} fastcheck;

typedef af_tensor *fastcheck_build(fastcheck *c);

static inline af_tensor *fc_param(fastcheck *c, const char *name, int64_t rows, int64_t cols)
{
    return rows ? af_graph_param(c->g, name, AF_DTYPE_F32, 2, (int64_t[]){rows, cols})
                : af_graph_param(c->g, name, AF_DTYPE_F32, 1, (int64_t[]){cols});
}

/* Rows of activations [shape[0]][D] that follow the live rows and pass gradients to a parameter. */
static inline af_tensor *fc_rows(fastcheck *c, int64_t D)
{
    af_tensor *x = af_graph_input(c->g, "rows", c->type, 2, (int64_t[]){c->shape[0], 6});
    return af_linear(c->g, x, &(af_linear_opts){.weight = {fc_param(c, "w", D, 6)}, .pieces = 1});
}

static inline void fc_fill_floats(fastcheck *c, af_tensor *t)
{
    for (int64_t i = 0; i < af_count(t); i++) {
        double v = normal((uint64_t)(31 * c->variant + t->id), (uint64_t)i);
        if (c->type == AF_DTYPE_BF16) /* the fast GEMM of bf16 rows rounds its weights */
            v = af_f32_from_bf16(af_bf16_from_f32((float)v));
        af_store_f64(t->data, t->dtype, (uint64_t)i, v);
    }
}

static inline void fc_keep(fastcheck *c, const af_tensor *t)
{
    const int64_t n = t->live && t->dim[0] ? af_count(t) / t->dim[0] * *t->live : af_count(t);
    assert_true(c->results < FC_MAX);
    double *v = calloc((size_t)n + 1, sizeof *v);
    af_ld_row(t, 0, n, v);
    c->value[c->results] = v;
    c->count[c->results++] = n;
}

static inline fastcheck fc_run(fastcheck c, fastcheck_build *build, int threads, bool twins)
{
    af_error err = {0};
    CHECK_OK(af_graph_new(&c.g, &err), err);
    CHECK_OK(af_cpu_open(&c.device, threads, &err), err);
    ((af_cpu *)c.device)->twins_only = twins;
    ((af_cpu *)c.device)->poison = true;
    if (c.live)
        af_graph_set_rows(c.g, c.shape[0]);
    af_tensor *y = build(&c), *loss = y;
    af_graph_output(c.g, y);
    if (af_count(y) > 1) {
        af_tensor *mix = af_graph_input(c.g, "mix", y->dtype, y->ndim, y->dim);
        loss = af_sum_all(c.g, af_mul(c.g, y, mix));
    }
    af_graph_backward(c.g, loss);
    if (c.update)
        af_graph_optimizer(c.g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW,
                                                     .weight_decay = 0.1,
                                                     .max_grad_norm = 0.5});
    CHECK_OK(af_graph_prepare(c.g, c.device, &err), err);
    if (c.live)
        af_graph_set_live_rows(c.g, c.live);
    af_graph_set_learning_rate(c.g, 0.01);
    for (int i = 0; i < c.g->n_tensors; i++) {
        af_tensor *t = c.g->tensors[i];
        const bool leaf = t->role == AF_ROLE_INPUT || t->role == AF_ROLE_PARAM;
        if (leaf && t->data && t != c.g->params_flat && t != c.g->hyper && t != c.g->clock) {
            if (af_dtype_is_float(t->dtype))
                fc_fill_floats(&c, t);
            if (c.fill)
                c.fill(&c, t);
        }
    }
    for (int i = 0; i < (c.steps ? c.steps : 2); i++)
        CHECK_OK(af_graph_run(c.g, c.update ? AF_RUN_STEP : AF_RUN_GRAD, &err), err);
    fc_keep(&c, y);
    for (int i = 0; i < c.g->n_tensors; i++)
        if (c.g->tensors[i]->role == AF_ROLE_PARAM && c.g->tensors[i]->grad)
            fc_keep(&c, c.update ? c.g->tensors[i] : c.g->tensors[i]->grad);
    af_graph_free(c.g);
    af_device_close(c.device);
    return c;
}

static inline void fc_compare(const fastcheck *a, const fastcheck *b, double limit, const char *why)
{
    assert_int_equal(a->results, b->results);
    for (int k = 0; k < a->results; k++) {
        double err2 = 0, ref2 = 0;
        assert_int_equal(a->count[k], b->count[k]);
        for (int64_t i = 0; i < a->count[k]; i++) {
            const double d = a->value[k][i] - b->value[k][i];
            CHECK_MSG(isfinite(b->value[k][i]), "%s: result %d has %g at %d", why, k,
                      b->value[k][i], (int)i);
            err2 += d * d;
            ref2 += a->value[k][i] * a->value[k][i];
        }
        CHECK_MSG(sqrt(err2) <= limit * (sqrt(ref2) + 1e-6),
                  "%s: result %d differs by %.3g of %.3g (variant %d, rows %d)", why, k, sqrt(err2),
                  sqrt(ref2), a->variant, (int)a->shape[0]);
    }
}

static inline void fc_clear(fastcheck *c)
{
    for (int k = 0; k < c->results; k++)
        free(c->value[k]);
}

static inline void fastcheck_run(const char *why, fastcheck_build *build, fastcheck c)
{
    const double limit = c.limit > 0 ? c.limit : c.type == AF_DTYPE_BF16 ? 5e-3 : 1e-5;
    fastcheck twin = fc_run(c, build, 1, true), one = fc_run(c, build, 1, false);
    fc_compare(&twin, &one, limit, why);
    static const int threads[] = {3, 2, 8, 16};
    for (int i = 0; i < (test_sanitized ? 1 : c.many ? 4 : 2); i++) {
        const bool alike =
            c.type != AF_DTYPE_F32 || threads[i] <= af_fast_get()->machine->planes_threads;
        fastcheck more = fc_run(c, build, threads[i], false);
        fc_compare(&one, &more, alike ? 0 : limit, "threads change the result");
        fc_clear(&more);
    }
    fc_clear(&twin);
    fc_clear(&one);
}
#endif
