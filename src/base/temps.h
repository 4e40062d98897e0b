/* temps.h - what this process would leave when it ended now; see temps.c. */
#ifndef AF_TEMPS_H
#define AF_TEMPS_H

#include "base/base.h"

/* Of the temporary folders inside an output folder: ".afinar.PID.N.tmp". */
#define AF_TEMP_NAME "afinar"

/* Between these two, temporary files and folders are created, renamed and removed. They may be
 * nested. The first does not return once the process is ending (af_output_abort). */
void af_temps_enter(void);
void af_temps_leave(void);

typedef struct af_temp af_temp;
/* Puts a path on the list; NULL when out of memory. */
af_temp *af_temp_add(const char *path);
/* Takes it from the list: it has been renamed or removed. NULL is allowed. */
void af_temp_drop(af_temp *t);

/* A new temporary folder next to `path` (af_path_temp), on the list; what killed processes left
 * there is removed first. *dir belongs to the caller, until af_temp_dir_remove. */
AF_CHECKED af_status af_temp_dir_make(char **dir, af_temp **listed, const char *path,
                                      af_error *err);
/* Removes it with its content (it may have been renamed away), and frees `dir`. */
void af_temp_dir_remove(char *dir, af_temp *listed);

/* What waits in a folder to be synced. */
typedef enum af_unsynced {
    AF_UNSYNCED_NOTHING,
    AF_UNSYNCED_NAMES, /* the folder: its files are synced one by one */
    AF_UNSYNCED_FILES, /* and its files: for a folder that nobody sees before it has its name */
} af_unsynced;

/* From here on af_out_commit leaves that to af_unsynced_end: many files in one pass cost about as
 * much as one. NULL when out of memory; then nothing waits. */
typedef struct af_unsynced_dir af_unsynced_dir;
af_unsynced_dir *af_unsynced_begin(const char *dir, af_unsynced what);
af_unsynced af_unsynced_in(const char *dir);
/* The SHA-256 of a file that was written there, which that took no time of its own; NULL: it is not
 * known, and one known before is not right any more. */
void af_unsynced_note(const char *dir, const char *name, const char *hex);
/* What was noted; false when nothing was. */
bool af_unsynced_digest(const char *dir, const char *name, char hex[65]);
/* Syncs what waited, unless `failed`: then the files are not used. Frees d; NULL is allowed. */
AF_CHECKED af_status af_unsynced_end(af_unsynced_dir *d, bool failed, af_error *err);
#endif
