/* tokenizer_added.c - added tokens: found in the text before the model sees it.
 *
 * Leftmost, and the longest of those that begin there. A match that must be a single word and is
 * not is skipped as a whole. lstrip and rstrip include the blanks next to a token. */
#include "format/tokenizer/tokenizer.h"

static bool same_flags(const af_added *a, const af_added *b)
{
    return a->single_word == b->single_word && a->lstrip == b->lstrip && a->rstrip == b->rstrip &&
           a->normalized == b->normalized && a->special == b->special;
}

/* The id an added token gets: that of its string, or the next one after everything so far. */
static int32_t id_for(const af_tokenizer *t, const af_str s, int64_t wanted)
{
    int32_t id = af_vocab_find(&t->added_vocab, s.s, s.n);
    if (id < 0)
        id = af_vocab_find(&t->vocab, s.s, s.n);
    if (id >= 0 || wanted < 0)
        return id;
    return (int32_t)wanted;
}

/* Makes the index of added tokens by id at least `count` long. */
static af_status index_reserve(af_tokenizer *t, int32_t count, af_error *err)
{
    if (count <= t->added_at_count)
        return AF_OK;
    const int32_t more = AF_MAX(count, t->added_at_count + t->added_at_count / 2);
    int32_t *at = af_realloc(t->added_at, (uint64_t)more, sizeof *at);
    if (!at)
        return af_fail_nomem(err, "the added tokens", (uint64_t)more * sizeof *at);
    for (int32_t i = t->added_at_count; i < more; i++)
        at[i] = -1;
    t->added_at = at;
    t->added_at_count = more;
    return AF_OK;
}

af_status af_added_insert(af_tokenizer *t, af_added a, int64_t wanted_id, af_error *err)
{
    af_status st = AF_OK;
    if (a.content.n == 0)
        return AF_OK;
    if (wanted_id >= (int64_t)t->vocab.count + AF_TOKENIZER_GAP_MAX)
        return af_fail(err, AF_EFORMAT, "added token \"%.60s\" has the invalid id %" PRId64,
                       a.content.s, wanted_id);
    a.id = id_for(t, a.content, wanted_id);
    if (a.id < 0)
        return af_fail(err, AF_EFORMAT, "added token \"%.60s\" has no id", a.content.s);
    AF_TRY(index_reserve(t, a.id + 1, err));
    if (t->added_at[a.id] >= 0) {
        af_added *old = &t->added[t->added_at[a.id]];
        if (old->content.n == a.content.n &&
            memcmp(old->content.s, a.content.s, a.content.n) == 0) {
            if (!same_flags(old, &a))
                *old = a;
            return AF_OK;
        }
        return af_fail(err, AF_EFORMAT,
                       "added tokens \"%.60s\" and \"%.60s\" have the same id %" PRId32,
                       old->content.s, a.content.s, a.id);
    }
    AF_TRY(af_vocab_add(&t->added_vocab, &t->arena, a.content.s, a.content.n, a.id, err));
    if ((t->added_count & (t->added_count - 1)) == 0) { /* full: room for twice as many */
        const uint64_t more = t->added_count ? 2 * (uint64_t)t->added_count : 1;
        af_added *grown = af_realloc(t->added, more, sizeof *grown);
        if (!grown)
            return af_fail_nomem(err, "the added tokens", more * sizeof *grown);
        t->added = grown;
    }
    t->added_at[a.id] = t->added_count;
    t->added[t->added_count++] = a;
done:
    return st;
}

static af_status find_shown(af_work *w, af_tokenizer *t, af_added *a)
{
    af_status st = AF_OK;
    af_piece p = {.text = a->content.s, .len = a->content.n};
    a->shown = a->content;
    if (a->normalized) {
        AF_TRY(af_normalize(w, &p));
        char *copy = af_arena_take(&t->arena, (uint64_t)p.len + 1);
        if (!copy)
            return af_fail_nomem(w->err, "the added tokens", p.len);
        memcpy(copy, p.text, p.len);
        a->shown = (af_str){copy, p.len};
    }
    const int32_t id = af_vocab_find(&t->added_vocab, a->shown.s, a->shown.n);
    if (id >= 0 && id < t->added_at_count && t->added_at[id] >= 0)
        a->skipped = t->added[t->added_at[id]].special;
done:
    return st;
}

static af_status build_matcher(af_tokenizer *t, af_matcher *m, bool normalized, af_error *err)
{
    af_status st = AF_OK;
    uint32_t n = 0;
    af_trie_key *key = af_calloc((uint64_t)t->added_count + 1, sizeof *key);
    if (!key)
        return af_fail_nomem(err, "the added tokens", (uint64_t)t->added_count * sizeof *key);
    for (int i = 0; i < t->added_count; i++) {
        const af_str s = t->added[i].shown;
        if (t->added[i].normalized != normalized || s.n == 0)
            continue;
        /* of equal strings the special ones come first, then file order */
        key[n++] = (af_trie_key){s.s, s.n, t->added[i].special ? i : i + t->added_count};
        m->first[(uint8_t)s.s[0]] = true;
    }
    AF_TRY(af_trie_build(&m->trie, key, n, err));
    for (uint32_t i = 0; i < m->trie.count; i++)
        if (m->trie.node[i].value >= t->added_count)
            m->trie.node[i].value -= t->added_count;
    m->any = n > 0;
    m->only = -1;
    int firsts = 0;
    for (int b = 0; b < 256; b++)
        if (m->first[b] && firsts++ == 0)
            m->only = b;
    if (firsts != 1)
        m->only = -1;
done:
    free(key);
    return st;
}

static void work_scratch_clear(af_work *w)
{
    for (int i = 0; i < 2; i++) {
        free(w->norm[i].text);
        free(w->norm[i].align);
    }
    free(w->cps);
    af_regex_work_free(w->regex);
    free(w);
}

af_status af_added_build(af_tokenizer *t, af_error *err)
{
    af_status st = AF_OK;
    af_work *w = af_calloc(1, sizeof *w);
    if (!w)
        return af_fail_nomem(err, "the added tokens", sizeof *w);
    w->t = t;
    w->err = err;
    for (int i = 0; i < t->added_count; i++)
        AF_TRY(find_shown(w, t, &t->added[i]));
    AF_TRY(build_matcher(t, &t->raw, false, err));
    AF_TRY(build_matcher(t, &t->normalized, true, err));
done:
    work_scratch_clear(w);
    return st;
}

/* The next match at or after `from`: leftmost, longest. */
static bool find(const af_matcher *m, const char *s, uint32_t n, uint32_t from, uint32_t *start,
                 uint32_t *end, int32_t *which)
{
    for (uint32_t i = from; i < n; i++) {
        if (m->only >= 0) {
            const char *hit = memchr(s + i, m->only, n - i);
            if (!hit)
                return false;
            i = (uint32_t)(hit - s);
        } else {
            while (i < n && !m->first[(uint8_t)s[i]])
                i++;
            if (i >= n)
                return false;
        }
        const uint32_t len = af_trie_longest(&m->trie, s + i, n - i, which);
        if (len) {
            *start = i;
            *end = i + len;
            return true;
        }
    }
    return false;
}

static bool word_before(const af_unicode *u, const af_piece *p, uint32_t i)
{
    uint32_t cp;
    return i > 0 && (af_utf8_back(p->text + i, &cp), af_unicode_word(u, cp));
}

static bool word_behind(const af_unicode *u, const af_piece *p, uint32_t i)
{
    uint32_t cp;
    return i < p->len && (af_utf8_get(p->text + i, &cp), af_unicode_word(u, cp));
}

static uint32_t blanks_before(const af_unicode *u, const af_piece *p, uint32_t i, uint32_t first)
{
    uint32_t cp;
    while (i > first) {
        const uint32_t n = af_utf8_back(p->text + i, &cp);
        if (!af_unicode_space(u, cp))
            break;
        i -= n;
    }
    return i;
}

static uint32_t blanks_behind(const af_unicode *u, const af_piece *p, uint32_t i)
{
    uint32_t cp;
    while (i < p->len) {
        const uint32_t n = af_utf8_get(p->text + i, &cp);
        if (!af_unicode_space(u, cp))
            break;
        i += n;
    }
    return i;
}

af_status af_added_split(af_work *w, const af_matcher *m, const af_piece *p,
                         af_status (*rest)(af_work *w, const af_piece *p))
{
    const af_unicode *u = w->t->unicode;
    af_status st = AF_OK;
    uint32_t done_to = 0, from = 0, start = 0, end = 0;
    int32_t which;
    if (!m->any)
        return rest(w, p);
    while (find(m, p->text, p->len, from, &start, &end, &which)) {
        const af_added *a = &w->t->added[which];
        from = end;
        if (a->single_word && (word_before(u, p, start) || word_behind(u, p, end)))
            continue;
        if (a->lstrip)
            start = AF_MAX(blanks_before(u, p, start, done_to), done_to);
        if (a->rstrip) /* up to done_to there are only blanks: a token before has taken them */
            end = end < done_to ? done_to : blanks_behind(u, p, end);
        if (done_to < start) {
            const af_piece before = af_piece_slice(p, done_to, start);
            AF_TRY(rest(w, &before));
        }
        if (start > end)
            continue; /* its text is already part of the token before */
        if (start < end)
            AF_TRY(af_emit(w, p, a->id, start, end));
        done_to = end;
    }
    if (done_to < p->len || p->len == 0) {
        const af_piece tail = done_to ? af_piece_slice(p, done_to, p->len) : *p;
        AF_TRY(rest(w, &tail));
    }
done:
    return st;
}
