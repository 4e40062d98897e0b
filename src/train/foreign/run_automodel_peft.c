/* run_automodel_peft.c - the adapter of NeMo AutoModel's run files. Its patterns have wildcards for
 * the whole path of a module, "*.layers.0.*" or ".*fc.*"; a name without them is the last part of
 * the path. */
#include "base/buf.h"
#include "train/foreign/run_automodel.h"
#include "train/run/run_config.h"

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

static bool on(const af_yaml *map, const char *key)
{
    const af_yaml *n = af_nested_given(map, key);
    return n && af_translate_says(n, "true");
}

/* Whether a pattern matches a name without dots: back to the last wildcard where it does not. */
static bool glob(const char *pattern, const char *name)
{
    const char *star = NULL, *from = NULL;
    while (*name) {
        pattern += pattern[0] == '.' && pattern[1] == '*'; /* both are wildcards */
        if (*pattern == '*') {
            star = ++pattern;
            from = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star;
            name = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*' || (pattern[0] == '.' && pattern[1] == '*'))
        pattern++;
    return !*pattern;
}

/* The i-th of a list, or the one name in its place; NULL after the last. */
static const af_yaml *pattern_at(const af_yaml *n, int i)
{
    const af_yaml *one = !n                        ? NULL
                         : n->kind == AF_YAML_LIST ? i < n->count ? n->item[i] : NULL
                         : i == 0                  ? n
                                                   : NULL;
    return one && one->kind == AF_YAML_SCALAR && *one->text ? one : NULL;
}

static bool any_matches(const af_yaml *n, const char *text)
{
    bool any = false;
    for (int i = 0; pattern_at(n, i); i++)
        any |= glob(pattern_at(n, i)->text, text);
    return any;
}

/* Everything, whatever its name. */
static bool has_star(const af_yaml *n)
{
    bool any = false;
    for (int i = 0; pattern_at(n, i); i++)
        any |= is(pattern_at(n, i)->text, "*");
    return any;
}

/* Whether ".*" after the n characters of `text`, which begin the pattern or follow a wildcard,
 * means what is below a module: after whole parts of a path or a number, not after a piece of a
 * name. */
static bool ends_part(const char *text, size_t n, bool first)
{
    size_t digits = 0;
    while (digits < n && strchr("0123456789", text[n - 1 - digits]))
        digits++;
    return n > 0 &&
           (first || *text == '.' || (digits && digits < n && text[n - 1 - digits] == '.'));
}

/* A pattern as a regular expression for a whole path. */
static void add_regex(af_buf *b, const char *pattern)
{
    const char *from = pattern; /* after the last wildcard */
    bool first = true;
    if (!strchr(pattern, '*'))
        af_buf_str(b, "(.*\\.)?");
    for (; *pattern; pattern++) {
        if (pattern[0] == '.' && pattern[1] == '*') {
            af_buf_str(b, ends_part(from, (size_t)(pattern - from), first) ? "(\\..*)?" : ".*");
            pattern++;
        } else if (*pattern == '*') {
            af_buf_str(b, ".*");
        }
        if (*pattern == '*') {
            from = pattern + 1;
            first = false;
        } else if (strchr(".^$+?()[]{}|\\", *pattern))
            af_buf_printf(b, "\\%c", *pattern);
        else
            af_buf_char(b, *pattern);
    }
}

/* Patterns as one expression, without those that match `skip`. */
static af_status put_patterns(af_translation *t, const char *key, const af_yaml *n,
                              const char *skip)
{
    af_buf b = {0};
    af_status st = AF_OK;
    int used = 0;
    for (int i = 0; pattern_at(n, i); i++) {
        if (skip && glob(pattern_at(n, i)->text, skip))
            continue;
        af_buf_char(&b, used++ ? '|' : '(');
        add_regex(&b, pattern_at(n, i)->text);
    }
    if (used) {
        af_buf_char(&b, ')');
        af_buf_str(&b, "");
        st = b.bad ? af_fail_nomem(t->err, key, b.len) : af_nested_put(t, key, n->line, b.data);
    }
    af_buf_clear(&b);
    return st;
}

/* All linear layers, with the head unless it is excluded. */
static af_status put_all(af_translation *t, const af_yaml *exclude, int line)
{
    af_status st = af_nested_put(t, "lora_target_linear", line, "true");
    if (st == AF_OK && !any_matches(exclude, "lm_head"))
        st = af_nested_put(t, "lora_target_modules", line, "lm_head");
    return st == AF_OK && exclude ? put_patterns(t, "lora_exclude_modules", exclude, "lm_head")
                                  : st;
}

static af_status put_targets(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *target = af_nested_given(n, "target_modules"),
                  *exclude = af_nested_given(n, "exclude_modules");
    const bool all = on(n, "match_all_linear");
    target = pattern_at(target, 0) ? target : NULL;
    exclude = pattern_at(exclude, 0) ? exclude : NULL;
    if ((all && (target || exclude)) || (target && exclude))
        return af_fail(t->err, AF_EUSAGE,
                       "%s:%d: peft has one of target_modules, exclude_modules and "
                       "match_all_linear",
                       t->name, line);
    if (all || exclude || has_star(target))
        return put_all(t, exclude, line);
    if (target)
        return put_patterns(t, "lora_target_modules", target, NULL);
    return af_nested_put(t, "lora_target_modules", line, "(.*_proj)");
}

static af_status put_dropout(af_translation *t, const af_yaml *n)
{
    const af_yaml *drop = af_nested_given(n, "dropout"),
                  *where = af_nested_given(n, "dropout_position");
    if (!drop)
        return AF_OK;
    af_status st = af_translate_put(t, "lora_dropout", drop->line, drop);
    if (st == AF_OK && af_automodel_positive(drop) && !(where && af_translate_says(where, "pre")))
        st = af_run_instead_add(t->run, "dropout_position", drop->line,
                                "dropout is before the adapter's matrices, not after them", 0,
                                t->err);
    return st;
}

af_status af_automodel_put_peft(af_translation *t, const af_yaml *n, int line)
{
    static const char *const keys[][2] = {
        {"dim", "lora_r"}, {"alpha", "lora_alpha"}, {"use_dora", "peft_use_dora"}};
    const af_yaml *start = af_nested_given(n, "lora_A_init");
    const char *name = af_automodel_target(n);
    af_status st = AF_OK;
    if (*name && !is(name, "PeftConfig"))
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: peft '%.80s' of NeMo AutoModel is not supported: PeftConfig is",
                       t->name, n->line, name);
    AF_TRY(af_nested_check(t, "peft", n,
                           " _target_ target_modules exclude_modules match_all_linear dim alpha "
                           "use_dora dropout dropout_position lora_A_init lora_dtype "
                           "use_memory_efficient_lora use_triton "));
    AF_TRY(af_nested_put(t, "adapter", line, "lora"));
    AF_TRY(put_targets(t, n, line));
    AF_TRY(put_dropout(t, n));
    AF_TRY(af_nested_put(t, "peft_init_lora_weights", line,
                         !start || af_translate_says(start, "xavier") ? "xavier" : "true"));
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        const af_yaml *v = af_nested_given(n, keys[i][0]);
        if (v)
            AF_TRY(af_translate_put(t, keys[i][1], v->line, v));
    }
done:
    return st;
}
