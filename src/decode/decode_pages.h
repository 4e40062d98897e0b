/* decode_pages.h - which pages of keys and values are in use, and whose beginnings they hold.
 *
 * A page that a prompt filled is kept under the tokens in it and those before it until its memory
 * is needed: a later prompt that begins alike takes it as it is. Pages are counted: one may belong
 * to several sequences, which only read it. Of pages that nobody uses the one that was used longest
 * ago is taken first. */
#ifndef AF_DECODE_PAGES_H
#define AF_DECODE_PAGES_H

#include "base/base.h"

typedef struct af_decode_page {
    int64_t users;
    uint64_t used;          /* when it was last released or taken */
    bool kept;              /* holds what follows */
    uint64_t hash, serial;  /* serial: of what it holds now, never used twice */
    uint64_t before, owner; /* serial of the page before it, 0 = none; whose adapter */
    int32_t next;           /* with the same place in the table, or -1 */
} af_decode_page;

typedef struct af_decode_pages {
    af_decode_page *page;
    int32_t *ids;   /* [count][size] of kept ones */
    int32_t *first; /* [buckets], -1 = none */
    int64_t count, size, buckets, free;
    uint64_t clock, serials;
} af_decode_pages;

AF_CHECKED af_status af_decode_pages_init(af_decode_pages *out, int64_t count, int64_t size,
                                          af_error *err);
void af_decode_pages_clear(af_decode_pages *p);
/* Nothing is kept any more. */
void af_decode_pages_forget(af_decode_pages *p);
/* Takes the pages of the first tokens of ids [n] for `owner`: out [n / size], as many as there are.
 */
int64_t af_decode_pages_match(af_decode_pages *p, const int32_t *ids, int64_t n, uint64_t owner,
                              int32_t *out);
/* A page of one's own; p->free is above 0. */
int32_t af_decode_pages_take(af_decode_pages *p);
void af_decode_pages_release(af_decode_pages *p, int32_t page);
/* Page `page`, which follows page `before` (-1: none), holds ids [size]. */
void af_decode_pages_keep(af_decode_pages *p, int32_t page, int32_t before, const int32_t *ids,
                          uint64_t owner);
#endif
