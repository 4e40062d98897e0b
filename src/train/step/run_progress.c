/* run_progress.c - see run_progress.h. In JSON, doubles are hexadecimal text: they read back bit by
 * bit, NaN too. */
#include "train/step/run_progress.h"
#include "base/word.h"
#include "format/text/json_text.h"

#include <jansson.h>
#include <math.h>

/* Steps of warm-up: a number, or a share of the run. */
static int64_t warmup_steps(const af_run_config *r, int64_t steps)
{
    double n = r->warmup_steps;
    if (n > 0 && n < 1)
        n = ceil(n * (double)steps);
    if (r->warmup_ratio > 0)
        n = ceil(r->warmup_ratio * (double)steps);
    if (r->warmup_ratio > 0 && r->warmup_max_steps > 0) {
        n = fmin(floor(r->warmup_ratio * (double)steps), (double)r->warmup_max_steps);
        n = n < 2 && n > 0 ? 2 : n; /* as Axolotl has it */
    }
    return (int64_t)n;
}

af_status af_run_progress_init(af_run_progress *p, const af_run_config *run, int64_t items,
                               int64_t micro, af_error *err)
{
    const int64_t per_step = run->micro_batch_size * micro;
    const double epochs = (double)items * run->num_epochs / (double)per_step;
    *p = (af_run_progress){
        .steps = run->max_steps > 0 ? run->max_steps : (int64_t)ceil(epochs - 1e-9),
        .items_per_epoch = items,
        .items_per_micro = run->micro_batch_size,
        .micro_per_step = micro,
        .best_eval = NAN,
        .plateau = {.best = NAN, .factor = 1},
        .rate_factor = 1,
        .first_loss = NAN,
        .last_loss = NAN,
        .pending = AF_PENDING_EVAL, /* of the model before the first step */
    };
    const af_schedule_opts o = {
        .name = run->lr_scheduler,
        .peak = run->learning_rate,
        .steps = p->steps,
        .warmup = warmup_steps(run, p->steps),
        .min_ratio = run->min_lr > 0 && run->learning_rate > 0
                         ? fmin(run->min_lr / run->learning_rate, 1)
                         : run->min_lr_ratio,
        .constant_ratio = run->constant_lr_ratio,
        .quadratic_warmup = run->quadratic_warmup,
        .power = run->lr_power,
        .cycles = run->lr_cycles,
        .decay_steps = run->lr_decay_steps || strcmp(run->lr_scheduler, "warmup_stable_decay") != 0
                           ? run->lr_decay_steps
                           : (int64_t)ceil(run->decay_ratio * (double)p->steps),
        .decay = run->lr_decay,
        .gamma = run->lr_gamma,
        .step_size = run->lr_step_size,
        .timescale = run->lr_timescale,
        .rise = run->lr_warmup_type,
        .stable_steps = AF_MAX(run->lr_stable_steps, 0),
        .has_stable_steps = run->lr_stable_steps >= 0,
        .first_ratio = fmax(run->warmup_lr_rate, 0),
        .has_first_ratio = run->warmup_lr_rate >= 0,
        .restart_steps = run->jagged_steps,
        .restart_warmup = run->jagged_warmup,
        .restart_anneal = run->jagged_anneal,
        .restart_floor = run->min_lr_ratio,
        .start_ratio = run->learning_rate > 0 ? run->warmup_init_lr / run->learning_rate : 0,
    };
    const af_status st = af_schedule_init(&p->schedule, &o, err);
    char at[300];
    return st == AF_OK
               ? AF_OK
               : af_fail_prefix(st, err, "%s", af_run_key_loc(run, "lr_scheduler", at, sizeof at));
}

const char *af_run_progress_metric(const af_run_config *run)
{
    static const char prefix[] = "eval_";
    const size_t n = sizeof prefix - 1;
    return run->best_metric + (strncmp(run->best_metric, prefix, n) == 0 ? n : 0);
}

static bool larger_is_better(const af_run_config *run)
{
    if (run->greater_is_better != AF_TRI_AUTO)
        return run->greater_is_better == AF_TRI_YES;
    return !af_ends_with(run->best_metric, "loss") && !af_ends_with(run->best_metric, "mse");
}

double af_run_progress_lr(const af_run_progress *p, int64_t step)
{
    const double factor = step < p->step ? p->rate_factor : p->plateau.factor;
    return af_schedule_lr(&p->schedule, step) * factor;
}

static bool follows_evaluations(const af_run_progress *p)
{
    return p->schedule.kind == AF_SCHEDULE_PLATEAU || p->schedule.kind == AF_SCHEDULE_GREEDY;
}

/* The base model is not a result of the run. A gain below the threshold is the best, but counts as
 * none: so does EarlyStoppingCallback of transformers. */
bool af_run_progress_judge(af_run_progress *p, const af_run_config *run, double value)
{
    const bool first = p->step == 0;
    if (!first && p->schedule.kind == AF_SCHEDULE_PLATEAU)
        af_plateau_judge(&p->plateau, run, larger_is_better(run), value);
    if (!first && p->schedule.kind == AF_SCHEDULE_GREEDY)
        af_greedy_judge(&p->plateau, run, larger_is_better(run), value);
    const double more = value - p->best_eval;
    const double gain = isnan(p->best_eval) ? INFINITY : larger_is_better(run) ? more : -more;
    p->evals_without_gain =
        first || gain > run->early_stopping_threshold ? 0 : p->evals_without_gain + 1;
    if (first || !(gain > 0))
        return false;
    p->best_eval = value;
    p->best_step = p->step;
    return true;
}

int64_t af_run_progress_every(const af_run_progress *p, double n)
{
    return (int64_t)(n < 1 ? ceil(n * (double)p->steps) : n);
}

bool af_run_progress_part(const af_run_progress *p, int64_t per_epoch)
{
    const double parts = (double)(p->items_per_micro * per_epoch),
                 items = (double)p->items_per_epoch;
    const double before = (double)(p->micro - p->micro_per_step);
    return p->step == 0 || floor((double)p->micro * parts / items) > floor(before * parts / items);
}

double af_run_progress_epoch(const af_run_progress *p)
{
    return (double)(p->micro * p->items_per_micro) / (double)p->items_per_epoch;
}

static void put_double(json_t *o, const char *key, double v)
{
    char text[40];
    snprintf(text, sizeof text, "%a", v);
    json_object_set_new(o, key, json_string(text));
}

/* The sums of a preference run, by name; nothing for another run. */
static void put_pref(json_t *o, const af_pref_metrics *m)
{
    json_t *list = json_object();
    for (int i = 0; i < AF_PREF_METRICS; i++) {
        char text[40];
        snprintf(text, sizeof text, "%a", m->sum[i]);
        if (m->count[i])
            json_object_set_new(list, af_pref_metric_name((af_pref_metric)i),
                                json_pack("[s,I]", text, (json_int_t)m->count[i]));
    }
    if (m->tokens)
        json_object_set_new(list, "num_tokens", json_integer(m->tokens));
    if (json_object_size(list))
        json_object_set(o, "preference", list);
    json_decref(list);
}

/* No run counts further; sums and products of two counters stay within 63 bits. */
#define COUNTER_MAX (INT64_C(1) << 48)
/* A resumed run passes over the epochs it has seen, one by one. */
#define EPOCHS_MAX 1e7

static bool counter_of(const json_t *v, int64_t *out)
{
    *out = json_integer_value(v);
    return json_is_integer(v) && *out >= 0 && *out <= COUNTER_MAX;
}

static bool get_int(const json_t *o, const char *key, int64_t *out)
{
    return counter_of(json_object_get(o, key), out);
}

static void get_pref(const json_t *o, af_pref_metrics *m)
{
    const json_t *list = json_object_get(o, "preference");
    *m = (af_pref_metrics){0};
    if (!get_int(list, "num_tokens", &m->tokens))
        m->tokens = 0;
    for (int i = 0; i < AF_PREF_METRICS; i++) {
        const json_t *v = json_object_get(list, af_pref_metric_name((af_pref_metric)i));
        const char *sum = json_string_value(json_array_get(v, 0));
        if (sum && counter_of(json_array_get(v, 1), &m->count[i]))
            m->sum[i] = strtod(sum, NULL);
        else
            m->count[i] = 0;
    }
}

af_status af_run_progress_text(const af_run_progress *p, uint64_t clock, char **out, af_error *err)
{
    json_t *o = json_object();
    json_object_set_new(o, "step", json_integer(p->step));
    json_object_set_new(o, "micro", json_integer(p->micro));
    json_object_set_new(o, "micro_per_step", json_integer(p->micro_per_step));
    json_object_set_new(o, "tokens", json_integer(p->tokens));
    json_object_set_new(o, "supervised", json_integer(p->supervised));
    json_object_set_new(o, "padded", json_integer(p->padded));
    json_object_set_new(o, "metrics_bytes", json_integer((json_int_t)p->metrics_bytes));
    json_object_set_new(o, "clock", json_integer((json_int_t)clock));
    json_object_set_new(o, "best_step", json_integer(p->best_step));
    json_object_set_new(o, "evals_without_gain", json_integer(p->evals_without_gain));
    json_object_set_new(o, "losses_above", json_integer(p->losses_above));
    json_object_set_new(o, "loss_count", json_integer(p->loss_count));
    json_object_set_new(o, "data_records", json_integer(p->data_records));
    json_object_set_new(o, "data_tokens", json_integer(p->data_tokens));
    json_object_set_new(o, "owed", json_integer(p->pending));
    json_object_set_new(o, "last_tokens", json_integer(p->last.tokens));
    json_object_set_new(o, "last_supervised", json_integer(p->last.supervised));
    json_object_set_new(o, "last_padded", json_integer(p->last.padded));
    put_double(o, "last_grad_norm", p->last.grad_norm);
    if (!isnan(p->last.router_loss))
        put_double(o, "last_router_loss", p->last.router_loss);
    put_double(o, "last_epoch", p->last.epoch);
    put_double(o, "last_seconds", p->last_seconds);
    if (follows_evaluations(p)) {
        af_plateau_put(o, &p->plateau, p->schedule.kind == AF_SCHEDULE_GREEDY);
        put_double(o, "rate_factor", p->rate_factor);
    }
    put_double(o, "best_eval", p->best_eval);
    put_double(o, "seconds", p->seconds);
    put_double(o, "first_loss", p->first_loss);
    put_double(o, "last_loss", p->last_loss);
    put_double(o, "loss_sum", p->loss_sum);
    put_pref(o, &p->pref);
    *out = o ? af_json_dump(o, JSON_INDENT(2)) : NULL;
    json_decref(o);
    return *out ? AF_OK : af_fail_nomem(err, "the progress of a run", 1024);
}

static bool get_double(const json_t *o, const char *key, double *out)
{
    const char *s = json_string_value(json_object_get(o, key));
    char *end = NULL;
    *out = s ? strtod(s, &end) : 0;
    return s && end != s && !*end;
}

/* The last step; a checkpoint of an earlier version does not have it, and nothing is pending. */
static void get_last(const json_t *o, af_run_progress *p)
{
    if (!get_int(o, "owed", &p->pending) || !get_int(o, "last_tokens", &p->last.tokens) ||
        !get_int(o, "last_supervised", &p->last.supervised) ||
        !get_int(o, "last_padded", &p->last.padded) ||
        !get_double(o, "last_grad_norm", &p->last.grad_norm) ||
        !get_double(o, "last_epoch", &p->last.epoch) ||
        !get_double(o, "last_seconds", &p->last_seconds))
        p->pending = AF_PENDING_NOTHING;
    if (!get_double(o, "last_router_loss", &p->last.router_loss))
        p->last.router_loss = NAN;
}

static void get_plateau(const json_t *o, af_run_progress *p)
{
    if (follows_evaluations(p) &&
        af_plateau_get(o, &p->plateau, p->schedule.kind == AF_SCHEDULE_GREEDY) &&
        get_double(o, "rate_factor", &p->rate_factor) && p->rate_factor > 0 &&
        isfinite(p->rate_factor))
        return;
    p->plateau = (af_plateau){.best = NAN, .factor = 1};
    p->rate_factor = 1;
}

af_status af_run_progress_read(af_run_progress *p, uint64_t *clock, const char *path, af_error *err)
{
    json_t *o = NULL;
    const af_status st = af_json_read_file(&o, path, err);
    if (st == AF_ENOMEM)
        return st;
    af_run_progress q = {.steps = p->steps,
                         .items_per_epoch = p->items_per_epoch,
                         .items_per_micro = p->items_per_micro,
                         .micro_per_step = p->micro_per_step,
                         .schedule = p->schedule,
                         .last = {.loss = NAN}}; /* not stored: unknown until the next step */
    int64_t bytes = 0, ticks = 0;
    const bool ok =
        o && get_int(o, "step", &q.step) && get_int(o, "micro", &q.micro) &&
        get_int(o, "tokens", &q.tokens) && get_int(o, "supervised", &q.supervised) &&
        get_int(o, "padded", &q.padded) && get_int(o, "metrics_bytes", &bytes) &&
        get_int(o, "clock", &ticks) && get_int(o, "best_step", &q.best_step) &&
        get_int(o, "evals_without_gain", &q.evals_without_gain) &&
        get_int(o, "loss_count", &q.loss_count) && get_double(o, "best_eval", &q.best_eval) &&
        get_double(o, "seconds", &q.seconds) && get_double(o, "first_loss", &q.first_loss) &&
        get_double(o, "last_loss", &q.last_loss) && get_double(o, "loss_sum", &q.loss_sum);
    if (!get_int(o, "data_records", &q.data_records) || !get_int(o, "data_tokens", &q.data_tokens))
        q.data_records = q.data_tokens = -1;
    if (!get_int(o, "micro_per_step", &q.stored_micro_per_step))
        q.stored_micro_per_step = 0;
    if (!get_int(o, "losses_above", &q.losses_above))
        q.losses_above = 0; /* of an earlier version */
    get_last(o, &q);
    get_plateau(o, &q);
    get_pref(o, &q.pref);
    json_decref(o);
    if (!ok)
        return af_fail(err, AF_EFORMAT, "'%s' does not hold the progress of a run", path);
    if ((double)q.micro * (double)q.items_per_micro > EPOCHS_MAX * (double)q.items_per_epoch)
        return af_fail(err, AF_EFORMAT,
                       "'%s': %" PRId64 " micro-batches are more than %.0f epochs of this data",
                       path, q.micro, EPOCHS_MAX);
    q.metrics_bytes = (uint64_t)bytes;
    *clock = (uint64_t)ticks;
    *p = q;
    return AF_OK;
}
