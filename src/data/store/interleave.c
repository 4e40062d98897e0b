/* interleave.c - see interleave.h. */
#include "data/store/interleave.h"

#include "base/buf.h"
#include "base/rng.h"

#include <math.h>

enum { MIX_STREAM = 0x6d6978 };
#define DRAWS_MAX 4e9 /* that a small probability may ask for */

af_status af_interleave_probs(const double **out, const af_data_opts *o, int datasets,
                              af_arena *mem, af_error *err)
{
    const int n = o->mix_prob_count;
    double sum = 0;
    *out = NULL;
    if (o->mix == AF_MIX_CONCAT || n == 0 || datasets == 1)
        return AF_OK;
    if (n != datasets)
        return af_fail(err, AF_EUSAGE, "%s: interleave_probs has %d values for %d datasets",
                       o->run_path, n, datasets);
    double *p = af_arena_take(mem, (uint64_t)n * sizeof *p);
    if (!p)
        return af_fail_nomem(err, "interleave_probs", (uint64_t)n * sizeof *p);
    for (int i = 0; i < n; i++) {
        const af_yaml v = {.kind = AF_YAML_SCALAR, .text = o->mix_probs[i]};
        if (!af_yaml_f64(&v, &p[i]) || !(p[i] >= 0 && p[i] <= 1))
            return af_fail(err, AF_EUSAGE,
                           "%s: interleave_probs must be numbers between 0 and 1, not '%s'",
                           o->run_path, o->mix_probs[i]);
        if (p[i] == 0 && o->mix != AF_MIX_INTERLEAVE_UNDER)
            return af_fail(err, AF_EUSAGE,
                           "%s: interleave_probs gives a dataset 0: it would never end, as "
                           "'mix_strategy: interleave_over' and 'interleave_once' want",
                           o->run_path);
        sum += p[i];
    }
    if (fabs(sum - 1) > 1e-6)
        return af_fail(err, AF_EUSAGE, "%s: interleave_probs must add up to 1, not %g", o->run_path,
                       sum);
    *out = p;
    return AF_OK;
}

/* Whole rounds: as many as the shortest or the longest dataset has records. */
static void in_order(af_buf *to, const af_interleave_opts *o, const int64_t *first)
{
    int64_t rounds = o->records[0];
    for (int d = 1; d < o->datasets; d++)
        rounds = o->mix == AF_MIX_INTERLEAVE_UNDER ? AF_MIN(rounds, o->records[d])
                                                   : AF_MAX(rounds, o->records[d]);
    for (int64_t r = 0; r < rounds && !to->bad; r++)
        for (int d = 0; d < o->datasets; d++) {
            const int64_t n = o->records[d], at = first[d] + r % n;
            if (r < n || o->mix != AF_MIX_INTERLEAVE_ONCE)
                af_buf_add(to, &at, sizeof at);
        }
}

static int draw(const af_interleave_opts *o, uint64_t i)
{
    double left = af_rng_f64(o->seed, MIX_STREAM, i);
    int last = 0;
    for (int d = 0; d < o->datasets; d++) {
        if (o->probs[d] == 0)
            continue;
        last = d;
        if (left < o->probs[d])
            break;
        left -= o->probs[d];
    }
    return last;
}

/* Until the first dataset has ended, or all of them. taken: how often each was drawn. */
static void by_chance(af_buf *to, const af_interleave_opts *o, const int64_t *first, int64_t *taken)
{
    const int enough = o->mix == AF_MIX_INTERLEAVE_UNDER ? 1 : o->datasets;
    int ended = 0;
    for (uint64_t i = 0; ended < enough && !to->bad; i++) {
        const int d = draw(o, i);
        const int64_t n = o->records[d], at = first[d] + taken[d] % n;
        if (taken[d] < n || o->mix != AF_MIX_INTERLEAVE_ONCE)
            af_buf_add(to, &at, sizeof at);
        ended += ++taken[d] == n;
    }
}

static af_status check(const af_interleave_opts *o, af_error *err)
{
    for (int d = 0; d < o->datasets; d++) {
        if (o->records[d] == 0 && !(o->probs && o->probs[d] == 0))
            return af_fail(err, AF_EUSAGE,
                           "mix_strategy: dataset %d has no records to interleave with the others",
                           d + 1);
        if (o->probs && o->mix != AF_MIX_INTERLEAVE_UNDER &&
            (double)o->records[d] / o->probs[d] > DRAWS_MAX)
            return af_fail(err, AF_EUSAGE,
                           "interleave_probs: with %g, the %" PRId64
                           " records of dataset %d are not all drawn in %g draws",
                           o->probs[d], o->records[d], d + 1, DRAWS_MAX);
    }
    return AF_OK;
}

af_status af_interleave(int64_t **order, int64_t *count, const af_interleave_opts *o, af_error *err)
{
    af_buf to = {0};
    af_status st = check(o, err);
    if (st != AF_OK)
        return st;
    int64_t *first = af_calloc((uint64_t)o->datasets * 2, sizeof *first);
    if (!first)
        return af_fail_nomem(err, "datasets", (uint64_t)o->datasets * 2 * sizeof *first);
    for (int d = 1; d < o->datasets; d++)
        first[d] = first[d - 1] + o->records[d - 1];
    if (o->probs)
        by_chance(&to, o, first, first + o->datasets);
    else
        in_order(&to, o, first);
    if (to.bad)
        st = af_fail_nomem(err, "the order of the records", to.len);
    *count = (int64_t)(to.len / sizeof **order);
    *order = st == AF_OK ? (int64_t *)(void *)af_buf_take(&to) : NULL;
    af_buf_clear(&to);
    free(first);
    return st;
}
