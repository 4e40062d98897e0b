/* stack.h - a stack that is large enough, whatever limit the program was started with. */
#pragma once

/* Calls run(argc, argv), on a thread where the limit on the stack (ulimit -s) is lower than usual,
 * and returns its result. Threads created later have the usual stack, too. */
int af_cli_with_stack(int (*run)(int argc, char **argv), int argc, char **argv);
