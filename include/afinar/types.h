/* types.h - the element types of tensors. */
#ifndef AFINAR_TYPES_H
#define AFINAR_TYPES_H

#include "afinar/api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum af_dtype {
    AF_DTYPE_F32 = 0,
    AF_DTYPE_F64,
    AF_DTYPE_BF16,
    AF_DTYPE_F16,
    AF_DTYPE_E4M3, /* fp8 */
    AF_DTYPE_E5M2, /* fp8 */
    AF_DTYPE_I8,
    AF_DTYPE_I16,
    AF_DTYPE_I32,
    AF_DTYPE_I64,
    AF_DTYPE_U8,
    AF_DTYPE_U16,
    AF_DTYPE_U32,
    AF_DTYPE_U64,
    AF_DTYPE_BOOL,
    AF_DTYPE_NF4, /* bitsandbytes 4 bit: two codes per byte, scales in other tensors */
    AF_DTYPE_FP4,
    AF_DTYPE_Q4_0, /* the GGUF block types */
    AF_DTYPE_Q4_1,
    AF_DTYPE_Q5_0,
    AF_DTYPE_Q5_1,
    AF_DTYPE_Q8_0,
    AF_DTYPE_Q8_1,
    AF_DTYPE_Q2_K,
    AF_DTYPE_Q3_K,
    AF_DTYPE_Q4_K,
    AF_DTYPE_Q5_K,
    AF_DTYPE_Q6_K,
    AF_DTYPE_Q8_K,
    AF_DTYPE_IQ4_NL,
    AF_DTYPE_IQ4_XS,
    AF_DTYPE_IQ2_XXS,
    AF_DTYPE_IQ2_XS,
    AF_DTYPE_IQ3_XXS,
    AF_DTYPE_IQ1_S,
    AF_DTYPE_IQ3_S,
    AF_DTYPE_IQ2_S,
    AF_DTYPE_IQ1_M,
    AF_DTYPE_TQ1_0,
    AF_DTYPE_TQ2_0,
    AF_DTYPE_MXFP4,
    AF_DTYPE_NVFP4,
    AF_DTYPE_Q1_0,
    AF_DTYPE_Q2_0,
    AF_DTYPE_E8M0, /* of safetensors; from here on by name and size only */
    AF_DTYPE_E4M3FNUZ,
    AF_DTYPE_E5M2FNUZ,
    AF_DTYPE_F4,
    AF_DTYPE_F6_E2M3,
    AF_DTYPE_F6_E3M2,
    AF_DTYPE_C64,
    AF_DTYPE_COUNT
} af_dtype;

/* The name of a type: "bf16", "q4_k", ... "?" for an unknown value. Static storage; any thread. */
AF_API const char *af_dtype_name(af_dtype t);

#ifdef __cplusplus
}
#endif
#endif
