/* reader_names.c - what a folder calls its tensors: the prefix of the text model, whether experts
 * are one tensor each or all in one, whether the head is the embedding. */
#include "model/tensor_layout.h"

#include "base/log.h"
#include "base/word.h"
#include "model/arch/arch_disk.h"
#include "model/arch/arch_list.h"
#include "model/arch/arch_place.h"
#include "model/arch/decay.h"
#include "tensor/codec.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

enum { NAME_MAX_BYTES = 512 };

/* Whether a tensor with the last part of this name lies there. */
static bool has_last(const af_model_reader *in, const char *prefix, const char *embed)
{
    char name[NAME_MAX_BYTES];
    snprintf(name, sizeof name, "%s%s", prefix, embed + strlen(af_arch_stem(in->spec.arch)));
    return af_weights_find(in->weights, name) != NULL;
}

af_status af_reader_find_prefix(af_model_reader *in, af_error *err)
{
    const af_arch *a = in->spec.arch;
    const char *embed = in->spec.tensor[in->spec.embed].name;
    const char *const stems[] = {af_arch_stem(a), a->memory_stem};
    const af_arch_place *p;
    in->prefix = stems[0];
    in->head_before = "";
    if (strncmp(embed, stems[0], strlen(stems[0])) != 0)
        return AF_OK; /* chatglm: it lies next to the layers' module */
    for (int k = 0; k < 2 && stems[k]; k++)
        for (int i = 0; (p = af_arch_place_at(i)); i++) {
            const char *prefix =
                af_arena_printf(&in->arena, "%s%s", p->before, p->stem ? stems[k] : "");
            if (!prefix)
                return af_fail_nomem(err, "a name", 0);
            if (!has_last(in, prefix, embed))
                continue;
            in->prefix = prefix;
            in->head_before = p->head;
            return AF_OK;
        }
    return AF_OK;
}

void af_model_reader_disk_name(const af_model_reader *in, const char *name, char *out, size_t size)
{
    const char *stem = af_arch_stem(in->spec.arch);
    const size_t n = strlen(stem);
    if (strncmp(name, stem, n) == 0)
        snprintf(out, size, "%s%s", in->prefix, name + n);
    else
        snprintf(out, size, "%s%s", in->head_before, name);
}

/* What names of the head begin with: "lm_head." */
static size_t head_stem(const af_model_reader *in, const char **name)
{
    *name = af_slot_hf_name(in->spec.arch, AF_SLOT_HEAD);
    return strlen(*name) - strlen("weight");
}

void af_model_reader_own_name(const af_model_reader *in, const char *stored, char *out, size_t size)
{
    const char *head;
    const size_t n = strlen(in->prefix), h = head_stem(in, &head), b = strlen(in->head_before);
    if (strncmp(stored, in->head_before, b) == 0 && strncmp(stored + b, head, h) == 0)
        snprintf(out, size, "%s", stored + b);
    else if (strncmp(stored, in->prefix, n) == 0)
        snprintf(out, size, "%s%s", af_arch_stem(in->spec.arch), stored + n);
    else
        snprintf(out, size, "%s", stored);
}

/* Whether a tensor, or codes of it, has this name. */
static bool is_stored(const af_model_reader *in, const char *own)
{
    static const char *const ends[] = {"weight", "qweight", "weight_packed"};
    char name[NAME_MAX_BYTES], disk[NAME_MAX_BYTES];
    const char *dot = strrchr(own, '.');
    for (size_t i = 0; i < AF_LEN(ends); i++) {
        snprintf(name, sizeof name, "%.*s.%s", (int)(dot - own), own, ends[i]);
        af_model_reader_disk_name(in, name, disk, sizeof disk);
        if (af_weights_find(in->weights, disk))
            return true;
    }
    return false;
}

void af_reader_find_experts(af_model_reader *in)
{
    af_model_spec *s = &in->spec;
    char name[NAME_MAX_BYTES];
    int64_t dim[AF_DISK_DIMS], from;
    int ndim;
    if (af_weights_gguf(in->weights) || s->arch->experts_turned || s->arch->experts_flat_up)
        return;
    for (int i = 0; i < s->layers; i++) {
        const int t = s->layer[i].tensor[AF_SLOT_EXPERTS_DOWN];
        if (t < 0)
            continue;
        af_model_reader_disk_name(in, s->tensor[t].name, name, sizeof name);
        if (af_weights_find(in->weights, name)) {
            s->experts_whole = true;
            return;
        }
        af_disk_expert(s, t, 0, name, sizeof name, dim, &ndim, &from);
        if (is_stored(in, name))
            s->experts_whole = false;
        return;
    }
}

static const af_stored *find_own(const af_model_reader *in, const char *own)
{
    char disk[NAME_MAX_BYTES];
    af_model_reader_disk_name(in, own, disk, sizeof disk);
    return af_weights_find(in->weights, disk);
}

/* Folders of some families choose experts by their scores alone. */
af_status af_reader_find_choice(af_model_reader *in, af_error *err)
{
    const af_model_spec *s = &in->spec;
    if (!s->arch->choice_or_none || af_weights_gguf(in->weights))
        return AF_OK;
    for (int i = 0; i < s->layers; i++) {
        const int t = s->layer[i].tensor[AF_SLOT_ROUTER_CHOICE];
        if (t >= 0 && find_own(in, s->tensor[t].name))
            return AF_OK;
    }
    const bool tied = s->tied;
    in->config.router.choice_bias = false;
    af_model_spec_clear(&in->spec);
    return af_reader_make_spec(in, tied, err);
}

/* Calls a tensor by its other name where the folder has that one alone. */
static af_status find_name(af_model_reader *in, int tensor, const char *other, af_error *err)
{
    af_model_spec *s = &in->spec;
    char layers[64], own[NAME_MAX_BYTES];
    if (tensor < 0 || find_own(in, s->tensor[tensor].name))
        return AF_OK;
    af_spec_layers_prefix(s, layers, sizeof layers);
    snprintf(own, sizeof own, "%s%d.%s", layers, s->tensor[tensor].layer, other);
    if (!find_own(in, own))
        return AF_OK; /* reported as missing later */
    const char *name = af_arena_strdup(&s->arena, own);
    if (!name)
        return af_fail_nomem(err, "the name of a tensor", strlen(own));
    s->tensor[tensor].name = name;
    return AF_OK;
}

/* How many channels each of the three convolutions has there, if together they are all. */
static void find_conv_rows(af_model_reader *in, int tensor)
{
    af_model_spec *s = &in->spec;
    int64_t rows[AF_CONV_PIECES] = {0}, left = s->tensor[tensor].dim[0];
    if (find_own(in, s->tensor[tensor].name)) {
        memset(s->conv_rows, 0, sizeof s->conv_rows);
        return;
    }
    for (int p = 0; p < AF_CONV_PIECES; p++) {
        char own[NAME_MAX_BYTES];
        int64_t dim[AF_DISK_DIMS], from;
        int ndim;
        af_disk_piece(s, tensor, p, own, sizeof own, dim, &ndim, &from);
        const af_stored *w = find_own(in, own);
        if (!w || w->ndim != 3 || w->dim[0] < 1 || w->dim[0] > left)
            return; /* reported later */
        rows[p] = w->dim[0];
        left -= rows[p];
    }
    if (left == 0)
        memcpy(s->conv_rows, rows, sizeof rows);
}

/* Published folders have convolutions of q, k and v. transformers 5.23 joins them, and cuts them
 * into thirds when it writes, whatever their sizes; it also writes a norm of attention layers under
 * the name that the norm in its place has in the other layers (olmo_hybrid), and an MLP under the
 * name that experts have in the other layers (kimi_linear). */
af_status af_reader_find_conv(af_model_reader *in, af_error *err)
{
    static const struct {
        af_slot slot;
        const char *other;
    } others[] = {{AF_SLOT_ATTN_NORM, "input_layernorm.weight"},
                  {AF_SLOT_MLP_NORM, "post_attention_layernorm.weight"},
                  {AF_SLOT_POST_ATTN_NORM, "feedforward_layer_norm.weight"},
                  {AF_SLOT_GATE, "block_sparse_moe.gate_proj.weight"},
                  {AF_SLOT_UP, "block_sparse_moe.up_proj.weight"},
                  {AF_SLOT_DOWN, "block_sparse_moe.down_proj.weight"}};
    af_model_spec *s = &in->spec;
    af_status st = AF_OK;
    bool found = false;
    if (s->conv_rows[0] == 0)
        return AF_OK;
    for (int i = 0; i < s->layers; i++) {
        const int conv = s->layer[i].tensor[AF_SLOT_CONV];
        for (size_t k = 0; k < AF_LEN(others); k++)
            AF_TRY(find_name(in, s->layer[i].tensor[others[k].slot], others[k].other, err));
        if (conv >= 0 && !found)
            find_conv_rows(in, conv);
        found |= conv >= 0;
    }
done:
    return st;
}

/* What a multimodal model has outside its text part, which is all that is read. */
static bool is_outside(const af_model_reader *in, const char *name)
{
    const char *head, *prefix = in->prefix;
    const size_t n = strlen(prefix), h = head_stem(in, &head), b = strlen(in->head_before);
    if (!in->config.nested ||
        (strncmp(name, in->head_before, b) == 0 && strncmp(name + b, head, h) == 0))
        return false;
    const bool open = n == 0 || strcmp(prefix, "model.") == 0; /* others may lie there, too */
    return strncmp(name, prefix, n) != 0 || (open && !af_spec_has_part(&in->spec, name + n));
}

/* The number that the layer of a stored tensor has in the folder; -1: it is of none. */
static long layer_of(const af_model_reader *in, const char *stored)
{
    char own[NAME_MAX_BYTES], layers[64], *end;
    af_model_reader_own_name(in, stored, own, sizeof own);
    af_spec_layers_prefix(&in->spec, layers, sizeof layers);
    const size_t n = strlen(layers);
    const long i = strncmp(own, layers, n) == 0 ? strtol(own + n, &end, 10) : -1;
    return i >= 0 && end > own + n ? i : -1;
}

bool af_reader_is_shared_copy(const af_model_reader *in, const char *name)
{
    const af_model_spec *s = &in->spec;
    const bool part = s->state.shared_blocks && strstr(name, ".shared_transformer.");
    const long i = part ? layer_of(in, name) : -1;
    const int norm = i >= 0 && i < s->layers ? s->layer[i].tensor[AF_SLOT_SHARED_NORM] : -1;
    return norm >= 0 && s->tensor[norm].layer != i;
}

/* Of the layers after the last, which predict further tokens. */
static bool is_further_layer(const af_model_reader *in, const char *name)
{
    const json_t *more = json_object_get(af_config_own(in->config.raw), "num_nextn_predict_layers");
    const long i = layer_of(in, name);
    return i >= in->spec.layers && i - in->spec.layers < json_integer_value(more);
}

/* Of a layer that is left out: it has nothing to do with text. */
static bool is_other_layer(const af_model_reader *in, const char *name)
{
    const af_model_spec *s = &in->spec;
    const long number = s->folder_layers ? layer_of(in, name) : -1;
    for (int i = 0; number >= 0 && i < s->layers; i++)
        if (s->folder_layers[i] == number)
            return false;
    return number >= 0;
}

/* Of an expert after those that are computed with: its number from there on, and the rest of the
 * name; -1: of none. */
static long further_expert(const af_model_reader *in, const char *name, const char **rest)
{
    static const char part[] = ".mlp.experts.";
    const char *number = strstr(name, part);
    char *end = NULL;
    const long e = number ? strtol(number + strlen(part), &end, 10) - in->spec.experts : -1;
    *rest = end;
    return AF_MAX(e, -1);
}

/* Experts and routers of images, which come after those of text. */
static bool is_image_expert(const af_model_reader *in, const char *name)
{
    const char *rest;
    return in->spec.arch->image_experts &&
           (af_ends_with(name, ".mlp.gate.weight_1") || further_expert(in, name, &rest) >= 0);
}

/* A norm of mixtures in a layer that has none. */
static bool is_unused_norm(const af_model_reader *in, const char *name)
{
    char own[NAME_MAX_BYTES];
    if (!in->spec.arch->post_experts_norm ||
        !af_ends_with(name, af_slot_hf_name(in->spec.arch, AF_SLOT_POST_MLP_NORM)))
        return false;
    af_model_reader_own_name(in, name, own, sizeof own);
    return af_model_spec_tensor(&in->spec, own) < 0;
}

/* A table that transformers makes of the decays of a layer, and stores. */
static bool is_decay_table(const af_model_reader *in, const char *name)
{
    static const char *const ends[] = {".slope_rate", ".query_decay", ".key_decay",
                                       ".diagonal_decay"};
    for (size_t i = 0; i < AF_LEN(ends); i++)
        if (in->spec.state.fixed_decay && af_ends_with(name, ends[i]))
            return true;
    return false;
}

af_status af_reader_check_decays(const af_model_reader *in, af_error *err)
{
    const af_model_spec *s = &in->spec;
    for (int i = 0; s->state.fixed_decay && i < af_weights_count(in->weights); i++) {
        const af_stored *w = af_weights_at(in->weights, i);
        if (!af_ends_with(w->name, ".self_attn.slope_rate"))
            continue;
        const long layer = layer_of(in, w->name);
        if (layer < 0 || layer >= s->layers || af_weight_count(w) != s->heads ||
            !af_dtype_is_float(w->dtype))
            return af_fail(err, AF_EFORMAT, "%s: '%s' is not one number per head", in->path,
                           w->name);
        for (int h = 0; h < s->heads; h++) {
            const uint64_t at = (uint64_t)h * (uint64_t)af_dtype_get(w->dtype)->bytes;
            const double want = af_decay_slope(s, h) * af_decay_factor(s, (int)layer);
            float got;
            af_convert(&got, AF_DTYPE_F32, (const uint8_t *)w->data + at, w->dtype, 1);
            if (!(fabs(got - want) <= 0.01 * want + 1e-6)) /* stored in bf16 or f16 */
                return af_fail(err, AF_EUNSUPPORTED,
                               "%s: '%s' has %g for head %d, and %g is what this build computes "
                               "with",
                               in->path, w->name, (double)got, h, want);
        }
    }
    return AF_OK;
}

/* Gate and up of identity experts, which transformers writes and wants to read. */
static bool is_identity(const af_model_reader *in, const char *name)
{
    const char *rest;
    const long e = further_expert(in, name, &rest);
    return e >= 0 && e < in->spec.router.identity &&
           (strcmp(rest, ".gate_proj.weight") == 0 || strcmp(rest, ".up_proj.weight") == 0);
}

bool af_model_reader_keeps(const af_model_reader *in, const char *name)
{
    return is_outside(in, name) || strncmp(name, "mtp.", 4) == 0 ||
           strncmp(name, "model.mtp.", 10) == 0 || strncmp(name, "model.mtp_layers.", 17) == 0 ||
           is_further_layer(in, name) || is_other_layer(in, name) || is_image_expert(in, name) ||
           is_unused_norm(in, name) || is_identity(in, name) || is_decay_table(in, name);
}

bool af_reader_is_unread_kv(const af_model_spec *s, const char *name)
{
    static const char *const parts[] = {
        ".self_attn.k_proj.", ".self_attn.v_proj.", ".self_attn.k_norm.", ".self_attn.v_norm.",
        ".attn_k.weight",     ".attn_v.weight",     ".attn_k_norm.weight"};
    char *rest;
    const bool gguf = strncmp(name, "blk.", 4) == 0;
    const char *at = gguf ? name : strstr(name, "layers.");
    const long layer = at ? strtol(at + strlen(gguf ? "blk." : "layers."), &rest, 10) : -1;
    if (layer < 0 || layer >= s->layers || s->layer[layer].kv_from == layer)
        return false;
    for (size_t i = 0; i < AF_LEN(parts); i++)
        if (strncmp(rest, parts[i], strlen(parts[i])) == 0)
            return true;
    return false;
}

/* ---- tied heads ---- */

static bool same_values(const af_stored *a, const af_stored *b)
{
    enum { STEP = 512 };
    float x[STEP], y[STEP];
    if (a->dtype == b->dtype && memcmp(a->data, b->data, a->bytes) == 0)
        return true;
    const uint64_t n = (uint64_t)a->dim[0] * (uint64_t)a->dim[1];
    const uint64_t one = (uint64_t)af_dtype_get(a->dtype)->bytes;
    const uint64_t other = (uint64_t)af_dtype_get(b->dtype)->bytes;
    for (uint64_t i = 0; i < n; i += STEP) {
        const uint64_t k = AF_MIN(n - i, (uint64_t)STEP);
        af_convert(x, AF_DTYPE_F32, (const uint8_t *)a->data + i * one, a->dtype, k);
        af_convert(y, AF_DTYPE_F32, (const uint8_t *)b->data + i * other, b->dtype, k);
        for (uint64_t j = 0; j < k; j++)
            if (x[j] != y[j])
                return false;
    }
    return true;
}

static bool is_table(const af_stored *w, const int64_t dim[2])
{
    return w->ndim == 2 && w->dim[0] == dim[0] && w->dim[1] == dim[1];
}

af_status af_reader_make_spec(af_model_reader *in, bool tied, af_error *err)
{
    af_hf_config c = in->config;
    c.tie_word_embeddings = tied;
    return af_model_spec_init(&in->spec, &c, err);
}

/* The head of a state dict that torch.save wrote has the name of memory. */
static af_status find_head(af_model_reader *in, af_error *err)
{
    af_model_spec *s = &in->spec;
    const char *module = s->arch->head_module;
    if (!module || s->tied || is_stored(in, af_slot_hf_name(s->arch, AF_SLOT_HEAD)))
        return AF_OK;
    const char *name = af_arena_printf(&s->arena, "%s.weight", module);
    if (!name)
        return af_fail_nomem(err, "the name of a tensor", strlen(module));
    if (is_stored(in, name))
        s->tensor[s->head].name = name;
    return AF_OK;
}

/* As transformers: a folder that says its head is the embedding, and has another head, is not
 * tied; one that has the head alone is. */
af_status af_reader_match_head(af_model_reader *in, af_error *err)
{
    char name[NAME_MAX_BYTES];
    const char *own = af_slot_hf_name(in->spec.arch, AF_SLOT_HEAD);
    const bool none = in->headless && !in->config.tie_word_embeddings && !in->config.tie_open;
    in->headless = false;
    if (af_weights_gguf(in->weights) || in->spec.labels)
        return AF_OK;
    if (!in->config.tie_word_embeddings && (in->config.tie_open || none) && !is_stored(in, own)) {
        in->headless = none;
        in->config.tie_word_embeddings = true;
        af_model_spec_clear(&in->spec);
        return af_reader_make_spec(in, true, err);
    }
    if (!in->config.tie_word_embeddings)
        return find_head(in, err);
    af_model_reader_disk_name(in, own, name, sizeof name);
    const af_stored *head = af_weights_find(in->weights, name);
    af_model_reader_disk_name(in, in->spec.tensor[in->spec.embed].name, name, sizeof name);
    const af_stored *embed = af_weights_find(in->weights, name);
    const int64_t want[2] = {in->stored_vocab, in->spec.embed_width};
    in->head_only = head && !embed;
    if (!head || !embed || !is_table(head, want) || !is_table(embed, want) ||
        !af_dtype_is_float(head->dtype) || !af_dtype_is_float(embed->dtype))
        return AF_OK;
    const bool same = same_values(head, embed);
    af_weights_forget(in->weights, head);
    af_weights_forget(in->weights, embed);
    if (same)
        return AF_OK;
    af_log_write(
        AF_LOG_WARN,
        "%s: tie_word_embeddings is true, but lm_head.weight is stored with other values than "
        "the embedding: it is used as the head",
        in->path);
    in->head_copied = false;
    af_model_spec_clear(&in->spec);
    return af_reader_make_spec(in, false, err);
}
