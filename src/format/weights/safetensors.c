/* safetensors.c - the reader of one file; see safetensors.h.
 *
 * File: u64 header length, that many bytes of JSON, data. The checks are those of the reference
 * library: tensors sorted by offset must tile the data exactly. */
#include "format/weights/safetensors.h"

#include "base/reader.h"
#include "format/text/json_text.h"

#include <jansson.h>

typedef struct meta_pair {
    const char *key, *value;
} meta_pair;

struct af_safetensors {
    af_map map;
    bool mapped; /* the map is ours to close */
    const char *name;
    af_stored *list;  /* in data order */
    af_stored **sort; /* by name */
    int count;
    meta_pair *meta;
    int meta_count;
    af_arena arena; /* names, shapes, and copies of tensors that lie unaligned */
};

/* While parsing: a tensor and where its data is, relative to the data part. */
typedef struct data_span {
    af_stored w;
    uint64_t from, to;
} data_span;

static int by_offset(const void *a, const void *b)
{
    const data_span *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->to != y->to ? (x->to < y->to ? -1 : 1) : strcmp(x->w.name, y->w.name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(af_stored *const *)a)->name, (*(af_stored *const *)b)->name);
}

/* A JSON integer that is not negative. */
static bool natural(const json_t *j, uint64_t *out)
{
    if (!json_is_integer(j) || json_integer_value(j) < 0)
        return false;
    *out = (uint64_t)json_integer_value(j);
    return true;
}

static af_status read_shape(af_stored *w, const json_t *shape, const char *file, af_error *err)
{
    uint64_t count = 1;
    if (!json_is_array(shape) || json_array_size(shape) > AF_WEIGHT_NDIM_MAX)
        return af_fail(err, AF_EFORMAT,
                       "%s: the shape of tensor '%s' is not a list of 0 to %d dimensions", file,
                       w->name, AF_WEIGHT_NDIM_MAX);
    for (int i = 0; i < AF_WEIGHT_NDIM_MAX; i++)
        w->dim[i] = 1;
    w->ndim = (int)json_array_size(shape);
    for (int i = 0; i < w->ndim; i++) {
        uint64_t d;
        if (!natural(json_array_get(shape, (size_t)i), &d) || d > INT64_MAX ||
            !af_mul_ok(count, d, &count) || count > INT64_MAX)
            return af_fail(err, AF_EFORMAT, "%s: dimension %d of tensor '%s' is invalid", file, i,
                           w->name);
        w->dim[i] = (int64_t)d;
    }
    if (!af_dtype_bytes(w->dtype, count, &w->bytes))
        return af_fail(err, AF_EFORMAT, "%s: tensor '%s' has too many elements", file, w->name);
    return AF_OK;
}

static af_status read_entry(data_span *out, const char *name, json_t *j, const char *file,
                            af_error *err)
{
    data_span s = {.w.name = name};
    if (!json_is_object(j))
        return af_fail(err, AF_EFORMAT, "%s: entry of tensor '%s' is not an object", file, name);
    const char *dtype = json_string_value(json_object_get(j, "dtype"));
    if (!dtype)
        return af_fail(err, AF_EFORMAT, "%s: tensor '%s' has no dtype", file, name);
    if (!af_dtype_by_safetensors(&s.w.dtype, dtype))
        return af_fail(err, AF_EUNSUPPORTED, "%s: tensor '%s' has the unknown dtype '%.32s'", file,
                       name, dtype);
    const af_status st = read_shape(&s.w, json_object_get(j, "shape"), file, err);
    if (st != AF_OK)
        return st;
    const json_t *off = json_object_get(j, "data_offsets");
    if (!json_is_array(off) || json_array_size(off) != 2 ||
        !natural(json_array_get(off, 0), &s.from) || !natural(json_array_get(off, 1), &s.to) ||
        s.to < s.from)
        return af_fail(err, AF_EFORMAT, "%s: tensor '%s' has no valid data_offsets", file, name);
    if (s.to - s.from != s.w.bytes)
        return af_fail(err, AF_EFORMAT,
                       "%s: tensor '%s' needs %" PRIu64 " bytes by shape and dtype but its offsets "
                       "span %" PRIu64,
                       file, name, s.w.bytes, s.to - s.from);
    *out = s;
    return AF_OK;
}

static af_status read_meta(af_safetensors *s, json_t *j, af_error *err)
{
    const char *key;
    json_t *value;
    if (json_is_null(j)) /* as MLX writes it */
        return AF_OK;
    if (!json_is_object(j))
        return af_fail(err, AF_EFORMAT, "%s: __metadata__ is not an object", s->name);
    s->meta = af_arena_take(&s->arena, AF_MAX(json_object_size(j), 1) * sizeof *s->meta);
    if (!s->meta)
        return af_fail_nomem(err, "metadata", json_object_size(j) * sizeof *s->meta);
    json_object_foreach(j, key, value)
    {
        if (!json_is_string(value))
            return af_fail(err, AF_EFORMAT, "%s: metadata '%.64s' is not a string", s->name, key);
        meta_pair p = {af_arena_strdup(&s->arena, key),
                       af_arena_strdup(&s->arena, json_string_value(value))};
        if (!p.key || !p.value)
            return af_fail_nomem(err, "metadata", json_string_length(value));
        s->meta[s->meta_count++] = p;
    }
    return AF_OK;
}

/* Fills spans[] (space for every key of the header) and the metadata. */
static af_status read_entries(af_safetensors *s, json_t *root, data_span *spans, af_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            const af_status st = read_meta(s, value, err);
            if (st != AF_OK)
                return st;
            continue;
        }
        const char *name = af_arena_strdup(&s->arena, key);
        if (!name)
            return af_fail_nomem(err, "tensor names", strlen(key));
        const af_status st = read_entry(&spans[s->count], name, value, s->name, err);
        if (st != AF_OK)
            return st;
        s->count++;
    }
    return AF_OK;
}

/* Old writers did not pad the header; an unaligned tensor is copied so that callers may index it.
 */
static af_status place(af_safetensors *s, af_stored *w, const uint8_t *at, af_error *err)
{
    const uintptr_t size = (uintptr_t)af_dtype_get(w->dtype)->bytes;
    w->data = at;
    if ((uintptr_t)at % size == 0)
        return AF_OK;
    void *copy = af_arena_take(&s->arena, w->bytes);
    if (!copy)
        return af_fail_nomem(err, w->name, w->bytes);
    memcpy(copy, at, w->bytes);
    w->data = copy;
    return AF_OK;
}

static af_status place_all(af_safetensors *s, data_span *spans, const uint8_t *data, uint64_t size,
                           af_error *err)
{
    uint64_t end = 0;
    s->list = af_arena_take(&s->arena, (uint64_t)AF_MAX(s->count, 1) * sizeof *s->list);
    s->sort = af_arena_take(&s->arena, (uint64_t)AF_MAX(s->count, 1) * sizeof(af_stored *));
    if (!s->list || !s->sort)
        return af_fail_nomem(err, "the tensor list", (uint64_t)s->count * sizeof *s->list);
    if (s->count)
        qsort(spans, (size_t)s->count, sizeof *spans, by_offset);
    for (int i = 0; i < s->count; i++) {
        const data_span *p = &spans[i];
        if (p->from != end)
            return af_fail(err, AF_EFORMAT,
                           "%s: tensor '%s' begins at byte %" PRIu64 " of the data where %" PRIu64
                           " is expected (%s)",
                           s->name, p->w.name, p->from, end,
                           p->from < end ? "tensors overlap" : "a hole");
        if (p->to > size)
            return af_fail(err, AF_EFORMAT,
                           "%s: tensor '%s' ends at byte %" PRIu64 " but the data has %" PRIu64
                           " bytes",
                           s->name, p->w.name, p->to, size);
        s->list[i] = p->w;
        s->sort[i] = &s->list[i];
        const af_status st = place(s, &s->list[i], data + p->from, err);
        if (st != AF_OK)
            return st;
        end = p->to;
    }
    if (end != size)
        return af_fail(err, AF_EFORMAT,
                       "%s: tensors cover %" PRIu64 " bytes but the data has %" PRIu64, s->name,
                       end, size);
    if (s->count)
        qsort(s->sort, (size_t)s->count, sizeof *s->sort, by_name);
    return AF_OK;
}

static af_status load_header(json_t **out, const uint8_t *text, uint64_t n, const char *name,
                             af_error *err)
{
    json_error_t je;
    if (n == 0 || text[0] != '{')
        return af_fail(err, AF_EFORMAT, "%s: the header does not begin with '{'", name);
    *out = af_json_load((const char *)text, n, JSON_REJECT_DUPLICATES, &je);
    if (!*out)
        return af_fail(err, AF_EFORMAT, "%s: the header is not valid JSON: %s", name, je.text);
    return AF_OK;
}

static af_status parse(af_safetensors *s, af_error *err)
{
    af_status st = AF_OK;
    json_t *root = NULL;
    data_span *spans = NULL;
    af_reader r = {s->map.data, s->map.data + s->map.size, false};
    const uint64_t n = af_read_u64(&r);
    if (r.bad)
        return af_fail(err, AF_EFORMAT, "%s: %" PRIu64 " bytes are too few for a safetensors file",
                       s->name, s->map.size);
    if (n > AF_SAFETENSORS_HEADER_MAX)
        return af_fail(err, AF_EFORMAT,
                       "%s: a header of %" PRIu64 " bytes is over the limit of %" PRIu64, s->name,
                       n, AF_SAFETENSORS_HEADER_MAX);
    const uint8_t *text = af_read_bytes(&r, n);
    if (!text)
        return af_fail(err, AF_EFORMAT,
                       "%s: the header needs %" PRIu64 " bytes but the file has %" PRIu64, s->name,
                       n, s->map.size - 8);
    AF_TRY(load_header(&root, text, n, s->name, err));
    spans = af_calloc(AF_MAX(json_object_size(root), 1), sizeof *spans);
    if (!spans)
        AF_TRY(af_fail_nomem(err, "the tensor list", json_object_size(root) * sizeof *spans));
    AF_TRY(read_entries(s, root, spans, err));
    AF_TRY(place_all(s, spans, r.at, af_read_left(&r), err));
done:
    free(spans);
    json_decref(root);
    return st;
}

/* Takes the map over when it is `mapped`, also on failure. */
static af_status open_map(af_safetensors **out, af_map map, bool mapped, const char *name,
                          af_error *err)
{
    af_safetensors *s = af_calloc(1, sizeof *s);
    if (!s) {
        if (mapped)
            af_map_close(&map);
        return af_fail_nomem(err, "a safetensors reader", sizeof *s);
    }
    s->map = map;
    s->mapped = mapped;
    s->name = af_arena_strdup(&s->arena, name);
    const af_status st = s->name ? parse(s, err) : af_fail_nomem(err, "a name", strlen(name));
    if (st != AF_OK) {
        af_safetensors_close(s);
        return st;
    }
    *out = s;
    return AF_OK;
}

af_status af_safetensors_open(af_safetensors **out, const char *path, af_error *err)
{
    af_map map = {0};
    const af_status st = af_map_open(&map, path, err);
    return st != AF_OK ? st : open_map(out, map, true, path, err);
}

af_status af_safetensors_parse(af_safetensors **out, const void *bytes, uint64_t size,
                               const char *name, af_error *err)
{
    return open_map(out, (af_map){bytes, size}, false, name, err);
}

void af_safetensors_close(af_safetensors *s)
{
    if (!s)
        return;
    if (s->mapped)
        af_map_close(&s->map);
    af_arena_clear(&s->arena);
    free(s);
}

int af_safetensors_count(const af_safetensors *s) { return s->count; }

const af_stored *af_safetensors_at(const af_safetensors *s, int i)
{
    assert(i >= 0 && i < s->count);
    return &s->list[i];
}

const af_stored *af_safetensors_find(const af_safetensors *s, const char *name)
{
    const af_stored key = {.name = name}, *p = &key;
    af_stored **hit =
        s->count ? bsearch(&p, s->sort, (size_t)s->count, sizeof *s->sort, by_name) : NULL;
    return hit ? *hit : NULL;
}

int af_safetensors_meta_count(const af_safetensors *s) { return s->meta_count; }

void af_safetensors_meta_at(const af_safetensors *s, int i, const char **key, const char **value)
{
    assert(i >= 0 && i < s->meta_count);
    *key = s->meta[i].key;
    *value = s->meta[i].value;
}

const char *af_safetensors_meta(const af_safetensors *s, const char *key)
{
    for (int i = 0; i < s->meta_count; i++)
        if (strcmp(s->meta[i].key, key) == 0)
            return s->meta[i].value;
    return NULL;
}

const af_map *af_safetensors_map(const af_safetensors *s) { return &s->map; }
