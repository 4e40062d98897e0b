/* run_needs.c - when a key has an effect, and the words for it: a row per need. */
#include "train/run/freeze.h"
#include "train/run/method.h"
#include "train/run/run_keys.h"

#include "base/word.h"

static bool trains_base(const af_run_config *r) { return af_method_trains_base(r); }
static bool is_frozen(const af_run_config *r) { return !af_method_trains_base(r); }
static bool is_full(const af_run_config *r) { return r->method == AF_METHOD_FULL; }
static bool is_freeze(const af_run_config *r) { return r->method == AF_METHOD_FREEZE; }
static bool not_full(const af_run_config *r) { return !is_full(r); }
static bool freezes_names(const af_run_config *r) { return is_full(r) && af_run_freezes_names(r); }
static bool counts_layers(const af_run_config *r)
{
    return is_freeze(r) || (r->llama_pro && is_frozen(r));
}
static bool is_4bit(const af_run_config *r) { return af_method_quantises(r) == 4; }
static bool is_oft(const af_run_config *r) { return r->method == AF_METHOD_OFT; }
static bool is_low_rank(const af_run_config *r) { return is_frozen(r) && !is_oft(r); }
static bool has_plus(const af_run_config *r) { return is_low_rank(r) && r->loraplus_lr_ratio > 0; }

static bool is_packed(const af_run_config *r) { return r->packing; }
static bool has_turns(const af_run_config *r) { return r->turn_template != NULL; }
static bool interleaves(const af_run_config *r) { return r->mix != AF_MIX_CONCAT; }
static bool has_eval(const af_run_config *r) { return r->val_set_size > 0 || r->test_datasets; }
static bool evaluates(const af_run_config *r)
{
    return has_eval(r) && r->eval_strategy != AF_WHEN_NO;
}

static bool has_warmup_share(const af_run_config *r) { return r->warmup_ratio > 0; }
static bool is_watched(const af_run_config *r) { return r->loss_watchdog_threshold > 0; }
static bool has_samples(const af_run_config *r) { return r->generate_samples.count > 0; }
static bool to_mlflow(const af_run_config *r) { return r->trackers & AF_TRACKER_MLFLOW; }
static bool to_wandb(const af_run_config *r) { return r->trackers & AF_TRACKER_WANDB; }
static bool to_trackio(const af_run_config *r) { return r->trackers & AF_TRACKER_TRACKIO; }

static bool is_cosine(const af_run_config *r) { return strstr(r->lr_scheduler, "cosine") != NULL; }
static bool has_waves(const af_run_config *r)
{
    return is_cosine(r) && strcmp(r->lr_scheduler, "cosine_decay") != 0;
}
static bool restarts(const af_run_config *r) { return r->jagged_steps > 0; }
static bool is_cosine_or_restarts(const af_run_config *r) { return is_cosine(r) || restarts(r); }
static bool warms_up(const af_run_config *r)
{
    return !af_word_listed(r->lr_scheduler, "constant reduce_lr_on_plateau greedy");
}
static bool counts_warm_up(const af_run_config *r)
{
    return warms_up(r) || r->optimizer == AF_OPTIMIZER_FREE_ADAMW ||
           r->optimizer == AF_OPTIMIZER_FREE_SGD;
}
static bool smooths(const af_run_config *r)
{
    return strcmp(r->lr_scheduler, "greedy") == 0 && r->lr_smooth;
}
static bool is_sgd(const af_run_config *r)
{
    return r->optimizer == AF_OPTIMIZER_SGD || r->optimizer == AF_OPTIMIZER_FREE_SGD;
}
static bool is_apollo(const af_run_config *r) { return r->optimizer == AF_OPTIMIZER_APOLLO; }
static bool is_galore(const af_run_config *r) { return r->optimizer == AF_OPTIMIZER_GALORE; }
bool af_run_projects(const af_run_config *r) { return is_apollo(r) || is_galore(r); }
static bool has_betas(const af_run_config *r)
{
    switch (r->optimizer) {
    case AF_OPTIMIZER_SGD:
    case AF_OPTIMIZER_FREE_SGD:
    case AF_OPTIMIZER_ADAFACTOR:
    case AF_OPTIMIZER_RMSPROP:
    case AF_OPTIMIZER_RMSPROP_8BIT:
    case AF_OPTIMIZER_ADAGRAD:
        return false;
    default:
        return true;
    }
}
static bool has_epsilon(const af_run_config *r)
{
    return has_betas(r) && r->optimizer != AF_OPTIMIZER_LION &&
           r->optimizer != AF_OPTIMIZER_LION_8BIT;
}

static bool is_adam(const af_run_config *r)
{
    return r->optimizer == AF_OPTIMIZER_ADAM || r->optimizer == AF_OPTIMIZER_ADAMW ||
           r->optimizer == AF_OPTIMIZER_ADAMW_8BIT ||
           r->optimizer == AF_OPTIMIZER_ADAMW_TORCH_8BIT || r->optimizer == AF_OPTIMIZER_ADAMW_4BIT;
}
bool af_run_corrects_bias(const af_run_config *r) { return r->bias_correction || !is_adam(r); }

static bool has_no_rl(const af_run_config *r) { return r->rl == AF_RL_NONE; }
static bool learns_tokens(const af_run_config *r) { return !r->rl && r->task != AF_TASK_LABELS; }
static bool learns_labels(const af_run_config *r) { return !r->rl && r->task == AF_TASK_LABELS; }
static bool is_reward(const af_run_config *r) { return r->rl == AF_RL_REWARD; }
static bool prefers(const af_run_config *r) { return r->rl && !is_reward(r); }
static bool has_losses(const af_run_config *r) { return prefers(r) && r->rl != AF_RL_ORPO; }
static bool is_dpo(const af_run_config *r) { return r->rl == AF_RL_DPO || r->rl == AF_RL_IPO; }
static bool is_orpo(const af_run_config *r) { return r->rl == AF_RL_ORPO; }
static bool is_kto(const af_run_config *r) { return r->rl == AF_RL_KTO; }
static bool is_cpo(const af_run_config *r) { return r->rl == AF_RL_CPO || r->rl == AF_RL_SIMPO; }
static bool is_simpo(const af_run_config *r)
{
    return r->rl == AF_RL_SIMPO || (r->rl == AF_RL_CPO && r->dpo_loss_type.count == 1 &&
                                    strcmp(r->dpo_loss_type.item[0], "simpo") == 0);
}
static bool can_smooth(const af_run_config *r) { return is_dpo(r) || is_cpo(r); }
static bool has_reference(const af_run_config *r) { return af_pref_has_reference(r->rl); }

static bool has_teacher(const af_run_config *r) { return r->teacher_model != NULL; }
static bool has_capture(const af_run_config *r) { return r->kd_logits != NULL; }
static bool distills(const af_run_config *r) { return has_teacher(r) || has_capture(r); }
static bool is_asft(const af_run_config *r) { return r->asft; }
static bool diverges(const af_run_config *r) { return distills(r) || is_asft(r); }
static bool has_uld(const af_run_config *r) { return r->kd_uld; }
static bool is_hybrid(const af_run_config *r) { return r->kd_uld && r->uld_hybrid; }

/* A need is met when `met` says so or lr_scheduler is one of `schedulers`. */
typedef struct need_row {
    const char *text; /* of a key without effect */
    bool (*met)(const af_run_config *r);
    const char *schedulers;
} need_row;

static const need_row needs[] = {
    [AF_NEED_ADAPTER] = {"without 'adapter': lora, qlora or oft", is_frozen},
    [AF_NEED_NEW_ADAPTER] = {"without 'adapter': lora, qlora or oft", is_frozen},
    [AF_NEED_LOW_RANK] = {"without 'adapter: lora' or 'adapter: qlora'", is_low_rank},
    [AF_NEED_OFT] = {"without 'adapter: oft'", is_oft},
    [AF_NEED_FROZEN] = {"where the base itself is trained: it is for frozen weights", is_frozen},
    [AF_NEED_4BIT] = {"without 'load_in_4bit: true' or 'adapter: qlora'", is_4bit},
    [AF_NEED_PACKING] = {"without 'sample_packing: true'", is_packed},
    [AF_NEED_TURNS] = {"without 'template', a name of LLaMA-Factory's table", has_turns},
    [AF_NEED_ANSWERS] = {"with 'rl': the last answers are compared", has_no_rl},
    [AF_NEED_EVAL_DATA] = {"without 'val_set_size' or 'test_datasets'", has_eval},
    [AF_NEED_EVAL] = {"without 'val_set_size' or 'test_datasets', or with 'eval_strategy: no'",
                      evaluates},
    [AF_NEED_WATCHDOG] = {"without 'loss_watchdog_threshold'", is_watched},
    [AF_NEED_COSINE] = {"unless 'lr_scheduler' is a cosine, rex or warmup_stable_decay", is_cosine,
                        "rex warmup_stable_decay"},
    [AF_NEED_FLOOR] = {"unless 'lr_scheduler' is a cosine, polynomial, rex, warmup_stable_decay, "
                       "linear_schedule, reduce_lr_on_plateau or greedy",
                       is_cosine,
                       "rex warmup_stable_decay polynomial linear_schedule reduce_lr_on_plateau "
                       "greedy"},
    [AF_NEED_FLOOR_SHARE] = {"unless 'lr_scheduler' is a cosine, polynomial, rex, "
                             "warmup_stable_decay, linear_schedule or reduce_lr_on_plateau, or "
                             "'jagged_restart_steps' is set",
                             is_cosine_or_restarts,
                             "rex warmup_stable_decay polynomial linear_schedule "
                             "reduce_lr_on_plateau"},
    [AF_NEED_JAGGED] = {"without 'jagged_restart_steps'", restarts},
    [AF_NEED_POLYNOMIAL] = {"unless 'lr_scheduler: polynomial'", .schedulers = "polynomial"},
    [AF_NEED_WAVES] = {"unless 'lr_scheduler' is a cosine or warmup_stable_decay", has_waves,
                       "warmup_stable_decay"},
    [AF_NEED_WSD] = {"unless 'lr_scheduler: warmup_stable_decay'",
                     .schedulers = "warmup_stable_decay"},
    [AF_NEED_WARMUP] = {"with 'lr_scheduler' constant (constant_with_warmup has one), "
                        "reduce_lr_on_plateau or greedy",
                        warms_up},
    [AF_NEED_WARMUP_STEPS] = {"with 'lr_scheduler' constant (constant_with_warmup has a warm-up), "
                              "reduce_lr_on_plateau or greedy",
                              counts_warm_up},
    [AF_NEED_WARMUP_SHARE] = {"without 'warmup_ratio'", has_warmup_share},
    [AF_NEED_INVERSE_SQRT] = {"unless 'lr_scheduler: inverse_sqrt'", .schedulers = "inverse_sqrt"},
    [AF_NEED_COSINE_AHEAD] = {"unless 'lr_scheduler: cosine_warmup_with_min_lr'",
                              .schedulers = "cosine_warmup_with_min_lr"},
    [AF_NEED_DECAY_STEPS] =
        {"unless 'lr_scheduler' is warmup_stable_decay, cosine_decay or linear_schedule",
         .schedulers = "warmup_stable_decay cosine_decay linear_schedule"},
    [AF_NEED_GAMMA] = {"unless 'lr_scheduler' is step, exponential, step_decay, exponential_decay, "
                       "reduce_lr_on_plateau or greedy",
                       .schedulers = "step step_decay exponential exponential_decay "
                                     "reduce_lr_on_plateau greedy"},
    [AF_NEED_PLATEAU] = {"unless 'lr_scheduler' is reduce_lr_on_plateau or greedy",
                         .schedulers = "reduce_lr_on_plateau greedy"},
    [AF_NEED_GREEDY] = {"unless 'lr_scheduler: greedy'", .schedulers = "greedy"},
    [AF_NEED_SMOOTH_RATE] = {"without 'lr_scheduler: greedy' and 'lr_smooth: true'", smooths},
    [AF_NEED_STEP_SIZE] = {"unless 'lr_scheduler' is step or step_decay",
                           .schedulers = "step step_decay"},
    [AF_NEED_WARMUP_START] =
        {"with this 'lr_scheduler'",
         .schedulers = "cosine cosine_with_min_lr cosine_with_restarts linear polynomial "
                       "inverse_sqrt step exponential constant_with_warmup cosine_decay "
                       "linear_schedule step_decay exponential_decay"},
    [AF_NEED_ADAM] = {"with this optimizer", has_betas},
    [AF_NEED_EPSILON] = {"with this optimizer", has_epsilon},
    [AF_NEED_MOMENTS] = {"unless 'optimizer' is adam or adamw", is_adam},
    [AF_NEED_SGD] = {"unless 'optimizer: sgd'", is_sgd},
    [AF_NEED_APOLLO] = {"unless 'optimizer: apollo'", is_apollo},
    [AF_NEED_GALORE] = {"unless 'optimizer: galore'", is_galore},
    [AF_NEED_PROJECTED] = {"unless 'optimizer' is apollo or galore", af_run_projects},
    [AF_NEED_SAMPLES] = {"without 'generate_samples'", has_samples},
    [AF_NEED_TOKENS] = {"with 'rl' or 'task_type: SEQ_CLS'", learns_tokens},
    [AF_NEED_LORAPLUS] = {"without 'loraplus_lr_ratio'", has_plus},
    [AF_NEED_BASE] = {"with an adapter: it is for full fine-tuning", trains_base},
    [AF_NEED_FULL] = {"with an adapter", is_full},
    [AF_NEED_FREEZE_NAMES] = {"without 'freeze_parameters', its '_regex' or its '_ratio'",
                              freezes_names},
    [AF_NEED_FREEZE] = {"without 'adapter: freeze'", is_freeze},
    [AF_NEED_FREEZE_LAYERS] = {"without 'adapter: freeze' or 'use_llama_pro'", counts_layers},
    [AF_NEED_SOME_LAYERS] = {"without 'adapter': freeze, lora, qlora, dora or oft", not_full},
    [AF_NEED_INTERLEAVE] = {"unless 'mix_strategy' interleaves the datasets", interleaves},
    [AF_NEED_MLFLOW] = {"without 'report_to: mlflow'", to_mlflow},
    [AF_NEED_WANDB] = {"without 'report_to: wandb'", to_wandb},
    [AF_NEED_TRACKIO] = {"without 'report_to: trackio'", to_trackio},
    [AF_NEED_RL] = {"without 'rl': dpo, ipo, kto, orpo, simpo or cpo", prefers},
    [AF_NEED_LOSS_TYPE] = {"without 'rl': dpo, ipo, kto, simpo or cpo", has_losses},
    [AF_NEED_DPO] = {"without 'rl: dpo'", is_dpo},
    [AF_NEED_ORPO] = {"without 'rl: orpo'", is_orpo},
    [AF_NEED_SIMPO] = {"without 'rl: simpo'", is_simpo},
    [AF_NEED_CPO] = {"without 'rl: cpo' or 'rl: simpo'", is_cpo},
    [AF_NEED_KTO] = {"without 'rl: kto'", is_kto},
    [AF_NEED_SMOOTHING] = {"without 'rl': dpo, cpo or simpo", can_smooth},
    [AF_NEED_REFERENCE] = {"without 'rl': dpo, ipo or kto, which have a reference", has_reference},
    [AF_NEED_REWARD] = {"without 'rl: reward'", is_reward},
    [AF_NEED_TEACHER] = {"without 'teacher_model'", has_teacher},
    [AF_NEED_DISTILL] = {"without 'teacher_model' or 'kd_logits'", distills},
    [AF_NEED_CAPTURE] = {"without 'kd_logits'", has_capture},
    [AF_NEED_DIVERGENCE] = {"without 'teacher_model', 'kd_logits' or 'use_asft_loss'", diverges},
    [AF_NEED_EAFT] = {"without 'use_eaft' or 'use_eaft_loss'", af_run_weighs_by_entropy},
    [AF_NEED_ASFT] = {"without 'use_asft_loss'", is_asft},
    [AF_NEED_ULD] = {"without 'kd_uld: true'", has_uld},
    [AF_NEED_ULD_HYBRID] = {"without 'uld_use_hybrid_loss: true'", is_hybrid},
    [AF_NEED_LABELS] = {"without 'task_type: SEQ_CLS'", learns_labels},
};

const char *af_key_need_text(af_key_need need) { return need ? needs[need].text : ""; }

bool af_key_has_effect(const af_run_config *r, af_key_need need)
{
    const need_row *n = &needs[need];
    return need == AF_NEED_NOTHING || (n->met && n->met(r)) ||
           (n->schedulers && af_word_listed(r->lr_scheduler, n->schedulers));
}
