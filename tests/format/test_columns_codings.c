/* test_columns_codings.c - every encoding and codec of column files, written by tiny writers and
 * read back; values as JSON; projection and skipping; bounds. */
#include "base/file.h"
#include "format/columns/column_value.h"
#include "format/columns/columns.h"
#include "test.h"
#include "tiny_parquet.h"

static uint32_t chance = 12345;
static uint32_t draw(uint32_t below)
{
    chance = chance * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)chance * below >> 32);
}

static int width_of(const tiny_column *c)
{
    static const int widths[] = {1, 4, 8, 12, 4, 8, 0, 0};
    return c->type == AF_PARQUET_FIXED ? c->width : widths[c->type];
}

/* Values with runs, small steps, extremes, shared beginnings and nulls. */
static void make_values(tiny_value *v, int n, const tiny_column *c, bool nulls)
{
    uint64_t at = 0; /* wraps around */
    for (int i = 0; i < n; i++) {
        v[i] = (tiny_value){.null = nulls && draw(4) == 0};
        if (c->type == AF_PARQUET_BYTES) {
            v[i].len = (int)draw(30);
            for (int k = 0; k < v[i].len; k++)
                v[i].bytes[k] = (uint8_t)('a' + (k < 12 ? i / 9 % 7 : (int)draw(26)));
            continue;
        }
        v[i].len = width_of(c);
        at = draw(9) == 0 ? UINT64_C(1) << 63 : at + draw(40) - 9;
        for (int k = 0; k < v[i].len; k++)
            v[i].bytes[k] = (uint8_t)(k < 8 ? at >> 8 * k : draw(256));
        if (c->type == AF_PARQUET_BOOL)
            v[i].bytes[0] = i / 20 % 2 ? 1 : (uint8_t)draw(2);
        if (c->type == AF_PARQUET_FLOAT || c->type == AF_PARQUET_DOUBLE) {
            const double d = (double)draw(1000) / 8 - 60;
            const float f = (float)d;
            memcpy(v[i].bytes, c->type == AF_PARQUET_FLOAT ? (const void *)&f : &d,
                   (size_t)v[i].len);
        }
    }
}

static af_column_type json_type(const tiny_column *c)
{
    af_column_type t = {.kind = AF_COLUMN_INT, .width = width_of(c), .is_signed = true};
    if (c->type == AF_PARQUET_BOOL)
        t.kind = AF_COLUMN_BOOL;
    else if (c->type == AF_PARQUET_FLOAT || c->type == AF_PARQUET_DOUBLE)
        t.kind = AF_COLUMN_FLOAT;
    else if (c->type == AF_PARQUET_BYTES)
        t.kind = c->converted == 0 ? AF_COLUMN_TEXT : AF_COLUMN_BYTES;
    else if (c->type == AF_PARQUET_FIXED)
        t.kind = AF_COLUMN_BYTES;
    return t;
}

static void check_file(const tiny_column *c, const tiny_value *v, int n, const char *what)
{
    const af_column_type t = json_type(c);
    af_buf file = {0}, got = {0}, want = {0};
    af_columns *in = NULL;
    af_error err;
    bool more = true;
    tiny_file(&file, c, v, n, &chance);
    for (int i = 0; i < n; i++) {
        af_buf_str(&want, "{\"x\":");
        if (v[i].null)
            af_buf_str(&want, "null");
        else
            assert_null(af_column_put(&want, &t, v[i].bytes, (uint64_t)v[i].len));
        af_buf_char(&want, '}');
    }
    CHECK_OK(af_columns_of(&in, "tiny", file.data, file.len, AF_COLUMNS_PARQUET, &err), err);
    assert_int_equal(af_columns_rows(in), n);
    while (more)
        CHECK_OK(af_columns_next(in, &got, &more, &err), err);
    CHECK_MSG(got.len == want.len && memcmp(got.data, want.data, got.len) == 0,
              "%s: type %d, encoding %d, codec %d, %d values in pages of %d%s", what, (int)c->type,
              (int)c->encoding, c->codec, n, c->page, c->v2 ? ", v2" : "");
    af_columns_close(in);
    af_buf_clear(&file);
    af_buf_clear(&got);
    af_buf_clear(&want);
}

static const struct {
    af_parquet_type type;
    int width, converted;
    af_parquet_encoding encoding;
} kinds[] = {
    {AF_PARQUET_BOOL, 0, -1, AF_PARQUET_PLAIN},
    {AF_PARQUET_BOOL, 0, -1, AF_PARQUET_RLE},
    {AF_PARQUET_INT32, 0, -1, AF_PARQUET_PLAIN},
    {AF_PARQUET_INT32, 0, -1, AF_PARQUET_DELTA_BINARY_PACKED},
    {AF_PARQUET_INT32, 0, -1, AF_PARQUET_RLE_DICTIONARY},
    {AF_PARQUET_INT32, 0, -1, AF_PARQUET_BYTE_STREAM_SPLIT},
    {AF_PARQUET_INT64, 0, -1, AF_PARQUET_PLAIN},
    {AF_PARQUET_INT64, 0, -1, AF_PARQUET_DELTA_BINARY_PACKED},
    {AF_PARQUET_INT64, 0, -1, AF_PARQUET_BYTE_STREAM_SPLIT},
    {AF_PARQUET_FLOAT, 0, -1, AF_PARQUET_PLAIN},
    {AF_PARQUET_FLOAT, 0, -1, AF_PARQUET_BYTE_STREAM_SPLIT},
    {AF_PARQUET_DOUBLE, 0, -1, AF_PARQUET_RLE_DICTIONARY},
    {AF_PARQUET_DOUBLE, 0, -1, AF_PARQUET_BYTE_STREAM_SPLIT},
    {AF_PARQUET_BYTES, 0, 0, AF_PARQUET_PLAIN},
    {AF_PARQUET_BYTES, 0, -1, AF_PARQUET_PLAIN},
    {AF_PARQUET_BYTES, 0, 0, AF_PARQUET_RLE_DICTIONARY},
    {AF_PARQUET_BYTES, 0, 0, AF_PARQUET_DELTA_LENGTH_BYTES},
    {AF_PARQUET_BYTES, 0, 0, AF_PARQUET_DELTA_BYTES},
    {AF_PARQUET_FIXED, 5, -1, AF_PARQUET_PLAIN},
    {AF_PARQUET_FIXED, 5, -1, AF_PARQUET_DELTA_BYTES},
    {AF_PARQUET_FIXED, 3, -1, AF_PARQUET_BYTE_STREAM_SPLIT},
    {AF_PARQUET_FIXED, 7, -1, AF_PARQUET_RLE_DICTIONARY},
};

static void test_every_encoding_reads_back(void **state)
{
    static const int sizes[] = {1, 31, 129, 700}, pages[] = {1, 100, 513, 4096};
    static const int codecs[] = {0, 1, 7};
    static tiny_value v[4096];
    size_t case_number = 0;
    (void)state;
    for (size_t k = 0; k < AF_LEN(kinds); k++)
        for (size_t s = 0; s < AF_LEN(sizes); s++)
            for (int form = 0; form < 6; form++, case_number++) {
                const tiny_column c = {.type = kinds[k].type,
                                       .width = kinds[k].width,
                                       .converted = kinds[k].converted,
                                       .encoding = kinds[k].encoding,
                                       .v2 = form % 2,
                                       .bit_packed = form == 2,
                                       .crc = form == 4,
                                       .codec = codecs[(form + (int)s) % 3],
                                       .page = pages[draw(AF_LEN(pages))]};
                if (!test_takes(case_number) || (c.page == 1 && sizes[s] > 200))
                    continue;
                make_values(v, sizes[s], &c, form != 3);
                check_file(&c, v, sizes[s], "read back");
            }
}

/* A byte of a small file changed, or its end cut: an error or other records, never harm. */
static void test_changed_bytes_do_no_harm(void **state)
{
    static tiny_value v[64];
    (void)state;
    for (size_t k = 0; k < AF_LEN(kinds); k++) {
        const tiny_column c = {.type = kinds[k].type,
                               .width = kinds[k].width,
                               .converted = kinds[k].converted,
                               .encoding = kinds[k].encoding,
                               .v2 = k % 2,
                               .codec = k % 3 == 0,
                               .page = 9};
        af_buf file = {0};
        make_values(v, 16, &c, true);
        tiny_file(&file, &c, v, 16, &chance);
        for (uint64_t i = 0; i < file.len; i++) {
            const char old = file.data[i];
            file.data[i] = (char)(old ^ (1 << draw(8)));
            af_columns *in = NULL;
            af_buf got = {.limit = 1 << 20};
            af_error err = {0};
            bool more = true;
            af_status st =
                af_columns_of(&in, "tiny", file.data, file.len, AF_COLUMNS_PARQUET, &err);
            while (st == AF_OK && more) {
                got.len = 0;
                st = af_columns_next(in, &got, &more, &err);
            }
            CHECK_MSG((st == AF_OK) == (err.msg[0] == '\0'), "byte %" PRIu64 ": %s", i, err.msg);
            af_columns_close(in);
            af_buf_clear(&got);
            file.data[i] = old;
        }
        af_buf_clear(&file);
    }
}

/* --- lists as older writers store them --- */

typedef struct element {
    const char *name;
    int repetition, children; /* 0 children: an int32 */
    int converted;            /* -1 = none; 3 = LIST */
} element;

static void list_schema(af_buf *foot, const element *e, int elements)
{
    tiny_list(foot, 2, elements + 1);
    tiny_text(foot, 4, "root");
    tiny_int(foot, 1, 1);
    tiny_end(foot);
    for (int i = 0; i < elements; i++) {
        if (e[i].children == 0)
            tiny_int(foot, 1, AF_PARQUET_INT32);
        tiny_int(foot, e[i].children ? 3 : 2, e[i].repetition);
        tiny_text(foot, 1, e[i].name);
        if (e[i].children)
            tiny_int(foot, 1, e[i].children);
        if (e[i].converted >= 0)
            tiny_int(foot, 1, e[i].converted);
        tiny_end(foot);
    }
}

/* A file with one column of int32 values 1, 2, ... below these elements, and these levels. */
static void list_file(af_buf *file, const element *e, int elements, const uint64_t *rep,
                      const uint64_t *def, int entries, int highest, int rows)
{
    af_buf body = {0}, foot = {0}, runs = {0};
    int32_t value = 0;
    for (int pass = 0; pass < 2; pass++) {
        runs.len = 0;
        tiny_runs(&runs, pass ? def : rep, entries, pass && highest > 1 ? 2 : 1, &chance);
        const uint32_t n = (uint32_t)runs.len;
        af_buf_add(&body, &n, 4);
        af_buf_add(&body, runs.data, runs.len);
    }
    for (int i = 0; i < entries; i++)
        if (def[i] == (uint64_t)highest) {
            value++;
            af_buf_add(&body, &value, 4);
        }
    af_buf_str(file, "PAR1");
    tiny_int(file, 1, AF_PARQUET_PAGE_DATA);
    tiny_int(file, 1, (int64_t)body.len);
    tiny_int(file, 1, (int64_t)body.len);
    tiny_field(file, 2, TINY_STRUCT);
    tiny_int(file, 1, entries);
    tiny_int(file, 1, AF_PARQUET_PLAIN);
    tiny_int(file, 1, AF_PARQUET_RLE);
    tiny_int(file, 1, AF_PARQUET_RLE);
    tiny_end(file);
    tiny_end(file);
    af_buf_add(file, body.data, body.len);
    list_schema(&foot, e, elements);
    tiny_int(&foot, 1, rows);
    tiny_list(&foot, 1, 1);
    tiny_list(&foot, 1, 1);
    tiny_field(&foot, 3, TINY_STRUCT);
    tiny_int(&foot, 1, AF_PARQUET_INT32);
    tiny_int(&foot, 3, 0);
    tiny_int(&foot, 1, entries);
    tiny_int(&foot, 2, (int64_t)file->len - 4);
    tiny_int(&foot, 2, 4);
    tiny_end(&foot);
    tiny_end(&foot);
    tiny_int(&foot, 2, rows);
    tiny_end(&foot);
    tiny_end(&foot);
    const uint32_t n = (uint32_t)foot.len;
    af_buf_add(file, foot.data, foot.len);
    af_buf_add(file, &n, 4);
    af_buf_str(file, "PAR1");
    af_buf_clear(&body);
    af_buf_clear(&foot);
    af_buf_clear(&runs);
}

/* Two items, no list, an empty list. */
static void test_lists_of_older_writers(void **state)
{
    enum { LIST = 3, GROUP = 1 };
    static const struct {
        element e[3];
        int elements, highest;
        uint64_t def[4];
        const char *want;
    } cases[] = {
        {{{"xs", 1, GROUP, LIST}, {"list", 2, GROUP, -1}, {"element", 1, 0, -1}},
         3,
         3,
         {3, 3, 0, 1},
         "{\"xs\":[1,2]}{\"xs\":null}{\"xs\":[]}"},
        {{{"xs", 1, GROUP, LIST}, {"bag", 2, GROUP, -1}, {"array_element", 1, 0, -1}},
         3,
         3,
         {3, 2, 0, 1},
         "{\"xs\":[1,null]}{\"xs\":null}{\"xs\":[]}"},
        {{{"xs", 1, GROUP, LIST}, {"array", 2, 0, -1}},
         2,
         2,
         {2, 2, 0, 1},
         "{\"xs\":[1,2]}{\"xs\":null}{\"xs\":[]}"},
        {{{"xs", 1, GROUP, LIST}, {"array", 2, GROUP, -1}, {"a", 0, 0, -1}},
         3,
         2,
         {2, 2, 0, 1},
         "{\"xs\":[{\"a\":1},{\"a\":2}]}{\"xs\":null}{\"xs\":[]}"},
        {{{"xs", 1, GROUP, LIST}, {"xs_tuple", 2, GROUP, -1}, {"a", 0, 0, -1}},
         3,
         2,
         {2, 2, 0, 1},
         "{\"xs\":[{\"a\":1},{\"a\":2}]}{\"xs\":null}{\"xs\":[]}"},
        {{{"xs", 2, 0, -1}}, 1, 1, {1, 1, 0, 0}, "{\"xs\":[1,2]}{\"xs\":[]}{\"xs\":[]}"},
        {{{"xs", 2, GROUP, -1}, {"a", 1, 0, -1}},
         2,
         2,
         {2, 1, 0, 0},
         "{\"xs\":[{\"a\":1},{\"a\":null}]}{\"xs\":[]}{\"xs\":[]}"},
    };
    static const uint64_t rep[] = {0, 1, 0, 0};
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_buf file = {0}, got = {0};
        af_columns *in = NULL;
        af_error err;
        bool more = true;
        list_file(&file, cases[i].e, cases[i].elements, rep, cases[i].def, 4, cases[i].highest, 3);
        CHECK_OK(af_columns_of(&in, "tiny", file.data, file.len, AF_COLUMNS_PARQUET, &err), err);
        while (more)
            CHECK_OK(af_columns_next(in, &got, &more, &err), err);
        assert_string_equal(got.data, cases[i].want);
        af_columns_close(in);
        af_buf_clear(&file);
        af_buf_clear(&got);
    }
}

static void check_unpacked(const uint8_t *p, int n, const af_buf *packed, af_codec codec)
{
    af_buf out = {0};
    assert_null(af_unpack(&out, codec, (const uint8_t *)packed->data, packed->len, (uint64_t)n));
    assert_int_equal(out.len, n);
    CHECK_MSG(n == 0 || memcmp(out.data, p, (size_t)n) == 0, "codec %d, %d bytes", (int)codec, n);
    /* neither more nor less than was declared, and nothing from a part of it */
    assert_non_null(
        af_unpack(&out, codec, (const uint8_t *)packed->data, packed->len, (uint64_t)n + 1));
    if (n > 0)
        assert_non_null(
            af_unpack(&out, codec, (const uint8_t *)packed->data, packed->len, (uint64_t)n - 1));
    for (uint64_t cut = 1; cut <= AF_MIN(packed->len, 70) && n > 0; cut++)
        assert_non_null(
            af_unpack(&out, codec, (const uint8_t *)packed->data, packed->len - cut, (uint64_t)n));
    af_buf_clear(&out);
}

static void test_codecs_read_back(void **state)
{
    static uint8_t p[5000];
    (void)state;
    for (int round = 0; round < 120; round++) {
        const int n = (int)draw(round < 20 ? 20u : (uint32_t)sizeof p), letters = 1 + (int)draw(9);
        for (int i = 0; i < n; i++)
            p[i] = (uint8_t)(i % 300 < 100 ? (int)draw((uint32_t)letters) : i % 7);
        af_buf snappy = {0}, lz4 = {0}, frame = {0};
        tiny_snappy(&snappy, p, n);
        check_unpacked(p, n, &snappy, AF_CODEC_SNAPPY);
        tiny_lz4(&lz4, p, n);
        check_unpacked(p, n, &lz4, AF_CODEC_LZ4);
        /* a frame: magic, version 1 with independent blocks, block size, sum, blocks, end */
        const uint32_t len = (uint32_t)lz4.len, stored = (uint32_t)n | UINT32_C(1) << 31, end = 0;
        af_buf_add(&frame, "\x04\x22\x4d\x18\x60\x40\x82", 7);
        af_buf_add(&frame, round % 2 ? &len : &stored, 4);
        af_buf_add(&frame, round % 2 ? lz4.data : (const char *)p,
                   round % 2 ? lz4.len : (uint64_t)n);
        af_buf_add(&frame, &end, 4);
        if (n > 0)
            check_unpacked(p, n, &frame, AF_CODEC_LZ4_FRAME);
        af_buf_clear(&snappy);
        af_buf_clear(&lz4);
        af_buf_clear(&frame);
    }
}

static void check_value(const af_column_type t, const void *p, uint64_t n, const char *want)
{
    af_buf b = {0};
    const char *why = af_column_put(&b, &t, p, n);
    CHECK_MSG(want ? !why && strcmp(b.data, want) == 0 : why != NULL, "%s, not %s",
              why ? why : b.data, want ? want : "an error");
    af_buf_clear(&b);
}

static void test_values_as_json(void **state)
{
    const af_column_type text = {.kind = AF_COLUMN_TEXT}, bytes = {.kind = AF_COLUMN_BYTES};
    const af_column_type day = {.kind = AF_COLUMN_DATE, .width = 4, .digits = -1};
    const af_column_type time = {.kind = AF_COLUMN_TIME, .width = 8, .digits = 6};
    const af_column_type stamp = {.kind = AF_COLUMN_STAMP, .width = 8, .digits = 3, .zone = true};
    const af_column_type ns = {.kind = AF_COLUMN_STAMP, .width = 8, .digits = 9};
    const af_column_type f32 = {.kind = AF_COLUMN_FLOAT, .width = 4};
    const af_column_type f16 = {.kind = AF_COLUMN_FLOAT, .width = 2};
    const af_column_type u64 = {.kind = AF_COLUMN_INT, .width = 8};
    const af_column_type price = {.kind = AF_COLUMN_DECIMAL, .scale = 2, .big_endian = true};
    const af_column_type little = {.kind = AF_COLUMN_DECIMAL, .scale = 0, .width = 16};
    (void)state;
    check_value(text, "a\"\\\n\t\x01\x7f\xc3\xa9\xf0\x9f\x99\x82", 13,
                "\"a\\\"\\\\\\n\\t\\u0001\x7f\xc3\xa9\xf0\x9f\x99\x82\"");
    check_value(text, "12345678\xff", 9, NULL);
    check_value(text, "\xed\xa0\x80", 3, NULL); /* a surrogate */
    check_value(text, "\xc0\x80", 2, NULL);     /* overlong */
    check_value(text, "\xe2\x82", 2, NULL);     /* cut */
    check_value(text, "\xe2\x82\"", 3, NULL);
    check_value(text, "\xf4\x90\x80\x80", 4, NULL);
    check_value(bytes, "\xff\x00\x10", 3, "\"/wAQ\"");
    check_value(bytes, "ab", 2, "\"YWI=\"");
    check_value(bytes, "a", 1, "\"YQ==\"");
    check_value(day, &(int32_t){0}, 4, "\"1970-01-01\"");
    check_value(day, &(int32_t){-719162}, 4, "\"0001-01-01\"");
    check_value(day, &(int32_t){11016}, 4, "\"2000-02-29\"");
    check_value((af_column_type){.kind = AF_COLUMN_DATE, .width = 8, .digits = -1},
                &(int64_t){INT64_MAX}, 8, NULL);
    check_value((af_column_type){.kind = AF_COLUMN_STAMP, .width = 8}, &(int64_t){INT64_MAX}, 8,
                "\"292277026596-12-04T15:30:07\"");
    check_value(time, &(int64_t){86399999999}, 8, "\"23:59:59.999999\"");
    check_value(time, &(int64_t){86400000000}, 8, NULL);
    check_value(stamp, &(int64_t){-1}, 8, "\"1969-12-31T23:59:59.999Z\"");
    check_value(ns, &(int64_t){INT64_MIN}, 8, "\"1677-09-21T00:12:43.145224192\"");
    check_value(f32, &(float){0.1f}, 4, "0.10000000149011612");
    check_value(f32, &(float){-0.0f}, 4, "-0.0");
    check_value(f16, &(uint16_t){0x7c00}, 2, "\"Infinity\"");
    check_value(f16, &(uint16_t){0x7e00}, 2, "\"NaN\"");
    check_value(u64, &(uint64_t){UINT64_MAX}, 8, "18446744073709551615");
    check_value(price, "\xff\x38", 2, "\"-2.00\"");
    check_value(price, "\x05", 1, "\"0.05\"");
    check_value(little, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 16,
                "\"170141183460469231731687303715884105727\"");
    check_value(little, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80", 16,
                "\"-170141183460469231731687303715884105728\"");
}

static bool not_messages(const void *user, const char *name)
{
    (void)user;
    return strcmp(name, "messages") != 0;
}

/* The records of a golden file: some whole, the next without a column. */
static void check_project(const char *file, af_columns_format format)
{
    char path[600];
    af_columns *in = NULL;
    af_buf text = {0};
    af_error err;
    bool got = true;
    snprintf(path, sizeof path, "%s/columns/%s", golden_dir(), file);
    CHECK_OK(af_columns_open(&in, path, format, &err), err);
    for (int i = 0; got; i++) {
        if (i == 17)
            af_columns_project(in, not_messages, NULL);
        text.len = 0;
        CHECK_OK(af_columns_next(in, &text, &got, &err), err);
        assert_int_equal(got, i < 40);
        CHECK_MSG(!got || (strstr(text.data, "\"messages\"") != NULL) == (i < 17), "%s: %s", file,
                  text.data);
        CHECK_MSG(!got || strstr(text.data, "\"tools\""), "%s: %s", file, text.data);
    }
    af_columns_close(in);
    af_buf_clear(&text);
}

static void test_columns_are_left_out(void **state)
{
    (void)state;
    check_project("chat.index.parquet", AF_COLUMNS_PARQUET);
    check_project("chat.file.lz4.arrow", AF_COLUMNS_ARROW);
}

static void test_a_dictionary_that_promises_too_much(void **state)
{
    static tiny_value v[40];
    const tiny_column c = {.type = AF_PARQUET_INT64,
                           .converted = -1,
                           .encoding = AF_PARQUET_RLE_DICTIONARY,
                           .page = 40,
                           .promised = 1};
    af_columns *in = NULL;
    af_buf file = {0}, text = {0};
    af_error err;
    bool got;
    (void)state;
    make_values(v, 40, &c, false);
    tiny_file(&file, &c, v, 40, &chance);
    CHECK_OK(af_columns_of(&in, "tiny", file.data, file.len, AF_COLUMNS_PARQUET, &err), err);
    assert_int_equal(af_columns_next(in, &text, &got, &err), AF_EFORMAT);
    assert_string_equal(err.msg, "tiny: row group 0, row 1, column x: a dictionary of 41 values in "
                                 "320 bytes");
    af_columns_close(in);
    af_buf_clear(&file);
    af_buf_clear(&text);
}

static void test_a_long_record_is_refused(void **state)
{
    char path[600];
    af_columns *in = NULL;
    af_buf text = {.limit = 100};
    af_error err;
    bool got;
    (void)state;
    snprintf(path, sizeof path, "%s/columns/nested.snappy.v1.parquet", golden_dir());
    CHECK_OK(af_columns_open(&in, path, AF_COLUMNS_PARQUET, &err), err);
    assert_int_equal(af_columns_next(in, &text, &got, &err), AF_EFORMAT);
    assert_non_null(strstr(err.msg, "row group 0, row 1: a record of more than"));
    af_columns_close(in);
    af_buf_clear(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_encoding_reads_back),
        cmocka_unit_test(test_changed_bytes_do_no_harm),
        cmocka_unit_test(test_lists_of_older_writers),
        cmocka_unit_test(test_codecs_read_back),
        cmocka_unit_test(test_values_as_json),
        cmocka_unit_test(test_columns_are_left_out),
        cmocka_unit_test(test_a_dictionary_that_promises_too_much),
        cmocka_unit_test(test_a_long_record_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
