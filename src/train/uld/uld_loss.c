/* uld_loss.c - see uld_loss.h. A group is one piece of work: the rows it writes are its own. */
#include "train/uld/uld_loss.h"

#include <math.h>
#include <stdlib.h>

#define LEAST 1e-8 /* of a probability that is a factor, or has a logarithm */

enum { RADIX_BITS = 11, RADIX = 1 << RADIX_BITS, PASSES = 3 };

typedef struct sort_key {
    float value; /* not negative: the order of its bits is the order of numbers */
    uint32_t id;
} sort_key;

typedef struct uld_scratch {         /* of one thread */
    double *p, *q, *dm;              /* [V], [W]: distributions; [V]: gradient by the merged one */
    sort_key *mine, *theirs, *other; /* [max(V, W)] */
} uld_scratch;

struct af_uld_work {
    af_uld_opts o;
    af_pool *pool;
    int threads;
    uld_scratch *scratch;  /* [threads] */
    bool *student_matched; /* hybrid: [V] */
    /* of the record at hand */
    const af_uld_side *student, *teacher;
    const af_uld_group *group;
    double *part; /* [groups][2] */
    int64_t room;
    double scale;
    float *grad;
};

/* ---- groups ---- */

static bool has_rows(const af_uld_side *s, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++)
        if (s->row[i] < 0)
            return false;
    return from < to;
}

int64_t af_uld_align(const af_uld_opts *o, const af_uld_side *student, const af_uld_side *teacher,
                     af_uld_group *out)
{
    int64_t n = 0, s = 0, t = 0;
    af_uld_group g = {0};
    while (s < student->n && t < teacher->n) {
        const int64_t a = o->extended ? student->end[s] : 0, b = o->extended ? teacher->end[t] : 0;
        s += a <= b;
        t += b <= a;
        const bool last = (s == student->n || t == teacher->n) && o->extended;
        if (a != b && !last)
            continue;
        if (a != b) { /* what is left on both sides */
            s = student->n;
            t = teacher->n;
        }
        g.student_to = s;
        g.teacher_to = t;
        if (has_rows(student, g.student_from, s) && has_rows(teacher, g.teacher_from, t))
            out[n++] = g;
        g = (af_uld_group){.student_from = s, .teacher_from = t};
    }
    return n;
}

/* ---- distributions ---- */

/* softmax(z / T) */
static void softmax(const float *z, int64_t n, double temperature, double *p)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, (double)z[i]);
    for (int64_t i = 0; i < n; i++)
        sum += p[i] = exp(((double)z[i] - most) / temperature);
    for (int64_t i = 0; i < n; i++)
        p[i] /= sum;
}

/* The probability of one token. */
static double token_share(const float *z, int64_t n, double temperature, int32_t id)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, (double)z[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp(((double)z[i] - most) / temperature);
    return exp(((double)z[id] - most) / temperature) / sum;
}

/* The distribution of tokens [from, to) is *factor times p. */
static int64_t merge(const af_uld_opts *o, const af_uld_side *s, int64_t from, int64_t to,
                     int64_t n, double temperature, double *p, double *factor)
{
    const int64_t base = o->bayesian ? to - 1 : from;
    softmax(s->logits + s->row[base] * n, n, temperature, p);
    *factor = 1;
    for (int64_t i = from; i < to; i++)
        if (i != base)
            *factor *=
                fmax(token_share(s->logits + s->row[i] * n, n, temperature, s->id[i]), LEAST);
    return base;
}

/* ---- the two distances ---- */

static void sort_keys(sort_key *k, sort_key *other, int64_t n)
{
    for (int pass = 0; pass < PASSES; pass++) {
        uint32_t count[RADIX] = {0}, at = 0;
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &k[i].value, sizeof bits);
            count[bits >> pass * RADIX_BITS & (RADIX - 1)]++;
        }
        for (int i = RADIX - 1; i >= 0; i--) { /* largest first */
            const uint32_t here = count[i];
            count[i] = at;
            at += here;
        }
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &k[i].value, sizeof bits);
            other[count[bits >> pass * RADIX_BITS & (RADIX - 1)]++] = k[i];
        }
        sort_key *const swap = k;
        k = other;
        other = swap;
    }
    memcpy(other, k, (size_t)n * sizeof *k); /* an odd number of passes */
}

/* Of tokens that are not matched (hybrid), or of all. */
static double sorted_distance(const af_uld_work *w, uld_scratch *s, double mine, double theirs,
                              double weight)
{
    const af_uld_opts *o = &w->o;
    int64_t a = 0, b = 0;
    double sum = 0;
    for (int64_t v = 0; v < o->V; v++)
        if (!o->hybrid || !w->student_matched[v])
            s->mine[a++] = (sort_key){(float)(mine * s->p[v]), (uint32_t)v};
    for (int64_t v = 0; v < o->W; v++)
        if (!o->hybrid || o->match[v] < 0)
            s->theirs[b++] = (sort_key){(float)(theirs * s->q[v]), (uint32_t)v};
    if (o->hybrid && (!a || !b))
        return 0;
    sort_keys(s->mine, s->other, a);
    sort_keys(s->theirs, s->other, b);
    for (int64_t i = 0; i < AF_MAX(a, b); i++) {
        const double x = i < a ? (double)s->mine[i].value : 0,
                     y = i < b ? (double)s->theirs[i].value : 0;
        sum += fabs(x - y);
        if (i < a)
            s->dm[s->mine[i].id] = weight * ((x > y) - (x < y));
    }
    return sum;
}

/* One token's part of the divergence; *d: by the logarithm of m. */
static double divergence(double m, double t, double beta, double *d)
{
    const double a = log(fmax(m, LEAST)), b = log(fmax(t, LEAST)), p = exp(a), q = exp(b);
    if (beta == 0) {
        *d = -q;
        return q * (b - a);
    }
    if (beta == 1) {
        *d = p * (a - b + 1);
        return p * (a - b);
    }
    const double mix = log((1 - beta) * p + beta * q);
    *d = (1 - beta) * p * (a - mix);
    return beta * q * (b - mix) + (1 - beta) * p * (a - mix);
}

static double matched_divergence(const af_uld_work *w, uld_scratch *s, double mine, double theirs)
{
    const af_uld_opts *o = &w->o;
    double sum = 0;
    for (int64_t v = 0; v < o->W; v++) {
        const int32_t id = o->match[v];
        double d;
        if (id < 0)
            continue;
        const double m = mine * s->p[id];
        sum += divergence(m, theirs * s->q[v], o->beta, &d);
        s->dm[id] += m >= LEAST ? o->matched * d / m : 0;
    }
    return sum;
}

/* ---- gradients ---- */

/* Back through softmax(z / T): p (dp - sum p dp) / T. */
static void put_gradient(const uld_scratch *s, const double *dp, int64_t n, double factor,
                         double temperature, float *out)
{
    double mean = 0;
    for (int64_t v = 0; v < n; v++)
        mean += s->p[v] * dp[v];
    for (int64_t v = 0; v < n; v++)
        out[v] = (float)(factor * s->p[v] * (dp[v] - mean) / temperature);
}

/* The same where the gradient is by the probability of one token; s->p is overwritten. */
static void put_token_gradient(const af_uld_work *w, uld_scratch *s, int64_t at, double dp,
                               float *out)
{
    const double temperature = w->o.student_temperature;
    softmax(w->student->logits + w->student->row[at] * w->o.V, w->o.V, temperature, s->p);
    const double p = s->p[w->student->id[at]];
    for (int64_t v = 0; v < w->o.V; v++) {
        const double own = v == w->student->id[at] ? 1 : 0;
        out[v] = p < LEAST ? 0 : (float)(dp * (own - s->p[v]) / temperature);
    }
}

static void one_group(af_uld_work *w, uld_scratch *s, int64_t i)
{
    const af_uld_opts *o = &w->o;
    const af_uld_group *g = &w->group[i];
    double mine, theirs, by_factor = 0;
    const int64_t base = merge(o, w->student, g->student_from, g->student_to, o->V,
                               o->student_temperature, s->p, &mine);
    (void)merge(o, w->teacher, g->teacher_from, g->teacher_to, o->W, o->teacher_temperature, s->q,
                &theirs);
    memset(s->dm, 0, (size_t)o->V * sizeof *s->dm);
    w->part[2 * i + 1] = sorted_distance(w, s, mine, theirs, o->hybrid ? o->unmatched : 1);
    w->part[2 * i] = o->hybrid ? matched_divergence(w, s, mine, theirs) : 0;
    for (int64_t v = 0; v < o->V; v++)
        by_factor += s->dm[v] * s->p[v];
    put_gradient(s, s->dm, o->V, w->scale * mine, o->student_temperature,
                 w->grad + w->student->row[base] * o->V);
    for (int64_t k = g->student_from; k < g->student_to; k++)
        if (k != base)
            put_token_gradient(w, s, k, w->scale * by_factor * mine,
                               w->grad + w->student->row[k] * o->V);
}

static void groups_job(void *arg, int64_t from, int64_t to, int share)
{
    af_uld_work *w = arg;
    for (int64_t i = from; i < to; i++)
        one_group(w, &w->scratch[share], i);
}

/* ---- work ---- */

static af_status init_scratch(uld_scratch *s, const af_uld_opts *o, af_error *err)
{
    const uint64_t V = (uint64_t)o->V, W = (uint64_t)o->W, most = AF_MAX(V, W);
    s->p = af_calloc(V, sizeof *s->p);
    s->q = af_calloc(W, sizeof *s->q);
    s->dm = af_calloc(V, sizeof *s->dm);
    s->mine = af_calloc(V, sizeof *s->mine);
    s->theirs = af_calloc(W, sizeof *s->theirs);
    s->other = af_calloc(most, sizeof *s->other);
    return s->p && s->q && s->dm && s->mine && s->theirs && s->other
               ? AF_OK
               : af_fail_nomem(err, "distributions", most * 56);
}

af_status af_uld_work_new(af_uld_work **out, const af_uld_opts *o, int threads, af_error *err)
{
    af_status st = AF_OK;
    af_uld_work *w = af_calloc(1, sizeof *w);
    if (!w)
        return af_fail_nomem(err, "distributions", sizeof *w);
    w->o = *o;
    AF_TRY(af_pool_new(&w->pool, threads, err));
    w->threads = af_pool_threads(w->pool);
    w->scratch = af_calloc((uint64_t)w->threads, sizeof *w->scratch);
    w->student_matched = af_calloc((uint64_t)o->V, sizeof *w->student_matched);
    if (!w->scratch || !w->student_matched)
        AF_TRY(af_fail_nomem(err, "distributions", (uint64_t)o->V));
    for (int64_t v = 0; o->hybrid && v < o->W; v++)
        if (o->match[v] >= 0)
            w->student_matched[o->match[v]] = true;
    for (int i = 0; i < w->threads; i++)
        AF_TRY(init_scratch(&w->scratch[i], o, err));
    *out = w;
    w = NULL;
done:
    af_uld_work_free(w);
    return st;
}

void af_uld_work_free(af_uld_work *w)
{
    if (!w)
        return;
    for (int i = 0; w->scratch && i < w->threads; i++) {
        uld_scratch *s = &w->scratch[i];
        free(s->p);
        free(s->q);
        free(s->dm);
        free(s->mine);
        free(s->theirs);
        free(s->other);
    }
    free(w->scratch);
    free(w->student_matched);
    free(w->part);
    af_pool_free(w->pool);
    free(w);
}

af_status af_uld_loss(af_uld_work *w, const af_uld_side *student, const af_uld_side *teacher,
                      const af_uld_group *group, int64_t n, double share, float *grad, double *loss,
                      double *parts, af_error *err)
{
    double sum[2] = {0};
    *loss = 0;
    if (n > w->room) {
        free(w->part);
        w->part = af_calloc((uint64_t)(2 * n), sizeof *w->part);
        w->room = w->part ? n : 0;
        if (!w->part)
            return af_fail_nomem(err, "groups of tokens", (uint64_t)n * 16);
    }
    if (n) {
        w->student = student;
        w->teacher = teacher;
        w->group = group;
        w->grad = grad;
        w->scale = share / (double)n;
        af_pool_run(w->pool, n, groups_job, w);
    }
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < 2; k++)
            sum[k] += w->part[2 * i + k] / (double)n;
    *loss = w->o.hybrid ? w->o.matched * sum[0] + w->o.unmatched * sum[1] : sum[1];
    if (parts)
        memcpy(parts, sum, sizeof sum);
    return AF_OK;
}
