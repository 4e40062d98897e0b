/* family_find.c - finds a family among the groups. */
#include "format/config/families/families.h"

#include "base/word.h"

#include <jansson.h>

enum { FAMILIES_MAX = 256 };

static const af_family *const groups[] = {
    af_families_llama,   af_families_gemma, af_families_dense,  af_families_experts,
    af_families_minimax, af_families_state, af_families_latent, af_families_routed,
    af_families_older,   af_families_mamba, af_families_remote, af_families_inside,
};

/* The i-th over all groups, NULL after the last. */
static const af_family *family_at(int i)
{
    for (size_t g = 0; g < AF_LEN(groups); g++)
        for (const af_family *f = groups[g]; f->model_type; f++)
            if (i-- == 0)
                return f;
    return NULL;
}

int64_t af_config_width(const af_hf_config *c)
{
    return AF_MIN(AF_MAX(c->hidden_size, 0), (int64_t)AF_CONFIG_WIDTH_MAX);
}

bool af_config_part(af_config_source *in, af_config_source *s, const char *key)
{
    const json_t *own = af_config_value(s, key);
    *in = af_config_inner(s, own);
    if (own && !json_is_object(own))
        af_config_wrong(s, key, "an object");
    return json_is_object(own) && s->st == AF_OK;
}

const json_t *af_config_ropes(af_config_source *s)
{
    const json_t *old = af_config_value(s, "rope_scaling");
    return json_object_size(old) ? old : af_config_value(s, "rope_parameters");
}

void af_config_llama3(af_config_source *s, af_hf_config *c, double theta, double factor)
{
    if (af_config_ropes(s))
        return;
    c->rope.type = AF_ROPE_LLAMA3;
    c->rope.theta = theta;
    c->rope.factor = factor;
    c->rope.low_freq_factor = 1;
    c->rope.high_freq_factor = 4;
    c->rope.original_max_position_embeddings = 8192;
}

double af_config_clip(af_config_source *s)
{
    const double clip = af_config_num(s, "clip_qkv", 0);
    if (af_config_value(s, "clip_qkv") && !(clip > 0 && clip < 1e9))
        af_config_wrong(s, "clip_qkv", "a positive number");
    return clip;
}

double af_family_gguf_num(const af_gguf *g, const char *arch, const char *suffix, double absent)
{
    char key[128];
    snprintf(key, sizeof key, "%.60s.%.60s", arch, suffix);
    return af_gguf_float(g, key, absent);
}

const af_family *af_family_find(const char *model_type)
{
    for (int i = 0; family_at(i); i++)
        if (strcmp(family_at(i)->model_type, model_type) == 0)
            return family_at(i);
    return family_at(0);
}

const af_family *af_family_by_gguf(const char *architecture)
{
    for (int i = 0; family_at(i); i++)
        if (family_at(i)->gguf && strcmp(family_at(i)->gguf, architecture) == 0)
            return family_at(i);
    return NULL;
}

bool af_family_known(const char *model_type)
{
    return strcmp(af_family_find(model_type)->model_type, model_type) == 0;
}

const char *af_family_names(const char *model_type, bool gguf, char buf[AF_FAMILY_NAMES])
{
    const char *known[FAMILIES_MAX + 1] = {NULL};
    int count = 0, n = 0;
    for (int i = 0; family_at(i) && count < FAMILIES_MAX; i++)
        if (!family_at(i)->unsupported && !family_at(i)->same && (!gguf || family_at(i)->gguf))
            known[count++] = gguf ? family_at(i)->gguf : family_at(i)->model_type;
    const char *near = af_word_nearest(model_type, known);
    if (near)
        n = snprintf(buf, AF_FAMILY_NAMES, "; did you mean '%s'? Supported: ", near);
    else
        n = snprintf(buf, AF_FAMILY_NAMES, "; supported: ");
    for (int i = 0; i < count; i++) {
        const size_t left = (size_t)(AF_FAMILY_NAMES - n);
        if (strlen(known[i]) + sizeof ", , and 999 more" > left) {
            snprintf(buf + n, left, ", and %d more", count - i);
            break;
        }
        n += snprintf(buf + n, left, "%s%s", i ? ", " : "", known[i]);
    }
    return buf;
}
