/* conversation_rows.c - a conversation in the chat template, as token rows.
 *
 * The first row found is the whole conversation. What it does not show as it would be generated is
 * left: the last of those answers ends the next row, which may show others that are left, and so
 * on. Rows come in the order of their answers; one without any is not kept if there are others. */
#include "data/render/renderer.h"

/* The row of some spans, whose text it takes. */
static af_status label_row(af_renderer *s, af_row *out, af_loss_spans *spans, af_error *err)
{
    af_status st = AF_OK;
    int64_t at = 0;
    AF_TRY(af_renderer_encode(s, spans->text, spans->len, false, err));
    AF_TRY(af_row_append(out, &s->encoding, !spans->inside, err));
    for (int i = 0; i < spans->count; i++)
        at = af_row_label(out, &s->encoding, at, spans->span[i], spans->inside);
    out->text = spans->text;
    out->len = spans->len;
    out->missing = spans->missing;
    out->departs = spans->departs;
    spans->text = NULL;
done:
    return st;
}

/* Puts a row before those of *first. */
static af_status add_row(af_renderer *s, af_row *first, bool *any, af_loss_spans *spans,
                         af_error *err)
{
    af_row row = {0};
    af_status st = AF_OK;
    if (*any) {
        row.next = af_calloc(1, sizeof *row.next);
        if (!row.next)
            return af_fail_nomem(err, "a record", sizeof *row.next);
        *row.next = *first;
    }
    *first = row;
    *any = true;
    AF_TRY(label_row(s, first, spans, err));
done:
    return st;
}

af_status af_chat_row(af_renderer *s, af_row *out, const af_conversation *t,
                      const af_data_source *source, bool split, af_error *err)
{
    af_status st = AF_OK;
    af_loss_spans spans = {0};
    bool *only = NULL, any = false;
    af_mask_part part = {.messages = json_array_size(t->messages)};
    AF_TRY(af_renderer_need_template(s, err));
    for (;;) {
        AF_TRY(af_mask_spans(s, &spans, t, &part, source, err));
        if (spans.left_to && !split)
            AF_TRY(af_fail(err, AF_EFORMAT,
                           "message %zu: the chat template does not show this answer as it would "
                           "be generated once other turns follow",
                           spans.left_to));
        if (spans.count || !spans.left_to)
            AF_TRY(add_row(s, out, &any, &spans, err));
        if (!spans.left_to)
            break;
        free(only);
        only = spans.left;
        part = (af_mask_part){spans.left_to, only, part.rendered};
        spans.left = NULL;
        af_loss_spans_clear(&spans);
    }
done:
    free(only);
    af_loss_spans_clear(&spans);
    return st;
}
