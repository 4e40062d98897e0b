/* grammars.c - compiled grammars, kept for requests that ask for the same again. */
#include "serve/api/api.h"

#include "base/hash.h"

void af_kept_grammar_release(af_kept_grammar *k)
{
    if (!k || atomic_fetch_sub(&k->refs, 1) != 1)
        return;
    af_grammar_close(k->grammar);
    free(k->text);
    free(k);
}

static af_kept_grammar *find(af_api *a, uint64_t hash, af_grammar_kind kind, const char *text,
                             uint64_t len)
{
    for (int i = 0; i < AF_API_GRAMMARS; i++) {
        af_kept_grammar *k = a->grammars[i];
        if (!k || k->hash != hash || k->kind != kind || k->len != len ||
            memcmp(k->text, text, len) != 0)
            continue;
        k->used = ++a->grammar_clock;
        atomic_fetch_add(&k->refs, 1);
        return k;
    }
    return NULL;
}

/* In the place of the one that was used least recently. */
static void keep(af_api *a, af_kept_grammar *k)
{
    int oldest = 0;
    for (int i = 1; i < AF_API_GRAMMARS && a->grammars[oldest]; i++)
        if (!a->grammars[i] || a->grammars[i]->used < a->grammars[oldest]->used)
            oldest = i;
    af_kept_grammar_release(a->grammars[oldest]);
    a->grammars[oldest] = k;
    k->used = ++a->grammar_clock;
    atomic_fetch_add(&k->refs, 1);
}

af_status af_api_grammar(af_api *a, af_kept_grammar **out, af_grammar_kind kind, const char *text,
                         uint64_t len, af_error *err)
{
    af_status st = AF_OK;
    const uint64_t hash = af_fnv1a(AF_FNV_START, text, len);
    af_kept_grammar *k = NULL;
    pthread_mutex_lock(&a->grammar_lock);
    *out = find(a, hash, kind, text, len);
    if (*out)
        goto done;
    if (!a->grammar_vocab)
        AF_TRY(af_grammar_vocab_open(&a->grammar_vocab, a->tokenizer, err));
    k = af_calloc(1, sizeof *k);
    if (!k)
        AF_TRY(af_fail_nomem(err, "a grammar", sizeof *k));
    *k = (af_kept_grammar){.hash = hash, .kind = kind, .len = len, .text = af_strndup(text, len)};
    atomic_init(&k->refs, 1);
    if (!k->text)
        AF_TRY(af_fail_nomem(err, "a grammar", len));
    memcpy(k->text, text, len);
    AF_TRY(af_grammar_open(&k->grammar, kind, text, len, a->grammar_vocab, err));
    keep(a, k);
    *out = k;
    k = NULL;
done:
    pthread_mutex_unlock(&a->grammar_lock);
    af_kept_grammar_release(k);
    return st;
}
