/* dynamic_map.c - dynamic 8-bit floats: a decimal exponent of 0 to 6 and the fraction bits that are
 * left. Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", section 2. The floats
 * are made with the same f32 steps as the Python original, so that they are the same bits. */
#include "tensor/dynamic_map.h"

#include <math.h>

enum { EXPONENTS = 7 };

/* Point i of n+1 points evenly spaced over [0.1, 1]: from the nearer end and rounded once, as
 * torch.linspace. */
static float point(int i, int n)
{
    const float step = (1.0f - 0.1f) / (float)n;
    return i < (n + 1) / 2 ? fmaf(step, (float)i, 0.1f) : fmaf(-step, (float)(n - i), 1.0f);
}

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void af_dynamic_map(float map[AF_DYNAMIC_CODES], bool with_sign)
{
    static const float scale[EXPONENTS] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
    int at = 0;
    for (int e = 0; e < EXPONENTS; e++) {
        const int n = with_sign ? 1 << e : 2 << e;
        for (int i = 0; i < n; i++) {
            const float mean = (point(i, n) + point(i + 1, n)) / 2.0f;
            map[at++] = scale[e] * mean;
            if (with_sign)
                map[at++] = -(scale[e] * mean);
        }
    }
    map[at++] = 0.0f;
    map[at++] = 1.0f;
    assert(at == AF_DYNAMIC_CODES);
    qsort(map, AF_DYNAMIC_CODES, sizeof map[0], ascending);
}

uint8_t af_dynamic_code(const float map[AF_DYNAMIC_CODES], float x)
{
    int low = 0, high = AF_DYNAMIC_CODES - 1; /* map[low] <= x < map[high], once inside */
    if (!(x > map[0]))
        return 0;
    if (x >= map[high])
        return (uint8_t)high;
    while (high - low > 1) {
        const int mid = (low + high) / 2;
        if (map[mid] <= x)
            low = mid;
        else
            high = mid;
    }
    return (uint8_t)(x - map[low] <= map[high] - x ? low : high);
}
