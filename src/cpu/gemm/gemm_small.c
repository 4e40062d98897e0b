/* gemm_small.c - GEMMs of f32 blocks that are in a near cache already: nothing is packed, both
 * operands are read as they lie.
 *
 * Only where there are 32 vector registers: a value of x that is loaded by itself must meet enough
 * of y. */
#include "cpu/gemm/gemm_job.h"
#include "cpu/isa/features.h"

enum { COLS = AF_SMALL_COLS, ROWS = 24 * VL / COLS, NY = COLS / VL }; /* 24 registers of sums */

/* Rows of x [rows][K] by one panel; trans: they are columns of what is stored. */
static inline __attribute__((always_inline)) void tile(const af_gemm_small *g, int rows, bool trans,
                                                       const float *x, const float *y, float *c)
{
    const int64_t row = trans ? 1 : g->row, step = trans ? g->step : 1;
    vec s[ROWS][NY];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < NY; j++)
            s[i][j] = g->add ? *(const vec *)(c + i * g->ldc + j * VL) : (vec){0};
    for (int64_t k = 0; k < g->K; k++, x += step, y += g->ldy) {
        const float *three = x; /* three rows have one address: there are not twelve registers */
        vec v[NY];
#pragma GCC unroll 4
        for (int j = 0; j < NY; j++)
            v[j] = *(const vec *)(y + j * VL);
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            const vec a = af_pin(three[i % 3 * row] - (vec){0});
#pragma GCC unroll 4
            for (int j = 0; j < NY; j++)
                s[i][j] = af_fma(s[i][j], v[j], a);
            three += i % 3 == 2 ? 3 * row : 0;
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < NY; j++)
            *(vec *)(c + i * g->ldc + j * VL) = s[i][j];
}

static inline __attribute__((always_inline)) void panel(const af_gemm_small *g, bool trans,
                                                        const float *y, float *c)
{
    int64_t i = 0;
    for (; i + ROWS <= g->M; i += ROWS)
        tile(g, ROWS, trans, g->x + i * g->row, y, c + i * g->ldc);
    for (; i + 4 <= g->M; i += 4)
        tile(g, 4, trans, g->x + i * g->row, y, c + i * g->ldc);
    for (; i < g->M; i++)
        tile(g, 1, trans, g->x + i * g->row, y, c + i * g->ldc);
}

void AF_ISA_NAME(af_gemm_small_run)(const af_gemm_small *g)
{
    assert(g->N % COLS == 0 && (g->row == 1 || g->step == 1));
    for (int64_t j = 0; j < g->N; j += COLS) {
        const float *y = g->y + j / COLS * g->panel;
        if (g->row == 1)
            panel(g, true, y, g->c + j);
        else
            panel(g, false, y, g->c + j);
    }
}
