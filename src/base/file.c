/* file.c - maps and atomic writes; see file.h. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/map_watch.h"
#include "base/temps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

static const uint8_t empty_file[1];

static af_status fail_errno(af_error *err, const char *verb, const char *path)
{
    const int e = errno;
    if (e == ENOMEM)
        af_memory_note();
    const af_status code = e == ENOMEM ? AF_ENOMEM : AF_EIO;
    return af_fail(err, code, "cannot %s '%s': %s", verb, path, strerror(e));
}

/* What a clone of a repository without git-lfs has in place of a large file. */
static bool is_lfs_pointer(const af_map *m)
{
    static const char head[] = "version https://git-lfs.github.com/spec/v1\n";
    return m->size >= sizeof head - 1 && m->size < 1024 &&
           memcmp(m->data, head, sizeof head - 1) == 0;
}

af_status af_map_open(af_map *out, const char *path, af_error *err)
{
    struct stat s;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail_errno(err, "open", path);
    if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)) {
        close(fd);
        return af_fail(err, AF_EIO, "'%s' is not a regular file", path);
    }
    af_map m = {empty_file, (uint64_t)s.st_size};
    if (m.size > 0) {
        void *p = mmap(NULL, m.size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            close(fd);
            return fail_errno(err, "map", path);
        }
        m.data = p;
        af_map_watch_add(p, m.size, path);
    }
    close(fd);
    if (is_lfs_pointer(&m)) {
        af_map_close(&m);
        return af_fail(err, AF_EFORMAT,
                       "'%s' is a Git LFS pointer, not the file itself: fetch it with 'git lfs "
                       "pull', or download it",
                       path);
    }
    *out = m;
    return AF_OK;
}

void af_map_close(af_map *m)
{
    if (m->data && m->data != empty_file) {
        af_map_watch_drop(m->data);
        munmap((void *)m->data, m->size);
    }
    *m = (af_map){0};
}

void af_map_forget(const af_map *m, uint64_t off, uint64_t n)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t from = AF_ALIGN_UP(off, page), to = AF_MIN(off + n, m->size) & ~(page - 1);
    if (m->data != empty_file && to > from)
        madvise((void *)(m->data + from), to - from, MADV_DONTNEED);
}

void af_map_forget_at(const void *data, uint64_t n)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), lead = (uintptr_t)data % page;
    const af_map m = {(const uint8_t *)data - lead, AF_ALIGN_UP(lead + n, page)};
    af_map_forget(&m, 0, m.size);
}

af_status af_map_temp(af_map *out, uint64_t n, af_error *err)
{
    const char *given = getenv("TMPDIR"), *dir = given && *given ? given : "/var/tmp";
    char path[4096];
    struct statfs fs;
    void *p = MAP_FAILED;
    assert(n > 0);
    snprintf(path, sizeof path, "%s/afinar.XXXXXX", dir);
    const int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return fail_errno(err, "create a file in", dir);
    unlink(path);
    const bool disk = fstatfs(fd, &fs) == 0 && fs.f_type != TMPFS_MAGIC && fs.f_type != RAMFS_MAGIC;
    errno = disk ? posix_fallocate(fd, 0, (off_t)n) : EINVAL; /* no surprise at the first write */
    if (errno == 0)
        p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (!disk)
        return af_fail(err, AF_EIO, "'%s' is not on a disk", dir);
    if (p == MAP_FAILED)
        return fail_errno(err, "take a file in", dir);
    *out = (af_map){p, n};
    return AF_OK;
}

enum { HASH_LEAST = 1 << 19, APPEND_MAX = 4 << 20 };

struct af_out {
    char *path, *tmp, *up; /* up: its folder */
    af_temp *listed;
    int fd;
    uint64_t done;    /* bytes written so far */
    uint64_t held;    /* bytes of them still in buf */
    uint64_t written; /* bytes in the file */
    bool hashed;      /* its folder wants the digest of what is written, in order */
    af_digest *digest;
    uint8_t buf[1 << 16];
};

static void drop_listed(af_out *o)
{
    af_temp_drop(o->listed);
    o->listed = NULL;
}

static void out_free(af_out *o)
{
    (void)!af_digest_end(o->digest, NULL);
    if (o->fd >= 0)
        close(o->fd);
    drop_listed(o);
    free(o->path);
    free(o->tmp);
    free(o->up);
    free(o);
}

static af_status out_open(af_out **out, const char *path, mode_t mode, af_error *err)
{
    if (af_dir_exists(path)) /* now, not when all is written and cannot be renamed */
        return af_fail(err, AF_EUSAGE, "'%s' is a folder, a file is to be written", path);
    af_out *o = af_calloc(1, sizeof *o);
    if (!o)
        return af_fail_nomem(err, "an output file", sizeof *o);
    o->fd = -1;
    o->path = af_strdup(path);
    o->tmp = af_path_temp(path, "tmp");
    o->up = af_path_parent(path);
    if (!o->path || !o->tmp || !o->up) {
        out_free(o);
        return af_fail_nomem(err, "a file name", strlen(path));
    }
    o->hashed = af_unsynced_in(o->up) == AF_UNSYNCED_FILES;
    af_path_sweep(path);
    af_temps_enter();
    o->fd = open(o->tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    const af_status st = o->fd < 0 ? fail_errno(err, "create", path) : AF_OK;
    o->listed = st == AF_OK ? af_temp_add(o->tmp) : NULL; /* without: only a signal leaves it */
    af_temps_leave();
    if (st != AF_OK) {
        out_free(o);
        return st;
    }
    (void)flock(o->fd, LOCK_EX | LOCK_NB); /* for af_path_sweep; not all file systems can */
    *out = o;
    return AF_OK;
}

af_status af_out_open(af_out **out, const char *path, af_error *err)
{
    return out_open(out, path, 0666, err);
}

af_status af_out_open_private(af_out **out, const char *path, af_error *err)
{
    return out_open(out, path, 0600, err);
}

/* A mapped source that has become shorter is EFAULT here, not SIGBUS. */
static af_status fail_write(af_error *err, const char *path, const void *from)
{
    const char *source = errno == EFAULT ? af_map_watch_find(from) : NULL;
    return source ? af_map_watch_fail(source, err) : fail_errno(err, "write", path);
}

static af_status write_all(int fd, const uint8_t *p, uint64_t n, const char *path, af_error *err)
{
    while (n > 0) {
        const ssize_t w = write(fd, p, AF_MIN(n, (uint64_t)1 << 30));
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return fail_write(err, path, p);
        p += w;
        n -= (uint64_t)w;
    }
    return AF_OK;
}

/* n bytes more are in the file. A long one is hashed while it is written; of a short one the digest
 * is as quick to find later. */
static void out_grew(af_out *o, uint64_t n)
{
    o->written += n;
    if (o->hashed && !o->digest && o->written >= HASH_LEAST) {
        o->digest = af_digest_begin(o->fd);
        o->hashed = o->digest != NULL;
    }
    if (o->digest)
        af_digest_reach(o->digest, o->written);
}

/* In pieces: the digest follows. */
static af_status out_append(af_out *o, const void *bytes, uint64_t n, af_error *err)
{
    af_status st = AF_OK;
    uint64_t take;
    for (const uint8_t *p = bytes; n > 0 && st == AF_OK; p += take, n -= take) {
        take = AF_MIN(n, (uint64_t)APPEND_MAX);
        st = write_all(o->fd, p, take, o->path, err);
        if (st == AF_OK)
            out_grew(o, take);
    }
    return st;
}

static af_status out_flush(af_out *o, af_error *err)
{
    const uint64_t n = o->held;
    o->held = 0;
    return out_append(o, o->buf, n, err);
}

/* What was written changes. Without a digest nothing is: threads fill a reserved part together. */
static void drop_digest(af_out *o)
{
    if (!o->hashed)
        return;
    (void)!af_digest_end(o->digest, NULL);
    o->digest = NULL;
    o->hashed = false;
}

af_status af_out_write(af_out *o, const void *bytes, uint64_t n, af_error *err)
{
    if (n > sizeof o->buf - o->held) {
        const af_status st = out_flush(o, err);
        if (st != AF_OK)
            return st;
    }
    o->done += n;
    if (n >= sizeof o->buf)
        return out_append(o, bytes, n, err);
    memcpy(o->buf + o->held, bytes, n);
    o->held += n;
    return AF_OK;
}

uint64_t af_out_tell(const af_out *o) { return o->done; }
const char *af_out_file(const af_out *o) { return o->tmp; }

af_status af_out_patch(af_out *o, uint64_t off, const void *bytes, uint64_t n, af_error *err)
{
    assert(off <= o->done && n <= o->done - off);
    const af_status st = o->held ? out_flush(o, err) : AF_OK;
    if (st != AF_OK)
        return st;
    const uint8_t *p = bytes;
    drop_digest(o);
    while (n > 0) {
        const ssize_t w = pwrite(o->fd, p, n, (off_t)off);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return fail_write(err, o->path, p);
        p += w;
        off += (uint64_t)w;
        n -= (uint64_t)w;
    }
    return AF_OK;
}

af_status af_out_reserve(af_out *o, uint64_t n, af_error *err)
{
    const af_status st = out_flush(o, err);
    if (st != AF_OK)
        return st;
    drop_digest(o);
    if (ftruncate(o->fd, (off_t)(o->done + n)) != 0 || lseek(o->fd, 0, SEEK_END) < 0)
        return fail_errno(err, "extend", o->path);
    o->done += n;
    return AF_OK;
}

af_status af_dir_sync(const char *path, af_error *err)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_errno(err, "open folder", path);
    const int bad = fsync(fd) != 0 && errno != EINVAL; /* some file systems cannot sync folders */
    const af_status st = bad ? fail_errno(err, "sync folder", path) : AF_OK;
    close(fd);
    return st;
}

af_status af_out_commit(af_out *o, af_error *err)
{
    af_status st = AF_OK;
    char hex[65];
    AF_TRY(af_memory_check(err)); /* what may lack something is not put in place */
    AF_TRY(out_flush(o, err));
    const bool known = af_digest_end(o->digest, hex);
    o->digest = NULL;
    const af_unsynced waits = af_unsynced_in(o->up);
    if (waits != AF_UNSYNCED_FILES && fsync(o->fd) != 0)
        AF_TRY(fail_errno(err, "sync", o->path));
    const int fd = o->fd;
    o->fd = -1;
    if (close(fd) != 0)
        AF_TRY(fail_errno(err, "close", o->path));
    af_temps_enter();
    if (rename(o->tmp, o->path) != 0)
        st = fail_errno(err, "rename to", o->path);
    else
        drop_listed(o);
    af_temps_leave();
    if (st != AF_OK)
        goto done;
    af_unsynced_note(o->up, af_path_name(o->path), known ? hex : NULL);
    if (waits == AF_UNSYNCED_NOTHING)
        st = af_dir_sync(o->up, err);
    out_free(o);
    return st;
done:
    af_out_abandon(o);
    return st;
}

void af_out_abandon(af_out *o)
{
    if (!o)
        return;
    af_temps_enter();
    unlink(o->tmp);
    out_free(o);
    af_temps_leave();
}

af_status af_file_write(const char *path, const void *bytes, uint64_t n, af_error *err)
{
    af_out *o;
    af_status st = af_out_open(&o, path, err);
    if (st != AF_OK)
        return st;
    st = af_out_write(o, bytes, n, err);
    if (st != AF_OK) {
        af_out_abandon(o);
        return st;
    }
    return af_out_commit(o, err);
}

/* A pipe has no size: it is read until it ends. */
static af_status read_pipe(char **out, uint64_t *size, const char *path, uint64_t limit,
                           af_error *err)
{
    af_buf b = {0};
    char part[4096];
    ssize_t n = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail_errno(err, "open", path);
    while (b.len <= limit && ((n = read(fd, part, sizeof part)) > 0 || (n < 0 && errno == EINTR)))
        if (n > 0)
            af_buf_add(&b, part, (uint64_t)n);
    af_status st = n < 0 ? fail_errno(err, "read", path) : AF_OK;
    close(fd);
    if (b.len > limit)
        st = af_fail(err, AF_EFORMAT, "'%s' has more than the %" PRIu64 " bytes allowed", path,
                     limit);
    *size = b.len;
    if (st == AF_OK && !(*out = af_buf_take(&b)))
        st = af_fail_nomem(err, path, *size);
    af_buf_clear(&b);
    return st;
}

static bool is_pipe(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && (S_ISFIFO(s.st_mode) || S_ISCHR(s.st_mode));
}

af_status af_file_read(char **out, uint64_t *size, const char *path, uint64_t limit, af_error *err)
{
    if (is_pipe(path))
        return read_pipe(out, size, path, limit, err);
    af_map m = {0};
    const af_status st = af_map_open(&m, path, err);
    if (st != AF_OK)
        return st;
    char *p = NULL;
    if (m.size > limit)
        af_fail(err, AF_EFORMAT, "'%s' has %" PRIu64 " bytes, more than the %" PRIu64 " allowed",
                path, m.size, limit);
    else if (!(p = af_strndup((const char *)m.data, m.size)))
        af_fail_nomem(err, path, m.size);
    const bool big = m.size > limit;
    if (p) {
        *out = p;
        *size = m.size;
    }
    af_map_close(&m);
    return p ? AF_OK : big ? AF_EFORMAT : AF_ENOMEM;
}

af_status af_file_append(const char *path, const void *bytes, uint64_t n, bool sync, af_error *err)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail_errno(err, "open", path);
    af_status st = write_all(fd, bytes, n, path, err);
    if (st == AF_OK && sync && fsync(fd) != 0)
        st = fail_errno(err, "sync", path);
    close(fd);
    return st;
}

/* Where names cannot be exchanged: through a third one. */
static af_status swap_slowly(const char *from, const char *to, const char *old, af_error *err)
{
    af_status st = af_path_move(to, old, err);
    if (st != AF_OK)
        return st;
    st = af_path_move(from, to, err);
    if (st != AF_OK && af_path_move(old, to, NULL) != AF_OK)
        return af_fail(err, AF_EIO, "cannot rename to '%s'; its old content is in '%s'", to, old);
    return st == AF_OK ? af_path_move(old, from, err) : st;
}

af_status af_dir_swap(const char *from, const char *to, af_error *err)
{
    af_status st = AF_OK;
    char *old = af_path_temp(to, "old"), *up = af_path_parent(to);
    if (!old || !up)
        AF_TRY(af_fail_nomem(err, "a path", strlen(to)));
    if (!af_dir_exists(to)) {
        AF_TRY(af_path_move(from, to, err));
    } else if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) != 0) {
        AF_TRY(swap_slowly(from, to, old, err)); /* else never a moment without */
    }
    st = af_dir_sync(up, err);
done:
    free(old);
    free(up);
    return st;
}

/* Not these two files, or none. */
static bool cannot_copy(int e)
{
    return e == EXDEV || e == EINVAL || e == EOPNOTSUPP || e == ENOSYS || e == EPERM;
}

/* By the kernel: it need not go through this process, and a file system may share the blocks.
 * *done false: it cannot, and nothing was written. */
static af_status copy_by_kernel(af_out *o, int fd, uint64_t size, bool *done, af_error *err)
{
    enum { PIECE = 1 << 23 };
    *done = true;
    for (uint64_t at = 0; at < size;) {
        const ssize_t n = copy_file_range(fd, NULL, o->fd, NULL, AF_MIN(PIECE, size - at), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (at == 0 && (n == 0 || (n < 0 && cannot_copy(errno)))) {
            *done = false;
            return AF_OK;
        }
        if (n < 0)
            return fail_errno(err, "write", o->path);
        if (n == 0)
            return af_fail(err, AF_EIO, "cannot write '%s': its source became shorter", o->path);
        (void)sync_file_range(o->fd, (off_t)at, (off_t)n, SYNC_FILE_RANGE_WRITE); /* begins */
        at += (uint64_t)n;
        o->done += (uint64_t)n;
        out_grew(o, (uint64_t)n);
    }
    return AF_OK;
}

/* Piece by piece: a model is not to lie in memory as a whole because it is copied. */
static af_status copy_by_map(af_out *o, const af_map *m, af_error *err)
{
    enum { PIECE = 1 << 20 };
    af_status st = AF_OK;
    for (uint64_t at = 0; at < m->size && st == AF_OK; at += PIECE) {
        const uint64_t n = AF_MIN((uint64_t)PIECE, m->size - at);
        st = af_out_write(o, m->data + at, n, err);
        af_map_forget(m, at, n);
    }
    return st;
}

af_status af_file_copy(const char *from, const char *to, af_error *err)
{
    af_map m = {0};
    af_out *o = NULL;
    af_status st = AF_OK;
    bool done = false;
    int fd = -1;
    AF_TRY(af_map_open(&m, from, err));
    AF_TRY(af_out_open(&o, to, err));
    fd = open(from, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        AF_TRY(copy_by_kernel(o, fd, m.size, &done, err));
    if (!done)
        AF_TRY(copy_by_map(o, &m, err));
    st = af_out_commit(o, err);
    o = NULL;
done:
    af_out_abandon(o);
    if (fd >= 0)
        close(fd);
    af_map_close(&m);
    return st;
}

af_status af_file_copy_into(const char *from, const char *to, const char *name, af_error *err)
{
    char *a = af_path_join(from, name), *b = af_path_join(to, name);
    af_status st = !a || !b ? af_fail_nomem(err, "a path", strlen(name)) : AF_OK;
    if (st == AF_OK && af_file_exists(a))
        st = af_file_copy(a, b, err);
    free(a);
    free(b);
    return st;
}
