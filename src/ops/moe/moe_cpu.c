/* moe_cpu.c - the twins of moe.c. */
#include "backend/cpu/cpu.h"
#include "ops/general/activation.h"
#include "ops/moe/moe_in.h"

#include <math.h>

/* ---- router ---- */

typedef struct route_job {
    const af_node *n;
    double *work; /* [threads][3 * X] */
} route_job;

/* s [X] of a row of logits, and what is compared for the choice. */
static void route_scores(const af_node *n, int64_t row, double *s, double *c)
{
    const af_moe_inputs in = af_moe_in(n);
    const int64_t X = af_last(in.logits);
    double max = -INFINITY, sum = 0;
    for (int64_t e = 0; e < X; e++) {
        c[e] = af_ld(in.logits, row * X + e);
        max = fmax(max, c[e]);
    }
    for (int64_t e = 0; e < X; e++)
        sum += exp(c[e] - max);
    for (int64_t e = 0; e < X; e++)
        s[e] = n->attr.route.score == AF_ROUTE_SIGMOID ? 1.0 / (1.0 + exp(-c[e]))
               : n->attr.route.score == AF_ROUTE_NEAR  ? c[e]
                                                       : exp(c[e] - max) / sum;
    for (int64_t e = 0; e < X && in.choice; e++)
        c[e] = s[e] + af_ld(in.choice, e);
}

/* exp(z - m) where z is near the largest, m; else 0. */
static double near_one(double z, double m, double eps)
{
    return z != -INFINITY && m - z <= eps * fmax(fabs(z), m) ? exp(z - m) : 0;
}

static double near_sum(const double *c, int64_t n, double m, double eps)
{
    double sum = 0;
    for (int64_t e = 0; e < n; e++)
        sum += near_one(c[e], m, eps);
    return sum;
}

/* The first of the largest values of c [n] that is not -INFINITY; -1: there is none. */
static int64_t largest(const double *c, int64_t n)
{
    int64_t best = -1;
    for (int64_t e = 0; e < n; e++)
        if (c[e] != -INFINITY && (best < 0 || c[e] > c[best]))
            best = e;
    return best;
}

static double group_score(const double *c, int64_t n, int best)
{
    double first = -INFINITY, second = -INFINITY;
    for (int64_t e = 0; e < n; e++) {
        second = fmax(second, fmin(first, c[e]));
        first = fmax(first, c[e]);
    }
    return best == 2 ? first + second : first;
}

/* The experts of all but the best groups, of equals the lower first, get -INFINITY. Without a bias
 * the scores themselves are summed, not the logits. */
static void keep_best_groups(const af_node *n, const double *s, double *c, double *of_group)
{
    const int groups = n->attr.route.groups;
    const int64_t size = af_last(n->in[0]) / groups;
    for (int i = 0; i < groups; i++)
        of_group[i] =
            group_score((n->attr.route.bias ? c : s) + i * size, size, n->attr.route.group_best);
    for (int i = 0; i < groups; i++) {
        int better = 0;
        for (int k = 0; k < groups; k++)
            better += of_group[k] > of_group[i] || (k < i && of_group[k] == of_group[i]);
        for (int64_t e = i * size; e < (i + 1) * size && better >= n->attr.route.groups_used; e++)
            c[e] = -INFINITY;
    }
}

static void route_rows(void *arg, int64_t from, int64_t to, int share)
{
    const route_job *job = arg;
    const af_node *n = job->n;
    const int64_t X = af_last(n->in[0]), k = n->attr.route.k;
    double *s = job->work + share * 3 * X, *c = s + X;
    const bool near = n->attr.route.score == AF_ROUTE_NEAR;
    int32_t *index = n->out[1]->data;
    for (int64_t r = from; r < to; r++) {
        double sum = 0;
        route_scores(n, r, s, c);
        af_st_row(n->out[2], r * X, X, s);
        if (n->attr.route.groups > 1)
            keep_best_groups(n, s, c, c + X);
        for (int64_t j = 0; j < k; j++) {
            int64_t e = largest(c, X);
            for (int64_t i = 0; e < 0; i++) { /* not a number: the first that is not taken */
                e = i;
                for (int64_t t = 0; t < j; t++)
                    e = index[r * k + t] == i ? -1 : e;
            }
            index[r * k + j] = (int32_t)e;
            if (near)
                af_st(n->out[0], r * k + j,
                      n->attr.route.scale / near_sum(c, X, s[e], n->attr.route.eps));
            c[e] = -INFINITY;
            sum += s[e];
        }
        const double total = n->attr.route.norm ? sum + n->attr.route.eps : 1;
        for (int64_t j = 0; j < k && !near; j++)
            af_st(n->out[0], r * k + j, n->attr.route.scale * s[index[r * k + j]] / total);
    }
}

static uint64_t route_work(const af_node *n, int threads)
{
    return (uint64_t)threads * 3 * (uint64_t)af_last(n->in[0]) * sizeof(double);
}

static void moe_route_run(const af_node *n, af_cpu *cpu)
{
    af_pool_run(cpu->pool, af_live(n->in[0]), route_rows, &(route_job){n, cpu->work});
}

/* Of a sparse mixer; z: a row of logits, d: what their gradient is. */
static void near_back(const af_node *n, int64_t r)
{
    const af_moe_inputs in = af_moe_in(n);
    const int64_t X = af_last(in.scores), k = n->attr.route.k;
    const int32_t *index = (const int32_t *)in.index->data + r * k;
    const double eps = n->attr.route.eps;
    double sum[AF_ROUTE_NEAR_MAX] = {0};
    for (int pass = 0; pass < 2; pass++)
        for (int64_t e = 0; e < X; e++) {
            const double z = af_ld(in.scores, r * X + e);
            double d = 0;
            /* until it is taken itself */
            for (int64_t j = 0; j < k && (j == 0 || index[j - 1] != e); j++) {
                const double one = near_one(z, af_ld(in.scores, r * X + index[j]), eps);
                if (pass == 0)
                    sum[j] += one;
                else
                    d += n->attr.route.scale * af_ld(in.dweights, r * k + j) / sum[j] *
                         ((index[j] == e) - one / sum[j]);
            }
            if (pass == 1)
                af_st(n->out[0], r * X + e, d);
        }
}

static void route_back_rows(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    const af_moe_inputs in = af_moe_in(n);
    const int64_t X = af_last(in.scores), k = n->attr.route.k;
    const bool sigmoid = n->attr.route.score == AF_ROUTE_SIGMOID;
    (void)share;
    for (int64_t r = from; r < to && n->attr.route.score == AF_ROUTE_NEAR; r++)
        near_back(n, r);
    for (int64_t r = from; r < to && n->attr.route.score != AF_ROUTE_NEAR; r++) {
        const int32_t *index = (const int32_t *)in.index->data + r * k;
        double total = n->attr.route.norm ? n->attr.route.eps : 1, mean = 0, dot = 0;
        for (int64_t j = 0; j < k && n->attr.route.norm; j++)
            total += af_ld(in.scores, r * X + index[j]);
        const double by = n->attr.route.scale / total;
        for (int64_t j = 0; j < k && n->attr.route.norm; j++)
            mean += by * af_ld(in.dweights, r * k + j) * af_ld(in.scores, r * X + index[j]) / total;
        for (int64_t j = 0; j < k; j++)
            dot += (by * af_ld(in.dweights, r * k + j) - mean) * af_ld(in.scores, r * X + index[j]);
        for (int64_t e = 0; e < X; e++) {
            const double s = af_ld(in.scores, r * X + e);
            double d = 0;
            for (int64_t j = 0; j < k; j++)
                d += index[j] == e ? by * af_ld(in.dweights, r * k + j) - mean : 0;
            af_st(n->out[0], r * X + e, sigmoid ? d * s * (1 - s) : s * (d - dot));
        }
    }
}

static void moe_route_bwd_run(const af_node *n, af_cpu *cpu)
{
    af_pool_run(cpu->pool, af_live(n->in[0]), route_back_rows, (void *)n);
}

/* ---- values of the chosen ---- */

static void moe_pick_run(const af_node *n, af_cpu *cpu)
{
    const af_moe_inputs in = af_moe_in(n);
    const int64_t N = af_live(in.index), k = af_last(in.index), X = af_last(in.scores);
    const int32_t *index = in.index->data;
    (void)cpu;
    for (int64_t p = 0; p < N * k; p++)
        af_st(n->out[0], p, af_ld(in.scores, p / k * X + index[p]));
}

static void moe_pick_bwd_run(const af_node *n, af_cpu *cpu)
{
    const af_moe_inputs in = af_moe_in(n);
    const int64_t N = af_live(in.index), k = af_last(in.index), X = af_last(n->out[0]);
    const int32_t *index = in.index->data;
    (void)cpu;
    for (int64_t i = 0; i < N * X; i++)
        af_st(n->out[0], i, 0);
    for (int64_t p = 0; p < N * k; p++)
        af_st(n->out[0], p / k * X + index[p], af_ld(in.dweights, p));
}

/* ---- experts without weights ---- */

static void moe_real_run(const af_node *n, af_cpu *cpu)
{
    const int32_t *index = n->in[0]->data;
    int32_t *real = n->out[0]->data;
    const int64_t pairs = af_live(n->in[0]) * af_last(n->in[0]), X = n->attr.moe.real;
    (void)cpu;
    for (int64_t p = 0; p < pairs; p++) {
        real[p] = (int32_t)(index[p] < X ? index[p] : index[p] % X);
        af_st(n->out[1], p, index[p] < X ? 1 : 0);
    }
}

/* ---- lists: a counting sort ---- */

static void moe_list_run(const af_node *n, af_cpu *cpu)
{
    const int32_t *index = n->in[0]->data;
    int32_t *list = n->out[0]->data, *slot = n->out[1]->data, *start = n->out[2]->data;
    const int64_t pairs = af_live(n->in[0]) * af_last(n->in[0]), X = n->out[2]->dim[0] - 1;
    (void)cpu;
    memset(start, 0, (size_t)(X + 1) * sizeof *start);
    for (int64_t p = 0; p < pairs; p++) {
        assert(index[p] >= 0 && index[p] < X);
        start[index[p] + 1]++;
    }
    for (int64_t e = 0; e < X; e++)
        start[e + 1] += start[e];
    for (int64_t p = 0; p < pairs; p++) {
        slot[p] = start[index[p]]++;
        list[slot[p]] = (int32_t)p;
    }
    for (int64_t e = X; e > 0; e--) /* each has moved on to the next one's */
        start[e] = start[e - 1];
    start[0] = 0;
}

/* ---- the sum over experts ---- */

static void combine_tokens(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *node = arg;
    const af_moe_inputs in = af_moe_in(node);
    const int64_t k = node->attr.moe.k, D = af_last(in.out);
    const int32_t *slot = in.slot->data;
    (void)share;
    for (int64_t n = from; n < to; n++)
        for (int64_t d = 0; d < D; d++) {
            double sum = in.plus ? af_ld(in.plus, n * D + d) : 0;
            for (int64_t p = n * k; p < (n + 1) * k; p++)
                sum += (in.weights ? af_ld(in.weights, p) : 1) * af_ld(in.out, slot[p] * D + d);
            af_st(node->out[0], n * D + d, sum);
        }
}

static void moe_combine_run(const af_node *n, af_cpu *cpu)
{
    af_pool_run(cpu->pool, af_live(n->out[0]), combine_tokens, (void *)n);
}

static void combine_back_slots(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *node = arg;
    const af_moe_inputs in = af_moe_in(node);
    const int64_t k = node->attr.moe.k, D = af_last(in.out);
    const int32_t *list = in.list->data;
    (void)share;
    for (int64_t s = from; s < to; s++) {
        const int64_t p = list[s];
        const double w = af_ld(in.weights, p);
        double dot = 0;
        for (int64_t d = 0; d < D; d++) {
            const double dy = af_ld(in.dy, p / k * D + d);
            dot += dy * af_ld(in.out, s * D + d);
            af_st(node->out[0], s * D + d, w * dy);
        }
        af_st(node->out[1], p, dot);
    }
}

static void moe_combine_bwd_run(const af_node *n, af_cpu *cpu)
{
    af_pool_run(cpu->pool, af_live(n->in[0]), combine_back_slots, (void *)n);
}

static void glu_back_slots(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *node = arg;
    const af_moe_inputs in = af_moe_in(node);
    const int64_t F = af_last(in.dy);
    const int32_t *list = in.list->data;
    (void)share;
    for (int64_t s = from; s < to; s++) {
        const double w = af_ld(in.weights, list[s]);
        double dot = 0;
        for (int64_t f = 0; f < F; f++) {
            const int64_t at = 2 * s * F + f;
            const double gate = af_ld(in.gate_up, at), up = af_ld(in.gate_up, at + F),
                         dy = af_ld(in.dy, s * F + f), act = af_act_value(node->attr.moe.act, gate);
            dot += dy * act * up;
            af_st(node->out[0], at, w * dy * up * af_act_slope(node->attr.moe.act, gate));
            af_st(node->out[0], at + F, w * dy * act);
        }
        af_st(node->out[1], list[s], dot);
    }
}

static void moe_glu_bwd_run(const af_node *n, af_cpu *cpu)
{
    af_pool_run(cpu->pool, af_live(n->in[0]), glu_back_slots, (void *)n);
}

const af_cpu_op af_cpu_moe_route = {moe_route_run, route_work};
const af_cpu_op af_cpu_moe_route_bwd = {moe_route_bwd_run, NULL};
const af_cpu_op af_cpu_moe_pick = {moe_pick_run, NULL};
const af_cpu_op af_cpu_moe_pick_bwd = {moe_pick_bwd_run, NULL};
const af_cpu_op af_cpu_moe_real = {moe_real_run, NULL};
const af_cpu_op af_cpu_moe_list = {moe_list_run, NULL};
const af_cpu_op af_cpu_moe_combine = {moe_combine_run, NULL};
const af_cpu_op af_cpu_moe_combine_bwd = {moe_combine_bwd_run, NULL};
const af_cpu_op af_cpu_moe_glu_bwd = {moe_glu_bwd_run, NULL};
