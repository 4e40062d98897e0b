/* node.h - the graph's own structures: tensors, nodes, the graph. Internal; the public face is
 * afinar/graph.h. */
#ifndef AF_NODE_H
#define AF_NODE_H

#include "base/arena.h"
#include "graph/graph_access.h"
#include "graph/op.h"

enum { AF_NDIM_MAX = 4, AF_NODE_IN_MAX = 16, AF_NODE_OUT_MAX = 6 };

/* What the values of an i32 input must be; checked when it is written. */
typedef enum af_value_rule {
    AF_VALUE_ANY,
    AF_VALUE_ROWS,   /* from 0 up to below limit */
    AF_VALUE_LABELS, /* the same, or -100 */
    AF_VALUE_BOUNDS, /* from 0 up to limit, never falling */
} af_value_rule;

struct af_tensor {
    const char *name; /* "" when it has none */
    af_graph *graph;
    int64_t dim[AF_NDIM_MAX];
    int ndim;
    af_dtype dtype;
    af_role role;
    int id;
    int64_t ld; /* elements from one row to the next: the last dim unless a backend pads rows */
    const int64_t *live; /* when set: how much of axis 0 is in use now (the graph's live rows) */
    af_node *producer;   /* NULL for leaves */
    /* a view of base's memory, base_offset bytes in; base is never a view itself */
    af_tensor *base;
    uint64_t base_offset;
    af_quant *quant;       /* nf4 and fp4 weights */
    bool needs_grad, keep; /* keep: readable after a run */
    af_value_rule values;
    int64_t limit;
    af_tensor *grad;
    af_tensor *own_grad; /* params of split gradients: this rank's piece, or NULL */
    int64_t flat;        /* params: their first element in the flat buffer of all */
    /* weights and params that ranks split: [ranks + 1] bytes where the pieces begin; its memory is
     * this rank's piece. NULL = whole */
    const int64_t *cut;
    double lr_factor; /* params */
    bool decay;
    bool whole_moments;       /* params: f32 moments in 8-bit Adam too */
    const int64_t (*rows)[2]; /* params: the rows that are trained; NULL = all */
    int rows_count;
    bool outside;             /* params: AdamW for it where others get muon */
    int64_t moment_block;     /* params: neighbours that share a second moment of ADAM_MINI */
    const int64_t (*part)[2]; /* params that are several matrices: see af_param_parts */
    int parts;
    /* the plan; positions count nodes in execution order */
    uint64_t offset; /* inside the arena of its role */
    int first, last; /* positions of first write and last use, -1 = none */
    int hold_until;  /* set by a backend: its memory is not reused before this position */
    int fill_from; /* set by a backend: no node makes it, the backend does, from here on; 0 = no */
    const void *bound; /* memory of the caller that holds the values (af_tensor_bind), or NULL */
    bool mapped;       /* `bound` is the map of a file: pages that are dropped come back from it */
    /* the backend */
    void *data;    /* where the value lies: a host pointer, or a device address */
    void *backend; /* what else it stores */
};

/* CARRY: between micro-batches, node by node (carry.c); no AF_RUN_* selects it. */
typedef enum af_phase {
    AF_PHASE_FORWARD,
    AF_PHASE_BACKWARD,
    AF_PHASE_CARRY,
    AF_PHASE_UPDATE
} af_phase;

/* Partial sums of gradients, as the digits of a binary counter: see af_graph_set_carry. */
enum { AF_CARRY_MAX = 24 };
typedef struct af_carry {
    int levels;
    int64_t chain;                                    /* micro-batches of a block; 0, 1 = one */
    af_tensor *sum[AF_CARRY_MAX];                     /* like grads_flat */
    af_node *merge[AF_CARRY_MAX], *put[AF_CARRY_MAX]; /* grads += sum; sum = grads */
    af_tensor *line;                                  /* like sum: of a block that has begun */
    af_node *begin, *add, *end; /* line = grads; line += grads; grads += line */
    af_node *clear;             /* of the gradients */
    af_node *reduce; /* split gradients that several micro-batches are added into: over ranks */
} af_carry;

struct af_node {
    af_op op;
    int n_in, n_out;
    af_tensor *in[AF_NODE_IN_MAX], *out[AF_NODE_OUT_MAX];
    af_attr attr;
    af_phase phase;
    int block;                  /* recompute group, -1 = none */
    int at;                     /* position in the order */
    bool accumulate;            /* adds to output accum_out-1 instead of writing it */
    bool first;                 /* ACCUM: writes, as the first one of the only pass */
    bool recomputed;            /* a copy made by the recompute transform */
    uint64_t work, work_offset; /* bytes of the activations' arena it needs while it runs */
    void *exec;                 /* the backend's prepared launch */
};

/* What this graph updates, of several that share the work: shard.c. */
typedef struct af_shard {
    int rank, ranks; /* 0 and 1 for a graph that is alone */
    af_sharding split;
    bool pass;    /* gradients are activations, summed over the ranks in the backward pass */
    int64_t *cut; /* [ranks + 1] */
    af_state_part *first, *last;
} af_shard;

struct af_graph {
    /* what was recorded */
    af_arena mem;
    af_error err; /* latched: the first recording error */
    af_tensor **tensors;
    int n_tensors, cap_tensors;
    af_node **nodes; /* in execution order */
    int n_nodes, cap_nodes;
    af_phase phase; /* of nodes recorded now, as block is */
    int block;
    af_tensor *loss;
    /* one flat buffer each, same layout: every param, and its gradient */
    af_tensor *params_flat, *grads_flat;
    /* what this graph sums up and updates with, and the flat element it begins with: all of
     * grads_flat, or of split gradients this rank's. Of split params, params_flat is this rank's */
    af_tensor *grads_own;
    int64_t grads_from, params_from;
    af_exchange exchange;
    int rank, ranks; /* see af_graph_set_ranks; 0 = the caller sums */
    bool sums_early; /* whole gradients are summed in the backward pass, the only one of a step */
    af_carry carry;
    af_shard shard;
    af_tensor *hyper; /* f32 [AF_HYPER_COUNT], written before an update */
    af_tensor *stats; /* f32 [4], output of GRAD_NORM */
    /* i32 [4]: seed low, high; micro-batch number low, high; top bit = dropout off */
    af_tensor *clock;
    bool differentiated, optimized, planned, prepared;
    af_tensor none; /* returned once recording has failed: what is written there is not read */
    af_node spare;  /* likewise */
    /* how to run it */
    af_recompute recompute, recompute_rest; /* of the first `recompute_blocks`, of the others */
    int recompute_blocks;
    int rebuilt_from;                 /* see af_graph_set_rebuilt; 0 = none */
    bool one_pass;                    /* see af_graph_set_one_pass */
    bool same_bits;                   /* see af_graph_set_same_bits */
    const struct af_graph_test *test; /* graph_test.h; NULL in production */
    /* numbers of the next run */
    int64_t rows, live_rows;   /* 0 = no token dimension */
    int64_t picks, live_picks; /* see af_graph_picks */
    bool one_token;            /* see af_graph_set_one_token, */
    int64_t least_rows;        /* and its second argument */
    bool round_activations;    /* see af_graph_set_round_activations */
    double learning_rate;
    int64_t step;
    uint64_t seed, clock_count;
    bool evaluating;
    double beta1, beta2; /* of the bias correction; 0: there is none */
    /* what else depends on the number of the step alone; NULL = nothing */
    void (*step_numbers)(const af_graph *g, double t, float *hyper);
    af_optimizer_opts optimizer;
    bool renews;          /* GALORE: projections change in this update */
    af_tensor *free_sums; /* the state of FREE_WEIGHT, or NULL */
    float *taken;         /* parameters, while their average is in their place; else NULL */
    /* the plan: bytes */
    uint64_t role_bytes[AF_ROLE_COUNT], work_bytes, bound_bytes, host_bytes;
    uint64_t shared_bytes;   /* of work_bytes: in a buffer that all graphs of the device share */
    uint64_t returned_bytes; /* of bound_bytes: pages of files that do not stay resident */
    bool grads_in_arena;     /* grads_flat is the beginning of the activations' arena */
    double flops, effort;
    double flop_per_byte; /* what the device does while it moves a byte in its memory, */
    double flop_per_move; /* and to the host or back; 0 = it does not move values there */
    uint64_t move_most;   /* bytes that may wait there; inputs of blocks do in any case */
    af_device *device;
    void *backend; /* the backend's state of this graph */
};

enum {
    AF_HYPER_LR,
    AF_HYPER_CORRECTION1,      /* 1 - beta1^t       */
    AF_HYPER_CORRECTION2_SQRT, /* sqrt(1 - beta2^t) */
    AF_HYPER_STEP,
    AF_HYPER_A, /* two numbers of the step that only this optimizer has: step_numbers.c */
    AF_HYPER_B,
    AF_HYPER_COUNT = 8
};

/* ---- for op builders ---- */

/* A new node at the end of the order. Optional inputs an op leaves out are simply not in the list.
 */
af_node *af_node_new(af_graph *g, af_op op, af_tensor *const *in, int n_in);
/* Its next output: an activation. When `dim[0]` is the token dimension of an input, the output
 * follows the live rows. */
af_tensor *af_node_output(af_graph *g, af_node *n, af_dtype t, int ndim, const int64_t *dim);
/* An output shaped like x. */
af_tensor *af_node_output_like(af_graph *g, af_node *n, const af_tensor *x);
/* An output that is a view of in[0]'s memory. */
af_tensor *af_node_view(af_graph *g, af_node *n, int ndim, const int64_t *dim);
/* Latches a usage error (the first one wins) and returns a harmless handle to continue with. */
AF_PRINTF(2, 3) af_tensor *af_graph_bad(af_graph *g, const char *fmt, ...);
/* True when recording has failed already: builders then return af_graph_dummy at once. */
static inline bool af_graph_failed(const af_graph *g) { return !g || g->err.code != AF_OK; }
af_tensor *af_graph_dummy(af_graph *g);
/* The same, and fails when one of the handles is NULL or of another graph. */
bool af_graph_refuses(af_graph *g, const char *op, af_tensor *const *in, int n);
/* The same for the options of an op, which must not be NULL. */
bool af_graph_refuses_opts(af_graph *g, const char *op, const void *o);
/* What an op requires of an input's values; of two, the narrower limit counts. */
void af_expect(af_tensor *t, af_value_rule values, int64_t limit);
/* A leaf of any role. */
af_tensor *af_leaf(af_graph *g, af_role role, const char *name, af_dtype t, int ndim,
                   const int64_t *dim);

/* dt is a contribution to the gradient of t: kept, added, or accumulated into a param's gradient.
 * No-op when t needs none (builders may ask t->needs_grad first to save work). */
/* The type of a parameter's gradient: its own, or f32 for bf16. */
af_dtype af_grad_type(const af_tensor *param);
void af_grad_add(af_graph *g, af_tensor *t, af_tensor *dt);

/* ---- shapes ---- */
int64_t af_count(const af_tensor *t); /* elements */
static inline int64_t af_last(const af_tensor *t) { return t->dim[t->ndim - 1]; }
static inline int64_t af_rows(const af_tensor *t)
{
    return af_last(t) ? af_count(t) / af_last(t) : 0;
}
/* Rows in use in this run: kernels loop over these. (Rows = all axes but the last; for 1-d tensors:
 * elements.) */
static inline int64_t af_live(const af_tensor *t)
{
    if (t->ndim == 1)
        return t->live ? *t->live : t->dim[0];
    return t->live ? (t->dim[0] ? af_rows(t) / t->dim[0] * *t->live : 0) : af_rows(t);
}
bool af_same_shape(const af_tensor *a, const af_tensor *b);
/* The only node that reads t or views of it; NULL: there is none, or another. */
af_node *af_only_reader(const af_graph *g, const af_tensor *t);
/* "[3 x 4] f32" into a caller's buffer, for messages. */
const char *af_shape_text(const af_tensor *t, char *buf, size_t size);
/* Bytes in memory, with the row stride ld; of a split leaf, of its piece. */
uint64_t af_tensor_extent(const af_tensor *t);
/* Does n read or write memory of t? Views of one base meet where their bytes do. */
bool af_node_touches(const af_node *n, const af_tensor *t);

/* ---- shards ---- */
/* The cuts of a range [from, to) of the flat parameters, counted from its beginning; NULL when
 * memory is gone (latched). */
int64_t *af_shard_cuts_of(af_graph *g, int64_t from, int64_t to);
/* The norm of gradients is summed over pieces of so many elements, in their order, whatever the
 * number of ranks. */
enum { AF_NORM_PIECE = 1 << 14 };
/* Of split gradients: a piece in which a shard ends comes together on every rank (its cuts in
 * `cut`, counted from its beginning; false when there is none after `*piece`, at first -1), */
bool af_norm_next_shared(const af_graph *g, int64_t *piece, int64_t *cut);
/* and the sums of the pieces are gathered. */
void af_norm_piece_cuts(const af_graph *g, int64_t *cut);
void af_norm_exchanges(const af_graph *g, af_exchanged_fn *fn, void *user);
bool af_shard_new(af_graph *g); /* takes memory for the cuts */
/* The elements of a rank among [from, to); false when there are none. */
bool af_shard_clip(const af_graph *g, int rank, int64_t *from, int64_t *to);
/* The piece of a state that this graph has; NULL when it has none, or memory is gone (latched). */
af_tensor *af_state_part_new(af_graph *g, const af_state_part *like);

/* Nodes of the update that begin or end it, see af_graph_set_ranks. */
void af_graph_sum_whole(af_graph *g);
void af_graph_join_params(af_graph *g);

/* Records the sums of af_graph_set_carry, when the flat gradients exist. */
void af_carry_leaves(af_graph *g, af_dtype t, int64_t count);
void af_carry_nodes(af_graph *g);

/* ---- transforms and plan, in the order prepare runs them ---- */
void af_graph_fuse_accumulate(af_graph *g);
void af_graph_write_first(af_graph *g); /* one pass: the first one of a gradient does not add */
/* Split gradients: each after the last node that adds, and zero before the first one unless that
 * writes. Whole ones, where sums_early: some at a time, after the last node that adds to them. */
void af_graph_sum_ranks(af_graph *g);
void af_graph_drop_dead(af_graph *g);
void af_graph_apply_recompute(af_graph *g);
/* The mode of the block that n is in. */
af_recompute af_graph_recompute_of(const af_graph *g, const af_node *n);
/* By tensor id: values that need not be recomputed, because they wait in host memory. */
void af_graph_choose_moved(const af_graph *g, const bool *crosses, const bool *used_backward,
                           bool *moved);
/* The time of a node, in FLOP of large GEMMs. */
double af_node_effort(const af_node *n, double flop_per_byte);
void af_graph_gather_weights(af_graph *g); /* split weights: before the nodes that read them */
/* The order is final: gathered scales live as long as the nodes that read their codes. */
void af_graph_hold_scales(af_graph *g);
/* The split weight that t was gathered from, else t. */
const af_tensor *af_gathered_from(const af_tensor *t);
/* `order` (malloc'ed, `cap` long) becomes the graph's list of nodes. */
void af_graph_take_order(af_graph *g, af_node **order, int n, int cap);
AF_CHECKED af_status af_graph_layout(af_graph *g, af_error *err); /* lifetimes -> offsets */
uint64_t af_graph_bytes(const af_graph *g);                       /* of all arenas, once laid out */
#endif
