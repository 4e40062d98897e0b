/* answer_stream.c - chat completions and completions: the answer as server-sent events, one per
 * token that has something to show. */
#include "serve/api/generation.h"

void af_answer_send(af_generation *g, af_buf *b)
{
    af_buf_str(b, "}\n\n");
    if (b->bad)
        af_httpd_stream_end(g->call);
    else
        af_httpd_stream_send(g->call, b->data, b->len);
    af_buf_clear(b);
}

static void begin_event(af_buf *b, const af_generation *g)
{
    af_buf_str(b, "data: ");
    af_out_answer_head(b, g, g->chat ? "chat.completion.chunk" : "text_completion");
    if (g->include_usage)
        af_buf_str(b, ",\"usage\":null");
    af_buf_str(b, ",\"choices\":[");
}

static void out_prompt_ids(af_buf *b, const af_generation *g, int prompt)
{
    af_buf_str(b, ",\"prompt_token_ids\":");
    af_out_ids(b, g->prompt[prompt].ids, g->prompt[prompt].count);
}

static void begin(af_generation *g)
{
    af_httpd_stream_begin(g->call, 200, "text/event-stream; charset=utf-8");
    for (int i = 0; i < g->choices; i++) {
        af_buf b = {0};
        if (!g->chat && !g->echo && !g->return_ids)
            continue;
        begin_event(&b, g);
        if (g->chat) {
            af_buf_printf(&b,
                          "{\"index\":%d,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                          "\"logprobs\":null,\"finish_reason\":null}]",
                          i);
        } else {
            af_buf_printf(&b, "{\"index\":%d,\"text\":", i);
            const af_buf *text = g->echo ? &g->prompt_text[g->choice[i].prompt] : NULL;
            af_out_string(&b, text ? text->data : "", text ? text->len : 0);
            af_buf_str(&b, ",\"logprobs\":null,\"finish_reason\":null}]");
        }
        if (g->return_ids)
            out_prompt_ids(&b, g, g->choice[i].prompt);
        af_answer_send(g, &b);
    }
}

void af_out_calls(af_buf *b, const af_choice *c, const af_buf *calls)
{
    const bool one = c->of->functions;
    af_buf_str(b, one ? "\"function_call\":" : "\"tool_calls\":[");
    af_buf_add(b, calls->data, calls->len);
    af_buf_str(b, one ? "" : "]");
}

/* Calls that are complete, each in one piece. */
static void out_calls(af_buf *b, af_choice *c, bool comma)
{
    if (c->new_calls.len == 0)
        return;
    af_buf_str(b, comma ? "," : "");
    af_out_calls(b, c, &c->new_calls);
    c->new_calls.len = 0;
}

/* What is new of the reasoning; false: nothing. */
static bool out_reasoning(af_buf *b, af_choice *c)
{
    const af_buf *text = &c->reasoning.text;
    const uint64_t from = c->reasoning.sent;
    if (text->len == from)
        return false;
    af_buf_str(b, "\"reasoning_content\":");
    af_out_string(b, text->data + from, text->len - from);
    c->reasoning.sent = text->len;
    return true;
}

/* One event: text and what belongs to it, or the finish reason. */
static void send_piece(af_choice *c, const char *text, uint64_t n, bool last)
{
    af_generation *g = c->of;
    af_buf b = {0};
    begin_event(&b, g);
    af_buf_printf(&b, "{\"index\":%d,", c->index);
    if (g->chat && last) {
        af_buf_str(&b, "\"delta\":{}");
    } else {
        af_buf_str(&b, g->chat ? "\"delta\":{" : "");
        const bool thinks = out_reasoning(&b, c);
        const bool writes = n || (c->new_calls.len == 0 && !thinks);
        if (writes) {
            af_buf_str(&b, thinks ? "," : "");
            af_buf_str(&b, g->chat ? "\"content\":" : "\"text\":");
            af_out_string(&b, text, n);
        }
        out_calls(&b, c, writes || thinks);
        af_buf_str(&b, g->chat ? "}" : "");
    }
    af_buf_str(&b, ",\"logprobs\":");
    if (c->logprobs.tokens)
        af_logprobs_out(&b, c);
    else
        af_buf_str(&b, "null");
    if (g->return_ids) {
        af_buf_str(&b, ",\"token_ids\":");
        af_out_ids(&b, c->text.ids + c->ids_sent, c->text.count - c->ids_sent);
        c->ids_sent = c->text.count;
    }
    af_buf_str(&b, ",\"finish_reason\":");
    af_out_cstring(&b, last ? c->finish : NULL);
    af_buf_str(&b, "}]");
    af_answer_send(g, &b);
}

static void piece(af_choice *c)
{
    const af_buf *content = af_choice_content(c);
    const uint64_t end = af_choice_has_parts(c) ? content->len : c->text.safe, n = end - c->sent;
    if (!c->of->stream)
        return;
    if (n || c->reasoning.text.len > c->reasoning.sent || c->new_calls.len || c->logprobs.tokens ||
        c->of->return_ids)
        send_piece(c, content->data ? content->data + c->sent : "", n, false);
    c->sent = end;
    if (c->done)
        send_piece(c, "", 0, true);
}

static void end(af_generation *g)
{
    static const char done[] = "data: [DONE]\n\n";
    if (!g->stream) {
        af_answer_whole(g);
        return;
    }
    if (g->no_tokens)
        for (int i = 0; i < g->choices; i++)
            piece(&g->choice[i]);
    if (g->include_usage) {
        af_buf b = {0};
        af_buf_str(&b, "data: ");
        af_out_answer_head(&b, g, g->chat ? "chat.completion.chunk" : "text_completion");
        af_buf_str(&b, ",\"choices\":[],");
        af_out_usage(&b, g);
        af_answer_send(g, &b);
    }
    af_httpd_stream_send(g->call, done, sizeof done - 1);
    af_httpd_stream_end(g->call);
    g->answered = true;
}

void af_answer_fail(af_generation *g, int status, const char *message)
{
    af_buf b = {0};
    af_buf_str(&b, "data: ");
    af_api_error_object(&b, status, NULL, NULL, message);
    af_buf_str(&b, "\n\n");
    af_httpd_stream_send(g->call, b.data ? b.data : "", b.len);
    af_httpd_stream_end(g->call);
    af_buf_clear(&b);
}

static void out_function(af_buf *b, const af_tool_call *call)
{
    af_buf_str(b, "{\"name\":");
    af_out_cstring(b, call->name);
    af_buf_str(b, ",\"arguments\":");
    af_out_cstring(b, call->arguments);
    af_buf_char(b, '}');
}

static void out_custom(af_buf *b, const af_tool_call *call)
{
    json_t *tree = NULL;
    const char *input = af_custom_input(call, &tree);
    af_buf_str(b, "{\"name\":");
    af_out_cstring(b, call->name);
    af_buf_str(b, ",\"input\":");
    af_out_cstring(b, input);
    af_buf_char(b, '}');
    json_decref(tree);
}

static void out_call(af_buf *b, const af_generation *g, const af_tool_call *call, bool indexed)
{
    const bool custom = af_is_custom(g, call->name);
    af_buf_str(b, b->len ? ",{" : "{");
    if (indexed)
        af_buf_printf(b, "\"index\":%d,", call->index);
    af_buf_str(b, "\"id\":");
    af_out_cstring(b, call->id);
    af_buf_str(b, custom ? ",\"type\":\"custom\",\"custom\":"
                         : ",\"type\":\"function\",\"function\":");
    if (custom)
        out_custom(b, call);
    else
        out_function(b, call);
    af_buf_char(b, '}');
}

static void add_call(af_choice *c, const af_tool_call *call)
{
    if (c->of->functions) {
        if (call->index == 0)
            out_function(c->of->stream ? &c->new_calls : &c->calls, call);
        return;
    }
    out_call(&c->calls, c->of, call, false);
    if (c->of->stream)
        out_call(&c->new_calls, c->of, call, true);
}

const af_answer_form af_form_chat = {.id = "chatcmpl-",
                                     .chat = true,
                                     .begin = begin,
                                     .piece = piece,
                                     .call = add_call,
                                     .end = end,
                                     .fail = af_answer_fail};
const af_answer_form af_form_text = {.id = "cmpl-",
                                     .begin = begin,
                                     .piece = piece,
                                     .call = add_call,
                                     .end = end,
                                     .fail = af_answer_fail};
