/* test_tokenizer.c - small custom tokenizers: random strings against stored hashes, scanners
 * against the regex engine, offsets, threads, and inconsistent files. */
#include "test.h"

#include "base/file.h"
#include "base/hash.h"
#include "format/tokenizer/tokenizer.h"
#include "random_text.h"

#include <jansson.h>

static const char *const names[] = {"bytes", "marks", "unigram", "pieces", "splits"};

static af_tokenizer *open_own(const char *name)
{
    char path[4096];
    af_error err = {0};
    af_tokenizer *t = NULL;
    snprintf(path, sizeof path, "%s/tokenizer/%s.json", golden_dir(), name);
    CHECK_OK(af_tokenizer_open(&t, path, &err), err);
    return t;
}

static uint64_t add_hash(uint64_t h, const af_tokenizer *t, const af_buf *b, int i, af_encoding *e)
{
    af_error err = {0};
    char *text;
    uint64_t len;
    CHECK_OK(af_tokenizer_encode(t, e, b->data, b->len, i & 1, &err), err);
    h = af_fnv1a(h, e->ids, (uint64_t)e->count * 4); /* little endian, as everywhere here */
    h = af_fnv1a(h, "\xff", 1);
    CHECK_OK(af_tokenizer_decode(t, &text, &len, e->ids, e->count, (i & 2) != 0, &err), err);
    h = af_fnv1a(h, text, len);
    free(text);
    return h;
}

/* 100,000 strings from mixed ranges of Unicode, ids and decoded text, a hash every 10,000; under
 * AddressSanitizer the first 20,000 of them. */
static void test_random_strings_give_the_stored_hashes(void **state)
{
    (void)state;
    char path[4096], hex[17];
    snprintf(path, sizeof path, "%s/tokenizer/random.json", golden_dir());
    json_t *want = json_load_file(path, 0, NULL);
    assert_non_null(want);
    int count = (int)json_integer_value(json_object_get(want, "strings"));
    const int block = (int)json_integer_value(json_object_get(want, "block"));
#if defined(__SANITIZE_ADDRESS__)
    count = AF_MIN(count, 2 * block);
#endif
    for (size_t n = 0; n < AF_LEN(names); n++) {
        json_t *list = json_object_get(json_object_get(want, "hash"), names[n]);
        af_tokenizer *t = open_own(names[n]);
        af_encoding e = {0};
        af_buf b = {0};
        uint64_t x = 20240229, h = AF_FNV_START;
        for (int i = 0; i < count; i++) {
            random_text(&x, &b);
            h = add_hash(h, t, &b, i, &e);
            if (i % block != block - 1)
                continue;
            snprintf(hex, sizeof hex, "%016" PRIx64, h);
            CHECK_MSG(strcmp(hex, json_string_value(json_array_get(list, (size_t)(i / block)))) ==
                          0,
                      "%s: the strings before %d give %s", names[n], i + 1, hex);
        }
        af_buf_clear(&b);
        af_encoding_clear(&e);
        af_tokenizer_close(t);
    }
    json_decref(want);
}

static const char *const scanned[] = {
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+"
    "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+"
    "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
    "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
};

static void same_pieces(const af_unicode *u, const char *pattern, const af_regex *r,
                        af_regex_work **w, const af_buf *b)
{
    af_scanner *scan = af_scanner_find(pattern, strlen(pattern));
    af_error err = {0};
    assert_non_null(scan);
    for (uint32_t i = 0; i < b->len;) {
        uint32_t start, end;
        const uint32_t n = scan(u, b->data, (uint32_t)b->len, i);
        CHECK_OK(af_regex_next(r, w, b->data, (uint32_t)b->len, i, &start, &end, &err), err);
        CHECK_MSG(start == i && end == i + n, "\"%s\" at %u: scanner %u, regex %u-%u", b->data, i,
                  n, start, end);
        i += n;
    }
}

static void test_scanners_cut_as_the_regex_engine_does(void **state)
{
    (void)state;
    af_unicode *u = af_calloc(1, sizeof *u);
    af_unicode_init(u);
    for (size_t k = 0; k < AF_LEN(scanned); k++) {
        af_regex *r = NULL;
        af_regex_work *w = NULL;
        af_error err = {0};
        af_buf b = {0};
        uint64_t x = 7 + k;
        CHECK_OK(af_regex_new(&r, scanned[k], strlen(scanned[k]), &err), err);
        for (int i = 0; i < 20000; i++) {
            random_text(&x, &b);
            same_pieces(u, scanned[k], r, &w, &b);
        }
        for (uint32_t cp = 1; cp < AF_CP_COUNT;
             cp += 1 + cp / 3000) { /* each class, with neighbours */
            if (cp >= 0xd800 && cp <= 0xdfff)
                continue;
            b.len = 0;
            af_buf_str(&b, "'");
            af_buf_utf8(&b, cp);
            af_buf_str(&b, "a ");
            af_buf_utf8(&b, cp);
            af_buf_utf8(&b, cp);
            af_buf_str(&b, "\n1");
            af_buf_utf8(&b, cp);
            same_pieces(u, scanned[k], r, &w, &b);
        }
        af_buf_clear(&b);
        af_regex_work_free(w);
        af_regex_free(r);
    }
    free(u);
}

static void test_offsets_point_into_the_original_text(void **state)
{
    (void)state;
    static const struct {
        const char *tokenizer, *text;
    } cases[] = {
        {"bytes", "Hello e\xcc\x81t\xc3\xa9 \xf0\x9f\x8e\x89<s>  </s>  numbers"},
        {"marks", "the small engine <word> reads \xe4\xb8\xad"},
        {"splits", "\xef\xac\x81rst READER 123, and!"},
        {"unigram", "the  small   engine  "},
        {"pieces", "The Reader r\xc3\xa9"
                   "ads."},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_tokenizer *t = open_own(cases[i].tokenizer);
        const uint32_t len = (uint32_t)strlen(cases[i].text);
        af_encoding e = {0};
        af_error err = {0};
        CHECK_OK(af_tokenizer_encode(t, &e, cases[i].text, len, false, &err), err);
        assert_true(e.count > 0);
        for (int64_t k = 0; k < e.count; k++) {
            CHECK_MSG(e.start[k] < e.end[k] && e.end[k] <= len &&
                          (k == 0 || e.start[k] >= e.start[k - 1]),
                      "%s: token %d is %u-%u of %u", cases[i].tokenizer, (int)k, e.start[k],
                      e.end[k], len);
            CHECK_MSG(!af_utf8_is_tail(cases[i].text[e.start[k]]) &&
                          !af_utf8_is_tail(cases[i].text[e.end[k]]),
                      "%s: token %d cuts a character", cases[i].tokenizer, (int)k);
        }
        af_encoding_clear(&e);
        af_tokenizer_close(t);
    }
}

static void test_ids_and_tokens_by_name(void **state)
{
    (void)state;
    af_tokenizer *t = open_own("bytes");
    uint64_t n;
    const int32_t s = af_tokenizer_id(t, "<s>", 3), word = af_tokenizer_id(t, "<word>", 6);
    assert_true(s >= 0 && word >= 0);
    assert_true(af_tokenizer_is_special(t, s) && !af_tokenizer_is_special(t, word));
    assert_true(af_tokenizer_is_added(t, word) && !af_tokenizer_is_added(t, 0));
    assert_string_equal(af_tokenizer_token(t, s, &n), "<s>");
    assert_int_equal(n, 3);
    assert_int_equal(af_tokenizer_vocab_size(t), 516);
    assert_null(af_tokenizer_token(t, 516, NULL));
    assert_null(af_tokenizer_token(t, -1, NULL));
    assert_int_equal(af_tokenizer_id(t, "no such token", 13), -1);
    assert_int_equal(af_tokenizer_eos(t), -1);
    assert_null(af_tokenizer_eos_text(t));
    af_tokenizer_close(t);
}

static void test_text_that_is_not_utf8_names_the_byte(void **state)
{
    (void)state;
    af_tokenizer *t = open_own("bytes");
    af_encoding e = {0};
    af_error err = {0};
    assert_int_equal(af_tokenizer_encode(t, &e, "abcdefgh\xff", 9, false, &err), AF_EFORMAT);
    assert_non_null(strstr(err.msg, "byte 8 of 9"));
    assert_int_equal(af_tokenizer_encode(t, &e, "a\xed\xa0\x80", 4, false, &err), AF_EFORMAT);
    CHECK_OK(af_tokenizer_encode(t, &e, "a\0b", 3, false, &err), err);
    assert_int_equal(e.count, 3);
    CHECK_OK(af_tokenizer_encode(t, &e, "", 0, true, &err), err);
    assert_int_equal(e.count, 2);
    af_encoding_clear(&e);
    af_tokenizer_close(t);
}

typedef struct share {
    const af_tokenizer *t;
    uint64_t hash;
} share;

static void *encode_share(void *arg)
{
    share *s = arg;
    af_encoding e = {0};
    af_buf b = {0};
    uint64_t x = 99;
    s->hash = AF_FNV_START;
    for (int i = 0; i < 3000; i++) {
        random_text(&x, &b);
        s->hash = add_hash(s->hash, s->t, &b, i, &e);
    }
    af_buf_clear(&b);
    af_encoding_clear(&e);
    return NULL;
}

static void test_threads_share_one_tokenizer(void **state)
{
    (void)state;
    af_tokenizer *t = open_own("splits");
    pthread_t thread[4];
    share s[4];
    for (int i = 0; i < 4; i++) {
        s[i] = (share){.t = t};
        assert_int_equal(pthread_create(&thread[i], NULL, encode_share, &s[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        assert_true(s[i].hash == s[0].hash);
    }
    af_tokenizer_close(t);
}

static void test_inconsistent_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *why, *json, *says;
    } cases[] = {
        {"not JSON", "{", "unexpected end"},
        {"text after", "{} x", "after"},
        {"not an object", "[]", "not an object"},
        {"no model", "{}", "no model"},
        {"unknown model", "{\"model\":{\"type\":\"Magic\",\"vocab\":{}}}", "Magic"},
        {"unknown normalizer", "{\"normalizer\":{\"type\":\"Fold\"}}", "Fold"},
        {"unknown pre-tokenizer", "{\"pre_tokenizer\":{\"type\":\"Cut\"}}", "Cut"},
        {"unknown decoder", "{\"decoder\":{\"type\":\"Glue\"}}", "Glue"},
        {"unknown post-processor", "{\"post_processor\":{\"type\":\"Wrap\"}}", "Wrap"},
        {"unknown behaviour",
         "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},"
         "\"behavior\":\"Eat\"}}",
         "Eat"},
        {"regex that does not compile",
         "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a\"},"
         "\"behavior\":\"Removed\"}}",
         "unclosed"},
        {"unknown property",
         "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\p{Elvish}\"},"
         "\"content\":\"\"}}",
         "elvish"},
        {"merge of a missing token",
         "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "merge 0"},
        {"merge of three words",
         "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b c\"]}}", "two tokens"},
        {"negative id", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}",
         "invalid id"},
        {"huge id", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1e12},\"merges\":[]}}",
         "invalid id"},
        {"id far from all others",
         "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":67108863},\"merges\":[]}}", "invalid id"},
        {"added token far from all others",
         "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},"
         "\"added_tokens\":[{\"id\":67108863,\"content\":\"b\"}]}",
         "invalid id"},
        {"half an id",
         "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},"
         "\"added_tokens\":[{\"id\":1.5,\"content\":\"b\"}]}",
         "no valid id"},
        {"two tokens, one id",
         "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "same id"},
        {"unk outside", "{\"model\":{\"type\":\"Unigram\",\"unk_id\":7,\"vocab\":[[\"a\",0]]}}",
         "unk_id 7"},
        {"dropout",
         "{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{\"a\":0},\"merges\":[]}}",
         "dropout"},
        {"bad character map",
         "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA/w==\"}}",
         "precompiled_charsmap"},
        {"surrogate alone", "{\"model\":\"\\ud800\"}", "surrogate"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        af_tokenizer *t = NULL;
        const af_status st = af_tokenizer_from_json(&t, cases[i].json, strlen(cases[i].json), &err);
        CHECK_MSG(st != AF_OK, "%s: accepted", cases[i].why);
        CHECK_MSG(strstr(err.msg, cases[i].says), "%s: \"%s\"", cases[i].why, err.msg);
    }
}

static af_tokenizer *from_json(const char *json)
{
    af_tokenizer *t = NULL;
    af_error err = {0};
    CHECK_OK(af_tokenizer_from_json(&t, json, strlen(json), &err), err);
    return t;
}

static void gives_ids(const char *json, const char *text, const int32_t *want, int64_t count)
{
    af_error err = {0};
    af_encoding e = {0};
    af_tokenizer *t = from_json(json);
    CHECK_OK(af_tokenizer_encode(t, &e, text, strlen(text), false, &err), err);
    assert_int_equal(e.count, count);
    assert_memory_equal(e.ids, want, (size_t)count * sizeof *want);
    af_encoding_clear(&e);
    af_tokenizer_close(t);
}

/* Segmentations of one score, judged by the `tokenizers` package: "ab" reaches the end first from
 * its begin, and so does "bc" from the end of "a"; a later one of the same score does not win. */
static void test_equal_scores_keep_the_earlier_path(void **state)
{
    (void)state;
    static const int32_t want[] = {1, 5}; /* a, bc */
    gives_ids("{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\","
              "0],[\"a\",-1],[\"b\",-1],[\"c\",-1],[\"ab\",-2],[\"bc\",-2]]}}",
              "abc", want, AF_LEN(want));
}

/* ids of the tokenizers package. A text is cut before U+2581 only where no merge joins it with the
 * byte before it, here ">". */
static void test_merges_across_a_mark(void **state)
{
    (void)state;
    static const char json[] =
        "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":"
        "\"\u2581\"},\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"vocab\":{"
        "\"<unk>\":0,\"\u2581\":1,\"a\":2,\"b\":3,\">\":4,\"\u2581a\":5,\"\u2581b\":6,"
        "\">\u2581\":7,\">\u2581a\":8,\"ab\":9,\"\u2581ab\":10,\"\u2581\u2581\":11},\"merges\":["
        "[\">\",\"\u2581\"],[\"\u2581\",\"a\"],[\"\u2581\",\"b\"],[\">\u2581\",\"a\"],"
        "[\"a\",\"b\"],[\"\u2581a\",\"b\"],[\"\u2581\",\"\u2581\"]]}}";
    static const char text[] = "a b a> a> b ab> ab a>  b  >a ba ab";
    static const int32_t want[] = {2, 6, 5, 8, 7, 3, 10, 8, 3, 5, 7, 6, 11, 4, 2, 6, 2, 10};
    gives_ids(json, text, want, AF_LEN(want));
}

/* A character outside the byte alphabet makes the whole token plain text, also after bytes. */
static void test_a_token_outside_the_byte_alphabet_is_text(void **state)
{
    (void)state;
    af_error err = {0};
    char *text = NULL;
    uint64_t len = 0;
    af_tokenizer *t =
        from_json("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\u0120a\":0,"
                  "\"\u0120a\u4e2d\":1},\"merges\":[]},\"decoder\":{\"type\":\"ByteLevel\"}}");
    CHECK_OK(af_tokenizer_decode(t, &text, &len, (int32_t[]){0, 1}, 2, false, &err), err);
    assert_string_equal(text, " a\xc4\xa0"
                              "a\xe4\xb8\xad");
    free(text);
    af_tokenizer_close(t);
}

/* Tokens 0, 1, 2 ... with the spans of the `tokenizers` package. */
static void gives_spans(const char *json, const char *text, const uint32_t (*want)[2], int count)
{
    af_error err = {0};
    af_encoding e = {0};
    af_tokenizer *t = from_json(json);
    CHECK_OK(af_tokenizer_encode(t, &e, text, strlen(text), false, &err), err);
    assert_int_equal(e.count, count);
    for (int i = 0; i < count; i++)
        CHECK_MSG(e.ids[i] == i && e.start[i] == want[i][0] && e.end[i] == want[i][1],
                  "token %d is %d, %u-%u", i, e.ids[i], e.start[i], e.end[i]);
    af_encoding_clear(&e);
    af_tokenizer_close(t);
}

/* Each byte of a character stands for all of it, and no more. */
static void test_bytes_span_their_character(void **state)
{
    static const uint32_t fallback[][2] = {{0, 1}, {1, 4}, {1, 4}, {1, 4}, {4, 5}},
                          normalized[][2] = {{0, 1}, {1, 3}, {1, 3}, {3, 4}};
    (void)state;
    gives_spans("{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"a\":0,"
                "\"<0xE4>\":1,\"<0xB8>\":2,\"<0xAD>\":3,\"b\":4},\"merges\":[]}}",
                "a\u4e2db", fallback, 5);
    gives_spans("{\"normalizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{"
                "\"a\":0,\"\u00c3\":1,\"\u00a9\":2,\"b\":3},\"merges\":[]}}",
                "a\u00e9b", normalized, 4);
}

/* Characters that are pieces need no unk. */
static void test_a_unigram_model_without_unk(void **state)
{
    (void)state;
    af_error err = {0};
    af_encoding e = {0};
    af_tokenizer *t =
        from_json("{\"model\":{\"type\":\"Unigram\",\"unk_id\":null,\"vocab\":[[\"a\","
                  "-1],[\"b\",-1],[\"ab\",-1.5]]}}");
    CHECK_OK(af_tokenizer_encode(t, &e, "aba", 3, false, &err), err);
    assert_int_equal(e.count, 2);
    assert_int_equal(e.ids[0], 2);
    assert_int_equal(e.ids[1], 0);
    assert_int_equal(af_tokenizer_encode(t, &e, "abc", 3, false, &err), AF_EFORMAT);
    assert_non_null(strstr(err.msg, "unk_id"));
    af_encoding_clear(&e);
    af_tokenizer_close(t);
}

/* Two paths whose scores differ in the last bit, or not at all, by how the numbers are read: the
 * ids are those of tokenizers 0.23.3. */
static void test_scores_are_read_as_the_rust_package_does(void **state)
{
    (void)state;
    static const int32_t want[] = {0, 1, 2, 3, 4, 5, 6};
    gives_ids(
        "{\"model\":{\"type\":\"Unigram\",\"unk_id\":null,\"vocab\":[[\"x\",-7.4502929128285285],"
        "[\"p\",-5.143963245789191],[\"o\",-6.072559764325853],[\"n\",-6.549675344307144],"
        "[\"s\",-3.7890357579310123],[\"-\",-6.029139065059216],[\"--\",-7.167503501864692],"
        "[\"f\",-1e-400],[\"q\",-12345678901234567890123.5],[\"r\",-2.5e1]]}}",
        "xpons---", want, AF_LEN(want));
}

static void test_splits_and_accents(void **state)
{
    static const struct {
        const char *json, *text;
        int32_t count, ids[4];
    } cases[] = {
        /* what matches in a row is one piece, so that it merges */
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":"
         "\"Contiguous\",\"invert\":false},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"-\":1,"
         "\"b\":2,\"--\":3,\"a-\":4},\"merges\":[\"a -\",\"- -\"]}}",
         "a--b",
         3,
         {0, 3, 2}},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"-\"},\"behavior\":"
         "\"Isolated\",\"invert\":false},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"-\":1,"
         "\"b\":2,\"--\":3,\"a-\":4},\"merges\":[\"a -\",\"- -\"]}}",
         "a--b",
         4,
         {0, 1, 1, 2}},
        /* a mark that the vocabulary has: nothing else drops it */
        {"{\"normalizer\":{\"type\":\"StripAccents\"},\"model\":{\"type\":\"BPE\",\"vocab\":{"
         "\"e\":0,\"t\":1,\"\xcc\x81\":2},\"merges\":[]}}",
         "e\xcc\x81te",
         3,
         {0, 1, 0}},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++)
        gives_ids(cases[i].json, cases[i].text, cases[i].ids, cases[i].count);
}

static void test_decoders_at_the_edges(void **state)
{
    static const struct {
        const char *json, *want;
    } cases[] = {
        /* a word's end is a space but at the end of the text (`tokenizers` gives "a b a") */
        {"{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"a</w>\":0,"
         "\"b</w>\":1},\"merges\":[]},\"decoder\":{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}}",
         "a b a"},
        /* more to strip than there is */
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"  \":0,\"b \":1},\"merges\":[]},"
         "\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":3}}",
         "b"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        char *text = NULL;
        uint64_t len = 0;
        af_tokenizer *t = from_json(cases[i].json);
        CHECK_OK(af_tokenizer_decode(t, &text, &len, (int32_t[]){0, 1, 0}, 3, false, &err), err);
        assert_string_equal(text, cases[i].want);
        free(text);
        af_tokenizer_close(t);
    }
}

static void test_deep_json_is_refused(void **state)
{
    (void)state;
    af_buf b = {0};
    af_error err = {0};
    af_tokenizer *t = NULL;
    for (int i = 0; i < 100000; i++)
        af_buf_str(&b, "{\"a\":");
    assert_int_equal(af_tokenizer_from_json(&t, b.data, b.len, &err), AF_EFORMAT);
    assert_non_null(strstr(err.msg, "deeper"));
    af_buf_clear(&b);
}

/* A word as long as the text is where a quadratic merge would hang. */
static void test_long_word_takes_no_quadratic_time(void **state)
{
    (void)state;
    af_tokenizer *t = open_own("bytes");
    af_encoding e = {0};
    af_error err = {0};
    const uint64_t n = 2 << 20;
    char *text = malloc(n);
    for (uint64_t i = 0; i < n; i++)
        text[i] = "number"[i % 6];
    CHECK_OK(af_tokenizer_encode(t, &e, text, n, false, &err), err);
    assert_true(e.count > 1000 && e.end[e.count - 1] == n);
    af_encoding_clear(&e);
    free(text);
    af_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_strings_give_the_stored_hashes),
        cmocka_unit_test(test_scanners_cut_as_the_regex_engine_does),
        cmocka_unit_test(test_offsets_point_into_the_original_text),
        cmocka_unit_test(test_ids_and_tokens_by_name),
        cmocka_unit_test(test_text_that_is_not_utf8_names_the_byte),
        cmocka_unit_test(test_threads_share_one_tokenizer),
        cmocka_unit_test(test_inconsistent_files_are_refused),
        cmocka_unit_test(test_equal_scores_keep_the_earlier_path),
        cmocka_unit_test(test_merges_across_a_mark),
        cmocka_unit_test(test_a_token_outside_the_byte_alphabet_is_text),
        cmocka_unit_test(test_bytes_span_their_character),
        cmocka_unit_test(test_a_unigram_model_without_unk),
        cmocka_unit_test(test_scores_are_read_as_the_rust_package_does),
        cmocka_unit_test(test_splits_and_accents),
        cmocka_unit_test(test_decoders_at_the_edges),
        cmocka_unit_test(test_deep_json_is_refused),
        cmocka_unit_test(test_long_word_takes_no_quadratic_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
