/* occupied.h - which bytes of an arena are occupied by which nodes.
 *
 * An entry occupies a range of bytes from one position of the list of nodes to another. The lowest
 * range that is free from one position to another is found without a look at each entry: a segment
 * tree over the positions has, in each of its vertices, the union of ranges of what is there. */
#ifndef AF_OCCUPIED_H
#define AF_OCCUPIED_H

#include "base/base.h"

typedef struct af_occupied_range {
    uint64_t from, to;
} af_occupied_range;

typedef struct af_occupied_ranges {
    af_occupied_range *at; /* ascending, with gaps between them */
    int n, cap;
} af_occupied_ranges;

typedef struct af_occupied {
    int leaves; /* a power of two; vertex v has children 2v and 2v + 1, leaf i is leaves + i */
    af_occupied_ranges *whole; /* by vertex: of entries that are there all the time, and */
    af_occupied_ranges *any;   /* of those that are there at some time */
    bool failed;               /* memory ran out: what is found is of no use */
} af_occupied;

/* For positions 0 to n - 1. Cleared even when it failed. */
void af_occupied_init(af_occupied *o, int n);
void af_occupied_clear(af_occupied *o);
void af_occupied_add(af_occupied *o, int first, int last, uint64_t from, uint64_t to);
/* Where the lowest `size` free bytes begin: at 0, or where a range ends. */
uint64_t af_occupied_gap(const af_occupied *o, int first, int last, uint64_t size);
#endif
