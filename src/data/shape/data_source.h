/* data_source.h - one entry of a run file's `datasets`: where its files are, what shape its records
 * have, and how the fields are called. */
#ifndef AF_DATA_SOURCE_H
#define AF_DATA_SOURCE_H

#include "data/read/data_opts.h"
#include "data/shape/pair_form.h"
#include "data/shape/prompt.h"

typedef enum af_shape {
    AF_SHAPE_AUTO,
    AF_SHAPE_ALPACA,
    AF_SHAPE_SHAREGPT,
    AF_SHAPE_MESSAGES,
    AF_SHAPE_PROMPT, /* prompt and completion */
    AF_SHAPE_TEXT,
    AF_SHAPE_PREFERENCE,
    AF_SHAPE_KTO,
    AF_SHAPE_SEGMENTS,
    AF_SHAPE_TOKENS,
    AF_SHAPE_CLASSES, /* a text and its label */
} af_shape;

/* The name in messages and in `type:`. */
const char *af_shape_name(af_shape s);

/* Records of ms-swift's self-cognition, and its forms of them. */
typedef enum af_cognition {
    AF_COGNITION_NONE,
    AF_COGNITION_PLAIN,
    AF_COGNITION_QWEN3,       /* questions without thoughts, by their end and an empty thought */
    AF_COGNITION_EMPTY_THINK, /* an empty thought */
} af_cognition;

typedef struct af_fields {
    const char *messages, *conversations, *role, *content, *from, *value;
    const char *instruction, *input, *output, *system, *history, *tools;
    const char *prompt, *completion, *chosen, *rejected, *label, *text, *segments, *train;
    const char *input_ids, *labels;
} af_fields;

typedef struct af_role_name {
    const char *from, *to;
} af_role_name;

/* Which records of a split, as `train[:20%]` writes it. */
typedef struct af_data_slice {
    bool given, percent, has_from, has_to;
    bool skips;       /* it is the key `skip` */
    int64_t from, to; /* negative: from the end */
} af_data_slice;

typedef struct af_data_source {
    const char *path, *ds_type, *chat_template;
    const char *revision;     /* of ORG/NAME on the hub: branch, tag or commit; NULL = main */
    const char *name, *split; /* of a folder: the subfolder, and how its files' names begin */
    af_data_slice slice;
    const char *const *data_files; /* inside `path`; patterns are allowed */
    int data_file_count;
    int64_t max_samples;  /* the first so many; 0 = all */
    int64_t num_samples;  /* so many by chance, some more than once if need be; 0 = all */
    int64_t shards;       /* the records, in random order, in so many parts; 0 = one */
    int64_t shard;        /* the part that is taken, from 0 */
    double weight;        /* share of the records, by chance; above 1 some come more than once */
    uint64_t seed;        /* of that choice */
    double first_share;   /* share of the records, the first ones; 0 = all */
    double fraction;      /* of all records of the run, the first of each dataset; 0 = not given */
    int line, split_line; /* in the run file */
    uint64_t set_keys;    /* which keys the entry sets: one bit per row of the key table */
    af_shape shape;
    bool shape_given;
    const af_prompt *prompt; /* not NULL: records are put into this prompt, not the chat template */
    const af_pair_form *form; /* not NULL: pairs of `rl` in this form */
    bool cut;                 /* long texts are cut into rows of sequence_len, none is lost */
    bool listed;         /* of dataset_info.json: a model without a chat template gets no prompt */
    bool join;           /* texts follow each other in rows of sequence_len; with `cut` */
    bool continued;      /* a further part of the dataset before it, of a split like 'train+test' */
    bool pairs;          /* records with chosen and rejected are pairs, whatever else they have */
    bool drop_system;    /* a first message of the role system is left out */
    bool line_calls;     /* the template reads "function_calls" of messages itself */
    bool split_thinking; /* <think>...</think> in a content becomes that property */
    af_cognition cognition;
    const char *model_name[2], *model_author[2]; /* of those, in Chinese and in English; or NULL */
    const char *thinking, *thinking_key; /* property of a message, and its name for the template */
    af_fields field;
    af_role_name *role_names; /* from `roles`; before the built-in ones */
    int role_name_count;
    af_role_name *property_names; /* further properties of a message and the template's names */
    int property_name_count;
    const char *const *ignored; /* fields of records and messages that are taken as not there */
    int ignored_count;
    const char *media[4];     /* of dataset_info.json: columns of images, videos, audios; NULL */
    const char *const *roles; /* roles_to_train */
    int role_count;
    af_train_eos train_on_eos;
    bool train_on_inputs, completion_apart; /* see af_data_opts */
} af_data_source;

/* Reads o->datasets (a list of maps, or a single map or path). Memory comes from `mem`; strings are
 * borrowed from the YAML. An unknown key is an error with the nearest known one. */
AF_CHECKED af_status af_data_sources_read(af_data_source **out, int *count, const af_data_opts *o,
                                          af_arena *mem, af_error *err);
/* The files of a source, sorted: the path itself, what its pattern matches, or those in the folder
 * (of the split: `train` takes train.jsonl and train-00000-of-00002.parquet). A folder without a
 * split is what its names do not keep for tests; *held_out counts those. Free with af_names_free.
 */
AF_CHECKED af_status af_data_source_files(const af_data_source *s, const char *run_path,
                                          char ***files, int *count, int *held_out, af_error *err);
/* Reads "train[10%:20%]" into the split's name and the slice. False when it is neither a name nor
 * a slice of one. */
bool af_data_slice_read(const char **name, af_data_slice *out, const char *text, af_arena *mem);
/* The records [*from, *to) of n that a slice takes. */
void af_data_slice_bounds(const af_data_slice *s, int64_t n, int64_t *from, int64_t *to);
/* "run.yaml:12", or "command line" for line 0. Returns buf. */
const char *af_data_source_loc(char buf[300], const char *run_path, int line);
/* dataset_info.c: whether a folder has a dataset_info.json, and the dataset of this name in it. */
bool af_dataset_info_exists(const char *dir);
AF_CHECKED af_status af_dataset_info_read(af_data_source *s, const char *dir, const char *name,
                                          af_arena *mem, af_error *err);
/* A key that the source sets and that has no effect on records of this shape, or NULL. */
const char *af_data_source_idle_key(const af_data_source *s, af_shape shape);
/* The keys a dataset of a run file may have, and the values of its `type`, by index; NULL
 * after the last. */
const char *af_data_source_key(int i);
const char *af_data_source_type(int i);
#endif
