/* adapter_lowrank.c - the four low-rank GEMMs of an adapter where there is a path of their own for
 * them (af_lowrank in fast/fast.h): activations and their gradients pass by once for all parts.
 * Every result is one sum in a fixed order, whichever thread makes it. */
#include "ops/linear/adapter_lowrank.h"

#include "ops/linear/linear_in.h"

typedef struct lowrank_job {
    const af_lowrank_kernels *kernels;
    int count;
    af_lowrank of[AF_ADAPTER_PARTS];
    uint8_t *buffer;
    uint64_t buffer_bytes; /* of a thread */
    uint8_t *free;         /* the rest of the workspace */
} lowrank_job;

enum { LEAST_BLOCKS = 2, LINE = 64 };

static const af_lowrank_kernels *kernels_for(const af_tensor *x)
{
    const af_fast *f = af_fast_get();
    return x->dtype == AF_DTYPE_F32    ? f->lowrank
           : x->dtype == AF_DTYPE_BF16 ? f->lowrank_bf16
                                       : NULL;
}

static void *value(const af_tensor *t, int64_t at)
{
    return (uint8_t *)t->data + at * af_dtype_get(t->dtype)->bytes;
}

static uint64_t lines(uint64_t bytes) { return AF_ALIGN_UP(bytes, (uint64_t)LINE); }

static void *take(lowrank_job *j, uint64_t bytes)
{
    void *at = j->free;
    j->free += lines(bytes);
    return at;
}

/* `cols` columns of x from `from`, with n others. */
static af_lowrank lowrank_of(const af_tensor *x, int64_t from, int64_t cols, int64_t n)
{
    return (af_lowrank){.x = value(x, from),
                        .rows = af_live(x),
                        .cols = cols,
                        .ldx = af_last(x),
                        .rank = n,
                        .bf16 = x->dtype == AF_DTYPE_BF16};
}

/* ---- y = scale x B ---- */

static uint64_t buffer_bytes(const af_lowrank_kernels *w, const af_tensor *x)
{
    return w->rows_bytes ? lines(w->rows_bytes(af_last(x))) : 0;
}

static void row_blocks(void *arg, int64_t from, int64_t to, int share)
{
    const lowrank_job *j = arg;
    for (int64_t i = from; i < to; i++)
        for (int p = 0; p < j->count; p++)
            j->kernels->run_rows(&j->of[p], i, i + 1,
                                 j->buffer + (uint64_t)share * j->buffer_bytes);
}

/* The factors come after the threads' buffers. */
static lowrank_job begin_rows(const af_tensor *x, af_cpu *cpu)
{
    const af_lowrank_kernels *w = kernels_for(x);
    lowrank_job j = {
        .kernels = w, .buffer = cpu->work, .buffer_bytes = buffer_bytes(w, x), .free = cpu->work};
    take(&j, (uint64_t)cpu->threads * j.buffer_bytes);
    return j;
}

static void take_rows(lowrank_job *j, af_lowrank s, const float *b, int64_t ld, bool trans)
{
    j->kernels->pack(&s, take(j, j->kernels->pack_bytes(s.rank, s.cols)), b, ld, trans);
    j->of[j->count++] = s;
}

static void run_rows(lowrank_job *j, af_cpu *cpu)
{
    const int64_t unit = j->kernels->rows, blocks = (j->of[0].rows + unit - 1) / unit;
    af_pool_run_least(cpu->pool, blocks, LEAST_BLOCKS, row_blocks, j);
}

/* Ranks of part p and of those after it that follow on with the same scale, at most so many. */
static int parts_alike(const af_node *n, int p, int64_t most, int64_t *ranks)
{
    const af_adapter_part *q = &n->attr.linear.part[p];
    int count = 0;
    *ranks = 0;
    for (; p + count < n->attr.linear.parts && q[count].rank_from == q->rank_from + *ranks &&
           q[count].scale == q->scale && q[count].rank <= most - *ranks;
         count++)
        *ranks += q[count].rank;
    return count;
}

/* xa = scale * x a^T */
static void down_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *x = n->in[0], *a = n->in[1], *xa = n->out[0];
    const int64_t I = af_last(x);
    lowrank_job j = begin_rows(x, cpu);
    for (int p = 0; p < n->attr.linear.parts;) {
        const af_adapter_part *q = &n->attr.linear.part[p];
        int64_t ranks;
        p += parts_alike(n, p, j.kernels->rank_max, &ranks);
        af_lowrank s = lowrank_of(x, 0, I, ranks);
        s.alpha = q->scale;
        s.y = value(xa, q->rank_from);
        s.ldy = af_last(xa);
        take_rows(&j, s, (const float *)a->data + q->rank_from * I, I, true);
    }
    run_rows(&j, cpu);
}

/* g = scale * dy B */
static void g_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *dy = n->in[0], *b = n->in[1], *g = n->out[0];
    lowrank_job j = begin_rows(dy, cpu);
    for (int p = 0; p < n->attr.linear.parts; p++) {
        const af_adapter_part *q = &n->attr.linear.part[p];
        af_lowrank s = lowrank_of(dy, q->out_from, q->out_rows, q->rank);
        s.alpha = q->scale;
        s.y = value(g, q->rank_from);
        s.ldy = af_last(g);
        take_rows(&j, s, (const float *)b->data + af_linear_part_at(n, p), q->rank, false);
    }
    run_rows(&j, cpu);
}

static uint64_t rows_work(const af_node *n, int threads)
{
    const af_tensor *x = n->in[0];
    const af_lowrank_kernels *w = kernels_for(x);
    uint64_t bytes = (uint64_t)threads * buffer_bytes(w, x);
    for (int p = 0; p < n->attr.linear.parts; p++) { /* together they need no more */
        const af_adapter_part *q = &n->attr.linear.part[p];
        const int64_t K = n->op == AF_OP_ADAPTER_DOWN ? af_last(x) : q->out_rows;
        bytes += lines(w->pack_bytes(q->rank, K));
    }
    return bytes;
}

/* ---- c = or += g^T x ---- */

static int64_t column_count(const lowrank_job *j, int p)
{
    return (j->of[p].cols + j->kernels->cols - 1) / j->kernels->cols;
}

/* Blocks of columns of all parts, one part after another. */
static void column_blocks(void *arg, int64_t from, int64_t to, int share)
{
    const lowrank_job *j = arg;
    (void)share;
    int64_t at = 0;
    for (int p = 0; p < j->count; p++) {
        const int64_t blocks = column_count(j, p), first = AF_MAX(from - at, INT64_C(0)),
                      end = AF_MIN(to - at, blocks);
        if (first < end)
            j->kernels->run_sums(&j->of[p], first, end);
        at += blocks;
    }
}

/* Adds a GEMM with the columns of g from `from`. */
static void take_sums(lowrank_job *j, af_lowrank s, const af_tensor *g, int64_t from)
{
    j->kernels->transpose(&s, take(j, j->kernels->transpose_bytes(s.rank, s.rows)), value(g, from),
                          af_last(g));
    j->of[j->count++] = s;
}

static void run_sums(lowrank_job *j, af_cpu *cpu)
{
    int64_t blocks = 0;
    for (int p = 0; p < j->count; p++)
        blocks += column_count(j, p);
    af_pool_run_least(cpu->pool, blocks, LEAST_BLOCKS, column_blocks, j);
}

/* da = g^T x: rows of all parts at once. */
static void da_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *x = n->in[0], *g = n->in[1];
    const int64_t I = af_last(x), R = af_last(g);
    lowrank_job j = {.kernels = kernels_for(x), .free = cpu->work};
    for (int64_t r = 0; r < R; r += j.kernels->rank_max) {
        af_lowrank s = lowrank_of(x, 0, I, AF_MIN(j.kernels->rank_max, R - r));
        s.c = (float *)n->out[0]->data + r * I;
        s.ldc = I;
        s.add = n->accumulate;
        take_sums(&j, s, g, r);
    }
    run_sums(&j, cpu);
}

/* db of part p = dy_p^T xa_p */
static void db_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *dy = n->in[0], *xa = n->in[1];
    lowrank_job j = {.kernels = kernels_for(dy), .free = cpu->work};
    for (int p = 0; p < n->attr.linear.parts; p++) {
        const af_adapter_part *q = &n->attr.linear.part[p];
        af_lowrank s = lowrank_of(dy, q->out_from, q->out_rows, q->rank);
        s.c = (float *)n->out[0]->data + af_linear_part_at(n, p);
        s.ldc = q->rank;
        s.trans = true;
        s.add = n->accumulate;
        take_sums(&j, s, xa, q->rank_from);
    }
    run_sums(&j, cpu);
}

static uint64_t sums_work(const af_node *n, int threads)
{
    const af_lowrank_kernels *w = kernels_for(n->in[0]);
    const int64_t rows = af_rows(n->in[0]), R = af_last(n->in[1]);
    uint64_t bytes = 0;
    (void)threads;
    if (n->op == AF_OP_ADAPTER_DA)
        for (int64_t r = 0; r < R; r += w->rank_max)
            bytes += lines(w->transpose_bytes(AF_MIN(w->rank_max, R - r), rows));
    else
        for (int p = 0; p < n->attr.linear.parts; p++)
            bytes += lines(w->transpose_bytes(n->attr.linear.part[p].rank, rows));
    return bytes;
}

static const af_cpu_op down_op = {down_run, rows_work}, g_op = {g_run, rows_work},
                       da_op = {da_run, sums_work}, db_op = {db_run, sums_work};

/* Whether the path takes the node's shapes. */
static bool fits(const af_lowrank_kernels *w, const af_node *n)
{
    if (!w || n->attr.linear.few_rows || n->attr.linear.parts == 0 ||
        af_last(n->in[0]) % w->even != 0)
        return false;
    for (int p = 0; p < n->attr.linear.parts; p++) {
        const af_adapter_part *q = &n->attr.linear.part[p];
        if (q->rank % w->unit != 0 || q->rank > w->rank_max || q->out_rows % w->even != 0)
            return false;
    }
    return true;
}

static bool serves_rows(const af_node *n)
{
    return fits(kernels_for(n->in[0]), n) && n->in[1]->dtype == AF_DTYPE_F32 &&
           n->out[0]->dtype == n->in[0]->dtype;
}

static bool serves_sums(const af_node *n)
{
    return fits(kernels_for(n->in[0]), n) && n->in[1]->dtype == n->in[0]->dtype &&
           n->out[0]->dtype == AF_DTYPE_F32;
}

const af_cpu_op *af_adapter_down_lowrank(const af_node *n)
{
    return serves_rows(n) ? &down_op : NULL;
}
const af_cpu_op *af_adapter_g_lowrank(const af_node *n) { return serves_rows(n) ? &g_op : NULL; }
const af_cpu_op *af_adapter_da_lowrank(const af_node *n)
{
    const af_lowrank_kernels *w = kernels_for(n->in[0]);
    return serves_sums(n) && af_last(n->in[1]) % w->unit == 0 ? &da_op : NULL;
}
const af_cpu_op *af_adapter_db_lowrank(const af_node *n) { return serves_sums(n) ? &db_op : NULL; }
