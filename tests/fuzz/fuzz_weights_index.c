/* fuzz_weights_index.c - any bytes as model.safetensors.index.json, next to two shards. */
#include "format/weights/weights.h"
#include "fuzz_file.h"

static void put_shard(const char *name, const char *header)
{
    uint8_t file[256];
    const uint64_t n = strlen(header);
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)(n >> (8 * i));
    memcpy(file + 8, header, n);
    memset(file + 8 + n, 1, 8);
    (void)fuzz_put(name, file, 8 + n + 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    af_weights *w = NULL;
    if (!ready) {
        put_shard("model-00001-of-00002.safetensors",
                  "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}");
        put_shard("model-00002-of-00002.safetensors",
                  "{\"b\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]}}");
        ready = true;
    }
    (void)fuzz_put("model.safetensors.index.json", data, size);
    if (af_weights_open(&w, fuzz_dir(), NULL) == AF_OK) {
        for (int i = 0; i < af_weights_count(w); i++)
            if (!af_weights_at(w, i)->data)
                abort();
        af_weights_close(w);
    }
    return 0;
}
