/* isa_vec.h - types of VL floats and of 16 bytes; every isa_*.h includes it after defining VL. */
#ifndef AF_ISA_VEC_H
#define AF_ISA_VEC_H

typedef float vec __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef int8_t af_i8v __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint8_t af_u8v __attribute__((vector_size(16), aligned(1), may_alias));

enum { PER16 = VL < 16 ? 16 / VL : 1 }; /* vectors that 16 bytes widen to */

AF_INLINE vec af_pick(ivec mask, vec a, vec b)
{
    return (vec)(((ivec)a & mask) | ((ivec)b & ~mask));
}
#endif
