/* data_files.c - the files of a dataset: a file, a folder with its splits, a pattern, or files that
 * are named inside a folder. */
#include "base/file.h"
#include "data/read/records.h"
#include "data/shape/data_layout.h"
#include "format/hub/hub_name.h"

#include <glob.h>
#include <strings.h>

const char *af_data_source_loc(char buf[300], const char *run_path, int line)
{
    if (line > 0)
        snprintf(buf, 300, "%s:%d", run_path, line);
    else
        snprintf(buf, 300, "command line");
    return buf;
}

static bool in_split(const char *name, const char *split)
{
    const size_t n = split ? strlen(split) : 0;
    return !split || (strncmp(name, split, n) == 0 && strchr(".-_", name[n]) && name[n]);
}

/* "all_test.jsonl", "all.test.jsonl.gz": is the split the last word before an ending? */
static bool ends_in_split(const char *name, const char *split)
{
    const size_t n = strlen(split);
    for (const char *p = strstr(name, split); p; p = strstr(p + 1, split))
        if (p > name && strchr(".-_", p[-1]) && p[n] == '.')
            return true;
    return false;
}

/* Files next to the data of a published dataset that are not data. */
static bool is_about(const char *name)
{
    static const char *const names[] = {"readme",   "license",      "licence",      "notice",
                                        "citation", "dataset_info", "dataset_infos"};
    static const char *const endings[] = {".py", ".yaml", ".yml", ".png", ".jpg", ".svg", ".pdf"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < AF_LEN(endings); i++)
        if (strcasecmp(dot, endings[i]) == 0)
            return true;
    for (size_t i = 0; i < AF_LEN(names); i++) {
        const size_t n = strlen(names[i]);
        if (strncasecmp(name, names[i], n) == 0 && (!name[n] || name[n] == '.'))
            return true;
    }
    return false;
}

static bool is_text(const char *name)
{
    af_records_kind kind;
    return af_records_kind_of(&kind, name, NULL, NULL) == AF_OK && kind == AF_RECORDS_TEXT;
}

/* Among other texts, a text is one of them. */
static bool is_about_no_text(const char *name) { return is_about(name) && !is_text(name); }

static bool is_held_out(const char *name)
{
    static const char *const splits[] = {"test", "testing", "eval",  "evaluation",
                                         "dev",  "val",     "valid", "validation"};
    for (size_t i = 0; i < AF_LEN(splits); i++)
        if (in_split(name, splits[i]) || ends_in_split(name, splits[i]))
            return true;
    return false;
}

/* Where others are called train: a test or validation wherever the name says so. */
static bool is_other_split(const char *name)
{
    return !af_split_mentions(name, "train") &&
           (is_held_out(name) || af_split_mentions(name, "test") ||
            af_split_mentions(name, "validation"));
}

/* Drops files by their name, unless none would be left. Returns how many stay. */
static int drop_named(char **files, int count, bool (*drop)(const char *))
{
    int left = 0, kept = 0;
    for (int i = 0; i < count; i++)
        left += !drop(af_path_name(files[i]));
    if (left == 0)
        return count;
    for (int i = 0; i < count; i++) {
        char *path = files[i];
        files[i] = NULL;
        if (drop(af_path_name(path)))
            free(path);
        else
            files[kept++] = path;
    }
    return kept;
}

/* The data files of a folder; those of the split, or what its names do not keep for tests. */
static af_status list_folder(const af_data_source *s, const char *folder, char ***files, int *count,
                             int *held_out, af_error *err)
{
    char **names = NULL;
    int n = 0, kept = 0;
    bool begins = false; /* a name begins with the split: only such names count */
    af_status st = af_dir_list(&names, &n, folder, err);
    for (int i = 0; st == AF_OK && i < n; i++)
        begins |= s->split && in_split(names[i], s->split);
    for (int i = 0; st == AF_OK && i < n; i++) {
        char *path = af_path_join(folder, names[i]);
        if (!path) {
            st = af_fail_nomem(err, folder, 0);
            break;
        }
        const bool ours = begins || !s->split ? in_split(names[i], s->split)
                                              : af_split_mentions(names[i], s->split);
        const bool file = names[i][0] != '.' && ours && af_file_exists(path);
        free(names[i]);
        names[i] = NULL;
        if (file)
            names[kept++] = path;
        else
            free(path);
    }
    if (st != AF_OK) {
        af_names_free(names, n);
        return st;
    }
    if (!s->split) {                      /* as the Hugging Face loaders: then it is `train` */
        bool rows = false, train = false; /* neither is seen in what is about the data */
        bool named = false;
        for (int i = 0; i < kept; i++) {
            const char *name = af_path_name(names[i]);
            rows |= !is_about(name) && !is_text(name);
            train |= !is_about(name) && !is_held_out(name);
            named |= !is_about(name) && af_split_mentions(name, "train");
        }
        const int data = drop_named(names, kept, rows ? is_about : is_about_no_text);
        kept = train ? drop_named(names, data, named ? is_other_split : is_held_out) : data;
        *held_out = data - kept;
    }
    *files = names;
    *count = kept;
    return AF_OK;
}

/* A folder whose names say nothing of splits is all `train`. */
static af_status list_train(const af_data_source *s, const char *folder, char ***files, int *count,
                            int *held_out, af_error *err)
{
    af_data_source any = *s;
    any.split = NULL;
    af_status st = list_folder(&any, folder, files, count, held_out, err);
    for (int i = 0; st == AF_OK && i < *count; i++) {
        af_records_kind kind;
        if (!is_held_out(af_path_name((*files)[i])) &&
            af_records_kind_of(&kind, (*files)[i], s->ds_type, NULL) == AF_OK)
            continue;
        af_names_free(*files, *count);
        *files = NULL;
        *count = 0;
    }
    return st;
}

/* The files of a folder inside, if it is there; all of them when it is that of the split. */
static af_status list_inner(const af_data_source *s, const char *folder, const char *name,
                            const char *below, char ***files, int *count, int *held_out,
                            af_error *err)
{
    char *inner = af_path_join(folder, name);
    char *path = inner && below ? af_path_join(inner, below) : inner;
    af_data_source of = *s;
    af_status st = AF_OK;
    af_names_free(*files, *count);
    *files = NULL;
    if (strcmp(name, "data") != 0 || below)
        of.split = NULL;
    if (!path)
        st = af_fail_nomem(err, folder, 0);
    else if (af_dir_exists(path))
        st = list_folder(&of, path, files, count, held_out, err);
    if (path != inner)
        free(path);
    free(inner);
    return st;
}

static bool names_split(const char *path)
{
    return af_split_mentions(path, "train") || af_split_mentions(path, "test") ||
           af_split_mentions(path, "validation");
}

/* All data below a folder: that whose path names the split, or all as `train` where none does. */
static af_status list_deep(const af_data_source *s, const char *folder, char ***files, int *count,
                           int *held_out, af_error *err)
{
    const char *split = s->split ? s->split : "train";
    const size_t top = strlen(folder);
    af_file_list all = {0};
    bool named = false;
    int kept = 0;
    const af_status st = af_folder_matches(&all, folder, "**", err);
    if (st != AF_OK) {
        af_file_list_clear(&all);
        return st;
    }
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < all.count; i++) {
            char *path = all.path[i];
            af_records_kind kind;
            const bool data = path && !is_about(af_path_name(path)) &&
                              af_records_kind_of(&kind, path, s->ds_type, NULL) == AF_OK;
            if (pass == 0) {
                named |= data && names_split(path + top);
                continue;
            }
            const bool ours = named ? data && af_split_mentions(path + top, split)
                                    : data && strcmp(split, "train") == 0;
            all.path[i] = NULL;
            *held_out += data && !ours;
            if (ours)
                all.path[kept++] = path;
            else
                free(path);
        }
    *files = all.path;
    *count = kept;
    return AF_OK;
}

static af_status folder_files(const af_data_source *s, const char *folder, const char *run_path,
                              char ***files, int *count, int *held_out, af_error *err)
{
    char at[300];
    af_status st = list_folder(s, folder, files, count, held_out, err);
    if (st == AF_OK && *count == 0 && s->split && strcmp(s->split, "train") == 0) {
        af_names_free(*files, *count);
        st = list_train(s, folder, files, count, held_out, err);
    }
    const char *split = s->split ? s->split : "train";
    if (st == AF_OK && *count == 0) /* a published dataset keeps its files in data/ */
        st = list_inner(s, folder, "data", NULL, files, count, held_out, err);
    if (st == AF_OK && *count == 0) /* or in a folder for each split */
        st = list_inner(s, folder, split, NULL, files, count, held_out, err);
    if (st == AF_OK && *count == 0)
        st = list_inner(s, folder, "data", split, files, count, held_out, err);
    if (st == AF_OK && *count == 0) {
        af_names_free(*files, *count);
        *files = NULL;
        st = list_deep(s, folder, files, count, held_out, err);
    }
    if (st == AF_OK && *count == 0) {
        af_names_free(*files, *count);
        *files = NULL;
        return af_fail(err, AF_EUSAGE, "%s: %s has no files%s%s%s",
                       af_data_source_loc(at, run_path, s->split ? s->split_line : s->line), folder,
                       s->split ? " of split " : "", s->split ? s->split : "",
                       s->split ? " ('split' chooses one)" : "");
    }
    return st;
}

static af_status not_there(const af_data_source *s, const char *path, const char *run_path,
                           af_error *err)
{
    char at[300];
    if (!*path)
        return af_fail(err, AF_EUSAGE, "%s: a dataset has no path",
                       af_data_source_loc(at, run_path, s->line));
    return af_fail(err, AF_EUSAGE,
                   "%s: dataset %s is not there (a file or a folder of this machine is "
                   "wanted)",
                   af_data_source_loc(at, run_path, s->line), path);
}

static bool is_pattern(const char *path) { return strpbrk(path, "*?[") != NULL; }

/* Adds a file, or those that a pattern matches, sorted. */
static af_status add_files(const af_data_source *s, const char *path, const char *run_path,
                           char ***files, int *count, af_error *err)
{
    char at[300];
    glob_t g = {0};
    const bool there = af_file_exists(path);
    const int rc = there || !is_pattern(path) ? GLOB_NOMATCH : glob(path, 0, NULL, &g);
    const uint64_t found = there ? 1 : rc == 0 ? g.gl_pathc : 0;
    af_status st = AF_OK;
    if (rc == GLOB_NOSPACE)
        st = af_fail_nomem(err, path, 0);
    else if (found == 0 && !is_pattern(path))
        st = not_there(s, path, run_path, err);
    else if (found == 0)
        st = af_fail(err, AF_EUSAGE, "%s: no file matches %s",
                     af_data_source_loc(at, run_path, s->line), path);
    for (uint64_t i = 0; i < found && st == AF_OK; i++) {
        const char *name = there ? path : g.gl_pathv[i];
        if (!af_file_exists(name))
            continue; /* a folder */
        char **more = af_realloc(*files, (uint64_t)*count + 1, sizeof *more);
        if (more)
            *files = more;
        char *copy = more ? af_strdup(name) : NULL;
        if (copy)
            more[(*count)++] = copy;
        else
            st = af_fail_nomem(err, path, 0);
    }
    if (rc == 0)
        globfree(&g);
    return st;
}

/* Adds the files below the folder that a pattern with "**" matches. */
static af_status add_below(const af_data_source *s, const char *pattern, const char *run_path,
                           char ***files, int *count, af_error *err)
{
    char at[300];
    af_file_list found = {*files, *count};
    const af_status st = af_folder_matches(&found, s->path, pattern + strspn(pattern, "/"), err);
    const bool none = found.count == *count;
    *files = found.path;
    *count = found.count;
    return st != AF_OK || !none
               ? st
               : af_fail(err, AF_EUSAGE, "%s: no file of %s matches %s",
                         af_data_source_loc(at, run_path, s->line), s->path, pattern);
}

/* data_files: inside the folder `path`, or by themselves. */
static af_status named_files(const af_data_source *s, const char *run_path, char ***files,
                             int *count, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < s->data_file_count && st == AF_OK; i++) {
        const char *name = s->data_files[i];
        const bool inside = s->path && af_dir_exists(s->path);
        if (inside && strstr(name, "**")) {
            st = add_below(s, name, run_path, files, count, err);
            continue;
        }
        char *path = inside ? af_path_join(s->path, name + strspn(name, "/")) : af_strdup(name);
        st = path ? add_files(s, path, run_path, files, count, err) : af_fail_nomem(err, name, 0);
        free(path);
    }
    return st;
}

/* A folder whose files are known by their names: `name` is a folder in it. */
static af_status named_folder(const af_data_source *s, const char *run_path, char ***files,
                              int *count, int *held_out, af_error *err)
{
    char at[300];
    char *folder = s->name ? af_path_join(s->path, s->name) : af_strdup(s->path);
    if (!folder)
        return af_fail_nomem(err, s->path, 0);
    const bool usual = s->name && strcmp(s->name, "default") == 0;
    const char *here = usual && !af_dir_exists(folder) ? s->path : folder;
    const af_status st = af_dir_exists(here)
                             ? folder_files(s, here, run_path, files, count, held_out, err)
                             : af_fail(err, AF_EUSAGE,
                                       "%s: dataset %s has no folder '%s' ('name', 'config' "
                                       "or 'dataset_config' chooses one)",
                                       af_data_source_loc(at, run_path, s->line), s->path, s->name);
    free(folder);
    return st;
}

/* A folder that says itself what is in it, or one whose files are known by their names. */
static af_status any_folder(const af_data_source *s, const char *run_path, char ***files,
                            int *count, int *held_out, af_error *err)
{
    af_file_list found = {0};
    bool is_layout = false;
    char *data_dir = NULL;
    af_status st = af_data_layout_files(s, s->path, run_path, &found, &is_layout, &data_dir, err);
    if (st != AF_OK) {
        af_file_list_clear(&found);
    } else if (is_layout) {
        *files = found.path;
        *count = found.count;
    } else if (data_dir) {
        st = folder_files(s, data_dir, run_path, files, count, held_out, err);
    } else {
        st = named_folder(s, run_path, files, count, held_out, err);
    }
    free(data_dir);
    return st;
}

/* ORG/NAME of the hub: what is there comes first, and the name of a file is not one. */
static bool is_of_hub(const char *path)
{
    af_records_kind kind;
    return path && !af_file_exists(path) && !af_dir_exists(path) && af_hub_is_name(path) &&
           af_records_kind_of(&kind, path, NULL, NULL) != AF_OK;
}

/* What of such a dataset is needed: data_files, or what its card says of the config and the split.
 */
static af_status list_wanted(af_file_list *wanted, const af_data_source *s, const char *run_path,
                             af_error *err)
{
    static const char *const card[] = {"README.md"};
    af_status st = AF_OK;
    char *folder = NULL;
    for (int i = 0; i < s->data_file_count; i++)
        AF_TRY(af_file_list_add(wanted, af_strdup(s->data_files[i] + strspn(s->data_files[i], "/")),
                                err));
    if (s->data_file_count)
        goto done;
    st = af_hub_snapshot(&folder, AF_HUB_DATASET, s->path, s->revision, card, 1, err);
    if (st != AF_OK && strcmp(err->subject, AF_HUB_NO_MATCH) == 0)
        st = AF_OK; /* no card: all files */
    AF_TRY(st);
    if (folder)
        AF_TRY(af_data_layout_wants(s, folder, run_path, wanted, err));
done:
    free(folder);
    return st;
}

static af_status hub_folder(char **folder, const af_data_source *s, const char *run_path,
                            af_error *err)
{
    char at[300];
    af_file_list wanted = {0};
    af_status st = list_wanted(&wanted, s, run_path, err);
    if (st == AF_OK && wanted.count > 0) /* with it the folder says what is in it */
        st = af_file_list_add(&wanted, af_strdup("README.md"), err);
    if (st == AF_OK)
        st = af_hub_snapshot(folder, AF_HUB_DATASET, s->path, s->revision,
                             (const char *const *)wanted.path, wanted.count, err);
    af_file_list_clear(&wanted);
    return st == AF_OK ? AF_OK
                       : af_fail_prefix(st, err, "%s", af_data_source_loc(at, run_path, s->line));
}

af_status af_data_source_files(const af_data_source *s, const char *run_path, char ***files,
                               int *count, int *held_out, af_error *err)
{
    char **found = NULL, *folder = NULL;
    int n = 0;
    char at[300];
    af_status st = AF_OK;
    af_data_source of_hub;
    *held_out = 0;
    if (is_of_hub(s->path)) {
        af_error unread;
        st = hub_folder(&folder, s, run_path, af_error_or(err, &unread));
        of_hub = *s;
        of_hub.path = folder;
        s = &of_hub;
    }
    const bool other = s->split && strcmp(s->split, "train") != 0; /* a file is all "train" */
    if (st != AF_OK)
        return st;
    if (s->data_file_count)
        st = named_files(s, run_path, &found, &n, err);
    else if (af_dir_exists(s->path))
        st = any_folder(s, run_path, &found, &n, held_out, err);
    else if (other && af_file_exists(s->path))
        st = af_fail(err, AF_EUSAGE, "%s: 'split: %s' has no effect: %s is a file, not a folder",
                     af_data_source_loc(at, run_path, s->split_line), s->split, s->path);
    else
        st = add_files(s, s->path, run_path, &found, &n, err);
    free(folder);
    if (st != AF_OK) {
        af_names_free(found, n);
        return st;
    }
    *files = found;
    *count = n;
    return AF_OK;
}
