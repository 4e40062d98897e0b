/* optimizer_check.c - see optim_in.h. */
#include "ops/optim/optim_in.h"
#include "tensor/dtype.h"

enum { AF_OPTIMIZER_LAST = AF_OPTIMIZER_ADEMAMIX_8BIT };

bool af_optimizer_check(af_graph *g, const af_optimizer_opts *o)
{
    const struct {
        const char *name;
        double value, below;
    } v[] = {
        {"beta1", o->beta1, 1},
        {"beta2", o->beta2, 1},
        {"eps", o->eps, 1},
        {"momentum", o->momentum, 1},
        {"weight_decay", o->weight_decay, 1e6},
        {"max_grad_norm", o->max_grad_norm, 1e30},
        {"lr_decay", o->lr_decay, 1e6},
        {"slow_beta", o->slow_beta, 1},
        {"slow_share", o->slow_share, 1e6},
        {"warmup_steps", o->warmup_steps, 1e12},
        {"count_power", o->count_power, 100},
        {"lr_power", o->lr_power, 100},
    };
    for (size_t i = 0; i < AF_LEN(v); i++)
        if (!(v[i].value >= 0 && v[i].value < v[i].below)) {
            af_graph_bad(g, "optimizer: %s is %g, it must be from 0 up to below %g", v[i].name,
                         v[i].value, v[i].below);
            return false;
        }
    if ((unsigned)o->kind > AF_OPTIMIZER_LAST)
        af_graph_bad(g, "optimizer: kind %d is not one of 0 to %d", (int)o->kind,
                     AF_OPTIMIZER_LAST);
    else if ((unsigned)o->rounding > AF_ROUNDING_KAHAN)
        af_graph_bad(g, "optimizer: rounding %d is not one of 0 to %d", (int)o->rounding,
                     AF_ROUNDING_KAHAN);
    else if (o->nesterov && o->momentum == 0)
        af_graph_bad(g, "optimizer: nesterov needs momentum above 0, not %g", o->momentum);
    else if (o->kind == AF_OPTIMIZER_ADAFACTOR && o->beta1 != 0)
        af_graph_bad(g, "optimizer: adafactor keeps no first moment, beta1 is %g, not 0", o->beta1);
    else if (!g->differentiated)
        af_graph_bad(g, "the optimizer comes before af_graph_backward: there are no gradients yet");
    else if (af_optimizer_averages(o->kind) && g->shard.split != AF_SHARD_NOTHING)
        af_graph_bad(g, "optimizer: the states of schedule-free ones are not split over ranks");
    else if (g->optimized)
        af_graph_bad(g, "the graph has an optimizer already");
    return !af_graph_failed(g);
}

bool af_optimizer_check_type(af_graph *g, const af_optimizer_opts *o, const af_tensor *first)
{
    const af_optimizer_kind k = o->kind;
    const bool can = k == AF_OPTIMIZER_ADAM || k == AF_OPTIMIZER_ADAMW ||
                     k == AF_OPTIMIZER_ADAMW_8BIT || k == AF_OPTIMIZER_ADAMW_TORCH_8BIT;
    if (first && first->dtype == AF_DTYPE_BF16 && !can)
        af_graph_bad(g, "optimizer: kind %d does not update bf16 parameters ('%s')", (int)k,
                     first->name);
    else if (first && first->dtype != AF_DTYPE_BF16 && o->rounding != AF_ROUNDING_NEAREST)
        af_graph_bad(g, "optimizer: rounding %d is for bf16 parameters, '%s' is %s",
                     (int)o->rounding, first->name, af_dtype_name(first->dtype));
    return !af_graph_failed(g);
}
