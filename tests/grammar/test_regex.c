/* test_regex.c - regular expressions as grammars: the whole text fits, or it does not. */
#include "grammar_walk.h"

static walk_vocab vocab;

static af_status open_regex(af_grammar **g, const char *regex, af_error *err)
{
    return af_grammar_open(g, AF_GRAMMAR_REGEX, regex, strlen(regex), vocab.vocab, err);
}

static bool fits(af_grammar *g, const char *text)
{
    af_error err;
    bool yes = false;
    CHECK_OK(af_grammar_matches(g, text, strlen(text), &yes, &err), err);
    return yes;
}

static const struct {
    const char *regex, *good[6], *bad[6];
} cases[] = {
    {"yes|no", {"yes", "no"}, {"", "yesno", "ayes", "yess"}},
    {"[a-c]{2}", {"ab", "cc"}, {"a", "abc", "xab", "abx"}},
    {"^\\d{3}-\\d+$", {"123-4", "000-12"}, {"123-", "1123-4", "123-4 "}},
    {"(?:a|b)*c?", {"", "c", "abab", "abc"}, {"ca", "cc", "d"}},
    {"\"\\\\n\"", {"\"\\n\""}, {"\\n", "\"\n\""}}, /* bytes as they are, not as JSON has them */
    {"a\\nb", {"a\nb"}, {"a\\nb"}},
    {"\\w+@\\w+\\.com", {"ab@c.com"}, {"@c.com", "ab@c.com.", "a b@c.com"}},
    {"[^a-z]", {"A", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}, {"a", "AB", "\xe2\x82"}},
    {"", {""}, {"a"}},
    {"^(?!ab|bc$)(?=.*c)[a-c]{2,3}", {"ac", "bcb", "cc"}, {"abc", "bc", "aa", "ca "}},
    {"^(?!yes$).{3}", {"yex", "no."}, {"yes", "yess", "no"}},
    {"\\p{L}[\\p{Ll}\\p{Nd}'-]*", {"A", "\xc3\x89t\xc3\xa9", "O'l-\xd9\xa1"}, {"", "1", "AB", "_"}},
    {"\\pL[^\\P{Number}][^\\p{P}\\pZ\\pC]",
     {"a1b", "\xce\xb1"
             "1$"},
     {"ab1", "1.a", "a1.", "a1 "}},
    {"[\\p{Script=Greek}\\p{sc=Han}]+\\p{Sc}?",
     {"\xce\xb1\xe4\xb8\xad", "\xce\xb1$"},
     {"a", "\xce\xb1_"}},
    {"\\p{Separator}\\p{Symbol}\\p{Mark}*", {" $", " +\xcc\x81"}, {"$$", " a", "_$"}},
    {"^(?![\\s\\d]+$).*", {"a", "a1", ""}, {" ", "1 2", "\xc2\xa0"}},
    {"(^a)|b$", {"a", "b"}, {"ab", "aa"}},
    {"^(?!\\d+$).+", {"\xe4\xbd\xa0\xe5\xa5\xbd", "1a"}, {"12", "\xd9\xa1"}}, /* CJK, Nd */
    {"\\p{gc=Lu}\\p{General_Category=Nd}", {"A1"}, {"a1", "AA"}},
    /* U+0378 has no category: engines of another version may know one */
    {"^(?=[!-\\u{10ffff}]+$)\\P{L}\\PN[^\\p{L}]\\pC?",
     {"1a1", "$$$\xc2\xad"},
     {"\xcd\xb8$$", "$\xcd\xb8$", "$$\xcd\xb8", "$$$\xcd\xb8"}},
    {"^(?=[!-\\u{10ffff}]+$)\\P{sc=Han}", {"a"}, {"\xcd\xb8", "\xe4\xbd\xa0"}},
    {"^(?!\\p{L}+$).+", {"1", "a1"}, {"\xcd\xb8", "a"}},
};

static void test_fits(void **state)
{
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err;
        af_grammar *g = NULL;
        uint64_t seed = 5 + i;
        af_buf text = {0};
        int ended = 0;
        CHECK_OK(open_regex(&g, cases[i].regex, &err), err);
        for (int k = 0; k < 6 && cases[i].good[k]; k++)
            CHECK_MSG(fits(g, cases[i].good[k]), "%s: '%s' must fit", cases[i].regex,
                      cases[i].good[k]);
        for (int k = 0; k < 6 && cases[i].bad[k]; k++)
            CHECK_MSG(!fits(g, cases[i].bad[k]), "%s: '%s' must not fit", cases[i].regex,
                      cases[i].bad[k]);
        for (int k = 0; k < 20; k++)
            if (walk_answer(&vocab, g, &seed, 60, &text)) {
                ended++;
                CHECK_MSG(fits(g, text.data), "%s: made '%s'", cases[i].regex, text.data);
            }
        assert_true(ended > 5);
        af_buf_clear(&text);
        af_grammar_close(g);
    }
}

static void test_refused(void **state)
{
    static const char *const wrong[][2] = {
        {"(a", "pattern '(a'"},
        {"a)", "unexpected ')' at byte 1"},
        {"a{2,1}", "at byte"},
        {"(?=a)b", "at byte"},
        {"(a)\\1", "at byte"},
        {"a^b", "no text fits"},
        {"a{,3}", "write {0,n}"},
        {"\xff", "not UTF-8"},
        {"((a{999}){999}){999}", "too"},
        {"\\p{foo=L}", "not supported"},
        {"\\p{gc=Han}", "not supported"},
        {"\\p{Script=Lu}", "not supported"},
        {"\\p{scx=Greek}", "not supported"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(wrong); i++) {
        af_error err = {0};
        af_grammar *g = NULL;
        const af_status st = open_regex(&g, wrong[i][0], &err);
        af_grammar_close(st == AF_OK ? g : NULL);
        CHECK_MSG(st != AF_OK && strstr(err.msg, wrong[i][1]), "%s: %s", wrong[i][0], err.msg);
    }
}

/* A byte 0 after a backslash is no letter of a class. */
static void test_zero(void **state)
{
    af_error err = {0};
    af_grammar *g = NULL;
    (void)state;
    assert_int_not_equal(af_grammar_open(&g, AF_GRAMMAR_REGEX, "[\\\0]", 4, vocab.vocab, &err),
                         AF_OK);
    assert_null(strstr(err.msg, "class"));
}

/* Classes of hundreds of ranges, or that are looked for in thousands: an error soon. */
static void test_many_ranges(void **state)
{
    static const char *const class[] = {"\\pL", "\\p{Zl}"};
    (void)state;
    for (size_t k = 0; k < AF_LEN(class); k++) {
        af_buf b = {0};
        af_error err = {0};
        af_grammar *g = NULL;
        af_buf_char(&b, '[');
        for (int i = 0; i < 20000; i++)
            af_buf_str(&b, class[k]);
        af_buf_char(&b, ']');
        assert_int_equal(af_grammar_open(&g, AF_GRAMMAR_REGEX, b.data, b.len, vocab.vocab, &err),
                         AF_EUSAGE);
        assert_non_null(strstr(err.msg, "too many ranges"));
        af_buf_clear(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fits),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_zero),
        cmocka_unit_test(test_many_ranges),
    };
    walk_open(&vocab);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    walk_close(&vocab);
    return failed;
}
