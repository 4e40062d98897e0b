/* interrupt.h - what a command that writes something leaves when it is told to stop. */
#ifndef AF_CLI_INTERRUPT_H
#define AF_CLI_INTERRUPT_H

#include "term/cli.h"

/* From now on Ctrl-C (also SIGTERM and SIGHUP) removes what is written of `out` so far, and then
 * ends the program. `out` lives as long as that; NULL does nothing. Call before threads start. */
void af_cli_discard_when_stopped(const char *out);
#endif
