/* case_products.h - products of few rows and of low ranks: bnb_linear.cu, bnb_linear_dx.cu,
 * low_rank.cu, low_rank_dw.cu, glu_adapter.cu. */
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
                            bool nested, int split, int warps = 0)
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
    const auto kernel = warps == 16  ? few_medium::nf4_8_medium
                        : warps == 8 ? M > 8 ? more_small::nf4_16_small : few_small::nf4_8_small
                        : M > 8      ? nf4 ? more::nf4_16 : fp4::fp4_16
                                     : few::nf4_8;
    launch({2, 1},
           warps   ? (unsigned)warps * 32
           : M > 8 ? 512
                   : 768,
           kernel, y.p(), ldy, x.p(), ldx, s.pieces, s.offset[0], s.offset[1], s.offset[2],
           bias.p(), low.p(), ldl, bt.p(), M, O, I, R, s.shift, s.nested_shift, split);
    near_to("bnb_linear", y, want, largest, nf4 ? 1e-3 : 1e-6); /* the book in bf16 */
}

/* Blocks of `rows_each` rows, `split` warps for a tile. */
static void bnb_linear_few_case(const std::vector<int> &rows, int I, int M, int rows_each,
                                int warps, int split)
{
    stacked s;
    fill(s, rows, I, true, 64, true);
    const int O = s.O, ldx = I + 8, ldy = O + 3;
    acts x(numbers((size_t)(M * ldx), 1)), bias(numbers((size_t)O, 1)), y((size_t)(M * ldy));
    vec want = nothing((size_t)(M * ldy));
    double largest = 0;
    for (int m = 0; m < M; m++)
        for (int o = 0; o < O; o++) {
            double v = get(&bias.v[o]);
            for (int i = 0; i < I; i++)
                v += get(&x.v[m * ldx + i]) * s.exact[(size_t)(o * I + i)];
            want[m * ldy + o] = v;
            largest = fmax(largest, fabs(v));
        }
    launch({(unsigned)((O + rows_each - 1) / rows_each), 1}, (unsigned)warps * 32,
           few_2::bnb_linear_few, y.p(), ldy, x.p(), ldx, s.pieces, s.offset[0], s.offset[1],
           s.offset[2], bias.p(), M, O, I, s.nested_shift, rows_each, split);
    near_to("bnb_linear_few", y, want, largest, 1e-3); /* the book in bf16 */
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

/* ---- gated units with adapters ---- */
struct unit_case {
    int N, F, gate, up, down, span;
};
static double silu(double x) { return x / (1 + exp(-x)); }
static double rounded_to_bf16(double v) { return rounded<bf16>((float)v); }

/* The largest magnitude of columns [from, from + cols) of row n. */
static float largest_in(acts &x, int n, int ld, int from, int cols)
{
    double most = 0;
    for (int i = from; i < from + cols; i++)
        most = fmax(most, fabs(get(&x.v[n * ld + i])));
    return (float)most;
}
static u32 float_bits(float v)
{
    u32 bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}
/* Codes and scales of `cols` columns of x, from bounds: to the bit. */
static void same_row_codes(const char *name, acts &x, int ld, int cols, buf<u8> &codes,
                           floats &scale, const std::vector<float> &bound)
{
    bool equal = true;
    for (size_t n = 0; n < bound.size(); n++) {
        const af_fp8_scale s = af_fp8_scale_of(bound[n]);
        equal &= scale.v[n] == s.scale;
        for (int i = 0; i < cols; i++)
            equal &= codes.v[n * cols + i] == af_fp8_code((float)get(&x.v[n * ld + i]) * s.inverse);
    }
    if (!equal) {
        printf("%s: other codes\n", name);
        failures++;
    }
}
static void glu_adapter_fwd_case(const unit_case &c)
{
    const int N = c.N, F = c.F, ldg = 2 * F + 8, ldy = F + 16, lda = F + 24, wide = 40,
              strips = (F + 511) / 512, coded_strips = (F + 1023) / 1024, ldo = wide + 8;
    acts x(numbers((size_t)(N * ldg), 2)), a(numbers((size_t)(c.down * lda), 1)),
        y((size_t)(N * ldy)), out((size_t)(N * ldo)), out2((size_t)(N * ldo));
    floats part((size_t)(strips * N * 16)), part2((size_t)(coded_strips * N * 16));
    vec want = nothing((size_t)(N * ldy)), low = nothing((size_t)(N * ldo));
    double largest = 0;
    for (int n = 0; n < N; n++) {
        for (int f = 0; f < F; f++)
            want[n * ldy + f] = silu(get(&x.v[n * ldg + f])) * get(&x.v[n * ldg + F + f]);
        for (int r = 0; r < wide; r++) {
            double v = 0;
            for (int f = 0; f < F && r < c.down; f++)
                v += rounded_to_bf16(want[n * ldy + f]) * get(&a.v[r * lda + f]);
            low[n * ldo + r] = 0.25 * v;
            largest = fmax(largest, fabs(v));
        }
    }
    const unsigned shares = 4; /* blocks with tiles of more than one strip */
    launch({std::min(shares, (unsigned)(strips * ((N + 15) / 16))), 1}, 256, units::glu_adapter_fwd,
           y.p(), ldy, x.p(), ldg, a.p(), lda, part.p(), N, F, c.down);
    buf<u8> codes((size_t)(N * F));
    floats scale((size_t)N);
    std::vector<u32> found((size_t)(2 * N));
    std::vector<float> bound((size_t)N);
    for (int n = 0; n < N; n++) {
        const float gate = largest_in(x, n, ldg, 0, F), up = largest_in(x, n, ldg, F, F);
        found[n] = float_bits(gate);
        found[N + n] = float_bits(up);
        bound[n] = gate * up;
    }
    launch({(unsigned)coded_strips, (unsigned)((N + c.span - 1) / c.span)}, 256,
           coded::glu_codes_fwd, nullptr, ldy, x.p(), ldg, a.p(), lda, part2.p(), N, F, c.span,
           c.down, coded::fp8_out{codes.p(), scale.p(), found.data(), nullptr});
    same_row_codes("glu_codes_fwd", y, ldy, F, codes, scale, bound);
    const unsigned blocks = (unsigned)(N * 4 + 255) / 256;
    units::low_parts l = {part.p(), out.p(), ldo, strips, 1, {c.down, 0}, wide, {0.25f, 0}};
    launch({blocks, 1}, 256, units::adapter_sums, l, units::dw_parts{}, N, (int)blocks);
    l.part = part2.p();
    l.out = out2.p();
    l.parts = coded_strips;
    launch({blocks, 1}, 256, units::adapter_sums, l, units::dw_parts{}, N, (int)blocks);
    near_to("glu_adapter_fwd h", y, want, 2, 1e-6);
    near_to("glu_adapter_fwd xa", out, low, largest, 2e-4);
    near_to("glu_codes_fwd xa", out2, low, largest, 2e-4);
}
/* In place when `over`; gradients are added to when `add`. */
static void glu_adapter_bwd_case(const unit_case &c, bool over, bool add)
{
    const int N = c.N, F = c.F, R = c.gate + c.up, ldg = 2 * F + 8, ldy = F + 16, ldb = R + 8,
              ldx = R + 16, ldd = 24, wide = 64, ldo = wide + 8, strips = (F + 255) / 256,
              splits = (N + c.span - 1) / c.span;
    acts x(numbers((size_t)(N * ldg), 2)), dy(numbers((size_t)(N * ldy), 1)),
        b(numbers((size_t)(2 * F * ldb), 1)), xa(numbers((size_t)(N * ldx), 1)),
        down(numbers((size_t)(N * ldd), 1)), d((size_t)(N * ldg)), out((size_t)(N * ldo));
    floats low((size_t)(strips * N * 32)), dw((size_t)(splits * F * (R + c.down))),
        db(numbers((size_t)(F * R), 1)), da(numbers((size_t)(c.down * F), 1));
    vec want = over ? x.values() : nothing((size_t)(N * ldg)), g = nothing((size_t)(N * ldo)),
        want_b = db.values(), want_a = da.values();
    vec h((size_t)(N * F));
    for (int n = 0; n < N; n++)
        for (int f = 0; f < F; f++) {
            const double v = get(&x.v[n * ldg + f]), u = get(&x.v[n * ldg + F + f]),
                         t = get(&dy.v[n * ldy + f]), s = 1 / (1 + exp(-v));
            h[n * F + f] = v * s * u;
            want[n * ldg + f] = t * u * s * (1 + v * (1 - s));
            want[n * ldg + F + f] = t * v * s;
        }
    double most = 0;
    for (int n = 0; n < N; n++)
        for (int r = 0; r < wide; r++) {
            double v = 0;
            const int part = r >= c.gate;
            for (int f = 0; f < F && r < R; f++)
                v += rounded_to_bf16(want[n * ldg + part * F + f]) *
                     get(&b.v[(part * F + f) * ldb + r]);
            g[n * ldo + r] = v * (part ? 0.5 : 0.25);
            most = fmax(most, fabs(v));
        }
    for (int part = 0; part < 2; part++)
        for (int f = 0; f < F; f++)
            for (int r = 0; r < (part ? c.up : c.gate); r++) {
                const int at = part ? F * c.gate + f * c.up + r : f * c.gate + r;
                double v = add ? want_b[at] : 0;
                for (int n = 0; n < N; n++)
                    v += rounded_to_bf16(want[n * ldg + part * F + f]) *
                         get(&xa.v[n * ldx + part * c.gate + r]);
                want_b[at] = v;
            }
    for (int r = 0; r < c.down; r++)
        for (int f = 0; f < F; f++) {
            double v = 0;
            for (int n = 0; n < N; n++)
                v += rounded_to_bf16(h[n * F + f]) * get(&down.v[n * ldd + r]);
            want_a[r * F + f] = v;
        }
    acts &to = over ? x : d;
    buf<u8> codes((size_t)(2 * N * F));
    floats scale((size_t)N), low2(low.v.size()), dw2(dw.v.size());
    std::vector<u32> found((size_t)(3 * N));
    std::vector<float> bound((size_t)N);
    for (int n = 0; n < N; n++) {
        const float gate = largest_in(x, n, ldg, 0, F), up = largest_in(x, n, ldg, F, F),
                    of_dy = largest_in(dy, n, ldy, 0, F);
        found[n] = float_bits(gate);
        found[N + n] = float_bits(up);
        found[2 * N + n] = float_bits(of_dy);
        bound[n] = of_dy * fmaxf(gate, 1.13f * up);
    }
    launch({(unsigned)strips, (unsigned)splits}, 256, coded::glu_codes_bwd, nullptr, ldg, x.p(),
           ldg, dy.p(), ldy, b.p(), ldb, xa.p(), ldx, down.p(), ldd, low2.p(), dw2.p(), N, F,
           c.span, coded::glu_ranks{c.gate, c.up, c.down},
           coded::fp8_out{codes.p(), scale.p(), found.data(), found.data() + 2 * N});
    launch({(unsigned)strips, (unsigned)splits}, 256, units::glu_adapter_bwd, to.p(), ldg, x.p(),
           ldg, dy.p(), ldy, b.p(), ldb, xa.p(), ldx, down.p(), ldd, low.p(), dw.p(), N, F, c.span,
           units::glu_ranks{c.gate, c.up, c.down}, units::fp8_out{});
    same_row_codes("glu_codes_bwd", to, ldg, 2 * F, codes, scale, bound);
    same("glu_codes_bwd g", low2, low.values(), 0);
    same("glu_codes_bwd dw", dw2, dw.values(), 0);
    const unsigned first = (unsigned)(N * 8 + 255) / 256;
    const i64 n_db = F * R, all = n_db + F * c.down;
    const units::low_parts l = {low.p(), out.p(),        ldo,  strips,
                                2,       {c.gate, c.up}, wide, {0.25f, 0.5f}};
    const units::dw_parts w = {dw.p(), db.p(), da.p(), n_db, all, splits, add, 0, 0};
    launch({first + (unsigned)(all / 4 + 255) / 256, 1}, 256, units::adapter_sums, l, w, N,
           (int)first);
    near_to("glu_adapter_bwd d", to, want, 2, 1e-6);
    near_to("glu_adapter_bwd g", out, g, most, 2e-4);
    near_to("glu_adapter_bwd db", db, want_b, N, 2e-4);
    near_to("glu_adapter_bwd da", da, want_a, N, 2e-4);
}

/* The extended matrix: an adapter of each piece but the last of several, of growing ranks; B in the
 * spare columns, or A in the spare rows, or neither. */
static void bnb_fill_case(const std::vector<int> &rows, int I, int block, bool nested, bool up,
                          bool down)
{
    stacked s;
    fill(s, rows, I, true, block, nested);
    const int O = s.O, ext = 16, ld = I + ext, parts = rows.size() > 1 ? (int)rows.size() - 1 : 1;
    matrix::fill_half half = {};
    int from = 0, R = 0, at = 0;
    for (int i = 0; i < parts; i++) {
        half.part[i] = {from, rows[i], R, 3 + i, at};
        from += rows[i];
        R += 3 + i;
        at += rows[i] * (3 + i);
    }
    floats a(numbers((size_t)(R * I), 1)), b(numbers((size_t)at, 1));
    half.b = up ? b.p() : nullptr;
    half.a = down ? a.p() : nullptr;
    half.ext = ext, half.rank = R, half.parts = parts;
    acts dst((size_t)((O + ext) * ld));
    vec want = nothing((size_t)((O + ext) * ld));
    for (int o = 0; o < O; o++) {
        for (int i = 0; i < I; i++)
            want[o * ld + i] = s.values[(size_t)(o * I + i)];
        for (int c = 0; up && c < ext; c++)
            want[o * ld + I + c] = 0;
    }
    for (int i = 0; up && i < parts; i++)
        for (int r = 0; r < rows[i]; r++)
            for (int c = 0; c < 3 + i; c++)
                want[(half.part[i].out_from + r) * ld + I + half.part[i].rank_from + c] =
                    rounded<bf16>(b.v[half.part[i].at + r * (3 + i) + c]);
    for (int r = 0; down && r < ext; r++)
        for (int i = 0; i < I; i++)
            want[(O + r) * ld + i] = r < R ? rounded<bf16>(a.v[r * I + i]) : 0;
    const int more = up ? O * ext / 8 : down ? I * ext / 8 : 0;
    launch({2 + (unsigned)(more + 255) / 256, 1}, 256, matrix::bnb_fill_dequant, dst.p(), ld,
           s.pieces, s.offset[0], s.offset[1], s.offset[2], O, I, s.shift, s.nested_shift, half, 2);
    same("bnb_fill", dst, want, 0);
}

static void product_cases()
{
    bnb_fill_case({40, 24, 32}, 192, 64, true, true, false);
    bnb_fill_case({40, 24}, 128, 128, true, false, true);
    bnb_fill_case({37}, 320, 64, false, false, false);
    bnb_linear_case({128}, 256, 1, 0, true, 64, true, 8);
    bnb_linear_case({40, 24, 32}, 192, 7, 24, true, 64, true, 4);
    bnb_linear_case({37, 20}, 64, 3, 0, true, 128, false, 1);
    bnb_linear_few_case({40, 24, 33}, 1792, 1, 36, 4, 2);
    bnb_linear_few_case({37, 20}, 256, 2, 48, 3, 1);
    bnb_linear_few_case({37, 20}, 2560, 1, 28, 6, 3);
    bnb_linear_case({136, 24}, 448, 11, 5, true, 64, true, 2);
    bnb_linear_case({17}, 256, 16, 16, false, 64, true, 8);
    bnb_linear_case({35}, 1344, 2, 0, true, 64, true, 1); /* more segments than slots */
    bnb_linear_case({40, 24}, 448, 7, 5, true, 64, true, 4, 16);
    bnb_linear_case({35}, 704, 3, 0, true, 64, true, 2, 8);
    bnb_linear_case({40, 24, 32}, 192, 8, 24, true, 128, true, 8, 8);
    bnb_linear_case({136, 24}, 448, 11, 5, true, 64, true, 1, 8);
    bnb_linear_dx_case({40, 24, 32}, 128, 29, 24, 1);
    bnb_linear_dx_case({136, 24}, 64, 3, 0, 3);
    low_rank_case(19, 352, 32);
    low_rank_case(3, 64, 40);
    low_rank_dw_case(300, false);
    low_rank_dw_case(70, true);
    glu_adapter_fwd_case({70, 1064, 0, 0, 8, 32});
    glu_adapter_fwd_case({33, 264, 0, 0, 16, 64});
    glu_adapter_bwd_case({70, 264, 16, 16, 16, 32}, true, true);
    glu_adapter_bwd_case({21, 40, 8, 16, 8, 16}, false, false);
    glu_adapter_bwd_case({16, 256, 16, 8, 0, 16}, false, true);
}
#endif
