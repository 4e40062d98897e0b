/* adapter_apply.h - low-rank adapters into weights, and several adapters into one. */
#ifndef AF_ADAPTER_APPLY_H
#define AF_ADAPTER_APPLY_H

#include "model/adapter.h"

/* Rows [from, from + n) of a weight, [n][cols], become those of the merged one: w + s B A, with
 * DoRA times m / |w + s B A|. In f32, as PEFT computes it; the caller rounds once. */
void af_adapter_apply_rows(const af_adapter_module *m, float *rows, int64_t from, int64_t n,
                           int64_t cols);

/* The same for an embedding, whose A is [rank][tokens] and B [cols][rank]. */
void af_adapter_apply_embedding(const af_adapter_module *m, float *rows, int64_t from, int64_t n,
                                int64_t cols, int64_t tokens);

typedef enum af_combine {
    AF_COMBINE_LINEAR,
    AF_COMBINE_CAT,
    AF_COMBINE_TIES,        /* the largest stay, signs vote */
    AF_COMBINE_DARE_LINEAR, /* random ones stay, divided by the density */
    AF_COMBINE_DARE_TIES,   /* the same, and signs vote */
    AF_COMBINE_PRUNE,       /* the largest stay */
} af_combine;
/* Names as PEFT has them, and "dare" for dare_linear. */
bool af_combine_by_name(af_combine *out, const char *name);

typedef struct af_combine_opts {
    af_combine how;
    double density; /* share that stays; not for linear and cat */
    uint64_t seed;  /* of dare */
} af_combine_opts;

/* Several adapters of one model as one, as PEFT's add_weighted_adapter does it: all but cat on A
 * and B apart (each scaled by sqrt |w s|), cat exactly. */
AF_CHECKED af_status af_adapter_combine(af_adapter **out, const af_adapter *const *in,
                                        const double *weight, int n, const af_combine_opts *o,
                                        af_error *err);
#endif
