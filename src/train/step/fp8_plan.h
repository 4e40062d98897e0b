/* fp8_plan.h - which projections of a run are in FP8, and why the others are not. */
#ifndef AF_FP8_PLAN_H
#define AF_FP8_PLAN_H

#include "base/buf.h"
#include "model/arch/arch.h"
#include "train/step/run_model.h"

/* The largest relative error of a product that stays in FP8. Operands of independent normal numbers
 * give 0.036 (two roundings to three bits of mantissa, each 0.026 of its operand); this is about
 * twice that. */
#define AF_FP8_ERROR_MAX 0.08

typedef enum af_fp8_state {
    AF_FP8_USED,
    AF_FP8_SLOWER,  /* than bf16 on this device, by its cost model */
    AF_FP8_BROKE,   /* the bound: it is computed as without FP8 */
    AF_FP8_TRAINED, /* itself: FP8 is for frozen weights */
} af_fp8_state;

/* The products of one group of linears, with all pieces side by side. */
typedef struct af_fp8_group {
    int layer;
    af_group group;
    const char *name; /* path of its first module; the spec's */
    af_fp8_state state;
    bool measured;
    double error[2]; /* relative, against sums in double: forward, backward */
} af_fp8_group;

typedef struct af_fp8_plan {
    af_fp8_group *group;
    int count;
    bool *use;    /* by layer * AF_GROUP_LAYER_COUNT + group; NULL = no FP8 at all */
    bool checked; /* the gate has run */
} af_fp8_plan;

/* Before a recording: the groups of the model, and which of them gain on its device with batches of
 * so many rows. Refuses devices and bases that FP8 does not go with. Nothing without run.fp8. */
AF_CHECKED af_status af_fp8_plan_make(af_fp8_plan *p, const af_run_model *m, int64_t rows,
                                      af_error *err);
void af_fp8_plan_clear(af_fp8_plan *p); /* an empty one is allowed */
int af_fp8_plan_in(const af_fp8_plan *p, af_fp8_state state);
/* The largest error among the products that are used: 0 forward, 1 backward. */
double af_fp8_plan_error(const af_fp8_plan *p, int pass);
#endif
