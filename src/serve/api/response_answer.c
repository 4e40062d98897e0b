/* response_answer.c - the answer of /v1/responses: reasoning, messages and calls as items.
 *
 * Each item is complete once, and is then added to the output; a stream sends events on the way.
 * So the answer in one piece and the last event of a stream have the same items. */
#include "serve/api/responses.h"

/* ---- the object ---- */

static void out_usage(af_buf *b, const af_generation *g)
{
    const int64_t in = g->prompt->count, made = g->choice->text.count;
    af_buf_printf(b,
                  "{\"input_tokens\":%" PRId64
                  ",\"input_tokens_details\":{\"cached_tokens\":%" PRId64
                  ",\"cache_write_tokens\":0},\"output_tokens\":%" PRId64
                  ",\"output_tokens_details\":{\"reasoning_tokens\":%" PRId64
                  "},\"total_tokens\":%" PRId64 "}",
                  in, af_generation_cached(g), made, g->choice->reasoning.tokens, in + made);
}

/* `status`: in_progress, completed, incomplete, failed; `message`: why it failed, or NULL. */
static void out_response(af_buf *b, const af_generation *g, const char *status, const char *message)
{
    const af_response *r = g->response;
    af_buf_printf(b,
                  "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%" PRId64
                  ",\"status\":\"%s\",\"error\":",
                  g->id, g->created, status);
    if (message) {
        af_buf_str(b, "{\"code\":\"server_error\",\"message\":");
        af_out_cstring(b, message);
        af_buf_char(b, '}');
    } else {
        af_buf_str(b, "null");
    }
    af_buf_printf(b, ",\"incomplete_details\":%s,\"model\":",
                  strcmp(status, "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}"
                                                    : "null");
    af_out_cstring(b, g->model->name);
    af_buf_printf(b, ",%s,\"output\":[", r->echo);
    const af_buf *output = &g->choice->items.output;
    af_buf_add(b, output->data ? output->data : "", output->len);
    b->bad = b->bad || output->bad;
    af_buf_str(b, "],\"usage\":");
    if (strcmp(status, "in_progress") == 0 || message)
        af_buf_str(b, "null");
    else
        out_usage(b, g);
    af_buf_char(b, '}');
}

static const char *status_of(const af_generation *g)
{
    const char *finish = g->choice->finish;
    return finish && strcmp(finish, "length") == 0 ? "incomplete" : "completed";
}

/* ---- events ---- */

static void begin_event(af_buf *b, af_generation *g, const char *name)
{
    af_buf_printf(b, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%d", name, name,
                  g->response->events++);
}

/* An event about the item that is being written. */
static void begin_item_event(af_buf *b, af_generation *g, const char *name, const char *kind)
{
    begin_event(b, g, name);
    af_buf_printf(b, ",\"output_index\":%d", g->choice->items.count);
    if (kind)
        af_buf_printf(b, ",\"item_id\":\"%s_%s_%d\"", kind, g->id + strlen("resp_"),
                      g->choice->items.count);
}

static void send_response(af_generation *g, const char *name, const char *status,
                          const char *message)
{
    af_buf b = {0};
    begin_event(&b, g, name);
    af_buf_str(&b, ",\"response\":");
    out_response(&b, g, status, message);
    af_answer_send(g, &b);
}

/* output_item.added or .done, with the item as it is then. */
static void send_item(af_generation *g, const char *name, const af_buf *item)
{
    af_buf b = {0};
    begin_item_event(&b, g, name, NULL);
    af_buf_str(&b, ",\"item\":");
    af_buf_add(&b, item->data ? item->data : "", item->len);
    b.bad = b.bad || item->bad;
    af_answer_send(g, &b);
}

/* The item is complete. */
static void add_item(af_generation *g, af_buf *item)
{
    if (g->stream)
        send_item(g, "response.output_item.done", item);
    af_items_add(g->choice, item);
}

/* ---- reasoning ---- */

static void out_reasoning_part(af_buf *b, const char *text, uint64_t n)
{
    af_buf_str(b, "{\"type\":\"reasoning_text\",\"text\":");
    af_out_string(b, text, n);
    af_buf_char(b, '}');
}

/* The item; `text` NULL while it is being written. */
static void out_reasoning(af_buf *b, const af_choice *c, const char *status, const char *text,
                          uint64_t n)
{
    const af_generation *g = c->of;
    af_buf_printf(b,
                  "{\"id\":\"rs_%s_%d\",\"type\":\"reasoning\",\"status\":\"%s\",\"summary\":[],"
                  "\"content\":[",
                  g->id + strlen("resp_"), c->items.count, status);
    if (text)
        out_reasoning_part(b, text, n);
    af_buf_str(b, "]}");
}

/* An event about its one part: `member` is this text. */
static void send_reasoning(af_generation *g, const char *name, const char *member, const char *text,
                           uint64_t n)
{
    af_buf b = {0};
    begin_item_event(&b, g, name, "rs");
    af_buf_printf(&b, ",\"content_index\":0,\"%s\":", member);
    if (strcmp(member, "part") == 0)
        out_reasoning_part(&b, text, n);
    else
        af_out_string(&b, text, n);
    af_answer_send(g, &b);
}

static void open_reasoning(af_choice *c)
{
    af_generation *g = c->of;
    af_buf item = {0};
    if (!g->stream)
        return;
    out_reasoning(&item, c, "in_progress", NULL, 0);
    send_item(g, "response.output_item.added", &item);
    af_buf_clear(&item);
    send_reasoning(g, "response.content_part.added", "part", "", 0);
}

static void close_reasoning(af_choice *c, const char *text, uint64_t n, bool whole)
{
    af_generation *g = c->of;
    af_buf item = {0};
    if (g->stream) {
        send_reasoning(g, "response.reasoning_text.done", "text", text, n);
        send_reasoning(g, "response.content_part.done", "part", text, n);
    }
    out_reasoning(&item, c, whole ? "completed" : "incomplete", text, n);
    add_item(g, &item);
}

/* ---- messages ---- */

static void out_part(af_buf *b, const char *text, uint64_t n, const af_buf *logprobs)
{
    af_buf_str(b, "{\"type\":\"output_text\",\"text\":");
    af_out_string(b, text, n);
    af_buf_str(b, ",\"annotations\":[],\"logprobs\":[");
    if (logprobs)
        af_buf_add(b, logprobs->data ? logprobs->data : "", logprobs->len);
    af_buf_str(b, "]}");
}

static void out_message_head(af_buf *b, const af_generation *g, const char *status)
{
    af_buf_printf(b,
                  "{\"id\":\"msg_%s_%d\",\"type\":\"message\",\"status\":\"%s\","
                  "\"role\":\"assistant\",\"content\":[",
                  g->id + strlen("resp_"), g->choice->items.count, status);
}

static void open_message(af_choice *c)
{
    af_generation *g = c->of;
    g->response->logprobs.len = 0;
    if (!g->stream)
        return;
    af_buf b = {0};
    out_message_head(&b, g, "in_progress");
    af_buf_str(&b, "]}");
    send_item(g, "response.output_item.added", &b);
    b.len = 0;
    begin_item_event(&b, g, "response.content_part.added", "msg");
    af_buf_str(&b, ",\"content_index\":0,\"part\":");
    out_part(&b, "", 0, NULL);
    af_answer_send(g, &b);
}

/* Log-probabilities since the last call of this, to the message. */
static void take_logprobs(af_choice *c, af_buf *delta)
{
    af_buf *all = &c->of->response->logprobs, *more = &c->logprobs.content;
    if (more->len && delta)
        af_buf_add(delta, more->data, more->len);
    if (more->len) {
        af_buf_str(all, all->len ? "," : "");
        af_buf_add(all, more->data, more->len);
    }
    more->len = 0;
    c->logprobs.tokens = 0;
}

static void add_text(af_choice *c, const char *text, uint64_t n)
{
    af_generation *g = c->of;
    af_buf b = {0};
    if (!g->stream) {
        take_logprobs(c, NULL);
        return;
    }
    begin_item_event(&b, g, "response.output_text.delta", "msg");
    af_buf_str(&b, ",\"content_index\":0,\"delta\":");
    af_out_string(&b, text, n);
    af_buf_str(&b, ",\"logprobs\":[");
    take_logprobs(c, &b);
    af_buf_char(&b, ']');
    af_answer_send(g, &b);
}

static void close_message(af_choice *c, const char *text, uint64_t n, bool whole)
{
    af_generation *g = c->of;
    af_response *r = g->response;
    if (c->done && g->stream && c->logprobs.content.len)
        add_text(c, "", 0); /* tokens without a text of their own, as the end */
    if (c->done)            /* not before a call: those of the call belong to no message */
        take_logprobs(c, NULL);
    af_buf b = {0};
    if (g->stream) {
        begin_item_event(&b, g, "response.output_text.done", "msg");
        af_buf_str(&b, ",\"content_index\":0,\"text\":");
        af_out_string(&b, text, n);
        af_buf_str(&b, ",\"logprobs\":[");
        af_buf_add(&b, r->logprobs.data ? r->logprobs.data : "", r->logprobs.len);
        af_buf_char(&b, ']');
        af_answer_send(g, &b);
        begin_item_event(&b, g, "response.content_part.done", "msg");
        af_buf_str(&b, ",\"content_index\":0,\"part\":");
        out_part(&b, text, n, &r->logprobs);
        af_answer_send(g, &b);
    }
    out_message_head(&b, g, whole ? "completed" : "incomplete");
    out_part(&b, text, n, &r->logprobs);
    af_buf_str(&b, "]}");
    b.bad = b.bad || r->logprobs.bad;
    add_item(g, &b);
}

/* ---- calls ---- */

/* The fields of a call of a function, and of a call of a tool that takes a text. */
typedef struct call_words {
    const char *kind, *type, *member, *delta, *done;
} call_words;

static const call_words functions = {"fc", "function_call", "arguments",
                                     "response.function_call_arguments.delta",
                                     "response.function_call_arguments.done"};
static const call_words customs = {"ctc", "custom_tool_call", "input",
                                   "response.custom_tool_call_input.delta",
                                   "response.custom_tool_call_input.done"};

static void out_call(af_buf *b, const af_generation *g, const call_words *w,
                     const af_tool_call *call, const char *text)
{
    af_buf_printf(b, "{\"id\":\"%s_%s_%d\",\"type\":\"%s\",\"status\":\"%s\",", w->kind,
                  g->id + strlen("resp_"), g->choice->items.count, w->type,
                  text ? "completed" : "in_progress");
    af_buf_str(b, "\"call_id\":");
    af_out_cstring(b, call->id);
    af_buf_str(b, ",\"name\":");
    af_out_cstring(b, call->name);
    af_buf_printf(b, ",\"%s\":", w->member);
    af_out_cstring(b, text ? text : "");
    af_buf_char(b, '}');
}

static void send_text(af_generation *g, const call_words *w, const char *event, const char *member,
                      const char *text)
{
    af_buf b = {0};
    begin_item_event(&b, g, event, w->kind);
    af_buf_printf(&b, ",\"%s\":", member);
    af_out_cstring(&b, text);
    af_answer_send(g, &b);
}

static void add_call(af_choice *c, const af_tool_call *call)
{
    af_generation *g = c->of;
    const call_words *w = af_is_custom(g, call->name) ? &customs : &functions;
    json_t *tree = NULL;
    const char *text = w == &customs ? af_custom_input(call, &tree) : call->arguments;
    af_buf item = {0};
    c->logprobs.content.len = 0;
    c->logprobs.tokens = 0;
    if (g->stream) {
        out_call(&item, g, w, call, NULL);
        send_item(g, "response.output_item.added", &item);
        item.len = 0;
        send_text(g, w, w->delta, "delta", text);
        send_text(g, w, w->done, w->member, text);
    }
    out_call(&item, g, w, call, text);
    add_item(g, &item);
    json_decref(tree);
}

/* ---- items ---- */

static void open_item(af_choice *c, af_item_kind k)
{
    if (k == AF_ITEM_TEXT)
        open_message(c);
    else
        open_reasoning(c);
}

static void add_to_item(af_choice *c, af_item_kind k, const char *text, uint64_t n)
{
    if (k == AF_ITEM_TEXT)
        add_text(c, text, n);
    else if (c->of->stream)
        send_reasoning(c->of, "response.reasoning_text.delta", "delta", text, n);
}

static void close_item(af_choice *c, af_item_kind k, const char *text, uint64_t n, bool whole)
{
    if (k == AF_ITEM_TEXT)
        close_message(c, text, n, whole);
    else
        close_reasoning(c, text, n, whole);
}

/* ---- the answer ---- */

static void begin(af_generation *g)
{
    af_httpd_stream_begin(g->call, 200, "text/event-stream; charset=utf-8");
    send_response(g, "response.created", "in_progress", NULL);
    send_response(g, "response.in_progress", "in_progress", NULL);
}

/* For requests that continue it: all items, those of the answer included. */
static void keep(af_generation *g, const af_buf *object)
{
    af_response *r = g->response;
    af_buf items = {0};
    if (!r->items || object->bad || g->cut_off)
        return;
    af_buf_str(&items, r->items);
    const af_buf *output = &g->choice->items.output;
    if (*r->items && output->len)
        af_buf_char(&items, ',');
    af_buf_add(&items, output->data ? output->data : "", output->len);
    char *copy = af_strndup(object->data, object->len), *text = af_buf_take(&items);
    if (copy && text) {
        af_response_store_add(g->api->responses, g->id, copy, text, strlen(r->items));
        return;
    }
    free(copy);
    free(text);
}

static void end(af_generation *g)
{
    af_buf b = {0};
    const char *status = status_of(g);
    out_response(&b, g, status, NULL);
    keep(g, &b);
    if (g->stream) {
        const bool whole = strcmp(status, "completed") == 0;
        send_response(g, whole ? "response.completed" : "response.incomplete", status, NULL);
        af_httpd_stream_end(g->call);
        af_buf_clear(&b);
    } else {
        af_api_answer(g->call, &b);
    }
    g->answered = true;
}

static void fail(af_generation *g, int status, const char *message)
{
    (void)status;
    send_response(g, "response.failed", "failed", message);
    af_httpd_stream_end(g->call);
}

static const char *const names[][2] = {{"messages", "input"},
                                       {"max_completion_tokens", "max_output_tokens"},
                                       {"response_format", "text.format"},
                                       {NULL, NULL}};

const af_answer_form af_form_responses = {
    .id = "resp_",
    .chat = true,
    .read = af_response_read,
    .names = names,
    .begin = begin,
    .piece = af_items_piece,
    .call = af_items_call,
    .end = end,
    .fail = fail,
    .item = {open_item, add_to_item, close_item, add_call, .never_empty = true}};
