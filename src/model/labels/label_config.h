/* label_config.h - config.json of a model that classifies. */
#ifndef AF_LABEL_CONFIG_H
#define AF_LABEL_CONFIG_H

#include "base/base.h"

#include <jansson.h>

/* Turns the config of a language model into that of the same architecture with a head `score`: its
 * class, its labels (an object as text with id2label, label2id and problem_type; NULL: `count`
 * labels with transformers' names), and where it has none the padding token of the tokenizer in
 * `dir`. */
AF_CHECKED af_status af_label_config(json_t *config, const char *labels, int64_t count,
                                     const char *dir, af_error *err);
#endif
