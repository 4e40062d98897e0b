/* tokenizer_vocab.c - strings to ids by hash, ids to strings by index, pairs of ids to merges. */
#define _DEFAULT_SOURCE /* madvise */
#include "format/tokenizer/tokenizer.h"

#include <sys/mman.h>
#include <unistd.h>

/* A tag is 28 bits of the hash and the length up to 15. A string of up to 8 bytes lies in its slot:
 * no other memory has to be looked at. */
enum { TAG_SHIFT = 4, TAG_LEN = 15, HEAD = 8 };

/* For a table that is not in use yet: with small pages, most look-ups miss the TLB as well. */
static void use_huge_pages(void *p, uint64_t bytes)
{
#ifdef MADV_HUGEPAGE
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t lead = AF_ALIGN_UP((uint64_t)(uintptr_t)p, page) - (uintptr_t)p;
    if (bytes > lead + page)
        (void)!madvise((char *)p + lead, bytes - lead, MADV_HUGEPAGE); /* only slower without */
#else
    (void)p, (void)bytes;
#endif
}

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

/* A string of up to eight bytes, zeros after it. */
static inline uint64_t head_of(const char *s, uint64_t n)
{
    uint64_t w = 0;
    if (n >= 4) {
        uint32_t a, b;
        memcpy(&a, s, 4);
        memcpy(&b, s + n - 4, 4);
        w = a | (uint64_t)b << (n - 4) * 8;
    } else if (n > 0) {
        w = (uint8_t)s[0] | (uint64_t)(uint8_t)s[n / 2] << n / 2 * 8 |
            (uint64_t)(uint8_t)s[n - 1] << (n - 1) * 8;
    }
    return w;
}

static inline uint32_t tag_of(const char *s, uint64_t n)
{
    const uint32_t high = (uint32_t)(af_bytes_hash(s, n) >> 32);
    return (high & ~(uint32_t)TAG_LEN) | (uint32_t)AF_MIN(n, TAG_LEN);
}

static inline uint32_t home(uint32_t tag, uint32_t mask) { return tag >> TAG_SHIFT & mask; }

/* Two thirds: 262144 tokens, a usual size, fill half of their table. */
static int64_t most_entries(uint64_t slots) { return (int64_t)(slots / 3 * 2); }

static af_status rehash(af_vocab *v, uint32_t slots, af_error *err)
{
    struct af_vocab_slot *grown = af_calloc(slots, sizeof *grown);
    if (!grown)
        return af_fail_nomem(err, "the vocabulary", (uint64_t)slots * sizeof *grown);
    use_huge_pages(grown, slots * sizeof *grown);
    memset(grown, 0xff, slots * sizeof *grown); /* ids -1 */
    for (uint32_t i = 0; v->slot && i <= v->mask; i++) {
        if (v->slot[i].id < 0)
            continue;
        uint32_t at = home(v->slot[i].tag, slots - 1);
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

static inline uint32_t find_slot(const af_vocab *v, const char *s, uint64_t n, uint32_t tag)
{
    const uint64_t head = n <= HEAD ? head_of(s, n) : 0;
    uint32_t at = home(tag, v->mask);
    for (; v->slot[at].id >= 0; at = (at + 1) & v->mask) {
        const struct af_vocab_slot *slot = &v->slot[at];
        if (slot->tag != tag)
            continue;
        if (n <= HEAD
                ? slot->text.head == head
                : (n < TAG_LEN || v->token[slot->id].n == n) && memcmp(slot->text.s, s, n) == 0)
            break;
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
    if (!v->slot || v->entries >= most_entries((uint64_t)v->mask + 1))
        AF_TRY(rehash(v, v->slot ? (v->mask + 1) * 2 : 1024, err));
    const uint32_t tag = tag_of(s, n), at = find_slot(v, s, n, tag);
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
        const uint32_t gone = find_slot(v, old.s, old.n, tag_of(old.s, old.n));
        if (v->slot[gone].id == id && gone != at)
            return af_fail(err, AF_EFORMAT,
                           "tokens \"%.40s\" and \"%.40s\" have the same id %" PRId32, old.s, copy,
                           id);
    }
    v->token[id] = (af_str){copy, (uint32_t)n};
    v->longest = AF_MAX(v->longest, (uint32_t)n);
    v->slot[at] = (struct af_vocab_slot){.tag = tag, .id = id};
    if (n <= HEAD)
        v->slot[at].text.head = head_of(s, n);
    else
        v->slot[at].text.s = copy;
done:
    return st;
}

af_status af_vocab_reserve(af_vocab *v, uint64_t entries, af_error *err)
{
    uint64_t slots = 1024;
    while (most_entries(slots) <= (int64_t)AF_MIN(entries, AF_TOKENIZER_ID_MAX))
        slots *= 2;
    return v->slot && slots <= v->mask ? AF_OK : rehash(v, (uint32_t)slots, err);
}

int32_t af_vocab_find(const af_vocab *v, const char *s, uint64_t n)
{
    return v->slot ? v->slot[find_slot(v, s, n, tag_of(s, n))].id : -1;
}

void af_vocab_prefetch(const af_vocab *v, const char *s, uint64_t n)
{
    if (v->slot)
        __builtin_prefetch(&v->slot[home(tag_of(s, n), v->mask)]);
}

void af_vocab_find_all(const af_vocab *v, af_vocab_key *const *key, int count)
{
    for (int i = 0; i < count; i++) {
        key[i]->tag = tag_of(key[i]->s, key[i]->n);
        __builtin_prefetch(&v->slot[home(key[i]->tag, v->mask)]);
    }
    for (int i = 0; i < count; i++) { /* long strings are compared */
        const struct af_vocab_slot *slot = &v->slot[home(key[i]->tag, v->mask)];
        if (key[i]->n > HEAD && slot->tag == key[i]->tag && slot->id >= 0)
            __builtin_prefetch(slot->text.s);
    }
    for (int i = 0; i < count; i++)
        key[i]->id = v->slot[find_slot(v, key[i]->s, key[i]->n, key[i]->tag)].id;
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

/* That of the pair, or the free one where it belongs. */
static inline af_merge_slot *merge_slot(const af_token_model *m, uint64_t pair)
{
    uint64_t at = pair_hash(pair) & m->merge_mask;
    while (m->merge[at].pair != UINT64_MAX && m->merge[at].pair != pair)
        at = (at + 1) & m->merge_mask;
    return &m->merge[at];
}

uint64_t af_merges_most(const af_token_model *m)
{
    return m->merge ? (m->merge_mask + 1) / 3 * 2 : 0;
}

af_status af_merges_reserve(af_token_model *m, uint64_t count, af_error *err)
{
    af_merge_slot *const old = m->merge;
    const uint64_t old_slots = old ? m->merge_mask + 1 : 0;
    uint64_t slots = 16;
    while (slots / 3 * 2 < count)
        slots *= 2;
    af_merge_slot *grown = af_calloc(slots, sizeof *grown);
    if (!grown)
        return af_fail_nomem(err, "the merges", slots * sizeof *grown);
    use_huge_pages(grown, slots * sizeof *grown);
    memset(grown, 0xff, slots * sizeof *grown); /* pairs UINT64_MAX */
    m->merge = grown;
    m->merge_mask = slots - 1;
    for (uint64_t i = 0; i < old_slots; i++)
        if (old[i].pair != UINT64_MAX)
            *merge_slot(m, old[i].pair) = old[i];
    free(old);
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
    /* a pair named twice: the last rank counts */
    *merge_slot(m, pair) = (af_merge_slot){pair, rank, id};
}

const af_merge_slot *af_merges_get(const af_token_model *m, int32_t a, int32_t b)
{
    const af_merge_slot *slot = merge_slot(m, (uint64_t)(uint32_t)a << 32 | (uint32_t)b);
    return slot->pair != UINT64_MAX ? slot : NULL;
}
