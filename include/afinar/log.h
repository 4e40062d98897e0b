/* log.h - the log hook. The library never prints; each log line goes to the hook. */
#ifndef AFINAR_LOG_H
#define AFINAR_LOG_H

#include "afinar/api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum af_log_level { AF_LOG_DEBUG, AF_LOG_INFO, AF_LOG_WARN } af_log_level;
/* Gets one line without newline, valid during the call. May be called from any thread of the
 * library. */
typedef void af_log_hook(void *user, af_log_level level, const char *line);

/* Sets the hook of the process; NULL (the default) discards all lines. Not thread-safe: call it
 * before other threads use the library. */
AF_API void af_log_set(af_log_hook *hook, void *user);

#ifdef __cplusplus
}
#endif
#endif
