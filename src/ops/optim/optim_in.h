/* optim_in.h - the inputs of an optimizer op by name. */
#ifndef AF_OPTIM_IN_H
#define AF_OPTIM_IN_H

#include "graph/node.h"

/* False, with the error latched, when an option is out of its range or comes at the wrong time. */
bool af_optimizer_check(af_graph *g, const af_optimizer_opts *o);

/* state: momentum | m, v | m8, v8, m_scale, v_scale | m, v, slow | row, col; NULL where the op has
 * none. GRAD_NORM has grads alone. */
typedef struct af_optim_inputs {
    af_tensor *params, *grads, *hyper, *stats, *state[4];
} af_optim_inputs;

static inline af_optim_inputs af_optim_in(const af_node *n)
{
    if (n->op == AF_OP_GRAD_NORM)
        return (af_optim_inputs){.grads = n->in[0]};
    af_optim_inputs in = {n->in[0], n->in[1], n->in[2], n->in[3], {0}};
    for (int i = 4; i < n->n_in; i++)
        in.state[i - 4] = n->in[i];
    return in;
}
#endif
