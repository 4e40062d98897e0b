/* cases.h - small graphs that between them use every op: prepared on a fake driver where there is
 * no GPU (test_cuda_fake.c), and compared with the CPU twins where there is one (test_cuda_ops.c).
 *
 * A case records a graph through `rec`, which remembers what to write into leaves and what to
 * compare afterwards. Activations have the type r->t; leaves that need gradients are f32 params
 * cast to it. Two leaves are not made in the arguments of one call: where they lie in memory would
 * depend on the order in which the compiler evaluates them, and launches.txt knows one order. */
#ifndef AF_CASES_H
#define AF_CASES_H

#include "afinar/graph.h"
#include "graph/node.h"
#include "ops/fakequant/fake_float.h"
#include "tensor/codec.h"
#include "tensor/codec_bnb.h"
#include "tensor/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REC_MAX = 48 };

typedef struct rec_leaf {
    af_tensor *t;
    double lo, hi;       /* range of random values */
    const int32_t *ints; /* or these */
    const void *bytes;   /* or these, as they are */
} rec_leaf;

typedef struct rec {
    af_graph *g;
    af_dtype t;
    rec_leaf leaf[REC_MAX];
    int leaves;
    af_tensor *out[REC_MAX];
    int outs;
    bool step;  /* run an update too */
    bool blank; /* no kernel will read the values: random ones are zero, codes of weights too */
    void *owned[16];
    int n_owned;
} rec;

static af_tensor *rec_add(rec *r, af_tensor *t, double lo, double hi)
{
    r->leaf[r->leaves++] = (rec_leaf){.t = t, .lo = lo, .hi = hi};
    return t;
}
static inline af_tensor *in_1(rec *r, int64_t n)
{
    return rec_add(r, af_graph_input(r->g, "x", r->t, 1, (int64_t[]){n}), -1, 1);
}
static inline af_tensor *in_2(rec *r, int64_t n, int64_t d)
{
    return rec_add(r, af_graph_input(r->g, "x", r->t, 2, (int64_t[]){n, d}), -1, 1);
}
static inline af_tensor *weight_2(rec *r, af_dtype t, int64_t n, int64_t d)
{
    return rec_add(r, af_graph_weight(r->g, "w", t, 2, (int64_t[]){n, d}), -0.5, 0.5);
}
static inline af_tensor *weight_1(rec *r, af_dtype t, int64_t n)
{
    return rec_add(r, af_graph_weight(r->g, "w", t, 1, (int64_t[]){n}), -0.5, 0.5);
}
static inline af_tensor *param_n(rec *r, int ndim, const int64_t *dim, double lo, double hi)
{
    return rec_add(r, af_graph_param(r->g, "p", AF_DTYPE_F32, ndim, dim), lo, hi);
}
static inline af_tensor *param_2(rec *r, int64_t n, int64_t d)
{
    return param_n(r, 2, (int64_t[]){n, d}, -1, 1);
}
static inline af_tensor *param_1(rec *r, int64_t n) { return param_n(r, 1, &n, -1, 1); }
/* An activation of the type under test that needs a gradient. */
static inline af_tensor *act_2(rec *r, int64_t n, int64_t d)
{
    af_tensor *p = param_2(r, n, d);
    return r->t == AF_DTYPE_F32 ? p : af_cast(r->g, p, r->t);
}
static inline af_tensor *ints(rec *r, int64_t n, const int32_t *v)
{
    af_tensor *t = rec_add(r, af_graph_input(r->g, "i", AF_DTYPE_I32, 1, &n), 0, 0);
    r->leaf[r->leaves - 1].ints = v;
    return t;
}
static inline af_tensor *ints_2(rec *r, int64_t n, int64_t m, const int32_t *v)
{
    af_tensor *t = rec_add(r, af_graph_input(r->g, "i", AF_DTYPE_I32, 2, (int64_t[]){n, m}), 0, 0);
    r->leaf[r->leaves - 1].ints = v;
    return t;
}
static inline void out(rec *r, af_tensor *t)
{
    af_graph_output(r->g, t);
    r->out[r->outs++] = t;
}
/* loss = sum(y * random); the gradients of all params are compared. */
static inline void finish(rec *r, af_tensor *y)
{
    af_tensor *c = rec_add(r, af_graph_input(r->g, "c", AF_DTYPE_F32, y->ndim, y->dim), -1, 1);
    af_tensor *y32 = y->dtype == AF_DTYPE_F32 ? y : af_cast(r->g, y, AF_DTYPE_F32);
    out(r, y);
    /* the loss itself is not compared: terms of both signs cancel, and only rounding is left */
    af_tensor *loss = af_sum_all(r->g, af_mul(r->g, y32, c));
    af_graph_backward(r->g, loss);
    const int n = r->leaves;
    for (int i = 0; i < n; i++)
        if (r->leaf[i].t->role == AF_ROLE_PARAM && r->leaf[i].t->grad)
            r->out[r->outs++] = r->leaf[i].t->grad;
}

/* The same numbers every time: value i of leaf k. */
static inline double noise(int k, int64_t i, double lo, double hi)
{
    uint64_t h =
        (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)(k + 1) * 0x632be59bd9b4e019;
    h ^= h >> 31;
    h *= UINT64_C(0xbf58476d1ce4e5b9);
    h ^= h >> 29;
    return lo + (hi - lo) * (double)(h >> 11) / 9007199254740992.0;
}

/* Writes every leaf. */
static inline af_status rec_write(rec *r, af_error *err)
{
    for (int k = 0; k < r->leaves; k++) {
        const rec_leaf *l = &r->leaf[k];
        const int64_t n = af_count(l->t);
        const uint64_t bytes = af_tensor_bytes(l->t);
        void *data = calloc(bytes + 1, 1);
        if (l->bytes)
            memcpy(data, l->bytes, bytes);
        for (int64_t i = 0; !l->bytes && (l->ints || !r->blank) && i < n; i++)
            af_store_f64(data, l->t->dtype, (uint64_t)i,
                         l->ints ? l->ints[i] : noise(k, i, l->lo, l->hi));
        const af_status st = l->t->data ? af_tensor_write(r->g, l->t, data, bytes, err) : AF_OK;
        free(data);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}
static inline void rec_clear(rec *r)
{
    while (r->n_owned > 0)
        free(r->owned[--r->n_owned]);
    af_graph_free(r->g);
}
static inline int rec_mask(const rec *r)
{
    return r->step ? AF_RUN_STEP : r->g->differentiated ? AF_RUN_GRAD : AF_RUN_FORWARD;
}
#endif
