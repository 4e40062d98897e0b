/* token_draw_cpu.c - the twin of token_draw.c: every token sorted, sums in double. */
#include "backend/cpu/cpu.h"
#include "ops/head/token_draw.h"

#include <math.h>

typedef struct draw_token {
    double logit, weight;
    int64_t id;
} draw_token;

static int by_logit(const void *a, const void *b)
{
    const draw_token *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static double sum_of(const draw_token *c, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += c[i].weight;
    return sum;
}

/* Which of the sorted tokens. */
static int64_t choose(draw_token *c, int64_t n, const double *want)
{
    const double t = want[AF_DRAW_TEMPERATURE], p = want[AF_DRAW_TOP_P];
    const int64_t k = (int64_t)want[AF_DRAW_TOP_K];
    double at = 0;
    if (t == 0 || c[0].logit == -INFINITY)
        return 0;
    for (int64_t i = 0; i < n; i++)
        c[i].weight = exp((double)(float)(c[i].logit / t) - (float)(c[0].logit / t));
    n = k > 0 && k < n ? k : n;
    if (p > 0 && p < 1) {
        const double enough = p * sum_of(c, n);
        int64_t i = 0;
        for (double mass = c[0].weight; i + 1 < n && mass < enough; mass += c[i].weight)
            i++;
        n = i + 1;
    }
    while (n > 1 && c[n - 1].weight < want[AF_DRAW_MIN_P])
        n--;
    const double number = want[AF_DRAW_NUMBER] * sum_of(c, n);
    for (int64_t i = 0; i + 1 < n; i++) {
        at += c[i].weight;
        if (number < at)
            return i;
    }
    return n - 1;
}

static void draw_row(const double *want, draw_token *c, int64_t V, double *choice, double *top)
{
    double sum = 0;
    const int64_t tops = AF_MIN((int64_t)want[AF_DRAW_TOPS], V);
    for (int64_t i = 0; i < V; i++)
        if (isnan(c[i].logit))
            return;
    qsort(c, (size_t)V, sizeof *c, by_logit);
    for (int64_t i = 0; i < V; i++)
        sum += exp(c[i].logit - c[0].logit);
    const double lse = c[0].logit + log(sum);
    const int64_t at = choose(c, V, want);
    choice[0] = (double)c[at].id;
    choice[1] = tops >= 0 ? c[at].logit - lse : 0;
    for (int64_t i = 0; i < tops; i++) {
        top[2 * i] = (double)c[i].id;
        top[2 * i + 1] = c[i].logit - lse;
    }
}

static void draw_rows(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = *(const af_node *const *)arg;
    const af_cpu *cpu = ((af_cpu *const *)arg)[1];
    const int64_t V = af_last(n->in[0]);
    draw_token *c = (draw_token *)cpu->work + share * V;
    for (int64_t r = from; r < to; r++) {
        const double *want = (const double *)n->in[1]->data + r * AF_DRAW_WANTS;
        double *choice = (double *)n->out[0]->data + 2 * r,
               *top = (double *)n->out[1]->data + 2 * AF_DRAW_TOPS_MAX * r;
        choice[0] = -1;
        choice[1] = 0;
        for (int i = 0; i < 2 * AF_DRAW_TOPS_MAX; i++)
            top[i] = i % 2 ? 0 : -1;
        for (int64_t i = 0; i < V; i++)
            c[i] = (draw_token){.logit = af_ld(n->in[0], r * V + i), .id = i};
        if (want[AF_DRAW_TEMPERATURE] >= 0)
            draw_row(want, c, V, choice, top);
    }
}

static void token_draw_run(const af_node *n, af_cpu *cpu)
{
    const void *arg[2] = {n, cpu};
    af_pool_run(cpu->pool, af_live(n->out[0]), draw_rows, arg);
}

static uint64_t token_draw_work(const af_node *n, int threads)
{
    return (uint64_t)threads * (uint64_t)af_last(n->in[0]) * sizeof(draw_token);
}

const af_cpu_op af_cpu_token_draw = {token_draw_run, token_draw_work};
