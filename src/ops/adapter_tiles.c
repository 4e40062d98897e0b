/* adapter_tiles.c - the four thin products of an adapter in bf16 where the machine's tiles have a
 * way of their own (af_slim in fast/fast.h): activations and their gradients pass by once for all
 * parts. Every result is one sum in the order of k, whichever thread makes it. */
#include "ops/adapter_tiles.h"

#include "ops/linear_parts.h"

typedef struct job {
    const af_fast *f;
    int count;
    af_slim of[AF_ADAPTER_PARTS];
    uint16_t *edge;
    int64_t edge_values; /* of a thread */
} job;

enum { LEAST_BLOCKS = 2 };

static uint16_t *values(const af_tensor *t, int64_t at) { return (uint16_t *)t->data + at; }

/* ---- y = scale x B ---- */

static void row_blocks(void *arg, int64_t from, int64_t to, int share)
{
    const job *j = arg;
    for (int64_t i = from; i < to; i++)
        for (int p = 0; p < j->count; p++)
            j->f->slim_rows(&j->of[p], i, i + 1, j->edge + share * j->edge_values);
}

/* The factors lie behind the threads' edges. */
static uint16_t *begin_rows(job *j, const af_tensor *x, af_cpu *cpu)
{
    *j = (job){.f = af_fast_get(), .edge = cpu->work, .edge_values = AF_SLIM * af_last(x)};
    return j->edge + cpu->threads * j->edge_values;
}

static void run_rows(job *j, af_cpu *cpu)
{
    const int64_t blocks = (j->of[0].rows + AF_SLIM - 1) / AF_SLIM;
    af_pool_run_least(cpu->pool, blocks, LEAST_BLOCKS, row_blocks, j);
}

/* xa = scale * x a^T */
static void down_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *x = n->in[0], *a = n->in[1], *xa = n->out[0];
    const int64_t I = af_last(x);
    job j;
    uint16_t *to = begin_rows(&j, x, cpu);
    for (int p = 0; p < n->attr.linear.parts; p++) {
        const af_adapter_part *q = &n->attr.linear.part[p];
        j.f->slim_pack(to, (const float *)a->data + q->rank_from * I, I, true, q->rank, I);
        j.of[j.count++] = (af_slim){.x = values(x, 0),
                                    .rows = af_live(x),
                                    .cols = I,
                                    .ldx = I,
                                    .packed = to,
                                    .n = q->rank,
                                    .alpha = q->scale,
                                    .y = values(xa, q->rank_from),
                                    .ldy = af_last(xa)};
        to += 2 * q->rank * I;
    }
    run_rows(&j, cpu);
}

/* g = scale * dy B */
static void g_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *dy = n->in[0], *b = n->in[1], *g = n->out[0];
    job j;
    uint16_t *to = begin_rows(&j, dy, cpu);
    for (int p = 0; p < n->attr.linear.parts; p++) {
        const af_adapter_part *q = &n->attr.linear.part[p];
        j.f->slim_pack(to, (const float *)b->data + af_linear_part_at(n, p), q->rank, false,
                       q->rank, q->out_rows);
        j.of[j.count++] = (af_slim){.x = values(dy, q->out_from),
                                    .rows = af_live(dy),
                                    .cols = q->out_rows,
                                    .ldx = af_last(dy),
                                    .packed = to,
                                    .n = q->rank,
                                    .alpha = q->scale,
                                    .y = values(g, q->rank_from),
                                    .ldy = af_last(g)};
        to += 2 * q->rank * q->out_rows;
    }
    run_rows(&j, cpu);
}

static uint64_t rows_work(const af_node *n, int threads)
{
    uint64_t bytes = (uint64_t)threads * AF_SLIM * (uint64_t)af_last(n->in[0]) * 2;
    for (int p = 0; p < n->attr.linear.parts; p++) {
        const af_adapter_part *q = &n->attr.linear.part[p];
        const int64_t K = n->op == AF_OP_ADAPTER_DOWN ? af_last(n->in[0]) : q->out_rows;
        bytes += (uint64_t)(4 * q->rank * K);
    }
    return bytes;
}

/* ---- c = or += g^T x ---- */

/* Blocks of columns of all parts, one part after another. */
static void column_blocks(void *arg, int64_t from, int64_t to, int share)
{
    const job *j = arg;
    (void)share;
    int64_t at = 0;
    for (int p = 0; p < j->count; p++) {
        const int64_t blocks = j->of[p].cols / AF_SLIM, first = AF_MAX(from - at, INT64_C(0)),
                      end = AF_MIN(to - at, blocks);
        if (first < end)
            j->f->slim_sums(&j->of[p], first, end);
        at += blocks;
    }
}

/* Adds a product of columns [from, from+n) of g; returns where the next one's may lie. */
static uint16_t *take_sums(job *j, uint16_t *to, const af_tensor *g, int64_t from, int64_t n,
                           af_slim s)
{
    s.packed = to;
    s.n = n;
    j->f->slim_turn(to, values(g, from), af_last(g), n, s.rows);
    j->of[j->count++] = s;
    return to + (s.rows + 31) / 32 * 32 * ((n + 31) / 32 * 32);
}

static void run_sums(job *j, af_cpu *cpu)
{
    int64_t blocks = 0;
    for (int p = 0; p < j->count; p++)
        blocks += j->of[p].cols / AF_SLIM;
    af_pool_run_least(cpu->pool, blocks, LEAST_BLOCKS, column_blocks, j);
}

/* da = g^T x: rows of all parts at once. */
static void da_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *x = n->in[0], *g = n->in[1];
    const int64_t I = af_last(x);
    job j = {.f = af_fast_get()};
    take_sums(&j, cpu->work, g, 0, af_last(g),
              (af_slim){.x = values(x, 0),
                        .rows = af_live(x),
                        .cols = I,
                        .ldx = I,
                        .c = n->out[0]->data,
                        .ldc = I,
                        .add = n->accumulate});
    run_sums(&j, cpu);
}

/* db of part p = dy_p^T xa_p */
static void db_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *dy = n->in[0], *xa = n->in[1];
    job j = {.f = af_fast_get()};
    uint16_t *to = cpu->work;
    for (int p = 0; p < n->attr.linear.parts; p++) {
        const af_adapter_part *q = &n->attr.linear.part[p];
        to = take_sums(&j, to, xa, q->rank_from, q->rank,
                       (af_slim){.x = values(dy, q->out_from),
                                 .rows = af_live(dy),
                                 .cols = q->out_rows,
                                 .ldx = af_last(dy),
                                 .c = (float *)n->out[0]->data + af_linear_part_at(n, p),
                                 .ldc = q->rank,
                                 .trans = true,
                                 .add = n->accumulate});
    }
    run_sums(&j, cpu);
}

static uint64_t sums_work(const af_node *n, int threads)
{
    uint64_t columns = 0;
    (void)threads;
    for (int p = 0; p < n->attr.linear.parts; p++)
        columns += AF_ALIGN_UP((uint64_t)n->attr.linear.part[p].rank, UINT64_C(32));
    return AF_MAX(columns, AF_ALIGN_UP((uint64_t)af_last(n->in[1]), UINT64_C(32))) *
           AF_ALIGN_UP((uint64_t)af_rows(n->in[0]), UINT64_C(32)) * 2;
}

static const af_cpu_op down_op = {down_run, rows_work}, g_op = {g_run, rows_work},
                       da_op = {da_run, sums_work}, db_op = {db_run, sums_work};

/* Ranks of whole tiles, columns of whole lines; `factor` (NULL: none) is f32. */
static bool served(const af_node *n, const af_tensor *factor)
{
    if (!af_fast_get()->slim_rows || n->in[0]->dtype != AF_DTYPE_BF16 || n->attr.linear.few ||
        n->attr.linear.parts == 0 || af_last(n->in[0]) % AF_SLIM != 0)
        return false;
    for (int p = 0; p < n->attr.linear.parts; p++)
        if (n->attr.linear.part[p].rank % 16 != 0 || n->attr.linear.part[p].out_rows % AF_SLIM != 0)
            return false;
    return factor ? factor->dtype == AF_DTYPE_F32 && n->out[0]->dtype == AF_DTYPE_BF16
                  : n->in[1]->dtype == AF_DTYPE_BF16 && n->out[0]->dtype == AF_DTYPE_F32;
}

const af_cpu_op *af_adapter_down_tiles(const af_node *n)
{
    return served(n, n->in[1]) ? &down_op : NULL;
}
const af_cpu_op *af_adapter_g_tiles(const af_node *n) { return served(n, n->in[1]) ? &g_op : NULL; }
const af_cpu_op *af_adapter_da_tiles(const af_node *n)
{
    return served(n, NULL) && af_last(n->in[1]) % 16 == 0 ? &da_op : NULL;
}
const af_cpu_op *af_adapter_db_tiles(const af_node *n) { return served(n, NULL) ? &db_op : NULL; }
