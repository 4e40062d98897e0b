/* planner.h - shared by the two algorithms that lay out the arena of activations. */
#ifndef AF_PLANNER_H
#define AF_PLANNER_H

#include "graph/graph_test.h"
#include "graph/node.h"

enum {
    AF_ARENA_ALIGN = 256
}; /* some cache lines on the host, a comfortable vector row on a device */

static inline bool af_in_arena(const af_tensor *t)
{
    return t->role == AF_ROLE_ACTIVATION && !t->base;
}
static inline uint64_t af_guard_bytes(const af_graph *g) { return g->test ? g->test->guard : 0; }
/* Bytes of a tensor, and of what a node needs while it runs, in an arena. */
static inline uint64_t af_arena_size(const af_graph *g, const af_tensor *t)
{
    return AF_ALIGN_UP(af_tensor_extent(t) + af_guard_bytes(g), (uint64_t)AF_ARENA_ALIGN);
}
static inline uint64_t af_work_size(const af_graph *g, const af_node *n)
{
    return n->work ? AF_ALIGN_UP(n->work + af_guard_bytes(g), (uint64_t)AF_ARENA_ALIGN) : 0;
}
/* The input whose range output 0 of n may take over, or NULL. Lifetimes are known. */
af_tensor *af_inplace_input(const af_node *n);

/* pack.c: sets every offset of the arena; returns its bytes, or 0 with *failed set when memory for
 * the plan is gone. With gradients, the flat ones are its beginning: memory of activations until
 * the first node writes there. */
typedef enum af_pack_order {
    AF_PACK_LARGEST, /* the largest value first, */
    AF_PACK_SIMILAR, /* and among those of nearly the same size what lives longest */
    AF_PACK_LARGEST_GRADS,
    AF_PACK_LONGEST_GRADS, /* what lives longest first */
} af_pack_order;
uint64_t af_graph_pack(af_graph *g, af_pack_order order, bool *failed);
#endif
