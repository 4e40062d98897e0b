/* gemm_blocks.c - a few rows of activations times rows of GGUF blocks: codes are widened to f32 in
 * registers. Where there are dot products of bytes, integers are multiplied instead (neon/, x86/).
 */
#include "cpu/gemm/gemm_blocks_widen.h"

uint64_t AF_ISA_NAME(af_block_work)(int64_t values) { return widen_work(values); }

/* They are not rounded. */
void AF_ISA_NAME(af_block_prepare)(af_block_x *out, const float *x, int64_t M, int64_t K,
                                   bool rounded, void *work)
{
    (void)rounded;
    prepare_widen(out, x, M, K, work);
}

void AF_ISA_NAME(af_block_rows)(const af_block_x *x, af_dtype type, const uint8_t *w, int64_t rows,
                                float *out, int64_t ldo)
{
    widen_rows(x, type, w, rows, out, ldo);
}
