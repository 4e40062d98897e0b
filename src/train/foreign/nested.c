/* nested.c - see nested.h. */
#include "train/foreign/nested.h"

#include "base/buf.h"

/* The value at "optimizer.lr" of the file; NULL when it is not a scalar. */
static const af_yaml *at_path(const af_yaml *root, const char *path, size_t len)
{
    while (root && root->kind == AF_YAML_MAP && len) {
        const size_t n = strcspn(path, ".}");
        const af_yaml *next = NULL;
        for (int i = 0; i < root->count && !next; i++)
            if (strlen(root->key[i]) == n && strncmp(root->key[i], path, n) == 0)
                next = root->item[i];
        root = next;
        path += n + (n < len);
        len -= AF_MIN(len, n + 1);
    }
    return root && root->kind == AF_YAML_SCALAR ? root : NULL;
}

static af_status fill(const af_translation *t, af_buf *b, const af_yaml *n, int depth)
{
    enum { DEPTH_MAX = 8 };
    af_status st = AF_OK;
    for (const char *at = n->text; *at && st == AF_OK && !b->bad;) {
        const char *place = strstr(at, "${"), *end = place ? strchr(place, '}') : NULL;
        af_buf_add(b, at, end ? (uint64_t)(place - at) : strlen(at));
        if (!end)
            break;
        const af_yaml *v = at_path(t->root, place + 2, (size_t)(end - place - 2));
        if (!v || depth == DEPTH_MAX)
            return af_fail(t->err, AF_EUSAGE, "%s:%d: '%.*s' %s", t->name, n->line,
                           (int)AF_MIN(end - place + 1, 60), place,
                           v ? "refers to itself" : "names no value of the file");
        st = fill(t, b, v, depth + 1);
        at = end + 1;
    }
    return st;
}

af_status af_nested_text(const char **out, const af_translation *t, const af_yaml *n)
{
    af_buf b = {.limit = 1 << 16};
    if (n->kind != AF_YAML_SCALAR || !strstr(n->text, "${")) {
        *out = n->kind == AF_YAML_SCALAR ? n->text : "";
        return AF_OK;
    }
    af_status st = fill(t, &b, n, 0);
    *out = st == AF_OK && !b.bad ? af_arena_strdup(t->mem, b.data ? b.data : "") : NULL;
    if (st == AF_OK && !*out)
        st = af_fail(t->err, AF_EUSAGE, "%s:%d: the value is too long", t->name, n->line);
    af_buf_clear(&b);
    return st;
}

const af_yaml *af_nested_given(const af_yaml *map, const char *key)
{
    const af_yaml *n = map ? af_yaml_get(map, key) : NULL;
    return n && !af_yaml_is_null(n) ? n : NULL;
}

af_status af_nested_put(af_translation *t, const char *key, int line, const char *text)
{
    return af_translate_put(t, key, line, af_translate_scalar(t, line, text));
}

af_status af_nested_check(const af_translation *t, const char *section, const af_yaml *map,
                          const char *known)
{
    if (map->kind != AF_YAML_MAP)
        return af_fail(t->err, AF_EUSAGE, "%s:%d: %s must be a map", t->name, map->line, section);
    for (int i = 0; i < map->count; i++) {
        const char *found = strstr(known, map->key[i]);
        const size_t n = strlen(map->key[i]);
        while (found && !(found[-1] == ' ' && found[n] == ' '))
            found = strstr(found + 1, map->key[i]);
        if (!found && !af_yaml_is_null(map->item[i]) && !af_translate_says(map->item[i], "false"))
            return af_fail(t->err, AF_EUNSUPPORTED, "%s:%d: '%.60s' of %s is not supported",
                           t->name, map->key_line[i], map->key[i], section);
    }
    return AF_OK;
}

af_yaml *af_nested_map(const af_translation *t, int line)
{
    af_yaml *map = af_arena_take(t->mem, sizeof *map);
    const char **key = af_arena_take(t->mem, AF_NESTED_KEYS * sizeof *key);
    int *key_line = af_arena_take(t->mem, AF_NESTED_KEYS * sizeof *key_line);
    af_yaml **item = af_arena_take(t->mem, AF_NESTED_KEYS * sizeof *item);
    if (!map || !key || !key_line || !item)
        return NULL;
    *map = (af_yaml){
        .kind = AF_YAML_MAP, .line = line, .key = key, .key_line = key_line, .item = item};
    return map;
}

af_status af_nested_set(const af_translation *t, af_yaml *map, const char *key, const af_yaml *n)
{
    assert(map->count < AF_NESTED_KEYS);
    if (!n)
        return af_fail_nomem(t->err, key, sizeof *n);
    map->key[map->count] = key;
    map->key_line[map->count] = n->line ? n->line : map->line;
    map->item[map->count++] = (af_yaml *)n;
    return AF_OK;
}

af_status af_nested_set_text(const af_translation *t, af_yaml *map, const char *key,
                             const char *text)
{
    af_yaml *n = af_translate_scalar(t, map->line, text);
    if (n)
        n->quoted = strcmp(key, "train_on_inputs") != 0 && strcmp(key, "drop_system_message") != 0;
    return af_nested_set(t, map, key, n);
}
