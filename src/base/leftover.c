/* leftover.c - temporary names, and the removal of what killed runs left under them.
 *
 * A name is ours when it has exactly the form ".NAME.PID.N.tmp", and abandoned when no process has
 * that number and none holds a lock on the file: another host or container may have a process we
 * cannot see, but its lock we do. */
#define _GNU_SOURCE
#include "base/buf.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_KEPT = 200 }; /* bytes: with the rest a temporary name has less than NAME_MAX, 255 */

/* How much of a name its temporary one has, without half a character. */
static int kept_of(const char *name)
{
    size_t n = AF_MIN(strlen(name), (size_t)NAME_KEPT);
    while (n && ((unsigned char)name[n] & 0xc0) == 0x80)
        n--;
    return (int)n;
}

char *af_path_temp(const char *path, const char *suffix)
{
    static unsigned counter;
    const char *name = af_path_name(path);
    af_buf b = {0};
    const unsigned n = __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED);
    af_buf_printf(&b, "%.*s.%.*s.%ld.%u.%s", (int)(name - path), path, kept_of(name), name,
                  (long)getpid(), n, suffix);
    return af_buf_take(&b);
}

bool af_dir_hold(const char *path, int *fd)
{
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0 || flock(*fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return true;
    close(*fd);
    *fd = -1;
    return false;
}

/* The process number in ".NAME.PID.N.tmp", or 0. Of a long name the beginning counts. */
static long owner_of(const char *entry, const char *name, const char *suffix)
{
    const size_t n = (size_t)kept_of(name);
    char *end;
    if (entry[0] != '.' || strncmp(entry + 1, name, n) != 0 || entry[n + 1] != '.')
        return 0;
    const char *at = entry + n + 2;
    if (*at < '1' || *at > '9')
        return 0;
    const long pid = strtol(at, &end, 10);
    at = end + 1;
    if (*end != '.' || *at < '0' || *at > '9')
        return 0;
    (void)strtoul(at, &end, 10);
    return *end == '.' && strcmp(end + 1, suffix) == 0 ? pid : 0;
}

static bool is_held(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno != ENOENT && errno != ELOOP; /* a link is held by nobody */
    const bool held = flock(fd, LOCK_EX | LOCK_NB) != 0;
    close(fd);
    return held;
}

static bool is_link(const char *path)
{
    struct stat s;
    return lstat(path, &s) == 0 && S_ISLNK(s.st_mode);
}

/* A folder is held while a file in it is. */
static bool any_held(const char *path)
{
    char **names = NULL;
    int n = 0;
    bool held = is_held(path);
    if (!held && !is_link(path) && af_dir_exists(path) &&
        af_dir_list(&names, &n, path, NULL) != AF_OK)
        return true;
    for (int i = 0; i < n && !held; i++) {
        char *inner = af_path_join(path, names[i]);
        held = !inner || is_held(inner);
        free(inner);
    }
    af_names_free(names, n);
    return held;
}

static void remove_dead(const char *dir, const char *entry, long pid)
{
    if (kill((pid_t)pid, 0) == 0 || errno != ESRCH)
        return;
    char *old = af_path_join(dir, entry);
    if (old && !any_held(old) && af_path_remove(old, NULL) != AF_OK) {
        /* it stays; what is being written does not depend on it */
    }
    free(old);
}

void af_path_sweep(const char *path)
{
    const char *name = af_path_name(path);
    const bool failed = af_memory_failed();
    char *dir = af_path_parent(path), **names = NULL;
    int n = 0;
    if (dir && *name && af_dir_list(&names, &n, dir, NULL) == AF_OK) {
        const bool there = af_file_exists(path) || af_dir_exists(path);
        for (int i = 0; i < n; i++) {
            const long fresh = owner_of(names[i], name, "tmp");
            const long moved = there ? owner_of(names[i], name, "old") : 0;
            if (fresh || moved)
                remove_dead(dir, names[i], fresh ? fresh : moved);
        }
        af_names_free(names, n);
    }
    free(dir);
    if (!failed)
        af_memory_forget(); /* it stays until the next time */
}
