/* jinja_tojson.c - the tojson filter: Python's json.dumps with transformers' defaults. */
#include "format/jinja/jinja.h"

#include <math.h>

typedef struct dumper {
    af_jinja *j;
    af_buf *b;
    bool ascii, sort;
    const af_jstr *indent;     /* NULL = one line */
    const af_jstr *item, *key; /* separators */
} dumper;

static void dump_str(dumper *x, const af_jstr *s)
{
    static const char short_forms[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    af_buf *b = x->b;
    af_jstep(x->j, s->n / 64);
    af_buf_char(b, '"');
    for (const char *p = s->p, *end = s->p + s->n; p < end;) {
        const char *at = p;
        const uint32_t cp = af_utf8_next(&p);
        const char *known = NULL;
        for (size_t i = 0; cp < 0x5d && i + 1 < sizeof short_forms && !known; i += 2)
            if ((uint32_t)short_forms[i] == cp)
                known = &short_forms[i + 1];
        if (known)
            af_buf_printf(b, "\\%c", *known);
        else if (cp >= 0x20 && (!x->ascii || cp <= 0x7e))
            af_buf_add(b, at, (uint64_t)(p - at));
        else if (cp < 0x10000)
            af_buf_printf(b, "\\u%04x", cp);
        else
            af_buf_printf(b, "\\u%04x\\u%04x", 0xd7c0 + (cp >> 10), 0xdc00 + (cp & 0x3ff));
    }
    af_buf_char(b, '"');
}

static void newline(dumper *x, int depth)
{
    if (x->indent)
        af_buf_char(x->b, '\n');
    for (int i = 0; x->indent && i < depth && !x->b->bad; i++)
        af_buf_add(x->b, x->indent->p, x->indent->n);
}

static void dump(dumper *x, af_jval v, int depth);

static void dump_key(dumper *x, af_jval k)
{
    const bool quote = k.kind == AF_JKIND_NONE || af_jis_number(k);
    if (!quote && k.kind != AF_JKIND_STR)
        af_jfail(x->j, "keys must be str, int, float, bool or None, not %s", af_jtype(k));
    af_buf_str(x->b, quote ? "\"" : "");
    dump(x, k, 0);
    af_buf_str(x->b, quote ? "\"" : "");
    af_buf_add(x->b, x->key->p, x->key->n);
}

/* The values of a dict in the order they are written, and their keys. No key is looked up: NaN is
 * not equal to itself. */
static const af_jlist *values_of(dumper *x, const af_jdict *d, af_jlist *keys)
{
    af_jlist *values = af_jlist_new(x->j, d->n);
    for (int64_t i = 0; i < d->n && !x->j->failed; i++)
        af_jlist_add(x->j, values, d->pair[i].val);
    if (x->sort && !x->j->failed)
        af_jsort(x->j, values, keys, false);
    return values;
}

static void dump_container(dumper *x, af_jval v, int depth)
{
    const bool dict = v.kind == AF_JKIND_DICT;
    af_jlist *keys = dict ? af_jitems(x->j, v) : NULL;
    const af_jlist *l = dict ? values_of(x, v.d, keys) : v.l;
    af_buf_char(x->b, dict ? '{' : '[');
    for (int64_t i = 0; i < l->n && !x->j->failed; i++) {
        if (i)
            af_buf_add(x->b, x->item->p, x->item->n);
        newline(x, depth + 1);
        if (dict)
            dump_key(x, keys->item[i]);
        if (!x->j->failed)
            dump(x, l->item[i], depth + 1);
    }
    if (l->n)
        newline(x, depth);
    af_buf_char(x->b, dict ? '}' : ']');
}

static void dump(dumper *x, af_jval v, int depth)
{
    if (x->b->bad)
        af_jfail(x->j, "a text has more than %" PRIu64 " MiB", AF_TEMPLATE_OUTPUT_MAX >> 20);
    if (!af_jenter(x->j))
        return;
    if (v.kind == AF_JKIND_STR)
        dump_str(x, v.s);
    else if (v.kind == AF_JKIND_LIST || v.kind == AF_JKIND_TUPLE || v.kind == AF_JKIND_DICT)
        dump_container(x, v, depth);
    else if (v.kind == AF_JKIND_NONE || v.kind == AF_JKIND_BOOL)
        af_buf_str(x->b, v.kind == AF_JKIND_NONE ? "null" : v.b ? "true" : "false");
    else if (v.kind == AF_JKIND_FLOAT && !isfinite(v.f))
        af_buf_str(x->b, isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity");
    else if (af_jis_number(v))
        af_jprint(x->j, x->b, v);
    else
        af_jfail(x->j, "Object of type %s is not JSON serializable", af_jtype(v));
    af_jleave(x->j);
}

af_jval af_jdumps(af_jinja *j, af_jval v)
{
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    dumper x = {.j = j, .b = &b, .item = af_jstr_lit(j, ", ").s, .key = af_jstr_lit(j, ": ").s};
    if (!j->failed)
        dump(&x, v, 0);
    return af_jstr_take(j, &b);
}

af_jval af_jtojson(const af_jcall *c)
{
    af_jinja *j = c->j;
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    dumper x = {.j = j, .b = &b, .ascii = af_jarg_true(c, 0), .sort = af_jarg_true(c, 3)};
    const af_jval indent = c->arg[1], separators = c->arg[2];
    x.item = af_jstr_lit(j, af_jgiven(indent) ? "," : ", ").s;
    x.key = af_jstr_lit(j, ": ").s;
    if (indent.kind == AF_JKIND_STR)
        x.indent = indent.s;
    else if (af_jgiven(indent))
        x.indent = af_jbinary(j, '*', af_jstr_lit(j, " "), af_jint(af_jarg_int(c, 1, 0))).s;
    if (af_jgiven(separators)) {
        const af_jlist *l = af_jitems(j, separators);
        if (l->n != 2 || l->item[0].kind != AF_JKIND_STR || l->item[1].kind != AF_JKIND_STR)
            return af_jfail(j, "separators expects two strings");
        x.item = l->item[0].s;
        x.key = l->item[1].s;
    }
    if (!j->failed)
        dump(&x, c->self, 0);
    return af_jstr_take(j, &b);
}
