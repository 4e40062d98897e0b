/* case_oft.h - rotations of orthogonal fine-tuning; part of case_list.h. */
#ifndef AF_CASE_OFT_H
#define AF_CASE_OFT_H

#include "backend/cases.h"
#include "ops/oft/oft.h"

/* Two rotations by the same q, so that the second adds to its gradient. */
static inline void oft(rec *r, int64_t rows, int64_t columns, bool single, const af_oft_opts *o)
{
    const int64_t n = o->block, dim[2] = {single ? 1 : columns / n, n * (n - 1) / 2};
    af_tensor *x = act_2(r, rows, columns), *q = param_n(r, 2, dim, -0.1, 0.1);
    for (int i = 0; i < 2; i++)
        x = af_oft_rotate(r->g, x, af_oft_blocks(r->g, q, o));
    finish(r, x);
}
static void case_oft(rec *r) { oft(r, 70, 96, false, &(af_oft_opts){.block = 32, .terms = 5}); }
static void case_oft_exact(rec *r)
{
    oft(r, 9, 60, false, &(af_oft_opts){.block = 12, .exact = true});
}
static void case_oft_single(rec *r)
{
    oft(r, 33, 40, true, &(af_oft_opts){.block = 8, .terms = 4});
}
/* Blocks of more than one tile, with columns left over. */
static void case_oft_wide(rec *r)
{
    oft(r, 41, 150, false, &(af_oft_opts){.block = 75, .terms = 6});
}
/* Gradients from several parts of the rows, the last one short. */
static void case_oft_rows(rec *r)
{
    oft(r, 300, 64, false, &(af_oft_opts){.block = 32, .terms = 5});
}
static void case_oft_single_rows(rec *r)
{
    oft(r, 300, 40, true, &(af_oft_opts){.block = 8, .terms = 4});
}
#endif
