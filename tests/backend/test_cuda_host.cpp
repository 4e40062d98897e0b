/* test_cuda_host.cpp - the texts of kernels, compiled for the host (host/dev.cuh) and run thread by
 * thread beside formulas in double or the library's own codecs: a wrong epsilon in a kernel fails
 * without a GPU. Built once for each AF_T.
 *
 * Gradients are judged by differences of the forward formula. Outputs begin as NaN, and so does
 * what lies after them, which must stay. AF_SHOW in the environment prints the measured errors.
 *
 * test_cuda_tensor.cpp has products of few rows and of low ranks. Left out, and run on a GPU by
 * test_cuda_ops.c: gemm and attention, copies and gathers (load, core, embedding, copy_any,
 * binary_any, the _gather kernels), and moe, muon, dora, head and noise. */
#include "host/case_apollo.h"
#include "host/case_dense.h"
#include "host/case_elements.h"
#include "host/case_galore.h"
#include "host/case_oft.h"
#include "host/case_optim_bf16.h"
#include "host/case_routes.h"
#include "host/case_selective.h"
#include "host/case_sink.h"
#include "host/case_state.h"
#include "host/case_tokens.h"
#include "host/case_weights.h"

int main()
{
    optimizer_cases();
    for (int kind = 0; kind < 4; kind++) {
        adaptive_case(kind, num_a);
        adaptive_case(kind, 0);
    }
    norm_case(0.5, 0.0f);
    norm_case(0.5, 1.0f);
    norm_case(0.001, 0.03125f); /* the norm is about clip_eps */
    norm_case(NAN, 1.0f);
    for (int i = 0; i < 2; i++) {
        coded_adam_case(i);
        adafactor_case(i);
        rmsnorm_case((float)i);
        softmax_case(i);
        fake_quant_case(i);
        sums_case(i);
        dropout_case(i);
        rope_case<AF_VEC>(i);
        rope_case<0>(i);
        for (const int cols : {128, 40, 7}) {
            bnb_case(i, cols, false);
            bnb_case(i, cols, true);
            int8_case(cols);
        }
    }
    fp8_case(48, 32);
    fp8_case(144, 80);
    layernorm_case();
    sink_case();
    cut_case();
    for (int kind = 0; kind < 12; kind++)
        unary_case(kind);
    for (int kind = 0; kind < 4; kind++) {
        glu_case(kind);
        binary_case(kind);
    }
    cast_cases();
    for (const int kind : {0, 1, 2, 3, 5})
        loss_case(kind);
    loss_rows_case();
    gguf_cases();
    state_cases();
    selective_case();
    near_route_case();
    for (const int pairs : {1, 1024, 2500})
        list_case(37, pairs);
    for (const int pairs : {1, 300})
        real_case(37, pairs);
    pick_case(37, 3, 19);
    dense_cases();
    bf16_adam_cases();
    token_cases();
    clip_case();
    fake_float_case();
    ternary_case();
    oft_cases();
    channel_case();
    columns_case();
    adam_mini_case(false);
    adam_mini_case(true);
    for (int kind = 0; kind < 3; kind++)
        for (int first = 0; first < 2; first++)
            free_case(kind, first);
    free_weight_case();
    for (int kind = 0; kind < 3; kind++)
        states_8bit_case(kind);
    stable_adamw_case(false);
    stable_adamw_case(true);
    apollo_cases();
    galore_cases();
    printf("%d failed\n", failures);
    return failures ? 1 : 0;
}
