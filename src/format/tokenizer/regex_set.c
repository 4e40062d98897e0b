/* regex_set.c - see regex_set.h. */
#include "format/tokenizer/regex_set.h"

enum { CLASS_DEPTH_MAX = 8 };

static void add_range(af_regex_set *s, uint32_t a, uint32_t b)
{
    while (a <= b && a < AF_CP_COUNT) {
        const uint32_t bit = a % 64, n = AF_MIN(64 - bit, b - a + 1);
        s->bits[a / 64] |= (n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1) << bit;
        a += n;
    }
}

static void invert(af_regex_set *s)
{
    for (size_t i = 0; i < AF_LEN(s->bits); i++)
        s->bits[i] = ~s->bits[i];
}

static void unite(af_regex_set *s, const af_regex_set *t)
{
    for (size_t i = 0; i < AF_LEN(s->bits); i++)
        s->bits[i] |= t->bits[i];
}

static void intersect(af_regex_set *s, const af_regex_set *t)
{
    for (size_t i = 0; i < AF_LEN(s->bits); i++)
        s->bits[i] &= t->bits[i];
}

/* By runs of the table: a class is some thousand steps, not a million. */
static void add_gc(af_regex_set *s, uint32_t mask)
{
    for (int i = 0; i < af_gc_runs_count; i++) {
        const uint32_t from = af_gc_runs[i] >> 5, kind = af_gc_runs[i] & 31;
        const uint32_t to = i + 1 < af_gc_runs_count ? af_gc_runs[i + 1] >> 5 : AF_CP_COUNT;
        if (kind < AF_GC_COUNT && mask >> kind & 1)
            add_range(s, from, to - 1);
        for (uint32_t c = from; kind == 30 && c < to; c++) /* Lu and Ll in turn */
            if (mask >> ((c - from) & 1) & 1)
                add_range(s, c, c);
    }
}

static void add_table(af_regex_set *s, const uint32_t (*set)[2], int count)
{
    for (int i = 0; i < count; i++)
        add_range(s, set[i][0], set[i][1]);
}

static void add_alpha(af_regex_set *s)
{
    add_gc(s, 0x1f | 1u << AF_GC_NL);
    add_table(s, af_set_alphabetic, af_set_alphabetic_count);
}

static void add_space(af_regex_set *s) { add_table(s, af_set_space, af_set_space_count); }

enum {
    GC_L = 0x1f,
    GC_M = 0xe0,
    GC_N = 0x700,
    GC_P = 0x3f800,
    GC_S = 0x3c0000,
    GC_Z = 0x1c00000,
    GC_C = 0x3e000000,
    GC_ND = 1 << AF_GC_ND,
    GC_PC = 1 << AF_GC_PC,
};

static void add_word(af_regex_set *s)
{
    add_alpha(s);
    add_gc(s, (uint32_t)(GC_M | GC_ND | GC_PC));
}

static void plain_shorthand(af_regex_set *s, char c)
{
    switch (c) {
    case 'd':
        add_gc(s, GC_ND);
        break;
    case 's':
        add_space(s);
        break;
    case 'w':
        add_word(s);
        break;
    default:
        add_range(s, '0', '9');
        add_range(s, 'a', 'f');
        add_range(s, 'A', 'F');
        break;
    }
}

/* Outside of brackets the engine takes superscripts and fractions of Latin-1 for words, too. */
void af_regex_set_bare_word(af_regex_set *s)
{
    add_range(s, 0xb2, 0xb3);
    add_range(s, 0xb9, 0xb9);
    add_range(s, 0xbc, 0xbe);
}

bool af_regex_set_shorthand(af_regex_set *s, char c)
{
    const char low = (char)(c | 0x20);
    if (!strchr("dswh", low) || c == 0)
        return false;
    if (c == low) {
        plain_shorthand(s, c);
        return true;
    }
    af_regex_set *t = af_calloc(1, sizeof *t);
    if (!t)
        return false;
    plain_shorthand(t, low);
    invert(t);
    unite(s, t);
    free(t);
    return true;
}

typedef struct named_gc {
    const char *name;
    uint32_t mask;
} named_gc;

static const named_gc gc_names[] = {
    {"l", GC_L},
    {"letter", GC_L},
    {"m", GC_M},
    {"mark", GC_M},
    {"combiningmark", GC_M},
    {"n", GC_N},
    {"number", GC_N},
    {"p", GC_P},
    {"punct", GC_P},
    {"punctuation", GC_P},
    {"s", GC_S},
    {"symbol", GC_S},
    {"z", GC_Z},
    {"separator", GC_Z},
    {"c", GC_C},
    {"other", GC_C},
    {"lc", 7},
    {"casedletter", 7},
    {"lu", 1u << AF_GC_LU},
    {"uppercaseletter", 1u << AF_GC_LU},
    {"ll", 1u << AF_GC_LL},
    {"lowercaseletter", 1u << AF_GC_LL},
    {"lt", 1u << AF_GC_LT},
    {"titlecaseletter", 1u << AF_GC_LT},
    {"lm", 1u << AF_GC_LM},
    {"modifierletter", 1u << AF_GC_LM},
    {"lo", 1u << AF_GC_LO},
    {"otherletter", 1u << AF_GC_LO},
    {"mn", 1u << AF_GC_MN},
    {"nonspacingmark", 1u << AF_GC_MN},
    {"mc", 1u << AF_GC_MC},
    {"spacingmark", 1u << AF_GC_MC},
    {"me", 1u << AF_GC_ME},
    {"enclosingmark", 1u << AF_GC_ME},
    {"nd", GC_ND},
    {"decimalnumber", GC_ND},
    {"digit", GC_ND},
    {"nl", 1u << AF_GC_NL},
    {"letternumber", 1u << AF_GC_NL},
    {"no", 1u << AF_GC_NO},
    {"othernumber", 1u << AF_GC_NO},
    {"pc", GC_PC},
    {"connectorpunctuation", GC_PC},
    {"pd", 1u << AF_GC_PD},
    {"dashpunctuation", 1u << AF_GC_PD},
    {"ps", 1u << AF_GC_PS},
    {"openpunctuation", 1u << AF_GC_PS},
    {"pe", 1u << AF_GC_PE},
    {"closepunctuation", 1u << AF_GC_PE},
    {"pi", 1u << AF_GC_PI},
    {"initialpunctuation", 1u << AF_GC_PI},
    {"pf", 1u << AF_GC_PF},
    {"finalpunctuation", 1u << AF_GC_PF},
    {"po", 1u << AF_GC_PO},
    {"otherpunctuation", 1u << AF_GC_PO},
    {"sm", 1u << AF_GC_SM},
    {"mathsymbol", 1u << AF_GC_SM},
    {"sc", 1u << AF_GC_SC},
    {"currencysymbol", 1u << AF_GC_SC},
    {"sk", 1u << AF_GC_SK},
    {"modifiersymbol", 1u << AF_GC_SK},
    {"so", 1u << AF_GC_SO},
    {"othersymbol", 1u << AF_GC_SO},
    {"zs", 1u << AF_GC_ZS},
    {"spaceseparator", 1u << AF_GC_ZS},
    {"zl", 1u << AF_GC_ZL},
    {"lineseparator", 1u << AF_GC_ZL},
    {"zp", 1u << AF_GC_ZP},
    {"paragraphseparator", 1u << AF_GC_ZP},
    {"cc", 1u << AF_GC_CC},
    {"control", 1u << AF_GC_CC},
    {"cntrl", 1u << AF_GC_CC},
    {"cf", 1u << AF_GC_CF},
    {"format", 1u << AF_GC_CF},
    {"co", 1u << AF_GC_CO},
    {"privateuse", 1u << AF_GC_CO},
    {"cn", 1u << AF_GC_CN},
    {"unassigned", 1u << AF_GC_CN},
    {"cs", 1u << AF_GC_CS},
    {"surrogate", 1u << AF_GC_CS},
    {"any", 0x3fffffff},
    {"assigned", 0x3fffffff & ~(1u << AF_GC_CN)},
};

static const struct named_set {
    const char *name;
    const uint32_t (*set)[2];
    const int *count;
} set_names[] = {
    {"han", af_set_han, &af_set_han_count},
    {"hiragana", af_set_hiragana, &af_set_hiragana_count},
    {"katakana", af_set_katakana, &af_set_katakana_count},
    {"hangul", af_set_hangul, &af_set_hangul_count},
    {"latin", af_set_latin, &af_set_latin_count},
    {"cyrillic", af_set_cyrillic, &af_set_cyrillic_count},
    {"greek", af_set_greek, &af_set_greek_count},
    {"arabic", af_set_arabic, &af_set_arabic_count},
    {"hebrew", af_set_hebrew, &af_set_hebrew_count},
    {"thai", af_set_thai, &af_set_thai_count},
    {"devanagari", af_set_devanagari, &af_set_devanagari_count},
};

/* POSIX names, in brackets or as properties. */
static bool add_posix(af_regex_set *s, const char *name, bool bracket)
{
    if (strcmp(name, "alpha") == 0 || strcmp(name, "alphabetic") == 0)
        add_alpha(s);
    else if (strcmp(name, "alnum") == 0)
        add_alpha(s), add_gc(s, GC_ND);
    else if (strcmp(name, "word") == 0)
        add_word(s);
    else if (strcmp(name, "space") == 0 || strcmp(name, "whitespace") == 0)
        add_space(s);
    else if (strcmp(name, "blank") == 0)
        add_gc(s, 1u << AF_GC_ZS), add_range(s, 9, 9);
    else if (strcmp(name, "xdigit") == 0)
        plain_shorthand(s, 'h');
    else if (strcmp(name, "ascii") == 0)
        add_range(s, 0, 0x7f);
    else if (strcmp(name, "punct") == 0 && bracket)
        add_gc(s, (uint32_t)(GC_P | GC_S));
    else if (strcmp(name, "graph") == 0)
        add_gc(s,
               0x3fffffffu & ~(uint32_t)(GC_Z | 1u << AF_GC_CC | 1u << AF_GC_CN | 1u << AF_GC_CS));
    else if (strcmp(name, "print") == 0)
        add_gc(s, 0x3fffffffu & ~(1u << AF_GC_CC | 1u << AF_GC_CN | 1u << AF_GC_CS |
                                  1u << AF_GC_ZL | 1u << AF_GC_ZP));
    else
        return false;
    return true;
}

static bool add_cased(af_regex_set *s, const char *name)
{
    if (strcmp(name, "lower") == 0 || strcmp(name, "lowercase") == 0) {
        add_gc(s, 1u << AF_GC_LL);
        add_table(s, af_set_lower_more, af_set_lower_more_count);
    } else if (strcmp(name, "upper") == 0 || strcmp(name, "uppercase") == 0) {
        add_gc(s, 1u << AF_GC_LU);
        add_table(s, af_set_upper_more, af_set_upper_more_count);
    } else {
        return false;
    }
    return true;
}

static bool add_named(af_regex_set *s, const char *name, bool bracket)
{
    if (add_posix(s, name, bracket) || add_cased(s, name))
        return true;
    for (size_t i = 0; i < AF_LEN(gc_names); i++)
        if (strcmp(gc_names[i].name, name) == 0) {
            add_gc(s, gc_names[i].mask);
            return true;
        }
    for (size_t i = 0; i < AF_LEN(set_names); i++)
        if (strcmp(set_names[i].name, name) == 0) {
            add_table(s, set_names[i].set, *set_names[i].count);
            return true;
        }
    return false;
}

/* Reads a name up to `closing`, without case, blanks, '-' and '_'. */
static af_status read_name(af_regex_reader *p, char name[48], const char *closing)
{
    size_t n = 0;
    const size_t len = strlen(closing);
    for (;; p->at++) {
        if (p->at + len > p->end || n >= 47)
            return af_fail(p->err, AF_EFORMAT, "unclosed property name in regex");
        if (memcmp(p->at, closing, len) == 0)
            break;
        const char c = *p->at;
        if (c != ' ' && c != '-' && c != '_')
            name[n++] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    name[n] = 0;
    p->at += len;
    return AF_OK;
}

static af_status add_maybe_negated(af_regex_set *s, af_regex_reader *p, const char *name,
                                   bool negated, bool bracket)
{
    af_regex_set *t = af_calloc(1, sizeof *t);
    if (!t)
        return af_fail_nomem(p->err, "a character class", sizeof *t);
    const bool known = add_named(t, name, bracket);
    if (known) {
        if (negated)
            invert(t);
        unite(s, t);
    }
    free(t);
    if (!known)
        return af_fail(p->err, AF_EUNSUPPORTED, "unknown regex property \\p{%s}", name);
    return AF_OK;
}

af_status af_regex_set_property(af_regex_set *s, af_regex_reader *p, bool negated)
{
    af_status st = AF_OK;
    char name[48];
    if (p->at >= p->end || *p->at != '{')
        return af_fail(p->err, AF_EFORMAT, "regex has \\p without a name in braces");
    p->at++;
    AF_TRY(read_name(p, name, "}"));
    const bool caret = name[0] == '^';
    AF_TRY(add_maybe_negated(s, p, name + caret, negated != caret, false));
done:
    return st;
}

af_status af_regex_reader_number(af_regex_reader *p, char kind, uint32_t *cp)
{
    uint32_t v = 0;
    const bool brace = kind != '0' && p->at < p->end && *p->at == '{';
    const int most = kind == '0' ? 2 : brace ? 8 : kind == 'u' ? 4 : 2;
    p->at += brace;
    int n = 0;
    for (; n < most && p->at < p->end; n++, p->at++) {
        const char c = *p->at;
        const int d = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : 99;
        if (d >= (kind == '0' ? 8 : 16))
            break;
        v = v * (kind == '0' ? 8 : 16) + (uint32_t)d;
    }
    if (brace && (p->at >= p->end || *p->at++ != '}'))
        return af_fail(p->err, AF_EFORMAT, "missing closing brace in regex");
    if ((n == 0 && kind != '0') || v >= AF_CP_COUNT || (v >= 0xd800 && v <= 0xdfff))
        return af_fail(p->err, AF_EFORMAT, "regex names the invalid character %" PRIx32, v);
    *cp = v;
    return AF_OK;
}

/* One member of a class: a set (then *single is false) or a character. */
static af_status member(af_regex_set *s, af_regex_reader *p, uint32_t *cp, bool *single)
{
    static const char from[] = "nrtfvaeb", to[] = "\n\r\t\f\v\a\033\b";
    *single = true;
    if (*p->at != '\\') {
        p->at += af_utf8_get(p->at, cp);
        return AF_OK;
    }
    if (++p->at >= p->end)
        return af_fail(p->err, AF_EFORMAT, "regex ends with a backslash");
    p->at += af_utf8_get(p->at, cp);
    const char c = *cp < 0x80 ? (char)*cp : 0;
    if (c == 'p' || c == 'P') {
        *single = false;
        return af_regex_set_property(s, p, c == 'P');
    }
    if (c && af_regex_set_shorthand(s, c)) {
        *single = false;
        return AF_OK;
    }
    if (c == 'x' || c == 'u' || c == '0')
        return af_regex_reader_number(p, c, cp);
    const char *known = c ? strchr(from, c) : NULL;
    if (known)
        *cp = (uint8_t)to[known - from];
    return AF_OK;
}

static af_status range_or_char(af_regex_set *s, af_regex_reader *p)
{
    uint32_t a, b;
    bool single;
    af_status st = member(s, p, &a, &single);
    if (st != AF_OK || !single)
        return st;
    b = a;
    if (p->end - p->at >= 2 && p->at[0] == '-' && p->at[1] != ']' && p->at[1] != '[') {
        p->at++;
        st = member(s, p, &b, &single);
        if (st != AF_OK)
            return st;
        if (!single) { /* [a-\d]: three members */
            add_range(s, '-', '-');
            b = a;
        } else if (b < a) {
            return af_fail(p->err, AF_EFORMAT, "regex has the empty range %" PRIx32 "-%" PRIx32, a,
                           b);
        }
    }
    add_range(s, a, b);
    return AF_OK;
}

static bool at_posix(const af_regex_reader *p)
{
    if (p->end - p->at < 4 || p->at[0] != '[' || p->at[1] != ':')
        return false;
    for (const char *q = p->at + 2; q + 1 < p->end && *q != ']'; q++)
        if (q[0] == ':' && q[1] == ']')
            return true;
    return false;
}

static af_status posix(af_regex_set *s, af_regex_reader *p)
{
    af_status st = AF_OK;
    char name[48];
    p->at += 2;
    AF_TRY(read_name(p, name, ":]"));
    const bool caret = name[0] == '^';
    AF_TRY(add_maybe_negated(s, p, name + caret, caret, true));
done:
    return st;
}

/* [..] inside a class, or the rest of the class after &&: both are sets of their own. */
static af_status nested(af_regex_set *s, af_regex_reader *p, bool and)
{
    af_status st = AF_OK;
    af_regex_set *t = af_calloc(1, sizeof *t);
    if (!t)
        return af_fail_nomem(p->err, "a character class", sizeof *t);
    AF_TRY(af_regex_set_class(t, p));
    if (and)
        intersect(s, t);
    else
        unite(s, t);
done:
    free(t);
    return st;
}

af_status af_regex_set_class(af_regex_set *s, af_regex_reader *p)
{
    af_status st = AF_OK;
    if (++p->depth > CLASS_DEPTH_MAX)
        return af_fail(p->err, AF_EUNSUPPORTED, "regex classes are nested deeper than %d",
                       CLASS_DEPTH_MAX);
    const bool negated = p->at < p->end && *p->at == '^';
    p->at += negated;
    bool first = true;
    for (; p->at < p->end && (*p->at != ']' || first); first = false) {
        if (at_posix(p)) {
            AF_TRY(posix(s, p));
        } else if (*p->at == '[') {
            p->at++;
            AF_TRY(nested(s, p, false));
        } else if (p->end - p->at >= 2 && p->at[0] == '&' && p->at[1] == '&') {
            p->at += 2;
            AF_TRY(nested(s, p, true)); /* reads our closing bracket too */
            p->at--;
        } else {
            AF_TRY(range_or_char(s, p));
        }
    }
    if (p->at >= p->end) {
        st = af_fail(p->err, AF_EFORMAT, "missing closing bracket in regex");
        goto done;
    }
    p->at++;
    if (negated)
        invert(s);
done:
    p->depth--;
    return st;
}

/* The first member at or after c (or, with `in` false, the first that is not). */
static uint32_t next_in(const af_regex_set *s, uint32_t c, bool in)
{
    while (c < AF_CP_COUNT) {
        const uint64_t word = (in ? s->bits[c / 64] : ~s->bits[c / 64]) >> (c % 64);
        if (word)
            return c + (uint32_t)__builtin_ctzll(word);
        c = (c / 64 + 1) * 64;
    }
    return AF_CP_COUNT;
}

void af_regex_set_invert(af_regex_set *s) { invert(s); }

void af_regex_set_write(const af_regex_set *s, af_buf *out)
{
    bool any = false;
    for (uint32_t c = next_in(s, 0, true), end; c < AF_CP_COUNT; c = next_in(s, end, true)) {
        end = next_in(s, c, false);
        if (c < 0xd800 && end > 0xd800) /* surrogates are not characters */
            end = 0xd800;
        if (c >= 0xd800 && c < 0xe000) {
            end = 0xe000;
            continue;
        }
        af_buf_printf(out, "%s\\x{%x}-\\x{%x}", any ? "" : "[", (unsigned)c, (unsigned)end - 1);
        any = true;
    }
    af_buf_str(out, any ? "]" : "(?!)");
}
