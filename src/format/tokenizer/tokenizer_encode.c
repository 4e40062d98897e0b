/* tokenizer_encode.c - one encode call from text to ids, and the post-processors. */
#include "format/tokenizer/tokenizer.h"

static af_work *work_take(const af_tokenizer *t)
{
    af_tokenizer *mine = (af_tokenizer *)t; /* the list of idle memory is not part of its value */
    pthread_mutex_lock(&mine->lock);
    af_work *w = mine->idle;
    if (w)
        mine->idle = w->next;
    pthread_mutex_unlock(&mine->lock);
    if (!w)
        w = af_calloc(1, sizeof *w);
    if (w) {
        w->t = t;
        w->next = NULL;
        w->segment_count = 0;
        w->word.bad = false;
    }
    return w;
}

static void work_release(const af_tokenizer *t, af_work *w)
{
    af_tokenizer *mine = (af_tokenizer *)t;
    pthread_mutex_lock(&mine->lock);
    w->next = mine->idle;
    mine->idle = w;
    pthread_mutex_unlock(&mine->lock);
}

static af_status after_normalize(af_work *w, const af_piece *p) { return af_pre_run(w, 0, p); }

static af_status after_raw(af_work *w, const af_piece *p)
{
    af_piece q = *p;
    const af_status st = af_normalize(w, &q);
    q = af_piece_slice(&q, 0, q.len); /* it now begins where its first character came from */
    return st == AF_OK ? af_added_split(w, &w->t->normalized, &q, after_normalize) : st;
}

static uint32_t blanks_at(const af_tokenizer *t, af_str s, bool from_end)
{
    uint32_t count = 0, cp;
    for (uint32_t i = 0, n; i < s.n; i += n, count++) {
        n = from_end ? af_utf8_back(s.s + s.n - i, &cp) : af_utf8_get(s.s + i, &cp);
        if (cp != 0x120 && !af_unicode_space(t->unicode, cp)) /* 0x120: the spelling of a blank */
            break;
    }
    return count;
}

/* Offsets without the blanks that the token begins or ends with. */
static void trim(const af_tokenizer *t, const af_post *p, af_encoding *e)
{
    for (int64_t i = 0; i < e->count; i++) {
        uint64_t n;
        const char *s = af_tokenizer_token(t, e->ids[i], &n);
        if (!s)
            continue;
        const af_str str = {s, (uint32_t)n};
        uint32_t head = blanks_at(t, str, false);
        const uint32_t tail = blanks_at(t, str, true);
        if (head == 1 && p->prefix_space && (i == 0 || e->start[i] == 0))
            head = 0; /* the blank may be the one we put there */
        e->start[i] = AF_MIN(e->start[i] + head, e->end[i]);
        if (tail && e->end[i] >= tail)
            e->end[i] = AF_MAX(e->end[i] - tail, e->start[i]);
    }
}

static af_status apply_template(af_work *w, const af_post *p)
{
    af_status st = AF_OK;
    af_encoding *e = w->out, text = *e;
    const af_piece none = {.text = ""};
    *e = (af_encoding){0};
    for (int i = 0; i < p->count; i++) {
        if (p->ids[i] != AF_POST_TEXT) {
            AF_TRY(af_emit(w, &none, p->ids[i], 0, 0));
            continue;
        }
        for (int64_t k = 0; k < text.count; k++) {
            AF_TRY(af_emit(w, &none, text.ids[k], 0, 0));
            e->start[e->count - 1] = text.start[k];
            e->end[e->count - 1] = text.end[k];
        }
    }
done:
    af_encoding_clear(&text);
    return st;
}

/* The usual template, tokens in front of the text and after it, without a second buffer. */
static af_status add_around(af_work *w, const af_post *p)
{
    af_encoding *e = w->out;
    af_status st = AF_OK;
    const af_piece none = {.text = ""};
    int at = 0;
    while (at < p->count && p->ids[at] != AF_POST_TEXT)
        at++;
    for (int i = at + 1; i < p->count; i++)
        if (p->ids[i] == AF_POST_TEXT)
            return apply_template(w, p);
    if (at == p->count)
        return apply_template(w, p);
    const int64_t count = e->count;
    for (int i = 0; i < p->count; i++) /* space, and the tail in place once the text has moved */
        if (i != at)
            AF_TRY(af_emit(w, &none, p->ids[i], 0, 0));
    if (at > 0 && count > 0) {
        memmove(e->ids + at, e->ids, (size_t)count * sizeof *e->ids);
        memmove(e->start + at, e->start, (size_t)count * sizeof *e->start);
        memmove(e->end + at, e->end, (size_t)count * sizeof *e->end);
    }
    for (int i = 0; i < at; i++) {
        e->ids[i] = p->ids[i];
        e->start[i] = e->end[i] = 0;
    }
    for (int64_t i = at + count; i < e->count; i++) {
        e->ids[i] = p->ids[i - count + 1];
        e->start[i] = e->end[i] = 0;
    }
done:
    return st;
}

static af_status post_process(af_work *w, bool add_special_tokens)
{
    af_status st = AF_OK;
    for (int i = 0; i < w->t->posts; i++) {
        const af_post *p = &w->t->post[i];
        if (p->kind == AF_POST_TRIM)
            trim(w->t, p, w->out);
        else if (add_special_tokens)
            AF_TRY(add_around(w, p));
    }
done:
    return st;
}

af_status af_tokenizer_encode(const af_tokenizer *t, af_encoding *out, const char *text,
                              uint64_t len, bool add_special_tokens, af_error *err)
{
    AF_NEED(err, t, out, text || !len);
    af_status st = AF_OK;
    out->count = 0;
    if (len > AF_TOKENIZER_TEXT_MAX)
        return af_fail(err, AF_EUNSUPPORTED, "a text of %" PRIu64 " bytes is longer than %d", len,
                       AF_TOKENIZER_TEXT_MAX);
    const uint64_t good = af_utf8_valid(text, len);
    if (good != len)
        return af_fail(err, AF_EFORMAT, "the text is not UTF-8 at byte %" PRIu64 " of %" PRIu64,
                       good, len);
    af_work *w = work_take(t);
    if (!w)
        return af_fail_nomem(err, "encoding a text", sizeof *w);
    w->out = out;
    w->text = text;
    w->len = (uint32_t)len;
    w->err = err;
    const af_piece all = {.text = text, .len = (uint32_t)len};
    AF_TRY(af_added_split(w, &t->raw, &all, after_raw));
    AF_TRY(post_process(w, add_special_tokens));
done:
    if (st != AF_OK)
        out->count = 0;
    work_release(t, w);
    return st;
}

void af_encoding_clear(af_encoding *e)
{
    if (!e)
        return;
    free(e->ids);
    free(e->start);
    free(e->end);
    *e = (af_encoding){0};
}
