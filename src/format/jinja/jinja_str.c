/* jinja_str.c - the methods of str.
 *
 * Positions are code points. A method of a string marked safe returns one marked safe, and escapes
 * the strings it is passed (markupsafe's rule). */
#define _GNU_SOURCE /* memmem */
#include "format/jinja/jinja.h"

#include "format/text/python_text.h"

/* Where `what` begins in s at or after byte `from`, or -1. */
static int64_t find_from(af_jinja *j, const af_jstr *s, const af_jstr *what, uint64_t from)
{
    if (from > s->n || what->n > s->n - from)
        return -1;
    const char *p = what->n ? memmem(s->p + from, s->n - from, what->p, what->n) : s->p + from;
    af_jstep(j, (p ? (uint64_t)(p - s->p) - from : s->n - from) / 64);
    return p ? p - s->p : -1;
}

/* Where the last `what` that ends at or before byte `end` begins, or -1. */
static int64_t rfind_before(af_jinja *j, const af_jstr *s, const af_jstr *what, uint64_t end)
{
    int64_t i = (int64_t)end - (int64_t)what->n;
    while (i >= 0 && memcmp(s->p + i, what->p, what->n) != 0)
        i--;
    af_jstep(j, (uint64_t)((int64_t)end - AF_MAX(i, 0)) / 16);
    return AF_MAX(i, -1);
}

af_jval af_jstrip(af_jinja *j, af_jval self, const af_jstr *set, char sides)
{
    uint64_t from = 0, to = self.s->n;
    af_py_strip(self.s->p, &from, &to, set ? set->p : NULL, set ? set->n : 0, sides);
    af_jstep(j, (self.s->n - (to - from)) / 16 * (set ? set->n + 1 : 1));
    return to - from == self.s->n ? self : af_jstr_part(j, self, from, to);
}

static af_jval m_strip(const af_jcall *c)
{
    const af_jstr *set = af_jgiven(c->arg[0]) ? af_jarg_str(c, 0, NULL) : NULL;
    return c->j->failed ? c->self : af_jstrip(c->j, c->self, set, (char)c->func->aux);
}

static void add_part(af_jinja *j, af_jlist *l, af_jval self, uint64_t from, uint64_t to)
{
    af_jlist_add(j, l, af_jstr_part(j, self, from, to));
}

/* split() without a separator: runs of white space. */
static af_jlist *split_space(af_jinja *j, af_jval self, int64_t max)
{
    af_jlist *l = af_jlist_new(j, 0);
    uint64_t at = 0, end = self.s->n;
    for (; !j->failed; at = end) {
        end = self.s->n;
        af_py_strip(self.s->p, &at, &end, NULL, 0, 'l');
        if (at == end)
            break;
        if (max < 0 || l->n < max)
            end = at + af_py_word(self.s->p + at, end - at);
        add_part(j, l, self, at, end);
    }
    af_jstep(j, self.s->n / 16);
    return l;
}

static af_jlist *rsplit_space(af_jinja *j, af_jval self, int64_t max)
{
    af_jlist *all = split_space(j, self, -1);
    if (max < 0 || all->n <= max || j->failed)
        return all;
    af_jlist *l = af_jlist_new(j, max + 1);
    const int64_t head = all->n - max; /* the words that stay together, with their white space */
    const af_jstr *last = all->item[head - 1].s;
    add_part(j, l, self, 0, (uint64_t)(last->p + last->n - self.s->p));
    for (int64_t i = head; i < all->n; i++)
        af_jlist_add(j, l, all->item[i]);
    return l;
}

static af_jlist *split_at(af_jinja *j, af_jval self, const af_jstr *sep, int64_t max, bool right)
{
    af_jlist *l = af_jlist_new(j, 0);
    uint64_t from = 0, to = self.s->n;
    while ((max < 0 || l->n < max) && !j->failed) {
        const int64_t hit =
            right ? rfind_before(j, self.s, sep, to) : find_from(j, self.s, sep, from);
        if (hit < 0)
            break;
        add_part(j, l, self, right ? (uint64_t)hit + sep->n : from, right ? to : (uint64_t)hit);
        from = right ? 0 : (uint64_t)hit + sep->n;
        to = right ? (uint64_t)hit : to;
    }
    add_part(j, l, self, from, to);
    for (int64_t i = 0, k = l->n - 1; right && i < k; i++, k--) { /* found from the end */
        const af_jval v = l->item[i];
        l->item[i] = l->item[k];
        l->item[k] = v;
    }
    return l;
}

static af_jval m_split(const af_jcall *c)
{
    af_jinja *j = c->j;
    const bool right = c->func->aux;
    const int64_t max = af_jarg_int(c, 1, -1);
    if (!af_jgiven(c->arg[0]))
        return af_jlist_v((right ? rsplit_space : split_space)(j, c->self, max));
    const af_jstr *sep = af_jarg_str(c, 0, NULL);
    if (sep->n == 0)
        return af_jfail(j, "empty separator");
    return af_jlist_v(split_at(j, c->self, sep, max, right));
}

static af_jval m_partition(const af_jcall *c)
{
    const bool right = c->func->aux;
    const af_jstr *sep = af_jarg_str(c, 0, NULL), *s = c->self.s;
    if (sep->n == 0)
        return af_jfail(c->j, "empty separator");
    const int64_t hit = right ? rfind_before(c->j, s, sep, s->n) : find_from(c->j, s, sep, 0);
    const uint64_t cut = hit >= 0 ? (uint64_t)hit : right ? 0 : s->n;
    const uint64_t end = hit >= 0 ? cut + sep->n : cut;
    af_jlist *l = af_jlist_new(c->j, 3);
    add_part(c->j, l, c->self, 0, cut);
    add_part(c->j, l, c->self, cut, end);
    add_part(c->j, l, c->self, end, s->n);
    return af_jtuple_v(l);
}

af_jlist *af_jsplitlines(af_jinja *j, af_jval self, bool keep)
{
    af_jlist *l = af_jlist_new(j, 0);
    for (uint64_t at = 0, end; at < self.s->n && !j->failed; at = end) {
        uint64_t line_break = 0;
        end = at + af_py_line(self.s->p + at, self.s->n - at, &line_break);
        add_part(j, l, self, at, keep ? end : end - line_break);
    }
    af_jstep(j, self.s->n / 16);
    return l;
}

static af_jval m_splitlines(const af_jcall *c)
{
    return af_jlist_v(af_jsplitlines(c->j, c->self, af_jarg_true(c, 0)));
}

static bool affix(const af_jcall *c, af_jval what, uint64_t from, uint64_t to, bool end)
{
    if (what.kind != AF_JKIND_STR) {
        af_jfail_type(c->j, what, "'%s' expects a string, got '%s'", c->func->name, af_jtype(what));
        return false;
    }
    const af_jstr *w = what.s;
    return w->n <= to - from && !memcmp(c->self.s->p + (end ? to - w->n : from), w->p, w->n);
}

static af_jval m_remove_affix(const af_jcall *c)
{
    const bool end = c->func->aux;
    const uint64_t n = c->self.s->n;
    if (!affix(c, c->arg[0], 0, n, end))
        return c->self;
    const uint64_t cut = c->arg[0].s->n;
    return af_jstr_part(c->j, c->self, end ? 0 : cut, end ? n - cut : n);
}

/* The byte range of the optional arguments start and end; false when it is empty and backwards. */
static bool window(const af_jcall *c, uint64_t *from, uint64_t *to)
{
    const int64_t n = (int64_t)c->self.s->cps;
    int64_t i = af_jarg_int(c, 1, 0), k = af_jarg_int(c, 2, n);
    i = i < 0 ? AF_MAX(i + n, 0) : i;
    k = k < 0 ? AF_MAX(k + n, 0) : AF_MIN(k, n);
    if (i > n || i > k)
        return false;
    *from = af_jstr_at(c->self.s, (uint64_t)i);
    *to = af_jstr_at(c->self.s, (uint64_t)k);
    return true;
}

enum { FIND = 0, RIGHT = 1, INDEX = 2 }; /* index fails where find returns -1 */

static af_jval m_find(const af_jcall *c)
{
    const af_jstr *what = af_jarg_str(c, 0, NULL);
    uint64_t from = 0, to = 0;
    int64_t hit = -1;
    if (window(c, &from, &to)) {
        const af_jstr part = {.p = c->self.s->p, .n = to};
        hit = c->func->aux & RIGHT ? rfind_before(c->j, &part, what, to)
                                   : find_from(c->j, &part, what, from);
    }
    if (hit >= (int64_t)from && hit >= 0)
        return af_jint((int64_t)af_utf8_count(c->self.s->p, (uint64_t)hit));
    return c->func->aux & INDEX ? af_jfail(c->j, "substring not found") : af_jint(-1);
}

static af_jval m_count(const af_jcall *c)
{
    const af_jstr *what = af_jarg_str(c, 0, NULL);
    uint64_t from = 0, to = 0;
    int64_t count = 0;
    if (!window(c, &from, &to))
        return af_jint(0);
    if (what->n == 0)
        return af_jint((int64_t)af_utf8_count(c->self.s->p + from, to - from) + 1);
    const af_jstr part = {.p = c->self.s->p, .n = to};
    for (int64_t hit; !c->j->failed && (hit = find_from(c->j, &part, what, from)) >= 0; count++)
        from = (uint64_t)hit + what->n;
    return af_jint(count);
}

static af_jval m_startswith(const af_jcall *c)
{
    uint64_t from = 0, to = 0;
    const bool tuple = c->arg[0].kind == AF_JKIND_TUPLE;
    bool found = false;
    if (window(c, &from, &to))
        for (int64_t i = 0, n = tuple ? c->arg[0].l->n : 1; i < n && !found && !c->j->failed; i++)
            found = affix(c, tuple ? c->arg[0].l->item[i] : c->arg[0], from, to, c->func->aux);
    return af_jbool(found);
}

af_jval af_jreplace(af_jinja *j, af_jval self, const af_jstr *old, const af_jstr *new, int64_t max)
{
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    af_jstep(j, self.s->n / 16);
    af_py_replace(&b, self.s->p, self.s->n, old->p, old->n, new->p, new->n, max);
    return af_jmark(af_jstr_take(j, &b), self.markup);
}

static af_jval m_replace(const af_jcall *c)
{
    const af_jstr *old = af_jarg_str(c, 0, NULL), *new = af_jarg_str(c, 1, NULL);
    const int64_t max = af_jarg_int(c, 2, -1);
    if (c->self.markup && !c->j->failed)
        new = af_jescape(c->j, c->arg[1]).s;
    return c->j->failed ? c->self : af_jreplace(c->j, c->self, old, new, max);
}

static af_jval m_join(const af_jcall *c)
{
    af_jinja *j = c->j;
    const af_jlist *l = af_jitems(j, c->arg[0]);
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    for (int64_t i = 0; i < l->n && !j->failed; i++) {
        const af_jval v = c->self.markup ? af_jescape(j, l->item[i]) : l->item[i];
        if (v.kind != AF_JKIND_STR) {
            af_jfail(j, "sequence item %" PRId64 ": expected str instance, %s found", i,
                     af_jtype(v));
            break;
        }
        if (i)
            af_buf_add(&b, c->self.s->p, c->self.s->n);
        af_buf_add(&b, v.s->p, v.s->n);
    }
    return af_jmark(af_jstr_take(j, &b), c->self.markup);
}

af_jval af_jpad(af_jinja *j, af_jval self, int64_t width, const af_jstr *fill, char side)
{
    const int64_t have = (int64_t)self.s->cps;
    if (fill->cps != 1)
        return af_jfail(j, "The fill character must be exactly one character long");
    if (width <= have || j->failed)
        return self;
    if (width > AF_JINJA_PAD_MAX)
        return af_jfail(j, "a field of %" PRId64 " characters is wider than %d", width,
                        AF_JINJA_PAD_MAX);
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    af_py_pad(&b, self.s->p, self.s->n, width - have, fill->p, fill->n, side);
    return af_jmark(af_jstr_take(j, &b), self.markup);
}

static af_jval m_pad(const af_jcall *c)
{
    const int64_t width = af_jarg_int(c, 0, 0);
    return af_jpad(c->j, c->self, width, af_jarg_str(c, 1, " "), (char)c->func->aux);
}

static af_jval m_zfill(const af_jcall *c)
{
    const af_jstr *s = c->self.s;
    const uint64_t sign = s->n && (s->p[0] == '-' || s->p[0] == '+');
    const af_py_spec field = {.fill = '0',
                              .align = '>',
                              .precision = -1,
                              .width =
                                  AF_MIN(af_jarg_int(c, 0, 0), AF_JINJA_PAD_MAX) - (int64_t)sign};
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    af_buf_add(&b, s->p, sign);
    af_py_str_field(&b, &field, s->p + sign, s->n - sign);
    return af_jmark(af_jstr_take(c->j, &b), c->self.markup);
}

static af_jval m_expandtabs(const af_jcall *c)
{
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    af_py_expandtabs(&b, c->self.s->p, c->self.s->n, af_jarg_int(c, 0, 8));
    return af_jmark(af_jstr_take(c->j, &b), c->self.markup);
}

static af_jval m_format(const af_jcall *c) { return af_jformat(c->j, c->self, c->all); }

af_jval af_jrecase(af_jinja *j, af_jval self, char how)
{
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    af_jstep(j, self.s->n / 16);
    af_py_case(&b, self.s->p, self.s->n, how);
    return af_jmark(af_jstr_take(j, &b), self.markup);
}

static af_jval m_case(const af_jcall *c) { return af_jrecase(c->j, c->self, (char)c->func->aux); }

static af_jval m_is(const af_jcall *c)
{
    af_jstep(c->j, c->self.s->n / 16);
    return af_jbool(af_py_is_all(c->self.s->p, c->self.s->n, (char)c->func->aux));
}

const af_jfunc af_jmethods_str[] = {
    {"strip", "/chars?", m_strip, 'b'},
    {"lstrip", "/chars?", m_strip, 'l'},
    {"rstrip", "/chars?", m_strip, 'r'},
    {"split", "sep?,maxsplit?", m_split, 0},
    {"rsplit", "sep?,maxsplit?", m_split, 1},
    {"partition", "/sep", m_partition, 0},
    {"rpartition", "/sep", m_partition, 1},
    {"splitlines", "keepends?", m_splitlines, 0},
    {"replace", "/old,new,count?", m_replace, 0},
    {"find", "/sub,start?,end?", m_find, FIND},
    {"rfind", "/sub,start?,end?", m_find, RIGHT},
    {"index", "/sub,start?,end?", m_find, INDEX},
    {"rindex", "/sub,start?,end?", m_find, INDEX | RIGHT},
    {"count", "/sub,start?,end?", m_count, 0},
    {"startswith", "/prefix,start?,end?", m_startswith, 0},
    {"endswith", "/suffix,start?,end?", m_startswith, 1},
    {"removeprefix", "/prefix", m_remove_affix, 0},
    {"removesuffix", "/suffix", m_remove_affix, 1},
    {"join", "/iterable", m_join, 0},
    {"format", NULL, m_format, 0},
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
    {"isidentifier", "", m_is, '_'},
    {"center", "/width,fillchar?", m_pad, 'c'},
    {"ljust", "/width,fillchar?", m_pad, 'l'},
    {"rjust", "/width,fillchar?", m_pad, 'r'},
    {"zfill", "/width", m_zfill, 0},
    {"expandtabs", "tabsize?", m_expandtabs, 0},
    {0},
};
