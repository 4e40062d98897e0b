/* pair_tokens.h - from a preference record to token rows, by the rules of TRL 1.16.
 *
 * The prompt ends where the prompt alone (with the generation prompt) and prompt + answer stop
 * agreeing, token by token; of a pair the smaller of both. Texts get the text of the
 * end-of-sequence token unless they end with it; chats get nothing. ORPO, CPO and SimPO render
 * chats to text first, cut the prompt off and end every answer with the eos token. Rows of a reward
 * model have no prompt.
 */
#ifndef AF_PAIR_TOKENS_H
#define AF_PAIR_TOKENS_H

#include "data/render/renderer.h"

typedef struct af_pair_prompt_end {
    int64_t tokens[2]; /* of the prompt in each row; a pair's are equal */
    bool split;        /* the text of the prompt is not the begin of one row's text */
    bool merged;       /* it is, but its last token has become part of an answer's first */
} af_pair_prompt_end;

/* Rows of prompt + answer; labels are -100 on the prompt, of which max_prompt_length tokens are
 * left (with sequence_len, but the rows are not cut to it). `o`: method and limits. Messages of
 * *err have no file and line. */
AF_CHECKED af_status af_pair_tokens(af_renderer *s, af_row row[2], af_pair_prompt_end *prompt,
                                    const af_item *item, const af_data_source *source,
                                    const af_data_opts *o, af_error *err);
#endif
