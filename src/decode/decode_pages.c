/* decode_pages.c - see decode_pages.h. */
#include "decode/decode_pages.h"

af_status af_decode_pages_init(af_decode_pages *out, int64_t count, int64_t size, af_error *err)
{
    af_decode_pages p = {.count = count, .size = size, .free = count, .buckets = 16};
    uint64_t ids;
    while (p.buckets < count)
        p.buckets *= 2;
    p.page = af_calloc((uint64_t)count, sizeof *p.page);
    p.first = af_calloc((uint64_t)p.buckets, sizeof *p.first);
    if (af_mul_ok((uint64_t)count, (uint64_t)size, &ids))
        p.ids = af_calloc(ids, sizeof *p.ids);
    if (!p.page || !p.first || !p.ids) {
        af_decode_pages_clear(&p);
        return af_fail_nomem(err, "pages", (uint64_t)count * sizeof *p.page);
    }
    for (int64_t i = 0; i < p.buckets; i++)
        p.first[i] = -1;
    *out = p;
    return AF_OK;
}

void af_decode_pages_clear(af_decode_pages *p)
{
    free(p->page);
    free(p->ids);
    free(p->first);
    *p = (af_decode_pages){0};
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static uint64_t hash_of(const af_decode_pages *p, uint64_t before, uint64_t owner,
                        const int32_t *ids)
{
    uint64_t h = mix(owner, before);
    for (int64_t i = 0; i < p->size; i++)
        h = mix(h, (uint32_t)ids[i]);
    return h;
}

/* The page that holds this, or -1. The hash finds it, the tokens decide. */
static int32_t find(const af_decode_pages *p, uint64_t before, uint64_t owner, const int32_t *ids)
{
    const uint64_t h = hash_of(p, before, owner, ids);
    for (int32_t i = p->first[h & (uint64_t)(p->buckets - 1)]; i >= 0; i = p->page[i].next) {
        const af_decode_page *q = &p->page[i];
        if (q->hash == h && q->before == before && q->owner == owner &&
            memcmp(p->ids + i * p->size, ids, (size_t)p->size * sizeof *ids) == 0)
            return i;
    }
    return -1;
}

static void forget(af_decode_pages *p, int32_t page)
{
    af_decode_page *q = &p->page[page];
    if (!q->kept)
        return;
    int32_t *at = &p->first[q->hash & (uint64_t)(p->buckets - 1)];
    while (*at != page) {
        assert(*at >= 0); /* what is kept is in its bucket */
        at = &p->page[*at].next;
    }
    *at = q->next;
    q->kept = false;
}

void af_decode_pages_forget(af_decode_pages *p)
{
    for (int64_t i = 0; i < p->count; i++)
        forget(p, (int32_t)i);
}

int64_t af_decode_pages_match(af_decode_pages *p, const int32_t *ids, int64_t n, uint64_t owner,
                              int32_t *out)
{
    int64_t count = 0;
    uint64_t before = 0;
    for (; (count + 1) * p->size <= n; count++) {
        const int32_t page = find(p, before, owner, ids + count * p->size);
        if (page < 0)
            break;
        p->free -= p->page[page].users++ == 0;
        before = p->page[page].serial;
        out[count] = page;
    }
    return count;
}

int32_t af_decode_pages_take(af_decode_pages *p)
{
    int64_t best = -1;
    for (int64_t i = 0; i < p->count; i++) {
        const af_decode_page *q = &p->page[i];
        if (q->users)
            continue;
        if (best < 0 || (!q->kept && p->page[best].kept) ||
            (q->kept == p->page[best].kept && q->used < p->page[best].used))
            best = i;
    }
    assert(best >= 0);
    forget(p, (int32_t)best);
    p->page[best].users = 1;
    p->free--;
    return (int32_t)best;
}

void af_decode_pages_release(af_decode_pages *p, int32_t page)
{
    af_decode_page *q = &p->page[page];
    assert(q->users > 0);
    q->used = ++p->clock;
    p->free += --q->users == 0;
}

void af_decode_pages_keep(af_decode_pages *p, int32_t page, int32_t before, const int32_t *ids,
                          uint64_t owner)
{
    af_decode_page *q = &p->page[page];
    if (q->kept || (before >= 0 && !p->page[before].kept))
        return;
    const uint64_t serial = before < 0 ? 0 : p->page[before].serial;
    if (find(p, serial, owner, ids) >= 0) /* another prompt was faster */
        return;
    q->before = serial;
    q->owner = owner;
    q->hash = hash_of(p, serial, owner, ids);
    q->serial = ++p->serials;
    q->kept = true;
    memcpy(p->ids + page * p->size, ids, (size_t)p->size * sizeof *ids);
    int32_t *first = &p->first[q->hash & (uint64_t)(p->buckets - 1)];
    q->next = *first;
    *first = page;
}
