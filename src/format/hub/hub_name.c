/* hub_name.c - names of repositories and the local cache; see hub_name.h. */
#include "format/hub/hub_name.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "format/hub/hub_tree.h"
#include "format/text/json_text.h"
#include "format/weights/gguf.h"
#include "format/weights/part_name.h"

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

/* "org/name" or "name": one slash at most, no part that begins or ends with a dot or a dash; no
 * "--", which stands for the slash in the cache, and no "..". The hub allows none of these. */
static bool is_repo(const char *s, size_t n)
{
    int slashes = 0;
    if (n == 0 || n >= AF_HUB_NAME_MAX || s[0] == '/' || s[n - 1] == '/')
        return false;
    for (size_t i = 0; i < n; i++) {
        slashes += s[i] == '/';
        if (s[i] != '/' && !is_word(s[i]))
            return false;
        if (s[i] != '.' && s[i] != '-')
            continue;
        if (i == 0 || i + 1 == n || s[i - 1] == '/' || s[i + 1] == '/' || s[i - 1] == s[i])
            return false;
    }
    return slashes <= 1;
}

/* A branch, a tag or a commit that may be a path below refs/. */
static bool is_revision(const char *s)
{
    const size_t n = strlen(s);
    if (n == 0 || n >= AF_HUB_REV_MAX || !af_path_is_inner(s) || s[n - 1] == '/')
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] <= ' ' || s[i] == 0x7f || strchr("?*[\\~^:", s[i]))
            return false;
    return true;
}

bool af_hub_is_commit(const char *revision)
{
    return strlen(revision) == AF_HUB_COMMIT &&
           strspn(revision, "0123456789abcdef") == AF_HUB_COMMIT;
}

af_status af_hub_repo_parse(af_hub_repo *out, af_hub_kind kind, const char *text,
                            const char *revision, af_error *err)
{
    const char *at = strchr(text, '@');
    const size_t n = at ? (size_t)(at - text) : strlen(text);
    const char *rev = revision && *revision ? revision : at ? at + 1 : "main";
    af_hub_repo r = {.kind = kind};
    if (!is_repo(text, n))
        return af_fail(err, AF_EUSAGE,
                       "'%s' is not the name of a repository: ORG/NAME or ORG/NAME@REVISION is "
                       "expected",
                       text);
    if (!is_revision(rev))
        return af_fail(err, AF_EUSAGE, "'%s' is not a revision (a branch, a tag or a commit)", rev);
    memcpy(r.name, text, n);
    memcpy(r.revision, rev, strlen(rev));
    *out = r;
    return AF_OK;
}

bool af_hub_is_name(const char *text)
{
    af_hub_repo r;
    const char *slash = strchr(text, '/'), *at = strchr(text, '@');
    return slash && (!at || slash < at) &&
           af_hub_repo_parse(&r, AF_HUB_MODEL, text, NULL, NULL) == AF_OK;
}

char *af_hub_repo_dir(const char *cache, const af_hub_repo *r)
{
    af_buf b = {0};
    af_buf_printf(&b, "%s/%s--", cache, r->kind == AF_HUB_DATASET ? "datasets" : "models");
    for (const char *p = r->name; *p; p++)
        af_buf_str(&b, *p == '/' ? "--" : (char[]){*p, 0});
    char *path = af_buf_take(&b);
    af_buf_clear(&b);
    return path;
}

bool af_hub_ref_parse(char commit[AF_HUB_COMMIT + 1], const char *text, uint64_t n)
{
    while (n > 0 && strchr(" \r\n\t", text[n - 1]))
        n--;
    if (n == 0 || n > AF_HUB_COMMIT)
        return false;
    for (uint64_t i = 0; i < n; i++)
        if (!is_word(text[i]) || (i == 0 && text[i] == '.'))
            return false;
    memcpy(commit, text, n);
    commit[n] = '\0';
    return true;
}

af_status af_hub_ref_read(char commit[AF_HUB_COMMIT + 1], const char *dir, const char *revision,
                          af_error *err)
{
    af_status st = AF_OK;
    char *text = NULL, *path = NULL;
    uint64_t size = 0;
    af_buf b = {0};
    commit[0] = '\0';
    if (af_hub_is_commit(revision)) {
        memcpy(commit, revision, AF_HUB_COMMIT + 1);
        return AF_OK;
    }
    af_buf_printf(&b, "%s/refs/%s", dir, revision);
    path = af_buf_take(&b);
    if (!path)
        AF_TRY(af_fail_nomem(err, "a path", strlen(dir)));
    if (!af_file_exists(path))
        goto done;
    AF_TRY(af_file_read(&text, &size, path, 256, err));
    if (!af_hub_ref_parse(commit, text, size))
        AF_TRY(af_fail(err, AF_EFORMAT, "'%s' does not hold the name of a snapshot", path));
done:
    af_buf_clear(&b);
    free(path);
    free(text);
    return st;
}

/* ---- the process-wide hook ---- */

static struct {
    af_hub_fetch *hook;
    void *user;
} fetch;

void af_hub_fetch_set(af_hub_fetch *hook, void *user)
{
    fetch.hook = hook;
    fetch.user = user;
}

/* ---- what is cached ---- */

static bool has_file(const char *dir, const char *name)
{
    char *path = af_path_join(dir, name);
    const bool there = path && af_file_exists(path);
    free(path);
    return there;
}

/* All files that an index names. */
static bool has_shards(const char *dir, const char *index)
{
    char *path = af_path_join(dir, index);
    json_t *j = NULL, *v;
    const char *key;
    bool good = path && af_file_exists(path) && af_json_read_file(&j, path, NULL) == AF_OK;
    json_t *map = json_object_get(j, "weight_map");
    good = good && json_is_object(map);
    json_object_foreach(map, key, v)
    {
        const char *shard = json_string_value(v);
        good = good && shard && af_path_is_inner(shard) && has_file(dir, shard);
    }
    json_decref(j);
    free(path);
    return good;
}

/* The file at `path` is the first of several, and the others are there. */
static bool has_parts(const char *path, const char *ext)
{
    af_part_name p;
    if (!af_part_name_parse(&p, path, ext) || p.no != 0)
        return false;
    for (; p.no < p.count; p.no++) {
        char *part;
        if (af_part_name_find(&part, path, p, ext, NULL) != AF_OK)
            return false;
        free(part);
    }
    return true;
}

/* All shards of a model without an index. */
static bool has_shards_alone(const char *dir)
{
    char **names = NULL;
    int n = 0;
    bool found = false;
    if (has_file(dir, "model.safetensors.index.json") ||
        af_dir_list(&names, &n, dir, NULL) != AF_OK)
        return false;
    for (int i = 0; i < n && !found; i++) {
        char *path = af_path_join(dir, names[i]);
        found = path && has_parts(path, ".safetensors");
        free(path);
    }
    af_names_free(names, n);
    return found;
}

/* For a snapshot without a list of files (huggingface_hub before 2.0): whether it has weights. */
static bool has_weights(const char *dir)
{
    static const char *const whole[] = {"model.safetensors", "adapter_model.safetensors",
                                        "adapters.safetensors", "pytorch_model.bin",
                                        "adapter_model.bin"};
    char *one, *other;
    bool found = has_shards(dir, "model.safetensors.index.json") || has_shards_alone(dir) ||
                 has_shards(dir, "pytorch_model.bin.index.json");
    for (size_t i = 0; i < AF_LEN(whole); i++)
        found |= has_file(dir, whole[i]);
    if (!found && af_gguf_search(&one, &other, dir, NULL) == AF_OK) {
        af_part_name p;
        found = one && (!af_part_name_parse(&p, one, ".gguf") || has_parts(one, ".gguf"));
        free(one);
        free(other);
    }
    return found;
}

/* Whether the snapshot has all that is needed, by the list of its commit. An error: the repository
 * cannot have it. Of several GGUF files, the one that was pulled is the choice. */
static af_status is_complete(bool *complete, const char *repo_dir, const char *commit,
                             const char *snapshot, const af_hub_choice *choice, const char *name,
                             af_error *err)
{
    af_buf b = {0};
    af_hub_tree tree = {0};
    char *text = NULL;
    uint64_t size = 0;
    af_status st = AF_OK;
    const bool model = choice->kind == AF_HUB_MODEL && choice->includes == 0;
    af_buf_printf(&b, "%s/trees/%s.json", repo_dir, commit);
    const bool listed = !b.bad && af_file_exists(b.data) &&
                        af_file_read(&text, &size, b.data, AF_HUB_TREE_BYTES_MAX, NULL) == AF_OK &&
                        af_hub_tree_parse(&tree, text, size, b.data, NULL) == AF_OK;
    if (listed)
        st = af_hub_tree_choose(&tree, choice, name, err);
    if (listed && st == AF_OK)
        *complete = af_hub_tree_is_complete(&tree, snapshot, NULL);
    else if (model && has_weights(snapshot)) {
        *complete = true;
        st = AF_OK;
    }
    free(text);
    af_hub_tree_clear(&tree);
    af_buf_clear(&b);
    return st;
}

static af_status find_cached(char **dir, bool *complete, const af_hub_repo *r,
                             const af_hub_choice *choice, af_error *err)
{
    af_status st = AF_OK;
    char commit[AF_HUB_COMMIT + 1], *cache = af_hub_dir();
    char *repo = cache ? af_hub_repo_dir(cache, r) : NULL, *path = NULL;
    af_buf b = {0};
    *dir = NULL;
    *complete = false;
    if (!repo)
        AF_TRY(af_fail_nomem(err, "a path", AF_HUB_NAME_MAX));
    if (!af_dir_exists(repo))
        goto done;
    AF_TRY(af_hub_ref_read(commit, repo, r->revision, err));
    if (!*commit)
        goto done;
    af_buf_printf(&b, "%s/snapshots/%s", repo, commit);
    path = af_buf_take(&b);
    if (!path)
        AF_TRY(af_fail_nomem(err, "a path", strlen(repo)));
    if (!af_dir_exists(path)) {
        if (!fetch.hook && !af_hub_is_commit(r->revision))
            st = af_fail(err, AF_EIO,
                         "the cache of '%s' names the snapshot %s, which does not exist", r->name,
                         commit);
        goto done;
    }
    AF_TRY(is_complete(complete, repo, commit, path, choice, r->name, err));
    *dir = path;
    path = NULL;
done:
    af_buf_clear(&b);
    free(path);
    free(repo);
    free(cache);
    return st;
}

static af_status fail_absent(const af_hub_repo *r, af_error *err)
{
    char *cache = af_hub_dir();
    const bool data = r->kind == AF_HUB_DATASET, main = strcmp(r->revision, "main") == 0;
    const af_status st = af_fail(
        err, AF_EUSAGE,
        "no %s '%s': there is no such folder or file, and the cache '%s' does not have it%s%s; "
        "download it first: afinar pull %s%s%s%s",
        data ? "dataset" : "model", r->name, cache ? cache : "", main ? "" : " at revision ",
        main ? "" : r->revision, r->name, main ? "" : "@", main ? "" : r->revision,
        data ? " --dataset" : "");
    free(cache);
    return st;
}

af_status af_hub_snapshot(char **dir, af_hub_kind kind, const char *name, const char *revision,
                          const char *const *include, int n, af_error *err)
{
    af_hub_repo r;
    char *found = NULL;
    bool complete = false;
    const af_hub_choice choice = {.kind = kind, .include = include, .includes = n};
    af_status st = af_hub_repo_parse(&r, kind, name, revision, err);
    if (st == AF_OK)
        st = find_cached(&found, &complete, &r, &choice, err);
    if (st != AF_OK)
        return st;
    if (!complete && fetch.hook && strchr(r.name, '/')) {
        free(found);
        return fetch.hook(fetch.user, dir, &r, include, n, err);
    }
    if (!found)
        return fail_absent(&r, err);
    *dir = found;
    return AF_OK;
}
