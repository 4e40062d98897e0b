/* test_lm_props.c - what must hold for the language-model ops whatever the numbers are: the future
 * does not leak, threads, recomputation and live rows do not change a bit, bf16 stays near f64. */
#include "ops/lm_block.h"
#include "test.h"

#include "backend/cpu/cpu.h"
#include "base/rng.h"
#include "format/weights/safetensors.h"

#include <math.h>

/* ---- runs of the two-layer decoder of the golden file ---- */

enum { GRADS_MAX = 8192 };

typedef struct run {
    bool bf16;       /* bf16 activations and f32 parameters; else f64 */
    int threads;     /* 0 = 1 */
    int recompute;   /* af_recompute */
    int times;       /* AF_RUN_GRAD that often; 0 = once */
    bool peek;       /* a forward run alone in between */
    int64_t padding; /* rows after the live ones, with arbitrary values */
    bool live;       /* padding by live rows; else by labels of -100 and bounds */
    bool empty;      /* no live rows */
    /* results */
    double loss;
    double grad[GRADS_MAX];
    int64_t n;
    uint64_t activations;
    /* while running */
    af_safetensors *file;
    af_graph *g;
} run;

static const af_stored *stored(const run *r, const char *kind, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "block.%s.%s", kind, name);
    return af_safetensors_find(r->file, key);
}

static bool is_token_axis(const char *name)
{
    return strcmp(name, "ids") == 0 || strcmp(name, "labels") == 0 ||
           strcmp(name, "positions") == 0;
}

static af_tensor *leaf(void *arg, const char *name)
{
    run *r = arg;
    const af_stored *s = stored(r, "in", name);
    assert_non_null(s);
    int64_t dim[AF_WEIGHT_NDIM_MAX];
    memcpy(dim, s->dim, sizeof dim);
    dim[0] += is_token_axis(name) ? r->padding : 0;
    if (!stored(r, "grad", name))
        return af_graph_input(r->g, name, s->dtype, s->ndim, dim);
    return af_graph_param(r->g, name, r->bf16 ? AF_DTYPE_F32 : AF_DTYPE_F64, s->ndim, dim);
}

static void fill(run *r)
{
    for (int i = 0; i < r->g->n_tensors; i++) {
        af_tensor *t = r->g->tensors[i];
        if (t->role != AF_ROLE_PARAM && t->role != AF_ROLE_INPUT)
            continue;
        const af_stored *s = stored(r, "in", t->name);
        const int64_t n = af_weight_count(s);
        af_convert(t->data, t->dtype, s->data, s->dtype, (uint64_t)n);
        if (r->empty && strcmp(t->name, "bounds") == 0)
            memset(t->data, 0, af_tensor_bytes(t));
        for (int64_t k = n; k < af_count(t); k++) /* padding: never read, or masked */
            ((int32_t *)t->data)[k] = r->live ? INT32_MIN : t->name[0] == 'l' ? -100 : 3;
    }
}

static void run_block(run *r)
{
    af_error err = {0};
    af_device *d;
    char path[4096];
    snprintf(path, sizeof path, "%s/ops/lm_ops.safetensors", golden_dir());
    CHECK_OK(af_safetensors_open(&r->file, path, &err), err);
    CHECK_OK(af_graph_new(&r->g, &err), err);
    CHECK_OK(af_cpu_open(&d, r->threads ? r->threads : 1, &err), err);
    ((af_cpu *)d)->twins_only = true;
    ((af_cpu *)d)->poison = true;
    if (r->threads > 1)
        af_pool_caller_last(((af_cpu *)d)->pool);
    if (r->live)
        af_graph_set_rows(r->g, 10 + r->padding);
    af_graph_set_recompute(r->g, (af_recompute)r->recompute, LMB_LAYERS);
    af_tensor *loss = lm_block_build(r->g, leaf, r);
    af_graph_backward(r->g, loss);
    CHECK_OK(af_graph_prepare(r->g, d, &err), err);
    r->activations = r->g->role_bytes[AF_ROLE_ACTIVATION];
    fill(r);
    if (r->live)
        af_graph_set_live_rows(r->g, r->empty ? 0 : 10);
    for (int k = 0; k < AF_MAX(r->times, 1); k++) {
        if (r->peek)
            CHECK_OK(af_graph_run(r->g, AF_RUN_FORWARD, &err), err);
        CHECK_OK(af_graph_run(r->g, AF_RUN_GRAD, &err), err);
    }
    r->loss = af_ld(loss, 0);
    r->n = 0;
    for (int i = 0; i < r->g->n_tensors; i++) {
        const af_tensor *t = r->g->tensors[i];
        for (int64_t k = 0; t->role == AF_ROLE_PARAM && k < af_count(t); k++) {
            assert_true(r->n < GRADS_MAX);
            r->grad[r->n++] = af_ld(t->grad, k);
        }
    }
    af_graph_free(r->g);
    af_device_close(d);
    af_safetensors_close(r->file);
}

static void same_bits(const char *why, const run *a, const run *b)
{
    CHECK_MSG(memcmp(&a->loss, &b->loss, sizeof a->loss) == 0, "%s: loss %.17g, not %.17g", why,
              b->loss, a->loss);
    CHECK_MSG(a->n == b->n && a->n > 0, "%s: %d gradients, not %d", why, (int)b->n, (int)a->n);
    for (int64_t i = 0; i < a->n; i++)
        CHECK_MSG(a->grad[i] == b->grad[i], "%s: gradient %d is %.17g, not %.17g", why, (int)i,
                  b->grad[i], a->grad[i]);
}

static void test_recomputation_changes_no_bit(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        static run a, b;
        a = (run){.bf16 = bf16};
        run_block(&a);
        for (int mode = AF_RECOMPUTE_CHEAP; mode <= AF_RECOMPUTE_BLOCK; mode++) {
            b = (run){.bf16 = bf16, .recompute = mode};
            run_block(&b);
            same_bits("recomputed", &a, &b);
        }
    }
}

static void test_threads_change_no_bit(void **state)
{
    (void)state;
    static run a, b;
    a = (run){.bf16 = true, .threads = 1};
    run_block(&a);
    for (int threads = 2; threads <= 4; threads++) {
        b = (run){.bf16 = true, .threads = threads};
        run_block(&b);
        same_bits("threads", &a, &b);
    }
}

static void test_padding_changes_no_bit(void **state)
{
    (void)state;
    static run a, b;
    a = (run){.bf16 = true};
    run_block(&a);
    for (int live = 0; live < 2; live++) {
        b = (run){.bf16 = true, .padding = 7, .live = live};
        run_block(&b);
        same_bits(live ? "dead rows" : "masked rows", &a, &b);
    }
}

static void test_gradients_add_up_over_runs_and_forward_runs_add_nothing(void **state)
{
    (void)state;
    static run a, b;
    a = (run){.bf16 = false};
    run_block(&a);
    b = (run){.bf16 = false, .times = 2, .peek = true};
    run_block(&b);
    for (int64_t i = 0; i < a.n; i++)
        CHECK_MSG(fabs(b.grad[i] - 2 * a.grad[i]) <= 1e-12 * fabs(a.grad[i]) + 1e-15,
                  "gradient %d is %g, not twice %g", (int)i, b.grad[i], a.grad[i]);
}

static void test_bf16_stays_near_f64(void **state)
{
    (void)state;
    static run a, b;
    double err2 = 0, ref2 = 0;
    a = (run){.bf16 = false};
    run_block(&a);
    b = (run){.bf16 = true};
    run_block(&b);
    CHECK_MSG(fabs(a.loss - b.loss) < 0.01 * a.loss, "loss %g, in f64 %g", b.loss, a.loss);
    for (int64_t i = 0; i < a.n; i++) {
        err2 += (a.grad[i] - b.grad[i]) * (a.grad[i] - b.grad[i]);
        ref2 += a.grad[i] * a.grad[i];
    }
    /* PyTorch in bf16 is 3.8 % away on the same numbers */
    CHECK_MSG(sqrt(err2) < 0.038 * sqrt(ref2), "gradients differ by %g of %g", sqrt(err2),
              sqrt(ref2));
    CHECK_MSG(err2 > 0, "bf16 rounds nothing");
}

/* ---- attention ---- */

typedef struct world {
    af_graph *g;
    af_device *d;
} world;

static world begin(void)
{
    af_error err = {0};
    world w;
    CHECK_OK(af_graph_new(&w.g, &err), err);
    CHECK_OK(af_cpu_open(&w.d, 2, &err), err);
    ((af_cpu *)w.d)->twins_only = true;
    ((af_cpu *)w.d)->poison = true;
    return w;
}

static void prepare(world w)
{
    af_error err = {0};
    CHECK_OK(af_graph_prepare(w.g, w.d, &err), err);
}

static void go(world w, int what)
{
    af_error err = {0};
    CHECK_OK(af_graph_run(w.g, what, &err), err);
}

static void end(world w)
{
    af_graph_free(w.g);
    af_device_close(w.d);
}

static void random_fill(af_tensor *t, uint64_t seed)
{
    for (int64_t i = 0; i < af_count(t); i++)
        af_st(t, i, 2 * af_rng_f64(seed, 9, (uint64_t)i) - 1);
}

static void test_the_future_never_changes_the_past(void **state)
{
    (void)state;
    enum { N = 17, H = 4, K = 2, E = 3, W = (H + 2 * K) * E };
    for (int window = 0; window < 6; window += 5) {
        world w = begin();
        const af_attention_opts o = {
            .heads = H, .kv_heads = K, .head_dim = E, .causal = true, .window = window};
        af_tensor *qkv = af_graph_input(w.g, "qkv", AF_DTYPE_F64, 2, (int64_t[]){N, W});
        af_tensor *bounds = af_graph_input(w.g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){3});
        af_tensor *y = af_attention(w.g, qkv, bounds, &o);
        af_graph_output(w.g, y);
        prepare(w);
        memcpy(bounds->data, (int32_t[]){0, 12, 17}, 3 * sizeof(int32_t));
        random_fill(qkv, 1);
        go(w, AF_RUN_FORWARD);
        double before[N * H * E];
        memcpy(before, y->data, sizeof before);
        for (int t = 1; t < 12; t++) {
            random_fill(qkv, 1);
            for (int64_t i = (int64_t)t * W; i < 12 * W; i++)
                af_st(qkv, i, af_ld(qkv, i) + 100.0);
            go(w, AF_RUN_FORWARD);
            assert_memory_equal(before, y->data, (size_t)t * H * E * sizeof(double));
            assert_memory_not_equal(before + t * H * E, (double *)y->data + t * H * E,
                                    H * E * sizeof(double));
            assert_memory_equal(before + 12 * H * E, (double *)y->data + 12 * H * E,
                                5 * H * E * sizeof(double)); /* nor the other sequence */
        }
        end(w);
    }
}

/* Two sequences of 9 and 4 tokens: whole, and from a cache in pieces of 5+4 and 1+3 tokens. */
static void test_the_cache_gives_what_attention_gives(void **state)
{
    (void)state;
    enum { H = 4, K = 2, E = 3, W = (H + 2 * K) * E, A = 9, B = 4, L = 12 };
    static const int32_t pieces[2][5] = {{0, 5, 6, 0, 0}, {0, 4, 7, 5, 1}}; /* bounds, start */
    for (int v = 0; v < 3; v++) {
        const af_attention_opts o = {.heads = H,
                                     .kv_heads = K,
                                     .head_dim = E,
                                     .causal = true,
                                     .window = v == 1 ? 3 : 0,
                                     .softcap = v == 2 ? 1.5 : 0};
        world w = begin(), c = begin();
        af_tensor *qkv = af_graph_input(w.g, "qkv", AF_DTYPE_F32, 2, (int64_t[]){A + B, W});
        af_tensor *bounds = af_graph_input(w.g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){3});
        af_tensor *whole = af_attention(w.g, qkv, bounds, &o);
        af_graph_output(w.g, whole);
        prepare(w);
        memcpy(bounds->data, (int32_t[]){0, A, A + B}, 3 * sizeof(int32_t));
        random_fill(qkv, 3);
        go(w, AF_RUN_FORWARD);

        af_tensor *part = af_graph_input(c.g, "qkv", AF_DTYPE_F32, 2, (int64_t[]){8, W});
        af_tensor *cache =
            af_graph_state(c.g, "cache", AF_DTYPE_F32, 3, (int64_t[]){2, L, 2 * K * E});
        af_tensor *at = af_graph_input(c.g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){3});
        af_tensor *start = af_graph_input(c.g, "start", AF_DTYPE_I32, 1, (int64_t[]){2});
        af_tensor *y = af_attention_cached(c.g, part, cache, at, start, &o);
        af_graph_output(c.g, y);
        prepare(c);
        for (int step = 0; step < 2; step++) {
            const int32_t *p = pieces[step];
            memcpy(at->data, p, 3 * sizeof(int32_t));
            memcpy(start->data, p + 3, 2 * sizeof(int32_t));
            for (int s = 0; s < 2; s++)
                for (int32_t r = p[s]; r < p[s + 1]; r++)
                    memcpy((float *)part->data + r * W,
                           (float *)qkv->data + (s * A + p[3 + s] + r - p[s]) * W,
                           W * sizeof(float));
            go(c, AF_RUN_FORWARD);
            for (int s = 0; s < 2; s++)
                for (int32_t r = p[s]; r < p[s + 1]; r++)
                    assert_memory_equal((float *)y->data + r * H * E,
                                        (float *)whole->data +
                                            (s * A + p[3 + s] + r - p[s]) * H * E,
                                        H * E * sizeof(float));
            for (int64_t i = (int64_t)p[2] * H * E; i < 8 * H * E; i++)
                assert_true(af_ld(y, i) == 0);
        }
        end(w);
        end(c);
    }
}

/* ---- a block whose sublayer is zero passes the gradient through untouched ---- */

static void test_zero_sublayer_passes_the_gradient(void **state)
{
    (void)state;
    enum { N = 5, D = 17 };
    world w = begin();
    af_tensor *x = af_graph_param(w.g, "x", AF_DTYPE_F32, 2, (int64_t[]){N, D});
    af_tensor *n = af_graph_weight(w.g, "n", AF_DTYPE_F32, 1, (int64_t[]){D});
    af_tensor *zero = af_graph_weight(w.g, "zero", AF_DTYPE_BF16, 2, (int64_t[]){D, D});
    af_tensor *mix = af_graph_input(w.g, "mix", AF_DTYPE_F32, 2, (int64_t[]){N, D});
    af_tensor *h = af_rmsnorm(w.g, x, n, 1e-5, false), *sum;
    af_tensor *f = af_linear(w.g, h, &(af_linear_opts){.weight[0] = zero, .pieces = 1});
    af_rmsnorm_add(w.g, f, x, n, 1e-5, false, &sum);
    af_graph_backward(w.g, af_sum_all(w.g, af_mul(w.g, sum, mix)));
    prepare(w);
    random_fill(x, 1);
    random_fill(n, 2);
    random_fill(mix, 3);
    go(w, AF_RUN_GRAD);
    for (int64_t i = 0; i < N * D; i++)
        assert_true(af_ld(x->grad, i) == af_ld(mix, i));
    end(w);
}

/* ---- what is recorded ---- */

static int count_nodes(const af_graph *g, af_op op)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i]->op == op;
    return n;
}

static void test_frozen_weights_cost_no_gradient_nodes(void **state)
{
    (void)state;
    world w = begin();
    af_linear_opts o = {.pieces = 1, .parts = 1, .part = {{0, 4, 0, 2, 1.0f}}};
    o.weight[0] = af_graph_weight(w.g, "w", AF_DTYPE_BF16, 2, (int64_t[]){4, 3});
    o.a = af_graph_param(w.g, "a", AF_DTYPE_F32, 2, (int64_t[]){2, 3});
    o.b = af_graph_param(w.g, "b", AF_DTYPE_F32, 1, (int64_t[]){8});
    af_tensor *x = af_graph_input(w.g, "x", AF_DTYPE_BF16, 2, (int64_t[]){5, 3});
    af_tensor *head = af_graph_weight(w.g, "head", AF_DTYPE_BF16, 2, (int64_t[]){7, 4});
    af_tensor *labels = af_graph_input(w.g, "labels", AF_DTYPE_I32, 1, (int64_t[]){5});
    af_tensor *y = af_linear(w.g, x, &o);
    af_graph_backward(w.g, af_head_loss(w.g, y, head, labels, &(af_head_opts){0}));
    prepare(w);
    assert_int_equal(count_nodes(w.g, AF_OP_LINEAR_DX), 0); /* x is an input */
    assert_int_equal(count_nodes(w.g, AF_OP_LINEAR_DW), 0);
    assert_int_equal(count_nodes(w.g, AF_OP_ADAPTER_DA), 1);
    assert_int_equal(count_nodes(w.g, AF_OP_ADAPTER_DB), 1);
    assert_int_equal(count_nodes(w.g, AF_OP_HEAD_LOSS), 1);
    assert_int_equal(count_nodes(w.g, AF_OP_BINARY), 0); /* the seed is 1: nothing to multiply */
    assert_int_equal(count_nodes(w.g, AF_OP_ACCUM), 0);  /* gradients are added where they lie */
    assert_true(w.g->flops >= 2.0 * 5 * (4 * 3 + 2 * (3 + 4)) + 2 * 2.0 * 5 * 7 * 4);
    go(w, AF_RUN_GRAD);
    end(w);
}

/* padding_idx of PyTorch: the row is read, but learns nothing from being read. */
static void test_a_frozen_row_of_a_table_gets_no_gradient(void **state)
{
    (void)state;
    world w = begin();
    af_tensor *ids = af_graph_input(w.g, "ids", AF_DTYPE_I32, 1, (int64_t[]){4});
    af_tensor *table = af_graph_param(w.g, "table", AF_DTYPE_F32, 2, (int64_t[]){3, 2});
    af_tensor *y = af_embedding(w.g, ids, table, AF_DTYPE_F32);
    af_embedding_frozen_row(w.g, y, 1);
    af_graph_backward(w.g, af_sum_all(w.g, y));
    prepare(w);
    memcpy(ids->data, (int32_t[]){1, 2, 1, 0}, 4 * sizeof(int32_t));
    go(w, AF_RUN_GRAD);
    static const float want[6] = {1, 1, 0, 0, 1, 1};
    assert_memory_equal(table->grad->data, want, sizeof want);
    end(w);
}

/* No live row at all: the loss is 0 and no gradient changes. */
static void test_a_run_without_rows_gives_zeros(void **state)
{
    (void)state;
    static run r;
    r = (run){.bf16 = true, .padding = 7, .live = true, .empty = true};
    run_block(&r);
    assert_true(r.loss == 0);
    for (int64_t i = 0; i < r.n; i++)
        assert_true(r.grad[i] == 0);
}

/* No constant hidden in a kernel ends a long batch early: every row has a loss and a gradient, and
 * the last token sees the first. */
static void test_every_row_of_a_long_batch_counts(void **state)
{
    (void)state;
    enum { N = 1500, D = 8, V = 16, W = 3 * D };
    world w = begin();
    af_tensor *h = af_graph_param(w.g, "h", AF_DTYPE_F32, 2, (int64_t[]){N, D});
    af_tensor *head = af_graph_weight(w.g, "head", AF_DTYPE_F32, 2, (int64_t[]){V, D});
    af_tensor *labels = af_graph_input(w.g, "labels", AF_DTYPE_I32, 1, (int64_t[]){N}), *rows;
    af_tensor *qkv = af_graph_param(w.g, "qkv", AF_DTYPE_F32, 2, (int64_t[]){N, W});
    af_tensor *bounds = af_graph_input(w.g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){2});
    af_tensor *y = af_attention(
        w.g, qkv, bounds,
        &(af_attention_opts){.heads = 1, .kv_heads = 1, .head_dim = D, .causal = true});
    af_tensor *last = af_sum_all(w.g, af_slice(w.g, y, 0, N - 1, 1));
    af_tensor *loss = af_head_loss(w.g, h, head, labels, &(af_head_opts){.rows = &rows});
    af_graph_output(w.g, rows);
    af_graph_output(w.g, loss);
    af_graph_backward(w.g, af_add(w.g, loss, last));
    prepare(w);
    memcpy(bounds->data, (int32_t[]){0, N}, 2 * sizeof(int32_t));
    for (int64_t i = 0; i < N * D; i++)
        ((float *)h->data)[i] = (float)af_rng_normal(1, 1, (uint64_t)i);
    for (int64_t i = 0; i < V * D; i++)
        ((float *)head->data)[i] = (float)af_rng_normal(1, 2, (uint64_t)i);
    for (int32_t i = 0; i < N; i++)
        ((int32_t *)labels->data)[i] = i % V;
    memset(qkv->data, 0, N * W * sizeof(float)); /* every key is seen alike */
    go(w, AF_RUN_GRAD);
    const float *row = rows->data, *dh = h->grad->data, *dqkv = qkv->grad->data;
    double sum = 0;
    for (int64_t i = 0; i < N; i++) {
        float most = 0;
        for (int64_t k = 0; k < D; k++)
            most = fmaxf(most, fabsf(dh[i * D + k]));
        CHECK_MSG(row[2 * i] > 0 && most > 0, "row %d has loss %g and gradient %g", (int)i,
                  row[2 * i], most);
        CHECK_MSG(fabs(dqkv[i * W + 2 * D] * N - 1) < 1e-4, "the value of row %d got %g", (int)i,
                  dqkv[i * W + 2 * D]);
        sum += row[2 * i];
    }
    assert_true(fabs(*(float *)loss->data / sum - 1) < 1e-5);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recomputation_changes_no_bit),
        cmocka_unit_test(test_threads_change_no_bit),
        cmocka_unit_test(test_padding_changes_no_bit),
        cmocka_unit_test(test_gradients_add_up_over_runs_and_forward_runs_add_nothing),
        cmocka_unit_test(test_bf16_stays_near_f64),
        cmocka_unit_test(test_the_future_never_changes_the_past),
        cmocka_unit_test(test_the_cache_gives_what_attention_gives),
        cmocka_unit_test(test_zero_sublayer_passes_the_gradient),
        cmocka_unit_test(test_frozen_weights_cost_no_gradient_nodes),
        cmocka_unit_test(test_a_run_without_rows_gives_zeros),
        cmocka_unit_test(test_every_row_of_a_long_batch_counts),
        cmocka_unit_test(test_a_frozen_row_of_a_table_gets_no_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
