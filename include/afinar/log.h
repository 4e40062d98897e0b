/* log.h - one hook through which the library talks. It never prints: each line goes to the hook,
 * and the program decides what to do with it. */
#ifndef AFINAR_LOG_H
#define AFINAR_LOG_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum af_log_level { AF_LOG_DEBUG, AF_LOG_INFO, AF_LOG_WARN } af_log_level;
typedef void af_log_hook(void *user, af_log_level level, const char *line);

/* Sets the hook of the process (NULL = silence, the default). Call before threads start. */
void af_log_set(af_log_hook *hook, void *user);

#ifdef __cplusplus
}
#endif
#endif
