/* attention_plain.h - keys and values as af_gemm_small reads them, made once for a kv head.
 *
 * f32 only, where the instruction set has such GEMMs (cpu/gemm/gemm_small.c). The head's keys
 * are padded with zeros to a multiple of AF_SMALL_COLS. */
#ifndef AF_ATTENTION_PLAIN_H
#define AF_ATTENTION_PLAIN_H

#include "ops/attention/attention_fast.h"

enum {
    AF_ATTN_LD = AF_ATTN_K + 16, /* of a block of scores: rows lie on all sets of the cache */
    AF_ATTN_FEW = 24,            /* rows at a time: their scores stay in the first cache */
};

/* Of keys [at, at+n): how many a query at position q sees, or any before it, counted from `at`. */
static inline int64_t af_attn_seen(const af_attn *a, int64_t q, int64_t keys, int64_t at, int64_t n)
{
    int64_t unused, to;
    af_attn_visible(a->n, q, keys, &unused, &to);
    return AF_MAX(AF_MIN(to - at, n), INT64_C(0));
}

static inline bool af_attn_is_plain(const af_node *n)
{
    if (n->op == AF_OP_ATTENTION_CACHED || !af_fast_get()->gemm_small)
        return false;
    const af_tensor *y = n->op == AF_OP_ATTENTION ? n->out[0] : n->in[4]; /* or its gradient */
    return n->in[0]->dtype == AF_DTYPE_F32 && y->dtype == AF_DTYPE_F32 &&
           n->attr.attention.head_dim % AF_SMALL_COLS == 0 && !(n->attr.attention.softcap > 0);
}

static inline int64_t af_attn_padded(int64_t keys)
{
    return (keys + AF_SMALL_COLS - 1) / AF_SMALL_COLS * AF_SMALL_COLS;
}

/* Keys [from, to) of a head (from: a multiple of COLS) as columns: [keys/COLS][E][COLS]. */
static inline void af_attn_columns(const af_attn *a, float *to_at, const float *x, int64_t from,
                                   int64_t to)
{
    for (int64_t i = from; i < to; i += AF_SMALL_COLS) {
        float *p = to_at + i * a->E;
        const int64_t n = AF_MIN(to - i, (int64_t)AF_SMALL_COLS);
        if (n < AF_SMALL_COLS)
            memset(p, 0, (size_t)(AF_SMALL_COLS * a->E) * sizeof *p);
        for (int64_t j = 0; j < n; j++)
            for (int64_t e = 0; e < a->E; e++)
                p[e * AF_SMALL_COLS + j] = x[(i + j) * a->width + e];
    }
}

/* The same as rows in panels, `keys` in all: [E/COLS][keys][COLS]. */
static inline void af_attn_rows(const af_attn *a, float *to_at, const float *x, int64_t from,
                                int64_t to, int64_t keys)
{
    for (int64_t e = 0; e < a->E; e += AF_SMALL_COLS)
        for (int64_t i = from; i < to; i++)
            memcpy(to_at + e * keys + i * AF_SMALL_COLS, x + i * a->width + e,
                   AF_SMALL_COLS * sizeof *x);
}

/* scores [M][LD] of rows x [M][E] with n keys, from `columns` */
static inline void af_plain_scores(const af_attn *a, const float *x, const float *columns,
                                   int64_t M, int64_t n, float *scores)
{
    a->f->gemm_small(&(af_gemm_small){.M = M,
                                      .N = af_attn_padded(n),
                                      .K = a->E,
                                      .x = x,
                                      .row = a->E,
                                      .step = 1,
                                      .y = columns,
                                      .ldy = AF_SMALL_COLS,
                                      .panel = a->E * AF_SMALL_COLS,
                                      .c = scores,
                                      .ldc = AF_ATTN_LD});
}

/* c [M][E] = or += p [M][LD] times n keys, from `rows`, of a head with so many */
static inline void af_plain_weigh(const af_attn *a, const float *p, const float *rows, int64_t M,
                                  int64_t n, int64_t keys, float *c, bool add)
{
    a->f->gemm_small(&(af_gemm_small){.M = M,
                                      .N = a->E,
                                      .K = n,
                                      .x = p,
                                      .row = AF_ATTN_LD,
                                      .step = 1,
                                      .y = rows,
                                      .ldy = AF_SMALL_COLS,
                                      .panel = keys * AF_SMALL_COLS,
                                      .c = c,
                                      .ldc = a->E,
                                      .add = add});
}

/* c [n][E] = or += p [M][LD] transposed, times x [M][E] */
static inline void af_plain_gather(const af_attn *a, const float *p, const float *x, int64_t M,
                                   int64_t n, float *c, bool add)
{
    a->f->gemm_small(&(af_gemm_small){.M = n,
                                      .N = a->E,
                                      .K = M,
                                      .x = p,
                                      .row = 1,
                                      .step = AF_ATTN_LD,
                                      .y = x,
                                      .ldy = a->E,
                                      .panel = AF_SMALL_COLS,
                                      .c = c,
                                      .ldc = a->E,
                                      .add = add});
}
#endif
