/* host_library.h - what programs that run kernels on the host take from the library. */
#ifndef AF_HOST_LIBRARY_H
#define AF_HOST_LIBRARY_H

#include "ops/common/bnb.cuh" /* and with it host/dev.cuh */

#include <stdio.h>
#include <stdlib.h>

#include "afinar/types.h"
#include "ops/general/dropout.h"

extern "C" { /* base/rng.h, tensor/codec_bnb.h, tensor/codec_block.h,
              tensor/fp8_round.h, which are C only */
double af_rng_f64(uint64_t seed, uint64_t stream, uint64_t index);
uint32_t af_rng_u32(uint64_t seed, uint64_t stream, uint64_t index);
float af_rng_f32(uint64_t seed, uint64_t stream, uint64_t index);
uint64_t af_rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n);
const float *af_bnb_table(af_dtype type);
const float *af_bnb_map(bool is_signed);
void af_bnb_unnest(const float *map, const uint8_t *q, const float *nested, float offset,
                   int64_t nested_block, int64_t from, int64_t to, float *absmax);
void af_int8_decode_row(const int8_t *q, float scb, int64_t n, float *dst);
typedef void af_decode_fn(const uint8_t *src, float *dst, int64_t n);
af_decode_fn af_q4_0_decode, af_q4_1_decode, af_q5_0_decode, af_q5_1_decode, af_q8_0_decode;
af_decode_fn af_q2_k_decode, af_q3_k_decode, af_q4_k_decode, af_q5_k_decode, af_q6_k_decode;
af_decode_fn af_iq4_nl_decode, af_iq4_xs_decode, af_mxfp4_decode, af_nvfp4_decode;
af_decode_fn af_tq1_0_decode, af_tq2_0_decode, af_iq3_s_decode, af_iq3_xxs_decode, af_iq2_s_decode;
struct af_fp8_scale {
    float scale, inverse;
};
float af_fp8_largest(const float *x, int64_t n, float so_far);
af_fp8_scale af_fp8_scale_of(float largest);
uint8_t af_fp8_code(float x);
}

#endif
