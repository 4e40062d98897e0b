/* weight.c - values of any type as doubles, a row at a time: what twins read weights through. */
#include "backend/cpu/cpu.h"

void af_ld_row(const af_tensor *t, int64_t from, int64_t count, double *out)
{
    const float *f = t->data;
    const double *d = t->data;
    const uint16_t *h = t->data;
    switch (t->dtype) {
    case AF_DTYPE_F32:
        for (int64_t i = 0; i < count; i++)
            out[i] = f[from + i];
        break;
    case AF_DTYPE_F64:
        memcpy(out, d + from, (size_t)count * sizeof *out);
        break;
    case AF_DTYPE_BF16:
        for (int64_t i = 0; i < count; i++)
            out[i] = af_f32_from_bf16(h[from + i]);
        break;
    default:
        assert(!af_dtype_is_block(t->dtype));
        for (int64_t i = 0; i < count; i++)
            out[i] = af_ld(t, from + i);
    }
}

void af_st_row(af_tensor *t, int64_t from, int64_t count, const double *v)
{
    for (int64_t i = 0; i < count; i++)
        af_st(t, from + i, v[i]);
}

double af_ld_weight(const af_tensor *t, int64_t i)
{
    assert(!af_dtype_is_block(t->dtype));
    return af_ld(t, i);
}
