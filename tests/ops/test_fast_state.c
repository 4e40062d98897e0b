/* test_fast_state.c - the fast versions of the ops with a state against their twins: sequences of
 * 1, 63, 64, 65 and 150 rows in one batch, none, and rows outside all of them; and the cached
 * forms: a sequence fed in pieces gives what it gives whole. */
#include "fastcheck.h"

static const int32_t ends[] = {2, 3, 3, 66, 130, 195, 345};
enum { SEQUENCES = AF_LEN(ends) - 1, ROWS = 350 };
static const int64_t shape[] = {ROWS, 0, 0};

static void fill_bounds(fastcheck *c, af_tensor *t)
{
    (void)c;
    if (strcmp(t->name, "bounds") == 0)
        memcpy(t->data, ends, sizeof ends);
}
static af_tensor *bounds(fastcheck *c)
{
    return af_graph_input(c->g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){AF_LEN(ends)});
}

static void check(const char *name, fastcheck_build *build, int variants)
{
    for (int v = 0; v < 2 * variants; v++) {
        if (test_sanitized && v % 4 != 1 && v % 4 != 2)
            continue; /* each variant in one type; the release build has both */
        fastcheck c = {.type = v & 1 ? AF_DTYPE_BF16 : AF_DTYPE_F32,
                       .shape = shape,
                       .variant = v / 2,
                       .fill = fill_bounds,
                       .limit = v & 1 ? 1e-2 : 1e-5,
                       .live = v % 4 == 2 ? ROWS - 3 : 0};
        fastcheck_run(name, build, c);
    }
}

static af_tensor *build_conv(fastcheck *c)
{
    const int64_t C = c->variant & 1 ? 37 : 16, K = c->variant & 2 ? 4 : 3;
    af_tensor *bias = c->variant & 1 ? fc_param(c, "bias", 0, C) : NULL;
    return af_conv(c->g, fc_rows(c, C), fc_param(c, "taps", C, K), bias, bounds(c), c->variant & 2);
}

static void test_conv(void **state)
{
    (void)state;
    check("conv", build_conv, 4);
}

static af_tensor *build_gated_norm(fastcheck *c)
{
    const int64_t E = c->variant & 2 ? 36 : 12;
    return af_gated_norm(c->g, fc_rows(c, 36), fc_rows(c, 36), fc_param(c, "norm", 0, E), 1e-3,
                         c->variant & 1);
}

static void test_gated_norm(void **state)
{
    (void)state;
    check("gated_norm", build_gated_norm, 4);
}

/* Slow decay, so that the state of one chunk is felt in the next. Variants above 3: delta with a
 * decay per channel. */
static af_tensor *build_scan(fastcheck *c)
{
    const bool channels = c->variant > 3, delta = c->variant & 1 || channels;
    const af_scan_opts o = {.heads = 4,
                            .key_heads = c->variant & 2 ? 2 : 4,
                            .key_dim = 8,
                            .head_dim = 12,
                            .delta = delta};
    af_tensor *x = fc_rows(c, 2 * o.key_heads * o.key_dim + o.heads * o.head_dim);
    const int64_t D = channels ? o.heads * o.key_dim : o.heads;
    af_tensor *shift = af_graph_constant(c->g, AF_DTYPE_F32, 1, &D, -4.0);
    af_tensor *a_log = af_add(c->g, fc_param(c, "a_log", 0, D), shift);
    af_tensor *decay = af_softplus(c->g, fc_rows(c, D), fc_param(c, "dt_a", 0, D), a_log);
    af_tensor *beta = delta ? af_sigmoid(c->g, fc_rows(c, 4))
                            : af_softplus(c->g, fc_rows(c, 4), fc_param(c, "dt", 0, 4), NULL);
    if (c->variant == 3) /* olmo_hybrid: up to 2 */
        beta = af_scale(c->g, beta, 2);
    return af_scan(c->g, x, decay, beta, delta ? NULL : fc_param(c, "skip", 0, 4), bounds(c), &o);
}

static void test_scan(void **state)
{
    (void)state;
    check("scan", build_scan, 7);
}

/* Channels that fill no group of lanes, one, and several; slow decay. */
static af_tensor *build_selective(fastcheck *c)
{
    const int64_t I = c->variant == 0   ? 5
                      : c->variant == 1 ? 35
                                        : 700,
                  n = c->variant == 2 ? 5 : 16;
    af_tensor *a_log = c->variant == 2 ? fc_param(c, "a_log", 0, I) : NULL;
    af_tensor *dt = af_softplus(c->g, fc_rows(c, I), fc_param(c, "dt", 0, I), a_log);
    dt = a_log ? af_scale(c->g, dt, -1) : dt;
    af_tensor *a = af_scale(c->g, af_exp(c->g, fc_param(c, "a", I, n)), -0.02);
    return af_selective(
        c->g, &(af_selective_opts){fc_rows(c, I), dt, a, fc_rows(c, n), fc_rows(c, n), bounds(c)});
}

static void test_selective(void **state)
{
    (void)state;
    check("selective", build_selective, 3);
}

/* ---- cached: pieces of a sequence in one of two slots, the other one fed with something else ----
 */

enum { LEN = 150, HEADS = 4, KEYS = 2, KEY = 8, HEAD = 12, TAPS = 4 };
enum { WIDTH = 2 * KEYS * KEY + HEADS * HEAD };

typedef struct cached_case {
    af_graph *g;
    af_device *device;
    af_tensor *x, *rates, *bounds, *start, *y;
    bool delta, channels; /* a decay per channel: delta without skip */
} cached_case;

static float number(int64_t i, int stream) { return (float)normal((uint64_t)stream, (uint64_t)i); }

static void write_floats(cached_case *c, af_tensor *t, int stream, float scale, float shift)
{
    af_error err = {0};
    const int64_t n = af_tensor_count(t);
    float *v = calloc((size_t)n, sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = scale * number(i, stream) + shift;
    CHECK_OK(af_tensor_write(c->g, t, v, (uint64_t)n * sizeof *v, &err), err);
    free(v);
}

/* conv, scan: over whole sequences, or with caches for two. */
static void cached_open(cached_case *c, bool cached, bool twins)
{
    af_error err = {0};
    const af_scan_opts o = {
        .heads = HEADS, .key_heads = KEYS, .key_dim = KEY, .head_dim = HEAD, .delta = c->delta};
    CHECK_OK(af_graph_new(&c->g, &err), err);
    CHECK_OK(af_cpu_open(&c->device, 2, &err), err);
    ((af_cpu *)c->device)->twins_only = twins;
    af_graph *g = c->g;
    c->x = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){LEN, WIDTH});
    c->rates = af_graph_input(g, "rates", AF_DTYPE_F32, 2, (int64_t[]){LEN, HEADS});
    c->bounds = af_graph_input(g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){3});
    c->start = af_graph_input(g, "start", AF_DTYPE_I32, 1, (int64_t[]){2});
    af_tensor *w = af_graph_weight(g, "w", AF_DTYPE_F32, 2, (int64_t[]){WIDTH, TAPS}),
              *bias = af_graph_weight(g, "bias", AF_DTYPE_F32, 1, (int64_t[]){WIDTH}),
              *a_log = af_graph_weight(g, "a", AF_DTYPE_F32, 1, (int64_t[]){HEADS}),
              *stretch = af_graph_constant(g, AF_DTYPE_F32, 3, (int64_t[]){1, 1, KEY}, 0),
              *skip = af_graph_weight(g, "skip", AF_DTYPE_F32, 1, (int64_t[]){HEADS});
    af_tensor *window =
        af_graph_state(g, "window", AF_DTYPE_F32, 3, (int64_t[]){2, TAPS - 1, WIDTH});
    af_tensor *state =
        af_graph_state(g, "state", AF_DTYPE_F32, 3, (int64_t[]){2, HEADS, KEY * HEAD});
    af_tensor *decay = af_softplus(g, c->rates, skip, a_log), *beta = af_sigmoid(g, c->rates);
    if (c->channels) {
        decay = af_add(g, af_reshape(g, decay, 3, (int64_t[]){LEN, HEADS, 1}), stretch);
        decay = af_mul(
            g, decay,
            af_reshape(g, af_slice(g, c->x, 1, 0, HEADS * KEY), 3, (int64_t[]){LEN, HEADS, KEY}));
        decay = af_scale(g, af_relu(g, af_reshape(g, decay, 2, (int64_t[]){LEN, HEADS * KEY})), -1);
    }
    af_tensor *own = c->channels ? NULL : skip;
    af_tensor *u = cached ? af_conv_cached(g, c->x, w, bias, window, c->bounds, c->start, true)
                          : af_conv(g, c->x, w, bias, c->bounds, true);
    c->y = cached ? af_scan_cached(g, u, decay, beta, own, state, c->bounds, c->start, &o)
                  : af_scan(g, u, decay, beta, own, c->bounds, &o);
    af_graph_output(g, c->y);
    CHECK_OK(af_graph_prepare(g, c->device, &err), err);
    write_floats(c, w, 11, 0.5f, 0);
    write_floats(c, bias, 12, 0.5f, 0);
    write_floats(c, a_log, 13, 0.5f, -3);
    write_floats(c, skip, 14, 0.5f, 0);
}

static void cached_close(cached_case *c)
{
    af_graph_free(c->g);
    af_device_close(c->device);
}

/* Rows [from, from + n) of the sequence into slot `slot`, `junk` other rows into the other one. */
static void cached_run(cached_case *c, int slot, int64_t from, int64_t n, int64_t junk, float *out)
{
    af_error err = {0};
    float *x = calloc((size_t)LEN * WIDTH, sizeof *x), *rates = calloc(LEN * HEADS, sizeof *rates),
          *y = calloc((size_t)LEN * HEADS * HEAD, sizeof *y);
    const int64_t first = slot ? junk : 0, other = slot ? 0 : n;
    const int32_t bounds[3] = {0, (int32_t)(slot ? junk : n), (int32_t)(n + junk)};
    int32_t start[2] = {(int32_t)from, (int32_t)from};
    for (int64_t i = 0; i < n * WIDTH; i++)
        x[first * WIDTH + i] = number(from * WIDTH + i, 1);
    for (int64_t i = 0; i < n * HEADS; i++)
        rates[first * HEADS + i] = number(from * HEADS + i, 2);
    for (int64_t i = 0; i < junk * WIDTH; i++)
        x[other * WIDTH + i] = number(from + i, 3);
    CHECK_OK(af_tensor_write(c->g, c->x, x, LEN * WIDTH * sizeof *x, &err), err);
    CHECK_OK(af_tensor_write(c->g, c->rates, rates, LEN * HEADS * sizeof *x, &err), err);
    CHECK_OK(af_tensor_write(c->g, c->bounds, bounds, sizeof bounds, &err), err);
    CHECK_OK(af_tensor_write(c->g, c->start, start, sizeof start, &err), err);
    CHECK_OK(af_graph_run(c->g, AF_RUN_FORWARD, &err), err);
    CHECK_OK(af_tensor_read(c->g, c->y, y, LEN * HEADS * HEAD * sizeof *y, &err), err);
    memcpy(out + from * HEADS * HEAD, y + first * HEADS * HEAD,
           (size_t)(n * HEADS * HEAD) * sizeof *y);
    free(x), free(rates), free(y);
}

static void test_pieces_of_a_sequence(void **state)
{
    (void)state;
    static float want[LEN * HEADS * HEAD], got[LEN * HEADS * HEAD];
    static const int64_t pieces[] = {70, 1, 1, 2, 64, 1, 11};
    for (int v = 0; v < 16; v++) {
        const bool channels = v & 8;
        cached_case whole = {.delta = v & 1 || channels, .channels = channels}, c = whole;
        const int slot = v >> 1 & 1;
        cached_open(&whole, false, true);
        cached_run(&whole, 0, 0, LEN, 0, want);
        cached_open(&c, true, v & 4);
        for (int again = 0; again < 2; again++) { /* the second time over what the first left */
            int64_t at = 0;
            for (size_t i = 0; i < AF_LEN(pieces); at += pieces[i++])
                cached_run(&c, slot, at, pieces[i], (int64_t)i % 3, got);
            assert_int_equal(at, LEN);
            for (int i = 0; i < LEN * HEADS * HEAD; i++)
                CHECK_MSG(fabsf(got[i] - want[i]) < 2e-5f, "variant %d: %g, not %g at %d", v,
                          (double)got[i], (double)want[i], i);
        }
        cached_close(&whole);
        cached_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv), cmocka_unit_test(test_gated_norm), cmocka_unit_test(test_scan),
        cmocka_unit_test(test_selective), cmocka_unit_test(test_pieces_of_a_sequence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
