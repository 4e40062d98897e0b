/* gemm_job.h - one GEMM in progress: what the loop (gemm_loop.c), the kernels and the packing
 * share. Internal to src/cpu/gemm; compiled once per instruction set. */
#ifndef AF_GEMM_JOB_H
#define AF_GEMM_JOB_H

#include "cpu/gemm/gemm_plan.h"
#include "cpu/isa/isa.h"

enum { NR = VL * NV, KR = 4, AF_LINE = 64 }; /* KR: 32-bit units of k at once */
enum {
    AF_GEMM_SEGMENTS = 2 * (1 + AF_GEMM_TERMS), /* at most this many per step */
    AF_GEMM_TILE = 1024,                        /* sums of the largest tile */
    AF_PACK_K = 1088,                           /* k's, and */
    AF_PACK_LINES = 768,                        /* lines, that are packed in one call at most */
};

/* ---- packing (gemm_pack.c, amx_pack.c, neon_pack.c) ---- */

/* Where an operand's lines go: panels of `width` lines with `depth` k's each, `at` k's from the
 * start. An f32 panel is [depth][width]; the bf16 ones are described by their kernels. */
typedef struct af_panels {
    void *to;
    int width;
    bool b; /* of B, else of A */
    int64_t depth, at;
    int planes;    /* of a value: depth and at count each of them */
    bool residual; /* x - bf16(x), the second half of a split operand, instead of bf16(x) */
} af_panels;

/* Lines [line, line+lines) and k [k0, k0+kc) of an operand, kc padded with zeros to a multiple of
 * the kernel's kr, missing lines zero. `along`: the stored rows are the lines (k runs inside a
 * row), else they are the k's. buf: the machine's pack_floats of scratch. */
typedef void af_gemm_pack(const af_panels *p, const af_operand *o, bool along, int64_t line,
                          int64_t lines, int64_t k0, int64_t kc, float *buf);
af_gemm_pack AF_ISA_NAME(af_pack_f32), AF_ISA_NAME(af_pack_pairs);
/* Rounds to nearest even. */
void AF_ISA_NAME(af_bf16_down)(uint16_t *dst, const float *src, int64_t n);
/* Stored row `r`, columns [from, from+n): as f32, the matrix itself or buf; as bf16, the matrix
 * itself or `half` through buf. */
const float *AF_ISA_NAME(af_stored_row)(const af_operand *o, int64_t r, int64_t from, int64_t n,
                                        float *buf);
const uint16_t *AF_ISA_NAME(af_stored_row_bf16)(const af_operand *o, bool residual, int64_t r,
                                                int64_t from, int64_t n, float *buf,
                                                uint16_t *half);

/* ---- the GEMM in progress ---- */

/* k's [k, k+kc) of one term: at `at` in the step's sum and at_a, at_b in its packed panels. */
typedef struct af_gemm_segment {
    const af_operand *a, *b;
    int64_t k, kc, at, at_a, at_b;
    int planes;    /* of B */
    bool residual; /* the second half of a split term */
    bool in_place; /* rows of A are read where they lie; by matrix kernels those of whole tiles */
    bool packed;   /* the panels of B are there already */
} af_gemm_segment;

/* Up to kc k's of all terms. */
typedef struct af_gemm_step {
    af_gemm_segment segment[AF_GEMM_SEGMENTS];
    int segments;
    int64_t depth, depth_a, depth_b; /* padded k's; values per line packed for it */
    uint8_t *a, *b;                  /* packed panels */
    bool first, last;
} af_gemm_step;

typedef struct af_gemm_job {
    const af_gemm *g;
    const struct af_gemm_kernel *kernel;
    const af_gemm_machine *machine;
    af_gemm_plan plan;
    af_gemm_cut cut;
    int threads;
    uint8_t *edge;          /* a last part of a tile of A whose other tiles are in place, or NULL */
    uint8_t *memory;        /* packed panels */
    uint8_t *thread_memory; /* per thread: own rows and sums, then the buffer of packing */
    float *scratch;         /* [scratch_rows][scratch_cols]: staged sums, tile by tile */
    int64_t m, rows, n, cols; /* the block of C */
    int64_t tiles, panels;    /* of its rows, of its columns */
    af_gemm_step step[AF_GEMM_GROUP];
    int steps;
    bool pack_a, pack_b; /* else the panels are there from the block before */
} af_gemm_job;

/* Memory that will be read next, fetched a little at a time. */
typedef struct af_prefetch {
    const uint8_t *at;
    int64_t bytes, lines; /* lines: at a time */
} af_prefetch;
static inline void af_prefetch_some(af_prefetch *p, int64_t lines)
{
    for (; lines > 0 && p->bytes > 0; lines--, p->at += AF_LINE, p->bytes -= AF_LINE)
        __builtin_prefetch(p->at, 0, 2);
}
/* Its next lines, for one tile to fetch. */
static inline af_prefetch af_prefetch_take(af_prefetch *p)
{
    const int64_t bytes = AF_MAX(AF_MIN(p->lines * AF_LINE, p->bytes), INT64_C(0));
    const af_prefetch some = {p->at, bytes, p->lines};
    if (bytes > 0) { /* else `at` may be NULL */
        p->at += bytes;
        p->bytes -= bytes;
    }
    return some;
}

typedef enum af_tile_mode {
    AF_TILE_SET,      /* c = a b */
    AF_TILE_CONTINUE, /* c = c + a b, in the order of k */
    AF_TILE_ADD,      /* c = c + (a b) */
} af_tile_mode;
/* Where the sums are rounded to instead of c. */
typedef struct af_tile_bf16 {
    uint16_t *to;
    int64_t ld;
} af_tile_bf16;
typedef void af_gemm_tile_fn(int64_t kc, const void *a, const void *b, float *c, int64_t ldc,
                             af_tile_mode mode, const af_tile_bf16 *rounded);
/* kc terms of a sum: a panel of A, or (ld > 0) rows where they lie, and a panel of B. */
typedef struct af_tile_part {
    int64_t kc;
    const void *a;
    int64_t ld;
    const void *b;
} af_tile_part;
/* All parts of a sum at once. Where `rows` is less than mr, no other rows are read or written.
 * next: what to fetch for later tiles, as far as the tile does. */
typedef void af_gemm_parts_fn(const af_tile_part *part, int parts, int64_t rows, float *c,
                              int64_t ldc, af_tile_mode mode, af_prefetch *next);

/* A micro-kernel. Those with a tile run in the macro-kernel of gemm_loop.c; `multiply` replaces
 * that: items [from, to) of `items`, whose meaning is the kernel's own. */
typedef struct af_gemm_kernel {
    int mr, nr, kr;
    af_gemm_pack *pack;
    af_gemm_tile_fn *tile;
    af_gemm_parts_fn *tile_parts; /* instead of tile */
    bool rounds;                  /* the tile takes an af_tile_bf16 */
    int64_t (*items)(const af_gemm_job *j);
    void (*multiply)(const af_gemm_job *j, int64_t from, int64_t to, int thread);
} af_gemm_kernel;
extern const af_gemm_kernel AF_ISA_NAME(af_gemm_f32), AF_ISA_NAME(af_gemm_bf16),
    AF_ISA_NAME(af_gemm_planes);

static inline int64_t af_gemm_pad(const af_gemm_job *j, int64_t k)
{
    return af_ceil_div(k, j->kernel->kr) * j->kernel->kr;
}
static inline uint8_t *af_gemm_own(const af_gemm_job *j, int thread)
{
    const af_gemm_machine *m = j->machine;
    return j->thread_memory + thread * (m->thread_bytes + m->pack_floats * (int64_t)sizeof(float));
}
/* The panel of B of a segment, for the block's column c. */
static inline const uint8_t *af_gemm_panel(const af_gemm_job *j, const af_gemm_step *s,
                                           const af_gemm_segment *q, int64_t c)
{
    const int64_t size = af_value_bytes(j->plan.kind);
    if (!q->packed)
        return s->b + (c * s->depth_b + q->at_b * j->kernel->nr) * size;
    return (const uint8_t *)q->b->packed->panels +
           ((j->n + c) * q->b->packed->depth + q->k * q->planes * j->kernel->nr) * size;
}

/* Packs in pieces that the buffer takes. */
void AF_ISA_NAME(af_gemm_pack_part)(const af_gemm_job *j, const af_panels *p, const af_operand *o,
                                    int64_t line, int64_t lines, int64_t k, int64_t kc, int thread);

/* The packed panels of B that follow n panels from p of step i: the same of the next step, or the
 * panels after them, up to `end`; for so many tiles to fetch. */
af_prefetch AF_ISA_NAME(af_gemm_next_panels)(const af_gemm_job *j, int i, int64_t p, int64_t n,
                                             int64_t end, int64_t tiles);

/* C = alpha * s (+ C) (+ bias) for a block of sums at m, n (gemm_store.c). An f32 C may be made in
 * several steps: all but the first add. */
void AF_ISA_NAME(af_gemm_store)(const af_gemm *g, const float *s, int64_t lds, int64_t m,
                                int64_t rows, int64_t n, int64_t cols, bool first);

/* ---- what the table of an instruction set holds ---- */
#define AF_GEMM_DECLARE(isa)                                                                       \
    uint64_t AF_ISA_JOIN(af_gemm_work, isa)(int threads);                                          \
    void AF_ISA_JOIN(af_gemm_run, isa)(const af_gemm *g, af_pool *pool, void *work)
AF_GEMM_DECLARE(AF_ISA);
#ifdef AF_ISA_ALSO
AF_GEMM_DECLARE(AF_ISA_ALSO);
#endif
uint64_t AF_ISA_NAME(af_packed_bytes)(af_dtype rows, int64_t N, int64_t K);
af_packed AF_ISA_NAME(af_pack_frozen)(const af_operand *b, af_dtype rows, int64_t N, int64_t K,
                                      void *to, af_pool *pool, void *work);
bool AF_ISA_NAME(af_skinny_serves)(const af_gemm *g);
struct af_block_kernels;
uint64_t AF_ISA_NAME(af_skinny_work)(const struct af_block_kernels *blocks, int threads);
void AF_ISA_NAME(af_skinny_run)(const struct af_block_kernels *blocks, const af_gemm *g,
                                af_pool *pool, void *work);
void AF_ISA_NAME(af_weigh)(float *y, const float *p, const af_operand *b, int64_t n, int64_t E);
void AF_ISA_NAME(af_gemm_small_run)(const af_gemm_small *g);
extern const af_lowrank_kernels AF_ISA_NAME(af_lowrank_vector), AF_ISA_NAME(af_lowrank);
#endif
