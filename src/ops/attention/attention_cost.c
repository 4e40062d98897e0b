/* attention_cost.c - see attention_cost.h. */
#include "ops/attention/attention_cost.h"

enum {
    BYTES = 2,
    PAD = 8, /* values between rows of shared memory */
    SHARED_CLOCK = 128,
    SCHEDULERS = 4,
    LANES = 128,       /* f32 operations of an SM per clock */
    SCORE_WORK = 10,   /* f32 operations on a score: scale, mask, softmax or its gradient */
    STEP_CLOCKS = 120, /* of a step besides: barriers, addresses */
    JOIN_LAUNCH = 4000,
};
/* Of the tensor cores' peak, as in gemm_cost.c; fragments are not loaded ahead here. These numbers
 * and SCORE_WORK were fitted to four forward passes on an H200 (docs/decisions/0061). */
static const double alone = 0.55, shared_by_two = 0.75;

const af_attention_tile af_attention_tile_list[] = {
    {false, 32, true, false, 4, 2, 64, 255},  {false, 64, true, true, 4, 2, 64, 255},
    {false, 64, true, false, 4, 1, 64, 168},  {false, 64, true, false, 8, 1, 64, 168},
    {false, 80, true, false, 4, 2, 64, 255},  {false, 96, true, false, 4, 2, 64, 255},
    {false, 128, true, true, 4, 2, 64, 255},  {false, 128, true, false, 4, 1, 64, 216},
    {false, 128, true, false, 4, 1, 32, 168}, {false, 128, true, false, 8, 1, 64, 216},
    {false, 128, true, false, 8, 1, 32, 168}, {false, 256, true, true, 4, 1, 32, 255},
    {true, 32, true, false, 4, 1, 64, 255},   {true, 64, true, true, 4, 1, 64, 176},
    {true, 64, true, false, 8, 1, 64, 176},   {true, 80, true, false, 4, 1, 64, 255},
    {true, 96, true, false, 4, 1, 64, 255},   {true, 128, true, true, 4, 1, 64, 255},
    {true, 128, true, true, 4, 1, 32, 255},   {true, 128, true, false, 8, 1, 32, 255},
    {true, 256, true, true, 4, 1, 32, 255},   {true, 256, true, true, 3, 1, 16, 255},
};
const int af_attention_tile_count = (int)AF_LEN(af_attention_tile_list);

int af_attention_tile_rows(const af_attention_tile *t) { return t->warps * t->mt * 16; }

int af_attention_tile_shared(const af_attention_tile *t)
{
    const int rows = af_attention_tile_rows(t), pitch = (t->ep + PAD) * BYTES;
    return t->back ? (2 * rows + 4 * t->bn) * pitch + t->bn * 16 : (rows + 2 * t->bn) * pitch;
}

static int resident(const af_gpu_rates *g, const af_attention_tile *t)
{
    return af_gpu_resident(g, t->warps * 32, t->registers, af_attention_tile_shared(t));
}

bool af_attention_fits(const af_gpu_rates *g, const af_attention_shape *s, af_attention_way w)
{
    const af_attention_tile *t = &af_attention_tile_list[w.tile];
    const int group = s->heads / s->kv_heads;
    return t->back == s->back && t->ep == s->ep && (s->capped ? t->capped : t->plain) &&
           resident(g, t) > 0 && group % w.splits == 0 && (s->back || w.splits == 1);
}

/* One step of one block: `products` matrix products of rows x bn x ep, and its own fragments and
 * the streamed tile's that a warp reads. */
typedef struct step_work {
    double products, own, streamed;
} step_work;

/* Clocks of an SM for a step of each of its `blocks`. */
static double step_cost(const af_gpu_rates *g, const af_attention_tile *t, step_work k, int blocks)
{
    const double rows = af_attention_tile_rows(t), all = (double)blocks * t->warps / SCHEDULERS;
    const double chains = all * t->mt; /* sums that do not wait for each other */
    const double reach =
        chains <= 1 ? alone * chains : AF_MIN(shared_by_two + 0.04 * (chains - 2), 0.85);
    const double mma = 2 * k.products * rows * t->bn * t->ep * blocks / (g->mma * reach);
    const double row_bytes = (double)t->ep * BYTES;
    const double reads = t->warps * (k.own * t->mt * 16 + k.streamed * t->bn) * row_bytes;
    const double shared = (reads + 2.0 * t->bn * row_bytes) * blocks / SHARED_CLOCK;
    const double l2 = 2.0 * t->bn * row_bytes * blocks * g->sms / g->l2_bytes;
    const double scores = rows * t->bn * blocks, passes = k.products > 4 ? 2 : 1;
    const double soft = passes * scores * (1 / g->exponents + (double)SCORE_WORK / LANES);
    const double feed = AF_MAX(AF_MAX(mma, shared), l2);
    /* one warp of a scheduler does one after the other */
    const double work = all <= 1 ? feed + soft : AF_MAX(feed, soft) + 0.25 * AF_MIN(feed, soft);
    /* the forward pass waits for keys, then for values; the backward has two stages */
    return AF_MAX(work + STEP_CLOCKS, (t->back ? 1 : 2) * g->latency);
}

/* Streamed rows of a block, on average and at most. */
static double streamed(const af_attention_shape *s, double rows, bool most)
{
    const double length = (double)s->rows / (double)AF_MAX(s->sequences, INT64_C(1));
    const double all = s->causal && !most ? length / 2 + rows / 2 : length;
    return s->window ? AF_MIN(all, (double)s->window + rows) : all;
}

/* A kernel of `items` pieces of work per tile of rows, each `turns` times over what is streamed. */
static double kernel_cost(const af_gpu_rates *g, const af_attention_shape *s,
                          const af_attention_tile *t, step_work k, double items, double turns)
{
    const double rows = af_attention_tile_rows(t);
    const double tiles =
        (double)((s->rows + (int64_t)rows - 1) / (int64_t)rows) + 0.5 * (double)s->sequences;
    const double blocks = items * tiles, slots = (double)resident(g, t) * g->sms;
    const int busy = AF_MAX((int)AF_MIN((blocks + g->sms - 1) / g->sms, (double)resident(g, t)), 1);
    const double steps = turns * (streamed(s, rows, false) / t->bn + 0.5),
                 longest = turns * (streamed(s, rows, true) / t->bn + 0.5);
    const double waves = AF_MAX(blocks / slots, 1);
    /* long blocks begin first: the end is uneven by a part of one */
    return waves * steps * step_cost(g, t, k, busy) + 0.25 * longest * step_cost(g, t, k, 1) +
           waves * 3 * g->latency;
}

double af_attention_cost(const af_gpu_rates *g, const af_attention_shape *s, af_attention_way w)
{
    const af_attention_tile *t = &af_attention_tile_list[w.tile];
    const step_work forward = {2, 1, 2}, dq = {3, 2, 3}, dkv = {4, 2, 4};
    if (!s->back)
        return kernel_cost(g, s, t, forward, s->heads, 1);
    const double group = (double)s->heads / s->kv_heads;
    double clocks = kernel_cost(g, s, t, dq, s->heads, 1) +
                    kernel_cost(g, s, t, dkv, s->kv_heads * w.splits, group / w.splits);
    if (w.splits > 1) {
        const double part = (double)s->rows * 2 * s->kv_heads * s->ep * BYTES;
        clocks += JOIN_LAUNCH + part * (2 * w.splits + 1) / AF_MIN(g->dram_bytes, g->l2_bytes / 2);
    }
    return clocks;
}

af_attention_way af_attention_choose(const af_gpu_rates *g, const af_attention_shape *s)
{
    af_attention_way best = {-1, 1};
    double least = 0;
    for (int tile = 0; tile < af_attention_tile_count; tile++)
        for (int splits = 1; splits <= s->heads / s->kv_heads; splits++) {
            const af_attention_way w = {tile, splits};
            if (!af_attention_fits(g, s, w))
                continue;
            const double cost = af_attention_cost(g, s, w);
            if (best.tile < 0 || cost < least) {
                least = cost;
                best = w;
            }
        }
    return best;
}
