/* rank_sum.c - a tensor that all ranks of a run have, summed or brought together (ZeRO).
 *
 *   rank_sum:    x f32 [...], own f32 [n]?; own = sum over ranks of x[cut[rank] .. cut[rank + 1]),
 *                the ranks as a binary tree. x is lost; without own, its piece of x holds the sum.
 *   rank_join:   x f32 [...]; every rank gets every piece from its owner. */
#include "graph/node.h"

const af_op_info af_op_rank_sum = {.name = "rank_sum", .effect = true};
const af_op_info af_op_rank_join = {.name = "rank_join", .effect = true};
