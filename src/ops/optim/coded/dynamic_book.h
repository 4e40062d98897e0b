/* dynamic_book.h - a code book of bitsandbytes, and a table to find codes fast.
 *
 * A code is found from the leading bits of the value: the table holds the code at the lower end of
 * every range of floats that share their sign, exponent and five bits of the fraction, and only a
 * few codes lie inside such a range. */
#ifndef AF_DYNAMIC_BOOK_H
#define AF_DYNAMIC_BOOK_H

#include "tensor/dynamic_map.h"

#include <string.h>

enum { AF_BOOK_DROPPED = 18, AF_BOOK_RANGES = 1 << (32 - AF_BOOK_DROPPED) };

typedef struct af_dynamic_book {
    float map[AF_DYNAMIC_CODES];
    uint8_t low[AF_BOOK_RANGES]; /* the last code not above any value of the range */
} af_dynamic_book;

static inline void af_dynamic_book_open(af_dynamic_book *b, bool with_sign)
{
    af_dynamic_map(b->map, with_sign);
    for (uint32_t r = 0; r < AF_BOOK_RANGES; r++) {
        const uint32_t first = r << AF_BOOK_DROPPED, rest = (1u << AF_BOOK_DROPPED) - 1;
        const uint32_t bits = first >> 31 ? first | rest : first;
        float least;
        memcpy(&least, &bits, sizeof least);
        int low = 0, high = AF_DYNAMIC_CODES;
        while (high - low > 1) {
            const int mid = (low + high) / 2;
            if (b->map[mid] <= least)
                low = mid;
            else
                high = mid;
        }
        b->low[r] = (uint8_t)low;
    }
}

/* As af_dynamic_code. */
static inline uint8_t af_dynamic_book_code(const af_dynamic_book *b, float x)
{
    uint32_t bits;
    if (!(x > b->map[0]))
        return 0;
    if (x >= b->map[AF_DYNAMIC_CODES - 1])
        return AF_DYNAMIC_CODES - 1;
    memcpy(&bits, &x, sizeof bits);
    int low = b->low[bits >> AF_BOOK_DROPPED];
    while (b->map[low + 1] <= x)
        low++;
    return (uint8_t)(x - b->map[low] <= b->map[low + 1] - x ? low : low + 1);
}
#endif
