/* moved.c - which values of recomputed blocks wait in host memory instead.
 *
 * With AF_RECOMPUTE_OFFLOAD on a device that moves values, inputs of blocks leave its memory
 * between the passes. The bus has time left while the forward pass computes: it takes those values
 * along whose recomputation costs most per byte, as many as move in the time of the forward pass.
 */
#include "graph/node.h"

/* Most time per byte first. */
typedef enum moved_kind {
    MOVED_LOW,       /* x A' of a gated unit's result: [tokens][rank] instead of the unit again */
    MOVED_ATTENTION, /* what attention makes, and x A' of it */
    MOVED_SUM,       /* the residual stream in the middle of a block: the projection before it */
    MOVED_ROPE,      /* q, k and v as attention reads them: their projection */
    MOVED_NORM,      /* the norm in the middle of a block, and x A' of it */
    MOVED_KINDS,
    MOVED_NOT,
} moved_kind;

/* The part of the time of the forward pass's blocks that copies are planned for. */
#define BUS_SHARE 0.87

typedef struct moved_choice {
    const af_graph *g;
    const bool *crosses, *used_backward; /* by tensor id: see transform.c */
} moved_choice;

static moved_kind kind_of(const moved_choice *c, const af_tensor *t);

/* Of x A'. */
static moved_kind kind_of_low(const moved_choice *c, const af_tensor *x)
{
    if (x->producer && x->producer->op == AF_OP_GLU)
        return MOVED_LOW;
    const moved_kind kind = kind_of(c, x);
    return kind == MOVED_ATTENTION || kind == MOVED_NORM ? kind : MOVED_NOT;
}

static moved_kind kind_of(const moved_choice *c, const af_tensor *t)
{
    const af_node *n = t->producer;
    if (!n || af_graph_recompute_of(c->g, n) != AF_RECOMPUTE_OFFLOAD)
        return MOVED_NOT;
    switch (n->op) {
    case AF_OP_ADAPTER_DOWN:
        return kind_of_low(c, n->in[0]);
    case AF_OP_ATTENTION:
        return MOVED_ATTENTION;
    case AF_OP_RMSNORM_ADD:
        return c->crosses[n->out[0]->id] || c->crosses[n->out[1]->id] ? MOVED_NOT
               : t == n->out[0]                                       ? MOVED_NORM
               : t == n->out[1]                                       ? MOVED_SUM
                                                                      : MOVED_NOT;
    case AF_OP_ROPE: /* unless the projection runs again for another reader */
        return n->in[0]->producer && n->in[0]->producer->op == AF_OP_LINEAR &&
                       !c->used_backward[n->in[0]->id]
                   ? MOVED_ROPE
                   : MOVED_NOT;
    default:
        return MOVED_NOT;
    }
}

/* Bytes that the bus moves while the blocks of the forward pass run, at most what the host has
 * memory for, less the inputs of blocks: those move in any case. */
static double spare_bytes(const moved_choice *c)
{
    double effort = 0, inputs = 0;
    for (int i = 0; i < c->g->n_nodes; i++) {
        const af_node *n = c->g->nodes[i];
        if (n->phase != AF_PHASE_FORWARD || n->block < 0)
            continue;
        effort += af_node_effort(n, c->g->flop_per_byte);
        for (int k = n->op == AF_OP_RMSNORM_ADD; k < n->n_out; k++) /* norms are made again */
            if (c->crosses[n->out[k]->id] && c->used_backward[n->out[k]->id])
                inputs += (double)af_tensor_bytes(n->out[k]);
    }
    return AF_MIN(BUS_SHARE * effort / c->g->flop_per_move, (double)c->g->move_most) - inputs;
}

/* Is the block one of a share of them? They are spread evenly: the bus is as busy all the time. */
static bool is_due(int block, double share)
{
    return (int)((block + 1) * share + 1e-6) > (int)(block * share + 1e-6);
}

void af_graph_choose_moved(const af_graph *g, const bool *crosses, const bool *used_backward,
                           bool *moved)
{
    const moved_choice c = {g, crosses, used_backward};
    double all[MOVED_KINDS + 2] = {0};
    if (g->recompute != AF_RECOMPUTE_OFFLOAD || g->flop_per_move <= 0)
        return;
    for (int i = 0; i < g->n_tensors; i++)
        all[kind_of(&c, g->tensors[i])] += (double)af_tensor_bytes(g->tensors[i]);
    double left = spare_bytes(&c);
    for (int kind = 0; kind < MOVED_KINDS && left > 0; kind++) {
        const double share = all[kind] > left ? left / all[kind] : 1;
        for (int i = 0; i < g->n_tensors; i++) {
            const af_tensor *t = g->tensors[i];
            if ((int)kind_of(&c, t) == kind && is_due(t->producer->block, share))
                moved[i] = true;
        }
        left -= all[kind];
    }
}
