/* generation.h - one request for text: its prompts, its choices, and its answer.
 *
 * A worker reads the request (request_*.c) and hands it to the engine, whose thread calls what
 * follows: tokens come in (generation.c) and the answer goes out at the end (answer_whole.c) or
 * piece by piece (answer_stream.c). */
#ifndef AF_SERVE_GENERATION_H
#define AF_SERVE_GENERATION_H

#include "decode/answer_text.h"
#include "decode/channels.h"
#include "grammar/tool_call.h"
#include "serve/api/api.h"

enum {
    AF_INPUTS_MAX = 2048, /* texts of a request */
    AF_STOPS_MORE = 8,    /* end tokens of templates, channels and fillings */
};

typedef struct af_generation af_generation;
typedef struct af_response af_response; /* responses.h */

/* Log-probabilities of tokens as JSON, since the last piece that was sent. */
typedef struct af_logprob_text {
    af_buf content;                     /* chat: entries of "content" */
    af_buf token, logprob, top, offset; /* completions: one list each */
    int64_t tokens;
} af_logprob_text;

typedef enum af_reasoning_state {
    AF_REASONING_OFF,    /* not looked for */
    AF_REASONING_START,  /* the answer may begin with it */
    AF_REASONING_INSIDE, /* its end has not come */
    AF_REASONING_AFTER,  /* between it and the content */
    AF_REASONING_DONE,
} af_reasoning_state;

typedef enum af_item_kind { AF_ITEM_REASONING, AF_ITEM_TEXT } af_item_kind;
typedef struct af_choice af_choice;

/* An API in whose words a request is read and answered: chat completions and completions
 * (answer_*.c), responses, messages. All but `read` are called in the engine. */
typedef struct af_answer_form {
    const char *id;    /* ids begin with it */
    bool chat;         /* messages that a template renders, not prompts */
    bool infill;       /* prompts of two texts with a gap between them */
    bool prompt_alone; /* max_tokens may be 0 */
    /* Reads a body; *chat is the body of the chat completion that it stands for (json_decref).
     * NULL: the body is one. */
    af_status (*read)(af_generation *g, const json_t *body, json_t **chat, af_api_fault *f);
    /* Names of fields in that chat completion and in the request, up to NULL; or NULL. */
    const char *const (*names)[2];
    void (*begin)(af_generation *g); /* a stream's first events */
    void (*piece)(af_choice *c);     /* new text, or the end */
    void (*call)(af_choice *c, const af_tool_call *call);
    void (*end)(af_generation *g);
    const char *ping; /* an event that says nothing; NULL: a comment, "": none */
    /* The last event of a stream that failed. */
    void (*fail)(af_generation *g, int status, const char *message);
    /* For forms whose piece is af_items_piece and whose call is af_items_call; `whole`: it was not
     * cut off. */
    struct {
        void (*open)(af_choice *c, af_item_kind k);
        void (*add)(af_choice *c, af_item_kind k, const char *text, uint64_t n);
        void (*close)(af_choice *c, af_item_kind k, const char *text, uint64_t n, bool whole);
        void (*call)(af_choice *c, const af_tool_call *call);
        bool never_empty; /* an answer without items gets an empty text */
    } item;
} af_answer_form;

extern const af_answer_form af_form_chat, af_form_text, af_form_responses, af_form_messages,
    af_form_llama, af_form_infill;

struct af_choice {
    af_generation *of;
    int index, prompt;
    int64_t prefix; /* tokens of the prompt that were not computed again */
    double first;   /* seconds from the request to its first token */
    uint64_t ticket;
    bool submitted, done;
    bool echoed;    /* the first token of the prompt is among the log-probabilities */
    double logprob; /* of its tokens so far, for best_of */
    af_answer_text text;
    af_tool_parser *parser; /* of calls, or NULL: the text is the content */
    uint64_t parsed;        /* bytes of the text that became parts */
    struct {
        af_reasoning_state state;
        const char *close; /* the mark at its end */
        af_buf text;
        uint64_t sent;
        int64_t tokens; /* its marks included */
    } reasoning;
    af_channels *channels; /* of answers that have them, or NULL */
    struct {               /* the message of a channel that is being read */
        bool begun, last;  /* last: nothing follows */
        af_buf call;       /* arguments */
        int64_t tokens;    /* of the answer before it */
    } message;
    af_buf content;          /* text after reasoning and around calls */
    af_buf calls, new_calls; /* JSON of all, and of those not sent yet */
    int call_count;
    uint64_t sent; /* bytes of the text that went out */
    int64_t ids_sent;
    af_logprob_text logprobs;
    int64_t characters; /* of the text before the next token, for offsets */
    const char *finish; /* finish_reason; NULL while it goes on */
    struct {            /* of an answer that is written as items: answer_items.c */
        int count;      /* those that are complete */
        af_buf output;  /* these, as JSON without brackets */
        bool thinking;  /* reasoning is being written */
        bool open;      /* a text is being written */
        uint64_t from;  /* where either begins, in the reasoning or in the content */
    } items;
    af_grammar_state *grammar;
    int64_t accepted; /* tokens that the grammar has seen */
};

struct af_generation {
    af_serve_task task; /* first: the engine's view */
    af_api *api;
    af_httpd_call *call;
    af_served *model;
    char id[48];
    int64_t created;
    bool chat, stream, include_usage, return_ids, echo, show_special;
    bool logprobs;
    int top_logprobs;
    af_encoding *prompt;
    af_buf *prompt_text; /* echo only */
    int prompts, n;      /* n: answers to each */
    int shown;           /* of these n, the most likely */
    af_choice *choice;   /* [prompts][n] */
    int choices, pending;
    bool cut_off; /* a choice was cancelled or failed */
    af_sample_opts sample;
    int64_t max_tokens, min_tokens;
    double max_seconds;         /* from the first token on, once a line is complete; 0: no limit */
    bool ignore_eos, no_tokens; /* no_tokens: max_tokens 0, the prompt alone */
    bool reasoning;             /* is taken out of the text */
    bool channels;              /* the answer is messages with channels */
    const char *opened;         /* the mark that ends reasoning which the prompt began, or NULL */
    af_buf begun;               /* channels: the message at the end of the prompt */
    char *stop[AF_STOPS_MAX + 1]; /* with the template's */
    int stops;
    int32_t stop_id[AF_STOPS_MAX + AF_STOPS_MORE];
    int stop_ids;
    af_logit_bias *bias;
    int biases;
    uint32_t *only;   /* a bit per token that may be made, or NULL */
    af_encoding *bad; /* [bads] tokens that may not follow each other */
    int bads;
    af_kept_grammar *grammar;
    char *schema;   /* what the grammar was made of; NULL: none, or another kind of grammar */
    json_t *tools;  /* NULL: none that may be called */
    json_t *custom; /* names of tools that take a text, or NULL */
    json_t *picked; /* llama-server's response_fields, or NULL */
    bool functions; /* they are "functions" of the request, and a call is its "function_call" */
    af_tool_format tool_format;
    const af_answer_form *form;
    af_response *response; /* of /v1/responses, or NULL */
    bool answered;
};

/* ---- generation.c ---- */

/* A request of a call (NULL in tests); all of it is read before the engine gets it. */
af_generation *af_generation_new(af_api *a, af_httpd_call *call, const af_answer_form *form);
AF_CHECKED af_status af_generation_read(af_generation *g, const json_t *body, af_api_fault *f);
void af_generation_free(af_generation *g);
/* Reads the request of a call and hands it to the engine, or refuses it. */
void af_generate(af_api *a, af_httpd_call *call, const json_t *body, const af_answer_form *form);

/* ---- request_*.c: in a worker ---- */

/* Fields that chat and completions share. */
AF_CHECKED af_status af_generation_fields(af_generation *g, const json_t *body, af_api_fault *f);
enum { AF_LLAMA_LAST_N = 64 }; /* the default of repeat_last_n in llama-server and Ollama */
/* Refuses samplers of llama.cpp that are not here, unless they are off. */
AF_CHECKED af_status af_samplers_check(const json_t *body, af_error *err);
/* Those that other APIs call by the same names. */
void af_copy_fields(const json_t *body, json_t *chat);
/* response_format, grammar, json_schema, structured_outputs. */
AF_CHECKED af_status af_generation_format(af_generation *g, const json_t *body, af_api_fault *f);
/* The rendered text of messages (and tools) of a body. *text is malloc'ed. */
AF_CHECKED af_status af_chat_render(const af_api *a, const af_served *m, const json_t *body,
                                    char **text, uint64_t *n, af_error *err);
/* The tokens of that text. */
AF_CHECKED af_status af_chat_encode(const af_api *a, const af_served *m, const json_t *body,
                                    bool add_special, af_encoding *e, af_error *err);
/* Parts [{"type": "text", "text"}] as one text: templates expect a string. *out: json_decref. */
AF_CHECKED af_status af_join_parts(const json_t *parts, json_t **out, af_error *err);
AF_CHECKED af_status af_generation_chat(af_generation *g, const json_t *body, af_api_fault *f);
AF_CHECKED af_status af_generation_prompts(af_generation *g, const json_t *body, af_api_fault *f);
/* Texts and token ids of a field ("prompt", "input"): a text, texts, ids, or lists of ids. */
AF_CHECKED af_status af_read_inputs(const af_api *a, const json_t *body, const char *field,
                                    af_encoding **out, int *count, af_error *err);
void af_inputs_free(af_encoding *e, int count);
/* The prompts of a body with "suffix". */
AF_CHECKED af_status af_generation_infill(af_generation *g, const json_t *body, af_error *err);
/* The model that a body names; a fault of 404 when there is none. */
AF_CHECKED af_status af_request_model(af_api *a, const json_t *body, af_served **out,
                                      af_api_fault *f);

/* ---- token_limits.c ---- */
AF_CHECKED af_status af_limits_read(af_generation *g, const json_t *body, af_error *err);
bool af_limits_any(const af_generation *g);
/* Clears the bits of tokens that may not follow the n that were made. */
void af_limits_apply(const af_generation *g, const int32_t *made, int64_t n, uint32_t *allowed);
void af_limits_free(af_generation *g);

/* ---- tool_answer.c ---- */
/* A body with "functions" and "function_call", of OpenAI's first API, in the words of tools. *out
 * as below. */
AF_CHECKED af_status af_function_tools(af_generation *g, const json_t *body, json_t **out,
                                       af_error *err);
/* A body without "allowed_tools": the others are not offered, and tool_choice is its mode. *out is
 * the body itself when it has none; json_decref. */
AF_CHECKED af_status af_allowed_tools(const json_t *body, json_t **out, af_error *err);
/* Tools that take a text, of type "custom", as functions. To the model such a tool has one
 * parameter, "input"; its format, {"syntax", "definition"}, is part of the description, and a call
 * that is forced keeps to a regular expression. *out as above. */
AF_CHECKED af_status af_custom_tools(af_generation *g, const json_t *body, json_t **out,
                                     af_error *err);
json_t *af_custom_function(const json_t *tool, const json_t *format);
bool af_is_custom(const af_generation *g, const char *name);
/* The text of a call of one; valid until *tree is freed (json_decref). */
const char *af_custom_input(const af_tool_call *call, json_t **tree);
/* tools and tool_choice of a body; with a forced call the grammar for it. */
AF_CHECKED af_status af_generation_tools(af_generation *g, const json_t *body, af_api_fault *f);
/* A parser for the calls in this choice's text. */
AF_CHECKED af_status af_choice_tools(af_choice *c, af_error *err);

/* ---- answer_parts.c ---- */
/* The mark that ends reasoning which this prompt begins; NULL: it begins none. */
const char *af_reasoning_opened(const char *prompt, uint64_t n);
bool af_is_reasoning_mark(const char *token);
/* Prepares the choice for reasoning, as its request asks for it. */
AF_CHECKED af_status af_choice_reasoning(af_choice *c, af_error *err);
/* True when the text is read for reasoning or calls. */
bool af_choice_has_parts(const af_choice *c);
/* Reads what is new in the text; `last`: nothing follows. */
AF_CHECKED af_status af_choice_parse(af_choice *c, bool last, af_error *err);
/* The text to show: all of it, or what is after reasoning and around calls. */
const af_buf *af_choice_content(const af_choice *c);

/* ---- logprobs.c ---- */
void af_logprobs_add(af_choice *c, const af_decoded *t);
/* echo: the first token of the prompt, which has none. */
void af_logprobs_begin(af_choice *c);
/* {"content": ...} or {"tokens": ...}, or null when they were not asked for. */
void af_logprobs_out(af_buf *b, af_choice *c);
void af_logprobs_clear(af_logprob_text *t);

/* ---- answer_items.c ---- */
/* The answer as items: reasoning, texts and calls, in the order the model wrote them. */
void af_items_piece(af_choice *c);
void af_items_call(af_choice *c, const af_tool_call *call);
/* The item is complete: adds its JSON to the output, and clears it. */
void af_items_add(af_choice *c, af_buf *item);

/* ---- answer_whole.c, answer_stream.c ---- */
void af_answer_whole(af_generation *g);
/* "tool_calls": [...] of calls as JSON, or "function_call": of the one. */
void af_out_calls(af_buf *b, const af_choice *c, const af_buf *calls);
/* The last event of a stream, with an error. */
void af_answer_fail(af_generation *g, int status, const char *message);
/* Ends the object of an event, sends it and clears the buffer. */
void af_answer_send(af_generation *g, af_buf *b);
/* The beginning of an answer or piece, up to "choices":[ */
void af_out_answer_head(af_buf *b, const af_generation *g, const char *object);
void af_out_usage(af_buf *b, const af_generation *g);
/* Tokens of the prompts that were not computed again; a prompt of several choices counts once. */
int64_t af_generation_cached(const af_generation *g);
#endif
