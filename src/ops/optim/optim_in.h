/* optim_in.h - the inputs of an optimizer op by name. */
#ifndef AF_OPTIM_IN_H
#define AF_OPTIM_IN_H

#include "graph/node.h"

/* False, with the error latched, when an option is out of its range or comes at the wrong time. */
bool af_optimizer_check(af_graph *g, const af_optimizer_opts *o);

/* The same for the type of the parameters (all have that of `first`; NULL = there are none). */
bool af_optimizer_check_type(af_graph *g, const af_optimizer_opts *o, const af_tensor *first);

/* What the caller left at 0 gets the usual value of the kind. */
void af_optimizer_set_usual(af_optimizer_opts *o);

/* The numbers of step t that run.c does not know: AF_HYPER_A, AF_HYPER_B. */
void af_optim_step_numbers(const af_graph *g, double t, float *hyper);

/* Copies the options into an update's node; `first` is one of its parameters. */
void af_optim_set_attr(af_node *n, const af_optimizer_opts *o, const af_tensor *first);

/* MUON, APOLLO, GALORE, ADAFACTOR, ADAM_MINI, STABLE_ADAMW: one node per matrix of a parameter;
 * `number` is in names of its states. The number of the next. */
int af_optim_update_matrices(af_graph *g, const af_optimizer_opts *o, af_tensor *p, int number);

/* state: momentum | m, v | m8, v8, m_scale, v_scale | m, v, slow | v, [m] | weight, z, [v] | codes,
 * scales | row, col | m, v, norm | m, v, [right], [left]; NULL where the op has none. rest: what
 * rounding cut off bf16 parameters, or NULL. GRAD_NORM has grads alone. */
typedef struct af_optim_inputs {
    af_tensor *params, *grads, *hyper, *stats, *state[6], *rest;
} af_optim_inputs;

static inline af_optim_inputs af_optim_in(const af_node *n)
{
    if (n->op == AF_OP_GRAD_NORM)
        return (af_optim_inputs){.grads = n->in[0]};
    af_optim_inputs in = {n->in[0], n->in[1], n->in[2], n->in[3], {0}, NULL};
    const bool kahan = n->attr.optim.rounding == AF_ROUNDING_KAHAN;
    for (int i = 4; i < n->n_in - kahan; i++)
        in.state[i - 4] = n->in[i];
    in.rest = kahan ? n->in[n->n_in - 1] : NULL;
    return in;
}

/* ---- GALORE (lowrank/galore_cpu.c): the sizes of one update ---- */

/* Subspace iteration: vectors beyond the rank, and steps, each with both sides of the matrix. With
 * as many vectors as the shorter side has there are none, and the result is exact. */
enum { AF_GALORE_EXTRA = 32, AF_GALORE_STEPS = 6 };

/* A gradient G [R][C] and what is kept of it: L = G V (right alone), G^T U (left alone), U^T G V.
 */
typedef struct af_galore_shape {
    int64_t R, C, rank;
    bool right, left; /* V [C][rank] and U [R][rank] are there */
    int64_t low;      /* L is [low][rank] */
    int64_t n, m, k;  /* the shorter side, the longer one, vectors of the iteration */
    bool tall;        /* n = C */
    int steps;
} af_galore_shape;

static inline af_galore_shape af_galore_shape_for(int64_t R, int64_t C, int64_t rank,
                                                  af_projection projection)
{
    const bool tall = R >= C, full = projection == AF_PROJECTION_FULL;
    const bool right = projection == AF_PROJECTION_RIGHT ||
                       (projection == AF_PROJECTION_STD && tall) ||
                       (projection == AF_PROJECTION_REVERSE_STD && !tall);
    af_galore_shape s = {.R = R,
                         .C = C,
                         .right = right || full,
                         .left = !right || full,
                         .n = AF_MIN(R, C),
                         .m = AF_MAX(R, C),
                         .tall = tall};
    s.rank = AF_MIN(rank, s.n);
    s.low = full ? s.rank : right ? R : C;
    s.k = AF_MIN(s.n, rank + AF_GALORE_EXTRA);
    s.steps = s.k < s.n ? AF_GALORE_STEPS : 0;
    return s;
}

static inline af_galore_shape af_galore_shape_of(const af_node *n)
{
    return af_galore_shape_for(n->in[0]->dim[0], n->in[0]->dim[1], n->attr.optim.rank,
                               n->attr.optim.projection);
}
#endif
