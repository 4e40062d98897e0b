/* unary.h - recording an op with one float input and one output like it. */
#ifndef AF_UNARY_H
#define AF_UNARY_H

#include "graph/node.h"

/* The output; the graph's dummy, with the error latched, when x is not of a float type. */
af_tensor *af_unary_record(af_graph *g, af_op op, const char *name, af_tensor *x, af_attr attr);
#endif
