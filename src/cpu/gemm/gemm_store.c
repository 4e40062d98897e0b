/* gemm_store.c - sums of a GEMM become elements of C. */
#include "cpu/gemm/gemm_job.h"

static float bias_at(const af_gemm *g, int64_t n)
{
    return g->bias_dtype == AF_DTYPE_F32 ? ((const float *)g->bias)[n]
                                         : (float)af_load_f64(g->bias, g->bias_dtype, (uint64_t)n);
}

static void store_row(float alpha, const float *restrict s, float *restrict d, int64_t n, bool add)
{
    if (add)
        for (int64_t j = 0; j < n; j++)
            d[j] += s[j] * alpha;
    else if (alpha == 1.0f)
        memcpy(d, s, (size_t)n * sizeof *d);
    else
        for (int64_t j = 0; j < n; j++)
            d[j] = s[j] * alpha;
}

static void store_row_bf16(const af_gemm *g, const float *restrict s, uint16_t *restrict d,
                           int64_t n0, int64_t n)
{
    float t[AF_PACK_LINES];
    if (g->alpha == 1.0f && !g->add && !g->bias) {
        AF_ISA_NAME(af_bf16_down)(d, s, n);
        return;
    }
    for (int64_t j = 0; j < n; j++)
        t[j] = s[j] * g->alpha;
    if (g->add)
        for (int64_t j = 0; j < n; j++)
            t[j] += af_bf16_up(d[j]);
    for (int64_t j = 0; g->bias && j < n; j++)
        t[j] += bias_at(g, n0 + j);
    AF_ISA_NAME(af_bf16_down)(d, t, n);
}

void AF_ISA_NAME(af_gemm_store)(const af_gemm *g, const float *s, int64_t lds, int64_t m,
                                int64_t rows, int64_t n, int64_t cols, bool first)
{
    for (int64_t i = 0; i < rows; i++) {
        const int64_t at = (m + i) * g->ldc + n;
        if (g->c_dtype != AF_DTYPE_F32) {
            store_row_bf16(g, s + i * lds, (uint16_t *)g->c + at, n, cols);
            continue;
        }
        float *d = (float *)g->c + at;
        store_row(g->alpha, s + i * lds, d, cols, g->add || !first);
        for (int64_t j = 0; g->bias && first && j < cols; j++)
            d[j] += bias_at(g, n + j);
    }
}
