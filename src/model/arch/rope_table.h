/* rope_table.h - rotary frequencies: inv_freq and the scale of cos and sin for every rope type,
 * computed step by step in float32 as transformers does. */
#ifndef AF_ROPE_TABLE_H
#define AF_ROPE_TABLE_H

#include "format/config/hf_config.h"

/* Fills inv_freq[rope_dim / 2], rounded up for an odd part of a head (default type only), for a
 * batch whose largest position is length - 1 (dynamic and longrope depend on it). `max_positions`
 * is the config's max_position_embeddings. */
void af_rope_inv_freq(float *inv_freq, const af_rope_config *c, int rope_dim, int64_t max_positions,
                      int64_t length);
/* What cos and sin are multiplied with. */
double af_rope_scale(const af_rope_config *c);
/* The vector of a position that xglm adds: sines of all frequencies, then cosines. */
void af_sinusoids(float *row, int64_t width, int64_t at);

/* True when inv_freq changes with the length of the batch. */
bool af_rope_depends_on_length(const af_rope_config *c);
#endif
