/* run_translate.h - run files of other trainers in the keys of this one. */
#ifndef AF_RUN_TRANSLATE_H
#define AF_RUN_TRANSLATE_H

#include "format/text/yaml_tree.h"

/* Whose keys a file has; NONE = afinar's and Axolotl's, which are mostly the same. */
typedef enum af_dialect {
    AF_DIALECT_NONE,
    AF_DIALECT_LLAMA_FACTORY,
    AF_DIALECT_LLAMA_FACTORY_V1, /* its newer schema: peft_config, train_dataset */
    AF_DIALECT_TRL,              /* and the alignment handbook */
    AF_DIALECT_MLX,
    AF_DIALECT_SWIFT,   /* ms-swift */
    AF_DIALECT_UNSLOTH, /* its program, not its Python */
    AF_DIALECT_AUTOTRAIN,
    AF_DIALECT_TORCHTUNE,
    AF_DIALECT_OUMI,
    AF_DIALECT_LITGPT,
    AF_DIALECT_AUTOMODEL, /* NeMo AutoModel */
} af_dialect;

/* Whose file this map of keys is. */
af_dialect af_dialect_of(const af_yaml *root);
/* run_sections.c: whether it has the sections of Unsloth; whether it is a file of AutoTrain. */
bool af_unsloth_has_sections(const af_yaml *root);
bool af_autotrain_is_file(const af_yaml *root);
/* run_torchtune.c, run_oumi.c, run_litgpt.c: whether its keys are components of torchtune, sections
 * of Oumi or LitGPT. */
bool af_torchtune_is_file(const af_yaml *root);
bool af_oumi_is_file(const af_yaml *root);
bool af_litgpt_is_file(const af_yaml *root);
/* run_automodel.c: whether it has the sections of NeMo AutoModel. */
bool af_automodel_is_file(const af_yaml *root);
/* LLaMA-Factory's switches of an optimizer, which count whatever `optim` says; NULL is none. And
 * whether one is on. */
bool af_chooses_optimizer(const char *key);
bool af_has_optimizer_choice(const af_yaml *root);
/* "LLaMA-Factory", for messages; NULL for NONE. */
const char *af_dialect_name(af_dialect d);
/* The i-th key whose default differs there, and that default; NULL after the last. */
const char *af_dialect_default(af_dialect d, int i, const char **value);

struct af_run_config;
/* A copy of the map, in the arena of `run`, with the keys of other trainers that mean something
 * here replaced by ours: values, maps of settings, and pairs of keys. What is not translated stays
 * as it is. */
AF_CHECKED af_status af_run_translate(af_yaml **out, const af_yaml *root, struct af_run_config *run,
                                      const char *name, af_error *err);
#endif
