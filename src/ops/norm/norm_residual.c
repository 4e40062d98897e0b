/* norm_residual.c - see norm_residual.h. */
#include "ops/norm/norm_residual.h"
#include "backend/cuda/cuda_test.h"
#include "ops/linear/linear_cuda.h"
#include "ops/norm/norm_in.h"

enum { ROWS_MIN = 4096 }; /* 2048 rows are not faster: what the norm reads is in the L2 cache */

static bool rows_fit(const af_tensor *t)
{
    return t->dtype == AF_DTYPE_BF16 && !t->base && t->ld % 8 == 0;
}

/* Adapters of higher ranks are GEMMs of their own, which would round the sum once more. */
static bool is_one_gemm(const af_node *p)
{
    return p->attr.linear.pieces > 0 && !p->attr.linear.fp8 &&
           (p->attr.linear.parts == 0 || af_linear_in(p).a->dim[0] <= AF_FOLD_RANK);
}

/* May the projection that makes x add what n adds to it? */
static bool may_add(const af_graph *g, const af_node *n)
{
    const af_norm_inputs in = af_norm_in(n);
    const af_node *p = in.x->producer, *before = in.residual->producer;
    return p && p->op == AF_OP_LINEAR && is_one_gemm(p) && p->n_out == 1 && !p->accumulate &&
           p->phase == n->phase && p->n_in < AF_NODE_IN_MAX && (!before || before->at < p->at) &&
           af_rows(in.x) >= ROWS_MIN && !in.x->keep && rows_fit(in.x) && rows_fit(in.residual) &&
           rows_fit(n->out[1]) && af_only_reader(g, in.x) == n;
}

/* Decided once, before the backward pass gets copies of nodes that it computes again. */
static void rewrite(af_graph *g)
{
    for (int i = 0; i < g->n_nodes && g->differentiated; i++)
        if (g->nodes[i]->op == AF_OP_RMSNORM_ADD)
            g->nodes[i]->attr.norm.joins = may_add(g, g->nodes[i]);
}

static void join(af_node *p, af_node *n)
{
    p->in[p->n_in++] = n->in[1];
    p->out[0] = n->out[1];
    p->out[0]->producer = p;
    p->attr.linear.adds = true;
    n->op = AF_OP_RMSNORM;
    n->in[0] = n->out[1];
    n->in[1] = n->in[2];
    n->n_in = 2;
    n->out[1] = n->out[2];
    n->n_out = 2;
}

static af_status layout(af_cuda *cu, af_graph *g, af_error *err)
{
    (void)err;
    if (cu->test && cu->test->no_fold)
        return AF_OK;
    for (int i = 0; i < g->n_nodes; i++) {
        af_node *n = g->nodes[i];
        if (n->op == AF_OP_RMSNORM_ADD && n->attr.norm.joins && may_add(g, n))
            join(n->in[0]->producer, n);
    }
    return AF_OK;
}

const af_cuda_family af_cuda_norm_family = {.rewrite = rewrite, .layout = layout};
