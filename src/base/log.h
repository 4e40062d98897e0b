/* log.h - the library's side of the log: passes a line to the hook of afinar/log.h. */
#ifndef AF_LOG_H
#define AF_LOG_H

#include "afinar/log.h"
#include "base/base.h"

AF_PRINTF(2, 3) void af_log_write(af_log_level level, const char *fmt, ...);
/* No lines but those at AF_LOG_DEBUG: another process of the run writes the same ones. */
void af_log_mute(bool on);

/* Where a run's seconds go, at AF_LOG_DEBUG: "time 0.412 s (+ 0.071): data". Each line names what
 * has just ended, with the seconds since af_log_time_begin and since the calling thread's last
 * one; NULL: no line, the thread begins here. */
void af_log_time_begin(void);
void af_log_time_end(void); /* no lines from here on */
void af_log_time(const char *what);
#endif
