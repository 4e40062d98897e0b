/* pattern_class.c - classes of characters in patterns: \d \w \s, and \p{...} with a general
 * category or one of the scripts there are tables of. */
#include "format/text/unicode.h"
#include "grammar/pattern.h"

enum { WORK_PER_RANGE = 32 }; /* of a class: it is put in order with others */

/* The general categories whose names begin so: a letter for all of a kind. What has no category yet
 * (Cn) has one for some engine: then it is of any kind. */
static bool add_category(af_cpset *to, const char *name, uint64_t n, bool wide)
{
    static const char names[AF_GC_COUNT][3] = {
        "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
        "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn", "Cs"};
    bool in[32] = {0}, any = false;
    for (int i = 0; i < AF_GC_COUNT; i++) {
        in[i] = n <= 2 && memcmp(names[i], name, n) == 0;
        any |= in[i];
    }
    in[AF_GC_CN] = wide || (in[AF_GC_CN] && n > 1);
    for (int i = 0; i < af_gc_runs_count && any; i++) {
        const uint32_t from = af_gc_runs[i] >> 5, kind = af_gc_runs[i] & 31;
        const uint32_t end = i + 1 < af_gc_runs_count ? af_gc_runs[i + 1] >> 5 : AF_CP_COUNT;
        for (uint32_t c = from; c < end && kind == 30; c++) /* upper and lower case in turn */
            if (in[(c - from) & 1])
                af_cpset_add(to, c, c);
        if (kind != 30 && in[kind])
            af_cpset_add(to, from, end - 1);
    }
    return any;
}

/* d, w or s: what every engine takes, or (wide) what some engine takes. */
static void add_kind(af_cpset *to, char kind, bool wide)
{
    static const af_cp_range spaces[] = {
        {0x1c, 0x1f},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200b},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x2060}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    if (kind == 'd' || kind == 'w')
        af_cpset_add(to, '0', '9');
    if (kind == 'd' && wide)
        add_category(to, "Nd", 2, true);
    if (kind == 'w') {
        af_cpset_add(to, 'a', 'z');
        af_cpset_add(to, 'A', 'Z');
        af_cpset_add(to, '_', '_');
        if (wide)
            af_cpset_add(to, 0x80, 0x10ffff);
    }
    if (kind == 's') {
        af_cpset_add(to, '\t', '\r');
        af_cpset_add(to, ' ', ' ');
        for (size_t i = 0; wide && i < AF_LEN(spaces); i++)
            af_cpset_add(to, spaces[i].lo, spaces[i].hi);
    }
}

static const struct {
    const char *name;
    const uint32_t (*set)[2];
    const int *count;
} scripts[] = {{"Han", af_set_han, &af_set_han_count},
               {"Hiragana", af_set_hiragana, &af_set_hiragana_count},
               {"Katakana", af_set_katakana, &af_set_katakana_count},
               {"Hangul", af_set_hangul, &af_set_hangul_count},
               {"Latin", af_set_latin, &af_set_latin_count},
               {"Cyrillic", af_set_cyrillic, &af_set_cyrillic_count},
               {"Greek", af_set_greek, &af_set_greek_count},
               {"Arabic", af_set_arabic, &af_set_arabic_count},
               {"Hebrew", af_set_hebrew, &af_set_hebrew_count},
               {"Thai", af_set_thai, &af_set_thai_count},
               {"Devanagari", af_set_devanagari, &af_set_devanagari_count}};

static const char *const kinds[] = {"LLetter", "MMark",      "NNumber", "PPunctuation",
                                    "SSymbol", "ZSeparator", "COther"}; /* after its letter */

static bool is_name(const char *name, uint64_t n, const char *word)
{
    return n == strlen(word) && memcmp(name, word, n) == 0;
}

/* "key=value", where the value may be a category or a script; the end of the key, NULL: another. */
static const char *property_value(const char *name, uint64_t n, bool *category, bool *script)
{
    const char *equals = memchr(name, '=', n);
    if (!equals)
        return name;
    const uint64_t key = (uint64_t)(equals - name);
    *script = is_name(name, key, "Script") || is_name(name, key, "sc");
    *category = is_name(name, key, "General_Category") || is_name(name, key, "gc");
    return *script || *category ? equals + 1 : NULL;
}

static bool add_property(af_cpset *to, const char *name, uint64_t n, bool wide)
{
    bool category = true, script = true;
    const char *value = property_value(name, n, &category, &script);
    if (!value)
        return false;
    n -= (uint64_t)(value - name);
    for (size_t i = 0; i < AF_LEN(scripts) && script; i++)
        if (is_name(value, n, scripts[i].name)) {
            for (int k = 0; k < *scripts[i].count; k++)
                af_cpset_add(to, scripts[i].set[k][0], scripts[i].set[k][1]);
            return !wide || add_category(to, "Cn", 2, true);
        }
    for (size_t i = 0; i < AF_LEN(kinds) && category; i++)
        if (is_name(value, n, kinds[i] + 1))
            return add_category(to, kinds[i], 1, wide);
    return category && n > 0 && add_category(to, value, n, wide);
}

/* The class at the beginning of the text, without a capital letter for its complement. */
static uint64_t add_named(af_cpset *to, const char *text, uint64_t n, bool wide)
{
    const char kind = (char)(text[0] | 0x20);
    if (kind != 'p') {
        add_kind(to, kind, wide);
        return 1;
    }
    if (n > 1 && text[1] != '{') /* \pL */
        return add_property(to, text + 1, 1, wide) ? 2 : 0;
    const char *close = memchr(text, '}', n);
    return close && add_property(to, text + 2, (uint64_t)(close - text) - 2, wide)
               ? (uint64_t)(close + 1 - text)
               : 0;
}

uint64_t af_class_add(af_cpset *to, const char *text, uint64_t n, bool wide, uint64_t *work)
{
    const bool negated = text[0] < 'a';
    const char kind = (char)(text[0] | 0x20);
    af_cpset s = {0};
    const uint64_t used = add_named(&s, text, n, wide != negated);
    if (negated)
        af_cpset_negate(&s);
    af_cpset_tidy(&s); /* letters in turn of both cases are many ranges */
    for (uint32_t i = 0; i < s.count; i++)
        af_cpset_add(to, s.item[i].lo, s.item[i].hi);
    *work += (uint64_t)s.count * WORK_PER_RANGE;
    if (kind == 'p' || (kind == 'd' && wide != negated))
        *work += (uint64_t)af_gc_runs_count;
    to->bad |= s.bad;
    af_cpset_clear(&s);
    return used;
}
