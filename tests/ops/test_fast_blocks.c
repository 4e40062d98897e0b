/* test_fast_blocks.c - GEMMs with weights of block types, on every instruction set that this
 * machine has. */
#include "matrix.h"

#include "cpu/cpu_kernels.h"

#include "backend/cpu/cpu.h"

#include <math.h>

static void decode(const void *weight, int64_t from, int64_t n, float *out)
{
    af_ld_row_f32(weight, from, n, out);
}

/* Weights of block types: a few rows (decoded in registers) and many (decoded while packing) give
 * what the decoded values give. */
static void block_weights(const af_fast *f)
{
    static const af_dtype types[] = {AF_DTYPE_Q8_0, AF_DTYPE_Q4_0,   AF_DTYPE_Q4_1,
                                     AF_DTYPE_Q5_0, AF_DTYPE_Q5_1,   AF_DTYPE_Q2_K,
                                     AF_DTYPE_Q3_K, AF_DTYPE_Q4_K,   AF_DTYPE_Q5_K,
                                     AF_DTYPE_Q6_K, AF_DTYPE_IQ4_NL, AF_DTYPE_IQ4_XS};
    static const int64_t rows[] = {1, 2, 3, 8, 9, 40};
    enum { N = 37, K = 512 };
    float alone[N];
    matrix x = new_matrix(40, K, AF_DTYPE_F32, 1), w = new_matrix(N, K, AF_DTYPE_F32, 2);
    void *work = malloc(f->gemm_work(1)), *codes = calloc(N * K, 4);
    float *y = calloc(40 * N, sizeof *y), *values = calloc(N * K, sizeof *values);
    for (size_t t = 0; t < AF_LEN(types); t++)
        for (size_t r = 0; r < AF_LEN(rows); r++) {
            const af_tensor weight = {.dim = {N, K}, .ndim = 2, .dtype = types[t], .data = codes};
            af_codec_encode_row(types[t], w.data, codes, N * K, NULL);
            af_codec_decode_row(types[t], codes, values, N * K);
            const af_gemm g = {.M = rows[r],
                               .N = N,
                               .K = K,
                               .a = {x.data, K, AF_DTYPE_F32, false, NULL, NULL, NULL},
                               .b = {codes, K, types[t], true, decode, &weight, NULL},
                               .c = y,
                               .ldc = N,
                               .c_dtype = AF_DTYPE_F32,
                               .alpha = 1,
                               .skinny = true};
            double err2 = 0, ref2 = 0;
            f->gemm(&g, NULL, work);
            for (int64_t m = 0; m < rows[r]; m++)
                for (int64_t n = 0; n < N; n++) {
                    double sum = 0;
                    for (int64_t k = 0; k < K; k++)
                        sum += x.exact[m * K + k] * (double)values[n * K + k];
                    err2 += (sum - (double)y[m * N + n]) * (sum - (double)y[m * N + n]);
                    ref2 += sum * sum;
                }
            if (rows[r] == 1)
                memcpy(alone, y, sizeof alone);
            if (rows[r] <= 8) /* generation side by side is generation alone */
                CHECK_MSG(memcmp(alone, y, sizeof alone) == 0, "%s: a row beside %d others",
                          af_dtype_name(types[t]), (int)rows[r] - 1);
            CHECK_MSG(sqrt(err2) <= 3e-6 * sqrt(ref2), "%s, %d rows: %.3g of %.3g",
                      af_dtype_name(types[t]), (int)rows[r], sqrt(err2), sqrt(ref2));
        }
    free(work);
    free(codes);
    free(y);
    free(values);
    free_matrix(&x);
    free_matrix(&w);
}

/* The same across their rows (dX), where a strip of columns is not a whole number of blocks. */
static void block_weights_across(const af_fast *f)
{
    static const af_dtype types[] = {AF_DTYPE_Q8_0, AF_DTYPE_Q6_K};
    enum { M = 40, N = 1024, K = 300 };
    matrix x = new_matrix(M, K, AF_DTYPE_F32, 1), w = new_matrix(K, N, AF_DTYPE_F32, 2);
    void *work = malloc(f->gemm_work(1)), *codes = calloc(N * K, 4);
    float *y = calloc(M * N, sizeof *y), *values = calloc(N * K, sizeof *values);
    for (size_t t = 0; t < AF_LEN(types); t++) {
        const af_tensor weight = {.dim = {K, N}, .ndim = 2, .dtype = types[t], .data = codes};
        af_codec_encode_row(types[t], w.data, codes, N * K, NULL);
        af_codec_decode_row(types[t], codes, values, N * K);
        const af_gemm g = {.M = M,
                           .N = N,
                           .K = K,
                           .a = {x.data, K, AF_DTYPE_F32, false, NULL, NULL, NULL},
                           .b = {codes, N, types[t], false, decode, &weight, NULL},
                           .c = y,
                           .ldc = N,
                           .c_dtype = AF_DTYPE_F32,
                           .alpha = 1};
        double err2 = 0, ref2 = 0;
        f->gemm(&g, NULL, work);
        for (int64_t m = 0; m < M; m++)
            for (int64_t n = 0; n < N; n++) {
                double sum = 0;
                for (int64_t k = 0; k < K; k++)
                    sum += x.exact[m * K + k] * (double)values[k * N + n];
                err2 += (sum - (double)y[m * N + n]) * (sum - (double)y[m * N + n]);
                ref2 += sum * sum;
            }
        CHECK_MSG(sqrt(err2) <= 3e-6 * sqrt(ref2), "%s, %s: %.3g of %.3g", f->name,
                  af_dtype_name(types[t]), sqrt(err2), sqrt(ref2));
    }
    free(work), free(codes), free(y), free(values);
    free_matrix(&x);
    free_matrix(&w);
}

static void test_block_weights(void **state)
{
    (void)state;
    for (int i = 0; af_fast_at(i); i++)
        block_weights(af_fast_at(i));
    for (int i = 0; af_fast_at(i); i++)
        block_weights_across(af_fast_at(i));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_block_weights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
