/* codec_iq3.c - iq3_s and iq3_xxs: 256 values under one scale, four bits of scales for parts of 32.
 * Four magnitudes at a time are a point of a fixed grid in {1, 3, .. 15}^4; signs are kept apart.
 *
 * Bytes of iq3_s: d (f16), 64 low bits of grid indexes, 8 bytes of their ninth bits, 32 of signs, 4
 * of scales. Of iq3_xxs: d, 64 indexes, and for each part four times seven signs and its scale; of
 * eight signs an even number is negative. The search is llama.cpp's: its bytes are what files are
 * compared with. */
#include "tensor/codec_block.h"
#include "tensor/iq3_grid.cuh"

#include <float.h>
#include <math.h>
#include <pthread.h>

enum {
    PART = 32,
    QUADS = PART / 4,
    LEVELS = 8,
    POINTS = 512, /* of iq3_s; iq3_xxs has fewer */
    SMALL_POINTS = 256,
    CUBE = LEVELS * LEVELS * LEVELS * LEVELS,
    NEAR_MAX = 1 << 18,
    AT_CODES = 2,
    AT_NINTH = AT_CODES + AF_SUPER / 4,
    AT_SIGNS = AT_NINTH + AF_SUPER / 32,
    AT_SCALES = AT_SIGNS + AF_SUPER / 8,
    BYTES = AT_SCALES + AF_SUPER / 64,
    AT_SMALL_SIGNS = AT_CODES + AF_SUPER / 4,
    SMALL_BYTES = AT_SMALL_SIGNS + AF_SUPER / 8
};

static const uint16_t large_grid[POINTS] = {AF_IQ3_GRID};
static const uint16_t small_grid[SMALL_POINTS] = {AF_IQ3_SMALL_GRID};

static int level(uint16_t point, int i) { return point >> (4 * i) & 15; }

/* A grid, and how a part is laid on it. */
typedef struct lattice {
    const uint16_t *grid;
    int points;
    int rings; /* distances at which points are neighbours of a corner that is none */
    int steps; /* scales that are tried to either side of the first */
    bool keep; /* at the end, only what was not on the grid is chosen again */
    /* for each corner of the cube (three bits a level): its point, or -1 and its neighbours */
    int16_t point[CUBE];
    uint32_t from[CUBE + 1];
    uint16_t near[NEAR_MAX];
} lattice;

static lattice large = {.grid = large_grid, .points = POINTS, .rings = 3, .steps = 9};
static lattice small = {
    .grid = small_grid, .points = SMALL_POINTS, .rings = 2, .steps = 15, .keep = true};

static int distance(int corner, uint16_t point)
{
    int sum = 0;
    for (int i = 0; i < 4; i++) {
        const int d = 2 * ((corner >> (3 * i) & 7) - level(point, i));
        sum += d * d;
    }
    return sum;
}

/* The points at the smallest distances, nearest first, of equals the lower. */
static uint32_t list_near(const lattice *l, int corner, uint16_t *to)
{
    uint32_t n = 0;
    int last = -1;
    for (int ring = 0; ring < l->rings; ring++) {
        int least = INT32_MAX;
        for (int p = 0; p < l->points; p++) {
            const int d = distance(corner, l->grid[p]);
            least = d > last && d < least ? d : least;
        }
        for (int p = 0; p < l->points; p++)
            if (distance(corner, l->grid[p]) == least)
                to[n++] = (uint16_t)p;
        last = least;
    }
    return n;
}

static void make_lattice(lattice *l)
{
    memset(l->point, 0xff, sizeof l->point);
    for (int p = 0; p < l->points; p++) {
        int corner = 0;
        for (int i = 0; i < 4; i++)
            corner |= level(l->grid[p], i) << (3 * i);
        l->point[corner] = (int16_t)p;
    }
    for (int c = 0; c < CUBE; c++) {
        const uint32_t at = l->from[c];
        l->from[c + 1] = at + (l->point[c] < 0 ? list_near(l, c, l->near + at) : 0);
        assert(l->from[c + 1] <= NEAR_MAX - POINTS);
    }
}

static void make_search(void)
{
    make_lattice(&large);
    make_lattice(&small);
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
static int point_of(const lattice *l, int corner, const float *x, const float *weight, float scale)
{
    int best = l->point[corner];
    float least = FLT_MAX;
    if (best >= 0)
        return best;
    best = l->near[l->from[corner]];
    for (uint32_t k = l->from[corner]; k < l->from[corner + 1]; k++) {
        float sum = 0;
        for (int i = 0; i < 4; i++) {
            const float d = scale * (float)(2 * level(l->grid[l->near[k]], i) + 1) - x[i];
            sum += weight[i] * d * d;
        }
        if (sum < least) {
            least = sum;
            best = l->near[k];
        }
    }
    return best;
}

/* Sums of w x q and w q q over the part. */
static void fit(const lattice *l, const part *p, const int point[QUADS], float *xq, float *qq)
{
    *xq = *qq = 0;
    for (int i = 0; i < PART; i++) {
        const float q = (float)(2 * level(l->grid[point[i / 4]], i % 4) + 1);
        *xq += p->weight[i] * p->x[i] * q;
        *qq += p->weight[i] * q * q;
    }
}

/* Points of a part; on[k]: they are where the values are. Quads of `kept` stay as they are. */
static void choose(const lattice *l, const part *p, float scale, float inverse, int point[QUADS],
                   bool on[QUADS], const bool *kept)
{
    for (int k = 0; k < QUADS; k++) {
        if (kept && kept[k])
            continue;
        const int corner = corner_of(p->x + 4 * k, inverse);
        on[k] = l->point[corner] >= 0;
        point[k] = point_of(l, corner, p->x + 4 * k, p->root + 4 * k, scale);
    }
}

static bool all_of(const bool on[QUADS])
{
    bool all = true;
    for (int k = 0; k < QUADS; k++)
        all &= on[k];
    return all;
}

static float most_of(const part *p)
{
    float most = p->x[0];
    for (int i = 1; i < PART; i++)
        most = most > p->x[i] ? most : p->x[i];
    return most;
}

/* The points of a part and its scale; the scale is tried around the one of the largest value. */
static float search_part(const lattice *l, const part *p, float most, int point[QUADS])
{
    float best = 0, xq, qq, scale = most / (2 * LEVELS - 1);
    bool on[QUADS], on_now[QUADS];
    memset(on, l->keep, sizeof on);
    for (int step = -l->steps; step <= l->steps; step++) {
        const float inverse = ((float)(2 * LEVELS - 1) + (float)step * 0.2f) / most;
        int now[QUADS];
        choose(l, p, 1 / inverse, inverse, now, on_now, NULL);
        fit(l, p, now, &xq, &qq);
        if (qq > 0 && xq * xq > best * qq) {
            scale = xq / qq;
            best = scale * xq;
            memcpy(on, on_now, sizeof on);
            memcpy(point, now, sizeof now);
        }
    }
    if (!all_of(on) && scale > 0) {
        choose(l, p, scale, 1 / scale, point, on_now, l->keep ? on : NULL);
        fit(l, p, point, &xq, &qq);
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
        memset(point, 0, sizeof point);
        scale[k] = most_of(&p) > 0 ? search_part(&large, &p, most_of(&p), point) : 0;
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

/* ---- iq3_xxs ---- */

/* Of eight signs an even number is kept: the value that matters least changes its own. */
static void even_signs(part *p)
{
    for (int k = 0; k < PART / 8; k++) {
        int least = 8 * k;
        for (int i = 8 * k + 1; i < 8 * k + 8; i++)
            if (p->weight[i] * p->x[i] * p->x[i] < p->weight[least] * p->x[least] * p->x[least])
                least = i;
        if (__builtin_parity(p->sign[k])) {
            p->x[least] = -p->x[least];
            p->sign[k] ^= (uint8_t)(1 << least % 8);
        }
        p->sign[k] &= 127;
    }
}

/* The signs of part `no`, which begin the word that its scale ends. */
static uint32_t sign_word(const part *p)
{
    return p->sign[0] | (uint32_t)p->sign[1] << 7 | (uint32_t)p->sign[2] << 14 |
           (uint32_t)p->sign[3] << 21;
}

static void encode_small_block(const float *x, uint8_t *dst, const float *importance)
{
    enum { PARTS = AF_SUPER / PART };
    static const float zero_below = 1e-8f;
    float scale[PARTS] = {0}, most = 0, sum = 0;
    uint32_t word[PARTS] = {0};
    memset(dst, 0, SMALL_BYTES);
    for (int i = 0; i < AF_SUPER; i++)
        sum += x[i] * x[i];
    for (int k = 0; k < PARTS; k++) {
        part p;
        int point[QUADS] = {0};
        take_part(&p, x + PART * k, importance ? importance + PART * k : NULL, 2 * sum / AF_SUPER);
        even_signs(&p);
        if (most_of(&p) < zero_below)
            continue;
        scale[k] = search_part(&small, &p, most_of(&p), point);
        for (int s = 0; s < PART / 8 && scale[k] < 0; s++)
            p.sign[s] ^= 127;
        scale[k] = fabsf(scale[k]);
        for (int q = 0; q < QUADS; q++)
            dst[AT_CODES + k * QUADS + q] = (uint8_t)point[q];
        word[k] = sign_word(&p);
        most = most > scale[k] ? most : scale[k];
    }
    if (!(most > 0)) {
        memset(dst, 0, SMALL_BYTES);
        return;
    }
    const float d = most / 31;
    af_f16_put(dst, d * 1.0125f); /* what the rounding of scales loses on average */
    for (int k = 0; k < PARTS; k++) {
        const int l = (int)af_clamp(af_nearest(0.5f * (1 / d * scale[k] - 1)), 0, 15);
        const uint32_t w = word[k] | (uint32_t)l << 28;
        for (int b = 0; b < 4; b++)
            dst[AT_SMALL_SIGNS + 4 * k + b] = (uint8_t)(w >> 8 * b);
    }
}

typedef void encode_super(const float *x, uint8_t *dst, const float *importance);

static void encode_all(const float *src, uint8_t *dst, int64_t n, const float *importance,
                       encode_super *encode, int bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_search);
    for (int64_t b = 0; b < n / AF_SUPER; b++)
        encode(src + b * AF_SUPER, dst + b * bytes, importance ? importance + b * AF_SUPER : NULL);
}

void af_iq3_xxs_encode(const float *src, uint8_t *dst, int64_t n, const float *importance)
{
    encode_all(src, dst, n, importance, encode_small_block, SMALL_BYTES);
}

void af_iq3_xxs_decode(const uint8_t *src, float *dst, int64_t n)
{
    static const uint8_t magnitude[LEVELS] = {4, 12, 20, 28, 36, 44, 52, 62};
    for (int64_t b = 0; b < n / AF_SUPER; b++, src += SMALL_BYTES, dst += AF_SUPER) {
        const float d = af_f16_at(src);
        for (int i = 0; i < AF_SUPER; i++) {
            const uint8_t *at = src + AT_SMALL_SIGNS + i / PART * 4;
            const uint32_t w =
                at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
            const int seven = w >> 7 * (i / 8 % 4) & 127;
            const int signs = seven | __builtin_parity((unsigned)seven) << 7;
            const float v = d * (0.5f + (float)(w >> 28)) * 0.5f *
                            (float)magnitude[level(small_grid[src[AT_CODES + i / 4]], i % 4)];
            dst[i] = signs >> i % 8 & 1 ? -v : v;
        }
    }
}

void af_iq3_s_encode(const float *src, uint8_t *dst, int64_t n, const float *importance)
{
    encode_all(src, dst, n, importance, encode_block, BYTES);
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
            const float v = d * (float)scale * (float)(2 * level(large_grid[point], i % 4) + 1);
            dst[i] = src[AT_SIGNS + i / 8] >> i % 8 & 1 ? -v : v;
        }
    }
}
