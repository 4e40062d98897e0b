/* run_config.h - the values of a run file after defaults, aliases, overrides and checks.
 *
 * One table (run_keys.c) has a row for each key: its kind, field, bounds, default, help, aliases,
 * and when it has an effect. The table drives parsing, key=value, the help and the effective run
 * file. */
#ifndef AF_RUN_CONFIG_H
#define AF_RUN_CONFIG_H

#include "afinar/device.h"
#include "afinar/graph.h"
#include "afinar/schedule.h"
#include "data/store/dataset.h"
#include "dist/comm.h"
#include "ops/fakequant/fake_float.h"
#include "train/preference/pref_loss.h"
#include "train/run/run_translate.h"

/* In which order the gradients of a step's micro-batches are added. */
typedef enum af_order { AF_ORDER_TREE, AF_ORDER_SEQUENTIAL, AF_ORDER_ANY_RANKS } af_order;
typedef enum af_tri { AF_TRI_AUTO, AF_TRI_NO, AF_TRI_YES } af_tri;

typedef struct af_strings {
    const char **item;
    int count;
} af_strings;

typedef enum af_method {
    AF_METHOD_FULL,
    AF_METHOD_LORA,
    AF_METHOD_QLORA,
    AF_METHOD_DORA,   /* in a run file: lora with peft_use_dora */
    AF_METHOD_FREEZE, /* some layers of the base: see freeze.h */
    AF_METHOD_OFT,    /* rotations of the inputs of linears: ops/oft/oft.h */
} af_method;
typedef enum af_uld_merge { AF_ULD_OBSERVED, AF_ULD_BAYESIAN } af_uld_merge;
typedef enum af_task { AF_TASK_TOKENS, AF_TASK_LABELS } af_task;
typedef enum af_train_stage { AF_STAGE_FINE_TUNING, AF_STAGE_PRETRAINING } af_train_stage;
/* When something happens; AUTO = as the keys about steps and epochs say. */
typedef enum af_when {
    AF_WHEN_AUTO,
    AF_WHEN_STEPS,
    AF_WHEN_EPOCH,
    AF_WHEN_NO,
    AF_WHEN_BEST, /* at each better evaluation */
} af_when;
/* Where metrics go besides metrics.jsonl and TensorBoard's events. */
typedef enum af_tracker {
    AF_TRACKER_MLFLOW = 1,
    AF_TRACKER_WANDB = 2,
    AF_TRACKER_TRACKIO = 4,
} af_tracker;
typedef enum af_threshold_mode { AF_THRESHOLD_REL, AF_THRESHOLD_ABS } af_threshold_mode;
typedef enum af_decay_on { AF_DECAY_MATRICES, AF_DECAY_ALL } af_decay_on;

/* Where a key was set: a line of the file, from 1, or one of these. */
enum { AF_KEY_LINE_UNSET = 0, AF_KEY_LINE_OVERRIDE = -1 };
enum { AF_RUN_KEYS_MAX = 288, AF_LR_WINDOW_MAX = 256 };
/* The largest sequence_len: no record is cut. */
enum { AF_SEQUENCE_UNLIMITED = 1 << 24 };

/* The end of a long text that TRL keeps. */
typedef enum af_truncation {
    AF_TRUNCATION_AUTO,
    AF_TRUNCATION_KEEP_START,
    AF_TRUNCATION_KEEP_END,
} af_truncation;

/* A key that is accepted and has no effect in this run. */
typedef struct af_idle_key {
    const char *key, *why;
    int line; /* as key_line */
    int need; /* of those for which something else happens: af_key_need */
    struct af_idle_key *next;
} af_idle_key;

/* Beside the run: what is found later does not change its values. */
typedef struct af_idle_keys {
    af_idle_key *first, *last; /* in the order they were found */
    int count;
    af_arena *mem;
} af_idle_keys;

/* APOLLO: a factor for each row or column of a matrix, or one for all of it. */
typedef enum af_apollo_scaling { AF_APOLLO_CHANNEL, AF_APOLLO_TENSOR } af_apollo_scaling;

typedef struct af_run_config {
    const char *path;     /* of the run file, for messages */
    const char *override; /* where keys outside the file come from: "command line" */
    /* model */
    const char *base_model, *tokenizer_config, *chat_template, *chat_template_path;
    const af_yaml *special_tokens, *token_overrides, *chat_template_kwargs, *rope_scaling;
    const char *eos_token, *pad_token;
    af_strings tokens, add_special_tokens;
    bool resize_to_32x, setup_chat_format;
    double attention_dropout;
    af_tri disable_dropout;
    /* method */
    af_method method;
    af_tri load_in_4bit;
    bool load_in_8bit, quantize_experts;
    af_strings unfrozen_parameters, freeze_modules, freeze_extra, frozen_names, trainable_names;
    const char *frozen_regex, *trainable_regex;
    double frozen_share;
    int64_t freeze_layers;
    int64_t lora_r;
    double lora_alpha, lora_dropout; /* alpha 0 = 2 r */
    af_strings lora_target_modules, lora_target_parameters, lora_modules_to_save,
        lora_exclude_modules, lora_layers;
    const af_yaml *trainable_tokens; /* a list, or lists by module */
    const af_yaml *lora_rank_pattern, *lora_alpha_pattern;
    bool lora_bias;
    bool lora_target_linear, rslora, dora;
    int64_t oft_block_size, oft_r, oft_terms;
    bool oft_share, oft_series;
    double loraplus_lr_ratio, loraplus_lr_embedding;
    const char *lora_init, *lora_model_dir;
    bool own_result; /* lora_model_dir is what this run has made: no key needs to agree with it */
    /* data: the lists stay YAML, src/data reads them */
    const af_yaml *datasets, *test_datasets;
    const char *turn_template, *chat_template_jinja, *default_system;
    bool mask_history, mask_empty_thoughts, split_turns, enable_thinking;
    af_strings eot_tokens;
    af_train_eos train_on_eot;
    int64_t min_sample_len;
    bool deduplicate;
    const char *dataset_dir;
    /* other names of the data, empty once `datasets` has them */
    const af_yaml *dataset_mixture, *dataset_mixer, *pretraining_dataset;
    const char *dataset_name, *dataset_text_field, *dataset_config, *dataset_train_split,
        *dataset_test_split;
    const char *train_dataset;
    af_strings dataset_splits, dataset_configs;
    double val_set_size;
    af_tri train_on_inputs; /* auto: but not where a record has its completion apart */
    af_strings roles_to_train;
    af_train_eos train_on_eos;
    af_train_stage stage;
    af_mix_strategy mix;
    af_strings interleave_probs;
    af_excess excess;
    int64_t sequence_len, max_prompt_len, max_samples, num_layers;
    af_truncation truncation; /* only checked: see run_check.c */
    bool packing, packing_sequentially, pad_to_sequence_len, shuffle;
    int64_t seed;
    /* loop */
    int64_t micro_batch_size, accumulation, max_steps;
    af_order order;
    double num_epochs;
    af_optimizer_kind optimizer;
    const char *optim_args;   /* a=1,b=2: see af_optim_arg */
    af_strings optim_targets; /* of apollo and galore: see optim_targets.h */
    int64_t apollo_rank, apollo_gap;
    double apollo_scale;
    af_apollo_scaling apollo_scale_type;
    bool apollo_scale_front;
    int64_t galore_rank, galore_gap;
    double galore_scale;
    af_projection galore_proj_type;
    double learning_rate, weight_decay, beta1, beta2, epsilon, max_grad_norm, momentum;
    af_decay_on decay_on;
    const char *lr_scheduler;
    double warmup_steps, warmup_ratio, min_lr_ratio, lr_power, lr_cycles, decay_ratio;
    double min_lr, constant_lr_ratio, embedding_lr, embedding_lr_scale;
    int64_t warmup_max_steps;
    bool axolotl_warmup; /* it was not given: as Axolotl has it */
    int64_t lr_decay_steps, lr_step_size, lr_timescale, lr_stable_steps;
    double warmup_lr_rate;
    af_schedule_rise lr_warmup_type;
    af_threshold_mode lr_threshold_mode;
    int64_t jagged_steps, jagged_warmup, jagged_anneal; /* restarts of the learning rate */
    double lr_gamma, warmup_init_lr, lr_threshold;
    bool bias_correction;
    int64_t lr_patience, lr_cooldown, lr_rise_cooldown, lr_window, lr_reset;
    double lr_max;
    bool lr_smooth;
    af_schedule_decay lr_decay;
    bool quadratic_warmup;
    double neftune_alpha, label_smoothing;
    bool dft;
    bool eaft, eaft_third; /* EAFT as Axolotl and as LLaMA-Factory have it */
    int64_t eaft_k;
    double eaft_alpha;
    bool asft;
    double asft_alpha;
    bool llama_pro;
    bool reinit_weights;
    const af_yaml *qat; /* quantisation-aware training; the next four are what it says */
    af_qat_type qat_type;
    int64_t qat_group; /* weights with a scale; 0: rows */
    bool qat_inputs, qat_embedding;
    int64_t qat_after;       /* steps before it begins */
    bool router_logits;      /* asks for the auxiliary loss of a router, */
    double router_loss_coef; /* as this does */
    /* preferences */
    af_rl rl;
    double rl_beta, orpo_alpha; /* 0 = the default of `rl` */
    af_strings dpo_loss_type, dpo_loss_weights;
    double dpo_label_smoothing, dpo_ftx, ld_alpha, f_alpha_coef, discopop_tau;
    bool dpo_use_weighting;
    af_f_divergence f_divergence;
    double simpo_gamma, cpo_alpha, alphapo_alpha;
    double kto_desirable_weight, kto_undesirable_weight;
    int64_t kto_kl_batch;
    af_tri precompute_ref;
    bool sync_ref; /* the reference follows the policy (TR-DPO) */
    double ref_mixup;
    int64_t ref_sync_steps;
    double center_coef; /* reward */
    /* distillation */
    const char *teacher_model, *teacher_adapter;
    const char *kd_logits; /* a capture, in place of the teacher */
    int64_t kd_topk;       /* 0 = all of a capture */
    int64_t kd_chunk_size; /* 0 = all rows */
    bool teacher_load_in_4bit, kd_normalize_topk;
    double kd_alpha, kd_ce_alpha, kd_temperature, kd_beta;
    bool kd_uld; /* the teacher has another tokenizer; the next ones are of this */
    af_uld_merge uld_merge;
    bool uld_extended, uld_hybrid, uld_skip_student_eos, uld_skip_teacher_eos;
    double uld_student_temperature, uld_teacher_temperature;
    double uld_matched, uld_unmatched; /* weights of hybrid; below 0 = by the vocabularies */
    /* texts with labels */
    af_task task;
    int64_t num_labels; /* 0 = by the names, or the model */
    af_strings class_names;
    af_problem problem;
    /* precision and memory */
    af_tri bf16, checkpointing, offloading;
    bool tf32;
    bool fp8;
    bool bf16_stochastic_round, kahan_sum;
    af_attention_by attention;
    af_gemm_by gemm;
    const char *device;
    int64_t threads;
    /* ranks */
    af_comm_backend dist_backend;
    int64_t zero_stage, ddp_timeout;
    const af_yaml *deepspeed, *fsdp, *fsdp_config;
    int64_t serve_port; /* -1: no server */
    const char *serve_host;
    /* output */
    const char *output_dir, *resume, *run_name;
    af_strings report_to;
    unsigned trackers; /* af_tracker: what report_to asks for */
    const char *mlflow_tracking_uri, *mlflow_experiment;
    const char *wandb_project, *wandb_name, *wandb_run_id, *trackio_project;
    double logging_steps, save_steps, eval_steps; /* below 1: a share of all steps */
    int64_t saves_per_epoch, save_total_limit, evals_per_epoch;
    af_when save_strategy, eval_strategy; /* after the checks AUTO, NO or BEST (saves) */
    double loss_watchdog_threshold;
    int64_t loss_watchdog_patience;
    int64_t early_stopping_patience;
    double early_stopping_threshold, eval_delay;
    const char *best_metric; /* see af_run_progress_metric */
    af_tri greater_is_better;
    bool auto_resume, load_best, overwrite_output_dir;
    af_strings generate_samples;
    int64_t generate_samples_steps, generate_samples_tokens;
    int key_line[AF_RUN_KEYS_MAX];         /* by row of the table: where the user set the key */
    bool adapter_is_named;                 /* the file has the key, if only to say none */
    bool rl_is_named;                      /* the same of 'rl' or 'stage' */
    bool weight_is_named, anchor_is_named; /* the same of 'use_eaft', and of 'use_asft_loss' */
    af_dialect dialect;                    /* whose file it is */
    af_rl rl_in_name;                      /* what a file without 'rl' may be for: by this name */
    const char *name_with_rl;
    bool strict; /* a key without effect is an error */
    af_idle_keys *idle,
        *instead; /* instead: for them something else happens, if their need is met */
    const char *key_name[AF_RUN_KEYS_MAX]; /* the name the user gave the key */
    af_arena mem;
} af_run_config;

/* Reads a run file ("-" = stdin) and key=value overrides into *out (all zero before). Every error
 * names file and line and, for an unknown key, the nearest known one. */
AF_CHECKED af_status af_run_config_read(af_run_config *out, const char *path,
                                        const char *const *overrides, int count, af_error *err);
AF_CHECKED af_status af_run_config_parse(af_run_config *out, const char *text, uint64_t size,
                                         const char *name, const char *const *overrides, int count,
                                         af_error *err);
/* Without a file: defaults only, then one key after another, its value as YAML text, then the
 * checks of a run file. `name` is used in messages. */
AF_CHECKED af_status af_run_config_init(af_run_config *out, const char *name, af_error *err);
AF_CHECKED af_status af_run_config_set(af_run_config *r, const char *key, const char *value,
                                       af_error *err);
AF_CHECKED af_status af_run_config_check(af_run_config *r, af_error *err);
void af_run_config_clear(af_run_config *r);
/* What is split over ranks: zero_stage, or what deepspeed, fsdp and fsdp_config say; AF_EUSAGE
 * where they disagree or ask for what there is not. */
AF_CHECKED af_status af_run_zero_stage(const af_run_config *r, int *stage, af_error *err);
/* AF_EUSAGE where gradients cannot be added in the run's order by so many ranks at this stage. */
AF_CHECKED af_status af_run_order_check(const af_run_config *r, int ranks, int stage,
                                        af_error *err);
/* The stage that so many ranks run with: at least 2 where the order needs the sum over the ranks
 * after every micro-batch. */
int af_run_order_stage(const af_run_config *r, int ranks, int stage);
/* Whether the model gives scores, not tokens: task_type SEQ_CLS, and 'rl: reward'. */
bool af_run_scores(const af_run_config *r);
/* What the datasets are read for: `rl`, or texts with labels. */
af_rl af_run_rl(const af_run_config *r);
/* The labels that the run file names; count 0 = it says nothing. */
af_label_opts af_run_labels(const af_run_config *r);
/* Their names and the kind of problem as JSON, as a config.json has them, in the arena. */
const char *af_run_label_text(const af_label_opts *o, af_arena *mem);
/* The effective run file: every key that has an effect, with its value, as YAML (malloc'ed). */
AF_CHECKED af_status af_run_config_text(const af_run_config *r, char **out, af_error *err);
/* Whether answers are compared by their log-probabilities: every `rl` but reward. */
bool af_run_compares(const af_run_config *r);
/* Whether each token's loss has a weight that depends on its distribution: DFT, EAFT, ASFT. */
bool af_run_weighs_tokens(const af_run_config *r);
/* Whether that is the entropy of its most likely tokens. */
bool af_run_weighs_by_entropy(const af_run_config *r);
/* The model whose distributions are learnt, the base itself with ASFT; NULL = none. */
const char *af_run_teacher(const af_run_config *r);
/* Whether long rows lose their first tokens: of texts, and of both sequences of a pair in DPO. */
bool af_run_keeps_end(const af_run_config *r);
/* KTO: whether records have KL rows, which its loss apo_zero_unpaired does without. */
bool af_run_has_kl_rows(const af_run_config *r);
/* KTO: how many records are a block whose answers are exchanged for these rows. */
int64_t af_run_kl_batch(const af_run_config *r);
/* Whether the optimizer corrects the bias of its moments. */
bool af_run_corrects_bias(const af_run_config *r);
/* Whether the optimizer projects the gradients of matrices (apollo, galore). */
bool af_run_projects(const af_run_config *r);
/* The loss that the keys of preference training ask for; their errors have file and line. */
AF_CHECKED af_status af_run_pref_opts(af_pref_opts *out, const af_run_config *r, af_error *err);
/* The table as help text (malloc'ed). */
AF_CHECKED af_status af_run_keys_help(char **out, af_error *err);
/* Where the user set this key: "run.yaml:12", "command line", or the file alone. Returns buf. */
const char *af_run_key_loc(const af_run_config *r, const char *key, char *buf, size_t size);
/* Notes that a key has no effect; `why` is static. An error in a strict run. */
AF_CHECKED af_status af_run_idle_add(const af_run_config *r, const char *key, int line,
                                     const char *why, af_error *err);
/* Notes a key for which something close happens instead, in runs that meet its need (af_key_need).
 */
AF_CHECKED af_status af_run_instead_add(const af_run_config *r, const char *key, int line,
                                        const char *why, int need, af_error *err);
/* The same as af_run_idle_add for a key of the table, which is an error on the command line. */
AF_CHECKED af_status af_run_idle_key(const af_run_config *r, const char *key, const char *why,
                                     af_error *err);
/* "3 keys have no effect here; -v lists them". False when every key has one. */
bool af_run_idle_text(const af_run_config *r, char *buf, size_t size);
/* One line of the log (AF_LOG_DEBUG) per such key, with its reason. */
void af_run_idle_log(const af_run_config *r);
/* The line where the user set this key, or an AF_KEY_LINE value. */
int af_run_key_line(const af_run_config *r, const char *key);
/* Whether the user set this key. */
bool af_run_key_is_set(const af_run_config *r, const char *key);
/* The setting of this name in optim_args, or another value where it is not given. */
double af_optim_arg(const af_run_config *r, const char *name, double otherwise);
#endif
