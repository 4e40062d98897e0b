/* Any bytes are a page of a hub's listing and a cached list: paths that are accepted stay inside
 * their folder, and what is printed reads back. */
#include "base/file.h"
#include "format/hub/hub_tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(af_hub_tree *t)
{
    af_error err;
    char *text = NULL;
    uint64_t n = 0;
    af_hub_tree again = {0};
    const af_hub_choice model = {.kind = AF_HUB_MODEL}, dataset = {.kind = AF_HUB_DATASET},
                        gguf = {.kind = AF_HUB_MODEL, .gguf = "Q4_K_M"};
    for (int i = 0; i < t->count; i++)
        if (!af_path_is_inner(t->file[i].path) || strchr(af_hub_file_etag(&t->file[i]), '/'))
            abort();
    (void)!af_hub_tree_choose(t, &dataset, "o/n", &err);
    (void)!af_hub_tree_choose(t, &gguf, "o/n", &err);
    (void)!af_hub_tree_choose(t, &model, "o/n", &err);
    if (af_hub_tree_print(&text, &n, t, &err) != AF_OK ||
        af_hub_tree_parse(&again, text, n, "printed", &err) != AF_OK || again.count != t->count)
        abort();
    free(text);
    af_hub_tree_clear(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_error err;
    af_hub_tree page = {0}, cached = {0};
    if (af_hub_tree_add_page(&page, (const char *)data, size, "fuzz", &err) == AF_OK &&
        af_hub_tree_sort(&page, "fuzz", &err) == AF_OK)
        use(&page);
    if (af_hub_tree_parse(&cached, (const char *)data, size, "fuzz", &err) == AF_OK)
        use(&cached);
    af_hub_tree_clear(&page);
    af_hub_tree_clear(&cached);
    return 0;
}
