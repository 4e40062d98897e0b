/* model_input.h - a model as the converters read it: a list of tensors with Hugging Face names
 * whose rows come out as f32, whatever the file is.
 *
 * A folder gives its own tensors, of any architecture; a GGUF file gives those of its spec, rows
 * unpermuted. An adapter can be laid over it: then the rows are those of the merged model, computed
 * in f32. Views may be read by several threads at once. */
#ifndef AF_MODEL_INPUT_H
#define AF_MODEL_INPUT_H

#include "base/pool.h"
#include "format/weights/bnb_state.h"
#include "model/adapter.h"
#include "model/load.h"

typedef struct af_given_tensor {
    const char *name;
    int ndim;
    int64_t dim[AF_WEIGHT_NDIM_MAX];
    af_dtype dtype;          /* the plain type its values fit: as stored, or before quantisation */
    bool quantised;          /* stored in blocks or packed by bitsandbytes */
    const af_stored *stored; /* folders */
    int spec;                /* GGUF: the spec's tensor, */
    int64_t spec_row;        /* and where this one begins in it */
} af_given_tensor;

typedef struct af_given {
    char *path;
    af_weights *weights;
    af_source *source; /* GGUF, or when an adapter needs the spec; else NULL */
    af_hf_config config;
    bool has_config;
    af_given_tensor *tensor;
    int count;
    af_adapter *adapter; /* owned; NULL = none */
    const char *texts;   /* the folder of the chat template: a single adapter's, which was trained
                            with that, or NULL: the model's own */
    const char *tokens;  /* the same of the tokenizer */
    int adapters_read;
    bool any_quantised;
    bool odd_said; /* that a value is not finite */
    bool untied;   /* the adapter has an embedding or head of its own */
    bool may_resize;
    bool resized; /* the adapter has another vocabulary: config, tensors and `wide` have that */
    af_model_spec wide;
    af_arena arena;
} af_given;

/* `model`: a folder, a .gguf file, org/name of the cache, or any of these + "+ADAPTER". */
AF_CHECKED af_status af_given_open(af_given **out, const char *model, af_error *err);
void af_given_close(af_given *in); /* NULL is allowed */
/* NULL when there is no such tensor. */
const af_given_tensor *af_given_find(const af_given *in, const char *name);
bool af_given_same_shape(const af_given_tensor *a, const af_given_tensor *b);
bool af_given_is_gguf(const af_given *in);
/* The spec of the model, made at first use. Borrowed. */
AF_CHECKED af_status af_given_spec(af_given *in, const af_model_spec **out, af_error *err);
/* Reads an adapter for this model, which is untied where the adapter asks for it: read all adapters
 * before anything else of the spec is kept. */
AF_CHECKED af_status af_given_read_adapter(af_given *in, const char *dir, af_adapter **out,
                                           af_error *err);
/* Lays an adapter over the model and owns it from now on (it must be of af_given_spec). */
void af_given_set_adapter(af_given *in, af_adapter *a);

static inline int64_t af_given_cols(const af_given_tensor *t)
{
    return t->ndim ? t->dim[t->ndim - 1] : 1;
}
static inline int64_t af_given_values(const af_given_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->dim[i];
    return n;
}
static inline int64_t af_given_height(const af_given_tensor *t)
{
    return af_given_values(t) / (af_given_cols(t) ? af_given_cols(t) : 1);
}

/* One tensor being read. */
typedef struct af_given_view {
    af_given *in;
    const af_given_tensor *t;
    bool packed;
    af_bnb_state state;
    float *absmax;                   /* of a packed one */
    const af_adapter_module *module; /* the adapter's part of this tensor, or NULL */
    const float *saved;              /* modules_to_save, or NULL */
    bool embedding;                  /* the module is the embedding */
} af_given_view;

AF_CHECKED af_status af_given_view_open(af_given_view *v, af_given *in, const af_given_tensor *t,
                                        af_error *err);
/* Its pages may leave memory. */
void af_given_view_close(af_given_view *v);
/* Rows [from, from + n) as f32 (a vector is one row; scalars too). */
void af_given_view_rows(const af_given_view *v, int64_t from, int64_t n, float *out);
/* True when a tensor's values are its stored bytes, which may then be copied. */
bool af_given_view_is_plain(const af_given_view *v);
/* No value of these rows (`rows` are what af_given_view_rows gave), or of all, is NaN or infinite.
 */
bool af_given_rows_finite(const af_given_view *v, int64_t from, int64_t n, const float *rows);
bool af_given_view_finite(const af_given_view *v);
#endif
