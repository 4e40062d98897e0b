/* ollama.h - /api/...: Ollama's API, for the programs that speak no other.
 *
 * A request becomes the body of a chat completion or completion (ollama_request.c); the answer is a
 * line of JSON per piece, or one object (ollama_answer.c). Models are listed, not managed. */
#ifndef AF_OLLAMA_H
#define AF_OLLAMA_H

#include "serve/api/generation.h"

/* Bodies of /api/chat, of /api/generate for the chat template, and of the latter without it. */
AF_CHECKED af_status af_ollama_read_chat(af_generation *g, const json_t *body, json_t **out,
                                         af_api_fault *f);
AF_CHECKED af_status af_ollama_read_prompt(af_generation *g, const json_t *body, json_t **out,
                                           af_api_fault *f);
AF_CHECKED af_status af_ollama_read_raw(af_generation *g, const json_t *body, json_t **out,
                                        af_api_fault *f);
/* A copy of the body with the name of a model that is served: "NAME:latest" is NAME. */
json_t *af_ollama_body(af_api *a, const json_t *body);
/* "2026-01-31T12:00:00.123456Z", quoted; 0 is now. */
void af_ollama_out_time(af_buf *b, int64_t seconds);
#endif
