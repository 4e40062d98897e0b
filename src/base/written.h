/* written.h - which files of a folder afinar itself wrote: the manifest AF_WRITTEN_NAME.
 *
 * One line per file: the group (which kind of output it belongs to: "model", "run", "file"), its
 * size, a checksum ("-": any content, for logs that grow), and the name, relative to the folder.
 * While files are being replaced a name has two lines, the old content and the new one. */
#ifndef AF_WRITTEN_H
#define AF_WRITTEN_H

#include "base/base.h"

#define AF_WRITTEN_NAME ".afinar-files"

enum { AF_WRITTEN_SUM = 33 }; /* 32 hex digits and a NUL */

typedef struct af_written_line {
    char *group, *name;
    uint64_t size;
    char sum[AF_WRITTEN_SUM]; /* "-": any content */
} af_written_line;

typedef struct af_written {
    af_written_line *line;
    int count, cap;
} af_written;

/* The manifest of a folder; without one (or without the folder) *out is empty. */
AF_CHECKED af_status af_written_read(af_written *out, const char *dir, af_error *err);
/* Replaces the manifest of a folder; without lines it is removed. */
AF_CHECKED af_status af_written_write(const af_written *w, const char *dir, af_error *err);
void af_written_clear(af_written *w);

/* Adds a line. from: the file with the content to record, NULL = any content. */
AF_CHECKED af_status af_written_add(af_written *w, const char *group, const char *name,
                                    const char *from, af_error *err);
/* Removes the lines of a name (NULL: of all names) in a group. */
void af_written_drop(af_written *w, const char *group, const char *name);
/* Adds the lines of `from` that are in a group (NULL: in all). */
AF_CHECKED af_status af_written_join(af_written *w, const af_written *from, const char *group,
                                     af_error *err);

typedef enum af_written_state {
    AF_WRITTEN_ABSENT,  /* there is nothing of that name */
    AF_WRITTEN_OWN,     /* written by afinar, and unchanged */
    AF_WRITTEN_CHANGED, /* written by afinar and changed since */
    AF_WRITTEN_FOREIGN, /* not written by afinar, or not for an output of this group */
    AF_WRITTEN_UNREAD   /* it may be ours, but cannot be read */
} af_written_state;
/* What `dir`/`name` is. Links and special files are foreign. */
af_written_state af_written_check(const af_written *w, const char *group, const char *dir,
                                  const char *name);
#endif
