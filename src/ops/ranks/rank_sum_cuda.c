/* rank_sum_cuda.c - see rank_sum.c. The order of dist/shards.c: recursive halving, so that a sum is
 * the binary tree over the ranks, and its reverse; where the number of ranks has an odd factor, all
 * messages at once. Messages and sums are steps of the stream. */
#include "ops/common/cuda_ops.h"
#include "ops/ranks/rank_cuda.h"
#include "tensor/dtype.h"

enum { THREADS = 256 };

static uint64_t bytes_of(const af_pieces *p, int shard)
{
    return (uint64_t)(p->cut[shard + 1] - p->cut[shard]) * p->size;
}

static uint8_t *begin_of(const af_pieces *p, int shard)
{
    return (uint8_t *)p->v + (uint64_t)p->cut[shard] * p->size;
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
static void swap_and_add(af_cuda *cu, af_node *n, const af_pieces *p, int peer, int given, int kept)
{
    const uint64_t out = bytes_of(p, given), in = bytes_of(p, kept);
    uint8_t *buffer = n->out[0]->data, *to = begin_of(p, kept);
    for (uint64_t at = 0; at < AF_MAX(out, in); at += AF_RANK_MESSAGE) {
        const uint64_t send = at < out ? AF_MIN(out - at, (uint64_t)AF_RANK_MESSAGE) : 0;
        const uint64_t get = at < in ? AF_MIN(in - at, (uint64_t)AF_RANK_MESSAGE) : 0;
        const af_swap s = {peer, begin_of(p, given) + (send ? at : 0), buffer, send, get};
        af_cuda_swap(cu, n, &s, 1);
        add(cu, n, to + (get ? at : 0), buffer, get);
    }
}

static bool is_power(int n) { return (n & (n - 1)) == 0; }

static af_swap *take_swaps(af_cuda *cu, int count)
{
    const uint64_t bytes = (uint64_t)count * sizeof(af_swap);
    af_swap *s = af_arena_take(&cu->graph->mem, bytes);
    if (!s && cu->err.code == AF_OK)
        (void)!af_fail_nomem(&cu->err, "ranks", bytes);
    return s;
}

/* The parts at `at` of all shards go to their owners, those of this rank's into slots. */
static void send_parts(af_cuda *cu, af_node *n, const af_pieces *p, uint64_t at, uint64_t slot,
                       af_swap *s)
{
    const int rank = n->attr.ranks.rank, ranks = n->attr.ranks.ranks;
    const uint64_t own = bytes_of(p, rank), get = at < own ? AF_MIN(own - at, slot) : 0;
    uint8_t *buffer = n->out[0]->data;
    int swaps = 0;
    for (int r = 0; r < ranks; r++) {
        const uint64_t bytes = bytes_of(p, r), send = at < bytes ? AF_MIN(bytes - at, slot) : 0;
        if (r != rank && (send || get))
            s[swaps++] = (af_swap){r, begin_of(p, r) + (send ? at : 0), buffer + (uint64_t)r * slot,
                                   send, get};
    }
    af_cuda_swap(cu, n, s, swaps);
}

/* Equal runs of slots, an odd number each, one after another; the runs as a tree. */
static void add_slots(af_cuda *cu, af_node *n, uint64_t slot, uint64_t bytes)
{
    const int ranks = n->attr.ranks.ranks;
    uint8_t *buffer = n->out[0]->data;
    int odd = ranks;
    while (odd % 2 == 0)
        odd /= 2;
    for (int r = 0; r < ranks; r++)
        if (r % odd)
            add(cu, n, buffer + (uint64_t)(r - r % odd) * slot, buffer + (uint64_t)r * slot, bytes);
    for (int step = odd; step < ranks; step *= 2)
        for (int r = 0; r < ranks; r += 2 * step)
            add(cu, n, buffer + (uint64_t)r * slot, buffer + (uint64_t)(r + step) * slot, bytes);
}

static void sum_all(af_cuda *cu, af_node *n, const af_pieces *p)
{
    const int rank = n->attr.ranks.rank, ranks = n->attr.ranks.ranks;
    const uint64_t own = bytes_of(p, rank), slot = af_tensor_bytes(n->out[0]) / (uint64_t)ranks;
    uint8_t *buffer = n->out[0]->data;
    af_swap *s = take_swaps(cu, ranks);
    uint64_t most = 0;
    for (int r = 0; r < ranks; r++)
        most = AF_MAX(most, bytes_of(p, r));
    for (uint64_t at = 0; s && at < most; at += slot) {
        const uint64_t bytes = at < own ? AF_MIN(own - at, slot) : 0;
        send_parts(cu, n, p, at, slot, s);
        if (!bytes)
            continue;
        af_cuda_copy(cu, n, buffer + (uint64_t)rank * slot, begin_of(p, rank) + at, bytes);
        add_slots(cu, n, slot, bytes);
        af_cuda_copy(cu, n, begin_of(p, rank) + at, buffer, bytes);
    }
}

static af_status rank_sum_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g, (void)err;
    const af_pieces p = {n->in[0]->data, sizeof(float), n->attr.ranks.cut};
    const int rank = n->attr.ranks.rank, ranks = n->attr.ranks.ranks;
    if (!is_power(ranks))
        sum_all(cu, n, &p);
    for (int bit = 1; bit < ranks && is_power(ranks); bit *= 2)
        for (int high = 0; high < ranks; high += 2 * bit) {
            const int own = high | (rank & (2 * bit - 1));
            swap_and_add(cu, n, &p, rank ^ bit, own ^ bit, own);
        }
    if (n->n_in > 1)
        af_cuda_copy(cu, n, n->in[1]->data, begin_of(&p, rank), bytes_of(&p, rank));
    return AF_OK;
}

static void gather_all(af_cuda *cu, af_node *n, const af_pieces *p, int count, int rank, int ranks,
                       af_swap *s)
{
    int swaps = 0;
    for (int k = 0; k < count; k++)
        for (int r = 0; r < ranks; r++)
            if (r != rank && (bytes_of(&p[k], rank) || bytes_of(&p[k], r)))
                s[swaps++] = (af_swap){r, begin_of(&p[k], rank), begin_of(&p[k], r),
                                       bytes_of(&p[k], rank), bytes_of(&p[k], r)};
    af_cuda_swap(cu, n, s, swaps);
}

void af_cuda_gather_pieces(af_cuda *cu, af_node *n, const af_pieces *p, int count, int rank,
                           int ranks)
{
    af_swap *s = take_swaps(cu, ranks * count);
    if (s && !is_power(ranks))
        gather_all(cu, n, p, count, rank, ranks, s);
    for (int bit = ranks / 2; s && bit > 0 && is_power(ranks); bit /= 2) {
        int swaps = 0;
        for (int k = 0; k < count; k++)
            for (int high = 0; high < ranks; high += 2 * bit) {
                const int own = high | (rank & (2 * bit - 1)), other = own ^ bit;
                if (bytes_of(&p[k], own) || bytes_of(&p[k], other))
                    s[swaps++] = (af_swap){rank ^ bit, begin_of(&p[k], own), begin_of(&p[k], other),
                                           bytes_of(&p[k], own), bytes_of(&p[k], other)};
            }
        af_cuda_swap(cu, n, s, swaps);
    }
}

static af_status rank_join_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g, (void)err;
    const af_pieces p = {n->in[0]->data, af_dtype_get(n->in[0]->dtype)->bytes, n->attr.ranks.cut};
    af_cuda_gather_pieces(cu, n, &p, 1, n->attr.ranks.rank, n->attr.ranks.ranks);
    return AF_OK;
}

const af_cuda_op af_cuda_rank_sum = {.prepare = rank_sum_prepare};
const af_cuda_op af_cuda_rank_join = {.prepare = rank_join_prepare};
