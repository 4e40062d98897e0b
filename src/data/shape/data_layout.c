/* data_layout.c - folders that say themselves which files belong to a split: what `save_to_disk`
 * and the caches of Hugging Face's datasets leave, and repositories of the hub with a card. */
#include "data/shape/data_layout.h"

#include "base/file.h"
#include "format/text/json_text.h"

#include <ctype.h>
#include <stdarg.h>
#include <strings.h>

enum { DEPTH_MAX = 8, FILES_MAX = 1 << 20, CARD_MAX = 16 << 20 };

typedef struct layout {
    const af_data_source *s;
    const char *run_path, *folder;
    af_file_list *out;
    af_error *err;
    bool patterns; /* out gets the patterns of the card, not the files they match */
} layout;

void af_file_list_clear(af_file_list *l)
{
    af_names_free(l->path, l->count);
    *l = (af_file_list){0};
}

af_status af_file_list_add(af_file_list *l, char *path, af_error *err)
{
    char **more = path ? af_realloc(l->path, (uint64_t)l->count + 1, sizeof *more) : NULL;
    if (!more) {
        free(path);
        return af_fail_nomem(err, "the files of a dataset", 0);
    }
    l->path = more;
    l->path[l->count++] = path;
    return AF_OK;
}

AF_PRINTF(2, 3) static af_status refuse(const layout *y, const char *fmt, ...)
{
    char at[300], why[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    af_data_source_loc(at, y->run_path, y->s->split ? y->s->split_line : y->s->line);
    return af_fail(y->err, AF_EUSAGE, "%s: %s: %s", at, y->folder, why);
}

static bool has_file(const char *folder, const char *name)
{
    char *path = af_path_join(folder, name);
    const bool there = path && af_file_exists(path);
    free(path);
    return there;
}

static af_status read_json(json_t **out, const char *folder, const char *name, af_error *err)
{
    char *path = af_path_join(folder, name);
    const af_status st = path ? af_json_read_file(out, path, err) : af_fail_nomem(err, folder, 0);
    free(path);
    return st;
}

/* "a, b, c" of what there is to choose from. */
static void add_name(char *list, size_t size, const char *name)
{
    const size_t used = strlen(list);
    snprintf(list + used, size - used, "%s%.60s", used ? ", " : "", name);
}

/* --- save_to_disk --- */

/* state.json names the files in their order. */
static af_status saved_files(const layout *y, const char *folder)
{
    af_status st = AF_OK;
    json_t *state = NULL;
    AF_TRY(read_json(&state, folder, "state.json", y->err));
    const json_t *files = json_object_get(state, "_data_files");
    for (size_t i = 0; i < json_array_size(files); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(files, i), "filename"));
        if (!name || !af_path_is_inner(name)) {
            st = refuse(y, "state.json names a file that is not in its folder");
            goto done;
        }
        AF_TRY(af_file_list_add(y->out, af_path_join(folder, name), y->err));
    }
    if (y->out->count == 0)
        st = refuse(y, "state.json names no files");
done:
    json_decref(state);
    return st;
}

static af_status saved_one(const layout *y)
{
    json_t *state = NULL;
    af_status st = read_json(&state, y->folder, "state.json", y->err);
    const char *split = json_string_value(json_object_get(state, "_split"));
    if (!split)
        split = "train";
    if (st == AF_OK && y->s->split && strcmp(y->s->split, split) != 0)
        st = refuse(y, "it is the split %s, not %s", split, y->s->split);
    json_decref(state);
    return st == AF_OK ? saved_files(y, y->folder) : st;
}

static af_status saved_dict(const layout *y)
{
    af_status st = AF_OK;
    json_t *dict = NULL;
    char *folder = NULL, list[300] = "";
    const char *split = NULL, *first = NULL;
    AF_TRY(read_json(&dict, y->folder, "dataset_dict.json", y->err));
    const json_t *splits = json_object_get(dict, "splits");
    const char *want = y->s->split ? y->s->split : "train";
    for (size_t i = 0; i < json_array_size(splits); i++) {
        const char *name = json_string_value(json_array_get(splits, i));
        if (!name || !af_path_is_inner(name))
            continue;
        add_name(list, sizeof list, name);
        first = first ? first : name;
        if (strcmp(name, want) == 0)
            split = name;
    }
    if (!split && !y->s->split && json_array_size(splits) == 1)
        split = first;
    if (!split) {
        st = refuse(y, "it has no split %s (%s)", want, list);
        goto done;
    }
    folder = af_path_join(y->folder, split);
    if (!folder) {
        st = af_fail_nomem(y->err, y->folder, 0);
        goto done;
    }
    AF_TRY(saved_files(y, folder));
done:
    free(folder);
    json_decref(dict);
    return st;
}

/* --- all files below a folder --- */

static af_status walk(af_file_list *out, const char *folder, int depth, af_error *err)
{
    char **names = NULL;
    int n = 0;
    af_status st = af_dir_list(&names, &n, folder, err);
    for (int i = 0; i < n && st == AF_OK; i++) {
        if (names[i][0] == '.')
            continue;
        char *path = af_path_join(folder, names[i]);
        if (!path) {
            st = af_fail_nomem(err, folder, 0);
        } else if (af_dir_exists(path)) {
            st = depth < DEPTH_MAX ? walk(out, path, depth + 1, err) : AF_OK;
            free(path);
        } else if (out->count >= FILES_MAX) {
            st = af_fail(err, AF_EUSAGE, "%s: more than %d files", folder, FILES_MAX);
            free(path);
        } else {
            st = af_file_list_add(out, path, err);
        }
    }
    af_names_free(names, n);
    return st;
}

/* "*" and "?" stay inside a name, "**" does not; "[abc]" is one of these. */
static bool matches(const char *p, const char *s)
{
    if (p[0] == '*' && p[1] == '*') {
        p += 2;
        if (*p == '/' && matches(p + 1, s))
            return true;
        for (;; s++) {
            if (matches(p, s))
                return true;
            if (!*s)
                return false;
        }
    }
    if (*p == '*') {
        for (;; s++) {
            if (matches(p + 1, s))
                return true;
            if (!*s || *s == '/')
                return false;
        }
    }
    if (!*p || !*s)
        return !*p && !*s;
    const char *close = *p == '[' ? strchr(p + 1, ']') : NULL;
    if (close) {
        bool in = false;
        for (const char *c = p + 1; c < close; c++) {
            const bool range = c[1] == '-' && c + 2 < close;
            in |= *s >= *c && *s <= (range ? c[2] : *c);
            c += range ? 2 : 0;
        }
        return in && matches(close + 1, s + 1);
    }
    return (*p == '?' ? *s != '/' : *p == *s) && matches(p + 1, s + 1);
}

/* Shell patterns over paths: "*" and "?" do not match "/", "**" does. */
static bool glob_matches(const char *pattern, const char *path)
{
    int stars = 0;
    for (const char *c = pattern; *c; c++)
        stars += *c == '*';
    return stars <= 8 && matches(pattern, path); /* the time doubles with each */
}

/* Is `word` in the name, with neither a letter before nor after it? */
static bool has_word(const char *name, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = name; *at; at++)
        if (strncasecmp(at, word, n) == 0 && (at == name || !isalpha((unsigned char)at[-1])) &&
            !isalpha((unsigned char)at[n]))
            return true;
    return false;
}

bool af_split_mentions(const char *name, const char *split)
{
    static const char *const words[][5] = {{"train", "training"},
                                           {"validation", "valid", "dev", "val"},
                                           {"test", "testing", "eval", "evaluation"}};
    if (has_word(name, split))
        return true;
    for (size_t i = 0; i < AF_LEN(words); i++)
        for (int k = 1; strcmp(words[i][0], split) == 0 && words[i][k]; k++)
            if (has_word(name, words[i][k]))
                return true;
    return false;
}

static bool is_cached(const char *path)
{
    const char *name = af_path_name(path), *end = strrchr(name, '.');
    return end && strcmp(end, ".arrow") == 0 && strncmp(name, "cache-", 6) != 0 &&
           strncmp(name, "tmp", 3) != 0;
}

/* "set-train-00000-of-00002.arrow", "set-train.arrow": is it of this split? */
static bool cached_split(const char *path, const char *split)
{
    const char *name = af_path_name(path);
    const size_t n = strlen(split);
    for (const char *at = strstr(name, split); at; at = strstr(at + 1, split))
        if (at > name && at[-1] == '-' && (at[n] == '-' || at[n] == '.'))
            return true;
    return false;
}

static bool in_folder(const char *path, const char *folder, size_t n)
{
    return strncmp(path, folder, n) == 0 && path[n] == '/' && !strchr(path + n + 1, '/');
}

/* Is one of the folders between `top` and the file called so? */
static bool below(const char *path, const char *top, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = path + strlen(top); (at = strchr(at, '/')); at++)
        if (strncmp(at + 1, name, n) == 0 && at[1 + n] == '/')
            return true;
    return false;
}

/* The one folder below that has a dataset_info.json next to Arrow files; *several: more of them. */
static const char *cached_folder(const layout *y, const af_file_list *all, bool *several)
{
    const char *found = NULL;
    for (int i = 0; i < all->count; i++) {
        const char *info = all->path[i];
        const size_t n = (size_t)(af_path_name(info) - info) - 1;
        bool arrow = false;
        if (strcmp(info + n + 1, "dataset_info.json") != 0)
            continue;
        for (int k = 0; k < all->count && !arrow; k++)
            arrow = in_folder(all->path[k], info, n) && is_cached(all->path[k]);
        if (!arrow || (y->s->name && !below(info, y->folder, y->s->name)))
            continue;
        *several |= found != NULL;
        found = info;
    }
    return found;
}

static af_status cache_files(const layout *y, bool *found)
{
    af_file_list all = {0};
    af_status st = AF_OK;
    bool several = false;
    const char *split = y->s->split ? y->s->split : "train";
    AF_TRY(walk(&all, y->folder, 0, y->err));
    const char *info = cached_folder(y, &all, &several);
    *found = info != NULL;
    if (several)
        st = refuse(y, "it holds several datasets; give the folder of one of them, or its 'name'");
    if (several || !info)
        goto done;
    const size_t n = (size_t)(af_path_name(info) - info) - 1;
    for (int i = 0; i < all.count; i++)
        if (in_folder(all.path[i], info, n) && is_cached(all.path[i]) &&
            cached_split(all.path[i], split))
            AF_TRY(af_file_list_add(y->out, af_strdup(all.path[i]), y->err));
    if (y->out->count == 0)
        st = refuse(y, "it has no files of split %s", split);
done:
    af_file_list_clear(&all);
    return st;
}

/* --- the card of a repository --- */

/* The lines between two of "---" at the beginning of README.md; NULL when there are none. */
static char *front_matter(const char *folder, af_error *err, af_status *st)
{
    char *path = af_path_join(folder, "README.md"), *text = NULL;
    uint64_t n = 0;
    *st = path ? AF_OK : af_fail_nomem(err, folder, 0);
    if (path && af_file_exists(path))
        *st = af_file_read(&text, &n, path, CARD_MAX, err);
    free(path);
    char *end = text && strncmp(text, "---", 3) == 0 ? strstr(text + 3, "\n---") : NULL;
    if (*st != AF_OK || !end) {
        free(text);
        return NULL;
    }
    end[1] = 0;
    text[0] = text[1] = text[2] = ' ';
    return text;
}

static const char *text_of(const af_yaml *map, const char *key)
{
    const af_yaml *v = map && map->kind == AF_YAML_MAP ? af_yaml_get(map, key) : NULL;
    return v && v->kind == AF_YAML_SCALAR ? v->text : NULL;
}

static bool is_default(const af_yaml *config)
{
    const af_yaml *v = af_yaml_get(config, "default");
    bool yes = false;
    return v && af_yaml_bool(v, &yes) && yes;
}

static af_status choose_config(const layout *y, const af_yaml *configs, const af_yaml **out)
{
    char list[300] = "";
    const af_yaml *usual = NULL, *marked = NULL, *named = NULL;
    for (int i = 0; i < configs->count; i++) {
        const char *name = text_of(configs->item[i], "config_name");
        if (!name)
            name = "default";
        add_name(list, sizeof list, name);
        if (y->s->name && strcmp(name, y->s->name) == 0)
            named = configs->item[i];
        if (strcmp(name, "default") == 0)
            usual = configs->item[i];
        if (configs->item[i]->kind == AF_YAML_MAP && is_default(configs->item[i]))
            marked = configs->item[i];
    }
    *out = y->s->name ? named : configs->count == 1 ? configs->item[0] : marked ? marked : usual;
    if (*out)
        return AF_OK;
    return y->s->name ? refuse(y, "the card has no config '%s' (%s)", y->s->name, list)
                      : refuse(y, "the card has several configs (%s); 'name' chooses one", list);
}

static af_status add_matches(const layout *y, const af_file_list *all, const char *pattern)
{
    const size_t n = strlen(y->folder) + (y->folder[strlen(y->folder) - 1] != '/');
    af_status st = AF_OK;
    pattern += strncmp(pattern, "./", 2) == 0 ? 2 : 0;
    if (y->patterns)
        return af_file_list_add(y->out, af_strdup(pattern), y->err);
    for (int i = 0; i < all->count; i++)
        if (glob_matches(pattern, all->path[i] + n))
            AF_TRY(af_file_list_add(y->out, af_strdup(all->path[i]), y->err));
done:
    return st;
}

/* A pattern or a list of them. */
static af_status add_patterns(const layout *y, const af_file_list *all, const af_yaml *v)
{
    af_status st = AF_OK;
    if (v && v->kind == AF_YAML_SCALAR)
        return add_matches(y, all, v->text);
    for (int i = 0; v && v->kind == AF_YAML_LIST && i < v->count; i++)
        if (v->item[i]->kind == AF_YAML_SCALAR)
            AF_TRY(add_matches(y, all, v->item[i]->text));
done:
    return st;
}

static bool has_splits(const af_yaml *files)
{
    return files->kind == AF_YAML_MAP ||
           (files->kind == AF_YAML_LIST && files->count > 0 && files->item[0]->kind == AF_YAML_MAP);
}

/* data_files of a config: patterns (all train), a list of {split, path}, or a map of them. */
static af_status config_files(const layout *y, const af_file_list *all, const af_yaml *files)
{
    const char *want = y->s->split ? y->s->split : "train";
    char list[300] = "";
    af_status st = AF_OK;
    bool known = false;
    if (!has_splits(files)) {
        known = strcmp(want, "train") == 0;
        add_name(list, sizeof list, "train");
        if (known)
            AF_TRY(add_patterns(y, all, files));
    }
    for (int i = 0; has_splits(files) && i < files->count; i++) {
        const af_yaml *e = files->item[i];
        const bool map = files->kind == AF_YAML_MAP;
        const char *split = map ? files->key[i] : text_of(e, "split");
        if (!split)
            split = "train";
        add_name(list, sizeof list, split);
        if (strcmp(split, want) != 0 &&
            !(i == 0 && !y->s->split && files->count == 1)) /* the only one */
            continue;
        known = true;
        AF_TRY(add_patterns(y, all, map ? e : af_yaml_get(e, "path")));
    }
    if (!known)
        st = refuse(y, "the card has no split %s (%s)", want, list);
    else if (y->out->count == 0)
        st = refuse(y, "no file matches what the card says of split %s", want);
done:
    return st;
}

static af_status card_files(const layout *y, bool *found, char **data_dir)
{
    af_arena mem = {0};
    af_file_list all = {0};
    af_yaml *card = NULL;
    const af_yaml *config = NULL;
    af_status st = AF_OK;
    char *text = front_matter(y->folder, y->err, &st);
    if (!text || st != AF_OK)
        return st;
    AF_TRY(af_yaml_parse(&card, &mem, text, strlen(text), "README.md", y->err));
    const af_yaml *configs = card->kind == AF_YAML_MAP ? af_yaml_get(card, "configs") : NULL;
    if (!configs || configs->kind != AF_YAML_LIST || configs->count == 0)
        goto done;
    AF_TRY(choose_config(y, configs, &config));
    const af_yaml *files = config->kind == AF_YAML_MAP ? af_yaml_get(config, "data_files") : NULL;
    const char *dir = text_of(config, "data_dir");
    if (files) {
        *found = true;
        if (!y->patterns)
            AF_TRY(walk(&all, y->folder, 0, y->err));
        AF_TRY(config_files(y, &all, files));
    } else if (dir && af_path_is_inner(dir)) {
        *data_dir = af_path_join(y->folder, dir);
        if (!*data_dir)
            st = af_fail_nomem(y->err, y->folder, 0);
    }
done:
    free(text);
    af_file_list_clear(&all);
    af_arena_clear(&mem);
    return st;
}

af_status af_folder_matches(af_file_list *out, const char *folder, const char *pattern,
                            af_error *err)
{
    const layout y = {.folder = folder, .out = out, .err = err};
    af_file_list all = {0};
    af_status st = walk(&all, folder, 0, err);
    if (st == AF_OK)
        st = add_matches(&y, &all, pattern);
    af_file_list_clear(&all);
    return st;
}

af_status af_data_layout_files(const af_data_source *s, const char *folder, const char *run_path,
                               af_file_list *out, bool *found, char **data_dir, af_error *err)
{
    const layout y = {s, run_path, folder, out, err, false};
    *found = true;
    *data_dir = NULL;
    if (has_file(folder, "dataset_dict.json"))
        return saved_dict(&y);
    if (has_file(folder, "state.json"))
        return saved_one(&y);
    *found = false;
    const af_status st = card_files(&y, found, data_dir);
    if (st != AF_OK || *found || *data_dir)
        return st;
    return cache_files(&y, found);
}

af_status af_data_layout_wants(const af_data_source *s, const char *folder, const char *run_path,
                               af_file_list *patterns, af_error *err)
{
    const layout y = {s, run_path, folder, patterns, err, true};
    bool found = false;
    char *data_dir = NULL, *inside = NULL;
    af_status st = card_files(&y, &found, &data_dir);
    const bool named = s->name && strcmp(s->name, "default") != 0;
    const char *sub = data_dir ? data_dir + strlen(folder) : named && !found ? s->name : NULL;
    if (st == AF_OK && sub) {
        inside = af_path_join(sub + strspn(sub, "/"), "*");
        st = af_file_list_add(patterns, inside, err);
    }
    free(data_dir);
    return st;
}
