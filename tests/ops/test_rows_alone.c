/* test_rows_alone.c - a sequence alone has the bits it has in a batch: a layer with adapters and
 * the head, wide enough for every GEMM path (sums of several steps, planes of bf16),
 * whatever the types of weights and activations, on one thread and on two. */
#include "normal.h"
#include "test.h"

#include "backend/cpu/cpu.h"
#include "tensor/codec.h"

enum { D = 256, H = 4, K = 2, E = 32, F = 1280, V = 300, ROWS = 70, SEQUENCES = 4 };

static const int64_t lengths[SEQUENCES] = {37, 1, 20, 12};

typedef struct layer {
    af_graph *g;
    af_device *d;
    af_tensor *x, *bounds, *labels, *y, *rows;
} layer;

static af_tensor *weight(layer *l, af_dtype type, int64_t rows, int64_t cols)
{
    return af_graph_weight(l->g, "weight", type, 2, (int64_t[]){rows, cols});
}

/* Two pieces of a projection, an adapter of the given rank on the first one, and one of rank eight
 * on a part of a piece. */
static af_tensor *project(layer *l, af_tensor *x, af_dtype type, int64_t rank, int64_t first,
                          int64_t second)
{
    const int64_t I = af_tensor_dim(x, 1), part = second / 2,
                  values = first * rank + (second - part) * 8;
    const af_linear_opts o = {
        .weight = {weight(l, type, first, I), weight(l, type, second, I)},
        .pieces = 2,
        .a = weight(l, AF_DTYPE_F32, rank + 8, I),
        .b = af_graph_weight(l->g, "b", AF_DTYPE_F32, 1, &values),
        .part = {{0, first, 0, rank, 0.5f}, {first + part, second - part, rank, 8, 2.0f}},
        .parts = 2};
    return af_linear(l->g, x, &o);
}

static void fill(layer *l)
{
    for (int i = 0; i < l->g->n_tensors; i++) {
        af_tensor *t = l->g->tensors[i];
        const int64_t n = af_count(t);
        if (t->role != AF_ROLE_WEIGHT || !t->data)
            continue;
        float *x = calloc((size_t)n, sizeof *x);
        for (int64_t k = 0; k < n; k++)
            x[k] = 0.06f * (float)normal((uint64_t)t->id, (uint64_t)k);
        if (af_dtype_is_float(t->dtype))
            af_convert(t->data, t->dtype, x, AF_DTYPE_F32, (uint64_t)n);
        else
            af_codec_encode_row(t->dtype, x, t->data, n, NULL);
        free(x);
    }
}

static layer layer_open(af_dtype type, af_dtype weights, int64_t rank, int threads)
{
    layer l = {0};
    af_error err = {0};
    CHECK_OK(af_graph_new(&l.g, &err), err);
    CHECK_OK(af_cpu_open(&l.d, threads, &err), err);
    ((af_cpu *)l.d)->poison = true;
    af_graph_set_rows(l.g, ROWS);
    l.x = af_graph_input(l.g, "x", type, 2, (int64_t[]){ROWS, D});
    l.bounds = af_graph_input(l.g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){SEQUENCES + 1});
    l.labels = af_graph_input(l.g, "labels", AF_DTYPE_I32, 1, (int64_t[]){ROWS});
    const af_attention_opts o = {.heads = H, .kv_heads = K, .head_dim = E, .causal = true};
    af_tensor *qkv = project(&l, l.x, weights, rank, H * E, 2 * K * E),
              *mixed = project(&l, af_attention(l.g, qkv, l.bounds, &o), AF_DTYPE_F32, rank, D / 2,
                               D / 2),
              *h = af_add(l.g, l.x, mixed),
              *gated = af_glu(l.g, project(&l, h, weights, rank, F, F), AF_ACT_SILU);
    l.y = project(&l, gated, weights, rank, D / 2, D / 2);
    af_graph_output(l.g, l.y);
    af_graph_output(l.g, af_head_loss(l.g, l.y, weight(&l, weights, V, D), l.labels,
                                      &(af_head_opts){.rows = &l.rows}));
    af_graph_output(l.g, l.rows);
    CHECK_OK(af_graph_prepare(l.g, l.d, &err), err);
    fill(&l);
    return l;
}

static void layer_close(layer *l)
{
    af_graph_free(l->g);
    af_device_close(l->d);
}

/* Sequences [first, end) as a batch. */
static void run(layer *l, int first, int end)
{
    af_error err = {0};
    int32_t *bounds = l->bounds->data, *labels = l->labels->data;
    int64_t before = 0, live = 0;
    for (int s = 0; s < first; s++)
        before += lengths[s];
    for (int s = 0; s < SEQUENCES; s++) {
        live += first + s < end ? lengths[first + s] : 0;
        bounds[s + 1] = (int32_t)live;
    }
    for (int64_t i = 0; i < live; i++)
        labels[i] = (before + i) % 5 ? (int32_t)((before + i) * 31 % V) : -100;
    for (int64_t i = 0; i < live * D; i++)
        af_store_f64(l->x->data, l->x->dtype, (uint64_t)i, normal(7, (uint64_t)(before * D + i)));
    af_graph_set_live_rows(l->g, live);
    CHECK_OK(af_graph_run(l->g, AF_RUN_FORWARD, &err), err);
}

static void check(af_dtype type, af_dtype weights, int64_t rank, int threads)
{
    layer l = layer_open(type, weights, rank, threads);
    const size_t row = (size_t)D * af_dtype_get(type)->bytes;
    uint8_t *y = malloc(ROWS * row);
    float rows[ROWS * 2];
    run(&l, 0, SEQUENCES);
    memcpy(y, l.y->data, ROWS * row);
    memcpy(rows, l.rows->data, sizeof rows);
    int64_t at = 0;
    for (int s = 0; s < SEQUENCES; at += lengths[s++]) {
        run(&l, s, s + 1);
        const size_t n = (size_t)lengths[s];
        CHECK_MSG(memcmp(l.y->data, y + (size_t)at * row, n * row) == 0 &&
                      memcmp(l.rows->data, rows + 2 * at, n * 2 * sizeof *rows) == 0,
                  "%s rows, %s weights, rank %d, %d threads: sequence %d alone has other bits",
                  af_dtype_name(type), af_dtype_name(weights), (int)rank, threads, s);
    }
    free(y);
    layer_close(&l);
}

static void test_a_sequence_alone_has_the_bits_it_has_in_a_batch(void **state)
{
    static const af_dtype types[] = {AF_DTYPE_F32, AF_DTYPE_BF16},
                          weights[] = {AF_DTYPE_F32, AF_DTYPE_BF16, AF_DTYPE_Q8_0, AF_DTYPE_Q4_K};
    size_t i = 0;
    (void)state;
    for (size_t t = 0; t < AF_LEN(types); t++)
        for (size_t w = 0; w < AF_LEN(weights); w++)
            for (int threads = 1; threads <= 2; threads++)
                for (int64_t rank = 16; rank <= 40; rank += 24)
                    if (test_takes(i++))
                        check(types[t], weights[w], rank, threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sequence_alone_has_the_bits_it_has_in_a_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
