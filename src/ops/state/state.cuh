/* state.cuh - what the kernels of the ops with a state share: where a row belongs, small vectors
 * of any type. */
#ifndef AF_STATE_CUH
#define AF_STATE_CUH
#include "sequences.cuh"

/* Value i of a vector; type: 0 f32, 1 bf16, 2 f16 (af_cuda_state_type). */
DEV float value(const void *p, int type, i64 i)
{
    return type == 0   ? ((const float *)p)[i]
           : type == 1 ? load((const bf16 *)p + i)
                       : load((const half *)p + i);
}
/* N of them from i on, which is a multiple of N, as is the beginning. */
template <int N> DEV void values(float (&f)[N], const void *p, int type, i64 i)
{
    if (type == 0)
        load_n(f, (const float *)p + i);
    else if (type == 1)
        load_n(f, (const bf16 *)p + i);
    else
        load_n(f, (const half *)p + i);
}
DEV void put_value(void *p, int type, i64 i, float v)
{
    if (type == 0)
        ((float *)p)[i] = v;
    else if (type == 1)
        store((bf16 *)p + i, v);
    else
        store((half *)p + i, v);
}

DEV float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }
DEV float silu_slope(float x)
{
    const float s = sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}
#endif
