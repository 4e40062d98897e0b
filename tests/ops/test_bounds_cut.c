/* test_bounds_cut.c - attention that sees its own chunk alone, by plain loops: over sequences that
 * are cut, and through a cache. */
#include "normal.h"
#include "test.h"

#include "backend/cpu/cpu.h"

#include <math.h>

static void test_sequences_are_cut(void **state)
{
    (void)state;
    static const struct {
        int32_t from[5], to[12];
        int64_t chunk, rows;
    } cases[] = {
        {{0, 7, 7, 10, 11}, {0, 3, 6, 7, 10, 11, 11, 11}, 3, 11},
        {{2, 2, 5, 9, 9}, {2, 4, 5, 7, 9, 9, 9, 9, 9, 9, 9}, 2, 13},
        {{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, 100, 5},
        {{0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0}, 1, 2},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_graph *g = NULL;
        af_device *d = NULL;
        af_error err = {0};
        assert_int_equal(af_cpu_open(&d, 1, NULL), AF_OK);
        assert_int_equal(af_graph_new(&g, NULL), AF_OK);
        af_tensor *b = af_graph_input(g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){5});
        af_tensor *y = af_bounds_cut(g, b, cases[i].chunk, cases[i].rows);
        af_graph_output(g, y);
        CHECK_OK(af_graph_prepare(g, d, &err), err);
        CHECK_OK(af_tensor_write(g, b, cases[i].from, sizeof cases[i].from, &err), err);
        CHECK_OK(af_graph_run(g, AF_RUN_FORWARD, &err), err);
        assert_int_equal(af_tensor_dim(y, 0), 5 + cases[i].rows / cases[i].chunk);
        for (int64_t k = 0; k < af_tensor_dim(y, 0); k++)
            CHECK_MSG(((int32_t *)y->data)[k] == cases[i].to[k], "case %zu: bound %d is %d", i,
                      (int)k, ((int32_t *)y->data)[k]);
        af_graph_free(g);
        af_device_close(d);
    }
}

enum { N = 11, H = 4, K = 2, E = 6, WIDTH = (H + 2 * K) * E, CHUNK = 3 };

static double value(int64_t row, int64_t column)
{
    return (double)(float)normal(1, (uint64_t)(row * WIDTH + column));
}

/* Row r of head h, whose chunk begins at row `from`. */
static void attend(int64_t r, int64_t h, int64_t from, double *o)
{
    double p[N], sum = 0;
    const int64_t k = (H + h / (H / K)) * E, v = k + K * E;
    for (int64_t j = from; j <= r; j++) {
        double s = 0;
        for (int64_t e = 0; e < E; e++)
            s += value(r, h * E + e) * value(j, k + e);
        sum += p[j] = exp(s / sqrt(E));
    }
    for (int64_t e = 0; e < E; e++) {
        o[e] = 0;
        for (int64_t j = from; j <= r; j++)
            o[e] += p[j] / sum * value(j, v + e);
    }
}

static void compare(const af_tensor *y, int64_t row, int64_t rows, const char *what)
{
    for (int64_t r = row; r < row + rows; r++)
        for (int64_t h = 0; h < H; h++) {
            double o[E];
            attend(r, h, r / CHUNK * CHUNK, o);
            for (int64_t e = 0; e < E; e++)
                CHECK_MSG(fabs(af_ld(y, ((r - row) * H + h) * E + e) - o[e]) < 1e-5, "%s: row %d",
                          what, (int)r);
        }
}

static const af_attention_opts opts = {.heads = H, .kv_heads = K, .head_dim = E, .causal = true};

static void whole(bool twins)
{
    af_graph *g = NULL;
    af_device *d = NULL;
    af_error err = {0};
    assert_int_equal(af_cpu_open(&d, 1, NULL), AF_OK);
    ((af_cpu *)d)->twins_only = twins;
    assert_int_equal(af_graph_new(&g, NULL), AF_OK);
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){N, WIDTH});
    af_tensor *b = af_graph_input(g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){2});
    af_tensor *y = af_attention(g, x, af_bounds_cut(g, b, CHUNK, N), &opts);
    af_graph_output(g, y);
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    for (int64_t i = 0; i < N * WIDTH; i++)
        af_st(x, i, value(0, i));
    CHECK_OK(af_tensor_write(g, b, (int32_t[]){0, N}, 8, &err), err);
    CHECK_OK(af_graph_run(g, AF_RUN_FORWARD, &err), err);
    compare(y, 0, N, "cut");
    af_graph_free(g);
    af_device_close(d);
}

/* Five rows, then one at a time; chunks end inside of pages. */
static void cached(bool twins)
{
    enum { FIRST = 5, PAGE = 4 };
    af_graph *g = NULL;
    af_device *d = NULL;
    af_error err = {0};
    assert_int_equal(af_cpu_open(&d, 1, NULL), AF_OK);
    ((af_cpu *)d)->twins_only = twins;
    assert_int_equal(af_graph_new(&g, NULL), AF_OK);
    af_graph_set_rows(g, FIRST);
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){FIRST, WIDTH});
    af_tensor *b = af_graph_input(g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){2});
    af_tensor *start = af_graph_input(g, "start", AF_DTYPE_I32, 1, (int64_t[]){1});
    af_attention_opts o = opts;
    o.chunk = CHUNK;
    o.pages = af_graph_input(g, "pages", AF_DTYPE_I32, 2, (int64_t[]){1, 3});
    af_tensor *cache = af_graph_state(g, "cache", AF_DTYPE_F32, 3, (int64_t[]){3, PAGE, 2 * K * E});
    af_tensor *y = af_attention_cached(g, x, cache, b, start, &o);
    af_graph_output(g, y);
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    CHECK_OK(af_tensor_write(g, o.pages, (int32_t[]){2, 0, 1}, 12, &err), err);
    for (int at = 0; at < N; at += at ? 1 : FIRST) {
        const int rows = at ? 1 : FIRST;
        for (int64_t i = 0; i < rows * WIDTH; i++)
            af_st(x, i, value(at, i));
        af_graph_set_live_rows(g, rows);
        CHECK_OK(af_tensor_write(g, b, (int32_t[]){0, rows}, 8, &err), err);
        CHECK_OK(af_tensor_write(g, start, &(int32_t){at}, 4, &err), err);
        CHECK_OK(af_graph_run(g, AF_RUN_FORWARD, &err), err);
        compare(y, at, rows, "cached");
    }
    af_graph_free(g);
    af_device_close(d);
}

static void test_attention_sees_its_chunk(void **state)
{
    (void)state;
    for (int twins = 0; twins < 2; twins++) {
        whole(twins);
        cached(twins);
    }
}

static void test_chunks_without_a_cache_are_refused(void **state)
{
    (void)state;
    af_graph *g = NULL;
    af_error err = {0};
    assert_int_equal(af_graph_new(&g, NULL), AF_OK);
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){N, WIDTH});
    af_tensor *b = af_graph_input(g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){2});
    af_attention_opts o = opts;
    o.chunk = CHUNK;
    af_attention(g, x, b, &o);
    assert_int_equal(af_graph_status(g, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "chunks of 3 need a cache"));
    af_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequences_are_cut),
        cmocka_unit_test(test_attention_sees_its_chunk),
        cmocka_unit_test(test_chunks_without_a_cache_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
