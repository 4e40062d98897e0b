/* label_loss.c - see label_loss.h. */
#include "model/labels/label_loss.h"

#include <math.h>
#include <stdlib.h>

af_problem af_problem_of(const af_label_opts *o)
{
    if (o->problem != AF_PROBLEM_AUTO)
        return o->problem;
    return o->count == 1 ? AF_PROBLEM_REGRESSION : AF_PROBLEM_SINGLE;
}

int64_t af_label_targets(const af_label_opts *o)
{
    return af_problem_of(o) == AF_PROBLEM_SINGLE ? 1 : o->count;
}

/* log of the sum of exponentials */
static double log_sum(const float *x, int64_t n)
{
    double most = x[0], sum = 0;
    for (int64_t i = 1; i < n; i++)
        most = AF_MAX(most, (double)x[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)x[i] - most);
    return most + log(sum); // cppcheck-suppress invalidFunctionArg ; n > 0
}

static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }

/* Cross-entropy, of a class or of a mixture with all of them. */
static double single(const af_label_opts *o, const float *score, const float *target, double share,
                     double *grad)
{
    const int64_t label = (int64_t)target[0];
    const double all = log_sum(score, o->count), each = o->smoothing / (double)o->count;
    double sum = (1 - o->smoothing) * (all - (double)score[label]);
    for (int64_t i = 0; i < o->count; i++) {
        sum += each * (all - (double)score[i]);
        if (grad)
            grad[i] =
                share * (exp((double)score[i] - all) - each - (i == label ? 1 - o->smoothing : 0));
    }
    return share * sum;
}

/* Cross-entropy of each label's sigmoid. */
static double multi(const af_label_opts *o, const float *score, const float *target, double share,
                    double *grad)
{
    double sum = 0;
    for (int64_t i = 0; i < o->count; i++) {
        const double x = score[i], t = target[i];
        sum += share * (AF_MAX(x, 0) - x * t + log1p(exp(-fabs(x))));
        if (grad)
            grad[i] = share * (sigmoid(x) - t);
    }
    return sum;
}

static double squared(const af_label_opts *o, const float *score, const float *target, double share,
                      double *grad)
{
    double sum = 0;
    for (int64_t i = 0; i < o->count; i++) {
        const double d = (double)score[i] - target[i];
        sum += share * d * d;
        if (grad)
            grad[i] = share * 2 * d;
    }
    return sum;
}

double af_label_loss(const af_label_opts *o, const float *score, const float *target, int64_t n,
                     double *grad)
{
    const double one = 1 / (double)n, each = one / (double)o->count;
    switch (af_problem_of(o)) {
    case AF_PROBLEM_SINGLE:
        return single(o, score, target, one, grad);
    case AF_PROBLEM_MULTI:
        return multi(o, score, target, each, grad);
    default:
        return squared(o, score, target, each, grad);
    }
}

void af_label_probabilities(const af_label_opts *o, const float *score, double *out)
{
    const af_problem p = af_problem_of(o);
    const double all = p == AF_PROBLEM_SINGLE ? log_sum(score, o->count) : 0;
    for (int64_t i = 0; i < o->count; i++)
        out[i] = p == AF_PROBLEM_SINGLE  ? exp((double)score[i] - all)
                 : p == AF_PROBLEM_MULTI ? sigmoid(score[i])
                                         : (double)score[i];
}

/* ---- counts ---- */

af_status af_label_counts_init(af_label_counts *c, int64_t labels, af_error *err)
{
    const uint64_t n = (uint64_t)labels;
    *c = (af_label_counts){.labels = labels,
                           .hit = af_calloc(n, sizeof *c->hit),
                           .wrong = af_calloc(n, sizeof *c->wrong),
                           .missed = af_calloc(n, sizeof *c->missed)};
    if (c->hit && c->wrong && c->missed)
        return AF_OK;
    af_label_counts_clear(c);
    return af_fail_nomem(err, "counts of labels", n * sizeof *c->hit);
}

void af_label_counts_clear(af_label_counts *c)
{
    free(c->hit);
    free(c->wrong);
    free(c->missed);
    *c = (af_label_counts){0};
}

void af_label_counts_reset(af_label_counts *c)
{
    const uint64_t bytes = (uint64_t)c->labels * sizeof *c->hit;
    if (c->labels) {
        memset(c->hit, 0, bytes);
        memset(c->wrong, 0, bytes);
        memset(c->missed, 0, bytes);
    }
    c->texts = c->right = c->values = 0;
    c->squares = 0;
}

static bool count_label(af_label_counts *c, int64_t label, bool found, bool is)
{
    c->hit[label] += found && is;
    c->wrong[label] += found && !is;
    c->missed[label] += !found && is;
    return found == is;
}

void af_label_counts_add(af_label_counts *c, const af_label_opts *o, const float *score,
                         const float *target)
{
    const af_problem p = af_problem_of(o);
    int64_t best = 0;
    bool right = true;
    c->texts++;
    for (int64_t i = 1; i < o->count; i++)
        best = score[i] > score[best] ? i : best;
    for (int64_t i = 0; i < o->count; i++) {
        const double d = (double)score[i] - (p == AF_PROBLEM_REGRESSION ? target[i] : 0);
        if (p == AF_PROBLEM_REGRESSION) {
            c->squares += d * d;
            c->values++;
        } else if (p == AF_PROBLEM_SINGLE) {
            right &= count_label(c, i, i == best, i == (int64_t)target[0]);
        } else {
            right &= count_label(c, i, score[i] > 0, target[i] > 0.5f);
        }
    }
    c->right += right && p != AF_PROBLEM_REGRESSION;
}

double af_label_f1(const af_label_counts *c, int64_t label)
{
    const int64_t all = 2 * c->hit[label] + c->wrong[label] + c->missed[label];
    return all ? 2 * (double)c->hit[label] / (double)all : 0;
}

double af_label_f1_macro(const af_label_counts *c, const af_label_opts *o)
{
    const bool every = af_problem_of(o) != AF_PROBLEM_SINGLE;
    int64_t n = 0;
    double sum = 0;
    for (int64_t i = 0; i < c->labels; i++) {
        n += every || c->hit[i] || c->wrong[i] || c->missed[i];
        sum += af_label_f1(c, i);
    }
    return sum / (double)AF_MAX(n, INT64_C(1));
}
