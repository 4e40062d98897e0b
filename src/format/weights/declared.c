/* declared.c - the tensors declared to a writer, and where the next bytes belong. */
#include "format/weights/declared.h"

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
