/* tokenizer_unigram.c - the most probable segmentation of a word (Viterbi over a trie of pieces).
 *
 * Scores are added from left to right in double precision, and an equal score never replaces an
 * earlier one: ties are decided as in the `tokenizers` package. SentencePiece itself (0.2.3)
 * adds floats. */
#include "format/tokenizer/tokenizer.h"

static void reach(const af_token_model *m, af_best *to, double score, uint32_t from, int32_t id)
{
    score = m->single ? (double)(float)score : score;
    if (to->from == UINT32_MAX || score > to->score)
        *to = (af_best){score, from, id};
}

static af_status forward(af_work *w, const char *s, uint32_t n)
{
    const af_token_model *m = &w->t->model;
    for (uint32_t at = 0, len; at < n; at += len) {
        const double here = w->best[at].score;
        bool single = false;
        uint32_t node = 0;
        len = af_utf8_len(s[at]);
        for (uint32_t i = at; i < n && (node = af_trie_step(&m->trie, node, (uint8_t)s[i])); i++) {
            const int32_t id = m->trie.node[node].value;
            if (id < 0)
                continue;
            reach(m, &w->best[i + 1], here + m->score[id], at, id);
            single |= i + 1 - at == len;
        }
        if (single)
            continue;
        if (m->unk_id < 0)
            return af_fail(w->err, AF_EFORMAT,
                           "a character is not in the unigram vocabulary, which has no unk_id");
        reach(m, &w->best[at + len], here + m->unk_score, at, m->unk_id);
    }
    return AF_OK;
}

/* A run of unknown pieces is one token: itself, its bytes, or unk. */
static af_status add_unknown(af_work *w, const char *s, uint32_t from, uint32_t to)
{
    const af_token_model *m = &w->t->model;
    const int32_t id = m->single ? -1 : af_vocab_find(&w->t->vocab, s + from, to - from);
    af_status st = AF_OK;
    bool bytes = m->byte_fallback;
    if (id >= 0)
        return af_symbol_add(w, id, from, to - from);
    for (uint32_t i = from; bytes && i < to; i++)
        bytes = m->fallback_id[(uint8_t)s[i]] >= 0;
    if (!bytes)
        return af_symbol_add(w, m->unk_id, from, to - from);
    for (uint32_t i = to; i-- > from;) /* symbols are gathered from the end */
        AF_TRY(af_symbol_add(w, m->fallback_id[(uint8_t)s[i]], from, to - from));
done:
    return st;
}

static af_status backward(af_work *w, const char *s, uint32_t n)
{
    const int32_t unk = w->t->model.unk_id;
    af_status st = AF_OK;
    for (uint32_t at = n; at > 0;) {
        uint32_t from = w->best[at].from;
        if (w->best[at].id != unk) {
            AF_TRY(af_symbol_add(w, w->best[at].id, from, at - from));
            at = from;
            continue;
        }
        while (from > 0 && w->best[from].id == unk)
            from = w->best[from].from;
        AF_TRY(add_unknown(w, s, from, at));
        at = from;
    }
    for (uint32_t i = 0, j = w->symbol_count; i + 1 < j; i++, j--) {
        const af_symbol t = w->symbol[i];
        w->symbol[i] = w->symbol[j - 1];
        w->symbol[j - 1] = t;
    }
done:
    return st;
}

af_status af_unigram_word(af_work *w, const char *s, uint32_t n)
{
    af_status st = AF_OK;
    w->symbol_count = 0;
    if (!af_grow(&w->best, &w->best_cap, (uint64_t)n + 1, sizeof *w->best))
        return af_fail_nomem(w->err, "the paths of a word", (uint64_t)n * sizeof *w->best);
    for (uint32_t i = 0; i <= n; i++)
        w->best[i] = (af_best){.from = UINT32_MAX, .id = -1};
    AF_TRY(forward(w, s, n));
    AF_TRY(backward(w, s, n));
done:
    return st;
}
