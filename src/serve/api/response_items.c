/* response_items.c - GET /v1/responses/ID/input_items: what a stored answer was made from.
 *
 * All items before the answer, those of the answers it continues included. An item that came
 * without an id gets one from its place, so that a client can ask for the page after it. */
#include "serve/api/responses.h"

#include "format/text/json_text.h"

enum { PAGE_MAX = 100 };

typedef struct item_page {
    int64_t limit;
    bool ascending;
    char after[100]; /* the id before the first item of the page; "": from the beginning */
} item_page;

static af_status read_page(const af_request_head *h, item_page *p, af_error *err)
{
    char text[24], *end;
    *p = (item_page){.limit = 20};
    if (af_request_query(h, "limit", text, sizeof text)) {
        p->limit = strtoll(text, &end, 10);
        if (!*text || *end || p->limit < 1 || p->limit > PAGE_MAX)
            return af_fail_subject(err, AF_EUSAGE, "limit", "'limit' is '%s', not from 1 to %d",
                                   text, PAGE_MAX);
    }
    if (af_request_query(h, "order", text, sizeof text)) {
        p->ascending = strcmp(text, "asc") == 0;
        if (!p->ascending && strcmp(text, "desc") != 0)
            return af_fail_subject(err, AF_EUSAGE, "order", "'order' is '%s', not asc or desc",
                                   text);
    }
    (void)af_request_query(h, "after", p->after, sizeof p->after);
    return AF_OK;
}

static const char *id_prefix(const char *type)
{
    static const char *const prefixes[][2] = {{"message", "msg"},
                                              {"function_call", "fc"},
                                              {"function_call_output", "fco"},
                                              {"custom_tool_call", "ctc"},
                                              {"custom_tool_call_output", "ctco"}};
    for (size_t i = 0; i < AF_LEN(prefixes); i++)
        if (strcmp(type, prefixes[i][0]) == 0)
            return prefixes[i][1];
    return "rs"; /* reasoning, the one other type that a request may have */
}

/* The members that the answer has and a request may leave out. */
static void complete_item(json_t *item, const char *response, size_t at)
{
    char id[100];
    json_t *content = json_object_get(item, "content");
    const char *role = json_string_value(json_object_get(item, "role"));
    if (!af_value(item, "type"))
        json_object_set_new(item, "type", json_string("message"));
    const char *type = json_string_value(json_object_get(item, "type"));
    if (!af_value(item, "id")) {
        snprintf(id, sizeof id, "%s_%s_in%zu", id_prefix(type), response + strlen("resp_"), at);
        json_object_set_new(item, "id", json_string(id));
    }
    if (!af_value(item, "status"))
        json_object_set_new(item, "status", json_string("completed"));
    if (role && json_is_string(content))
        json_object_set_new(item, "content",
                            json_pack("[{s:s, s:O}]", "type",
                                      strcmp(role, "assistant") == 0 ? "output_text" : "input_text",
                                      "text", content));
}

static const char *id_of(const json_t *item)
{
    const char *id = json_string_value(json_object_get(item, "id"));
    return id ? id : "";
}

static af_status list_page(const json_t *items, const item_page *p, json_t **out, af_error *err)
{
    const size_t n = json_array_size(items);
    json_t *data = json_array();
    size_t from = 0;
    if (*p->after) {
        while (from < n && strcmp(id_of(json_array_get(items, from)), p->after) != 0)
            from++;
        if (from == n) {
            json_decref(data);
            return af_fail_subject(err, AF_EUSAGE, "after", "there is no item '%s'", p->after);
        }
        from = p->ascending ? from + 1 : n - from; /* places in the order of the page */
    }
    const size_t end = AF_MIN(n, from + (size_t)p->limit);
    for (size_t i = from; i < end; i++)
        json_array_append(data, json_array_get(items, p->ascending ? i : n - 1 - i));
    const size_t count = json_array_size(data);
    *out = json_pack("{s:s, s:O, s:O?, s:O?, s:b}", "object", "list", "data", data, "first_id",
                     json_object_get(json_array_get(data, 0), "id"), "last_id",
                     json_object_get(count ? json_array_get(data, count - 1) : NULL, "id"),
                     "has_more", end < n);
    json_decref(data);
    return *out ? AF_OK : af_fail_nomem(err, "the list of items", 0);
}

void af_response_list_input(af_api *a, af_httpd_call *c, const char *id)
{
    af_status st = AF_OK;
    af_api_fault f = {0};
    af_buf b = {0};
    item_page page;
    json_t *items = NULL, *list = NULL;
    char *answer = NULL, *text = af_response_store_get(a->responses, id, AF_STORED_INPUT);
    if (!text) {
        af_response_not_stored(c, id);
        return;
    }
    AF_TRY(read_page(af_httpd_head(c), &page, &f.err));
    af_buf_printf(&b, "[%s]", text);
    items = b.bad ? NULL : af_json_load(b.data, b.len, JSON_ALLOW_NUL, NULL);
    if (!items)
        AF_TRY(af_fail_nomem(&f.err, "the items", 0));
    for (size_t i = 0; i < json_array_size(items); i++)
        complete_item(json_array_get(items, i), id, i);
    AF_TRY(list_page(items, &page, &list, &f.err));
    answer = af_json_dump(list, JSON_COMPACT);
    if (!answer)
        AF_TRY(af_fail_nomem(&f.err, "the list of items", 0));
    af_httpd_answer(c, 200, "application/json", answer, strlen(answer));
done:
    if (st != AF_OK)
        af_api_refuse_fault(c, &f);
    json_decref(items);
    json_decref(list);
    af_buf_clear(&b);
    free(answer);
    free(text);
}
