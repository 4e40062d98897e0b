/* cpu_kernels.h - the leaf loops of the fast CPU kernels.
 *
 * The files of src/cpu are compiled once per instruction set (cmake/cpu.cmake); each build gives
 * one table of functions, and af_fast_get picks the best one this machine runs. Everything above
 * (nodes, shapes, what runs on which thread) is ordinary code in src/ops. Rows are f32; bf16 is
 * converted at the edges. */
#ifndef AF_CPU_KERNELS_H
#define AF_CPU_KERNELS_H

#include "afinar/graph.h"
#include "cpu/gemm/gemm_plan.h"
#include "cpu/isa/features.h"

/* Attention over one sequence and one kv head in bf16 or f32, for machines with matrix tiles
 * (attention_tiles.c). */
typedef struct af_attend {
    int planes;            /* of bf16, of a value: 1 is bf16, 3 is f32 */
    const void *q, *k, *v; /* rows of ld; q: the first of `heads` heads side by side */
    int64_t ld, heads, len, E;
    bool causal;
    int window;
    float scale;
    void *y; /* the result of those heads, rows of ldy */
    const void *dy;
    int64_t ldy;
    float *lse; /* one for each head, rows of ldl */
    int64_t ldl;
    void *dq;         /* as q */
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

/* Bytes of work for sequences up to len; keys and values into it; then blocks [from, to) of the
 * queries. The backward: bytes of the packed keys of a head, and the packing of keys [from, to),
 * multiples of 32 or the end; then its work. */
typedef struct af_attention_kernels {
    uint64_t (*work)(int64_t len, int64_t E, int planes);
    void (*pack)(const af_attend *a, void *work);
    void (*run)(const af_attend *a, int64_t from, int64_t to, void *work);
    uint64_t (*bwd_keys)(int64_t len, int64_t E, int planes);
    void (*bwd_pack)(const af_attend *a, int64_t from, int64_t to, void *keys);
    uint64_t (*bwd_work)(int64_t E, int planes);
    void (*bwd)(const af_attend *a, void *work);
} af_attention_kernels;
extern const af_attention_kernels af_attention_amx;

/* The numbers of one Adam step; the differences to 1 are taken in double. */
typedef struct af_xielu_row {
    float a, c, beta, eps;
} af_xielu_row;

typedef struct af_adam_row {
    float rate;        /* lr / (1 - beta1^t) */
    float keep;        /* 1 - lr * decay; 1 when the decay is coupled */
    float l2;          /* coupled decay, else 0 */
    float beta1, new1; /* beta1, 1 - beta1 */
    float beta2, new2;
    float eps, root; /* root: 1 / sqrt(1 - beta2^t) */
    float clip;
    bool spent; /* the gradient is not read again: it is not zeroed */
} af_adam_row;

typedef struct af_fast {
    const char *name;
    bool (*usable)(void);
    const struct af_fast *same; /* the table that has everything but GEMMs of blocks, or NULL */
    /* f32 x f32 GEMMs have the same bits with all numbers of threads up to planes_threads, and with
     * all above it; every other GEMM with any number. */
    const af_gemm_machine *machine;
    uint64_t (*gemm_work)(int threads); /* bytes of workspace */
    void (*gemm)(const af_gemm *g, af_pool *pool, void *work);
    bool rounds; /* af_gemm's `rounded` is faster, and makes a difference */
    /* A frozen B [K][N] packed once for rows of A of this type: its bytes (0: it cannot be), and
     * the packing: `to` is 64-byte aligned. Results are the same to the last bit. */
    uint64_t (*packed_bytes)(af_dtype rows, int64_t N, int64_t K);
    af_packed (*pack_frozen)(const af_operand *b, af_dtype rows, int64_t N, int64_t K, void *to,
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
    /* log(1 + exp(x)), and its slope where that is not NULL */
    void (*softplus)(float *y, float *slope, const float *x, int64_t n);
    /* (x > 0 ? a x^2 : c (expm1(min(x, eps)) - x)) + beta x of xielu.c, and dy times its slope */
    void (*xielu)(float *y, const float *x, const af_xielu_row *k, int64_t n);
    void (*xielu_bwd)(float *dx, const float *x, const float *dy, const af_xielu_row *k, int64_t n);
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
    void (*gemm_small)(const af_gemm_small *g); /* NULL where packing first is faster */
    const af_attention_kernels *attention;      /* NULL without matrix tiles */
    const af_lowrank_kernels *lowrank;          /* for rows of f32, */
    const af_lowrank_kernels *lowrank_bf16;     /* of bf16 (NULL where the packed GEMM is faster) */
    void (*sums_at_once)(int n); /* tests: 4 or 2 tiles of sums; 0: what is faster now; or NULL */
} af_fast;

/* Whether GEMMs with rows of this type gain enough from a B packed once to be worth the memory:
 * with AMX, packing takes a tenth to a quarter of a bf16 GEMM with 512 rows. */
static inline bool af_fast_packs_frozen(const af_fast *f, af_dtype rows)
{
    return rows == AF_DTYPE_BF16 && f->machine->alias > 0;
}

/* The best table for this machine; never NULL. */
const af_fast *af_fast_get(void);
/* Tests: the i-th table that this machine runs, best first; NULL after the last. */
const af_fast *af_fast_at(int i);
#endif
