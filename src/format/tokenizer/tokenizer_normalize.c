/* tokenizer_normalize.c - the normalizers, all but the Unicode forms and Precompiled.
 *
 * A normalizer that changes nothing leaves the piece alone, so that the common case (plain text)
 * costs no copy and no alignment. Otherwise it writes text and alignment to one of two stages in
 * turn. Offsets follow the `tokenizers` package, because one pre-tokenizer (Metaspace, scheme
 * `first`) looks at them. */
#include "format/tokenizer/tokenizer.h"

af_status af_stage_reserve(af_stage *s, uint64_t more, af_error *err)
{
    const uint64_t want = (uint64_t)s->len + more;
    if (want <= s->cap)
        return AF_OK;
    if (s->max && want > s->max)
        return af_fail(err, AF_EFORMAT,
                       "the tokenizer's normalizer makes more than %d bytes of each byte of text",
                       AF_NORMALIZER_GROWTH_MAX);
    const uint64_t cap = AF_MAX(want, (uint64_t)s->cap * 2 + 256);
    if (cap > UINT32_MAX)
        return af_fail(err, AF_EUNSUPPORTED, "a normalised text of %" PRIu64 " bytes is too long",
                       want);
    char *text = af_realloc(s->text, cap, 1);
    s->text = text ? text : s->text;
    af_byte_span *align = af_realloc(s->align, cap, sizeof *align);
    s->align = align ? align : s->align;
    if (!text || !align)
        return af_fail_nomem(err, "a normalised text", cap * 9);
    s->cap = (uint32_t)cap;
    return AF_OK;
}

af_status af_stage_begin(af_stage *s, uint64_t want, af_error *err)
{
    s->len = 0;
    return af_stage_reserve(s, want + 16, err);
}

/* The caller has reserved the space. */
void af_stage_add(af_stage *s, const char *bytes, uint32_t n, af_byte_span place)
{
    memcpy(s->text + s->len, bytes, n);
    for (uint32_t i = 0; i < n; i++)
        s->align[s->len + i] = place;
    s->len += n;
}

af_piece af_stage_piece(const af_stage *s, const af_piece *from)
{
    return (af_piece){.text = s->text,
                      .len = s->len,
                      .shift = from->shift,
                      .base = from->shift,
                      .align = s->align};
}

af_piece af_piece_slice(const af_piece *p, uint32_t i, uint32_t j)
{
    af_piece s = {.text = p->text + i, .len = j - i, .base = p->base + i};
    s.align = p->align ? p->align + i : NULL;
    s.shift = i == j ? p->shift : af_piece_span(p, i, j).start;
    return s;
}

/* One character of the source, unchanged. */
static af_status copy_char(af_work *w, const af_piece *p, af_stage *to, uint32_t i, uint32_t n)
{
    const af_status st = af_stage_reserve(to, n, w->err);
    if (st == AF_OK)
        af_stage_add(to, p->text + i, n, af_piece_span(p, i, i + n));
    return st;
}

static af_status put_cp(af_work *w, af_stage *to, uint32_t cp, af_byte_span place)
{
    char utf8[4];
    const af_status st = af_stage_reserve(to, 4, w->err);
    if (st == AF_OK)
        af_stage_add(to, utf8, af_utf8_put(utf8, cp), place);
    return st;
}

static bool has_upper(const af_unicode *u, const af_piece *p)
{
    uint32_t cp, low[2];
    for (uint32_t i = 0; i < p->len; i += af_utf8_get(p->text + i, &cp)) {
        af_utf8_get(p->text + i, &cp);
        if (af_unicode_lower(low, cp) != 1 || low[0] != cp)
            return true;
    }
    (void)u;
    return false;
}

static af_status lowercase(af_work *w, af_piece *p, af_stage *to)
{
    af_status st = AF_OK;
    uint32_t cp, low[2];
    if (!has_upper(w->t->unicode, p))
        return AF_OK;
    AF_TRY(af_stage_begin(to, p->len, w->err));
    for (uint32_t i = 0, n; i < p->len; i += n) {
        n = af_utf8_get(p->text + i, &cp);
        const int count = af_unicode_lower(low, cp);
        for (int k = 0; k < count; k++)
            AF_TRY(put_cp(w, to, low[k], af_piece_span(p, i, i + n)));
    }
    *p = af_stage_piece(to, p);
done:
    return st;
}

static void strip(af_work *w, const af_norm *n, af_piece *p)
{
    uint32_t from = 0, to = p->len, cp;
    while (n->left && from < to) {
        const uint32_t len = af_utf8_get(p->text + from, &cp);
        if (!af_unicode_space(w->t->unicode, cp))
            break;
        from += len;
    }
    while (n->right && to > from) {
        const uint32_t len = af_utf8_back(p->text + to, &cp);
        if (!af_unicode_space(w->t->unicode, cp))
            break;
        to -= len;
    }
    const uint32_t shift = p->shift;
    *p = af_piece_slice(p, from, to);
    p->shift = shift; /* still the same piece of the original */
}

/* Keeps, drops or replaces each character by one other: 0 = drop. */
typedef uint32_t char_map(const af_unicode *u, uint32_t cp);
enum { DROP = UINT32_MAX };

static af_status map_chars(af_work *w, af_piece *p, af_stage *to, char_map *map)
{
    af_status st = AF_OK;
    uint32_t cp;
    bool same = true;
    for (uint32_t i = 0, n; same && i < p->len; i += n) {
        n = af_utf8_get(p->text + i, &cp);
        same = map(w->t->unicode, cp) == cp;
    }
    if (same)
        return AF_OK;
    AF_TRY(af_stage_begin(to, p->len, w->err));
    for (uint32_t i = 0, n; i < p->len; i += n) {
        n = af_utf8_get(p->text + i, &cp);
        const uint32_t out = map(w->t->unicode, cp);
        if (out == cp)
            AF_TRY(copy_char(w, p, to, i, n));
        else if (out != (uint32_t)DROP)
            AF_TRY(put_cp(w, to, out, af_piece_span(p, i, i + n)));
    }
    *p = af_stage_piece(to, p);
done:
    return st;
}

static uint32_t map_accent(const af_unicode *u, uint32_t cp)
{
    const af_gc g = af_unicode_gc(u, cp);
    const bool mark = (g >= AF_GC_MN && g <= AF_GC_ME) || cp == 0x1cf2 || cp == 0x1cf3;
    return mark && !(af_set_has(af_set_mark_not, af_set_mark_not_count, cp) && cp != 0x1cf3)
               ? (uint32_t)DROP
               : cp;
}

static uint32_t map_mn(const af_unicode *u, uint32_t cp)
{
    const bool mark = af_unicode_gc(u, cp) == AF_GC_MN || cp == 0x1734 || cp == 0x1171e;
    return mark && !af_set_has(af_set_bert_mark_not, af_set_bert_mark_not_count, cp)
               ? (uint32_t)DROP
               : cp;
}

static uint32_t map_nmt(const af_unicode *u, uint32_t cp)
{
    (void)u;
    if ((cp >= 1 && cp <= 8) || cp == 0xb || (cp >= 0xe && cp <= 0x1f) || cp == 0x7f ||
        cp == 0x8f || cp == 0x9f)
        return (uint32_t)DROP;
    if (cp == 9 || cp == 0xa || cp == 0xc || cp == 0xd || cp == 0x1680 ||
        (cp >= 0x200b && cp <= 0x200f) || cp == 0x2028 || cp == 0x2029 || cp == 0x2581 ||
        cp == 0xfeff || cp == 0xfffd)
        return ' ';
    return cp;
}

static uint32_t map_bert_clean(const af_unicode *u, uint32_t cp)
{
    if (cp == '\t' || cp == '\n' || cp == '\r')
        return ' ';
    const af_gc g = af_unicode_gc(u, cp);
    const bool newer = cp == 0x890 || cp == 0x891 || cp == 0x8e2 || cp == 0x110cd ||
                       (cp >= 0x13430 && cp <= 0x1343f); /* format characters it does not know */
    if (cp == 0 || cp == 0xfffd || g == AF_GC_CC || (g == AF_GC_CF && !newer) || g == AF_GC_CO)
        return (uint32_t)DROP;
    return af_unicode_space(u, cp) ? ' ' : cp;
}

static bool is_chinese(uint32_t cp)
{
    return (cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0x3400 && cp <= 0x4dbf) ||
           (cp >= 0x20000 && cp <= 0x2a6df) || (cp >= 0x2a700 && cp <= 0x2b81f) ||
           (cp >= 0x2b920 && cp <= 0x2ceaf) || (cp >= 0xf900 && cp <= 0xfaff) ||
           (cp >= 0x2f800 && cp <= 0x2fa1f);
}

static af_status space_chinese(af_work *w, af_piece *p, af_stage *to)
{
    af_status st = AF_OK;
    uint32_t cp;
    AF_TRY(af_stage_begin(to, p->len, w->err));
    for (uint32_t i = 0, n; i < p->len; i += n) {
        n = af_utf8_get(p->text + i, &cp);
        const af_byte_span place = af_piece_span(p, i, i + n);
        const bool apart = is_chinese(cp);
        if (apart)
            AF_TRY(put_cp(w, to, ' ', place));
        AF_TRY(copy_char(w, p, to, i, n));
        if (apart)
            AF_TRY(put_cp(w, to, ' ', place));
    }
    *p = af_stage_piece(to, p);
done:
    return st;
}

static af_status prepend(af_work *w, af_piece *p, af_stage *to, const char *s, uint32_t n)
{
    af_status st = AF_OK;
    if (p->len == 0)
        return AF_OK;
    AF_TRY(af_stage_begin(to, (uint64_t)p->len + n, w->err));
    af_stage_add(to, s, n, af_piece_span(p, 0, af_utf8_len(p->text[0])));
    for (uint32_t i = 0, len; i < p->len; i += len) {
        len = af_utf8_len(p->text[i]);
        af_stage_add(to, p->text + i, len, af_piece_span(p, i, i + len));
    }
    *p = af_stage_piece(to, p);
done:
    return st;
}

af_status af_stage_copy(af_work *w, const af_piece *p, af_stage *to, uint32_t i, uint32_t j)
{
    af_status st = AF_OK;
    AF_TRY(af_stage_reserve(to, j - i, w->err));
    for (uint32_t n; i < j; i += n) {
        n = af_utf8_len(p->text[i]);
        af_stage_add(to, p->text + i, n, af_piece_span(p, i, i + n));
    }
done:
    return st;
}

/* The next match of the pattern at or after `from`. */
static af_status next_match(af_work *w, const af_norm *n, const af_piece *p, uint32_t from,
                            uint32_t *start, uint32_t *end)
{
    if (n->regex)
        return af_regex_next(n->regex, &w->regex, p->text, p->len, from, start, end, w->err);
    *start = *end = UINT32_MAX;
    for (uint32_t i = from; n->pattern.n && i + n->pattern.n <= p->len; i++) {
        const char *hit = memchr(p->text + i, n->pattern.s[0], p->len - n->pattern.n - i + 1);
        if (!hit)
            break;
        i = (uint32_t)(hit - p->text);
        if (memcmp(hit, n->pattern.s, n->pattern.n) == 0) {
            *start = i;
            *end = i + n->pattern.n;
            break;
        }
    }
    return AF_OK;
}

/* A replacement stands where the last character of its match stood, as in the package. */
static af_byte_span last_char_span(const af_piece *p, uint32_t end)
{
    uint32_t cp;
    if (end == 0)
        return (af_byte_span){p->shift, p->shift};
    return af_piece_span(p, end - af_utf8_back(p->text + end, &cp), end);
}

static af_status replace(af_work *w, const af_norm *n, af_piece *p, af_stage *to)
{
    af_status st = AF_OK;
    uint32_t at = 0, from = 0, last = UINT32_MAX, start, end;
    AF_TRY(next_match(w, n, p, 0, &start, &end));
    if (start == UINT32_MAX)
        return AF_OK;
    AF_TRY(af_stage_begin(to, (uint64_t)p->len + p->len / 2, w->err));
    while (start != UINT32_MAX) {
        if (start == end && end == last) { /* nothing right after a match: look one further */
            if (from >= p->len)
                break;
            from += af_utf8_len(p->text[from]);
        } else {
            AF_TRY(af_stage_copy(w, p, to, at, start));
            AF_TRY(af_stage_reserve(to, n->content.n, w->err));
            af_stage_add(to, n->content.s, n->content.n, last_char_span(p, end));
            at = from = last = end;
        }
        if (from > p->len)
            break;
        AF_TRY(next_match(w, n, p, from, &start, &end));
    }
    AF_TRY(af_stage_copy(w, p, to, at, p->len));
    *p = af_stage_piece(to, p);
done:
    return st;
}

static af_status byte_level(af_work *w, af_piece *p, af_stage *to)
{
    af_status st = AF_OK;
    AF_TRY(af_stage_begin(to, 2 * (uint64_t)p->len, w->err));
    for (uint32_t i = 0; i < p->len; i++)
        AF_TRY(put_cp(w, to, af_byte_char((uint8_t)p->text[i]), af_piece_span(p, i, i + 1)));
    *p = af_stage_piece(to, p);
done:
    return st;
}

static af_stage *other(af_work *w, const af_piece *p)
{
    return p->align && p->text >= w->norm[0].text && p->text <= w->norm[0].text + w->norm[0].len &&
                   w->norm[0].text
               ? &w->norm[1]
               : &w->norm[0];
}

static af_status bert(af_work *w, const af_norm *n, af_piece *p)
{
    af_status st = AF_OK;
    if (n->clean)
        AF_TRY(map_chars(w, p, other(w, p), map_bert_clean));
    if (n->chinese)
        AF_TRY(space_chinese(w, p, other(w, p)));
    if (n->accents) {
        AF_TRY(af_normal_form(w, p, other(w, p), AF_NORM_NFD));
        AF_TRY(map_chars(w, p, other(w, p), map_mn));
    }
    if (n->low)
        AF_TRY(lowercase(w, p, other(w, p)));
done:
    return st;
}

static af_status run(af_work *w, const af_norm *n, af_piece *p)
{
    af_stage *to = other(w, p);
    switch (n->kind) {
    case AF_NORM_NFC:
    case AF_NORM_NFD:
    case AF_NORM_NFKC:
    case AF_NORM_NFKD:
        return af_normal_form(w, p, to, n->kind);
    case AF_NORM_LOWERCASE:
        return lowercase(w, p, to);
    case AF_NORM_STRIP:
        strip(w, n, p);
        return AF_OK;
    case AF_NORM_STRIP_ACCENTS:
        return map_chars(w, p, to, map_accent);
    case AF_NORM_REPLACE:
        return replace(w, n, p, to);
    case AF_NORM_PREPEND:
        return prepend(w, p, to, n->content.s, n->content.n);
    case AF_NORM_PRECOMPILED:
        return af_precompiled_run(w, n, p, to);
    case AF_NORM_NMT:
        return map_chars(w, p, to, map_nmt);
    case AF_NORM_BERT:
        return bert(w, n, p);
    case AF_NORM_BYTE_LEVEL:
        return byte_level(w, p, to);
    case AF_NORM_PIECES:
        return af_pieces_normalize(w, n, p, to);
    }
    return AF_OK;
}

af_status af_normalize(af_work *w, af_piece *p)
{
    af_status st = AF_OK;
    w->norm[0].max = w->norm[1].max = ((uint64_t)p->len + 64) * AF_NORMALIZER_GROWTH_MAX;
    for (int i = 0; i < w->t->norms; i++)
        AF_TRY(run(w, &w->t->norm[i], p));
done:
    return st;
}
