/* mask_prefix.c - how far the rendering of a conversation agrees with those of its first messages.
 *
 * A conversation is rendered several times per message, in time that grows with its square. In a
 * long one a prefix is rendered as its first turns and a window of the last ones, and only what
 * follows a known place, the anchor, is compared. Anchors are found with the whole prefix. A window
 * that is rendered otherwise before its anchor, or departs from the whole text and not where the
 * whole prefix does, ends the use of windows for this row. Renderings of whole prefixes are kept:
 * other rows of the record ask for the same ones. */
#include "data/render/mask_work.h"

#include "base/hash.h"

enum {
    WINDOW = 16,         /* messages from one anchor to the next, at least */
    WINDOWS_MAX = 256,   /* anchors of a conversation */
    WINDOWS_FROM = 64,   /* shorter conversations are rendered whole */
    CONTEXT = 8,         /* bytes before an anchor that a window must have, too */
    STEPS_MAX = 1 << 28, /* of the template for the masks of a record: about 10 s */
    KEPT_MAX = 16 << 20, /* bytes of renderings that are kept for a record */
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

af_status af_prefix_cache_init(af_prefix_cache *c, const af_renderer *s, size_t messages,
                               af_error *err)
{
    const size_t n = (messages + 1) * AF_PREFIX_KINDS;
    *c = (af_prefix_cache){.item = af_calloc(n, sizeof *c->item), .count = n, .began = s->steps};
    if (c->item)
        return AF_OK;
    c->count = 0;
    return af_fail_nomem(err, "a conversation", n);
}

void af_prefix_cache_clear(af_prefix_cache *c)
{
    for (size_t i = 0; i < c->count; i++)
        free(c->item[i].text);
    free(c->item);
    *c = (af_prefix_cache){0};
}

/* The place of a rendering in the cache; NULL: it is not kept. Of a long conversation the prompts
 * of anchors are asked for again, and little else. */
static af_kept_text *kept(const af_mask_work *w, size_t n, af_prefix_kind kind)
{
    const size_t i = n * AF_PREFIX_KINDS + kind;
    const bool again = kind == AF_PREFIX_PROMPT || n < WINDOWS_FROM;
    return again && i < w->cache->count ? &w->cache->item[i] : NULL;
}

static void keep(const af_mask_work *w, af_kept_text *k, const char *text, uint64_t len)
{
    if (!k || w->cache->bytes + len > KEPT_MAX || !(k->text = af_calloc(len + 1, 1)))
        return; /* it is rendered again */
    memcpy(k->text, text, len);
    k->len = len;
    w->cache->bytes += len;
}

af_status af_mask_renders(const af_mask_work *w, size_t n)
{
    if (w->s->steps - w->cache->began <= STEPS_MAX)
        return AF_OK;
    return af_fail(w->err, AF_EFORMAT,
                   "message %zu of %zu: with this chat template the loss mask of so long a "
                   "conversation takes too long; split the record (or set mask_history: true)",
                   n, w->messages);
}

af_status af_prefix_whole(const af_mask_work *w, size_t n, af_prefix_kind kind, char **text,
                          uint64_t *len)
{
    af_kept_text *k = kept(w, n, kind);
    if (k && k->text) {
        *text = af_calloc(k->len + 1, 1);
        if (!*text)
            return af_fail_nomem(w->err, "a conversation", k->len);
        memcpy(*text, k->text, k->len);
        *len = k->len;
        return AF_OK;
    }
    af_status st = af_mask_renders(w, n);
    if (st == AF_OK)
        st = af_renderer_render(w->s, text, len, w->t, n, kind == AF_PREFIX_PROMPT,
                                kind == AF_PREFIX_NEXT, NULL, w->err);
    if (st == AF_OK)
        keep(w, k, *text, *len);
    return st;
}

static bool in_window(const af_mask_anchor *a, size_t n) { return a->head && n > a->from; }

/* The anchor's window of the first n messages. */
static af_status render_window(const af_mask_work *w, const af_mask_anchor *a, size_t n,
                               af_prefix_kind kind, char **text, uint64_t *len)
{
    const bool prompt = kind == AF_PREFIX_PROMPT, next = kind == AF_PREFIX_NEXT;
    const af_status few = af_mask_renders(w, n);
    if (few != AF_OK)
        return few;
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

void af_mask_anchor_clear(af_mask_anchor *a)
{
    free(a->before);
    *a = (af_mask_anchor){0};
}

void af_mask_anchor_drop(af_mask_anchor *a)
{
    af_mask_anchor_clear(a);
    a->useless = true;
}

/* Makes message j, an assistant's after another's, the anchor: where its prompt stops agreeing with
 * the whole, if the window's has the same text there and up to its end. */
static af_status set_anchor(const af_mask_work *w, size_t head, size_t j)
{
    af_mask_anchor a = {.head = head, .from = j - 1};
    char *text = NULL;
    uint64_t len = 0, window = 0;
    af_error ignored = {0};
    af_mask_work quiet = *w;
    af_status st = AF_OK;
    quiet.err = &ignored;
    AF_TRY(af_prefix_whole(w, j, AF_PREFIX_PROMPT, &text, &len));
    if (render_window(&quiet, &a, j, AF_PREFIX_PROMPT, &a.before, &window) != AF_OK)
        window = 0; /* the template refuses the shortened conversation */
    a.full = af_common_prefix(w->out->text, w->out->len, text, len);
    const uint64_t tail = len - a.full, same = tail + AF_MIN(a.full, CONTEXT);
    const bool agrees =
        window >= same && memcmp(text + len - same, a.before + window - same, same) == 0;
    af_mask_anchor_drop(w->anchor);
    if (agrees) {
        a.window = window - tail;
        a.departs = tail > 0 ? 1u << AF_PREFIX_PROMPT : 0;
        a.tail = af_fnv1a(AF_FNV_START, text + a.full, tail);
        *w->anchor = a;
        a.before = NULL;
    }
done:
    free(a.before);
    free(text);
    return st;
}

/* Whether message j is an answer to a question, or else to anything. */
static bool answers(const af_mask_work *w, size_t j, bool question)
{
    const char *before = af_mask_role(w, j - 1);
    return strcmp(af_mask_role(w, j), "assistant") == 0 &&
           (question ? strcmp(before, "user") == 0 : strcmp(before, "assistant") != 0);
}

/* The last answer in (low, high] to a question, or else to anything; 0: there is none. */
static size_t last_answer(const af_mask_work *w, size_t low, size_t high, bool question)
{
    while (high > low && !answers(w, high, question))
        high--;
    return high > low ? high : 0;
}

/* Moves the anchor to an answer before message n where that is possible: the one to the last
 * question, or in a long loop of tool calls, after it, one that is near. In a row whose answers are
 * tried from the last to the first that one serves the next of them and the next row, too. Inside a
 * loop the question is not in the window. */
static af_status move_anchor(const af_mask_work *w, size_t n)
{
    size_t head = 0;
    const af_mask_anchor *a = w->anchor;
    const size_t step = AF_MAX(WINDOW, w->messages / WINDOWS_MAX);
    if (w->messages < WINDOWS_FROM || a->useless || n < 2 * step ||
        (in_window(a, n) && n < a->from + 2 * step))
        return AF_OK;
    while (head < step && strcmp(af_mask_role(w, head), "assistant") != 0)
        head++;
    const size_t least = in_window(a, n) ? a->from + step / 2 : step / 2;
    const size_t low = AF_MAX(least, head + 1), near = w->only ? n / step * step - step : n - 1;
    size_t question = n, j = head < step ? last_answer(w, low, n - 1, true) : 0;
    while (question > j && strcmp(af_mask_role(w, question - 1), "user") != 0)
        question--;
    if (head < step && question <= j && n >= j + 2 * step) {
        const size_t looped = last_answer(w, AF_MAX(low, j), near, false);
        j = looped ? looped : j;
    }
    return j ? set_anchor(w, head + 1, j) : AF_OK;
}

void af_prefix_text_clear(af_prefix_text *p)
{
    free(p->text);
    *p = (af_prefix_text){0};
}

static af_status render_whole(const af_mask_work *w, size_t n, af_prefix_kind kind,
                              af_prefix_text *out)
{
    *out = (af_prefix_text){0};
    return af_prefix_whole(w, n, kind, &out->text, &out->len);
}

af_status af_prefix_render(const af_mask_work *w, size_t n, af_prefix_kind kind,
                           af_prefix_text *out)
{
    af_mask_anchor *a = w->anchor;
    af_error ignored = {0};
    af_mask_work quiet = *w;
    quiet.err = &ignored;
    af_status st = move_anchor(w, n);
    if (st != AF_OK || !in_window(a, n))
        return st != AF_OK ? st : render_whole(w, n, kind, out);
    *out = (af_prefix_text){.here = a->window, .there = a->full};
    if (render_window(&quiet, a, n, kind, &out->text, &out->len) == AF_OK &&
        out->len >= a->window && memcmp(out->text, a->before, a->window) == 0)
        return AF_OK;
    af_prefix_text_clear(out);
    st = render_whole(w, n, kind, out);
    if (st == AF_OK) /* else the template refuses the turns, not the window */
        af_mask_anchor_drop(a);
    return st;
}

static void place(const af_mask_work *w, const af_prefix_text *p, uint64_t from, af_prefix *out)
{
    const char *text = w->out->text + p->there;
    af_span eot;
    *out = (af_prefix){.end = p->there + p->len - p->here};
    out->at = p->there +
              af_common_prefix(text, w->out->len - p->there, p->text + p->here, p->len - p->here);
    if (from >= p->there && af_find_eot(w->s, p->text, p->here + from - p->there, p->len, &eot))
        out->eot = p->there + eot.end - p->here;
}

/* Hash of what the text has after its departure from the whole. */
static uint64_t tail_of(const af_prefix_text *p, const af_prefix *found)
{
    const uint64_t at = p->here + found->at - p->there;
    return af_fnv1a(AF_FNV_START, p->text + at, p->len - at);
}

/* A text that departs from the whole, found with a window: does it also without one? Asked once
 * per anchor and kind, of prompts once per tail: they decide whether an answer needs a row. */
static af_status check_window(const af_mask_work *w, size_t n, af_prefix_kind kind, uint64_t from,
                              uint64_t tail, af_prefix *found)
{
    af_prefix_text p;
    af_prefix whole;
    const af_status st = render_whole(w, n, kind, &p);
    if (st != AF_OK)
        return st;
    place(w, &p, from, &whole);
    af_prefix_text_clear(&p);
    if (whole.at == found->at && whole.end == found->end) {
        w->anchor->departs |= 1u << kind;
        w->anchor->tail = kind == AF_PREFIX_PROMPT ? tail : w->anchor->tail;
    } else
        af_mask_anchor_drop(w->anchor);
    *found = whole;
    return AF_OK;
}

af_status af_prefix_compare(const af_mask_work *w, size_t n, af_prefix_kind kind, uint64_t from,
                            af_prefix *out)
{
    af_span eot;
    af_prefix_text p;
    if (n == w->messages && kind == AF_PREFIX_TURNS) {
        *out = (af_prefix){w->out->len, w->out->len, 0};
        if (af_find_eot(w->s, w->out->text, from, w->out->len, &eot))
            out->eot = eot.end;
        return AF_OK;
    }
    const af_status st = af_prefix_render(w, n, kind, &p);
    if (st != AF_OK)
        return st;
    place(w, &p, from, out);
    const uint64_t tail = tail_of(&p, out);
    af_prefix_text_clear(&p);
    /* what is wrong in a row of answers that others left costs a row, not an answer */
    const bool asked =
        !in_window(w->anchor, n) || w->only ||
        (w->anchor->departs >> kind & 1 && (kind != AF_PREFIX_PROMPT || tail == w->anchor->tail));
    return out->at != out->end && !asked ? check_window(w, n, kind, from, tail, out) : AF_OK;
}
