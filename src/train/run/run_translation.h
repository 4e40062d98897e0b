/* run_translation.h - for those who translate keys of other trainers: the map that is written. */
#ifndef AF_RUN_TRANSLATION_H
#define AF_RUN_TRANSLATION_H

#include "train/run/run_translate.h"

typedef struct af_translation {
    const af_yaml *root;
    af_yaml *out;
    int room;
    af_arena *mem;
    const char *name;                /* of the file, for messages */
    const struct af_run_config *run; /* whose lists take notes */
    af_error *err;
} af_translation;

/* "run.yaml:12", or for line 0 "command line". Returns buf. */
const char *af_translate_loc(const af_translation *t, int line, char buf[300]);
/* A new node; NULL when memory is short, which af_translate_put reports. */
af_yaml *af_translate_scalar(const af_translation *t, int line, const char *text);
AF_CHECKED af_status af_translate_put(af_translation *t, const char *key, int line,
                                      const af_yaml *n);
/* A number in place of the i-th entry of the root. */
AF_CHECKED af_status af_translate_number(af_translation *t, const char *key, int i, int64_t v);
/* The whole number of a key, or another one where it is not there or not a number. */
int64_t af_translate_whole(const af_yaml *root, const char *key, int64_t otherwise);
/* Whether a scalar, or a list of one, has this value; true and yes are one. */
bool af_translate_says(const af_yaml *n, const char *want);

enum { AF_SOURCE_FIELDS = 7 };

/* One dataset: keys and their values, which are strings (num_samples: a number). */
typedef struct af_source {
    const char *key[AF_SOURCE_FIELDS], *value[AF_SOURCE_FIELDS];
    const af_yaml *node[AF_SOURCE_FIELDS]; /* instead of a value, where it is not NULL */
    int count;
} af_source;

void af_source_set(af_source *s, const char *key, const char *value);
void af_source_put(af_source *s, const char *key, const af_yaml *node);
/* A list of them for `datasets`; NULL when there is no memory. */
af_yaml *af_source_list(const af_source *s, int n, af_arena *mem, int line);

/* run_switches.c: whether the key belongs to another one that the file leaves off, so that its own
 * trainer does not read it; *why says which. */
bool af_foreign_is_left_over(const af_yaml *root, const char *key, const char **why);

/* run_swift.c, run_sections.c, run_simpo.c: the same for ms-swift, Unsloth, AutoTrain and SimPO. */
bool af_swift_translate(af_translation *t, int i, af_status *st);
bool af_unsloth_translate(af_translation *t, int i, af_status *st);
bool af_autotrain_translate(af_translation *t, int i, af_status *st);
bool af_simpo_translate(af_translation *t, int i, af_status *st);
/* run_optim_args.c: `optim_args` as one text. */
bool af_optim_args_translate(af_translation *t, int i, af_status *st);
/* run_optimizer.c: names of optimizers that are a little different elsewhere. Likewise. */
bool af_optimizer_translate(af_translation *t, int i, af_status *st);
/* run_trl.c: keys of TRL that another key of the file decides. */
bool af_trl_translate(af_translation *t, int i, af_status *st);
/* The root with the keys of its sections among its own. */
AF_CHECKED af_status af_sections_join(const af_yaml **out, const af_translation *t);
/* run_torchtune.c, run_oumi.c: the maps of their files as one map of our keys. */
AF_CHECKED af_status af_torchtune_join(const af_yaml **out, const af_translation *t);
AF_CHECKED af_status af_oumi_join(const af_yaml **out, const af_translation *t);
AF_CHECKED af_status af_litgpt_join(const af_yaml **out, const af_translation *t);
AF_CHECKED af_status af_automodel_join(const af_yaml **out, const af_translation *t);
/* json_maps.c: the root with the maps that it gives as text ('{"min_lr": 1e-6}') as maps. */
AF_CHECKED af_status af_json_maps_open(const af_yaml **root, const af_translation *t);
/* run_mlx.c: a key that means something else in mlx-lm than its name does here; true when it was
 * one. */
bool af_mlx_translate(af_translation *t, int i, af_status *st);
/* Its `lora_parameters`: the output of the adapter times `scale`, whatever the rank. */
AF_CHECKED af_status af_mlx_scale(af_translation *t, const af_yaml *parameters);
#endif
