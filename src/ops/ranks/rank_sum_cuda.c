/* rank_sum_cuda.c - see rank_sum.c. The order of dist/shards.c: recursive halving, so that a sum is
 * the binary tree over the ranks, and its reverse. Messages and sums are steps of the stream. */
#include "ops/common/cuda_ops.h"
#include "ops/ranks/rank_cuda.h"
#include "tensor/dtype.h"

enum { THREADS = 256 };

typedef struct pieces {
    uint8_t *v;
    uint64_t size;
    int rank, ranks;
    const int64_t *cut;
} pieces;

static uint64_t bytes_of(const pieces *p, int shard)
{
    return (uint64_t)(p->cut[shard + 1] - p->cut[shard]) * p->size;
}

static uint8_t *begin_of(const pieces *p, int shard)
{
    return p->v + (uint64_t)p->cut[shard] * p->size;
}

static void add(af_cuda *cu, af_node *n, void *to, const void *x, uint64_t bytes)
{
    const int64_t count = (int64_t)(bytes / sizeof(float));
    if (count == 0)
        return;
    af_launch *l = af_cuda_launch(cu, n, af_cuda_kernel(cu, "cast.cu", "cast_float", ""),
                                  af_cuda_grid(cu, count, THREADS), 1, 1, THREADS, 0);
    af_arg_ptr(l, to);
    af_arg_i32(l, AF_DTYPE_F32);
    af_arg_ptr(l, x);
    af_arg_i32(l, AF_DTYPE_F32);
    af_arg_i64(l, count);
    af_arg_i32(l, 1);
}

/* Sends shard `given` to the peer and adds what it sends of shard `kept`. */
static void swap_and_add(af_cuda *cu, af_node *n, const pieces *p, int bit, int given, int kept)
{
    const uint64_t out = bytes_of(p, given), in = bytes_of(p, kept);
    uint8_t *buffer = n->out[0]->data, *to = begin_of(p, kept);
    for (uint64_t at = 0; at < AF_MAX(out, in); at += AF_RANK_MESSAGE) {
        const uint64_t send = at < out ? AF_MIN(out - at, (uint64_t)AF_RANK_MESSAGE) : 0;
        const uint64_t get = at < in ? AF_MIN(in - at, (uint64_t)AF_RANK_MESSAGE) : 0;
        const af_swap s = {p->rank ^ bit, begin_of(p, given) + (send ? at : 0), buffer, send, get};
        af_cuda_swap(cu, n, &s, 1);
        add(cu, n, to + (get ? at : 0), buffer, get);
    }
}

static af_status rank_sum_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g, (void)err;
    const pieces p = {n->in[0]->data, sizeof(float), n->attr.ranks.rank, n->attr.ranks.ranks,
                      n->attr.ranks.cut};
    for (int bit = 1; bit < p.ranks; bit *= 2)
        for (int high = 0; high < p.ranks; high += 2 * bit) {
            const int own = high | (p.rank & (2 * bit - 1));
            swap_and_add(cu, n, &p, bit, own ^ bit, own);
        }
    if (n->n_in > 1)
        af_cuda_copy(cu, n, n->in[1]->data, begin_of(&p, p.rank), bytes_of(&p, p.rank));
    return AF_OK;
}

void af_cuda_gather_pieces(af_cuda *cu, af_node *n, void *v, uint64_t size, int rank, int ranks,
                           const int64_t *cut)
{
    const pieces p = {v, size, rank, ranks, cut};
    af_swap *s = af_arena_take(&cu->graph->mem, (uint64_t)ranks * sizeof *s);
    if (!s) {
        if (cu->err.code == AF_OK)
            (void)!af_fail_nomem(&cu->err, "ranks", (uint64_t)ranks * sizeof *s);
        return;
    }
    for (int bit = ranks / 2; bit > 0; bit /= 2) {
        int count = 0;
        for (int high = 0; high < ranks; high += 2 * bit) {
            const int own = high | (rank & (2 * bit - 1)), other = own ^ bit;
            if (bytes_of(&p, own) || bytes_of(&p, other))
                s[count++] = (af_swap){rank ^ bit, begin_of(&p, own), begin_of(&p, other),
                                       bytes_of(&p, own), bytes_of(&p, other)};
        }
        af_cuda_swap(cu, n, s, count);
    }
}

static af_status rank_join_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g, (void)err;
    af_cuda_gather_pieces(cu, n, n->in[0]->data, af_dtype_get(n->in[0]->dtype)->bytes,
                          n->attr.ranks.rank, n->attr.ranks.ranks, n->attr.ranks.cut);
    return AF_OK;
}

const af_cuda_op af_cuda_rank_sum = {.prepare = rank_sum_prepare};
const af_cuda_op af_cuda_rank_join = {.prepare = rank_join_prepare};
