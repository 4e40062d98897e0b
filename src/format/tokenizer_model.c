/* tokenizer_model.c - the model of a tokenizer.json: vocabulary, merges, scores.
 *
 * These lists are most of the file, so they are read straight from its text. */
#include "format/tokenizer.h"

uint32_t af_byte_char(uint8_t b)
{
    if ((b >= '!' && b <= '~') || (b >= 0xa1 && b != 0xad))
        return b;
    if (b <= 0x20)
        return 0x100u + b;
    return b == 0xad ? 0x143 : 0x121u + (b - 0x7fu);
}

int af_char_byte(uint32_t cp)
{
    if ((cp >= '!' && cp <= '~') || (cp >= 0xa1 && cp <= 0xff && cp != 0xad))
        return (int)cp;
    if (cp >= 0x100 && cp <= 0x120)
        return (int)(cp - 0x100);
    if (cp >= 0x121 && cp <= 0x142)
        return (int)(cp - 0x121 + 0x7f);
    return cp == 0x143 ? 0xad : -1;
}

static af_status read_vocab_map(af_tokenizer *t, const af_jval *v, af_error *err)
{
    af_status st = AF_OK;
    af_jpull j;
    bool first = true;
    const char *s;
    uint64_t n;
    double id;
    af_jpull_init(&j, v->text, v->len);
    af_jpull_open(&j, '{');
    while (af_jpull_more(&j, '}', &first)) {
        if (!af_jpull_string(&j, &s, &n) || !af_jpull_colon(&j))
            break;
        if (j.scratch.data != s) { /* borrowed from the file: it survives reading the number */
            if (!af_jpull_number(&j, &id))
                break;
        } else {
            char *copy = af_arena_strndup(&t->arena, s, n);
            if (!copy || !af_jpull_number(&j, &id))
                break;
            s = copy;
        }
        if (id < 0 || id >= AF_TOKENIZER_ID_MAX || id != (double)(int32_t)id) {
            st = af_fail(err, AF_EFORMAT, "token \"%.*s\" has the impossible id %g",
                         (int)AF_MIN(n, 60), s, id);
            goto done;
        }
        AF_TRY(af_vocab_add(&t->vocab, &t->arena, s, n, (int32_t)id, err));
    }
    AF_TRY(af_jpull_check(&j, "the vocabulary", err));
done:
    af_jpull_clear(&j);
    return st;
}

static af_status add_scored(af_tokenizer *t, const char *s, uint64_t n, double score, uint32_t *cap,
                            af_error *err)
{
    af_status st = AF_OK;
    const int32_t id = t->vocab.count, old = af_vocab_find(&t->vocab, s, n);
    AF_TRY(af_vocab_add(&t->vocab, &t->arena, s, n, id, err));
    if (old >= 0) /* a string twice: the map has the last, both ids have the string */
        t->vocab.token[old] = t->vocab.token[id];
    if (!af_grow(&t->model.score, cap, (uint64_t)id + 1, sizeof *t->model.score))
        return af_fail_nomem(err, "the scores", (uint64_t)id * 8);
    t->model.score[id] = score;
done:
    return st;
}

static af_status read_vocab_scores(af_tokenizer *t, const af_jval *v, af_error *err)
{
    af_status st = AF_OK;
    af_jpull j;
    bool first = true, inner;
    const char *s;
    uint64_t n;
    uint32_t cap = 0;
    double score, lowest = 1e300;
    af_buf copy = {0};
    af_jpull_init(&j, v->text, v->len);
    af_jpull_open(&j, '[');
    while (af_jpull_more(&j, ']', &first)) {
        inner = true;
        if (!af_jpull_open(&j, '[') || !af_jpull_more(&j, ']', &inner) ||
            !af_jpull_string(&j, &s, &n))
            break;
        copy.len = 0;
        af_buf_add(&copy, s, n);
        if (copy.bad || !af_jpull_more(&j, ']', &inner) || !af_jpull_number(&j, &score))
            break;
        if (af_jpull_more(&j, ']', &inner))
            j.bad = true, j.why = "a vocabulary entry with more than two values";
        AF_TRY(add_scored(t, copy.data, n, score, &cap, err));
        lowest = AF_MIN(lowest, score);
    }
    if (!j.bad && j.at != j.end)
        j.bad = true, j.why = "a vocabulary entry that is no pair";
    AF_TRY(af_jpull_check(&j, "the unigram vocabulary", err));
    t->model.unk_score = lowest - 10.0;
done:
    af_buf_clear(&copy);
    af_jpull_clear(&j);
    return st;
}

typedef struct merge_reader {
    af_jpull j;
    af_buf left, joined;
} merge_reader;

/* One merge, "a b" or ["a", "b"]; *skip for a version line. */
static bool next_merge(merge_reader *r, const char **b, uint64_t *bn, bool *skip)
{
    const char *s;
    uint64_t n;
    bool inner = true;
    *skip = false;
    r->left.len = 0;
    if (af_jpull_peek(&r->j) == '[') {
        if (!af_jpull_open(&r->j, '[') || !af_jpull_more(&r->j, ']', &inner) ||
            !af_jpull_string(&r->j, &s, &n))
            return false;
        af_buf_add(&r->left, s, n);
        return af_jpull_more(&r->j, ']', &inner) && af_jpull_string(&r->j, b, bn) &&
               !af_jpull_more(&r->j, ']', &inner) && !r->left.bad;
    }
    if (!af_jpull_string(&r->j, &s, &n))
        return false;
    if (n >= 8 && memcmp(s, "#version", 8) == 0) {
        *skip = true;
        return true;
    }
    const char *space = memchr(s, ' ', n);
    if (!space || memchr(space + 1, ' ', n - (uint64_t)(space + 1 - s))) {
        r->j.bad = true;
        r->j.why = "a merge that is not two words";
        return false;
    }
    af_buf_add(&r->left, s, (uint64_t)(space - s));
    *b = space + 1;
    *bn = n - (uint64_t)(space + 1 - s);
    return !r->left.bad;
}

/* Is there a U+2581 behind anything but U+2581? */
static bool mark_inside(const char *s, uint64_t n)
{
    for (uint64_t i = 1; i + 3 <= n; i++)
        if (memcmp(s + i, "\xe2\x96\x81", 3) == 0 &&
            (i < 3 || memcmp(s + i - 3, "\xe2\x96\x81", 3)))
            return true;
    return false;
}

static af_status add_merge(af_tokenizer *t, merge_reader *r, const char *b, uint64_t bn,
                           uint32_t rank, af_error *err)
{
    const uint32_t prefix = t->model.prefix.n;
    const int32_t left = af_vocab_find(&t->vocab, r->left.data ? r->left.data : "", r->left.len);
    const int32_t right = af_vocab_find(&t->vocab, b, bn);
    r->joined.len = 0;
    af_buf_add(&r->joined, r->left.data, r->left.len);
    if (bn >= prefix)
        af_buf_add(&r->joined, b + prefix, bn - prefix);
    if (r->joined.bad)
        return af_fail_nomem(err, "a merge", bn);
    const int32_t id =
        af_vocab_find(&t->vocab, r->joined.data ? r->joined.data : "", r->joined.len);
    if (left < 0 || right < 0 || id < 0 || bn < prefix)
        return af_fail(err, AF_EFORMAT,
                       "merge %" PRIu32 " (\"%.60s\" + \"%.*s\") has a token that "
                       "is not in the vocabulary",
                       rank, r->left.data ? r->left.data : "", (int)AF_MIN(bn, 60), b);
    af_merges_put(&t->model, left, right, rank, id);
    if (t->model.cut_at_mark && mark_inside(r->joined.data, r->joined.len))
        t->model.cut_at_mark = false;
    return AF_OK;
}

static uint64_t count_merges(const af_jval *v)
{
    uint64_t commas = 1; /* an upper bound: entries cannot be more than commas + 1 */
    for (const char *p = v->text; (p = memchr(p, ',', v->len - (uint64_t)(p - v->text))); p++)
        commas++;
    return commas;
}

static af_status read_merges(af_tokenizer *t, const af_jval *v, af_error *err)
{
    af_status st = AF_OK;
    merge_reader r = {0};
    bool first = true, skip;
    const char *b;
    uint64_t bn;
    uint32_t rank = 0;
    uint64_t bound = v->type == AF_JSON_RAW ? count_merges(v) : 0;
    if (v->type == AF_JSON_RAW && v->len > 2 && v->text[1] == '[')
        bound = bound / 2 + 1;
    AF_TRY(af_merges_init(&t->model, bound, err));
    if (v->type != AF_JSON_RAW)
        return af_fail(err, AF_EFORMAT, "the BPE model has no list of merges");
    t->model.cut_at_mark = !t->model.prefix.n && !t->model.suffix.n &&
                           af_vocab_find(&t->vocab, "\xe2\x96\x81", 3) >= 0;
    af_jpull_init(&r.j, v->text, v->len);
    af_jpull_open(&r.j, '[');
    while (af_jpull_more(&r.j, ']', &first)) {
        if (!next_merge(&r, &b, &bn, &skip))
            break;
        if (skip)
            continue;
        if (rank >= bound) {
            st = af_fail(err, AF_EFORMAT, "the merges mix strings and pairs");
            goto done;
        }
        AF_TRY(add_merge(t, &r, b, bn, rank++, err));
    }
    if (!r.j.bad && r.j.at != r.j.end)
        r.j.bad = true, r.j.why = "a merge that is no pair";
    AF_TRY(af_jpull_check(&r.j, "the merges", err));
done:
    af_jpull_clear(&r.j);
    af_buf_clear(&r.left);
    af_buf_clear(&r.joined);
    return st;
}

static void read_unk_token(af_tokenizer *t, const af_jval *v)
{
    const af_jval *unk = af_jval_get(v, "unk_token");
    if (unk->type != AF_JSON_STRING)
        return;
    t->model.unk_id = af_vocab_find(&t->vocab, unk->text, unk->len);
    t->model.unk_missing = t->model.unk_id < 0;
}

static af_status read_bpe(af_tokenizer *t, const af_jval *v, af_error *err)
{
    af_token_model *m = &t->model;
    af_status st = AF_OK;
    const af_jval *dropout = af_jval_get(v, "dropout");
    if (dropout->type == AF_JSON_NUMBER && dropout->number != 0)
        return af_fail(err, AF_EUNSUPPORTED,
                       "the BPE model has a dropout of %g: its ids would be random",
                       dropout->number);
    m->kind = AF_MODEL_BPE;
    m->fuse_unk = af_jval_bool(v, "fuse_unk", false);
    m->byte_fallback = af_jval_bool(v, "byte_fallback", false);
    m->ignore_merges = af_jval_bool(v, "ignore_merges", false);
    m->prefix = af_str_of(af_jval_get(v, "continuing_subword_prefix"));
    m->suffix = af_str_of(af_jval_get(v, "end_of_word_suffix"));
    AF_TRY(read_vocab_map(t, af_jval_get(v, "vocab"), err));
    AF_TRY(read_merges(t, af_jval_get(v, "merges"), err));
    read_unk_token(t, v);
done:
    return st;
}

static af_status build_trie(af_tokenizer *t, af_error *err)
{
    af_trie_key *key = af_calloc((uint64_t)t->vocab.count + 1, sizeof *key);
    uint32_t n = 0;
    if (!key)
        return af_fail_nomem(err, "the unigram trie", (uint64_t)t->vocab.count * sizeof *key);
    for (int32_t i = 0; i < t->vocab.count; i++) {
        const af_str s = t->vocab.token[i];
        if (s.s && af_vocab_find(&t->vocab, s.s, s.n) == i)
            key[n++] = (af_trie_key){s.s, s.n, i};
    }
    const af_status st = af_trie_build(&t->model.trie, key, n, err);
    free(key);
    return st;
}

static af_status read_unigram(af_tokenizer *t, const af_jval *v, af_error *err)
{
    af_token_model *m = &t->model;
    af_status st = AF_OK;
    const af_jval *unk = af_jval_get(v, "unk_id");
    m->kind = AF_MODEL_UNIGRAM;
    m->byte_fallback = af_jval_bool(v, "byte_fallback", false);
    AF_TRY(read_vocab_scores(t, af_jval_get(v, "vocab"), err));
    if (unk->type == AF_JSON_NUMBER) {
        if (unk->number < 0 || unk->number >= t->vocab.count) {
            st = af_fail(err, AF_EFORMAT, "unk_id %g is not in the vocabulary of %" PRId32,
                         unk->number, t->vocab.count);
            goto done;
        }
        m->unk_id = (int32_t)unk->number;
    }
    AF_TRY(build_trie(t, err));
done:
    return st;
}

static af_status read_words(af_tokenizer *t, const af_jval *v, bool pieces, af_error *err)
{
    af_token_model *m = &t->model;
    af_status st = AF_OK;
    const af_jval *most = af_jval_get(v, "max_input_chars_per_word");
    const af_jval *prefix = af_jval_get(v, "continuing_subword_prefix");
    m->kind = pieces ? AF_MODEL_WORDPIECE : AF_MODEL_WORDLEVEL;
    m->prefix = prefix->type == AF_JSON_STRING ? af_str_of(prefix) : (af_str){"##", 2};
    m->max_chars = most->type == AF_JSON_NUMBER && most->number >= 0 && most->number < 1e9
                       ? (uint32_t)most->number
                       : 100;
    AF_TRY(read_vocab_map(t, af_jval_get(v, "vocab"), err));
    read_unk_token(t, v);
done:
    return st;
}

af_status af_model_parse(af_tokenizer *t, const af_jval *v, af_error *err)
{
    const af_jval *type = af_jval_get(v, "type"), *vocab = af_jval_get(v, "vocab");
    const char *name = type->type == AF_JSON_STRING ? type->text : "";
    t->model.unk_id = -1;
    if (v->type != AF_JSON_OBJECT || vocab->type != AF_JSON_RAW)
        return af_fail(err, AF_EFORMAT, "tokenizer.json has no model with a vocabulary");
    if (type->type != AF_JSON_STRING) /* old files do not say it */
        name = af_jval_get(v, "merges")->type != AF_JSON_NONE                     ? "BPE"
               : vocab->text[0] == '['                                            ? "Unigram"
               : af_jval_get(v, "max_input_chars_per_word")->type != AF_JSON_NONE ? "WordPiece"
                                                                                  : "WordLevel";
    if (strcmp(name, "BPE") == 0)
        return read_bpe(t, v, err);
    if (strcmp(name, "Unigram") == 0)
        return read_unigram(t, v, err);
    if (strcmp(name, "WordPiece") == 0 || strcmp(name, "WordLevel") == 0)
        return read_words(t, v, name[4] == 'P', err);
    return af_fail(err, AF_EUNSUPPORTED, "the tokenizer model \"%.80s\" is not known", name);
}

af_status af_model_finish(af_tokenizer *t, af_error *err)
{
    af_token_model *m = &t->model;
    char text[8];
    for (int b = 0; b < 256; b++) {
        uint32_t n = af_utf8_put(text, af_byte_char((uint8_t)b));
        m->byte_id[b] = af_vocab_find(&t->vocab, text, n);
        n = (uint32_t)snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
        m->fallback_id[b] = af_vocab_find(&t->vocab, text, n);
        text[0] = (char)b;
        if (b < 128)
            m->ascii_id[b] = af_vocab_find(&t->vocab, text, 1);
    }
    /* Bytes go to the model as they are when nothing in it looks at their printable spelling. */
    af_pre *last = t->pres ? &t->pre[t->pres - 1] : NULL;
    const bool plain = m->kind == AF_MODEL_BPE && !m->prefix.n && !m->suffix.n && !m->byte_fallback;
    m->byte_level = last && last->kind == AF_PRE_BYTE_LEVEL && plain;
    if (last)
        last->last = m->byte_level;
    if (m->byte_level)
        m->cut_at_mark = false;
    (void)err;
    return AF_OK;
}
