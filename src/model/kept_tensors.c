/* kept_tensors.c - see kept_tensors.h. */
#include "model/kept_tensors.h"

/* The next one from i on, or NULL. */
static const af_stored *next(const af_model_reader *r, int *i)
{
    while (*i < af_weights_count(r->weights)) {
        const af_stored *t = af_weights_at(r->weights, (*i)++);
        if (af_model_reader_keeps(r, t->name))
            return t;
    }
    return NULL;
}

af_status af_kept_tensors_add(const af_model_reader *r, af_safetensors_writer *w, af_error *err)
{
    af_status st = AF_OK;
    int i = 0;
    for (const af_stored *t; st == AF_OK && (t = next(r, &i));)
        st = af_safetensors_writer_add(w, t->name, t->dtype, t->dim, t->ndim, err);
    return st;
}

af_status af_kept_tensors_write(const af_model_reader *r, af_safetensors_writer *w, af_error *err)
{
    af_status st = AF_OK;
    int i = 0;
    for (const af_stored *t; st == AF_OK && (t = next(r, &i));)
        st = af_safetensors_writer_data(w, t->data, t->bytes, err);
    return st;
}
