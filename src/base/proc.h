/* proc.h - what the system says in /proc, read without an allocation: it is asked for when memory
 * is short, too. */
#ifndef AF_PROC_H
#define AF_PROC_H

#include "base/base.h"

/* The first size - 1 bytes of a file, NUL-terminated. False, and "", when it cannot be read. */
bool af_proc_read(char *text, size_t size, const char *path);
/* What follows a key at the beginning of a line ("MemAvailable:"), without blanks; NULL. */
const char *af_proc_find(const char *text, const char *key);
/* The number there; 0 when there is none. */
uint64_t af_proc_number(const char *text, const char *key);
#endif
