/* declared.c - the tensors declared to a writer, and where the next bytes belong. */
#include "format/weights/declared.h"

#include "base/cache_file.h"
#include "base/file.h"
#include "base/word.h"

void af_declared_clear(af_declared_list *l)
{
    free(l->item);
    af_arena_clear(&l->arena);
    *l = (af_declared_list){0};
}

af_status af_declared_add(af_declared_list *l, const char *name, af_dtype dtype, const int64_t *dim,
                          int ndim, af_error *err)
{
    if (l->count == l->cap) {
        const int cap = l->cap ? l->cap * 2 : 64;
        af_declared *more = af_realloc(l->item, (uint64_t)cap, sizeof *more);
        if (!more)
            return af_fail_nomem(err, "the tensor list", (uint64_t)cap * sizeof *more);
        l->item = more;
        l->cap = cap;
    }
    af_declared d = {.name = af_arena_strdup(&l->arena, name), .dtype = dtype, .ndim = ndim};
    if (!d.name)
        return af_fail_nomem(err, "a tensor name", strlen(name));
    const af_dtype_info *info = af_dtype_get(dtype);
    const bool by_row = info->gguf >= 0; /* GGUF has whole blocks in each row */
    uint64_t rows = 1, cols = 1;
    for (int i = 0; i < ndim; i++) {
        uint64_t *part = by_row && i < ndim - 1 ? &rows : &cols;
        if (dim[i] < 0 || !af_mul_ok(*part, (uint64_t)dim[i], part))
            return af_fail(err, AF_EUSAGE, "tensor '%s': dimension %d is %" PRId64, name, i,
                           dim[i]);
        d.dim[i] = dim[i];
    }
    if (by_row && cols % (uint64_t)info->elems)
        return af_fail(err, AF_EUSAGE,
                       "tensor '%s': a row of %" PRIu64 " elements is not a multiple of %s's %d",
                       name, cols, info->name, info->elems);
    if (!af_dtype_bytes(dtype, cols, &d.bytes) || !af_mul_ok(d.bytes, rows, &d.bytes))
        return af_fail(err, AF_EUSAGE, "tensor '%s' has too many elements", name);
    l->item[l->count++] = d;
    return AF_OK;
}

static void skip_complete(af_declared_list *l)
{
    while (l->at < l->count && (l->item[l->at].apart || l->at_bytes == l->item[l->at].bytes)) {
        l->at++;
        l->at_bytes = 0;
    }
}

af_status af_declared_next(af_declared_list *l, const char *path, uint64_t n, const af_declared **d,
                           uint64_t *from, uint64_t *take, af_error *err)
{
    skip_complete(l);
    if (l->at == l->count)
        return af_fail(err, AF_EUSAGE, "%s: %" PRIu64 " bytes more than the declared tensors", path,
                       n);
    *d = &l->item[l->at];
    *from = l->at_bytes;
    *take = AF_MIN(n, (*d)->bytes - l->at_bytes);
    l->at_bytes += *take;
    return AF_OK;
}

af_status af_declared_complete(af_declared_list *l, const char *path, af_error *err)
{
    skip_complete(l);
    if (l->at == l->count)
        return AF_OK;
    return af_fail(err, AF_EUSAGE, "%s: tensor '%s' has %" PRIu64 " of its %" PRIu64 " bytes", path,
                   l->item[l->at].name, l->at_bytes, l->item[l->at].bytes);
}

/* The folder of a file as users know it: outputs are made in a temporary one inside it. */
static void find_folder(char *out, size_t size, const char *path)
{
    snprintf(out, size, "%s", path);
    for (int up = 0; up < 2; up++) {
        const size_t at = (size_t)(af_path_name(out) - out);
        if (up > 0 && (out[at] != '.' || !af_ends_with(out, ".tmp")))
            return;
        if (at == 0)
            snprintf(out, size, ".");
        else
            out[AF_MAX(at - 1, 1)] = '\0';
    }
}

af_status af_declared_check_room(const af_declared_list *l, const char *path, af_error *err)
{
    char folder[4096], what[300];
    uint64_t bytes = 0;
    for (int i = 0; i < l->count; i++)
        bytes += l->item[i].bytes;
    find_folder(folder, sizeof folder, path);
    snprintf(what, sizeof what, "'%s'", af_path_name(path));
    return af_disk_check(folder, what, bytes, err);
}
