/* run_keys.h - the table of keys. */
#ifndef AF_RUN_KEYS_H
#define AF_RUN_KEYS_H

#include "base/buf.h"
#include "train/run/run_config.h"

typedef enum af_key_kind {
    AF_KEY_STR,
    AF_KEY_BOOL,
    AF_KEY_TRI, /* true, false or auto */
    AF_KEY_I64,
    AF_KEY_F64,
    AF_KEY_LIST, /* strings; a single string counts as a list of one */
    AF_KEY_ENUM,
    AF_KEY_TREE, /* stays YAML */
} af_key_kind;

/* When a key has an effect. In a run file it is idle where it has none (an error in a strict run);
 * on the command line that is an error. */
typedef enum af_key_need {
    AF_NEED_NOTHING,
    AF_NEED_ADAPTER,
    AF_NEED_NEW_ADAPTER, /* with lora_model_dir the value may be repeated, if it agrees */
    AF_NEED_LOW_RANK,    /* the same of LoRA */
    AF_NEED_OFT,         /* the same of OFT */
    AF_NEED_FROZEN,      /* weights */
    AF_NEED_4BIT,        /* a base in nf4 */
    AF_NEED_PACKING,
    AF_NEED_TURNS,   /* a template of LLaMA-Factory's table */
    AF_NEED_ANSWERS, /* that are learnt, not compared */
    AF_NEED_EVAL_DATA,
    AF_NEED_EVAL, /* data, and not eval_strategy: no */
    AF_NEED_WATCHDOG,
    AF_NEED_COSINE,
    AF_NEED_JAGGED,
    AF_NEED_FLOOR_SHARE,
    AF_NEED_FLOOR, /* a schedule with a rate to end at */
    AF_NEED_POLYNOMIAL,
    AF_NEED_WAVES,
    AF_NEED_WARMUP,       /* a schedule that begins with one */
    AF_NEED_WARMUP_STEPS, /* or an optimizer that does */
    AF_NEED_WARMUP_SHARE,
    AF_NEED_WSD,
    AF_NEED_INVERSE_SQRT,
    AF_NEED_COSINE_AHEAD,
    AF_NEED_DECAY_STEPS,
    AF_NEED_GAMMA,
    AF_NEED_STEP_SIZE,
    AF_NEED_PLATEAU, /* evaluations change the rate */
    AF_NEED_GREEDY,
    AF_NEED_SMOOTH_RATE,  /* greedy, of means */
    AF_NEED_WARMUP_START, /* a schedule whose warm-up may begin above 0 */
    AF_NEED_ADAM,
    AF_NEED_EPSILON, /* an optimizer with a denominator */
    AF_NEED_MOMENTS, /* adam or adamw, in any number of bits */
    AF_NEED_SGD,
    AF_NEED_APOLLO,
    AF_NEED_GALORE,
    AF_NEED_PROJECTED, /* one of the two */
    AF_NEED_SAMPLES,
    AF_NEED_TOKENS, /* labels are tokens: no 'rl', no classes */
    AF_NEED_LORAPLUS,
    AF_NEED_BASE, /* weights of the base are trained */
    AF_NEED_FULL,
    AF_NEED_FREEZE,
    AF_NEED_FREEZE_NAMES,
    AF_NEED_FREEZE_LAYERS,
    AF_NEED_SOME_LAYERS,
    AF_NEED_INTERLEAVE,
    AF_NEED_MLFLOW,
    AF_NEED_WANDB,
    AF_NEED_TRACKIO,
    AF_NEED_RL,        /* preference training: any kind; the next ones are some of them */
    AF_NEED_LOSS_TYPE, /* kinds with a choice of losses */
    AF_NEED_DPO,
    AF_NEED_ORPO,
    AF_NEED_SIMPO,
    AF_NEED_CPO,
    AF_NEED_KTO,
    AF_NEED_SMOOTHING,
    AF_NEED_REFERENCE,
    AF_NEED_REWARD,
    AF_NEED_TEACHER,
    AF_NEED_DISTILL,
    AF_NEED_CAPTURE,
    AF_NEED_DIVERGENCE, /* from a teacher, or from the start */
    AF_NEED_EAFT,
    AF_NEED_ASFT,
    AF_NEED_ULD,        /* kd_uld */
    AF_NEED_ULD_HYBRID, /* and uld_use_hybrid_loss */
    AF_NEED_LABELS,     /* task_type: SEQ_CLS */
} af_key_need;

/* A name that stands for a value of an enum. */
typedef struct af_key_choice {
    const char *name;
    int value;
} af_key_choice;

/* How a field that is an enum is set and read. Of several names for a value the first is written.
 */
typedef struct af_key_choices {
    const af_key_choice *names; /* ends with {0} */
    void (*set)(af_run_config *r, int value);
    int (*get)(const af_run_config *r);
} af_key_choices;

typedef struct af_key {
    const char *name;
    af_key_kind kind;
    size_t offset;                 /* of the field; not for AF_KEY_TRI and AF_KEY_ENUM */
    const af_key_choices *choices; /* AF_KEY_TRI, AF_KEY_ENUM */
    double min, max;               /* of numbers */
    const char *preset;            /* default, as YAML text; NULL = none */
    const char *help;
    const char *alias[5];
    af_key_need need;
} af_key;

/* A value of the key's kind. */
typedef union af_key_value {
    const char *str;
    bool flag;
    int choice;
    int64_t i64;
    double f64;
    af_strings list;
    const af_yaml *tree;
} af_key_value;

extern const af_key af_keys[];
extern const int af_keys_count;
af_key_value af_key_get(const af_run_config *r, const af_key *k);
void af_key_set(af_run_config *r, const af_key *k, af_key_value v);
/* Back to the default, as if the user had not set it. */
AF_CHECKED af_status af_key_reset(af_run_config *r, const af_key *k, af_error *err);
/* The name of an enum's value; "?" when it has none. */
const char *af_key_choice_name(const af_key *k, int value);
/* "whole number", "true or false": for help and reference pages. Static storage. */
const char *af_key_kind_name(const af_key *k);
/* Calls `visit` for every row, in the order of the help. */
void af_run_keys_each(void (*visit)(void *user, const af_key *k), void *user);
const af_key *af_key_find(const char *name); /* by name or alias; NULL */
/* The known key nearest to a wrong one, or NULL when none is near. */
const char *af_key_suggest(const char *unknown);
/* Whether keys with this need have an effect in this run. */
bool af_key_has_effect(const af_run_config *r, af_key_need need);
/* Where they have none: "without 'rl: dpo'". Static storage. */
const char *af_key_need_text(af_key_need need);
/* "adapter lora, optimizer muon": what is trained, and how, in the names the user gave. */
void af_run_method_text(const af_run_config *r, af_buf *b);
/* A string in double quotes that YAML and JSON read back as it was. */
void af_put_quoted(af_buf *b, const char *s);
/* report_to as bits of `trackers`. */
AF_CHECKED af_status af_run_report_to(af_run_config *r, af_error *err);
/* run_rl.c: keys of preference training that contradict each other, or are incomplete. */
AF_CHECKED af_status af_run_rl_check(const af_run_config *r, af_error *err);
/* The loss alphapo by its parts. */
void af_run_rl_alphapo(af_run_config *r);
/* Which training a file without 'rl' is for, where its keys or names tell; a warning says so. */
AF_CHECKED af_status af_run_rl_infer(af_run_config *r, af_error *err);
/* run_dialect.c: the kind of training in a name that the file gives its result, and that name; NONE
 * when there is none, or two. */
af_rl af_dialect_rl(const af_yaml *root, const char **name);
/* run_switches.c: keeps in mind that the file has a key which switches others on. NULL = none. */
void af_run_note_name(af_run_config *r, const af_key *k);
/* Whether keys with this need are left over from another run: the file says that it is off. */
bool af_run_is_left_over(const af_run_config *r, af_key_need need);
/* optim_args.c: refuses settings that the optimizer does not have; those with keys of their own
 * (adam_beta1, sgd_momentum) go there. */
AF_CHECKED af_status af_optim_args_check(af_run_config *r, af_error *err);
/* run_axolotl.c: the warm-up that Axolotl has where its file says nothing. */
void af_axolotl_preset(af_run_config *r);
/* run_labels.c: the same for texts with labels. */
AF_CHECKED af_status af_run_labels_check(const af_run_config *r, af_error *err);
/* run_dialect.c: defaults that depend on what is trained; once all keys are read. */
AF_CHECKED af_status af_run_dialect_finish(af_run_config *r, af_error *err);
/* run_datasets.c: the ways of other trainers to name data become `datasets`. */
AF_CHECKED af_status af_run_datasets(af_run_config *r, af_error *err);
#endif
