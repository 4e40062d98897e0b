/* test_word.c - the edit distance used for "did you mean". */
#include "base/base.h"
#include "base/word.h"
#include "test.h"

static void counts_edits(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        int d;
    } cases[] = {{"", "", 0},         {"", "abc", 3},       {"lora", "lora", 0},
                 {"lroa", "lora", 1}, {"lor", "lora", 1},   {"kitten", "sitting", 3},
                 {"ca", "abc", 3},    {"lora_r", "lora", 2}};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        assert_int_equal(af_word_distance(cases[i].a, cases[i].b), cases[i].d);
        assert_int_equal(af_word_distance(cases[i].b, cases[i].a), cases[i].d);
    }
}

static void looks_at_the_first_sixty_letters(void **state)
{
    (void)state;
    char a[200], b[200];
    memset(a, 'x', sizeof a);
    memset(b, 'x', sizeof b);
    a[sizeof a - 1] = b[100] = 0;
    assert_int_equal(af_word_distance(a, b), 0);
    b[3] = 'y';
    assert_int_equal(af_word_distance(a, b), 1);
}

static void the_nearest_known_word_is_given_or_none(void **state)
{
    static const char *const known[] = {"train", "data", "eval", "generate", "quantize", NULL};
    static const struct {
        const char *word, *near;
    } cases[] = {{"trian", "train"},
                 {"trn", "train"},
                 {"Train", "train"},
                 {"dta", "data"},
                 {"gen", "generate"},
                 {"evaluate", "eval"},
                 {"quantise", "quantize"},
                 {"lora", NULL},
                 {"finetune", NULL},
                 {"x", NULL},
                 {"", NULL}};
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        const char *near = af_word_nearest(cases[i].word, known);
        CHECK_MSG(near && cases[i].near ? !strcmp(near, cases[i].near) : near == cases[i].near,
                  "'%s' gives %s", cases[i].word, near ? near : "none");
    }
}

static void endings_are_compared_whole(void **state)
{
    (void)state;
    assert_true(af_ends_with("model.gguf", ".gguf"));
    assert_true(af_ends_with(".gguf", ".gguf"));
    assert_true(af_ends_with("x", ""));
    assert_false(af_ends_with("gguf", ".gguf"));
    assert_false(af_ends_with("model.gguf.tmp", ".gguf"));
    assert_false(af_ends_with("model.GGUF", ".gguf"));
    assert_true(af_ends_with_any_case("rows.CSV.gz", 8, ".csv"));
    assert_false(af_ends_with_any_case("rows.csv.gz", 11, ".csv"));
    assert_false(af_ends_with_any_case("csv", 3, ".csv"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_edits),
        cmocka_unit_test(looks_at_the_first_sixty_letters),
        cmocka_unit_test(the_nearest_known_word_is_given_or_none),
        cmocka_unit_test(endings_are_compared_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
