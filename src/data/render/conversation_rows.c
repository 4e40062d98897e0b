/* conversation_rows.c - a conversation in the chat template, as token rows.
 *
 * The first row found is the whole conversation. What it does not show as it would be generated is
 * left: the last of those answers ends the next row, which may show others that are left, and so
 * on. Rows come in the order of their answers; one without any is not kept if there are others.
 *
 * Rows whose prompts alone are longer than sequence_len would be cut before their answers. Of a
 * conversation that is much longer they are nearly all: only the first of them is made. */
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

/* Whether the prompt of message i has all of the first n bytes of the whole. */
static af_status begins_alike(af_renderer *s, const af_conversation *t, size_t i,
                              const af_loss_spans *whole, uint64_t n, bool *alike, af_error *err)
{
    char *text = NULL;
    uint64_t len = 0;
    const af_status st = af_renderer_prompt(s, &text, &len, t, i, err);
    *alike = st == AF_OK && len >= n && memcmp(text, whole->text, n) == 0;
    free(text);
    return st;
}

static const char *role_of(const af_conversation *t, size_t i)
{
    return json_string_value(json_object_get(json_array_get(t->messages, i), "role"));
}

/* Turns after one question share a row. */
static bool after_tool(const af_conversation *t, size_t i)
{
    const char *role = role_of(t, i - 1);
    return role && strcmp(role, "tool") == 0;
}

/* Of the answers that are left and come after sequence_len tokens all but the first are dropped;
 * *dropped is the number of their rows. Prompts of later answers are taken to be longer: the last
 * one is looked at, then the first is searched by halves. */
static af_status drop_beyond(af_renderer *s, af_loss_spans *whole, const af_conversation *t,
                             int64_t *dropped, af_error *err)
{
    af_status st = AF_OK;
    bool beyond = false;
    size_t *answer = NULL, count = 0, lo = 0;
    AF_TRY(af_loss_spans_cut(s, whole, err));
    const uint64_t n = whole->cut;
    if (n == whole->len)
        goto done;
    answer = af_calloc(whole->left_to, sizeof *answer);
    if (!answer)
        AF_TRY(af_fail_nomem(err, "a conversation", whole->left_to));
    for (size_t i = 0; i < whole->left_to; i++)
        if (whole->left[i])
            answer[count++] = i;
    size_t hi = count - 1; /* the first that is known to be beyond */
    AF_TRY(begins_alike(s, t, answer[hi], whole, n, &beyond, err));
    while (beyond && lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        bool alike;
        AF_TRY(begins_alike(s, t, answer[mid], whole, n, &alike, err));
        hi = alike ? mid : hi;
        lo = alike ? lo : mid + 1;
    }
    for (size_t i = hi + 1; beyond && i < count; i++) {
        whole->left[answer[i]] = false;
        *dropped += !after_tool(t, answer[i]);
    }
    whole->left_to = answer[hi] + 1;
done:
    free(answer);
    return st;
}

af_status af_chat_row(af_renderer *s, af_row *out, const af_conversation *t,
                      const af_data_source *source, bool split, af_error *err)
{
    af_status st = AF_OK;
    af_loss_spans spans = {0};
    bool *only = NULL, any = false;
    int64_t dropped = 0;
    size_t unshown = 0;
    af_mask_part part = {.messages = json_array_size(t->messages)};
    af_prefix_cache cache = {0};
    AF_TRY(af_renderer_need_template(s, err));
    AF_TRY(af_prefix_cache_init(&cache, s, part.messages, err));
    for (;;) {
        AF_TRY(af_mask_spans(s, &spans, t, &part, &cache, source, err));
        if (spans.left_to && !split)
            AF_TRY(af_fail(err, AF_EFORMAT,
                           "message %zu: the chat template does not show this answer as it would "
                           "be generated once other turns follow",
                           spans.left_to));
        unshown = only ? unshown : spans.unshown;
        if (spans.left_to && !only && s->cutoff > 0)
            AF_TRY(drop_beyond(s, &spans, t, &dropped, err));
        if (spans.count || !spans.left_to)
            AF_TRY(add_row(s, out, &any, &spans, err));
        if (only && any) { /* the first row after that of the whole: that of the last answer left */
            out->beyond += dropped;
            dropped = 0;
        }
        if (!spans.left_to)
            break;
        free(only);
        only = spans.left;
        part = (af_mask_part){spans.left_to, only};
        spans.left = NULL;
        af_loss_spans_clear(&spans);
    }
    if (unshown)
        out->unshown = (af_answer_note){.message = unshown, .field = role_of(t, unshown - 1)};
done:
    af_prefix_cache_clear(&cache);
    free(only);
    af_loss_spans_clear(&spans);
    return st;
}
