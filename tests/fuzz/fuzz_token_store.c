/* fuzz_token_store.c - any bytes as a file of the token cache, with its sum made right: what opens
 * can be read whole. */
#include "base/hash.h"
#include "data/store/token_store.h"
#include "fuzz_file.h"

/* The layout of src/data/store/token_store.c. */
typedef struct store_header {
    uint64_t magic;
    uint32_t version, longest;
    uint64_t words, records, supervised;
    uint32_t shortest, spare;
    uint64_t note_size, sum;
} store_header;

static uint64_t sum_words(uint64_t h, const uint8_t *words, uint64_t bytes)
{
    for (uint64_t i = 0; i + 4 <= bytes; i += 4) {
        uint32_t w;
        memcpy(&w, words + i, 4);
        h = (h ^ w) * UINT64_C(0x100000001b3);
    }
    return h;
}

/* Without the right sum nothing behind it is ever looked at. */
static void sign(uint8_t *file, size_t size)
{
    store_header h;
    if (size < sizeof h)
        return;
    memcpy(&h, file, sizeof h);
    const uint64_t rest = size - sizeof h;
    if (h.words > rest || h.records > rest / sizeof(af_token_index))
        return;
    const uint64_t words = (h.words + h.words % 2) * 4, index = h.records * sizeof(af_token_index);
    if (words > rest || index > rest - words || h.note_size > rest - words - index)
        return;
    const uint8_t *at = file + sizeof h + words;
    h.sum = 0;
    uint64_t sum = sum_words(AF_FNV_START, file + sizeof h, words);
    sum = af_fnv1a(sum_words(sum, at, index), at + index, h.note_size);
    h.sum = af_fnv1a(sum, &h, sizeof h);
    memcpy(file, &h, sizeof h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_token_store s;
    volatile uint32_t sink = 0;
    uint8_t *file = malloc(size + 1);
    if (!file)
        return 0;
    memcpy(file, data, size);
    sign(file, size);
    if (af_token_store_open(&s, fuzz_put("tokens", file, size), NULL) == AF_OK) {
        for (int64_t r = 0; r < s.records; r++)
            for (uint32_t i = 0; i < s.index[r].count; i++)
                sink += af_token_words(&s, r)[i];
        for (uint64_t i = 0; i < s.note_size; i++)
            sink += (uint8_t)s.note[i];
        af_token_store_close(&s);
    }
    free(file);
    return 0;
}
