/* config_source.h - values of config.json by kind, for the general reader and for the families that
 * have keys of their own (families/). The first wrong value is latched and ends the reading. */
#ifndef AF_CONFIG_SOURCE_H
#define AF_CONFIG_SOURCE_H

#include "format/config/hf_config.h"

/* One config being read: the object, the file's name for messages. */
typedef struct af_config_source {
    const struct json_t *obj;
    const char *name;
    af_error *err;
    af_status st; /* latched: the first wrong value ends it */
    /* keys that a family has another name for, and that name; ends with NULL. NULL = none */
    const char *const (*alias)[2];
} af_config_source;

/* A part of it, which is an object with keys of its own (or NULL). */
static inline af_config_source af_config_inner(const af_config_source *s, const struct json_t *obj)
{
    return (af_config_source){.obj = obj, .name = s->name, .err = s->err, .st = s->st};
}
/* The value of a key, under the family's own name where the file has that; NULL when it is absent
 * or null. */
const struct json_t *af_config_value(const af_config_source *s, const char *key);
/* True when the key is there, null included. */
bool af_config_given(const af_config_source *s, const char *key);
/* Latches "NAME: KEY is not WANT". */
void af_config_wrong(af_config_source *s, const char *key, const char *want);
int64_t af_config_int(af_config_source *s, const char *key, int64_t absent);
/* The same between two bounds, which a present value must keep; `absent` need not. */
int64_t af_config_size(af_config_source *s, const char *key, int64_t absent, int64_t min,
                       int64_t max);
double af_config_num(af_config_source *s, const char *key, double absent);
bool af_config_bool(af_config_source *s, const char *key, bool absent);
const char *af_config_str(af_config_source *s, af_arena *arena, const char *key,
                          const char *absent);
/* An id or a list of ids; their number. */
int af_config_ids(af_config_source *s, const char *key, int64_t ids[AF_CONFIG_EOS_MAX]);
/* A list of at most `max` numbers in the arena, or NULL with *n = 0 when absent. */
const double *af_config_nums(af_config_source *s, af_arena *arena, const char *key, int max,
                             int *n);
/* One value of a key for each of the config's layers, in the arena: a number for all of them, or a
 * list; NULL when absent. Each is between the bounds. */
const int64_t *af_config_per_layer(af_config_source *s, af_hf_config *c, const char *key,
                                   int64_t min, int64_t max);
/* mlp_layer_types, "dense" or "sparse" for each layer: fills mlp_only_layers where it is there. */
void af_config_mlp_types(af_config_source *s, af_hf_config *c);
/* quantization_config: config_quant.c */
void af_config_quant(af_config_source *s, af_hf_config *c);
/* The same from the files that older versions of modelopt, GPTQ and AWQ have instead. */
AF_CHECKED af_status af_quant_from_files(af_hf_config *c, const char *dir, af_error *err);
#endif
