/* serve.h - an HTTP server with OpenAI's endpoints over one model and its adapters.
 *
 *     af_server *s;
 *     af_server_open(&s, "Qwen/Qwen2.5-0.5B", &(af_serve_opts){.port = 8080}, &err);
 *     printf("listening on %s\n", af_server_url(s));
 *     ...
 *     af_server_drain(s, 60);
 *     af_server_close(s);
 *
 * Requests of all connections are decoded in one batch (decode.h). Endpoints, fields and errors are
 * those of `afinar serve`. */
#ifndef AFINAR_SERVE_H
#define AFINAR_SERVE_H

#include "afinar/decode.h"
#include "afinar/model.h"
#include "afinar/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A server that listens. */
typedef struct af_server af_server;

enum { AF_SERVE_LIST_MAX = 64 };

/* All strings are copied or used during the call alone, except where it says otherwise. */
typedef struct af_serve_opts {
    af_model_opts model;
    const char *adapter_name[AF_SERVE_LIST_MAX]; /* the name after BASE: */
    const char *adapter_path[AF_SERVE_LIST_MAX]; /* as in af_model_opts */
    int adapters;
    const char *alias; /* BASE; NULL: from the path */
    const char
        *chat_template;   /* a name (chatml, llama3, ...) or a .jinja file; NULL: the model's */
    const char *host;     /* NULL: 127.0.0.1; must stay valid */
    int port;             /* 0: the system chooses */
    const char *api_keys; /* separated by commas or newlines; NULL: none */
    int64_t context;      /* tokens a request may hold; 0: the model's */
    int parallel;         /* sequences decoded in one batch; 0: 32 */
    af_pooling pooling;
    bool own_pooling; /* that of the model's folder (1_Pooling/config.json), where it has one */
    const char *cors_origin[AF_SERVE_LIST_MAX]; /* "*": any; must stay valid */
    int cors_origins;
    const char
        *allowed_host[AF_SERVE_LIST_MAX]; /* besides loopback names and host; must stay valid */
    int allowed_hosts;
    double timeout;            /* seconds for an answer; 0: 3600 */
    double header_timeout;     /* seconds for a request head; 0: 10 */
    double ping_interval;      /* seconds after which a quiet stream sends a ping; 0: 30 */
    uint64_t max_body;         /* bytes; 0: 16 MiB */
    bool no_ui;                /* no page at / */
    bool reasoning;            /* of chat completions in reasoning_content, not in the text */
    bool round_activations;    /* see af_decoder_opts */
    const af_train_start *run; /* of a run that trains, or NULL */
    /* One line per request: method, path without query, status, seconds. May be NULL; called from a
     * thread of the server. */
    void (*log)(void *user, const char *method, const char *path, int status, double seconds);
    void *user;
} af_serve_opts;

/* Opens the model, its adapters and the socket, and serves from threads of its own. o may be NULL.
 * AF_EUSAGE for a
 * host that other machines reach without a key, for names that clash and options out of range;
 * otherwise as af_model_open and af_decoder_add_adapter; AF_EIO when the port cannot be had. On
 * success *out is the caller's, to be closed with af_server_close. */
AF_API AF_CHECKED af_status af_server_open(af_server **out, const char *model,
                                           const af_serve_opts *o, af_error *err);
/* "http://127.0.0.1:8080". Borrowed until af_server_close. */
AF_API const char *af_server_url(const af_server *s);
/* The names that requests may use, i from 0: the base, then the adapters at the start. NULL after
 * the last. Borrowed until af_server_close. */
AF_API const char *af_server_model_name(const af_server *s, int i);
/* No new requests from now on; returns when those that run are answered, or after `seconds`: false
 * then. */
AF_API bool af_server_drain(af_server *s, double seconds);
/* Ends everything at once. NULL is allowed. */
AF_API void af_server_close(af_server *s);

/* ---- while a run trains ----
 *
 * With `run` among the options the server has no engine of its own: requests are decoded between
 * two steps, by the thread that trains, from a copy of the base that the run does not write to. So
 * a run trains the same bytes with and without it. BASE:current is the adapter after the last step.
 */

/* Shows a row of the run's metrics, which is in metrics.jsonl by then. */
AF_API void af_server_run_step(af_server *s, const af_train_step *row);
/* Answers requests for at most about `seconds`, and waits while the run is paused. */
AF_API void af_server_run_between(af_server *s, const af_train_moment *m, double seconds);
/* Did a client ask the run to stop? */
AF_API bool af_server_run_stopping(const af_server *s);
/* The run has ended; `failed`: with an error. Answers what is left for at most `seconds`. */
AF_API void af_server_run_end(af_server *s, bool failed, double seconds);

#ifdef __cplusplus
}
#endif
#endif
