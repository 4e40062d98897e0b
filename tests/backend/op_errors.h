/* op_errors.h - what the comparisons of ops with the CPU allow: ten times the error measured on an
 * H200, by case and type. The table is made by tools/judge/op_errors.py from
 * docs/measurements/cuda-ops-h200.txt; a case that is not in it yet has the wide limit. */
#ifndef AF_OP_ERRORS_H
#define AF_OP_ERRORS_H

#include "backend/case_list.h"

typedef struct op_error {
    const char *name;
    double f32, bf16, f16; /* relative L2 */
} op_error;

static const op_error op_errors[] = {
    {"adafactor", 1.23e-08, 1.23e-08, 1.23e-08},
    {"adafactor_wide", 9.74e-09, 9.74e-09, 9.74e-09},
    {"adagrad", 8.74e-10, 8.74e-10, 8.74e-10},
    {"adam", 2.51e-09, 2.51e-09, 2.51e-09},
    {"adam_mini", 3.96e-08, 3.96e-08, 3.96e-08},
    {"adam_mini_heads", 3.97e-08, 3.97e-08, 3.97e-08},
    {"adam_stochastic", 0.00e+00, 0.00e+00, 0.00e+00},
    {"adamw", 2.61e-08, 2.61e-08, 2.61e-08},
    {"adamw_4bit", 3.42e-08, 3.42e-08, 3.42e-08},
    {"adamw_8bit", 2.61e-08, 2.61e-08, 2.61e-08},
    {"adamw_8bit_bf16", 2.26e-11, 2.26e-11, 2.26e-11},
    {"adamw_8bit_kahan", 2.26e-11, 2.26e-11, 2.26e-11},
    {"adamw_8bit_stochastic", 2.26e-11, 2.26e-11, 2.26e-11},
    {"adamw_bf16", 2.26e-11, 2.26e-11, 2.26e-11},
    {"adamw_kahan", 2.26e-11, 2.26e-11, 2.26e-11},
    {"adamw_rows", 2.42e-08, 2.42e-08, 2.42e-08},
    {"adamw_torch_8bit", 3.42e-08, 3.42e-08, 3.42e-08},
    {"adapter_only", 1.61e-07, 3.82e-03, 5.47e-04},
    {"ademamix", 1.14e-08, 1.14e-08, 1.14e-08},
    {"ademamix_8bit", 9.42e-09, 9.42e-09, 9.42e-09},
    {"adopt", 4.87e-08, 4.87e-08, 4.87e-08},
    {"alibi", 3.40e-06, 2.57e-03, 4.05e-05},
    {"apollo", 4.09e-08, 4.09e-08, 4.09e-08},
    {"apollo_mini", 4.22e-08, 4.22e-08, 4.22e-08},
    {"apollo_wide", 5.16e-08, 5.16e-08, 5.16e-08},
    {"attention", 2.47e-07, 3.39e-03, 1.20e-05},
    {"attention_112", 6.54e-07, 3.32e-03, 1.82e-05},
    {"attention_128", 4.15e-07, 3.32e-03, 1.19e-05},
    {"attention_192", 3.02e-07, 2.48e-03, 1.05e-05},
    {"attention_256", 3.11e-07, 3.16e-03, 1.57e-05},
    {"attention_80", 3.10e-07, 3.04e-03, 1.60e-05},
    {"attention_96", 6.66e-07, 3.24e-03, 1.50e-05},
    {"attention_back", 1.12e-07, 2.20e-03, 2.50e-05},
    {"attention_cached", 1.27e-07, 0.00e+00, 2.90e-06},
    {"attention_capped", 3.63e-07, 3.16e-03, 7.93e-06},
    {"attention_capped_128", 3.96e-07, 3.24e-03, 7.26e-05},
    {"attention_chunks", 2.01e-07, 3.19e-03, 1.49e-05},
    {"attention_full", 2.89e-07, 3.09e-03, 1.35e-05},
    {"attention_grouped", 3.75e-08, 6.97e-04, 3.52e-06},
    {"attention_many", 3.46e-07, 3.26e-03, 1.25e-05},
    {"attention_pages", 1.04e-07, 2.27e-03, 0.00e+00},
    {"attention_shared", 3.42e-07, 5.26e-03, 1.63e-04},
    {"attention_sinks", 2.67e-07, 3.33e-03, 1.27e-05},
    {"attention_sinks_cached", 1.61e-07, 2.39e-03, 1.60e-05},
    {"attention_sinks_odd", 2.69e-07, 2.39e-06, 1.96e-05},
    {"attention_sinks_slide", 2.22e-07, 3.28e-03, 1.30e-05},
    {"attention_slide", 4.75e-07, 3.22e-03, 1.38e-05},
    {"attention_wide", 4.76e-07, 3.14e-03, 4.35e-05},
    {"attention_wide_full", 3.79e-07, 2.56e-03, 1.42e-05},
    {"attention_window", 1.93e-07, 2.39e-03, 1.60e-05},
    {"binary", 2.99e-08, 0.00e+00, 0.00e+00},
    {"block", 6.25e-07, 1.27e-02, 1.38e-03},
    {"block_bf16", 8.65e-07, 8.25e-03, 8.65e-07},
    {"channel_cached", 2.17e-07, 7.34e-08, 3.87e-06},
    {"conv", 2.75e-07, 2.63e-07, 2.52e-06},
    {"conv_plain", 2.47e-07, 8.02e-08, 7.57e-06},
    {"conv_three", 2.53e-07, 6.60e-06, 6.65e-06},
    {"cross_entropy", 6.11e-08, 1.12e-07, 1.12e-07},
    {"dora_norm", 9.05e-08, 2.52e-03, 3.41e-04},
    {"dora_norm_odd", 5.44e-08, 3.62e-08, 3.14e-08},
    {"dropout", 5.16e-08, 0.00e+00, 0.00e+00},
    {"embedding", 3.45e-08, 0.00e+00, 0.00e+00},
    {"expand_topk", 0.00e+00, 0.00e+00, 0.00e+00},
    {"fake_quant", 3.87e-08, 1.20e-02, 1.20e-02},
    {"float8", 0.00e+00, 0.00e+00, 0.00e+00},
    {"fp4", 2.87e-07, 2.15e-08, 2.76e-06},
    {"fp8", 2.40e-07, 1.42e-03, 2.98e-06},
    {"fp8_dropout", 2.88e-07, 2.85e-03, 3.08e-04},
    {"fp8_glu", 3.66e-07, 1.75e-02, 5.17e-04},
    {"fp8_glu_wide", 3.97e-07, 1.65e-02, 4.95e-04},
    {"fp8_high_rank", 2.09e-07, 6.04e-03, 4.73e-04},
    {"fp8_long", 3.11e-07, 3.77e-03, 3.17e-04},
    {"fp8_lora", 3.95e-07, 2.55e-03, 2.98e-04},
    {"fp8_nf4", 3.99e-07, 3.20e-03, 3.67e-04},
    {"free_adamw", 9.96e-09, 9.96e-09, 9.96e-09},
    {"free_radam", 2.58e-09, 2.58e-09, 2.58e-09},
    {"free_sgd", 0.00e+00, 0.00e+00, 0.00e+00},
    {"galore", 4.31e-08, 4.31e-08, 4.31e-08},
    {"galore_full", 4.09e-08, 4.09e-08, 4.09e-08},
    {"galore_wide", 4.11e-08, 4.11e-08, 4.11e-08},
    {"gate_up", 5.18e-07, 5.42e-03, 6.81e-04},
    {"gate_up_back", 3.92e-07, 3.83e-03, 4.71e-04},
    {"gate_up_front", 4.07e-07, 5.23e-03, 6.48e-04},
    {"gate_up_narrow", 4.36e-07, 5.62e-03, 7.13e-04},
    {"gate_up_twice", 9.29e-07, 1.37e-02, 1.74e-03},
    {"gated_norm", 1.62e-07, 7.78e-08, 9.93e-06},
    {"gguf", 3.32e-07, 3.70e-03, 4.10e-04},
    {"gguf_fp4", 3.30e-07, 2.81e-03, 4.21e-04},
    {"gguf_iq2", 3.43e-07, 3.29e-03, 4.35e-04},
    {"gguf_iq3", 3.52e-07, 3.59e-03, 4.31e-04},
    {"gguf_ternary", 3.29e-07, 3.52e-03, 3.52e-04},
    {"glu", 6.92e-08, 0.00e+00, 5.22e-06},
    {"glu_adapters", 3.69e-07, 5.51e-03, 6.66e-04},
    {"glu_adapters_front", 2.51e-07, 6.26e-03, 7.25e-04},
    {"glu_adapters_long", 4.14e-07, 5.56e-03, 6.85e-04},
    {"glu_adapters_odd", 2.05e-07, 6.01e-03, 6.00e-04},
    {"glu_adapters_twice", 6.23e-07, 1.16e-02, 1.57e-03},
    {"glu_clamped", 6.87e-08, 0.00e+00, 0.00e+00},
    {"head", 2.10e-07, 3.38e-03, 4.28e-04},
    {"head_long", 5.46e-07, 2.48e-03, 3.43e-04},
    {"head_longer", 5.54e-07, 9.95e-04, 1.25e-05},
    {"head_longest", 5.66e-07, 2.71e-03, 4.25e-04},
    {"head_rows", 1.59e-07, 3.34e-03, 4.42e-04},
    {"head_rows_trained", 1.56e-07, 3.79e-03, 4.72e-04},
    {"int8", 2.21e-07, 2.63e-03, 3.25e-04},
    {"int8_odd", 9.80e-08, 0.00e+00, 0.00e+00},
    {"latent", 1.68e-07, 3.83e-03, 1.48e-06},
    {"layernorm", 9.07e-08, 7.01e-08, 7.89e-06},
    {"layernorm_frozen", 8.65e-08, 0.00e+00, 0.00e+00},
    {"layernorm_wide", 1.11e-07, 3.40e-05, 1.10e-05},
    {"linear", 1.54e-07, 0.00e+00, 3.44e-08},
    {"linear_fwd", 1.62e-07, 2.43e-03, 3.28e-04},
    {"linear_params", 1.31e-07, 2.45e-03, 2.92e-04},
    {"lion", 7.52e-09, 7.52e-09, 7.52e-09},
    {"lion_8bit", 1.03e-08, 1.03e-08, 1.03e-08},
    {"lora", 2.21e-07, 3.62e-03, 4.16e-04},
    {"lora_cast", 2.19e-07, 3.95e-03, 4.11e-04},
    {"lora_dropout", 2.16e-07, 3.61e-03, 3.59e-04},
    {"lora_dropout_high_rank", 2.12e-07, 4.71e-03, 5.60e-04},
    {"lora_high_rank", 2.08e-07, 3.51e-03, 4.95e-04},
    {"lora_long_rows", 2.18e-07, 3.55e-03, 3.55e-04},
    {"lora_many_rows", 3.40e-07, 3.41e-03, 3.34e-04},
    {"lora_plain_rows", 1.48e-07, 3.73e-03, 3.88e-04},
    {"lora_scales", 2.39e-07, 3.73e-03, 3.70e-04},
    {"lora_two_uses", 2.90e-07, 6.50e-03, 6.59e-04},
    {"losses", 7.57e-08, 7.57e-08, 7.57e-08},
    {"matmul", 1.83e-07, 0.00e+00, 1.32e-05},
    {"matmul_batched", 8.63e-08, 0.00e+00, 0.00e+00},
    {"matmul_tiles", 3.37e-07, 1.31e-05, 4.13e-05},
    {"matmul_tn", 1.63e-07, 0.00e+00, 2.40e-05},
    {"moe", 2.28e-07, 4.95e-03, 6.12e-04},
    {"moe_adapted", 5.49e-07, 4.08e-03, 5.10e-04},
    {"moe_adapted_odd", 5.59e-07, 3.23e-03, 4.19e-04},
    {"moe_biased", 4.79e-07, 2.93e-04, 8.19e-05},
    {"moe_by_logit", 1.09e-07, 6.78e-08, 6.29e-08},
    {"moe_identity", 2.40e-07, 4.12e-03, 5.28e-04},
    {"moe_near", 8.05e-08, 5.52e-08, 1.07e-06},
    {"moe_plain", 2.43e-07, 5.45e-03, 6.57e-04},
    {"moe_project", 2.01e-07, 4.01e-03, 4.95e-04},
    {"moe_tiles", 7.94e-07, 4.87e-03, 6.08e-04},
    {"moe_train", 2.28e-07, 5.74e-03, 7.09e-04},
    {"muon", 2.14e-08, 2.14e-08, 2.14e-08},
    {"muon_bf16", 4.52e-05, 4.52e-05, 4.52e-05},
    {"muon_wide", 2.54e-08, 2.54e-08, 2.54e-08},
    {"mxfp4", 0.00e+00, 0.00e+00, 0.00e+00},
    {"nadam", 6.43e-09, 6.43e-09, 6.43e-09},
    {"nf4", 2.56e-07, 2.89e-03, 3.14e-04},
    {"nf4_64_tokens", 3.52e-07, 2.71e-03, 3.25e-04},
    {"nf4_dropout", 1.79e-07, 3.10e-03, 3.38e-04},
    {"nf4_long", 1.93e-07, 3.05e-03, 4.95e-04},
    {"nf4_many_rows", 2.17e-07, 2.58e-03, 3.52e-04},
    {"nf4_odd", 8.76e-08, 2.49e-03, 0.00e+00},
    {"nf4_three", 1.47e-07, 3.79e-03, 3.88e-04},
    {"noise", 2.91e-08, 0.00e+00, 0.00e+00},
    {"nvfp4", 0.00e+00, 0.00e+00, 0.00e+00},
    {"oft", 2.95e-07, 8.56e-05, 2.79e-05},
    {"oft_exact", 3.50e-07, 1.65e-07, 8.89e-06},
    {"oft_rows", 3.04e-07, 1.50e-04, 2.09e-05},
    {"oft_single", 1.35e-07, 9.95e-08, 3.67e-07},
    {"oft_single_rows", 1.65e-07, 6.14e-05, 4.72e-06},
    {"oft_wide", 5.50e-07, 2.88e-04, 3.61e-05},
    {"plain_fp4_2", 2.08e-07, 2.44e-03, 1.01e-05},
    {"plain_fp4_256", 3.23e-07, 3.60e-05, 1.48e-05},
    {"plain_nf4_1", 1.92e-07, 2.32e-03, 4.30e-05},
    {"plain_nf4_100", 2.51e-07, 2.32e-03, 1.75e-05},
    {"plain_nf4_12", 1.44e-07, 2.36e-03, 2.48e-05},
    {"plain_nf4_17", 2.22e-07, 2.32e-03, 0.00e+00},
    {"plain_nf4_1_wide", 2.96e-07, 2.43e-03, 6.76e-05},
    {"plain_nf4_250", 2.96e-07, 2.39e-03, 3.48e-04},
    {"plain_nf4_33", 3.05e-07, 2.30e-03, 2.79e-05},
    {"plain_nf4_5", 1.83e-07, 2.43e-03, 3.28e-04},
    {"plain_nf4_64", 3.62e-07, 2.62e-03, 3.45e-04},
    {"plain_nf4_many", 2.89e-07, 2.15e-03, 3.08e-04},
    {"plain_nf4_rest", 1.03e-06, 2.37e-03, 3.23e-04},
    {"radam", 0.00e+00, 0.00e+00, 0.00e+00},
    {"reduce", 1.17e-07, 0.00e+00, 0.00e+00},
    {"residual", 1.17e-06, 4.74e-03, 5.41e-04},
    {"residual_full", 1.12e-06, 3.56e-03, 3.53e-04},
    {"rmsnorm", 8.35e-08, 7.47e-08, 2.03e-05},
    {"rmsnorm_add", 3.61e-08, 0.00e+00, 0.00e+00},
    {"rmsnorm_odd", 6.93e-08, 6.51e-08, 6.88e-08},
    {"rmsprop", 2.78e-08, 2.78e-08, 2.78e-08},
    {"rmsprop_8bit", 3.24e-08, 3.24e-08, 3.24e-08},
    {"rope", 3.40e-06, 3.07e-06, 1.51e-05},
    {"rope_norm", 1.07e-07, 1.04e-07, 1.08e-07},
    {"rope_odd", 1.67e-06, 3.94e-06, 9.09e-06},
    {"rope_pairs", 4.30e-06, 3.42e-06, 7.32e-05},
    {"rope_query", 4.20e-06, 1.47e-03, 1.78e-04},
    {"row_adapters", 7.11e-08, 0.00e+00, 0.00e+00},
    {"row_adapters_1", 1.81e-07, 0.00e+00, 0.00e+00},
    {"row_adapters_46", 1.34e-07, 7.20e-06, 6.82e-09},
    {"row_adapters_7", 1.31e-07, 0.00e+00, 0.00e+00},
    {"row_adapters_77", 1.39e-07, 5.66e-06, 5.53e-06},
    {"row_pick", 0.00e+00, 0.00e+00, 0.00e+00},
    {"scan_channel", 3.17e-07, 7.02e-05, 1.63e-05},
    {"scan_delta", 1.72e-06, 2.09e-03, 1.66e-03},
    {"scan_mamba", 3.84e-07, 1.08e-03, 4.30e-04},
    {"scan_mamba_wide", 2.87e-07, 1.09e-03, 3.96e-04},
    {"scan_wide", 9.67e-07, 5.24e-03, 5.65e-04},
    {"selective", 2.30e-07, 1.38e-05, 2.24e-05},
    {"sgd", 0.00e+00, 0.00e+00, 0.00e+00},
    {"sgd_tree", 0.00e+00, 0.00e+00, 0.00e+00},
    {"shape", 0.00e+00, 0.00e+00, 0.00e+00},
    {"softmax", 4.61e-08, 0.00e+00, 0.00e+00},
    {"softmax_wide", 4.40e-08, 0.00e+00, 0.00e+00},
    {"stable_adamw", 2.70e-08, 2.70e-08, 2.70e-08},
    {"stable_adamw_wide", 3.66e-08, 3.66e-08, 3.66e-08},
    {"state_cached", 2.26e-07, 8.44e-08, 6.54e-06},
    {"sums", 8.02e-08, 0.00e+00, 3.17e-09},
    {"ternary", 6.33e-08, 0.00e+00, 6.33e-08},
    {"token_draw", 1.30e-18, 7.09e-18, 9.58e-19},
    {"token_draw_flat", 3.34e-13, 5.69e-18, 2.11e-18},
    {"train", 9.80e-08, 1.34e-03, 7.76e-04},
    {"train_bf16", 9.60e-08, 9.25e-04, 9.60e-08},
    {"unary", 5.83e-08, 0.00e+00, 0.00e+00},
    {"unary_positive", 3.75e-08, 0.00e+00, 0.00e+00},
    {"xielu", 1.73e-06, 5.38e-07, 5.14e-07},
};

static double wide_limit(const test_case *c, af_dtype t)
{
    const double coarse = c->bf16 != 0 ? c->bf16 : 5e-3;
    return t != AF_DTYPE_F32 ? coarse : coarse >= 2e-2 ? 1e-3 : 2e-5;
}

/* Where the measured error is near 0: another GPU may round a few elements the other way. */
static double least_limit(af_dtype t)
{
    return t == AF_DTYPE_F32 ? 3e-7 : t == AF_DTYPE_BF16 ? 4e-4 : 5e-5;
}

static double measured_error(const op_error *e, af_dtype t)
{
    return t == AF_DTYPE_F32 ? e->f32 : t == AF_DTYPE_BF16 ? e->bf16 : e->f16;
}

static double op_limit(const test_case *c, af_dtype t)
{
    const double wide = wide_limit(c, t);
    for (size_t i = 0; i < AF_LEN(op_errors); i++)
        if (strcmp(op_errors[i].name, c->name) == 0)
            return fmin(wide, fmax(10 * measured_error(&op_errors[i], t), least_limit(t)));
    return wide;
}

/* Rows that name no case, or whose limit is not at least twice the error it was made from. */
static int wrong_op_errors(void)
{
    static const af_dtype types[] = {AF_DTYPE_F32, AF_DTYPE_BF16, AF_DTYPE_F16};
    int wrong = 0;
    for (size_t i = 0; i < AF_LEN(op_errors); i++) {
        const test_case *c = NULL;
        for (size_t k = 0; k < AF_LEN(cases); k++)
            if (strcmp(cases[k].name, op_errors[i].name) == 0)
                c = &cases[k];
        for (size_t k = 0; k < AF_LEN(types); k++)
            wrong += !c || op_limit(c, types[k]) < 1.8 * measured_error(&op_errors[i], types[k]);
    }
    return wrong;
}
#endif
