/* text_reader.c - plain text files: their tokens in rows of sequence_len. */
#include "data/store/record_reader.h"

/* Emits the first n tokens of d->text. */
static af_status text_window(af_record_reader *d, int64_t n)
{
    af_row r = {.ids = d->text.ids, .labels = d->text.labels, .count = n};
    af_status st = AF_OK;
    d->loc.number++;
    d->loc.line = d->text_line;
    if (d->mode == AF_READ_PREVIEW)
        AF_TRY(
            af_tokenizer_decode(d->pipeline->tokenizer, &r.text, &r.len, r.ids, n, false, d->err));
    AF_TRY(af_record_reader_check_ids(d, &r));
    const af_example e = {.file = d->loc.file,
                          .source = d->file,
                          .dataset = d->dataset,
                          .line = d->loc.line,
                          .record = d->loc.number,
                          .shape = AF_SHAPE_TEXT,
                          .rows = 1,
                          .row = &r};
    af_record_reader_count(d, &e);
    AF_TRY(af_record_reader_emit(d, &e));
    d->text.count -= n;
    memmove(d->text.ids, d->text.ids + n, (uint64_t)d->text.count * sizeof *d->text.ids);
    memmove(d->text.labels, d->text.labels + n, (uint64_t)d->text.count * sizeof *d->text.labels);
done:
    free(r.text);
    return st;
}

/* A block of a text file: its tokens join those left over, whole windows are emitted. */
static af_status text_block(af_record_reader *d, const af_record *rec, bool first)
{
    af_status st = AF_OK;
    const json_t *text = json_object_get(rec->json, "text");
    const int64_t limit = d->pipeline->o->sequence_len > 0 ? d->pipeline->o->sequence_len : 2048;
    if (!d->pipeline->tokenizer)
        return af_fail(d->err, AF_EUSAGE, "the dataset %s needs a tokenizer: %s", d->loc.file,
                       d->pipeline->why.msg);
    if (d->text.count == 0)
        d->text_line = rec->line;
    AF_TRY(af_renderer_append_text(d->renderer, &d->text, json_string_value(text),
                                   json_string_length(text), first, rec->last, d->source, d->err));
    while (d->text.count >= limit && !d->ended) {
        AF_TRY(text_window(d, limit));
        d->text_line = rec->line;
    }
    if (rec->last && d->text.count > 1 && !d->ended)
        AF_TRY(text_window(d, d->text.count));
    if (rec->last)
        d->text.count = 0;
done:
    return st;
}

af_status af_text_file_read(af_record_reader *d, af_records *r, int64_t *records)
{
    const char *idle = af_data_source_idle_key(d->source, AF_SHAPE_TEXT);
    af_status st = AF_OK;
    if (idle)
        return af_fail(d->err, AF_EUSAGE, "%s: %s has no effect: the file is plain text",
                       d->loc.file, idle);
    d->text.count = 0;
    while (st == AF_OK && !d->ended) {
        af_record rec = {0};
        const double began = af_seconds_now();
        st = af_records_next(r, &rec, d->err);
        d->times.read += af_seconds_now() - began;
        if (st != AF_OK || !rec.json)
            break;
        st = text_block(d, &rec, ++*records == 1);
        json_decref(rec.json);
    }
    return st;
}
