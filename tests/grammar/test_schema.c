/* test_schema.c - JSON schemas: documents that fit and that do not, random answers, what is
 * refused. tests/golden/grammar/schemas.json is also what tools/judge/judge_grammar.py compares
 * with Python's jsonschema. */
#include "grammar_walk.h"

static walk_vocab vocab;
static json_t *golden;

static bool fits(af_grammar *g, const char *text)
{
    af_error err;
    bool yes = false;
    CHECK_OK(af_grammar_matches(g, text, strlen(text), &yes, &err), err);
    return yes;
}

static void test_documents(void **state)
{
    (void)state;
    const json_t *all = json_object_get(golden, "fits");
    assert_true(json_array_size(all) >= 20);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i), *docs = json_object_get(one, "good");
        const char *name = json_string_value(json_object_get(one, "name"));
        af_error err;
        af_grammar *g = NULL;
        const af_status st = walk_schema(&g, &vocab, json_object_get(one, "schema"), &err);
        CHECK_MSG(st == AF_OK, "%s: %s", name, err.msg);
        for (size_t k = 0; k < json_array_size(docs); k++) {
            const char *text = json_string_value(json_array_get(docs, k)) + 1;
            CHECK_MSG(fits(g, text), "%s: %s must fit", name, text);
        }
        docs = json_object_get(one, "bad");
        for (size_t k = 0; k < json_array_size(docs); k++) {
            const char *text = json_string_value(json_array_get(docs, k)) + 1;
            CHECK_MSG(!fits(g, text), "%s: %s must not fit", name, text);
        }
        af_grammar_close(g);
    }
}

/* What a random answer must be, without a validator. */
static bool is_right(const char *name, const json_t *v, const char *text)
{
    const double x = json_number_value(v);
    if (strcmp(name, "int_range") == 0)
        return json_is_integer(v) && x >= -12 && x <= 345;
    if (strcmp(name, "int_min") == 0)
        return json_is_integer(v) && x > 99;
    if (strcmp(name, "number_range") == 0)
        return json_is_number(v) && x >= -1.5 && x < 0.25;
    if (strcmp(name, "number_unit") == 0)
        return json_is_number(v) && x > 0 && x <= 1;
    if (strcmp(name, "all_of_number") == 0)
        return json_is_integer(v) && ((x >= 1 && x <= 3) || (x >= 18 && x <= 20));
    if (strcmp(name, "array") == 0)
        return json_array_size(v) >= 1 && json_array_size(v) <= 3;
    if (strcmp(name, "object") == 0)
        return json_is_string(json_object_get(v, "name")) &&
               json_is_integer(json_object_get(v, "age")) &&
               json_integer_value(json_object_get(v, "age")) <= 150;
    if (strcmp(name, "const") == 0)
        return strcmp(json_string_value(v), "a \"b\"\n\xc3\xa9/") == 0;
    if (strcmp(name, "pattern_length") == 0)
        return strlen(text) >= 5 && strlen(text) <= 7;
    return true;
}

static void test_answers(void **state)
{
    (void)state;
    const json_t *all = json_object_get(golden, "fits");
    af_buf text = {0};
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        af_error err;
        af_grammar *g = NULL;
        int ended = 0;
        uint64_t seed = 1234567 + i;
        CHECK_OK(walk_schema(&g, &vocab, json_object_get(one, "schema"), &err), err);
        for (int k = 0; k < 30; k++) {
            if (!walk_answer(&vocab, g, &seed, 300, &text))
                continue;
            ended++;
            json_error_t why;
            json_t *v = af_json_load(text.data, text.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
            if (!v && json_error_code(&why) == json_error_null_byte_in_key)
                continue; /* which jansson does not read */
            CHECK_MSG(v, "%s: made '%s', which is not JSON: %s", name, text.data, why.text);
            CHECK_MSG(fits(g, text.data), "%s: made '%s'", name, text.data);
            CHECK_MSG(is_right(name, v, text.data), "%s: made '%s'", name, text.data);
            json_decref(v);
        }
        if (strcmp(name, "pattern_search") != 0) /* hardly found by chance */
            CHECK_MSG(ended > 3, "%s: %d answers ended", name, ended);
        af_grammar_close(g);
    }
    af_buf_clear(&text);
}

static void test_refused(void **state)
{
    (void)state;
    const json_t *all = json_object_get(golden, "refused");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i);
        const char *says = json_string_value(json_object_get(one, "says"));
        const char *subject = json_string_value(json_object_get(one, "subject"));
        char *text = af_json_dump(json_object_get(one, "schema"), JSON_ENCODE_ANY);
        af_error err = {0};
        af_grammar *g = NULL;
        const af_status st = walk_schema(&g, &vocab, json_object_get(one, "schema"), &err);
        CHECK_MSG(st != AF_OK && strstr(err.msg, says), "%s: %s, not '%s'", text,
                  st ? err.msg : "taken", says);
        if (*subject)
            assert_string_equal(err.subject, subject);
        free(text);
    }
}

/* Schemas that want much: an error or an answer soon, never neither. */
static void test_hostile(void **state)
{
    (void)state;
    af_error err = {0};
    af_grammar *g = NULL;
    af_buf b = {0};
    for (int i = 0; i < 1900; i++) /* deep, and nothing recurses over it */
        af_buf_str(&b, "{\"items\":");
    af_buf_str(&b, "{}");
    for (int i = 0; i < 1900; i++)
        af_buf_char(&b, '}');
    CHECK_OK(af_grammar_open(&g, AF_GRAMMAR_JSON_SCHEMA, b.data, b.len, vocab.vocab, &err), err);
    af_grammar_close(g);
    b.len = 0;
    for (int i = 0; i < 100000; i++)
        af_buf_char(&b, '[');
    assert_int_equal(af_grammar_open(&g, AF_GRAMMAR_JSON_SCHEMA, b.data, b.len, vocab.vocab, &err),
                     AF_EFORMAT);
    b.len = 0; /* alternatives that multiply: 4^40 */
    af_buf_str(&b, "{\"allOf\":[");
    for (int i = 0; i < 40; i++)
        af_buf_printf(&b, "%s{\"anyOf\":[{\"minLength\":1},{\"minLength\":2},{},{}]}",
                      i ? "," : "");
    af_buf_str(&b, "]}");
    assert_int_equal(af_grammar_open(&g, AF_GRAMMAR_JSON_SCHEMA, b.data, b.len, vocab.vocab, &err),
                     AF_EUSAGE);
    b.len = 0; /* many optional properties */
    af_buf_str(&b, "{\"type\":\"object\",\"additionalProperties\":true,\"properties\":{");
    for (int i = 0; i < 500; i++)
        af_buf_printf(&b, "%s\"p%d\":{\"type\":\"integer\"}", i ? "," : "", i);
    af_buf_str(&b, "}}");
    CHECK_OK(af_grammar_open(&g, AF_GRAMMAR_JSON_SCHEMA, b.data, b.len, vocab.vocab, &err), err);
    assert_true(fits(g, "{\"p3\":1,\"p499\":2,\"p\":{}}"));
    assert_false(fits(g, "{\"p499\":2,\"p3\":1}"));
    af_grammar_close(g);
    const char *large = "{\"type\":\"string\",\"maxLength\":60000}";
    CHECK_OK(af_grammar_open(&g, AF_GRAMMAR_JSON_SCHEMA, large, strlen(large), vocab.vocab, &err),
             err);
    b.len = 0;
    af_buf_char(&b, '"');
    for (int i = 0; i < 60000; i++)
        af_buf_str(&b, "\xc3\xa9");
    af_buf_char(&b, '"');
    assert_true(fits(g, b.data));
    b.len--;
    af_buf_str(&b, "x\"");
    assert_false(fits(g, b.data));
    af_grammar_close(g);
    af_buf_clear(&b);
}

/* Lists whose items are compared, and properties that are counted: an error soon. */
static void test_many(void **state)
{
    (void)state;
    json_t *list = json_array(), *names = json_object();
    for (int i = 0; i < 100000; i++)
        json_array_append_new(list, json_integer(i));
    for (int i = 0; i < 9000; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        json_object_set_new(names, name, json_true());
    }
    json_t *unique = json_pack("{s:o, s:b}", "const", list, "uniqueItems", 1);
    json_t *counted = json_pack("{s:o, s:i}", "properties", names, "minProperties", 9000);
    af_error err = {0};
    af_grammar *g = NULL;
    assert_int_equal(walk_schema(&g, &vocab, unique, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "too many alternatives"));
    assert_int_equal(walk_schema(&g, &vocab, counted, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "too large"));
    json_decref(unique);
    json_decref(counted);
    json_t *values = json_array();
    for (int i = 0; i < 16000; i++) /* one automaton for all: otherwise a minute */
        json_array_append_new(values, json_sprintf("ab%d", i));
    json_array_append_new(values, json_string("aababababab"));
    json_t *texts = json_pack("{s:s, s:o}", "pattern", "^(a|b)*a(a|b){9}$", "enum", values);
    CHECK_OK(walk_schema(&g, &vocab, texts, &err), err);
    assert_true(fits(g, "\"aababababab\"") && !fits(g, "\"ab1\""));
    af_grammar_close(g);
    json_decref(texts);
}

/* Masks inside a long bounded string are shared between places: each must say exactly which tokens
 * the grammar takes there. */
static void test_masks_of_long_strings(void **state)
{
    (void)state;
    static const char schema[] =
        "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":3,"
        "\"maxLength\":100},\"minItems\":1,\"maxItems\":90}";
    static const int at[] = {0, 1, 2, 3, 4, 5, 50, 60, 90, 93, 96, 97, 98, 99, 100};
    af_error err;
    af_grammar *g = NULL;
    uint32_t mask[64];
    CHECK_OK(
        af_grammar_open(&g, AF_GRAMMAR_JSON_SCHEMA, schema, sizeof schema - 1, vocab.vocab, &err),
        err);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        af_grammar_state *s = NULL;
        CHECK_OK(af_grammar_state_new(&s, g, &err), err);
        CHECK_OK(af_grammar_state_accept(s, '[', &err), err); /* ids below 256 are bytes */
        CHECK_OK(af_grammar_state_accept(s, '"', &err), err);
        for (int k = 0; k < at[i]; k++)
            CHECK_OK(af_grammar_state_accept(s, 'x', &err), err);
        CHECK_OK(af_grammar_state_mask(s, mask, vocab.size, &err), err);
        for (int32_t id = 0; id < vocab.size; id++) {
            af_grammar_state *t = NULL;
            CHECK_OK(af_grammar_state_new(&t, g, &err), err);
            CHECK_OK(af_grammar_state_accept(t, '[', &err), err);
            CHECK_OK(af_grammar_state_accept(t, '"', &err), err);
            for (int k = 0; k < at[i]; k++)
                CHECK_OK(af_grammar_state_accept(t, 'x', &err), err);
            const bool taken = af_grammar_state_accept(t, id, &err) == AF_OK;
            CHECK_MSG(taken == (mask[id / 32] >> (id % 32) & 1), "after %d characters, token %d",
                      at[i], (int)id);
            af_grammar_state_free(t);
        }
        af_grammar_state_free(s);
    }
    af_grammar_close(g);
}

/* Masks of arrays without repeated items: what accept takes, and always something. */
static void test_masks_of_unique(void **state)
{
    (void)state;
    static const char schema[] =
        "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"anyOf\":[{\"type\":\"number\"},"
        "{\"enum\":[\"a\",\"ab\",\"abc\",null]},{\"type\":\"array\",\"items\":{\"type\":"
        "\"string\"},\"uniqueItems\":true}]}}";
    static const char *const starts[] = {"[",
                                         "[\"a\",",
                                         "[\"a\",\"",
                                         "[\"a\",\"a",
                                         "[\"ab\",\"a\",\"abc\",null,",
                                         "[1,1",
                                         "[1,1.",
                                         "[0,-",
                                         "[0,-0",
                                         "[12,1",
                                         "[[\"a\"],[\"a",
                                         "[[\"\\u00e9\"],[\"\\u00e",
                                         "[[\"a\",\"b\"],[\"a\",\"b",
                                         "[null, \"abc\",\"a\",",
                                         "[[\"/\",\"\\"};
    static const char *const good[] = {"[1,10,\"a\",[\"a\"],[\"a\",\"b\"]]", "[[],1.5,0.5]"},
                             *const bad[] = {"[1,1.0]", "[10,2,1e1]", "[[\"a\"],[ \"\\u0061\"]]",
                                             "[[],[]]", "[[\"b\",\"b\"]]"};
    af_error err;
    af_grammar *g = NULL;
    CHECK_OK(
        af_grammar_open(&g, AF_GRAMMAR_JSON_SCHEMA, schema, sizeof schema - 1, vocab.vocab, &err),
        err);
    for (size_t i = 0; i < AF_LEN(good); i++)
        CHECK_MSG(fits(g, good[i]), "%s", good[i]);
    for (size_t i = 0; i < AF_LEN(bad); i++)
        CHECK_MSG(!fits(g, bad[i]), "%s", bad[i]);
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        uint32_t mask[64];
        for (int32_t id = -1; id < vocab.size; id++) {
            af_grammar_state *s = NULL;
            CHECK_OK(af_grammar_state_new(&s, g, &err), err);
            for (const char *c = starts[i]; *c; c++)
                CHECK_MSG(af_grammar_state_accept(s, (uint8_t)*c, &err) == AF_OK, "%s: %c",
                          starts[i], *c);
            if (id < 0)
                CHECK_OK(af_grammar_state_mask(s, mask, vocab.size, &err), err);
            else
                CHECK_MSG((af_grammar_state_accept(s, id, &err) == AF_OK) ==
                              (mask[id / 32] >> (id % 32) & 1),
                          "after %s, token %d", starts[i], (int)id);
            af_grammar_state_free(s);
        }
    }
    af_grammar_close(g);
}

static void test_json_object(void **state)
{
    (void)state;
    af_error err = {0};
    af_grammar *g = NULL;
    CHECK_OK(af_grammar_open(&g, AF_GRAMMAR_JSON_OBJECT, NULL, 0, vocab.vocab, &err), err);
    assert_true(fits(g, "{\"a\": [1, {\"b\": null}], \"c\": \"\\u00e9\"}"));
    assert_false(fits(g, "[]"));
    assert_false(fits(g, "{}x"));
    af_grammar_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_json_object),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_masks_of_long_strings),
        cmocka_unit_test(test_masks_of_unique),
    };
    char path[4096];
    af_error err;
    walk_open(&vocab);
    snprintf(path, sizeof path, "%s/grammar/schemas.json", golden_dir());
    if (af_json_read_file(&golden, path, &err) != AF_OK)
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(golden);
    walk_close(&vocab);
    return failed;
}
