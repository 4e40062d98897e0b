/* manifest.c - see manifest.h. */
#include "train/checkpoint/manifest.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/temps.h"
#include "format/text/json_text.h"

#include <errno.h>
#include <jansson.h>
#include <unistd.h>

#define CHUNK (UINT64_C(1) << 20)

static af_status digest(const char *path, uint64_t *size, char hex[65], af_error *err)
{
    af_map m;
    const af_status st = af_map_open(&m, path, err);
    if (st != AF_OK)
        return st;
    af_sha256 s;
    af_sha256_init(&s);
    for (uint64_t at = 0; at < m.size; at += CHUNK) { /* a file may be larger than memory */
        const uint64_t n = AF_MIN(CHUNK, m.size - at);
        af_sha256_add(&s, m.data + at, n);
        af_map_forget(&m, at, n);
    }
    af_sha256_hex(&s, hex);
    *size = m.size;
    af_map_close(&m);
    return AF_OK;
}

static af_status add_file(json_t *files, const char *dir, const char *name, af_error *err)
{
    char *path = af_path_join(dir, name), hex[65];
    uint64_t size;
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    af_status st = AF_OK;
    if (af_file_exists(path) && strcmp(name, "manifest.json") != 0) {
        if (af_unsynced_digest(dir, name, hex)) /* found while it was written */
            size = (uint64_t)AF_MAX(af_file_size(path), 0);
        else
            st = digest(path, &size, hex, err);
        if (st == AF_OK)
            json_object_set_new(files, name,
                                json_pack("{s:I,s:s}", "size", (json_int_t)size, "sha256", hex));
    }
    free(path);
    return st;
}

af_status af_manifest_write(const char *dir, af_error *err)
{
    af_status st = AF_OK;
    char **names = NULL, *text = NULL, *path = NULL;
    int n = 0;
    json_t *files = json_object(), *root = json_object();
    AF_TRY(af_dir_list(&names, &n, dir, err));
    for (int i = 0; i < n; i++)
        AF_TRY(add_file(files, dir, names[i], err));
    json_object_set(root, "files", files);
    text = af_json_dump(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    path = af_path_join(dir, "manifest.json");
    if (!text || !path)
        AF_TRY(af_fail_nomem(err, "a manifest", 1024));
    st = af_file_write(path, text, strlen(text), err);
done:
    af_names_free(names, n);
    free(text);
    free(path);
    json_decref(files);
    json_decref(root);
    return st;
}

static af_status check_file(const char *dir, const char *name, const json_t *entry, af_error *err)
{
    char hex[65];
    uint64_t size;
    if (!af_path_is_inner(name))
        return af_fail(err, AF_EFORMAT,
                       "manifest.json in '%s' names '%s', a file outside the folder", dir, name);
    char *path = af_path_join(dir, name);
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    af_status st = digest(path, &size, hex, err);
    if (st != AF_OK && st != AF_ENOMEM && access(path, F_OK) != 0 && errno == ENOENT)
        st = af_fail(err, AF_EFORMAT, "'%s/%s' is missing, manifest.json has it", dir, name);
    free(path);
    if (st != AF_OK)
        return st;
    const json_int_t want = json_integer_value(json_object_get(entry, "size"));
    const char *sum = json_string_value(json_object_get(entry, "sha256"));
    if ((uint64_t)want != size)
        return af_fail(err, AF_EFORMAT, "'%s/%s' has %" PRIu64 " bytes, manifest.json has %lld",
                       dir, name, size, (long long)want);
    if (!sum || strcmp(sum, hex) != 0)
        return af_fail(err, AF_EFORMAT,
                       "'%s/%s' is damaged: its checksum is %.12s, manifest.json has %.12s", dir,
                       name, hex, sum ? sum : "nothing");
    return AF_OK;
}

af_status af_manifest_names(const char *dir, char ***names, int *n, af_error *err)
{
    char *path = af_path_join(dir, "manifest.json");
    json_t *root = NULL;
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    af_status st = af_json_read_file(&root, path, err);
    free(path);
    if (st != AF_OK)
        return st;
    const json_t *files = json_object_get(root, "files");
    char **list = af_calloc(json_object_size(files) + 1, sizeof *list);
    int found = 0;
    if (!list)
        st = af_fail_nomem(err, "a list of files", json_object_size(files) * sizeof *list);
    if (st == AF_OK && !json_is_object(files))
        st = af_fail(err, AF_EFORMAT, "manifest.json in '%s' is incomplete", dir);
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)files, name, entry)
    {
        if (st == AF_OK && af_path_is_inner(name) && !(list[found++] = af_strdup(name)))
            st = af_fail_nomem(err, "a path", strlen(name));
    }
    json_decref(root);
    if (st != AF_OK) {
        af_names_free(list, found);
        return st;
    }
    *names = list;
    *n = found;
    return AF_OK;
}

af_status af_manifest_check_there(const char *dir, af_error *err)
{
    char *path = af_path_join(dir, "manifest.json");
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    const bool there = af_file_exists(path);
    free(path);
    return there ? AF_OK
                 : af_fail(err, AF_EFORMAT,
                           "'%s' has no manifest.json: it is not a checkpoint of afinar (use "
                           "lora_model_dir to start from an adapter)",
                           dir);
}

af_status af_manifest_check(const char *dir, af_error *err)
{
    json_t *root = NULL;
    af_status st = af_manifest_check_there(dir, err);
    if (st != AF_OK)
        return st;
    char *path = af_path_join(dir, "manifest.json");
    st = path ? af_json_read_file(&root, path, err) : af_fail_nomem(err, "a path", strlen(dir));
    free(path);
    if (st == AF_ENOMEM || st == AF_EIO) /* it may be whole */
        return st;
    json_t *files = json_object_get(root, "files");
    if (!json_is_object(files) || json_object_size(files) == 0)
        st = af_fail(err, AF_EFORMAT, "manifest.json in '%s' is incomplete", dir);
    const char *name;
    json_t *entry;
    json_object_foreach(files, name, entry)
    {
        if (st == AF_OK)
            st = check_file(dir, name, entry, err);
    }
    json_decref(root);
    return st;
}
