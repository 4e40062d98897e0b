/* case_selective.h - the kernels of selective.cu. Sequences of case_state.h. */
#ifndef AF_CASE_SELECTIVE_H
#define AF_CASE_SELECTIVE_H

#include "host/case_state.h"

enum { SEL_I = 3, SEL_N = 2, SEL_LD = SEL_I + 1 };

/* What it reads, one after another: x, dt, a, b, c. */
struct selective_sizes {
    static constexpr size_t x = 0, dt = STATE_N * SEL_I, a = 2 * dt, b = a + SEL_I * SEL_N,
                            c = b + STATE_N * SEL_N, end = c + STATE_N * SEL_N;
};

/* state: before the sequences, as start says, or empty; it is carried on. */
static vec selective_formula(const vec &in, vec *state)
{
    using z = selective_sizes;
    vec y(STATE_N * SEL_I, 0.0);
    for (int q = 0; q < STATE_S; q++)
        for (int i = 0; i < SEL_I; i++) {
            double s[SEL_N] = {};
            for (int k = 0; k < SEL_N && state && state_start[q]; k++)
                s[k] = (*state)[(q * SEL_I + i) * SEL_N + k];
            for (int r = state_bounds[q]; r < state_bounds[q + 1]; r++)
                for (int k = 0; k < SEL_N; k++) {
                    const double dt = in[z::dt + r * SEL_I + i];
                    s[k] = exp(dt * in[z::a + i * SEL_N + k]) * s[k] +
                           dt * in[z::x + r * SEL_I + i] * in[z::b + r * SEL_N + k];
                    y[r * SEL_I + i] += in[z::c + r * SEL_N + k] * s[k];
                }
            for (int k = 0; k < SEL_N && state && state_bounds[q] < state_bounds[q + 1]; k++)
                (*state)[(q * SEL_I + i) * SEL_N + k] = s[k];
        }
    return y;
}

static vec piece(const vec &v, size_t from, size_t to)
{
    return vec(v.begin() + (long)from, v.begin() + (long)to);
}

static void selective_case()
{
    using namespace selectives;
    using z = selective_sizes;
    enum { PARTS = 1, BORDERS = STATE_N / 16 + STATE_S + 1 };
    acts x(numbers(z::dt, 1)), b(numbers(STATE_N * SEL_N, 1)), c(numbers(STATE_N * SEL_N, 1)),
        y(STATE_N * SEL_LD), y2(STATE_N * SEL_LD), dy(numbers(z::dt, 1)), dx(STATE_N * SEL_LD),
        db(STATE_N * SEL_N), dc(STATE_N * SEL_N);
    vec steps = numbers(z::dt, 0.4), slopes = numbers(SEL_I * SEL_N, 0.7);
    for (double &v : steps)
        v = fabs(v) + 0.05;
    for (double &v : slopes)
        v = -fabs(v);
    floats dt(steps), a(slopes), ddt(z::dt), part(PARTS * STATE_N * 2 * SEL_N),
        da_part(STATE_S * SEL_I * SEL_N), border(BORDERS * SEL_I * SEL_N), da(SEL_I * SEL_N),
        state(numbers(STATE_S * SEL_I * SEL_N, 1));
    buf<int> bounds(vec(state_bounds, state_bounds + STATE_S + 1)),
        start(vec(state_start, state_start + STATE_S));
    selective_args p = {x.p(), b.p(), c.p(), dt.p(),  a.p(), bounds.p(), SEL_I,
                        SEL_I, SEL_N, SEL_N, STATE_S, SEL_I, SEL_N,      STATE_N};
    vec in;
    for (const vec &v : {x.values(), dt.values(), a.values(), b.values(), c.values()})
        in.insert(in.end(), v.begin(), v.end());
    const auto wide = [](const vec &v) {
        vec w = nothing(STATE_N * SEL_LD);
        for (size_t r = 0; r < STATE_N; r++)
            set_row(w, r, SEL_LD, row_of(v, r, SEL_I, SEL_I));
        return w;
    };
    vec carried = state.values();
    const vec wy2 = selective_formula(in, &carried);
    launch({1, STATE_S + 1}, 128, selective_fwd, y.p(), SEL_LD, nullptr, nullptr, p);
    launch({1, STATE_S + 1}, 128, selective_fwd, y2.p(), SEL_LD, state.p(), start.p(), p);
    same("selective_fwd", y, wide(selective_formula(in, nullptr)), 1e-4);
    same("selective_fwd with a state", y2, wide(wy2), 1e-4);
    same("selective_fwd state", state, carried, 1e-5);
    const vec d =
        gradient([](const vec &v) { return selective_formula(v, nullptr); }, in, dy.values());
    launch({PARTS, STATE_S + 1}, 128, selective_bwd, dx.p(), SEL_LD, ddt.p(), SEL_I, part.p(),
           da_part.p(), border.p(), dy.p(), SEL_I, p);
    launch({STATE_N, 1}, 128, selective_rows, db.p(), SEL_N, dc.p(), SEL_N, part.p(), PARTS, p);
    launch({1, 1}, 128, selective_a, da.p(), da_part.p(), p);
    same("selective_bwd dx", dx, wide(piece(d, z::x, z::dt)), 1e-4);
    same("selective_bwd ddt", ddt, piece(d, z::dt, z::a), 1e-4);
    same("selective_bwd da", da, piece(d, z::a, z::b), 1e-4);
    same("selective_bwd db", db, piece(d, z::b, z::c), 1e-4);
    same("selective_bwd dc", dc, piece(d, z::c, z::end), 1e-4);
}
#endif
