/* alibi.c - see alibi.h. */
#include "model/arch/alibi.h"

#include <math.h>

enum { COLUMN_STEP = 8 }; /* what rows of a head are a multiple of, for tensor cores */

double af_alibi_slope(int head, int heads, double max)
{
    int below = 1;
    while (below * 2 <= heads)
        below *= 2;
    const double n = head < below ? head + 1 : head - below + 0.5;
    return exp2(-max * n / below);
}

int af_alibi_pieces(const af_model_spec *s) { return s->alibi_kind == AF_ALIBI_ROUNDED ? 1 : 3; }

static int group(const af_model_spec *s) { return s->heads / s->kv_heads; }

int af_alibi_columns(const af_model_spec *s)
{
    const int used = (group(s) + 1) * af_alibi_pieces(s);
    return s->alibi > 0 ? (used + COLUMN_STEP - 1) / COLUMN_STEP * COLUMN_STEP : 0;
}

void af_alibi_factors(const af_model_spec *s, float *factor)
{
    const bool rounded = s->alibi_kind == AF_ALIBI_ROUNDED;
    for (int h = 0; h < s->heads; h++) {
        const double slope = af_alibi_slope(h, s->heads, s->alibi);
        factor[h] = rounded ? af_f32_from_bf16(af_bf16_from_f32((float)slope))
                            : (float)(slope / s->attn_scale);
    }
}

void af_alibi_picks(const af_model_spec *s, float *pick)
{
    const int G = group(s), columns = G * af_alibi_pieces(s);
    for (int h = 0; h < s->heads; h++)
        for (int c = 0; c < columns; c++)
            pick[h * columns + c] = c % G == h % G ? 1.0f : 0.0f;
}
