/* optimizer_check.c - see optim_in.h. */
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"
#include "tensor/dtype.h"

enum { AF_OPTIMIZER_LAST = AF_OPTIMIZER_GALORE };

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
        {"rank", (double)o->rank, 1 << 20},
        {"gap", (double)o->gap, 1e12},
        {"scale", o->scale, 1e12},
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
    else if ((unsigned)o->projection > AF_PROJECTION_FULL)
        af_graph_bad(g, "optimizer: projection %d is not one of 0 to %d", (int)o->projection,
                     AF_PROJECTION_FULL);
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
                     k == AF_OPTIMIZER_ADAMW_8BIT || k == AF_OPTIMIZER_ADAMW_TORCH_8BIT ||
                     k == AF_OPTIMIZER_GALORE;
    if (first && first->dtype == AF_DTYPE_BF16 && !can)
        af_graph_bad(g, "optimizer: kind %d does not update bf16 parameters ('%s')", (int)k,
                     first->name);
    else if (first && first->dtype != AF_DTYPE_BF16 && o->rounding != AF_ROUNDING_NEAREST)
        af_graph_bad(g, "optimizer: rounding %d is for bf16 parameters, '%s' is %s",
                     (int)o->rounding, first->name, af_dtype_name(first->dtype));
    return !af_graph_failed(g);
}

void af_optimizer_set_usual(af_optimizer_opts *o)
{
    const bool lion = o->kind == AF_OPTIMIZER_LION || o->kind == AF_OPTIMIZER_LION_8BIT,
               factor = o->kind == AF_OPTIMIZER_ADAFACTOR;
    const bool muon = o->kind == AF_OPTIMIZER_MUON,
               rms = o->kind == AF_OPTIMIZER_RMSPROP || o->kind == AF_OPTIMIZER_RMSPROP_8BIT;
    const bool adopt = o->kind == AF_OPTIMIZER_ADOPT;
    o->beta1 = o->beta1 > 0 || factor ? o->beta1 : muon ? AF_MUON_BETA : 0.9;
    if (o->beta2 == 0) /* adafactor: the exponent of its decay, 1 - t^-0.8 */
        o->beta2 = lion || rms ? 0.99 : factor ? 0.8 : muon ? AF_MUON_BETA : adopt ? 0.9999 : 0.999;
    if (o->slow_beta == 0)
        o->slow_beta = AF_ADEMAMIX_BETA3;
    if (o->slow_share == 0)
        o->slow_share = AF_ADEMAMIX_ALPHA;
    if (muon && o->momentum == 0)
        o->momentum = AF_MUON_BETA;
    if (o->kind == AF_OPTIMIZER_FREE_SGD && o->momentum > 0)
        o->beta1 = o->momentum;
    if (o->kind == AF_OPTIMIZER_APOLLO || o->kind == AF_OPTIMIZER_GALORE) {
        o->rank = o->rank ? o->rank : AF_LOWRANK_RANK;
        o->gap = o->gap ? o->gap : AF_LOWRANK_GAP;
        o->scale = o->scale > 0 ? o->scale : o->kind == AF_OPTIMIZER_GALORE ? AF_GALORE_SCALE : 1;
    }
    if (o->eps == 0)
        o->eps = factor ? 1e-30 : o->kind == AF_OPTIMIZER_ADAGRAD ? 1e-10 : adopt ? 1e-6 : 1e-8;
}
