/* merge_names.c - see merge_names.h. */
#include "convert/merge/merge_names.h"

#include "base/base.h"
#include "convert/input/layer_names.h"

#include <ctype.h>
#include <string.h>

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* Whether what comes before `to` is a tower of a multimodal repository, or predicts further tokens.
 */
static bool is_outside_text(const char *name, const char *to)
{
    static const char *const part[] = {"vision",    "visual",  "image_",     "audio",   "perceiver",
                                       "resampler", "qformer", "connector.", "vqmodel", "mtp."};
    for (size_t i = 0; i < AF_LEN(part); i++) {
        const char *at = strstr(name, part[i]);
        if (at && at < to)
            return true;
    }
    return false;
}

int64_t af_merge_layer_of(const char *name, size_t *at, size_t *end)
{
    for (int i = 0; i < AF_LAYER_MARKS; i++) {
        const char *p = strstr(name, af_layer_mark[i]);
        if (!p || is_outside_text(name, p))
            continue;
        p += strlen(af_layer_mark[i]);
        size_t n = 0;
        int64_t v = 0;
        while (n < 6 && isdigit((unsigned char)p[n]))
            v = v * 10 + (p[n++] - '0');
        if (n && p[n] == '.') {
            *at = (size_t)(p - name);
            *end = *at + n;
            return v;
        }
    }
    return -1;
}

bool af_merge_is_embed(const char *name)
{
    static const char *const end[] = {"embed_in.weight", "word_embeddings.weight",
                                      "tok_embeddings.weight", "backbone.embeddings.weight"};
    if (is_outside_text(name, name + strlen(name)))
        return false;
    for (size_t i = 0; i < AF_LEN(end); i++)
        if (ends_with(name, end[i]))
            return true;
    return strstr(name, "embed_tokens") || strstr(name, "wte.weight");
}

bool af_merge_is_head(const char *name)
{
    return ends_with(name, "lm_head.weight") || ends_with(name, "embed_out.weight") ||
           ends_with(name, "output_layer.weight") || strcmp(name, "output.weight") == 0;
}
