/* jinja_str_methods.c - methods of str that search, cut, join and pad.
 *
 * Positions are code points. A method of a string marked safe gives one marked safe, and escapes
 * the strings it is given (markupsafe's rule). */
#define _GNU_SOURCE /* memmem */
#include "format/jinja/jinja.h"

static bool given(af_jv v) { return v.kind != AF_J_MISSING && v.kind != AF_J_NONE; }

/* Where `what` begins in s at or behind byte `from`, or -1. */
static int64_t find_from(af_jinja *j, const af_jstr *s, const af_jstr *what, uint64_t from)
{
    if (from > s->n || what->n > s->n - from)
        return -1;
    if (what->n == 0)
        return (int64_t)from;
    const char *p = memmem(s->p + from, s->n - from, what->p, what->n);
    af_jstep(j, (p ? (uint64_t)(p - s->p) - from : s->n - from) / 64);
    return p ? p - s->p : -1;
}

static int64_t rfind_before(af_jinja *j, const af_jstr *s, const af_jstr *what, uint64_t end)
{
    if (what->n > end)
        return -1;
    for (uint64_t i = end - what->n + 1; i-- > 0;)
        if (!memcmp(s->p + i, what->p, what->n)) {
            af_jstep(j, (end - i) / 16);
            return (int64_t)i;
        }
    af_jstep(j, end / 16);
    return -1;
}

static bool in_set(const af_jstr *set, uint32_t cp)
{
    for (const char *p = set->p, *end = set->p + set->n; p < end;)
        if (af_jutf8_next(&p) == cp)
            return true;
    return false;
}

af_jv af_jstrip(af_jinja *j, af_jv self, af_jv chars, char sides)
{
    const af_jstr *s = self.s;
    const af_jstr *set = given(chars) ? af_jneed_str(j, chars, "strip()") : NULL;
    uint64_t from = 0, to = s->n;
    if (j->failed)
        return self;
    while (from < to && sides != 'r') {
        const char *p = s->p + from;
        const uint32_t cp = af_jutf8_next(&p);
        if (!(set ? in_set(set, cp) : af_juni_space(cp)))
            break;
        from = (uint64_t)(p - s->p);
    }
    while (to > from && sides != 'l') {
        uint64_t k = to - 1;
        while (k > from && ((unsigned char)s->p[k] & 0xc0) == 0x80)
            k--;
        const char *p = s->p + k;
        const uint32_t cp = af_jutf8_next(&p);
        if (!(set ? in_set(set, cp) : af_juni_space(cp)))
            break;
        to = k;
    }
    af_jstep(j, (s->n - (to - from)) / 16 * (set ? set->n + 1 : 1));
    return to - from == s->n ? self : af_jmark(af_jstr_part(j, s, from, to), self.markup);
}

static af_jv m_strip(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    return af_jstrip(j, self, a[0], (char)j->aux);
}

static void add_part(af_jinja *j, af_jlist *l, af_jv self, uint64_t from, uint64_t to)
{
    af_jlist_add(j, l, af_jmark(af_jstr_part(j, self.s, from, to), self.markup));
}

/* split() without a separator: runs of white space. */
static af_jlist *split_space(af_jinja *j, af_jv self, int64_t max)
{
    const af_jstr *s = self.s;
    af_jlist *l = af_jlist_new(j, 0);
    uint64_t at = 0;
    while (!j->failed) {
        const char *p;
        while (at < s->n && (p = s->p + at, af_juni_space(af_jutf8_next(&p))))
            at = (uint64_t)(p - s->p);
        if (at >= s->n)
            break;
        uint64_t end = at;
        if (max >= 0 && l->n == max) {
            add_part(j, l, self, at, s->n);
            break;
        }
        while (end < s->n && (p = s->p + end, !af_juni_space(af_jutf8_next(&p))))
            end = (uint64_t)(p - s->p);
        add_part(j, l, self, at, end);
        at = end;
    }
    af_jstep(j, s->n / 16);
    return l;
}

static af_jlist *rsplit_space(af_jinja *j, af_jv self, int64_t max)
{
    af_jlist *all = split_space(j, self, -1);
    if (max < 0 || all->n <= max || j->failed)
        return all;
    af_jlist *l = af_jlist_new(j, max + 1);
    const int64_t kept = all->n - max; /* the head keeps its inner white space */
    const char *head_end = all->item[kept - 1].s->p + all->item[kept - 1].s->n;
    add_part(j, l, self, 0, (uint64_t)(head_end - self.s->p));
    for (int64_t i = kept; i < all->n; i++)
        af_jlist_add(j, l, all->item[i]);
    return l;
}

static af_jlist *split_at(af_jinja *j, af_jv self, const af_jstr *sep, int64_t max)
{
    af_jlist *l = af_jlist_new(j, 0);
    uint64_t at = 0;
    while (!j->failed) {
        const int64_t hit = max >= 0 && l->n >= max ? -1 : find_from(j, self.s, sep, at);
        if (hit < 0)
            break;
        add_part(j, l, self, at, (uint64_t)hit);
        at = (uint64_t)hit + sep->n;
    }
    add_part(j, l, self, at, self.s->n);
    return l;
}

static af_jlist *rsplit_at(af_jinja *j, af_jv self, const af_jstr *sep, int64_t max)
{
    af_jlist *back = af_jlist_new(j, 0);
    uint64_t end = self.s->n;
    while (!j->failed) {
        const int64_t hit = max >= 0 && back->n >= max ? -1 : rfind_before(j, self.s, sep, end);
        if (hit < 0)
            break;
        add_part(j, back, self, (uint64_t)hit + sep->n, end);
        end = (uint64_t)hit;
    }
    add_part(j, back, self, 0, end);
    af_jlist *l = af_jlist_new(j, back->n);
    for (int64_t i = back->n; i-- > 0 && !j->failed;)
        af_jlist_add(j, l, back->item[i]);
    return l;
}

static af_jv split(af_jinja *j, af_jv self, const af_jv *a, bool right)
{
    const int64_t max = given(a[1]) ? af_jneed_int(j, a[1], "split()") : -1;
    if (!given(a[0]))
        return af_jlist_v(right ? rsplit_space(j, self, max) : split_space(j, self, max));
    const af_jstr *sep = af_jneed_str(j, a[0], "split()");
    if (sep->n == 0)
        return af_jfail(j, "empty separator");
    return af_jlist_v(right ? rsplit_at(j, self, sep, max) : split_at(j, self, sep, max));
}

static af_jv m_split(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    return split(j, self, a, j->aux);
}

static af_jv partition(af_jinja *j, af_jv self, const af_jv *a, bool right)
{
    const af_jstr *sep = af_jneed_str(j, a[0], "partition()");
    if (sep->n == 0)
        return af_jfail(j, "empty separator");
    const int64_t hit =
        right ? rfind_before(j, self.s, sep, self.s->n) : find_from(j, self.s, sep, 0);
    af_jlist *l = af_jlist_new(j, 3);
    const uint64_t n = self.s->n, cut = hit >= 0 ? (uint64_t)hit : right ? 0 : n;
    const uint64_t end = hit >= 0 ? cut + sep->n : cut;
    add_part(j, l, self, 0, cut);
    add_part(j, l, self, cut, end);
    add_part(j, l, self, end, n);
    return af_jtuple_v(l);
}

static af_jv m_partition(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    return partition(j, self, a, j->aux);
}

/* The length of the line break at s[i], 0 when there is none. */
static uint64_t line_break(const af_jstr *s, uint64_t i)
{
    const char *p = s->p + i;
    const uint32_t cp = af_jutf8_next(&p);
    const bool breaks = (cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 ||
                        cp == 0x2028 || cp == 0x2029;
    if (!breaks)
        return 0;
    return cp == '\r' && i + 1 < s->n && s->p[i + 1] == '\n' ? 2 : (uint64_t)(p - s->p) - i;
}

af_jlist *af_jsplitlines(af_jinja *j, af_jv self, bool keep)
{
    const af_jstr *s = self.s;
    af_jlist *l = af_jlist_new(j, 0);
    uint64_t from = 0;
    for (uint64_t i = 0; i < s->n && !j->failed;) {
        const uint64_t brk = line_break(s, i);
        if (brk) {
            add_part(j, l, self, from, keep ? i + brk : i);
            from = i + brk;
        }
        const char *p = s->p + i;
        af_jutf8_next(&p);
        i = brk ? i + brk : (uint64_t)(p - s->p);
    }
    if (from < s->n)
        add_part(j, l, self, from, s->n);
    af_jstep(j, s->n / 16);
    return l;
}

static af_jv m_splitlines(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    return af_jlist_v(af_jsplitlines(j, self, af_jtruth(&a[0])));
}

af_jv af_jreplace(af_jinja *j, af_jv self, const af_jstr *old, const af_jstr *new, int64_t max)
{
    const af_jstr *s = self.s;
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    uint64_t at = 0;
    for (int64_t done = 0; (max < 0 || done < max) && !j->failed && !b.bad; done++) {
        if (old->n == 0) { /* between all characters, and at both ends */
            af_buf_add(&b, new->p, new->n);
            if (at >= s->n)
                break;
            const char *p = s->p + at;
            af_jutf8_next(&p);
            af_buf_add(&b, s->p + at, (uint64_t)(p - s->p) - at);
            at = (uint64_t)(p - s->p);
            continue;
        }
        const int64_t hit = find_from(j, s, old, at);
        if (hit < 0)
            break;
        af_buf_add(&b, s->p + at, (uint64_t)hit - at);
        af_buf_add(&b, new->p, new->n);
        at = (uint64_t)hit + old->n;
    }
    af_buf_add(&b, s->p + at, s->n - at);
    return af_jmark(af_jstr_take(j, &b), self.markup);
}

static af_jv m_replace(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const int64_t max = a[2].kind == AF_J_MISSING ? -1 : af_jneed_int(j, a[2], "replace()");
    const af_jstr *old = af_jneed_str(j, a[0], "replace()");
    const af_jstr *new = af_jneed_str(j, a[1], "replace()");
    if (self.markup && !j->failed)
        new = af_jescape(j, a[1]).s;
    return j->failed ? self : af_jreplace(j, self, old, new, max);
}

/* The byte range of optional start and end arguments. */
static bool window(af_jinja *j, const af_jstr *s, const af_jv *a, uint64_t *from, uint64_t *to)
{
    const int64_t n = (int64_t)s->cps;
    int64_t i = given(a[1]) ? af_jneed_int(j, a[1], "start") : 0;
    int64_t k = given(a[2]) ? af_jneed_int(j, a[2], "end") : n;
    i = i < 0 ? AF_MAX(i + n, 0) : i;
    k = k < 0 ? AF_MAX(k + n, 0) : AF_MIN(k, n);
    if (i > n || i > k)
        return false;
    *from = af_jstr_at(s, (uint64_t)i);
    *to = af_jstr_at(s, (uint64_t)k);
    return true;
}

enum { FIND, RFIND, INDEX, RINDEX };

static af_jv search(af_jinja *j, af_jv self, const af_jv *a, int how)
{
    const af_jstr *what = af_jneed_str(j, a[0], "find()");
    uint64_t from = 0, to = 0;
    int64_t hit = -1;
    if (window(j, self.s, a, &from, &to)) {
        const af_jstr part = {.p = self.s->p, .n = to, .cps = self.s->cps};
        hit = how == FIND || how == INDEX ? find_from(j, &part, what, from)
                                          : rfind_before(j, &part, what, to);
        if (hit >= 0 && (uint64_t)hit < from)
            hit = -1;
    }
    if (hit < 0 && how >= INDEX)
        return af_jfail(j, "substring not found");
    return af_jint(hit < 0 ? -1 : (int64_t)af_jutf8_count(self.s->p, (uint64_t)hit));
}

static af_jv m_find(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    return search(j, self, a, j->aux);
}

static af_jv m_count(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const af_jstr *what = af_jneed_str(j, a[0], "count()");
    uint64_t from = 0, to = 0;
    int64_t count = 0;
    if (!window(j, self.s, a, &from, &to))
        return af_jint(0);
    if (what->n == 0)
        return af_jint((int64_t)af_jutf8_count(self.s->p + from, to - from) + 1);
    const af_jstr part = {.p = self.s->p, .n = to, .cps = self.s->cps};
    for (int64_t hit; !j->failed && (hit = find_from(j, &part, what, from)) >= 0; count++)
        from = (uint64_t)hit + what->n;
    return af_jint(count);
}

static bool affix(af_jinja *j, const af_jstr *s, af_jv what, uint64_t from, uint64_t to, bool end)
{
    const af_jstr *w = af_jneed_str(j, what, end ? "endswith()" : "startswith()");
    return w->n <= to - from && !memcmp(end ? s->p + to - w->n : s->p + from, w->p, w->n) &&
           !j->failed;
}

static af_jv begins_or_ends(af_jinja *j, af_jv self, const af_jv *a, bool end)
{
    uint64_t from = 0, to = 0;
    if (!window(j, self.s, a, &from, &to))
        return af_jbool(false);
    if (a[0].kind != AF_J_TUPLE)
        return af_jbool(affix(j, self.s, a[0], from, to, end));
    for (int64_t i = 0; i < a[0].l->n && !j->failed; i++)
        if (affix(j, self.s, a[0].l->item[i], from, to, end))
            return af_jbool(true);
    return af_jbool(false);
}

static af_jv m_startswith(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    return begins_or_ends(j, self, a, j->aux);
}

static af_jv m_removeprefix(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const bool is = affix(j, self.s, a[0], 0, self.s->n, false);
    return is ? af_jmark(af_jstr_part(j, self.s, a[0].s->n, self.s->n), self.markup) : self;
}
static af_jv m_removesuffix(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const bool is = affix(j, self.s, a[0], 0, self.s->n, true);
    return is ? af_jmark(af_jstr_part(j, self.s, 0, self.s->n - a[0].s->n), self.markup) : self;
}

static af_jv m_join(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const af_jlist *l = af_jitems(j, a[0]);
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    for (int64_t i = 0; i < l->n && !j->failed; i++) {
        af_jv v = self.markup ? af_jescape(j, l->item[i]) : l->item[i];
        if (v.kind != AF_J_STR) {
            af_jfail(j, "sequence item %" PRId64 ": expected str instance, %s found", i,
                     af_jtype(v));
            break;
        }
        if (i)
            af_buf_add(&b, self.s->p, self.s->n);
        af_buf_add(&b, v.s->p, v.s->n);
    }
    return af_jmark(af_jstr_take(j, &b), self.markup);
}

const af_jfunc af_jstr_methods[] = {
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
    {"rfind", "/sub,start?,end?", m_find, RFIND},
    {"index", "/sub,start?,end?", m_find, INDEX},
    {"rindex", "/sub,start?,end?", m_find, RINDEX},
    {"count", "/sub,start?,end?", m_count, 0},
    {"startswith", "/prefix,start?,end?", m_startswith, 0},
    {"endswith", "/suffix,start?,end?", m_startswith, 1},
    {"removeprefix", "/prefix", m_removeprefix, 0},
    {"removesuffix", "/suffix", m_removesuffix, 0},
    {"join", "/iterable", m_join, 0},
    {0},
};
