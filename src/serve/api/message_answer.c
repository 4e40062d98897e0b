/* message_answer.c - the answer of /v1/messages: thinking, text and tool_use blocks. */
#include "serve/api/messages.h"

#include "format/text/json_text.h"

/* ---- the object ---- */

static void out_usage(af_buf *b, const af_generation *g)
{
    const int64_t cached = af_generation_cached(g);
    af_buf_printf(b,
                  "\"usage\":{\"input_tokens\":%" PRId64
                  ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%" PRId64
                  ",\"output_tokens\":%" PRId64 "}",
                  g->prompt->count - cached, cached, g->choice->text.count);
}

/* The stop string of the request that ended the text, or NULL. */
static const char *stop_sequence(const af_choice *c)
{
    const char *hit = c->text.stopped, *eot = c->of->api->eot;
    return hit && eot && strcmp(hit, eot) == 0 ? NULL : hit;
}

/* "stop_reason" and "stop_sequence"; null while it goes on. */
static void out_end(af_buf *b, const af_choice *c)
{
    const char *finish = c->finish, *hit = finish ? stop_sequence(c) : NULL;
    af_buf_str(b, "\"stop_reason\":");
    af_out_cstring(b, !finish                             ? NULL
                      : strcmp(finish, "length") == 0     ? "max_tokens"
                      : strcmp(finish, "tool_calls") == 0 ? "tool_use"
                      : hit                               ? "stop_sequence"
                                                          : "end_turn");
    af_buf_str(b, ",\"stop_sequence\":");
    af_out_cstring(b, finish && strcmp(finish, "stop") == 0 ? hit : NULL);
}

static void out_message(af_buf *b, const af_generation *g)
{
    const af_buf *content = &g->choice->items.output;
    af_buf_printf(b,
                  "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", g->id);
    af_out_cstring(b, g->model->name);
    af_buf_str(b, ",\"content\":[");
    af_buf_add(b, content->data ? content->data : "", content->len);
    b->bad = b->bad || content->bad;
    af_buf_str(b, "],");
    out_end(b, g->choice);
    af_buf_char(b, ',');
    out_usage(b, g);
    af_buf_char(b, '}');
}

/* ---- events ---- */

static void begin_event(af_buf *b, const char *name)
{
    af_buf_printf(b, "event: %s\ndata: {\"type\":\"%s\"", name, name);
}

static void begin_block_event(af_buf *b, const af_choice *c, const char *name)
{
    begin_event(b, name);
    af_buf_printf(b, ",\"index\":%d", c->items.count);
}

/* A block is complete. */
static void add_block(af_choice *c, af_buf *block)
{
    af_buf b = {0};
    if (c->of->stream) {
        begin_block_event(&b, c, "content_block_stop");
        af_answer_send(c->of, &b);
    }
    af_items_add(c, block);
}

/* ---- blocks ---- */

static void out_block(af_buf *b, af_item_kind k, const char *text, uint64_t n)
{
    af_buf_str(b, k == AF_ITEM_TEXT ? "{\"type\":\"text\",\"text\":"
                                    : "{\"type\":\"thinking\",\"thinking\":");
    af_out_string(b, text, n);
    af_buf_str(b, k == AF_ITEM_TEXT ? "}" : ",\"signature\":\"\"}");
}

static void open_block(af_choice *c, af_item_kind k)
{
    af_buf b = {0};
    if (!c->of->stream)
        return;
    begin_block_event(&b, c, "content_block_start");
    af_buf_str(&b, ",\"content_block\":");
    out_block(&b, k, "", 0);
    af_answer_send(c->of, &b);
}

static void send_delta(af_choice *c, const char *type, const char *member, const char *text,
                       uint64_t n)
{
    af_buf b = {0};
    begin_block_event(&b, c, "content_block_delta");
    af_buf_printf(&b, ",\"delta\":{\"type\":\"%s\",\"%s\":", type, member);
    af_out_string(&b, text, n);
    af_buf_char(&b, '}');
    af_answer_send(c->of, &b);
}

static void add_to_block(af_choice *c, af_item_kind k, const char *text, uint64_t n)
{
    if (c->of->stream && k == AF_ITEM_TEXT)
        send_delta(c, "text_delta", "text", text, n);
    else if (c->of->stream)
        send_delta(c, "thinking_delta", "thinking", text, n);
}

static void close_block(af_choice *c, af_item_kind k, const char *text, uint64_t n, bool whole)
{
    af_buf block = {0};
    (void)whole;
    out_block(&block, k, text, n);
    add_block(c, &block);
}

static void out_call(af_buf *b, const af_tool_call *call, const char *input)
{
    af_buf_str(b, "{\"type\":\"tool_use\",\"id\":");
    af_out_cstring(b, call->id);
    af_buf_str(b, ",\"name\":");
    af_out_cstring(b, call->name);
    af_buf_printf(b, ",\"input\":%s}", input);
}

static void add_call(af_choice *c, const af_tool_call *call)
{
    json_t *tree = af_json_load(call->arguments, strlen(call->arguments), 0, NULL);
    /* "input" is an object: what a model wrote in place of one cannot be said */
    const char *input = json_is_object(tree) ? call->arguments : "{}";
    af_buf b = {0};
    json_decref(tree);
    if (c->of->stream) {
        begin_block_event(&b, c, "content_block_start");
        af_buf_str(&b, ",\"content_block\":");
        out_call(&b, call, "{}");
        af_answer_send(c->of, &b);
        send_delta(c, "input_json_delta", "partial_json", input, strlen(input));
    }
    out_call(&b, call, input);
    add_block(c, &b);
}

/* ---- the answer ---- */

static void begin(af_generation *g)
{
    af_buf b = {0};
    af_httpd_stream_begin(g->call, 200, "text/event-stream; charset=utf-8");
    begin_event(&b, "message_start");
    af_buf_str(&b, ",\"message\":");
    out_message(&b, g);
    af_answer_send(g, &b);
}

static void end(af_generation *g)
{
    af_buf b = {0};
    g->answered = true;
    if (!g->stream) {
        out_message(&b, g);
        af_api_answer(g->call, &b);
        return;
    }
    begin_event(&b, "message_delta");
    af_buf_str(&b, ",\"delta\":{");
    out_end(&b, g->choice);
    af_buf_str(&b, "},");
    out_usage(&b, g);
    af_answer_send(g, &b);
    begin_event(&b, "message_stop");
    af_answer_send(g, &b);
    af_httpd_stream_end(g->call);
}

static void fail(af_generation *g, int status, const char *message)
{
    af_buf b = {0};
    af_buf_str(&b, "event: error\ndata: ");
    af_api_message_error(&b, status, message);
    af_buf_str(&b, "\n\n");
    af_httpd_stream_send(g->call, b.data ? b.data : "", b.len);
    af_httpd_stream_end(g->call);
    af_buf_clear(&b);
}

static const char *const names[][2] = {
    {"stop", "stop_sequences"}, {"response_format", "output_config.format"}, {NULL, NULL}};

const af_answer_form af_form_messages = {.id = "msg_",
                                         .chat = true,
                                         .read = af_message_read,
                                         .names = names,
                                         .begin = begin,
                                         .piece = af_items_piece,
                                         .call = af_items_call,
                                         .end = end,
                                         .ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n",
                                         .fail = fail,
                                         .item = {open_block, add_to_block, close_block, add_call}};
