/* plateau.c - learning rates that follow evaluations: reduce_lr_on_plateau as torch's class has it,
 * greedy as GreedyLR of transformers. In JSON, doubles are hexadecimal text. */
#include "train/step/run_progress.h"

#include "format/text/json_text.h"

#include <math.h>

static const double least_change = 1e-8; /* a rate that would change by less stays */

/* Whether a value is better than the best by the threshold. */
static bool is_better(const af_plateau *b, const af_run_config *run, bool more, double value)
{
    const double none = more ? -INFINITY : INFINITY;
    const double part = more ? run->lr_threshold : -run->lr_threshold;
    const bool abs = run->lr_threshold_mode == AF_THRESHOLD_ABS;
    const double edge = isnan(b->best) ? none : abs ? b->best + part : b->best * (1 + part);
    return more ? value > edge : value < edge;
}

/* The floor as a share of the peak. */
static double floor_of(const af_run_config *run)
{
    const double peak = run->learning_rate;
    return run->min_lr > 0 && peak > 0 ? run->min_lr / peak : run->min_lr_ratio;
}

void af_plateau_judge(af_plateau *b, const af_run_config *run, bool more, double value)
{
    const bool better = is_better(b, run, more, value);
    b->best = better ? value : b->best;
    b->bad = better || b->cooldown > 0 ? 0 : b->bad + 1;
    b->cooldown -= b->cooldown > 0;
    if (b->bad <= run->lr_patience)
        return;
    const double lower = fmax(b->factor * (run->lr_gamma > 0 ? run->lr_gamma : 0.1), floor_of(run));
    if ((b->factor - lower) * run->learning_rate > least_change)
        b->factor = lower;
    b->cooldown = run->lr_cooldown;
    b->bad = 0;
}

/* --- greedy ---------------------------------------------------------------------------------- */

/* The mean of the last values. The sum is kept, as there, so that it rounds alike. */
static double smoothed(af_plateau *b, const af_run_config *run, double value)
{
    const int64_t room = AF_MIN(run->lr_window, AF_LR_WINDOW_MAX);
    b->sum += value;
    if (b->recent_count >= room) {
        b->sum -= b->recent[0];
        b->recent_count = room - 1;
        memmove(b->recent, b->recent + 1, (size_t)b->recent_count * sizeof *b->recent);
    }
    b->recent[b->recent_count++] = value;
    return b->sum / (double)b->recent_count;
}

static void raise_rate(af_plateau *b, const af_run_config *run)
{
    const double peak = run->learning_rate, most = peak > 0 ? run->lr_max / peak : 1;
    const double higher = fmin(b->factor / run->lr_gamma, most);
    if ((higher - b->factor) * peak > least_change)
        b->factor = higher;
    b->at_floor = 0;
}

/* After so many reductions that leave it at its floor it begins anew. */
static void reduce_rate(af_plateau *b, const af_run_config *run)
{
    const double least = floor_of(run), lower = fmax(b->factor * run->lr_gamma, least);
    if ((b->factor - lower) * run->learning_rate > least_change)
        b->factor = lower;
    if (b->factor > least)
        return;
    if (++b->at_floor >= run->lr_reset)
        *b = (af_plateau){.best = NAN, .factor = 1};
}

void af_greedy_judge(af_plateau *b, const af_run_config *run, bool more, double value)
{
    if (run->lr_smooth)
        value = smoothed(b, run, value);
    if (b->cooldown > 0 || b->rise_cooldown > 0) { /* both counts are 0 since the change */
        *(b->cooldown > 0 ? &b->cooldown : &b->rise_cooldown) -= 1;
        return;
    }
    const bool better = is_better(b, run, more, value);
    b->best = better ? value : b->best;
    b->good = better ? b->good + 1 : 0;
    b->bad = better ? 0 : b->bad + 1;
    if (b->good > run->lr_patience) {
        raise_rate(b, run);
        b->rise_cooldown = run->lr_rise_cooldown;
        b->good = 0;
    } else if (b->bad > run->lr_patience) {
        reduce_rate(b, run);
        b->cooldown = run->lr_cooldown;
        b->bad = 0;
    }
}

/* --- in checkpoints -------------------------------------------------------------------------- */

static json_t *hex(double v)
{
    char text[40];
    snprintf(text, sizeof text, "%a", v);
    return json_string(text);
}

static bool read_hex(const json_t *v, double *out)
{
    const char *s = json_string_value(v);
    char *end = NULL;
    *out = s ? strtod(s, &end) : 0;
    return s && end != s && !*end;
}

static bool read_count(const json_t *o, const char *key, int64_t *out)
{
    const json_t *v = json_object_get(o, key);
    *out = json_integer_value(v);
    return json_is_integer(v) && *out >= 0 && *out <= INT64_C(1) << 48;
}

void af_plateau_put(json_t *o, const af_plateau *b, bool greedy)
{
    json_object_set_new(o, "plateau_best", hex(b->best));
    json_object_set_new(o, "plateau_factor", hex(b->factor));
    json_object_set_new(o, "plateau_bad", json_integer(b->bad));
    json_object_set_new(o, "plateau_cooldown", json_integer(b->cooldown));
    if (!greedy)
        return;
    json_t *recent = json_array();
    json_object_set_new(o, "greedy_good", json_integer(b->good));
    json_object_set_new(o, "greedy_rise_cooldown", json_integer(b->rise_cooldown));
    json_object_set_new(o, "greedy_at_floor", json_integer(b->at_floor));
    json_object_set_new(o, "greedy_sum", hex(b->sum));
    for (int64_t i = 0; i < b->recent_count; i++)
        json_array_append_new(recent, hex(b->recent[i]));
    json_object_set_new(o, "greedy_recent", recent);
}

bool af_plateau_get(const json_t *o, af_plateau *b, bool greedy)
{
    const json_t *recent = json_object_get(o, "greedy_recent");
    *b = (af_plateau){0};
    if (!read_hex(json_object_get(o, "plateau_best"), &b->best) ||
        !read_hex(json_object_get(o, "plateau_factor"), &b->factor) ||
        !read_count(o, "plateau_bad", &b->bad) ||
        !read_count(o, "plateau_cooldown", &b->cooldown) ||
        !(b->factor > 0 && (greedy ? isfinite(b->factor) : b->factor <= 1)))
        return false;
    if (!greedy)
        return true;
    b->recent_count = (int64_t)json_array_size(recent);
    if (!read_count(o, "greedy_good", &b->good) ||
        !read_count(o, "greedy_rise_cooldown", &b->rise_cooldown) ||
        !read_count(o, "greedy_at_floor", &b->at_floor) ||
        !read_hex(json_object_get(o, "greedy_sum"), &b->sum) || b->recent_count > AF_LR_WINDOW_MAX)
        return false;
    for (int64_t i = 0; i < b->recent_count; i++)
        if (!read_hex(json_array_get(recent, (size_t)i), &b->recent[i]))
            return false;
    return true;
}
