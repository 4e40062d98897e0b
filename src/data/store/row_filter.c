/* row_filter.c - see row_filter.h. */
#include "data/store/row_filter.h"

#include "base/hash.h"

enum { FIRST_ROOM = 1024 };

static uint64_t slot_of(const af_row_filter *f, const uint8_t *digest)
{
    static const uint8_t none[32];
    uint64_t at;
    memcpy(&at, digest, sizeof at);
    for (at %= f->room;; at = (at + 1) % f->room)
        if (memcmp(f->seen[at], digest, 32) == 0 || memcmp(f->seen[at], none, 32) == 0)
            return at;
}

static af_status grow(af_row_filter *f, af_error *err)
{
    static const uint8_t none[32];
    af_row_filter more = {.room = f->room ? f->room * 2 : FIRST_ROOM};
    more.seen = af_calloc(more.room, sizeof *more.seen);
    if (!more.seen)
        return af_fail_nomem(err, "the records seen", more.room * sizeof *more.seen);
    for (uint64_t i = 0; i < f->room; i++)
        if (memcmp(f->seen[i], none, 32) != 0)
            memcpy(more.seen[slot_of(&more, f->seen[i])], f->seen[i], 32);
    free(f->seen);
    f->seen = more.seen;
    f->room = more.room;
    return AF_OK;
}

af_status af_row_filter_take(af_row_filter *f, const af_row *r, const void *more, uint64_t size,
                             bool *keep, af_error *err)
{
    af_sha256 h;
    char hex[65];
    uint8_t digest[32];
    *keep = r->count >= f->shortest;
    if (!f->unique || !*keep)
        return AF_OK;
    if (f->count * 2 >= f->room) {
        const af_status st = grow(f, err);
        if (st != AF_OK)
            return st;
    }
    af_sha256_init(&h);
    af_sha256_add(&h, r->ids, (uint64_t)r->count * sizeof *r->ids);
    af_sha256_add(&h, r->labels, (uint64_t)r->count * sizeof *r->labels);
    if (size)
        af_sha256_add(&h, more, size);
    af_sha256_hex(&h, hex);
    memcpy(digest, hex, sizeof digest); /* half of it is enough, and never all zero */
    const uint64_t at = slot_of(f, digest);
    *keep = memcmp(f->seen[at], digest, sizeof digest) != 0;
    f->count += *keep;
    memcpy(f->seen[at], digest, sizeof digest);
    return AF_OK;
}

void af_row_filter_clear(af_row_filter *f)
{
    free(f->seen);
    *f = (af_row_filter){0};
}
