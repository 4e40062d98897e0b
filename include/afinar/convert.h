/* convert.h - from a trained model to what others load: quantised folders, GGUF files, merges,
 * adapters in other formats.
 *
 * Every call streams tensor by tensor and writes under a temporary name that is renamed at the end:
 * on failure nothing is left behind and no input is touched. The same inputs give the same bytes
 * with any number of threads (but for an imatrix of a f32 model: docs/decisions/0018). */
#ifndef AFINAR_CONVERT_H
#define AFINAR_CONVERT_H

#include "afinar/status.h"
#include "afinar/types.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What became of one tensor. */
typedef struct af_convert_row {
    const char *name;
    const char *type; /* "q4_k", "nf4", "bf16" */
    int64_t count;    /* elements */
    uint64_t bytes;   /* in the new file, scales included */
    bool lossy;       /* quantised: the error below was measured */
    double rel_rms;   /* root mean square of the error over that of the values */
    double max_abs;   /* largest error */
} af_convert_row;

typedef struct af_convert_report {
    af_convert_row *row;
    int rows;
    int64_t params;
    uint64_t bytes;         /* of all tensors */
    double bits_per_weight; /* bytes * 8 / params */
    const char *note;       /* something the user should know, or "" */
} af_convert_report;

void af_convert_report_free(af_convert_report *r); /* NULL is allowed */

/* ---- quantize ---- */

typedef struct af_quantize_opts {
    const char *type;         /* nf4 fp4 int8: a folder; f32 .. iq4_xs: a GGUF file */
    int64_t block_size;       /* nf4, fp4: 0 = 64 */
    bool no_double_quant;     /* nf4, fp4: scales stay f32 */
    bool pure;                /* GGUF: one type for all matrices */
    const char *imatrix;      /* GGUF: an importance matrix to use, or NULL */
    const char *imatrix_data; /* GGUF: a text to compute one from, or NULL */
    const char *imatrix_out;  /* where to keep what was read or computed, or NULL; .dat = binary */
    int64_t imatrix_chunks;   /* of 512 tokens, to compute from; 0 = the whole text */
    const char *device;       /* to compute on; NULL = auto */
    const char *adapter;      /* merged in first, or NULL */
    int threads;              /* 0 = every core */
} af_quantize_opts;

AF_CHECKED af_status af_quantize(af_convert_report **report, const char *model, const char *out,
                                 const af_quantize_opts *o, af_error *err);
/* True for nf4, fp4 and int8, whose result is a folder. */
bool af_quantize_makes_folder(const char *type);

/* For a program that is told to stop while it writes `out`: what is written of it so far goes, and
 * what was there before stays. The process must end then. False when there was nothing: not begun
 * yet, or `out` is whole already. */
bool af_convert_discard(const char *out);

/* ---- merge ---- */

typedef struct af_merge_opts {
    uint64_t seed;        /* of random methods */
    bool plan;            /* only say what would happen */
    uint64_t shard_bytes; /* 0 = 5 GB */
    int threads;
} af_merge_opts;

typedef struct af_merge_plan {
    int tensors, models;
    int64_t params;
    uint64_t read_bytes, write_bytes, memory_bytes; /* memory: buffers, and mapped pages */
    const char *method;
} af_merge_plan;

/* A mergekit YAML. Model paths are relative to the current folder. `plan` may be NULL. */
AF_CHECKED af_status af_merge_file(const char *config, const char *out, const af_merge_opts *o,
                                   af_merge_plan *plan, af_error *err);

enum { AF_MERGE_ADAPTERS_MAX = 64 };

typedef struct af_merge_adapter_opts {
    const char *adapter[AF_MERGE_ADAPTERS_MAX]; /* PEFT folders */
    double weight[AF_MERGE_ADAPTERS_MAX];
    int adapters;
    const char *combine; /* linear (NULL), cat, ties, dare_linear, dare_ties, magnitude_prune */
    double density;      /* share that stays, but for linear and cat; 0 = 0.5 */
    uint64_t seed;       /* of dare */
    const char *dtype;   /* of the result; NULL = the base's own */
    bool adapter_only;   /* write the combined adapter, not a model */
    int threads;
} af_merge_adapter_opts;

/* Adapters into their base. *note (may be NULL) says when the base was dequantised; static. */
AF_CHECKED af_status af_merge_adapters(const char *model, const char *out,
                                       const af_merge_adapter_opts *o, const char **note,
                                       af_error *err);
/* The difference of two models as a PEFT adapter of that rank. *kept (may be NULL) is the share of
 * the squared difference it keeps. */
AF_CHECKED af_status af_extract_lora(const char *base, const char *model, const char *out, int rank,
                                     int threads, double *kept, af_error *err);

/* ---- export ---- */

typedef struct af_export_opts {
    const char *type;    /* GGUF type; NULL = f16 (bf16 models: bf16) */
    const char *adapter; /* PEFT folder, or NULL */
    bool adapter_only;   /* the adapter itself as GGUF */
    bool pure;
    const char *imatrix;
    bool no_verify;
    int threads;
} af_export_opts;

typedef struct af_verify_result {
    bool ran, ok;
    bool same; /* the logits are within what is allowed; else what was there before stays */
    double logit_error; /* rms of the difference over the spread of the logits */
    double allowed;
    int64_t same_top, positions; /* positions with the same most likely token */
    bool stops;                  /* the end of a turn is a stop token */
    char message[256];
} af_verify_result;

/* HF folder or GGUF to a .gguf file (and a Modelfile beside it), a .gguf file to a folder, or an
 * adapter to GGUF or MLX, by what the paths are. A failed verification is not an error: see
 * *verify. */
AF_CHECKED af_status af_export(const char *model, const char *out, const af_export_opts *o,
                               af_convert_report **report, af_verify_result *verify, af_error *err);
/* The text files of a GGUF model (tokenizer, chat template, generation config) as those of a
 * folder, in a new folder `out`. */
AF_CHECKED af_status af_export_texts(const char *gguf, const char *out, af_error *err);

#ifdef __cplusplus
}
#endif
#endif
