/* hub_client.c - which hub, with which token; and what its refusals mean for the user. */
#include "base/file.h"
#include "format/hub/hub_name.h"
#include "format/text/json_text.h"
#include "hub/hub_ask.h"

#include <strings.h>

static bool is_set(const char *name)
{
    const char *v = getenv(name);
    return v && (strcmp(v, "1") == 0 || strcasecmp(v, "true") == 0 || strcasecmp(v, "yes") == 0 ||
                 strcasecmp(v, "on") == 0);
}

bool af_hub_env_offline(void)
{
    const char *own = getenv("HF_HUB_OFFLINE");
    return own && *own ? is_set("HF_HUB_OFFLINE") : is_set("TRANSFORMERS_OFFLINE");
}

/* HF_TOKEN_PATH, or the file `token` next to the cache. */
static char *token_path(void)
{
    const char *own = getenv("HF_TOKEN_PATH");
    if (own && *own)
        return af_path_expand(own);
    char *home = af_hf_home(), *path = home ? af_path_join(home, "token") : NULL;
    free(home);
    return path;
}

/* Takes a token without the blanks around it; one that cannot be a header is refused unseen. */
static af_status take_token(af_hub_client *c, const char *text, const char *from, af_error *err)
{
    const char *end = text + strlen(text);
    while (*text && strchr(" \t\r\n", *text))
        text++;
    while (end > text && strchr(" \t\r\n", end[-1]))
        end--;
    if (end == text)
        return AF_OK;
    for (const char *s = text; s < end; s++)
        if (*s <= ' ' || *s >= 0x7f || end - text > 500)
            return af_fail(err, AF_EUSAGE, "what %s holds is not a token of the hub", from);
    c->token = af_strndup(text, (uint64_t)(end - text));
    snprintf(c->token_from, sizeof c->token_from, "%s", from);
    return c->token ? AF_OK : af_fail_nomem(err, "a token", (uint64_t)(end - text));
}

static af_status find_token(af_hub_client *c, const char *token_file, af_error *err)
{
    af_status st = AF_OK;
    const char *own = getenv("HF_TOKEN"), *old = getenv("HUGGING_FACE_HUB_TOKEN");
    char *path = NULL, *text = NULL;
    uint64_t size = 0;
    if (token_file) {
        AF_TRY(af_file_read(&text, &size, token_file, 4096, err));
        AF_TRY(take_token(c, text, "--token-file", err));
        if (!c->token)
            AF_TRY(af_fail(err, AF_EUSAGE, "--token-file '%s' is empty", token_file));
        goto done;
    }
    if (own && *own) {
        AF_TRY(take_token(c, own, "HF_TOKEN", err));
        goto done;
    }
    if (old && *old) {
        AF_TRY(take_token(c, old, "HUGGING_FACE_HUB_TOKEN", err));
        goto done;
    }
    if (is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN"))
        goto done;
    path = token_path();
    if (!path)
        AF_TRY(af_fail_nomem(err, "a path", 0));
    if (af_file_exists(path)) {
        AF_TRY(af_file_read(&text, &size, path, 4096, err));
        AF_TRY(take_token(c, text, "the token file of HF_HOME", err));
    }
done:
    free(path);
    free(text);
    return st;
}

af_status af_hub_client_open(af_hub_client *out, const char *token_file, af_transport *net,
                             af_error *err)
{
    af_status st = AF_OK;
    char agent[64];
    const char *own = getenv("HF_ENDPOINT"), *stall = getenv("HF_HUB_DOWNLOAD_TIMEOUT");
    af_hub_client c = {.net = net};
    const long seconds = stall ? strtol(stall, NULL, 10) : 0;
    c.stall_s = seconds > 0 && seconds <= 3600 ? (int)seconds : 10;
    c.endpoint = af_strdup(own && *own ? own : "https://huggingface.co");
    if (!c.endpoint)
        AF_TRY(af_fail_nomem(err, "an address", 0));
    for (size_t n = strlen(c.endpoint); n > 0 && c.endpoint[n - 1] == '/'; n--)
        c.endpoint[n - 1] = '\0';
    if (!af_url_origin(c.origin, c.endpoint) || strpbrk(c.endpoint, "?#"))
        AF_TRY(strchr(own, '@')
                   ? af_fail(err, AF_EUSAGE,
                             "HF_ENDPOINT has an '@': an address of a hub has no user or password")
                   : af_fail(err, AF_EUSAGE,
                             "HF_ENDPOINT is '%s', which is not the address of a hub (https://...)",
                             own));
    AF_TRY(find_token(&c, token_file, err));
    snprintf(agent, sizeof agent, "afinar/%s", af_version());
    if (!net)
        AF_TRY(af_curl_open(&c.net, agent, err));
    *out = c;
    return AF_OK;
done:
    af_hub_client_close(&c, false);
    return st;
}

void af_hub_client_close(af_hub_client *c, bool with_net)
{
    if (c->token)
        memset(c->token, 0, strlen(c->token));
    free(c->token);
    free(c->endpoint);
    if (with_net && c->net)
        c->net->close(c->net);
    *c = (af_hub_client){0};
}

/* ---- refusals ---- */

/* The page of a repository: where access is asked for. */
static void page_of(char *out, size_t size, const af_hub_client *c, const af_hub_repo *r)
{
    snprintf(out, size, "%s/%s%s", c->endpoint, r->kind == AF_HUB_DATASET ? "datasets/" : "",
             r->name);
}

static af_status fail_gated(const af_hub_client *c, const char *page, const af_hub_repo *r,
                            af_error *err)
{
    if (!c->token)
        return af_fail_subject(err, AF_EUSAGE, "gated",
                               "access to '%s' is restricted: visit %s and ask for it, then set "
                               "HF_TOKEN to a token of %s/settings/tokens",
                               r->name, page, c->endpoint);
    return af_fail_subject(err, AF_EUSAGE, "gated",
                           "access to '%s' is restricted, and the account of %s does not have it: "
                           "visit %s and ask for it",
                           r->name, c->token_from, page);
}

static af_status fail_absent(const af_hub_client *c, const char *page, const af_hub_repo *r,
                             af_error *err)
{
    char hint[400];
    if (c->token)
        snprintf(hint, sizeof hint, "or the account of %s may not see it", c->token_from);
    else
        snprintf(hint, sizeof hint,
                 "or it is private: then set HF_TOKEN to a token of %s/settings/tokens",
                 c->endpoint);
    return af_fail_subject(err, AF_EUSAGE, "absent", "there is no %s '%s' (%s), %s",
                           r->kind == AF_HUB_DATASET ? "dataset" : "model", r->name, page, hint);
}

void af_ask_words(char out[260], const af_ask *a, const af_hub_client *c)
{
    json_t *j =
        a->text.len && a->text.data ? af_json_load(a->text.data, a->text.len, 0, NULL) : NULL;
    const char *said = json_string_value(json_object_get(j, "error"));
    const char *text = *a->call.head.error_message ? a->call.head.error_message : said ? said : "";
    size_t n = 0;
    if (c->token && strstr(text, c->token))
        text = "";
    for (; *text && n < 240; text++)
        if ((unsigned char)*text >= ' ' && *text != 0x7f)
            out[n++] = *text;
    out[n] = '\0';
    json_decref(j);
}

af_status af_ask_fail(const af_ask *a, const af_hub_client *c, const af_hub_repo *r,
                      const char *file, af_error *err)
{
    char page[600] = "", said[260];
    const char *code = a->call.head.error_code;
    if (a->why.code != AF_OK)
        return af_fail_subject(err, a->why.code, a->why.subject, "%s%s%s", file ? file : "",
                               file ? ": " : "", a->why.msg);
    if (r)
        page_of(page, sizeof page, c, r);
    af_ask_words(said, a, c);
    if (r && strcmp(code, "GatedRepo") == 0)
        return fail_gated(c, page, r, err);
    if (r && strcmp(code, "RevisionNotFound") == 0)
        return af_fail_subject(err, AF_EUSAGE, "absent", "%s has no revision '%s' (%s)", r->name,
                               r->revision, page);
    if (a->status == 401 && c->token && strcmp(code, "RepoNotFound") != 0)
        return af_fail_subject(err, AF_EUSAGE, "token",
                               "the hub refuses the token of %s%s%s%s; %s/settings/tokens makes "
                               "another",
                               c->token_from, *said ? " (" : "", said, *said ? ")" : "",
                               c->endpoint);
    if (r && (strcmp(code, "RepoNotFound") == 0 || a->status == 401 ||
              (a->status == 404 && !*code && !file)))
        return fail_absent(c, page, r, err);
    if (r && a->status == 403 && a->of_hub)
        return af_fail_subject(
            err, AF_EUSAGE, "refused",
            "the hub refuses access to '%s'%s%s%s: visit %s, and set HF_TOKEN to "
            "a token that has it (%s/settings/tokens)",
            r->name, *said ? " (" : "", said, *said ? ")" : "", page, c->endpoint);
    return af_fail(err, AF_EIO, "%s%s%s answers with status %d%s%s", file ? file : "",
                   file ? ": " : "", a->where, a->status, *said ? ": " : "", said);
}
