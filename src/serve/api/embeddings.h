/* embeddings.h - a request whose inputs become vectors: /v1/embeddings, and the similarities of
 * /v1/score and /v1/rerank. */
#ifndef AF_SERVE_EMBEDDINGS_H
#define AF_SERVE_EMBEDDINGS_H

#include "serve/api/generation.h"

typedef struct af_embedding_task af_embedding_task;

/* What an endpoint makes of the vectors. */
typedef struct af_embedding_use {
    const char *field; /* that has the inputs, or the last of them */
    /* Reads the body: input, inputs, dimensions and what the others need. */
    af_status (*read)(af_embedding_task *e, const json_t *body, af_error *err);
    void (*take)(af_embedding_task *e);   /* the vector of input number `next`, of length 1 */
    void (*answer)(af_embedding_task *e); /* all were taken: writes `out` */
} af_embedding_use;

struct af_embedding_task {
    af_serve_task task; /* first */
    const af_embedding_use *use;
    af_api *api;
    af_httpd_call *call;
    af_served *model;
    af_encoding *input;
    int inputs, next;
    int64_t dimensions;
    bool base64, failed;
    af_buf out;
    float *vector;
    struct {
        int queries; /* inputs that the others are compared with, one or as many as those */
        float *query;
        double *value; /* [inputs - queries] */
        json_t *texts; /* of a rerank: its documents */
        int64_t top;   /* of them, how many are listed */
        bool bare;     /* without the documents */
    } score;
};

/* Reads the request and hands it to the engine. */
void af_embeddings_start(af_api *a, af_httpd_call *c, const json_t *body,
                         const af_embedding_use *use);
int64_t af_embeddings_tokens(const af_embedding_task *e);
#endif
