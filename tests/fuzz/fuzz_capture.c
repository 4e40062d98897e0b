/* fuzz_capture.c - any bytes as the file of a teacher's distributions: every position of every
 * record is read. */
#include "fuzz_file.h"
#include "train/step/capture.h"

enum { K_MAX = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_capture c;
    int32_t id[K_MAX];
    float share[K_MAX];
    if (af_capture_open(&c, fuzz_put("capture.safetensors", data, size), NULL) == AF_OK)
        for (int64_t r = 0; r < c.records; r++)
            for (int64_t p = af_capture_start(&c, r); p < af_capture_start(&c, r + 1); p++)
                af_capture_read(&c, p, AF_MIN(c.k, (int64_t)K_MAX), 2.0, id, share);
    af_capture_close(&c);
    return 0;
}
