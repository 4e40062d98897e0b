/* moment_block.c - see moment_block.h. Parts of names decide, as in the package adam-mini 1.1.1:
 * biases have a moment for each value, queries and keys one for D*D/H values (a head, where heads
 * have D/H dimensions), embeddings, head, values, outputs of attention and MLPs one for each row,
 * all others (norms) one. */
#include "train/step/moment_block.h"

#include <ctype.h>

static bool has_any(const char *name, const char *const *part, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any |= strstr(name, part[i]) != NULL;
    return any;
}

/* The package fails where D*D/H values are no divisor: then a head is what the model says. */
static int64_t head_values(const af_model_spec *s, const af_tensor_spec *t)
{
    const int64_t count = t->dim[0] * t->dim[1], square = s->width * s->width;
    const int head_dim = t->layer >= 0 ? s->layer[t->layer].head_dim : s->head_dim;
    const int64_t sizes[] = {square % s->heads == 0 ? square / s->heads : 0, head_dim * t->dim[1]};
    for (size_t i = 0; i < AF_LEN(sizes); i++)
        if (sizes[i] > 0 && count % sizes[i] == 0)
            return sizes[i];
    return t->dim[1];
}

int64_t af_moment_block(const af_model_spec *s, int tensor)
{
    static const char *const heads[] = {"k_proj", "q_proj", "wq", "wk", "query", "key"};
    static const char *const rows[] = {"embed",       "embd",   "wte",    "lm_head", "output",
                                       "final_layer", "v_proj", "wv",     "value",   "feed_forward",
                                       "linear",      "mlp",    "o_proj", "wo",      "attn.proj"};
    const af_tensor_spec *t = &s->tensor[tensor];
    char name[512];
    af_spec_whole_name(s, t->name, name, sizeof name);
    for (char *c = name; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    if (strstr(name, "bias"))
        return 1;
    if (t->ndim == 2 && s->heads > 0 && has_any(name, heads, AF_LEN(heads)))
        return head_values(s, t);
    return t->ndim >= 2 && has_any(name, rows, AF_LEN(rows)) ? t->dim[t->ndim - 1] : 0;
}
