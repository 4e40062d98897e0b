/* jinja_filters_number.c - filters that make numbers, and default and attr. */
#include "format/jinja/jinja.h"

#include <errno.h>
#include <math.h>

static af_jv f_abs(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)a;
    (void)raw;
    if (self.kind == AF_J_FLOAT)
        return af_jfloat(fabs(self.f));
    if (!af_jis_number(self))
        return self.kind == AF_J_UNDEF && self.s
                   ? af_jfail(j, "%s", self.s->p)
                   : af_jfail(j, "bad operand type for abs(): '%s'", af_jtype(self));
    const int64_t i = self.kind == AF_J_BOOL ? self.b : self.i;
    return i < 0 ? af_jnegate(j, af_jint(i)) : af_jint(i);
}

/* Text without underscores between digits and without white space around; false when it does not
 * fit. */
static bool clean_number(const af_jv v, char *out, size_t size)
{
    const af_jstr *s = v.s;
    size_t n = 0;
    for (uint64_t i = 0; i < s->n; i++) {
        const char c = s->p[i];
        if (c == '_') {
            const bool between = n > 0 && i + 1 < s->n && s->p[i - 1] != '_' && s->p[i + 1] != '_';
            if (!between)
                return false;
            continue;
        }
        if (n + 1 >= size || !c)
            return false;
        out[n++] = c;
    }
    out[n] = 0;
    return n > 0;
}

static bool parse_int(const char *text, int64_t base, int64_t *out)
{
    const char *p = text + (*text == '-' || *text == '+');
    if (base == 0 || base == 2 || base == 8 || base == 16) {
        const char r = (char)(p[0] == '0' ? p[1] | 32 : 0);
        const int64_t named = r == 'x' ? 16 : r == 'o' ? 8 : r == 'b' ? 2 : 0;
        if (named && (base == 0 || base == named)) {
            base = named;
            p += 2;
        } else if (base == 0) {
            base = 10;
        }
    }
    if (base < 2 || base > 36 || *p == '-' || *p == '+' || *p == ' ' || !*p)
        return false;
    char *end = NULL;
    errno = 0;
    const uint64_t x = strtoull(p, &end, (int)base);
    if (errno || *end || end == p || (p[0] == '0' && (p[1] | 32) == 'x' && base == 16))
        return false;
    const bool negative = *text == '-';
    if (x > (uint64_t)INT64_MAX + negative)
        return false;
    *out = negative ? (int64_t)(0 - x) : (int64_t)x;
    return true;
}

static bool parse_float(const char *text, double *out)
{
    const char *p = text + (*text == '-' || *text == '+');
    char *end = NULL;
    /* strtod also takes hexadecimal floats and nan(...), Python does not */
    if (!*p || strpbrk(p, "xX(") || *p == ' ')
        return false;
    *out = strtod(text, &end);
    return end != text && !*end;
}

static af_jv f_int(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const af_jv fallback = a[0].kind == AF_J_MISSING ? af_jint(0) : a[0];
    const int64_t base = a[1].kind == AF_J_MISSING ? 10 : af_jneed_int(j, a[1], "int");
    double f = 0;
    int64_t i = 0;
    if (self.kind == AF_J_INT || self.kind == AF_J_BOOL)
        return af_jint(self.kind == AF_J_BOOL ? self.b : self.i);
    if (self.kind == AF_J_UNDEF)
        return af_jfail(j, "%s", self.s ? self.s->p : "a value is undefined");
    if (self.kind == AF_J_FLOAT) {
        f = self.f;
    } else {
        char text[512];
        if (self.kind != AF_J_STR)
            return fallback;
        const af_jv s = af_jstrip(j, self, (af_jv){.kind = AF_J_MISSING}, 'b');
        if (!clean_number(s, text, sizeof text))
            return fallback;
        if (parse_int(text, base, &i))
            return af_jint(i);
        if (!parse_float(text, &f))
            return fallback;
    }
    if (!isfinite(f))
        return isinf(f) && self.kind == AF_J_FLOAT
                   ? af_jfail(j, "cannot convert float infinity to integer")
                   : fallback;
    if (fabs(f) >= 9.2233720368547758e18)
        return af_jfail(j, "an integer result does not fit in 64 bits");
    return af_jint((int64_t)f);
}

static af_jv f_float(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const af_jv fallback = a[0].kind == AF_J_MISSING ? af_jfloat(0) : a[0];
    char text[512];
    double f = 0;
    if (af_jis_number(self))
        return af_jfloat(af_jnumber(self));
    if (self.kind == AF_J_UNDEF)
        return af_jfail(j, "%s", self.s ? self.s->p : "a value is undefined");
    if (self.kind != AF_J_STR)
        return fallback;
    const af_jv s = af_jstrip(j, self, (af_jv){.kind = AF_J_MISSING}, 'b');
    return clean_number(s, text, sizeof text) && parse_float(text, &f) ? af_jfloat(f) : fallback;
}

/* Python's round: correctly rounded decimal, ties to even. */
double af_jround(double x, int64_t digits)
{
    if (!isfinite(x) || digits > 300)
        return x;
    if (digits < -308)
        return copysign(0.0, x);
    if (digits >= 0) {
        char text[700];
        snprintf(text, sizeof text, "%.*f", (int)digits, x);
        return strtod(text, NULL);
    }
    const double scale = pow(10, (double)-digits);
    return rint(x / scale) * scale;
}

static af_jv round_int(af_jinja *j, int64_t i, int64_t digits)
{
    int64_t scale = 1;
    if (digits >= 0)
        return af_jint(i);
    if (digits < -18 || !af_jint_pow(10, -digits, &scale))
        return af_jint(0);
    const int64_t rest = ((i % scale) + scale) % scale, down = i - rest;
    const bool up = rest * 2 > scale || (rest * 2 == scale && (down / scale) % 2 != 0);
    int64_t r = 0;
    return __builtin_add_overflow(down, up ? scale : 0, &r)
               ? af_jfail(j, "an integer result does not fit in 64 bits")
               : af_jint(r);
}

static af_jv f_round(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const int64_t digits = a[0].kind == AF_J_MISSING ? 0 : af_jneed_int(j, a[0], "round");
    const af_jv how = a[1].kind == AF_J_MISSING ? af_jstr_lit(j, "common") : a[1];
    const af_jstr *method = af_jneed_str(j, how, "round");
    if (!j->failed && !af_jis_number(self))
        return self.kind == AF_J_UNDEF && self.s
                   ? af_jfail(j, "%s", self.s->p)
                   : af_jfail(j, "type %s doesn't define __round__ method", af_jtype(self));
    if (j->failed)
        return self;
    if (af_jstr_is(method, "common"))
        return self.kind == AF_J_FLOAT
                   ? af_jfloat(af_jround(self.f, digits))
                   : round_int(j, self.kind == AF_J_BOOL ? self.b : self.i, digits);
    const bool up = af_jstr_is(method, "ceil");
    if (!up && !af_jstr_is(method, "floor"))
        return af_jfail(j, "method must be common, ceil or floor");
    const af_jv scale = af_jbinary(j, AF_N_POW, af_jint(10), af_jint(digits));
    const af_jv scaled = j->failed ? scale : af_jbinary(j, AF_N_MUL, self, scale);
    if (j->failed)
        return scaled;
    const double f = af_jnumber(scaled);
    return af_jbinary(j, AF_N_DIV, af_jfloat(up ? ceil(f) : floor(f)), scale);
}

static af_jv f_filesize(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    static const char *const names[2][8] = {
        {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
        {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}};
    const bool binary = af_jtruth(&a[0]);
    double bytes = 0;
    char text[64];
    if (af_jis_number(self))
        bytes = af_jnumber(self);
    else if (self.kind != AF_J_STR || !clean_number(self, text, sizeof text) ||
             !parse_float(text, &bytes))
        return af_jfail(j, "could not convert '%s' to float", af_jtype(self));
    const double base = binary ? 1024 : 1000;
    if (bytes == 1)
        return af_jstr_lit(j, "1 Byte");
    if (bytes < base)
        snprintf(text, sizeof text, "%" PRId64 " Bytes", (int64_t)bytes);
    else {
        double unit = base * base;
        int i = 0;
        for (; i < 7 && bytes >= unit; i++)
            unit *= base;
        snprintf(text, sizeof text, "%.1f %s", base * bytes / unit, names[binary][i]);
    }
    return af_jstr_new(j, text, strlen(text));
}

static af_jv f_default(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const bool use = self.kind == AF_J_UNDEF || (af_jtruth(&a[1]) && !af_jtruth(&self));
    return !use ? self : a[0].kind == AF_J_MISSING ? af_jstr_lit(j, "") : a[0];
}

static af_jv f_attr(af_jinja *j, af_jv self, const af_jv *a, const af_jargs *raw)
{
    (void)raw;
    const af_jstr *name = af_jneed_str(j, a[0], "attr");
    if (self.kind == AF_J_UNDEF)
        return af_jfail(j, "%s", self.s ? self.s->p : "a value is undefined");
    const af_jv v = af_jattribute(j, self, name);
    return v.kind == AF_J_MISSING
               ? af_jundef(j, "'%s object' has no attribute '%s'", af_jtype(self), name->p)
               : v;
}

const af_jfunc af_jfilters_number[] = {
    {"abs", "", f_abs, 0},
    {"int", "default?,base?", f_int, 0},
    {"float", "default?", f_float, 0},
    {"round", "precision?,method?", f_round, 0},
    {"filesizeformat", "binary?", f_filesize, 0},
    {"default", "default_value?,boolean?", f_default, 0},
    {"d", "default_value?,boolean?", f_default, 0},
    {"attr", "name", f_attr, 0},
    {0},
};
