/* test_export_pieces.c - a model folder with tokenizer.model: its vocabulary in GGUF, the folder
 * that comes back, and folders written from it. */
#define _GNU_SOURCE
#include "convert_case.h"

#include "afinar/log.h"
#include "afinar/text.h"
#include "format/tokenizer/sentencepiece.h"
#include "format/weights/gguf.h"
#include "model/adapter_texts.h"

#include <jansson.h>

enum { PATH = 2048, ROWS = 512 };

static const char config[] =
    "{\"tokenizer_class\":\"LlamaTokenizer\",\"legacy\":true,\"add_bos_token\":true,\"pad_token\":"
    "\"<pad>\",\"added_tokens_decoder\":{\"480\":{\"content\":\"<pad>\",\"special\":true},"
    "\"481\":{\"content\":\"<tool>\",\"special\":false}}}";

static void copy(const char *from, const char *dir, const char *name)
{
    char *bytes = NULL, path[PATH];
    uint64_t n = 0;
    af_error err = {0};
    CHECK_OK(af_file_read(&bytes, &n, from, 1 << 24, &err), err);
    CHECK_OK(af_file_write(join(path, sizeof path, dir, name), bytes, n, &err), err);
    free(bytes);
}

static void make_model(const char *dir, const char *pieces)
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    char from[PATH], name[64], path[PATH];
    af_error err = {0};
    CHECK_OK(af_dir_make(dir, &err), err);
    for (size_t i = 0; i < AF_LEN(files); i++) {
        snprintf(name, sizeof name, "gguf_models/llama/hf/%s", files[i]);
        copy(join(from, sizeof from, golden_dir(), name), dir, files[i]);
    }
    snprintf(name, sizeof name, "pieces/%s.model", pieces);
    copy(join(from, sizeof from, golden_dir(), name), dir, "tokenizer.model");
    CHECK_OK(af_file_write(join(path, sizeof path, dir, "tokenizer_config.json"), config,
                           strlen(config), &err),
             err);
}

static af_status export_to(const char *model, const char *out, const char *type, af_error *err)
{
    af_convert_report *r = NULL;
    af_verify_result v = {0};
    const af_status st = af_export(
        model, out, &(af_export_opts){.type = type, .threads = 2, .force = true}, &r, &v, err);
    af_convert_report_free(r);
    assert_true(st != AF_OK || v.ok);
    return st;
}

static void same_bytes(const char *a, const char *b, const char *name)
{
    char path[PATH];
    af_map x = {0}, y = {0};
    af_error err = {0};
    CHECK_OK(af_map_open(&x, join(path, sizeof path, a, name), &err), err);
    CHECK_OK(af_map_open(&y, join(path, sizeof path, b, name), &err), err);
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    af_map_close(&x);
    af_map_close(&y);
}

static void check_vocab(const char *file, const char *dir)
{
    char path[PATH];
    af_error err = {0};
    af_gguf *g = NULL;
    af_spm m = {0};
    CHECK_OK(af_gguf_open(&g, file, &err), err);
    CHECK_OK(af_spm_open(&m, join(path, sizeof path, dir, "tokenizer.model"), &err), err);
    const af_gguf_kv *tokens = af_gguf_find_kv(g, "tokenizer.ggml.tokens"),
                     *types = af_gguf_find_kv(g, "tokenizer.ggml.token_type"),
                     *scores = af_gguf_find_kv(g, "tokenizer.ggml.scores");
    assert_true(tokens && types && scores);
    assert_true(tokens->count == ROWS && types->count == ROWS && scores->count == ROWS);
    for (int32_t i = 0; i < m.count; i++) {
        assert_int_equal(tokens->str[i].len, m.piece[i].n);
        assert_memory_equal(tokens->str[i].at, m.piece[i].s, m.piece[i].n);
        assert_int_equal(af_gguf_item_int(types, (uint64_t)i), m.piece[i].type);
        assert_true((float)af_gguf_item_float(scores, (uint64_t)i) == m.piece[i].score);
    }
    assert_int_equal(af_gguf_item_int(types, 480), AF_SPM_CONTROL);
    assert_int_equal(af_gguf_item_int(types, 481), AF_SPM_USER);
    assert_int_equal(af_gguf_item_int(types, 482), AF_SPM_UNUSED);
    assert_int_equal(af_gguf_int(g, "tokenizer.ggml.bos_token_id", -1), 1);
    assert_int_equal(af_gguf_int(g, "tokenizer.ggml.eos_token_id", -1), 2);
    assert_int_equal(af_gguf_int(g, "tokenizer.ggml.unknown_token_id", -1), 0);
    assert_int_equal(af_gguf_int(g, "tokenizer.ggml.padding_token_id", -1), 480);
    assert_true(af_gguf_bool(g, "tokenizer.ggml.add_bos_token", false));
    assert_true(af_gguf_bool(g, "tokenizer.ggml.add_space_prefix", false));
    af_spm_clear(&m);
    af_gguf_close(g);
}

static void same_ids(const char *a, const char *b)
{
    static const char *const texts[] = {"the small engine reads a file", " a blank  in front\n\n",
                                        "caf\xc3\xa9 \xf0\x9f\x8e\x89 <tool>the</s>x"};
    af_error err = {0};
    af_tokenizer *x = NULL, *y = NULL;
    af_encoding e = {0}, f = {0};
    CHECK_OK(af_tokenizer_open(&x, a, &err), err);
    CHECK_OK(af_tokenizer_open(&y, b, &err), err);
    for (size_t i = 0; i < AF_LEN(texts); i++) {
        CHECK_OK(af_tokenizer_encode(x, &e, texts[i], strlen(texts[i]), true, &err), err);
        CHECK_OK(af_tokenizer_encode(y, &f, texts[i], strlen(texts[i]), true, &err), err);
        assert_int_equal(e.count, f.count);
        assert_memory_equal(e.ids, f.ids, (size_t)e.count * sizeof *e.ids);
    }
    af_encoding_clear(&e);
    af_encoding_clear(&f);
    af_tokenizer_close(x);
    af_tokenizer_close(y);
}

static void test_the_vocabulary_in_gguf_and_back(void **state)
{
    scratch_dir d = scratch_new();
    char model[PATH], file[PATH], back[PATH];
    af_error err = {0};
    (void)state;
    make_model(join(model, sizeof model, d.path, "model"), "bpe");
    CHECK_OK(export_to(model, join(file, sizeof file, d.path, "m.gguf"), "f32", &err), err);
    check_vocab(file, model);
    same_ids(model, file);
    CHECK_OK(export_to(file, join(back, sizeof back, d.path, "back"), NULL, &err), err);
    same_bytes(model, back, "tokenizer.model");
    same_bytes(model, back, "tokenizer_config.json");
    assert_false(af_file_in(back, "tokenizer.json"));
    same_ids(model, back);
    /* a quantized file does not carry it: tokenizer.json is made of its vocabulary */
    CHECK_OK(export_to(model, file, "q8_0", &err), err);
    CHECK_OK(export_to(file, back, NULL, &err), err);
    assert_true(af_file_in(back, "tokenizer.json"));
    same_ids(model, back);
    scratch_free(&d);
}

static void test_what_gguf_cannot_say_is_refused(void **state)
{
    static const char *const cases[][2] = {{"unigram", "'Unigram'"},
                                           {"bpe_rules", "byte_fallback"}};
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        scratch_dir d = scratch_new();
        char model[PATH], file[PATH];
        af_error err = {0};
        make_model(join(model, sizeof model, d.path, "model"), cases[i][0]);
        assert_int_equal(export_to(model, join(file, sizeof file, d.path, "m.gguf"), "f32", &err),
                         AF_EUNSUPPORTED);
        CHECK_MSG(strstr(err.msg, cases[i][1]), "%s", err.msg);
        scratch_free(&d);
    }
}

static void note_warning(void *user, af_log_level level, const char *line)
{
    if (level == AF_LOG_WARN)
        snprintf(user, PATH, "%s", line);
}

/* The same tokenizer.model, with another file that does not open: not taken for the base's. */
static void test_a_broken_tokenizer_of_an_adapter_is_reported(void **state)
{
    static const char *const files[][2] = {{"tokenizer_config.json", "[]"},
                                           {"added_tokens.json", "{"}};
    (void)state;
    for (size_t i = 0; i < AF_LEN(files); i++) {
        scratch_dir d = scratch_new();
        char base[PATH], adapter[PATH], path[PATH], warning[PATH] = "";
        af_error err = {0};
        make_model(join(base, sizeof base, d.path, "base"), "bpe");
        make_model(join(adapter, sizeof adapter, d.path, "adapter"), "bpe");
        const char *const dirs[] = {base, adapter};
        for (size_t k = 0; k < AF_LEN(dirs); k++) /* added_tokens.json counts without a list */
            CHECK_OK(af_file_write(join(path, sizeof path, dirs[k], "tokenizer_config.json"), "{}",
                                   2, &err),
                     err);
        assert_true(af_adapter_has_tokenizer(adapter, base, ROWS));
        CHECK_OK(af_file_write(join(path, sizeof path, adapter, files[i][0]), files[i][1],
                               strlen(files[i][1]), &err),
                 err);
        af_log_set(note_warning, warning);
        const bool used = af_adapter_has_tokenizer(adapter, base, ROWS);
        af_log_set(NULL, NULL);
        assert_false(used);
        CHECK_MSG(strstr(warning, files[i][0]), "%s: \"%s\"", files[i][0], warning);
        scratch_free(&d);
    }
}

/* Bytes that are carried as they are: the folder gets them, and a warning says what they are. */
static void test_a_broken_model_in_gguf_is_reported(void **state)
{
    scratch_dir d = scratch_new();
    char model[PATH], file[PATH], path[PATH], warning[PATH] = "", *bytes = NULL;
    uint64_t n = 0;
    af_error err = {0};
    af_map pieces = {0};
    (void)state;
    make_model(join(model, sizeof model, d.path, "model"), "bpe");
    CHECK_OK(export_to(model, join(file, sizeof file, d.path, "m.gguf"), "f32", &err), err);
    CHECK_OK(af_file_read(&bytes, &n, file, 1 << 24, &err), err);
    CHECK_OK(af_map_open(&pieces, join(path, sizeof path, model, "tokenizer.model"), &err), err);
    char *at = memmem(bytes, n, pieces.data, pieces.size);
    assert_non_null(at);
    memset(at, 0, pieces.size);
    CHECK_OK(af_file_write(file, bytes, n, &err), err);
    af_log_set(note_warning, warning);
    const af_status st = export_to(file, join(path, sizeof path, d.path, "back"), NULL, &err);
    af_log_set(NULL, NULL);
    CHECK_OK(st, err);
    CHECK_MSG(strstr(warning, "tokenizer.model: not a SentencePiece model"), "\"%s\"", warning);
    af_map_close(&pieces);
    free(bytes);
    scratch_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_vocabulary_in_gguf_and_back),
        cmocka_unit_test(test_what_gguf_cannot_say_is_refused),
        cmocka_unit_test(test_a_broken_tokenizer_of_an_adapter_is_reported),
        cmocka_unit_test(test_a_broken_model_in_gguf_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
