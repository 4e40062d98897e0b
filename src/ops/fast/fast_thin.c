/* fast_thin.c - products of one to four rows: each output column is a dot product with one stored
 * row of B, which is read once and never packed. This is what generation runs on; it is bound by
 * memory, so a weight is decoded in registers or in a row that stays in the first cache.
 *
 * A column is always one sum over the whole of K in a fixed order, whoever computes it. */
#include "ops/fast/isa.h"

typedef struct task {
    const af_gemm *g;
    float *a; /* [M][K] as f32 when A is not */
    uint8_t *work;
} task;

enum { PIECE = 1024 }; /* k's decoded at once */

uint64_t AF_ISA_NAME(af_thin_work)(int threads)
{
    return (uint64_t)threads * (AF_THIN_ROWS + 1) * PIECE * sizeof(float);
}

bool AF_ISA_NAME(af_thin_serves)(const af_gemm *g)
{
    return g->M <= AF_THIN_ROWS && g->b.trans && !g->a.trans && !g->a.weight;
}

static float lanes(vec v)
{
    float s = 0;
    for (int i = 0; i < VL; i++)
        s += v[i];
    return s;
}

static float dot(const float *restrict a, const float *restrict b, int64_t n)
{
    vec s[4] = {0};
    int64_t k = 0;
    for (; k + 4 * VL <= n; k += 4 * VL)
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++)
            s[u] += *(const vec *)(a + k + u * VL) * *(const vec *)(b + k + u * VL);
    float t = lanes((s[0] + s[1]) + (s[2] + s[3]));
    for (; k < n; k++)
        t += a[k] * b[k];
    return t;
}

static void columns(void *arg, int64_t from, int64_t to, int share)
{
    const task *t = arg;
    const af_gemm *g = t->g;
    float *buf = (float *)t->work + (int64_t)share * (AF_THIN_ROWS + 1) * PIECE, *x = buf + PIECE;
    for (int64_t n = from; n < to; n++) {
        float s[AF_THIN_ROWS] = {0};
        for (int64_t k = 0; k < g->K; k += PIECE) {
            const int64_t kc = AF_MIN((int64_t)PIECE, g->K - k);
            const float *b = AF_ISA_NAME(af_stored_row)(&g->b, n, k, kc, buf);
            for (int64_t m = 0; m < g->M; m++) {
                const float *a = AF_ISA_NAME(af_stored_row)(&g->a, m, k, kc, x + m * PIECE);
                s[m] += dot(a, b, kc);
            }
        }
        for (int64_t m = 0; m < g->M; m++)
            AF_ISA_NAME(af_gemm_store)(g, &s[m], 1, m, 1, n, 1, true);
    }
}

void AF_ISA_NAME(af_thin_run)(const af_gemm *g, af_pool *pool, void *work)
{
    task t = {.g = g, .work = work};
    af_pool_run(pool, g->N, columns, &t);
}
