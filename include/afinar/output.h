/* output.h - what a program that uses the library leaves on the disk.
 *
 * Everything is written under a temporary name and renamed at the end. An output that exists is
 * refused. With `force` the files that afinar itself wrote there are replaced, which it knows from
 * the file .afinar-files next to them; all others are kept, and a file that would be overwritten
 * but was not written (or has been changed since) is an error. */
#ifndef AFINAR_OUTPUT_H
#define AFINAR_OUTPUT_H

#include "afinar/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a file of n bytes by the rule above. AF_EUSAGE when it exists, AF_EIO. */
AF_API AF_CHECKED af_status af_output_write(const char *path, const void *bytes, uint64_t n,
                                            bool force, af_error *err);

/* Whether af_output_write would refuse the path now, for a check before long work. */
AF_API AF_CHECKED af_status af_output_check_file(const char *path, bool force, af_error *err);

/* Removes all temporary files and folders that this process has; finished output stays. Threads
 * that write stop at their next file, so the process must exit afterwards: this is for a thread
 * that handles signals. False when there were none. */
AF_API bool af_output_abort(void);

/* Models, datasets and caches are read through memory maps. When such a file becomes shorter while
 * it is in use, the system raises SIGBUS. From now on this process handles that signal: the thread
 * that was reading stops for ever, and `handler` is called with the file and the sentence about it
 * on a thread of its own. It must end the process (af_output_abort first). A SIGBUS for another
 * reason does what it did. At most once per process; AF_EUSAGE, AF_EIO. */
AF_API AF_CHECKED af_status af_output_on_lost_file(void (*handler)(const char *file,
                                                                   const af_error *why),
                                                   af_error *err);

#ifdef __cplusplus
}
#endif
#endif
