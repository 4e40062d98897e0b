/* merge_pick.c - methods that pick entries: sce, ram, nearswap, arcee fusion, pass-through. */
#include "convert/merge/merge_method.h"

#include <math.h>

/* ---- sce: where models disagree most ---- */

static void variance_keys(const af_merge_task *t, const af_merge_block *b, int k, uint32_t *keys)
{
    (void)k;
    for (int64_t i = 0; i < b->len; i++) {
        double mean = 0, var = 0;
        for (int m = 0; m < t->n; m++)
            mean += (double)b->x[m][i] - b->base[i];
        mean /= t->n;
        for (int m = 0; m < t->n; m++) {
            const double d = (double)b->x[m][i] - b->base[i] - mean;
            var += d * d;
        }
        keys[i] = af_merge_float_key((float)(var / t->n));
    }
}

static void visit_nonzero(const af_merge_task *t, const af_merge_block *b, void *part, void *arg)
{
    uint32_t *keys = (uint32_t *)b->scratch;
    int64_t *count = part;
    const uint32_t zero = af_merge_float_key(0);
    (void)arg;
    variance_keys(t, b, 0, keys);
    for (int64_t i = 0; i < b->len; i++)
        *count += keys[i] != zero;
}

/* Differences that stay in x[]; the rest zero. */
static void keep_picked(const af_merge_task *t, const af_merge_block *b)
{
    const af_merge_cut *c = &t->cut[0];
    uint32_t *keys = (uint32_t *)b->scratch;
    int64_t equal = c->lo_ranks ? t->equal_before[b->index * 2] : 0;
    if (!c->all)
        variance_keys(t, b, 0, keys);
    for (int64_t i = 0; i < b->len; i++) {
        const bool keep = c->all || keys[i] > c->lo ||
                          (keys[i] == c->lo && (!c->lo_ranks || equal++ < c->lo_equal));
        for (int m = 0; m < t->n; m++)
            b->x[m][i] = keep ? b->x[m][i] - b->base[i] : 0;
    }
}

static void visit_squares(const af_merge_task *t, const af_merge_block *b, void *part, void *arg)
{
    double *sum = part;
    (void)arg;
    keep_picked(t, b);
    for (int m = 0; m < t->n; m++)
        for (int64_t i = 0; i < b->len; i++)
            sum[m] += (double)b->x[m][i] * b->x[m][i];
}

static af_status pick_variance(af_merge_task *t, af_error *err)
{
    af_status st = AF_OK;
    void *parts = NULL;
    int64_t nonzero = 0;
    AF_TRY(af_merge_scan(t, visit_nonzero, sizeof nonzero, NULL, &parts, err));
    for (int64_t i = 0; i < t->blocks; i++)
        nonzero += ((int64_t *)parts)[i];
    const int64_t keep = (int64_t)((double)nonzero * t->p.select_topk);
    af_merge_rank rank = {.rank = AF_MIN(t->count - keep, t->count - 1)};
    AF_TRY(af_merge_select(t, variance_keys, &rank, 1, err));
    t->cut[0].lo = rank.key;
    t->cut[0].hi = UINT32_MAX;
    t->cut[0].lo_equal = keep - (t->count - rank.below - rank.equal);
    t->cut[0].lo_ranks = t->cut[0].lo_equal < rank.equal;
    if (t->cut[0].lo_ranks)
        AF_TRY(af_merge_count_equal(t, variance_keys, 1, err));
done:
    free(parts);
    return st;
}

af_status af_merge_sce_prepare(af_merge_task *t, af_error *err)
{
    af_status st = AF_OK;
    void *parts = NULL;
    double sum = 0;
    t->cut[0] = (af_merge_cut){.all = t->p.select_topk >= 1};
    if (!t->cut[0].all)
        AF_TRY(pick_variance(t, err));
    AF_TRY(af_merge_scan(t, visit_squares, (size_t)t->n * sizeof(double), NULL, &parts, err));
    for (int m = 0; m < t->n; m++) {
        t->coef[m] = 0;
        for (int64_t i = 0; i < t->blocks; i++)
            t->coef[m] += ((double *)parts)[i * t->n + m];
        t->coef[m] /= (double)t->count;
        sum += t->coef[m];
    }
    for (int m = 0; m < t->n; m++)
        t->coef[m] = fabs(sum) < 1e-6 ? 1.0 / t->n : t->coef[m] / sum;
done:
    free(parts);
    return st;
}

void af_merge_sce_emit(const af_merge_task *t, const af_merge_block *b)
{
    keep_picked(t, b);
    for (int64_t i = 0; i < b->len; i++) {
        double total = 0, mix = 0, under = 0;
        for (int m = 0; m < t->n; m++)
            total += b->x[m][i];
        for (int m = 0; m < t->n; m++) {
            const float d = b->x[m][i];
            if (total >= 0 ? d > 0 : d < 0) {
                mix += t->coef[m] * d;
                under += t->coef[m];
            }
        }
        b->out[i] = mix == 0 ? b->base[i] : (float)(b->base[i] + mix / AF_MAX(under, 1e-6));
    }
}

/* ---- ram ---- */

static void visit_overlap(const af_merge_task *t, const af_merge_block *b, void *part, void *arg)
{
    int64_t(*count)[2] = part; /* shared, alone */
    (void)arg;
    for (int64_t i = 0; i < b->len; i++) {
        int many = 0;
        for (int m = 0; m < t->n; m++)
            many += fabs((double)b->x[m][i] - b->base[i]) > t->p.epsilon;
        for (int m = 0; m < t->n; m++)
            if (fabs((double)b->x[m][i] - b->base[i]) > t->p.epsilon)
                count[m][many == 1]++;
    }
}

af_status af_merge_ramplus_prepare(af_merge_task *t, af_error *err)
{
    void *parts;
    const af_status st =
        af_merge_scan(t, visit_overlap, (size_t)t->n * 2 * sizeof(int64_t), NULL, &parts, err);
    if (st != AF_OK)
        return st;
    for (int m = 0; m < t->n; m++) {
        int64_t shared = 0, alone = 0;
        for (int64_t i = 0; i < t->blocks; i++) {
            shared += ((int64_t *)parts)[(i * t->n + m) * 2];
            alone += ((int64_t *)parts)[(i * t->n + m) * 2 + 1];
        }
        const double ratio = (double)shared / AF_MAX((double)alone, t->p.epsilon);
        t->factor[m] = 1 + t->p.r * AF_MIN(ratio, t->p.alpha);
    }
    free(parts);
    return AF_OK;
}

void af_merge_ram_emit(const af_merge_task *t, const af_merge_block *b)
{
    for (int64_t i = 0; i < b->len; i++) {
        double sum = 0, alone = 0;
        int many = 0;
        for (int m = 0; m < t->n; m++) {
            const double d = (double)b->x[m][i] - b->base[i];
            if (fabs(d) > t->p.epsilon) {
                many++;
                sum += d;
                alone = d * (t->factor[m] > 0 ? t->factor[m] : 1);
            }
        }
        const double change = many == 1 ? alone : many ? sum / many : 0;
        b->out[i] = many ? (float)(b->base[i] + change) : b->base[i];
    }
}

/* ---- nearswap, pass-through ---- */

void af_merge_nearswap_emit(const af_merge_task *t, const af_merge_block *b)
{
    for (int64_t i = 0; i < b->len; i++) {
        const double gap = fabs((double)b->base[i] - b->x[0][i]);
        double w = t->p.t / AF_MAX(gap, 1e-6);
        w = w < 0 ? 0 : w > 1 ? 1 : w;
        b->out[i] = (float)(w * b->x[0][i] + (1 - w) * b->base[i]);
    }
}

void af_merge_pass_emit(const af_merge_task *t, const af_merge_block *b)
{
    const float scale = (float)t->w[0].scale;
    for (int64_t i = 0; i < b->len; i++)
        b->out[i] = t->has_scale ? b->x[0][i] * scale : b->x[0][i];
}

/* ---- arcee fusion: what changed and matters ---- */

/* Sum of p log(p/q) over a row, p and q the softmax of both rows, 1e-8 added. */
static double divergence(const float *x, const float *y, int64_t n)
{
    double mx = x[0], my = y[0], sx = 0, sy = 0, sum = 0;
    for (int64_t i = 1; i < n; i++) {
        mx = x[i] > mx ? x[i] : mx;
        my = y[i] > my ? y[i] : my;
    }
    for (int64_t i = 0; i < n; i++) {
        sx += exp(x[i] - mx);
        sy += exp(y[i] - my);
    }
    for (int64_t i = 0; i < n; i++) {
        const double p = exp(x[i] - mx) / sx + 1e-8, q = exp(y[i] - my) / sy + 1e-8;
        sum += p * log(p / q);
    }
    return sum;
}

static float importance(double kl, float x, float base)
{
    return (float)(fabs((double)x - base) * kl);
}

static void importance_keys(const af_merge_task *t, const af_merge_block *b, int k, uint32_t *keys)
{
    (void)t;
    (void)k;
    for (int64_t r = 0; r < b->rows; r++) {
        const int64_t at = r * b->cols;
        const double kl = divergence(b->x[0] + at, b->base + at, b->cols);
        for (int64_t i = at; i < at + b->cols; i++)
            keys[i] = af_merge_float_key(importance(kl, b->x[0][i], b->base[i]));
    }
}

af_status af_merge_arcee_prepare(af_merge_task *t, af_error *err)
{
    static const float part[] = {0.25f, 0.5f, 0.75f};
    af_merge_rank rank[3];
    float at[3];
    for (int i = 0; i < 3; i++)
        rank[i] = (af_merge_rank){.rank = (int64_t)(part[i] * (double)(t->count - 1))};
    const af_status st = af_merge_select(t, importance_keys, rank, 3, err);
    for (int i = 0; i < 3 && st == AF_OK; i++)
        at[i] = af_merge_key_float(rank[i].key);
    if (st == AF_OK)
        t->threshold = (float)(at[1] + 1.5 * ((double)at[2] - at[0]));
    return st;
}

void af_merge_arcee_emit(const af_merge_task *t, const af_merge_block *b)
{
    for (int64_t r = 0; r < b->rows; r++) {
        const int64_t at = r * b->cols;
        const double kl = divergence(b->x[0] + at, b->base + at, b->cols);
        for (int64_t i = at; i < at + b->cols; i++)
            b->out[i] =
                importance(kl, b->x[0][i], b->base[i]) >= t->threshold ? b->x[0][i] : b->base[i];
    }
}
