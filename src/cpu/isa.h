/* isa.h - the vector type and the tiles of the instruction set this build is for, and what the
 * files of one build share. */
#ifndef AF_FAST_ISA_H
#define AF_FAST_ISA_H

#include "cpu/gemm/fast.h"

/* NAME(gemm) is gemm_neon, gemm_avx2, ... */
#define AF_ISA_JOIN2(a, b) a##_##b
#define AF_ISA_JOIN(a, b)  AF_ISA_JOIN2(a, b)
#define AF_ISA_NAME(a)     AF_ISA_JOIN(a, AF_ISA)

/* VL floats a vector; the f32 tile is MR rows of NV vectors (MR and NR multiples of 4). */
#if defined(AF_ISA_avx512) || defined(AF_ISA_amx)
enum { VL = 16, MR = 8, NV = 3 };
#elif defined(AF_ISA_avx2)
enum { VL = 8, MR = 4, NV = 3 };
#elif defined(AF_ISA_sse2)
enum { VL = 4, MR = 4, NV = 2 };
#else
enum { VL = 4, MR = 8, NV = 3 };
#endif
enum { NR = VL * NV, KR = 4 }; /* KR: k's of a f32 panel are padded to a multiple of it */

/* The bf16 tile of BM x BN, where there is one: panels are [k/G][lines][G], G being BGA for A and
 * BGB for B, k padded to a multiple of BK. */
#if defined(AF_ISA_neonbf16)
#define AF_BF16_TILE 1
enum { BM = 8, BN = 12, BGA = 4, BGB = 4, BK = 8 };
#else
enum { BM = 32, BN = 32, BGA = 32, BGB = 2, BK = 32 };
#endif
#if defined(AF_ISA_amx)
#define AF_BF16_TILE 1
#endif
/* Where the last columns may go to panels of AF_NARROW lines instead of NR or BN (AMX: NR only). */
#if defined(__ARM_NEON)
enum { AF_NARROW = 8 };
#elif defined(AF_ISA_avx512) || defined(AF_ISA_amx)
enum { AF_NARROW = VL };
#else
enum { AF_NARROW = 0 };
#endif

typedef float vec __attribute__((vector_size(VL * 4), aligned(4), may_alias));

uint64_t AF_ISA_NAME(af_gemm_work)(int threads);
void AF_ISA_NAME(af_gemm_run)(const af_gemm *g, af_pool *pool, void *work);
bool AF_ISA_NAME(af_packs_once)(af_dtype rows);
uint64_t AF_ISA_NAME(af_packed_bytes)(af_dtype rows, int64_t N, int64_t K);
af_packed AF_ISA_NAME(af_pack_once)(const af_operand *b, af_dtype rows, int64_t N, int64_t K,
                                    void *to, af_pool *pool, void *work);

/* ---- fast_pack.c ---- */

/* Where an operand's lines go: panels of `width` lines with `depth` k's each, `at` k's from the
 * start. A f32 panel is [depth][width], a bf16 one [depth/group][width][group]. */
typedef struct af_panels {
    void *to;
    int width, group;
    int64_t depth, at;
    int planes; /* of a value: depth and at count each of them */
} af_panels;

/* Lines [line, line+lines) and k [k0, k0+kc) of an operand, kc padded with zeros to a multiple of
 * KR or BK, missing lines zero. `along`: the stored rows are the lines (k runs inside a row), else
 * they are the k's. buf: AF_PACK_BUF floats of scratch. */
void AF_ISA_NAME(af_pack_f32)(const af_panels *p, const af_operand *o, bool along, int64_t line,
                              int64_t lines, int64_t k0, int64_t kc, float *buf);
void AF_ISA_NAME(af_pack_bf16)(const af_panels *p, const af_operand *o, bool along, int64_t line,
                               int64_t lines, int64_t k0, int64_t kc, float *buf);
/* Rounds to nearest even. */
void AF_ISA_NAME(af_bf16_down)(uint16_t *dst, const float *src, int64_t n);
/* Stored row `r`, columns [from, from+n), as f32: the matrix itself when it is f32, else buf. */
const float *AF_ISA_NAME(af_stored_row)(const af_operand *o, int64_t r, int64_t from, int64_t n,
                                        float *buf);

/* ---- fast_tile.c: the sums of one tile of packed panels, into rows of ldc ---- */
typedef enum af_tile_way {
    AF_TILE_SET,      /* c = a b */
    AF_TILE_CONTINUE, /* c = c + a b, in the order of k */
    AF_TILE_ADD,      /* c = c + (a b) */
} af_tile_way;
/* Where the sums are rounded to instead of c. */
typedef struct af_tile_half {
    uint16_t *to;
    int64_t ld;
} af_tile_half;
typedef void af_tile(int64_t kc, const void *a, const void *b, float *c, int64_t ldc,
                     af_tile_way way, const af_tile_half *half);
/* The tile of MR (or BM) rows for panels of B of this width; whether it can round (not adding). */
af_tile *AF_ISA_NAME(af_tile_for)(bool bf16, int width);
bool AF_ISA_NAME(af_tile_rounds)(bool bf16, int width);
/* Memory that will be read next, fetched a little at a time. */
typedef struct af_ahead {
    const uint8_t *at;
    int64_t rows, bytes, step; /* stored rows, bytes of each to fetch, bytes from row to row */
    int64_t row, column;
    int64_t lines; /* a tile */
} af_ahead;
static inline void af_ahead_fetch(af_ahead *h, int64_t lines)
{
    for (int64_t i = 0; i < lines && h->row < h->rows; i++) {
        __builtin_prefetch(h->at + h->row * h->step + h->column, 0, 2);
        h->column += 64;
        if (h->column >= h->bytes) {
            h->column = 0;
            h->row++;
        }
    }
}
#if defined(AF_ISA_amx)
/* ---- fast_amx.c ---- */
/* k's of one tile's sums: 32 rows of A, packed or as they lie, and a panel of B. */
typedef struct af_amx_span {
    const void *a, *b;
    int64_t row, step; /* of A: bytes from row to row, and from 32 k's to the next */
    int64_t depth;
    int planes; /* of B beside three of A (fast_planes.c), or 0 */
} af_amx_span;
/* Rows of a tile of sums [BM][BN] that are still to be brought to where they go, an even number:
 * rounded (past the caches or not), or as they are and past them, or added to what is there. */
typedef struct af_amx_later {
    const float *from;
    uint16_t *to;
    float *away; /* instead of to; its rows are whole lines of the cache */
    float *onto; /* instead of to */
    int64_t ld, rows;
    bool past; /* the caches, with `to`: its rows are whole lines too */
} af_amx_later;
/* 32 f32 rows of A, or columns where those are its rows, that become planes a little at a time. */
typedef struct af_planes_rows {
    const float *from;
    int64_t ld;
    bool turned; /* stored rows are k's */
    int64_t lines, kc;
    uint16_t *to;
    float *block; /* [32][32], for turned ones */
    int64_t k;    /* how far it is: in this k and the 31 after it, in this row, */
    int row;      /* or in a part of turning the block, which come before: from -AF_TURN_PARTS on */
} af_planes_rows;
enum { AF_TURN_PARTS = 4 };
/* 32 lines of A from stored rows of k's, of bf16, 32 k's at a time. */
typedef struct af_amx_turn {
    const uint16_t *from;
    uint16_t *to;
    int64_t ld, left; /* values from row to row; how many times 32 k's */
} af_amx_turn;
/* What the vector unit does while the other one multiplies, a little after each group of four
 * products. Lines of memory are asked for one by one: the first-level cache waits for sixteen at
 * most, and needs some of these for the tiles. */
typedef struct af_amx_beside {
    int group;          /* of the tile */
    const float *fetch; /* rows of C that will be needed */
    int64_t fetch_ld, fetch_rows;
    af_ahead *ahead;
    int lines; /* of it at once */
    af_amx_later later;
    af_planes_rows *rows; /* the next of A, as many chunks */
    int chunks, each;     /* each: rows of 32 k's at once */
    af_amx_turn turn;     /* the next of a bf16 A, where they must be turned: 32 k's at once */
} af_amx_beside;
/* c [BM][BN] = or += the spans' products; meanwhile what else is to be done. */
void AF_ISA_NAME(af_amx_tile)(const af_amx_span *s, int spans, float *c, int64_t ldc,
                              af_tile_way way, af_amx_beside *w);
void AF_ISA_NAME(af_amx_flush)(af_amx_later *later);
/* Sixteen stored lines into their half of a panel of B. */
void AF_ISA_NAME(af_amx_lines)(uint16_t *p, const uint16_t *const h[16], int64_t kc,
                               int64_t padded);
/* 32 stored rows of k's into panels of B or of A, which are `step` apart. */
void AF_ISA_NAME(af_amx_pairs)(uint16_t *p, const uint16_t *const h[32], int64_t lines,
                               int64_t step);
void AF_ISA_NAME(af_amx_columns)(uint16_t *p, const uint16_t *const h[32], int64_t lines,
                                 int64_t step);
/* All that is left. */
void AF_ISA_NAME(af_amx_turned)(af_amx_turn *t);
/* ---- fast_amx_attention.c and fast_amx_attention_bwd.c ---- */
uint64_t AF_ISA_NAME(af_attend_work)(int64_t len, int64_t E);
void AF_ISA_NAME(af_attend_pack)(const af_attend *a, void *work);
void AF_ISA_NAME(af_attend)(const af_attend *a, int64_t from, int64_t to, void *work);
uint64_t AF_ISA_NAME(af_attend_bwd_keys)(int64_t len, int64_t E);
void AF_ISA_NAME(af_attend_bwd_pack)(const af_attend *a, int64_t from, int64_t to, void *keys);
uint64_t AF_ISA_NAME(af_attend_bwd_work)(int64_t E);
void AF_ISA_NAME(af_attend_bwd)(const af_attend *a, void *work);
/* ---- fast_amx_slim.c ---- */
extern const af_slim_way AF_ISA_NAME(af_slim_tiles);
#endif
#if defined(AF_ISA_amx)
/* ---- fast_planes.c: f32 as bf16 numbers that add up to it ---- */
enum { AF_PLANES = 3 };
/* How many planes hold every value of the operand. */
int AF_ISA_NAME(af_planes_of)(const af_operand *o);
/* The products of one span, added to the sums in the tiles. */
void AF_ISA_NAME(af_planes_span)(const af_amx_span *s, af_amx_beside *w);
/* All that is left of the next rows. */
void AF_ISA_NAME(af_planes_finish)(af_amx_beside *w);
/* As af_pack_bf16, with p->planes of each value: a panel is [depth/32][planes][32 lines][32]. */
void AF_ISA_NAME(af_pack_planes)(const af_panels *p, const af_operand *o, bool along, int64_t line,
                                 int64_t lines, int64_t k0, int64_t kc, float *buf);
#endif
/* Around the bf16 tiles of one thread. */
void AF_ISA_NAME(af_tile_begin)(void);
void AF_ISA_NAME(af_tile_end)(void);

/* ---- fast_thin.c: products of a few rows with a stored-by-columns B (generation) ---- */
bool AF_ISA_NAME(af_thin_serves)(const af_gemm *g);
uint64_t AF_ISA_NAME(af_thin_work)(int threads);
void AF_ISA_NAME(af_thin_run)(const af_gemm *g, af_pool *pool, void *work);
void AF_ISA_NAME(af_weigh)(float *y, const float *p, const af_operand *b, int64_t n, int64_t E);

/* ---- fast_slim.c: products with a few columns; the second for bf16 rows beside a bf16 tile ----
 */
extern const af_slim_way AF_ISA_NAME(af_slim_plain), AF_ISA_NAME(af_slim_forward);

/* ---- fast_plain.c ---- */
void AF_ISA_NAME(af_plain_run)(const af_plain *g);

/* ---- fast_store.c: the way out, C = alpha * s (+ C) (+ bias) for a block of sums at m, n. A f32 C
 * may be made in several steps: all but the first add. ---- */
void AF_ISA_NAME(af_gemm_store)(const af_gemm *g, const float *s, int64_t lds, int64_t m,
                                int64_t rows, int64_t n, int64_t cols, bool first);

enum {
    AF_GEMM_KC = 640,        /* k's of a packed f32 block */
    AF_GEMM_KC_PLANES = 192, /* of one of f32 as planes, whose rows of A shall stay near */
#if defined(AF_ISA_amx)
    AF_GEMM_KC_BF16 = 1088, /* and of a bf16 one */
    AF_PLANES_LEAST = 32,   /* products of fewer columns or k's keep the f32 tile */
    AF_PLANES_THREADS = 8,  /* and those of two f32 matrices on more threads */
    AF_GEMM_MS = 512,       /* rows of the f32 scratch for sums in several steps into a bf16 C */
#else
    AF_GEMM_KC_BF16 = 1088,
    AF_GEMM_MS = 384,
#endif
    AF_GEMM_KC_PLACE = 4096,     /* k's of a bf16 block whose rows of A are not packed */
    AF_GEMM_ALIAS = 4096,        /* rows so many bytes apart meet in the cache */
    AF_GEMM_KC_WIDE = 256,       /* and of wide strips, which take more columns instead */
    AF_GEMM_STRIP = 96,          /* columns of B packed at once */
    AF_GEMM_WIDE = 768,          /* the same where single values cost a block of 256 */
    AF_GEMM_A_BYTES = 704 << 10, /* of a packed block of A: most of a second-level cache */
#if defined(AF_ISA_amx)
    /* of a thread's own rows of A, two tiles of KC_PLANES k's, or of a strip's sums between parts
     */
    AF_GEMM_OWN = 96 << 10,
    AF_GEMM_KC_NEAR = 640, /* k's of a bf16 sum for which rows of A stay in the first-level cache */
#else
    AF_GEMM_OWN = 0,
#endif
#if defined(AF_ISA_amx)
    AF_GEMM_B_BYTES = 1856 << 10, /* of a packed strip of B, at most: most of an L2 of 2 MB */
#else
    AF_GEMM_B_BYTES = 768 << 10, /* the same: WIDE * KC_WIDE floats */
#endif
    AF_GEMM_CHUNKS = 2 * (1 + AF_GEMM_TERMS), /* of k's that one step may be made of */
    AF_GEMM_NS = 768,                         /* columns of that scratch */
    AF_THIN_ROWS = 8,                         /* at most so many rows take the thin way */
#if defined(AF_ISA_amx)
    AF_PACK_BUF = 24576, /* 32 f32 rows of WIDE */
#else
    AF_PACK_BUF = 13312,         /* 1 f32 and 16 bf16 rows of KC_BF16, 1 and 32 bf16 rows of WIDE */
#endif
};
#endif
