/* fresh_weights.c - see fresh_weights.h.
 *
 * PreTrainedModel._init_weights of transformers: matrices and embeddings are normal with a standard
 * deviation of initializer_range, the padding row of an embedding and biases are 0, norms are the
 * identity. Tensors that families begin otherwise (positions, recurrences, sinks) are not known
 * here. */
#include "model/coded/fresh_weights.h"
#include "base/rng.h"

#include <string.h>

typedef enum fresh_kind { FRESH_UNKNOWN, FRESH_NORMAL, FRESH_ZERO, FRESH_NORM } fresh_kind;

static const fresh_kind kinds[AF_SLOT_COUNT] = {
    [AF_SLOT_ATTN_NORM] = FRESH_NORM,
    [AF_SLOT_POST_ATTN_NORM] = FRESH_NORM,
    [AF_SLOT_MLP_NORM] = FRESH_NORM,
    [AF_SLOT_POST_MLP_NORM] = FRESH_NORM,
    [AF_SLOT_Q_NORM] = FRESH_NORM,
    [AF_SLOT_K_NORM] = FRESH_NORM,
    [AF_SLOT_FINAL_NORM] = FRESH_NORM,
    [AF_SLOT_ATTN_NORM_BIAS] = FRESH_ZERO,
    [AF_SLOT_MLP_NORM_BIAS] = FRESH_ZERO,
    [AF_SLOT_FINAL_NORM_BIAS] = FRESH_ZERO,
    [AF_SLOT_QKV_BIAS] = FRESH_ZERO,
    [AF_SLOT_Q_BIAS] = FRESH_ZERO,
    [AF_SLOT_K_BIAS] = FRESH_ZERO,
    [AF_SLOT_V_BIAS] = FRESH_ZERO,
    [AF_SLOT_O_BIAS] = FRESH_ZERO,
    [AF_SLOT_GATE_BIAS] = FRESH_ZERO,
    [AF_SLOT_UP_BIAS] = FRESH_ZERO,
    [AF_SLOT_DOWN_BIAS] = FRESH_ZERO,
    [AF_SLOT_Q] = FRESH_NORMAL,
    [AF_SLOT_K] = FRESH_NORMAL,
    [AF_SLOT_V] = FRESH_NORMAL,
    [AF_SLOT_QKV] = FRESH_NORMAL,
    [AF_SLOT_O] = FRESH_NORMAL,
    [AF_SLOT_GATE] = FRESH_NORMAL,
    [AF_SLOT_UP] = FRESH_NORMAL,
    [AF_SLOT_GATE_UP] = FRESH_NORMAL,
    [AF_SLOT_DOWN] = FRESH_NORMAL,
    [AF_SLOT_ROUTER] = FRESH_NORMAL,
    [AF_SLOT_EXPERTS_GATE_UP] = FRESH_NORMAL,
    [AF_SLOT_EXPERTS_DOWN] = FRESH_NORMAL,
    [AF_SLOT_SHARED_GATE] = FRESH_NORMAL,
    [AF_SLOT_SHARED_UP] = FRESH_NORMAL,
    [AF_SLOT_SHARED_GATE_UP] = FRESH_NORMAL,
    [AF_SLOT_SHARED_DOWN] = FRESH_NORMAL,
    [AF_SLOT_SHARED_ROUTER] = FRESH_NORMAL,
    [AF_SLOT_Q_A] = FRESH_NORMAL,
    [AF_SLOT_Q_B] = FRESH_NORMAL,
    [AF_SLOT_KV_A] = FRESH_NORMAL,
    [AF_SLOT_KV_B] = FRESH_NORMAL,
    [AF_SLOT_Q_A_NORM] = FRESH_NORM,
    [AF_SLOT_KV_A_NORM] = FRESH_NORM,
    [AF_SLOT_Q_A_BIAS] = FRESH_ZERO,
    [AF_SLOT_KV_A_BIAS] = FRESH_ZERO,
    [AF_SLOT_ROUTER_BIAS] = FRESH_ZERO,
    [AF_SLOT_ROUTER_CHOICE] = FRESH_ZERO,
    [AF_SLOT_HEAD_BIAS] = FRESH_ZERO,
    [AF_SLOT_EMBED] = FRESH_NORMAL,
    [AF_SLOT_HEAD] = FRESH_NORMAL,
};

af_status af_fresh_check(const af_model_spec *s, af_error *err)
{
    /* o_proj of nanochat and the embedding of youtu have spreads of their own */
    const bool own =
        strcmp(s->arch->model_type, "nanochat") == 0 || strcmp(s->arch->model_type, "youtu") == 0;
    for (int i = 0; i < s->tensors; i++)
        if (own || (kinds[s->tensor[i].slot] == FRESH_UNKNOWN && !s->tensor[i].buffer))
            return af_fail(err, AF_EUNSUPPORTED,
                           "the first values of '%s' of a %s model are not known",
                           s->tensor[i].name, s->arch->model_type);
    return AF_OK;
}

void af_fresh_rows(const af_model_spec *s, int tensor, double spread, uint64_t seed, int64_t from,
                   int64_t n, int64_t columns, float *out)
{
    const fresh_kind kind = kinds[s->tensor[tensor].slot];
    /* LayerNorm1P of nemotron begins with 1 + 1 */
    const bool from_zero =
        s->arch->norm_plus_one && !s->arch->layer_norm &&
        !(s->arch->final_norm_whole && s->tensor[tensor].slot == AF_SLOT_FINAL_NORM);
    const float constant = kind == FRESH_NORM && !from_zero ? 1.0f : 0.0f;
    const uint64_t first = (uint64_t)(from * columns);
    for (int64_t i = 0; i < n * columns; i++)
        out[i] = kind == FRESH_NORMAL
                     ? (float)(spread * af_rng_normal(seed, (uint64_t)tensor, first + (uint64_t)i))
                     : constant;
    const int64_t pad = tensor == s->embed ? s->padding_row - from : -1;
    if (pad >= 0 && pad < n)
        memset(out + pad * columns, 0, (size_t)columns * sizeof *out);
}
