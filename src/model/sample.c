/* sample.c - greedy and random choice of tokens; see sample.h. */
#include "model/sample.h"

#include "base/rng.h"

#include <float.h>
#include <math.h>

af_status af_sample_check(const af_sample_opts *o, af_error *err)
{
    const struct {
        const char *name;
        double value, min, max;
    } checks[] = {{"temperature", o->temperature, 0, 1000},
                  {"top-p", o->top_p, 0, 1},
                  {"min-p", o->min_p, 0, 1},
                  {"top-k", (double)o->top_k, 0, 1e9},
                  {"repeat-penalty", o->repeat_penalty, 0, 1000},
                  {"frequency-penalty", o->frequency_penalty, -1000, 1000},
                  {"presence-penalty", o->presence_penalty, -1000, 1000},
                  {"repeat-last-n", (double)o->repeat_last_n, 0, 1e18}};
    for (size_t i = 0; i < AF_LEN(checks); i++)
        if (!(checks[i].value >= checks[i].min) || checks[i].value > checks[i].max)
            return af_fail(err, AF_EUSAGE, "%s is %g, not from %g to %g", checks[i].name,
                           checks[i].value, checks[i].min, checks[i].max);
    return AF_OK;
}

/* The first of the largest; -1 when one is NaN. */
static int32_t arg_max(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i]))
            return -1;
        best = x[i] > x[best] ? i : best;
    }
    return (int32_t)best;
}

static bool is_repeat_penalty(const af_sample_opts *o)
{
    return o->repeat_penalty > 0 && o->repeat_penalty != 1;
}

bool af_sample_penalises(const af_sample_opts *o)
{
    return is_repeat_penalty(o) || o->frequency_penalty != 0 || o->presence_penalty != 0;
}

/* How often each token of ids [n] occurs, in the candidates' memory. */
static int32_t *count_tokens(const int32_t *ids, int64_t n, int64_t V, af_token_candidate *scratch)
{
    int32_t *count = (int32_t *)scratch;
    memset(count, 0, (size_t)V * sizeof *count);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] >= 0 && ids[i] < V)
            count[ids[i]]++;
    return count;
}

/* Each token that occurs is penalised once: its logit is divided by p, or multiplied when negative.
 * From that of each new one the other penalties are subtracted. */
static void penalise(const af_sample_opts *o, float *logits, int64_t V, af_seen_tokens seen,
                     af_token_candidate *scratch)
{
    const double p = o->repeat_penalty;
    const int64_t last = o->repeat_last_n > 0 ? AF_MIN(o->repeat_last_n, seen.count) : seen.count;
    seen.ids += seen.count - last;
    seen.count = last;
    seen.made = AF_MIN(seen.made, last);
    const int32_t *count =
        is_repeat_penalty(o) ? count_tokens(seen.ids, seen.count, V, scratch) : NULL;
    for (int64_t i = 0; count && i < V; i++)
        if (count[i])
            logits[i] = (float)(logits[i] > 0 ? logits[i] / p : logits[i] * p);
    if (o->frequency_penalty == 0 && o->presence_penalty == 0)
        return;
    count = count_tokens(seen.ids + seen.count - seen.made, seen.made, V, scratch);
    for (int64_t i = 0; i < V; i++)
        if (count[i])
            logits[i] = (float)(logits[i] - o->frequency_penalty * count[i] - o->presence_penalty);
}

static int by_probability(const void *a, const void *b)
{
    const af_token_candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Candidates with a logit of at least `least`, sorted. */
static int64_t collect(af_token_candidate *c, const float *logits, int64_t V, float least)
{
    int64_t n = 0;
    for (int64_t i = 0; i < V; i++)
        if (logits[i] >= least)
            c[n++] = (af_token_candidate){.id = (int32_t)i, .logit = logits[i]};
    qsort(c, (size_t)n, sizeof *c, by_probability);
    return n;
}

/* Probabilities of the first n candidates; `sum` is what they are divided by. */
static void set_probabilities(af_token_candidate *c, int64_t n, float top, double sum)
{
    for (int64_t i = 0; i < n; i++)
        c[i].p = exp((double)c[i].logit - top) / sum;
}

/* No filter: a choice from all tokens, in the order of by_probability. Their weights are added up
 * in bins of logits, and only the bin that the random number falls into is sorted: a sort of all of
 * a large vocabulary takes ten times as long as everything else here. */
static int32_t draw_from_all(const float *logits, int64_t V, float top, double random,
                             af_token_candidate *c)
{
    enum { BINS = 4096, PER_UNIT = 64 };
    double weight[BINS] = {0}, sum = 0, at = 0;
    for (int64_t i = 0; i < V; i++) {
        const float below = (top - logits[i]) * PER_UNIT; /* infinite for what a mask forbids */
        weight[below < BINS - 1 ? (int)below : BINS - 1] += exp((double)logits[i] - top);
    }
    for (int b = 0; b < BINS; b++)
        sum += weight[b];
    const double u = random * sum;
    int bin = 0, last = 0;
    for (int b = 0; b < BINS; b++)
        last = weight[b] > 0 ? b : last;
    while (bin < last && !(u < at + weight[bin]))
        at += weight[bin++];
    int64_t n = 0;
    for (int64_t i = 0; i < V; i++) {
        const float below = (top - logits[i]) * PER_UNIT;
        if ((below < BINS - 1 ? (int)below : BINS - 1) == bin && logits[i] >= -FLT_MAX)
            c[n++] = (af_token_candidate){.id = (int32_t)i, .logit = logits[i]};
    }
    qsort(c, (size_t)n, sizeof *c, by_probability);
    for (int64_t i = 0; i < n; i++) {
        at += exp((double)c[i].logit - top);
        if (u < at)
            return c[i].id;
    }
    return c[n - 1].id;
}

/* Sorted candidates that can matter: sorting all of a large vocabulary for each token is slow, so
 * the bound is lowered until top-k or top-p is certainly satisfied. Exact. */
static int64_t shortlist(const af_sample_opts *o, const float *logits, int64_t V, float top,
                         double sum, af_token_candidate *c)
{
    const bool k = o->top_k > 0, p = o->top_p > 0 && o->top_p < 1;
    for (float gap = 8; (k || p) && gap < 100; gap *= 2) {
        const int64_t n = collect(c, logits, V, top - gap);
        double mass = 0;
        for (int64_t i = 0; i < n; i++)
            mass += exp((double)c[i].logit - top) / sum;
        if ((k && n >= o->top_k) || (!k && mass >= o->top_p))
            return n;
    }
    if (!k && !p && o->min_p > 0)
        return collect(c, logits, V, top + (float)log(o->min_p) - 1);
    return collect(c, logits, V, -FLT_MAX); /* not those that a mask forbids */
}

/* How many of the sorted candidates stay. */
static int64_t cut(const af_sample_opts *o, af_token_candidate *c, int64_t n, float top, double sum)
{
    if (o->top_k > 0 && n > o->top_k) {
        n = o->top_k;
        sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += exp((double)c[i].logit - top);
    }
    set_probabilities(c, n, top, sum);
    if (o->top_p > 0 && o->top_p < 1) {
        double mass = 0;
        for (int64_t i = 0; i < n; i++) {
            mass += c[i].p;
            if (mass >= o->top_p)
                n = i + 1;
        }
    }
    while (o->min_p > 0 && n > 1 && c[n - 1].p < o->min_p * c[0].p)
        n--;
    return n;
}

bool af_sample_is_greedy(const af_sample_opts *o)
{
    return o->temperature < 1e-30 || o->top_k == 1;
}

int32_t af_sample(const af_sample_opts *o, float *logits, int64_t V, af_seen_tokens seen,
                  uint64_t stream, uint64_t index, af_token_candidate *scratch)
{
    if (af_sample_penalises(o))
        penalise(o, logits, V, seen, scratch);
    const int32_t best = arg_max(logits, V);
    if (best < 0 || af_sample_is_greedy(o))
        return best;
    const float top = (float)(logits[best] / o->temperature);
    if (!isfinite(top)) /* a penalty near 0: no other token is close */
        return best;
    double sum = 0;
    const double random = af_rng_f64(o->seed, stream, index);
    for (int64_t i = 0; i < V; i++)
        logits[i] = (float)(logits[i] / o->temperature);
    if (o->top_k <= 0 && (o->top_p <= 0 || o->top_p >= 1) && o->min_p <= 0)
        return draw_from_all(logits, V, top, random, scratch);
    for (int64_t i = 0; i < V; i++)
        sum += exp((double)logits[i] - top);
    int64_t n = shortlist(o, logits, V, top, sum, scratch);
    n = cut(o, scratch, n, top, sum);
    double mass = 0, at = 0;
    for (int64_t i = 0; i < n; i++)
        mass += scratch[i].p;
    const double u = random * mass;
    for (int64_t i = 0; i < n; i++) {
        at += scratch[i].p;
        if (u < at)
            return scratch[i].id;
    }
    return scratch[n - 1].id;
}
