/* attention_variant.h - attention.cu with one list of defines, in namespace NAME, its kernels with
 * C names that differ. No guard: included once per variant, with NAME and the defines set, which it
 * removes. */
#define WITH_(kernel, name) kernel##_##name
#define WITH(kernel, name)  WITH_(kernel, name)
#define attention_fwd       WITH(fwd, NAME)
#define attention_dq        WITH(dq, NAME)
#define attention_dkv       WITH(dkv, NAME)
namespace NAME
{
#include "ops/attention/attention.cu"
__shared__ __align__(16) bf16 shared[1 << 17];
} // namespace NAME
#undef WITH_
#undef WITH
#undef attention_fwd
#undef attention_dq
#undef attention_dkv
#undef NAME
#undef AF_BWD
#undef AF_EP
#undef AF_WARPS
#undef AF_MT
#undef AF_BN
#undef AF_SOFTCAP
#undef LDS
#undef THREADS
#undef BM
#undef KS
