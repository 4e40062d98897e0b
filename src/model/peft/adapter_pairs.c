/* adapter_pairs.c - LoHa and LoKr: types of PEFT whose change of a weight is made of two matrices,
 * each stored whole or as a product of low rank.
 *
 *   LOHA  W1 * W2 element by element: as LoRA of rank r^2
 *   LOKR  the Kronecker product of W1 and W2: as LoRA of the product of their ranks
 *
 * The same change as A and B takes as many times the memory as the other matrix has ranks, so they
 * stay as stored where weights are changed row by row, and become LoRA where A and B are needed.
 *
 * A value is the sum over the rank in its order, each step rounded to f32, whatever rows are asked
 * for at a time. Columns of a right factor lie in panels of 32, which are eight vectors of sums. */
#include "base/proc.h"
#include "model/adapter_config.h"

#include <unistd.h>

enum { COLS = 32, LANES = 4 };

typedef float quad __attribute__((vector_size(LANES * sizeof(float)), may_alias));

/* A matrix [rows][cols] as left [rows][rank] times right [rank][cols]: panels [rank][COLS], of
 * which the last may be narrower. Without `left`, `right` is the matrix, its rows in order, and the
 * rank is that of LoRA. */
typedef struct pair_factor {
    float *left, *right;
    int64_t rows, cols, rank;
} pair_factor;

struct af_adapter_pair {
    pair_factor one, two;
    bool each; /* element by element */
};

/* ---- read ---- */

static af_status read_part(af_adapter *a, float **to, const af_weights *w, const char *path,
                           const char *part, int64_t rows, int64_t cols, int *used, af_error *err)
{
    char name[AF_ADAPTER_NAME_BYTES];
    snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s%s", path, part);
    return af_adapter_read_tensor(a, to, w, name, rows, cols, used, err);
}

static const af_stored *find_part(const af_adapter *a, const af_weights *w, const char *path,
                                  const char *part)
{
    char name[AF_ADAPTER_NAME_BYTES];
    snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s%s", path, part);
    return af_adapter_find(a, w, name);
}

static float *panel_at(const pair_factor *f, int64_t p) { return f->right + p * COLS * f->rank; }

/* Reads the right factor into panels. */
static af_status read_right(af_adapter *a, pair_factor *f, const af_weights *w, const char *path,
                            const char *part, int *used, af_error *err)
{
    af_status st = AF_OK;
    af_adapter plain = {.config = a->config, .spec = a->spec}; /* owns the rows, for now */
    float *rows = NULL;
    AF_TRY(read_part(&plain, &rows, w, path, part, f->rank, f->cols, used, err));
    AF_TRY(af_adapter_alloc(a, &f->right, f->rank * f->cols, err));
    for (int64_t at = 0; at < f->cols; at += COLS) {
        const int64_t n = AF_MIN(f->cols - at, (int64_t)COLS);
        for (int64_t k = 0; k < f->rank; k++)
            memcpy(panel_at(f, at / COLS) + k * n, rows + k * f->cols + at,
                   (size_t)n * sizeof *rows);
    }
done:
    af_arena_clear(&plain.arena);
    return st;
}

/* From PART, or from PART_a and PART_b. */
static af_status read_factor(af_adapter *a, pair_factor *f, int module, const af_weights *w,
                             const char *part, int *used, af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = &a->spec->module[module];
    const int rank = a->module[module].rank;
    char left[32], right[32];
    snprintf(left, sizeof left, "%s_a", part);
    snprintf(right, sizeof right, "%s_b", part);
    const af_stored *whole = find_part(a, w, m->path, part), *x = find_part(a, w, m->path, left),
                    *y = find_part(a, w, m->path, right);
    if (whole && whole->ndim > 0) {
        f->rows = whole->dim[0];
        f->cols = whole->ndim > 1 ? whole->dim[1] : 1;
        f->rank = AF_MIN(f->rows, f->cols);
        return read_part(a, &f->right, w, m->path, part, f->rows, f->cols, used, err);
    }
    f->rows = x && x->ndim == 2 ? x->dim[0] : m->out;
    f->rank = x && x->ndim == 2 ? x->dim[1] : rank;
    f->cols = y && y->ndim == 2 ? y->dim[1] : m->in;
    if (f->rank != rank)
        return af_fail(err, AF_EFORMAT,
                       "the adapter of '%s' has rank %" PRId64 ", its config says %d", m->path,
                       f->rank, rank);
    AF_TRY(read_part(a, &f->left, w, m->path, left, f->rows, f->rank, used, err));
    AF_TRY(read_right(a, f, w, m->path, right, used, err));
done:
    return st;
}

/* Whether n values are `part` times some. */
static bool divides(int64_t n, int64_t part, int64_t times)
{
    return part > 0 && n % part == 0 && n / part == times;
}

static bool pair_fits(const af_adapter_pair *p, const af_module_spec *m)
{
    const pair_factor *x = &p->one, *y = &p->two;
    if (p->each)
        return x->rows == m->out && y->rows == m->out && x->cols == m->in && y->cols == m->in;
    return divides(m->out, x->rows, y->rows) && divides(m->in, x->cols, y->cols);
}

af_status af_adapter_pair_read(af_adapter *a, int module, const af_weights *w, int *used,
                               af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = &a->spec->module[module];
    af_adapter_module *am = &a->module[module];
    af_adapter_pair *p = af_arena_take(&a->arena, sizeof *p);
    if (!p)
        return af_fail_nomem(err, "an adapter", sizeof *p);
    p->each = a->config.type == AF_PEFT_LOHA;
    AF_TRY(read_factor(a, &p->one, module, w, p->each ? ".hada_w1" : ".lokr_w1", used, err));
    AF_TRY(read_factor(a, &p->two, module, w, p->each ? ".hada_w2" : ".lokr_w2", used, err));
    if (!pair_fits(p, m))
        AF_TRY(af_fail(err, AF_EFORMAT,
                       "the adapter of '%s' has matrices of %" PRId64 " x %" PRId64 " and %" PRId64
                       " x %" PRId64 ", which do not fit %" PRId64 " x %" PRId64,
                       m->path, p->one.rows, p->one.cols, p->two.rows, p->two.cols, m->out, m->in));
    am->scale = (float)(am->alpha / am->rank);
    am->pair = p;
done:
    return st;
}

/* ---- rows ---- */

/* Columns of panel `p`, at most COLS, of a row. */
static void make_panel(const pair_factor *f, int64_t row, int64_t p, float *out)
{
    const int64_t n = AF_MIN(f->cols - p * COLS, (int64_t)COLS);
    if (!f->left) {
        memcpy(out, f->right + row * f->cols + p * COLS, (size_t)n * sizeof *out);
        return;
    }
    const float *left = f->left + row * f->rank, *right = panel_at(f, p);
    if (n < COLS) {
        memset(out, 0, (size_t)n * sizeof *out);
        for (int64_t k = 0; k < f->rank; k++)
            for (int64_t c = 0; c < n; c++)
                out[c] += left[k] * right[k * n + c];
        return;
    }
    quad sum[COLS / LANES] = {{0}};
    for (int64_t k = 0; k < f->rank; k++) {
        const quad *from = (const quad *)(right + k * COLS);
        const quad by = {left[k], left[k], left[k], left[k]};
#pragma GCC unroll 8
        for (int i = 0; i < COLS / LANES; i++)
            sum[i] += by * from[i];
    }
    memcpy(out, sum, sizeof sum);
}

static void add_each(const af_adapter_module *m, float *rows, int64_t from, int64_t n, int64_t cols)
{
    const af_adapter_pair *p = m->pair;
    float x[COLS], y[COLS];
    for (int64_t at = 0; at < cols; at += COLS) /* a panel stays in the cache for all rows */
        for (int64_t r = 0; r < n; r++) {
            float *row = rows + r * cols + at;
            make_panel(&p->one, from + r, at / COLS, x);
            make_panel(&p->two, from + r, at / COLS, y);
            for (int64_t c = 0; c < AF_MIN(cols - at, (int64_t)COLS); c++)
                row[c] += x[c] * y[c] * m->scale;
        }
}

/* Adds a panel of a row of W1 times one of W2 [count]. */
static void add_product(float *row, const float *x, int64_t blocks, int64_t width, const float *y,
                        int64_t count, float scale)
{
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t c = 0; c < count; c++)
            row[b * width + c] += x[b] * y[c] * scale;
}

static void add_kronecker(const af_adapter_module *m, float *rows, int64_t from, int64_t n,
                          int64_t cols)
{
    const pair_factor *one = &m->pair->one, *two = &m->pair->two;
    float x[COLS], y[COLS];
    for (int64_t b = 0; b < one->cols; b += COLS)
        for (int64_t c = 0; c < two->cols; c += COLS)
            for (int64_t r = 0; r < n; r++) {
                make_panel(one, (from + r) / two->rows, b / COLS, x);
                make_panel(two, (from + r) % two->rows, c / COLS, y);
                add_product(rows + r * cols + b * two->cols + c, x,
                            AF_MIN(one->cols - b, (int64_t)COLS), two->cols, y,
                            AF_MIN(two->cols - c, (int64_t)COLS), m->scale);
            }
}

void af_adapter_pair_add(const af_adapter_module *m, float *rows, int64_t from, int64_t n,
                         int64_t cols)
{
    (m->pair->each ? add_each : add_kronecker)(m, rows, from, n, cols);
}

/* ---- as LoRA ---- */

/* A matrix that is whole is itself times the identity, which is on its shorter side. */
static float left_at(const pair_factor *f, int64_t row, int64_t k)
{
    if (f->left)
        return f->left[row * f->rank + k];
    return f->cols <= f->rows ? f->right[row * f->cols + k] : (float)(row == k);
}

static float right_at(const pair_factor *f, int64_t k, int64_t c)
{
    if (!f->left)
        return f->cols <= f->rows ? (float)(k == c) : f->right[k * f->cols + c];
    const int64_t p = c / COLS, n = AF_MIN(f->cols - p * COLS, (int64_t)COLS);
    return panel_at(f, p)[k * n + c % COLS];
}

/* A row of B is the outer product of two left rows, a column of A that of two right columns. */
static af_status expand_module(af_adapter *a, int module, af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = &a->spec->module[module];
    af_adapter_module *am = &a->module[module];
    const pair_factor *x = &am->pair->one, *y = &am->pair->two;
    const bool each = am->pair->each;
    const int64_t R = x->rank * y->rank, rows = each ? 1 : y->rows, cols = each ? 1 : y->cols;
    AF_TRY(af_adapter_alloc(a, &am->a, R * m->in, err));
    AF_TRY(af_adapter_alloc(a, &am->b, m->out * R, err));
    for (int64_t o = 0; o < m->out; o++)
        for (int64_t k = 0; k < R; k++)
            am->b[o * R + k] =
                left_at(x, o / rows, k / y->rank) * left_at(y, each ? o : o % rows, k % y->rank);
    for (int64_t k = 0; k < R; k++)
        for (int64_t i = 0; i < m->in; i++)
            am->a[k * m->in + i] =
                right_at(x, k / y->rank, i / cols) * right_at(y, k % y->rank, each ? i : i % cols);
    am->alpha = am->alpha / am->rank * (double)R;
    am->rank = (int)R;
    am->pair = NULL;
done:
    return st;
}

/* What the system can give without swapping. */
static uint64_t free_memory(void)
{
    char text[4096];
    af_proc_read(text, sizeof text, "/proc/meminfo");
    const uint64_t kib = af_proc_number(text, "MemAvailable:");
    const long pages = kib ? 0 : sysconf(_SC_AVPHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return kib ? kib * 1024 : pages > 0 ? (uint64_t)pages * (uint64_t)size : UINT64_MAX;
}

/* Ranks, and all bytes of A and B. */
static af_status check_size(const af_adapter *a, const char *dir, uint64_t most, af_error *err)
{
    const char *type = af_peft_forms[a->config.type].name;
    uint64_t all = 0;
    for (int i = 0; i < a->spec->modules; i++) {
        const af_module_spec *m = &a->spec->module[i];
        const af_adapter_pair *p = a->module[i].pair;
        uint64_t rank, bytes;
        if (!p)
            continue;
        if (!af_mul_ok((uint64_t)p->one.rank, (uint64_t)p->two.rank, &rank) ||
            rank > AF_ADAPTER_RANK_MAX)
            return af_fail(err, AF_EUNSUPPORTED,
                           "'%s' is an adapter of type %s, which as LoRA has ranks above %d, that "
                           "of '%s': merge it into its base first (afinar merge)",
                           dir, type, AF_ADAPTER_RANK_MAX, m->path);
        if (!af_mul_ok(rank * sizeof(float), (uint64_t)m->out + (uint64_t)m->in, &bytes) ||
            !af_add_ok(all, bytes, &all))
            all = UINT64_MAX;
    }
    if (all <= most)
        return AF_OK;
    return af_fail(err, AF_ENOMEM,
                   "'%s' is an adapter of type %s, which as LoRA takes %.4g MiB, and %.4g MiB are "
                   "free: merge it into its base first (afinar merge)",
                   dir, type, (double)all / 0x1p20, (double)most / 0x1p20);
}

af_status af_adapter_expand(af_adapter *a, const char *dir, uint64_t most, af_error *err)
{
    af_status st = AF_OK;
    if (!af_peft_forms[a->config.type].pairs)
        return AF_OK;
    AF_TRY(check_size(a, dir, most ? most : free_memory(), err));
    for (int i = 0; i < a->spec->modules; i++)
        if (a->module[i].pair)
            AF_TRY(expand_module(a, i, err));
    AF_TRY(af_adapter_describe(a, err));
done:
    return st;
}
