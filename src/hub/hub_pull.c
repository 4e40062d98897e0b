/* hub_pull.c - a repository into the cache: list, choose, fetch, and the names that point to it. */
#include "hub/hub_pull.h"

#include "base/file.h"
#include "base/log.h"

#include <limits.h>

af_status af_hub_meter_tell(af_hub_meter *m, double now, uint64_t done, bool finished,
                            af_error *err)
{
    if (m->began == 0) {
        m->began = now;
        m->first = done;
    }
    if (!m->o->progress || (now - m->last < 0.1 && !finished))
        return AF_OK;
    m->last = now;
    m->p.done = done;
    m->p.finished = finished;
    const double passed = now - m->began;
    m->p.bytes_s = passed > 0.2 && done > m->first ? (double)(done - m->first) / passed : 0;
    if (passed > 10) { /* the speed of the last seconds, not of the whole transfer */
        m->began = now - passed / 2;
        m->first = done - (uint64_t)((double)(done - m->first) / 2);
    }
    if (!m->o->progress(m->o->user, &m->p))
        return af_fail(err, AF_ESTOPPED, "stopped; the next pull continues here");
    return AF_OK;
}

/* ---- files of the cache that are not blobs ---- */

static af_status write_text(const char *dir, const char *name, const char *text, uint64_t n,
                            bool keep, af_error *err)
{
    af_status st = AF_OK;
    char *path = af_path_join(dir, name), *parent = NULL, *old = NULL;
    uint64_t size = 0;
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    if (af_file_exists(path)) {
        const bool same = !keep && af_file_read(&old, &size, path, n + 1, NULL) == AF_OK &&
                          size == n && memcmp(old, text, n) == 0;
        if (keep || same)
            goto done;
    }
    parent = af_strndup(path, (uint64_t)(af_path_name(path) - path - 1));
    if (!parent)
        AF_TRY(af_fail_nomem(err, "a path", strlen(path)));
    AF_TRY(af_dir_make(parent, err));
    AF_TRY(af_file_write(path, text, n, err));
done:
    free(old);
    free(parent);
    free(path);
    return st;
}

/* For backup programs, as huggingface_hub writes it. */
static af_status write_tag(const char *cache, af_error *err)
{
    static const char tag[] = "Signature: 8a477f597d28d172789f06886806bc55\n"
                              "# This file is a cache directory tag created by huggingface_hub.\n"
                              "# For information about cache directory tags, see:\n"
                              "#\thttps://bford.info/cachedir/\n";
    return write_text(cache, "CACHEDIR.TAG", tag, sizeof tag - 1, true, err);
}

static af_status write_ref(const af_hub_store *s, af_error *err)
{
    char name[AF_HUB_REV_MAX + 8];
    if (strcmp(s->repo->revision, s->commit) == 0)
        return AF_OK;
    snprintf(name, sizeof name, "refs/%s", s->repo->revision);
    return write_text(s->dir, name, s->commit, strlen(s->commit), false, err);
}

static bool read_tree(af_hub_tree *t, const char *dir, const char *name)
{
    char *path = af_path_join(dir, name), *text = NULL;
    uint64_t n = 0;
    bool good = path && af_file_exists(path) &&
                af_file_read(&text, &n, path, AF_HUB_TREE_BYTES_MAX, NULL) == AF_OK &&
                af_hub_tree_parse(t, text, n, path, NULL) == AF_OK;
    if (!good)
        af_hub_tree_clear(t);
    free(text);
    free(path);
    return good;
}

/* The files of the commit: a commit never changes, so the cached list is as good as the hub's. */
static af_status find_tree(af_hub_tree *t, const af_hub_store *s, af_error *err)
{
    af_status st = AF_OK;
    char name[80], *text = NULL;
    uint64_t n = 0;
    snprintf(name, sizeof name, "trees/%s.json", s->commit);
    if (!s->output && read_tree(t, s->dir, name))
        return AF_OK;
    AF_TRY(af_hub_ask_tree(t, s->client, s->repo, s->commit, err));
    if (s->output)
        return AF_OK;
    AF_TRY(af_hub_tree_print(&text, &n, t, err));
    AF_TRY(write_text(s->dir, name, text, n, false, err));
done:
    free(text);
    return st;
}

/* ---- the pull ---- */

/* What only git reads: huggingface_hub takes a snapshot without it for half of one, and does not
 * use it offline. Plain folders and choices of the user's own are what was asked for. */
static void add_attributes(af_hub_tree *t, const af_pull_opts *o)
{
    for (int i = 0; i < t->count && !o->output && !o->includes && !o->excludes; i++)
        if (strcmp(t->file[i].path, ".gitattributes") == 0)
            t->file[i].needed = true;
}

af_status af_hub_pull_with(af_hub_client *c, char **folder, const af_hub_repo *r,
                           const af_pull_opts *o, af_error *err)
{
    af_status st = AF_OK;
    char commit[AF_HUB_COMMIT + 1], *cache = af_hub_dir(), *result = NULL;
    af_hub_tree t = {0};
    af_hub_meter m = {.o = &o->hub, .p = {.repo = r->name}};
    af_hub_store s = {.client = c, .repo = r, .commit = commit, .output = o->output};
    const af_hub_choice choice = {.kind = r->kind,
                                  .include = o->include,
                                  .exclude = o->exclude,
                                  .includes = o->includes,
                                  .excludes = o->excludes,
                                  .gguf = o->gguf};
    af_buf b = {0};
    s.cache = cache;
    s.dir = cache ? af_hub_repo_dir(cache, r) : NULL;
    if (!s.dir)
        AF_TRY(af_fail_nomem(err, "a path", 0));
    AF_TRY(af_hub_ask_commit(commit, c, r, err));
    AF_TRY(find_tree(&t, &s, err));
    AF_TRY(af_hub_tree_choose(&t, &choice, r->name, err));
    add_attributes(&t, o);
    if (!o->output)
        AF_TRY(write_tag(cache, err));
    AF_TRY(af_hub_fetch_files(&s, &t, &m, err));
    if (!o->output)
        AF_TRY(write_ref(&s, err)); /* last: a name never leads to half a snapshot */
    if (o->output)
        af_buf_str(&b, o->output);
    else
        af_buf_printf(&b, "%s/snapshots/%s", s.dir, commit);
    result = af_buf_take(&b);
    if (!result)
        AF_TRY(af_fail_nomem(err, "a path", 0));
    *folder = result;
done:
    af_buf_clear(&b);
    af_hub_tree_clear(&t);
    free(s.dir);
    free(cache);
    return st;
}

/* Without the network: what is cached, if it is complete. */
static af_status pull_offline(char **folder, const af_hub_repo *r, const af_pull_opts *o,
                              af_error *err)
{
    af_status st = AF_OK;
    char commit[AF_HUB_COMMIT + 1] = "", name[80], *cache = af_hub_dir();
    char *dir = cache ? af_hub_repo_dir(cache, r) : NULL, *path = NULL;
    const char *missing = NULL;
    af_hub_tree t = {0};
    af_buf b = {0};
    const af_hub_choice choice = {.kind = r->kind,
                                  .include = o->include,
                                  .exclude = o->exclude,
                                  .includes = o->includes,
                                  .excludes = o->excludes,
                                  .gguf = o->gguf};
    if (!dir)
        AF_TRY(af_fail_nomem(err, "a path", 0));
    if (o->output)
        AF_TRY(af_fail(err, AF_EUSAGE, "offline, nothing can be downloaded to '%s'", o->output));
    AF_TRY(af_hub_ref_read(commit, dir, r->revision, err));
    af_buf_printf(&b, "%s/snapshots/%s", dir, commit);
    path = af_buf_take(&b);
    if (!path)
        AF_TRY(af_fail_nomem(err, "a path", 0));
    if (!*commit || !af_dir_exists(path))
        AF_TRY(af_fail(err, AF_EUSAGE,
                       "'%s' at revision '%s' is not in the cache '%s', and the network is not "
                       "used (--offline, HF_HUB_OFFLINE)",
                       r->name, r->revision, cache));
    snprintf(name, sizeof name, "trees/%s.json", commit);
    if (read_tree(&t, dir, name)) {
        AF_TRY(af_hub_tree_choose(&t, &choice, r->name, err));
        if (!af_hub_tree_is_complete(&t, path, &missing))
            AF_TRY(af_fail(err, AF_EUSAGE,
                           "the cache has '%s' without '%s', and the network is not used "
                           "(--offline, HF_HUB_OFFLINE)",
                           r->name, missing));
    }
    *folder = path;
    path = NULL;
done:
    af_buf_clear(&b);
    af_hub_tree_clear(&t);
    free(path);
    free(dir);
    free(cache);
    return st;
}

static af_status pull(char **folder, const af_hub_repo *r, const af_pull_opts *o, af_error *err)
{
    af_hub_client c;
    if (o->hub.offline || af_hub_env_offline())
        return pull_offline(folder, r, o, err);
    af_status st = af_hub_client_open(&c, o->hub.token_file, NULL, err);
    if (st != AF_OK)
        return st;
    st = af_hub_pull_with(&c, folder, r, o, err);
    af_hub_client_close(&c, true);
    return st;
}

af_status af_hub_pull(char **folder, const char *repo, const af_pull_opts *o, af_error *err)
{
    AF_NEED(err, folder, repo, o);
    af_hub_repo r;
    af_error unread;
    err = af_error_or(err, &unread);
    const af_hub_kind kind = o->dataset ? AF_HUB_DATASET : AF_HUB_MODEL;
    af_status st = af_need_strings(o->include, o->includes, INT_MAX, "include", err);
    if (st == AF_OK)
        st = af_need_strings(o->exclude, o->excludes, INT_MAX, "exclude", err);
    if (st == AF_OK && o->output && !*o->output)
        st = af_fail(err, AF_EUSAGE, "the name of the output folder is empty");
    if (st == AF_OK)
        st = af_hub_repo_parse(&r, kind, repo, o->revision, err);
    return st == AF_OK ? pull(folder, &r, o, err) : st;
}

/* ---- for every call that takes a model or a dataset ---- */

static af_status fetch_missing(void *user, char **dir, const af_hub_repo *r,
                               const char *const *include, int n, af_error *err)
{
    const af_hub_opts *hub = user;
    const af_pull_opts o = {.hub = *hub, .include = include, .includes = n};
    af_log_write(AF_LOG_INFO, "downloading %s from the hub", r->name);
    return pull(dir, r, &o, err);
}

void af_hub_set(const af_hub_opts *o)
{
    const bool online = o && !o->offline && !af_hub_env_offline();
    af_hub_fetch_set(online ? fetch_missing : NULL, online ? (void *)o : NULL);
}

void af_hub_library(char *text, size_t size)
{
    if (text && size)
        af_curl_version(text, size);
}
