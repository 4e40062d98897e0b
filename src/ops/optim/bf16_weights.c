/* bf16_weights.c - see bf16_weights.h. */
#include "ops/optim/bf16_weights.h"
#include "base/rng.h"
#include "ops/common/twin.h"
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"
#include "tensor/half.h"

static uint64_t stream_of(const af_node *n)
{
    return AF_ROUNDING_STREAM + (uint64_t)af_ld(af_optim_in(n).hyper, AF_HYPER_STEP);
}

static uint16_t cut(float x, uint32_t r)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000u) == 0x7f800000u) /* infinite or NaN: nothing to choose */
        return af_bf16_down(x);
    return (uint16_t)((bits + r) >> 16);
}

void af_bf16_weights_load(const af_node *n, int64_t i, int64_t count, float *out)
{
    const af_optim_inputs in = af_optim_in(n);
    const uint16_t *w = (const uint16_t *)in.params->data + i;
    const uint16_t *rest = in.rest ? (const uint16_t *)in.rest->data + i : NULL;
    for (int64_t k = 0; k < count; k++)
        out[k] = af_bf16_up(w[k]);
    for (int64_t k = 0; rest && k < count; k++)
        out[k] += af_bf16_up(rest[k]);
}

void af_bf16_weights_store(const af_node *n, int64_t i, int64_t count, const float *x)
{
    const af_optim_inputs in = af_optim_in(n);
    uint16_t *w = (uint16_t *)in.params->data + i;
    assert(count <= AF_BF16_RUN && (i + n->attr.optim.from) % 8 == 0);
    if (n->attr.optim.rounding == AF_ROUNDING_STOCHASTIC) {
        uint32_t r[AF_BF16_RUN / 2];
        const uint64_t first = (uint64_t)(i + n->attr.optim.from);
        af_rng_words(r, n->attr.optim.seed, stream_of(n), first / 8, ((uint64_t)count + 7) / 8);
        for (int64_t k = 0; k < count; k++)
            w[k] = cut(x[k], (k & 1 ? r[k / 2] >> 16 : r[k / 2]) & 0xffff);
        return;
    }
    for (int64_t k = 0; k < count; k++)
        w[k] = af_bf16_down(x[k]);
    uint16_t *rest = in.rest ? (uint16_t *)in.rest->data + i : NULL;
    for (int64_t k = 0; rest && k < count; k++)
        rest[k] = af_bf16_down(x[k] - af_bf16_up(w[k]));
}

double af_bf16_weight(const af_node *n, int64_t i)
{
    const af_optim_inputs in = af_optim_in(n);
    return af_ld(in.params, i) + (in.rest ? af_ld(in.rest, i) : 0);
}

void af_bf16_weight_set(const af_node *n, int64_t i, double value)
{
    const af_optim_inputs in = af_optim_in(n);
    const float x = (float)value;
    if (n->attr.optim.rounding == AF_ROUNDING_STOCHASTIC) {
        const uint64_t at = (uint64_t)(i + n->attr.optim.from);
        const uint32_t r = af_rng_u32(n->attr.optim.seed, stream_of(n), at / 2);
        ((uint16_t *)in.params->data)[i] = cut(x, (at & 1 ? r >> 16 : r) & 0xffff);
        return;
    }
    af_st(in.params, i, x);
    if (in.rest)
        af_st(in.rest, i, x - af_ld(in.params, i));
}
