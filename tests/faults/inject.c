/* inject.c - preloaded library of the fault tests: counts the calls of one kind that a program
 * makes, records them, and lets chosen ones fail. Driven by the environment:
 *
 *   AF_FAULT_KIND    alloc: malloc and its relatives (those inside libc too), mmap
 *                    thread: pthread_create
 *                    io: open, read, write, sync, rename and what else touches files, not sockets
 *   AF_FAULT_AT      number of the call that fails, from 1; 0 or absent: none
 *   AF_FAULT_STICKY  1: so do all later ones
 *   AF_FAULT_ERROR   errno of io calls as a number (ENOSPC: later calls fail only when they need
 *                    space); 0: a write is short; -9: the process is killed
 *   AF_FAULT_COUNT   file for the number of calls, and of blocks not freed, written at exit
 *   AF_FAULT_TRACE   file with one line per call: "NUMBER HASH-OF-THE-CALL-STACK CALL", and for
 *                    io " RESULT PATH [SECOND-PATH]"
 *   AF_FAULT_STACK   1: the stack of the call that fails goes to stderr
 *   AF_FAULT_FORK    socket to the sweep: fails in copies of the process (inject_fork.c)
 *   AF_FAULT_ONLY    NAME=VALUE: only in processes with this variable
 *
 * glibc only: its own callers of malloc go through the symbol that is replaced here. Calls of
 * open() and the like inside libc do not, so stdio and opendir have entries of their own. */
#define _GNU_SOURCE
#include "inject_fork.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, FRAMES = 48, EARLY_BYTES = 1 << 16 };

typedef enum fault_kind { KIND_NONE, KIND_ALLOC, KIND_THREAD, KIND_IO } fault_kind;

static fault_kind kind;
static long fail_at, fail_errno = EIO;
static bool sticky, show_stack, armed;
static int trace_fd = -1;
static char count_path[PATH_BYTES];
static atomic_long calls, live; /* live: blocks of memory that are not freed */
static __thread bool inside;    /* this library's own calls do not count */

/* dlsym() may allocate before malloc is known */
static _Alignas(16) char early[EARLY_BYTES];
static atomic_size_t early_used;

static void *early_take(size_t n)
{
    const size_t at = atomic_fetch_add(&early_used, (n + 15) & ~(size_t)15);
    return at + n <= sizeof early ? early + at : NULL;
}

static bool is_early(const void *p)
{
    return (uintptr_t)p >= (uintptr_t)early && (uintptr_t)p < (uintptr_t)early + sizeof early;
}

/* The function that would have been called without this library. */
static void *next_of(const char *name)
{
    const bool was = inside;
    inside = true;
    void *f = dlsym(RTLD_NEXT, name);
    inside = was;
    return f;
}
#define NEXT(name)                                                                                 \
    static __typeof__(&name) next;                                                                 \
    if (!next)                                                                                     \
    next = (__typeof__(&name))next_of(#name)

static void say(int fd, const char *text, size_t n)
{
    while (n > 0) { /* not write(): that one is counted */
        const long w = syscall(SYS_write, fd, text, n);
        if (w <= 0)
            return;
        text += w;
        n -= (size_t)w;
    }
}

static int open_log(const char *path)
{
    return (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
}

/* glibc never frees the buffer of stdout, and only a program that prints has one. */
static int stdout_blocks(void)
{
    return stdout->_IO_buf_base && stdout->_IO_buf_base != stdout->_shortbuf;
}

static void at_exit(void)
{
    char text[64];
    armed = false;
    if (!count_path[0])
        return;
    const int fd = open_log(count_path);
    say(fd, text,
        (size_t)snprintf(text, sizeof text, "%ld %ld\n", atomic_load(&calls),
                         atomic_load(&live) - stdout_blocks()));
    syscall(SYS_close, fd);
}

static long number(const char *name)
{
    const char *s = getenv(name);
    return s ? strtol(s, NULL, 10) : 0;
}

/* AF_FAULT_ONLY: of several processes, one rank of a run. */
static bool is_meant(void)
{
    const char *only = getenv("AF_FAULT_ONLY"), *is = only ? strchr(only, '=') : NULL;
    char name[64];
    if (!is)
        return true;
    snprintf(name, sizeof name, "%.*s", (int)(is - only), only);
    const char *value = getenv(name);
    return value && strcmp(value, is + 1) == 0;
}

__attribute__((constructor)) static void start(void)
{
    const char *k = getenv("AF_FAULT_KIND"), *trace = getenv("AF_FAULT_TRACE");
    const char *count = getenv("AF_FAULT_COUNT");
    if (!is_meant())
        return;
    inside = true;
    if (k)
        kind = !strcmp(k, "alloc") ? KIND_ALLOC : !strcmp(k, "thread") ? KIND_THREAD : KIND_IO;
    fail_at = number("AF_FAULT_AT");
    sticky = number("AF_FAULT_STICKY") == 1;
    show_stack = number("AF_FAULT_STACK") == 1;
    if (getenv("AF_FAULT_ERROR"))
        fail_errno = number("AF_FAULT_ERROR");
    if (trace)
        trace_fd = open_log(trace);
    if (count)
        snprintf(count_path, sizeof count_path, "%s", count);
    if (trace_fd >= 0 || show_stack) {
        void *frame[2];
        backtrace(frame, 2); /* loads the unwinder now, not inside malloc */
    }
    inject_fork_start();
    atexit(at_exit);
    inside = false;
    armed = kind != KIND_NONE;
}

/* Of the return addresses; without randomized addresses the same in every run. */
static unsigned long long stack_hash(void)
{
    void *frame[FRAMES];
    uint64_t hash = 14695981039346656037u;
    const int depth = backtrace(frame, FRAMES);
    for (int i = 0; i < depth; i++)
        hash = (hash ^ (uintptr_t)frame[i]) * 1099511628211u;
    return hash;
}

static void trace_alloc(long n, const char *call)
{
    char line[96];
    say(trace_fd, line,
        (size_t)snprintf(line, sizeof line, "%ld %016llx %s\n", n, stack_hash(), call));
}

/* Counts a call; true when it is to fail. */
static bool is_hit(fault_kind k, long *n, const char *call)
{
    fork_fault copy;
    if (!armed || inside || k != kind)
        return false;
    *n = atomic_fetch_add(&calls, 1) + 1;
    inside = true;
    if (inject_fork(*n, &copy)) {
        fail_at = *n;
        sticky = copy.sticky;
        fail_errno = copy.error;
    }
    const bool hit = fail_at > 0 && (*n == fail_at || (sticky && *n > fail_at));
    if (trace_fd >= 0 && k == KIND_ALLOC)
        trace_alloc(*n, call);
    if (hit && show_stack && *n == fail_at) {
        void *frame[FRAMES];
        backtrace_symbols_fd(frame, backtrace(frame, FRAMES), STDERR_FILENO);
    }
    inside = false;
    return hit;
}

static void *lived(void *p)
{
    if (p && !inside)
        atomic_fetch_add(&live, 1);
    return p;
}

static bool no_memory(const char *call)
{
    long n;
    if (!is_hit(KIND_ALLOC, &n, call))
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t n)
{
    if (inside && !armed && !kind)
        return early_take(n);
    NEXT(malloc);
    return no_memory("malloc") ? NULL : lived(next(n));
}

void *calloc(size_t count, size_t size)
{
    static void *(*next)(size_t, size_t);
    if (!next) {
        if (inside) /* dlsym asks */
            return early_take(count * size);
        next = (void *(*)(size_t, size_t))next_of("calloc");
    }
    return no_memory("calloc") ? NULL : lived(next(count, size));
}

void *realloc(void *p, size_t n)
{
    NEXT(realloc);
    if (is_early(p)) {
        void *copy = malloc(n);
        if (copy)
            memmove(copy, p,
                    n < (size_t)(early + sizeof early - (char *)p)
                        ? n
                        : (size_t)(early + sizeof early - (char *)p));
        return copy;
    }
    return no_memory("realloc") ? NULL : p ? next(p, n) : lived(next(p, n));
}

void *reallocarray(void *p, size_t count, size_t size)
{
    NEXT(reallocarray);
    return no_memory("reallocarray") ? NULL
           : p                       ? next(p, count, size)
                                     : lived(next(p, count, size));
}

void free(void *p)
{
    NEXT(free);
    if (p && !inside)
        atomic_fetch_sub(&live, 1);
    if (!is_early(p))
        next(p);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    NEXT(posix_memalign);
    const int rc = no_memory("posix_memalign") ? ENOMEM : next(out, align, n);
    if (rc == 0)
        lived(*out);
    return rc;
}

void *aligned_alloc(size_t align, size_t n)
{
    NEXT(aligned_alloc);
    return no_memory("aligned_alloc") ? NULL : lived(next(align, n));
}

void *memalign(size_t align, size_t n)
{
    NEXT(memalign);
    return no_memory("memalign") ? NULL : lived(next(align, n));
}

int pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    NEXT(pthread_create);
    long n;
    int detached = PTHREAD_CREATE_JOINABLE;
    if (is_hit(KIND_THREAD, &n, "pthread_create"))
        return EAGAIN;
    if (attr)
        pthread_attr_getdetachstate(attr, &detached);
    inject_joinable(detached == PTHREAD_CREATE_JOINABLE);
    return next(out, attr, run, arg);
}

int pthread_detach(pthread_t thread)
{
    NEXT(pthread_detach);
    inject_joinable(-1);
    return next(thread);
}

int pthread_join(pthread_t thread, void **out)
{
    NEXT(pthread_join);
    const int rc = next(thread, out);
    inject_joinable(-1);
    return rc;
}

int pthread_mutex_lock(pthread_mutex_t *m)
{
    NEXT(pthread_mutex_lock);
    const int rc = next(m);
    inject_held(rc == 0);
    return rc;
}

int pthread_mutex_unlock(pthread_mutex_t *m)
{
    NEXT(pthread_mutex_unlock);
    inject_held(-1);
    return next(m);
}

/* --- files. Each entry: BEGIN(...), the call unless it fails, END --- */

static void path_of_fd(int fd, char path[PATH_BYTES])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, PATH_BYTES - 1);
    path[n > 0 ? n : 0] = '\0';
}

static void trace_io(long n, const char *call, bool failed, const char *a, const char *b)
{
    char line[2 * PATH_BYTES + 64];
    const int saved = errno;
    inside = true;
    const int len = snprintf(line, sizeof line, "%ld %016llx %s %s %s %s\n", n, stack_hash(), call,
                             failed ? "fails" : "ok", a, b ? b : "");
    say(trace_fd, line, (size_t)len);
    inside = false;
    errno = saved;
}

static bool needs_space(const char *call)
{
    static const char *const those[] = {"create",    "write", "fsync", "ftruncate",
                                        "fallocate", "mkdir", "rename"};
    for (size_t i = 0; i < sizeof those / sizeof *those; i++)
        if (strcmp(call, those[i]) == 0)
            return true;
    return false;
}

static bool path_hit(const char *call, const char *a, const char *b)
{
    long n;
    const bool before = armed && !inside && kind == KIND_IO;
    bool hit = is_hit(KIND_IO, &n, call);
    if (hit && fail_errno == ENOSPC && n > fail_at && !needs_space(call))
        hit = false;
    if (before && trace_fd >= 0)
        trace_io(n, call, hit, a, b);
    if (hit && fail_errno == -SIGKILL)
        kill(getpid(), SIGKILL);
    if (hit)
        errno = fail_errno ? (int)fail_errno : EINTR;
    return hit;
}

/* Not a socket or pipe, and nothing that has no type at all (epoll, eventfd). */
static bool is_file(int fd)
{
    struct stat s;
    return fstat(fd, &s) != 0 || S_ISREG(s.st_mode) || S_ISDIR(s.st_mode) || S_ISCHR(s.st_mode);
}

static bool fd_hit(const char *call, int fd)
{
    char path[PATH_BYTES] = "";
    if (!armed || inside || kind != KIND_IO || fd <= STDERR_FILENO || !is_file(fd))
        return false;
    if (trace_fd >= 0)
        path_of_fd(fd, path);
    return path_hit(call, path, NULL);
}

static mode_t mode_of(int flags, va_list ap)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
    NEXT(open);
    va_list ap;
    va_start(ap, flags);
    const mode_t mode = mode_of(flags, ap);
    va_end(ap);
    if (path_hit(flags & O_CREAT ? "create" : "open", path, NULL))
        return -1;
    if ((flags & O_ACCMODE) != O_RDONLY)
        inject_wrote();
    return next(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    const mode_t mode = mode_of(flags, ap);
    va_end(ap);
    return open(path, flags, mode);
}

int mkostemp(char *path, int flags)
{
    NEXT(mkostemp);
    if (path_hit("create", path, NULL))
        return -1;
    inject_wrote();
    return next(path, flags);
}

FILE *fopen(const char *path, const char *mode)
{
    NEXT(fopen);
    if (path_hit("fopen", path, NULL))
        return NULL;
    if (mode[0] != 'r' || strchr(mode, '+'))
        inject_wrote();
    return next(path, mode);
}

DIR *opendir(const char *path)
{
    NEXT(opendir);
    return path_hit("opendir", path, NULL) ? NULL : next(path);
}

struct dirent *readdir(DIR *d)
{
    NEXT(readdir);
    return fd_hit("readdir", dirfd(d)) ? NULL : next(d);
}

int close(int fd)
{
    NEXT(close);
    const bool hit = fd_hit("close", fd);
    const int rc = next(fd); /* closed in every case, as Linux does */
    if (hit)
        errno = fail_errno ? (int)fail_errno : EINTR;
    return hit ? -1 : rc;
}

ssize_t read(int fd, void *p, size_t n)
{
    NEXT(read);
    return !fd_hit("read", fd) ? next(fd, p, n) : !fail_errno && n > 1 ? next(fd, p, n / 2) : -1;
}

ssize_t write(int fd, const void *p, size_t n)
{
    NEXT(write);
    return !fd_hit("write", fd) ? next(fd, p, n) : !fail_errno && n > 1 ? next(fd, p, n / 2) : -1;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    NEXT(pwrite);
    return !fd_hit("write", fd)   ? next(fd, p, n, at)
           : !fail_errno && n > 1 ? next(fd, p, n / 2, at)
                                  : -1;
}

ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at) { return pwrite(fd, p, n, at); }

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t n, unsigned flags)
{
    NEXT(copy_file_range);
    return !fd_hit("write", out)  ? next(in, from, out, to, n, flags)
           : !fail_errno && n > 1 ? next(in, from, out, to, n / 2, flags)
                                  : -1;
}

int fsync(int fd)
{
    NEXT(fsync);
    return fd_hit("fsync", fd) ? -1 : next(fd);
}

int fdatasync(int fd)
{
    NEXT(fdatasync);
    return fd_hit("fsync", fd) ? -1 : next(fd);
}

int ftruncate(int fd, off_t n)
{
    NEXT(ftruncate);
    return fd_hit("ftruncate", fd) ? -1 : next(fd, n);
}

int ftruncate64(int fd, off64_t n) { return ftruncate(fd, n); }

int posix_fallocate(int fd, off_t at, off_t n)
{
    NEXT(posix_fallocate);
    return fd_hit("fallocate", fd) ? errno : next(fd, at, n);
}

int posix_fallocate64(int fd, off64_t at, off64_t n) { return posix_fallocate(fd, at, n); }

/* A call that changes folders. */
#define CHANGES(name, call, args, from, to, ...)                                                   \
    int name args                                                                                  \
    {                                                                                              \
        NEXT(name);                                                                                \
        if (path_hit(call, from, to))                                                              \
            return -1;                                                                             \
        inject_wrote();                                                                            \
        return next(__VA_ARGS__);                                                                  \
    }
CHANGES(rename, "rename", (const char *from, const char *to), from, to, from, to)
CHANGES(renameat2, "renameat2", (int a, const char *from, int b, const char *to, unsigned flags),
        from, to, a, from, b, to, flags)
CHANGES(link, "link", (const char *from, const char *to), from, to, from, to)
CHANGES(unlink, "unlink", (const char *path), path, NULL, path)
CHANGES(unlinkat, "unlink", (int dir, const char *path, int flags), path, NULL, dir, path, flags)
CHANGES(rmdir, "rmdir", (const char *path), path, NULL, path)
CHANGES(mkdir, "mkdir", (const char *path, mode_t mode), path, NULL, path, mode)

ssize_t getdents64(int fd, void *block, size_t n)
{
    NEXT(getdents64);
    return fd_hit("readdir", fd) ? -1 : next(fd, block, n);
}

int openat(int dir, const char *path, int flags, ...)
{
    NEXT(openat);
    va_list ap;
    va_start(ap, flags);
    const mode_t mode = mode_of(flags, ap);
    va_end(ap);
    if (path_hit(flags & O_CREAT ? "create" : "opendir", path, NULL))
        return -1;
    if ((flags & O_ACCMODE) != O_RDONLY)
        inject_wrote();
    return next(dir, path, flags, mode);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
    NEXT(mmap);
    if (no_memory("mmap") || (fd >= 0 && fd_hit("mmap", fd)))
        return MAP_FAILED;
    return next(at, n, prot, flags, fd, off);
}

void *mmap64(void *at, size_t n, int prot, int flags, int fd, off64_t off)
{
    return mmap(at, n, prot, flags, fd, off);
}
