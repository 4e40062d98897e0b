/* named_template.h - chat templates by name, for models that have none or another one. */
#ifndef AF_NAMED_TEMPLATE_H
#define AF_NAMED_TEMPLATE_H

#include "base/base.h"

typedef struct af_named_template {
    const char *names; /* separated by blanks */
    const char *jinja;
    const char *eot; /* ends an answer, a token or not; NULL = eos, or the template marks answers */
} af_named_template;

/* NULL when there is none of that name. */
const af_named_template *af_named_template_find(const char *name);
/* The i-th row, or NULL after the last. */
const af_named_template *af_named_template_at(int i);
#endif
