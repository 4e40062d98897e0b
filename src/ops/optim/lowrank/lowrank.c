/* lowrank.c - see lowrank.h. */
#include "ops/optim/lowrank/lowrank.h"

#include "base/rng.h"
#include "ops/common/twin.h"

#include <math.h>

enum { DRAW_BLOCKS = 256 }; /* of Philox, in one piece of work */

void af_lowrank_draw(const af_node *n, float size, float *values, int64_t first, int64_t blocks,
                     int64_t count)
{
    enum { RUN = 64 };
    const uint64_t draw = (uint64_t)af_ld(af_optim_in(n).hyper, AF_HYPER_A);
    uint32_t word[4 * RUN];
    for (int64_t at = first; at < first + blocks; at += RUN) {
        const int64_t some = AF_MIN(first + blocks - at, (int64_t)RUN);
        af_rng_words(word, n->attr.optim.seed, af_lowrank_stream(n) + draw, (uint64_t)at,
                     (uint64_t)some);
        for (int64_t k = 0; k < 4 * some && 4 * at + k < count; k += 2) { /* Box and Muller */
            const float u = ((float)(word[k] >> 8) + 1.0f) * 0x1p-24f;
            const float a = (float)(word[k + 1] >> 8) * (6.283185307f * 0x1p-24f);
            const float r = size * sqrtf(-2.0f * logf(u));
            values[4 * at + k] = r * cosf(a);
            if (4 * at + k + 1 < count)
                values[4 * at + k + 1] = r * sinf(a);
        }
    }
}

typedef struct draw_job {
    const af_node *n;
    float size, *values;
    int64_t count;
} draw_job;

static void draw_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const draw_job *j = arg;
    const int64_t blocks = (j->count + 3) / 4;
    const int64_t a = from * DRAW_BLOCKS, b = AF_MIN(to * DRAW_BLOCKS, blocks);
    af_lowrank_draw(j->n, j->size, j->values, a, b - a, j->count);
}

void af_lowrank_draw_all(const af_node *n, af_pool *pool, float size, float *values, int64_t count)
{
    draw_job j = {n, size, values, count};
    const int64_t blocks = (count + 3) / 4;
    af_pool_run(pool, (blocks + DRAW_BLOCKS - 1) / DRAW_BLOCKS, draw_pieces, &j);
}
