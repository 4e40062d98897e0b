/* gguf_rope.h - rope_freqs.weight: what each rotary frequency is divided by. */
#ifndef AF_GGUF_ROPE_H
#define AF_GGUF_ROPE_H

#include "model/arch/rope_table.h"

/* Of llama3 scaling, or of a rotation that leaves dimensions out (proportional): dim / 2 of them.
 */
void af_gguf_rope_factors(const af_rope_config *r, int dim, float *out);
#endif
