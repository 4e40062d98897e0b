/* case_products.h - products of few rows and of low ranks: bnb_linear.cu, bnb_linear_dx.cu,
 * low_rank.cu, low_rank_dw.cu. */
#ifndef AF_CASE_PRODUCTS_H
#define AF_CASE_PRODUCTS_H

#include "host/host_compare.h"
#include "host/tensor_kernels.h"

/* Each value within one rounding to T and `rel` of the largest one (sums in another order). */
template <class T>
static void near_to(const char *what, buf<T> &got, const vec &want, double largest, double rel)
{
    const vec g = got.values();
    double worst = 0;
    for (size_t i = 0; i < want.size(); i++) {
        const double e = want[i] != want[i]
                             ? (g[i] != g[i] ? 0 : 9)
                             : (fabs(g[i] - want[i]) - unit(got.p()) * fabs(want[i])) / largest;
        worst = e <= worst ? worst : e == e ? e : 9;
    }
    if (getenv("AF_SHOW"))
        printf("%-28s %.2g of %.2g\n", what, worst, rel);
    if (worst > rel || !got.rest_is_kept()) {
        printf("%s: error %.3g, %.3g allowed%s\n", what, worst, rel,
               got.rest_is_kept() ? "" : "; wrote past the end");
        failures++;
    }
}

/* ---- 4-bit weights ---- */
struct stacked { /* up to three pieces, and the values that dequant.cu writes */
    int O = 0, I;
    std::vector<buf<u8>> codes, q;
    std::vector<floats> absmax, second;
    float offset[3];
    vec values, exact; /* before rounding to bf16 */
    bnb_pieces pieces;
    int shift, nested_shift;
};
static void fill(stacked &s, const std::vector<int> &rows, int I, bool nf4, int block, bool nested)
{
    const float *book = af_bnb_table(nf4 ? AF_DTYPE_NF4 : AF_DTYPE_FP4);
    s.I = I;
    s.shift = block == 64 ? 0 : 1;
    s.nested_shift = nested ? 8 : -1;
    for (size_t k = 0; k < 3; k++) {
        const int n = (k < rows.size() ? rows[k] : 0) * I, blocks = (n + block - 1) / block;
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
            const double v = book[i % 2 ? byte & 15 : byte >> 4], by = s.absmax[k].v[i / block];
            s.exact.push_back(v * by);
            s.values.push_back(rounded<bf16>((float)v * (float)by));
        }
        s.O += n / I;
    }
    for (size_t k = 0; k < 3; k++)
        s.pieces.at[k] = {s.codes[k].p(), nested ? (void *)s.q[k].p() : (void *)s.absmax[k].p(),
                          nested ? s.second[k].p() : nullptr, k < rows.size() ? 0 : s.O};
    i64 end = 0;
    for (size_t k = 0; k < rows.size(); k++)
        s.pieces.at[k].end = end += rows[k];
}

static void bnb_linear_case(const std::vector<int> &rows, int I, int M, int R, bool nf4, int block,
                            bool nested, int split)
{
    stacked s;
    fill(s, rows, I, nf4, block, nested);
    const int O = s.O, ldx = I + 8, ldy = O + 3, ldl = R + 8, padded = (R + 15) / 16 * 16;
    acts x(numbers((size_t)(M * ldx), 1)), low(numbers((size_t)(M * ldl), 1)),
        bias(numbers((size_t)O, 1)), y((size_t)(M * ldy));
    vec up((size_t)(padded * O)), want = nothing((size_t)(M * ldy));
    for (int i = 0; i < R * O; i++)
        up[i] = number();
    acts bt(up);
    double largest = 0;
    for (int m = 0; m < M; m++)
        for (int o = 0; o < O; o++) {
            double v = get(&bias.v[o]);
            for (int i = 0; i < I; i++)
                v += get(&x.v[m * ldx + i]) * s.exact[(size_t)(o * I + i)];
            for (int r = 0; r < R; r++)
                v += get(&low.v[m * ldl + r]) * get(&bt.v[r * O + o]);
            want[m * ldy + o] = v;
            largest = fmax(largest, fabs(v));
        }
    launch({2, 1}, M > 8 ? 512 : 768,
           M > 8 ? nf4 ? more::nf4_16 : fp4::fp4_16 : few::nf4_8, y.p(), ldy, x.p(), ldx, s.pieces,
           s.offset[0], s.offset[1], s.offset[2], bias.p(), low.p(), ldl, bt.p(), M, O, I, R,
           s.shift, s.nested_shift, split);
    near_to("bnb_linear", y, want, largest, nf4 ? 1e-3 : 1e-6); /* the book in bf16 */
}

/* `parts` blocks share a column of dx; with one of them no sums are left for bnb_join. */
static void bnb_linear_dx_case(const std::vector<int> &rows, int I, int M, int R, unsigned parts)
{
    stacked s;
    fill(s, rows, I, true, 64, true);
    const int O = s.O, ldx = I + 3, ldy = O + 8, ldl = R + 8, lda = I + 8;
    acts dy(numbers((size_t)(M * ldy), 1)), low(numbers((size_t)(M * ldl), 1)),
        a(numbers((size_t)(R * lda), 1)), dx((size_t)(M * ldx));
    floats part((size_t)parts * M * I);
    vec want = nothing((size_t)(M * ldx));
    double largest = 0;
    for (int m = 0; m < M; m++)
        for (int i = 0; i < I; i++) {
            double v = 0;
            for (int o = 0; o < O; o++)
                v += get(&dy.v[m * ldy + o]) * s.values[(size_t)(o * I + i)];
            for (int r = 0; r < R; r++)
                v += get(&low.v[m * ldl + r]) * get(&a.v[r * lda + i]);
            want[m * ldx + i] = v;
            largest = fmax(largest, fabs(v));
        }
    launch({(unsigned)I / 64, parts}, 256, gradients::bnb_linear_dx, dx.p(), ldx, dy.p(), ldy,
           s.pieces, s.offset[0], s.offset[1], s.offset[2], low.p(), ldl, a.p(), lda, part.p(), M,
           O, I, R, s.shift, s.nested_shift);
    if (parts > 1)
        launch({2, 1}, 256, gradients::bnb_join, dx.p(), ldx, part.p(), M, I, (int)parts);
    near_to("bnb_linear_dx", dx, want, largest, 1e-6);
}

/* ---- halves of adapters ---- */
static void low_rank_case(int N, int K, int wide)
{
    const int ldx = K + 8, ldw = K + 16, ldo = wide + 2;
    acts x(numbers((size_t)(N * ldx), 1)), w(numbers((size_t)(32 * ldw), 1)),
        out((size_t)(N * ldo));
    vec want = nothing((size_t)(N * ldo));
    double largest = 0;
    for (int n = 0; n < N; n++)
        for (int r = 0; r < wide; r++) {
            double v = 0;
            for (int k = 0; k < K && r < 32; k++)
                v += get(&x.v[n * ldx + k]) * get(&w.v[r * ldw + k]);
            want[n * ldo + r] = 0.5 * v;
            largest = fmax(largest, fabs(v));
        }
    launch({(unsigned)(N + 15) / 16, 1}, 256, down::low_rank, out.p(), ldo, x.p(), ldx, w.p(), ldw,
           N, K, wide, 0.5f);
    near_to("low_rank", out, want, largest, 1e-6);
}
/* Two parts, the second begins in the middle of y; accumulate adds to what is there. */
static void low_rank_dw_case(int N, bool accumulate)
{
    const int cols[2] = {136, 40}, ranks[2] = {16, 24}, ldy = 136 + 40 + 8, ldz = 16 + 24 + 8;
    acts y(numbers((size_t)(N * ldy), 1)), z(numbers((size_t)(N * ldz), 1));
    floats out[2] = {floats(numbers((size_t)(cols[0] * ranks[0]), 1)),
                     floats(numbers((size_t)(cols[1] * ranks[1]), 1))};
    vec want[2];
    double largest = 0;
    for (int k = 0, from = 0, rank_from = 0; k < 2; from += cols[k], rank_from += ranks[k], k++)
        for (int c = 0; c < cols[k]; c++)
            for (int r = 0; r < ranks[k]; r++) {
                double v = accumulate ? get(&out[k].v[c * ranks[k] + r]) : 0;
                for (int n = 0; n < N; n++)
                    v += get(&y.v[n * ldy + from + c]) * get(&z.v[n * ldz + rank_from + r]);
                want[k].push_back(v);
                largest = fmax(largest, fabs(v));
            }
    const outer::outer_parts parts = {{{out[0].p(), 0, 136, 0, 16, 0, 0},
                                       {out[1].p(), 136, 40, 16, 24, 2, 0},
                                       {nullptr, 0, 0, 0, 0, INT32_MAX, 0},
                                       {nullptr, 0, 0, 0, 0, INT32_MAX, 0}}};
    launch({3, 1}, 256, outer::low_rank_dw, y.p(), ldy, z.p(), ldz, parts, N, (int)accumulate);
    for (int k = 0; k < 2; k++)
        near_to("low_rank_dw", out[k], want[k], largest, 1e-6);
}

static void product_cases()
{
    bnb_linear_case({128}, 256, 1, 0, true, 64, true, 8);
    bnb_linear_case({40, 24, 32}, 192, 7, 24, true, 64, true, 4);
    bnb_linear_case({37, 20}, 64, 3, 0, true, 128, false, 1);
    bnb_linear_case({136, 24}, 448, 11, 5, true, 64, true, 2);
    bnb_linear_case({17}, 256, 16, 16, false, 64, true, 8);
    bnb_linear_case({35}, 1344, 2, 0, true, 64, true, 1); /* more segments than slots */
    bnb_linear_dx_case({40, 24, 32}, 128, 29, 24, 1);
    bnb_linear_dx_case({136, 24}, 64, 3, 0, 3);
    low_rank_case(19, 352, 32);
    low_rank_case(3, 64, 40);
    low_rank_dw_case(300, false);
    low_rank_dw_case(70, true);
}
#endif
