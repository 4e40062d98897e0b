/* adam_4bit.h - the code books of 4-bit moments, as torchao has them (Li et al. 2023): a dynamic
 * map with sign for m, sixteenths without 0 for v. Two codes per byte, the first one high. */
#ifndef AF_ADAM_4BIT_H
#define AF_ADAM_4BIT_H

#include <stdint.h>

enum { AF_ADAM_4BIT_CODES = 16 };

static const float af_adam_4bit_m[AF_ADAM_4BIT_CODES] = {
    -0.8875f, -0.6625f, -0.4375f, -0.2125f, -0.0775f, -0.0325f, -0.0055f, 0.0f,
    0.0055f,  0.0325f,  0.0775f,  0.2125f,  0.4375f,  0.6625f,  0.8875f,  1.0f};
static const float af_adam_4bit_v[AF_ADAM_4BIT_CODES] = {
    0.0625f, 0.125f, 0.1875f, 0.25f, 0.3125f, 0.375f, 0.4375f, 0.5f,
    0.5625f, 0.625f, 0.6875f, 0.75f, 0.8125f, 0.875f, 0.9375f, 1.0f};

/* The code of the value nearest to x; the upper one on a tie. */
static inline uint8_t af_adam_4bit_code(const float *map, float x)
{
    int low = 0;
    for (int step = AF_ADAM_4BIT_CODES / 2; step; step /= 2)
        low += x >= map[low + step] ? step : 0;
    const int up = low + 1 < AF_ADAM_4BIT_CODES ? low + 1 : low;
    return (uint8_t)(x - map[low] >= (map[up] - map[low]) * 0.5f ? up : low);
}

/* Code k of packed ones. */
static inline uint8_t af_adam_4bit_at(const uint8_t *codes, int64_t k)
{
    return k % 2 ? codes[k / 2] & 15 : codes[k / 2] >> 4;
}
#endif
