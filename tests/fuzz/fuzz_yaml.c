/* fuzz_yaml.c - any bytes as a YAML document. */
#include "format/text/yaml_tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_arena mem = {.limit = 64 << 20};
    af_error err;
    af_yaml *root;
    if (af_yaml_parse(&root, &mem, (const char *)data, size, "fuzz.yaml", &err) == AF_OK) {
        double v;
        char text[80];
        for (int i = 0; i < root->count; i++)
            if (!af_yaml_f64(root->item[i], &v))
                af_yaml_show(root->item[i], text, sizeof text);
    }
    af_arena_clear(&mem);
    return 0;
}
