/* step_numbers.c - numbers of a step that depend on its count alone, for optimizers whose formulas
 * have more of them than Adam's: in double, from the count, so that a resumed run has the same. */
#include "ops/optim/optim_in.h"

#include <math.h>

/* NAdam (torch.optim): momentum of step t, which grows to beta1. */
static double nadam_momentum(double beta1, double t)
{
    return beta1 * (1 - 0.5 * pow(0.96, t * 0.004));
}

/* One less the product of all momenta up to step t; below 1e-20 it is 1 in double. */
static double nadam_rest(double beta1, double t)
{
    double product = 1;
    for (double s = 1; s <= t && product > 1e-20; s++)
        product *= nadam_momentum(beta1, s);
    return 1 - product;
}

/* RAdam: how much the second moment of so few steps can be trusted; 0 = not at all, as long as its
 * length is not above `least`. */
static double radam_rectification(double beta2, double t, double least)
{
    const double power = pow(beta2, t), most = 2 / (1 - beta2) - 1;
    const double length = most - 2 * t * power / (1 - power);
    return length > least
               ? sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
               : 0;
}

void af_optim_step_numbers(const af_graph *g, double t, float *hyper)
{
    const af_optimizer_opts *o = &g->optimizer;
    double a = 0, b = 0;
    switch (o->kind) {
    case AF_OPTIMIZER_ADAGRAD:
        a = 1 / (1 + (t - 1) * o->lr_decay);
        break;
    case AF_OPTIMIZER_NADAM:
        a = (1 - nadam_momentum(o->beta1, t)) / nadam_rest(o->beta1, t);
        b = nadam_momentum(o->beta1, t + 1) / nadam_rest(o->beta1, t + 1);
        break;
    case AF_OPTIMIZER_RADAM:
        a = radam_rectification(o->beta2, t, 5);
        break;
    case AF_OPTIMIZER_ADOPT:
        a = t > 1 ? pow(t - 1, 0.25) : 0;
        break;
    case AF_OPTIMIZER_FREE_RADAM:
        a = radam_rectification(o->beta2, t, 4);
        b = pow(t, o->count_power);
        break;
    case AF_OPTIMIZER_FREE_ADAMW:
    case AF_OPTIMIZER_FREE_SGD:
        a = t < o->warmup_steps ? t / o->warmup_steps : 1;
        b = pow(t, o->count_power);
        break;
    case AF_OPTIMIZER_STABLE_ADAMW: /* shares of the new values, so that nothing is corrected */
        a = (1 - o->beta1) / (1 - pow(o->beta1, t));
        b = (1 - o->beta2) / (1 - pow(o->beta2, t));
        break;
    case AF_OPTIMIZER_APOLLO: /* which draw of its projections */
        a = floor((t - 1) / (double)o->gap);
        break;
    case AF_OPTIMIZER_GALORE: /* the same; whether it is new in this step */
        a = floor((t - 1) / (double)o->gap);
        b = fmod(t - 1, (double)o->gap) > 0 ? 0 : 1;
        break;
    default:
        break;
    }
    hyper[AF_HYPER_A] = (float)a;
    hyper[AF_HYPER_B] = (float)b;
}
