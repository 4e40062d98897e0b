/* freeze.h - which tensors of the base a full run trains: all, or those the run file names. */
#ifndef AF_FREEZE_H
#define AF_FREEZE_H

#include "model/arch/arch.h"
#include "train/run/run_config.h"

/* Rows [from, to) of a tensor that are trained; the others have no gradient. */
typedef struct af_row_range {
    int tensor;
    int64_t from, to;
} af_row_range;

typedef struct af_trained {
    bool *tensor;        /* by spec tensor; NULL = all of them */
    af_row_range *range; /* sorted by tensor and row, without overlaps */
    int ranges;
} af_trained;

/* True when the run trains the base itself: full fine-tuning, or a part of it. */
bool af_method_trains_base(const af_run_config *r);
/* freeze_parameters, or its regular expression or share: some parameters are not trained. */
bool af_run_freezes_names(const af_run_config *r);
/* use_llama_pro: every how many layers one is trained, 1 without the key. An error when the layers
 * cannot be divided so. */
AF_CHECKED af_status af_llama_pro_stride(int *out, const af_run_config *r, const af_model_spec *s,
                                         af_error *err);
/* Reads unfrozen_parameters (Axolotl), freeze_parameters and trainable_parameters (ms-swift) or the
 * freeze_ keys of LLaMA-Factory. Memory is the arena's.
 * A warning when a name to freeze (or unfrozen_parameters) matches nothing; an error when another
 * does, or nothing would be trained. */
AF_CHECKED af_status af_trained_choose(af_trained *out, const af_run_config *r,
                                       const af_model_spec *spec, af_arena *arena, af_error *err);
#endif
