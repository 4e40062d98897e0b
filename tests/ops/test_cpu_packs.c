/* test_cpu_packs.c - frozen weights that are packed once: the same bits as when every product packs
 * them, a weight that is written again is packed again, and the plan has their bytes. */
#include "test.h"

#include "backend/cpu/cpu.h"
#include "base/rng.h"

enum { N = 80, D = 48, F = 70, V = 101, R = 4, STEPS = 3 };

typedef struct net {
    af_graph *g;
    af_device *device;
    af_plan_info plan;
    af_tensor *w[3], *loss, *grad;
} net;

static void fill(af_tensor *t, uint64_t seed)
{
    for (int64_t i = 0; i < af_count(t); i++)
        af_st(t, i, af_rng_normal(seed, (uint64_t)t->id, (uint64_t)i) * 0.3);
}

/* A projection with an adapter, a product and a head with frozen weights, used both ways. */
static void open_net(net *n, af_dtype type, af_dtype weights, int threads, bool packed)
{
    af_error err = {0};
    CHECK_OK(af_graph_new(&n->g, &err), err);
    CHECK_OK(af_cpu_open(&n->device, threads, &err), err);
    ((af_cpu *)n->device)->packing = packed ? AF_PACKS_ALL : AF_PACKS_NONE;
    ((af_cpu *)n->device)->work_apart = true; /* filling them needs a workspace even then */
    af_graph *g = n->g;
    af_tensor *x = af_input(g, "x", type, 2, (int64_t[]){N, D}),
              *labels = af_input(g, "labels", AF_DTYPE_I32, 1, (int64_t[]){N});
    af_tensor *p = af_param(g, "p", AF_DTYPE_F32, 2, (int64_t[]){D, D}),
              *a = af_param(g, "a", AF_DTYPE_F32, 2, (int64_t[]){R, D}),
              *b = af_param(g, "b", AF_DTYPE_F32, 1, (int64_t[]){F * R});
    n->w[0] = af_weight(g, "w", weights, 2, (int64_t[]){F, D});
    n->w[1] = af_weight(g, "m", type, 2, (int64_t[]){D, F});
    n->w[2] = af_weight(g, "head", weights, 2, (int64_t[]){V, D});
    af_tensor *h = af_linear(g, x, &(af_linear_opts){.weight = {p}, .pieces = 1});
    h = af_linear(g, h,
                  &(af_linear_opts){.weight = {n->w[0]},
                                    .pieces = 1,
                                    .a = a,
                                    .b = b,
                                    .part = {{0, F, 0, R, 0.5f}},
                                    .parts = 1});
    h = af_matmul(g, h, n->w[1], AF_MATMUL_NT);
    n->loss = af_head_loss(g, h, n->w[2], labels, &(af_head_opts){0});
    af_output(g, n->loss);
    af_backward(g, n->loss);
    CHECK_OK(af_graph_plan(g, n->device, &n->plan, &err), err);
    CHECK_OK(af_graph_prepare(g, n->device, &err), err);
    n->grad = p->grad;
    fill(x, 1), fill(p, 2), fill(a, 3), fill(b, 4);
    for (int i = 0; i < 3; i++)
        fill(n->w[i], 5);
    for (int i = 0; i < N; i++)
        ((int32_t *)labels->data)[i] = i * 7 % V;
}

/* Gradients after some steps, between which a weight is written. */
static void train(net *n, float loss[STEPS], float grad[D * D])
{
    af_error err = {0};
    for (int s = 0; s < STEPS; s++) {
        CHECK_OK(af_graph_run(n->g, AF_RUN_GRAD, &err), err);
        loss[s] = *(const float *)n->loss->data;
        af_tensor *w = n->w[s % 3];
        const uint64_t bytes = af_tensor_bytes(w);
        void *other = malloc(bytes);
        memcpy(other, w->data, bytes);
        af_tensor copy = *w;
        copy.data = other;
        fill(&copy, 10 + (uint64_t)s);
        CHECK_OK(af_tensor_write(n->g, w, other, bytes, &err), err);
        free(other);
    }
    memcpy(grad, n->grad->data, D * D * sizeof *grad);
}

static void close_net(net *n)
{
    af_graph_free(n->g);
    af_device_close(n->device);
}

static void test_packed_weights_change_no_bit(void **state)
{
    static const af_dtype types[][2] = {{AF_DTYPE_F32, AF_DTYPE_F32},
                                        {AF_DTYPE_F32, AF_DTYPE_BF16},
                                        {AF_DTYPE_BF16, AF_DTYPE_BF16},
                                        {AF_DTYPE_BF16, AF_DTYPE_F32},
                                        {AF_DTYPE_BF16, AF_DTYPE_F16}};
    (void)state;
    for (size_t t = 0; t < AF_LEN(types); t++)
        for (int threads = 1; threads <= 3; threads++) {
            float loss[2][STEPS], grad[2][D * D];
            uint64_t bytes[2];
            for (int packed = 0; packed < 2; packed++) {
                net n;
                open_net(&n, types[t][0], types[t][1], threads, packed);
                bytes[packed] = n.plan.workspace;
                assert_int_equal(n.plan.total, af_graph_bytes(n.g));
                train(&n, loss[packed], grad[packed]);
                close_net(&n);
            }
            CHECK_MSG(memcmp(loss[0], loss[1], sizeof loss[0]) == 0, "%s, %d threads: loss %g, %g",
                      af_dtype_name(types[t][0]), threads, (double)loss[0][2], (double)loss[1][2]);
            CHECK_MSG(memcmp(grad[0], grad[1], sizeof grad[0]) == 0, "%s, %d threads: gradients",
                      af_dtype_name(types[t][0]), threads);
            assert_true(loss[0][0] != loss[0][1]);
            /* both forms of three weights */
            const uint64_t each = 2 * (F * D + D * F + V * D);
            const uint64_t width = types[t][0] == AF_DTYPE_F32 ? 4 : 2;
            CHECK_MSG(bytes[1] >= bytes[0] + each * width, "planned %llu bytes, without packs %llu",
                      (unsigned long long)bytes[1], (unsigned long long)bytes[0]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_packed_weights_change_no_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
