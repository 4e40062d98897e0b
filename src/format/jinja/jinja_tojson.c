/* jinja_tojson.c - the tojson filter: Python's json.dumps with transformers' defaults. */
#include "format/jinja/jinja.h"

#include <math.h>

typedef struct dumper {
    af_jinja *j;
    af_buf *b;
    bool ascii, sort;
    const char *indent; /* NULL = one line */
    uint64_t indent_len;
    const af_jstr *item, *key; /* separators */
} dumper;

static void unicode_escape(af_buf *b, uint32_t cp)
{
    if (cp < 0x10000) {
        af_buf_printf(b, "\\u%04x", cp);
        return;
    }
    cp -= 0x10000;
    af_buf_printf(b, "\\u%04x\\u%04x", 0xd800 + (cp >> 10), 0xdc00 + (cp & 0x3ff));
}

static void dump_str(dumper *x, const af_jstr *s)
{
    static const char short_forms[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    af_buf *b = x->b;
    af_buf_char(b, '"');
    for (const char *p = s->p, *end = s->p + s->n; p < end;) {
        const char *at = p;
        const uint32_t cp = af_jutf8_next(&p);
        const char *known = NULL;
        for (size_t i = 0; i + 1 < sizeof short_forms && !known; i += 2)
            if ((uint32_t)short_forms[i] == cp)
                known = &short_forms[i + 1];
        if (known) {
            af_buf_char(b, '\\');
            af_buf_char(b, *known);
        } else if (cp < 0x20 || (x->ascii && cp > 0x7e)) {
            unicode_escape(b, cp);
        } else {
            af_buf_add(b, at, (uint64_t)(p - at));
        }
    }
    af_buf_char(b, '"');
}

static void dump_float(af_buf *b, double f)
{
    if (isnan(f))
        af_buf_str(b, "NaN");
    else if (isinf(f))
        af_buf_str(b, f < 0 ? "-Infinity" : "Infinity");
    else
        af_jfloat_text(b, f);
}

static void newline(dumper *x, int depth)
{
    if (!x->indent)
        return;
    af_buf_char(x->b, '\n');
    for (int i = 0; i < depth && !x->b->bad; i++)
        af_buf_add(x->b, x->indent, x->indent_len);
}

static void dump(dumper *x, af_jv v, int depth);

static void dump_list(dumper *x, const af_jlist *l, int depth)
{
    if (l->n == 0) {
        af_buf_str(x->b, "[]");
        return;
    }
    af_buf_char(x->b, '[');
    for (int64_t i = 0; i < l->n && !x->j->failed; i++) {
        if (i)
            af_buf_add(x->b, x->item->p, x->item->n);
        newline(x, depth + 1);
        dump(x, l->item[i], depth + 1);
    }
    newline(x, depth);
    af_buf_char(x->b, ']');
}

static void dump_key(dumper *x, af_jv k)
{
    if (k.kind == AF_J_STR) {
        dump_str(x, k.s);
    } else if (k.kind == AF_J_NONE || k.kind == AF_J_BOOL || af_jis_number(k)) {
        af_buf_char(x->b, '"');
        dump(x, k, 0);
        af_buf_char(x->b, '"');
    } else {
        af_jfail(x->j, "keys must be str, int, float, bool or None, not %s", af_jtype(k));
    }
}

/* The pairs in the order they are written: (key, value) tuples. */
static const af_jlist *pairs_of(dumper *x, const af_jdict *d)
{
    af_jlist *items = af_jlist_new(x->j, d->n), *keys = af_jlist_new(x->j, d->n);
    for (int64_t i = 0; i < d->n && !x->j->failed; i++) {
        af_jlist_add(x->j, items, af_jpair_v(x->j, d->pair[i].key, d->pair[i].val));
        af_jlist_add(x->j, keys, d->pair[i].key);
    }
    if (x->sort && !x->j->failed)
        af_jsort(x->j, items->item, keys->item, items->n, false);
    return items;
}

static void dump_dict(dumper *x, const af_jdict *d, int depth)
{
    const af_jlist *sorted = x->sort ? pairs_of(x, d) : NULL;
    if (d->n == 0) {
        af_buf_str(x->b, "{}");
        return;
    }
    af_buf_char(x->b, '{');
    for (int64_t i = 0; i < d->n && !x->j->failed; i++) {
        const af_jv *pair = sorted ? sorted->item[i].l->item : NULL;
        if (i)
            af_buf_add(x->b, x->item->p, x->item->n);
        newline(x, depth + 1);
        dump_key(x, pair ? pair[0] : d->pair[i].key);
        af_buf_add(x->b, x->key->p, x->key->n);
        dump(x, pair ? pair[1] : d->pair[i].val, depth + 1);
    }
    newline(x, depth);
    af_buf_char(x->b, '}');
}

static void dump(dumper *x, af_jv v, int depth)
{
    if (x->b->bad)
        af_jfail(x->j, "a text has more than %" PRIu64 " MiB", AF_TEMPLATE_OUTPUT_MAX >> 20);
    if (!af_jenter(x->j))
        return;
    switch ((af_jkind)v.kind) {
    case AF_J_NONE:
        af_buf_str(x->b, "null");
        break;
    case AF_J_BOOL:
        af_buf_str(x->b, v.b ? "true" : "false");
        break;
    case AF_J_INT:
        af_buf_printf(x->b, "%" PRId64, v.i);
        break;
    case AF_J_FLOAT:
        dump_float(x->b, v.f);
        break;
    case AF_J_STR:
        af_jstep(x->j, v.s->n / 64);
        dump_str(x, v.s);
        break;
    case AF_J_LIST:
    case AF_J_TUPLE:
        dump_list(x, v.l, depth);
        break;
    case AF_J_DICT:
        dump_dict(x, v.d, depth);
        break;
    default:
        af_jfail(x->j, "Object of type %s is not JSON serializable", af_jtype(v));
        break;
    }
    af_jleave(x->j);
}

/* a: ensure_ascii, indent, separators, sort_keys */
af_jv af_jtojson(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    const bool lines = a[1].kind != AF_J_MISSING && a[1].kind != AF_J_NONE;
    dumper x = {.j = j, .b = &b, .ascii = af_jtruth(&a[0]), .sort = af_jtruth(&a[3])};
    x.item = af_jstr_lit(j, lines ? "," : ", ").s;
    x.key = af_jstr_lit(j, ": ").s;
    if (lines) {
        af_jv indent = a[1];
        if (indent.kind != AF_J_STR) {
            const int64_t n = af_jneed_int(j, indent, "indent");
            indent = af_jbinary(j, AF_N_MUL, af_jstr_lit(j, " "), af_jint(j->failed ? 0 : n));
        }
        if (j->failed)
            return indent;
        x.indent = indent.s->p;
        x.indent_len = indent.s->n;
    }
    if (a[2].kind != AF_J_MISSING && a[2].kind != AF_J_NONE) {
        const af_jlist *l = af_jitems(j, a[2]);
        if (!j->failed && l->n != 2)
            af_jfail(j, "separators wants two strings, not %" PRId64, l->n);
        if (!j->failed)
            x.item = af_jneed_str(j, l->item[0], "separators");
        if (!j->failed)
            x.key = af_jneed_str(j, l->item[1], "separators");
    }
    if (!j->failed)
        dump(&x, self, 0);
    return af_jstr_take(j, &b);
}
