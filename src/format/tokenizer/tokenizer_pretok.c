/* tokenizer_pretok.c - the pre-tokenizers: each cuts a piece and passes the parts to the next one.
 *
 * Splitting is: find the matches, turn the text into segments (match or not), join segments as the
 * behaviour says, and are passed on. Segments of nested stages share one stack. The usual case,
 * every match on its own, needs no segments and goes straight on. */
#include "format/tokenizer/tokenizer.h"

static af_status hand_on(af_work *w, int stage, const af_piece *p, uint32_t i, uint32_t j)
{
    if (i >= j)
        return AF_OK;
    const af_piece part = af_piece_slice(p, i, j);
    return af_pre_run(w, stage + 1, &part);
}

static af_status push(af_work *w, uint32_t start, uint32_t end, bool match)
{
    if (!af_grow(&w->segment, &w->segment_cap, (uint64_t)w->segment_count + 1, sizeof *w->segment))
        return af_fail_nomem(w->err, "the pieces of a text", w->segment_count * sizeof *w->segment);
    w->segment[w->segment_count++] = (af_segment){start, end, match};
    return AF_OK;
}

/* Joins segments [base, segment_count) by the behaviour; afterwards match means: leave out. */
static void join(af_work *w, uint32_t base, af_behavior how)
{
    af_segment *s = w->segment + base;
    const uint32_t n = w->segment_count - base;
    uint32_t kept = 0;
    bool previous = false;
    if (how == AF_BEHAVIOR_REMOVED)
        return;
    if (how == AF_BEHAVIOR_MERGED_NEXT) { /* from the end, then put back in order */
        kept = n;
        for (uint32_t i = n; i-- > 0;) {
            const bool match = s[i].match;
            if (match && !previous && kept < n)
                s[kept].start = s[i].start;
            else
                s[--kept] = (af_segment){s[i].start, s[i].end, false};
            previous = match;
        }
        memmove(s, s + kept, (n - kept) * sizeof *s);
        w->segment_count = base + n - kept;
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        const bool match = s[i].match;
        const bool together = how == AF_BEHAVIOR_CONTIGUOUS        ? match == previous
                              : how == AF_BEHAVIOR_MERGED_PREVIOUS ? match && !previous
                                                                   : false;
        if (together && kept > 0)
            s[kept - 1].end = s[i].end;
        else
            s[kept++] = (af_segment){s[i].start, s[i].end, false};
        previous = match;
    }
    w->segment_count = base + kept;
}

static af_status hand_on_segments(af_work *w, int stage, const af_piece *p, uint32_t base)
{
    af_status st = AF_OK;
    const uint32_t count = w->segment_count;
    for (uint32_t i = base; i < count; i++) {
        const af_segment s = w->segment[i];
        if (!s.match)
            AF_TRY(hand_on(w, stage, p, s.start, s.end));
    }
done:
    w->segment_count = base;
    return st;
}

/* Calls itself through `each` for every match of a pattern, in order. */
typedef struct matches {
    af_work *w;
    const af_pre *pre;
    const af_piece *p;
    uint32_t from, last;
} matches;

static af_status next_literal(matches *m, uint32_t *start, uint32_t *end)
{
    const af_str *t = &m->pre->pattern;
    *start = UINT32_MAX;
    for (uint32_t i = m->from; t->n && i + t->n <= m->p->len; i++)
        if (memcmp(m->p->text + i, t->s, t->n) == 0) {
            *start = i;
            *end = i + t->n;
            break;
        }
    return AF_OK;
}

/* An empty match right after the last match does not count: the search resumes one character
 * further. */
static af_status next_match(matches *m, uint32_t *start, uint32_t *end)
{
    af_status st = AF_OK;
    for (;;) {
        *start = UINT32_MAX;
        if (m->from > m->p->len)
            return AF_OK;
        if (m->pre->regex)
            AF_TRY(af_regex_next(m->pre->regex, &m->w->regex, m->p->text, m->p->len, m->from, start,
                                 end, m->w->err));
        else
            AF_TRY(next_literal(m, start, end));
        if (*start == UINT32_MAX || *start != *end || m->last != *end)
            break;
        m->from += m->from < m->p->len ? af_utf8_len(m->p->text[m->from]) : 1;
    }
    m->from = m->last = *end;
done:
    return st;
}

static af_status isolate(af_work *w, int stage, const af_piece *p)
{
    af_status st = AF_OK;
    const af_pre *pre = &w->t->pre[stage];
    if (pre->scanner) {
        for (uint32_t i = 0, n; i < p->len; i += n) {
            n = pre->scanner(w->t->unicode, p->text, p->len, i);
            AF_TRY(hand_on(w, stage, p, i, i + n));
        }
        return AF_OK;
    }
    matches m = {.w = w, .pre = pre, .p = p, .last = UINT32_MAX};
    uint32_t at = 0, start, end = 0;
    AF_TRY(next_match(&m, &start, &end));
    while (start != UINT32_MAX) {
        AF_TRY(hand_on(w, stage, p, at, start));
        AF_TRY(hand_on(w, stage, p, start, end));
        at = end;
        AF_TRY(next_match(&m, &start, &end));
    }
    AF_TRY(hand_on(w, stage, p, at, p->len));
done:
    return st;
}

static af_status split(af_work *w, int stage, const af_piece *p)
{
    af_status st = AF_OK;
    const af_pre *pre = &w->t->pre[stage];
    if (pre->behavior == AF_BEHAVIOR_ISOLATED)
        return isolate(w, stage, p);
    const uint32_t base = w->segment_count;
    if (pre->scanner) {
        for (uint32_t i = 0, n; i < p->len; i += n) {
            n = pre->scanner(w->t->unicode, p->text, p->len, i);
            AF_TRY(push(w, i, i + n, !pre->invert));
        }
    } else {
        matches m = {.w = w, .pre = pre, .p = p, .last = UINT32_MAX};
        uint32_t at = 0, start, end = 0;
        AF_TRY(next_match(&m, &start, &end));
        while (start != UINT32_MAX) {
            if (at != start)
                AF_TRY(push(w, at, start, pre->invert));
            AF_TRY(push(w, start, end, !pre->invert));
            at = end;
            AF_TRY(next_match(&m, &start, &end));
        }
        if (at != p->len)
            AF_TRY(push(w, at, p->len, pre->invert));
    }
    join(w, base, pre->behavior);
    AF_TRY(hand_on_segments(w, stage, p, base));
done:
    w->segment_count = base;
    return st;
}

/* Every character that `is` accepts is a match of its own. */
typedef bool char_test(const af_work *w, const af_pre *pre, uint32_t cp);

static af_status split_chars(af_work *w, int stage, const af_piece *p, char_test *is,
                             af_behavior how)
{
    af_status st = AF_OK;
    const uint32_t base = w->segment_count;
    uint32_t at = 0, cp;
    for (uint32_t i = 0, n; i < p->len; i += n) {
        n = af_utf8_get(p->text + i, &cp);
        if (!is(w, &w->t->pre[stage], cp))
            continue;
        if (at < i)
            AF_TRY(push(w, at, i, false));
        AF_TRY(push(w, i, i + n, true));
        at = i + n;
    }
    if (at < p->len)
        AF_TRY(push(w, at, p->len, false));
    join(w, base, how);
    AF_TRY(hand_on_segments(w, stage, p, base));
done:
    w->segment_count = base;
    return st;
}

static bool is_replacement(const af_work *w, const af_pre *pre, uint32_t cp)
{
    (void)w;
    return cp == pre->replacement;
}
static bool is_number(const af_work *w, const af_pre *pre, uint32_t cp)
{
    (void)pre; /* the package's number table is one Unicode version ahead of its regex engine */
    return af_unicode_number(w->t->unicode, cp) || (cp >= 0x11de0 && cp <= 0x11de9) ||
           (cp >= 0x16ff4 && cp <= 0x16ff6);
}
static bool is_punct(const af_work *w, const af_pre *pre, uint32_t cp)
{
    (void)pre;
    return af_unicode_punct(w->t->unicode, cp);
}
static bool is_space(const af_work *w, const af_pre *pre, uint32_t cp)
{
    (void)pre;
    return af_unicode_space(w->t->unicode, cp);
}

/* \w+|[^\w\s]+, blanks left out. */
static af_status whitespace(af_work *w, int stage, const af_piece *p)
{
    const af_unicode *u = w->t->unicode;
    af_status st = AF_OK;
    uint32_t cp, from = 0;
    int kind = 0; /* 0 blank, 1 word, 2 other */
    for (uint32_t i = 0, n; i <= p->len; i += n) {
        n = 1;
        int now = -1;
        if (i < p->len) {
            n = af_utf8_get(p->text + i, &cp);
            now = af_unicode_word(u, cp) ? 1 : af_unicode_space(u, cp) ? 0 : 2;
        }
        if (now == kind)
            continue;
        if (kind)
            AF_TRY(hand_on(w, stage, p, from, i));
        from = i;
        kind = now;
    }
done:
    return st;
}

/* Blanks go, punctuation stands alone. */
static af_status bert(af_work *w, int stage, const af_piece *p)
{
    const af_unicode *u = w->t->unicode;
    af_status st = AF_OK;
    uint32_t cp, from = 0;
    for (uint32_t i = 0, n; i < p->len; i += n) {
        n = af_utf8_get(p->text + i, &cp);
        const bool blank = af_unicode_space(u, cp), mark = !blank && af_unicode_punct(u, cp);
        if (!blank && !mark)
            continue;
        AF_TRY(hand_on(w, stage, p, from, i));
        if (mark)
            AF_TRY(hand_on(w, stage, p, i, i + n));
        from = i + n;
    }
    AF_TRY(hand_on(w, stage, p, from, p->len));
done:
    return st;
}

static af_status copy_with_prefix(af_work *w, int stage, const af_piece *p, const char *prefix,
                                  uint32_t n, const char *space, uint32_t space_len, af_piece *out)
{
    af_status st = AF_OK;
    af_stage *to = &w->pre[stage];
    AF_TRY(af_stage_begin(to, (uint64_t)p->len + n, w->err));
    if (n)
        af_stage_add(to, prefix, n, af_piece_span(p, 0, af_utf8_len(p->text[0])));
    for (uint32_t i = 0, len; i < p->len; i += len) {
        len = af_utf8_len(p->text[i]);
        AF_TRY(af_stage_reserve(to, (uint64_t)space_len + 4, w->err));
        const bool swap = space_len && p->text[i] == ' ';
        af_stage_add(to, swap ? space : p->text + i, swap ? space_len : len,
                     af_piece_span(p, i, i + len));
    }
    *out = af_stage_piece(to, p);
done:
    return st;
}

static af_status metaspace(af_work *w, int stage, const af_piece *p)
{
    const af_pre *pre = &w->t->pre[stage];
    af_status st = AF_OK;
    af_piece q = *p;
    const bool begins =
        (p->len >= pre->mark_len && memcmp(p->text, pre->mark, pre->mark_len) == 0) ||
        p->text[0] == ' ';
    const bool add = !begins && (pre->prepend == AF_PREPEND_ALWAYS ||
                                 (pre->prepend == AF_PREPEND_FIRST && p->shift == 0));
    if (add || memchr(p->text, ' ', p->len))
        AF_TRY(copy_with_prefix(w, stage, p, pre->mark, add ? pre->mark_len : 0, pre->mark,
                                pre->mark_len, &q));
    if (pre->split)
        return split_chars(w, stage, &q, is_replacement, AF_BEHAVIOR_MERGED_NEXT);
    return af_pre_run(w, stage + 1, &q);
done:
    return st;
}

/* Not the last one: what follows sees the printable characters. */
static af_status spell_bytes(af_work *w, int stage, const af_piece *p)
{
    af_status st = AF_OK;
    af_stage *to = &w->pre[stage];
    AF_TRY(af_stage_begin(to, 2 * (uint64_t)p->len, w->err));
    for (uint32_t i = 0; i < p->len; i++) {
        char utf8[4];
        af_stage_add(to, utf8, af_utf8_put(utf8, af_byte_char((uint8_t)p->text[i])),
                     af_piece_span(p, i, i + 1));
    }
    const af_piece q = af_stage_piece(to, p);
    AF_TRY(af_pre_run(w, stage + 1, &q));
done:
    return st;
}

static af_status byte_level(af_work *w, int stage, const af_piece *p)
{
    const af_pre *pre = &w->t->pre[stage];
    if (!pre->last)
        return spell_bytes(w, stage, p);
    return af_pre_run(w, stage + 1, p);
}

static af_status fixed_length(af_work *w, int stage, const af_piece *p)
{
    af_status st = AF_OK;
    uint32_t from = 0, chars = 0;
    for (uint32_t i = 0; i < p->len; i += af_utf8_len(p->text[i])) {
        if (chars++ == w->t->pre[stage].length) {
            AF_TRY(hand_on(w, stage, p, from, i));
            from = i;
            chars = 1;
        }
    }
    AF_TRY(hand_on(w, stage, p, from, p->len));
done:
    return st;
}

static af_status prefix_space(af_work *w, int stage, const af_piece *p)
{
    af_piece q;
    if (p->text[0] == ' ')
        return af_pre_run(w, stage + 1, p);
    const af_status st = copy_with_prefix(w, stage, p, " ", 1, NULL, 0, &q);
    return st == AF_OK ? af_pre_run(w, stage + 1, &q) : st;
}

af_status af_pre_run(af_work *w, int stage, const af_piece *p)
{
    if (p->len == 0)
        return AF_OK;
    if (stage >= w->t->pres)
        return af_model_run(w, p);
    const af_pre *pre = &w->t->pre[stage];
    switch (pre->kind) {
    case AF_PRE_SPLIT:
        return split(w, stage, p);
    case AF_PRE_BYTE_LEVEL:
        return byte_level(w, stage, p);
    case AF_PRE_PREFIX_SPACE:
        return prefix_space(w, stage, p);
    case AF_PRE_METASPACE:
        return metaspace(w, stage, p);
    case AF_PRE_DIGITS:
        return split_chars(w, stage, p, is_number,
                           pre->individual ? AF_BEHAVIOR_ISOLATED : AF_BEHAVIOR_CONTIGUOUS);
    case AF_PRE_PUNCTUATION:
        return split_chars(w, stage, p, is_punct, pre->behavior);
    case AF_PRE_WHITESPACE:
        return whitespace(w, stage, p);
    case AF_PRE_WHITESPACE_SPLIT:
        return split_chars(w, stage, p, is_space, AF_BEHAVIOR_REMOVED);
    case AF_PRE_BERT:
        return bert(w, stage, p);
    case AF_PRE_DELIMITER:
        return split_chars(w, stage, p, is_replacement, AF_BEHAVIOR_REMOVED);
    case AF_PRE_FIXED_LENGTH:
        return fixed_length(w, stage, p);
    }
    return AF_OK;
}
