/* parquet_leaf.c - see parquet_leaf.h. */
#include "format/columns/parquet_leaf.h"

#include <stdarg.h>

af_status af_parquet_leaf_fail(const af_parquet_leaf *l, af_error *err, const char *fmt, ...)
{
    char why[400], path[AF_PARQUET_PATH];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return af_fail(err, AF_EFORMAT, "%s: row group %d, row %" PRId64 ", column %s: %s", l->m->name,
                   l->group, *l->row, af_parquet_path(l->node, path), why);
}

/* Parquet's numbers of the codecs. */
static af_status set_codec(af_parquet_leaf *l, int64_t number, af_error *err)
{
    static const af_codec codecs[] = {AF_CODEC_NONE, AF_CODEC_SNAPPY, AF_CODEC_GZIP,
                                      AF_CODEC_NONE, AF_CODEC_BROTLI, AF_CODEC_LZ4_HADOOP,
                                      AF_CODEC_ZSTD, AF_CODEC_LZ4};
    enum { LZO = 3 };
    if (number == LZO)
        return af_parquet_leaf_fail(l, err, "its codec is LZO, which is not supported");
    if (number < 0 || number >= (int64_t)AF_LEN(codecs))
        return af_parquet_leaf_fail(l, err, "its codec %" PRId64 " is unknown", number);
    l->codec = codecs[number];
    return AF_OK;
}

af_status af_parquet_leaf_open(af_parquet_leaf *l, int group, af_error *err)
{
    af_status st = AF_OK;
    const af_parquet_chunk *c = &l->m->group[group].chunk[l->index];
    l->group = group;
    l->has_dictionary = l->page_seen = l->done = false;
    l->dictionary_count = 0;
    l->batch = l->batch_at = 0;
    l->page_left = 0;
    AF_TRY(af_parquet_chunk_check(l->m, group, l->index, err));
    l->values_left = c->values;
    if (c->values == 0) {
        l->done = true;
        return AF_OK;
    }
    AF_TRY(set_codec(l, c->codec, err));
    const int64_t at = c->dictionary_at > 0 ? AF_MIN(c->dictionary_at, c->data_at) : c->data_at;
    l->at = l->map->data + at;
    l->end = l->at + c->packed;
    AF_TRY(af_parquet_leaf_more(l, err));
done:
    return st;
}

void af_parquet_leaf_clear(af_parquet_leaf *l)
{
    af_buf_clear(&l->page_buf);
    af_buf_clear(&l->dictionary_buf);
    af_buf_clear(&l->text);
    free(l->dictionary_text);
    l->dictionary_text = NULL;
}

static af_status decode_levels(af_parquet_leaf *l, uint32_t *out, af_runs *r, int highest,
                               const char *what, af_error *err)
{
    if (highest == 0) {
        memset(out, 0, (size_t)l->batch * sizeof *out);
        return AF_OK;
    }
    if (!af_runs_next(r, out, (uint64_t)l->batch))
        return af_parquet_leaf_fail(l, err, "a page has fewer %s levels than values", what);
    for (int i = 0; i < l->batch; i++)
        if (out[i] > (uint32_t)highest)
            return af_parquet_leaf_fail(l, err, "a %s level of %" PRIu32 ", the highest is %d",
                                        what, out[i], highest);
    return AF_OK;
}

af_status af_parquet_leaf_more(af_parquet_leaf *l, af_error *err)
{
    af_status st = AF_OK;
    const bool first = !l->page_seen;
    while (l->page_left == 0) {
        if (l->values_left == 0) {
            l->done = true;
            l->batch = l->batch_at = 0;
            l->rep[0] = l->def[0] = 0;
            return AF_OK;
        }
        AF_TRY(af_parquet_leaf_page(l, err));
    }
    l->batch = (int)AF_MIN(l->page_left, AF_PARQUET_BATCH);
    l->batch_at = 0;
    l->page_left -= l->batch;
    AF_TRY(decode_levels(l, l->rep, &l->reps, l->node->leaf_rep, "repetition", err));
    AF_TRY(decode_levels(l, l->def, &l->defs, l->node->def, "definition", err));
    if (first && l->rep[0] != 0)
        st = af_parquet_leaf_fail(l, err, "the first record begins inside a list");
done:
    return st;
}

/* --- values --- */

static bool plain_value(af_parquet_leaf *l, const uint8_t **p, uint64_t *n)
{
    const uint64_t left = (uint64_t)(l->value_end - l->value);
    if (l->node->physical == AF_PARQUET_BOOL) {
        if (l->bit / 8 >= left)
            return false;
        l->scratch[0] = l->value[l->bit / 8] >> l->bit % 8 & 1;
        l->bit++;
        *p = l->scratch;
        *n = 1;
        return true;
    }
    *n = (uint64_t)l->node->width;
    if (l->node->physical == AF_PARQUET_BYTES) {
        if (left < 4)
            return false;
        *n = af_column_uint(l->value, 4);
        l->value += 4;
    }
    if (*n > (uint64_t)(l->value_end - l->value))
        return false;
    *p = l->value;
    l->value += *n;
    return true;
}

static bool dictionary_value(af_parquet_leaf *l, const uint8_t **p, uint64_t *n)
{
    if (l->dict_at == l->dict_batch) {
        /* at most as many as entries are left; fewer may be stored, as some are null */
        uint64_t want = 0;
        for (int i = l->batch_at; i < l->batch; i++)
            want += l->def[i] == (uint32_t)l->node->def;
        if (!af_runs_next(&l->indexes, l->dict_index, want))
            return false;
        l->dict_batch = (int)want;
        l->dict_at = 0;
    }
    const uint32_t k = l->dict_index[l->dict_at++];
    if (k >= l->dictionary_count)
        return false;
    if (l->node->physical == AF_PARQUET_BYTES) {
        *p = l->dictionary_text[k].at;
        *n = l->dictionary_text[k].len;
        return true;
    }
    *n = (uint64_t)l->node->width;
    *p = l->dictionary + *n * k;
    return true;
}

static bool split_value(af_parquet_leaf *l, const uint8_t **p, uint64_t *n)
{
    *n = (uint64_t)l->node->width;
    if (l->split_at >= l->split)
        return false;
    l->text.len = 0;
    char *to = af_buf_reserve(&l->text, *n);
    if (!to)
        return false;
    for (uint64_t i = 0; i < *n; i++)
        to[i] = (char)l->value[i * l->split + l->split_at];
    l->split_at++;
    *p = (const uint8_t *)to;
    return true;
}

/* The bytes of a length that stands with the others before them. */
static bool suffix(af_parquet_leaf *l, const uint8_t **p, uint64_t *n)
{
    int64_t len;
    if (!af_delta_next(&l->numbers, &len) || len < 0 || len > l->value_end - l->value)
        return false;
    *p = l->value;
    *n = (uint64_t)len;
    l->value += len;
    return true;
}

static bool prefix_value(af_parquet_leaf *l, const uint8_t **p, uint64_t *n)
{
    int64_t keep;
    const uint8_t *rest;
    if (!af_delta_next(&l->prefixes, &keep) || keep < 0 || (uint64_t)keep > l->text.len ||
        !suffix(l, &rest, n))
        return false;
    l->text_made += (uint64_t)keep;
    if (l->text_made > AF_BLOCK_FREE && l->text_made / AF_BLOCK_RATIO_MAX > l->page_size)
        return false;
    l->text.len = (uint64_t)keep;
    af_buf_add(&l->text, rest, *n);
    if (l->text.bad)
        return false;
    *p = (const uint8_t *)l->text.data;
    *n = l->text.len;
    return l->node->physical != AF_PARQUET_FIXED || *n == (uint64_t)l->node->width;
}

static bool number_value(af_parquet_leaf *l, const uint8_t **p, uint64_t *n)
{
    int64_t v;
    if (!af_delta_next(&l->numbers, &v))
        return false;
    memcpy(l->scratch, &v, sizeof v);
    *p = l->scratch;
    *n = (uint64_t)l->node->width;
    return true;
}

static bool run_value(af_parquet_leaf *l, const uint8_t **p, uint64_t *n)
{
    uint32_t v;
    if (!af_runs_next(&l->indexes, &v, 1))
        return false;
    l->scratch[0] = (uint8_t)v;
    *p = l->scratch;
    *n = 1;
    return true;
}

af_status af_parquet_leaf_value(af_parquet_leaf *l, const uint8_t **p, uint64_t *n, af_error *err)
{
    bool good = false;
    switch (l->encoding) {
    case AF_PARQUET_PLAIN:
        good = plain_value(l, p, n);
        break;
    case AF_PARQUET_PLAIN_DICTIONARY:
    case AF_PARQUET_RLE_DICTIONARY:
        good = dictionary_value(l, p, n);
        break;
    case AF_PARQUET_BYTE_STREAM_SPLIT:
        good = split_value(l, p, n);
        break;
    case AF_PARQUET_DELTA_LENGTH_BYTES:
        good = suffix(l, p, n);
        break;
    case AF_PARQUET_DELTA_BYTES:
        good = prefix_value(l, p, n);
        break;
    case AF_PARQUET_DELTA_BINARY_PACKED:
        good = number_value(l, p, n);
        break;
    case AF_PARQUET_RLE:
        good = run_value(l, p, n);
        break;
    case AF_PARQUET_BIT_PACKED:
        break;
    }
    if (good)
        return AF_OK;
    if (af_memory_failed())
        return af_fail_nomem(err, l->m->name, l->text.len);
    return af_parquet_leaf_fail(
        l, err, "a value (encoding %d) is beyond its page or its dictionary", (int)l->encoding);
}
