/* isa_x86.h - what the builds for AVX2 and for AVX-512 share; after their vector lengths. */
#ifndef AF_ISA_X86_H
#define AF_ISA_X86_H

#include <immintrin.h>

#include "cpu/isa/isa_vec.h"

#define AF_ISA_ROUNDS true

#define AF_OWN_F16
AF_INLINE float af_half(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return _cvtsh_ss(h);
}
static const bool af_has_f16 = true;

#define AF_OWN_BYTES
AF_INLINE af_i8v af_lookup16(af_i8v table, af_u8v code)
{
    return (af_i8v)_mm_shuffle_epi8((__m128i)table, (__m128i)code);
}
#endif
