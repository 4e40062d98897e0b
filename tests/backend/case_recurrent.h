/* case_recurrent.h - graphs with the ops that have a state: several sequences, of which some cross
 * a chunk of 64 rows, and rows outside all of them. */
#ifndef AF_CASE_RECURRENT_H
#define AF_CASE_RECURRENT_H

#include "backend/cases.h"

enum { REC_ROWS = 350, REC_BOUNDS = 7 };
static const int32_t rec_bounds[REC_BOUNDS] = {2, 3, 3, 66, 130, 195, 345};

static void case_conv(rec *r)
{
    af_tensor *x = act_2(r, REC_ROWS, 40), *w = param_2(r, 40, 4), *bias = param_1(r, 40);
    finish(r, af_conv(r->g, x, w, bias, ints(r, REC_BOUNDS, rec_bounds), true));
}
static void case_conv_plain(rec *r)
{
    af_tensor *x = act_2(r, REC_ROWS, 37), *w = param_2(r, 37, 3);
    finish(r, af_conv(r->g, x, w, NULL, ints(r, REC_BOUNDS, rec_bounds), false));
}
static void case_conv_three(rec *r)
{
    af_tensor *x = act_2(r, REC_ROWS, 48), *w = param_2(r, 48, 3);
    finish(r, af_conv(r->g, x, w, NULL, ints(r, REC_BOUNDS, rec_bounds), false));
}
static void case_gated_norm(rec *r)
{
    af_tensor *x = act_2(r, 19, 96), *z = act_2(r, 19, 96);
    af_tensor *y = af_gated_norm(r->g, x, z, param_1(r, 24), 1e-5, false);
    finish(r, af_gated_norm(r->g, y, z, param_1(r, 96), 1e-5, true));
}
/* Decays of about 0.02 a row. */
static af_tensor *rec_decay(rec *r, int64_t heads)
{
    af_tensor *a_log = param_n(r, 1, &heads, -5, -3);
    af_tensor *x = act_2(r, REC_ROWS, heads);
    return af_softplus(r->g, x, param_1(r, heads), a_log);
}
static void case_scan_delta(rec *r)
{
    const af_scan_opts o = {
        .heads = 4, .key_heads = 2, .key_dim = 24, .head_dim = 40, .delta = true};
    af_tensor *x = act_2(r, REC_ROWS, 2 * 2 * 24 + 4 * 40),
              *beta = af_sigmoid(r->g, act_2(r, REC_ROWS, 4));
    af_tensor *decay = rec_decay(r, 4);
    finish(r, af_scan(r->g, x, decay, beta, NULL, ints(r, REC_BOUNDS, rec_bounds), &o));
}
static void case_scan_wide(rec *r) /* the sizes of delta.cu */
{
    const af_scan_opts o = {
        .heads = 4, .key_heads = 2, .key_dim = 128, .head_dim = 128, .delta = true};
    af_tensor *x = act_2(r, REC_ROWS, 2 * 2 * 128 + 4 * 128),
              *beta = af_sigmoid(r->g, act_2(r, REC_ROWS, 4));
    af_tensor *decay = rec_decay(r, 4);
    finish(r, af_scan(r->g, x, decay, beta, NULL, ints(r, REC_BOUNDS, rec_bounds), &o));
}
static void case_scan_channel(rec *r) /* a decay per channel */
{
    const af_scan_opts o = {
        .heads = 4, .key_heads = 2, .key_dim = 24, .head_dim = 40, .delta = true};
    af_tensor *x = act_2(r, REC_ROWS, 2 * 2 * 24 + 4 * 40),
              *beta = af_sigmoid(r->g, act_2(r, REC_ROWS, 4));
    af_tensor *decay = rec_decay(r, 4 * 24);
    finish(r, af_scan(r->g, x, decay, beta, NULL, ints(r, REC_BOUNDS, rec_bounds), &o));
}
static void case_scan_mamba(rec *r)
{
    const af_scan_opts o = {.heads = 6, .key_heads = 2, .key_dim = 17, .head_dim = 21};
    af_tensor *x = act_2(r, REC_ROWS, 2 * 2 * 17 + 6 * 21);
    af_tensor *step = act_2(r, REC_ROWS, 6);
    af_tensor *beta = af_softplus(r->g, step, param_1(r, 6), NULL);
    af_tensor *decay = rec_decay(r, 6), *skip = param_1(r, 6);
    finish(r, af_scan(r->g, x, decay, beta, skip, ints(r, REC_BOUNDS, rec_bounds), &o));
}
static void case_scan_mamba_wide(rec *r) /* rows that are read four values at a time */
{
    const af_scan_opts o = {.heads = 4, .key_heads = 1, .key_dim = 40, .head_dim = 64};
    af_tensor *x = act_2(r, REC_ROWS, 2 * 40 + 4 * 64);
    af_tensor *step = act_2(r, REC_ROWS, 4);
    af_tensor *beta = af_softplus(r->g, step, param_1(r, 4), NULL);
    af_tensor *decay = rec_decay(r, 4), *skip = param_1(r, 4);
    finish(r, af_scan(r->g, x, decay, beta, skip, ints(r, REC_BOUNDS, rec_bounds), &o));
}
static void case_selective(rec *r)
{
    enum { I = 150, n = 16 };
    af_tensor *step = act_2(r, REC_ROWS, I), *dt = af_softplus(r->g, step, param_1(r, I), NULL),
              *a = param_n(r, 2, (int64_t[]){I, n}, -1, 1);
    const af_selective_opts o = {act_2(r, REC_ROWS, I),
                                 dt,
                                 af_scale(r->g, af_exp(r->g, a), -1),
                                 act_2(r, REC_ROWS, n),
                                 act_2(r, REC_ROWS, n),
                                 ints(r, REC_BOUNDS, rec_bounds)};
    finish(r, af_selective(r->g, &o));
}
/* Rows that continue a state of zeros, and ones that begin; the state is compared too. `decays`: of
 * a head. */
static void state_cached(rec *r, int64_t decays)
{
    static const int32_t bound[4] = {0, 70, 70, 71}, start[3] = {0, 4, 9};
    enum { N = 73 };
    af_graph *g = r->g;
    const af_scan_opts o = {
        .heads = 4, .key_heads = 2, .key_dim = 20, .head_dim = 36, .delta = true};
    const int64_t C = 2 * 2 * 20 + 4 * 36;
    af_tensor *window = af_graph_state(g, "window", r->t, 3, (int64_t[]){3, 3, C});
    af_tensor *state = af_graph_state(g, "state", AF_DTYPE_F32, 3, (int64_t[]){3, 4, 20 * 36});
    af_tensor *b = ints(r, 4, bound), *s = ints(r, 3, start);
    af_tensor *x =
        af_conv_cached(g, in_2(r, N, C), weight_2(r, r->t, C, 4), NULL, window, b, s, true);
    const int64_t D = 4 * decays;
    af_tensor *decay = af_softplus(g, in_2(r, N, D), weight_1(r, r->t, D), weight_1(r, r->t, D));
    af_tensor *beta = af_sigmoid(g, in_2(r, N, 4));
    out(r, af_scan_cached(g, x, decay, beta, NULL, state, b, s, &o));
    r->out[r->outs++] = state;
    r->out[r->outs++] = window;
}
static void case_state_cached(rec *r) { state_cached(r, 1); }
static void case_channel_cached(rec *r) { state_cached(r, 20); }
/* Rows of the table in case_list.h. */
#define RECURRENT_CASES                                                                            \
    {"conv", case_conv, 0}, {"conv_plain", case_conv_plain, 0},                                    \
        {"conv_three", case_conv_three, 0}, {"gated_norm", case_gated_norm, 1e-2},                 \
        {"scan_delta", case_scan_delta, 1e-2}, {"scan_wide", case_scan_wide, 1e-2},                \
        {"scan_channel", case_scan_channel, 1e-2}, {"scan_mamba", case_scan_mamba, 1e-2},          \
        {"scan_mamba_wide", case_scan_mamba_wide, 1e-2}, {"selective", case_selective, 1e-2},      \
        {"state_cached", case_state_cached, 1e-2},                                                 \
    {                                                                                              \
        "channel_cached", case_channel_cached, 1e-2                                                \
    }
#endif
