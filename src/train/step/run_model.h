/* run_model.h - the model of a run: device, weights on disk, and the adapter to be trained. */
#ifndef AF_RUN_MODEL_H
#define AF_RUN_MODEL_H

#include "model/loader.h"
#include "train/run/freeze.h"
#include "train/run/run_config.h"
#include "train/step/capture.h"
#include "train/step/run_rope.h"
#include "train/step/run_tokens.h"

enum { AF_FROZEN_ALIGN = 64, AF_ZERO_MAX = 3 /* the highest zero_stage */ };

typedef struct af_run_model {
    const af_run_config *run; /* borrowed */
    char *path;               /* resolved */
    const char *texts;        /* the folder of tokenizer, template and configs: that, or changed */
    const char *labels;       /* of a model that classifies, as JSON (af_run_label_text); or NULL */
    af_label_opts label_opts; /* the same, count 0 = it does not classify; names: arena or run */
    af_run_tokens tokens;
    af_rope_change rope;         /* of rope_scaling; empty = the model's */
    struct af_comm *comm;        /* the other ranks; NULL = none. Borrowed */
    struct af_comm_device *gpus; /* their GPUs; NULL: what is shared passes through the host */
    int rank, ranks, zero_stage; /* of how many (a plan has no comm); what is split over them */
    af_device *device;
    af_dtype compute;
    af_loader *loader;                 /* NULL when the config alone is known */
    const af_model_spec *spec;         /* the loader's, or own_spec */
    af_adapter *adapter;               /* NULL in full fine-tuning */
    const af_model_spec *teacher_spec; /* of distillation; NULL = none */
    af_loader *teacher;                /* NULL: it has the weights of the base */
    af_adapter *teacher_adapter;
    af_capture capture;     /* or its distributions in a file; empty = none */
    af_trained trained;     /* of the base, in full fine-tuning */
    double dropout;         /* on the adapter's input: the run's, or the stored adapter's */
    uint64_t adapter_bytes; /* resident memory of the adapter's host copy */
    /* without a loader */
    af_hf_config config;
    af_model_spec own_spec;
    bool has_own_spec;
    af_dtype plain;  /* type of weights that are not in 4 bits */
    af_dtype *dtype; /* by spec tensor, guessed */
    af_arena arena;
    af_map frozen; /* file with the frozen matrices, each at AF_FROZEN_ALIGN; or empty */
} af_run_model;

/* Opens device and weights and checks that the run can train them. The adapter comes later, when
 * the data has been read: its checks are the slower ones. Close after a failure too. */
AF_CHECKED af_status af_run_model_open(af_run_model *m, const af_run_config *run,
                                       struct af_comm *comm, af_error *err);
/* Makes the run's adapter, or reads the one it continues. Does nothing in full fine-tuning. */
AF_CHECKED af_status af_run_model_open_adapter(af_run_model *m, af_error *err);
/* For a plan: config and headers only, and an adapter without values. */
AF_CHECKED af_status af_run_model_open_outline(af_run_model *m, const af_run_config *run,
                                               af_error *err);
/* The run's adapter without values; part of the former. */
AF_CHECKED af_status af_run_model_outline_adapter(af_run_model *m, af_error *err);
void af_run_model_close(af_run_model *m); /* an empty one is allowed */
bool af_run_model_on_cpu(const af_run_model *m);
/* Whether ranks exchange by NCCL; of a plan, which has none, whether they would. */
bool af_run_model_uses_nccl(const af_run_model *m);
/* The highest zero_stage that is there on this device. */
int af_run_model_zero_max(const af_run_model *m);
/* Whether each rank has a piece of every weight: then all run the same passes, and together. */
static inline bool af_run_model_splits_weights(const af_run_model *m)
{
    return m->ranks > 1 && m->zero_stage >= 3;
}
/* Do nodes of the graph sum gradients over the ranks? Else GPUs are not connected, and what is
 * shared passes through the host after a pass. */
bool af_run_model_sums_by_nodes(const af_run_model *m);
/* Whether a teacher is followed: one in the same process, or a capture. */
static inline bool af_run_model_distils(const af_run_model *m)
{
    return m->teacher_spec || m->capture.file;
}
#endif
