/* ollama_info.c - what Ollama says of its models and of itself, and its embeddings. */
#include "base/hash.h"
#include "format/chat/chat_template.h"
#include "serve/api/embeddings.h"
#include "serve/ollama/ollama.h"

enum { YEAR = 31557600 }; /* a model stays */

#define SPOKEN "0.12.0" /* programs ask for features by Ollama's version */

void af_api_ollama_version(af_api *a, af_httpd_call *c, const json_t *body)
{
    static const char text[] = "{\"version\":\"" SPOKEN "\"}";
    (void)a, (void)body;
    af_httpd_answer(c, 200, "application/json", text, sizeof text - 1);
}

static void out_details(af_buf *b, const af_api *a)
{
    const double n = (double)a->params;
    const size_t len = strlen(a->model_path);
    const bool gguf = len > 5 && strcmp(a->model_path + len - 5, ".gguf") == 0;
    af_buf_printf(b,
                  "\"details\":{\"parent_model\":\"\",\"format\":\"%s\",\"family\":\"%s\","
                  "\"families\":[\"%s\"],\"parameter_size\":\"%.1f%c\","
                  "\"quantization_level\":\"\"}",
                  gguf ? "gguf" : "safetensors", a->arch, a->arch, n / (n < 1e9 ? 1e6 : 1e9),
                  n < 1e9 ? 'M' : 'B');
}

static void out_model(af_buf *b, const af_api *a, const af_served *m, bool running)
{
    char digest[65];
    af_sha256 h;
    af_sha256_init(&h);
    af_sha256_add(&h, m->name, strlen(m->name));
    af_sha256_hex(&h, digest);
    af_buf_str(b, "{\"name\":");
    af_out_cstring(b, m->name);
    af_buf_str(b, ",\"model\":");
    af_out_cstring(b, m->name);
    af_buf_str(b, running ? ",\"expires_at\":" : ",\"modified_at\":");
    af_ollama_out_time(b, m->created + (running ? 10 * YEAR : 0));
    af_buf_printf(b, ",\"size\":0,\"digest\":\"%s\",", digest);
    if (running)
        af_buf_printf(b, "\"size_vram\":0,\"context_length\":%" PRId64 ",", a->context);
    out_details(b, a);
    af_buf_char(b, '}');
}

static void answer_list(af_api *a, af_httpd_call *c, bool running)
{
    af_buf b = {0};
    af_buf_str(&b, "{\"models\":[");
    pthread_mutex_lock(&a->models_lock);
    for (const af_served *m = a->models; m; m = m->next) {
        out_model(&b, a, m, running);
        af_buf_str(&b, m->next ? "," : "");
    }
    pthread_mutex_unlock(&a->models_lock);
    af_buf_str(&b, "]}");
    af_api_answer(c, &b);
}

void af_api_ollama_tags(af_api *a, af_httpd_call *c, const json_t *body)
{
    (void)body;
    answer_list(a, c, false);
}

void af_api_ollama_ps(af_api *a, af_httpd_call *c, const json_t *body)
{
    (void)body;
    answer_list(a, c, true);
}

static void out_capabilities(af_buf *b, const af_api *a, const af_template *t)
{
    af_buf_str(b, "\"capabilities\":[\"embedding\"");
    if (!a->headless)
        af_buf_str(b, ",\"completion\"");
    if (t && af_template_mentions(t, "tools"))
        af_buf_str(b, ",\"tools\"");
    if (t && af_template_mentions(t, "think"))
        af_buf_str(b, ",\"thinking\"");
    af_buf_char(b, ']');
}

void af_api_ollama_show(af_api *a, af_httpd_call *c, const json_t *body)
{
    af_api_fault f = {0};
    af_served *m = NULL;
    af_buf b = {0};
    json_t *named = af_ollama_body(a, body);
    if (af_request_model(a, named, &m, &f) != AF_OK) {
        af_api_refuse_fault(c, &f);
    } else {
        const af_template *t = af_served_template(a, m);
        const char *source = t ? af_template_source(t, NULL) : NULL;
        af_buf_str(&b, "{\"license\":\"\",\"modelfile\":\"\",\"parameters\":\"\",\"template\":");
        af_out_cstring(&b, source ? source : "");
        af_buf_char(&b, ',');
        out_details(&b, a);
        af_buf_printf(&b,
                      ",\"model_info\":{\"general.architecture\":\"%s\","
                      "\"general.parameter_count\":%" PRId64 ",\"%s.context_length\":%" PRId64
                      ",\"%s.embedding_length\":%" PRId64 "},",
                      a->arch, a->params, a->arch, a->context, a->arch, a->width);
        out_capabilities(&b, a, t);
        af_buf_str(&b, ",\"modified_at\":");
        af_ollama_out_time(&b, m->created);
        af_buf_char(&b, '}');
        af_api_answer(c, &b);
    }
    af_served_unref(m);
    json_decref(named);
}

/* ---- embeddings ---- */

/* The end of a text that is too long goes, without the special tokens that the tokenizer puts
 * there.
 */
static void cut_input(const af_api *a, af_encoding *in)
{
    const int64_t most = a->context;
    int64_t tail = 0;
    if (in->count <= most)
        return;
    while (tail < most / 2 && af_tokenizer_is_special(a->tokenizer, in->ids[in->count - 1 - tail]))
        tail++;
    memmove(in->ids + most - tail, in->ids + in->count - tail, (size_t)tail * sizeof *in->ids);
    in->count = most;
}

static af_status read_input(af_embedding_task *e, const json_t *body, af_error *err)
{
    af_status st = AF_OK;
    bool truncate = true;
    AF_TRY(af_value_bool(body, "truncate", &truncate, err));
    AF_TRY(af_value_int(body, "dimensions", 1, e->api->width, &e->dimensions, err));
    AF_TRY(af_read_inputs(e->api, body, e->use->field, &e->input, &e->inputs, err));
    for (int i = 0; truncate && i < e->inputs; i++)
        cut_input(e->api, &e->input[i]);
done:
    return st;
}

/* /api/embeddings has one. */
static af_status read_prompt(af_embedding_task *e, const json_t *body, af_error *err)
{
    if (!json_is_string(af_value(body, "prompt")))
        return af_fail_subject(err, AF_EUSAGE, "prompt", "'prompt' is not a text");
    return read_input(e, body, err);
}

static void out_vector(af_embedding_task *e)
{
    for (int64_t i = 0; i < e->dimensions; i++)
        af_buf_printf(&e->out, "%s%.9g", i ? "," : e->next ? ",[" : "[", e->vector[i]);
    af_buf_char(&e->out, ']');
}

/* Puts the vectors, which are there, into the answer. */
static void close_answer(af_embedding_task *e)
{
    af_buf vectors = e->out;
    e->out = (af_buf){0};
    af_buf_str(&e->out, "{\"model\":");
    af_out_cstring(&e->out, e->model->name);
    af_buf_str(&e->out, ",\"embeddings\":[");
    af_buf_add(&e->out, vectors.data, vectors.len);
    af_buf_printf(
        &e->out, "],\"total_duration\":%.0f,\"load_duration\":0,\"prompt_eval_count\":%" PRId64 "}",
        af_httpd_age(e->call) * 1e9, af_embeddings_tokens(e));
    e->out.bad = e->out.bad || vectors.bad;
    af_buf_clear(&vectors);
}

static void close_old(af_embedding_task *e)
{
    af_buf vectors = e->out;
    e->out = (af_buf){0};
    af_buf_str(&e->out, "{\"embedding\":");
    af_buf_add(&e->out, vectors.data, vectors.len);
    af_buf_char(&e->out, '}');
    e->out.bad = e->out.bad || vectors.bad;
    af_buf_clear(&vectors);
}

static void embed(af_api *a, af_httpd_call *c, const json_t *body, const af_embedding_use *use)
{
    json_t *named = af_ollama_body(a, body);
    af_embeddings_start(a, c, named, use);
    json_decref(named);
}

void af_api_ollama_embed(af_api *a, af_httpd_call *c, const json_t *body)
{
    static const af_embedding_use use = {"input", read_input, out_vector, close_answer};
    embed(a, c, body, &use);
}

void af_api_ollama_embeddings(af_api *a, af_httpd_call *c, const json_t *body)
{
    static const af_embedding_use use = {"prompt", read_prompt, out_vector, close_old};
    embed(a, c, body, &use);
}
