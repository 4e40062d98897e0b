/* nested.h - for run files whose keys are in maps: torchtune's, Oumi's, LitGPT's,
 * NeMo AutoModel's. */
#ifndef AF_NESTED_H
#define AF_NESTED_H

#include "train/run/run_translation.h"

/* A scalar with the values of "${output_dir}" and "${model.name}" in it. Of another node: "". */
AF_CHECKED af_status af_nested_text(const char **out, const af_translation *t, const af_yaml *n);
/* A value that is there and not null; `map` may be NULL. */
const af_yaml *af_nested_given(const af_yaml *map, const char *key);
AF_CHECKED af_status af_nested_put(af_translation *t, const char *key, int line, const char *text);
/* A map, in which a key that is not among the `known` (" a b c ") asks for nothing; else an error.
 */
AF_CHECKED af_status af_nested_check(const af_translation *t, const char *section,
                                     const af_yaml *map, const char *known);

/* torch_optim.c: an optimizer by the name of its class; `args` (lr, betas, ...) may be NULL. */
bool af_torch_optim_knows(const char *name);
AF_CHECKED af_status af_torch_optim_put(af_translation *t, const char *name, const af_yaml *args,
                                        int line, bool torchao);

/* torch_qat.c: `qat` for torchao's quantizer of that name; `group` and `after` may be NULL. */
AF_CHECKED af_status af_torch_qat_put(af_translation *t, const af_yaml *group, const af_yaml *after,
                                      int line);

enum { AF_NESTED_KEYS = 16 };
/* An empty map with room for so many keys, or NULL; its keys. */
af_yaml *af_nested_map(const af_translation *t, int line);
AF_CHECKED af_status af_nested_set(const af_translation *t, af_yaml *map, const char *key,
                                   const af_yaml *n);
AF_CHECKED af_status af_nested_set_text(const af_translation *t, af_yaml *map, const char *key,
                                        const char *text);
#endif
