/* bitsandbytes formats: bytes equal to its CUDA kernels, ties, zero blocks, denormals, odd sizes.
 */
#include "format/weights/safetensors.h"
#include "tensor/codec_bnb.h"
#include "test.h"

#include <float.h>
#include <math.h>

static const char *const files[] = {
    "codepoints_bf16_8x64", "denormal_f32_4x64", "large_f16_8x80",      "normal_bf16_48x128",
    "normal_f16_33x65",     "odd_f32_1x33",      "outliers_bf16_16x96", "tail_f32_100",
    "ties_f32_8x64",        "zeros_f32_5x60",    "ties_third_f32_8x64", "many_blocks_bf16_130x130",
};
static const char *const kinds[] = {"nf4.64", "fp4.64", "nf4.128", "nf4.256", "fp4.128"};

static af_safetensors *open_golden(const char *file)
{
    char path[4096];
    af_error err = {0};
    af_safetensors *s = NULL;
    snprintf(path, sizeof path, "%s/bnb/%s.safetensors", golden_dir(), file);
    CHECK_OK(af_safetensors_open(&s, path, &err), err);
    return s;
}

static const af_stored *get(const af_safetensors *s, const char *kind, const char *field)
{
    char name[96];
    snprintf(name, sizeof name, "cuda.%s.%s", kind, field);
    return af_safetensors_find(s, name);
}

static float *input_of(const af_safetensors *s, int64_t *n)
{
    const af_stored *in = af_safetensors_find(s, "input");
    *n = af_weight_count(in);
    float *x = malloc((size_t)*n * sizeof *x);
    assert_non_null(x);
    af_convert(x, AF_DTYPE_F32, in->data, in->dtype, (uint64_t)*n);
    return x;
}

/* A code may differ only where the approximate reciprocal of the GPU moves y over a threshold: it
 * then is a neighbouring value of the table, and y is within 2 ulp of the midpoint. */
static bool is_tie(const float *table, int a, int b, float y)
{
    const float lo = AF_MIN(table[a], table[b]), hi = AF_MAX(table[a], table[b]);
    for (int i = 0; i < 16; i++)
        if (table[i] > lo && table[i] < hi)
            return false;
    return fabsf(y - (lo + hi) / 2) < 4e-6f;
}

static int check_codes(const char *file, const char *kind, const float *x, int64_t n, int64_t block,
                       const uint8_t *got, const uint8_t *want, const float *absmax, af_dtype type)
{
    int ties = 0;
    for (int64_t i = 0; i < n + (n & 1); i++) {
        const int shift = i & 1 ? 0 : 4, a = got[i / 2] >> shift & 15,
                  b = want[i / 2] >> shift & 15;
        if (a == b)
            continue;
        CHECK_MSG(i < n && type == AF_DTYPE_FP4 &&
                      is_tie(af_bnb_table(type), a, b, x[i] / absmax[i / block]),
                  "%s %s: code %d is %d, not %d", file, kind, (int)i, a, b);
        ties++;
    }
    return ties;
}

static void check_nested(const af_safetensors *s, const char *file, const char *kind,
                         const float *absmax, int64_t blocks, float *back)
{
    const af_stored *q = get(s, kind, "nested.absmax_u8"), *am = get(s, kind, "nested.absmax");
    const af_stored *off = get(s, kind, "nested.offset");
    uint8_t *codes = malloc((size_t)blocks);
    float *nested = malloc((size_t)blocks * sizeof *nested);
    assert_non_null(q);
    assert_non_null(codes);
    assert_non_null(nested);
    const float offset = *(const float *)off->data, mine = af_bnb_offset(absmax, blocks);
    CHECK_MSG(fabsf(mine - offset) <= 1e-6f * fabsf(offset), "%s %s: offset %g, not %g", file, kind,
              (double)mine, (double)offset);
    af_bnb_nest(absmax, blocks, offset, codes, nested);
    CHECK_MSG(memcmp(codes, q->data, q->bytes) == 0, "%s %s: nested codes", file, kind);
    CHECK_MSG(memcmp(nested, am->data, am->bytes) == 0, "%s %s: nested absmax", file, kind);
    af_bnb_unnest(NULL, codes, nested, offset, AF_BNB_NESTED_BLOCK, 0, blocks, back);
    free(codes);
    free(nested);
}

static void check_decode(const char *file, const char *kind, const af_stored *want, af_dtype type,
                         const uint8_t *codes, const float *absmax, int64_t block, int64_t n)
{
    if (!want)
        return;
    const uint64_t size = (uint64_t)af_dtype_get(want->dtype)->bytes;
    uint8_t *got = malloc((size_t)n * size), *part = malloc((size_t)n * size);
    assert_non_null(got);
    assert_non_null(part);
    af_bnb_decode(type, NULL, codes, absmax, block, 0, n, got, want->dtype);
    for (int64_t i = 0; i < n; i++)
        CHECK_MSG(af_load_f64(got, want->dtype, (uint64_t)i) ==
                      af_load_f64(want->data, want->dtype, (uint64_t)i),
                  "%s %s: element %d", file, kind, (int)i);
    /* any range gives the same bytes as the whole */
    for (int64_t from = 0; from < n; from += 1 + n / 7)
        for (int64_t to = from; to <= n; to += 1 + n / 5) {
            af_bnb_decode(type, NULL, codes, absmax, block, from, to, part, want->dtype);
            assert_memory_equal(part, got + (uint64_t)from * size, (uint64_t)(to - from) * size);
        }
    free(got);
    free(part);
}

static int check_kind(const af_safetensors *s, const char *file, const char *kind, const float *x,
                      int64_t n)
{
    const af_stored *packed = get(s, kind, "packed"), *am = get(s, kind, "absmax");
    const af_dtype type = kind[0] == 'n' ? AF_DTYPE_NF4 : AF_DTYPE_FP4;
    const int64_t block = strtol(kind + 4, NULL, 10), blocks = af_bnb_blocks(n, block);
    if (!packed)
        return 0;
    assert_int_equal(packed->bytes, af_bnb_bytes(n));
    uint8_t *codes = malloc(packed->bytes);
    float *absmax = malloc((size_t)blocks * sizeof *absmax), *back = malloc((size_t)blocks * 4);
    assert_non_null(codes);
    assert_non_null(absmax);
    assert_non_null(back);
    memset(codes, 0xa5, packed->bytes); /* nothing of it may survive */
    af_bnb_encode(type, x, n, block, codes, absmax);
    CHECK_MSG(memcmp(absmax, am->data, am->bytes) == 0, "%s %s: absmax", file, kind);
    const int ties = check_codes(file, kind, x, n, block, codes, packed->data, absmax, type);
    check_nested(s, file, kind, absmax, blocks, back);
    check_decode(file, kind, get(s, kind, "dequant.f32"), type, packed->data, absmax, block, n);
    check_decode(file, kind, get(s, kind, "dequant.bf16"), type, packed->data, absmax, block, n);
    check_decode(file, kind, get(s, kind, "nested.dequant.f32"), type, packed->data, back, block,
                 n);
    check_decode(file, kind, get(s, kind, "nested.dequant.bf16"), type, packed->data, back, block,
                 n);
    free(codes);
    free(absmax);
    free(back);
    return ties;
}

static void test_4bit_equals_the_cuda_kernels(void **state)
{
    (void)state;
    int ties = 0;
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        af_safetensors *s = open_golden(files[f]);
        int64_t n;
        float *x = input_of(s, &n);
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            ties += check_kind(s, files[f], kinds[k], x, n);
        free(x);
        af_safetensors_close(s);
    }
    assert_true(ties < 40); /* of 80,000 codes, fp4 of bf16 inputs only */
}

static void test_int8_rows(void **state)
{
    (void)state;
    int seen = 0;
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        af_safetensors *s = open_golden(files[f]);
        const af_stored *q = get(s, "int8", "weight"), *scb = get(s, "int8", "SCB");
        if (q) {
            int64_t n;
            float *x = input_of(s, &n);
            const int64_t rows = q->dim[0], cols = q->dim[1];
            int8_t *row = malloc((size_t)cols);
            assert_non_null(row);
            for (int64_t r = 0; r < rows; r++) {
                const float got = af_int8_encode_row(x + r * cols, cols, row);
                assert_true(got == ((const float *)scb->data)[r]);
                for (int64_t i = 0; i < cols; i++) {
                    const int want = ((const int8_t *)q->data)[r * cols + i];
                    const float w = af_f32_from_f16(af_f16_from_f32(x[r * cols + i]));
                    const float y = w * (1.0f / got * 127.0f);
                    const bool half = fabsf(fabsf(y - truncf(y)) - 0.5f) < 2e-5f;
                    CHECK_MSG(row[i] == want || (half && abs(row[i] - want) == 1),
                              "%s row %d: %d, not %d", files[f], (int)r, row[i], want);
                }
            }
            free(row);
            free(x);
            seen++;
        }
        af_safetensors_close(s);
    }
    assert_true(seen >= 4);
    int8_t q[3];
    float back[3];
    assert_true(af_int8_encode_row((float[]){0, 0, 0}, 3, q) == 0);
    assert_int_equal(q[1], 0);
    af_int8_decode_row((int8_t[]){127, -127, 0}, 2.0f, 3, back);
    assert_true(fabsf(back[0] - 2) < 1e-6f && fabsf(back[1] + 2) < 1e-6f && back[2] == 0);
}

static void test_8bit_maps_and_blocks(void **state)
{
    (void)state;
    static const char *const with[] = {"normal_bf16_48x128", "outliers_bf16_16x96"};
    af_safetensors *maps = open_golden("maps");
    const af_stored *m[2] = {af_safetensors_find(maps, "dynamic_unsigned"),
                             af_safetensors_find(maps, "dynamic_signed")};
    assert_memory_equal(af_bnb_map(false), m[0]->data, 1024);
    assert_memory_equal(af_bnb_map(true), m[1]->data, 1024);
    assert_memory_equal(af_bnb_table(AF_DTYPE_NF4), af_safetensors_find(maps, "nf4")->data, 64);
    assert_memory_equal(af_bnb_table(AF_DTYPE_FP4), af_safetensors_find(maps, "fp4")->data, 64);
    af_safetensors_close(maps);
    for (size_t f = 0; f < 2; f++) {
        af_safetensors *s = open_golden(with[f]);
        int64_t n;
        float *x = input_of(s, &n);
        uint8_t *q = malloc((size_t)n);
        float *absmax = malloc((size_t)n * sizeof *absmax), *back = malloc((size_t)n * 4);
        assert_non_null(q);
        for (int is_signed = 1; is_signed >= 0; is_signed--) {
            const char *kind = is_signed ? "dynamic_signed.256" : "dynamic_unsigned.256";
            const af_stored *want = get(s, kind, "q"), *deq = get(s, kind, "dequant");
            for (int64_t i = 0; i < n && !is_signed; i++)
                x[i] = fabsf(x[i]);
            af_bnb8_encode(af_bnb_map(is_signed), x, n, 256, q, absmax);
            assert_memory_equal(absmax, get(s, kind, "absmax")->data,
                                get(s, kind, "absmax")->bytes);
            int off = 0;
            for (int64_t i = 0; i < n; i++) {
                const int d = abs(q[i] - ((const uint8_t *)want->data)[i]);
                CHECK_MSG(d <= 1, "%s %s: %d is %d", with[f], kind, (int)i, q[i]);
                off += d;
            }
            CHECK_MSG(off * 500 < n, "%s %s: %d codes are neighbours", with[f], kind, off);
            af_bnb8_decode(af_bnb_map(is_signed), want->data, absmax, 256, 0, n, back);
            assert_memory_equal(back, deq->data, deq->bytes);
        }
        free(x);
        free(q);
        free(absmax);
        free(back);
        af_safetensors_close(s);
    }
}

static void test_odd_block_sizes_share_bytes(void **state)
{
    (void)state;
    float x[101], back[101];
    uint8_t codes[51];
    for (int i = 0; i < 101; i++)
        x[i] = sinf((float)i) * (float)(1 + i / 7);
    for (int64_t block = 1; block < 110; block += 6) {
        float absmax[101];
        af_bnb_encode(AF_DTYPE_NF4, x, 101, block, codes, absmax);
        af_bnb_decode(AF_DTYPE_NF4, NULL, codes, absmax, block, 0, 101, back, AF_DTYPE_F32);
        for (int i = 0; i < 101; i++)
            CHECK_MSG(fabsf(back[i] - x[i]) <= 0.16f * absmax[i / block], "block %d, element %d",
                      (int)block, i);
        assert_int_equal(codes[50] & 15, 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_4bit_equals_the_cuda_kernels),
        cmocka_unit_test(test_int8_rows),
        cmocka_unit_test(test_8bit_maps_and_blocks),
        cmocka_unit_test(test_odd_block_sizes_share_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
