/* merge_names.h - what the name of a tensor says: its layer, whether its rows are tokens. */
#ifndef AF_MERGE_NAMES_H
#define AF_MERGE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The number in "....layers.N....", or -1; *at, *end are where it stands. Layers of what reads
 * images or sound, and of what predicts further tokens, are none of the text model's. */
int64_t af_merge_layer_of(const char *name, size_t *at, size_t *end);
bool af_merge_is_embed(const char *name);
bool af_merge_is_head(const char *name);
#endif
