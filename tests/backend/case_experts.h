/* case_experts.h - mixtures of experts: routers, products, adapters; part of case_list.h. */
#ifndef AF_CASE_EXPERTS_H
#define AF_CASE_EXPERTS_H

#include "backend/cases.h"

static void case_glu_clamped(rec *r) { finish(r, af_glu_clamped(r->g, act_2(r, 7, 2 * 72), 0.5)); }
static void moe(rec *r, bool train, int64_t N, int64_t X, int64_t D, int64_t F)
{
    enum { K = 2 };
    af_tensor *index, *z = act_2(r, N, X), *x = act_2(r, N, D);
    af_tensor *w = af_moe_route(r->g, z, &(af_route_opts){.used = K, .norm = true}, &index);
    const int64_t up[] = {X, 2 * F, D}, down[] = {X, D, F};
    af_tensor *gate_up, *back;
    if (train) {
        gate_up = param_n(r, 3, up, -0.3, 0.3);
        back = param_n(r, 3, down, -0.3, 0.3);
    } else {
        gate_up = rec_add(r, af_graph_weight(r->g, "u", r->t, 3, up), -0.3, 0.3);
        back = rec_add(r, af_graph_weight(r->g, "d", r->t, 3, down), -0.3, 0.3);
    }
    finish(r, af_moe_ffn(r->g, x, w, index,
                         &(af_experts_opts){.gate_up.weight = gate_up, .down.weight = back}));
}
/* Biases, adapters, and a router with groups; more slots and columns than a tile has. */
static void moe_adapted(rec *r, int64_t rank)
{
    enum { N = 310, X = 8, D = 200, F = 136, K = 3 };
    af_tensor *index, *z = act_2(r, N, X), *x = act_2(r, N, D);
    af_tensor *bias =
        rec_add(r, af_graph_weight(r->g, "c", AF_DTYPE_F32, 1, (int64_t[]){X}), -0.3, 0.3);
    const af_route_opts route = {.used = K,
                                 .score = AF_ROUTE_SIGMOID,
                                 .bias = bias,
                                 .norm = true,
                                 .eps = 1e-3,
                                 .scale = 1.5,
                                 .groups = 4,
                                 .groups_used = 2,
                                 .group_best = 2};
    const af_experts_opts o = {
        .gate_up = {.weight =
                        rec_add(r, af_graph_weight(r->g, "u", r->t, 3, (int64_t[]){X, 2 * F, D}),
                                -0.1, 0.1),
                    .bias = param_n(r, 2, (int64_t[]){X, 2 * F}, -0.3, 0.3),
                    .a = param_n(r, 3, (int64_t[]){X, rank, D}, -0.1, 0.1),
                    .b = param_n(r, 3, (int64_t[]){X, 2 * F, rank}, -0.1, 0.1),
                    .scale = 1.5},
        .down = {.weight = rec_add(r, af_graph_weight(r->g, "d", r->t, 3, (int64_t[]){X, D, F}),
                                   -0.1, 0.1),
                 .bias = param_n(r, 2, (int64_t[]){X, D}, -0.3, 0.3),
                 .a = param_n(r, 3, (int64_t[]){X, rank, F}, -0.1, 0.1),
                 .b = param_n(r, 3, (int64_t[]){X, D, rank}, -0.1, 0.1),
                 .scale = 0.5}};
    af_tensor *w = af_moe_route(r->g, z, &route, &index);
    finish(r, af_moe_ffn(r->g, x, w, index, &o));
}
/* No gate, as in nemotron_h. */
static void case_moe_plain(rec *r)
{
    enum { N = 150, X = 4, D = 40, F = 72, K = 2 };
    af_tensor *index, *z = act_2(r, N, X), *x = act_2(r, N, D);
    af_tensor *w = af_moe_route(r->g, z, &(af_route_opts){.used = K, .norm = true}, &index);
    const af_experts_opts o = {.gate_up.weight = param_n(r, 3, (int64_t[]){X, F, D}, -0.3, 0.3),
                               .down.weight = param_n(r, 3, (int64_t[]){X, D, F}, -0.3, 0.3),
                               .plain = true,
                               .relu2 = true};
    finish(r, af_moe_ffn(r->g, x, w, index, &o));
}
/* Experts that give back what they read, as in longcat_flash. */
static void case_moe_identity(rec *r)
{
    enum { N = 150, X = 4, MORE = 3, D = 40, F = 72, K = 3 };
    af_tensor *index, *z = act_2(r, N, X + MORE), *x = act_2(r, N, D);
    af_tensor *w = af_moe_route(r->g, z, &(af_route_opts){.used = K, .scale = 1.5}, &index);
    const af_experts_opts o = {.gate_up.weight = param_n(r, 3, (int64_t[]){X, 2 * F, D}, -0.3, 0.3),
                               .down.weight = param_n(r, 3, (int64_t[]){X, D, F}, -0.3, 0.3),
                               .identity = MORE};
    finish(r, af_moe_ffn(r->g, x, w, index, &o));
}
/* Of a mixture of heads: one expert of every token, once with the router's weight. */
static void case_moe_project(rec *r)
{
    enum { N = 150, X = 4, D = 40, F = 72 };
    af_tensor *index, *z = act_2(r, N, X), *x = act_2(r, N, D);
    af_tensor *w = af_moe_route(r->g, z, &(af_route_opts){.used = 1}, &index);
    const af_expert_linear in = {.weight = param_n(r, 3, (int64_t[]){X, F, D}, -0.3, 0.3)},
                           out = {.weight = param_n(r, 3, (int64_t[]){X, D, F}, -0.3, 0.3)};
    af_tensor *one = af_graph_constant(r->g, AF_DTYPE_F32, 2, (int64_t[]){N, 1}, 1);
    finish(r, af_moe_project(r->g, af_moe_project(r->g, x, one, index, &in), w, index, &out));
}
/* Choices by logits, sigmoids of which are weights, as in kolibri1. */
static void case_moe_by_logit(rec *r)
{
    enum { N = 70, X = 40, K = 3 };
    af_tensor *index, *z = act_2(r, N, X);
    af_tensor *bias =
        rec_add(r, af_graph_weight(r->g, "c", AF_DTYPE_F32, 1, (int64_t[]){X}), -0.3, 0.3);
    const af_route_opts o = {
        .used = K, .score = AF_ROUTE_SIGMOID, .bias = bias, .by_logit = true, .norm = true};
    finish(r, af_moe_route(r->g, z, &o, &index));
}
/* The sparse mixer. */
static void case_moe_near(rec *r)
{
    enum { N = 70, X = 40, K = 2 };
    af_tensor *index, *z = act_2(r, N, X);
    const af_route_opts o = {.used = K, .score = AF_ROUTE_NEAR, .eps = 0.3, .scale = 1.5};
    finish(r, af_moe_route(r->g, z, &o, &index));
}
static void case_moe_adapted(rec *r) { moe_adapted(r, 16); }
static void case_moe_adapted_odd(rec *r) { moe_adapted(r, 3); }
static void case_moe(rec *r) { moe(r, false, 70, 5, 24, 40); }
static void case_moe_train(rec *r) { moe(r, true, 70, 5, 24, 40); }
/* Three tiles of slots an expert, two and three of columns: pairs, and ones that are left over. */
static void case_moe_tiles(rec *r) { moe(r, false, 700, 4, 600, 200); }
/* Biases and nothing else that is trained: the gated unit belongs to the product's node. */
static void case_moe_biased(rec *r)
{
    enum { N = 300, X = 4, D = 136, F = 200, K = 2 };
    af_tensor *index, *z = act_2(r, N, X), *x = act_2(r, N, D);
    af_tensor *w = af_moe_route(r->g, z, &(af_route_opts){.used = K, .norm = true}, &index);
    const af_experts_opts o = {
        .gate_up = {.weight =
                        rec_add(r, af_graph_weight(r->g, "u", r->t, 3, (int64_t[]){X, 2 * F, D}),
                                -0.1, 0.1),
                    .bias = param_n(r, 2, (int64_t[]){X, 2 * F}, -0.3, 0.3)},
        .down = {.weight = rec_add(r, af_graph_weight(r->g, "d", r->t, 3, (int64_t[]){X, D, F}),
                                   -0.1, 0.1),
                 .bias = param_n(r, 2, (int64_t[]){X, D}, -0.3, 0.3)},
        .act = AF_ACT_GELU_TANH};
    finish(r, af_moe_ffn(r->g, x, w, index, &o));
}
#endif
