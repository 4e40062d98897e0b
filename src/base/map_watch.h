/* map_watch.h - which file a mapped address belongs to, for files that become shorter while they
 * are in use (docs/decisions/0029-mapped-files-that-shrink.md). */
#ifndef AF_MAP_WATCH_H
#define AF_MAP_WATCH_H

#include "base/base.h"

/* Registers a mapped file, and removes it again (before it is unmapped). Of more than a few
 * thousand at once the rest is not known. */
void af_map_watch_add(const void *data, uint64_t size, const char *path);
void af_map_watch_drop(const void *data);
/* The file that an address is mapped from, or NULL. Takes no lock: for signal handlers. Borrowed
 * until the file is unmapped. */
const char *af_map_watch_find(const void *address);
/* "'FILE' became shorter, or could not be read any more, while it was in use". */
af_status af_map_watch_fail(const char *path, af_error *err);
#endif
