/* host_kernels.h - the texts of the kernels. */
#ifndef AF_HOST_KERNELS_H
#define AF_HOST_KERNELS_H

#include "host/host_library.h"
#include "ops/common/fp8_codes.cuh"
#include "ops/optim/adam.cuh"
#include "ops/rope/rotate.cuh"

#define AF_PER 2
namespace optimizers
{
#include "ops/optim/optimizer.cu"
}
namespace factors
{
#include "ops/optim/adafactor.cu"
#undef WARPS
} // namespace factors
namespace minis
{
#include "ops/optim/adam_mini.cu"
#undef EACH_VALUE
} // namespace minis
namespace coded
{
#include "ops/optim/states_8bit.cu"
}
namespace frees
{
#include "ops/optim/schedule_free.cu"
}
#pragma push_macro("AF_VEC") /* of f32, whatever activations are */
#undef AF_VEC
#define AF_VEC 4
namespace stable
{
#include "ops/optim/stable_adamw.cu"
#undef EACH_VALUE
#pragma pop_macro("AF_VEC")
} // namespace stable
namespace lowrank
{
#include "ops/optim/lowrank/apollo.cu"
#undef EACH
#include "ops/optim/lowrank/galore.cu"
#undef EACH
#undef OWN
#undef TILE
#undef ROUNDED
#undef APART
} // namespace lowrank
#define AF_ROUND 0
#define KIND     nearest
#include "host/rounding_kernels.h"
#define AF_ROUND 1
#define KIND     stochastic
#include "host/rounding_kernels.h"
#define AF_ROUND 2
#define KIND     kahan
#include "host/rounding_kernels.h"
namespace norms
{
#include "ops/norm/rmsnorm.cu"
#undef ROW_LOOP
#undef EACH
} // namespace norms
namespace rows
{
#include "ops/general/softmax.cu"
#undef EACH
#define AF_U float
#include "ops/fakequant/fake_float.cu"
#include "ops/fakequant/ternary.cu"
} // namespace rows
namespace elements
{
#include "ops/general/cast.cu"
#include "ops/general/elementwise.cu"
} // namespace elements
#undef EACH
#include "host/clip_kernels.h"
#ifndef AF_W
#define AF_W AF_T
#endif
namespace attend
{
#include "ops/attention/attention_sink.cu"
#include "ops/rows/bounds_cut.cu"
#undef WARPS
} // namespace attend
namespace tokens
{
#include "ops/head/token_draw.cu"
#undef BINS
#undef NATS
#undef LIST
#undef DIGIT
#undef WANTS
#undef TOPS
} // namespace tokens
namespace losses
{
#include "ops/head/loss.cu"
}
#define AF_NORM 1
namespace ropes
{
#include "ops/rope/rope.cu"
thread_local float shared[1024];
} // namespace ropes
/* the same text for neighbours that turn together: C names must differ */
#pragma push_macro("AF_VEC")
#pragma push_macro("AF_PAIRS")
#undef AF_VEC
#undef AF_PAIRS
#define AF_VEC     1
#define AF_PAIRS   1
#define rope_fwd   pairs_fwd
#define rope_bwd   pairs_bwd
#define rope_query pairs_query
#define rope_dnorm pairs_dnorm
namespace pairs
{
#include "ops/rope/rope.cu"
thread_local float shared[1024];
} // namespace pairs
#undef rope_fwd
#undef rope_bwd
#undef rope_query
#undef rope_dnorm
#pragma pop_macro("AF_PAIRS")
#pragma pop_macro("AF_VEC")
#define NEAR 16 /* smaller, so that small cases are on either side */
namespace ofts
{
#include "ops/oft/oft.cu"
#undef TILE
#undef LEAST
#undef APART
#undef ROWS
#undef NEAR
#undef THREADS
#undef EACH
#undef LANES
#undef PITCH
#undef APART
} // namespace ofts
namespace routers
{
#include "ops/moe/moe_pick.cu"
#include "ops/moe/moe_real.cu"
#include "ops/moe/moe_route.cu"
#undef CHUNK
thread_local float shared[1024];
thread_local int sum[1024], next[1024];
#undef SPAN
} // namespace routers
namespace xielus
{
#include "ops/xielu/xielu.cu"
}
/* one text, four activations: C names must differ */
#define AF_ACT      0
#define moe_glu_bwd silu_moe_bwd
namespace moe_silu
{
#include "ops/glu/moe_glu.cu"
}
#undef AF_ACT
#undef moe_glu_bwd
#define AF_ACT      1
#define moe_glu_bwd gelu_tanh_moe_bwd
namespace moe_gelu_tanh
{
#include "ops/glu/moe_glu.cu"
}
#undef AF_ACT
#undef moe_glu_bwd
#define AF_ACT      2
#define moe_glu_bwd gelu_moe_bwd
namespace moe_gelu
{
#include "ops/glu/moe_glu.cu"
}
#undef AF_ACT
#undef moe_glu_bwd
#define AF_ACT      3
#define moe_glu_bwd relu_moe_bwd
namespace moe_relu
{
#include "ops/glu/moe_glu.cu"
}
#undef AF_ACT
#undef moe_glu_bwd
#define AF_ACT  0
#define glu_fwd silu_fwd
#define glu_bwd silu_bwd
namespace silu
{
#include "ops/glu/glu.cu"
}
#undef AF_ACT
#undef glu_fwd
#undef glu_bwd
#define AF_ACT  1
#define glu_fwd gelu_tanh_fwd
#define glu_bwd gelu_tanh_bwd
namespace gelu_tanh
{
#include "ops/glu/glu.cu"
}
#undef AF_ACT
#undef glu_fwd
#undef glu_bwd
#define AF_ACT  2
#define glu_fwd gelu_fwd
#define glu_bwd gelu_bwd
namespace gelu
{
#include "ops/glu/glu.cu"
}
#undef AF_ACT
#undef glu_fwd
#undef glu_bwd
#define AF_ACT  3
#define glu_fwd relu_fwd
#define glu_bwd relu_bwd
namespace relu
{
#include "ops/glu/glu.cu"
}
/* after the texts that have functions of these names */
namespace convs
{
#include "ops/state/conv.cu"
}
namespace softpluses
{
using namespace convs;
#include "ops/state/softplus.cu"
} // namespace softpluses
namespace gated
{
using namespace convs;
#include "ops/state/gated_norm.cu"
} // namespace gated
#define AF_MMA  (AF_VEC == 8) /* tensor cores in one of the builds */
#define AF_TILE 8
namespace scans
{
using namespace convs;
#include "ops/state/channel.cu"
#include "ops/state/scan.cu"
#include "ops/state/scan_bwd.cu"
thread_local float shared[1 << 15];
} // namespace scans
#define AF_NS 16
namespace selectives
{
#include "ops/selective/selective.cu"
#undef THREADS
#undef SPAN
} // namespace selectives
namespace codes8
{
#include "ops/linear/fp8_quant.cu"
#undef TINY
} // namespace codes8
/* mul.rn.ftz and add.rn.ftz of bnb_decode.cuh, whose operands are c, a and b */
static float flushed(const char *text, float a, float b)
{
    const auto flush = [](float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; };
    a = flush(a), b = flush(b);
    return flush(strstr(text, "mul") ? a * b : a + b);
}
#define asm(...) c = flushed(#__VA_ARGS__, a, b)
namespace weights
{
#include "ops/common/dequant.cu"
}
#undef asm
#endif
