/* case_weights.h - dequant.cu. */
#ifndef AF_CASE_WEIGHTS_H
#define AF_CASE_WEIGHTS_H

#include "host/case_optim.h"

/* ---- quantised weights: the codecs' values, bit for bit ---- */
static void gguf_cases()
{
    using namespace weights;
    static const struct {
        const char *name;
        void (*run)(act *, i64, const u8 *, i64, i64);
        af_decode_fn *decode;
        int elems, bytes, half1, half2; /* where the f16 scales are */
    } types[] = {
        {"q4_0", q4_0_dequant, af_q4_0_decode, 32, 18, 0, 0},
        {"q4_1", q4_1_dequant, af_q4_1_decode, 32, 20, 0, 2},
        {"q5_0", q5_0_dequant, af_q5_0_decode, 32, 22, 0, 0},
        {"q5_1", q5_1_dequant, af_q5_1_decode, 32, 24, 0, 2},
        {"q8_0", q8_0_dequant, af_q8_0_decode, 32, 34, 0, 0},
        {"q2_k", q2_k_dequant, af_q2_k_decode, 256, 84, 80, 82},
        {"q3_k", q3_k_dequant, af_q3_k_decode, 256, 110, 108, 108},
        {"q4_k", q4_k_dequant, af_q4_k_decode, 256, 144, 0, 2},
        {"q5_k", q5_k_dequant, af_q5_k_decode, 256, 176, 0, 2},
        {"q6_k", q6_k_dequant, af_q6_k_decode, 256, 210, 208, 208},
        {"iq4_nl", iq4_nl_dequant, af_iq4_nl_decode, 32, 18, 0, 0},
        {"iq4_xs", iq4_xs_dequant, af_iq4_xs_decode, 256, 136, 0, 0},
        {"mxfp4", mxfp4_dequant, af_mxfp4_decode, 32, 17, -1, 1}, /* 2^-95, and any code */
        {"nvfp4", nvfp4_dequant, af_nvfp4_decode, 64, 36, 4, 4},
        {"iq3_s", iq3_s_dequant, af_iq3_s_decode, 256, 110, 0, 0},
        {"iq3_xxs", iq3_xxs_dequant, af_iq3_xxs_decode, 256, 98, 0, 0},
        {"iq2_s", iq2_s_dequant, af_iq2_s_decode, 256, 82, 0, 0},
        {"tq1_0", tq1_0_dequant, af_tq1_0_decode, 256, 54, 52, 52},
        {"tq2_0", tq2_0_dequant, af_tq2_0_decode, 256, 66, 64, 64},
    };
    for (const auto &t : types) {
        const int cols = 256, rows = 3, blocks = rows * cols / t.elems, ld = cols + 8;
        buf<u8> src((size_t)(blocks * t.bytes));
        for (size_t i = 0; i < src.n; i++)
            src.v[i] = (u8)af_rng_below(11, 0, i, 256);
        for (int b = 0; b < blocks; b++) /* finite ones */
            src.v[b * t.bytes + t.half1 + 1] = 0x21, src.v[b * t.bytes + t.half2 + 1] = 0xa3;
        std::vector<float> values(rows * cols);
        t.decode(src.p(), values.data(), rows * cols);
        acts dst(rows * ld);
        vec want = nothing(rows * ld);
        for (int i = 0; i < rows * cols; i++)
            want[i / cols * ld + i % cols] = rounded<act>(values[i]);
        launch({1, 1}, 256, t.run, dst.p(), ld, src.p(), rows, cols);
        same(t.name, dst, want, 0);
    }
}
static void bnb_case(bool nf4, int cols, bool nested)
{
    using namespace weights;
    const int rows = 3, n = rows * cols, block = 64, blocks = (n + block - 1) / block;
    const float *book = af_bnb_table(nf4 ? AF_DTYPE_NF4 : AF_DTYPE_FP4), offset = 0.5f;
    buf<u8> codes((size_t)(n + 1) / 2), q((size_t)blocks);
    floats absmax(numbers(blocks, 2)), second(vec{0.25});
    acts dst(n);
    vec want(n);
    for (size_t i = 0; i < codes.n; i++)
        codes.v[i] = (u8)af_rng_below(12, 0, i, 256);
    for (int b = 0; b < blocks; b++)
        q.v[b] = (u8)af_rng_below(12, 1, b, 256);
    if (nested)
        af_bnb_unnest(nullptr, q.p(), second.p(), offset, 256, 0, blocks, absmax.p());
    for (int i = 0; i < n; i++)
        want[i] = rounded<act>(book[(int)code_at(codes, i, true)] * absmax.v[i / block]);
    launch({1, 1}, 256, nf4 ? nf4_dequant : fp4_dequant, dst.p(), cols, codes.p(),
           nested ? (void *)q.p() : (void *)absmax.p(), second.p(), offset, rows, cols, block,
           nested ? 256 : 0, 0);
    same(nf4 ? "nf4" : "fp4", dst, want, 0);
}
static void int8_case(int cols)
{
    buf<i8> codes(numbers(3 * cols, 127));
    floats absmax(numbers(3, 2)), values(3 * cols);
    acts dst(3 * cols);
    for (int r = 0; r < 3; r++)
        af_int8_decode_row(codes.p() + r * cols, absmax.v[r], cols, values.p() + r * cols);
    vec want = values.values();
    for (double &v : want)
        v = rounded<act>((float)v);
    launch({1, 1}, 256, weights::i8_dequant, dst.p(), cols, codes.p(), absmax.p(), 3, cols, 0);
    same("i8", dst, want, 0);
}
/* Rows and columns as e4m3, next to the library's rounding: numbers of all sizes, a row and a
 * column of zeros, one with a NaN. */
static void fp8_case(int rows, int cols)
{
    const size_t ld = cols + 8, n = (size_t)(rows * cols);
    vec x = numbers(rows * ld, 1);
    for (size_t i = 0; i < x.size(); i++)
        x[i] = i % ld == 3 || i / ld == 1 ? 0 : ldexp(x[i], (int)(i % 23) - 17);
    for (size_t i = 0; i < ld; i++) /* with a scale of 1: ties between two codes */
        x[4 * ld + i] = i == 7 ? 448 : 16 + (double)(i % 16);
    for (int r = 0; r < rows; r++)
        x[r * ld + 7] = r == 4 ? 448 : 16 + r % 16;
    x[2 * ld + 5] = NAN;
    buf<bf16> w(x);
    floats scale(rows), scale_t(cols);
    buf<u8> q(n), t(n), want(n), want_t(n);
    vec s(rows), st(cols);
    for (int across = 0; across < 2; across++)
        for (int a = 0; a < (across ? cols : rows); a++) {
            std::vector<float> v;
            for (int b = 0; b < (across ? rows : cols); b++)
                v.push_back((float)get(&w.v[across ? b * ld + a : a * ld + b]));
            const af_fp8_scale f = af_fp8_scale_of(af_fp8_largest(v.data(), (int64_t)v.size(), 0));
            (across ? st : s)[a] = f.scale;
            for (size_t b = 0; b < v.size(); b++)
                (across ? want_t : want).v[a * v.size() + b] = af_fp8_code(v[b] * f.inverse);
        }
    launch({(unsigned)rows, 1}, 64, codes8::fp8_rows, q.p(), scale.p(), w.p(), (long long)ld, cols);
    launch({(unsigned)(cols + 31) / 32, 1}, 256, codes8::fp8_columns, t.p(), scale_t.p(), w.p(),
           (long long)ld, rows, cols);
    for (size_t i = 0; i < n; i++) /* any NaN will do */
        for (buf<u8> *b : {&q, &t, &want, &want_t})
            b->v[i] = (b->v[i] & 0x7f) == 0x7f ? 0x7f : b->v[i];
    for (size_t i = 0; i < n; i++)
        if (q.v[i] != want.v[i] || t.v[i] != want_t.v[i]) { /* `same` allows a unit */
            printf("fp8 code %zu: %d and %d, not %d and %d\n", i, q.v[i], t.v[i], want.v[i],
                   want_t.v[i]);
            failures++;
            break;
        }
    same("fp8_rows scale", scale, s, 0);
    same("fp8_columns scale", scale_t, st, 0);
}
#endif
