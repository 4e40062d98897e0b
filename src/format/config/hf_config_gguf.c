/* hf_config_gguf.c - the same config from the metadata (and tensor list) of a GGUF file.
 *
 * Key names are "ARCH.key". What GGUF does not say is known from the family or read off the
 * tensors: a tied head has no output.weight, biases are there or not. */
#include "format/config/gguf_state.h"

#include <math.h>

typedef struct gguf_source {
    const af_gguf *g;
    const char *arch;
    char key[256];
} gguf_source;

/* "ARCH.suffix"; good until the next call. */
static const char *key_of(gguf_source *s, const char *suffix)
{
    snprintf(s->key, sizeof s->key, "%s.%s", s->arch, suffix);
    return s->key;
}

static int64_t get_int(gguf_source *s, const char *suffix, int64_t absent)
{
    return af_gguf_int(s->g, key_of(s, suffix), absent);
}

static double get_num(gguf_source *s, const char *suffix, double absent)
{
    return af_gguf_float(s->g, key_of(s, suffix), absent);
}

/* A number, or an array with one per layer; layers that differ are not supported. */
static af_status get_per_layer(gguf_source *s, const char *suffix, int64_t absent, int64_t *out,
                               af_error *err)
{
    const af_gguf_kv *kv = af_gguf_find_kv(s->g, key_of(s, suffix));
    *out = absent;
    if (!kv || kv->str || kv->count == 0)
        return AF_OK;
    *out = af_gguf_item_int(kv, 0);
    for (uint64_t i = 1; i < kv->count; i++)
        if (af_gguf_item_int(kv, i) != *out)
            return af_fail(err, AF_EUNSUPPORTED,
                           "%s differs between layers (%" PRId64 ", %" PRId64 ")", s->key, *out,
                           af_gguf_item_int(kv, i));
    return AF_OK;
}

static const char *copy_str(af_hf_config *c, const af_gguf *g, const char *key, const char *absent)
{
    const af_gguf_str s = af_gguf_string(g, key);
    const char *v =
        s.at ? af_arena_strndup(&c->arena, s.at, s.len) : af_arena_strdup(&c->arena, absent);
    return v ? v : "";
}

/* Kimi delta attention with latent attention between. */
static bool is_kda(const gguf_source *s)
{
    return strcmp(s->arch, "kimi-linear") == 0 || strcmp(s->arch, "bailingmoe3") == 0;
}

static bool is_latent(const gguf_source *s)
{
    return strcmp(s->arch, "deepseek2") == 0 || strcmp(s->arch, "mistral4") == 0 ||
           strcmp(s->arch, "minicpm3") == 0 || is_kda(s);
}

static af_status get_sizes(gguf_source *s, af_hf_config *c, const af_family *f, af_error *err)
{
    af_status st = AF_OK;
    const af_stored *embd = af_gguf_find(s->g, "token_embd.weight");
    const af_gguf_kv *tokens = af_gguf_find_kv(s->g, "tokenizer.ggml.tokens");
    c->hidden_size = get_int(s, "embedding_length", -1);
    c->num_hidden_layers = get_int(s, "block_count", -1);
    if (c->num_hidden_layers > 0) /* of which these predict further tokens */
        c->num_hidden_layers -= AF_MAX(get_int(s, "nextn_predict_layers", 0), 0);
    c->max_position_embeddings = get_int(s, "context_length", -1);
    c->vocab_size =
        embd ? embd->dim[0] : get_int(s, "vocab_size", tokens ? (int64_t)tokens->count : -1);
    const bool own = strcmp(s->arch, "gemma4") == 0 || strncmp(s->arch, "nemotron_h", 10) == 0;
    if (own) /* its layers differ: gguf_gemma4.c, gguf_state.c */
        c->intermediate_size = af_gguf_first_int(s->g, key_of(s, "feed_forward_length"), -1);
    else
        AF_TRY(get_per_layer(s, "feed_forward_length", -1, &c->intermediate_size, err));
    if (strcmp(s->arch, "laguna") == 0) /* each layer has its own: gguf_experts.c */
        c->num_attention_heads = af_gguf_first_int(s->g, key_of(s, "attention.head_count"), -1);
    else
        AF_TRY(get_per_layer(s, "attention.head_count", -1, &c->num_attention_heads, err));
    const bool mimo = strcmp(s->arch, "mimo2") == 0;
    if (f->state_layers || strcmp(s->arch, "gemma4") == 0 || mimo)
        c->num_key_value_heads = 0; /* below */
    else
        AF_TRY(get_per_layer(s, "attention.head_count_kv", c->num_attention_heads,
                             &c->num_key_value_heads, err));
    c->head_dim = get_int(s, "attention.key_length", 0);
    const int64_t v = get_int(s, "attention.value_length", c->head_dim);
    if (v != c->head_dim && !is_latent(s) && !mimo)
        return af_fail(err, AF_EUNSUPPORTED,
                       "%s.attention.key_length %" PRId64 " and value_length %" PRId64 " differ",
                       s->arch, c->head_dim, v);
    c->rms_norm_eps = get_num(s, "attention.layer_norm_rms_epsilon",
                              get_num(s, "attention.layer_norm_epsilon", f->eps));
    c->num_experts = get_int(s, "expert_count", 0);
    c->num_experts_per_tok = get_int(s, "expert_used_count", 0);
    c->moe_intermediate_size = get_int(s, "expert_feed_forward_length", 0);
    c->decoder_sparse_step = c->num_experts ? 1 : 0;
    c->norm_topk_prob = c->num_experts != 0; /* what llama.cpp computes for qwen3moe, mixtral */
    if (c->num_experts && c->intermediate_size < 1)
        c->intermediate_size = c->moe_intermediate_size;
    if (strcmp(f->model_type, "mixtral") == 0 || strcmp(f->model_type, "olmoe") == 0 ||
        strcmp(f->model_type, "dbrx") == 0)
        c->moe_intermediate_size = c->intermediate_size;
    if (strcmp(f->model_type, "olmoe") == 0)
        c->norm_topk_prob = false;
    if (strcmp(f->model_type, "qwen2_moe") == 0) {
        c->norm_topk_prob = false;
        c->router.shared_gate = true;
        c->router.shared_ffn =
            get_int(s, "expert_shared_feed_forward_length", c->intermediate_size);
    }
done:
    return st;
}

/* Values of a head. */
static int64_t head_of(gguf_source *s)
{
    const int64_t heads = get_int(s, "attention.head_count", 0);
    return get_int(s, "attention.key_length",
                   heads > 0 ? get_int(s, "embedding_length", 0) / heads : 0);
}

/* Whole heads are rotated, every layer has experts, and there are no norms of heads. */
static bool is_solar_open(gguf_source *s)
{
    const int64_t head = head_of(s);
    return get_int(s, "rope.dimension_count", head) == head &&
           get_int(s, "leading_dense_block_count", 0) == 0 &&
           !af_gguf_find(s->g, "blk.0.attn_q_norm.weight");
}

/* Half of a head is rotated, and there are no scales. */
static bool is_bamba(gguf_source *s)
{
    return af_gguf_bool(s->g, key_of(s, "rope.scaling.finetuned"), false) &&
           !af_gguf_find_kv(s->g, key_of(s, "attention.scale")) &&
           get_int(s, "expert_count", 0) == 0 &&
           (double)get_int(s, "rope.dimension_count", 0) == (double)head_of(s) / 2;
}

/* Routers of a file without expert_gating_func are sigmoids where they have a bias. */
static const char *latent_family(gguf_source *s)
{
    enum { NONE = 0, SIGMOID = 2 };
    if (strcmp(s->arch, "mistral4") == 0 || strcmp(s->arch, "minicpm3") == 0)
        return s->arch;
    if (is_kda(s))
        return af_family_by_gguf(s->arch)->model_type;
    if (get_int(s, "expert_count", 0) == 0)
        return "youtu";
    const int64_t gating = get_int(s, "expert_gating_func", NONE);
    char name[64];
    snprintf(name, sizeof name, "blk.%" PRId64 ".exp_probs_b.bias",
             get_int(s, "leading_dense_block_count", 0));
    return gating == SIGMOID || (gating == NONE && af_gguf_find(s->g, name)) ? "deepseek_v3"
                                                                             : "deepseek_v2";
}

/* What llama.cpp computes: with yarn, queries and keys are scaled as if mscale were
 * mscale_all_dim; in files without it, by the usual factor and the scores by its square. */
static void get_latent_rope(gguf_source *s, af_hf_config *c)
{
    af_rope_config *r = &c->rope;
    const double all = get_num(s, "rope.scaling.yarn_log_multiplier", 0) / 0.1;
    r->partial_rotary_factor = 1; /* of the rotated part, which has its own size */
    if (r->type != AF_ROPE_YARN)
        return;
    r->mscale = all;
    r->mscale_all_dim = all != 0 ? all : 1;
    r->attention_factor = all != 0 ? 1 : af_yarn_scale(r->factor);
}

static af_status get_latent(gguf_source *s, af_hf_config *c, af_error *err)
{
    af_latent_keys *l = &c->latent;
    const bool sigmoid = strcmp(c->model_type, "deepseek_v3") == 0 || is_kda(s);
    l->q_lora_rank = get_int(s, "attention.q_lora_rank", 0);
    l->kv_lora_rank = get_int(s, "attention.kv_lora_rank", 0);
    l->qk_rope_dim = get_int(s, "rope.dimension_count", 0);
    c->head_dim = get_int(s, "attention.key_length_mla", c->head_dim);
    l->v_dim = get_int(s, "attention.value_length_mla", get_int(s, "attention.value_length", 0));
    if (l->q_lora_rank < 0 || l->q_lora_rank > AF_CONFIG_WIDTH_MAX || l->kv_lora_rank < 1 ||
        l->kv_lora_rank > AF_CONFIG_WIDTH_MAX || l->qk_rope_dim < 2 || l->qk_rope_dim % 2 ||
        c->head_dim <= l->qk_rope_dim || c->head_dim > AF_CONFIG_WIDTH_MAX || l->v_dim < 1 ||
        l->v_dim > c->head_dim)
        return af_fail(err, AF_EFORMAT,
                       "sizes of latent attention do not fit: ranks %" PRId64 " and %" PRId64
                       ", heads of %" PRId64 " of which %" PRId64 " turn, values of %" PRId64,
                       l->q_lora_rank, l->kv_lora_rank, c->head_dim, l->qk_rope_dim, l->v_dim);
    l->qk_nope_dim = c->head_dim - l->qk_rope_dim;
    c->num_key_value_heads = c->num_attention_heads;
    get_latent_rope(s, c);
    c->query_scaling_beta = get_num(s, "attention.temperature_scale", 0);
    if (strcmp(s->arch, "minicpm3") == 0) { /* numbers of llama.cpp itself */
        l->rope_halves = true;
        c->embedding_multiplier = 12;
        c->residual_multiplier = 1.4 / sqrt((double)AF_MAX(c->num_hidden_layers, 1));
        c->logits_scaling = (double)c->hidden_size / 256;
    }
    if (!c->num_experts) {
        c->moe_intermediate_size = 0;
        return AF_OK;
    }
    const af_status st = af_config_gguf_deepseek(c, s->g, s->arch, false, err);
    c->router.sigmoid = sigmoid;
    c->router.eps = sigmoid ? 1e-20 : 0;
    if (strcmp(s->arch, "kimi-linear") == 0)
        c->norm_topk_prob = true; /* whatever the file says */
    return st;
}

/* A one-dimensional f32 tensor as numbers. */
static af_status get_factors(const af_gguf *g, af_hf_config *c, const char *name,
                             const double **out, int *count, af_error *err)
{
    const af_stored *w = af_gguf_find(g, name);
    if (!w)
        return AF_OK;
    const int64_t n = af_weight_count(w);
    if (w->dtype != AF_DTYPE_F32 || n > AF_CONFIG_ROPE_FACTORS_MAX)
        return af_fail(err, AF_EFORMAT, "tensor '%s' is not a short row of f32", name);
    double *v = af_arena_take(&c->arena, (uint64_t)AF_MAX(n, 1) * sizeof *v);
    if (!v)
        return af_fail_nomem(err, name, (uint64_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = ((const float *)w->data)[i];
    *out = v;
    *count = (int)n;
    return AF_OK;
}

double af_yarn_scale(double factor) { return factor <= 1 ? 1 : 0.1 * log(factor) + 1; }

/* Values are rotated in pairs. */
static af_status check_pairs(gguf_source *s, af_error *err)
{
    static const char *const names[] = {"rope.dimension_count", "rope.dimension_count_swa"};
    for (size_t i = 0; i < AF_LEN(names); i++) {
        const int64_t dims = get_int(s, names[i], 0);
        if (dims < 0 || dims % 2)
            return af_fail(err, AF_EFORMAT,
                           "%s is %" PRId64 ", not an even number: values are rotated in pairs",
                           key_of(s, names[i]), dims);
    }
    return AF_OK;
}

static af_status get_rope(gguf_source *s, af_hf_config *c, const af_family *f, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(check_pairs(s, err));
    af_rope_config r = {.theta = get_num(s, "rope.freq_base", 10000),
                        .factor = 1,
                        .beta_fast = get_num(s, "rope.scaling.yarn_beta_fast", 32),
                        .beta_slow = get_num(s, "rope.scaling.yarn_beta_slow", 1),
                        .truncate = true,
                        .partial_rotary_factor = 1};
    const int64_t head = c->head_dim                  ? c->head_dim
                         : c->num_attention_heads > 0 ? c->hidden_size / c->num_attention_heads
                                                      : 0;
    const int64_t dims = get_int(s, "rope.dimension_count", 0);
    if (dims > 0 && head > 0)
        r.partial_rotary_factor = (double)dims / (double)head;
    const char *type = copy_str(c, s->g, key_of(s, "rope.scaling.type"), "none");
    if (strcmp(type, "linear") == 0)
        r.type = AF_ROPE_LINEAR;
    else if (strcmp(type, "yarn") == 0)
        r.type = AF_ROPE_YARN;
    else if (strcmp(type, "none") != 0 && strcmp(type, "longrope") != 0)
        return af_fail(err, AF_EUNSUPPORTED, "unknown rope.scaling.type '%.64s'", type);
    r.factor = get_num(s, "rope.scaling.factor", 1);
    r.original_max_position_embeddings = get_int(s, "rope.scaling.original_context_length", 0);
    r.attention_factor = get_num(s, "rope.scaling.attn_factor", 0);
    if (r.type == AF_ROPE_YARN && r.attention_factor > 0)
        r.attention_factor *= af_yarn_scale(r.factor); /* the file has what goes beyond it */
    if (r.original_max_position_embeddings < 0)
        return af_fail(err, AF_EFORMAT, "rope.scaling.original_context_length is negative");
    AF_TRY(get_factors(s->g, c, "rope_factors_short.weight", &r.short_factor, &r.short_count, err));
    AF_TRY(get_factors(s->g, c, "rope_factors_long.weight", &r.long_factor, &r.long_count, err));
    if (r.short_factor && r.long_factor) {
        r.type = AF_ROPE_LONGROPE;
        if (r.original_max_position_embeddings > 0)
            r.factor =
                (double)c->max_position_embeddings / (double)r.original_max_position_embeddings;
    }
    AF_TRY(get_factors(s->g, c, "rope_freqs.weight", &r.freq_factor, &r.freq_count, err));
    c->rope = c->local_rope = r;
    c->has_local_rope = f->local_theta > 0;
    c->local_rope.type = AF_ROPE_DEFAULT; /* gemma3 scales its global layers only */
    c->local_rope.factor = 1;
    c->local_rope.theta =
        get_num(s, "rope.freq_base_swa", f->local_theta > 0 ? f->local_theta : 10000);
done:
    return st;
}

static void add_eos(af_hf_config *c, int64_t id)
{
    for (int i = 0; i < c->eos_count; i++)
        if (c->eos_token_id[i] == id)
            return;
    if (id >= 0)
        c->eos_token_id[c->eos_count++] = id;
}

static void get_tokens(const af_gguf *g, af_hf_config *c)
{
    c->bos_token_id = af_gguf_int(g, "tokenizer.ggml.bos_token_id", -1);
    c->pad_token_id = af_gguf_int(g, "tokenizer.ggml.padding_token_id", -1);
    add_eos(c, af_gguf_int(g, "tokenizer.ggml.eos_token_id", -1));
    add_eos(c, af_gguf_int(g, "tokenizer.ggml.eot_token_id", -1));
    add_eos(c, af_gguf_int(g, "tokenizer.ggml.eom_token_id", -1));
}

static af_status get_window(gguf_source *s, af_hf_config *c, const af_family *f, af_error *err)
{
    c->sliding_window = get_int(s, "attention.sliding_window", 0);
    c->sliding_window_pattern = get_int(s, "attention.sliding_window_pattern", 0);
    if (c->sliding_window_pattern < 1)
        c->sliding_window_pattern = f->pattern ? f->pattern : 1;
    if ((strcmp(f->model_type, "smollm3") != 0 && strcmp(f->model_type, "llama4_text") != 0) ||
        c->num_hidden_layers < 1 || c->num_hidden_layers > AF_CONFIG_LAYERS_MAX)
        return AF_OK;
    bool *none = af_arena_take(&c->arena, (uint64_t)c->num_hidden_layers * sizeof *none);
    if (!none)
        return af_fail_nomem(err, "no_rope_layers", (uint64_t)c->num_hidden_layers);
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        none[i] = (i + 1) % 4 == 0;
    c->no_rope = none;
    return AF_OK;
}

static void get_scales(gguf_source *s, af_hf_config *c, const af_family *f)
{
    c->attn_logit_softcapping = get_num(s, "attn_logit_softcapping", f->attn_softcap);
    c->final_logit_softcapping = get_num(s, "final_logit_softcapping", f->final_softcap);
    c->embedding_multiplier = get_num(s, "embedding_scale", 1);
    c->residual_multiplier = get_num(s, "residual_scale", 1);
    c->logits_scaling = get_num(s, "logit_scale", 1);
    c->attention_multiplier = get_num(s, "attention.scale", 0);
    c->initializer_range = 0.02;
    /* The two 27B models scale queries by hidden/heads; GGUF files do not say so. */
    const bool g2 = strcmp(f->model_type, "gemma2") == 0 && c->num_hidden_layers == 46;
    const bool g3 = strcmp(f->model_type, "gemma3_text") == 0 && c->num_hidden_layers == 62;
    if ((g2 || g3) && c->num_attention_heads > 0)
        c->query_pre_attn_scalar = (double)(c->hidden_size / c->num_attention_heads);
}

static const char *const classes[][2] = {
    {"llama", "LlamaForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
    {"qwen3_moe", "Qwen3MoeForCausalLM"},
    {"gemma", "GemmaForCausalLM"},
    {"gemma2", "Gemma2ForCausalLM"},
    {"gemma3_text", "Gemma3ForCausalLM"},
    {"gemma4_text", "Gemma4ForCausalLM"},
    {"gemma3n_text", "Gemma3nForCausalLM"},
    {"phi3", "Phi3ForCausalLM"},
    {"smollm3", "SmolLM3ForCausalLM"},
    {"olmo2", "Olmo2ForCausalLM"},
    {"granite", "GraniteForCausalLM"},
    {"mixtral", "MixtralForCausalLM"},
    {"qwen2_moe", "Qwen2MoeForCausalLM"},
    {"olmoe", "OlmoeForCausalLM"},
    {"olmo3", "Olmo3ForCausalLM"},
    {"ministral3", "Ministral3ForCausalLM"},
    {"seed_oss", "SeedOssForCausalLM"},
    {"ernie4_5", "Ernie4_5ForCausalLM"},
    {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"},
    {"arcee", "ArceeForCausalLM"},
    {"olmo", "OlmoForCausalLM"},
    {"jais2", "Jais2ForCausalLM"},
    {"apertus", "ApertusForCausalLM"},
    {"exaone4", "Exaone4ForCausalLM"},
    {"cohere", "CohereForCausalLM"},
    {"cohere2", "Cohere2ForCausalLM"},
    {"starcoder2", "Starcoder2ForCausalLM"},
    {"stablelm", "StableLmForCausalLM"},
    {"nemotron", "NemotronForCausalLM"},
    {"phi", "PhiForCausalLM"},
    {"glm4", "Glm4ForCausalLM"},
    {"glm", "GlmForCausalLM"},
    {"lfm2", "Lfm2ForCausalLM"},
    {"lfm2_moe", "Lfm2MoeForCausalLM"},
    {"qwen3_5_text", "Qwen3_5ForCausalLM"},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"},
    {"qwen3_next", "Qwen3NextForCausalLM"},
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM"},
    {"nemotron_h", "NemotronHForCausalLM"},
    {"gpt_oss", "GptOssForCausalLM"},
    {"llama4_text", "Llama4ForCausalLM"},
    {"hy_v3", "HYV3ForCausalLM"},
    {"minicpm3", "MiniCPM3ForCausalLM"},
    {"minicpm", "MiniCPMForCausalLM"},
    {"internlm2", "InternLM2ForCausalLM"},
    {"baichuan", "BaichuanForCausalLM"},
    {"deepseek", "DeepseekForCausalLM"},
    {"bailing_moe", "BailingMoeForCausalLM"},
    {"bailing_moe_v2", "BailingMoeV2ForCausalLM"},
    {"exaone", "ExaoneForCausalLM"},
    {"orion", "OrionForCausalLM"},
    {"xverse", "XverseForCausalLM"},
    {"mamba2", "Mamba2ForCausalLM"},
    {"mamba", "MambaForCausalLM"},
    {"falcon_mamba", "FalconMambaForCausalLM"},
    {"jamba", "JambaForCausalLM"},
    {"bamba", "BambaForCausalLM"},
    {"falcon_h1", "FalconH1ForCausalLM"},
    {"glm4_moe", "Glm4MoeForCausalLM"},
    {"solar_open", "SolarOpenForCausalLM"},
    {"cohere2_moe", "Cohere2MoeForCausalLM"},
    {"laguna", "LagunaForCausalLM"},
    {"mimo_v2_flash", "MiMoV2FlashForCausalLM"},
    {"granitemoe", "GraniteMoeForCausalLM"},
    {"granitemoeshared", "GraniteMoeSharedForCausalLM"},
    {"granite_swa", "GraniteSWAForCausalLM"},
    {"granitemoe_swa", "GraniteMoeSWAForCausalLM"},
    {"minimax_m2", "MiniMaxM2ForCausalLM"},
    {"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM"},
    {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM"},
    {"exaone_moe", "ExaoneMoeForCausalLM"},
    {"afmoe", "AfmoeForCausalLM"},
    {"dots1", "Dots1ForCausalLM"},
    {"mellum", "MellumForCausalLM"},
    {"mistral4", "Mistral4ForCausalLM"},
    {"youtu", "YoutuForCausalLM"},
    {"gpt_neox", "GPTNeoXForCausalLM"},
    {"falcon", "FalconForCausalLM"},
    {"bloom", "BloomForCausalLM"},
    {"mpt", "MptForCausalLM"},
    {"dbrx", "DbrxForCausalLM"},
    {"gpt2", "GPT2LMHeadModel"},
    {"gpt_bigcode", "GPTBigCodeForCausalLM"},
    {"deepseek_v2", "DeepseekV2ForCausalLM"},
    {"deepseek_v3", "DeepseekV3ForCausalLM"},
    {"kimi_linear", "KimiLinearForCausalLM"},
    {"bailing_hybrid", "BailingHybridForCausalLM"},
};

/* "LlamaForCausalLM" from "llama". */
static const char *class_of(const char *model_type)
{
    for (size_t i = 0; i < AF_LEN(classes); i++)
        if (strcmp(classes[i][0], model_type) == 0)
            return classes[i][1];
    return "";
}

/* Families that share an architecture with that of their name, `f`. */
static const af_family *family_of(gguf_source *s, const af_family *f)
{
    if (strcmp(s->arch, "llama") == 0 && get_int(s, "expert_count", 0) > 0)
        f = af_family_find("mixtral"); /* which is llama with experts there */
    if (strcmp(s->arch, "olmo2") == 0 && get_int(s, "attention.sliding_window", 0) > 0)
        f = af_family_find("olmo3");
    if (strcmp(s->arch, "granitemoe") == 0 &&
        get_int(s, "expert_shared_feed_forward_length", 0) > 0)
        f = af_family_find("granitemoeshared");
    if (strcmp(s->arch, "granite_swa") == 0 && get_int(s, "expert_count", 0) > 0)
        f = af_family_find("granitemoe_swa");
    if (strcmp(s->arch, "glm4moe") == 0 && is_solar_open(s))
        f = af_family_find("solar_open");
    if (strcmp(s->arch, "granitehybrid") == 0 && is_bamba(s))
        f = af_family_find("bamba");
    if (strcmp(s->arch, "mamba") == 0 && af_gguf_bool(s->g, "mamba.ssm.dt_b_c_rms", false))
        f = af_family_find("falcon_mamba");
    if (is_latent(s))
        f = af_family_find(latent_family(s));
    return f;
}

static af_status fill(af_hf_config *c, const af_gguf *g, af_error *err)
{
    af_status st = AF_OK;
    gguf_source s = {.g = g, .arch = copy_str(c, g, "general.architecture", "")};
    const char *kind = copy_str(c, g, "general.type", "model");
    if (strcmp(kind, "model") != 0)
        return af_fail(err, AF_EUSAGE, "the GGUF file is of type '%.32s', not a model", kind);
    const af_family *f = af_family_by_gguf(s.arch);
    if (!f)
        return af_fail(err, AF_EUNSUPPORTED, "general.architecture '%.64s' is not supported%s",
                       s.arch, af_family_names(s.arch, true, (char[AF_FAMILY_NAMES]){0}));
    f = family_of(&s, f);
    if (f->same) { /* the text model of a multimodal one */
        c->gguf = f->gguf;
        f = af_family_find(f->same);
    }
    c->from_gguf = true;
    c->model_type = f->model_type;
    c->architecture = class_of(f->model_type);
    c->hidden_act = f->act;
    c->transformers_version = "";
    AF_TRY(get_sizes(&s, c, f, err));
    AF_TRY(get_rope(&s, c, f, err));
    AF_TRY(get_window(&s, c, f, err));
    get_scales(&s, c, f);
    get_tokens(g, c);
    c->tie_word_embeddings = !af_gguf_find(g, "output.weight");
    c->attention_bias = af_gguf_find(g, "blk.0.attn_q.bias") != NULL;
    c->attention_out_bias = af_gguf_find(g, "blk.0.attn_output.bias") != NULL;
    c->mlp_bias = af_gguf_find(g, "blk.0.ffn_gate.bias") || af_gguf_find(g, "blk.0.ffn_up.bias");
    if (f->gguf_keys)
        f->gguf_keys(g, s.arch, c);
    const af_stored *w = af_gguf_find(g, "blk.0.attn_output.weight");
    c->has_dtype = w && af_dtype_is_float(w->dtype);
    c->dtype = c->has_dtype ? w->dtype : AF_DTYPE_F32;
    if (f->state_layers)
        AF_TRY(af_config_gguf_state(c, g, s.arch, err));
    if (strcmp(s.arch, "gemma4") == 0)
        AF_TRY(af_config_gguf_gemma4(c, g, err));
    if (strcmp(s.arch, "gemma3n") == 0)
        AF_TRY(af_config_gguf_gemma3n(c, g, err));
    AF_TRY(af_config_gguf_experts(c, g, s.arch, err));
    if (is_latent(&s))
        AF_TRY(get_latent(&s, c, err));
    AF_TRY(af_hf_config_finish(c, f, c->layer_types != NULL, "GGUF metadata", err));
done:
    return st;
}

af_status af_hf_config_from_gguf(af_hf_config *out, const af_gguf *g, af_error *err)
{
    af_hf_config c = {0};
    const af_status st = fill(&c, g, err);
    if (st != AF_OK) {
        af_hf_config_clear(&c);
        return st;
    }
    *out = c;
    return AF_OK;
}
