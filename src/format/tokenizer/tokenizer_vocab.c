/* tokenizer_vocab.c - strings to ids by hash, ids to strings by index, pairs of ids to merges. */
#include "format/tokenizer/tokenizer.h"

bool af_grow(void *p, uint32_t *cap, uint64_t want, uint64_t size)
{
    if (want <= *cap)
        return true;
    const uint64_t more = AF_MAX(want, (uint64_t)*cap + *cap / 2 + 64);
    if (more > UINT32_MAX)
        return false;
    void *old, *grown;
    memcpy(&old, p, sizeof old);
    grown = af_realloc(old, more, size);
    if (!grown)
        return false;
    memcpy(p, &grown, sizeof grown);
    *cap = (uint32_t)more;
    return true;
}

/* Eight bytes per step, multiply and fold: words are short, and this runs once for each of them. */
uint64_t af_bytes_hash(const char *s, uint64_t n)
{
    const uint64_t k = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t h = n * k, w;
    while (n >= 8) {
        memcpy(&w, s, 8);
        h = (h ^ w) * k;
        h ^= h >> 32;
        s += 8;
        n -= 8;
    }
    w = 0;
    if (n >= 4) {
        uint32_t a, b;
        memcpy(&a, s, 4);
        memcpy(&b, s + n - 4, 4);
        w = (uint64_t)a << 32 | b;
    } else if (n > 0) {
        w = (uint64_t)(uint8_t)s[0] << 16 | (uint64_t)(uint8_t)s[n / 2] << 8 | (uint8_t)s[n - 1];
    }
    h = (h ^ w) * k;
    h ^= h >> 29;
    return h * k;
}

uint32_t af_vocab_hash(const char *s, uint64_t n) { return (uint32_t)(af_bytes_hash(s, n) >> 32); }

static af_status rehash(af_vocab *v, uint32_t slots, af_error *err)
{
    struct af_vocab_slot *grown = af_calloc(slots, sizeof *grown);
    if (!grown)
        return af_fail_nomem(err, "the vocabulary", (uint64_t)slots * sizeof *grown);
    for (uint32_t i = 0; i < slots; i++)
        grown[i].id = -1;
    for (uint32_t i = 0; v->slot && i <= v->mask; i++) {
        if (v->slot[i].id < 0)
            continue;
        uint32_t at = v->slot[i].hash & (slots - 1);
        while (grown[at].id >= 0)
            at = (at + 1) & (slots - 1);
        grown[at] = v->slot[i];
    }
    free(v->slot);
    v->slot = grown;
    v->mask = slots - 1;
    return AF_OK;
}

static af_status room_for_id(af_vocab *v, int32_t id, af_error *err)
{
    if (id < 0 || id >= AF_TOKENIZER_ID_MAX)
        return af_fail(err, AF_EFORMAT, "token id %" PRId32 " is not in 0 to %d", id,
                       AF_TOKENIZER_ID_MAX - 1);
    if (id >= v->cap) {
        const int32_t cap = AF_MAX(id + 1, v->cap + v->cap / 2 + 1024);
        af_str *grown = af_realloc(v->token, (uint64_t)cap, sizeof *grown);
        if (!grown)
            return af_fail_nomem(err, "the vocabulary", (uint64_t)cap * sizeof *grown);
        memset(grown + v->cap, 0, (size_t)(cap - v->cap) * sizeof *grown);
        v->token = grown;
        v->cap = cap;
    }
    v->count = AF_MAX(v->count, id + 1);
    return AF_OK;
}

static uint32_t find_slot(const af_vocab *v, const char *s, uint64_t n, uint32_t hash)
{
    uint32_t at = hash & v->mask;
    while (v->slot[at].id >= 0) {
        const af_str *t = &v->token[v->slot[at].id];
        if (v->slot[at].hash == hash && t->n == n && memcmp(t->s, s, n) == 0)
            break;
        at = (at + 1) & v->mask;
    }
    return at;
}

af_status af_vocab_add(af_vocab *v, af_arena *arena, const char *s, uint64_t n, int32_t id,
                       af_error *err)
{
    af_status st = AF_OK;
    if (n > AF_TOKENIZER_TEXT_MAX)
        return af_fail(err, AF_EFORMAT, "a token is %" PRIu64 " bytes long", n);
    AF_TRY(room_for_id(v, id, err));
    if (!v->slot || (uint64_t)v->entries * 2 >= v->mask)
        AF_TRY(rehash(v, v->slot ? (v->mask + 1) * 2 : 1024, err));
    const uint32_t hash = af_vocab_hash(s, n), at = find_slot(v, s, n, hash);
    char *copy;
    if (v->slot[at].id >= 0) { /* the string moves to its new id */
        copy = (char *)v->token[v->slot[at].id].s;
        v->token[v->slot[at].id] = (af_str){0};
    } else {
        copy = af_arena_take(arena, n + 1);
        if (!copy)
            return af_fail_nomem(err, "the vocabulary", n);
        memcpy(copy, s, n);
        v->entries++;
    }
    if (v->token[id].s) { /* the id had another string: that one is gone */
        const af_str old = v->token[id];
        const uint32_t gone = find_slot(v, old.s, old.n, af_vocab_hash(old.s, old.n));
        if (v->slot[gone].id == id && gone != at)
            return af_fail(err, AF_EFORMAT,
                           "tokens \"%.40s\" and \"%.40s\" have the same id %" PRId32, old.s, copy,
                           id);
    }
    v->token[id] = (af_str){copy, (uint32_t)n};
    v->longest = AF_MAX(v->longest, (uint32_t)n);
    v->slot[at] = (struct af_vocab_slot){hash, id};
done:
    return st;
}

af_status af_vocab_reserve(af_vocab *v, uint64_t entries, af_error *err)
{
    uint64_t slots = 1024;
    while (slots < entries * 2 + 2 && slots < AF_TOKENIZER_ID_MAX)
        slots *= 2;
    return v->slot && slots <= v->mask ? AF_OK : rehash(v, (uint32_t)slots, err);
}

int32_t af_vocab_find(const af_vocab *v, const char *s, uint64_t n)
{
    return af_vocab_find_hashed(v, s, n, af_vocab_hash(s, n));
}

int32_t af_vocab_find_hashed(const af_vocab *v, const char *s, uint64_t n, uint32_t hash)
{
    return v->slot ? v->slot[find_slot(v, s, n, hash)].id : -1;
}

void af_vocab_prefetch(const af_vocab *v, uint32_t hash)
{
    if (v->slot)
        __builtin_prefetch(&v->slot[hash & v->mask]);
}

void af_vocab_prefetch_token(const af_vocab *v, uint32_t hash)
{
    const int32_t id = v->slot ? v->slot[hash & v->mask].id : -1;
    if (id >= 0)
        __builtin_prefetch(&v->token[id]);
}

void af_vocab_prefetch_text(const af_vocab *v, uint32_t hash)
{
    const int32_t id = v->slot ? v->slot[hash & v->mask].id : -1;
    if (id >= 0)
        __builtin_prefetch(v->token[id].s);
}

void af_vocab_clear(af_vocab *v)
{
    free(v->slot);
    free(v->token);
    *v = (af_vocab){0};
}

static uint64_t pair_hash(uint64_t pair)
{
    pair *= UINT64_C(0x9e3779b97f4a7c15);
    return pair ^ pair >> 29;
}

af_status af_merges_init(af_token_model *m, uint64_t count, af_error *err)
{
    uint64_t slots = 16;
    while (slots < count + count / 2)
        slots *= 2;
    free(m->merge);
    m->merge = af_calloc(slots, sizeof *m->merge);
    if (!m->merge)
        return af_fail_nomem(err, "the merges", slots * sizeof *m->merge);
    memset(m->merge, 0xff, slots * sizeof *m->merge);
    m->merge_mask = slots - 1;
    return AF_OK;
}

void af_merges_prefetch(const af_token_model *m, int32_t a, int32_t b)
{
    __builtin_prefetch(
        &m->merge[pair_hash((uint64_t)(uint32_t)a << 32 | (uint32_t)b) & m->merge_mask], 1);
}

void af_merges_put(af_token_model *m, int32_t a, int32_t b, uint32_t rank, int32_t id)
{
    const uint64_t pair = (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
    uint64_t at = pair_hash(pair) & m->merge_mask;
    while (m->merge[at].pair != UINT64_MAX && m->merge[at].pair != pair)
        at = (at + 1) & m->merge_mask;
    m->merge[at] = (af_merge_slot){pair, rank, id}; /* a pair named twice: the last rank counts */
}

const af_merge_slot *af_merges_get(const af_token_model *m, int32_t a, int32_t b)
{
    const uint64_t pair = (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
    uint64_t at = pair_hash(pair) & m->merge_mask;
    while (m->merge[at].pair != UINT64_MAX) {
        if (m->merge[at].pair == pair)
            return &m->merge[at];
        at = (at + 1) & m->merge_mask;
    }
    return NULL;
}
