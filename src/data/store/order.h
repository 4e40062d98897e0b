/* order.h - the order of records in an epoch, and how they are packed. */
#ifndef AF_ORDER_H
#define AF_ORDER_H

#include "base/base.h"

/* Element i of a pseudo-random permutation of 0 .. n-1 chosen by (seed, epoch): no table, any i at
 * once. */
int64_t af_permute(uint64_t seed, uint64_t epoch, int64_t n, int64_t i);

enum { AF_PACK_WINDOW = 2048 };

/* Packs `n` (at most AF_PACK_WINDOW unless sequential) record lengths into rows of at most `limit`
 * tokens and `most` records. pack[i] = the row of record i; rows are numbered in the order they
 * were opened. Returns the number of rows. sequential: file order; a row is closed when the next
 * whole record does not fit. else: best fit, longest first (equal lengths in order). */
int64_t af_pack(int64_t *pack, const uint32_t *length, int64_t n, int64_t limit, int64_t most,
                bool sequential);
#endif
