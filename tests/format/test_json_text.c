/* JSON text and trees when the n-th allocation of jansson fails: an error, never another tree. */
#include "format/text/json_text.h"
#include "test.h"

#include "base/buf.h"
#include "format/text/jsonpull.h"

static const char text[] =
    "{\"short\": [1, -2.5e-3, 12345678901234567.25, true, null], \"a longer key of the object\": "
    "\"a value with \\\"escapes\\\", \\u00e4 and more than thirty-two bytes\", \"numbers\": "
    "[0.00000000000000000000012345678901234567890, 1], \"objects\": {\"a\": {\"b\": {}}}}";

static long count, fail_at;
static bool sticky;

static void *failing(size_t n)
{
    count++;
    const bool hit = fail_at && (count == fail_at || (sticky && count > fail_at));
    return hit ? NULL : malloc(n);
}

static void test_every_allocation(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        sticky = mode == 1;
        count = fail_at = 0;
        json_t *whole = af_json_load(text, strlen(text), 0, NULL);
        assert_non_null(whole);
        const long all = count;
        assert_true(all > 25);
        for (long n = 1; n <= all; n++) {
            json_error_t why;
            af_error err = {0};
            count = 0;
            fail_at = n;
            assert_null(af_json_load(text, strlen(text), 0, &why));
            assert_true(count >= n);
            assert_int_equal(af_fail(&err, AF_EFORMAT, "%s", why.text), AF_ENOMEM);
            fail_at = 0;
        }
        json_decref(whole);
    }
}

static void test_floats_that_json_lacks(void **state)
{
    static const char python[] = "{\"a\": [0.0, Infinity], \"b\": -Infinity, \"NaN\": NaN, "
                                 "\"c\": \"Infinity \\\" NaN\"}";
    static const char *const bad[] = {"{\"a\": Infinit}", "{\"a\": nan}", "{\"a\": \"NaN}",
                                      "{\"a\": -Inf}", "{NaN: 1}"};
    (void)state;
    assert_null(af_json_load(python, strlen(python), 0, NULL));
    json_t *o = af_json_load_python(python, strlen(python), 0, NULL);
    const json_t *high = json_array_get(json_object_get(o, "a"), 1);
    assert_string_equal(json_string_value(json_object_get(high, "__float__")), "Infinity");
    const json_t *low = json_object_get(json_object_get(o, "b"), "__float__");
    assert_string_equal(json_string_value(low), "-Infinity");
    assert_true(json_is_object(json_object_get(o, "NaN")));
    assert_string_equal(json_string_value(json_object_get(o, "c")), "Infinity \" NaN");
    json_decref(o);
    af_arena arena = {0};
    af_json_value v;
    af_error err = {0};
    CHECK_OK(af_json_tree_parse(&v, &arena, python, strlen(python), NULL, &err), err);
    assert_int_equal(af_json_get(&v, "b")->type, AF_JSON_NONE);
    assert_true(af_json_is(af_json_get(&v, "c"), "Infinity \" NaN"));
    for (size_t i = 0; i < AF_LEN(bad); i++) {
        assert_null(af_json_load_python(bad[i], strlen(bad[i]), 0, NULL));
        assert_int_equal(af_json_tree_parse(&v, &arena, bad[i], strlen(bad[i]), NULL, &err),
                         AF_EFORMAT);
    }
    af_arena_clear(&arena);
}

static void test_dump_of_a_tree_that_lacks_something(void **state)
{
    (void)state;
    af_error err = {0};
    for (fail_at = 1; fail_at <= 4; fail_at++) {
        count = 0;
        json_t *o = json_object();
        json_object_set_new(o, "a", json_integer(1));
        const long n = fail_at;
        fail_at = 0;
        assert_null(af_json_dump(o, JSON_COMPACT));
        assert_int_equal(af_memory_check(&err), AF_ENOMEM);
        fail_at = n;
        json_decref(o);
    }
    fail_at = 0;
    json_t *o = json_pack("{s:i}", "a", 1);
    char *s = af_json_dump(o, JSON_COMPACT);
    assert_string_equal(s, "{\"a\":1}");
    free(s);
    json_decref(o);
}

/* A token longer than any block on the stack, with escapes and an odd number of backslashes. */
static void test_long_tokens(void **state)
{
    (void)state;
    af_buf b = {0};
    af_buf_str(&b, "[\"");
    for (int i = 0; i < 20000; i++)
        af_buf_str(&b, i % 3 ? "\\\\" : "\\\"x");
    af_buf_str(&b, "\"]");
    for (int mode = 0; mode < 2; mode++) {
        sticky = mode == 1;
        count = fail_at = 0;
        json_t *whole = af_json_load(b.data, b.len, 0, NULL);
        assert_non_null(whole);
        assert_int_equal(json_string_length(json_array_get(whole, 0)), 20000 + 6667);
        json_decref(whole);
        const long all = count;
        for (long n = 1; n <= all; n++) {
            count = 0;
            fail_at = n;
            assert_null(af_json_load(b.data, b.len, 0, NULL));
            af_memory_forget();
            fail_at = 0;
        }
    }
    af_buf_clear(&b);
}

/* The allocator of json_text.c lies above the one that is set when the library is loaded. */
__attribute__((constructor(101))) static void first(void) { json_set_alloc_funcs(failing, free); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation),
        cmocka_unit_test(test_floats_that_json_lacks),
        cmocka_unit_test(test_dump_of_a_tree_that_lacks_something),
        cmocka_unit_test(test_long_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
