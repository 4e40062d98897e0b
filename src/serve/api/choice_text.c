#define _GNU_SOURCE /* memmem */
/* choice_text.c - tokens to text, stop strings; see choice_text.h. */
#include "serve/api/choice_text.h"
#include "grammar/tool_call.h"

void af_choice_text_init(af_choice_text *c, const af_tokenizer *t, bool skip_special,
                         const char *const *stop, int stops)
{
    *c = (af_choice_text){.stop = stop, .stops = stops};
    af_decode_stream_init(&c->stream, t, skip_special);
}

void af_choice_text_clear(af_choice_text *c)
{
    if (c->stream.tokenizer)
        af_decode_stream_clear(&c->stream);
    af_buf_clear(&c->text);
    free(c->ids);
    *c = (af_choice_text){0};
}

static af_status keep_id(af_choice_text *c, int32_t id, af_error *err)
{
    if (c->count == c->cap) {
        const int64_t cap = c->cap ? c->cap * 2 : 64;
        int32_t *p = af_realloc(c->ids, (uint64_t)cap, sizeof *p);
        if (!p)
            return af_fail_nomem(err, "tokens", (uint64_t)cap * sizeof *p);
        c->ids = p;
        c->cap = cap;
    }
    c->ids[c->count++] = id;
    return AF_OK;
}

/* Cuts the text before the first stop string that begins after `from`. */
static void cut(af_choice_text *c, uint64_t from)
{
    uint64_t best = c->text.len;
    for (int i = 0; i < c->stops && c->text.len; i++) {
        const size_t n = strlen(c->stop[i]);
        const uint64_t start = from > n ? from - n : 0;
        const char *hit = memmem(c->text.data + start, c->text.len - start, c->stop[i], n);
        if (hit)
            best = AF_MIN(best, (uint64_t)(hit - c->text.data));
    }
    if (best == c->text.len)
        return;
    c->text.len = best;
    c->text.data[best] = '\0';
    c->stopped = true;
}

/* Bytes at the end that may begin a stop string. */
static uint64_t held_back(const af_choice_text *c)
{
    uint64_t most = 0;
    for (int i = 0; i < c->stops; i++) {
        const uint64_t n = strlen(c->stop[i]);
        for (uint64_t k = AF_MIN(n - 1, c->text.len); k > most; k--)
            if (memcmp(c->text.data + c->text.len - k, c->stop[i], k) == 0)
                most = k;
    }
    return most;
}

static af_status add_text(af_choice_text *c, const char *text, uint64_t n, af_error *err)
{
    const uint64_t before = c->text.len;
    af_buf_add(&c->text, text, n);
    if (c->text.bad)
        return af_fail_nomem(err, "text", before + n);
    cut(c, before);
    return AF_OK;
}

/* Special tokens are read for the calls that some of them mark; the others say nothing. */
static bool is_noise(const af_choice_text *c, int32_t id)
{
    const af_tokenizer *t = c->stream.tokenizer;
    return !c->stream.skip_special && af_tokenizer_is_special(t, id) &&
           !af_tool_marker(af_tokenizer_token(t, id, NULL));
}

af_status af_choice_text_add(af_choice_text *c, int32_t id, bool is_end, af_error *err)
{
    af_status st = AF_OK;
    const char *text = "";
    uint64_t n = 0;
    AF_TRY(keep_id(c, id, err));
    if (is_end || is_noise(c, id))
        return AF_OK;
    AF_TRY(af_decode_stream_next(&c->stream, id, &text, &n, err));
    AF_TRY(add_text(c, text, n, err));
    c->safe = c->stopped ? c->text.len : c->text.len - held_back(c);
done:
    return st;
}

af_status af_choice_text_finish(af_choice_text *c, af_error *err)
{
    af_status st = AF_OK;
    char *text = NULL;
    uint64_t n = 0;
    /* the incomplete characters of the last tokens, as U+FFFD */
    if (!c->stopped && c->stream.count > c->stream.prefix_ids) {
        AF_TRY(af_tokenizer_decode(c->stream.tokenizer, &text, &n, c->stream.ids, c->stream.count,
                                   c->stream.skip_special, err));
        if (n > c->stream.prefix_len)
            AF_TRY(add_text(c, text + c->stream.prefix_len, n - c->stream.prefix_len, err));
    }
    c->safe = c->text.len;
done:
    free(text);
    return st;
}
