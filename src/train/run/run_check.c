/* run_check.c - every check of a run file that needs neither model nor data: keys that are missing,
 * that contradict each other, that would have no effect. */
#include "afinar/graph.h"
#include "afinar/schedule.h"
#include "base/log.h"
#include "base/word.h"
#include "format/chat/turn_template.h"
#include "graph/graph_access.h"
#include "train/run/adapter_start.h"
#include "train/run/freeze.h"
#include "train/run/method.h"
#include "train/run/run_keys.h"
#include "train/run/run_qat.h"

/* false, 0 and auto ask for nothing, whatever the key; but enable_thinking: false does. */
static bool asks_nothing(const af_run_config *r, const af_key *k)
{
    const af_key_value v = af_key_get(r, k);
    if (r->rl == AF_RL_REWARD && strcmp(k->name, "num_labels") == 0)
        return v.i64 <= 1; /* it has one */
    return (k->kind == AF_KEY_BOOL && v.flag == (k->need == AF_NEED_TURNS)) ||
           (k->kind == AF_KEY_I64 && v.i64 == 0) || (k->kind == AF_KEY_F64 && v.f64 == 0) ||
           (k->kind == AF_KEY_TRI && v.choice != AF_TRI_YES);
}

/* Whether a key without effect is to be left out of the run. Without an 'adapter' key its settings
 * are more likely a forgotten line than left-overs. */
static bool may_be_idle(const af_run_config *r, const af_key *k)
{
    const bool adapter = k->need >= AF_NEED_ADAPTER && k->need <= AF_NEED_OFT;
    const bool forgotten = (adapter && !r->adapter_is_named) || k->need == AF_NEED_TURNS ||
                           (k->need >= AF_NEED_RL && r->rl == AF_RL_NONE && /* another training */
                            !af_run_is_left_over(r, k->need));
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
                             af_key_need_text(k->need));
            st = af_run_idle_key(r, k->name, af_key_need_text(k->need), err);
            if (st == AF_OK)
                st = af_key_reset(r, k, err);
        } else {
            st = af_fail(err, AF_EUSAGE, "%s: %s has no effect %s",
                         af_run_key_loc(r, k->name, at, sizeof at), k->name,
                         af_key_need_text(k->need));
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
            st = af_run_idle_add(r, k->key, k->line, af_key_need_text((af_key_need)k->need), err);
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
    af_axolotl_preset(r);
    if (r->dialect == AF_DIALECT_NONE || active(r, ratio) <= 0 ||
        active(r, af_key_find("warmup_steps")) <= 0)
        return AF_OK;
    const af_status st = af_run_idle_key(r, "warmup_ratio", "'warmup_steps' wins over it", err);
    return st == AF_OK ? af_key_reset(r, ratio, err) : st;
}

static bool updates_bf16(af_optimizer_kind k)
{
    return k == AF_OPTIMIZER_ADAMW || k == AF_OPTIMIZER_ADAM || k == AF_OPTIMIZER_ADAMW_8BIT ||
           k == AF_OPTIMIZER_ADAMW_TORCH_8BIT || k == AF_OPTIMIZER_GALORE;
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
        {"train_on_inputs", "split_turns"},
        {"oft_block_size", "oft_r"},
        {"lora_layers_to_transform", "num_layers"},
        {"lora_layers_to_transform", "use_llama_pro"},
        {"num_layers", "use_llama_pro"},
        {"resume_from_checkpoint", "auto_resume_from_checkpoints"},
        {"bf16_stochastic_round", "kahan_sum"},
        {"reinit_weights", "unfrozen_parameters"},
        {"reinit_weights", "freeze_parameters"},
        {"reinit_weights", "freeze_parameters_regex"},
        {"reinit_weights", "freeze_parameters_ratio"},
        {"unfrozen_parameters", "freeze_parameters"},
        {"unfrozen_parameters", "freeze_parameters_regex"},
        {"unfrozen_parameters", "freeze_parameters_ratio"},
        {"reinit_weights", "rl"},
        {"reinit_weights", "use_asft_loss"},
        {"use_dft_loss", "label_smoothing_factor"},
        {"use_dft_loss", "teacher_model"},
        {"use_dft_loss", "kd_logits"},
        {"use_eaft", "label_smoothing_factor"},
        {"use_eaft", "teacher_model"},
        {"use_eaft", "kd_logits"},
        {"use_eaft", "use_dft_loss"},
        {"use_eaft_loss", "label_smoothing_factor"},
        {"use_eaft_loss", "teacher_model"},
        {"use_eaft_loss", "kd_logits"},
        {"use_eaft_loss", "use_dft_loss"},
        {"use_eaft_loss", "use_eaft"},
        {"use_asft_loss", "label_smoothing_factor"},
        {"use_asft_loss", "teacher_model"},
        {"use_asft_loss", "kd_logits"},
        {"use_asft_loss", "use_dft_loss"},
        {"use_asft_loss", "use_eaft"},
        {"use_asft_loss", "use_eaft_loss"},
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
    return AF_OK;
}

/* Values that exclude each other. */
static af_status check_contradictions(const af_run_config *r, af_error *err)
{
    char at[300];
    if (r->load_in_8bit && (r->method == AF_METHOD_QLORA || r->load_in_4bit == AF_TRI_YES))
        return af_fail(err, AF_EUSAGE, "%s: load_in_8bit and %s contradict each other: give one",
                       af_run_key_loc(r, "load_in_8bit", at, sizeof at),
                       r->load_in_4bit == AF_TRI_YES ? "load_in_4bit" : "adapter: qlora");
    if (r->method == AF_METHOD_OFT && r->oft_r == 0 && r->oft_block_size == 0)
        return af_fail(err, AF_EUSAGE, "%s: oft_block_size and oft_r are 0: give one of them",
                       af_run_key_loc(r, "oft_block_size", at, sizeof at));
    if (r->reinit_weights && r->method != AF_METHOD_FULL)
        return af_fail(err, AF_EUSAGE, "%s: reinit_weights trains all weights: leave out 'adapter'",
                       af_run_key_loc(r, "reinit_weights", at, sizeof at));
    if (r->method == AF_METHOD_QLORA && r->load_in_4bit == AF_TRI_NO)
        return af_fail(err, AF_EUSAGE,
                       "%s: 'adapter: qlora' and 'load_in_4bit: false' contradict each other",
                       af_run_key_loc(r, "load_in_4bit", at, sizeof at));
    if (r->resume && strcmp(r->resume, "auto") == 0 && r->overwrite_output_dir)
        return af_fail(err, AF_EUSAGE,
                       "%s: resume_from_checkpoint and overwrite_output_dir contradict each other: "
                       "give one",
                       af_run_key_loc(r, "resume_from_checkpoint", at, sizeof at));
    if (r->checkpointing == AF_TRI_NO && r->offloading == AF_TRI_YES)
        return af_fail(err, AF_EUSAGE,
                       "%s: 'activation_offloading: true' recomputes: it and "
                       "'gradient_checkpointing: false' contradict each other",
                       af_run_key_loc(r, "activation_offloading", at, sizeof at));
    return AF_OK;
}

/* The weights of a schedule-free run are found from its average and its steps by this share. */
static af_status check_average(const af_run_config *r, af_error *err)
{
    char at[300];
    const bool sgd = r->optimizer == AF_OPTIMIZER_FREE_SGD;
    const char *share = sgd ? "sgd_momentum" : "adam_beta1";
    if (!af_optimizer_averages(r->optimizer))
        return AF_OK;
    if (r->zero_stage > 0)
        return af_fail(err, AF_EUSAGE,
                       "%s: the states of schedule-free optimizers are not split over ranks: leave "
                       "out 'zero_stage'",
                       af_run_key_loc(r, "zero_stage", at, sizeof at));
    if (af_run_key_is_set(r, share) && !((sgd ? r->momentum : r->beta1) > 0))
        return af_fail(err, AF_EUSAGE, "%s: %s must be above 0 with a schedule-free optimizer",
                       af_run_key_loc(r, share, at, sizeof at), share);
    return AF_OK;
}

/* Values that no bounds of a row of af_keys can say. */
static af_status check_values(const af_run_config *r, af_error *err)
{
    char at[300];
    af_start_kind kind;
    int power_steps;
    if (af_method_bf16_weights(r) && !updates_bf16(r->optimizer))
        return af_fail(err, AF_EUSAGE,
                       "%s: weights in bf16 are updated by adamw, adam, adamw_8bit, "
                       "adamw_torch_8bit or galore, not by this optimizer",
                       af_run_key_loc(r, "optimizer", at, sizeof at));
    if (r->optimizer == AF_OPTIMIZER_ADAM_MINI && !af_method_trains_base(r))
        return af_fail(err, AF_EUSAGE,
                       "%s: adam_mini divides whole matrices into rows and heads: leave out "
                       "'adapter', or use another optimizer",
                       af_run_key_loc(r, "optimizer", at, sizeof at));
    if (r->val_set_size >= 1 && r->val_set_size != (double)(int64_t)r->val_set_size)
        return af_fail(err, AF_EUSAGE,
                       "%s: val_set_size %g is neither a share below 1 nor a whole number",
                       af_run_key_loc(r, "val_set_size", at, sizeof at), r->val_set_size);
    if (!af_start_find(r->lora_init, &kind, &power_steps))
        return af_fail(err, AF_EUSAGE,
                       "%s: peft_init_lora_weights '%.40s' is not supported; use one of: "
                       "%s",
                       af_run_key_loc(r, "peft_init_lora_weights", at, sizeof at), r->lora_init,
                       af_start_names());
    return check_average(r, err);
}

static af_status check_schedule(const af_run_config *r, af_error *err)
{
    char at[300];
    af_schedule s;
    af_status st = af_schedule_init(&s, &(af_schedule_opts){.name = r->lr_scheduler}, err);
    if (st == AF_OK && af_key_has_effect(r, AF_NEED_PLATEAU) && !af_key_has_effect(r, AF_NEED_EVAL))
        st = af_fail(err, AF_EUSAGE,
                     "lr_scheduler '%s' needs evaluations: set 'val_set_size' or 'test_datasets', "
                     "and no 'eval_strategy: no'",
                     r->lr_scheduler);
    const bool greedy = st == AF_OK && s.kind == AF_SCHEDULE_GREEDY;
    if (greedy && r->lr_gamma >= 1)
        return af_fail(err, AF_EUSAGE, "%s: lr_gamma %g is not below 1",
                       af_run_key_loc(r, "lr_gamma", at, sizeof at), r->lr_gamma);
    if (greedy && r->lr_max < r->learning_rate && af_run_key_is_set(r, "lr_max"))
        return af_fail(err, AF_EUSAGE, "%s: lr_max %g is below learning_rate %g",
                       af_run_key_loc(r, "lr_max", at, sizeof at), r->lr_max, r->learning_rate);
    if (st == AF_OK && !greedy && r->min_lr > r->learning_rate &&
        af_key_has_effect(r, AF_NEED_FLOOR))
        return af_fail(err, AF_EUSAGE, "%s: min_lr %g is above learning_rate %g",
                       af_run_key_loc(r, "min_lr", at, sizeof at), r->min_lr, r->learning_rate);
    return st == AF_OK
               ? AF_OK
               : af_fail_prefix(st, err, "%s", af_run_key_loc(r, "lr_scheduler", at, sizeof at));
}

/* Lists whose absence means a default, not an empty list. */
static af_status check_lists(const af_run_config *r, af_error *err)
{
    static const char *const keys[] = {"lora_target_modules", "lora_target_parameters",
                                       "lora_layers_to_transform", "roles_to_train",
                                       "optim_target_modules"};
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

/* Whether chat_template_path is a template; else it names a model that has one. */
static bool is_template_file(const char *path)
{
    return path && (af_ends_with(path, ".jinja") || af_ends_with(path, ".j2"));
}

/* A template may be named by four keys; afterwards `chat_template` has what Jinja renders,
 * `template` only a name of the table of turn templates, `chat_template_path` only a model. */
static af_status resolve_template(af_run_config *r, af_error *err)
{
    const bool jinja = r->chat_template && strcmp(r->chat_template, "jinja") == 0;
    const struct {
        const char *key, *value;
    } by[] = {{"chat_template_jinja", r->chat_template_jinja},
              {"template", r->turn_template},
              {"chat_template_path", r->chat_template_path},
              {"chat_template", jinja ? NULL : r->chat_template}};
    enum { TEMPLATE = 1, PATH, OWN };
    char at[300];
    int from = OWN;
    if (jinja && !r->chat_template_jinja)
        return af_fail(err, AF_EUSAGE, "%s: 'chat_template: jinja' needs 'chat_template_jinja'",
                       af_run_key_loc(r, "chat_template", at, sizeof at));
    for (int i = OWN; i >= 0; i--) {
        if (!by[i].value)
            continue;
        if (by[from].value && i != from)
            return af_fail(err, AF_EUSAGE, "%s: %s and %s contradict each other: give one",
                           af_run_key_loc(r, by[i].key, at, sizeof at), by[i].key, by[from].key);
        from = i;
    }
    if (from == OWN || (from == TEMPLATE && af_turn_template_find(r->turn_template)) ||
        (from == PATH && !is_template_file(r->chat_template_path)))
        return AF_OK;
    const af_key *key = af_key_find("chat_template");
    r->chat_template = by[from].value;
    r->chat_template_jinja = r->turn_template = r->chat_template_path = NULL;
    r->key_line[key - af_keys] = r->key_line[af_key_find(by[from].key) - af_keys];
    r->key_name[key - af_keys] = by[from].key; /* the name to look for */
    r->key_line[af_key_find(by[from].key) - af_keys] = 0;
    return AF_OK;
}

/* Variables of a Jinja template, and rows of its answers; LLaMA-Factory's have neither. */
static af_status check_variables(const af_run_config *r, af_error *err)
{
    static const char *const ours[] = {"messages", "tools", "add_generation_prompt",
                                       "continue_final_message"};
    const af_yaml *n = r->chat_template_kwargs;
    char at[300], show[80];
    af_run_key_loc(r, "chat_template_kwargs", at, sizeof at);
    if (n && n->kind != AF_YAML_MAP)
        return af_fail(err, AF_EUSAGE, "%s: chat_template_kwargs must be a map, not %s", at,
                       af_yaml_show(n, show, sizeof show));
    const char *key = n ? "chat_template_kwargs" : r->split_turns ? "split_turns" : NULL;
    if (key && r->turn_template)
        return af_fail(err, AF_EUSAGE, "%s: %s goes with a 'chat_template', not with 'template'",
                       af_run_key_loc(r, key, at, sizeof at), key);
    for (size_t i = 0; n && i < AF_LEN(ours); i++)
        if (af_yaml_get(n, ours[i]))
            return af_fail(err, AF_EUSAGE, "%s: '%s' cannot be set in chat_template_kwargs", at,
                           ours[i]);
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

/* A key that another one of the file stands for. */
static void stand_for(af_run_config *r, const char *key, const char *from, int line)
{
    *line_of(r, key) = line;
    r->key_name[af_key_find(key) - af_keys] = r->key_name[af_key_find(from) - af_keys];
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
    if (*when == AF_WHEN_NO && (rules || !counted))
        return st; /* there is no number for never */
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
        stand_for(r, "saves_per_epoch", "save_strategy", save_line);
    }
    if (save == AF_WHEN_STEPS && r->save_steps == 0 && r->saves_per_epoch == 0) {
        r->save_steps = STEPS_OF_TRANSFORMERS;
        stand_for(r, "save_steps", "save_strategy", save_line);
    }
    if (eval == AF_WHEN_STEPS && r->eval_steps == 0 && r->evals_per_epoch == 0) {
        r->eval_steps = r->logging_steps;
        stand_for(r, "eval_steps", "eval_strategy", eval_line);
    }
    if (st == AF_OK && save == AF_WHEN_BEST && !af_key_has_effect(r, AF_NEED_EVAL))
        st = af_run_idle_key(r, "save_strategy", af_key_need_text(AF_NEED_EVAL), err);
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

/* TRL's truncation_mode is about whole texts, and about both sequences of a pair in DPO; in its
 * older ORPO, CPO and KTO, about prompts. */
static af_status check_truncation(af_run_config *r, af_error *err)
{
    const bool end = r->truncation == AF_TRUNCATION_KEEP_END;
    const bool prompts = r->rl == AF_RL_ORPO || r->rl == AF_RL_CPO || r->rl == AF_RL_SIMPO ||
                         (r->rl == AF_RL_KTO && r->max_prompt_len > 0);
    char at[300];
    if (r->truncation == AF_TRUNCATION_AUTO || end == prompts)
        return AF_OK;
    if (af_run_keeps_end(r) && r->task == AF_TASK_TOKENS && !r->turn_template)
        return AF_OK;
    if (prompts && r->max_prompt_len == 0) {
        const af_status st =
            af_run_idle_key(r, "truncation_mode", "without 'max_prompt_length'", err);
        return st == AF_OK ? af_key_reset(r, af_key_find("truncation_mode"), err) : st;
    }
    return af_fail(err, AF_EUNSUPPORTED, "%s: truncation_mode '%s' is not supported%s",
                   af_run_key_loc(r, "truncation_mode", at, sizeof at),
                   end ? "keep_end" : "keep_start",
                   end ? " here: texts are cut at their end"
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
        stand_for(r, "train_on_eos", "train_on_eot", *eot);
        *eot = AF_KEY_LINE_UNSET;
    }
    r->train_on_eot = r->train_on_eos; /* as the effective file has it */
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
        st = check_variables(r, err);
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
        st = af_optim_args_check(r, err);
    if (st == AF_OK)
        st = check_instead(r, err);
    if (st == AF_OK)
        st = resolve_warmup(r, err);
    if (st == AF_OK)
        st = check_pairs(r, err);
    if (st == AF_OK)
        st = check_contradictions(r, err);
    if (st == AF_OK)
        st = check_values(r, err);
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
    if (st == AF_OK)
        st = af_run_qat_check(r, err);
    if (r->lora_alpha == 0)
        r->lora_alpha = 2.0 * (double)r->lora_r;
    return st;
}
