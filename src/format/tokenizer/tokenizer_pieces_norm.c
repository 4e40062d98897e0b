/* tokenizer_pieces_norm.c - how SentencePiece prepares a text: the longest rule of the character
 * map at each place (tokens that are found first stay as they are), blanks as U+2581 and one in
 * front; where the file says so, one blank for several and none at the ends. */
#include "format/tokenizer/tokenizer.h"

static const af_str mark = {"\xe2\x96\x81", 3}, blank = {" ", 1};

/* What the next `return value` bytes become. */
static uint32_t next_rule(const af_work *w, const af_norm *n, const af_piece *p, uint32_t at,
                          af_str *out)
{
    const char *s = p->text + at;
    int32_t id;
    uint32_t len = af_trie_longest(&w->t->model.user, s, p->len - at, &id);
    if (!len && n->units && (len = af_charsmap_longest(n, s, p->len - at, out)))
        return len;
    len = len ? len : af_utf8_len(*s);
    *out = (af_str){s, len};
    return len;
}

/* transformers' legacy = false: in front of the text only, and of no blank and no added token. */
static bool wants_prefix(const af_work *w, const af_norm *n, const af_piece *p)
{
    int32_t id;
    if (n->prefix != AF_PREPEND_FIRST)
        return n->prefix == AF_PREPEND_ALWAYS;
    return p->shift == 0 && p->text[0] != ' ' &&
           !(p->len >= mark.n && memcmp(p->text, mark.s, mark.n) == 0) &&
           !af_trie_longest(&w->t->model.user, p->text, p->len, &id);
}

static af_status put(af_work *w, const af_norm *n, af_stage *to, af_str s, af_byte_span place)
{
    const af_status st = af_stage_reserve(to, (uint64_t)s.n * mark.n, w->err);
    for (uint32_t i = 0; st == AF_OK && i < s.n; i++) {
        const bool marked = n->mark_blanks && s.s[i] == ' ';
        af_stage_add(to, marked ? mark.s : s.s + i, marked ? mark.n : 1, place);
    }
    return st;
}

af_status af_pieces_normalize(af_work *w, const af_norm *n, af_piece *p, af_stage *to)
{
    af_status st = AF_OK;
    uint32_t at = 0, len;
    af_str s;
    bool after_blank = n->one_blank; /* blanks that follow are left out */
    AF_TRY(af_stage_begin(to, (uint64_t)p->len + p->len / 2, w->err));
    while (n->one_blank && at < p->len &&
           (len = next_rule(w, n, p, at, &s), s.n == 1 && s.s[0] == ' '))
        at += len;
    if (at < p->len && wants_prefix(w, n, p))
        AF_TRY(put(w, n, to, blank, af_piece_span(p, at, at + af_utf8_len(p->text[at]))));
    for (; at < p->len; at += len) {
        len = next_rule(w, n, p, at, &s);
        for (; after_blank && s.n && s.s[0] == ' '; s.n--)
            s.s++;
        AF_TRY(put(w, n, to, s, af_piece_span(p, at, at + len)));
        if (s.n)
            after_blank = n->one_blank && s.s[s.n - 1] == ' ';
    }
    const af_str end = n->mark_blanks ? mark : blank;
    while (n->one_blank && to->len >= end.n &&
           memcmp(to->text + to->len - end.n, end.s, end.n) == 0)
        to->len -= end.n;
    *p = af_stage_piece(to, p);
done:
    return st;
}
