/* test_tokenizer_make.c - folders whose tokenizer is in other files than tokenizer.json, or not in
 * it alone: the ids of transformers (tools/golden/make_made.py), new tokens, and files that are
 * refused.
 */
#define _GNU_SOURCE /* mkdtemp */
#include "test.h"

#include "afinar/text.h"
#include "base/buf.h"
#include "base/file.h"
#include "format/tokenizer/token_edit.h"
#include "format/tokenizer/tokenizer_make.h"

enum { PATH = 4096 };

static const char *join(char *out, const char *dir, const char *name)
{
    snprintf(out, PATH, "%s/%s", dir, name);
    return out;
}

static void put_text(const char *dir, const char *name, const char *text)
{
    char path[PATH];
    af_error err = {0};
    CHECK_OK(af_file_write(join(path, dir, name), text, strlen(text), &err), err);
}

static void copy_golden(const char *dir, const char *name, const char *golden)
{
    char from[PATH], to[PATH], inner[128];
    char *bytes = NULL;
    uint64_t n = 0;
    af_error err = {0};
    snprintf(inner, sizeof inner, "made/%s", golden);
    CHECK_OK(af_file_read(&bytes, &n, join(from, golden_dir(), inner), 1 << 20, &err), err);
    CHECK_OK(af_file_write(join(to, dir, name), bytes, n, &err), err);
    free(bytes);
}

static char *new_folder(char *dir)
{
    snprintf(dir, PATH, "/tmp/afinar-made-XXXXXX");
    assert_non_null(mkdtemp(dir));
    return dir;
}

static char *make_folder(char *dir, json_t *files)
{
    char path[PATH];
    const char *name;
    json_t *value;
    new_folder(dir);
    json_object_foreach(files, name, value)
    {
        if (json_is_string(value))
            copy_golden(dir, name, json_string_value(value) + 1);
        else
            assert_int_equal(json_dump_file(value, join(path, dir, name), 0), 0);
    }
    return dir;
}

static void remove_folder(const char *dir)
{
    af_error err = {0};
    CHECK_OK(af_path_remove(dir, &err), err);
}

static json_t *load_cases(void)
{
    char path[PATH];
    json_t *all = json_load_file(join(path, golden_dir(), "made/cases.json"), JSON_ALLOW_NUL, NULL);
    assert_non_null(all);
    return all;
}

static json_t *find_case(const json_t *all, const char *name)
{
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(all, "cases"), i, c)
    {
        if (strcmp(json_string_value(json_object_get(c, "name")), name) == 0)
            return c;
    }
    fail_msg("no case %s", name);
    return NULL;
}

static void check_ids(const af_tokenizer *t, const json_t *c, const json_t *texts, const char *key)
{
    size_t i;
    json_t *text;
    json_array_foreach(texts, i, text)
    {
        af_encoding e = {0};
        af_error err = {0};
        const json_t *ids = json_array_get(json_object_get(c, key), i);
        CHECK_OK(af_tokenizer_encode(t, &e, json_string_value(text), json_string_length(text),
                                     strcmp(key, "ids") == 0, &err),
                 err);
        bool same = (size_t)e.count == json_array_size(ids);
        for (int64_t k = 0; same && k < e.count; k++)
            same = e.ids[k] == json_integer_value(json_array_get(ids, (size_t)k));
        CHECK_MSG(same, "%s, %s: \"%s\" has other ids",
                  json_string_value(json_object_get(c, "name")), key, json_string_value(text));
        af_encoding_clear(&e);
    }
}

static void test_ids(void **state)
{
    (void)state;
    json_t *all = load_cases(), *c;
    size_t i;
    json_array_foreach(json_object_get(all, "cases"), i, c)
    {
        char dir[PATH];
        af_error err = {0};
        af_tokenizer *t = NULL;
        CHECK_OK(af_tokenizer_open(&t, make_folder(dir, json_object_get(c, "files")), &err), err);
        check_ids(t, c, json_object_get(all, "texts"), "ids");
        check_ids(t, c, json_object_get(all, "texts"), "bare");
        af_tokenizer_close(t);
        remove_folder(dir);
    }
    assert_true(i >= 18);
    json_decref(all);
}

static void test_new_tokens(void **state)
{
    (void)state;
    json_t *all = load_cases();
    char dir[PATH], path[PATH];
    af_error err = {0};
    af_tokenizer *t = NULL;
    const af_token_edit edit = {.text = "<new>", .special = true, .listed = true};
    make_folder(dir, json_object_get(find_case(all, "qwen2"), "files"));
    CHECK_OK(af_tokenizer_open(&t, dir, &err), err);
    const int32_t n = af_tokenizer_vocab_size(t);
    af_tokenizer_close(t);
    CHECK_OK(af_token_edits_write(dir, &edit, 1, 0, &err), err);
    assert_true(af_file_exists(join(path, dir, "tokenizer.json")));
    CHECK_OK(af_tokenizer_open(&t, dir, &err), err);
    assert_int_equal(af_tokenizer_id(t, "<new>", 5), n);
    check_ids(t, find_case(all, "qwen2"), json_object_get(all, "texts"), "ids");
    af_tokenizer_close(t);
    remove_folder(dir);
    json_decref(all);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *vocab, *merges, *config, *says;
    } cases[] = {
        {"{\"a\":0,\"b\":1,\"ab\":2}", "a b c\n", NULL, "merges.txt:1: 'a b c' is not two tokens"},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "#version: 0.2\na\n", NULL, "merges.txt:2: 'a' is not two"},
        {"{\"a\":0}", "\xff a\n", NULL, "merges.txt:1: not UTF-8"},
        {"{\"a\":-1}", "", NULL, "has no valid id for \"a\""},
        {"{\"a\":9223372036854775807}", "", NULL, "has no valid id for \"a\""},
        {"{\"a\":0}", "", "{\"added_tokens_decoder\":{\"x\":{\"content\":\"b\"}}}",
         "added_tokens_decoder has the invalid entry \"x\""},
        {"{\"a\":0}", "",
         "{\"added_tokens_decoder\":{\"9223372036854775807\":{\"content\":\"b\"}}}",
         "the invalid entry \"9223372036854775807\""},
        {"{\"a\":0}", "", "{\"added_tokens_decoder\":{\"1\":\"b\"}}", "the invalid entry \"1\""},
        {"[]", "", NULL, "vocab.json is not an object"},
        {"{\"a\":0}", "a b\n", NULL, "b"},
        {"{\"a\":0}", "", "{\"tokenizer_class\":\"WhisperTokenizer\"}",
         "how WhisperTokenizer reads"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char dir[PATH];
        af_error err = {0};
        af_tokenizer *t = NULL;
        new_folder(dir);
        put_text(dir, "vocab.json", cases[i].vocab);
        put_text(dir, "merges.txt", cases[i].merges);
        if (cases[i].config)
            put_text(dir, "tokenizer_config.json", cases[i].config);
        assert_int_not_equal(af_tokenizer_open(&t, dir, &err), AF_OK);
        CHECK_MSG(strstr(err.msg, cases[i].says) && strstr(err.msg, dir), "%d: %s", (int)i,
                  err.msg);
        remove_folder(dir);
    }
}

/* What only the kind of tokenizer says. */
static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *name, *bos, *eos;
    } cases[] = {{"gpt2", "<|endoftext|>", "<|endoftext|>"},
                 {"qwen2-bare", NULL, "<|endoftext|>"},
                 {"tekken", "<s>", "</s>"},
                 {"glm4", NULL, "<|endoftext|>"},
                 {"kimi", "[BOS]", "[EOS]"}};
    json_t *all = load_cases();
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char dir[PATH];
        af_error err = {0};
        af_tokenizer *t = NULL;
        make_folder(dir, json_object_get(find_case(all, cases[i].name), "files"));
        CHECK_OK(af_tokenizer_open(&t, dir, &err), err);
        assert_string_equal(af_tokenizer_eos_text(t), cases[i].eos);
        assert_int_equal(af_tokenizer_eos(t),
                         af_tokenizer_id(t, cases[i].eos, strlen(cases[i].eos)));
        assert_int_equal(af_tokenizer_bos(t) >= 0, cases[i].bos != NULL);
        int stops = 0;
        assert_int_equal(af_tokenizer_stops(t, &stops)[0], af_tokenizer_eos(t));
        af_tokenizer_close(t);
        remove_folder(dir);
    }
    json_decref(all);
}

static void test_ranks_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *says;
    } cases[] = {
        {"tekken.json", "{}", "no config.pattern or no vocab"},
        {"tekken.json", "{\"config\":{\"pattern\":\"a\"},\"vocab\":[{\"token_bytes\":\"?\"}]}",
         "token 1000 is not base64"},
        {"tekken.json",
         "{\"config\":{\"pattern\":\"a\"},\"vocab\":[{\"token_bytes\":\"YQ==\"},{\"token_bytes\":"
         "\"YQ==\"}]}",
         "token 1001 is there twice"},
        {"tekken.json",
         "{\"config\":{\"pattern\":\"a\",\"default_num_special_tokens\":2},\"vocab\":[]}",
         "default_num_special_tokens is 2, not 20 to 1048576"},
        {"tekken.json",
         "{\"config\":{\"pattern\":\"a\",\"default_vocab_size\":-9223372036854775808},\"vocab\":[]"
         "}",
         "less than the 1000 special tokens"},
        {"tokenizer.model", "YQ== 0\n", "ChatGLM4Tokenizer are known, not ''"},
        {"tiktoken.model", "YQ== 0\n", "Moonshot's TikTokenTokenizer and"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char dir[PATH];
        af_error err = {0};
        af_tokenizer *t = NULL;
        new_folder(dir);
        put_text(dir, cases[i].name, cases[i].text);
        assert_int_not_equal(af_tokenizer_open(&t, dir, &err), AF_OK);
        CHECK_MSG(strstr(err.msg, cases[i].says) && strstr(err.msg, cases[i].name), "%d: %s",
                  (int)i, err.msg);
        remove_folder(dir);
    }
}

static void test_added_refused(void **state)
{
    (void)state;
    static const char *const added[] = {"{\"b\":9223372036854775807}", "{\"b\":\"1\"}"};
    for (size_t i = 0; i < AF_LEN(added); i++) {
        char dir[PATH];
        af_error err = {0};
        af_tokenizer *t = NULL;
        new_folder(dir);
        put_text(dir, "vocab.json", "{\"a\":0}");
        put_text(dir, "merges.txt", "");
        put_text(dir, "added_tokens.json", added[i]);
        assert_int_not_equal(af_tokenizer_open(&t, dir, &err), AF_OK);
        assert_non_null(strstr(err.msg, "added_tokens.json has no valid id for \"b\""));
        remove_folder(dir);
    }
}

/* A name that is nowhere gets the id after the vocabulary. */
static void test_new_name_of_tekken(void **state)
{
    (void)state;
    json_t *all = load_cases();
    char dir[PATH];
    af_error err = {0};
    af_tokenizer *t = NULL;
    make_folder(dir, json_object_get(find_case(all, "tekken"), "files"));
    CHECK_OK(af_tokenizer_open(&t, dir, &err), err);
    const int32_t n = af_tokenizer_vocab_size(t);
    af_tokenizer_close(t);
    put_text(dir, "tokenizer_config.json", "{\"pad_token\":\"<new>\"}");
    CHECK_OK(af_tokenizer_open(&t, dir, &err), err);
    assert_int_equal(af_tokenizer_id(t, "<new>", 5), n);
    af_tokenizer_close(t);
    remove_folder(dir);
    json_decref(all);
}

/* A file of 0.2 MB whose merges would have more than 256 MiB. */
static void test_long_tokens(void **state)
{
    (void)state;
    enum { TOKENS = 40, GROUPS = 1000 };
    char dir[PATH], path[PATH];
    af_buf b = {0};
    json_t *vocab = json_object(), *merges = json_array();
    af_error err = {0};
    for (int i = 0; i < TOKENS; i++) {
        for (int k = 0; k < GROUPS - i; k++)
            af_buf_str(&b, "YWFh");
        af_buf_printf(&b, " %d\n", i);
    }
    af_buf_char(&b, '\0');
    assert_false(b.bad);
    new_folder(dir);
    put_text(dir, "tiktoken.model", b.data);
    assert_int_equal(af_tiktoken_read(vocab, merges, join(path, dir, "tiktoken.model"), &err),
                     AF_EFORMAT);
    assert_non_null(strstr(err.msg, "tiktoken.model: the tokens are too long"));
    af_buf_clear(&b);
    json_decref(vocab);
    json_decref(merges);
    remove_folder(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),           cmocka_unit_test(test_new_tokens),
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_names),
        cmocka_unit_test(test_ranks_refused), cmocka_unit_test(test_added_refused),
        cmocka_unit_test(test_long_tokens),   cmocka_unit_test(test_new_name_of_tekken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
