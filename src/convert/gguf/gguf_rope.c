/* gguf_rope.c - see gguf_rope.h. */
#include "convert/gguf/gguf_rope.h"

#include <math.h>

/* What llama3 scaling divides each frequency by: in float and in the order of llama.cpp's
 * converter, where a number divided by a tensor is the tensor's reciprocal times the number. */
static void llama3_factors(const af_rope_config *r, int dim, float *out)
{
    const double old = (double)r->original_max_position_embeddings;
    const double low = old / r->low_freq_factor, high = old / r->high_freq_factor;
    for (int i = 0; i < dim / 2; i++) {
        const float share = (float)(2 * i) / (float)dim;
        const float freq = 1.0f / (float)pow((double)(float)r->theta, (double)share);
        const float wave = 1.0f / freq * (float)(2 * 3.14159265358979323846);
        const float smooth = (1.0f / wave * (float)old - (float)r->low_freq_factor) /
                             (float)(r->high_freq_factor - r->low_freq_factor);
        out[i] = (double)wave < high  ? 1.0f
                 : (double)wave > low ? (float)r->factor
                                      : 1.0f / ((1.0f - smooth) / (float)r->factor + smooth);
    }
}

/* A frequency divided by this does not rotate. */
static const float STILL = 1e30f;

static void proportional_factors(const af_rope_config *r, int dim, float *out)
{
    const int turned = (int)(r->partial_rotary_factor * dim / 2);
    for (int i = 0; i < dim / 2; i++)
        out[i] = i < turned ? 1.0f : STILL;
}

void af_gguf_rope_factors(const af_rope_config *r, int dim, float *out)
{
    (r->type == AF_ROPE_PROPORTIONAL ? proportional_factors : llama3_factors)(r, dim, out);
}
