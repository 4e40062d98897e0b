/* jinja_item.c - a[i] and a[i:j:k] of strings, lists, tuples, ranges and dicts. */
#include "format/jinja/jinja.h"

/* What can be indexed and sliced by position. */
static bool is_sequence(af_jval v)
{
    return v.kind == AF_JKIND_STR || (af_jis_list(v) && v.kind != AF_JKIND_VIEW);
}

af_jval af_jitem(af_jinja *j, af_jval obj, af_jval key)
{
    if (obj.kind == AF_JKIND_DICT) {
        if (key.kind == AF_JKIND_LIST || key.kind == AF_JKIND_DICT || key.kind == AF_JKIND_VIEW)
            return af_jmissing(); /* cannot be hashed */
        const af_jval *v = af_jdict_get(j, obj.d, key);
        return v ? *v : af_jmissing();
    }
    if (!af_jis_int(key) || !is_sequence(obj))
        return af_jmissing();
    const int64_t n = af_jlength(obj);
    int64_t i = af_jinteger(key);
    i += i < 0 ? n : 0;
    if (i < 0 || i >= n)
        return af_jmissing();
    if (obj.kind != AF_JKIND_STR)
        return obj.l->item[i];
    af_jstep(j, obj.s->cps == obj.s->n ? 0 : obj.s->n / 64);
    const uint64_t from = af_jstr_at(obj.s, (uint64_t)i);
    const char *p = obj.s->p + from;
    af_utf8_next(&p);
    return af_jstr_part(j, obj, from, (uint64_t)(p - obj.s->p));
}

static af_jval slice_str(af_jinja *j, af_jval obj, int64_t from, int64_t step, int64_t count)
{
    const af_jstr *s = obj.s;
    af_jstep(j, s->n / 64);
    if (step == 1)
        return af_jstr_part(j, obj, af_jstr_at(s, (uint64_t)from),
                            af_jstr_at(s, (uint64_t)(from + count)));
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    const af_jlist *chars = s->cps == s->n ? NULL : af_jitems(j, obj);
    for (int64_t k = 0; k < count && !j->failed; k++)
        if (chars)
            af_jprint(j, &b, chars->item[from + k * step]);
        else
            af_buf_char(&b, s->p[from + k * step]);
    return af_jmark(af_jstr_take(j, &b), obj.markup);
}

/* Part i of a slice as an index in [low, high]; `absent` when it was not given. */
static int64_t bound(af_jinja *j, af_jval v, int64_t n, int64_t low, int64_t high, int64_t absent)
{
    if (v.kind == AF_JKIND_NONE)
        return absent;
    if (!af_jis_int(v)) {
        af_jfail(j, "slice indices must be integers or None, not '%s'", af_jtype(v));
        return 0;
    }
    const int64_t i = af_jinteger(v) < 0 ? af_jinteger(v) + n : af_jinteger(v);
    return i < low ? low : i > high ? high : i;
}

af_jval af_jslice(af_jinja *j, af_jval obj, const af_jval part[3])
{
    if (!is_sequence(obj))
        return af_jfail_type(j, obj, "'%s' object cannot be sliced", af_jtype(obj));
    const int64_t n = af_jlength(obj);
    const int64_t step = bound(j, part[2], 0, INT64_MIN + 1, INT64_MAX, 1);
    if (step == 0 || j->failed)
        return af_jfail(j, "slice step cannot be zero");
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    int64_t from = bound(j, part[0], n, low, high, step < 0 ? high : low);
    const int64_t to = bound(j, part[1], n, low, high, step < 0 ? low : high);
    int64_t count = 0;
    if (step > 0 && from < to)
        count = (to - from - 1) / step + 1;
    else if (step < 0 && to < from)
        count = (from - to - 1) / -step + 1;
    if (j->failed)
        return af_jnone();
    from = count ? from : 0;
    if (obj.kind == AF_JKIND_STR)
        return slice_str(j, obj, from, count > 1 ? step : 1, count);
    af_jlist *l = af_jlist_new(j, count);
    for (int64_t k = 0; k < count && !j->failed; k++)
        af_jlist_add(j, l, obj.l->item[k ? from + k * step : from]);
    const int64_t *r = obj.l->range;
    if (r && !j->failed && (l->range = af_jtake(j, 3 * sizeof *r))) {
        l->range[0] = r[0] + from * r[2];
        l->range[1] = count ? r[0] + to * r[2] : l->range[0];
        l->range[2] = count > 1 ? r[2] * step : r[2];
    }
    return (af_jval){.kind = obj.kind, .l = l};
}
