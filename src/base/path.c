/* path.c - names, folders and what is in them; the other half of file.h. */
#define _GNU_SOURCE
#include "base/buf.h"
#include "base/file.h"
#include "base/temps.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

bool af_file_exists(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

bool af_dir_exists(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

bool af_path_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int64_t af_file_size(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode) ? (int64_t)s.st_size : -1;
}

static af_status fail_path(af_error *err, const char *verb, const char *path)
{
    return af_fail(err, AF_EIO, "cannot %s '%s': %s", verb, path, strerror(errno));
}

af_status af_dir_make(const char *path, af_error *err)
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
        if (mkdir(p, 0777) != 0 && (errno != EEXIST || !af_dir_exists(p)))
            st = fail_path(err, "make folder", p);
        *s = c;
        if (c == '\0')
            break;
    }
    af_temps_leave();
    free(p);
    return st;
}

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
    for (struct dirent *e; ok && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (count == cap) {
            cap = cap ? cap * 2 : 16;
            char **more = af_realloc(list, (uint64_t)cap, sizeof *list);
            ok = more != NULL;
            list = more ? more : list;
        }
        if (ok && (list[count] = af_strdup(e->d_name)))
            count++;
        else
            ok = false;
    }
    closedir(d);
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

af_status af_path_remove(const char *path, af_error *err)
{
    struct stat s;
    if (lstat(path, &s) != 0)
        return errno == ENOENT ? AF_OK : fail_path(err, "remove", path);
    if (!S_ISDIR(s.st_mode))
        return unlink(path) == 0 || errno == ENOENT ? AF_OK : fail_path(err, "remove", path);
    char **names = NULL;
    int n = 0;
    af_status st = af_dir_list(&names, &n, path, err);
    for (int i = 0; st == AF_OK && i < n; i++) {
        char *inner = af_path_join(path, names[i]);
        st = inner ? af_path_remove(inner, err) : af_fail_nomem(err, "a path", strlen(path));
        free(inner);
    }
    af_names_free(names, n);
    if (st == AF_OK && rmdir(path) != 0 && errno != ENOENT)
        st = fail_path(err, "remove", path);
    return st;
}

char *af_path_join(const char *a, const char *b)
{
    char *p = NULL;
    const size_t n = strlen(a);
    const char *slash = n > 0 && a[n - 1] != '/' ? "/" : "";
    return asprintf(&p, "%s%s%s", a, slash, b) < 0 ? NULL : p;
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
    char *p = NULL;
    int n;
    if (xdg && xdg[0] == '/')
        n = asprintf(&p, "%s/afinar/%s", xdg, sub);
    else if (home && home[0] == '/')
        n = asprintf(&p, "%s/.cache/afinar/%s", home, sub);
    else
        return af_fail(err, AF_EUSAGE, "no cache folder: neither XDG_CACHE_HOME nor HOME is set");
    if (n < 0)
        return af_fail_nomem(err, "a path", strlen(sub));
    af_error why = {0};
    if (af_dir_make(p, &why) == AF_OK) {
        *out = p;
        return AF_OK;
    }
    free(p);
    return af_fail(err, why.code, "%s (XDG_CACHE_HOME names the folder for caches)", why.msg);
}

char *af_hub_dir(void)
{
    const char *hub = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME");
    const char *xdg = getenv("XDG_CACHE_HOME"), *user = getenv("HOME");
    af_buf b = {0};
    if (hub && *hub)
        af_buf_str(&b, hub);
    else if (home && *home)
        af_buf_printf(&b, "%s/hub", home);
    else if (xdg && *xdg)
        af_buf_printf(&b, "%s/huggingface/hub", xdg);
    else
        af_buf_printf(&b, "%s/.cache/huggingface/hub", user ? user : "");
    char *path = af_buf_take(&b);
    af_buf_clear(&b);
    return path;
}
