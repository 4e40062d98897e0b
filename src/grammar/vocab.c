/* vocab.c - see vocab.h. */
#include "grammar/vocab.h"
#include "format/tokenizer/tokenizer.h"
#include "grammar/rtn.h"

bool af_vocab_is_stop(const af_grammar_vocab *v, int32_t id)
{
    for (int i = 0; i < v->stops; i++)
        if (v->stop[i] == id)
            return true;
    return false;
}

af_status af_grammar_vocab_add_stop(af_grammar_vocab *v, int32_t id, af_error *err)
{
    AF_NEED(err, v);
    if (id < 0 || id >= AF_TOKENIZER_ID_MAX)
        return af_fail(err, AF_EUSAGE, "token %" PRId32 " is not one of 0 to %d", id,
                       AF_TOKENIZER_ID_MAX - 1);
    if (af_vocab_is_stop(v, id))
        return AF_OK;
    int32_t *grown = af_realloc(v->stop, (uint64_t)v->stops + 1, sizeof *grown);
    if (!grown)
        return af_fail_nomem(err, "a vocabulary", sizeof *grown);
    v->stop = grown;
    v->stop[v->stops++] = id;
    return AF_OK;
}

void af_grammar_vocab_close(af_grammar_vocab *v)
{
    if (!v)
        return;
    free(v->bytes);
    free(v->at);
    free(v->same);
    free(v->node);
    free(v->stop);
    free(v);
}

static af_status read_tokens(af_grammar_vocab *v, const af_tokenizer *t, af_error *err)
{
    af_status st = AF_OK;
    af_buf all = {0}, one = {0};
    for (int32_t id = 0; id < v->ids; id++) {
        v->at[id] = all.len;
        AF_TRY(af_tokenizer_token_bytes(t, id, &one, err));
        if (one.len == 0 || one.len >= AF_VOCAB_TOKEN_MAX ||
            memchr(one.data, AF_RTN_SPECIAL, one.len)) /* in no text; here it marks special ones */
            continue;
        if (af_tokenizer_is_special(t, id))
            af_buf_char(&all, (char)AF_RTN_SPECIAL);
        af_buf_add(&all, one.data, one.len);
    }
    v->at[v->ids] = all.len;
    if (all.bad || all.len > UINT32_MAX / 2)
        st = af_fail_nomem(err, "a vocabulary", all.len);
    else
        v->bytes = af_buf_take(&all);
done:
    af_buf_clear(&all);
    af_buf_clear(&one);
    return st;
}

/* An order of ids by their bytes: qsort has no context, so the keys carry the pointers. */
typedef struct token_key {
    const uint8_t *s;
    uint32_t n;
    int32_t id;
} token_key;

static int by_bytes(const void *x, const void *y)
{
    const token_key *a = x, *b = y;
    const int c = memcmp(a->s, b->s, AF_MIN(a->n, b->n));
    if (c)
        return c;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static uint32_t common(const token_key *a, const token_key *b)
{
    uint32_t n = 0;
    while (n < a->n && n < b->n && a->s[n] == b->s[n])
        n++;
    return n;
}

static void fill(af_grammar_vocab *v, const token_key *key, int32_t keys)
{
    uint32_t open[AF_VOCAB_TOKEN_MAX + 1]; /* the node at each depth of the path */
    uint32_t depth = 0;
    for (int32_t i = 0; i < keys; i++) {
        const uint32_t shared = i ? common(&key[i - 1], &key[i]) : 0;
        if (i && shared == key[i].n && key[i - 1].n == key[i].n) {
            v->same[key[i - 1].id] = key[i].id;
            continue;
        }
        while (depth > shared)
            v->node[open[--depth]].skip = v->nodes;
        for (; depth < key[i].n; depth++) {
            v->node[v->nodes] =
                (af_vocab_node){.id = -1, .depth = (uint16_t)depth, .byte = key[i].s[depth]};
            open[depth] = v->nodes++;
        }
        v->node[v->nodes - 1].id = key[i].id;
        v->longest = AF_MAX(v->longest, key[i].n);
    }
    while (depth > 0)
        v->node[open[--depth]].skip = v->nodes;
}

static af_status build(af_grammar_vocab *v, af_error *err)
{
    const uint64_t bytes = v->at[v->ids];
    token_key *key = af_calloc((uint64_t)v->ids + 1, sizeof *key);
    int32_t keys = 0;
    v->node = af_calloc(bytes + 1, sizeof *v->node);
    if (!key || !v->node) {
        free(key);
        return af_fail_nomem(err, "a vocabulary", bytes * sizeof *v->node);
    }
    for (int32_t id = 0; id < v->ids; id++)
        if (v->at[id + 1] > v->at[id] && !af_vocab_is_stop(v, id))
            key[keys++] = (token_key){(const uint8_t *)v->bytes + v->at[id],
                                      (uint32_t)(v->at[id + 1] - v->at[id]), id};
    qsort(key, (size_t)keys, sizeof *key, by_bytes);
    fill(v, key, keys);
    free(key);
    af_vocab_node *fit = af_realloc(v->node, (uint64_t)v->nodes + 1, sizeof *fit);
    v->node = fit ? fit : v->node;
    return AF_OK;
}

af_status af_grammar_vocab_open(af_grammar_vocab **out, const af_tokenizer *t, af_error *err)
{
    AF_NEED(err, out, t);
    af_status st = AF_OK;
    int stops = 0;
    const int32_t *stop = af_tokenizer_stops(t, &stops);
    af_grammar_vocab *v = af_calloc(1, sizeof *v);
    if (!v)
        return af_fail_nomem(err, "a vocabulary", sizeof *v);
    v->ids = af_tokenizer_vocab_size(t);
    v->at = af_calloc((uint64_t)v->ids + 1, sizeof *v->at);
    v->same = af_calloc((uint64_t)v->ids + 1, sizeof *v->same);
    if (!v->at || !v->same) {
        st = af_fail_nomem(err, "a vocabulary", (uint64_t)v->ids * sizeof *v->at);
        goto done;
    }
    for (int32_t id = 0; id < v->ids; id++)
        v->same[id] = -1;
    for (int i = 0; i < stops; i++)
        AF_TRY(af_grammar_vocab_add_stop(v, stop[i], err));
    AF_TRY(read_tokens(v, t, err));
    AF_TRY(build(v, err));
    *out = v;
    v = NULL;
done:
    af_grammar_vocab_close(v);
    return st;
}
