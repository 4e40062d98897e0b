/* weight_type.h - which types a matrix that ops only read may have. */
#ifndef AF_WEIGHT_TYPE_H
#define AF_WEIGHT_TYPE_H

#include "tensor/codec.h"

/* Codes that are dequantised before use: blocks, and the int8 rows of bitsandbytes. */
static inline bool af_is_coded(af_dtype t) { return af_dtype_is_block(t) || t == AF_DTYPE_I8; }

static inline bool af_is_weight(af_dtype t)
{
    if (t == AF_DTYPE_NF4 || t == AF_DTYPE_FP4 || t == AF_DTYPE_E4M3 || t == AF_DTYPE_E5M2 ||
        t == AF_DTYPE_I8)
        return true;
    return af_dtype_is_float(t) || (af_dtype_is_block(t) && af_codec_can_decode(t));
}
#endif
