/* gguf_meta_state.c - the metadata of families whose layers keep a state; see meta_writer.h. */
#include "convert/gguf/meta_writer.h"

#include "base/log.h"

#include <jansson.h>

void af_meta_put_kv_heads(meta_writer *p, const af_model_spec *s)
{
    char key[128];
    int32_t heads[AF_CONFIG_LAYERS_MAX];
    for (int i = 0; i < s->layers; i++)
        heads[i] = s->layer[i].mixer == AF_MIXER_ATTENTION
                       ? s->layer[i].kv_heads
                       : s->layer[i].mixer == AF_MIXER_LATENT; /* latents are one head */
    if (p->st == AF_OK)
        p->st = af_gguf_put_array(p->w, key_of(p, key, sizeof key, "attention.head_count_kv"),
                                  AF_GGUF_I32, heads, (uint64_t)s->layers, p->err);
}

static void put_ssm(meta_writer *p, const af_state_keys *k)
{
    put_u32(p, "ssm.conv_kernel", k->conv_kernel);
    put_u32(p, "ssm.state_size", k->key_dim);
    put_u32(p, "ssm.group_count", k->key_heads);
    put_u32(p, "ssm.time_step_rank", k->heads);
    put_u32(p, "ssm.inner_size", k->heads * k->head_dim);
}

static void put_selective(meta_writer *p, const af_state_keys *k)
{
    put_u32(p, "ssm.conv_kernel", k->conv_kernel);
    put_u32(p, "ssm.state_size", k->key_dim);
    put_u32(p, "ssm.time_step_rank", k->step_rank);
    put_u32(p, "ssm.inner_size", k->inner);
}

/* Whether time steps, keys and queries are normed, which they are without weights. */
static void put_mamba(meta_writer *p, const af_model_spec *s)
{
    const double eps = s->state.step_eps;
    put_selective(p, &s->state);
    put_bool(p, "ssm.dt_b_c_rms", eps > 0);
    if (eps > 0 && eps != s->eps)
        af_log_write(AF_LOG_WARN,
                     "llama.cpp takes layer_norm_epsilon (%g) for the norms of time steps, too, "
                     "which have mixer_rms_eps (%g) here",
                     s->eps, eps);
}

/* Weights are multiplied with the multipliers, which llama.cpp does not have. */
static void put_falcon_h1(meta_writer *p, const af_model_spec *s, const af_hf_config *c)
{
    const af_mup_keys *m = &s->mup;
    const double all[AF_MUP_COUNT] = {m->attn_in, m->attn_out, m->key,    m->ssm_in,     m->ssm_out,
                                      m->ssm[0],  m->ssm[1],   m->ssm[2], m->ssm[3],     m->ssm[4],
                                      m->gate,    m->down,     m->head,   s->embed_scale};
    put_u32(p, "vocab_size", c->vocab_size);
    put_ssm(p, &s->state);
    if (p->st == AF_OK)
        p->st = af_gguf_put_array(p->w, AF_MUP_KEY, AF_GGUF_F64, all, AF_MUP_COUNT, p->err);
}

/* Layers of one half alone: those with an MLP or experts have its width, others 0. */
static void put_nemotron(meta_writer *p, const af_model_spec *s)
{
    int32_t ffn[AF_CONFIG_LAYERS_MAX];
    for (int i = 0; i < s->layers; i++)
        ffn[i] = (int32_t)(s->layer[i].mlp == AF_MLP_EXPERTS ? s->expert_ffn : s->layer[i].ffn);
    put_array(p, "feed_forward_length", AF_GGUF_I32, ffn, s->layers);
    put_u32(p, "vocab_size", s->vocab);
    put_f32(p, "attention.layer_norm_epsilon", s->eps); /* asked for, too */
    put_u32(p, "rope.dimension_count", s->head_dim);
    put_ssm(p, &s->state);
    if (s->router.latent)
        put_u32(p, "moe_latent_size", s->router.latent);
    if (s->state.step_min > 0)
        af_log_write(AF_LOG_WARN,
                     "llama.cpp does not hold time steps of Mamba layers above time_step_min (%g), "
                     "as transformers does",
                     s->state.step_min);
}

static void put_delta_net(meta_writer *p, const af_model_spec *s)
{
    uint8_t state[AF_CONFIG_LAYERS_MAX];
    int every = 0;
    for (int i = 0; i < s->layers; i++) {
        state[i] = s->layer[i].mixer == AF_MIXER_DELTA_NET;
        every = every || state[i] ? every : i + 1;
    }
    if (s->eps != 1e-6)
        af_log_write(AF_LOG_WARN,
                     "llama.cpp takes rms_norm_eps (%g) for queries and keys of delta nets, too, "
                     "which have 1e-06 here",
                     s->eps);
    put_ssm(p, &s->state);
    put_array(p, "attention.recurrent_layers", AF_GGUF_BOOL, state, s->layers);
    put_u32(p, "full_attention_interval", every ? every : s->layers + 1);
}

static void put_kda(meta_writer *p, const af_state_keys *k)
{
    put_u32(p, "ssm.conv_kernel", k->conv_kernel);
    put_u32(p, "kda.head_dim", k->head_dim);
    if (k->decay_bound != 0) {
        put_bool(p, "kda.safe_gate", true);
        put_f32(p, "kda.gate_lower_bound", k->decay_bound);
    }
}

/* What families with state layers have. */
void af_meta_put_state(meta_writer *p, const af_model_spec *s, const af_hf_config *c)
{
    enum { SIGMOID = 2 };
    if (strncmp(p->arch, "lfm2", 4) == 0) {
        put_u32(p, "vocab_size", c->vocab_size);
        put_u32(p, "shortconv.l_cache", s->state.conv_kernel);
    }
    if (strcmp(p->arch, "lfm2moe") == 0) {
        put_u32(p, "leading_dense_block_count", c->mlp_only_count);
        put_u32(p, "expert_gating_func", SIGMOID);
    }
    if (strncmp(p->arch, "qwen35", 6) == 0 || strcmp(p->arch, "qwen3next") == 0)
        put_delta_net(p, s);
    if (s->state.channels)
        put_kda(p, &s->state);
    if (strncmp(p->arch, "nemotron_h", 10) == 0)
        put_nemotron(p, s);
    if (strncmp(p->arch, "mamba", 5) == 0 || strcmp(p->arch, "jamba") == 0)
        put_u32(p, "vocab_size", c->vocab_size);
    if (strcmp(p->arch, "mamba2") == 0)
        put_ssm(p, &s->state);
    if (strcmp(p->arch, "mamba") == 0)
        put_mamba(p, s);
    if (strcmp(p->arch, "jamba") == 0)
        put_selective(p, &s->state);
    if (strcmp(p->arch, "falcon-h1") == 0)
        put_falcon_h1(p, s, c);
    if (strcmp(p->arch, "granitehybrid") == 0) {
        put_u32(p, "vocab_size", c->vocab_size);
        put_ssm(p, &s->state);
        put_bool(p, "rope.scaling.finetuned", c->no_rope == NULL); /* its word for rope */
    }
}

/* Which positions (time, height, width) rotate which dimensions: of text, all three are the same.
 * And the layers of Qwen3-VL that images are added to. */
void af_meta_put_positions(meta_writer *p, const af_model_spec *s, const af_hf_config *c)
{
    enum { SECTIONS = 4 };
    static const struct {
        const char *arch;
        int32_t sections[SECTIONS]; /* where the config has none */
    } known[] = {{"qwen35", {11, 11, 10}},
                 {"qwen35moe", {11, 11, 10}},
                 {"qwen2vl", {16, 24, 24}},
                 {"qwen3vl", {24, 20, 20}},
                 {"qwen3vlmoe", {24, 20, 20}}};
    const json_t *text = af_config_own(c->raw), *rope = json_object_get(text, "rope_parameters");
    rope = rope ? rope : json_object_get(text, "rope_scaling");
    const json_t *own = json_object_get(rope, "mrope_section");
    const int half = s->rope[0].rotary_dim / 2;
    for (size_t k = 0; k < AF_LEN(known); k++) {
        int32_t n[SECTIONS];
        int64_t sum = 0;
        if (strcmp(p->arch, known[k].arch) != 0)
            continue;
        for (size_t i = 0; i < SECTIONS; i++) {
            n[i] = own ? (int32_t)json_integer_value(json_array_get(own, i)) : known[k].sections[i];
            sum += n[i];
        }
        if (sum != half) /* a model with narrow heads, where llama.cpp would stop */
            for (int i = 0; i < SECTIONS; i++)
                n[i] = i < 3 ? (half + 2 - i) / 3 : 0;
        put_array(p, "rope.dimension_sections", AF_GGUF_I32, n, SECTIONS);
    }
    const json_t *deep =
        json_object_get(json_object_get(c->raw, "vision_config"), "deepstack_visual_indexes");
    if (strncmp(p->arch, "qwen3vl", 7) == 0)
        put_u32(p, "n_deepstack_layers", deep ? (int64_t)json_array_size(deep) : 3);
}
