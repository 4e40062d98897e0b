/* test_tokenizer_pieces.c - folders with tokenizer.model: the ids of the sentencepiece package and
 * of transformers, names of tokens, tokens added to a folder, and files that are refused. */
#define _GNU_SOURCE /* mkdtemp */
#include "test.h"

#include "base/file.h"
#include "base/hash.h"
#include "format/tokenizer/sentencepiece.h"
#include "format/tokenizer/token_edit.h"
#include "random_text.h"

#include <jansson.h>

enum { PATH = 4096 };

/* As tools/golden/make_pieces.py draws them. */
static void piece_text(uint64_t *x, af_buf *b)
{
    static const char *const parts[] = {"the small engine",
                                        " reads",
                                        " a file",
                                        "walking, walked",
                                        " ",
                                        "    ",
                                        "\n",
                                        "\n\n",
                                        "\t",
                                        "--------------",
                                        "----",
                                        "|---|---|",
                                        "0000000",
                                        " 1234",
                                        "<|im_start|>",
                                        "<|im_end|>",
                                        " <|im_end|> ",
                                        "<b>",
                                        "abc",
                                        "abcd",
                                        "the",
                                        "</s>",
                                        " </s> ",
                                        "<unk>",
                                        "<ctl>",
                                        "<pad>",
                                        "[PAD]",
                                        "<left>",
                                        " <left>",
                                        "<a1>",
                                        "Gr\xc3\xb6\xc3\x9f"
                                        "en",
                                        "\xc3\xa9",
                                        "e\xcc\x81\xcc\x80",
                                        "\xef\xac\x81le",
                                        "\xc2\xbd",
                                        "\xc2\xa0",
                                        "\xc2\xad",
                                        "\xe5\xb0\x8f\xe3\x81\x95\xe3\x81\xaa",
                                        "\xe3\x82\xa8\xe3\x83\xb3\xe3\x82\xb8\xe3\x83\xb3",
                                        "\xec\x97\x94\xec\xa7\x84",
                                        "\xf0\x9f\x8e\x89",
                                        "\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd",
                                        "\xe2\x96\x81",
                                        "\xe2\x96\x81\xe2\x96\x81",
                                        " a",
                                        "number",
                                        "<0x0A>",
                                        "When",
                                        "\xe3\x80\x80"};
    b->len = 0;
    for (uint32_t n = below(x, 12); n > 0; n--) {
        if (below(x, 8) == 0)
            add_random_text(x, b);
        else
            af_buf_str(b, parts[below(x, AF_LEN(parts))]);
    }
    af_buf_add(b, "", 0);
}

static const char *join(char *out, const char *dir, const char *name)
{
    snprintf(out, PATH, "%s/%s", dir, name);
    return out;
}

static void copy_model(const char *dir, const char *model)
{
    char from[PATH], to[PATH], name[64];
    char *bytes = NULL;
    uint64_t n = 0;
    af_error err = {0};
    snprintf(name, sizeof name, "pieces/%s.model", model);
    CHECK_OK(af_file_read(&bytes, &n, join(from, golden_dir(), name), 1 << 20, &err), err);
    CHECK_OK(af_file_write(join(to, dir, "tokenizer.model"), bytes, n, &err), err);
    free(bytes);
}

/* A folder with a model and JSON files. */
static char *make_folder(char *dir, const char *model, json_t *files)
{
    char path[PATH];
    const char *name;
    json_t *value;
    snprintf(dir, PATH, "/tmp/afinar-pieces-XXXXXX");
    assert_non_null(mkdtemp(dir));
    copy_model(dir, model);
    json_object_foreach(files, name, value)
        assert_int_equal(json_dump_file(value, join(path, dir, name), 0), 0);
    return dir;
}

static af_tokenizer *open_folder(const char *dir)
{
    af_error err = {0};
    af_tokenizer *t = NULL;
    CHECK_OK(af_tokenizer_open(&t, dir, &err), err);
    return t;
}

static void remove_folder(const char *dir)
{
    af_error err = {0};
    CHECK_OK(af_path_remove(dir, &err), err);
}

static json_t *load_cases(void)
{
    char path[PATH];
    json_t *all =
        json_load_file(join(path, golden_dir(), "pieces/cases.json"), JSON_ALLOW_NUL, NULL);
    assert_non_null(all);
    return all;
}

/* ---- ids ---- */

static void replace_marks(af_buf *b)
{
    char *at = b->data, *end = b->data + b->len, *to = b->data;
    while (at < end) {
        const bool mark = end - at >= 3 && memcmp(at, "\xe2\x96\x81", 3) == 0;
        *to++ = mark ? '_' : *at;
        at += mark ? 3 : 1;
    }
    b->len = (uint64_t)(to - b->data);
}

static void check_shown(const json_t *c, int i, const af_buf *b, const af_encoding *e)
{
    size_t k;
    json_t *row;
    json_array_foreach(json_object_get(c, "shown"), k, row)
    {
        json_t *text = json_array_get(row, 1), *ids = json_array_get(row, 2);
        if (json_integer_value(json_array_get(row, 0)) != i)
            continue;
        assert_int_equal(b->len, json_string_length(text));
        assert_memory_equal(b->data, json_string_value(text), b->len);
        bool same = (size_t)e->count == json_array_size(ids);
        for (int64_t j = 0; same && j < e->count; j++)
            same = e->ids[j] == json_integer_value(json_array_get(ids, (size_t)j));
        CHECK_MSG(same, "text %d: \"%s\" has other ids", i, json_string_value(text));
    }
}

static void check_case(const json_t *c, int count, int block)
{
    const char *model = json_string_value(json_object_get(c, "model"));
    const bool whole = strcmp(json_string_value(json_object_get(c, "by")), "transformers") == 0;
    const bool marks = whole && strcmp(model, "bpe_user") == 0;
    char dir[PATH], hex[17];
    uint64_t x = 20261117, h = AF_FNV_START, len;
    af_tokenizer *t = open_folder(make_folder(dir, model, json_object_get(c, "files")));
    af_encoding e = {0};
    af_error err = {0};
    af_buf b = {0};
    for (int i = 0; i < count; i++) {
        char *text = NULL;
        piece_text(&x, &b);
        if (marks)
            replace_marks(&b);
        CHECK_OK(af_tokenizer_encode(t, &e, b.data, b.len, whole && (i & 1), &err), err);
        check_shown(c, i, &b, &e);
        h = af_fnv1a(h, e.ids, (uint64_t)e.count * 4);
        h = af_fnv1a(h, "\xff", 1);
        CHECK_OK(af_tokenizer_decode(t, &text, &len, e.ids, e.count, (i & 2) != 0, &err), err);
        h = whole ? af_fnv1a(h, text, len) : h;
        free(text);
        if (i % block != block - 1)
            continue;
        snprintf(hex, sizeof hex, "%016" PRIx64, h);
        json_t *want = json_array_get(json_object_get(c, "hash"), (size_t)(i / block));
        CHECK_MSG(strcmp(hex, json_string_value(want)) == 0, "%s: the texts before %d give %s",
                  model, i + 1, hex);
    }
    af_buf_clear(&b);
    af_encoding_clear(&e);
    af_tokenizer_close(t);
    remove_folder(dir);
}

static void test_ids_of_sentencepiece_and_transformers(void **state)
{
    json_t *all = load_cases(), *c;
    size_t i;
    (void)state;
    const int count = (int)json_integer_value(json_object_get(all, "texts"));
    const int block = (int)json_integer_value(json_object_get(all, "block"));
    json_array_foreach(json_object_get(all, "cases"), i, c) check_case(c, count, block);
    json_decref(all);
}

/* ---- names ---- */

static void test_names_come_from_the_file_or_the_folder(void **state)
{
    char dir[PATH], path[PATH];
    (void)state;
    af_tokenizer *t = open_folder(make_folder(dir, "bpe_user", NULL));
    assert_int_equal(af_tokenizer_pad(t), 0);
    assert_int_equal(af_tokenizer_eos(t), 1);
    assert_int_equal(af_tokenizer_bos(t), 2);
    assert_int_equal(af_tokenizer_unk(t), 3);
    assert_string_equal(af_tokenizer_bos_text(t), "<s>");
    assert_true(af_tokenizer_is_special(t, 4)); /* control */
    assert_false(af_tokenizer_is_added(t, 5));  /* user-defined */
    int stops;
    assert_int_equal(af_tokenizer_stops(t, &stops)[0], 1);
    assert_int_equal(stops, 1);
    af_tokenizer_close(t);
    const int32_t size = 442;
    json_t *config = json_pack("{s:s, s:s, s:{s:s, s:b}, s:[s]}", "bos_token", "", "eos_token",
                               "<|im_end|>", "pad_token", "content", "<|pad|>", "lstrip", 1,
                               "additional_special_tokens", "<tool>");
    assert_int_equal(json_dump_file(config, join(path, dir, "tokenizer_config.json"), 0), 0);
    json_decref(config);
    t = open_folder(dir);
    assert_int_equal(af_tokenizer_bos(t), 2); /* an empty name is none */
    assert_int_equal(af_tokenizer_eos(t), size);
    assert_int_equal(af_tokenizer_pad(t), size + 1);
    assert_int_equal(af_tokenizer_id(t, "<tool>", 6), size + 2);
    assert_int_equal(af_tokenizer_vocab_size(t), size + 3);
    assert_true(af_tokenizer_is_special(t, size + 2));
    af_tokenizer_close(t);
    remove_folder(dir);
}

static void test_tokenizer_json_counts_where_both_are_there(void **state)
{
    char dir[PATH], path[PATH], *text = NULL;
    uint64_t n = 0;
    af_error err = {0};
    (void)state;
    make_folder(dir, "bpe", NULL);
    CHECK_OK(
        af_file_read(&text, &n, join(path, golden_dir(), "tokenizer/bytes.json"), 1 << 20, &err),
        err);
    CHECK_OK(af_file_write(join(path, dir, "tokenizer.json"), text, n, &err), err);
    free(text);
    af_tokenizer *t = open_folder(dir);
    assert_int_equal(af_tokenizer_id(t, "<0x00>", 6), -1);
    af_tokenizer_close(t);
    remove_folder(dir);
}

static void test_tokens_can_be_added_to_a_folder(void **state)
{
    static const af_token_edit edit[] = {{.name = "pad_token", .text = "<|pad|>", .special = true},
                                         {.text = "<think>"},
                                         {.text = "<tool>", .special = true, .listed = true}};
    af_error err = {0};
    af_encoding e = {0};
    (void)state;
    for (int decoder = 0; decoder < 2; decoder++) {
        char dir[PATH];
        json_t *files =
            decoder ? json_pack("{s:{s:{s:{s:s, s:b}}}}", "tokenizer_config.json",
                                "added_tokens_decoder", "480", "content", "<x>", "special", 1)
                    : NULL;
        make_folder(dir, "bpe", files);
        json_decref(files);
        CHECK_OK(af_token_edits_write(dir, edit, AF_LEN(edit), 0, &err), err);
        af_tokenizer *t = open_folder(dir);
        const int32_t first = 480 + decoder;
        assert_int_equal(af_tokenizer_pad(t), first);
        assert_int_equal(af_tokenizer_id(t, "<think>", 7), first + 1);
        assert_int_equal(af_tokenizer_vocab_size(t), first + 3);
        assert_false(af_tokenizer_is_special(t, first + 1));
        assert_true(af_tokenizer_is_special(t, first + 2));
        CHECK_OK(af_tokenizer_encode(t, &e, "<think>", 7, false, &err), err);
        assert_int_equal(e.count, 1);
        af_tokenizer_close(t);
        remove_folder(dir);
    }
    af_encoding_clear(&e);
}

/* ---- refused ---- */

static void put_bytes(af_buf *m, int field, const void *p, size_t n)
{
    af_buf_char(m, (char)(field << 3 | 2));
    af_buf_char(m, (char)n);
    af_buf_add(m, p, n);
}

static void put_piece(af_buf *m, const char *text, float score, int type)
{
    af_buf p = {0};
    put_bytes(&p, 1, text, strlen(text));
    af_buf_char(&p, 2 << 3 | 5);
    af_buf_add(&p, (const char *)&score, 4);
    af_buf_char(&p, 3 << 3);
    af_buf_char(&p, (char)type);
    put_bytes(m, 1, p.data, p.len);
    af_buf_clear(&p);
}

static void refuses(af_buf *m, const char *why)
{
    char dir[] = "/tmp/afinar-pieces-XXXXXX", path[PATH];
    af_error err = {0};
    af_tokenizer *t = NULL;
    assert_non_null(mkdtemp(dir));
    CHECK_OK(
        af_file_write(join(path, dir, "tokenizer.model"), m->data ? m->data : "", m->len, &err),
        err);
    assert_int_not_equal(af_tokenizer_open(&t, dir, &err), AF_OK);
    CHECK_MSG(strstr(err.msg, why) && strstr(err.msg, "tokenizer.model"), "\"%s\", not \"%s\"",
              err.msg, why);
    af_buf_clear(m);
    remove_folder(dir);
}

static void test_models_that_are_not_valid_are_refused(void **state)
{
    af_buf m = {0};
    (void)state;
    refuses(&m, "no pieces");
    af_buf_str(&m, "YWFh 0\nYmI= 1\n"); /* the form that tiktoken reads */
    refuses(&m, "tokenizer.model is of tiktoken");
    af_buf_add(&m, "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11);
    refuses(&m, "not a SentencePiece model");
    for (int i = 0; i < 1000; i++)
        af_buf_add(&m, "\x0a", 2);
    refuses(&m, "1000 pieces in 2000 bytes");
    put_piece(&m, "a", -1, 1);
    refuses(&m, "no piece has the type unknown");
    put_piece(&m, "<unk>", 0, 2);
    put_piece(&m, "<u>", 0, 2);
    refuses(&m, "both unknown");
    put_piece(&m, "<unk>", 0, 2);
    put_piece(&m, "a", 0, 1);
    put_piece(&m, "a", 0, 1);
    refuses(&m, "pieces 1 and 2 are both \"a\"");
    put_piece(&m, "\xff", 0, 1);
    refuses(&m, "not UTF-8");
    put_piece(&m, "", 0, 1);
    refuses(&m, "empty");
    put_piece(&m, "a", 0, 7);
    refuses(&m, "type 7");
    put_piece(&m, "a", (float)(1e300 * 1e300), 1);
    refuses(&m, "score inf");
    put_piece(&m, "<unk>", 0, 2);
    put_piece(&m, "<0x00>", 0, 6);
    refuses(&m, "1 byte pieces where byte_fallback is false");
    put_piece(&m, "<unk>", 0, 2);
    put_bytes(&m, 2, "\x18\x03", 2);
    refuses(&m, "model_type 3");
    put_piece(&m, "<unk>", 0, 2);
    put_bytes(&m, 2, "\xc0\x01\x01", 3);
    refuses(&m, "treat_whitespace_as_suffix");
    put_piece(&m, "<unk>", 0, 2);
    put_piece(&m, "a", 0, 5);
    put_bytes(&m, 2, "\x18\x02", 2);
    refuses(&m, "piece 1 is unused");
    put_piece(&m, "<unk>", 0, 2);
    put_bytes(&m, 3, "\x12\x05\xff\xff\xff\xff\x00", 7);
    refuses(&m, "precompiled_charsmap");
    put_piece(&m, "<unk>", 0, 2);
    put_bytes(&m, 3, "\x1a\x01\x01", 3);
    refuses(&m, "normalizer_spec");
}

static void test_folders_that_are_not_valid_are_refused(void **state)
{
    static const struct {
        const char *file, *json, *why;
    } cases[] = {
        {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"x\":{\"content\":\"a\"}}}",
         "invalid entry \"x\""},
        {"tokenizer_config.json", "{\"added_tokens_decoder\":{\"7\":{}}}", "invalid entry \"7\""},
        {"tokenizer_config.json",
         "{\"added_tokens_decoder\":{\"99999999999\":{\"content\":\"<y>\"}}}", "invalid id"},
        {"added_tokens.json", "{\"<y>\":-1}", "no valid id for \"<y>\""},
        {"added_tokens.json", "{\"<y>\":480,\"<z>\":480}", "the same id 480"},
        {"added_tokens.json", "{\"<y>\":480.5}", "no valid id for \"<y>\""},
        {"added_tokens.json", "{\"<y>\":67108863}", "invalid id 67108863"}, /* 1.3 GB */
        {"added_tokens.json", "[\"<y>\"]", "added_tokens.json: not an object"},
        {"special_tokens_map.json", "[\"<s>\"]", "special_tokens_map.json: not an object"},
        {"tokenizer_config.json", "[]", "tokenizer_config.json: not an object"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\":[\"a\"]}",
         "added_tokens_decoder is not an object"},
        {"tokenizer_config.json", "{\"tokenizer_class\":\"ChatGLMTokenizer\"}", "ChatGLMTokenizer"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char dir[PATH], path[PATH];
        af_error err = {0};
        af_tokenizer *t = NULL;
        make_folder(dir, "bpe", NULL);
        CHECK_OK(af_file_write(join(path, dir, cases[i].file), cases[i].json, strlen(cases[i].json),
                               &err),
                 err);
        assert_int_not_equal(af_tokenizer_open(&t, dir, &err), AF_OK);
        CHECK_MSG(strstr(err.msg, cases[i].why), "%s", err.msg);
        remove_folder(dir);
    }
}

/* A rule for the first byte of a character: what follows it would not be a text. */
static void test_rules_end_where_characters_do(void **state)
{
    enum { LEAD = 0xc3, UNITS = 256 };
    uint32_t map[1 + UNITS + 1] = {UNITS * 4}; /* bytes, units of the trie, "a" */
    char dir[] = "/tmp/afinar-pieces-XXXXXX", path[PATH];
    af_error err = {0};
    af_encoding e = {0};
    af_buf m = {0}, n = {0};
    (void)state;
    map[1 + LEAD] = LEAD | 1u << 8 | (LEAD ^ 1u) << 10; /* its value is in unit 1: string 0 */
    map[1 + UNITS] = 'a';
    af_buf_add(&n, "\x12\x88\x08", 3); /* field 2 of so many bytes */
    af_buf_add(&n, (const char *)map, sizeof map);
    af_buf_add(&n, "\x18", 2); /* no blank in front */
    put_piece(&m, "<unk>", 0, 2);
    put_piece(&m, "a", -1, 1);
    put_piece(&m, "\xc3\xa9", -1, 1);
    af_buf_add(&m, "\x1a\x8d\x08", 3); /* field 3 */
    af_buf_add(&m, n.data, n.len);
    assert_non_null(mkdtemp(dir));
    CHECK_OK(af_file_write(join(path, dir, "tokenizer.model"), m.data, m.len, &err), err);
    af_tokenizer *t = open_folder(dir);
    char *text = malloc(2); /* exact, so that a sanitizer sees a read beyond */
    memcpy(text, "\xc3\xa9", 2);
    CHECK_OK(af_tokenizer_encode(t, &e, text, 2, false, &err), err);
    assert_int_equal(e.count, 1);
    assert_int_equal(e.ids[0], 2);
    free(text);
    af_encoding_clear(&e);
    af_tokenizer_close(t);
    af_buf_clear(&m);
    af_buf_clear(&n);
    remove_folder(dir);
}

/* Cut at any byte, and with any byte changed: an error or a model, nothing worse. */
static void test_cut_and_changed_files(void **state)
{
    char path[PATH], *bytes = NULL;
    uint64_t n = 0;
    af_error err = {0};
    af_spm m;
    (void)state;
    CHECK_OK(
        af_file_read(&bytes, &n, join(path, golden_dir(), "pieces/bpe_rules.model"), 1 << 20, &err),
        err);
    int parsed = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint8_t *cut = malloc(i + 1); /* exact, so that a sanitizer sees a read beyond */
        memcpy(cut, bytes, i);
        if (af_spm_parse(&m, cut, i, &err) == AF_OK) {
            parsed++;
            af_spm_clear(&m);
        }
        free(cut);
        bytes[i] ^= (char)0x80;
        if (af_spm_parse(&m, (const uint8_t *)bytes, n, &err) == AF_OK)
            af_spm_clear(&m);
        bytes[i] ^= (char)0x80;
    }
    assert_true(parsed > 0 && (uint64_t)parsed < n / 4); /* between two fields */
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_of_sentencepiece_and_transformers),
        cmocka_unit_test(test_names_come_from_the_file_or_the_folder),
        cmocka_unit_test(test_tokenizer_json_counts_where_both_are_there),
        cmocka_unit_test(test_tokens_can_be_added_to_a_folder),
        cmocka_unit_test(test_models_that_are_not_valid_are_refused),
        cmocka_unit_test(test_folders_that_are_not_valid_are_refused),
        cmocka_unit_test(test_rules_end_where_characters_do),
        cmocka_unit_test(test_cut_and_changed_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
