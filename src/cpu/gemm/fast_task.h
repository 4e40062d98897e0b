/* fast_task.h - one product on its way: what the files of fast_gemm.c share. */
#ifndef AF_FAST_TASK_H
#define AF_FAST_TASK_H

#include "cpu/isa.h"

enum { TILE = BM * BN > MR *NR ? BM *BN : MR *NR };
enum { A_BYTES = AF_GEMM_A_BYTES, B_BYTES = AF_GEMM_B_BYTES, MS = AF_GEMM_MS, NS = AF_GEMM_NS };

/* k's of one term that lie at `at` in the sum, and so far in the panels that are packed for it. */
typedef struct chunk {
    const af_operand *a, *b;
    int64_t k, kc, at, at_a, at_b;
    bool split, rest; /* a half of a split term; what rounding B to bf16 lost, the second one */
    int planes;       /* of B: 1 but for f32 in planes */
    bool in_place;    /* whole tiles of A are read where they lie */
    bool once;        /* the panels of B are there already */
} chunk;

/* Which tile makes the sums. */
typedef enum kind {
    KIND_F32,
    KIND_BF16,
    KIND_PLANES, /* of bf16, for f32 operands as planes of bf16 */
} kind;

typedef struct task {
    const af_gemm *g;
    uint8_t *edge, *a; /* panels of A: of a last part of a tile in place, of the others */
    uint8_t *b;        /* panels of B that all threads read (fast_team.c), or NULL */
    uint8_t *strips;   /* of B, one of B_BYTES for each thread; they follow the panels of A */
    uint8_t *hands;    /* the rest of what a thread needs, of hand_bytes for each */
    float *scratch;    /* [tiles of MS x NS]: unfinished sums of a bf16 C */
    af_kept kept;      /* by the product before, of the same B */
    kind kind;
    bool own;    /* rows of A are packed tile after tile, beside the products of those before */
    bool staged; /* the sums wait in the scratch */
    bool first, last;         /* this step, of this block of C */
    int64_t m, rows, n, cols; /* the block of C */
    chunk chunk[AF_GEMM_CHUNKS];
    int chunks;
    /* k's of the step, padded; values of a line that are packed for it (planes count each) */
    int64_t depth, depth_a, depth_b;
    int64_t panels, wide; /* panels of columns; how many of them have the full width */
    int64_t pieces;       /* of the block's rows, when there are fewer panels than threads */
} task;

/* What a thread has at hand while it goes through tiles. */
typedef struct hand {
    float sums[2][TILE] __attribute__((aligned(64))); /* of this tile, and of the one before */
    int turn;
    uint8_t *rows;    /* of A for this tile, where a thread packs its own */
    const task *then; /* whose rows from then_row on will follow a strip, where that is known */
    int64_t then_row;
    bool last; /* of the strip's tiles that read these rows */
#if defined(AF_ISA_amx)
    uint8_t *spare; /* for the next rows of planes, which are packed while these are multiplied */
    af_planes_rows next[AF_GEMM_CHUNKS];
    float block[BM * BK] __attribute__((aligned(64))); /* of them */
    float *waiting;                                    /* the sums of a strip between parts */
    af_amx_beside beside;
#endif
} hand;

/* Where one tile lies: row i and column j of the block, and its panel of the strip of B. */
typedef struct spot {
    int64_t i, j;
    const uint8_t *b;
    int width;
    af_tile *tile;
} spot;

static inline bool takes_bf16(af_dtype rows)
{
#if defined(AF_BF16_TILE)
    return rows == AF_DTYPE_BF16;
#else
    (void)rows;
    return false;
#endif
}

/* The kind for rows of this type.
 *
 * f32 rows go to the bf16 unit of AMX: beside a bf16 B that takes three products, beside a f32 one
 * six, which is twice as fast as the vector unit on an idle core and about as fast on one whose
 * other thread is busy (decision 0018). */
static inline kind kind_for(af_dtype rows)
{
    if (takes_bf16(rows))
        return KIND_BF16;
#if defined(AF_ISA_amx)
    return KIND_PLANES;
#else
    return KIND_F32;
#endif
}

static inline int tile_rows(const task *t) { return t->kind != KIND_F32 ? BM : MR; }
static inline int tile_cols(const task *t) { return t->kind != KIND_F32 ? BN : NR; }
static inline int64_t value_bytes(const task *t) { return t->kind != KIND_F32 ? 2 : 4; }
static inline int planes_a(const task *t) { return t->kind == KIND_PLANES ? 3 : 1; }
static inline int planes_b(const task *t, const af_operand *b)
{
#if defined(AF_ISA_amx)
    return t->kind == KIND_PLANES ? AF_ISA_NAME(af_planes_of)(b) : 1;
#else
    (void)t, (void)b;
    return 1;
#endif
}

static inline int64_t pad_k(const task *t, int64_t k)
{
    const int64_t unit = t->kind != KIND_F32 ? BK : KR;
    return (k + unit - 1) / unit * unit;
}

static inline uint64_t hand_bytes(void) { return AF_GEMM_OWN + AF_PACK_BUF * sizeof(float); }
static inline uint8_t *own_rows(const task *t, int share)
{
    return t->hands + (uint64_t)share * hand_bytes();
}
static inline float *pack_buffer(const task *t, int share)
{
    return (float *)(own_rows(t, share) + AF_GEMM_OWN);
}

static inline int panel_width(const task *t, int64_t p)
{
    return p < t->wide ? tile_cols(t) : AF_NARROW;
}
static inline int64_t panel_start(const task *t, int64_t p)
{
    return AF_MIN(p, t->wide) * tile_cols(t) + AF_MAX(p - t->wide, INT64_C(0)) * AF_NARROW;
}

/* Panels of k's [c->k, c->k + c->kc) of a matrix, in pieces that the packing's buffers take. */
void AF_ISA_NAME(af_task_pack)(const task *t, const af_panels *p, const af_operand *o, bool along,
                               int64_t line, int64_t lines, int64_t k, int64_t kc, int share);
/* Cuts the block's columns into panels. */
void AF_ISA_NAME(af_task_cut)(task *t, int threads);

/* `most` or less, so that the parts of `size` are alike and multiples of `unit`. */
static inline int64_t even_part(int64_t size, int64_t most, int64_t unit)
{
    const int64_t parts = (size + most - 1) / most, part = (size + parts - 1) / parts;
    return (part + unit - 1) / unit * unit;
}

/* Where the walk along K stands: in which term, in which half of a split one, at which k. */
typedef struct place {
    int term;
    bool rest;
    int64_t k;
} place;
/* Fills the task's chunks with up to `step` k's; true when they are the last. */
bool AF_ISA_NAME(af_task_step)(task *t, place *at, int64_t step);

typedef af_ahead ahead;
enum { LINE = 64 };
/* A strip of n panels, the first of which is at `first`, with the rows from there to `to`. */
void AF_ISA_NAME(af_task_strip)(const task *t, const spot *first, int64_t n, int64_t to,
                                ahead *next_b, int share, hand *h);

/* ---- fast_team.c ---- */
/* All of a f32 product whose steps are `step` of `total` k's, on several threads. */
void AF_ISA_NAME(af_team_run)(const task *t, af_pool *pool, int64_t step, int64_t total);

/* ---- fast_spot.c ---- */
void AF_ISA_NAME(af_spot_run)(const task *t, const spot *o, hand *h);
/* The first so many of n tiles side by side, where there is a short way for them: how many. */
int64_t AF_ISA_NAME(af_spot_row)(const task *t, const spot *o, int64_t n, hand *h);
void AF_ISA_NAME(af_spot_begin)(const task *t, int share, hand *h);
void AF_ISA_NAME(af_spot_end)(const task *t, hand *h);
/* Of a strip: what is fetched while it is multiplied. */
void AF_ISA_NAME(af_spot_ahead)(const task *t, ahead *next_b, hand *h);
/* A thread's own rows of A from i on; h->then's will be packed while so many tiles are made. */
void AF_ISA_NAME(af_spot_rows)(const task *t, int64_t i, int64_t tiles, int share, hand *h);
#endif
