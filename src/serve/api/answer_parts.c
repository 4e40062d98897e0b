/* answer_parts.c - the text of an answer as parts: reasoning, calls, and the content around them.
 *
 * Reasoning is at the beginning, between two marks; templates of some models end with the first of
 * them. It is taken out when the request or the server asks for that (reasoning_format). Answers in
 * channels (channels.h) are always taken apart: without their marks they would say nothing. */
#include "serve/api/generation.h"

static const char *const marks[][2] = {{"<think>", "</think>"},
                                       {"[THINK]", "[/THINK]"},
                                       {"<seed:think>", "</seed:think>"},
                                       {"<|START_THINKING|>", "<|END_THINKING|>"},
                                       {"<|channel>thought", "<channel|>"}}; /* Gemma 4 */

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

bool af_is_reasoning_mark(const char *token)
{
    const size_t n = token ? strlen(token) : 0;
    for (size_t i = 0; n > 2 && i < AF_LEN(marks); i++) /* the first may be a token and a word */
        if (strncmp(marks[i][0], token, n) == 0 || strcmp(marks[i][1], token) == 0)
            return true;
    return false;
}

const char *af_reasoning_opened(const char *prompt, uint64_t n)
{
    while (n && is_space(prompt[n - 1]))
        n--;
    for (size_t i = 0; i < AF_LEN(marks); i++) {
        const size_t len = strlen(marks[i][0]);
        if (n >= len && memcmp(prompt + n - len, marks[i][0], len) == 0)
            return marks[i][1];
    }
    return NULL;
}

/* ---- reasoning ---- */

/* The first mark, or what cannot become one. */
static void look_for_start(af_choice *c, uint64_t end, bool last)
{
    const char *text = c->text.text.data;
    uint64_t at = c->parsed;
    while (at < end && is_space(text[at]))
        at++;
    for (size_t i = 0; i < AF_LEN(marks); i++) {
        const uint64_t len = strlen(marks[i][0]), n = AF_MIN(len, end - at);
        if (n && memcmp(text + at, marks[i][0], n) != 0)
            continue;
        if (n < len && !last)
            return; /* more may come */
        if (n == len) {
            c->parsed = at + len;
            c->reasoning.close = marks[i][1];
            c->reasoning.state = AF_REASONING_INSIDE;
            return;
        }
    }
    c->reasoning.state = AF_REASONING_DONE;
}

/* The byte where `mark` begins in text[from, end), or may begin when more comes; end: nowhere. */
static uint64_t find_mark(const char *text, uint64_t from, uint64_t end, const char *mark)
{
    const uint64_t len = strlen(mark);
    for (uint64_t at = from; at < end; at++)
        if (memcmp(text + at, mark, AF_MIN(len, end - at)) == 0)
            return at;
    return end;
}

/* Up to the second mark; spaces around the text are not part of it. */
static void take_reasoning(af_choice *c, uint64_t end, bool last)
{
    const char *text = c->text.text.data;
    const uint64_t len = strlen(c->reasoning.close);
    while (c->parsed < end && c->reasoning.text.len == 0 && is_space(text[c->parsed]))
        c->parsed++;
    const uint64_t at = find_mark(text, c->parsed, end, c->reasoning.close);
    const bool closed = end - at >= len;
    uint64_t to = last && !closed ? end : at;
    while (to > c->parsed && is_space(text[to - 1]))
        to--;
    af_buf_add(&c->reasoning.text, text + c->parsed, to - c->parsed);
    c->reasoning.tokens = c->text.count;
    c->parsed = closed ? at + len : last ? end : to;
    if (closed)
        c->reasoning.state = AF_REASONING_AFTER;
}

/* Moves c->parsed over what is not content. False: content has not begun. */
static bool take_beginning(af_choice *c, bool last)
{
    const uint64_t end = c->text.safe;
    if (c->reasoning.state == AF_REASONING_START)
        look_for_start(c, end, last);
    if (c->reasoning.state == AF_REASONING_INSIDE)
        take_reasoning(c, end, last);
    if (c->reasoning.state == AF_REASONING_AFTER) {
        while (c->parsed < end && is_space(c->text.text.data[c->parsed]))
            c->parsed++;
        if (c->parsed < end)
            c->reasoning.state = AF_REASONING_DONE;
    }
    return c->reasoning.state == AF_REASONING_OFF || c->reasoning.state == AF_REASONING_DONE;
}

/* ---- channels ---- */

static void add_message_text(void *user, af_channel_kind now, const char *text, uint64_t n)
{
    af_choice *c = user;
    af_buf *to = now == AF_CHANNEL_REASONING ? &c->reasoning.text
                 : now == AF_CHANNEL_CALL    ? &c->message.call
                                             : &c->content;
    if (!c->message.begun && to->len)
        af_buf_char(to, '\n');
    c->message.begun = true;
    c->reasoning.state = now == AF_CHANNEL_REASONING ? AF_REASONING_INSIDE : AF_REASONING_DONE;
    af_buf_add(to, text, n);
}

static void end_message(void *user, af_channel_kind now, const char *to)
{
    af_choice *c = user;
    af_buf *call = &c->message.call;
    if (now == AF_CHANNEL_CALL &&
        !(c->parser && call->len && af_tool_parser_report(c->parser, to, call->data)))
        af_buf_add(&c->content, call->data ? call->data : "", call->len);
    if (now == AF_CHANNEL_REASONING)
        c->reasoning.tokens += c->text.count - c->message.tokens;
    c->content.bad |= call->bad;
    call->len = 0;
    c->message.tokens = c->text.count;
    c->message.begun = false;
    /* a message that the reader does not see is not the last one: this one was cut off */
    c->reasoning.state =
        c->message.last && now == AF_CHANNEL_REASONING ? AF_REASONING_INSIDE : AF_REASONING_DONE;
    if (!c->of->answered) /* parts go out in the order of the messages */
        c->of->form->piece(c);
}

static af_status parse_channels(af_choice *c, bool last, af_error *err)
{
    af_status st = AF_OK;
    const af_answer_text *t = &c->text;
    if (t->safe > c->parsed)
        AF_TRY(af_channels_add(c->channels, t->text.data + c->parsed, t->safe - c->parsed, err));
    c->parsed = t->safe;
    c->message.last = last;
    if (last)
        AF_TRY(af_channels_finish(c->channels, err));
done:
    return st;
}

/* ---- parts ---- */

af_status af_choice_reasoning(af_choice *c, af_error *err)
{
    const af_generation *g = c->of;
    if (g->channels) {
        const af_channel_sink sink = {add_message_text, end_message, c};
        c->reasoning.state = AF_REASONING_DONE;
        return af_channels_new(&c->channels, g->begun.data ? g->begun.data : "", g->begun.len,
                               &sink, err);
    }
    if (g->reasoning) {
        /* a constrained answer is content from its first token */
        c->reasoning.close = g->grammar ? NULL : g->opened;
        c->reasoning.state = c->reasoning.close ? AF_REASONING_INSIDE : AF_REASONING_START;
    }
    return AF_OK;
}

bool af_choice_has_parts(const af_choice *c)
{
    return c->parser || c->reasoning.state != AF_REASONING_OFF;
}

af_status af_choice_parse(af_choice *c, bool last, af_error *err)
{
    af_status st = AF_OK;
    const af_answer_text *t = &c->text;
    if (c->of->channels) {
        AF_TRY(parse_channels(c, last, err));
    } else if (take_beginning(c, last) && t->safe > c->parsed) {
        const char *more = t->text.data + c->parsed;
        if (c->parser)
            AF_TRY(af_tool_parser_add(c->parser, more, t->safe - c->parsed, err));
        else
            af_buf_add(&c->content, more, t->safe - c->parsed);
        c->parsed = t->safe;
    }
    if (last && c->parser && !c->of->channels)
        AF_TRY(af_tool_parser_finish(c->parser, err));
    if (c->content.bad || c->reasoning.text.bad || c->calls.bad || c->new_calls.bad)
        AF_TRY(af_fail_nomem(err, "the answer", t->text.len));
done:
    return st;
}

const af_buf *af_choice_content(const af_choice *c)
{
    return af_choice_has_parts(c) ? &c->content : &c->text.text;
}
