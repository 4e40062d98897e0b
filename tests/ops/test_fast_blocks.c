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
    float alone[N], last[N];
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
            const int64_t at = rows[r] - 1;
            af_gemm one = g;
            one.M = 1;
            one.a.data = (const float *)x.data + at * K;
            one.c = last;
            memset(y, 0xff, 40 * N * sizeof *y);
            f->gemm(&g, NULL, work);
            f->gemm(&one, NULL, work);
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
            /* a row in a batch has the bits it has alone */
            CHECK_MSG(
                memcmp(alone, y, sizeof alone) == 0 && memcmp(last, y + at * N, sizeof last) == 0,
                "%s, %s: a row in a batch of %d", f->name, af_dtype_name(types[t]), (int)rows[r]);
            for (int64_t i = rows[r] * N; i < 40 * N; i++)
                assert_true(isnan(y[i]));
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

/* Shapes that fill no tile, rows of activations whose blocks differ by 2^40, and codes at both
 * ends: y is right to a few units of the sum of the products' sizes. */
static void odd_blocks(const af_fast *f, af_dtype type, int64_t M, int64_t N, int64_t K)
{
    const af_dtype_info *info = af_dtype_get(type);
    const size_t bytes = (size_t)(N * K / info->elems) * (size_t)info->bytes;
    float *x = calloc((size_t)(M * K), sizeof *x), *y = calloc((size_t)(M * N + 1), sizeof *y),
          *values = calloc((size_t)(N * K), sizeof *values);
    uint8_t *codes = malloc(bytes);
    void *work = malloc(f->gemm_work(1));
    const af_tensor weight = {.dim = {N, K}, .ndim = 2, .dtype = type, .data = codes};
    for (size_t i = 0; i < bytes; i++) /* codes of all kinds; scales are small and positive */
        codes[i] = (uint8_t)(i % 3 == 0 ? 0x80 : i % 5 == 0 ? 0x7f : i * 37);
    for (int64_t i = 0; i < N * K / info->elems; i++) {
        static const uint16_t scale[] = {0x3c00, 0x2001, 0x4a55, 0x0400};
        uint8_t *b = codes + i * info->bytes;
        if (type == AF_DTYPE_Q6_K || type == AF_DTYPE_Q3_K)
            memcpy(b + info->bytes - 2, &scale[i % 4], 2);
        else
            memcpy(b, &scale[i % 4], 2);
        if (type == AF_DTYPE_Q4_1 || type == AF_DTYPE_Q4_K || type == AF_DTYPE_Q5_K)
            memcpy(b + 2, &scale[(i + 1) % 4], 2);
    }
    af_codec_decode_row(type, codes, values, N * K);
    for (int64_t i = 0; i < M * K; i++)
        x[i] =
            i / 32 % 5 == 4 ? 0 : ldexpf((float)(i * 7919 % 2003 - 1001), (int)(i / 32 % 5) * 10);
    for (int64_t k = 0; k < K; k++) /* every digit at its end */
        x[k] = k % 64 < 32 ? 3.5f : -3.5f;
    memset(y, 0xff, (size_t)(M * N + 1) * sizeof *y);
    const af_gemm g = {.M = M,
                       .N = N,
                       .K = K,
                       .a = {x, K, AF_DTYPE_F32, false, NULL, NULL, NULL},
                       .b = {codes, K, type, true, decode, &weight, NULL},
                       .c = y,
                       .ldc = N,
                       .c_dtype = AF_DTYPE_F32,
                       .alpha = 1,
                       .skinny = true};
    f->gemm(&g, NULL, work);
    for (int64_t i = 0; i < M * N; i++) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < K; k++) {
            const double p = (double)x[i / N * K + k] * (double)values[i % N * K + k];
            sum += p;
            size += fabs(p);
        }
        CHECK_MSG(fabs(sum - (double)y[i]) <= 2e-6 * size, "%s, %s %d x %d x %d: %.9g is not %.9g",
                  f->name, af_dtype_name(type), (int)M, (int)N, (int)K, (double)y[i], sum);
    }
    assert_true(isnan(y[M * N]));
    if (M > 1) { /* not a number stays in its row */
        const float before = y[(M - 1) * N];
        x[K - 1] = NAN;
        f->gemm(&g, NULL, work);
        assert_true(isnan(y[0]) && isnan(y[N - 1]));
        assert_true(y[(M - 1) * N] == before);
    }
    free(x), free(y), free(values), free(codes), free(work);
}

/* Activations rounded to 8 bits, where bytes are multiplied: what rounded values give. */
static void rounded_blocks(const af_fast *f, af_dtype type)
{
    enum { M = 5, N = 6, K = 512 };
    matrix x = new_matrix(M, K, AF_DTYPE_F32, 1), w = new_matrix(N, K, AF_DTYPE_F32, 2);
    float y[M * N], alone[N], *values = calloc(N * K, sizeof *values);
    void *work = malloc(f->gemm_work(1)), *codes = calloc(N * K, 4);
    const af_tensor weight = {.dim = {N, K}, .ndim = 2, .dtype = type, .data = codes};
    double *near = calloc(M * K, sizeof *near);
    af_codec_encode_row(type, w.data, codes, N * K, NULL);
    af_codec_decode_row(type, codes, values, N * K);
    for (int64_t i = 0; i < M * K; i++) {
        double most = 0;
        for (int64_t k = i / 32 * 32; k < i / 32 * 32 + 32; k++)
            most = fmax(most, fabs(x.exact[k]));
        near[i] = f->rounds ? rint(x.exact[i] * 127 / most) * most / 127 : x.exact[i];
    }
    af_gemm g = {.M = M,
                 .N = N,
                 .K = K,
                 .a = {x.data, K, AF_DTYPE_F32, false, NULL, NULL, NULL},
                 .b = {codes, K, type, true, decode, &weight, NULL},
                 .c = y,
                 .ldc = N,
                 .c_dtype = AF_DTYPE_F32,
                 .alpha = 1,
                 .skinny = true,
                 .rounded = true};
    f->gemm(&g, NULL, work);
    for (int64_t i = 0; i < M * N; i++) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < K; k++) {
            /* offsets meet the exact sums of 32: with them the two differ by the rounding */
            const double p = near[i / N * K + k] * (double)values[i % N * K + k];
            sum += p;
            size += fabs(p);
        }
        CHECK_MSG(fabs(sum - (double)y[i]) <= (type == AF_DTYPE_Q4_K ? 3e-3 : 2e-6) * size,
                  "%s, %s: %.9g is not %.9g", f->name, af_dtype_name(type), (double)y[i], sum);
    }
    g.M = 1;
    g.c = alone;
    f->gemm(&g, NULL, work);
    assert_memory_equal(alone, y, sizeof alone);
    free(work), free(codes), free(values), free(near);
    free_matrix(&x);
    free_matrix(&w);
}

static void test_rounded_blocks(void **state)
{
    (void)state;
    for (int i = 0; af_fast_at(i); i++) {
        rounded_blocks(af_fast_at(i), AF_DTYPE_Q8_0);
        rounded_blocks(af_fast_at(i), AF_DTYPE_Q4_K);
        rounded_blocks(af_fast_at(i), AF_DTYPE_Q6_K);
    }
}

static void test_odd_blocks(void **state)
{
    (void)state;
    static const af_dtype types[] = {AF_DTYPE_Q8_0, AF_DTYPE_Q4_0, AF_DTYPE_Q4_1, AF_DTYPE_Q4_K,
                                     AF_DTYPE_Q5_K, AF_DTYPE_Q6_K, AF_DTYPE_Q3_K};
    static const int64_t shape[][3] = {{1, 1, 1}, {3, 2, 3}, {2, 7, 9}, {11, 5, 2}, {67, 4, 1}};
    for (int i = 0; af_fast_at(i); i++)
        for (size_t t = 0; t < AF_LEN(types); t++)
            for (size_t s = 0; s < AF_LEN(shape); s++)
                odd_blocks(af_fast_at(i), types[t], shape[s][0], shape[s][1],
                           shape[s][2] * (int64_t)af_dtype_get(types[t])->elems);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_block_weights),
                                       cmocka_unit_test(test_odd_blocks),
                                       cmocka_unit_test(test_rounded_blocks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
