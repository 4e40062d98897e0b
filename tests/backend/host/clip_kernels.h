/* clip_kernels.h - elementwise.cu with AF_CLIP; its names begin with clip_. */
#define AF_CLIP        1
#define binary_rows    clip_binary_rows
#define binary_any     clip_binary_any
#define copy_any       clip_copy_any
#define unary          clip_unary
#define unary_bwd      clip_unary_bwd
#define fill           clip_fill
#define dropout        clip_dropout
#define sum_parts      clip_sum_parts
#define sum_columns    clip_sum_columns
#define reduce_parts   clip_reduce_parts
#define reduce_max     clip_reduce_max
#define reduce_spread  clip_reduce_spread
#define reduce_max_bwd clip_reduce_max_bwd
namespace clipped
{
#include "ops/general/elementwise.cu"
}
#undef AF_CLIP
#undef EACH
#undef binary_rows
#undef binary_any
#undef copy_any
#undef unary
#undef unary_bwd
#undef fill
#undef dropout
#undef sum_parts
#undef sum_columns
#undef reduce_parts
#undef reduce_max
#undef reduce_spread
#undef reduce_max_bwd
