/* parquet_runs.c - see parquet_runs.h. */
#include "format/columns/parquet_runs.h"

/* `width` bits from bit `bit` of p on, least significant first; the bytes are there. */
static inline uint64_t bits_at(const uint8_t *p, const uint8_t *end, uint64_t bit, int width)
{
    const uint8_t *at = p + bit / 8;
    const int shift = (int)(bit % 8);
    uint64_t v = 0;
    if (end - at >= 8) {
        memcpy(&v, at, 8);
    } else {
        for (int i = 0; at + i < end; i++)
            v |= (uint64_t)at[i] << 8 * i;
    }
    v >>= shift;
    if (shift + width > 64 && at + 8 < end)
        v |= (uint64_t)at[8] << (64 - shift);
    return width == 64 ? v : v & ((UINT64_C(1) << width) - 1);
}

static bool read_varint(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64 && *at < end; shift += 7) {
        const uint8_t b = *(*at)++;
        if (shift == 63 && b > 1)
            return false;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *out = v;
            return true;
        }
    }
    return false;
}

/* The header of the next run. */
static bool next_run(af_runs *r)
{
    uint64_t head;
    const uint64_t bytes = ((uint64_t)r->width + 7) / 8;
    r->at += (r->bit + 7) / 8; /* of the packed run before */
    r->bit = 0;
    if (!read_varint(&r->at, r->end, &head))
        return false;
    const uint64_t left = (uint64_t)(r->end - r->at);
    if (head & 1) {
        const uint64_t fit = r->width ? left * 8 / (uint64_t)r->width : UINT64_MAX;
        r->packed = head >> 1 > UINT64_MAX / 8 ? UINT64_MAX : (head >> 1) * 8;
        r->packed = AF_MIN(r->packed, fit); /* the last group may be cut after its values */
        return r->packed > 0;
    }
    if (bytes > left)
        return false;
    r->repeats = head >> 1;
    r->value = 0;
    memcpy(&r->value, r->at, bytes);
    r->at += bytes;
    return r->repeats > 0 && (r->width == 32 || r->value >> r->width == 0);
}

static bool bit_packed_next(af_runs *r, uint32_t *out, uint64_t n)
{
    if (n * (uint64_t)r->width > (uint64_t)(r->end - r->at) * 8 - r->bit)
        return false;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t v = 0;
        for (int k = 0; k < r->width; k++, r->bit++)
            v = v << 1 | (uint32_t)(r->at[r->bit / 8] >> (7 - r->bit % 8) & 1);
        out[i] = v;
    }
    r->at += r->bit / 8;
    r->bit %= 8;
    return true;
}

bool af_runs_next(af_runs *r, uint32_t *out, uint64_t n)
{
    if (r->bit_packed)
        return bit_packed_next(r, out, n);
    while (n > 0) {
        if (r->repeats == 0 && r->packed == 0 && !next_run(r))
            return false;
        const uint64_t take = AF_MIN(n, r->repeats ? r->repeats : r->packed);
        if (r->repeats) {
            for (uint64_t i = 0; i < take; i++)
                out[i] = r->value;
            r->repeats -= take;
        } else {
            for (uint64_t i = 0; i < take; i++, r->bit += (uint64_t)r->width)
                out[i] = (uint32_t)bits_at(r->at, r->end, r->bit, r->width);
            r->packed -= take;
        }
        out += take;
        n -= take;
    }
    return true;
}

/* --- differences --- */

enum { BLOCK_MAX = 1 << 20, MINI_STEP = 32 };

static bool read_zigzag(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
    if (!read_varint(at, end, out))
        return false;
    *out = *out >> 1 ^ (0 - (*out & 1));
    return true;
}

bool af_delta_open(af_delta *d, const uint8_t *p, const uint8_t *end, uint64_t most)
{
    uint64_t block;
    *d = (af_delta){.at = p, .end = end};
    if (!read_varint(&d->at, end, &block) || !read_varint(&d->at, end, &d->minis) ||
        !read_varint(&d->at, end, &d->total) || !read_zigzag(&d->at, end, &d->last))
        return false;
    if (block == 0 || block > BLOCK_MAX || d->minis == 0 || block % d->minis || d->total > most)
        return false;
    d->per_mini = block / d->minis;
    d->mini = d->minis;
    d->left = d->total;
    return d->per_mini % MINI_STEP == 0;
}

/* The header of a block when one begins, then the next miniblock. */
static bool next_mini(af_delta *d)
{
    d->at += d->bit / 8; /* the miniblock before, padding included */
    d->bit = 0;
    if (d->mini == d->minis) {
        if (!read_zigzag(&d->at, d->end, &d->least) || d->minis > (uint64_t)(d->end - d->at))
            return false;
        d->widths = d->at;
        d->at += d->minis;
        d->mini = 0;
    }
    d->width = d->widths[d->mini++];
    d->mini_left = d->per_mini;
    return d->width <= 64 && (uint64_t)d->width * d->per_mini / 8 <= (uint64_t)(d->end - d->at);
}

bool af_delta_next(af_delta *d, int64_t *out)
{
    if (d->left == 0)
        return false;
    if (d->left < d->total) {
        if (d->mini_left == 0 && !next_mini(d))
            return false;
        d->last += d->least + bits_at(d->at, d->end, d->bit, d->width);
        d->bit += (uint64_t)d->width;
        d->mini_left--;
    }
    d->left--;
    *out = (int64_t)d->last;
    return true;
}

const uint8_t *af_delta_end(const af_delta *d)
{
    af_delta e = *d;
    uint64_t left = e.total ? e.total - 1 : 0;
    while (left > 0) {
        if (!next_mini(&e))
            return NULL;
        e.bit = (uint64_t)e.width * e.per_mini;
        left -= AF_MIN(left, e.per_mini);
    }
    return e.at + e.bit / 8;
}
