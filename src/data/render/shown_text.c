/* shown_text.c - what a rendering shows of an assistant's message.
 *
 * Templates of models that think leave the thoughts of earlier answers out, and some drop texts
 * that they do not know. Texts are compared without their blanks: templates trim and indent. */
#define _GNU_SOURCE /* memmem */
#include "base/buf.h"
#include "data/render/mask_work.h"

#define PLACE "afinarplace" /* an answer that no template changes */

enum { UNREAD_TRIES = 4 }; /* messages of a record that are rendered to see if they are read */

static const char *const fields[] = {"content", "reasoning_content", "thinking", "reasoning"};

static void add_dense(af_buf *b, const char *text, uint64_t len)
{
    for (uint64_t i = 0; i < len; i++)
        if (!strchr(" \t\r\n", text[i]) || !text[i])
            af_buf_char(b, text[i]);
}

bool af_same_words(const char *a, uint64_t n, const char *b, uint64_t m)
{
    af_buf x = {0}, y = {0};
    add_dense(&x, a, n);
    add_dense(&y, b, m);
    const bool same = x.len == y.len && (!x.len || memcmp(x.data, y.data, x.len) == 0);
    af_buf_clear(&x);
    af_buf_clear(&y);
    return same;
}

/* How often `text` has the string, blanks of both left out. */
static int64_t times_shown(const af_buf *dense, const char *string, uint64_t len)
{
    af_buf b = {0};
    int64_t n = 0;
    add_dense(&b, string, len);
    const char *at = dense->data, *end = dense->data + dense->len;
    while (b.len && !b.bad && (at = memmem(at, (uint64_t)(end - at), b.data, b.len))) {
        at += b.len;
        n++;
    }
    af_buf_clear(&b);
    return n;
}

static bool blank(const char *s, uint64_t n)
{
    while (n && strchr(" \t\r\n", s[n - 1]) && s[n - 1])
        n--;
    return n == 0;
}

/* The texts of the message that have something in them. */
static const char *field_text(const json_t *message, size_t i, uint64_t *len)
{
    const json_t *v = json_object_get(message, fields[i]);
    *len = json_string_length(v);
    return json_is_string(v) && !blank(json_string_value(v), *len) ? json_string_value(v) : NULL;
}

const char *af_answer_missing(const json_t *message, const char *text, uint64_t len)
{
    af_buf dense = {0};
    const char *missing = NULL;
    for (size_t i = 0; i < AF_LEN(fields) && !missing; i++) {
        uint64_t n;
        const char *s = field_text(message, i, &n);
        if (!s || memmem(text, len, s, n))
            continue;
        if (!dense.len)
            add_dense(&dense, text, len);
        if (!dense.bad && (!dense.len || !times_shown(&dense, s, n)))
            missing = fields[i];
    }
    af_buf_clear(&dense);
    return missing;
}

static int64_t texts_shown(const json_t *message, const char *text, uint64_t len)
{
    af_buf dense = {0};
    int64_t shown = 0;
    add_dense(&dense, text, len);
    for (size_t i = 0; i < AF_LEN(fields) && dense.len; i++) {
        uint64_t n;
        const char *s = field_text(message, i, &n);
        shown += s ? times_shown(&dense, s, n) : 0;
    }
    af_buf_clear(&dense);
    return shown;
}

/* How many bytes of the prefix and the whole up to `end` are the same. */
static uint64_t common(const af_mask_work *w, const af_prefix_text *p, uint64_t end)
{
    return af_common_prefix(w->out->text + p->there, end - AF_MIN(end, p->there), p->text + p->here,
                            p->len - p->here);
}

af_status af_answer_lost(const af_mask_work *w, size_t i, af_span shown, bool *lost)
{
    const json_t *m = af_mask_message(w, i);
    const char *here = w->out->text + shown.begin;
    const uint64_t len = shown.end - shown.begin;
    bool thinks = false;
    *lost = false;
    for (size_t k = 1; k < AF_LEN(fields); k++) {
        uint64_t n;
        thinks |= field_text(m, k, &n) != NULL;
    }
    if (!thinks && !af_answer_missing(m, here, len))
        return AF_OK;
    af_error ignored = {0};
    af_mask_work quiet = *w;
    quiet.err = &ignored;
    af_prefix_text own = {0};
    af_status st = af_prefix_render(&quiet, i + 1, AF_PREFIX_TURNS, &own);
    const char *missing =
        st == AF_OK ? af_answer_missing(m, own.text + own.here, own.len - own.here) : NULL;
    if (missing && strcmp(missing, "content") == 0) {
        af_prefix_text_clear(&own);
        st = af_answer_render(&quiet, i + 1, &own.text, &own.len, NULL);
    }
    if (st == AF_OK) {
        const uint64_t same = own.here + common(w, &own, shown.begin);
        *lost = texts_shown(m, own.text + same, own.len - same) > texts_shown(m, here, len);
    }
    af_prefix_text_clear(&own);
    return st == AF_ENOMEM ? af_fail(w->err, st, "%s", ignored.msg) : AF_OK;
}

af_status af_other_message(const af_mask_work *w, size_t i, json_t *message, char **text,
                           uint64_t *len)
{
    af_conversation other = *w->t;
    af_status st = af_mask_renders(w, i);
    other.messages = json_copy(w->t->messages);
    if (st == AF_OK)
        st = message && other.messages && !json_array_set(other.messages, i, message)
                 ? af_renderer_render(w->s, text, len, &other, w->messages, false, false, NULL,
                                      w->err)
                 : af_fail_nomem(w->err, "a conversation", w->messages);
    json_decref(message);
    json_decref(other.messages);
    return st;
}

/* Whether the row is the same with another content of message i. */
static af_status is_unread(const af_mask_work *w, size_t i, bool *unread)
{
    char *text = NULL;
    uint64_t len = 0;
    json_t *m = json_copy((json_t *)af_mask_message(w, i));
    af_error ignored = {0};
    af_mask_work quiet = *w;
    quiet.err = &ignored;
    json_object_set_new(m, "content", json_string(PLACE));
    const af_status st = af_other_message(&quiet, i, m, &text, &len);
    *unread = st == AF_OK && len <= w->out->len && !memmem(text, len, PLACE, strlen(PLACE)) &&
              memcmp(text, w->out->text, len) == 0;
    free(text);
    return st == AF_ENOMEM ? af_fail(w->err, st, "%s", ignored.msg) : AF_OK;
}

af_status af_message_unshown(const af_mask_work *w, size_t *out)
{
    const char *at = w->out->text, *end = at + w->out->len, *found;
    int tries = UNREAD_TRIES;
    *out = 0;
    for (size_t i = 0; i < w->messages && tries > 0; i++) {
        uint64_t n;
        const char *s = field_text(af_mask_message(w, i), 0, &n);
        if (!s || strcmp(af_mask_role(w, i), "assistant") == 0)
            continue;
        found = memmem(at, (uint64_t)(end - at), s, n); /* most come in order */
        if (!found && !memmem(w->out->text, w->out->len, s, n)) {
            bool unread = false;
            const af_status st = is_unread(w, i, &unread);
            if (st != AF_OK || unread) {
                *out = unread ? i + 1 : 0;
                return st;
            }
            tries--;
        }
        at = found ? found + n : at;
    }
    return AF_OK;
}

/* The first n messages with PLACE for the last one, then its content there. */
static af_status put_in_place(const af_mask_work *w, size_t n, const json_t *content, char **text,
                              uint64_t *len)
{
    af_conversation other = *w->t;
    af_status st = AF_OK;
    char *all = NULL, *prompt = NULL;
    uint64_t all_len = 0, prompt_len = 0;
    af_buf b = {0};
    other.messages = json_copy(w->t->messages);
    if (!other.messages ||
        json_array_set_new(other.messages, n - 1,
                           json_pack("{s:s,s:s}", "role", "assistant", "content", PLACE)))
        AF_TRY(af_fail_nomem(w->err, "a conversation", n));
    AF_TRY(af_renderer_render(w->s, &all, &all_len, &other, n, false, false, NULL, w->err));
    AF_TRY(af_renderer_render(w->s, &prompt, &prompt_len, w->t, n - 1, true, false, NULL, w->err));
    const char *at = memmem(all, all_len, PLACE, strlen(PLACE));
    const uint64_t before = at ? (uint64_t)(at - all) : prompt_len;
    if (before >= prompt_len) /* the generation prompt has nothing of the answer */
        goto done;
    af_buf_add(&b, all, before);
    af_buf_add(&b, json_string_value(content), json_string_length(content));
    af_buf_add(&b, at + strlen(PLACE), all_len - before - strlen(PLACE));
    af_buf_str(&b, "");
    if (b.bad)
        AF_TRY(af_fail_nomem(w->err, "a conversation", all_len));
    if (b.len < prompt_len || memcmp(b.data, prompt, prompt_len) != 0)
        goto done;
    free(*text);
    *len = b.len;
    *text = af_buf_take(&b);
done:
    af_buf_clear(&b);
    free(all);
    free(prompt);
    json_decref(other.messages);
    return st;
}

af_status af_answer_render(const af_mask_work *w, size_t n, char **text, uint64_t *len,
                           af_spans *generation)
{
    const json_t *m = n ? af_mask_message(w, n - 1) : NULL;
    const json_t *content = json_object_get(m, "content");
    af_error ignored = {0};
    af_status st =
        generation ? af_renderer_render(w->s, text, len, w->t, n, false, false, generation, w->err)
                   : af_prefix_whole(w, n, AF_PREFIX_TURNS, text, len);
    if (st != AF_OK || generation || n < 2 || strcmp(af_mask_role(w, n - 1), "assistant") != 0 ||
        !json_is_string(content) || json_array_size(json_object_get(m, "tool_calls")) > 0)
        return st;
    const char *missing = af_answer_missing(m, *text, *len);
    if (!missing || strcmp(missing, "content") != 0)
        return AF_OK;
    af_mask_work quiet = *w;
    quiet.err = &ignored;
    st = put_in_place(&quiet, n, content, text, len);
    return st == AF_ENOMEM ? af_fail(w->err, st, "%s", ignored.msg) : AF_OK;
}
