/* op_compare.h - a case of case_list.h run on a device, and the GPU's values compared with those of
 * the CPU. */
#ifndef AF_OP_COMPARE_H
#define AF_OP_COMPARE_H

#include "test.h"

#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda_graph.h"
#include "backend/cuda/cuda_test.h"
#include "backend/guards.h"
#include "backend/op_errors.h"
#include "graph/graph_test.h"

static af_device *gpu, *cpu;

typedef struct values {
    double *v[REC_MAX];
    int64_t n[REC_MAX];
    int count;
} values;

static void clear(values *v)
{
    for (int i = 0; i < v->count; i++)
        free(v->v[i]);
    v->count = 0;
}

typedef struct how {
    af_dtype t;
    af_recompute recompute;
    int repeats;
    bool guard; /* no memory is used twice, and the guard after each tensor stays as it is */
} how;

static af_status run_case(const test_case *c, af_device *d, how h, values *out, af_error *err)
{
    af_status st = AF_OK;
    rec r = {.t = h.t};
    int bad = 0;
    AF_TRY(af_graph_new(&r.g, err));
    static const af_graph_test guarded = {.guard = GUARD};
    const bool guard = h.guard && d == gpu;
    af_graph_set_test(r.g, guard ? &guarded : NULL);
    if (h.recompute)
        af_graph_set_recompute(r.g, h.recompute, 1);
    c->record(&r);
    AF_TRY(af_graph_prepare(r.g, d, err));
    AF_TRY(rec_write(&r, err));
    if (d == gpu)
        poison(d, r.g);
    if (guard)
        each_guard(d, r.g, set_guard, &bad);
    for (int i = 0; i < h.repeats; i++)
        AF_TRY(af_graph_run(r.g, rec_mask(&r), err));
    if (guard)
        each_guard(d, r.g, check_guard, &bad);
    if (bad)
        AF_TRY(af_fail(err, AF_EDEVICE, "%d guards are broken", bad));
    out->count = r.outs;
    for (int i = 0; i < r.outs; i++) {
        const uint64_t bytes = af_tensor_bytes(r.out[i]);
        void *raw = calloc(bytes + 1, 1);
        out->n[i] = af_count(r.out[i]);
        out->v[i] = calloc((size_t)out->n[i] + 1, sizeof(double));
        st = af_tensor_read(r.g, r.out[i], raw, bytes, err);
        for (int64_t k = 0; k < out->n[i]; k++)
            out->v[i][k] = af_load_f64(raw, r.out[i]->dtype, (uint64_t)k);
        free(raw);
        AF_TRY(st);
    }
done:
    rec_clear(&r);
    return st;
}

/* Relative L2 of the worst output; huge for NaN. */
static double distance(const values *a, const values *b, int *worst)
{
    double most = 0;
    *worst = 0;
    if (a->count != b->count)
        return 1e30;
    for (int i = 0; i < a->count; i++) {
        double d = 0, n = 0;
        for (int64_t k = 0; k < a->n[i]; k++) {
            d += (a->v[i][k] - b->v[i][k]) * (a->v[i][k] - b->v[i][k]);
            n += b->v[i][k] * b->v[i][k];
        }
        const double e = isfinite(d) ? sqrt(d / (n + 1e-12)) : 1e30;
        if (e > most) {
            most = e;
            *worst = i;
        }
    }
    return most;
}

static bool same(const values *a, const values *b)
{
    for (int i = 0; i < a->count; i++)
        if (memcmp(a->v[i], b->v[i], (size_t)a->n[i] * sizeof(double)) != 0)
            return false;
    return a->count == b->count;
}

static bool wanted(const test_case *c)
{
    const char *only = getenv("AF_CASE"); /* prefixes of names, separated by spaces */
    for (const char *p = only; p && *p; p += strcspn(p, " "), p += strspn(p, " "))
        if (strncmp(p, c->name, strcspn(p, " ")) == 0)
            return true;
    return !only;
}

static int compare(const test_case *c, how h, const char *note)
{
    values a = {0}, b = {0};
    af_error err = {0};
    int worst = 0, bad = 1;
    const double limit = op_limit(c, h.t);
    how on_cpu = h;
    on_cpu.recompute = AF_RECOMPUTE_NONE;
    if (run_case(c, gpu, h, &a, &err) != AF_OK) {
        print_error("%-18s %-4s %s: %s\n", c->name, af_dtype_name(h.t), note, err.msg);
    } else if (run_case(c, cpu, on_cpu, &b, &err) != AF_OK) {
        print_error("%-18s %-4s cpu: %s\n", c->name, af_dtype_name(h.t), err.msg);
    } else {
        const double e = distance(&a, &b, &worst);
        bad = !(e <= limit);
        if (bad || getenv("AF_LIST"))
            print_message("%-18s %-4s %-10s %s error %.2e (limit %.0e) at output %d\n", c->name,
                          af_dtype_name(h.t), note, bad ? "BAD" : "ok ", e, limit, worst);
    }
    clear(&a);
    clear(&b);
    return bad;
}
#endif
