/* adapter.c - adapters on the host: new ones and PEFT folders; see adapter.h. */
#include "model/adapter.h"

#include "base/log.h"
#include "format/weights/weights.h"
#include "model/adapter_config.h"
#include "model/arch/arch_disk.h"
#include "model/arch/arch_place.h"
#include "model/loader.h"

#include <math.h>

enum { NAME_BYTES = AF_ADAPTER_NAME_BYTES, PREFIX_BYTES = 64 };

af_status af_adapter_alloc(af_adapter *a, float **out, int64_t n, af_error *err)
{
    *out = af_arena_take(&a->arena, (uint64_t)AF_MAX(n, 1) * sizeof **out);
    return *out ? AF_OK : af_fail_nomem(err, "an adapter", (uint64_t)n * sizeof **out);
}

float af_adapter_scale(const af_adapter_config *c, double alpha, double rank)
{
    return (float)(c->rslora ? alpha / sqrt(rank) : alpha / rank);
}

/* Ranks and scales of every target, by the config's patterns. */
static af_status lay_out(af_adapter *a, af_error *err)
{
    af_status st = AF_OK;
    const af_model_spec *s = a->spec;
    const af_adapter_config *c = &a->config;
    bool *target = af_calloc((uint64_t)s->modules, sizeof *target);
    if (!target)
        return af_fail_nomem(err, "an adapter", (uint64_t)s->modules);
    if (c->dora && c->lora_bias)
        AF_TRY(af_fail_subject(err, AF_EUNSUPPORTED, "lora_bias",
                               "lora_bias is not supported with DoRA"));
    if (c->dora && s->round_inputs)
        AF_TRY(af_fail(err, AF_EUNSUPPORTED, "DoRA is not supported on weights of BitNet"));
    AF_TRY(af_adapter_targets(c, s, target, err));
    for (int i = 0; i < s->modules; i++) {
        const af_module_spec *m = &s->module[i];
        af_adapter_module *am = &a->module[i];
        double rank, alpha;
        if (!target[i])
            continue;
        if (m->parameter)
            AF_TRY(af_adapter_param_check(c, s, m, err));
        if ((m->group == AF_GROUP_HEAD && s->head_normed) ||
            (m->group == AF_GROUP_EMBED && s->arch->embed_norm_inside))
            AF_TRY(af_fail(err, AF_EUNSUPPORTED,
                           "an adapter on '%s' is not possible: its rows are divided by their "
                           "lengths, and PEFT has none for such a module",
                           m->path));
        if ((m->group == AF_GROUP_EMBED && c->dora) || (m->layer < 0 && c->lora_bias))
            AF_TRY(af_fail(err, AF_EUNSUPPORTED,
                           "%s on '%s' is not supported: leave it out, or give plain LoRA",
                           c->dora ? "DoRA" : "lora_bias", m->path));
        AF_TRY(
            af_adapter_pattern_value(&rank, c->rank_pattern, c->rank_patterns, m->path, c->r, err));
        AF_TRY(af_adapter_pattern_value(&alpha, c->alpha_pattern, c->alpha_patterns, m->path,
                                        c->alpha, err));
        if (!(rank >= 1) || rank > AF_ADAPTER_RANK_MAX || rank != floor(rank) || !isfinite(alpha))
            AF_TRY(af_fail(err, AF_EUSAGE, "'%s': rank %g and alpha %g are not possible", m->path,
                           rank, alpha));
        am->rank = (int)rank;
        am->alpha = alpha;
        am->scale = af_adapter_scale(c, alpha, rank);
    }
done:
    free(target);
    return st;
}

/* The module a tensor belongs to, as PEFT calls it. */
static void module_path(const af_model_spec *s, const af_tensor_spec *t, char path[NAME_BYTES])
{
    af_spec_whole_name(s, t->name, path, NAME_BYTES);
    *strrchr(path, '.') = '\0';
}

/* Room for the tensors of modules_to_save. */
static af_status lay_out_saved(af_adapter *a, af_error *err)
{
    af_status st = AF_OK;
    const af_model_spec *s = a->spec;
    const af_adapter_config *c = &a->config;
    char path[NAME_BYTES];
    for (int i = 0; i < s->tensors && c->save_count; i++) {
        const af_tensor_spec *t = &s->tensor[i];
        module_path(s, t, path);
        if (!af_path_ends_in(path, c->modules_to_save, c->save_count))
            continue;
        if (s->tied && (t->slot == AF_SLOT_EMBED || t->slot == AF_SLOT_HEAD))
            AF_TRY(af_fail_subject(
                err, AF_EUNSUPPORTED, "modules_to_save",
                "modules_to_save '%s' needs the tied embeddings of this model untied", path));
        if (t->ndim == 2 && af_disk_is_turned(s, i))
            AF_TRY(af_fail_subject(err, AF_EUNSUPPORTED, "modules_to_save",
                                   "modules_to_save '%s' is a Conv1D, which is trained by an "
                                   "adapter, or with 'adapter: full'",
                                   path));
        if (t->ndim > 2)
            AF_TRY(af_fail_subject(err, AF_EUNSUPPORTED, "modules_to_save",
                                   "modules_to_save '%s' holds experts, which are trained by "
                                   "'lora_target_parameters', or with 'adapter: full'",
                                   path));
        AF_TRY(af_adapter_alloc(a, &a->saved[i], t->dim[0] * (t->ndim > 1 ? t->dim[1] : 1), err));
    }
done:
    return st;
}

/* Of a run file, where a misspelt name must not pass in silence. PEFT writes into its own configs
 * names that this model does not have; there the tensors show what is adapted. */
static af_status check_names(const af_adapter *a, af_error *err)
{
    const af_model_spec *s = a->spec;
    const af_adapter_config *c = &a->config;
    char path[NAME_BYTES];
    for (int k = 0; k < c->save_count; k++) {
        bool used = false;
        for (int i = 0; i < s->tensors; i++) {
            module_path(s, &s->tensor[i], path);
            used |= a->saved[i] && af_path_ends_in(path, &c->modules_to_save[k], 1);
        }
        if (!used && !(s->labels && strcmp(c->modules_to_save[k], "classifier") == 0)) /* PEFT's */
            return af_fail_subject(err, AF_EUNSUPPORTED, "modules_to_save",
                                   "modules_to_save: '%.128s' is not a module of this model",
                                   c->modules_to_save[k]);
    }
    return af_adapter_names_used(c, s, err);
}

af_status af_adapter_create(af_adapter **out, const af_model_spec *s, af_error *err)
{
    af_adapter *a = af_calloc(1, sizeof *a);
    if (a) {
        a->spec = s;
        a->module = af_arena_take(&a->arena, (uint64_t)s->modules * sizeof *a->module);
        a->saved = af_arena_take(&a->arena, (uint64_t)s->tensors * sizeof *a->saved);
    }
    if (!a || !a->module || !a->saved) {
        af_adapter_free(a);
        return af_fail_nomem(err, "an adapter", sizeof *a);
    }
    *out = a;
    return AF_OK;
}

void af_adapter_free(af_adapter *a)
{
    if (!a)
        return;
    af_arena_clear(&a->arena);
    free(a);
}

/* ---- new ---- */

af_status af_adapter_outline(af_adapter **out, const af_adapter_config *c, const af_model_spec *s,
                             af_error *err)
{
    af_status st = AF_OK;
    af_adapter *a = NULL;
    AF_TRY(af_adapter_create(&a, s, err));
    AF_TRY(af_adapter_config_copy(&a->config, c, &a->arena, err));
    AF_TRY(lay_out(a, err));
    a->as_stored = c->type == AF_PEFT_OFT;
    if (a->as_stored)
        AF_TRY(af_adapter_oft_lay_out(a, true, err));
    AF_TRY(lay_out_saved(a, err));
    AF_TRY(af_adapter_tokens_lay_out(a, err));
    AF_TRY(check_names(a, err));
    *out = a;
    a = NULL;
done:
    af_adapter_free(a);
    return st;
}

af_status af_adapter_new(af_adapter **out, const af_adapter_config *c, const af_model_spec *s,
                         af_loader *base, uint64_t seed, af_error *err)
{
    af_status st = AF_OK;
    af_adapter *a = NULL;
    AF_TRY(af_adapter_outline(&a, c, s, err));
    AF_TRY(af_adapter_fill(a, base, seed, err));
    AF_TRY(af_adapter_tokens_fill(a, base, err));
    a->grown = af_loader_is_grown(base) ? base : NULL;
    *out = a;
    a = NULL;
done:
    af_adapter_free(a);
    return st;
}

/* ---- read ---- */

/* Prefix i of those that names of the text model may have: every place of arch_place.c with every
 * stem. An adapter has the names of the version of transformers it was made with, and where the
 * text model is alone (a GGUF file of a multimodal one) it may be of the whole. "" where i has
 * none; false after the last. */
static bool prefix_at(const af_model_spec *s, int i, char out[PREFIX_BYTES])
{
    const char *const stems[] = {af_arch_stem(s->arch), s->arch->memory_stem};
    const char *stem = stems[i % 2];
    const af_arch_place *p = af_arch_place_at(i / 2);
    if (!p)
        return false;
    snprintf(out, PREFIX_BYTES, "%s%s", stem ? p->before : "", stem && p->stem ? stem : "");
    return true;
}

size_t af_adapter_prefix_length(const af_model_spec *s, const char *name)
{
    char prefix[PREFIX_BYTES];
    size_t most = 0;
    for (int i = 0; prefix_at(s, i, prefix); i++)
        if (strncmp(name, prefix, strlen(prefix)) == 0)
            most = AF_MAX(most, strlen(prefix));
    return most;
}

/* Targets that are named in full get the name of this model. */
static af_status rename_targets(af_adapter *a, af_error *err)
{
    const char *inner = a->spec->inner;
    const uint64_t n = (uint64_t)a->config.target_count;
    const char **list = af_arena_take(&a->arena, (n + 1) * sizeof *list);
    for (uint64_t i = 0; i < n && list; i++) {
        list[i] = a->config.target[i];
        const size_t len = af_adapter_prefix_length(a->spec, list[i]);
        if (len > 0)
            list[i] = af_arena_printf(&a->arena, "%s%s", inner, list[i] + len);
        if (!list[i])
            list = NULL;
    }
    if (!list)
        return af_fail_nomem(err, "an adapter's settings", n * sizeof *list);
    a->config.target = n ? list : a->config.target;
    return AF_OK;
}

const af_stored *af_adapter_find(const af_adapter *a, const af_weights *w, const char *name)
{
    const char *before = a->config.mlx ? "" : AF_ADAPTER_PREFIX;
    const char *inner = a->spec->inner, *rest = name + strlen(AF_ADAPTER_PREFIX);
    const af_stored *t = af_weights_find(w, *before ? name : rest);
    char other[NAME_BYTES + PREFIX_BYTES], prefix[PREFIX_BYTES];
    if (strncmp(rest, inner, strlen(inner)) != 0)
        return t;
    for (int i = 0; !t && prefix_at(a->spec, i, prefix); i++) {
        snprintf(other, sizeof other, "%s%s%s", before, prefix, rest + strlen(inner));
        t = *prefix ? af_weights_find(w, other) : NULL;
    }
    return t;
}

af_status af_adapter_read_tensor(af_adapter *a, float **to, const af_weights *w, const char *name,
                                 int64_t rows, int64_t cols, int *used, af_error *err)
{
    const af_stored *t = af_adapter_find(a, w, name);
    if (!t)
        return af_fail(err, AF_EFORMAT, "the adapter has no tensor '%s'",
                       name + (a->config.mlx ? strlen(AF_ADAPTER_PREFIX) : 0));
    const int64_t d0 = t->ndim > 0 ? t->dim[0] : 1, d1 = t->ndim > 1 ? t->dim[1] : 1;
    if (t->ndim > 2 || d0 != rows || d1 != cols || !af_dtype_is_float(t->dtype))
        return af_fail(err, AF_EFORMAT,
                       "adapter tensor '%s' is %" PRId64 "x%" PRId64 " %s, not %" PRId64 "x%" PRId64
                       " of floats",
                       t->name, d0, d1, af_dtype_name(t->dtype), rows, cols);
    if (!*to) {
        const af_status st = af_adapter_alloc(a, to, rows * cols, err);
        if (st != AF_OK)
            return st;
    }
    af_convert(*to, AF_DTYPE_F32, t->data, t->dtype, (uint64_t)(rows * cols));
    (*used)++;
    return AF_OK;
}

/* PEFT stores the base of a targeted embedding or head, too. */
static af_status read_base_layer(af_adapter *a, int i, const af_weights *w, int *used,
                                 af_error *err)
{
    const af_module_spec *m = &a->spec->module[i];
    char name[NAME_BYTES];
    snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s.base_layer.weight", m->path);
    if (m->layer >= 0)
        return AF_OK;
    if (a->tables != AF_TABLES_OF_BASE) {
        const af_tensor_spec *t = &a->spec->tensor[m->weight];
        return af_adapter_read_tensor(a, &a->saved[m->weight], w, name, t->dim[0], t->dim[1], used,
                                      err);
    }
    if (af_adapter_find(a, w, name)) {
        af_log_write(AF_LOG_WARN,
                     "the adapter's own copy of '%s' is used only where its vocabulary differs "
                     "from the model's",
                     m->path);
        (*used)++;
    }
    return AF_OK;
}

static af_status read_module(af_adapter *a, int i, const af_weights *w, int *used, af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = &a->spec->module[i];
    af_adapter_module *am = &a->module[i];
    char name[NAME_BYTES];
    if (a->config.mlx)
        return af_adapter_mlx_read(a, i, w, used, err);
    if (a->config.type != AF_PEFT_LORA) {
        AF_TRY(af_adapter_type_read(a, i, w, used, err));
        return read_base_layer(a, i, w, used, err);
    }
    if (af_module_is_experts(m))
        return af_adapter_experts_read(a, i, w, used, err);
    af_adapter_low_name(name, m, 'A');
    AF_TRY(af_adapter_read_tensor(a, &am->a, w, name, am->rank, m->in, used, err));
    af_adapter_low_name(name, m, 'B');
    AF_TRY(af_adapter_read_tensor(a, &am->b, w, name, m->out, am->rank, used, err));
    snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s.lora_B.bias", m->path);
    if (a->config.lora_bias)
        AF_TRY(af_adapter_read_tensor(a, &am->bias, w, name, m->out, 1, used, err));
    AF_TRY(read_base_layer(a, i, w, used, err));
    if (a->config.dora) {
        snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s.lora_magnitude_vector", m->path);
        if (!af_adapter_find(a, w, name)) /* as old versions wrote it */
            snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s.lora_magnitude_vector.weight",
                     m->path);
        AF_TRY(af_adapter_read_tensor(a, &am->magnitude, w, name, m->out, 1, used, err));
    }
done:
    return st;
}

/* Stored once more by PEFT, where a vocabulary was changed: those of modules_to_save under the
 * names it has for them while it trains, and the head of a tied model. */
static bool is_copy(const af_adapter *a, const char *name)
{
    static const char *const ends[] = {".modules_to_save.weight", ".original_module.weight"};
    char head[NAME_BYTES];
    const size_t n = strlen(name);
    snprintf(head, sizeof head, AF_ADAPTER_PREFIX "%s.",
             a->spec->module[a->spec->head_module].path);
    if (a->spec->tied && strncmp(name, head, strlen(head)) == 0 && !af_adapter_part_at(name))
        return !a->module[a->spec->head_module].rank; /* else read_module has counted it */
    for (size_t i = 0; i < AF_LEN(ends); i++)
        if (n > strlen(ends[i]) && strcmp(name + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

/* The base of an adapted table whose other one, tied to it, is not stored. */
static const af_stored *find_tied(const af_adapter *a, const af_weights *w, af_slot slot)
{
    const af_model_spec *s = a->spec;
    char name[NAME_BYTES];
    snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s.base_layer.weight",
             s->module[slot == AF_SLOT_EMBED ? s->head_module : s->embed_module].path);
    return a->tables == AF_TABLES_OWN_UNTIED ? af_adapter_find(a, w, name) : NULL;
}

/* Embedding and head where the vocabulary was changed: stored whole, whatever the config says. */
static af_status read_resized(af_adapter *a, const af_weights *w, int *used, af_error *err)
{
    const af_model_spec *s = a->spec;
    char name[NAME_BYTES];
    for (int i = 0; i < s->tensors; i++) {
        const af_tensor_spec *t = &s->tensor[i];
        if ((t->slot != AF_SLOT_EMBED && t->slot != AF_SLOT_HEAD) || a->saved[i])
            continue;
        int counted = 0; /* with its module */
        const af_stored *own = af_adapter_find_vocab(w, s, t),
                        *tied = own ? NULL : find_tied(a, w, t->slot);
        af_adapter_saved_name(s, t, name);
        const af_status st =
            af_adapter_read_tensor(a, &a->saved[i], w,
                                   own    ? own->name
                                   : tied ? tied->name
                                          : name,
                                   t->dim[0], t->dim[1], tied ? &counted : used, err);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}

static af_status read_tokens(af_adapter *a, int table, const af_weights *w, int *used,
                             af_error *err)
{
    char name[NAME_BYTES];
    af_adapter_tokens_name(a, table, name);
    const af_status st = af_adapter_tokens_alloc(a, table, err);
    return st == AF_OK
               ? af_adapter_read_tensor(a, &a->token_values[table], w, name, a->tokens[table].count,
                                        a->spec->embed_width, used, err)
               : st;
}

/* Embedding and head that are frozen: the base was opened with them (af_loader_opts.vocab_dir). */
static int whole_tables(const af_adapter *a, const af_weights *w)
{
    const af_model_spec *s = a->spec;
    int n = 0;
    for (int i = 0; i < s->tensors; i++) {
        const af_tensor_spec *t = &s->tensor[i];
        const bool vocab = t->slot == AF_SLOT_EMBED || t->slot == AF_SLOT_HEAD;
        if (vocab && !a->saved[i] && !a->module[t->module].rank && af_adapter_find_vocab(w, s, t))
            n++;
    }
    return n;
}

/* Whether a tensor is of a module that the adapter has. */
static bool is_adapted(const af_adapter *a, const char *name)
{
    const af_model_spec *s = a->spec;
    name += strncmp(name, AF_ADAPTER_PREFIX, strlen(AF_ADAPTER_PREFIX)) == 0
                ? strlen(AF_ADAPTER_PREFIX)
                : 0;
    const char *end = af_adapter_part_at(name);
    for (int i = 0; end && i < s->modules; i++)
        if (a->module[i].rank && strncmp(s->module[i].path, name, (size_t)(end - name)) == 0 &&
            !s->module[i].path[end - name])
            return true;
    return false;
}

bool af_adapter_is_moved(const af_stored *b)
{
    const uint8_t *v = b->data;
    return b->bytes && (v[0] || memcmp(v, v + 1, b->bytes - 1) != 0);
}

/* PEFT's adapters on what no gradient reaches, indexers, routers and parts of other uses of some
 * families: B is still 0. */
static int unmoved(const af_adapter *a, const af_weights *w)
{
    int n = 0;
    const char *part = a->spec->latent.index_topk      ? ".self_attn.indexer."
                       : a->spec->arch->peft_no_router ? ".router.classifier."
                       : a->spec->state.shared_blocks  ? "_adapter_list."
                                                       : NULL;
    for (int i = 0; part && i < af_weights_count(w); i++) {
        const af_stored *t = af_weights_at(w, i);
        const bool moved = strstr(t->name, ".lora_B.") && af_adapter_is_moved(t);
        n += !moved && strstr(t->name, part) != NULL && !is_adapted(a, t->name);
    }
    return n;
}

static af_status read_values(af_adapter *a, const af_weights *w, const char *dir, af_error *err)
{
    af_status st = AF_OK;
    const af_model_spec *s = a->spec;
    int used = 0;
    char name[NAME_BYTES];
    for (int i = 0; i < s->modules; i++)
        if (a->module[i].rank)
            AF_TRY(read_module(a, i, w, &used, err));
    for (int i = 0; i < s->tensors; i++) {
        const af_tensor_spec *t = &s->tensor[i];
        af_adapter_saved_name(s, t, name);
        if (a->saved[i] && (t->module < 0 || !a->module[t->module].rank))
            AF_TRY(af_adapter_read_tensor(a, &a->saved[i], w, name, t->dim[0],
                                          t->ndim > 1 ? t->dim[1] : 1, &used, err));
    }
    if (a->config.type == AF_PEFT_VERA) /* the matrices of all modules */
        used += 2;
    if (a->config.bias)
        AF_TRY(af_adapter_read_biases(a, w, &used, err));
    for (int k = 0; k < AF_TOKEN_TABLES; k++)
        if (a->tokens[k].count)
            AF_TRY(read_tokens(a, k, w, &used, err));
    if (a->tables != AF_TABLES_OF_BASE)
        AF_TRY(read_resized(a, w, &used, err));
    else
        used += whole_tables(a, w);
    for (int i = 0; i < af_weights_count(w); i++)
        used += is_copy(a, af_weights_at(w, i)->name);
    AF_TRY(af_adapter_read_outside(a, w, &used, err));
    used += unmoved(a, w);
    if (used != af_weights_count(w))
        AF_TRY(af_fail(err, AF_EFORMAT,
                       "%s has %d tensors, its config and this model account for %d of them%s", dir,
                       af_weights_count(w), used,
                       a->config.ensure_tying
                           ? "; ensure_weight_tying with LoRA on embedding or head is not supported"
                           : ""));
done:
    return st;
}

static af_status check_vocab(const af_model_spec *s, const char *dir, af_error *err)
{
    int64_t rows = 0;
    const af_status st = af_adapter_vocab(&rows, dir, err);
    if (st == AF_OK && rows && rows != s->vocab)
        return af_fail(err, AF_EUNSUPPORTED,
                       "'%s' was trained with %" PRId64 " tokens, the model has %" PRId64
                       ": merge it into a folder first (afinar merge)",
                       dir, rows, s->vocab);
    return st;
}

/* Of another type than LoRA: what is now A and B is described as LoRA. */
static af_status finish_type(af_adapter *a, const char *dir, bool merged, af_error *err)
{
    const af_peft_form *form = &af_peft_forms[a->config.type];
    if (form->pairs)
        return merged ? AF_OK : af_adapter_expand(a, dir, 0, err);
    return form->multiplies ? AF_OK : af_adapter_describe(a, err);
}

typedef enum read_purpose { TO_USE, TO_MERGE, TO_TRAIN } read_purpose;

static af_status read_folder(af_adapter **out, const af_model_spec *s, const char *dir,
                             read_purpose to, af_adapter_tables tables, af_error *err)
{
    af_status st = AF_OK;
    af_adapter *a = NULL;
    af_weights *w = NULL;
    AF_TRY(af_adapter_create(&a, s, err));
    a->tables = tables;
    AF_TRY(af_adapter_config_read(&a->config, &a->arena, dir, err));
    a->as_stored = to == TO_TRAIN && a->config.type == AF_PEFT_OFT;
    if (to != TO_MERGE && !a->as_stored)
        AF_TRY(af_adapter_check_adds(&a->config, dir, err));
    if (a->config.gguf) {
        AF_TRY(af_adapter_open_values(&w, dir, err));
        AF_TRY(af_adapter_gguf_read(a, w, dir, err));
        *out = a;
        a = NULL;
        goto done;
    }
    if (s->experts || a->config.ensure_tying || a->config.mlx) /* the tensors show what it has */
        AF_TRY(af_adapter_open_values(&w, dir, err));
    if (a->config.mlx)
        AF_TRY(af_adapter_mlx_targets(a, w, err));
    AF_TRY(rename_targets(a, err));
    if (s->experts && !a->config.mlx)
        AF_TRY(af_adapter_experts_convert(a, w, err));
    if (a->config.ensure_tying)
        AF_TRY(af_adapter_save_tied(&a->config, &a->arena, w, err));
    AF_TRY(lay_out(a, err));
    if (a->as_stored)
        AF_TRY(af_adapter_oft_lay_out(a, false, err));
    AF_TRY(lay_out_saved(a, err));
    AF_TRY(af_adapter_tokens_lay_out(a, err));
    AF_TRY(check_vocab(s, dir, err));
    if (!w)
        AF_TRY(af_adapter_open_values(&w, dir, err));
    AF_TRY(read_values(a, w, dir, err));
    if (a->config.type != AF_PEFT_LORA)
        AF_TRY(finish_type(a, dir, to == TO_MERGE, err));
    a->config.mlx = false;
    *out = a;
    a = NULL;
done:
    af_adapter_free(a);
    af_weights_close(w);
    return st;
}

af_status af_adapter_read(af_adapter **out, const af_model_spec *s, const char *dir, af_error *err)
{
    return read_folder(out, s, dir, TO_USE, AF_TABLES_OF_BASE, err);
}

af_status af_adapter_read_to_train(af_adapter **out, const af_model_spec *s, const char *dir,
                                   af_error *err)
{
    return read_folder(out, s, dir, TO_TRAIN, AF_TABLES_OF_BASE, err);
}

af_status af_adapter_read_to_merge(af_adapter **out, const af_model_spec *s, const char *dir,
                                   af_adapter_tables tables, af_error *err)
{
    return read_folder(out, s, dir, TO_MERGE, tables, err);
}
