/* rounding_kernels.h - optimizer_bf16.cu with AF_ROUND, its names with KIND; included once for
 * each. */
#define NAMED(before, kind, after) before##kind##after
#define NAME(before, kind, after)  NAMED(before, kind, after)
#define adam_bf16                  NAME(adam_, KIND, _bf16)
#define adam_8bit_bf16             NAME(adam_8bit_, KIND, _bf16)
#define galore_apply_bf16          NAME(galore_apply_, KIND, _bf16)
namespace NAME(, KIND, _bf16)
{
#include "ops/optim/optimizer_bf16.cu"
}
#undef AF_ROUND
#undef KIND
#undef NAMED
#undef NAME
#undef adam_bf16
#undef adam_8bit_bf16
#undef galore_apply_bf16
#undef STREAM
