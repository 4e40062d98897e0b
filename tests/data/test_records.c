/* test_records.c - the file readers alone: what records come out, with which lines, and what is
 * refused. */
#define _GNU_SOURCE
#include "test.h"

#include "afinar/data.h"
#include "base/buf.h"
#include "data/read/read_bytes.h"
#include "data/read/records.h"

#include <zlib.h>
#include <zstd.h>

/* "line:json line:json ..." or the error's text; fields that lost a number in brackets. */
static void read_all(af_buf *out, const void *bytes, uint64_t n, af_records_kind kind)
{
    af_records *r = NULL;
    af_record rec;
    af_error err = {0};
    af_status st = af_records_of(&r, "f", bytes, n, kind, &err);
    out->len = 0;
    af_buf_str(out, "");
    while (st == AF_OK) {
        st = af_records_next(r, &rec, &err);
        if (st != AF_OK || !rec.json)
            break;
        char *text = json_dumps(rec.json, JSON_COMPACT);
        af_buf_printf(out, "%s%d:%s", out->len ? " " : "", (int)rec.line, text);
        free(text);
        json_decref(rec.json);
        for (uint64_t i = 0; i < rec.lost_len; i += strlen(rec.lost + i) + 1)
            af_buf_printf(out, "%s%s", i ? "," : "(", rec.lost + i);
        af_buf_str(out, rec.lost_len ? ")" : "");
    }
    if (st != AF_OK)
        af_buf_printf(out, "%s! %s", out->len ? " " : "", err.msg);
    af_records_close(r);
}

static void test_records_and_their_lines(void **state)
{
    static const struct {
        af_records_kind kind;
        const char *text, *want;
    } cases[] = {
        {AF_RECORDS_JSONL, "{\"a\":1}\n\n  \n{\"b\":2}", "1:{\"a\":1} 4:{\"b\":2}"},
        {AF_RECORDS_JSONL, "\xef\xbb\xbf{\"a\":1}\r\n{\"b\":2}\r\n", "1:{\"a\":1} 2:{\"b\":2}"},
        {AF_RECORDS_JSONL, "{\"a\":1} x\n", "! f:1: JSON syntax error"},
        {AF_RECORDS_JSONL, "{\"a\":1\n{\"b\":2}\n", "! f:1: unexpected end of line"},
        {AF_RECORDS_JSONL, "{\"a\":1}\n{\"b\":\"", "1:{\"a\":1} ! f:2: unexpected end of file"},
        {AF_RECORDS_JSONL, "{\"a\":\"\\ud800\"}", "! f:1: \\uD800 is not a character (lone surr"},
        {AF_RECORDS_JSONL, "[1]", "! f:1: expected a JSON object, got an array"},
        {AF_RECORDS_JSONL, "\n [ {\"a\":1},\n{\"b\":2}]\n", "2:{\"a\":1} 3:{\"b\":2}"},
        {AF_RECORDS_JSONL, "[[{\"a\":1}]]", "! f:1: expected a JSON object, got an array"},
        {AF_RECORDS_JSONL, "{\"a\":NaN,\"b\":-Infinity,\"c\":\"NaN\\\"\"}",
         "1:{\"a\":0,\"b\":0,\"c\":\"NaN\\\"\"}"},
        {AF_RECORDS_JSONL, "{\"a\": 18446744073709551615 ,\"b\":1e999,\"c\":7}",
         "1:{\"a\":0,\"b\":0,\"c\":7}"},
        {AF_RECORDS_JSONL, "{\"a\":[18446744073709551615],\"b\":{\"c\":[1,\"]\",NaN]}}",
         "1:{\"a\":[0],\"b\":{\"c\":[1,\"]\",0]}}(a,b)"},
        {AF_RECORDS_JSONL, "{\"a\":NaNa,\"b\":nan}", "! f:1: JSON syntax error near"},
        {AF_RECORDS_JSONL, "{\"a\":\"\xff\"}", "! f:1: invalid UTF-8 (byte 0xFF)"},
        {AF_RECORDS_JSONL, "\xff\xfe{", "! f:1: looks like UTF-16"},
        {AF_RECORDS_JSON, " [ {\"a\":1} ,\n\n{\"b\":[\"]}\\\"\"]}\n]\n",
         "1:{\"a\":1} 3:{\"b\":[\"]}\\\"\"]}"},
        {AF_RECORDS_JSON, "{\"a\":1}\n{\"b\":\n2}", "1:{\"a\":1} 2:{\"b\":2}"},
        {AF_RECORDS_JSON, "[]", ""},
        {AF_RECORDS_JSON, "", ""},
        {AF_RECORDS_JSON, "[{\"a\":1} {\"b\":2}]", "1:{\"a\":1} ! f:1: JSON syntax error: a comma"},
        {AF_RECORDS_JSON, "[{\"a\":1},\n", "1:{\"a\":1} ! f:2: unexpected end of file"},
        {AF_RECORDS_JSON, "[{\"a\":1}]x", "1:{\"a\":1} ! f:1: JSON syntax error: text after"},
        {AF_RECORDS_JSON, "[,]", "! f:1: JSON syntax error: ',' where a record begins"},
        {AF_RECORDS_JSON, "[{\"a\":\n\"\xff\"}]", "! f:2: invalid UTF-8"},
        {AF_RECORDS_CSV, "a,b\r1,2\r", "! f:1: the header has a carriage return without a newline"},
        {AF_RECORDS_CSV, "\"a\r\nx\",b\r\n1,2\r\n", "3:{\"a\\r\\nx\":\"1\",\"b\":\"2\"}"},
        {AF_RECORDS_CSV, "a,b\r\n1,\"x\r\ny\"\r\n\r\n 2 ,\"\"\"q\"\"\"\r\n",
         "2:{\"a\":\"1\",\"b\":\"x\\r\\ny\"} 5:{\"a\":\" 2 \",\"b\":\"\\\"q\\\"\"}"},
        {AF_RECORDS_CSV, "a\n\"\"\nx", "2:{\"a\":\"\"} 3:{\"a\":\"x\"}"},
        {AF_RECORDS_CSV, "a,b\n1\n", "! f:2: 1 cell, the header has 2"},
        {AF_RECORDS_CSV, "a,a\n", "! f:1: column \"a\" is there twice"},
        {AF_RECORDS_CSV, "a\n1\n\"2\n3", "2:{\"a\":\"1\"} ! f:3: quoted cell opened here"},
        {AF_RECORDS_CSV, "a\n\"1\"x\n", "! f:2: text after the closing quote"},
        {AF_RECORDS_CSV, "", ""},
        {AF_RECORDS_TSV, "a\tb\n1,5\t2\n", "2:{\"a\":\"1,5\",\"b\":\"2\"}"},
        {AF_RECORDS_TEXT, "one\ntwo\n", "1:{\"text\":\"one\\ntwo\\n\"}"},
    };
    af_buf got = {0};
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        read_all(&got, cases[i].text, strlen(cases[i].text), cases[i].kind);
        const bool error = strchr(cases[i].want, '!') != NULL;
        CHECK_MSG(error ? !strncmp(got.data, cases[i].want, strlen(cases[i].want))
                        : !strcmp(got.data, cases[i].want),
                  "case %zu gives\n%s, not\n%s", i, got.data, cases[i].want);
    }
    af_buf_clear(&got);
}

static uint64_t gzip(uint8_t *to, uint64_t room, const void *from, uint64_t n)
{
    z_stream z = {.next_in = (Bytef *)from, .avail_in = (uInt)n, .next_out = to};
    z.avail_out = (uInt)room;
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

static void test_packed_files_read_like_plain_ones(void **state)
{
    static const char plain[] = "{\"a\":1}\n{\"b\":2}\n";
    const char *want = "1:{\"a\":1} 2:{\"b\":2}";
    uint8_t packed[512];
    af_buf got = {0};
    (void)state;
    uint64_t n = gzip(packed, sizeof packed, plain, 8);
    n += gzip(packed + n, sizeof packed - n, plain + 8, 8); /* two members */
    read_all(&got, packed, n, AF_RECORDS_JSONL);
    assert_string_equal(got.data, want);
    read_all(&got, packed, n - 9, AF_RECORDS_JSONL);
    assert_non_null(strstr(got.data, "damaged"));
    packed[12] ^= 0xff;
    read_all(&got, packed, n, AF_RECORDS_JSONL);
    assert_non_null(strstr(got.data, "!"));
    n = ZSTD_compress(packed, sizeof packed, plain, strlen(plain), 3);
    read_all(&got, packed, n, AF_RECORDS_JSONL);
    assert_string_equal(got.data, want);
    read_all(&got, packed, n - 3, AF_RECORDS_JSONL);
    assert_non_null(strstr(got.data, "cut short"));
    af_buf_clear(&got);
}

static void test_names_of_files(void **state)
{
    static const struct {
        const char *name, *ds_type, *why;
    } cases[] = {
        {"a.jsonl.zstd", NULL, NULL},
        {"a.json.GZ", NULL, NULL},
        {"a.data", "json", NULL},
        {"a.data", NULL, "set ds_type"},
        {"a.jsonl.bz2", NULL, "a.jsonl.bz2: .bz2 files are not read (.gz and .zst are): unpack it"},
        {"a.jsonl.xz", "json", ".xz files are not read"},
        {"a.tar.gz", NULL, ".tar files are not read"},
        {"a.parquet.gz", NULL, "a packed parquet file is not read"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_records_kind kind;
        af_error err = {0};
        const af_status st = af_records_kind_of(&kind, cases[i].name, cases[i].ds_type, &err);
        assert_int_equal(st == AF_OK, !cases[i].why);
        if (cases[i].why && !strstr(err.msg, cases[i].why))
            fail_msg("'%s' should say '%s'", err.msg, cases[i].why);
    }
}

static void test_bombs_and_endless_lines_are_refused(void **state)
{
    const uint64_t size = (uint64_t)100 << 20;
    char *blank = malloc(1 << 20);
    uint8_t *packed = malloc(1 << 20);
    af_buf got = {0}, line = {0};
    (void)state;
    memset(blank, '\n', 1 << 20);
    z_stream z = {.next_out = packed, .avail_out = 1 << 20};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    for (uint64_t at = 0; at < size; at += 1 << 20) {
        z.next_in = (Bytef *)blank;
        z.avail_in = 1 << 20;
        deflate(&z, at + (1 << 20) < size ? Z_NO_FLUSH : Z_FINISH);
    }
    read_all(&got, packed, z.total_out, AF_RECORDS_JSONL);
    CHECK_MSG(strstr(got.data, "this is not text"), "a bomb of blanks: %s", got.data);
    deflateEnd(&z);
    af_buf_str(&line, "{\"text\": \"");
    memset(blank, 'a', 1 << 20);
    for (int i = 0; i < 10; i++)
        af_buf_add(&line, blank, 1 << 20);
    af_buf_str(&line, "\"}\n");
    static const af_records_kind kinds[] = {AF_RECORDS_JSONL, AF_RECORDS_JSON, AF_RECORDS_CSV};
    for (size_t i = 0; i < AF_LEN(kinds); i++) {
        read_all(&got, line.data, line.len, kinds[i]);
        CHECK_MSG(strstr(got.data, "f:1: a record of more than 8 MiB"), "%.200s", got.data);
    }
    free(blank);
    free(packed);
    af_buf_clear(&line);
    af_buf_clear(&got);
}

static void test_long_text_comes_in_blocks_that_join(void **state)
{
    af_buf text = {0}, joined = {0};
    af_records *r;
    af_record rec;
    af_error err;
    int blocks = 0;
    (void)state;
    for (int i = 0; i < 300000; i++)
        af_buf_printf(&text, "l\xc3\xadnea %d%s", i, i % 7 ? " " : "\n");
    CHECK_OK(af_records_of(&r, "f", text.data, text.len, AF_RECORDS_TEXT, &err), err);
    for (;;) {
        CHECK_OK(af_records_next(r, &rec, &err), err);
        if (!rec.json)
            break;
        const json_t *t = json_object_get(rec.json, "text");
        af_buf_add(&joined, json_string_value(t), json_string_length(t));
        json_decref(rec.json);
        blocks++;
    }
    assert_true(blocks > 2);
    assert_int_equal(joined.len, text.len);
    assert_memory_equal(joined.data, text.data, text.len);
    af_records_close(r);
    af_buf_clear(&text);
    af_buf_clear(&joined);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_and_their_lines),
        cmocka_unit_test(test_packed_files_read_like_plain_ones),
        cmocka_unit_test(test_names_of_files),
        cmocka_unit_test(test_bombs_and_endless_lines_are_refused),
        cmocka_unit_test(test_long_text_comes_in_blocks_that_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
