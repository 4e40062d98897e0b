/* codec_iq2.c - iq2_s: 256 values under one scale, four bits of scales for parts of 16. Eight
 * magnitudes at a time are a point of a fixed grid in {1, 3, 5}^8; signs are kept apart.
 *
 * Bytes: d (f16), 32 low bits of grid indexes, 32 of signs, 8 of the indexes' upper two bits, 8 of
 * scales. The search is llama.cpp's: its bytes are what files are compared with. */
#include "tensor/codec_block.h"
#include "tensor/iq2_grid.cuh"

#include <float.h>
#include <math.h>
#include <pthread.h>

enum {
    POINT = 8, /* values of a point */
    PART = 16,
    HALVES = PART / POINT,
    LEVELS = 3,
    POINTS = 1024,
    CORNERS = 1 << (2 * POINT), /* two bits a level; those with a fourth level are not used */
    NEAR_MAX = 1 << 18,
    AT_CODES = 2,
    AT_SIGNS = AT_CODES + AF_SUPER / POINT,
    AT_UPPER = AT_SIGNS + AF_SUPER / POINT,
    AT_SCALES = AT_UPPER + AF_SUPER / POINT / 4,
    BYTES = AT_SCALES + AF_SUPER / PART / 2
};

static const uint16_t grid[POINTS] = {AF_IQ2_GRID};

static int level(int point, int i) { return point >> (2 * i) & 3; }

/* For each corner its point, or -1 and where its nearest points are. */
static struct {
    int16_t point[CORNERS];
    uint32_t from[CORNERS + 1];
    uint16_t near[NEAR_MAX];
} search;

static int distance(int corner, int point)
{
    int sum = 0;
    for (int i = 0; i < POINT; i++) {
        const int d = 2 * (level(corner, i) - level(point, i));
        sum += d * d;
    }
    return sum;
}

static uint32_t list_near(int corner, uint16_t *to)
{
    int least = INT32_MAX;
    uint32_t n = 0;
    for (int p = 0; p < POINTS; p++) {
        const int d = distance(corner, grid[p]);
        n = d < least ? 0 : n;
        least = d < least ? d : least;
        if (d == least)
            to[n++] = (uint16_t)p;
    }
    return n;
}

static bool is_used(int corner)
{
    for (int i = 0; i < POINT; i++)
        if (level(corner, i) >= LEVELS)
            return false;
    return true;
}

static void make_search(void)
{
    memset(search.point, 0xff, sizeof search.point);
    for (int p = 0; p < POINTS; p++)
        search.point[grid[p]] = (int16_t)p;
    for (int c = 0; c < CORNERS; c++) {
        const uint32_t at = search.from[c];
        const bool off = search.point[c] < 0 && is_used(c);
        assert(at <= NEAR_MAX - POINTS);
        search.from[c + 1] = at + (off ? list_near(c, search.near + at) : 0);
    }
}

/* ---- encoding ---- */

typedef struct part {
    float x[PART];      /* magnitudes */
    float weight[PART]; /* of squared errors, and their roots */
    float root[PART];
    uint8_t sign[HALVES];
} part;

static void take_part(part *p, const float *x, const float *importance, float sigma2)
{
    memset(p->sign, 0, sizeof p->sign);
    for (int i = 0; i < PART; i++) {
        const float square = x[i] * x[i];
        p->weight[i] =
            importance ? importance[i] * sqrtf(sigma2 + square) : 0.25f * sigma2 + square;
        p->root[i] = sqrtf(p->weight[i]);
        const bool negative = !(x[i] >= 0);
        p->x[i] = negative ? -x[i] : x[i];
        p->sign[i / POINT] |= (uint8_t)(negative << i % POINT);
    }
}

static int corner_of(const float *x, float inverse)
{
    int corner = 0;
    for (int i = 0; i < POINT; i++)
        corner |= (int)af_clamp(af_nearest(0.5f * (inverse * x[i] - 1)), 0, LEVELS - 1) << (2 * i);
    return corner;
}

/* The corner's point, or the neighbour with the smallest error. */
static int point_of(int corner, const float *x, const float *weight, float scale)
{
    int best = search.point[corner];
    float least = FLT_MAX;
    if (best >= 0)
        return best;
    best = search.near[search.from[corner]];
    for (uint32_t k = search.from[corner]; k < search.from[corner + 1]; k++) {
        float sum = 0;
        for (int i = 0; i < POINT; i++) {
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
static void fit(const part *p, const int point[HALVES], float *xq, float *qq)
{
    *xq = *qq = 0;
    for (int i = 0; i < PART; i++) {
        const float q = (float)(2 * level(grid[point[i / POINT]], i % POINT) + 1);
        *xq += p->weight[i] * p->x[i] * q;
        *qq += p->weight[i] * q * q;
    }
}

/* Points of the halves that are not `kept`; on[k]: a point is where the values are. */
static void choose(const part *p, float scale, float inverse, int point[HALVES], bool on[HALVES],
                   const bool *kept)
{
    for (int k = 0; k < HALVES; k++) {
        if (kept && kept[k])
            continue;
        const int corner = corner_of(p->x + POINT * k, inverse);
        on[k] = search.point[corner] >= 0;
        point[k] = point_of(corner, p->x + POINT * k, p->root + POINT * k, scale);
    }
}

static float search_part(const part *p, float most, int point[HALVES])
{
    enum { STEPS = 9 };
    float best = 0, xq, qq, scale = most / (2 * LEVELS - 1);
    bool on[HALVES] = {true, true}, now_on[HALVES];
    for (int step = -STEPS; step <= STEPS; step++) {
        const float inverse = ((float)(2 * LEVELS - 1) + (float)step * 0.1f) / most;
        int now[HALVES];
        choose(p, 1 / inverse, inverse, now, now_on, NULL);
        fit(p, now, &xq, &qq);
        if (qq > 0 && xq * xq > best * qq) {
            scale = xq / qq;
            best = scale * xq;
            memcpy(on, now_on, sizeof on);
            memcpy(point, now, sizeof now);
        }
    }
    if (!(on[0] && on[1]) && scale > 0) {
        choose(p, scale, 1 / scale, point, now_on, on);
        fit(p, point, &xq, &qq);
        scale = qq > 0 ? xq / qq : scale;
    }
    return scale;
}

static void encode_block(const float *x, uint8_t *dst, const float *importance)
{
    enum { PARTS = AF_SUPER / PART };
    static const float zero_below = 1e-8f;
    float scale[PARTS] = {0}, most = 0, sum = 0;
    memset(dst, 0, BYTES);
    for (int i = 0; i < AF_SUPER; i++)
        sum += x[i] * x[i];
    for (int k = 0; k < PARTS; k++) {
        part p;
        int point[HALVES] = {0};
        float largest = 0;
        take_part(&p, x + PART * k, importance ? importance + PART * k : NULL, 2 * sum / AF_SUPER);
        for (int i = 0; i < PART; i++)
            largest = largest > p.x[i] ? largest : p.x[i];
        if (largest < zero_below)
            continue;
        scale[k] = search_part(&p, largest, point);
        for (int h = 0; h < HALVES; h++) {
            const int at = HALVES * k + h;
            dst[AT_CODES + at] = (uint8_t)point[h];
            dst[AT_UPPER + at / 4] |= (uint8_t)(point[h] >> 8 << 2 * (at % 4));
            dst[AT_SIGNS + at] = p.sign[h];
        }
        most = most > scale[k] ? most : scale[k];
    }
    if (!(most > 0))
        return;
    const float d = most / 31;
    af_f16_put(dst, d * 0.9875f); /* what the rounding of scales gains on average */
    for (int k = 0; k < PARTS; k++)
        dst[AT_SCALES + k / 2] |=
            (uint8_t)((int)af_clamp(af_nearest(0.5f * (1 / d * scale[k] - 1)), 0, 15) << k % 2 * 4);
}

void af_iq2_s_encode(const float *src, uint8_t *dst, int64_t n, const float *importance)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_search);
    for (int64_t b = 0; b < n / AF_SUPER; b++)
        encode_block(src + b * AF_SUPER, dst + b * BYTES,
                     importance ? importance + b * AF_SUPER : NULL);
}

void af_iq2_s_decode(const uint8_t *src, float *dst, int64_t n)
{
    static const uint8_t magnitude[LEVELS + 1] = {8, 25, 43, 0};
    for (int64_t b = 0; b < n / AF_SUPER; b++, src += BYTES, dst += AF_SUPER) {
        const float d = af_f16_at(src);
        for (int i = 0; i < AF_SUPER; i++) {
            const int at = i / POINT;
            const int point = src[AT_CODES + at] | (src[AT_UPPER + at / 4] >> 2 * (at % 4) & 3)
                                                       << 8;
            const int scale = src[AT_SCALES + i / 32] >> i / PART % 2 * 4 & 15;
            const float v =
                d * (0.5f + (float)scale) * 0.25f * (float)magnitude[level(grid[point], i % POINT)];
            dst[i] = src[AT_SIGNS + at] >> i % POINT & 1 ? -v : v;
        }
    }
}
