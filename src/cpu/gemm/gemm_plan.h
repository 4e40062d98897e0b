/* gemm_plan.h - how a GEMM is cut: a pure function of shapes, types, threads and the constants of a
 * machine. Nothing here reads a value, so that every rule is tested without multiplying.
 *
 * Cuts of K decide the order of a sum and never depend on the number of threads; cuts of M and N
 * may. The one exception is the choice of the kernel above `planes_threads` (decision 0018). */
#ifndef AF_GEMM_PLAN_H
#define AF_GEMM_PLAN_H

#include "cpu/gemm/cpu_gemm.h"

/* Which micro-kernel computes the sums. */
typedef enum af_gemm_kind {
    AF_GEMM_F32,
    AF_GEMM_BF16,
    AF_GEMM_PLANES, /* f32 rows as three bf16 planes on a bf16 unit (decision 0018) */
    AF_GEMM_KINDS,
} af_gemm_kind;

enum { AF_GEMM_GROUP = 8, AF_GEMM_PLANES_A = 3, AF_GEMM_NEAR = 16384 };

/* The constants of one instruction set; gemm_machine.c has the table. */
typedef struct af_gemm_machine {
    struct {
        int mr, nr; /* rows and columns of the register tile; mr 0: there is no such kernel */
        int kr;     /* k's are padded to a multiple of it */
        int kc;     /* k's of a step */
        int group;  /* steps whose panels are packed together, at most */
        int strip;  /* panels of B that are multiplied before the next ones */
    } tile[AF_GEMM_KINDS];
    int64_t a_bytes;                    /* of packed A: most of a second-level cache */
    int64_t b_bytes;                    /* of packed B, per thread */
    int64_t scratch_rows, scratch_cols; /* f32 sums of a bf16 C between steps of K */
    int64_t thread_bytes;               /* a thread's own rows of A and sums */
    int64_t pack_floats;                /* a thread's buffer for packing */
    bool rows_in_place;                 /* vector tiles read rows of A where they lie */
    /* matrix tiles that read A where it lies: k's of a step then, and bytes between rows that meet
     * in the cache; 0: A is always packed */
    int kc_in_place, alias;
    int planes_min;     /* fewer columns or k's leave most of a matrix tile empty */
    int planes_threads; /* f32 x f32 on more threads stays on the vector unit */
} af_gemm_machine;

extern const af_gemm_machine af_gemm_machine_portable, af_gemm_machine_sse2, af_gemm_machine_avx2,
    af_gemm_machine_avx512, af_gemm_machine_avx512bf16, af_gemm_machine_amx, af_gemm_machine_neon,
    af_gemm_machine_neondot, af_gemm_machine_neonbf16;

typedef struct af_gemm_plan {
    af_gemm_kind kind;
    int64_t total;    /* k's of all terms, padded */
    int64_t packed_k; /* of them, those whose rows of A must be packed */
    int64_t kc;       /* k's of a step */
    int64_t group;    /* steps that are packed together */
    int64_t mc, nc;   /* block of C */
    int64_t strip;    /* panels of B that are multiplied before the next ones */
    bool all_k;       /* one group is all of K: packed panels serve several blocks */
    bool staged;      /* sums of a bf16 C wait in f32 between steps */
    bool own_rows;    /* threads pack rows of A tile by tile, interleaved with multiplying */
} af_gemm_plan;

/* How the multiplications of one block are dealt to threads. */
typedef struct af_gemm_cut {
    int64_t pieces;        /* vector kernels: of the rows */
    int64_t strips, parts; /* matrix kernels: strips of panels, parts of a strip */
} af_gemm_cut;

af_gemm_plan af_gemm_plan_make(const af_gemm *g, int threads, const af_gemm_machine *m);
af_gemm_cut af_gemm_plan_cut(const af_gemm_plan *p, int64_t rows, int64_t cols, int threads,
                             const af_gemm_machine *m);
/* Bytes for the packed panels of all threads, and for everything. */
int64_t af_gemm_panel_bytes(const af_gemm_machine *m, int threads);
uint64_t af_gemm_work_bytes(const af_gemm_machine *m, int threads);
/* The kernel for rows of A of this type, whatever the shape. */
af_gemm_kind af_gemm_kind_for(af_dtype rows, const af_gemm_machine *m);

static inline int64_t af_ceil_div(int64_t size, int64_t part) { return (size + part - 1) / part; }

/* `most` or less, so that the parts of `size` are alike and multiples of `unit`. */
static inline int64_t af_even_part(int64_t size, int64_t most, int64_t unit)
{
    return af_ceil_div(af_ceil_div(size, af_ceil_div(size, most)), unit) * unit;
}

static inline af_gemm_term af_gemm_term_at(const af_gemm *g, int i)
{
    return i == 0 ? (af_gemm_term){g->K, g->a, g->b, g->exact} : g->term[i - 1];
}

/* Bytes of a packed value, and the planes it is split into. */
static inline int64_t af_value_bytes(af_gemm_kind k) { return k == AF_GEMM_F32 ? 4 : 2; }
static inline int af_planes_a(af_gemm_kind k) { return k == AF_GEMM_PLANES ? AF_GEMM_PLANES_A : 1; }
static inline int af_planes_b(af_gemm_kind k, const af_operand *b)
{
    return k == AF_GEMM_PLANES && !af_operand_is(b, AF_DTYPE_BF16) ? AF_GEMM_PLANES_A : 1;
}

/* An f32 B with a bf16 A that must not be rounded is taken as two bf16 numbers. */
static inline bool af_gemm_is_split(af_gemm_kind k, const af_gemm_term *t)
{
    return k == AF_GEMM_BF16 && t->exact && !af_operand_is(&t->b, AF_DTYPE_BF16);
}

/* Whether B's panels of this term are there already. */
static inline bool af_gemm_is_packed(af_gemm_kind k, const af_gemm_term *t,
                                     const af_gemm_machine *m)
{
    return k != AF_GEMM_PLANES && t->b.packed && !af_gemm_is_split(k, t) &&
           af_gemm_kind_for(t->b.packed->rows, m) == k;
}

/* Whether tiles of these rows are read where they lie: rows of a vector tile's own type that are at
 * most AF_GEMM_NEAR values apart (those of logits are slow to fetch), bf16 ones an even number; by
 * matrix kernels whole tiles, unless their rows fall on few sets of the cache. */
static inline bool af_gemm_in_place(af_gemm_kind k, const af_gemm_term *t, const af_gemm_machine *m)
{
    if (t->a.trans || t->K % m->tile[k].kr != 0)
        return false;
    const bool near = m->rows_in_place && t->a.ld <= AF_GEMM_NEAR;
    if (k == AF_GEMM_F32)
        return near && af_operand_is(&t->a, AF_DTYPE_F32);
    return k == AF_GEMM_BF16 && af_operand_is(&t->a, AF_DTYPE_BF16) &&
           (m->alias ? t->a.ld * 2 % m->alias != 0 : near && t->a.ld % 2 == 0);
}

/* Whether the last rows, too few for a whole matrix tile, are packed although the others are in
 * place. */
static inline bool af_gemm_packs_edge(const af_gemm_plan *p, const af_gemm_machine *m)
{
    return m->alias && p->kind != AF_GEMM_F32 && p->packed_k < p->total;
}
#endif
