/* pair_row.c - see pair_row.h. */
#include "data/store/pair_row.h"

#include <stdlib.h>

enum { HEAD_PROMPT, HEAD_FIRST, HEAD_SECOND, HEAD_FLAGS, HEAD_MARGIN };
enum { FLAG_LABEL = 1 };

static void put_tokens(uint32_t **at, const int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        *(*at)++ = (uint32_t)ids[i];
}

af_status af_pair_writer_add(af_token_writer *w, const af_pair_row *r, int source, int64_t line,
                             af_error *err)
{
    const int64_t tokens = r->prompt_len + r->first_len + r->second_len;
    uint32_t *words = af_calloc((uint64_t)tokens + AF_PAIR_HEADER, sizeof *words), *at = words;
    if (!words)
        return af_fail_nomem(err, "a record", (uint64_t)tokens * sizeof *words);
    at[HEAD_PROMPT] = (uint32_t)r->prompt_len;
    at[HEAD_FIRST] = (uint32_t)r->first_len;
    at[HEAD_SECOND] = (uint32_t)r->second_len;
    at[HEAD_FLAGS] = r->label ? FLAG_LABEL : 0;
    memcpy(&at[HEAD_MARGIN], &r->margin, sizeof r->margin);
    at += AF_PAIR_HEADER;
    put_tokens(&at, r->prompt, r->prompt_len);
    put_tokens(&at, r->first, r->first_len);
    put_tokens(&at, r->second, r->second_len);
    const af_status st = af_token_writer_add_words(w, words, tokens + AF_PAIR_HEADER,
                                                   r->first_len + r->second_len, source, line, err);
    free(words);
    return st;
}

af_status af_pair_row_read(af_pair_row *out, const af_token_store *s, int64_t i, af_error *err)
{
    const uint32_t *w = af_token_words(s, i);
    const int64_t n = s->index[i].count;
    if (n < AF_PAIR_HEADER ||
        (int64_t)w[HEAD_PROMPT] + w[HEAD_FIRST] + w[HEAD_SECOND] != n - AF_PAIR_HEADER)
        return af_fail(err, AF_EFORMAT, "record %" PRId64 " of the token store is not a pair", i);
    const int32_t *ids = (const int32_t *)w + AF_PAIR_HEADER;
    *out = (af_pair_row){.prompt = ids,
                         .first = ids + w[HEAD_PROMPT],
                         .second = ids + w[HEAD_PROMPT] + w[HEAD_FIRST],
                         .prompt_len = w[HEAD_PROMPT],
                         .first_len = w[HEAD_FIRST],
                         .second_len = w[HEAD_SECOND],
                         .label = w[HEAD_FLAGS] & FLAG_LABEL};
    memcpy(&out->margin, &w[HEAD_MARGIN], sizeof out->margin);
    return AF_OK;
}

int64_t af_pair_cut(int64_t prompt_len, int64_t answer_len, int64_t limit)
{
    return limit > 0 ? AF_MAX(AF_MIN(answer_len, limit - prompt_len), INT64_C(0)) : answer_len;
}

int64_t af_kl_partner(int64_t i, int64_t n, int64_t batch)
{
    const int64_t first = i / batch * batch, last = AF_MIN(first + batch, n) - 1;
    return i > first ? i - 1 : last;
}
