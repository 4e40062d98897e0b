/* graph.h - tensors, automatic differentiation, optimizers: a network is recorded once,
 * differentiated, planned, prepared, and then replayed.
 *
 *     af_graph *g;
 *     af_graph_new(&g, &err);
 *     af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){64, 10});
 *     af_tensor *t = af_graph_input(g, "t", AF_DTYPE_F32, 2, (int64_t[]){64, 1});
 *     af_tensor *w = af_graph_param(g, "w", AF_DTYPE_F32, 2, (int64_t[]){10, 1});
 *     af_tensor *loss = af_mse(g, af_matmul(g, x, w, AF_MATMUL_NN), t);
 *     af_graph_backward(g, loss);
 *     af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW});
 *     af_graph_prepare(g, device, &err);            // the only place that allocates
 *     af_tensor_write(g, x, data, bytes, &err); ...
 *     af_graph_set_learning_rate(g, 1e-3);
 *     af_graph_run(g, AF_RUN_STEP, &err);           // forward, backward, update
 *
 * Names. Functions on the graph are af_graph_*, functions on a handle are af_tensor_*, ops carry
 * the name of the op alone (af_matmul). Ops return the handle of their result.
 *
 * Errors. Recording functions do not fail: the first wrong shape, dtype or argument is stored in
 * the graph with a message, the result is a handle that later calls accept, and af_graph_prepare
 * (or af_graph_status) returns AF_EUSAGE with that message. The same holds for handles that are
 * NULL or belong to another graph. Token ids, labels and bounds are checked when they are written
 * (af_tensor_write).
 *
 * Tensors have 1 to 4 dimensions, row-major, the last one contiguous. Handles belong to the graph
 * and are valid until af_graph_free. Recording order is execution order. A graph is used by one
 * thread at a time. Ops take and give f32, bf16 or f64 unless stated otherwise. */
#ifndef AFINAR_GRAPH_H
#define AFINAR_GRAPH_H

#include "afinar/device.h"
#include "afinar/optimizer.h"
#include "afinar/status.h"
#include "afinar/types.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A recorded network. */
typedef struct af_graph af_graph;
/* A handle of a value in a graph. */
typedef struct af_tensor af_tensor;

/* ---- the graph --------------------------------------------------------------------- */

/* Creates an empty graph. On success *out belongs to the caller; free it with af_graph_free.
 * AF_ENOMEM. */
AF_API AF_CHECKED af_status af_graph_new(af_graph **out, af_error *err);
/* Frees a graph, its handles and device memory. The device must still be open. NULL is allowed. */
AF_API void af_graph_free(af_graph *g);
/* AF_OK, or the first recording error. */
AF_API AF_CHECKED af_status af_graph_status(const af_graph *g, af_error *err);

/* ---- leaves ------------------------------------------------------------------------ */

/* An input: written before each run. dim [ndim] is copied, as is `name` (may be NULL). */
AF_API af_tensor *af_graph_input(af_graph *g, const char *name, af_dtype t, int ndim,
                                 const int64_t *dim);
/* A frozen weight: written once, or bound to memory with af_tensor_bind. May have a block type. */
AF_API af_tensor *af_graph_weight(af_graph *g, const char *name, af_dtype t, int ndim,
                                  const int64_t *dim);
/* A trainable parameter (f32 or f64, or bf16 with a gradient in f32). Its gradient accumulates over
 * runs until AF_RUN_UPDATE consumes it. */
AF_API af_tensor *af_graph_param(af_graph *g, const char *name, af_dtype t, int ndim,
                                 const int64_t *dim);
/* A value that ops change in place and that survives runs (caches, moments). Starts as zeros. */
AF_API af_tensor *af_graph_state(af_graph *g, const char *name, af_dtype t, int ndim,
                                 const int64_t *dim);
/* A tensor whose elements all have one value. */
AF_API af_tensor *af_graph_constant(af_graph *g, af_dtype t, int ndim, const int64_t *dim,
                                    double value);

/* Keeps t readable after a run; without it the memory of a result is reused. */
AF_API void af_graph_output(af_graph *g, af_tensor *t);

/* The element type, the number of dimensions, the size of one, the number of elements, the size in
 * bytes as af_tensor_read gives it, and the name ("" when it has none; borrowed). */
AF_API af_dtype af_tensor_dtype(const af_tensor *t);
AF_API int af_tensor_ndim(const af_tensor *t);
AF_API int64_t af_tensor_dim(const af_tensor *t, int axis);
AF_API int64_t af_tensor_count(const af_tensor *t);
AF_API uint64_t af_tensor_bytes(const af_tensor *t);
AF_API const char *af_tensor_name(const af_tensor *t);
/* The accumulated gradient of a parameter, after af_graph_backward; NULL when the loss does not
 * depend on it. */
AF_API af_tensor *af_tensor_gradient(const af_tensor *param);

/* ---- general ops ------------------------------------------------------------------- */

/* a + b, a - b, a * b, a / b with broadcasting: shapes are aligned at the last axis; an axis that
 * is 1 or missing is repeated. */
AF_API af_tensor *af_add(af_graph *g, af_tensor *a, af_tensor *b);
AF_API af_tensor *af_sub(af_graph *g, af_tensor *a, af_tensor *b);
AF_API af_tensor *af_mul(af_graph *g, af_tensor *a, af_tensor *b);
AF_API af_tensor *af_div(af_graph *g, af_tensor *a, af_tensor *b);
/* Functions of each element: x * factor, -x, exp, log, sqrt, tanh, sigmoid, max(x, 0). */
AF_API af_tensor *af_scale(af_graph *g, af_tensor *x, double factor);
AF_API af_tensor *af_neg(af_graph *g, af_tensor *x);
AF_API af_tensor *af_exp(af_graph *g, af_tensor *x);
AF_API af_tensor *af_log(af_graph *g, af_tensor *x);
AF_API af_tensor *af_sqrt(af_graph *g, af_tensor *x);
AF_API af_tensor *af_tanh(af_graph *g, af_tensor *x);
AF_API af_tensor *af_sigmoid(af_graph *g, af_tensor *x);
AF_API af_tensor *af_relu(af_graph *g, af_tensor *x);
/* x * Phi(x) by erf; its tanh approximation; x * sigmoid(x); cap * tanh(x / cap). */
AF_API af_tensor *af_gelu(af_graph *g, af_tensor *x);
AF_API af_tensor *af_gelu_tanh(af_graph *g, af_tensor *x);
AF_API af_tensor *af_silu(af_graph *g, af_tensor *x);
AF_API af_tensor *af_softcap(af_graph *g, af_tensor *x, double cap);
/* x between -limit and limit; no gradient passes where that changes the value. */
AF_API af_tensor *af_clip(af_graph *g, af_tensor *x, double limit);
/* Converts to another element type, rounding to nearest even. */
AF_API af_tensor *af_cast(af_graph *g, af_tensor *x, af_dtype t);

typedef enum af_matmul_kind {
    AF_MATMUL_NN = 0, /* a [.. M K] times b [.. K N] */
    AF_MATMUL_NT = 1, /* b is [.. N K]               */
    AF_MATMUL_TN = 2, /* a is [.. K M]               */
    AF_MATMUL_TT = 3,
} af_matmul_kind;
/* Matrix multiplication over the last two axes. Leading axes are batches; b may have none and is
 * then used for every batch. Accumulates in f32 (f64 for f64). */
AF_API af_tensor *af_matmul(af_graph *g, af_tensor *a, af_tensor *b, af_matmul_kind kind);

/* Permutes axes: axis i of the result is axis perm[i] of x; perm has as many entries as x axes. */
AF_API af_tensor *af_transpose(af_graph *g, af_tensor *x, const int *perm);
/* The same elements in another shape, without a copy. */
AF_API af_tensor *af_reshape(af_graph *g, af_tensor *x, int ndim, const int64_t *dim);
/* The same values as a constant: no gradient passes. */
AF_API af_tensor *af_detach(af_graph *g, af_tensor *x);
/* Elements [from, from + count) of one axis. */
AF_API af_tensor *af_slice(af_graph *g, af_tensor *x, int axis, int64_t from, int64_t count);
/* n tensors one after another along an axis; other axes must agree. */
AF_API af_tensor *af_concat(af_graph *g, af_tensor *const *x, int n, int axis);

/* Reductions over one axis; a negative axis counts from the end. keep: the axis stays, with length
 * 1. The gradient of af_max goes to the first maximum. */
AF_API af_tensor *af_sum(af_graph *g, af_tensor *x, int axis, bool keep);
AF_API af_tensor *af_mean(af_graph *g, af_tensor *x, int axis, bool keep);
AF_API af_tensor *af_max(af_graph *g, af_tensor *x, int axis, bool keep);
/* Reductions over all elements, to [1]. */
AF_API af_tensor *af_sum_all(af_graph *g, af_tensor *x);
AF_API af_tensor *af_mean_all(af_graph *g, af_tensor *x);

/* Softmax and its logarithm over the last axis. */
AF_API af_tensor *af_softmax(af_graph *g, af_tensor *x);
AF_API af_tensor *af_log_softmax(af_graph *g, af_tensor *x);
/* (x - mean) / sqrt(variance + eps) * w + b over the last axis; w, b [D]. */
AF_API af_tensor *af_layernorm(af_graph *g, af_tensor *x, af_tensor *w, af_tensor *b, double eps);
/* x / sqrt(mean(x^2) + eps) * w over the last axis; plus_one: times (1 + w). w [D]. */
AF_API af_tensor *af_rmsnorm(af_graph *g, af_tensor *x, af_tensor *w, double eps, bool plus_one);
/* Rows of a table: ids i32 [N], table [V][D] of any type -> [N][D] of type `out`. */
AF_API af_tensor *af_embedding(af_graph *g, af_tensor *ids, af_tensor *table, af_dtype out);
/* Row `id` of the table of y, which af_embedding returned, gets no gradient from it (PyTorch's
 * padding_idx). */
AF_API void af_embedding_frozen_row(af_graph *g, af_tensor *y, int64_t id);
/* Zero with probability p, the rest times 1/(1-p). The mask is a pure function of the seed
 * (af_graph_set_seed), `stream`, the clock and the element, so recomputation gives the same one.
 * Identity in graphs without af_graph_backward and while training is off. */
AF_API af_tensor *af_dropout(af_graph *g, af_tensor *x, double p, uint64_t stream);
/* NEFTune (Jain et al. 2023): x [N][D] plus uniform noise in +- alpha / sqrt(L D), L = tokens of
 * the row's sequence; bounds i32 [S+1] as in af_attention, rows after the last bound are unchanged.
 * The gradient passes unchanged. Identity where dropout is. */
AF_API af_tensor *af_neftune_noise(af_graph *g, af_tensor *x, af_tensor *bounds, double alpha,
                                   uint64_t stream);

/* Losses, f32 [1]: the mean over all elements of (x - target)^2, |x - target|, the Huber loss, and
 * the binary cross-entropy of logits x. */
AF_API af_tensor *af_mse(af_graph *g, af_tensor *x, af_tensor *target);
AF_API af_tensor *af_l1(af_graph *g, af_tensor *x, af_tensor *target);
AF_API af_tensor *af_huber(af_graph *g, af_tensor *x, af_tensor *target, double delta);
AF_API af_tensor *af_bce_with_logits(af_graph *g, af_tensor *x, af_tensor *target);
/* Cross-entropy of logits x [N][V] and labels i32 [N], the mean over rows whose label is not -100;
 * 0 when there are none. smoothing in [0, 1). */
AF_API af_tensor *af_cross_entropy(af_graph *g, af_tensor *x, af_tensor *labels, double smoothing);
/* Kullback-Leibler divergence, the mean over rows of sum p (log p - logq): p [N][V] probabilities,
 * logq [N][V] log-probabilities. */
AF_API af_tensor *af_kl(af_graph *g, af_tensor *logq, af_tensor *p);

/* Rounds to integers of `bits` bits and back. Values share a scale per tensor (group 0), per row
 * (-1) or per `group` columns. The gradient passes unchanged where the value was not clipped. */
AF_API af_tensor *af_fake_quant(af_graph *g, af_tensor *x, int bits, int64_t group, bool symmetric);
/* Rounds to -1, 0 or 1 times the mean of |w|, in type `out`. The gradient passes unchanged. */
AF_API af_tensor *af_ternary(af_graph *g, af_tensor *w, af_dtype out);

/* ---- fused ops for language models ------------------------------------------------- */

/* Rows are tokens: N = all tokens of the batch, sequences one after another. D width, E head size,
 * H heads, K kv heads, F ffn width, V vocabulary. */

/* *sum = x + residual, result = rmsnorm(*sum), in one pass. All [N][D]. sum may be NULL. */
AF_API af_tensor *af_rmsnorm_add(af_graph *g, af_tensor *x, af_tensor *residual, af_tensor *w,
                                 double eps, bool plus_one, af_tensor **sum);

typedef struct af_rope_opts {
    int heads, kv_heads, head_dim;
    int rotary_dim;             /* 0 = head_dim; the rest of the head is unchanged */
    double scale;               /* factor of cos and sin; 0 = 1 (yarn and longrope set it) */
    af_tensor *q_norm, *k_norm; /* RMS norm before the rotation, or NULL: [E], or [H*E], [K*E] */
    double norm_eps;
    bool norm_plus_one;
    bool pairs; /* dimension 2i turns with 2i+1, instead of i with i + rotary_dim/2 */
    /* queries are multiplied by 1 + query_beta * ln(1 + floor((position + query_from) /
     * query_length)); query_beta 0 = not */
    double query_beta;
    int64_t query_length;
    int query_from;
} af_rope_opts;
/* Rotary embedding of queries and keys: qkv [N][(H+2K)E], positions i32 [N], inv_freq f32
 * [rotary_dim/2] or NULL (norms only). -> as qkv. */
AF_API af_tensor *af_rope(af_graph *g, af_tensor *qkv, af_tensor *positions, af_tensor *inv_freq,
                          const af_rope_opts *o);

typedef struct af_attention_opts {
    int heads, kv_heads, head_dim;
    double scale;   /* 0 = 1/sqrt(head_dim) */
    double softcap; /* 0 = none; scores become cap * tanh(score / cap) */
    int window;     /* 0 = none; a query at q sees keys k with q - window < k <= q */
    int chunk;      /* af_attention_cached: 0 = none; a query sees keys of its own chunk of so many
                       positions. Without a cache the bounds are cut instead: af_bounds_cut */
    bool causal;
    af_tensor *sinks; /* [H], or NULL: a logit per head that takes part in the softmax and has no
                         value */
    af_tensor *pages; /* af_attention_cached: i32 [S][M], or NULL */
} af_attention_opts;
/* Attention: qkv [N][(H+2K)E] -> [N][H*E]. bounds i32 [S+1]: sequence s is rows bounds[s] to
 * bounds[s+1] - 1, empty ones allowed, bounds[S] <= N; rows after the last bound give 0. The score
 * matrix is never stored. */
AF_API af_tensor *af_attention(af_graph *g, af_tensor *qkv, af_tensor *bounds,
                               const af_attention_opts *o);
/* Sequences cut into pieces of `chunk` rows, the last one of each what is left: bounds i32 [S+1] of
 * at most N rows -> i32 [S + N/chunk + 1], empty ones at the end. */
AF_API af_tensor *af_bounds_cut(af_graph *g, af_tensor *bounds, int64_t chunk, int64_t N);
/* Rows by their numbers: x [M][D], index i32 [N][2], back i32 [M][2] -> y [N][D], y[n] =
 * x[index[n][0]] + x[index[n][1]]; -100 adds nothing. `back` says the same from the other side, for
 * the gradient: where each row of x is used, at most twice. */
AF_API af_tensor *af_row_pick(af_graph *g, af_tensor *x, af_tensor *index, af_tensor *back);
/* Rows of V values from some of them: y[n][id[n][k]] = x[n][k], `rest` elsewhere. id i32 [N][K],
 * all different in a row, -100 = none; x f32 [N][K] -> y f32 [N][V], without a gradient. */
AF_API af_tensor *af_expand_topk(af_graph *g, af_tensor *id, af_tensor *x, int64_t V, double rest);
/* Attention for generation. cache is a state [P][L][2*K*E] (keys, then values, of each position) of
 * P pages of L positions. Positions i*L to (i+1)*L - 1 of sequence s lie in page pages[s][i];
 * without pages P is S, and page s is all that sequence s has.
 * Rows bounds[s] to bounds[s+1] - 1 of qkv are new tokens of sequence s at positions start[s] and
 * up (start i32 [S]); they are stored in the cache and attend to all of it up to themselves. No
 * gradient. */
AF_API af_tensor *af_attention_cached(af_graph *g, af_tensor *qkv, af_tensor *cache,
                                      af_tensor *bounds, af_tensor *start,
                                      const af_attention_opts *o);

/* Causal depthwise convolution of each column: x [N][C], w [C][K], bias [C] or NULL, bounds as in
 * af_attention -> y[t][c] = sum over j < K of w[c][j] * x[t - K + 1 + j][c] + bias[c], rows before
 * the sequence counting as zero; silu: y * sigmoid(y). Rows outside every sequence give 0. */
AF_API af_tensor *af_conv(af_graph *g, af_tensor *x, af_tensor *w, af_tensor *bias,
                          af_tensor *bounds, bool silu);
/* The same for generation. window is a state [S][max(K-1, 1)][C], the last inputs of each sequence;
 * it counts as zero where start[s] is 0 (start i32 [S]). No gradient. */
AF_API af_tensor *af_conv_cached(af_graph *g, af_tensor *x, af_tensor *w, af_tensor *bias,
                                 af_tensor *window, af_tensor *bounds, af_tensor *start, bool silu);

/* What af_selective reads: x [N][I], dt [N][I], a [I][n], b, c [N][n], bounds i32 [S+1]; dt and a
 * are f32 (f64 for f64). */
typedef struct af_selective_opts {
    af_tensor *x, *dt, *a, *b, *c, *bounds;
} af_selective_opts;
/* The selective scan of Mamba-1 -> [N][I]: each channel has n states s, zero before its sequence;
 * s = exp(dt a) s + dt x b, y = s . c. Rows outside every sequence give 0. */
AF_API af_tensor *af_selective(af_graph *g, const af_selective_opts *o);
/* The same for generation. state [S][I][n] is f32 and carried on; it counts as zero where start[s]
 * is 0 (start i32 [S]). No gradient. */
AF_API af_tensor *af_selective_cached(af_graph *g, const af_selective_opts *o, af_tensor *state,
                                      af_tensor *start);

typedef struct af_scan_opts {
    int heads;     /* of values, and of states */
    int key_heads; /* of keys and queries: head h reads key head h / (heads / key_heads) */
    int key_dim, head_dim;
    bool delta; /* the gated delta rule, else Mamba-2's */
} af_scan_opts;
/* A recurrence with a state S [key_dim][head_dim] per head that is zero where a sequence begins:
 *   S = exp(decay) S;  d = beta (v - S^T k) with delta, else beta v;  S += k d^T;
 *   y = S^T q (+ skip v)
 * x [N][..]: with delta the columns of q, k, v, and q and k are divided by their length (q also by
 * sqrt(key_dim)); else those of v, k, q (x, B, C of Mamba-2). decay (at most 0) f32, beta
 * [N][heads]; with delta and no skip decay may be [N][heads * key_dim], one for each row of S; skip
 * [heads] or NULL; bounds as in af_attention -> [N][heads * head_dim]. */
AF_API af_tensor *af_scan(af_graph *g, af_tensor *x, af_tensor *decay, af_tensor *beta,
                          af_tensor *skip, af_tensor *bounds, const af_scan_opts *o);
/* The same for generation. state f32 [S][heads][key_dim * head_dim] is carried from run to run; it
 * counts as zero where start[s] is 0 (start i32 [S]). No gradient. */
AF_API af_tensor *af_scan_cached(af_graph *g, af_tensor *x, af_tensor *decay, af_tensor *beta,
                                 af_tensor *skip, af_tensor *state, af_tensor *bounds,
                                 af_tensor *start, const af_scan_opts *o);
/* softplus(x + bias) in f32, times -exp(a_log) unless that is NULL. x [N][H], bias, a_log [H]. */
AF_API af_tensor *af_softplus(af_graph *g, af_tensor *x, af_tensor *bias, af_tensor *a_log);
/* RMS norm of groups of columns, as many as w has, and a gate of the same shape as x [N][D]:
 * rmsnorm(x) w silu(gate), or with gate_first rmsnorm(x silu(gate)) w. */
AF_API af_tensor *af_gated_norm(af_graph *g, af_tensor *x, af_tensor *gate, af_tensor *w,
                                double eps, bool gate_first);

typedef enum af_act { AF_ACT_SILU, AF_ACT_GELU_TANH, AF_ACT_GELU, AF_ACT_RELU } af_act;
/* Gated linear unit: gate_up [N][2F] -> act(gate) * up [N][F]; the gate is the first half of the
 * columns. */
AF_API af_tensor *af_glu(af_graph *g, af_tensor *gate_up, af_act act);
/* The unit of gpt-oss: gate and up are cut at +-limit (gate only above), then
 * (up + 1) * gate * sigmoid(1.702 gate). No gradient passes where a cut changes the value. */
AF_API af_tensor *af_glu_clamped(af_graph *g, af_tensor *gate_up, double limit);

/* xIELU (Huang et al. 2024), with a = softplus(p), c = beta + softplus(n): a x^2 + beta x where
 * x > 0, else c (expm1(min(x, eps)) - x) + beta x. p, n, beta, eps f32 [1]; p and n may be trained.
 */
AF_API af_tensor *af_xielu(af_graph *g, af_tensor *x, af_tensor *p, af_tensor *n, af_tensor *beta,
                           af_tensor *eps);

/* One low-rank pair inside a fused projection: output columns [out_from, out_from+out_rows) get
 * scale * B (A x), with A = rows [rank_from, rank_from+rank) of `a`, B = the next out_rows x rank
 * values of `b`. */
typedef struct af_adapter_part {
    int64_t out_from, out_rows;
    int rank_from, rank;
    float scale;
} af_adapter_part;

enum { AF_LINEAR_PIECES = 3, AF_ADAPTER_PARTS = 4 };

typedef struct af_linear_opts {
    /* [O_i][I] of any type, stacked along rows; none: the adapter alone */
    af_tensor *weight[AF_LINEAR_PIECES];
    af_tensor *bias[AF_LINEAR_PIECES]; /* [O_i] or NULL */
    int pieces;
    /* parameters or weights: a [R][I]; b flat [sum of out_rows*rank], part after part */
    af_tensor *a, *b;
    af_adapter_part part[AF_ADAPTER_PARTS];
    int parts;
    af_tensor *adapter_x; /* what the adapter reads, of x's shape and type; NULL = x */
    int64_t out;          /* output columns; 0 = the sum of the weights' rows */
    /* Generation: rows that are single tokens are summed in an order of their own. */
    bool few_rows;
    /* The frozen weights and the rows they are multiplied with count as e4m3 with a scale per row,
     * in both passes; adapters, biases and sums do not. */
    bool fp8;
} af_linear_opts;
/* A linear layer: y [N][O] = x [N][I] W^T + bias + adapter, in the type of x with f32
 * accumulation. */
AF_API af_tensor *af_linear(af_graph *g, af_tensor *x, const af_linear_opts *o);

typedef struct af_head_opts {
    af_tensor *scale; /* f32 [1], the factor of the sum, usually 1 / supervised tokens; NULL = 1 */
    double softcap;   /* on the logits; 0 = none */
    double logit_scale; /* factor of the logits; 0 = 1 */
    double smoothing;   /* label smoothing, [0, 1) */
    int64_t chunk_rows; /* rows of logits held at once; 0 = chosen by the op */
    af_tensor **rows;   /* when set: f32 [N][2], loss of a row, 1 if its label is the arg max */
    bool stats;         /* rows is [N][AF_HEAD_STATS]: then entropy, mean logit, log sum p^2 */
    /* f32 [N], in place of `scale`: the gradient is that of the sum of weight times loss of a row.
     * Only the backward pass reads it: it may depend on what the forward pass gave (AF_RUN_KEEP).
     */
    af_tensor *row_weight;
} af_head_opts;
enum { AF_HEAD_STATS = 5 };
/* Output projection and cross-entropy in one op: h [N][D], weight [V][D], labels i32 [N] (-100 = no
 * loss; shifted already: label i is what row i must predict) -> loss f32 [1], the scaled sum.
 * Logits are computed in chunks; with af_graph_backward so is the gradient, in the same pass. o
 * may be NULL. */
AF_API af_tensor *af_head_loss(af_graph *g, af_tensor *h, af_tensor *weight, af_tensor *labels,
                               const af_head_opts *o);

/* L2 norms of the rows of W plus adapter, f32 [O], DoRA's denominator. No gradient. */
AF_API af_tensor *af_dora_norm(af_graph *g, const af_linear_opts *o);

/* How a mixture of experts chooses: s = score(logits) of all experts; c = s + bias is what choices
 * are made by; the weights of the chosen are scale * s, divided by (their sum + eps) with `norm`.
 * "Softmax over the k best logits" is softmax with norm. */
typedef enum af_route_score {
    AF_ROUTE_SOFTMAX,
    AF_ROUTE_SIGMOID,
    /* sparse mixer (phimoe): one expert after another; its weight is scale times its share of a
     * softmax over the experts left whose logit z is near its own m: m - z <= eps max(|z|, m). No
     * bias, norm or groups; k up to 8. */
    AF_ROUTE_NEAR
} af_route_score;
typedef struct af_route_opts {
    int used; /* k, experts of a token */
    af_route_score score;
    af_tensor *bias; /* f32 [X] or NULL; no gradient */
    bool by_logit;   /* sigmoid without groups: choices are made by c = logits + bias */
    bool norm;
    double eps, scale; /* scale: 0 = 1 */
    /* above 1: experts are in as many equal runs, and those of the `groups_used` runs with the
     * largest sums of their `group_best` (1 or 2) largest c can be chosen */
    int groups, groups_used, group_best;
} af_route_opts;
/* Routing: logits [N][X] -> weights f32 [N][k] of the k experts with the largest c, of equals the
 * lower first, and *index i32 [N][k] (may be NULL). */
AF_API af_tensor *af_moe_route(af_graph *g, af_tensor *logits, const af_route_opts *o,
                               af_tensor **index);

/* A linear of every expert: weight [X][O][I] of any type, bias [X][O] or NULL; adapter a [X][r][I],
 * b [X][O][r] or NULL, which adds scale * b a. */
typedef struct af_expert_linear {
    af_tensor *weight, *bias, *a, *b;
    double scale;
} af_expert_linear;
typedef struct af_experts_opts {
    af_expert_linear gate_up, down; /* [X][2F][D], gate rows first; [X][D][F] */
    af_act act;
    double clamp; /* above 0: af_glu_clamped with this limit instead of `act` */
    bool plain;   /* no gate: gate_up is [X][F][D], y = down(act(up x)) */
    bool relu2;   /* plain: relu(.)^2 instead of `act` */
    int identity; /* experts X to X + identity - 1 have no weights: their output is x */
} af_experts_opts;
/* y[n] = sum_j weights[n][j] * down[e](act(gate[e] x) * (up[e] x)), e = index[n][j], j in order. */
AF_API af_tensor *af_moe_ffn(af_graph *g, af_tensor *x, af_tensor *weights, af_tensor *index,
                             const af_experts_opts *o);

/* A linear of experts alone: y[n] = sum_j weights[n][j] * w[e] x[n], e = index[n][j]. */
AF_API af_tensor *af_moe_project(af_graph *g, af_tensor *x, af_tensor *weights, af_tensor *index,
                                 const af_expert_linear *o);

/* ---- gradients, optimizers --------------------------------------------------------- */

/* Records the gradient of a scalar [1] with respect to every parameter it depends on. Once per
 * graph, after the forward pass. The loss is then an output (af_graph_output). */
AF_API void af_graph_backward(af_graph *g, af_tensor *loss);

/* FREE_*: the average of what was learnt takes the place of the parameters (on), or what gradients
 * are taken at comes back, bit by bit (off). Evaluate and write it; do not train on while it is on.
 * Nothing happens with other optimizers. AF_EUSAGE before prepare. */
AF_API AF_CHECKED af_status af_graph_average(af_graph *g, bool on, af_error *err);
/* Records the update: global norm of all gradients, clip factor, update of all parameters,
 * gradients to zero. Once per graph, after af_graph_backward. */
AF_API void af_graph_optimizer(af_graph *g, const af_optimizer_opts *o);
/* Before af_graph_optimizer: a parameter's factor of the learning rate, weight decay or none. */
AF_API void af_tensor_set_group(af_tensor *param, double lr_factor, bool decay);

/* The learning rate of the next update. Like the other values below it is an argument of the run,
 * not part of the recording: changing it costs nothing. */
AF_API void af_graph_set_learning_rate(af_graph *g, double lr);
/* The number of the next update, from 1 (bias correction). af_graph_run counts by itself. */
AF_API void af_graph_set_step(af_graph *g, int64_t step);
/* The seed of dropout and noise; resets the clock. */
AF_API void af_graph_set_seed(af_graph *g, uint64_t seed);
/* Off: dropout and noise are the identity (evaluation in a training graph). On at first. */
AF_API void af_graph_set_training(af_graph *g, bool on);
/* The clock of dropout and noise: micro-batches run so far. A resumed run sets it. */
AF_API uint64_t af_graph_clock(const af_graph *g);
AF_API void af_graph_set_clock(af_graph *g, uint64_t count);

/* ---- plan, prepare, run ------------------------------------------------------------ */

/* What is recomputed in the backward pass instead of kept. */
typedef enum af_recompute {
    AF_RECOMPUTE_NONE,    /* keep everything the backward pass needs           */
    AF_RECOMPUTE_CHEAP,   /* drop results of cheap kernels                     */
    AF_RECOMPUTE_WIDE,    /* drop gate|up too                                  */
    AF_RECOMPUTE_MOST,    /* keep the inputs of blocks and attention       */
    AF_RECOMPUTE_HOST,    /* keep those in pinned host memory (CPU: as MOST)   */
    AF_RECOMPUTE_BLOCK,   /* keep the inputs of blocks only                    */
    AF_RECOMPUTE_OFFLOAD, /* keep those, and more, in pinned host memory (CPU: as BLOCK) */
} af_recompute;
/* "none", "cheap", "wide", "most", "host", "block" or "offload". Static storage. */
AF_API const char *af_recompute_name(af_recompute mode);
/* Nodes recorded from now on belong to block `index` (-1: none); recomputation works per block. */
AF_API void af_graph_set_block(af_graph *g, int index);
/* The recompute mode of blocks [0, blocks); the others keep everything, or use the mode of
 * af_graph_set_recompute_rest. (The first blocks hold their values longest.) Before prepare. */
AF_API void af_graph_set_recompute(af_graph *g, af_recompute mode, int blocks);
AF_API void af_graph_set_recompute_rest(af_graph *g, af_recompute mode);
/* Blocks from this number on are rebuilt whole, whatever the modes: parts of a computation that
 * must not be in memory together. Before prepare. */
AF_API void af_graph_set_rebuilt(af_graph *g, int first);
/* Promises that every update follows exactly one gradient run: the first contribution to a gradient
 * is then written instead of added, and gradients may reuse the memory of activations. Devices
 * without support ignore it. Before prepare. */
AF_API void af_graph_set_one_pass(af_graph *g);
/* The token dimension: inputs whose first axis has this length may be run with fewer rows. Before
 * recording. */
AF_API void af_graph_set_rows(af_graph *g, int64_t rows);
/* The number of rows of the next runs, 0 to af_graph_set_rows; ops skip the rest. */
AF_API void af_graph_set_live_rows(af_graph *g, int64_t rows);

/* Bytes of device memory unless stated otherwise. */
typedef struct af_plan_info {
    uint64_t inputs, weights, params, grads, state, activations, workspace, total;
    uint64_t bound;    /* weights in the caller's memory (not in total) */
    uint64_t returned; /* of bound: in a mapped file, not resident once the CPU has packed them */
    uint64_t host;     /* pinned host memory for offloaded values (not in total) */
    double flops;      /* floating-point operations per AF_RUN_STEP */
    double effort;     /* relative cost: per op its FLOPs, or 150 (CPU: 5) times the bytes it moves
                          if that is more; compares plans of one model */
    int nodes, tensors;
} af_plan_info;
/* Assigns memory without allocating it; may be called before prepare. *info gets the sizes (may be
 * NULL). AF_EUSAGE for a recording error. */
AF_API AF_CHECKED af_status af_graph_plan(af_graph *g, af_device *d, af_plan_info *info,
                                          af_error *err);
/* Plans if that was not done, allocates, selects and builds every kernel. The device must outlive
 * the graph. AF_EUSAGE: a recording error; AF_ENOMEM: with the numbers of the plan; AF_EDEVICE. */
AF_API AF_CHECKED af_status af_graph_prepare(af_graph *g, af_device *d, af_error *err);

enum {
    AF_RUN_FORWARD = 1,
    AF_RUN_BACKWARD = 2,
    AF_RUN_UPDATE = 4,
    AF_RUN_GRAD = AF_RUN_FORWARD | AF_RUN_BACKWARD, /* one micro-batch: gradients accumulate */
    AF_RUN_STEP = AF_RUN_GRAD | AF_RUN_UPDATE,
    /* with AF_RUN_FORWARD: the backward pass comes in the next run, after its inputs (row weights)
     * were written */
    AF_RUN_KEEP = 8,
};
/* Runs the recorded phases `what` (AF_RUN_*) once. On a GPU it returns before the work is done;
 * reading waits. AF_EUSAGE before prepare; AF_EDEVICE. */
AF_API AF_CHECKED af_status af_graph_run(af_graph *g, int what, af_error *err);

/* Copies a whole tensor to or from the device, rows packed; `bytes` must be af_tensor_bytes(t).
 * After prepare, at any time. Only leaves and outputs (af_graph_output) can be read. AF_EUSAGE for
 * a wrong size, or ids, labels or bounds out of range. */
AF_API AF_CHECKED af_status af_tensor_write(af_graph *g, af_tensor *t, const void *data,
                                            uint64_t bytes, af_error *err);
AF_API AF_CHECKED af_status af_tensor_read(af_graph *g, const af_tensor *t, void *data,
                                           uint64_t bytes, af_error *err);
/* Like af_tensor_read without waiting for the device: `data` must stay valid and has the values
 * after the next af_tensor_read or af_graph_grad_norm. */
AF_API AF_CHECKED af_status af_tensor_read_later(af_graph *g, const af_tensor *t, void *data,
                                                 uint64_t bytes, af_error *err);
/* CPU only, before prepare: uses the values of a weight where they are. `data` must outlive the
 * graph. */
AF_API void af_tensor_bind(af_tensor *t, const void *data);
/* The same for a read-only or shared mapping of a file: when the device keeps the weight in another
 * form, its pages are dropped and read again from the file on demand. */
AF_API void af_tensor_bind_file(af_tensor *t, const void *data);

/* After AF_RUN_UPDATE: the global gradient norm before clipping, and whether it was finite. Either
 * pointer may be NULL. */
AF_API AF_CHECKED af_status af_graph_grad_norm(af_graph *g, double *norm, bool *finite,
                                               af_error *err);

#ifdef __cplusplus
}
#endif
#endif
