/* gradcheck.h - does every gradient agree with central differences?
 *
 * A case records a network of f64 parameters that ends in some tensor; the check makes a scalar of
 * it (a weighted sum with fixed random weights, so that no gradient cancels), runs the twins
 * forward and backward, and compares every element of every parameter's gradient with
 * (f(x+h) - f(x-h)) / 2h in double. */
#ifndef AF_GRADCHECK_H
#define AF_GRADCHECK_H

#include "test.h"

#include "backend/cpu/cpu.h"
#include "base/rng.h"

#include <math.h>

typedef struct gradcheck {
    af_graph *g;
    af_device *device;
    uint64_t seed;
    uint64_t drawn;
    double low, high;     /* parameters are uniform in here */
    double step;          /* h; 0 = 1e-5 */
    double limit;         /* relative error; 0 = 1e-6 */
    const int64_t *shape; /* of the running case */
    int variant;
    void (*fill)(struct gradcheck *c, af_tensor *input); /* more inputs by name, or NULL */
} gradcheck;

/* Records the network; returns any float tensor (a scalar, or more). */
typedef af_tensor *gradcheck_build(gradcheck *c);

static inline af_tensor *gc_param(gradcheck *c, int ndim, const int64_t *dim)
{
    return af_graph_param(c->g, "p", AF_DTYPE_F64, ndim, dim);
}
static inline af_tensor *gc_param2(gradcheck *c, int64_t rows, int64_t cols)
{
    return gc_param(c, 2, (int64_t[]){rows, cols});
}

static inline void gc_fill(gradcheck *c, af_tensor *t, double low, double high)
{
    const int64_t n = af_count(t);
    for (int64_t i = 0; i < n; i++)
        af_store_f64(t->data, t->dtype, (uint64_t)i,
                     low + (high - low) * af_rng_f64(c->seed, 1, c->drawn++));
}

static inline double gc_loss(gradcheck *c, const af_tensor *loss)
{
    af_error err = {0};
    c->g->clock_count = 0; /* the same dropout mask in every evaluation */
    CHECK_OK(af_graph_run(c->g, AF_RUN_FORWARD, &err), err);
    return af_load_f64(loss->data, loss->dtype, 0);
}

static inline void gc_compare(gradcheck *c, af_tensor *p, const af_tensor *loss, const char *why)
{
    const double h = c->step > 0 ? c->step : 1e-5, limit = c->limit > 0 ? c->limit : 1e-6;
    double *x = p->data;
    const double *dx = p->grad->data;
    double err2 = 0, ref2 = 0;
    for (int64_t i = 0; i < af_count(p); i++) {
        if (!test_takes((size_t)i))
            continue;
        const double keep = x[i];
        x[i] = keep + h;
        const double up = gc_loss(c, loss);
        x[i] = keep - h;
        const double down = gc_loss(c, loss);
        x[i] = keep;
        const double d = (up - down) / (2 * h);
        CHECK_MSG(isfinite(dx[i]), "%s: gradient %d is not finite (seed %llu)", why, (int)i,
                  (unsigned long long)c->seed);
        err2 += (d - dx[i]) * (d - dx[i]);
        ref2 += d * d;
    }
    CHECK_MSG(sqrt(err2) <= limit * fmax(sqrt(ref2), 1e-3),
              "%s: parameter %d: gradients differ by %.3g of %.3g (seed %llu)", why, p->id,
              sqrt(err2), sqrt(ref2), (unsigned long long)c->seed);
}

/* A scalar of any tensor: the sum of its elements times fixed numbers. */
static inline af_tensor *gc_scalar(gradcheck *c, af_tensor *y)
{
    if (af_graph_failed(c->g) || af_count(y) == 1)
        return y;
    af_tensor *w = af_graph_input(c->g, "mix", y->dtype, y->ndim, y->dim);
    return af_sum_all(c->g, af_mul(c->g, y, w));
}

static inline void gradcheck_run(const char *why, gradcheck_build *build, gradcheck c)
{
    af_error err = {0};
    CHECK_OK(af_graph_new(&c.g, &err), err);
    CHECK_OK(af_cpu_open(&c.device, 1, &err), err);
    ((af_cpu *)c.device)->twins_only = true;
    ((af_cpu *)c.device)->poison = true;
    if (c.low == c.high)
        c.low = -1.5, c.high = 1.5;
    af_tensor *loss = gc_scalar(&c, build(&c));
    af_graph_set_seed(c.g, c.seed);
    af_graph_backward(c.g, loss);
    if (af_graph_prepare(c.g, c.device, &err) != AF_OK)
        fail_msg("%s: %s", why, err.msg);
    for (int i = 0; i < c.g->n_tensors; i++) {
        af_tensor *t = c.g->tensors[i];
        if (t->role == AF_ROLE_PARAM && !t->base)
            gc_fill(&c, t, c.low, c.high);
        else if (t->role == AF_ROLE_INPUT && strcmp(t->name, "mix") == 0)
            gc_fill(&c, t, -1, 1);
        else if (t->role == AF_ROLE_INPUT && strcmp(t->name, "labels") == 0)
            for (int64_t k = 0; k < af_count(t); k++)
                ((int32_t *)t->data)[k] =
                    k % 5 == 3 ? -100 : (int32_t)af_rng_below(c.seed, 2, (uint64_t)k, 3);
        else if (t->role == AF_ROLE_INPUT && af_dtype_is_float(t->dtype))
            gc_fill(&c, t, 0.05, 0.95);
        if (t->role == AF_ROLE_INPUT && c.fill)
            c.fill(&c, t);
    }
    c.g->clock_count = 0;
    CHECK_OK(af_graph_run(c.g, AF_RUN_GRAD, &err), err);
    int checked = 0;
    for (int i = 0; i < c.g->n_tensors; i++)
        if (c.g->tensors[i]->role == AF_ROLE_PARAM) {
            CHECK_MSG(c.g->tensors[i]->grad, "%s: parameter %d has no gradient", why, i);
            gc_compare(&c, c.g->tensors[i], loss, why);
            checked++;
        }
    CHECK_MSG(checked > 0, "%s: nothing was checked", why);
    af_graph_free(c.g);
    af_device_close(c.device);
}

/* The same case on several odd shapes, each with its own seed. */
static inline void gradcheck_shapes(const char *why, gradcheck_build *build, gradcheck c,
                                    const int64_t (*shapes)[3], int count)
{
    for (int i = 0; i < count; i++) {
        char text[160];
        snprintf(text, sizeof text, "%s on %lld,%lld,%lld", why, (long long)shapes[i][0],
                 (long long)shapes[i][1], (long long)shapes[i][2]);
        c.shape = shapes[i];
        c.seed = 1000 + (uint64_t)i;
        gradcheck_run(text, build, c);
    }
}
#endif
