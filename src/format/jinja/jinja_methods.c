/* jinja_methods.c - the other methods of str, and those of list, dict, tuple, range, numbers, loops
 * and cyclers. Methods that change a list or dict do not exist: see is_unsafe in jinja_attr.c. */
#include "format/jinja/jinja.h"

#include <math.h>

af_jv af_jrecase(af_jinja *j, af_jv self, char how)
{
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    af_jstep(j, self.s->n / 16);
    af_juni_case(&b, self.s, how);
    return af_jmark(af_jstr_take(j, &b), self.markup);
}

static af_jv m_case(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    return af_jrecase(j, self, (char)j->aux);
}

bool af_jcase_is(const af_jstr *s, char what)
{
    bool any = false;
    for (const char *p = s->p, *end = s->p + s->n; p < end;) {
        const uint32_t cp = af_jutf8_next(&p);
        if (af_juni_is(cp, what == 'u' ? 'l' : 'u') || af_juni_is(cp, 't'))
            return false;
        any = any || af_juni_is(cp, what);
    }
    return any;
}

static bool is_title(const af_jstr *s)
{
    bool any = false, in_word = false;
    for (const char *p = s->p, *end = s->p + s->n; p < end;) {
        const uint32_t cp = af_jutf8_next(&p);
        const bool upper = af_juni_is(cp, 'u') || af_juni_is(cp, 't'), lower = af_juni_is(cp, 'l');
        if ((upper && in_word) || (lower && !in_word))
            return false;
        in_word = upper || lower;
        any = any || in_word;
    }
    return any;
}

static bool char_is(uint32_t cp, char what)
{
    switch (what) {
    case 's':
        return af_juni_space(cp);
    case 'p':
        return af_juni_printable(cp);
    case 'i':
        return cp < 0x80;
    case 'w': /* isalnum */
        return af_juni_is(cp, 'a') || af_juni_is(cp, 'd') || af_juni_is(cp, 'n');
    default:
        return af_juni_is(cp, what);
    }
}

static af_jv m_is(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    const char what = (char)j->aux;
    const af_jstr *s = self.s;
    af_jstep(j, s->n / 16);
    if (what == 'u' || what == 'l')
        return af_jbool(af_jcase_is(s, what));
    if (what == 't')
        return af_jbool(is_title(s));
    if (s->n == 0)
        return af_jbool(what == 'p' || what == 'i');
    for (const char *p = s->p, *end = s->p + s->n; p < end;)
        if (!char_is(af_jutf8_next(&p), what))
            return af_jbool(false);
    return af_jbool(true);
}

static af_jv m_isidentifier(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)j;
    (void)a;
    (void)raw;
    const char *p = self.s->p, *end = p + self.s->n;
    for (bool first = true; p < end; first = false) {
        const uint32_t cp = af_jutf8_next(&p);
        if (!(cp == '_' || af_juni_is(cp, 'a') || (!first && af_juni_is(cp, 'c'))))
            return af_jbool(false);
    }
    return af_jbool(self.s->n > 0);
}

af_jv af_jpad(af_jinja *j, af_jv self, int64_t width, const af_jstr *fill, char side)
{
    const int64_t have = (int64_t)self.s->cps;
    if (fill->cps != 1)
        return af_jfail(j, "The fill character must be exactly one character long");
    if (width <= have)
        return self;
    if (width > AF_JINJA_PAD_MAX)
        return af_jfail(j, "a field of %" PRId64 " characters is wider than %d", width,
                        AF_JINJA_PAD_MAX);
    const int64_t pad = width - have;
    /* CPython's center puts the odd one left when the width is odd */
    const int64_t left = side == 'r' ? pad : side == 'l' ? 0 : pad / 2 + (pad & width & 1);
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    for (int64_t i = 0; i < left; i++)
        af_buf_add(&b, fill->p, fill->n);
    af_buf_add(&b, self.s->p, self.s->n);
    for (int64_t i = left; i < pad; i++)
        af_buf_add(&b, fill->p, fill->n);
    return af_jmark(af_jstr_take(j, &b), self.markup);
}

static af_jv m_pad(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const char side = (char)j->aux;
    static const char blank[] = " ";
    const af_jstr space = {.p = blank, .n = 1, .cps = 1};
    const int64_t width = af_jneed_int(j, a[0], "the width of a field");
    const af_jstr *fill = a[1].kind == AF_J_MISSING ? &space : af_jneed_str(j, a[1], "a fill");
    return j->failed ? self : af_jpad(j, self, width, fill, side);
}

static af_jv m_zfill(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const af_jstr zero = {.p = "0", .n = 1, .cps = 1};
    const int64_t width = af_jneed_int(j, a[0], "zfill()");
    const bool sign = self.s->n && (self.s->p[0] == '-' || self.s->p[0] == '+');
    if (!sign || j->failed)
        return j->failed ? self : af_jpad(j, self, width, &zero, 'r');
    const af_jv rest = af_jpad(j, af_jstr_part(j, self.s, 1, self.s->n), width - 1, &zero, 'r');
    const af_jv head = af_jstr_part(j, self.s, 0, 1);
    return j->failed ? self : af_jmark(af_jbinary(j, AF_N_ADD, head, rest), self.markup);
}

static af_jv m_expandtabs(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const int64_t size = a[0].kind == AF_J_MISSING ? 8 : af_jneed_int(j, a[0], "expandtabs()");
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    int64_t column = 0;
    for (const char *p = self.s->p, *end = p + self.s->n; p < end && size < AF_JINJA_PAD_MAX;) {
        const uint32_t cp = af_jutf8_next(&p);
        if (cp == '\t') {
            for (int64_t n = size > 0 ? size - column % size : 0; n > 0 && !b.bad; n--, column++)
                af_buf_char(&b, ' ');
            continue;
        }
        af_buf_utf8(&b, cp);
        column = cp == '\n' || cp == '\r' ? 0 : column + 1;
    }
    return af_jmark(af_jstr_take(j, &b), self.markup);
}

static af_jv m_format(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    return af_jformat(j, self, raw);
}

static const af_jfunc str_methods[] = {
    {"upper", "", m_case, 'u'},
    {"lower", "", m_case, 'l'},
    {"title", "", m_case, 't'},
    {"capitalize", "", m_case, 'c'},
    {"swapcase", "", m_case, 's'},
    {"casefold", "", m_case, 'f'},
    {"isalpha", "", m_is, 'a'},
    {"isdigit", "", m_is, 'd'},
    {"isdecimal", "", m_is, 'c'},
    {"isnumeric", "", m_is, 'n'},
    {"isalnum", "", m_is, 'w'},
    {"isspace", "", m_is, 's'},
    {"isprintable", "", m_is, 'p'},
    {"isascii", "", m_is, 'i'},
    {"isupper", "", m_is, 'u'},
    {"islower", "", m_is, 'l'},
    {"istitle", "", m_is, 't'},
    {"isidentifier", "", m_isidentifier, 0},
    {"center", "/width,fillchar?", m_pad, 'c'},
    {"ljust", "/width,fillchar?", m_pad, 'l'},
    {"rjust", "/width,fillchar?", m_pad, 'r'},
    {"zfill", "/width", m_zfill, 0},
    {"expandtabs", "tabsize?", m_expandtabs, 0},
    {"format", NULL, m_format, 0},
    {0},
};

static af_jv m_list_index(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const af_jlist *l = af_jitems(j, self);
    int64_t from = a[1].kind == AF_J_MISSING ? 0 : af_jneed_int(j, a[1], "index()");
    int64_t to = a[2].kind == AF_J_MISSING ? l->n : af_jneed_int(j, a[2], "index()");
    from = from < 0 ? AF_MAX(from + l->n, 0) : from;
    to = to < 0 ? to + l->n : AF_MIN(to, l->n);
    for (int64_t i = from; i < to && !j->failed; i++)
        if (af_jequal(j, l->item[i], a[0]))
            return af_jint(i);
    return af_jfail(j, "the value is not in the %s", af_jtype(self));
}

static af_jv m_list_count(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const af_jlist *l = af_jitems(j, self);
    int64_t n = 0;
    for (int64_t i = 0; i < l->n && !j->failed; i++)
        n += af_jequal(j, l->item[i], a[0]);
    return af_jint(n);
}

static af_jv m_copy(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)j;
    (void)a;
    (void)raw;
    return self; /* never changed, so the copy may be the thing itself */
}

static af_jv m_get(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const af_jv *v = af_jdict_get(j, self.d, a[0]);
    return v ? *v : a[1].kind == AF_J_MISSING ? af_jnone() : a[1];
}

static af_jv m_view(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    const char what = (char)j->aux;
    af_jview *v = af_jtake(j, sizeof *v);
    if (!v)
        return af_jnone();
    *v = (af_jview){.dict = self.d, .what = what};
    return (af_jv){.kind = AF_J_VIEW, .view = v};
}

static af_jv m_fromkeys(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)self;
    (void)raw;
    const af_jlist *l = af_jitems(j, a[0]);
    af_jdict *d = af_jdict_new(j, l->n);
    for (int64_t i = 0; i < l->n && !j->failed; i++)
        af_jdict_set(j, d, l->item[i], a[1].kind == AF_J_MISSING ? af_jnone() : a[1]);
    return af_jdict_v(d);
}

static af_jv m_number(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    const int what = j->aux;
    if (what == 'c')
        return self;
    if (what == 'i')
        return af_jbool(isfinite(self.f) && self.f == floor(self.f));
    uint64_t x = self.kind == AF_J_BOOL ? self.b
                 : self.i < 0           ? 0 - (uint64_t)self.i
                                        : (uint64_t)self.i;
    int64_t bits = 0;
    for (; x; x >>= 1)
        bits += what == 'b' ? 1 : (int64_t)(x & 1);
    return af_jint(bits);
}

static af_jv m_cycle(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    if (raw->n == 0)
        return af_jfail(j, "no items for cycling given");
    return raw->pos[self.loop->at % raw->n];
}

static af_jv m_changed(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    af_jlist *now = af_jlist_new(j, raw->n);
    for (int i = 0; i < raw->n; i++)
        af_jlist_add(j, now, raw->pos[i]);
    const bool same =
        self.loop->changed && af_jequal(j, af_jtuple_v(self.loop->changed), af_jtuple_v(now));
    if (!same)
        self.loop->changed = now;
    return af_jbool(!same);
}

static af_jv m_cycler(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    if (j->aux == 'r') {
        self.cycle->at = 0;
        return af_jnone();
    }
    const af_jv v = self.cycle->items->item[self.cycle->at];
    self.cycle->at = (self.cycle->at + 1) % self.cycle->items->n;
    return v;
}

static const af_jfunc list_methods[] = {
    {"index", "/value,start?,stop?", m_list_index, 0},
    {"count", "/value", m_list_count, 0},
    {"copy", "", m_copy, 0},
    {0},
};
static const af_jfunc tuple_methods[] = {
    {"index", "/value,start?,stop?", m_list_index, 0},
    {"count", "/value", m_list_count, 0},
    {0},
};
static const af_jfunc dict_methods[] = {
    {"get", "/key,default?", m_get, 0},
    {"items", "", m_view, 'i'},
    {"keys", "", m_view, 'k'},
    {"values", "", m_view, 'v'},
    {"copy", "", m_copy, 0},
    {"fromkeys", "/iterable,value?", m_fromkeys, 0},
    {0},
};
static const af_jfunc int_methods[] = {
    {"bit_length", "", m_number, 'b'},
    {"bit_count", "", m_number, 'n'},
    {"conjugate", "", m_number, 'c'},
    {0},
};
static const af_jfunc float_methods[] = {
    {"is_integer", "", m_number, 'i'},
    {"conjugate", "", m_number, 'c'},
    {0},
};
static const af_jfunc loop_methods[] = {
    {"cycle", NULL, m_cycle, 0},
    {"changed", NULL, m_changed, 0},
    {0},
};
static const af_jfunc cycler_methods[] = {
    {"next", "", m_cycler, 'n'},
    {"reset", "", m_cycler, 'r'},
    {0},
};

const af_jfunc *af_jtable_find(const af_jfunc *table, const af_jstr *name)
{
    for (; table->name; table++)
        if (af_jstr_is(name, table->name))
            return table;
    return NULL;
}

const af_jfunc *af_jmethod_find(af_jv obj, const af_jstr *name)
{
    const af_jfunc *f = NULL;
    switch ((af_jkind)obj.kind) {
    case AF_J_STR:
        f = af_jtable_find(af_jstr_methods, name);
        return f ? f : af_jtable_find(str_methods, name);
    case AF_J_LIST:
        return af_jtable_find(list_methods, name);
    case AF_J_TUPLE:
    case AF_J_RANGE:
        return af_jtable_find(tuple_methods, name);
    case AF_J_DICT:
        return af_jtable_find(dict_methods, name);
    case AF_J_BOOL:
    case AF_J_INT:
        return af_jtable_find(int_methods, name);
    case AF_J_FLOAT:
        return af_jtable_find(float_methods, name);
    case AF_J_LOOP:
        return af_jtable_find(loop_methods, name);
    case AF_J_CYCLER:
        return af_jtable_find(cycler_methods, name);
    case AF_J_FUNC:
        return !strcmp(obj.func->name, "dict") && af_jstr_is(name, "fromkeys") ? &dict_methods[5]
                                                                               : NULL;
    default:
        return NULL;
    }
}
