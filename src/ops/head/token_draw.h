/* token_draw.h - records token_draw.c: the next token of each row, chosen where the logits are. */
#ifndef AF_TOKEN_DRAW_H
#define AF_TOKEN_DRAW_H

#include "graph/graph_access.h"

/* One row of `want`. */
enum {
    AF_DRAW_TEMPERATURE, /* 0 = the first of the largest; below 0: nothing of this row */
    AF_DRAW_TOP_K,       /* 0 = off, likewise the next two */
    AF_DRAW_TOP_P,
    AF_DRAW_MIN_P,
    AF_DRAW_NUMBER, /* random, in [0, 1) */
    AF_DRAW_TOPS,   /* so many of the largest; -1 = no log-probabilities at all */
    AF_DRAW_WANTS
};
enum {
    AF_DRAW_TOPS_MAX = 20,
    AF_DRAW_VOCAB_MAX = 1 << 19, /* whose weights fit 64 bits */
};

/* logits [N][V], want f64 [N][AF_DRAW_WANTS] -> choice f64 [N][2]: the token (-1: a logit is NaN)
 * and its log-probability; *top f64 [N][2 AF_DRAW_TOPS_MAX]: pairs of both for the largest logits,
 * best first. No gradient. */
af_tensor *af_token_draw(af_graph *g, af_tensor *logits, af_tensor *want, af_tensor **top);
#endif
