/* publish.c - see publish.h. */
#define _GNU_SOURCE
#include "base/publish.h"

#include "afinar/output.h"
#include "base/buf.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define README "README.md"

static af_status fail_errno(af_error *err, const char *verb, const char *path)
{
    const int e = errno;
    if (e == ENOMEM)
        af_memory_note();
    return af_fail(err, e == ENOMEM ? AF_ENOMEM : AF_EIO, "cannot %s '%s': %s", verb, path,
                   strerror(e));
}

/* ---- what is there ---- */

/* Whether `inner` is `outer` or lies in it; both exist. */
static bool lies_in(const char *inner, const char *outer)
{
    char *a = realpath(inner, NULL), *b = realpath(outer, NULL);
    if ((!a || !b) && errno == ENOMEM)
        af_memory_note(); /* af_output_check looks */
    const size_t n = b ? strlen(b) : 0;
    const bool yes = a && b && strncmp(a, b, n) == 0 && (a[n] == '\0' || a[n] == '/');
    free(a);
    free(b);
    return yes;
}

af_status af_output_check(const char *path, const char *const *inputs, int n, af_error *err)
{
    for (int i = 0; i < n; i++)
        if (inputs[i] && af_path_same(path, inputs[i]))
            return af_fail(err, AF_EUSAGE, "the output '%s' is one of the inputs", path);
    for (int i = 0; i < n; i++)
        if (inputs[i] && af_dir_exists(path) && lies_in(inputs[i], path))
            return af_fail(err, AF_EUSAGE, "the input '%s' lies in the output folder '%s'",
                           inputs[i], path);
    return af_memory_check(err);
}

af_status af_output_check_path(const char *path, af_error *err)
{
    struct stat s;
    if (strspn(path, "/") == strlen(path))
        return af_fail(err, AF_EUSAGE, "'%s' cannot be the output folder", path);
    if (lstat(path, &s) != 0)
        return path[0] == '~' && (path[1] == '/' || !path[1])
                   ? af_fail(err, AF_EUSAGE,
                             "the output '%s' begins with '~', which only a shell replaces: write "
                             "the whole path",
                             path)
                   : AF_OK;
    if (S_ISLNK(s.st_mode) && stat(path, &s) != 0)
        return af_fail(err, AF_EUSAGE, "the output '%s' is a link to nothing", path);
    if (!S_ISDIR(s.st_mode))
        return af_fail(err, AF_EUSAGE, "the output '%s' is a file; give a folder", path);
    return AF_OK;
}

static void sweep_inside(const char *dir)
{
    char *name = af_path_join(dir, AF_TEMP_NAME);
    if (name)
        af_path_sweep(name);
    free(name);
}

static bool counts(const char *name)
{
    static const char temp[] = "." AF_TEMP_NAME ".";
    static const char list[] = "." AF_WRITTEN_NAME "."; /* a manifest that was being written */
    return strcmp(name, AF_WRITTEN_NAME) != 0 && strncmp(name, temp, sizeof temp - 1) != 0 &&
           strncmp(name, list, sizeof list - 1) != 0;
}

af_status af_output_content(char **what, const char *dir, af_error *err)
{
    char **names = NULL;
    int n = 0, found = 0, first = 0;
    af_buf b = {0};
    *what = NULL;
    sweep_inside(dir);
    const af_status st = af_dir_list(&names, &n, dir, err);
    if (st != AF_OK)
        return st;
    for (int i = n - 1; i >= 0; i--)
        if (counts(names[i])) {
            first = i;
            found++;
        }
    if (found) {
        af_buf_printf(&b, "'%s'", names[first]);
        if (found > 1)
            af_buf_printf(&b, " and %d more", found - 1);
        *what = af_buf_take(&b);
    }
    af_names_free(names, n);
    return found && !*what ? af_fail_nomem(err, "a message", 64) : AF_OK;
}

static af_status refuse_state(af_written_state is, const char *dir, const char *name, af_error *err)
{
    const char *slash = dir[0] && dir[strlen(dir) - 1] == '/' ? "" : "/";
    if (is == AF_WRITTEN_CHANGED)
        return af_fail(err, AF_EUSAGE,
                       "'%s%s%s' has been changed since afinar wrote it and is not replaced: move "
                       "it away, or choose another output",
                       dir, slash, name);
    if (is == AF_WRITTEN_UNREAD)
        return af_fail(err, AF_EIO,
                       "'%s%s%s' cannot be read to see whether it may be replaced: move it away, "
                       "or choose another output",
                       dir, slash, name);
    return af_fail(err, AF_EUSAGE,
                   "'%s%s%s' was not written by afinar and is not replaced: move it away, or "
                   "choose another output",
                   dir, slash, name);
}

/* A model card is a text for people: somebody else's, or one that was edited, stays. */
static bool is_kept(const char *name) { return strcmp(name, README) == 0; }

/* With force: everything of an earlier output must be as it was written, and nothing else may have
 * a name that is needed. */
static af_status check_replace(const af_output *o, const char *const *names, af_error *err)
{
    af_status st = AF_OK;
    af_written w = {0};
    AF_TRY(af_written_read(&w, o->dir, err));
    for (int i = 0; o->whole && i < w.count && st == AF_OK; i++) {
        const char *name = w.line[i].name;
        if (strcmp(w.line[i].group, o->group) != 0 || is_kept(name))
            continue;
        const af_written_state is = af_written_check(&w, o->group, o->dir, name);
        if (is != AF_WRITTEN_ABSENT && is != AF_WRITTEN_OWN)
            st = refuse_state(is, o->dir, name, err);
    }
    for (; names && *names && st == AF_OK; names++) {
        const af_written_state is = af_written_check(&w, o->group, o->dir, *names);
        if (is != AF_WRITTEN_ABSENT && is != AF_WRITTEN_OWN && !is_kept(*names))
            st = refuse_state(is, o->dir, *names, err);
    }
done:
    af_written_clear(&w);
    return st;
}

/* ---- opening ---- */

static af_status make_temp(af_output *o, const char *for_name, af_error *err)
{
    return for_name ? af_temp_dir_make(&o->temp, &o->listed, for_name, err)
                    : af_fail_nomem(err, "a path", strlen(o->path));
}

static af_status set_path(af_output *o, const char *path, af_error *err)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    if (len == 0)
        return af_fail(err, AF_EUSAGE, "the output has no name");
    o->path = af_strndup(path, len);
    return o->path ? AF_OK : af_fail_nomem(err, "a path", len);
}

static af_status refuse_folder(const char *path, const char *what, af_error *err)
{
    return af_fail(err, AF_EUSAGE,
                   "the output folder '%s' exists and is not empty (it has %s): choose another "
                   "name, or replace what afinar wrote there with --force",
                   path, what);
}

af_status af_output_open_folder(af_output *o, const char *path, const char *const *names,
                                bool force, af_error *err)
{
    af_status st = AF_OK;
    char *what = NULL, *inside = NULL;
    *o = (af_output){.group = AF_OUTPUT_MODEL, .force = force, .whole = true};
    AF_TRY(set_path(o, path, err));
    AF_TRY(af_output_check_path(o->path, err));
    o->dir = af_strdup(o->path);
    if (!o->dir)
        AF_TRY(af_fail_nomem(err, "a path", strlen(path)));
    if (af_dir_exists(o->dir)) {
        AF_TRY(af_output_content(&what, o->dir, err));
        if (what && !force)
            AF_TRY(refuse_folder(o->path, what, err));
        AF_TRY(check_replace(o, names, err));
        inside = af_path_join(o->dir, AF_TEMP_NAME); /* it may be a mount point, or a link */
        AF_TRY(make_temp(o, inside, err));
    } else {
        AF_TRY(make_temp(o, o->path, err));
    }
done:
    free(what);
    free(inside);
    if (st != AF_OK)
        af_output_abandon(o);
    return st;
}

static af_status refuse_file(const af_output *o, const char *name, af_error *err)
{
    const char *slash = o->dir[strlen(o->dir) - 1] == '/' ? "" : "/";
    return af_fail(err, AF_EUSAGE,
                   "the output '%s%s%s' exists: choose another name, or replace it with --force "
                   "(when afinar wrote it)",
                   strcmp(o->dir, ".") == 0 ? "" : o->dir, strcmp(o->dir, ".") == 0 ? "" : slash,
                   name);
}

af_status af_output_open_file(af_output *o, const char *path, const char *second, bool force,
                              af_error *err)
{
    af_status st = AF_OK;
    const af_written none = {0};
    *o = (af_output){.group = AF_OUTPUT_FILE, .force = force};
    AF_TRY(set_path(o, path, err));
    const char *names[] = {af_path_name(o->path), second, NULL};
    if (strcmp(path, "-") == 0)
        AF_TRY(af_fail(err, AF_EUSAGE,
                       "the output cannot go to stdout ('-'): give the name of a file"));
    if (af_dir_exists(path) || (*path && path[strlen(path) - 1] == '/'))
        AF_TRY(af_fail(err, AF_EUSAGE, "'%s' is a folder, a file is to be written", path));
    o->dir = af_path_parent(o->path);
    if (!o->dir)
        AF_TRY(af_fail_nomem(err, "a path", strlen(path)));
    if (access(o->dir, F_OK) != 0)
        AF_TRY(fail_errno(err, "create", path));
    for (int i = 0; names[i] && !force; i++)
        if (af_written_check(&none, o->group, o->dir, names[i]) != AF_WRITTEN_ABSENT)
            AF_TRY(refuse_file(o, names[i], err));
    AF_TRY(check_replace(o, names, err));
    AF_TRY(make_temp(o, o->path, err));
done:
    if (st != AF_OK)
        af_output_abandon(o);
    return st;
}

char *af_output_file(const af_output *o) { return af_path_join(o->temp, af_path_name(o->path)); }

void af_output_abandon(af_output *o)
{
    af_temp_dir_remove(o->temp, o->listed);
    free(o->dir);
    free(o->path);
    *o = (af_output){0};
}

/* ---- putting in place ---- */

/* A file of the new output. */
typedef struct new_file {
    char *name;               /* relative: FILE or FOLDER/FILE */
    char *temp, *place, *sub; /* where it is, where it goes, and the folder of that */
    bool replaces, done;
} new_file;

typedef struct swap {
    const af_output *o;
    new_file *file;
    int count, cap;
    af_written before, both, after;
} swap;

static void file_clear(new_file *f)
{
    free(f->name);
    free(f->temp);
    free(f->place);
    free(f->sub);
}

static void swap_clear(swap *s)
{
    for (int i = 0; i < s->count; i++)
        file_clear(&s->file[i]);
    free(s->file);
    af_written_clear(&s->before);
    af_written_clear(&s->both);
    af_written_clear(&s->after);
}

static af_status add_file(swap *s, char *name, af_error *err)
{
    if (name && s->count == s->cap) {
        const int cap = s->cap ? s->cap * 2 : 16;
        new_file *more = af_realloc(s->file, (uint64_t)cap, sizeof *more);
        if (more) {
            s->file = more;
            s->cap = cap;
        }
    }
    if (!name || s->count == s->cap) {
        free(name);
        return af_fail_nomem(err, "a list of files", 64);
    }
    s->file[s->count++] = (new_file){.name = name};
    return AF_OK;
}

/* Everything in the temporary folder; `sub` is "" or a folder in it. */
static af_status list_new(swap *s, const char *sub, af_error *err)
{
    af_status st = AF_OK;
    char **names = NULL, *dir = af_path_join(s->o->temp, sub);
    int n = 0;
    if (!dir)
        return af_fail_nomem(err, "a path", strlen(sub));
    AF_TRY(af_dir_list(&names, &n, dir, err));
    for (int i = 0; i < n && st == AF_OK; i++) {
        char *name = *sub ? af_path_join(sub, names[i]) : af_strdup(names[i]);
        char *path = name ? af_path_join(s->o->temp, name) : NULL;
        const bool folder = path && af_dir_exists(path);
        free(path);
        if (folder) {
            st = list_new(s, name, err);
            free(name);
        } else {
            st = add_file(s, name, err);
        }
    }
done:
    af_names_free(names, n);
    free(dir);
    return st;
}

/* The lines of the manifest before, during and after. */
static af_status list_lines(swap *s, af_error *err)
{
    af_status st = AF_OK;
    const af_output *o = s->o;
    AF_TRY(af_written_read(&s->before, o->dir, err));
    AF_TRY(af_written_join(&s->after, &s->before, NULL, err));
    if (o->whole)
        af_written_drop(&s->after, o->group, NULL);
    for (int i = 0; i < s->count; i++) {
        char *path = af_path_join(o->temp, s->file[i].name);
        af_written_drop(&s->after, o->group, s->file[i].name);
        st = path ? af_written_add(&s->after, o->group, s->file[i].name, path, err)
                  : af_fail_nomem(err, "a path", 64);
        free(path);
        if (st != AF_OK)
            goto done;
    }
    AF_TRY(af_written_join(&s->both, &s->before, NULL, err));
    st = af_written_join(&s->both, &s->after, o->group, err);
done:
    return st;
}

/* What must not be replaced; a README.md that is not ours leaves the list instead. */
static af_status check_names(swap *s, af_error *err)
{
    int kept = 0;
    af_status st = AF_OK;
    af_written w = {0};
    AF_TRY(af_written_read(&w, s->o->dir, err));
    for (int i = 0; i < s->count; i++) {
        const af_written_state is = af_written_check(&w, s->o->group, s->o->dir, s->file[i].name);
        const bool ours = is == AF_WRITTEN_ABSENT || is == AF_WRITTEN_OWN;
        if (st == AF_OK && !ours && (is == AF_WRITTEN_UNREAD || !is_kept(s->file[i].name)))
            st = refuse_state(is, s->o->dir, s->file[i].name, err);
        if (st == AF_OK && is == AF_WRITTEN_OWN && !s->o->force)
            st = refuse_file(s->o, s->file[i].name, err); /* it appeared in the meantime */
        if (!ours && is_kept(s->file[i].name)) {
            file_clear(&s->file[i]);
            continue;
        }
        s->file[i].replaces = is == AF_WRITTEN_OWN;
        s->file[kept++] = s->file[i];
    }
    s->count = kept;
done:
    af_written_clear(&w);
    return st;
}

/* All paths, before anything is moved: putting back needs no memory. */
static af_status make_paths(swap *s, af_error *err)
{
    for (int i = 0; i < s->count; i++) {
        new_file *f = &s->file[i];
        f->temp = af_path_join(s->o->temp, f->name);
        f->place = af_path_join(s->o->dir, f->name);
        f->sub = f->place ? af_path_parent(f->place) : NULL;
        if (!f->temp || !f->sub)
            return af_fail_nomem(err, "a path", strlen(f->name));
    }
    return AF_OK;
}

/* Moves a file into its place, or back. A file that it replaces is exchanged with it, so that it
 * can be put back; where a file system cannot exchange, it is renamed over. */
static af_status move_file(const swap *s, new_file *f, bool back, af_error *err)
{
    af_status st = AF_OK;
    const char *from = back ? f->place : f->temp, *to = back ? f->temp : f->place;
    if (!back)
        AF_TRY(af_dir_make(f->sub, err));
    if (!f->replaces) /* what has appeared there meanwhile stays */
        st = af_path_move(from, to, err);
    else if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) != 0) {
        if (errno != EINVAL && errno != ENOSYS)
            st = fail_errno(err, "replace", to);
        else if (rename(from, to) != 0)
            st = fail_errno(err, "rename to", to);
    }
    if (st == AF_OK)
        f->done = !back;
    if (st == AF_OK && !back && strcmp(f->sub, s->o->dir) != 0)
        st = af_dir_sync(f->sub, err);
done:
    return st;
}

static void put_back(swap *s)
{
    bool all = true;
    for (int i = s->count - 1; i >= 0; i--)
        if (s->file[i].done && move_file(s, &s->file[i], true, NULL) != AF_OK)
            all = false; /* the manifest knows it with both contents, and stays */
    if (all)
        (void)!af_written_write(&s->before, s->o->dir, NULL);
}

static bool is_new(const swap *s, const char *name)
{
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->file[i].name, name) == 0)
            return true;
    return false;
}

/* Files of the earlier output that the new one does not have. */
static af_status remove_rest(const swap *s, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; s->o->whole && i < s->before.count && st == AF_OK; i++) {
        const af_written_line *l = &s->before.line[i];
        if (strcmp(l->group, s->o->group) != 0 || is_new(s, l->name) ||
            af_written_check(&s->before, l->group, s->o->dir, l->name) != AF_WRITTEN_OWN)
            continue;
        char *path = af_path_join(s->o->dir, l->name), *sub = path ? af_path_parent(path) : NULL;
        st = sub ? af_path_remove(path, err) : af_fail_nomem(err, "a path", strlen(l->name));
        if (sub && strchr(l->name, '/'))
            (void)!rmdir(sub); /* when it is empty */
        free(path);
        free(sub);
    }
    return st;
}

static af_status swap_files(swap *s, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(check_names(s, err));
    AF_TRY(list_lines(s, err));
    AF_TRY(make_paths(s, err));
    AF_TRY(af_written_write(&s->both, s->o->dir, err));
    for (int i = 0; i < s->count && st == AF_OK; i++)
        st = move_file(s, &s->file[i], false, err);
    if (st == AF_OK)
        st = af_dir_sync(s->o->dir, err);
    if (st != AF_OK) {
        put_back(s);
        goto done;
    }
    AF_TRY(remove_rest(s, err));
    st = af_written_write(&s->after, s->o->dir, err);
done:
    return st;
}

/* A folder that was not there: one rename. It fails when another one has appeared meanwhile. */
static af_status rename_folder(swap *s, af_error *err)
{
    af_status st = AF_OK;
    char *up = NULL;
    AF_TRY(list_lines(s, err));
    AF_TRY(af_written_write(&s->after, s->o->temp, err));
    AF_TRY(af_dir_sync(s->o->temp, err));
    up = af_path_parent(s->o->dir);
    if (!up)
        AF_TRY(af_fail_nomem(err, "a path", strlen(s->o->dir)));
    if (rename(s->o->temp, s->o->dir) != 0)
        AF_TRY(fail_errno(err, "rename to", s->o->dir));
    st = af_dir_sync(up, err);
    if (st != AF_OK && rename(s->o->dir, s->o->temp) != 0)
        af_fail_prefix(st, err, "'%s' is complete, but may not survive a power failure", s->o->dir);
done:
    free(up);
    return st;
}

af_status af_output_commit(af_output *o, af_error *err)
{
    swap s = {.o = o};
    af_temps_enter();                    /* a signal comes before all of it, or after */
    af_status st = af_memory_check(err); /* nothing that may lack something is put in place */
    if (st == AF_OK)
        st = list_new(&s, "", err);
    if (st == AF_OK)
        st = af_dir_exists(o->dir) ? swap_files(&s, err) : rename_folder(&s, err);
    swap_clear(&s);
    if (st == AF_OK)
        af_output_abandon(o); /* what is left is the old content */
    af_temps_leave();
    return st;
}

af_status af_output_check_file(const char *path, bool force, af_error *err)
{
    AF_NEED(err, path);
    af_output o = {0};
    const af_status st = af_output_open_file(&o, path, NULL, force, err);
    af_output_abandon(&o);
    return st;
}

af_status af_output_write(const char *path, const void *bytes, uint64_t n, bool force,
                          af_error *err)
{
    AF_NEED(err, path, bytes || !n);
    af_status st = AF_OK;
    af_output o = {0};
    char *file = NULL;
    AF_TRY(af_output_open_file(&o, path, NULL, force, err));
    file = af_output_file(&o);
    if (!file)
        AF_TRY(af_fail_nomem(err, "a path", strlen(path)));
    AF_TRY(af_file_write(file, n ? bytes : "", n, err));
    st = af_output_commit(&o, err);
done:
    af_output_abandon(&o);
    free(file);
    return st;
}
