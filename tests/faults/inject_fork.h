/* inject_fork.h - the part of the fault library that starts failing copies of a running program. */
#ifndef AF_INJECT_FORK_H
#define AF_INJECT_FORK_H

#include <stdbool.h>

typedef struct fork_fault {
    bool sticky;
    long error;
} fork_fault;

/* AF_FAULT_FORK: the number of a socket to the sweep. */
void inject_fork_start(void);

/* Files are about to change. */
void inject_wrote(void);

/* A thread that somebody waits for was made (1) or waited for (-1); a copy would not have it. */
void inject_joinable(int change);

/* This thread took (1) or gave back (-1) a mutex. */
void inject_held(int change);

/* Before the n-th call: starts the copies that the sweep asks for, one after the other. True in a
 * copy, whose call has to fail by *fault; false in the program itself, which goes on. */
bool inject_fork(long n, fork_fault *fault);

#endif
