/* rank_work.h - what one rank does in the tests: collectives against what they must give. */
#ifndef RANK_WORK_H
#define RANK_WORK_H

#include "dist/comm.h"

#include <unistd.h>

/* Byte i of what rank `rank` sends to rank `to` in round `round`. */
static inline uint8_t rank_byte(int rank, int to, int round, uint64_t i)
{
    const uint64_t mixed = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)(rank * 64 + to) * 77;
    return (uint8_t)((mixed >> 40) + (uint64_t)round);
}

static inline void rank_fill(uint8_t *p, uint64_t n, int rank, int to, int round)
{
    for (uint64_t i = 0; i < n; i++)
        p[i] = rank_byte(rank, to, round, i);
}

static inline bool rank_same(const uint8_t *p, uint64_t n, int rank, int to, int round)
{
    for (uint64_t i = 0; i < n; i++)
        if (p[i] != rank_byte(rank, to, round, i))
            return false;
    return true;
}

/* One of each, with n bytes per part. NULL when every byte is right, else what is wrong. */
static inline const char *rank_round(af_comm *c, uint64_t n, int round, af_error *err)
{
    const int size = af_comm_size(c), me = af_comm_rank(c), root = round % size;
    const uint64_t all = n * (uint64_t)size;
    static uint8_t *a, *b;
    a = realloc(a, all + 1);
    b = realloc(b, all + 1);
    rank_fill(a, n, me, 0, round);
    if (af_comm_broadcast(c, a, n, root, err) != AF_OK)
        return "broadcast failed";
    if (!rank_same(a, n, root, 0, round))
        return "broadcast gives other bytes";
    rank_fill(a, n, me, 1, round);
    if (af_comm_all_gather(c, a, b, n, err) != AF_OK)
        return "all-gather failed";
    for (int r = 0; r < size; r++)
        if (!rank_same(b + (uint64_t)r * n, n, r, 1, round))
            return "all-gather gives other bytes";
    for (int r = 0; r < size; r++)
        rank_fill(a + (uint64_t)r * n, n, me, r, round);
    if (af_comm_all_to_all(c, a, b, n, err) != AF_OK)
        return "all-to-all failed";
    for (int r = 0; r < size; r++)
        if (!rank_same(b + (uint64_t)r * n, n, r, me, round))
            return "all-to-all gives other bytes";
    for (int bit = 1; bit < size; bit <<= 1) {
        if ((me ^ bit) >= size)
            continue;
        rank_fill(a, n, me, 2, round);
        if (af_comm_swap(c, me ^ bit, a, n, b, n, err) != AF_OK)
            return "exchange failed";
        if (!rank_same(b, n, me ^ bit, 2, round))
            return "exchange gives other bytes";
    }
    return af_comm_barrier(c, err) == AF_OK ? NULL : "barrier failed";
}

/* Rounds of many sizes. */
static inline const char *rank_rounds(af_comm *c, af_error *err)
{
    static const uint64_t sizes[] = {1, 7, 64, 4096, 100003, 1 << 20};
    for (size_t i = 0; i < AF_LEN(sizes); i++) {
        const char *wrong = rank_round(c, sizes[i], (int)i, err);
        if (wrong)
            return wrong;
    }
    return NULL;
}
#endif
