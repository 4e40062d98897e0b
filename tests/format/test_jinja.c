/* test_jinja.c - the template interpreter: one-feature cases, limits, and hostile templates. */
#define _GNU_SOURCE /* pthread_setattr_default_np */
#include "jinja_rows.h"

#include <pthread.h>

typedef struct units {
    json_t *vars;
    char *now;
    int done;
} units;

static void unit(json_t *row, void *user)
{
    units *u = user;
    if (json_object_get(row, "vars")) {
        u->vars = json_incref(json_object_get(row, "vars"));
        u->now = strdup(json_string_value(json_object_get(row, "now")));
        return;
    }
    const json_t *source = json_object_get(row, "template"),
                 *expected = json_object_get(row, "expected");
    const char *kind = json_string_value(json_object_get(expected, "kind"));
    af_template *t = NULL;
    af_error err = {0};
    char *text = NULL;
    uint64_t len = 0;
    af_status st =
        af_template_parse(&t, json_string_value(source), json_string_length(source), &err);
    if (kind && !strcmp(kind, "syntax"))
        CHECK_MSG(st == AF_EFORMAT && !strncmp(err.msg, "line ", 5), "%s was not refused",
                  json_string_value(source));
    if (st == AF_OK) {
        const af_render_opts o = {.extra = u->vars, .raw = true, .now = u->now};
        st = af_template_render(t, &text, &len, &o, NULL, &err);
    }
    check_rendering(json_string_value(source), expected, st, text, len, &err);
    free(text);
    af_template_close(t);
    u->done++;
}

static int run_units(const char *file)
{
    char path[4096];
    units u = {0};
    snprintf(path, sizeof path, "%s/text/%s", golden_dir(), file);
    each_row(path, unit, &u);
    json_decref(u.vars);
    free(u.now);
    return u.done;
}

static void test_one_feature_rows(void **state)
{
    (void)state;
    assert_int_equal(run_units("jinja_units.jsonl"), 298);
}

static void test_more_rows(void **state)
{
    (void)state;
    assert_true(run_units("jinja_more.jsonl") >= 300);
}

static af_status render_text(const char *source, char **text, af_spans *spans, af_error *err)
{
    af_template *t = NULL;
    uint64_t len = 0;
    const af_render_opts o = {.raw = true};
    af_status st = af_template_parse(&t, source, strlen(source), err);
    if (st == AF_OK)
        st = af_template_render(t, text, &len, &o, spans, err);
    af_template_close(t);
    return st;
}

static void test_hostile_templates_end_in_clean_errors(void **state)
{
    (void)state;
    static const struct {
        const char *why, *source, *message;
    } cases[] = {
        {"cyclic macro", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"},
        {"two macros in a circle",
         "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
         "recursion"},
        {"endless work",
         "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}", "steps"},
        {"a huge string", "{{ 'x' * 1000000000000 }}", "bytes"},
        {"doubling text",
         "{% set n = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(90) %}{% set n.s = n.s + "
         "n.s %}{% endfor %}{{ n.s }}",
         "MiB"},
        {"doubling lists",
         "{% set n = namespace(s=[1]) %}{% for i in range(90) %}{% set n.s = [n.s, n.s] %}{% "
         "endfor %}{{ n.s }}",
         "steps"},
        {"a namespace inside itself",
         "{% set n = namespace() %}{% set n.n = n %}{{ n }}{{ n | string }}", "nested"},
        {"a deep value",
         "{% set n = namespace(s=[]) %}{% for i in range(9000) %}{% set n.s = [n.s] %}{% endfor "
         "%}{{ n.s | tojson }}",
         "nested"},
        {"recursive loop", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "recursion"},
        {"a wide field", "{{ '%999999999999d' % 1 }}", "wider"},
        {"a wide field by method", "{{ 'a'.center(99999999999) }}", "wider"},
        {"output without end",
         "{% set s = 'x' * 10000000 %}{% for i in range(1000) %}{{ s }}{% endfor %}", "MiB"},
        {"tojson past the limit",
         "{% set d = namespace(d={}) %}{% for i in range(2000) %}{% set d.d = dict(d.d, **{'k' ~ i:"
         " i}) %}{% endfor %}{% for a in range(90000) %}{% set x = d.d | tojson %}{% endfor %}",
         "steps"},
        {"truncate of a number", "{{ 1 | truncate(5) }}", "expects a string"},
        {"integer overflow", "{{ 9223372036854775807 + 1 }}", "64 bits"},
        {"loading files", "{% include '/etc/passwd' %}", "loader"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        char *text = NULL;
        CHECK_MSG(render_text(cases[i].source, &text, NULL, &err) != AF_OK, "%s passed",
                  cases[i].why);
        CHECK_MSG(strstr(err.msg, cases[i].message), "%s: %s", cases[i].why, err.msg);
    }
}

static void test_deep_source_is_refused(void **state)
{
    (void)state;
    static const char *const links[] = {"(",     "[",  "-",    "not ",    "a.b(",
                                        "{'a':", "a[", "a + ", "a | e | "};
    for (size_t i = 0; i < AF_LEN(links); i++) {
        af_buf b = {0};
        af_error err = {0};
        af_template *t = NULL;
        af_buf_str(&b, "{{ ");
        for (int k = 0; k < 20000; k++)
            af_buf_str(&b, links[i]);
        CHECK_MSG(af_template_parse(&t, b.data, b.len, &err) == AF_EFORMAT, "%s", links[i]);
        af_template_close(t);
        af_buf_clear(&b);
    }
}

/* Filters of a block are chained without an expression around them. */
static void *call_itself(void *arg)
{
    char *text = NULL;
    render_text("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(240) }}",
                &text, NULL, arg);
    free(text);
    return NULL;
}

static void test_half_of_a_small_stack_is_the_limit(void **state)
{
    (void)state;
    pthread_attr_t usual, small;
    pthread_t thread;
    af_error err = {0};
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_attr_init(&small), 0);
    pthread_attr_setstacksize(&small, 256 << 10);
    assert_int_equal(pthread_setattr_default_np(&small), 0);
    assert_int_equal(pthread_create(&thread, NULL, call_itself, &err), 0);
    pthread_join(thread, NULL);
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    pthread_attr_destroy(&usual);
    pthread_attr_destroy(&small);
    assert_string_equal(err.msg, "line 1: evaluation needs more than half of the stack of 256 kB");
}

static void test_long_chains_of_block_filters_are_refused(void **state)
{
    (void)state;
    static const char *const forms[][2] = {{"{% filter d", "%}x{% endfilter %}"},
                                           {"{% set x | d", "%}x{% endset %}"}};
    for (size_t i = 0; i < AF_LEN(forms); i++) {
        af_buf b = {0};
        af_error err = {0};
        char *text = NULL;
        af_buf_str(&b, forms[i][0]);
        for (int k = 0; k < 600000; k++)
            af_buf_str(&b, "|d");
        af_buf_str(&b, forms[i][1]);
        assert_int_not_equal(render_text(b.data, &text, NULL, &err), AF_OK);
        CHECK_MSG(strstr(err.msg, "nested") || strstr(err.msg, "levels"), "%s", err.msg);
        af_buf_clear(&b);
    }
}

static void test_values_are_those_of_python(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{{ {('nan' | float): 1} | tojson }}", "{\"NaN\": 1}"},
        {"{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}", "{\"a\": 2, \"b\": 1}"},
        {"{{ '' | truncate(5) }}", ""},
        {"{{ 'ab'.partition('a') }}", "('', 'a', 'b')"},
        {"{{ 600000000000000000 | round(-18) }}", "1000000000000000000"},
        {"{{ 600000000000000000 | round(-19) }}", "0"},
        {"{{ {'a': 1, 'b': 2, 'c': 3} | truncate(5) }}", "{'a': 1, 'b': 2, 'c': 3}"},
        {"{{ '2.5' | filesizeformat }}", "2 Bytes"},
        {"{{ 'abcd'.rfind('abc', 1) }} {{ 'abcabc'.rfind('abc', 1) }}", "-1 3"},
        {"{{ ' a b '.rsplit(none, 0) }}", "[' a b']"},
        {"{{ '\U00010000\uffff' | tojson(ensure_ascii=true) }}", "\"\\ud800\\udc00\\uffff\""},
        {"{{ 0xa + 0Xf + 0b1_1 }}", "28"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        char *text = NULL;
        CHECK_OK(render_text(cases[i][0], &text, NULL, &err), err);
        assert_string_equal(text, cases[i][1]);
        free(text);
    }
}

static void test_errors_name_the_line(void **state)
{
    (void)state;
    static const struct {
        const char *source, *begin;
    } cases[] = {
        {"a\n{# x\ny #}\n{{ 'abc' +\n none }}", "line 4: can only concatenate str"},
        {"a\r\nb\r\n{% if %}", "line 3: "},
        {"{% for i in [1] %}\n\n{{ raise_exception('boom') }}{% endfor %}", "line 3: boom"},
        {"\n{{ x.y }}", "line 2: 'x' is undefined"},
        {"\n\n{{ 1 | nope }}", "line 3: No filter named 'nope'."},
        {"{{ 1 | tojson(separators=[1, ':']) }}", "line 1: separators expects two strings"},
        {"{{ 1 | tojson(separators=[',', 1]) }}", "line 1: separators expects two strings"},
        {"{{ 1 | tojson(separators=[',']) }}", "line 1: separators expects two strings"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        char *text = NULL;
        assert_int_not_equal(render_text(cases[i].source, &text, NULL, &err), AF_OK);
        CHECK_MSG(!strncmp(err.msg, cases[i].begin, strlen(cases[i].begin)), "%s", err.msg);
    }
}

static void test_what_is_not_supported_says_so(void **state)
{
    (void)state;
    static const char *const sources[] = {
        "\n{% include 'x' %}",      "\n{% autoescape true %}{% endautoescape %}",
        "\n{{ [1, 2][0, 1] }}",     "\n{{ 'a' | my.filter }}",
        "\n{{ '\\N{DIGIT ONE}' }}", "\n{{ '{0.real}'.format(1) }}",
    };
    for (size_t i = 0; i < AF_LEN(sources); i++) {
        af_error err = {0};
        char *text = NULL;
        CHECK_MSG(render_text(sources[i], &text, NULL, &err) != AF_OK, "%s passed", sources[i]);
        CHECK_MSG(!strncmp(err.msg, "line 2: not supported: ", 23), "%s: %s", sources[i], err.msg);
    }
}

static void test_generation_blocks_give_byte_spans(void **state)
{
    (void)state;
    af_error err = {0};
    af_spans s = {0};
    char *text = NULL;
    CHECK_OK(
        render_text("ñ{% generation %}a中{% endgeneration %}b{% for i in [1, 2] %}{% generation "
                    "%}{{ i }}{% endgeneration %}{% endfor %}",
                    &text, &s, &err),
        err);
    assert_string_equal(text, "ña中b12");
    assert_int_equal(s.count, 3);
    assert_int_equal(s.item[0].begin, 2);
    assert_int_equal(s.item[0].end, 6);
    assert_int_equal(s.item[1].begin, 7);
    assert_int_equal(s.item[2].end, 9);
    af_spans_clear(&s);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_feature_rows),
        cmocka_unit_test(test_more_rows),
        cmocka_unit_test(test_hostile_templates_end_in_clean_errors),
        cmocka_unit_test(test_deep_source_is_refused),
        cmocka_unit_test(test_half_of_a_small_stack_is_the_limit),
        cmocka_unit_test(test_long_chains_of_block_filters_are_refused),
        cmocka_unit_test(test_values_are_those_of_python),
        cmocka_unit_test(test_errors_name_the_line),
        cmocka_unit_test(test_what_is_not_supported_says_so),
        cmocka_unit_test(test_generation_blocks_give_byte_spans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
