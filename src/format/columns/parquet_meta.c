/* parquet_meta.c - see parquet_meta.h. */
#include "format/columns/parquet_meta.h"

#include <stdarg.h>

static af_status damaged(const af_parquet_meta *m, af_error *err, const char *why)
{
    return af_fail(err, AF_EFORMAT, "%s: the parquet file is damaged: %s", m->name, why);
}

static void read_column_meta(af_thrift *t, af_parquet_chunk *c)
{
    for (af_thrift_struct s = {0}; af_thrift_field(t, &s);) {
        int64_t *to = NULL;
        switch (s.id) {
        case 1:
            to = &c->type;
            break;
        case 4:
            to = &c->codec;
            break;
        case 5:
            to = &c->values;
            break;
        case 7:
            to = &c->packed;
            break;
        case 9:
            to = &c->data_at;
            break;
        case 11:
            to = &c->dictionary_at;
            break;
        default:
            break;
        }
        if (to)
            *to = af_thrift_int(t, &s);
    }
}

static void read_chunk(af_thrift *t, af_parquet_chunk *c)
{
    *c = (af_parquet_chunk){.type = -1, .codec = -1, .values = -1, .packed = -1, .data_at = -1};
    for (af_thrift_struct s = {0}; af_thrift_field(t, &s);) {
        if (s.id == 1) {
            c->elsewhere = af_thrift_string(t, &s).len > 0;
        } else if (s.id == 3 && af_thrift_enter(t, &s)) {
            c->there = true;
            read_column_meta(t, c);
        } else if (s.id == 8 || s.id == 9) {
            c->encrypted = true;
        }
    }
}

/* Chunks beyond the schema's columns are counted, not kept. */
static af_status read_group(af_parquet_meta *m, af_thrift *t, af_parquet_group *g, af_error *err)
{
    af_parquet_chunk extra;
    g->rows = -1;
    g->chunk = af_arena_take(&m->mem, (uint64_t)m->leaves * sizeof *g->chunk);
    if (!g->chunk)
        return af_fail_nomem(err, m->name, 0);
    for (af_thrift_struct s = {0}; af_thrift_field(t, &s);) {
        if (s.id == 1) {
            g->columns = (int64_t)af_thrift_structs(t, &s);
            for (int64_t i = 0; i < g->columns && !t->bad; i++)
                read_chunk(t, i < m->leaves ? &g->chunk[i] : &extra);
        } else if (s.id == 3) {
            g->rows = af_thrift_int(t, &s);
        }
    }
    return AF_OK;
}

static af_status read_groups(af_parquet_meta *m, af_thrift *t, af_thrift_struct *s, af_error *err)
{
    const uint64_t n = af_thrift_structs(t, s);
    uint64_t chunks;
    /* a chunk takes more than four bytes of the footer */
    if (!m->root || !af_mul_ok(n, (uint64_t)m->leaves, &chunks) ||
        (n > 1 && chunks / 4 > (uint64_t)(t->end - t->at)) || n > INT32_MAX)
        return damaged(m, err, "it declares more row groups than its footer can hold");
    m->group = af_arena_take(&m->mem, AF_MAX(n, 1) * sizeof *m->group);
    if (!m->group)
        return af_fail_nomem(err, m->name, 0);
    for (uint64_t i = 0; i < n && !t->bad; i++) {
        const af_status st = read_group(m, t, &m->group[m->groups++], err);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}

static af_status read_footer(af_parquet_meta *m, af_thrift *t, af_error *err)
{
    af_status st = AF_OK;
    m->rows = -1;
    for (af_thrift_struct s = {0}; af_thrift_field(t, &s);) {
        if (s.id == 2 && !m->root)
            AF_TRY(af_parquet_schema_read(m, t, &s, err));
        else if (s.id == 3)
            m->rows = af_thrift_int(t, &s);
        else if (s.id == 4 && !m->group)
            AF_TRY(read_groups(m, t, &s, err));
        else if (s.id == 8) {
            st = af_fail(err, AF_EUNSUPPORTED, "%s: the parquet file is encrypted", m->name);
            goto done;
        }
    }
    if (t->bad)
        st = damaged(m, err, "its footer cannot be read");
    else if (!m->root)
        st = damaged(m, err, "it has no schema");
done:
    return st;
}

static af_status check_groups(af_parquet_meta *m, af_error *err)
{
    int64_t rows = 0;
    for (int i = 0; i < m->groups; i++) {
        af_parquet_group *g = &m->group[i];
        if (g->columns != m->leaves)
            return af_fail(err, AF_EFORMAT,
                           "%s: row group %d has %" PRId64 " columns, but the schema has %d",
                           m->name, i, g->columns, m->leaves);
        if (g->rows < 0 || __builtin_add_overflow(rows, g->rows, &rows))
            return af_fail(err, AF_EFORMAT, "%s: row group %d declares %" PRId64 " rows", m->name,
                           i, g->rows);
    }
    if (rows != m->rows)
        return af_fail(err, AF_EFORMAT,
                       "%s: the file declares %" PRId64 " rows, but its row groups %" PRId64,
                       m->name, m->rows, rows);
    return AF_OK;
}

af_status af_parquet_meta_read(af_parquet_meta *m, const char *name, const uint8_t *data,
                               uint64_t size, af_error *err)
{
    *m = (af_parquet_meta){.name = name};
    if (size < 12)
        return damaged(m, err, "it is too short");
    const uint8_t *tail = data + size - 8;
    if (memcmp(tail + 4, "PARE", 4) == 0 || memcmp(data, "PARE", 4) == 0)
        return af_fail(err, AF_EUNSUPPORTED, "%s: the parquet file is encrypted", name);
    if (memcmp(data, "PAR1", 4) != 0)
        return damaged(m, err, "it does not begin with PAR1");
    if (memcmp(tail + 4, "PAR1", 4) != 0)
        return damaged(m, err, "it does not end with PAR1 (file cut short?)");
    const uint64_t n = af_column_uint(tail, 4);
    if (n == 0 || n > size - 12 || n > AF_PARQUET_FOOTER_MAX)
        return af_fail(err, AF_EFORMAT,
                       "%s: the parquet file is damaged: a footer of %" PRIu64
                       " bytes in a file of %" PRIu64,
                       name, n, size);
    m->body = size - 8 - n;
    af_thrift t = {tail - n, tail, false};
    const af_status st = read_footer(m, &t, err);
    return st == AF_OK ? check_groups(m, err) : st;
}

void af_parquet_meta_clear(af_parquet_meta *m)
{
    af_arena_clear(&m->mem);
    *m = (af_parquet_meta){0};
}

AF_PRINTF(5, 6)
static af_status fail_chunk(const af_parquet_meta *m, int group, int leaf, af_error *err,
                            const char *fmt, ...)
{
    char why[300], path[AF_PARQUET_PATH];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return af_fail(err, AF_EFORMAT, "%s: row group %d, column %s: %s", m->name, group,
                   af_parquet_path(m->leaf[leaf], path), why);
}

af_status af_parquet_chunk_check(const af_parquet_meta *m, int group, int leaf, af_error *err)
{
    const af_parquet_chunk *c = &m->group[group].chunk[leaf];
    const int64_t rows = m->group[group].rows, body = (int64_t)m->body;
    if (c->elsewhere)
        return fail_chunk(m, group, leaf, err, "its data is in another file");
    if (c->encrypted)
        return fail_chunk(m, group, leaf, err, "it is encrypted");
    if (!c->there)
        return fail_chunk(m, group, leaf, err, "the place of its data is not given");
    if (c->type != (int64_t)m->leaf[leaf]->physical)
        return fail_chunk(m, group, leaf, err,
                          "its data has type %" PRId64 ", but the schema says %d", c->type,
                          (int)m->leaf[leaf]->physical);
    if (c->values < 0 || c->packed < 0)
        return fail_chunk(m, group, leaf, err,
                          "it declares %" PRId64 " values in %" PRId64 " bytes", c->values,
                          c->packed);
    if (m->leaf[leaf]->leaf_rep == 0 ? c->values != rows : c->values < rows)
        return fail_chunk(m, group, leaf, err,
                          "it declares %" PRId64 " values, but the row group %" PRId64 " rows",
                          c->values, rows);
    if (rows == 0)
        return AF_OK;
    const int64_t at = c->dictionary_at > 0 ? AF_MIN(c->dictionary_at, c->data_at) : c->data_at;
    if (at < 4 || c->data_at < at || at > body || c->packed > body - at)
        return fail_chunk(m, group, leaf, err,
                          "its %" PRId64 " bytes at %" PRId64 " are not inside the file", c->packed,
                          at);
    return AF_OK;
}

/* Of data: fields 1 to 4; of a dictionary: 1 and 2. */
static void read_data_header(af_thrift *t, af_parquet_page *p, int last)
{
    int64_t *const to[] = {&p->values, &p->encoding, &p->def_encoding, &p->rep_encoding};
    p->has_header = true;
    for (af_thrift_struct s = {0}; af_thrift_field(t, &s);)
        if (s.id >= 1 && s.id <= last)
            *to[s.id - 1] = af_thrift_int(t, &s);
}

static void read_data2_header(af_thrift *t, af_parquet_page *p)
{
    int64_t *const to[] = {&p->values,   &p->nulls,     &p->rows,
                           &p->encoding, &p->def_bytes, &p->rep_bytes};
    p->has_header = true;
    for (af_thrift_struct s = {0}; af_thrift_field(t, &s);) {
        if (s.id >= 1 && s.id <= 6)
            *to[s.id - 1] = af_thrift_int(t, &s);
        else if (s.id == 7)
            p->is_packed = af_thrift_bool(t, &s);
    }
}

bool af_parquet_page_read(af_parquet_page *p, af_thrift *t)
{
    *p = (af_parquet_page){.type = -1, .full = -1, .packed = -1, .values = -1, .is_packed = true};
    for (af_thrift_struct s = {0}; af_thrift_field(t, &s);) {
        if (s.id == 1)
            p->type = af_thrift_int(t, &s);
        else if (s.id == 2)
            p->full = af_thrift_int(t, &s);
        else if (s.id == 3)
            p->packed = af_thrift_int(t, &s);
        else if (s.id == 4) {
            p->has_crc = true;
            p->crc = (uint32_t)af_thrift_int(t, &s);
        } else if ((s.id == 5 || s.id == 7) && af_thrift_enter(t, &s))
            read_data_header(t, p, s.id == 5 ? 4 : 2);
        else if (s.id == 8 && af_thrift_enter(t, &s))
            read_data2_header(t, p);
    }
    return !t->bad;
}
