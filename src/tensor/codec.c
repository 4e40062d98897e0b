/* codec.c - which function serves which block type; see codec.h. */
#include "tensor/codec.h"

#include "tensor/codec_block.h"

typedef struct codec {
    af_decode_fn *decode;
    af_encode_fn *encode;
} codec;

static const codec codecs[AF_DTYPE_COUNT] = {
    [AF_DTYPE_Q4_0] = {af_q4_0_decode, af_q4_0_encode},
    [AF_DTYPE_Q4_1] = {af_q4_1_decode, af_q4_1_encode},
    [AF_DTYPE_Q5_0] = {af_q5_0_decode, af_q5_0_encode},
    [AF_DTYPE_Q5_1] = {af_q5_1_decode, af_q5_1_encode},
    [AF_DTYPE_Q8_0] = {af_q8_0_decode, af_q8_0_encode},
    [AF_DTYPE_Q2_K] = {af_q2_k_decode, af_q2_k_encode},
    [AF_DTYPE_Q3_K] = {af_q3_k_decode, af_q3_k_encode},
    [AF_DTYPE_Q4_K] = {af_q4_k_decode, af_q4_k_encode},
    [AF_DTYPE_Q5_K] = {af_q5_k_decode, af_q5_k_encode},
    [AF_DTYPE_Q6_K] = {af_q6_k_decode, af_q6_k_encode},
    [AF_DTYPE_IQ4_NL] = {af_iq4_nl_decode, af_iq4_nl_encode},
    [AF_DTYPE_IQ4_XS] = {af_iq4_xs_decode, af_iq4_xs_encode},
    [AF_DTYPE_IQ2_S] = {af_iq2_s_decode, af_iq2_s_encode},
    [AF_DTYPE_IQ3_XXS] = {af_iq3_xxs_decode, af_iq3_xxs_encode},
    [AF_DTYPE_IQ3_S] = {af_iq3_s_decode, af_iq3_s_encode},
    [AF_DTYPE_TQ1_0] = {af_tq1_0_decode, af_tq1_0_encode},
    [AF_DTYPE_TQ2_0] = {af_tq2_0_decode, af_tq2_0_encode},
    [AF_DTYPE_MXFP4] = {af_mxfp4_decode, af_mxfp4_encode},
    [AF_DTYPE_NVFP4] = {af_nvfp4_decode, af_nvfp4_encode},
    [AF_DTYPE_IQ1_S] = {af_iq1_s_decode, NULL},
    [AF_DTYPE_IQ1_M] = {af_iq1_m_decode, NULL},
    [AF_DTYPE_IQ2_XXS] = {af_iq2_xxs_decode, NULL},
    [AF_DTYPE_IQ2_XS] = {af_iq2_xs_decode, NULL},
    [AF_DTYPE_Q1_0] = {af_q1_0_decode, NULL},
    [AF_DTYPE_Q2_0] = {af_q2_0_decode, NULL},
};

#if defined(AF_CODEC_AVX2) /* the encoders built for wider vectors */
af_encode_fn af_q4_0_encode_avx2, af_q4_1_encode_avx2, af_q5_0_encode_avx2, af_q5_1_encode_avx2;
af_encode_fn af_q8_0_encode_avx2, af_q2_k_encode_avx2, af_q3_k_encode_avx2, af_q4_k_encode_avx2;
af_encode_fn af_q5_k_encode_avx2, af_q6_k_encode_avx2, af_iq4_nl_encode_avx2, af_iq4_xs_encode_avx2;

static af_encode_fn *const wider[AF_DTYPE_COUNT] = {
    [AF_DTYPE_Q4_0] = af_q4_0_encode_avx2,     [AF_DTYPE_Q4_1] = af_q4_1_encode_avx2,
    [AF_DTYPE_Q5_0] = af_q5_0_encode_avx2,     [AF_DTYPE_Q5_1] = af_q5_1_encode_avx2,
    [AF_DTYPE_Q8_0] = af_q8_0_encode_avx2,     [AF_DTYPE_Q2_K] = af_q2_k_encode_avx2,
    [AF_DTYPE_Q3_K] = af_q3_k_encode_avx2,     [AF_DTYPE_Q4_K] = af_q4_k_encode_avx2,
    [AF_DTYPE_Q5_K] = af_q5_k_encode_avx2,     [AF_DTYPE_Q6_K] = af_q6_k_encode_avx2,
    [AF_DTYPE_IQ4_NL] = af_iq4_nl_encode_avx2, [AF_DTYPE_IQ4_XS] = af_iq4_xs_encode_avx2,
};
#endif

af_encode_fn *af_codec_encoder(af_dtype t, bool widest)
{
#if defined(AF_CODEC_AVX2)
    if (widest && wider[t] && __builtin_cpu_supports("avx2"))
        return wider[t];
#endif
    (void)widest;
    return codecs[t].encode;
}

bool af_codec_can_decode(af_dtype t)
{
    const bool sized = t == AF_DTYPE_E8M0 || t == AF_DTYPE_E4M3FNUZ || t == AF_DTYPE_E5M2FNUZ ||
                       t == AF_DTYPE_C64; /* nothing of them is known but how large they are */
    return (!af_dtype_is_block(t) && !sized) || codecs[t].decode != NULL;
}

bool af_codec_can_encode(af_dtype t)
{
    return t == AF_DTYPE_F32 || t == AF_DTYPE_F16 || t == AF_DTYPE_BF16 || codecs[t].encode != NULL;
}

void af_codec_decode_row(af_dtype t, const void *src, float *dst, int64_t n)
{
    assert(af_codec_can_decode(t) && n % af_dtype_get(t)->elems == 0);
    if (codecs[t].decode)
        codecs[t].decode(src, dst, n);
    else
        af_convert(dst, AF_DTYPE_F32, src, t, (uint64_t)n);
}

void af_codec_encode_row(af_dtype t, const float *src, void *dst, int64_t n,
                         const float *importance)
{
    assert(af_codec_can_encode(t) && n % af_dtype_get(t)->elems == 0);
    if (codecs[t].encode)
        af_codec_encoder(t, true)(src, dst, n, importance);
    else
        af_convert(dst, t, src, AF_DTYPE_F32, (uint64_t)n);
}
