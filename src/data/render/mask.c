/* mask.c - which bytes of a rendered conversation carry loss.
 *
 * For message i, with full = rendering of all messages:
 *   start = length of the rendering of messages[:i] with the generation prompt, a prefix of full;
 *   end   = after the last end-of-turn token between start and where full departs from the
 *           rendering of messages[:i+1], or, when there is none, of the same with a user turn
 * after it (Qwen3 renders the last turn differently from the ones before). Roles other than the
 * assistant have no generation prompt: their span is their content. */
#define _GNU_SOURCE /* memmem, memrchr */
#include "data/render/renderer.h"

typedef struct work {
    af_renderer *s;
    const af_conversation *t;
    const af_data_source *source;
    af_loss_spans *out;
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

/* Where the whole departs from the rendering of the first n messages (and a user turn). */
static af_status departs(const work *w, size_t n, bool tail, uint64_t *at)
{
    char *text = NULL;
    uint64_t len = 0;
    if (n == w->messages && !tail) {
        *at = w->out->len;
        return AF_OK;
    }
    const af_status st = af_renderer_render(w->s, &text, &len, w->t, n, false, tail, NULL, w->err);
    if (st == AF_OK)
        *at = common_prefix(w->out->text, w->out->len, text, len);
    free(text);
    return st;
}

static af_status find_start(const work *w, size_t i, uint64_t *start)
{
    char *text = NULL;
    uint64_t len = 0;
    *start = 0;
    if (i == 0)
        return AF_OK;
    af_status st = af_renderer_render(w->s, &text, &len, w->t, i, true, false, NULL, w->err);
    if (st == AF_OK && (len > w->out->len || memcmp(text, w->out->text, len) != 0))
        st = af_fail(w->err, AF_EFORMAT,
                     "message %zu: the text up to the generation prompt is not a prefix of the "
                     "whole: with this chat template the loss mask cannot be found (one with "
                     "{%% generation %%} blocks marks it itself)",
                     i + 1);
    free(text);
    *start = len;
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
    return w->t->train[i] && af_role_trained(w->source, role_at(w, i));
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
    work w = {.s = s,
              .t = t,
              .source = source,
              .out = &o,
              .messages = json_array_size(t->messages),
              .err = err};
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
