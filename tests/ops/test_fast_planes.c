/* test_fast_planes.c - GGUF blocks times planes of bytes, on every instruction set of this machine
 * that multiplies them: the bits of a reference that takes one number after the other. */
#include "matrix.h"

#include "cpu/cpu_kernels.h"

#include "backend/cpu/cpu.h"
#include "tensor/codec_block.h"

#include <math.h>

/* 32 codes of a row, their scales (one for each 16) and their offset. */
typedef struct group {
    int code[32];
    float scale[2], offset;
    bool by_16, has_offset;
} group;

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return af_f16_up(h);
}

static group group_of(af_dtype type, const uint8_t *row, int64_t k)
{
    const int large = af_dtype_get(type)->elems == 256;
    const uint8_t *b = row + (large ? k / 8 : k) * af_dtype_get(type)->bytes;
    const int j = large ? (int)(k % 8) : 0;
    group g = {.by_16 = type == AF_DTYPE_Q6_K, .has_offset = type == AF_DTYPE_Q4_K};
    int s = 0, o = 0;
    for (int i = 0; i < 32; i++)
        if (type == AF_DTYPE_Q8_0)
            g.code[i] = (int8_t)b[2 + i];
        else if (type == AF_DTYPE_Q4_K)
            g.code[i] = b[16 + 32 * (j / 2) + i] >> (4 * (j % 2)) & 15;
        else
            g.code[i] = ((b[64 * (j / 4) + 32 * (j % 2) + i] >> (4 * (j % 4 / 2)) & 15) |
                         (b[128 + 32 * (j / 4) + i] >> (2 * (j % 4)) & 3) << 4) -
                        32;
    if (type == AF_DTYPE_Q8_0) {
        g.scale[0] = half_at(b);
    } else if (type == AF_DTYPE_Q4_K) {
        af_scale_min(b + 4, j, &s, &o);
        g.scale[0] = half_at(b) * (float)s;
        g.offset = -half_at(b + 2) * (float)o;
    } else {
        g.scale[0] = half_at(b + 208) * (float)(int8_t)b[192 + 2 * j];
        g.scale[1] = half_at(b + 208) * (float)(int8_t)b[193 + 2 * j];
    }
    return g;
}

/* The sum of products of `n` codes with integers, of which each digit is summed by itself. */
static float products(const int *code, const int32_t *v, int n, int planes)
{
    int64_t s[3] = {0};
    for (int i = 0; i < n; i++) {
        int32_t left = v[i];
        for (int d = 0; d < planes; d++) {
            const int8_t digit = (int8_t)(uint8_t)((uint32_t)left & 255);
            s[d] += code[i] * digit;
            left = (left - digit) / 256;
        }
        assert_int_equal(left, 0);
    }
    const float y = (float)s[0];
    return planes == 1 ? y : fmaf((float)s[2], 65536, fmaf((float)s[1], 256, y));
}

static float reference(af_dtype type, const uint8_t *row, const float *x, int64_t K, bool rounded)
{
    const float top = rounded ? 127 : 8355000;
    const int planes = rounded ? 1 : 3;
    float total = 0;
    for (int64_t k = 0; k < K / 32; k++, x += 32) {
        const group g = group_of(type, row, k);
        float most = 0, sum = 0;
        int32_t v[32];
        for (int i = 0; i < 32; i++) {
            most = fmaxf(most, fabsf(x[i]));
            sum += x[i];
        }
        for (int i = 0; i < 32; i++)
            v[i] = (int32_t)rintf(x[i] * (top / most));
        float y = products(g.code, v, g.by_16 ? 16 : 32, planes) * g.scale[0];
        if (g.by_16)
            y = fmaf(products(g.code + 16, v + 16, 16, planes), g.scale[1], y);
        total = fmaf(y, most / top, total);
        if (g.has_offset)
            total = fmaf(g.offset, sum, total);
    }
    return total;
}

static void decode(const void *weight, int64_t from, int64_t n, float *out)
{
    af_ld_row_f32(weight, from, n, out);
}

/* Random bits as codes, with scales of ordinary size. */
static void fill(af_dtype type, uint8_t *codes, int64_t blocks)
{
    const int64_t bytes = af_dtype_get(type)->bytes;
    uint32_t seed = 1;
    for (int64_t i = 0; i < blocks * bytes; i++) {
        seed = seed * 1664525 + 1013904223;
        codes[i] = (uint8_t)(seed >> 24);
    }
    for (int64_t i = 0; i < blocks; i++)
        for (int h = 0; h < (type == AF_DTYPE_Q4_K ? 4 : 2); h += 2) {
            const uint16_t scale = (uint16_t)(0x2c00 + i * 37 % 0x800 + h);
            memcpy(codes + i * bytes + (type == AF_DTYPE_Q6_K ? 208 : h), &scale, sizeof scale);
        }
}

static void same_bits(const af_fast *f, af_dtype type, bool rounded)
{
    enum { M = 7, N = 35, K = 768 };
    const af_dtype_info *info = af_dtype_get(type);
    const int64_t row = K / info->elems * info->bytes;
    matrix x = new_matrix(M, K, AF_DTYPE_F32, 3);
    float y[M * N];
    uint8_t *codes = malloc((size_t)(N * row));
    void *work = malloc(f->gemm_work(1));
    const af_tensor weight = {.dim = {N, K}, .ndim = 2, .dtype = type, .data = codes};
    fill(type, codes, N * K / info->elems);
    for (int64_t i = 0; i < 64; i++) /* codes and digits at their ends */
        ((float *)x.data)[i] = i % 3 ? -2.0f : 2.0f;
    if (type == AF_DTYPE_Q8_0)
        memset(codes + 2, 0x80, 32);
    const af_gemm g = {.M = M,
                       .N = N,
                       .K = K,
                       .a = {x.data, K, AF_DTYPE_F32, false, NULL, NULL, NULL},
                       .b = {codes, K, type, true, decode, &weight, NULL},
                       .c = y,
                       .ldc = N,
                       .c_dtype = AF_DTYPE_F32,
                       .alpha = 1,
                       .skinny = true,
                       .rounded = rounded};
    f->gemm(&g, NULL, work);
    for (int64_t i = 0; i < M * N; i++) {
        const float want =
            reference(type, codes + i % N * row, (const float *)x.data + i / N * K, K, rounded);
        CHECK_MSG(memcmp(&want, &y[i], sizeof want) == 0, "%s, %s%s, %d: %.9g is not %.9g", f->name,
                  af_dtype_name(type), rounded ? ", rounded" : "", (int)i, (double)y[i],
                  (double)want);
    }
    free(codes), free(work);
    free_matrix(&x);
}

static void test_same_bits(void **state)
{
    (void)state;
    static const af_dtype types[] = {AF_DTYPE_Q8_0, AF_DTYPE_Q4_K, AF_DTYPE_Q6_K};
    int checked = 0;
    for (int i = 0; af_fast_at(i); i++) {
        const af_fast *f = af_fast_at(i);
        const bool three = strstr(f->name, "dotprod") || strstr(f->name, "vnni") ||
                           strstr(f->name, "amx"); /* planes of activations as they are */
        if (!f->rounds || strstr(f->name, "bf16")) /* SMMLA sums in another order */
            continue;
        for (size_t t = 0; t < AF_LEN(types); t++) {
            same_bits(f, types[t], true);
            if (three)
                same_bits(f, types[t], false);
        }
        print_message("%s\n", f->name);
        checked++;
    }
    if (!checked)
        print_message("no instruction set that multiplies bytes this way\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
