/* interrupt.h - removes partial output when a command is interrupted. */
#ifndef AF_CLI_INTERRUPT_H
#define AF_CLI_INTERRUPT_H

#include "term/cli.h"

/* From now on Ctrl-C, SIGTERM and SIGHUP remove partial output and then end the process. Call
 * before threads start. */
void af_cli_remove_partial_output(void);
/* From now on a file that becomes shorter while it is mapped ends the process with one sentence and
 * without partial output. */
void af_cli_watch_files(const char *command);
#endif
