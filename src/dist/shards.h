/* shards.h - vectors that all ranks have, and the pieces ("shards") that each rank owns of them.
 *
 * Sums are formed as a binary tree over ranks, whose leaves are in rank order: (0 + 1) + (2 + 3).
 * With equal subtrees of micro-batches below each rank that is the order of one process (carry.c of
 * the graph). Where the number of ranks has an odd factor m, runs of m ranks are added one after
 * another, and the runs as a tree: (0 + 1 + 2) + (3 + 4 + 5).
 *
 * cut[r] .. cut[r + 1] are the elements of rank r; cut[size] is the length. A rank may own nothing.
 * Messages go both ways between two ranks, in pieces of a fixed size: the memory needed does not
 * depend on the vector. */
#ifndef AF_SHARDS_H
#define AF_SHARDS_H

#include "dist/comm.h"

/* Equal shards of `count` elements, each a multiple of `unit` but for the last. */
void af_shard_cuts(int64_t *cut, int ranks, int64_t count, int64_t unit);
/* v's own shard becomes the sum over all ranks; the others are lost. */
AF_CHECKED af_status af_reduce_scatter(af_comm *c, float *v, const int64_t *cut, af_error *err);
/* Every rank gets every shard of v, from its owner. `size`: of an element, 1 to 8. */
AF_CHECKED af_status af_gather_shards(af_comm *c, void *v, uint64_t size, const int64_t *cut,
                                      af_error *err);
/* Rank 0 gets `bytes` of rank `from` in `to`; the others but those two do nothing. */
AF_CHECKED af_status af_send_to_first(af_comm *c, int from, const void *mine, void *to,
                                      uint64_t bytes, af_error *err);
/* What a rank sends in one call, for plans: of a gather or a reduce-scatter, to ranks of other
 * machines that have `distance` ranks each (1 = all). */
uint64_t af_shards_sent(const int64_t *cut, int rank, int ranks, int distance, uint64_t size,
                        bool gathers);
#endif
