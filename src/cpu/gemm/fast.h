/* fast.h - the leaf loops of the fast CPU kernels.
 *
 * The files of this folder are compiled once for each instruction set (cmake/cpu.cmake); each
 * build gives one table of functions, and af_fast_get picks the best one this machine runs.
 * Everything above (threads, nodes, shapes) is ordinary code in src/ops/<family>_fast.c. Rows are
 * f32; bf16 is converted at the edges. */
#ifndef AF_FAST_H
#define AF_FAST_H

#include "backend/cpu/cpu.h"

/* A frozen B of a product in the panels its tiles read, packed once. */
typedef struct af_packed {
    const void *panels;
    int64_t depth; /* k's of a panel, padded */
    af_dtype rows; /* the type of A they are for */
} af_packed;

/* A matrix operand as it lies in memory. */
typedef struct af_operand {
    const void *data; /* f32, bf16 or f16 */
    int64_t ld;       /* elements from row to row of what is stored */
    af_dtype dtype;
    bool trans; /* the stored rows are the columns of the logical matrix */
    /* instead of data: a weight of a block type, its rows of ld elements */
    const af_tensor *weight;
    bool rest; /* the product's own: x - bf16(x), the second half of a split operand */
    const af_packed *packed; /* the same matrix packed, or NULL; B only */
} af_operand;

/* One more product A [M][K] B [K][N] of the same sum. */
typedef struct af_gemm_term {
    int64_t K;
    af_operand a, b;
    bool exact;
} af_gemm_term;

enum { AF_GEMM_TERMS = 3 };

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
    bool away;  /* C is not read again soon */
    bool few;   /* up to AF_THIN_ROWS rows may take the way of fast_thin.c */
    bool exact; /* f32 operands count as they are (to 2^-16 beside a bf16 one), not as bf16 */
    af_kept
        *kept; /* NULL, or what the product before left of its B, and where to say what this did */
    int terms; /* of the same types as the first product's */
    af_gemm_term term[AF_GEMM_TERMS];
} af_gemm;

/* c [M][N] = or += x [M][K] y [K][N] in f32, in the calling thread, of what is in a near cache. */
typedef struct af_plain {
    int64_t M, N, K; /* N: a multiple of AF_PLAIN_COLS */
    const float *x;  /* x[i][k] is at i * row + k * step, one of which is 1 */
    int64_t row, step;
    const float *y; /* y[k][j] is at j / COLS * panel + k * ldy + j % COLS */
    int64_t ldy, panel;
    float *c;
    int64_t ldc;
    bool add;
} af_plain;

#if defined(__aarch64__)
enum { AF_PLAIN_COLS = 16 };
#else
enum { AF_PLAIN_COLS = 32 };
#endif

/* Attention over one sequence and one kv head in bf16, for machines whose tiles are worth a way of
 * their own (attention_tiles.c). */
typedef struct af_attend {
    const uint16_t *q, *k, *v; /* rows of ld; q: the first of `heads` heads side by side */
    int64_t ld, heads, len, E;
    bool causal;
    int window;
    float scale;
    uint16_t *y; /* the result of those heads, rows of ldy */
    const uint16_t *dy;
    int64_t ldy;
    float *lse; /* one for each head, rows of ldl */
    int64_t ldl;
    uint16_t *dq;     /* as q */
    const void *keys; /* from attend_bwd_pack */
    int64_t from, to; /* the queries whose gradients are made: multiples of 64, or the end */
    int64_t key;      /* keys before it are not seen by these; a multiple of 32 */
    float *dk_sums, *dv_sums; /* sums over them from that key on, rows of E padded to 32 */
} af_attend;

/* Keys [from, to) that the query at position i sees. */
static inline void af_attend_visible(const af_attend *a, int64_t i, int64_t *from, int64_t *to)
{
    *from = a->window && i - a->window + 1 > 0 ? i - a->window + 1 : 0;
    *to = a->causal ? i + 1 : a->len;
}

enum { AF_ATTEND_Q = 32 }; /* queries of one of attend's blocks */

/* A product of many rows x with a few columns (adapter_slim.c). */
typedef struct af_slim {
    const void *x; /* [rows][cols], rows of ldx */
    int64_t rows, cols, ldx;
    int64_t n;       /* the few */
    const void *few; /* set by pack or turn: in their room, or where it was */
    int64_t ldf;
    bool half; /* x, y and the g of turn are bf16, else f32 */
    /* rows: y [rows][n] = alpha x B */
    float alpha;
    void *y;
    int64_t ldy;
    /* sums: c [n][cols], or its transpose, = or += g^T x */
    float *c;
    int64_t ldc;
    bool trans, add;
} af_slim;

enum { AF_SLIM_MOST = 64 }; /* columns for which the way in f32 pays */

/* How such products are made. */
typedef struct af_slim_way {
    int64_t rows, cols; /* of one of rows' blocks, of one of sums' */
    int64_t unit, most; /* n is a multiple of one, at most the other */
    int64_t even;       /* cols and ldx are multiples of it */
    /* B [cols][n] (trans: its columns are stored rows), then blocks of rows (room: a thread's) */
    uint64_t (*pack_bytes)(int64_t n, int64_t cols);
    void (*pack)(af_slim *s, void *room, const float *b, int64_t ld, bool trans);
    uint64_t (*rows_bytes)(int64_t cols); /* NULL: no room is needed */
    void (*run_rows)(const af_slim *s, int64_t from, int64_t to, void *room);
    /* g [rows][n], then blocks of columns */
    uint64_t (*turn_bytes)(int64_t n, int64_t rows);
    void (*turn)(af_slim *s, void *room, const void *g, int64_t ld);
    void (*run_sums)(const af_slim *s, int64_t from, int64_t to);
} af_slim_way;

/* The numbers of one Adam step; the differences to 1 are taken in double. */
typedef struct af_adam_row {
    float rate;        /* lr / (1 - beta1^t) */
    float keep;        /* 1 - lr * decay; 1 when the decay is coupled */
    float l2;          /* coupled decay, else 0 */
    float beta1, new1; /* beta1, 1 - beta1 */
    float beta2, new2;
    float eps, root; /* root: 1 / sqrt(1 - beta2^t) */
    float clip;
    bool spent; /* nobody reads the gradient any more: it is not zeroed */
} af_adam_row;

typedef struct af_fast {
    const char *name;
    bool (*usable)(void);
    /* Bytes of workspace a product needs on so many threads. */
    uint64_t (*gemm_work)(int threads);
    /* Products of two f32 matrices have the same bits with all numbers of threads up to this one,
     * and with all above it; every other product with any number. */
    int alike;
    void (*gemm)(const af_gemm *g, af_pool *pool, void *work);
    /* Whether products with rows of this type gain enough from a B [K][N] packed once to be worth
     * the memory; its bytes (0: it cannot be), and the packing: `to` is 64-byte aligned, its
     * description comes back. The results are the same to the last bit. */
    bool (*packs_once)(af_dtype rows);
    uint64_t (*packed_bytes)(af_dtype rows, int64_t N, int64_t K);
    af_packed (*pack_once)(const af_operand *b, af_dtype rows, int64_t N, int64_t K, void *to,
                           af_pool *pool, void *work);
    /* rows */
    void (*to_f32)(float *dst, const uint16_t *bf16, int64_t n);
    void (*to_bf16)(uint16_t *dst, const float *src, int64_t n);
    float (*dot)(const float *a, const float *b, int64_t n);
    float (*sum_squares)(const float *x, int64_t n);
    void (*add)(float *y, const float *a, const float *b, int64_t n);
    void (*mul)(float *y, const float *a, const float *b, int64_t n);
    void (*axpy)(float *y, float alpha, const float *x, int64_t n);
    void (*scale)(float *y, float alpha, const float *x, int64_t n);
    /* y = x * r * (w + plus) */
    void (*norm)(float *y, const float *x, const float *w, float plus, float r, int64_t n);
    /* dx = r * (dy*(w+plus) - x * c) (+ d), with c given */
    void (*norm_bwd)(float *dx, const float *x, const float *w, float plus, const float *dy,
                     const float *d, float r, float c, int64_t n);
    /* sum of x*dy*(w+plus) */
    float (*norm_dot)(const float *x, const float *w, float plus, const float *dy, int64_t n);
    /* s += dy * x * r */
    void (*norm_dw)(float *s, const float *x, const float *dy, float r, int64_t n);
    /* act(gate) * up, and its gradient; act as af_act */
    void (*glu)(float *y, const float *gate, const float *up, af_act act, int64_t n);
    void (*glu_bwd)(float *dgate, float *dup, const float *gate, const float *up, const float *dy,
                    af_act act, int64_t n);
    /* rotates pairs (x[i], x[i+half]) */
    void (*rotate)(float *y, const float *x, const float *cos, const float *sin, int64_t half);
    /* y [E] += sum of p[j] * row j of b (f32 or bf16), j < n */
    void (*weigh)(float *y, const float *p, const af_operand *b, int64_t n, int64_t E);
    float (*max)(const float *x, int64_t n);
    /* y = exp(x*scale - shift); the sum of y */
    float (*exp_sum)(float *y, const float *x, float scale, float shift, int64_t n);
    /* y = x * factor - minus, rounded to bf16; y may be the beginning of x */
    void (*scale_half)(uint16_t *y, const float *x, float factor, float minus, int64_t n);
    /* y = cap * tanh(x / cap) */
    void (*softcap)(float *y, const float *x, float cap, int64_t n);
    /* ds = p (dp - delta) factor, times 1 - (s/cap)^2 with a cap (s: the capped scores) */
    void (*softmax_bwd)(float *ds, const float *p, const float *dp, const float *s, float delta,
                        float factor, float cap, int64_t n);
    /* one row of Adam; g is zeroed, unless it is spent */
    void (*adam)(float *w, float *g, float *m, float *v, const af_adam_row *k, int64_t n);
    /* NULL where packing first is faster. */
    void (*plain)(const af_plain *g);
    /* NULL where there is no such way. Bytes of work for sequences up to len; keys and values into
     * it; then blocks [from, to) of the queries. The backward: bytes of the packed keys of a head,
     * and the packing of keys [from, to), multiples of 32 or the end; then its work. */
    uint64_t (*attend_work)(int64_t len, int64_t E);
    void (*attend_pack)(const af_attend *a, void *work);
    void (*attend)(const af_attend *a, int64_t from, int64_t to, void *work);
    uint64_t (*attend_bwd_keys)(int64_t len, int64_t E);
    void (*attend_bwd_pack)(const af_attend *a, int64_t from, int64_t to, void *keys);
    uint64_t (*attend_bwd_work)(int64_t E);
    void (*attend_bwd)(const af_attend *a, void *work);
    /* For rows of f32, and of bf16 (NULL where the packed product is the better way). */
    const af_slim_way *slim, *slim_half;
} af_fast;

/* The best table for this machine; never NULL. */
const af_fast *af_fast_get(void);
/* Tests: the i-th table that this machine runs, best first; NULL after the last. */
const af_fast *af_fast_at(int i);
#endif
