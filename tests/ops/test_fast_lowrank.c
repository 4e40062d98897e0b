/* test_fast_lowrank.c - low-rank GEMMs against sums in double: odd sizes, ranks from 1 to 64, rows
 * apart, outputs and workspaces full of NaN, block by block bit for bit what all blocks at once
 * give, and nothing written next to the result; on every instruction set that this machine has, the
 * tiles of AMX included.
 *
 * Tolerance (relative L2): partial sums of at most 256 terms in f32, under 2e-6; a bf16 result is
 * rounded once more: at most 2^-8 of it. The tiles round an f32 factor to 2^-16. */
#include "fast_tables.h"
#include "test.h"

#include "base/rng.h"
#include "tensor/half.h"

#include <math.h>

/* Guard columns after each row of the result; padding between two rows of x. */
enum { GUARD = 5, PADDING = 8 };

typedef struct lowrank_case {
    const char *isa;
    const af_lowrank_kernels *kernels;
    bool half, trans, add;
    int64_t rows, cols, n, ldx;
    double *x, *few; /* [rows][ldx]; B [cols][n] or g [rows][n] */
    void *room;
} lowrank_case;

static double *numbers(int64_t n, uint64_t stream, bool half)
{
    double *v = calloc((size_t)n + 1, sizeof *v);
    for (int64_t i = 0; i < n; i++) {
        const float f = (float)af_rng_normal(5, stream, (uint64_t)i) + 0.05f;
        v[i] = half ? af_bf16_up(af_bf16_from_f32(f)) : f;
    }
    return v;
}

/* As the kernels see them. */
static void *stored(const double *v, int64_t n, bool half)
{
    void *to = calloc((size_t)n + 1, sizeof(float));
    for (int64_t i = 0; i < n; i++)
        if (half)
            ((uint16_t *)to)[i] = af_bf16_from_f32((float)v[i]);
        else
            ((float *)to)[i] = (float)v[i];
    return to;
}

static double loaded(const void *p, int64_t i, bool half)
{
    return half ? (double)af_bf16_up(((const uint16_t *)p)[i]) : (double)((const float *)p)[i];
}

static void check(const lowrank_case *p, const char *what, double err2, double ref2, double limit)
{
    CHECK_MSG(isfinite(err2) && sqrt(err2) <= limit * sqrt(ref2) + 1e-12,
              "%s, %s%s of %d x %d with %d: %.3g of %.3g", p->isa, what, p->half ? " bf16" : "",
              (int)p->rows, (int)p->cols, (int)p->n, sqrt(err2), sqrt(ref2));
}

static bool is_nan_byte(const void *p, size_t at) { return ((const uint8_t *)p)[at] == 0xff; }

/* ---- y = alpha x B ---- */

static void compare_rows(const lowrank_case *p, const void *y, double alpha, size_t size)
{
    const int64_t ldy = p->n + GUARD;
    double err2 = 0, ref2 = 0;
    for (int64_t r = 0; r < p->rows; r++) {
        for (int64_t c = 0; c < p->n; c++) {
            double sum = 0;
            for (int64_t k = 0; k < p->cols; k++)
                sum += p->x[r * p->ldx + k] * p->few[k * p->n + c];
            const double d = loaded(y, r * ldy + c, p->half) - alpha * sum;
            err2 += d * d;
            ref2 += alpha * alpha * sum * sum;
        }
        for (size_t i = 0; i < GUARD * size; i++)
            CHECK_MSG(is_nan_byte(y, (size_t)(r * ldy + p->n) * size + i), "%s: wrote past the row",
                      p->isa);
    }
    check(p, "rows", err2, ref2, p->half ? 4e-3 : 2e-6);
}

static void run_rows(const lowrank_case *p, const void *x)
{
    const int64_t ldy = p->n + GUARD, blocks = (p->rows + p->kernels->rows - 1) / p->kernels->rows;
    const size_t size = p->half ? 2 : 4, bytes = (size_t)(p->rows * ldy) * size;
    float *b = calloc((size_t)(p->n * p->cols) + 1, sizeof *b);
    void *y[2] = {malloc(bytes), malloc(bytes)},
         *edge = calloc(p->kernels->rows_bytes ? p->kernels->rows_bytes(p->cols) : 1, 1);
    for (int64_t i = 0; i < p->n * p->cols; i++)
        b[p->trans ? i % p->n * p->cols + i / p->n : i] = (float)p->few[i];
    memset(p->room, 0xff, p->kernels->pack_bytes(p->n, p->cols));
    af_lowrank s = {.x = x, .rows = p->rows, .cols = p->cols, .ldx = p->ldx, .rank = p->n};
    s.bf16 = p->half;
    s.alpha = 0.75f;
    s.ldy = ldy;
    p->kernels->pack(&s, p->room, b, p->trans ? p->cols : p->n, p->trans);
    for (int i = 0; i < 2; i++) {
        memset(y[i], 0xff, bytes);
        s.y = y[i];
        for (int64_t at = 0; at < blocks; at += i ? 1 : blocks)
            p->kernels->run_rows(&s, at, i ? at + 1 : blocks, edge);
    }
    assert_memory_equal(y[0], y[1], bytes);
    compare_rows(p, y[0], s.alpha, size);
    free(b);
    free(y[0]);
    free(y[1]);
    free(edge);
}

/* ---- c = or += g^T x ---- */

static void compare_sums(const lowrank_case *p, const float *c, int64_t ldc, double before)
{
    double err2 = 0, ref2 = 0;
    for (int64_t n = 0; n < p->n; n++)
        for (int64_t k = 0; k < p->cols; k++) {
            double sum = p->add ? before : 0;
            for (int64_t r = 0; r < p->rows; r++)
                sum += p->few[r * p->n + n] * p->x[r * p->ldx + k];
            const double d = c[p->trans ? k * ldc + n : n * ldc + k] - sum;
            err2 += d * d;
            ref2 += sum * sum;
        }
    check(p, "sums", err2, ref2, 2e-6);
    const int64_t lines = p->trans ? p->cols : p->n, wide = p->trans ? p->n : p->cols;
    for (int64_t i = 0; i < lines * GUARD; i++)
        CHECK_MSG(c[i / GUARD * ldc + wide + i % GUARD] == 3.0f, "%s: wrote past the row", p->isa);
}

static void run_sums(const lowrank_case *p, const void *x)
{
    const int64_t blocks = (p->cols + p->kernels->cols - 1) / p->kernels->cols,
                  lines = p->trans ? p->cols : p->n, wide = p->trans ? p->n : p->cols,
                  ldc = wide + GUARD;
    float *c[2] = {calloc((size_t)(lines * ldc), 4), calloc((size_t)(lines * ldc), 4)};
    void *g = stored(p->few, p->rows * p->n, p->half);
    memset(p->room, 0xff, p->kernels->transpose_bytes(p->n, p->rows));
    af_lowrank s = {.x = x, .rows = p->rows, .cols = p->cols, .ldx = p->ldx, .rank = p->n};
    s.bf16 = p->half;
    s.trans = p->trans;
    s.add = p->add;
    s.ldc = ldc;
    p->kernels->transpose(&s, p->room, g, p->n);
    for (int i = 0; i < 2; i++) {
        for (int64_t k = 0; k < lines * ldc; k++)
            c[i][k] = k % ldc >= wide ? 3.0f : p->add ? 0.5f : NAN;
        s.c = c[i];
        for (int64_t at = 0; at < blocks; at += i ? 1 : blocks)
            p->kernels->run_sums(&s, at, i ? at + 1 : blocks);
    }
    assert_memory_equal(c[0], c[1], (size_t)(lines * ldc) * sizeof **c);
    compare_sums(p, c[0], ldc, 0.5);
    free(c[0]);
    free(c[1]);
    free(g);
}

static const int64_t ranks[] = {1, 3, 8, 16, 17, 32, 48, 64};
static const int64_t sizes[][2] = {{1, 1},   {5, 6},    {20, 48},  {21, 49},
                                   {64, 96}, {67, 160}, {130, 47}, {33, 1056}};

static void run_size(lowrank_case p, const int64_t size[2], bool sums)
{
    p.rows = size[0];
    p.cols = size[1];
    p.ldx = p.cols % p.kernels->even
                ? p.cols
                : p.cols + (p.kernels->even > 1 ? p.kernels->even : PADDING - 1);
    for (size_t i = 0; i < AF_LEN(ranks); i++) {
        p.n = ranks[i];
        if (p.n % p.kernels->unit || p.n > p.kernels->rank_max || p.cols % p.kernels->even)
            continue;
        p.x = numbers(p.rows * p.ldx, 1, p.half);
        p.few = numbers((sums ? p.rows : p.cols) * p.n, 2, sums && p.half);
        p.room = aligned_alloc(64, AF_ALIGN_UP((sums ? p.kernels->transpose_bytes(p.n, p.rows)
                                                     : p.kernels->pack_bytes(p.n, p.cols)) +
                                                   1,
                                               UINT64_C(64)));
        void *x = stored(p.x, p.rows * p.ldx, p.half);
        for (int v = 0; v < 4; v++) {
            p.trans = v & 1;
            p.add = v & 2;
            if (sums)
                run_sums(&p, x);
            else if (!p.add)
                run_rows(&p, x);
        }
        free(p.x);
        free(p.few);
        free(p.room);
        free(x);
    }
}

static void run_all(bool sums)
{
    const af_fast *f;
    for (int i = 0; (f = own_table(i)); i++)
        for (int half = 0; half < 2; half++) {
            const lowrank_case p = {
                .isa = f->name, .kernels = half ? f->lowrank_bf16 : f->lowrank, .half = half};
            for (size_t s = 0; p.kernels && s < AF_LEN(sizes); s++)
                if (test_takes(s + (size_t)i + (size_t)half))
                    run_size(p, sizes[s], sums);
        }
}

static void test_rows_with_a_few_columns(void **state) { (void)state, run_all(false); }
static void test_sums_over_rows(void **state) { (void)state, run_all(true); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_with_a_few_columns),
        cmocka_unit_test(test_sums_over_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
