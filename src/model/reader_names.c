/* reader_names.c - what a folder calls its tensors: the prefix of the text model, and whether
 * experts are one tensor each or all in one. */
#include "model/tensor_layout.h"

#include <stdlib.h>

enum { NAME_MAX_BYTES = 512 };

static const char *const prefixes[] = {"model.", "language_model.model.", "model.language_model.",
                                       ""};

void af_reader_find_prefix(af_model_reader *in)
{
    char name[NAME_MAX_BYTES];
    const char *embed = in->spec.tensor[in->spec.embed].name;
    const char *stem = in->spec.arch->stem;
    in->prefix = prefixes[0];
    in->bare = 0;
    if (stem && strncmp(embed, "model.", 6) != 0) { /* folders of gpt2 have names without it */
        if (!af_weights_find(in->weights, embed) &&
            af_weights_find(in->weights, embed + strlen(stem)))
            in->bare = strlen(stem);
        return;
    }
    for (size_t i = 0; i < AF_LEN(prefixes); i++) {
        snprintf(name, sizeof name, "%s%s", prefixes[i], embed + 6);
        if (af_weights_find(in->weights, name)) {
            in->prefix = prefixes[i];
            return;
        }
    }
}

void af_model_reader_disk_name(const af_model_reader *in, const char *name, char *out, size_t size)
{
    if (in->bare && strncmp(name, in->spec.arch->stem, in->bare) == 0)
        snprintf(out, size, "%s", name + in->bare);
    else if (strncmp(name, "model.", 6) == 0)
        snprintf(out, size, "%s%s", in->prefix, name + 6);
    else if (strcmp(in->prefix, "language_model.model.") == 0)
        snprintf(out, size, "language_model.%s", name);
    else
        snprintf(out, size, "%s", name);
}

void af_model_reader_own_name(const af_model_reader *in, const char *stored, char *out, size_t size)
{
    const size_t n = strlen(in->prefix);
    const bool head = strstr(stored, "lm_head.") != NULL;
    const bool outer = strncmp(stored, "language_model.", 15) == 0;
    if (!head && in->bare)
        snprintf(out, size, "%s%s", in->spec.arch->stem, stored);
    else if (!head && strncmp(stored, in->prefix, n) == 0)
        snprintf(out, size, "model.%s", stored + n);
    else
        snprintf(out, size, "%s", head && outer ? stored + 15 : stored);
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
    int64_t dim[3], from;
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

bool af_reader_is_unread_kv(const af_model_spec *s, const char *name)
{
    static const char *const parts[] = {"k_proj.", "v_proj.", "k_norm.", "v_norm."};
    static const char before[] = ".self_attn.";
    char *rest;
    const char *at = strstr(name, "layers.");
    const long layer = at ? strtol(at + strlen("layers."), &rest, 10) : -1;
    if (layer < 0 || layer >= s->layers || s->layer[layer].kv_from == layer ||
        strncmp(rest, before, strlen(before)) != 0)
        return false;
    for (size_t i = 0; i < AF_LEN(parts); i++)
        if (strncmp(rest + strlen(before), parts[i], strlen(parts[i])) == 0)
            return true;
    return false;
}
