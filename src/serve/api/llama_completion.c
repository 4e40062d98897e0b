/* llama_completion.c - /completion and /infill, as llama-server has them: editors and other
 * programs that were written for it ask for text in these words. */
#include "serve/api/generation.h"

#include "format/text/json_text.h"

enum { DUMP = JSON_COMPACT | JSON_REAL_PRECISION(7) };

/* ---- requests ---- */

/* Samplers that change what is drawn and are not here, and the values with which they do not; below
 * 0 they are off as at 0. */
af_status af_samplers_check(const json_t *body, af_error *err)
{
    static const struct {
        const char *name;
        double neutral;
    } others[] = {{"mirostat", 0},        {"typical_p", 1},      {"dry_multiplier", 0},
                  {"xtc_probability", 0}, {"dynatemp_range", 0}, {"top_n_sigma", 0},
                  {"n_probs", 0}};
    for (size_t i = 0; i < AF_LEN(others); i++) {
        const json_t *v = af_value(body, others[i].name);
        const double x = json_number_value(v), neutral = others[i].neutral;
        if (v && !(json_is_number(v) && (x == neutral || (neutral == 0 && x < 0))))
            return af_fail_subject(err, AF_EUNSUPPORTED, others[i].name,
                                   "'%s' other than %g is not supported", others[i].name, neutral);
    }
    return AF_OK;
}

static bool is_in(const json_t *list, const char *word)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *s = json_string_value(json_array_get(list, i));
        if (s && strcmp(s, word) == 0)
            return true;
    }
    return false;
}

/* llama-server's values where there are none; a sampler that is not in its list does nothing. */
static void set_sampling(const json_t *body, json_t *out)
{
    static const struct {
        const char *name;
        double usual, off;
    } fields[] = {
        {"temperature", 0.8, 1}, {"top_p", 0.95, 1}, {"min_p", 0.05, 0}, {"top_k", 40, 0}};
    const json_t *list = af_value(body, "samplers");
    for (size_t i = 0; i < AF_LEN(fields); i++) {
        const json_t *v = af_value(body, fields[i].name);
        const bool off = json_is_array(list) && !is_in(list, fields[i].name);
        const double x = off ? fields[i].off
                         : v ? AF_MAX(json_number_value(v), 0)
                             : fields[i].usual;
        if (off || !v || json_is_number(v))
            json_object_set_new(out, fields[i].name,
                                i == AF_LEN(fields) - 1 ? json_integer((json_int_t)x)
                                                        : json_real(x));
    }
}

/* [[id, bias], ...] as a map; false is "never". */
static af_status set_bias(const json_t *list, json_t *out, af_error *err)
{
    json_t *map = json_object();
    json_object_set_new(out, "logit_bias", map);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *pair = json_array_get(list, i), *id = json_array_get(pair, 0);
        json_t *bias = json_array_get(pair, 1);
        char key[32];
        if (!json_is_integer(id) || !(json_is_number(bias) || json_is_false(bias)))
            return af_fail_subject(err, AF_EUSAGE, "logit_bias",
                                   "'logit_bias' is not a list of pairs of a token id and a "
                                   "number or false");
        snprintf(key, sizeof key, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
        if (json_is_false(bias))
            json_object_set_new(map, key, json_integer(-100));
        else
            json_object_set(map, key, bias);
    }
    return AF_OK;
}

static af_status read_completion(af_generation *g, const json_t *body, json_t **out,
                                 af_api_fault *f)
{
    af_status st = AF_OK;
    int64_t limit = -1, seed = 0, ms = 0;
    json_t *picked = NULL;
    bool tokens = false;
    af_error *err = &f->err;
    *out = json_copy((json_t *)(uintptr_t)body);
    AF_TRY(af_samplers_check(body, err));
    AF_TRY(af_value_int(body, "n_predict", -2, INT32_MAX / 2, &limit, err));
    AF_TRY(af_value_int(body, "t_max_predict_ms", -1, INT32_MAX, &ms, err));
    g->max_seconds = (double)AF_MAX(ms, 0) * 1e-3;
    AF_TRY(af_value_int(body, "seed", INT64_MIN, INT64_MAX, &seed, err));
    AF_TRY(af_value_bool(body, "return_tokens", &tokens, err));
    AF_TRY(af_value_type(body, "response_fields", JSON_ARRAY, &picked, err));
    set_sampling(body, *out);
    if (!af_value(body, "repeat_last_n"))
        json_object_set_new(*out, "repeat_last_n", json_integer(AF_LLAMA_LAST_N));
    if (af_value(body, "n_predict") || !af_value(body, "max_tokens"))
        json_object_set_new(*out, "max_tokens", json_integer(limit < 0 ? -1 : limit));
    json_object_del(*out, "n_predict");
    if (seed == -1 || seed == UINT32_MAX) /* a random one */
        json_object_del(*out, "seed");
    if (json_is_string(af_value(body, "grammar")) && !json_string_length(af_value(body, "grammar")))
        json_object_del(*out, "grammar");
    json_object_set_new(*out, "return_token_ids", json_boolean(tokens));
    json_object_del(*out, "stream_options");
    json_object_del(*out, "echo");
    if (json_is_array(af_value(body, "logit_bias")))
        AF_TRY(set_bias(af_value(body, "logit_bias"), *out, err));
    g->picked = picked && json_array_size(picked) ? json_deep_copy(picked) : NULL;
    AF_TRY(af_memory_check(err));
done:
    return st;
}

/* The text in front of the gap ends with "prompt", which is tokenised apart. */
static af_status read_infill(af_generation *g, const json_t *body, json_t **out, af_api_fault *f)
{
    af_status st = AF_OK;
    json_t *before = NULL, *after = NULL, *line = NULL, *extra = NULL;
    AF_TRY(af_value_type(body, "input_prefix", JSON_STRING, &before, &f->err));
    AF_TRY(af_value_type(body, "input_suffix", JSON_STRING, &after, &f->err));
    AF_TRY(af_value_type(body, "prompt", JSON_STRING, &line, &f->err));
    AF_TRY(af_value_type(body, "input_extra", JSON_ARRAY, &extra, &f->err));
    AF_TRY(read_completion(g, body, out, f));
    json_object_set_new(*out, "prompt", before ? json_incref(before) : json_string(""));
    json_object_set_new(*out, "suffix", after ? json_incref(after) : json_string(""));
    json_object_set_new(*out, "input_line", line ? json_incref(line) : json_string(""));
    AF_TRY(af_memory_check(&f->err));
done:
    return st;
}

/* ---- answers ---- */

static json_t *out_timings(const af_choice *c)
{
    const double first = c->first * 1e3, all = af_httpd_age(c->of->call) * 1e3;
    const int64_t made = c->text.count, read = c->of->prompt[c->prompt].count - c->prefix;
    const double rest = AF_MAX(all - first, 1e-3), before = AF_MAX(first, 1e-3);
    return json_pack("{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f}", "cache_n",
                     (json_int_t)c->prefix, "prompt_n", (json_int_t)read, "prompt_ms", before,
                     "prompt_per_token_ms", before / (double)AF_MAX(read, 1), "prompt_per_second",
                     (double)read * 1e3 / before, "predicted_n", (json_int_t)made, "predicted_ms",
                     rest, "predicted_per_token_ms", rest / (double)AF_MAX(made, 1),
                     "predicted_per_second", (double)made * 1e3 / rest);
}

static json_t *out_settings(const af_generation *g)
{
    const af_sample_opts *s = &g->sample;
    return json_pack("{s:I, s:I, s:I, s:f, s:I, s:f, s:f, s:f, s:f, s:f, s:b}", "n_ctx",
                     (json_int_t)g->api->context, "n_predict",
                     (json_int_t)(g->max_tokens >= INT32_MAX / 2 ? -1 : g->max_tokens), "seed",
                     (json_int_t)s->seed, "temperature", s->temperature, "top_k",
                     (json_int_t)s->top_k, "top_p", s->top_p, "min_p", s->min_p, "repeat_penalty",
                     s->repeat_penalty, "presence_penalty", s->presence_penalty,
                     "frequency_penalty", s->frequency_penalty, "stream", (int)g->stream);
}

/* A text of bytes that may not be UTF-8. */
static json_t *text_value(const char *s, uint64_t n)
{
    af_buf b = {0};
    af_out_string(&b, s ? s : "", n);
    json_t *v = b.bad ? NULL : af_json_load(b.data, b.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    af_buf_clear(&b);
    return v;
}

/* A piece, with the ids of its tokens. */
static json_t *out_piece(const af_choice *c, const char *text, uint64_t n, int64_t from, bool last)
{
    const af_generation *g = c->of;
    json_t *ids = json_array();
    for (int64_t i = from; g->return_ids && i < c->text.count; i++)
        json_array_append_new(ids, json_integer(c->text.ids[i]));
    return json_pack("{s:i, s:o, s:o, s:i, s:b, s:I, s:I}", "index", c->index, "content",
                     text_value(text, n), "tokens", ids, "id_slot", 0, "stop", (int)last,
                     "tokens_predicted", (json_int_t)c->text.count, "tokens_evaluated",
                     (json_int_t)g->prompt[c->prompt].count);
}

/* The fields that the request asks for, "timings/prompt_n" for one inside another. */
static json_t *pick(const json_t *whole, const json_t *names)
{
    json_t *out = json_object();
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        const char *slash = name ? strchr(name, '/') : NULL;
        char outer[64];
        snprintf(outer, sizeof outer, "%.*s", slash ? (int)(slash - name) : 63, name ? name : "");
        json_t *v = json_object_get(whole, outer);
        v = slash ? json_object_get(v, slash + 1) : v;
        if (v)
            json_object_set(out, name, v);
    }
    return out;
}

static json_t *out_last(const af_choice *c, const char *text, uint64_t n, int64_t from)
{
    const af_generation *g = c->of;
    const bool limit = strcmp(c->finish, "length") == 0;
    const char *type = c->text.stopped ? "word" : limit ? "limit" : "eos";
    json_t *v = out_piece(c, text, n, from, true);
    json_t *more = json_pack(
        "{s:s, s:o, s:b, s:b, s:s, s:s, s:I, s:o}", "model", g->model->name, "generation_settings",
        out_settings(g), "has_new_line",
        (int)(c->text.text.len && memchr(c->text.text.data, '\n', c->text.text.len)), "truncated",
        0, "stop_type", type, "stopping_word", c->text.stopped ? c->text.stopped : "",
        "tokens_cached", (json_int_t)(g->prompt[c->prompt].count + c->text.count), "timings",
        out_timings(c));
    json_object_update(v, more);
    json_decref(more);
    if (!g->picked)
        return v;
    json_t *some = pick(v, g->picked);
    json_decref(v);
    return some;
}

/* Sends a tree, which is freed, as an event. */
static void send(af_generation *g, json_t *v)
{
    char *text = v ? af_json_dump(v, DUMP) : NULL;
    af_buf b = {0};
    af_buf_str(&b, "data: ");
    if (text)
        af_buf_add(&b, text, strlen(text) - 1); /* af_answer_send closes it */
    else
        b.bad = true;
    free(text);
    json_decref(v);
    af_answer_send(g, &b);
}

static void begin(af_generation *g)
{
    af_httpd_stream_begin(g->call, 200, "text/event-stream; charset=utf-8");
}

static void piece(af_choice *c)
{
    const uint64_t n = c->text.safe - c->sent;
    const char *text = c->text.text.data ? c->text.text.data + c->sent : "";
    if (!c->of->stream)
        return;
    if (n)
        send(c->of, out_piece(c, text, n, c->ids_sent, false));
    if (n)
        c->ids_sent = c->text.count;
    if (c->done)
        send(c->of, out_last(c, "", 0, c->ids_sent));
    c->sent = c->text.safe;
}

static void end(af_generation *g)
{
    json_t *list = json_array();
    af_buf b = {0};
    g->answered = true;
    for (int i = 0; i < g->choices; i++) {
        const af_choice *c = &g->choice[i];
        if (!g->stream)
            json_array_append_new(list, out_last(c, c->text.text.data, c->text.text.len, 0));
        else if (g->no_tokens)
            send(g, out_last(c, "", 0, 0));
    }
    char *text =
        g->stream ? NULL : af_json_dump(g->choices == 1 ? json_array_get(list, 0) : list, DUMP);
    json_decref(list);
    if (g->stream) {
        af_httpd_stream_end(g->call);
        return;
    }
    b.bad = !text;
    if (text)
        af_buf_str(&b, text);
    free(text);
    af_api_answer(g->call, &b);
}

static void no_call(af_choice *c, const af_tool_call *call) { (void)c, (void)call; }

static const char *const names[][2] = {{"max_tokens", "n_predict"}, {NULL, NULL}};
static const char *const infill_names[][2] = {{"max_tokens", "n_predict"},
                                              {"prompt", "input_prefix"},
                                              {"suffix", "input_suffix"},
                                              {NULL, NULL}};

const af_answer_form af_form_llama = {.id = "cmpl-",
                                      .prompt_alone = true,
                                      .read = read_completion,
                                      .names = names,
                                      .begin = begin,
                                      .piece = piece,
                                      .call = no_call,
                                      .end = end,
                                      .fail = af_answer_fail};
const af_answer_form af_form_infill = {.id = "cmpl-",
                                       .prompt_alone = true,
                                       .infill = true,
                                       .read = read_infill,
                                       .names = infill_names,
                                       .begin = begin,
                                       .piece = piece,
                                       .call = no_call,
                                       .end = end,
                                       .fail = af_answer_fail};
