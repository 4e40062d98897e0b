/* mask.c - which bytes of a rendered conversation carry loss.
 *
 * For message i of a row, with full = rendering of the row's messages:
 *   start = length of the rendering of messages[:i] with the generation prompt, a prefix of full;
 *   end   = after the last end-of-turn token of the rendering of messages[:i+1], which full agrees
 *           with up to there, or else between start and where full departs from the same with a
 *           turn after it (Qwen3 renders the last turn differently from the ones before).
 * Roles other than the assistant have no generation prompt: their span is their content.
 *
 * An answer that full does not render as it would be generated (the generation prompt is not before
 * it, or, with split_turns, its thought is left out because other turns follow) is left for a row
 * of its own, which ends with it. */
#define _GNU_SOURCE /* memmem */
#include "data/render/mask_work.h"

enum {
    MESSAGES_MAX = 16384, /* of a record */
    CUT_FROM = 64,        /* messages of a record that is likely to be cut */
    CUT_SLACK = 16,       /* tokens that a cut text may end with instead of those of the whole */
    PROMPT_END = 64,      /* bytes of a generation prompt that may be of the answer: "<think>" */
};

void af_loss_spans_clear(af_loss_spans *s)
{
    free(s->text);
    free(s->span);
    free(s->left);
    free(s->other);
    *s = (af_loss_spans){0};
}

af_status af_loss_spans_cut(af_renderer *s, af_loss_spans *o, af_error *err)
{
    if (o->cut)
        return AF_OK;
    const af_status st = af_renderer_encode(s, o->text, o->len, false, err);
    if (st != AF_OK)
        return st;
    const int64_t last = s->cutoff + CUT_SLACK;
    o->cut = s->cutoff > 0 && s->encoding.count > last ? s->encoding.end[last] : o->len;
    return AF_OK;
}

static bool is_assistant(const af_mask_work *w, size_t i)
{
    return strcmp(af_mask_role(w, i), "assistant") == 0;
}

static bool find_eot(const af_mask_work *w, uint64_t from, uint64_t to, af_turn_span *out)
{
    af_span eot;
    if (!af_find_eot(w->s, w->out->text, from, to, &eot))
        return false;
    out->eot = eot.begin;
    out->end = eot.end;
    return true;
}

static af_status no_start(const af_mask_work *w, size_t i)
{
    const json_t *before = i ? af_mask_message(w, i - 1) : NULL;
    const char *missing = af_answer_missing(before, w->out->text, w->out->len);
    if (missing && !is_assistant(w, i - 1))
        return af_fail(w->err, AF_EFORMAT,
                       "message %zu: the chat template leaves out the message before it (role "
                       "\"%.40s\"): the answer cannot be trained",
                       i + 1, af_mask_role(w, i - 1));
    return af_fail(w->err, AF_EFORMAT,
                   "message %zu: the text up to the generation prompt is not a prefix of the "
                   "whole: with this chat template the loss mask cannot be found (one with "
                   "{%% generation %%} blocks marks it itself)",
                   i + 1);
}

static af_status no_end(const af_mask_work *w, size_t i)
{
    return af_fail(w->err, AF_EFORMAT,
                   "message %zu: no end-of-turn token found after it: the model would not learn "
                   "to stop (train_on_eos: none trains without)",
                   i + 1);
}

/* What ends the last answer where the template writes nothing after it: in some (GLM) the mark of
 * the next turn ends an answer, and is what a model that is done generates. */
static const char *end_mark(const af_mask_work *w, size_t i)
{
    const bool calls = json_array_size(json_object_get(af_mask_message(w, i), "tool_calls")) > 0;
    return calls ? w->s->call_end : w->s->answer_end;
}

/* The end of an answer in the middle, found with another turn after it. */
static af_status middle_end(const af_mask_work *w, size_t i, const af_prefix *own,
                            af_turn_span *out)
{
    af_prefix next = {0};
    af_error ignored = {0};
    af_mask_work quiet =
        *w; /* a template may refuse a turn here: then there is no answer from it */
    quiet.err = &ignored;
    if (af_prefix_compare(&quiet, i + 1, AF_PREFIX_NEXT, 0, &next) == AF_OK &&
        find_eot(w, out->start, next.at, out))
        out->fits = true;
    else if (ignored.code == AF_ENOMEM)
        return af_fail(w->err, AF_ENOMEM, "%s", ignored.msg);
    if (!out->fits && i + 1 < w->messages && is_assistant(w, i + 1)) {
        uint64_t at = 0;
        const af_status st = af_other_answer(w, i + 1, &at);
        if (st != AF_OK)
            return st;
        out->end = out->eot = at; /* the next answer continues this one */
        out->fits = at > out->start && at <= own->at;
    }
    if (!out->fits && w->source->train_on_eos == AF_TRAIN_EOS_NONE) {
        out->end = out->eot = AF_MAX(own->at, out->start);
        out->fits = true;
    }
    return out->fits || own->eot || end_mark(w, i) ? AF_OK : no_end(w, i);
}

/* The end of the last answer, which has no end-of-turn token. */
static af_status last_end(const af_mask_work *w, size_t i, af_turn_span *out)
{
    af_loss_spans *o = w->out;
    const char *mark = end_mark(w, i);
    out->end = out->eot = o->len;
    out->fits = true;
    if (w->source->train_on_eos == AF_TRAIN_EOS_NONE)
        return AF_OK;
    if (!mark)
        return no_end(w, i);
    const uint64_t n = strlen(mark);
    char *text = af_realloc(o->text, o->len + n + 1, 1);
    if (!text)
        return af_fail_nomem(w->err, "a conversation", o->len + n);
    memcpy(text + o->len, mark, n + 1);
    o->text = text;
    o->len += n;
    out->end = o->len;
    return AF_OK;
}

static bool shows_all(const af_mask_work *w, size_t i, af_span s)
{
    return !af_answer_missing(af_mask_message(w, i), w->out->text + s.begin, s.end - s.begin);
}

static af_status assistant_span(const af_mask_work *w, size_t i, af_turn_span *out)
{
    af_prefix own = {0};
    bool exact;
    const bool last = i + 1 == w->messages;
    af_status st = af_turn_start(w, i, out, &exact);
    if (st != AF_OK)
        return st;
    if (out->start == UINT64_MAX)
        return last && !w->out->other ? no_start(w, i) : AF_OK;
    st = af_prefix_compare(w, i + 1, AF_PREFIX_TURNS, out->start, &own);
    if (st != AF_OK)
        return st;
    const bool same = own.eot && own.at >= own.eot;
    if (same) {
        (void)find_eot(w, out->start, own.eot, out);
        out->fits = true;
    } else if (last) {
        return last_end(w, i, out);
    } else if (exact) {
        st = middle_end(w, i, &own, out);
    }
    const af_span span = {out->start, out->end};
    const bool matters = w->s->split_turns || !exact; /* else it is for the first warning alone */
    if (st == AF_OK && out->fits && !last && !(same && shows_all(w, i, span)) &&
        (matters || !w->out->missing.message))
        st = af_answer_lost(w, i, span, &out->lost);
    out->fits = out->fits && !(out->lost && matters);
    return st;
}

/* The content of a turn of another role, between the renderings without and with it; the last text
 * like it there, as those before the end may have one that departs in the turn before. */
static af_status other_span(const af_mask_work *w, size_t i, af_turn_span *out)
{
    af_prefix before = {0}, with = {0};
    af_status st = AF_OK;
    if (i > 0)
        AF_TRY(af_prefix_compare(w, i, AF_PREFIX_TURNS, 0, &before));
    AF_TRY(af_prefix_compare(w, i + 1, AF_PREFIX_TURNS, 0, &with));
    af_span place = {before.at, AF_MAX(with.at, before.at)};
    const json_t *content = json_object_get(af_mask_message(w, i), "content");
    const char *c = json_is_string(content) ? json_string_value(content) : "";
    uint64_t n = json_is_string(content) ? json_string_length(content) : 0;
    while (n && strchr(" \t\r\n", c[n - 1]))
        n--;
    while (n && strchr(" \t\r\n", *c)) {
        c++;
        n--;
    }
    if (n && af_find_last(w->out->text, place.begin, place.end, c, n) == UINT64_MAX)
        AF_TRY(af_content_place(w, i, c, n, &place));
    af_span eot = {place.end, place.end};
    (void)af_find_eot(w->s, w->out->text, place.begin, place.end, &eot);
    uint64_t at = af_find_last(w->out->text, place.begin, place.end, c, n);
    if (at != UINT64_MAX && at < eot.end && at + n > eot.begin) /* inside the end-of-turn token */
        at = af_find_last(w->out->text, place.begin, eot.begin, c, n);
    out->start = at != UINT64_MAX ? at : place.begin;
    out->end = out->eot = at != UINT64_MAX ? at + n : place.end;
    (void)find_eot(w, out->end, place.end, out);
    out->fits = true;
done:
    return st;
}

/* The block of a template that marks answers itself; it is kept whole. */
static af_status marked_span(const af_mask_work *w, size_t i, af_turn_span *out)
{
    const af_span mark = w->mark[i];
    af_status st = AF_OK;
    *out =
        (af_turn_span){.start = mark.begin, .end = mark.end, .eot = mark.end, .same = mark.begin};
    if (find_eot(w, mark.begin, mark.end, out))
        out->end = mark.end;
    if (i + 1 < w->messages &&
        (w->s->split_turns || (!w->out->missing.message && !shows_all(w, i, mark))))
        st = af_answer_lost(w, i, mark, &out->lost);
    out->fits = !(out->lost && w->s->split_turns);
    return st;
}

static af_status turn_of(const af_mask_work *w, size_t i, af_turn_span *out)
{
    if (!is_assistant(w, i))
        return other_span(w, i, out);
    if (w->mark)
        return marked_span(w, i, out);
    const af_status st = assistant_span(w, i, out);
    if (st != AF_EFORMAT || !w->anchor->head)
        return st;
    af_mask_anchor_drop(w->anchor); /* is that so without windows? */
    *out = (af_turn_span){0};
    return assistant_span(w, i, out);
}

static bool should_train(const af_mask_work *w, size_t i)
{
    return w->t->train[i] && af_role_trained(w->source, af_mask_role(w, i));
}

static bool trained(const af_mask_work *w, size_t i)
{
    return should_train(w, i) && (!w->only || w->only[i]) && (!w->s->mask_history || i == w->last);
}

static void add_span(const af_mask_work *w, uint64_t begin, uint64_t end)
{
    if (begin < end)
        w->out->span[w->out->count++] = (af_span){begin, end};
}

static uint64_t skip_blanks(const char *text, uint64_t at, uint64_t end)
{
    while (at < end && strchr(" \t\r\n\v\f", text[at]) && text[at])
        at++;
    return at;
}

/* Where an answer begins after an empty thought: as ms-swift has it with ignore_empty_think. */
static uint64_t after_thought(const af_mask_work *w, uint64_t begin, uint64_t end)
{
    static const struct {
        const char *open, *close; /* with blanks between and after them, if `blanks` */
        bool blanks;
    } forms[] = {{"<think>", "</think>", true},
                 {"", "</think>", true},
                 {"", "</mm:think>", true},
                 {"<|channel>thought\n", "<channel|>", false}};
    const char *text = w->out->text;
    for (size_t i = 0; i < AF_LEN(forms) && w->s->mask_empty_thoughts; i++) {
        const uint64_t open = strlen(forms[i].open), close = strlen(forms[i].close);
        uint64_t at = begin;
        if (end - at < open || memcmp(text + at, forms[i].open, open) != 0)
            continue;
        at = open && forms[i].blanks ? skip_blanks(text, at + open, end) : at + open;
        if (end - at < close || memcmp(text + at, forms[i].close, close) != 0)
            continue;
        return forms[i].blanks ? skip_blanks(text, at + close, end) : at + close;
    }
    return begin;
}

/* The trained part of a turn, by train_on_eos. */
static void add_turn(const af_mask_work *w, size_t i, const af_turn_span *s)
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
        add_span(w, is_assistant(w, i) ? after_thought(w, s->start, s->eot) : s->start,
                 eot ? s->end : s->eot);
    else if (eot)
        add_span(w, s->eot, s->end);
    if (!train || !is_assistant(w, i))
        return;
    const uint64_t from = s->start - AF_MIN(s->start, PROMPT_END);
    const char *missing =
        af_answer_missing(af_mask_message(w, i), w->out->text + from, s->end - from);
    if (missing && !w->out->missing.message)
        w->out->missing = (af_answer_note){i + 1, missing, s->lost};
    if (s->departs && !w->out->departs.message)
        w->out->departs = (af_answer_note){.message = i + 1};
}

/* The turn needs a row of its own. */
static void leave(const af_mask_work *w, size_t i)
{
    w->out->left[i] = true;
    w->out->left_to = AF_MAX(w->out->left_to, i + 1);
}

/* Every assistant message is trained, with its end. */
static bool all_alike(const af_mask_work *w)
{
    for (size_t i = 0; i < w->messages; i++)
        if (is_assistant(w, i) && !trained(w, i))
            return false;
    return w->source->train_on_eos == AF_TRAIN_EOS_TURN;
}

static size_t assistants(const af_mask_work *w)
{
    size_t n = 0;
    for (size_t i = 0; i < w->messages; i++)
        n += is_assistant(w, i);
    return n;
}

/* Blocks of another number than the assistant messages, all of which are trained: it does not
 * matter which is whose. */
static void take_marks(const af_mask_work *w, const af_spans *marks)
{
    for (uint64_t i = 0; i < marks->count; i++)
        add_span(w, after_thought(w, marks->item[i].begin, marks->item[i].end), marks->item[i].end);
}

/* {% generation %} blocks are the assistant messages in order: here each gets its own. */
static af_status spread_marks(af_mask_work *w, af_spans *marks)
{
    af_span *item = af_realloc(marks->item, w->messages, sizeof *item);
    if (!item)
        return af_fail_nomem(w->err, "a loss mask", w->messages);
    marks->item = item;
    for (size_t i = w->messages, k = marks->count; i-- > 0;)
        if (is_assistant(w, i))
            item[i] = item[--k];
    w->mark = item;
    return AF_OK;
}

/* True when the marks can be matched with the messages. */
static bool marks_fit(const af_mask_work *w, const af_spans *marks)
{
    for (size_t i = 0; i < w->messages; i++)
        if (!is_assistant(w, i) && trained(w, i))
            return false;
    return marks->count && (marks->count == assistants(w) || all_alike(w)) &&
           w->source->train_on_eos != AF_TRAIN_EOS_ALL;
}

/* The answers that other rows left. Where one does not fit, those before it are not tried: such
 * templates show answers whole after the last question, and a row per answer is not wrong. */
static af_status left_spans(af_mask_work *w)
{
    bool fits = true;
    for (size_t i = w->messages; i-- > 0;) {
        af_turn_span s = {0};
        if (!trained(w, i))
            continue;
        if (fits) {
            const af_status st = turn_of(w, i, &s);
            if (st != AF_OK || w->out->other)
                return st;
        }
        fits = fits && s.fits;
        if (fits)
            add_turn(w, i, &s);
        else
            leave(w, i);
    }
    for (int a = 0, b = w->out->count - 1; a < b; a++, b--) { /* spans come in order */
        const af_span s = w->out->span[a];
        w->out->span[a] = w->out->span[b];
        w->out->span[b] = s;
    }
    return AF_OK;
}

static bool asks(const af_mask_work *w, size_t i)
{
    return strcmp(af_mask_role(w, i), "user") == 0;
}

/* Where an answer needs a row, so do those after it up to the next question, whose prompts have it:
 * one row shows them. They are not tried: that takes renderings of the whole for each. */
static af_status differential_spans(af_mask_work *w)
{
    const bool all = w->source->train_on_eos == AF_TRAIN_EOS_ALL;
    bool beyond = false; /* what comes is cut away, in rows, too */
    bool left = false;   /* an answer since the last question */
    size_t question = w->messages;
    while (question > 0 && !asks(w, --question))
        ;
    for (size_t i = 0; i < w->messages; i++) {
        af_turn_span s = {0};
        left = left && !asks(w, i) && i < question;
        if (i == question)
            w->anchor->useless = false; /* those of answers that needed rows were */
        if (left && trained(w, i) && is_assistant(w, i)) {
            leave(w, i);
            continue;
        }
        if (!trained(w, i) && !all)
            continue;
        if (beyond) {
            if (!w->out->count && trained(w, i)) /* every answer has a row: they are counted */
                leave(w, i);
            continue;
        }
        const af_status st = turn_of(w, i, &s);
        if (st != AF_OK)
            return st;
        if (s.fits)
            add_turn(w, i, &s);
        else if (trained(w, i))
            leave(w, i);
        left = left || (!s.fits && trained(w, i) && is_assistant(w, i));
        beyond = w->out->cut && s.same >= w->out->cut;
    }
    return AF_OK;
}

/* Loss everywhere but on the messages that are flagged off. */
static af_status excepted_spans(af_mask_work *w)
{
    w->out->inside = false;
    for (size_t i = 0; i < w->messages; i++) {
        af_turn_span s = {0};
        if (w->t->train[i])
            continue;
        const af_status st = turn_of(w, i, &s);
        if (st != AF_OK)
            return st;
        if (!s.fits)
            return no_start(w, i);
        add_span(w, s.start, s.end);
    }
    return AF_OK;
}

static af_status find_spans(af_mask_work *w, af_spans *marks)
{
    af_status st = AF_OK;
    if (w->source->train_on_inputs)
        return excepted_spans(w);
    if (marks_fit(w, marks) && marks->count != assistants(w)) {
        take_marks(w, marks);
        return AF_OK;
    }
    if (marks_fit(w, marks))
        AF_TRY(spread_marks(w, marks));
    st = w->only ? left_spans(w) : differential_spans(w);
done:
    return st;
}

/* Starts again with the other text. */
static void take_other(af_loss_spans *o, size_t messages)
{
    free(o->text);
    o->text = o->other;
    o->len = o->other_len;
    o->other = NULL;
    o->count = 0;
    o->left_to = 0;
    o->cut = 0;
    o->missing = o->departs = (af_answer_note){0};
    memset(o->left, 0, messages * sizeof *o->left);
}

af_status af_mask_spans(af_renderer *s, af_loss_spans *out, const af_conversation *t,
                        const af_mask_part *part, af_prefix_cache *cache,
                        const af_data_source *source, af_error *err)
{
    af_status st = AF_OK;
    af_loss_spans o = {.inside = true};
    af_spans marks = {0};
    af_mask_anchor anchor = {0};
    const size_t n = part->messages;
    af_mask_work w = {.s = s,
                      .t = t,
                      .source = source,
                      .out = &o,
                      .anchor = &anchor,
                      .cache = cache,
                      .messages = n,
                      .only = part->only,
                      .err = err};
    const size_t all = json_array_size(t->messages);
    if (all > MESSAGES_MAX)
        return af_fail(err, AF_EFORMAT, "a conversation of %zu messages; at most %d are allowed",
                       all, MESSAGES_MAX);
    const bool marked = af_template_marks_generation(s->chat);
    AF_TRY(af_answer_render(&w, n, &o.text, &o.len, marked ? &marks : NULL));
    o.span = af_calloc(AF_MAX(n, marks.count) + 1, sizeof *o.span);
    o.left = af_calloc(n + 1, sizeof *o.left);
    if (!o.span || !o.left) {
        st = af_fail_nomem(err, "a loss mask", n);
        goto done;
    }
    for (size_t i = 0; i < all; i++)
        w.last = should_train(&w, i) ? i : w.last;
    if (!w.only && s->cutoff > 0 && n >= CUT_FROM)
        AF_TRY(af_loss_spans_cut(s, &o, err));
    AF_TRY(find_spans(&w, &marks));
    if (o.other) {
        take_other(&o, n);
        af_mask_anchor_clear(&anchor);
        AF_TRY(find_spans(&w, &marks));
    }
    if (!w.only)
        AF_TRY(af_message_unshown(&w, &o.unshown));
    *out = o;
    o = (af_loss_spans){0};
done:
    af_mask_anchor_clear(&anchor);
    af_spans_clear(&marks);
    af_loss_spans_clear(&o);
    return st;
}
