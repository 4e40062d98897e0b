/* temps.c - the temporary files and folders that this process has now, so that they can be removed
 * when it is ended from outside.
 *
 * Whoever creates, renames or removes one does so between af_temps_enter and af_temps_leave. After
 * af_output_abort nobody enters any more: writers stop at their next file, and nothing appears
 * after the removal. A process-wide list, because a signal ends the whole process. */
#define _GNU_SOURCE /* PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP */
#include "base/temps.h"

#include "afinar/output.h"
#include "base/file.h"

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
