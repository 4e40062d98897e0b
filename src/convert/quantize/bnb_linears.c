/* bnb_linears.c - see bnb_linears.h. */
#include "convert/quantize/bnb_linears.h"
#include "convert/input/layer_names.h"

#include <string.h>

static const char WEIGHT[] = ".weight";

static bool ends_with(const char *name, size_t n, const char *end)
{
    const size_t m = strlen(end);
    return n >= m && strncmp(name + n - m, end, m) == 0;
}

/* The length of its module's path, or 0 for what is not the weight of one. */
static size_t path_length(const af_model_tensor *t)
{
    const size_t n = strlen(t->name);
    return t->ndim == 2 && ends_with(t->name, n, WEIGHT) ? n - strlen(WEIGHT) : 0;
}

/* "mlp.gate", "block_sparse_moe.router.layer", "mlp.gate.wg"; not "gate_proj" or
 * "shared_expert_gate". */
static bool is_router(const char *name, size_t n)
{
    return ends_with(name, n, ".gate") || ends_with(name, n, ".gate.wg") ||
           ends_with(name, n, ".router") || strstr(name, ".router.");
}

/* Rows by token or position, and what is multiplied with the last hidden state. */
static bool is_outer(const char *name)
{
    static const char *const part[] = {"embed", "lm_head.weight", "wte.", "wpe."};
    for (size_t i = 0; i < AF_LEN(part); i++)
        if (strstr(name, part[i]))
            return true;
    return false;
}

bool af_bnb_packs(const af_model_tensor *t)
{
    const size_t n = path_length(t);
    if (!n || !af_name_in_layer(t->name) || is_router(t->name, n))
        return false;
    if (strstr(t->name, ".W_down.") || strstr(t->name, ".W_up.")) /* of a norm */
        return true;
    return !af_name_of_norm(t->name) && !is_outer(t->name) && !strstr(t->name, ".experts.") &&
           !strstr(t->name, ".indexer.weights_proj.");
}

json_t *af_bnb_skip_modules(const af_model_reader *in)
{
    json_t *list = json_array();
    for (int i = 0; i < in->count; i++) {
        const af_model_tensor *t = &in->tensor[i];
        const size_t n = path_length(t);
        if (n && !af_bnb_packs(t) && !is_outer(t->name) &&
            (is_router(t->name, n) || !strstr(t->name, ".experts.")))
            json_array_append_new(list, json_stringn(t->name, n));
    }
    if (json_array_size(list) == 0) {
        json_decref(list);
        return json_null();
    }
    json_array_insert_new(list, 0, json_string("lm_head")); /* what null stands for */
    return list;
}
