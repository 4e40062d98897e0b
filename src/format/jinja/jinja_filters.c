/* jinja_filters.c - filters that make text or numbers; default and attr. */
#include "format/jinja/jinja.h"

#include "format/text/python_text.h"

#include <math.h>

static af_jval f_case(const af_jcall *c)
{
    return af_jrecase(c->j, af_jsoftstr(c->j, c->self), (char)c->func->aux);
}

/* title and striptags: text in, text out. */
static af_jval f_text(const af_jcall *c)
{
    const af_jstr *s = af_jtostr(c->j, c->self).s;
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    af_jstep(c->j, s->n / 16);
    (c->func->aux == 't' ? af_py_title_words : af_py_striptags)(&b, s->p, s->n);
    return af_jstr_take(c->j, &b);
}

static af_jval f_trim(const af_jcall *c)
{
    const af_jval s = af_jsoftstr(c->j, c->self);
    const af_jstr *set = af_jgiven(c->arg[0]) ? af_jarg_str(c, 0, NULL) : NULL;
    return c->j->failed ? s : af_jstrip(c->j, s, set, 'b');
}

static af_jval f_string(const af_jcall *c) { return af_jsoftstr(c->j, c->self); }
static af_jval f_safe(const af_jcall *c) { return af_jmark(af_jtostr(c->j, c->self), true); }
static af_jval f_escape(const af_jcall *c)
{
    return af_jescape(c->j, c->func->aux == 'f' ? af_jtostr(c->j, c->self) : c->self);
}

static af_jval f_replace(const af_jcall *c)
{
    af_jinja *j = c->j;
    const int64_t max = af_jarg_int(c, 2, -1);
    const af_jval old = af_jtostr(j, c->arg[0]), new = af_jtostr(j, c->arg[1]);
    return af_jreplace(j, af_jtostr(j, c->self), old.s, new.s, max);
}

static af_jval f_format(const af_jcall *c)
{
    af_jinja *j = c->j;
    const af_jval fmt = af_jsoftstr(j, c->self);
    if (c->all->n && c->all->nkw)
        return af_jfail(j, "can't handle positional and keyword arguments at the same time");
    if (c->all->nkw)
        return af_jpercent(j, fmt, af_jdict_v(af_jdict_from(j, c->all)));
    return af_jpercent(j, fmt, af_jtuple_v(af_jargs_list(j, c->all, 0)));
}

static af_jval f_indent(const af_jcall *c)
{
    af_jinja *j = c->j;
    af_jval by = c->arg[0].kind == AF_JKIND_MISSING ? af_jint(4) : c->arg[0];
    if (by.kind != AF_JKIND_STR)
        by = af_jbinary(j, '*', af_jstr_lit(j, " "), by);
    const af_jval s = af_jbinary(j, '+', c->self, af_jmark(af_jstr_lit(j, "\n"), c->self.markup));
    if (j->failed)
        return s;
    const af_jlist *lines = af_jsplitlines(j, s, false);
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    for (int64_t i = 0; i < lines->n && !j->failed; i++) {
        const af_jstr *line = lines->item[i].s;
        if (i)
            af_buf_char(&b, '\n');
        if (i == 0 ? af_jarg_true(c, 1) : af_jarg_true(c, 2) || line->n)
            af_buf_add(&b, by.s->p, by.s->n);
        af_buf_add(&b, line->p, line->n);
    }
    return af_jmark(af_jstr_take(j, &b), c->self.markup);
}

static af_jval f_center(const af_jcall *c)
{
    const af_jstr space = {.p = " ", .n = 1, .cps = 1};
    return af_jpad(c->j, af_jsoftstr(c->j, c->self), af_jarg_int(c, 0, 80), &space, 'c');
}

static af_jval f_wordcount(const af_jcall *c)
{
    const af_jstr *s = af_jtostr(c->j, c->self).s;
    af_jstep(c->j, s->n / 16);
    return af_jint(af_py_count_words(s->p, s->n));
}

static af_jval f_truncate(const af_jcall *c)
{
    const int64_t length = af_jarg_int(c, 0, 255), leeway = af_jarg_int(c, 3, 5);
    const af_jstr *end = af_jarg_str(c, 2, "...");
    const int64_t cut = length - (int64_t)end->cps;
    if (cut < 0 || leeway < 0)
        return af_jfail(c->j, "truncate: expected length >= %" PRIu64 " and leeway >= 0", end->cps);
    const af_jval v = c->self;
    const int64_t have = af_jlength(v);
    if (have >= 0 && (have <= length || have - length <= leeway))
        return v;
    if (v.kind != AF_JKIND_STR)
        return af_jfail(c->j, "truncate expects a string, got '%s'", af_jtype(v));
    const uint64_t n = af_jstr_at(v.s, (uint64_t)cut);
    uint64_t k = n;
    while (!af_jarg_true(c, 1) && k > 0 && v.s->p[k - 1] != ' ') /* to the end of a word */
        k--;
    const bool whole_words = !af_jarg_true(c, 1) && k > 0;
    return af_jbinary(c->j, '+', af_jstr_part(c->j, v, 0, whole_words ? k - 1 : n), af_jstr_v(end));
}

static void quote_url(af_jinja *j, af_buf *b, af_jval v, bool query)
{
    const af_jstr *s = af_jtostr(j, v).s;
    af_py_quote_url(b, s->p, s->n, query);
}

static af_jval f_urlencode(const af_jcall *c)
{
    af_jinja *j = c->j;
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    if (c->self.kind == AF_JKIND_STR || !af_jiterable(c->self)) {
        quote_url(j, &b, c->self, false);
        return af_jstr_take(j, &b);
    }
    const af_jargs one = {.pos = {c->self}, .n = 1};
    const af_jdict *d = af_jdict_from(j, &one);
    for (int64_t i = 0; i < d->n && !j->failed; i++) {
        if (i)
            af_buf_char(&b, '&');
        quote_url(j, &b, d->pair[i].key, true);
        af_buf_char(&b, '=');
        quote_url(j, &b, d->pair[i].val, true);
    }
    return af_jstr_take(j, &b);
}

static af_jval f_xmlattr(const af_jcall *c)
{
    af_jinja *j = c->j;
    if (c->self.kind != AF_JKIND_DICT)
        return af_jfail(j, "xmlattr expects a dict, got '%s'", af_jtype(c->self));
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    for (int64_t i = 0; i < c->self.d->n && !j->failed; i++) {
        const af_jpair *p = &c->self.d->pair[i];
        if (p->val.kind == AF_JKIND_NONE || p->val.kind == AF_JKIND_UNDEF)
            continue;
        af_buf_char(&b, ' ');
        af_jprint(j, &b, af_jescape(j, p->key));
        af_buf_str(&b, "=\"");
        af_jprint(j, &b, af_jescape(j, p->val));
        af_buf_char(&b, '"');
    }
    return af_jstr_take(j, &b);
}

static af_jval f_abs(const af_jcall *c)
{
    if (!af_jis_number(c->self))
        return af_jfail_type(c->j, c->self, "bad operand type for abs(): '%s'", af_jtype(c->self));
    if (c->self.kind == AF_JKIND_FLOAT)
        return af_jfloat(fabs(c->self.f));
    const int64_t i = af_jinteger(c->self);
    return i < 0 ? af_jnegate(c->j, c->self) : af_jint(i);
}

static af_jval f_int(const af_jcall *c)
{
    const af_jval fallback = c->arg[0].kind == AF_JKIND_MISSING ? af_jint(0) : c->arg[0];
    double f = NAN;
    int64_t i = 0;
    if (af_jis_int(c->self))
        return af_jint(af_jinteger(c->self));
    if (c->self.kind == AF_JKIND_UNDEF)
        return af_jfail_type(c->j, c->self, "a value is undefined");
    if (c->self.kind == AF_JKIND_FLOAT) {
        f = c->self.f;
    } else if (c->self.kind == AF_JKIND_STR) {
        if (af_py_parse_int(c->self.s->p, c->self.s->n, af_jarg_int(c, 1, 10), &i))
            return af_jint(i);
        if (!af_py_parse_float(c->self.s->p, c->self.s->n, &f) || isinf(f))
            return fallback;
    }
    if (isnan(f))
        return fallback;
    if (fabs(f) >= 9.2233720368547758e18)
        return af_jfail(c->j, "the integer value of a float does not fit in 64 bits");
    return af_jint((int64_t)f);
}

static af_jval f_float(const af_jcall *c)
{
    double f = 0;
    if (af_jis_number(c->self))
        return af_jfloat(af_jnumber(c->self));
    if (c->self.kind == AF_JKIND_UNDEF)
        return af_jfail_type(c->j, c->self, "a value is undefined");
    if (c->self.kind == AF_JKIND_STR && af_py_parse_float(c->self.s->p, c->self.s->n, &f))
        return af_jfloat(f);
    return c->arg[0].kind == AF_JKIND_MISSING ? af_jfloat(0) : c->arg[0];
}

static af_jval round_int(af_jinja *j, int64_t i, int64_t digits)
{
    if (digits >= 0)
        return af_jint(i);
    if (digits < -18)
        return af_jint(0);
    const int64_t scale = af_jbinary(j, 'p', af_jint(10), af_jint(-digits)).i;
    const int64_t rest = ((i % scale) + scale) % scale, down = i - rest;
    const bool up = rest > scale - rest || (rest == scale - rest && (down / scale) % 2 != 0);
    return af_jbinary(j, '+', af_jint(down), af_jint(up ? scale : 0));
}

static af_jval f_round(const af_jcall *c)
{
    af_jinja *j = c->j;
    const int64_t digits = af_jarg_int(c, 0, 0);
    const af_jstr *method = af_jarg_str(c, 1, "common");
    if (!af_jis_number(c->self))
        return af_jfail_type(j, c->self, "type %s doesn't define __round__ method",
                             af_jtype(c->self));
    if (af_jstr_is(method, "common"))
        return c->self.kind == AF_JKIND_FLOAT ? af_jfloat(af_py_round(c->self.f, digits))
                                              : round_int(j, af_jinteger(c->self), digits);
    const bool up = af_jstr_is(method, "ceil");
    if (!up && !af_jstr_is(method, "floor"))
        return af_jfail(j, "method must be common, ceil or floor");
    const af_jval scale = af_jbinary(j, 'p', af_jint(10), af_jint(digits));
    const af_jval scaled = j->failed ? scale : af_jbinary(j, '*', c->self, scale);
    if (j->failed)
        return scaled;
    const double f = af_jnumber(scaled);
    return af_jbinary(j, '/', af_jfloat(up ? ceil(f) : floor(f)), scale);
}

static af_jval f_filesizeformat(const af_jcall *c)
{
    af_buf b = {0};
    double bytes = 0;
    if (af_jis_number(c->self))
        bytes = af_jnumber(c->self);
    else if (c->self.kind != AF_JKIND_STR || !af_py_parse_float(c->self.s->p, c->self.s->n, &bytes))
        return af_jfail(c->j, "filesizeformat expects a number, got '%s'", af_jtype(c->self));
    af_py_filesize(&b, bytes, af_jarg_true(c, 0));
    return af_jstr_take(c->j, &b);
}

static af_jval f_default(const af_jcall *c)
{
    const bool use = c->self.kind == AF_JKIND_UNDEF || (af_jarg_true(c, 1) && !af_jtruth(&c->self));
    return !use ? c->self : c->arg[0].kind == AF_JKIND_MISSING ? af_jstr_lit(c->j, "") : c->arg[0];
}

static af_jval f_attr(const af_jcall *c)
{
    const af_jstr *name = af_jarg_str(c, 0, NULL);
    if (c->self.kind == AF_JKIND_UNDEF)
        return af_jfail_type(c->j, c->self, "a value is undefined");
    const af_jval v = af_jattribute(c->j, c->self, name);
    return v.kind == AF_JKIND_MISSING
               ? af_jundef(c->j, "'%s object' has no attribute '%s'", af_jtype(c->self), name->p)
               : v;
}

const af_jfunc af_jfilters[] = {
    {"tojson", "ensure_ascii?,indent?,separators?,sort_keys?", af_jtojson, 0},
    {"trim", "chars?", f_trim, 0},
    {"string", "", f_string, 0},
    {"default|d", "default_value?,boolean?", f_default, 0},
    {"safe", "", f_safe, 0},
    {"upper", "", f_case, 'u'},
    {"lower", "", f_case, 'l'},
    {"capitalize", "", f_case, 'c'},
    {"title", "", f_text, 't'},
    {"replace", "old,new,count?", f_replace, 0},
    {"format", NULL, f_format, 0},
    {"indent", "width?,first?,blank?", f_indent, 0},
    {"int", "default?,base?", f_int, 0},
    {"float", "default?", f_float, 0},
    {"abs", "", f_abs, 0},
    {"round", "precision?,method?", f_round, 0},
    {"attr", "name", f_attr, 0},
    {"escape|e", "", f_escape, 0},
    {"forceescape", "", f_escape, 'f'},
    {"center", "width?", f_center, 0},
    {"wordcount", "", f_wordcount, 0},
    {"truncate", "length?,killwords?,end?,leeway?", f_truncate, 0},
    {"urlencode", "", f_urlencode, 0},
    {"xmlattr", "", f_xmlattr, 0},
    {"striptags", "", f_text, 's'},
    {"filesizeformat", "binary?", f_filesizeformat, 0},
    {0},
};
