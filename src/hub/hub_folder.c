/* hub_folder.c - what of a folder is published: all but hidden files, checkpoints
 * and what a run keeps for itself. */
#define _GNU_SOURCE /* memmem */
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "format/text/json_text.h"
#include "hub/hub_push.h"

enum { DEPTH_MAX = 8, FILES_MAX = 100000, TEXT_MAX = 16 << 20 };

void af_push_clear(af_push *p)
{
    for (int i = 0; i < p->count; i++) {
        free(p->file[i].name);
        free(p->file[i].path);
        free(p->file[i].text);
    }
    free(p->file);
    p->file = NULL;
    p->count = p->cap = 0;
}

static void hash_bytes(af_push_file *f, const void *bytes, uint64_t n)
{
    af_sha256 large;
    af_sha1 git;
    af_sha256_init(&large);
    af_sha256_add(&large, bytes, n);
    af_sha256_hex(&large, f->sha256);
    af_sha1_init_blob(&git, n);
    af_sha1_add(&git, bytes, n);
    af_sha1_hex(&git, f->oid);
    f->size = n;
}

static af_status check_name(const af_push_file *f, af_error *err)
{
    json_t *text = json_string(f->name);
    if (!text)
        return af_fail(err, AF_EUSAGE, "the name of '%s' is not UTF-8", f->path);
    json_decref(text);
    if (f->path && !af_file_exists(f->path)) /* a pipe would be waited for */
        return af_fail(err, AF_EUSAGE, "'%s' is neither a file nor a folder", f->path);
    return AF_OK;
}

/* What everybody may read is not to hold the token it is sent with. Texts are small. */
static bool has_token(const af_hub_client *c, const void *bytes, uint64_t n)
{
    return n > 0 && n <= TEXT_MAX && memmem(bytes, n, c->token, strlen(c->token));
}

/* Takes name, path and text over in every case. */
static af_status add(af_push *p, char *name, char *path, char *text, af_error *err)
{
    af_push_file f = {.name = name, .path = path, .text = text};
    af_map m = {0};
    af_status st = AF_OK;
    if (!name || !(path || text) || p->count == FILES_MAX)
        AF_TRY(p->count == FILES_MAX
                   ? af_fail(err, AF_EUSAGE, "more than %d files are to be uploaded", FILES_MAX)
                   : af_fail_nomem(err, "a file name", 0));
    AF_TRY(check_name(&f, err));
    if (p->count == p->cap) {
        const int cap = p->cap ? p->cap * 2 : 32;
        af_push_file *more = af_realloc(p->file, (uint64_t)cap, sizeof *more);
        if (!more)
            AF_TRY(af_fail_nomem(err, "a list of files", (uint64_t)cap * sizeof *more));
        p->file = more;
        p->cap = cap;
    }
    if (path) {
        AF_TRY(af_map_open(&m, path, err));
        hash_bytes(&f, m.data, m.size);
        const bool secret = has_token(p->client, m.data, m.size);
        af_map_close(&m);
        if (secret)
            AF_TRY(af_fail_subject(err, AF_EUSAGE, "token",
                                   "'%s' holds the token of %s; nothing was uploaded", path,
                                   p->client->token_from));
    } else {
        hash_bytes(&f, text, strlen(text));
    }
    p->file[p->count++] = f;
    return AF_OK;
done:
    free(name);
    free(path);
    free(text);
    return st;
}

/* Stores of trackers have paths and names of this machine in them, replays the records of a step.
 */
static bool is_left_out(const char *name)
{
    static const char *const stores[] = {"runs", "mlruns", "wandb", "trackers.json"};
    for (size_t i = 0; i < AF_LEN(stores); i++)
        if (strcmp(name, stores[i]) == 0)
            return true;
    return name[0] == '.' || strncmp(name, "checkpoint-", 11) == 0 ||
           strncmp(name, "replay-", 7) == 0;
}

static af_status add_folder(af_push *p, const char *dir, const char *prefix, int depth,
                            af_error *err)
{
    char **names = NULL;
    int n = 0;
    if (depth == DEPTH_MAX)
        return af_fail(err, AF_EUSAGE, "'%s' is more than %d folders deep", dir, DEPTH_MAX);
    af_status st = af_dir_list(&names, &n, dir, err);
    for (int i = 0; i < n && st == AF_OK; i++) {
        if (is_left_out(names[i]))
            continue;
        char *path = af_path_join(dir, names[i]);
        char *name = *prefix ? af_path_join(prefix, names[i]) : af_strdup(names[i]);
        if (path && name && af_dir_exists(path)) {
            st = add_folder(p, path, name, depth + 1, err);
            free(path);
            free(name);
        } else {
            st = add(p, name, path, NULL, err);
        }
    }
    af_names_free(names, n);
    return st;
}

static bool has(const af_push *p, const char *name)
{
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->file[i].name, name) == 0)
            return true;
    return false;
}

/* The base of an adapter by its config, when it is a name of the hub; free(). */
static char *base_of(const char *folder)
{
    char *path = af_path_join(folder, "adapter_config.json"), *base = NULL;
    json_t *j = NULL;
    if (path && af_file_exists(path) && af_json_read_file(&j, path, NULL) == AF_OK) {
        const char *name = json_string_value(json_object_get(j, "base_model_name_or_path"));
        base = name && af_hub_is_name(name) && !af_dir_exists(name) ? af_strdup(name) : NULL;
    }
    json_decref(j);
    free(path);
    return base;
}

static af_status add_card(af_push *p, const char *folder, af_error *err)
{
    af_buf b = {0};
    const bool adapter = has(p, "adapter_config.json");
    char *base = adapter ? base_of(folder) : NULL;
    af_buf_str(&b, "---\n");
    if (base)
        af_buf_printf(&b, "base_model: \"%s\"\n", base);
    if (p->repo->kind == AF_HUB_MODEL)
        af_buf_printf(&b, "library_name: %s\n", adapter ? "peft" : "transformers");
    af_buf_printf(&b, "tags:\n- afinar\n---\n\n# %s\n\nUploaded with afinar %s.\n",
                  af_path_name(p->repo->name), af_version());
    free(base);
    char *text = af_buf_take(&b);
    af_buf_clear(&b);
    return add(p, af_strdup("README.md"), NULL, text, err);
}

af_status af_push_list(af_push *p, const char *folder, af_error *err)
{
    if (!af_dir_exists(folder))
        return af_fail(err, AF_EUSAGE, "there is no folder '%s'", folder);
    af_status st = add_folder(p, folder, "", 0, err);
    if (st == AF_OK && p->count == 0)
        st = af_fail(err, AF_EUSAGE, "'%s' has no file to upload", folder);
    if (st == AF_OK && !has(p, "README.md"))
        st = add_card(p, folder, err);
    return st;
}
