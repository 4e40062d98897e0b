/* op.h - the ops (listed in ops.def), their attributes, and what the registry knows about each. */
#ifndef AF_OP_H
#define AF_OP_H

#include "afinar/graph.h"
#include "base/base.h"

typedef struct af_node af_node;

typedef enum af_op {
#define AF_OP_DEF(NAME, name) AF_OP_##NAME,
#include "graph/ops.def"
    AF_OP_COUNT
} af_op;

typedef enum af_binary_kind {
    AF_BINARY_ADD,
    AF_BINARY_SUB,
    AF_BINARY_MUL,
    AF_BINARY_DIV
} af_binary_kind;

typedef enum af_unary_kind {
    AF_UNARY_SCALE, /* by attr.unary.value */
    AF_UNARY_NEG,
    AF_UNARY_EXP,
    AF_UNARY_LOG,
    AF_UNARY_SQRT,
    AF_UNARY_TANH,
    AF_UNARY_SIGMOID,
    AF_UNARY_RELU,
    AF_UNARY_GELU,
    AF_UNARY_GELU_TANH,
    AF_UNARY_SILU,
    AF_UNARY_SOFTCAP, /* attr.unary.value */
    AF_UNARY_CLIP,    /* attr.unary.value */
} af_unary_kind;

typedef enum af_reduce_kind { AF_REDUCE_SUM, AF_REDUCE_MEAN, AF_REDUCE_MAX } af_reduce_kind;

typedef enum af_loss_kind {
    AF_LOSS_MSE,
    AF_LOSS_L1,
    AF_LOSS_HUBER,
    AF_LOSS_BCE,
    AF_LOSS_CE,
    AF_LOSS_KL,
} af_loss_kind;

/* Small, copied with the node. Tensors an op reads are inputs, never attributes. */
typedef union af_attr {
    struct {
        int64_t frozen; /* 1 + the row without gradient; 0 = none */
    } embedding;
    struct {
        af_binary_kind kind;
    } binary;
    struct {
        af_unary_kind kind;
        double value;
    } unary;
    struct {
        double value;
    } fill;
    struct {
        af_matmul_kind kind;
    } matmul;
    struct {
        int perm[4];
    } transpose;
    struct {
        int axis;
        int64_t from, count;
    } slice;
    struct {
        af_reduce_kind kind;
        int axis;
    } reduce;
    struct {
        bool log;
    } softmax;
    struct {
        double eps;
        bool plus_one;
        bool gate_first; /* GATED_NORM: the gate is multiplied before the norm */
        bool joins;      /* RMSNORM_ADD: the projection may add: ops/norm/norm_residual.h */
    } norm;
    struct {
        bool silu, bias;
    } conv;
    struct {
        int heads, key_heads, key_dim, head_dim;
        bool delta, skip;
    } scan;
    struct {
        double p;
        uint64_t stream;
    } dropout;
    struct {
        double alpha;
        uint64_t stream;
    } noise;
    struct {
        af_loss_kind kind;
        double value; /* huber's delta, cross-entropy's smoothing */
    } loss;
    struct {
        int bits;
        int64_t group;
        bool symmetric;
    } fake_quant;
    struct {
        int type; /* af_qat_type */
    } fake_float;
    struct {
        int heads, kv_heads, head_dim, rotary_dim;
        double scale, eps;
        bool plus_one, rotate, norm, norm_whole; /* which optional inputs it has */
        bool pairs;
        double query_beta; /* 0 = queries are not scaled by position */
        int64_t query_length;
        int query_from;
    } rope;
    struct {
        int64_t chunk;
    } cut;
    struct {
        int heads, kv_heads, head_dim, window, chunk;
        double scale, softcap;
        bool causal, paged; /* paged: it has the input */
    } attention;
    struct {
        af_act act;
        double limit; /* above 0: the clamped unit instead */
    } glu;
    struct {
        int pieces, biases; /* biases: bit i is set when piece i has one */
        int piece;          /* which one a DW or DBIAS node serves */
        int parts;          /* 0 = no adapter */
        int64_t out;
        /* first output column of each piece; [pieces] = their end */
        int64_t piece_from[AF_LINEAR_PIECES + 1];
        af_adapter_part part[AF_ADAPTER_PARTS];
        bool few_rows;
        bool fp8;  /* operands count as e4m3: ops/linear/fp8_linear.h */
        bool adds; /* the last input is added to the result: ops/norm/norm_residual.h */
    } linear;
    struct {
        int last;    /* power of the series */
        bool exact;  /* the transform itself, not its series */
        bool turned; /* OFT_ROTATE by the transposed blocks */
    } oft;
    struct {
        double softcap, logit_scale, smoothing;
        int64_t chunk_rows;
        bool scaled, dh, dw; /* has the scale input; makes dh; makes dw */
        bool stats;          /* rows has AF_HEAD_STATS columns */
        bool weights;        /* has the input of row weights, */
        bool weighs;         /* and the gradients it makes are by them */
    } head;
    struct {
        int k, groups, groups_used, group_best;
        af_route_score score;
        bool norm, bias; /* bias: has the input */
        double eps, scale;
    } route;
    struct {
        int k;
        float alpha, scale;        /* of the product; of the adapter */
        bool by_token, bias, lora; /* x is [N][I]; which optional inputs it has */
        bool half;                 /* the product is half of an adapter's */
        bool glu;                  /* MOE_LINEAR has GLU's result as its second output */
        af_act act;                /* of that, and of MOE_GLU_BWD */
        bool plus;                 /* MOE_COMBINE adds its last input */
        int real;                  /* MOE_REAL: experts that have weights */
    } moe;
    struct {
        af_optimizer_kind kind;
        double beta1, beta2, eps, momentum, weight_decay, lr_factor;
        double max_norm;              /* GRAD_NORM */
        double slow_beta, slow_share; /* ADEMAMIX */
        bool nesterov;
        bool bf16;            /* MUON on a GPU iterates in bf16 */
        af_rounding rounding; /* of bf16 parameters */
        uint64_t seed;        /* of stochastic rounding */
        int64_t from;         /* first element in the flat buffer of all ranks */
        int64_t rank;         /* APOLLO, GALORE: of their projections */
        int64_t number;       /* APOLLO, GALORE: which matrix of the model, for random numbers */
        double scale;         /* GALORE: multiplies the update; APOLLO: its root does */
        bool per_tensor, scale_front;
        af_projection projection; /* GALORE */
    } optim;
    struct {
        int rank, ranks;    /* this one, of how many */
        const int64_t *cut; /* [ranks + 1]: the elements of each rank; lives as long as the graph */
    } ranks;
} af_attr;

typedef struct af_op_info {
    const char *name;
    /* Emits nodes that add to the gradients of the node's inputs (af_grad_add). dout[i] is NULL
     * where no gradient reached output i. NULL = no gradient passes. */
    void (*grad)(af_graph *g, af_node *n, af_tensor *const *dout);
    /* NULL = one pass over inputs and outputs, no FLOPs worth counting. */
    double (*flops)(const af_node *n);
    int8_t inplace;   /* 1 + the input whose memory output 0 may take over; 0 = none */
    int8_t accum_out; /* 1 + the output that can be added to instead of written (node->accumulate);
                         0 = none */
    bool effect;      /* changes an input in place: never dead */
    bool view;        /* output 0 is input 0's memory: no kernel runs */
    bool cheap;       /* memory-bound: recompute mode CHEAP rebuilds its outputs */
    bool costly;      /* more work than its outputs are worth memory: mode MOST keeps them */
    bool wide; /* a projection: mode WIDE rebuilds its output when it is wider than its input */
} af_op_info;

/* Defined in src/ops/registry.c, indexed by af_op, every entry set. */
extern const af_op_info *const af_ops[AF_OP_COUNT];
#endif
