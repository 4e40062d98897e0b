/* unpack_lz.c - Snappy's and LZ4's bytes: literals, and copies of what was unpacked before. */
#include "base/reader.h"
#include "format/columns/unpack.h"

typedef struct lz {
    uint8_t *start, *to, *end;
    bool bad;
} lz;

static void put_literal(lz *o, af_reader *in, uint64_t n)
{
    if (n > (uint64_t)(o->end - o->to) || n > af_read_left(in)) {
        o->bad = true;
        return;
    }
    memcpy(o->to, in->at, n);
    in->at += n;
    o->to += n;
}

/* Copies n bytes from `back` bytes before; they may overlap what is written. */
static void put_copy(lz *o, uint64_t back, uint64_t n)
{
    if (back == 0 || back > (uint64_t)(o->to - o->start) || n > (uint64_t)(o->end - o->to)) {
        o->bad = true;
        return;
    }
    const uint8_t *from = o->to - back;
    uint8_t *to = o->to;
    o->to += n;
    if (back >= 8) /* pieces of 8 do not overlap themselves */
        for (; n >= 8; n -= 8, to += 8, from += 8)
            memcpy(to, from, 8);
    while (n-- > 0)
        *to++ = *from++;
}

static uint64_t snappy_length(af_reader *in)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        const uint8_t b = af_read_u8(in);
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80))
            return v;
    }
    in->bad = true;
    return 0;
}

bool af_unpack_snappy(uint8_t *to, uint64_t size, const uint8_t *p, uint64_t n)
{
    af_reader in = {p, p + n, false};
    lz o = {to, to, to + size, false};
    if (snappy_length(&in) != size)
        return false;
    while (in.at < in.end && !in.bad && !o.bad) {
        const uint8_t tag = *in.at++;
        const uint64_t high = tag >> 2;
        switch (tag & 3) {
        case 0:
            put_literal(&o, &in, (high < 60 ? high : af_read_uint(&in, (int)high - 59)) + 1);
            break;
        case 1: {
            const uint64_t back = (uint64_t)(tag >> 5) << 8 | af_read_u8(&in);
            put_copy(&o, back, (high & 7) + 4);
            break;
        }
        case 2:
            put_copy(&o, af_read_u16(&in), high + 1);
            break;
        default:
            put_copy(&o, af_read_u32(&in), high + 1);
        }
    }
    return !in.bad && !o.bad && o.to == o.end;
}

/* 15 in the token's half: further bytes follow, as long as they are 255. */
static uint64_t lz4_length(af_reader *in, uint64_t half)
{
    uint64_t n = half;
    for (uint8_t b = 255; half == 15 && b == 255 && !in->bad; n += b)
        b = af_read_u8(in);
    return n;
}

static void lz4_block(lz *o, const uint8_t *p, uint64_t n)
{
    af_reader in = {p, p + n, false};
    while (in.at < in.end && !o->bad) {
        const uint8_t token = *in.at++;
        put_literal(o, &in, lz4_length(&in, token >> 4));
        if (in.bad || o->bad || in.at == in.end) /* the last sequence is of literals alone */
            break;
        const uint64_t back = af_read_u16(&in), copy = lz4_length(&in, token & 15) + 4;
        o->bad |= in.bad;
        if (!o->bad)
            put_copy(o, back, copy);
    }
    o->bad |= in.bad;
}

bool af_unpack_lz4(uint8_t *to, uint64_t size, const uint8_t *p, uint64_t n)
{
    lz o = {to, to, to + size, false};
    lz4_block(&o, p, n);
    return !o.bad && o.to == o.end;
}

enum {
    FRAME_MAGIC = 0x184d2204,
    FRAME_DICTIONARY = 1,
    FRAME_CONTENT_SUM = 4,
    FRAME_CONTENT_SIZE = 8,
    FRAME_BLOCK_SUM = 16,
    FRAME_INDEPENDENT = 32,
};
#define BLOCK_STORED UINT32_C(0x80000000)

bool af_unpack_lz4_frame(uint8_t *to, uint64_t size, const uint8_t *p, uint64_t n)
{
    af_reader in = {p, p + n, false};
    lz o = {to, to, to + size, false};
    const bool magic = af_read_u32(&in) == FRAME_MAGIC;
    const uint8_t flags = af_read_u8(&in);
    if (!magic || flags >> 6 != 1 || flags & FRAME_DICTIONARY)
        return false;
    af_read_u8(&in);
    if (flags & FRAME_CONTENT_SIZE && af_read_u64(&in) != size)
        return false;
    af_read_u8(&in); /* the header's sum */
    while (!in.bad && !o.bad) {
        const uint32_t head = af_read_u32(&in), len = head & ~BLOCK_STORED;
        if (head == 0)
            break;
        const uint8_t *block = af_read_bytes(&in, len);
        af_reader stored = {block, block ? block + len : block, false};
        if (flags & FRAME_INDEPENDENT)
            o.start = o.to;
        if (block && head & BLOCK_STORED)
            put_literal(&o, &stored, len);
        else if (block)
            lz4_block(&o, block, len);
        if (flags & FRAME_BLOCK_SUM)
            af_read_u32(&in);
    }
    if (flags & FRAME_CONTENT_SUM)
        af_read_u32(&in);
    return !in.bad && !o.bad && o.to == o.end;
}
