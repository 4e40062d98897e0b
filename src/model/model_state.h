/* model_state.h - an open model, for the files that implement afinar/model.h. */
#ifndef AF_MODEL_STATE_H
#define AF_MODEL_STATE_H

#include "afinar/model.h"
#include "model/engine.h"
#include "model/labels/label_loss.h"

struct af_model {
    char *path;
    char *adapter_dir; /* of a single adapter, or NULL */
    af_device *device;
    af_loader *loader;
    af_adapter *adapter;
    af_adapter *multiplied; /* one that is part of the weights as they are loaded, or NULL */
    af_dtype compute;
    const af_model_leaves *live; /* NULL, or where weights and adapter are being trained (CPU) */
    af_tokenizer *tokenizer;     /* NULL until requested */
    af_template *template;
    af_engine engine;           /* the last graph that was built */
    struct af_decoder *decoder; /* of the last af_model_generate, or NULL */
    void (*decoder_close)(struct af_decoder *);
    af_generate_times times;
    struct json_t *label_json; /* of a model that classifies: id2label, problem_type; or NULL */
    bool warned_long;          /* that a text is longer than the context */
};

/* The folder whose chat template serves: the adapter's, where it has one, for with that it was
 * trained; else the model's path. */
const char *af_model_template_path(const af_model *m);
/* The adapter's folder where it has a tokenizer of its own, else the model. */
const char *af_model_tokenizer_path(const af_model *m);
/* The engine of this kind with at least these sizes, built when the last one does not serve. */
AF_CHECKED af_status af_model_engine(af_model *m, af_engine_kind kind, int64_t N, int64_t S,
                                     af_error *err);
/* Closes the decoder of af_model_generate. */
void af_model_drop_decoder(af_model *m);
/* af_model_logits_of for a row of a batch `length` wide, which ropes may depend on. */
AF_CHECKED af_status af_model_logits_in(af_model *m, const int32_t *ids, int64_t n, int64_t length,
                                        float *out, af_error *err);
/* labels/classify.c: names and kind of the labels; after adapters are opened. */
AF_CHECKED af_status af_model_read_labels(af_model *m, af_error *err);
/* The labels as losses see them. */
af_label_opts af_model_label_opts(const af_model *m);
/* An error for a model that classifies, which has no logits of tokens. */
AF_CHECKED af_status af_model_need_tokens(const af_model *m, af_error *err);
/* Says once that a text goes beyond the model's context. */
void af_model_watch_length(af_model *m, int64_t tokens);
/* Every id is one of the model's. */
AF_CHECKED af_status af_model_check_ids(const af_model *m, const int32_t *ids, int64_t n,
                                        af_error *err);
#endif
