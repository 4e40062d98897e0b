/* responses.h - /v1/responses: a conversation as a list of items, in the subset that agents use.
 *
 * A request becomes the body of a chat completion (response_request.c) and is read as one, so that
 * both give the same tokens. Its answer is written as items and events of its own
 * (response_answer.c), and kept for requests that continue it (response_store.c) or list its input
 * (response_items.c). */
#ifndef AF_RESPONSES_H
#define AF_RESPONSES_H

#include "serve/api/generation.h"

enum { AF_RESPONSES_MAX = 1024 };           /* kept answers */
enum { AF_RESPONSES_BYTES_MAX = 32 << 20 }; /* of all of them */

/* What a request for a response has besides its generation. */
struct af_response {
    char *echo;      /* members of the request that the answer repeats, as JSON without braces */
    char *items;     /* the conversation so far, as JSON without brackets; NULL: nothing is kept */
    int events;      /* sent so far */
    af_buf logprobs; /* of the message that is being written */
};

/* ---- response_request.c: in a worker ---- */

/* Reads a body; *chat is the body of the chat completion that it stands for (json_decref). */
AF_CHECKED af_status af_response_read(af_generation *g, const json_t *body, json_t **chat,
                                      af_api_fault *f);
void af_response_free(af_response *r); /* NULL is allowed */

/* ---- response_store.c: any thread ---- */

typedef struct af_stored_response af_stored_response;

struct af_response_store {
    pthread_mutex_t lock;
    af_stored_response *first, **last; /* the oldest first */
    uint64_t bytes;
    int count;
};

AF_CHECKED af_status af_response_store_new(af_response_store **out, af_error *err);
void af_response_store_free(af_response_store *s); /* NULL is allowed */
typedef enum af_stored_part {
    AF_STORED_OBJECT,
    AF_STORED_ITEMS, /* up to the answer and with it, as JSON without brackets */
    AF_STORED_INPUT, /* those before the answer */
} af_stored_part;

/* Keeps an answer and the items up to it, both malloc'ed and the store's then; the first `input`
 * bytes of the items are those before the answer. The oldest ones go when there are too many. */
void af_response_store_add(af_response_store *s, const char *id, char *object, char *items,
                           uint64_t input);
/* A copy (malloc'ed); NULL when there is none of this id. */
char *af_response_store_get(af_response_store *s, const char *id, af_stored_part part);

/* ---- response_items.c: in a worker ---- */

/* Answers /v1/responses/ID/input_items. */
void af_response_list_input(af_api *a, af_httpd_call *c, const char *id);
/* The answer for an id that is not stored. */
void af_response_not_stored(af_httpd_call *c, const char *id);
#endif
