/* amx_attention.h - what both directions of af_attention_amx share, and the backward half of it.
 *
 * Every operand lies in tiles of 32 x 32 values. Those of bf16 have one plane and those of f32
 * three (amx_split.h), which follow one another; of two such tiles six products are made. */
#ifndef AF_AMX_ATTENTION_H
#define AF_AMX_ATTENTION_H

#include "cpu/cpu_kernels.h"
#include "cpu/gemm/amx/amx.h"

enum { AF_ATTEND_TILE = 1024 }; /* values */

static inline int64_t af_attend_pad(int64_t n) { return (n + 31) / 32 * 32; }

/* Value `at` of rows of a's type. */
static inline const void *af_attend_at(const af_attend *a, const void *x, int64_t at)
{
    return (const uint8_t *)x + at * (a->planes == 1 ? 2 : 4);
}

/* ---- packing: 32 rows of E values, [E/32][planes][AF_ATTEND_TILE] ---- */

/* Rows [row, row+32) of those that end before `end`; the last one again where there are not so
 * many: what they become meets zeros. */
void af_attend_rows(const af_attend *a, const void *h[32], const void *x, int64_t ld, int64_t row,
                    int64_t end);
/* Tiles of A: the rows as they are, and turned (E values by 32 rows). */
void af_attend_pack_rows(const af_attend *a, uint16_t *to, const void *const h[32]);
void af_attend_pack_turned(const af_attend *a, uint16_t *to, const void *const h[32]);
/* Tiles of B: the rows as its columns (k: E values), and as its rows (k: the rows). */
void af_attend_pack_columns(const af_attend *a, uint16_t *to, const void *const h[32]);
void af_attend_pack_pairs(const af_attend *a, uint16_t *to, const void *const h[32]);

/* The first `left` of 32 values of a row, in its type. */
AF_INLINE void af_attend_put(const af_attend *a, void *to, __m512 low, __m512 high, int64_t left)
{
    const __mmask32 mask = af_amx_first(left);
    if (a->planes == 1) {
        _mm512_mask_storeu_epi16(to, mask, af_amx_round(low, high));
        return;
    }
    _mm512_mask_storeu_ps(to, (__mmask16)mask, low);
    _mm512_mask_storeu_ps((float *)to + 16, (__mmask16)(mask >> 16), high);
}

/* ---- A [32][32 steps] B [32 steps][32] ---- */

typedef struct af_attend_product {
    const void *a, *b;
    int64_t step_a, step_b, steps; /* bytes from 32 values of k to the next */
} af_attend_product;

AF_INLINE void af_attend_half(float *c, int64_t ldc, const af_attend_product *p, int half, bool add)
{
    const uint8_t *x = (const uint8_t *)p->a + half * 1024, *y = p->b;
    const int64_t line = 64;
    if (add)
        af_amx_load_two(c, ldc);
    else
        af_amx_zero_two();
    for (int64_t i = 0; i < p->steps; i++, x += p->step_a, y += p->step_b) {
        AF_AMX_LOAD(3, y, line);
        AF_AMX_LOAD(2, x, line);
        AF_AMX_LOAD(4, y + 1024, line);
        af_amx_multiply_two();
    }
    af_amx_store_two(c, ldc);
}

/* Of bf16: c [32][32] = or += the product, its sums two and two or four at once (af_amx_turns). */
AF_INLINE void af_attend_bf16(float *c, int64_t ldc, const af_attend_product *p, bool two, bool add)
{
    const uint8_t *x = p->a, *y = p->b;
    const int64_t line = 64;
    if (two) {
        af_amx_begin_two();
        af_attend_half(c, ldc, p, 0, add);
        af_attend_half(c + 16 * ldc, ldc, p, 1, add);
        return;
    }
    if (add)
        af_amx_load(c, ldc);
    else
        af_amx_zero();
    for (int64_t i = 0; i < p->steps; i++, x += p->step_a, y += p->step_b) {
        AF_AMX_LOAD(6, y, line);
        AF_AMX_LOAD(4, x, line);
        AF_AMX_LOAD(7, y + 1024, line);
        AF_AMX_LOAD(5, x + 1024, line);
        af_amx_multiply();
    }
    af_amx_store(c, ldc);
}

/* Rows for the vector unit, which it does a few at a time between the tile instructions of planes
 * while these are at work. */
typedef struct af_attend_work {
    void (*some)(void *arg, int64_t from, int64_t to);
    void *arg;
    int64_t rows, done;
    int64_t groups, due; /* of four multiplications that there will be; due: rows times groups */
} af_attend_work;
/* Rows to be done during `steps` times 32 values of k. */
af_attend_work af_attend_work_of(int64_t rows, int64_t steps,
                                 void (*some)(void *arg, int64_t from, int64_t to), void *arg);
void af_attend_finish(af_attend_work *w);

/* Of planes: c [32][32] = the product. Its sums are always two and two: these products are short,
 * and four at once gain 3 % at most on an idle core. w: or NULL. */
void af_attend_planes(float *c, int64_t ldc, const af_attend_product *p, af_attend_work *w);

/* ---- the backward ---- */
uint64_t af_attend_bwd_keys(int64_t len, int64_t E, int planes);
void af_attend_bwd_pack(const af_attend *a, int64_t from, int64_t to, void *keys);
uint64_t af_attend_bwd_work(int64_t E, int planes);
void af_attend_bwd(const af_attend *a, void *work);
#endif
