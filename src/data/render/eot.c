/* eot.c - the tokens that end a turn of an assistant, found by showing the template a probe.
 *
 * After a known answer the rendering continues with blanks at most and then the end-of-turn token:
 * the first added token there. The answer stands once in the middle and once at the end, because
 * some templates close the last turn with another token. Without such a token it is the tokenizer's
 * eos. A turn that calls a tool may end with another one: the last token of a probe's. A template
 * that writes nothing after the last answer ends answers with the mark of the next turn. */
#define _GNU_SOURCE /* memmem */
#include "data/render/renderer.h"
#include "format/chat/chat_template.h"

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

static bool begins_with_eos(const af_renderer *s, const char *text, uint64_t n)
{
    const char *eos = af_tokenizer_eos_text(s->tokenizer);
    return eos && *eos && n >= strlen(eos) && memcmp(text, eos, strlen(eos)) == 0;
}

/* The first added token of `text`, when only blanks precede it; eos, when that closes the turn
 * right after it (Cohere). */
static af_status first_added(af_renderer *s, const char *text, uint64_t n, bool middle,
                             af_error *err)
{
    af_encoding *e = &s->encoding;
    const char *eos = af_tokenizer_eos_text(s->tokenizer);
    uint64_t skip = 0;
    while (skip < n && blank(text[skip]))
        skip++;
    if (begins_with_eos(s, text + skip, n - skip))
        return af_renderer_add_eot(s, eos, strlen(eos), err);
    const af_status st = af_tokenizer_encode(s->tokenizer, e, text, n, false, err);
    if (st != AF_OK)
        return st;
    for (int64_t i = 0; i < e->count; i++) {
        if (af_tokenizer_is_added(s->tokenizer, e->ids[i])) {
            if (e->start[i] > skip)
                return AF_OK;
            if (middle && begins_with_eos(s, text + e->end[i], n - e->end[i]))
                return af_renderer_add_eot(s, eos, strlen(eos), err);
            return af_renderer_add_eot(s, text + e->start[i], e->end[i] - e->start[i], err);
        }
        if (e->end[i] > skip)
            break; /* other text comes first */
    }
    return AF_OK;
}

/* The rendering of the first n messages after the last PROBE in it; NULL where the template
 * requires other turns or does not show it. *text is the caller's. */
static af_status after_probe(af_renderer *s, const json_t *messages, size_t n, char **text,
                             const char **after, uint64_t *len, af_error *err)
{
    af_error ignored = {0};
    const af_conversation t = {.kind = AF_CONVERSATION_CHAT, .messages = (json_t *)messages};
    *after = NULL;
    if (!messages)
        return af_fail_nomem(err, "a probe of the chat template", 0);
    if (af_renderer_render(s, text, len, &t, n, false, false, NULL, &ignored) != AF_OK)
        return ignored.code == AF_ENOMEM ? af_fail(err, AF_ENOMEM, "%s", ignored.msg) : AF_OK;
    for (const char *at = *text;
         (at = memmem(at, *len - (uint64_t)(at - *text), PROBE, strlen(PROBE)));)
        *after = at += strlen(PROBE);
    *len -= *after ? (uint64_t)(*after - *text) : 0;
    return AF_OK;
}

static bool all_blank(const char *s, uint64_t n)
{
    while (n && blank(s[n - 1]))
        n--;
    return n == 0;
}

/* *open: the template writes nothing after a last answer. */
static af_status probe_answers(af_renderer *s, bool *open, af_error *err)
{
    json_t *m = json_pack("[{s:s,s:s},{s:s,s:s},{s:s,s:s}]", "role", "user", "content", "a", "role",
                          "assistant", "content", PROBE, "role", "user", "content", "b");
    af_status st = AF_OK;
    const char *after;
    char *text = NULL;
    uint64_t len = 0;
    for (size_t n = 3; n >= 2; n--) {
        AF_TRY(after_probe(s, m, n, &text, &after, &len, err));
        if (after)
            AF_TRY(first_added(s, after, len, n == 3, err));
        *open = n == 2 && after && all_blank(after, len);
        free(text);
        text = NULL;
    }
done:
    free(text);
    json_decref(m);
    return st;
}

/* The last token of a text, when it is an added one. */
static af_status last_added(af_renderer *s, const char *text, uint64_t n, af_error *err)
{
    af_encoding *e = &s->encoding;
    while (n && blank(text[n - 1]))
        n--;
    const af_status st = af_tokenizer_encode(s->tokenizer, e, text, n, false, err);
    const int64_t last = e->count - 1;
    if (st != AF_OK || last < 0 || !af_tokenizer_is_added(s->tokenizer, e->ids[last]))
        return st;
    return af_renderer_add_eot(s, text + e->start[last], e->end[last] - e->start[last], err);
}

static bool has_eot(const af_renderer *s, const char *text, uint64_t n)
{
    for (int i = 0; i < s->eots; i++)
        if (memmem(text, n, s->eot[i], strlen(s->eot[i])))
            return true;
    return false;
}

static af_status probe_calls(af_renderer *s, bool open, af_error *err)
{
    json_t *m = json_pack("[{s:s,s:s},{s:s,s:s,s:[{s:s,s:s,s:{s:s,s:{s:s}}}]},{s:s,s:s,s:s,s:s}]",
                          "role", "user", "content", "a", "role", "assistant", "content", "",
                          "tool_calls", "id", "probe0001", "type", "function", "function", "name",
                          "probe", "arguments", "a", PROBE, "role", "tool", "name", "probe",
                          "tool_call_id", "probe0001", "content", "b");
    af_status st = AF_OK;
    const char *last, *middle;
    char *a = NULL, *b = NULL;
    uint64_t n = 0, len = 0;
    const int before = s->eots;
    AF_TRY(after_probe(s, m, 2, &a, &last, &n, err));
    if (last && !open && !has_eot(s, last, n))
        AF_TRY(last_added(s, last, n, err));
    if (!last || !open)
        goto done;
    AF_TRY(after_probe(s, m, 3, &b, &middle, &len, err));
    if (middle && len > n && memcmp(middle, last, n) == 0)
        AF_TRY(first_added(s, middle + n, len - n, true, err));
    s->call_end = s->eots > before ? s->eot[before] : NULL;
done:
    free(a);
    free(b);
    json_decref(m);
    return st;
}

af_status af_renderer_find_eot(af_renderer *s, af_error *err)
{
    const char *eos = af_tokenizer_eos_text(s->tokenizer);
    af_status st = AF_OK;
    bool open = false;
    if (s->chat) {
        const int before = s->eots;
        AF_TRY(af_template_form(s->chat, &s->form, err));
        AF_TRY(probe_answers(s, &open, err));
        s->answer_end = open && s->eots > before ? s->eot[before] : NULL;
        if (s->eots)
            AF_TRY(probe_calls(s, s->answer_end != NULL, err));
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
