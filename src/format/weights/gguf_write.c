/* gguf_write.c - the core of the GGUF writer: keys, tensor list, then data.
 *
 * Keys are serialised as they come; the header is written once, at begin, when every offset is
 * known. The file has its whole length from then on, so tensors can come in any order. */
#include "format/weights/gguf.h"

#include "base/buf.h"
#include "format/weights/declared.h"

struct af_gguf_writer {
    af_out *out;
    char *path;
    af_buf keys;
    uint64_t key_count;
    af_declared_list tensors;
    uint64_t alignment, data_at;
    bool begun;
};

af_status af_gguf_writer_new(af_gguf_writer **out, const char *path, af_error *err)
{
    af_gguf_writer *w = af_calloc(1, sizeof *w);
    if (!w || !(w->path = af_strdup(path))) {
        free(w);
        return af_fail_nomem(err, "a GGUF writer", sizeof *w);
    }
    w->alignment = AF_GGUF_ALIGNMENT;
    const af_status st = af_out_open(&w->out, path, err);
    if (st != AF_OK) {
        af_gguf_writer_abandon(w);
        return st;
    }
    *out = w;
    return AF_OK;
}

static void add_uint(af_buf *b, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        af_buf_char(b, (char)(v >> (8 * i)));
}

static void add_string(af_buf *b, const char *s, uint64_t n)
{
    add_uint(b, n, 8);
    af_buf_add(b, s, n);
}

static void add_key(af_gguf_writer *w, const char *key, af_gguf_type type)
{
    assert(!w->begun);
    add_string(&w->keys, key, strlen(key));
    add_uint(&w->keys, type, 4);
    w->key_count++;
}

static af_status put_done(const af_gguf_writer *w, const char *key, af_error *err)
{
    return w->keys.bad ? af_fail_nomem(err, key, w->keys.len) : AF_OK;
}

static int type_bytes(af_gguf_type t)
{
    static const uint8_t bytes[AF_GGUF_TYPES] = {
        [AF_GGUF_U8] = 1,  [AF_GGUF_I8] = 1,  [AF_GGUF_U16] = 2, [AF_GGUF_I16] = 2,
        [AF_GGUF_U32] = 4, [AF_GGUF_I32] = 4, [AF_GGUF_F32] = 4, [AF_GGUF_BOOL] = 1,
        [AF_GGUF_U64] = 8, [AF_GGUF_I64] = 8, [AF_GGUF_F64] = 8,
    };
    return bytes[t];
}

af_status af_gguf_put_int(af_gguf_writer *w, const char *key, af_gguf_type type, int64_t value,
                          af_error *err)
{
    assert(type_bytes(type) && type != AF_GGUF_F32 && type != AF_GGUF_F64);
    if (strcmp(key, "general.alignment") == 0) {
        if (value < 1 || value > 1 << 30 || (value & (value - 1)))
            return af_fail(err, AF_EUSAGE, "the alignment %" PRId64 " is not a power of two",
                           value);
        w->alignment = (uint64_t)value;
    }
    add_key(w, key, type);
    add_uint(&w->keys, (uint64_t)value, type_bytes(type));
    return put_done(w, key, err);
}

af_status af_gguf_put_u32(af_gguf_writer *w, const char *key, uint32_t value, af_error *err)
{
    return af_gguf_put_int(w, key, AF_GGUF_U32, value, err);
}

af_status af_gguf_put_f32(af_gguf_writer *w, const char *key, float value, af_error *err)
{
    uint32_t u;
    memcpy(&u, &value, sizeof u);
    add_key(w, key, AF_GGUF_F32);
    add_uint(&w->keys, u, 4);
    return put_done(w, key, err);
}

af_status af_gguf_put_bool(af_gguf_writer *w, const char *key, bool value, af_error *err)
{
    return af_gguf_put_int(w, key, AF_GGUF_BOOL, value, err);
}

af_status af_gguf_put_str(af_gguf_writer *w, const char *key, const char *s, uint64_t n,
                          af_error *err)
{
    add_key(w, key, AF_GGUF_STRING);
    add_string(&w->keys, s, n);
    return put_done(w, key, err);
}

af_status af_gguf_put_array(af_gguf_writer *w, const char *key, af_gguf_type item,
                            const void *values, uint64_t count, af_error *err)
{
    uint64_t bytes;
    assert(type_bytes(item));
    add_key(w, key, AF_GGUF_ARRAY);
    add_uint(&w->keys, item, 4);
    add_uint(&w->keys, count, 8);
    if (!af_mul_ok(count, (uint64_t)type_bytes(item), &bytes))
        return af_fail(err, AF_EUSAGE, "array '%s' has too many items", key);
    af_buf_add(&w->keys, values, bytes);
    return put_done(w, key, err);
}

af_status af_gguf_put_strs(af_gguf_writer *w, const char *key, const af_gguf_str *s, uint64_t count,
                           af_error *err)
{
    add_key(w, key, AF_GGUF_ARRAY);
    add_uint(&w->keys, AF_GGUF_STRING, 4);
    add_uint(&w->keys, count, 8);
    for (uint64_t i = 0; i < count; i++)
        add_string(&w->keys, s[i].at, s[i].len);
    return put_done(w, key, err);
}

af_status af_gguf_put_kv(af_gguf_writer *w, const af_gguf_kv *kv, af_error *err)
{
    if (strcmp(kv->key, "general.alignment") == 0) /* the writer must know it */
        return af_gguf_put_int(w, kv->key, kv->type, af_gguf_item_int(kv, 0), err);
    add_key(w, kv->key, kv->type);
    if (kv->type == AF_GGUF_ARRAY) {
        add_uint(&w->keys, kv->item, 4);
        add_uint(&w->keys, kv->count, 8);
    }
    af_buf_add(&w->keys, kv->data, kv->bytes);
    return put_done(w, kv->key, err);
}

af_status af_gguf_put_tensor(af_gguf_writer *w, const char *name, af_dtype dtype,
                             const int64_t *dim, int ndim, af_error *err)
{
    assert(!w->begun && ndim >= 1 && ndim <= 4);
    const af_dtype_info *info = af_dtype_get(dtype);
    if (info->gguf < 0)
        return af_fail(err, AF_EUNSUPPORTED, "tensor '%s': GGUF has no type for %s", name,
                       info->name);
    return af_declared_add(&w->tensors, name, dtype, dim, ndim, err);
}

static af_status pad(af_gguf_writer *w, af_error *err)
{
    static const uint8_t zeros[4096];
    const uint64_t now = af_out_tell(w->out);
    uint64_t left = AF_ALIGN_UP(now, w->alignment) - now;
    while (left) {
        const uint64_t n = AF_MIN(left, sizeof zeros);
        const af_status st = af_out_write(w->out, zeros, n, err);
        if (st != AF_OK)
            return st;
        left -= n;
    }
    return AF_OK;
}

af_status af_gguf_writer_begin(af_gguf_writer *w, af_error *err)
{
    assert(!w->begun);
    af_status st = AF_OK;
    af_buf b = {0};
    uint64_t offset = 0;
    w->begun = true;
    AF_TRY(af_declared_check_room(&w->tensors, w->path, err));
    af_buf_add(&b, "GGUF", 4);
    add_uint(&b, 3, 4);
    add_uint(&b, (uint64_t)w->tensors.count, 8);
    add_uint(&b, w->key_count, 8);
    af_buf_add(&b, w->keys.data, w->keys.len);
    for (int i = 0; i < w->tensors.count; i++) {
        af_declared *d = &w->tensors.item[i];
        add_string(&b, d->name, strlen(d->name));
        add_uint(&b, (uint64_t)d->ndim, 4);
        for (int k = d->ndim - 1; k >= 0; k--)
            add_uint(&b, (uint64_t)d->dim[k], 8);
        add_uint(&b, (uint64_t)af_dtype_get(d->dtype)->gguf, 4);
        add_uint(&b, offset, 8);
        d->offset = offset;
        offset = AF_ALIGN_UP(offset + d->bytes, w->alignment);
    }
    if (b.bad)
        AF_TRY(af_fail_nomem(err, "the GGUF header", b.len));
    AF_TRY(af_out_write(w->out, b.data, b.len, err));
    AF_TRY(pad(w, err));
    w->data_at = af_out_tell(w->out);
    AF_TRY(af_out_reserve(w->out, offset, err));
done:
    af_buf_clear(&b);
    return st;
}

af_status af_gguf_writer_data(af_gguf_writer *w, const void *bytes, uint64_t n, af_error *err)
{
    af_status st = AF_OK;
    const af_declared *d;
    uint64_t from, take;
    assert(w->begun);
    for (const uint8_t *p = bytes; n > 0; p += take, n -= take) {
        AF_TRY(af_declared_next(&w->tensors, w->path, n, &d, &from, &take, err));
        AF_TRY(af_out_patch(w->out, w->data_at + d->offset + from, p, take, err));
    }
done:
    return st;
}

uint64_t af_gguf_writer_take(af_gguf_writer *w, int i)
{
    assert(w->begun && i >= 0 && i < w->tensors.count);
    w->tensors.item[i].apart = true;
    return w->data_at + w->tensors.item[i].offset;
}

af_status af_gguf_writer_fill(af_gguf_writer *w, uint64_t offset, const void *bytes, uint64_t n,
                              af_error *err)
{
    return af_out_patch(w->out, offset, bytes, n, err);
}

const char *af_gguf_writer_file(const af_gguf_writer *w)
{
    assert(w->begun);
    return af_out_file(w->out);
}

af_status af_gguf_writer_commit(af_gguf_writer *w, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_declared_complete(&w->tensors, w->path, err));
    af_out *o = w->out;
    w->out = NULL;
    AF_TRY(af_out_commit(o, err));
done:
    af_gguf_writer_abandon(w);
    return st;
}

void af_gguf_writer_abandon(af_gguf_writer *w)
{
    if (!w)
        return;
    af_out_abandon(w->out);
    free(w->path);
    af_declared_clear(&w->tensors);
    af_buf_clear(&w->keys);
    free(w);
}
