/* jinja_filters_text.c - filters that make text. */
#include "format/jinja/jinja.h"

static bool given(af_jv v) { return v.kind != AF_J_MISSING && v.kind != AF_J_NONE; }

static af_jv f_case(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    const char how = (char)j->aux;
    const af_jv s = af_jsoftstr(j, self);
    return j->failed ? s : af_jrecase(j, s, how);
}

static bool word_break(uint32_t cp)
{
    return af_juni_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
}

/* Jinja's title: words begin behind blanks, hyphens and opening brackets. */
static af_jv f_title(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    const af_jv v = af_jsoftstr(j, self);
    if (j->failed)
        return v;
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    const char *p = v.s->p, *end = p + v.s->n;
    while (p < end && !b.bad) {
        const char *from = p;
        const bool breaks = word_break(af_jutf8_next(&p));
        const char *first_end = p;
        for (const char *q = p; q < end; p = q)
            if (word_break(af_jutf8_next(&q)) != breaks)
                break;
        af_jstr head, tail;
        af_jstr_fill(&head, from, (uint64_t)(first_end - from));
        af_jstr_fill(&tail, first_end, (uint64_t)(p - first_end));
        af_juni_case(&b, &head, 'u');
        af_juni_case(&b, &tail, 'l');
    }
    return af_jstr_take(j, &b);
}

static af_jv f_trim(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const af_jv s = af_jsoftstr(j, self);
    return j->failed ? s : af_jstrip(j, s, a[0], 'b');
}

static af_jv f_string(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    return af_jsoftstr(j, self);
}

static af_jv f_safe(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    return af_jmark(af_jtostr(j, self), true);
}

static af_jv f_escape(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    return af_jescape(j, j->aux == 'f' ? af_jtostr(j, self) : self);
}

static af_jv f_replace(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const int64_t max = given(a[2]) ? af_jneed_int(j, a[2], "replace") : -1;
    const af_jv s = af_jtostr(j, self), old = af_jtostr(j, a[0]), new = af_jtostr(j, a[1]);
    return j->failed ? s : af_jreplace(j, s, old.s, new.s, max);
}

static af_jv f_format(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    const af_jv fmt = af_jsoftstr(j, self);
    if (raw->n && raw->nkw)
        return af_jfail(j, "can't handle positional and keyword arguments at the same time");
    if (raw->nkw) {
        af_jdict *d = af_jdict_new(j, raw->nkw);
        for (int i = 0; i < raw->nkw && !j->failed; i++)
            af_jdict_set(j, d, (af_jv){.kind = AF_J_STR, .s = raw->kw[i].name}, raw->kw[i].val);
        return j->failed ? fmt : af_jpercent(j, fmt, af_jdict_v(d));
    }
    af_jlist *l = af_jlist_new(j, raw->n);
    for (int i = 0; i < raw->n; i++)
        af_jlist_add(j, l, raw->pos[i]);
    return j->failed ? fmt : af_jpercent(j, fmt, af_jtuple_v(l));
}

static af_jv f_indent(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const bool first = af_jtruth(&a[1]), blank = af_jtruth(&a[2]);
    af_jv by = a[0].kind == AF_J_MISSING ? af_jint(4) : a[0];
    if (by.kind != AF_J_STR)
        by = af_jbinary(j, AF_N_MUL, af_jstr_lit(j, " "), by);
    const af_jv s =
        j->failed ? self
                  : af_jbinary(j, AF_N_ADD, self, af_jmark(af_jstr_lit(j, "\n"), self.markup));
    if (j->failed || s.kind != AF_J_STR)
        return af_jfail(j, "indent wants a string, not '%s'", af_jtype(self));
    const af_jlist *lines = af_jsplitlines(j, s, false);
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    for (int64_t i = 0; i < lines->n && !j->failed; i++) {
        const af_jstr *line = lines->item[i].s;
        if (i)
            af_buf_char(&b, '\n');
        if (i == 0 ? first : blank || line->n)
            af_buf_add(&b, by.s->p, by.s->n);
        af_buf_add(&b, line->p, line->n);
    }
    return af_jmark(af_jstr_take(j, &b), self.markup);
}

static af_jv f_center(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const af_jstr space = {.p = " ", .n = 1, .cps = 1};
    const int64_t width = a[0].kind == AF_J_MISSING ? 80 : af_jneed_int(j, a[0], "center");
    const af_jv s = af_jsoftstr(j, self);
    return j->failed ? s : af_jpad(j, s, width, &space, 'c');
}

static af_jv f_wordcount(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    const af_jstr *s = af_jtostr(j, self).s;
    int64_t words = 0;
    bool in_word = false;
    for (const char *p = s->p, *end = p + s->n; p < end;) {
        const bool word = af_juni_word(af_jutf8_next(&p));
        words += word && !in_word;
        in_word = word;
    }
    af_jstep(j, s->n / 16);
    return af_jint(words);
}

static af_jv f_truncate(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const int64_t length = a[0].kind == AF_J_MISSING ? 255 : af_jneed_int(j, a[0], "truncate");
    const af_jv end = a[2].kind == AF_J_MISSING ? af_jstr_lit(j, "...") : a[2];
    const int64_t leeway = given(a[3]) ? af_jneed_int(j, a[3], "truncate") : 5;
    const int64_t cut = length - (int64_t)af_jneed_str(j, end, "truncate")->cps;
    if (j->failed)
        return self;
    if (cut < 0 || leeway < 0)
        return af_jfail(j, "truncate: expected length >= %" PRIu64 " and leeway >= 0", end.s->cps);
    const int64_t have = af_jlength(self);
    if (have >= 0 && (have <= length || have - length <= leeway))
        return self;
    const af_jstr *s = af_jneed_str(j, self, "truncate");
    if (j->failed)
        return self;
    uint64_t n = af_jstr_at(s, (uint64_t)cut);
    if (!af_jtruth(&a[1])) {
        uint64_t k = n;
        while (k > 0 && s->p[k - 1] != ' ')
            k--;
        n = k > 0 ? k - 1 : n;
    }
    return af_jbinary(j, AF_N_ADD, af_jmark(af_jstr_part(j, s, 0, n), self.markup), end);
}

static void quote_url(af_jinja *j, af_buf *b, af_jv v, bool query)
{
    const af_jstr *s = af_jtostr(j, v).s;
    for (uint64_t i = 0; i < s->n; i++) {
        const unsigned char c = (unsigned char)s->p[i];
        const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                           (c >= 'A' && c <= 'Z') || strchr("_.-~", c) || (c == '/' && !query);
        if (c && plain)
            af_buf_char(b, (char)c);
        else if (c == ' ' && query)
            af_buf_char(b, '+');
        else
            af_buf_printf(b, "%%%02X", c);
    }
}

static af_jv f_urlencode(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    if (self.kind == AF_J_STR || !af_jiterable(self)) {
        quote_url(j, &b, self, false);
        return af_jstr_take(j, &b);
    }
    const bool dict = self.kind == AF_J_DICT;
    const af_jlist *l = dict ? NULL : af_jitems(j, self);
    for (int64_t i = 0; i < (dict ? self.d->n : l->n) && !j->failed; i++) {
        const af_jlist *pair = dict ? NULL : af_jitems(j, l->item[i]);
        if (pair && pair->n != 2) {
            af_jfail(j, "urlencode wants pairs, not %" PRId64 " items", pair->n);
            break;
        }
        if (i)
            af_buf_char(&b, '&');
        quote_url(j, &b, dict ? self.d->pair[i].key : pair->item[0], true);
        af_buf_char(&b, '=');
        quote_url(j, &b, dict ? self.d->pair[i].val : pair->item[1], true);
    }
    return af_jstr_take(j, &b);
}

static af_jv f_xmlattr(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    if (self.kind != AF_J_DICT)
        return af_jfail(j, "xmlattr wants a dict, not '%s'", af_jtype(self));
    const bool autospace = a[0].kind == AF_J_MISSING || af_jtruth(&a[0]);
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    for (int64_t i = 0; i < self.d->n && !j->failed; i++) {
        const af_jpair *p = &self.d->pair[i];
        if (p->val.kind == AF_J_NONE || p->val.kind == AF_J_UNDEF)
            continue;
        const af_jstr *key = af_jneed_str(j, p->key, "xmlattr");
        for (uint64_t k = 0; k < key->n; k++)
            if (strchr(" \t\n\r\f\v/>=", key->p[k]) && key->p[k])
                af_jfail(j, "Invalid character in attribute name: '%s'", key->p);
        if (j->failed)
            break;
        if (b.len || autospace)
            af_buf_char(&b, ' ');
        af_jprint(j, &b, af_jescape(j, p->key));
        af_buf_str(&b, "=\"");
        af_jprint(j, &b, af_jescape(j, p->val));
        af_buf_char(&b, '"');
    }
    return af_jstr_take(j, &b);
}

static af_jv f_join(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const af_jv sep = a[0].kind == AF_J_MISSING ? af_jstr_lit(j, "") : af_jtostr(j, a[0]);
    const af_jlist *l = af_jitems(j, self);
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    for (int64_t i = 0; i < l->n && !j->failed && !b.bad; i++) {
        if (i)
            af_buf_add(&b, sep.s->p, sep.s->n);
        const af_jv v = given(a[1]) ? af_jpath(j, l->item[i], a[1]) : l->item[i];
        if (!j->failed)
            af_jprint(j, &b, v);
        af_jstep(j, 1);
    }
    return af_jstr_take(j, &b);
}

/* Tags and comments out, white space to single blanks. Entities stay but the five common ones. */
static af_jv f_striptags(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    static const char *const entity[][2] = {{"&lt;", "<"},    {"&gt;", ">"},  {"&#34;", "\""},
                                            {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}};
    const af_jstr *s = af_jtostr(j, self).s;
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    for (uint64_t i = 0; i < s->n && !b.bad;) {
        const char *end = NULL;
        if (s->p[i] == '<')
            end = memchr(s->p + i, '>', s->n - i);
        if (end)
            i = (uint64_t)(end - s->p) + 1;
        else
            af_buf_char(&b, s->p[i++]);
    }
    const af_jv text = af_jstr_take(j, &b);
    const af_jfunc *split = af_jmethod_find(text, &(af_jstr){.p = "split", .n = 5});
    af_jargs none;
    none.n = none.nkw = 0;
    af_jv words = j->failed ? text : af_jfunc_run(j, split, "method", text, &none);
    const af_jv blank = {.kind = AF_J_MISSING};
    const af_jv args[2] = {af_jstr_lit(j, " "), blank};
    words = j->failed ? words : f_join(j, words, args, &none);
    for (size_t i = 0; i < AF_LEN(entity) && !j->failed; i++)
        words = af_jreplace(j, words, af_jstr_lit(j, entity[i][0]).s,
                            af_jstr_lit(j, entity[i][1]).s, -1);
    return words;
}

const af_jfunc af_jfilters_text[] = {
    {"upper", "", f_case, 'u'},
    {"lower", "", f_case, 'l'},
    {"capitalize", "", f_case, 'c'},
    {"title", "", f_title, 0},
    {"trim", "chars?", f_trim, 0},
    {"string", "", f_string, 0},
    {"safe", "", f_safe, 0},
    {"escape", "", f_escape, 0},
    {"e", "", f_escape, 0},
    {"forceescape", "", f_escape, 'f'},
    {"replace", "old,new,count?", f_replace, 0},
    {"format", NULL, f_format, 0},
    {"indent", "width?,first?,blank?", f_indent, 0},
    {"center", "width?", f_center, 0},
    {"wordcount", "", f_wordcount, 0},
    {"truncate", "length?,killwords?,end?,leeway?", f_truncate, 0},
    {"urlencode", "", f_urlencode, 0},
    {"xmlattr", "autospace?", f_xmlattr, 0},
    {"striptags", "", f_striptags, 0},
    {"join", "d?,attribute?", f_join, 0},
    {"tojson", "ensure_ascii?,indent?,separators?,sort_keys?", af_jtojson, 0},
    {0},
};
