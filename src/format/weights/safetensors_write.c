/* safetensors_write.c - the streaming writer: one file, or shards of bounded size with an index.
 *
 * Tensors are declared first, so every header and the split into shards are known before the first
 * byte of data; data then only flows. Each shard is finished under its temporary name and all are
 * renamed at commit, the index last: a reader never sees half a model. */
#include "format/weights/safetensors.h"

#include "base/buf.h"
#include "format/weights/declared.h"

struct af_safetensors_writer {
    char *path;
    uint64_t shard_bytes;
    af_declared_list tensors;
    af_buf meta; /* ,"key":"value" ... */
    af_out **shards;
    int shard_count;
    uint64_t total;
    uint64_t *sizes; /* data bytes of each shard */
    uint64_t *heads; /* where the data of each shard begins */
    bool begun;
    bool reordered; /* offsets are not in the order of declaration: data is placed, not appended */
};

af_status af_safetensors_writer_new(af_safetensors_writer **out, const char *path,
                                    uint64_t shard_bytes, af_error *err)
{
    af_safetensors_writer *w = af_calloc(1, sizeof *w);
    if (!w || !(w->path = af_strdup(path))) {
        free(w);
        return af_fail_nomem(err, "a safetensors writer", sizeof *w);
    }
    w->shard_bytes = shard_bytes;
    *out = w;
    return AF_OK;
}

/* A JSON string: quotes, backslashes and control characters escaped, the rest as it is (UTF-8). */
static void add_json_string(af_buf *b, const char *s)
{
    af_buf_char(b, '"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            af_buf_printf(b, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            af_buf_printf(b, "\\u%04x", *s);
        else
            af_buf_char(b, *s);
    }
    af_buf_char(b, '"');
}

af_status af_safetensors_writer_meta(af_safetensors_writer *w, const char *key, const char *value,
                                     af_error *err)
{
    assert(!w->begun);
    if (strcmp(key, "format") == 0)
        return AF_OK; /* always "pt" */
    af_buf_char(&w->meta, ',');
    add_json_string(&w->meta, key);
    af_buf_char(&w->meta, ':');
    add_json_string(&w->meta, value);
    return w->meta.bad ? af_fail_nomem(err, "metadata", strlen(value)) : AF_OK;
}

af_status af_safetensors_writer_add(af_safetensors_writer *w, const char *name, af_dtype dtype,
                                    const int64_t *dim, int ndim, af_error *err)
{
    assert(!w->begun && ndim >= 0 && ndim <= AF_WEIGHT_NDIM_MAX);
    if (!af_dtype_get(dtype)->safetensors)
        return af_fail(err, AF_EUNSUPPORTED, "tensor '%s': safetensors has no dtype for %s", name,
                       af_dtype_name(dtype));
    const af_status st = af_declared_add(&w->tensors, name, dtype, dim, ndim, err);
    if (st != AF_OK)
        return st;
    w->total += w->tensors.item[w->tensors.count - 1].bytes;
    return AF_OK;
}

/* Tensors stay in order; a shard is closed when the next tensor would pass the limit. */
static void split(af_safetensors_writer *w)
{
    uint64_t held = 0;
    int shard = 0;
    for (int i = 0; i < w->tensors.count; i++) {
        if (w->shard_bytes && held &&
            w->tensors.item[i].bytes > w->shard_bytes - AF_MIN(held, w->shard_bytes)) {
            shard++;
            held = 0;
        }
        held += w->tensors.item[i].bytes;
        w->tensors.item[i].shard = shard;
    }
    w->shard_count = shard + 1;
}

/* Offsets. Readers view the bytes as elements, so each tensor must begin at a multiple of its
 * element size. The declared order is kept when it does that; otherwise wide elements go first. */
static void lay_out(af_safetensors_writer *w, bool sorted)
{
    memset(w->sizes, 0, (uint64_t)w->shard_count * sizeof *w->sizes);
    w->reordered = sorted;
    for (int size = sorted ? 8 : 0; size >= 0; size--)
        for (int i = 0; i < w->tensors.count; i++) {
            af_declared *d = &w->tensors.item[i];
            if (sorted && af_dtype_get(d->dtype)->bytes != size)
                continue;
            d->offset = w->sizes[d->shard];
            w->sizes[d->shard] += d->bytes;
        }
}

static bool is_aligned(const af_safetensors_writer *w)
{
    for (int i = 0; i < w->tensors.count; i++)
        if (w->tensors.item[i].offset % (uint64_t)af_dtype_get(w->tensors.item[i].dtype)->bytes)
            return false;
    return true;
}

static int by_offset_in_shard(const void *a, const void *b)
{
    const af_declared *x = *(af_declared *const *)a, *y = *(af_declared *const *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1) : strcmp(x->name, y->name);
}

static bool add_header(const af_safetensors_writer *w, int shard, af_buf *b)
{
    const af_declared **order = af_calloc((uint64_t)AF_MAX(w->tensors.count, 1), sizeof *order);
    int n = 0;
    if (!order)
        return false;
    for (int i = 0; i < w->tensors.count; i++)
        if (w->tensors.item[i].shard == shard)
            order[n++] = &w->tensors.item[i];
    qsort(order, (size_t)n, sizeof *order, by_offset_in_shard);
    af_buf_str(b, "{\"__metadata__\":{\"format\":\"pt\"");
    if (w->meta.data)
        af_buf_str(b, w->meta.data);
    af_buf_char(b, '}');
    for (int i = 0; i < n; i++) {
        const af_declared *d = order[i];
        af_buf_char(b, ',');
        add_json_string(b, d->name);
        af_buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", af_dtype_get(d->dtype)->safetensors);
        for (int k = 0; k < d->ndim; k++)
            af_buf_printf(b, "%s%" PRId64, k ? "," : "", d->dim[k]);
        af_buf_printf(b, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", d->offset,
                      d->offset + d->bytes);
    }
    af_buf_char(b, '}');
    while (b->len % 8 && !b->bad)
        af_buf_char(b, ' ');
    free(order);
    return !b->bad;
}

/* "x/model.safetensors" -> "x/model-00001-of-00003.safetensors"; the path itself for one file. */
static char *shard_path(const af_safetensors_writer *w, int shard)
{
    static const char ext[] = ".safetensors";
    const size_t n = strlen(w->path), e = sizeof ext - 1;
    const size_t stem = n > e && strcmp(w->path + n - e, ext) == 0 ? n - e : n;
    af_buf b = {0};
    if (w->shard_count == 1)
        return af_strdup(w->path);
    af_buf_add(&b, w->path, stem);
    af_buf_printf(&b, "-%05d-of-%05d%s", shard + 1, w->shard_count, ext);
    char *path = af_buf_take(&b);
    af_buf_clear(&b);
    return path;
}

static af_status begin_shard(af_safetensors_writer *w, int shard, af_error *err)
{
    af_status st = AF_OK;
    af_buf b = {0};
    char *path = shard_path(w, shard);
    if (!path || !add_header(w, shard, &b))
        AF_TRY(af_fail_nomem(err, "a safetensors header", b.len));
    if (b.len > AF_SAFETENSORS_HEADER_MAX)
        AF_TRY(af_fail(err, AF_EUSAGE,
                       "%s: a header of %" PRIu64 " bytes is over the limit of %" PRIu64, path,
                       b.len, AF_SAFETENSORS_HEADER_MAX));
    AF_TRY(af_out_open(&w->shards[shard], path, err));
    uint8_t len[8];
    for (int i = 0; i < 8; i++)
        len[i] = (uint8_t)(b.len >> (8 * i));
    AF_TRY(af_out_write(w->shards[shard], len, sizeof len, err));
    AF_TRY(af_out_write(w->shards[shard], b.data, b.len, err));
    w->heads[shard] = 8 + b.len;
    if (w->reordered)
        AF_TRY(af_out_reserve(w->shards[shard], w->sizes[shard], err));
done:
    free(path);
    af_buf_clear(&b);
    return st;
}

static int by_name_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static af_status check_names(const af_safetensors_writer *w, af_error *err)
{
    const char **names = af_calloc((uint64_t)AF_MAX(w->tensors.count, 1), sizeof *names);
    if (!names)
        return af_fail_nomem(err, "tensor names", (uint64_t)w->tensors.count * sizeof *names);
    for (int i = 0; i < w->tensors.count; i++)
        names[i] = w->tensors.item[i].name;
    qsort(names, (size_t)w->tensors.count, sizeof *names, by_name_text);
    const char *twice = NULL;
    for (int i = 1; i < w->tensors.count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            twice = names[i];
    free(names);
    return twice ? af_fail(err, AF_EUSAGE, "tensor '%s' would be written twice", twice) : AF_OK;
}

af_status af_safetensors_writer_begin(af_safetensors_writer *w, af_error *err)
{
    assert(!w->begun);
    af_status st = check_names(w, err);
    if (st == AF_OK)
        st = af_declared_check_room(&w->tensors, w->path, err);
    if (st != AF_OK)
        return st;
    split(w);
    const uint64_t n = (uint64_t)w->shard_count;
    w->shards = af_arena_take(&w->tensors.arena, n * sizeof *w->shards);
    w->sizes = af_arena_take(&w->tensors.arena, n * sizeof *w->sizes);
    w->heads = af_arena_take(&w->tensors.arena, n * sizeof *w->heads);
    if (!w->shards || !w->sizes || !w->heads)
        return af_fail_nomem(err, "shards", n * 3 * sizeof *w->sizes);
    lay_out(w, false);
    if (!is_aligned(w))
        lay_out(w, true);
    w->begun = true;
    for (int i = 0; i < w->shard_count && st == AF_OK; i++)
        st = begin_shard(w, i, err);
    return st;
}

af_status af_safetensors_writer_data(af_safetensors_writer *w, const void *bytes, uint64_t n,
                                     af_error *err)
{
    af_status st = AF_OK;
    const af_declared *d;
    uint64_t from, take;
    assert(w->begun);
    for (const uint8_t *p = bytes; n > 0; p += take, n -= take) {
        AF_TRY(af_declared_next(&w->tensors, w->path, n, &d, &from, &take, err));
        af_out *out = w->shards[d->shard];
        AF_TRY(w->reordered ? af_out_patch(out, w->heads[d->shard] + d->offset + from, p, take, err)
                            : af_out_write(out, p, take, err));
    }
done:
    return st;
}

static af_status write_index(const af_safetensors_writer *w, af_error *err)
{
    af_status st = AF_OK;
    af_buf b = {0}, path = {0};
    char *shard = NULL;
    af_buf_printf(&b, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n", w->total);
    af_buf_str(&b, "  \"weight_map\": {");
    for (int i = 0; i < w->tensors.count; i++) {
        shard = shard_path(w, w->tensors.item[i].shard);
        if (!shard)
            AF_TRY(af_fail_nomem(err, "a path", strlen(w->path)));
        af_buf_str(&b, i ? ",\n    " : "\n    ");
        add_json_string(&b, w->tensors.item[i].name);
        af_buf_str(&b, ": ");
        add_json_string(&b, af_path_name(shard));
        free(shard);
        shard = NULL;
    }
    af_buf_str(&b, "\n  }\n}\n");
    af_buf_printf(&path, "%s.index.json", w->path);
    if (b.bad || path.bad)
        AF_TRY(af_fail_nomem(err, "the index", b.len));
    AF_TRY(af_file_write(path.data, b.data, b.len, err));
done:
    free(shard);
    af_buf_clear(&b);
    af_buf_clear(&path);
    return st;
}

af_status af_safetensors_writer_commit(af_safetensors_writer *w, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_declared_complete(&w->tensors, w->path, err));
    for (int i = 0; i < w->shard_count; i++) {
        af_out *o = w->shards[i];
        w->shards[i] = NULL;
        AF_TRY(af_out_commit(o, err));
    }
    if (w->shard_count > 1)
        AF_TRY(write_index(w, err));
done:
    af_safetensors_writer_abandon(w);
    return st;
}

void af_safetensors_writer_abandon(af_safetensors_writer *w)
{
    if (!w)
        return;
    for (int i = 0; w->shards && i < w->shard_count; i++)
        af_out_abandon(w->shards[i]);
    af_declared_clear(&w->tensors);
    free(w->path);
    af_buf_clear(&w->meta);
    free(w);
}
