/* adapter_vocab.c - what an adapter's folder has, of embeddings and head above all, before it is
 * read. */
#include "base/file.h"
#include "base/word.h"
#include "format/text/json_text.h"
#include "format/weights/weights.h"
#include "model/adapter.h"
#include "model/adapter_config.h"

#include <jansson.h>

/* Why a folder has no adapter_config.json; AF_OK when reading it says enough. */
static af_status check_is_adapter(const char *dir, af_error *err)
{
    if (af_file_in(dir, "adapter_config.json"))
        return AF_OK;
    if (!af_dir_exists(dir))
        return af_fail(err, AF_EUSAGE, "no adapter '%s': %s", dir,
                       af_file_exists(dir)
                           ? "it is neither a folder with adapter_config.json nor a GGUF file"
                           : "there is no such folder or file");
    if (af_file_in(dir, "config.json"))
        return af_fail(err, AF_EUSAGE,
                       "'%s' is a model, not an adapter: it has config.json and no "
                       "adapter_config.json",
                       dir);
    return af_folder_inside(dir, "adapter_config.json", err);
}

af_status af_adapter_config_read(af_adapter_config *out, af_arena *arena, const char *dir,
                                 af_error *err)
{
    if (af_file_exists(dir) && af_gguf_is_file(dir))
        return af_adapter_gguf_config(out, dir, err);
    af_status st = AF_OK;
    char *text = NULL, *path = af_path_join(dir, "adapter_config.json");
    uint64_t size;
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    AF_TRY(check_is_adapter(dir, err));
    AF_TRY(af_file_read(&text, &size, path, AF_ADAPTER_CONFIG_MAX, err));
    AF_TRY(af_adapter_config_parse(out, arena, text, size, path, err));
done:
    free(text);
    free(path);
    return st;
}

bool af_adapter_config_unties(const af_adapter_config *c)
{
    for (int i = 0; i < c->save_count; i++)
        if (af_path_is_table(c->modules_to_save[i], false) ||
            af_path_is_table(c->modules_to_save[i], true))
            return true;
    return false;
}

af_status af_adapter_unties(bool *out, const char *dir, af_error *err)
{
    af_status st = AF_OK;
    af_arena arena = {0};
    af_adapter_config c = {0};
    AF_TRY(af_adapter_config_read(&c, &arena, dir, err));
    *out = af_adapter_config_unties(&c);
done:
    af_arena_clear(&arena);
    return st;
}

af_status af_adapter_open_values(af_weights **out, const char *dir, af_error *err)
{
    static const char *const names[] = {"adapter_model.safetensors", "adapter_model.bin"};
    for (size_t i = 0; i < AF_LEN(names); i++) { /* a model may lie next to it */
        if (!af_file_in(dir, names[i]))
            continue;
        char *file = af_path_join(dir, names[i]);
        const af_status st =
            file ? af_weights_open(out, file, err) : af_fail_nomem(err, "a path", strlen(dir));
        free(file);
        return st;
    }
    return af_weights_open(out, dir, err);
}

/* The path of a tensor of the file that ends so, if it is an embedding or a head. */
static bool table_path(char path[AF_ADAPTER_NAME_BYTES], const char *name, const char *end)
{
    snprintf(path, AF_ADAPTER_NAME_BYTES, "%.*s", (int)(end - name), name);
    return af_path_is_table(path, false) || af_path_is_table(path, true);
}

af_status af_adapter_save_tied(af_adapter_config *c, af_arena *arena, const af_weights *w,
                               af_error *err)
{
    const bool both = af_adapter_config_unties(c);
    for (int i = 0; both && i < af_weights_count(w); i++) {
        const char *name = af_weights_at(w, i)->name;
        char path[AF_ADAPTER_NAME_BYTES];
        if (!af_ends_with(name, ".weight") ||
            !table_path(path, name, name + strlen(name) - strlen(".weight")) ||
            af_path_ends_in(path, c->modules_to_save, c->save_count))
            continue;
        const char **list = af_arena_take(arena, (size_t)(c->save_count + 1) * sizeof *list);
        const char *last = strrchr(path, '.'),
                   *copy = af_arena_strdup(arena, last ? last + 1 : path);
        if (!list || !copy)
            return af_fail_nomem(err, "a list of names", (uint64_t)c->save_count);
        memcpy(list, c->modules_to_save, (size_t)c->save_count * sizeof *list);
        list[c->save_count++] = copy;
        c->modules_to_save = list;
    }
    return AF_OK;
}

af_status af_adapter_adapts_vocab(bool *out, const char *dir, af_error *err)
{
    af_weights *w = NULL;
    *out = false;
    const af_status st = af_adapter_open_values(&w, dir, err);
    for (int i = 0; st == AF_OK && i < af_weights_count(w); i++) {
        const char *name = af_weights_at(w, i)->name, *end = af_adapter_part_at(name);
        char path[AF_ADAPTER_NAME_BYTES];
        *out |= end && table_path(path, name, end);
    }
    af_weights_close(w);
    return st;
}

af_status af_adapter_ties_vocab(bool *out, const char *dir, af_error *err)
{
    static const char tail[] = ".lora_a"; /* of a folder; a GGUF file has other names */
    af_weights *w = NULL;
    bool head = false;
    *out = false;
    const af_status st = af_adapter_open_values(&w, dir, err);
    for (int i = 0; st == AF_OK && i < af_weights_count(w); i++) {
        const char *name = af_weights_at(w, i)->name;
        char path[AF_ADAPTER_NAME_BYTES];
        if (!af_ends_with(name, tail))
            continue;
        snprintf(path, sizeof path, "%.*s", (int)(strlen(name) - strlen(tail)), name);
        *out |= af_path_is_table(path, false);
        head |= af_path_is_table(path, true);
    }
    *out = *out && !head;
    af_weights_close(w);
    return st;
}

const char *af_adapter_labels_parse(af_arena *arena, const json_t *value)
{
    char *text = json_is_object(value) ? af_json_dump(value, JSON_COMPACT) : NULL;
    const char *copy = text ? af_arena_strdup(arena, text) : NULL;
    free(text);
    return copy;
}

af_status af_adapter_labels(int64_t *out, const char *dir, af_error *err)
{
    af_weights *w = NULL;
    *out = 0;
    const af_status st = af_adapter_open_values(&w, dir, err);
    const af_stored *t = st == AF_OK ? af_weights_find(w, "base_model.model.score.weight") : NULL;
    if (t && t->ndim == 2)
        *out = t->dim[0];
    af_weights_close(w);
    return st;
}

af_status af_adapter_vocab(int64_t *out, const char *dir, af_error *err)
{
    static const char *const ends[] = {".token_adapter.base_layer.weight", ".base_layer.weight",
                                       ".weight"};
    af_weights *w = NULL;
    *out = 0;
    const af_status st = af_adapter_open_values(&w, dir, err);
    for (int i = 0; st == AF_OK && i < af_weights_count(w); i++) {
        const af_stored *t = af_weights_at(w, i);
        char path[AF_ADAPTER_NAME_BYTES];
        size_t k = 0;
        while (k < AF_LEN(ends) && !af_ends_with(t->name, ends[k]))
            k++;
        if (k == AF_LEN(ends) || t->ndim != 2)
            continue;
        if (table_path(path, t->name, t->name + strlen(t->name) - strlen(ends[k])))
            *out = t->dim[0];
    }
    af_weights_close(w);
    return st;
}
