/* checkpoint_list.c - the checkpoints of an output folder. */
#include "train/checkpoint/checkpoint_list.h"
#include "base/file.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/run_files.h"
#include "train/checkpoint/run_folder.h"

static int newest_first(const void *a, const void *b)
{
    const int64_t x = af_checkpoint_step(*(char *const *)a),
                  y = af_checkpoint_step(*(char *const *)b);
    return x < y ? 1 : x > y ? -1 : 0;
}

af_status af_checkpoint_list(char ***names, int *n, const char *output, bool own, af_error *err)
{
    af_status st = af_dir_list(names, n, output, err);
    if (st != AF_OK)
        return st;
    int kept = 0;
    for (int i = 0; i < *n; i++)
        if (af_checkpoint_step((*names)[i]) >= 0 &&
            (!own || af_checkpoint_is_own(output, (*names)[i])))
            (*names)[kept++] = (*names)[i];
        else
            free((*names)[i]);
    *n = kept;
    if (kept)
        qsort(*names, (size_t)kept, sizeof **names, newest_first);
    st = af_memory_check(err); /* one whose manifest could not be read for it is not listed */
    if (st != AF_OK) {
        af_names_free(*names, *n);
        *names = NULL;
        *n = 0;
    }
    return st;
}

af_status af_checkpoint_newest(const char *output, const af_train_hooks *hooks, char **dir,
                               af_error *err)
{
    char **names = NULL;
    int n = 0;
    *dir = NULL;
    if (!af_dir_exists(output))
        return AF_OK;
    af_status st = af_checkpoint_list(&names, &n, output, false, err);
    for (int i = 0; i < n && !*dir && st == AF_OK; i++) {
        af_error why = {0};
        char *path = af_path_join(output, names[i]);
        const af_status is =
            path ? af_checkpoint_verify(path, &why) : af_fail_nomem(&why, "a path", strlen(output));
        if (is == AF_OK) {
            *dir = path;
        } else if (is == AF_ENOMEM || is == AF_EIO) { /* it may be whole: an older one would repeat
                                                         its steps */
            st = af_fail(err, is, "%s: %s", names[i], why.msg);
            free(path);
        } else {
            af_run_log(hooks, "skipping %s: %s", names[i], why.msg);
            free(path);
        }
    }
    af_names_free(names, n);
    return st;
}
