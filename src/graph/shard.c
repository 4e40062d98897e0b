/* shard.c - an optimizer whose state is split over ranks: which elements of the flat parameters
 * this graph updates, and where its pieces of the state lie in the whole, which checkpoints have.
 */
#include "graph/node.h"

#include <stdlib.h>

void af_graph_set_shard(af_graph *g, int rank, int ranks, af_sharding split)
{
    if (af_graph_failed(g))
        return;
    if (rank < 0 || rank >= ranks || g->optimized) {
        af_graph_bad(g, "shard %d of %d, or after the optimizer", rank, ranks);
        return;
    }
    g->shard = (af_shard){.rank = rank, .ranks = ranks, .split = split};
}

void af_graph_set_exchange(af_graph *g, const af_exchange *e) { g->exchange = *e; }

bool af_shard_new(af_graph *g)
{
    af_shard *s = &g->shard;
    s->ranks = AF_MAX(s->ranks, 1);
    s->cut = af_arena_take(&g->mem, ((uint64_t)s->ranks + 1) * sizeof *s->cut);
    if (!s->cut)
        af_fail_nomem(&g->err, "shards", (uint64_t)s->ranks * sizeof *s->cut);
    return s->cut != NULL;
}

bool af_shard_clip(const af_graph *g, int rank, int64_t *from, int64_t *to)
{
    *from = AF_MAX(*from, g->shard.cut[rank]);
    *to = AF_MIN(*to, g->shard.cut[rank + 1]);
    return *from < *to;
}

int64_t *af_shard_cuts_of(af_graph *g, int64_t from, int64_t to)
{
    const int ranks = g->shard.ranks;
    int64_t *cut = af_arena_take(&g->mem, ((uint64_t)ranks + 1) * sizeof *cut);
    if (!cut) {
        af_fail_nomem(&g->err, "shards", (uint64_t)ranks * sizeof *cut);
        return NULL;
    }
    for (int r = 0; r <= ranks; r++)
        cut[r] = AF_MIN(AF_MAX(g->shard.cut[r], from), to) - from;
    return cut;
}

void af_graph_state_piece(const af_graph *g, const af_state_part *p, int rank, int64_t *from,
                          int64_t *count)
{
    int64_t a = p->from, b = p->to;
    *from = *count = 0;
    if (p->matrix) { /* its owner has all of it */
        const bool own = a >= g->shard.cut[rank] && a < g->shard.cut[rank + 1];
        *count = own ? p->full : 0;
    } else if (af_shard_clip(g, rank, &a, &b)) {
        *from = (a - p->from) / p->unit;
        *count = (b - p->from + p->unit - 1) / p->unit - *from;
    }
}

af_tensor *af_state_part_new(af_graph *g, const af_state_part *like)
{
    af_state_part *p = af_arena_take(&g->mem, sizeof *p);
    const char *name = af_arena_strdup(&g->mem, like->name);
    int64_t from, count;
    if (!p || !name) {
        af_fail_nomem(&g->err, "an optimizer", sizeof *p);
        return NULL;
    }
    *p = *like;
    p->name = name;
    p->next = NULL;
    af_graph_state_piece(g, p, g->shard.rank, &from, &count);
    p->t = count || !p->full ? af_graph_state(g, name, p->dtype, 1, &count) : NULL;
    if (g->shard.last)
        g->shard.last->next = p;
    else
        g->shard.first = p;
    g->shard.last = p;
    return p->t;
}

const af_state_part *af_graph_states(const af_graph *g) { return g->shard.first; }
const int64_t *af_graph_cuts(const af_graph *g) { return g->shard.cut; }

/* ---- the norm of split gradients ---- */

bool af_norm_next_shared(const af_graph *g, int64_t *piece, int64_t *cut)
{
    const af_shard *s = &g->shard;
    const int64_t total = s->cut[s->ranks];
    int64_t next = INT64_MAX;
    for (int r = 1; r < s->ranks; r++) {
        const int64_t p = s->cut[r] / AF_NORM_PIECE;
        if (s->cut[r] % AF_NORM_PIECE && s->cut[r] < total && p > *piece)
            next = AF_MIN(next, p);
    }
    if (next == INT64_MAX)
        return false;
    *piece = next;
    const int64_t from = next * AF_NORM_PIECE, to = AF_MIN(from + AF_NORM_PIECE, total);
    for (int r = 0; r <= s->ranks; r++)
        cut[r] = AF_MIN(AF_MAX(s->cut[r], from), to) - from;
    return true;
}

void af_norm_piece_cuts(const af_graph *g, int64_t *cut)
{
    for (int r = 0; r <= g->shard.ranks; r++)
        cut[r] = (g->shard.cut[r] + AF_NORM_PIECE - 1) / AF_NORM_PIECE;
}

void af_norm_exchanges(const af_graph *g, af_exchanged_fn *fn, void *user)
{
    int64_t *cut = af_calloc((uint64_t)g->shard.ranks + 1, sizeof *cut);
    for (int64_t piece = -1; cut && af_norm_next_shared(g, &piece, cut);)
        fn(user, cut, sizeof(float), true);
    if (cut) {
        af_norm_piece_cuts(g, cut);
        fn(user, cut, sizeof(double), true);
    }
    free(cut);
}
