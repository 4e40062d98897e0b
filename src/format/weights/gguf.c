/* gguf.c - the reader; see gguf.h.
 *
 * File: magic, version, counts, keys with values, tensor descriptions, then data at the next
 * multiple of the alignment. Counts are never trusted: every one is compared with the bytes that
 * are left before anything is allocated for it. */
#include "format/weights/gguf.h"

#include "base/arena.h"
#include "base/reader.h"

#include <math.h>

struct af_gguf {
    af_map map;
    bool mapped;
    const char *name;
    uint32_t version;
    uint64_t alignment;
    af_gguf_kv *kv;
    const af_gguf_kv **kv_sort;
    int kv_count;
    af_stored *list;
    uint64_t *offset; /* of each tensor in the data part */
    const af_stored **sort;
    int count;
    af_gguf **part; /* of the first file of a split model: its other files */
    int part_count;
    af_arena arena;
};

static const struct {
    const char *name;
    int bytes; /* 0 = variable */
} types[AF_GGUF_TYPES] = {
    [AF_GGUF_U8] = {"u8", 1},       [AF_GGUF_I8] = {"i8", 1},     [AF_GGUF_U16] = {"u16", 2},
    [AF_GGUF_I16] = {"i16", 2},     [AF_GGUF_U32] = {"u32", 4},   [AF_GGUF_I32] = {"i32", 4},
    [AF_GGUF_F32] = {"f32", 4},     [AF_GGUF_BOOL] = {"bool", 1}, [AF_GGUF_STRING] = {"str", 0},
    [AF_GGUF_ARRAY] = {"array", 0}, [AF_GGUF_U64] = {"u64", 8},   [AF_GGUF_I64] = {"i64", 8},
    [AF_GGUF_F64] = {"f64", 8},
};

const char *af_gguf_type_name(af_gguf_type t)
{
    return (unsigned)t < AF_GGUF_TYPES ? types[t].name : "?";
}

static int by_key(const void *a, const void *b)
{
    return strcmp((*(const af_gguf_kv *const *)a)->key, (*(const af_gguf_kv *const *)b)->key);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const af_stored *const *)a)->name, (*(const af_stored *const *)b)->name);
}

static af_status cut_short(const af_gguf *g, const char *where, af_error *err)
{
    return af_fail(err, AF_EFORMAT, "%s: the file ends inside %s", g->name, where);
}

/* A key or a tensor name: bounded, without NUL, copied with one. */
static af_status read_name(af_gguf *g, af_reader *r, const char *what, const char **out,
                           af_error *err)
{
    const uint64_t n = af_read_u64(r);
    if (!r->bad && n > AF_GGUF_NAME_MAX)
        return af_fail(err, AF_EFORMAT, "%s: a %s of %" PRIu64 " bytes is over the limit of %d",
                       g->name, what, n, AF_GGUF_NAME_MAX);
    const uint8_t *p = af_read_bytes(r, n);
    if (!p)
        return cut_short(g, what, err);
    if (n == 0 || memchr(p, 0, n))
        return af_fail(err, AF_EFORMAT, "%s: a %s is empty or has a NUL byte", g->name, what);
    *out = af_arena_strndup(&g->arena, (const char *)p, n);
    return *out ? AF_OK : af_fail_nomem(err, what, n);
}

static af_status read_strings(af_gguf *g, af_reader *r, af_gguf_kv *kv, af_error *err)
{
    if (kv->count > af_read_left(r) / 8)
        return cut_short(g, kv->key, err);
    af_gguf_str *s = af_arena_take(&g->arena, AF_MAX(kv->count, 1) * sizeof *s);
    if (!s)
        return af_fail_nomem(err, kv->key, kv->count * sizeof *s);
    for (uint64_t i = 0; i < kv->count; i++) {
        s[i].len = af_read_u64(r);
        s[i].at = (const char *)af_read_bytes(r, s[i].len);
        if (r->bad)
            return cut_short(g, kv->key, err);
    }
    kv->str = s;
    return AF_OK;
}

static af_status bad_type(const af_gguf *g, const char *key, uint32_t type, af_error *err)
{
    return af_fail(err, AF_EFORMAT, "%s: key '%s' has the unknown value type %u", g->name, key,
                   type);
}

/* Steps over `count` values of a type; for arrays of arrays, which have no other use here. */
static af_status skip_values(af_gguf *g, af_reader *r, const char *key, uint32_t type,
                             uint64_t count, int depth, af_error *err)
{
    uint64_t bytes;
    if (type >= AF_GGUF_TYPES)
        return bad_type(g, key, type, err);
    if (types[type].bytes) {
        if (!af_mul_ok(count, (uint64_t)types[type].bytes, &bytes) || !af_read_bytes(r, bytes))
            return cut_short(g, key, err);
        return AF_OK;
    }
    if (depth > AF_GGUF_DEPTH_MAX)
        return af_fail(err, AF_EFORMAT, "%s: key '%s' nests arrays deeper than %d", g->name, key,
                       AF_GGUF_DEPTH_MAX);
    if (count > af_read_left(r) / 8)
        return cut_short(g, key, err);
    for (uint64_t i = 0; i < count; i++) {
        if (type == AF_GGUF_STRING) {
            af_read_bytes(r, af_read_u64(r));
            if (r->bad)
                return cut_short(g, key, err);
            continue;
        }
        const uint32_t item = af_read_u32(r);
        const uint64_t n = af_read_u64(r);
        if (r->bad)
            return cut_short(g, key, err);
        const af_status st = skip_values(g, r, key, item, n, depth + 1, err);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}

static af_status read_kv(af_gguf *g, af_reader *r, af_gguf_kv *kv, af_error *err)
{
    af_status st = read_name(g, r, "key", &kv->key, err);
    if (st != AF_OK)
        return st;
    const uint32_t type = af_read_u32(r);
    uint32_t item = type;
    kv->count = 1;
    if (!r->bad && type == AF_GGUF_ARRAY) {
        item = af_read_u32(r);
        kv->count = af_read_u64(r);
    }
    if (r->bad)
        return cut_short(g, kv->key, err);
    if (type >= AF_GGUF_TYPES || item >= AF_GGUF_TYPES)
        return bad_type(g, kv->key, type >= AF_GGUF_TYPES ? type : item, err);
    kv->type = (af_gguf_type)type;
    kv->item = (af_gguf_type)item;
    kv->data = r->at;
    st = item == AF_GGUF_STRING ? read_strings(g, r, kv, err)
                                : skip_values(g, r, kv->key, item, kv->count, 1, err);
    kv->bytes = (uint64_t)(r->at - kv->data);
    return st;
}

static af_status read_keys(af_gguf *g, af_reader *r, uint64_t n, af_error *err)
{
    g->kv = af_arena_take(&g->arena, AF_MAX(n, 1) * sizeof *g->kv);
    g->kv_sort = af_arena_take(&g->arena, AF_MAX(n, 1) * sizeof *g->kv_sort);
    if (!g->kv || !g->kv_sort)
        return af_fail_nomem(err, "the metadata", n * sizeof *g->kv);
    for (uint64_t i = 0; i < n; i++) {
        const af_status st = read_kv(g, r, &g->kv[i], err);
        if (st != AF_OK)
            return st;
        g->kv_sort[i] = &g->kv[i];
    }
    g->kv_count = (int)n;
    if (n)
        qsort(g->kv_sort, n, sizeof *g->kv_sort, by_key);
    for (uint64_t i = 1; i < n; i++)
        if (strcmp(g->kv_sort[i - 1]->key, g->kv_sort[i]->key) == 0)
            return af_fail(err, AF_EFORMAT, "%s: duplicate key '%s'", g->name, g->kv_sort[i]->key);
    return AF_OK;
}

static af_status read_dims(af_gguf *g, af_reader *r, af_stored *w, af_error *err)
{
    uint64_t count = 1;
    const uint32_t ndim = af_read_u32(r);
    if (r->bad)
        return cut_short(g, w->name, err);
    if (ndim > 4)
        return af_fail(err, AF_EFORMAT, "%s: tensor '%s' has %u dimensions, not 0 to 4", g->name,
                       w->name, ndim);
    for (int i = 0; i < AF_WEIGHT_NDIM_MAX; i++)
        w->dim[i] = 1;
    w->ndim = (int)ndim;
    for (int i = w->ndim - 1; i >= 0; i--) { /* the file has the fastest first */
        const uint64_t d = af_read_u64(r);
        w->dim[i] = (int64_t)AF_MIN(d, (uint64_t)INT64_MAX);
    }
    if (r->bad)
        return cut_short(g, w->name, err);
    for (int i = 0; i < w->ndim; i++) /* in af_weight_count's order: a zero must not hide a wrap */
        if (!af_mul_ok(count, (uint64_t)w->dim[i], &count) || count > INT64_MAX)
            return af_fail(err, AF_EFORMAT, "%s: tensor '%s' has the invalid dimension %" PRId64,
                           g->name, w->name, w->dim[i]);
    return AF_OK;
}

static af_status read_tensor(af_gguf *g, af_reader *r, af_stored *w, uint64_t *offset,
                             af_error *err)
{
    af_status st = read_name(g, r, "tensor name", &w->name, err);
    if (st != AF_OK || (st = read_dims(g, r, w, err)) != AF_OK)
        return st;
    const uint32_t type = af_read_u32(r);
    *offset = af_read_u64(r);
    if (r->bad)
        return cut_short(g, w->name, err);
    if (!af_dtype_by_gguf(&w->dtype, type))
        return af_fail(err, AF_EUNSUPPORTED, "%s: tensor '%s' has the unknown type %u", g->name,
                       w->name, type);
    uint64_t row;
    if (af_weight_cols(w) % af_dtype_get(w->dtype)->elems != 0)
        return af_fail(
            err, AF_EFORMAT,
            "%s: rows of tensor '%s' have %" PRId64 " elements, not a multiple of %s's %d", g->name,
            w->name, af_weight_cols(w), af_dtype_name(w->dtype), af_dtype_get(w->dtype)->elems);
    if (!af_dtype_bytes(w->dtype, (uint64_t)af_weight_cols(w), &row) ||
        !af_mul_ok(row, (uint64_t)af_weight_rows(w), &w->bytes))
        return af_fail(err, AF_EFORMAT, "%s: tensor '%s' has more bytes than 64 bits can count",
                       g->name, w->name);
    if (*offset % g->alignment)
        return af_fail(err, AF_EFORMAT,
                       "%s: tensor '%s' is at %" PRIu64
                       ", not a multiple of the alignment %" PRIu64,
                       g->name, w->name, *offset, g->alignment);
    return AF_OK;
}

typedef struct tensor_span {
    uint64_t from, to;
    const char *name;
} tensor_span;

static int by_offset(const void *a, const void *b)
{
    const tensor_span *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->to != y->to ? (x->to < y->to ? -1 : 1) : 0;
}

static af_status check_overlap(const af_gguf *g, uint64_t size, af_error *err)
{
    tensor_span *s = af_calloc((uint64_t)AF_MAX(g->count, 1), sizeof *s);
    if (!s)
        return af_fail_nomem(err, "the tensor list", (uint64_t)g->count * sizeof *s);
    af_status st = AF_OK;
    for (int i = 0; i < g->count && st == AF_OK; i++) {
        s[i] = (tensor_span){g->offset[i], 0, g->list[i].name};
        if (!af_add_ok(s[i].from, g->list[i].bytes, &s[i].to) || s[i].to > size)
            st = af_fail(err, AF_EFORMAT,
                         "%s: tensor '%s' has %" PRIu64 " bytes at %" PRIu64
                         " but the data has only %" PRIu64,
                         g->name, s[i].name, g->list[i].bytes, s[i].from, size);
    }
    if (st == AF_OK && g->count)
        qsort(s, (size_t)g->count, sizeof *s, by_offset);
    for (int i = 1; i < g->count && st == AF_OK; i++)
        if (s[i].from < s[i - 1].to)
            st = af_fail(err, AF_EFORMAT, "%s: tensors '%s' and '%s' overlap", g->name,
                         s[i - 1].name, s[i].name);
    free(s);
    return st;
}

/* An alignment below the element size leaves tensors unaligned: those are copied. */
static af_status place(af_gguf *g, const uint8_t *data, af_error *err)
{
    for (int i = 0; i < g->count; i++) {
        af_stored *w = &g->list[i];
        const af_dtype_info *d = af_dtype_get(w->dtype);
        w->data = data + g->offset[i];
        if (d->elems > 1 || (uintptr_t)w->data % (uintptr_t)d->bytes == 0)
            continue;
        void *copy = af_arena_take(&g->arena, w->bytes);
        if (!copy)
            return af_fail_nomem(err, w->name, w->bytes);
        memcpy(copy, w->data, w->bytes);
        w->data = copy;
    }
    return AF_OK;
}

static af_status sort_names(af_gguf *g, af_error *err)
{
    if (g->count)
        qsort(g->sort, (size_t)g->count, sizeof *g->sort, by_name);
    for (int i = 1; i < g->count; i++) {
        const af_stored *a = g->sort[i - 1], *b = g->sort[i];
        if (strcmp(a->name, b->name) == 0 && a->file != b->file)
            return af_fail(err, AF_EFORMAT, "tensor '%s' is in both '%s' and '%s'", a->name,
                           af_gguf_path(g, a->file), af_gguf_path(g, b->file));
        if (strcmp(a->name, b->name) == 0)
            return af_fail(err, AF_EFORMAT, "%s: duplicate tensor '%s'", g->name, a->name);
    }
    return AF_OK;
}

static af_status read_tensors(af_gguf *g, af_reader *r, uint64_t n, af_error *err)
{
    g->list = af_arena_take(&g->arena, AF_MAX(n, 1) * sizeof *g->list);
    g->offset = af_arena_take(&g->arena, AF_MAX(n, 1) * sizeof *g->offset);
    g->sort = af_arena_take(&g->arena, AF_MAX(n, 1) * sizeof *g->sort);
    if (!g->list || !g->offset || !g->sort)
        return af_fail_nomem(err, "the tensor list", n * sizeof *g->list);
    for (uint64_t i = 0; i < n; i++) {
        const af_status st = read_tensor(g, r, &g->list[i], &g->offset[i], err);
        if (st != AF_OK)
            return st;
        g->sort[i] = &g->list[i];
    }
    g->count = (int)n;
    return sort_names(g, err);
}

static af_status read_head(af_gguf *g, af_reader *r, uint64_t *tensors, uint64_t *keys,
                           af_error *err)
{
    const uint8_t *magic = af_read_bytes(r, 4);
    if (!magic || memcmp(magic, "GGUF", 4) != 0)
        return af_fail(err, AF_EFORMAT, "%s: the file does not begin with 'GGUF'", g->name);
    g->version = af_read_u32(r);
    *tensors = af_read_u64(r);
    *keys = af_read_u64(r);
    if (r->bad)
        return cut_short(g, "the header", err);
    if (g->version == 0x02000000 || g->version == 0x03000000)
        return af_fail(err, AF_EUNSUPPORTED, "%s: a big-endian GGUF file", g->name);
    if (g->version != 2 && g->version != 3)
        return af_fail(err, AF_EUNSUPPORTED, "%s: GGUF version %u, not 2 or 3", g->name,
                       g->version);
    /* A key takes at least 13 bytes, a tensor 25: absurd counts stop here. */
    if (*keys > AF_MIN((uint64_t)AF_GGUF_KEYS_MAX, af_read_left(r) / 13) ||
        *tensors > AF_MIN((uint64_t)AF_GGUF_TENSORS_MAX, af_read_left(r) / 25))
        return af_fail(err, AF_EFORMAT,
                       "%s: %" PRIu64 " keys and %" PRIu64
                       " tensors do not fit in a file of %" PRIu64 " bytes",
                       g->name, *keys, *tensors, g->map.size);
    return AF_OK;
}

static af_status parse(af_gguf *g, af_error *err)
{
    af_status st = AF_OK;
    uint64_t tensors = 0, keys = 0;
    af_reader r = {g->map.data, g->map.data + g->map.size, false};
    AF_TRY(read_head(g, &r, &tensors, &keys, err));
    AF_TRY(read_keys(g, &r, keys, err));
    const af_gguf_kv *a = af_gguf_find_kv(g, "general.alignment");
    const int64_t align = a ? af_gguf_int(g, "general.alignment", 0) : AF_GGUF_ALIGNMENT;
    if (align < 1 || align > 1 << 30 || (align & (align - 1)))
        return af_fail(err, AF_EFORMAT, "%s: the alignment %" PRId64 " is not a power of two",
                       g->name, align);
    g->alignment = (uint64_t)align;
    AF_TRY(read_tensors(g, &r, tensors, err));
    if (tensors == 0)
        return AF_OK;
    const uint64_t start = AF_ALIGN_UP((uint64_t)(r.at - g->map.data), g->alignment);
    if (start > g->map.size)
        return cut_short(g, "the tensor list", err);
    AF_TRY(check_overlap(g, g->map.size - start, err));
    AF_TRY(place(g, g->map.data + start, err));
done:
    return st;
}

/* Takes the map over when it is `mapped`, also on failure. */
static af_status open_map(af_gguf **out, af_map map, bool mapped, const char *name, af_error *err)
{
    af_gguf *g = af_calloc(1, sizeof *g);
    if (!g) {
        if (mapped)
            af_map_close(&map);
        return af_fail_nomem(err, "a GGUF reader", sizeof *g);
    }
    g->map = map;
    g->mapped = mapped;
    g->name = af_arena_strdup(&g->arena, name);
    const af_status st = g->name ? parse(g, err) : af_fail_nomem(err, "a name", strlen(name));
    if (st != AF_OK) {
        af_gguf_close(g);
        return st;
    }
    *out = g;
    return AF_OK;
}

af_status af_gguf_open_file(af_gguf **out, const char *path, af_error *err)
{
    af_map map = {0};
    const af_status st = af_map_open(&map, path, err);
    return st != AF_OK ? st : open_map(out, map, true, path, err);
}

af_status af_gguf_parse(af_gguf **out, const void *bytes, uint64_t size, const char *name,
                        af_error *err)
{
    return open_map(out, (af_map){bytes, size}, false, name, err);
}

af_status af_gguf_join(af_gguf *g, af_gguf **part, int n, af_error *err)
{
    uint64_t total = (uint64_t)g->count;
    g->part = part;
    g->part_count = n;
    for (int i = 0; i < n; i++)
        total += (uint64_t)part[i]->count;
    if (total > AF_GGUF_TENSORS_MAX)
        return af_fail(err, AF_EFORMAT, "%s: %" PRIu64 " tensors are too many", g->name, total);
    af_stored *list = af_arena_take(&g->arena, AF_MAX(total, 1) * sizeof *list);
    g->sort = af_arena_take(&g->arena, AF_MAX(total, 1) * sizeof *g->sort);
    if (!list || !g->sort)
        return af_fail_nomem(err, "the tensor list", total * sizeof *list);
    int count = 0;
    for (int p = 0; p <= n; p++) {
        const af_gguf *from = p ? part[p - 1] : g;
        for (int i = 0; i < from->count; i++, count++) {
            list[count] = from->list[i];
            list[count].file = p;
            g->sort[count] = &list[count];
        }
    }
    g->list = list;
    g->count = count;
    return sort_names(g, err);
}

void af_gguf_close(af_gguf *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->part_count; i++)
        af_gguf_close(g->part[i]);
    free(g->part);
    if (g->mapped)
        af_map_close(&g->map);
    af_arena_clear(&g->arena);
    free(g);
}

uint32_t af_gguf_version(const af_gguf *g) { return g->version; }
int af_gguf_kv_count(const af_gguf *g) { return g->kv_count; }
int af_gguf_count(const af_gguf *g) { return g->count; }
int af_gguf_files(const af_gguf *g) { return 1 + g->part_count; }

static const af_gguf *file_of(const af_gguf *g, int file)
{
    assert(file >= 0 && file <= g->part_count);
    return file ? g->part[file - 1] : g;
}

const af_map *af_gguf_map(const af_gguf *g, int file) { return &file_of(g, file)->map; }
const char *af_gguf_path(const af_gguf *g, int file) { return file_of(g, file)->name; }

const af_gguf_kv *af_gguf_kv_at(const af_gguf *g, int i)
{
    assert(i >= 0 && i < g->kv_count);
    return &g->kv[i];
}

const af_gguf_kv *af_gguf_find_kv(const af_gguf *g, const char *key)
{
    const af_gguf_kv probe = {.key = key}, *p = &probe;
    const af_gguf_kv **hit =
        g->kv_count ? bsearch(&p, g->kv_sort, (size_t)g->kv_count, sizeof *g->kv_sort, by_key)
                    : NULL;
    return hit ? *hit : NULL;
}

const af_stored *af_gguf_at(const af_gguf *g, int i)
{
    assert(i >= 0 && i < g->count);
    return &g->list[i];
}

const af_stored *af_gguf_find(const af_gguf *g, const char *name)
{
    const af_stored probe = {.name = name}, *p = &probe;
    const af_stored **hit =
        g->count ? bsearch(&p, g->sort, (size_t)g->count, sizeof *g->sort, by_name) : NULL;
    return hit ? *hit : NULL;
}

int64_t af_gguf_ne(const af_stored *t, int i)
{
    assert(i >= 0);
    return i < t->ndim ? t->dim[t->ndim - 1 - i] : 1;
}

static bool is_float(af_gguf_type t) { return t == AF_GGUF_F32 || t == AF_GGUF_F64; }
static bool is_number(af_gguf_type t) { return types[t].bytes != 0; }

static uint64_t raw_item(const af_gguf_kv *kv, uint64_t i)
{
    const int n = types[kv->item].bytes;
    af_reader r = {kv->data + i * (uint64_t)n, kv->data + kv->bytes, false};
    return af_read_uint(&r, n);
}

int64_t af_gguf_item_int(const af_gguf_kv *kv, uint64_t i)
{
    if (!is_number(kv->item) || i >= kv->count)
        return 0;
    if (is_float(kv->item)) {
        const double v = af_gguf_item_float(kv, i);
        return v >= -9e18 && v <= 9e18 ? (int64_t)v : 0;
    }
    const uint64_t u = raw_item(kv, i);
    switch (kv->item) {
    case AF_GGUF_I8:
        return (int8_t)u;
    case AF_GGUF_I16:
        return (int16_t)u;
    case AF_GGUF_I32:
        return (int32_t)u;
    case AF_GGUF_BOOL:
        return u != 0;
    default:
        return (int64_t)u;
    }
}

double af_gguf_item_float(const af_gguf_kv *kv, uint64_t i)
{
    if (!is_number(kv->item) || i >= kv->count)
        return 0;
    const uint64_t u = raw_item(kv, i);
    if (kv->item == AF_GGUF_F32) {
        const uint32_t u32 = (uint32_t)u;
        float f;
        memcpy(&f, &u32, sizeof f);
        return f;
    }
    if (kv->item == AF_GGUF_F64) {
        double d;
        memcpy(&d, &u, sizeof d);
        return d;
    }
    return kv->item == AF_GGUF_U64 ? (double)u : (double)af_gguf_item_int(kv, i);
}

int64_t af_gguf_int(const af_gguf *g, const char *key, int64_t absent)
{
    const af_gguf_kv *kv = af_gguf_find_kv(g, key);
    if (!kv || kv->type == AF_GGUF_ARRAY || !is_number(kv->type) || is_float(kv->type))
        return absent;
    if (kv->type == AF_GGUF_U64 && raw_item(kv, 0) > INT64_MAX)
        return absent;
    return af_gguf_item_int(kv, 0);
}

double af_gguf_float(const af_gguf *g, const char *key, double absent)
{
    const af_gguf_kv *kv = af_gguf_find_kv(g, key);
    if (!kv || kv->type == AF_GGUF_ARRAY || !is_number(kv->type))
        return absent;
    return af_gguf_item_float(kv, 0);
}

bool af_gguf_bool(const af_gguf *g, const char *key, bool absent)
{
    return af_gguf_int(g, key, absent) != 0;
}

af_gguf_str af_gguf_string(const af_gguf *g, const char *key)
{
    const af_gguf_kv *kv = af_gguf_find_kv(g, key);
    return kv && kv->type == AF_GGUF_STRING ? kv->str[0] : (af_gguf_str){0};
}
