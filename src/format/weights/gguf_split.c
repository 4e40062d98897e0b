/* gguf_split.c - a GGUF model in several files, as llama.cpp's gguf-split cuts it.
 *
 * Every file says which part of how many it is (split.no, split.count) and how many tensors all of
 * them have (split.tensors.count); the first one has the metadata. They lie in one folder and their
 * names differ in the number alone. */
#define _GNU_SOURCE
#include "format/weights/gguf.h"

#include "base/word.h"
#include "format/weights/part_name.h"

bool af_gguf_is_file(const char *path)
{
    af_map m = {0};
    if (af_ends_with(path, ".gguf"))
        return true;
    if (!af_file_exists(path) || af_map_open(&m, path, NULL) != AF_OK)
        return false;
    const bool yes = m.size >= 4 && memcmp(m.data, "GGUF", 4) == 0;
    af_map_close(&m);
    return yes;
}

bool af_gguf_names_model(const char *path)
{
    return af_ends_with_any_case(path, strlen(path), ".gguf") && !strcasestr(path, "mmproj") &&
           !strcasestr(path, "imatrix");
}

static af_status search(char **one, char **other, const char *dir, bool inner, af_error *err)
{
    char **names = NULL;
    int n = 0;
    af_status st = AF_OK;
    if (af_dir_list(&names, &n, dir, NULL) != AF_OK)
        return AF_OK;
    for (int i = 0; i < n && !inner; i++)
        if (af_ends_with(names[i], ".safetensors"))
            goto done;
    for (int i = 0; i < n && st == AF_OK; i++) {
        char *path = af_path_join(dir, names[i]);
        if (!path)
            st = af_fail_nomem(err, "a path", strlen(dir));
        else if (!inner && af_dir_exists(path)) /* repositories have one per type */
            st = search(one, other, path, true, err);
        else if (af_gguf_names_model(names[i]) && af_file_exists(path) &&
                 !(*one && af_part_name_same(*one, path, ".gguf"))) {
            char **to = *one ? other : one;
            free(*to);
            *to = path;
            continue;
        }
        free(path);
    }
done:
    af_names_free(names, n);
    return st;
}

af_status af_gguf_search(char **one, char **other, const char *dir, af_error *err)
{
    *one = *other = NULL;
    const af_status st = search(one, other, dir, false, err);
    if (st != AF_OK) {
        free(*one);
        free(*other);
        *one = *other = NULL;
    }
    return st;
}

/* What the file says of itself must be what its name says. */
static af_status check_part(const af_gguf *g, const af_part_name *p, af_error *err)
{
    const int64_t no = af_gguf_int(g, "split.no", 0), count = af_gguf_int(g, "split.count", 1);
    if (no == p->no && count == p->count)
        return AF_OK;
    return af_fail(err, AF_EFORMAT,
                   "%s: the name says part %d of %d, but split.no, which begins at 0, is %" PRId64
                   " and split.count %" PRId64,
                   af_gguf_path(g, 0), p->no + 1, p->count, no, count);
}

static af_status open_part(af_gguf **out, const char *path, af_part_name p, af_error *err)
{
    af_status st = AF_OK;
    af_gguf *g = NULL;
    char *file = NULL;
    AF_TRY(af_part_name_find(&file, path, p, ".gguf", err));
    AF_TRY(af_gguf_open_file(&g, file, err));
    AF_TRY(check_part(g, &p, err));
    *out = g;
    g = NULL;
done:
    af_gguf_close(g);
    free(file);
    return st;
}

/* Opens all files of which `path` is one; takes nothing over. */
static af_status open_all(af_gguf **out, const char *path, af_part_name p, af_error *err)
{
    af_status st = AF_OK;
    af_gguf *first = NULL, **rest = af_calloc((uint64_t)p.count, sizeof *rest);
    if (!rest)
        return af_fail_nomem(err, "the file list", (uint64_t)p.count * sizeof *rest);
    p.no = 0;
    st = open_part(&first, path, p, err);
    int n = 0;
    while (st == AF_OK && n < p.count - 1) {
        p.no = n + 1;
        st = open_part(&rest[n], path, p, err);
        n += st == AF_OK;
    }
    if (st != AF_OK) {
        while (n > 0)
            af_gguf_close(rest[--n]);
        free(rest);
        goto done;
    }
    AF_TRY(af_gguf_join(first, rest, n, err));
    const int64_t total = af_gguf_int(first, "split.tensors.count", -1);
    if (total != af_gguf_count(first))
        AF_TRY(af_fail(err, AF_EFORMAT,
                       "%s: the %d files have %d tensors, but split.tensors.count is %" PRId64,
                       af_gguf_path(first, 0), p.count, af_gguf_count(first), total));
    *out = first;
    first = NULL;
done:
    af_gguf_close(first);
    return st;
}

af_status af_gguf_open(af_gguf **out, const char *path, af_error *err)
{
    af_gguf *g;
    af_part_name p;
    af_status st = af_gguf_open_file(&g, path, err);
    if (st != AF_OK)
        return st;
    const int64_t no = af_gguf_int(g, "split.no", 0), count = af_gguf_int(g, "split.count", 1);
    /* a tool that joined the files may have left the keys in */
    const bool whole = no == 0 && af_gguf_int(g, "split.tensors.count", -1) == af_gguf_count(g);
    if (count <= 1 || whole) {
        *out = g;
        return AF_OK;
    }
    if (!af_part_name_parse(&p, path, ".gguf"))
        st = af_fail(err, AF_EFORMAT,
                     "%s: one of the %" PRId64 " files of a model (split.count), but its name does "
                     "not end as '-00001-of-00003.gguf' does: the others cannot be found",
                     path, count);
    else if ((st = check_part(g, &p, err)) == AF_OK)
        st = open_all(out, path, p, err);
    af_gguf_close(g);
    return st;
}
