/* inspect_facts.h - what configs and metadata say, as key and value. */
#ifndef AF_INSPECT_FACTS_H
#define AF_INSPECT_FACTS_H

#include "afinar/inspect.h"
#include "base/arena_owner.h"
#include "format/weights/weights.h"

/* Fills kind, facts and meta. `w` may be NULL. A config that cannot be read becomes a fact that
 * gives the reason, so that the rest can still be inspected. */
AF_CHECKED af_status af_inspect_facts(af_inspect_report *r, const char *path, const af_weights *w,
                                      af_error *err);
#endif
