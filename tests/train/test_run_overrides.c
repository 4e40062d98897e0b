/* test_run_overrides.c - key=value: texts as a shell hands them over, and as they are written. */
#include "test.h"

#include "train/run/run_keys.h"

#define BASE "base_model: m\noutput_dir: o\ndatasets: [{path: d}]\n"

static af_status parse(af_run_config *r, const char *text, const char *const *o, int n,
                       af_error *err)
{
    return af_run_config_parse(r, text, strlen(text), "run.yaml", o, n, err);
}

/* A key of one text: no YAML, but null and quotes. What is written reads back. */
static void test_texts_are_taken_as_they_stand(void **state)
{
    static const struct {
        const char *value, *want;
    } cases[] = {
        {"plain", "plain"},
        {"#1", "#1"},
        {"a: b", "a: b"},
        {"a #1", "a #1"},
        {"- a", "- a"},
        {"*x", "*x"},
        {"&x", "&x"},
        {"!x", "!x"},
        {"@x", "@x"},
        {"%x", "%x"},
        {"`x`", "`x`"},
        {"{{ a }}", "{{ a }}"},
        {"{% if a %}\n\tb\n{% endif %}\n", "{% if a %}\n\tb\n{% endif %}\n"},
        {"[a, b]", "[a, b]"},
        {"[a", "[a"},
        {"true", "true"},
        {"0x10", "0x10"},
        {" a ", " a "},
        {"'a' or 'b'", "'a' or 'b'"},
        {"\"a", "\"a"},
        {"'", "'"},
        {"C:\\n", "C:\\n"},
        {"\xc3\xa9\xf0\x9f\x98\x80", "\xc3\xa9\xf0\x9f\x98\x80"},
        {"a\xe2\x80\xa8"
         "b\xc2\x85"
         "c\xef\xbb\xbf",
         "a\xe2\x80\xa8"
         "b\xc2\x85"
         "c\xef\xbb\xbf"},
        {"'#1'", "#1"},
        {"\"a\\tb\"", "a\tb"},
        {"\"a\\e\\x7f\\u0080b\"", "a\x1b\x7f\xc2\x80"
                                  "b"},
        {"null", NULL},
        {"~", NULL},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0}, again = {0};
        af_error err = {0};
        char arg[100], *text;
        snprintf(arg, sizeof arg, "run_name=%s", cases[i].value);
        CHECK_OK(parse(&r, BASE "run_name: x\n", (const char *[]){arg}, 1, &err), err);
        CHECK_MSG(cases[i].want ? r.run_name && strcmp(r.run_name, cases[i].want) == 0
                                : !r.run_name,
                  "%s: '%s'", arg, r.run_name);
        CHECK_OK(af_run_config_text(&r, &text, &err), err);
        CHECK_OK(parse(&again, text, NULL, 0, &err), err);
        CHECK_MSG(!cases[i].want || strcmp(again.run_name, cases[i].want) == 0,
                  "%s: '%s' after it was written", arg, again.run_name);
        free(text);
        af_run_config_clear(&r);
        af_run_config_clear(&again);
    }
}

static void test_texts_that_no_file_could_have(void **state)
{
    static const struct {
        const char *arg, *why;
    } cases[] = {
        {"run_name=a\x1b[31m", "command line: run_name has a control character, \\x1b"},
        {"run_name=a\r", "command line: run_name has a control character, \\x0d"},
        {"run_name=\x7f", "command line: run_name has a control character, \\x7f"},
        {"run_name=a\xff", "command line: run_name is not UTF-8"},
        {"output_dir=", "command line: output_dir is empty"},
        {"optim_args=alpha", "command line: optim_args has 'alpha', which is no 'a=1'"},
        {"optim_args={a: [1]}", "command line: 'a' of optim_args is not one value"},
        {"optim_args={a", "command line: the text of 'optim_args' is not a map of JSON: {a"},
        {"global_batch_size=0", "command line: global_batch_size is 0, less than micro_batch_size"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        assert_int_equal(parse(&r, BASE, &cases[i].arg, 1, &err), AF_EUSAGE);
        assert_string_equal(err.msg, cases[i].why);
    }
}

/* Other kinds of keys have YAML, as in a file. */
static void test_other_keys_have_yaml(void **state)
{
    static const char *const o[] = {"lora_r=4 # four", "adapter=lora",
                                    "lora_target_modules=[q_proj, v_proj]",
                                    "datasets=[{path: 'a#b', type: alpaca}]"};
    (void)state;
    af_run_config r = {0};
    af_error err = {0};
    CHECK_OK(parse(&r, BASE, o, (int)AF_LEN(o), &err), err);
    assert_int_equal(r.lora_r, 4);
    assert_int_equal(r.lora_target_modules.count, 2);
    assert_string_equal(af_yaml_get(r.datasets->item[0], "path")->text, "a#b");
    af_run_config_clear(&r);
}

static void test_strict_in_any_spelling(void **state)
{
    static const char *const yes[] = {"strict=true", "strict=True", "strict=yes"};
    static const char *const no[] = {"strict=false"};
    (void)state;
    af_run_config r = {0};
    af_error err = {0};
    for (size_t i = 0; i < AF_LEN(yes); i++)
        CHECK_MSG(parse(&r, BASE "adapter: full\nlora_r: 8\n", &yes[i], 1, &err) != AF_OK,
                  "%s is not heeded", yes[i]);
    CHECK_OK(parse(&r, BASE "strict: true\nadapter: full\nlora_r: 8\n", no, 1, &err), err);
    af_run_config_clear(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_are_taken_as_they_stand),
        cmocka_unit_test(test_texts_that_no_file_could_have),
        cmocka_unit_test(test_other_keys_have_yaml),
        cmocka_unit_test(test_strict_in_any_spelling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
