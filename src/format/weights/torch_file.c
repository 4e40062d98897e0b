/* torch_file.c - tensors of a file of torch.save; see torch_file.h. */
#include "format/weights/torch_file.h"

#include "base/word.h"
#include "format/weights/pickle.h"

enum { WRAPS_MAX = 8 }; /* a tensor inside a parameter inside a subclass ... */

struct af_torch_file {
    af_map map;
    bool mapped;             /* the map is ours to close */
    af_torch_record *record; /* sorted by key */
    uint64_t records;
    af_stored *list; /* in the order of the dictionary */
    int count;
    uint64_t copied; /* bytes of tensors that are not in the map */
    af_arena arena;
};

typedef struct torch_type {
    const char *storage, *dtype; /* names in torch */
    af_dtype type;
} torch_type;

static const torch_type types[] = {
    {"torch.FloatStorage", "torch.float32", AF_DTYPE_F32},
    {"torch.HalfStorage", "torch.float16", AF_DTYPE_F16},
    {"torch.BFloat16Storage", "torch.bfloat16", AF_DTYPE_BF16},
    {"torch.DoubleStorage", "torch.float64", AF_DTYPE_F64},
    {"torch.ByteStorage", "torch.uint8", AF_DTYPE_U8},
    {"torch.CharStorage", "torch.int8", AF_DTYPE_I8},
    {"torch.ShortStorage", "torch.int16", AF_DTYPE_I16},
    {"torch.IntStorage", "torch.int32", AF_DTYPE_I32},
    {"torch.LongStorage", "torch.int64", AF_DTYPE_I64},
    {"torch.BoolStorage", "torch.bool", AF_DTYPE_BOOL},
    {NULL, "torch.float8_e4m3fn", AF_DTYPE_E4M3},
    {NULL, "torch.float8_e5m2", AF_DTYPE_E5M2},
    {NULL, "torch.uint16", AF_DTYPE_U16},
    {NULL, "torch.uint32", AF_DTYPE_U32},
    {NULL, "torch.uint64", AF_DTYPE_U64},
};

static const torch_type *type_of(const af_pickle *name)
{
    for (size_t i = 0; name->kind == AF_PICKLE_NAME && i < AF_LEN(types); i++)
        if (strcmp(name->text, types[i].dtype) == 0 ||
            (types[i].storage && strcmp(name->text, types[i].storage) == 0))
            return &types[i];
    return NULL;
}

/* ---- one tensor ---- */

/* What _rebuild_tensor_v2 is called with: (storage, offset, size, stride, ...); NULL when it is
 * something else. *fn is what is called, for messages. */
static const af_pickle *tensor_args(const af_pickle *v, const char **fn)
{
    *fn = NULL;
    for (int i = 0; i < WRAPS_MAX && v->kind == AF_PICKLE_CALL; i++) {
        const af_pickle *name = v->fn, *arg = v->arg;
        if (af_pickle_is(name, AF_PICKLE_NAME, "torch._tensor._rebuild_from_type_v2")) {
            name = af_pickle_at(arg, 0); /* (function, class, its arguments, attributes) */
            arg = af_pickle_at(arg, 2);
        }
        if (name->kind != AF_PICKLE_NAME)
            return NULL;
        *fn = name->text;
        if (strcmp(*fn, "torch._utils._rebuild_tensor") == 0 ||
            strcmp(*fn, "torch._utils._rebuild_tensor_v2") == 0 ||
            strcmp(*fn, "torch._utils._rebuild_tensor_v3") == 0)
            return arg;
        if (strcmp(*fn, "torch._utils._rebuild_parameter") != 0 &&
            strcmp(*fn, "torch._utils._rebuild_parameter_with_state") != 0)
            return NULL;
        v = af_pickle_at(arg, 0);
    }
    return NULL;
}

/* The values of a storage: ("storage", class, key, place, elements). */
static const af_torch_record *find_record(const af_torch_file *f, const af_pickle *storage)
{
    const af_pickle none = {0}, *id = storage->kind == AF_PICKLE_ID ? storage->arg : &none,
                    *key = af_pickle_at(id, 2);
    uint64_t from = 0, to = f->records;
    if (!af_pickle_is(af_pickle_at(id, 0), AF_PICKLE_TEXT, "storage") ||
        key->kind != AF_PICKLE_TEXT)
        return NULL;
    while (from < to) {
        const uint64_t mid = from + (to - from) / 2;
        const int cmp = strcmp(f->record[mid].key, key->text);
        if (cmp == 0)
            return &f->record[mid];
        if (cmp < 0)
            from = mid + 1;
        else
            to = mid;
    }
    return NULL;
}

/* Shape and strides; false when they are not ones of a tensor that lies inside `elements`. */
static bool read_shape(af_stored *t, int64_t stride[AF_WEIGHT_NDIM_MAX], bool *plain,
                       const af_pickle *arg, uint64_t elements, uint64_t *offset)
{
    const af_pickle *size = af_pickle_at(arg, 2), *step = af_pickle_at(arg, 3);
    uint64_t count = 1, last = 0, expected = 1;
    *plain = true;
    *offset = (uint64_t)af_pickle_at(arg, 1)->number; /* a negative one is too large */
    if (size->kind != AF_PICKLE_TUPLE || size->count > AF_WEIGHT_NDIM_MAX ||
        step->count != size->count)
        return false;
    for (int i = 0; i < AF_WEIGHT_NDIM_MAX; i++)
        t->dim[i] = 1;
    t->ndim = (int)size->count;
    for (int i = t->ndim - 1; i >= 0; i--) {
        const int64_t d = af_pickle_at(size, (uint64_t)i)->number;
        const int64_t s = af_pickle_at(step, (uint64_t)i)->number;
        uint64_t reach;
        if (d < 0 || s < 0 || !af_mul_ok(count, (uint64_t)d, &count) || count > INT64_MAX)
            return false;
        t->dim[i] = d;
        stride[i] = s;
        *plain &= d == 1 || (uint64_t)s == expected;
        expected = count;
        if (d > 1 &&
            (!af_mul_ok((uint64_t)d - 1, (uint64_t)s, &reach) || !af_add_ok(last, reach, &last)))
            return false;
    }
    return af_dtype_bytes(t->dtype, count, &t->bytes) && *offset <= elements &&
           (count == 0 || last < elements - *offset);
}

/* The values in the order of the shape. */
static void gather(uint8_t *out, const uint8_t *from, const af_stored *t, const int64_t *stride,
                   uint64_t bytes)
{
    int64_t at[AF_WEIGHT_NDIM_MAX] = {0};
    const int64_t n = af_weight_count(t);
    for (int64_t i = 0; i < n; i++) {
        uint64_t src = 0;
        for (int k = 0; k < t->ndim; k++)
            src += (uint64_t)(at[k] * stride[k]);
        memcpy(out + (uint64_t)i * bytes, from + src * bytes, bytes);
        for (int k = t->ndim - 1; k >= 0 && ++at[k] == t->dim[k]; k--)
            at[k] = 0;
    }
}

/* `at` is the first element. */
static af_status place(af_torch_file *f, af_stored *t, const uint8_t *at, bool plain,
                       const int64_t *stride, af_error *err)
{
    const uint64_t bytes = (uint64_t)af_dtype_get(t->dtype)->bytes;
    t->data = at;
    if (plain && (uintptr_t)at % bytes == 0)
        return AF_OK;
    /* a stride of 0 repeats values, and storages may be shared: the file does not bound the size */
    if (!af_add_ok(f->copied, t->bytes, &f->copied) || f->copied / 2 > f->map.size)
        return af_fail(err, AF_EFORMAT, "tensor '%.100s' has more values than the file", t->name);
    uint8_t *copy = af_arena_take(&f->arena, AF_MAX(t->bytes, 1));
    if (!copy)
        return af_fail_nomem(err, t->name, t->bytes);
    if (plain)
        memcpy(copy, at, t->bytes);
    else
        gather(copy, at, t, stride, bytes);
    t->data = copy;
    return AF_OK;
}

static af_status read_tensor(af_torch_file *f, af_stored *t, const af_pickle *v, af_error *err)
{
    const char *fn;
    const af_pickle *arg = tensor_args(v, &fn);
    if (!arg && fn)
        return af_fail(err, AF_EUNSUPPORTED,
                       "'%.100s' is made by a call of '%.80s', which is not done: save the model "
                       "as safetensors",
                       t->name, fn);
    if (!arg)
        return af_fail(err, AF_EUNSUPPORTED,
                       "'%.100s' is not a tensor: a dictionary of tensors is expected", t->name);
    const af_pickle *storage = af_pickle_at(arg, 0), *dtype = af_pickle_at(arg, 6);
    const af_torch_record *r = find_record(f, storage);
    const torch_type *type = dtype->kind == AF_PICKLE_NAME ? type_of(dtype)
                             : r                           ? type_of(af_pickle_at(storage->arg, 1))
                                                           : NULL;
    if (!r)
        return af_fail(err, AF_EFORMAT, "the values of tensor '%.100s' are missing", t->name);
    if (!type)
        return af_fail(err, AF_EUNSUPPORTED, "tensor '%.100s' has an unknown dtype", t->name);
    t->dtype = type->type;
    const uint64_t bytes = (uint64_t)af_dtype_get(t->dtype)->bytes;
    int64_t stride[AF_WEIGHT_NDIM_MAX] = {0};
    uint64_t offset;
    bool plain;
    if (!read_shape(t, stride, &plain, arg, r->bytes / bytes, &offset))
        return af_fail(err, AF_EFORMAT, "tensor '%.100s' does not fit into its %" PRIu64 " bytes",
                       t->name, r->bytes);
    return place(f, t, r->data + offset * bytes, plain, stride, err);
}

/* ---- the dictionary ---- */

static bool is_dict(const af_pickle *v)
{
    return v->kind == AF_PICKLE_DICT ||
           (v->kind == AF_PICKLE_CALL &&
            af_pickle_is(v->fn, AF_PICKLE_NAME, "collections.OrderedDict") && v->arg->count == 0);
}

static af_status read_dict(af_torch_file *f, const af_pickle *root, af_error *err)
{
    if (!is_dict(root) || root->count / 2 > INT32_MAX)
        return af_fail(err, AF_EUNSUPPORTED, "it is not a dictionary of tensors");
    f->list = af_arena_take(&f->arena, AF_MAX(root->count / 2, 1) * sizeof *f->list);
    if (!f->list)
        return af_fail_nomem(err, "the tensor list", root->count / 2 * sizeof *f->list);
    for (uint64_t i = 0; i + 1 < root->count; i += 2) {
        const af_pickle *key = root->item[i];
        af_stored *t = &f->list[f->count];
        if (key->kind != AF_PICKLE_TEXT || strlen(key->text) != key->text_len)
            return af_fail(err, AF_EFORMAT, "the dictionary has a key that is not a name");
        t->name = key->text;
        const af_status st = read_tensor(f, t, root->item[i + 1], err);
        if (st != AF_OK)
            return st;
        f->count++;
    }
    return AF_OK;
}

static af_status read_archive(af_torch_file *f, af_error *err)
{
    af_torch_archive a = {0};
    const af_pickle *root;
    af_status st = af_torch_archive_read(&a, &f->arena, f->map.data, f->map.size, err);
    if (st == AF_OK && a.pickle_bytes > AF_PICKLE_MAX)
        st = af_fail(err, AF_EFORMAT, "a pickle of %" PRIu64 " bytes is over the limit of %" PRIu64,
                     a.pickle_bytes, AF_PICKLE_MAX);
    if (st != AF_OK)
        return st;
    af_reader r = {a.pickle, a.pickle + a.pickle_bytes, false};
    f->record = a.record;
    f->records = a.count;
    st = af_pickle_read(&root, NULL, &f->arena, &r, err);
    return st == AF_OK ? read_dict(f, root, err) : st;
}

/* ---- the stream of torch before 1.6 ---- */

static const uint8_t stream_sign[] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c, 0x46,
                                      0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

static const char *key_of(const af_pickle *id)
{
    const af_pickle *key = af_pickle_at(id->arg, 2);
    return key->kind == AF_PICKLE_TEXT ? key->text : "";
}

static int by_storage_key(const void *a, const void *b)
{
    return strcmp(key_of(*(af_pickle *const *)a), key_of(*(af_pickle *const *)b));
}

/* The bytes of an element of the storage that has this key; 0 = there is none. */
static uint64_t element_bytes(const af_pickle_ids *ids, const af_pickle *key)
{
    const af_pickle none = {0}, *item[] = {&none, &none, key};
    const af_pickle arg = {.kind = AF_PICKLE_TUPLE, .item = (af_pickle **)item, .count = 3};
    const af_pickle id = {.kind = AF_PICKLE_ID, .arg = &arg}, *p = &id;
    af_pickle **hit =
        ids->count ? bsearch(&p, ids->item, ids->count, sizeof *ids->item, by_storage_key) : NULL;
    const torch_type *type = hit ? type_of(af_pickle_at((*hit)->arg, 1)) : NULL;
    /* a view of another storage, as torch 0.3 had them, has a sixth item */
    const bool whole = hit && af_pickle_at((*hit)->arg, 5)->kind == AF_PICKLE_NONE;
    return type && whole ? (uint64_t)af_dtype_get(type->type)->bytes : 0;
}

/* After the dictionary: the keys of all storages, then of each the number of values and these. */
static af_status read_storages(af_torch_file *f, const af_pickle_ids *ids, af_reader *r,
                               af_error *err)
{
    const af_pickle *keys;
    const af_status st = af_pickle_read(&keys, NULL, &f->arena, r, err);
    if (st != AF_OK)
        return st;
    f->record = af_arena_take(&f->arena, AF_MAX(keys->count, 1) * sizeof *f->record);
    if (!f->record)
        return af_fail_nomem(err, "the storages", keys->count * sizeof *f->record);
    if (ids->count)
        qsort(ids->item, ids->count, sizeof *ids->item, by_storage_key);
    for (uint64_t i = 0; i < keys->count && keys->kind == AF_PICKLE_TUPLE; i++) {
        const af_pickle *key = keys->item[i];
        uint64_t bytes = key->kind == AF_PICKLE_TEXT ? element_bytes(ids, key) : 0;
        const uint64_t n = af_read_u64(r);
        const bool known = bytes > 0 && af_mul_ok(n, bytes, &bytes);
        const uint8_t *data = known ? af_read_bytes(r, bytes) : NULL;
        if (!data)
            return af_fail(err, AF_EFORMAT, "the values of the tensors are damaged or cut off");
        f->record[f->records++] = (af_torch_record){key->text, data, bytes};
    }
    af_torch_records_sort(f->record, f->records);
    return AF_OK;
}

static af_status read_stream(af_torch_file *f, af_error *err)
{
    af_reader r = {f->map.data + sizeof stream_sign, f->map.data + f->map.size, false};
    const af_pickle *root = NULL;
    af_pickle_ids ids = {0};
    af_status st = AF_OK;
    for (int i = 0; i < 2; i++) /* version, properties of the machine */
        AF_TRY(af_pickle_read(&root, NULL, &f->arena, &r, err));
    AF_TRY(af_pickle_read(&root, &ids, &f->arena, &r, err));
    AF_TRY(read_storages(f, &ids, &r, err));
    AF_TRY(read_dict(f, root, err));
done:
    free(ids.item);
    return st;
}

/* ---- the file ---- */

static af_status read_file(af_torch_file *f, af_error *err)
{
    const uint64_t n = f->map.size;
    if (n >= 4 && memcmp(f->map.data, "PK\3\4", 4) == 0)
        return read_archive(f, err);
    if (n >= sizeof stream_sign && memcmp(f->map.data, stream_sign, sizeof stream_sign) == 0)
        return read_stream(f, err);
    return af_fail(err, AF_EFORMAT, "this is not a file of torch.save");
}

/* Takes the map over when it is `mapped`, also on failure. */
static af_status open_map(af_torch_file **out, af_map map, bool mapped, const char *name,
                          af_error *err)
{
    af_torch_file *f = af_calloc(1, sizeof *f);
    if (!f) {
        if (mapped)
            af_map_close(&map);
        return af_fail_nomem(err, "a reader of torch files", sizeof *f);
    }
    f->map = map;
    f->mapped = mapped;
    const af_status st = read_file(f, err);
    if (st != AF_OK) {
        af_torch_file_close(f);
        return err ? af_fail_prefix(st, err, "%s", name) : st;
    }
    *out = f;
    return AF_OK;
}

af_status af_torch_file_open(af_torch_file **out, const char *path, af_error *err)
{
    af_map map = {0};
    const af_status st = af_map_open(&map, path, err);
    return st != AF_OK ? st : open_map(out, map, true, path, err);
}

af_status af_torch_file_parse(af_torch_file **out, const void *bytes, uint64_t size,
                              const char *name, af_error *err)
{
    return open_map(out, (af_map){bytes, size}, false, name, err);
}

void af_torch_file_close(af_torch_file *f)
{
    if (!f)
        return;
    if (f->mapped)
        af_map_close(&f->map);
    af_arena_clear(&f->arena);
    free(f);
}

int af_torch_file_count(const af_torch_file *f) { return f->count; }

const af_stored *af_torch_file_at(const af_torch_file *f, int i)
{
    assert(i >= 0 && i < f->count);
    return &f->list[i];
}

const af_map *af_torch_file_map(const af_torch_file *f) { return &f->map; }

bool af_torch_file_named(const char *path)
{
    return af_ends_with(path, ".bin") || af_ends_with(path, ".pt") || af_ends_with(path, ".pth");
}
