/* plan_ranks.h - the part of `afinar plan --ranks`: memory and traffic of every stage of ZeRO. */
#ifndef AF_PLAN_RANKS_H
#define AF_PLAN_RANKS_H

#include "afinar/train.h"
#include "base/buf.h"
#include "train/step/step_graph.h"

#include <jansson.h>

enum { AF_STAGES = 4 };

typedef struct af_stage_plan {
    bool there; /* false: this stage is refused by a run */
    bool fits;
    uint64_t total, resident; /* of the largest rank; resident: on the CPU, with the program */
    uint64_t mapped;          /* and what it reads from mapped files */
    uint64_t nccl;            /* of total: NCCL's own buffers */
    uint64_t weights, state, grads; /* weights: frozen and trained, mapped ones too */
    uint64_t sent, sent_far;        /* bytes of a rank in a step; of these, between machines */
    double seconds;                 /* of a step, estimated */
} af_stage_plan;

/* Plans every stage. `free_bytes`: of a machine (CPU), or of a GPU. */
AF_CHECKED af_status af_plan_stages(af_step_graph *s, const af_plan_ranks *r, uint64_t free_bytes,
                                    af_stage_plan out[AF_STAGES], af_error *err);
void af_plan_stages_text(af_buf *b, const af_stage_plan p[AF_STAGES], const af_plan_ranks *r);
json_t *af_plan_stages_json(const af_stage_plan p[AF_STAGES], const af_plan_ranks *r);
#endif
