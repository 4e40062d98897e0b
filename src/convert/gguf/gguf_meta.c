#define _GNU_SOURCE /* strcasestr */
/* gguf_meta.c - general.* and ARCH.* keys; see gguf_meta.h. */
#include "convert/gguf/meta_writer.h"

#include "base/log.h"
#include "convert/input/folder_text.h"
#include "convert/input/gguf_text.h"
#include "format/chat/chat_template.h"
#include "format/config/gguf_state.h"

#include <ctype.h>
#include <math.h>

#define FILE_BYTES_MAX (UINT64_C(256) << 20)

static bool is_latent(const meta_writer *p)
{
    return strcmp(p->arch, "deepseek2") == 0 || strcmp(p->arch, "mistral4") == 0;
}

void af_model_title(char *out, size_t size, const char *folder)
{
    size_t n = 0;
    bool start = true;
    while (*folder && n + 1 < size) {
        const char *end = folder + strcspn(folder, "- ");
        bool lower = true, digit = isdigit((unsigned char)*folder) != 0, any = false;
        for (const char *c = folder; c < end; c++) {
            lower &= !isupper((unsigned char)*c);
            any |= islower((unsigned char)*c) != 0;
        }
        digit |= *folder == 'v' && isdigit((unsigned char)folder[1]);
        for (const char *c = folder; c < end && n + 1 < size; c++) {
            out[n++] = start && lower && any && !digit ? (char)toupper((unsigned char)*c) : *c;
            start = !isalpha((unsigned char)*c);
        }
        folder = end + strspn(end, "- ");
        start = true;
        if (*folder && n + 1 < size)
            out[n++] = ' ';
    }
    out[n] = '\0';
}

/* "1.5B", "135M", "127K". */
static void size_label(char *out, size_t size, int64_t params)
{
    const double n = (double)params;
    const double scaled = n > 1e12 ? n / 1e12 : n > 1e9 ? n / 1e9 : n > 1e6 ? n / 1e6 : n / 1e3;
    const char suffix = n > 1e12 ? 'T' : n > 1e9 ? 'B' : n > 1e6 ? 'M' : 'K';
    snprintf(out, size, "%.*f%c", scaled < 9.5 ? 1 : 0, scaled, suffix);
}

static bool has_key(const af_hf_config *c, const char *key)
{
    const json_t *v = json_object_get(af_config_own(c->raw), key);
    return v && !json_is_null(v);
}

/* Two sets of factors (tensors) and how much attention grows; phi3 always has the old length. */
static void put_longrope(meta_writer *p, const af_hf_config *c)
{
    const af_rope_config *r = &c->rope;
    const int64_t old = r->original_max_position_embeddings;
    put_u32(p, "rope.scaling.original_context_length", old ? old : c->max_position_embeddings);
    if (r->type != AF_ROPE_LONGROPE || old < 2)
        return;
    const double scale = (double)c->max_position_embeddings / (double)old;
    const double attn = r->attention_factor > 0 ? r->attention_factor
                        : scale <= 1            ? 1
                                                : sqrt(1 + log(scale) / log((double)old));
    put_f32(p, "rope.scaling.attn_factor", attn);
}

static void put_rope_scaling(meta_writer *p, const af_hf_config *c)
{
    const af_rope_config *r = &c->rope;
    char key[128];
    if (r->type == AF_ROPE_LINEAR || r->type == AF_ROPE_YARN) {
        put_str(p, key_of(p, key, sizeof key, "rope.scaling.type"),
                r->type == AF_ROPE_LINEAR ? "linear" : "yarn");
        put_f32(p, "rope.scaling.factor", r->factor);
    }
    if (r->type == AF_ROPE_YARN && !r->truncate)
        af_log_write(AF_LOG_WARN, "llama.cpp rounds the borders of yarn (truncate is false here): "
                                  "its frequencies between them differ from the model's");
    if (r->type == AF_ROPE_YARN) {
        put_u32(p, "rope.scaling.original_context_length",
                r->original_max_position_embeddings ? r->original_max_position_embeddings
                                                    : c->max_position_embeddings);
        /* llama.cpp multiplies with what yarn prescribes for the factor: only the rest is written
         */
        const double rest = af_rope_scale(r) / af_yarn_scale(r->factor);
        if (fabs(rest - 1) > 1e-6 && !is_latent(p))
            put_f32(p, "rope.scaling.attn_factor", rest);
        if (r->beta_fast != 32)
            put_f32(p, "rope.scaling.yarn_beta_fast", r->beta_fast);
        if (r->beta_slow != 1)
            put_f32(p, "rope.scaling.yarn_beta_slow", r->beta_slow);
    }
    if (r->type == AF_ROPE_LONGROPE && strcmp(p->arch, "phi3") != 0) {
        put_str(p, key_of(p, key, sizeof key, "rope.scaling.type"), "longrope");
        put_longrope(p, c);
    }
}

/* The first layers that have no experts. */
static int dense_lead(const af_model_spec *s)
{
    int n = 0;
    while (n < s->layers && s->layer[n].mlp != AF_MLP_EXPERTS)
        n++;
    return n;
}

/* A mixture in the words of DeepSeek. */
static void put_deepseek_experts(meta_writer *p, const af_model_spec *s, const af_hf_config *c)
{
    enum { SOFTMAX = 1, SIGMOID = 2 };
    put_u32(p, "expert_shared_count", c->router.shared_ffn / AF_MAX(c->moe_intermediate_size, 1));
    put_u32(p, "leading_dense_block_count", dense_lead(s));
    put_u32(p, "expert_gating_func", c->router.sigmoid ? SIGMOID : SOFTMAX);
    put_f32(p, "expert_weights_scale", c->router.scale);
    put_bool(p, "expert_weights_norm", c->norm_topk_prob);
    /* groups that are all used choose nothing, and llama.cpp refuses them */
    if (strcmp(p->arch, "glm4moe") != 0 && c->router.groups > 1 &&
        c->router.groups > c->router.groups_used) {
        put_u32(p, "expert_group_count", c->router.groups);
        put_u32(p, "expert_group_used_count", c->router.groups_used);
    }
}

/* Latent attention: one head of keys and values, which are the latents; the sizes after kv_b_proj
 * have keys of their own. */
static void put_latent(meta_writer *p, const af_model_spec *s, const af_hf_config *c)
{
    const af_latent_keys *k = &s->latent;
    put_u32(p, "vocab_size", c->vocab_size);
    put_u32(p, "attention.q_lora_rank", k->q_lora_rank);
    put_u32(p, "attention.kv_lora_rank", k->kv_lora_rank);
    if (s->arch->gguf_kv_whole) { /* the heads are those of the model */
        put_u32(p, "attention.head_count_kv", s->heads);
        put_u32(p, "attention.key_length", k->qk_nope_dim + k->qk_rope_dim);
        put_u32(p, "attention.value_length", k->v_dim);
        return;
    }
    if (s->recurrent)
        af_meta_put_kv_heads(p, s);
    else
        put_u32(p, "attention.head_count_kv", 1);
    put_u32(p, "attention.key_length", k->kv_lora_rank + k->qk_rope_dim);
    put_u32(p, "attention.value_length", k->kv_lora_rank);
    put_u32(p, "attention.key_length_mla", k->qk_nope_dim + k->qk_rope_dim);
    put_u32(p, "attention.value_length_mla", k->v_dim);
    if (c->query_scaling_beta > 0)
        put_u32(p, "attention.temperature_length", s->query_scale_from);
    if (!s->experts) { /* needed there */
        put_u32(p, "leading_dense_block_count", s->layers);
        put_u32(p, "expert_shared_count", 0);
        put_u32(p, "expert_feed_forward_length", s->ffn);
    }
    if (c->rope.type == AF_ROPE_YARN && c->rope.mscale_all_dim > 0)
        put_f32(p, "rope.scaling.yarn_log_multiplier", 0.1 * c->rope.mscale_all_dim);
    if (s->eps != 1e-6)
        af_log_write(AF_LOG_WARN,
                     "llama.cpp takes rms_norm_eps (%g) for the norms of the latents%s, "
                     "too, which have 1e-06 here",
                     s->eps, s->state.channels ? " and of queries and keys of delta nets" : "");
}

/* What dense families have beyond llama. */
static void put_dense(meta_writer *p, const af_model_spec *s, const af_hf_config *c)
{
    char key[128];
    if (s->rope[0].rotary_dim != s->head_dim && strcmp(p->arch, "phi3") != 0 &&
        strcmp(p->arch, "gemma4") != 0)
        put_u32(p, "rope.dimension_count", s->rope[0].rotary_dim);
    if (c->logit_scale > 0)
        put_f32(p, "logit_scale", c->logit_scale);
    if (strcmp(p->arch, "mimo2") == 0)
        put_f32(p, "attention.value_scale", s->value_scale);
    if (c->qkv_clip > 0 || strcmp(p->arch, "dbrx") == 0) /* which asks for it */
        put_f32(p, "attention.clamp_kqv", c->qkv_clip);
    if (strcmp(p->arch, "mpt") == 0)
        put_f32(p, "attention.max_alibi_bias", s->alibi);
    if (c->query_scaling_beta > 0 && strcmp(p->arch, "llama4") != 0)
        put_f32(p, "attention.temperature_scale", c->query_scaling_beta);
    if (strcmp(p->arch, "falcon") == 0)
        put_str(p, "falcon.tensor_data_layout", "jploski"); /* q|k|v */
    if ((strcmp(p->arch, "stablelm") == 0 || strcmp(p->arch, "gptneox") == 0) && p->st == AF_OK)
        p->st = af_gguf_put_bool(p->w, key_of(p, key, sizeof key, "use_parallel_residual"),
                                 s->parallel, p->err);
}

/* Layers that slide and others have sizes of their own. */
static void put_gemma4(meta_writer *p, const af_model_spec *s, const af_hf_config *c)
{
    uint8_t slides[AF_CONFIG_LAYERS_MAX];
    int32_t heads[AF_CONFIG_LAYERS_MAX], ffn[AF_CONFIG_LAYERS_MAX];
    int64_t full = s->head_dim, local = full;
    for (int i = 0; i < s->layers; i++) {
        slides[i] = s->layer[i].window > 0;
        heads[i] = s->layer[i].kv_heads;
        ffn[i] = (int32_t)s->layer[i].ffn;
        *(slides[i] ? &local : &full) = s->layer[i].head_dim;
    }
    put_array(p, "feed_forward_length", AF_GGUF_I32, ffn, s->layers);
    put_array(p, "attention.head_count_kv", AF_GGUF_I32, heads, s->layers);
    put_array(p, "attention.sliding_window_pattern", AF_GGUF_BOOL, slides, s->layers);
    put_u32(p, "attention.shared_kv_layers", c->per_layer.kv_shared);
    put_u32(p, "embedding_length_per_layer_input", s->per_layer_input);
    put_u32(p, "attention.key_length", full);
    put_u32(p, "attention.value_length", full);
    put_u32(p, "attention.key_length_swa", local);
    put_u32(p, "attention.value_length_swa", local);
    put_u32(p, "rope.dimension_count", full);
    put_u32(p, "rope.dimension_count_swa",
            s->ropes > 1 ? s->rope[1].rotary_dim : s->rope[0].rotary_dim);
}

/* llama.cpp reads the numbers of its own models alone: gguf_check.c. */
static void put_gemma3n(meta_writer *p, const af_model_spec *s, const af_hf_config *c)
{
    float scale[AF_CONFIG_LAYERS_MAX];
    for (int i = 0; i < s->layers; i++)
        scale[i] = s->layer[i].sparse ? (float)s->layer[i].sparsity : -INFINITY;
    put_u32(p, "altup.active_idx", s->altup.active);
    put_u32(p, "altup.num_inputs", s->altup.streams);
    put_u32(p, "embedding_length_per_layer_input", s->per_layer_input);
    put_u32(p, "attention.shared_kv_layers", c->per_layer.kv_shared);
    put_array(p, "activation_sparsity_scale", AF_GGUF_F32, scale, s->layers);
    if (p->st == AF_OK && s->per_layer_vocab != s->vocab)
        p->st = af_gguf_put_u32(p->w, AF_LAYER_VOCAB_KEY, (uint32_t)s->per_layer_vocab, p->err);
    af_log_write(AF_LOG_WARN,
                 "llama.cpp divides the variance of sparse gates by intermediate_size - 1 (%" PRId64
                 "), transformers by intermediate_size: logits differ a little",
                 s->ffn - 1);
}

static bool is_one_of(const char *arch, const char *const *list)
{
    while (*list && strcmp(*list, arch) != 0)
        list++;
    return *list != NULL;
}

static void put_experts(meta_writer *p, const af_model_spec *s, const af_hf_config *c)
{
    enum { SIGMOID = 2 };
    static const char *const one_width[] = {"llama", "granitehybrid", "granitemoe",  "olmoe",
                                            "dbrx",  "jamba",         "granite_swa", NULL};
    static const char *const deepseek[] = {
        "glm4moe",        "deepseek2",   "mistral4",    "dots1", "afmoe",    "exaone-moe",
        "nemotron_h_moe", "cohere2moe",  "laguna",      "mimo2", "deepseek", "bailingmoe",
        "bailingmoe2",    "kimi-linear", "bailingmoe3", NULL};
    const char *a = p->arch;
    put_u32(p, "expert_count", c->num_experts);
    put_u32(p, "expert_used_count", c->num_experts_per_tok);
    if (!is_one_of(a, one_width)) /* feed_forward_length */
        put_u32(p, "expert_feed_forward_length", c->moe_intermediate_size);
    if (is_one_of(a, deepseek))
        put_deepseek_experts(p, s, c);
    static const char *const width_too[] = {"exaone-moe", "nemotron_h_moe", "cohere2moe", "laguna",
                                            NULL};
    if (c->router.shared_ffn && (!is_one_of(a, deepseek) || is_one_of(a, width_too)))
        put_u32(p, "expert_shared_feed_forward_length", c->router.shared_ffn);
    if (strcmp(a, "minimax-m2") == 0 || strcmp(a, "hy_v3") == 0)
        put_u32(p, "expert_gating_func", SIGMOID);
    if (strcmp(a, "hy_v3") == 0) {
        put_f32(p, "expert_weights_scale", c->router.scale);
        put_bool(p, "expert_weights_norm", c->norm_topk_prob);
    }
    if (strcmp(a, "llama4") == 0)
        put_u32(p, "interleave_moe_layer_step", dense_lead(s) + 1);
    if (strcmp(a, "ernie4_5-moe") == 0) {
        put_u32(p, "interleave_moe_layer_step", 1);
        put_u32(p, "leading_dense_block_count", dense_lead(s));
        put_u32(p, "expert_shared_count",
                c->router.shared_ffn / AF_MAX(c->moe_intermediate_size, 1));
    }
}

/* Which layers slide. */
static void put_slides(meta_writer *p, const af_model_spec *s)
{
    uint8_t slides[AF_CONFIG_LAYERS_MAX];
    for (int i = 0; i < s->layers; i++)
        slides[i] = s->layer[i].window > 0;
    put_array(p, "attention.sliding_window_pattern", AF_GGUF_BOOL, slides, s->layers);
}

/* Which layers have rope. */
static void put_rope_layers(meta_writer *p, const af_model_spec *s)
{
    uint8_t has_rope[AF_CONFIG_LAYERS_MAX];
    for (int i = 0; i < s->layers; i++)
        has_rope[i] = s->layer[i].rope >= 0;
    put_array(p, "attention.rope_pattern", AF_GGUF_BOOL, has_rope, s->layers);
}

/* Heads of each layer, and how much of one is rotated in layers with a window. */
static void put_laguna(meta_writer *p, const af_model_spec *s)
{
    int32_t heads[AF_CONFIG_LAYERS_MAX];
    for (int i = 0; i < s->layers; i++)
        heads[i] = s->layer[i].heads;
    put_array(p, "attention.head_count", AF_GGUF_I32, heads, s->layers);
    put_u32(p, "rope.dimension_count_swa", s->rope[s->ropes > 1].rotary_dim);
    put_u32(p, "vocab_size", s->vocab);
}

static void put_family(meta_writer *p, const af_model_spec *s, const af_hf_config *c)
{
    const char *a = p->arch;
    const bool gemma = strncmp(a, "gemma", 5) == 0;
    static const char *const sized[] = {"llama", "smollm3", "granite", "granitemoe",
                                        "afmoe", "llama4",  "minicpm", NULL};
    if (is_one_of(a, sized)) {
        put_u32(p, "vocab_size", c->vocab_size);
        put_u32(p, "rope.dimension_count", s->rope[0].rotary_dim);
    }
    if (strcmp(a, "phi3") == 0) {
        put_u32(p, "rope.dimension_count", s->rope[0].rotary_dim);
        put_longrope(p, c);
        put_u32(p, "attention.sliding_window", c->sliding_window);
    }
    static const char *const sliding[] = {"olmo2",      "cohere2", "gpt-oss",    "afmoe",
                                          "exaone-moe", "mellum",  "cohere2moe", "granite_swa",
                                          "laguna",     "mimo2",   NULL};
    const bool windows =
        gemma || is_one_of(a, sliding) || (strcmp(a, "exaone4") == 0 && s->layers == 64);
    if (windows && c->sliding_window)
        put_u32(p, "attention.sliding_window", c->sliding_window);
    static const char *const listed[] = {"exaone-moe",  "mellum", "gemma3n", "cohere2moe",
                                         "granite_swa", "laguna", "mimo2",   NULL};
    if (is_one_of(a, listed))
        put_slides(p, s);
    if (strcmp(a, "granite_swa") == 0)
        put_rope_layers(p, s);
    if (strcmp(a, "gemma3n") == 0)
        put_gemma3n(p, s, c);
    if (c->has_local_rope && strcmp(a, "olmo2") != 0)
        put_f32(p, "rope.freq_base_swa", c->local_rope.theta);
    if (c->attn_logit_softcapping > 0)
        put_f32(p, "attn_logit_softcapping", c->attn_logit_softcapping);
    if (c->final_logit_softcapping > 0)
        put_f32(p, "final_logit_softcapping", c->final_logit_softcapping);
    const bool granite = strncmp(a, "granite", 7) == 0 && strcmp(c->model_type, "bamba") != 0;
    if (granite)
        put_f32(p, "attention.scale", s->attn_scale);
    if (granite || strcmp(a, "minicpm") == 0) {
        put_f32(p, "embedding_scale", c->embedding_multiplier);
        put_f32(p, "residual_scale", c->residual_multiplier);
        put_f32(p, "logit_scale", c->logits_scaling);
    }
    if (c->num_experts)
        put_experts(p, s, c);
}

/* llama.cpp refuses a file whose name has "phi3" in it when the vocabulary lacks a token of the
 * original: then the name is written with a blank. */
static void part_phi3(char *title, size_t size, const char *dir)
{
    char *at = strcasestr(title, "phi3");
    char *path = at ? af_path_join(dir, "tokenizer.json") : NULL, *text = NULL;
    uint64_t n;
    if (!path)
        return;
    const bool whole = af_file_exists(path) &&
                       af_file_read(&text, &n, path, FILE_BYTES_MAX, NULL) == AF_OK &&
                       strstr(text, "\"<|endoftext|>\"") && strstr(text, "\"</s>\"");
    const size_t tail = strlen(at + 3) + 1;
    if (!whole && (size_t)(at - title) + 4 + tail <= size) {
        memmove(at + 4, at + 3, tail);
        at[3] = ' ';
    }
    free(path);
    free(text);
}

af_status af_gguf_put_arch(af_gguf_writer *w, const af_model_spec *s, const af_hf_config *c,
                           const char *dir, int file_type, af_error *err)
{
    meta_writer p = {.w = w, .arch = s->gguf, .err = err};
    char title[256], label[32];
    const bool gemma = strncmp(p.arch, "gemma", 5) == 0;
    const bool latent = s->latent.kv_lora_rank > 0, gemma4 = strcmp(p.arch, "gemma4") == 0;
    const bool bare = strncmp(p.arch, "mamba", 5) == 0; /* neither attention nor an MLP */
    const bool own_head =
        has_key(c, "head_dim") || gemma || s->latent.v_dim || s->head_dim * s->heads != s->width;
    if (c->rope.type == AF_ROPE_DYNAMIC)
        af_log_write(AF_LOG_WARN,
                     "GGUF has no rope scaling of type 'dynamic': the file is right up to %" PRId64
                     " tokens",
                     c->max_position_embeddings);
    af_model_title(title, sizeof title, af_path_name(dir));
    part_phi3(title, sizeof title, dir);
    size_label(label, sizeof label, s->params);
    put_str(&p, "general.architecture", p.arch);
    put_str(&p, "general.type", "model");
    put_str(&p, "general.name", title);
    put_str(&p, "general.size_label", label);
    put_u32(&p, "block_count", s->layers);
    put_u32(&p, "context_length", c->max_position_embeddings);
    put_u32(&p, "embedding_length", s->width);
    if (!gemma4 && strncmp(p.arch, "nemotron_h", 10) != 0)
        put_u32(&p, "feed_forward_length", bare ? 0 : s->ffn);
    if (strcmp(p.arch, "laguna") == 0)
        put_laguna(&p, s);
    else
        put_u32(&p, "attention.head_count", bare ? 0 : s->heads);
    if (gemma4)
        put_gemma4(&p, s, c);
    else if (latent)
        put_latent(&p, s, c);
    else if (strcmp(p.arch, "mimo2") == 0 ||
             (s->recurrent && strncmp(p.arch, "qwen", 4) != 0 && !bare && !s->mup.given))
        af_meta_put_kv_heads(&p, s);
    else if (!bare)
        put_u32(&p, "attention.head_count_kv", s->kv_heads);
    put_rope_scaling(&p, c);
    if (!gemma || c->has_local_rope || c->rope.theta != 10000)
        put_f32(&p, "rope.freq_base", c->rope.theta);
    put_f32(&p,
            s->arch->layer_norm ? "attention.layer_norm_epsilon"
                                : "attention.layer_norm_rms_epsilon",
            c->rms_norm_eps);
    if (own_head && !latent && !gemma4 && !bare) {
        put_u32(&p, "attention.key_length", s->head_dim);
        put_u32(&p, "attention.value_length", s->latent.v_dim ? s->latent.v_dim : s->head_dim);
    }
    put_family(&p, s, c);
    put_dense(&p, s, c);
    af_meta_put_state(&p, s, c);
    af_meta_put_positions(&p, s, c);
    if (p.st == AF_OK)
        p.st = af_gguf_put_u32(w, "general.file_type", (uint32_t)file_type, err);
    if (p.st == AF_OK)
        p.st = af_gguf_put_u32(w, "general.quantization_version", 2, err);
    return p.st;
}

af_status af_gguf_put_xielu(af_gguf_writer *w, const af_model_reader *in, af_error *err)
{
    const af_model_spec *s = af_model_reader_spec(in);
    af_status st = AF_OK;
    float of[AF_CONFIG_LAYERS_MAX];
    if (s->plain_act != AF_PLAIN_XIELU)
        return AF_OK;
    for (af_slot k = AF_SLOT_ACT_P; k <= AF_SLOT_ACT_EPS; k++) {
        for (int i = 0; i < s->layers; i++)
            af_model_reader_merged_rows(in, s->layer[i].tensor[k], 0, 1, &of[i]);
        AF_TRY(
            af_gguf_put_array(w, af_slot_xielu_key(k), AF_GGUF_F32, of, (uint64_t)s->layers, err));
    }
done:
    return st;
}

/* ---- carried files ---- */

/* A text as a string, other bytes as a list of them. */
static af_status put_file(af_gguf_writer *w, const char *dir, const char *name, const char *key,
                          af_error *err)
{
    af_status st = AF_OK;
    char *path = af_path_join(dir, name), *text = NULL;
    uint64_t n = 0;
    if (!path)
        return af_fail_nomem(err, "a path", strlen(name));
    if (af_file_exists(path)) {
        AF_TRY(af_file_read(&text, &n, path, FILE_BYTES_MAX, err));
        AF_TRY(strcmp(name, "tokenizer.model") == 0
                   ? af_gguf_put_array(w, key, AF_GGUF_U8, text, n, err)
                   : af_gguf_put_str(w, key, text, n, err));
    }
done:
    free(path);
    free(text);
    return st;
}

/* Where the file is taken from: what goes with tokenizer and template from the adapter's folder,
 * where it has them. */
static const char *dir_of(const char *name, const af_text_dirs *h)
{
    const bool config = strcmp(name, "tokenizer_config.json") == 0;
    if (strcmp(name, "chat_template.jinja") == 0 || (config && !h->tokenizer_dir))
        return h->template_dir ? h->template_dir : h->dir;
    return h->tokenizer_dir && (config || strcmp(name, "special_tokens_map.json") == 0 ||
                                strcmp(name, "added_tokens.json") == 0)
               ? h->tokenizer_dir
               : h->dir;
}

/* The keys that put_template writes: the chat template of a folder, and the files with it. */
static bool is_template_key(const char *key)
{
    return strncmp(key, "tokenizer.chat_template", 23) == 0 ||
           strcmp(key, AF_GGUF_FILE_KEY "tokenizer_config.json") == 0 ||
           strcmp(key, AF_GGUF_FILE_KEY "chat_template.jinja") == 0;
}

af_status af_gguf_put_template(af_gguf_writer *w, const char *texts, af_error *err)
{
    static const af_gguf_str more = {"tool_use", 8};
    af_status st = AF_OK;
    char *text = NULL;
    af_template *t = NULL;
    AF_TRY(af_folder_template(&text, texts, err));
    if (text)
        AF_TRY(af_gguf_put_str(w, "tokenizer.chat_template", text, strlen(text), err));
    if (text && af_template_open(&t, texts, NULL) == AF_OK && af_template_for(t, true) != t) {
        uint64_t len;
        const char *tools = af_template_source(af_template_for(t, true), &len);
        AF_TRY(af_gguf_put_strs(w, "tokenizer.chat_templates", &more, 1, err));
        AF_TRY(af_gguf_put_str(w, "tokenizer.chat_template.tool_use", tools, len, err));
    }
done:
    af_template_close(t);
    free(text);
    return st;
}

AF_CHECKED static af_status put_template(af_gguf_writer *w, const char *texts, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_gguf_put_template(w, texts, err));
    AF_TRY(
        put_file(w, texts, "tokenizer_config.json", AF_GGUF_FILE_KEY "tokenizer_config.json", err));
    AF_TRY(put_file(w, texts, "chat_template.jinja", AF_GGUF_FILE_KEY "chat_template.jinja", err));
done:
    return st;
}

af_status af_gguf_put_files(af_gguf_writer *w, const af_text_dirs *h, bool whole, af_error *err)
{
    static const char *const names[] = {"config.json",           "generation_config.json",
                                        "tokenizer_config.json", "special_tokens_map.json",
                                        "added_tokens.json",     "chat_template.jinja"};
    af_status st = AF_OK;
    char key[128];
    for (size_t i = 0; i < AF_LEN(names); i++) {
        snprintf(key, sizeof key, AF_GGUF_FILE_KEY "%s", names[i]);
        AF_TRY(put_file(w, dir_of(names[i], h), names[i], key, err));
    }
    const char *dir = h->tokenizer_dir ? h->tokenizer_dir : h->dir;
    if (whole)
        AF_TRY(put_file(w, dir, "tokenizer.json", AF_GGUF_TOKENIZER_KEY, err));
    if (whole && !af_file_in(dir, "tokenizer.json"))
        AF_TRY(put_file(w, dir, "tokenizer.model", AF_GGUF_FILE_KEY "tokenizer.model", err));
done:
    return st;
}

/* ---- of another file ---- */

af_status af_gguf_put_copy(af_gguf_writer *w, const af_gguf *g, const char *template_dir,
                           int file_type, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < af_gguf_kv_count(g); i++) {
        const af_gguf_kv *kv = af_gguf_kv_at(g, i);
        if (strncmp(kv->key, "quantize.imatrix.", 17) != 0 && strncmp(kv->key, "split.", 6) != 0 &&
            strcmp(kv->key, "general.file_type") != 0 &&
            strcmp(kv->key, "general.quantization_version") != 0 &&
            strcmp(kv->key, "general.alignment") != 0 &&
            !(template_dir && is_template_key(kv->key)))
            AF_TRY(af_gguf_put_kv(w, kv, err));
    }
    if (template_dir)
        AF_TRY(put_template(w, template_dir, err));
    AF_TRY(af_gguf_put_u32(w, "general.file_type", (uint32_t)file_type, err));
    AF_TRY(af_gguf_put_u32(w, "general.quantization_version", 2, err));
done:
    return st;
}

af_status af_gguf_put_imatrix(af_gguf_writer *w, const af_imatrix *m, const char *file,
                              af_error *err)
{
    af_status st = AF_OK;
    if (!m)
        return AF_OK;
    if (file)
        AF_TRY(af_gguf_put_str(w, "quantize.imatrix.file", file, strlen(file), err));
    if (m->dataset)
        AF_TRY(af_gguf_put_str(w, "quantize.imatrix.dataset", m->dataset, strlen(m->dataset), err));
    AF_TRY(af_gguf_put_u32(w, "quantize.imatrix.entries_count", (uint32_t)m->count, err));
    AF_TRY(af_gguf_put_u32(w, "quantize.imatrix.chunks_count", (uint32_t)m->chunks, err));
done:
    return st;
}
