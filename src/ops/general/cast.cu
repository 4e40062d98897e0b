/* cast.cu - y (+)= x between unquantised types.  Contract: unary.c (CAST), binary.c (ACCUM).
 *
 * Types are arguments (af_dtype numbers), so one kernel serves every pair; values pass through
 * double where an end is f64 or a wide integer, else through f32. A grid-stride loop. */
#include "dev.cuh"

DEV double load_any(const void *p, int type, i64 i)
{
    switch (type) {
    case 0:
        return ((const float *)p)[i];
    case 1:
        return ((const double *)p)[i];
    case 2:
        return load((const bf16 *)p + i);
    case 3:
        return load((const half *)p + i);
    case 6:
        return ((const i8 *)p)[i];
    case 7:
        return ((const short *)p)[i];
    case 8:
        return ((const int *)p)[i];
    case 9:
        return (double)((const i64 *)p)[i];
    default: /* u8, bool */
        return ((const u8 *)p)[i];
    }
}
DEV void store_any(void *p, int type, i64 i, double v)
{
    switch (type) {
    case 0:
        ((float *)p)[i] = (float)v;
        break;
    case 1:
        ((double *)p)[i] = v;
        break;
    case 2:
        store((bf16 *)p + i, (float)v);
        break;
    case 3:
        store((half *)p + i, (float)v);
        break;
    case 6:
        ((i8 *)p)[i] = (i8)v;
        break;
    case 7:
        ((short *)p)[i] = (short)v;
        break;
    case 8:
        ((int *)p)[i] = (int)v;
        break;
    case 9:
        ((i64 *)p)[i] = (i64)v;
        break;
    case 14:
        ((u8 *)p)[i] = v != 0.0;
        break;
    default:
        ((u8 *)p)[i] = (u8)v;
        break;
    }
}

/* Floats of at most 32 bits on both ends. */
extern "C" __global__ void cast_float(void *y, int to, const void *x, int from, long long n,
                                      int accumulate)
{
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (i64)gridDim.x * blockDim.x) {
        float v = from == 0   ? ((const float *)x)[i]
                  : from == 2 ? load((const bf16 *)x + i)
                              : load((const half *)x + i);
        if (to == 0)
            ((float *)y)[i] = accumulate ? ((float *)y)[i] + v : v;
        else if (to == 2)
            store((bf16 *)y + i, accumulate ? load((bf16 *)y + i) + v : v);
        else
            store((half *)y + i, accumulate ? load((half *)y + i) + v : v);
    }
}
extern "C" __global__ void cast_any(void *y, int to, const void *x, int from, long long n,
                                    int accumulate)
{
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (i64)gridDim.x * blockDim.x)
        store_any(y, to, i, load_any(x, from, i) + (accumulate ? load_any(y, to, i) : 0.0));
}
