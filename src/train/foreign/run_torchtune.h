/* run_torchtune.h - run files of torchtune, for the files that read them. */
#ifndef AF_RUN_TORCHTUNE_H
#define AF_RUN_TORCHTUNE_H

#include "train/run/run_translation.h"

/* A scalar with the values of "${output_dir}" and the like in it. Of another node: "". */
AF_CHECKED af_status af_torchtune_text(const char **out, const af_translation *t, const af_yaml *n);
/* A value that is there and not null; `map` may be NULL. */
const af_yaml *af_torchtune_given(const af_yaml *map, const char *key);
/* The last name of a component: "AdamW" of "torch.optim.AdamW"; "" when there is none. */
const char *af_torchtune_component(const af_yaml *n);
AF_CHECKED af_status af_torchtune_put(af_translation *t, const char *key, int line,
                                      const char *text);
/* An argument that is not among the `known` (" a b c ") and asks for something is an error. */
AF_CHECKED af_status af_torchtune_check(const af_translation *t, const char *section,
                                        const af_yaml *map, const char *known);

/* run_torchtune_data.c */
AF_CHECKED af_status af_torchtune_put_tokenizer(af_translation *t, const af_yaml *n, int line);
AF_CHECKED af_status af_torchtune_put_data(af_translation *t, const af_yaml *n, int line);
#endif
