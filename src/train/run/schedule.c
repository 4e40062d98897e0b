/* schedule.c - learning rates over a run. */
#include "afinar/schedule.h"
#include "base/base.h"

#include <math.h>

#define PI              3.14159265358979323846
#define POLYNOMIAL_END  1e-7 /* where the polynomial ends without a floor, as in transformers */
#define ONE_CYCLE_RISE  0.3  /* share of the run that rises, without warm-up steps */
#define ONE_CYCLE_START 25.0 /* the run starts at peak / this ... */
#define ONE_CYCLE_END   1e4  /* ... and ends this much lower still */
#define EXPONENTIAL_END 0.01

static const int64_t STEPS_MAX = INT64_C(1) << 52; /* sums of them fit, also in a double */

static const struct {
    const char *name;
    af_schedule_kind kind;
} kinds[] = {
    {"constant", AF_SCHEDULE_CONSTANT},
    {"constant_with_warmup", AF_SCHEDULE_CONSTANT_WARMUP},
    {"linear", AF_SCHEDULE_LINEAR},
    {"cosine", AF_SCHEDULE_COSINE},
    {"cosine_with_min_lr", AF_SCHEDULE_COSINE},
    {"cosine_warmup_with_min_lr", AF_SCHEDULE_COSINE_AHEAD},
    {"cosine_with_restarts", AF_SCHEDULE_COSINE_RESTARTS},
    {"polynomial", AF_SCHEDULE_POLYNOMIAL},
    {"inverse_sqrt", AF_SCHEDULE_INVERSE_SQRT},
    {"step", AF_SCHEDULE_STEP},
    {"exponential", AF_SCHEDULE_EXPONENTIAL},
    {"one_cycle", AF_SCHEDULE_ONE_CYCLE},
    {"warmup_stable_decay", AF_SCHEDULE_WSD},
    {"rex", AF_SCHEDULE_REX},
    {"cosine_decay", AF_SCHEDULE_MLX_COSINE},
    {"linear_schedule", AF_SCHEDULE_MLX_LINEAR},
    {"step_decay", AF_SCHEDULE_MLX_STEP},
    {"exponential_decay", AF_SCHEDULE_MLX_EXPONENTIAL},
    {"reduce_lr_on_plateau", AF_SCHEDULE_PLATEAU},
    {"greedy", AF_SCHEDULE_GREEDY},
};

/* Evaluations change the rate, not steps. */
static bool follows_evaluations(af_schedule_kind k)
{
    return k == AF_SCHEDULE_PLATEAU || k == AF_SCHEDULE_GREEDY;
}

const char *af_schedule_names(void)
{
    return "constant, constant_with_warmup, linear, cosine, cosine_with_min_lr, "
           "cosine_warmup_with_min_lr, cosine_with_restarts, polynomial, inverse_sqrt, step, "
           "exponential, one_cycle, warmup_stable_decay, rex, cosine_decay, linear_schedule, "
           "step_decay, exponential_decay, reduce_lr_on_plateau, greedy";
}

static bool is_mlx(af_schedule_kind k)
{
    return k == AF_SCHEDULE_MLX_COSINE || k == AF_SCHEDULE_MLX_LINEAR ||
           k == AF_SCHEDULE_MLX_STEP || k == AF_SCHEDULE_MLX_EXPONENTIAL;
}

static void fill_defaults(af_schedule *s)
{
    af_schedule_opts *o = &s->o;
    const double rest = (double)AF_MAX(o->steps - o->warmup, 1);
    if (o->power == 0)
        o->power = 1;
    if (o->cycles == 0)
        o->cycles = s->kind == AF_SCHEDULE_COSINE_RESTARTS ? 1 : 0.5;
    if (o->decay_steps == 0)
        o->decay_steps = is_mlx(s->kind) ? (int64_t)rest : (o->steps + 9) / 10;
    if (o->gamma == 0)
        o->gamma = s->kind == AF_SCHEDULE_STEP || s->kind == AF_SCHEDULE_MLX_STEP
                       ? 0.1
                       : pow(EXPONENTIAL_END, 1 / rest);
    if (o->restart_warmup == 0)
        o->restart_warmup = 10;
    if (o->restart_anneal == 0)
        o->restart_anneal = 1;
    if (o->restart_floor == 0)
        o->restart_floor = 0.001;
    if (o->timescale == 0)
        o->timescale = o->warmup ? o->warmup : 10000;
    if (o->step_size == 0)
        o->step_size = AF_MAX((int64_t)ceil(rest / 3), 1);
}

/* Of steps restarts: torch's step and exponential multiply the last rate, which a restart has
 * lowered. */
static af_status check_restarts(const af_schedule_opts *o, af_schedule_kind kind, af_error *err)
{
    if (o->restart_steps < 0 || o->restart_warmup < 0 || o->restart_anneal < 0 ||
        o->restart_steps > STEPS_MAX || o->restart_warmup > STEPS_MAX ||
        o->restart_anneal > STEPS_MAX || !(o->restart_floor >= 0 && o->restart_floor <= 1))
        return af_fail(err, AF_EUSAGE,
                       "schedule %s: restarts every %" PRId64 " steps, warm-up %" PRId64
                       ", annealing %" PRId64 ", floor %g: none may be below 0, nor the floor "
                       "above 1",
                       o->name, o->restart_steps, o->restart_warmup, o->restart_anneal,
                       o->restart_floor);
    if (o->restart_steps > 0 &&
        (kind == AF_SCHEDULE_STEP || kind == AF_SCHEDULE_EXPONENTIAL || follows_evaluations(kind)))
        return af_fail(err, AF_EUSAGE,
                       "schedule %s: it has no jagged restarts (jagged_restart_steps), whose "
                       "schedule must be a function of the step alone",
                       o->name);
    return AF_OK;
}

/* The options that one kind alone has. */
static af_status check_own(const af_schedule_opts *o, af_error *err)
{
    if ((unsigned)o->rise > AF_SCHEDULE_RISE_SQRT)
        return af_fail(err, AF_EUSAGE, "schedule %s: rise %d is not one of 0 to %d", o->name,
                       (int)o->rise, AF_SCHEDULE_RISE_SQRT);
    if (o->timescale < 0 || o->stable_steps < 0 || o->timescale > STEPS_MAX ||
        o->stable_steps > STEPS_MAX)
        return af_fail(err, AF_EUSAGE,
                       "schedule %s: time scale %" PRId64 ", %" PRId64
                       " stable steps: none may be below 0 or above %" PRId64,
                       o->name, o->timescale, o->stable_steps, STEPS_MAX);
    if (!(o->first_ratio >= 0 && o->first_ratio <= 1))
        return af_fail(err, AF_EUSAGE,
                       "schedule %s: the first rate of the warm-up is %g of the peak, not 0 to 1",
                       o->name, o->first_ratio);
    return AF_OK;
}

af_status af_schedule_init(af_schedule *out, const af_schedule_opts *o, af_error *err)
{
    AF_NEED(err, out, o);
    if (!o->name)
        return af_fail(err, AF_EUSAGE, "no schedule is named: %s", af_schedule_names());
    af_schedule s = {.o = *o};
    size_t k = 0;
    while (k < AF_LEN(kinds) && strcmp(kinds[k].name, o->name) != 0)
        k++;
    if (k == AF_LEN(kinds))
        return af_fail(err, AF_EUSAGE,
                       "lr_scheduler '%.40s' is not supported; it must be one of: %s", o->name,
                       af_schedule_names());
    if ((unsigned)o->decay > AF_SCHEDULE_DECAY_SQRT)
        return af_fail(err, AF_EUSAGE, "schedule %s: decay %d is not one of 0 to %d", o->name,
                       (int)o->decay, AF_SCHEDULE_DECAY_SQRT);
    if (!(o->peak >= 0) || o->steps < 0 || o->warmup < 0 || o->decay_steps < 0 || o->step_size < 0)
        return af_fail(err, AF_EUSAGE,
                       "schedule %s: rate %g, %" PRId64 " steps, warm-up %" PRId64
                       ": none may be below 0",
                       o->name, o->peak, o->steps, o->warmup);
    if (!(isfinite(o->peak) && isfinite(o->power) && o->power >= 0 && isfinite(o->cycles) &&
          o->cycles >= 0 && isfinite(o->gamma) && o->gamma >= 0))
        return af_fail(err, AF_EUSAGE,
                       "schedule %s: rate %g, power %g, %g cycles and gamma %g must be finite "
                       "and not below 0",
                       o->name, o->peak, o->power, o->cycles, o->gamma);
    if (o->steps > STEPS_MAX || o->warmup > STEPS_MAX || o->decay_steps > STEPS_MAX)
        return af_fail(err, AF_EUSAGE,
                       "schedule %s: %" PRId64 " steps, warm-up %" PRId64 ", decay %" PRId64
                       ": none may be above %" PRId64,
                       o->name, o->steps, o->warmup, o->decay_steps, STEPS_MAX);
    if (!(o->min_ratio >= 0 && o->min_ratio <= 1))
        return af_fail(err, AF_EUSAGE, "schedule %s: the floor is %g of the peak, not 0 to 1",
                       o->name, o->min_ratio);
    if (!(o->constant_ratio >= 0 && o->constant_ratio <= 1))
        return af_fail(err, AF_EUSAGE,
                       "schedule %s: the floor is reached after %g of the run, not 0 to 1", o->name,
                       o->constant_ratio);
    if (!(o->start_ratio >= 0 && o->start_ratio <= 1))
        return af_fail(err, AF_EUSAGE, "schedule %s: warm-up begins at %g of the peak, not 0 to 1",
                       o->name, o->start_ratio);
    af_status st = check_own(o, err);
    if (st == AF_OK)
        st = check_restarts(o, kinds[k].kind, err);
    if (st != AF_OK)
        return st;
    s.kind = kinds[k].kind;
    s.o.name = NULL;
    fill_defaults(&s);
    *out = s;
    return AF_OK;
}

/* 0 at the end of the warm-up, 1 at the end of the run. */
static double progress(const af_schedule_opts *o, int64_t step)
{
    return (double)(step - o->warmup) / (double)AF_MAX(o->steps - o->warmup, 1);
}

static double half_cosine(double p) { return 0.5 * (1 + cos(PI * p)); }

/* Half a wave from 1 down to 0, or as many waves as `cycles` has. */
static double waves(const af_schedule_opts *o, double p) { return half_cosine(2 * o->cycles * p); }

static double with_floor(double factor, double floor) { return factor * (1 - floor) + floor; }

static double cosine(const af_schedule_opts *o, int64_t step, bool restarts)
{
    const double p = progress(o, step);
    if (!restarts)
        return with_floor(waves(o, p), o->min_ratio);
    return with_floor(p >= 1 ? 0 : half_cosine(fmod(o->cycles * p, 1)), o->min_ratio);
}

/* Axolotl's cosine that has its floor before the end; without a floor the share has no meaning. */
static double cosine_then_constant(const af_schedule_opts *o, int64_t step)
{
    const int64_t end = (int64_t)((double)o->steps * o->constant_ratio);
    const double p = (double)(AF_MIN(step, end) - o->warmup) / (double)AF_MAX(end - o->warmup, 1);
    return fmax(with_floor(half_cosine(p), o->min_ratio), o->min_ratio);
}

/* As transformers has it: the first step of the warm-up is not at 0, the last of all at the floor.
 */
static double cosine_ahead(const af_schedule_opts *o, int64_t step)
{
    if (step < o->warmup && o->has_first_ratio)
        return with_floor((double)step / (double)AF_MAX(o->warmup - 1, 1), o->first_ratio);
    if (step < o->warmup)
        return (double)(step + 1) / (double)o->warmup;
    return with_floor(waves(o, progress(o, step + 1)), o->min_ratio);
}

/* As Axolotl's class behaves: its counter is at 1 in the first step. */
static double rex(const af_schedule_opts *o, int64_t step)
{
    const int64_t at = step + 1, rest = o->steps - o->warmup;
    if (at <= o->warmup)
        return (double)at / (double)o->warmup;
    if (at - o->warmup >= rest)
        return o->min_ratio;
    const double z = (double)(rest - (at - o->warmup)) / (double)rest;
    return with_floor(z / (0.1 + 0.9 * z), o->min_ratio);
}

/* MLX joins two functions that do not know each other: the warm-up has its last step at the peak,
 * and the decay its first. After `decay_steps` the rate stays. */
static double mlx(const af_schedule *s, int64_t step)
{
    const af_schedule_opts *o = &s->o;
    if (o->warmup > 0 && step <= o->warmup)
        return with_floor((double)step / (double)o->warmup, o->start_ratio);
    const int64_t at = o->warmup > 0 ? step - o->warmup - 1 : step;
    const double p = fmin((double)at / (double)o->decay_steps, 1);
    switch (s->kind) {
    case AF_SCHEDULE_MLX_COSINE:
        return with_floor(half_cosine(p), o->min_ratio);
    case AF_SCHEDULE_MLX_LINEAR:
        return with_floor(1 - p, o->min_ratio);
    case AF_SCHEDULE_MLX_STEP:
        return pow(o->gamma, (double)(at / o->step_size));
    default:
        return pow(o->gamma, (double)at);
    }
}

static double polynomial(const af_schedule_opts *o, int64_t step)
{
    const double least = o->peak > 0 ? fmin(POLYNOMIAL_END / o->peak, 1) : 0;
    const double end = o->min_ratio > 0 ? o->min_ratio : least;
    return step > o->steps ? end : (1 - end) * pow(1 - progress(o, step), o->power) + end;
}

static double inverse_sqrt(const af_schedule_opts *o, int64_t step)
{
    const double scale = (double)o->timescale;
    return 1 / sqrt(((double)step + scale - (double)o->warmup) / scale);
}

/* From a low start up to the peak and down again, both along half a cosine. */
static double one_cycle(const af_schedule_opts *o, int64_t step)
{
    const double start = 1 / ONE_CYCLE_START, end = start / ONE_CYCLE_END;
    const double rise = o->warmup ? (double)o->warmup : ONE_CYCLE_RISE * (double)o->steps;
    const double top = fmax(rise - 1, 0), last = fmax((double)o->steps - 1, top);
    const double s = fmin((double)step, last);
    if (s <= top)
        return top > 0 ? with_floor(1 - half_cosine(s / top), start) : 1;
    return with_floor(half_cosine((s - top) / (last - top)), end);
}

static double rise(const af_schedule_opts *o, double p)
{
    return o->rise == AF_SCHEDULE_RISE_COSINE ? half_cosine(1 - p)
           : o->rise == AF_SCHEDULE_RISE_SQRT ? 1 - sqrt(1 - p)
                                              : p;
}

static double stable_decay(const af_schedule_opts *o, int64_t step)
{
    const int64_t from =
        o->has_stable_steps ? o->warmup + o->stable_steps : o->steps - o->decay_steps;
    if (step < o->warmup)
        return with_floor(rise(o, (double)step / (double)o->warmup), o->min_ratio);
    if (step < from)
        return 1;
    const double p = (double)(step - from) / (double)AF_MAX(o->decay_steps, 1);
    if (p >= 1)
        return o->min_ratio;
    switch (o->decay) {
    case AF_SCHEDULE_DECAY_LINEAR:
        return with_floor(1 - p, o->min_ratio);
    case AF_SCHEDULE_DECAY_SQRT:
        return with_floor(1 - sqrt(p), o->min_ratio);
    case AF_SCHEDULE_DECAY_COSINE:
        break;
    }
    return with_floor(waves(o, p), o->min_ratio);
}

static double factor_of(const af_schedule *s, int64_t step)
{
    const af_schedule_opts *o = &s->o;
    if (s->kind == AF_SCHEDULE_ONE_CYCLE)
        return one_cycle(o, step);
    if (s->kind == AF_SCHEDULE_WSD)
        return stable_decay(o, step);
    if (s->kind == AF_SCHEDULE_REX)
        return rex(o, step);
    if (s->kind == AF_SCHEDULE_COSINE_AHEAD)
        return cosine_ahead(o, step);
    if (is_mlx(s->kind))
        return mlx(s, step);
    if (step < o->warmup && s->kind != AF_SCHEDULE_CONSTANT && !follows_evaluations(s->kind)) {
        const double up = (double)step / (double)o->warmup;
        return with_floor(s->kind == AF_SCHEDULE_COSINE && o->quadratic_warmup ? up * up : up,
                          o->start_ratio);
    }
    switch (s->kind) {
    case AF_SCHEDULE_LINEAR:
        return 1 - progress(o, step);
    case AF_SCHEDULE_COSINE:
        return o->constant_ratio > 0 && o->min_ratio > 0 ? cosine_then_constant(o, step)
                                                         : cosine(o, step, false);
    case AF_SCHEDULE_COSINE_RESTARTS:
        return cosine(o, step, true);
    case AF_SCHEDULE_POLYNOMIAL:
        return polynomial(o, step);
    case AF_SCHEDULE_INVERSE_SQRT:
        return inverse_sqrt(o, step);
    case AF_SCHEDULE_STEP:
        return pow(o->gamma, (double)((step - o->warmup) / o->step_size));
    case AF_SCHEDULE_EXPONENTIAL:
        return pow(o->gamma, (double)(step - o->warmup));
    default:
        return 1;
    }
}

/* Axolotl's JaggedLRRestartScheduler, as its class behaves: the counter of the schedule within it
 * is at 1 in the first step, that of rex at 2. */
static double restarted(const af_schedule *s, int64_t step)
{
    const af_schedule_opts *o = &s->o;
    const int64_t at = step + 1 + (s->kind == AF_SCHEDULE_REX), in = at % o->restart_steps,
                  left = o->restart_steps - in;
    if (at < o->restart_steps - o->restart_anneal)
        return 1;
    return with_floor(in < o->restart_warmup     ? (double)in / (double)o->restart_warmup
                      : left < o->restart_anneal ? (double)left / (double)o->restart_anneal
                                                 : 1,
                      o->restart_floor);
}

double af_schedule_lr(const af_schedule *s, int64_t step)
{
    if (!s)
        return 0;
    const int64_t at = AF_MIN(AF_MAX(step, 0), STEPS_MAX);
    const double factor =
        s->o.restart_steps > 0 ? factor_of(s, at + 1) * restarted(s, at) : factor_of(s, at);
    return s->o.peak * fmax(factor, 0);
}
