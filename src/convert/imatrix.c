/* imatrix.c - see imatrix.h.
 *
 * Binary: i32 entries; each i32 name length, name, i32 calls, i32 count, count f32 sums of squares
 * (divide by calls); then i32 chunks, i32 length, data set name. GGUF: tensors NAME.in_sum2 and
 * NAME.counts. */
#include "convert/imatrix.h"

#include "base/reader.h"
#include "format/gguf.h"

static float read_f32(af_reader *r)
{
    const uint32_t u = af_read_u32(r);
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static af_status take(af_imatrix *m, af_imatrix_entry *e, const char *name, uint64_t name_len,
                      int64_t count, af_error *err)
{
    e->name = af_arena_strndup(&m->arena, name, name_len);
    e->values = af_arena_take(&m->arena, (uint64_t)count * sizeof *e->values);
    e->count = count;
    return e->name && e->values ? AF_OK
                                : af_fail_nomem(err, "an importance matrix", (uint64_t)count * 4);
}

static af_status parse_entry(af_imatrix *m, af_reader *r, const char *file, af_error *err)
{
    af_imatrix_entry *e = &m->entry[m->count];
    const uint32_t n = af_read_u32(r);
    const uint8_t *name = af_read_bytes(r, n);
    const int32_t calls = (int32_t)af_read_u32(r);
    const uint32_t count = af_read_u32(r);
    if (r->bad || n == 0 || n > 4096 || count == 0 || count > AF_IMATRIX_COLS_MAX ||
        (uint64_t)count * 4 > af_read_left(r))
        return af_fail(err, AF_EFORMAT, "%s: entry %d of the importance matrix is cut or empty",
                       file, m->count + 1);
    const af_status st = take(m, e, (const char *)name, n, count, err);
    if (st != AF_OK)
        return st;
    e->tokens = calls > 0 ? calls : 1;
    for (uint32_t i = 0; i < count; i++)
        e->values[i] = read_f32(r) / (float)e->tokens;
    m->count++;
    return AF_OK;
}

af_status af_imatrix_parse(af_imatrix *out, const void *bytes, uint64_t size, const char *name,
                           af_error *err)
{
    af_status st = AF_OK;
    af_imatrix m = {0};
    af_reader r = {.at = bytes, .end = (const uint8_t *)bytes + size};
    const uint32_t n = af_read_u32(&r);
    if (r.bad || n == 0 || n > AF_IMATRIX_ENTRIES_MAX || n > size / 16)
        return af_fail(err, AF_EFORMAT, "%s is not an importance matrix (%u entries)", name, n);
    m.entry = af_arena_take(&m.arena, (uint64_t)n * sizeof *m.entry);
    if (!m.entry)
        return af_fail_nomem(err, "an importance matrix", (uint64_t)n * sizeof *m.entry);
    for (uint32_t i = 0; i < n; i++)
        AF_TRY(parse_entry(&m, &r, name, err));
    *out = m;
    m = (af_imatrix){0};
done:
    af_imatrix_clear(&m);
    return st;
}

static af_status read_gguf(af_imatrix *out, const char *path, af_error *err)
{
    static const char tail[] = ".in_sum2";
    af_status st = AF_OK;
    af_imatrix m = {0};
    af_gguf *g = NULL;
    char counts[1024];
    AF_TRY(af_gguf_open(&g, path, err));
    m.entry = af_arena_take(&m.arena, (uint64_t)AF_MAX(af_gguf_count(g), 1) * sizeof *m.entry);
    if (!m.entry)
        AF_TRY(af_fail_nomem(err, "an importance matrix", (uint64_t)af_gguf_count(g) * 32));
    for (int i = 0; i < af_gguf_count(g); i++) {
        const af_stored *t = af_gguf_at(g, i);
        const size_t n = strlen(t->name);
        if (n <= sizeof tail - 1 || strcmp(t->name + n - sizeof tail + 1, tail) != 0)
            continue;
        snprintf(counts, sizeof counts, "%.*s.counts", (int)(n - sizeof tail + 1), t->name);
        const af_stored *c = af_gguf_find(g, counts);
        if (t->dtype != AF_DTYPE_F32 || !c || c->dtype != AF_DTYPE_F32 || af_weight_count(c) < 1)
            AF_TRY(af_fail(err, AF_EFORMAT, "%s: '%s' has no f32 counts", path, t->name));
        af_imatrix_entry *e = &m.entry[m.count++];
        AF_TRY(take(&m, e, t->name, n - sizeof tail + 1, af_weight_count(t), err));
        const int64_t per = af_weight_count(t) / af_weight_count(c); /* one count an expert */
        for (int64_t k = 0; k < e->count; k++) {
            const float calls = ((const float *)c->data)[per ? k / per : 0];
            e->values[k] = ((const float *)t->data)[k] / (calls > 0 ? calls : 1);
        }
        e->tokens = (int64_t)((const float *)c->data)[0];
    }
    if (m.count == 0)
        AF_TRY(af_fail(err, AF_EFORMAT, "%s has no tensors of an importance matrix", path));
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

static af_status write_entry(af_gguf_writer *w, const af_imatrix_entry *e, af_error *err)
{
    af_status st = AF_OK;
    const float calls = (float)AF_MAX(e->tokens, 1);
    float *sums = af_calloc((uint64_t)e->count, sizeof *sums);
    if (!sums)
        return af_fail_nomem(err, "an importance matrix", (uint64_t)e->count * 4);
    for (int64_t k = 0; k < e->count; k++)
        sums[k] = e->values[k] * calls;
    AF_TRY(af_gguf_writer_data(w, sums, (uint64_t)e->count * 4, err));
    AF_TRY(af_gguf_writer_data(w, &calls, sizeof calls, err));
done:
    free(sums);
    return st;
}

af_status af_imatrix_write(const af_imatrix *m, const char *path, const char *dataset,
                           af_error *err)
{
    af_status st = AF_OK;
    af_gguf_writer *w = NULL;
    char name[1200];
    const af_gguf_str set = {dataset, strlen(dataset)};
    AF_TRY(af_gguf_writer_new(&w, path, err));
    AF_TRY(af_gguf_put_str(w, "general.type", "imatrix", 7, err));
    AF_TRY(af_gguf_put_strs(w, "imatrix.datasets", &set, 1, err));
    AF_TRY(af_gguf_put_u32(w, "imatrix.chunk_count", 1, err));
    AF_TRY(af_gguf_put_u32(w, "imatrix.chunk_size", (uint32_t)(m->count ? m->entry[0].tokens : 0),
                           err));
    for (int i = 0; i < m->count; i++) {
        const af_imatrix_entry *e = &m->entry[i];
        snprintf(name, sizeof name, "%s.in_sum2", e->name);
        AF_TRY(af_gguf_put_tensor(w, name, AF_DTYPE_F32, (int64_t[]){1, e->count}, 2, err));
        snprintf(name, sizeof name, "%s.counts", e->name);
        AF_TRY(af_gguf_put_tensor(w, name, AF_DTYPE_F32, (int64_t[]){1, 1}, 2, err));
    }
    AF_TRY(af_gguf_writer_begin(w, err));
    for (int i = 0; i < m->count; i++)
        AF_TRY(write_entry(w, &m->entry[i], err));
    st = af_gguf_writer_commit(w, err);
    w = NULL;
done:
    af_gguf_writer_abandon(w);
    return st;
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
