#define _GNU_SOURCE
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
    *t = (af_answer_text){0};
}

/* Where the first stop string begins that ends after `from`, or the length of the text. */
static uint64_t find_stop(const af_answer_text *t, uint64_t from)
{
    uint64_t best = t->text.len;
    for (int i = 0; i < t->stops && t->text.data; i++) {
        const size_t n = strlen(t->stop[i]);
        const uint64_t start = from > n ? from - n : 0;
        const char *hit =
            n ? memmem(t->text.data + start, t->text.len - start, t->stop[i], n) : NULL;
        if (hit)
            best = AF_MIN(best, (uint64_t)(hit - t->text.data));
    }
    return best;
}

/* Bytes at the end that could be the beginning of a stop string. */
static uint64_t held_back(const af_answer_text *t)
{
    uint64_t most = 0;
    for (int i = 0; i < t->stops; i++) {
        const uint64_t n = strlen(t->stop[i]);
        for (uint64_t k = AF_MIN(n ? n - 1 : 0, t->text.len); k > most; k--)
            if (memcmp(t->text.data + t->text.len - k, t->stop[i], k) == 0)
                most = k;
    }
    return most;
}

/* Up to byte `to`. */
static void show(af_answer_text *t, uint64_t to, const char **text, uint64_t *len)
{
    to = AF_MAX(to, t->emitted);
    *text = t->text.data ? t->text.data + t->emitted : "";
    *len = to - t->emitted;
    t->emitted = to;
}

af_status af_answer_text_add(af_answer_text *t, int32_t id, const char **text, uint64_t *len,
                             af_error *err)
{
    const char *more = "";
    uint64_t n = 0;
    if (t->tokenizer) {
        const af_status st = af_decode_stream_next(&t->stream, id, &more, &n, err);
        if (st != AF_OK)
            return st;
    }
    const uint64_t before = t->text.len;
    af_buf_add(&t->text, more, n);
    if (t->text.bad)
        return af_fail_nomem(err, "text", before + n);
    const uint64_t stop = find_stop(t, before);
    if (stop < t->text.len) {
        show(t, stop, text, len);
        t->text.len = stop;
        t->text.data[stop] = '\0';
        t->stopped = true;
        return AF_OK;
    }
    show(t, t->text.len - held_back(t), text, len);
    return AF_OK;
}

void af_answer_text_end(af_answer_text *t, const char **text, uint64_t *len)
{
    show(t, t->text.len, text, len);
}
