/* case_optimizers.h - parameters after a step of each optimizer; part of case_list.h. */
#ifndef AF_CASE_OPTIMIZERS_H
#define AF_CASE_OPTIMIZERS_H

#include "backend/cases.h"
#include "ops/optim/optimizer.h"

static void optimize_blocks(rec *r, af_optimizer_opts o, int64_t rows, int64_t cols, int64_t block)
{
    af_tensor *p = param_2(r, rows, cols), *q = param_1(r, cols);
    af_param_moment_block(p, block);
    af_tensor *y = af_mul(r->g, p, q);
    finish(r, af_mul(r->g, y, y));
    r->outs = 0; /* gradients end as zeros: compare the params */
    o.weight_decay = 0.1;
    o.max_grad_norm = 1;
    af_graph_optimizer(r->g, &o);
    af_graph_set_learning_rate(r->g, 1e-2);
    r->out[r->outs++] = p;
    r->out[r->outs++] = q;
    r->step = true;
}
static void optimize_by(rec *r, af_optimizer_opts o, int64_t rows, int64_t cols)
{
    optimize_blocks(r, o, rows, cols, 0);
}
static void optimize_matrix(rec *r, af_optimizer_kind kind, int64_t rows, int64_t cols)
{
    const double momentum = kind == AF_OPTIMIZER_SGD ? 0.9 : 0;
    optimize_by(r, (af_optimizer_opts){.kind = kind, .momentum = momentum}, rows, cols);
}
/* Rows outside [3, 9) and [20, 31) have no gradient: they only decay. */
static void case_adamw_rows(rec *r)
{
    af_tensor *p = param_2(r, 31, 17);
    finish(r, af_mul(r->g, p, p));
    r->outs = 0;
    af_param_rows(r->g, p, 3, 9);
    af_param_rows(r->g, p, 20, 31);
    af_graph_optimizer(r->g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW, .weight_decay = 0.1});
    af_graph_set_learning_rate(r->g, 1e-2);
    r->out[r->outs++] = p;
    r->step = true;
}
static void optimize(rec *r, af_optimizer_kind kind) { optimize_matrix(r, kind, 31, 17); }
static void case_sgd(rec *r) { optimize(r, AF_OPTIMIZER_SGD); }
/* What adds the gradients of four micro-batches is prepared too. */
static void case_sgd_tree(rec *r)
{
    af_graph_set_carry(r->g, 2);
    optimize(r, AF_OPTIMIZER_SGD);
}
static void case_adam(rec *r) { optimize(r, AF_OPTIMIZER_ADAM); }
static void case_adamw(rec *r) { optimize(r, AF_OPTIMIZER_ADAMW); }
static void case_adamw_8bit(rec *r) { optimize(r, AF_OPTIMIZER_ADAMW_8BIT); }
static void case_adamw_4bit(rec *r) { optimize_matrix(r, AF_OPTIMIZER_ADAMW_4BIT, 40, 128); }
static void case_adamw_torch_8bit(rec *r)
{
    optimize_matrix(r, AF_OPTIMIZER_ADAMW_TORCH_8BIT, 40, 128);
}
static void case_rmsprop(rec *r) { optimize(r, AF_OPTIMIZER_RMSPROP); }
static void case_ademamix(rec *r) { optimize(r, AF_OPTIMIZER_ADEMAMIX); }
static void case_adagrad(rec *r) { optimize(r, AF_OPTIMIZER_ADAGRAD); }
static void case_nadam(rec *r) { optimize(r, AF_OPTIMIZER_NADAM); }
static void case_radam(rec *r) { optimize(r, AF_OPTIMIZER_RADAM); }
static void case_adopt(rec *r)
{
    optimize(r, AF_OPTIMIZER_ADOPT);
    af_graph_set_step(r->g, 3); /* the first moves nothing */
}
static void free_case(rec *r, af_optimizer_kind kind)
{
    optimize_by(r, (af_optimizer_opts){.kind = kind, .lr_power = 2}, 31, 17);
    af_graph_set_step(r->g, 8);
}
static void case_free_adamw(rec *r) { free_case(r, AF_OPTIMIZER_FREE_ADAMW); }
static void case_free_radam(rec *r) { free_case(r, AF_OPTIMIZER_FREE_RADAM); }
static void case_free_sgd(rec *r) { free_case(r, AF_OPTIMIZER_FREE_SGD); }
static void case_stable(rec *r) { optimize(r, AF_OPTIMIZER_STABLE_ADAMW); }
static void case_stable_wide(rec *r) { optimize_matrix(r, AF_OPTIMIZER_STABLE_ADAMW, 300, 68); }
static const af_optimizer_opts mini = {.kind = AF_OPTIMIZER_ADAM_MINI};
static void case_adam_mini(rec *r) { optimize_blocks(r, mini, 31, 17, 17); }
/* Blocks of more than one range. */
static void case_adam_mini_heads(rec *r) { optimize_blocks(r, mini, 300, 68, 150 * 68); }
static void case_muon(rec *r) { optimize(r, AF_OPTIMIZER_MUON); }
static void case_muon_wide(rec *r) { optimize_matrix(r, AF_OPTIMIZER_MUON, 24, 72); }
static void case_muon_bf16(rec *r)
{
    optimize_by(r, (af_optimizer_opts){.kind = AF_OPTIMIZER_MUON, .bf16 = true}, 136, 64);
}
static void apollo_case(rec *r, af_optimizer_opts o, int64_t rows, int64_t cols)
{
    o.kind = AF_OPTIMIZER_APOLLO;
    o.seed = 42;
    optimize_by(r, o, rows, cols);
    af_graph_set_step(r->g, 450); /* the third draw */
}
static void case_apollo(rec *r) { apollo_case(r, (af_optimizer_opts){.rank = 5}, 31, 17); }
static void case_apollo_wide(rec *r)
{
    apollo_case(r, (af_optimizer_opts){.rank = 40, .scale = 32, .scale_front = true}, 24, 172);
}
static void case_apollo_mini(rec *r)
{
    apollo_case(r, (af_optimizer_opts){.rank = 1, .scale = 128, .per_tensor = true}, 300, 68);
}
/* The update renews its projections. eps: a direction near 0 has no sign of its own. */
static void galore_case(rec *r, af_projection projection, int rank, int64_t rows, int64_t cols)
{
    optimize_by(r,
                (af_optimizer_opts){.kind = AF_OPTIMIZER_GALORE,
                                    .projection = projection,
                                    .rank = rank,
                                    .scale = 1,
                                    .eps = 1e-3,
                                    .seed = 42},
                rows, cols);
    af_graph_set_step(r->g, 401);
}
static void case_galore(rec *r) { galore_case(r, AF_PROJECTION_STD, 5, 31, 17); }
static void case_galore_wide(rec *r) { galore_case(r, AF_PROJECTION_REVERSE_STD, 8, 24, 172); }
static void case_galore_full(rec *r) { galore_case(r, AF_PROJECTION_FULL, 16, 300, 68); }
static void case_lion(rec *r) { optimize(r, AF_OPTIMIZER_LION); }
static void case_adafactor(rec *r) { optimize(r, AF_OPTIMIZER_ADAFACTOR); }
static void case_adafactor_wide(rec *r) { optimize_matrix(r, AF_OPTIMIZER_ADAFACTOR, 1100, 132); }
/* Blocks of 256 and one that is cut short. */
static void case_lion_8bit(rec *r) { optimize_matrix(r, AF_OPTIMIZER_LION_8BIT, 41, 129); }
static void case_rmsprop_8bit(rec *r) { optimize_matrix(r, AF_OPTIMIZER_RMSPROP_8BIT, 41, 129); }
static void case_ademamix_8bit(rec *r) { optimize_matrix(r, AF_OPTIMIZER_ADEMAMIX_8BIT, 41, 129); }
/* Parameters in bf16; the sums of gradients are f32. */
static void optimize_bf16_by(rec *r, af_optimizer_opts o)
{
    o.weight_decay = 0.1;
    o.max_grad_norm = 1;
    o.seed = 42;
    af_tensor *p =
        rec_add(r, af_graph_param(r->g, "p", AF_DTYPE_BF16, 2, (int64_t[]){40, 128}), -1, 1);
    af_tensor *y = af_cast(r->g, p, AF_DTYPE_F32);
    finish(r, af_mul(r->g, y, y));
    r->outs = 0;
    af_graph_optimizer(r->g, &o);
    af_graph_set_learning_rate(r->g, 1e-2);
    r->out[r->outs++] = p;
    r->step = true;
}
static void optimize_bf16(rec *r, af_optimizer_kind kind, af_rounding rounding)
{
    optimize_bf16_by(r, (af_optimizer_opts){.kind = kind, .rounding = rounding});
}
static void galore_bf16(rec *r, af_rounding rounding)
{
    optimize_bf16_by(
        r,
        (af_optimizer_opts){
            .kind = AF_OPTIMIZER_GALORE, .rounding = rounding, .rank = 8, .scale = 1, .eps = 1e-3});
    af_graph_set_step(r->g, 401);
}
static void case_galore_bf16(rec *r) { galore_bf16(r, AF_ROUNDING_NEAREST); }
static void case_galore_stochastic(rec *r) { galore_bf16(r, AF_ROUNDING_STOCHASTIC); }
static void case_galore_kahan(rec *r) { galore_bf16(r, AF_ROUNDING_KAHAN); }
static void case_adamw_bf16(rec *r) { optimize_bf16(r, AF_OPTIMIZER_ADAMW, AF_ROUNDING_NEAREST); }
static void case_adam_stochastic(rec *r)
{
    optimize_bf16(r, AF_OPTIMIZER_ADAM, AF_ROUNDING_STOCHASTIC);
}
static void case_adamw_kahan(rec *r) { optimize_bf16(r, AF_OPTIMIZER_ADAMW, AF_ROUNDING_KAHAN); }
static void case_adamw_8bit_bf16(rec *r)
{
    optimize_bf16(r, AF_OPTIMIZER_ADAMW_8BIT, AF_ROUNDING_NEAREST);
}
static void case_adamw_8bit_stochastic(rec *r)
{
    optimize_bf16(r, AF_OPTIMIZER_ADAMW_8BIT, AF_ROUNDING_STOCHASTIC);
}
static void case_adamw_8bit_kahan(rec *r)
{
    optimize_bf16(r, AF_OPTIMIZER_ADAMW_8BIT, AF_ROUNDING_KAHAN);
}
#endif
