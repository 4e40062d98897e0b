/* tokenizer_bpe.c - byte pair encoding of one word.
 *
 * Symbols start as bytes (byte level) or characters; the pair of lowest rank, leftmost among
 * equals, is merged until none is left. Short words are scanned; long ones (a whole text can be one
 * word) use a heap, whose stale entries are recognised when they come up. */
#include "format/tokenizer/tokenizer.h"

enum { SCAN_MAX = 24 }; /* symbols up to which scanning beats the heap */

af_status af_symbol_add(af_work *w, int32_t id, uint32_t start, uint32_t len)
{
    if (!af_grow(&w->symbol, &w->symbol_cap, (uint64_t)w->symbol_count + 1, sizeof *w->symbol))
        return af_fail_nomem(w->err, "the symbols of a word", w->len);
    w->symbol[w->symbol_count++] = (af_symbol){.id = id, .start = start, .len = len};
    return AF_OK;
}

/* An unknown symbol waits, so that unknown neighbours can be fused into one. */
typedef struct pending {
    bool any;
    uint32_t start, len;
} pending;

static af_status flush(af_work *w, pending *unk)
{
    if (!unk->any)
        return AF_OK;
    unk->any = false;
    return af_symbol_add(w, w->t->model.unk_id, unk->start, unk->len);
}

static af_status unknown(af_work *w, pending *unk, uint32_t start, uint32_t len)
{
    const af_token_model *m = &w->t->model;
    af_status st = AF_OK;
    if (m->unk_missing)
        return af_fail(w->err, AF_EFORMAT,
                       "the text needs the unk token of the model, which is not in its vocabulary");
    if (m->unk_id < 0)
        return AF_OK; /* dropped: that is what the format says */
    if (unk->any && m->fuse_unk) {
        unk->len += len;
        return AF_OK;
    }
    AF_TRY(flush(w, unk));
    *unk = (pending){true, start, len};
done:
    return st;
}

/* All bytes have their <0xNN> token, or none is used. A waiting unknown stays waiting. */
static bool fall_back(af_work *w, const char *s, uint32_t n, uint32_t start, uint32_t len,
                      af_status *st)
{
    const af_token_model *m = &w->t->model;
    for (uint32_t i = 0; i < n; i++)
        if (m->fallback_id[(uint8_t)s[i]] < 0)
            return false;
    *st = AF_OK;
    for (uint32_t i = 0; i < n && *st == AF_OK; i++) {
        const uint32_t at = AF_MIN(i, len - 1);
        *st = af_symbol_add(w, m->fallback_id[(uint8_t)s[i]], start + at, 1);
    }
    return true;
}

static int32_t find_char(af_work *w, const char *s, uint32_t n, bool first, bool last, af_str *full)
{
    const af_token_model *m = &w->t->model;
    *full = (af_str){s, n};
    const bool pre = !first && m->prefix.n, suf = last && m->suffix.n;
    if (!pre && !suf)
        return (uint8_t)s[0] < 0x80 ? m->ascii_id[(uint8_t)s[0]]
                                    : af_vocab_find(&w->t->vocab, s, n);
    w->word.len = 0;
    if (pre)
        af_buf_add(&w->word, m->prefix.s, m->prefix.n);
    af_buf_add(&w->word, s, n);
    if (suf)
        af_buf_add(&w->word, m->suffix.s, m->suffix.n);
    if (w->word.bad)
        return -1;
    *full = (af_str){w->word.data, (uint32_t)w->word.len};
    return af_vocab_find(&w->t->vocab, full->s, full->n);
}

static af_status split_chars(af_work *w, const char *s, uint32_t n)
{
    const af_token_model *m = &w->t->model;
    af_status st = AF_OK;
    pending unk = {0};
    for (uint32_t i = 0, len; i < n; i += len) {
        af_str full;
        len = af_utf8_len(s[i]);
        const int32_t id = find_char(w, s + i, len, i == 0, i + len >= n, &full);
        if (id >= 0) {
            AF_TRY(flush(w, &unk));
            AF_TRY(af_symbol_add(w, id, i, len));
            continue;
        }
        if (m->byte_fallback && fall_back(w, full.s, full.n, i, len, &st)) {
            if (st != AF_OK)
                goto done;
            continue;
        }
        AF_TRY(unknown(w, &unk, i, len));
    }
    AF_TRY(flush(w, &unk));
done:
    return st;
}

/* Byte level: the characters are bytes, affixes and fallback do not occur (see af_model_finish). */
static af_status split_bytes(af_work *w, const char *s, uint32_t n)
{
    const af_token_model *m = &w->t->model;
    af_status st = AF_OK;
    pending unk = {0};
    if (!af_grow(&w->symbol, &w->symbol_cap, (uint64_t)n + 1, sizeof *w->symbol))
        return af_fail_nomem(w->err, "the symbols of a word", n);
    for (uint32_t i = 0; i < n; i++) {
        const int32_t id = m->byte_id[(uint8_t)s[i]];
        if (id < 0) {
            AF_TRY(unknown(w, &unk, i, 1));
            continue;
        }
        if (unk.any)
            AF_TRY(flush(w, &unk));
        w->symbol[w->symbol_count++] = (af_symbol){.id = id, .start = i, .len = 1};
    }
    AF_TRY(flush(w, &unk));
done:
    return st;
}

static void merge_by_scan(af_work *w)
{
    const af_token_model *m = &w->t->model;
    af_symbol *s = w->symbol;
    uint32_t rank[SCAN_MAX], n = w->symbol_count;
    int32_t id[SCAN_MAX];
    for (uint32_t i = 0; i + 1 < n; i++) {
        const af_merge_slot *f = af_merges_get(m, s[i].id, s[i + 1].id);
        rank[i] = f ? f->rank : UINT32_MAX;
        id[i] = f ? f->id : -1;
    }
    while (n > 1) {
        uint32_t best = 0;
        for (uint32_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == UINT32_MAX)
            break;
        s[best].id = id[best];
        s[best].len += s[best + 1].len;
        for (uint32_t i = best + 1; i + 1 < n; i++) {
            s[i] = s[i + 1];
            rank[i] = i + 2 < n ? rank[i + 1] : UINT32_MAX;
            id[i] = i + 2 < n ? id[i + 1] : -1;
        }
        n--;
        for (uint32_t i = best ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const af_merge_slot *f = af_merges_get(m, s[i].id, s[i + 1].id);
            rank[i] = f ? f->rank : UINT32_MAX;
            id[i] = f ? f->id : -1;
        }
    }
    w->symbol_count = n;
}

static bool before(af_candidate a, af_candidate b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.pos < b.pos;
}

static bool heap_push(af_work *w, af_candidate c)
{
    if (!af_grow(&w->heap, &w->heap_cap, (uint64_t)w->heap_count + 1, sizeof *w->heap))
        return false;
    uint32_t i = w->heap_count++;
    while (i > 0 && before(c, w->heap[(i - 1) / 2])) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = c;
    return true;
}

static af_candidate heap_pop(af_work *w)
{
    const af_candidate top = w->heap[0], c = w->heap[--w->heap_count];
    uint32_t i = 0;
    for (;;) {
        uint32_t k = 2 * i + 1;
        if (k >= w->heap_count)
            break;
        if (k + 1 < w->heap_count && before(w->heap[k + 1], w->heap[k]))
            k++;
        if (!before(w->heap[k], c))
            break;
        w->heap[i] = w->heap[k];
        i = k;
    }
    w->heap[i] = c;
    return top;
}

static bool offer(af_work *w, int32_t left, int32_t right)
{
    if (left < 0 || right < 0)
        return true;
    const af_merge_slot *f = af_merges_get(&w->t->model, w->symbol[left].id, w->symbol[right].id);
    return !f || heap_push(w, (af_candidate){f->rank, (uint32_t)left, f->id});
}

static bool merge_top(af_work *w)
{
    af_symbol *s = w->symbol;
    const af_candidate c = heap_pop(w);
    const int32_t right = s[c.pos].next;
    if (s[c.pos].len == 0 || right < 0)
        return true;
    const af_merge_slot *f = af_merges_get(&w->t->model, s[c.pos].id, s[right].id);
    if (!f || f->id != c.id)
        return true; /* stale: one of the two has been merged meanwhile */
    s[c.pos].id = c.id;
    s[c.pos].len += s[right].len;
    s[c.pos].next = s[right].next;
    s[right].len = 0;
    if (s[right].next >= 0)
        s[s[right].next].prev = (int32_t)c.pos;
    return offer(w, s[c.pos].prev, (int32_t)c.pos) && offer(w, (int32_t)c.pos, s[c.pos].next);
}

static af_status merge_by_heap(af_work *w)
{
    const uint32_t n = w->symbol_count;
    bool ok = true;
    w->heap_count = 0;
    for (uint32_t i = 0; i < n; i++) {
        w->symbol[i].prev = (int32_t)i - 1;
        w->symbol[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    for (uint32_t i = 0; ok && i + 1 < n; i++)
        ok = offer(w, (int32_t)i, (int32_t)i + 1);
    while (ok && w->heap_count)
        ok = merge_top(w);
    if (!ok)
        return af_fail_nomem(w->err, "the merges of a word", (uint64_t)n * sizeof *w->heap);
    w->symbol_count = 0;
    for (int32_t i = 0; i >= 0 && n; i = w->symbol[i].next)
        w->symbol[w->symbol_count++] = w->symbol[i];
    return AF_OK;
}

static bool whole_word(af_work *w, const char *s, uint32_t n, int32_t *id)
{
    if (!w->t->model.byte_level) {
        *id = af_vocab_find(&w->t->vocab, s, n);
        return *id >= 0;
    }
    if (n > w->t->vocab.longest)
        return false;
    char *mapped = af_buf_reserve(&w->word, 2 * (uint64_t)n + 4);
    uint32_t len = 0;
    for (uint32_t i = 0; mapped && i < n; i++)
        len += af_utf8_put(mapped + len, af_byte_char((uint8_t)s[i]));
    *id = mapped ? af_vocab_find(&w->t->vocab, mapped, len) : -1;
    return *id >= 0;
}

af_status af_bpe_word(af_work *w, const char *s, uint32_t n)
{
    af_status st = AF_OK;
    int32_t id;
    w->symbol_count = 0;
    w->word.len = 0;
    if (w->t->model.ignore_merges && whole_word(w, s, n, &id))
        return af_symbol_add(w, id, 0, n);
    AF_TRY(w->t->model.byte_level ? split_bytes(w, s, n) : split_chars(w, s, n));
    if (w->symbol_count <= SCAN_MAX)
        merge_by_scan(w);
    else
        AF_TRY(merge_by_heap(w));
done:
    return st;
}
