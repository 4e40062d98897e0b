/* interrupt.h - removes partial output when a command is interrupted. */
#ifndef AF_CLI_INTERRUPT_H
#define AF_CLI_INTERRUPT_H

#include "term/cli.h"

/* From now on Ctrl-C, SIGTERM and SIGHUP remove the partial output `out` and then end the process.
 * `out` must stay valid; NULL does nothing. Call before threads start. */
void af_cli_remove_partial_output(const char *out);
#endif
