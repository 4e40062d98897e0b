/* log.h - the library's side of the log: passes a line to the hook of afinar/log.h. */
#ifndef AF_LOG_H
#define AF_LOG_H

#include "afinar/log.h"
#include "base/base.h"

AF_PRINTF(2, 3) void af_log_write(af_log_level level, const char *fmt, ...);
#endif
