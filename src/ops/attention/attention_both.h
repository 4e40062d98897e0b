/* attention_both.h - attention and its gradient at once, for measurements of both alone. */
#ifndef AF_ATTENTION_BOTH_H
#define AF_ATTENTION_BOTH_H

#include "afinar/graph.h"

/* The gradient of qkv, given that of the output; o has no sinks. */
af_tensor *af_attention_both(af_graph *g, af_tensor *qkv, af_tensor *bounds, af_tensor *dy,
                             const af_attention_opts *o);
#endif
