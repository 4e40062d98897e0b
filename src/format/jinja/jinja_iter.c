/* jinja_iter.c - going over values: items, lengths, stable sorting. */
#include "format/jinja/jinja.h"

static void add_chars(af_jinja *j, af_jlist *out, const af_jstr *s)
{
    for (uint64_t at = 0; at < s->n && !j->failed;) {
        uint64_t end = at + 1;
        while (end < s->n && ((unsigned char)s->p[end] & 0xc0) == 0x80)
            end++;
        af_jlist_add(j, out, af_jstr_part(j, s, at, end));
        at = end;
    }
}

static void add_view(af_jinja *j, af_jlist *out, const af_jdict *d, char what)
{
    for (int64_t i = 0; i < d->n && !j->failed; i++) {
        const af_jpair *p = &d->pair[i];
        af_jlist_add(j, out,
                     what == 'k'   ? p->key
                     : what == 'v' ? p->val
                                   : af_jpair_v(j, p->key, p->val));
    }
}

af_jlist *af_jitems(af_jinja *j, af_jv v)
{
    if (v.kind == AF_J_LIST || v.kind == AF_J_TUPLE)
        return v.l;
    af_jlist *out = af_jlist_new(j, AF_MAX(af_jlength(v), 0));
    switch ((af_jkind)v.kind) {
    case AF_J_UNDEF:
        break;
    case AF_J_STR:
        add_chars(j, out, v.s);
        break;
    case AF_J_DICT:
        add_view(j, out, v.d, 'k');
        break;
    case AF_J_VIEW:
        add_view(j, out, v.view->dict, v.view->what);
        break;
    case AF_J_RANGE:
        for (int64_t i = 0; i < v.r->n && !j->failed; i++)
            af_jlist_add(j, out, af_jint(v.r->start + i * v.r->step));
        break;
    case AF_J_ITER:
        for (af_jv next; af_jiter_next(j, v.iter, &next);)
            af_jlist_add(j, out, next);
        break;
    case AF_J_LOOP: /* iterating the loop object eats the rest of the loop */
        while (v.loop->at + 1 < v.loop->items->n && !j->failed)
            af_jlist_add(j, out, af_jpair_v(j, v.loop->items->item[++v.loop->at], v));
        break;
    default:
        af_jfail(j, "'%s' object is not iterable", af_jtype(v));
        break;
    }
    return out;
}

bool af_jiterable(af_jv v)
{
    switch ((af_jkind)v.kind) {
    case AF_J_UNDEF:
    case AF_J_STR:
    case AF_J_LIST:
    case AF_J_TUPLE:
    case AF_J_DICT:
    case AF_J_RANGE:
    case AF_J_VIEW:
    case AF_J_ITER:
    case AF_J_LOOP:
        return true;
    default:
        return false;
    }
}

int64_t af_jlength(af_jv v)
{
    switch ((af_jkind)v.kind) {
    case AF_J_UNDEF:
        return 0;
    case AF_J_STR:
        return (int64_t)v.s->cps;
    case AF_J_LIST:
    case AF_J_TUPLE:
        return v.l->n;
    case AF_J_DICT:
        return v.d->n;
    case AF_J_RANGE:
        return v.r->n;
    case AF_J_VIEW:
        return v.view->dict->n;
    case AF_J_LOOP:
        return v.loop->items->n;
    default:
        return -1;
    }
}

static void merge(af_jinja *j, af_jv *item, af_jv *key, af_jv *tmp, int64_t n, bool reverse)
{
    const int64_t half = n / 2;
    int64_t a = 0, b = half, k = 0;
    af_jv *ti = tmp, *tk = tmp + n;
    while (k < n && !j->failed) {
        /* the right one goes first only when it is strictly before the left one: stable */
        const bool right =
            a == half || (b < n && (reverse ? af_jorder(j, AF_CMP_LT, key[a], key[b])
                                            : af_jorder(j, AF_CMP_LT, key[b], key[a])));
        const int64_t from = right ? b++ : a++;
        ti[k] = item[from];
        tk[k++] = key[from];
        af_jstep(j, 1);
    }
    if (j->failed)
        return;
    memcpy(item, ti, (size_t)n * sizeof *item);
    memcpy(key, tk, (size_t)n * sizeof *key);
}

static void sort(af_jinja *j, af_jv *item, af_jv *key, af_jv *tmp, int64_t n, bool reverse)
{
    if (n < 2 || j->failed)
        return;
    sort(j, item, key, tmp, n / 2, reverse);
    sort(j, item + n / 2, key + n / 2, tmp, n - n / 2, reverse);
    merge(j, item, key, tmp, n, reverse);
}

void af_jsort(af_jinja *j, af_jv *item, af_jv *key, int64_t n, bool reverse)
{
    af_jv *tmp = n > 1 ? af_jtake(j, (uint64_t)n * 2 * sizeof *tmp) : NULL;
    if (tmp)
        sort(j, item, key, tmp, n, reverse);
}
