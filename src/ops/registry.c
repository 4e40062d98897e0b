/* registry.c - the table of ops: one line an op, defined in the family file of that name. */
#include "graph/op.h"

extern const af_op_info af_op_binary;
extern const af_op_info af_op_unary;
extern const af_op_info af_op_unary_bwd;
extern const af_op_info af_op_cast;
extern const af_op_info af_op_fill;
extern const af_op_info af_op_sum_to;
extern const af_op_info af_op_accum;
extern const af_op_info af_op_matmul;
extern const af_op_info af_op_transpose;
extern const af_op_info af_op_reshape;
extern const af_op_info af_op_slice;
extern const af_op_info af_op_slice_bwd;
extern const af_op_info af_op_concat;
extern const af_op_info af_op_reduce;
extern const af_op_info af_op_reduce_bwd;
extern const af_op_info af_op_softmax;
extern const af_op_info af_op_softmax_bwd;
extern const af_op_info af_op_layernorm;
extern const af_op_info af_op_layernorm_bwd;
extern const af_op_info af_op_rmsnorm;
extern const af_op_info af_op_rmsnorm_bwd;
extern const af_op_info af_op_rmsnorm_dw;
extern const af_op_info af_op_embedding;
extern const af_op_info af_op_embedding_bwd;
extern const af_op_info af_op_dropout;
extern const af_op_info af_op_noise;
extern const af_op_info af_op_loss;
extern const af_op_info af_op_loss_bwd;
extern const af_op_info af_op_fake_quant;
extern const af_op_info af_op_fake_quant_bwd;
extern const af_op_info af_op_rmsnorm_add;
extern const af_op_info af_op_rope;
extern const af_op_info af_op_rope_bwd;
extern const af_op_info af_op_rope_dnorm;
extern const af_op_info af_op_attention;
extern const af_op_info af_op_attention_bwd;
extern const af_op_info af_op_attention_cached;
extern const af_op_info af_op_glu;
extern const af_op_info af_op_glu_bwd;
extern const af_op_info af_op_adapter_down;
extern const af_op_info af_op_linear;
extern const af_op_info af_op_adapter_g;
extern const af_op_info af_op_linear_dx;
extern const af_op_info af_op_linear_dw;
extern const af_op_info af_op_linear_dbias;
extern const af_op_info af_op_adapter_da;
extern const af_op_info af_op_adapter_db;
extern const af_op_info af_op_dora_norm;
extern const af_op_info af_op_head_loss;
extern const af_op_info af_op_moe_route;
extern const af_op_info af_op_moe_route_bwd;
extern const af_op_info af_op_moe_ffn;
extern const af_op_info af_op_moe_ffn_bwd;
extern const af_op_info af_op_grad_norm;
extern const af_op_info af_op_sgd;
extern const af_op_info af_op_adam;
extern const af_op_info af_op_adam_8bit;
extern const af_op_info af_op_lion;
extern const af_op_info af_op_adafactor;

const af_op_info *const af_ops[AF_OP_COUNT] = {
    [AF_OP_BINARY] = &af_op_binary,
    [AF_OP_UNARY] = &af_op_unary,
    [AF_OP_UNARY_BWD] = &af_op_unary_bwd,
    [AF_OP_CAST] = &af_op_cast,
    [AF_OP_FILL] = &af_op_fill,
    [AF_OP_SUM_TO] = &af_op_sum_to,
    [AF_OP_ACCUM] = &af_op_accum,
    [AF_OP_MATMUL] = &af_op_matmul,
    [AF_OP_TRANSPOSE] = &af_op_transpose,
    [AF_OP_RESHAPE] = &af_op_reshape,
    [AF_OP_SLICE] = &af_op_slice,
    [AF_OP_SLICE_BWD] = &af_op_slice_bwd,
    [AF_OP_CONCAT] = &af_op_concat,
    [AF_OP_REDUCE] = &af_op_reduce,
    [AF_OP_REDUCE_BWD] = &af_op_reduce_bwd,
    [AF_OP_SOFTMAX] = &af_op_softmax,
    [AF_OP_SOFTMAX_BWD] = &af_op_softmax_bwd,
    [AF_OP_LAYERNORM] = &af_op_layernorm,
    [AF_OP_LAYERNORM_BWD] = &af_op_layernorm_bwd,
    [AF_OP_RMSNORM] = &af_op_rmsnorm,
    [AF_OP_RMSNORM_BWD] = &af_op_rmsnorm_bwd,
    [AF_OP_RMSNORM_DW] = &af_op_rmsnorm_dw,
    [AF_OP_EMBEDDING] = &af_op_embedding,
    [AF_OP_EMBEDDING_BWD] = &af_op_embedding_bwd,
    [AF_OP_DROPOUT] = &af_op_dropout,
    [AF_OP_NOISE] = &af_op_noise,
    [AF_OP_LOSS] = &af_op_loss,
    [AF_OP_LOSS_BWD] = &af_op_loss_bwd,
    [AF_OP_FAKE_QUANT] = &af_op_fake_quant,
    [AF_OP_FAKE_QUANT_BWD] = &af_op_fake_quant_bwd,
    [AF_OP_RMSNORM_ADD] = &af_op_rmsnorm_add,
    [AF_OP_ROPE] = &af_op_rope,
    [AF_OP_ROPE_BWD] = &af_op_rope_bwd,
    [AF_OP_ROPE_DNORM] = &af_op_rope_dnorm,
    [AF_OP_ATTENTION] = &af_op_attention,
    [AF_OP_ATTENTION_BWD] = &af_op_attention_bwd,
    [AF_OP_ATTENTION_CACHED] = &af_op_attention_cached,
    [AF_OP_GLU] = &af_op_glu,
    [AF_OP_GLU_BWD] = &af_op_glu_bwd,
    [AF_OP_ADAPTER_DOWN] = &af_op_adapter_down,
    [AF_OP_LINEAR] = &af_op_linear,
    [AF_OP_ADAPTER_G] = &af_op_adapter_g,
    [AF_OP_LINEAR_DX] = &af_op_linear_dx,
    [AF_OP_LINEAR_DW] = &af_op_linear_dw,
    [AF_OP_LINEAR_DBIAS] = &af_op_linear_dbias,
    [AF_OP_ADAPTER_DA] = &af_op_adapter_da,
    [AF_OP_ADAPTER_DB] = &af_op_adapter_db,
    [AF_OP_DORA_NORM] = &af_op_dora_norm,
    [AF_OP_HEAD_LOSS] = &af_op_head_loss,
    [AF_OP_MOE_ROUTE] = &af_op_moe_route,
    [AF_OP_MOE_ROUTE_BWD] = &af_op_moe_route_bwd,
    [AF_OP_MOE_FFN] = &af_op_moe_ffn,
    [AF_OP_MOE_FFN_BWD] = &af_op_moe_ffn_bwd,
    [AF_OP_GRAD_NORM] = &af_op_grad_norm,
    [AF_OP_SGD] = &af_op_sgd,
    [AF_OP_ADAM] = &af_op_adam,
    [AF_OP_ADAM_8BIT] = &af_op_adam_8bit,
    [AF_OP_LION] = &af_op_lion,
    [AF_OP_ADAFACTOR] = &af_op_adafactor,
};
