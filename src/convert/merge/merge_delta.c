/* merge_delta.c - methods on differences from the base: thin them out (largest, bread crumbs,
 * at random, at random by rank), then add them up or let signs vote.
 *
 * A random mask is a function of seed, tensor, model and position, so that it is the same in the
 * pass that measures and in the one that writes, on any thread. */
#include "convert/merge/merge_method.h"

#include "base/hash.h"
#include "base/rng.h"

#include <math.h>

/* ---- the vote ---- */

enum { RUN = AF_MERGE_RUN }; /* entries whose sums are held at once */

/* Sums over the models of RUN entries from `at` on, in double; the entries that count are those of
 * the sign of the total. */
static void vote_run(const af_merge_task *t, const af_merge_block *b, int64_t at, double *mix,
                     double *under)
{
    double total[RUN] = {0};
    memset(mix, 0, RUN * sizeof *mix);
    memset(under, 0, RUN * sizeof *under);
    for (int k = 0; k < t->n; k++)
        for (int i = 0; i < RUN; i++)
            total[i] += (double)b->x[k][at + i];
    for (int k = 0; k < t->n; k++) {
        const double weight = t->w[k].weight;
        for (int i = 0; i < RUN; i++) {
            const double d = b->x[k][at + i], sign = total[i] >= 0 ? d : -d;
            mix[i] += sign > 0 ? d : 0;
            under[i] += sign > 0 ? weight : 0;
        }
    }
    for (int i = 0; i < RUN; i++)
        under[i] = under[i] == 0 ? 1 : under[i];
}

static void sum_run(const af_merge_task *t, const af_merge_block *b, int64_t at, double *mix)
{
    memset(mix, 0, RUN * sizeof *mix);
    for (int k = 0; k < t->n; k++)
        for (int i = 0; i < RUN; i++)
            mix[i] += (double)b->x[k][at + i];
}

static double sum_of_weights(const af_merge_task *t)
{
    double all = 0;
    for (int k = 0; k < t->n; k++)
        all += t->w[k].weight;
    return fabs(all) < 1e-8 ? 1 : all;
}

/* x[k] are weighted differences now; after a block's values there is space for a run. */
static void add_up(const af_merge_task *t, const af_merge_block *b, bool vote)
{
    const double all = sum_of_weights(t);
    double mix[RUN], under[RUN];
    for (int i = 0; i < RUN; i++)
        under[i] = all;
    for (int64_t at = 0; at < b->len; at += RUN) {
        const int n = (int)AF_MIN(RUN, b->len - at);
        if (vote)
            vote_run(t, b, at, mix, under);
        else
            sum_run(t, b, at, mix);
        for (int i = 0; i < n; i++) {
            const double change = t->p.lambda * (t->p.normalize ? mix[i] / under[i] : mix[i]);
            const float base = b->base[at + i];
            b->out[at + i] = change == 0 ? base : (float)(base + change);
        }
    }
}

/* ---- the largest ---- */

static af_status count_where_needed(af_merge_task *t, af_error *err)
{
    bool any = false;
    for (int k = 0; k < t->n; k++)
        any |= t->cut[k].lo_ranks || t->cut[k].hi_ranks;
    return any ? af_merge_count_equal(t, af_merge_delta_keys, t->n, err) : AF_OK;
}

af_status af_merge_top_prepare(af_merge_task *t, af_error *err)
{
    af_merge_rank rank[AF_MERGE_INPUTS_MAX];
    int n = 0;
    for (int k = 0; k < t->n; k++) {
        const double density = t->w[k].density;
        t->cut[k].all = density >= 1;
        t->cut[k].lo = UINT32_MAX; /* none */
        const int64_t keep = (int64_t)AF_MAX(1, (int64_t)(density * (double)t->count));
        if (!t->cut[k].all && density > 0)
            rank[n++] = (af_merge_rank){.set = k, .rank = t->count - keep};
    }
    if (n == 0)
        return AF_OK;
    const af_status st = af_merge_select(t, af_merge_delta_keys, rank, n, err);
    if (st != AF_OK)
        return st;
    for (int i = 0; i < n; i++) {
        af_merge_cut *c = &t->cut[rank[i].set];
        const int64_t keep = t->count - rank[i].rank;
        const int64_t above = t->count - rank[i].below - rank[i].equal;
        c->lo = rank[i].key;
        c->hi = UINT32_MAX;
        c->lo_equal = keep - above; /* the first of them, in order */
        c->lo_ranks = c->lo_equal < rank[i].equal;
    }
    return count_where_needed(t, err);
}

static void keep_top(const af_merge_task *t, const af_merge_block *b, int k)
{
    const af_merge_cut *c = &t->cut[k];
    uint32_t *keys = (uint32_t *)b->scratch;
    float *x = b->x[k];
    const float w = (float)t->w[k].weight;
    if (c->all) {
        for (int64_t i = 0; i < b->len; i++)
            x[i] = (x[i] - b->base[i]) * w;
        return;
    }
    af_merge_delta_keys(t, b, k, keys);
    if (c->lo_ranks) { /* the first of the equal ones stay: count them, and let them pass the cut */
        int64_t equal = t->equal_before[(b->index * t->n + k) * 2];
        for (int64_t i = 0; i < b->len; i++)
            if (keys[i] == c->lo)
                keys[i] -= equal++ >= c->lo_equal;
    }
    for (int64_t i = 0; i < b->len; i++) {
        const float d = (x[i] - b->base[i]) * w;
        x[i] = keys[i] >= c->lo ? d : 0;
    }
}

void af_merge_top_emit(const af_merge_task *t, const af_merge_block *b)
{
    for (int k = 0; k < t->n; k++)
        keep_top(t, b, k);
    add_up(t, b, true);
}

/* ---- bread crumbs ---- */

af_status af_merge_crumbs_prepare(af_merge_task *t, af_error *err)
{
    af_merge_rank rank[2 * AF_MERGE_INPUTS_MAX];
    int n = 0;
    const double count = (double)t->count;
    for (int k = 0; k < t->n; k++) {
        const int64_t keep = (int64_t)(t->w[k].density * count);
        const int64_t top = (int64_t)(t->w[k].gamma * count);
        const int64_t bottom = AF_MAX(0, t->count - keep - top);
        t->cut[k] = (af_merge_cut){.all = t->w[k].density >= 1};
        if (t->cut[k].all)
            continue;
        rank[n++] = (af_merge_rank){.set = k, .rank = AF_MIN(bottom, t->count - 1)};
        rank[n++] = (af_merge_rank){.set = k, .rank = AF_MIN(bottom + keep, t->count)};
    }
    for (int i = 1; i < n; i += 2) /* the first rank after; beyond the end nothing is cut */
        rank[i].rank = AF_MIN(rank[i].rank, t->count - 1);
    if (n == 0)
        return AF_OK;
    const af_status st = af_merge_select(t, af_merge_delta_keys, rank, n, err);
    if (st != AF_OK)
        return st;
    for (int i = 0; i < n; i += 2) {
        af_merge_cut *c = &t->cut[rank[i].set];
        const int64_t keep = (int64_t)(t->w[rank[i].set].density * count);
        const int64_t end = rank[i].rank + keep;
        c->lo = rank[i].key;
        c->lo_equal =
            rank[i].rank - rank[i].below; /* so many of the equal ones are below the cut */
        c->lo_ranks = c->lo_equal > 0;
        c->hi = end >= t->count ? UINT32_MAX : rank[i + 1].key;
        c->hi_equal = end >= t->count ? 0 : end - rank[i + 1].below;
        c->hi_ranks = end < t->count;
    }
    return count_where_needed(t, err);
}

static void keep_crumbs(const af_merge_task *t, const af_merge_block *b, int k)
{
    const af_merge_cut *c = &t->cut[k];
    uint32_t *keys = (uint32_t *)b->scratch;
    const float w = (float)t->w[k].weight;
    const int64_t *before = t->equal_before ? t->equal_before + (b->index * t->n + k) * 2 : NULL;
    int64_t lo = before ? before[0] : 0, hi = before ? before[1] : 0;
    if (!c->all)
        af_merge_delta_keys(t, b, k, keys);
    for (int64_t i = 0; i < b->len; i++) {
        bool keep = true;
        if (!c->all) {
            const bool low = keys[i] < c->lo || (keys[i] == c->lo && lo < c->lo_equal);
            const bool high = keys[i] > c->hi || (keys[i] == c->hi && hi >= c->hi_equal);
            lo += keys[i] == c->lo;
            hi += keys[i] == c->hi;
            keep = !low && !high;
        }
        b->x[k][i] = keep ? (b->x[k][i] - b->base[i]) * w : 0;
    }
}

void af_merge_crumbs_emit(const af_merge_task *t, const af_merge_block *b)
{
    for (int k = 0; k < t->n; k++)
        keep_crumbs(t, b, k);
    add_up(t, b, false);
}

void af_merge_crumbs_ties_emit(const af_merge_task *t, const af_merge_block *b)
{
    for (int k = 0; k < t->n; k++)
        keep_crumbs(t, b, k);
    add_up(t, b, true);
}

/* ---- at random ---- */

static uint64_t stream_of(const af_merge_task *t, int k)
{
    const uint8_t model = (uint8_t)k;
    return af_fnv1a(af_fnv1a(AF_FNV_START, t->name, strlen(t->name)), &model, 1);
}

/* Uniform numbers of the places [at, at + n): those of af_rng_f32, four at a time. */
static void uniforms(const af_merge_task *t, int k, int64_t at, int64_t n, float *out)
{
    const uint64_t stream = stream_of(t, k);
    const uint32_t key[2] = {(uint32_t)t->seed, (uint32_t)(t->seed >> 32)};
    uint32_t word[4];
    for (int64_t i = 0; i < n; i++) {
        const uint64_t p = (uint64_t)(at + i), q = p / 4;
        if (i == 0 || p % 4 == 0) {
            const uint32_t counter[4] = {(uint32_t)q, (uint32_t)(q >> 32), (uint32_t)stream,
                                         (uint32_t)(stream >> 32)};
            af_philox(word, counter, key);
        }
        out[i] = (float)(word[p % 4] >> 8) * 0x1p-24f;
    }
}

/* x[k] becomes the masked difference; sums[0] += |d|, sums[1] += |d| of those kept. */
typedef void mask_fn(const af_merge_task *t, const af_merge_block *b, int k, double sums[2]);

static void mask_even(const af_merge_task *t, const af_merge_block *b, int k, double sums[2])
{
    const double density = t->w[k].density;
    float *u = b->scratch;
    if (density < 1)
        uniforms(t, k, b->at, b->len, u);
    for (int64_t i = 0; i < b->len; i++) {
        const float d = b->x[k][i] - b->base[i];
        const bool keep = density >= 1 || (double)u[i] < density;
        sums[0] += fabs((double)d);
        sums[1] += keep ? fabs((double)d) : 0;
        b->x[k][i] = keep ? d : 0;
    }
}

/* Sorts by key (the upper half of each word), stable, by three rounds of 11 bits. */
static void sort_keys(uint64_t *a, uint64_t *spare, int64_t n)
{
    enum { BITS = 11, SIZE = 1 << BITS };
    for (int shift = 32; shift < 65 - BITS + 1; shift += BITS) {
        int64_t count[SIZE + 1] = {0};
        for (int64_t i = 0; i < n; i++)
            count[((a[i] >> shift) & (SIZE - 1)) + 1]++;
        for (int i = 0; i < SIZE; i++)
            count[i + 1] += count[i];
        for (int64_t i = 0; i < n; i++)
            spare[count[(a[i] >> shift) & (SIZE - 1)]++] = a[i];
        uint64_t *other = a;
        a = spare;
        spare = other;
    }
    memcpy(spare, a, (size_t)n * sizeof *a); /* three rounds end in the spare one */
}

/* The larger a difference among its row, the likelier it stays. */
static void mask_by_rank(const af_merge_task *t, const af_merge_block *b, int k, double sums[2])
{
    const double density = t->w[k].density, eps = t->w[k].epsilon;
    const int64_t n = b->cols;
    uint64_t *order = (uint64_t *)b->scratch, *spare = order + n;
    if (density >= 1) {
        mask_even(t, b, k, sums);
        return;
    }
    for (int64_t r = 0; r < b->rows; r++) {
        float *x = b->x[k] + r * n;
        for (int64_t i = 0; i < n; i++) {
            const float d = x[i] - b->base[r * n + i];
            uint32_t u;
            memcpy(&u, &d, sizeof u);
            order[i] = (uint64_t)(u & 0x7fffffffu) << 32 | (uint64_t)i;
            x[i] = d;
            sums[0] += fabs((double)d);
        }
        sort_keys(order, spare, n);
        float *u = (float *)spare;
        uniforms(t, k, b->at + r * n, n, u);
        for (int64_t rank = 0; rank < n; rank++) {
            const int64_t i = (int64_t)(order[rank] & 0xffffffffu);
            const double p =
                density - eps + (n > 1 ? 2 * eps * (double)rank / (double)(n - 1) : eps);
            const bool keep = (double)u[i] < p;
            sums[1] += keep ? fabs((double)x[i]) : 0;
            x[i] = keep ? x[i] : 0;
        }
    }
}

typedef struct random_arg {
    mask_fn *mask;
} random_arg;

static void visit_mask(const af_merge_task *t, const af_merge_block *b, void *part, void *arg)
{
    const random_arg *a = arg;
    double(*sums)[2] = part;
    for (int k = 0; k < t->n; k++)
        if (t->w[k].density < 1)
            a->mask(t, b, k, sums[k]);
}

/* The masked difference is scaled so that its L1 norm is what it was. */
static af_status prepare_random(af_merge_task *t, mask_fn *mask, af_error *err)
{
    random_arg a = {mask};
    void *parts = NULL;
    double all[AF_MERGE_INPUTS_MAX][2] = {{0}};
    bool any = false;
    for (int k = 0; k < t->n; k++) {
        t->factor[k] = 1;
        any |= t->w[k].density < 1;
    }
    if (!any || !t->p.rescale)
        return AF_OK;
    const af_status st =
        af_merge_scan(t, visit_mask, (size_t)t->n * 2 * sizeof(double), &a, &parts, err);
    if (st != AF_OK)
        return st;
    for (int64_t i = 0; i < t->blocks; i++)
        for (int k = 0; k < t->n; k++)
            for (int s = 0; s < 2; s++)
                all[k][s] += ((double *)parts)[(i * t->n + k) * 2 + s];
    free(parts);
    for (int k = 0; k < t->n; k++)
        if (t->w[k].density < 1 && all[k][1] > 0)
            t->factor[k] = all[k][0] / all[k][1];
    return AF_OK;
}

af_status af_merge_dare_prepare(af_merge_task *t, af_error *err)
{
    return prepare_random(t, mask_even, err);
}

af_status af_merge_della_prepare(af_merge_task *t, af_error *err)
{
    for (int k = 0; k < t->n; k++) {
        const double d = t->w[k].density, e = t->w[k].epsilon;
        if (d < 1 && (d - e <= 0 || d + e >= 1))
            return af_fail(err, AF_EUSAGE,
                           "'%s': density %g with epsilon %g leaves probabilities from %g to %g, "
                           "which are not between 0 and 1",
                           t->name, d, e, d - e, d + e);
    }
    return prepare_random(t, mask_by_rank, err);
}

static void emit_random(const af_merge_task *t, const af_merge_block *b, mask_fn *mask, bool vote)
{
    double unused[2] = {0};
    for (int k = 0; k < t->n; k++) {
        const float scale = (float)(t->factor[k] * t->w[k].weight);
        mask(t, b, k, unused);
        for (int64_t i = 0; i < b->len; i++)
            b->x[k][i] *= scale;
    }
    add_up(t, b, vote);
}

void af_merge_dare_emit(const af_merge_task *t, const af_merge_block *b)
{
    emit_random(t, b, mask_even, false);
}

void af_merge_dare_ties_emit(const af_merge_task *t, const af_merge_block *b)
{
    emit_random(t, b, mask_even, true);
}

void af_merge_della_emit(const af_merge_task *t, const af_merge_block *b)
{
    emit_random(t, b, mask_by_rank, true);
}

void af_merge_della_linear_emit(const af_merge_task *t, const af_merge_block *b)
{
    emit_random(t, b, mask_by_rank, false);
}
