/* gguf_order.h - llama.cpp has the value heads of a delta net in another order: with keys k and
 * values v of a key, head (k, v) is head v * keys + k there, k * per_key + v here. And
 * queries, keys and values of a fused projection lie apart. Rows of queries and keys that are
 * rotated with each other are neighbours there, in families whose rotation llama.cpp has so. */
#ifndef AF_GGUF_ORDER_H
#define AF_GGUF_ORDER_H

#include "model/arch/arch.h"

typedef struct af_gguf_order {
    int64_t keys, per_key; /* keys 0: the same order */
    int64_t from, size;    /* the first row (column) of values, and how many a head has */
    bool columns;          /* not the rows, but the columns */
    bool qkv;              /* rows of qkv_grouped are q|k|v there; per_key: queries of a key */
    int64_t pairs;         /* the first rows of a head: halves here, interleaved there; 0 = none */
} af_gguf_order;

/* Of a tensor of the spec. */
af_gguf_order af_gguf_order_of(const af_model_spec *s, const af_tensor_spec *t);
/* Where row r of the file is in the tensor of the spec, and where row r of the spec is in the file.
 */
int64_t af_gguf_order_here(const af_gguf_order *o, int64_t r);
int64_t af_gguf_order_there(const af_gguf_order *o, int64_t r);
/* The columns of a row, in place: from the order of the spec to that of the file, and back. */
void af_gguf_order_to_file(const af_gguf_order *o, float *row);
void af_gguf_order_from_file(const af_gguf_order *o, float *row);
#endif
