/* fuzz_parquet_runs.c - any bytes as runs, packed bits and differences: the first byte is the width
 * of values, or chooses differences. */
#include "format/columns/parquet_runs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { BATCH = 33, MOST = 4096 };
    uint32_t out[BATCH];
    int64_t v, n = 0;
    if (size == 0)
        return 0;
    if (data[0] > 0x80) {
        af_delta d;
        if (!af_delta_open(&d, data + 1, data + size, MOST))
            return 0;
        const uint8_t *end = af_delta_end(&d);
        while (af_delta_next(&d, &v))
            n++;
        if (end && (end < data || end > data + size || n != (int64_t)d.total))
            abort(); /* what has an end can be read up to it */
        return 0;
    }
    af_runs r = {.at = data + 1, .end = data + size, .width = data[0] % 33};
    r.bit_packed = data[0] & 0x40;
    while (n < MOST && af_runs_next(&r, out, BATCH))
        n += BATCH;
    return 0;
}
