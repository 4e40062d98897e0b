/* dropout.h - the counter arithmetic of dropout, the same on host and device. */
#ifndef AF_DROPOUT_H
#define AF_DROPOUT_H

#include <stdint.h>

/* The generator's stream for one dropout (attr.dropout.stream) in one micro-batch (words 2 and 3
 * of the clock). Element i is kept when af_rng_f32(seed, stream, i) >= p; seed is words 0 and 1. */
static inline uint64_t af_dropout_stream(uint64_t stream, uint64_t micro_batch)
{
    uint64_t z = (micro_batch + 1) * UINT64_C(0x9E3779B97F4A7C15); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return stream ^ z ^ (z >> 31);
}
#endif
