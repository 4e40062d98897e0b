/* decoder.h - a decoder and its sequences, for the files of this folder.
 *
 * A request waits in a list until a slot is free; it is then a sequence, whose tokens are fed until
 * the cache has all but none of them, and the logits of the last one give the next. */
#ifndef AF_DECODER_H
#define AF_DECODER_H

#include "afinar/decode.h"
#include "model/model_state.h"
#include "model/sample.h"

#include <pthread.h>

typedef struct af_decode_seq {
    struct af_decode_seq *next; /* in the list of those that wait */
    uint64_t ticket;
    af_decode_request r; /* ids, bias: NULL here */
    af_logit_bias *bias;
    int32_t *ids; /* prompt, then what was made */
    int64_t count, prompt;
    int64_t cached; /* the first tokens, whose keys and values (or states) the slot has */
    int64_t last;   /* the largest number of tokens it may have */
    int64_t told;   /* prompt tokens whose log-probabilities the caller has */
    bool cancelled;
} af_decode_seq;

struct af_decoder {
    af_model *m;
    const af_tokenizer *tokenizer; /* NULL: only the config's end tokens are known */
    af_engine engine;
    int64_t context, chunk, V;
    int slots;
    af_decode_seq **slot;          /* [slots], NULL = free */
    af_decode_seq *first, *at_end; /* those that wait */
    af_feed *feed;                 /* [slots] of the next run */
    uint64_t tickets;
    af_decoder_counts counts;
    /* scratch of one row of logits */
    float *logits;
    af_token_candidate *candidates;
    uint32_t *allowed;
    /* tickets cancelled since the last step */
    pthread_mutex_t lock;
    uint64_t *cancel;
    int64_t cancels, cancel_space;
};

/* decode_token.c: row of logits [V] -> the next token of s, or its prompt's log-probability;
 * callbacks included. *end: the sequence is finished. */
void af_decode_next(af_decoder *d, af_decode_seq *s, const float *logits, bool *end);
/* The log-probability of token `index`, given logits [V] of the row before it, where the request
 * wants it of its prompt. False cancels. */
bool af_decode_prompt(af_decoder *d, af_decode_seq *s, int64_t index, const float *logits);
/* The last call of a sequence that made no further token. */
void af_decode_finish(af_decode_seq *s, af_decode_end end);

/* decode_queue.c */
void af_decode_seq_free(af_decode_seq *s);
AF_CHECKED af_status af_decode_seq_new(af_decode_seq **out, const af_decoder *d,
                                       const af_decode_request *r, af_error *err);
#endif
