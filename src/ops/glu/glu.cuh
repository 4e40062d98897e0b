/* glu.cuh - the activation of gated units, chosen by AF_ACT (af_act: 0 silu, 1 gelu_tanh, 2 gelu, 3
 * relu). It may be included again for another one, in another namespace. */
#include "dev.cuh"

#ifndef AF_ACT
#define AF_ACT 0
#endif

/* The value, and its slope when asked. */
DEV float act(float x, float *slope)
{
#if AF_ACT == 0
    const float s = __fdividef(1.0f, 1.0f + __expf(-x));
    *slope = s * (1.0f + x * (1.0f - s));
    return x * s;
#elif AF_ACT == 1
    const float c = 0.7978845608028654f, u = c * (x + 0.044715f * x * x * x), t = tanh_exp(u);
    *slope = 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * c * (1.0f + 3.0f * 0.044715f * x * x);
    return 0.5f * x * (1.0f + t);
#elif AF_ACT == 2
    const float p = 0.5f * (1.0f + erff(x * 0.7071067811865476f));
    *slope = p + x * 0.3989422804014327f * __expf(-0.5f * x * x);
    return x * p;
#else
    *slope = x > 0.0f;
    return fmaxf(x, 0.0f);
#endif
}
