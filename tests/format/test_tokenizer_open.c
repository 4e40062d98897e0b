/* test_tokenizer_open.c - what the reader of tokenizer.json may not depend on: the order of its
 * keys, escapes, the form and the order of the merges, and how many there are. */
#include "test.h"

#include "format/tokenizer/tokenizer.h"

static af_tokenizer *from_text(const char *json, uint64_t n)
{
    af_tokenizer *t = NULL;
    af_error err = {0};
    CHECK_OK(af_tokenizer_from_json(&t, json, n, &err), err);
    return t;
}

static void expect_ids(const char *why, const char *json, const char *text, const char *want)
{
    char got[256] = "";
    af_error err = {0};
    af_encoding e = {0};
    af_tokenizer *t = from_text(json, strlen(json));
    CHECK_OK(af_tokenizer_encode(t, &e, text, strlen(text), false, &err), err);
    for (int64_t i = 0, n = 0; i < e.count; i++)
        n += snprintf(got + n, sizeof got - (size_t)n, "%s%d", i ? " " : "", e.ids[i]);
    CHECK_MSG(strcmp(got, want) == 0, "%s: %s, not %s", why, got, want);
    af_encoding_clear(&e);
    af_tokenizer_close(t);
}

#define VOCAB                                                                                      \
    "\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"bc\":4,\"abc\":5,\"##b\":6,\"\\n\":7,\"a\\n\":" \
    "8}"
#define MERGES "\"merges\":[[\"b\",\"c\"],[\"a\",\"bc\"],[\"a\",\"b\"]]"

static void test_the_order_of_keys_does_not_matter(void **state)
{
    (void)state;
    static const struct {
        const char *why, *json, *text, *want;
    } cases[] = {
        {"as written", "{\"model\":{\"type\":\"BPE\"," VOCAB "," MERGES "}}", "abcab", "5 3"},
        {"merges first", "{\"model\":{" MERGES "," VOCAB ",\"type\":\"BPE\"}}", "abcab", "5 3"},
        {"type last", "{\"model\":{" VOCAB "," MERGES ",\"type\":\"BPE\"}}", "abcab", "5 3"},
        {"no type", "{\"model\":{" VOCAB "," MERGES "}}", "abcab", "5 3"},
        {"blanks",
         "{\"model\":\n\t{" VOCAB ",\r\n         \"merges\" : [ [ \"b\"  ,\n\n\"c\" ] ]} }", "abc",
         "0 4"},
        {"the last merges count", "{\"model\":{" VOCAB "," MERGES ",\"merges\":[[\"a\",\"b\"]]}}",
         "abc", "3 2"},
        {"the last vocabulary counts",
         "{\"model\":{" VOCAB "," MERGES
         ",\"vocab\":{\"a\":9,\"b\":8,\"c\":7,\"bc\":6,\"abc\":5,\"ab\":4}}}",
         "abcab", "5 4"},
        {"elsewhere, bad",
         "{\"x\":{\"vocab\":{\"a\":-1},\"merges\":[1]},\"model\":{" VOCAB "," MERGES "}}", "abcab",
         "5 3"},
        {"elsewhere, good",
         "{\"x\":{\"vocab\":{\"a\":4,\"b\":5,\"ab\":6},\"merges\":[\"a b\"]},\"model\":{" VOCAB
         "," MERGES "}}",
         "abcab", "5 3"},
        {"not of this model",
         "{\"x\":{\"vocab\":{\"a\":4,\"b\":5,\"ab\":6},\"merges\":[\"a b\"]},"
         "\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"ab\":1}}}",
         "ab", "1"},
        {"a prefix before",
         "{\"model\":{\"continuing_subword_prefix\":\"##\"," VOCAB
         ",\"merges\":[[\"a\",\"##b\"]]}}",
         "ab", "3"},
        {"a prefix after",
         "{\"model\":{" VOCAB
         ",\"merges\":[[\"a\",\"##b\"]],\"continuing_subword_prefix\":\"##\"}}",
         "ab", "3"},
        {"strings",
         "{\"model\":{" VOCAB ",\"merges\":[\"#version: 0.2\",\"b c\",\"a bc\",\"a b\"]}}", "abcab",
         "5 3"},
        {"escapes",
         "{\"model\":{" VOCAB
         ",\"merges\":[[\"\\u0062\",\"\\u0063\"],[\"a\",\"\\n\"],[\"a\",\"bc\"]]}}",
         "abca\n", "5 8"},
        {"no merges", "{\"model\":{" VOCAB ",\"merges\":[]}}", "ab", "0 1"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++)
        expect_ids(cases[i].why, cases[i].json, cases[i].text, cases[i].want);
}

static void test_wrong_merges_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"{\"model\":{" VOCAB ",\"merges\":[[\"a\",\"b\"],\"b c\"]}}", "mix strings and pairs"},
        {"{\"model\":{" VOCAB ",\"merges\":[\"b c\",[\"a\",\"b\"]]}}", "mix strings and pairs"},
        {"{\"model\":{" VOCAB ",\"merges\":[[\"a\",\"b\",\"c\"]]}}", "not a pair"},
        {"{\"model\":{" VOCAB ",\"merges\":[[\"a\"]]}}", "not a pair"},
        {"{\"model\":{" VOCAB ",\"merges\":[[\"b\",\"c\"],[\"c\",\"b\"]]}}",
         "merge 1 (\"c\" + \"b\") has a token that is not in the vocabulary"},
        {"{\"model\":{" VOCAB ",\"merges\":[[\"b\",\"c\"]", "JSON: "},
        {"{\"model\":{" VOCAB ",\"merges\":[[\"b\",\"c\\", "JSON: unterminated string"},
        {"{\"model\":{" VOCAB ",\"merges\":[[\"b\",\"c\"]]},\"pre_tokenizer\":{\"type\":\"Cut\"}}",
         "Cut"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        af_tokenizer *t = NULL;
        const af_status st = af_tokenizer_from_json(&t, cases[i].json, strlen(cases[i].json), &err);
        CHECK_MSG(st == AF_EFORMAT || st == AF_EUNSUPPORTED, "case %d: %d", (int)i, (int)st);
        CHECK_MSG(strstr(err.msg, cases[i].says), "case %d: \"%s\"", (int)i, err.msg);
    }
}

/* Tokens of 6 to 17 letters, so that some lie in a slot of the table, some outside, and more merges
 * than there is a table for at first, in both orders: with the results' ids and against them. */
enum { WORDS = 900, SHORTEST = 6, LONGEST = 17, FORMS = LONGEST - SHORTEST + 1 };

static void spell(uint64_t word, char text[LONGEST + 1])
{
    for (uint64_t i = 0; i < LONGEST; i++) /* the first letters tell the words apart */
        text[i] = "abcd"[i < SHORTEST ? word >> 2 * i & 3 : (word * 7 + i * i) % 4];
    text[LONGEST] = 0;
}

static void add_merges(af_buf *json, bool backwards)
{
    char text[LONGEST + 1];
    for (uint64_t k = 0; k < WORDS * (FORMS - 1); k++) {
        const uint64_t at = backwards ? WORDS * (FORMS - 1) - 1 - k : k;
        const int n = SHORTEST + (int)(at % (FORMS - 1));
        spell(at / (FORMS - 1), text);
        af_buf_printf(json, "%s\n [\n  \"%.*s\",\n  \"%c\"\n ]", k ? "," : "", n, text, text[n]);
    }
}

static void check_words(const af_tokenizer *t)
{
    char text[LONGEST + 1];
    for (int32_t w = 0; w < WORDS; w++) {
        spell((uint64_t)w, text);
        for (int n = SHORTEST; n <= LONGEST; n++) {
            const int32_t id = 4 + w * FORMS + n - SHORTEST;
            assert_true(af_vocab_find(&t->vocab, text, (uint64_t)n) == id);
            const af_merge_slot *m =
                n < LONGEST ? af_merges_get(&t->model, id, text[n] - 'a') : NULL;
            assert_true(n == LONGEST || (m && m->id == id + 1));
        }
    }
    assert_true(af_vocab_find(&t->vocab, "abcdabcdabcdabcdabcd", 20) == -1);
    assert_true(!af_merges_get(&t->model, 0, 1));
}

static void test_every_token_and_merge_is_found(void **state)
{
    (void)state;
    char text[LONGEST + 1];
    for (int backwards = 0; backwards < 2; backwards++) {
        af_buf json = {0};
        int32_t id = 4;
        af_buf_str(&json, "{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"d\":3");
        for (uint64_t w = 0; w < WORDS; w++) {
            spell(w, text);
            for (int n = SHORTEST; n <= LONGEST; n++, id++)
                af_buf_printf(&json, ",\n      \"%.*s\": %d", n, text, (int)id);
        }
        af_buf_str(&json, "},\n\"merges\":[");
        add_merges(&json, backwards);
        af_buf_str(&json, "]}}");
        af_tokenizer *t = from_text(json.data, json.len);
        assert_true(t->model.early_merges);
        check_words(t);
        af_tokenizer_close(t);
        af_buf_clear(&json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_order_of_keys_does_not_matter),
        cmocka_unit_test(test_wrong_merges_are_refused),
        cmocka_unit_test(test_every_token_and_merge_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
