/* attention_parts.h - the gradient of attention cut into parts, so that threads have enough to do.
 *
 * dk and dv of a kv head are sums over the queries of its sequence. A part is some blocks of these
 * queries: it makes their dq, and the sums over them; the sums of a head's parts are added in the
 * order of the parts. Cuts depend on shapes and bounds alone, so threads do not change results. A
 * head that is not cut is summed in its thread's own memory. */
#ifndef AF_ATTENTION_PARTS_H
#define AF_ATTENTION_PARTS_H

#include "ops/attention/attention_fast.h"

#include <stdatomic.h>

enum { AF_PART_ROWS = 32 }; /* spans of keys begin at multiples of it and are padded to one */

typedef struct af_part {
    int64_t seq, kv;
    int64_t from, to;  /* queries, counted in the sequence; multiples of AF_ATTN_Q, or its end */
    int64_t key, keys; /* what they see is in [key, key+keys) */
    int64_t of, index; /* parts of the kv head, and which of them this is */
    int64_t cost;
    int64_t row; /* padded keys of the kv heads that are at work at once and come before this one */
    float *dk, *dv; /* [keys][width], from key on; NULL where the head is not cut */
} af_part;

/* Makes keys [from, to) of the part's kv head ready, which are its multiples of AF_PART_ROWS. */
typedef void af_part_ready(void *arg, const af_part *p, int64_t from, int64_t to);
typedef void af_part_run(void *arg, const af_part *p, int share);

typedef struct af_parts {
    const af_attn *a;
    int64_t width;        /* of a row of sums */
    float factor;         /* dk is multiplied with it at the end */
    af_part_ready *ready; /* or NULL */
    af_part_run *run;
    void *arg;
    /* filled by af_parts_run */
    af_part *part;
    int32_t *order;
    float *sums, *sums_end;
    int64_t count, begin, end, rows; /* begin, end, rows: of the heads at work at once */
    _Atomic int64_t next;
} af_parts;

/* Bytes of memory for the parts of a node. */
uint64_t af_parts_bytes(const af_node *n, int64_t width, int threads);
/* Keys with their padding of all heads that are at work at once, at most. */
int64_t af_parts_rows(const af_node *n, int threads);
/* All of the gradient; memory: af_parts_bytes, aligned to 64. */
void af_parts_run(af_parts *p, af_pool *pool, void *memory);
/* Sums of keys [from, to) of the part's kv head, rows of width, to where they belong. */
void af_parts_put(const af_parts *p, const af_part *x, int64_t from, int64_t to, const float *dk,
                  const float *dv);
#endif
