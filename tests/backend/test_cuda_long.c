/* test_cuda_long.c - contexts of 64k to 256k tokens over the fake driver: what is planned for one
 * H200, and that every launch is one a GPU takes where a matrix has more than 2^31 values. */
#define _GNU_SOURCE
#include "test.h"

#include "backend/cuda/cuda_test.h"
#include "backend/fake_driver.h"
#include "bench/bench_model.h"

#include <sys/mman.h>

#define H200_BYTES UINT64_C(148000000000)
#define H200_HOST  UINT64_C(96000000000) /* of 128 GiB */

static int large_info(size_t *a, size_t *b) { return *a = *b = H200_BYTES, 0; }
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

static void test_launches_of_long_contexts(void **state)
{
    static const af_recompute modes[] = {AF_RECOMPUTE_NONE, AF_RECOMPUTE_HOST,
                                         AF_RECOMPUTE_OFFLOAD};
    (void)state;
    for (size_t i = 0; i < AF_LEN(modes); i++) {
        const af_bench_opts o = opts(1, 262144, 1);
        af_error err = {0};
        af_bench_model b = {0};
        af_driver drv;
        open_model(&b, &o, &drv);
        CHECK_OK(af_bench_model_plan(&b, &err), err);
        CHECK_OK(af_memory_plan(&b.step, (af_memory_mode){modes[i], true, 0}, &err), err);
        CHECK_OK(af_graph_prepare(b.step.graph, b.model.device, &err), err);
        CHECK_OK(af_graph_run(b.step.graph, AF_RUN_STEP, &err), err);
        assert_true(seen.launches > 50);
        af_bench_model_clear(&b);
        drop_kept();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_contexts_fit_for_little_more_work),
        cmocka_unit_test(test_launches_of_long_contexts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
