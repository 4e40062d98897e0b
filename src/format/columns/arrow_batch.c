/* arrow_batch.c - see arrow_batch.h. */
#include "format/columns/arrow_batch.h"

#include "format/columns/unpack.h"

typedef struct loader {
    af_arrow_batch *b;
    af_arrow_message *m;
    af_flat_vector nodes, buffers, variadic;
    uint64_t node, buffer, view; /* the next ones */
    bool packed;
    af_codec codec;
    const char *name;
    af_error *err;
} loader;

static af_status fail(const loader *l, const af_arrow_field *f, const char *why)
{
    char path[AF_ARROW_PATH];
    return af_fail(l->err, AF_EFORMAT, "%s: column %s: %s", l->name, af_arrow_path(f, path), why);
}

/* The bytes of a packed buffer: their number, then the data; -1 = as they are. */
static af_status unpack(const loader *l, const af_arrow_field *f, af_arrow_bytes *out)
{
    af_buf to = {0};
    if (out->len == 0)
        return AF_OK;
    if (out->len < 8)
        return fail(l, f, "a packed buffer without its length");
    int64_t full;
    memcpy(&full, out->at, 8);
    out->at += 8;
    out->len -= 8;
    if (full == -1)
        return AF_OK;
    if (full < 0)
        return fail(l, f, "a packed buffer of negative length");
    const char *why = af_unpack(&to, l->codec, out->at, out->len, (uint64_t)full);
    uint8_t *copy = why ? NULL : af_arena_take(&l->b->mem, AF_MAX((uint64_t)full, 1));
    if (copy && full)
        memcpy(copy, to.data, (size_t)full);
    af_buf_clear(&to);
    if (why)
        return fail(l, f, why);
    if (!copy)
        return af_fail_nomem(l->err, l->name, (uint64_t)full);
    *out = (af_arrow_bytes){copy, (uint64_t)full};
    return AF_OK;
}

/* The next buffer of the batch. */
static af_status take(loader *l, const af_arrow_field *f, bool left_out, af_arrow_bytes *out)
{
    if (l->buffer >= l->buffers.count)
        return fail(l, f, "the record batch has too few buffers");
    const uint64_t at = l->buffers.at + 16 * l->buffer++;
    const int64_t offset = af_flat_at(&l->m->flat, at, 8), len = af_flat_at(&l->m->flat, at + 8, 8);
    if (offset < 0 || len < 0 || (uint64_t)offset > l->m->body_size ||
        (uint64_t)len > l->m->body_size - (uint64_t)offset)
        return fail(l, f, "a buffer is not inside the record batch");
    *out = (af_arrow_bytes){l->m->body + offset, (uint64_t)len};
    return l->packed && !left_out ? unpack(l, f, out) : AF_OK;
}

/* Are there n values of `width` bytes, or bits? */
static bool enough(const af_arrow_bytes *b, int64_t n, int width)
{
    uint64_t need;
    if (width == 0)
        return b->len >= ((uint64_t)n + 7) / 8;
    return af_mul_ok((uint64_t)n, (uint64_t)width, &need) && b->len >= need;
}

static af_status take_views(loader *l, af_arrow_array *a, bool left_out)
{
    af_status st = AF_OK;
    if (l->view >= l->variadic.count)
        return fail(l, a->field, "the number of its view buffers is not given");
    a->extras = af_flat_at(&l->m->flat, l->variadic.at + 8 * l->view++, 8);
    if (a->extras < 0 || (uint64_t)a->extras > l->buffers.count)
        return fail(l, a->field, "a wrong number of view buffers");
    a->extra = af_arena_take(&l->b->mem, (uint64_t)AF_MAX(a->extras, 1) * sizeof *a->extra);
    if (!a->extra)
        return af_fail_nomem(l->err, l->name, 0);
    for (int64_t i = 0; i < a->extras; i++)
        AF_TRY(take(l, a->field, left_out, &a->extra[i]));
done:
    return st;
}

/* The buffers after the bits of what is null. */
static af_status take_values(loader *l, af_arrow_array *a, bool left_out)
{
    const af_arrow_field *f = a->field;
    af_status st = AF_OK;
    const int64_t n = a->length;
    const af_arrow_shape shape = f->has_dictionary ? AF_ARROW_FIXED : f->shape;
    const int width = f->has_dictionary ? f->index_width : f->type.width;
    bool good = true;
    switch (shape) {
    case AF_ARROW_FIXED:
        AF_TRY(take(l, f, left_out, &a->data));
        good = enough(&a->data, n, width);
        break;
    case AF_ARROW_BYTES:
    case AF_ARROW_LIST:
        AF_TRY(take(l, f, left_out, &a->offsets));
        good = n == 0 || enough(&a->offsets, n + 1, f->offset_width);
        if (shape == AF_ARROW_BYTES)
            AF_TRY(take(l, f, left_out, &a->data));
        break;
    case AF_ARROW_LIST_VIEW:
        AF_TRY(take(l, f, left_out, &a->offsets));
        AF_TRY(take(l, f, left_out, &a->sizes));
        good = enough(&a->offsets, n, f->offset_width) && enough(&a->sizes, n, f->offset_width);
        break;
    case AF_ARROW_VIEW:
        AF_TRY(take(l, f, left_out, &a->data));
        AF_TRY(take_views(l, a, left_out));
        good = enough(&a->data, n, 16);
        break;
    case AF_ARROW_NULL:
    case AF_ARROW_FIXED_LIST:
    case AF_ARROW_STRUCT:
        break;
    }
    if (!good && !left_out)
        st = fail(l, f, "a buffer has fewer bytes than its values need");
done:
    return st;
}

static af_status load_array(loader *l, af_arrow_array *a, const af_arrow_field *f, bool left_out)
{
    af_status st = AF_OK;
    a->field = f;
    if (l->node >= l->nodes.count)
        return fail(l, f, "the record batch has too few columns");
    const uint64_t at = l->nodes.at + 16 * l->node++;
    a->length = af_flat_at(&l->m->flat, at, 8);
    const int64_t nulls = af_flat_at(&l->m->flat, at + 8, 8);
    if (a->length < 0 || a->length >= INT64_MAX / 64)
        return fail(l, f, "a column with a wrong number of values");
    if (f->has_dictionary || f->shape != AF_ARROW_NULL) {
        af_arrow_bytes valid = {0};
        AF_TRY(take(l, f, left_out, &valid));
        if (nulls != 0 && valid.len > 0) {
            a->valid = valid.at;
            if (!left_out && !enough(&valid, a->length, 0))
                return fail(l, f, "a buffer has fewer bytes than its values need");
        }
        AF_TRY(take_values(l, a, left_out));
    }
    if (f->has_dictionary || f->count == 0)
        return AF_OK;
    a->child = af_arena_take(&l->b->mem, (uint64_t)f->count * sizeof *a->child);
    if (!a->child)
        return af_fail_nomem(l->err, l->name, 0);
    for (int i = 0; i < f->count; i++) {
        AF_TRY(load_array(l, &a->child[i], &f->child[i], left_out));
        if (f->shape == AF_ARROW_STRUCT && a->child[i].length != a->length)
            return fail(l, &f->child[i], "it has another number of values than the record batch");
    }
done:
    return st;
}

static af_status read_codec(loader *l, const af_flat_table *t)
{
    const af_flat_table c = af_flat_sub(&l->m->flat, t, 3);
    if (c.at == 0)
        return AF_OK;
    const int64_t codec = af_flat_int(&l->m->flat, &c, 0, 1, 0);
    l->packed = true;
    l->codec = codec == 0 ? AF_CODEC_LZ4_FRAME : AF_CODEC_ZSTD;
    return codec == 0 || codec == 1
               ? AF_OK
               : af_fail(l->err, AF_EUNSUPPORTED, "%s: a record batch with unknown codec %d",
                         l->name, (int)codec);
}

af_status af_arrow_batch_read(af_arrow_batch *b, const af_arrow_field *field, const bool *left_out,
                              af_arrow_message *m, const af_flat_table *t, const char *name,
                              af_error *err)
{
    loader l = {.b = b, .m = m, .name = name, .err = err};
    af_status st = AF_OK;
    af_arena_clear(&b->mem);
    *b = (af_arrow_batch){.rows = af_flat_int(&m->flat, t, 0, 8, 0)};
    l.nodes = af_flat_list(&m->flat, t, 1, 16);
    l.buffers = af_flat_list(&m->flat, t, 2, 16);
    l.variadic = af_flat_list(&m->flat, t, 4, 8);
    AF_TRY(read_codec(&l, t));
    if (m->flat.bad || b->rows < 0 || b->rows > INT32_MAX) {
        st = af_fail(err, AF_EFORMAT, "%s: a record batch is damaged (%" PRId64 " rows)", name,
                     b->rows);
        goto done;
    }
    b->root = (af_arrow_array){.field = field, .length = b->rows};
    b->root.child =
        af_arena_take(&b->mem, (uint64_t)AF_MAX(field->count, 1) * sizeof *b->root.child);
    if (!b->root.child) {
        st = af_fail_nomem(err, name, 0);
        goto done;
    }
    for (int i = 0; i < field->count; i++) {
        const bool skip = left_out && left_out[i];
        AF_TRY(load_array(&l, &b->root.child[i], &field->child[i], skip));
        if (b->root.child[i].length != b->rows) {
            st =
                fail(&l, &field->child[i], "it has another number of values than the record batch");
            goto done;
        }
    }
done:
    return st;
}

void af_arrow_batch_clear(af_arrow_batch *b)
{
    af_arena_clear(&b->mem);
    *b = (af_arrow_batch){0};
}
