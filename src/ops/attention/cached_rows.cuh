/* cached_rows.cuh - where the rows of a cache in pages lie. */
#ifndef AF_CACHED_ROWS_CUH
#define AF_CACHED_ROWS_CUH
#include "cluster.cuh"
#include "sequences.cuh"

/* The row of the cache [P][L] of position p of sequence s; pages [S][M], or NULL: page s. */
DEV i64 cache_row(const int *pages, int M, i64 L, int s, i64 p)
{
    const u32 page = (u32)p / (u32)L; /* 32 bits: a division for every key */
    return pages ? pages[(i64)s * M + page] * L + ((u32)p - page * (u32)L) : s * L + p;
}
#endif
