/* split_norm.c - see split_norm.h. A piece in which a shard ends is brought together; the others
 * are summed by their owner. */
#include "ops/optim/split_norm.h"
#include "ops/optim/norm_stats.h"

typedef struct split_norm {
    const af_graph *g;
    const float *own; /* the elements from .. to of the flat gradients */
    int64_t from, to, total;
    af_norm_piece_sum *piece;
    double *sum;        /* one per piece of all ranks */
    float *shared;      /* a piece of several ranks */
    int64_t *cut, *all; /* [ranks + 1]: of a shared piece; of the pieces */
} split_norm;

static int64_t piece_count(const af_graph *g)
{
    return (g->shard.cut[g->shard.ranks] + AF_NORM_PIECE - 1) / AF_NORM_PIECE;
}

uint64_t af_split_norm_work(const af_node *n)
{
    const af_graph *g = n->in[0]->graph;
    return (uint64_t)piece_count(g) * sizeof(double) +
           2 * ((uint64_t)g->shard.ranks + 1) * sizeof(int64_t) + AF_NORM_PIECE * sizeof(float);
}

static void sum_own(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const split_norm *s = arg;
    for (int64_t p = s->all[s->g->shard.rank] + from, k = from; k < to; p++, k++) {
        const int64_t a = p * AF_NORM_PIECE, b = AF_MIN(a + AF_NORM_PIECE, s->total);
        if (a >= s->from && b <= s->to)
            s->sum[p] = s->piece(s->own + (a - s->from), b - a);
    }
}

static af_status sum_shared(const split_norm *s, af_error *err)
{
    const int rank = s->g->shard.rank, ranks = s->g->shard.ranks;
    af_status st = AF_OK;
    for (int64_t p = -1; st == AF_OK && af_norm_next_shared(s->g, &p, s->cut);) {
        const int64_t n = s->cut[rank + 1] - s->cut[rank];
        const int64_t at = p * AF_NORM_PIECE + s->cut[rank] - s->from;
        if (n > 0)
            memcpy(s->shared + s->cut[rank], s->own + at, (size_t)n * sizeof *s->shared);
        st = s->g->exchange.gather(s->g->exchange.user, s->shared, sizeof *s->shared, s->cut, err);
        s->sum[p] = s->piece(s->shared, s->cut[ranks]);
    }
    return st;
}

void af_split_norm_run(const af_node *n, af_cpu *cpu, af_norm_piece_sum *sum)
{
    const af_graph *g = n->in[0]->graph;
    const int64_t pieces = piece_count(g);
    const af_shard *d = &g->shard;
    split_norm s = {.g = g,
                    .own = n->in[0]->data,
                    .from = d->cut[d->rank],
                    .to = d->cut[d->rank + 1],
                    .total = d->cut[d->ranks],
                    .piece = sum,
                    .sum = cpu->work};
    s.cut = (int64_t *)(s.sum + pieces);
    s.all = s.cut + d->ranks + 1;
    s.shared = (float *)(s.all + d->ranks + 1);
    af_norm_piece_cuts(g, s.all);
    af_pool_run(cpu->pool, s.all[d->rank + 1] - s.all[d->rank], sum_own, &s);
    cpu->failed = sum_shared(&s, cpu->err);
    if (cpu->failed == AF_OK)
        cpu->failed = g->exchange.gather(g->exchange.user, s.sum, sizeof *s.sum, s.all, cpu->err);
    if (cpu->failed == AF_OK)
        af_norm_stats(n, s.sum, pieces);
}
