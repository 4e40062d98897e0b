/* shard.c - an optimizer whose state is split over ranks: which elements of the flat parameters
 * this graph updates, and where its pieces of the state lie in the whole, which checkpoints have.
 */
#include "graph/node.h"

void af_graph_set_shard(af_graph *g, int rank, int ranks)
{
    if (af_graph_failed(g))
        return;
    if (rank < 0 || rank >= ranks || g->optimized) {
        af_graph_bad(g, "shard %d of %d, or after the optimizer", rank, ranks);
        return;
    }
    g->shard = (af_shard){.rank = rank, .ranks = ranks};
}

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
