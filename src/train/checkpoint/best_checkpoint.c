/* best_checkpoint.c - see best_checkpoint.h. */
#include "train/checkpoint/best_checkpoint.h"
#include "base/file.h"
#include "base/temps.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/run_files.h"

/* The folder may hold the checkpoint of another run that reached the same step. */
static af_status check_counters(const af_run_progress *p, const char *dir, af_error *err)
{
    char *path = af_path_join(dir, "progress.json");
    af_run_progress q = *p;
    uint64_t clock;
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    af_status st = af_run_progress_read(&q, &clock, path, err);
    free(path);
    if (st == AF_OK &&
        (q.step != p->best_step || q.best_step != p->best_step || q.best_eval != p->best_eval))
        st = af_fail(err, AF_EFORMAT,
                     "'%s' belongs to another run: its best evaluation is %g at step %" PRId64, dir,
                     q.best_eval, q.best_step);
    return st;
}

af_status af_best_checkpoint_find(char **dir, const af_run_progress *p, const char *checkpoint,
                                  af_error *why, af_error *err)
{
    char name[64], *path;
    *dir = NULL;
    snprintf(name, sizeof name, "../checkpoint-%" PRId64, p->best_step);
    path = p->best_step == p->step ? af_strdup(checkpoint) : af_path_join(checkpoint, name);
    if (!path)
        return af_fail_nomem(err, "a path", strlen(checkpoint));
    af_status st = AF_OK;
    if (!af_dir_exists(path))
        st = af_fail(why, AF_EFORMAT, "'%s' does not exist", path);
    if (st == AF_OK)
        st = af_checkpoint_verify(path, why);
    if (st == AF_OK)
        st = check_counters(p, path, why);
    if (st == AF_OK) {
        *dir = path;
        return AF_OK;
    }
    free(path);
    if (st == AF_ENOMEM || st == AF_EIO) /* it may be whole */
        return af_fail(err, st, "%s", why->msg);
    return AF_OK;
}

static af_status copy_files(const char *from, const char *to, af_error *err)
{
    char **names = NULL;
    int n = 0;
    af_unsynced_dir *unsynced = NULL;
    af_status st = AF_OK;
    AF_TRY(af_manifest_names(from, &names, &n, err));
    AF_TRY(af_dir_make(to, err));
    unsynced = af_unsynced_begin(to, AF_UNSYNCED_FILES);
    for (int i = 0; i < n && st == AF_OK; i++)
        st = af_file_copy_into(from, to, names[i], err);
    if (st == AF_OK)
        st = af_file_copy_into(from, to, "manifest.json", err);
    const af_status synced = af_unsynced_end(unsynced, st != AF_OK, st == AF_OK ? err : NULL);
    st = st == AF_OK ? synced : st;
done:
    af_names_free(names, n);
    return st;
}

af_status af_best_checkpoint_copy(const char *dir, const char *output, int64_t step, af_error *err)
{
    char name[64];
    af_status st = AF_OK;
    snprintf(name, sizeof name, "checkpoint-%" PRId64, step);
    char *to = af_path_join(output, name);
    snprintf(name, sizeof name, "checkpoint-%" PRId64 ".tmp", step);
    char *tmp = af_path_join(output, name);
    if (!to || !tmp)
        AF_TRY(af_fail_nomem(err, "a path", strlen(output)));
    AF_TRY(af_checkpoint_drop(tmp, to, err));
    st = copy_files(dir, tmp, err);
    if (st == AF_OK)
        st = af_checkpoint_replace(tmp, to, err);
    if (st != AF_OK)
        (void)!af_checkpoint_drop(tmp, to, NULL);
done:
    free(to);
    free(tmp);
    return st;
}
