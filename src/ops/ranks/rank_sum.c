/* rank_sum.c - a tensor summed over the ranks of a run, each rank its piece (ZeRO).
 *
 *   rank_sum: x f32 [...], own f32 [n]?; own = sum over ranks of x[cut[rank] .. cut[rank + 1]), the
 *             ranks as a binary tree. x is lost; without own, its piece of x holds the sum. */
#include "graph/node.h"

const af_op_info af_op_rank_sum = {.name = "rank_sum", .effect = true};
