/* hub_push.c - a folder to the hub: repository, branch, large files, then one commit. A push that
 * was cut leaves the branch as it was; the next one sends only what the hub does not have. */
#include "hub/hub_push.h"

#include "base/file.h"
#include "format/text/json_text.h"

enum { ASK_FILES = 256, SAMPLE = 512 };
static const char type_json[] = "Content-Type: application/json";

af_status af_push_ask(json_t **answer, const af_push *p, const char *url, const char *type,
                      const char *body, uint64_t n, int *status, af_error *err)
{
    af_status st = AF_OK;
    af_ask a = {.method = body ? "POST" : "GET",
                .url = url,
                .type = body ? type : NULL,
                .body = body,
                .size = n,
                .limit = 64 << 20,
                .is_slow = true};
    af_ask_run(&a, p->client);
    if (status)
        *status = a.status;
    const bool exists = status && a.status == 409 && a.why.code == AF_OK;
    char said[260];
    if (a.status == 403 && a.of_hub) { /* also when its storage is full */
        af_ask_words(said, &a, p->client);
        AF_TRY(af_fail_subject(err, AF_EUSAGE, "token",
                               "the account of %s may not write to '%s'%s%s%s: %s/settings/tokens "
                               "makes a token that may",
                               p->client->token_from, p->repo->name, *said ? " (" : "", said,
                               *said ? ")" : "", p->client->endpoint));
    }
    if (a.state != AF_ASK_DONE && !exists)
        AF_TRY(af_ask_fail(&a, p->client, p->repo, NULL, err));
    if (answer)
        AF_TRY(af_json_parse(answer, a.text.data ? a.text.data : "", a.text.len, url, err));
done:
    af_ask_clear(&a, p->client);
    return st;
}

/* The address of what happens to the branch; free(). */
static char *branch_url(const af_push *p, const char *what)
{
    return af_hub_api_url(p->client, p->repo, what, p->repo->revision, "");
}

/* ---- repository and branch ---- */

/* It was not created: it exists, or (`st` is the refusal, kept in *err) the token may only write to
 * what exists. What should be private does not go to a public one. */
static af_status check_existing(const af_push *p, bool is_private, af_status st, af_error *err)
{
    af_buf url = {0};
    json_t *answer = NULL;
    af_error why = {0};
    af_buf_printf(&url, "%s/api/%s/%s", p->client->endpoint, af_hub_kind_name(p->repo->kind),
                  p->repo->name);
    const af_status there = url.bad ? af_fail_nomem(&why, "an address", 0)
                                    : af_push_ask(&answer, p, url.data, NULL, NULL, 0, NULL, &why);
    if (there != AF_OK && st == AF_OK) {
        *err = why;
        st = there;
    } else if (there == AF_OK && is_private && !json_is_true(json_object_get(answer, "private"))) {
        st =
            af_fail(err, AF_EUSAGE,
                    "'%s' exists and is not private: make it private at %s/%s%s/settings, or leave "
                    "out --private",
                    p->repo->name, p->client->endpoint,
                    p->repo->kind == AF_HUB_DATASET ? "datasets/" : "", p->repo->name);
    } else if (there == AF_OK) {
        st = AF_OK;
    }
    json_decref(answer);
    af_buf_clear(&url);
    return st;
}

static af_status create_repo(const af_push *p, bool is_private, af_error *err)
{
    af_status st = AF_OK;
    int status = 0;
    af_buf url = {0};
    const char *slash = strchr(p->repo->name, '/');
    json_t *j = json_pack("{s:s, s:s}", "name", slash ? slash + 1 : p->repo->name, "type",
                          p->repo->kind == AF_HUB_DATASET ? "dataset" : "model");
    if (slash)
        json_object_set_new(j, "organization",
                            json_stringn(p->repo->name, (size_t)(slash - p->repo->name)));
    json_object_set_new(j, "private", json_boolean(is_private));
    json_object_set_new(j, "visibility", json_string(is_private ? "private" : "public"));
    char *text = j ? af_json_dump(j, JSON_COMPACT) : NULL;
    af_buf_printf(&url, "%s/api/repos/create", p->client->endpoint);
    if (!text || url.bad)
        AF_TRY(af_fail_nomem(err, "a question", 0));
    st = af_push_ask(NULL, p, url.data, type_json, text, strlen(text), &status, err);
    if (status == 403 || (status == 409 && is_private))
        st = check_existing(p, is_private, st, err);
done:
    json_decref(j);
    free(text);
    af_buf_clear(&url);
    return st;
}

static af_status create_branch(const af_push *p, af_error *err)
{
    int status = 0;
    if (strcmp(p->repo->revision, "main") == 0 || strncmp(p->repo->revision, "refs/", 5) == 0)
        return AF_OK; /* refs/pr/1 is a pull request, not a branch to create */
    char *url = branch_url(p, "branch");
    if (!url)
        return af_fail_nomem(err, "an address", 0);
    const af_status st = af_push_ask(NULL, p, url, type_json, "{}", 2, &status, err);
    free(url);
    return st;
}

/* ---- which files go where ---- */

static af_status read_some(char **out, uint64_t *n, const af_push_file *f, uint64_t most,
                           af_error *err)
{
    if (f->text) {
        *n = AF_MIN(f->size, most);
        *out = af_strndup(f->text, *n);
        return *out ? AF_OK : af_fail_nomem(err, "a file", *n);
    }
    af_map m = {0};
    af_status st = af_map_open(&m, f->path, err);
    if (st != AF_OK)
        return st;
    *n = AF_MIN(m.size, most);
    *out = malloc(*n + 1);
    if (*out)
        memcpy(*out, m.data, *n);
    af_map_close(&m);
    return *out ? AF_OK : af_fail_nomem(err, "a file", *n);
}

static af_status add_sample(json_t *list, const af_push_file *f, af_error *err)
{
    char *bytes = NULL;
    uint64_t n = 0;
    af_buf sample = {0};
    const af_status st = read_some(&bytes, &n, f, SAMPLE, err);
    if (st != AF_OK)
        return st;
    af_buf_base64(&sample, bytes, n);
    json_array_append_new(list,
                          json_pack("{s:s, s:s, s:I}", "path", f->name, "sample",
                                    sample.data ? sample.data : "", "size", (json_int_t)f->size));
    af_buf_clear(&sample);
    free(bytes);
    return AF_OK;
}

/* "uploadMode": "lfs" or "regular", "oid": what the branch has. */
static af_status take_mode(af_push_file *f, const json_t *answer, af_error *err)
{
    json_t *row;
    size_t i;
    json_array_foreach(json_object_get(answer, "files"), i, row)
    {
        const char *path = json_string_value(json_object_get(row, "path"));
        const char *mode = json_string_value(json_object_get(row, "uploadMode"));
        const char *oid = json_string_value(json_object_get(row, "oid"));
        if (!path || !mode || strcmp(path, f->name) != 0)
            continue;
        f->large = strcmp(mode, "lfs") == 0 && f->size > 0; /* the storage takes no empty file */
        f->known = oid && strcmp(oid, f->large ? f->sha256 : f->oid) == 0;
        return AF_OK;
    }
    return af_fail(err, AF_EFORMAT, "the hub does not say how to upload '%s'", f->name);
}

static af_status ask_modes(af_push *p, int from, int to, const char *url, af_error *err)
{
    af_status st = AF_OK;
    json_t *list = json_array(), *answer = NULL, *j = NULL;
    char *text = NULL;
    for (int i = from; i < to; i++)
        AF_TRY(add_sample(list, &p->file[i], err));
    j = json_pack("{s:O}", "files", list);
    text = j ? af_json_dump(j, JSON_COMPACT) : NULL;
    if (!text)
        AF_TRY(af_fail_nomem(err, "a question", 0));
    AF_TRY(af_push_ask(&answer, p, url, type_json, text, strlen(text), NULL, err));
    for (int i = from; i < to; i++)
        AF_TRY(take_mode(&p->file[i], answer, err));
done:
    json_decref(answer);
    json_decref(j);
    json_decref(list);
    free(text);
    return st;
}

/* ---- the commit ---- */

static af_status add_line(af_buf *b, const char *key, json_t *value, af_error *err)
{
    json_t *j = json_pack("{s:s, s:o}", "key", key, "value", value);
    char *text = j ? af_json_dump(j, JSON_COMPACT) : NULL;
    json_decref(j);
    if (!text)
        return af_fail_nomem(err, "a commit", 0);
    af_buf_printf(b, "%s\n", text);
    free(text);
    return AF_OK;
}

static af_status add_file(af_buf *b, const af_push_file *f, af_error *err)
{
    af_status st = AF_OK;
    char *bytes = NULL;
    uint64_t n = 0;
    af_buf content = {0};
    if (f->large)
        return add_line(b, "lfsFile",
                        json_pack("{s:s, s:s, s:s, s:I}", "path", f->name, "algo", "sha256", "oid",
                                  f->sha256, "size", (json_int_t)f->size),
                        err);
    AF_TRY(read_some(&bytes, &n, f, f->size, err));
    af_buf_base64(&content, bytes, n);
    if (content.bad)
        AF_TRY(af_fail_nomem(err, "a file", n));
    AF_TRY(add_line(b, "file",
                    json_pack("{s:s, s:s, s:s}", "content", content.data ? content.data : "",
                              "path", f->name, "encoding", "base64"),
                    err));
done:
    af_buf_clear(&content);
    free(bytes);
    return st;
}

static af_status commit(char **address, const af_push *p, const char *message, af_error *err)
{
    af_status st = AF_OK;
    json_t *answer = NULL;
    af_buf b = {0};
    char *url = branch_url(p, "commit");
    AF_TRY(add_line(&b, "header", json_pack("{s:s, s:s}", "summary", message, "description", ""),
                    err));
    for (int i = 0; i < p->count; i++)
        if (!p->file[i].known)
            AF_TRY(add_file(&b, &p->file[i], err));
    if (!url || b.bad)
        AF_TRY(af_fail_nomem(err, "a commit", b.len));
    AF_TRY(af_push_ask(&answer, p, url, "Content-Type: application/x-ndjson", b.data, b.len, NULL,
                       err));
    const char *where = json_string_value(json_object_get(answer, "commitUrl"));
    bool plain = where && *where; /* it is printed: nothing that a terminal would obey */
    for (const char *s = where; plain && *s; s++)
        plain = (unsigned char)*s > ' ' && *s != 0x7f;
    if (!plain)
        AF_TRY(af_fail(err, AF_EFORMAT, "the hub does not say the address of the commit"));
    *address = af_strdup(where);
    if (!*address)
        AF_TRY(af_fail_nomem(err, "an address", 0));
done:
    json_decref(answer);
    af_buf_clear(&b);
    free(url);
    return st;
}

/* The branch has all of it already. */
static af_status present(char **address, const af_push *p, af_error *err)
{
    char sha[AF_HUB_COMMIT + 1];
    af_buf b = {0};
    const af_status st = af_hub_ask_commit(sha, p->client, p->repo, err);
    if (st != AF_OK)
        return st;
    af_buf_printf(&b, "%s/%s%s/commit/%s", p->client->endpoint,
                  p->repo->kind == AF_HUB_DATASET ? "datasets/" : "", p->repo->name, sha);
    *address = af_buf_take(&b);
    af_buf_clear(&b);
    return *address ? AF_OK : af_fail_nomem(err, "an address", 0);
}

/* ---- the push ---- */

static af_status push(af_push *p, char **address, const char *folder, const af_push_opts *o,
                      af_error *err)
{
    af_status st = AF_OK;
    char usual[AF_HUB_NAME_MAX + 40], *url = NULL;
    int left = 0;
    AF_TRY(af_push_list(p, folder, err));
    AF_TRY(create_repo(p, o->private_repo, err));
    AF_TRY(create_branch(p, err));
    url = branch_url(p, "preupload");
    if (!url)
        AF_TRY(af_fail_nomem(err, "an address", 0));
    for (int i = 0; i < p->count; i += ASK_FILES)
        AF_TRY(ask_modes(p, i, AF_MIN(i + ASK_FILES, p->count), url, err));
    for (int i = 0; i < p->count; i++) {
        left += !p->file[i].known;
        p->meter->p.files += p->file[i].large && !p->file[i].known;
        p->meter->p.total += p->file[i].large && !p->file[i].known ? p->file[i].size : 0;
    }
    AF_TRY(af_push_large(p, err));
    AF_TRY(af_hub_meter_tell(p->meter, p->client->net->now(p->client->net), p->sent, true, err));
    snprintf(usual, sizeof usual, "Upload %s with afinar", af_path_name(p->repo->name));
    if (left > 0)
        AF_TRY(commit(address, p, o->message && *o->message ? o->message : usual, err));
    else
        AF_TRY(present(address, p, err));
done:
    free(url);
    return st;
}

af_status af_hub_push(char **address, const char *folder, const char *repo, const af_push_opts *o,
                      af_error *err)
{
    AF_NEED(err, address, folder, repo, o);
    af_status st = AF_OK;
    af_hub_repo r;
    af_hub_client c = {0};
    af_error unread;
    err = af_error_or(err, &unread);
    af_hub_meter m = {.o = &o->hub, .p = {.upload = true, .repo = repo}};
    af_push p = {.client = &c, .repo = &r, .meter = &m};
    AF_TRY(
        af_hub_repo_parse(&r, o->dataset ? AF_HUB_DATASET : AF_HUB_MODEL, repo, o->revision, err));
    if (!af_hub_is_name(repo))
        AF_TRY(af_fail(err, AF_EUSAGE, "'%s' has no owner: ORG/NAME is expected", repo));
    if (o->hub.offline || af_hub_env_offline())
        AF_TRY(af_fail(err, AF_EUSAGE,
                       "nothing can be uploaded: the network is not used (--offline, "
                       "HF_HUB_OFFLINE)"));
    AF_TRY(af_hub_client_open(&c, o->hub.token_file, NULL, err));
    if (!c.token)
        AF_TRY(af_fail_subject(err, AF_EUSAGE, "token",
                               "an upload needs a token that may write: set HF_TOKEN to one of "
                               "%s/settings/tokens",
                               c.endpoint));
    AF_TRY(push(&p, address, folder, o, err));
done:
    af_push_clear(&p);
    af_hub_client_close(&c, true);
    return st;
}
