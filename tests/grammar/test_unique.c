/* test_unique.c - arrays whose items are all different and objects whose keys are: what may come
 * next, answers under the masks (a mask is never empty), and what no array could fill. */
#include "grammar_walk.h"

#include "grammar/unique.h"

static walk_vocab vocab;

#define UNIQUE "\"type\":\"array\",\"uniqueItems\":true,"
#define LISTS                                                                                      \
    "{" UNIQUE "\"items\":{\"type\":\"array\",\"minItems\":1,\"maxItems\":1,\"items\":{\"type\":"  \
    "\"number\",\"minimum\":0,\"maximum\":2,\"multipleOf\":0.5}}}"
#define PRICES                                                                                     \
    "{" UNIQUE "\"items\":{\"type\":\"object\",\"required\":[\"price\"],\"properties\":{"          \
    "\"price\":{\"type\":\"number\",\"multipleOf\":0.01}},\"additionalProperties\":false}}"
#define KEYS                                                                                       \
    "{" UNIQUE "\"items\":{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[ab]$\"},"        \
    "\"additionalProperties\":{\"const\":1},\"maxProperties\":2}}"
#define PAIR "{" UNIQUE "\"prefixItems\":[{\"enum\":[1,2]},{\"const\":1}],\"minItems\":2}"
#define THREE                                                                                      \
    "{" UNIQUE "\"prefixItems\":[{\"type\":\"string\"},{\"const\":\"a\"},{\"type\":\"string\","    \
    "\"pattern\":\"^a?$\"}],\"items\":false,\"minItems\":3}"
#define EITHER                                                                                     \
    "{\"anyOf\":[{" UNIQUE "\"items\":{\"type\":\"string\"}},{\"type\":\"array\",\"items\":{"      \
    "\"const\":1},\"minItems\":2}]}"
#define EITHER_ENUM                                                                                \
    "{\"anyOf\":[{" UNIQUE "\"items\":{\"enum\":[\"a\",\"b\"]},\"minItems\":2},{\"type\":"         \
    "\"array\",\"items\":{\"const\":\"a\"},\"minItems\":3}]}"
#define NUMBERS "{" UNIQUE "\"items\":{\"type\":\"number\"}}"
#define LARGE   "{" UNIQUE "\"items\":{\"enum\":[1,1e16]},\"minItems\":2}"
#define SMALL_LISTS                                                                                \
    "{" UNIQUE "\"items\":{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"maxItems\":1},"   \
    "\"minItems\":3}"
#define INTEGERS "{" UNIQUE "\"items\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}}"
#define ANY      "{\"type\":\"array\",\"uniqueItems\":true}"
#define PATTERNS                                                                                   \
    "{\"type\":\"object\",\"patternProperties\":{\"^[ab]$\":{\"const\":1}},"                       \
    "\"additionalProperties\":false}"
#define NAMED                                                                                      \
    "{\"type\":\"object\",\"properties\":{\"n\":{}},\"additionalProperties\":{\"type\":"           \
    "\"integer\"}}"
#define OPEN "{\"type\":\"object\"}"
#define EITHER_OPEN                                                                                \
    "{\"anyOf\":[{\"type\":\"object\",\"additionalProperties\":{\"const\":1}},{\"type\":"          \
    "\"object\",\"properties\":{\"a\":{\"const\":1},\"ab\":{\"const\":2}}}]}"

/* Which of the bytes `of` fit after a beginning. */
static const struct {
    const char *schema, *begin, *of, *fit;
} nexts[] = {
    {LISTS, "[[1],[1", "0.],", "."}, /* numbers have one spelling: 1.0 would be a dead end */
    {LISTS, "[[1],[1.", "05", "5"},
    {LISTS, "[[1],[1.5", "05],", "]"},
    {PRICES, "[{\"price\":1.5},{\"price\":1.5", "05}", "5"},
    {KEYS, "[{\"a\":1,\"b\":1},{\"b\":1", ",}", "}"}, /* another order is the same object */
    {KEYS, "[{\"a\":1},{\"a\":1", ",}", ","},
    {KEYS, "[{\"a\":1,\"b\":1},{\"a\":1", ",}", "}"}, /* it has one property less */
    {KEYS, "[{\"a\":1},{\"a\":1,\"", "ab", "b"},      /* a key comes once */
    {PAIR, "[", "12", "2"},                           /* 1 is needed later */
    {THREE, "[\"", "a\"b", "ab"},
    {THREE, "[\"a", "\"b", "b"},
    {THREE, "[\"", "\"", ""},
    {EITHER, "[1", ",]", ","}, /* items may come again in the second reading */
    {EITHER, "[1,1", ",]", ",]"},
    {EITHER, "[\"a\",\"a", "\"b", "b"},
    {EITHER_ENUM, "[\"a\",\"", "ab", "ab"},
    {EITHER_ENUM, "[\"b\",\"", "ab", "a"},
    {EITHER_ENUM, "[\"a\",\"a\"", ",]", ","},
    {NUMBERS, "[0.3,0.3", "0,]e", "0"},
    {NUMBERS, "[0.3,0.30000000000000", "01", ""},
    {LARGE, "[1", ",]0", ",0"},
    {LARGE, "[10000000000000000,", "1", "1"},
    {SMALL_LISTS, "[[true],[],[", "tf]", "f"},
    {ANY, "[{\"\\u0000\":1},{\"\\u0000\":1", "},2", ",2"},
    {INTEGERS, "[[9007199254740993],[9007199254740992", "],", "],"},
    {INTEGERS, "[[9007199254740993],[9007199254740993", "],", ","},
    {ANY, "[[{\"a\":1,\"b\":[1.5]}],[{\"b\":[1.5],\"a\":1}", ",]", ","},
    {PATTERNS, "{\"a\":1", ",}", ",}"},
    {PATTERNS, "{\"a\":1,\"", "ab", "b"},
    {PATTERNS, "{\"b\":1,\"a\":1", ",}", "}"}, /* no key is left */
    {OPEN, "{\"\\u00e9\":1, \"\xc3\xa9", "\"x", "x"},
    {NAMED, "{\"n\":{\"k\":1},\"k", "\"x", "\"x"}, /* that of an object inside is another */
    {NAMED, "{\"n\":1,\"n", "\"x", "x"},
    {NAMED, "{\"n\":1,\"k\":1,\"k", "\"x", "x"},
    {NAMED, "{\"n\":[{\"k\":1},{\"k\":1,\"k", "\"x", "x"},
    {OPEN, "{\"\":1,\"", "\"x", "x"},
    {OPEN, "{\"a\":\"{\",\"ab\":[\"\\\"\"],\"a", "\"bc", "bc"},
    {EITHER_OPEN, "{\"a\":1,\"a", "\"b", "b"}, /* the second one has "ab" next */
    {EITHER_OPEN, "{\"a\":1,\"ab\":", "12", "12"},
};

static void test_next_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < AF_LEN(nexts); i++) {
        const char *schema = nexts[i].schema;
        af_error err;
        af_grammar *g = NULL;
        af_grammar_state *s = NULL;
        uint32_t mask[64] = {0};
        CHECK_OK(
            af_grammar_open(&g, AF_GRAMMAR_JSON_SCHEMA, schema, strlen(schema), vocab.vocab, &err),
            err);
        CHECK_OK(af_grammar_state_new(&s, g, &err), err);
        bool fits = true;
        for (const char *c = nexts[i].begin; *c && fits; c++) {
            fits = af_grammar_state_accept(s, (uint8_t)*c, &err) == AF_OK;
            CHECK_MSG(fits || !nexts[i].fit[0], "%s: %s", schema, nexts[i].begin);
        }
        if (fits)
            CHECK_OK(af_grammar_state_mask(s, mask, vocab.size, &err), err);
        for (const char *c = nexts[i].of; *c; c++)
            CHECK_MSG((mask[*c / 32] >> (*c % 32) & 1) == (strchr(nexts[i].fit, *c) != NULL),
                      "%s: %s and then %c", schema, nexts[i].begin, *c);
        af_grammar_state_free(s);
        af_grammar_close(g);
    }
}

static const char *const walked[] = {
    LISTS,
    PRICES,
    KEYS,
    PAIR,
    THREE,
    EITHER,
    EITHER_ENUM,
    NUMBERS,
    LARGE,
    SMALL_LISTS,
    ANY,
    "{" UNIQUE "\"prefixItems\":[{\"enum\":[1,2,3]},{\"enum\":[1,2]},{\"enum\":[2,3]}],"
    "\"minItems\":3}",
    "{" UNIQUE "\"items\":{\"type\":\"string\",\"pattern\":\"^[ab]{0,2}$\"},\"minItems\":7}",
    "{" UNIQUE "\"items\":{\"type\":[\"null\",\"boolean\"]},\"minItems\":3}",
    "{" UNIQUE "\"items\":{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[abc]$\"},"
    "\"additionalProperties\":{\"enum\":[1,2]}}}",
    "{" UNIQUE "\"items\":{" UNIQUE "\"items\":{\"enum\":[1,2]},\"minItems\":1}}",
    "{" UNIQUE "\"items\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"boolean\"},\"b\":{"
    "\"const\":0}},\"required\":[\"a\"]},\"minItems\":4}",
    "{" UNIQUE "\"prefixItems\":[{\"type\":\"integer\",\"minimum\":0,\"maximum\":3},{\"type\":"
    "\"string\",\"maxLength\":1},{\"type\":\"string\"}],\"items\":{\"const\":0},\"minItems\":4}",
    /* the second item may be any integer, and the third takes 1 */
    "{" UNIQUE "\"prefixItems\":[{\"type\":\"integer\",\"minimum\":0,\"maximum\":2},{\"type\":"
    "\"integer\"}],\"items\":{\"const\":1},\"minItems\":3}",
    "{" UNIQUE "\"items\":{\"enum\":[10000000000000000,1e16,-0.0,0,1e-7,1e300,\"\\u001f\"]}}",
    PATTERNS,
    NAMED,
    OPEN,
    EITHER_OPEN,
    "{\"type\":\"array\",\"minItems\":2,\"items\":{\"type\":\"object\",\"propertyNames\":{"
    "\"pattern\":\"^[ab]{0,2}$\"},\"additionalProperties\":{\"const\":1},\"minProperties\":1}}",
};

static void test_answers(void **state)
{
    (void)state;
    af_buf text = {0};
    for (size_t i = 0; i < AF_LEN(walked); i++) {
        af_error err;
        af_grammar *g = NULL;
        uint64_t seed = 77 + i;
        int ended = 0;
        CHECK_OK(af_grammar_open(&g, AF_GRAMMAR_JSON_SCHEMA, walked[i], strlen(walked[i]),
                                 vocab.vocab, &err),
                 err);
        for (int k = 0; k < 40; k++) {
            if (!walk_answer(&vocab, g, &seed, 120, &text))
                continue;
            ended++;
            json_t *v = af_json_load(text.data, text.len,
                                     JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, NULL);
            CHECK_MSG(v, "%s: made '%s'", walked[i], text.data);
            for (size_t a = 0;
                 a < json_array_size(v) && strstr(walked[i], UNIQUE) && !strstr(walked[i], "anyOf");
                 a++)
                for (size_t b = 0; b < a; b++)
                    CHECK_MSG(!json_equal(json_array_get(v, a), json_array_get(v, b)),
                              "%s: made '%s'", walked[i], text.data);
            json_decref(v);
        }
        CHECK_MSG(ended > 5, "%s: %d answers ended", walked[i], ended);
        af_grammar_close(g);
    }
    af_buf_clear(&text);
}

/* Masks where keys may be repeated: what accept takes, and no other token. */
static void test_masks_of_keys(void **state)
{
    static const char *const schemas[] = {OPEN, NAMED, PATTERNS, EITHER_OPEN, KEYS, "{}"};
    static const char *const starts[] = {"{\"a\":1",
                                         "{\"a\":1,",
                                         "{\"a\":1, \"",
                                         "{\"a\":1,\"a",
                                         "{\"a\":1,\"ab\":1,\"a",
                                         "{\"b\":1,\"a\":1",
                                         "{\"n\":{\"a\":\"x",
                                         "{\"n\":{\"a\":1},",
                                         "{\"n\":[{\"b\":1},{\"a\":1",
                                         "{\"n\":{\"a\":1,\"b\":[1",
                                         "[{\"a\":1},{\"b\":1",
                                         "[{\"a\":1},{\"b\":1,\"",
                                         "{\"a\":\"\\",
                                         "{\"a\":1,\"\\u00"};
    (void)state;
    int taken = 0;
    for (size_t i = 0; i < AF_LEN(schemas) * AF_LEN(starts); i++) {
        const char *schema = schemas[i / AF_LEN(starts)], *start = starts[i % AF_LEN(starts)];
        uint32_t mask[64];
        af_error err;
        af_grammar *g = NULL;
        CHECK_OK(
            af_grammar_open(&g, AF_GRAMMAR_JSON_SCHEMA, schema, strlen(schema), vocab.vocab, &err),
            err);
        bool fits = true;
        for (int32_t id = -1; id < vocab.size && fits; id++) {
            af_grammar_state *s = NULL;
            CHECK_OK(af_grammar_state_new(&s, g, &err), err);
            for (const char *c = start; *c && fits; c++)
                fits = af_grammar_state_accept(s, (uint8_t)*c, &err) == AF_OK;
            if (fits && id < 0)
                CHECK_OK(af_grammar_state_mask(s, mask, vocab.size, &err), err);
            else if (fits)
                CHECK_MSG((af_grammar_state_accept(s, id, &err) == AF_OK) ==
                              (mask[id / 32] >> (id % 32) & 1),
                          "%s: after %s, token %d", schema, start, (int)id);
            af_grammar_state_free(s);
        }
        taken += fits;
        af_grammar_close(g);
    }
    assert_true(taken > 30);
}

/* Fewer values than items, which is known when the schema is compiled. */
static void test_no_room(void **state)
{
    static const char *const schemas[] = {
        "{" UNIQUE "\"items\":{\"type\":\"boolean\"},\"minItems\":3}",
        "{" UNIQUE "\"items\":{\"type\":\"null\"},\"minItems\":2}",
        "{" UNIQUE "\"items\":{\"enum\":[1,1.0]},\"minItems\":2}",
        "{" UNIQUE "\"items\":{\"enum\":[[1,{\"a\":2}],[1.0,{\"a\":2.0}]]},\"minItems\":2}",
        "{" UNIQUE "\"items\":{\"anyOf\":[{\"enum\":[1,2]},{\"enum\":[2,1]}]},\"minItems\":3}",
        "{" UNIQUE "\"items\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":3},\"minItems\":4}",
        "{" UNIQUE "\"items\":{\"type\":\"number\",\"minimum\":0,\"exclusiveMaximum\":1,"
        "\"multipleOf\":0.25},\"minItems\":5}",
        "{" UNIQUE "\"items\":{\"type\":\"string\",\"pattern\":\"^[ab]{0,2}$\"},\"minItems\":8}",
        "{" UNIQUE "\"items\":{\"type\":\"string\",\"maxLength\":0},\"minItems\":2}",
        "{" UNIQUE "\"prefixItems\":[{\"enum\":[1,2]},{\"enum\":[1,2]},{\"enum\":[1,2]}],"
        "\"minItems\":3}",
        "{" UNIQUE "\"prefixItems\":[{\"type\":\"string\"}],\"items\":{\"const\":1},"
        "\"minItems\":3}",
        "{" UNIQUE "\"items\":{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"maxItems\":1},"
        "\"minItems\":4}",
        "{" UNIQUE "\"items\":{" UNIQUE
        "\"items\":{\"enum\":[1,2]},\"minItems\":1},\"minItems\":5}",
        "{" UNIQUE "\"items\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"boolean\"},"
        "\"b\":{\"const\":0}},\"required\":[\"a\"]},\"minItems\":5}",
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(schemas); i++) {
        af_error err = {0};
        af_grammar *g = NULL;
        const af_status st = af_grammar_open(&g, AF_GRAMMAR_JSON_SCHEMA, schemas[i],
                                             strlen(schemas[i]), vocab.vocab, &err);
        CHECK_MSG(st == AF_EUSAGE && strstr(err.msg, "no text fits"), "%s: %s", schemas[i],
                  st ? err.msg : "taken");
    }
}

/* Of many values of an enum all but one are used: what is left is found. */
static void test_last_of_many(void **state)
{
    /* the last one begins with 1, ten thousand others with 0 (a thousand under a sanitizer) */
    const int count = test_sanitized ? 1010 : 10100, digits = test_sanitized ? 4 : 5;
    (void)state;
    af_error err;
    af_grammar *g = NULL;
    af_grammar_state *s = NULL;
    uint32_t mask[64];
    json_t *values = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(values, json_sprintf("%0*d", digits, (i * 1009 + 1004) % count));
    json_t *schema = json_pack("{s:s, s:b, s:{s:o}}", "type", "array", "uniqueItems", 1, "items",
                               "enum", values);
    CHECK_OK(walk_schema(&g, &vocab, schema, &err), err);
    CHECK_OK(af_grammar_state_new(&s, g, &err), err);
    for (int i = 0; i < count; i++) {
        const char *one = i < count - 1 ? json_string_value(json_array_get(values, (size_t)i)) : "";
        char text[16];
        snprintf(text, sizeof text, "%c\"%s%s", i ? ',' : '[', one, i < count - 1 ? "\"" : "");
        for (const char *c = text; *c; c++)
            CHECK_OK(af_grammar_state_accept(s, (uint8_t)*c, &err), err);
    }
    const char *last = json_string_value(json_array_get(values, count - 1));
    for (; *last; last++) {
        CHECK_OK(af_grammar_state_mask(s, mask, vocab.size, &err), err);
        for (int c = '0'; c <= '9'; c++)
            assert_int_equal(mask[c / 32] >> (c % 32) & 1, c == *last);
        CHECK_OK(af_grammar_state_accept(s, (uint8_t)*last, &err), err);
    }
    af_grammar_state_free(s);
    af_grammar_close(g);
    json_decref(schema);
}

/* Values of which the second may be cut off: properties in any order, and as many. */
static void test_compare(void **state)
{
    static const struct {
        const char *whole, *part;
        af_unique_match want;
    } pairs[] = {
        {"{\"a\":1,\"b\":2},", "{\"b\":2,\"a\":1}", AF_UNIQUE_SAME},
        {"{\"a\":1,\"b\":2},", "{\"b\":2,", AF_UNIQUE_PART},
        {"{\"a\":1,\"b\":2},", "{\"b\":2}", AF_UNIQUE_OTHER},
        {"{\"a\":1},", "{\"a\":1,\"b\":2}", AF_UNIQUE_OTHER},
        {"[{\"a\":[1,2]}],", "[{\"a\":[1", AF_UNIQUE_PART},
        {"[1,2],", "[1]", AF_UNIQUE_OTHER},
        {"12,", "1", AF_UNIQUE_PART},
        {"12,", "123", AF_UNIQUE_OTHER},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(pairs); i++)
        CHECK_MSG(af_unique_compare(pairs[i].whole, pairs[i].part, strlen(pairs[i].part)) ==
                      pairs[i].want,
                  "%s and %s", pairs[i].whole, pairs[i].part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compare), cmocka_unit_test(test_next_bytes),
        cmocka_unit_test(test_answers), cmocka_unit_test(test_masks_of_keys),
        cmocka_unit_test(test_no_room), cmocka_unit_test(test_last_of_many),
    };
    walk_open(&vocab);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    walk_close(&vocab);
    return failed;
}
