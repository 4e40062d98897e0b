/* test_tokenizer_golden.c - every case of the shared text goldens: ids, decoding, streaming, bulk
 * hashes. Third-party tokenizers are not part of the tree: without the shared folder (or xz) the
 * tests skip and say so. */
#define _GNU_SOURCE
#include "test.h"

#include "afinar/text.h"
#include "base/buf.h"
#include "base/hash.h"
#include "format/text/unicode.h"

#include <jansson.h>

static const struct source {
    const char *name;
    bool own; /* in golden/text/tokenizers instead of tokenizers */
} sources[] = {
    {"gpt2", false},   {"llama2", false},     {"llama3_1", false},       {"qwen2_5", false},
    {"smollm2", true}, {"synth_flags", true}, {"synth_metaspace", true}, {"synth_unigram", true},
};

static char *slurp(FILE *f, uint64_t *len)
{
    af_buf b = {0};
    char chunk[1 << 16];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        af_buf_add(&b, chunk, n);
    af_buf_add(&b, "", 0);
    *len = b.len;
    return af_buf_take(&b);
}

/* A file of the shared folder, unpacked when its name ends in .xz. NULL when it is not available.
 */
static char *shared_text(const char *path, uint64_t *len)
{
    char command[4096];
    const char *dir = shared_dir();
    const size_t n = strlen(path);
    const bool packed = n > 3 && strcmp(path + n - 3, ".xz") == 0;
    if (!dir)
        return NULL;
    snprintf(command, sizeof command, packed ? "xz -dc '%s/%s' 2>/dev/null" : "%s/%s", dir, path);
    FILE *f = packed ? popen(command, "r") : fopen(command, "r");
    if (!f)
        return NULL;
    char *text = slurp(f, len);
    if (packed)
        pclose(f);
    else
        fclose(f);
    if (text && *len == 0) {
        free(text);
        return NULL;
    }
    return text;
}

static void need_shared(void)
{
    if (!shared_dir() || system("xz --version >/dev/null 2>&1") != 0)
        skip_because("no shared goldens, or no xz");
}

static af_tokenizer *open_source(const struct source *s)
{
    char path[256];
    uint64_t len = 0;
    af_error err = {0};
    af_tokenizer *t = NULL;
    snprintf(path, sizeof path, "%s/%s/tokenizer.json.xz",
             s->own ? "golden/text/tokenizers" : "tokenizers", s->name);
    char *json = shared_text(path, &len);
    assert_non_null(json);
    CHECK_OK(af_tokenizer_from_json(&t, json, len, &err), err);
    free(json);
    return t;
}

typedef void row_check(const af_tokenizer *t, const char *name, int line, json_t *row);

static int for_rows(const af_tokenizer *t, const char *name, const char *path, row_check *check)
{
    uint64_t len = 0;
    int line = 0;
    char *text = shared_text(path, &len), *save = text;
    CHECK_MSG(text != NULL, "%s cannot be read", path);
    for (char *end = text + len; text < end; line++) {
        char *eol = memchr(text, '\n', (size_t)(end - text));
        eol = eol ? eol : end;
        json_error_t why;
        json_t *row =
            json_loadb(text, (size_t)(eol - text), JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
        CHECK_MSG(row != NULL, "%s line %d: %s", path, line + 1, why.text);
        check(t, name, line + 1, row);
        json_decref(row);
        text = eol + 1;
    }
    free(save);
    return line;
}

static void ids_of(json_t *list, int32_t **ids, int64_t *n)
{
    *n = (int64_t)json_array_size(list);
    *ids = calloc((size_t)*n + 1, sizeof **ids);
    for (int64_t i = 0; i < *n; i++)
        (*ids)[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
}

static void check_decode(const af_tokenizer *t, const char *name, int line, json_t *row,
                         const char *key, bool skip_special)
{
    json_t *want = json_object_get(row, key);
    if (!want && skip_special)
        want = json_object_get(row, "decode");
    if (!want)
        return;
    af_error err = {0};
    int32_t *ids;
    int64_t n;
    char *text;
    uint64_t len;
    ids_of(json_object_get(row, "ids"), &ids, &n);
    CHECK_OK(af_tokenizer_decode(t, &text, &len, ids, n, skip_special, &err), err);
    CHECK_MSG(len == json_string_length(want) && memcmp(text, json_string_value(want), len) == 0,
              "%s line %d: %s gives \"%s\" not \"%s\"", name, line, key, text,
              json_string_value(want));
    free(text);
    free(ids);
}

static void check_encode(const af_tokenizer *t, const char *name, int line, json_t *row)
{
    json_t *text = json_object_get(row, "text"), *ids = json_object_get(row, "ids");
    const bool special = json_is_true(json_object_get(row, "add_special_tokens"));
    const uint64_t len = json_string_length(text);
    af_encoding e = {0};
    af_error err = {0};
    CHECK_OK(af_tokenizer_encode(t, &e, json_string_value(text), len, special, &err), err);
    bool same = e.count == (int64_t)json_array_size(ids);
    for (int64_t i = 0; same && i < e.count; i++) {
        same = e.ids[i] == json_integer_value(json_array_get(ids, (size_t)i));
        CHECK_MSG(e.start[i] <= e.end[i] && e.end[i] <= len, "%s line %d: offsets %u-%u of %u",
                  name, line, e.start[i], e.end[i], (unsigned)len);
    }
    if (!same) {
        char *want = json_dumps(ids, 0);
        print_error("%s line %d (%s): \"%.200s\"\nwant %.300s\ngot [", name, line,
                    json_string_value(json_object_get(row, "tag")), json_string_value(text), want);
        for (int64_t i = 0; i < e.count && i < 40; i++)
            print_error("%d, ", e.ids[i]);
        fail_msg("]: other ids");
    }
    af_encoding_clear(&e);
    check_decode(t, name, line, row, "decode", false);
    check_decode(t, name, line, row, "decode_skip", true);
}

static void test_encode_cases(void **state)
{
    (void)state;
    need_shared();
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        char path[256];
        af_tokenizer *t = open_source(&sources[i]);
        snprintf(path, sizeof path, "golden/text/encode/%s.jsonl.xz", sources[i].name);
        assert_true(for_rows(t, sources[i].name, path, check_encode) > 100);
        af_tokenizer_close(t);
    }
}

static void check_stream(const af_tokenizer *t, const char *name, int line, json_t *row)
{
    json_t *stream = json_object_get(row, "stream"), *ids = json_object_get(row, "ids");
    af_error err = {0};
    af_decode_stream s;
    check_decode(t, name, line, row, "decode", false);
    check_decode(t, name, line, row, "decode_skip", true);
    if (!json_is_array(stream))
        return;
    af_decode_stream_init(&s, t, false);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const char *text;
        uint64_t len;
        json_t *want = json_array_get(stream, i);
        CHECK_OK(af_decode_stream_next(&s, (int32_t)json_integer_value(json_array_get(ids, i)),
                                       &text, &len, &err),
                 err);
        CHECK_MSG(len == json_string_length(want) &&
                      memcmp(text, json_string_value(want), len) == 0,
                  "%s line %d: stream %zu gives \"%s\" not \"%s\"", name, line, i, text,
                  json_string_value(want));
    }
    af_decode_stream_clear(&s);
}

static void test_decode_and_stream_cases(void **state)
{
    (void)state;
    need_shared();
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        char path[256];
        af_tokenizer *t = open_source(&sources[i]);
        snprintf(path, sizeof path, "golden/text/decode/%s.jsonl", sources[i].name);
        assert_true(for_rows(t, sources[i].name, path, check_stream) > 10);
        af_tokenizer_close(t);
    }
}

static void add_ids(const af_tokenizer *t, const char *text, uint64_t len, uint64_t *hash,
                    int64_t *count, af_encoding *e)
{
    af_error err = {0};
    CHECK_OK(af_tokenizer_encode(t, e, text, len, false, &err), err);
    for (int64_t i = 0; i < e->count; i++) {
        const uint32_t id = (uint32_t)e->ids[i];
        const uint8_t b[4] = {(uint8_t)id, (uint8_t)(id >> 8), (uint8_t)(id >> 16),
                              (uint8_t)(id >> 24)};
        *hash = af_fnv1a(*hash, b, 4);
    }
    *count += e->count;
}

static void check_bulk(const af_tokenizer *t, const char *name, const char *key, json_t *want)
{
    uint64_t len = 0, hash = AF_FNV_START;
    int64_t count = 0;
    af_encoding e = {0};
    char hex[17];
    const bool whole = strstr(key, ":whole") != NULL;
    char *text = shared_text(
        strncmp(key, "tiny", 4) == 0 ? "data/tinyshakespeare.txt" : "data/gsm8k-2000.jsonl", &len);
    CHECK_MSG(text != NULL, "no text for %s", key);
    for (char *at = text, *end = text + len; at < end;) {
        char *eol = whole ? NULL : memchr(at, '\n', (size_t)(end - at));
        eol = eol ? eol : end;
        if (eol > at)
            add_ids(t, at, (uint64_t)(eol - at), &hash, &count, &e);
        at = eol + 1;
    }
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)hash);
    CHECK_MSG(count == json_integer_value(json_object_get(want, "count")) &&
                  strcmp(hex, json_string_value(json_object_get(want, "fnv1a64"))) == 0,
              "%s %s: %lld ids, hash %s", name, key, (long long)count, hex);
    af_encoding_clear(&e);
    free(text);
}

static void test_bulk_hashes(void **state)
{
    (void)state;
    need_shared();
    uint64_t len = 0;
    char *text = shared_text("golden/text/encode/bulk.json", &len);
    json_t *all = json_loadb(text, len, 0, NULL);
    assert_non_null(all);
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        const char *key;
        json_t *want;
        af_tokenizer *t = open_source(&sources[i]);
        json_object_foreach(json_object_get(all, sources[i].name), key, want)
            check_bulk(t, sources[i].name, key, want);
        af_tokenizer_close(t);
    }
    json_decref(all);
    free(text);
}

static int hex_digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

/* A byte-level tokenizer of 256 tokens shows how invalid UTF-8 becomes text. */
static void check_replacement(const af_tokenizer *t, const char *name, int line, json_t *row)
{
    const char *hex = json_string_value(json_object_get(row, "hex"));
    json_t *want = json_object_get(row, "text");
    int32_t ids[256];
    int64_t n = 0;
    char *text;
    uint64_t len;
    af_error err = {0};
    for (; hex[0] && hex[1]; hex += 2)
        ids[n++] = hex_digit(hex[0]) * 16 + hex_digit(hex[1]);
    CHECK_OK(af_tokenizer_decode(t, &text, &len, ids, n, false, &err), err);
    CHECK_MSG(len == json_string_length(want) && memcmp(text, json_string_value(want), len) == 0,
              "%s line %d: wrong text", name, line);
    free(text);
}

static af_tokenizer *bytes_tokenizer(void)
{
    af_buf b = {0};
    af_error err = {0};
    af_tokenizer *t = NULL;
    af_buf_str(&b,
               "{\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"merges\":[],"
               "\"vocab\":{");
    for (int i = 0, next = 0x100; i < 256; i++) {
        const bool plain = (i >= '!' && i <= '~') || (i >= 0xa1 && i != 0xad);
        af_buf_printf(&b, "%s\"\\u%04x\":%d", i ? "," : "", (unsigned)(plain ? i : next++), i);
    }
    af_buf_str(&b, "}}}");
    CHECK_OK(af_tokenizer_from_json(&t, b.data, b.len, &err), err);
    af_buf_clear(&b);
    return t;
}

static void test_invalid_utf8_becomes_replacement_characters(void **state)
{
    (void)state;
    need_shared();
    af_tokenizer *t = bytes_tokenizer();
    assert_true(for_rows(t, "utf8", "golden/text/decode/utf8_replace.jsonl", check_replacement) >
                10);
    af_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode_cases),
        cmocka_unit_test(test_decode_and_stream_cases),
        cmocka_unit_test(test_bulk_hashes),
        cmocka_unit_test(test_invalid_utf8_becomes_replacement_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
