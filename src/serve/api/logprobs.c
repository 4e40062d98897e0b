#define _GNU_SOURCE /* memmem */
/* logprobs.c - log-probabilities as the two endpoints write them. */
#include "serve/api/generation.h"

#include <math.h>

/* "token": text, "bytes": [...]: a token may be a part of a character. */
static void out_token(af_buf *b, const af_tokenizer *t, int32_t id, double logprob, af_buf *bytes)
{
    if (af_tokenizer_token_bytes(t, id, bytes, NULL) != AF_OK)
        bytes->len = 0;
    const char *s = bytes->data ? bytes->data : "";
    af_buf_str(b, "\"token\":");
    af_out_string(b, s, bytes->len);
    af_buf_str(b, ",\"bytes\":[");
    for (uint64_t i = 0; i < bytes->len; i++)
        af_buf_printf(b, i ? ",%d" : "%d", (uint8_t)s[i]);
    af_buf_str(b, "],\"logprob\":");
    af_out_logprob(b, logprob);
    af_buf_printf(b, ",\"id\":%d", (int)id);
}

static void add_chat(af_choice *c, const af_decoded *t, af_buf *bytes)
{
    const af_tokenizer *k = c->of->api->tokenizer;
    af_buf *b = &c->logprobs.content;
    af_buf_str(b, c->logprobs.tokens ? ",{" : "{");
    out_token(b, k, t->id, t->logprob, bytes);
    af_buf_str(b, ",\"top_logprobs\":[");
    for (int i = 0; i < t->tops; i++) {
        af_buf_str(b, i ? ",{" : "{");
        out_token(b, k, t->top[i].id, t->top[i].logprob, bytes);
        af_buf_char(b, '}');
    }
    af_buf_str(b, "]}");
}

/* The text of a token; bytes in *bytes. */
static void out_text(af_buf *b, const af_tokenizer *t, int32_t id, af_buf *bytes)
{
    if (af_tokenizer_token_bytes(t, id, bytes, NULL) != AF_OK)
        bytes->len = 0;
    af_out_string(b, bytes->data ? bytes->data : "", bytes->len);
}

/* ,"text":logprob unless the object that begins at `from` has that text: tokens that are parts of
 * characters look alike, and the first one is the most likely. */
static void out_member(af_buf *b, uint64_t from, const af_tokenizer *t, af_token_logprob l,
                       af_buf *bytes)
{
    af_buf name = {0};
    af_buf_char(&name, ',');
    out_text(&name, t, l.id, bytes);
    af_buf_char(&name, ':');
    b->bad |= name.bad;
    if (!b->bad && !memmem(b->data + from, b->len - from, name.data, name.len)) {
        af_buf_add(b, name.data, name.len);
        af_out_logprob(b, l.logprob);
    }
    af_buf_clear(&name);
}

/* {"text": logprob} of the most likely tokens and of the one that was chosen. */
static void out_tops(af_buf *b, const af_tokenizer *k, const af_decoded *t, af_buf *bytes)
{
    const uint64_t from = b->len;
    for (int i = 0; i < t->tops; i++)
        out_member(b, from, k, t->top[i], bytes);
    out_member(b, from, k, (af_token_logprob){t->id, t->logprob}, bytes);
    if (!b->bad)
        b->data[from] = '{'; /* instead of the first comma */
    af_buf_char(b, '}');
}

static void add_completion(af_choice *c, int32_t id, const af_decoded *t, af_buf *bytes)
{
    const af_tokenizer *k = c->of->api->tokenizer;
    af_logprob_text *l = &c->logprobs;
    const char *comma = l->tokens ? "," : "";
    af_buf_str(&l->logprob, comma);
    af_buf_str(&l->top, comma);
    af_buf_printf(&l->offset, "%s%" PRId64, comma, c->characters);
    if (t)
        af_out_logprob(&l->logprob, t->logprob);
    else
        af_buf_str(&l->logprob, "null"); /* nothing is before the first token */
    if (t && t->tops)
        out_tops(&l->top, k, t, bytes);
    else
        af_buf_str(&l->top, "null");
    af_buf_str(&l->token, comma);
    out_text(&l->token, k, id, bytes);
    for (uint64_t i = 0; i < bytes->len; i++)
        c->characters += ((uint8_t)bytes->data[i] & 0xc0) != 0x80;
    l->tokens++;
}

void af_logprobs_begin(af_choice *c)
{
    af_buf bytes = {0};
    const af_generation *g = c->of;
    if (g->echo && g->logprobs && !c->echoed)
        add_completion(c, g->prompt[c->prompt].ids[0], NULL, &bytes);
    c->echoed = true;
    af_buf_clear(&bytes);
}

void af_logprobs_add(af_choice *c, const af_decoded *t)
{
    af_buf bytes = {0};
    const af_generation *g = c->of;
    if (g->chat) {
        add_chat(c, t, &bytes);
        c->logprobs.tokens++;
    } else {
        af_logprobs_begin(c);
        add_completion(c, t->id, t, &bytes);
    }
    af_buf_clear(&bytes);
}

static void out_list(af_buf *b, const char *name, const af_buf *list)
{
    af_buf_printf(b, "\"%s\":[", name);
    af_buf_add(b, list->data ? list->data : "", list->len);
    af_buf_char(b, ']');
    b->bad = b->bad || list->bad;
}

void af_logprobs_out(af_buf *b, af_choice *c)
{
    af_logprob_text *l = &c->logprobs;
    if (!c->of->logprobs) {
        af_buf_str(b, "null");
        return;
    }
    af_buf_char(b, '{');
    if (c->of->chat) {
        out_list(b, "content", &l->content);
        af_buf_str(b, ",\"refusal\":null");
    } else {
        out_list(b, "tokens", &l->token);
        af_buf_char(b, ',');
        out_list(b, "token_logprobs", &l->logprob);
        af_buf_char(b, ',');
        out_list(b, "top_logprobs", &l->top);
        af_buf_char(b, ',');
        out_list(b, "text_offset", &l->offset);
    }
    af_buf_char(b, '}');
    l->content.len = l->token.len = l->logprob.len = l->top.len = l->offset.len = 0;
    l->tokens = 0;
}

void af_logprobs_clear(af_logprob_text *t)
{
    af_buf_clear(&t->content);
    af_buf_clear(&t->token);
    af_buf_clear(&t->logprob);
    af_buf_clear(&t->top);
    af_buf_clear(&t->offset);
}
