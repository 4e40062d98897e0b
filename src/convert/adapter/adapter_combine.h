/* adapter_combine.h - several adapters into one. */
#ifndef AF_ADAPTER_COMBINE_H
#define AF_ADAPTER_COMBINE_H

#include "model/adapter.h"

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
