/* tokenizer_model.c - the model of a tokenizer.json: vocabulary, merges, scores.
 *
 * These lists are most of the file, so they are read straight from its text. */
#include "format/tokenizer/tokenizer.h"

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

/* Entries on their way into the vocabulary: their places in the table are fetched together. */
enum { ENTRIES = 32 };
typedef struct vocab_entries {
    struct vocab_entry {
        const char *s;
        uint64_t n;
        int32_t id;
    } entry[ENTRIES];
    int count;
} vocab_entries;

static af_status add_entries(af_tokenizer *t, vocab_entries *e, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < e->count; i++)
        af_vocab_prefetch(&t->vocab, e->entry[i].s, e->entry[i].n);
    for (int i = 0; i < e->count; i++)
        AF_TRY(
            af_vocab_add(&t->vocab, &t->arena, e->entry[i].s, e->entry[i].n, e->entry[i].id, err));
    e->count = 0;
done:
    return st;
}

static af_status read_vocab_map(af_tokenizer *t, const af_json_value *v, af_error *err)
{
    af_status st = AF_OK;
    af_json_pull j = {0};
    vocab_entries e = {.count = 0};
    bool first = true;
    const char *s;
    uint64_t n;
    double id;
    AF_TRY(af_vocab_reserve(&t->vocab, v->items, err));
    af_json_pull_init(&j, v->text, v->len);
    af_json_pull_open(&j, '{');
    while (af_json_pull_more(&j, '}', &first)) {
        if (!af_json_pull_string(&j, &s, &n) || !af_json_pull_colon(&j))
            break;
        /* what is not borrowed from the file would not survive the next string */
        if (j.scratch.data == s && !(s = af_arena_strndup(&t->arena, s, n))) {
            st = af_fail_nomem(err, "the vocabulary", n);
            goto done;
        }
        if (!af_json_pull_number(&j, &id))
            break;
        if (id < 0 || id >= AF_MIN((double)v->items + AF_TOKENIZER_GAP_MAX, AF_TOKENIZER_ID_MAX) ||
            id != (double)(int32_t)id) {
            st = af_fail(err, AF_EFORMAT, "token \"%.*s\" has the invalid id %g",
                         (int)AF_MIN(n, 60), s, id);
            goto done;
        }
        e.entry[e.count++] = (struct vocab_entry){s, n, (int32_t)id};
        if (e.count == ENTRIES)
            AF_TRY(add_entries(t, &e, err));
    }
    AF_TRY(add_entries(t, &e, err));
    AF_TRY(af_json_pull_check(&j, "the vocabulary", err));
done:
    af_json_pull_clear(&j);
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

static double power_of_ten(int n)
{
    char text[16];
    double p = 1;
    if (n > 22) { /* not exact by multiplying */
        snprintf(text, sizeof text, "1e%d", n);
        return strtod(text, NULL);
    }
    while (n-- > 0)
        p *= 10;
    return p;
}

/* A score as the `tokenizers` package reads it: all digits as one integer, then one multiplication
 * or division. That is not always the nearest double, and which of two paths of equal probability
 * is taken depends on the last bit. The text is a valid number. */
static double score_of(const char *s, const char *end)
{
    const bool negative = *s == '-';
    uint64_t digits = 0;
    int64_t exponent = 0;
    bool fraction = false, full = false;
    for (s += negative; s < end && *s != 'e' && *s != 'E'; s++) {
        const uint64_t d = (uint64_t)(*s - '0');
        if (*s == '.') {
            fraction = true;
            continue;
        }
        full |= digits > (UINT64_MAX - d) / 10;
        digits = full ? digits : digits * 10 + d;
        exponent += full ? !fraction : -fraction;
    }
    const bool down = s + 1 < end && s[1] == '-';
    int64_t shift = 0;
    for (s++; s < end; s++)
        if (*s >= '0' && *s <= '9' && shift < 1000000)
            shift = shift * 10 + (*s - '0');
    exponent += down ? -shift : shift;
    double x = (double)digits;
    for (; exponent < -308 && x != 0; exponent += 308)
        x /= 1e308;
    if (x != 0)
        x = exponent < 0 ? x / power_of_ten((int)-exponent) : x * power_of_ten((int)exponent);
    return negative ? -x : x;
}

static af_status read_vocab_scores(af_tokenizer *t, const af_json_value *v, af_error *err)
{
    af_status st = AF_OK;
    af_json_pull j;
    bool first = true, inner;
    const char *s;
    uint64_t n;
    uint32_t cap = 0;
    double score, lowest = 1e300;
    af_buf copy = {0};
    af_json_pull_init(&j, v->text, v->len);
    af_json_pull_open(&j, '[');
    while (af_json_pull_more(&j, ']', &first)) {
        inner = true;
        if (!af_json_pull_open(&j, '[') || !af_json_pull_more(&j, ']', &inner) ||
            !af_json_pull_string(&j, &s, &n))
            break;
        copy.len = 0;
        af_buf_add(&copy, s, n);
        if (copy.bad || !af_json_pull_more(&j, ']', &inner) || !af_json_pull_peek(&j))
            break;
        const char *number = j.at;
        if (!af_json_pull_number(&j, &score))
            break;
        score = score_of(number, j.at);
        if (af_json_pull_more(&j, ']', &inner))
            j.bad = true, j.why = "a vocabulary entry has more than two values";
        AF_TRY(add_scored(t, copy.data, n, score, &cap, err));
        lowest = AF_MIN(lowest, score);
    }
    if (!j.bad && j.at != j.end)
        j.bad = true, j.why = "a vocabulary entry is not a pair";
    AF_TRY(af_json_pull_check(&j, "the unigram vocabulary", err));
    t->model.unk_score = lowest - 10.0;
done:
    af_buf_clear(&copy);
    af_json_pull_clear(&j);
    return st;
}

static void read_unk_token(af_tokenizer *t, const af_json_value *v)
{
    const af_json_value *unk = af_json_get(v, "unk_token");
    if (unk->type != AF_JSON_STRING)
        return;
    t->model.unk_id = af_vocab_find(&t->vocab, unk->text, unk->len);
    t->model.unk_missing = t->model.unk_id < 0;
}

static void read_affixes(af_token_model *m, const af_json_value *v)
{
    m->prefix = af_str_of(af_json_get(v, "continuing_subword_prefix"));
    m->suffix = af_str_of(af_json_get(v, "end_of_word_suffix"));
}

static void forget_words(af_tokenizer *t)
{
    af_vocab_clear(&t->vocab);
    free(t->model.merge);
    t->model = (af_token_model){.early_merges = t->model.early_merges};
}

uint64_t af_merges_read_early(void *tokenizer, const af_json_value *object,
                              const af_json_value *item)
{
    af_tokenizer *t = tokenizer;
    af_token_model *m = &t->model;
    const af_json_value *vocab = af_json_get(object, "vocab");
    uint64_t used = 0;
    if (strcmp(item->key, "merges") != 0 || item->text[0] != '[' || m->early_merges ||
        vocab->type != AF_JSON_RAW || vocab->text[0] != '{')
        return 0;
    read_affixes(m, object);
    m->early_vocab = vocab;
    m->early_merges = item;
    /* an error is found again, and reported, in its turn */
    if (read_vocab_map(t, vocab, NULL) != AF_OK || af_merges_parse(t, item, &used, NULL) != AF_OK) {
        forget_words(t);
        return 0;
    }
    return used;
}

static bool same_str(af_str a, af_str b) { return a.n == b.n && memcmp(a.s, b.s, a.n) == 0; }

static af_status read_words_of_bpe(af_tokenizer *t, const af_json_value *v, af_error *err)
{
    af_token_model *m = &t->model;
    af_status st = AF_OK;
    uint64_t used;
    const af_json_value *vocab = af_json_get(v, "vocab"), *merges = af_json_get(v, "merges");
    const af_str prefix = m->prefix, suffix = m->suffix;
    read_affixes(m, v);
    if (vocab == m->early_vocab && merges == m->early_merges && same_str(prefix, m->prefix) &&
        same_str(suffix, m->suffix))
        return AF_OK;
    forget_words(t);
    read_affixes(m, v);
    AF_TRY(read_vocab_map(t, vocab, err));
    AF_TRY(af_merges_parse(t, merges, &used, err));
done:
    return st;
}

static af_status read_bpe(af_tokenizer *t, const af_json_value *v, af_error *err)
{
    af_token_model *m = &t->model;
    af_status st = AF_OK;
    const af_json_value *dropout = af_json_get(v, "dropout");
    if (dropout->type == AF_JSON_NUMBER && dropout->number != 0)
        return af_fail(err, AF_EUNSUPPORTED, "the BPE model has dropout %g, which makes ids random",
                       dropout->number);
    AF_TRY(read_words_of_bpe(t, v, err));
    m->kind = AF_MODEL_BPE;
    m->fuse_unk = af_json_bool(v, "fuse_unk", false);
    m->byte_fallback = af_json_bool(v, "byte_fallback", false);
    m->ignore_merges = af_json_bool(v, "ignore_merges", false);
    m->unk_id = -1;
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

static af_status read_unigram(af_tokenizer *t, const af_json_value *v, af_error *err)
{
    af_token_model *m = &t->model;
    af_status st = AF_OK;
    const af_json_value *unk = af_json_get(v, "unk_id");
    m->kind = AF_MODEL_UNIGRAM;
    m->byte_fallback = af_json_bool(v, "byte_fallback", false);
    AF_TRY(read_vocab_scores(t, af_json_get(v, "vocab"), err));
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

static af_status read_words(af_tokenizer *t, const af_json_value *v, bool pieces, af_error *err)
{
    af_token_model *m = &t->model;
    af_status st = AF_OK;
    const af_json_value *most = af_json_get(v, "max_input_chars_per_word");
    const af_json_value *prefix = af_json_get(v, "continuing_subword_prefix");
    m->kind = pieces ? AF_MODEL_WORDPIECE : AF_MODEL_WORDLEVEL;
    m->prefix = prefix->type == AF_JSON_STRING ? af_str_of(prefix) : (af_str){"##", 2};
    m->max_chars = most->type == AF_JSON_NUMBER && most->number >= 0 && most->number < 1e9
                       ? (uint32_t)most->number
                       : 100;
    AF_TRY(read_vocab_map(t, af_json_get(v, "vocab"), err));
    read_unk_token(t, v);
done:
    return st;
}

af_status af_model_parse(af_tokenizer *t, const af_json_value *v, af_error *err)
{
    const af_json_value *type = af_json_get(v, "type"), *vocab = af_json_get(v, "vocab");
    const char *name = type->type == AF_JSON_STRING ? type->text : "";
    if (v->type != AF_JSON_OBJECT || vocab->type != AF_JSON_RAW)
        return af_fail(err, AF_EFORMAT, "tokenizer.json has no model with a vocabulary");
    if (type->type != AF_JSON_STRING) /* old files do not say it */
        name = af_json_get(v, "merges")->type != AF_JSON_NONE                     ? "BPE"
               : vocab->text[0] == '['                                            ? "Unigram"
               : af_json_get(v, "max_input_chars_per_word")->type != AF_JSON_NONE ? "WordPiece"
                                                                                  : "WordLevel";
    if (strcmp(name, "BPE") == 0)
        return read_bpe(t, v, err);
    forget_words(t);
    t->model.unk_id = -1;
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
