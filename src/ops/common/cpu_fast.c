/* cpu_fast.c - which nodes have a fast version. */
#include "ops/common/cpu_fast.h"

const char *af_cpu_isa(void) { return af_fast_get()->name; }

const af_cpu_op *af_cpu_fast(const af_node *n)
{
    static af_fast_chooser *const choose[AF_OP_COUNT] = {
        [AF_OP_LINEAR] = af_linear_fast,
        [AF_OP_LINEAR_DX] = af_linear_dx_fast,
        [AF_OP_LINEAR_DW] = af_linear_dw_fast,
        [AF_OP_ADAPTER_DOWN] = af_adapter_down_fast,
        [AF_OP_ADAPTER_G] = af_adapter_g_fast,
        [AF_OP_ADAPTER_DA] = af_adapter_da_fast,
        [AF_OP_ADAPTER_DB] = af_adapter_db_fast,
        [AF_OP_LINEAR_DBIAS] = af_linear_dbias_fast,
        [AF_OP_MATMUL] = af_matmul_fast,
        [AF_OP_RMSNORM] = af_rmsnorm_fast,
        [AF_OP_RMSNORM_ADD] = af_rmsnorm_add_fast,
        [AF_OP_RMSNORM_BWD] = af_rmsnorm_bwd_fast,
        [AF_OP_RMSNORM_DW] = af_rmsnorm_dw_fast,
        [AF_OP_GLU] = af_glu_fast,
        [AF_OP_GLU_BWD] = af_glu_bwd_fast,
        [AF_OP_ROPE] = af_rope_fast,
        [AF_OP_ROPE_BWD] = af_rope_bwd_fast,
        [AF_OP_EMBEDDING] = af_embedding_fast,
        [AF_OP_BINARY] = af_binary_fast,
        [AF_OP_ACCUM] = af_accum_fast,
        [AF_OP_DROPOUT] = af_dropout_fast,
        [AF_OP_DORA_NORM] = af_dora_norm_fast,
        [AF_OP_ATTENTION] = af_attention_fast,
        [AF_OP_ATTENTION_BWD] = af_attention_bwd_fast,
        [AF_OP_ATTENTION_CACHED] = af_attention_cached_fast,
        [AF_OP_HEAD_LOSS] = af_head_loss_fast,
        [AF_OP_GRAD_NORM] = af_grad_norm_fast,
        [AF_OP_ADAM] = af_adam_fast,
        [AF_OP_ADAM_8BIT] = af_adam_8bit_fast,
        [AF_OP_LION] = af_lion_fast,
        [AF_OP_ADAFACTOR] = af_adafactor_fast,
        [AF_OP_SGD] = af_sgd_fast,
    };
    return choose[n->op] ? choose[n->op](n) : NULL;
}
