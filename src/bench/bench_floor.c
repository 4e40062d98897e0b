/* bench_floor.c - the time of the GEMMs of a step alone, through the same ops. */
#include "bench/bench_floor.h"
#include "afinar/bench.h"
#include "base/rng.h"
#include "graph/graph_access.h"
#include "tensor/dtype.h"

enum { HEAD_ROWS = 1024, PATTERN = 4099 };

static const double most_seconds = 0.5; /* of runs of one part */

typedef struct floor_graph {
    af_graph *g;
    af_tensor *last;
    af_dtype type;
    double seconds; /* of runs, at least */
} floor_graph;

/* y = x W^T, dx = dy W, and dW = dy^T x. */
static void add_gemms(floor_graph *f, int64_t rows, int64_t out, int64_t in, bool full)
{
    af_graph *g = f->g;
    af_tensor *x = af_graph_input(g, "x", f->type, 2, (int64_t[]){rows, in}),
              *dy = af_graph_input(g, "dy", f->type, 2, (int64_t[]){rows, out}),
              *w = af_graph_weight(g, "w", f->type, 2, (int64_t[]){out, in});
    af_graph_output(g, af_matmul(g, x, w, AF_MATMUL_NT));
    f->last = af_matmul(g, dy, w, AF_MATMUL_NN);
    af_graph_output(g, f->last);
    if (full)
        af_graph_output(g, af_matmul(g, dy, x, AF_MATMUL_TN));
}

/* Random numbers, because zeros run faster; a prime number of them, over and over. */
static af_status fill_one(af_graph *g, af_tensor *t, af_error *err)
{
    const uint64_t n = (uint64_t)af_tensor_count(t), bytes = af_tensor_bytes(t);
    uint8_t *data = malloc(bytes);
    if (!data)
        return af_fail_nomem(err, "random operands", bytes);
    const uint64_t drawn = AF_MIN(n, (uint64_t)PATTERN);
    for (uint64_t k = 0; k < drawn; k++)
        af_store_f64(data, af_tensor_dtype(t), k, af_rng_f64(4, 5, k) - 0.5);
    for (uint64_t at = bytes / n * drawn; at < bytes; at *= 2)
        memcpy(data + at, data, AF_MIN(at, bytes - at));
    const af_status st = af_tensor_write(g, t, data, bytes, err);
    free(data);
    return st;
}

static af_status fill_inputs(floor_graph *f, af_error *err)
{
    static const af_role role[] = {AF_ROLE_INPUT, AF_ROLE_WEIGHT};
    af_status st = AF_OK;
    for (size_t i = 0; i < AF_LEN(role); i++)
        for (af_tensor *t = NULL; st == AF_OK && (t = af_graph_next(f->g, role[i], t));)
            if (af_dtype_is_float(af_tensor_dtype(t)))
                st = fill_one(f->g, t, err);
    return st;
}

/* Best of runs over f->seconds, after one that warms up. */
static af_status measure(floor_graph *f, af_device *d, double *ms, double *cpu_ms, af_error *err)
{
    af_status st = AF_OK;
    const uint64_t bytes = af_tensor_bytes(f->last);
    void *sink = af_calloc(1, bytes);
    if (!sink)
        return af_fail_nomem(err, "the floor", bytes);
    AF_TRY(af_graph_prepare(f->g, d, err));
    AF_TRY(fill_inputs(f, err));
    AF_TRY(af_graph_run(f->g, AF_RUN_FORWARD, err));
    AF_TRY(af_tensor_read(f->g, f->last, sink, bytes, err));
    const double begin = af_bench_now(false);
    *ms = *cpu_ms = 1e30;
    for (int i = 0; i < 3 || af_bench_now(false) - begin < f->seconds; i++) {
        const double wall = af_bench_now(false), processor = af_bench_now(true);
        enum { REPEAT = 4 }; /* so that the one read at the end does not matter */
        for (int k = 0; k < REPEAT; k++)
            AF_TRY(af_graph_run(f->g, AF_RUN_FORWARD, err));
        const af_tensor *x = af_graph_next(f->g, AF_ROLE_INPUT, NULL);
        AF_TRY(af_tensor_read(f->g, x, sink, AF_MIN(af_tensor_bytes(x), bytes), err));
        *ms = AF_MIN(*ms, (af_bench_now(false) - wall) * 1e3 / REPEAT);
        *cpu_ms = AF_MIN(*cpu_ms, (af_bench_now(true) - processor) * 1e3 / REPEAT);
    }
done:
    free(sink);
    return st;
}

static af_status run_part(floor_graph *f, af_device *d, double factor, double *ms, double *cpu_ms,
                          af_error *err)
{
    double wall = 0, processor = 0;
    const af_status st = measure(f, d, &wall, &processor, err);
    *ms += wall * factor;
    *cpu_ms += processor * factor;
    af_graph_free(f->g);
    return st;
}

af_status af_bench_floor(const af_bench_floor_opts *o, af_device *d, double *ms, double *cpu_ms,
                         af_error *err)
{
    const af_bench_shape *s = o->shape;
    const int64_t q = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim,
                  head = AF_MIN(o->rows, (int64_t)HEAD_ROWS);
    floor_graph f = {.type = o->type, .seconds = AF_MIN(o->seconds, most_seconds)};
    af_status st = af_graph_new(&f.g, err);
    *ms = *cpu_ms = 0;
    if (st != AF_OK)
        return st;
    add_gemms(&f, o->rows, q + 2 * kv, s->width, o->full);
    add_gemms(&f, o->rows, s->width, q, o->full);
    add_gemms(&f, o->rows, 2 * (int64_t)s->ffn, s->width, o->full);
    add_gemms(&f, o->rows, s->width, s->ffn, o->full);
    st = run_part(&f, d, s->layers, ms, cpu_ms, err);
    if (st == AF_OK)
        st = af_graph_new(&f.g, err);
    if (st != AF_OK)
        return st;
    add_gemms(&f, head, s->vocab, s->width, o->full);
    return run_part(&f, d, (double)o->rows / (double)head, ms, cpu_ms, err);
}

af_status af_bench_gemm(const char *device, int threads, double *f32, double *bf16, af_error *err)
{
    enum { SIZE = 1024 };
    af_device *d = NULL;
    af_status st = af_device_open(&d, device, threads, err);
    for (int i = 0; st == AF_OK && i < 2; i++) {
        floor_graph f = {.type = i ? AF_DTYPE_BF16 : AF_DTYPE_F32, .seconds = most_seconds};
        double ms = 0, processor = 0;
        st = af_graph_new(&f.g, err);
        if (st != AF_OK)
            break;
        add_gemms(&f, SIZE, SIZE, SIZE, false);
        st = run_part(&f, d, 1, &ms, &processor, err);
        *(i ? bf16 : f32) = 4.0 * SIZE * SIZE * SIZE / ms * 1e-6;
    }
    af_device_close(d);
    return st;
}
