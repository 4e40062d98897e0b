/* test_options.c - options of public functions that are left out: NULL and zeros mean the
 * documented defaults, and what has none is an error. */
#include "afinar/afinar.h"
#include "test.h"

static const char *golden(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/models/%s", golden_dir(), name);
    return path;
}

static void test_options_without_a_name_are_errors(void **state)
{
    af_model *m;
    af_convert_report *c;
    af_error err = {0};
    (void)state;
    const af_model_opts nameless = {.device = "cpu", .threads = 1, .adapters = 1};
    assert_int_equal(af_model_open(&m, golden("qwen2_tiny"), &nameless, &err), AF_EUSAGE);
    CHECK_MSG(strcmp(err.msg, "adapter 1 of 1 has no path") == 0, "%s", err.msg);
    assert_int_equal(af_quantize(&c, golden("qwen2_tiny"), "out", &(af_quantize_opts){0}, &err),
                     AF_EUSAGE);
    CHECK_MSG(strncmp(err.msg, "no type is named: nf4", 21) == 0, "%s", err.msg);
}

/* What a C++ program passes for an empty string_view. */
static void test_a_text_of_no_bytes_may_be_null(void **state)
{
    af_tokenizer *t = NULL, *none;
    af_template *empty = NULL;
    af_grammar *any = NULL, *no;
    af_encoding e = {0};
    char *text = NULL;
    uint64_t len;
    bool fits = true;
    af_error err = {0};
    (void)state;
    CHECK_OK(af_tokenizer_open(&t, golden("qwen2"), &err), err);
    CHECK_OK(af_tokenizer_encode(t, &e, NULL, 0, false, &err), err);
    assert_int_equal(e.count, 0);
    CHECK_OK(af_tokenizer_decode(t, &text, NULL, NULL, 0, false, &err), err);
    assert_string_equal(text, "");
    free(text);
    CHECK_OK(af_template_parse(&empty, NULL, 0, &err), err);
    CHECK_OK(af_grammar_open(&any, AF_GRAMMAR_JSON_OBJECT, NULL, 0, NULL, &err), err);
    CHECK_OK(af_grammar_matches(any, NULL, 0, &fits, &err), err);
    assert_false(fits);
    assert_int_equal(af_grammar_open(&no, AF_GRAMMAR_JSON_SCHEMA, NULL, 0, NULL, &err), AF_EFORMAT);
    assert_int_equal(af_grammar_open(&no, AF_GRAMMAR_GBNF, NULL, 0, NULL, &err), AF_EFORMAT);
    assert_int_equal(af_tokenizer_from_json(&none, NULL, 0, &err), AF_EFORMAT);
    assert_int_equal(af_template_render_row(empty, NULL, 0, &text, &len, NULL, &err), AF_EFORMAT);
    assert_int_equal(af_json_tree(&(struct json_t *){NULL}, NULL, 0, 0, &err), AF_EFORMAT);
    af_grammar_close(any);
    af_template_close(empty);
    af_encoding_clear(&e);
    af_tokenizer_close(t);
}

static void test_inspect_needs_no_options(void **state)
{
    af_inspect_report *r = NULL;
    af_diff_report *d = NULL;
    af_error err = {0};
    char model[4096];
    (void)state;
    snprintf(model, sizeof model, "%s", golden("qwen2_tiny"));
    CHECK_OK(af_inspect(&r, model, NULL, &err), err);
    assert_true(r->tensor_count > 0 && !r->tensors[0].has_stats);
    CHECK_OK(af_inspect_diff(&d, model, model, NULL, &err), err);
    assert_int_equal(d->changed, 0);
    af_inspect_diff_free(d);
    af_inspect_free(r);
}

/* A length of 0 is the default, not the shortest. */
static void test_records_are_whole_without_a_length(void **state)
{
    af_model *m = NULL;
    af_error err = {0};
    af_eval_result none, zeros, asked;
    char data[4096];
    (void)state;
    snprintf(data, sizeof data, "%s", golden("data/train.jsonl"));
    const af_model_opts cpu = {.device = "cpu", .threads = 1};
    const af_eval_data_opts opts = {0}, len = {.sequence_len = 2048};
    CHECK_OK(af_model_open(&m, golden("qwen2"), &cpu, &err), err);
    CHECK_OK(af_model_eval_dataset(m, data, NULL, &none, &err), err);
    CHECK_OK(af_model_eval_dataset(m, data, &opts, &zeros, &err), err);
    CHECK_OK(af_model_eval_dataset(m, data, &len, &asked, &err), err);
    assert_true(asked.tokens > asked.rows);
    assert_true(none.tokens == asked.tokens && zeros.tokens == asked.tokens);
    assert_true(none.loss == asked.loss && zeros.loss == asked.loss);
    af_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_without_a_name_are_errors),
        cmocka_unit_test(test_a_text_of_no_bytes_may_be_null),
        cmocka_unit_test(test_inspect_needs_no_options),
        cmocka_unit_test(test_records_are_whole_without_a_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
