/* mask_prefix.c - how far the rendering of a conversation agrees with those of its first messages.
 *
 * A long conversation would be rendered once or twice per message, in time that grows with its
 * square. There a prefix is rendered as its first turns and a window of the last ones, and only
 * what follows a known place, the anchor, is compared. Anchors are found with the whole prefix, and
 * a window that disagrees with the whole text ends the use of windows for this record. */
#include "data/render/mask_work.h"

enum {
    WINDOW = 64,            /* messages from one anchor to the next */
    WINDOWS_FROM = 256,     /* shorter conversations are rendered whole */
    RENDERED_MAX = 1 << 22, /* messages rendered for the mask of a row: about 4 s */
};

uint64_t af_common_prefix(const char *a, uint64_t n, const char *b, uint64_t m)
{
    uint64_t i = 0;
    const uint64_t stop = AF_MIN(n, m);
    while (i + 8 <= stop && memcmp(a + i, b + i, 8) == 0)
        i += 8;
    while (i < stop && a[i] == b[i])
        i++;
    return i;
}

uint64_t af_find_last(const char *text, uint64_t from, uint64_t to, const char *what, uint64_t n)
{
    if (n == 0 || to < from || to - from < n)
        return UINT64_MAX;
    for (uint64_t i = to - n + 1; i-- > from;)
        if (text[i] == what[0] && memcmp(text + i, what, n) == 0)
            return i;
    return UINT64_MAX;
}

bool af_find_eot(const af_renderer *s, const char *text, uint64_t from, uint64_t to, af_span *out)
{
    bool found = false;
    for (int k = 0; k < s->eots; k++) {
        const uint64_t n = strlen(s->eot[k]), at = af_find_last(text, from, to, s->eot[k], n);
        if (at == UINT64_MAX)
            continue;
        if (!found || at + n > out->end)
            *out = (af_span){at, at + n};
        found = true;
    }
    return found;
}

af_status af_mask_renders(const af_mask_work *w, size_t n, uint64_t more)
{
    w->anchor->rendered += more;
    if (w->anchor->rendered <= RENDERED_MAX)
        return AF_OK;
    return af_fail(w->err, AF_EFORMAT,
                   "message %zu of %zu: with this chat template the loss mask of so long a "
                   "conversation takes too long; split the record (or set mask_history: true)",
                   n, w->messages);
}

static bool in_window(const af_mask_anchor *a, size_t n) { return a->head && n > a->from; }

/* Renders the first n messages, or the anchor's window of them. */
static af_status render_prefix(const af_mask_work *w, const af_mask_anchor *a, size_t n,
                               af_prefix_kind kind, char **text, uint64_t *len)
{
    const bool prompt = kind == AF_PREFIX_PROMPT, next = kind == AF_PREFIX_NEXT;
    const af_status few = af_mask_renders(w, n, in_window(a, n) ? a->head + n - a->from : n);
    if (few != AF_OK)
        return few;
    if (!in_window(a, n))
        return af_renderer_render(w->s, text, len, w->t, n, prompt, next, NULL, w->err);
    af_conversation part = *w->t;
    part.messages = json_array();
    bool ok = part.messages != NULL;
    for (size_t i = 0; ok && i < n; i = i + 1 == a->head ? a->from : i + 1)
        ok = json_array_append(part.messages, json_array_get(w->t->messages, i)) == 0;
    const size_t count = json_array_size(part.messages);
    if (ok && next && n < json_array_size(w->t->messages)) /* the turn after them is like this */
        ok = json_array_append(part.messages, json_array_get(w->t->messages, n)) == 0;
    const af_status st =
        ok ? af_renderer_render(w->s, text, len, &part, count, prompt, next, NULL, w->err)
           : af_fail_nomem(w->err, "a conversation", n);
    json_decref(part.messages);
    return st;
}

/* How many bytes of the whole text the rendering of a prefix agrees with. */
static uint64_t agrees(const af_mask_work *w, const af_mask_anchor *a, size_t n, const char *text,
                       uint64_t len)
{
    if (!in_window(a, n))
        return af_common_prefix(w->out->text, w->out->len, text, len);
    if (len < a->window)
        return 0;
    return a->full + af_common_prefix(w->out->text + a->full, w->out->len - a->full,
                                      text + a->window, len - a->window);
}

/* Makes message j, an assistant's after another's, the anchor, if the window agrees with the whole
 * there. */
static af_status set_anchor(const af_mask_work *w, size_t head, size_t j)
{
    static const af_mask_anchor none = {0};
    af_mask_anchor a = {.head = head, .from = j - 1};
    char *text = NULL;
    af_error ignored = {0};
    af_mask_work quiet = *w;
    quiet.err = &ignored;
    af_status st = render_prefix(w, &none, j, AF_PREFIX_PROMPT, &text, &a.full);
    if (st == AF_OK && agrees(w, &none, j, text, a.full) != a.full)
        a.useless = true;
    free(text);
    text = NULL;
    if (st != AF_OK)
        return st;
    if (!a.useless && render_prefix(&quiet, &a, j, AF_PREFIX_PROMPT, &text, &a.window) != AF_OK)
        a.useless = true; /* the template refuses the shortened conversation */
    free(text);
    if (a.useless)
        a.head = 0;
    a.rendered = w->anchor->rendered;
    *w->anchor = a;
    return AF_OK;
}

/* Moves the anchor to the last turn before message n at which that is possible. */
static af_status move_anchor(const af_mask_work *w, size_t n)
{
    size_t head = 0;
    const af_mask_anchor *a = w->anchor;
    if (w->messages < WINDOWS_FROM || a->useless || n < a->from + 2 * WINDOW)
        return AF_OK;
    while (head < WINDOW && strcmp(af_mask_role(w, head), "assistant") != 0)
        head++;
    for (size_t j = n - 1; head < WINDOW && j > a->from + WINDOW; j--)
        if (strcmp(af_mask_role(w, j), "assistant") == 0 &&
            strcmp(af_mask_role(w, j - 1), "assistant") != 0)
            return set_anchor(w, head + 1, j);
    return AF_OK;
}

static void place(const af_mask_work *w, size_t n, const char *text, uint64_t len, uint64_t from,
                  af_prefix *out)
{
    const af_mask_anchor *a = w->anchor;
    const bool window = in_window(a, n);
    const uint64_t here = window ? AF_MIN(a->window, len) : 0, there = window ? a->full : 0;
    af_span eot;
    *out = (af_prefix){.at = agrees(w, a, n, text, len), .end = there + len - here};
    if (from >= there && af_find_eot(w->s, text, here + from - there, len, &eot))
        out->eot = there + eot.end - here;
}

/* A window that cannot be rendered, or must agree to its end and does not, gives way to the whole
 * prefix. */
af_status af_prefix_compare(const af_mask_work *w, size_t n, af_prefix_kind kind, uint64_t from,
                            af_prefix *out)
{
    af_mask_anchor *a = w->anchor;
    af_span eot;
    if (n == w->messages && kind == AF_PREFIX_TURNS) {
        *out = (af_prefix){w->out->len, w->out->len, 0};
        if (af_find_eot(w->s, w->out->text, from, w->out->len, &eot))
            out->eot = eot.end;
        return AF_OK;
    }
    for (;;) {
        char *text = NULL;
        uint64_t len = 0;
        af_status st = move_anchor(w, n);
        if (st == AF_OK)
            st = render_prefix(w, a, n, kind, &text, &len);
        if (st == AF_OK)
            place(w, n, text, len, from, out);
        free(text);
        if (!in_window(a, n) || (st == AF_OK && (kind != AF_PREFIX_PROMPT || out->at == out->end)))
            return st;
        *a = (af_mask_anchor){.useless = true, .rendered = a->rendered};
    }
}
