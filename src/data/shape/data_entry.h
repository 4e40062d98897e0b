/* data_entry.h - for those who read `datasets`: one entry of the list. */
#ifndef AF_DATA_ENTRY_H
#define AF_DATA_ENTRY_H

#include "data/shape/data_source.h"

typedef struct af_data_entry {
    const af_data_opts *o;
    af_arena *mem;
    af_data_source *s; /* to be filled */
    af_error *err;
    int part; /* of a split like 'train+test' */
} af_data_entry;

/* What holds before any key is read. */
void af_data_entry_begin(const af_data_entry *p, const af_yaml *n);
/* pair_type.c: `type` of a dataset of preference training; *taken is false when it names a shape.
 */
AF_CHECKED af_status af_pair_type_set(const af_data_entry *p, const af_yaml *n, bool *taken);
/* data_template.c: its template by `conversation` or `chat_template_jinja`; n is a scalar. */
AF_CHECKED af_status af_data_entry_style(const af_data_entry *p, const af_yaml *n);
AF_CHECKED af_status af_data_entry_jinja(const af_data_entry *p, const af_yaml *n);
/* entry_keys.c: an unknown key, which is an error unless it asks for nothing; `skip`; the name of
 * one role (`field_human`, `field_model`); `ignore_fields`. */
AF_CHECKED af_status af_data_entry_unknown(const af_data_entry *p, const char *name,
                                           const af_yaml *n, int line);
AF_CHECKED af_status af_data_entry_skip(const af_data_entry *p, const af_yaml *n);
AF_CHECKED af_status af_data_entry_speaker(const af_data_entry *p, const char *key,
                                           const af_yaml *n);
AF_CHECKED af_status af_data_entry_ignore(const af_data_entry *p, const af_yaml *n);
/* self_cognition.c: the type of that name, false: not one of its forms; a name in two languages. */
bool af_self_cognition_set(af_data_source *s, const char *type);
AF_CHECKED af_status af_self_cognition_who(const af_data_entry *p, const char *key,
                                           const char **who, const af_yaml *n);
/* A map of keys. */
AF_CHECKED af_status af_data_entry_read(const af_data_entry *p, const af_yaml *n);
#endif
