/* eot.c - the tokens that end a turn of an assistant, found by showing the template a probe.
 *
 * After a known answer the rendering continues with blanks at most and then the end-of-turn token:
 * the first added token there. The answer stands once in the middle and once at the end, because
 * some templates close the last turn with another token. Without such a token it is the tokenizer's
 * eos. */
#define _GNU_SOURCE /* memmem */
#include "data/render/renderer.h"

#define PROBE "afinarprobe"

static bool blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

af_status af_renderer_add_eot(af_renderer *s, const char *text, uint64_t n, af_error *err)
{
    while (n && blank(text[n - 1]))
        n--;
    while (n && blank(*text)) {
        text++;
        n--;
    }
    for (int i = 0; i < s->eots; i++)
        if (strlen(s->eot[i]) == n && memcmp(s->eot[i], text, n) == 0)
            return AF_OK;
    if (n == 0 || s->eots == AF_EOT_MAX)
        return AF_OK;
    s->eot[s->eots] = af_strndup(text, n);
    if (!s->eot[s->eots])
        return af_fail_nomem(err, "an end-of-turn token", n);
    s->eots++;
    return AF_OK;
}

/* The first added token of `text`, when only blanks precede it. */
static af_status first_added(af_renderer *s, const char *text, uint64_t n, af_error *err)
{
    af_encoding *e = &s->encoding;
    const char *eos = af_tokenizer_eos_text(s->tokenizer);
    uint64_t skip = 0;
    while (skip < n && blank(text[skip]))
        skip++;
    if (eos && *eos && n - skip >= strlen(eos) && memcmp(text + skip, eos, strlen(eos)) == 0)
        return af_renderer_add_eot(s, eos, strlen(eos), err);
    const af_status st = af_tokenizer_encode(s->tokenizer, e, text, n, false, err);
    if (st != AF_OK)
        return st;
    for (int64_t i = 0; i < e->count; i++) {
        if (af_tokenizer_is_added(s->tokenizer, e->ids[i]))
            return e->start[i] <= skip
                       ? af_renderer_add_eot(s, text + e->start[i], e->end[i] - e->start[i], err)
                       : AF_OK;
        if (e->end[i] > skip)
            break; /* other text comes first */
    }
    return AF_OK;
}

static af_status probe(af_renderer *s, bool last, af_error *err)
{
    char *text = NULL;
    uint64_t len = 0;
    af_error ignored = {0};
    af_conversation t = {.kind = AF_CONVERSATION_CHAT};
    af_status st = AF_OK;
    t.messages = json_pack("[{s:s,s:s},{s:s,s:s},{s:s,s:s}]", "role", "user", "content", "a",
                           "role", "assistant", "content", PROBE, "role", "user", "content", "b");
    if (!t.messages)
        return af_fail_nomem(err, "a probe of the chat template", 0);
    /* for a template that requires other turns, eos is used */
    if (af_renderer_render(s, &text, &len, &t, last ? 2 : 3, false, false, NULL, &ignored) ==
        AF_OK) {
        const char *at = memmem(text, len, PROBE, strlen(PROBE));
        if (at) {
            at += strlen(PROBE);
            st = first_added(s, at, len - (uint64_t)(at - text), err);
        }
    } else if (ignored.code == AF_ENOMEM) {
        st = af_fail(err, AF_ENOMEM, "%s", ignored.msg);
    }
    free(text);
    af_conversation_clear(&t);
    return st;
}

af_status af_renderer_find_eot(af_renderer *s, af_error *err)
{
    const char *eos = af_tokenizer_eos_text(s->tokenizer);
    af_status st = AF_OK;
    if (s->chat) {
        AF_TRY(probe(s, false, err));
        AF_TRY(probe(s, true, err));
        /* closes a turn that calls a built-in tool, where the template knows it */
        if (s->eots && memmem(af_template_source(s->chat, NULL),
                              strlen(af_template_source(s->chat, NULL)), "<|eom_id|>", 10))
            AF_TRY(af_renderer_add_eot(s, "<|eom_id|>", 10, err));
    }
    if (s->eots == 0 && eos && *eos)
        AF_TRY(af_renderer_add_eot(s, eos, strlen(eos), err));
done:
    return st;
}
