/* codec_bnb.h - bitsandbytes formats on the host: nf4, fp4, double quantisation, int8 rows, and the
 * 8-bit dynamic maps (also those of 8-bit optimizers).
 *
 * A tensor is its flattened elements; blocks of `block` elements ignore row ends; two codes per
 * byte, the first in the high half. Bytes are those of bitsandbytes' CUDA kernels: subnormals count
 * as zero, a zero block has code 0, a threshold hit exactly takes the lower code. Pure functions,
 * no threads: callers split at block boundaries (for an even block size, codes and absmax of
 * element i*block are at codes + i*block/2 and absmax + i). */
#ifndef AF_CODEC_BNB_H
#define AF_CODEC_BNB_H

#include "tensor/dtype.h"

enum { AF_BNB_NESTED_BLOCK = 256 }; /* of double quantisation and of 8-bit optimizer states */

/* The value of each code. `type` is AF_DTYPE_NF4 or AF_DTYPE_FP4. Static storage, 16 entries. */
const float *af_bnb_table(af_dtype type);
/* The signed map (double quantisation, first moments) or the unsigned one (second moments),
 * ascending. Static storage, 256 entries. */
const float *af_bnb_map(bool is_signed);

static inline int64_t af_bnb_blocks(int64_t n, int64_t block) { return (n + block - 1) / block; }
static inline int64_t af_bnb_bytes(int64_t n) { return (n + 1) / 2; }

/* codes [(n+1)/2], absmax [blocks]. */
void af_bnb_encode(af_dtype type, const float *x, int64_t n, int64_t block, uint8_t *codes,
                   float *absmax);
/* Elements [from, to) of the tensor, table[code]*absmax rounded once to `dst_type` (f32, bf16 or
 * f16), to dst[0 ..]. `table` is 16 values, NULL for the type's own. codes and absmax are the whole
 * tensor's. */
void af_bnb_decode(af_dtype type, const float *table, const uint8_t *codes, const float *absmax,
                   int64_t block, int64_t from, int64_t to, void *dst, af_dtype dst_type);

/* The mean of absmax, in f32. */
float af_bnb_offset(const float *absmax, int64_t blocks);
/* Double quantisation of absmax[] with the signed map: q [blocks], nested [ceil(blocks/256)]. */
void af_bnb_nest(const float *absmax, int64_t blocks, float offset, uint8_t *q, float *nested);
/* absmax[from .. to) back from them. `map` has 256 values, NULL for the signed map. */
void af_bnb_unnest(const float *map, const uint8_t *q, const float *nested, float offset,
                   int64_t nested_block, int64_t from, int64_t to, float *absmax);

/* 8-bit blocks: q [n], absmax [blocks]; x ~ map[q]*absmax. */
void af_bnb8_encode(const float *map, const float *x, int64_t n, int64_t block, uint8_t *q,
                    float *absmax);
void af_bnb8_decode(const float *map, const uint8_t *q, const float *absmax, int64_t block,
                    int64_t from, int64_t to, float *dst);

/* One row of LLM.int8: the weight is rounded to f16 first; returns its SCB. */
float af_int8_encode_row(const float *x, int64_t n, int8_t *q);
void af_int8_decode_row(const int8_t *q, float scb, int64_t n, float *dst);
#endif
