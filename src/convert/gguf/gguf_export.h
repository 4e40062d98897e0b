/* gguf_export.h - between the files that write a model as GGUF: its list of tensors, and what is at
 * work. */
#ifndef AF_GGUF_EXPORT_H
#define AF_GGUF_EXPORT_H

#include "base/pool.h"
#include "convert/gguf/gguf_model.h"
#include "convert/output/convert_report.h"
#include "model/arch/gguf_fold.h"
#include "model/arch/gguf_order.h"
#include "model/arch/gguf_parts.h"
#include "tensor/codec.h"

enum { NAME_BYTES = 256 };

typedef struct gguf_target {
    char name[NAME_BYTES];
    af_dtype dtype;
    int ndim, layer;
    int64_t dim[3], rows, cols;
    int spec; /* -1: `values` or `raw` */
    int part; /* of `cut`; -1 = the whole tensor */
    af_gguf_parts cut;
    bool vector;        /* whatever ndim says */
    bool keys, latents; /* of kv_b_proj: its keys, transposed per head; its values */
    float add;          /* gemma norms */
    int exp;            /* A_log is this times exp(w) there; 0 = as it is */
    bool unit;          /* rows get length 1 (the head of Baichuan 2) */
    af_gguf_order order;
    af_gguf_fold fold;
    int stack;     /* matrices of that many tensors of the spec, from `spec`'s slot on; 0 = one */
    float *values; /* computed here */
    const af_stored *raw; /* copied as it is */
    bool fell_back;
} gguf_target;

typedef struct encode_worker {
    float *x;       /* scratch_rows of values, one decoded row; of keys: a row of the spec */
    uint8_t *bytes; /* of one piece, encoded */
    af_status st;
    af_error err;
} encode_worker;

typedef struct gguf_export {
    af_model_reader *in;
    const af_model_spec *spec;
    const af_gguf_model_opts *o;
    af_mix_model mix;
    gguf_target *list;
    int count;
    bool no_memory; /* while listing */
    af_pool *pool;
    af_gguf_writer *w;
    af_convert_report *report;
    /* the tensor at work */
    const gguf_target *t;
    const float *importance; /* of the rows of one matrix; experts: one after another */
    int64_t importance_rows; /* rows that share one, then the next begins */
    int64_t piece_rows, scratch_rows;
    uint64_t row_bytes, offset; /* offset: of the tensor in the file */
    encode_worker *worker;      /* one for each thread */
    af_error_sums *sums;        /* one for each piece */
    af_arena arena, scratch;    /* scratch: of the tensor at work */
} gguf_export;

/* gguf_list.c: fills `list`. */
AF_CHECKED af_status af_gguf_list_tensors(gguf_export *j, af_error *err);
#endif
