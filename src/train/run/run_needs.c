/* run_needs.c - when a key has an effect, and the words for it. */
#include "train/run/freeze.h"
#include "train/run/method.h"
#include "train/run/run_keys.h"

const char *af_key_need_text(af_key_need need)
{
    static const char *const text[] = {
        [AF_NEED_NOTHING] = "",
        [AF_NEED_ADAPTER] = "without 'adapter: lora' or 'adapter: qlora'",
        [AF_NEED_NEW_ADAPTER] = "without 'adapter: lora' or 'adapter: qlora'",
        [AF_NEED_FROZEN] = "where the base itself is trained: it is for frozen weights",
        [AF_NEED_4BIT] = "without 'load_in_4bit: true' or 'adapter: qlora'",
        [AF_NEED_PACKING] = "without 'sample_packing: true'",
        [AF_NEED_TURNS] = "without 'template', a name of LLaMA-Factory's table",
        [AF_NEED_ANSWERS] = "with 'rl': the last answers are compared",
        [AF_NEED_EVAL_DATA] = "without 'val_set_size' or 'test_datasets'",
        [AF_NEED_EVAL] = "without 'val_set_size' or 'test_datasets'",
        [AF_NEED_WATCHDOG] = "without 'loss_watchdog_threshold'",
        [AF_NEED_COSINE] = "unless 'lr_scheduler' is a cosine, rex or warmup_stable_decay",
        [AF_NEED_FLOOR] = "unless 'lr_scheduler' is a cosine, polynomial, rex, "
                          "warmup_stable_decay, linear_schedule "
                          "or reduce_lr_on_plateau",
        [AF_NEED_POLYNOMIAL] = "unless 'lr_scheduler: polynomial'",
        [AF_NEED_RESTARTS] = "unless 'lr_scheduler: cosine_with_restarts'",
        [AF_NEED_WSD] = "unless 'lr_scheduler: warmup_stable_decay'",
        [AF_NEED_DECAY_STEPS] =
            "unless 'lr_scheduler' is warmup_stable_decay, cosine_decay or linear_schedule",
        [AF_NEED_GAMMA] = "unless 'lr_scheduler' is step, exponential, step_decay, "
                          "exponential_decay or reduce_lr_on_plateau",
        [AF_NEED_PLATEAU] = "unless 'lr_scheduler: reduce_lr_on_plateau'",
        [AF_NEED_STEP_SIZE] = "unless 'lr_scheduler' is step or step_decay",
        [AF_NEED_MLX_RATE] =
            "unless 'lr_scheduler' is cosine_decay, linear_schedule, step_decay or "
            "exponential_decay",
        [AF_NEED_ADAM] = "with this optimizer",
        [AF_NEED_EPSILON] = "with this optimizer",
        [AF_NEED_SGD] = "unless 'optimizer: sgd'",
        [AF_NEED_SAMPLES] = "without 'generate_samples'",
        [AF_NEED_TOKENS] = "with 'rl' or 'task_type: SEQ_CLS'",
        [AF_NEED_LORAPLUS] = "without 'loraplus_lr_ratio'",
        [AF_NEED_BASE] = "with an adapter: it is for full fine-tuning",
        [AF_NEED_FULL] = "with an adapter",
        [AF_NEED_FREEZE] = "without 'adapter: freeze'",
        [AF_NEED_INTERLEAVE] = "unless 'mix_strategy' interleaves the datasets",
        [AF_NEED_MLFLOW] = "without 'report_to: mlflow'",
        [AF_NEED_WANDB] = "without 'report_to: wandb'",
        [AF_NEED_TRACKIO] = "without 'report_to: trackio'",
        [AF_NEED_RL] = "without 'rl': dpo, ipo, kto, orpo, simpo or cpo",
        [AF_NEED_LOSS_TYPE] = "without 'rl': dpo, ipo, kto, simpo or cpo",
        [AF_NEED_DPO] = "without 'rl: dpo'",
        [AF_NEED_ORPO] = "without 'rl: orpo'",
        [AF_NEED_SIMPO] = "without 'rl: simpo'",
        [AF_NEED_CPO] = "without 'rl: cpo' or 'rl: simpo'",
        [AF_NEED_KTO] = "without 'rl: kto'",
        [AF_NEED_SMOOTHING] = "without 'rl': dpo, cpo or simpo",
        [AF_NEED_REFERENCE] = "without 'rl': dpo, ipo or kto, which have a reference",
        [AF_NEED_REWARD] = "without 'rl: reward'",
        [AF_NEED_TEACHER] = "without 'teacher_model'",
        [AF_NEED_DISTILL] = "without 'teacher_model' or 'kd_logits'",
        [AF_NEED_CAPTURE] = "without 'kd_logits'",
        [AF_NEED_ULD] = "without 'kd_uld: true'",
        [AF_NEED_ULD_HYBRID] = "without 'uld_use_hybrid_loss: true'",
        [AF_NEED_LABELS] = "without 'task_type: SEQ_CLS'",
    };
    return text[need];
}

static bool is_scheduled(const af_run_config *r, const char *name)
{
    return strcmp(r->lr_scheduler, name) == 0;
}

bool af_key_has_effect(const af_run_config *r, af_key_need need)
{
    switch (need) {
    case AF_NEED_NOTHING:
        return true;
    case AF_NEED_ADAPTER:
    case AF_NEED_NEW_ADAPTER:
    case AF_NEED_FROZEN:
        return !af_method_trains_base(r);
    case AF_NEED_4BIT:
        return af_method_quantises(r) == 4;
    case AF_NEED_PACKING:
        return r->packing;
    case AF_NEED_TURNS:
        return r->turn_template != NULL;
    case AF_NEED_ANSWERS:
        return r->rl == AF_RL_NONE;
    case AF_NEED_EVAL_DATA:
        return r->val_set_size > 0 || r->test_datasets;
    case AF_NEED_EVAL:
        return af_key_has_effect(r, AF_NEED_EVAL_DATA) && r->eval_strategy != AF_WHEN_NO;
    case AF_NEED_WATCHDOG:
        return r->loss_watchdog_threshold > 0;
    case AF_NEED_COSINE:
        return strstr(r->lr_scheduler, "cosine") || is_scheduled(r, "rex") ||
               af_key_has_effect(r, AF_NEED_WSD);
    case AF_NEED_FLOOR:
        return af_key_has_effect(r, AF_NEED_COSINE) || af_key_has_effect(r, AF_NEED_POLYNOMIAL) ||
               is_scheduled(r, "linear_schedule") || af_key_has_effect(r, AF_NEED_PLATEAU);
    case AF_NEED_POLYNOMIAL:
        return is_scheduled(r, "polynomial");
    case AF_NEED_RESTARTS:
        return is_scheduled(r, "cosine_with_restarts");
    case AF_NEED_WSD:
        return is_scheduled(r, "warmup_stable_decay");
    case AF_NEED_DECAY_STEPS:
        return af_key_has_effect(r, AF_NEED_WSD) || is_scheduled(r, "cosine_decay") ||
               is_scheduled(r, "linear_schedule");
    case AF_NEED_GAMMA:
        return af_key_has_effect(r, AF_NEED_STEP_SIZE) || af_key_has_effect(r, AF_NEED_PLATEAU) ||
               is_scheduled(r, "exponential") || is_scheduled(r, "exponential_decay");
    case AF_NEED_PLATEAU:
        return is_scheduled(r, "reduce_lr_on_plateau");
    case AF_NEED_STEP_SIZE:
        return is_scheduled(r, "step") || is_scheduled(r, "step_decay");
    case AF_NEED_MLX_RATE:
        return is_scheduled(r, "cosine_decay") || is_scheduled(r, "linear_schedule") ||
               is_scheduled(r, "step_decay") || is_scheduled(r, "exponential_decay");
    case AF_NEED_ADAM:
        return r->optimizer != AF_OPTIMIZER_SGD && r->optimizer != AF_OPTIMIZER_ADAFACTOR &&
               r->optimizer != AF_OPTIMIZER_RMSPROP;
    case AF_NEED_EPSILON:
        return af_key_has_effect(r, AF_NEED_ADAM) && r->optimizer != AF_OPTIMIZER_LION;
    case AF_NEED_SGD:
        return r->optimizer == AF_OPTIMIZER_SGD;
    case AF_NEED_SAMPLES:
        return r->generate_samples.count > 0;
    case AF_NEED_TOKENS:
        return r->rl == AF_RL_NONE && r->task != AF_TASK_LABELS;
    case AF_NEED_LORAPLUS:
        return !af_method_trains_base(r) && r->loraplus_lr_ratio > 0;
    case AF_NEED_BASE:
        return af_method_trains_base(r);
    case AF_NEED_FULL:
        return r->method == AF_METHOD_FULL;
    case AF_NEED_INTERLEAVE:
        return r->mix != AF_MIX_CONCAT;
    case AF_NEED_FREEZE:
        return r->method == AF_METHOD_FREEZE;
    case AF_NEED_MLFLOW:
        return r->trackers & AF_TRACKER_MLFLOW;
    case AF_NEED_WANDB:
        return r->trackers & AF_TRACKER_WANDB;
    case AF_NEED_TRACKIO:
        return r->trackers & AF_TRACKER_TRACKIO;
    case AF_NEED_RL:
        return r->rl != AF_RL_NONE && r->rl != AF_RL_REWARD;
    case AF_NEED_LOSS_TYPE:
        return af_key_has_effect(r, AF_NEED_RL) && r->rl != AF_RL_ORPO;
    case AF_NEED_DPO:
        return r->rl == AF_RL_DPO || r->rl == AF_RL_IPO;
    case AF_NEED_ORPO:
        return r->rl == AF_RL_ORPO;
    case AF_NEED_SIMPO:
        return r->rl == AF_RL_SIMPO || (r->rl == AF_RL_CPO && r->dpo_loss_type.count == 1 &&
                                        strcmp(r->dpo_loss_type.item[0], "simpo") == 0);
    case AF_NEED_CPO:
        return r->rl == AF_RL_CPO || r->rl == AF_RL_SIMPO;
    case AF_NEED_KTO:
        return r->rl == AF_RL_KTO;
    case AF_NEED_SMOOTHING:
        return af_key_has_effect(r, AF_NEED_DPO) || af_key_has_effect(r, AF_NEED_CPO);
    case AF_NEED_REFERENCE:
        return af_pref_has_reference(r->rl);
    case AF_NEED_REWARD:
        return r->rl == AF_RL_REWARD;
    case AF_NEED_TEACHER:
        return r->teacher_model != NULL;
    case AF_NEED_DISTILL:
        return r->teacher_model || r->kd_logits;
    case AF_NEED_CAPTURE:
        return r->kd_logits != NULL;
    case AF_NEED_ULD:
        return r->kd_uld;
    case AF_NEED_ULD_HYBRID:
        return r->kd_uld && r->uld_hybrid;
    case AF_NEED_LABELS:
        return r->task == AF_TASK_LABELS && r->rl == AF_RL_NONE;
    }
    return true;
}
