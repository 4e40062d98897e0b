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
/* Chooses from logits [V], which are changed. `seen` are the tokens so far (for the repetition
 * penalty, once each). `scratch` holds V candidates. The random number is a function of
 * (seed, stream, index). The order is that of transformers: penalty, temperature, top-k, top-p,
 * min-p. A NaN among the logits gives -1. */
int32_t af_sample(const af_sample_opts *o, float *logits, int64_t V, const int32_t *seen,
                  int64_t seen_count, uint64_t stream, uint64_t index, af_token_candidate *scratch);
#endif
