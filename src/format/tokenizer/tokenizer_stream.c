/* tokenizer_stream.c - decoding token by token.
 *
 * A token's text can depend on those before it (a blank is stripped at the start, a character is
 * spread over tokens), so a short window of ids is decoded again: its text without the newest id is
 * the prefix, and what the newest id adds is returned once it does not end in U+FFFD. */
#include "format/tokenizer/tokenizer.h"

void af_decode_stream_init(af_decode_stream *s, const af_tokenizer *t, bool skip_special)
{
    if (s)
        *s = (af_decode_stream){.tokenizer = t, .skip_special = skip_special};
}

void af_decode_stream_clear(af_decode_stream *s)
{
    if (!s)
        return;
    free(s->ids);
    free(s->prefix);
    free(s->text);
    *s = (af_decode_stream){0};
}

static bool ends_open(const char *s, uint64_t n)
{
    return n >= 3 && memcmp(s + n - 3, "\xef\xbf\xbd", 3) == 0;
}

static af_status decode(const af_decode_stream *s, int64_t from, char **text, uint64_t *len,
                        af_error *err)
{
    return af_tokenizer_decode(s->tokenizer, text, len, s->ids + from, s->count - from,
                               s->skip_special, err);
}

static af_status push(af_decode_stream *s, int32_t id, af_error *err)
{
    if (s->count >= s->cap) {
        const int64_t cap = s->cap * 2 + 16;
        int32_t *grown = af_realloc(s->ids, (uint64_t)cap, sizeof *grown);
        if (!grown)
            return af_fail_nomem(err, "a decode stream", (uint64_t)cap * sizeof *grown);
        s->ids = grown;
        s->cap = cap;
    }
    s->ids[s->count++] = id;
    return AF_OK;
}

/* With nothing returned yet, the ids so far may have become a prefix. */
static af_status settle_prefix(af_decode_stream *s, af_error *err)
{
    af_status st = AF_OK;
    char *text = NULL;
    uint64_t len;
    if (s->prefix_len > 0 || s->count == 0)
        return AF_OK;
    AF_TRY(decode(s, 0, &text, &len, err));
    if (!ends_open(text, len)) {
        free(s->prefix);
        s->prefix = text;
        s->prefix_len = len;
        s->prefix_ids = s->count;
        text = NULL;
    }
done:
    free(text);
    return st;
}

af_status af_decode_stream_next(af_decode_stream *s, int32_t id, const char **text, uint64_t *len,
                                af_error *err)
{
    AF_NEED(err, s, text, len);
    af_status st = AF_OK;
    char *all = NULL, *prefix = NULL;
    uint64_t n, prefix_n;
    *text = "";
    *len = 0;
    AF_TRY(settle_prefix(s, err));
    AF_TRY(push(s, id, err));
    AF_TRY(decode(s, 0, &all, &n, err));
    if (n <= s->prefix_len || ends_open(all, n))
        goto done;
    if (s->prefix_len && memcmp(all, s->prefix, s->prefix_len) != 0)
        goto done; /* the decoder has second thoughts about what is out: never take it back */
    AF_TRY(decode(s, s->prefix_ids, &prefix, &prefix_n, err));
    memmove(all, all + s->prefix_len, n - s->prefix_len + 1);
    *len = n - s->prefix_len;
    free(s->text);
    *text = s->text = all;
    all = NULL;
    const int64_t left = s->count - s->prefix_ids;
    memmove(s->ids, s->ids + s->prefix_ids, (size_t)left * sizeof *s->ids);
    s->count = s->prefix_ids = left;
    free(s->prefix);
    s->prefix = prefix;
    s->prefix_len = prefix_n;
    prefix = NULL;
done:
    free(all);
    free(prefix);
    return st;
}
