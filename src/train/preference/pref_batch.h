/* pref_batch.h - a micro-batch of pairs: from the values of its rows to loss, weights of rows and
 * metrics. */
#ifndef AF_PREF_BATCH_H
#define AF_PREF_BATCH_H

#include "data/store/batch_stream.h"
#include "train/preference/pref_loss.h"
#include "train/preference/pref_metrics.h"

/* Sums over an answer's rows; `tail`: after the length of the shorter answer of its pair. */
typedef struct af_answer_sums {
    double shared, tail;                  /* log-probabilities */
    double entropy, logits, hits, spread; /* spread: of logp - log sum p^2 */
    int64_t terms, tokens, prompt;
} af_answer_sums;

typedef struct af_pair_sums {
    int64_t record;
    af_answer_sums first, second;
    double prompt_nll; /* ORPO, over prompt_terms */
    int64_t prompt_terms;
    bool label;
} af_pair_sums;

/* A pair of a batch; `rows`: AF_HEAD_STATS values per row, as the head gives them. */
af_pair_sums af_pair_sums_of(const af_pair_rows *p, const float *rows);

/* The reference's log-probabilities of a record. */
typedef struct af_pair_reference {
    double first, first_tail, second, second_tail;
} af_pair_reference;
af_pair_reference af_pair_reference_of(const af_pair_sums *s);

/* d loss / d log-probability of each part of a pair, per token. */
typedef struct af_pair_grads {
    double first, first_tail, second, second_tail;
    double nll_first, nll_prompt; /* by the cross-entropy of a row */
} af_pair_grads;

/* Scratch memory for the losses of up to `room` pairs. */
typedef struct af_pref_scratch {
    af_pref_pair *pair;
    af_kto_row *kto;
    int64_t room;
} af_pref_scratch;
AF_CHECKED af_status af_pref_scratch_init(af_pref_scratch *s, int64_t room, af_error *err);
void af_pref_scratch_clear(af_pref_scratch *s);

/* The loss of n pairs, n within the room. `ref` is by pair (ignored without a reference); `grads`
 * may be NULL; values are added to `m`. */
double af_pref_batch_loss(const af_pref_opts *o, af_pref_scratch *s, const af_pair_sums *sums,
                          const af_pair_reference *ref, int64_t n, af_pair_grads *grads,
                          af_pref_metrics *m);
/* Weights of the batch's rows: the gradient by each row's cross-entropy times `share`; 0 elsewhere.
 */
void af_pref_batch_weights(const af_batch *b, const af_pair_grads *grads, double share,
                           float *weight);
#endif
