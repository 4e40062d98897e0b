/* take_over.h - nodes of a graph that take over others' work, before offsets are assigned. */
#ifndef AF_TAKE_OVER_H
#define AF_TAKE_OVER_H

#include "graph/node.h"

/* May `unit` do n's work? What n reads from input `in` on is there at unit's position, and nodes
 * between the two leave n's result alone, but for zeros and sums over ranks: af_take_over moves
 * those. */
bool af_may_take_over(const af_graph *g, const af_node *unit, const af_node *n, int in);
/* `unit` gets the inputs of n from `in` on and its output, after its own. n stays in the list until
 * af_remove_taken. */
void af_take_over(af_graph *g, af_node *unit, af_node *n, int in);
/* Removes the nodes, and those that served them alone. */
void af_remove_taken(af_graph *g, af_node *const *taken, int count);
#endif
