/* batch_stream.h - the endless, resumable sequence of micro-batches.
 *
 * Micro-batch m is a pure function of (store, options, m): records in file order or reshuffled
 * each epoch by the seed; packed or not; items m*b .. m*b+b-1 of the concatenated epochs. A thread
 * reads ahead. Memory does not grow with the store: the shuffle is a keyed permutation, packing
 * works window by window. */
#ifndef AF_BATCH_STREAM_H
#define AF_BATCH_STREAM_H

#include "data/store/pair_batch.h"

typedef struct af_stream_opts {
    int64_t first,
        count; /* the records of the store that belong to this stream (train or held-out part) */
    const int64_t *subset; /* or: these records, `count` of them; NULL = first .. first+count */
    int64_t micro_batch, sequence_len;
    bool packing, sequential, shuffle;
    uint64_t seed;
    int64_t ahead;        /* micro-batches held at once; 0 = 4 */
    int rank, world;      /* world processes take items in turn; world 0 = 1 */
    af_pair_layout pairs; /* the store's records are pairs, laid out like this */
} af_stream_opts;

/* Rows of all items one after another. Buffers belong to the stream until the next call. */
typedef struct af_batch {
    int64_t rows;       /* tokens */
    int64_t sequences;  /* records */
    int64_t items;      /* rows of a padded batch: records, or packs */
    int64_t longest;    /* tokens of the longest item */
    int64_t supervised; /* labels that count */
    int64_t epoch;      /* of the first item */
    int32_t *ids, *labels,
        *positions;     /* [rows]; labels shifted: what row i must predict, or -100 */
    int32_t *bounds;    /* [sequences + 1] */
    int64_t *record;    /* [sequences]: which records these are */
    af_pair_rows *pair; /* [pairs]: where their answers are; of a store of pairs */
    int64_t pairs;
    /* of pairs that share prompts: rows of attention, as many as two copies have */
    int64_t attention_rows;
    int32_t *source; /* [attention_rows]: the row each of them copies; NULL = rows are their own */
} af_batch;

typedef struct af_stream af_stream;
AF_CHECKED af_status af_stream_open(af_stream **out, const af_token_store *store,
                                    const af_stream_opts *o, af_error *err);
void af_stream_close(af_stream *s);
/* Micro-batch `m`. What was handed out stays valid while it is not below the held one by
 * af_stream_hold (or, without it, until the next call that is not among the `ahead` ones from
 * there). */
AF_CHECKED af_status af_stream_get(af_stream *s, int64_t m, const af_batch **out, af_error *err);
/* Everything below micro-batch m may be overwritten; m .. m+ahead-1 are made and kept. */
void af_stream_hold(af_stream *s, int64_t m);
/* Items of the first epoch (records, or packs). */
int64_t af_stream_items(const af_stream *s);
/* Most records a micro-batch can hold: the size of `bounds` is this + 1. */
int64_t af_stream_sequences_max(const af_stream *s);
/* Most rows of an item; and, of pairs that share prompts, rows of attention. */
int64_t af_stream_rows_max(const af_stream *s);
int64_t af_stream_attention_max(const af_stream *s);
#endif
