/* test_schema_limits.c - JSON schemas whose grammars would take minutes to make: each is refused
 * after some seconds of work. */
#include "grammar_walk.h"

static walk_vocab vocab;

/* Values of one enum are looked up in another for each pair: the pairs have a limit. */
static void test_pairs_of_enums(void **state)
{
    (void)state;
    json_t *all = json_array(), *schema = json_pack("{s:O}", "oneOf", all);
    for (int i = 0; i < 200; i++) {
        json_t *values = json_array();
        for (int k = 0; k < 700; k++)
            json_array_append_new(values, json_integer(i * 700 + k));
        json_array_append_new(all, json_pack("{s:o}", "enum", values));
    }
    af_error err = {0};
    af_grammar *g = NULL;
    assert_int_equal(walk_schema(&g, &vocab, schema, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "too many alternatives"));
    json_decref(all);
    json_decref(schema);
}

/* Times that grow with the square of the number of names have a limit. */
static void test_many_names(void **state)
{
    (void)state;
    af_error err = {0};
    af_grammar *g = NULL;
    json_t *list[2] = {json_array(), json_array()}, *properties = json_object();
    for (int i = 0; i < 16000; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        json_object_set_new(properties, name, json_object());
        for (int k = 0; k < 2; k++)
            json_array_append_new(list[k], json_sprintf("%c%d", "na"[k], i));
    }
    json_t *two = json_pack("{s:s, s:{s:[{s:O},{s:O}]}}", "type", "object", "propertyNames",
                            "anyOf", "enum", list[0], "enum", list[1]);
    json_t *named = json_pack("{s:s, s:o, s:{s:o}}", "type", "object", "properties", properties,
                              "propertyNames", "enum", list[0]);
    assert_int_equal(walk_schema(&g, &vocab, two, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "more than 16384 properties"));
    assert_int_equal(walk_schema(&g, &vocab, named, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "too many alternatives"));
    json_decref(list[1]);
    json_decref(two);
    json_decref(named);
}

/* Automata of pairs of patterns: their number times their size has a limit. */
static void test_many_patterns(void **state)
{
    (void)state;
    af_error err = {0};
    af_grammar *g = NULL;
    json_t *list = json_array();
    for (int i = 0; i < 200; i++)
        json_array_append_new(list, json_pack("{s:s, s:o}", "type", "string", "pattern",
                                              json_sprintf("^%d(a|b)*a(a|b){9}$", 100 + i)));
    json_t *schema = json_pack("{s:o}", "oneOf", list);
    assert_int_equal(walk_schema(&g, &vocab, schema, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "too many alternatives"));
    json_decref(schema);
}

/* A pattern of `count` classes. */
static char *classes(const char *class, int count)
{
    af_buf b = {0};
    af_buf_str(&b, "^[");
    for (int i = 0; i < count; i++)
        af_buf_str(&b, class);
    af_buf_str(&b, "]$");
    return b.data;
}

/* Reading classes of many ranges for each property, or each pair of alternatives, has a limit. */
static void test_many_classes(void **state)
{
    (void)state;
    af_error err = {0};
    af_grammar *g = NULL;
    char *large = classes("\\p{Ll}", 700), *rare = classes("\\p{Zl}", 700);
    json_t *properties = json_object(), *many = json_object(), *list = json_array();
    for (int i = 0; i < 400; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        json_object_set_new(
            properties, name,
            json_pack("{s:[{s:s}, {s:s}]}", "allOf", "$ref", "#/$defs/p", "description", name));
        json_object_set_new(many, name,
                            json_pack("{s:{s:{s:i}}}", "patternProperties", large, "minimum", i));
        if (i < 60)
            json_array_append_new(list, json_pack("{s:s, s:o}", "type", "string", "pattern",
                                                  json_sprintf("^%d%s", 100 + i, rare + 1)));
    }
    json_t *schema[] = {
        json_pack("{s:s, s:{s:{s:s, s:s}}, s:o}", "type", "object", "$defs", "p", "type", "string",
                  "pattern", large, "properties", properties),
        json_pack("{s:o}", "oneOf", list),
        json_pack("{s:o}", "properties", many),
    };
    for (size_t i = 0; i < AF_LEN(schema); i++) {
        assert_int_equal(walk_schema(&g, &vocab, schema[i], &err), AF_EUSAGE);
        assert_non_null(strstr(err.msg, "too many alternatives"));
        json_decref(schema[i]);
    }
    free(large);
    free(rare);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs_of_enums),
        cmocka_unit_test(test_many_names),
        cmocka_unit_test(test_many_patterns),
        cmocka_unit_test(test_many_classes),
    };
    walk_open(&vocab);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    walk_close(&vocab);
    return failed;
}
