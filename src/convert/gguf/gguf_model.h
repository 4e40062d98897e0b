/* gguf_model.h - a whole model into one GGUF file of any mix. */
#ifndef AF_GGUF_MODEL_H
#define AF_GGUF_MODEL_H

#include "afinar/convert.h"
#include "convert/quantize/imatrix.h"
#include "convert/quantize/quant_mix.h"
#include "model/model_reader.h"

typedef struct af_gguf_model_opts {
    af_mix mix;
    bool pure;
    bool keep_mxfp4;           /* experts that are stored so and not changed stay so */
    const af_imatrix *imatrix; /* NULL = none */
    /* Fills `imatrix`, which may take hours: called after what the file cannot hold was refused.
     * NULL = it is filled. */
    af_status (*collect)(void *user, af_error *err);
    void *user;
    const char *imatrix_file; /* named in the metadata; NULL = not kept */
    int threads;
} af_gguf_model_opts;

/* `in` may carry an adapter, which is merged in f32. */
AF_CHECKED af_status af_gguf_model_write(af_convert_report **report, af_model_reader *in,
                                         const char *out, const af_gguf_model_opts *o,
                                         af_error *err);
#endif
