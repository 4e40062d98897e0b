/* arch.c - the table of architectures, and a model's full description from a row and a config.
 *
 * A new Llama-like family is a row here and a golden in the tests. */
#include "model/arch.h"

#include "model/arch_fit.h"

#include <math.h>

static const af_arch rows[] = {
    {.model_type = "llama",
     .gguf = "llama",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .gguf_permuted = true},
    {.model_type = "mistral", .gguf = "llama", .pre_norm = true, .gguf_permuted = true},
    {.model_type = "qwen2", .gguf = "qwen2", .pre_norm = true, .bias = AF_BIAS_QKV},
    {.model_type = "qwen3",
     .gguf = "qwen3",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true},
    {.model_type = "qwen3_moe",
     .gguf = "qwen3moe",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .moe = true},
    {.model_type = "gemma",
     .gguf = "gemma",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .norm_plus_one = true,
     .scale_embedding = true,
     .gguf_norm_one = true},
    {.model_type = "gemma2",
     .gguf = "gemma2",
     .pre_norm = true,
     .post_norm = true,
     .bias = AF_BIAS_CONFIG,
     .norm_plus_one = true,
     .scale_embedding = true,
     .attn_cap = true,
     .logit_cap = true,
     .query_scalar = true,
     .gguf_norm_one = true},
    {.model_type = "gemma3_text",
     .gguf = "gemma3",
     .pre_norm = true,
     .post_norm = true,
     .bias = AF_BIAS_CONFIG,
     .norm_plus_one = true,
     .qk_norm = true,
     .scale_embedding = true,
     .logit_cap = true,
     .query_scalar = true,
     .gguf_norm_one = true},
    {.model_type = "phi3", .gguf = "phi3", .pre_norm = true, .fused = true},
    {.model_type = "smollm3",
     .gguf = "smollm3",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .gguf_permuted = true},
    {.model_type = "olmo2",
     .gguf = "olmo2",
     .post_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .qk_norm_row = true},
    {.model_type = "granite",
     .gguf = "granite",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .multipliers = true,
     .gguf_permuted = true},
};

const af_arch *af_arch_find(const char *model_type)
{
    for (size_t i = 0; i < AF_LEN(rows); i++)
        if (strcmp(rows[i].model_type, model_type) == 0)
            return &rows[i];
    return NULL;
}

/* ---- names ---- */

static const struct {
    const char *hf, *gguf; /* inside a layer */
} names[AF_SLOT_LAYER_COUNT] = {
    [AF_SLOT_ATTN_NORM] = {"input_layernorm.weight", "attn_norm.weight"},
    [AF_SLOT_POST_ATTN_NORM] = {"post_attention_layernorm.weight", "post_attention_norm.weight"},
    [AF_SLOT_MLP_NORM] = {"post_attention_layernorm.weight", "ffn_norm.weight"},
    [AF_SLOT_POST_MLP_NORM] = {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
    [AF_SLOT_Q] = {"self_attn.q_proj.weight", "attn_q.weight"},
    [AF_SLOT_K] = {"self_attn.k_proj.weight", "attn_k.weight"},
    [AF_SLOT_V] = {"self_attn.v_proj.weight", "attn_v.weight"},
    [AF_SLOT_QKV] = {"self_attn.qkv_proj.weight", "attn_qkv.weight"},
    [AF_SLOT_O] = {"self_attn.o_proj.weight", "attn_output.weight"},
    [AF_SLOT_Q_BIAS] = {"self_attn.q_proj.bias", "attn_q.bias"},
    [AF_SLOT_K_BIAS] = {"self_attn.k_proj.bias", "attn_k.bias"},
    [AF_SLOT_V_BIAS] = {"self_attn.v_proj.bias", "attn_v.bias"},
    [AF_SLOT_O_BIAS] = {"self_attn.o_proj.bias", "attn_output.bias"},
    [AF_SLOT_Q_NORM] = {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    [AF_SLOT_K_NORM] = {"self_attn.k_norm.weight", "attn_k_norm.weight"},
    [AF_SLOT_GATE] = {"mlp.gate_proj.weight", "ffn_gate.weight"},
    [AF_SLOT_UP] = {"mlp.up_proj.weight", "ffn_up.weight"},
    [AF_SLOT_GATE_UP] = {"mlp.gate_up_proj.weight", "ffn_up.weight"},
    [AF_SLOT_DOWN] = {"mlp.down_proj.weight", "ffn_down.weight"},
    [AF_SLOT_GATE_BIAS] = {"mlp.gate_proj.bias", "ffn_gate.bias"},
    [AF_SLOT_UP_BIAS] = {"mlp.up_proj.bias", "ffn_up.bias"},
    [AF_SLOT_DOWN_BIAS] = {"mlp.down_proj.bias", "ffn_down.bias"},
    [AF_SLOT_ROUTER] = {"mlp.gate.weight", "ffn_gate_inp.weight"},
    [AF_SLOT_EXPERTS_GATE_UP] = {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight"},
    [AF_SLOT_EXPERTS_DOWN] = {"mlp.experts.down_proj", "ffn_down_exps.weight"},
};

/* Where both norms exist, the one before the mlp has another name. */
static const char *hf_name(const af_arch *a, af_slot slot)
{
    if (slot == AF_SLOT_MLP_NORM && a->post_norm)
        return "pre_feedforward_layernorm.weight";
    return names[slot].hf;
}

/* ---- the lists ---- */

enum { SLOTS_PER_LAYER = AF_SLOT_LAYER_COUNT, MODULES_PER_LAYER = 7 };

typedef struct lister {
    af_model_spec *s;
    bool failed; /* no memory, or the count of parameters does not fit */
} lister;

static int add_tensor(lister *l, af_slot slot, int layer, int ndim, int64_t a, int64_t b, int64_t c)
{
    af_model_spec *s = l->s;
    const int i = s->tensors++;
    af_tensor_spec *t = &s->tensor[i];
    *t = (af_tensor_spec){
        .slot = slot, .layer = layer, .ndim = ndim, .dim = {a, b, c}, .module = -1};
    uint64_t count = (uint64_t)a, total;
    l->failed |= ndim > 1 && !af_mul_ok(count, (uint64_t)b, &count);
    l->failed |= ndim > 2 && !af_mul_ok(count, (uint64_t)c, &count);
    l->failed |= !af_add_ok((uint64_t)s->params, count, &total) || total > (UINT64_C(1) << 50);
    s->params = l->failed ? s->params : (int64_t)total;
    if (layer >= 0) {
        s->layer[layer].tensor[slot] = i;
        t->name = af_arena_printf(&s->arena, "model.layers.%d.%s", layer, hf_name(s->arch, slot));
        t->gguf = af_arena_printf(&s->arena, "blk.%d.%s", layer, names[slot].gguf);
        l->failed |= !t->name || !t->gguf;
    }
    return i;
}

/* A linear of a layer: its weight, its bias, and its place among the modules. */
static void add_linear(lister *l, int layer, af_group group, af_slot slot, int64_t out, int64_t in,
                       int bias_slot)
{
    af_model_spec *s = l->s;
    af_layer_spec *ls = &s->layer[layer];
    const int w = add_tensor(l, slot, layer, 2, out, in, 1);
    const int b = bias_slot >= 0 ? add_tensor(l, (af_slot)bias_slot, layer, 1, out, 1, 1) : -1;
    const int m = s->modules++, piece = ls->pieces[group]++;
    int64_t from = 0;
    for (int i = 0; i < piece; i++)
        from += s->module[ls->module[group][i]].out;
    s->module[m] = (af_module_spec){.layer = layer,
                                    .group = group,
                                    .piece = piece,
                                    .out_from = from,
                                    .out = out,
                                    .in = in,
                                    .weight = w,
                                    .bias = b};
    if (s->tensor[w].name) {
        char name[256];
        af_spec_whole_name(s, s->tensor[w].name, name, sizeof name);
        s->module[m].path = af_arena_strndup(&s->arena, name, strlen(name) - strlen(".weight"));
    }
    l->failed |= !s->module[m].path;
    ls->module[group][piece] = m;
    s->tensor[w].module = m;
    if (slot == AF_SLOT_Q || slot == AF_SLOT_K) {
        s->tensor[w].row_heads = slot == AF_SLOT_Q ? s->heads : s->kv_heads;
        if (b >= 0)
            s->tensor[b].row_heads = s->tensor[w].row_heads;
    }
}

static void list_attention(lister *l, const af_hf_config *c, int i)
{
    const af_model_spec *s = l->s;
    const af_arch *a = s->arch;
    const int64_t D = s->width, E = s->head_dim, HE = s->heads * E, KE = s->kv_heads * E;
    const bool qkv = a->bias == AF_BIAS_QKV || (a->bias == AF_BIAS_CONFIG && c->attention_bias);
    const bool o = a->bias == AF_BIAS_CONFIG && c->attention_bias;
    if (a->pre_norm)
        add_tensor(l, AF_SLOT_ATTN_NORM, i, 1, D, 1, 1);
    if (a->fused) {
        add_linear(l, i, AF_GROUP_QKV, AF_SLOT_QKV, HE + 2 * KE, D, -1);
    } else {
        add_linear(l, i, AF_GROUP_QKV, AF_SLOT_Q, HE, D, qkv ? AF_SLOT_Q_BIAS : -1);
        add_linear(l, i, AF_GROUP_QKV, AF_SLOT_K, KE, D, qkv ? AF_SLOT_K_BIAS : -1);
        add_linear(l, i, AF_GROUP_QKV, AF_SLOT_V, KE, D, qkv ? AF_SLOT_V_BIAS : -1);
    }
    if (a->qk_norm) {
        add_tensor(l, AF_SLOT_Q_NORM, i, 1, a->qk_norm_row ? HE : E, 1, 1);
        add_tensor(l, AF_SLOT_K_NORM, i, 1, a->qk_norm_row ? KE : E, 1, 1);
    }
    add_linear(l, i, AF_GROUP_O, AF_SLOT_O, D, HE, o ? AF_SLOT_O_BIAS : -1);
    if (a->post_norm)
        add_tensor(l, AF_SLOT_POST_ATTN_NORM, i, 1, D, 1, 1);
}

static void list_mlp(lister *l, const af_hf_config *c, int i)
{
    const af_model_spec *s = l->s;
    const af_arch *a = s->arch;
    const int64_t D = s->width, F = s->ffn, X = s->experts;
    const bool bias = c->mlp_bias;
    if (a->pre_norm)
        add_tensor(l, AF_SLOT_MLP_NORM, i, 1, D, 1, 1);
    if (s->layer[i].moe) {
        add_tensor(l, AF_SLOT_ROUTER, i, 2, X, D, 1);
        add_tensor(l, AF_SLOT_EXPERTS_GATE_UP, i, 3, X, 2 * s->expert_ffn, D);
        add_tensor(l, AF_SLOT_EXPERTS_DOWN, i, 3, X, D, s->expert_ffn);
    } else if (a->fused) {
        add_linear(l, i, AF_GROUP_GATE_UP, AF_SLOT_GATE_UP, 2 * F, D, -1);
        add_linear(l, i, AF_GROUP_DOWN, AF_SLOT_DOWN, D, F, -1);
    } else {
        add_linear(l, i, AF_GROUP_GATE_UP, AF_SLOT_GATE, F, D, bias ? AF_SLOT_GATE_BIAS : -1);
        add_linear(l, i, AF_GROUP_GATE_UP, AF_SLOT_UP, F, D, bias ? AF_SLOT_UP_BIAS : -1);
        add_linear(l, i, AF_GROUP_DOWN, AF_SLOT_DOWN, D, F, bias ? AF_SLOT_DOWN_BIAS : -1);
    }
    if (a->post_norm)
        add_tensor(l, AF_SLOT_POST_MLP_NORM, i, 1, D, 1, 1);
}

static void add_outer(lister *l, af_slot slot, int *place, const char *name, const char *gguf,
                      int ndim, int64_t a, int64_t b)
{
    *place = add_tensor(l, slot, -1, ndim, a, b, 1);
    l->s->tensor[*place].name = name;
    l->s->tensor[*place].gguf = gguf;
}

/* An embedding is a linear over one-hot rows: in and out change places. */
static int add_outer_module(lister *l, af_group group, const char *path, int tensor)
{
    af_model_spec *s = l->s;
    const bool embed = group == AF_GROUP_EMBED;
    s->tensor[tensor].module = s->tensor[tensor].module < 0 ? s->modules : s->tensor[tensor].module;
    s->module[s->modules++] = (af_module_spec){.path = path,
                                               .layer = -1,
                                               .group = group,
                                               .out = embed ? s->width : s->vocab,
                                               .in = embed ? s->vocab : s->width,
                                               .weight = tensor,
                                               .bias = -1};
    return s->modules - 1;
}

static af_status list_all(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    lister l = {.s = s};
    const uint64_t n = (uint64_t)s->layers;
    s->tensor = af_arena_take(&s->arena, (n * SLOTS_PER_LAYER + 4) * sizeof *s->tensor);
    s->module = af_arena_take(&s->arena, (n * MODULES_PER_LAYER + 4) * sizeof *s->module);
    if (!s->tensor || !s->module)
        return af_fail_nomem(err, "the list of tensors", n * SLOTS_PER_LAYER * sizeof *s->tensor);
    add_outer(&l, AF_SLOT_EMBED, &s->embed, "model.embed_tokens.weight", "token_embd.weight", 2,
              s->vocab, s->width);
    for (int i = 0; i < s->layers; i++) {
        list_attention(&l, c, i);
        list_mlp(&l, c, i);
    }
    add_outer(&l, AF_SLOT_FINAL_NORM, &s->final_norm, "model.norm.weight", "output_norm.weight", 1,
              s->width, 1);
    s->head = s->embed;
    if (!s->tied)
        add_outer(&l, AF_SLOT_HEAD, &s->head, "lm_head.weight", "output.weight", 2, s->vocab,
                  s->width);
    const char *embed = af_arena_printf(&s->arena, "%sembed_tokens", s->inner);
    l.failed |= !embed;
    s->embed_module = add_outer_module(&l, AF_GROUP_EMBED, embed, s->embed);
    s->head_module = add_outer_module(&l, AF_GROUP_HEAD, "lm_head", s->head);
    if (l.failed)
        return af_fail(err, AF_EFORMAT,
                       "the config describes more than 2^50 parameters (hidden_size %" PRId64
                       ", intermediate_size %" PRId64 ", %d layers)",
                       s->width, s->ffn, s->layers);
    return AF_OK;
}

/* ---- switches and numbers ---- */

static af_status read_act(af_act *out, const char *name, af_error *err)
{
    static const struct {
        const char *name;
        af_act act;
    } acts[] = {{"silu", AF_ACT_SILU},
                {"swish", AF_ACT_SILU},
                {"gelu_pytorch_tanh", AF_ACT_GELU_TANH},
                {"gelu_new", AF_ACT_GELU_TANH},
                {"gelu_fast", AF_ACT_GELU_TANH},
                {"gelu", AF_ACT_GELU},
                {"relu", AF_ACT_RELU}};
    for (size_t i = 0; i < AF_LEN(acts); i++)
        if (strcmp(acts[i].name, name) == 0) {
            *out = acts[i].act;
            return AF_OK;
        }
    return af_fail(err, AF_EUNSUPPORTED, "hidden_act '%.64s' is not one of silu, gelu, relu", name);
}

static bool is_moe(const af_hf_config *c, int64_t layer)
{
    for (int k = 0; k < c->mlp_only_count; k++)
        if (c->mlp_only_layers[k] == layer)
            return false;
    return c->num_experts > 0 && c->decoder_sparse_step > 0 &&
           (layer + 1) % c->decoder_sparse_step == 0;
}

static af_status fill_rope(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    s->rope[0] = c->rope;
    s->rope[1] = c->local_rope;
    s->ropes = c->has_local_rope ? 2 : 1;
    for (int i = 0; i < s->ropes; i++)
        s->rope_by_length |= af_rope_depends_on_length(&s->rope[i]);
    s->max_positions = c->max_position_embeddings;
    const double part = c->rope.type == AF_ROPE_PROPORTIONAL ? 1 : c->rope.partial_rotary_factor;
    s->rope_dim = (int)((double)s->head_dim * part);
    const bool odd = s->rope_dim % 2 == 1; /* torch rotates whole pairs all the same */
    s->rotary_dim = s->rope_dim + odd;
    if (s->rotary_dim < 2 || (odd && (part == 1 || c->rope.type != AF_ROPE_DEFAULT)) ||
        s->rotary_dim > s->head_dim)
        return af_fail(err, AF_EFORMAT,
                       "%d rotary dimensions of head_dim %d are not an even number", s->rope_dim,
                       s->head_dim);
    return AF_OK;
}

static af_status fill_layers(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    s->layer = af_arena_take(&s->arena, (uint64_t)s->layers * sizeof *s->layer);
    if (!s->layer)
        return af_fail_nomem(err, "the layers", (uint64_t)s->layers * sizeof *s->layer);
    for (int i = 0; i < s->layers; i++) {
        af_layer_spec *l = &s->layer[i];
        const bool sliding = c->layer_types[i] == AF_LAYER_SLIDING;
        memset(l->tensor, 0xff, sizeof l->tensor); /* -1: absent */
        memset(l->module, 0xff, sizeof l->module);
        l->window = sliding ? (int)AF_MIN(c->sliding_window, INT32_MAX) : 0;
        l->rope = c->no_rope && c->no_rope[i] ? -1 : sliding && s->ropes > 1 ? 1 : 0;
        l->moe = s->arch->moe && is_moe(c, i);
    }
    return AF_OK;
}

static void fill_numbers(af_model_spec *s, const af_hf_config *c)
{
    s->vocab = c->vocab_size;
    s->width = c->hidden_size;
    s->ffn = c->intermediate_size;
    s->expert_ffn = c->moe_intermediate_size;
    s->layers = (int)c->num_hidden_layers;
    s->heads = (int)c->num_attention_heads;
    s->kv_heads = (int)c->num_key_value_heads;
    s->head_dim = (int)c->head_dim;
    s->experts = (int)c->num_experts;
    s->padding_row = !c->from_gguf && c->padding_row < c->vocab_size ? c->padding_row : -1;
    s->experts_used = (int)c->num_experts_per_tok;
    s->norm_topk = c->norm_topk_prob;
    s->tied = c->tie_word_embeddings;
    s->eps = c->rms_norm_eps;
    s->inner = c->nested ? "model.language_model." : "model.";
    const af_arch *a = s->arch; /* a key the family does not read changes nothing */
    s->attn_softcap = a->attn_cap ? c->attn_logit_softcapping : 0;
    s->logit_softcap = a->logit_cap ? c->final_logit_softcapping : 0;
    const bool scaled = a->query_scalar && c->query_pre_attn_scalar > 0;
    const double q = scaled ? c->query_pre_attn_scalar : (double)c->head_dim;
    const bool given = a->multipliers && c->attention_multiplier > 0;
    s->attn_scale = given ? c->attention_multiplier : 1 / sqrt(q);
    s->embed_scale = s->residual_scale = s->logit_scale = 1;
    if (a->scale_embedding)
        s->embed_scale = (double)(float)sqrt((double)c->hidden_size);
    if (a->multipliers) {
        s->embed_scale = c->embedding_multiplier;
        s->residual_scale = c->residual_multiplier;
        s->logit_scale = 1 / c->logits_scaling;
    }
}

af_status af_model_spec_init(af_model_spec *out, const af_hf_config *c, af_error *err)
{
    af_status st = AF_OK;
    af_model_spec s = {0};
    s.arch = af_arch_find(c->model_type);
    if (!s.arch) {
        AF_TRY(af_arch_fits_llama(c, err));
        s.arch = &rows[0];
    }
    fill_numbers(&s, c);
    if (s.arch->moe && (s.experts < 1 || s.expert_ffn < 1))
        AF_TRY(af_fail(err, AF_EFORMAT, "num_experts is %d and moe_intermediate_size %" PRId64,
                       s.experts, s.expert_ffn));
    AF_TRY(read_act(&s.act, c->hidden_act, err));
    AF_TRY(fill_rope(&s, c, err));
    AF_TRY(fill_layers(&s, c, err));
    AF_TRY(list_all(&s, c, err));
    *out = s;
    s = (af_model_spec){0};
done:
    af_model_spec_clear(&s);
    return st;
}

int64_t af_spec_context(const af_model_spec *s)
{
    double most = (double)s->max_positions;
    for (int i = 0; i < s->ropes; i++) {
        const int64_t old = s->rope[i].original_max_position_embeddings;
        if (s->rope[i].factor > 1)
            most = AF_MAX(most, s->rope[i].factor * (double)(old > 0 ? old : s->max_positions));
    }
    return (int64_t)AF_MIN(most, 9e18);
}

void af_model_spec_clear(af_model_spec *s)
{
    af_arena_clear(&s->arena);
    *s = (af_model_spec){0};
}

void af_spec_whole_name(const af_model_spec *s, const char *name, char *out, size_t size)
{
    const bool inside = strncmp(name, "model.", 6) == 0;
    snprintf(out, size, "%s%s", inside ? s->inner : "", name + (inside ? 6 : 0));
}

int af_model_spec_tensor(const af_model_spec *s, const char *name)
{
    for (int i = 0; i < s->tensors; i++)
        if (strcmp(s->tensor[i].name, name) == 0)
            return i;
    return -1;
}

/* ---- how tensors lie on disk ---- */

int af_disk_count(const af_model_spec *s, int tensor)
{
    switch (s->tensor[tensor].slot) {
    case AF_SLOT_EXPERTS_GATE_UP:
        return 2 * s->experts;
    case AF_SLOT_EXPERTS_DOWN:
        return s->experts;
    default:
        return 1;
    }
}

void af_disk_piece(const af_model_spec *s, int tensor, int p, char *name, size_t size,
                   int64_t dim[2], int *ndim, int64_t *from)
{
    const af_tensor_spec *t = &s->tensor[tensor];
    const bool gate_up = t->slot == AF_SLOT_EXPERTS_GATE_UP;
    if (!gate_up && t->slot != AF_SLOT_EXPERTS_DOWN) {
        snprintf(name, size, "%s", t->name);
        dim[0] = t->dim[0];
        dim[1] = t->dim[1];
        *ndim = t->ndim;
        *from = 0;
        return;
    }
    const int64_t F = s->expert_ffn, D = s->width;
    const char *what = !gate_up ? "down" : p % 2 == 0 ? "gate" : "up";
    snprintf(name, size, "model.layers.%d.mlp.experts.%d.%s_proj.weight", t->layer,
             gate_up ? p / 2 : p, what);
    dim[0] = gate_up ? F : D;
    dim[1] = gate_up ? D : F;
    *ndim = 2;
    *from = p * F * D;
}
