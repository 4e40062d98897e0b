/* hub_list.c - what the hub says of a repository: its commit, and the files of that. */
#include "base/file.h"
#include "format/text/json_text.h"
#include "hub/hub_pull.h"

enum { PAGES_MAX = 4096 };

const char *af_hub_kind_name(af_hub_kind kind)
{
    return kind == AF_HUB_DATASET ? "datasets" : "models";
}

char *af_hub_api_url(const af_hub_client *c, const af_hub_repo *r, const char *what,
                     const char *revision, const char *query)
{
    af_buf b = {0};
    af_buf_printf(&b, "%s/api/%s/%s/%s/", c->endpoint, af_hub_kind_name(r->kind), r->name, what);
    af_url_quote(&b, revision, false);
    af_buf_str(&b, query);
    char *url = af_buf_take(&b);
    af_buf_clear(&b);
    return url;
}

af_status af_hub_ask_commit(char commit[AF_HUB_COMMIT + 1], af_hub_client *c, const af_hub_repo *r,
                            af_error *err)
{
    af_status st = AF_OK;
    json_t *j = NULL;
    char *url = af_hub_api_url(c, r, "revision", r->revision, "");
    af_ask a = {.method = "GET", .url = url, .limit = 64 << 20};
    if (!url)
        return af_fail_nomem(err, "an address", 0);
    af_ask_run(&a, c);
    if (a.state != AF_ASK_DONE)
        AF_TRY(af_ask_fail(&a, c, r, NULL, err));
    AF_TRY(af_json_parse(&j, a.text.data ? a.text.data : "", a.text.len, url, err));
    const char *sha = json_string_value(json_object_get(j, "sha"));
    if (!sha || !af_hub_is_commit(sha))
        AF_TRY(af_fail(err, AF_EFORMAT, "%s does not say the commit of revision '%s'", c->endpoint,
                       r->revision));
    memcpy(commit, sha, AF_HUB_COMMIT + 1);
done:
    json_decref(j);
    af_ask_clear(&a, c);
    free(url);
    return st;
}

af_status af_hub_ask_tree(af_hub_tree *t, af_hub_client *c, const af_hub_repo *r,
                          const char *commit, af_error *err)
{
    af_status st = AF_OK;
    char next[AF_HTTP_URL_MAX], what[300];
    char *url = af_hub_api_url(c, r, "tree", commit, "?recursive=true&expand=false");
    af_ask a = {0};
    if (!url)
        return af_fail_nomem(err, "an address", 0);
    snprintf(what, sizeof what, "the list of files of %s", r->name);
    snprintf(next, sizeof next, "%s", url);
    for (int page = 0; *next; page++) {
        char here[AF_HTTP_URL_MAX];
        memcpy(here, next, sizeof here);
        if (page == PAGES_MAX)
            AF_TRY(af_fail(err, AF_EFORMAT, "%s has more than %d pages", what, PAGES_MAX));
        af_ask_clear(&a, c);
        a = (af_ask){.method = "GET", .url = here, .limit = 64 << 20};
        af_ask_run(&a, c);
        if (a.state != AF_ASK_DONE)
            AF_TRY(af_ask_fail(&a, c, r, NULL, err));
        AF_TRY(af_hub_tree_add_page(t, a.text.data ? a.text.data : "", a.text.len, what, err));
        char origin[300] = "";
        next[0] = '\0';
        if (*a.call.head.next && (!af_url_join(next, here, a.call.head.next) ||
                                  !af_url_origin(origin, next) || strcmp(origin, c->origin) != 0))
            AF_TRY(af_fail(err, AF_EFORMAT, "%s continues at another host", what));
    }
    AF_TRY(af_hub_tree_sort(t, what, err));
done:
    af_ask_clear(&a, c);
    free(url);
    return st;
}
