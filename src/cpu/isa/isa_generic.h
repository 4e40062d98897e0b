/* isa_generic.h - the helpers of isa_*.h in plain C, for instruction sets without better
 * instructions. A header that has one defines the AF_OWN_* macro of the group before including this
 * file. */
#ifndef AF_ISA_GENERIC_H
#define AF_ISA_GENERIC_H

#ifndef AF_OWN_F16
AF_INLINE float af_half(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return af_f16_up(h);
}
AF_INLINE vec af_f16_widen(const uint16_t *p)
{
    vec v = {0};
    for (int i = 0; i < VL; i++)
        v[i] = af_f16_up(p[i]);
    return v;
}
static const bool af_has_f16 = false; /* no instruction widens f16 */
#endif

#ifndef AF_OWN_BYTES
/* table[code[i]], code[i] < 16 */
AF_INLINE af_i8v af_lookup16(af_i8v table, af_u8v code)
{
    af_i8v v;
    for (int i = 0; i < 16; i++)
        v[i] = table[code[i]];
    return v;
}
AF_INLINE void af_widen16(af_i8v q, vec out[PER16])
{
    float f[16];
    for (int i = 0; i < 16; i++)
        f[i] = (float)q[i];
    memcpy(out, f, sizeof f); // cppcheck-suppress bufferAccessOutOfBounds ; VL is unknown to it
}
#endif

#ifndef AF_OWN_RECIPROCAL
/* 1/x for x of at least one, to about 1 ulp. */
AF_INLINE vec af_reciprocal(vec x) { return 1.0f / x; }
#endif

#ifndef AF_OWN_CLAMP
AF_INLINE vec af_vec_clamp(vec x, vec low, vec high)
{
    return af_pick(x < low, low, af_pick(x > high, high, x));
}
#endif

#ifndef AF_OWN_LANE
/* f[lane] * w + acc for AF_K_LANES values of f that were loaded together. */
enum { AF_K_LANES = 1 };
AF_INLINE vec af_load_lanes(const float *p) { return *p - (vec){0}; }
AF_INLINE vec af_fma_lane(vec acc, vec w, vec f, int lane)
{
    (void)lane;
    return acc + w * f;
}
#endif

#ifndef AF_OWN_PIN
/* Keeps a broadcast value in a register where the compiler would load it again for each use. */
AF_INLINE vec af_pin(vec v) { return v; }
#endif

#ifndef AF_OWN_FMA
AF_INLINE vec af_fma(vec acc, vec x, vec y) { return acc + x * y; }
#endif

#ifndef AF_OWN_BF16_ROUND
/* Rounds the first values of a row to bf16 with vector instructions: how many. */
AF_INLINE int64_t af_bf16_vecs(uint16_t *dst, const float *src, int64_t n)
{
    (void)dst, (void)src, (void)n;
    return 0;
}
#endif

/* What only some instruction sets have: their GEMM kernels, small f32 GEMMs that read operands in
 * place (32 vector registers), bytes of activations times blocks, a low-rank algorithm for bf16
 * rows, attention on matrix tiles, two forms of its sums. */
#ifndef AF_ISA_BF16_KERNEL
#define AF_ISA_BF16_KERNEL NULL
#endif
#ifndef AF_ISA_PLANES_KERNEL
#define AF_ISA_PLANES_KERNEL NULL
#endif
#ifndef AF_ISA_SMALL
#define AF_ISA_SMALL NULL
#endif
#ifndef AF_ISA_ROUNDS
#define AF_ISA_ROUNDS false
#endif
#ifndef AF_ISA_LOWRANK_BF16
#define AF_ISA_LOWRANK_BF16 &AF_ISA_NAME(af_lowrank_vector)
#endif
#ifndef AF_ISA_ATTENTION
#define AF_ISA_ATTENTION NULL
#endif
#ifndef AF_ISA_SUMS_AT_ONCE
#define AF_ISA_SUMS_AT_ONCE NULL
#endif
#endif
