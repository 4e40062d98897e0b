/* order.c - keyed permutation (a Feistel network with cycle walking) and bin packing. */
#include "data/store/order.h"
#include "base/rng.h"

#include <stdlib.h>

int64_t af_permute(uint64_t seed, uint64_t epoch, int64_t n, int64_t i)
{
    assert(n > 0 && i >= 0 && i < n);
    int half = 1;
    while (half < 31 && (INT64_C(1) << (2 * half)) < n)
        half++;
    const uint32_t mask = (UINT32_C(1) << half) - 1;
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint64_t x = (uint64_t)i;
    do { /* at most 4 n values exist, so a few rounds land inside */
        uint32_t left = (uint32_t)(x >> half) & mask, right = (uint32_t)x & mask;
        for (uint32_t round = 0; round < 6; round++) {
            const uint32_t counter[4] = {right, round, (uint32_t)epoch,
                                         0x5075u ^ (uint32_t)(epoch >> 32)};
            uint32_t w[4];
            af_philox(w, counter, key);
            const uint32_t next = (left ^ w[0]) & mask;
            left = right;
            right = next;
        }
        x = (uint64_t)left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

static int64_t pack_in_order(int64_t *pack, const uint32_t *length, int64_t n, int64_t limit,
                             int64_t most)
{
    int64_t rows = 0, used = 0, held = 0;
    for (int64_t i = 0; i < n; i++) {
        if (rows == 0 || used + length[i] > limit || held == most) {
            rows++;
            used = held = 0;
        }
        pack[i] = rows - 1;
        used += length[i];
        held++;
    }
    return rows;
}

typedef struct slot {
    int64_t record;
    uint32_t length;
} slot;

static int longest_first(const void *a, const void *b)
{
    const slot *x = a, *y = b;
    if (x->length != y->length)
        return x->length < y->length ? 1 : -1;
    return x->record < y->record ? -1 : 1;
}

static int64_t best_row(const int64_t *space, const int64_t *held, int64_t rows, int64_t need,
                        int64_t most)
{
    int64_t best = -1;
    for (int64_t r = 0; r < rows; r++)
        if (space[r] >= need && held[r] < most && (best < 0 || space[r] < space[best]))
            best = r;
    return best;
}

int64_t af_pack(int64_t *pack, const uint32_t *length, int64_t n, int64_t limit, int64_t most,
                bool sequential)
{
    /* on the stack: it cannot fail in the thread that reads ahead */
    slot order[AF_PACK_WINDOW];
    int64_t space[AF_PACK_WINDOW], held[AF_PACK_WINDOW], rows = 0;
    if (sequential)
        return pack_in_order(pack, length, n, limit, most);
    assert(n <= AF_PACK_WINDOW);
    for (int64_t i = 0; i < n; i++)
        order[i] = (slot){i, length[i]};
    qsort(order, (size_t)n, sizeof *order, longest_first);
    for (int64_t i = 0; i < n; i++) {
        int64_t r = best_row(space, held, rows, order[i].length, most);
        if (r < 0) {
            r = rows++;
            space[r] = limit;
            held[r] = 0;
        }
        space[r] -= order[i].length;
        held[r]++;
        pack[order[i].record] = r;
    }
    return rows;
}
