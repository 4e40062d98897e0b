/* test_attention_sink.c - attention with sinks against a softmax with one more column. */
#include "test.h"

#include "backend/cpu/cpu.h"
#include "base/rng.h"

#include <math.h>

enum { N = 75, H = 4, K = 2, E = 16, W = (H + 2 * K) * E, L = 80 };

typedef struct world {
    af_graph *g;
    af_device *d;
} world;

static world begin(bool twins)
{
    af_error err = {0};
    world w;
    CHECK_OK(af_graph_new(&w.g, &err), err);
    CHECK_OK(af_cpu_open(&w.d, 2, &err), err);
    ((af_cpu *)w.d)->twins_only = twins;
    ((af_cpu *)w.d)->poison = true;
    return w;
}

static void run(world w, bool prepare)
{
    af_error err = {0};
    if (prepare)
        CHECK_OK(af_graph_prepare(w.g, w.d, &err), err);
    else
        CHECK_OK(af_graph_run(w.g, AF_RUN_FORWARD, &err), err);
}

static void end(world w)
{
    af_graph_free(w.g);
    af_device_close(w.d);
}

static double number(int stream, int64_t i)
{
    return 2 * af_rng_f64(5, (uint64_t)stream, (uint64_t)i) - 1;
}
static double sink_of(int64_t h) { return 3 * number(2, h); }

/* Row q of a sequence that starts at row 0, head h: the definition, in double. */
static void reference(int64_t q, int64_t h, int window, double *o)
{
    double p[N], sum = exp(sink_of(h));
    const int64_t kv = h / (H / K), from = window && q >= window ? q - window + 1 : 0;
    for (int64_t k = from; k <= q; k++) {
        double s = 0;
        for (int64_t e = 0; e < E; e++)
            s += number(1, q * W + h * E + e) * number(1, k * W + (H + kv) * E + e);
        p[k] = exp(s / sqrt(E));
        sum += p[k];
    }
    for (int64_t e = 0; e < E; e++) {
        o[e] = 0;
        for (int64_t k = from; k <= q; k++)
            o[e] += p[k] / sum * number(1, k * W + (H + K + kv) * E + e);
    }
}

static void compare(const af_tensor *y, int64_t rows, int64_t first, int window, double limit)
{
    double o[E];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t h = 0; h < H; h++) {
            reference(first + i, h, window, o);
            for (int64_t e = 0; e < E; e++) {
                const double got = af_ld(y, (i * H + h) * E + e);
                CHECK_MSG(fabs(got - o[e]) < limit, "row %d head %d: %g, not %g", (int)(first + i),
                          (int)h, got, o[e]);
            }
        }
}

static af_attention_opts opts(world w, int window, af_tensor **sinks)
{
    *sinks = af_graph_input(w.g, "sinks", AF_DTYPE_F32, 1, (int64_t[]){H});
    return (af_attention_opts){.heads = H,
                               .kv_heads = K,
                               .head_dim = E,
                               .causal = true,
                               .window = window,
                               .sinks = *sinks};
}

static void fill(af_tensor *qkv, af_tensor *sinks, int64_t rows, int64_t first)
{
    for (int64_t i = 0; i < rows * W; i++)
        af_st(qkv, i, number(1, first * W + i));
    for (int64_t h = 0; h < H; h++)
        af_st(sinks, h, sink_of(h));
}

static void test_a_column_more_in_the_softmax(void **state)
{
    (void)state;
    for (int v = 0; v < 8; v++) {
        const bool twins = v & 1, half = v & 4;
        const int window = v & 2 ? 6 : 0;
        world w = begin(twins);
        af_tensor *sinks, *qkv = af_graph_input(w.g, "qkv", half ? AF_DTYPE_BF16 : AF_DTYPE_F32, 2,
                                                (int64_t[]){N, W});
        af_tensor *bounds = af_graph_input(w.g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){2});
        const af_attention_opts o = opts(w, window, &sinks);
        af_tensor *y = af_attention(w.g, qkv, bounds, &o);
        af_graph_output(w.g, y);
        run(w, true);
        memcpy(bounds->data, (int32_t[]){0, N}, 2 * sizeof(int32_t));
        fill(qkv, sinks, N, 0);
        run(w, false);
        compare(y, N, 0, window, half ? 2e-2 : 2e-6);
        end(w);
    }
}

/* A prompt of 40 rows, then one row at a time. */
static void test_sinks_of_a_cache(void **state)
{
    (void)state;
    for (int v = 0; v < 4; v++) {
        const int window = v & 2 ? 6 : 0;
        world w = begin(v & 1);
        af_graph_set_rows(w.g, 40);
        af_tensor *sinks, *qkv = af_graph_input(w.g, "qkv", AF_DTYPE_F32, 2, (int64_t[]){40, W});
        af_tensor *bounds = af_graph_input(w.g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){2});
        af_tensor *start = af_graph_input(w.g, "start", AF_DTYPE_I32, 1, (int64_t[]){1});
        af_tensor *cache =
            af_graph_state(w.g, "cache", AF_DTYPE_F32, 3, (int64_t[]){1, L, 2 * K * E});
        const af_attention_opts o = opts(w, window, &sinks);
        af_tensor *y = af_attention_cached(w.g, qkv, cache, bounds, start, &o);
        af_graph_output(w.g, y);
        run(w, true);
        for (int64_t at = 0, rows = 40; at < N; at += rows, rows = 1) {
            memcpy(bounds->data, (int32_t[]){0, (int32_t)rows}, 2 * sizeof(int32_t));
            *(int32_t *)start->data = (int32_t)at;
            af_graph_set_live_rows(w.g, rows);
            fill(qkv, sinks, rows, at);
            run(w, false);
            compare(y, rows, at, window, 2e-6);
        }
        end(w);
    }
}

static void test_sinks_that_do_not_fit(void **state)
{
    (void)state;
    world w = begin(true);
    af_error err = {0};
    af_tensor *sinks;
    af_tensor *qkv = af_graph_input(w.g, "qkv", AF_DTYPE_F32, 2, (int64_t[]){N, W});
    af_tensor *bounds = af_graph_input(w.g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){2});
    af_attention_opts o = opts(w, 0, &sinks);
    o.sinks = bounds;
    af_attention(w.g, qkv, bounds, &o);
    assert_int_equal(af_graph_status(w.g, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "sinks are [2] i32, not one number for each of 4 heads"));
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_column_more_in_the_softmax),
        cmocka_unit_test(test_sinks_of_a_cache),
        cmocka_unit_test(test_sinks_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
