/* gemm_cost.c - see gemm_cost.h. */
#include "backend/cuda/gemm_cost.h"

enum {
    INNER = 32, /* of a step, as in gemm_tiles.cu */
    ROW_BYTES = (INNER + 8) * 2,
    OPERAND_BYTES = 2,
    PART_BYTES = 4,
    SPLIT_MAX = 16,
    SPLIT_UNIT = 8, /* values: parts start on 16 bytes */
    GRID_Y_MAX = 65535,
    GRID_Z_MAX = 65535,
    SHARED_CLOCK = 128, /* bytes of shared memory an SM reads or writes per clock */
    JOIN_LAUNCH = 4000, /* clocks of one more launch, before its memory traffic */
    STEP_CLOCKS = 40,   /* of a step besides its work: addresses, the barrier */
    SCHEDULERS = 4,     /* of an SM, each with its tensor core */
};

/* Of the tensor cores' peak, what a warp reaches that has one to itself, and two that share it:
 * loads of fragments and sums that wait for each other are not hidden by a single warp. */
static const double alone = 0.75, shared_by_two = 0.9;
/* Clocks of an SM for each result: a warp stores 16 bytes of eight rows at a time (fitted to the
 * times of an H200, docs/decisions). */
static const double store_clocks = 0.6;

const af_gemm_tile af_gemm_tiles[AF_GEMM_TILES] = {
    {128, 128, 2, 2, 4}, {128, 128, 2, 2, 3}, {128, 64, 2, 2, 3},  {64, 128, 2, 2, 3},
    {64, 64, 2, 2, 4},   {256, 128, 4, 2, 3}, {128, 256, 2, 4, 3}, {32, 128, 1, 4, 4},
    {16, 128, 1, 4, 4},  {128, 32, 4, 1, 4},
};

/* HELD of the kernel. */
static int held(int outer) { return outer < INNER ? INNER * (outer + 8) * 2 : outer * ROW_BYTES; }

int af_gemm_tile_shared(const af_gemm_tile *t) { return t->stages * (held(t->m) + held(t->n)); }

int af_gemm_tile_threads(const af_gemm_tile *t) { return t->warps_m * t->warps_n * 32; }

/* What __launch_bounds__ of the kernel leaves a thread: RESIDENT of gemm_tiles.cu. */
static int registers(const af_gemm_tile *t)
{
    const int threads = af_gemm_tile_threads(t);
    const int fragments = t->m / t->warps_m / 16 * (t->n / t->warps_n / 16);
    const int resident = fragments >= 16 ? 256 / threads : fragments >= 8 ? 3 : 4;
    return AF_MIN(65536 / (threads * resident) / 8 * 8, 255);
}

static int64_t over(int64_t n, int64_t by) { return (n + by - 1) / by; }

int64_t af_gemm_split_bytes(const af_gemm_shape *s, af_gemm_way w)
{
    return w.split > 1 ? w.split * s->M * s->N * PART_BYTES : 0;
}

static int resident(const af_gpu_rates *g, const af_gemm_tile *t)
{
    return af_gpu_resident(g, af_gemm_tile_threads(t), registers(t), af_gemm_tile_shared(t));
}

bool af_gemm_fits(const af_gpu_rates *g, const af_gemm_shape *s, af_gemm_way w, int64_t workspace)
{
    const af_gemm_tile *t = &af_gemm_tiles[w.tile];
    const bool parts = w.split == 1 || (s->batch == 1 && s->K % (w.split * SPLIT_UNIT) == 0 &&
                                        s->M <= workspace / PART_BYTES / w.split / s->N);
    return resident(g, t) > 0 && over(s->M, t->m) <= GRID_Y_MAX && s->batch <= GRID_Z_MAX && parts;
}

/* Clocks of one SM for a step of `blocks` blocks it has at once. */
static double step_cost(const af_gpu_rates *g, const af_gemm_tile *t, int blocks, double busy_sms)
{
    const int warps = t->warps_m * t->warps_n;
    const double all = (double)(blocks * warps) / SCHEDULERS;
    const double reach = all <= 1 ? alone * all : AF_MIN(shared_by_two + 0.02 * (all - 2), 0.96);
    const double mma = 2.0 * t->m * t->n * INNER * blocks / (g->mma * reach);
    /* every warp reads its fragments; what arrives is written once */
    const double fragments = (double)warps * (t->m / t->warps_m + t->n / t->warps_n);
    const double bytes = (double)(t->m + t->n) * INNER * OPERAND_BYTES;
    const double shared = (fragments * INNER * OPERAND_BYTES + bytes) * blocks / SHARED_CLOCK;
    const double l2 = bytes * blocks * busy_sms / g->l2_bytes;
    const double work = AF_MAX(AF_MAX(mma, shared), l2) + STEP_CLOCKS;
    /* what is asked for arrives when (stages - 1.5) steps have passed, or the block waits */
    return AF_MAX(work, g->latency / ((double)t->stages - 1.5));
}

/* Of two things that overlap, though never wholly. */
static double slower(double a, double b) { return AF_MAX(a, b) + 0.1 * AF_MIN(a, b); }

/* Clocks of a wave with `blocks` blocks on each of `busy` SMs. */
static double wave_cost(const af_gpu_rates *g, const af_gemm_tile *t, int64_t steps, int blocks,
                        double busy)
{
    const double results = store_clocks * t->m * t->n * blocks;
    return (double)steps * step_cost(g, t, blocks, busy) + 1.5 * g->latency + results;
}

/* Bytes that device memory gives: each operand once, the second one again for every wave of rows
 * where the level 2 cache does not hold it. */
static double dram_bytes(const af_gpu_rates *g, const af_gemm_tile *t, const af_gemm_shape *s,
                         int wave)
{
    const double rows = (double)over(s->M, t->m), cols = (double)over(s->N, t->n);
    const double a = (double)s->M * (double)s->K * OPERAND_BYTES,
                 b = (double)s->N * (double)s->K * OPERAND_BYTES,
                 c = (double)s->M * (double)s->N * s->c_bytes;
    const double again = b > g->l2_size / 2 ? AF_MIN(rows, AF_MAX(1, rows * cols / wave)) : 1;
    return (a + b * again + c) * s->batch;
}

double af_gemm_cost(const af_gpu_rates *g, const af_gemm_shape *s, af_gemm_way w)
{
    const af_gemm_tile *t = &af_gemm_tiles[w.tile];
    const int most = resident(g, t), wave = most * g->sms;
    const int64_t blocks = over(s->M, t->m) * over(s->N, t->n) * s->batch * w.split;
    const int64_t steps = over(over(s->K, w.split), INNER), full = blocks / wave,
                  rest = blocks % wave;
    double clocks = (double)full * wave_cost(g, t, steps, most, g->sms);
    if (rest) {
        const int each = (int)over(rest, g->sms);
        clocks += wave_cost(g, t, steps, each, (double)AF_MIN(rest, (int64_t)g->sms));
    }
    clocks = slower(clocks, dram_bytes(g, t, s, wave) / g->dram_bytes);
    if (w.split == 1)
        return clocks;
    const double parts = (double)af_gemm_split_bytes(s, w);
    const double cached = g->l2_bytes / 2, /* written and read */
        rate = parts > g->l2_size / 2 ? AF_MIN(g->dram_bytes, cached) : cached;
    return clocks + JOIN_LAUNCH + parts / rate +
           (double)s->M * (double)s->N * s->c_bytes / g->dram_bytes;
}

af_gemm_way af_gemm_choose(const af_gpu_rates *g, const af_gemm_shape *s, int64_t workspace)
{
    af_gemm_way best = {0, 1};
    double least = -1;
    for (int tile = 0; tile < AF_GEMM_TILES; tile++)
        for (int split = 1; split <= SPLIT_MAX; split *= 2) {
            const af_gemm_way w = {tile, split};
            if (!af_gemm_fits(g, s, w, workspace))
                continue;
            const double cost = af_gemm_cost(g, s, w);
            if (least < 0 || cost < least) {
                least = cost;
                best = w;
            }
        }
    return best;
}
