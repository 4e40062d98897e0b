/* pair_batch.h - how preference records lie in a batch.
 *
 * Two copies: each answer is a sequence of its own after a copy of its prompt.
 *     [p0 .. pn c0 .. ck] [p0 .. pn r0 .. rm]
 * Shared: the prompt has its rows once. Its last token begins each branch, because its row predicts
 * the first token of an answer; positions are those of two copies.
 *     p0 .. pn-1  pn c0 .. ck  pn r0 .. rm
 * Attention alone has rows of two copies: af_batch.source says which row each of them is, and
 * bounds count these.
 * Rows that predict tokens of an answer are one run in either layout. With keep_end, a pair whose
 * sequences have lost different parts of the prompt has two copies in either layout, too. */
#ifndef AF_PAIR_BATCH_H
#define AF_PAIR_BATCH_H

#include "data/read/data_opts.h"
#include "data/store/pair_row.h"

typedef struct af_pair_layout {
    af_rl rl;
    bool shared;
    bool no_second;   /* KTO without KL rows: the second answer is left out */
    bool prompt_loss; /* prompt tokens of the first sequence have labels, too */
    bool keep_end;    /* sequences lose their first tokens, not their last: prompts may differ */
    int64_t kl_batch; /* KTO: records of a block, see af_kl_partner */
} af_pair_layout;

/* An answer: rows [from, from + terms) predict its tokens. With an empty prompt nothing predicts
 * the first of them. */
typedef struct af_answer_rows {
    int64_t from, terms, tokens;
    int64_t prompt; /* tokens before it */
} af_answer_rows;

typedef struct af_pair_rows {
    int64_t record;
    af_answer_rows first, second;      /* chosen, rejected; KTO: the answer, the KL answer */
    int64_t prompt_from, prompt_terms; /* with prompt_loss: rows that predict prompt tokens */
    bool label;
    float margin;
} af_pair_rows;

/* The records of a stream: `subset` (or all from `first`), `count` of them. */
typedef struct af_pair_source {
    const af_token_store *store;
    const int64_t *subset;
    int64_t first, count;
    int64_t limit; /* tokens of a sequence */
    af_pair_layout layout;
} af_pair_source;

struct af_batch;
/* Rows that the record at place i takes. */
int64_t af_pair_batch_rows(const af_pair_source *s, int64_t i);
/* Adds it to a batch, whose buffers have room for it. */
void af_pair_batch_add(const af_pair_source *s, struct af_batch *b, int64_t i);
#endif
