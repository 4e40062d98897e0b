/* convert.h - quantized folders, GGUF files, merged models, and adapters in other formats.
 *
 * Every call streams tensor by tensor and writes under a temporary name that is renamed at the end:
 * on failure no partial output remains and no input is changed. An output that exists is refused,
 * and `force` replaces only what afinar wrote itself (afinar/output.h). The same inputs give the
 * same bytes with any number of threads (except for an imatrix of an f32 model:
 * docs/decisions/0018). Each call uses its own threads; calls with different outputs may run at the
 * same time. */
#ifndef AFINAR_CONVERT_H
#define AFINAR_CONVERT_H

#include "afinar/output.h"
#include "afinar/status.h"
#include "afinar/types.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One converted tensor. */
typedef struct af_convert_row {
    const char *name;
    const char *type; /* "q4_k", "nf4", "bf16" */
    int64_t count;    /* elements */
    uint64_t bytes;   /* in the new file, scales included */
    bool lossy;       /* quantized: the errors below were measured */
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

/* NULL is allowed. */
AF_API void af_convert_report_free(af_convert_report *r);

/* ---- quantize ---- */

typedef struct af_quantize_opts {
    const char *type;         /* nf4 fp4 int8: a folder; f32 .. iq4_xs: a GGUF file */
    int64_t block_size;       /* nf4, fp4: 0 = 64 */
    bool no_double_quant;     /* nf4, fp4: keep the scales in f32 */
    bool pure;                /* GGUF: one type for all matrices */
    const char *imatrix;      /* GGUF: an importance matrix to use, or NULL */
    const char *imatrix_data; /* GGUF: a text to compute one from, or NULL */
    const char *imatrix_out;  /* where to save it, or NULL; .dat = binary */
    int64_t imatrix_chunks;   /* chunks of 512 tokens to use; 0 = the whole text */
    const char *device;       /* to compute on; NULL = auto */
    const char *adapter;      /* merged in first, or NULL */
    int threads;              /* 0 = every core */
    bool force;               /* replace what afinar wrote there before (afinar/output.h) */
} af_quantize_opts;

/* Quantizes a model (folder, .gguf file or org/name) to `out`: a bitsandbytes folder or a .gguf
 * file, by o->type. On success *report belongs to the caller; free it with af_convert_report_free.
 * AF_EUSAGE for an unknown type or options that contradict it, AF_EIO, AF_EFORMAT. */
AF_API AF_CHECKED af_status af_quantize(af_convert_report **report, const char *model,
                                        const char *out, const af_quantize_opts *o, af_error *err);

/* ---- merge ---- */

typedef struct af_merge_opts {
    uint64_t seed;        /* of random methods */
    bool plan;            /* compute the plan only */
    uint64_t shard_bytes; /* 0 = 5 GB */
    int threads;
    bool force; /* replace what afinar wrote there before */
    bool mixed; /* models of different architectures may be mixed, by the names of tensors */
} af_merge_opts;

typedef struct af_merge_plan {
    int tensors, models;
    int64_t params;
    uint64_t read_bytes, write_bytes, memory_bytes; /* memory: buffers, and mapped pages */
    const char *method;
} af_merge_plan;

/* Merges models as a mergekit YAML file describes into the folder `out` (may be NULL with o->plan).
 * Model paths are relative to the current folder. *plan gets the sizes (may be NULL). AF_EUSAGE,
 * AF_EIO, AF_EFORMAT. */
AF_API AF_CHECKED af_status af_merge_file(const char *config, const char *out,
                                          const af_merge_opts *o, af_merge_plan *plan,
                                          af_error *err);

enum { AF_MERGE_ADAPTERS_MAX = 64 };

typedef struct af_merge_adapter_opts {
    const char *adapter[AF_MERGE_ADAPTERS_MAX]; /* as in af_model_opts */
    double weight[AF_MERGE_ADAPTERS_MAX];       /* factor of each; 0 = without effect */
    int adapters;
    const char *combine; /* linear (NULL), cat, ties, dare_linear, dare_ties, magnitude_prune */
    double density;      /* fraction of values to keep, not for linear and cat; 0 = 0.5 */
    uint64_t seed;       /* of dare */
    const char *dtype;   /* of the result; NULL = as the base */
    bool adapter_only;   /* write the combined adapter, not a model */
    int threads;
    bool force; /* replace what afinar wrote there before */
} af_merge_adapter_opts;

/* Merges adapters into their base model, into the folder `out`. *note (may be NULL) gets a remark
 * when the base was dequantized, else ""; static storage. AF_EUSAGE, AF_EIO, AF_EFORMAT. */
AF_API AF_CHECKED af_status af_merge_adapters(const char *model, const char *out,
                                              const af_merge_adapter_opts *o, const char **note,
                                              af_error *err);
typedef struct af_extract_opts {
    int rank;
    int threads;
    bool force; /* replace what afinar wrote there before */
} af_extract_opts;

/* Writes the difference of two models as a PEFT adapter of rank o->rank into the folder `out`.
 * *kept (may be NULL) gets the fraction of the squared difference it represents. AF_EUSAGE for a
 * rank out of range or different shapes, AF_EIO, AF_EFORMAT. */
AF_API AF_CHECKED af_status af_extract_lora(const char *base, const char *model, const char *out,
                                            const af_extract_opts *o, double *kept, af_error *err);

/* ---- export ---- */

typedef struct af_export_opts {
    const char *type;    /* GGUF type; NULL = f16 (bf16 models: bf16) */
    const char *adapter; /* merged in first, or written alone; NULL = none */
    bool adapter_only;   /* write the adapter alone, as GGUF */
    bool pure;
    const char *imatrix;
    bool no_verify;
    int threads;
    bool force; /* replace what afinar wrote there before, the Modelfile included */
} af_export_opts;

typedef struct af_verify_result {
    bool ran, ok;
    bool same; /* logits within `allowed`; if not, nothing is written and the old file is kept */
    double logit_error; /* rms of the difference over the spread of the logits */
    double allowed;
    int64_t same_top, positions; /* positions with the same most likely token; all */
    bool stops;                  /* the end of a turn is a stop token */
    char message[256];
} af_verify_result;

/* Writes a folder or .gguf file as a .gguf file (with a Modelfile next to it), a .gguf file as a
 * folder, or an adapter as GGUF or MLX, depending on the paths. *report, when not NULL afterwards,
 * belongs to the caller (af_convert_report_free). A failed verification is not an error; see
 * *verify. AF_EUSAGE, AF_EIO, AF_EFORMAT, AF_EUNSUPPORTED. */
AF_API AF_CHECKED af_status af_export(const char *model, const char *out, const af_export_opts *o,
                                      af_convert_report **report, af_verify_result *verify,
                                      af_error *err);

#ifdef __cplusplus
}
#endif
#endif
