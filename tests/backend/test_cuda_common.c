/* test_cuda_common.c - what an ordinary run asks for is in the pack that a build ships.
 *
 * Full and adapter training in bf16 of the usual shapes, in the fastest and the smallest mode, is
 * prepared over the fake driver; every program it needs must be among its file's "// common:" lists
 * (a file without "// variants:" is common). AF_LIST=1 prints all of them. */
#define _GNU_SOURCE
#include "test.h"

#include "backend/fake_driver.h"
#include "bench/bench_model.h"

#include <sys/mman.h>

/* Memory of real size that is never touched. */
static int big_alloc(void **p, size_t n)
{
    *p = mmap(NULL, n + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
              -1, 0);
    if (*p == MAP_FAILED)
        return AF_CU_NO_MEMORY;
    *(size_t *)*p = n + 4096;
    *p = (char *)*p + 4096;
    return 0;
}

static int big_free(void *p)
{
    char *base = (char *)p - 4096;
    return munmap(base, *(size_t *)(void *)base);
}

static int big_host(void **p, size_t n, unsigned f) { return (void)f, big_alloc(p, n); }

static int no_fill(void *p, unsigned char b, size_t n, void *s)
{
    return (void)p, (void)b, (void)n, (void)s, 0;
}

static int ampere(int *v, int a, int d)
{
    const int r = fake.device_attribute(v, a, d);
    if (a == AF_CU_ATTR_MAJOR)
        *v = 8;
    return r;
}

static int much(size_t *a, size_t *b) { return *a = *b = (size_t)140 << 30, 0; }

/* Tiles that a cost model chooses are in packages; other builds compile them, or take the common
 * one (af_kernels_can). */
static bool is_chosen(const af_module *m)
{
    static const char *const files[] = {"gemm_tiles.cu", "gemm_join.cu", "attention.cu"};
    bool chosen = false, built = false;
    for (size_t i = 0; i < AF_LEN(files); i++)
        chosen |= strcmp(m->file, files[i]) == 0;
    for (const char *const *v = af_kernel_file(m->file)->variants; *v; v++)
        built |= strcmp(*v, m->defines) == 0;
    return chosen && built;
}

static bool is_common(const af_module *m)
{
    for (const char *const *v = af_kernel_file(m->file)->common; *v; v++)
        if (strcmp(*v, m->defines) == 0)
            return true;
    return false;
}

static int check_modules(const af_kernels *k, bool modelled)
{
    int bad = 0;
    for (int i = 0; i < k->n; i++) {
        const af_module *m = k->module[i];
        if (getenv("AF_LIST"))
            print_message("%s|%s\n", m->file, m->defines);
        if (is_common(m) || (modelled && is_chosen(m)))
            continue;
        print_error("%s: '%s' is not among its common variants\n", m->file, m->defines);
        bad++;
    }
    return bad;
}

static void test_ordinary_runs_need_common_kernels_only(void **state)
{
    static const char *const shapes[] = {"135m", "0.5b", "1.5b", "7b"},
                             *const methods[] = {"lora", "qlora", "full"},
                             *const memory[] = {"auto", "min"};
    static const int64_t length[] = {512, 2048};
    af_driver driver = fake;
    int bad = 0;
    (void)state;
    driver.mem_alloc = big_alloc;
    driver.mem_free = big_free;
    driver.host_alloc = big_host;
    driver.host_free = big_free;
    driver.fill = no_fill;
    driver.mem_info = much;
    for (int i = 0; i < 2 * 4 * 3 * 2 * 2; i++) {
        if (!test_takes((size_t)i)) /* all methods, modes and lengths are in this third */
            continue;
        driver.device_attribute = i < 4 * 3 * 2 * 2 ? fake.device_attribute : ampere;
        const af_bench_opts o = {.shape = shapes[i / 12 % 4],
                                 .method = methods[i % 12 / 4],
                                 .dtype = "bf16",
                                 .memory = memory[i % 4 / 2],
                                 .device = "cuda",
                                 .batch = 4,
                                 .seq = length[i % 2],
                                 .rank = 16};
        af_error err = {0};
        af_bench_model b = {0};
        memset(&seen, 0, sizeof seen);
        CHECK_OK(af_bench_model_init(&b, &o, &err), err);
        CHECK_OK(af_cuda_open_with(&b.model.device, &driver, 0, &err), err);
        ((af_cuda *)b.model.device)->kernels->obtain = fake_obtain;
        CHECK_OK(af_bench_model_plan(&b, &err), err);
        CHECK_OK(af_graph_prepare(b.step.graph, b.model.device, &err), err);
        CHECK_OK(af_bench_model_fill(&b, &err), err);
        bad +=
            check_modules(((af_cuda *)b.model.device)->kernels, driver.device_attribute == ampere);
        af_bench_model_clear(&b);
        drop_kept();
    }
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ordinary_runs_need_common_kernels_only)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
