/* case_attention.h - graphs of attention with a cache and with sinks (attention.c). */
#ifndef AF_CASE_ATTENTION_H
#define AF_CASE_ATTENTION_H

#include "backend/cases.h"

/* Rows of two sequences look into caches that hold values already; the last rows are dead. */
static void cached(rec *r, int head, int window, double softcap)
{
    static const int32_t bounds[] = {0, 2, 2, 7}, start[] = {9, 3, 70};
    const af_attention_opts o = {.heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = head,
                                 .window = window,
                                 .softcap = softcap,
                                 .causal = true};
    af_tensor *x = in_2(r, 9, (int64_t)8 * head);
    af_tensor *cache = rec_add(
        r, af_graph_state(r->g, "cache", r->t, 3, (int64_t[]){3, 90, (int64_t)4 * head}), -1, 1);
    af_tensor *b = ints(r, 4, bounds), *from = ints(r, 3, start);
    out(r, af_attention_cached(r->g, x, cache, b, from, &o));
    r->out[r->outs++] = cache;
}
static void case_attention_cached(rec *r)
{
    cached(r, 80, 0, 0);
    cached(r, 20, 0, 3);
}
static void case_attention_back(rec *r)
{
    cached(r, 128, 33, 0);
    cached(r, 7, 5, 0);
    cached(r, 256, 0, 0);
}
static void sinks(rec *r, int head, int window, int64_t n, const int32_t *b)
{
    af_tensor *x = act_2(r, n, (int64_t)8 * head);
    const af_attention_opts o = {.heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = head,
                                 .window = window,
                                 .causal = true,
                                 .sinks = param_1(r, 4)};
    finish(r, af_attention(r->g, x, ints(r, 4, b), &o));
}
/* Heads of 64 go to the Hopper kernels, of 20 to the plain ones. */
static const int32_t sink_bounds[] = {0, 70, 70, 133};
static void case_attention_sinks(rec *r) { sinks(r, 64, 0, 140, sink_bounds); }
static void case_attention_sinks_slide(rec *r) { sinks(r, 64, 33, 133, sink_bounds); }
static void case_attention_sinks_odd(rec *r) { sinks(r, 20, 0, 140, sink_bounds); }
static void case_attention_sinks_cached(rec *r)
{
    static const int32_t bounds[] = {0, 2, 2, 7}, start[] = {9, 3, 70};
    const af_attention_opts o = {.heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = 64,
                                 .window = 30,
                                 .causal = true,
                                 .sinks = weight_1(r, r->t, 4)};
    af_tensor *x = in_2(r, 9, 8 * 64);
    af_tensor *cache =
        rec_add(r, af_graph_state(r->g, "cache", r->t, 3, (int64_t[]){3, 90, 4 * 64}), -1, 1);
    out(r, af_attention_cached(r->g, x, cache, ints(r, 4, bounds), ints(r, 3, start), &o));
}
#endif
