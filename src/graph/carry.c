/* carry.c - gradients of a step added as a binary tree over its micro-batches.
 *
 * The order of a sum decides its last bits. A tree over the numbers of the micro-batches can be cut
 * into equal subtrees, one a rank, and gives the same bits for any number of ranks. One process
 * builds it like a binary counter: sum[i] is the finished subtree of 2^i blocks that waits for its
 * right neighbour, if digit i of the number of finished blocks is 1.
 *
 * Where the number of blocks is not a power of two, `chain` of them are added one after another
 * first: those of 3, 6 or 7 ranks.
 *
 * Where gradients are split the ranks are the lower levels of the tree: blocks are dealt to them in
 * turn, each is summed over the ranks, and the sums here have the size of a rank's piece. */
#include "graph/backend.h"

void af_graph_set_carry(af_graph *g, int levels)
{
    if (af_graph_failed(g))
        return;
    if (levels < 0 || levels > AF_CARRY_MAX || g->optimized)
        af_graph_bad(g, "carry: %d levels, not 0 to %d, or after the optimizer", levels,
                     AF_CARRY_MAX);
    else
        g->carry.levels = levels;
}

void af_graph_set_chain(af_graph *g, int64_t count)
{
    if (af_graph_failed(g))
        return;
    if (count < 1 || g->optimized)
        af_graph_bad(g, "carry: a chain of %" PRId64 " micro-batches, or after the optimizer",
                     count);
    else
        g->carry.chain = count;
}

void af_carry_leaves(af_graph *g, af_dtype t, int64_t count)
{
    for (int i = 0; i < g->carry.levels && !af_graph_failed(g); i++)
        g->carry.sum[i] = af_leaf(g, AF_ROLE_GRADIENT, "grads of some micro-batches", t, 1, &count);
    if (g->carry.chain > 1 && !af_graph_failed(g))
        g->carry.line = af_leaf(g, AF_ROLE_GRADIENT, "grads of a block", t, 1, &count);
}

void af_carry_nodes(af_graph *g)
{
    af_carry *c = &g->carry;
    for (int i = 0; i < c->levels && !af_graph_failed(g); i++) {
        c->merge[i] = af_node_new(g, AF_OP_ACCUM, (af_tensor *[]){g->grads_own, c->sum[i]}, 2);
        c->put[i] = af_node_new(g, AF_OP_ACCUM, (af_tensor *[]){c->sum[i], g->grads_own}, 2);
        c->put[i]->first = true;
    }
    if (c->line && !af_graph_failed(g)) {
        c->begin = af_node_new(g, AF_OP_ACCUM, (af_tensor *[]){c->line, g->grads_own}, 2);
        c->begin->first = true;
        c->add = af_node_new(g, AF_OP_ACCUM, (af_tensor *[]){c->line, g->grads_own}, 2);
        c->end = af_node_new(g, AF_OP_ACCUM, (af_tensor *[]){g->grads_own, c->line}, 2);
    }
    if (g->shard.split >= AF_SHARD_GRADIENTS && !g->shard.pass && !af_graph_failed(g)) {
        c->reduce = af_node_new(g, AF_OP_RANK_SUM, &g->grads_flat, 1);
        c->reduce->attr.ranks.rank = g->shard.rank;
        c->reduce->attr.ranks.ranks = g->shard.ranks;
        c->reduce->attr.ranks.cut = g->shard.cut;
    }
    if ((c->levels > 0 || c->line) && !af_graph_failed(g))
        c->clear = af_node_new(g, AF_OP_CLEAR, &g->grads_flat, 1);
}

/* Takes the gradients away into a sum; the next ones begin from zero. */
static af_status take_away(af_graph *g, af_node *into, af_error *err)
{
    const af_backend_ops *ops = g->device->ops;
    const af_status st = ops->run_node(g->device, g, into, err);
    if (st != AF_OK || g->one_pass || g->shard.pass) /* the next gradients are written, not added */
        return st;
    return ops->run_node(g->device, g, g->carry.clear, err);
}

af_status af_graph_carry(af_graph *g, int64_t block, af_error *err)
{
    const af_carry *c = &g->carry;
    const af_backend_ops *ops = g->device->ops;
    af_status st = AF_OK;
    int i = 0;
    if (c->reduce)
        AF_TRY(ops->run_node(g->device, g, c->reduce, err));
    if (c->line) {
        const int64_t at = block % c->chain;
        if (at + 1 < c->chain)
            return take_away(g, at ? c->add : c->begin, err);
        AF_TRY(ops->run_node(g->device, g, c->end, err));
        block /= c->chain;
    }
    for (; i < c->levels && block >> i & 1; i++)
        AF_TRY(ops->run_node(g->device, g, c->merge[i], err));
    if (i == c->levels)
        return AF_OK;
    st = take_away(g, c->put[i], err);
done:
    return st;
}
