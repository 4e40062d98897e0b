/* pair_row.h - a preference record as token rows, and its form in a token store.
 *
 * A pair has a prompt and two answers, chosen and rejected; a KTO record has a prompt, one answer
 * and a label; a record of a reward model has two whole sequences and no prompt. Each sequence is
 * prompt + answer, cut to sequence_len when a batch is made: the store holds answers of up to
 * sequence_len tokens, their first ones (with keep_end their last ones).
 *
 * In the store a record is AF_PAIR_HEADER words (lengths of the three parts, flags, margin as the
 * bits of a float), then the tokens of prompt, first and second answer. */
#ifndef AF_PAIR_ROW_H
#define AF_PAIR_ROW_H

#include "data/store/token_store.h"

enum { AF_PAIR_HEADER = 5 };

/* Borrows all tokens. */
typedef struct af_pair_row {
    const int32_t *prompt, *first, *second; /* chosen and rejected; KTO: the answer, nothing */
    int64_t prompt_len, first_len, second_len;
    bool label;   /* KTO: the answer is desirable */
    float margin; /* reward: how much better the chosen one is; else 0 */
} af_pair_row;

/* Adds a record to a store; `source` and `line` as in af_token_writer_add. */
AF_CHECKED af_status af_pair_writer_add(af_token_writer *w, const af_pair_row *r, int source,
                                        int64_t line, af_error *err);
/* Record i of a store of pairs. AF_EFORMAT where its lengths do not add up. */
AF_CHECKED af_status af_pair_row_read(af_pair_row *out, const af_token_store *s, int64_t i,
                                      af_error *err);
/* Lengths of the answers after a cut of prompt + answer at `limit` tokens; 0 = no limit. */
int64_t af_pair_cut(int64_t prompt_len, int64_t answer_len, int64_t limit);

/* KTO: the record whose answer the KL row of record i has, of n records in blocks of `batch`: the
 * one before it in its block, for the first of a block the last one. */
int64_t af_kl_partner(int64_t i, int64_t n, int64_t batch);
#endif
