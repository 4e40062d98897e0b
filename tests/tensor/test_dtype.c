/* Conversions of small floats, exhaustively, against a slow reference that only uses ldexp and
 * comparison of doubles. */
#include "tensor/dtype.h"
#include "test.h"

#include <math.h>

/* A small float format: value of each code, by its definition. */
typedef struct format {
    const char *name;
    int ebits, mbits;
    bool finite_only; /* e4m3: no infinity, one NaN per sign */
    uint32_t (*down)(float x);
    float (*up)(uint32_t c);
} format;

static uint32_t f16_down(float x) { return af_f16_from_f32(x); }
static float f16_up(uint32_t c) { return af_f32_from_f16((uint16_t)c); }
static uint32_t bf16_down(float x) { return af_bf16_from_f32(x); }
static float bf16_up(uint32_t c) { return af_f32_from_bf16((uint16_t)c); }
static uint32_t e4m3_down(float x) { return af_e4m3_from_f32(x); }
static float e4m3_up(uint32_t c) { return af_f32_from_e4m3((uint8_t)c); }
static uint32_t e5m2_down(float x) { return af_e5m2_from_f32(x); }
static float e5m2_up(uint32_t c) { return af_f32_from_e5m2((uint8_t)c); }

static const format formats[] = {
    {"f16", 5, 10, false, f16_down, f16_up},
    {"bf16", 8, 7, false, bf16_down, bf16_up},
    {"e4m3", 4, 3, true, e4m3_down, e4m3_up},
    {"e5m2", 5, 2, false, e5m2_down, e5m2_up},
};

/* The value of a magnitude as if there were neither infinities nor NaN. */
static double plain_value(const format *f, uint32_t mag)
{
    const int bias = (1 << (f->ebits - 1)) - 1;
    const uint32_t e = mag >> f->mbits, m = mag & ((1u << f->mbits) - 1);
    return e == 0 ? ldexp(m, 1 - bias - f->mbits)
                  : ldexp((double)m + (1 << f->mbits), (int)e - bias - f->mbits);
}

/* The first magnitude that is not a finite number. */
static uint32_t first_special(const format *f)
{
    const uint32_t top = (1u << (f->ebits + f->mbits)) - 1;
    return f->finite_only ? top : ((1u << f->ebits) - 1) << f->mbits;
}

static void test_every_code_has_its_value(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof formats / sizeof formats[0]; k++) {
        const format *f = &formats[k];
        const uint32_t sign = 1u << (f->ebits + f->mbits);
        for (uint32_t c = 0; c < 2 * sign; c++) {
            const uint32_t mag = c & (sign - 1);
            const double s = c & sign ? -1 : 1;
            const float got = f->up(c);
            if (mag < first_special(f)) {
                CHECK_MSG((double)got == s * plain_value(f, mag), "%s %#x", f->name, c);
                CHECK_MSG(!signbit(got) == !(c & sign), "%s %#x: sign", f->name, c);
                CHECK_MSG(f->down(got) == c, "%s %#x does not come back", f->name, c);
            } else if (mag == first_special(f) && !f->finite_only) {
                CHECK_MSG(isinf(got) && (got > 0) == (s > 0), "%s %#x", f->name, c);
                CHECK_MSG(f->down(got) == c, "%s %#x: infinity", f->name, c);
            } else {
                CHECK_MSG(isnan(got) && isnan(f->up(f->down(got))), "%s %#x", f->name, c);
            }
        }
    }
}

/* Around every boundary between two neighbours: below, on (to even) and above. */
static void test_rounding_at_every_boundary(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof formats / sizeof formats[0]; k++) {
        const format *f = &formats[k];
        const uint32_t sign = 1u << (f->ebits + f->mbits), special = first_special(f);
        for (uint32_t c = 0; c < special; c++) {
            const double middle = (plain_value(f, c) + plain_value(f, c + 1)) / 2;
            const float m = (float)middle;
            const uint32_t up = c + 1 < special ? c + 1 : f->finite_only ? sign - 1 : special;
            if (isinf(m)) /* bf16's last boundary is above the largest float's rounding */
                continue;
            if ((double)m == middle)
                CHECK_MSG(f->down(m) == (c % 2 == 0 ? c : up), "%s: tie above %#x", f->name, c);
            CHECK_MSG(f->down(nextafterf(m, 0)) == c, "%s: below %#x", f->name, c);
            CHECK_MSG(f->down(nextafterf(m, INFINITY)) == up, "%s: above %#x", f->name, c);
            CHECK_MSG(f->down(-nextafterf(m, INFINITY)) == (up | sign), "%s: sign", f->name);
        }
        CHECK_MSG(f->down(0.0f) == 0 && f->down(-0.0f) == sign, "%s: zeros", f->name);
        CHECK_MSG(f->down(1e-45f) == 0 || f->ebits == 8, "%s: underflow", f->name);
        const uint32_t over = f->down(3.4e38f);
        CHECK_MSG(f->ebits == 8 || (f->finite_only ? isnan(f->up(over)) : isinf(f->up(over))),
                  "%s: overflow", f->name);
    }
}

static void test_rows_equal_single_values(void **state)
{
    (void)state;
    enum { N = 65536 };
    uint16_t *h = malloc(N * 2), *b = malloc(N * 2);
    float *x = malloc(N * 4), *y = malloc(N * 4);
    assert_true(h && b && x && y);
    for (uint32_t i = 0; i < N; i++)
        h[i] = (uint16_t)i;
    af_convert(x, AF_DTYPE_F32, h, AF_DTYPE_F16, N);
    af_convert(b, AF_DTYPE_F16, x, AF_DTYPE_F32, N);
    for (uint32_t i = 0; i < N; i++) {
        const float want = af_f32_from_f16((uint16_t)i);
        assert_memory_equal(&x[i], &want, 4);
        assert_int_equal(b[i], af_f16_from_f32(want));
    }
    af_convert(x, AF_DTYPE_F32, h, AF_DTYPE_BF16, N);
    af_convert(b, AF_DTYPE_BF16, x, AF_DTYPE_F32, N);
    for (uint32_t i = 0; i < N; i++) {
        const float want = af_f32_from_bf16((uint16_t)i);
        assert_memory_equal(&x[i], &want, 4);
        assert_int_equal(b[i], af_bf16_from_f32(want));
    }
    free(h);
    free(b);
    free(x);
    free(y);
}

static void test_doubles_round_once(void **state)
{
    (void)state;
    uint16_t h = 0;
    /* just above a tie of f16: through a plain float it would be the tie, and go to even */
    af_store_f64(&h, AF_DTYPE_F16, 0, 1.0 + ldexp(1, -11) + ldexp(1, -40));
    assert_int_equal(h, 0x3c01);
    af_store_f64(&h, AF_DTYPE_BF16, 0, 1.0 + ldexp(1, -8) + ldexp(1, -40));
    assert_int_equal(h, 0x3f81);
    af_store_f64(&h, AF_DTYPE_BF16, 0, 1.0 + ldexp(1, -8));
    assert_int_equal(h, 0x3f80);
    assert_true(af_load_f64(&h, AF_DTYPE_BF16, 0) == 1.0);
}

static void test_table(void **state)
{
    (void)state;
    for (int t = 0; t < AF_DTYPE_COUNT; t++) {
        const af_dtype_info *d = af_dtype_get((af_dtype)t);
        af_dtype back = AF_DTYPE_COUNT;
        assert_true(d->name && d->elems > 0 && d->bytes > 0);
        assert_true(af_dtype_by_name(&back, d->name) && back == (af_dtype)t);
        if (d->safetensors)
            assert_true(af_dtype_by_safetensors(&back, d->safetensors) && back == (af_dtype)t);
        if (d->gguf >= 0)
            assert_true(af_dtype_by_gguf(&back, (uint32_t)d->gguf) && back == (af_dtype)t);
    }
    uint64_t n;
    assert_true(af_dtype_bytes(AF_DTYPE_Q4_K, 512, &n) && n == 288);
    assert_false(af_dtype_bytes(AF_DTYPE_Q4_K, 100, &n));
    assert_true(af_dtype_bytes(AF_DTYPE_NF4, 33, &n) && n == 17);
    assert_false(af_dtype_bytes(AF_DTYPE_F64, UINT64_MAX / 4, &n));
    af_dtype t;
    assert_true(af_dtype_by_name(&t, "Q4_K") && t == AF_DTYPE_Q4_K);
    assert_false(af_dtype_by_name(&t, "q4_k_m"));
    assert_false(af_dtype_by_gguf(&t, 4)); /* removed from the format long ago */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_has_its_value),
        cmocka_unit_test(test_rounding_at_every_boundary),
        cmocka_unit_test(test_rows_equal_single_values),
        cmocka_unit_test(test_doubles_round_once),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
