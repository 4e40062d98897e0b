/* rope_table.c - the formulas of transformers' rope types, with its float32 roundings.
 *
 * Powers are computed in double and rounded once; everything after that is float32 arithmetic in
 * the order transformers does it. */
#include "model/arch/rope_table.h"

#include <math.h>

#define PI 3.14159265358979323846

/* base ^ (2i / dim) as torch computes it: the exponent is a float32. */
static float power(double base, int i, int dim)
{
    const float e = (float)(2 * i) / (float)dim;
    return (float)pow((double)(float)base, (double)e);
}

static void plain(float *f, double base, int dim)
{
    for (int i = 0; i < (dim + 1) / 2; i++)
        f[i] = 1.0f / power(base, i, dim);
}

/* Frequencies whose wave is longer than the original context are divided by the factor; those in
 * between are blended. */
static void llama3(float *f, const af_rope_config *c, int dim)
{
    const double old = (double)c->original_max_position_embeddings;
    const float low = (float)(old / c->low_freq_factor), high = (float)(old / c->high_freq_factor);
    const float factor = (float)c->factor, low_factor = (float)c->low_freq_factor;
    const float spread = (float)(c->high_freq_factor - c->low_freq_factor);
    for (int i = 0; i < dim / 2; i++) {
        const float wave = (float)(2 * PI) / f[i];
        if (wave > low) {
            f[i] = f[i] / factor;
        } else if (!(wave < high) && spread > 0) {
            const float smooth = ((float)old / wave - low_factor) / spread;
            f[i] = (1.0f - smooth) * f[i] / factor + smooth * f[i];
        }
    }
}

static double correction_dim(double rotations, int dim, double base, double length)
{
    return dim * log(length / (rotations * 2 * PI)) / (2 * log(base));
}

/* YaRN (Peng et al. 2023, eq. 23): a ramp between interpolated and original frequencies. */
static void yarn(float *f, const af_rope_config *c, int dim)
{
    const double old = (double)c->original_max_position_embeddings;
    double low = correction_dim(c->beta_fast, dim, c->theta, old);
    double high = correction_dim(c->beta_slow, dim, c->theta, old);
    if (c->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = low > 0 ? low : 0;
    high = high < dim - 1 ? high : dim - 1;
    if (low == high)
        high += 0.001; /* no division by zero */
    for (int i = 0; i < dim / 2; i++) {
        float ramp = ((float)i - (float)low) / (float)(high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        const float keep = 1.0f - ramp, p = power(c->theta, i, dim);
        f[i] = 1.0f / ((float)c->factor * p) * (1.0f - keep) + 1.0f / p * keep;
    }
}

static void longrope(float *f, const af_rope_config *c, int dim, int64_t length)
{
    const bool is_long = length > c->original_max_position_embeddings;
    const double *factor = is_long ? c->long_factor : c->short_factor;
    for (int i = 0; i < dim / 2; i++)
        f[i] = 1.0f / ((float)factor[i] * power(c->theta, i, dim));
}

/* Part of the head keeps its place: zero frequencies over the whole head, not a shorter rotation.
 */
static void proportional(float *f, const af_rope_config *c, int dim)
{
    const int angles = (int)floor(c->partial_rotary_factor * dim / 2);
    for (int i = 0; i < dim / 2; i++)
        f[i] = i < angles ? 1.0f / power(c->theta, i, dim) / (float)c->factor : 0.0f;
}

void af_rope_inv_freq(float *f, const af_rope_config *c, int dim, int64_t max_positions,
                      int64_t length)
{
    double base = c->theta;
    if (c->type == AF_ROPE_DYNAMIC && length > max_positions && dim > 2)
        base *= pow(c->factor * (double)length / (double)max_positions - (c->factor - 1),
                    (double)dim / (dim - 2));
    plain(f, base, dim);
    if (c->type == AF_ROPE_LLAMA3)
        llama3(f, c, dim);
    else if (c->type == AF_ROPE_YARN)
        yarn(f, c, dim);
    else if (c->type == AF_ROPE_LONGROPE)
        longrope(f, c, dim, length);
    else if (c->type == AF_ROPE_PROPORTIONAL)
        proportional(f, c, dim);
    for (int i = 0; i < dim / 2; i++) {
        if (c->type == AF_ROPE_LINEAR)
            f[i] /= (float)c->factor;
        if (c->freq_factor)
            f[i] /= (float)c->freq_factor[i];
        if (c->reverse)
            f[i] = -f[i];
    }
}

static double mscale(double factor, double by)
{
    return factor <= 1 ? 1 : 0.1 * by * log(factor) + 1;
}

double af_rope_scale(const af_rope_config *c)
{
    const double old = (double)c->original_max_position_embeddings;
    if (c->type != AF_ROPE_YARN && c->type != AF_ROPE_LONGROPE)
        return 1;
    if (c->attention_factor > 0)
        return c->attention_factor;
    if (c->type == AF_ROPE_LONGROPE)
        return c->factor <= 1 ? 1 : sqrt(1 + log(c->factor) / log(old));
    if (c->mscale > 0 && c->mscale_all_dim > 0)
        return mscale(c->factor, c->mscale) / mscale(c->factor, c->mscale_all_dim);
    return mscale(c->factor, 1);
}

void af_sinusoids(float *row, int64_t width, int64_t at)
{
    const int64_t half = width / 2;
    const float step = (float)(log(10000.0) / (double)AF_MAX(half - 1, 1));
    row[width - 1] = 0; /* of an odd width */
    for (int64_t i = 0; i < half; i++) {
        const float angle = (float)at * (float)exp((double)((float)i * -step));
        row[i] = (float)sin((double)angle);
        row[half + i] = (float)cos((double)angle);
    }
}

bool af_rope_depends_on_length(const af_rope_config *c)
{
    return c->type == AF_ROPE_DYNAMIC || c->type == AF_ROPE_LONGROPE;
}
