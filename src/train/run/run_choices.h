/* run_choices.h - the choices of fields of af_run_config that are enums, by the name of the field.
 */
#ifndef AF_RUN_CHOICES_H
#define AF_RUN_CHOICES_H

#include "train/run/run_keys.h"

extern const af_key_choices af_choices_method, af_choices_uld_merge, af_choices_load_in_4bit,
    af_choices_train_on_inputs, af_choices_train_on_eos, af_choices_train_on_eot, af_choices_excess,
    af_choices_truncation, af_choices_optimizer, af_choices_task, af_choices_problem,
    af_choices_dist_backend, af_choices_order, af_choices_decay_on, af_choices_lr_decay,
    af_choices_lr_warmup_type, af_choices_lr_threshold_mode, af_choices_bf16,
    af_choices_checkpointing, af_choices_offloading, af_choices_attention, af_choices_stage,
    af_choices_mix, af_choices_save_strategy, af_choices_eval_strategy, af_choices_gemm,
    af_choices_rl, af_choices_f_divergence, af_choices_precompute_ref, af_choices_disable_dropout,
    af_choices_greater_is_better, af_choices_apollo_scale_type, af_choices_galore_proj_type;
#endif
