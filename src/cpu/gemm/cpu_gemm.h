/* cpu_gemm.h - the matrix multiplications of the CPU: descriptors and what a caller may know.
 *
 *   af_gemm       C = alpha (A B + more terms) + bias through packed panels (gemm_loop.c), or, for
 *                 a few rows, through dot products (gemm_skinny.c)
 *   af_lowrank    one side has a few columns, the other is read once, in place (gemm_lowrank.c)
 *   af_gemm_small f32 blocks in a near cache, nothing packed (gemm_small.c) */
#ifndef AF_CPU_GEMM_H
#define AF_CPU_GEMM_H

#include "base/pool.h"
#include "tensor/dtype.h"

/* A frozen B in the panels that tiles read, packed once. */
typedef struct af_packed {
    const void *panels;
    int64_t depth; /* k's of a panel, padded */
    af_dtype rows; /* the type of A they are for */
} af_packed;

/* Values [from, from+n) of a weight of a block type. */
typedef void af_decode_row(const void *weight, int64_t from, int64_t n, float *out);

/* A matrix operand as it lies in memory. */
typedef struct af_operand {
    const void *data;
    int64_t ld;     /* elements from stored row to stored row */
    af_dtype dtype; /* f32, bf16, f16; a block type where `decode` is set */
    bool trans;     /* the stored rows are the columns of the logical matrix */
    af_decode_row *decode;
    const void *weight;      /* passed to decode */
    const af_packed *packed; /* the same matrix packed, or NULL; B only */
} af_operand;

static inline bool af_operand_is(const af_operand *o, af_dtype type)
{
    return !o->decode && o->dtype == type;
}

/* One more A [M][K] B [K][N] of the same sum. */
typedef struct af_gemm_term {
    int64_t K;
    af_operand a, b;
    bool exact;
} af_gemm_term;

enum { AF_GEMM_TERMS = 3, AF_SKINNY_ROWS = 8 };

/* C [M][N] = alpha * (A [M][K] B [K][N] + the terms) + bias, or added to C. */
typedef struct af_gemm {
    int64_t M, N, K;
    af_operand a, b;
    void *c;
    int64_t ldc;
    af_dtype c_dtype; /* f32 or bf16 */
    float alpha;
    bool add;
    const void *bias; /* [N] or NULL */
    af_dtype bias_dtype;
    bool nontemporal; /* C is not read again soon: it may bypass the caches */
    bool skinny;      /* dot products for any number of rows (gemm_skinny.c) */
    bool rounded;     /* there, A is rounded to 8 bits for a B of blocks where that is faster */
    bool exact;       /* f32 operands count as they are (to 2^-16 with a bf16 one), not as bf16 */
    int terms;        /* of the same types as the first one's */
    af_gemm_term term[AF_GEMM_TERMS];
} af_gemm;

/* c [M][N] = or += x [M][K] y [K][N] in f32, in the calling thread, of what is in a near cache. */
typedef struct af_gemm_small {
    int64_t M, N, K; /* N: a multiple of AF_SMALL_COLS */
    const float *x;  /* x[i][k] is at i * row + k * step, one of which is 1 */
    int64_t row, step;
    const float *y; /* y[k][j] is at j / COLS * panel + k * ldy + j % COLS */
    int64_t ldy, panel;
    float *c;
    int64_t ldc;
    bool add;
} af_gemm_small;

/* A GEMM of many rows x with a few columns. */
typedef struct af_lowrank {
    const void *x; /* [rows][cols], rows of ldx */
    int64_t rows, cols, ldx;
    int64_t rank;
    const void *factor; /* set by pack or transpose: in their buffer, or where it was */
    int64_t ldf;
    bool bf16; /* x, y and the g of transpose are bf16, else f32 */
    /* rows: y [rows][rank] = alpha x B */
    float alpha;
    void *y;
    int64_t ldy;
    /* sums: c [rank][cols], or its transpose, = or += g^T x */
    float *c;
    int64_t ldc;
    bool trans, add;
} af_lowrank;

enum { AF_LOWRANK_MAX = 64 }; /* the largest rank for which the vector version pays */

typedef struct af_lowrank_kernels {
    int64_t rows, cols;     /* of one block of run_rows, of one of run_sums */
    int64_t unit, rank_max; /* ranks are multiples of one, at most the other */
    int64_t even;           /* cols and ldx are multiples of it */
    /* B [cols][rank] (trans: its columns are stored rows), then blocks of rows */
    uint64_t (*pack_bytes)(int64_t rank, int64_t cols);
    void (*pack)(af_lowrank *s, void *buffer, const float *b, int64_t ld, bool trans);
    uint64_t (*rows_bytes)(int64_t cols); /* per-thread buffer of run_rows; NULL: none */
    void (*run_rows)(const af_lowrank *s, int64_t from, int64_t to, void *buffer);
    /* g [rows][rank], then blocks of columns */
    uint64_t (*transpose_bytes)(int64_t rank, int64_t rows);
    void (*transpose)(af_lowrank *s, void *buffer, const void *g, int64_t ld);
    void (*run_sums)(const af_lowrank *s, int64_t from, int64_t to);
} af_lowrank_kernels;
#endif
