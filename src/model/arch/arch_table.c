/* arch_table.c - finds a row of the architecture table. A new family is a row of one of the groups
 * and a golden in the tests. */
#include "model/arch/arch_rows.h"

static const af_arch *const groups[] = {
    af_rows_llama,  af_rows_gemma,  af_rows_dense, af_rows_experts, af_rows_state,
    af_rows_latent, af_rows_routed, af_rows_older, af_rows_mamba,   af_rows_remote,
};

const af_arch *af_arch_at(int i)
{
    for (size_t g = 0; g < AF_LEN(groups); g++)
        for (const af_arch *a = groups[g]; a->model_type; a++)
            if (i-- == 0)
                return a;
    return NULL;
}

const af_arch *af_arch_find(const char *model_type)
{
    for (int i = 0; af_arch_at(i); i++)
        if (strcmp(af_arch_at(i)->model_type, model_type) == 0)
            return af_arch_at(i);
    return NULL;
}
