/* tokenizer_decode.c - ids back to text: a list of token strings through the decoders, then joined.
 *
 * Each decoder maps the list to a list. The byte-level one joins all bytes first, because a
 * character can be spread over tokens. */
#include "format/tokenizer/tokenizer.h"

typedef struct list {
    af_arena arena;
    af_str *item;
    uint32_t count, cap;
    af_error *err;
} list;

static af_status add(list *l, const char *s, uint64_t n)
{
    if (n > UINT32_MAX || !af_grow(&l->item, &l->cap, (uint64_t)l->count + 1, sizeof *l->item))
        return af_fail_nomem(l->err, "a decoded text", n);
    l->item[l->count++] = (af_str){s, (uint32_t)n};
    return AF_OK;
}

static void list_clear(list *l)
{
    free(l->item);
    af_arena_clear(&l->arena);
    *l = (list){0};
}

/* Keeps what a decoder wrote into the scratch buffer as item i. */
static af_status set(list *l, uint32_t i, af_buf *b)
{
    if (b->bad || b->len > UINT32_MAX)
        return af_fail_nomem(l->err, "a decoded text", b->len);
    char *copy = af_arena_take(&l->arena, b->len + 1);
    if (!copy)
        return af_fail_nomem(l->err, "a decoded text", b->len);
    if (b->len)
        memcpy(copy, b->data, b->len);
    l->item[i] = (af_str){copy, (uint32_t)b->len};
    return AF_OK;
}

/* Appends bytes as text: one U+FFFD for each maximal ill-formed part. */
static void add_lossy(af_buf *out, const char *s, uint64_t n)
{
    for (uint64_t i = 0; i < n;) {
        const uint64_t good = af_utf8_valid(s + i, n - i);
        af_buf_add(out, s + i, good);
        i += good;
        if (i < n) {
            af_buf_str(out, "\xef\xbf\xbd");
            i += af_utf8_bad(s + i, n - i);
        }
    }
}

/* The bytes a byte-level token stands for; a token outside the alphabet is its own bytes. */
static void add_bytes(af_buf *out, af_str s)
{
    const uint64_t mark = out->len;
    uint32_t cp;
    for (uint32_t i = 0, n; i < s.n; i += n) {
        n = af_utf8_get(s.s + i, &cp);
        const int b = af_char_byte(cp);
        if (b < 0) {
            if (!out->bad)
                out->len = mark;
            af_buf_add(out, s.s, s.n);
            return;
        }
        af_buf_char(out, (char)b);
    }
}

static af_status byte_level(list *l)
{
    af_status st = AF_OK;
    af_buf bytes = {0}, text = {0};
    for (uint32_t i = 0; i < l->count; i++)
        add_bytes(&bytes, l->item[i]);
    add_lossy(&text, bytes.data, bytes.len);
    text.bad |= bytes.bad;
    l->count = 0;
    AF_TRY(add(l, "", 0));
    AF_TRY(set(l, 0, &text));
done:
    af_buf_clear(&bytes);
    af_buf_clear(&text);
    return st;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* <0xNN>: the byte, or -1. */
static int fallback_byte(af_str s)
{
    if (s.n != 6 || memcmp(s.s, "<0x", 3) != 0 || s.s[5] != '>')
        return -1;
    const int hi = hex_digit(s.s[3]), lo = hex_digit(s.s[4]);
    return hi < 0 || lo < 0 ? -1 : hi << 4 | lo;
}

/* A run of byte tokens is text when it is UTF-8 as a whole, else one U+FFFD for each byte. */
static af_status flush_run(list *to, af_buf *run)
{
    af_status st = AF_OK;
    const uint64_t n = run->len;
    if (n == 0)
        return AF_OK;
    if (run->bad)
        return af_fail_nomem(to->err, "a decoded text", n);
    if (af_utf8_valid(run->data, n) == n) {
        AF_TRY(add(to, "", 0));
        AF_TRY(set(to, to->count - 1, run));
    } else {
        for (uint64_t i = 0; i < n; i++)
            AF_TRY(add(to, "\xef\xbf\xbd", 3));
    }
    run->len = 0;
done:
    return st;
}

static af_status byte_fallback(list *l)
{
    af_status st = AF_OK;
    list to = {.err = l->err};
    af_buf run = {0};
    for (uint32_t i = 0; i < l->count; i++) {
        const int b = fallback_byte(l->item[i]);
        if (b >= 0) {
            af_buf_char(&run, (char)b);
            continue;
        }
        AF_TRY(flush_run(&to, &run));
        char *copy = af_arena_strndup(&to.arena, l->item[i].s, l->item[i].n);
        if (!copy) {
            st = af_fail_nomem(l->err, "a decoded text", l->item[i].n);
            goto done;
        }
        AF_TRY(add(&to, copy, l->item[i].n));
    }
    AF_TRY(flush_run(&to, &run));
    const list old = *l;
    *l = to;
    to = old;
done:
    list_clear(&to);
    af_buf_clear(&run);
    return st;
}

static af_status fuse(list *l)
{
    af_status st = AF_OK;
    af_buf all = {0};
    for (uint32_t i = 0; i < l->count; i++)
        af_buf_add(&all, l->item[i].s, l->item[i].n);
    l->count = 0;
    AF_TRY(add(l, "", 0));
    AF_TRY(set(l, 0, &all));
done:
    af_buf_clear(&all);
    return st;
}

static void strip(list *l, const af_dec *d)
{
    for (uint32_t i = 0; i < l->count; i++) {
        af_str *s = &l->item[i];
        uint32_t cp, n, from = 0, to = s->n;
        for (uint32_t k = 0; k < d->start && from < to; k++, from += n) {
            n = af_utf8_get(s->s + from, &cp);
            if (cp != d->mark)
                break;
        }
        for (uint32_t k = 0; k < d->stop && to > from; k++, to -= n) {
            n = af_utf8_back(s->s + to, &cp);
            if (cp != d->mark)
                break;
        }
        *s = (af_str){s->s + from, to - from};
    }
}

/* Every place of `from` in s becomes `to`, left to right. */
static void replace_plain(af_buf *out, af_str s, af_str from, af_str to)
{
    for (uint32_t i = 0; i < s.n;) {
        if (from.n && s.n - i >= from.n && memcmp(s.s + i, from.s, from.n) == 0) {
            af_buf_add(out, to.s, to.n);
            i += from.n;
        } else {
            af_buf_char(out, s.s[i++]);
        }
    }
}

static af_status replace_regex(af_buf *out, const af_dec *d, af_str s, af_regex_work **rw,
                               af_error *err)
{
    af_status st = AF_OK;
    uint32_t at = 0, from = 0, start, end, last = UINT32_MAX;
    while (from <= s.n) {
        AF_TRY(af_regex_next(d->regex, rw, s.s, s.n, from, &start, &end, err));
        if (start == UINT32_MAX)
            break;
        if (start == end && end == last) {
            from += from < s.n ? af_utf8_len(s.s[from]) : 1;
            continue;
        }
        af_buf_add(out, s.s + at, start - at);
        af_buf_add(out, d->content.s, d->content.n);
        at = from = last = end;
    }
    af_buf_add(out, s.s + at, s.n - at);
done:
    return st;
}

static af_status replace(list *l, const af_dec *d)
{
    af_status st = AF_OK;
    af_buf b = {0};
    af_regex_work *rw = NULL;
    for (uint32_t i = 0; i < l->count; i++) {
        b.len = 0;
        if (d->regex)
            AF_TRY(replace_regex(&b, d, l->item[i], &rw, l->err));
        else
            replace_plain(&b, l->item[i], d->pattern, d->content);
        AF_TRY(set(l, i, &b));
    }
done:
    af_regex_work_free(rw);
    af_buf_clear(&b);
    return st;
}

static af_status metaspace(list *l, const af_dec *d)
{
    af_status st = AF_OK;
    af_buf b = {0};
    uint32_t cp;
    for (uint32_t i = 0; i < l->count; i++) {
        const af_str s = l->item[i];
        b.len = 0;
        for (uint32_t k = 0, n; k < s.n; k += n) {
            n = af_utf8_get(s.s + k, &cp);
            if (cp != d->mark)
                af_buf_add(&b, s.s + k, n);
            else if (i > 0 || d->keep_first)
                af_buf_char(&b, ' ');
        }
        AF_TRY(set(l, i, &b));
    }
done:
    af_buf_clear(&b);
    return st;
}

/* English spacing, the rules of the WordPiece decoder. Swaps between two buffers. */
static void clean_up(af_buf *b)
{
    static const char *const rules[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (size_t r = 0; r < AF_LEN(rules); r++) {
        af_buf out = {0};
        const af_str from = {rules[r][0], (uint32_t)strlen(rules[r][0])};
        const af_str to = {rules[r][1], (uint32_t)strlen(rules[r][1])};
        replace_plain(&out, (af_str){b->data, (uint32_t)b->len}, from, to);
        out.bad |= b->bad;
        af_buf_clear(b);
        *b = out;
    }
}

static af_status wordpiece(list *l, const af_dec *d)
{
    af_status st = AF_OK;
    af_buf b = {0};
    for (uint32_t i = 0; i < l->count; i++) {
        af_str s = l->item[i];
        b.len = 0;
        if (i > 0 && s.n >= d->pattern.n && memcmp(s.s, d->pattern.s, d->pattern.n) == 0)
            s = (af_str){s.s + d->pattern.n, s.n - d->pattern.n};
        else if (i > 0)
            af_buf_char(&b, ' ');
        af_buf_add(&b, s.s, s.n);
        if (d->cleanup)
            clean_up(&b);
        AF_TRY(set(l, i, &b));
    }
done:
    af_buf_clear(&b);
    return st;
}

static af_status bpe(list *l, const af_dec *d)
{
    af_status st = AF_OK;
    af_buf b = {0};
    for (uint32_t i = 0; i < l->count; i++) {
        const bool last = i + 1 == l->count;
        b.len = 0;
        replace_plain(&b, l->item[i], d->pattern, last ? (af_str){"", 0} : (af_str){" ", 1});
        AF_TRY(set(l, i, &b));
    }
done:
    af_buf_clear(&b);
    return st;
}

static bool same(af_str a, af_str b) { return a.n == b.n && memcmp(a.s, b.s, a.n) == 0; }

static af_status ctc(list *l, const af_dec *d)
{
    af_status st = AF_OK;
    af_buf b = {0}, c = {0};
    uint32_t kept = 0;
    af_str previous = {0};
    for (uint32_t i = 0; i < l->count; i++) {
        const af_str s = l->item[i];
        if (previous.s && same(s, previous))
            continue;
        previous = s;
        b.len = c.len = 0;
        replace_plain(&b, s, d->pattern, (af_str){"", 0});
        if (d->cleanup) {
            clean_up(&b);
            replace_plain(&c, (af_str){b.data, (uint32_t)b.len}, d->content, (af_str){" ", 1});
        }
        af_buf *use = d->cleanup ? &c : &b;
        if (use->len)
            AF_TRY(set(l, kept++, use));
    }
    l->count = kept;
done:
    af_buf_clear(&b);
    af_buf_clear(&c);
    return st;
}

static af_status run(list *l, const af_dec *d)
{
    switch (d->kind) {
    case AF_DEC_BYTE_LEVEL:
        return byte_level(l);
    case AF_DEC_BYTE_FALLBACK:
        return byte_fallback(l);
    case AF_DEC_FUSE:
        return fuse(l);
    case AF_DEC_STRIP:
        strip(l, d);
        return AF_OK;
    case AF_DEC_REPLACE:
        return replace(l, d);
    case AF_DEC_METASPACE:
        return metaspace(l, d);
    case AF_DEC_WORDPIECE:
        return wordpiece(l, d);
    case AF_DEC_BPE:
        return bpe(l, d);
    case AF_DEC_CTC:
        return ctc(l, d);
    }
    return AF_OK;
}

af_status af_tokenizer_decode(const af_tokenizer *t, char **text, uint64_t *len, const int32_t *ids,
                              int64_t n, bool skip_special, af_error *err)
{
    AF_NEED(err, t, text, ids || n < 1);
    af_status st = AF_OK;
    list l = {.err = err};
    af_buf out = {0};
    if (n < 0)
        return af_fail(err, AF_EUSAGE, "a text of %" PRId64 " tokens is not possible", n);
    for (int64_t i = 0; i < n; i++) {
        uint64_t size;
        const char *s = af_tokenizer_token(t, ids[i], &size);
        if (s && !(skip_special && af_token_skipped(t, ids[i])))
            AF_TRY(add(&l, s, size));
    }
    for (int i = 0; i < t->decs; i++)
        AF_TRY(run(&l, &t->dec[i]));
    for (uint32_t i = 0; i < l.count; i++) {
        if (i > 0 && !t->has_decoder)
            af_buf_char(&out, ' ');
        af_buf_add(&out, l.item[i].s, l.item[i].n);
    }
    af_buf_add(&out, "", 0);
    const uint64_t size = out.len;
    char *all = af_buf_take(&out);
    if (!all) {
        st = af_fail_nomem(err, "a decoded text", size);
        goto done;
    }
    *text = all;
    if (len)
        *len = size;
done:
    af_buf_clear(&out);
    list_clear(&l);
    return st;
}

/* Decoders other than the byte-level one look at neighbours: the token's text is what it adds after
 * a letter. */
static af_status bytes_after_letter(const af_tokenizer *t, int32_t id, af_buf *out, af_error *err)
{
    af_status st = AF_OK;
    char *alone = NULL, *both = NULL;
    uint64_t n = 0, total;
    const int32_t letter = af_tokenizer_id(t, "a", 1), pair[2] = {letter, id};
    if (letter >= 0)
        AF_TRY(af_tokenizer_decode(t, &alone, &n, pair, 1, false, err));
    AF_TRY(letter < 0 ? af_tokenizer_decode(t, &both, &total, &id, 1, false, err)
                      : af_tokenizer_decode(t, &both, &total, pair, 2, false, err));
    if (total >= n)
        af_buf_add(out, both + n, total - n);
done:
    free(alone);
    free(both);
    return st;
}

af_status af_tokenizer_token_bytes(const af_tokenizer *t, int32_t id, af_buf *out, af_error *err)
{
    uint64_t n = 0;
    const char *s = af_tokenizer_token(t, id, &n);
    bool fallback = false;
    out->len = 0;
    if (!s || n > UINT32_MAX)
        return AF_OK;
    for (int i = 0; i < t->decs; i++) {
        if (t->dec[i].kind == AF_DEC_BYTE_LEVEL) {
            add_bytes(out, (af_str){s, (uint32_t)n});
            return out->bad ? af_fail_nomem(err, "a token", n) : AF_OK;
        }
        fallback |= t->dec[i].kind == AF_DEC_BYTE_FALLBACK;
    }
    const int byte = fallback ? fallback_byte((af_str){s, (uint32_t)n}) : -1;
    if (byte < 0)
        return bytes_after_letter(t, id, out, err);
    af_buf_char(out, (char)byte);
    return out->bad ? af_fail_nomem(err, "a token", 1) : AF_OK;
}
