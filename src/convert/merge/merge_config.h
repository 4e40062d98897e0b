/* merge_config.h - a mergekit YAML, checked: methods, keys and parameters that are unknown are
 * errors with file, line and a suggestion.
 *
 * Parameters stay YAML nodes and are evaluated per tensor: a number, a gradient over layers, or a
 * list of filters. */
#ifndef AF_MERGE_CONFIG_H
#define AF_MERGE_CONFIG_H

#include "base/arena.h"
#include "convert/merge/merge_method.h"
#include "format/text/yaml_tree.h"

enum { AF_MERGE_MODELS_MAX = 64, AF_MERGE_SLICES_MAX = 4096 };

typedef struct af_merge_source {
    int model; /* index into models */
    int line;
    int64_t from, to; /* layers; to = -1: all */
    const af_yaml *params;
} af_merge_source;

typedef struct af_merge_slice {
    af_merge_source *source;
    int sources;
    int base; /* model index or -1 */
    const af_yaml *params;
} af_merge_slice;

typedef struct af_merge_config {
    const af_merge_method *method;
    const char *model[AF_MERGE_MODELS_MAX]; /* every model once */
    int models;
    int base; /* index or -1 */
    af_merge_slice *slice;
    int slices;
    const af_yaml *params;        /* of all */
    const af_yaml *module_params; /* of all of its module; they come first */
    const char *unread[16];       /* parameters that the method does not read, as reported */
    int unreads;
    bool range_unread;
    bool has_dtype, has_out_dtype;
    af_dtype dtype, out_dtype;
    const af_yaml *tokenizer; /* source, tokens, pad_to_multiple_of; or NULL */
    const char *tokenizer_source;
    const char *chat_template;   /* or NULL */
    const char *name, *out_path; /* of its result, for later documents; or NULL */
    const char *file;
    af_arena arena; /* owns everything */
} af_merge_config;

AF_CHECKED af_status af_merge_config_read(af_merge_config *out, const char *path, af_error *err);
AF_CHECKED af_status af_merge_config_parse(af_merge_config *out, const char *text, uint64_t size,
                                           const char *name, af_error *err);
void af_merge_config_clear(af_merge_config *c);
/* The index of a model by the name it has in the file; -1 when it is not there. */
int af_merge_config_model(const af_merge_config *c, const char *name);

/* The value of a parameter for one tensor: *found false when no scope has it. `t` is the position
 * in the slice, 0 to 1. */
AF_CHECKED af_status af_merge_param(const af_merge_config *c, const char *key, const char *tensor,
                                    double t, const af_merge_slice *slice,
                                    const af_merge_source *source, double *value, bool *found,
                                    af_error *err);
#endif
