/* sha256_fast.c - SHA-256 by the processor's own instructions, where it has them (about ten times
 * the plain version: checkpoints and data sets are hashed whole). */
#include "base/sha256.h"

/* clang before 16 declares the intrinsics only for files built with the extension */
#if defined(__aarch64__) && defined(__linux__) &&                                                  \
    (!defined(__clang__) || defined(__ARM_FEATURE_SHA2) || __clang_major__ >= 16)

#include <arm_neon.h>
#include <sys/auxv.h>

#define HAS_SHA2 (1ul << 6) /* HWCAP_SHA2 */

#ifdef __clang__
__attribute__((target("sha2")))
#else
__attribute__((target("+crypto")))
#endif
static void
compress_arm(uint32_t s[8], const uint8_t *p, uint64_t blocks)
{
    uint32x4_t abcd = vld1q_u32(s), efgh = vld1q_u32(s + 4);
    for (; blocks > 0; blocks--, p += 64) {
        const uint32x4_t abcd_old = abcd, efgh_old = efgh;
        uint32x4_t w[4];
        for (int i = 0; i < 4; i++)
            w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(p + 16 * i)));
        for (int g = 0; g < 16; g++) { /* four rounds each */
            const uint32x4_t wk = vaddq_u32(w[g & 3], vld1q_u32(af_sha256_key + 4 * g));
            const uint32x4_t before = abcd;
            abcd = vsha256hq_u32(abcd, efgh, wk);
            efgh = vsha256h2q_u32(efgh, before, wk);
            if (g < 12)
                w[g & 3] = vsha256su1q_u32(vsha256su0q_u32(w[g & 3], w[(g + 1) & 3]),
                                           w[(g + 2) & 3], w[(g + 3) & 3]);
        }
        abcd = vaddq_u32(abcd, abcd_old);
        efgh = vaddq_u32(efgh, efgh_old);
    }
    vst1q_u32(s, abcd);
    vst1q_u32(s + 4, efgh);
}

af_sha256_compress *af_sha256_fast(void)
{
    return getauxval(AT_HWCAP) & HAS_SHA2 ? compress_arm : NULL;
}

#elif defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

__attribute__((target("sha,sse4.1"))) static void compress_x86(uint32_t s[8], const uint8_t *p,
                                                               uint64_t blocks)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    /* the instructions want the state as ABEF and CDGH */
    const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)s), 0xb1);
    const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(s + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
    for (; blocks > 0; blocks--, p += 64) {
        const __m128i abef_old = abef, cdgh_old = cdgh;
        __m128i w[4];
        for (int i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * i)), swap);
        for (int g = 0; g < 16; g++) { /* four rounds each */
            const __m128i key = _mm_loadu_si128((const __m128i *)(af_sha256_key + 4 * g));
            const __m128i wk = _mm_add_epi32(w[g & 3], key);
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0e));
            if (g < 12) {
                const __m128i seven = _mm_alignr_epi8(w[(g + 3) & 3], w[(g + 2) & 3], 4);
                const __m128i part = _mm_sha256msg1_epu32(w[g & 3], w[(g + 1) & 3]);
                w[g & 3] = _mm_sha256msg2_epu32(_mm_add_epi32(part, seven), w[(g + 3) & 3]);
            }
        }
        abef = _mm_add_epi32(abef, abef_old);
        cdgh = _mm_add_epi32(cdgh, cdgh_old);
    }
    const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)s, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(s + 4), _mm_alignr_epi8(dchg, feba, 8));
}

af_sha256_compress *af_sha256_fast(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_1))
        return NULL;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 29 & 1 ? compress_x86 : NULL;
}

#else

af_sha256_compress *af_sha256_fast(void) { return NULL; }

#endif
