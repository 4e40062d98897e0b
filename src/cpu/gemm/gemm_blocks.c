/* gemm_blocks.c - a few rows of activations times rows of GGUF blocks: codes are widened to f32 in
 * registers. Where there are dot products of bytes, integers are multiplied instead (neon/, x86/).
 */
#include "cpu/gemm/gemm_blocks_widen.h"

enum { PAIRS = 2 }; /* of stored rows */

uint64_t AF_ISA_NAME(af_block_work)(int64_t values) { return widen_work(values); }

/* They are not rounded. */
void AF_ISA_NAME(af_block_prepare)(af_block_x *out, const float *x, int64_t M, int64_t K,
                                   bool rounded, void *work)
{
    (void)rounded;
    prepare_widen(out, x, M, K, work);
}

AF_INLINE void mul_rows(const af_block_x *x, af_dtype type, int64_t M, bool rounded, int P,
                        const uint8_t *w, int64_t bytes, float *out, int64_t ldo)
{
    (void)rounded;
    for (int r = 0; r < 2 * P; r++)
        widen_row(x, type, M, w + r * bytes, out + r, ldo);
}

#include "cpu/gemm/gemm_blocks_rows.h"
