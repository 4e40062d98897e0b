/* weights.c - one lookup for the tensors of a folder or file; see weights.h. */
#include "format/weights/weights.h"

#include "base/word.h"
#include "format/text/json_text.h"
#include "format/weights/part_name.h"
#include "format/weights/torch_file.h"

#include <jansson.h>

typedef struct weights_source {
    char *path;
    af_safetensors *st; /* one of the three */
    af_gguf *gguf;
    af_torch_file *torch;
} weights_source;

struct af_weights {
    weights_source *files;
    int file_count;
    af_stored *list;
    const af_stored **sort; /* by name */
    int count;
    af_arena arena;
};

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const af_stored *const *)a)->name, (*(const af_stored *const *)b)->name);
}

static af_status open_file(af_weights *w, const char *path, bool gguf, af_error *err)
{
    weights_source *f = &w->files[w->file_count++];
    f->path = af_strdup(path);
    if (!f->path)
        return af_fail_nomem(err, "a path", strlen(path));
    if (gguf)
        return af_gguf_open(&f->gguf, path, err);
    if (af_torch_file_named(path))
        return af_torch_file_open(&f->torch, path, err);
    return af_safetensors_open(&f->st, path, err);
}

static int source_count(const weights_source *f)
{
    return f->gguf    ? af_gguf_count(f->gguf)
           : f->torch ? af_torch_file_count(f->torch)
                      : af_safetensors_count(f->st);
}

static const af_stored *source_at(const weights_source *f, int i)
{
    return f->gguf    ? af_gguf_at(f->gguf, i)
           : f->torch ? af_torch_file_at(f->torch, i)
                      : af_safetensors_at(f->st, i);
}

static af_status collect(af_weights *w, af_error *err)
{
    uint64_t n = 0;
    for (int f = 0; f < w->file_count; f++)
        n += (uint64_t)source_count(&w->files[f]);
    if (n > INT32_MAX)
        return af_fail(err, AF_EFORMAT, "%" PRIu64 " tensors are too many", n);
    w->list = af_arena_take(&w->arena, AF_MAX(n, 1) * sizeof *w->list);
    w->sort = af_arena_take(&w->arena, AF_MAX(n, 1) * sizeof *w->sort);
    if (!w->list || !w->sort)
        return af_fail_nomem(err, "the tensor list", n * sizeof *w->list);
    for (int f = 0; f < w->file_count; f++)
        for (int i = 0; i < source_count(&w->files[f]); i++) {
            w->list[w->count] = *source_at(&w->files[f], i);
            w->list[w->count].file += f; /* a GGUF file is alone and numbers its parts */
            w->sort[w->count] = &w->list[w->count];
            w->count++;
        }
    if (w->count)
        qsort(w->sort, (size_t)w->count, sizeof *w->sort, by_name);
    for (int i = 1; i < w->count; i++)
        if (strcmp(w->sort[i - 1]->name, w->sort[i]->name) == 0)
            return af_fail(err, AF_EFORMAT, "tensor '%s' is in both '%s' and '%s'",
                           w->sort[i]->name, w->files[w->sort[i - 1]->file].path,
                           w->files[w->sort[i]->file].path);
    return AF_OK;
}

/* The file names of an index, each once, in order of first use. */
static af_status index_files(const json_t *map, const char *index, const char **names, int *count,
                             af_error *err)
{
    const char *key, *last = NULL;
    json_t *value;
    json_object_foreach((json_t *)map, key, value)
    {
        const char *file = json_string_value(value);
        if (!file || !af_path_is_inner(file))
            return af_fail(err, AF_EFORMAT,
                           "%s: tensor '%.200s' is mapped to '%.200s', which is not a file of "
                           "this folder",
                           index, key, file ? file : "(not a string)");
        if (last && strcmp(last, file) == 0)
            continue;
        last = file;
        int k = 0;
        while (k < *count && strcmp(names[k], file) != 0)
            k++;
        if (k < *count)
            continue;
        if (*count == AF_WEIGHTS_FILES_MAX)
            return af_fail(err, AF_EFORMAT, "%s: more than %d files", index, AF_WEIGHTS_FILES_MAX);
        names[(*count)++] = file;
    }
    return AF_OK;
}

/* Every tensor the index names must be in the file it names. */
static af_status check_index(const af_weights *w, const json_t *map, const char *index,
                             af_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)map, key, value)
    {
        const af_stored *t = af_weights_find(w, key);
        const char *file = json_string_value(value);
        if (!t)
            return af_fail(err, AF_EFORMAT, "%s: tensor '%.200s' is not in '%.200s'", index, key,
                           file);
        if (strcmp(w->files[t->file].path + (af_path_name(index) - index), file) != 0)
            return af_fail(err, AF_EFORMAT,
                           "%s: tensor '%.200s' is not in '%.200s' but in '%.200s'", index, key,
                           file, af_path_name(w->files[t->file].path));
    }
    return AF_OK;
}

static af_status open_names(af_weights *w, const char *index, const char **names, int n,
                            af_error *err)
{
    const int dir = (int)(af_path_name(index) - index);
    w->files = af_calloc((uint64_t)AF_MAX(n, 1), sizeof *w->files);
    if (!w->files)
        return af_fail_nomem(err, "the file list", (uint64_t)n * sizeof *w->files);
    for (int i = 0; i < n; i++) {
        const char *path = af_arena_printf(&w->arena, "%.*s%s", dir, index, names[i]);
        if (!path)
            return af_fail_nomem(err, "a path", strlen(index));
        const af_status st = open_file(w, path, false, err);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}

static af_status open_index(af_weights *w, const char *index, af_error *err)
{
    af_status st = AF_OK;
    char *text = NULL;
    uint64_t size = 0;
    json_t *root = NULL;
    json_error_t je;
    int n = 0;
    const char **names = af_calloc(AF_WEIGHTS_FILES_MAX, sizeof *names);
    if (!names)
        AF_TRY(af_fail_nomem(err, "the file list", AF_WEIGHTS_FILES_MAX * sizeof *names));
    AF_TRY(af_file_read(&text, &size, index, AF_WEIGHTS_INDEX_MAX, err));
    root = af_json_load(text, size, JSON_REJECT_DUPLICATES, &je);
    if (!root)
        AF_TRY(af_fail(err, AF_EFORMAT, "%s:%d: %s", index, je.line, je.text));
    const json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map))
        AF_TRY(af_fail(err, AF_EFORMAT, "%s: weight_map is missing", index));
    AF_TRY(index_files(map, index, names, &n, err));
    AF_TRY(open_names(w, index, names, n, err));
    AF_TRY(collect(w, err));
    AF_TRY(check_index(w, map, index, err));
done:
    json_decref(root);
    free(text);
    free(names);
    return st;
}

static af_status open_one(af_weights *w, const char *path, af_error *err)
{
    w->files = af_calloc(1, sizeof *w->files);
    if (!w->files)
        return af_fail_nomem(err, "the file list", sizeof *w->files);
    const af_status st = open_file(w, path, af_gguf_is_file(path), err);
    return st != AF_OK ? st : collect(w, err);
}

static const char *shard_ext(bool torch) { return torch ? ".bin" : ".safetensors"; }

/* A shard of a folder without an index; NULL when there is none. free(). */
static af_status find_shard(char **out, const char *dir, bool torch, af_error *err)
{
    const char *ext = shard_ext(torch);
    char **names = NULL;
    const char *found = NULL;
    int n = 0;
    af_part_name p;
    af_status st = af_dir_list(&names, &n, dir, err);
    *out = NULL;
    for (int i = 0; i < n && st == AF_OK; i++) {
        if (!af_part_name_parse(&p, names[i], ext) ||
            strncmp(names[i], "consolidated-", 13) == 0 || /* Mistral's own form of the weights */
            (torch && strncmp(names[i], "pytorch_model-", 14) != 0))
            continue;
        if (found && !af_part_name_same(found, names[i], ext))
            st = af_fail(err, AF_EFORMAT,
                         "folder '%s' has shards of two sets, '%s' and '%s', and no "
                         "%s.index.json",
                         dir, found, names[i], torch ? "pytorch_model.bin" : "model.safetensors");
        found = names[i];
    }
    if (st == AF_OK && found && !(*out = af_path_join(dir, found)))
        st = af_fail_nomem(err, "a path", strlen(dir));
    af_names_free(names, n);
    return st;
}

/* All shards of the set that `shard` is of. */
static af_status open_shards(af_weights *w, const char *shard, bool torch, af_error *err)
{
    af_part_name p = {0};
    af_status st = AF_OK;
    if (!af_part_name_parse(&p, shard, shard_ext(torch)) || p.count > AF_WEIGHTS_FILES_MAX)
        return af_fail(err, AF_EFORMAT, "%s: more than %d files", shard, AF_WEIGHTS_FILES_MAX);
    w->files = af_calloc((uint64_t)p.count, sizeof *w->files);
    if (!w->files)
        return af_fail_nomem(err, "the file list", (uint64_t)p.count * sizeof *w->files);
    for (p.no = 0; p.no < p.count && st == AF_OK; p.no++) {
        char *path = NULL;
        st = af_part_name_find(&path, shard, p, shard_ext(torch), err);
        if (st == AF_OK)
            st = open_file(w, path, false, err);
        free(path);
    }
    return st == AF_OK ? collect(w, err) : st;
}

/* model.safetensors, or its index, in a folder. */
static af_status open_named(af_weights *w, const char *dir, const char *name, af_error *err)
{
    const char *path = af_arena_printf(&w->arena, "%s/%s", dir, name);
    const char *index = af_arena_printf(&w->arena, "%s/%s.index.json", dir, name);
    if (!path || !index)
        return af_fail_nomem(err, "a path", strlen(dir));
    if (af_file_exists(path))
        return open_one(w, path, err);
    return af_file_exists(index) ? open_index(w, index, err) : AF_OK;
}

/* In order; the third is mlx-lm's. After some come shards without an index. */
static const struct {
    const char *name;
    bool shards, torch;
} in_folders[] = {{"model.safetensors", true, false},
                  {"adapter_model.safetensors", false, false},
                  {"adapters.safetensors", false, false},
                  {"pytorch_model.bin", true, true},
                  {"adapter_model.bin", false, true}};

/* Weights under a name that nothing looks for are named. */
static af_status fail_no_weights(const char *dir, af_error *err)
{
    char **names = NULL;
    int n = 0, k = 0;
    if (af_dir_list(&names, &n, dir, NULL) != AF_OK)
        n = 0;
    while (k < n && !af_ends_with(names[k], ".safetensors"))
        k++;
    const bool found = k < n;
    const af_status st =
        af_fail(err, AF_EFORMAT,
                "folder '%s' has no weights: neither model.safetensors, nor shards of it, nor "
                "adapter_model.safetensors, nor pytorch_model.bin%s%.60s%s",
                dir, found ? "; if '" : "", found ? names[k] : "",
                found ? "' has them, rename it to model.safetensors" : "");
    af_names_free(names, n);
    return st;
}

static af_status open_folder(af_weights *w, const char *dir, af_error *err)
{
    af_status st = AF_OK;
    for (size_t i = 0; i < AF_LEN(in_folders) && st == AF_OK && !w->files; i++) {
        char *shard = NULL;
        st = open_named(w, dir, in_folders[i].name, err);
        if (!in_folders[i].shards || st != AF_OK || w->files)
            continue;
        st = find_shard(&shard, dir, in_folders[i].torch, err);
        if (st == AF_OK && shard)
            st = open_shards(w, shard, in_folders[i].torch, err);
        free(shard);
    }
    return st == AF_OK && !w->files ? fail_no_weights(dir, err) : st;
}

bool af_weights_in(const char *dir)
{
    bool found = false;
    for (size_t i = 0; i < AF_LEN(in_folders) && !found; i++) {
        char index[64], *shard = NULL;
        snprintf(index, sizeof index, "%s.index.json", in_folders[i].name);
        found = af_file_in(dir, in_folders[i].name) || af_file_in(dir, index);
        if (!found && in_folders[i].shards) /* opening says why a set is not one */
            found = find_shard(&shard, dir, in_folders[i].torch, NULL) != AF_OK || shard;
        free(shard);
    }
    return found;
}

af_status af_weights_open(af_weights **out, const char *path, af_error *err)
{
    af_weights *w = af_calloc(1, sizeof *w);
    if (!w)
        return af_fail_nomem(err, "a weights reader", sizeof *w);
    const af_status st = af_dir_exists(path)                 ? open_folder(w, path, err)
                         : af_ends_with(path, ".index.json") ? open_index(w, path, err)
                                                             : open_one(w, path, err);
    if (st != AF_OK) {
        af_weights_close(w);
        return st;
    }
    *out = w;
    return AF_OK;
}

void af_weights_close(af_weights *w)
{
    if (!w)
        return;
    for (int i = 0; i < w->file_count; i++) {
        af_safetensors_close(w->files[i].st);
        af_gguf_close(w->files[i].gguf);
        af_torch_file_close(w->files[i].torch);
        free(w->files[i].path);
    }
    free(w->files);
    af_arena_clear(&w->arena);
    free(w);
}

int af_weights_count(const af_weights *w) { return w->count; }

const af_stored *af_weights_at(const af_weights *w, int i)
{
    assert(i >= 0 && i < w->count);
    return &w->list[i];
}

const af_stored *af_weights_find(const af_weights *w, const char *name)
{
    const af_stored key = {.name = name}, *p = &key;
    const af_stored **hit =
        w->count ? bsearch(&p, w->sort, (size_t)w->count, sizeof *w->sort, by_name) : NULL;
    return hit ? *hit : NULL;
}

int af_weights_files(const af_weights *w)
{
    const af_gguf *g = af_weights_gguf(w);
    return g ? af_gguf_files(g) : w->file_count;
}

const char *af_weights_file_path(const af_weights *w, int file)
{
    const af_gguf *g = af_weights_gguf(w);
    if (g)
        return af_gguf_path(g, file);
    assert(file >= 0 && file < w->file_count);
    return w->files[file].path;
}

const af_gguf *af_weights_gguf(const af_weights *w)
{
    return w->file_count ? w->files[0].gguf : NULL;
}

const af_safetensors *af_weights_safetensors(const af_weights *w, int file)
{
    assert(file >= 0 && file < w->file_count);
    return w->files[file].st;
}

static const af_map *map_of(const af_weights *w, const af_stored *t)
{
    const weights_source *f = &w->files[af_weights_gguf(w) ? 0 : t->file];
    return f->gguf    ? af_gguf_map(f->gguf, t->file)
           : f->torch ? af_torch_file_map(f->torch)
                      : af_safetensors_map(f->st);
}

bool af_weights_mapped(const af_weights *w, const af_stored *t)
{
    const af_map *m = map_of(w, t);
    const uint8_t *p = t->data;
    return p >= m->data && p < m->data + m->size;
}

void af_weights_forget(const af_weights *w, const af_stored *t)
{
    const af_map *m = map_of(w, t);
    if (af_weights_mapped(w, t))
        af_map_forget(m, (uint64_t)((const uint8_t *)t->data - m->data), t->bytes);
}
