/* sync.h - one sync for a folder that is put in place as a whole.
 *
 * A file is on the disk before it gets its name (file.h). In a folder that nobody reads until it is
 * renamed, that is one wait per file for nothing: a thread that fills such a folder puts the waits
 * off, and syncs everything in it before the rename. The disk writes the first files meanwhile. */
#ifndef AF_SYNC_H
#define AF_SYNC_H

#include "base/base.h"

/* From now on, files that this thread puts in place are not synced (true), or are again (false). */
void af_sync_later(bool later);
/* Syncs all files of a folder, and the folder. */
AF_CHECKED af_status af_sync_folder(const char *path, af_error *err);
#endif
