/* NCCL between ranks on GPUs: this program starts itself once per rank. With fewer GPUs than ranks
 * they share one, which NCCL 2.30 allows (NCCL_MULTI_RANK_GPU_ENABLE=1). */
#define _GNU_SOURCE
#include "test.h"

#include "backend/cuda/driver.h"
#include "backend/cuda/library.h"
#include "dist/comm_device.h"
#include "dist/rank_env.h"
#include "dist/rank_work.h"

#include "afinar/device.h"

#include <sys/wait.h>

enum { BYTES = 1 << 20 };

static const char *self;

/* ---- a rank ---- */

typedef struct gpu {
    af_cuda *cu;
    af_comm_device *d;
    void *a, *b; /* device memory, size * BYTES each */
    uint8_t *host;
    int size, rank;
} gpu;

static void up(gpu *g, void *to, uint64_t n)
{
    assert_int_equal(g->cu->drv->copy_up(to, g->host, n, g->cu->stream), 0);
    assert_int_equal(g->cu->drv->stream_sync(g->cu->stream), 0);
}

static void down(gpu *g, const void *from, uint64_t n)
{
    assert_int_equal(g->cu->drv->copy_down(g->host, from, n, g->cu->stream), 0);
    assert_int_equal(g->cu->drv->stream_sync(g->cu->stream), 0);
}

/* Every part of what came is what its rank sent to `to`. */
static void check_parts(gpu *g, int to, int round, const char *what)
{
    down(g, g->b, (uint64_t)g->size * BYTES);
    for (int r = 0; r < g->size; r++)
        if (!rank_same(g->host + (uint64_t)r * BYTES, BYTES, r, to, round))
            fail_msg("%s gives other bytes of rank %d", what, r);
}

static void run_all(gpu *g, int round)
{
    af_error err = {0};
    rank_fill(g->host, BYTES, g->rank, 1, round);
    up(g, g->a, BYTES);
    CHECK_OK(af_comm_device_all_gather(g->d, g->a, g->b, BYTES, NULL, &err), err);
    check_parts(g, 1, round, "all-gather");
    for (int r = 0; r < g->size; r++)
        rank_fill(g->host + (uint64_t)r * BYTES, BYTES, g->rank, r, round);
    up(g, g->a, (uint64_t)g->size * BYTES);
    CHECK_OK(af_comm_device_all_to_all(g->d, g->a, g->b, BYTES, NULL, &err), err);
    check_parts(g, g->rank, round, "all-to-all");
    const bool more = g->rank & 1; /* messages of two sizes, and one that is empty */
    const af_swap s[] = {
        {g->rank ^ 1, g->a, g->b, more ? BYTES : BYTES / 2, more ? BYTES / 2 : BYTES},
        {g->rank ^ 1, g->a, g->b, more ? 0 : 16, more ? 16 : 0}};
    CHECK_OK(af_comm_device_swap(g->d, s, 1, NULL, &err), err);
    down(g, g->b, s[0].recv_bytes);
    assert_true(rank_same(g->host, s[0].recv_bytes, g->rank ^ 1, 0, round));
    CHECK_OK(af_comm_device_swap(g->d, s, 2, NULL, &err), err);
    CHECK_OK(af_comm_device_broadcast(g->d, g->a, BYTES, g->size - 1, NULL, &err), err);
    down(g, g->a, BYTES);
    assert_true(rank_same(g->host, BYTES, g->size - 1, 0, round));
}

/* An all-gather recorded once, and launched for new bytes. */
static void run_captured(gpu *g)
{
    const af_driver *drv = g->cu->drv;
    af_error err = {0};
    void *graph = NULL, *exec = NULL;
    assert_int_equal(drv->capture_begin(g->cu->stream, AF_CU_CAPTURE_THREAD), 0);
    CHECK_OK(af_comm_device_all_gather(g->d, g->a, g->b, BYTES, NULL, &err), err);
    assert_int_equal(drv->capture_end(g->cu->stream, &graph), 0);
    assert_int_equal(drv->graph_instantiate(&exec, graph, 0), 0);
    for (int round = 10; round < 13; round++) {
        rank_fill(g->host, BYTES, g->rank, 1, round);
        up(g, g->a, BYTES);
        assert_int_equal(drv->graph_launch(exec, g->cu->stream), 0);
        check_parts(g, 1, round, "captured all-gather");
    }
    (void)drv->graph_exec_free(exec);
    (void)drv->graph_free(graph);
}

static void time_exchange(gpu *g)
{
    af_error err = {0};
    enum { TIMES = 200 };
    const double begun = af_seconds_now();
    for (int i = 0; i < TIMES; i++)
        CHECK_OK(af_comm_device_all_gather(g->d, g->a, g->b, BYTES, NULL, &err), err);
    assert_int_equal(g->cu->drv->stream_sync(g->cu->stream), 0);
    const double s = (af_seconds_now() - begun) / TIMES;
    if (g->rank == 0)
        fprintf(stderr, "%s, %d ranks: all-gather of %d KiB per rank in %.1f us\n",
                af_comm_device_name(g->d), g->size, BYTES >> 10, s * 1e6);
}

/* Swaps with a neighbour, many in one captured graph: what one costs on the stream. */
static void time_swaps(gpu *g, uint64_t bytes)
{
    const af_driver *drv = g->cu->drv;
    enum { TIMES = 50, ROUNDS = 4 };
    af_error err = {0};
    void *graph = NULL, *exec = NULL;
    const af_swap s = {g->rank ^ 1, g->a, g->b, bytes, bytes};
    assert_int_equal(drv->capture_begin(g->cu->stream, AF_CU_CAPTURE_THREAD), 0);
    for (int i = 0; i < TIMES; i++)
        CHECK_OK(af_comm_device_swap(g->d, &s, 1, NULL, &err), err);
    assert_int_equal(drv->capture_end(g->cu->stream, &graph), 0);
    assert_int_equal(drv->graph_instantiate(&exec, graph, 0), 0);
    double begun = 0;
    for (int round = 0; round <= ROUNDS; round++) { /* the first one warms up */
        assert_int_equal(drv->graph_launch(exec, g->cu->stream), 0);
        if (round == 0)
            assert_int_equal(drv->stream_sync(g->cu->stream), 0);
        begun = round ? begun : af_seconds_now();
    }
    assert_int_equal(drv->stream_sync(g->cu->stream), 0);
    const double took = (af_seconds_now() - begun) / (TIMES * ROUNDS);
    if (g->rank == 0)
        fprintf(stderr, "%d ranks: a captured swap of %d KiB in %.1f us\n", g->size,
                (int)(bytes >> 10), took * 1e6);
    (void)drv->graph_exec_free(exec);
    (void)drv->graph_free(graph);
}

static void test_rank(void **state)
{
    (void)state;
    af_error err = {0};
    af_comm *c = NULL;
    af_device *device = NULL;
    const af_comm_opts o = {.backend = AF_COMM_NCCL, .timeout = 60};
    CHECK_OK(af_comm_open(&c, &o, &err), err);
    int gpus = 0;
    af_driver drv = {0};
    CHECK_OK(af_driver_open(&drv, &err), err);
    assert_int_equal(drv.device_count(&gpus), 0);
    CHECK_OK(af_cuda_open(&device, af_comm_local_rank(c) % gpus, &err), err);
    gpu g = {.cu = (af_cuda *)device, .size = af_comm_size(c), .rank = af_comm_rank(c)};
    const uint64_t all = (uint64_t)g.size * BYTES;
    CHECK_OK(af_comm_device_open(&g.d, c, g.cu, &err), err);
    g.host = malloc(all);
    assert_non_null(g.host);
    assert_int_equal(g.cu->drv->mem_alloc(&g.a, all), 0);
    assert_int_equal(g.cu->drv->mem_alloc(&g.b, all), 0);
    run_all(&g, 3);
    run_captured(&g);
    time_exchange(&g);
    time_swaps(&g, 1024);
    time_swaps(&g, BYTES);
    (void)g.cu->drv->mem_free(g.a);
    (void)g.cu->drv->mem_free(g.b);
    free(g.host);
    af_comm_device_close(g.d);
    af_device_close(device);
    af_comm_close(c);
}

/* ---- the test ---- */

static pid_t start_rank(int rank, int size, int port)
{
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("WORLD_SIZE", size);
    set_number("MASTER_PORT", port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    execl(self, self, "rank", (char *)NULL);
    _exit(126);
}

static void run_ranks(int size)
{
    const int port = free_port();
    int bad = 0;
    for (int r = 0; r < size; r++)
        assert_true(start_rank(r, size, port) > 0);
    for (int r = 0; r < size; r++) {
        int status;
        assert_true(wait(&status) > 0);
        bad += status != 0;
    }
    CHECK_MSG(bad == 0, "%d of %d ranks failed", bad, size);
}

static void test_ranks_on_gpus(void **state)
{
    (void)state;
    static const int majors[] = {2, 0};
    af_driver drv = {0};
    const pid_t pid = fork(); /* a process that has used CUDA cannot fork */
    if (pid == 0) {
        const bool ok = af_driver_open(&drv, NULL) == AF_OK;
        _exit(!ok ? 1 : af_library_open("libnccl", majors, 0, 0) ? 0 : 2);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WEXITSTATUS(status) == 1)
        skip_because("no GPU");
    if (WEXITSTATUS(status) == 2)
        skip_because("no NCCL");
    run_ranks(2);
    run_ranks(4);
}

int main(int argc, char **argv)
{
    self = argv[0];
    const struct CMUnitTest rank[] = {cmocka_unit_test(test_rank)};
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks_on_gpus)};
    return argc > 1 ? cmocka_run_group_tests(rank, NULL, NULL)
                    : cmocka_run_group_tests(tests, NULL, NULL);
}
