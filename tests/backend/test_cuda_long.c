/* test_cuda_long.c - contexts of 64k to 1M tokens over the fake driver: what is planned for one
 * H200, and that every launch is one a GPU takes where a matrix has more than 2^31 values. */
#define _GNU_SOURCE
#include "test.h"

#include "backend/cuda/cuda_test.h"
#include "backend/fake_driver.h"
#include "base/rng.h"
#include "bench/bench_model.h"
#include "dist/wire.h"

#include <math.h>
#include <sys/mman.h>

#define H200_BYTES UINT64_C(148000000000)
#define H200_HOST  UINT64_C(96000000000) /* of 128 GiB */

static uint64_t memory = H200_BYTES;
static int large_info(size_t *a, size_t *b) { return *a = *b = memory, 0; }
static struct {
    void *at;
    size_t n;
} maps[64];

/* Addresses without memory behind them: nothing is computed. */
static int large_alloc(void **p, size_t n)
{
    size_t i = 0;
    while (i < AF_LEN(maps) && maps[i].at)
        i++;
    assert_true(i < AF_LEN(maps));
    *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(*p != MAP_FAILED);
    maps[i].at = *p;
    maps[i].n = n;
    return 0;
}
static int large_host(void **p, size_t n, unsigned f) { return (void)f, large_alloc(p, n); }
static int large_free(void *p)
{
    for (size_t i = 0; p && i < AF_LEN(maps); i++)
        if (maps[i].at == p) {
            munmap(p, maps[i].n);
            maps[i].at = NULL;
        }
    return 0;
}
static int no_fill(void *p, unsigned char b, size_t n, void *s)
{
    return (void)p, (void)b, (void)n, (void)s, 0;
}
static int no_copy(void *to, const void *from, size_t n, void *s)
{
    return (void)to, (void)from, (void)n, (void)s, 0;
}

static void open_model(af_bench_model *b, const af_bench_opts *o, af_driver *drv)
{
    af_error err = {0};
    *drv = fake;
    drv->mem_info = large_info;
    drv->mem_alloc = large_alloc;
    drv->mem_free = drv->host_free = large_free;
    drv->host_alloc = large_host;
    drv->fill = no_fill;
    drv->copy_up = drv->copy_down = drv->copy_inside = no_copy;
    memset(&seen, 0, sizeof seen);
    CHECK_OK(af_bench_model_init(b, o, &err), err);
    CHECK_OK(af_cuda_open_with(&b->model.device, drv, 0, &err), err);
    ((af_cuda *)b->model.device)->kernels->obtain = fake_obtain;
}

static af_bench_opts opts(int64_t batch, int64_t seq, int64_t layers)
{
    return (af_bench_opts){.shape = "7b",
                           .method = "qlora",
                           .dtype = "bf16",
                           .memory = "auto",
                           .device = "cuda",
                           .batch = batch,
                           .seq = seq,
                           .layers = layers,
                           .rank = 16};
}

/* What is recomputed to fit into an H200 costs at most 7 % of the step: attention is kept. */
static void test_long_contexts_fit_for_little_more_work(void **state)
{
    (void)state;
    for (int64_t seq = 65536; seq <= 262144; seq *= 2) {
        const af_bench_opts o = opts(1, seq, 0);
        af_error err = {0};
        af_bench_model b = {0};
        af_driver drv;
        char name[AF_MEMORY_MODE_NAME];
        open_model(&b, &o, &drv);
        b.step.host_limit = H200_HOST;
        CHECK_OK(af_bench_model_plan(&b, &err), err);
        const af_plan_info chosen = b.step.plan;
        const af_memory_mode mode = b.step.memory_mode;
        CHECK_OK(af_memory_plan(&b.step, (af_memory_mode){AF_RECOMPUTE_NONE, false, 0}, &err), err);
        const double more = chosen.effort / b.step.plan.effort;
        print_message("1 x %d: %s, %.1f GB, host %.1f GB, %.3f of the work\n", (int)seq,
                      af_memory_mode_name(&b.step, mode, name), (double)chosen.total / 1e9,
                      (double)chosen.host / 1e9, more);
        assert_true(chosen.total <= H200_BYTES && more < 1.07);
        af_bench_model_clear(&b);
        drop_kept();
    }
}

/* Where the host has too little memory for them, values of blocks stay on the device: it would have
 * enough for the 5.7 GB of one rank, but not for two. */
static void test_without_host_memory_blocks_are_recomputed(void **state)
{
    const af_bench_opts o = opts(1, 262144, 0);
    af_comm two = {.launcher.size = 1, .local_size = 2};
    af_error err = {0};
    af_bench_model b = {0};
    af_driver drv;
    (void)state;
    open_model(&b, &o, &drv);
    b.step.host_limit = UINT64_C(8000000000);
    b.model.comm = &two;
    CHECK_OK(af_bench_model_plan(&b, &err), err);
    assert_int_equal(b.step.memory_mode.mode, AF_RECOMPUTE_BLOCK);
    assert_true(b.step.memory_mode.blocks > 0 && b.step.memory_mode.blocks < 28);
    assert_true(b.step.plan.host == 0 && b.step.plan.total <= H200_BYTES);
    b.model.comm = NULL;
    af_bench_model_clear(&b);
    drop_kept();
}

static int count_nodes(const af_graph *g, af_op op)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i]->op == op;
    return n;
}

static void test_launches_of_long_contexts(void **state)
{
    static const af_recompute modes[] = {AF_RECOMPUTE_NONE, AF_RECOMPUTE_HOST, AF_RECOMPUTE_BLOCK,
                                         AF_RECOMPUTE_OFFLOAD};
    (void)state;
    memory = UINT64_C(1) << 40;
    for (size_t i = 0; i < AF_LEN(modes); i++) {
        const af_bench_opts o = opts(1, modes[i] == AF_RECOMPUTE_HOST ? 1 << 20 : 1 << 18, 1);
        af_error err = {0};
        af_bench_model b = {0};
        af_driver drv;
        open_model(&b, &o, &drv);
        CHECK_OK(af_bench_model_plan(&b, &err), err);
        CHECK_OK(af_memory_plan(&b.step, (af_memory_mode){modes[i], true, 0}, &err), err);
        CHECK_OK(af_graph_prepare(b.step.graph, b.model.device, &err), err);
        CHECK_OK(af_graph_run(b.step.graph, AF_RUN_STEP, &err), err);
        assert_true(seen.launches > 50);
        if (modes[i] != AF_RECOMPUTE_OFFLOAD) /* it may move as much as this host has memory for */
            assert_int_equal(count_nodes(b.step.graph, AF_OP_ATTENTION),
                             modes[i] == AF_RECOMPUTE_BLOCK ? 2 : 1);
        af_bench_model_clear(&b);
        drop_kept();
    }
    memory = H200_BYTES;
}

/* ---- on a GPU: 64 equal sequences give what one of them gives ---- */

enum { ROW_SEQ = 4096, ROW_SEQUENCES = 64 };

typedef struct step_values {
    float *rows;  /* [N][2]: loss, hit */
    float *grads; /* of all adapters */
    uint64_t n;   /* gradients */
} step_values;

/* False: no GPU with so much memory. */
static bool run_equal_sequences(int64_t batch, step_values *out)
{
    static const af_bench_shape wide = {"wide", 1,    512,     4,    2, 128, 18944, 152064,
                                        false,  true, 10000.0, 1e-6, 0, 0,   false};
    af_bench_opts o = opts(batch, ROW_SEQ, 0);
    af_error err = {0};
    af_bench_model b = {.shape = &wide};
    o.shape = "wide";
    CHECK_OK(af_bench_model_init(&b, &o, &err), err);
    if (af_device_open(&b.model.device, "cuda", 0, &err) != AF_OK ||
        af_device_memory_free(b.model.device) < UINT64_C(110000000000)) {
        print_message("SKIPPED: %s\n", *err.msg ? err.msg : "less than 110 GB are free");
        af_bench_model_clear(&b);
        return false;
    }
    CHECK_OK(af_bench_model_plan(&b, &err), err);
    CHECK_OK(af_graph_prepare(b.step.graph, b.model.device, &err), err);
    CHECK_OK(af_bench_model_fill(&b, &err), err);
    const int64_t N = batch * ROW_SEQ;
    int32_t *ids = calloc((size_t)N * 2, sizeof *ids), *labels = ids + N;
    for (int64_t i = 0; i < N; i++)
        ids[i] = (int32_t)af_rng_below(5, 5, (uint64_t)(i % ROW_SEQ), 152064);
    for (int64_t i = 0; i < N; i++)
        labels[i] = i % ROW_SEQ == ROW_SEQ - 1 ? -100 : ids[i + 1];
    CHECK_OK(af_tensor_write(b.step.graph, b.step.in.ids, ids, (uint64_t)N * 4, &err), err);
    CHECK_OK(af_tensor_write(b.step.graph, b.step.labels, labels, (uint64_t)N * 4, &err), err);
    for (int i = 0; i < b.model.own_spec.modules; i++)
        if (b.step.leaves.module[i].b)
            CHECK_OK(af_weight_write_noise(
                         b.step.graph, b.step.leaves.module[i].b,
                         &(af_random_fill){.stream = 99 + (uint64_t)i, .scale = 0.02f}, &err),
                     err);
    CHECK_OK(af_graph_run(b.step.graph, AF_RUN_GRAD, &err), err);
    const af_tensor *g = b.step.graph->grads_flat;
    out->n = af_tensor_bytes(g) / 4;
    out->grads = calloc(out->n, 4);
    out->rows = calloc((size_t)N * 2, 4);
    CHECK_OK(af_tensor_read(b.step.graph, g, out->grads, out->n * 4, &err), err);
    CHECK_OK(af_tensor_read(b.step.graph, b.step.rows, out->rows, (uint64_t)N * 8, &err), err);
    free(ids);
    af_bench_model_clear(&b);
    return true;
}

/* gate and up have 2^33 values and more, a chunk of logits 2^31 and more. */
static void test_rows_after_many_values(void **state)
{
    step_values one = {0}, many = {0};
    (void)state;
    if (!run_equal_sequences(1, &one) || !run_equal_sequences(ROW_SEQUENCES, &many))
        skip_because("no GPU");
    double worst = 0, apart = 0, norm = 0;
    int64_t other = 0;
    for (int64_t i = 0; i < (int64_t)ROW_SEQUENCES * ROW_SEQ; i++) {
        const double d = fabs((double)many.rows[2 * i] - (double)one.rows[i % ROW_SEQ * 2]);
        worst = d > worst ? d : worst;
        other += d > 0;
    }
    for (uint64_t i = 0; i < one.n; i++) {
        const double d = (double)many.grads[i] - (double)one.grads[i];
        apart += d * d;
        norm += (double)one.grads[i] * (double)one.grads[i];
    }
    print_message("largest difference of a row's loss %.2e (%" PRId64 " rows differ), gradients "
                  "%.2e of their norm %.2e\n",
                  worst, other, sqrt(apart / norm), sqrt(norm));
    free(one.rows);
    free(one.grads);
    free(many.rows);
    free(many.grads);
    assert_true(norm > 0 && worst < 2e-2 && sqrt(apart / norm) < 2e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_contexts_fit_for_little_more_work),
        cmocka_unit_test(test_without_host_memory_blocks_are_recomputed),
        cmocka_unit_test(test_launches_of_long_contexts),
        cmocka_unit_test(test_rows_after_many_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
