/* layer_names.h - what the names in a folder's files say, for tools that know no family. */
#ifndef AF_LAYER_NAMES_H
#define AF_LAYER_NAMES_H

#include <stdbool.h>

enum { AF_LAYER_MARKS = 3 };
extern const char *const af_layer_mark[AF_LAYER_MARKS]; /* in front of a layer's number */

bool af_name_in_layer(const char *name);
bool af_name_of_norm(const char *name); /* of a norm, or of something inside one */
#endif
