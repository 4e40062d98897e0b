/* mask.c - which bytes of a rendered conversation carry loss.
 *
 * For message i, with full = rendering of all messages:
 *   start = length of the rendering of messages[:i] with the generation prompt, a prefix of full;
 *   end   = after the last end-of-turn token between start and where full departs from the
 *           rendering of messages[:i+1], or, when there is none, of the same with a user turn
 * after it (Qwen3 renders the last turn differently from the ones before). Roles other than the
 * assistant have no generation prompt: their span is their content.
 *
 * A long conversation would be rendered once or twice per message, in time that grows with its
 * square. There a prefix is rendered as its first turns and a window of the last ones, and only
 * what follows a known place, the anchor, is compared. Anchors are found with the whole prefix, and
 * a window that disagrees with the whole text ends the use of windows for this record. */
#define _GNU_SOURCE /* memmem, memrchr */
#include "data/render/renderer.h"

enum {
    WINDOW = 64,            /* messages from one anchor to the next */
    WINDOWS_FROM = 256,     /* shorter conversations are rendered whole */
    MESSAGES_MAX = 16384,   /* of a record */
    RENDERED_MAX = 1 << 22, /* messages rendered for the mask of a record: about 4 s */
};

/* The last message before an assistant's turn for which the rendering with the generation prompt
 * was found in the whole text. */
typedef struct mask_anchor {
    size_t head; /* messages [0, head) and [from, ...) are rendered; head 0: all are */
    size_t from;
    uint64_t full, window; /* bytes up to the anchor in the whole text and in a window's */
    bool useless;          /* the template's windows do not agree with the whole */
    uint64_t rendered;     /* messages so far, of all prefixes */
} mask_anchor;

typedef struct work {
    af_renderer *s;
    const af_conversation *t;
    const af_data_source *source;
    af_loss_spans *out;
    mask_anchor *anchor;
    size_t messages;
    size_t last; /* the last trained message */
    af_error *err;
} work;

typedef struct turn_span {
    uint64_t start, end; /* with the end-of-turn token */
    uint64_t eot;        /* where that begins; == end when there is none */
} turn_span;

void af_loss_spans_clear(af_loss_spans *s)
{
    free(s->text);
    free(s->span);
    *s = (af_loss_spans){0};
}

static const char *role_at(const work *w, size_t i)
{
    return json_string_value(json_object_get(json_array_get(w->t->messages, i), "role"));
}

static uint64_t common_prefix(const char *a, uint64_t n, const char *b, uint64_t m)
{
    uint64_t i = 0;
    const uint64_t stop = AF_MIN(n, m);
    while (i + 8 <= stop && memcmp(a + i, b + i, 8) == 0)
        i += 8;
    while (i < stop && a[i] == b[i])
        i++;
    return i;
}

/* The last occurrence of `what` that lies in [from, to) of text; UINT64_MAX when there is none. */
static uint64_t find_last(const char *text, uint64_t from, uint64_t to, const char *what)
{
    const uint64_t n = strlen(what);
    if (n == 0 || to < from || to - from < n)
        return UINT64_MAX;
    for (uint64_t i = to - n + 1; i-- > from;)
        if (text[i] == what[0] && memcmp(text + i, what, n) == 0)
            return i;
    return UINT64_MAX;
}

/* The end-of-turn token that ends last in [from, to). */
static bool find_eot(const work *w, uint64_t from, uint64_t to, turn_span *out)
{
    bool found = false;
    for (int k = 0; k < w->s->eots; k++) {
        const uint64_t at = find_last(w->out->text, from, to, w->s->eot[k]);
        if (at == UINT64_MAX)
            continue;
        const uint64_t end = at + strlen(w->s->eot[k]);
        if (!found || end > out->end) {
            out->eot = at;
            out->end = end;
        }
        found = true;
    }
    return found;
}

static bool in_window(const mask_anchor *a, size_t n) { return a->head && n > a->from; }

/* Renders the first n messages, or the anchor's window of them. */
static af_status render_prefix(const work *w, const mask_anchor *a, size_t n, bool prompt,
                               bool tail, char **text, uint64_t *len)
{
    w->anchor->rendered += in_window(a, n) ? a->head + n - a->from : n;
    if (w->anchor->rendered > RENDERED_MAX)
        return af_fail(w->err, AF_EFORMAT,
                       "message %zu of %zu: with this chat template the loss mask of so long a "
                       "conversation takes too long; split the record",
                       n, w->messages);
    if (!in_window(a, n))
        return af_renderer_render(w->s, text, len, w->t, n, prompt, tail, NULL, w->err);
    af_conversation part = *w->t;
    part.messages = json_array();
    bool ok = part.messages != NULL;
    for (size_t i = 0; ok && i < n; i = i + 1 == a->head ? a->from : i + 1)
        ok = json_array_append(part.messages, json_array_get(w->t->messages, i)) == 0;
    const size_t count = json_array_size(part.messages);
    const af_status st =
        ok ? af_renderer_render(w->s, text, len, &part, count, prompt, tail, NULL, w->err)
           : af_fail_nomem(w->err, "a conversation", n);
    json_decref(part.messages);
    return st;
}

/* How many bytes of the whole text the rendering of a prefix agrees with. */
static uint64_t agrees(const work *w, const mask_anchor *a, size_t n, const char *text,
                       uint64_t len)
{
    if (!in_window(a, n))
        return common_prefix(w->out->text, w->out->len, text, len);
    if (len < a->window)
        return 0;
    return a->full + common_prefix(w->out->text + a->full, w->out->len - a->full, text + a->window,
                                   len - a->window);
}

/* Makes message j, an assistant's after another's, the anchor, if the window agrees with the whole
 * there. */
static af_status set_anchor(const work *w, size_t head, size_t j)
{
    static const mask_anchor none = {0};
    mask_anchor a = {.head = head, .from = j - 1};
    char *text = NULL;
    af_error ignored = {0};
    work quiet = *w;
    quiet.err = &ignored;
    af_status st = render_prefix(w, &none, j, true, false, &text, &a.full);
    if (st == AF_OK && agrees(w, &none, j, text, a.full) != a.full)
        a.useless = true;
    free(text);
    text = NULL;
    if (st != AF_OK)
        return st;
    if (!a.useless && render_prefix(&quiet, &a, j, true, false, &text, &a.window) != AF_OK)
        a.useless = true; /* the template refuses the shortened conversation */
    free(text);
    if (a.useless)
        a.head = 0;
    a.rendered = w->anchor->rendered;
    *w->anchor = a;
    return AF_OK;
}

/* Moves the anchor to the last turn before message n at which that is possible. */
static af_status move_anchor(const work *w, size_t n)
{
    size_t head = 0;
    const mask_anchor *a = w->anchor;
    if (w->messages < WINDOWS_FROM || a->useless || n < a->from + 2 * WINDOW)
        return AF_OK;
    while (head < WINDOW && strcmp(role_at(w, head), "assistant") != 0)
        head++;
    for (size_t j = n - 1; head < WINDOW && j > a->from + WINDOW; j--)
        if (strcmp(role_at(w, j), "assistant") == 0 && strcmp(role_at(w, j - 1), "assistant") != 0)
            return set_anchor(w, head + 1, j);
    return AF_OK;
}

/* Renders a prefix and finds how far the whole agrees with it: *at; *end is where it would agree to
 * its end. A window that cannot be rendered, or must agree to its end and does not, gives way to
 * the whole prefix. */
static af_status compare_prefix(const work *w, size_t n, bool prompt, bool tail, uint64_t *at,
                                uint64_t *end)
{
    mask_anchor *a = w->anchor;
    for (;;) {
        char *text = NULL;
        uint64_t len = 0;
        af_status st = move_anchor(w, n);
        if (st == AF_OK)
            st = render_prefix(w, a, n, prompt, tail, &text, &len);
        if (st == AF_OK) {
            *at = agrees(w, a, n, text, len);
            *end = in_window(a, n) ? a->full + len - AF_MIN(a->window, len) : len;
        }
        free(text);
        if (!in_window(a, n) || (st == AF_OK && (!prompt || *at == *end)))
            return st;
        *a = (mask_anchor){.useless = true, .rendered = a->rendered};
    }
}

/* Where the whole departs from the rendering of the first n messages (and a user turn). */
static af_status departs(const work *w, size_t n, bool tail, uint64_t *at)
{
    uint64_t end = 0;
    if (n == w->messages && !tail) {
        *at = w->out->len;
        return AF_OK;
    }
    return compare_prefix(w, n, false, tail, at, &end);
}

/* There is no prompt before a first message. Its answer begins where another one would differ: what
 * the template writes before it (a system text of its own, the header) is not the answer. */
static af_status first_start(const work *w, uint64_t *start)
{
    const json_t *m = json_array_get(w->t->messages, 0);
    const char *content = json_string_value(json_object_get(m, "content"));
    af_conversation other = *w->t;
    char *text = NULL;
    uint64_t len = 0;
    json_t *answer = json_pack("{s:s,s:s,s:O*}", "role", "assistant", "content",
                               content && *content == '$' ? "%" : "$", "tool_calls",
                               json_object_get(m, "tool_calls"));
    other.messages = json_copy(w->t->messages);
    af_status st =
        answer && other.messages && !json_array_set(other.messages, 0, answer)
            ? af_renderer_render(w->s, &text, &len, &other, w->messages, false, false, NULL, w->err)
            : af_fail_nomem(w->err, "a conversation", w->messages);
    if (st == AF_OK)
        *start = common_prefix(w->out->text, w->out->len, text, len);
    free(text);
    json_decref(answer);
    json_decref(other.messages);
    return st;
}

static af_status find_start(const work *w, size_t i, uint64_t *start)
{
    uint64_t same = 0;
    if (i == 0)
        return first_start(w, start);
    const af_status st = compare_prefix(w, i, true, false, &same, start);
    if (st == AF_OK && same != *start)
        return af_fail(w->err, AF_EFORMAT,
                       "message %zu: the text up to the generation prompt is not a prefix of the "
                       "whole: with this chat template the loss mask cannot be found (one with "
                       "{%% generation %%} blocks marks it itself)",
                       i + 1);
    return st;
}

static af_status assistant_span(const work *w, size_t i, turn_span *out)
{
    uint64_t same = 0, first = 0;
    af_error ignored = {0};
    af_status st = find_start(w, i, &out->start);
    if (st != AF_OK)
        return st;
    st = departs(w, i + 1, false, &first);
    if (st != AF_OK)
        return st;
    if (find_eot(w, out->start, first, out))
        return AF_OK;
    work quiet = *w; /* a template may refuse a user turn here: then there is no answer from it */
    quiet.err = &ignored;
    if (departs(&quiet, i + 1, true, &same) == AF_OK && find_eot(w, out->start, same, out))
        return AF_OK;
    if (ignored.code == AF_ENOMEM)
        return af_fail(w->err, AF_ENOMEM, "%s", ignored.msg);
    if (w->source->train_on_eos == AF_TRAIN_EOS_NONE) {
        out->end = out->eot = AF_MAX(first, out->start);
        return AF_OK;
    }
    return af_fail(w->err, AF_EFORMAT,
                   "message %zu: no end-of-turn token found after it: the model would not learn "
                   "to stop (train_on_eos: none trains without)",
                   i + 1);
}

/* The content of a turn of another role, between the renderings without and with it. */
static af_status other_span(const work *w, size_t i, turn_span *out)
{
    uint64_t from = 0, to = 0;
    af_status st = AF_OK;
    if (i > 0)
        AF_TRY(departs(w, i, false, &from));
    AF_TRY(departs(w, i + 1, false, &to));
    to = AF_MAX(to, from);
    const json_t *content = json_object_get(json_array_get(w->t->messages, i), "content");
    const char *c = json_is_string(content) ? json_string_value(content) : "";
    uint64_t n = json_is_string(content) ? json_string_length(content) : 0;
    while (n && strchr(" \t\r\n", c[n - 1]))
        n--;
    while (n && strchr(" \t\r\n", *c)) {
        c++;
        n--;
    }
    const char *at = n ? memmem(w->out->text + from, to - from, c, n) : NULL;
    out->start = at ? (uint64_t)(at - w->out->text) : from;
    out->end = out->eot = at ? out->start + n : to;
    (void)find_eot(w, out->end, to, out);
done:
    return st;
}

static af_status turn_of(const work *w, size_t i, turn_span *out)
{
    return strcmp(role_at(w, i), "assistant") == 0 ? assistant_span(w, i, out)
                                                   : other_span(w, i, out);
}

static bool trained(const work *w, size_t i)
{
    return w->t->train[i] && af_role_trained(w->source, role_at(w, i)) &&
           !(w->s->mask_history && i < w->last);
}

static void add_span(const work *w, uint64_t begin, uint64_t end)
{
    if (begin < end)
        w->out->span[w->out->count++] = (af_span){begin, end};
}

/* The trained part of a turn, by train_on_eos. */
static void add_turn(const work *w, size_t i, const turn_span *s)
{
    const bool train = trained(w, i);
    bool eot = false;
    switch (w->source->train_on_eos) {
    case AF_TRAIN_EOS_TURN:
        eot = train;
        break;
    case AF_TRAIN_EOS_ALL:
        eot = true;
        break;
    case AF_TRAIN_EOS_LAST:
        eot = train && i == w->last;
        break;
    case AF_TRAIN_EOS_NONE:
        break;
    }
    if (train)
        add_span(w, s->start, eot ? s->end : s->eot);
    else if (eot)
        add_span(w, s->eot, s->end);
}

/* Every assistant message is trained, with its end. */
static bool all_alike(const work *w)
{
    for (size_t i = 0; i < w->messages; i++)
        if (strcmp(role_at(w, i), "assistant") == 0 && !trained(w, i))
            return false;
    return w->source->train_on_eos == AF_TRAIN_EOS_TURN;
}

/* {% generation %} blocks are the assistant messages in order. Where all of them are trained
 * it does not matter which is whose: the blocks are taken as they are. */
static af_status generation_spans(work *w, const af_spans *marks)
{
    size_t k = 0;
    if (all_alike(w)) {
        for (uint64_t i = 0; i < marks->count; i++)
            add_span(w, marks->item[i].begin, marks->item[i].end);
        return AF_OK;
    }
    for (size_t i = 0; i < w->messages; i++) {
        if (strcmp(role_at(w, i), "assistant") != 0)
            continue;
        turn_span s = {marks->item[k].begin, marks->item[k].end, marks->item[k].end};
        const uint64_t end = s.end;
        if (find_eot(w, s.start, end, &s))
            s.end = end; /* the template's mark is kept whole */
        add_turn(w, i, &s);
        k++;
    }
    return AF_OK;
}

/* True when the marks can be matched with the messages. */
static bool marks_fit(const work *w, const af_spans *marks)
{
    size_t assistants = 0;
    for (size_t i = 0; i < w->messages; i++) {
        const bool assistant = strcmp(role_at(w, i), "assistant") == 0;
        assistants += assistant;
        if (!assistant && trained(w, i))
            return false;
    }
    return marks->count && (marks->count == assistants || all_alike(w)) &&
           w->source->train_on_eos != AF_TRAIN_EOS_ALL;
}

static af_status differential_spans(work *w)
{
    const bool all = w->source->train_on_eos == AF_TRAIN_EOS_ALL;
    for (size_t i = 0; i < w->messages; i++) {
        turn_span s = {0};
        if (!trained(w, i) && !all)
            continue;
        const af_status st = turn_of(w, i, &s);
        if (st != AF_OK)
            return st;
        add_turn(w, i, &s);
    }
    return AF_OK;
}

/* Loss everywhere but on the messages that are flagged off. */
static af_status excepted_spans(work *w)
{
    w->out->inside = false;
    for (size_t i = 0; i < w->messages; i++) {
        turn_span s = {0};
        if (w->t->train[i])
            continue;
        const af_status st = turn_of(w, i, &s);
        if (st != AF_OK)
            return st;
        add_span(w, s.start, s.end);
    }
    return AF_OK;
}

af_status af_mask_spans(af_renderer *s, af_loss_spans *out, const af_conversation *t,
                        const af_data_source *source, af_error *err)
{
    af_status st = AF_OK;
    af_loss_spans o = {.inside = true};
    af_spans marks = {0};
    mask_anchor anchor = {0};
    work w = {.s = s,
              .t = t,
              .source = source,
              .out = &o,
              .anchor = &anchor,
              .messages = json_array_size(t->messages),
              .err = err};
    if (w.messages > MESSAGES_MAX)
        return af_fail(err, AF_EFORMAT, "a conversation of %zu messages; at most %d are allowed",
                       w.messages, MESSAGES_MAX);
    const bool marked = af_template_marks_generation(s->chat);
    AF_TRY(af_renderer_render(s, &o.text, &o.len, t, w.messages, false, false,
                              marked ? &marks : NULL, err));
    o.span = af_calloc(AF_MAX(w.messages, marks.count) + 1, sizeof *o.span);
    if (!o.span) {
        st = af_fail_nomem(err, "a loss mask", w.messages);
        goto done;
    }
    for (size_t i = 0; i < w.messages; i++)
        w.last = trained(&w, i) ? i : w.last;
    if (source->train_on_inputs)
        AF_TRY(excepted_spans(&w));
    else if (marked && marks_fit(&w, &marks))
        AF_TRY(generation_spans(&w, &marks));
    else
        AF_TRY(differential_spans(&w));
    *out = o;
    o = (af_loss_spans){0};
done:
    af_spans_clear(&marks);
    af_loss_spans_clear(&o);
    return st;
}
