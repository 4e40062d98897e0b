/* codec_block.h - inside the codecs: block functions by type, and small helpers. */
#ifndef AF_CODEC_BLOCK_H
#define AF_CODEC_BLOCK_H

#include "tensor/codec.h"
#include "tensor/half.h"

#include <math.h>

enum { AF_SUPER = 256 }; /* elements of a super-block */

typedef void af_decode_fn(const uint8_t *src, float *dst, int64_t n);
typedef void af_encode_fn(const float *src, uint8_t *dst, int64_t n, const float *importance);

af_decode_fn af_q4_0_decode, af_q4_1_decode, af_q5_0_decode, af_q5_1_decode, af_q8_0_decode;
af_decode_fn af_q2_k_decode, af_q3_k_decode, af_q4_k_decode, af_q5_k_decode, af_q6_k_decode;
af_decode_fn af_iq4_nl_decode, af_iq4_xs_decode, af_mxfp4_decode, af_nvfp4_decode;
af_decode_fn af_tq1_0_decode, af_tq2_0_decode, af_iq3_s_decode, af_iq3_xxs_decode, af_iq2_s_decode;
af_decode_fn af_iq1_s_decode, af_iq1_m_decode, af_iq2_xxs_decode, af_iq2_xs_decode;
af_decode_fn af_q1_0_decode, af_q2_0_decode;
af_encode_fn af_q4_0_encode, af_q4_1_encode, af_q5_0_encode, af_q5_1_encode, af_q8_0_encode;
af_encode_fn af_q2_k_encode, af_q3_k_encode, af_q4_k_encode, af_q5_k_encode, af_q6_k_encode;
af_encode_fn af_iq4_nl_encode, af_iq4_xs_encode, af_mxfp4_encode, af_nvfp4_encode;
af_encode_fn af_tq1_0_encode, af_tq2_0_encode, af_iq3_s_encode, af_iq3_xxs_encode, af_iq2_s_encode;

/* The encoder of a block type: the one for the widest vectors of this processor, or the one every
 * processor of the family can run. Same bytes. */
af_encode_fn *af_codec_encoder(af_dtype t, bool widest);

/* Nearest integer, ties to even, by the float adder: exact for |x| < 2^22. */
static inline float af_nearest(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

/* Into [lo, hi]; NaN becomes lo, so the result can always be cast to an integer. */
static inline float af_clamp(float x, float lo, float hi) { return x > hi ? hi : x >= lo ? x : lo; }

/* The six-bit scale and min number j of q4_k and q5_k. */
static inline void af_scale_min(const uint8_t *s, int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
    }
}

/* The six-bit scale number j of q3_k, as -32 .. 31. */
static inline int af_q3_k_scale(const uint8_t *s, int j)
{
    const int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
    return (low | (s[8 + j % 4] >> (2 * (j / 4)) & 3) << 4) - 32;
}

/* The sixteen values of iq4_nl and iq4_xs. */
extern const int8_t af_iq4_values[16];
#endif
