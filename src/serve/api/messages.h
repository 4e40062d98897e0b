/* messages.h - /v1/messages: Anthropic's API, for the agents that speak it.
 *
 * As with responses, a request becomes the body of a chat completion (message_request.c), and its
 * answer is written as items (message_answer.c). Nothing is stored. */
#ifndef AF_MESSAGES_H
#define AF_MESSAGES_H

#include "serve/api/generation.h"

/* Reads a body; *chat is the body of the chat completion that it stands for (json_decref). */
AF_CHECKED af_status af_message_read(af_generation *g, const json_t *body, json_t **chat,
                                     af_api_fault *f);
#endif
