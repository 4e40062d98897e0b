/* jinja_sequences.c - filters over sequences. Those that are generators in Jinja return one here:
 * it has no length, is iterated once, and fails where it is iterated. */
#include "format/jinja/jinja.h"

/* aux of the generators; selected: plus REJECT and BY_ATTRIBUTE. */
enum { PAIRS, UNIQUE, MAPPED, BATCHES, SLICES, SELECTED, REJECT = 1, BY_ATTRIBUTE = 2 };

/* item.a.b or item[0] for the path 'a.b' or '0': items first, as Jinja's attrgetter. The fallback
 * (NULL = none) replaces an undefined step. */
static af_jval path_in(af_jinja *j, af_jval item, const char *p, uint64_t n,
                       const af_jval *fallback)
{
    for (const char *end = p + n; p <= end && !j->failed;) {
        const char *dot = memchr(p, '.', (size_t)(end - p));
        const uint64_t len = (uint64_t)((dot ? dot : end) - p);
        bool digits = len > 0 && len < 18;
        for (uint64_t i = 0; i < len && digits; i++)
            digits = p[i] >= '0' && p[i] <= '9';
        item =
            af_jgetitem(j, item, digits ? af_jint(strtoll(p, NULL, 10)) : af_jstr_new(j, p, len));
        if (fallback && item.kind == AF_JKIND_UNDEF && af_jgiven(*fallback))
            item = *fallback;
        p += len + 1;
    }
    return item;
}

static af_jval path_of(af_jinja *j, af_jval item, af_jval path, const af_jval *fallback)
{
    if (path.kind == AF_JKIND_STR)
        return path_in(j, item, path.s->p, path.s->n, fallback);
    return af_jgiven(path) ? af_jgetitem(j, item, path) : item;
}

/* What sorting compares: lower case for strings unless case matters. */
static af_jval fold(af_jinja *j, af_jval v, bool case_sensitive)
{
    return v.kind == AF_JKIND_STR && !case_sensitive && !j->failed ? af_jrecase(j, v, 'l') : v;
}

static af_jval key_of(af_jinja *j, af_jval item, af_jval path, bool case_sensitive)
{
    return fold(j, path_of(j, item, path, NULL), case_sensitive);
}

static af_jval f_length(const af_jcall *c)
{
    const int64_t n = af_jlength(c->self);
    return n < 0 ? af_jfail(c->j, "object of type '%s' has no len()", af_jtype(c->self))
                 : af_jint(n);
}

static af_jval f_first(const af_jcall *c)
{
    af_jval next;
    if (c->self.kind == AF_JKIND_ITER && af_jiter_next(c->j, c->self.iter, &next))
        return next;
    if (c->self.kind == AF_JKIND_STR && c->self.s->n)
        return af_jmark(af_jitem(c->j, c->self, af_jint(0)), false);
    const af_jlist *l = af_jitems(c->j, c->self);
    return l->n ? l->item[0] : af_jundef(c->j, "No first item, sequence was empty.");
}

static af_jval f_last(const af_jcall *c)
{
    if (c->self.kind == AF_JKIND_ITER || !af_jiterable(c->self))
        return af_jfail(c->j, "'%s' object is not reversible", af_jtype(c->self));
    const af_jlist *l = af_jitems(c->j, c->self);
    return l->n ? l->item[l->n - 1] : af_jundef(c->j, "No last item, sequence was empty.");
}

static af_jval f_list(const af_jcall *c) { return af_jlist_v(af_jitems(c->j, c->self)); }

static af_jlist *reversed(const af_jcall *c)
{
    const af_jlist *l = af_jitems(c->j, c->self);
    af_jlist *out = af_jlist_new(c->j, l->n);
    for (int64_t i = l->n; i-- > 0 && !c->j->failed;)
        af_jlist_add(c->j, out, l->item[i]);
    return out;
}

static af_jval f_reverse(const af_jcall *c)
{
    if (c->self.kind == AF_JKIND_STR)
        return af_jslice(c->j, c->self, (af_jval[3]){af_jnone(), af_jnone(), af_jint(-1)});
    const bool lists = c->self.kind == AF_JKIND_ITER || c->self.kind == AF_JKIND_UNDEF;
    return lists ? af_jlist_v(reversed(c)) : af_jgenerator(c, reversed);
}

static af_jlist *pairs_of(const af_jcall *c)
{
    if (c->self.kind != AF_JKIND_DICT && c->self.kind != AF_JKIND_UNDEF)
        af_jfail(c->j, "Can only get item pairs from a mapping.");
    return af_jdict_pairs(c->j, c->self.kind == AF_JKIND_DICT ? c->self.d : &c->j->no_dict);
}

/* The key of sort(attribute='a,b.c'): a list when the attribute is a string. */
static af_jval sort_key(af_jinja *j, af_jval item, af_jval attribute, bool case_sensitive)
{
    if (attribute.kind != AF_JKIND_STR)
        return key_of(j, item, attribute, case_sensitive);
    af_jlist *keys = af_jlist_new(j, 1);
    const char *p = attribute.s->p, *end = p + attribute.s->n;
    while (p <= end && !j->failed) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        const uint64_t n = (uint64_t)((comma ? comma : end) - p);
        af_jlist_add(j, keys, fold(j, path_in(j, item, p, n, NULL), case_sensitive));
        p += n + 1;
    }
    return af_jlist_v(keys);
}

static af_jval f_sort(const af_jcall *c)
{
    af_jinja *j = c->j;
    const af_jlist *l = af_jitems(j, c->self);
    af_jlist *out = af_jlist_new(j, l->n), *keys = af_jlist_new(j, l->n);
    for (int64_t i = 0; i < l->n && !j->failed; i++) {
        af_jlist_add(j, out, l->item[i]);
        af_jlist_add(j, keys, sort_key(j, l->item[i], c->arg[2], af_jarg_true(c, 1)));
    }
    if (!j->failed)
        af_jsort(j, out, keys, af_jarg_true(c, 0));
    return af_jlist_v(out);
}

static af_jval f_dictsort(const af_jcall *c)
{
    af_jinja *j = c->j;
    if (c->self.kind != AF_JKIND_DICT)
        return af_jfail(j, "dictsort expects a dict, got '%s'", af_jtype(c->self));
    const af_jstr *by = af_jarg_str(c, 1, "key");
    const bool by_value = af_jstr_is(by, "value");
    if (!by_value && !af_jstr_is(by, "key"))
        return af_jfail(j, "You can only sort by either \"key\" or \"value\"");
    af_jlist *pairs = af_jdict_pairs(j, c->self.d), *keys = af_jlist_new(j, pairs->n);
    for (int64_t i = 0; i < pairs->n && !j->failed; i++)
        af_jlist_add(j, keys, fold(j, pairs->item[i].l->item[by_value], af_jarg_true(c, 0)));
    if (!j->failed)
        af_jsort(j, pairs, keys, af_jarg_true(c, 2));
    return af_jlist_v(pairs);
}

static af_jval f_minmax(const af_jcall *c)
{
    af_jinja *j = c->j;
    const af_jlist *l = af_jitems(j, c->self);
    if (l->n == 0)
        return af_jundef(j, "No aggregated item, sequence was empty.");
    af_jval best = l->item[0], key = key_of(j, best, c->arg[1], af_jarg_true(c, 0));
    for (int64_t i = 1; i < l->n && af_jstep(j, 1); i++) {
        const af_jval k = key_of(j, l->item[i], c->arg[1], af_jarg_true(c, 0));
        if (!j->failed && af_jcompare(j, (af_jcmp)c->func->aux, k, key)) {
            best = l->item[i];
            key = k;
        }
    }
    return best;
}

static af_jval f_sum(const af_jcall *c)
{
    const af_jlist *l = af_jitems(c->j, c->self);
    af_jval sum = c->arg[1].kind == AF_JKIND_MISSING ? af_jint(0) : c->arg[1];
    if (sum.kind == AF_JKIND_STR)
        return af_jfail(c->j, "sum() can't sum strings [use ''.join(seq) instead]");
    for (int64_t i = 0; i < l->n && af_jstep(c->j, 1); i++) {
        const af_jval v = path_of(c->j, l->item[i], c->arg[0], NULL);
        sum = c->j->failed ? sum : af_jbinary(c->j, '+', sum, v);
    }
    return sum;
}

static af_jval f_join(const af_jcall *c)
{
    af_jinja *j = c->j;
    const af_jval sep =
        c->arg[0].kind == AF_JKIND_MISSING ? af_jstr_lit(j, "") : af_jtostr(j, c->arg[0]);
    const af_jlist *l = af_jitems(j, c->self);
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    for (int64_t i = 0; i < l->n && af_jstep(j, 1) && !b.bad; i++) {
        if (i)
            af_buf_add(&b, sep.s->p, sep.s->n);
        const af_jval v = path_of(j, l->item[i], c->arg[1], NULL);
        if (!j->failed)
            af_jprint(j, &b, v);
    }
    return af_jstr_take(j, &b);
}

static af_jlist *unique(const af_jcall *c)
{
    af_jinja *j = c->j;
    const af_jlist *l = af_jitems(j, c->self);
    af_jlist *out = af_jlist_new(j, 0);
    af_jdict *seen = af_jdict_new(j, 0);
    for (int64_t i = 0; i < l->n && !j->failed; i++) {
        const af_jval key = key_of(j, l->item[i], c->arg[1], af_jarg_true(c, 0));
        if (j->failed || af_jdict_get(j, seen, key))
            continue;
        af_jdict_set(j, seen, key, af_jnone());
        af_jlist_add(j, out, l->item[i]);
    }
    return out;
}

/* The arguments after the first `skip`, for the filter or test that map and select name. */
static void rest_of(const af_jargs *all, int skip, af_jargs *out)
{
    out->n = AF_MAX(all->n - skip, 0);
    memcpy(out->pos, all->pos + skip, (size_t)out->n * sizeof *out->pos);
    out->nkw = all->nkw;
    memcpy(out->kw, all->kw, (size_t)all->nkw * sizeof *out->kw);
}

/* The filter or test named by argument i. NULL: absent, or a failure is latched. */
static const af_jfunc *named(const af_jcall *c, af_jtable table, int i)
{
    if (c->all->n <= i)
        return NULL;
    const af_jval name = c->all->pos[i];
    const af_jfunc *f = name.kind == AF_JKIND_STR ? c->j->find(table, name.s) : NULL;
    if (!f)
        af_jfail(c->j, "No %s named '%s'.", table == AF_JTABLE_TEST ? "test" : "filter",
                 name.kind == AF_JKIND_STR ? name.s->p : af_jtype(name));
    return f;
}

static const af_jval *keyword(const af_jargs *all, const char *name)
{
    for (int i = 0; i < all->nkw; i++)
        if (af_jstr_is(all->kw[i].name, name))
            return &all->kw[i].val;
    return NULL;
}

static af_jlist *mapped(const af_jcall *c)
{
    af_jinja *j = c->j;
    af_jlist *out = af_jlist_new(j, 0);
    if (!af_jtruth(&c->self) && c->self.kind != AF_JKIND_ITER)
        return out;
    const af_jval *attribute = c->all->n == 0 ? keyword(c->all, "attribute") : NULL;
    const af_jval *fallback = keyword(c->all, "default");
    const af_jfunc *f = named(c, AF_JTABLE_FILTER, 0);
    if (attribute ? c->all->nkw > (fallback ? 2 : 1) : !f)
        af_jfail(j, "map requires the name of a filter, or attribute= and default=");
    af_jargs rest;
    rest_of(c->all, 1, &rest);
    const af_jlist *l = af_jitems(j, c->self);
    for (int64_t i = 0; i < l->n && !j->failed; i++)
        af_jlist_add(j, out,
                     attribute ? path_of(j, l->item[i], *attribute, fallback)
                               : j->run(j, f, l->item[i], &rest));
    return out;
}

static af_jlist *selected(const af_jcall *c)
{
    af_jinja *j = c->j;
    const int how = c->func->aux - SELECTED, skip = how & BY_ATTRIBUTE ? 1 : 0;
    af_jlist *out = af_jlist_new(j, 0);
    if (!af_jtruth(&c->self) && c->self.kind != AF_JKIND_ITER)
        return out;
    if (c->all->n < skip)
        af_jfail(j, "Missing parameter for attribute name");
    const af_jfunc *test = named(c, AF_JTABLE_TEST, skip);
    af_jargs rest;
    rest_of(c->all, skip + 1, &rest);
    const af_jlist *l = af_jitems(j, c->self);
    for (int64_t i = 0; i < l->n && af_jstep(j, 1); i++) {
        af_jval v = skip ? path_of(j, l->item[i], c->all->pos[0], NULL) : l->item[i];
        if (test && !j->failed)
            v = j->run(j, test, v, &rest);
        if (!j->failed && af_jtruth(&v) != ((how & REJECT) != 0))
            af_jlist_add(j, out, l->item[i]);
    }
    return out;
}

static af_jlist *batches(const af_jcall *c)
{
    af_jinja *j = c->j;
    const int64_t size = af_jarg_int(c, 0, 0);
    const af_jlist *l = af_jitems(j, c->self);
    af_jlist *out = af_jlist_new(j, 0), *row = af_jlist_new(j, 0);
    for (int64_t i = 0; i < l->n && !j->failed; i++) {
        if (row->n == size) {
            af_jlist_add(j, out, af_jlist_v(row));
            row = af_jlist_new(j, 0);
        }
        af_jlist_add(j, row, l->item[i]);
    }
    while (row->n && af_jgiven(c->arg[1]) && row->n < size && !j->failed)
        af_jlist_add(j, row, c->arg[1]);
    if (row->n)
        af_jlist_add(j, out, af_jlist_v(row));
    return out;
}

static af_jlist *slices(const af_jcall *c)
{
    af_jinja *j = c->j;
    const int64_t count = af_jarg_int(c, 0, 0);
    const af_jlist *l = af_jitems(j, c->self);
    af_jlist *out = af_jlist_new(j, 0);
    if (count == 0)
        af_jfail(j, "integer division or modulo by zero");
    int64_t at = 0;
    for (int64_t k = 0; k < count && !j->failed; k++) {
        const int64_t n = l->n / count + (k < l->n % count);
        af_jlist *row = af_jlist_new(j, n);
        for (int64_t i = 0; i < n && !j->failed; i++)
            af_jlist_add(j, row, l->item[at++]);
        if (af_jgiven(c->arg[1]) && k >= l->n % count)
            af_jlist_add(j, row, c->arg[1]);
        af_jlist_add(j, out, af_jlist_v(row));
    }
    return out;
}

static af_jval f_groupby(const af_jcall *c)
{
    af_jinja *j = c->j;
    const af_jlist *l = af_jitems(j, c->self);
    af_jlist *items = af_jlist_new(j, l->n), *keys = af_jlist_new(j, l->n);
    for (int64_t i = 0; i < l->n && !j->failed; i++) {
        const af_jval key = path_of(j, l->item[i], c->arg[0], &c->arg[1]);
        af_jlist_add(j, items, l->item[i]);
        af_jlist_add(j, keys, fold(j, key, af_jarg_true(c, 2)));
    }
    if (!j->failed)
        af_jsort(j, items, keys, false);
    af_jlist *out = af_jlist_new(j, 0), *group = NULL;
    for (int64_t i = 0; i < items->n && !j->failed; i++) {
        if (i == 0 || !af_jequal(j, keys->item[i], keys->item[i - 1])) {
            group = af_jlist_new(j, 0);
            const af_jval key = path_of(j, items->item[i], c->arg[0], &c->arg[1]);
            const af_jval pair = af_jtuple2(j, key, af_jlist_v(group));
            if (!j->failed)
                pair.l->group = true;
            af_jlist_add(j, out, pair);
        }
        af_jlist_add(j, group, items->item[i]);
    }
    return af_jlist_v(out);
}

static af_jval f_generator(const af_jcall *c)
{
    static af_jlist *(*const make[])(const af_jcall *c) = {
        [PAIRS] = pairs_of,  [UNIQUE] = unique, [MAPPED] = mapped,
        [BATCHES] = batches, [SLICES] = slices, [SELECTED] = selected,
    };
    return af_jgenerator(c, make[AF_MIN(c->func->aux, SELECTED)]);
}

const af_jfunc af_jfilters_sequences[] = {
    {"length|count", "", f_length, 0},
    {"items", "", f_generator, PAIRS},
    {"list", "", f_list, 0},
    {"join", "d?,attribute?", f_join, 0},
    {"map", NULL, f_generator, MAPPED},
    {"select", NULL, f_generator, SELECTED},
    {"reject", NULL, f_generator, SELECTED + REJECT},
    {"selectattr", NULL, f_generator, SELECTED + BY_ATTRIBUTE},
    {"rejectattr", NULL, f_generator, SELECTED + REJECT + BY_ATTRIBUTE},
    {"first", "", f_first, 0},
    {"last", "", f_last, 0},
    {"reverse", "", f_reverse, 0},
    {"sort", "reverse?,case_sensitive?,attribute?", f_sort, 0},
    {"dictsort", "case_sensitive?,by?,reverse?", f_dictsort, 0},
    {"min", "case_sensitive?,attribute?", f_minmax, AF_JCMP_LT},
    {"max", "case_sensitive?,attribute?", f_minmax, AF_JCMP_GT},
    {"sum", "attribute?,start?", f_sum, 0},
    {"unique", "case_sensitive?,attribute?", f_generator, UNIQUE},
    {"batch", "linecount,fill_with?", f_generator, BATCHES},
    {"slice", "slices,fill_with?", f_generator, SLICES},
    {"groupby", "attribute,default?,case_sensitive?", f_groupby, 0},
    {0},
};
