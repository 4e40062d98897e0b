/* method.c - from run-file keys to the adapter they mean. */
#include "train/run/method.h"
#include "base/word.h"
#include "model/adapter_config.h"

#include "train/run/freeze.h"
#include <ctype.h>
#include <jansson.h>

int af_method_quantises(const af_run_config *r)
{
    if (af_method_trains_base(r))
        return 0;
    return r->load_in_8bit                                                 ? 8
           : r->method == AF_METHOD_QLORA || r->load_in_4bit == AF_TRI_YES ? 4
                                                                           : 0;
}

/* A number of config.json, of its text part where it has one. */
static double config_number(const af_hf_config *c, const char *key, double absent)
{
    if (!c->raw) /* GGUF */
        return 0;
    const json_t *v = json_object_get(af_config_own(c->raw), key);
    return json_is_number(v) ? json_number_value(v) : absent;
}

bool af_method_bf16_weights(const af_run_config *r)
{
    return r->bf16_stochastic_round || r->kahan_sum;
}

af_rounding af_method_rounding(const af_run_config *r)
{
    return r->kahan_sum               ? AF_ROUNDING_KAHAN
           : r->bf16_stochastic_round ? AF_ROUNDING_STOCHASTIC
                                      : AF_ROUNDING_NEAREST; /* f32: nothing is rounded */
}

bool af_method_has_dropout(const af_run_config *r)
{
    return r->disable_dropout == AF_TRI_NO ||
           (r->disable_dropout == AF_TRI_AUTO && r->rl == AF_RL_NONE);
}

/* A dropout of a model type: its key, and what transformers takes where that is absent. */
typedef struct dropout_key {
    const char *model_type, *key;
    double absent;
} dropout_key;

static double dropout_of(const af_hf_config *c, const dropout_key *keys, double other)
{
    for (; keys->model_type; keys++)
        if (strcmp(c->model_type, keys->model_type) == 0)
            return config_number(c, keys->key, keys->absent);
    return other;
}

af_branch_dropout af_method_residual_dropout(const af_hf_config *c, const af_model_spec *s)
{
    static const dropout_key keys[] = {{"phi3", "resid_pdrop", 0},
                                       {"phi", "resid_pdrop", 0},
                                       {"seed_oss", "residual_dropout", 0.1},
                                       {"starcoder2", "residual_dropout", 0},
                                       {"gpt2", "resid_pdrop", 0.1},
                                       {"gpt_bigcode", "resid_pdrop", 0.1},
                                       {"gptj", "resid_pdrop", 0},
                                       {"codegen", "resid_pdrop", 0},
                                       {"opt", "dropout", 0.1},
                                       {"openai-gpt", "resid_pdrop", 0.1},
                                       {"biogpt", "hidden_dropout_prob", 0.1},
                                       {"xglm", "dropout", 0.1},
                                       {"bloom", "hidden_dropout", 0},
                                       {"dbrx", "resid_pdrop", 0},
                                       {"gpt_neox", "hidden_dropout", 0},
                                       {"gpt_neo", "resid_dropout", 0},
                                       {0}};
    static const dropout_key mlp_keys[] = {{"stablelm", "hidden_dropout", 0},
                                           {"persimmon", "hidden_dropout", 0},
                                           {"falcon", "hidden_dropout", 0},
                                           {0}};
    const double both = dropout_of(c, keys, 0), mlp = dropout_of(c, mlp_keys, both);
    const bool sum = s->parallel && strcmp(c->model_type, "falcon") == 0;
    return (af_branch_dropout){.attention = sum ? mlp : both, .mlp = mlp, .sum = sum};
}

double af_method_embed_dropout(const af_hf_config *c)
{
    static const dropout_key keys[] = {{"phi", "embd_pdrop", 0},
                                       {"gpt2", "embd_pdrop", 0.1},
                                       {"gptj", "embd_pdrop", 0},
                                       {"gpt_bigcode", "embd_pdrop", 0.1},
                                       {"codegen", "embd_pdrop", 0},
                                       {"dbrx", "emb_pdrop", 0},
                                       {"openai-gpt", "embd_pdrop", 0.1},
                                       {"biogpt", "hidden_dropout_prob", 0.1},
                                       {"xglm", "dropout", 0.1},
                                       {"starcoder2", "embedding_dropout", 0},
                                       {"gpt_neox", "hidden_dropout", 0},
                                       {"gpt_neo", "embed_dropout", 0},
                                       {0}};
    return dropout_of(c, keys, 0);
}

double af_method_router_coef(const af_run_config *r, const af_hf_config *c, const af_model_spec *s)
{
    const bool set = af_run_key_is_set(r, "router_aux_loss_coef");
    /* TRL's trainers of DPO and KTO ask every model for it */
    const bool asks = r->rl == AF_RL_DPO || r->rl == AF_RL_IPO || r->rl == AF_RL_KTO;
    bool any = false, on = asks || c->output_router_logits || (set && r->router_loss_coef > 0);
    if (af_run_scores(r))
        return 0;
    for (int i = 0; i < s->layers; i++)
        any |= s->layer[i].mlp == AF_MLP_EXPERTS;
    if (af_run_key_is_set(r, "output_router_logits"))
        on = r->router_logits;
    return !any || !on || s->arch->no_router_loss ? 0
           : set                                  ? r->router_loss_coef
                                                  : c->router_aux_loss_coef;
}

/* Dropout of attention weights: the fused kernels have none. */
static af_status check_dropout(const af_run_config *r, const af_hf_config *c, af_error *err)
{
    char at[300];
    const bool set = af_run_key_is_set(r, "attention_dropout");
    static const dropout_key keys[] = {{"seed_oss", "attention_dropout", 0.1},
                                       {"gpt2", "attn_pdrop", 0.1},
                                       {"gpt_bigcode", "attn_pdrop", 0.1},
                                       {"gptj", "attn_pdrop", 0},
                                       {"codegen", "attn_pdrop", 0},
                                       {"openai-gpt", "attn_pdrop", 0.1},
                                       {"biogpt", "attention_probs_dropout_prob", 0.1},
                                       {"xglm", "attention_dropout", 0.1},
                                       {0}};
    const double p =
        set ? r->attention_dropout : dropout_of(c, keys, config_number(c, "attention_dropout", 0));
    if (p == 0)
        return AF_OK;
    return af_fail(err, AF_EUNSUPPORTED,
                   "%s: attention_dropout %g%s is not supported: set 'attention_dropout: 0' to "
                   "train without",
                   af_run_key_loc(r, "attention_dropout", at, sizeof at), p,
                   set ? "" : " of the model's config");
}

af_status af_method_check_base(const af_run_config *r, const af_hf_config *c, af_error *err)
{
    char at[300];
    const af_status st = check_dropout(r, c, err);
    if (st != AF_OK)
        return st;
    if (r->load_in_8bit && c->quant.method == AF_QUANT_BNB_4BIT)
        return af_fail(err, AF_EUSAGE,
                       "%s: load_in_8bit, but '%s' is stored in 4 bits: leave the key out, or name "
                       "the plain model as base_model",
                       af_run_key_loc(r, "load_in_8bit", at, sizeof at), r->base_model);
    if (r->load_in_4bit != AF_TRI_NO || c->quant.method != AF_QUANT_BNB_4BIT)
        return AF_OK;
    return af_fail(err, AF_EUSAGE,
                   "%s: 'load_in_4bit: false' has no effect: '%s' is stored in 4 bits; leave the "
                   "key out, or name the plain model as base_model",
                   af_run_key_loc(r, "load_in_4bit", at, sizeof at), r->base_model);
}

bool af_method_lost_in_peft(const af_model_spec *s, const af_module_spec *m)
{
    if (s->arch->peft_no_out && m->group == AF_GROUP_OUT)
        return true;
    if (s->arch->peft_no_step && m->group == AF_GROUP_STEP_OUT)
        return true;
    return s->arch->peft_converts &&
           (m->group == AF_GROUP_GATE_UP || m->group == AF_GROUP_DOWN ||
            m->group == AF_GROUP_ATTN_GATE || /* gate_proj, too */
            m->group == AF_GROUP_SHARED_GATE_UP || m->group == AF_GROUP_SHARED_DOWN);
}

/* Names of the layers' linears, each once; those that PEFT would not load are left out. */
static int linear_names(const char **out, const af_model_spec *s)
{
    int n = 0;
    for (int i = 0; i < s->modules && n < AF_METHOD_NAMES_MAX; i++) {
        const char *path = s->module[i].path, *dot = strrchr(path, '.');
        const char *name = dot ? dot + 1 : path;
        while (isdigit((unsigned char)*name) && name > path + 1) { /* layers end in numbers, too */
            for (name--; name > path && name[-1] != '.'; name--)
                ;
        }
        const af_group g = s->module[i].group;
        const bool outside = g == AF_GROUP_HEAD || g == AF_GROUP_EMBED;
        bool known = outside || s->module[i].parameter || af_method_lost_in_peft(s, &s->module[i]);
        for (int k = 0; k < n; k++)
            known |= strcmp(out[k], name) == 0;
        if (!known)
            out[n++] = name;
    }
    return n;
}

static af_status take_layers(af_adapter_config *c, af_method_lists *lists, const af_run_config *r,
                             const af_model_spec *spec, af_error *err)
{
    char at[300];
    int stride;
    const af_status st = af_llama_pro_stride(&stride, r, spec, err);
    if (st != AF_OK)
        return st;
    const int last = af_spec_folder_layer(spec, spec->layers - 1);
    const char *key = r->lora_layers.count ? "lora_layers_to_transform"
                      : r->llama_pro       ? "use_llama_pro"
                                           : "num_layers";
    c->layers = lists->layer;
    c->layer_count = r->lora_layers.count;
    if (c->target_regex && (r->lora_layers.count || r->num_layers > 0 || r->llama_pro))
        return af_fail(err, AF_EUSAGE,
                       "%s: %s goes with a list of modules, not with the regular expression "
                       "'%.60s'",
                       af_run_key_loc(r, key, at, sizeof at), key, c->target_regex);
    const int64_t first = r->lora_layers.count ? spec->layers : spec->layers - r->num_layers;
    for (int64_t i = first; r->num_layers > 0 && first > 0 && i < spec->layers; i++)
        lists->layer[c->layer_count++] = af_spec_folder_layer(spec, (int)i);
    for (int i = stride - 1; r->llama_pro && i <= last && i < AF_METHOD_LAYERS_MAX; i += stride)
        lists->layer[c->layer_count++] = i;
    af_run_key_loc(r, "lora_layers_to_transform", at, sizeof at);
    if (r->lora_layers.count > AF_METHOD_LAYERS_MAX)
        return af_fail(err, AF_EUSAGE, "%s: lora_layers_to_transform has %d entries, at most %d",
                       at, r->lora_layers.count, AF_METHOD_LAYERS_MAX);
    for (int i = 0; i < r->lora_layers.count; i++) {
        const af_yaml n = {.kind = AF_YAML_SCALAR, .text = r->lora_layers.item[i]};
        int64_t *v = &lists->layer[i];
        if (!af_yaml_i64(&n, v) || *v < 0 || *v > last)
            return af_fail(err, AF_EUSAGE,
                           "%s: lora_layers_to_transform has '%s'; the model has layers 0 to %d",
                           at, n.text, last);
    }
    return AF_OK;
}

static bool is_regex(const af_strings *s)
{
    return s->count == 1 && strpbrk(s->item[0], "*()[]|\\^$+?");
}

static bool names_all_linear(const af_strings *target)
{
    return target->count == 1 && strcmp(target->item[0], "all-linear") == 0;
}

static bool names_peft_default(const af_strings *target)
{
    return target->count == 1 && strcmp(target->item[0], "peft-default") == 0;
}

/* What PEFT (0.21) adapts where nothing is named, "peft-default": the attention's query and value
 * in the families it has a list for, and in the others, for which it has none. */
static int peft_names(const char **name, const af_model_spec *spec)
{
    static const struct {
        const char *model_types, *names[4];
    } rows[] = {{"gpt2 gpt_bigcode", {"c_attn"}},
                {"bloom falcon gpt_neox chatglm", {"query_key_value"}},
                {"mpt", {"Wqkv"}},
                {"codegen", {"qkv_proj"}},
                {"phi", {"q_proj", "v_proj", "fc1", "fc2"}},
                {"nemotron_h", {"q_proj", "k_proj", "v_proj", "o_proj"}},
                {NULL, {"q_proj", "v_proj"}}};
    size_t k = 0;
    int n = 0;
    while (rows[k].model_types && !af_word_listed(spec->arch->model_type, rows[k].model_types))
        k++;
    for (; n < (int)AF_LEN(rows[k].names) && rows[k].names[n]; n++)
        name[n] = rows[k].names[n];
    return n;
}

/* The names of the run file besides every linear, as Axolotl has it; `n` are there. */
static int add_names(const char **name, int n, const af_strings *target)
{
    if (names_all_linear(target) || names_peft_default(target) || is_regex(target))
        return n;
    for (int i = 0; i < target->count && n < AF_METHOD_NAMES_MAX; i++) {
        bool known = false;
        for (int k = 0; k < n; k++)
            known |= af_path_in_list(target->item[i], &name[k], 1);
        if (!known)
            name[n++] = target->item[i];
    }
    return n;
}

/* Towers of models that see and hear, next to the text model that is trained. */
static bool names_tower(const char *name)
{
    static const char *const words[] = {"vision", "visual", "image", "audio", "projector"};
    bool any = false;
    for (size_t i = 0; i < AF_LEN(words); i++)
        any |= strstr(name, words[i]) != NULL;
    return any;
}

/* A misspelt name would keep nothing out. */
static af_status check_excluded(const af_adapter_config *c, const af_run_config *r,
                                const af_model_spec *spec, af_error *err)
{
    char at[300];
    for (int i = 0; i < c->exclude_count; i++) {
        bool used = names_tower(c->exclude[i]);
        for (int k = 0; k < spec->modules; k++)
            used |= !spec->module[k].parameter &&
                    af_path_in_list(spec->module[k].path, &c->exclude[i], 1);
        if (!used)
            return af_fail(err, AF_EUSAGE,
                           "%s: lora_exclude_modules has '%.128s', no module of this %s model",
                           af_run_key_loc(r, "lora_exclude_modules", at, sizeof at), c->exclude[i],
                           spec->arch->model_type);
    }
    return AF_OK;
}

/* PEFT adds these names of heads for the task SEQ_CLS. */
static void save_score(af_adapter_config *c, af_method_lists *lists)
{
    static const char *const heads[] = {"classifier", "score"};
    int n = 0;
    for (size_t i = 0; i < AF_LEN(heads); i++)
        lists->saved[n++] = heads[i];
    for (int i = 0; i < c->save_count && n < AF_METHOD_NAMES_MAX; i++)
        if (!af_path_in_list(c->modules_to_save[i], heads, (int)AF_LEN(heads)))
            lists->saved[n++] = c->modules_to_save[i];
    c->modules_to_save = lists->saved;
    c->save_count = n;
    c->classifies = true;
}

/* Of one with rotations, not ranks. */
static void set_oft(af_adapter_config *c, const af_run_config *r)
{
    c->type = AF_PEFT_OFT;
    c->r = 1;
    c->alpha = 1;
    c->dropout = 0;
    c->oft = (af_oft){.exact = !r->oft_series,
                      .share = r->oft_share,
                      .terms = (int)r->oft_terms,
                      .block = r->oft_r ? 0 : r->oft_block_size,
                      .blocks = r->oft_r,
                      .eps = 6e-5}; /* written, and of no effect */
}

static const char *repeated_key(const af_oft *a, const af_oft *b, const af_run_config *r)
{
    const struct {
        const char *key;
        bool same;
    } keys[] = {{"oft_block_size", a->block == b->block},
                {"oft_r", a->blocks == b->blocks},
                {"oft_block_share", a->share == b->share},
                {"use_cayley_neumann", a->exact == b->exact},
                {"num_cayley_neumann_terms", a->exact || a->terms == b->terms}};
    for (size_t i = 0; i < AF_LEN(keys); i++)
        if (af_run_key_is_set(r, keys[i].key) && !keys[i].same)
            return keys[i].key;
    return NULL;
}

af_status af_method_check_type(const af_run_config *r, const af_adapter_config *c, af_error *err)
{
    char at[300];
    af_adapter_config asked = {0};
    const bool oft = r->method == AF_METHOD_OFT;
    if (oft != (c->type == AF_PEFT_OFT))
        return af_fail(err, AF_EUSAGE, "%s: adapter is %s, the one in '%s' is %s",
                       af_run_key_loc(r, "adapter", at, sizeof at), oft ? "oft" : "not oft",
                       r->lora_model_dir, oft ? "not of that type" : "of type OFT");
    set_oft(&asked, r);
    const char *key = oft ? repeated_key(&asked.oft, &c->oft, r) : NULL;
    return key ? af_fail(err, AF_EUSAGE, "%s: %s is not that of the adapter in '%s'",
                         af_run_key_loc(r, key, at, sizeof at), key, r->lora_model_dir)
               : AF_OK;
}

af_status af_method_adapter(af_adapter_config *out, af_method_lists *lists, const af_run_config *r,
                            const af_model_spec *spec, af_error *err)
{
    const af_strings *target = &r->lora_target_modules;
    af_adapter_config c = {
        .r = (int)r->lora_r,
        .alpha = r->lora_alpha,
        .dropout = r->lora_dropout,
        .rslora = r->rslora,
        .dora = r->dora,
        .lora_bias = r->lora_bias,
        .param = r->lora_target_parameters.item,
        .param_count = r->lora_target_parameters.count,
        .modules_to_save = r->lora_modules_to_save.item,
        .save_count = r->lora_modules_to_save.count,
        .base_model = r->base_model,
        .init_weights = r->lora_init,
    };
    if (r->method == AF_METHOD_OFT)
        set_oft(&c, r);
    const bool params_alone = target->count == 0 && c.param_count > 0 && !r->lora_target_linear;
    if (params_alone) {
        c.target = lists->name; /* an empty list */
    } else if (target->count == 0 || r->lora_target_linear || names_all_linear(target)) {
        c.target = lists->name;
        c.target_count = add_names(lists->name, linear_names(lists->name, spec), target);
    } else if (names_peft_default(target)) {
        c.target = lists->name;
        c.target_count = peft_names(lists->name, spec);
    } else if (is_regex(target)) {
        c.target_regex = target->item[0];
    } else {
        c.target = target->item;
        c.target_count = target->count;
    }
    if (spec->labels)
        save_score(&c, lists);
    if (is_regex(&r->lora_exclude_modules)) {
        c.exclude_regex = r->lora_exclude_modules.item[0];
    } else {
        c.exclude = r->lora_exclude_modules.item;
        c.exclude_count = r->lora_exclude_modules.count;
    }
    if (spec->outside && !c.exclude_regex && !c.exclude_count)
        c.exclude_regex = spec->outside;
    af_status st = af_method_convert(&c, lists, r->lora_target_linear || names_all_linear(target),
                                     r, spec, err);
    if (st == AF_OK)
        st = check_excluded(&c, r, spec, err);
    if (st == AF_OK)
        st = take_layers(&c, lists, r, spec, err);
    if (!c.layer_count)
        c.layers = NULL;
    if (st == AF_OK)
        st = af_method_patterns(&c, lists, r, spec, err);
    if (st != AF_OK)
        return st;
    *out = c;
    return AF_OK;
}

af_status af_method_unties(bool *out, const af_run_config *r, af_error *err)
{
    *out = false;
    if (af_method_trains_base(r))
        return AF_OK;
    if (r->lora_model_dir)
        return af_adapter_unties(out, r->lora_model_dir, err);
    *out = af_adapter_config_unties(
        &(af_adapter_config){.modules_to_save = r->lora_modules_to_save.item,
                             .save_count = r->lora_modules_to_save.count});
    return AF_OK;
}
