/* run_progress.c - the counters of a run as JSON. Doubles are written as hexadecimal text: they
 * read back bit for bit, NaN too. */
#include "base/file.h"
#include "train/checkpoint/checkpoint.h"

#include <jansson.h>

static void put_double(json_t *o, const char *key, double v)
{
    char text[40];
    snprintf(text, sizeof text, "%a", v);
    json_object_set_new(o, key, json_string(text));
}

af_status af_progress_text(const af_progress *p, uint64_t clock, char **out, af_error *err)
{
    json_t *o = json_object();
    json_object_set_new(o, "step", json_integer(p->step));
    json_object_set_new(o, "micro", json_integer(p->micro));
    json_object_set_new(o, "tokens", json_integer(p->tokens));
    json_object_set_new(o, "supervised", json_integer(p->supervised));
    json_object_set_new(o, "padded", json_integer(p->padded));
    json_object_set_new(o, "metrics_bytes", json_integer((json_int_t)p->metrics_bytes));
    json_object_set_new(o, "clock", json_integer((json_int_t)clock));
    json_object_set_new(o, "best_step", json_integer(p->best_step));
    json_object_set_new(o, "evals_without_gain", json_integer(p->evals_without_gain));
    json_object_set_new(o, "loss_count", json_integer(p->loss_count));
    json_object_set_new(o, "data_records", json_integer(p->data_records));
    json_object_set_new(o, "data_tokens", json_integer(p->data_tokens));
    json_object_set_new(o, "owed", json_integer(p->pending));
    json_object_set_new(o, "last_tokens", json_integer(p->last.tokens));
    json_object_set_new(o, "last_supervised", json_integer(p->last.supervised));
    json_object_set_new(o, "last_padded", json_integer(p->last.padded));
    put_double(o, "last_grad_norm", p->last.grad_norm);
    put_double(o, "last_epoch", p->last.epoch);
    put_double(o, "last_seconds", p->last_seconds);
    put_double(o, "best_eval", p->best_eval);
    put_double(o, "seconds", p->seconds);
    put_double(o, "first_loss", p->first_loss);
    put_double(o, "last_loss", p->last_loss);
    put_double(o, "loss_sum", p->loss_sum);
    *out = o ? json_dumps(o, JSON_INDENT(2)) : NULL;
    json_decref(o);
    return *out ? AF_OK : af_fail_nomem(err, "the progress of a run", 1024);
}

static bool get_int(const json_t *o, const char *key, int64_t *out)
{
    const json_t *v = json_object_get(o, key);
    *out = json_integer_value(v);
    return json_is_integer(v) && *out >= 0;
}

static bool get_double(const json_t *o, const char *key, double *out)
{
    const char *s = json_string_value(json_object_get(o, key));
    char *end = NULL;
    *out = s ? strtod(s, &end) : 0;
    return s && end != s && !*end;
}

/* The last step; a checkpoint of an earlier version does not know it, and owes nothing. */
static void get_last(const json_t *o, af_progress *p)
{
    if (!get_int(o, "owed", &p->pending) || !get_int(o, "last_tokens", &p->last.tokens) ||
        !get_int(o, "last_supervised", &p->last.supervised) ||
        !get_int(o, "last_padded", &p->last.padded) ||
        !get_double(o, "last_grad_norm", &p->last.grad_norm) ||
        !get_double(o, "last_epoch", &p->last.epoch) ||
        !get_double(o, "last_seconds", &p->last_seconds))
        p->pending = AF_PENDING_NOTHING;
}

af_status af_progress_read(af_progress *p, uint64_t *clock, const char *path, af_error *err)
{
    json_error_t why;
    json_t *o = json_load_file(path, 0, &why);
    af_progress q = {0};
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
    get_last(o, &q);
    json_decref(o);
    if (!ok)
        return af_fail(err, AF_EFORMAT, "'%s' does not hold the progress of a run", path);
    q.metrics_bytes = (uint64_t)bytes;
    *clock = (uint64_t)ticks;
    *p = q;
    return AF_OK;
}
