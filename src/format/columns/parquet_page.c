/* parquet_page.c - the pages of a column chunk: header, checksum, codec, levels, and where the
 * values begin. */
#include "format/columns/parquet_leaf.h"

#include <zlib.h>

typedef struct body {
    const uint8_t *p; /* as stored */
    uint64_t n;
    const af_parquet_page *page;
} body;

static af_status check_page(const af_parquet_leaf *l, const af_parquet_page *p, af_error *err)
{
    const int64_t left = l->end - l->at;
    if (p->packed < 0 || p->full < 0 || p->full > INT32_MAX)
        return af_parquet_leaf_fail(l, err, "a page declares %" PRId64 " bytes, unpacked %" PRId64,
                                    p->packed, p->full);
    if (p->packed > left)
        return af_parquet_leaf_fail(
            l, err, "a page of %" PRId64 " bytes, but the column chunk has %" PRId64 " left",
            p->packed, left);
    if (p->type != AF_PARQUET_PAGE_INDEX && !p->has_header)
        return af_parquet_leaf_fail(l, err, "a page of type %" PRId64 " without its header",
                                    p->type);
    if (p->has_crc && crc32(0, l->at, (uInt)p->packed) != p->crc)
        return af_parquet_leaf_fail(l, err, "the checksum (CRC) of a page is wrong");
    return AF_OK;
}

/* n bytes at p as they are, or unpacked into l->buf. */
static af_status unpack(af_parquet_leaf *l, af_buf *buf, const uint8_t **p, uint64_t n,
                        uint64_t full, bool packed, af_error *err)
{
    if (l->codec == AF_CODEC_NONE || !packed) {
        if (n != full)
            return af_parquet_leaf_fail(
                l, err, "a page that is not packed has %" PRIu64 " bytes, but declares %" PRIu64, n,
                full);
        return AF_OK;
    }
    if (full == 0)
        return AF_OK;
    const char *why = af_unpack(buf, l->codec, *p, n, full);
    if (why)
        return af_parquet_leaf_fail(l, err, "a page of %" PRIu64 " bytes cannot be unpacked: %s", n,
                                    why);
    *p = (const uint8_t *)buf->data;
    return AF_OK;
}

static bool index_strings(af_parquet_leaf *l, const uint8_t *p, const uint8_t *end)
{
    for (uint64_t i = 0; i < l->dictionary_count; i++) {
        if (end - p < 4)
            return false;
        const uint64_t n = af_column_uint(p, 4);
        p += 4;
        if (n > (uint64_t)(end - p))
            return false;
        l->dictionary_text[i] = (af_parquet_string){p, n};
        p += n;
    }
    return true;
}

static af_status read_dictionary(af_parquet_leaf *l, const body *b, af_error *err)
{
    const uint8_t *p = b->p;
    const uint64_t full = (uint64_t)b->page->full, width = (uint64_t)l->node->width;
    const int64_t count = b->page->values;
    if (l->has_dictionary || l->page_seen)
        return af_parquet_leaf_fail(l, err, "a dictionary that is not the first page");
    if (b->page->encoding != AF_PARQUET_PLAIN && b->page->encoding != AF_PARQUET_PLAIN_DICTIONARY)
        return af_parquet_leaf_fail(l, err, "a dictionary of unknown encoding %" PRId64,
                                    b->page->encoding);
    if (count < 0 || (uint64_t)count > full / (width ? width : 4) ||
        l->node->physical == AF_PARQUET_BOOL)
        return af_parquet_leaf_fail(
            l, err, "a dictionary of %" PRId64 " values in %" PRIu64 " bytes", count, full);
    const af_status st = unpack(l, &l->dictionary_buf, &p, b->n, full, true, err);
    if (st != AF_OK)
        return st;
    l->dictionary = p;
    l->dictionary_count = (uint64_t)count;
    l->has_dictionary = true;
    if (l->node->physical != AF_PARQUET_BYTES)
        return AF_OK;
    free(l->dictionary_text);
    l->dictionary_text = af_calloc(AF_MAX(l->dictionary_count, 1), sizeof *l->dictionary_text);
    if (!l->dictionary_text)
        return af_fail_nomem(err, l->m->name, l->dictionary_count * sizeof *l->dictionary_text);
    return index_strings(l, p, p + full)
               ? AF_OK
               : af_parquet_leaf_fail(l, err, "a string of the dictionary is beyond its page");
}

static int bits_of(int level)
{
    int n = 0;
    while (level >> n)
        n++;
    return n;
}

/* Levels of a v1 page: their length stands before them, or follows from their number. */
static bool take_levels(af_runs *r, const uint8_t **p, const uint8_t *end, int highest,
                        int64_t encoding, int64_t values)
{
    const int width = bits_of(highest);
    uint64_t n;
    if (highest == 0)
        return true;
    if (encoding == AF_PARQUET_BIT_PACKED) {
        n = ((uint64_t)values * (uint64_t)width + 7) / 8;
    } else {
        if (end - *p < 4)
            return false;
        n = af_column_uint(*p, 4);
        *p += 4;
    }
    if (n > (uint64_t)(end - *p))
        return false;
    *r = (af_runs){
        .at = *p, .end = *p + n, .width = width, .bit_packed = encoding == AF_PARQUET_BIT_PACKED};
    *p += n;
    return true;
}

/* Prepares the readers of lengths; what follows them are the bytes. */
static bool open_lengths(af_delta *d, const uint8_t **p, const uint8_t *end, uint64_t most)
{
    if (!af_delta_open(d, *p, end, most))
        return false;
    *p = af_delta_end(d);
    return *p != NULL;
}

static bool open_delta(af_parquet_leaf *l, uint64_t values)
{
    const bool bytes =
        l->node->physical == AF_PARQUET_BYTES || l->node->physical == AF_PARQUET_FIXED;
    l->text.len = 0;
    l->text_made = 0;
    if (l->encoding == AF_PARQUET_DELTA_BYTES)
        return bytes && open_lengths(&l->prefixes, &l->value, l->value_end, values) &&
               open_lengths(&l->numbers, &l->value, l->value_end, values);
    if (l->encoding == AF_PARQUET_DELTA_LENGTH_BYTES)
        return l->node->physical == AF_PARQUET_BYTES &&
               open_lengths(&l->numbers, &l->value, l->value_end, values);
    return (l->node->physical == AF_PARQUET_INT32 || l->node->physical == AF_PARQUET_INT64) &&
           af_delta_open(&l->numbers, l->value, l->value_end, values);
}

static af_status open_indexes(af_parquet_leaf *l, af_error *err)
{
    if (!l->has_dictionary)
        return af_parquet_leaf_fail(l, err, "a page refers to a dictionary that is not there");
    l->indexes = (af_runs){.at = l->value, .end = l->value_end};
    if (l->value == l->value_end) /* all values are null */
        return AF_OK;
    l->indexes.width = *l->indexes.at++;
    return l->indexes.width <= 32
               ? AF_OK
               : af_parquet_leaf_fail(l, err, "dictionary indexes of %d bits", l->indexes.width);
}

/* The first byte of the values is at l->value. */
static af_status open_values(af_parquet_leaf *l, uint64_t values, af_error *err)
{
    const uint64_t n = (uint64_t)(l->value_end - l->value);
    const uint64_t width = (uint64_t)l->node->width;
    l->bit = 0;
    l->numbers = l->prefixes = (af_delta){.at = l->value_end, .end = l->value_end};
    l->indexes = (af_runs){.at = l->value_end, .end = l->value_end};
    switch (l->encoding) {
    case AF_PARQUET_PLAIN:
        return AF_OK;
    case AF_PARQUET_PLAIN_DICTIONARY:
    case AF_PARQUET_RLE_DICTIONARY:
        return open_indexes(l, err);
    case AF_PARQUET_RLE:
        if (l->node->physical != AF_PARQUET_BOOL)
            break;
        return n == 0 || take_levels(&l->indexes, &l->value, l->value_end, 1, AF_PARQUET_RLE, 0)
                   ? AF_OK
                   : af_parquet_leaf_fail(l, err, "the truth values of a page are cut");
    case AF_PARQUET_DELTA_BINARY_PACKED:
    case AF_PARQUET_DELTA_LENGTH_BYTES:
    case AF_PARQUET_DELTA_BYTES:
        return n == 0 || open_delta(l, values)
                   ? AF_OK
                   : af_parquet_leaf_fail(l, err,
                                          "the differences (encoding %d) of a page are damaged",
                                          (int)l->encoding);
    case AF_PARQUET_BYTE_STREAM_SPLIT:
        if (width == 0)
            break;
        l->split = n / width;
        l->split_at = 0;
        return n % width == 0 ? AF_OK
                              : af_parquet_leaf_fail(l, err,
                                                     "a page of split bytes of %" PRIu64
                                                     " bytes, for values of %" PRIu64,
                                                     n, width);
    case AF_PARQUET_BIT_PACKED:
        break;
    }
    return af_parquet_leaf_fail(l, err, "values in unknown encoding %d", (int)l->encoding);
}

static af_status read_data(af_parquet_leaf *l, const body *b, af_error *err)
{
    const af_parquet_page *page = b->page;
    const uint8_t *p = b->p;
    af_status st = AF_OK;
    AF_TRY(unpack(l, &l->page_buf, &p, b->n, (uint64_t)page->full, true, err));
    l->value_end = p + page->full;
    if (!take_levels(&l->reps, &p, l->value_end, l->node->leaf_rep, page->rep_encoding,
                     page->values) ||
        !take_levels(&l->defs, &p, l->value_end, l->node->def, page->def_encoding, page->values))
        st = af_parquet_leaf_fail(l, err, "the levels of a page are longer than the page");
    l->value = p;
done:
    return st;
}

static af_status read_data2(af_parquet_leaf *l, const body *b, af_error *err)
{
    const af_parquet_page *page = b->page;
    const int64_t levels = page->rep_bytes + page->def_bytes;
    if (page->rep_bytes < 0 || page->def_bytes < 0 || page->rep_bytes > page->packed ||
        page->def_bytes > page->packed || levels > page->packed || levels > page->full)
        return af_parquet_leaf_fail(
            l, err, "levels of %" PRId64 " and %" PRId64 " bytes in a page of %" PRId64,
            page->rep_bytes, page->def_bytes, page->packed);
    if (page->nulls < 0 || page->nulls > page->values)
        return af_parquet_leaf_fail(l, err, "a page of %" PRId64 " values has %" PRId64 " nulls",
                                    page->values, page->nulls);
    const uint8_t *reps = b->p, *defs = reps + page->rep_bytes, *p = defs + page->def_bytes;
    l->reps = (af_runs){.at = reps, .end = defs, .width = bits_of(l->node->leaf_rep)};
    l->defs = (af_runs){.at = defs, .end = p, .width = bits_of(l->node->def)};
    const uint64_t full = (uint64_t)(page->full - levels);
    const af_status st =
        unpack(l, &l->page_buf, &p, b->n - (uint64_t)levels, full, page->is_packed, err);
    l->value = p;
    l->value_end = p + full;
    return st;
}

/* What was read is not needed again. */
static void forget(const af_parquet_leaf *l, const uint8_t *from)
{
    const uint64_t step = (uint64_t)1 << 20, a = (uint64_t)(from - l->map->data),
                   z = (uint64_t)(l->at - l->map->data);
    if (l->mapped && a / step != z / step)
        af_map_forget(l->map, a - AF_MIN(a, step), z - a);
}

af_status af_parquet_leaf_page(af_parquet_leaf *l, af_error *err)
{
    af_parquet_page page;
    af_status st = AF_OK;
    const uint8_t *from = l->at;
    if (l->at >= l->end)
        return af_parquet_leaf_fail(l, err, "its pages end %" PRId64 " values too early",
                                    l->values_left);
    af_thrift t = {l->at, l->end, false};
    if (!af_parquet_page_read(&page, &t))
        return af_parquet_leaf_fail(l, err, "the header of a page is damaged");
    l->at = t.at;
    AF_TRY(check_page(l, &page, err));
    const body b = {l->at, (uint64_t)page.packed, &page};
    l->at += page.packed;
    if (page.type == AF_PARQUET_PAGE_DICTIONARY)
        return read_dictionary(l, &b, err);
    if (page.type == AF_PARQUET_PAGE_INDEX)
        return AF_OK;
    if (page.type != AF_PARQUET_PAGE_DATA && page.type != AF_PARQUET_PAGE_DATA2)
        return af_parquet_leaf_fail(l, err, "a page of unknown type %" PRId64, page.type);
    l->page_seen = true;
    if (page.values < 0 || page.values > l->values_left)
        return af_parquet_leaf_fail(
            l, err, "a page of %" PRId64 " values, but the column chunk has %" PRId64 " left",
            page.values, l->values_left);
    if (page.encoding < 0 || page.encoding > AF_PARQUET_BYTE_STREAM_SPLIT || page.encoding == 1)
        return af_parquet_leaf_fail(l, err, "values in unknown encoding %" PRId64, page.encoding);
    l->encoding = (af_parquet_encoding)page.encoding;
    l->values_left -= page.values;
    l->page_left = page.values;
    l->page_size = (uint64_t)page.full;
    l->dict_batch = l->dict_at = 0;
    AF_TRY(page.type == AF_PARQUET_PAGE_DATA ? read_data(l, &b, err) : read_data2(l, &b, err));
    AF_TRY(open_values(l, (uint64_t)page.values, err));
    forget(l, from);
done:
    return st;
}
