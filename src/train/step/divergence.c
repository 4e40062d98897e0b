/* divergence.c - see divergence.h. */
#include "train/step/divergence.h"

#include <math.h>

/* The logarithm of the share of a token that a capture does not have: exp gives 0. */
static const float ABSENT = -10000;

af_tensor *af_log_shares(af_graph *g, af_tensor *z, double temperature)
{
    if (af_graph_status(g, NULL) == AF_OK && af_tensor_dtype(z) != AF_DTYPE_F32)
        z = af_cast(g, z, AF_DTYPE_F32);
    return af_log_softmax(g, temperature == 1 ? z : af_scale(g, z, 1 / temperature));
}

/* sum of exp(a) (a - b) over the tokens: [N] */
static af_tensor *divergence(af_graph *g, af_tensor *a, af_tensor *b)
{
    return af_sum(g, af_mul(g, af_exp(g, a), af_sub(g, a, b)), 1, false);
}

/* log(exp(a) + exp(b)) */
static af_tensor *log_add(af_graph *g, af_tensor *a, af_tensor *b)
{
    af_tensor *most = af_add(g, b, af_relu(g, af_sub(g, a, b)));
    af_tensor *sum = af_add(g, af_exp(g, af_sub(g, a, most)), af_exp(g, af_sub(g, b, most)));
    return af_add(g, most, af_log(g, sum));
}

af_tensor *af_divergence_rows(af_divergence *d, af_tensor *p, af_tensor *q)
{
    af_graph *g = d->graph;
    if (d->beta == 0)
        return divergence(g, q, p);
    if (d->beta == 1)
        return divergence(g, p, q);
    if (!d->log_p) {
        d->log_p = af_graph_input(g, "kd_log_student", AF_DTYPE_F32, 1, (int64_t[]){1});
        d->log_q = af_graph_input(g, "kd_log_teacher", AF_DTYPE_F32, 1, (int64_t[]){1});
    }
    af_tensor *m = log_add(g, af_add(g, p, d->log_p), af_add(g, q, d->log_q));
    return af_add(g, af_scale(g, divergence(g, q, m), d->beta),
                  af_scale(g, divergence(g, p, m), 1 - d->beta));
}

/* What is taken from the student's logarithm is 0 where log q is above the border, and makes its
 * share 0 elsewhere. */
af_tensor *af_divergence_best(af_divergence *d, af_graph *g, af_tensor *best, af_tensor *shares,
                              int64_t V, bool normalize, af_tensor **p)
{
    if (!d->border)
        d->border = af_graph_input(g, "kd_border", AF_DTYPE_F32, 1, (int64_t[]){1});
    af_tensor *q = af_expand_topk(g, best, shares, V, (double)ABSENT);
    af_tensor *below = af_relu(g, af_scale(g, af_sub(g, q, d->border), -1));
    *p = af_sub(g, *p, af_scale(g, below, 2));
    if (normalize)
        *p = af_log_softmax(g, *p);
    return q;
}

static af_status write_constant(const af_divergence *d, af_tensor *to, double value, af_error *err)
{
    const float f = (float)value;
    return to ? af_tensor_write(d->graph, to, &f, sizeof f, err) : AF_OK;
}

af_status af_divergence_load(const af_divergence *d, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(write_constant(d, d->border, (double)((ABSENT + AF_SHARE_LEAST) / 2), err));
    AF_TRY(write_constant(d, d->log_p, log(1 - d->beta), err));
    st = write_constant(d, d->log_q, log(d->beta), err);
done:
    return st;
}
