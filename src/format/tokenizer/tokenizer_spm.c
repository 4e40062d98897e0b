/* tokenizer_spm.c - SentencePiece BPE as GGUF files and tokenizer.model carry it: no merge list,
 * but a score for each token. Neighbours are joined when the joined text is a token, best score
 * first, leftmost among equals; what is not a token in the end is spelled in byte tokens. */
#include "format/tokenizer/tokenizer.h"

#include <math.h>

typedef struct joined {
    double score;
    uint32_t pos, len;
} joined;

/* The token of these bytes; -1 when there is none, or none that a text has. */
static int32_t find(const af_work *w, const char *s, uint32_t len)
{
    const int32_t id = af_vocab_find(&w->t->vocab, s, len);
    return id >= 0 && w->t->model.score[id] > -(double)INFINITY ? id : -1;
}

static af_status push(af_work *w, const char *s, int32_t left, int32_t right)
{
    const af_token_model *m = &w->t->model;
    if (left < 0 || right < 0 || w->symbol[left].id >= 0 || w->symbol[right].id >= 0)
        return AF_OK;
    const uint32_t start = w->symbol[left].start, len = w->symbol[left].len + w->symbol[right].len;
    const int32_t id = find(w, s + start, len);
    if (id < 0)
        return AF_OK;
    if (!af_grow(&w->best, &w->best_cap, (uint64_t)w->heap_count + 1, sizeof *w->best))
        return af_fail_nomem(w->err, "the joins of a word", w->heap_count);
    /* a heap in w->best: score, from = position of the left symbol, id = length */
    const af_best c = {m->score[id], (uint32_t)left, (int32_t)len};
    uint32_t i = w->heap_count++;
    while (i > 0) {
        const af_best *up = &w->best[(i - 1) / 2];
        if (up->score > c.score || (up->score == c.score && up->from <= c.from))
            break;
        w->best[i] = *up;
        i = (i - 1) / 2;
    }
    w->best[i] = c;
    return AF_OK;
}

static bool ahead(const af_best *a, const af_best *b)
{
    return a->score != b->score ? a->score > b->score : a->from < b->from;
}

static joined pop(af_work *w)
{
    const joined top = {w->best[0].score, w->best[0].from, (uint32_t)w->best[0].id};
    const af_best c = w->best[--w->heap_count];
    uint32_t i = 0;
    for (;;) {
        uint32_t k = 2 * i + 1;
        if (k >= w->heap_count)
            break;
        if (k + 1 < w->heap_count && ahead(&w->best[k + 1], &w->best[k]))
            k++;
        if (!ahead(&w->best[k], &c))
            break;
        w->best[i] = w->best[k];
        i = k;
    }
    w->best[i] = c;
    return top;
}

static af_status join_all(af_work *w, const char *s)
{
    af_status st = AF_OK;
    af_symbol *y = w->symbol;
    while (w->heap_count) {
        const joined j = pop(w);
        const int32_t right = y[j.pos].next;
        if (y[j.pos].len == 0 || right < 0 || y[j.pos].len + y[right].len != j.len)
            continue; /* one of the two has been joined meanwhile */
        y[j.pos].len = j.len;
        y[j.pos].next = y[right].next;
        y[right].len = 0;
        if (y[j.pos].next >= 0)
            y[y[j.pos].next].prev = (int32_t)j.pos;
        AF_TRY(push(w, s, y[j.pos].prev, (int32_t)j.pos));
        AF_TRY(push(w, s, (int32_t)j.pos, y[j.pos].next));
    }
done:
    return st;
}

static af_status spell(af_work *w, const char *s, uint32_t first, uint32_t count)
{
    const af_token_model *m = &w->t->model;
    af_status st = AF_OK;
    for (uint32_t i = first; i < first + count; i++) {
        const af_symbol y = w->symbol[i];
        if (y.len == 0)
            continue;
        const int32_t id = y.id >= 0 ? y.id : find(w, s + y.start, y.len);
        if (id >= 0) {
            AF_TRY(af_symbol_add(w, id, y.start, y.len));
            continue;
        }
        af_symbol *last = &w->symbol[w->symbol_count - 1];
        if (m->fuse_unk && w->symbol_count > first + count && last->id == m->unk_id) {
            last->len = y.start + y.len - last->start;
            continue;
        }
        if (m->fuse_unk) {
            AF_TRY(af_symbol_add(w, m->unk_id, y.start, y.len));
            continue;
        }
        for (uint32_t k = 0; k < y.len; k++) {
            const int32_t byte = m->fallback_id[(uint8_t)s[y.start + k]];
            const int32_t use = byte >= 0 ? byte : m->unk_id;
            if (use >= 0)
                AF_TRY(af_symbol_add(w, use, y.start + k, 1));
        }
    }
done:
    return st;
}

af_status af_spm_word(af_work *w, const char *s, uint32_t n)
{
    af_status st = AF_OK;
    w->symbol_count = 0;
    w->heap_count = 0;
    for (uint32_t i = 0, len; i < n; i += len) {
        int32_t id = -1; /* of a token that is not joined */
        len = af_trie_longest(&w->t->model.user, s + i, n - i, &id);
        len = len ? len : af_utf8_len(s[i]);
        AF_TRY(af_symbol_add(w, id, i, len));
        af_symbol *y = &w->symbol[w->symbol_count - 1];
        y->prev = (int32_t)w->symbol_count - 2;
        y->next = i + len < n ? (int32_t)w->symbol_count : -1;
    }
    const uint32_t count = w->symbol_count;
    for (uint32_t i = 0; i + 1 < count; i++)
        AF_TRY(push(w, s, (int32_t)i, (int32_t)i + 1));
    AF_TRY(join_all(w, s));
    AF_TRY(spell(w, s, 0, count));
    memmove(w->symbol, w->symbol + count, (w->symbol_count - count) * sizeof *w->symbol);
    w->symbol_count -= count;
done:
    return st;
}
