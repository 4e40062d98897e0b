/* temps.c - the temporary files and folders that this process has now, so that they can be removed
 * when it is ended from outside.
 *
 * Whoever creates, renames or removes one does so between af_temps_enter and af_temps_leave. After
 * af_output_abort nobody enters any more: writers stop at their next file, and nothing appears
 * after the removal. A process-wide list, because a signal ends the whole process. */
#define _GNU_SOURCE /* PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, sync_file_range */
#include "base/temps.h"

#include "afinar/output.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

struct af_temp {
    char *path;
    af_temp *next;
};

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static af_temp *first;
static bool aborted;

void af_temps_enter(void)
{
    pthread_mutex_lock(&lock);
    while (aborted) { /* the process is about to exit */
        pthread_mutex_unlock(&lock);
        pause();
        pthread_mutex_lock(&lock);
    }
}

void af_temps_leave(void) { pthread_mutex_unlock(&lock); }

af_temp *af_temp_add(const char *path)
{
    af_temp *t = af_calloc(1, sizeof *t);
    if (!t || !(t->path = af_strdup(path))) {
        free(t);
        return NULL;
    }
    af_temps_enter();
    t->next = first;
    first = t;
    af_temps_leave();
    return t;
}

void af_temp_drop(af_temp *t)
{
    if (!t)
        return;
    af_temps_enter();
    for (af_temp **at = &first; *at; at = &(*at)->next)
        if (*at == t) {
            *at = t->next;
            break;
        }
    af_temps_leave();
    free(t->path);
    free(t);
}

af_status af_temp_dir_make(char **dir, af_temp **listed, const char *path, af_error *err)
{
    af_status st = AF_OK;
    char *temp = af_path_temp(path, "tmp");
    if (!temp)
        return af_fail_nomem(err, "a path", strlen(path));
    af_path_sweep(path);
    af_temps_enter();
    AF_TRY(af_dir_make(temp, err));
    *listed = af_temp_add(temp);
    if (!*listed) {
        (void)!af_path_remove(temp, NULL);
        AF_TRY(af_fail_nomem(err, "a path", strlen(path)));
    }
    *dir = temp;
    temp = NULL;
done:
    af_temps_leave();
    free(temp);
    return st;
}

void af_temp_dir_remove(char *dir, af_temp *listed)
{
    const bool failed = af_memory_failed();
    if (!dir)
        return;
    af_temps_enter();
    if (af_path_remove(dir, NULL) != AF_OK && !failed)
        af_memory_forget(); /* the next process sweeps it; the first error is the one to report */
    af_temp_drop(listed);
    af_temps_leave();
    free(dir);
}

bool af_output_abort(void)
{
    bool any = false;
    af_temps_enter();
    aborted = true;
    for (const af_temp *t = first; t; t = t->next) {
        any |= af_file_exists(t->path) || af_dir_exists(t->path);
        if (af_path_remove(t->path, NULL) != AF_OK) {
            /* the next process that writes the same output sweeps it */
        }
    }
    af_temps_leave();
    return any;
}

/* ---- folders whose files are synced together ---- */

typedef struct noted_digest {
    char *name, hex[65];
    struct noted_digest *next;
} noted_digest;

struct af_unsynced_dir {
    char *path;
    af_unsynced what;
    noted_digest *digests;
    af_unsynced_dir *next;
};

static af_unsynced_dir *waiting;

af_unsynced_dir *af_unsynced_begin(const char *dir, af_unsynced what)
{
    af_unsynced_dir *d = af_calloc(1, sizeof *d);
    if (!d || !(d->path = af_strdup(dir))) {
        free(d);
        return NULL;
    }
    d->what = what;
    af_temps_enter();
    d->next = waiting;
    waiting = d;
    af_temps_leave();
    return d;
}

static af_unsynced_dir *find_dir(const char *dir)
{
    af_unsynced_dir *d = waiting;
    while (d && strcmp(d->path, dir) != 0)
        d = d->next;
    return d;
}

af_unsynced af_unsynced_in(const char *dir)
{
    af_temps_enter();
    const af_unsynced_dir *d = find_dir(dir);
    const af_unsynced what = d ? d->what : AF_UNSYNCED_NOTHING;
    af_temps_leave();
    return what;
}

void af_unsynced_note(const char *dir, const char *name, const char *hex)
{
    af_temps_enter();
    af_unsynced_dir *d = find_dir(dir);
    noted_digest *n = d ? d->digests : NULL;
    while (n && strcmp(n->name, name) != 0)
        n = n->next;
    if (d && !n && hex && (n = af_calloc(1, sizeof *n))) {
        n->name = af_strdup(name);
        if (n->name) {
            n->next = d->digests;
            d->digests = n;
        } else {
            free(n);
            n = NULL;
        }
    }
    if (n)
        snprintf(n->hex, sizeof n->hex, "%s", hex ? hex : "");
    af_temps_leave();
}

bool af_unsynced_digest(const char *dir, const char *name, char hex[65])
{
    bool found = false;
    af_temps_enter();
    const af_unsynced_dir *d = find_dir(dir);
    for (const noted_digest *n = d ? d->digests : NULL; n && !found; n = n->next) {
        found = strcmp(n->name, name) == 0 && *n->hex;
        if (found)
            memcpy(hex, n->hex, sizeof n->hex);
    }
    af_temps_leave();
    return found;
}

/* Writing is started on all before the first is waited for. */
static af_status sync_files(const char *dir, char *const *names, int n, af_error *err)
{
    af_status st = AF_OK;
    for (int wait = 0; wait < 2; wait++)
        for (int i = 0; i < n && st == AF_OK; i++) {
            char *path = af_path_join(dir, names[i]);
            const int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
            if (!path)
                st = af_fail_nomem(err, "a path", strlen(dir));
            else if (fd < 0)
                st = af_fail(err, AF_EIO, "cannot open '%s': %s", path, strerror(errno));
            else if (!wait)
                (void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
            else if (fsync(fd) != 0)
                st = af_fail(err, AF_EIO, "cannot sync '%s': %s", path, strerror(errno));
            if (fd >= 0)
                close(fd);
            free(path);
        }
    return st;
}

af_status af_unsynced_end(af_unsynced_dir *d, bool failed, af_error *err)
{
    af_status st = AF_OK;
    char **names = NULL;
    int n = 0;
    if (!d)
        return AF_OK;
    af_temps_enter();
    for (af_unsynced_dir **at = &waiting; *at; at = &(*at)->next)
        if (*at == d) {
            *at = d->next;
            break;
        }
    af_temps_leave();
    if (failed)
        goto done;
    if (d->what == AF_UNSYNCED_FILES) {
        AF_TRY(af_dir_list(&names, &n, d->path, err));
        AF_TRY(sync_files(d->path, names, n, err));
    }
    st = af_dir_sync(d->path, err);
done:
    af_names_free(names, n);
    while (d->digests) {
        noted_digest *next = d->digests->next;
        free(d->digests->name);
        free(d->digests);
        d->digests = next;
    }
    free(d->path);
    free(d);
    return st;
}
