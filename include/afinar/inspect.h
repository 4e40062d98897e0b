/* inspect.h - the contents of a model file or folder (architecture, tensors, metadata, statistics),
 * and the differences of two.
 *
 * Everything in a report is owned by it and valid until it is freed. */
#ifndef AFINAR_INSPECT_H
#define AFINAR_INSPECT_H

#include "afinar/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { AF_INSPECT_NDIM = 8, AF_INSPECT_BINS = 16 };

typedef struct af_inspect_options {
    bool stats;  /* read every value: norms, range, outliers, zeros, histogram */
    int threads; /* 0 = all cores */
} af_inspect_options;

typedef struct af_inspect_fact {
    const char *key, *value;
    bool number; /* value is a JSON number, true or false */
} af_inspect_fact;

typedef struct af_inspect_stats {
    double min, max, mean, std, l2; /* of the finite values */
    int64_t zeros, nans, infs;
    int64_t outliers;              /* further than 6 std from the mean */
    int64_t bins[AF_INSPECT_BINS]; /* from mean-4std to mean+4std; the ends hold the tails */
} af_inspect_stats;

typedef struct af_inspect_tensor {
    const char *name;
    const char *dtype; /* as the format spells it: "BF16", "Q4_K" */
    const char *note;  /* "nf4 [64,64]" for a weight packed by bitsandbytes, else "" */
    const char *file;  /* name without folder */
    int ndim;
    int64_t dim[AF_INSPECT_NDIM], count;
    uint64_t bytes;
    bool part;      /* belongs to a packed weight (its scales, its quant_state) */
    bool has_stats; /* also false for types that cannot be decoded */
    af_inspect_stats stats;
} af_inspect_tensor;

typedef struct af_inspect_report {
    const char *path;
    const char *kind;             /* "model folder", "adapter folder", "GGUF file", ... */
    const af_inspect_fact *facts; /* architecture and the like, in reading order */
    int fact_count;
    const af_inspect_fact *meta; /* metadata of the file itself */
    int meta_count;
    const af_inspect_tensor *tensors;
    int tensor_count;
    int64_t parameters; /* elements of weights; packed weights count what they unpack to */
    uint64_t bytes;     /* of tensor data */
} af_inspect_report;

/* Reads a .safetensors or .gguf file, a model, adapter or checkpoint folder, or org/name in the
 * Hugging Face cache. options may be NULL. On success *out belongs to the caller; free it with
 * af_inspect_free. AF_EIO, AF_EFORMAT. */
AF_API AF_CHECKED af_status af_inspect(af_inspect_report **out, const char *path,
                                       const af_inspect_options *options, af_error *err);
/* NULL is allowed. */
AF_API void af_inspect_free(af_inspect_report *r);
/* The report as one JSON object; free() it. AF_ENOMEM. */
AF_API AF_CHECKED af_status af_inspect_json(char **out, const af_inspect_report *r, af_error *err);

typedef enum af_diff_kind {
    AF_DIFF_SAME,    /* equal values */
    AF_DIFF_CHANGED, /* values differ */
    AF_DIFF_SHAPE,   /* shapes differ */
    AF_DIFF_ONLY_A,
    AF_DIFF_ONLY_B,
    AF_DIFF_UNREAD, /* a type we cannot decode, and other bytes */
} af_diff_kind;

typedef struct af_diff_row {
    const char *name;
    af_diff_kind kind;
    const char *dtype_a, *dtype_b; /* "" when it is not there */
    int ndim;                      /* of A, or of B when only there */
    int64_t dim[AF_INSPECT_NDIM], count;
    int64_t changed; /* elements that differ */
    double max_abs;  /* largest difference */
    double relative; /* l2 of the difference over l2 of A */
    double cosine;   /* between the two, 1 when both are zero */
} af_diff_row;

typedef struct af_diff_report {
    const char *path_a, *path_b;
    const af_diff_row *rows;
    int row_count;
    int same, changed, other; /* other: shape, missing, unread */
} af_diff_report;

/* Compares the tensors of two paths (as of af_inspect; options too). On success *out belongs to the
 * caller; free it with af_inspect_diff_free. AF_EIO, AF_EFORMAT. */
AF_API AF_CHECKED af_status af_inspect_diff(af_diff_report **out, const char *a, const char *b,
                                            const af_inspect_options *options, af_error *err);
/* NULL is allowed. */
AF_API void af_inspect_diff_free(af_diff_report *r);
/* The report as one JSON object; free() it. AF_ENOMEM. */
AF_API AF_CHECKED af_status af_inspect_diff_json(char **out, const af_diff_report *r,
                                                 af_error *err);

#ifdef __cplusplus
}
#endif
#endif
