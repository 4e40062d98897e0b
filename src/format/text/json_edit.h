/* json_edit.h - values of a JSON object replaced in its text, key by key: files of models have
 * numbers that no parser of ours keeps (model_max_length is 10^30), and what is not changed stays
 * byte for byte. */
#ifndef AF_JSON_EDIT_H
#define AF_JSON_EDIT_H

#include "base/base.h"

#include <jansson.h>

/* A file that is being changed. */
typedef struct af_json_text {
    char *text;
    uint64_t len;
    bool bad; /* out of memory, or no object */
} af_json_text;

/* The bytes [from, to) of the value of a key of the outermost object. */
bool af_json_find(const char *text, uint64_t len, const char *key, uint64_t *from, uint64_t *to);
/* The value of a key, or NULL. json_decref. */
json_t *af_json_text_get(const af_json_text *d, const char *key);
/* Takes the value. */
void af_json_text_set(af_json_text *d, const char *key, json_t *value);
#endif
