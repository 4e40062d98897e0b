/* Arenas and buffers: alignment, limits, latched failure; checked arithmetic; the bounded reader.
 */
#include "base/arena.h"
#include "base/buf.h"
#include "base/reader.h"
#include "test.h"

static void test_arena_pieces_are_aligned_zero_and_apart(void **state)
{
    (void)state;
    af_arena a = {0};
    uint8_t *seen[200];
    for (int i = 0; i < 200; i++) {
        const uint64_t n = (uint64_t)(i * 37 % 5000);
        uint8_t *p = seen[i] = af_arena_take(&a, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (uint64_t k = 0; k < n; k++)
            assert_int_equal(p[k], 0);
        memset(p, i, n);
    }
    for (int i = 0; i < 200; i++) /* no piece overwrote another */
        for (int k = 0; k < i * 37 % 5000; k++)
            assert_int_equal(seen[i][k], (uint8_t)i);
    assert_non_null(af_arena_take(&a, 10 << 20)); /* larger than any chunk */
    af_arena_clear(&a);
    assert_int_equal(a.bytes, 0);
    assert_string_equal(af_arena_strndup(&a, "hello", 3), "hel");
    assert_string_equal(af_arena_printf(&a, "%d-%s", 7, "x"), "7-x");
    af_arena_clear(&a);
}

static void test_arena_keeps_its_limit(void **state)
{
    (void)state;
    af_arena a = {.limit = 1000};
    assert_non_null(af_arena_take(&a, 512));
    assert_null(af_arena_take(&a, 512));
    assert_non_null(af_arena_take(&a, 400));
    assert_null(af_arena_take(&a, UINT64_MAX));
    assert_null(af_arena_take(&a, UINT64_MAX - 100));
    af_arena_clear(&a);
}

static void test_buffer_grows_and_latches(void **state)
{
    (void)state;
    af_buf b = {0};
    for (int i = 0; i < 1000; i++)
        af_buf_printf(&b, "%d,", i);
    assert_int_equal(b.len, 3890);
    assert_int_equal(strlen(b.data), b.len);
    af_buf_clear(&b);
    b.limit = 5;
    af_buf_str(&b, "12345");
    assert_false(b.bad);
    af_buf_char(&b, '6');
    assert_true(b.bad);
    af_buf_str(&b, "");
    assert_null(af_buf_take(&b));
    assert_null(af_buf_reserve(&(af_buf){.len = 3}, UINT64_MAX));
    af_buf c = {0};
    char *s = af_buf_take(&c);
    assert_string_equal(s, ""); /* an empty buffer is an empty string */
    free(s);
}

static void test_utf8(void **state)
{
    (void)state;
    static const struct {
        uint32_t cp;
        const char *bytes;
    } cases[] = {{0x41, "A"},
                 {0xe9, "\xc3\xa9"},
                 {0x7ff, "\xdf\xbf"},
                 {0x800, "\xe0\xa0\x80"},
                 {0x20ac, "\xe2\x82\xac"},
                 {0x1f600, "\xf0\x9f\x98\x80"},
                 {0x10ffff, "\xf4\x8f\xbf\xbf"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        af_buf b = {0};
        af_buf_utf8(&b, cases[i].cp);
        assert_string_equal(b.data, cases[i].bytes);
        af_buf_clear(&b);
    }
}

static void test_checked_arithmetic(void **state)
{
    (void)state;
    uint64_t v = 0;
    assert_true(af_mul_ok(UINT64_C(1) << 32, UINT64_C(1) << 31, &v) && v == UINT64_C(1) << 63);
    assert_false(af_mul_ok(UINT64_C(1) << 32, UINT64_C(1) << 32, &v));
    assert_true(af_add_ok(UINT64_MAX - 1, 1, &v) && v == UINT64_MAX);
    assert_false(af_add_ok(UINT64_MAX, 1, &v));
    assert_null(af_calloc(UINT64_MAX / 2, 3));
}

static void test_reader_latches_at_the_end(void **state)
{
    (void)state;
    const uint8_t bytes[7] = {1, 2, 3, 4, 5, 6, 7};
    af_reader r = {bytes, bytes + 7, false};
    assert_int_equal(af_read_u8(&r), 1);
    assert_int_equal(af_read_u16(&r), 0x0302);
    assert_int_equal(af_read_left(&r), 4);
    assert_null(af_read_bytes(&r, UINT64_MAX));
    assert_true(r.bad);
    assert_int_equal(af_read_u8(&r), 0); /* although a byte would be there */
    assert_int_equal(af_read_left(&r), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena_pieces_are_aligned_zero_and_apart),
        cmocka_unit_test(test_arena_keeps_its_limit),
        cmocka_unit_test(test_buffer_grows_and_latches),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_checked_arithmetic),
        cmocka_unit_test(test_reader_latches_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
