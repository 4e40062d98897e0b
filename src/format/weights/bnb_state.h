/* bnb_state.h - how bitsandbytes stores one quantised weight: its companion tensors and the JSON
 * that names its shape. Finds and checks them; decoding is tensor/codec_bnb.h. */
#ifndef AF_BNB_STATE_H
#define AF_BNB_STATE_H

#include "format/weights/weights.h"

typedef struct af_bnb_state {
    af_dtype type;  /* AF_DTYPE_NF4, AF_DTYPE_FP4, or AF_DTYPE_I8 for LLM.int8 rows */
    af_dtype dtype; /* of the weight before; dequantised values are rounded to it */
    int ndim;
    int64_t dim[AF_WEIGHT_NDIM_MAX];
    int64_t count, block;
    const uint8_t *codes;  /* 4 bit: [(count+1)/2]; int8: [count] */
    const float *table;    /* 16 values */
    const float *absmax;   /* [blocks], or NULL when nested; int8: SCB [rows] */
    const uint8_t *nested; /* [blocks] codes of the absmax, or NULL */
    const float *nested_absmax, *nested_map;
    int64_t nested_block;
    float nested_offset;
} af_bnb_state;

/* Looks at tensor `name` ("....weight"): *found says whether it is quantised by bitsandbytes; when
 * it is, everything around it is checked and *out filled (borrowed from `w`). */
AF_CHECKED af_status af_bnb_state_find(af_bnb_state *out, bool *found, const af_weights *w,
                                       const char *name, af_error *err);
/* True for a weight that has a quant_state or an SCB tensor (which may still be broken). */
bool af_bnb_is_packed(const af_weights *w, const char *name);
/* True for a tensor that only belongs to another, quantised one ("x.weight.absmax", "x.SCB"). */
bool af_bnb_is_part(const af_weights *w, const char *name);
#endif
