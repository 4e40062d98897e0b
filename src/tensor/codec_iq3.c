/* codec_iq3.c - iq3_s: 256 values under one scale, sixteen bits of scales for parts of 32. Four
 * magnitudes at a time are a point of a fixed grid in {1, 3, .. 15}^4; signs are kept apart.
 *
 * Bytes: d (f16), 64 low bits of grid indexes, 8 bytes of their ninth bits, 32 of signs, 4 of
 * scales. The search is llama.cpp's: its bytes are what files are compared with. */
#include "tensor/codec_block.h"
#include "tensor/iq3_grid.cuh"

#include <float.h>
#include <pthread.h>

enum {
    PART = 32,
    QUADS = PART / 4,
    LEVELS = 8,
    POINTS = 512,
    CUBE = LEVELS * LEVELS * LEVELS * LEVELS,
    RINGS = 3, /* distances at which grid points are neighbours of one that is not on the grid */
    NEAR_MAX = 1 << 18,
    AT_CODES = 2,
    AT_NINTH = AT_CODES + AF_SUPER / 4,
    AT_SIGNS = AT_NINTH + AF_SUPER / 32,
    AT_SCALES = AT_SIGNS + AF_SUPER / 8,
    BYTES = AT_SCALES + AF_SUPER / 64
};

static const uint16_t grid[POINTS] = {AF_IQ3_GRID};

static int level(uint16_t point, int i) { return point >> (4 * i) & 15; }

/* For each corner of the cube (three bits a level): its point, or -1 and where its neighbours are.
 */
static struct {
    int16_t point[CUBE];
    uint32_t from[CUBE + 1];
    uint16_t near[NEAR_MAX];
} search;

static int distance(int corner, uint16_t point)
{
    int sum = 0;
    for (int i = 0; i < 4; i++) {
        const int d = 2 * ((corner >> (3 * i) & 7) - level(point, i));
        sum += d * d;
    }
    return sum;
}

/* The points at the RINGS smallest distances, nearest first, of equals the lower. */
static uint32_t list_near(int corner, uint16_t *to)
{
    uint32_t n = 0;
    int last = -1;
    for (int ring = 0; ring < RINGS; ring++) {
        int least = INT32_MAX;
        for (int p = 0; p < POINTS; p++) {
            const int d = distance(corner, grid[p]);
            least = d > last && d < least ? d : least;
        }
        for (int p = 0; p < POINTS; p++)
            if (distance(corner, grid[p]) == least)
                to[n++] = (uint16_t)p;
        last = least;
    }
    return n;
}

static void make_search(void)
{
    memset(search.point, 0xff, sizeof search.point);
    for (int p = 0; p < POINTS; p++) {
        int corner = 0;
        for (int i = 0; i < 4; i++)
            corner |= level(grid[p], i) << (3 * i);
        search.point[corner] = (int16_t)p;
    }
    for (int c = 0; c < CUBE; c++) {
        const uint32_t at = search.from[c];
        search.from[c + 1] = at + (search.point[c] < 0 ? list_near(c, search.near + at) : 0);
        assert(search.from[c + 1] <= NEAR_MAX - POINTS);
    }
}

/* ---- encoding ---- */

typedef struct part {
    float x[PART];      /* magnitudes */
    float weight[PART]; /* of squared errors, and their roots */
    float root[PART];
    uint8_t sign[PART / 8];
} part;

static void take_part(part *p, const float *x, const float *importance, float sigma2)
{
    memset(p->sign, 0, sizeof p->sign);
    for (int i = 0; i < PART; i++) {
        p->weight[i] = importance ? importance[i] * sqrtf(sigma2 + x[i] * x[i]) : x[i] * x[i];
        p->root[i] = sqrtf(p->weight[i]);
        const bool negative = !(x[i] >= 0);
        p->x[i] = negative ? -x[i] : x[i];
        p->sign[i / 8] |= (uint8_t)(negative << i % 8);
    }
}

/* The corner of the cube next to four magnitudes divided by the scale. */
static int corner_of(const float *x, float inverse)
{
    int corner = 0;
    for (int i = 0; i < 4; i++)
        corner |= (int)af_clamp(af_nearest(0.5f * (inverse * x[i] - 1)), 0, LEVELS - 1) << (3 * i);
    return corner;
}

/* Its point, or the neighbour with the smallest error. */
static int point_of(int corner, const float *x, const float *weight, float scale)
{
    int best = search.point[corner];
    float least = FLT_MAX;
    if (best >= 0)
        return best;
    best = search.near[search.from[corner]];
    for (uint32_t k = search.from[corner]; k < search.from[corner + 1]; k++) {
        float sum = 0;
        for (int i = 0; i < 4; i++) {
            const float d = scale * (float)(2 * level(grid[search.near[k]], i) + 1) - x[i];
            sum += weight[i] * d * d;
        }
        if (sum < least) {
            least = sum;
            best = search.near[k];
        }
    }
    return best;
}

/* Sums of w x q and w q q over the part. */
static void fit(const part *p, const int point[QUADS], float *xq, float *qq)
{
    *xq = *qq = 0;
    for (int i = 0; i < PART; i++) {
        const float q = (float)(2 * level(grid[point[i / 4]], i % 4) + 1);
        *xq += p->weight[i] * p->x[i] * q;
        *qq += p->weight[i] * q * q;
    }
}

static bool choose(const part *p, float inverse, float scale, int point[QUADS])
{
    bool all = true; /* are on the grid as they are */
    for (int k = 0; k < QUADS; k++) {
        const int corner = corner_of(p->x + 4 * k, inverse);
        all &= search.point[corner] >= 0;
        point[k] = point_of(corner, p->x + 4 * k, p->root + 4 * k, scale);
    }
    return all;
}

/* The points of a part and its scale; the scale is tried around the one of the largest value. */
static float search_part(const part *p, int point[QUADS])
{
    float most = p->x[0], best = 0, xq, qq;
    bool on_grid = false;
    for (int i = 1; i < PART; i++)
        most = most > p->x[i] ? most : p->x[i];
    memset(point, 0, QUADS * sizeof *point);
    if (!(most > 0))
        return 0;
    float scale = most / (2 * LEVELS - 1);
    for (int step = -9; step <= 9; step++) {
        const float inverse = ((float)(2 * LEVELS - 1) + (float)step * 0.2f) / most;
        int now[QUADS];
        const bool all = choose(p, inverse, 1 / inverse, now);
        fit(p, now, &xq, &qq);
        if (qq > 0 && xq * xq > best * qq) {
            scale = xq / qq;
            best = scale * xq;
            on_grid = all;
            memcpy(point, now, sizeof now);
        }
    }
    if (!on_grid && scale > 0) {
        choose(p, 1 / scale, scale, point);
        fit(p, point, &xq, &qq);
        scale = qq > 0 ? xq / qq : scale;
    }
    return scale;
}

/* Part number `no`, whose codes and signs are the `at`-th. */
static void put_part(uint8_t *dst, int no, int at, const part *p, const int point[QUADS])
{
    for (int k = 0; k < QUADS; k++) {
        dst[AT_CODES + at * QUADS + k] = (uint8_t)point[k];
        dst[AT_NINTH + no] |= (uint8_t)(point[k] >> 8 << k);
    }
    memcpy(dst + AT_SIGNS + at * (PART / 8), p->sign, sizeof p->sign);
}

/* llama.cpp leaves no room for a part of zeros: the codes after it move up, and are read as those
 * of another part. Its bytes are kept here as they are; blocks with such parts are rare. */
static void encode_block(const float *x, uint8_t *dst, const float *importance)
{
    enum { PARTS = AF_SUPER / PART };
    float scale[PARTS], most = 0, sum = 0;
    int at = 0;
    memset(dst, 0, BYTES);
    for (int i = 0; i < AF_SUPER; i++)
        sum += x[i] * x[i];
    for (int k = 0; k < PARTS; k++) {
        part p;
        int point[QUADS];
        take_part(&p, x + PART * k, importance ? importance + PART * k : NULL, 2 * sum / AF_SUPER);
        scale[k] = search_part(&p, point);
        if (scale[k] > 0)
            put_part(dst, k, at++, &p, point);
        most = most > scale[k] ? most : scale[k];
    }
    if (!(most > 0))
        return;
    const float d = most / 31;
    af_f16_put(dst, d * 1.033f); /* what the rounding of scales loses on average */
    for (int k = 0; k < PARTS; k++)
        dst[AT_SCALES + k / 2] |=
            (uint8_t)((int)af_clamp(af_nearest(0.5f * (1 / d * scale[k] - 1)), 0, 15) << k % 2 * 4);
}

void af_iq3_s_encode(const float *src, uint8_t *dst, int64_t n, const float *importance)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_search);
    for (int64_t b = 0; b < n / AF_SUPER; b++)
        encode_block(src + b * AF_SUPER, dst + b * BYTES,
                     importance ? importance + b * AF_SUPER : NULL);
}

void af_iq3_s_decode(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t b = 0; b < n / AF_SUPER; b++, src += BYTES, dst += AF_SUPER) {
        const float d = af_f16_at(src);
        for (int i = 0; i < AF_SUPER; i++) {
            const int quad = i / 4;
            const int point = src[AT_CODES + quad] | (src[AT_NINTH + quad / 8] >> quad % 8 & 1)
                                                         << 8;
            const int scale = 1 + 2 * (src[AT_SCALES + i / 64] >> i / PART % 2 * 4 & 15);
            const float v = d * (float)scale * (float)(2 * level(grid[point], i % 4) + 1);
            dst[i] = src[AT_SIGNS + i / 8] >> i % 8 & 1 ? -v : v;
        }
    }
}
