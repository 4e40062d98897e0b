/* response_store.c - answers that a later request may continue, in memory and up to a limit. */
#include "serve/api/responses.h"

#include <strings.h>

struct af_stored_response {
    char id[48];
    char *object, *items;
    uint64_t input; /* bytes of the items before the answer */
    uint64_t bytes;
    af_stored_response *next;
};

af_status af_response_store_new(af_response_store **out, af_error *err)
{
    af_response_store *s = af_calloc(1, sizeof *s);
    if (!s)
        return af_fail_nomem(err, "the store of responses", sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    s->last = &s->first;
    *out = s;
    return AF_OK;
}

static void free_one(af_stored_response *r)
{
    free(r->object);
    free(r->items);
    free(r);
}

/* Takes *at out of the list. */
static void unlink_one(af_response_store *s, af_stored_response **at)
{
    af_stored_response *r = *at;
    *at = r->next;
    if (!r->next)
        s->last = at;
    s->bytes -= r->bytes;
    s->count--;
    free_one(r);
}

void af_response_store_free(af_response_store *s)
{
    if (!s)
        return;
    while (s->first)
        unlink_one(s, &s->first);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void af_response_store_add(af_response_store *s, const char *id, char *object, char *items,
                           uint64_t input)
{
    af_stored_response *r = af_calloc(1, sizeof *r);
    if (!r) { /* not kept: a request that continues it is refused */
        free(object);
        free(items);
        return;
    }
    snprintf(r->id, sizeof r->id, "%s", id);
    r->object = object;
    r->items = items;
    r->input = input;
    r->bytes = sizeof *r + strlen(object) + strlen(items) + 2;
    pthread_mutex_lock(&s->lock);
    *s->last = r;
    s->last = &r->next;
    s->bytes += r->bytes;
    s->count++;
    while (s->first && (s->count > AF_RESPONSES_MAX || s->bytes > AF_RESPONSES_BYTES_MAX))
        unlink_one(s, &s->first);
    pthread_mutex_unlock(&s->lock);
}

static af_stored_response **place_of(af_response_store *s, const char *id)
{
    af_stored_response **at = &s->first;
    while (*at && strcmp((*at)->id, id) != 0)
        at = &(*at)->next;
    return at;
}

char *af_response_store_get(af_response_store *s, const char *id, af_stored_part part)
{
    pthread_mutex_lock(&s->lock);
    const af_stored_response *r = *place_of(s, id);
    char *text = NULL;
    if (r && part == AF_STORED_INPUT)
        text = af_strndup(r->items, r->input);
    else if (r)
        text = af_strdup(part == AF_STORED_ITEMS ? r->items : r->object);
    pthread_mutex_unlock(&s->lock);
    return text;
}

static bool remove_response(af_response_store *s, const char *id)
{
    pthread_mutex_lock(&s->lock);
    af_stored_response **at = place_of(s, id);
    const bool found = *at != NULL;
    if (found)
        unlink_one(s, at);
    pthread_mutex_unlock(&s->lock);
    return found;
}

/* ---- endpoints ---- */

static const char *id_of(const af_httpd_call *c)
{
    return af_httpd_head(c)->path + strlen("/v1/responses/");
}

void af_response_not_stored(af_httpd_call *c, const char *id)
{
    af_api_refuse(c, 404, NULL, "response_id",
                  "response '%.100s' is not stored: unknown, deleted, or older than those kept",
                  id);
}

void af_api_response(af_api *a, af_httpd_call *c, const json_t *body)
{
    (void)body;
    static const char input[] = "/input_items";
    const char *id = id_of(c);
    const size_t n = strcspn(id, "/");
    char value[8];
    const char *stream = af_request_query(af_httpd_head(c), "stream", value, sizeof value);
    if (stream && strcasecmp(stream, "true") == 0) {
        af_api_refuse(c, 400, NULL, "stream", "a stored response is not streamed again");
        return;
    }
    if (strcmp(id + n, input) == 0) {
        char cut[sizeof((af_stored_response *)0)->id];
        snprintf(cut, sizeof cut, "%.*s", (int)n, id);
        af_response_list_input(a, c, cut);
        return;
    }
    char *text = af_response_store_get(a->responses, id, AF_STORED_OBJECT);
    if (text)
        af_httpd_answer(c, 200, "application/json", text, strlen(text));
    else
        af_response_not_stored(c, id);
    free(text);
}

void af_api_delete_response(af_api *a, af_httpd_call *c, const json_t *body)
{
    af_buf b = {0};
    (void)body;
    if (!remove_response(a->responses, id_of(c))) {
        af_response_not_stored(c, id_of(c));
        return;
    }
    af_buf_str(&b, "{\"id\":");
    af_out_cstring(&b, id_of(c));
    af_buf_str(&b, ",\"object\":\"response\",\"deleted\":true}");
    af_api_answer(c, &b);
}
