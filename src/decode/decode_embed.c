/* decode_embed.c - embeddings of texts: a sequence in a slot of its own, whose rows' hidden states
 * are pooled and whose pages are given back at once. */
#include "decode/decoder.h"

int64_t af_decoder_width(const af_decoder *d) { return d ? af_decode_spec(d->m)->embed_width : 0; }

/* Adds rows [from, from + n) of `count`. */
static void pool(float *out, double *sum, const float *rows, int64_t from, int64_t n, int64_t count,
                 int64_t D, af_pooling pooling)
{
    const int64_t one = pooling == AF_POOLING_CLS ? 0 : count - 1;
    if (pooling != AF_POOLING_MEAN) {
        if (one >= from && one < from + n)
            memcpy(out, rows + (one - from) * D, (size_t)D * sizeof *out);
        return;
    }
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < D; i++)
            sum[i] += rows[r * D + i];
    for (int64_t i = 0; i < D && from + n == count; i++)
        out[i] = (float)(sum[i] / (double)count);
}

static af_status run(af_decoder *d, const int32_t *ids, int64_t count, int adapter,
                     af_pooling pooling, double *sum, float *out, af_error *err)
{
    af_status st = AF_OK;
    const int64_t D = af_decoder_width(d);
    const float *rows;
    memset(d->feed, 0, (size_t)d->z.seqs * sizeof *d->feed);
    for (int64_t at = 0, n; at < count; at += n) {
        n = AF_MIN(count - at, d->z.rows);
        d->feed[d->slots] = (af_decode_feed){.ids = ids + at,
                                             .from = at,
                                             .length = count,
                                             .n = n,
                                             .adapter = af_decode_place(d, adapter)};
        AF_TRY(af_decode_graph_run(&d->graph, d->feed, d->table, false, err));
        AF_TRY(af_decode_graph_hidden(&d->graph, &rows, err));
        pool(out, sum, rows, at, n, count, D, pooling);
    }
done:
    return st;
}

af_status af_decoder_embed(af_decoder *d, const int32_t *ids, int64_t count, int adapter,
                           af_pooling pooling, float *out, af_error *err)
{
    AF_NEED(err, d, ids, out);
    af_status st = AF_OK;
    if (!d->z.hidden)
        return af_fail(err, AF_EUSAGE, "af_decoder_embed: the decoder has no memory for one");
    if ((unsigned)pooling > AF_POOLING_CLS)
        return af_fail(err, AF_EUSAGE, "pooling %d is not one of 0 to %d", (int)pooling,
                       AF_POOLING_CLS);
    int32_t *table = d->table + d->slots * d->z.table;
    int64_t need, pages = 0;
    double *sum = af_calloc((uint64_t)af_decoder_width(d), sizeof *sum);
    if (!sum)
        return af_fail_nomem(err, "an embedding", (uint64_t)af_decoder_width(d) * sizeof *sum);
    AF_TRY(af_decode_check_ids(d, ids, count, adapter, err));
    need = (count + d->z.page - 1) / d->z.page;
    if (need > d->pages.free)
        AF_TRY(af_fail(err, AF_ENOMEM,
                       "no free pages for a text of %" PRId64 " tokens; running requests have them",
                       count));
    while (pages < need)
        table[pages++] = af_decode_pages_take(&d->pages);
    AF_TRY(run(d, ids, count, adapter, pooling, sum, out, err));
    d->counts.prompt_tokens += (uint64_t)count;
done:
    while (pages > 0)
        af_decode_pages_release(&d->pages, table[--pages]);
    memset(table, 0, (size_t)d->z.table * sizeof *table);
    free(sum);
    return st;
}
