/* written.c - see written.h. */
#define _GNU_SOURCE
#include "base/written.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD      "afinar files 1\n"
#define LIMIT     (UINT64_C(64) << 20)
#define PART      (UINT64_C(512) << 10) /* of a large file: this much of both ends */
#define NAME_LONG 4096

void af_written_clear(af_written *w)
{
    for (int i = 0; i < w->count; i++) {
        free(w->line[i].group);
        free(w->line[i].name);
    }
    free(w->line);
    *w = (af_written){0};
}

/* Weights may be larger than memory and are not edited in the middle: of a large file both ends
 * count, and its size. */
static af_status sum_file(const char *path, uint64_t *size, char sum[AF_WRITTEN_SUM], af_error *err)
{
    af_status st = AF_OK;
    af_sha256 h;
    char hex[65], piece[1 << 14];
    struct stat s;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &s) != 0)
        AF_TRY(af_fail(err, AF_EIO, "cannot open '%s': %s", path, strerror(errno)));
    af_sha256_init(&h);
    const uint64_t n = (uint64_t)s.st_size;
    for (uint64_t at = 0; at < n;) {
        const uint64_t limit = n > 2 * PART && at < PART ? PART : n;
        const ssize_t r = pread(fd, piece, AF_MIN(sizeof piece, limit - at), (off_t)at);
        if (r <= 0)
            AF_TRY(af_fail(err, AF_EIO, "cannot read '%s': %s", path,
                           r < 0 ? strerror(errno) : "it became shorter"));
        af_sha256_add(&h, piece, (uint64_t)r);
        at += (uint64_t)r;
        if (n > 2 * PART && at == PART)
            at = n - PART;
    }
    af_sha256_hex(&h, hex);
    snprintf(sum, AF_WRITTEN_SUM, "%.32s", hex);
    *size = n;
done:
    if (fd >= 0)
        close(fd);
    return st;
}

static af_status add_line(af_written *w, const char *group, uint64_t group_len, const char *name,
                          uint64_t size, const char *sum, af_error *err)
{
    if (w->count == w->cap) {
        const int cap = w->cap ? w->cap * 2 : 16;
        af_written_line *more = af_realloc(w->line, (uint64_t)cap, sizeof *more);
        if (!more)
            return af_fail_nomem(err, "a list of files", (uint64_t)cap * sizeof *more);
        w->line = more;
        w->cap = cap;
    }
    af_written_line *l = &w->line[w->count];
    *l = (af_written_line){.group = af_strndup(group, group_len), .name = af_strdup(name)};
    l->size = size;
    snprintf(l->sum, sizeof l->sum, "%s", sum);
    if (!l->group || !l->name) {
        free(l->group);
        free(l->name);
        return af_fail_nomem(err, "a list of files", strlen(name));
    }
    w->count++;
    return AF_OK;
}

af_status af_written_add(af_written *w, const char *group, const char *name, const char *from,
                         af_error *err)
{
    uint64_t size = 0;
    char sum[AF_WRITTEN_SUM] = "-";
    if (strchr(name, '\n')) /* the manifest has one line per name */
        return af_fail(err, AF_EUSAGE, "the file name '%s' has a line break", name);
    const af_status st = from ? sum_file(from, &size, sum, err) : AF_OK;
    return st == AF_OK ? add_line(w, group, strlen(group), name, size, sum, err) : st;
}

void af_written_drop(af_written *w, const char *group, const char *name)
{
    int kept = 0;
    for (int i = 0; i < w->count; i++) {
        af_written_line *l = &w->line[i];
        if (strcmp(l->group, group) == 0 && (!name || strcmp(l->name, name) == 0)) {
            free(l->group);
            free(l->name);
        } else {
            w->line[kept++] = *l;
        }
    }
    w->count = kept;
}

af_status af_written_join(af_written *w, const af_written *from, const char *group, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < from->count && st == AF_OK; i++) {
        const af_written_line *l = &from->line[i];
        if (!group || strcmp(l->group, group) == 0)
            st = add_line(w, l->group, strlen(l->group), l->name, l->size, l->sum, err);
    }
    return st;
}

/* GROUP SIZE SUM NAME; false when it is not a line of ours. */
static bool parse_line(af_written *w, char *text, af_status *st, af_error *err)
{
    char *end, *group = text, *size = strchr(text, ' ');
    if (!size)
        return false;
    const uint64_t n = strtoull(size + 1, &end, 10);
    char *sum = end + 1, *name = *end == ' ' ? strchr(sum, ' ') : NULL;
    if (!name || name == sum || name - sum >= AF_WRITTEN_SUM || end == size + 1 ||
        !af_path_is_inner(name + 1) || strlen(name + 1) >= NAME_LONG)
        return false;
    *name = '\0';
    *st = add_line(w, group, (uint64_t)(size - group), name + 1, n, sum, err);
    return true;
}

af_status af_written_read(af_written *out, const char *dir, af_error *err)
{
    af_status st = AF_OK;
    af_written w = {0};
    uint64_t size = 0;
    char *text = NULL, *path = af_path_join(dir, AF_WRITTEN_NAME);
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    if (!af_file_exists(path))
        goto done;
    AF_TRY(af_file_read(&text, &size, path, LIMIT, err));
    if (strncmp(text, HEAD, strlen(HEAD)) != 0)
        goto bad;
    for (char *at = text + strlen(HEAD), *end; *at; at = end + 1) {
        end = strchr(at, '\n');
        if (!end)
            goto bad;
        *end = '\0';
        if (!parse_line(&w, at, &st, err))
            goto bad;
        if (st != AF_OK)
            goto done;
    }
    goto done;
bad:
    st = af_fail(err, AF_EFORMAT,
                 "'%s' is damaged: it lists the files that afinar wrote there (remove it to make "
                 "them yours)",
                 path);
done:
    if (st == AF_OK)
        *out = w;
    else
        af_written_clear(&w);
    free(text);
    free(path);
    return st;
}

static int by_name(const void *a, const void *b)
{
    const af_written_line *x = a, *y = b;
    const int group = strcmp(x->group, y->group), name = strcmp(x->name, y->name);
    return group ? group : name ? name : strcmp(x->sum, y->sum);
}

af_status af_written_write(const af_written *w, const char *dir, af_error *err)
{
    af_status st = AF_OK;
    af_buf b = {0};
    char *path = af_path_join(dir, AF_WRITTEN_NAME);
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    if (w->count)
        qsort(w->line, (size_t)w->count, sizeof *w->line, by_name);
    af_buf_str(&b, HEAD);
    for (int i = 0; i < w->count; i++)
        af_buf_printf(&b, "%s %" PRIu64 " %s %s\n", w->line[i].group, w->line[i].size,
                      w->line[i].sum, w->line[i].name);
    if (b.bad)
        st = af_fail_nomem(err, path, b.len);
    else
        st = w->count ? af_file_write(path, b.data, b.len, err) : af_path_remove(path, err);
    af_buf_clear(&b);
    free(path);
    return st;
}

af_written_state af_written_check(const af_written *w, const char *group, const char *dir,
                                  const char *name)
{
    struct stat s;
    char *path = af_path_join(dir, name), sum[AF_WRITTEN_SUM] = "";
    uint64_t size = 0;
    af_written_state is = AF_WRITTEN_FOREIGN;
    if (!path || lstat(path, &s) != 0) {
        if (path && (errno == ENOENT || errno == ENOTDIR))
            is = AF_WRITTEN_ABSENT;
        goto done;
    }
    if (!S_ISREG(s.st_mode))
        goto done;
    for (int i = 0; i < w->count && is != AF_WRITTEN_OWN; i++) {
        const af_written_line *l = &w->line[i];
        if (strcmp(l->group, group) != 0 || strcmp(l->name, name) != 0)
            continue;
        is = AF_WRITTEN_CHANGED;
        if (strcmp(l->sum, "-") == 0)
            is = AF_WRITTEN_OWN;
        else if (l->size == (uint64_t)s.st_size && !*sum &&
                 sum_file(path, &size, sum, NULL) != AF_OK) {
            is = AF_WRITTEN_UNREAD;
            break;
        } else if (l->size == (uint64_t)s.st_size && strcmp(sum, l->sum) == 0)
            is = AF_WRITTEN_OWN;
    }
done:
    free(path);
    return is;
}
