/* path.c - names, folders and what is in them; the other half of file.h. */
#define _GNU_SOURCE
#include "base/buf.h"
#include "base/file.h"
#include "base/temps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

bool af_file_exists(const char *path)
{
    struct stat s;
    return path && stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

bool af_file_in(const char *dir, const char *name)
{
    char *path = af_path_join(dir, name);
    const bool there = af_file_exists(path);
    free(path);
    return there;
}

bool af_dir_exists(const char *path)
{
    struct stat s;
    return path && stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

bool af_path_is_taken(const char *path)
{
    struct stat s;
    return lstat(path, &s) == 0;
}

bool af_path_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int64_t af_file_size(const char *path)
{
    struct stat s;
    return path && stat(path, &s) == 0 && S_ISREG(s.st_mode) ? (int64_t)s.st_size : -1;
}

static af_status fail_path(af_error *err, const char *verb, const char *path)
{
    const int e = errno;
    if (e == ENOMEM)
        af_memory_note();
    return af_fail(err, e == ENOMEM ? AF_ENOMEM : AF_EIO, "cannot %s '%s': %s", verb, path,
                   strerror(e));
}

static af_status make_dirs(const char *path, mode_t mode, af_error *err)
{
    char *p = af_strdup(path);
    if (!p)
        return af_fail_nomem(err, "a path", strlen(path));
    af_status st = AF_OK;
    af_temps_enter(); /* it may be one inside a temporary folder */
    for (char *s = p + 1; st == AF_OK; s++) {
        const char c = *s;
        if (c != '/' && c != '\0')
            continue;
        *s = '\0';
        if (mkdir(p, mode) != 0 && (errno != EEXIST || !af_dir_exists(p)))
            st = fail_path(err, "make folder", p);
        *s = c;
        if (c == '\0')
            break;
    }
    af_temps_leave();
    free(p);
    return st;
}

af_status af_dir_make(const char *path, af_error *err) { return make_dirs(path, 0777, err); }

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void af_names_free(char **names, int n)
{
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

af_status af_dir_list(char ***names, int *n, const char *path, af_error *err)
{
    DIR *d = opendir(path);
    if (!d)
        return fail_path(err, "open folder", path);
    char **list = NULL;
    int count = 0, cap = 0;
    bool ok = true;
    for (struct dirent *e; ok && (errno = 0, e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (count + 1 >= cap) { /* NULL follows the last */
            cap = cap ? cap * 2 : 16;
            char **more = af_realloc(list, (uint64_t)cap, sizeof *list);
            ok = more != NULL;
            list = more ? more : list;
        }
        if (ok && (list[count] = af_strdup(e->d_name)))
            list[++count] = NULL;
        else
            ok = false;
    }
    const int why = ok ? errno : 0; /* otherwise the list is at its end */
    closedir(d);
    if (why) {
        af_names_free(list, count);
        errno = why;
        return fail_path(err, "list folder", path);
    }
    if (!ok) {
        af_names_free(list, count);
        return af_fail_nomem(err, path, (uint64_t)cap * sizeof *list);
    }
    if (count)
        qsort(list, (size_t)count, sizeof *list, by_bytes);
    *names = list;
    *n = count;
    return AF_OK;
}

/* ---- removal. Nothing is allocated: it cleans up when memory has run out, too ---- */

enum { REMOVE_DEPTH_MAX = 64 };

static bool remove_at(int dir, const char *name, int depth);

static bool empty_folder(int fd, int depth)
{
    _Alignas(struct dirent64) char block[4096];
    bool any = true;
    while (any) { /* from the start until nothing is found: what is removed moves the rest */
        ssize_t n;
        any = false;
        if (lseek(fd, 0, SEEK_SET) < 0)
            return false;
        while ((n = getdents64(fd, block, sizeof block)) > 0)
            for (ssize_t at = 0; at < n;) {
                const struct dirent64 *e = (const void *)(block + at);
                at += e->d_reclen;
                if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                    continue;
                any = true;
                if (!remove_at(fd, e->d_name, depth + 1))
                    return false;
            }
        if (n < 0)
            return false;
    }
    return true;
}

static bool remove_at(int dir, const char *name, int depth)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return true;
    if ((errno != EISDIR && errno != EPERM) || depth == REMOVE_DEPTH_MAX)
        return false;
    const int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return false;
    const bool ok = empty_folder(fd, depth);
    const int why = errno;
    close(fd);
    errno = why;
    return ok && (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT);
}

af_status af_path_remove(const char *path, af_error *err)
{
    return remove_at(AT_FDCWD, path, 0) ? AF_OK : fail_path(err, "remove", path);
}

/* ---- moving ---- */

static af_status link_tree(const char *from, const char *to, int depth, af_error *err);

/* A folder like `from`, with its mode and times, and all that is in it. */
static af_status link_folder(const char *from, const struct stat *s, const char *to, int depth,
                             af_error *err)
{
    char **names = NULL;
    int n = 0;
    af_status st = AF_OK;
    const struct timespec times[2] = {s->st_atim, s->st_mtim};
    if (depth == REMOVE_DEPTH_MAX)
        return af_fail(err, AF_EIO, "cannot move '%s': it is too deep", from);
    if (mkdir(to, 0700) != 0)
        return fail_path(err, "make", to);
    AF_TRY(af_dir_list(&names, &n, from, err));
    for (int i = 0; i < n && st == AF_OK; i++) {
        char *a = af_path_join(from, names[i]), *b = af_path_join(to, names[i]);
        st = a && b ? link_tree(a, b, depth + 1, err) : af_fail_nomem(err, "a path", strlen(from));
        free(a);
        free(b);
    }
    AF_TRY(st);
    if (chmod(to, s->st_mode & 07777) != 0 || utimensat(AT_FDCWD, to, times, 0) != 0)
        AF_TRY(fail_path(err, "set the mode of", to));
    st = af_dir_sync(to, err);
done:
    af_names_free(names, n);
    return st;
}

static af_status link_tree(const char *from, const char *to, int depth, af_error *err)
{
    struct stat s;
    if (lstat(from, &s) != 0)
        return fail_path(err, "read", from);
    if (S_ISDIR(s.st_mode))
        return link_folder(from, &s, to, depth, err);
    if (linkat(AT_FDCWD, from, AT_FDCWD, to, 0) == 0)
        return AF_OK;
    return S_ISREG(s.st_mode) ? af_file_copy(from, to, err) : fail_path(err, "move", from);
}

/* The whole content gets a second name first, the old one goes last: a kill loses nothing. */
static af_status move_by_links(const char *from, const char *to, af_error *err)
{
    af_status st = AF_OK;
    char *up = af_path_parent(to), *name = up ? af_path_join(up, AF_TEMP_NAME) : NULL;
    char *temp = name ? af_path_temp(name, "tmp") : NULL;
    if (!temp)
        AF_TRY(af_fail_nomem(err, "a path", strlen(to)));
    AF_TRY(link_tree(from, temp, 0, err));
    if (renameat2(AT_FDCWD, temp, AT_FDCWD, to, RENAME_NOREPLACE) != 0)
        AF_TRY(fail_path(err, "rename to", to));
    AF_TRY(af_dir_sync(up, err));
    AF_TRY(af_path_remove(from, err));
done:
    if (temp)
        (void)!af_path_remove(temp, NULL);
    free(temp);
    free(name);
    free(up);
    return st;
}

af_status af_path_move(const char *from, const char *to, af_error *err)
{
    int failed = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
    if (failed && (errno == EINVAL || errno == ENOSYS) && !af_path_is_taken(to))
        failed = rename(from, to); /* a file system without that kind of rename */
    if (!failed)
        return AF_OK;
    if (errno == EXDEV && af_dir_exists(from))
        return move_by_links(from, to, err);
    const int why = errno;
    return af_fail(err, AF_EIO, "cannot move '%s' to '%s': %s", from, to, strerror(why));
}

char *af_path_parent(const char *path)
{
    const char *name = af_path_name(path);
    if (name == path)
        return af_strdup(".");
    return name - path == 1 ? af_strdup("/") : af_strndup(path, (uint64_t)(name - path - 1));
}

char *af_path_join(const char *a, const char *b)
{
    af_buf p = {0};
    const size_t n = strlen(a);
    af_buf_str(&p, a);
    if (n > 0 && a[n - 1] != '/')
        af_buf_char(&p, '/');
    af_buf_str(&p, b);
    return af_buf_take(&p);
}

const char *af_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool af_path_is_inner(const char *path)
{
    if (path[0] == '\0' || path[0] == '/')
        return false;
    for (const char *p = path; p; p = strchr(p, '/')) {
        p += *p == '/';
        const size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.')
            return false;
        if (p[n] == '\0')
            break;
    }
    return true;
}

af_status af_cache_dir(char **out, const char *sub, af_error *err)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    af_buf b = {0};
    if (xdg && xdg[0] == '/')
        af_buf_printf(&b, "%s/afinar/%s", xdg, sub);
    else if (home && home[0] == '/')
        af_buf_printf(&b, "%s/.cache/afinar/%s", home, sub);
    else
        return af_fail(err, AF_EUSAGE, "no cache folder: neither XDG_CACHE_HOME nor HOME is set");
    char *p = af_buf_take(&b);
    if (!p)
        return af_fail_nomem(err, "a path", strlen(sub));
    af_error why = {0};
    if (make_dirs(p, 0700, &why) == AF_OK) {
        (void)!chmod(p, 0700); /* one of an older version */
        *out = p;
        return AF_OK;
    }
    free(p);
    return af_fail(err, why.code, "%s (XDG_CACHE_HOME names the folder for caches)", why.msg);
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The value of the variable at s, "$NAME" or "${NAME}", and its length there in *n; NULL: it is
 * none, or not set, and stays as it is. */
static const char *variable_at(const char *s, size_t *n)
{
    char name[128];
    const bool braced = s[1] == '{';
    const char *from = s + 1 + braced;
    size_t len = 0;
    while (braced ? from[len] && from[len] != '}' : is_name_char(from[len]))
        len++;
    if (len == 0 || len >= sizeof name || (braced && from[len] != '}'))
        return NULL;
    memcpy(name, from, len);
    name[len] = '\0';
    *n = 1 + len + (braced ? 2 : 0);
    return getenv(name);
}

char *af_path_expand(const char *path)
{
    const char *home = getenv("HOME");
    af_buf b = {0};
    size_t n = 1;
    if (path[0] == '~' && (path[1] == '/' || !path[1])) {
        af_buf_str(&b, home ? home : "");
        path++;
    }
    for (; *path; path += n) {
        const char *value = *path == '$' ? variable_at(path, &n) : NULL;
        if (value) {
            af_buf_str(&b, value);
        } else {
            af_buf_char(&b, *path);
            n = 1;
        }
    }
    char *out = b.bad || b.len ? af_buf_take(&b) : af_strdup("");
    af_buf_clear(&b);
    return out;
}

/* PARENT/sub, with the parent as af_path_expand has it. */
static char *folder_in(const char *parent, const char *sub)
{
    char *whole = af_path_expand(parent), *path = whole ? af_path_join(whole, sub) : NULL;
    free(whole);
    return path;
}

char *af_hf_home(void)
{
    const char *own = getenv("HF_HOME"), *xdg = getenv("XDG_CACHE_HOME");
    if (own && *own)
        return af_path_expand(own);
    return xdg && *xdg ? folder_in(xdg, "huggingface") : af_path_expand("~/.cache/huggingface");
}

char *af_hub_dir(void)
{
    const char *own = getenv("HF_HUB_CACHE");
    if (!own || !*own)
        own = getenv("HUGGINGFACE_HUB_CACHE"); /* its older name */
    if (own && *own)
        return af_path_expand(own);
    char *home = af_hf_home(), *path = home ? af_path_join(home, "hub") : NULL;
    free(home);
    return path;
}
