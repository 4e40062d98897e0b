/* tensor_kernels.h - the texts of kernels with tensor cores, compiled for the host. */
#ifndef AF_TENSOR_KERNELS_H
#define AF_TENSOR_KERNELS_H

#include "host/host_library.h"
#include "ops/rope/rotate.cuh"

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
#include "backend/cuda/cluster.cuh"
#include "ops/common/bnb_linear.cuh"
} // namespace products
using namespace products;
#undef AF_BOOK
/* one text for two numbers of tokens and two books: C names must differ */
#define AF_BOOK    nf4_bits
#define AF_TOK     8
#define bnb_linear nf4_8
namespace few
{
#include "ops/linear/bnb_linear.cu"
}
#undef AF_TOK
#undef AF_WARPS
#undef AF_SLOTS
#undef bnb_linear
#define AF_TOK     16
#define bnb_linear nf4_16
namespace more
{
#include "ops/linear/bnb_linear.cu"
}
/* one or two tokens */
#undef WARPS
#undef ROWS
#undef AF_TOK
namespace few_2
{
#include "ops/linear/bnb_linear_few.cu"
}
#undef WARPS
#undef ROWS
#undef TOKENS
#define AF_TOK 16
/* and with the warps of GPUs that have 99 KiB of shared memory per block, or 163 */
#undef bnb_linear
#undef AF_WARPS
#undef AF_SLOTS
#define AF_WARPS   8
#define AF_SLOTS   2
#define bnb_linear nf4_16_small
namespace more_small
{
#include "ops/linear/bnb_linear.cu"
}
#undef AF_TOK
#undef bnb_linear
#define AF_TOK     8
#define bnb_linear nf4_8_small
namespace few_small
{
#include "ops/linear/bnb_linear.cu"
}
#undef AF_WARPS
#undef AF_SLOTS
#undef bnb_linear
#define AF_WARPS   16
#define AF_SLOTS   4
#define bnb_linear nf4_8_medium
namespace few_medium
{
#include "ops/linear/bnb_linear.cu"
}
#undef AF_TOK
#undef AF_WARPS
#undef AF_SLOTS
#define AF_TOK 16
#undef AF_BOOK
#undef bnb_linear
#define AF_BOOK    fp4_bits
#define bnb_linear fp4_16
namespace fp4
{
#include "ops/linear/bnb_linear.cu"
}
#undef bnb_linear
#undef AF_WARPS
#undef AF_SLOTS
#undef WARPS
#undef ROWS
#undef AF_BOOK
#define AF_BOOK nf4_bits
#define AF_MT   2
namespace gradients
{
#include "ops/linear/bnb_linear_dx.cu"
}
namespace matrix
{
#include "ops/common/bnb_fill.cu"
}
#undef asm
#undef WARPS
#undef COLS
#undef ROWS
#define AF_NT 4
namespace down
{
#include "ops/linear/low_rank.cu"
}
#undef WARPS
#undef COLS
#undef ROWS
#undef STAGES
#undef TOKENS
#define smem tile_memory /* of another type */
namespace outer
{
#include "ops/linear/low_rank_dw.cu"
}
#undef COLS
#undef TOKENS
#undef ZP
#define AF_ACT 0
#include "ops/common/fp8_codes.cuh"
namespace units
{
#include "ops/glu/glu_adapter.cu"
}
/* with codes: C names must differ */
#undef AF_CODES
#define AF_CODES              1
#define glu_adapter_fwd_codes glu_codes_fwd
#define glu_adapter_bwd       glu_codes_bwd
#define adapter_sums          codes_sums
namespace coded
{
#include "ops/glu/glu_adapter.cu"
}
#undef glu_adapter_fwd_codes
#undef glu_adapter_bwd
#undef adapter_sums
#undef smem
/* two sizes of heads, with few and many of them: C names must differ */
#undef WARPS
#define AF_E              128
#define AF_G              8
#define attention_grouped attention_grouped_8
namespace grouped_8
{
#include "ops/attention/attention_grouped.cu"
}
#undef AF_E
#undef AF_G
#undef attention_grouped
#undef WARPS
#undef KEYS
#undef HALVES
#undef LINE
#undef RESIDENT
#undef AF_ROPE
#undef AF_WARPS
#define AF_E              128
#define AF_G              8
#define AF_ROPE           1
#define AF_WARPS          8
#define attention_grouped attention_rotated
namespace rotating
{
using namespace grouped_8;
#include "ops/attention/attention_grouped.cu"
} // namespace rotating
#undef AF_E
#undef AF_G
#undef AF_WARPS
#undef AF_ROPE
#undef attention_grouped
#undef WARPS
#undef KEYS
#undef HALVES
#undef LINE
#undef RESIDENT
#define AF_E              64
#define AF_G              16
#define attention_grouped attention_grouped_16
namespace grouped_16
{
using namespace grouped_8;
#include "ops/attention/attention_grouped.cu"
} // namespace grouped_16
extern "C" {
__align__(16) thread_local u8 smem[1 << 18];
__align__(16) thread_local bf16 tile_memory[1 << 16];
}
#endif
