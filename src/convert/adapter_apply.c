/* adapter_apply.c - see adapter_apply.h. */
#include "convert/adapter_apply.h"

#include <math.h>

enum { STRIP = 256 }; /* columns summed at a time */

static void add_strip(const af_adapter_module *m, float *row, int64_t o, int64_t at, int64_t end,
                      int64_t cols)
{
    float sum[STRIP] = {0};
    for (int r = 0; r < m->rank; r++) {
        const float b = m->b[o * m->rank + r];
        const float *a = m->a + r * cols + at;
        for (int64_t c = 0; c < end - at; c++)
            sum[c] = (float)((double)b * a[c] + sum[c]); /* a fused step, on any machine */
    }
    for (int64_t c = 0; c < end - at; c++)
        row[at + c] += m->scale * sum[c];
}

void af_adapter_apply_rows(const af_adapter_module *m, float *rows, int64_t from, int64_t n,
                           int64_t cols)
{
    for (int64_t i = 0; i < n; i++) {
        float *row = rows + i * cols;
        for (int64_t at = 0; at < cols; at += STRIP)
            add_strip(m, row, from + i, at, AF_MIN(at + STRIP, cols), cols);
        if (!m->magnitude)
            continue;
        double norm = 0;
        for (int64_t c = 0; c < cols; c++)
            norm += (double)row[c] * row[c];
        const float factor = m->magnitude[from + i] / (float)sqrt(norm);
        for (int64_t c = 0; c < cols; c++)
            row[c] *= factor;
    }
}

void af_adapter_apply_embedding(const af_adapter_module *m, float *rows, int64_t from, int64_t n,
                                int64_t cols, int64_t tokens)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < cols; c++) {
            float sum = 0;
            for (int r = 0; r < m->rank; r++)
                sum = (float)((double)m->b[c * m->rank + r] * m->a[r * tokens + from + i] + sum);
            rows[i * cols + c] += m->scale * sum;
        }
}

bool af_combine_by_name(af_combine *out, const char *name)
{
    static const char *const names[] = {"linear", "cat", "ties"};
    for (size_t i = 0; i < AF_LEN(names); i++)
        if (strcmp(names[i], name) == 0) {
            *out = (af_combine)i;
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

static af_status sum_ties(const stack *s, float *out, int64_t count, double density, af_error *err)
{
    float *kept = af_calloc((uint64_t)(s->n * count), sizeof *kept);
    ranked *order = af_calloc((uint64_t)count, sizeof *order);
    if (!kept || !order) {
        free(kept);
        free(order);
        return af_fail_nomem(err, "adapters to combine", (uint64_t)(s->n * count) * sizeof *kept);
    }
    for (int k = 0; k < s->n; k++)
        prune(s->part[k], kept + k * count, order, count, density);
    for (int64_t i = 0; i < count; i++) {
        float total = 0, sum = 0;
        int agree = 0;
        for (int k = 0; k < s->n; k++)
            total += kept[k * count + i];
        for (int k = 0; k < s->n; k++) {
            const float x = kept[k * count + i];
            if (total >= 0 ? x > 0 : x < 0) {
                sum += s->weight[k] * x;
                agree++;
            }
        }
        out[i] = sum / (float)AF_MAX(agree, 1);
    }
    free(kept);
    free(order);
    return AF_OK;
}

static af_status combine_part(const stack *s, float *out, int64_t count, af_combine how,
                              double density, af_error *err)
{
    if (how == AF_COMBINE_TIES)
        return sum_ties(s, out, count, density, err);
    sum_linear(s, out, count);
    return AF_OK;
}

/* Module i of the result has room for all ranks; the first `rank` are used. */
static af_status combine_module(af_adapter *to, int i, const af_adapter *const *in,
                                const double *weight, int n, af_combine how, double density,
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
    AF_TRY(combine_part(&a, out->a, rank * m->in, how, density, err));
    AF_TRY(combine_part(&b, out->b, rank * m->out, how, density, err));
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
    const char **target = af_arena_take(&a->arena, (uint64_t)AF_MAX(n, 1) * sizeof *target);
    af_adapter_pattern *pattern =
        af_arena_take(&a->arena, (uint64_t)AF_MAX(n, 1) * sizeof *pattern);
    if (!target || !pattern)
        return af_fail_nomem(err, "an adapter's settings", (uint64_t)n * 24);
    af_adapter_config *c = &a->config;
    c->r = 0;
    c->target = target;
    c->target_count = c->rank_patterns = 0;
    c->target_regex = c->exclude_regex = NULL;
    c->exclude_count = c->layer_count = 0;
    c->layers = NULL;
    c->rslora = false;
    for (int i = 0; i < n; i++)
        c->r = AF_MAX(c->r, a->module[i].rank);
    for (int i = 0; i < n; i++) {
        if (!a->module[i].rank)
            continue;
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
                             int n, af_combine how, double density, af_error *err)
{
    af_status st = AF_OK;
    af_adapter *a = NULL;
    if (n > (int)AF_LEN(((stack *)0)->part))
        return af_fail(err, AF_EUSAGE, "%d adapters are more than %d", n,
                       (int)AF_LEN(((stack *)0)->part));
    AF_TRY(af_adapter_mix(&a, in, weight, n, err));
    for (int i = 0; how != AF_COMBINE_CAT && i < a->spec->modules; i++)
        AF_TRY(combine_module(a, i, in, weight, n, how, density, err));
    AF_TRY(describe(a, err));
    *out = a;
    a = NULL;
done:
    af_adapter_free(a);
    return st;
}
