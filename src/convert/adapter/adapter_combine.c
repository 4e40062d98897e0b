/* adapter_combine.c - several adapters of one model into one; see adapter_combine.h. */
#include "convert/adapter/adapter_combine.h"

#include "base/rng.h"

#include <math.h>

bool af_combine_by_name(af_combine *out, const char *name)
{
    static const struct {
        const char *name;
        af_combine how;
    } names[] = {{"linear", AF_COMBINE_LINEAR},
                 {"cat", AF_COMBINE_CAT},
                 {"ties", AF_COMBINE_TIES},
                 {"dare", AF_COMBINE_DARE_LINEAR},
                 {"dare_linear", AF_COMBINE_DARE_LINEAR},
                 {"dare_ties", AF_COMBINE_DARE_TIES},
                 {"magnitude_prune", AF_COMBINE_PRUNE}};
    for (size_t i = 0; i < AF_LEN(names); i++)
        if (strcmp(names[i].name, name) == 0) {
            *out = names[i].how;
            return true;
        }
    return false;
}

/* One A or B of every adapter, and what each counts. */
typedef struct stack {
    const float *part[64];
    float weight[64];
    int n;
} stack;

static void sum_linear(const stack *s, float *out, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float sum = 0;
        for (int k = 0; k < s->n; k++)
            sum += s->weight[k] * s->part[k][i];
        out[i] = sum;
    }
}

typedef struct ranked {
    float size;
    int64_t at;
} ranked;

static int by_size(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->size != y->size)
        return x->size < y->size ? 1 : -1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* The int(density n) largest stay, the rest are zero. */
static void prune(const float *x, float *out, ranked *order, int64_t n, double density)
{
    const int64_t keep = (int64_t)(density * (double)n);
    for (int64_t i = 0; i < n; i++)
        order[i] = (ranked){fabsf(x[i]), i};
    qsort(order, (size_t)n, sizeof *order, by_size);
    memset(out, 0, (size_t)n * sizeof *out);
    for (int64_t i = 0; i < keep; i++)
        out[order[i].at] = x[order[i].at];
}

/* Each stays with probability `density`; those that do are scaled to make up for the rest. */
static void drop(const float *x, float *out, int64_t n, double density, uint64_t seed,
                 uint64_t stream)
{
    const float by = (float)density;
    for (int64_t i = 0; i < n; i++)
        out[i] = af_rng_f32(seed, stream, (uint64_t)i) < by ? x[i] / by : 0;
}

static void sum_vote(const stack *s, float *out, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float total = 0, sum = 0;
        int agree = 0;
        for (int k = 0; k < s->n; k++)
            total += s->part[k][i];
        for (int k = 0; k < s->n; k++) {
            const float x = s->part[k][i];
            if (total >= 0 ? x > 0 : x < 0) {
                sum += s->weight[k] * x;
                agree++;
            }
        }
        out[i] = sum / (float)AF_MAX(agree, 1);
    }
}

/* Prunes the parts where the method asks for it, then adds them up. `stream` selects the random
 * numbers of this part from all others. */
static af_status combine_part(const stack *s, float *out, int64_t count, const af_combine_opts *o,
                              uint64_t stream, af_error *err)
{
    const bool vote = o->how == AF_COMBINE_TIES || o->how == AF_COMBINE_DARE_TIES;
    const bool random = o->how == AF_COMBINE_DARE_LINEAR || o->how == AF_COMBINE_DARE_TIES;
    const bool thin = o->how != AF_COMBINE_LINEAR && o->density < 1;
    stack t = *s;
    float *kept = thin ? af_calloc((uint64_t)(s->n * count), sizeof *kept) : NULL;
    ranked *order = thin && !random ? af_calloc((uint64_t)count, sizeof *order) : NULL;
    if (thin && (!kept || (!random && !order))) {
        free(kept);
        free(order);
        return af_fail_nomem(err, "adapters to combine", (uint64_t)(s->n * count) * sizeof *kept);
    }
    for (int k = 0; thin && k < s->n; k++) {
        float *to = kept + k * count;
        if (random)
            drop(s->part[k], to, count, o->density, o->seed, stream * 64 + (uint64_t)k);
        else
            prune(s->part[k], to, order, count, o->density);
        t.part[k] = to;
    }
    if (vote)
        sum_vote(&t, out, count);
    else
        sum_linear(&t, out, count);
    free(kept);
    free(order);
    return AF_OK;
}

/* Module i of the result has space for all ranks; the first `rank` are used. */
static af_status combine_module(af_adapter *to, int i, const af_adapter *const *in,
                                const double *weight, int n, const af_combine_opts *o,
                                af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = &to->spec->module[i];
    af_adapter_module *out = &to->module[i];
    stack a = {0}, b = {0};
    int rank = 0;
    for (int k = 0; k < n; k++) {
        const af_adapter_module *from = &in[k]->module[i];
        if (!from->rank)
            continue;
        if (rank && from->rank != rank)
            return af_fail(err, AF_EUSAGE,
                           "'%s': ranks %d and %d cannot be combined element by element; use cat",
                           m->path, rank, from->rank);
        const float root = (float)sqrt(fabs(weight[k] * from->scale));
        rank = from->rank;
        a.part[a.n] = from->a;
        a.weight[a.n++] = weight[k] < 0 ? -root : root;
        b.part[b.n] = from->b;
        b.weight[b.n++] = root;
    }
    if (!rank)
        return AF_OK;
    AF_TRY(combine_part(&a, out->a, af_adapter_a_count(m, rank), o, 2 * (uint64_t)i, err));
    AF_TRY(combine_part(&b, out->b, af_adapter_b_count(m, rank), o, 2 * (uint64_t)i + 1, err));
    out->rank = rank;
    out->alpha = rank;
    out->scale = 1;
done:
    return st;
}

/* The config that says what the modules are: scale 1 everywhere, and a pattern where a rank is not
 * the common one. */
static af_status describe(af_adapter *a, af_error *err)
{
    const int n = a->spec->modules;
    const char **target = af_arena_take(&a->arena, 2 * (uint64_t)AF_MAX(n, 1) * sizeof *target);
    af_adapter_pattern *pattern =
        af_arena_take(&a->arena, (uint64_t)AF_MAX(n, 1) * sizeof *pattern);
    if (!target || !pattern)
        return af_fail_nomem(err, "an adapter's settings", (uint64_t)n * 24);
    af_adapter_config *c = &a->config;
    c->r = 0;
    c->target = target;
    c->target_count = c->param_count = c->rank_patterns = 0;
    c->param = target + n;
    c->target_regex = c->exclude_regex = NULL;
    c->exclude_count = c->layer_count = 0;
    c->layers = NULL;
    c->rslora = false;
    for (int i = 0; i < n; i++)
        c->r = AF_MAX(c->r, a->module[i].rank);
    for (int i = 0; i < n; i++) {
        if (!a->module[i].rank)
            continue;
        if (a->spec->module[i].parameter)
            target[n + c->param_count++] = a->spec->module[i].path;
        else
            target[c->target_count++] = a->spec->module[i].path;
        if (a->module[i].rank != c->r)
            pattern[c->rank_patterns++] =
                (af_adapter_pattern){a->spec->module[i].path, a->module[i].rank};
    }
    c->alpha = c->r;
    c->rank_pattern = c->alpha_pattern = pattern;
    c->alpha_patterns = c->rank_patterns;
    return AF_OK;
}

af_status af_adapter_combine(af_adapter **out, const af_adapter *const *in, const double *weight,
                             int n, const af_combine_opts *o, af_error *err)
{
    af_status st = AF_OK;
    af_adapter *a = NULL;
    if (n > (int)AF_LEN(((stack *)0)->part))
        return af_fail(err, AF_EUSAGE, "%d adapters are more than %d", n,
                       (int)AF_LEN(((stack *)0)->part));
    AF_TRY(af_adapter_mix(&a, in, weight, n, err));
    for (int i = 0; o->how != AF_COMBINE_CAT && i < a->spec->modules; i++)
        AF_TRY(combine_module(a, i, in, weight, n, o, err));
    AF_TRY(describe(a, err));
    *out = a;
    a = NULL;
done:
    af_adapter_free(a);
    return st;
}
