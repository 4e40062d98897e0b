/* optimizer_ops.c - what the registry knows of the nodes that optimizer.c records. */
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"

/* Two GEMMs of the matrix with a square one, and that one's square, at each iteration. */
static double muon_flops(const af_node *n)
{
    const double R = (double)n->in[0]->dim[0], C = (double)n->in[0]->dim[1], k = AF_MIN(R, C);
    return AF_MUON_STEPS * 2 * (2 * R * C * k + k * k * k);
}

/* A GEMM of the matrix with its projection. */
static double apollo_flops(const af_node *n)
{
    return (2.0 * (double)n->attr.optim.rank + 12) * (double)af_count(n->in[0]);
}

/* Two GEMMs of the matrix with its projection; what renews that is left out, as it is rare. */
static double galore_flops(const af_node *n)
{
    return (4.0 * (double)n->attr.optim.rank + 4) * (double)af_count(n->in[0]);
}

static double update_flops(const af_node *n) { return 12.0 * (double)af_count(n->in[0]); }

const af_op_info af_op_grad_norm = {.name = "grad_norm", .flops = update_flops};
const af_op_info af_op_clear = {.name = "clear", .effect = true};
const af_op_info af_op_sgd = {.name = "sgd", .flops = update_flops, .effect = true};
const af_op_info af_op_adam = {.name = "adam", .flops = update_flops, .effect = true};
const af_op_info af_op_adam_mini = {.name = "adam_mini", .flops = update_flops, .effect = true};
const af_op_info af_op_adam_8bit = {.name = "adam_8bit", .flops = update_flops, .effect = true};
const af_op_info af_op_adam_4bit = {.name = "adam_4bit", .flops = update_flops, .effect = true};
const af_op_info af_op_rmsprop = {.name = "rmsprop", .flops = update_flops, .effect = true};
const af_op_info af_op_ademamix = {.name = "ademamix", .flops = update_flops, .effect = true};
const af_op_info af_op_adaptive = {.name = "adaptive", .flops = update_flops, .effect = true};
const af_op_info af_op_stable_adamw = {
    .name = "stable_adamw", .flops = update_flops, .effect = true};
const af_op_info af_op_free_weight = {.name = "free_weight", .effect = true};
const af_op_info af_op_free = {.name = "free", .flops = update_flops, .effect = true};
const af_op_info af_op_states_8bit = {.name = "states_8bit", .flops = update_flops, .effect = true};
const af_op_info af_op_muon = {.name = "muon", .flops = muon_flops, .effect = true};
const af_op_info af_op_apollo = {.name = "apollo", .flops = apollo_flops, .effect = true};
const af_op_info af_op_galore = {.name = "galore", .flops = galore_flops, .effect = true};
const af_op_info af_op_lion = {.name = "lion", .flops = update_flops, .effect = true};
const af_op_info af_op_adafactor = {.name = "adafactor", .flops = update_flops, .effect = true};
