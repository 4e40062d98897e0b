/* arch_spec.c - a model's full description from a row of the table and a config: numbers, layers,
 * ropes. arch_list.c lists the tensors. */
#include "base/buf.h"
#include "model/arch/arch_fit.h"
#include "model/arch/arch_list.h"
#include "model/arch/arch_place.h"

#include <math.h>

static af_status read_act(af_model_spec *s, const char *name, af_error *err)
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
            s->act = acts[i].act;
            return AF_OK;
        }
    s->plain_act = strcmp(name, "relu2") == 0   ? AF_PLAIN_RELU2
                   : strcmp(name, "xielu") == 0 ? AF_PLAIN_XIELU
                                                : AF_PLAIN_ACT;
    if (s->arch->plain_mlp ? s->plain_act != AF_PLAIN_ACT
                           : s->plain_act == AF_PLAIN_RELU2 && !s->arch->moe)
        return AF_OK;
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

af_status af_spec_rope_dims(af_rope_set *r, int head_dim, af_error *err)
{
    const af_rope_config *c = &r->config;
    const double part = c->type == AF_ROPE_PROPORTIONAL ? 1 : c->partial_rotary_factor;
    r->dim = (int)((double)head_dim * part);
    const bool odd = r->dim % 2 == 1; /* torch rotates whole pairs all the same */
    r->rotary_dim = r->dim + odd;
    if (r->rotary_dim < 2 || (odd && (part == 1 || c->type != AF_ROPE_DEFAULT)) ||
        r->rotary_dim > head_dim)
        return af_fail(err, AF_EFORMAT,
                       "%d rotary dimensions of head_dim %d are not an even number", r->dim,
                       head_dim);
    return AF_OK;
}

static af_status fill_rope(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    af_status st = AF_OK;
    s->rope[0].config = c->rope;
    s->rope[1].config = c->local_rope;
    s->ropes = c->has_local_rope ? 2 : 1;
    s->max_positions = c->max_position_embeddings;
    s->rope_pairs = s->arch->rope_pairs;
    for (int i = 0; i < s->ropes; i++) {
        s->rope_by_length |= af_rope_depends_on_length(&s->rope[i].config);
        AF_TRY(af_spec_rope_dims(&s->rope[i], s->head_dim, err));
    }
done:
    return st;
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
        l->heads = s->heads;
        l->kv_heads = s->kv_heads;
        l->head_dim = s->head_dim;
        l->ffn = s->ffn;
        l->kv_from = i;
        l->window = sliding ? (int)AF_MIN(c->sliding_window, INT32_MAX) : 0;
        l->rope = c->no_rope && c->no_rope[i] ? -1 : sliding && s->ropes > 1 ? 1 : 0;
        l->mlp = s->arch->moe && is_moe(c, i) ? AF_MLP_EXPERTS
                 : s->arch->plain_mlp         ? AF_MLP_PLAIN
                                              : AF_MLP_GATED;
    }
    return AF_OK;
}

static void fill_numbers(af_model_spec *s, const af_hf_config *c)
{
    s->vocab = c->vocab_size;
    s->embed_rows = c->vocab_size + c->embed_more;
    s->folder_layers = c->folder_layers;
    s->width = s->embed_width = c->hidden_size;
    s->ffn = c->intermediate_size;
    s->expert_ffn = c->moe_intermediate_size;
    s->expert_width = c->router.latent ? c->router.latent : c->hidden_size;
    s->layers = (int)c->num_hidden_layers;
    s->heads = (int)c->num_attention_heads;
    s->kv_heads = (int)c->num_key_value_heads;
    s->head_dim = (int)c->head_dim;
    s->experts = (int)c->num_experts;
    s->experts_whole = s->arch->experts_whole;
    s->padding_row = !c->from_gguf && c->padding_row < c->vocab_size ? c->padding_row : -1;
    s->experts_used = (int)c->num_experts_per_tok;
    s->norm_topk = c->norm_topk_prob;
    s->labels = c->labels;
    s->tied = c->tie_word_embeddings && !c->labels;
    s->eps = s->final_eps = c->rms_norm_eps;
    s->qkv_clip = c->qkv_clip;
    s->value_scale = c->value_scale;
    s->parallel = s->arch->parallel;
    s->state = c->state;
    s->latent = c->latent;
    s->router = c->router;
    s->mup = c->mup;
    s->round_inputs = c->quant.method == AF_QUANT_BITNET;
    s->round_weights = s->round_inputs && c->quant.trained;
    const af_arch *a = s->arch; /* a key the family does not read changes nothing */
    s->attn_softcap = a->attn_cap ? c->attn_logit_softcapping : 0;
    s->logit_softcap = a->logit_cap ? c->final_logit_softcapping : 0;
    const bool scaled = a->query_scalar && c->query_pre_attn_scalar > 0;
    const double q = scaled ? c->query_pre_attn_scalar : (double)c->head_dim;
    const bool given = a->multipliers && c->attention_multiplier > 0;
    s->attn_scale = given ? c->attention_multiplier : 1 / sqrt(q);
    s->embed_scale = s->residual_scale = s->logit_scale = 1;
    s->embed_scales = a->scale_embedding || a->embed_norm_inside;
    if (a->scale_embedding)
        s->embed_scale = (double)(float)sqrt((double)c->hidden_size);
    if (a->multipliers) {
        s->embed_scale = c->embedding_multiplier;
        s->residual_scale = c->residual_multiplier;
        s->logit_scale = 1 / c->logits_scaling;
    }
    if (s->labels) { /* those are of logits of tokens */
        s->logit_scale = 1;
        s->logit_softcap = 0;
    }
}

/* What the text model is called inside the whole one; see arch_place.c. */
static af_status fill_place(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    const af_arch *a = s->arch;
    const char *stem = a->memory_stem ? a->memory_stem : af_arch_stem(a);
    const af_arch_place *p = c->nested ? af_arch_place_in(c->whole) : af_arch_place_at(0);
    s->head_before = p->head;
    s->inner = af_arena_printf(&s->arena, "%s%s", p->before, p->stem ? stem : "");
    if (!s->inner)
        return af_fail_nomem(err, "a name", 0);
    if (!*p->before)
        return AF_OK;
    /* the other parts may have modules of the same names; the name of the text model among the
     * modules has stayed, what is around it has not */
    const size_t n = strlen(p->before) - 1; /* without the last dot */
    const char *name = p->before + n;
    while (name > p->before && name[-1] != '.')
        name--;
    af_buf b = {0};
    af_buf_printf(&b, "(?!.*(%.*s\\.|lm_head)).*", (int)(p->before + n - name), name);
    int64_t next = 0; /* layers of the folder that are not there: 3, 8, ... */
    bool any = false;
    for (int64_t i = 0; c->folder_layers && i < c->num_hidden_layers; i++, next++)
        for (; next < c->folder_layers[i]; next++, any = true)
            af_buf_printf(&b, "%s%" PRId64, any ? "|" : "|.*\\.layers\\.(", next);
    af_buf_str(&b, any ? ")\\..*" : "");
    s->outside = b.bad ? NULL : af_arena_strdup(&s->arena, b.data);
    af_buf_clear(&b);
    return s->outside ? AF_OK : af_fail_nomem(err, "a pattern", 0);
}

/* Layers of a kind this build has no block for; and whether one keeps a state. */
static af_status check_mixers(af_model_spec *s, af_error *err)
{
    for (int i = 0; i < s->layers; i++) {
        const af_mixer m = s->layer[i].mixer;
        if (!af_list_has_mixer(m))
            return af_fail(err, AF_EUNSUPPORTED, "layer %d of '%s' is of a kind this build lacks",
                           i, s->arch->model_type);
        s->recurrent |= m != AF_MIXER_ATTENTION && m != AF_MIXER_LATENT && m != AF_MIXER_NONE;
    }
    return AF_OK;
}

/* Families whose linears are all of BitNet, and what its packed linears compute otherwise. */
static af_status check_bitnet(const af_model_spec *s, const af_hf_config *c, af_error *err)
{
    if (!s->round_inputs)
        return AF_OK;
    if (strcmp(s->arch->model_type, "llama") != 0 && !s->arch->sub_norms)
        return af_fail(err, AF_EUNSUPPORTED,
                       "weights quantised with 'bitnet' are supported for llama and bitnet, not "
                       "for '%.64s'",
                       c->model_type);
    if (!c->quant.online && (c->attention_bias || c->mlp_bias))
        return af_fail(err, AF_EUNSUPPORTED,
                       "packed weights of BitNet with biases are not supported");
    return AF_OK;
}

af_status af_model_spec_init(af_model_spec *out, const af_hf_config *c, af_error *err)
{
    af_status st = AF_OK;
    af_model_spec s = {0};
    s.arch = af_arch_find(c->model_type);
    if (!s.arch) {
        AF_TRY(af_arch_fits_llama(c, err));
        s.arch = af_arch_at(0);
    }
    AF_TRY(fill_place(&s, c, err));
    fill_numbers(&s, c);
    AF_TRY(check_bitnet(&s, c, err));
    if (s.arch->moe && !(s.arch->moe_or_dense && s.experts == 0) &&
        (s.experts < 1 || s.expert_ffn < 1))
        AF_TRY(af_fail(err, AF_EFORMAT, "num_experts is %d and moe_intermediate_size %" PRId64,
                       s.experts, s.expert_ffn));
    AF_TRY(read_act(&s, c->hidden_act, err));
    AF_TRY(fill_rope(&s, c, err));
    AF_TRY(fill_layers(&s, c, err));
    if (s.arch->fill)
        AF_TRY(s.arch->fill(&s, c, err));
    s.gguf = c->gguf ? c->gguf : s.arch->gguf;
    AF_TRY(check_mixers(&s, err));
    AF_TRY(af_list_model(&s, c, err));
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
        const af_rope_config *r = &s->rope[i].config;
        const int64_t old = r->original_max_position_embeddings;
        if (r->factor > 1)
            most = AF_MAX(most, r->factor * (double)(old > 0 ? old : s->max_positions));
    }
    return AF_MIN((int64_t)AF_MIN(most, 9e18), af_spec_longest(s));
}

int64_t af_spec_longest(const af_model_spec *s)
{
    return s->arch->positions     ? s->max_positions
           : s->latent.index_topk ? s->latent.index_topk
                                  : INT64_MAX;
}

af_status af_spec_check_length(const af_model_spec *s, const char *what, int64_t length,
                               af_error *err)
{
    const int64_t most = af_spec_longest(s);
    if (length <= most)
        return AF_OK;
    if (s->arch->positions)
        return af_fail(err, AF_EUSAGE,
                       "%s of %" PRId64 " tokens: longer than the %" PRId64
                       " positions this model %s",
                       what, length, most, s->arch->sinusoids ? "was made for" : "has learned");
    return af_fail(err, AF_EUSAGE,
                   "%s of %" PRId64 " tokens: longer than the %" PRId64
                   " keys that the indexer of this model picks (index_topk), and attention to a "
                   "part of the keys is not supported",
                   what, length, most);
}

void af_model_spec_clear(af_model_spec *s)
{
    af_arena_clear(&s->arena);
    *s = (af_model_spec){0};
}

void af_spec_whole_name(const af_model_spec *s, const char *name, char *out, size_t size)
{
    const char *stem = af_arch_stem(s->arch);
    const size_t n = strlen(stem);
    const char *head = s->arch->head_module;
    if (strncmp(name, stem, n) == 0)
        snprintf(out, size, "%s%s", s->inner, name + n);
    else if (head && strcmp(name, af_slot_hf_name(s->arch, AF_SLOT_HEAD)) == 0)
        snprintf(out, size, "%s%s.weight", s->head_before, head);
    else
        snprintf(out, size, "%s%s", s->head_before, name);
    for (const char *const(*p)[2] = s->arch->in_memory; p && (*p)[0]; p++) {
        char rest[256], *at = strstr(out, (*p)[0]);
        if (!at)
            continue;
        snprintf(rest, sizeof rest, "%s", at + strlen((*p)[0]));
        snprintf(at, size - (size_t)(at - out), "%s%s", (*p)[1], rest);
        return;
    }
}

void af_spec_layers_prefix(const af_model_spec *s, char *out, size_t size)
{
    snprintf(out, size, "%s%s.", s->arch->stem ? s->arch->stem : "model.",
             s->arch->layers ? s->arch->layers : "layers");
}

bool af_spec_has_part(const af_model_spec *s, const char *rest)
{
    const size_t stem = strlen(af_arch_stem(s->arch)), n = strcspn(rest, ".");
    char layers[64];
    af_spec_layers_prefix(s, layers, sizeof layers);
    if (strncmp(rest, layers + stem, n) == 0)
        return true;
    for (int i = 0; i < s->tensors; i++)
        if (s->tensor[i].layer < 0 && strlen(s->tensor[i].name) > stem + n &&
            strncmp(s->tensor[i].name + stem, rest, n) == 0)
            return true;
    return false;
}

bool af_module_is_shared(const af_model_spec *s, int module)
{
    for (int i = 0; i < s->modules; i++)
        if (i != module && s->module[i].layer >= 0 &&
            s->module[i].weight == s->module[module].weight)
            return true;
    return false;
}

int af_model_spec_tensor(const af_model_spec *s, const char *name)
{
    for (int i = 0; i < s->tensors; i++)
        if (strcmp(s->tensor[i].name, name) == 0)
            return i;
    return -1;
}
