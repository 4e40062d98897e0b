/* decode.h - many sequences decoded at once, each with its own sampling, adapter and end.
 *
 *     af_decoder *d;
 *     af_decoder_open(&d, model, &(af_decoder_opts){.sequences = 32}, &err);
 *     af_decoder_submit(d, &(af_decode_request){.ids = ids, .count = n, .max_tokens = 100,
 *                                               .token = on_token, .user = me}, &ticket, &err);
 *     for (int64_t active = 1; active > 0;)
 *         af_decoder_step(d, &active, &err);       // on_token is called inside
 *
 * Batch invariance: the tokens and log-probabilities of a request are the same bits alone and among
 * others, whatever adapters these have, and whether its prompt begins like an earlier one or not.
 *
 * A decoder is used by one thread at a time; af_decoder_cancel may be called from any. */
#ifndef AFINAR_DECODE_H
#define AFINAR_DECODE_H

#include "afinar/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A batched decoder over an open model. */
typedef struct af_decoder af_decoder;

enum { AF_TOP_LOGPROBS_MAX = 20 };

typedef struct af_decoder_opts {
    int64_t context;   /* tokens a sequence may hold, prompt included; 0 = the model's */
    int sequences;     /* decoded in one batch, more wait; 0 = 32 */
    int64_t tokens;    /* kept in the pages of all sequences together; 0 = what memory allows */
    bool keep_no_text; /* prompts are not kept for later ones that begin alike */
    /* Single tokens are rounded to 8 bits (32 values have one scale) before they meet GGUF blocks
     * of 3 to 8 bits, as llama.cpp does: faster where the CPU multiplies bytes (AVX2 and Arm
     * with dot products), and other numbers than those of af_model_logits. Ignored elsewhere. */
    bool round_activations;
} af_decoder_opts;

/* Opens a decoder. m must outlive it and may be used for other calls meanwhile (not at the same
 * time). Its adapter (af_model_opts) is part of the base here. o may be NULL. On success *out
 * belongs to the caller; close it with af_decoder_close. AF_EUSAGE for a model that has no logits
 * of tokens, AF_ENOMEM, AF_EDEVICE. */
AF_API AF_CHECKED af_status af_decoder_open(af_decoder **out, af_model *m, const af_decoder_opts *o,
                                            af_error *err);
/* Requests that are not finished get a last call with AF_DECODE_CANCELLED. NULL is allowed. */
AF_API void af_decoder_close(af_decoder *d);

/* Reads an adapter (af_model_opts) made for this base and keeps it under `name`. *id: what requests
 * choose it by, from 1; 0 is the base. AF_EUSAGE for a name that is taken or an adapter that cannot
 * be chosen per row (trained embeddings or heads, saved modules, experts), AF_EIO, AF_EFORMAT,
 * AF_ENOMEM. */
AF_API AF_CHECKED af_status af_decoder_add_adapter(af_decoder *d, const char *name,
                                                   const char *folder, int *id, af_error *err);
/* Forgets an adapter. AF_EUSAGE for an unknown id or while requests use it. */
AF_API AF_CHECKED af_status af_decoder_remove_adapter(af_decoder *d, int id, af_error *err);
/* The id of a name, or -1. */
AF_API int af_decoder_find_adapter(const af_decoder *d, const char *name);

typedef enum af_decode_end {
    AF_DECODE_GOES_ON,
    AF_DECODE_EOS,       /* the token is an end token of the model */
    AF_DECODE_LENGTH,    /* max_tokens or the context is reached */
    AF_DECODE_CANCELLED, /* id is -1 */
    AF_DECODE_ERROR,     /* id is -1: a logit was not a number, or no token is allowed */
} af_decode_end;

typedef struct af_token_logprob {
    int32_t id;
    double logprob;
} af_token_logprob;

/* One token: made, or with `prompt` one of the request's own. Valid during the call. */
typedef struct af_decoded {
    uint64_t ticket;
    bool prompt;
    int64_t index;  /* among the tokens made, or in the prompt (from 1) */
    int32_t id;     /* -1: none, the request ended otherwise */
    double logprob; /* of id given everything before it; before penalties, temperature, filters,
                       biases and masks; NaN where top_logprobs is -1 */
    int tops;       /* most probable tokens, best first */
    const af_token_logprob *top;
    af_decode_end end;
    int64_t prefix; /* tokens at the beginning of the prompt found in pages, not computed */
} af_decoded;

typedef struct af_logit_bias {
    int32_t id;
    double bias; /* added to the logit */
} af_logit_bias;

/* Which tokens may come after the n made so far: a bit per id, all set before the call. False: the
 * request ends with AF_DECODE_ERROR. */
typedef bool af_decode_mask(void *user, const int32_t *made, int64_t n, uint32_t *allowed);
/* Gets every token as it is made. False cancels: there is no further call. */
typedef bool af_decode_token(void *user, const af_decoded *t);

typedef struct af_decode_request {
    const int32_t *ids; /* the prompt, copied; at least one token */
    int64_t count;
    int adapter; /* 0 = the base */
    af_sample_opts sample;
    uint64_t stream; /* of random numbers: with the seed it decides all of them; generate's prompt
                        i has stream i */
    int64_t max_tokens; /* 0 = as many as the context holds */
    int64_t min_tokens; /* none that ends before so many, unless the mask allows no other */
    bool ignore_eos;
    int top_logprobs; /* -1 = no log-probabilities at all, 0 to AF_TOP_LOGPROBS_MAX */
    bool prompt_logprobs;
    const af_logit_bias *bias; /* copied */
    int biases;
    af_decode_mask *mask; /* NULL = all */
    af_decode_token *token;
    void *user; /* of both */
} af_decode_request;

/* Queues a request. AF_EUSAGE for options out of range, ids outside the vocabulary, a prompt longer
 * than the context, an unknown adapter. */
AF_API AF_CHECKED af_status af_decoder_submit(af_decoder *d, const af_decode_request *r,
                                              uint64_t *ticket, af_error *err);
/* Ends a request at the next step, which calls token with AF_DECODE_CANCELLED. From any thread;
 * unknown and finished tickets are allowed. */
AF_API void af_decoder_cancel(af_decoder *d, uint64_t ticket);
/* Runs one batch: a part of the prompts that wait, and one token of every sequence after its
 * prompt. *active (may be NULL): requests that are not finished. An error is the device's and ends
 * nothing. */
AF_API AF_CHECKED af_status af_decoder_step(af_decoder *d, int64_t *active, af_error *err);

/* Which hidden states make an embedding. */
typedef enum af_pooling { AF_POOLING_LAST, AF_POOLING_MEAN, AF_POOLING_CLS } af_pooling;
/* The size of an embedding. */
AF_API int64_t af_decoder_width(const af_decoder *d);
/* The hidden states after the last norm, pooled, not normalised: out [width]. AF_EUSAGE as
 * af_decoder_submit. */
AF_API AF_CHECKED af_status af_decoder_embed(af_decoder *d, const int32_t *ids, int64_t count,
                                             int adapter, af_pooling pooling, float *out,
                                             af_error *err);

typedef struct af_decoder_counts {
    uint64_t prompt_tokens, new_tokens; /* of finished and running requests */
    uint64_t prefix_tokens;             /* of the prompts: found in pages, not computed */
    int64_t running, waiting;           /* requests */
    int64_t pages, pages_free;          /* free: also those kept only for later prompts */
    int64_t context;
    int sequences;
} af_decoder_counts;
/* The counters of d; zeros for NULL. */
AF_API af_decoder_counts af_decoder_count(const af_decoder *d);

#ifdef __cplusplus
}
#endif
#endif
