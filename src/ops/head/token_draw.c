/* token_draw.c - chooses the next token of each row of logits.
 *
 * TOKEN_DRAW  logits [N][V], want f64 [N][6] -> choice f64 [N][2], top f64 [N][40]
 *   The order of tokens is that of their logits, the largest first, and of their numbers among
 *   equal ones. With a temperature t, l = f32(logit / t) and weights w = exp(l - max l): top-k
 *   keeps the first k, top-p the fewest whose weights are at least p of those left, min-p those
 *   with w >= min_p; the token is the first whose weights up to itself are more than number * what
 *   is left. This is af_sample (model/sample.c) without its penalty. A GPU adds weights as integers
 *   of 2^-44, in no order: where the number lies within about 2^-40 of a boundary, the neighbour
 *   may be taken.
 *   Log-probabilities are those of the logits as they come. What is not wanted is 0, and -1 as a
 *   token. */
#include "ops/head/token_draw.h"

#include "graph/node.h"
#include "tensor/dtype.h"

af_tensor *af_token_draw(af_graph *g, af_tensor *logits, af_tensor *want, af_tensor **top)
{
    char a[96], b[96];
    *top = af_graph_dummy(g);
    if (af_graph_refuses(g, "token_draw", (af_tensor *[]){logits, want}, 2))
        return af_graph_dummy(g);
    const int64_t N = logits->dim[0];
    if (!af_dtype_is_float(logits->dtype) || logits->ndim != 2 || want->dtype != AF_DTYPE_F64 ||
        want->ndim != 2 || want->dim[0] != N || want->dim[1] != AF_DRAW_WANTS ||
        logits->dim[1] > AF_DRAW_VOCAB_MAX)
        return af_graph_bad(g, "token_draw: logits %s and wishes %s do not fit together",
                            af_shape_text(logits, a, sizeof a), af_shape_text(want, b, sizeof b));
    af_node *n = af_node_new(g, AF_OP_TOKEN_DRAW, (af_tensor *[]){logits, want}, 2);
    af_tensor *choice = af_node_output(g, n, AF_DTYPE_F64, 2, (int64_t[]){N, 2});
    *top = af_node_output(g, n, AF_DTYPE_F64, 2, (int64_t[]){N, 2 * AF_DRAW_TOPS_MAX});
    if (!af_graph_failed(g))
        choice->needs_grad = (*top)->needs_grad = false;
    return choice;
}

const af_op_info af_op_token_draw = {.name = "token_draw"};
