/* ids_row.c - records of token ids: what carries loss is in their labels, or else in masks. */
#include "data/render/renderer.h"

static bool is_set(const json_t *mask, size_t i)
{
    const json_t *bit = mask ? json_array_get(mask, i) : NULL;
    return !bit || json_is_true(bit) || json_integer_value(bit) == 1;
}

/* Whether token `i` carries loss by masks. */
static bool in_masks(const af_conversation *t, size_t i)
{
    bool in = true;
    for (size_t k = 0; k < AF_LEN(t->mask); k++)
        in &= is_set(t->mask[k], i);
    return in;
}

af_status af_ids_row(af_renderer *s, af_row *out, const af_conversation *t, af_error *err)
{
    for (size_t i = 0; i < json_array_size(t->ids); i++) {
        const json_t *id = json_array_get(t->ids, i);
        const json_t *label = t->labels ? json_array_get(t->labels, i) : id;
        const json_int_t v = json_integer_value(id), l = json_integer_value(label);
        if (!json_is_integer(id) || v < 0 || v >= AF_TOKENIZER_ID_MAX)
            return af_fail(err, AF_EFORMAT, "input_ids[%zu] is not a token id", i);
        if (!json_is_integer(label) || (l != -100 && l != v))
            return af_fail(err, AF_EFORMAT,
                           "labels[%zu] is neither -100 nor input_ids[%zu], which is %lld", i, i,
                           (long long)v);
        const bool loss = t->labels ? l == v : in_masks(t, i);
        if (!is_set(t->seen, i)) /* padding */
            continue;
        const af_status st = af_row_add(out, (int32_t)v, loss, err);
        if (st != AF_OK)
            return st;
    }
    if (!s->tokenizer || !s->want_text)
        return AF_OK;
    return af_tokenizer_decode(s->tokenizer, &out->text, &out->len, out->ids, out->count, false,
                               err);
}
