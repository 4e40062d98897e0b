/* run_files.c - see run_files.h. */
#define _GNU_SOURCE
#include "train/checkpoint/run_files.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/word.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define PREFIX "checkpoint-"

/* What is written at the end; what a folder must not have of somebody else. */
static const char *const result_files[] = {AF_RUN_FINISHED,
                                           "trainer_state.json",
                                           "train_results.json",
                                           "eval_results.json",
                                           "all_results.json",
                                           "adapter_config.json",
                                           "adapter_model.safetensors",
                                           "model.safetensors",
                                           "config.json",
                                           "generation_config.json",
                                           "preprocessor_config.json",
                                           "processor_config.json",
                                           "video_preprocessor_config.json",
                                           "chat_template.json",
                                           "spk_dict.pt",
                                           "tokenizer.json",
                                           "tokenizer_config.json",
                                           "tokenizer.model",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "chat_template.jinja",
                                           "vocab.json",
                                           "merges.txt",
                                           "tekken.json",
                                           "tiktoken.model"};
/* What is there from the first step on. */
static const char *const start_files[] = {"run.yaml", "metrics.jsonl", "samples.jsonl",
                                          "report.html", "trackers.json"};

static af_status fail_path(af_error *err, const char *path)
{
    return af_fail_nomem(err, "a path", strlen(path));
}

/* ---- what is there ---- */

bool af_run_files_any(const char *output)
{
    af_written w = {0};
    bool any = false;
    if (af_written_read(&w, output, NULL) == AF_OK)
        for (int i = 0; i < w.count; i++)
            any |= strcmp(w.line[i].group, AF_OUTPUT_RUN) == 0;
    af_written_clear(&w);
    return any;
}

af_status af_run_files_is_own(const char *output, const char *name, bool *own, af_error *err)
{
    af_written w = {0};
    af_status st = af_written_read(&w, output, err);
    if (st == AF_OK) {
        const af_written_state is = af_written_check(&w, AF_OUTPUT_RUN, output, name);
        *own = is == AF_WRITTEN_ABSENT || is == AF_WRITTEN_OWN;
        if (is == AF_WRITTEN_UNREAD)
            st = af_fail(err, AF_EIO, "cannot read '%s/%s'", output, name);
    }
    af_written_clear(&w);
    return st;
}

af_status af_run_files_check(const char *output, bool force, af_error *err)
{
    af_status st = AF_OK;
    char *what = NULL;
    AF_TRY(af_output_check_path(output, err));
    if (force || !af_dir_exists(output))
        goto done;
    AF_TRY(af_output_content(&what, output, err));
    if (what)
        st = af_fail(err, AF_EUSAGE,
                     "output_dir '%s' exists and is not empty (it has %s): choose another one, or "
                     "keep these files there with --force (overwrite_output_dir: true)",
                     output, what);
done:
    free(what);
    return st;
}

static af_status refuse(const char *output, const char *name, bool changed, af_error *err)
{
    return af_fail(err, AF_EUSAGE,
                   "'%s/%s' %s and is not replaced: move it away, or choose another output_dir",
                   output, name,
                   changed ? "has been changed since afinar wrote it"
                           : "was not written by this program for a run");
}

static af_status check_list(const af_written *w, const char *output, const char *const *names,
                            int n, af_error *err)
{
    for (int i = 0; i < n; i++) {
        const af_written_state is = af_written_check(w, AF_OUTPUT_RUN, output, names[i]);
        if (is != AF_WRITTEN_ABSENT && is != AF_WRITTEN_OWN)
            return refuse(output, names[i], is == AF_WRITTEN_CHANGED, err);
    }
    return AF_OK;
}

/* A checkpoint of another program (or half of one), as opposed to a folder with notes of the
 * user's.
 */
static bool is_foreign(const char *dir)
{
    static const char *const more[] = {"optimizer.safetensors", "progress.json"};
    bool yes = af_file_exists(dir);
    for (size_t i = 0; i < AF_LEN(result_files) + AF_LEN(more) && !yes; i++) {
        const char *file = i < AF_LEN(more) ? more[i] : result_files[i - AF_LEN(more)];
        char *path = af_path_join(dir, file);
        yes = !path || access(path, F_OK) == 0;
        free(path);
    }
    return yes;
}

static bool has_manifest(const char *dir)
{
    char *path = af_path_join(dir, "manifest.json");
    const bool yes = path && af_file_exists(path);
    free(path);
    return yes;
}

/* Anything but files that were being written. */
static bool has_notes(const char *dir)
{
    char **names = NULL;
    int n = 0;
    bool any = false;
    if (af_dir_list(&names, &n, dir, NULL) != AF_OK)
        return true;
    for (int i = 0; i < n; i++)
        any |= names[i][0] != '.' || !af_ends_with(names[i], ".tmp");
    af_names_free(names, n);
    return any;
}

static af_status check_checkpoints(const char *output, int64_t from, int64_t to, af_error *err)
{
    char **names = NULL;
    int n = 0;
    af_status st = af_dir_list(&names, &n, output, err);
    for (int i = 0; i < n && st == AF_OK; i++) {
        const int64_t step = af_checkpoint_step(names[i]);
        char *dir = af_path_join(output, names[i]);
        if (!dir)
            st = fail_path(err, output);
        else if (step > from && step <= to && !has_manifest(dir) && is_foreign(dir))
            st = refuse(output, names[i], false, err);
        free(dir);
    }
    af_names_free(names, n);
    return st;
}

af_status af_run_files_check_names(const char *output, int64_t from, int64_t to, af_error *err)
{
    af_status st = AF_OK;
    af_written w = {0};
    AF_TRY(af_written_read(&w, output, err));
    AF_TRY(check_list(&w, output, result_files, (int)AF_LEN(result_files), err));
    AF_TRY(check_list(&w, output, start_files, (int)AF_LEN(start_files), err));
    st = check_checkpoints(output, from, to, err);
done:
    af_written_clear(&w);
    return st;
}

/* ---- the manifest ---- */

static bool is_listed(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* Lists a name with any content. */
static af_status list_name(af_written *w, const char *name, af_error *err)
{
    af_written_drop(w, AF_OUTPUT_RUN, name);
    return af_written_add(w, AF_OUTPUT_RUN, name, NULL, err);
}

static af_status claim(const char *output, const char *const *names, int n, bool check,
                       af_error *err)
{
    af_status st = AF_OK;
    af_written w = {0};
    AF_TRY(af_written_read(&w, output, err));
    if (check)
        AF_TRY(check_list(&w, output, names, n, err));
    for (int i = 0; i < n; i++)
        AF_TRY(list_name(&w, names[i], err));
    st = af_written_write(&w, output, err);
done:
    af_written_clear(&w);
    return st;
}

af_status af_run_files_claim(const char *output, const char *const *names, int n, af_error *err)
{
    return claim(output, names, n, true, err);
}

af_status af_run_files_add(const char *output, const char *name, af_error *err)
{
    return claim(output, &name, 1, false, err);
}

af_status af_run_files_claim_start(const char *output, af_error *err)
{
    return af_run_files_claim(output, start_files, (int)AF_LEN(start_files), err);
}

af_status af_run_files_claim_result(const char *output, af_error *err)
{
    return af_run_files_claim(output, result_files, (int)AF_LEN(result_files), err);
}

af_status af_run_files_adopt(const char *output, af_error *err)
{
    af_status st = AF_OK;
    af_written w = {0};
    char **names = NULL;
    int n = 0;
    AF_TRY(af_written_read(&w, output, err));
    AF_TRY(af_dir_list(&names, &n, output, err));
    for (int i = 0; i < n; i++) {
        if (strncmp(names[i], "events.out.tfevents.", 20) == 0 ||
            is_listed(names[i], result_files, AF_LEN(result_files)) ||
            is_listed(names[i], start_files, AF_LEN(start_files)))
            AF_TRY(list_name(&w, names[i], err));
    }
    st = af_written_write(&w, output, err);
done:
    af_names_free(names, n);
    af_written_clear(&w);
    return st;
}

af_status af_run_files_seal(const char *output, bool all, af_error *err)
{
    af_status st = AF_OK;
    af_written w = {0}, sealed = {0};
    char *path = NULL;
    AF_TRY(af_written_read(&w, output, err));
    for (int i = 0; i < w.count; i++) {
        const char *name = w.line[i].name;
        if (strcmp(w.line[i].group, AF_OUTPUT_RUN) != 0)
            continue;
        if (!all && !is_listed(name, result_files, AF_LEN(result_files)) &&
            strcmp(name, "run.yaml") != 0) {
            AF_TRY(af_written_add(&sealed, AF_OUTPUT_RUN, name, NULL, err));
            continue;
        }
        path = af_path_join(output, name);
        if (!path)
            AF_TRY(fail_path(err, name));
        const af_written_state is = af_written_check(&w, AF_OUTPUT_RUN, output, name);
        if (is == AF_WRITTEN_UNREAD) /* it stays in the list as it is */
            AF_TRY(af_fail(err, AF_EIO, "cannot read '%s' to record its checksum", path));
        if (is == AF_WRITTEN_OWN)
            AF_TRY(af_written_add(&sealed, AF_OUTPUT_RUN, name, path, err));
        free(path);
        path = NULL;
    }
    af_written_drop(&w, AF_OUTPUT_RUN, NULL);
    AF_TRY(af_written_join(&w, &sealed, NULL, err));
    st = af_written_write(&w, output, err);
done:
    free(path);
    af_written_clear(&w);
    af_written_clear(&sealed);
    return st;
}

/* ---- checkpoints ---- */

int64_t af_checkpoint_step(const char *name)
{
    char *end;
    const char *number = name + strlen(PREFIX);
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || *number < '0' || *number > '9')
        return -1;
    errno = 0;
    const long long n = strtoll(number, &end, 10);
    return *end || errno ? -1 : n;
}

bool af_checkpoint_is_own(const char *output, const char *name)
{
    char *dir = af_path_join(output, name);
    const bool own = dir && has_manifest(dir);
    free(dir);
    return own;
}

/* Where a checkpoint goes before its files are removed: one that can be seen is whole at every
 * moment. free() */
static char *removal_name(const char *dir)
{
    af_buf b = {0};
    af_buf_printf(&b, "%s%s", dir, af_ends_with(dir, ".tmp") ? "" : ".tmp");
    return af_buf_take(&b);
}

af_status af_checkpoint_remove(const char *dir, af_error *err)
{
    char **names = NULL, *path = NULL, *at = removal_name(dir);
    int n = 0;
    af_status st = AF_OK;
    if (!at)
        return fail_path(err, dir);
    const af_status known = af_manifest_names(dir, &names, &n, err);
    if (known != AF_OK) { /* damaged: nobody knows what in it is ours, so it stays */
        free(at);
        return known == AF_EFORMAT ? AF_OK : known;
    }
    const bool moved =
        strcmp(at, dir) != 0 && renameat2(AT_FDCWD, dir, AT_FDCWD, at, RENAME_NOREPLACE) == 0;
    const char *from = moved ? at : dir;
    for (int i = 0; i <= n && st == AF_OK; i++) { /* the manifest last: it says what is ours */
        path = af_path_join(from, i < n ? names[i] : "manifest.json");
        st = path ? af_path_remove(path, err) : fail_path(err, dir);
        free(path);
    }
    if (st == AF_OK && rmdir(from) != 0) {
        if (errno != ENOTEMPTY && errno != EEXIST)
            st = af_fail(err, AF_EIO, "cannot remove '%s': %s", from, strerror(errno));
        else if (moved && renameat2(AT_FDCWD, at, AT_FDCWD, dir, RENAME_NOREPLACE) != 0)
            st = af_fail(err, AF_EIO, "cannot rename to '%s': %s", dir, strerror(errno));
    }
    free(at);
    af_names_free(names, n);
    return st;
}

static bool is_one_of(const char *name, char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* Moves what is not listed as ours: it is the user's. */
static af_status carry_over(const char *from, const char *to, char *const *own, int own_count,
                            af_error *err)
{
    char **names = NULL;
    int n = 0;
    af_status st = af_dir_list(&names, &n, from, err);
    for (int i = 0; i < n && st == AF_OK; i++) {
        if (own && (is_one_of(names[i], own, own_count) || strcmp(names[i], "manifest.json") == 0))
            continue;
        char *a = af_path_join(from, names[i]), *b = af_path_join(to, names[i]);
        st = a && b ? af_path_move(a, b, err) : fail_path(err, from);
        free(a);
        free(b);
    }
    af_names_free(names, n);
    return st;
}

/* Nobody knows what in a checkpoint without a readable manifest is ours: it gets another name. */
static af_status move_aside(const char *dir, const char *whole, af_error *err)
{
    enum { TRIES = 1000 };
    for (int i = 0; i < TRIES; i++) {
        af_buf b = {0};
        af_buf_printf(&b, "%s.damaged", whole);
        if (i)
            af_buf_printf(&b, ".%d", i);
        char *to = af_buf_take(&b);
        if (!to)
            return fail_path(err, whole);
        const bool taken = af_path_is_taken(to);
        const af_status st = taken ? AF_OK : af_path_move(dir, to, err);
        free(to);
        if (!taken)
            return st;
    }
    return af_fail(err, AF_EIO, "cannot rename '%s': there are %d damaged ones", dir, TRIES);
}

/* With a manifest. The user's files leave before ours are removed, and the manifest goes last: at
 * every moment it is known whose a file is. */
static af_status drop_own(const char *dir, const char *whole, af_error *err)
{
    af_status st = AF_OK;
    char **names = NULL;
    int n = 0;
    const af_status known = af_manifest_names(dir, &names, &n, err);
    if (known == AF_EFORMAT)
        return move_aside(dir, whole, err);
    AF_TRY(known);
    const bool there = af_dir_exists(whole);
    if (there)
        AF_TRY(carry_over(dir, whole, names, n, err));
    AF_TRY(af_checkpoint_remove(dir, err));
    if (!there && af_dir_exists(dir))
        st = af_path_move(dir, whole, err);
done:
    af_names_free(names, n);
    return st;
}

static af_status drop_notes(const char *dir, const char *whole, af_error *err)
{
    const bool there = af_dir_exists(whole);
    af_status st = there ? carry_over(dir, whole, NULL, 0, err) : AF_OK;
    if (st == AF_OK && !there)
        return af_path_move(dir, whole, err);
    if (st == AF_OK && rmdir(dir) != 0)
        st = af_fail(err, AF_EIO, "cannot remove '%s': %s", dir, strerror(errno));
    return st;
}

af_status af_checkpoint_drop(const char *dir, const char *whole, af_error *err)
{
    if (!af_dir_exists(dir))
        return AF_OK;
    const bool own = has_manifest(dir);
    const af_status st = af_memory_check(err); /* it may not have been looked for */
    if (st != AF_OK || own)
        return st == AF_OK ? drop_own(dir, whole, err) : st;
    /* half a checkpoint, or what the user had in one that was being replaced */
    return is_foreign(dir) || !has_notes(dir) ? af_path_remove(dir, err)
                                              : drop_notes(dir, whole, err);
}

static af_status check_absent(const char *dir, char *const *names, int n, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < n && st == AF_OK; i++) {
        char *path = af_path_join(dir, names[i]);
        if (!path)
            st = fail_path(err, dir);
        else if (access(path, F_OK) == 0)
            st = refuse(dir, names[i], false, err);
        free(path);
    }
    return st;
}

af_status af_checkpoint_replace(const char *from, const char *to, af_error *err)
{
    af_status st = AF_OK;
    char **names = NULL;
    int n = 0;
    if (has_manifest(to)) {
        const af_status known = af_manifest_names(to, &names, &n, err);
        AF_TRY(known == AF_EFORMAT ? move_aside(to, to, err) : known);
    } else if (af_dir_exists(to)) { /* notes of the user's may stay in it */
        AF_TRY(af_dir_list(&names, &n, from, err));
        AF_TRY(check_absent(to, names, n, err));
        if (is_foreign(to))
            AF_TRY(refuse(to, "", false, err));
    }
    AF_TRY(af_memory_check(err));       /* has_manifest */
    AF_TRY(af_dir_swap(from, to, err)); /* the old one is `from` now */
    st = af_checkpoint_drop(from, to, err);
done:
    af_names_free(names, n);
    return st;
}

/* ---- removing ---- */

/* checkpoint-STEP.tmp: a checkpoint that was being written, or replaced, when a run was killed.
 * Writes its name without .tmp, which it returns. */
static bool is_temporary(const char *name, char *whole, size_t size)
{
    if (!af_ends_with(name, ".tmp") || strlen(name) >= size)
        return false;
    snprintf(whole, size, "%.*s", (int)(strlen(name) - strlen(".tmp")), name);
    char step[64];
    const bool left = af_ends_with(whole, AF_CHECKPOINT_LEFT);
    const int n = (int)(strlen(whole) - (left ? strlen(AF_CHECKPOINT_LEFT) : 0));
    return snprintf(step, sizeof step, "%.*s", n, whole) < (int)sizeof step &&
           af_checkpoint_step(step) >= 0;
}

static af_status remove_temporary(const char *dir, const char *output, const char *whole_name,
                                  af_error *err)
{
    char *whole = af_path_join(output, whole_name);
    const af_status st = whole ? af_checkpoint_drop(dir, whole, err) : fail_path(err, output);
    free(whole);
    return st;
}

static bool is_checkpoint(const char *output, const char *name)
{
    return (af_checkpoint_step(name) >= 0 || af_ends_with(name, AF_CHECKPOINT_LEFT)) &&
           strncmp(name, PREFIX, strlen(PREFIX)) == 0 && af_checkpoint_is_own(output, name);
}

static af_status remove_folders(const char *output, bool checkpoints, af_error *err)
{
    char **names = NULL, whole[128];
    int n = 0;
    af_status st = af_dir_list(&names, &n, output, err);
    for (int i = 0; i < n && st == AF_OK; i++) {
        char *path = af_path_join(output, names[i]);
        if (!path)
            st = fail_path(err, output);
        else if (is_temporary(names[i], whole, sizeof whole))
            st = remove_temporary(path, output, whole, err);
        else if (checkpoints && is_checkpoint(output, names[i]))
            st = af_checkpoint_remove(path, err);
        free(path);
    }
    af_names_free(names, n);
    return st;
}

af_status af_run_files_sweep(const char *output, af_error *err)
{
    char *inside = af_path_join(output, AF_TEMP_NAME);
    if (!inside)
        return fail_path(err, output);
    af_path_sweep(inside);
    free(inside);
    return remove_folders(output, false, err);
}

af_status af_run_files_remove(const char *output, bool keep, af_error *err)
{
    af_status st = AF_OK;
    af_written w = {0};
    AF_TRY(af_written_read(&w, output, err));
    for (int i = 0; i < w.count && st == AF_OK; i++) {
        const char *name = w.line[i].name;
        if (strcmp(w.line[i].group, AF_OUTPUT_RUN) != 0)
            continue;
        char *path = af_path_join(output, name);
        if (!path)
            st = fail_path(err, name);
        else if (af_written_check(&w, AF_OUTPUT_RUN, output, name) == AF_WRITTEN_OWN)
            st = af_path_remove(path, err);
        if (path)
            af_path_sweep(path); /* unlisted, what a killed run left looks like the user's */
        free(path);
    }
    AF_TRY(st);
    AF_TRY(af_run_files_sweep(output, err));
    AF_TRY(remove_folders(output, !keep, err));
    af_written_drop(&w, AF_OUTPUT_RUN, NULL);
    st = af_written_write(&w, output, err);
done:
    af_written_clear(&w);
    return st;
}
