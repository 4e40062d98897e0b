/* normal.h - normal numbers for the inputs of a test, from a table, because drawing new ones
 * took most of the time of some tests. Its length is a prime, so that rows are not alike. */
#ifndef AF_TEST_NORMAL_H
#define AF_TEST_NORMAL_H

#include "base/rng.h"

static inline double normal(uint64_t stream, uint64_t i)
{
    enum { DRAWN = 65521 };
    static double drawn[DRAWN];
    static bool ready;
    for (uint64_t k = 0; !ready && k < DRAWN; k++)
        drawn[k] = af_rng_normal(11, 0, k);
    ready = true;
    return drawn[(i + stream * 10007) % DRAWN];
}

#endif
