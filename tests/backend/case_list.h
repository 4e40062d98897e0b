/* case_list.h - the graphs themselves; cases.h has what they are recorded with. */
#ifndef AF_CASE_LIST_H
#define AF_CASE_LIST_H

#include "backend/case_attention.h"
#include "backend/case_bf16.h"
#include "backend/case_decode.h"
#include "backend/case_experts.h"
#include "backend/case_fp8.h"
#include "backend/case_general.h"
#include "backend/case_glu.h"
#include "backend/case_head.h"
#include "backend/case_oft.h"
#include "backend/case_quant.h"
#include "backend/case_recurrent.h"

static void case_rope(rec *r)
{
    static const int32_t at[9] = {0, 1, 2, 3, 0, 1, 2, 700, 5};
    const af_rope_opts o = {.heads = 4, .kv_heads = 2, .head_dim = 16};
    af_tensor *f = rec_add(r, af_graph_input(r->g, "f", AF_DTYPE_F32, 1, (int64_t[]){8}), 0.01, 1);
    finish(r, af_rope(r->g, act_2(r, 9, 8 * 16), ints(r, 9, at), f, &o));
}
/* Halves of 5 columns, and columns after them that no wide access begins with. */
static void case_rope_odd(rec *r)
{
    static const int32_t at[9] = {0, 1, 2, 3, 0, 1, 2, 700, 5};
    const af_rope_opts o = {.heads = 4, .kv_heads = 2, .head_dim = 40, .rotary_dim = 10};
    af_tensor *f = rec_add(r, af_graph_input(r->g, "f", AF_DTYPE_F32, 1, (int64_t[]){5}), 0.01, 1);
    finish(r, af_rope(r->g, act_2(r, 9, 8 * 40), ints(r, 9, at), f, &o));
}
static void case_rope_norm(rec *r)
{
    static const int32_t at[7] = {0, 1, 2, 3, 0, 1, 2};
    af_rope_opts o = {.heads = 4, .kv_heads = 2, .head_dim = 64, .norm_eps = 1e-6};
    o.q_norm = param_1(r, 64);
    o.k_norm = param_1(r, 64);
    af_tensor *f = rec_add(r, af_graph_input(r->g, "f", AF_DTYPE_F32, 1, (int64_t[]){32}), 0.01, 1);
    finish(r, af_rope(r->g, act_2(r, 7, 8 * 64), ints(r, 7, at), f, &o));
}
static void case_rope_pairs(rec *r)
{
    static const int32_t at[9] = {0, 1, 2, 3, 0, 1, 2, 700, 5};
    af_rope_opts o = {.heads = 4, .kv_heads = 2, .head_dim = 16, .rotary_dim = 8, .pairs = true};
    af_tensor *f = rec_add(r, af_graph_input(r->g, "f", AF_DTYPE_F32, 1, (int64_t[]){4}), 0.01, 1);
    af_tensor *y = af_rope(r->g, act_2(r, 9, 8 * 16), ints(r, 9, at), f, &o);
    o.q_norm = param_1(r, 16);
    o.k_norm = param_1(r, 16);
    o.norm_eps = 1e-6;
    finish(r, af_rope(r->g, y, ints(r, 9, at), f, &o));
}
static void case_rope_query(rec *r)
{
    static const int32_t at[9] = {0, 1, 2, 3, 0, 1, 2, 700, 5};
    af_rope_opts o = {.heads = 4, .kv_heads = 2, .head_dim = 32, .rotary_dim = 16};
    o.query_beta = 0.3;
    o.query_length = 2;
    o.query_from = 1;
    af_tensor *f = rec_add(r, af_graph_input(r->g, "f", AF_DTYPE_F32, 1, (int64_t[]){8}), 0.01, 1);
    finish(r, af_rope(r->g, act_2(r, 9, 8 * 32), ints(r, 9, at), f, &o));
}
static void attention(rec *r, const af_attention_opts *o, int64_t n, int64_t s, const int32_t *b)
{
    af_tensor *x = act_2(r, n, (int64_t)(o->heads + 2 * o->kv_heads) * o->head_dim);
    finish(r, af_attention(r->g, x, ints(r, s + 1, b), o));
}
/* ATTENTION(name, rows, bounds, options...): bounds in brackets, rows after the last are dead. */
#define BOUNDS(...) __VA_ARGS__
#define ATTENTION(name, rows, bounds, ...)                                                         \
    static void case_attention##name(rec *r)                                                       \
    {                                                                                              \
        static const int32_t b[] = {BOUNDS bounds};                                                \
        attention(r, &(af_attention_opts){__VA_ARGS__}, rows, (int64_t)AF_LEN(b) - 1, b);          \
    }
ATTENTION(, 157, (0, 70, 70, 133, 150), .heads = 4, .kv_heads = 2, .head_dim = 64, .causal = true)
ATTENTION(_128, 200, (0, 200), .heads = 2, .kv_heads = 1, .head_dim = 128, .causal = true)
ATTENTION(_window, 130, (0, 90, 130), .heads = 2, .kv_heads = 2, .head_dim = 80, .causal = true,
          .window = 33, .softcap = 5)
ATTENTION(_full, 97, (0, 65, 97), .heads = 3, .kv_heads = 1, .head_dim = 96)
ATTENTION(_256, 75, (0, 75), .heads = 2, .kv_heads = 1, .head_dim = 256, .causal = true)
ATTENTION(_80, 150, (0, 3, 80, 141), .heads = 4, .kv_heads = 1, .head_dim = 80, .causal = true)
ATTENTION(_96, 1030, (0, 520, 520, 1021), .heads = 2, .kv_heads = 1, .head_dim = 96, .causal = true)
/* rows enough for a choice between kernels, and no head of Hopper's own */
ATTENTION(_112, 1030, (0, 520, 520, 1021), .heads = 2, .kv_heads = 1, .head_dim = 112,
          .causal = true)
/* More work items than multiprocessors, of different lengths, and dead rows: persistent blocks that
 * process several must not mix them up. */
static void case_attention_many(rec *r)
{
    enum { SHORT = 36 };
    static int32_t b[SHORT + 3];
    for (int i = 0; i < SHORT; i++)
        b[i + 1] = b[i] + 17 + i * 37 % 150;
    b[SHORT + 1] = b[SHORT] + 520;
    b[SHORT + 2] = b[SHORT + 1] + 300;
    attention(r, &(af_attention_opts){.heads = 4, .kv_heads = 2, .head_dim = 64, .causal = true},
              b[SHORT + 2] + 200, SHORT + 2, b);
}
/* The same with a window, heads of 128. */
ATTENTION(_slide, 1200, (0, 700, 777, 1200), .heads = 3, .kv_heads = 1, .head_dim = 128,
          .causal = true, .window = 190)
ATTENTION(_capped, 100, (0, 100), .heads = 2, .kv_heads = 1, .head_dim = 256, .causal = true,
          .softcap = 3)
ATTENTION(_capped_128, 333, (0, 1, 260, 321), .heads = 4, .kv_heads = 2, .head_dim = 128,
          .causal = true, .softcap = 3)
/* Heads of 256, several sequences: steps that only one warpgroup takes, a window, dead rows. */
ATTENTION(_wide, 640, (0, 301, 302, 302, 621), .heads = 4, .kv_heads = 1, .head_dim = 256,
          .causal = true, .window = 130)
ATTENTION(_192, 330, (0, 77, 270, 327), .heads = 4, .kv_heads = 4, .head_dim = 192, .causal = true)
ATTENTION(_wide_full, 260, (0, 190, 255), .heads = 2, .kv_heads = 2, .head_dim = 256, .softcap = 9)
/* Capacity for 100 rows, as in generation; runs use fewer. */
static inline af_tensor *case_generation(rec *r)
{
    static const int32_t bounds[] = {0, 100}, start[] = {0};
    const af_attention_opts o = {.heads = 4, .kv_heads = 2, .head_dim = 32, .causal = true};
    af_graph_set_rows(r->g, 100);
    af_tensor *x = in_2(r, 100, 192);
    const af_linear_opts qkv = {.weight = {nf4_weight(r, 256, 192)}, .pieces = 1};
    const af_linear_opts down = {.weight = {weight_2(r, r->t, 64, 128)}, .pieces = 1};
    af_tensor *cache =
        rec_add(r, af_graph_state(r->g, "cache", r->t, 3, (int64_t[]){1, 120, 128}), 0, 0);
    af_tensor *y = af_attention_cached(r->g, af_linear(r->g, x, &qkv), cache, ints(r, 2, bounds),
                                       ints(r, 1, start), &o);
    y = af_linear(r->g, y, &down);
    out(r, y);
    return y;
}
/* Single tokens of a decoder: with few rows the kernel of attention rotates. */
enum { SINGLE_TOKENS = 5 };
static inline af_tensor *case_single_tokens(rec *r)
{
    enum { N = 100, S = 6, H = 14, K = 2, E = 64 };
    static const int32_t bounds[S + 1] = {0, 1, 2, 2, 3, 4, 5}, start[S] = {30, 0, 7, 99, 64, 15},
                                    at[N] = {30, 0, 99, 64, 15}, last[SINGLE_TOKENS] = {4, 2, 0};
    const int64_t picks = SINGLE_TOKENS;
    const af_rope_opts turn = {.heads = H, .kv_heads = K, .head_dim = E, .scale = 1.25};
    const af_attention_opts o = {.heads = H, .kv_heads = K, .head_dim = E, .causal = true};
    af_graph_set_rows(r->g, N);
    af_tensor *picked = rec_add(r, af_graph_picks(r->g, "last", picks), 0, 0);
    r->leaf[r->leaves - 1].ints = last;
    af_tensor *x = af_scale(r->g, in_2(r, N, (H + 2 * K) * E), 0.5);
    af_tensor *cache =
        rec_add(r, af_graph_state(r->g, "cache", r->t, 3, (int64_t[]){S, 120, 2 * K * E}), -1, 1);
    x = af_rope(r->g, x, ints(r, N, at), weight_1(r, AF_DTYPE_F32, E / 2), &turn);
    af_tensor *y =
        af_attention_cached(r->g, x, cache, ints(r, S + 1, bounds), ints(r, S, start), &o);
    out(r, af_embedding(r->g, picked, y, r->t));
    out(r, y);
    r->out[r->outs++] = cache;
    return y;
}
static void case_xielu(rec *r)
{
    const int64_t one = 1;
    af_tensor *p = rec_add(r, af_graph_param(r->g, "p", AF_DTYPE_F32, 1, &one), 0.1, 0.4);
    af_tensor *n = rec_add(r, af_graph_param(r->g, "n", AF_DTYPE_F32, 1, &one), 0.1, 0.2);
    af_tensor *beta = af_graph_constant(r->g, AF_DTYPE_F32, 1, &one, 0.5);
    af_tensor *eps = af_graph_constant(r->g, AF_DTYPE_F32, 1, &one, -1e-6);
    finish(r, af_xielu(r->g, act_2(r, 7, 300), p, n, beta, eps));
}
static void case_glu(rec *r)
{
    af_tensor *y = af_glu(r->g, act_2(r, 7, 2 * 72), AF_ACT_SILU);
    finish(r, af_add(r->g, y, af_glu(r->g, act_2(r, 7, 2 * 72), AF_ACT_GELU_TANH)));
}
static void case_linear(rec *r)
{
    const af_linear_opts o = {.weight = {weight_2(r, r->t, 48, 72)}, .pieces = 1};
    finish(r, af_linear(r->g, act_2(r, 33, 72), &o));
}
static void case_linear_fwd(rec *r)
{
    af_linear_opts o = {.weight = {weight_2(r, r->t, 40, 72), weight_2(r, r->t, 24, 72)},
                        .bias = {weight_1(r, r->t, 40), NULL},
                        .pieces = 2,
                        .parts = 1};
    o.a = weight_2(r, AF_DTYPE_F32, 8, 72);
    o.b = weight_1(r, AF_DTYPE_F32, 40 * 8);
    o.part[0] = (af_adapter_part){0, 40, 0, 8, 0.5f};
    out(r, af_linear(r->g, in_2(r, 33, 72), &o));
}
static void case_linear_params(rec *r)
{
    const af_linear_opts o = {.weight = {param_2(r, 40, 56), param_2(r, 24, 56)},
                              .bias = {param_1(r, 40), NULL},
                              .pieces = 2};
    finish(r, af_linear(r->g, act_2(r, 21, 56), &o));
}
static void lora_after(rec *r, double dropout, int rank, float scale2, af_dtype wt)
{
    af_linear_opts o = {
        .weight = {weight_2(r, wt, 48, 64), weight_2(r, wt, 24, 64), weight_2(r, wt, 24, 64)},
        .bias = {weight_1(r, r->t, 48), NULL, weight_1(r, r->t, 24)},
        .pieces = 3,
        .parts = 3};
    o.a = param_n(r, 2, (int64_t[]){3 * rank, 64}, -0.3, 0.3);
    o.b = param_n(r, 1, (int64_t[]){96 * rank}, -0.3, 0.3);
    o.part[0] = (af_adapter_part){0, 48, 0, rank, 0.5f};
    o.part[1] = (af_adapter_part){48, 24, rank, rank, scale2};
    o.part[2] = (af_adapter_part){72, 24, 2 * rank, rank, 0.5f};
    af_tensor *x = normed(r, 37, 64);
    o.adapter_x = dropout > 0 ? af_dropout(r->g, x, dropout, 5) : NULL;
    af_tensor *y = af_linear(r->g, x, &o);
    finish(r, af_rmsnorm(r->g, y, weight_1(r, AF_DTYPE_F32, 96), 1e-6, false));
}
static void lora(rec *r, int rank, float scale2, af_dtype wt)
{
    lora_after(r, 0, rank, scale2, wt);
}
static void case_lora_dropout(rec *r) { lora_after(r, 0.3, 8, 0.5f, r->t); }
static void case_lora_dropout_high_rank(rec *r) { lora_after(r, 0.3, 32, 2.0f, AF_DTYPE_F32); }
static void case_lora(rec *r) { lora(r, 8, 0.5f, r->t); }
static void case_lora_scales(rec *r) { lora(r, 8, 2.0f, r->t); }
static void case_lora_high_rank(rec *r) { lora(r, 32, 0.5f, r->t); }
static void case_lora_cast(rec *r) { lora(r, 8, 0.5f, AF_DTYPE_F32); }
/* Rows and widths at which blocks share the low-rank GEMMs. */
static void shared_lora(rec *r, int64_t tokens, int64_t I, int64_t O)
{
    const double small = 1.0 / sqrt((double)I);
    af_linear_opts o = {.weight = {weight_2(r, r->t, O - 32, I), weight_2(r, r->t, 32, I)},
                        .pieces = 2,
                        .parts = 2};
    o.a = param_n(r, 2, (int64_t[]){24, I}, -small, small);
    o.b = param_n(r, 1, (int64_t[]){(O - 32) * 16 + 32 * 8}, -0.3, 0.3);
    o.part[0] = (af_adapter_part){0, O - 32, 0, 16, 0.5f};
    o.part[1] = (af_adapter_part){O - 32, 32, 16, 8, 0.5f};
    af_tensor *y = af_linear(r->g, normed(r, tokens, I), &o);
    finish(r, af_rmsnorm(r->g, y, weight_1(r, AF_DTYPE_F32, O), 1e-6, false));
}
static void case_lora_many_rows(rec *r) { shared_lora(r, 530, 1024, 288); }
static void case_lora_long_rows(rec *r) { shared_lora(r, 9, 2048, 96); }
static void case_lora_plain_rows(rec *r)
{
    af_linear_opts o = {.weight = {weight_2(r, r->t, 40, 48)}, .pieces = 1, .parts = 1};
    o.a = param_n(r, 2, (int64_t[]){4, 48}, -0.3, 0.3);
    o.b = param_n(r, 1, (int64_t[]){40 * 4}, -0.3, 0.3);
    o.part[0] = (af_adapter_part){0, 40, 0, 4, 2.0f};
    finish(r, af_linear(r->g, act_2(r, 19, 48), &o));
}
/* One weight with an adapter for each of its two uses (zamba2). */
static void case_lora_two_uses(rec *r)
{
    af_linear_opts o = {.weight = {weight_2(r, r->t, 64, 64)}, .pieces = 1, .parts = 1};
    af_tensor *x = act_2(r, 19, 64);
    o.part[0] = (af_adapter_part){0, 64, 0, 8, 0.5f};
    for (int i = 0; i < 2; i++) {
        o.a = param_n(r, 2, (int64_t[]){8, 64}, -0.3, 0.3);
        o.b = param_n(r, 1, (int64_t[]){64 * 8}, -0.3, 0.3);
        x = af_rmsnorm(r->g, af_linear(r->g, x, &o), weight_1(r, AF_DTYPE_F32, 64), 1e-6, false);
    }
    finish(r, x);
}
static void case_adapter_only(rec *r)
{
    af_linear_opts o = {.pieces = 0, .parts = 1, .out = 40};
    o.a = param_n(r, 2, (int64_t[]){4, 48}, -0.3, 0.3);
    o.b = param_n(r, 1, (int64_t[]){40 * 4}, -0.3, 0.3);
    o.part[0] = (af_adapter_part){0, 40, 0, 4, 2.0f};
    finish(r, af_linear(r->g, act_2(r, 19, 48), &o));
}
static void case_dora_norm(rec *r)
{
    af_linear_opts o = {
        .weight = {weight_2(r, r->t, 40, 48), weight_2(r, r->t, 8, 48)}, .pieces = 2, .parts = 1};
    o.a = param_n(r, 2, (int64_t[]){4, 48}, -0.3, 0.3);
    o.b = param_n(r, 1, (int64_t[]){40 * 4}, -0.3, 0.3);
    o.part[0] = (af_adapter_part){0, 40, 0, 4, 2.0f};
    out(r, af_dora_norm(r->g, &o));
    out(r, af_linear(r->g, in_2(r, 9, 48), &o));
}
/* Rows of two adapters meet in a block, a column is left over, and some rows have none. */
static void case_dora_norm_odd(rec *r)
{
    af_linear_opts o = {.weight = {weight_2(r, r->t, 29, 261)}, .pieces = 1, .parts = 2};
    o.a = param_n(r, 2, (int64_t[]){9, 261}, -0.3, 0.3);
    o.b = param_n(r, 1, (int64_t[]){13 * 4 + 10 * 5}, -0.3, 0.3);
    o.part[0] = (af_adapter_part){0, 13, 0, 4, 2.0f};
    o.part[1] = (af_adapter_part){13, 10, 4, 5, 0.5f};
    out(r, af_dora_norm(r->g, &o));
}
/* Copies of rows, their sum, and what has no row. */
static void case_row_pick(rec *r)
{
    static const int32_t index[14] = {0, -100, 1, -100, 2, -100, 0, 1, -100, -100, 4, 3, 3, -100},
                         back[10] = {0, 3, 1, 3, 2, -100, 6, 5, 5, -100};
    af_tensor *x = act_2(r, 5, 48);
    af_tensor *i = af_reshape(r->g, ints(r, 14, index), 2, (int64_t[]){7, 2}),
              *b = af_reshape(r->g, ints(r, 10, back), 2, (int64_t[]){5, 2});
    finish(r, af_row_pick(r->g, x, i, b));
}
static void case_expand_topk(rec *r)
{
    static const int32_t id[12] = {3, 60, 0, -100, -100, -100, 7, 8, 9, 1, -100, 2};
    af_tensor *i = af_reshape(r->g, ints(r, 12, id), 2, (int64_t[]){4, 3});
    af_tensor *x = rec_add(r, af_graph_input(r->g, "x", AF_DTYPE_F32, 2, (int64_t[]){4, 3}), -1, 1),
              *y = af_expand_topk(r->g, i, x, 61, -2), *a = act_2(r, 4, 61);
    out(r, y);
    finish(r, af_add(r->g, a, a->dtype == AF_DTYPE_F32 ? y : af_cast(r->g, y, a->dtype)));
}
/* A whole block with adapters everywhere, head and update: what training runs. */
static void block(rec *r)
{
    enum { N = 48, D = 64, H = 4, K = 2, E = 16, F = 96, V = 53, R = 8 };
    static int32_t id[N], at[N], label[N];
    static const int32_t bounds[] = {0, 20, 48};
    for (int i = 0; i < N; i++) {
        id[i] = i * 7 % V;
        at[i] = i < 20 ? i : i - 20;
        label[i] = i % 5 == 0 ? -100 : (i * 11 + 3) % V;
    }
    af_graph *g = r->g;
    af_tensor *table = weight_2(r, r->t, V, D), *res;
    af_tensor *x = af_embedding(g, ints(r, N, id), table, r->t);
    af_tensor *f = rec_add(r, af_graph_input(g, "f", AF_DTYPE_F32, 1, (int64_t[]){E / 2}), 0.01, 1);
    af_tensor *pos = ints(r, N, at), *b = ints(r, 3, bounds), *labels = ints(r, N, label);
    const int64_t in[4] = {D, H * E, D, F}, outs[4] = {(H + 2 * K) * E, D, 2 * F, D};
    af_linear_opts o[4];
    for (int i = 0; i < 4; i++) {
        o[i] = (af_linear_opts){
            .weight = {weight_2(r, r->t, outs[i], in[i])}, .pieces = 1, .parts = 1};
        o[i].a = param_n(r, 2, (int64_t[]){R, in[i]}, -0.2, 0.2);
        o[i].b = param_n(r, 1, (int64_t[]){outs[i] * R}, -0.2, 0.2);
        o[i].part[0] = (af_adapter_part){0, outs[i], 0, R, 2.0f};
    }
    af_graph_set_block(g, 0);
    af_tensor *h = af_rmsnorm(g, x, weight_1(r, r->t, D), 1e-6, false);
    af_tensor *qkv = af_linear(g, h, &o[0]);
    qkv = af_rope(g, qkv, pos, f, &(af_rope_opts){.heads = H, .kv_heads = K, .head_dim = E});
    h = af_attention(
        g, qkv, b, &(af_attention_opts){.heads = H, .kv_heads = K, .head_dim = E, .causal = true});
    h = af_linear(g, h, &o[1]);
    h = af_rmsnorm_add(g, h, x, weight_1(r, r->t, D), 1e-6, false, &res);
    h = af_glu(g, af_linear(g, h, &o[2]), AF_ACT_SILU);
    h = af_linear(g, h, &o[3]);
    af_graph_set_block(g, -1);
    h = af_rmsnorm_add(g, h, res, weight_1(r, r->t, D), 1e-6, false, &res);
    af_tensor *loss = af_head_loss(g, h, table, labels, &(af_head_opts){.chunk_rows = 32});
    out(r, loss);
    af_graph_backward(g, loss);
}
static void case_block(rec *r)
{
    block(r);
    for (int i = 0; i < r->leaves; i++)
        if (r->leaf[i].t->role == AF_ROLE_PARAM && r->leaf[i].t->grad)
            r->out[r->outs++] = r->leaf[i].t->grad;
}
/* The same with an optimizer: the params after some steps. */
static void case_train(rec *r)
{
    block(r);
    af_graph_optimizer(r->g,
                       &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW, .max_grad_norm = 1.0});
    af_graph_set_learning_rate(r->g, 1e-3);
    r->step = true;
    for (int i = 0; i < r->leaves; i++)
        if (r->leaf[i].t->role == AF_ROLE_PARAM)
            r->out[r->outs++] = r->leaf[i].t;
}

typedef struct test_case {
    const char *name;
    void (*record)(rec *r);
    double bf16; /* widest tolerance, relative L2; 0 = 5e-3 (op_errors.h) */
    bool large;  /* millions of weights: without a GPU its launches in bf16 are checked once */
} test_case;

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* few are large */
static const test_case cases[] = {
    {"binary", case_binary, 0},
    {"unary", case_unary, 0},
    {"unary_positive", case_unary_positive, 0},
    {"matmul", case_matmul, 0},
    {"matmul_tn", case_matmul_tn, 0},
    {"matmul_tiles", case_matmul_tiles, 0},
    {"matmul_batched", case_matmul_batched, 0},
    {"shape", case_shape, 0},
    {"reduce", case_reduce, 0},
    {"sums", case_sums, 0},
    {"softmax", case_softmax, 0},
    {"softmax_wide", case_softmax_wide, 0},
    {"layernorm", case_layernorm, 0},
    {"layernorm_wide", case_layernorm_wide, 0},
    {"layernorm_frozen", case_layernorm_frozen, 0},
    {"rmsnorm", case_rmsnorm, 0},
    {"rmsnorm_odd", case_rmsnorm_odd, 0},
    {"rmsnorm_add", case_rmsnorm_add, 0},
    {"residual", case_residual, 2e-2},
    {"residual_full", case_residual_full, 2e-2},
    {"embedding", case_embedding, 0},
    {"dropout", case_dropout, 0},
    {"noise", case_noise, 0},
    {"losses", case_losses, 0},
    {"cross_entropy", case_cross_entropy, 0},
    {"fake_quant", case_fake_quant, 3e-2}, /* a value on an edge may round to either side */
    {"ternary", case_ternary, 3e-2},       /* the same */
    {"nvfp4", case_nvfp4, 0},
    {"mxfp4", case_mxfp4, 0},
    {"float8", case_float8, 0},
    {"rope", case_rope, 0},
    {"rope_odd", case_rope_odd, 0},
    {"rope_norm", case_rope_norm, 0},
    {"rope_pairs", case_rope_pairs, 0},
    {"rope_query", case_rope_query, 0},
    {"attention", case_attention, 1e-2},
    {"attention_128", case_attention_128, 1e-2},
    {"attention_many", case_attention_many, 1e-2},
    {"attention_slide", case_attention_slide, 1e-2},
    {"attention_window", case_attention_window, 1e-2},
    {"attention_full", case_attention_full, 1e-2},
    {"attention_256", case_attention_256, 1e-2},
    {"attention_80", case_attention_80, 1e-2},
    {"attention_96", case_attention_96, 1e-2},
    {"attention_112", case_attention_112, 1e-2},
    {"attention_192", case_attention_192, 1e-2},
    {"attention_capped", case_attention_capped, 1e-2},
    {"attention_capped_128", case_attention_capped_128, 1e-2},
    {"attention_wide", case_attention_wide, 1e-2},
    {"attention_wide_full", case_attention_wide_full, 1e-2},
    {"attention_cached", case_attention_cached, 0},
    {"attention_grouped", case_attention_grouped, 0},
    {"attention_pages", case_attention_pages, 0},
    {"attention_chunks", case_attention_chunks, 1e-2},
    {"attention_back", case_attention_back, 0},
    {"attention_sinks", case_attention_sinks, 1e-2},
    {"attention_sinks_slide", case_attention_sinks_slide, 1e-2},
    {"attention_sinks_odd", case_attention_sinks_odd, 1e-2},
    {"latent", case_latent, 1e-2},
    {"alibi", case_alibi, 1e-2},
    {"attention_shared", case_attention_shared, 2e-2},
    {"attention_sinks_cached", case_attention_sinks_cached, 1e-2},
    {"xielu", case_xielu, 0},
    {"glu", case_glu, 0},
    {"glu_adapters", case_glu_adapters, 2e-2},
    {"glu_adapters_twice", case_glu_adapters_twice, 3e-2},
    {"glu_adapters_long", case_glu_adapters_long, 2e-2},
    {"glu_adapters_front", case_glu_adapters_front, 2e-2},
    {"glu_adapters_odd", case_glu_adapters_odd, 2e-2},
    {"gate_up", case_gate_up, 2e-2},
    {"gate_up_narrow", case_gate_up_narrow, 2e-2},
    {"gate_up_twice", case_gate_up_twice, 3e-2},
    {"gate_up_front", case_gate_up_front, 2e-2},
    {"gate_up_back", case_gate_up_back, 2e-2},
    {"linear", case_linear, 0},
    {"row_adapters", case_row_adapters, 0},
    {"row_adapters_1", case_row_adapters_1, 0},
    {"row_adapters_7", case_row_adapters_7, 0},
    {"row_adapters_46", case_row_adapters_46, 0},
    {"row_adapters_77", case_row_adapters_77, 0},
    {"token_draw", case_token_draw, 1e-12},
    {"token_draw_flat", case_token_draw_flat, 1e-12},
    {"linear_fwd", case_linear_fwd, 0},
    {"linear_params", case_linear_params, 0},
    FP8_CASES,
    {"lora", case_lora, 1e-2},
    {"lora_scales", case_lora_scales, 1e-2},
    {"lora_high_rank", case_lora_high_rank, 1e-2},
    {"lora_cast", case_lora_cast, 1e-2},
    {"lora_dropout", case_lora_dropout, 1e-2},
    {"lora_dropout_high_rank", case_lora_dropout_high_rank, 1e-2},
    {"lora_many_rows", case_lora_many_rows, 1e-2},
    {"lora_long_rows", case_lora_long_rows, 1e-2},
    {"lora_plain_rows", case_lora_plain_rows, 1e-2},
    {"lora_two_uses", case_lora_two_uses, 2e-2},
    {"nf4", case_nf4, 1e-2},
    {"nf4_three", case_nf4_three, 1e-2},
    {"nf4_dropout", case_nf4_dropout, 1e-2},
    {"nf4_64_tokens", case_nf4_64_tokens, 1e-2},
    {"nf4_many_rows", case_nf4_many_rows, 1e-2},
    {"nf4_long", case_nf4_long, 1e-2},
    {"nf4_odd", case_nf4_odd, 0},
    {"plain_nf4_1", case_plain_nf4_1, 1e-2},
    {"plain_fp4_2", case_plain_fp4_2, 1e-2},
    {"plain_nf4_1_wide", case_plain_nf4_1_wide, 1e-2, true},
    {"plain_nf4_5", case_plain_nf4_5, 1e-2},
    {"plain_nf4_12", case_plain_nf4_12, 1e-2},
    {"plain_nf4_17", case_plain_nf4_17, 1e-2},
    {"plain_nf4_33", case_plain_nf4_33, 1e-2},
    {"plain_nf4_64", case_plain_nf4_64, 1e-2},
    {"plain_nf4_100", case_plain_nf4_100, 1e-2},
    {"plain_nf4_250", case_plain_nf4_250, 1e-2},
    {"plain_fp4_256", case_plain_fp4_256, 1e-2},
    {"plain_nf4_many", case_plain_nf4_many, 1e-2},
    {"plain_nf4_rest", case_plain_nf4_rest, 1e-2, true},
    {"fp4", case_fp4, 1e-2},
    {"int8", case_int8, 1e-2},
    {"int8_odd", case_int8_odd, 0},
    {"gguf", case_gguf, 1e-2},
    {"gguf_fp4", case_gguf_fp4, 1e-2},
    {"gguf_iq3", case_gguf_iq3, 1e-2},
    {"gguf_iq2", case_gguf_iq2, 1e-2},
    {"gguf_ternary", case_gguf_ternary, 1e-2},
    {"adapter_only", case_adapter_only, 1e-2},
    {"dora_norm", case_dora_norm, 0},
    {"dora_norm_odd", case_dora_norm_odd, 0},
    {"oft", case_oft, 0},
    {"oft_exact", case_oft_exact, 0},
    {"oft_single", case_oft_single, 0},
    {"oft_wide", case_oft_wide, 0},
    {"oft_rows", case_oft_rows, 0},
    {"oft_single_rows", case_oft_single_rows, 0},
    {"glu_clamped", case_glu_clamped, 0},
    {"moe", case_moe, 2e-2},
    {"moe_train", case_moe_train, 2e-2},
    {"moe_tiles", case_moe_tiles, 2e-2},
    {"moe_biased", case_moe_biased, 2e-2},
    {"moe_adapted", case_moe_adapted, 2e-2},
    {"moe_adapted_odd", case_moe_adapted_odd, 2e-2},
    {"moe_near", case_moe_near, 2e-2},
    {"moe_identity", case_moe_identity, 2e-2},
    {"moe_by_logit", case_moe_by_logit, 2e-2},
    {"moe_plain", case_moe_plain, 2e-2},
    {"moe_project", case_moe_project, 2e-2},
    RECURRENT_CASES,
    {"head", case_head, 1e-2},
    {"head_long", case_head_long, 1e-2},
    {"head_longer", case_head_longer, 1e-2},
    {"head_longest", case_head_longest, 1e-2},
    {"row_pick", case_row_pick, 1e-2},
    {"expand_topk", case_expand_topk, 1e-2},
    {"head_rows", case_head_rows, 1e-2},
    {"head_rows_trained", case_head_rows_trained, 1e-2},
    {"sgd", case_sgd, 0},
    {"sgd_tree", case_sgd_tree, 0},
    {"adam", case_adam, 0},
    {"adamw", case_adamw, 0},
    {"adamw_rows", case_adamw_rows, 0},
    {"adamw_8bit", case_adamw_8bit, 2e-2},
    {"adamw_4bit", case_adamw_4bit, 2e-2}, /* a moment on an edge may round to either side */
    {"adamw_torch_8bit", case_adamw_torch_8bit, 2e-2},
    {"block_bf16", case_block_bf16, 2e-2},
    {"train_bf16", case_train_bf16, 1e-2},
    {"adamw_bf16", case_adamw_bf16, 1e-2}, /* on an edge, a value may round to either side */
    {"adam_stochastic", case_adam_stochastic, 1e-2},
    {"adamw_kahan", case_adamw_kahan, 1e-2},
    {"adamw_8bit_bf16", case_adamw_8bit_bf16, 2e-2},
    {"adamw_8bit_stochastic", case_adamw_8bit_stochastic, 2e-2},
    {"adamw_8bit_kahan", case_adamw_8bit_kahan, 2e-2},
    {"rmsprop", case_rmsprop, 0},
    {"ademamix", case_ademamix, 0},
    {"adagrad", case_adagrad, 0},
    {"nadam", case_nadam, 0},
    {"radam", case_radam, 0},
    {"adopt", case_adopt, 0},
    {"free_adamw", case_free_adamw, 0},
    {"free_radam", case_free_radam, 0},
    {"free_sgd", case_free_sgd, 0},
    {"stable_adamw", case_stable, 0},
    {"stable_adamw_wide", case_stable_wide, 0},
    {"lion_8bit", case_lion_8bit, 2e-2},
    {"rmsprop_8bit", case_rmsprop_8bit, 2e-2},
    {"ademamix_8bit", case_ademamix_8bit, 2e-2},
    {"adam_mini", case_adam_mini, 0},
    {"adam_mini_heads", case_adam_mini_heads, 0},
    {"muon", case_muon, 0},
    {"muon_wide", case_muon_wide, 0},
    {"muon_bf16", case_muon_bf16, 2e-2},
    {"apollo", case_apollo, 0},
    {"apollo_wide", case_apollo_wide, 0},
    {"apollo_mini", case_apollo_mini, 0},
    {"galore", case_galore, 0},
    {"galore_wide", case_galore_wide, 0},
    {"galore_full", case_galore_full, 0},
    {"galore_bf16", case_galore_bf16, 1e-2},
    {"galore_stochastic", case_galore_stochastic, 1e-2},
    {"galore_kahan", case_galore_kahan, 1e-2},
    {"lion", case_lion, 0},
    {"adafactor", case_adafactor, 0},
    {"adafactor_wide", case_adafactor_wide, 0},
    {"block", case_block, 3e-2},
    {"train", case_train, 3e-2},
};
#endif
