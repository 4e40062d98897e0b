/* reader.h - bounded reading of little-endian bytes.
 *
 * Once a read does not fit in what is left, `bad` is latched and every read gives 0 or NULL. */
#ifndef AF_READER_H
#define AF_READER_H

#include "base/base.h"

typedef struct af_reader {
    const uint8_t *at, *end;
    bool bad;
} af_reader;

static inline const uint8_t *af_read_bytes(af_reader *r, uint64_t n)
{
    if (r->bad || n > (uint64_t)(r->end - r->at)) { /* compare with what is left, never at + n */
        r->bad = true;
        return NULL;
    }
    const uint8_t *p = r->at;
    r->at += n;
    return p;
}

static inline uint64_t af_read_uint(af_reader *r, int bytes)
{
    const uint8_t *p = af_read_bytes(r, (uint64_t)bytes);
    uint64_t v = 0;
    for (int i = 0; p && i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static inline uint8_t af_read_u8(af_reader *r) { return (uint8_t)af_read_uint(r, 1); }
static inline uint16_t af_read_u16(af_reader *r) { return (uint16_t)af_read_uint(r, 2); }
static inline uint32_t af_read_u32(af_reader *r) { return (uint32_t)af_read_uint(r, 4); }
static inline uint64_t af_read_u64(af_reader *r) { return af_read_uint(r, 8); }
static inline uint64_t af_read_left(const af_reader *r)
{
    return r->bad ? 0 : (uint64_t)(r->end - r->at);
}
#endif
