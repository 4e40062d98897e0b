#define _GNU_SOURCE /* memmem */
/* jinja_compare.c - truth, equality, order, membership and hashes of values, as Python has them. */
#include "format/jinja/jinja.h"

#include "base/hash.h"

#include <math.h>

const char *af_jtype(af_jv v)
{
    static const char *const names[] = {
        [AF_J_UNDEF] = "Undefined", [AF_J_NONE] = "NoneType",    [AF_J_BOOL] = "bool",
        [AF_J_INT] = "int",         [AF_J_FLOAT] = "float",      [AF_J_STR] = "str",
        [AF_J_LIST] = "list",       [AF_J_TUPLE] = "tuple",      [AF_J_DICT] = "dict",
        [AF_J_RANGE] = "range",     [AF_J_VIEW] = "dict view",   [AF_J_ITER] = "generator",
        [AF_J_NS] = "Namespace",    [AF_J_LOOP] = "LoopContext", [AF_J_MACRO] = "Macro",
        [AF_J_FUNC] = "function",   [AF_J_METHOD] = "method",    [AF_J_CYCLER] = "Cycler",
        [AF_J_JOINER] = "Joiner",   [AF_J_SLICE] = "slice",      [AF_J_MISSING] = "nothing",
    };
    return v.kind == AF_J_STR && v.markup ? "Markup" : names[v.kind];
}

bool af_jis_number(af_jv v)
{
    return v.kind == AF_J_INT || v.kind == AF_J_FLOAT || v.kind == AF_J_BOOL;
}

double af_jnumber(af_jv v)
{
    return v.kind == AF_J_FLOAT ? v.f : v.kind == AF_J_BOOL ? (double)v.b : (double)v.i;
}

static int64_t integer(af_jv v) { return v.kind == AF_J_BOOL ? v.b : v.i; }

int64_t af_jneed_int(af_jinja *j, af_jv v, const char *what)
{
    if (v.kind == AF_J_INT || v.kind == AF_J_BOOL)
        return integer(v);
    if (v.kind == AF_J_UNDEF && v.s)
        af_jfail(j, "%s", v.s->p);
    af_jfail(j, "%s wants an integer, not '%s'", what, af_jtype(v));
    return 0;
}

const af_jstr *af_jneed_str(af_jinja *j, af_jv v, const char *what)
{
    if (v.kind == AF_J_STR)
        return v.s;
    if (v.kind == AF_J_UNDEF && v.s)
        af_jfail(j, "%s", v.s->p);
    af_jfail(j, "%s wants a string, not '%s'", what, af_jtype(v));
    return &j->no_str;
}

bool af_jtruth(const af_jv *v)
{
    switch ((af_jkind)v->kind) {
    case AF_J_UNDEF:
    case AF_J_NONE:
    case AF_J_MISSING:
        return false;
    case AF_J_BOOL:
        return v->b;
    case AF_J_INT:
        return v->i != 0;
    case AF_J_FLOAT:
        return v->f != 0;
    case AF_J_STR:
        return v->s->n != 0;
    default: {
        const int64_t n = af_jlength(*v);
        return n != 0; /* no length (-1): an object, always true */
    }
    }
}

static bool str_equal(af_jinja *j, const af_jstr *a, const af_jstr *b)
{
    if (a == b)
        return true;
    if (a->n != b->n)
        return false;
    af_jstep(j, a->n / 64);
    return !memcmp(a->p, b->p, a->n);
}

static bool lists_equal(af_jinja *j, const af_jlist *a, const af_jlist *b)
{
    if (a == b)
        return true;
    if (a->n != b->n)
        return false;
    for (int64_t i = 0; i < a->n; i++)
        if (!af_jequal(j, a->item[i], b->item[i]) || j->failed)
            return false;
    return true;
}

static bool dicts_equal(af_jinja *j, const af_jdict *a, const af_jdict *b)
{
    if (a == b)
        return true;
    if (a->n != b->n)
        return false;
    for (int64_t i = 0; i < a->n; i++) {
        const af_jv *other = af_jdict_get(j, b, a->pair[i].key);
        if (!other || j->failed || !af_jequal(j, a->pair[i].val, *other))
            return false;
    }
    return true;
}

static bool ranges_equal(const af_jrange *a, const af_jrange *b)
{
    return a->n == b->n && (a->n == 0 || a->start == b->start) && (a->n < 2 || a->step == b->step);
}

bool af_jsame(af_jv a, af_jv b)
{
    if (a.kind != b.kind)
        return false;
    switch ((af_jkind)a.kind) {
    case AF_J_UNDEF:
        return a.s == b.s;
    case AF_J_NONE:
        return true;
    case AF_J_BOOL:
        return a.b == b.b;
    case AF_J_INT: /* small integers are one object each in CPython */
        return a.i == b.i && a.i >= -5 && a.i <= 256;
    case AF_J_FLOAT:
        return false;
    default:
        return a.l == b.l; /* any pointer member: all lie at the same place */
    }
}

bool af_jequal(af_jinja *j, af_jv a, af_jv b)
{
    if (af_jis_number(a) && af_jis_number(b))
        return a.kind == AF_J_FLOAT || b.kind == AF_J_FLOAT ? af_jnumber(a) == af_jnumber(b)
                                                            : integer(a) == integer(b);
    if (a.kind != b.kind || !af_jenter(j))
        return false;
    bool equal = false;
    switch ((af_jkind)a.kind) {
    case AF_J_UNDEF:
    case AF_J_NONE:
        equal = true;
        break;
    case AF_J_STR:
        equal = str_equal(j, a.s, b.s);
        break;
    case AF_J_LIST:
    case AF_J_TUPLE:
        equal = lists_equal(j, a.l, b.l);
        break;
    case AF_J_DICT:
        equal = dicts_equal(j, a.d, b.d);
        break;
    case AF_J_RANGE:
        equal = ranges_equal(a.r, b.r);
        break;
    case AF_J_VIEW:
        equal = a.view->what == b.view->what && a.view->what != 'v' &&
                dicts_equal(j, a.view->dict, b.view->dict);
        break;
    case AF_J_METHOD:
        equal = a.method->func == b.method->func && af_jsame(a.method->self, b.method->self);
        break;
    default:
        equal = a.l == b.l;
        break;
    }
    af_jleave(j);
    return equal;
}

/* -1, 0, 1; 2 when the two cannot be ordered (a failure is latched), 3 for NaN. */
static int order(af_jinja *j, af_jv a, af_jv b, const char *op)
{
    if (af_jis_number(a) && af_jis_number(b)) {
        if (a.kind != AF_J_FLOAT && b.kind != AF_J_FLOAT)
            return integer(a) < integer(b) ? -1 : integer(a) > integer(b);
        const double x = af_jnumber(a), y = af_jnumber(b);
        return isnan(x) || isnan(y) ? 3 : x < y ? -1 : x > y;
    }
    if (a.kind == AF_J_STR && b.kind == AF_J_STR) {
        const uint64_t n = AF_MIN(a.s->n, b.s->n);
        af_jstep(j, n / 64);
        const int c = memcmp(a.s->p, b.s->p, n);
        return c ? (c < 0 ? -1 : 1) : a.s->n < b.s->n ? -1 : a.s->n > b.s->n;
    }
    if (a.kind == b.kind && (a.kind == AF_J_LIST || a.kind == AF_J_TUPLE)) {
        int c = 2;
        if (!af_jenter(j))
            return 2;
        int64_t i = 0;
        while (i < a.l->n && i < b.l->n && !j->failed && af_jequal(j, a.l->item[i], b.l->item[i]))
            i++;
        if (i < a.l->n && i < b.l->n)
            c = order(j, a.l->item[i], b.l->item[i], op);
        else
            c = a.l->n < b.l->n ? -1 : a.l->n > b.l->n;
        af_jleave(j);
        return c;
    }
    const af_jv *u = a.kind == AF_J_UNDEF ? &a : b.kind == AF_J_UNDEF ? &b : NULL;
    if (u && u->s)
        af_jfail(j, "%s", u->s->p);
    af_jfail(j, "'%s' not supported between instances of '%s' and '%s'", op, af_jtype(a),
             af_jtype(b));
    return 2;
}

bool af_jorder(af_jinja *j, int cmp, af_jv a, af_jv b)
{
    static const char *const names[] = {
        [AF_CMP_LT] = "<", [AF_CMP_LE] = "<=", [AF_CMP_GT] = ">", [AF_CMP_GE] = ">="};
    const int c = order(j, a, b, names[cmp]);
    if (c > 1)
        return false;
    return cmp == AF_CMP_LT ? c < 0 : cmp == AF_CMP_LE ? c <= 0 : cmp == AF_CMP_GT ? c > 0 : c >= 0;
}

static bool in_items(af_jinja *j, af_jv item, const af_jlist *l)
{
    for (int64_t i = 0; i < l->n && !j->failed; i++)
        if (af_jequal(j, l->item[i], item))
            return true;
    return false;
}

static bool in_range(af_jv item, const af_jrange *r)
{
    if (!af_jis_number(item))
        return false;
    const double x = af_jnumber(item);
    for (int64_t i = 0; i < r->n; i++)
        if ((double)(r->start + i * r->step) == x)
            return true;
    return false;
}

bool af_jcontains(af_jinja *j, af_jv item, af_jv in)
{
    switch ((af_jkind)in.kind) {
    case AF_J_UNDEF:
        return false;
    case AF_J_STR:
        if (item.kind != AF_J_STR) {
            if (item.kind == AF_J_UNDEF && item.s)
                af_jfail(j, "'in <string>' requires string as left operand, not Undefined");
            af_jfail(j, "'in <string>' requires string as left operand, not %s", af_jtype(item));
            return false;
        }
        af_jstep(j, in.s->n / 64);
        return item.s->n == 0 || memmem(in.s->p, in.s->n, item.s->p, item.s->n) != NULL;
    case AF_J_LIST:
    case AF_J_TUPLE:
        return in_items(j, item, in.l);
    case AF_J_DICT:
        return af_jdict_get(j, in.d, item) != NULL;
    case AF_J_RANGE:
        af_jstep(j, (uint64_t)in.r->n / 8);
        return in_range(item, in.r);
    case AF_J_VIEW:
        if (in.view->what == 'k')
            return af_jdict_get(j, in.view->dict, item) != NULL;
        return in_items(j, item, af_jitems(j, in));
    case AF_J_ITER:
        for (af_jv next; af_jiter_next(j, in.iter, &next);)
            if (af_jequal(j, next, item))
                return true;
        return false;
    default:
        af_jfail(j, "argument of type '%s' is not iterable", af_jtype(in));
        return false;
    }
}

static uint64_t mix(uint64_t h, uint64_t x) { return af_fnv1a(h, &x, sizeof x); }

uint64_t af_jhash(af_jinja *j, af_jv v)
{
    switch ((af_jkind)v.kind) {
    case AF_J_STR:
        return af_jstr_hash(v.s);
    case AF_J_BOOL:
    case AF_J_INT:
        return mix(AF_FNV_START, (uint64_t)integer(v));
    case AF_J_FLOAT: /* equal numbers have equal hashes: 1 == 1.0 */
        if (v.f == floor(v.f) && fabs(v.f) < 9e18)
            return mix(AF_FNV_START, (uint64_t)(int64_t)v.f);
        return af_fnv1a(AF_FNV_START + 1, &v.f, sizeof v.f);
    case AF_J_UNDEF:
    case AF_J_NONE:
        return mix(AF_FNV_START, v.kind + UINT64_C(0x517cc1b727220a95));
    case AF_J_TUPLE: {
        uint64_t h = AF_FNV_START + 7;
        if (!af_jenter(j))
            return 0;
        for (int64_t i = 0; i < v.l->n && !j->failed; i++)
            h = mix(h, af_jhash(j, v.l->item[i]));
        af_jleave(j);
        return h;
    }
    case AF_J_RANGE:
        return mix(AF_FNV_START + 9, (uint64_t)v.r->n);
    case AF_J_LIST:
    case AF_J_DICT:
    case AF_J_VIEW:
    case AF_J_SLICE:
        af_jfail(j, "unhashable type: '%s'", af_jtype(v));
        return 0;
    default:
        return mix(AF_FNV_START, (uint64_t)(uintptr_t)v.l);
    }
}
