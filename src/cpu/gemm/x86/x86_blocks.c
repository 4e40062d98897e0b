/* x86_blocks.c - a few rows of activations times rows of GGUF blocks as integers: VL stored rows
 * are interleaved, so that one multiplication meets four codes of each with four quads of a plane
 * of the activations (gemm_planes.h) and a vector holds one sum of every row, as neondot_blocks.c
 * does with four rows; the numbers are the same to the last bit. What is interleaved serves all
 * rows of activations.
 *
 * Without VNNI only activations that are rounded are multiplied so; for others three planes take
 * longer than codes widened to f32 (gemm_blocks_widen.h). */
#include "cpu/gemm/gemm_blocks_widen.h"
#include "cpu/gemm/x86/x86_bytes.h"

enum { TOGETHER = VL == 16 && HAS_VNNI ? 4 : 2 }; /* rows of activations */

uint64_t AF_ISA_NAME(af_block_work)(int64_t values)
{
    return AF_MAX(planes_work(values), widen_work(values));
}

void AF_ISA_NAME(af_block_prepare)(af_block_x *out, const float *x, int64_t M, int64_t K,
                                   bool rounded, void *work)
{
    if (rounded || HAS_VNNI)
        prepare_planes(out, x, M, K, rounded, work);
    else
        prepare_widen(out, x, M, K, work);
}

/* The blocks of VL rows at one place, or group by group: codes 4i .. 4i+3 of each, scales and
 * offsets. */
typedef struct unpacked {
    quads code[8][8];
    vec d[16], o[8];
} unpacked;

AF_INLINE vec as_floats(quads s) { return (vec)WIDE(cvtepi32_ps)(s); }

/* y[r]: the products of VL stored rows with sixteen activations, the first (part 0) or the others
 * (1) of a block, or with both (2), of rows r < R, whose planes lie one after the other. */
AF_INLINE void products(vec *y, const quads *code, const int8_t *p, const int32_t *start,
                        bool rounded, int R, int part)
{
    const int planes = rounded ? 1 : AF_PLANES;
    const int from = part == 1 ? 4 : 0, to = part == 0 ? 4 : 8;
    quads s[TOGETHER][AF_PLANES];
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 3
        for (int d = 0; d < planes; d++)
            s[r][d] = WIDE(set1_epi32)(STARTS ? start[STARTS * (planes * r + d) + part] : 0);
#pragma GCC unroll 8
    for (int i = from; i < to; i++)
#pragma GCC unroll 4
        for (int r = 0; r < R; r++)
#pragma GCC unroll 3
            for (int d = 0; d < planes; d++)
                s[r][d] = dot(s[r][d], code[i], p + AF_BLOCK * (planes * r + d) + 4 * i);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
        y[r] = as_floats(s[r][0]);
        if (!rounded) {
            y[r] = mul_add(as_floats(s[r][1]), 256 - (vec){0}, y[r]);
            y[r] = mul_add(as_floats(s[r][2]), 65536 - (vec){0}, y[r]);
        }
    }
}

AF_INLINE vec all_halves(const uint8_t *const w[VL], int at)
{
    uint64_t h[VL / 4]; /* joined as integers: those units have time */
#pragma GCC unroll 4
    for (int r = 0; r < VL / 4; r++) {
        uint16_t q[4];
        for (int i = 0; i < 4; i++)
            memcpy(&q[i], w[4 * r + i] + at, sizeof *q);
        h[r] = (q[0] | (uint64_t)q[1] << 16) | ((uint64_t)q[2] << 32 | (uint64_t)q[3] << 48);
    }
    return halves_up(h);
}

/* Byte `at` of every word, signed. */
AF_INLINE vec code_floats(quads v, int at)
{
    return as_floats((quads)((ivec)v << (24 - 8 * at) >> 24));
}

AF_INLINE void all_scales(af_dtype type, const uint8_t *const w[VL], unpacked *out)
{
    const vec by = all_halves(w, af_half_at(type));
    const vec offset = af_has_offset(type) ? all_halves(w, 2) : (vec){0};
    if (af_groups(type) == 1) {
        out->d[0] = by;
        out->o[0] = offset;
        return;
    }
    af_i8v row[VL];
    quads small[4];
    for (int r = 0; r < VL; r++)
        row[r] = af_scale_codes(type, w[r]);
    interleave(small, row);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        const vec c = code_floats(small[i / 4], i % 4);
        if (af_by_16(type))
            out->d[i] = by * c;
        else if (i < 8)
            out->d[2 * i] = by * c;
        else if (af_has_offset(type))
            out->o[i - 8] = -offset * c;
    }
}

/* Everything of the blocks at w: a function per type, so that each shift is a constant. */
AF_INLINE void unpack(af_dtype type, const uint8_t *const w[VL], unpacked *out)
{
    all_scales(type, w, out);
#pragma GCC unroll 8
    for (int j = 0; j < af_groups(type); j++) {
        af_i8v lo[VL], hi[VL];
#pragma GCC unroll 16
        for (int r = 0; r < VL; r++)
            af_codes(type, w[r], j, &lo[r], &hi[r]);
        interleave(out->code[j], lo);
        interleave(out->code[j] + 4, hi);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            out->code[j][i] = dot_codes(out->code[j][i]);
    }
}

typedef void unpack_fn(const uint8_t *const w[VL], unpacked *out);
#define UNPACK(T)                                                                                  \
    static void unpack_##T(const uint8_t *const w[VL], unpacked *out)                              \
    {                                                                                              \
        unpack(AF_DTYPE_##T, w, out);                                                              \
    }
UNPACK(Q8_0)
UNPACK(Q4_0)
UNPACK(Q4_1)
UNPACK(Q5_0)
UNPACK(Q5_1)
UNPACK(Q3_K)
UNPACK(Q4_K)
UNPACK(Q5_K)
UNPACK(Q6_K)
UNPACK(IQ4_NL)
UNPACK(IQ4_XS)

/* How the scales of a type are used. */
typedef enum scale_form { PLAIN, OFFSETS, BY_16 } scale_form;

/* Adds group j of VL stored rows times R rows of activations from number `at` on. */
AF_INLINE void add_group(vec *total, const af_block_x *x, scale_form form, bool rounded,
                         const unpacked *w, int j, int64_t at, int R)
{
    const int8_t *p = x->planes + at * plane_bytes(rounded);
    const int32_t *start = x->start + at * (rounded ? 1 : AF_PLANES) * STARTS;
    vec y[TOGETHER], z[TOGETHER];
    products(y, w->code[j], p, start, rounded, R, form == BY_16 ? 0 : 2);
    if (form == BY_16)
        products(z, w->code[j], p, start, rounded, R, 1);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
        vec v = y[r] * w->d[2 * j];
        if (form == BY_16)
            v = mul_add(z[r], w->d[2 * j + 1], v);
        total[r] = mul_add(v, x->scale[(at + r) * 4] - (vec){0}, total[r]);
        if (form == OFFSETS)
            total[r] = mul_add(w->o[j], x->sums[at + r] - (vec){0}, total[r]);
    }
}

/* The same for all groups and all rows, from block k of the activations on. */
AF_INLINE void add_blocks(vec *total, const af_block_x *x, scale_form form, bool rounded,
                          const unpacked *w, int groups, int64_t k)
{
    for (int j = 0; j < groups; j++, k++) {
        int64_t m = 0;
        for (; m + TOGETHER <= x->M; m += TOGETHER)
            add_group(total + m, x, form, rounded, w, j, k * x->M + m, TOGETHER);
        for (; m < x->M; m++)
            add_group(total + m, x, form, rounded, w, j, k * x->M + m, 1);
    }
}

typedef void add_fn(vec *total, const af_block_x *x, const unpacked *w, int groups, int64_t k);
#define ADD(F, R)                                                                                  \
    static void add_##F##_##R(vec *total, const af_block_x *x, const unpacked *w, int groups,      \
                              int64_t k)                                                           \
    {                                                                                              \
        add_blocks(total, x, F, R, w, groups, k);                                                  \
    }
ADD(PLAIN, 0)
ADD(PLAIN, 1)
ADD(OFFSETS, 0)
ADD(OFFSETS, 1)
ADD(BY_16, 0)
ADD(BY_16, 1)

/* out [M] rows of ldo: `rows` stored rows of w, up to VL. */
static void interleaved_rows(const af_block_x *x, af_dtype type, unpack_fn *unpack_blocks,
                             const uint8_t *w, int64_t rows, float *out, int64_t ldo)
{
    static add_fn *const adds[][2] = {[PLAIN] = {add_PLAIN_0, add_PLAIN_1},
                                      [OFFSETS] = {add_OFFSETS_0, add_OFFSETS_1},
                                      [BY_16] = {add_BY_16_0, add_BY_16_1}};
    const scale_form form = af_by_16(type) ? BY_16 : af_has_offset(type) ? OFFSETS : PLAIN;
    const af_dtype_info *info = af_dtype_get(type);
    const int64_t stride = x->K / info->elems * info->bytes;
    const int groups = af_groups(type);
    const uint8_t *row[VL], *next = w + VL * stride; /* what is read next */
    vec total[AF_BLOCK_ROWS];
    unpacked u;
    for (int64_t m = 0; m < x->M; m++)
        total[m] = (vec){0};
    for (int r = 0; r < VL; r++) /* the last row fills the others' places */
        row[r] = w + AF_MIN(r, rows - 1) * stride;
    for (int64_t k = 0; k < x->K / AF_BLOCK; k += groups) {
        for (int64_t i = 0; i < VL * info->bytes; i += 64) /* too many streams to be foreseen */
            __builtin_prefetch(next + i);
        next += VL * info->bytes;
        unpack_blocks(row, &u);
        adds[form][x->rounded](total, x, &u, groups, k);
        for (int r = 0; r < VL; r++)
            row[r] += info->bytes;
    }
    for (int64_t m = 0; m < x->M; m++)
        memcpy(out + m * ldo, &total[m], (size_t)rows * sizeof *out);
}

void AF_ISA_NAME(af_block_rows)(const af_block_x *x, af_dtype type, const uint8_t *w, int64_t rows,
                                float *out, int64_t ldo)
{
    static unpack_fn *const unpacks[AF_DTYPE_COUNT] = {
        [AF_DTYPE_Q8_0] = unpack_Q8_0,     [AF_DTYPE_Q4_0] = unpack_Q4_0,
        [AF_DTYPE_Q4_1] = unpack_Q4_1,     [AF_DTYPE_Q5_0] = unpack_Q5_0,
        [AF_DTYPE_Q5_1] = unpack_Q5_1,     [AF_DTYPE_Q3_K] = unpack_Q3_K,
        [AF_DTYPE_Q4_K] = unpack_Q4_K,     [AF_DTYPE_Q5_K] = unpack_Q5_K,
        [AF_DTYPE_Q6_K] = unpack_Q6_K,     [AF_DTYPE_IQ4_NL] = unpack_IQ4_NL,
        [AF_DTYPE_IQ4_XS] = unpack_IQ4_XS,
    };
#if !HAS_VNNI
    if (!x->rounded) {
        widen_rows(x, type, w, rows, out, ldo);
        return;
    }
#endif
    const af_dtype_info *info = af_dtype_get(type);
    const int64_t stride = x->K / info->elems * info->bytes;
    for (int64_t n = 0; n < rows; n += VL)
        interleaved_rows(x, type, unpacks[type], w + n * stride, AF_MIN((int64_t)VL, rows - n),
                         out + n, ldo);
}
