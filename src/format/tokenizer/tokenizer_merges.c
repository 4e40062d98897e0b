/* tokenizer_merges.c - the merge list of a BPE model, from the text of tokenizer.json.
 *
 * A merge is three look-ups in a table far larger than the cache. They are made in batches, each
 * step of all of them before the next, with prefetches in between. Most results need none: lists
 * name them in the order of their ids, so that the last id or the next is tried first. */
#include "format/tokenizer/tokenizer.h"

enum { SAMPLE = 4096 };
enum { BATCH = 32, LEFT = 0, RIGHT, RESULT };

enum { LOOK_UP = -2 }; /* an id that is not known yet */

typedef struct batch {
    af_json_pull j;
    af_buf text, joined; /* strings with escapes; results that have to be looked up */
    af_vocab_key key[BATCH][3];
    uint64_t at[BATCH]
               [3]; /* of strings in text or joined, whose s is NULL until both are complete */
    uint32_t count, rank;
    uint64_t items;      /* of the list; 0 = not known */
    bool pairs;          /* ["a", "b"], not "a b" */
    int32_t last, noted; /* results of the merges before */
} batch;

static void add_key(batch *b, int side, const char *s, uint64_t n, bool unescaped)
{
    const bool copy = unescaped && n; /* lives until the next string only */
    b->at[b->count][side] = b->text.len;
    b->key[b->count][side] = (af_vocab_key){.s = copy ? NULL : s, .n = (uint32_t)n, .id = LOOK_UP};
    if (copy)
        af_buf_add(&b->text, s, n);
}

static bool no_merge(batch *b, const char *why)
{
    b->j.bad = true;
    b->j.why = why;
    return false;
}

/* One merge, "a b" or ["a", "b"], as the next keys of the batch; *skip for a version line. */
static bool next_merge(batch *b, bool *skip)
{
    const char *s;
    uint64_t n;
    bool inner = true;
    *skip = false;
    if ((af_json_pull_peek(&b->j) == '[') != b->pairs)
        return no_merge(b, "the merges mix strings and pairs");
    if (b->pairs) {
        if (!af_json_pull_open(&b->j, '[') || !af_json_pull_more(&b->j, ']', &inner) ||
            !af_json_pull_string(&b->j, &s, &n))
            return false;
        add_key(b, LEFT, s, n, s == b->j.scratch.data);
        if (!af_json_pull_more(&b->j, ']', &inner) || !af_json_pull_string(&b->j, &s, &n))
            return no_merge(b, "a merge is not a pair");
        add_key(b, RIGHT, s, n, s == b->j.scratch.data);
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
    const bool unescaped = s == b->j.scratch.data;
    add_key(b, LEFT, s, (uint64_t)(space - s), unescaped);
    add_key(b, RIGHT, space + 1, n - (uint64_t)(space + 1 - s), unescaped);
    return true;
}

void af_model_note_marks(af_token_model *m, const char *s, uint32_t n)
{
    for (uint32_t i = 1; i + 3 <= n; i++)
        if (memcmp(s + i, "\xe2\x96\x81", 3) == 0 &&
            (i < 3 || memcmp(s + i - 3, "\xe2\x96\x81", 3) != 0))
            m->joined[(uint8_t)s[i - 1]] = true;
}

/* What the right side adds to the left: without the prefix of tokens inside a word. */
static af_str tail_of(const af_vocab_key *right, uint32_t prefix)
{
    const uint32_t cut = AF_MIN(prefix, right->n);
    return (af_str){right->s + cut, right->n - cut};
}

static bool is_result(const af_vocab *v, int32_t id, const af_vocab_key *left, af_str tail)
{
    const af_str t = id < v->count ? v->token[id] : (af_str){0};
    return t.s && t.n == left->n + tail.n && memcmp(t.s, left->s, left->n) == 0 &&
           memcmp(t.s + left->n, tail.s, tail.n) == 0;
}

/* The three keys of each merge, now that the text does not grow any more. A result that is not
 * the last or the next token is written to b->joined. */
static void complete_keys(batch *b, const af_vocab *v, uint32_t prefix)
{
    for (uint32_t i = 0; i < b->count; i++) {
        af_vocab_key *k = b->key[i], *result = &k[RESULT];
        for (int c = LEFT; c <= RIGHT; c++)
            if (!k[c].s)
                k[c].s = b->text.data + b->at[i][c];
        const af_str tail = tail_of(&k[RIGHT], prefix);
        *result = (af_vocab_key){.n = k[LEFT].n + tail.n, .id = LOOK_UP};
        for (int32_t id = b->last; id <= b->last + 1 && result->id == LOOK_UP; id++)
            if (is_result(v, id, &k[LEFT], tail))
                b->last = result->id = id;
        if (result->id != LOOK_UP)
            continue;
        b->at[i][RESULT] = b->joined.len;
        af_buf_add(&b->joined, k[LEFT].s, k[LEFT].n);
        af_buf_add(&b->joined, tail.s, tail.n);
    }
    for (uint32_t i = 0; i < b->count; i++)
        if (b->key[i][RESULT].id == LOOK_UP)
            b->key[i][RESULT].s = b->joined.data + b->at[i][RESULT];
}

static void look_up(batch *b, const af_tokenizer *t)
{
    af_vocab_key *key[BATCH * 3];
    int n = 0;
    for (uint32_t i = 0; i < b->count; i++)
        for (int c = LEFT; c <= RESULT; c++)
            if (b->key[i][c].id == LOOK_UP)
                key[n++] = &b->key[i][c];
    af_vocab_find_all(&t->vocab, key, n);
    for (uint32_t i = 0; i < b->count; i++)
        af_merges_prefetch(&t->model, b->key[i][LEFT].id, b->key[i][RIGHT].id);
    if (b->count)
        b->last = AF_MAX(b->key[b->count - 1][RESULT].id, 0);
}

/* How many merges there are, by the size of those before when nobody counted them. */
static uint64_t expected(const batch *b)
{
    const uint64_t read = b->rank + b->count;
    if (b->items || read < SAMPLE)
        return b->items ? b->items : SAMPLE;
    return read +
           (uint64_t)((double)read * (double)(b->j.end - b->j.at) / (double)(b->j.at - b->j.start));
}

static af_status flush(batch *b, af_tokenizer *t, af_error *err)
{
    af_status st = AF_OK;
    const uint32_t prefix = t->model.prefix.n;
    if (!b->text.bad)
        complete_keys(b, &t->vocab, prefix);
    if (b->text.bad || b->joined.bad)
        return af_fail_nomem(err, "the merges", b->text.len + b->joined.len);
    if (!t->model.merge || (uint64_t)b->rank + b->count > af_merges_most(&t->model))
        AF_TRY(af_merges_reserve(&t->model, expected(b), err));
    look_up(b, t);
    for (uint32_t i = 0; i < b->count; i++, b->rank++) {
        const af_vocab_key *k = b->key[i];
        if (k[LEFT].id < 0 || k[RIGHT].id < 0 || k[RESULT].id < 0 || k[RIGHT].n < prefix)
            return af_fail(err, AF_EFORMAT,
                           "merge %" PRIu32 " (\"%.*s\" + \"%.*s\") has a token that is not in the "
                           "vocabulary",
                           b->rank, (int)AF_MIN(k[LEFT].n, 60), k[LEFT].s,
                           (int)AF_MIN(k[RIGHT].n, 60), k[RIGHT].s);
        af_merges_put(&t->model, k[LEFT].id, k[RIGHT].id, b->rank, k[RESULT].id);
        if (t->model.cut_at_mark && k[RESULT].id != b->noted)
            af_model_note_marks(&t->model, t->vocab.token[k[RESULT].id].s, k[RESULT].n);
        b->noted = k[RESULT].id;
    }
    b->count = 0;
    b->text.len = b->joined.len = 0;
done:
    return st;
}

static af_status read_all(batch *b, af_tokenizer *t, af_error *err)
{
    af_status st = AF_OK;
    bool first = true, skip;
    while (af_json_pull_more(&b->j, ']', &first)) {
        if (!next_merge(b, &skip))
            break;
        if (!skip && ++b->count == BATCH)
            AF_TRY(flush(b, t, err));
    }
    AF_TRY(af_json_pull_check(&b->j, "the merges", err));
    AF_TRY(flush(b, t, err));
done:
    return st;
}

af_status af_merges_parse(af_tokenizer *t, const af_json_value *v, uint64_t *used, af_error *err)
{
    af_status st = AF_OK;
    if (v->type != AF_JSON_RAW || v->text[0] != '[')
        return af_fail(err, AF_EFORMAT, "the BPE model has no list of merges");
    batch *b = af_calloc(1, sizeof *b);
    if (!b)
        return af_fail_nomem(err, "the merges", sizeof *b);
    b->noted = -1;
    af_json_pull_init(&b->j, v->text, v->len);
    af_json_pull_open(&b->j, '[');
    b->pairs = af_json_pull_peek(&b->j) == '[';
    b->items = v->items;
    t->model.cut_at_mark = !t->model.prefix.n && !t->model.suffix.n &&
                           af_vocab_find(&t->vocab, "\xe2\x96\x81", 3) >= 0;
    AF_TRY(read_all(b, t, err));
    *used = (uint64_t)(b->j.at - b->j.start);
done:
    af_json_pull_clear(&b->j);
    af_buf_clear(&b->text);
    af_buf_clear(&b->joined);
    free(b);
    return st;
}
