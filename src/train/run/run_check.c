/* run_check.c - every check of a run file that needs neither model nor data: keys that are missing,
 * that contradict each other, that would have no effect. */
#include "afinar/graph.h"
#include "afinar/schedule.h"
#include "base/log.h"
#include "format/chat/turn_template.h"
#include "train/run/adapter_start.h"
#include "train/run/freeze.h"
#include "train/run/method.h"
#include "train/run/run_keys.h"

static const char *need_text(af_key_need need)
{
    static const char *const text[] = {
        [AF_NEED_NOTHING] = "",
        [AF_NEED_ADAPTER] = "without 'adapter: lora' or 'adapter: qlora'",
        [AF_NEED_NEW_ADAPTER] = "without 'adapter: lora' or 'adapter: qlora'",
        [AF_NEED_FROZEN] = "where the base itself is trained: it is for frozen weights",
        [AF_NEED_4BIT] = "without 'load_in_4bit: true' or 'adapter: qlora'",
        [AF_NEED_PACKING] = "without 'sample_packing: true'",
        [AF_NEED_TURNS] = "without 'template', a name of LLaMA-Factory's table",
        [AF_NEED_EVAL_DATA] = "without 'val_set_size' or 'test_datasets'",
        [AF_NEED_EVAL] = "without 'val_set_size' or 'test_datasets'",
        [AF_NEED_WATCHDOG] = "without 'loss_watchdog_threshold'",
        [AF_NEED_COSINE] = "unless 'lr_scheduler' is a cosine, rex or warmup_stable_decay",
        [AF_NEED_FLOOR] =
            "unless 'lr_scheduler' is a cosine, polynomial, rex or warmup_stable_decay",
        [AF_NEED_POLYNOMIAL] = "unless 'lr_scheduler: polynomial'",
        [AF_NEED_RESTARTS] = "unless 'lr_scheduler: cosine_with_restarts'",
        [AF_NEED_WSD] = "unless 'lr_scheduler: warmup_stable_decay'",
        [AF_NEED_ADAM] = "with this optimizer",
        [AF_NEED_EPSILON] = "with this optimizer",
        [AF_NEED_SGD] = "unless 'optimizer: sgd'",
        [AF_NEED_SAMPLES] = "without 'generate_samples'",
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
    case AF_NEED_EVAL_DATA:
        return r->val_set_size > 0 || r->test_datasets;
    case AF_NEED_EVAL:
        return af_key_has_effect(r, AF_NEED_EVAL_DATA) && r->eval_strategy != AF_WHEN_NO;
    case AF_NEED_WATCHDOG:
        return r->loss_watchdog_threshold > 0;
    case AF_NEED_COSINE:
        return strstr(r->lr_scheduler, "cosine") || strcmp(r->lr_scheduler, "rex") == 0 ||
               af_key_has_effect(r, AF_NEED_WSD);
    case AF_NEED_FLOOR:
        return af_key_has_effect(r, AF_NEED_COSINE) || af_key_has_effect(r, AF_NEED_POLYNOMIAL);
    case AF_NEED_POLYNOMIAL:
        return strcmp(r->lr_scheduler, "polynomial") == 0;
    case AF_NEED_RESTARTS:
        return strcmp(r->lr_scheduler, "cosine_with_restarts") == 0;
    case AF_NEED_WSD:
        return strcmp(r->lr_scheduler, "warmup_stable_decay") == 0;
    case AF_NEED_ADAM:
        return r->optimizer != AF_OPTIMIZER_SGD && r->optimizer != AF_OPTIMIZER_ADAFACTOR &&
               r->optimizer != AF_OPTIMIZER_RMSPROP;
    case AF_NEED_EPSILON:
        return af_key_has_effect(r, AF_NEED_ADAM) && r->optimizer != AF_OPTIMIZER_LION;
    case AF_NEED_SGD:
        return r->optimizer == AF_OPTIMIZER_SGD;
    case AF_NEED_SAMPLES:
        return r->generate_samples.count > 0;
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

/* false, 0 and auto ask for nothing, whatever the key; but enable_thinking: false does. */
static bool asks_nothing(const af_run_config *r, const af_key *k)
{
    const af_key_value v = af_key_get(r, k);
    return (k->kind == AF_KEY_BOOL && v.flag == (k->need == AF_NEED_TURNS)) ||
           (k->kind == AF_KEY_I64 && v.i64 == 0) || (k->kind == AF_KEY_F64 && v.f64 == 0) ||
           (k->kind == AF_KEY_TRI && v.choice != AF_TRI_YES);
}

/* Whether a key without effect is to be left out of the run. Without an 'adapter' key its settings
 * are more likely a forgotten line than left-overs. */
static bool may_be_idle(const af_run_config *r, const af_key *k)
{
    const bool adapter = k->need == AF_NEED_ADAPTER || k->need == AF_NEED_NEW_ADAPTER;
    const bool forgotten = (adapter && !r->adapter_is_named) || k->need == AF_NEED_TURNS ||
                           (k->need >= AF_NEED_RL && r->rl == AF_RL_NONE); /* another training */
    return r->key_line[k - af_keys] > 0 && !forgotten;
}

static af_status check_effects(af_run_config *r, af_error *err)
{
    char at[300];
    af_status st = AF_OK;
    for (int i = 0; i < af_keys_count && st == AF_OK; i++) {
        const af_key *k = &af_keys[i];
        if (!r->key_line[i] || af_key_has_effect(r, k->need))
            continue;
        if (r->key_line[i] > 0 && asks_nothing(r, k)) {
            st = af_key_reset(r, k, err);
        } else if (may_be_idle(r, k)) {
            if (k->need == AF_NEED_BASE || k->need == AF_NEED_FULL || k->need == AF_NEED_FREEZE ||
                k->need == AF_NEED_FROZEN) /* what would be trained, and how */
                af_log_write(AF_LOG_WARN, "%s: %s has no effect %s",
                             af_run_key_loc(r, k->name, at, sizeof at), k->name,
                             need_text(k->need));
            st = af_run_idle_key(r, k->name, need_text(k->need), err);
            if (st == AF_OK)
                st = af_key_reset(r, k, err);
        } else {
            st = af_fail(err, AF_EUSAGE, "%s: %s has no effect %s",
                         af_run_key_loc(r, k->name, at, sizeof at), k->name, need_text(k->need));
        }
    }
    return st;
}

/* Keys for which something close happens instead. */
static af_status check_instead(const af_run_config *r, af_error *err)
{
    af_status st = AF_OK;
    for (const af_idle_key *k = r->instead->first; k && st == AF_OK; k = k->next)
        if (!af_key_has_effect(r, (af_key_need)k->need))
            st = af_run_idle_add(r, k->key, k->line, need_text((af_key_need)k->need), err);
        else if (r->strict)
            st = af_fail(err, AF_EUNSUPPORTED, "%s:%d: '%s' is not supported: %s", r->path, k->line,
                         k->key, k->why);
        else
            af_log_write(AF_LOG_WARN, "%s:%d: '%s' is not supported: %s", r->path, k->line, k->key,
                         k->why);
    return st;
}

/* Where a key was set to something: not false, not 0. 0 when it was not. */
static int active(const af_run_config *r, const af_key *k)
{
    return asks_nothing(r, k) ? 0 : r->key_line[k - af_keys];
}

/* In the trainers of Hugging Face the number of steps wins over the share. */
static af_status resolve_warmup(af_run_config *r, af_error *err)
{
    const af_key *ratio = af_key_find("warmup_ratio");
    if (r->dialect == AF_DIALECT_NONE || active(r, ratio) <= 0 ||
        active(r, af_key_find("warmup_steps")) <= 0)
        return AF_OK;
    const af_status st = af_run_idle_key(r, "warmup_ratio", "'warmup_steps' wins over it", err);
    return st == AF_OK ? af_key_reset(r, ratio, err) : st;
}

static bool updates_bf16(af_optimizer_kind k)
{
    return k == AF_OPTIMIZER_ADAMW || k == AF_OPTIMIZER_ADAM || k == AF_OPTIMIZER_ADAMW_8BIT ||
           k == AF_OPTIMIZER_ADAMW_TORCH_8BIT;
}

/* Keys that exclude each other. */
static af_status check_pairs(const af_run_config *r, af_error *err)
{
    char at[300];
    static const char *const pairs[][2] = {
        {"warmup_steps", "warmup_ratio"},
        {"cosine_min_lr_ratio", "min_lr"},
        {"lr_decay_ratio", "lr_decay_steps"},
        {"embedding_lr", "embedding_lr_scale"},
        {"cosine_min_lr_ratio", "lr_quadratic_warmup"},
        {"val_set_size", "test_datasets"},
        {"save_steps", "saves_per_epoch"},
        {"eval_steps", "evals_per_epoch"},
        {"train_on_inputs", "roles_to_train"},
        {"train_on_inputs", "mask_history"},
        {"lora_layers_to_transform", "num_layers"},
        {"resume_from_checkpoint", "auto_resume_from_checkpoints"},
        {"bf16_stochastic_round", "kahan_sum"},
    };
    for (size_t i = 0; i < AF_LEN(pairs); i++) {
        const af_key *a = af_key_find(pairs[i][0]), *b = af_key_find(pairs[i][1]);
        const int la = active(r, a), lb = active(r, b);
        if (la && lb)
            return af_fail(err, AF_EUSAGE, "%s: %s and %s contradict each other: give one%s%s%s",
                           af_run_key_loc(r, (la > lb ? a : b)->name, at, sizeof at), a->name,
                           b->name, la * lb < 0 ? " (" : "",
                           la * lb < 0 ? (la > lb ? a : b)->name : "",
                           la * lb < 0 ? "=null takes the file's back)" : "");
    }
    if (r->load_in_8bit && (r->method == AF_METHOD_QLORA || r->load_in_4bit == AF_TRI_YES))
        return af_fail(err, AF_EUSAGE, "%s: load_in_8bit and %s contradict each other: give one",
                       af_run_key_loc(r, "load_in_8bit", at, sizeof at),
                       r->load_in_4bit == AF_TRI_YES ? "load_in_4bit" : "adapter: qlora");
    if (r->method == AF_METHOD_QLORA && r->load_in_4bit == AF_TRI_NO)
        return af_fail(err, AF_EUSAGE,
                       "%s: 'adapter: qlora' and 'load_in_4bit: false' contradict each other",
                       af_run_key_loc(r, "load_in_4bit", at, sizeof at));
    if (r->resume && strcmp(r->resume, "auto") == 0 && r->overwrite_output_dir)
        return af_fail(err, AF_EUSAGE,
                       "%s: resume_from_checkpoint and overwrite_output_dir contradict each other: "
                       "give one",
                       af_run_key_loc(r, "resume_from_checkpoint", at, sizeof at));
    if (af_method_bf16_weights(r) && !updates_bf16(r->optimizer))
        return af_fail(err, AF_EUSAGE,
                       "%s: weights in bf16 are updated by adamw, adam, adamw_8bit or "
                       "adamw_torch_8bit, not by this optimizer",
                       af_run_key_loc(r, "optimizer", at, sizeof at));
    if (r->checkpointing == AF_TRI_NO && r->offloading == AF_TRI_YES)
        return af_fail(err, AF_EUSAGE,
                       "%s: 'activation_offloading: true' recomputes: it and "
                       "'gradient_checkpointing: false' contradict each other",
                       af_run_key_loc(r, "activation_offloading", at, sizeof at));
    if (r->val_set_size >= 1 && r->val_set_size != (double)(int64_t)r->val_set_size)
        return af_fail(err, AF_EUSAGE,
                       "%s: val_set_size %g is neither a share below 1 nor a whole number",
                       af_run_key_loc(r, "val_set_size", at, sizeof at), r->val_set_size);
    af_start_kind kind;
    int power_steps;
    if (!af_start_find(r->lora_init, &kind, &power_steps))
        return af_fail(err, AF_EUSAGE,
                       "%s: peft_init_lora_weights is '%.40s', which is not supported, not one of: "
                       "%s",
                       af_run_key_loc(r, "peft_init_lora_weights", at, sizeof at), r->lora_init,
                       af_start_names());
    return AF_OK;
}

static af_status check_schedule(const af_run_config *r, af_error *err)
{
    char at[300];
    af_schedule s;
    const af_status st = af_schedule_init(&s, &(af_schedule_opts){.name = r->lr_scheduler}, err);
    return st == AF_OK
               ? AF_OK
               : af_fail_prefix(st, err, "%s", af_run_key_loc(r, "lr_scheduler", at, sizeof at));
}

/* Lists whose absence means a default, not an empty list. */
static af_status check_lists(const af_run_config *r, af_error *err)
{
    static const char *const keys[] = {"lora_target_modules", "lora_target_parameters",
                                       "lora_layers_to_transform", "roles_to_train"};
    char at[300];
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        const af_key *k = af_key_find(keys[i]);
        const af_strings list = af_key_get(r, k).list;
        if (list.item && list.count == 0)
            return af_fail(err, AF_EUSAGE,
                           "%s: %s is an empty list; leave the key out for its default",
                           af_run_key_loc(r, k->name, at, sizeof at), k->name);
    }
    return AF_OK;
}

static af_status check_required(const af_run_config *r, af_error *err)
{
    char at[300];
    if (!r->base_model || !r->base_model[0])
        return af_fail(err, AF_EUSAGE, "%s: base_model is missing", r->path);
    if (!r->datasets)
        return af_fail(err, AF_EUSAGE, "%s: datasets is missing", r->path);
    if (!r->output_dir || !r->output_dir[0])
        return af_fail(err, AF_EUSAGE, "%s: output_dir is empty",
                       af_run_key_loc(r, "output_dir", at, sizeof at));
    if (r->max_steps == 0)
        return af_fail(err, AF_EUSAGE, "%s: max_steps is 0: the run would do nothing",
                       af_run_key_loc(r, "max_steps", at, sizeof at));
    if (r->num_epochs == 0 && r->max_steps < 0)
        return af_fail(err, AF_EUSAGE, "%s: num_epochs is 0: the run would do nothing",
                       af_run_key_loc(r, "num_epochs", at, sizeof at));
    return AF_OK;
}

/* The HF trainer also takes true for the newest checkpoint, and false for none. */
static void resolve_resume(af_run_config *r)
{
    if (r->resume && strcmp(r->resume, "true") == 0)
        r->resume = "auto";
    if (r->resume && strcmp(r->resume, "false") == 0) {
        r->resume = NULL;
        r->key_line[af_key_find("resume_from_checkpoint") - af_keys] = 0;
    }
}

/* A template may be named by three keys; afterwards `chat_template` has what Jinja renders, and
 * `template` only a name of the table of turn templates. */
static af_status resolve_template(af_run_config *r, af_error *err)
{
    static const char *const keys[] = {"chat_template", "chat_template_jinja", "template"};
    char at[300];
    const bool jinja = r->chat_template && strcmp(r->chat_template, "jinja") == 0;
    if (jinja && !r->chat_template_jinja)
        return af_fail(err, AF_EUSAGE, "%s: 'chat_template: jinja' needs 'chat_template_jinja'",
                       af_run_key_loc(r, keys[0], at, sizeof at));
    const int from = r->chat_template_jinja ? 1 : r->turn_template ? 2 : 0;
    if ((from == 1 && r->chat_template && !jinja) || (from == 1 && r->turn_template) ||
        (from == 2 && r->chat_template))
        return af_fail(err, AF_EUSAGE, "%s: %s and %s contradict each other: give one",
                       af_run_key_loc(r, keys[from], at, sizeof at), keys[from],
                       r->chat_template ? keys[0] : keys[2]);
    if (from == 0 || (from == 2 && af_turn_template_find(r->turn_template)))
        return AF_OK;
    r->chat_template = from == 1 ? r->chat_template_jinja : r->turn_template;
    r->chat_template_jinja = r->turn_template = NULL;
    r->key_line[af_key_find(keys[0]) - af_keys] = r->key_line[af_key_find(keys[from]) - af_keys];
    r->key_name[af_key_find(keys[0]) - af_keys] = keys[from]; /* the name to look for */
    r->key_line[af_key_find(keys[from]) - af_keys] = 0;
    return AF_OK;
}

/* A dropout that the file asks for and the run does not have. */
static af_status check_dropout(const af_run_config *r, af_error *err)
{
    if (af_method_has_dropout(r) || r->lora_dropout == 0 || !af_run_key_is_set(r, "lora_dropout"))
        return AF_OK;
    return af_run_idle_key(r, "lora_dropout",
                           r->rl == AF_RL_NONE ? "'disable_dropout' is on"
                                               : "runs with 'rl' have no dropout, as in TRL; "
                                                 "'disable_dropout: false' keeps it",
                           err);
}

static int *line_of(af_run_config *r, const char *key)
{
    return &r->key_line[af_key_find(key) - af_keys];
}

/* Turns a strategy into steps and epochs. In the trainers of Hugging Face it decides which of these
 * keys counts; in Axolotl a number wins over it, unless it is from the command line. */
static af_status resolve_strategy(af_run_config *r, af_when *when, const char *strategy,
                                  const char *steps, const char *per_epoch, af_error *err)
{
    const bool rules =
        r->dialect != AF_DIALECT_NONE || *line_of(r, strategy) == AF_KEY_LINE_OVERRIDE;
    const bool counted = *line_of(r, steps) || *line_of(r, per_epoch);
    af_status st = AF_OK;
    if (*when == AF_WHEN_AUTO || *when == AF_WHEN_BEST)
        return AF_OK;
    if (*when != AF_WHEN_STEPS && (rules || !counted)) {
        st = af_key_reset(r, af_key_find(steps), err);
        if (st == AF_OK)
            st = af_key_reset(r, af_key_find(per_epoch), err);
    }
    if (*when == AF_WHEN_NO && when == &r->eval_strategy && (rules || !counted))
        return st; /* evaluations have no number for never */
    *when = AF_WHEN_AUTO;
    *line_of(r, strategy) = AF_KEY_LINE_UNSET;
    return st;
}

/* LLaMA-Factory packs what it pre-trains on. */
static void resolve_stage(af_run_config *r)
{
    if (r->stage == AF_STAGE_PRETRAINING && !*line_of(r, "sample_packing"))
        r->packing = true;
}

static af_status resolve_strategies(af_run_config *r, af_error *err)
{
    const af_when save = r->save_strategy, eval = r->eval_strategy;
    enum { STEPS_OF_TRANSFORMERS = 500 };
    const int save_line = *line_of(r, "save_strategy"), eval_line = *line_of(r, "eval_strategy");
    af_status st = resolve_strategy(r, &r->save_strategy, "save_strategy", "save_steps",
                                    "saves_per_epoch", err);
    if (st == AF_OK)
        st = resolve_strategy(r, &r->eval_strategy, "eval_strategy", "eval_steps",
                              "evals_per_epoch", err);
    if (save == AF_WHEN_EPOCH && r->save_steps == 0 && r->saves_per_epoch == 0) {
        r->saves_per_epoch = 1;
        *line_of(r, "saves_per_epoch") = save_line;
    }
    if (save == AF_WHEN_STEPS && r->save_steps == 0 && r->saves_per_epoch == 0) {
        r->save_steps = STEPS_OF_TRANSFORMERS;
        *line_of(r, "save_steps") = save_line;
    }
    if (eval == AF_WHEN_STEPS && r->eval_steps == 0 && r->evals_per_epoch == 0) {
        r->eval_steps = r->logging_steps;
        *line_of(r, "eval_steps") = eval_line;
    }
    return st;
}

/* Keys that count steps, or below 1 name a share of the run. */
static af_status check_steps(const af_run_config *r, af_error *err)
{
    static const char *const keys[] = {"logging_steps", "save_steps", "eval_steps"};
    char at[300];
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        const double v = af_key_get(r, af_key_find(keys[i])).f64;
        if (v >= 1 && v != (double)(int64_t)v)
            return af_fail(err, AF_EUSAGE,
                           "%s: %s is %g, neither a share below 1 nor a whole number",
                           af_run_key_loc(r, keys[i], at, sizeof at), keys[i], v);
    }
    if (r->logging_steps == 0)
        return af_fail(err, AF_EUSAGE, "%s: logging_steps is 0; it must be more",
                       af_run_key_loc(r, "logging_steps", at, sizeof at));
    return AF_OK;
}

/* Rows that are filled or padded have a length. */
static af_status check_length(const af_run_config *r, af_error *err)
{
    char at[300];
    if (r->sequence_len < AF_SEQUENCE_UNLIMITED || !(r->packing || r->pad_to_sequence_len))
        return AF_OK;
    return af_fail(err, AF_EUSAGE, "%s: %s needs a sequence_len: give the tokens of a row",
                   af_run_key_loc(r, "sequence_len", at, sizeof at),
                   r->packing ? "sample_packing" : "pad_to_sequence_len");
}

/* TRL's truncation_mode is about whole texts; in its older ORPO, CPO and KTO, about prompts. */
static af_status check_truncation(af_run_config *r, af_error *err)
{
    const bool end = r->truncation == AF_TRUNCATION_KEEP_END;
    const bool prompts = r->rl == AF_RL_ORPO || r->rl == AF_RL_CPO || r->rl == AF_RL_SIMPO ||
                         (r->rl == AF_RL_KTO && r->max_prompt_len > 0);
    char at[300];
    if (r->truncation == AF_TRUNCATION_AUTO || end == prompts)
        return AF_OK;
    if (prompts && r->max_prompt_len == 0) {
        const af_status st =
            af_run_idle_key(r, "truncation_mode", "without 'max_prompt_length'", err);
        return st == AF_OK ? af_key_reset(r, af_key_find("truncation_mode"), err) : st;
    }
    return af_fail(err, AF_EUNSUPPORTED, "%s: truncation_mode '%s' is not supported%s",
                   af_run_key_loc(r, "truncation_mode", at, sizeof at),
                   end ? "keep_end" : "keep_start",
                   end ? ": texts are cut at their end"
                       : " with max_prompt_length: prompts keep their last tokens");
}

/* An end-of-turn token carries loss or not: eos is one of them here. */
static af_status resolve_eot(af_run_config *r, af_error *err)
{
    int *eot = line_of(r, "train_on_eot"), *eos = line_of(r, "train_on_eos");
    char at[300];
    if (*eot && *eos && r->train_on_eot != r->train_on_eos)
        return af_fail(err, AF_EUSAGE,
                       "%s: a train_on_eot other than train_on_eos is not supported: give one",
                       af_run_key_loc(r, "train_on_eot", at, sizeof at));
    if (*eot) {
        r->train_on_eos = r->train_on_eot;
        *eos = *eot;
        *eot = AF_KEY_LINE_UNSET;
    }
    return AF_OK;
}

af_status af_run_config_check(af_run_config *r, af_error *err)
{
    resolve_resume(r);
    if (r->method == AF_METHOD_DORA) {
        r->method = AF_METHOD_LORA;
        r->dora = true;
    }
    af_status st = af_run_dialect_finish(r, err);
    if (st == AF_OK)
        st = af_run_datasets(r, err);
    if (st == AF_OK)
        st = resolve_template(r, err);
    if (st == AF_OK)
        st = resolve_eot(r, err);
    if (st == AF_OK)
        st = check_required(r, err);
    if (st == AF_OK)
        st = check_steps(r, err);
    if (st == AF_OK)
        st = resolve_strategies(r, err);
    resolve_stage(r);
    if (st == AF_OK)
        st = check_length(r, err);
    if (st == AF_OK)
        st = check_truncation(r, err);
    if (st == AF_OK)
        st = af_run_report_to(r, err);
    if (st == AF_OK)
        st = check_effects(r, err);
    if (st == AF_OK)
        st = check_instead(r, err);
    if (st == AF_OK)
        st = resolve_warmup(r, err);
    if (st == AF_OK)
        st = check_pairs(r, err);
    if (st == AF_OK)
        st = check_lists(r, err);
    if (st == AF_OK)
        st = check_schedule(r, err);
    if (st == AF_OK)
        st = af_run_rl_check(r, err);
    if (st == AF_OK)
        st = check_dropout(r, err);
    if (st == AF_OK)
        st = af_run_labels_check(r, err);
    if (r->lora_alpha == 0)
        r->lora_alpha = 2.0 * (double)r->lora_r;
    return st;
}
