/* run_folder.c - see run_folder.h. */
#include "train/checkpoint/run_folder.h"
#include "base/buf.h"
#include "base/file.h"
#include "convert/output/folder_out.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/run_files.h"
#include "train/checkpoint/side_files.h"

#include <unistd.h>

static bool is_finished(const char *output)
{
    char *path = af_path_join(output, AF_RUN_FINISHED);
    const bool yes = path && af_file_exists(path);
    free(path);
    return yes;
}

static bool is_automatic(const af_run_config *r)
{
    return r->auto_resume || (r->resume && strcmp(r->resume, "auto") == 0);
}

/* The number after `key` in a file of the output folder, or `none`. */
static double number_in(const char *output, const char *file, const char *key, double none)
{
    char *path = af_path_join(output, file), *text = NULL;
    uint64_t size = 0;
    double v = none;
    if (path && af_file_read(&text, &size, path, UINT64_C(1) << 24, NULL) == AF_OK) {
        const char *at = strstr(text, key);
        v = at ? strtod(at + strlen(key), NULL) : none;
    }
    free(text);
    free(path);
    return v;
}

/* A finished run for which more steps are requested now. */
static bool is_longer(const af_run_config *r)
{
    const double steps = number_in(r->output_dir, "run.yaml", "\nmax_steps: ", -1);
    const double epochs = number_in(r->output_dir, "run.yaml", "\nnum_epochs: ", r->num_epochs);
    const double done = number_in(r->output_dir, AF_RUN_FINISHED, "\"step\": ", 0);
    if (r->max_steps > 0)
        return (double)r->max_steps > (steps > 0 ? steps : done);
    if (steps > 0) /* its epochs were not done: those it came to count */
        return r->num_epochs >
               number_in(r->output_dir, AF_RUN_FINISHED, "\"last_epoch\": \"", r->num_epochs);
    return r->num_epochs > epochs;
}

bool af_run_folder_finished(const af_run_config *r)
{
    return is_automatic(r) && is_finished(r->output_dir) && !is_longer(r);
}

/* Whether a run has begun here. */
static bool has_run(const char *output)
{
    char *path = af_path_join(output, "metrics.jsonl");
    const bool yes = (path && af_file_exists(path)) || is_finished(output);
    free(path);
    return yes;
}

/* Whether it is the folder of a run: also of another trainer's. */
static bool is_used(const char *output)
{
    char **names = NULL;
    int n = 0;
    bool yes = has_run(output) || af_run_files_any(output);
    if (!af_dir_exists(output) || af_dir_list(&names, &n, output, NULL) != AF_OK)
        return yes;
    for (int i = 0; i < n; i++)
        yes |= strncmp(names[i], "checkpoint-", strlen("checkpoint-")) == 0;
    af_names_free(names, n);
    return yes;
}

/* A resumed run is no longer finished, and half-written checkpoints of a killed one are removed. */
static af_status reopen_run(const char *output, af_error *err)
{
    char *path = af_path_join(output, AF_RUN_FINISHED);
    af_status st = path ? af_path_remove(path, err) : af_fail_nomem(err, "a path", strlen(output));
    free(path);
    return st == AF_OK ? af_run_files_sweep(output, err) : st;
}

af_status af_run_folder_clear(const char *output, bool resumes, bool keep, af_error *err)
{
    return resumes ? reopen_run(output, err) : af_run_files_remove(output, keep, err);
}

/* A later checkpoint of this program: an automatic resume ignores another trainer's. */
static bool is_left(const char *output, const char *name, int64_t step)
{
    return af_checkpoint_step(name) > step && af_checkpoint_is_own(output, name);
}

static af_status rename_left(const char *output, const char *name, af_error *err)
{
    char *path = af_path_join(output, name);
    af_buf left = {0};
    af_buf_printf(&left, "%s" AF_CHECKPOINT_LEFT, path ? path : "");
    const af_status st = path && !left.bad ? af_checkpoint_replace(path, left.data, err)
                                           : af_fail_nomem(err, "a path", strlen(name));
    af_buf_clear(&left);
    free(path);
    return st;
}

af_status af_run_folder_rename_later(const af_run_config *r, int64_t step,
                                     const af_train_hooks *hooks, af_error *err)
{
    char **names = NULL;
    int n = 0, left = 0;
    const char *output = r->output_dir;
    if (is_automatic(r))
        return AF_OK;
    af_status st = af_dir_list(&names, &n, output, err);
    for (int i = 0; i < n && st == AF_OK; i++)
        if (is_left(output, names[i], step)) {
            st = rename_left(output, names[i], err);
            left++;
        }
    if (left && st == AF_OK)
        af_run_log(hooks,
                   "note: %d checkpoint%s after step %" PRId64
                   " renamed to checkpoint-STEP" AF_CHECKPOINT_LEFT
                   ": the run continues from there",
                   left, left > 1 ? "s" : "", step);
    af_names_free(names, n);
    return st;
}

static af_status earlier_run(const af_run_config *r, af_error *err)
{
    return af_fail(err, AF_EUSAGE,
                   "'%s' holds an earlier run: set resume_from_checkpoint: auto, another "
                   "output_dir, or replace the run's own files with --force "
                   "(overwrite_output_dir: true)",
                   r->output_dir);
}

/* Whether the checkpoint that the user names is one of the output folder's: the run continues
 * there. */
static bool names_own(const af_run_config *r)
{
    char *up = af_path_join(r->resume, "..");
    const bool own = up && af_path_same(up, r->output_dir);
    free(up);
    return own;
}

/* Checkpoints of the earlier run are removed: the run must not read one of them. */
static af_status check_input(const af_run_config *r, const char *key, const char *path,
                             af_error *err)
{
    char **names = NULL, at[300];
    int n = 0;
    if (!path || !af_dir_exists(r->output_dir))
        return AF_OK;
    af_status st = af_dir_list(&names, &n, r->output_dir, err);
    for (int i = 0; i < n && st == AF_OK; i++) {
        if (af_checkpoint_step(names[i]) < 0 || !af_checkpoint_is_own(r->output_dir, names[i]))
            continue;
        af_error why = {0};
        char *dir = af_path_join(r->output_dir, names[i]);
        st = dir ? af_output_check(dir, &path, 1, &why)
                 : af_fail_nomem(&why, "a path", strlen(names[i]));
        free(dir);
        if (st == AF_EUSAGE)
            af_fail(err, st,
                    "%s: %s '%s' lies in output_dir, where a new run removes the checkpoints of "
                    "the earlier one: choose another output_dir",
                    af_run_key_loc(r, key, at, sizeof at), key, path);
        else if (st != AF_OK)
            af_fail(err, st, "%s", why.msg);
    }
    af_names_free(names, n);
    return st;
}

/* A checkpoint the user names is there, and is one. */
static af_status check_named(const af_run_config *r, af_error *err)
{
    char at[300];
    if (!af_dir_exists(r->resume))
        return af_fail(err, AF_EUSAGE, "%s: checkpoint folder '%s' does not exist",
                       af_run_key_loc(r, "resume_from_checkpoint", at, sizeof at), r->resume);
    return af_manifest_check_there(r->resume, err);
}

af_status af_run_folder_check(const af_run_config *r, af_error *err)
{
    const char *output = r->output_dir;
    const bool own = is_automatic(r) ? is_used(output) : r->resume && names_own(r);
    af_status st = AF_OK;
    AF_TRY(af_output_check_path(output, err));
    if (r->resume && !is_automatic(r))
        AF_TRY(check_named(r, err));
    if (own)
        goto done;
    if (is_used(output) && !r->overwrite_output_dir)
        AF_TRY(earlier_run(r, err));
    AF_TRY(af_run_files_check(output, r->overwrite_output_dir, err));
    AF_TRY(af_output_check(output, (const char *const[]){r->lora_model_dir}, 1, err));
    AF_TRY(check_input(r, "base_model", r->base_model, err));
    AF_TRY(check_input(r, "teacher_model", r->teacher_model, err));
    AF_TRY(check_input(r, "teacher_adapter", r->teacher_adapter, err));
    if (af_dir_exists(output))
        st = af_run_files_check_names(output, 0, 0, err);
done:
    return st;
}

/* A checkpoint the user names. *own: it is one of the output folder's, and the run continues there.
 */
static af_status choose_named(const af_run_config *r, char **checkpoint, bool *own, af_error *err)
{
    char at[300];
    af_run_key_loc(r, "resume_from_checkpoint", at, sizeof at);
    *own = names_own(r);
    if (*own && r->overwrite_output_dir)
        return af_fail(err, AF_EUSAGE,
                       "%s: '%s' is in output_dir, which overwrite_output_dir would empty: set "
                       "one or the other",
                       at, r->resume);
    *checkpoint = af_strdup(r->resume);
    return *checkpoint ? AF_OK : af_fail_nomem(err, "a path", strlen(r->resume));
}

af_status af_run_folder_choose(const af_run_config *r, const af_train_hooks *hooks,
                               char **checkpoint, bool *own, af_error *err)
{
    af_status st = af_run_folder_check(r, err);
    if (st != AF_OK)
        return st;
    *own = is_automatic(r);
    if (*own) {
        st = af_checkpoint_newest(r->output_dir, hooks, checkpoint, err);
        if (st == AF_OK && !*checkpoint && is_finished(r->output_dir))
            return af_fail(err, AF_EUSAGE,
                           "'%s' holds a finished run without a checkpoint to resume from: set "
                           "overwrite_output_dir: true, or another output_dir",
                           r->output_dir);
        if (st == AF_OK && !*checkpoint && has_run(r->output_dir))
            af_run_log(hooks, "no complete checkpoint in '%s': starting over", r->output_dir);
        return st;
    }
    if (r->resume)
        return choose_named(r, checkpoint, own, err);
    return AF_OK;
}

af_status af_run_folder_write(const char *dir, const char *name, const char *text, af_error *err)
{
    char *path = af_path_join(dir, name);
    const af_status st = path ? af_file_write(path, text, strlen(text), err)
                              : af_fail_nomem(err, "a path", strlen(dir));
    free(path);
    return st;
}

/* Lists the Python files of the model that will be copied as files of the run. */
static af_status list_code(const char *model, const char *dir, af_error *err)
{
    char **names = NULL;
    int n = 0;
    af_status st = af_folder_code(&names, &n, model, dir, err);
    for (int i = 0; i < n && st == AF_OK; i++)
        st = af_run_files_add(dir, names[i], err);
    af_names_free(names, n);
    return st;
}

af_status af_run_folder_texts(const af_run_model *m, const char *chat_template, const char *dir,
                              const af_train_hooks *hooks, af_error *err)
{
    af_error why = {0};
    af_status st = AF_OK;
    if (!m->adapter && af_dir_exists(m->texts))
        st = list_code(m->texts, dir, err);
    if (st == AF_OK)
        st = af_side_files_put(m->texts, chat_template, m->labels, dir, !m->adapter, &why, err);
    if (why.code == AF_ENOMEM)
        return af_fail(err, AF_ENOMEM, "%s", why.msg);
    if (why.code != AF_OK)
        af_run_log(hooks, "note: no tokenizer files next to the adapter: %s", why.msg);
    return st;
}

af_status af_run_lock_take(af_run_lock *l, const char *output, af_error *err)
{
    if (l->held || !af_dir_exists(output))
        return AF_OK;
    l->held = af_dir_hold(output, &l->fd);
    return l->held ? AF_OK : af_fail(err, AF_EUSAGE, "another run is writing to '%s'", output);
}

void af_run_lock_release(af_run_lock *l)
{
    if (l->held)
        close(l->fd);
    l->held = false;
}
