/* real_shapes.h - shapes of real models and cheap random weights, for the tests that measure. */
#ifndef AF_REAL_SHAPES_H
#define AF_REAL_SHAPES_H

#include "base/base.h"
#include "tensor/dtype.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct shape {
    const char *name;
    int64_t layers, D, H, K, E, F, V;
    bool tied;
} shape;

static const shape shapes[] = {
    {"tiny", 2, 256, 4, 2, 64, 512, 1000, true},
    {"0.5b", 24, 896, 14, 2, 64, 4864, 151936, true},
    {"1.5b", 28, 1536, 12, 2, 128, 8960, 151936, true},
    {"7b", 28, 3584, 28, 4, 128, 18944, 152064, false},
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Random values of one range; earlier ones are reused. */
typedef struct pool_of_values {
    float range;
    af_dtype t;
    uint64_t n;
    void *data;
} pool_of_values;

static const void *values_of(pool_of_values *pool, int count, float range, af_dtype t, uint64_t n)
{
    pool_of_values *p = pool;
    while (p < pool + count && p->data && (p->range != range || p->t != t))
        p++;
    assert_true(p < pool + count);
    if (p->n >= n)
        return p->data;
    p->range = range;
    p->t = t;
    p->data = realloc(p->data, n * (t == AF_DTYPE_BF16 ? 2 : 4));
    const uint64_t size = t == AF_DTYPE_BF16 ? 2 : 4, block = 4000037; /* not a multiple of a row */
    uint64_t h = 88172645463325252u;
    for (uint64_t i = 0; i < AF_MIN(n, block); i++) {
        h = h * 6364136223846793005u + 1442695040888963407u;
        const float f = range * ((float)(h >> 40) / 8388608.0f - 1.0f);
        if (t == AF_DTYPE_BF16)
            ((uint16_t *)p->data)[i] = af_bf16_from_f32(f);
        else
            ((float *)p->data)[i] = f;
    }
    for (uint64_t i = block; i < n; i += block) /* host time is expensive: repeat the block */
        memcpy((char *)p->data + i * size, p->data, AF_MIN(block, n - i) * size);
    p->n = n;
    return p->data;
}
#endif
