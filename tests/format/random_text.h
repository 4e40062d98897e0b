/* random_text.h - the strings that the generators of tests/golden/tokenizer and pieces draw. */
#ifndef AF_RANDOM_TEXT_H
#define AF_RANDOM_TEXT_H

#include "base/buf.h"

/* The generator that made the stored hashes: splitmix64, the high bits. */
static inline uint32_t below(uint64_t *x, uint32_t n)
{
    uint64_t z = *x += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return (uint32_t)((z >> 33) % n);
}

static inline void add_random_text(uint64_t *x, af_buf *b)
{
    static const uint32_t ranges[][2] = {
        {0x20, 0x7f},       {0x20, 0x7f},        {0x61, 0x7b},       {0x61, 0x7b},
        {0x30, 0x3a},       {0x20, 0x21},        {0x9, 0xe},         {0x0, 0x20},
        {0xa0, 0x250},      {0x250, 0x370},      {0x300, 0x370},     {0x370, 0x600},
        {0x600, 0x900},     {0x900, 0x1000},     {0x1100, 0x1200},   {0x1680, 0x1820},
        {0x1e00, 0x2070},   {0x2070, 0x2c00},    {0x2e00, 0x3200},   {0x3400, 0xa000},
        {0xa000, 0xac00},   {0xac00, 0xd7a4},    {0xe000, 0xe100},   {0xf900, 0xff00},
        {0xff00, 0x10000},  {0x10000, 0x11000},  {0x11000, 0x12000}, {0x16000, 0x17000},
        {0x1cc00, 0x1d400}, {0x1d400, 0x1f000},  {0x1f000, 0x1fc00}, {0x20000, 0x32000},
        {0xe0000, 0xe01f0}, {0x10fff0, 0x110000}};
    static const char *const pieces[] = {"<s>", "</s>", " <word> ", "<Left>", "'s",
                                         "'LL", "\r\n", "  ",       " the",   "e\xcc\x81"};
    for (uint32_t n = below(x, 16); n > 0; n--) {
        if (below(x, 8) == 0) {
            af_buf_str(b, pieces[below(x, AF_LEN(pieces))]);
            continue;
        }
        const uint32_t *r = ranges[below(x, AF_LEN(ranges))];
        for (uint32_t k = 1 + below(x, 4); k > 0; k--)
            af_buf_utf8(b, r[0] + below(x, r[1] - r[0]));
    }
}

static inline void random_text(uint64_t *x, af_buf *b)
{
    b->len = 0;
    add_random_text(x, b);
    af_buf_add(b, "", 0);
}
#endif
