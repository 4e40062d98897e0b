/* mask_start.c - where an answer begins in the rendering of its row.
 *
 * It begins where the prompt, the turns before it with the generation prompt, ends, if the row has
 * that as a prefix. Where the row departs from it inside the generation prompt, the answer begins.
 * Where it departs before that, the generation prompt comes right before the answer; in a row that
 * ends with the answer, the text of the prompt then replaces what is before it. An answer after an
 * answer may continue its turn. */
#define _GNU_SOURCE /* memmem */
#include "data/render/mask_work.h"

/* Where the whole would differ with another text in place of the answer's, or of its calls, too. */
static af_status other_text(const af_mask_work *w, size_t i, bool calls, uint64_t *at)
{
    const json_t *m = af_mask_message(w, i);
    const char *content = json_string_value(json_object_get(m, "content"));
    char *text = NULL;
    uint64_t len = 0;
    json_t *answer = json_pack("{s:s,s:s,s:O*}", "role", "assistant", "content",
                               content && *content == '$' ? "%" : "$", "tool_calls",
                               calls ? NULL : json_object_get(m, "tool_calls"));
    const af_status st = af_other_message(w, i, answer, &text, &len);
    if (st == AF_OK)
        *at = af_common_prefix(w->out->text, w->out->len, text, len);
    free(text);
    return st;
}

af_status af_other_answer(const af_mask_work *w, size_t i, uint64_t *at)
{
    return other_text(w, i, false, at);
}

/* The end of the first end-of-turn token in [from, to), or from. */
static uint64_t next_eot(const af_mask_work *w, uint64_t from, uint64_t to)
{
    const char *text = w->out->text, *first = NULL;
    uint64_t end = from;
    for (int k = 0; k < w->s->eots && from < to; k++) {
        const uint64_t n = strlen(w->s->eot[k]);
        const char *at = memmem(text + from, to - from, w->s->eot[k], n);
        if (at && (!first || at < first)) {
            first = at;
            end = (uint64_t)(at - text) + n;
        }
    }
    return end;
}

/* Where the row differs with another message i: bytes before and after that are the same. */
static af_status differs(const af_mask_work *w, size_t i, bool bare, uint64_t *head, uint64_t *tail)
{
    af_error ignored = {0};
    af_mask_work quiet = *w;
    char *text = NULL;
    uint64_t len = 0;
    const json_t *old = af_mask_message(w, i);
    const char *content = json_string_value(json_object_get(old, "content"));
    json_t *m = bare ? json_pack("{s:O}", "role", json_object_get(old, "role"))
                     : json_copy((json_t *)(uintptr_t)old);
    json_object_set_new(m, "content", json_string(content && *content == '$' ? "%" : "$"));
    quiet.err = &ignored; /* a template may refuse another text */
    const af_status st = af_other_message(&quiet, i, m, &text, &len);
    *head = *tail = 0;
    if (st == AF_OK) {
        const uint64_t all = w->out->len;
        *head = af_common_prefix(w->out->text, all, text, len);
        while (*tail < AF_MIN(all, len) - *head &&
               w->out->text[all - *tail - 1] == text[len - *tail - 1])
            ++*tail;
    }
    free(text);
    return st == AF_ENOMEM ? af_fail(w->err, st, "%s", ignored.msg) : AF_OK;
}

af_status af_content_place(const af_mask_work *w, size_t i, const char *c, uint64_t n, af_span *out)
{
    af_status st = AF_OK;
    uint64_t head, tail, next = w->out->len;
    AF_TRY(differs(w, i, false, &head, &tail));
    const uint64_t all = w->out->len, from = head - AF_MIN(head, n);
    const uint64_t at = af_find_last(w->out->text, from, AF_MIN(all - tail + n, all), c, n);
    if (at == UINT64_MAX)
        return AF_OK;
    if (i + 1 < w->messages)
        AF_TRY(differs(w, i + 1, true, &next, &tail));
    *out = (af_span){at, next_eot(w, at + n, next)};
done:
    return st;
}

/* Texts of the first n messages: with the generation prompt, without it, with another turn. */
typedef struct prompt_texts {
    af_prefix_text prompt, turns, next;
} prompt_texts;

static void prompt_texts_clear(prompt_texts *p)
{
    af_prefix_text_clear(&p->prompt);
    af_prefix_text_clear(&p->turns);
    af_prefix_text_clear(&p->next);
}

/* All of them from the same message on. */
static af_status prompt_texts_render(const af_mask_work *w, size_t n, prompt_texts *p)
{
    af_status st = AF_OK;
    af_error ignored = {0};
    af_mask_work quiet = *w;
    quiet.err = &ignored;
    for (bool again = false;; again = true) {
        AF_TRY(af_prefix_render(w, n, AF_PREFIX_PROMPT, &p->prompt));
        AF_TRY(af_prefix_render(w, n, AF_PREFIX_TURNS, &p->turns));
        if (af_prefix_render(&quiet, n, AF_PREFIX_NEXT, &p->next) != AF_OK)
            p->next = (af_prefix_text){.here = p->turns.here};
        const uint64_t here = p->prompt.here;
        if (again || (here == p->turns.here && here == p->next.here))
            return AF_OK;
        prompt_texts_clear(p); /* windows turned out to be useless meanwhile */
    }
done:
    return st;
}

/* Where the generation prompt begins: what would not be there with another turn instead of it. */
static uint64_t header_start(const prompt_texts *p)
{
    const uint64_t at =
        p->next.text ? af_common_prefix(p->prompt.text, p->prompt.len, p->next.text, p->next.len)
                     : p->turns.len; /* or the template refuses a second turn of the user */
    return p->prompt.there + at - AF_MIN(at, p->prompt.here);
}

/* The generation prompt ends at `start` of the whole, but the turns before it are not those of the
 * prompt, not even without their blanks. A row that ends with the answer gets the prompt's. */
static af_status take_prompt(const af_mask_work *w, size_t i, const prompt_texts *p,
                             af_turn_span *out)
{
    af_loss_spans *o = w->out;
    const af_prefix_text *t = &p->prompt;
    if (out->start >= t->there && af_same_words(t->text + t->here, t->len - t->here,
                                                o->text + t->there, out->start - t->there))
        return AF_OK;
    const uint64_t answer = o->len - out->start;
    const char *from = o->text + out->start;
    out->start = UINT64_MAX;
    if (i + 1 < w->messages || o->other)
        return AF_OK;
    const uint64_t before = t->there + t->len - t->here;
    o->other = af_calloc(before + answer + 1, 1);
    if (!o->other)
        return af_fail_nomem(w->err, "a conversation", before + answer);
    memcpy(o->other, o->text, t->there);
    memcpy(o->other + t->there, t->text + t->here, t->len - t->here);
    memcpy(o->other + before, from, answer);
    o->other_len = before + answer;
    return AF_OK;
}

/* Whether the template has no generation prompt and the text of the turns has an end-of-turn token
 * at `at`. In the text of the whole conversation the answer stands before that token. */
static bool closes(const af_mask_work *w, const prompt_texts *p, uint64_t at)
{
    const af_prefix_text *t = &p->prompt;
    const uint64_t from = at >= t->there ? t->here + at - t->there : t->len;
    af_span eot;
    return t->len == p->turns.len && af_find_eot(w->s, t->text, from, t->len, &eot) &&
           eot.begin == from && strspn(t->text + eot.end, " \t\r\n") == t->len - eot.end;
}

/* The start of message i where the whole has not all of its prompt. It departs inside the
 * generation prompt (one that opens a thought, before an answer without one): there. Or before
 * that, in a turn that is rendered otherwise when it is the last: the generation prompt comes
 * right before the answer. Or the answer continues the one before it, or a tool's, in the same turn
 * (Gemma 4): that is exact. UINT64_MAX: none of these. */
static af_status inexact_start(const af_mask_work *w, size_t i, uint64_t same, af_turn_span *out,
                               bool *exact)
{
    prompt_texts p = {0};
    uint64_t answer = 0;
    af_status st = AF_OK;
    const char *text = w->out->text;
    out->start = UINT64_MAX;
    AF_TRY(prompt_texts_render(w, i, &p));
    if (same > header_start(&p)) {
        out->start = same;
        out->departs = true;
        goto done;
    }
    AF_TRY(af_other_answer(w, i, &answer));
    if (answer > same && json_object_get(af_mask_message(w, i), "tool_calls")) {
        uint64_t call = 0; /* before the text, in templates of Gemma 4 */
        af_error ignored = {0};
        af_mask_work quiet = *w;
        quiet.err = &ignored; /* a template may refuse results without calls */
        if (other_text(&quiet, i, true, &call) == AF_OK && closes(w, &p, call))
            answer = call;
    }
    if (answer <= same &&
        (closes(w, &p, answer) || strcmp(af_mask_role(w, i - 1), "assistant") == 0)) {
        out->start = answer;
        *exact = true;
        goto done;
    }
    if (p.turns.len >= p.prompt.len || memcmp(p.prompt.text, p.turns.text, p.turns.len) != 0)
        goto done;
    const uint64_t n = p.prompt.len - p.turns.len;
    const uint64_t at = af_find_last(text, 0, answer, p.prompt.text + p.turns.len, n);
    if (at == UINT64_MAX || at + n <= same)
        goto done;
    out->start = at + n;
    AF_TRY(take_prompt(w, i, &p, out));
done:
    prompt_texts_clear(&p);
    return st;
}

/* *exact: the prompt of message i is a prefix of the whole. */
af_status af_turn_start(const af_mask_work *w, size_t i, af_turn_span *out, bool *exact)
{
    af_prefix prompt = {0};
    *exact = true;
    if (i == 0) /* there is no prompt before a first message */
        return af_other_answer(w, 0, &out->start);
    const af_status st = af_prefix_compare(w, i, AF_PREFIX_PROMPT, 0, &prompt);
    out->start = prompt.end;
    out->same = prompt.at;
    *exact = prompt.at == prompt.end;
    return st == AF_OK && !*exact ? inexact_start(w, i, prompt.at, out, exact) : st;
}
