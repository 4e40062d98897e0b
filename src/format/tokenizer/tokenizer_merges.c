/* tokenizer_merges.c - the merge list of a BPE model, from the text of tokenizer.json.
 *
 * A merge is three look-ups in a table far larger than the cache. They are made in batches, each
 * step of all of them before the next, with prefetches in between: loading is twice as fast. */
#include "format/tokenizer/tokenizer.h"

enum { BATCH = 32 };

typedef struct merge_key {
    uint32_t at, n; /* in the batch's text */
    uint32_t hash;
    int32_t id;
} merge_key;

typedef struct batch {
    af_json_pull j;
    af_buf text;
    merge_key key[BATCH][3]; /* left, right, both together */
    uint32_t count, rank;
} batch;

static void add_key(batch *b, merge_key *k, const char *s, uint64_t n)
{
    k->at = (uint32_t)b->text.len;
    k->n = (uint32_t)n;
    af_buf_add(&b->text, s, n);
}

static bool no_merge(batch *b, const char *why)
{
    b->j.bad = true;
    b->j.why = why;
    return false;
}

/* One merge, "a b" or ["a", "b"], as the next keys of the batch; *skip for a version line. */
static bool next_merge(batch *b, merge_key k[3], bool *skip)
{
    const char *s;
    uint64_t n;
    bool inner = true;
    *skip = false;
    if (af_json_pull_peek(&b->j) == '[') {
        if (!af_json_pull_open(&b->j, '[') || !af_json_pull_more(&b->j, ']', &inner) ||
            !af_json_pull_string(&b->j, &s, &n))
            return false;
        add_key(b, &k[0], s, n);
        if (!af_json_pull_more(&b->j, ']', &inner) || !af_json_pull_string(&b->j, &s, &n))
            return no_merge(b, "a merge is not a pair");
        add_key(b, &k[1], s, n);
        if (af_json_pull_more(&b->j, ']', &inner))
            return no_merge(b, "a merge is not a pair");
        return !b->j.bad;
    }
    if (!af_json_pull_string(&b->j, &s, &n))
        return false;
    *skip = n >= 8 && memcmp(s, "#version", 8) == 0;
    if (*skip)
        return true;
    const char *space = memchr(s, ' ', n);
    if (!space || memchr(space + 1, ' ', n - (uint64_t)(space + 1 - s)))
        return no_merge(b, "a merge is not two tokens");
    add_key(b, &k[0], s, (uint64_t)(space - s));
    add_key(b, &k[1], space + 1, n - (uint64_t)(space + 1 - s));
    return true;
}

void af_model_note_marks(af_token_model *m, const char *s, uint32_t n)
{
    for (uint32_t i = 1; i + 3 <= n; i++)
        if (memcmp(s + i, "\xe2\x96\x81", 3) == 0 &&
            (i < 3 || memcmp(s + i - 3, "\xe2\x96\x81", 3) != 0))
            m->joined[(uint8_t)s[i - 1]] = true;
}

static void join(batch *b, merge_key k[3], uint32_t prefix)
{
    k[2].at = (uint32_t)b->text.len;
    k[2].n = k[0].n + k[1].n - AF_MIN(prefix, k[1].n);
    char *to = af_buf_reserve(&b->text, (uint64_t)k[2].n);
    if (!to)
        return;
    memcpy(to, b->text.data + k[0].at, k[0].n);
    memcpy(to + k[0].n, b->text.data + k[1].at + (k[1].n - (k[2].n - k[0].n)), k[2].n - k[0].n);
    b->text.len += k[2].n;
}

static void look_up(batch *b, const af_tokenizer *t)
{
    const af_vocab *v = &t->vocab;
    const char *text = b->text.data;
    for (uint32_t i = 0; i < b->count; i++)
        for (int c = 0; c < 3; c++)
            af_vocab_prefetch(v, b->key[i][c].hash =
                                     af_vocab_hash(text + b->key[i][c].at, b->key[i][c].n));
    for (uint32_t i = 0; i < b->count; i++)
        for (int c = 0; c < 3; c++)
            af_vocab_prefetch_token(v, b->key[i][c].hash);
    for (uint32_t i = 0; i < b->count; i++)
        for (int c = 0; c < 3; c++)
            af_vocab_prefetch_text(v, b->key[i][c].hash);
    for (uint32_t i = 0; i < b->count; i++) {
        for (int c = 0; c < 3; c++)
            b->key[i][c].id =
                af_vocab_find_hashed(v, text + b->key[i][c].at, b->key[i][c].n, b->key[i][c].hash);
        af_merges_prefetch(&t->model, b->key[i][0].id, b->key[i][1].id);
    }
}

static af_status flush(batch *b, af_tokenizer *t, af_error *err)
{
    const uint32_t prefix = t->model.prefix.n;
    for (uint32_t i = 0; i < b->count; i++)
        join(b, b->key[i], prefix);
    if (b->text.bad)
        return af_fail_nomem(err, "the merges", b->text.len);
    if (b->count && !b->text.data)
        af_buf_add(&b->text, "", 0);
    look_up(b, t);
    for (uint32_t i = 0; i < b->count; i++, b->rank++) {
        const merge_key *k = b->key[i];
        const char *text = b->text.data;
        if (k[0].id < 0 || k[1].id < 0 || k[2].id < 0 || k[1].n < prefix)
            return af_fail(err, AF_EFORMAT,
                           "merge %" PRIu32 " (\"%.*s\" + \"%.*s\") has a token that is not in the "
                           "vocabulary",
                           b->rank, (int)AF_MIN(k[0].n, 60), text + k[0].at,
                           (int)AF_MIN(k[1].n, 60), text + k[1].at);
        af_merges_put(&t->model, k[0].id, k[1].id, b->rank, k[2].id);
        if (t->model.cut_at_mark)
            af_model_note_marks(&t->model, text + k[2].at, k[2].n);
    }
    b->count = 0;
    b->text.len = 0;
    return AF_OK;
}

uint64_t af_json_commas(const af_json_value *v)
{
    uint64_t commas = 1;
    for (const char *p = v->text; (p = memchr(p, ',', v->len - (uint64_t)(p - v->text))); p++)
        commas++;
    return commas;
}

static af_status read_all(batch *b, af_tokenizer *t, uint64_t bound, af_error *err)
{
    af_status st = AF_OK;
    bool first = true, skip;
    while (af_json_pull_more(&b->j, ']', &first)) {
        if (!next_merge(b, b->key[b->count], &skip))
            break;
        if (skip)
            continue;
        if (b->rank + b->count >= bound)
            return af_fail(err, AF_EFORMAT, "the merges mix strings and pairs");
        if (++b->count == BATCH)
            AF_TRY(flush(b, t, err));
    }
    AF_TRY(af_json_pull_check(&b->j, "the merges", err));
    AF_TRY(flush(b, t, err));
done:
    return st;
}

af_status af_merges_parse(af_tokenizer *t, const af_json_value *v, af_error *err)
{
    af_status st = AF_OK;
    if (v->type != AF_JSON_RAW || v->text[0] != '[')
        return af_fail(err, AF_EFORMAT, "the BPE model has no list of merges");
    batch *b = af_calloc(1, sizeof *b);
    if (!b)
        return af_fail_nomem(err, "the merges", sizeof *b);
    uint64_t bound = af_json_commas(v); /* no more entries than commas + 1 */
    af_json_pull_init(&b->j, v->text, v->len);
    af_json_pull_open(&b->j, '[');
    if (af_json_pull_peek(&b->j) == '[')
        bound = bound / 2 + 1;
    AF_TRY(af_merges_init(&t->model, bound, err));
    t->model.cut_at_mark = !t->model.prefix.n && !t->model.suffix.n &&
                           af_vocab_find(&t->vocab, "\xe2\x96\x81", 3) >= 0;
    AF_TRY(read_all(b, t, bound, err));
done:
    af_json_pull_clear(&b->j);
    af_buf_clear(&b->text);
    free(b);
    return st;
}
