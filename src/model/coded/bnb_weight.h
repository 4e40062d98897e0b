/* bnb_weight.h - one weight in bitsandbytes form: as a folder stores it, or quantised here. */
#ifndef AF_BNB_WEIGHT_H
#define AF_BNB_WEIGHT_H

#include "format/weights/weights.h"

typedef struct af_bnb_weight {
    const char *name; /* as stored, or NULL */
    af_dtype type;    /* nf4, fp4, or i8 */
    int ndim;         /* of a stored one, */
    int64_t dim[AF_WEIGHT_NDIM_MAX];
    const uint8_t *codes;    /* two per byte, first one high; or int8 rows */
    int64_t count, cols;     /* elements, and of one row */
    int block, nested_block; /* 4 bit; nested_block 0 = absmax is f32 */
    const void *absmax;      /* f32, or u8 codes with nested scales */
    const float *nested;     /* per nested block */
    const float *map;        /* 16 values of the code book */
    const float *nested_map; /* 256 values */
    float offset;
    const float *row_scale; /* int8: absmax of each row */
    af_dtype round;         /* values are rounded to this type */
    void *owned;            /* memory to free, or NULL */
} af_bnb_weight;

/* Reads the weight `name` of a folder; *found is false when bitsandbytes did not pack it. `round`
 * is for 8-bit weights; 4-bit ones name their type. Borrowed from `w`. */
AF_CHECKED af_status af_bnb_weight_read(af_bnb_weight *out, bool *found, const af_weights *w,
                                        const char *name, af_dtype round, af_error *err);
/* nf4 with double quantisation of values rounded to bf16, or int8 rows (`type`); `x` has count
 * values and is changed. */
AF_CHECKED af_status af_bnb_weight_make(af_bnb_weight *out, af_dtype type, float *x, int64_t count,
                                        int64_t cols, af_dtype round, af_error *err);
/* The sizes such a weight will have; without values. */
af_bnb_weight af_bnb_weight_outline(af_dtype type, int64_t count, int64_t cols, af_dtype round);
void af_bnb_weight_clear(af_bnb_weight *b);
/* Elements [from, from + n) of the flattened matrix, rounded. */
void af_bnb_weight_decode(const af_bnb_weight *b, int64_t from, int64_t n, float *out);
/* How many scales it has: one per block, or per int8 row. */
int64_t af_bnb_weight_blocks(const af_bnb_weight *b);
/* True when the code books are the standard ones, so that kernels with built-in tables apply; int8
 * rows have none. */
bool af_bnb_weight_is_standard(const af_bnb_weight *b);
#endif
