/* router_loss.h - the auxiliary loss that balances the load of experts (Switch Transformer,
 * equations 4 to 6, as load_balancing_loss_func of transformers): experts * sum over experts of
 * (assignments / rows) * (sum of probabilities / rows) where rows are the tokens of all layers with
 * a router. Gradients pass through the probabilities. */
#ifndef AF_ROUTER_LOSS_H
#define AF_ROUTER_LOSS_H

#include "afinar/graph.h"
#include "base/base.h"

typedef struct af_router_loss {
    int experts, layers;    /* layers: those with a router */
    af_tensor *share;       /* input f32 [N][1]: 1 / (tokens * layers), 0 for padding */
    af_tensor *one_hot;     /* weight f32 [experts][experts]: the identity */
    af_tensor *used, *prob; /* [experts]: sums of the layers recorded so far */
} af_router_loss;

/* Declares the two leaves in a graph of N rows, for a model with as many `layers` with a router. */
af_router_loss af_router_loss_new(af_graph *g, int64_t rows, int experts, int layers);
/* Records one layer: its router's logits [N][experts], the experts it takes i32 [N][k]. */
void af_router_loss_add(af_router_loss *r, af_graph *g, af_tensor *logits, af_tensor *index);
/* The loss of all layers, f32 [1]. At least one was recorded. */
af_tensor *af_router_loss_value(const af_router_loss *r, af_graph *g);
/* After prepare: writes the identity. */
AF_CHECKED af_status af_router_loss_load(const af_router_loss *r, af_graph *g, af_error *err);
#endif
