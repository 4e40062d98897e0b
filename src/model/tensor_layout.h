/* tensor_layout.h - between reader and loader: how one tensor of the spec lies in the file. */
#ifndef AF_TENSOR_LAYOUT_H
#define AF_TENSOR_LAYOUT_H

#include "model/model_reader.h"

struct af_tensor_layout {
    int64_t rows, cols; /* of the spec's tensor; a vector is one row (rows of 1 when permuted) */
    const af_stored **part; /* [parts], equal rows and type each; none when packed */
    int parts;
    int64_t part_rows;  /* rows of the spec's tensor that come from one part */
    int64_t heads;      /* > 0: rows are interleaved per head as llama.cpp has them */
    bool gate_up_split; /* GGUF experts: part 0 has all gates, part 1 all ups */
    float add;          /* added to every value (gemma norms: -1) */
    bool packed;        /* by bitsandbytes */
    af_bnb_weight bnb;
};

/* The type the rows are stored in. */
af_dtype af_tensor_layout_type(const af_tensor_layout *t);
/* Row r of the spec's tensor, as it is stored. */
const void *af_tensor_layout_row(const af_model_reader *in, const af_tensor_layout *t, int64_t r);
/* Rows [from, from + n) as f32. */
void af_tensor_layout_rows(const af_model_reader *in, const af_tensor_layout *t, int64_t from,
                           int64_t n, float *out);
#endif
