/* rotate.cuh - the rotation of a pair by its position, with the same bits wherever it is done. */
#ifndef AF_ROTATE_CUH
#define AF_ROTATE_CUH
#include "dev.cuh"

/* Cosine and sine, times the scale. */
DEV float2 rotation(int position, float inv_freq, float scale)
{
    float s, c;
    sincosf((float)position * inv_freq, &s, &c);
    return make_float2(c * scale, s * scale);
}
DEV void rotate_pair(float &a, float &b, float2 cs)
{
    const float u = __fmaf_rn(a, cs.x, -__fmul_rn(b, cs.y));
    b = __fmaf_rn(b, cs.x, __fmul_rn(a, cs.y));
    a = u;
}
#endif
