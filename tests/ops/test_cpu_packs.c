/* test_cpu_packs.c - frozen weights that are packed once: the same bits as when every GEMM packs
 * them, a weight that is written again is packed again, the plan has their bytes, and the pages of
 * a mapped file that only GEMMs read are released. */
#include "test.h"

#include "backend/cpu/cpu.h"
#include "base/file.h"
#include "base/rng.h"
#include "cpu/cpu_kernels.h"

#include <unistd.h>

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

/* A projection with an adapter, a matmul and a head with frozen weights, used forward and for dX.
 */
static void open_net(net *n, af_dtype type, af_dtype weights, int threads, bool packed)
{
    af_error err = {0};
    CHECK_OK(af_graph_new(&n->g, &err), err);
    CHECK_OK(af_cpu_open(&n->device, threads, &err), err);
    ((af_cpu *)n->device)->packing = packed ? AF_PACKS_ALL : AF_PACKS_NONE;
    ((af_cpu *)n->device)->work_apart = true; /* filling them needs a workspace even then */
    af_graph *g = n->g;
    af_tensor *x = af_graph_input(g, "x", type, 2, (int64_t[]){N, D}),
              *labels = af_graph_input(g, "labels", AF_DTYPE_I32, 1, (int64_t[]){N});
    af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F32, 2, (int64_t[]){D, D}),
              *a = af_graph_param(g, "a", AF_DTYPE_F32, 2, (int64_t[]){R, D}),
              *b = af_graph_param(g, "b", AF_DTYPE_F32, 1, (int64_t[]){F * R});
    n->w[0] = af_graph_weight(g, "w", weights, 2, (int64_t[]){F, D});
    n->w[1] = af_graph_weight(g, "m", type, 2, (int64_t[]){D, F});
    n->w[2] = af_graph_weight(g, "head", weights, 2, (int64_t[]){V, D});
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
    af_graph_output(g, n->loss);
    af_graph_backward(g, n->loss);
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
            const uint64_t width = af_fast_get()->packed_bytes(types[t][0], F, D) == 0 ? 0
                                   : types[t][0] == AF_DTYPE_F32                       ? 4
                                                                                       : 2;
            CHECK_MSG(bytes[1] >= bytes[0] + each * width, "planned %llu bytes, without packs %llu",
                      (unsigned long long)bytes[1], (unsigned long long)bytes[0]);
        }
}

/* ---- weights in a mapped file ---- */

enum { WIDE = 256, LONG = 640, WORDS = 512 };

typedef struct mapped {
    af_graph *g;
    af_device *device;
    af_plan_info plan;
    af_map file[2]; /* two projections; a table that is an embedding and the head */
    af_tensor *loss, *grad;
} mapped;

static const int64_t up_dim[] = {LONG, WIDE}, down_dim[] = {WIDE, LONG},
                     table_dim[] = {WORDS, WIDE};

/* A file of n bf16 values. */
static void make_map(af_map *m, const char *path, int64_t n, uint64_t seed)
{
    af_error err = {0};
    uint16_t *v = malloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = af_bf16_from_f32((float)af_rng_normal(seed, 1, (uint64_t)i) * 0.1f);
    CHECK_OK(af_file_write(path, v, (uint64_t)n * sizeof *v, &err), err);
    free(v);
    CHECK_OK(af_map_open(m, path, &err), err);
    remove(path);
}

/* Resident KiB of the mapping that contains this address. */
static long resident_kib(const void *at)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned long long from, to;
    bool here = false;
    long kib = -1;
    while (f && kib < 0 && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%llx-%llx ", &from, &to) == 2)
            here = (uintptr_t)at >= from && (uintptr_t)at < to;
        else if (here)
            (void)!sscanf(line, "Rss: %ld kB", &kib);
    }
    if (f)
        fclose(f);
    return kib;
}

static void open_mapped(mapped *m, int threads, af_packing packing, const char *dir)
{
    af_error err = {0};
    char path[2][512];
    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof path[i], "%s/%d", dir, i);
    make_map(&m->file[0], path[0], 2 * LONG * WIDE, 1);
    make_map(&m->file[1], path[1], WORDS * WIDE, 2);
    CHECK_OK(af_graph_new(&m->g, &err), err);
    CHECK_OK(af_cpu_open(&m->device, threads, &err), err);
    ((af_cpu *)m->device)->packing = packing;
    af_graph *g = m->g;
    const int64_t rows = N;
    af_tensor *ids = af_graph_input(g, "ids", AF_DTYPE_I32, 1, &rows),
              *labels = af_graph_input(g, "labels", AF_DTYPE_I32, 1, &rows),
              *p = af_graph_param(g, "p", AF_DTYPE_F32, 2, (int64_t[]){WIDE, WIDE}),
              *up = af_graph_weight(g, "up", AF_DTYPE_BF16, 2, up_dim),
              *down = af_graph_weight(g, "down", AF_DTYPE_BF16, 2, down_dim),
              *table = af_graph_weight(g, "table", AF_DTYPE_BF16, 2, table_dim);
    af_tensor_bind_file(up, m->file[0].data);
    af_tensor_bind_file(down, m->file[0].data + LONG * WIDE * 2);
    af_tensor_bind_file(table, m->file[1].data);
    af_tensor *h = af_embedding(g, ids, table, AF_DTYPE_BF16);
    h = af_linear(g, h, &(af_linear_opts){.weight = {p}, .pieces = 1});
    h = af_linear(g, h, &(af_linear_opts){.weight = {up}, .pieces = 1});
    h = af_linear(g, h, &(af_linear_opts){.weight = {down}, .pieces = 1});
    m->loss = af_head_loss(g, h, table, labels, &(af_head_opts){0});
    af_graph_output(g, m->loss);
    af_graph_backward(g, m->loss);
    CHECK_OK(af_graph_plan(g, m->device, &m->plan, &err), err);
    CHECK_OK(af_graph_prepare(g, m->device, &err), err);
    m->grad = p->grad;
    fill(p, 2);
    for (int i = 0; i < N; i++) {
        ((int32_t *)ids->data)[i] = i * 5 % WORDS;
        ((int32_t *)labels->data)[i] = i * 7 % WORDS;
    }
}

static void close_mapped(mapped *m)
{
    af_graph_free(m->g);
    af_device_close(m->device);
    af_map_close(&m->file[0]);
    af_map_close(&m->file[1]);
}

static void test_a_mapped_weight_is_released_once_packed(void **state)
{
    enum { BYTES = LONG * WIDE * 2 };
    char dir[] = "/tmp/afinar_packs_XXXXXX";
    float loss = 0, grad[WIDE]; /* of the first run */
    (void)state;
    assert_non_null(mkdtemp(dir));
    for (int threads = 1; threads <= 16; threads *= 4)
        for (int packed = 0; packed < 2; packed++) {
            af_error err = {0};
            mapped m;
            open_mapped(&m, threads, packed ? AF_PACKS_ALL : AF_PACKS_NONE, dir);
            assert_int_equal(m.plan.bound, 2 * BYTES + WORDS * WIDE * 2);
            assert_int_equal(m.plan.returned, packed ? 2 * BYTES : 0);
            for (int s = 0; s < 2; s++)
                CHECK_OK(af_graph_run(m.g, AF_RUN_GRAD, &err), err);
            const bool first = threads == 1 && !packed;
            loss = first ? *(const float *)m.loss->data : loss;
            if (first)
                memcpy(grad, m.grad->data, sizeof grad);
            CHECK_MSG(loss == *(const float *)m.loss->data &&
                          memcmp(grad, m.grad->data, sizeof grad) == 0,
                      "%d threads%s: %g, not %g", threads, packed ? ", packed" : "",
                      (double)*(const float *)m.loss->data, (double)loss);
            const long layers = resident_kib(m.file[0].data), table = resident_kib(m.file[1].data);
            CHECK_MSG(table > 0, "an embedding reads its table: %ld KiB", table);
            CHECK_MSG(packed ? layers == 0 : layers == 2 * BYTES >> 10,
                      "%d threads: %ld KiB of %d resident", threads, layers, 2 * BYTES >> 10);
            /* and what is read again is what the file has */
            CHECK_MSG(((const uint16_t *)m.file[0].data)[5] ==
                          af_bf16_from_f32((float)af_rng_normal(1, 1, 5) * 0.1f),
                      "a dropped page comes back");
            assert_true(resident_kib(m.file[0].data) > 0);
            close_mapped(&m);
        }
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed_weights_change_no_bit),
        cmocka_unit_test(test_a_mapped_weight_is_released_once_packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
