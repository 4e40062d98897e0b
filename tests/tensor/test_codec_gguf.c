/* GGUF block types: bytes and values equal to llama.cpp's, on normal rows, outliers and edges. */
#include "format/weights/safetensors.h"
#include "tensor/codec.h"
#include "tensor/codec_block.h"
#include "test.h"

#include <math.h>

static const char *const files[] = {"normal_3x512", "outliers_2x512", "edges_12x256"};

static const struct {
    const char *name;
    af_dtype dtype;
} types[] = {
    {"F16", AF_DTYPE_F16},       {"BF16", AF_DTYPE_BF16},       {"Q4_0", AF_DTYPE_Q4_0},
    {"Q4_1", AF_DTYPE_Q4_1},     {"Q5_0", AF_DTYPE_Q5_0},       {"Q5_1", AF_DTYPE_Q5_1},
    {"Q8_0", AF_DTYPE_Q8_0},     {"Q2_K", AF_DTYPE_Q2_K},       {"Q3_K", AF_DTYPE_Q3_K},
    {"Q4_K", AF_DTYPE_Q4_K},     {"Q5_K", AF_DTYPE_Q5_K},       {"Q6_K", AF_DTYPE_Q6_K},
    {"IQ4_NL", AF_DTYPE_IQ4_NL}, {"IQ4_XS", AF_DTYPE_IQ4_XS},   {"MXFP4", AF_DTYPE_MXFP4},
    {"NVFP4", AF_DTYPE_NVFP4},   {"IQ3_S", AF_DTYPE_IQ3_S},     {"TQ1_0", AF_DTYPE_TQ1_0},
    {"TQ2_0", AF_DTYPE_TQ2_0},   {"IQ3_XXS", AF_DTYPE_IQ3_XXS}, {"IQ2_S", AF_DTYPE_IQ2_S},
};

static af_safetensors *open_golden(const char *file)
{
    char path[4096];
    af_error err = {0};
    af_safetensors *s = NULL;
    snprintf(path, sizeof path, "%s/gguf_types/%s.safetensors", golden_dir(), file);
    CHECK_OK(af_safetensors_open(&s, path, &err), err);
    return s;
}

static const af_stored *get(const af_safetensors *s, const char *type, const char *field)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", type, field);
    return af_safetensors_find(s, name);
}

/* Bytes of encoding every row of input; compares with what is stored. */
static int wrong_bytes(const af_safetensors *s, af_dtype t, const af_stored *want,
                       const float *importance)
{
    const af_stored *in = af_safetensors_find(s, "input");
    const int64_t rows = in->dim[0], n = in->dim[1];
    uint64_t bytes;
    assert_true(af_dtype_bytes(t, (uint64_t)n, &bytes));
    assert_int_equal(want->bytes, bytes * (uint64_t)rows);
    uint8_t *got = malloc(bytes);
    assert_non_null(got);
    int wrong = 0;
    for (int64_t r = 0; r < rows; r++) {
        for (int widest = 0; widest < 2; widest++) {
            const float *x = (const float *)in->data + r * n;
            if (af_dtype_is_block(t))
                af_codec_encoder(t, widest)(x, got, n, importance);
            else
                af_codec_encode_row(t, x, got, n, importance);
            for (uint64_t i = 0; i < bytes; i++)
                wrong += got[i] != ((const uint8_t *)want->data)[(uint64_t)r * bytes + i];
        }
    }
    free(got);
    return wrong;
}

static void test_encoders_give_the_reference_bytes(void **state)
{
    (void)state;
    int bad = 0;
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        af_safetensors *s = open_golden(files[f]);
        for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
            if (!af_codec_can_encode(types[i].dtype))
                continue;
            const af_stored *plain = get(s, types[i].name, "bytes");
            const af_stored *weighted = get(s, types[i].name, "imatrix.bytes");
            assert_non_null(plain);
            int wrong = wrong_bytes(s, types[i].dtype, plain, NULL);
            if (wrong)
                print_error("%s %s: %d of %d bytes differ\n", files[f], types[i].name, wrong,
                            (int)plain->bytes);
            bad += wrong;
            if (!weighted)
                continue;
            wrong =
                wrong_bytes(s, types[i].dtype, weighted, af_safetensors_find(s, "imatrix")->data);
            if (wrong)
                print_error("%s %s with importance: %d of %d bytes differ\n", files[f],
                            types[i].name, wrong, (int)weighted->bytes);
            bad += wrong;
        }
        af_safetensors_close(s);
    }
    assert_int_equal(bad, 0);
}

static void test_decoders_give_the_reference_values(void **state)
{
    (void)state;
    int checked = 0;
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        af_safetensors *s = open_golden(files[f]);
        for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
            const af_stored *bytes = get(s, types[i].name, "bytes");
            const af_stored *want = get(s, types[i].name, "dequant");
            if (!bytes || !want)
                continue;
            const int64_t n = af_weight_count(want);
            float *got = malloc((size_t)n * sizeof *got);
            assert_non_null(got);
            af_codec_decode_row(types[i].dtype, bytes->data, got, n);
            for (int64_t k = 0; k < n; k++) /* == : -0 and 0 may differ in sign */
                CHECK_MSG(got[k] == ((const float *)want->data)[k],
                          "%s %s: element %d is %g, not %g", files[f], types[i].name, (int)k,
                          (double)got[k], (double)((const float *)want->data)[k]);
            free(got);
            checked++;
        }
        af_safetensors_close(s);
    }
    assert_int_equal(checked, 3 * 13 + 6);
}

/* Searches run many blocks at a time; a row of any length must not see its neighbours. */
/* Types of files that are read and not written. */
static void test_types_that_are_only_read(void **state)
{
    static const char *const names[] = {"iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "q1_0", "q2_0"};
    af_safetensors *s = open_golden("read_only");
    float x[512];
    (void)state;
    for (size_t i = 0; i < AF_LEN(names); i++) {
        const af_stored *bytes = get(s, names[i], "bytes"), *want = get(s, names[i], "dequant");
        af_dtype t;
        uint64_t size = 0;
        assert_true(af_dtype_by_name(&t, names[i]) && af_dtype_bytes(t, 512, &size));
        assert_true(af_codec_can_decode(t) && !af_codec_can_encode(t) && bytes->bytes == size);
        af_codec_decode_row(t, bytes->data, x, 512);
        for (int k = 0; k < 512; k++)
            CHECK_MSG(x[k] == ((const float *)want->data)[k], "%s: value %d is %.9g, not %.9g",
                      names[i], k, (double)x[k], (double)((const float *)want->data)[k]);
    }
    af_safetensors_close(s);
}

static void test_odd_block_counts_equal_single_blocks(void **state)
{
    (void)state;
    enum { BLOCKS = 37 };
    float x[BLOCKS * 256], imp[BLOCKS * 256];
    uint8_t whole[BLOCKS * 256], part[256];
    for (int i = 0; i < BLOCKS * 256; i++) {
        x[i] = sinf((float)i * 1.7f) * (float)(1 + i % 5) * (i / 256 == 5 ? 1e-9f : 1.0f);
        imp[i] = 1.0f + (float)(i % 3);
    }
    for (size_t t = 2; t < AF_LEN(types); t++) {
        if (!af_codec_can_encode(types[t].dtype))
            continue;
        const int n = af_dtype_get(types[t].dtype)->elems,
                  bytes = af_dtype_get(types[t].dtype)->bytes;
        /* plain types weigh by the mean square of the row: only the others can be split */
        const bool weighted = n == 256 || types[t].dtype == AF_DTYPE_IQ4_NL;
        for (int k = 0; k < (weighted ? 4 : 2); k++)
            for (int blocks = 1; blocks <= BLOCKS; blocks += blocks < 9 ? 1 : 7) {
                const float *w = k / 2 ? imp : NULL;
                af_encode_fn *encode = af_codec_encoder(types[t].dtype, k % 2);
                encode(x, whole, n * blocks, w);
                for (int b = 0; b < blocks; b++) {
                    encode(x + n * b, part, n, w ? w + n * b : NULL);
                    CHECK_MSG(memcmp(part, whole + bytes * b, (size_t)bytes) == 0,
                              "%s: block %d of %d differs from itself alone", types[t].name, b,
                              blocks);
                }
            }
    }
}

/* The first of several largest magnitudes decides the sign of the scale. */
static void test_first_of_equal_magnitudes_gives_the_sign(void **state)
{
    (void)state;
    static const struct {
        int plus, minus;
    } cases[] = {{0, 1}, {1, 0}, {31, 30}, {3, 17}, {17, 3}, {31, 0}, {0, 31}};
    for (size_t c = 0; c < AF_LEN(cases); c++)
        for (int widest = 0; widest < 2; widest++) {
            float x[32];
            uint8_t out[22];
            for (int i = 0; i < 32; i++)
                x[i] = 0.01f * (float)(i - 16);
            x[cases[c].plus] = 2;
            x[cases[c].minus] = -2;
            const float want = cases[c].plus < cases[c].minus ? -2.0f : 2.0f;
            af_codec_encoder(AF_DTYPE_Q4_0, widest)(x, out, 32, NULL);
            assert_true(af_f16_at(out) == want / 8);
            af_codec_encoder(AF_DTYPE_Q5_0, widest)(x, out, 32, NULL);
            assert_true(af_f16_at(out) == want / 16);
        }
}

/* Scale and min of the reference's plain loops: zeros keep the sign they have there. */
static void test_signs_of_zeros_are_the_reference_s(void **state)
{
    (void)state;
    static const float pick[] = {0.0f, -0.0f, 0.0f, -0.0f, -0.0f, 0.0f, 1e-44f, 2.0f, -2.0f};
    uint32_t seed = 1;
    for (int round = 0; round < 400; round++) {
        float x[32], max = 0, amax = 0, lo = 3e38f, hi = -3e38f;
        uint8_t out[34];
        for (int i = 0; i < 32; i++) {
            seed = seed * 1664525u + 1013904223u;
            x[i] = pick[(seed >> 16) % (unsigned)(2 + round % 8)];
            if (fabsf(x[i]) > amax) {
                amax = fabsf(x[i]);
                max = x[i];
            }
            lo = x[i] < lo ? x[i] : lo;
            hi = x[i] > hi ? x[i] : hi;
        }
        for (int widest = 0; widest < 2; widest++) {
            const struct {
                af_dtype type;
                float d, m;
            } want[] = {{AF_DTYPE_Q4_0, max / -8, 0},
                        {AF_DTYPE_Q5_0, max / -16, 0},
                        {AF_DTYPE_Q8_0, amax / 127, 0},
                        {AF_DTYPE_Q4_1, (hi - lo) / 15, lo},
                        {AF_DTYPE_Q5_1, (hi - lo) / 31, lo}};
            for (size_t t = 0; t < AF_LEN(want); t++) {
                uint8_t half[4];
                af_codec_encoder(want[t].type, widest)(x, out, 32, NULL);
                af_f16_put(half, want[t].d);
                af_f16_put(half + 2, want[t].m);
                CHECK_MSG(memcmp(half, out, t < 3 ? 2 : 4) == 0, "round %d type %d", round, (int)t);
            }
        }
    }
}

static void test_no_input_is_undefined(void **state)
{
    (void)state;
    /* Not useful values, but never an out-of-range cast (the sanitizer watches). */
    const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-44f, 0.0f, -0.0f};
    float x[256];
    uint8_t bytes[1024];
    for (size_t i = 0; i < 256; i++)
        x[i] = odd[i * 7 % 8];
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (!af_codec_can_encode(types[i].dtype))
            continue;
        af_codec_encode_row(types[i].dtype, x, bytes, 256, NULL);
        af_codec_encode_row(types[i].dtype, x, bytes, 256, x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoders_give_the_reference_values),
        cmocka_unit_test(test_encoders_give_the_reference_bytes),
        cmocka_unit_test(test_types_that_are_only_read),
        cmocka_unit_test(test_odd_block_counts_equal_single_blocks),
        cmocka_unit_test(test_first_of_equal_magnitudes_gives_the_sign),
        cmocka_unit_test(test_signs_of_zeros_are_the_reference_s),
        cmocka_unit_test(test_no_input_is_undefined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
