/* hub_ask.h - a question to the hub: one request through redirects, waits and repetitions.
 *
 * A state machine without threads: af_ask_step begins the request, and later looks at what came.
 * Rules that are kept here and nowhere else:
 *   - the token goes to the origin (scheme, host, port) of the hub and to no other;
 *   - redirects are followed by hand, at most AF_ASK_REDIRECTS, never from https to http, and to
 *     other hosts only for files; a hub that is encrypted sends nobody to an address that is not;
 *   - 408, 429, 5xx and broken connections are repeated with growing waits or as Retry-After says,
 *     AF_ASK_TRIES times without a new byte; an address that has expired is asked for again. */
#ifndef AF_HUB_ASK_H
#define AF_HUB_ASK_H

#include "hub/http.h"

enum {
    AF_ASK_TRIES = 6,
    AF_ASK_CONNECTS = 3, /* without a network nobody wants to wait long */
    AF_ASK_REDIRECTS = 8
};

typedef struct af_hub_client {
    af_transport *net;
    char *endpoint;      /* "https://huggingface.co" */
    char origin[300];    /* of it */
    char *token;         /* NULL = none */
    char token_from[64]; /* "HF_TOKEN", "--token-file" or "the token file" */
    int stall_s;
} af_hub_client;

typedef enum af_ask_state { AF_ASK_READY, AF_ASK_RUNNING, AF_ASK_DONE, AF_ASK_FAILED } af_ask_state;

typedef struct af_ask {
    const char *method, *url; /* borrowed, as are the next ones */
    const char *type;         /* "Content-Type: ...", or NULL */
    const void *body;
    uint64_t size;
    bool has_file; /* the body is `size` bytes of fd from `from` on */
    int fd;
    uint64_t from;
    bool for_file;            /* may be redirected to another host */
    bool is_slow;             /* the hub works before it answers: a commit */
    uint64_t limit;           /* of the answer's text; 0 = 1 MiB */
    char range[80];           /* "Range: bytes=...", or "" */
    char at[AF_HTTP_URL_MAX]; /* where to begin; "" = url */
    /* May be NULL. begin: before each request. check: a head of the hub or, with `last`, the one
     * that the bytes follow. sink: those bytes; without it they become `text`. */
    void (*begin)(void *user);
    af_status (*check)(void *user, const af_http_head *h, bool of_hub, bool last, af_error *err);
    af_status (*sink)(void *user, const uint8_t *bytes, uint64_t n, af_error *err);
    void *user;

    af_ask_state state;
    int status; /* of the last answer; 0 = none came */
    af_buf text;
    af_error why; /* of AF_ASK_FAILED without an HTTP status of its own */
    bool of_hub;  /* the running request goes to the hub itself */
    bool moved;   /* bytes came since the last failure */
    bool cut;     /* the text of an error was longer than we read */
    int tries, redirects;
    double start_at;
    char bearer[600], where[300]; /* the header with the token; "" = none. The origin asked */
    af_http_call call;
} af_ask;

/* Moves the question on. Never blocks. */
void af_ask_step(af_ask *a, af_hub_client *c);
/* Until it is done or has failed. */
void af_ask_run(af_ask *a, af_hub_client *c);
/* Ends it whatever it does, and frees the text. */
void af_ask_clear(af_ask *a, af_hub_client *c);

/* ---- the client ---- */

/* HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set. */
bool af_hub_env_offline(void);
/* Endpoint and token from the environment; net: NULL = libcurl, else borrowed. */
AF_CHECKED af_status af_hub_client_open(af_hub_client *c, const char *token_file, af_transport *net,
                                        af_error *err);
void af_hub_client_close(af_hub_client *c, bool with_net);

/* What the hub says itself: a header, or {"error": ...}; control characters are left out, and all
 * of it when it repeats the token. */
void af_ask_words(char out[260], const af_ask *a, const af_hub_client *c);

struct af_hub_repo;
/* The sentence for a question that failed; repo may be NULL. file: what was asked for, or NULL. */
af_status af_ask_fail(const af_ask *a, const af_hub_client *c, const struct af_hub_repo *repo,
                      const char *file, af_error *err);
#endif
