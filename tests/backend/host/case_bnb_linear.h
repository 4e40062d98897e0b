/* case_bnb_linear.h - bnb_linear.cu: products with 4-bit weights, in double. */
#ifndef AF_CASE_BNB_LINEAR_H
#define AF_CASE_BNB_LINEAR_H

#include "host/host_compare.h"
#include "host/tensor_kernels.h"

struct stacked { /* up to three pieces of 4-bit weights, and their values in double */
    int O, I;
    bool nested;
    std::vector<buf<u8>> codes, q;
    std::vector<floats> absmax, second;
    float offset[3] = {0.5f, 0.25f, 0.125f};
    vec values;
};
static stacked weights_of(const std::vector<int> &rows, int I, bool nf4, int block, bool nested)
{
    stacked s{0, I, nested, {}, {}, {}, {}, {}, {}};
    const float *book = af_bnb_table(nf4 ? AF_DTYPE_NF4 : AF_DTYPE_FP4);
    for (size_t k = 0; k < rows.size(); k++) {
        const int n = rows[k] * I, blocks = (n + block - 1) / block;
        s.codes.emplace_back((size_t)n / 2);
        s.q.emplace_back((size_t)blocks);
        s.absmax.emplace_back(numbers((size_t)blocks, 2));
        s.second.emplace_back(numbers((size_t)(blocks + 255) / 256, 0.25));
        s.offset[k] = 0.5f / (float)(k + 1);
        for (int i = 0; i < n / 2; i++)
            s.codes[k].v[i] = (u8)af_rng_below(12, k, i, 256);
        for (int b = 0; b < blocks; b++)
            s.q[k].v[b] = (u8)af_rng_below(12, 8 + k, b, 256);
        if (nested)
            af_bnb_unnest(nullptr, s.q[k].p(), s.second[k].p(), s.offset[k], 256, 0, blocks,
                          s.absmax[k].p());
        for (int i = 0; i < n; i++) {
            const u8 byte = s.codes[k].v[i / 2];
            s.values.push_back((double)book[i % 2 ? byte & 15 : byte >> 4] *
                               (double)s.absmax[k].v[i / block]);
        }
        s.O += rows[k];
    }
    return s;
}
static int log2_of(int n)
{
    int k = 0;
    while (1 << k < n)
        k++;
    return k;
}

/* Within the rounding of y and the error of the book in bf16: 2^-9 of the largest sums. */
static void bnb_linear_case(const std::vector<int> &rows, int I, int M, int R, bool nf4, int block,
                            bool nested, int blocks)
{
    stacked s = weights_of(rows, I, nf4, block, nested);
    const int O = s.O, ldx = I + 8, ldy = O + 3, padded = (R + 15) / 16 * 16;
    acts x(numbers((size_t)(M * ldx), 1)), low(numbers((size_t)(M * (R + 8)), 1)),
        bias(numbers((size_t)O, 1)), y((size_t)(M * ldy));
    vec up((size_t)padded * O);
    for (int i = 0; i < R * O; i++)
        up[i] = number();
    acts bt(up);
    vec want = nothing((size_t)(M * ldy));
    double largest = 0;
    for (int m = 0; m < M; m++)
        for (int o = 0; o < O; o++) {
            double v = get(&bias.v[o]), size = 0;
            for (int i = 0; i < I; i++) {
                const double part = get(&x.v[m * ldx + i]) * s.values[(size_t)o * I + i];
                v += part;
                size += part * part;
            }
            for (int r = 0; r < R; r++)
                v += get(&low.v[m * (R + 8) + r]) * get(&bt.v[r * O + o]);
            want[m * ldy + o] = v;
            largest = fmax(largest, sqrt(size));
        }
    bnb_pieces w;
    i64 end = 0;
    for (int k = 0; k < 3; k++) {
        const size_t at = std::min((size_t)k, rows.size() - 1);
        end += (size_t)k < rows.size() ? rows[k] : 0;
        w.at[k] = {s.codes[at].p(), nested ? (void *)s.q[at].p() : (void *)s.absmax[at].p(),
                   nested ? s.second[at].p() : nullptr, end};
    }
    const int last = (int)rows.size() - 1;
    auto kernel = nf4 ? M > 8 ? more::nf4_16 : few::nf4_8 : fp4::fp4_8;
    launch({(unsigned)blocks, 1}, M > 8 ? 512 : 768, kernel, y.p(), ldy, x.p(), ldx, w, s.offset[0],
           s.offset[std::min(1, last)], s.offset[std::min(2, last)], bias.p(), low.p(), R + 8,
           bt.p(), M, O, I, R, log2_of(block / 64), nested ? 8 : -1);
    vec got = y.values();
    double worst = 0;
    for (size_t i = 0; i < got.size(); i++)
        if (want[i] == want[i])
            worst = fmax(worst, got[i] == got[i] ? (fabs(got[i] - want[i]) -
                                                     unit(y.p()) * fabs(want[i])) / largest : 9);
        else if (got[i] == got[i])
            worst = 9;
    if (getenv("AF_SHOW"))
        printf("bnb_linear %d x %d, %d tokens: %.3g\n", O, I, M, worst);
    if (worst > (nf4 ? 2e-3 : 2e-6) || !y.rest_is_kept()) {
        printf("bnb_linear %d x %d, %d tokens: error %.3g of the largest sum%s\n", O, I, M, worst,
               y.rest_is_kept() ? "" : "; wrote past the end");
        failures++;
    }
}
static void bnb_linear_cases()
{
    bnb_linear_case({128}, 256, 1, 0, true, 64, true, 3);
    bnb_linear_case({40, 24, 32}, 192, 7, 24, true, 64, true, 2);
    bnb_linear_case({37, 20}, 64, 3, 0, true, 128, false, 9);
    bnb_linear_case({136, 24, 32}, 1088, 5, 5, true, 64, true, 4);
    bnb_linear_case({17}, 2048, 16, 16, true, 64, true, 1);
    bnb_linear_case({64}, 256, 8, 0, false, 64, true, 2);
}
#endif
