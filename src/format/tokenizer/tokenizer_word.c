/* tokenizer_word.c - from a piece of text to ids: the cache of words, and which model to ask.
 *
 * Texts repeat their words, so the result of a word is kept. The cache belongs to the work memory
 * of a call, never to two threads at once; it is emptied when it is full. */
#include "format/tokenizer/tokenizer.h"

af_byte_span af_piece_span(const af_piece *p, uint32_t i, uint32_t j)
{
    if (p->align)
        return i < j        ? (af_byte_span){p->align[i].start, p->align[j - 1].end}
               : i < p->len ? (af_byte_span){p->align[i].start, p->align[i].start}
                            : (af_byte_span){p->shift, p->shift};
    /* A part of a character stands for the whole character. */
    while (i > 0 && i < p->len && af_utf8_is_tail(p->text[i]))
        i--;
    while (j < p->len && af_utf8_is_tail(p->text[j]))
        j++;
    return (af_byte_span){p->base + i, p->base + j};
}

af_status af_emit(af_work *w, const af_piece *p, int32_t id, uint32_t start, uint32_t end)
{
    af_encoding *e = w->out;
    if (e->count >= e->cap) {
        const int64_t cap = e->cap * 2 + 64;
        int32_t *ids = af_realloc(e->ids, (uint64_t)cap, sizeof *ids);
        e->ids = ids ? ids : e->ids;
        uint32_t *from = af_realloc(e->start, (uint64_t)cap, sizeof *from);
        e->start = from ? from : e->start;
        uint32_t *to = af_realloc(e->end, (uint64_t)cap, sizeof *to);
        e->end = to ? to : e->end;
        if (!ids || !from || !to)
            return af_fail_nomem(w->err, "the ids of a text", (uint64_t)cap * 12);
        e->cap = cap;
    }
    const af_byte_span span = af_piece_span(p, start, end);
    e->ids[e->count] = id;
    e->start[e->count] = span.start;
    e->end[e->count++] = span.end;
    return AF_OK;
}

static af_status run_word(af_work *w, const char *s, uint32_t n)
{
    switch (w->t->model.kind) {
    case AF_MODEL_BPE:
        return af_bpe_word(w, s, n);
    case AF_MODEL_UNIGRAM:
        return af_unigram_word(w, s, n);
    case AF_MODEL_SPM:
        return af_spm_word(w, s, n);
    case AF_MODEL_WORDPIECE:
    case AF_MODEL_WORDLEVEL:
        break;
    }
    return af_wordpiece_word(w, s, n);
}

static void cache_empty(af_work *w)
{
    memset(w->slot, 0, AF_WORD_CACHE_SLOTS * sizeof *w->slot);
    w->words_count = 0;
    w->slots_used = 0;
}

/* Keeps w->symbol as the result of the word. Running out of memory only loses the entry. */
static void cache_put(af_work *w, af_word_slot *slot, const char *s, uint32_t n, uint64_t hash)
{
    const uint32_t text = (n + 3) / 4, count = w->symbol_count;
    if (!af_grow(&w->words, &w->words_cap, (uint64_t)w->words_count + text + 3 * (uint64_t)count,
                 sizeof *w->words))
        return;
    *slot = (af_word_slot){hash, w->words_count, (uint16_t)n, (uint16_t)count};
    int32_t *at = w->words + w->words_count;
    memcpy(at, s, n);
    at += text;
    for (uint32_t i = 0; i < count; i++) {
        at[i] = w->symbol[i].id;
        at[count + i] = (int32_t)w->symbol[i].start;
        at[2 * count + i] = (int32_t)(w->symbol[i].start + w->symbol[i].len);
    }
    w->words_count += text + 3 * count;
    w->slots_used++;
}

static af_status emit_symbols(af_work *w, const af_piece *p, uint32_t at)
{
    af_status st = AF_OK;
    for (uint32_t i = 0; i < w->symbol_count; i++) {
        const af_symbol *s = &w->symbol[i];
        AF_TRY(af_emit(w, p, s->id, at + s->start, at + s->start + s->len));
    }
done:
    return st;
}

/* Bytes [at, at + n) of p as one word of the model. */
static af_status word(af_work *w, const af_piece *p, uint32_t at, uint32_t n)
{
    af_status st = AF_OK;
    const char *s = p->text + at;
    if (n > AF_WORD_MAX) {
        AF_TRY(run_word(w, s, n));
        return emit_symbols(w, p, at);
    }
    const uint64_t hash = af_bytes_hash(s, n);
    uint32_t i = (uint32_t)(hash >> 40) & (AF_WORD_CACHE_SLOTS - 1);
    for (; w->slot[i].len; i = (i + 1) & (AF_WORD_CACHE_SLOTS - 1)) {
        const af_word_slot *f = &w->slot[i];
        if (f->hash != hash || f->len != n || memcmp(w->words + f->at, s, n) != 0)
            continue;
        const int32_t *id = w->words + f->at + (n + 3) / 4;
        for (uint32_t k = 0; k < f->count; k++)
            AF_TRY(af_emit(w, p, id[k], at + (uint32_t)id[f->count + k],
                           at + (uint32_t)id[2 * f->count + k]));
        return AF_OK;
    }
    AF_TRY(run_word(w, s, n));
    cache_put(w, &w->slot[i], s, n, hash);
    if (w->slots_used > AF_WORD_CACHE_SLOTS / 4 * 3)
        cache_empty(w);
    AF_TRY(emit_symbols(w, p, at));
done:
    return st;
}

static bool is_mark(const char *s) { return memcmp(s, "\xe2\x96\x81", 3) == 0; }

/* No merge crosses the place before a U+2581 that follows a byte which none joins with it: cut
 * there, so that a text without pre-tokenizer is made of words that the cache knows. */
static af_status cut_words(af_work *w, const af_piece *p)
{
    af_status st = AF_OK;
    uint32_t from = 0;
    bool after_mark = true;
    for (uint32_t i = 0; i + 3 <= p->len;) {
        const char *hit = memchr(p->text + i, 0xe2, p->len - 2 - i);
        if (!hit)
            break;
        const uint32_t at = (uint32_t)(hit - p->text);
        if (!is_mark(hit)) {
            i = at + 1;
            continue;
        }
        after_mark = at >= 3 && is_mark(p->text + at - 3);
        if (at > from && !after_mark && !w->t->model.joined[(uint8_t)hit[-1]]) {
            AF_TRY(word(w, p, from, at - from));
            from = at;
        }
        i = at + 3;
    }
    if (from < p->len)
        AF_TRY(word(w, p, from, p->len - from));
done:
    return st;
}

af_status af_model_run(af_work *w, const af_piece *p)
{
    const af_token_model *m = &w->t->model;
    if (p->len == 0)
        return AF_OK;
    if (!w->slot) {
        w->slot = af_calloc(AF_WORD_CACHE_SLOTS, sizeof *w->slot);
        if (!w->slot)
            return af_fail_nomem(w->err, "the word cache", AF_WORD_CACHE_SLOTS * sizeof *w->slot);
    }
    if (!m->cut_at_mark || p->len <= 8 ||
        (m->ignore_merges && p->len <= w->t->vocab.longest &&
         af_vocab_find(&w->t->vocab, p->text, p->len) >= 0))
        return word(w, p, 0, p->len);
    return cut_words(w, p);
}
