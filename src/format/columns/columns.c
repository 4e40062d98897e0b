/* columns.c - see columns.h. */
#include "format/columns/columns.h"

#include "format/columns/arrow.h"
#include "format/columns/parquet.h"

struct af_columns {
    char *name;
    af_map map;
    bool mapped;
    af_parquet *parquet; /* one of them */
    af_arrow *arrow;
};

static af_status start(af_columns *c, af_columns_format format, af_error *err)
{
    return format == AF_COLUMNS_PARQUET
               ? af_parquet_open(&c->parquet, c->name, &c->map, c->mapped, err)
               : af_arrow_open(&c->arrow, c->name, &c->map, c->mapped, err);
}

static af_columns *new_columns(const char *name)
{
    af_columns *c = af_calloc(1, sizeof *c);
    if (c && !(c->name = af_strdup(name))) {
        free(c);
        return NULL;
    }
    return c;
}

af_status af_columns_open(af_columns **out, const char *path, af_columns_format format,
                          af_error *err)
{
    af_status st = AF_OK;
    af_columns *c = new_columns(path);
    if (!c)
        return af_fail_nomem(err, path, sizeof *c);
    AF_TRY(af_map_open(&c->map, path, err));
    c->mapped = true;
    AF_TRY(start(c, format, err));
    *out = c;
    c = NULL;
done:
    af_columns_close(c);
    return st;
}

af_status af_columns_of(af_columns **out, const char *name, const void *data, uint64_t size,
                        af_columns_format format, af_error *err)
{
    af_columns *c = new_columns(name);
    if (!c)
        return af_fail_nomem(err, name, sizeof *c);
    c->map = (af_map){data, size};
    const af_status st = start(c, format, err);
    if (st == AF_OK)
        *out = c;
    else
        af_columns_close(c);
    return st;
}

void af_columns_close(af_columns *c)
{
    if (!c)
        return;
    af_parquet_close(c->parquet);
    af_arrow_close(c->arrow);
    if (c->mapped)
        af_map_close(&c->map);
    free(c->name);
    free(c);
}

int64_t af_columns_rows(const af_columns *c)
{
    return c->parquet ? af_parquet_rows(c->parquet) : af_arrow_rows(c->arrow);
}

void af_columns_project(af_columns *c, af_columns_want *want, const void *user)
{
    if (c->parquet)
        af_parquet_project(c->parquet, want, user);
    else
        af_arrow_project(c->arrow, want, user);
}

void af_columns_unfold(af_columns *c)
{
    if (c->parquet)
        af_parquet_unfold(c->parquet);
    else
        af_arrow_unfold(c->arrow);
}

af_status af_columns_next(af_columns *c, af_buf *text, bool *got, af_error *err)
{
    return c->parquet ? af_parquet_next(c->parquet, text, got, err)
                      : af_arrow_next(c->arrow, text, got, err);
}
