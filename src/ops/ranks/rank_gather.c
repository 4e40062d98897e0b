/* rank_gather.c - a weight of which every rank has a piece, brought together (ZeRO).
 *
 *   rank_gather: w of any type, split, [absmax, nested: the scales of its codes, split likewise];
 *                outputs of the same types and shapes, whole. Bytes travel as they are stored. */
#include "graph/node.h"

const af_op_info af_op_rank_gather = {.name = "rank_gather"};
