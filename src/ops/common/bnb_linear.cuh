/* bnb_linear.cuh - shared by the GEMMs that read 4-bit weights: the stack of pieces, its rows,
 * codes as values of bf16. */
#ifndef AF_BNB_LINEAR_CUH
#define AF_BNB_LINEAR_CUH
#include "bnb_decode.cuh"

#ifndef AF_BOOK
#define AF_BOOK nf4_bits
#endif

struct bnb_piece {
    const u8 *codes;
    const void *absmax;
    const float *nested;
    i64 end; /* first row of the stack after it */
};
struct bnb_pieces {
    bnb_piece at[3];
};
struct bnb_offsets { /* of nested scales, known later than the rest */
    float at[3];
};
/* One row of the stack: its codes, and the scales of its piece from its first segment on. */
struct bnb_row {
    const u8 *codes;
    const void *absmax;
    const float *nested;
    float offset;
    u32 segment;
};

DEV bnb_row find_row(const bnb_pieces &w, const bnb_offsets &offset, int row, int I)
{
    bnb_piece p = w.at[0]; /* indexed by constants: arguments stay where they are */
    float off = offset.at[0];
    int from = 0;
#pragma unroll
    for (int i = 1; i < 3; i++)
        if (row >= (int)w.at[i - 1].end) {
            p = w.at[i];
            off = offset.at[i];
            from = (int)w.at[i - 1].end;
        }
    const i64 first = (i64)(row - from) * I;
    return {p.codes + first / 2, p.absmax, p.nested, off, (u32)(first / 64)};
}

/* The scale of value k of a row, asked for and used later. shift: log2 of the 64-value segments of
 * a block; nested_shift as in scale_of. */
struct bnb_raw {
    u32 absmax; /* a code, or the bits of a float */
    float nested;
};
DEV bnb_raw ask_scale(const bnb_row &r, int k, int shift, int nested_shift)
{
    const u32 block = (r.segment + k / 64) >> shift;
    if (nested_shift < 0)
        return {((const u32 *)r.absmax)[block], 0.0f};
    return {((const u8 *)r.absmax)[block], r.nested[block >> nested_shift]};
}
DEV float use_scale(const bnb_row &r, bnb_raw a, const float *map, int nested_shift)
{
    return nested_shift < 0 ? __uint_as_float(a.absmax)
                            : add_flush(mul_flush(map[a.absmax], a.nested), r.offset);
}

/* Two neighbours of a row of `cols` values, zeros after its end. */
DEV u32 pair_at(const bf16 *row, int col, int cols)
{
    const u16 *p = (const u16 *)row;
    return (col < cols ? p[col] : 0) | (col + 1 < cols ? (u32)p[col + 1] << 16 : 0);
}

/* ---- two codes at a time as two bf16 ----
 * A byte of codes is looked up in shared memory, a copy of the table for each lane so that no bank
 * is hit twice. The book is stored times BOOK_BY, which puts its values close to what bf16 can
 * hold: their error is 2.6 times smaller than that of weights that are scaled and rounded to bf16
 * (fp4 has none). */
#define PAIR_PITCH 256 /* bytes of a byte's copies: 32 lanes, and as much unused */
#define PAIRS      (256 * PAIR_PITCH)

#define nf4_bits_by  1.437005f
#define fp4_bits_by  3.0f
#define JOINED(a, b) a##b
#define BY_OF(book)  JOINED(book, _by)
#define BOOK_BY      BY_OF(AF_BOOK)

/* The values of every byte of codes, 16 bytes (four lanes' copies) a store. */
DEV void fill_pairs(u8 *pairs, int threads, const u32 (&book)[16], float by)
{
    for (int i = threadIdx.x; i < 256 * 8; i += threads) {
        const u32 code = i / 8;
        const u32 v =
            pack_bf16(__uint_as_float(book[code / 16]) * by, __uint_as_float(book[code % 16]) * by);
        *(uint4 *)(pairs + code * PAIR_PITCH + i % 8 * 16) = make_uint4(v, v, v, v);
    }
}
/* The two values of the byte of `code` that `which` (see pair_byte) selects. */
DEV u32 pair_of(const u8 *pairs, u32 code, u32 lane4, u32 which)
{
    return *(const u32 *)(pairs + __byte_perm(code, lane4, which));
}
DEV u32 pair_byte(u32 i) { return 0x5504 | i << 4; }
#endif
