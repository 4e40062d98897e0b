#define _GNU_SOURCE /* memmem */
/* channels.c - see channels.h. */
#include "decode/channels.h"
#include "base/buf.h"

static const char message[] = "<|message|>", channel[] = "<|channel|>", start[] = "<|start|>";
/* What a message ends with; the last two begin the next one. */
static const char *const ends[] = {"<|end|>", "<|call|>", "<|return|>", start, channel};
enum { ENDS = sizeof ends / sizeof *ends, HEAD_MAX = 1024 };

struct af_channels {
    af_channel_kind now;
    af_buf held; /* text that is not known yet to be a head or part of a mark */
    af_buf to;   /* a call: the name of its function */
    af_channel_sink sink;
};

bool af_channels_used(const char *source)
{
    return source && strstr(source, channel) && strstr(source, message) && strstr(source, start);
}

bool af_channels_mark(const char *token)
{
    for (int i = 0; token && i < ENDS; i++)
        if (strcmp(token, ends[i]) == 0)
            return true;
    return token && (strcmp(token, message) == 0 || strcmp(token, "<|constrain|>") == 0);
}

bool af_template_has_channels(const af_template *t)
{
    return af_channels_used(af_template_source(t, NULL));
}

void af_channels_free(af_channels *c)
{
    if (!c)
        return;
    af_buf_clear(&c->held);
    af_buf_clear(&c->to);
    free(c);
}

/* The word after `mark` in a head, up to a blank or the next mark. */
static const char *word_after(const char *head, uint64_t n, const char *mark, uint64_t *len)
{
    const char *at = memmem(head, n, mark, strlen(mark)), *end = head + n;
    *len = 0;
    if (!at)
        return head;
    at += strlen(mark);
    while (at + *len < end && !strchr(" \t\n<", at[*len]))
        ++*len;
    return at;
}

static bool is_word(const char *text, uint64_t n, const char *word)
{
    return n == strlen(word) && memcmp(text, word, n) == 0;
}

/* What a head says of its message. A tool that the client does not have is the model's own affair.
 */
static void read_head(af_channels *c, const char *head, uint64_t n)
{
    static const char prefix[] = "functions.";
    const uint64_t skip = sizeof prefix - 1;
    uint64_t to_len, kind_len;
    const char *to = word_after(head, n, "to=", &to_len);
    const char *kind = word_after(head, n, channel, &kind_len);
    const bool call = to_len > skip && memcmp(to, prefix, skip) == 0;
    c->to.len = 0;
    if (call)
        af_buf_add(&c->to, to + skip, to_len - skip);
    c->now = call                                            ? AF_CHANNEL_CALL
             : to_len || is_word(kind, kind_len, "analysis") ? AF_CHANNEL_REASONING
                                                             : AF_CHANNEL_CONTENT;
}

const char *af_channels_last(const char *prompt, uint64_t n)
{
    const char *last = NULL, *end = prompt + n;
    for (const char *at = prompt; (at = memmem(at, (uint64_t)(end - at), start, sizeof start - 1));)
        last = at += sizeof start - 1;
    return last ? last : end;
}

/* The message that the prompt ends with: its head is the answer's, or the answer is the rest. */
static void begin(af_channels *c, const char *head, uint64_t n)
{
    const char *end = head + n;
    const char *body = memmem(head, n, message, sizeof message - 1);
    for (int i = 0; body && i < 3; i++) /* a message that has ended is not continued */
        if (memmem(body, (uint64_t)(end - body), ends[i], strlen(ends[i])))
            return;
    if (body)
        read_head(c, head, (uint64_t)(body - head));
    else
        af_buf_add(&c->held, head, n); /* the role, and perhaps more */
}

af_status af_channels_new(af_channels **out, const char *last, uint64_t n,
                          const af_channel_sink *sink, af_error *err)
{
    AF_NEED(err, out, last || !n, sink);
    af_channels *c = af_calloc(1, sizeof *c);
    if (c) {
        c->sink = *sink;
        begin(c, last ? last : "", n);
    }
    if (!c || c->held.bad || c->to.bad) {
        af_channels_free(c);
        return af_fail_nomem(err, "the answer", n);
    }
    *out = c;
    return AF_OK;
}

static void drop(af_channels *c, uint64_t n)
{
    memmove(c->held.data, c->held.data + n, c->held.len - n);
    c->held.len -= n;
}

static void give(af_channels *c, uint64_t n)
{
    if (n && c->sink.text)
        c->sink.text(c->sink.user, c->now, c->held.data, n);
    drop(c, n);
}

/* May the text be the beginning of a head? */
static bool may_be_head(const af_channels *c)
{
    static const char *const begins[] = {"assistant", "to=", "<|"};
    const char *s = c->held.data;
    uint64_t n = c->held.len;
    while (n && strchr(" \n", *s)) {
        s++;
        n--;
    }
    if (n > strlen(begins[0]) && memcmp(s, begins[0], strlen(begins[0])) == 0) {
        s += strlen(begins[0]);
        n -= strlen(begins[0]);
        while (n && *s == ' ') {
            s++;
            n--;
        }
    }
    for (size_t i = 0; i < AF_LEN(begins); i++)
        if (memcmp(s, begins[i], AF_MIN(n, strlen(begins[i]))) == 0)
            return c->held.len < HEAD_MAX;
    return false;
}

/* Between messages. True: one has begun. */
static bool take_head(af_channels *c, bool last)
{
    const char *hit =
        c->held.len ? memmem(c->held.data, c->held.len, message, sizeof message - 1) : NULL;
    if (c->held.len && !may_be_head(c)) {
        static const char role[] = "assistant";
        const uint64_t n = sizeof role - 1;
        c->now = AF_CHANNEL_CONTENT;
        if (c->held.len >= n && memcmp(c->held.data, role, n) == 0)
            drop(c, n);
        return true;
    }
    if (!hit) {
        c->held.len = last ? 0 : c->held.len;
        return false;
    }
    const uint64_t n = (uint64_t)(hit - c->held.data);
    read_head(c, c->held.data, n);
    drop(c, n + sizeof message - 1);
    return true;
}

/* Bytes at the end that may be the beginning of a mark. */
static uint64_t begun_mark(const af_buf *b)
{
    uint64_t most = 0;
    for (int i = 0; i < ENDS; i++)
        for (uint64_t k = AF_MIN(strlen(ends[i]) - 1, b->len); k > most; k--)
            if (memcmp(b->data + b->len - k, ends[i], k) == 0)
                most = k;
    return most;
}

/* In a message. True: it has ended. */
static bool take_body(af_channels *c, bool last)
{
    uint64_t at = c->held.len, mark = 0;
    for (int i = 0; c->held.len && i < ENDS; i++) {
        const char *hit = memmem(c->held.data, c->held.len, ends[i], strlen(ends[i]));
        if (!hit || (uint64_t)(hit - c->held.data) >= at)
            continue;
        at = (uint64_t)(hit - c->held.data);
        mark = i < 3 ? strlen(ends[i]) : 0;
    }
    const bool ended = at < c->held.len || last;
    give(c, ended ? at : at - begun_mark(&c->held));
    if (!ended)
        return false;
    drop(c, mark);
    if (c->sink.end)
        c->sink.end(c->sink.user, c->now, c->to.len ? c->to.data : "");
    c->now = AF_CHANNEL_NONE;
    return true;
}

static af_status read_all(af_channels *c, bool last, af_error *err)
{
    for (bool more = true; more && !c->held.bad && !c->to.bad;) {
        if (c->now == AF_CHANNEL_NONE)
            more = c->held.len && take_head(c, last);
        else
            more = take_body(c, last) && c->held.len;
    }
    if (c->held.bad || c->to.bad)
        return af_fail_nomem(err, "the answer", c->held.len);
    return AF_OK;
}

af_status af_channels_add(af_channels *c, const char *text, uint64_t n, af_error *err)
{
    AF_NEED(err, c, text || !n);
    af_buf_add(&c->held, text, n);
    return read_all(c, false, err);
}

af_status af_channels_finish(af_channels *c, af_error *err)
{
    AF_NEED(err, c);
    return read_all(c, true, err);
}
