/* arch_names.c - what tensors are called in folders and in GGUF: llama's names, and those a row of
 * the table has instead. */
#include "model/arch/arch_list.h"

static const struct {
    const char *hf, *gguf; /* inside a layer; whole names outside */
} names[AF_SLOT_COUNT] = {
    [AF_SLOT_ATTN_NORM] = {"input_layernorm.weight", "attn_norm.weight"},
    [AF_SLOT_POST_ATTN_NORM] = {"post_attention_layernorm.weight", "post_attention_norm.weight"},
    [AF_SLOT_MLP_NORM] = {"post_attention_layernorm.weight", "ffn_norm.weight"},
    [AF_SLOT_POST_MLP_NORM] = {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
    [AF_SLOT_ATTN_NORM_DOWN] = {"input_layernorm.W_down.weight", NULL},
    [AF_SLOT_ATTN_NORM_UP] = {"input_layernorm.W_up.weight", NULL},
    [AF_SLOT_MLP_NORM_DOWN] = {"post_attention_layernorm.W_down.weight", NULL},
    [AF_SLOT_MLP_NORM_UP] = {"post_attention_layernorm.W_up.weight", NULL},
    [AF_SLOT_Q] = {"self_attn.q_proj.weight", "attn_q.weight"},
    [AF_SLOT_K] = {"self_attn.k_proj.weight", "attn_k.weight"},
    [AF_SLOT_V] = {"self_attn.v_proj.weight", "attn_v.weight"},
    [AF_SLOT_QKV] = {"self_attn.qkv_proj.weight", "attn_qkv.weight"},
    [AF_SLOT_QKV_BIAS] = {"self_attn.qkv_proj.bias", "attn_qkv.bias"},
    [AF_SLOT_O] = {"self_attn.o_proj.weight", "attn_output.weight"},
    [AF_SLOT_Q_BIAS] = {"self_attn.q_proj.bias", "attn_q.bias"},
    [AF_SLOT_K_BIAS] = {"self_attn.k_proj.bias", "attn_k.bias"},
    [AF_SLOT_V_BIAS] = {"self_attn.v_proj.bias", "attn_v.bias"},
    [AF_SLOT_O_BIAS] = {"self_attn.o_proj.bias", "attn_output.bias"},
    [AF_SLOT_Q_NORM] = {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    [AF_SLOT_K_NORM] = {"self_attn.k_norm.weight", "attn_k_norm.weight"},
    [AF_SLOT_Q_NORM_BIAS] = {"self_attn.q_norm.bias", NULL},
    [AF_SLOT_K_NORM_BIAS] = {"self_attn.k_norm.bias", NULL},
    [AF_SLOT_GATE] = {"mlp.gate_proj.weight", "ffn_gate.weight"},
    [AF_SLOT_UP] = {"mlp.up_proj.weight", "ffn_up.weight"},
    [AF_SLOT_GATE_UP] = {"mlp.gate_up_proj.weight", "ffn_up.weight"},
    [AF_SLOT_DOWN] = {"mlp.down_proj.weight", "ffn_down.weight"},
    [AF_SLOT_GATE_BIAS] = {"mlp.gate_proj.bias", "ffn_gate.bias"},
    [AF_SLOT_UP_BIAS] = {"mlp.up_proj.bias", "ffn_up.bias"},
    [AF_SLOT_DOWN_BIAS] = {"mlp.down_proj.bias", "ffn_down.bias"},
    [AF_SLOT_ROUTER] = {"mlp.gate.weight", "ffn_gate_inp.weight"},
    [AF_SLOT_EXPERTS_GATE_UP] = {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight"},
    [AF_SLOT_EXPERTS_UP] = {"mlp.experts.up_proj", "ffn_up_exps.weight"},
    [AF_SLOT_EXPERTS_IN] = {"mlp.fc1_latent_proj.weight", "ffn_latent_down.weight"},
    [AF_SLOT_EXPERTS_OUT] = {"mlp.fc2_latent_proj.weight", "ffn_latent_up.weight"},
    [AF_SLOT_EXPERTS_DOWN] = {"mlp.experts.down_proj", "ffn_down_exps.weight"},
    [AF_SLOT_ATTN_NORM_BIAS] = {"input_layernorm.bias", "attn_norm.bias"},
    [AF_SLOT_MLP_NORM_BIAS] = {"post_attention_layernorm.bias", "ffn_norm.bias"},
    [AF_SLOT_SINKS] = {"self_attn.sinks", "attn_sinks.weight"},
    [AF_SLOT_ATTN_GATE] = {"self_attn.gate_proj.weight", "attn_gate.weight"},
    [AF_SLOT_LAMBDA_Q1] = {"self_attn.lambda_q1", NULL},
    [AF_SLOT_LAMBDA_K1] = {"self_attn.lambda_k1", NULL},
    [AF_SLOT_LAMBDA_Q2] = {"self_attn.lambda_q2", NULL},
    [AF_SLOT_LAMBDA_K2] = {"self_attn.lambda_k2", NULL},
    [AF_SLOT_ATTN_SUB_NORM] = {"self_attn.attn_sub_norm.weight", "attn_sub_norm.weight"},
    [AF_SLOT_MLP_SUB_NORM] = {"mlp.ffn_sub_norm.weight", "ffn_sub_norm.weight"},
    [AF_SLOT_ATTN_ROUTER] = {"self_attention.experts.router.layer.weight", NULL},
    [AF_SLOT_ATTN_EXPERTS_IN] = {"self_attention.experts.input_linear.weight", NULL},
    [AF_SLOT_ATTN_EXPERTS_OUT] = {"self_attention.experts.output_linear.weight", NULL},
    [AF_SLOT_ATTN_EXPERTS_BIAS] = {"self_attention.experts.bias", NULL},
    [AF_SLOT_EXPERTS_SUM_BIAS] = {"mlp.bias", NULL},
    [AF_SLOT_Q_A] = {"self_attn.q_a_proj.weight", "attn_q_a.weight"},
    [AF_SLOT_Q_A_BIAS] = {"self_attn.q_a_proj.bias", NULL},
    [AF_SLOT_Q_A_NORM] = {"self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight"},
    [AF_SLOT_Q_B] = {"self_attn.q_b_proj.weight", "attn_q_b.weight"},
    [AF_SLOT_KV_A] = {"self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight"},
    [AF_SLOT_KV_A_BIAS] = {"self_attn.kv_a_proj_with_mqa.bias", NULL},
    [AF_SLOT_KV_A_NORM] = {"self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight"},
    [AF_SLOT_KV_B] = {"self_attn.kv_b_proj.weight", "attn_kv_b.weight"},
    [AF_SLOT_INDEX_Q] = {"self_attn.indexer.wq_b.weight", NULL},
    [AF_SLOT_INDEX_K] = {"self_attn.indexer.wk.weight", NULL},
    [AF_SLOT_INDEX_Q_NORM] = {"self_attn.indexer.q_norm.weight", NULL},
    [AF_SLOT_INDEX_NORM] = {"self_attn.indexer.k_norm.weight", NULL},
    [AF_SLOT_INDEX_NORM_BIAS] = {"self_attn.indexer.k_norm.bias", NULL},
    [AF_SLOT_INDEX_WEIGHTS] = {"self_attn.indexer.weights_proj.weight", NULL},
    [AF_SLOT_IN] = {"linear_attn.in_proj_qkv.weight", "attn_qkv.weight"},
    [AF_SLOT_IN_K] = {"linear_attn.k_proj.weight", NULL},
    [AF_SLOT_IN_V] = {"linear_attn.v_proj.weight", NULL},
    [AF_SLOT_IN_Z] = {"linear_attn.in_proj_z.weight", "attn_gate.weight"},
    [AF_SLOT_IN_Z_A] = {"self_attn.g_a_proj.weight", "ssm_g_a.weight"},
    [AF_SLOT_IN_A] = {"linear_attn.in_proj_a.weight", "ssm_alpha.weight"},
    [AF_SLOT_IN_B] = {"linear_attn.in_proj_b.weight", "ssm_beta.weight"},
    [AF_SLOT_IN_BIAS] = {"linear_attn.in_proj.bias", "ssm_in.bias"},
    [AF_SLOT_CONV] = {"linear_attn.conv1d.weight", "ssm_conv1d.weight"},
    [AF_SLOT_CONV_BIAS] = {"linear_attn.conv1d.bias", "ssm_conv1d.bias"},
    [AF_SLOT_A_LOG] = {"linear_attn.A_log", "ssm_a"},
    [AF_SLOT_DT_BIAS] = {"linear_attn.dt_bias", "ssm_dt.bias"},
    [AF_SLOT_D] = {"mamba.D", "ssm_d"},
    [AF_SLOT_STATE_NORM] = {"linear_attn.norm.weight", "ssm_norm.weight"},
    [AF_SLOT_STEP_IN] = {"mixer.x_proj.weight", "ssm_x.weight"},
    [AF_SLOT_STEP_OUT] = {"mixer.dt_proj.weight", "ssm_dt.weight"},
    [AF_SLOT_STEP_NORM] = {"mamba.dt_layernorm.weight", "ssm_dt_norm.weight"},
    [AF_SLOT_STEP_B_NORM] = {"mamba.b_layernorm.weight", "ssm_b_norm.weight"},
    [AF_SLOT_STEP_C_NORM] = {"mamba.c_layernorm.weight", "ssm_c_norm.weight"},
    [AF_SLOT_OUT] = {"linear_attn.out_proj.weight", "ssm_out.weight"},
    [AF_SLOT_OUT_BIAS] = {"linear_attn.out_proj.bias", "ssm_out.bias"},
    [AF_SLOT_MIXER_NORM] = {"input_layernorm.weight", NULL},
    [AF_SLOT_SHARED_NORM] = {"input_layernorm.weight", NULL},
    [AF_SLOT_SHARED_LINEAR] = {"linear.weight", NULL},
    [AF_SLOT_USE_Q_IN] = {"self_attn.linear_q_adapter_list.*.0.weight", NULL},
    [AF_SLOT_USE_K_IN] = {"self_attn.linear_k_adapter_list.*.0.weight", NULL},
    [AF_SLOT_USE_V_IN] = {"self_attn.linear_v_adapter_list.*.0.weight", NULL},
    [AF_SLOT_USE_Q] = {"self_attn.linear_q_adapter_list.*.1.weight", NULL},
    [AF_SLOT_USE_K] = {"self_attn.linear_k_adapter_list.*.1.weight", NULL},
    [AF_SLOT_USE_V] = {"self_attn.linear_v_adapter_list.*.1.weight", NULL},
    [AF_SLOT_USE_GATE_UP_IN] = {"feed_forward.gate_up_proj_adapter_list.*.0.weight", NULL},
    [AF_SLOT_USE_GATE_UP] = {"feed_forward.gate_up_proj_adapter_list.*.1.weight", NULL},
    [AF_SLOT_ACT_P] = {"mlp.act_fn.alpha_p", NULL},
    [AF_SLOT_ACT_N] = {"mlp.act_fn.alpha_n", NULL},
    [AF_SLOT_ACT_BETA] = {"mlp.act_fn.beta", NULL},
    [AF_SLOT_ACT_EPS] = {"mlp.act_fn.eps", NULL},
    [AF_SLOT_ROUTER_BIAS] = {"mlp.router.bias", "ffn_gate_inp.bias"},
    [AF_SLOT_ROUTER_CHOICE] = {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    [AF_SLOT_ROUTER_SCALE] = {"router.scale", "ffn_gate_inp.scale"},
    [AF_SLOT_EXPERT_SCALE] = {"router.per_expert_scale", "ffn_down_exps.scale"},
    [AF_SLOT_EXPERTS_GATE_UP_BIAS] = {"mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias"},
    [AF_SLOT_EXPERTS_DOWN_BIAS] = {"mlp.experts.down_proj_bias", "ffn_down_exps.bias"},
    [AF_SLOT_SHARED_GATE] = {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"},
    [AF_SLOT_SHARED_UP] = {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
    [AF_SLOT_SHARED_GATE_UP] = {"mlp.shared_expert.gate_up_proj.weight", "ffn_up_shexp.weight"},
    [AF_SLOT_SHARED_DOWN] = {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"},
    [AF_SLOT_SHARED_ROUTER] = {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"},
    [AF_SLOT_EXPERTS_NORM] = {"pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight"},
    [AF_SLOT_POST_EXPERTS_NORM] = {"post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight"},
    [AF_SLOT_POST_DENSE_NORM] = {"post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight"},
    [AF_SLOT_PER_LAYER_GATE] = {"per_layer_input_gate.weight", "inp_gate.weight"},
    [AF_SLOT_PER_LAYER_PROJ] = {"per_layer_projection.weight", "proj.weight"},
    [AF_SLOT_PER_LAYER_NORM] = {"post_per_layer_input_norm.weight", "post_norm.weight"},
    [AF_SLOT_LAUREL_LEFT] = {"laurel.linear_left.weight", "laurel_l.weight"},
    [AF_SLOT_LAUREL_RIGHT] = {"laurel.linear_right.weight", "laurel_r.weight"},
    [AF_SLOT_LAUREL_NORM] = {"laurel.post_laurel_norm.weight", "laurel_post_norm.weight"},
    [AF_SLOT_ALTUP_ROUTER] = {"altup.modality_router.weight", "altup_router.weight"},
    [AF_SLOT_ALTUP_NORM] = {"altup.router_norm.weight", "altup_router_norm.weight"},
    [AF_SLOT_ALTUP_PREDICT] = {"altup.prediction_coefs.weight", "altup_predict_coef.weight"},
    [AF_SLOT_ALTUP_CORRECT] = {"altup.correction_coefs.weight", "altup_correct_coef.weight"},
    [AF_SLOT_ALTUP_SCALE] = {"altup.correct_output_scale", "altup_correct_scale.weight"},
    [AF_SLOT_ALTUP_OPEN_1] = {"altup_projections.0.weight", "altup_proj.weight"},
    [AF_SLOT_ALTUP_OPEN_2] = {"altup_projections.1.weight", "altup_proj.weight"},
    [AF_SLOT_ALTUP_OPEN_3] = {"altup_projections.2.weight", "altup_proj.weight"},
    [AF_SLOT_ALTUP_CLOSE_1] = {"altup_unembed_projections.0.weight", "altup_unembd_proj.weight"},
    [AF_SLOT_ALTUP_CLOSE_2] = {"altup_unembed_projections.1.weight", "altup_unembd_proj.weight"},
    [AF_SLOT_ALTUP_CLOSE_3] = {"altup_unembed_projections.2.weight", "altup_unembd_proj.weight"},
    [AF_SLOT_LAYER_SCALE] = {"layer_scalar", "layer_output_scale.weight"},
    [AF_SLOT_PROJECT_IN] = {"project_in.weight", NULL},
    [AF_SLOT_PROJECT_OUT] = {"project_out.weight", NULL},
    [AF_SLOT_HEAD_DENSE] = {"lm_head.dense.weight", NULL},
    [AF_SLOT_EMBED] = {"model.embed_tokens.weight", "token_embd.weight"},
    [AF_SLOT_EMBED_NORM] = {"model.embed_norm.weight", "token_embd_norm.weight"},
    [AF_SLOT_EMBED_NORM_BIAS] = {"model.embed_norm.bias", "token_embd_norm.bias"},
    [AF_SLOT_POSITIONS] = {"model.embed_positions.weight", "position_embd.weight"},
    [AF_SLOT_PER_LAYER_EMBED] = {"model.embed_tokens_per_layer.weight",
                                 "per_layer_token_embd.weight"},
    [AF_SLOT_PER_LAYER_MODEL_PROJ] = {"per_layer_model_projection.weight",
                                      "per_layer_model_proj.weight"},
    [AF_SLOT_PER_LAYER_MODEL_NORM] = {"model.per_layer_projection_norm.weight",
                                      "per_layer_proj_norm.weight"},
    [AF_SLOT_FINAL_NORM] = {"model.norm.weight", "output_norm.weight"},
    [AF_SLOT_FINAL_NORM_BIAS] = {"model.norm.bias", "output_norm.bias"},
    [AF_SLOT_HEAD_NORM] = {"lm_head.norm.weight", NULL},
    [AF_SLOT_HEAD] = {"lm_head.weight", "output.weight"},
    [AF_SLOT_HEAD_BIAS] = {"lm_head.bias", "output.bias"},
    [AF_SLOT_SCORE] = {"score.weight", "score.weight"},
};

static const af_slot_name *own_name(const af_arch *a, af_slot slot)
{
    for (const af_slot_name *n = a->names; n && (n->hf || n->gguf); n++)
        if (n->slot == slot)
            return n;
    return NULL;
}

const char *af_slot_hf_name(const af_arch *a, af_slot slot)
{
    const af_slot_name *own = own_name(a, slot);
    if (own && own->hf)
        return own->hf;
    if (slot == AF_SLOT_MLP_NORM && a->post_norm) /* where both exist, this one is renamed */
        return "pre_feedforward_layernorm.weight";
    return names[slot].hf;
}

const char *af_slot_gguf_name(const af_arch *a, af_slot slot)
{
    const af_slot_name *own = own_name(a, slot);
    return own && own->gguf ? own->gguf : names[slot].gguf;
}

bool af_path_is_table(const char *path, bool head)
{
    const char *dot = strrchr(path, '.'), *last = dot ? dot + 1 : path;
    const size_t n = strlen(last);
    for (int i = 0; af_arch_at(i); i++) {
        const char *name = af_slot_hf_name(af_arch_at(i), head ? AF_SLOT_HEAD : AF_SLOT_EMBED);
        const size_t size = strlen(name) - strlen(".weight");
        if (size >= n && strncmp(name + size - n, last, n) == 0 &&
            (size == n || name[size - n - 1] == '.'))
            return true;
    }
    return false;
}

const char *af_slot_xielu_key(af_slot s)
{
    static const char *const keys[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    return keys[s - AF_SLOT_ACT_P];
}
