/* jinja_text.c - str() and repr() of values, and HTML escaping. */
#include "format/jinja/jinja.h"

#include "format/text/python_text.h"

static void repr_list(af_jinja *j, af_buf *b, const af_jlist *l, const char *open,
                      const char *close)
{
    af_buf_str(b, open);
    for (int64_t i = 0; i < l->n && !j->failed; i++) {
        if (i)
            af_buf_str(b, ", ");
        af_jrepr(j, b, l->item[i]);
    }
    af_buf_str(b, close);
}

static void repr_dict(af_jinja *j, af_buf *b, const af_jdict *d)
{
    af_buf_char(b, '{');
    for (int64_t i = 0; i < d->n && !j->failed; i++) {
        if (i)
            af_buf_str(b, ", ");
        af_jrepr(j, b, d->pair[i].key);
        af_buf_str(b, ": ");
        af_jrepr(j, b, d->pair[i].val);
    }
    af_buf_char(b, '}');
}

static void repr_list_kind(af_jinja *j, af_buf *b, af_jval v)
{
    if (v.kind == AF_JKIND_LIST) {
        repr_list(j, b, v.l, "[", "]");
    } else if (v.kind == AF_JKIND_TUPLE) {
        repr_list(j, b, v.l, "(", v.l->n == 1 ? ",)" : ")");
    } else if (v.kind == AF_JKIND_VIEW) {
        af_buf_printf(b, "dict_%s", v.l->view);
        repr_list(j, b, v.l, "([", "])");
    } else {
        const int64_t *r = v.l->range;
        af_buf_printf(b, "range(%" PRId64 ", %" PRId64, r[0], r[1]);
        if (r[2] != 1)
            af_buf_printf(b, ", %" PRId64, r[2]);
        af_buf_char(b, ')');
    }
}

/* The rest: Python shows addresses for most of these, which no template can depend on. */
static void repr_object(af_jinja *j, af_buf *b, af_jval v)
{
    if (v.kind == AF_JKIND_NAMESPACE) {
        af_buf_str(b, "<Namespace ");
        repr_dict(j, b, v.d);
        af_buf_char(b, '>');
    } else {
        af_buf_printf(b, "<%s object>", af_jtype(v));
    }
}

void af_jrepr(af_jinja *j, af_buf *b, af_jval v)
{
    if (b->bad)
        af_jfail(j, "a text has more than %" PRIu64 " MiB", AF_TEMPLATE_OUTPUT_MAX >> 20);
    if (!af_jenter(j))
        return;
    if (v.kind <= AF_JKIND_NONE) {
        af_buf_str(b, v.kind == AF_JKIND_NONE ? "None" : "Undefined");
    } else if (v.kind == AF_JKIND_BOOL) {
        af_buf_str(b, v.b ? "True" : "False");
    } else if (v.kind == AF_JKIND_INT) {
        af_buf_printf(b, "%" PRId64, v.i);
    } else if (v.kind == AF_JKIND_FLOAT) {
        af_py_float(b, v.f);
    } else if (v.kind == AF_JKIND_STR) {
        af_buf_str(b, v.markup ? "Markup(" : "");
        af_py_quote(b, v.s->p, v.s->n);
        af_buf_str(b, v.markup ? ")" : "");
    } else if (v.kind == AF_JKIND_DICT) {
        repr_dict(j, b, v.d);
    } else {
        (af_jis_list(v) ? repr_list_kind : repr_object)(j, b, v);
    }
    af_jleave(j);
}

void af_jprint(af_jinja *j, af_buf *b, af_jval v)
{
    if (v.kind == AF_JKIND_STR)
        af_buf_add(b, v.s->p, v.s->n);
    else if (v.kind != AF_JKIND_UNDEF)
        af_jrepr(j, b, v);
}

af_jval af_jsoftstr(af_jinja *j, af_jval v)
{
    if (v.kind == AF_JKIND_STR)
        return v;
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    af_jprint(j, &b, v);
    return af_jstr_take(j, &b);
}

af_jval af_jtostr(af_jinja *j, af_jval v) { return af_jmark(af_jsoftstr(j, v), false); }

af_jval af_jescape(af_jinja *j, af_jval v)
{
    if (v.kind == AF_JKIND_STR && v.markup)
        return v;
    const af_jstr *s = af_jtostr(j, v).s;
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    af_py_html(&b, s->p, s->n);
    return af_jmark(af_jstr_take(j, &b), true);
}
