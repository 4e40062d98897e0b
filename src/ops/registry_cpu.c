/* registry_cpu.c - the plain CPU twin of every op: defined in <family>_cpu.c. */
#include "backend/cpu/cpu.h"

extern const af_cpu_op af_cpu_binary;
extern const af_cpu_op af_cpu_unary;
extern const af_cpu_op af_cpu_unary_bwd;
extern const af_cpu_op af_cpu_cast;
extern const af_cpu_op af_cpu_fill;
extern const af_cpu_op af_cpu_sum_to;
extern const af_cpu_op af_cpu_accum;
extern const af_cpu_op af_cpu_matmul;
extern const af_cpu_op af_cpu_transpose;
extern const af_cpu_op af_cpu_slice;
extern const af_cpu_op af_cpu_slice_bwd;
extern const af_cpu_op af_cpu_concat;
extern const af_cpu_op af_cpu_reduce;
extern const af_cpu_op af_cpu_reduce_bwd;
extern const af_cpu_op af_cpu_softmax;
extern const af_cpu_op af_cpu_softmax_bwd;
extern const af_cpu_op af_cpu_layernorm;
extern const af_cpu_op af_cpu_layernorm_bwd;
extern const af_cpu_op af_cpu_rmsnorm;
extern const af_cpu_op af_cpu_rmsnorm_bwd;
extern const af_cpu_op af_cpu_rmsnorm_dw;
extern const af_cpu_op af_cpu_embedding;
extern const af_cpu_op af_cpu_embedding_bwd;
extern const af_cpu_op af_cpu_dropout;
extern const af_cpu_op af_cpu_noise;
extern const af_cpu_op af_cpu_loss;
extern const af_cpu_op af_cpu_loss_bwd;
extern const af_cpu_op af_cpu_fake_quant;
extern const af_cpu_op af_cpu_fake_quant_bwd;
extern const af_cpu_op af_cpu_rmsnorm_add;
extern const af_cpu_op af_cpu_rope;
extern const af_cpu_op af_cpu_rope_bwd;
extern const af_cpu_op af_cpu_rope_dnorm;
extern const af_cpu_op af_cpu_attention;
extern const af_cpu_op af_cpu_attention_bwd;
extern const af_cpu_op af_cpu_attention_cached;
extern const af_cpu_op af_cpu_glu;
extern const af_cpu_op af_cpu_glu_bwd;
extern const af_cpu_op af_cpu_adapter_down;
extern const af_cpu_op af_cpu_linear;
extern const af_cpu_op af_cpu_adapter_g;
extern const af_cpu_op af_cpu_linear_dx;
extern const af_cpu_op af_cpu_linear_dw;
extern const af_cpu_op af_cpu_linear_dbias;
extern const af_cpu_op af_cpu_adapter_da;
extern const af_cpu_op af_cpu_adapter_db;
extern const af_cpu_op af_cpu_dora_norm;
extern const af_cpu_op af_cpu_head_loss;
extern const af_cpu_op af_cpu_moe_route;
extern const af_cpu_op af_cpu_moe_route_bwd;
extern const af_cpu_op af_cpu_moe_ffn;
extern const af_cpu_op af_cpu_moe_ffn_bwd;
extern const af_cpu_op af_cpu_grad_norm;
extern const af_cpu_op af_cpu_sgd;
extern const af_cpu_op af_cpu_adam;
extern const af_cpu_op af_cpu_adam_8bit;
extern const af_cpu_op af_cpu_lion;
extern const af_cpu_op af_cpu_adafactor;

const af_cpu_op *const af_cpu_ops[AF_OP_COUNT] = {
    [AF_OP_BINARY] = &af_cpu_binary,
    [AF_OP_UNARY] = &af_cpu_unary,
    [AF_OP_UNARY_BWD] = &af_cpu_unary_bwd,
    [AF_OP_CAST] = &af_cpu_cast,
    [AF_OP_FILL] = &af_cpu_fill,
    [AF_OP_SUM_TO] = &af_cpu_sum_to,
    [AF_OP_ACCUM] = &af_cpu_accum,
    [AF_OP_MATMUL] = &af_cpu_matmul,
    [AF_OP_TRANSPOSE] = &af_cpu_transpose,
    [AF_OP_RESHAPE] = NULL, /* a view: nothing runs */
    [AF_OP_SLICE] = &af_cpu_slice,
    [AF_OP_SLICE_BWD] = &af_cpu_slice_bwd,
    [AF_OP_CONCAT] = &af_cpu_concat,
    [AF_OP_REDUCE] = &af_cpu_reduce,
    [AF_OP_REDUCE_BWD] = &af_cpu_reduce_bwd,
    [AF_OP_SOFTMAX] = &af_cpu_softmax,
    [AF_OP_SOFTMAX_BWD] = &af_cpu_softmax_bwd,
    [AF_OP_LAYERNORM] = &af_cpu_layernorm,
    [AF_OP_LAYERNORM_BWD] = &af_cpu_layernorm_bwd,
    [AF_OP_RMSNORM] = &af_cpu_rmsnorm,
    [AF_OP_RMSNORM_BWD] = &af_cpu_rmsnorm_bwd,
    [AF_OP_RMSNORM_DW] = &af_cpu_rmsnorm_dw,
    [AF_OP_EMBEDDING] = &af_cpu_embedding,
    [AF_OP_EMBEDDING_BWD] = &af_cpu_embedding_bwd,
    [AF_OP_DROPOUT] = &af_cpu_dropout,
    [AF_OP_NOISE] = &af_cpu_noise,
    [AF_OP_LOSS] = &af_cpu_loss,
    [AF_OP_LOSS_BWD] = &af_cpu_loss_bwd,
    [AF_OP_FAKE_QUANT] = &af_cpu_fake_quant,
    [AF_OP_FAKE_QUANT_BWD] = &af_cpu_fake_quant_bwd,
    [AF_OP_RMSNORM_ADD] = &af_cpu_rmsnorm_add,
    [AF_OP_ROPE] = &af_cpu_rope,
    [AF_OP_ROPE_BWD] = &af_cpu_rope_bwd,
    [AF_OP_ROPE_DNORM] = &af_cpu_rope_dnorm,
    [AF_OP_ATTENTION] = &af_cpu_attention,
    [AF_OP_ATTENTION_BWD] = &af_cpu_attention_bwd,
    [AF_OP_ATTENTION_CACHED] = &af_cpu_attention_cached,
    [AF_OP_GLU] = &af_cpu_glu,
    [AF_OP_GLU_BWD] = &af_cpu_glu_bwd,
    [AF_OP_ADAPTER_DOWN] = &af_cpu_adapter_down,
    [AF_OP_LINEAR] = &af_cpu_linear,
    [AF_OP_ADAPTER_G] = &af_cpu_adapter_g,
    [AF_OP_LINEAR_DX] = &af_cpu_linear_dx,
    [AF_OP_LINEAR_DW] = &af_cpu_linear_dw,
    [AF_OP_LINEAR_DBIAS] = &af_cpu_linear_dbias,
    [AF_OP_ADAPTER_DA] = &af_cpu_adapter_da,
    [AF_OP_ADAPTER_DB] = &af_cpu_adapter_db,
    [AF_OP_DORA_NORM] = &af_cpu_dora_norm,
    [AF_OP_HEAD_LOSS] = &af_cpu_head_loss,
    [AF_OP_MOE_ROUTE] = &af_cpu_moe_route,
    [AF_OP_MOE_ROUTE_BWD] = &af_cpu_moe_route_bwd,
    [AF_OP_MOE_FFN] = &af_cpu_moe_ffn,
    [AF_OP_MOE_FFN_BWD] = &af_cpu_moe_ffn_bwd,
    [AF_OP_GRAD_NORM] = &af_cpu_grad_norm,
    [AF_OP_SGD] = &af_cpu_sgd,
    [AF_OP_ADAM] = &af_cpu_adam,
    [AF_OP_ADAM_8BIT] = &af_cpu_adam_8bit,
    [AF_OP_LION] = &af_cpu_lion,
    [AF_OP_ADAFACTOR] = &af_cpu_adafactor,
};
