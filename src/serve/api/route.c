/* route.c - from a path to its endpoint, and the workers that read bodies.
 *
 * What needs no body is answered in the HTTP thread. Bodies go to a few workers, so that a long
 * text that is tokenised delays nobody who only waits for tokens. */
#include "serve/api/api.h"

#include "format/text/json_text.h"

#include <strings.h>

typedef struct af_route {
    const char *method, *path;
    af_api_endpoint *endpoint;
    bool open;   /* no key */
    bool prefix; /* the path goes on */
    bool run;    /* only while a run trains; a body is not needed */
    bool slow;   /* a GET for the workers */
} af_route;

static const af_route routes[] = {
    {"GET", "/health", af_api_health, .open = true},
    {"GET", "/v1/health", af_api_health, .open = true},
    {"GET", "/", af_api_page, .open = true},
    {"GET", "/app.js", af_api_page, .open = true},
    {"GET", "/app.css", af_api_page, .open = true},
    {"GET", "/icon.svg", af_api_page, .open = true},
    {"GET", "/v1/models", af_api_models, .open = false},
    {"GET", "/models", af_api_models, .open = false},
    {"GET", "/v1/models/", af_api_model, .prefix = true},
    {"GET", "/metrics", af_api_metrics, .open = false},
    {"GET", "/props", af_api_props, .open = false},
    {"POST", "/tokenize", af_api_tokenize, .open = false},
    {"POST", "/detokenize", af_api_detokenize, .open = false},
    {"POST", "/apply-template", af_api_apply_template, .open = false},
    {"POST", "/v1/chat/completions", af_api_chat, .open = false},
    {"POST", "/chat/completions", af_api_chat, .open = false},
    {"POST", "/v1/completions", af_api_completions, .open = false},
    {"POST", "/completion", af_api_llama_completion, .open = false},
    {"POST", "/completions", af_api_llama_completion, .open = false},
    {"POST", "/infill", af_api_infill, .open = false},
    {"POST", "/v1/responses", af_api_responses, .open = false},
    {"POST", "/v1/responses/input_tokens", af_api_response_count, .open = false},
    {"GET", "/v1/responses/", af_api_response, .prefix = true, .slow = true},
    {"DELETE", "/v1/responses/", af_api_delete_response, .prefix = true},
    {"POST", "/v1/messages", af_api_messages, .open = false},
    {"POST", "/v1/messages/count_tokens", af_api_message_count, .open = false},
    {"POST", "/v1/embeddings", af_api_embeddings, .open = false},
    {"POST", "/v1/score", af_api_score, .open = false},
    {"POST", "/score", af_api_score, .open = false},
    {"POST", "/v1/rerank", af_api_rerank, .open = false},
    {"POST", "/v2/rerank", af_api_rerank, .open = false},
    {"POST", "/rerank", af_api_rerank, .open = false},
    {"POST", "/v1/load_lora_adapter", af_api_load_adapter, .open = false},
    {"POST", "/v1/unload_lora_adapter", af_api_unload_adapter, .open = false},
    {"POST", "/api/chat", af_api_ollama_chat, .open = false},
    {"POST", "/api/generate", af_api_ollama_generate, .open = false},
    {"POST", "/api/embed", af_api_ollama_embed, .open = false},
    {"POST", "/api/embeddings", af_api_ollama_embeddings, .open = false},
    {"POST", "/api/show", af_api_ollama_show, .open = false},
    {"GET", "/api/tags", af_api_ollama_tags, .open = false},
    {"GET", "/api/ps", af_api_ollama_ps, .open = false},
    {"GET", "/api/version", af_api_ollama_version, .open = false},
    {"GET", "/v1/run", af_api_run, .run = true},
    {"GET", "/v1/run/metrics", af_api_run_metrics, .run = true},
    {"GET", "/v1/run/events", af_api_run_events, .run = true},
    {"GET", "/v1/run/samples", af_api_run_samples, .run = true},
    {"GET", "/v1/run/data", af_api_run_data, .run = true, .slow = true},
    {"POST", "/v1/run/pause", af_api_run_pause, .run = true},
    {"POST", "/v1/run/resume", af_api_run_resume, .run = true},
    {"POST", "/v1/run/checkpoint", af_api_run_checkpoint, .run = true},
    {"POST", "/v1/run/stop", af_api_run_stop, .run = true},
};

typedef struct af_api_job {
    af_httpd_call *call;
    const af_route *route;
    struct af_api_job *next;
} af_api_job;

static bool takes(const af_route *r, const char *method)
{
    return strcmp(r->method, method) == 0 ||
           (strcmp(r->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

/* Of those with this path: the one that takes the method, or else the first. */
static const af_route *find_route(const af_request_head *h)
{
    const af_route *found = NULL;
    for (size_t i = 0; i < AF_LEN(routes); i++) {
        const af_route *r = &routes[i];
        const size_t n = strlen(r->path);
        if (r->prefix ? strncmp(h->path, r->path, n) != 0 || !h->path[n]
                      : strcmp(h->path, r->path) != 0)
            continue;
        if (!found || takes(r, h->method))
            found = r;
    }
    return found;
}

static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    const size_t n = sizeof json - 1;
    return type && strncasecmp(type, json, n) == 0 && (!type[n] || strchr("; \t", type[n]));
}

/* Ollama reads a body of any type, and its pages call it without one (curl -d); pages of browsers
 * name their origin, and say that it is JSON. */
static bool may_be_json(const af_request_head *h)
{
    return is_json(af_request_field(h, "Content-Type")) ||
           (strncmp(h->path, "/api/", 5) == 0 && !af_request_field(h, "Origin"));
}

void af_api_on_head(void *user, af_httpd_call *c)
{
    af_api *a = user;
    const af_request_head *h = af_httpd_head(c);
    const af_route *r = find_route(h);
    const char *coding = af_request_field(h, "Content-Encoding");
    if (r && ((r->endpoint == af_api_page && a->o.no_ui) || (r->run && !a->run)))
        r = NULL;
    if (!af_api_allow(a, c, r && r->open))
        return;
    if (!r) {
        af_api_refuse(c, 404, NULL, NULL, "there is no '%.200s'", h->path);
    } else if (!takes(r, h->method)) {
        char allow[32];
        snprintf(allow, sizeof allow, "Allow: %s", r->method);
        af_httpd_add_header(c, allow);
        af_api_refuse(c, 405, NULL, NULL, "'%.200s' takes %s, not %.20s", h->path, r->method,
                      h->method);
    } else if (h->body > a->o.max_body) {
        af_api_refuse(c, 413, NULL, NULL,
                      "the body has %" PRIu64 " bytes; at most %" PRIu64
                      " are accepted (--max-body)",
                      h->body, a->o.max_body);
    } else if (h->has_body && !may_be_json(h)) {
        af_api_refuse(c, 415, NULL, NULL, "the Content-Type of the body is not application/json");
    } else if (h->has_body && coding && strcasecmp(coding, "identity") != 0) {
        af_api_refuse(c, 415, NULL, NULL, "a body with Content-Encoding '%.40s' is not supported",
                      coding);
    }
}

int af_api_deferred(af_api *a)
{
    pthread_mutex_lock(&a->work.lock);
    const int n = a->work.count;
    pthread_mutex_unlock(&a->work.lock);
    return n + af_serve_engine_waiting(a->engine);
}

void af_api_on_request(void *user, af_httpd_call *c)
{
    af_api *a = user;
    const af_route *r = find_route(af_httpd_head(c));
    if ((strcmp(r->method, "POST") != 0 || r->run) && !r->slow) {
        r->endpoint(a, c, NULL);
        return;
    }
    if (af_api_deferred(a) >= AF_SERVE_QUEUE_MAX) {
        af_api_refuse(c, 503, NULL, NULL, "%d requests are waiting; try again later",
                      AF_SERVE_QUEUE_MAX);
        return;
    }
    af_api_job *j = af_calloc(1, sizeof *j);
    if (!j) {
        af_api_refuse(c, 500, NULL, NULL, "out of memory");
        return;
    }
    *j = (af_api_job){.call = af_httpd_call_ref(c), .route = r};
    pthread_mutex_lock(&a->work.lock);
    *a->work.last = j;
    a->work.last = &j->next;
    a->work.count++;
    pthread_cond_signal(&a->work.changed);
    pthread_mutex_unlock(&a->work.lock);
}

static void work_on(af_api *a, const af_api_job *j)
{
    uint64_t n;
    json_error_t why;
    const char *text = af_httpd_body(j->call, &n);
    if (af_httpd_is_closed(j->call))
        return;
    if (j->route->slow) {
        j->route->endpoint(a, j->call, NULL);
        af_memory_forget();
        return;
    }
    json_t *body = af_json_load(text, n, JSON_ALLOW_NUL, &why);
    if (json_is_object(body))
        j->route->endpoint(a, j->call, body);
    else if (body)
        af_api_refuse(j->call, 400, NULL, NULL, "the body is not a JSON object");
    else if (af_memory_failed())
        af_api_refuse(j->call, 500, NULL, NULL, "out of memory for a body of %" PRIu64 " bytes", n);
    else
        af_api_refuse(j->call, 400, NULL, NULL, "the body is not JSON: %s (line %d, column %d)",
                      why.text, why.line, why.column);
    json_decref(body);
    af_memory_forget();
}

static void *worker(void *arg)
{
    af_api *a = arg;
    af_api_worker_queue *w = &a->work;
    for (;;) {
        pthread_mutex_lock(&w->lock);
        while (!w->quit && !w->first)
            pthread_cond_wait(&w->changed, &w->lock);
        af_api_job *j = w->first;
        if (j) {
            w->first = j->next;
            if (!w->first)
                w->last = &w->first;
            w->count--;
        }
        const bool quit = w->quit;
        pthread_mutex_unlock(&w->lock);
        if (j && quit)
            af_api_refuse(j->call, 503, NULL, NULL, "the server is shutting down");
        else if (j)
            work_on(a, j);
        if (!j)
            return NULL;
        af_httpd_call_unref(j->call);
        free(j);
    }
}

af_status af_api_start_workers(af_api *a, af_error *err)
{
    for (; a->work.threads < AF_API_WORKERS; a->work.threads++) {
        const int code = pthread_create(&a->work.thread[a->work.threads], NULL, worker, a);
        if (code)
            return af_fail(err, AF_ENOMEM,
                           "cannot start a thread: not enough memory, or too many threads");
    }
    return AF_OK;
}

void af_api_stop_workers(af_api *a)
{
    pthread_mutex_lock(&a->work.lock);
    a->work.quit = true;
    pthread_cond_broadcast(&a->work.changed);
    pthread_mutex_unlock(&a->work.lock);
    for (int i = 0; i < a->work.threads; i++)
        pthread_join(a->work.thread[i], NULL);
    a->work.threads = 0;
}
