/* fast_once.c - a frozen B in the panels that products read, packed once. A panel holds all k's, so
 * that steps of any length read from it, and the panels follow one another. */
#include "cpu/gemm/fast_task.h"

/* With AMX, packing takes a tenth to a quarter of a bf16 product with 512 rows; of a f32 product it
 * takes less, and planes would be one and a half times the weight. */
bool AF_ISA_NAME(af_packs_once)(af_dtype rows)
{
#if defined(AF_ISA_amx)
    return rows == AF_DTYPE_BF16;
#else
    (void)rows;
    return false;
#endif
}

static uint64_t bytes_of(kind of, int64_t N, int64_t K)
{
    const task t = {.kind = of};
    const int64_t w = tile_cols(&t), lines = (N + w - 1) / w * w;
    /* blocks of NS columns are cut like the whole, or it has no panels of its own */
    if (N <= 0 || K <= 0 || (AF_NARROW && N > NS && N % NS > 0 && N % NS < w))
        return 0;
    return (uint64_t)(lines * pad_k(&t, K)) * (uint64_t)value_bytes(&t);
}

uint64_t AF_ISA_NAME(af_packed_bytes)(af_dtype rows, int64_t N, int64_t K)
{
    if (takes_bf16(rows))
        return bytes_of(KIND_BF16, N, K);
    const uint64_t f32 = bytes_of(KIND_F32, N, K);
#if defined(AF_ISA_amx) /* or in planes, as many as there may be */
    return f32 ? AF_MAX(f32, bytes_of(KIND_PLANES, N, K) * AF_PLANES) : 0;
#else
    return f32;
#endif
}

typedef struct whole {
    task t;
    const af_operand *b;
    uint8_t *to;
    int64_t K;
} whole;

static void pack_panels(void *arg, int64_t from, int64_t to, int share)
{
    const whole *w = arg;
    const task *t = &w->t;
    for (int64_t p = from; p < to; p++) {
        const int64_t j = panel_start(t, p);
        const int width = panel_width(t, p);
        const af_panels q = {
            w->to + j * t->depth * value_bytes(t), width, BGB, t->depth, 0, planes_b(t, w->b)};
        AF_ISA_NAME(af_task_pack)
        (t, &q, w->b, w->b->trans, j, AF_MIN((int64_t)width, t->cols - j), 0, w->K, share);
    }
}

af_packed AF_ISA_NAME(af_pack_once)(const af_operand *b, af_dtype rows, int64_t N, int64_t K,
                                    void *to, af_pool *pool, void *work)
{
    whole w = {.t = {.kind = kind_for(rows), .hands = work, .cols = N}, .b = b, .to = to, .K = K};
    w.t.depth = pad_k(&w.t, K) * planes_b(&w.t, b);
    AF_ISA_NAME(af_task_cut)(&w.t, 1);
    af_pool_run(pool, w.t.panels, pack_panels, &w);
    return (af_packed){to, w.t.depth, rows};
}
