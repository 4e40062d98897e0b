/* sha1.c - SHA-1 by its definition (FIPS 180-4): how git names files. */
#include "base/hash.h"

#include <stdio.h>

static uint32_t rol(uint32_t x, int n) { return x << n | x >> (32 - n); }

static void compress(uint32_t s[5], const uint8_t *p)
{
    uint32_t w[80];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 80; i++)
        w[i] = rol(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    uint32_t a = s[0], b = s[1], c = s[2], d = s[3], e = s[4];
    for (int i = 0; i < 80; i++) {
        static const uint32_t key[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
        const uint32_t f = i < 20   ? (b & c) | (~b & d)
                           : i < 40 ? b ^ c ^ d
                           : i < 60 ? (b & c) | (b & d) | (c & d)
                                    : b ^ c ^ d;
        const uint32_t t = rol(a, 5) + f + e + key[i / 20] + w[i];
        e = d;
        d = c;
        c = rol(b, 30);
        b = a;
        a = t;
    }
    s[0] += a;
    s[1] += b;
    s[2] += c;
    s[3] += d;
    s[4] += e;
}

void af_sha1_init(af_sha1 *s)
{
    *s = (af_sha1){.state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}};
}

void af_sha1_add(af_sha1 *s, const void *bytes, uint64_t n)
{
    const uint8_t *p = bytes;
    while (n > 0) {
        const uint64_t held = s->bytes % 64, take = AF_MIN(n, 64 - held);
        memcpy(s->block + held, p, take);
        s->bytes += take;
        p += take;
        n -= take;
        if (s->bytes % 64 == 0)
            compress(s->state, s->block);
    }
}

void af_sha1_init_blob(af_sha1 *s, uint64_t size)
{
    char head[40];
    const int n = snprintf(head, sizeof head, "blob %" PRIu64, size);
    af_sha1_init(s);
    af_sha1_add(s, head, (uint64_t)n + 1); /* with the NUL */
}

void af_sha1_hex(af_sha1 *s, char hex[41])
{
    const uint64_t bits = s->bytes * 8;
    const uint8_t one = 0x80, zero = 0;
    af_sha1_add(s, &one, 1);
    while (s->bytes % 64 != 56)
        af_sha1_add(s, &zero, 1);
    uint8_t len[8];
    for (int i = 0; i < 8; i++)
        len[i] = (uint8_t)(bits >> (56 - 8 * i));
    af_sha1_add(s, len, 8);
    for (int i = 0; i < 5; i++)
        snprintf(hex + 8 * i, 9, "%08x", s->state[i]);
}
