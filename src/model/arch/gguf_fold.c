/* gguf_fold.c - see gguf_fold.h. */
#include "model/arch/gguf_fold.h"

static double factor_of(const af_model_spec *s, af_slot slot)
{
    const af_mup_keys *m = &s->mup;
    switch (slot) {
    case AF_SLOT_Q:
    case AF_SLOT_V:
        return m->attn_in;
    case AF_SLOT_K:
        return m->attn_in * m->key;
    case AF_SLOT_K_BIAS:
        return m->key;
    case AF_SLOT_O:
        return m->attn_out;
    case AF_SLOT_OUT:
        return m->ssm_out;
    case AF_SLOT_GATE:
    case AF_SLOT_GATE_BIAS:
        return m->gate;
    case AF_SLOT_DOWN:
    case AF_SLOT_DOWN_BIAS:
        return m->down;
    case AF_SLOT_EMBED:
        return s->embed_scale;
    case AF_SLOT_HEAD:
        return m->head;
    default:
        return 1;
    }
}

af_gguf_fold af_gguf_fold_of(const af_model_spec *s, const af_tensor_spec *t)
{
    const af_state_keys *k = &s->state;
    const int64_t values = k->heads * k->head_dim, keys = k->key_heads * k->key_dim;
    const int64_t width[AF_MUP_PARTS] = {values, values, keys, keys, k->heads};
    af_gguf_fold f = {0};
    bool any = false;
    if (!s->mup.given)
        return f;
    const bool parts = t->slot == AF_SLOT_IN;
    const int count = parts ? AF_MUP_PARTS : 1;
    for (int i = 0; i < count; i++) {
        f.end[i] = parts ? (i ? f.end[i - 1] : 0) + width[i] : t->dim[0];
        f.by[i] = parts ? s->mup.ssm_in * s->mup.ssm[i] : factor_of(s, t->slot);
        any |= f.by[i] != 1;
    }
    f.count = any ? count : 0;
    return f;
}

double af_gguf_fold_by(const af_gguf_fold *f, int64_t r)
{
    int i = 0;
    while (i + 1 < f->count && r >= f->end[i])
        i++;
    return f->count ? f->by[i] : 1;
}

void af_gguf_fold_to_file(const af_gguf_fold *f, float *rows, int64_t from, int64_t n, int64_t cols)
{
    for (int64_t i = 0; f->count && i < n * cols; i++)
        rows[i] = (float)(rows[i] * af_gguf_fold_by(f, from + i / cols));
}

void af_gguf_fold_from_file(const af_gguf_fold *f, float *rows, int64_t from, int64_t n,
                            int64_t cols)
{
    for (int64_t i = 0; f->count && i < n * cols; i++)
        rows[i] = (float)(rows[i] / af_gguf_fold_by(f, from + i / cols));
}
