#define _GNU_SOURCE /* memmem */
/* answer_text.c - see answer_text.h. */
#include "decode/answer_text.h"

void af_answer_text_init(af_answer_text *t, const af_tokenizer *tokenizer, const char *const *stop,
                         int stops, bool skip_special)
{
    *t = (af_answer_text){.tokenizer = tokenizer, .stop = stop, .stops = stops};
    if (tokenizer)
        af_decode_stream_init(&t->stream, tokenizer, skip_special);
}

void af_answer_text_clear(af_answer_text *t)
{
    if (t->tokenizer)
        af_decode_stream_clear(&t->stream);
    af_buf_clear(&t->text);
    free(t->ids);
    *t = (af_answer_text){0};
}

static af_status keep_id(af_answer_text *t, int32_t id, af_error *err)
{
    if (t->count == t->cap) {
        const int64_t cap = t->cap * 2 + 64;
        int32_t *more = af_realloc(t->ids, (uint64_t)cap, sizeof *more);
        if (!more)
            return af_fail_nomem(err, "tokens", (uint64_t)cap * sizeof *more);
        t->ids = more;
        t->cap = cap;
    }
    t->ids[t->count++] = id;
    return AF_OK;
}

/* Cuts the text before the first stop string that ends after `before`. */
static void cut(af_answer_text *t, uint64_t before)
{
    uint64_t best = t->text.len;
    for (int i = 0; i < t->stops && t->text.len; i++) {
        const size_t n = strlen(t->stop[i]);
        const uint64_t start = AF_MAX(t->from, before > n ? before - n : 0);
        const char *hit =
            n ? memmem(t->text.data + start, t->text.len - start, t->stop[i], n) : NULL;
        if (!hit || (uint64_t)(hit - t->text.data) >= best)
            continue;
        best = (uint64_t)(hit - t->text.data);
        t->stopped = t->stop[i];
    }
    if (best == t->text.len)
        return;
    t->text.len = best;
    t->text.data[best] = '\0';
}

/* Bytes at the end that could be the beginning of a stop string. */
static uint64_t held_back(const af_answer_text *t)
{
    uint64_t most = 0;
    for (int i = 0; i < t->stops; i++) {
        const uint64_t n = strlen(t->stop[i]);
        for (uint64_t k = AF_MIN(n ? n - 1 : 0, t->text.len - t->from); k > most; k--)
            if (memcmp(t->text.data + t->text.len - k, t->stop[i], k) == 0)
                most = k;
    }
    return most;
}

static af_status add_text(af_answer_text *t, const char *text, uint64_t n, af_error *err)
{
    const uint64_t before = t->text.len;
    af_buf_add(&t->text, text, n);
    if (t->text.bad)
        return af_fail_nomem(err, "text", before + n);
    if (t->count <= t->min_tokens)
        t->from = t->text.len;
    cut(t, before);
    return AF_OK;
}

af_status af_answer_text_add(af_answer_text *t, int32_t id, bool shown, af_error *err)
{
    af_status st = AF_OK;
    const char *text = "";
    uint64_t n = 0;
    AF_TRY(keep_id(t, id, err));
    if (!shown || !t->tokenizer)
        return AF_OK;
    AF_TRY(af_decode_stream_next(&t->stream, id, &text, &n, err));
    AF_TRY(add_text(t, text, n, err));
    t->safe = t->stopped ? t->text.len : t->text.len - held_back(t);
done:
    return st;
}

af_status af_answer_text_end(af_answer_text *t, bool rest, af_error *err)
{
    af_status st = AF_OK;
    const af_decode_stream *s = &t->stream;
    char *text = NULL;
    uint64_t n = 0;
    if (rest && t->tokenizer && !t->stopped && s->count > s->prefix_ids) {
        AF_TRY(
            af_tokenizer_decode(t->tokenizer, &text, &n, s->ids, s->count, s->skip_special, err));
        if (n > s->prefix_len)
            AF_TRY(add_text(t, text + s->prefix_len, n - s->prefix_len, err));
    }
    t->safe = t->text.len;
done:
    free(text);
    return st;
}
