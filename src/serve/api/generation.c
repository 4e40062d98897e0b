/* generation.c - a request for text in the engine: tokens in, ends, errors, disconnections. */
#include "serve/api/responses.h"

#include <sys/random.h>
#include <time.h>

/* ---- ends ---- */

static void end_choice(af_choice *c, const char *finish)
{
    if (c->done)
        return;
    c->done = true;
    c->finish = finish;
    c->of->pending--;
}

/* One error answers for all choices. */
static void fail_all(af_generation *g, af_decoder *d, int status, const char *message)
{
    const bool begun = g->stream && !g->answered && af_httpd_is_answered(g->call);
    if (begun)
        g->form->fail(g, status, message);
    else if (!g->answered)
        af_api_refuse(g->call, status, NULL, NULL, "%s", message);
    g->answered = true;
    for (int i = 0; d && i < g->choices; i++)
        if (g->choice[i].submitted && !g->choice[i].done)
            af_decoder_cancel(d, g->choice[i].ticket);
}

/* ---- tokens ---- */

static bool on_mask(void *user, const int32_t *made, int64_t n, uint32_t *allowed)
{
    af_choice *c = user;
    af_error err = {0};
    af_status st = AF_OK;
    if (!c->grammar) {
        af_limits_apply(c->of, made, n, allowed);
        return true;
    }
    for (; st == AF_OK && c->accepted < n; c->accepted++)
        st = af_grammar_state_accept(c->grammar, made[c->accepted], &err);
    if (st == AF_OK)
        st = af_grammar_state_mask(c->grammar, allowed, c->of->api->vocab, &err);
    if (st == AF_OK && (c->of->only || c->of->bads))
        af_limits_apply(c->of, made, n, allowed);
    if (st != AF_OK) /* 400: a grammar that is too ambiguous for what was written */
        fail_all(c->of, NULL, af_api_fault_status(&(af_api_fault){.err = err}), err.msg);
    return st == AF_OK;
}

static bool is_stop_id(const af_generation *g, int32_t id)
{
    for (int i = 0; i < g->stop_ids; i++)
        if (g->stop_id[i] == id)
            return true;
    return false;
}

static bool is_late(const af_choice *c)
{
    const af_generation *g = c->of;
    const af_buf *text = &c->text.text;
    return g->max_seconds > 0 && af_httpd_age(g->call) - c->first > g->max_seconds && text->len &&
           memchr(text->data, '\n', text->len);
}

static const char *finish_of(const af_choice *c, bool stopped, af_decode_end end)
{
    if (c->text.stopped || stopped || end == AF_DECODE_EOS)
        return "stop";
    return end == AF_DECODE_LENGTH || is_late(c) ? "length" : NULL;
}

/* Special tokens are read for the calls, channels and reasoning that some of them mark; the others
 * say nothing. */
static bool is_noise(const af_generation *g, int32_t id)
{
    const char *token = af_tokenizer_token(g->api->tokenizer, id, NULL);
    return g->chat && !g->show_special && af_tokenizer_is_special(g->api->tokenizer, id) &&
           !(g->tools && af_tool_marker(token)) && !(g->channels && af_channels_mark(token)) &&
           !af_is_reasoning_mark(token);
}

static bool add_token(af_choice *c, const af_decoded *t)
{
    af_generation *g = c->of;
    af_error err = {0};
    if (c->text.count == 0)
        c->first = af_httpd_age(g->call);
    const bool stopped = is_stop_id(g, t->id);
    const bool is_end = stopped || (t->end == AF_DECODE_EOS && !g->ignore_eos);
    if (g->logprobs)
        af_logprobs_add(c, t);
    c->logprob += t->logprob;
    af_status st = af_answer_text_add(&c->text, t->id, !is_end && !is_noise(g, t->id), &err);
    const char *finish = finish_of(c, stopped, t->end);
    if (st == AF_OK && finish)
        st = af_answer_text_end(&c->text, true, &err);
    if (st == AF_OK && af_choice_has_parts(c))
        st = af_choice_parse(c, finish != NULL, &err);
    if (st != AF_OK) {
        fail_all(g, NULL, 500, err.msg);
        end_choice(c, "stop");
        return false;
    }
    atomic_fetch_add(&g->api->new_tokens, 1);
    if (finish && c->call_count && strcmp(finish, "stop") == 0)
        finish = g->functions ? "function_call" : "tool_calls";
    if (finish)
        end_choice(c, finish);
    if (!g->answered)
        g->form->piece(c);
    return !c->done || t->end != AF_DECODE_GOES_ON; /* false: cancels, after a stop string */
}

static bool on_token(void *user, const af_decoded *t)
{
    af_choice *c = user;
    af_generation *g = c->of;
    c->prefix = t->prefix;
    if (t->prompt) {
        if (g->logprobs && g->echo)
            af_logprobs_add(c, t);
        return true;
    }
    if (t->end == AF_DECODE_CANCELLED || t->end == AF_DECODE_ERROR || t->id < 0) {
        if (t->end == AF_DECODE_ERROR)
            fail_all(g, NULL, 500, "the model gave a value that is not a number, or no token fits");
        g->cut_off |= !c->done;
        end_choice(c, "stop");
        return true;
    }
    if (g->no_tokens) {
        af_logprobs_begin(c);
        end_choice(c, "length");
        return t->end != AF_DECODE_GOES_ON;
    }
    return add_token(c, t);
}

/* ---- the engine's view ---- */

static af_status submit(af_choice *c, af_decoder *d, af_error *err)
{
    af_generation *g = c->of;
    const af_encoding *p = &g->prompt[c->prompt];
    const int64_t left = g->api->context - p->count;
    int adapter;
    if (af_served_adapter(g->model, &adapter, err) != AF_OK)
        return AF_ESTOPPED;
    af_decode_request r = {.ids = p->ids,
                           .count = p->count,
                           .adapter = adapter,
                           .sample = g->sample,
                           .max_tokens = AF_MAX(1, AF_MIN(g->max_tokens, left)),
                           .min_tokens = g->min_tokens,
                           .ignore_eos = g->ignore_eos,
                           .top_logprobs = g->logprobs       ? g->top_logprobs
                                           : g->shown < g->n ? 0
                                                             : -1,
                           .prompt_logprobs = g->logprobs && g->echo,
                           .bias = g->bias,
                           .biases = g->biases,
                           .mask = c->grammar || af_limits_any(g) ? on_mask : NULL,
                           .token = on_token,
                           .user = c};
    r.sample.seed += (uint64_t)(c->index % g->n);
    return af_decoder_submit(d, &r, &c->ticket, err);
}

static void begin(af_serve_task *t, af_decoder *d)
{
    af_generation *g = (af_generation *)t;
    af_error err = {0};
    g->pending = g->choices;
    if (g->stream)
        g->form->begin(g);
    for (int i = 0; i < g->choices; i++) {
        af_choice *c = &g->choice[i];
        const af_status st = g->answered ? AF_ESTOPPED : submit(c, d, &err);
        c->submitted = st == AF_OK;
        if (st == AF_OK)
            continue;
        end_choice(c, "stop");
        if (!g->answered)
            fail_all(g, d, af_api_fault_status(&(af_api_fault){.err = err}), err.msg);
    }
    for (int i = 0; i < g->prompts; i++)
        atomic_fetch_add(&g->api->prompt_tokens, (uint64_t)g->prompt[i].count);
}

/* Clients and proxies give up on a stream that is quiet: while a prompt or a call is long. */
static void ping(af_generation *g)
{
    const char *text = g->form->ping ? g->form->ping : ": ping\n\n";
    if (g->stream && *text && af_httpd_quiet(g->call) > g->api->o.ping_interval)
        af_httpd_stream_send(g->call, text, strlen(text));
}

static bool poll(af_serve_task *t, af_decoder *d)
{
    af_generation *g = (af_generation *)t;
    const bool gone = af_httpd_is_closed(g->call);
    if (!gone && !g->answered && g->pending)
        ping(g);
    if (!gone && !g->answered && af_httpd_age(g->call) > g->api->o.timeout)
        fail_all(g, d, 503, "the answer took longer than the server allows (--timeout)");
    if (gone || g->answered)
        for (int i = 0; i < g->choices; i++)
            if (g->choice[i].submitted && !g->choice[i].done)
                af_decoder_cancel(d, g->choice[i].ticket);
    return g->pending == 0;
}

static void fail(af_serve_task *t, af_decoder *d, const af_error *why)
{
    fail_all((af_generation *)t, d, why->code == AF_ESTOPPED ? 503 : 500, why->msg);
}

static void free_choice(af_choice *c)
{
    af_answer_text_clear(&c->text);
    af_logprobs_clear(&c->logprobs);
    af_grammar_state_free(c->grammar);
    af_tool_parser_free(c->parser);
    af_buf_clear(&c->content);
    af_buf_clear(&c->reasoning.text);
    af_channels_free(c->channels);
    af_buf_clear(&c->message.call);
    af_buf_clear(&c->calls);
    af_buf_clear(&c->new_calls);
    af_buf_clear(&c->items.output);
}

void af_generation_free(af_generation *g)
{
    if (!g)
        return;
    for (int i = 0; g->choice && i < g->choices; i++)
        free_choice(&g->choice[i]);
    for (int i = 0; i < g->stops; i++)
        free(g->stop[i]);
    for (int i = 0; g->prompt_text && i < g->prompts; i++)
        af_buf_clear(&g->prompt_text[i]);
    free(g->prompt_text);
    free(g->choice);
    af_inputs_free(g->prompt, g->prompts);
    free(g->bias);
    af_limits_free(g);
    af_buf_clear(&g->begun);
    af_kept_grammar_release(g->grammar);
    free(g->schema);
    af_response_free(g->response);
    json_decref(g->tools);
    json_decref(g->picked);
    json_decref(g->custom);
    af_served_unref(g->model);
    af_httpd_call_unref(g->call);
    free(g);
}

static void end(af_serve_task *t)
{
    af_generation *g = (af_generation *)t;
    if (!g->answered)
        g->form->end(g);
    af_generation_free(g);
}

/* ---- the endpoints ---- */

static af_status make_choices(af_generation *g, af_error *err)
{
    af_status st = AF_OK;
    if (g->prompts * g->n > AF_SERVE_QUEUE_MAX)
        return af_fail_subject(err, AF_EUSAGE, "n",
                               "%d prompts with %d choices each are more than %d", g->prompts, g->n,
                               AF_SERVE_QUEUE_MAX);
    g->choices = g->prompts * g->n;
    g->choice = af_calloc((uint64_t)g->choices, sizeof *g->choice);
    if (!g->choice)
        return af_fail_nomem(err, "choices", (uint64_t)g->choices * sizeof *g->choice);
    for (int i = 0; i < g->choices; i++) {
        af_choice *c = &g->choice[i];
        *c = (af_choice){.of = g, .index = i, .prompt = i / g->n};
        af_answer_text_init(&c->text, g->api->tokenizer, (const char *const *)g->stop, g->stops,
                            !g->chat && !g->show_special);
        c->text.min_tokens = g->min_tokens;
        if (g->tools)
            AF_TRY(af_choice_tools(c, err));
        AF_TRY(af_choice_reasoning(c, err));
        if (g->grammar)
            AF_TRY(af_grammar_state_new(&c->grammar, g->grammar->grammar, err));
    }
done:
    return st;
}

/* Ids and time are the only parts of an answer that differ between equal requests. */
static void name_answer(af_generation *g)
{
    uint64_t word[2] = {atomic_fetch_add(&g->api->ids, 1), (uint64_t)g->api->started};
    (void)!getrandom(word, sizeof word, GRND_NONBLOCK);
    snprintf(g->id, sizeof g->id, "%s%016" PRIx64 "%08" PRIx64, g->form->id, word[0],
             word[1] & 0xffffffff);
    g->created = (int64_t)time(NULL);
}

af_generation *af_generation_new(af_api *a, af_httpd_call *call, const af_answer_form *form)
{
    af_generation *g = af_calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->api = a;
    g->form = form;
    g->chat = form->chat;
    g->n = g->shown = 1;
    g->call = call ? af_httpd_call_ref(call) : NULL;
    g->task = (af_serve_task){.begin = begin, .poll = poll, .fail = fail, .end = end};
    return g;
}

static af_status read_chat(af_generation *g, const json_t *whole, af_api_fault *f)
{
    af_status st = AF_OK;
    json_t *body = NULL, *tools = NULL, *custom = NULL;
    AF_TRY(af_function_tools(g, whole, &tools, &f->err));
    AF_TRY(af_custom_tools(g, tools, &custom, &f->err));
    AF_TRY(af_allowed_tools(custom, &body, &f->err));
    AF_TRY(af_request_model(g->api, body, &g->model, f));
    AF_TRY(af_generation_fields(g, body, f));
    AF_TRY(af_generation_format(g, body, f));
    AF_TRY(g->chat ? af_generation_chat(g, body, f) : af_generation_prompts(g, body, f));
    if (g->chat)
        AF_TRY(af_generation_tools(g, body, f));
    AF_TRY(make_choices(g, &f->err));
    g->task.sequences = g->choices;
done:
    json_decref(tools);
    json_decref(custom);
    json_decref(body);
    return st;
}

/* A fault of the chat completion, in the words of the request; messages begin with the field. */
static void rename_field(const af_answer_form *form, af_error *err)
{
    for (int i = 0; form->names && form->names[i][0]; i++) {
        const char *from = form->names[i][0], *to = form->names[i][1];
        const size_t n = strlen(from);
        if (strcmp(err->subject, from) != 0)
            continue;
        snprintf(err->subject, sizeof err->subject, "%s", to);
        if (err->msg[0] == '\'' && strncmp(err->msg + 1, from, n) == 0 && err->msg[n + 1] == '\'') {
            const af_error old = *err;
            snprintf(err->msg, sizeof err->msg, "'%s%s", to, old.msg + n + 1);
        }
        return;
    }
}

af_status af_generation_read(af_generation *g, const json_t *body, af_api_fault *f)
{
    af_status st = AF_OK;
    json_t *chat = NULL;
    if (g->api->headless)
        return af_fail_subject(&f->err, AF_EUSAGE, "model",
                               "the model has no head and generates no text; it answers "
                               "/v1/embeddings");
    if (g->form->read)
        AF_TRY(g->form->read(g, body, &chat, f));
    AF_TRY(read_chat(g, chat ? chat : body, f));
done:
    if (st != AF_OK)
        rename_field(g->form, &f->err);
    json_decref(chat);
    return st;
}

void af_generate(af_api *a, af_httpd_call *call, const json_t *body, const af_answer_form *form)
{
    af_status st = AF_OK;
    af_api_fault f = {0};
    af_generation *g = af_generation_new(a, call, form);
    if (!g)
        AF_TRY(af_fail_nomem(&f.err, "the request", sizeof *g));
    AF_TRY(af_generation_read(g, body, &f));
    name_answer(g);
    if (!af_serve_engine_add(a->engine, &g->task))
        AF_TRY(af_fail(&f.err, AF_ESTOPPED, "the server is shutting down"));
    g = NULL;
done:
    if (st != AF_OK)
        af_api_refuse_fault(call, &f);
    af_generation_free(g);
}

void af_api_chat(af_api *a, af_httpd_call *c, const json_t *body)
{
    af_generate(a, c, body, &af_form_chat);
}

void af_api_completions(af_api *a, af_httpd_call *c, const json_t *body)
{
    af_generate(a, c, body, &af_form_text);
}

void af_api_llama_completion(af_api *a, af_httpd_call *c, const json_t *body)
{
    af_generate(a, c, body, &af_form_llama);
}

void af_api_infill(af_api *a, af_httpd_call *c, const json_t *body)
{
    af_generate(a, c, body, &af_form_infill);
}

void af_api_responses(af_api *a, af_httpd_call *c, const json_t *body)
{
    af_generate(a, c, body, &af_form_responses);
}

void af_api_messages(af_api *a, af_httpd_call *c, const json_t *body)
{
    af_generate(a, c, body, &af_form_messages);
}

/* ---- prompts that are counted alone ---- */

static void count(af_api *a, af_httpd_call *call, const json_t *body, const af_answer_form *form,
                  const char *members)
{
    af_status st = AF_OK;
    af_api_fault f = {0};
    json_t *chat = NULL, *kept = NULL;
    af_encoding e = {0};
    af_buf b = {0};
    af_generation *g = af_generation_new(a, NULL, form);
    if (!g)
        AF_TRY(af_fail_nomem(&f.err, "the request", sizeof *g));
    AF_TRY(form->read(g, body, &chat, &f));
    AF_TRY(af_allowed_tools(chat, &kept, &f.err));
    AF_TRY(af_request_model(a, kept, &g->model, &f));
    AF_TRY(af_chat_encode(a, g->model, kept, false, &e, &f.err));
    af_buf_printf(&b, "{%s\"input_tokens\":%" PRId64 "}", members, e.count);
    af_api_answer(call, &b);
done:
    if (st != AF_OK) {
        rename_field(form, &f.err);
        af_api_refuse_fault(call, &f);
    }
    json_decref(chat);
    json_decref(kept);
    af_encoding_clear(&e);
    af_generation_free(g);
}

void af_api_response_count(af_api *a, af_httpd_call *c, const json_t *body)
{
    count(a, c, body, &af_form_responses, "\"object\":\"response.input_tokens\",");
}

void af_api_message_count(af_api *a, af_httpd_call *c, const json_t *body)
{
    count(a, c, body, &af_form_messages, "");
}
