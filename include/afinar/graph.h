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
 * Errors. Recording functions never fail by themselves: the first wrong shape, dtype or argument is
 * latched in the graph with a sentence that has both values, the result is a handle that every
 * later call accepts, and af_graph_prepare (or af_graph_status) returns AF_EUSAGE with that
 * sentence. So is a handle that is NULL or of another graph. Token ids, labels and bounds are
 * checked where they are written (af_tensor_write): the sentence has the element and its range.
 *
 * Tensors have 1 to 4 dimensions, row-major, the last one contiguous. Handles belong to the graph.
 * Recording order is execution order. A graph is used by one thread at a time. */
#ifndef AFINAR_GRAPH_H
#define AFINAR_GRAPH_H

#include "afinar/device.h"
#include "afinar/status.h"
#include "afinar/types.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct af_graph af_graph;
typedef struct af_tensor af_tensor;

/* ---- the graph --------------------------------------------------------------------- */

AF_CHECKED af_status af_graph_new(af_graph **out, af_error *err);
void af_graph_free(af_graph *g);
/* AF_OK, or the first recording error. */
AF_CHECKED af_status af_graph_status(const af_graph *g, af_error *err);

/* ---- leaves ------------------------------------------------------------------------ */

/* A value written before each run. */
af_tensor *af_graph_input(af_graph *g, const char *name, af_dtype t, int ndim, const int64_t *dim);
/* A frozen value written once (or bound to memory with af_tensor_bind). May have a block type. */
af_tensor *af_graph_weight(af_graph *g, const char *name, af_dtype t, int ndim, const int64_t *dim);
/* A trainable value (f32 or f64). Its gradient accumulates over runs until AF_RUN_UPDATE consumes
 * it. */
af_tensor *af_graph_param(af_graph *g, const char *name, af_dtype t, int ndim, const int64_t *dim);
/* A value that ops change in place and that survives runs (caches, moments). Starts as zeros. */
af_tensor *af_graph_state(af_graph *g, const char *name, af_dtype t, int ndim, const int64_t *dim);
/* The same number everywhere. */
af_tensor *af_graph_constant(af_graph *g, af_dtype t, int ndim, const int64_t *dim, double value);

/* Keeps t readable after a run (otherwise its memory is reused). */
void af_graph_output(af_graph *g, af_tensor *t);

/* What a handle is. */
af_dtype af_tensor_dtype(const af_tensor *t);
int af_tensor_ndim(const af_tensor *t);
int64_t af_tensor_dim(const af_tensor *t, int axis);
int64_t af_tensor_count(const af_tensor *t);
uint64_t af_tensor_bytes(const af_tensor *t);
const char *af_tensor_name(const af_tensor *t); /* "" when it has none */
/* The accumulated gradient of a parameter, after af_graph_backward; NULL when the loss does not
 * depend on it. */
af_tensor *af_tensor_gradient(const af_tensor *param);

/* ---- general ops ------------------------------------------------------------------- */

/* Element-wise with broadcasting: shapes are aligned at the last axis, a 1 or a missing axis
 * stretches. */
af_tensor *af_add(af_graph *g, af_tensor *a, af_tensor *b);
af_tensor *af_sub(af_graph *g, af_tensor *a, af_tensor *b);
af_tensor *af_mul(af_graph *g, af_tensor *a, af_tensor *b);
af_tensor *af_div(af_graph *g, af_tensor *a, af_tensor *b);
af_tensor *af_scale(af_graph *g, af_tensor *x, double factor);
af_tensor *af_neg(af_graph *g, af_tensor *x);
af_tensor *af_exp(af_graph *g, af_tensor *x);
af_tensor *af_log(af_graph *g, af_tensor *x);
af_tensor *af_sqrt(af_graph *g, af_tensor *x);
af_tensor *af_tanh(af_graph *g, af_tensor *x);
af_tensor *af_sigmoid(af_graph *g, af_tensor *x);
af_tensor *af_relu(af_graph *g, af_tensor *x);
af_tensor *af_gelu(af_graph *g, af_tensor *x);      /* x * Phi(x), by erf */
af_tensor *af_gelu_tanh(af_graph *g, af_tensor *x); /* the tanh approximation */
af_tensor *af_silu(af_graph *g, af_tensor *x);
af_tensor *af_softcap(af_graph *g, af_tensor *x, double cap); /* cap * tanh(x / cap) */
af_tensor *af_cast(af_graph *g, af_tensor *x, af_dtype t);

typedef enum af_matmul_kind {
    AF_MATMUL_NN = 0, /* a [.. M K] times b [.. K N] */
    AF_MATMUL_NT = 1, /* b is [.. N K]               */
    AF_MATMUL_TN = 2, /* a is [.. K M]               */
    AF_MATMUL_TT = 3,
} af_matmul_kind;
/* Leading axes are batches; b may have none (then it serves every batch). Accumulates in f32 (f64
 * for f64). */
af_tensor *af_matmul(af_graph *g, af_tensor *a, af_tensor *b, af_matmul_kind kind);

/* Axis i of the result is axis perm[i] of x. */
af_tensor *af_transpose(af_graph *g, af_tensor *x, const int *perm);
af_tensor *af_reshape(af_graph *g, af_tensor *x, int ndim, const int64_t *dim); /* no copy */
af_tensor *af_slice(af_graph *g, af_tensor *x, int axis, int64_t from, int64_t count);
af_tensor *af_concat(af_graph *g, af_tensor *const *x, int n, int axis);

/* Over one axis; keep = it stays with length 1. Negative axes count from the end. */
af_tensor *af_sum(af_graph *g, af_tensor *x, int axis, bool keep);
af_tensor *af_mean(af_graph *g, af_tensor *x, int axis, bool keep);
af_tensor *af_max(af_graph *g, af_tensor *x, int axis,
                  bool keep);                     /* gradient goes to the first maximum */
af_tensor *af_sum_all(af_graph *g, af_tensor *x); /* [1] */
af_tensor *af_mean_all(af_graph *g, af_tensor *x);

af_tensor *af_softmax(af_graph *g, af_tensor *x);     /* over the last axis */
af_tensor *af_log_softmax(af_graph *g, af_tensor *x); /* over the last axis */
af_tensor *af_layernorm(af_graph *g, af_tensor *x, af_tensor *w, af_tensor *b, double eps);
/* y = x / sqrt(mean(x^2) + eps) * w over the last axis; plus_one: times (1 + w). */
af_tensor *af_rmsnorm(af_graph *g, af_tensor *x, af_tensor *w, double eps, bool plus_one);
/* Row ids[i] of table [V][D]; ids i32 [N] -> [N][D] of type `out` (the table may have a block
 * type). */
af_tensor *af_embedding(af_graph *g, af_tensor *ids, af_tensor *table, af_dtype out);
/* The row `id` of the table behind an af_embedding gets no gradient from it, as `padding_idx` of
 * PyTorch has it. */
void af_embedding_frozen_row(af_graph *g, af_tensor *y, int64_t id);
/* Zero with probability p, the rest times 1/(1-p). The mask is a pure function of
 * (af_graph_set_seed, stream, step, element): recomputation sees the same one. Off (identity) in
 * graphs without af_graph_backward. */
af_tensor *af_dropout(af_graph *g, af_tensor *x, double p, uint64_t stream);
/* NEFTune (Jain et al. 2023): x [N][D] plus uniform noise in +- alpha / sqrt(L D), L = tokens of
 * the row's sequence (bounds i32 [S+1], as in af_attention; rows behind the last bound pass). The
 * gradient passes unchanged; off where dropout is off. */
af_tensor *af_neftune_noise(af_graph *g, af_tensor *x, af_tensor *bounds, double alpha,
                            uint64_t stream);

/* Losses: a scalar [1], the mean over elements (over rows that count, for cross-entropy). */
af_tensor *af_mse(af_graph *g, af_tensor *x, af_tensor *target);
af_tensor *af_l1(af_graph *g, af_tensor *x, af_tensor *target);
af_tensor *af_huber(af_graph *g, af_tensor *x, af_tensor *target, double delta);
af_tensor *af_bce_with_logits(af_graph *g, af_tensor *x, af_tensor *target);
/* x [N][V], labels i32 [N]; rows with label -100 do not count; smoothing in [0, 1). All rows
 * ignored gives 0. */
af_tensor *af_cross_entropy(af_graph *g, af_tensor *x, af_tensor *labels, double smoothing);
/* mean over rows of sum p (log p - logq): target p as probabilities, logq as log-probabilities,
 * [N][V]. */
af_tensor *af_kl(af_graph *g, af_tensor *logq, af_tensor *p);

/* Rounds to `bits` integers (per tensor: groups = 1 row; per row: group = -1; per `group` columns)
 * and back; the gradient passes straight through where the value was not clipped. */
af_tensor *af_fake_quant(af_graph *g, af_tensor *x, int bits, int64_t group, bool symmetric);

/* ---- fused ops for language models ------------------------------------------------- */

/* Rows are tokens: N = all tokens of the batch, sequences one after another. E head size, H heads,
 * K kv heads. */

/* *sum = x + residual, result = rmsnorm(*sum): one pass. */
af_tensor *af_rmsnorm_add(af_graph *g, af_tensor *x, af_tensor *residual, af_tensor *w, double eps,
                          bool plus_one, af_tensor **sum);

typedef struct af_rope_opts {
    int heads, kv_heads, head_dim;
    int rotary_dim;             /* 0 = head_dim; the rest of the head passes unchanged */
    double scale;               /* times cos and sin; 0 = 1 (yarn and longrope set it) */
    af_tensor *q_norm, *k_norm; /* RMS norm weights before the rotation, or NULL: [E], or whole rows
                                   [H*E], [K*E] */
    double norm_eps;
    bool norm_plus_one;
} af_rope_opts;
/* qkv [N][(H+2K)E], positions i32 [N], inv_freq f32 [rotary_dim/2] or NULL (norms only): halves are
 * rotated. */
af_tensor *af_rope(af_graph *g, af_tensor *qkv, af_tensor *positions, af_tensor *inv_freq,
                   const af_rope_opts *o);

typedef struct af_attention_opts {
    int heads, kv_heads, head_dim;
    double scale;   /* 0 = 1/sqrt(head_dim) */
    double softcap; /* 0 = none; scores become cap * tanh(score / cap) */
    int window;     /* 0 = none; a query at q sees keys k with q - window < k <= q */
    bool causal;
} af_attention_opts;
/* qkv [N][(H+2K)E]; bounds i32 [S+1]: sequence s is rows bounds[s] .. bounds[s+1], empty ones
 * allowed, bounds[S] <= N; rows behind the last bound give 0. -> [N][H*E]. No S x S matrix is ever
 * held. */
af_tensor *af_attention(af_graph *g, af_tensor *qkv, af_tensor *bounds, const af_attention_opts *o);
/* For generation: cache is a state [S][L][2*K*E] (keys, then values, of each position). Rows
 * bounds[s] .. bounds[s+1] of qkv are new tokens of sequence s at positions start[s] ...; they are
 * stored in the cache and attend to all of it up to themselves. start i32 [S]. No gradient. */
af_tensor *af_attention_cached(af_graph *g, af_tensor *qkv, af_tensor *cache, af_tensor *bounds,
                               af_tensor *start, const af_attention_opts *o);

typedef enum af_act { AF_ACT_SILU, AF_ACT_GELU_TANH, AF_ACT_GELU, AF_ACT_RELU } af_act;
/* gate_up [N][2F] -> act(gate) * up [N][F]; the gate is the first half of the columns. */
af_tensor *af_glu(af_graph *g, af_tensor *gate_up, af_act act);

/* One low-rank pair inside a fused projection: output rows [out_from, out_from+out_rows) get
 * scale * B (A x), with A = rows [rank_from, rank_from+rank) of `a`, B = the next out_rows x rank
 * values of `b`. */
typedef struct af_adapter_part {
    int64_t out_from, out_rows;
    int rank_from, rank;
    float scale;
} af_adapter_part;

enum { AF_LINEAR_PIECES = 3, AF_ADAPTER_PARTS = 4 };

typedef struct af_linear_opts {
    af_tensor
        *weight[AF_LINEAR_PIECES]; /* [O_i][I], any type, stacked along rows; none = adapter only */
    af_tensor *bias[AF_LINEAR_PIECES]; /* [O_i] or NULL */
    int pieces;
    af_tensor *a, *b; /* params (or weights): a [R][I]; b flat [sum of out_rows*rank], parts one
                         after another */
    af_adapter_part part[AF_ADAPTER_PARTS];
    int parts;
    int64_t out; /* output columns; 0 = the sum of the weights' rows */
    bool few;    /* generation: a handful of live rows may be summed in another order than many */
} af_linear_opts;
/* y [N][O] = x [N][I] W^T + bias + adapter; computed in x's type with f32 accumulation. */
af_tensor *af_linear(af_graph *g, af_tensor *x, const af_linear_opts *o);

typedef struct af_head_opts {
    af_tensor *scale;   /* f32 [1]: the loss is scale * sum (the loop writes 1 / supervised tokens);
                           NULL = 1 */
    double softcap;     /* on the logits; 0 = none */
    double logit_scale; /* logits times this; 0 = 1 */
    double smoothing;
    int64_t chunk_rows; /* rows of logits held at once; 0 = a good number */
    af_tensor **rows;   /* when set: f32 [N][2] with each row's loss and 1 if its label was the arg
                           max (else 0) */
} af_head_opts;
/* h [N][D], weight [V][D], labels i32 [N] (-100 = no loss; already shifted: label i is what row i
 * must predict)
 * -> loss f32 [1]. Logits are never held whole; with af_graph_backward the gradient is made in the
 * same pass. */
af_tensor *af_head_loss(af_graph *g, af_tensor *h, af_tensor *weight, af_tensor *labels,
                        const af_head_opts *o);

/* Row norms (L2) of W + adapter delta, f32 [O]; constant for the gradient. DoRA's denominator. */
af_tensor *af_dora_norm(af_graph *g, const af_linear_opts *o);

/* Mixture of experts. logits [N][X] -> top-k weights f32 [N][k] (softmax over all experts,
 * renormalised over the k when `norm`) and *index i32 [N][k]. */
af_tensor *af_moe_route(af_graph *g, af_tensor *logits, int k, bool norm, af_tensor **index);
/* y[n] = sum_j weight[n][j] * down[e](act(gate[e] x) * (up[e] x)), e = index[n][j].
 * gate_up [X][2F][D], down [X][D][F]. */
af_tensor *af_moe_ffn(af_graph *g, af_tensor *x, af_tensor *weights, af_tensor *index,
                      af_tensor *gate_up, af_tensor *down, af_act act);

/* ---- gradients, optimizers --------------------------------------------------------- */

/* Records the gradient of a scalar with respect to every parameter it depends on. Once per graph.
 */
void af_graph_backward(af_graph *g, af_tensor *loss);

typedef enum af_optimizer_kind {
    AF_OPTIMIZER_SGD,
    AF_OPTIMIZER_ADAM, /* weight decay is added to the gradient */
    AF_OPTIMIZER_ADAMW,
    AF_OPTIMIZER_ADAMW_8BIT, /* moments in 8 bits, blocks of 256, as bitsandbytes; small tensors in
                                f32 */
    AF_OPTIMIZER_LION,
    AF_OPTIMIZER_ADAFACTOR,
} af_optimizer_kind;

typedef struct af_optimizer_opts {
    af_optimizer_kind kind;
    double beta1, beta2, eps; /* 0 = the usual ones of the kind */
    double momentum;          /* sgd */
    bool nesterov;
    double weight_decay;
    double max_grad_norm; /* 0 = no clipping */
} af_optimizer_opts;
/* Records: global norm of all gradients -> clip factor -> update of all parameters; gradients end
 * as zeros. */
void af_graph_optimizer(af_graph *g, const af_optimizer_opts *o);
/* For one parameter, before af_graph_optimizer: learning rate times `lr_factor`, weight decay on or
 * off.
 */
void af_tensor_set_group(af_tensor *param, double lr_factor, bool decay);

/* Host-side numbers of the next run; they are values in device memory, not part of the recorded
 * graph. */
void af_graph_set_learning_rate(af_graph *g, double lr);
void af_graph_set_step(
    af_graph *g, int64_t step); /* of the next update, from 1; af_graph_run counts on by itself */
void af_graph_set_seed(af_graph *g, uint64_t seed);
/* Off: dropout passes everything (evaluation in a training graph). On at first. */
void af_graph_set_training(af_graph *g, bool on);
/* Micro-batches run so far: the dropout clock. A resumed run sets it to where it was. */
uint64_t af_graph_clock(const af_graph *g);
void af_graph_set_clock(af_graph *g, uint64_t count);

/* ---- plan, prepare, run ------------------------------------------------------------ */

typedef enum af_recompute {
    AF_RECOMPUTE_NONE,    /* keep everything the backward needs             */
    AF_RECOMPUTE_CHEAP,   /* drop what a cheap kernel rebuilds              */
    AF_RECOMPUTE_WIDE,    /* drop gate|up too                               */
    AF_RECOMPUTE_BLOCK,   /* keep block inputs only                         */
    AF_RECOMPUTE_OFFLOAD, /* and keep those in pinned host memory (a GPU's; the CPU: as BLOCK) */
} af_recompute;
const char *af_recompute_name(af_recompute mode); /* "none", "cheap", "wide", "block", "offload" */
/* Nodes recorded from now on belong to block `index` (-1: none); recompute works block by block. */
void af_graph_set_block(af_graph *g, int index);
/* Blocks [0, blocks) use `mode`, those behind them NONE, or `mode` of the second call: what the
 * first blocks keep is held longest. Before prepare. */
void af_graph_set_recompute(af_graph *g, af_recompute mode, int blocks);
void af_graph_set_recompute_rest(af_graph *g, af_recompute mode);
/* Every update follows exactly one gradient run: the first contribution to a gradient is written
 * instead of added, and gradients may lie where activations lay that are no longer needed. Devices
 * that cannot do so go on adding. Before prepare. */
void af_graph_set_one_pass(af_graph *g);
/* The token dimension: inputs whose first axis is `rows` long may be run with fewer live rows
 * (af_graph_set_live_rows); ops then skip the rest. Call before recording. */
void af_graph_set_rows(af_graph *g, int64_t rows);
void af_graph_set_live_rows(af_graph *g, int64_t rows);

typedef struct af_plan_info {
    uint64_t inputs, weights, params, grads, state, activations, workspace, total; /* bytes */
    uint64_t bound;    /* weights in memory the caller gave (not in total) */
    uint64_t returned; /* of those, in a mapped file: not resident once the CPU has packed them */
    uint64_t host;     /* pinned host memory for offloaded values (not in total) */
    double flops;      /* of one AF_RUN_STEP */
    double effort; /* each op's FLOPs, or 150 (a CPU: 5) for each byte it moves where that is more:
                   an estimate by which the times of two plans of one model compare */
    int nodes, tensors;
} af_plan_info;
/* Autodiff is done; lifetimes become offsets. Allocates nothing. May be called before prepare to
 * look. */
AF_CHECKED af_status af_graph_plan(af_graph *g, af_device *d, af_plan_info *info, af_error *err);
/* Plans if that was not done, allocates, chooses and builds every kernel. AF_ENOMEM carries the
 * plan's numbers. */
AF_CHECKED af_status af_graph_prepare(af_graph *g, af_device *d, af_error *err);

enum {
    AF_RUN_FORWARD = 1,
    AF_RUN_BACKWARD = 2,
    AF_RUN_UPDATE = 4,
    AF_RUN_GRAD = AF_RUN_FORWARD | AF_RUN_BACKWARD, /* one micro-batch: gradients add up */
    AF_RUN_STEP = AF_RUN_GRAD | AF_RUN_UPDATE,
};
AF_CHECKED af_status af_graph_run(af_graph *g, int what, af_error *err);

/* Whole tensors, packed rows. Weights and params may be written at any time after prepare. */
AF_CHECKED af_status af_tensor_write(af_graph *g, af_tensor *t, const void *data, uint64_t bytes,
                                     af_error *err);
AF_CHECKED af_status af_tensor_read(af_graph *g, const af_tensor *t, void *data, uint64_t bytes,
                                    af_error *err);
/* The same without waiting for the device: `data`, which must stay, has the values after the next
 * af_tensor_read or af_graph_grad_norm. For the few numbers a loop wants from every run. */
AF_CHECKED af_status af_tensor_read_later(af_graph *g, const af_tensor *t, void *data,
                                          uint64_t bytes, af_error *err);
/* CPU only, before prepare: the weight's values are read where they lie (a mapped file). */
void af_tensor_bind(af_tensor *t, const void *data);
/* The same for a read-only or shared map of a file: where the device keeps the weight in another
 * form, its pages are dropped; they come back from the file when they are read. */
void af_tensor_bind_file(af_tensor *t, const void *data);

/* After AF_RUN_UPDATE: the global gradient norm before clipping, and whether it was finite. */
AF_CHECKED af_status af_graph_grad_norm(af_graph *g, double *norm, bool *finite, af_error *err);

#ifdef __cplusplus
}
#endif
#endif
