/* inject_fork.c - at each call of a program the sweep may have it copied (fork); the call fails in
 * the copy, which runs to its end while the original waits. So the way to the n-th call is gone
 * once for all n. Only while a copy is as good as a new run: no file is open for writing (both
 * would write to it), no thread lives that is waited for (the copy does not have it), and no mutex
 * is held (a recursive one knows its owner by a number that the copy does not have).
 *
 * On the socket: "N\n" from here before a call, "-N\n" when files may have changed since the last
 * one (the sweep puts back what a copy changes). The answer is "go N\n": ask again from the N-th
 * call on, or end if 0; or "STICKY ERRNO OUT\n" with the prefix of two files for what the copy
 * writes to stdout and stderr, to which "PID\n" follows at its start and "STATUS\n" (of waitpid)
 * at its end. */
#define _GNU_SOURCE
#include "inject_fork.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE_BYTES = 4200, FILES = 64 };

static int sock = -1;
static long wanted = 1;            /* call */
static atomic_bool wrote, changed; /* ever; since the sweep was told */
static atomic_int joinable;
static __thread int held;

void inject_fork_start(void)
{
    const char *s = getenv("AF_FAULT_FORK");
    sock = s ? (int)strtol(s, NULL, 10) : -1;
}

void inject_wrote(void)
{
    atomic_store(&wrote, true);
    atomic_store(&changed, true);
}

void inject_joinable(int change) { atomic_fetch_add(&joinable, change); }

void inject_held(int change) { held += change; }

/* Not write() and read(): those are counted. */
static void tell(long value)
{
    char line[32];
    const int n = snprintf(line, sizeof line, "%ld\n", value);
    if (syscall(SYS_write, sock, line, (size_t)n) != n)
        syscall(SYS_exit_group, 3); /* the sweep is gone */
}

static void hear(char line[LINE_BYTES])
{
    size_t n = 0;
    for (; n + 1 < LINE_BYTES; n++)
        if (syscall(SYS_read, sock, line + n, 1) != 1)
            syscall(SYS_exit_group, 3);
        else if (line[n] == '\n')
            break;
    line[n] = '\0';
}

static void redirect(const char *prefix, const char *end, int to)
{
    char path[LINE_BYTES];
    snprintf(path, sizeof path, "%s.%s", prefix, end);
    const int fd =
        (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
    syscall(SYS_dup3, fd, to, 0);
    syscall(SYS_close, fd);
}

/* A copy shares the positions in the files that are open. */
static void positions(long at[FILES], bool restore)
{
    for (int fd = 0; fd < FILES; fd++)
        if (!restore)
            at[fd] = syscall(SYS_lseek, fd, 0, SEEK_CUR);
        else if (at[fd] >= 0)
            syscall(SYS_lseek, fd, at[fd], SEEK_SET);
}

static bool writes_file(void)
{
    struct stat s;
    for (int fd = STDERR_FILENO + 1; atomic_load(&wrote) && fd < FILES; fd++) {
        const int flags = fcntl(fd, F_GETFL);
        if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && fstat(fd, &s) == 0 &&
            S_ISREG(s.st_mode))
            return true;
    }
    return false;
}

bool inject_fork(long n, fork_fault *fault)
{
    char line[LINE_BYTES];
    if (sock < 0 || n < wanted || held > 0 || atomic_load(&joinable) > 0 ||
        syscall(SYS_gettid) != getpid() || writes_file())
        return false;
    tell(atomic_exchange(&changed, false) ? -n : n);
    for (hear(line); strncmp(line, "go ", 3) != 0; hear(line)) {
        char *end = line;
        fault->sticky = strtol(end, &end, 10) == 1;
        fault->error = strtol(end, &end, 10);
        long at[FILES];
        positions(at, false);
        const pid_t pid = fork();
        if (pid == 0) {
            syscall(SYS_close, sock);
            sock = -1;
            redirect(end + 1, "out", STDOUT_FILENO);
            redirect(end + 1, "err", STDERR_FILENO);
            return true;
        }
        int status = -1;
        tell(pid);
        while (waitpid(pid, &status, 0) != pid && pid > 0)
            ;
        positions(at, true);
        tell(status);
    }
    wanted = strtol(line + 3, NULL, 10);
    if (wanted == 0)
        syscall(SYS_exit_group, 0);
    return false;
}
