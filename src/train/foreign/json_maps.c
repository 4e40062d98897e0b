/* json_maps.c - values that a file gives as text. Maps, '{"min_lr": 1e-6}': the parsers of command
 * lines of transformers, TRL, LLaMA-Factory and ms-swift take them so, from files, too. And
 * numbers, "2e-4": the trainers' schemas turn them into what the key wants. */
#include "train/run/run_keys.h"
#include "train/run/run_translation.h"

/* Keys whose values are maps, by their last words, or as a whole. */
static bool wants_map(const char *key)
{
    static const char *const ends[] = {"_kwargs", "_config"};
    static const char *const names[] = {"rope_scaling", "optim_args", "columns", "max_memory"};
    const size_t n = strlen(key);
    bool is = false;
    for (size_t i = 0; i < AF_LEN(ends); i++)
        is |= n > strlen(ends[i]) && strcmp(key + n - strlen(ends[i]), ends[i]) == 0;
    for (size_t i = 0; i < AF_LEN(names); i++)
        is |= strcmp(key, names[i]) == 0;
    return is;
}

static void set_lines(af_yaml *n, int line)
{
    n->line = line;
    for (int i = 0; i < n->count; i++) {
        if (n->kind == AF_YAML_MAP)
            n->key_line[i] = line;
        set_lines(n->item[i], line);
    }
}

/* The map that a text is, or the text itself. */
static af_status read_map(af_yaml **out, const af_translation *t, const char *key, af_yaml *n)
{
    const char *text = n->kind == AF_YAML_SCALAR && n->text ? n->text : "";
    text += strspn(text, " \n");
    if (*text != '{' || !wants_map(key))
        return AF_OK;
    char at[300];
    af_error why = {0};
    af_yaml *map = NULL;
    const af_status st = af_yaml_parse(&map, t->mem, text, strlen(text), t->name, &why);
    if (st == AF_ENOMEM)
        return af_fail_nomem(t->err, key, strlen(text));
    if (st != AF_OK || map->kind != AF_YAML_MAP)
        return af_fail(t->err, AF_EUSAGE, "%s: the text of '%s' is not a map of JSON: %.80s",
                       af_translate_loc(t, n->line, at), key, text);
    set_lines(map, n->line);
    *out = map;
    return AF_OK;
}

/* Whether a text in quotes can only be a number, true or false. */
static bool is_value(const char *key, const af_yaml *n)
{
    const af_key *k = af_key_find(key);
    const af_yaml plain = {.kind = AF_YAML_SCALAR, .text = n->text};
    bool b;
    double v;
    if (n->kind != AF_YAML_SCALAR || !n->quoted ||
        (k && k->kind != AF_KEY_I64 && k->kind != AF_KEY_F64 && k->kind != AF_KEY_BOOL &&
         k->kind != AF_KEY_TRI))
        return false;
    return af_yaml_bool(&plain, &b) || af_yaml_f64(&plain, &v);
}

static af_status read_value(af_yaml **out, const af_translation *t, const char *key)
{
    if (!is_value(key, *out))
        return AF_OK;
    *out = af_translate_scalar(t, (*out)->line, (*out)->text);
    return *out ? AF_OK : af_fail_nomem(t->err, key, sizeof **out);
}

af_status af_json_maps_open(const af_yaml **root, const af_translation *t)
{
    const af_yaml *from = *root;
    af_yaml *copy = af_arena_take(t->mem, sizeof *copy);
    af_yaml **item = af_arena_take(t->mem, (uint64_t)AF_MAX(from->count, 1) * sizeof *item);
    af_status st = copy && item ? AF_OK : af_fail_nomem(t->err, t->name, sizeof *copy);
    for (int i = 0; i < from->count && st == AF_OK; i++) {
        item[i] = from->item[i];
        st = read_map(&item[i], t, from->key[i], item[i]);
        if (st == AF_OK && from->key_line[i] > 0) /* not on the command line */
            st = read_value(&item[i], t, from->key[i]);
    }
    if (st == AF_OK) {
        *copy = *from;
        copy->item = item;
        *root = copy;
    }
    return st;
}
