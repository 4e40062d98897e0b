/* test_chat_template.c - what surrounds a template: reasoning, continuation, special tokens,
 * finding a model's template, JSON rows; and the reference renderings of real templates. */
#define _GNU_SOURCE /* mkdtemp */
#include "jinja_rows.h"

#include "afinar/text.h"
#include "base/log.h"
#include "format/weights/gguf.h"

#include <unistd.h>

static void render_row(const char *source, const char *row, char *out, size_t size)
{
    af_template *t = NULL;
    af_error err = {0};
    char *text = NULL;
    uint64_t len = 0;
    CHECK_OK(af_template_parse(&t, source, strlen(source), &err), err);
    if (af_template_render_row(t, row, strlen(row), &text, &len, NULL, &err) == AF_OK)
        snprintf(out, size, "%s", text);
    else
        snprintf(out, size, "error: %s", err.msg);
    free(text);
    af_template_close(t);
}

static void test_what_surrounds_a_template(void **state)
{
    (void)state;
    static const struct {
        const char *why, *source, *row, *expected;
    } cases[] = {
        {"tools and documents are always there",
         "{{ tools is defined }}{{ tools is none }}{{ documents is none }}{{ add_generation_prompt "
         "}}",
         "{\"messages\": []}", "TrueTrueTrueFalse"},
        {"raw passes only extra", "{{ tools is defined }}{{ messages is defined }}{{ a }}",
         "{\"raw\": true, \"extra\": {\"a\": 5}}", "FalseFalse5"},
        {"thinking becomes reasoning_content",
         "{{ messages[0].reasoning_content }}{{ messages[0].thinking }}",
         "{\"messages\": [{\"reasoning_content\": null, \"thinking\": \"t\"}]}", "tt"},
        {"reasoning goes under both names", "{{ messages[0] | tojson }}",
         "{\"messages\": [{\"role\": \"a\", \"reasoning\": \"r\"}]}",
         "{\"thinking\": \"r\", \"role\": \"a\", \"reasoning\": \"r\", \"reasoning_content\": "
         "\"r\"}"},
        {"an own thinking is kept, even a null one", "{{ messages[0].thinking }}",
         "{\"messages\": [{\"thinking\": null, \"reasoning\": \"r\"}]}", "None"},
        {"continue keeps blanks", "{{ messages[0].content }}<end>",
         "{\"messages\": [{\"content\": \"ab \"}], \"continue_final_message\": true}", "ab "},
        {"continue follows a trim", "{{ messages[0].content | trim }}<end>",
         "{\"messages\": [{\"content\": \"ab \\n\"}], \"continue_final_message\": true}", "ab"},
        {"continue takes the last text block",
         "{% for c in messages[0].content %}{{ c.text }}{% endfor %}<end>",
         "{\"messages\": [{\"content\": [{\"text\": \"a\"}, {\"text\": \"b\"}, {\"x\": 1}]}], "
         "\"continue_final_message\": true}",
         "ab"},
        {"nothing to continue", "{{ messages[0].content }}",
         "{\"messages\": [{\"content\": null}], \"continue_final_message\": true}",
         "error: line 1: continue_final_message is set but the final message has no \"content\" to "
         "continue!"},
        {"a message is continued or a new one begins", "{{ messages[0].content }}",
         "{\"messages\": [{\"content\": \"a\"}], \"continue_final_message\": true, "
         "\"add_generation_prompt\": true}",
         "error: continue_final_message and add_generation_prompt are not compatible. Use "
         "continue_final_message when you want the model to continue the final message, and "
         "add_generation_prompt when you want to add a header that will prompt it to start a new "
         "assistant message instead."},
        {"a message that is not an object", "x", "{\"messages\": [1]}",
         "error: line 1: message 0 is not an object"},
        {"a fixed time", "{{ strftime_now('%d %b %Y %H:%M:%S') }}",
         "{\"messages\": [], \"now\": \"2024-02-29T23:05:09\"}", "29 Feb 2024 23:05:09"},
        {"a broken time", "x", "{\"messages\": [], \"now\": \"yesterday\"}",
         "error: 'yesterday' is not a time like 2025-03-14T09:26:53"},
        {"no messages", "x", "{}", "error: the row has no 'messages'"},
        {"not JSON", "x", "{\"a\"", "error: the row is not JSON: ':' expected near end of file"},
        {"a NUL in the text is kept", "{{ messages[0].content | length }}",
         "{\"messages\": [{\"content\": \"a\\u0000b\"}]}", "3"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char got[2048];
        render_row(cases[i].source, cases[i].row, got, sizeof got);
        CHECK_MSG(!strcmp(got, cases[i].expected), "%s: %s", cases[i].why, got);
    }
}

static void test_answers_are_json_lines(void **state)
{
    (void)state;
    af_error err = {0};
    char *json = NULL;
    static const char row[] = "{\"raw\": true, \"template\": \"{{ '\\\"\\u00e9\\u0000' }}\"}";
    CHECK_OK(af_template_answer_row(NULL, row, strlen(row), &json, &err), err);
    assert_string_equal(json, "{\"text\": \"\\\"é\\u0000\"}");
    free(json);
    static const char bad[] = "{\"raw\": true, \"template\": \"\\n{% if %}\"}";
    CHECK_OK(af_template_answer_row(NULL, bad, strlen(bad), &json, &err), err);
    CHECK_MSG(strstr(json, "{\"error\": \"line 2: "), "%s", json);
    free(json);
}

/* --- opening -----------------------------------------------------------------------------------
 */

static char folder[] = "/tmp/af_template_XXXXXX";

static void put(const char *name, const char *text)
{
    char path[256];
    af_error err = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!text)
        unlink(path);
    else
        CHECK_OK(af_file_write(path, text, strlen(text), &err), err);
}

static void check_open(const char *path, const char *name, const char *expected)
{
    af_template *t = NULL;
    af_error err = {0};
    char *text = NULL;
    uint64_t len = 0;
    static const char row[] = "{\"messages\": []}";
    if (af_template_open_named(&t, path, name, &err) != AF_OK) {
        CHECK_MSG(strstr(err.msg, expected), "'%s' is not in '%s'", expected, err.msg);
        return;
    }
    CHECK_OK(af_template_render_row(t, row, strlen(row), &text, &len, NULL, &err), err);
    assert_string_equal(text, expected);
    free(text);
    af_template_close(t);
}

static void count_warnings(void *user, af_log_level level, const char *line)
{
    (void)line;
    *(int *)user += level == AF_LOG_WARN;
}

static void test_open_finds_the_template_as_transformers(void **state)
{
    (void)state;
    int warnings = 0;
    char config[300];
    assert_non_null(mkdtemp(folder));
    snprintf(config, sizeof config, "%s/tokenizer_config.json", folder);
    af_log_set(count_warnings, &warnings);
    put("config.json", "{}");
    check_open(folder, NULL, "no chat template");
    put("tokenizer_config.json",
        "{\"chat_template\": \"C{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}\", "
        "\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"</s>\", \"pad_token\": null}");
    check_open(folder, NULL, "C<s></s>False");
    check_open(config, NULL, "C<s></s>False");
    assert_int_equal(warnings, 0);
    put("chat_template.jinja", "J{{ bos_token }}");
    check_open(folder, NULL, "J<s>");
    assert_int_equal(warnings, 1);
    put("chat_template.jinja", NULL);
    put("tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"default\", \"template\": \"D\"}, "
        "{\"name\": \"tool_use\", \"template\": \"T\"}]}");
    check_open(folder, NULL, "D");
    check_open(folder, "tool_use", "T");
    check_open(folder, "nope", "named nope");
    check_open(folder, "../x", "invalid chat template name");
    put("tokenizer_config.json", "{\"chat_template\": \"\\n\\n{{ x\"}");
    check_open(folder, NULL, "tokenizer_config.json: chat_template: line 3: ");
    put("tokenizer_config.json", "[1");
    check_open(folder, NULL, "tokenizer_config.json:1: ");
    af_log_set(NULL, NULL);
}

static void check_tools(const char *plain, const char *with_tools)
{
    static const char row[] = "{\"messages\": [], \"tools\": []}"; /* as transformers: not None */
    af_template *t = NULL;
    af_error err = {0};
    char *text = NULL;
    uint64_t len = 0;
    check_open(folder, NULL, plain);
    CHECK_OK(af_template_open(&t, folder, &err), err);
    CHECK_OK(af_template_render_row(t, row, strlen(row), &text, &len, NULL, &err), err);
    assert_string_equal(text, with_tools);
    assert_int_equal(af_template_mentions(t, "bos_token"), strchr(with_tools, '<') != NULL);
    free(text);
    af_template_close(t);
}

/* A model may have another template for messages with tools. */
static void test_the_template_for_tools(void **state)
{
    static const char list[] =
        "{\"chat_template\": [{\"name\": \"default\", \"template\": \"D\"}, {\"name\": "
        "\"tool_use\", \"template\": \"T{{ bos_token }}\"}], \"bos_token\": \"<s>\"}";
    char sub[300];
    af_error err = {0};
    (void)state;
    snprintf(sub, sizeof sub, "%s/additional_chat_templates", folder);
    put("tokenizer_config.json", list);
    check_tools("D", "T<s>");
    put("chat_template.jinja", "D"); /* files hide the list */
    check_tools("D", "D");
    CHECK_OK(af_dir_make(sub, &err), err);
    put("tokenizer_config.json", "{\"bos_token\": \"<s>\"}");
    put("additional_chat_templates/tool_use.jinja", "A{{ bos_token }}");
    check_tools("D", "A<s>");
    put("chat_template.jinja", "other");
    put("additional_chat_templates/tool_use.jinja", "A{{ bos_token");
    check_open(folder, NULL, "tool_use.jinja: line 1");
    put("additional_chat_templates/tool_use.jinja", "A{{ bos_token }}");
    /* into a folder with files, then into one without */
    char first[] = "/tmp/af_template_XXXXXX", path[300];
    assert_non_null(mkdtemp(first));
    for (int flat = 0; flat < 2; flat++) {
        af_template *t = NULL;
        snprintf(path, sizeof path, "%s/chat_template.jinja", first);
        CHECK_OK(af_file_write(path, "x", 1, &err), err);
        snprintf(path, sizeof path, "%s/tokenizer_config.json", first);
        CHECK_OK(af_file_write(path, "{\"bos_token\": \"<s>\"}", 20, &err), err);
        snprintf(path, sizeof path, "%s/additional_chat_templates", first);
        CHECK_OK(flat ? af_path_remove(path, &err) : af_dir_make(path, &err), err);
        CHECK_OK(af_template_put_own(first, folder, &err), err);
        CHECK_OK(af_template_open(&t, first, &err), err);
        assert_string_equal(af_template_source(t, NULL), "other");
        assert_string_equal(af_template_source(af_template_for(t, true), NULL), "A{{ bos_token }}");
        assert_int_equal(af_file_in(first, "chat_template.jinja"), !flat);
        af_template_close(t);
    }
    CHECK_OK(af_path_remove(first, &err), err);
    CHECK_OK(af_path_remove(sub, &err), err);
    put("chat_template.jinja", NULL);
}

/* Older folders name the special tokens only there. */
static void test_special_tokens_map_counts_without_a_list_of_added_tokens(void **state)
{
    (void)state;
    af_error err = {0};
    af_tokenizer *t = NULL;
    put("chat_template.jinja", "{{ bos_token }}{{ eos_token }}");
    put("special_tokens_map.json",
        "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"</s>\", \"x\": [\"a\"]}");
    put("tokenizer.json", "{\"model\": {\"type\": \"WordLevel\", \"unk_token\": \"u\", "
                          "\"vocab\": {\"u\": 0, \"</s>\": 1, \"<s>\": 2}}}");
    put("tokenizer_config.json", "{\"eos_token\": \"u\"}");
    check_open(folder, NULL, "<s></s>");
    CHECK_OK(af_tokenizer_open(&t, folder, &err), err);
    assert_int_equal(af_tokenizer_bos(t), 2);
    assert_int_equal(af_tokenizer_eos(t), 1);
    af_tokenizer_close(t);
    put("tokenizer_config.json", NULL);
    check_open(folder, NULL, "<s></s>");
    put("tokenizer_config.json", "{\"eos_token\": \"u\", \"added_tokens_decoder\": {}}");
    check_open(folder, NULL, "u");
    CHECK_OK(af_tokenizer_open(&t, folder, &err), err);
    assert_int_equal(af_tokenizer_bos(t), -1);
    assert_int_equal(af_tokenizer_eos(t), 0);
    af_tokenizer_close(t);
    put("chat_template.jinja", NULL);
    put("special_tokens_map.json", NULL);
    put("tokenizer.json", NULL);
}

/* A number that does not fit our integers stays as it is, and does not turn the others into reals.
 */
static void test_put_keeps_the_rest_of_a_config(void **state)
{
    (void)state;
    char path[300], *text = NULL;
    uint64_t len = 0;
    af_error err = {0};
    put("tokenizer_config.json", "{\"chat_template\": \"old\", \"stride\": 0, \"x\": [512, 0.5, "
                                 "{\"y\": -3}], \"model_max_length\": "
                                 "1000000000000000019884624838656}");
    CHECK_OK(af_template_put(folder, "new", 3, &err), err);
    check_open(folder, NULL, "new");
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    CHECK_OK(af_file_read(&text, &len, path, 4096, &err), err);
    static const char *const must[] = {"\"stride\": 0,", "512,", " 0.5,", "\"y\": -3\n",
                                       "\"model_max_length\": 1e30"};
    for (size_t i = 0; i < AF_LEN(must); i++)
        CHECK_MSG(strstr(text, must[i]), "no %s in %s", must[i], text);
    free(text);
    put("chat_template.jinja", NULL);
}

static void test_open_reads_gguf_and_jinja_files(void **state)
{
    (void)state;
    char path[300];
    af_error err = {0};
    af_gguf_writer *w = NULL;
    static const char text[] = "G{{ bos_token }}{{ eos_token }}";
    const af_gguf_str tokens[] = {{"<a>", 3}, {"<b>", 3}};
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    CHECK_OK(af_gguf_writer_new(&w, path, &err), err);
    CHECK_OK(af_gguf_put_str(w, "tokenizer.chat_template", text, strlen(text), &err), err);
    CHECK_OK(af_gguf_put_strs(w, "tokenizer.ggml.tokens", tokens, 2, &err), err);
    CHECK_OK(af_gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 1, &err), err);
    CHECK_OK(af_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 7, &err), err);
    CHECK_OK(af_gguf_writer_begin(w, &err), err);
    CHECK_OK(af_gguf_writer_commit(w, &err), err);
    check_open(path, NULL, "G<b>");
    check_open(path, "other", "tokenizer.chat_template.other");
    put("x.jinja", "{{ messages | length }}");
    snprintf(path, sizeof path, "%s/x.jinja", folder);
    check_open(path, NULL, "0");
    put("x.jinja", "\n{% if %}");
    check_open(path, NULL, "x.jinja: line 2: ");
    CHECK_OK(af_path_remove(folder, &err), err);
}

/* --- real templates
 * -------------------------------------------------------------------------------- */

typedef struct cases {
    const char *templates;
    char name[128];
    af_template *t;
    int done;
} cases;

static void one_case(json_t *row, void *user)
{
    cases *c = user;
    char path[4096];
    af_error err = {0};
    char *text = NULL;
    uint64_t len = 0;
    const char *file = json_string_value(json_object_get(row, "template"));
    if (!c->t || strcmp(file, c->name) != 0) {
        af_template_close(c->t);
        c->t = NULL;
        snprintf(c->name, sizeof c->name, "%s", file);
        snprintf(path, sizeof path, "%s/%s", c->templates, file);
        CHECK_OK(af_template_open(&c->t, path, &err), err);
    }
    char *line = json_dumps(row, JSON_COMPACT);
    assert_non_null(line);
    const af_status st = af_template_render_row(c->t, line, strlen(line), &text, &len, NULL, &err);
    check_rendering(json_string_value(json_object_get(row, "id")), json_object_get(row, "expected"),
                    st, text, len, &err);
    free(line);
    free(text);
    c->done++;
}

static void test_real_templates_render_byte_for_byte(void **state)
{
    (void)state;
    char dir[3072], templates[3200], path[3400];
    char **names = NULL;
    int n = 0;
    af_error err = {0};
    if (!shared_dir())
        skip_because("no shared templates");
    snprintf(dir, sizeof dir, "%s/golden/text/cases", shared_dir());
    snprintf(templates, sizeof templates, "%s/golden/text/templates", shared_dir());
    cases c = {.templates = templates};
    CHECK_OK(af_dir_list(&names, &n, dir, &err), err);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        each_row(path, one_case, &c);
    }
    af_names_free(names, n);
    af_template_close(c.t);
    print_message("%d cases of %d templates\n", c.done, n);
    assert_true(c.done >= 1376);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_surrounds_a_template),
        cmocka_unit_test(test_answers_are_json_lines),
        cmocka_unit_test(test_open_finds_the_template_as_transformers),
        cmocka_unit_test(test_the_template_for_tools),
        cmocka_unit_test(test_special_tokens_map_counts_without_a_list_of_added_tokens),
        cmocka_unit_test(test_put_keeps_the_rest_of_a_config),
        cmocka_unit_test(test_open_reads_gguf_and_jinja_files),
        cmocka_unit_test(test_real_templates_render_byte_for_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
