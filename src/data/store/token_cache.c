/* token_cache.c - see token_cache.h. */
#define _GNU_SOURCE
#include "data/store/token_cache.h"

#include "base/file.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct cached_store {
    char *path;
    uint64_t size;
    struct timespec used;
} cached_store;

bool af_token_cache_size(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    const uint64_t n = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;
    if (errno || (*end && (!unit || end[1])))
        return false;
    return af_mul_ok(n, unit ? UINT64_C(1) << (10 * (unit - units + 1)) : 1, out);
}

static int oldest_first(const void *a, const void *b)
{
    const cached_store *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec)
        return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return strcmp(x->path, y->path);
}

/* A store that a process has open is locked (af_token_store_open). */
static bool remove_unused(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    const bool gone = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && unlink(path) == 0;
    if (fd >= 0)
        close(fd);
    return gone;
}

static void remove_oldest(cached_store *list, int n, uint64_t total, uint64_t limit)
{
    qsort(list, (size_t)n, sizeof *list, oldest_first);
    for (int i = 0; i < n && total > limit; i++)
        if (remove_unused(list[i].path)) {
            af_log_write(AF_LOG_DEBUG, "the token cache is full: removed %s", list[i].path);
            total -= list[i].size;
        }
}

static bool is_store(const char *name)
{
    static const char *const tails[] = {".tokens", ".reference"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < AF_LEN(tails); i++)
        if (n > strlen(tails[i]) && strcmp(name + n - strlen(tails[i]), tails[i]) == 0)
            return true;
    return false;
}

af_status af_token_cache_limit(uint64_t *out, af_error *err)
{
    const char *given = getenv("AFINAR_TOKEN_CACHE_LIMIT");
    *out = AF_TOKEN_CACHE_LIMIT;
    if (given && *given && !af_token_cache_size(given, out))
        return af_fail(err, AF_EUSAGE,
                       "AFINAR_TOKEN_CACHE_LIMIT is '%.40s', not a size such as 500M or 20G",
                       given);
    return AF_OK;
}

af_status af_token_cache_trim(const char *store, uint64_t limit, af_error *err)
{
    af_status st = AF_OK;
    char *dir = af_strndup(store, (uint64_t)(af_path_name(store) - store));
    char **names = NULL;
    cached_store *list = NULL;
    int n = 0, count = 0;
    uint64_t total = 0;
    if (!dir)
        return af_fail_nomem(err, "a path", strlen(store));
    AF_TRY(af_dir_list(&names, &n, dir, err));
    list = af_calloc((uint64_t)AF_MAX(n, 1), sizeof *list);
    if (!list)
        AF_TRY(af_fail_nomem(err, "a list of files", (uint64_t)n * sizeof *list));
    for (int i = 0; i < n; i++) {
        struct stat s;
        char *path = is_store(names[i]) ? af_path_join(dir, names[i]) : NULL;
        if (path && lstat(path, &s) == 0 && S_ISREG(s.st_mode)) {
            list[count++] = (cached_store){path, (uint64_t)s.st_size, s.st_mtim};
            total += (uint64_t)s.st_size;
        } else {
            free(path);
        }
    }
    remove_oldest(list, count, total, limit);
done:
    for (int i = 0; i < count; i++)
        free(list[i].path);
    free(list);
    free(dir);
    af_names_free(names, n);
    return st;
}

void af_token_cache_touch(const char *path) { (void)!utimensat(AT_FDCWD, path, NULL, 0); }
