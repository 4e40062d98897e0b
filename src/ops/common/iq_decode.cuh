/* iq_decode.cuh - one value of a block whose magnitudes are points of a grid: iq3_s, iq2_s and
 * iq3_xxs. Part of dequant.cu, which has VALUE and half_at. Twins: codec_iq3.c, codec_iq2.c. */
#ifndef AF_IQ_DECODE_CUH
#define AF_IQ_DECODE_CUH
#include "iq2_grid.cuh"
#include "iq3_grid.cuh"

__device__ static const u16 iq3_grid[512] = {AF_IQ3_GRID};
struct iq3_s {
    enum { ELEMS = 256, BYTES = 110 };
    VALUE
    {
        const int quad = i / 4, point = b[2 + quad] | (b[66 + quad / 8] >> quad % 8 & 1) << 8;
        const int scale = 1 + 2 * (b[106 + i / 64] >> i / 32 % 2 * 4 & 15);
        const float v = half_at(b) * scale * (2 * (iq3_grid[point] >> i % 4 * 4 & 15) + 1);
        return b[74 + i / 8] >> i % 8 & 1 ? -v : v;
    }
};
__device__ static const u16 iq2_grid[1024] = {AF_IQ2_GRID};
struct iq2_s {
    enum { ELEMS = 256, BYTES = 82 };
    VALUE
    {
        const int at = i / 8, point = b[2 + at] | (b[66 + at / 4] >> 2 * (at % 4) & 3) << 8;
        const int level = iq2_grid[point] >> i % 8 * 2 & 3;
        const int scale = b[74 + i / 32] >> i / 16 % 2 * 4;
        const float v = half_at(b) * (0.5f + (scale & 15)) * 0.25f *
                        (level == 0   ? 8
                         : level == 1 ? 25
                         : level == 2 ? 43
                                      : 0);
        return b[34 + at] >> i % 8 & 1 ? -v : v;
    }
};
__device__ static const u16 iq3_small_grid[256] = {AF_IQ3_SMALL_GRID};
struct iq3_xxs {
    enum { ELEMS = 256, BYTES = 98 };
    VALUE
    {
        const u8 *at = b + 66 + i / 32 * 4;
        const u32 w = at[0] | at[1] << 8 | at[2] << 16 | (u32)at[3] << 24;
        const int seven = w >> 7 * (i / 8 % 4) & 127;
        const int level = iq3_small_grid[b[2 + i / 4]] >> i % 4 * 4 & 15;
        const float v = half_at(b) * (0.5f + (w >> 28)) * 0.5f * (level == 7 ? 62 : 8 * level + 4);
        int parity = seven ^ seven >> 4; /* the eighth sign makes their number even */
        parity ^= parity >> 2;
        parity ^= parity >> 1;
        return (i % 8 == 7 ? parity : seven >> i % 8) & 1 ? -v : v;
    }
};
#endif
