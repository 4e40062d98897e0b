/* gguf_parts.h - tensors of the spec that llama.cpp has as several: gates and ups of experts and of
 * a fused MLP, fused queries, keys and values, the convolution of q, k and v, the input projection
 * of a delta net that is grouped by its key heads. */
#ifndef AF_GGUF_PARTS_H
#define AF_GGUF_PARTS_H

#include "model/arch/gguf_order.h"

enum { AF_GGUF_PARTS_MAX = 3 };

typedef struct af_gguf_parts {
    int count;                           /* 0: one tensor, as it is */
    const char *name[AF_GGUF_PARTS_MAX]; /* inside a layer */
    int64_t rows[AF_GGUF_PARTS_MAX];     /* of all matrices */
    int64_t half; /* matrices of 2 * half rows are cut in the middle; 0: by key head */
    int64_t keys, key_dim, value_dim; /* of each key: q, k, and the values v and z */
    /* of three parts: where heads of q|k|v are in the tensor, and the order of rows of q and k */
    af_gguf_order heads, rotated;
} af_gguf_parts;

/* A_log is this times exp(w) there; 0 for all other tensors. */
int af_gguf_exp_of(const af_model_spec *s, const af_tensor_spec *t);

/* Dimensions of a part there, as many as tensor t has. */
void af_gguf_part_dims(const af_gguf_parts *p, int part, const af_tensor_spec *t, int64_t dim[3]);

/* Vectors of Mamba-2 are matrices there: how many columns they have; 0 = a vector. */
int64_t af_gguf_vector_columns(const af_model_spec *s, const af_tensor_spec *t);

/* The other way round: a matrix of the spec that is one of several in a tensor there (those between
 * the streams of gemma3n). How many there are, 0 = it is a tensor; *index: which one it is. */
int af_gguf_stack_of(const af_model_spec *s, const af_tensor_spec *t, int *index);

/* Of a tensor of the spec. */
af_gguf_parts af_gguf_parts_of(const af_model_spec *s, const af_tensor_spec *t);
/* Which row of the tensor is row r of a part, and which row of which part is row r of the tensor.
 */
int64_t af_gguf_parts_here(const af_gguf_parts *p, int part, int64_t r);
int64_t af_gguf_parts_there(const af_gguf_parts *p, int64_t r, int *part);
#endif
