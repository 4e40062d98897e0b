/* log.h - one hook through which the library talks.
 *
 * The library never prints. It hands each line to the hook; the program decides where it goes. */
#ifndef AF_LOG_H
#define AF_LOG_H

#include "base/base.h"

typedef enum af_log_level { AF_LOG_DEBUG, AF_LOG_INFO, AF_LOG_WARN } af_log_level;
typedef void af_log_hook(void *user, af_log_level level, const char *line);

/* Sets the hook of the process (NULL = silence, the default). Call before threads start. */
void af_log_set(af_log_hook *hook, void *user);
AF_PRINTF(2, 3) void af_say(af_log_level level, const char *fmt, ...);
#endif
