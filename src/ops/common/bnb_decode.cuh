/* bnb_decode.cuh - 4-bit weights of bitsandbytes in registers: scales of blocks, values of codes.
 * Used where whole rows are written back (dequant.cu) and where GEMMs read them (bnb_linear.cu):
 * both see the same values, bit for bit. */
#ifndef AF_BNB_DECODE_CUH
#define AF_BNB_DECODE_CUH
#include "bnb.cuh"

struct bnb_scales {
    const void *absmax;
    const float *nested, *map; /* map: dynamic_signed in shared memory (bnb_map) */
    float offset;
    int shift, nested_shift; /* log2 of the block sizes; nested_shift -1 = absmax is f32 */
};
/* The kernels of bitsandbytes take subnormals for zero. */
DEV float mul_flush(float a, float b)
{
    float c;
    asm("mul.rn.ftz.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}
DEV float add_flush(float a, float b)
{
    float c;
    asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}
DEV float scale_of(const bnb_scales &s, i64 block)
{
    if (s.nested_shift < 0)
        return ((const float *)s.absmax)[block];
    return add_flush(
        mul_flush(s.map[((const u8 *)s.absmax)[block]], s.nested[block >> s.nested_shift]),
        s.offset);
}
/* Fills a block's map of 256 values; the caller synchronises. */
DEV void bnb_map(float *map)
{
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        map[i] = __uint_as_float(dynamic_signed_bits[i]);
}

/* The 16 values of one block, rounded to T: four words of low bytes, four of high ones, so that
 * byte permutes look codes up four at a time. */
struct bnb_table {
    u32 low[4], high[4];
};
template <class T> DEV void bnb_values(bnb_table &t, T *, const u32 *book, float scale)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        u32 w[2];
#pragma unroll
        for (int i = 0; i < 2; i++)
            w[i] = pack2((T *)0, mul_flush(__uint_as_float(book[4 * j + 2 * i]), scale),
                         mul_flush(__uint_as_float(book[4 * j + 2 * i + 1]), scale));
        t.low[j] = __byte_perm(w[0], w[1], 0x6420);
        t.high[j] = __byte_perm(w[0], w[1], 0x7531);
    }
}
/* Eight codes (four bytes, the high nibble of each is the first value) as four pairs. */
DEV void bnb_lookup(u32 (&out)[4], const bnb_table &t, u32 code)
{
#pragma unroll
    for (int h = 0; h < 2; h++) { /* codes 8..15 come from the upper two words */
        const u32 c = code >> (16 * h), at = c & 0x7777;
        const u32 upper = __byte_perm(0xff00, 0, c >> 3 & 0x1111);
        const u32 a = __byte_perm(t.low[0], t.low[1], at), b = __byte_perm(t.low[2], t.low[3], at);
        const u32 d = __byte_perm(t.high[0], t.high[1], at),
                  e = __byte_perm(t.high[2], t.high[3], at);
        const u32 l = (b & upper) | (a & ~upper), v = (e & upper) | (d & ~upper);
        out[2 * h] = __byte_perm(l, v, 0x4051);
        out[2 * h + 1] = __byte_perm(l, v, 0x6273);
    }
}
#endif
