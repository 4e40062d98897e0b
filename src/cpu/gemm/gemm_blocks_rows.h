/* gemm_blocks_rows.h - one copy of the loops per block type, for the files that define
 *
 *   mul_rows(x, type, M, rounded, P, w, bytes, out, ldo): out [M] rows of ldo, 2 P stored rows from
 *   w on
 *
 * and include this at their end. A row's sum is the same whatever row it is paired with. */
AF_INLINE void mul_all(const af_block_x *x, af_dtype type, int64_t M, bool rounded,
                       const uint8_t *w, int64_t rows, float *out, int64_t ldo)
{
    const int64_t bytes = x->K / (AF_BLOCK * af_groups(type)) * (int64_t)af_dtype_get(type)->bytes;
    int64_t n = 0;
    for (; n + 2 * PAIRS <= rows; n += 2 * PAIRS)
        mul_rows(x, type, M, rounded, PAIRS, w + n * bytes, bytes, out + n, ldo);
    for (; n < rows; n++) { /* paired with itself: its sums are the same with any other */
        float s[AF_BLOCK_ROWS][2];
        mul_rows(x, type, M, rounded, 1, w + n * bytes, 0, s[0], 2);
        for (int64_t m = 0; m < M; m++)
            out[m * ldo + n] = s[m][0];
    }
}

/* The type, the single row and, with planes, their number are constants of the loops. */
#define CASE(T)                                                                                    \
    case T:                                                                                        \
        if (x->rounded && x->M == 1)                                                               \
            mul_all(x, T, 1, true, w, rows, out, ldo);                                             \
        else if (x->rounded)                                                                       \
            mul_all(x, T, x->M, true, w, rows, out, ldo);                                          \
        else if (x->M == 1)                                                                        \
            mul_all(x, T, 1, false, w, rows, out, ldo);                                            \
        else                                                                                       \
            mul_all(x, T, x->M, false, w, rows, out, ldo);                                         \
        return

void AF_ISA_NAME(af_block_rows)(const af_block_x *x, af_dtype type, const uint8_t *w, int64_t rows,
                                float *out, int64_t ldo)
{
    switch (type) {
        CASE(AF_DTYPE_Q8_0);
        CASE(AF_DTYPE_Q4_0);
        CASE(AF_DTYPE_Q4_1);
        CASE(AF_DTYPE_Q5_0);
        CASE(AF_DTYPE_Q5_1);
        CASE(AF_DTYPE_Q3_K);
        CASE(AF_DTYPE_Q4_K);
        CASE(AF_DTYPE_Q5_K);
        CASE(AF_DTYPE_Q6_K);
        CASE(AF_DTYPE_IQ4_NL);
        CASE(AF_DTYPE_IQ4_XS);
    default:
        assert(!"a type af_block_serves refused");
    }
}
