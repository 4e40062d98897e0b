/* merge_scan.c - passes over the blocks of a tensor, and order statistics without sorting.
 *
 * A rank is found by two histograms of 65,536 bins: the upper, then the lower half of 32-bit keys
 * that are ordered as the values are. Nothing of the tensor's size is kept. */
#include "convert/merge/merge_method.h"

enum { BINS = 1 << 16 };

typedef struct scan {
    const af_merge_task *t;
    af_merge_visit *visit;
    void *arg;
    uint8_t *parts;
    size_t part_size;
    bool by_share;
    float **scratch; /* by share */
    int64_t first;   /* block that counts as 0 */
    int64_t at;      /* blocks done in earlier stretches */
    float *out;      /* emit: where it begins */
    void (*emit)(const af_merge_task *, const af_merge_block *);
} scan;

/* Values of a block and a little more, so that methods may work in runs of AF_MERGE_RUN. */
static int64_t block_space(const af_merge_task *t)
{
    return (t->block_rows * t->cols + AF_MERGE_RUN - 1) / AF_MERGE_RUN * AF_MERGE_RUN;
}

static void run_blocks(void *arg, int64_t from, int64_t to, int share)
{
    const scan *s = arg;
    const af_merge_task *t = s->t;
    const int64_t most = block_space(t);
    float *x[AF_MERGE_INPUTS_MAX], *base = s->scratch[share];
    for (int k = 0; k < t->n; k++)
        x[k] = s->scratch[share] + (k + 1) * most;
    for (int64_t i = s->first + s->at + from; i < s->first + s->at + to; i++) {
        af_merge_block b = {.index = i,
                            .row = i * t->block_rows,
                            .cols = t->cols,
                            .base = t->has_base ? base : NULL,
                            .scratch = s->scratch[share] + (t->n + 1) * most};
        b.rows = AF_MIN(t->block_rows, t->rows - b.row);
        b.len = b.rows * b.cols;
        b.at = b.row * b.cols;
        t->read(t, b.row, b.rows, x, base);
        for (int k = 0; k < t->n; k++)
            b.x[k] = x[k];
        if (s->emit) {
            b.out = s->out + (i - s->first) * t->block_rows * t->cols;
            s->emit(t, &b);
            continue;
        }
        s->visit(t, &b, s->parts + (size_t)(s->by_share ? share : i) * s->part_size, s->arg);
    }
}

static af_status run_scan(scan *s, int64_t parts, int64_t blocks, af_error *err)
{
    const af_merge_task *t = s->t;
    const int shares = af_pool_threads(t->pool);
    const uint64_t scratch = (uint64_t)((t->n + 5) * block_space(t));
    af_status st = AF_OK;
    s->parts = af_calloc((uint64_t)AF_MAX(parts, 1), s->part_size);
    s->scratch = af_calloc((uint64_t)shares, sizeof *s->scratch);
    if (!s->parts || !s->scratch)
        AF_TRY(af_fail_nomem(err, "merging", (uint64_t)parts * s->part_size));
    for (int i = 0; i < shares; i++) {
        s->scratch[i] = af_calloc(scratch, sizeof **s->scratch);
        if (!s->scratch[i])
            AF_TRY(af_fail_nomem(err, "merging", scratch * 4));
    }
    for (; s->at < blocks; s->at += AF_MERGE_STRETCH) {
        af_pool_run(t->pool, AF_MIN(AF_MERGE_STRETCH, blocks - s->at), run_blocks, s);
        if (blocks > AF_MERGE_STRETCH && t->pause)
            t->pause(t);
    }
done:
    for (int i = 0; s->scratch && i < shares; i++)
        free(s->scratch[i]);
    free(s->scratch);
    if (st != AF_OK) {
        free(s->parts);
        s->parts = NULL;
    }
    return st;
}

af_status af_merge_scan(const af_merge_task *t, af_merge_visit *visit, size_t part_size, void *arg,
                        void **parts, af_error *err)
{
    scan s = {.t = t, .visit = visit, .arg = arg, .part_size = part_size};
    const af_status st = run_scan(&s, t->blocks, t->blocks, err);
    *parts = s.parts;
    return st;
}

af_status af_merge_scan_shares(const af_merge_task *t, af_merge_visit *visit, size_t part_size,
                               void *arg, void **parts, int *shares, af_error *err)
{
    scan s = {.t = t, .visit = visit, .arg = arg, .part_size = part_size, .by_share = true};
    *shares = af_pool_threads(t->pool);
    const af_status st = run_scan(&s, *shares, t->blocks, err);
    *parts = s.parts;
    return st;
}

af_status af_merge_emit(const af_merge_task *t,
                        void (*emit)(const af_merge_task *, const af_merge_block *), int64_t from,
                        int64_t n, float *out, af_error *err)
{
    scan s = {.t = t, .emit = emit, .out = out, .first = from, .part_size = 1};
    const af_status st = run_scan(&s, 1, n, err);
    free(s.parts);
    return st;
}

/* ---- Gram matrix ---- */

static void visit_gram(const af_merge_task *t, const af_merge_block *b, void *part, void *arg)
{
    double *g = part;
    const bool delta = *(const bool *)arg;
    for (int i = 0; i < t->n; i++)
        for (int j = i; j < t->n; j++) {
            double sum = 0;
            for (int64_t k = 0; delta && k < b->len; k++)
                sum += ((double)b->x[i][k] - b->base[k]) * ((double)b->x[j][k] - b->base[k]);
            for (int64_t k = 0; !delta && k < b->len; k++)
                sum += (double)b->x[i][k] * b->x[j][k];
            g[i * t->n + j] = sum;
        }
}

af_status af_merge_gram(const af_merge_task *t, bool delta, double *gram, af_error *err)
{
    const size_t size = (size_t)(t->n * t->n) * sizeof(double);
    void *parts;
    const af_status st = af_merge_scan(t, visit_gram, size, &delta, &parts, err);
    if (st != AF_OK)
        return st;
    memset(gram, 0, size);
    for (int64_t i = 0; i < t->blocks; i++)
        for (int k = 0; k < t->n * t->n; k++)
            gram[k] += ((double *)parts)[i * t->n * t->n + k];
    for (int i = 0; i < t->n; i++)
        for (int j = 0; j < i; j++)
            gram[i * t->n + j] = gram[j * t->n + i];
    free(parts);
    return AF_OK;
}

/* ---- keys ---- */

void af_merge_delta_keys(const af_merge_task *t, const af_merge_block *b, int k, uint32_t *keys)
{
    (void)t;
    for (int64_t i = 0; i < b->len; i++) {
        const float d = b->x[k][i] - b->base[i];
        memcpy(&keys[i], &d, sizeof d);
        keys[i] &= 0x7fffffffu;
    }
}

uint32_t af_merge_float_key(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

float af_merge_key_float(uint32_t key)
{
    const uint32_t u = key & 0x80000000u ? key & 0x7fffffffu : ~key;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* ---- ranks ---- */

typedef struct select_arg {
    af_merge_keys *keys;
    const af_merge_rank *rank; /* second pass: one histogram per rank */
    int sets, ranks;
} select_arg;

static void visit_upper(const af_merge_task *t, const af_merge_block *b, void *part, void *arg)
{
    const select_arg *a = arg;
    int64_t *bins = part;
    uint32_t *keys = (uint32_t *)b->scratch;
    for (int k = 0; k < a->sets; k++) {
        a->keys(t, b, k, keys);
        for (int64_t i = 0; i < b->len; i++)
            bins[(int64_t)k * BINS + (keys[i] >> 16)]++;
    }
}

static void visit_lower(const af_merge_task *t, const af_merge_block *b, void *part, void *arg)
{
    const select_arg *a = arg;
    int64_t *bins = part;
    uint32_t *keys = (uint32_t *)b->scratch;
    int have = -1;
    for (int r = 0; r < a->ranks; r++) {
        if (a->rank[r].set != have)
            a->keys(t, b, a->rank[r].set, keys);
        have = a->rank[r].set;
        const uint32_t upper = a->rank[r].key >> 16;
        for (int64_t i = 0; i < b->len; i++)
            if (keys[i] >> 16 == upper)
                bins[(int64_t)r * BINS + (keys[i] & 0xffff)]++;
    }
}

/* The bin that holds position `at`, counting from `*below`; *below is then what lies under it. */
static uint32_t find_bin(const int64_t *bins, int64_t at, int64_t *below)
{
    uint32_t i = 0;
    while (i + 1 < BINS && *below + bins[i] <= at)
        *below += bins[i++];
    return i;
}

static void add_shares(int64_t *bins, int shares, int64_t n)
{
    for (int s = 1; s < shares; s++)
        for (int64_t i = 0; i < n; i++)
            bins[i] += bins[s * n + i];
}

af_status af_merge_select(const af_merge_task *t, af_merge_keys *keys, af_merge_rank *rank,
                          int ranks, af_error *err)
{
    af_status st = AF_OK;
    select_arg a = {.keys = keys, .rank = rank, .ranks = ranks};
    void *parts = NULL;
    int shares;
    for (int r = 0; r < ranks; r++)
        a.sets = AF_MAX(a.sets, rank[r].set + 1);
    AF_TRY(af_merge_scan_shares(t, visit_upper, (size_t)a.sets * BINS * sizeof(int64_t), &a, &parts,
                                &shares, err));
    add_shares(parts, shares, (int64_t)a.sets * BINS);
    for (int r = 0; r < ranks; r++) {
        rank[r].below = 0;
        rank[r].key =
            find_bin((int64_t *)parts + (int64_t)rank[r].set * BINS, rank[r].rank, &rank[r].below)
            << 16;
    }
    free(parts);
    parts = NULL;
    AF_TRY(af_merge_scan_shares(t, visit_lower, (size_t)ranks * BINS * sizeof(int64_t), &a, &parts,
                                &shares, err));
    add_shares(parts, shares, (int64_t)ranks * BINS);
    for (int r = 0; r < ranks; r++) {
        const int64_t *bins = (int64_t *)parts + (int64_t)r * BINS;
        const uint32_t low = find_bin(bins, rank[r].rank, &rank[r].below);
        rank[r].key |= low;
        rank[r].equal = bins[low];
    }
done:
    free(parts);
    return st;
}

/* ---- equal ones ---- */

typedef struct equal_arg {
    af_merge_keys *keys;
    int sets;
} equal_arg;

static void visit_equal(const af_merge_task *t, const af_merge_block *b, void *part, void *arg)
{
    const equal_arg *a = arg;
    int64_t *count = part;
    uint32_t *keys = (uint32_t *)b->scratch;
    for (int k = 0; k < a->sets; k++) {
        const af_merge_cut *c = &t->cut[k];
        if (c->all)
            continue;
        a->keys(t, b, k, keys);
        for (int64_t i = 0; i < b->len; i++) {
            count[2 * k] += keys[i] == c->lo;
            count[2 * k + 1] += keys[i] == c->hi;
        }
    }
}

af_status af_merge_count_equal(af_merge_task *t, af_merge_keys *keys, int sets, af_error *err)
{
    equal_arg a = {keys, sets};
    void *parts;
    const int width = 2 * sets;
    const af_status st =
        af_merge_scan(t, visit_equal, (size_t)width * sizeof(int64_t), &a, &parts, err);
    if (st != AF_OK)
        return st;
    int64_t *count = parts;
    for (int k = 0; k < width; k++) {
        int64_t before = 0;
        for (int64_t i = 0; i < t->blocks; i++) {
            const int64_t here = count[i * width + k];
            count[i * width + k] = before;
            before += here;
        }
    }
    free(t->equal_before);
    t->equal_before = count;
    return AF_OK;
}
