/* op.h - the list of ops, their attributes, and what the registry knows about each. */
#ifndef AF_OP_H
#define AF_OP_H

#include "afinar/graph.h"
#include "base/base.h"

typedef struct af_node af_node;

typedef enum af_op {
    /* general */
    AF_OP_BINARY,         /* a, b -> y                 attr.binary */
    AF_OP_UNARY,          /* x -> y                    attr.unary  */
    AF_OP_UNARY_BWD,      /* x, y, dy -> dx            attr.unary  */
    AF_OP_CAST,           /* x -> y                                */
    AF_OP_FILL,           /* -> y                      attr.fill   */
    AF_OP_SUM_TO,         /* dy -> d: sums broadcast axes away     */
    AF_OP_ACCUM,          /* g (in place) += d                     */
    AF_OP_MATMUL,         /* a, b -> c                 attr.matmul */
    AF_OP_TRANSPOSE,      /* x -> y                    attr.transpose */
    AF_OP_RESHAPE,        /* x -> view                             */
    AF_OP_SLICE,          /* x -> y                    attr.slice  */
    AF_OP_SLICE_BWD,      /* dy -> dx (zeros elsewhere) attr.slice */
    AF_OP_CONCAT,         /* x... -> y                 attr.slice.axis */
    AF_OP_REDUCE,         /* x -> y                    attr.reduce */
    AF_OP_REDUCE_BWD,     /* x, y, dy -> dx            attr.reduce */
    AF_OP_SOFTMAX,        /* x -> y                    attr.softmax */
    AF_OP_SOFTMAX_BWD,    /* y, dy -> dx               attr.softmax */
    AF_OP_LAYERNORM,      /* x, w, b -> y, mean, rstd  attr.norm   */
    AF_OP_LAYERNORM_BWD,  /* x, w, mean, rstd, dy -> dx, dw, db    */
    AF_OP_RMSNORM,        /* x, w -> y, rstd           attr.norm   */
    AF_OP_RMSNORM_BWD,    /* x, w, rstd, dy -> dx      attr.norm   */
    AF_OP_RMSNORM_DW,     /* x, rstd, dy -> dw: two stages, fixed order */
    AF_OP_EMBEDDING,      /* ids, table -> y                       */
    AF_OP_EMBEDDING_BWD,  /* ids, dy -> dtable: fixed order        */
    AF_OP_DROPOUT,        /* x, clock -> y (its own backward)      attr.dropout */
    AF_OP_NOISE,          /* x, bounds, clock -> y                 attr.noise */
    AF_OP_LOSS,           /* x, target -> loss         attr.loss   */
    AF_OP_LOSS_BWD,       /* x, target, dloss -> dx    attr.loss   */
    AF_OP_FAKE_QUANT,     /* x -> y, mask              attr.fake_quant */
    AF_OP_FAKE_QUANT_BWD, /* mask, dy -> dx                       */
    /* language models */
    AF_OP_RMSNORM_ADD,   /* x, residual, w -> y, sum, rstd        attr.norm */
    AF_OP_ROPE,          /* qkv, positions, inv_freq?, q_norm?, k_norm? -> y          attr.rope */
    AF_OP_ROPE_BWD,      /* dy, qkv, positions, inv_freq?, q_norm?, k_norm? -> dqkv   attr.rope */
    AF_OP_ROPE_DNORM,    /* dy, qkv, positions, inv_freq?, q_norm, k_norm -> dq_norm, dk_norm */
    AF_OP_ATTENTION,     /* qkv, bounds -> o, lse     attr.attention */
    AF_OP_ATTENTION_BWD, /* qkv, bounds, o, lse, do -> dqkv       */
    AF_OP_ATTENTION_CACHED, /* qkv, cache (in place), bounds, start -> o */
    AF_OP_GLU,              /* gate_up -> y              attr.glu    */
    AF_OP_GLU_BWD,          /* gate_up, dy -> dgate_up   attr.glu    */
    AF_OP_ADAPTER_DOWN,     /* x, a -> xa [N][R] = scale * x a^T     attr.linear */
    AF_OP_LINEAR,    /* x, weights.., biases.., [a, b, xa] -> y  attr.linear (see af_linear_in) */
    AF_OP_ADAPTER_G, /* dy, b -> g [N][R] = scale * dy B      attr.linear */
    AF_OP_LINEAR_DX, /* dy, weights.., [a, g] -> dx           attr.linear */
    AF_OP_LINEAR_DW, /* x, dy -> dw of one piece              attr.linear.piece */
    AF_OP_LINEAR_DBIAS,  /* dy -> dbias of one piece              attr.linear.piece */
    AF_OP_ADAPTER_DA,    /* x, g -> da [R][I]                     attr.linear */
    AF_OP_ADAPTER_DB,    /* dy, xa -> db, packed as b             attr.linear */
    AF_OP_DORA_NORM,     /* weights.., a, b -> n [O]              attr.linear */
    AF_OP_HEAD_LOSS,     /* h, w, labels, scale? -> loss, rows, [dh, [dw]]   attr.head */
    AF_OP_MOE_ROUTE,     /* logits -> weights, index, probs       attr.moe */
    AF_OP_MOE_ROUTE_BWD, /* probs, index, weights, dweights -> dlogits       attr.moe */
    AF_OP_MOE_FFN,       /* x, weights, index, gate_up, down -> y attr.moe */
    AF_OP_MOE_FFN_BWD,   /* x, weights, index, gate_up, down, dy -> dx, dweights, dgate_up, ddown */
    /* optimizers, on flat buffers; grads end as zeros */
    AF_OP_GRAD_NORM, /* grads -> stats f32 [4]: norm, clip factor, finite (1 or 0), sum of squares
                        attr.optim */
    AF_OP_SGD,       /* params, grads, hyper, stats, [momentum]      attr.optim */
    AF_OP_ADAM,      /* params, grads, hyper, stats, m, v            attr.optim (adam, adamw) */
    AF_OP_ADAM_8BIT, /* params, grads, hyper, stats, m8, v8, m_scale, v_scale  attr.optim */
    AF_OP_LION,      /* params, grads, hyper, stats, m               attr.optim */
    AF_OP_ADAFACTOR, /* param, grad, hyper, stats, row, col          attr.optim */
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
    } norm;
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
        int heads, kv_heads, head_dim, rotary_dim;
        double scale, eps;
        bool plus_one, rotate, norm, norm_whole; /* what the optional inputs say */
    } rope;
    struct {
        int heads, kv_heads, head_dim, window;
        double scale, softcap;
        bool causal;
    } attention;
    struct {
        af_act act;
    } glu;
    struct {
        int pieces, biases; /* biases: bit i is set when piece i has one */
        int piece;          /* which one a DW or DBIAS node serves */
        int parts;          /* 0 = no adapter */
        int64_t out;
        int64_t piece_from[AF_LINEAR_PIECES +
                           1]; /* first output column of each piece; [pieces] = their end */
        af_adapter_part part[AF_ADAPTER_PARTS];
        bool few;
    } linear;
    struct {
        double softcap, logit_scale, smoothing;
        int64_t chunk_rows;
        bool scaled, dh, dw; /* has the scale input; makes dh; makes dw */
    } head;
    struct {
        int k;
        bool norm;
        af_act act;
    } moe;
    struct {
        af_optimizer_kind kind;
        double beta1, beta2, eps, momentum, weight_decay, lr_factor;
        double max_norm; /* GRAD_NORM */
        bool nesterov;
    } optim;
} af_attr;

typedef struct af_cost {
    double flops;
    double bytes; /* read and written once */
} af_cost;

typedef struct af_op_info {
    const char *name;
    /* Emits nodes that add to the gradients of the node's inputs (af_grad_add). dout[i] is NULL
     * where no gradient reached output i. NULL = no gradient passes. */
    void (*grad)(af_graph *g, af_node *n, af_tensor *const *dout);
    /* NULL = one pass over inputs and outputs, no FLOPs worth counting. */
    void (*cost)(const af_node *n, af_cost *c);
    int8_t inplace;   /* 1 + the input whose memory output 0 may take over; 0 = none */
    int8_t accum_out; /* 1 + the output that can be added to instead of written (node->accumulate);
                         0 = none */
    bool effect;      /* changes an input in place: never dead */
    bool view;        /* output 0 is input 0's memory: no kernel runs */
    bool cheap;       /* memory-bound: recompute mode CHEAP rebuilds its outputs */
    bool wide; /* a projection: mode WIDE rebuilds its output when it is wider than its input */
} af_op_info;

/* Defined in src/ops/registry.c, indexed by af_op, every entry set. */
extern const af_op_info *const af_ops[AF_OP_COUNT];
#endif
