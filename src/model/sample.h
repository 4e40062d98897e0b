/* sample.h - picks the next token from logits. Pure functions of their arguments. */
#ifndef AF_SAMPLE_H
#define AF_SAMPLE_H

#include "afinar/model.h"
#include "base/base.h"

typedef struct af_token_candidate {
    int32_t id;
    float logit;
    double p;
} af_token_candidate;

/* Checks the options; the message names the one that is out of range. */
AF_CHECKED af_status af_sample_check(const af_sample_opts *o, af_error *err);
/* The first of the largest logits is taken: there is no temperature, or one so small that logits
 * divided by it would not fit into an f32. */
bool af_sample_is_greedy(const af_sample_opts *o);
/* True when a choice depends on the tokens before it. */
bool af_sample_penalises(const af_sample_opts *o);

typedef struct af_seen_tokens {
    const int32_t *ids;
    int64_t count, made; /* all of them, and how many of the last are new, not of the prompt */
} af_seen_tokens;

/* Chooses from logits [V], which are changed. `scratch` holds V candidates. The random number is a
 * function of (seed, stream, index). The order is that of transformers and vLLM: repetition penalty
 * (of all tokens), frequency and presence penalty (of new ones), temperature, top-k, top-p, min-p.
 * A NaN among the logits gives -1. */
int32_t af_sample(const af_sample_opts *o, float *logits, int64_t V, af_seen_tokens seen,
                  uint64_t stream, uint64_t index, af_token_candidate *scratch);
#endif
