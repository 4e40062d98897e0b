/* model_reader.h - a model on disk, a folder or a GGUF file: its config, its tensors, their values.
 *
 * One reader serves loading, merging, export, quantisation and inspection. It has two lists:
 *
 *     tensor[]            by Hugging Face name: what a folder stores, of any architecture, or what
 *                         the spec of a GGUF file has. af_model_reader_open_list fills it.
 *     the spec's tensors  by index, checked against what is stored: af_model_reader_match.
 *
 * Values come as rows of f32, whatever the file has (plain types, blocks, bitsandbytes, codes of
 * other tools; rows that GGUF interleaves in Hugging Face order), or as the stored bytes. An
 * adapter can be laid over the model: then the rows are those of the merged model, computed in f32.
 * Rows may be read by several threads at once. */
#ifndef AF_MODEL_READER_H
#define AF_MODEL_READER_H

#include "model/adapter.h"
#include "model/coded/bnb_weight.h"
#include "model/coded/coded_weight.h"

/* Of a norm that GGUF stores as 1 + w: f32s to add to what is read, for the bits the sum lost. */
#define AF_GGUF_REST_KEY "afinar.norm_rest."

typedef struct af_model_tensor {
    const char *name;
    int ndim;
    int64_t dim[AF_WEIGHT_NDIM_MAX];
    af_dtype dtype;          /* the plain type its values fit: as stored, or before quantisation */
    const af_stored *stored; /* folders; NULL for GGUF files */
    int spec;                /* GGUF: the spec's tensor, */
    int64_t spec_row;        /* and where this one begins in it */
} af_model_tensor;

typedef struct af_tensor_layout af_tensor_layout; /* tensor_layout.h */

/* Fields are for reading; only the files of the reader change them. */
typedef struct af_model_reader {
    char *path;
    af_weights *weights;
    af_hf_config config; /* as on disk; with the vocabulary of the adapter once it is resized */
    bool has_config;
    af_model_tensor *tensor;
    int count;
    bool any_quantised; /* a tensor is stored in blocks or as codes */

    af_adapter *adapter; /* owned; NULL = none */
    /* The folders of chat template and tokenizer where a single adapter was trained with its own;
     * NULL: the model's. */
    const char *template_dir, *tokenizer_dir;
    int adapters_read;
    bool untie;    /* a tied head is a tensor of its own: set before matching, or by an adapter */
    bool headless; /* before matching: the head may be missing; after it: it is missing */
    /* Set before matching: */
    int64_t vocab;             /* rows of embedding and head when more than are stored; 0 = those */
    af_weights *vocab_weights; /* an adapter's, owned: its whole embedding and head are read */
    bool train_base;           /* weights that are rounded when they are used come as stored */
    bool no_values;            /* rows that are not stored are zeros: nothing is read */
    const struct af_rope_change *rope; /* other rotary positions, or NULL; borrowed */
    int64_t labels;                    /* a head `score` of so many rows; 0 = as the model is */
    uint64_t label_seed;               /* of its first values, where the model has none */
    bool keep_tied;                    /* set by who reads adapters to write adapters, */
    bool peft_only;                    /* and of PEFT: a tied head may have one of its own */
    bool may_resize; /* set by who can write another vocabulary, or another head */
    bool resized;    /* the adapter has another vocabulary: config, tensors and spec have that */
    bool warned_nonfinite;

    /* After matching. */
    bool matched;
    bool head_copied;        /* untie: the head has the values of the embedding */
    bool new_labels;         /* the model has no `score`: it is made */
    bool head_only;          /* the tied embedding is stored under the head's name */
    int64_t stored_vocab;    /* the config's vocab_size on disk */
    const char *prefix;      /* what the arch's stem is called in this folder, */
    const char *head_before; /* and what comes before the head's name */
    af_model_spec spec;      /* as stored */
    af_model_spec new_vocab; /* when resized */
    af_tensor_layout *layout;
    af_arena arena;
} af_model_reader;

/* For loading: `path` is resolved already; nothing is read before af_model_reader_match. */
AF_CHECKED af_status af_model_reader_open(af_model_reader **out, const char *path, af_error *err);
/* For conversion: `model` is a folder, a .gguf file, org/name of the cache, or any of these +
 * "+ADAPTER". Lists the tensors; a folder need not be of a known architecture. */
AF_CHECKED af_status af_model_reader_open_list(af_model_reader **out, const char *model,
                                               af_error *err);
/* The same with an adapter of a PEFT folder laid over it; NULL = none. */
AF_CHECKED af_status af_model_reader_open_merged(af_model_reader **out, const char *model,
                                                 const char *adapter, af_error *err);
void af_model_reader_close(af_model_reader *r); /* NULL is allowed */
/* Makes the spec and checks every name and shape, at first use. */
AF_CHECKED af_status af_model_reader_match(af_model_reader *r, af_error *err);
/* After matching. Borrowed. */
const af_model_spec *af_model_reader_spec(const af_model_reader *r);
bool af_model_reader_is_gguf(const af_model_reader *r);
/* A Hugging Face name as this folder spells it, and the reverse. After matching. */
void af_model_reader_disk_name(const af_model_reader *r, const char *name, char *out, size_t size);
/* A stored tensor that is none of the text model's and stays as it is: see kept_tensors.h. */
bool af_model_reader_keeps(const af_model_reader *r, const char *stored);
void af_model_reader_own_name(const af_model_reader *r, const char *stored, char *out, size_t size);

/* Reads an adapter for this model, which is untied where the adapter asks for it: read all adapters
 * before anything else of the spec is kept. */
AF_CHECKED af_status af_model_reader_read_adapter(af_model_reader *r, const char *dir,
                                                  af_adapter **out, af_error *err);
/* Lays an adapter over the model and owns it from now on (it must be of af_model_reader_spec). */
void af_model_reader_set_adapter(af_model_reader *r, af_adapter *a);

/* Rows [from, from + n) of tensor i of the spec, as stored, without the adapter; a vector is one
 * row. */
void af_model_reader_rows(const af_model_reader *r, int tensor, int64_t from, int64_t n,
                          float *out);
/* The same with the adapter. */
void af_model_reader_merged_rows(const af_model_reader *r, int tensor, int64_t from, int64_t n,
                                 float *out);
/* The pages of a tensor of the spec may leave memory. */
void af_model_reader_forget(const af_model_reader *r, int tensor);

/* ---- listed tensors ---- */

/* NULL when there is no such tensor. */
const af_model_tensor *af_model_reader_find(const af_model_reader *r, const char *name);
bool af_model_tensor_same_shape(const af_model_tensor *a, const af_model_tensor *b);

static inline int64_t af_model_tensor_values(const af_model_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->dim[i];
    return n;
}
/* Of a vector with more axes around it, as af_disk_has_axes says, all values. */
static inline int64_t af_model_tensor_cols(const af_model_tensor *t)
{
    if (t->ndim == AF_DISK_DIMS && !t->stored)
        return af_model_tensor_values(t);
    return t->ndim ? t->dim[t->ndim - 1] : 1;
}
static inline int64_t af_model_tensor_rows(const af_model_tensor *t)
{
    return af_model_tensor_values(t) / (af_model_tensor_cols(t) ? af_model_tensor_cols(t) : 1);
}

/* A stored tensor whose values can be read: plain, GGUF blocks, packed by bitsandbytes, or the
 * codes of a weight (coded_weight.h). */
typedef struct af_stored_values {
    const af_stored *t;
    bool packed, coded;
    af_bnb_weight bnb;
    af_coded_weight code;
    int64_t count; /* elements it unpacks to */
} af_stored_values;

/* *readable is false for a type that cannot be decoded. Packed values are rounded to `round`. */
AF_CHECKED af_status af_stored_values_init(af_stored_values *out, bool *readable,
                                           const af_weights *w, const af_stored *t, af_dtype round,
                                           af_error *err);
/* Elements [from, to), from at the start of a block. */
void af_stored_values_read(const af_stored_values *v, int64_t from, int64_t to, float *out);

/* What an adapter changes of one tensor; all zero: nothing. */
typedef struct af_overlay {
    const float *saved;              /* modules_to_save, instead of the base's values, or NULL */
    const af_adapter_module *module; /* low-rank part over them, or NULL */
    int64_t out;                     /* rows of one of its matrices: those of an expert, or all */
    int64_t row;                     /* of all of them, the first that the tensor has */
    int64_t turned; /* above 0: the tensor has rows of inputs, as many as this, and columns of
                       outputs: experts of gpt_oss, linears of gpt2 */
    bool embedding; /* the module is the embedding */
    bool pairs;     /* turned: columns of gate and up alternate */
    int64_t tokens; /* its rows */
    af_token_rows trained;           /* rows of their own, */
    const float *trained_values;     /* [trained.count][cols] */
    const af_adapter_module *biased; /* of a bias: the module whose lora_bias is added, or
                                        whose factors it has, or NULL */
} af_overlay;

/* Whether tensor i of the spec is stored in codes of MXFP4, and the adapter leaves it as it is. */
bool af_model_reader_is_mxfp4(const af_model_reader *r, int tensor);

/* Of tensor i of the adapter's spec. */
af_overlay af_model_reader_overlay(const af_model_reader *r, int tensor);
/* What an adapter changes of a listed tensor outside the text model; NULL = nothing. */
const af_adapter_other *af_model_reader_other(const af_model_reader *r, const af_adapter *a,
                                              const af_model_tensor *t);
/* Adds the low-rank part to rows [from, from + n): w + s B A, with DoRA times m / |w + s B A|. In
 * f32, as PEFT computes it; the caller rounds once. */
void af_overlay_apply(const af_overlay *o, float *rows, int64_t from, int64_t n, int64_t cols);

/* One listed tensor being read. */
typedef struct af_tensor_view {
    af_model_reader *in;
    const af_model_tensor *t;
    af_stored_values values; /* folders */
    af_overlay overlay;
    float *row; /* of ours, where the tensor lies turned in a folder and is read from GGUF */
} af_tensor_view;

AF_CHECKED af_status af_tensor_view_open(af_tensor_view *v, af_model_reader *in,
                                         const af_model_tensor *t, af_error *err);
/* Its pages may leave memory. */
void af_tensor_view_close(af_tensor_view *v);
/* Rows [from, from + n) as f32 (a vector is one row; scalars too). */
void af_tensor_view_rows(const af_tensor_view *v, int64_t from, int64_t n, float *out);
/* True when a tensor's values are its stored bytes, which may then be copied. */
bool af_tensor_view_is_raw(const af_tensor_view *v);
/* No value of these rows (`rows` are what af_tensor_view_rows gave), or of all, is NaN or infinite.
 */
bool af_tensor_view_rows_finite(const af_tensor_view *v, int64_t from, int64_t n,
                                const float *rows);
bool af_tensor_view_finite(const af_tensor_view *v);
#endif
