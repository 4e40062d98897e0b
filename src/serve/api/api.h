/* api.h - what the endpoints share: the models they serve, the tokenizer, the engine, the limits.
 *
 * Three kinds of threads: the HTTP thread checks heads and answers what needs no work; workers read
 * bodies, render templates and tokenise; the engine decodes. Only the engine touches the model. */
#ifndef AF_SERVE_API_H
#define AF_SERVE_API_H

#include "afinar/grammar.h"
#include "afinar/serve.h"
#include "format/tokenizer/tokenizer.h"
#include "serve/api/fields.h"
#include "serve/engine/serve_engine.h"
#include "serve/http/http_server.h"

#include <pthread.h>

enum { AF_API_KEYS_MAX = 256, AF_API_WORKERS = 4, AF_API_GRAMMARS = 16 };

enum { AF_SERVED_GONE = -1 }; /* an adapter that went while requests for it waited */

/* A name that requests may ask for; counted references. Whoever answers a request holds one until
 * the answer is complete. */
typedef struct af_served {
    char *name; /* BASE, or BASE:NAME */
    char *path;
    atomic_int adapter;    /* of the decoder; 0 = the base; or AF_SERVED_GONE */
    af_template *template; /* an adapter's own, or NULL */
    unsigned form;         /* how it reads messages: see af_template_form */
    int64_t created;
    atomic_int refs;
    struct af_served *next;
} af_served;

/* A grammar that later requests may ask for again. */
typedef struct af_kept_grammar {
    uint64_t hash;
    af_grammar_kind kind;
    char *text;
    uint64_t len;
    af_grammar *grammar;
    atomic_int refs;
    uint64_t used;
} af_kept_grammar;

typedef struct af_api_worker_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct af_api_job *first, **last;
    int count;
    bool quit;
    pthread_t thread[AF_API_WORKERS];
    int threads;
} af_api_worker_queue;

typedef struct af_run_state af_run_state;           /* run_state.h */
typedef struct af_response_store af_response_store; /* responses.h */

typedef struct af_api {
    af_serve_opts o;
    af_run_state *run; /* of a run that trains, or NULL */
    af_response_store *responses;
    char *alias;
    char key[AF_API_KEYS_MAX][65]; /* SHA-256 of each, in hex */
    int keys;
    bool loopback; /* listens on this machine alone */
    af_httpd *http;
    af_serve_engine *engine;
    const af_tokenizer *tokenizer;
    const af_template *template; /* NULL: the model has none */
    const char *eot; /* ends an answer of this template; NULL: the model's end tokens alone do */
    unsigned form;   /* how it reads messages: see af_template_form */
    bool headless;   /* the model has no head: embeddings alone */
    char *model_path;
    const char *arch; /* the model's, "llama" */
    int64_t params;
    int64_t context, vocab, width;
    int parallel;
    int64_t started; /* seconds since 1970 */
    pthread_mutex_t models_lock;
    af_served *models; /* the base first */
    pthread_mutex_t grammar_lock;
    af_grammar_vocab *grammar_vocab;
    af_kept_grammar *grammars[AF_API_GRAMMARS];
    uint64_t grammar_clock;
    af_api_worker_queue work;
    atomic_uint_least64_t prompt_tokens, new_tokens, ids;
} af_api;

/* ---- models.c ---- */

/* The model of a request: `name` NULL is the base. NULL when there is none of that name. */
af_served *af_api_find_model(af_api *a, const char *name);
AF_CHECKED af_status af_api_add_model(af_api *a, const char *name, const char *path, int adapter,
                                      af_error *err);
/* Takes it off the list; the caller's reference then. NULL when there is none. */
af_served *af_api_remove_model(af_api *a, const char *name);
void af_served_unref(af_served *m);
/* Its adapter; AF_ESTOPPED when it has gone. */
AF_CHECKED af_status af_served_adapter(const af_served *m, int *adapter, af_error *err);
/* The template to render for this model; NULL when neither it nor the base has one. */
const af_template *af_served_template(const af_api *a, const af_served *m);
unsigned af_served_form(const af_api *a, const af_served *m);

/* ---- errors.c ---- */

/* What is wrong with a request. */
typedef struct af_api_fault {
    int status;       /* 0: as err.code says */
    const char *code; /* static, or NULL */
    af_error err;     /* its subject is the field */
} af_api_fault;

/* {"error": ...} with this status. */
AF_PRINTF(5, 6)
void af_api_refuse(af_httpd_call *c, int status, const char *code, const char *param,
                   const char *fmt, ...);
void af_api_refuse_fault(af_httpd_call *c, const af_api_fault *f);
int af_api_fault_status(const af_api_fault *f);
/* The object alone; malloc'ed. */
char *af_api_error_body(int status, const char *why);
void af_api_error_object(af_buf *b, int status, const char *code, const char *param,
                         const char *message);
/* As /v1/messages has it. */
void af_api_message_error(af_buf *b, int status, const char *message);
/* Answers with the buffer as JSON and clears it; 500 when memory ran out. */
void af_api_answer(af_httpd_call *c, af_buf *b);

/* ---- endpoints; each answers the call. `body` is NULL for GET. ---- */

typedef void af_api_endpoint(af_api *a, af_httpd_call *c, const json_t *body);
af_api_endpoint af_api_health, af_api_models, af_api_model, af_api_metrics, af_api_props;
af_api_endpoint af_api_tokenize, af_api_detokenize, af_api_apply_template;
af_api_endpoint af_api_chat, af_api_completions, af_api_llama_completion, af_api_infill;
af_api_endpoint af_api_embeddings, af_api_score, af_api_rerank;
af_api_endpoint af_api_responses, af_api_response, af_api_delete_response, af_api_response_count;
af_api_endpoint af_api_messages, af_api_message_count;
af_api_endpoint af_api_ollama_chat, af_api_ollama_generate, af_api_ollama_embed;
af_api_endpoint af_api_ollama_embeddings, af_api_ollama_tags, af_api_ollama_ps;
af_api_endpoint af_api_ollama_show, af_api_ollama_version;
af_api_endpoint af_api_load_adapter, af_api_unload_adapter;
af_api_endpoint af_api_page;
af_api_endpoint af_api_run, af_api_run_metrics, af_api_run_events;
af_api_endpoint af_api_run_samples, af_api_run_data;
af_api_endpoint af_api_run_pause, af_api_run_resume, af_api_run_checkpoint, af_api_run_stop;

/* ---- route.c ---- */

/* The hooks of the HTTP server; user is the af_api. */
af_httpd_hook af_api_on_head, af_api_on_request;
AF_CHECKED af_status af_api_start_workers(af_api *a, af_error *err);
void af_api_stop_workers(af_api *a);
int af_api_deferred(af_api *a);

/* ---- access.c ---- */

/* Host, Origin and key of a request; answers and returns false when it is not allowed. Adds the
 * headers for another page's script that may call. `open`: no key is needed. */
bool af_api_allow(af_api *a, af_httpd_call *c, bool open);
AF_CHECKED af_status af_api_add_keys(af_api *a, const char *list, af_error *err);
/* True for names and addresses of this machine alone. */
bool af_api_is_loopback(const char *host);

/* ---- grammars.c ---- */

/* A compiled grammar, kept for later requests; release it. */
AF_CHECKED af_status af_api_grammar(af_api *a, af_kept_grammar **out, af_grammar_kind kind,
                                    const char *text, uint64_t len, af_error *err);
void af_kept_grammar_release(af_kept_grammar *k);
#endif
