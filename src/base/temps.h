/* temps.h - what this process would leave when it ended now; see temps.c. */
#ifndef AF_TEMPS_H
#define AF_TEMPS_H

#include "base/base.h"

/* Between these two, temporary files and folders are created, renamed and removed. They may be
 * nested. The first does not return once the process is ending (af_output_abort). */
void af_temps_enter(void);
void af_temps_leave(void);

typedef struct af_temp af_temp;
/* Puts a path on the list; NULL when out of memory. */
af_temp *af_temp_add(const char *path);
/* Takes it from the list: it has been renamed or removed. NULL is allowed. */
void af_temp_drop(af_temp *t);
#endif
