/* run_foreign.h - what keys of other trainers mean here. */
#ifndef AF_RUN_FOREIGN_H
#define AF_RUN_FOREIGN_H

#include "train/run/run_keys.h"

typedef enum af_foreign_kind {
    AF_FOREIGN_UNKNOWN, /* no trainer is known to have it */
    AF_FOREIGN_NOTHING, /* asks for nothing: empty, off, or what happens anyway */
    AF_FOREIGN_IDLE,    /* does not change what is learnt */
    AF_FOREIGN_INSTEAD, /* something close happens instead: accepted with a warning */
    AF_FOREIGN_REFUSED, /* not supported; false, 0 and none ask for nothing */
    AF_FOREIGN_EXACT,   /* not supported, also when false: only listed values are accepted */
} af_foreign_kind;

/* What a key with this value asks for. *reason: what happens here, or what to use instead; NULL for
 * an unknown key. */
af_foreign_kind af_foreign_judge(const char *key, const af_yaml *value, const char **reason);
/* Where a key of kind INSTEAD asks for something. */
af_key_need af_foreign_need(const char *key);
/* Whether another trainer is known to have this key. */
bool af_foreign_knows(const char *key);
/* The one of these keys nearest to a wrong name, within `most` letters; NULL when none is. Static.
 */
const char *af_foreign_suggest(const char *wrong, int most);
/* The i-th group of keys (separated by blanks; x_* = all that begin with x_); false after the last.
 */
bool af_foreign_at(int i, const char **keys, af_foreign_kind *kind, const char **reason);
#endif
