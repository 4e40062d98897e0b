/* arrow_schema.c - see arrow_schema.h. */
#include "format/columns/arrow_schema.h"

/* Arrow's numbers of the types. */
enum {
    T_NULL = 1,
    T_INT,
    T_FLOAT,
    T_BINARY,
    T_UTF8,
    T_BOOL,
    T_DECIMAL,
    T_DATE,
    T_TIME,
    T_TIMESTAMP,
    T_INTERVAL,
    T_LIST,
    T_STRUCT,
    T_UNION,
    T_FIXED_BINARY,
    T_FIXED_LIST,
    T_MAP,
    T_DURATION,
    T_LARGE_BINARY,
    T_LARGE_UTF8,
    T_LARGE_LIST,
    T_RUN_END,
    T_BINARY_VIEW,
    T_UTF8_VIEW,
    T_LIST_VIEW,
    T_LARGE_LIST_VIEW,
};

typedef struct reading {
    af_arrow_schema *s;
    af_flat *f;
    af_error *err;
} reading;

const char *af_arrow_path(const af_arrow_field *f, char out[AF_ARROW_PATH])
{
    const af_arrow_field *up[AF_ARROW_DEPTH_MAX + 2];
    int count = 0;
    size_t used = 0;
    for (; f && f->parent && count < (int)AF_LEN(up); f = f->parent)
        up[count++] = f;
    for (out[0] = 0; count > 0 && used < AF_ARROW_PATH; count--)
        used += (size_t)snprintf(out + used, AF_ARROW_PATH - used, "%s%.80s", used ? "." : "",
                                 up[count - 1]->name);
    return out;
}

static af_status fail_column(const reading *r, const af_arrow_field *n, const char *why)
{
    char path[AF_ARROW_PATH];
    return af_fail(r->err, AF_EFORMAT, "%s: column %s: %s", r->s->name, af_arrow_path(n, path),
                   why);
}

static int digits_of(int64_t unit) { return unit >= 0 && unit <= 3 ? (int)(3 * unit) : 0; }

static bool read_int(const reading *r, const af_flat_table *t, int *width, bool *is_signed)
{
    const int64_t bits = af_flat_int(r->f, t, 0, 4, 0);
    *width = (int)(bits / 8);
    *is_signed = af_flat_int(r->f, t, 1, 1, 0) != 0;
    return bits == 8 || bits == 16 || bits == 32 || bits == 64;
}

/* Times: the unit is the first field. */
static void read_when(const reading *r, af_arrow_field *n, int64_t type, const af_flat_table *t)
{
    uint64_t len;
    af_column_type *v = &n->type;
    const int64_t unit = af_flat_int(r->f, t, 0, 2, type == T_TIMESTAMP ? 0 : 1);
    v->width = 8;
    v->digits = digits_of(unit);
    if (type == T_DATE) { /* days, or milliseconds */
        v->kind = AF_COLUMN_DATE;
        v->digits = unit == 0 ? -1 : 3;
        v->width = unit == 0 ? 4 : 8;
    } else if (type == T_TIME) {
        v->kind = AF_COLUMN_TIME;
        v->width = af_flat_int(r->f, t, 1, 4, 32) == 64 ? 8 : 4;
    } else if (type == T_TIMESTAMP) {
        v->kind = AF_COLUMN_STAMP;
        v->zone = af_flat_text(r->f, t, 1, &len) && len > 0;
    } else {
        v->kind = AF_COLUMN_INT;
        v->is_signed = true;
    }
}

static bool read_fixed(const reading *r, af_arrow_field *n, int64_t type, const af_flat_table *t)
{
    static const int floats[] = {2, 4, 8};
    af_column_type *v = &n->type;
    n->shape = AF_ARROW_FIXED;
    int64_t x;
    switch (type) {
    case T_INT:
        v->kind = AF_COLUMN_INT;
        return read_int(r, t, &v->width, &v->is_signed);
    case T_FLOAT:
        x = af_flat_int(r->f, t, 0, 2, 0);
        v->kind = AF_COLUMN_FLOAT;
        v->width = x >= 0 && x < 3 ? floats[x] : 0;
        return v->width > 0;
    case T_BOOL:
        v->kind = AF_COLUMN_BOOL;
        return true;
    case T_DECIMAL:
        x = af_flat_int(r->f, t, 2, 4, 128);
        *v = (af_column_type){.kind = AF_COLUMN_DECIMAL, .width = (int)(x / 8)};
        v->scale = (int)af_flat_int(r->f, t, 1, 4, 0);
        return (x == 32 || x == 64 || x == 128 || x == 256) && v->scale >= -1000 &&
               v->scale <= 1000;
    case T_FIXED_BINARY:
        x = af_flat_int(r->f, t, 0, 4, 0);
        v->kind = AF_COLUMN_BYTES;
        v->width = (int)x;
        return x > 0 && x <= 1 << 24;
    default:
        read_when(r, n, type, t);
        return true;
    }
}

static bool read_type(const reading *r, af_arrow_field *n, int64_t type, const af_flat_table *t)
{
    n->offset_width = 4;
    switch (type) {
    case T_NULL:
        n->shape = AF_ARROW_NULL;
        return true;
    case T_INT:
    case T_FLOAT:
    case T_BOOL:
    case T_DECIMAL:
    case T_DATE:
    case T_TIME:
    case T_TIMESTAMP:
    case T_DURATION:
    case T_FIXED_BINARY:
        return read_fixed(r, n, type, t);
    case T_LARGE_BINARY:
    case T_LARGE_UTF8:
    case T_BINARY:
    case T_UTF8:
        n->shape = AF_ARROW_BYTES;
        n->type.kind = type == T_UTF8 || type == T_LARGE_UTF8 ? AF_COLUMN_TEXT : AF_COLUMN_BYTES;
        n->offset_width = type == T_LARGE_BINARY || type == T_LARGE_UTF8 ? 8 : 4;
        return true;
    case T_BINARY_VIEW:
    case T_UTF8_VIEW:
        n->shape = AF_ARROW_VIEW;
        n->type.kind = type == T_UTF8_VIEW ? AF_COLUMN_TEXT : AF_COLUMN_BYTES;
        return true;
    case T_LIST:
    case T_LARGE_LIST:
    case T_MAP:
        n->shape = AF_ARROW_LIST;
        n->offset_width = type == T_LARGE_LIST ? 8 : 4;
        n->map = type == T_MAP;
        return n->count == 1;
    case T_LIST_VIEW:
    case T_LARGE_LIST_VIEW:
        n->shape = AF_ARROW_LIST_VIEW;
        n->offset_width = type == T_LARGE_LIST_VIEW ? 8 : 4;
        return n->count == 1;
    case T_FIXED_LIST:
        n->shape = AF_ARROW_FIXED_LIST;
        n->list_size = af_flat_int(r->f, t, 0, 4, 0);
        return n->count == 1 && n->list_size >= 0;
    case T_STRUCT:
        n->shape = AF_ARROW_STRUCT;
        return true;
    default:
        return false;
    }
}

/* Extension types that read as something else than their storage. */
static void read_extension(const reading *r, af_arrow_field *n, const af_flat_table *t)
{
    static const char key[] = "ARROW:extension:name", uuid[] = "arrow.uuid", json[] = "arrow.json";
    const af_flat_vector pairs = af_flat_list(r->f, t, 6, 4);
    for (uint64_t i = 0; i < pairs.count && !r->f->bad; i++) {
        uint64_t k_len, v_len;
        const af_flat_table pair = af_flat_item(r->f, &pairs, i);
        const char *k = af_flat_text(r->f, &pair, 0, &k_len);
        const char *v = af_flat_text(r->f, &pair, 1, &v_len);
        if (!k || !v || k_len != sizeof key - 1 || memcmp(k, key, k_len) != 0)
            continue;
        if (v_len == sizeof uuid - 1 && memcmp(v, uuid, v_len) == 0 &&
            n->type.kind == AF_COLUMN_BYTES && n->type.width == 16)
            n->type.kind = AF_COLUMN_UUID;
        if (v_len == sizeof json - 1 && memcmp(v, json, v_len) == 0)
            n->type.json = n->type.kind == AF_COLUMN_TEXT;
    }
}

static bool read_dictionary(const reading *r, af_arrow_field *n, const af_flat_table *t)
{
    const af_flat_table d = af_flat_sub(r->f, t, 4);
    if (d.at == 0)
        return true;
    const af_flat_table index = af_flat_sub(r->f, &d, 1);
    n->has_dictionary = true;
    n->dictionary = af_flat_int(r->f, &d, 0, 8, 0);
    n->index_width = 4;
    n->index_signed = true;
    return index.at == 0 || read_int(r, &index, &n->index_width, &n->index_signed);
}

static af_status set_name(const reading *r, af_arrow_field *n, const char *name, uint64_t len)
{
    af_buf key = {0};
    const char *why = af_column_put_text(&key, name ? name : "", len);
    af_buf_char(&key, ':');
    n->key_len = key.len;
    n->name = af_arena_strndup(&r->s->mem, name ? name : "", len);
    n->key = key.bad || why ? NULL : af_arena_strndup(&r->s->mem, key.data, key.len);
    af_buf_clear(&key);
    if (why)
        return af_fail(r->err, AF_EFORMAT, "%s: the name of a column is not UTF-8", r->s->name);
    return n->name && n->key ? AF_OK : af_fail_nomem(r->err, r->s->name, len);
}

static af_status read_children(const reading *r, af_arrow_field *n, const af_flat_vector *v,
                               int depth);

static af_status read_field(const reading *r, af_arrow_field *n, const af_flat_table *t, int depth)
{
    uint64_t len;
    af_status st = AF_OK;
    const char *name = af_flat_text(r->f, t, 0, &len);
    AF_TRY(set_name(r, n, name, len));
    if (depth > AF_ARROW_DEPTH_MAX)
        return af_fail(r->err, AF_EFORMAT, "%s: the columns are nested more than %d deep",
                       r->s->name, AF_ARROW_DEPTH_MAX);
    const af_flat_vector children = af_flat_list(r->f, t, 5, 4);
    AF_TRY(read_children(r, n, &children, depth));
    const int64_t type = af_flat_int(r->f, t, 2, 1, 0);
    const af_flat_table of = af_flat_sub(r->f, t, 3);
    if (!read_type(r, n, type, &of) || !read_dictionary(r, n, t)) {
        static const char *const names[] = {
            [T_INTERVAL] = "interval", [T_UNION] = "union", [T_RUN_END] = "run-end encoded"};
        const bool named = type >= 0 && type < (int64_t)AF_LEN(names) && names[type];
        char why[80];
        snprintf(why, sizeof why, "its type (%s, number %d) is not supported",
                 named ? names[type] : "unknown", (int)type);
        return fail_column(r, n, why);
    }
    if (n->map && (n->child[0].shape != AF_ARROW_STRUCT || n->child[0].count != 2))
        return fail_column(r, n, "a map that is not a list of pairs");
    read_extension(r, n, t);
done:
    return st;
}

static af_status read_children(const reading *r, af_arrow_field *n, const af_flat_vector *v,
                               int depth)
{
    /* tables may be shared: as many fields as bytes allow, so that the work stays linear */
    if (v->count > r->f->size / 8 || (r->s->fields += v->count) > r->f->size / 8)
        return af_fail(r->err, AF_EFORMAT, "%s: the Arrow schema has more fields than bytes",
                       r->s->name);
    n->child = v->count ? af_arena_take(&r->s->mem, v->count * sizeof *n->child) : NULL;
    if (v->count && !n->child)
        return af_fail_nomem(r->err, r->s->name, v->count * sizeof *n->child);
    for (uint64_t i = 0; i < v->count; i++) {
        const af_flat_table t = af_flat_item(r->f, v, i);
        if (r->f->bad)
            break;
        n->child[i].parent = n;
        n->count++;
        const af_status st = read_field(r, &n->child[i], &t, depth + 1);
        if (st != AF_OK)
            return st;
    }
    return r->f->bad ? af_fail(r->err, AF_EFORMAT, "%s: the Arrow schema is damaged", r->s->name)
                     : AF_OK;
}

af_status af_arrow_schema_read(af_arrow_schema *s, af_flat *f, const af_flat_table *t,
                               af_error *err)
{
    const reading r = {s, f, err};
    if (af_flat_int(f, t, 0, 2, 0) != 0)
        return af_fail(err, AF_EUNSUPPORTED, "%s: big-endian Arrow data is not supported", s->name);
    const af_flat_vector fields = af_flat_list(f, t, 1, 4);
    s->root.shape = AF_ARROW_STRUCT;
    return read_children(&r, &s->root, &fields, 0);
}
