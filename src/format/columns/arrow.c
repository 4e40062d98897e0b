/* arrow.c - see arrow.h. */
#include "format/columns/arrow.h"

#include "format/columns/arrow_batch.h"

#include <stdarg.h>

/* A part of a dictionary: later parts are added to it. */
typedef struct part {
    struct part *next;
    af_arrow_batch batch;
    int64_t from; /* index of its first value */
} part;

typedef struct dictionary {
    int64_t id;
    af_arrow_field holder; /* its one child is the type of the values */
    af_arrow_field value;
    part *parts, *last;
    int64_t count;
} dictionary;

struct af_arrow {
    const char *name;
    const af_map *map;
    bool mapped;
    af_arrow_schema schema;
    bool has_schema, *left_out;
    bool unfold; /* see af_columns_unfold */
    dictionary *dictionaries;
    int dictionary_count;
    bool is_file;
    af_flat footer;
    af_flat_vector blocks; /* a file's record batches */
    uint64_t block;
    uint64_t at; /* a stream's next message */
    bool ended;
    af_arrow_batch batch;
    int64_t number;    /* of the batch, from 0 */
    int64_t batch_row; /* next of the batch */
    int64_t row;       /* that is read, from 1 */
};

static af_status damaged(const af_arrow *a, af_error *err, const char *why)
{
    return af_fail(err, AF_EFORMAT, "%s: the Arrow data is damaged: %s", a->name, why);
}

/* --- messages --- */

/* Reads the message at `at`; m->type is 0 at the end of the stream. */
static af_status read_message(const af_arrow *a, uint64_t at, af_arrow_message *m, af_error *err)
{
    const uint8_t *data = a->map->data;
    const uint64_t size = a->map->size;
    *m = (af_arrow_message){.end = at};
    if (at == size)
        return AF_OK;
    if (at > size || size - at < 4)
        return damaged(a, err, "it ends inside a message (file cut short?)");
    uint64_t n = af_column_uint(data + at, 4);
    at += 4;
    if (n == UINT32_MAX) { /* older writers begin with the length */
        if (size - at < 4)
            return damaged(a, err, "it ends inside a message (file cut short?)");
        n = af_column_uint(data + at, 4);
        at += 4;
    }
    m->end = at;
    if (n == 0)
        return AF_OK;
    if (n > INT32_MAX || n > size - at)
        return damaged(a, err, "a message is longer than the file (file cut short?)");
    m->flat = (af_flat){data + at, n, false};
    const af_flat_table root = af_flat_root(&m->flat);
    const int64_t body = af_flat_int(&m->flat, &root, 3, 8, 0);
    m->type = af_flat_int(&m->flat, &root, 1, 1, 0);
    m->header = af_flat_sub(&m->flat, &root, 2);
    at += n;
    if (m->flat.bad || m->header.at == 0)
        return damaged(a, err, "the head of a message cannot be read");
    if (body < 0 || (uint64_t)body > size - at)
        return damaged(a, err, "the body of a message is longer than the file (file cut short?)");
    m->body = data + at;
    m->body_size = (uint64_t)body;
    m->end = at + (uint64_t)body;
    return AF_OK;
}

/* --- dictionaries --- */

static dictionary *find_dictionary(const af_arrow *a, int64_t id)
{
    for (int i = 0; i < a->dictionary_count; i++)
        if (a->dictionaries[i].id == id)
            return &a->dictionaries[i];
    return NULL;
}

static void clear_parts(dictionary *d)
{
    while (d->parts) {
        part *next = d->parts->next;
        af_arrow_batch_clear(&d->parts->batch);
        free(d->parts);
        d->parts = next;
    }
    d->last = NULL;
    d->count = 0;
}

static int count_dictionaries(const af_arrow_field *f)
{
    int n = f->has_dictionary;
    for (int i = 0; i < f->count; i++)
        n += count_dictionaries(&f->child[i]);
    return n;
}

static void list_dictionaries(af_arrow *a, const af_arrow_field *f)
{
    if (f->has_dictionary && !find_dictionary(a, f->dictionary)) {
        dictionary *d = &a->dictionaries[a->dictionary_count++];
        d->id = f->dictionary;
        d->value = *f; /* keeps the place of the column for messages */
        d->value.has_dictionary = false;
        d->holder = (af_arrow_field){.shape = AF_ARROW_STRUCT, .count = 1, .child = &d->value};
    }
    for (int i = 0; i < f->count; i++)
        list_dictionaries(a, &f->child[i]);
}

static af_status use_dictionary(af_arrow *a, af_arrow_message *m, af_error *err)
{
    const int64_t id = af_flat_int(&m->flat, &m->header, 0, 8, 0);
    const bool more = af_flat_int(&m->flat, &m->header, 2, 1, 0) != 0;
    const af_flat_table data = af_flat_sub(&m->flat, &m->header, 1);
    dictionary *d = find_dictionary(a, id);
    if (!d || data.at == 0 || m->flat.bad)
        return damaged(a, err, "a dictionary that no column uses");
    part *p = af_calloc(1, sizeof *p);
    if (!p)
        return af_fail_nomem(err, a->name, sizeof *p);
    const af_status st = af_arrow_batch_read(&p->batch, &d->holder, NULL, m, &data, a->name, err);
    if (st != AF_OK) {
        af_arrow_batch_clear(&p->batch);
        free(p);
        return st;
    }
    if (!more)
        clear_parts(d);
    p->from = d->count;
    d->count += p->batch.rows;
    *(d->last ? &d->last->next : &d->parts) = p;
    d->last = p;
    return AF_OK;
}

/* --- one record --- */

typedef struct writer {
    af_arrow *a;
    af_buf *b;
    af_error *err;
    int dictionary_depth;
} writer;

AF_PRINTF(3, 4)
static af_status fail(const writer *w, const af_arrow_field *f, const char *fmt, ...)
{
    char why[300], path[AF_ARROW_PATH];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return af_fail(w->err, AF_EFORMAT,
                   "%s: record batch %" PRId64 ", row %" PRId64 ", column %s: %s", w->a->name,
                   w->a->number, w->a->row, af_arrow_path(f, path), why);
}

static int64_t int_at(const af_arrow_bytes *b, int64_t i, int width)
{
    const int shift = 64 - 8 * width;
    return (int64_t)(af_column_uint(b->at + i * width, width) << shift) >> shift;
}

/* The part [*from, *to) of the child or the bytes that value i takes, of `size` in all. */
static af_status range(const writer *w, const af_arrow_array *a, int64_t i, int64_t size,
                       int64_t *from, int64_t *to)
{
    const int width = a->field->offset_width;
    *from = int_at(&a->offsets, i, width);
    if (a->field->shape == AF_ARROW_LIST_VIEW) {
        const int64_t n = int_at(&a->sizes, i, width);
        *to = n >= 0 && *from <= INT64_MAX - n ? *from + n : -1;
    } else {
        *to = int_at(&a->offsets, i + 1, width);
    }
    if (*from < 0 || *to < *from || *to > size)
        return fail(w, a->field, "offsets %" PRId64 " to %" PRId64 " of %" PRId64, *from, *to,
                    size);
    return AF_OK;
}

static af_status put(const writer *w, const af_arrow_array *a, int64_t i);

static af_status put_value(const writer *w, const af_arrow_array *a, const uint8_t *p, uint64_t n)
{
    const char *why = w->a->unfold ? af_column_put_inside(w->b, &a->field->type, p, n)
                                   : af_column_put(w->b, &a->field->type, p, n);
    return why ? fail(w, a->field, "%s", why) : AF_OK;
}

static af_status put_fixed(const writer *w, const af_arrow_array *a, int64_t i)
{
    if (a->field->type.kind == AF_COLUMN_BOOL) {
        const uint8_t bit = a->data.at[i / 8] >> i % 8 & 1;
        return put_value(w, a, &bit, 1);
    }
    const uint64_t width = (uint64_t)a->field->type.width;
    return put_value(w, a, a->data.at + (uint64_t)i * width, width);
}

static af_status put_view(const writer *w, const af_arrow_array *a, int64_t i)
{
    enum { INLINE_MAX = 12 };
    const uint8_t *v = a->data.at + 16 * i;
    const uint64_t n = af_column_uint(v, 4), k = af_column_uint(v + 8, 4),
                   at = af_column_uint(v + 12, 4);
    if (n <= INLINE_MAX)
        return put_value(w, a, v + 4, n);
    if (k >= (uint64_t)a->extras || at > a->extra[k].len || n > a->extra[k].len - at)
        return fail(w, a->field, "a view is not inside its buffer");
    return put_value(w, a, a->extra[k].at + at, n);
}

static af_status put_items(const writer *w, const af_arrow_array *a, int64_t from, int64_t to)
{
    const af_arrow_array *c = &a->child[0];
    af_status st = AF_OK;
    af_buf_char(w->b, '[');
    for (int64_t i = from; i < to; i++) {
        if (i > from)
            af_buf_char(w->b, ',');
        if (a->field->map) {
            af_buf_char(w->b, '[');
            AF_TRY(put(w, &c->child[0], i));
            af_buf_char(w->b, ',');
            AF_TRY(put(w, &c->child[1], i));
            af_buf_char(w->b, ']');
        } else {
            AF_TRY(put(w, c, i));
        }
    }
    af_buf_char(w->b, ']');
done:
    return st;
}

static af_status put_struct(const writer *w, const af_arrow_array *a, int64_t i)
{
    af_status st = AF_OK;
    bool any = false;
    af_buf_char(w->b, '{');
    for (int k = 0; k < a->field->count; k++) {
        const uint64_t field = w->b->len;
        if (any)
            af_buf_char(w->b, ',');
        af_buf_add(w->b, a->field->child[k].key, a->field->child[k].key_len);
        const uint64_t value = w->b->len;
        AF_TRY(put(w, &a->child[k], i));
        any = !(w->a->unfold && af_column_drop_null(w->b, field, value)) || any;
    }
    af_buf_char(w->b, '}');
done:
    return st;
}

static af_status put_from_dictionary(const writer *w, const af_arrow_array *a, int64_t i)
{
    const af_arrow_field *f = a->field;
    const dictionary *d = find_dictionary(w->a, f->dictionary);
    if (!d || !d->parts)
        return fail(w, f, "its dictionary is not there");
    if (w->dictionary_depth > AF_ARROW_DEPTH_MAX)
        return fail(w, f, "its dictionary refers to itself");
    const int64_t k =
        f->index_signed ? int_at(&a->data, i, f->index_width)
                        : (int64_t)af_column_uint(a->data.at + i * f->index_width, f->index_width);
    if (k < 0 || k >= d->count)
        return fail(w, f, "index %" PRId64 " of a dictionary of %" PRId64 " values", k, d->count);
    const part *p = d->parts;
    while (k - p->from >= p->batch.rows)
        p = p->next;
    writer inner = *w;
    inner.dictionary_depth++;
    return put(&inner, &p->batch.root.child[0], k - p->from);
}

static af_status put(const writer *w, const af_arrow_array *a, int64_t i)
{
    const af_arrow_field *f = a->field;
    int64_t from, to;
    af_status st = AF_OK;
    if (w->b->bad)
        return fail(w, f, "a record of more than %" PRIu64 " MiB", w->b->limit >> 20);
    if (i >= a->length)
        return fail(w, f, "it has too few values");
    if (f->shape == AF_ARROW_NULL || (a->valid && !(a->valid[i / 8] >> i % 8 & 1))) {
        af_buf_add(w->b, "null", 4);
        return AF_OK;
    }
    if (f->has_dictionary)
        return put_from_dictionary(w, a, i);
    switch (f->shape) {
    case AF_ARROW_NULL:
        break;
    case AF_ARROW_FIXED:
        return put_fixed(w, a, i);
    case AF_ARROW_BYTES:
        AF_TRY(range(w, a, i, (int64_t)AF_MIN(a->data.len, INT64_MAX), &from, &to));
        return put_value(w, a, a->data.at + from, (uint64_t)(to - from));
    case AF_ARROW_VIEW:
        return put_view(w, a, i);
    case AF_ARROW_LIST:
    case AF_ARROW_LIST_VIEW:
        AF_TRY(range(w, a, i, a->child[0].length, &from, &to));
        return put_items(w, a, from, to);
    case AF_ARROW_FIXED_LIST:
        if (f->list_size && i >= a->child[0].length / f->list_size)
            return fail(w, f, "its lists have too few values");
        return put_items(w, a, i * f->list_size, (i + 1) * f->list_size);
    case AF_ARROW_STRUCT:
        return put_struct(w, a, i);
    }
done:
    return st;
}

static af_status put_record(const writer *w, int64_t i)
{
    const af_arrow_field *root = &w->a->schema.root;
    af_status st = AF_OK;
    bool any = false;
    af_buf_char(w->b, '{');
    for (int k = 0; k < root->count; k++) {
        if (w->a->left_out[k])
            continue;
        if (any)
            af_buf_char(w->b, ',');
        any = true;
        af_buf_add(w->b, root->child[k].key, root->child[k].key_len);
        AF_TRY(put(w, &w->a->batch.root.child[k], i));
    }
    af_buf_char(w->b, '}');
    if (w->b->bad)
        st = af_fail(w->err, AF_EFORMAT,
                     "%s: row %" PRId64 ": a record of more than %" PRIu64 " MiB", w->a->name,
                     w->a->row, w->b->limit >> 20);
done:
    return st;
}

/* --- files and streams --- */

static af_status use_schema(af_arrow *a, af_flat *f, const af_flat_table *t, af_error *err)
{
    const af_status st = af_arrow_schema_read(&a->schema, f, t, err);
    if (st != AF_OK)
        return st;
    a->has_schema = true;
    a->left_out = af_calloc((uint64_t)AF_MAX(a->schema.root.count, 1), sizeof *a->left_out);
    const int n = count_dictionaries(&a->schema.root);
    a->dictionaries = af_calloc((uint64_t)AF_MAX(n, 1), sizeof *a->dictionaries);
    if (!a->left_out || !a->dictionaries)
        return af_fail_nomem(err, a->name, 0);
    list_dictionaries(a, &a->schema.root);
    return AF_OK;
}

/* Of a file: where the message of a block is. */
static af_status read_block(const af_arrow *a, const af_flat_vector *v, uint64_t i,
                            af_arrow_message *m, int64_t type, af_error *err)
{
    const int64_t at = af_flat_at(&a->footer, v->at + 24 * i, 8);
    if (at < 8 || (uint64_t)at >= a->map->size)
        return damaged(a, err, "a record batch is not inside the file");
    const af_status st = read_message(a, (uint64_t)at, m, err);
    if (st != AF_OK)
        return st;
    return m->type == type ? AF_OK : damaged(a, err, "its footer points to another message");
}

static af_status open_file(af_arrow *a, af_error *err)
{
    const uint64_t size = a->map->size, magic = 6;
    const uint8_t *data = a->map->data;
    af_status st = AF_OK;
    if (size < 8 + 4 + magic || memcmp(data + size - magic, "ARROW1", magic) != 0)
        return damaged(a, err, "it does not end with ARROW1 (file cut short?)");
    const uint64_t n = af_column_uint(data + size - magic - 4, 4);
    if (n == 0 || n > INT32_MAX || n > size - 8 - 4 - magic)
        return damaged(a, err, "the length of its footer is wrong");
    a->footer = (af_flat){data + size - magic - 4 - n, n, false};
    const af_flat_table root = af_flat_root(&a->footer);
    const af_flat_table schema = af_flat_sub(&a->footer, &root, 1);
    const af_flat_vector dictionaries = af_flat_list(&a->footer, &root, 2, 24);
    a->blocks = af_flat_list(&a->footer, &root, 3, 24);
    if (a->footer.bad || schema.at == 0)
        return damaged(a, err, "its footer cannot be read");
    AF_TRY(use_schema(a, &a->footer, &schema, err));
    for (uint64_t i = 0; i < dictionaries.count; i++) {
        af_arrow_message m;
        AF_TRY(read_block(a, &dictionaries, i, &m, AF_ARROW_DICTIONARY, err));
        AF_TRY(use_dictionary(a, &m, err));
    }
done:
    return st;
}

static af_status open_stream(af_arrow *a, af_error *err)
{
    af_arrow_message m;
    const af_status st = read_message(a, 0, &m, err);
    if (st != AF_OK)
        return st;
    if (m.type != AF_ARROW_SCHEMA)
        return damaged(a, err, "it does not begin with a schema");
    a->at = m.end;
    return use_schema(a, &m.flat, &m.header, err);
}

af_status af_arrow_open(af_arrow **out, const char *name, const af_map *map, bool mapped,
                        af_error *err)
{
    if (map->size >= 4 && memcmp(map->data, "FEA1", 4) == 0)
        return af_fail(err, AF_EUNSUPPORTED,
                       "%s: Feather files of version 1 are not supported; write it as version 2 or "
                       "as parquet",
                       name);
    af_arrow *a = af_calloc(1, sizeof *a);
    if (!a)
        return af_fail_nomem(err, name, sizeof *a);
    a->name = a->schema.name = name;
    a->map = map;
    a->mapped = mapped;
    a->row = 1;
    a->number = -1;
    a->is_file = map->size >= 8 && memcmp(map->data, "ARROW1", 6) == 0;
    const af_status st = a->is_file ? open_file(a, err) : open_stream(a, err);
    if (st == AF_OK)
        *out = a;
    else
        af_arrow_close(a);
    return st;
}

void af_arrow_close(af_arrow *a)
{
    if (!a)
        return;
    for (int i = 0; i < a->dictionary_count; i++)
        clear_parts(&a->dictionaries[i]);
    free(a->dictionaries);
    free(a->left_out);
    af_arrow_batch_clear(&a->batch);
    af_arena_clear(&a->schema.mem);
    free(a);
}

int64_t af_arrow_rows(const af_arrow *a)
{
    (void)a;
    return -1;
}

void af_arrow_unfold(af_arrow *a) { a->unfold = true; }

void af_arrow_project(af_arrow *a, af_columns_want *want, const void *user)
{
    for (int i = 0; i < a->schema.root.count; i++)
        a->left_out[i] |= !want(user, a->schema.root.child[i].name);
}

/* The message of the next record batch; m->type is 0 at the end. */
static af_status next_message(af_arrow *a, af_arrow_message *m, af_error *err)
{
    af_status st = AF_OK;
    if (a->is_file) {
        *m = (af_arrow_message){0};
        if (a->block < a->blocks.count)
            st = read_block(a, &a->blocks, a->block++, m, AF_ARROW_BATCH, err);
        return st;
    }
    for (;;) {
        AF_TRY(read_message(a, a->at, m, err));
        a->at = m->end;
        if (m->type == AF_ARROW_DICTIONARY)
            AF_TRY(use_dictionary(a, m, err));
        else if (m->type == AF_ARROW_BATCH || m->type == 0)
            return AF_OK;
        else
            return damaged(a, err, "a message of unknown kind");
    }
done:
    return st;
}

static af_status next_batch(af_arrow *a, af_error *err)
{
    af_arrow_message m;
    af_status st = AF_OK;
    AF_TRY(next_message(a, &m, err));
    a->ended = m.type == 0;
    if (a->ended)
        return AF_OK;
    a->number++;
    a->batch_row = 0;
    if (a->mapped) /* what came before is not needed again; dictionaries are, and come back */
        af_map_forget(a->map, 0, (uint64_t)(m.flat.data - a->map->data));
    st = af_arrow_batch_read(&a->batch, &a->schema.root, a->left_out, &m, &m.header, a->name, err);
done:
    return st;
}

af_status af_arrow_next(af_arrow *a, af_buf *text, bool *got, af_error *err)
{
    af_status st = AF_OK;
    *got = false;
    while (!a->ended && a->batch_row >= a->batch.rows)
        AF_TRY(next_batch(a, err));
    if (a->ended)
        return AF_OK;
    AF_TRY(put_record(&(writer){.a = a, .b = text, .err = err}, a->batch_row));
    a->batch_row++;
    a->row++;
    *got = true;
done:
    return st;
}
