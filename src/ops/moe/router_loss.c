/* router_loss.c - see router_loss.h. */
#include "ops/moe/router_loss.h"

af_router_loss af_router_loss_new(af_graph *g, int64_t rows, int experts, int layers)
{
    const int64_t row[2] = {rows, 1}, square[2] = {experts, experts};
    return (af_router_loss){
        .experts = experts,
        .layers = layers,
        .share = af_graph_input(g, "router_share", AF_DTYPE_F32, 2, row),
        .one_hot = af_graph_weight(g, "router_one_hot", AF_DTYPE_F32, 2, square),
    };
}

/* [experts]: sum over rows of share * x [N][experts], plus what earlier layers have */
static af_tensor *add_rows(const af_router_loss *r, af_graph *g, af_tensor *sum, af_tensor *x)
{
    x = af_sum(g, af_mul(g, x, r->share), 0, false);
    return sum ? af_add(g, sum, x) : x;
}

void af_router_loss_add(af_router_loss *r, af_graph *g, af_tensor *logits, af_tensor *index)
{
    if (af_graph_status(g, NULL) != AF_OK)
        return;
    const int64_t rows = af_tensor_dim(index, 0);
    af_tensor *taken = NULL;
    for (int64_t j = 0; j < af_tensor_dim(index, 1); j++) {
        af_tensor *one = af_reshape(g, af_slice(g, index, 1, j, 1), 1, &rows);
        one = af_embedding(g, one, r->one_hot, AF_DTYPE_F32);
        taken = taken ? af_add(g, taken, one) : one;
    }
    r->used = add_rows(r, g, r->used, taken);
    r->prob = add_rows(r, g, r->prob, af_softmax(g, af_cast(g, logits, AF_DTYPE_F32)));
}

af_tensor *af_router_loss_value(const af_router_loss *r, af_graph *g)
{
    return af_scale(g, af_sum_all(g, af_mul(g, r->used, r->prob)), r->experts);
}

af_status af_router_loss_load(const af_router_loss *r, af_graph *g, af_error *err)
{
    const uint64_t n = (uint64_t)r->experts;
    float *one = af_calloc(n * n, sizeof *one);
    if (!one)
        return af_fail_nomem(err, "the identity of a router", n * n * sizeof *one);
    for (uint64_t i = 0; i < n; i++)
        one[i * n + i] = 1;
    const af_status st = af_tensor_write(g, r->one_hot, one, n * n * sizeof *one, err);
    free(one);
    return st;
}
