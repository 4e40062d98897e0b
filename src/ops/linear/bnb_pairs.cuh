/* bnb_pairs.cuh - two 4-bit codes at a time as two bf16 values: a byte of codes is looked up in
 * shared memory, a copy of the table for each lane so that no bank is hit twice. The book is stored
 * times BOOK_BY, which puts its values close to what bf16 can hold: their error is 2.6 times smaller
 * than that of weights that are scaled and rounded to bf16 (fp4 has none). */
#ifndef AF_BNB_PAIRS_CUH
#define AF_BNB_PAIRS_CUH
#include "bnb_linear.cuh"

#define PAIR_PITCH 256 /* bytes from one byte of codes to the next: 32 lanes, and as much unused */
#define PAIRS      (256 * PAIR_PITCH)

#define nf4_bits_by  1.437005f
#define fp4_bits_by  3.0f
#define JOINED(a, b) a##b
#define BY_OF(book)  JOINED(book, _by)
#define BOOK_BY      BY_OF(AF_BOOK)

/* The values of every byte of codes, 16 bytes (four lanes' copies) a store. */
DEV void fill_pairs(u8 *pairs)
{
    for (int i = threadIdx.x; i < 256 * 8; i += blockDim.x) {
        const u32 code = i / 8;
        const u32 v = pack_bf16(__uint_as_float(AF_BOOK[code / 16]) * BOOK_BY,
                                __uint_as_float(AF_BOOK[code % 16]) * BOOK_BY);
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
