/* tiny_parquet.h - writes parquet files of one column with every encoding, as small as a writer can
 * be, to hold the reader against it. */
#ifndef AF_TINY_PARQUET_H
#define AF_TINY_PARQUET_H

#include "base/buf.h"
#include "format/columns/parquet_leaf.h"

#include <zlib.h>

/* --- Thrift's compact protocol --- */

static inline void tiny_varint(af_buf *b, uint64_t v)
{
    for (; v > 127; v >>= 7)
        af_buf_char(b, (char)(v | 128));
    af_buf_char(b, (char)v);
}

static inline void tiny_zigzag(af_buf *b, int64_t v)
{
    tiny_varint(b, (uint64_t)v << 1 ^ (uint64_t)(v >> 63));
}

enum { TINY_I32 = 5, TINY_I64 = 6, TINY_TEXT = 8, TINY_LIST = 9, TINY_STRUCT = 12 };

static inline void tiny_field(af_buf *b, int step, int type)
{
    af_buf_char(b, (char)(step << 4 | type));
}
static inline void tiny_int(af_buf *b, int step, int64_t v)
{
    tiny_field(b, step, TINY_I64);
    tiny_zigzag(b, v);
}
static inline void tiny_text(af_buf *b, int step, const char *s)
{
    tiny_field(b, step, TINY_TEXT);
    tiny_varint(b, strlen(s));
    af_buf_str(b, s);
}
static inline void tiny_list(af_buf *b, int step, int count)
{
    tiny_field(b, step, TINY_LIST);
    af_buf_char(b, (char)(count << 4 | TINY_STRUCT));
}
static inline void tiny_end(af_buf *b) { af_buf_char(b, 0); }

/* --- encodings --- */

/* `width` bits of each value, least significant first. */
static inline void tiny_bits(af_buf *b, const uint64_t *v, int n, int width, bool high_first)
{
    unsigned byte = 0;
    int used = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < width; k++) {
            const unsigned bit = (unsigned)(v[i] >> (high_first ? width - 1 - k : k) & 1);
            byte |= bit << (high_first ? 7 - used : used);
            if (++used == 8) {
                af_buf_char(b, (char)byte);
                byte = 0;
                used = 0;
            }
        }
    if (used)
        af_buf_char(b, (char)byte);
}

/* Runs and packed groups as chance has it (a number that is advanced). */
static inline void tiny_runs(af_buf *b, const uint64_t *v, int n, int width, uint32_t *chance)
{
    for (int i = 0; i < n;) {
        int run = 1;
        while (i + run < n && v[i + run] == v[i])
            run++;
        *chance = *chance * 1664525 + 1013904223;
        if (run >= 8 || *chance >> 30 == 0) {
            tiny_varint(b, (uint64_t)run << 1);
            for (int k = 0; k < (width + 7) / 8; k++)
                af_buf_char(b, (char)(v[i] >> 8 * k));
            i += run;
            continue;
        }
        const int groups = 1 + (int)(*chance >> 20 & 3), count = AF_MIN(groups * 8, n - i);
        uint64_t part[32] = {0};
        memcpy(part, v + i, (size_t)count * sizeof *v);
        const int whole = (count + 7) / 8;
        tiny_varint(b, (uint64_t)whole << 1 | 1);
        tiny_bits(b, part, whole * 8, width, false);
        i += count;
    }
}

static inline void tiny_delta(af_buf *b, const int64_t *v, int n)
{
    enum { BLOCK = 128, MINIS = 4, MINI = BLOCK / MINIS };
    tiny_varint(b, BLOCK);
    tiny_varint(b, MINIS);
    tiny_varint(b, (uint64_t)n);
    tiny_zigzag(b, n ? v[0] : 0);
    for (int at = 1; at < n; at += BLOCK) {
        uint64_t diff[BLOCK] = {0};
        const int count = AF_MIN(BLOCK, n - at);
        int64_t least = INT64_MAX;
        for (int i = 0; i < count; i++) {
            diff[i] = (uint64_t)v[at + i] - (uint64_t)v[at + i - 1];
            least = AF_MIN(least, (int64_t)diff[i]);
        }
        int width[MINIS] = {0};
        for (int i = 0; i < count; i++) {
            diff[i] -= (uint64_t)least;
            while (width[i / MINI] < 64 && diff[i] >> width[i / MINI])
                width[i / MINI]++;
        }
        tiny_zigzag(b, least);
        for (int i = 0; i < MINIS; i++)
            af_buf_char(b, (char)width[i]);
        for (int i = 0; i * MINI < count; i++)
            tiny_bits(b, diff + i * MINI, MINI, width[i], false);
    }
}

/* --- codecs: a literal, then copies of what came `back` bytes before, where it repeats --- */

static inline int tiny_match(const uint8_t *p, int i, int n, int back)
{
    int m = 0;
    while (back <= i && i + m < n && m < 60 && p[i + m] == p[i + m - back])
        m++;
    return m;
}

static inline void tiny_snappy(af_buf *b, const uint8_t *p, int n)
{
    tiny_varint(b, (uint64_t)n);
    for (int i = 0; i < n;) {
        int back = 1, m = 0;
        for (int k = 1; k <= 64 && m < 8; k++) {
            m = tiny_match(p, i, n, k);
            back = k;
        }
        if (m >= 4 && m <= 11 && back < 2048) { /* copies with one, two and four bytes */
            af_buf_char(b, (char)(1 | (m - 4) << 2 | back >> 8 << 5));
            af_buf_char(b, (char)back);
        } else if (m >= 8) {
            const bool wide = i % 3 == 0;
            af_buf_char(b, (char)((wide ? 3 : 2) | (m - 1) << 2));
            const uint32_t v = (uint32_t)back;
            af_buf_add(b, &v, wide ? 4 : 2);
        } else {
            m = AF_MIN(n - i, 1 + i % 70);
            if (m > 60) {
                af_buf_char(b, (char)(60 << 2));
                af_buf_char(b, (char)(m - 1));
            } else {
                af_buf_char(b, (char)((m - 1) << 2));
            }
            af_buf_add(b, p + i, (uint64_t)m);
        }
        i += m;
    }
}

static inline void tiny_lz4_length(af_buf *b, int v)
{
    for (v -= 15; v >= 255; v -= 255)
        af_buf_char(b, (char)255);
    if (v >= 0)
        af_buf_char(b, (char)v);
}

static inline void tiny_lz4(af_buf *b, const uint8_t *p, int n)
{
    int from = 0; /* of the literals */
    for (int i = 0; i <= n;) {
        int back = 1, m = 0;
        for (int k = 1; k <= 64 && m < 4; k++) {
            m = tiny_match(p, i, n - 5, k); /* the last bytes are literals */
            back = k;
        }
        if (i < n && m < 4) {
            i++;
            continue;
        }
        const int literals = AF_MIN(i, n) - from, copy = i < n ? m - 4 : 0;
        af_buf_char(b, (char)(AF_MIN(literals, 15) << 4 | AF_MIN(copy, 15)));
        tiny_lz4_length(b, literals);
        af_buf_add(b, p + from, (uint64_t)literals);
        if (i >= n)
            break;
        const uint16_t v = (uint16_t)back;
        af_buf_add(b, &v, 2);
        tiny_lz4_length(b, copy);
        i += m;
        from = i;
    }
}

/* --- a file --- */

typedef struct tiny_column {
    af_parquet_type type;
    int width;     /* FIXED */
    int converted; /* -1 = none; 0 = UTF8 */
    af_parquet_encoding encoding;
    bool v2, bit_packed; /* pages; definition levels of v1 */
    int codec;           /* parquet's number: 0, 1 or 7 */
    int page;            /* values of a page */
    bool crc;
    int promised; /* values that the dictionary declares beyond those it has */
} tiny_column;

typedef struct tiny_value {
    bool null;
    uint8_t bytes[40];
    int len;
} tiny_value;

/* The values that are not null, encoded. */
static inline void tiny_values(af_buf *b, const tiny_column *c, const tiny_value *v, int n,
                               uint32_t *chance)
{
    static int64_t number[4096], length[4096], prefix[4096];
    static uint64_t bits[4096];
    for (int i = 0; i < n; i++) {
        memcpy(&number[i], v[i].bytes, 8);
        if (c->type == AF_PARQUET_INT32)
            number[i] = (int32_t)number[i];
        bits[i] = v[i].bytes[0];
        length[i] = v[i].len;
        prefix[i] = 0;
    }
    switch (c->encoding) {
    case AF_PARQUET_PLAIN:
        if (c->type == AF_PARQUET_BOOL)
            tiny_bits(b, bits, n, 1, false);
        for (int i = 0; i < n && c->type != AF_PARQUET_BOOL; i++) {
            if (c->type == AF_PARQUET_BYTES)
                af_buf_add(b, &v[i].len, 4);
            af_buf_add(b, v[i].bytes, (uint64_t)v[i].len);
        }
        break;
    case AF_PARQUET_RLE: {
        af_buf runs = {0};
        tiny_runs(&runs, bits, n, 1, chance);
        const uint32_t len = (uint32_t)runs.len;
        af_buf_add(b, &len, 4);
        af_buf_add(b, runs.data, runs.len);
        af_buf_clear(&runs);
        break;
    }
    case AF_PARQUET_DELTA_BINARY_PACKED:
        tiny_delta(b, number, n);
        break;
    case AF_PARQUET_DELTA_BYTES:
        for (int i = 1; i < n; i++)
            while (prefix[i] < length[i] && prefix[i] < v[i - 1].len &&
                   v[i].bytes[prefix[i]] == v[i - 1].bytes[prefix[i]])
                prefix[i]++;
        for (int i = 0; i < n; i++)
            length[i] -= prefix[i];
        tiny_delta(b, prefix, n);
        tiny_delta(b, length, n);
        for (int i = 0; i < n; i++)
            af_buf_add(b, v[i].bytes + prefix[i], (uint64_t)length[i]);
        break;
    case AF_PARQUET_DELTA_LENGTH_BYTES:
        tiny_delta(b, length, n);
        for (int i = 0; i < n; i++)
            af_buf_add(b, v[i].bytes, (uint64_t)length[i]);
        break;
    case AF_PARQUET_BYTE_STREAM_SPLIT:
        for (int k = 0; n > 0 && k < v[0].len; k++)
            for (int i = 0; i < n; i++)
                af_buf_char(b, (char)v[i].bytes[k]);
        break;
    default: /* a dictionary: the values themselves stand in its page, in their order */
        break;
    }
}

static inline void tiny_pack(af_buf *out, int codec, const af_buf *in)
{
    if (codec == 1)
        tiny_snappy(out, (const uint8_t *)in->data, (int)in->len);
    else if (codec == 7)
        tiny_lz4(out, (const uint8_t *)in->data, (int)in->len);
    else
        af_buf_add(out, in->data, in->len);
}

/* Appends `n` values as a page: header and data. Values of a dictionary are `index`es. */
static inline void tiny_page(af_buf *file, const tiny_column *c, const tiny_value *v, int n,
                             const uint64_t *index, int index_width, uint32_t *chance)
{
    static tiny_value kept[4096];
    static uint64_t levels[4096], kept_index[4096];
    af_buf def = {0}, body = {0}, packed = {0}, head = {0};
    int count = 0;
    for (int i = 0; i < n; i++) {
        levels[i] = !v[i].null;
        if (!v[i].null) {
            kept_index[count] = index ? index[i] : 0;
            kept[count++] = v[i];
        }
    }
    if (c->bit_packed && !c->v2)
        tiny_bits(&def, levels, n, 1, true);
    else
        tiny_runs(&def, levels, n, 1, chance);
    const uint32_t def_len = (uint32_t)def.len;
    if (!c->v2 && !c->bit_packed)
        af_buf_add(&body, &def_len, 4);
    if (!c->v2)
        af_buf_add(&body, def.data, def.len);
    if (index) {
        af_buf_char(&body, (char)index_width);
        tiny_runs(&body, kept_index, count, index_width, chance);
    } else {
        tiny_values(&body, c, kept, count, chance);
    }
    if (c->v2)
        af_buf_add(&packed, def.data, def.len);
    af_buf data = {0};
    tiny_pack(&data, c->codec, &body);
    af_buf_add(&packed, data.data, data.len);
    tiny_int(&head, 1, c->v2 ? AF_PARQUET_PAGE_DATA2 : AF_PARQUET_PAGE_DATA);
    tiny_int(&head, 1, (int64_t)(body.len + (c->v2 ? def.len : 0)));
    tiny_int(&head, 1, (int64_t)packed.len);
    if (c->crc)
        tiny_int(&head, 1, (int32_t)crc32(0, (const Bytef *)packed.data, (uInt)packed.len));
    tiny_field(&head, (c->v2 ? 8 : 5) - (c->crc ? 4 : 3), TINY_STRUCT);
    tiny_int(&head, 1, n);
    if (c->v2) {
        tiny_int(&head, 1, n - count);
        tiny_int(&head, 1, n);
        tiny_int(&head, 1, c->encoding);
        tiny_int(&head, 1, (int64_t)def.len);
        tiny_int(&head, 1, 0);
    } else {
        tiny_int(&head, 1, c->encoding);
        tiny_int(&head, 1, c->bit_packed ? AF_PARQUET_BIT_PACKED : AF_PARQUET_RLE);
        tiny_int(&head, 1, AF_PARQUET_RLE);
    }
    tiny_end(&head);
    tiny_end(&head);
    af_buf_add(file, head.data, head.len);
    af_buf_add(file, packed.data, packed.len);
    af_buf_clear(&def);
    af_buf_clear(&body);
    af_buf_clear(&packed);
    af_buf_clear(&data);
    af_buf_clear(&head);
}

/* The dictionary is the values that are not null, in their order: each index is used once. */
static inline int64_t tiny_dictionary(af_buf *file, const tiny_column *c, const tiny_value *v,
                                      int n, uint64_t *index, int *width)
{
    static tiny_value kept[4096];
    af_buf body = {0}, packed = {0}, head = {0};
    tiny_column plain = *c;
    uint32_t chance = 1;
    int count = 0;
    for (int i = 0; i < n; i++)
        if (!v[i].null) {
            index[i] = (uint64_t)count;
            kept[count++] = v[i];
        }
    plain.encoding = AF_PARQUET_PLAIN;
    tiny_values(&body, &plain, kept, count, &chance);
    tiny_pack(&packed, c->codec, &body);
    const int64_t at = (int64_t)file->len;
    tiny_int(&head, 1, AF_PARQUET_PAGE_DICTIONARY);
    tiny_int(&head, 1, (int64_t)body.len);
    tiny_int(&head, 1, (int64_t)packed.len);
    tiny_field(&head, 4, TINY_STRUCT);
    tiny_int(&head, 1, count + c->promised);
    tiny_int(&head, 1, AF_PARQUET_PLAIN);
    tiny_end(&head);
    tiny_end(&head);
    af_buf_add(file, head.data, head.len);
    af_buf_add(file, packed.data, packed.len);
    for (*width = 1; (count - 1) >> *width > 0;)
        ++*width;
    af_buf_clear(&body);
    af_buf_clear(&packed);
    af_buf_clear(&head);
    return at;
}

/* A file with one column "x" of n <= 4096 values in one row group. */
static inline void tiny_file(af_buf *file, const tiny_column *c, const tiny_value *v, int n,
                             uint32_t *chance)
{
    static uint64_t index[4096];
    af_buf foot = {0};
    int width = 0;
    const bool dictionary = c->encoding == AF_PARQUET_RLE_DICTIONARY;
    af_buf_str(file, "PAR1");
    const int64_t dictionary_at = dictionary ? tiny_dictionary(file, c, v, n, index, &width) : 0;
    const int64_t data_at = (int64_t)file->len;
    for (int i = 0; i < n; i += c->page)
        tiny_page(file, c, v + i, AF_MIN(c->page, n - i), dictionary ? index + i : NULL, width,
                  chance);
    const int64_t end = (int64_t)file->len;
    tiny_int(&foot, 1, 1);
    tiny_list(&foot, 1, 2);
    tiny_text(&foot, 4, "root");
    tiny_int(&foot, 1, 1);
    tiny_end(&foot);
    tiny_int(&foot, 1, c->type);
    tiny_int(&foot, 1, c->width);
    tiny_int(&foot, 1, 1); /* optional */
    tiny_text(&foot, 1, "x");
    if (c->converted >= 0)
        tiny_int(&foot, 2, c->converted);
    tiny_end(&foot);
    tiny_int(&foot, 1, n);
    tiny_list(&foot, 1, 1); /* row groups */
    tiny_list(&foot, 1, 1); /* columns */
    tiny_field(&foot, 3, TINY_STRUCT);
    tiny_int(&foot, 1, c->type);
    tiny_int(&foot, 3, c->codec);
    tiny_int(&foot, 1, n);
    tiny_int(&foot, 2, end - (dictionary ? dictionary_at : data_at));
    tiny_int(&foot, 2, data_at);
    if (dictionary)
        tiny_int(&foot, 2, dictionary_at);
    tiny_end(&foot);
    tiny_end(&foot);
    tiny_int(&foot, 2, n); /* rows */
    tiny_end(&foot);
    tiny_end(&foot);
    const uint32_t len = (uint32_t)foot.len;
    af_buf_add(file, foot.data, foot.len);
    af_buf_add(file, &len, 4);
    af_buf_str(file, "PAR1");
    af_buf_clear(&foot);
}
#endif
