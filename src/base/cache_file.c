/* cache_file.c - files of a shared cache; see cache_file.h. */
#define _GNU_SOURCE
#include "base/cache_file.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static af_status fail_errno(af_error *err, const char *verb, const char *path)
{
    const int e = errno;
    if (e == ENOMEM)
        af_memory_note();
    return af_fail(err, e == ENOMEM ? AF_ENOMEM : AF_EIO, "cannot %s '%s': %s", verb, path,
                   strerror(e));
}

static af_status make_parent(const char *path, af_error *err)
{
    const char *name = af_path_name(path);
    if (name == path || name == path + 1)
        return AF_OK;
    char *dir = af_strndup(path, (uint64_t)(name - path - 1));
    if (!dir)
        return af_fail_nomem(err, "a path", strlen(path));
    const af_status st = af_dir_make(dir, err);
    free(dir);
    return st;
}

af_status af_part_open(int *fd, const char *path, af_error *err)
{
    const af_status st = make_parent(path, err);
    if (st != AF_OK)
        return st;
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    return *fd < 0 ? fail_errno(err, "create", path) : AF_OK;
}

af_status af_part_open_read(int *fd, const char *path, af_error *err)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    return *fd < 0 ? fail_errno(err, "open", path) : AF_OK;
}

af_status af_part_write(int fd, uint64_t off, const void *bytes, uint64_t n, const char *path,
                        af_error *err)
{
    const uint8_t *p = bytes;
    while (n > 0) {
        const ssize_t k = pwrite(fd, p, n, (off_t)off);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return fail_errno(err, "write", path);
        p += k;
        off += (uint64_t)k;
        n -= (uint64_t)k;
    }
    return AF_OK;
}

af_status af_part_read(int fd, uint64_t off, void *bytes, uint64_t n, const char *path,
                       af_error *err)
{
    uint8_t *p = bytes;
    while (n > 0) {
        const ssize_t k = pread(fd, p, n, (off_t)off);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return fail_errno(err, "read", path);
        if (k == 0)
            return af_fail(err, AF_EIO, "'%s' became shorter while it was read", path);
        p += k;
        off += (uint64_t)k;
        n -= (uint64_t)k;
    }
    return AF_OK;
}

/* rename() that fails when the name is taken, in one step. */
static int rename_new(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    return link(from, to) != 0 ? -1 : unlink(from); /* a file system without that kind of rename */
}

af_status af_part_finish(int fd, const char *from, const char *to, bool keep, af_error *err)
{
    af_status st = AF_OK;
    if (fsync(fd) != 0)
        st = fail_errno(err, "write", from);
    close(fd);
    if (st == AF_OK)
        st = make_parent(to, err);
    if (st == AF_OK && (keep ? rename_new(from, to) : rename(from, to)) != 0)
        st = keep && errno == EEXIST
                 ? af_fail(err, AF_EUSAGE, "'%s' is there already, and is kept", to)
                 : fail_errno(err, "rename a file to", to);
    return st;
}

void af_part_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

enum { LINK_TRIES = 3 };

af_status af_link_make(const char *target, const char *path, af_error *err)
{
    af_status st = make_parent(path, err);
    if (st != AF_OK)
        return st;
    af_path_sweep(path);
    char *temp = af_path_temp(path, "tmp");
    if (!temp)
        return af_fail_nomem(err, "a path", strlen(path));
    bool made = false; /* a process of another host may take the new link for a leftover */
    for (int i = 0; i < LINK_TRIES && !made; i++) {
        made = symlink(target, temp) == 0 && rename(temp, path) == 0;
        if (!made && errno != ENOENT)
            break;
    }
    if (!made) {
        st = fail_errno(err, "create the link", path);
        unlink(temp);
    }
    free(temp);
    return st;
}

char *af_link_read(const char *path)
{
    char to[PATH_MAX];
    const ssize_t n = readlink(path, to, sizeof to);
    return n < 0 || n == (ssize_t)sizeof to ? NULL : af_strndup(to, (uint64_t)n);
}

af_status af_lock_take(int *fd, const char *path, af_error *err)
{
    const af_status st = make_parent(path, err);
    if (st != AF_OK)
        return st;
    int f = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0664);
    if (f < 0)
        return fail_errno(err, "create", path);
    (void)!fchmod(f, 0664); /* whatever the umask: other users of a shared cache wait on it, too */
    if (flock(f, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(f);
        f = -1;
    }
    *fd = f;
    return AF_OK;
}

/* Bytes that may still be written where `path` is or would be; UINT64_MAX when unknown. */
static uint64_t disk_free(const char *path)
{
    struct statvfs fs;
    char *p = af_strdup(path);
    bool known = p && statvfs(p, &fs) == 0;
    while (p && !known) { /* not there yet: the folder it will be in */
        char *slash = strrchr(p, '/');
        const bool last = !slash || slash == p;
        if (slash)
            *slash = '\0';
        known = statvfs(*p ? p : slash ? "/" : ".", &fs) == 0;
        if (last)
            break;
    }
    free(p);
    return known && fs.f_blocks ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
}

af_status af_disk_check(const char *path, const char *what, uint64_t bytes, af_error *err)
{
    const uint64_t left = disk_free(path);
    const bool large = bytes >= 1000000000;
    const double unit = large ? 1e9 : 1e6;
    const char *name = large ? "GB" : "MB";
    if (left >= bytes)
        return AF_OK;
    return af_fail_subject(err, AF_EIO, "disk", "%s needs %.1f %s, and '%s' has %.1f %s free", what,
                           (double)bytes / unit, name, path, (double)left / unit, name);
}
