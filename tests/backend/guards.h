/* guards.h - known bytes after every tensor and workspace of a graph on the GPU, NaN in them. */
#ifndef AF_TEST_GUARDS_H
#define AF_TEST_GUARDS_H

#include "test.h"

#include "backend/cuda/cuda_graph.h"

enum { GUARD = 512 };

/* Calls fn for the guard after every tensor, and after the workspaces of nodes. */
static void each_guard(af_device *d, const af_graph *g,
                       void (*fn)(af_cuda *cu, uint8_t *at, uint64_t n, const char *what, int *bad),
                       int *bad)
{
    const af_cuda_graph *cg = g->backend;
    for (int i = 0; i < g->n_tensors; i++) {
        const af_tensor *t = g->tensors[i];
        if (!t->base && t->data && (t->role != AF_ROLE_ACTIVATION || t->first >= 0))
            fn((af_cuda *)d, (uint8_t *)t->data + af_tensor_extent(t), GUARD,
               t->producer ? af_ops[t->producer->op]->name : t->name, bad);
    }
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->work)
            fn((af_cuda *)d,
               cg->arena[AF_ROLE_ACTIVATION] + g->nodes[i]->work_offset + g->nodes[i]->work, GUARD,
               af_ops[g->nodes[i]->op]->name, bad);
}

static void set_guard(af_cuda *cu, uint8_t *at, uint64_t n, const char *what, int *bad)
{
    (void)what, (void)bad;
    cu->drv->fill(at, 0xa5, n, cu->stream);
}

static void check_guard(af_cuda *cu, uint8_t *at, uint64_t n, const char *what, int *bad)
{
    uint8_t here[GUARD];
    cu->drv->copy_down(here, at, n, cu->stream);
    cu->drv->stream_sync(cu->stream);
    for (uint64_t i = 0; i < n; i++)
        if (here[i] != 0xa5) {
            print_error("'%s': byte %d after its memory was written\n", what, (int)i);
            ++*bad;
            return;
        }
}

/* NaN in every activation, and in the workspaces of nodes. */
static void poison(af_device *d, af_graph *g)
{
    af_cuda *cu = (af_cuda *)d;
    const af_cuda_graph *cg = g->backend;
    if (cg->arena[AF_ROLE_ACTIVATION])
        cu->drv->fill(cg->arena[AF_ROLE_ACTIVATION], 0xff, g->role_bytes[AF_ROLE_ACTIVATION],
                      cu->stream);
}

#endif
