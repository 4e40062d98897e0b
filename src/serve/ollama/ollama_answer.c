/* ollama_answer.c - answers of /api/chat and /api/generate: lines of JSON, or one object. */
#include "serve/ollama/ollama.h"

#include "format/text/json_text.h"

#include <time.h>

void af_ollama_out_time(af_buf *b, int64_t seconds)
{
    struct timespec now;
    struct tm day;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds)
        now = (struct timespec){.tv_sec = (time_t)seconds};
    gmtime_r(&now.tv_sec, &day);
    af_buf_printf(b, "\"%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ\"", day.tm_year + 1900, day.tm_mon + 1,
                  day.tm_mday, day.tm_hour, day.tm_min, day.tm_sec, now.tv_nsec / 1000);
}

static bool is_chat(const af_generation *g) { return g->form->read == af_ollama_read_chat; }

/* The text of a piece, up to "done". */
static void out_text(af_buf *b, const af_generation *g, const char *text, uint64_t n,
                     const char *thought, uint64_t thought_len, const af_buf *calls)
{
    af_buf_str(b, "{\"model\":");
    af_out_cstring(b, g->model->name);
    af_buf_str(b, ",\"created_at\":");
    af_ollama_out_time(b, 0);
    af_buf_str(b,
               is_chat(g) ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"response\":");
    af_out_string(b, text ? text : "", n);
    if (thought_len) {
        af_buf_str(b, ",\"thinking\":");
        af_out_string(b, thought, thought_len);
    }
    if (calls->len) {
        af_buf_str(b, ",\"tool_calls\":[");
        af_buf_add(b, calls->data, calls->len);
        af_buf_char(b, ']');
    }
    af_buf_str(b, is_chat(g) ? "}" : "");
}

/* How the answer ended, with times in nanoseconds. */
static void out_end(af_buf *b, const af_choice *c)
{
    const double all = af_httpd_age(c->of->call);
    af_buf_printf(b,
                  ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%.0f,"
                  "\"load_duration\":0,\"prompt_eval_count\":%" PRId64
                  ",\"prompt_eval_duration\":%.0f,\"eval_count\":%" PRId64
                  ",\"eval_duration\":%.0f}\n",
                  strcmp(c->finish, "length") == 0 ? "length" : "stop", all * 1e9,
                  c->of->prompt[c->prompt].count, c->first * 1e9, c->text.count,
                  AF_MAX(all - c->first, 0) * 1e9);
}

static void send(af_generation *g, af_buf *b)
{
    if (b->bad)
        af_httpd_stream_end(g->call);
    else
        af_httpd_stream_send(g->call, b->data, b->len);
    af_buf_clear(b);
}

static void begin(af_generation *g) { af_httpd_stream_begin(g->call, 200, "application/x-ndjson"); }

static void piece(af_choice *c)
{
    const af_buf *content = af_choice_content(c), *thought = &c->reasoning.text;
    const uint64_t end = af_choice_has_parts(c) ? content->len : c->text.safe;
    const uint64_t more = thought->len - c->reasoning.sent;
    af_buf b = {0}, none = {0};
    if (!c->of->stream)
        return;
    if (end > c->sent || more || c->calls.len) {
        out_text(&b, c->of, content->data ? content->data + c->sent : "", end - c->sent,
                 more ? thought->data + c->reasoning.sent : "", more, &c->calls);
        af_buf_str(&b, ",\"done\":false}\n");
        send(c->of, &b);
    }
    c->sent = end;
    c->reasoning.sent = thought->len;
    c->calls.len = 0;
    if (!c->done)
        return;
    out_text(&b, c->of, "", 0, "", 0, &none);
    out_end(&b, c);
    send(c->of, &b);
}

static void add_call(af_choice *c, const af_tool_call *call)
{
    json_t *tree = af_json_load(call->arguments, strlen(call->arguments), 0, NULL);
    af_buf *b = &c->calls;
    af_buf_str(b, b->len ? ",{\"id\":" : "{\"id\":");
    af_out_cstring(b, call->id);
    af_buf_str(b, ",\"function\":{\"name\":");
    af_out_cstring(b, call->name);
    /* "arguments" is an object: what a model wrote in place of one cannot be said */
    af_buf_printf(b, ",\"arguments\":%s}}", json_is_object(tree) ? call->arguments : "{}");
    json_decref(tree);
}

static void end(af_generation *g)
{
    const af_choice *c = g->choice;
    const af_buf *content = af_choice_content(c), *thought = &c->reasoning.text;
    af_buf b = {0};
    g->answered = true;
    if (g->stream) {
        af_httpd_stream_end(g->call);
        return;
    }
    out_text(&b, g, content->data, content->len, thought->data, thought->len, &c->calls);
    out_end(&b, c);
    af_api_answer(g->call, &b);
}

static void fail(af_generation *g, int status, const char *message)
{
    af_buf b = {0};
    (void)status;
    af_buf_str(&b, "{\"error\":");
    af_out_cstring(&b, message);
    af_buf_str(&b, "}\n");
    send(g, &b);
    af_httpd_stream_end(g->call);
}

static const char *const names[][2] = {{"response_format", "format"}, {NULL, NULL}};

#define FORM(is_chat, reader)                                                                      \
    {                                                                                              \
        .id = "ollama-", .chat = (is_chat), .read = (reader), .names = names, .begin = begin,      \
        .piece = piece, .call = add_call, .end = end, .ping = "", .fail = fail                     \
    }
static const af_answer_form form_chat = FORM(true, af_ollama_read_chat),
                            form_prompt = FORM(true, af_ollama_read_prompt),
                            form_raw = FORM(false, af_ollama_read_raw);

/* A request without a text loads the model: it is there. */
static void answer_loaded(af_api *a, af_httpd_call *c, const json_t *body, bool chat)
{
    af_api_fault f = {0};
    af_served *m = NULL;
    af_buf b = {0};
    json_t *named = af_ollama_body(a, body);
    if (af_request_model(a, named, &m, &f) != AF_OK) {
        af_api_refuse_fault(c, &f);
    } else {
        af_buf_str(&b, "{\"model\":");
        af_out_cstring(&b, m->name);
        af_buf_str(&b, ",\"created_at\":");
        af_ollama_out_time(&b, 0);
        af_buf_printf(&b, ",%s,\"done\":true,\"done_reason\":\"load\"}\n",
                      chat ? "\"message\":{\"role\":\"assistant\",\"content\":\"\"}"
                           : "\"response\":\"\"");
        af_api_answer(c, &b);
    }
    af_served_unref(m);
    json_decref(named);
}

void af_api_ollama_chat(af_api *a, af_httpd_call *c, const json_t *body)
{
    const json_t *messages = af_value(body, "messages");
    if (!messages || (json_is_array(messages) && json_array_size(messages) == 0))
        answer_loaded(a, c, body, true);
    else
        af_generate(a, c, body, &form_chat);
}

void af_api_ollama_generate(af_api *a, af_httpd_call *c, const json_t *body)
{
    const json_t *prompt = af_value(body, "prompt");
    const bool raw = json_is_true(af_value(body, "raw")) || !a->template ||
                     json_string_length(af_value(body, "suffix"));
    if (!prompt || (json_is_string(prompt) && json_string_length(prompt) == 0))
        answer_loaded(a, c, body, false);
    else
        af_generate(a, c, body, raw ? &form_raw : &form_prompt);
}
