/* amx_attention_tiles.c - tiles of attention's operands, and their products. */
#include "cpu/rows/amx/amx_attention.h"

enum { TILE = AF_ATTEND_TILE, BYTES = 2 * TILE, LINE = 64 };

/* ---- packing ---- */

void af_attend_rows(const af_attend *a, const void *h[32], const void *x, int64_t ld, int64_t row,
                    int64_t end)
{
    for (int64_t j = 0; j < 32; j++)
        h[j] = af_attend_at(a, x, AF_MIN(row + j, end - 1) * ld);
}

/* The same of bf16. */
typedef struct half_rows {
    const uint16_t *at[32];
} half_rows;

static half_rows halves(const void *const h[32])
{
    half_rows r;
    for (int j = 0; j < 32; j++)
        r.at[j] = h[j];
    return r;
}

void af_attend_pack_rows(const af_attend *a, uint16_t *to, const void *const h[32])
{
    if (a->planes > 1) {
        af_planes_lines(to, h, a->E, false);
        return;
    }
    for (int64_t e = 0; e < a->E; e += 32, to += TILE)
        for (int j = 0; j < 32; j++)
            af_amx_copy(to + j * 32, (const uint16_t *)h[j] + e, a->E - e, 32);
}

void af_attend_pack_turned(const af_attend *a, uint16_t *to, const void *const h[32])
{
    if (a->planes > 1)
        af_planes_pairs(to, h, a->E, true);
    else
        af_amx_columns(to, halves(h).at, a->E, TILE);
}

void af_attend_pack_columns(const af_attend *a, uint16_t *to, const void *const h[32])
{
    if (a->planes > 1) {
        af_planes_lines(to, h, a->E, true);
        return;
    }
    const half_rows r = halves(h);
    af_amx_lines(to, r.at, a->E, af_attend_pad(a->E));
    af_amx_lines(to + TILE / 2, r.at + 16, a->E, af_attend_pad(a->E));
}

void af_attend_pack_pairs(const af_attend *a, uint16_t *to, const void *const h[32])
{
    if (a->planes > 1)
        af_planes_pairs(to, h, a->E, false);
    else
        af_amx_pairs(to, halves(h).at, a->E, TILE);
}

/* ---- products of planes ---- */

enum { GROUPS = 6 }; /* of four multiplications, of 32 values of k */

af_attend_work af_attend_work_of(int64_t rows, int64_t steps,
                                 void (*some)(void *arg, int64_t from, int64_t to), void *arg)
{
    return (af_attend_work){.some = some, .arg = arg, .rows = rows, .groups = GROUPS * steps};
}

static void do_rows(af_attend_work *w, int64_t to)
{
    if (w->done < to)
        w->some(w->arg, w->done, to);
    w->done = to;
}

void af_attend_finish(af_attend_work *w) { do_rows(w, w->rows); }

/* After a group. */
static void multiplied(af_attend_work *w)
{
    int64_t to = w->done;
    if (to == w->rows)
        return;
    for (w->due += w->rows; w->due >= w->groups; w->due -= w->groups)
        to++;
    do_rows(w, AF_MIN(to, w->rows));
}

#define LOAD_A(plane) AF_AMX_LOAD(2, x + (plane)*BYTES, line)
#define LOAD_B(plane)                                                                              \
    AF_AMX_LOAD(3, y + (plane)*BYTES, line);                                                       \
    AF_AMX_LOAD(4, y + (plane)*BYTES + TILE, line)

/* In the order of amx_planes.c: of the six any two neighbours share an operand. */
static void half_of_planes(float *c, int64_t ldc, const af_attend_product *p, int half,
                           af_attend_work *w)
{
    const uint8_t *x = (const uint8_t *)p->a + half * TILE, *y = p->b;
    const int64_t line = LINE;
    af_amx_zero_two();
    for (int64_t i = 0; i < p->steps; i++, x += p->step_a, y += p->step_b) {
        LOAD_B(2);
        LOAD_A(0);
        af_amx_multiply_two();
        LOAD_B(1);
        af_amx_multiply_two();
        multiplied(w);
        LOAD_A(1);
        af_amx_multiply_two();
        LOAD_B(0);
        af_amx_multiply_two();
        multiplied(w);
        LOAD_A(2);
        af_amx_multiply_two();
        LOAD_A(0);
        af_amx_multiply_two();
        multiplied(w);
    }
    af_amx_store_two(c, ldc);
}

void af_attend_planes(float *c, int64_t ldc, const af_attend_product *p, af_attend_work *w)
{
    af_attend_work none = {0};
    af_amx_begin_two();
    half_of_planes(c, ldc, p, 0, w ? w : &none);
    half_of_planes(c + 16 * ldc, ldc, p, 1, w ? w : &none);
}
