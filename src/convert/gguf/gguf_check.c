/* gguf_check.c - see gguf_check.h.
 *
 * What GGUF has no key for, a reader takes from the architecture's name. A model that departs from
 * it would be written silently and generate nonsense; so the file is read as any reader would,
 * and the two descriptions are compared where a difference changes what the model computes. */
#include "convert/gguf/gguf_check.h"

#include "base/log.h"
#include "format/config/hf_config_check.h"

#include <math.h>

typedef struct fact {
    const char *key;
    double want, got;
} fact;

static bool same(double a, double b) { return fabs(a - b) <= 2e-6 * AF_MAX(fabs(a), fabs(b)); }

static af_status differs(const char *key, double want, double got, af_error *err)
{
    return af_fail(err, AF_EUNSUPPORTED,
                   "GGUF cannot describe this model: %s is %.9g, and the file would be read as "
                   "%.9g",
                   key, want, got);
}

/* Groups that are all used choose nothing. */
static int64_t groups(const af_model_spec *s)
{
    return s->router.groups > s->router.groups_used ? s->router.groups : 1;
}

static int64_t groups_used(const af_model_spec *s)
{
    return groups(s) > 1 ? s->router.groups_used : 0;
}

static int64_t group_best(const af_model_spec *s)
{
    return groups(s) > 1 ? s->router.group_best : 0;
}

/* How queries grow with the position, where a layer has such. */
static double query_scale(const af_model_spec *s)
{
    bool any = !s->arch->query_scale_still;
    for (int i = 0; i < s->layers; i++)
        any |= s->layer[i].rope < 0;
    return any ? s->query_scale : 0;
}

static double query_length(const af_model_spec *s)
{
    return query_scale(s) > 0 ? (double)s->query_scale_from : 0;
}

/* Sizes of the layers as one number. */
static double layer_sum(const af_model_spec *s)
{
    double sum = 0;
    for (int i = 0; i < s->layers; i++) {
        const af_layer_spec *l = &s->layer[i];
        sum += (i + 1.0) * ((double)l->ffn + 3 * l->kv_heads + 7 * l->head_dim + 11 * l->kv_from +
                            13 * l->k_is_v + 17 * l->heads);
    }
    return sum;
}

static af_status check_sizes(const af_model_spec *a, const af_model_spec *b, af_error *err)
{
    const fact facts[] = {
        {"vocab_size", (double)a->vocab, (double)b->vocab},
        {"hidden_size", (double)a->width, (double)b->width},
        {"intermediate_size", (double)a->ffn, (double)b->ffn},
        {"num_hidden_layers", a->layers, b->layers},
        {"num_attention_heads", a->layer[0].heads, b->layer[0].heads},
        {"num_key_value_heads", a->kv_heads, b->kv_heads},
        {"head_dim", a->head_dim, b->head_dim},
        {"partial_rotary_factor (rotated values)", a->rope[0].rotary_dim, b->rope[0].rotary_dim},
        {"num_experts", a->experts, b->experts},
        {"num_experts_per_tok", a->experts_used, b->experts_used},
        {"moe_intermediate_size", (double)a->expert_ffn, (double)b->expert_ffn},
        {"norm_topk_prob", a->norm_topk && a->experts, b->norm_topk && b->experts},
        {"swiglu_limit", a->router.clamp, b->router.clamp},
        {"moe_router_logit_softcapping", a->router.softcap, b->router.softcap},
        {"gating (per-head)", a->attn_gate_heads, b->attn_gate_heads},
        {"routed_scaling_factor", a->router.scale, b->router.scale},
        {"n_group", (double)groups(a), (double)groups(b)},
        {"topk_group", (double)groups_used(a), (double)groups_used(b)},
        {"the number of experts that score their group (topk_method)", (double)group_best(a),
         (double)group_best(b)},
        {"shared_expert_combination_strategy (average)",
         a->router.shared_ffn && a->router.shared_mean,
         b->router.shared_ffn && b->router.shared_mean},
        {"scoring_func (sigmoid)", a->router.sigmoid, b->router.sigmoid},
        {"q_lora_rank", (double)a->latent.q_lora_rank, (double)b->latent.q_lora_rank},
        {"kv_lora_rank", (double)a->latent.kv_lora_rank, (double)b->latent.kv_lora_rank},
        {"qk_nope_head_dim", (double)a->latent.qk_nope_dim, (double)b->latent.qk_nope_dim},
        {"v_head_dim", (double)a->latent.v_dim, (double)b->latent.v_dim},
        {"attention_value_scale", a->value_scale, b->value_scale},
        {"rope_interleave", a->rope_pairs, b->rope_pairs},
        {"parallel_attn", a->parallel, b->parallel},
        {"n_shared_experts (width)", (double)a->router.shared_ffn, (double)b->router.shared_ffn},
        {"tie_word_embeddings", a->tied, b->tied},
        {"rms_norm_eps", a->eps, b->eps},
        {"conv_L_cache (linear_conv_kernel_dim, mamba_d_conv)", (double)a->state.conv_kernel,
         (double)b->state.conv_kernel},
        {"heads of states", (double)a->state.heads, (double)b->state.heads},
        {"their values", (double)a->state.head_dim, (double)b->state.head_dim},
        {"key heads of states", (double)a->state.key_heads, (double)b->state.key_heads},
        {"their keys", (double)a->state.key_dim, (double)b->state.key_dim},
        {"time_step_rank (mamba_dt_rank)", (double)a->state.step_rank, (double)b->state.step_rank},
        {"mixer_rms_eps", a->state.step_eps, b->state.step_eps},
        {"time_step_min (time_step_limit)", a->state.step_min, b->state.step_min},
        {"the largest time step (time_step_limit)", a->state.step_max, b->state.step_max},
        {"moe_latent_size", (double)a->router.latent, (double)b->router.latent},
        {"mlp_hidden_act (relu2, xielu)", a->plain_act, b->plain_act},
        {"the scale of attention (query_pre_attn_scalar, attention_multiplier)", a->attn_scale,
         b->attn_scale},
        {"alibi", a->alibi, b->alibi},
        {"apply_residual_connection_post_layernorm", a->residual_normed, b->residual_normed},
        {"clip_qkv", a->qkv_clip, b->qkv_clip},
        {"attn_scale (attn_temperature_tuning, llama_4_scaling_beta)", query_scale(a),
         query_scale(b)},
        {"floor_scale", query_length(a), query_length(b)},
        {"use_qk_norm", a->qk_norm_still, b->qk_norm_still},
        {"attn_logit_softcapping", a->attn_softcap, b->attn_softcap},
        {"final_logit_softcapping", a->logit_softcap, b->logit_softcap},
        {"embedding_multiplier", a->embed_scale, b->embed_scale},
        {"residual_multiplier", a->residual_scale, b->residual_scale},
        {"logits_scaling", a->logit_scale, b->logit_scale},
        {"num_kv_shared_layers, sizes of layers", layer_sum(a), layer_sum(b)},
        {"altup_num_inputs", (double)a->altup.streams, (double)b->altup.streams},
        {"laurel_rank", (double)a->altup.laurel, (double)b->altup.laurel},
        {"vocab_size_per_layer_input", (double)a->per_layer_vocab, (double)b->per_layer_vocab},
        {"hidden_size_per_layer_input", (double)a->per_layer_input, (double)b->per_layer_input},
        {"max_position_embeddings", (double)a->max_positions, (double)b->max_positions},
        {"the number of tensors (attention_bias, mlp_bias, norms)", a->tensors, b->tensors},
    };
    for (size_t i = 0; i < AF_LEN(facts); i++)
        if (!same(facts[i].want, facts[i].got))
            return differs(facts[i].key, facts[i].want, facts[i].got, err);
    return AF_OK;
}

static const char *act_name(af_act a)
{
    return a == AF_ACT_SILU        ? "silu"
           : a == AF_ACT_GELU_TANH ? "gelu_pytorch_tanh"
           : a == AF_ACT_GELU      ? "gelu"
                                   : "relu";
}

static bool has_window(const af_model_spec *s)
{
    for (int i = 0; i < s->layers; i++)
        if (s->layer[i].window)
            return true;
    return false;
}

static bool has_rope(const af_model_spec *s)
{
    for (int i = 0; i < s->layers; i++)
        if (s->layer[i].rope >= 0)
            return true;
    return false;
}

/* A file without any window is read with full attention, which is right for short texts: that is
 * logged. Another pattern of windows is wrong for all but the shortest. */
static af_status check_windows(const af_model_spec *a, const af_model_spec *b, af_error *err)
{
    if (!has_window(a) && strcmp(a->arch->gguf, "cohere2") == 0) /* it asks for their length */
        return af_fail(err, AF_EUNSUPPORTED,
                       "GGUF cannot describe this model: llama.cpp has no layers without a sliding "
                       "window alone (layer_types) for architecture 'cohere2'");
    if (has_window(a) && !has_window(b)) {
        int i = 0;
        while (!a->layer[i].window)
            i++;
        af_log_write(AF_LOG_WARN,
                     "GGUF has no sliding window for architecture '%s': beyond %d tokens the file "
                     "attends to more than the model did",
                     a->arch->gguf, a->layer[i].window);
        return AF_OK;
    }
    for (int i = 0; i < a->layers; i++)
        if (a->layer[i].chunk != b->layer[i].chunk)
            return af_fail(err, AF_EUNSUPPORTED,
                           "GGUF cannot describe this model: the chunks of layer %d "
                           "(attention_chunk_size, layer_types) are %d tokens, and the file would "
                           "be read with %d",
                           i, a->layer[i].chunk, b->layer[i].chunk);
    for (int i = 0; i < a->layers; i++)
        if (a->layer[i].window != b->layer[i].window)
            return af_fail(err, AF_EUNSUPPORTED,
                           "GGUF cannot describe this model: the window of layer %d "
                           "(sliding_window, layer_types) is %d, and the file would be read as %d",
                           i, a->layer[i].window, b->layer[i].window);
    return AF_OK;
}

static const af_rope_set *rope_of(const af_model_spec *s, int layer)
{
    return s->layer[layer].rope < 0 ? NULL : &s->rope[s->layer[layer].rope];
}

/* Frequencies for a short text and for one of full length, and the scale of cos and sin. */
static af_status check_rope(const af_model_spec *a, const af_model_spec *b, int layer,
                            af_error *err)
{
    enum { HALF_MAX = 4096 };
    const af_rope_set *p = rope_of(a, layer), *q = rope_of(b, layer);
    const af_rope_config *x = p ? &p->config : NULL, *y = q ? &q->config : NULL;
    const int half = p ? p->rotary_dim / 2 : 0;
    static const char *const where[] = {"short", "long"};
    float f[HALF_MAX], g[HALF_MAX];
    if (!x != !y)
        return af_fail(err, AF_EUNSUPPORTED,
                       "GGUF cannot describe this model: layer %d has %s rotary embedding "
                       "(no_rope_layers), and the file would be read with%s",
                       layer, x ? "a" : "no", y ? " one" : "out");
    if (!x || half > HALF_MAX)
        return AF_OK;
    if (!same(af_rope_scale(x), af_rope_scale(y)))
        return differs("the scale of rotary embedding (attention_factor, mscale)", af_rope_scale(x),
                       af_rope_scale(y), err);
    for (int k = 0; k < 2; k++) {
        const int64_t length = k ? a->max_positions : 1;
        af_rope_inv_freq(f, x, p->dim, a->max_positions, length);
        af_rope_inv_freq(g, y, q->dim, b->max_positions, length);
        for (int i = 0; i < half; i++)
            if (fabsf(f[i] - g[i]) > 1e-5f * fabsf(f[i]))
                return af_fail(err, AF_EUNSUPPORTED,
                               "GGUF cannot describe this model: with rope_scaling '%s' frequency "
                               "%d of layer %d is %.9g for a %s text, and the file would be read "
                               "as %.9g",
                               af_rope_type_name(x->type), i, layer, (double)f[i], where[k],
                               (double)g[i]);
    }
    return AF_OK;
}

static af_status check_layers(const af_model_spec *a, const af_model_spec *b, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(check_windows(a, b, err));
    for (int i = 0; i < a->layers; i++) {
        if (a->layer[i].mixer != b->layer[i].mixer)
            return af_fail(err, AF_EUNSUPPORTED,
                           "GGUF cannot describe this model: layer %d (layer_types) would be read "
                           "as another kind",
                           i);
        if (a->layer[i].mlp != b->layer[i].mlp)
            return af_fail(err, AF_EUNSUPPORTED,
                           "GGUF cannot describe this model: layer %d has %s experts "
                           "(decoder_sparse_step, mlp_only_layers), and the file would be read "
                           "with%s",
                           i, a->layer[i].mlp == AF_MLP_EXPERTS ? "its" : "no",
                           b->layer[i].mlp == AF_MLP_EXPERTS ? " them" : "out");
        /* every layer of one kind has the same rotation as the first of it */
        if (i == 0 || a->layer[i].rope != a->layer[i - 1].rope ||
            b->layer[i].rope != b->layer[i - 1].rope)
            AF_TRY(check_rope(a, b, i, err));
    }
done:
    return st;
}

/* What llama.cpp's loader of an architecture takes beyond weights, norms and biases of q, k and v:
 * a file with a tensor it does not know is refused there. */
typedef struct taker {
    const char *arch;
    bool biases;  /* of the output projection and the mlp */
    bool freqs;   /* rope_freqs: llama3 scaling */
    bool factors; /* rope_factors_short and _long */
    bool tied, untied;
    bool square; /* heads * head_dim must be the width */
    bool biased; /* biases must be there */
    bool convs;  /* biases of convolutions */
    bool slides; /* a layer must slide */
} taker;

static const taker *taker_of(const char *arch)
{
    static const taker list[] = {
        {"llama", .biases = true, .freqs = true, .factors = true, .tied = true, .untied = true},
        {"granite", .biases = true, .freqs = true, .factors = true, .tied = true, .untied = true},
        {"phi3", .factors = true, .tied = true, .untied = true},
        {"gemma", .tied = true},
        {"gemma2", .tied = true},
        {"cohere2moe", .freqs = true, .tied = true, .untied = true, .slides = true},
        {"gemma3n", .tied = true, .untied = true, .slides = true},
        {"gemma4", .freqs = true, .tied = true, .untied = true},
        {"olmo2", .untied = true},
        {"olmo", .square = true, .tied = true, .untied = true},
        {"olmoe", .untied = true},
        {"starcoder2", .biases = true, .biased = true, .tied = true, .untied = true},
        {"phi2", .biases = true, .untied = true},
        {"nemotron", .biases = true, .square = true, .untied = true},
        {"stablelm", .untied = true},
        {"command-r", .tied = true},
        {"cohere2", .square = true, .tied = true},
        {"chatglm", .square = true, .tied = true, .untied = true},
        {"jais2", .biases = true, .biased = true, .tied = true, .untied = true},
        {"arcee", .freqs = true, .tied = true, .untied = true},
        {"exaone4", .freqs = true, .tied = true, .untied = true},
        {"apertus", .freqs = true, .untied = true},
        {"gpt-oss", .biases = true, .untied = true},
        {"granitemoe", .biases = true, .freqs = true, .factors = true, .tied = true,
         .untied = true},
        {"granite_swa", .biases = true, .freqs = true, .factors = true, .tied = true,
         .untied = true, .slides = true},
        {"minimax-m2", .untied = true},
        {"mimo2", .untied = true, .slides = true},
        {"llama4", .freqs = true, .tied = true, .untied = true},
        {"deepseek", .square = true, .untied = true},
        {"bailingmoe", .untied = true},
        {"bailingmoe2", .square = true, .untied = true},
        {"baichuan", .square = true, .untied = true},
        {"internlm2", .square = true, .untied = true},
        {"minicpm", .biases = true, .freqs = true, .factors = true, .tied = true, .untied = true},
        {"exaone", .freqs = true, .tied = true, .untied = true},
        {"orion", .square = true, .untied = true},
        {"xverse", .square = true, .untied = true},
        {"minicpm3", .factors = true, .tied = true, .untied = true},
        {"mamba", .convs = true, .tied = true, .untied = true},
        {"mamba2", .convs = true, .tied = true, .untied = true},
        {"falcon-h1", .biases = true, .convs = true, .tied = true, .untied = true},
        {"jamba", .convs = true, .square = true, .tied = true, .untied = true},
        {"dots1", .untied = true},
        {"kimi-linear", .untied = true},
        {"bailingmoe3", .untied = true},
        {"exaone-moe", .freqs = true, .untied = true},
        {"mellum", .untied = true},
        {"granitehybrid", .biases = true, .convs = true, .tied = true, .untied = true},
        {"nemotron_h", .biases = true, .convs = true, .tied = true, .untied = true},
        {"nemotron_h_moe", .convs = true, .tied = true, .untied = true},
        {"gptneox", .biases = true, .biased = true, .untied = true},
        {"dbrx", .square = true, .untied = true},
        {"bloom", .biases = true, .biased = true, .tied = true, .untied = true},
        {"falcon", .tied = true, .untied = true},
        {"gpt2", .biases = true, .biased = true, .tied = true, .untied = true},
        {"starcoder", .biases = true, .biased = true, .tied = true, .untied = true},
        {"others", .tied = true, .untied = true},
    };
    size_t i = 0;
    while (i + 1 < AF_LEN(list) && strcmp(list[i].arch, arch) != 0)
        i++;
    return &list[i];
}

static bool has_slot(const af_model_spec *s, af_slot slot)
{
    for (int i = 0; i < s->tensors; i++)
        if (s->tensor[i].slot == slot)
            return true;
    return false;
}

/* A tensor GGUF has no name for. */
static bool unnamed(const af_model_spec *s)
{
    for (int i = 0; i < s->tensors; i++)
        if ((!s->tensor[i].gguf || !s->tensor[i].gguf[0]) && !af_slot_is_xielu(s->tensor[i].slot))
            return true;
    return false;
}

/* llama.cpp has the sizes of the two published models in its source. */
static const char *gemma3n_lacks(const af_model_spec *s)
{
    enum { SPARSE = 10, OWN = AF_GEMMA3N_OWN_KV, LAUREL = 64, INPUT = 256 };
    if (s->altup.streams != AF_ALTUP_STREAMS_MAX || s->altup.active != 0)
        return "number of streams other than 4, or another active one than the first "
               "(altup_num_inputs, altup_active_idx)";
    if (s->altup.laurel != LAUREL || s->per_layer_input != INPUT)
        return "laurel_rank other than 64, or hidden_size_per_layer_input other than 256";
    if (!s->altup.scaled)
        return "streams without a scale (altup_correct_scale false)";
    if (s->per_layer_vocab > s->vocab)
        return "vocab_size_per_layer_input above vocab_size";
    if (s->logit_softcap != 30)
        return "final_logit_softcapping other than 30";
    for (int i = 0; i < s->layers; i++) {
        const af_layer_spec *l = &s->layer[i];
        if (l->ffn != s->layer[0].ffn)
            return "intermediate_size that differs between layers";
        if (l->sparse != (i < SPARSE) || (l->sparse && fabs(l->sparsity - 1.6448536) > 1e-4))
            return "activation_sparsity_pattern other than 0.95 in the first 10 layers";
        if (l->kv_from != (i < OWN ? i : OWN - (l->window ? 2 : 1)))
            return "num_kv_shared_layers that leaves other than 20 layers, of which the last two "
                   "are a sliding and a full one";
    }
    return NULL;
}

/* What llama.cpp has not, of MLPs, norms and states of this model; NULL: nothing. */
static const char *layers_lack(const af_model_spec *s, const taker *t)
{
    const bool mlp_bias = has_slot(s, AF_SLOT_GATE_BIAS) || has_slot(s, AF_SLOT_UP_BIAS) ||
                          has_slot(s, AF_SLOT_DOWN_BIAS);
    if ((!t->biases || s->mup.given) && has_slot(s, AF_SLOT_O_BIAS))
        return "o_proj.bias (attention_bias)";
    if (!t->biases && mlp_bias)
        return "biases of the mlp (mlp_bias)";
    if (s->arch->qk_norm_heads && !s->arch->qk_norm_apart && has_slot(s, AF_SLOT_Q_NORM))
        return "norm with weights for every head in models of any depth (use_qk_norm)";
    if ((has_slot(s, AF_SLOT_IN_BIAS) || has_slot(s, AF_SLOT_OUT_BIAS)) && t->convs)
        return "biases of in_proj and out_proj (mamba_proj_bias)";
    if (has_slot(s, AF_SLOT_CONV_BIAS) && !t->convs)
        return "biases of short convolutions (conv_bias)";
    if (t->convs && s->state.key_heads > 1 && s->state.norm_groups <= 1)
        return "norm over several groups (mamba_n_groups above 1)";
    if (s->arch->plain_mlp && s->experts && has_slot(s, AF_SLOT_UP))
        return "layers with an MLP and layers with experts (- and E of hybrid_override_pattern)";
    if (s->arch->gguf_cut_qkv && has_slot(s, AF_SLOT_QKV_BIAS))
        return "biases of fused queries, keys and values";
    if (strcmp(s->arch->gguf, "baichuan") == 0 &&
        s->layers != (s->alibi > 0 ? AF_BAICHUAN_ALIBI_LAYERS : AF_BAICHUAN_ROPE_LAYERS))
        return "number of layers other than 32, or 40 with ALiBi,";
    if (strcmp(s->arch->gguf, "bailingmoe") == 0 && s->layer[0].mlp != AF_MLP_EXPERTS)
        return "layers without experts (first_k_dense_replace)";
    if (s->arch->gguf_kv_whole && !s->latent.q_lora_rank)
        return "queries without a low rank (q_lora_rank null)";
    if (strcmp(s->arch->gguf, "kimi-linear") == 0 && s->latent.q_lora_rank)
        return "queries with a low rank (q_lora_rank)";
    if (strcmp(s->arch->gguf, "bailingmoe3") == 0 && s->state.decay_bound == 0)
        return "decays without a bound (kda_safe_gate false)";
    if (strcmp(s->arch->gguf, "mimo2") == 0 && has_slot(s, AF_SLOT_Q_BIAS))
        return "biases of q_proj, k_proj and v_proj (attention_bias)";
    if (strcmp(s->arch->gguf, "llama4") == 0 && s->layers < 4)
        return "model of fewer than 4 layers";
    if (s->recurrent && !has_slot(s, AF_SLOT_CONV_BIAS) &&
        (t->convs || strncmp(s->arch->gguf, "nemotron_h", 10) == 0))
        return "convolutions without biases (use_conv_bias false)";
    if ((s->state.inner || strcmp(s->arch->gguf, "granitehybrid") == 0) &&
        s->state.heads * s->state.head_dim != 2 * s->width)
        return "Mamba layers of other than twice the width (expand)";
    if (s->state.gate_after && !s->state.no_norm)
        return "gate after the norm of Mamba layers (mamba_norm_before_gate true)";
    if (s->mup.given && s->tied && s->mup.head != s->embed_scale)
        return "head that is the embedding with other multipliers (tie_word_embeddings true)";
    if (t->convs && s->rope[0].dim != s->rope[0].rotary_dim)
        return "rotation of an odd number of values (partial_rotary_factor)";
    if (t->convs && !s->recurrent)
        return "model without Mamba layers";
    return NULL;
}

/* Architectures of layers with and without attention: llama.cpp ends with an assertion at the first
 * token when the model has one kind alone. */
static bool needs_both(const char *gguf)
{
    static const char *const names[] = {"qwen35",  "qwen35moe",   "qwen3next",  "lfm2",
                                        "lfm2moe", "kimi-linear", "bailingmoe3"};
    for (size_t i = 0; i < AF_LEN(names); i++)
        if (strcmp(names[i], gguf) == 0)
            return true;
    return false;
}

static bool has_one_kind(const af_model_spec *s)
{
    int attention = 0;
    for (int i = 0; i < s->layers; i++)
        attention +=
            s->layer[i].mixer == AF_MIXER_ATTENTION || s->layer[i].mixer == AF_MIXER_LATENT;
    return attention == 0 || attention == s->layers;
}

/* The same of experts, rotations and the head. */
static const char *rest_lacks(const af_model_spec *s, const taker *t)
{
    if (needs_both(s->arch->gguf) && has_one_kind(s))
        return "layers of one kind alone (layer_types)";
    if (has_slot(s, AF_SLOT_IN_B) && s->state.key_dim != s->state.head_dim)
        return "linear_value_head_dim other than linear_key_head_dim";
    if (strcmp(s->arch->gguf, "lfm2moe") == 0 && !s->router.choice_bias)
        return "router without expert_bias (use_expert_bias false)";
    if (!t->freqs && s->rope[0].config.type == AF_ROPE_LLAMA3)
        return "rope_scaling of type 'llama3'";
    if (!t->factors && s->rope[0].config.type == AF_ROPE_LONGROPE)
        return "rope_scaling of type 'longrope'";
    if (!t->tied && s->tied)
        return "head that is the embedding (tie_word_embeddings true)";
    if (!t->untied && !s->tied)
        return "head of its own (tie_word_embeddings false)";
    if (t->square && (int64_t)s->heads * s->head_dim != s->width)
        return "head_dim other than hidden_size / num_attention_heads";
    if (s->latent.kv_lora_rank && s->experts && !s->router.shared_ffn)
        return "mixture without shared experts (n_shared_experts 0)";
    if (t->slides && !has_window(s))
        return "model without sliding layers";
    if (t->slides && !has_rope(s))
        return "model without a rotation (layer_rope_theta 0 in all layers)";
    if (t->biased && !has_slot(s, AF_SLOT_O_BIAS))
        return "linears without biases (use_bias false)";
    return NULL;
}

af_status af_gguf_check_supported(const af_model_spec *s, af_error *err)
{
    if (s->labels)
        return af_fail(err, AF_EUNSUPPORTED,
                       "a model that classifies (%" PRId64 " labels) cannot be written as GGUF: "
                       "it has no head of tokens",
                       s->labels);
    if (!s->arch->gguf || !af_family_by_gguf(s->arch->gguf) || unnamed(s))
        return af_fail(err, AF_EUNSUPPORTED,
                       "models of type '%s' cannot be written as GGUF: this build knows no layout "
                       "of llama.cpp for them",
                       s->arch->model_type);
    const taker *t = taker_of(s->arch->gguf);
    const char *what = layers_lack(s, t);
    if (!what)
        what = rest_lacks(s, t);
    if (!what && s->altup.streams)
        what = gemma3n_lacks(s);
    if (!what)
        return AF_OK;
    return af_fail(err, AF_EUNSUPPORTED,
                   "GGUF cannot describe this model: llama.cpp has no %s for architecture '%s'",
                   what, s->arch->gguf);
}

af_status af_gguf_check_metadata(const af_model_spec *want, const char *path, af_error *err)
{
    af_status st = AF_OK;
    af_gguf *g = NULL;
    af_hf_config c = {0};
    af_model_spec got = {0};
    AF_TRY(af_gguf_open(&g, path, err));
    AF_TRY(af_hf_config_from_gguf(&c, g, err));
    AF_TRY(af_model_spec_init(&got, &c, err));
    AF_TRY(check_sizes(want, &got, err));
    if (want->act != got.act)
        AF_TRY(af_fail(err, AF_EUNSUPPORTED,
                       "GGUF cannot describe this model: hidden_act is '%s', and the file would be "
                       "read as '%s'",
                       act_name(want->act), act_name(got.act)));
    AF_TRY(check_layers(want, &got, err));
done:
    af_model_spec_clear(&got);
    af_hf_config_clear(&c);
    af_gguf_close(g);
    return st;
}
