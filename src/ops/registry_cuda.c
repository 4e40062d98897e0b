/* registry_cuda.c - the CUDA launcher of every op: defined in <family>_cuda.c. */
#include "backend/cuda/cuda.h"

extern const af_cuda_op af_cuda_binary;
extern const af_cuda_op af_cuda_unary;
extern const af_cuda_op af_cuda_unary_bwd;
extern const af_cuda_op af_cuda_cast;
extern const af_cuda_op af_cuda_fill;
extern const af_cuda_op af_cuda_sum_to;
extern const af_cuda_op af_cuda_accum;
extern const af_cuda_op af_cuda_matmul;
extern const af_cuda_op af_cuda_transpose;
extern const af_cuda_op af_cuda_reshape __attribute__((weak));
extern const af_cuda_op af_cuda_slice;
extern const af_cuda_op af_cuda_slice_bwd;
extern const af_cuda_op af_cuda_concat;
extern const af_cuda_op af_cuda_reduce;
extern const af_cuda_op af_cuda_reduce_bwd;
extern const af_cuda_op af_cuda_softmax;
extern const af_cuda_op af_cuda_softmax_bwd;
extern const af_cuda_op af_cuda_layernorm;
extern const af_cuda_op af_cuda_layernorm_bwd;
extern const af_cuda_op af_cuda_rmsnorm;
extern const af_cuda_op af_cuda_rmsnorm_bwd;
extern const af_cuda_op af_cuda_rmsnorm_dw;
extern const af_cuda_op af_cuda_embedding;
extern const af_cuda_op af_cuda_embedding_bwd;
extern const af_cuda_op af_cuda_dropout;
extern const af_cuda_op af_cuda_noise;
extern const af_cuda_op af_cuda_loss;
extern const af_cuda_op af_cuda_loss_bwd;
extern const af_cuda_op af_cuda_fake_quant;
extern const af_cuda_op af_cuda_fake_quant_bwd;
extern const af_cuda_op af_cuda_rmsnorm_add;
extern const af_cuda_op af_cuda_rope;
extern const af_cuda_op af_cuda_rope_bwd;
extern const af_cuda_op af_cuda_rope_dnorm;
extern const af_cuda_op af_cuda_attention;
extern const af_cuda_op af_cuda_attention_bwd;
extern const af_cuda_op af_cuda_attention_cached;
extern const af_cuda_op af_cuda_glu;
extern const af_cuda_op af_cuda_glu_bwd;
extern const af_cuda_op af_cuda_adapter_down;
extern const af_cuda_op af_cuda_linear;
extern const af_cuda_op af_cuda_adapter_g;
extern const af_cuda_op af_cuda_linear_dx;
extern const af_cuda_op af_cuda_linear_dw;
extern const af_cuda_op af_cuda_linear_dbias;
extern const af_cuda_op af_cuda_adapter_da;
extern const af_cuda_op af_cuda_adapter_db;
extern const af_cuda_op af_cuda_dora_norm;
extern const af_cuda_op af_cuda_head_loss;
extern const af_cuda_op af_cuda_moe_route;
extern const af_cuda_op af_cuda_moe_route_bwd;
extern const af_cuda_op af_cuda_moe_ffn;
extern const af_cuda_op af_cuda_moe_ffn_bwd;
extern const af_cuda_op af_cuda_grad_norm;
extern const af_cuda_op af_cuda_sgd;
extern const af_cuda_op af_cuda_adam;
extern const af_cuda_op af_cuda_adam_8bit;
extern const af_cuda_op af_cuda_lion;
extern const af_cuda_op af_cuda_adafactor;

const af_cuda_op *const af_cuda_ops[AF_OP_COUNT] = {
    [AF_OP_BINARY] = &af_cuda_binary,
    [AF_OP_UNARY] = &af_cuda_unary,
    [AF_OP_UNARY_BWD] = &af_cuda_unary_bwd,
    [AF_OP_CAST] = &af_cuda_cast,
    [AF_OP_FILL] = &af_cuda_fill,
    [AF_OP_SUM_TO] = &af_cuda_sum_to,
    [AF_OP_ACCUM] = &af_cuda_accum,
    [AF_OP_MATMUL] = &af_cuda_matmul,
    [AF_OP_TRANSPOSE] = &af_cuda_transpose,
    [AF_OP_RESHAPE] = &af_cuda_reshape,
    [AF_OP_SLICE] = &af_cuda_slice,
    [AF_OP_SLICE_BWD] = &af_cuda_slice_bwd,
    [AF_OP_CONCAT] = &af_cuda_concat,
    [AF_OP_REDUCE] = &af_cuda_reduce,
    [AF_OP_REDUCE_BWD] = &af_cuda_reduce_bwd,
    [AF_OP_SOFTMAX] = &af_cuda_softmax,
    [AF_OP_SOFTMAX_BWD] = &af_cuda_softmax_bwd,
    [AF_OP_LAYERNORM] = &af_cuda_layernorm,
    [AF_OP_LAYERNORM_BWD] = &af_cuda_layernorm_bwd,
    [AF_OP_RMSNORM] = &af_cuda_rmsnorm,
    [AF_OP_RMSNORM_BWD] = &af_cuda_rmsnorm_bwd,
    [AF_OP_RMSNORM_DW] = &af_cuda_rmsnorm_dw,
    [AF_OP_EMBEDDING] = &af_cuda_embedding,
    [AF_OP_EMBEDDING_BWD] = &af_cuda_embedding_bwd,
    [AF_OP_DROPOUT] = &af_cuda_dropout,
    [AF_OP_NOISE] = &af_cuda_noise,
    [AF_OP_LOSS] = &af_cuda_loss,
    [AF_OP_LOSS_BWD] = &af_cuda_loss_bwd,
    [AF_OP_FAKE_QUANT] = &af_cuda_fake_quant,
    [AF_OP_FAKE_QUANT_BWD] = &af_cuda_fake_quant_bwd,
    [AF_OP_RMSNORM_ADD] = &af_cuda_rmsnorm_add,
    [AF_OP_ROPE] = &af_cuda_rope,
    [AF_OP_ROPE_BWD] = &af_cuda_rope_bwd,
    [AF_OP_ROPE_DNORM] = &af_cuda_rope_dnorm,
    [AF_OP_ATTENTION] = &af_cuda_attention,
    [AF_OP_ATTENTION_BWD] = &af_cuda_attention_bwd,
    [AF_OP_ATTENTION_CACHED] = &af_cuda_attention_cached,
    [AF_OP_GLU] = &af_cuda_glu,
    [AF_OP_GLU_BWD] = &af_cuda_glu_bwd,
    [AF_OP_ADAPTER_DOWN] = &af_cuda_adapter_down,
    [AF_OP_LINEAR] = &af_cuda_linear,
    [AF_OP_ADAPTER_G] = &af_cuda_adapter_g,
    [AF_OP_LINEAR_DX] = &af_cuda_linear_dx,
    [AF_OP_LINEAR_DW] = &af_cuda_linear_dw,
    [AF_OP_LINEAR_DBIAS] = &af_cuda_linear_dbias,
    [AF_OP_ADAPTER_DA] = &af_cuda_adapter_da,
    [AF_OP_ADAPTER_DB] = &af_cuda_adapter_db,
    [AF_OP_DORA_NORM] = &af_cuda_dora_norm,
    [AF_OP_HEAD_LOSS] = &af_cuda_head_loss,
    [AF_OP_MOE_ROUTE] = &af_cuda_moe_route,
    [AF_OP_MOE_ROUTE_BWD] = &af_cuda_moe_route_bwd,
    [AF_OP_MOE_FFN] = &af_cuda_moe_ffn,
    [AF_OP_MOE_FFN_BWD] = &af_cuda_moe_ffn_bwd,
    [AF_OP_GRAD_NORM] = &af_cuda_grad_norm,
    [AF_OP_SGD] = &af_cuda_sgd,
    [AF_OP_ADAM] = &af_cuda_adam,
    [AF_OP_ADAM_8BIT] = &af_cuda_adam_8bit,
    [AF_OP_LION] = &af_cuda_lion,
    [AF_OP_ADAFACTOR] = &af_cuda_adafactor,
};
