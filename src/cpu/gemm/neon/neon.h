/* neon.h - what the assembly tiles of NEON share. */
#ifndef AF_NEON_H
#define AF_NEON_H

#include "cpu/gemm/gemm_job.h"

#define AF_ALL_V                                                                                   \
    "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", \
        "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", \
        "v28", "v29", "v30", "v31"
#define ZERO(r) "movi v" #r ".4s, #0\n"
#define ZERO8(a, b, c, d, e, f, g, h)                                                              \
    ZERO(a) ZERO(b) ZERO(c) ZERO(d) ZERO(e) ZERO(f) ZERO(g) ZERO(h)
#define ZERO_ALL                                                                                   \
    ZERO8(8, 9, 10, 11, 12, 13, 14, 15)                                                            \
    ZERO8(16, 17, 18, 19, 20, 21, 22, 23) ZERO8(24, 25, 26, 27, 28, 29, 30, 31)
#endif
