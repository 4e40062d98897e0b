/* quant_mix.h - which type each tensor of a GGUF file gets: llama.cpp's mixes. */
#ifndef AF_QUANT_MIX_H
#define AF_QUANT_MIX_H

#include "tensor/dtype.h"

typedef enum af_mix {
    AF_MIX_F32,
    AF_MIX_F16,
    AF_MIX_BF16,
    AF_MIX_Q4_0,
    AF_MIX_Q4_1,
    AF_MIX_Q5_0,
    AF_MIX_Q5_1,
    AF_MIX_Q8_0,
    AF_MIX_Q2_K,
    AF_MIX_Q2_K_S,
    AF_MIX_Q3_K_S,
    AF_MIX_Q3_K_M,
    AF_MIX_Q3_K_L,
    AF_MIX_Q4_K_S,
    AF_MIX_Q4_K_M,
    AF_MIX_Q5_K_S,
    AF_MIX_Q5_K_M,
    AF_MIX_Q6_K,
    AF_MIX_IQ4_NL,
    AF_MIX_IQ4_XS,
    AF_MIX_IQ3_XXS,
    AF_MIX_IQ3_XS,
    AF_MIX_IQ3_S,
    AF_MIX_IQ3_M,
    AF_MIX_TQ1_0,
    AF_MIX_TQ2_0,
    AF_MIX_MXFP4_MOE,
    AF_MIX_COUNT
} af_mix;

typedef struct af_mix_info {
    const char *name; /* "q4_k_m" */
    int file_type;    /* general.file_type */
    af_dtype base;    /* of most matrices */
} af_mix_info;

const af_mix_info *af_mix_get(af_mix m); /* static storage */
/* Case-insensitive; q3_k, q4_k and q5_k are their M mixes. */
bool af_mix_by_name(af_mix *out, const char *name);
/* All names with blanks between, for messages. Static storage. */
const char *af_mix_names(void);

/* What the choice depends on. */
typedef struct af_mix_model {
    int layers, experts;
    int gqa;   /* query heads per key head */
    bool tied; /* no output.weight: the embedding is the head */
    bool has_imatrix, pure;
} af_mix_model;

/* The type of tensor `name` (a GGUF name) with rows of `cols`; `layer` -1 outside the layers.
 * *fell_back says that the rows do not fill the blocks of the mix's type. */
af_dtype af_mix_type(af_mix m, const af_mix_model *model, const char *name, int ndim, int64_t cols,
                     int layer, bool *fell_back);
#endif
