/* adapter_config.h - adapter_config.json to and from af_adapter_config, and its matching rules. */
#ifndef AF_ADAPTER_CONFIG_H
#define AF_ADAPTER_CONFIG_H

#include "model/adapter.h"

/* Parses adapter_config.json; strings go to the arena. What this build cannot do is an error that
 * names the key. `name` is for messages. */
AF_CHECKED af_status af_adapter_config_parse(af_adapter_config *out, af_arena *arena,
                                             const char *text, uint64_t size, const char *name,
                                             af_error *err);
/* Deep copy into an arena. */
AF_CHECKED af_status af_adapter_config_copy(af_adapter_config *out, const af_adapter_config *c,
                                            af_arena *arena, af_error *err);
/* The JSON text, with every key PEFT writes. free() it; NULL when memory is used up. */
char *af_adapter_config_text(const af_adapter_config *c);

/* An error that names the first target of the list that no module of the model has. */
AF_CHECKED af_status af_adapter_names_used(const af_adapter_config *c, const af_model_spec *s,
                                           af_error *err);

/* Whether the regular expression matches the subject from its beginning, to its end with `whole`.
 */
AF_CHECKED af_status af_pattern_matches(bool *out, const char *pattern, const char *subject,
                                        bool whole, af_error *err);
/* True when a path is an entry of the list or ends with "." and one. */
bool af_path_in_list(const char *path, const char *const *list, int n);
/* The rule of modules_to_save, which PEFT makes without a dot: 'norm' means 'input_layernorm' too.
 */
bool af_path_ends_in(const char *path, const char *const *list, int n);
/* The value of the first pattern that matches (.*\.)?(KEY)$, else `absent`. */
AF_CHECKED af_status af_adapter_pattern_value(double *out, const af_adapter_pattern *p, int n,
                                              const char *path, double absent, af_error *err);
#endif
