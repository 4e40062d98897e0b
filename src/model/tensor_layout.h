/* tensor_layout.h - between reader and loader: how one tensor of the spec lies in the file. */
#ifndef AF_TENSOR_LAYOUT_H
#define AF_TENSOR_LAYOUT_H

#include "model/arch/gguf_fold.h"
#include "model/arch/gguf_order.h"
#include "model/arch/gguf_parts.h"
#include "model/coded/coded_weight.h"
#include "model/model_reader.h"

struct af_tensor_layout {
    int64_t rows, cols; /* of the spec's tensor; a vector is one row (rows of 1 when permuted) */
    const af_stored **part; /* [parts], equal rows and type each; none when packed */
    int parts;
    int64_t part_rows;     /* rows of the spec's tensor that come from one part */
    const int64_t *uneven; /* [parts] the same where they differ; NULL = part_rows each */
    bool row_halves; /* GGUF biases of experts: part 0 has the gates of a row, part 1 the ups */
    /* GGUF kv_b_proj: part 0 has the keys of each head transposed, part 1 the values */
    const af_latent_keys *kv_split;
    float add;         /* added to every value (gemma norms: -1) */
    int exp;           /* the file has this times exp(w): A_log of delta nets and Mamba */
    af_gguf_fold fold; /* what values are multiplied with in the file */
    af_gguf_order order;
    af_gguf_parts cut; /* which row lies in which part; count 0: one after another */
    bool packed;       /* by bitsandbytes */
    af_bnb_weight bnb;
    af_coded_weight *coded;       /* [parts]: each part is the codes of this weight; NULL = plain */
    const af_tensor_spec *turned; /* stored in another order: af_disk_at; else NULL */
    int64_t stored_rows; /* where `mean` is set: rows of the file; those after them are the mean */
    const float *mean;   /* [cols], of a vocabulary that was grown; else NULL */
};

/* Values of the file are those of the spec, in whatever order their rows are. */
static inline bool af_tensor_layout_has_values(const af_tensor_layout *t)
{
    return t->add == 0 && !t->exp && t->fold.count == 0;
}

/* Rows and values of the file are those of the spec. */
static inline bool af_tensor_layout_is_plain(const af_tensor_layout *t)
{
    return af_tensor_layout_has_values(t) && t->order.keys == 0;
}

/* The type the rows are stored in. */
af_dtype af_tensor_layout_type(const af_tensor_layout *t);
/* Row r of the spec's tensor, as it is stored. */
const void *af_tensor_layout_row(const af_tensor_layout *t, int64_t r);
/* Rows [from, from + n) as f32. */
void af_tensor_layout_rows(const af_tensor_layout *t, int64_t from, int64_t n, float *out);

/* Tensor i of the spec, a number of xIELU, out of the metadata of a GGUF file. */
AF_CHECKED af_status af_reader_match_xielu(af_model_reader *in, int tensor, af_error *err);

/* ---- reader_names.c ---- */

AF_CHECKED af_status af_reader_find_prefix(af_model_reader *in, af_error *err);
/* Keys and values of a layer that uses those of another: published folders of gemma3n have them. */
bool af_reader_is_unread_kv(const af_model_spec *s, const char *name);
/* The spec of the config, whose head is the embedding, or not; sees what the folder has of it. */
AF_CHECKED af_status af_reader_make_spec(af_model_reader *in, bool tied, af_error *err);
AF_CHECKED af_status af_reader_match_head(af_model_reader *in, af_error *err);
/* Sets experts_whole of the spec to what the folder has. */
void af_reader_find_experts(af_model_reader *in);
/* axk1, bailing_moe_v2: whether the routers of the folder have a bias for the choice. */
AF_CHECKED af_status af_reader_find_choice(af_model_reader *in, af_error *err);
/* olmo_hybrid, kimi_linear: sets conv_rows of the spec, and names of norms and MLPs, to what the
 * folder has. */
AF_CHECKED af_status af_reader_find_conv(af_model_reader *in, af_error *err);
/* zamba2: a tensor of a layer's copy of a transformer that an earlier layer owns. */
bool af_reader_is_shared_copy(const af_model_reader *in, const char *name);
/* minimax: refuses stored decays that are not those of decay.h. */
AF_CHECKED af_status af_reader_check_decays(const af_model_reader *in, af_error *err);

/* ---- reader_rows.c: embedding and head with other rows than the model stores, grown by tokens
 * that were added, or an adapter's own ---- */

/* Sets the vocabulary that is wanted in the config; before the spec is made. */
void af_reader_vocab_set(af_model_reader *in);
/* Whether the model can have another vocabulary than it stores; once the spec is made. */
AF_CHECKED af_status af_reader_vocab_check(const af_model_reader *in, af_error *err);
/* The shape in which the file has tensor i of the spec. */
void af_reader_vocab_stored_dim(const af_model_reader *in, int tensor, int64_t dim[4]);
/* The tensor of an adapter that serves instead of the file's; NULL = none. */
const af_stored *af_reader_vocab_own(const af_model_reader *in, int tensor);
/* After matching: rows beyond those stored are their mean. */
AF_CHECKED af_status af_reader_vocab_grow(af_model_reader *in, int tensor, af_error *err);
#endif
