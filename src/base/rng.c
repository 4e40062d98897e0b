/* rng.c - Philox4x32-10. */
#include "base/rng.h"

#include <math.h>

void af_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static void block(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t n)
{
    const uint32_t counter[4] = {(uint32_t)n, (uint32_t)(n >> 32), (uint32_t)stream,
                                 (uint32_t)(stream >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    af_philox(out, counter, key);
}

enum { LANES = 16 };

/* LANES blocks side by side: each line of the round is a vector operation. */
static void lanes(uint32_t *out, uint64_t seed, uint64_t stream, uint64_t first)
{
    uint32_t c0[LANES], c1[LANES], c2[LANES], c3[LANES];
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int j = 0; j < LANES; j++) {
        const uint64_t n = first + (uint64_t)j;
        c0[j] = (uint32_t)n;
        c1[j] = (uint32_t)(n >> 32);
        c2[j] = (uint32_t)stream;
        c3[j] = (uint32_t)(stream >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (int j = 0; j < LANES; j++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * c0[j], p1 = (uint64_t)0xCD9E8D57u * c2[j];
            c0[j] = (uint32_t)(p1 >> 32) ^ c1[j] ^ k0;
            c2[j] = (uint32_t)(p0 >> 32) ^ c3[j] ^ k1;
            c1[j] = (uint32_t)p1;
            c3[j] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int j = 0; j < LANES; j++) {
        out[4 * j] = c0[j];
        out[4 * j + 1] = c1[j];
        out[4 * j + 2] = c2[j];
        out[4 * j + 3] = c3[j];
    }
}

void af_rng_words(uint32_t *out, uint64_t seed, uint64_t stream, uint64_t first, uint64_t n)
{
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        lanes(out + 4 * i, seed, stream, first + i);
    for (; i < n; i++)
        block(out + 4 * i, seed, stream, first + i);
}

uint32_t af_rng_u32(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t w[4];
    block(w, seed, stream, index / 4);
    return w[index % 4];
}

float af_rng_f32(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (float)(af_rng_u32(seed, stream, index) >> 8) * 0x1p-24f;
}

static uint64_t pair(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t w[4];
    block(w, seed, stream, index / 2);
    const int lane = (int)(index % 2) * 2;
    return (uint64_t)w[lane + 1] << 32 | w[lane];
}

double af_rng_f64(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(pair(seed, stream, index) >> 11) * 0x1p-53;
}

void af_rng_f64_row(double *out, uint64_t seed, uint64_t stream, uint64_t first, int n)
{
    uint32_t w[512];
    assert(first % 2 == 0 && n % 2 == 0 && n <= 256);
    af_rng_words(w, seed, stream, first / 2, (uint64_t)n / 2);
    for (int i = 0; i < n; i++)
        out[i] = (double)(((uint64_t)w[2 * i + 1] << 32 | w[2 * i]) >> 11) * 0x1p-53;
}

double af_rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    const uint64_t w = pair(seed, stream, index);
    const double u = ((double)(uint32_t)w + 0.5) * 0x1p-32, v = (double)(w >> 32) * 0x1p-32;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

uint64_t af_rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n)
{
    return (uint64_t)((unsigned __int128)pair(seed, stream, index) * n >> 64);
}
