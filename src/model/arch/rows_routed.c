/* rows_routed.c - ordinary attention, and routers that do more than a softmax. */
#include "model/arch/arch_rows.h"

static af_status gpt_oss_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)c;
    (void)err;
    for (int i = 0; i < s->layers; i++)
        s->layer[i].sinks = true;
    return AF_OK;
}

const af_slot_name af_deepseek_names[] = {
    {AF_SLOT_SHARED_GATE, "mlp.shared_experts.gate_proj.weight", NULL},
    {AF_SLOT_SHARED_UP, "mlp.shared_experts.up_proj.weight", NULL},
    {AF_SLOT_SHARED_DOWN, "mlp.shared_experts.down_proj.weight", NULL},
    {0},
};

const af_arch af_rows_routed[] = {
    {.model_type = "gpt_oss",
     .gguf = "gpt-oss",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .moe = true,
     .experts_whole = true,
     .experts_turned = true,
     .names = (const af_slot_name[]){{AF_SLOT_ROUTER, "mlp.router.weight", NULL},
                                     {AF_SLOT_MLP_NORM, NULL, "post_attention_norm.weight"},
                                     {0}},
     .fill = gpt_oss_fill},
    {.model_type = "glm4_moe",
     .gguf = "glm4moe",
     .pre_norm = true,
     .bias = AF_BIAS_APART,
     .qk_norm_config = true,
     .peft_converts = true,
     .moe = true,
     .no_router_loss = true,
     .names =
         (const af_slot_name[]){{AF_SLOT_SHARED_GATE, "mlp.shared_experts.gate_proj.weight", NULL},
                                {AF_SLOT_SHARED_UP, "mlp.shared_experts.up_proj.weight", NULL},
                                {AF_SLOT_SHARED_DOWN, "mlp.shared_experts.down_proj.weight", NULL},
                                {AF_SLOT_MLP_NORM, NULL, "post_attention_norm.weight"},
                                {0}}},
    {.model_type = "dots1",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .peft_converts = true,
     .moe = true,
     .no_router_loss = true,
     .names = af_deepseek_names},
    {0},
};
