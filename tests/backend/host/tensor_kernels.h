/* tensor_kernels.h - the texts of kernels with tensor cores, compiled for the host. */
#ifndef AF_TENSOR_KERNELS_H
#define AF_TENSOR_KERNELS_H

#include "host/host_library.h"

#include <algorithm>

/* mul.rn.ftz and add.rn.ftz of bnb_decode.cuh, whose operands are c, a and b */
static float flushed(const char *text, float a, float b)
{
    const auto flush = [](float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; };
    a = flush(a), b = flush(b);
    return flush(strstr(text, "mul") ? a * b : a + b);
}
#define asm(...) c = flushed(#__VA_ARGS__, a, b)
namespace products
{
#include "ops/linear/bnb_linear.cuh"
}
using namespace products;
/* one text for two numbers of tokens and two books: C names must differ */
#define AF_BOOK    nf4_bits
#define AF_TOK     8
#define bnb_linear nf4_8
namespace few
{
#include "ops/linear/bnb_linear.cu"
} // namespace few
#undef AF_TOK
#undef bnb_linear
#define AF_TOK     16
#define bnb_linear nf4_16
namespace more
{
#include "ops/linear/bnb_linear.cu"
} // namespace more
#undef AF_BOOK
#undef AF_TOK
#undef bnb_linear
#define AF_BOOK    fp4_bits
#define AF_TOK     8
#define bnb_linear fp4_8
namespace fp4
{
#include "ops/linear/bnb_linear.cu"
} // namespace fp4
#undef bnb_linear
#undef asm
extern "C" {
__align__(16) thread_local u8 smem[1 << 17]; /* of all of them */
}
#endif
