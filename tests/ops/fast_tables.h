/* fast_tables.h - the tables of CPU kernels that a test runs on. */
#ifndef AF_TEST_FAST_TABLES_H
#define AF_TEST_FAST_TABLES_H

#include "cpu/cpu_kernels.h"

#include <string.h>

/* The i-th table of this machine with code of its own outside of block formats, or NULL. */
static inline const af_fast *own_table(int i)
{
    const af_fast *f;
    for (int t = 0; (f = af_fast_at(t)); t++)
        if (!f->same && i-- == 0)
            return f;
    return NULL;
}

/* Where sums are made in one of two forms, those of run i; their bits must be the same. */
static inline void choose_form(const af_fast *f, size_t i)
{
    if (f->sums_at_once)
        f->sums_at_once(i % 2 ? 2 : 4);
}
#endif
