/* coded_weight.h - one weight that another tool stored as codes and scales: FP8 (DeepSeek, Qwen,
 * compressed-tensors), MXFP4 and NVFP4, packed integers of compressed-tensors, GPTQ, AWQ, BitNet,
 * MLX; and bitsandbytes, where one tensor of a model is stored in parts.
 *
 * Values are those of that tool's reference code, with its roundings. Which of them a tensor is
 * follows from the names stored next to it; the config says what the tensors cannot. */
#ifndef AF_CODED_WEIGHT_H
#define AF_CODED_WEIGHT_H

#include "format/config/hf_config.h"
#include "format/weights/weights.h"
#include "model/coded/bnb_weight.h"

typedef enum af_code_kind {
    AF_CODE_PLAIN,   /* fp8 or int8 codes as they are: (code - zero) * scale */
    AF_CODE_WORDS,   /* compressed-tensors: a stream of bits in i32 words along the row */
    AF_CODE_AFFINE,  /* MLX: such a stream, code * scale + zero */
    AF_CODE_FP4,     /* two e2m1 codes per byte, the first in the low half */
    AF_CODE_GPTQ,    /* words along the columns of the transposed matrix */
    AF_CODE_AWQ,     /* the same along its rows, in AWQ's order */
    AF_CODE_TERNARY, /* BitNet: four codes of 2 bits per byte, a quarter of the rows apart */
    AF_CODE_MEAN,    /* BitNet: plain weights, rounded to -1, 0 or 1 times the mean of |w| */
    AF_CODE_BNB,     /* bitsandbytes, where the weight is a part of a tensor: one expert */
} af_code_kind;

typedef struct af_coded_weight {
    af_code_kind kind;
    const char *name; /* the weight's, owned by the caller's arena */
    const af_stored *codes, *scale;
    const af_stored *zero, *order, *global; /* each may be NULL */
    int ndim;
    int64_t dim[3];     /* of the values */
    int64_t rows, cols; /* all rows of a stack of matrices */
    int bits;           /* of a code */
    int64_t block[2];   /* rows and columns that share a scale */
    int64_t scale_cols; /* scales of a row */
    int zero_add;       /* GPTQ: what was taken off the zeros before they were stored */
    bool transposed;    /* MXFP4 experts: stored [X][out][in], values are [X][in][out] */
    float mean;         /* AF_CODE_MEAN */
    af_bnb_weight bnb;  /* AF_CODE_BNB */
    bool divide;        /* by the global scale, instead of times it */
    af_dtype round;     /* values are rounded to this type */
} af_coded_weight;

/* Reads the weight `name` ("....weight", or a stack of experts); *found is false when it is not
 * stored as codes. Borrowed from `w` and from `name`. */
AF_CHECKED af_status af_coded_weight_read(af_coded_weight *out, bool *found, const af_weights *w,
                                          const af_hf_config *c, const char *name, af_error *err);
/* The same of a weight that is a part of a tensor, which bitsandbytes may have packed, too. */
AF_CHECKED af_status af_coded_weight_read_part(af_coded_weight *out, bool *found,
                                               const af_weights *w, const af_hf_config *c,
                                               const char *name, af_error *err);
/* True for a tensor that belongs to such a weight; *weight gets the weight's name where the tensor
 * has its codes, else "". */
bool af_coded_part(const af_weights *w, const af_hf_config *c, const char *name, char *weight,
                   size_t size);
/* Rows [from, from + n). */
void af_coded_weight_rows(const af_coded_weight *c, int64_t from, int64_t n, float *out);

/* The same of the matrices as they are stored, where `transposed` is set. */
void af_coded_weight_stored_rows(const af_coded_weight *c, int64_t from, int64_t n, float *out);

/* MXFP4: true when rows can stay in 4 bits, */
bool af_coded_weight_is_mxfp4(const af_coded_weight *c);
/* and row r (of the matrices as stored) in blocks of GGUF's mxfp4, whose order of codes differs. */
void af_coded_weight_mxfp4_row(const af_coded_weight *c, int64_t r, uint8_t *out);
#endif
