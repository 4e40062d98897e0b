/* inspect_json.c - reports as JSON. */
#include "afinar/inspect.h"

#include "base/base.h"
#include "format/text/json_text.h"

#include <jansson.h>
#include <math.h>

static json_t *number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static json_t *shape(const int64_t *dim, int ndim)
{
    json_t *a = json_array();
    for (int i = 0; i < ndim; i++)
        json_array_append_new(a, json_integer(dim[i]));
    return a;
}

/* Text that may be cut inside a character, or not be UTF-8 at all, is shown with '?'. */
static json_t *text(const char *s)
{
    json_t *j = json_string(s);
    if (j)
        return j;
    char *copy = af_strdup(s);
    for (char *p = copy; p && *p; p++)
        *p = (unsigned char)*p < 0x80 ? *p : '?';
    j = json_string(copy ? copy : "");
    free(copy);
    return j;
}

static json_t *facts(const af_inspect_fact *f, int n)
{
    json_t *o = json_object();
    for (int i = 0; i < n; i++)
        json_object_set_new(
            o, f[i].key,
            f[i].number ? af_json_load(f[i].value, strlen(f[i].value), JSON_DECODE_ANY, NULL)
                        : text(f[i].value));
    return o;
}

static json_t *stats(const af_inspect_stats *s)
{
    json_t *o = json_object(), *h = json_array();
    json_object_set_new(o, "min", number(s->min));
    json_object_set_new(o, "max", number(s->max));
    json_object_set_new(o, "mean", number(s->mean));
    json_object_set_new(o, "std", number(s->std));
    json_object_set_new(o, "l2", number(s->l2));
    json_object_set_new(o, "zeros", json_integer(s->zeros));
    json_object_set_new(o, "nans", json_integer(s->nans));
    json_object_set_new(o, "infs", json_integer(s->infs));
    json_object_set_new(o, "outliers", json_integer(s->outliers));
    for (int i = 0; i < AF_INSPECT_BINS; i++)
        json_array_append_new(h, json_integer(s->bins[i]));
    json_object_set_new(o, "histogram", h);
    return o;
}

static json_t *tensor(const af_inspect_tensor *t)
{
    json_t *o = json_object();
    json_object_set_new(o, "name", text(t->name));
    json_object_set_new(o, "dtype", json_string(t->dtype));
    json_object_set_new(o, "shape", shape(t->dim, t->ndim));
    json_object_set_new(o, "bytes", json_integer((json_int_t)t->bytes));
    json_object_set_new(o, "file", text(t->file));
    if (*t->note)
        json_object_set_new(o, "packed", json_string(t->note));
    if (t->part)
        json_object_set_new(o, "part", json_true());
    if (t->has_stats)
        json_object_set_new(o, "stats", stats(&t->stats));
    return o;
}

static json_t *by_dtype(const af_inspect_report *r)
{
    json_t *all = json_object();
    for (int i = 0; i < r->tensor_count; i++) {
        const af_inspect_tensor *t = &r->tensors[i];
        json_t *o = json_object_get(all, t->dtype);
        const json_int_t n = json_integer_value(json_object_get(o, "tensors"));
        const json_int_t e = json_integer_value(json_object_get(o, "elements"));
        const json_int_t b = json_integer_value(json_object_get(o, "bytes"));
        json_object_set_new(all, t->dtype,
                            json_pack("{s:I,s:I,s:I}", "tensors", n + 1, "elements",
                                      e + (json_int_t)t->count, "bytes", b + (json_int_t)t->bytes));
    }
    return all;
}

static af_status dump(char **out, json_t *o, af_error *err)
{
    char *s = af_json_dump(o, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(o);
    if (!s)
        return af_fail_nomem(err, "the JSON text", 0);
    *out = s;
    return AF_OK;
}

af_status af_inspect_json(char **out, const af_inspect_report *r, af_error *err)
{
    AF_NEED(err, out, r);
    json_t *o = json_object(), *list = json_array();
    json_object_set_new(o, "path", text(r->path));
    json_object_set_new(o, "kind", json_string(r->kind));
    json_object_set_new(o, "parameters", json_integer(r->parameters));
    json_object_set_new(o, "bytes", json_integer((json_int_t)r->bytes));
    json_object_set_new(o, "config", facts(r->facts, r->fact_count));
    json_object_set_new(o, "metadata", facts(r->meta, r->meta_count));
    json_object_set_new(o, "dtypes", by_dtype(r));
    for (int i = 0; i < r->tensor_count; i++)
        json_array_append_new(list, tensor(&r->tensors[i]));
    json_object_set_new(o, "tensors", list);
    return dump(out, o, err);
}

af_status af_inspect_diff_json(char **out, const af_diff_report *r, af_error *err)
{
    AF_NEED(err, out, r);
    static const char *const kinds[] = {"same", "changed", "shape", "only_a", "only_b", "unread"};
    json_t *o = json_object(), *list = json_array();
    json_object_set_new(o, "a", text(r->path_a));
    json_object_set_new(o, "b", text(r->path_b));
    json_object_set_new(o, "same", json_integer(r->same));
    json_object_set_new(o, "changed", json_integer(r->changed));
    json_object_set_new(o, "other", json_integer(r->other));
    for (int i = 0; i < r->row_count; i++) {
        const af_diff_row *d = &r->rows[i];
        json_t *row = json_object();
        json_object_set_new(row, "name", text(d->name));
        json_object_set_new(row, "kind", json_string(kinds[d->kind]));
        json_object_set_new(row, "dtype_a", json_string(d->dtype_a));
        json_object_set_new(row, "dtype_b", json_string(d->dtype_b));
        json_object_set_new(row, "shape", shape(d->dim, d->ndim));
        json_object_set_new(row, "changed", json_integer(d->changed));
        json_object_set_new(row, "max_abs", number(d->max_abs));
        json_object_set_new(row, "relative", number(d->relative));
        json_object_set_new(row, "cosine", number(d->cosine));
        json_array_append_new(list, row);
    }
    json_object_set_new(o, "tensors", list);
    return dump(out, o, err);
}
