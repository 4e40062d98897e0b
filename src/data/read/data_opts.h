/* data_opts.h - what a run asks of its datasets, and what reading them counted. */
#ifndef AF_DATA_OPTS_H
#define AF_DATA_OPTS_H

#include "base/label_opts.h"
#include "format/text/yaml_tree.h"

typedef enum af_excess { AF_EXCESS_DROP, AF_EXCESS_TRUNCATE, AF_EXCESS_ERROR } af_excess;
typedef enum af_train_eos {
    AF_TRAIN_EOS_TURN, /* the end-of-turn token of trained turns */
    AF_TRAIN_EOS_ALL,  /* of every turn */
    AF_TRAIN_EOS_LAST, /* only the last one */
    AF_TRAIN_EOS_NONE
} af_train_eos;

/* How several datasets become one: one after another, or a record of each in turn until the first
 * of them ends, until the last has ended (others begin anew), or with those that are left. */
typedef enum af_mix_strategy {
    AF_MIX_CONCAT,
    AF_MIX_INTERLEAVE_UNDER,
    AF_MIX_INTERLEAVE_OVER,
    AF_MIX_INTERLEAVE_ONCE
} af_mix_strategy;

/* Preference training: what the records are for, and the rules by which they become rows. */
typedef enum af_rl {
    AF_RL_NONE,
    AF_RL_DPO,
    AF_RL_IPO,
    AF_RL_KTO,
    AF_RL_ORPO,
    AF_RL_SIMPO,
    AF_RL_CPO,
    AF_RL_REWARD,
    AF_RL_LABELS /* no preferences: texts with labels, for a model that classifies */
} af_rl;

typedef struct af_data_opts {
    const af_yaml *datasets; /* the run file's list of {path, type, field names} */
    const char *dataset_dir; /* of dataset_info.json; NULL = names are paths */
    const char *run_path;    /* for messages: "run.yaml" */
    const char *model;       /* resolved folder or .gguf: the tokenizer and the template */
    const char
        *chat_template; /* NULL = the model's; a .jinja file, a name, or the template itself */
    const af_yaml *template_variables; /* a map, for chat_template; NULL = none */
    const char *turn_template;  /* a name of turn_template.h's table: over chat_template; or NULL */
    const char *default_system; /* its text for a conversation without one; NULL = its own */
    bool mask_history;          /* the last answer alone is trained */
    bool mask_empty_thoughts;   /* at the beginning of answers */
    bool split_turns; /* rows for answers that the whole conversation does not show whole */
    bool no_thinking; /* it leaves thoughts out */
    bool train_on_inputs;
    bool completion_apart;    /* but records of prompt and completion learn the completion alone */
    const char *const *roles; /* roles_to_train; none = assistant */
    int role_count;
    af_train_eos train_on_eos;
    bool pretraining; /* what dataset_info.json lists is text to train on */
    bool join_texts;  /* and its texts are joined, then cut into rows of sequence_len */
    af_excess excess;
    int64_t sequence_len;
    bool keep_end;          /* of rows that are cut, their last tokens stay, not their first */
    int64_t max_prompt_len; /* tokens left of a longer prompt of a preference; 0 = all */
    const char *const *eot_tokens; /* further texts that end a turn */
    int eot_count;
    int64_t min_sample_len; /* records with fewer tokens are left out */
    bool deduplicate;       /* so are records whose tokens and labels came before */
    int64_t max_samples;    /* of each dataset; 0 = all */
    uint64_t seed;          /* for records that are chosen by chance */
    af_mix_strategy mix;
    const char *const *mix_probs; /* whose turn it is, by chance; none = in order */
    int mix_prob_count;
    af_rl rl; /* not AF_RL_NONE: records are pairs (dataset_reader.h: af_example.pair) */
    af_label_opts labels; /* of AF_RL_LABELS */
    int64_t vocab;        /* ids must be below this; 0 = not checked */
    bool cache_reported;  /* a missing cache was logged for another dataset */
} af_data_opts;

typedef struct af_data_counts {
    int64_t records, tokens, supervised; /* that were read */
    int64_t truncated, dropped;          /* by sequence_len */
    int64_t left_out;                    /* too short, or there before */
    int64_t split_rows;                  /* of conversations in several rows: those but the first */
    int64_t lost_eot;                    /* truncated records whose end-of-turn token is gone */
    int64_t empty_answers, double_bos, missing_eot, nothing_to_learn;
    int64_t of_text, of_tokens, of_segments; /* records without turns, by shape */
    int64_t of_pairs; /* prompt and completion joined as they are, without a template */
    int64_t desirable, undesirable; /* answers of KTO */
    int64_t warnings;
    int64_t errors; /* only `data check` continues after one */
} af_data_counts;
#endif
