/* test_gbnf.c - rules in GBNF: what fits, what is refused, and bounds on hostile rules. */
#include "grammar_walk.h"

static walk_vocab vocab;

static af_status open_rules(af_grammar **g, const char *rules, af_error *err)
{
    return af_grammar_open(g, AF_GRAMMAR_GBNF, rules, strlen(rules), vocab.vocab, err);
}

static bool fits(af_grammar *g, const char *text)
{
    af_error err;
    bool yes = false;
    CHECK_OK(af_grammar_matches(g, text, strlen(text), &yes, &err), err);
    return yes;
}

typedef struct gbnf_case {
    const char *rules, *good[6], *bad[6];
} gbnf_case;

static const gbnf_case cases[] = {
    {"root ::= \"yes\" | \"no\"", {"yes", "no"}, {"", "y", "yesno", "yess"}},
    {"root ::= [a-c]+ \"-\" [^0-9]?", {"a-", "abc-x", "c-\xc3\xa9"}, {"-", "d-", "a-1", "a-xy"}},
    {"root ::= \"x\"{3}", {"xxx"}, {"xx", "xxxx"}},
    {"root ::= \"x\"{2,}", {"xx", "xxxxx"}, {"x", ""}},
    {"root ::= (\"x\" | \"yz\"){1,3}", {"x", "yzx", "yzyzyz"}, {"", "xxxx", "y"}},
    {"root ::= [a]{0,2} \"b\"", {"b", "ab", "aab"}, {"aaab", "a"}},
    {"root ::= \"\\x41\\u00e9\\U0001F600\\n\\t\\\"\\\\\"",
     {"A\xc3\xa9\xf0\x9f\x98\x80\n\t\"\\"},
     {"A"}},
    {"root ::= [\\u0400-\\u04ff]+ # letters\n", {"\xd0\xb0\xd1\x8f"}, {"a", "\xd0"}},
    {"root ::= .", {"a", "\xe2\x82\xac", "\n"}, {"ab", "", "\xe2\x82", "\xff"}},
    {"root ::= list\nlist ::= item (\",\" item)*\nitem ::= [0-9] | \"(\" list \")\"",
     {"1", "1,2", "(1,(2,3)),4"},
     {"(1", "1,", "()"}},
    {"root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"",
     {"", "aabc", "aaabcb"},
     {"a", "ab c", "aab"}},
    {"root ::=\n  \"a\"\n  | \"b\"\n\n# end", {"a", "b"}, {"ab"}},
    {"root ::= a b c\na ::= \"x\"?\nb ::= a a\nc ::= \"y\"*",
     {"", "xxx", "xy", "yy"},
     {"xxxx", "yx"}},
    {"root ::= \"k\" tail\ntail ::= \"k\" tail | \"!\"", {"k!", "kkkkkkkk!"}, {"k", "!"}},
    {"root ::= ([a-z] | [0-9])* \"[\" \"]\" [\\]\\-^]", {"a1[]]", "[]-", "[]^"}, {"[]a"}},
};

static void test_fits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        af_error err;
        af_grammar *g = NULL;
        CHECK_OK(open_rules(&g, cases[i].rules, &err), err);
        for (int k = 0; k < 6 && cases[i].good[k]; k++)
            CHECK_MSG(fits(g, cases[i].good[k]), "%s: '%s' must fit", cases[i].rules,
                      cases[i].good[k]);
        for (int k = 0; k < 6 && cases[i].bad[k]; k++)
            CHECK_MSG(!fits(g, cases[i].bad[k]), "%s: '%s' must not fit", cases[i].rules,
                      cases[i].bad[k]);
        uint64_t seed = 77 + i;
        af_buf text = {0};
        int ended = 0;
        for (int k = 0; k < 40; k++)
            if (walk_answer(&vocab, g, &seed, 60, &text)) {
                ended++;
                CHECK_MSG(fits(g, text.data), "%s: made '%s'", cases[i].rules, text.data);
            }
        assert_true(ended > 10);
        af_buf_clear(&text);
        af_grammar_close(g);
    }
}

static void test_refused(void **state)
{
    static const char *const rules[][2] = {
        {"", "no rule 'root'"},
        {"rot ::= \"a\"", "no rule 'root'"},
        {"root ::= \"a", "closing '\"'"},
        {"root ::= [a", "closing ']'"},
        {"root ::= [b-a]", "ends before it begins"},
        {"root ::= (\"a\"", "')' is expected"},
        {"root ::= b", "line 1: rule 'b' is not defined"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2: rule 'root' is defined twice"},
        {"root ::= root \"a\" | \"a\"", "rule 'root' of the grammar refers to itself"},
        {"root ::= a \"x\"\na ::= b? root | \"q\"\nb ::= \"b\"", "refers to itself"},
        {"root ::= \"a\" root", "no text fits"},
        {"root ::= []", "no text fits"},
        {"root ::= \"\\q\"", "unknown escape '\\q'"},
        {"root ::= \"\\ud800\"", "not a character"},
        {"root ::= \"a\"{3,2}", "at least 3 and at most 2"},
        {"root ::= \"a\"{99999999}", "too large"},
        {"root ::= ((\"a\"{4000}){4000}){4000} )", "unexpected ')'"},
        {"root = \"a\"", "'::=' is expected"},
        {"root ::= \"a\" ; \"b\"", "unexpected ';'"},
        {"root ::= \"a\"{2", "'}' is expected"},
        {"root ::= \"\xff\"", "not UTF-8"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        af_error err = {0};
        af_grammar *g = NULL;
        const af_status st = open_rules(&g, rules[i][0], &err);
        af_grammar_close(st == AF_OK ? g : NULL);
        CHECK_MSG(st != AF_OK && strstr(err.msg, rules[i][1]), "%s: %s", rules[i][0], err.msg);
    }
}

/* Nothing hangs: nested parentheses, empty rules without end, readings without end. */
static void test_hostile(void **state)
{
    (void)state;
    af_error err = {0};
    af_grammar *g = NULL;
    af_buf b = {0};
    af_buf_str(&b, "root ::= ");
    for (int i = 0; i < 100000; i++)
        af_buf_char(&b, '(');
    assert_int_equal(open_rules(&g, b.data, &err), AF_EFORMAT);
    assert_non_null(strstr(err.msg, "nested more than 200"));
    b.len = 0;
    af_buf_str(&b, "root ::= a0 \"x\"\n"); /* 2^60 empty readings */
    for (int i = 0; i < 60; i++)
        af_buf_printf(&b, "a%d ::= a%d a%d \"y\"?\n", i, i + 1, i + 1);
    af_buf_str(&b, "a60 ::= \"z\"?\n");
    assert_int_equal(open_rules(&g, b.data, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "too ambiguous"));
    b.len = 0; /* 2^n stacks after n letters: an error of the walk */
    CHECK_OK(open_rules(&g, "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"d\"", &err), err);
    bool yes;
    for (int i = 0; i < 40; i++)
        af_buf_char(&b, 'a');
    assert_int_equal(af_grammar_matches(g, b.data, b.len, &yes, &err), AF_EUSAGE);
    af_grammar_close(g);
    /* a deep stack is fine, and so are the tables that it fills */
    CHECK_OK(open_rules(&g, "root ::= \"(\" root \")\" | [a-z]", &err), err);
    b.len = 0;
    for (int i = 0; i < 300000; i++)
        af_buf_char(&b, i < 150000 ? '(' : i == 150000 ? 'a' : ')');
    af_buf_char(&b, ')');
    CHECK_OK(af_grammar_matches(g, b.data, b.len, &yes, &err), err);
    assert_true(yes);
    af_grammar_close(g);
    af_buf_clear(&b);
}

static void test_states(void **state)
{
    (void)state;
    af_error err = {0};
    af_grammar *g = NULL;
    af_grammar_state *s = NULL;
    uint32_t mask[64];
    CHECK_OK(open_rules(&g, "root ::= \"ab\" \"c\"?", &err), err);
    CHECK_OK(af_grammar_state_new(&s, g, &err), err);
    const int32_t a = af_tokenizer_id(vocab.tokenizer, "a", 1);
    const int32_t abc = af_tokenizer_id(vocab.tokenizer, "abc", 3);
    CHECK_OK(af_grammar_state_mask(s, mask, vocab.size, &err), err);
    int n = 0;
    for (int32_t id = 0; id < vocab.size; id++)
        n += mask[id / 32] >> (id % 32) & 1;
    assert_int_equal(n, 3); /* a, ab, abc */
    assert_int_equal(af_grammar_state_accept(s, vocab.eos, &err), AF_EUSAGE);
    assert_int_equal(af_grammar_state_accept(s, 'z', &err), AF_EUSAGE);
    assert_int_equal(af_grammar_state_accept(s, -1, &err), AF_EUSAGE);
    assert_int_equal(af_grammar_state_accept(s, 1 << 30, &err), AF_EUSAGE);
    assert_false(af_grammar_state_can_end(s));
    CHECK_OK(af_grammar_state_accept(s, abc, &err), err);
    assert_true(af_grammar_state_can_end(s));
    assert_true(af_grammar_state_must_end(s));
    CHECK_OK(af_grammar_state_mask(s, mask, vocab.size, &err), err);
    for (int32_t id = 0; id < vocab.size; id++)
        assert_int_equal(mask[id / 32] >> (id % 32) & 1, id == vocab.eos);
    assert_int_equal(af_grammar_state_mask(s, mask, vocab.eos, &err), AF_EUSAGE); /* no id left */
    CHECK_OK(af_grammar_state_accept(s, vocab.eos, &err), err);
    assert_int_equal(af_grammar_state_accept(s, a, &err), AF_EUSAGE);
    CHECK_OK(af_grammar_state_mask(s, mask, vocab.size, &err), err);
    af_grammar_state_free(s);
    af_grammar_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fits),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_states),
    };
    walk_open(&vocab);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    walk_close(&vocab);
    return failed;
}
