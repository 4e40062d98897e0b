/* model_find.c - where a MODEL name leads: a folder, a file, or the local Hugging Face cache. */
#include "format/config/hf_config.h"

#include "base/file.h"
#include "base/word.h"
#include "format/config/config_source.h"
#include "format/hub/hub_name.h"
#include "format/text/json_text.h"
#include "format/weights/gguf.h"

#include <ctype.h>
#include <jansson.h>

/* A part of a model folder was named instead of the folder. */
static af_status fail_part(const char *model, af_error *err)
{
    const char *slash = strrchr(model, '/');
    return af_fail(err, AF_EUSAGE,
                   "'%s' is one file of a model: pass its folder, '%.*s', or a .gguf file", model,
                   slash ? (int)(slash - model) : 1, slash ? model : ".");
}

af_status af_model_resolve_whole(char **path, const char *model, af_error *err)
{
    if (model && af_file_exists(model) &&
        (af_ends_with(model, ".safetensors") || af_ends_with(model, ".json") ||
         af_ends_with(model, ".bin")))
        return fail_part(model, err);
    if (model && af_file_exists(model) && !af_gguf_is_file(model))
        return af_fail(err, AF_EUSAGE,
                       "'%s' is not a GGUF file: a model is a folder with config.json and "
                       "safetensors, or a .gguf file",
                       model);
    return af_model_resolve(path, model, err);
}

/* A folder without safetensors whose weights are one GGUF file, or its parts, is that file. */
static af_status take_gguf(char **path, const char *model, af_error *err)
{
    char *one = NULL, *other = NULL;
    af_status st = af_gguf_search(&one, &other, *path, err);
    /* a tokenizer next to several files, or above one, is what the folder is for */
    const bool folder = one && (other || af_path_name(one) - one > (ptrdiff_t)strlen(*path) + 1) &&
                        af_folder_has_tokenizer(*path);
    if (st == AF_OK && other && !folder)
        st = af_fail(err, AF_EUSAGE, "'%s' has several GGUF files; name one: '%s', or '%s'", model,
                     one, other);
    if (st == AF_OK && one && !other && !folder) {
        free(*path);
        *path = one;
        one = NULL;
    }
    free(one);
    free(other);
    return st;
}

static af_status resolve_name(char **path, const char *model, af_error *err)
{
    if (af_dir_exists(model) || af_file_exists(model)) {
        char *copy = af_strdup(model);
        if (!copy)
            return af_fail_nomem(err, "a path", strlen(model));
        *path = copy;
        return AF_OK;
    }
    af_hub_repo repo;
    if (strstr(model, "://"))
        return af_fail(
            err, AF_EUSAGE,
            "no model '%s': a model of the hub is named as 'org/name', not by an address", model);
    if (af_ends_with(model, ".gguf") ||
        af_hub_repo_parse(&repo, AF_HUB_MODEL, model, NULL, NULL) != AF_OK)
        return af_fail(err, AF_EUSAGE, "no model '%s': there is no such folder or file", model);
    return af_hub_snapshot(path, AF_HUB_MODEL, model, NULL, NULL, 0, err);
}

af_status af_model_resolve(char **path, const char *model, af_error *err)
{
    char *found = NULL;
    if (!model)
        return af_fail(err, AF_EUSAGE, "no path or name is given");
    af_status st = resolve_name(&found, model, err);
    if (st == AF_OK && af_dir_exists(found))
        st = take_gguf(&found, model, err);
    if (st == AF_OK)
        *path = found;
    else
        free(found);
    return st;
}

static af_status read_in(char **text, uint64_t *size, char **path, const char *dir,
                         const char *name, af_error *err)
{
    *path = af_path_join(dir, name);
    if (!*path)
        return af_fail_nomem(err, "a path", strlen(dir));
    return af_file_read(text, size, *path, AF_CONFIG_BYTES_MAX, err);
}

af_status af_generation_config_read(af_generation_config *out, bool *found, const char *dir,
                                    af_error *err)
{
    af_status st = AF_OK;
    char *path = af_path_join(dir, "generation_config.json"), *text = NULL, *again = NULL;
    uint64_t size = 0;
    if (!path)
        AF_TRY(af_fail_nomem(err, "a path", strlen(dir)));
    *found = af_file_exists(path);
    if (!*found)
        goto done;
    AF_TRY(read_in(&text, &size, &again, dir, "generation_config.json", err));
    AF_TRY(af_generation_config_parse(out, text, size, path, err));
done:
    free(path);
    free(again);
    free(text);
    return st;
}

/* A generation config names every end-of-turn token; config.json often only one. */
static void take_ids(af_hf_config *c, const af_generation_config *g)
{
    if (g->bos_token_id >= 0 && c->bos_token_id < 0)
        c->bos_token_id = g->bos_token_id;
    if (g->pad_token_id >= 0 && c->pad_token_id < 0)
        c->pad_token_id = g->pad_token_id;
    for (int i = 0; i < g->eos_count && c->eos_count < AF_CONFIG_EOS_MAX; i++) {
        int k = 0;
        while (k < c->eos_count && c->eos_token_id[k] != g->eos_token_id[i])
            k++;
        if (k == c->eos_count)
            c->eos_token_id[c->eos_count++] = g->eos_token_id[i];
    }
}

af_status af_folder_inside(const char *dir, const char *file, af_error *err)
{
    char **names = NULL, *found = NULL;
    int n = 0;
    if (af_dir_list(&names, &n, dir, NULL) != AF_OK)
        return AF_OK;
    for (int i = 0; i < n; i++) {
        char *path = af_path_join(dir, names[i]);
        const bool longer = !found || (path && strlen(path) >= strlen(found)); /* -10 after -5 */
        if (path && longer && af_file_in(path, file)) {
            free(found);
            found = path;
            path = NULL;
        }
        free(path);
    }
    const af_status st =
        !found ? AF_OK
               : af_fail(err, AF_EUSAGE, "'%s' has no %s; a folder inside has one: '%s'", dir, file,
                         found);
    free(found);
    af_names_free(names, n);
    return st;
}

/* A folder without config.json is not a model; one that holds an adapter, or a model in the form of
 * its makers, gets its own message. */
static af_status check_is_model(const char *dir, af_error *err)
{
    af_status st = AF_OK;
    char *path = NULL, *text = NULL;
    uint64_t size = 0;
    json_t *j = NULL;
    if (af_file_in(dir, "config.json"))
        return AF_OK;
    if (af_file_in(dir, "params.json"))
        return af_fail(
            err, AF_EUNSUPPORTED,
            "'%s' has params.json and no config.json: Mistral's and Meta's own form of a "
            "model is not read; take its Hugging Face form (config.json and "
            "model.safetensors or shards of it)",
            dir);
    if (read_in(&text, &size, &path, dir, "adapter_config.json", NULL) != AF_OK) {
        st = af_folder_inside(dir, "config.json", err);
        goto done;
    }
    j = af_json_load(text, size, 0, NULL);
    const char *base = json_string_value(json_object_get(j, "base_model_name_or_path"));
    const char *revision = json_string_value(json_object_get(j, "revision"));
    st = af_fail(err, AF_EUSAGE,
                 "'%.70s' is an adapter, not a model: pass its base, '%.50s%s%.40s', as the model "
                 "and --adapter '%.70s' (lora_model_dir in a run file)",
                 dir, base && *base ? base : "MODEL", revision ? "@" : "", revision ? revision : "",
                 dir);
done:
    json_decref(j);
    free(path);
    free(text);
    return st;
}

af_status af_hf_config_read(af_hf_config *out, const char *dir, af_error *err)
{
    af_status st = AF_OK;
    char *path = NULL, *text = NULL;
    uint64_t size = 0;
    af_hf_config c = {0};
    af_generation_config gen = {0};
    bool found = false;
    AF_TRY(check_is_model(dir, err));
    AF_TRY(read_in(&text, &size, &path, dir, "config.json", err));
    AF_TRY(af_hf_config_parse(&c, text, size, path, err));
    AF_TRY(af_quant_from_files(&c, dir, err));
    AF_TRY(af_generation_config_read(&gen, &found, dir, err));
    if (found)
        take_ids(&c, &gen);
    *out = c;
    c = (af_hf_config){0};
done:
    af_hf_config_clear(&c);
    free(path);
    free(text);
    return st;
}

af_status af_model_config(af_hf_config *out, const char *path, af_error *err)
{
    if (af_dir_exists(path))
        return af_hf_config_read(out, path, err);
    af_gguf *g;
    af_status st = af_gguf_open(&g, path, err);
    if (st != AF_OK)
        return st;
    st = af_hf_config_from_gguf(out, g, err);
    af_gguf_close(g);
    return st != AF_OK && err ? af_fail_prefix(st, err, "%s", path) : st;
}

const char *const af_tokenizer_sources[] = {"vocab.json",     "merges.txt",      "tekken.json",
                                            "tiktoken.model", "tokenizer.model", NULL};

/* Whether tokenizer.model is of tiktoken: lines of base64, a blank and a number. */
static bool is_tiktoken(const char *dir)
{
    af_map m = {0};
    char *path = af_path_join(dir, "tokenizer.model");
    uint64_t i = 0;
    bool yes = path && af_map_open(&m, path, NULL) == AF_OK;
    while (yes && i < m.size && (isalnum(m.data[i]) || memchr("+/=", m.data[i], 3)))
        i++;
    yes = yes && i > 0 && i + 1 < m.size && m.data[i] == ' ' && isdigit(m.data[i + 1]);
    af_map_close(&m);
    free(path);
    return yes;
}

bool af_tokenizer_can_make(const char *dir)
{
    if (af_file_in(dir, "tokenizer.json") || af_file_in(dir, "tokenizer.model"))
        return !af_file_in(dir, "tokenizer.json") && is_tiktoken(dir);
    return (af_file_in(dir, "vocab.json") && af_file_in(dir, "merges.txt")) ||
           af_file_in(dir, "tekken.json") || af_file_in(dir, "tiktoken.model");
}

bool af_folder_has_tokenizer(const char *dir)
{
    return af_file_in(dir, "tokenizer.json") || af_file_in(dir, "tokenizer.model") ||
           af_tokenizer_can_make(dir);
}
