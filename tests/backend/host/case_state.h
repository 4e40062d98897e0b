/* case_state.h - kernels of the ops with a state: conv.cu, softplus.cu, gated_norm.cu, scan.cu,
 * scan_bwd.cu. Sequences of 1, 0, 67 and 2 rows, and rows outside all of them. */
#ifndef AF_CASE_STATE_H
#define AF_CASE_STATE_H

#include "host/host_compare.h"
#include "host/host_kernels.h"

static const int state_bounds[] = {1, 2, 2, 69, 71}, state_start[] = {3, 0, 0, 5};
enum { STATE_S = 4, STATE_N = 73 };
static const int act_type = sizeof(act) == 4 ? 0 : unit((act *)nullptr) == 0x1p-8 ? 1 : 2;

static double silu_value(double z) { return z / (1 + exp(-z)); }

/* ---- convolution ---- */
enum { CONV_C = 5, CONV_K = 3 };

/* window: what the sequences saw before, or empty. */
static vec conv_formula(const vec &x, const vec &w, const vec &bias, const vec &window, bool act_on)
{
    vec y(x.size());
    for (int s = 0; s < STATE_S; s++)
        for (int t = state_bounds[s]; t < state_bounds[s + 1]; t++)
            for (int c = 0; c < CONV_C; c++) {
                double u = bias[c];
                for (int k = 0; k < CONV_K; k++) {
                    const int r = t - CONV_K + 1 + k, at = r - state_bounds[s];
                    const double v = at >= 0 ? x[r * CONV_C + c]
                                     : window.empty() || state_start[s] == 0
                                         ? 0.0
                                         : window[((s + 1) * (CONV_K - 1) + at) * CONV_C + c];
                    u += w[c * CONV_K + k] * v;
                }
                y[t * CONV_C + c] = act_on ? silu_value(u) : u;
            }
    return y;
}

static void conv_case(int silu)
{
    using namespace convs;
    acts x(numbers(STATE_N * CONV_C, 1)), dy(numbers(STATE_N * CONV_C, 1)), y(STATE_N * CONV_C),
        dx(STATE_N * CONV_C), window(numbers(STATE_S * (CONV_K - 1) * CONV_C, 1)),
        y2(STATE_N * CONV_C);
    floats w(numbers(CONV_C * CONV_K, 1)), bias(numbers(CONV_C, 1)),
        part(2 * (CONV_K + 1) * CONV_C);
    const vec before = window.values(), wv = w.values(), bv = bias.values(), xv = x.values();
    conv_args a = {.w = w.p(),
                   .bias = bias.p(),
                   .bounds = state_bounds,
                   .start = nullptr,
                   .window = nullptr,
                   .w_type = 0,
                   .bias_type = 0,
                   .window_type = act_type,
                   .S = STATE_S,
                   .C = CONV_C,
                   .K = CONV_K,
                   .silu = silu};
    launch({STATE_N, 1}, 32, conv_fwd, y.p(), x.p(), a, 1, CONV_C, CONV_C);
    launch({STATE_N, 1}, 32, conv_bwd, dx.p(), x.p(), dy.p(), a, 1, CONV_C, CONV_C, CONV_C);
    launch({CONV_K + 1, 2}, 32, conv_dw, part.p(), x.p(), dy.p(), a, 1, STATE_N, 40, CONV_C,
           CONV_C);
    a.window = window.p();
    a.start = state_start;
    launch({STATE_N, 1}, 32, conv_fwd, y2.p(), x.p(), a, 1, CONV_C, CONV_C);
    launch({STATE_S, 1}, 32, conv_shift, x.p(), a, 1, CONV_C);
    same("conv", y, conv_formula(xv, wv, bv, {}, silu), 1e-4);
    same("conv_cached", y2, conv_formula(xv, wv, bv, before, silu), 1e-4);
    vec g = dy.values(), shifted = before;
    for (int i = 0; i < STATE_N * CONV_C; i++) /* rows outside pass nothing */
        if (i / CONV_C < 1 || i / CONV_C >= 71)
            g[i] = 0;
    const auto of_x = [&](const vec &v) { return conv_formula(v, wv, bv, {}, silu); };
    const auto of_w = [&](const vec &v) { return conv_formula(xv, v, bv, {}, silu); };
    const auto of_bias = [&](const vec &v) { return conv_formula(xv, wv, v, {}, silu); };
    same("conv_bwd", dx, gradient(of_x, xv, g), 1e-4);
    const vec dw = gradient(of_w, wv, g), db = gradient(of_bias, bv, g), p = part.values();
    vec sums(dw.size() + db.size()), want = dw;
    want.insert(want.end(), db.begin(), db.end());
    for (size_t i = 0; i < sums.size(); i++)
        sums[i] = p[i] + p[i + sums.size()];
    floats dws(sums);
    same("conv_dw", dws, want, 1e-3);
    for (int s = 0; s < STATE_S; s++)
        for (int k = 0; k < CONV_K - 1; k++)
            for (int c = 0; c < CONV_C; c++) {
                const int len = state_bounds[s + 1] - state_bounds[s],
                          at = len - CONV_K + 1 + k; /* negative: in the old window */
                double v = at >= 0 ? xv[(state_bounds[s] + at) * CONV_C + c]
                           : state_start[s] == 0
                               ? 0.0
                               : before[((s + 1) * (CONV_K - 1) + at) * CONV_C + c];
                if (len > 0)
                    shifted[(s * (CONV_K - 1) + k) * CONV_C + c] = v;
            }
    same("conv_shift", window, shifted, 0);
}

/* ---- softplus ---- */
static vec softplus_formula(const vec &x, const vec &bias, const vec &a, size_t H)
{
    vec y(x.size());
    for (size_t i = 0; i < x.size(); i++)
        y[i] = log1p(exp(x[i] + bias[i % H])) * (a.empty() ? 1.0 : -exp(a[i % H]));
    return y;
}

static void softplus_case(bool with_a)
{
    using namespace softpluses;
    const size_t H = 35, N = 19;
    acts x(numbers(N * H, 3)), dx(N * H);
    floats bias(numbers(H, 1)), a_log(numbers(H, 1)), dy(numbers(N * H, 1)), y(N * H),
        part(2 * 2 * H);
    const softplus_args a = {.bias = bias.p(),
                             .a_log = with_a ? a_log.p() : nullptr,
                             .bias_type = 0,
                             .a_type = 0,
                             .H = (int)H};
    const vec av = with_a ? a_log.values() : vec(), xv = x.values(), bv = bias.values();
    launch({3, 1}, 64, softplus_fwd, y.p(), x.p(), a, N, H, H);
    launch({2, 2}, 256, softplus_bwd, dx.p(), part.p(), x.p(), dy.p(), a, N, 10, H, H, H);
    same("softplus", y, softplus_formula(xv, bv, av, H), 1e-5);
    const vec p = part.values();
    vec got(2 * H), want = gradient([&](const vec &v) { return softplus_formula(xv, v, av, H); },
                                    bv, dy.values());
    same("softplus_bwd", dx,
         gradient([&](const vec &v) { return softplus_formula(v, bv, av, H); }, xv, dy.values()),
         1e-4);
    vec da(H);
    if (with_a)
        da =
            gradient([&](const vec &v) { return softplus_formula(xv, bv, v, H); }, av, dy.values());
    want.insert(want.end(), da.begin(), da.end());
    for (size_t i = 0; i < 2 * H; i++)
        got[i] = i < H || with_a ? p[i] + p[i + 2 * H] : 0.0;
    floats sums(got);
    same("softplus sums", sums, want, 1e-4);
}

/* ---- gated norm ---- */
static vec gated_formula(const vec &x, const vec &z, const vec &w, size_t D, bool first)
{
    const size_t E = w.size();
    vec y(x.size());
    for (size_t g = 0; g < x.size() / E; g++) {
        double ss = 0;
        for (size_t e = 0; e < E; e++) {
            const double h = x[g * E + e] * (first ? silu_value(z[g * E + e]) : 1);
            ss += h * h / (double)E;
        }
        for (size_t e = 0; e < E; e++)
            y[g * E + e] = x[g * E + e] * silu_value(z[g * E + e]) * w[e] / sqrt(ss + norm_eps);
    }
    (void)D;
    return y;
}

static void gated_norm_case(int first)
{
    using namespace gated;
    const size_t N = 3, D = AF_VEC == 1 ? 36 : 6 * AF_VEC, E = first ? D : D / 3, G = D / E;
    acts x(numbers(N * D, 0.2)), z(numbers(N * D, 1)), dy(numbers(N * D, 1)), y(N * D), dx(N * D),
        dz(N * D);
    floats w(numbers(E, 1)), rstd(N * G), part(2 * E);
    const norm_args a = {.w = w.p(),
                         .w_type = 0,
                         .E = (int)E,
                         .groups = (int)G,
                         .first = first,
                         .eps = norm_eps,
                         .by_warp = !first};
    const dim3 blocks = {(unsigned)(a.by_warp ? (N * G + 1) / 2 : N * G), 1};
    launch(blocks, 64, gated_norm_fwd, y.p(), rstd.p(), x.p(), z.p(), a, N * G, D, G, D, D);
    launch(blocks, 64, gated_norm_bwd, dx.p(), dz.p(), x.p(), z.p(), rstd.p(), dy.p(), a, N * G, D,
           D, D, D, G, D);
    launch({2, 2}, 256, gated_norm_dw, part.p(), x.p(), z.p(), rstd.p(), dy.p(), a, N * G,
           (N * G + 1) / 2, D, D, G, D);
    const vec xv = x.values(), zv = z.values(), wv = w.values(), g = dy.values();
    same("gated_norm", y, gated_formula(xv, zv, wv, D, first), 1e-5);
    same("gated_norm dx", dx,
         gradient([&](const vec &v) { return gated_formula(v, zv, wv, D, first); }, xv, g), 1e-4);
    same("gated_norm dgate", dz,
         gradient([&](const vec &v) { return gated_formula(xv, v, wv, D, first); }, zv, g), 1e-4);
    vec sums(E);
    for (size_t e = 0; e < E; e++)
        sums[e] = part.values()[e] + part.values()[E + e];
    floats dw(sums);
    same("gated_norm dw", dw,
         gradient([&](const vec &v) { return gated_formula(xv, zv, v, D, first); }, wv, g), 1e-4);
}

/* ---- scan ---- */
enum { SCAN_H = 2, SCAN_J = 1, SCAN_K = 5, SCAN_V = 6, SCAN_W = 2 * SCAN_K + SCAN_H * SCAN_V };

/* x [N][W], decay [N][H][D], beta [N][H], skip [H] one after another. state: [S][H][K][V] before,
 * and after; empty = zeros. */
template <int V = SCAN_V, int D = 1> static vec scan_formula(const vec &in, bool delta, vec *state)
{
    enum { W = 2 * SCAN_K + SCAN_H * V };
    const double *x = in.data(), *decay = x + STATE_N * W, *beta = decay + STATE_N * SCAN_H * D,
                 *skip = beta + STATE_N * SCAN_H;
    const int q_from = delta ? 0 : W - SCAN_K, k_from = delta ? SCAN_K : W - 2 * SCAN_K,
              v_from = delta ? 2 * SCAN_K : 0;
    vec y(STATE_N * SCAN_H * V);
    for (int s = 0; s < STATE_S; s++)
        for (int h = 0; h < SCAN_H; h++) {
            double st[SCAN_K][V] = {};
            double *home = state ? state->data() + (s * SCAN_H + h) * SCAN_K * V : nullptr;
            if (home && state_start[s] > 0)
                memcpy(st, home, sizeof st);
            for (int t = state_bounds[s]; t < state_bounds[s + 1]; t++) {
                const double *row = x + t * W, *q = row + q_from, *k = row + k_from,
                             *v = row + v_from + h * V;
                double lq = 1e-6, lk = 1e-6, e[SCAN_K];
                for (int i = 0; i < SCAN_K; i++) {
                    lq += q[i] * q[i], lk += k[i] * k[i];
                    e[i] = exp(decay[(t * SCAN_H + h) * D + i % D]);
                }
                lq = delta ? 1 / sqrt(lq * SCAN_K) : 1, lk = delta ? 1 / sqrt(lk) : 1;
                for (int c = 0; c < V; c++) {
                    double u = 0, o = 0;
                    for (int i = 0; i < SCAN_K; i++) {
                        st[i][c] *= e[i];
                        u += st[i][c] * k[i] * lk;
                    }
                    const double d = beta[t * SCAN_H + h] * (v[c] - (delta ? u : 0));
                    for (int i = 0; i < SCAN_K; i++) {
                        st[i][c] += k[i] * lk * d;
                        o += st[i][c] * q[i] * lq;
                    }
                    y[(t * SCAN_H + h) * V + c] = o + skip[h] * v[c];
                }
            }
            if (home && state_bounds[s] < state_bounds[s + 1])
                memcpy(home, st, sizeof st);
        }
    return y;
}

/* As a whole: products on tensor cores round small values as coarsely as large ones. */
template <class T> static void alike(const char *what, buf<T> &got, const vec &want)
{
    const vec g = got.values();
    const double limit = AF_MMA ? 5e-3 : 2e-5 + unit((act *)nullptr);
    double err = 0, all = 0;
    for (size_t i = 0; i < want.size(); i++)
        err += (g[i] - want[i]) * (g[i] - want[i]), all += want[i] * want[i];
    const double rel = sqrt(err / all);
    if (getenv("AF_SHOW"))
        printf("%-28s %.2g of %.2g\n", what, rel, limit);
    if (!(rel <= limit) || !got.rest_is_kept()) {
        printf("%s: error %.2g, %.2g allowed%s\n", what, rel, limit,
               got.rest_is_kept() ? "" : "; wrote past the end");
        failures++;
    }
}

static void scan_case(int delta)
{
    using namespace scans;
    const size_t slots = STATE_N / 64 + STATE_S, KV = SCAN_K * SCAN_V, wide = SCAN_H * SCAN_V;
    acts x(numbers(STATE_N * SCAN_W, 1)), dy(numbers(STATE_N * wide, 1)), y(STATE_N * wide),
        y2(STATE_N * wide), dx(STATE_N * SCAN_W);
    vec slow = numbers(STATE_N * SCAN_H, 0.04), bs = numbers(STATE_N * SCAN_H, 0.4);
    for (double &v : slow)
        v -= 0.05;
    for (double &v : bs) /* of delta nets up to 2: olmo_hybrid */
        v = (v + 0.5) * (delta ? 2 : 1);
    floats decay(slow), beta(bs), skip(numbers(SCAN_H, 1)), states(slots * SCAN_H * KV),
        dstates(slots * SCAN_H * KV), score(slots * SCAN_H * 4096), inverse(slots * SCAN_H * 4096),
        cross(slots * SCAN_H * 4096), dmat(STATE_N * wide), dr(STATE_N * wide),
        error(STATE_N * wide), dq(STATE_N * SCAN_H * SCAN_K), dk(STATE_N * SCAN_H * SCAN_K),
        G(STATE_N * SCAN_H), dd(STATE_N * SCAN_H), db(STATE_N * SCAN_H), dskip(SCAN_H),
        state(numbers(STATE_S * SCAN_H * KV, 1)), keep(slots * SCAN_H);
    const scan_args a = {.x = x.p(),
                         .decay = decay.p(),
                         .beta = beta.p(),
                         .skip = skip.p(),
                         .bounds = state_bounds,
                         .ldx = SCAN_W,
                         .ld_decay = SCAN_H,
                         .ld_beta = SCAN_H,
                         .beta_type = 0,
                         .skip_type = 0,
                         .S = STATE_S,
                         .H = SCAN_H,
                         .J = SCAN_J,
                         .K = SCAN_K,
                         .V = SCAN_V,
                         .q_from = delta ? 0 : SCAN_W - SCAN_K,
                         .k_from = delta ? SCAN_K : SCAN_W - 2 * SCAN_K,
                         .v_from = delta ? 2 * SCAN_K : 0,
                         .delta = delta};
    const dim3 chunks = {(unsigned)slots, SCAN_H}, heads = {SCAN_H, STATE_S};
    vec in = x.values(), after = state.values();
    for (const vec &v : {decay.values(), beta.values(), skip.values()})
        in.insert(in.end(), v.begin(), v.end());
    launch(chunks, 256, scan_scores, score.p(), inverse.p(), cross.p(), a);
    if (delta)
        launch(heads, 256, scan_states, states.p(), dmat.p(), error.p(), inverse.p(), a);
    else {
        launch(chunks, 256, scan_added, states.p(), keep.p(), a);
        launch({1, SCAN_H, STATE_S}, 256, scan_pass, states.p(), keep.p(), 0, a);
    }
    launch({(unsigned)slots, SCAN_H}, 256, scan_out, y.p(), wide, states.p(), dmat.p(), score.p(),
           a);
    launch({STATE_N, 1}, 32, scan_zero, y.p(), act_type, wide, wide, state_bounds, STATE_S);
    alike("scan", y, scan_formula(in, delta, nullptr));
    launch({SCAN_H, STATE_S}, 256, scan_step, y2.p(), wide, state.p(), state_start, a);
    launch({STATE_N, 1}, 32, scan_zero, y2.p(), act_type, wide, wide, state_bounds, STATE_S);
    alike("scan_cached", y2, scan_formula(in, delta, &after));
    alike("scan_cached state", state, after);
    if (delta)
        launch(heads, 256, scan_dstates, dstates.p(), dr.p(), dy.p(), wide, score.p(), inverse.p(),
               a);
    else {
        launch(chunks, 256, scan_dadded, dstates.p(), dy.p(), wide, a);
        launch({1, SCAN_H, STATE_S}, 256, scan_pass, dstates.p(), keep.p(), 1, a);
    }
    launch(chunks, 256, scan_dscores, dx.p(), SCAN_W, db.p(), SCAN_H, G.p(), score.p(), cross.p(),
           dmat.p(), dr.p(), error.p(), dstates.p(), dy.p(), wide, a);
    launch(chunks, 256, scan_dkeys, dq.p(), dk.p(), dd.p(), SCAN_H, G.p(), score.p(), cross.p(),
           states.p(), dstates.p(), dmat.p(), dr.p(), dy.p(), wide, a);
    launch({STATE_N, SCAN_J}, 32, scan_join, dx.p(), SCAN_W, dq.p(), dk.p(), a);
    launch({SCAN_H, 1}, 256, scan_dskip, dskip.p(), dy.p(), wide, a);
    launch({STATE_N, 1}, 32, scan_zero, dx.p(), act_type, SCAN_W, SCAN_W, state_bounds, STATE_S);
    for (floats *f : {&dd, &db})
        launch({STATE_N, 1}, 32, scan_zero, f->p(), 0, SCAN_H, SCAN_H, state_bounds, STATE_S);
    const vec d =
        gradient([&](const vec &v) { return scan_formula(v, delta, nullptr); }, in, dy.values());
    const auto part = [&](size_t from, size_t n) {
        return vec(d.begin() + from, d.begin() + from + n);
    };
    const size_t NH = STATE_N * SCAN_H, NW = STATE_N * SCAN_W;
    alike("scan dx", dx, part(0, NW));
    alike("scan ddecay", dd, part(NW, NH));
    alike("scan dbeta", db, part(NW + NH, NH));
    alike("scan dskip", dskip, part(NW + 2 * NH, SCAN_H));
}

/* channel.cu: two heads share keys; two tiles of columns, one of which is not full. */
static void channel_case()
{
    using namespace scans;
    enum { V = 33, TILES = 2, W = 2 * SCAN_K + SCAN_H * V, D = SCAN_H * SCAN_K, BLOCKS = 3 };
    enum { SUMS = 3 * SCAN_K + 1 };
    const size_t slots = STATE_N / 64 + STATE_S, KV = SCAN_K * V, wide = SCAN_H * V;
    acts x(numbers(STATE_N * W, 1)), dy(numbers(STATE_N * wide, 1)), y(STATE_N * wide),
        y2(STATE_N * wide), dx(STATE_N * W);
    vec slow = numbers(STATE_N * D, 0.04), bs = numbers(STATE_N * SCAN_H, 0.4);
    for (double &v : slow)
        v -= 0.05;
    for (double &v : bs)
        v += 0.5;
    floats decay(slow), beta(bs), states(slots * SCAN_H * KV), inner(BLOCKS * 64 * SCAN_K * 32),
        sums(TILES * STATE_N * SCAN_H * SUMS), dd(STATE_N * D), db(STATE_N * SCAN_H),
        state(numbers(STATE_S * SCAN_H * KV, 1));
    const scan_args a = {.x = x.p(),
                         .decay = decay.p(),
                         .beta = beta.p(),
                         .skip = nullptr,
                         .bounds = state_bounds,
                         .ldx = W,
                         .ld_decay = D,
                         .ld_beta = SCAN_H,
                         .beta_type = 0,
                         .skip_type = 0,
                         .S = STATE_S,
                         .H = SCAN_H,
                         .J = SCAN_J,
                         .K = SCAN_K,
                         .V = V,
                         .q_from = 0,
                         .k_from = SCAN_K,
                         .v_from = 2 * SCAN_K,
                         .delta = 1};
    const unsigned jobs = STATE_S * SCAN_H * TILES;
    vec in = x.values(), after = state.values();
    for (const vec &v : {decay.values(), beta.values(), vec(SCAN_H)})
        in.insert(in.end(), v.begin(), v.end());
    launch({jobs, 1}, 256, channel_scan, y.p(), wide, nullptr, nullptr, states.p(), a);
    launch({jobs, 1}, 256, channel_scan, y2.p(), wide, state.p(), state_start, nullptr, a);
    for (acts *f : {&y, &y2})
        launch({STATE_N, 1}, 32, scan_zero, f->p(), act_type, wide, wide, state_bounds, STATE_S);
    alike("channel", y, scan_formula<V, SCAN_K>(in, true, nullptr));
    alike("channel_cached", y2, scan_formula<V, SCAN_K>(in, true, &after));
    alike("channel_cached state", state, after);
    launch({BLOCKS, 1}, 256, channel_back, dx.p(), W, sums.p(), states.p(), inner.p(), dy.p(), wide,
           STATE_N, jobs, a);
    launch({STATE_N, SCAN_J}, 32, channel_join, dx.p(), W, dd.p(), D, db.p(), SCAN_H, sums.p(),
           STATE_N, a);
    launch({STATE_N, 1}, 32, scan_zero, dx.p(), act_type, W, W, state_bounds, STATE_S);
    launch({STATE_N, 1}, 32, scan_zero, dd.p(), 0, D, D, state_bounds, STATE_S);
    launch({STATE_N, 1}, 32, scan_zero, db.p(), 0, SCAN_H, SCAN_H, state_bounds, STATE_S);
    vec all = dx.values(), got, want, g = dy.values();
    for (const vec &v : {dd.values(), db.values()})
        all.insert(all.end(), v.begin(), v.end());
    for (size_t j = 0; j < all.size(); j += 5) { /* some are enough */
        vec up = in, low = in;
        up[j] += 1e-6, low[j] -= 1e-6;
        up = scan_formula<V, SCAN_K>(up, true, nullptr);
        low = scan_formula<V, SCAN_K>(low, true, nullptr);
        got.push_back(all[j]), want.push_back(0);
        for (size_t i = 0; i < g.size(); i++)
            want.back() += g[i] * (up[i] - low[i]) / 2e-6;
    }
    floats some(got);
    alike("channel gradients", some, want);
}

static void state_cases()
{
    for (int i = 0; i < 2; i++) {
        conv_case(i);
        softplus_case(i);
        gated_norm_case(i);
        scan_case(i);
    }
}
#endif
