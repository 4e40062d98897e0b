/* run_optim_args.c - `optim_args` of transformers ("a=1,b=2") and Axolotl (also a map) as one text;
 * a setting that is a key here becomes that key. */
#include "base/buf.h"
#include "train/run/run_translation.h"

/* The key that this setting is here, or NULL. With Axolotl's optimi_adamw eps is AdamW's. */
static const char *key_of(const af_translation *t, const char *name)
{
    const af_yaml *kind = af_yaml_get(t->root, "optimizer");
    if (strcmp(name, "bf16_stochastic_round") == 0)
        return "bf16_stochastic_round";
    return strcmp(name, "eps") == 0 && kind && af_translate_says(kind, "optimi_adamw")
               ? "adam_epsilon"
               : NULL;
}

static af_status take_map(af_translation *t, const af_yaml *n, af_buf *rest)
{
    char loc[300];
    af_status st = AF_OK;
    for (int i = 0; i < n->count && st == AF_OK; i++) {
        const af_yaml *v = n->item[i];
        if (v->kind != AF_YAML_SCALAR)
            return af_fail(t->err, AF_EUSAGE, "%s: '%s' of optim_args is not one value",
                           af_translate_loc(t, n->key_line[i], loc), n->key[i]);
        if (strchr(n->key[i], ':')) /* {a:1} is a key without a value */
            return af_fail(t->err, AF_EUSAGE,
                           "%s: '%s' of optim_args has no value: YAML wants a blank after the ':'",
                           af_translate_loc(t, n->key_line[i], loc), n->key[i]);
        const char *key = key_of(t, n->key[i]);
        if (key)
            st = af_translate_put(t, key, n->key_line[i], v);
        else if (!af_yaml_is_null(v))
            af_buf_printf(rest, "%s%s=%s", rest->len ? "," : "", n->key[i], v->text);
    }
    return st;
}

static af_status take_text(af_translation *t, const char *text, int line, af_buf *rest)
{
    af_status st = AF_OK;
    for (const char *at = text + strspn(text, ", "); *at && st == AF_OK; at += strspn(at, ", ")) {
        const size_t n = strcspn(at, ","), name = strcspn(at, "=");
        char part[120], loc[300];
        if (name >= n || n >= sizeof part)
            return af_fail(t->err, AF_EUSAGE, "%s: optim_args has '%.*s', which is no 'a=1'",
                           af_translate_loc(t, line, loc), (int)AF_MIN(n, (size_t)40), at);
        snprintf(part, sizeof part, "%.*s", (int)n, at);
        part[name] = 0;
        const char *key = key_of(t, part), *value = part + name + 1;
        if (key)
            st = af_translate_put(t, key, line, af_translate_scalar(t, line, value));
        else
            af_buf_printf(rest, "%s%s=%s", rest->len ? "," : "", part, value);
        at += n;
    }
    return st;
}

bool af_optim_args_translate(af_translation *t, int i, af_status *st)
{
    const af_yaml *n = t->root->item[i];
    const int line = t->root->key_line[i];
    af_buf rest = {0};
    if (strcmp(t->root->key[i], "optim_args") != 0 || n->kind == AF_YAML_LIST)
        return false;
    *st = n->kind == AF_YAML_MAP ? take_map(t, n, &rest) : take_text(t, n->text, line, &rest);
    if (*st == AF_OK && rest.bad)
        *st = af_fail_nomem(t->err, "optim_args", rest.len);
    if (*st == AF_OK && rest.len)
        *st = af_translate_put(t, "optim_args", line, af_translate_scalar(t, line, rest.data));
    af_buf_clear(&rest);
    return true;
}
