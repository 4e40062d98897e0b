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
/* The same values in pages of 16 positions, which two sequences share in part. */
static void case_attention_pages(rec *r)
{
    enum { M = 6 };
    static const int32_t bounds[] = {0, 2, 2, 7}, start[] = {9, 3, 70},
                         pages[3 * M] = {8, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 3, 5, 4, 1, 2, 6};
    af_tensor *x = in_2(r, 9, 8 * 64);
    af_tensor *cache =
        rec_add(r, af_graph_state(r->g, "cache", r->t, 3, (int64_t[]){9, 16, 4 * 64}), -1, 1);
    const af_attention_opts o = {
        .heads = 4, .kv_heads = 2, .head_dim = 64, .causal = true, .pages = ints_2(r, 3, M, pages)};
    af_tensor *b = ints(r, 4, bounds), *from = ints(r, 3, start);
    out(r, af_attention_cached(r->g, x, cache, b, from, &o));
    r->out[r->outs++] = cache;
}
static void case_attention_cached(rec *r)
{
    cached(r, 80, 0, 0);
    cached(r, 20, 0, 3);
}
/* Heads that share keys and values, one row of most sequences (attention_grouped.cu), of which as
 * many blocks share the keys as a cache of `M` pages is worth. */
static void grouped(rec *r, int heads, int kv, int head, int window, int M)
{
    enum { S = 5, L = 64, MOST = 16 };
    static const int32_t bounds[S + 1] = {0, 1, 2, 3, 3, 6}, start[S] = {200, 0, 77, 5, 120},
                                    pages[S * 4] = {7, 2, 9, 4, 0, 0, 0, 0, 1, 3,
                                                    0, 0, 0, 0, 0, 0, 5, 6, 8, 10},
                                    wide[S * MOST] = {7, 2, 9, 4, [2 * MOST] = 1, 3, [4 * MOST] = 5,
                                                      6, 8, 10};
    af_tensor *x = in_2(r, 7, (int64_t)(heads + 2 * kv) * head);
    af_tensor *cache = rec_add(
        r, af_graph_state(r->g, "cache", r->t, 3, (int64_t[]){11, L, 2 * (int64_t)kv * head}), -1,
        1);
    const af_attention_opts o = {.heads = heads,
                                 .kv_heads = kv,
                                 .head_dim = head,
                                 .window = window,
                                 .causal = true,
                                 .pages = ints_2(r, S, M, M == MOST ? wide : pages)};
    af_tensor *b = ints(r, S + 1, bounds), *from = ints(r, S, start);
    out(r, af_attention_cached(r->g, x, cache, b, from, &o));
}
static void case_attention_grouped(rec *r)
{
    grouped(r, 28, 4, 128, 0, 16);
    grouped(r, 24, 2, 64, 50, 4);
    grouped(r, 320, 40, 64, 0, 4);
}
/* Chunks through a cache, with accesses of 16 bytes and without; and over bounds that are cut. */
static void case_attention_chunks(rec *r)
{
    static const int32_t bounds[] = {0, 2, 2, 7}, start[] = {9, 3, 70}, b[] = {0, 70, 70, 133};
    for (int i = 0; i < 2; i++) {
        const int head = i ? 20 : 64;
        const af_attention_opts o = {
            .heads = 4, .kv_heads = 2, .head_dim = head, .chunk = 7 + 26 * i, .causal = true};
        af_tensor *x = in_2(r, 9, (int64_t)8 * head);
        af_tensor *cache = rec_add(
            r, af_graph_state(r->g, "cache", r->t, 3, (int64_t[]){3, 90, (int64_t)4 * head}), -1,
            1);
        af_tensor *at = ints(r, 4, bounds), *from = ints(r, 3, start);
        out(r, af_attention_cached(r->g, x, cache, at, from, &o));
    }
    const af_attention_opts o = {.heads = 4, .kv_heads = 2, .head_dim = 64, .causal = true};
    af_tensor *x = act_2(r, 140, 8 * 64);
    finish(r, af_attention(r->g, x, af_bounds_cut(r->g, ints(r, 4, b), 33, 140), &o));
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
    af_tensor *b = ints(r, 4, bounds), *from = ints(r, 3, start);
    out(r, af_attention_cached(r->g, x, cache, b, from, &o));
}
/* Latent attention (block_latent.c): heads of [rotated | rest], keys of which a part is shared, and
 * values filled up with zeros. */
static void case_latent(rec *r)
{
    enum { N = 9, H = 4, ROPE = 8, NOPE = 16, V = 16, E = ROPE + NOPE };
    static const int32_t b[] = {0, 4, 9}, at[N] = {0, 1, 2, 3, 0, 1, 2, 3, 4};
    af_graph *g = r->g;
    af_tensor *q = af_reshape(g, act_2(r, N, H * E), 3, (int64_t[]){N, H, E});
    af_tensor *kv = af_reshape(g, act_2(r, N, H * (NOPE + V)), 3, (int64_t[]){N, H, NOPE + V});
    af_tensor *shared = af_reshape(g, act_2(r, N, ROPE), 3, (int64_t[]){N, 1, ROPE});
    af_tensor *stretch = af_graph_constant(g, r->t, 3, (int64_t[]){1, H, 1}, 0);
    af_tensor *zeros = af_graph_constant(g, r->t, 3, (int64_t[]){N, H, E - V}, 0);
    af_tensor *qs[] = {af_slice(g, q, 2, NOPE, ROPE), af_slice(g, q, 2, 0, NOPE)};
    af_tensor *ks[] = {af_add(g, shared, stretch), af_slice(g, kv, 2, 0, NOPE)};
    af_tensor *vs[] = {af_slice(g, kv, 2, NOPE, V), zeros};
    af_tensor *all[] = {af_concat(g, qs, 2, 2), af_concat(g, ks, 2, 2), af_concat(g, vs, 2, 2)};
    af_tensor *qkv = af_reshape(g, af_concat(g, all, 3, 1), 2, (int64_t[]){N, 3 * H * E});
    af_tensor *f =
        rec_add(r, af_graph_input(g, "f", AF_DTYPE_F32, 1, (int64_t[]){ROPE / 2}), 0.01, 1);
    qkv = af_rope(g, qkv, ints(r, N, at), f,
                  &(af_rope_opts){
                      .heads = H, .kv_heads = H, .head_dim = E, .rotary_dim = ROPE, .pairs = true});
    af_tensor *o = af_attention(
        g, qkv, ints(r, 3, b),
        &(af_attention_opts){.heads = H, .kv_heads = H, .head_dim = E, .causal = true});
    o = af_slice(g, af_reshape(g, o, 3, (int64_t[]){N, H, E}), 2, 0, V);
    finish(r, af_reshape(g, o, 2, (int64_t[]){N, H * V}));
}
/* ALiBi (block_alibi.c): three columns of each head have what a position adds to the score, three
 * take away that of the query. The second sequence goes on at a later position. */
static void case_alibi(rec *r)
{
    enum { N = 70, H = 4, E = 64, P = 3, X = 8 };
    static const int32_t b[] = {0, 21, N};
    static int32_t at[N];
    af_graph *g = r->g;
    for (int i = 0; i < N; i++)
        at[i] = i < b[1] ? i : i + 500;
    af_tensor *slope = rec_add(r, af_graph_weight(g, "s", AF_DTYPE_F32, 1, (int64_t[]){H}), 0.1, 5);
    af_tensor *p = af_reshape(g, af_cast(g, ints(r, N, at), AF_DTYPE_F32), 2, (int64_t[]){N, 1});
    af_tensor *left = af_mul(g, p, slope), *q[P + 2], *k[P + 2];
    const int64_t own[3] = {N, H, 1}, ones[3] = {N, H, P}, rest[3] = {N, H, X - 2 * P};
    q[0] = k[P] = af_graph_constant(g, r->t, 3, ones, 1);
    for (int i = 0; i < P; i++) {
        af_tensor *piece = af_cast(g, left, AF_DTYPE_BF16);
        left = af_sub(g, left, af_cast(g, piece, AF_DTYPE_F32));
        k[i] = af_reshape(g, af_cast(g, piece, r->t), 3, own);
        q[i + 1] = af_scale(g, k[i], -1);
    }
    q[P + 1] = k[P + 1] = af_graph_constant(g, r->t, 3, rest, 0);
    af_tensor *all[] = {af_concat(g, q, P + 2, 2), af_concat(g, k, P + 2, 2),
                        af_graph_constant(g, r->t, 3, (int64_t[]){N, H, X}, 0)};
    af_tensor *qkv = af_reshape(g, act_2(r, N, 3 * H * E), 3, (int64_t[]){N, 3 * H, E});
    qkv = af_concat(g, (af_tensor *[]){qkv, af_concat(g, all, 3, 1)}, 2, 2);
    qkv = af_reshape(g, qkv, 2, (int64_t[]){N, 3 * H * (E + X)});
    const af_attention_opts a = {
        .heads = H, .kv_heads = H, .head_dim = E + X, .scale = 0.125, .causal = true};
    af_tensor *o = af_attention(g, qkv, ints(r, 3, b), &a);
    o = af_slice(g, af_reshape(g, o, 3, (int64_t[]){N, H, E + X}), 2, 0, E);
    finish(r, af_reshape(g, o, 2, (int64_t[]){N, H * E}));
}
/* gemma4: queries of one layer over keys and values of another, which are normed raw keys. */
static void case_attention_shared(rec *r)
{
    enum { N = 9, H = 4, K = 2, E = 16 };
    static const int32_t b[] = {0, 4, 9}, at[N] = {0, 1, 2, 3, 0, 1, 2, 3, 4};
    af_graph *g = r->g;
    af_tensor *x = act_2(r, N, (H + K) * E), *q2 = act_2(r, N, H * E);
    af_tensor *positions = ints(r, N, at), *bounds = ints(r, 3, b);
    af_tensor *one = af_graph_constant(g, AF_DTYPE_F32, 1, (int64_t[]){E}, 1);
    af_tensor *v = af_reshape(g, af_slice(g, x, 1, H * E, K * E), 3, (int64_t[]){N, K, E});
    v = af_reshape(g, af_rmsnorm(g, v, one, 1e-6, false), 2, (int64_t[]){N, K * E});
    af_tensor *f = rec_add(r, af_graph_input(g, "f", AF_DTYPE_F32, 1, (int64_t[]){E / 2}), 0.01, 1);
    af_rope_opts rope = {.heads = H, .kv_heads = K, .head_dim = E, .norm_eps = 1e-6};
    rope.q_norm = param_1(r, E);
    rope.k_norm = param_1(r, E);
    af_tensor *qkv = af_concat(g, (af_tensor *[]){x, v}, 2, 1);
    qkv = af_rope(g, qkv, positions, f, &rope);
    rope.kv_heads = 0;
    rope.k_norm = rope.q_norm;
    q2 = af_rope(g, q2, positions, f, &rope);
    af_tensor *other =
        af_concat(g, (af_tensor *[]){q2, af_slice(g, qkv, 1, H * E, 2 * K * E)}, 2, 1);
    const af_attention_opts o = {
        .heads = H, .kv_heads = K, .head_dim = E, .scale = 1, .causal = true};
    af_tensor *y = af_attention(g, qkv, bounds, &o);
    finish(r, af_add(g, y, af_attention(g, other, bounds, &o)));
}
#endif
