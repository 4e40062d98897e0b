/* codec.h - GGUF block formats on the host: encode and decode single rows.
 *
 * The only place outside the device prelude that knows how q4_k lays out its bits. Pure functions,
 * no allocation, no threads: callers split rows among threads. Bytes and values are those of
 * llama.cpp's reference code. bitsandbytes formats are codec_bnb.h; which tensors to quantise is
 * convert/'s business. */
#ifndef AF_CODEC_H
#define AF_CODEC_H

#include "tensor/dtype.h"

/* f32 f64 bf16 f16 and integers, and the block types q4_0 q4_1 q5_0 q5_1 q8_0 q2_k .. q6_k iq4_nl
 * iq4_xs mxfp4. */
bool af_codec_can_decode(af_dtype t);
/* f32 bf16 f16 and the same block types but mxfp4. */
bool af_codec_can_encode(af_dtype t);

/* n elements (whole blocks) from src to dst. The type must be one that can be decoded. */
void af_codec_decode_row(af_dtype t, const void *src, float *dst, int64_t n);
/* A whole row of n elements (whole blocks). `importance` is NULL or n weights (how much the error
 * of each column matters); with it other, slower searches are used, and the row must be complete
 * because some types use its mean square. */
void af_codec_encode_row(af_dtype t, const float *src, void *dst, int64_t n,
                         const float *importance);
#endif
