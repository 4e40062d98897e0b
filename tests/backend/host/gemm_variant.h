/* gemm_variant.h - gemm_tiles.cu with one list of defines, as function NAME of namespace in_NAME.
 * No guard: included once per variant, with NAME and the defines set, which it removes. */
#define IN_(name)  in_##name
#define IN(name)   IN_(name)
#define gemm_tiles NAME
#define asm           /* the half type's instruction: not used */
#define volatile(...) /* its text */
namespace IN(NAME)
{
#include "backend/cuda/gemm_tiles.cu"
}
#undef asm
#undef volatile
#undef IN_
#undef IN
#undef gemm_tiles
#undef NAME
#undef AF_BM
#undef AF_BN
#undef AF_WM
#undef AF_WN
#undef AF_STAGES
#undef AF_TA
#undef AF_TB
#undef AF_C
#undef THREADS
#undef INNER
#undef STAGES
#undef ROW_PITCH
#undef HELD
#undef A_TILE
#undef STAGE
#undef MI
#undef NJ
#undef RESIDENT
