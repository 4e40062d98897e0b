/* merge_method.c - the table of methods. */
#include "convert/merge_method.h"

enum { MANY = AF_MERGE_INPUTS_MAX - 1 };

#define DELTA_PARAMS "weight", "density", "normalize", "rescale", "lambda", "int8_mask"

static const af_merge_method methods[] = {
    {"linear",
     AF_BASE_NONE,
     1,
     MANY,
     {"weight", "normalize", NULL},
     true,
     false,
     true,
     af_merge_linear_prepare,
     af_merge_mix_emit},
    {"slerp",
     AF_BASE_NEEDED,
     1,
     1,
     {"t", NULL},
     false,
     true,
     true,
     af_merge_slerp_prepare,
     af_merge_mix_emit},
    {"nuslerp",
     AF_BASE_OPTIONAL,
     2,
     2,
     {"weight", "nuslerp_flatten", "nuslerp_row_wise", NULL},
     true,
     false,
     true,
     af_merge_nuslerp_prepare,
     af_merge_nuslerp_emit},
    {"multislerp",
     AF_BASE_OPTIONAL,
     1,
     MANY,
     {"weight", "normalize_weights", "eps", NULL},
     true,
     false,
     true,
     af_merge_multislerp_prepare,
     af_merge_mix_emit},
    {"karcher",
     AF_BASE_NONE,
     1,
     MANY,
     {"max_iter", "tol", NULL},
     false,
     false,
     true,
     af_merge_karcher_prepare,
     af_merge_mix_emit},
    {"task_arithmetic",
     AF_BASE_NEEDED,
     1,
     MANY,
     {DELTA_PARAMS, NULL},
     true,
     false,
     false,
     af_merge_arithmetic_prepare,
     af_merge_mix_emit},
    {"ties",
     AF_BASE_NEEDED,
     1,
     MANY,
     {DELTA_PARAMS, NULL},
     true,
     false,
     true,
     af_merge_top_prepare,
     af_merge_top_emit},
    {"dare_linear",
     AF_BASE_NEEDED,
     1,
     MANY,
     {DELTA_PARAMS, NULL},
     true,
     false,
     false,
     af_merge_dare_prepare,
     af_merge_dare_emit},
    {"dare_ties",
     AF_BASE_NEEDED,
     1,
     MANY,
     {DELTA_PARAMS, NULL},
     true,
     false,
     false,
     af_merge_dare_prepare,
     af_merge_dare_ties_emit},
    {"breadcrumbs",
     AF_BASE_NEEDED,
     1,
     MANY,
     {DELTA_PARAMS, "gamma", NULL},
     true,
     false,
     false,
     af_merge_crumbs_prepare,
     af_merge_crumbs_emit},
    {"breadcrumbs_ties",
     AF_BASE_NEEDED,
     1,
     MANY,
     {DELTA_PARAMS, "gamma", NULL},
     true,
     false,
     false,
     af_merge_crumbs_prepare,
     af_merge_crumbs_ties_emit},
    {"della",
     AF_BASE_NEEDED,
     1,
     MANY,
     {DELTA_PARAMS, "epsilon", NULL},
     true,
     false,
     true,
     af_merge_della_prepare,
     af_merge_della_emit},
    {"della_linear",
     AF_BASE_NEEDED,
     1,
     MANY,
     {DELTA_PARAMS, "epsilon", NULL},
     true,
     false,
     false,
     af_merge_della_prepare,
     af_merge_della_linear_emit},
    {"model_stock",
     AF_BASE_NEEDED,
     2,
     MANY,
     {"filter_wise", NULL},
     false,
     false,
     true,
     af_merge_stock_prepare,
     af_merge_stock_emit},
    {"sce",
     AF_BASE_NEEDED,
     1,
     MANY,
     {"select_topk", "int8_mask", NULL},
     false,
     false,
     true,
     af_merge_sce_prepare,
     af_merge_sce_emit},
    {"ram",
     AF_BASE_NEEDED,
     1,
     MANY,
     {"epsilon", NULL},
     false,
     false,
     true,
     NULL,
     af_merge_ram_emit},
    {"ramplus_tl",
     AF_BASE_NEEDED,
     1,
     MANY,
     {"epsilon", "r", "alpha", NULL},
     false,
     false,
     true,
     af_merge_ramplus_prepare,
     af_merge_ram_emit},
    {"nearswap",
     AF_BASE_NEEDED,
     1,
     1,
     {"t", NULL},
     false,
     true,
     true,
     NULL,
     af_merge_nearswap_emit},
    {"arcee_fusion",
     AF_BASE_NEEDED,
     1,
     1,
     {NULL},
     false,
     false,
     true,
     af_merge_arcee_prepare,
     af_merge_arcee_emit},
    {"passthrough",
     AF_BASE_NONE,
     1,
     1,
     {"scale", NULL},
     false,
     false,
     true,
     NULL,
     af_merge_pass_emit},
};

const af_merge_method *af_merge_method_find(const char *name)
{
    if (strcmp(name, "ram+") == 0 || strcmp(name, "ramplus") == 0)
        name = "ramplus_tl";
    for (size_t i = 0; i < AF_LEN(methods); i++)
        if (strcmp(methods[i].name, name) == 0)
            return &methods[i];
    return NULL;
}

const char *const *af_merge_method_names(void)
{
    static const char *const names[] = {"linear",
                                        "slerp",
                                        "nuslerp",
                                        "multislerp",
                                        "karcher",
                                        "task_arithmetic",
                                        "ties",
                                        "dare_linear",
                                        "dare_ties",
                                        "breadcrumbs",
                                        "breadcrumbs_ties",
                                        "della",
                                        "della_linear",
                                        "model_stock",
                                        "sce",
                                        "ram",
                                        "ramplus_tl",
                                        "nearswap",
                                        "arcee_fusion",
                                        "passthrough",
                                        NULL};
    return names;
}

/* Edits from a to b, at most 32 letters. */
static int distance(const char *a, const char *b)
{
    enum { MAX = 32 };
    int row[MAX + 1];
    const int n = (int)AF_MIN(strlen(a), MAX), m = (int)AF_MIN(strlen(b), MAX);
    for (int j = 0; j <= m; j++)
        row[j] = j;
    for (int i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            const int swap = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = AF_MIN(swap, AF_MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[m];
}

const char *af_merge_nearest(const char *word, const char *const *known)
{
    const char *best = NULL;
    int least = 2 + (int)strlen(word) / 3;
    for (; *known; known++) {
        const int d = distance(word, *known);
        if (d < least) {
            least = d;
            best = *known;
        }
    }
    return best;
}
