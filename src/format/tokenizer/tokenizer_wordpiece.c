/* tokenizer_wordpiece.c - WordPiece (longest match first) and WordLevel (the word or unk). */
#include "format/tokenizer/tokenizer.h"

static af_status unknown_word(af_work *w, uint32_t n)
{
    const af_token_model *m = &w->t->model;
    if (m->unk_id < 0)
        return af_fail(w->err, AF_EFORMAT,
                       "a word is not in the vocabulary, which has no unk token");
    w->symbol_count = 0;
    return af_symbol_add(w, m->unk_id, 0, n);
}

/* The longest token at `at`; 0 when there is none. */
static uint32_t longest(af_work *w, const char *s, uint32_t at, uint32_t n, int32_t *id)
{
    const af_str *prefix = &w->t->model.prefix;
    w->word.len = 0;
    if (at > 0)
        af_buf_add(&w->word, prefix->s, prefix->n);
    const uint64_t head = w->word.len;
    af_buf_add(&w->word, s + at, n - at);
    if (w->word.bad)
        return 0;
    for (uint32_t end = n; end > at;) {
        *id = af_vocab_find(&w->t->vocab, w->word.data, head + end - at);
        if (*id >= 0)
            return end - at;
        do
            end--;
        while (end > at && af_utf8_is_tail(s[end]));
    }
    return 0;
}

af_status af_wordpiece_word(af_work *w, const char *s, uint32_t n)
{
    const af_token_model *m = &w->t->model;
    af_status st = AF_OK;
    int32_t id = -1;
    uint32_t chars = 0;
    w->symbol_count = 0;
    if (m->kind == AF_MODEL_WORDLEVEL) {
        id = af_vocab_find(&w->t->vocab, s, n);
        return id >= 0 ? af_symbol_add(w, id, 0, n) : unknown_word(w, n);
    }
    for (uint32_t i = 0; i < n; i++)
        chars += !af_utf8_is_tail(s[i]);
    if (chars > m->max_chars)
        return unknown_word(w, n);
    for (uint32_t at = 0; at < n;) {
        const uint32_t len = longest(w, s, at, n, &id);
        if (len == 0)
            return unknown_word(w, n);
        AF_TRY(af_symbol_add(w, id, at, len));
        at += len;
    }
done:
    return st;
}
