/* imatrix.c - see imatrix.h.
 *
 * Binary: i32 entries; each i32 name length, name, i32 calls, i32 count, count f32 (mean squares
 * times calls); then i32 chunks, i32 length, data set name, both left out by old writers. GGUF:
 * tensors NAME.in_sum2 [matrices][cols] and NAME.counts [matrices][1], keys imatrix.*. */
#include "convert/quantize/imatrix.h"

#include "base/reader.h"
#include "format/weights/gguf.h"

#include <math.h>

static float read_f32(af_reader *r)
{
    const uint32_t u = af_read_u32(r);
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

af_status af_imatrix_reserve(af_imatrix *m, int64_t n, af_error *err)
{
    m->entry = af_arena_take(&m->arena, (uint64_t)AF_MAX(n, 1) * sizeof *m->entry);
    m->capacity = (int)n;
    return m->entry ? AF_OK
                    : af_fail_nomem(err, "an importance matrix", (uint64_t)n * sizeof *m->entry);
}

af_status af_imatrix_add(af_imatrix *m, af_imatrix_entry **out, const char *name, uint64_t name_len,
                         int64_t count, int64_t matrices, af_error *err)
{
    assert(m->count < m->capacity && matrices >= 1 && count % matrices == 0);
    af_imatrix_entry e = {.count = count, .matrices = matrices};
    e.name = af_arena_strndup(&m->arena, name, name_len);
    e.values = af_arena_take(&m->arena, (uint64_t)(2 * count + matrices) * sizeof *e.values);
    if (!e.name || !e.values)
        return af_fail_nomem(err, "an importance matrix", (uint64_t)count * 8);
    e.sums = e.values + count;
    e.counts = e.sums + count;
    m->entry[m->count] = e;
    *out = &m->entry[m->count++];
    return AF_OK;
}

/* ---- reading ---- */

static af_status check_values(const af_imatrix *m, const char *file, af_error *err)
{
    for (int i = 0; i < m->count; i++)
        for (int64_t k = 0; k < m->entry[i].count; k++) {
            const float x = m->entry[i].values[k];
            if (!(x >= 0 && isfinite(x)))
                return af_fail(err, AF_EFORMAT,
                               "%s: '%s' of the importance matrix has the value %g, which no mean "
                               "of squares has",
                               file, m->entry[i].name, (double)x);
        }
    return AF_OK;
}

static af_status parse_entry(af_imatrix *m, af_reader *r, const char *file, af_error *err)
{
    af_imatrix_entry *e;
    const uint32_t n = af_read_u32(r);
    const uint8_t *name = af_read_bytes(r, n);
    const int32_t calls = (int32_t)af_read_u32(r);
    const uint32_t count = af_read_u32(r);
    if (r->bad || n == 0 || n > 4096 || count == 0 || count > AF_IMATRIX_COLS_MAX ||
        (uint64_t)count * 4 > af_read_left(r))
        return af_fail(err, AF_EFORMAT, "%s: entry %d of the importance matrix is cut or empty",
                       file, m->count + 1);
    const af_status st = af_imatrix_add(m, &e, (const char *)name, n, count, 1, err);
    if (st != AF_OK)
        return st;
    const float by = (float)(calls > 0 ? calls : 1);
    e->counts[0] = by * AF_IMATRIX_CHUNK;
    for (uint32_t i = 0; i < count; i++) {
        const float x = read_f32(r);
        e->values[i] = x / by;
        e->sums[i] = x * AF_IMATRIX_CHUNK;
    }
    return AF_OK;
}

af_status af_imatrix_parse(af_imatrix *out, const void *bytes, uint64_t size, const char *name,
                           af_error *err)
{
    af_status st = AF_OK;
    af_imatrix m = {.chunk_size = AF_IMATRIX_CHUNK};
    af_reader r = {.at = bytes, .end = (const uint8_t *)bytes + size};
    const uint32_t n = af_read_u32(&r);
    if (r.bad || n == 0 || n > AF_IMATRIX_ENTRIES_MAX || n > size / 16)
        return af_fail(err, AF_EFORMAT, "%s is not an importance matrix (%u entries)", name, n);
    AF_TRY(af_imatrix_reserve(&m, n, err));
    for (uint32_t i = 0; i < n; i++)
        AF_TRY(parse_entry(&m, &r, name, err));
    if (af_read_left(&r) >= 8) {
        m.chunks = (int32_t)af_read_u32(&r);
        const uint32_t len = af_read_u32(&r);
        const uint8_t *set = af_read_bytes(&r, len);
        if (set && len)
            m.dataset = af_arena_strndup(&m.arena, (const char *)set, len);
    }
    AF_TRY(check_values(&m, name, err));
    *out = m;
    m = (af_imatrix){0};
done:
    af_imatrix_clear(&m);
    return st;
}

static void read_keys(af_imatrix *m, const af_gguf *g)
{
    const af_gguf_kv *chunks = af_gguf_find_kv(g, "imatrix.chunk_count");
    const af_gguf_kv *size = af_gguf_find_kv(g, "imatrix.chunk_size");
    const af_gguf_kv *sets = af_gguf_find_kv(g, "imatrix.datasets");
    m->chunks = chunks && chunks->count == 1 ? af_gguf_item_int(chunks, 0) : 0;
    m->chunk_size = size && size->count == 1 ? af_gguf_item_int(size, 0) : AF_IMATRIX_CHUNK;
    if (sets && sets->str && sets->count > 0)
        m->dataset = af_arena_strndup(&m->arena, sets->str[0].at, sets->str[0].len);
}

static af_status read_tensor(af_imatrix *m, const af_gguf *g, const af_stored *t, size_t base,
                             const char *path, af_error *err)
{
    char counts[1024];
    af_imatrix_entry *e;
    snprintf(counts, sizeof counts, "%.*s.counts", (int)base, t->name);
    const af_stored *c = af_gguf_find(g, counts);
    if (t->dtype != AF_DTYPE_F32 || !c || c->dtype != AF_DTYPE_F32 || af_weight_count(c) < 1 ||
        af_weight_count(t) % af_weight_count(c) != 0)
        return af_fail(err, AF_EFORMAT, "%s: '%s' has no fitting f32 counts", path, t->name);
    const af_status st =
        af_imatrix_add(m, &e, t->name, base, af_weight_count(t), af_weight_count(c), err);
    if (st != AF_OK)
        return st;
    memcpy(e->sums, t->data, (size_t)e->count * sizeof *e->sums);
    memcpy(e->counts, c->data, (size_t)e->matrices * sizeof *e->counts);
    const int64_t per = e->count / e->matrices;
    for (int64_t k = 0; k < e->count; k++) { /* one that saw nothing weighs all columns alike */
        const float seen = e->counts[k / per];
        e->values[k] = seen > 0 ? e->sums[k] / seen : 1;
    }
    return AF_OK;
}

static af_status read_gguf(af_imatrix *out, const char *path, af_error *err)
{
    static const char tail[] = ".in_sum2";
    af_status st = AF_OK;
    af_imatrix m = {0};
    af_gguf *g = NULL;
    AF_TRY(af_gguf_open(&g, path, err));
    AF_TRY(af_imatrix_reserve(&m, af_gguf_count(g), err));
    for (int i = 0; i < af_gguf_count(g); i++) {
        const af_stored *t = af_gguf_at(g, i);
        const size_t n = strlen(t->name), end = sizeof tail - 1;
        if (n > end && strcmp(t->name + n - end, tail) == 0)
            AF_TRY(read_tensor(&m, g, t, n - end, path, err));
    }
    if (m.count == 0)
        AF_TRY(af_fail(err, AF_EFORMAT, "%s has no tensors of an importance matrix", path));
    read_keys(&m, g);
    AF_TRY(check_values(&m, path, err));
    *out = m;
    m = (af_imatrix){0};
done:
    af_gguf_close(g);
    af_imatrix_clear(&m);
    return st;
}

af_status af_imatrix_read(af_imatrix *out, const char *path, af_error *err)
{
    af_map map = {0};
    af_status st = af_map_open(&map, path, err);
    if (st != AF_OK)
        return st;
    const bool gguf = map.size >= 4 && memcmp(map.data, "GGUF", 4) == 0;
    if (!gguf)
        st = af_imatrix_parse(out, map.data, map.size, path, err);
    af_map_close(&map);
    return gguf ? read_gguf(out, path, err) : st;
}

/* ---- writing ---- */

static af_status put_i32(af_out *o, int64_t value, af_error *err)
{
    const uint32_t v = (uint32_t)(int32_t)value;
    const uint8_t b[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
    return af_out_write(o, b, sizeof b, err);
}

static af_status write_binary(const af_imatrix *m, const char *path, af_error *err)
{
    af_status st = AF_OK;
    af_out *o = NULL;
    const char *set = m->dataset ? m->dataset : "";
    const int64_t calls = AF_MAX(m->chunks, 1);
    AF_TRY(af_out_open(&o, path, err));
    AF_TRY(put_i32(o, m->count, err));
    for (int i = 0; i < m->count; i++) {
        const af_imatrix_entry *e = &m->entry[i];
        AF_TRY(put_i32(o, (int64_t)strlen(e->name), err));
        AF_TRY(af_out_write(o, e->name, strlen(e->name), err));
        AF_TRY(put_i32(o, calls, err));
        AF_TRY(put_i32(o, e->count, err));
        for (int64_t k = 0; k < e->count; k++) {
            const float x = e->values[k] * (float)calls;
            AF_TRY(af_out_write(o, &x, sizeof x, err));
        }
    }
    AF_TRY(put_i32(o, m->chunks, err));
    AF_TRY(put_i32(o, (int64_t)strlen(set), err));
    AF_TRY(af_out_write(o, set, strlen(set), err));
    st = af_out_commit(o, err);
    o = NULL;
done:
    af_out_abandon(o);
    return st;
}

static af_status write_gguf(const af_imatrix *m, const char *path, af_error *err)
{
    af_status st = AF_OK;
    af_gguf_writer *w = NULL;
    char name[4200];
    const char *dataset = m->dataset ? m->dataset : "";
    const af_gguf_str set = {dataset, strlen(dataset)};
    AF_TRY(af_gguf_writer_new(&w, path, err));
    AF_TRY(af_gguf_put_str(w, "general.type", "imatrix", 7, err));
    AF_TRY(af_gguf_put_strs(w, "imatrix.datasets", &set, 1, err));
    AF_TRY(af_gguf_put_u32(w, "imatrix.chunk_count", (uint32_t)m->chunks, err));
    AF_TRY(af_gguf_put_u32(w, "imatrix.chunk_size", (uint32_t)m->chunk_size, err));
    for (int i = 0; i < m->count; i++) {
        const af_imatrix_entry *e = &m->entry[i];
        const int64_t per = e->count / e->matrices;
        snprintf(name, sizeof name, "%s.in_sum2", e->name);
        AF_TRY(af_gguf_put_tensor(w, name, AF_DTYPE_F32, (int64_t[]){e->matrices, per}, 2, err));
        snprintf(name, sizeof name, "%s.counts", e->name);
        AF_TRY(af_gguf_put_tensor(w, name, AF_DTYPE_F32, (int64_t[]){e->matrices, 1}, 2, err));
    }
    AF_TRY(af_gguf_writer_begin(w, err));
    for (int i = 0; i < m->count; i++) {
        const af_imatrix_entry *e = &m->entry[i];
        AF_TRY(af_gguf_writer_data(w, e->sums, (uint64_t)e->count * 4, err));
        AF_TRY(af_gguf_writer_data(w, e->counts, (uint64_t)e->matrices * 4, err));
    }
    st = af_gguf_writer_commit(w, err);
    w = NULL;
done:
    af_gguf_writer_abandon(w);
    return st;
}

af_status af_imatrix_write(const af_imatrix *m, const char *path, af_error *err)
{
    const size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".dat") == 0 ? write_binary(m, path, err)
                                                      : write_gguf(m, path, err);
}

const af_imatrix_entry *af_imatrix_find(const af_imatrix *m, const char *name)
{
    for (int i = 0; m && i < m->count; i++)
        if (strcmp(m->entry[i].name, name) == 0)
            return &m->entry[i];
    return NULL;
}

void af_imatrix_clear(af_imatrix *m)
{
    af_arena_clear(&m->arena);
    *m = (af_imatrix){0};
}
