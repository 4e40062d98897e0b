/* jinja_filters_list.c - filters over sequences. Those that are generators in Jinja give an
 * AF_J_ITER: it has no length and can be gone over once. */
#include "format/jinja/jinja.h"

static bool given(af_jv v) { return v.kind != AF_J_MISSING && v.kind != AF_J_NONE; }

static af_jv path_part(af_jinja *j, const af_jstr *s, uint64_t from, uint64_t to)
{
    bool digits = to > from && to - from < 18;
    for (uint64_t i = from; i < to && digits; i++)
        digits = s->p[i] >= '0' && s->p[i] <= '9';
    return digits ? af_jint(strtoll(s->p + from, NULL, 10))
                  : af_jstr_new(j, s->p + from, to - from);
}

static af_jv path_of(af_jinja *j, af_jv item, af_jv path, const af_jv *fallback)
{
    if (path.kind != AF_J_STR)
        return path.kind == AF_J_NONE || path.kind == AF_J_MISSING ? item
                                                                   : af_jgetitem(j, item, path);
    const af_jstr *s = path.s;
    for (uint64_t at = 0; at <= s->n && !j->failed;) {
        const char *dot = memchr(s->p + at, '.', s->n - at);
        const uint64_t end = dot ? (uint64_t)(dot - s->p) : s->n;
        item = af_jgetitem(j, item, path_part(j, s, at, end));
        if (fallback && item.kind == AF_J_UNDEF && given(*fallback))
            item = *fallback;
        at = end + 1;
    }
    return item;
}

af_jv af_jpath(af_jinja *j, af_jv item, af_jv path) { return path_of(j, item, path, NULL); }

/* What sorting compares: lower case for strings unless case matters. */
static af_jv fold(af_jinja *j, af_jv v, bool case_sensitive)
{
    return v.kind == AF_J_STR && !case_sensitive && !j->failed ? af_jrecase(j, v, 'l') : v;
}

/* A generator that fails when it is gone over; `failure` is the call that latched why. */
static af_jv deferred(af_jinja *j, af_jlist *out, af_jv failure)
{
    (void)failure;
    return af_jiter_v(j, out);
}

static af_jv f_length(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    const int64_t n = af_jlength(self);
    return n < 0 ? af_jfail(j, "object of type '%s' has no len()", af_jtype(self)) : af_jint(n);
}

static af_jv f_first(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    af_jv next;
    if (self.kind == AF_J_ITER && af_jiter_next(j, self.iter, &next))
        return next;
    if (self.kind == AF_J_STR && self.s->n)
        return af_jmark(af_jgetitem(j, self, af_jint(0)), false);
    const af_jlist *l = af_jitems(j, self);
    return l->n ? l->item[0] : af_jundef(j, "No first item, sequence was empty.");
}

static bool reversible(af_jinja *j, af_jv v)
{
    if (v.kind == AF_J_ITER || !af_jiterable(v))
        af_jfail(j, "'%s' object is not reversible", af_jtype(v));
    return !j->failed;
}

static af_jv f_last(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    if (!reversible(j, self))
        return self;
    const af_jlist *l = af_jitems(j, self);
    return l->n ? l->item[l->n - 1] : af_jundef(j, "No last item, sequence was empty.");
}

static af_jv f_list(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    return af_jlist_v(af_jitems(j, self));
}

static af_jv f_reverse(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    if (self.kind == AF_J_STR) {
        const af_jv back[3] = {af_jnone(), af_jnone(), af_jint(-1)};
        return af_jslice_of(j, self, back);
    }
    const bool lists = self.kind == AF_J_ITER || self.kind == AF_J_UNDEF;
    const af_jlist *l = af_jitems(j, self);
    af_jlist *out = af_jlist_new(j, l->n);
    for (int64_t i = l->n; i-- > 0 && !j->failed;)
        af_jlist_add(j, out, l->item[i]);
    return lists || j->failed ? af_jlist_v(out) : af_jiter_v(j, out);
}

/* The keys of sort(attribute='a,b.c'): a list when there are several. */
static af_jv sort_key(af_jinja *j, af_jv item, af_jv attribute, bool case_sensitive)
{
    if (attribute.kind != AF_J_STR)
        return fold(j, path_of(j, item, attribute, NULL), case_sensitive);
    af_jlist *keys = af_jlist_new(j, 1);
    const af_jstr *s = attribute.s;
    for (uint64_t at = 0; at <= s->n && !j->failed;) {
        const char *comma = memchr(s->p + at, ',', s->n - at);
        const uint64_t end = comma ? (uint64_t)(comma - s->p) : s->n;
        const af_jv v = path_of(j, item, af_jstr_new(j, s->p + at, end - at), NULL);
        af_jlist_add(j, keys, fold(j, v, case_sensitive));
        at = end + 1;
    }
    return af_jlist_v(keys);
}

static af_jv f_sort(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const bool reverse = af_jtruth(&a[0]), case_sensitive = af_jtruth(&a[1]);
    const af_jlist *l = af_jitems(j, self);
    af_jlist *out = af_jlist_new(j, l->n), *keys = af_jlist_new(j, l->n);
    for (int64_t i = 0; i < l->n && !j->failed; i++) {
        af_jlist_add(j, out, l->item[i]);
        af_jlist_add(j, keys, sort_key(j, l->item[i], a[2], case_sensitive));
    }
    if (!j->failed)
        af_jsort(j, out->item, keys->item, out->n, reverse);
    return af_jlist_v(out);
}

static af_jv f_dictsort(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    if (self.kind != AF_J_DICT)
        return af_jfail(j, "dictsort wants a dict, not '%s'", af_jtype(self));
    const bool by_value = a[1].kind == AF_J_STR && af_jstr_is(a[1].s, "value");
    if (a[1].kind != AF_J_MISSING && !by_value &&
        !(a[1].kind == AF_J_STR && af_jstr_is(a[1].s, "key")))
        return af_jfail(j, "You can only sort by either \"key\" or \"value\"");
    const af_jdict *d = self.d;
    af_jlist *out = af_jlist_new(j, d->n), *keys = af_jlist_new(j, d->n);
    for (int64_t i = 0; i < d->n && !j->failed; i++) {
        const af_jpair *p = &d->pair[i];
        af_jlist_add(j, out, af_jpair_v(j, p->key, p->val));
        af_jlist_add(j, keys, fold(j, by_value ? p->val : p->key, af_jtruth(&a[0])));
    }
    if (!j->failed)
        af_jsort(j, out->item, keys->item, out->n, af_jtruth(&a[2]));
    return af_jlist_v(out);
}

static af_jv f_minmax(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const int cmp = j->aux;
    const af_jlist *l = af_jitems(j, self);
    if (l->n == 0)
        return af_jundef(j, "No aggregated item, sequence was empty.");
    af_jv best = l->item[0], key = fold(j, path_of(j, best, a[1], NULL), af_jtruth(&a[0]));
    for (int64_t i = 1; i < l->n && !j->failed; i++) {
        const af_jv k = fold(j, path_of(j, l->item[i], a[1], NULL), af_jtruth(&a[0]));
        if (!j->failed && af_jorder(j, cmp, k, key)) {
            best = l->item[i];
            key = k;
        }
        af_jstep(j, 1);
    }
    return best;
}

static af_jv f_sum(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const af_jlist *l = af_jitems(j, self);
    af_jv sum = a[1].kind == AF_J_MISSING ? af_jint(0) : a[1];
    if (sum.kind == AF_J_STR)
        return af_jfail(j, "sum() can't sum strings [use ''.join(seq) instead]");
    for (int64_t i = 0; i < l->n && !j->failed; i++) {
        const af_jv v = path_of(j, l->item[i], a[0], NULL);
        sum = j->failed ? sum : af_jbinary(j, AF_N_ADD, sum, v);
        af_jstep(j, 1);
    }
    return sum;
}

static af_jv f_unique(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const af_jlist *l = af_jitems(j, self);
    af_jlist *out = af_jlist_new(j, 0);
    af_jdict *seen = af_jdict_new(j, 0);
    for (int64_t i = 0; i < l->n && !j->failed; i++) {
        const af_jv key = fold(j, path_of(j, l->item[i], a[1], NULL), af_jtruth(&a[0]));
        if (j->failed || af_jdict_get(j, seen, key))
            continue;
        af_jdict_set(j, seen, key, af_jnone());
        af_jlist_add(j, out, l->item[i]);
    }
    return af_jiter_v(j, out);
}

static af_jv f_items(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    if (self.kind == AF_J_UNDEF)
        return af_jiter_v(j, af_jlist_new(j, 0));
    if (self.kind != AF_J_DICT)
        return deferred(j, af_jlist_new(j, 0),
                        af_jfail(j, "Can only get item pairs from a mapping."));
    af_jview view = {.dict = self.d, .what = 'i'};
    return af_jiter_v(j, af_jitems(j, (af_jv){.kind = AF_J_VIEW, .view = &view}));
}

/* Passes what follows the filter's or test's name in map('name', ...) and its relatives. */
static void rest_of(const af_jargs *raw, int skip, af_jargs *out)
{
    out->n = AF_MAX(raw->n - skip, 0);
    for (int i = 0; i < out->n; i++)
        out->pos[i] = raw->pos[skip + i];
    out->nkw = raw->nkw;
    for (int i = 0; i < raw->nkw; i++)
        out->kw[i] = raw->kw[i];
}

static const af_jv *keyword(const af_jargs *raw, const char *name)
{
    for (int i = 0; i < raw->nkw; i++)
        if (af_jstr_is(raw->kw[i].name, name))
            return &raw->kw[i].val;
    return NULL;
}

static af_jv f_map(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    af_jlist *out = af_jlist_new(j, 0);
    const af_jv *attribute = raw->n == 0 ? keyword(raw, "attribute") : NULL;
    const af_jv *fallback = keyword(raw, "default");
    if (!af_jtruth(&self) && self.kind != AF_J_ITER)
        return af_jiter_v(j, out);
    if (attribute && raw->nkw > (fallback ? 2 : 1))
        return deferred(j, out, af_jfail(j, "map got an unexpected keyword argument"));
    if (!attribute && raw->n == 0)
        return deferred(j, out, af_jfail(j, "map requires a filter argument"));
    const af_jlist *l = af_jitems(j, self);
    const af_jfunc *f = NULL;
    af_jargs rest;
    if (!attribute) {
        const af_jstr *name = af_jneed_str(j, raw->pos[0], "map");
        if (!j->failed && !(f = af_jfilter_find(name)))
            return deferred(j, out, af_jfail(j, "No filter named '%s'.", name->p));
        rest_of(raw, 1, &rest);
    }
    for (int64_t i = 0; i < l->n && !j->failed; i++)
        af_jlist_add(j, out,
                     attribute ? path_of(j, l->item[i], *attribute, fallback)
                               : af_jfunc_run(j, f, "filter", l->item[i], &rest));
    return af_jiter_v(j, out);
}

enum { SELECT = 0, REJECT = 1, BY_ATTRIBUTE = 2 };

static af_jv f_select(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    const int how = j->aux, skip = how & BY_ATTRIBUTE ? 1 : 0;
    af_jlist *out = af_jlist_new(j, 0);
    const af_jfunc *test = NULL;
    af_jargs rest;
    if (!af_jtruth(&self) && self.kind != AF_J_ITER)
        return af_jiter_v(j, out);
    if (raw->n < skip)
        return deferred(j, out, af_jfail(j, "Missing parameter for attribute name"));
    if (raw->n > skip) {
        const af_jstr *name = af_jneed_str(j, raw->pos[skip], "the name of a test");
        if (!j->failed && !(test = af_jtest_find(name)))
            return deferred(j, out, af_jfail(j, "No test named '%s'.", name->p));
    }
    rest_of(raw, skip + 1, &rest);
    const af_jlist *l = af_jitems(j, self);
    for (int64_t i = 0; i < l->n && !j->failed; i++) {
        af_jv v = skip ? path_of(j, l->item[i], raw->pos[0], NULL) : l->item[i];
        if (test && !j->failed)
            v = af_jfunc_run(j, test, "test", v, &rest);
        if (!j->failed && af_jtruth(&v) != ((how & REJECT) != 0))
            af_jlist_add(j, out, l->item[i]);
        af_jstep(j, 1);
    }
    return af_jiter_v(j, out);
}

static af_jv f_batch(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const int64_t size = af_jneed_int(j, a[0], "batch");
    const af_jlist *l = af_jitems(j, self);
    af_jlist *out = af_jlist_new(j, 0), *row = af_jlist_new(j, 0);
    for (int64_t i = 0; i < l->n && !j->failed; i++) {
        if (row->n == size) {
            af_jlist_add(j, out, af_jlist_v(row));
            row = af_jlist_new(j, 0);
        }
        af_jlist_add(j, row, l->item[i]);
    }
    while (row->n && given(a[1]) && row->n < size && !j->failed)
        af_jlist_add(j, row, a[1]);
    if (row->n)
        af_jlist_add(j, out, af_jlist_v(row));
    return af_jiter_v(j, out);
}

static af_jv f_slice(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const int64_t slices = af_jneed_int(j, a[0], "slice");
    const af_jlist *l = af_jitems(j, self);
    af_jlist *out = af_jlist_new(j, 0);
    if (slices == 0 && !j->failed)
        return deferred(j, out, af_jfail(j, "integer division or modulo by zero"));
    int64_t at = 0;
    for (int64_t k = 0; k < slices && !j->failed; k++) {
        const int64_t n = l->n / slices + (k < l->n % slices);
        af_jlist *row = af_jlist_new(j, n);
        for (int64_t i = 0; i < n && !j->failed; i++)
            af_jlist_add(j, row, l->item[at++]);
        if (given(a[1]) && k >= l->n % slices)
            af_jlist_add(j, row, a[1]);
        af_jlist_add(j, out, af_jlist_v(row));
    }
    return af_jiter_v(j, out);
}

static af_jv f_groupby(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const bool case_sensitive = af_jtruth(&a[2]);
    const af_jlist *l = af_jitems(j, self);
    af_jlist *items = af_jlist_new(j, l->n), *keys = af_jlist_new(j, l->n);
    for (int64_t i = 0; i < l->n && !j->failed; i++) {
        af_jlist_add(j, items, l->item[i]);
        af_jlist_add(j, keys, fold(j, path_of(j, l->item[i], a[0], &a[1]), case_sensitive));
    }
    if (!j->failed)
        af_jsort(j, items->item, keys->item, items->n, false);
    af_jlist *out = af_jlist_new(j, 0), *group = NULL;
    for (int64_t i = 0; i < items->n && !j->failed; i++) {
        if (i == 0 || !af_jequal(j, keys->item[i], keys->item[i - 1])) {
            group = af_jlist_new(j, 0);
            const af_jv pair =
                af_jpair_v(j, path_of(j, items->item[i], a[0], &a[1]), af_jlist_v(group));
            if (!j->failed)
                pair.l->group = true;
            af_jlist_add(j, out, pair);
        }
        af_jlist_add(j, group, items->item[i]);
    }
    return af_jlist_v(out);
}

const af_jfunc af_jfilters_list[] = {
    {"length", "", f_length, 0},
    {"count", "", f_length, 0},
    {"first", "", f_first, 0},
    {"last", "", f_last, 0},
    {"list", "", f_list, 0},
    {"reverse", "", f_reverse, 0},
    {"sort", "reverse?,case_sensitive?,attribute?", f_sort, 0},
    {"dictsort", "case_sensitive?,by?,reverse?", f_dictsort, 0},
    {"min", "case_sensitive?,attribute?", f_minmax, AF_CMP_LT},
    {"max", "case_sensitive?,attribute?", f_minmax, AF_CMP_GT},
    {"sum", "attribute?,start?", f_sum, 0},
    {"unique", "case_sensitive?,attribute?", f_unique, 0},
    {"items", "", f_items, 0},
    {"map", NULL, f_map, 0},
    {"select", NULL, f_select, SELECT},
    {"reject", NULL, f_select, REJECT},
    {"selectattr", NULL, f_select, SELECT | BY_ATTRIBUTE},
    {"rejectattr", NULL, f_select, REJECT | BY_ATTRIBUTE},
    {"batch", "linecount,fill_with?", f_batch, 0},
    {"slice", "slices,fill_with?", f_slice, 0},
    {"groupby", "attribute,default?,case_sensitive?", f_groupby, 0},
    {0},
};

const af_jfunc *af_jfilter_find(const af_jstr *name)
{
    const af_jfunc *const tables[] = {af_jfilters_text, af_jfilters_list, af_jfilters_number};
    for (size_t i = 0; i < AF_LEN(tables); i++) {
        const af_jfunc *f = af_jtable_find(tables[i], name);
        if (f)
            return f;
    }
    return NULL;
}
