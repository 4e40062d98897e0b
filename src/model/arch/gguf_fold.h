/* gguf_fold.h - llama.cpp has no multipliers of falcon_h1: weights of its files are multiplied with
 * them. Files written here have the multipliers among the metadata, so that a reader has the model
 * as it was; of other files they are 1. */
#ifndef AF_GGUF_FOLD_H
#define AF_GGUF_FOLD_H

#include "model/arch/arch.h"

typedef struct af_gguf_fold {
    int count; /* of ranges of rows with a factor each; 0: the weights are as they are */
    int64_t end[AF_MUP_PARTS];
    double by[AF_MUP_PARTS];
} af_gguf_fold;

/* Of a tensor of the spec. */
af_gguf_fold af_gguf_fold_of(const af_model_spec *s, const af_tensor_spec *t);
/* What row r of the spec's tensor is multiplied with in the file; a vector is one row. */
double af_gguf_fold_by(const af_gguf_fold *f, int64_t r);
/* Rows [from, from + n), in place: from the values of the spec to those of the file, and back. */
void af_gguf_fold_to_file(const af_gguf_fold *f, float *rows, int64_t from, int64_t n,
                          int64_t cols);
void af_gguf_fold_from_file(const af_gguf_fold *f, float *rows, int64_t from, int64_t n,
                            int64_t cols);
#endif
