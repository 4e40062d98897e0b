/* graph_access.h - what model, train and bench may know of a graph beyond afinar/graph.h.
 *
 * Internal, and in place of graph/node.h: callers see no field of a tensor, a node or a graph.
 * Getters never fail; what a graph cannot do is latched in it, as with the public recording calls,
 * and af_graph_status, plan and run report it. Returned tensors belong to their graph. */
#ifndef AF_GRAPH_ACCESS_H
#define AF_GRAPH_ACCESS_H

#include "afinar/graph.h"
#include "base/base.h"

typedef enum af_role {
    AF_ROLE_INPUT,
    AF_ROLE_WEIGHT,
    AF_ROLE_PARAM,
    AF_ROLE_GRADIENT, /* the accumulated gradient of a param */
    AF_ROLE_STATE,
    AF_ROLE_ACTIVATION,
    AF_ROLE_COUNT
} af_role;

/* ---- tensors (dtype, name, count, bytes: afinar/graph.h) ---- */

/* The block that nodes are recorded for (af_graph_set_block). */
int af_graph_block(const af_graph *g);
af_role af_tensor_role(const af_tensor *t);
const int64_t *af_tensor_dims(const af_tensor *t); /* af_tensor_ndim of them */
int64_t af_tensor_last_dim(const af_tensor *t);
/* Elements in use by the next run: all of them, or those of the live rows (af_graph_set_live_rows).
 */
int64_t af_tensor_live_count(const af_tensor *t);
/* An input i32 [rows] that numbers rows of the batch (af_embedding takes those out), with a live
 * number of its own; once per graph, rows not those of af_graph_set_rows. */
af_tensor *af_graph_picks(af_graph *g, const char *name, int64_t rows);
/* The picks of the next runs, at most as many as live rows. */
void af_graph_set_live_picks(af_graph *g, int64_t rows);
/* Whether every sequence has one row at most in the next runs of a graph with caches (at first:
 * no). Such rows, and picked ones, are summed in an order of their own, whatever their number, so
 * that a row's bits are the same in every batch of its kind. On a GPU, where kernels are chosen for
 * a number of rows, that holds among batches of up to `least` rows. */
void af_graph_set_one_token(af_graph *g, bool on, int64_t least);
/* Whether rows that are summed that way may be rounded to 8 bits for weights of blocks, where the
 * CPU then multiplies bytes (at first: no). */
void af_graph_set_round_activations(af_graph *g, bool on);
/* af_tensor_read of the live rows only; `data` holds all of them, packed. */
AF_CHECKED af_status af_tensor_read_live(af_graph *g, const af_tensor *t, void *data,
                                         af_error *err);
/* Of rows from, from + 1, ..., from + count - 1 of a matrix. */
AF_CHECKED af_status af_tensor_read_rows(af_graph *g, const af_tensor *t, int64_t from,
                                         int64_t count, void *data, af_error *err);
/* True after prepare for a tensor with memory of its own: no view, and something uses it. */
bool af_tensor_is_stored(const af_tensor *t);
/* Where the values lie in memory of this process: packed rows, readable and (unless the tensor is
 * bound) writable until the graph is released. NULL on a GPU, before prepare, and for tensors
 * without memory; af_tensor_read and af_tensor_write work on every device. Packed copies of a
 * weight do not notice what is written here: write weights so only between prepare and the first
 * run. */
void *af_tensor_host_view(const af_tensor *t);

/* The tensors of one role in the order they were recorded: the one after `after` (NULL: the first),
 * or NULL when there are no more.
 *     for (af_tensor *t = NULL; (t = af_graph_next(g, AF_ROLE_STATE, t));) */
af_tensor *af_graph_next(const af_graph *g, af_role role, const af_tensor *after);

/* ---- weights ---- */

/* The scales of a 4-bit weight (nf4, fp4), as bitsandbytes stores them next to the codes; or of
 * int8 rows (LLM.int8): no blocks, absmax f32 [rows], a value is code * absmax / 127. */
typedef struct af_quant {
    int block, nested_block; /* nested_block 0 = absmax is f32; both 0: int8 rows */
    af_tensor *absmax;       /* f32 [blocks], or u8 [blocks] with nested scales */
    af_tensor *nested;       /* f32 [ceil(blocks/nested_block)], or NULL */
    float offset;            /* added to the nested scales */
    af_dtype round;          /* dequantised values are rounded to this type (f32 = not at all) */
} af_quant;

/* Before plan: the weight's values are codes with these scales. The struct is copied; absmax and
 * nested are weights of the same graph. */
void af_weight_set_quant(af_tensor *w, const af_quant *q);
/* The graph's copy, or NULL for a weight that is not in 4 or 8 bits. `offset` may be set until the
 * first run: it is known only once the values are quantised. */
af_quant *af_weight_quant(const af_tensor *w);
/* True once af_tensor_bind or af_tensor_bind_file gave it memory of the caller. */
bool af_weight_is_bound(const af_tensor *w);
/* Before plan, for a weight of af_tensor_bind_file: false = its pages stay resident, because
 * someone else reads them too. */
void af_weight_set_mapped(af_tensor *w, bool mapped);

/* ---- filling weights on the device, after prepare and before the first run ---- */

/* True where the device quantises rows to nf4 itself. */
bool af_graph_can_write_nf4(const af_graph *g);
/* Quantises bf16 rows to nf4 with nested scales into w (and its af_quant), or, where w is dense,
 * stores what they dequantise to. Values of activations are lost. */
AF_CHECKED af_status af_weight_write_nf4(af_graph *g, af_tensor *w, const uint16_t *rows,
                                         af_error *err);
typedef struct af_random_fill {
    uint64_t stream;     /* the same stream gives the same numbers */
    float scale, offset; /* scale * x + offset, x from the normal distribution */
    bool nf4;            /* quantised, as af_weight_write_nf4 does it */
} af_random_fill;
/* True where the device fills weights with random numbers itself. */
bool af_graph_can_write_noise(const af_graph *g);
AF_CHECKED af_status af_weight_write_noise(af_graph *g, af_tensor *w, const af_random_fill *n,
                                           af_error *err);

/* ---- graphs ---- */

/* Before plan: every memory mode (recompute, 4-bit weights) must give the same bits, so kernels
 * that only some modes could use are not chosen. Training sets it. */
void af_graph_set_same_bits(af_graph *g);
/* Before af_graph_optimizer: the gradients of 2^levels blocks of micro-batches are added as a
 * binary tree over the blocks, with one more buffer a level (af_plan_info.grads has them). */
void af_graph_set_carry(af_graph *g, int levels);
/* Likewise: a block is `count` micro-batches, each with gradients of its own, that are added one
 * after another; one more buffer. af_graph_carry then counts micro-batches, not blocks. */
void af_graph_set_chain(af_graph *g, int64_t count);
/* After the gradients of block number `block` of a step: adds the sums of the blocks it completes.
 * After the last block (2^levels - 1) the gradients are the step's; before, they are zero again. */
AF_CHECKED af_status af_graph_carry(af_graph *g, int64_t block, af_error *err);
/* Before af_graph_optimizer: nodes of the update sum the gradients over the ranks, and with
 * af_graph_set_shard bring the parameters together again; without it the caller does both. A GPU
 * sums during the backward pass, some gradients at a time, where that is the only one of a step
 * (af_graph_set_one_pass, no carry). */
void af_graph_set_ranks(af_graph *g, int rank, int ranks);
/* What the ranks of a run split, as DeepSpeed counts: each stage adds to those before. */
typedef enum af_sharding {
    AF_SHARD_NOTHING,
    AF_SHARD_STATE,
    AF_SHARD_GRADIENTS,
    AF_SHARD_WEIGHTS, /* frozen ones */
    AF_SHARD_PARAMS,
} af_sharding;
/* Before af_graph_optimizer: the graph updates a part of the parameters and has the state of that
 * part; `ranks` graphs together are one.
 *
 * GRADIENTS: a gradient lives until nodes have summed it over the ranks, each its piece; then
 * af_tensor_gradient has no values to read. In a graph of one pass (af_graph_set_one_pass,
 * before af_graph_optimizer) that is during the backward pass, else (several micro-batches are
 * added first) af_graph_carry does it.
 *
 * WEIGHTS: of a matrix, and of the scales of its codes, each graph has an equal piece (weights that
 * are bound stay whole); nodes gather it before the nodes that read it. af_tensor_write takes the
 * whole and keeps the piece; there is nothing to read and no host view. PARAMS: the same for
 * parameters, whose pieces are those of their gradients: nothing is left to bring together. */
void af_graph_set_shard(af_graph *g, int rank, int ranks, af_sharding split);
/* A message each way with one rank, both in the device's memory; one may be empty. */
typedef struct af_swap {
    int peer;
    const void *send;
    void *recv;
    uint64_t send_bytes, recv_bytes;
} af_swap;
/* How nodes reach the other ranks. cut[r] .. cut[r + 1] are the elements of rank r. `sum` and
 * `gather` are for nodes on the host, `swap` is for those of a GPU, which sum by themselves. */
typedef struct af_exchange {
    /* v's own piece becomes the sum over all ranks; the others are lost. */
    af_status (*sum)(void *user, float *v, const int64_t *cut, af_error *err);
    /* Every rank gets every piece of v, from its owner. */
    af_status (*gather)(void *user, void *v, uint64_t size, const int64_t *cut, af_error *err);
    /* Enqueues n messages as one, on a stream that may be capturing. */
    af_status (*swap)(void *user, const af_swap *s, int n, void *stream, af_error *err);
    void *user;
} af_exchange;
/* Before the first run of a graph with such nodes. The struct is copied. */
void af_graph_set_exchange(af_graph *g, const af_exchange *e);
/* Shows what the nodes of `what` (AF_RUN_*, or 0 for those of af_graph_carry) exchange, after plan:
 * for counting. */
typedef void af_exchanged_fn(void *user, const int64_t *cut, uint64_t size, bool gathers);
void af_graph_exchanges(const af_graph *g, int what, af_exchanged_fn *fn, void *user);
/* After plan, of a tensor that is split: [ranks + 1] bytes where the pieces begin and end, and this
 * graph's piece in memory of this process. NULL: it is whole; or, the second, on a GPU. */
const int64_t *af_tensor_cuts(const af_tensor *t);
void *af_tensor_piece_view(const af_tensor *t);
/* The bytes [from, to) of the whole that this graph has of it. */
void af_tensor_piece(const af_tensor *t, uint64_t *from, uint64_t *to);
/* After prepare: this graph's piece. */
AF_CHECKED af_status af_tensor_read_piece(af_graph *g, const af_tensor *t, void *data,
                                          af_error *err);
/* After prepare: `bytes` of the whole, `at` bytes in; what is not in the piece is left out. */
AF_CHECKED af_status af_tensor_write_part(af_graph *g, af_tensor *t, uint64_t at, const void *data,
                                          uint64_t bytes, af_error *err);
/* Whether runs train (af_graph_set_training). */
bool af_graph_is_training(const af_graph *g);
/* After it: [ranks + 1] elements of the flat parameters where the parts begin and end. */
const int64_t *af_graph_cuts(const af_graph *g);
/* One tensor of the optimizer's state as a single process has it. */
typedef struct af_state_part af_state_part;
struct af_state_part {
    const char *name;
    af_dtype dtype;
    int64_t full;           /* elements */
    int64_t from, to, unit; /* the flat parameters it belongs to; parameters per element */
    bool matrix;            /* one rank has all of it */
    af_tensor *t;           /* this graph's piece, or NULL */
    af_state_part *next;
};
const af_state_part *af_graph_states(const af_graph *g);
/* The elements of p that a rank has. */
void af_graph_state_piece(const af_graph *g, const af_state_part *p, int rank, int64_t *from,
                          int64_t *count);
/* Whether an optimizer is schedule-free, and that of a graph; and the parameters that gradients are
 * taken at while af_graph_average shows others, else NULL. */
static inline bool af_optimizer_averages(af_optimizer_kind k)
{
    return k == AF_OPTIMIZER_FREE_ADAMW || k == AF_OPTIMIZER_FREE_RADAM ||
           k == AF_OPTIMIZER_FREE_SGD;
}
bool af_graph_averages(const af_graph *g);
const float *af_graph_taken(const af_graph *g);
/* After af_graph_optimizer: all gradients (where they are split, what this rank keeps of them), and
 * all parameters, as one vector. */
af_tensor *af_graph_flat_gradients(const af_graph *g);
af_tensor *af_graph_flat_params(const af_graph *g);
/* After plan: the part of af_plan_info.workspace that all graphs of the device share. */
uint64_t af_graph_shared_bytes(const af_graph *g);

/* A node that has run, as af_graph_run_until shows it. */
typedef struct af_ran_node {
    const char *op; /* its name */
    int block;      /* af_graph_block, -1 = none */
    const af_tensor *const *in;
    int n_in;
    const af_tensor *out[4]; /* activations whose values are still there */
    int n_out;
    bool whole_pass; /* the device ran the whole pass first, so some outputs are overwritten */
} af_ran_node;
typedef bool af_ran_node_fn(void *user, const af_ran_node *n);
/* Runs the forward pass and shows every node to `stop` in execution order, until it answers true.
 * On the CPU each node is shown right after it ran and later ones do not run; a GPU runs the whole
 * pass first. The dropout clock advances as for one af_graph_run. *stopped: whether `stop` did. */
AF_CHECKED af_status af_graph_run_until(af_graph *g, af_ran_node_fn *stop, void *user,
                                        bool *stopped, af_error *err);

/* ---- devices ---- */

bool af_device_is_cpu(const af_device *d);
/* The time of a bf16 product [rows][in] x [out][in] over that of an FP8 one, by the device's cost
 * model; 0 = it has no FP8. A CPU emulates it: 1. */
double af_device_fp8_gain(const af_device *d, int64_t rows, int64_t out, int64_t in);
#endif
