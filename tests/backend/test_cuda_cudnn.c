/* test_cuda_cudnn.c - attention through cuDNN over fakes of the driver and of the library: what is
 * described, which nodes use cuDNN, what is kept on disk and how the choice is made. The numbers
 * themselves: test_cuda_ops.c, on a GPU. */
#define _GNU_SOURCE
#include "test.h"

#include "backend/case_list.h"
#include "backend/cuda/cuda_test.h"
#include "backend/fake_cudnn.h"
#include "backend/fake_driver.h"
#include "base/file.h"
#include "ops/attention/attention_choice.h"

#include <unistd.h>

static char folder[] = "/tmp/afinar-cudnn-XXXXXX";
static float own_ms, dnn_ms;
static int clocked;

/* The own kernel is timed first, then cuDNN, in turns. */
static int two_clocks(float *ms, void *a, void *b)
{
    return (void)a, (void)b, *ms = clocked++ % 2 ? dnn_ms : own_ms, 0;
}

static af_device *open_both(af_attention_by by)
{
    static af_driver driver;
    af_device *d = NULL;
    af_error err = {0};
    driver = fake;
    driver.event_elapsed = two_clocks;
    memset(&seen, 0, sizeof seen);
    memset(&dnn_seen, 0, sizeof dnn_seen);
    clocked = 0;
    CHECK_OK(af_cuda_open_with(&d, &driver, 0, &err), err);
    ((af_cuda *)d)->kernels->obtain = fake_obtain;
    af_cuda_test_on(d)->cudnn = &fake_cudnn;
    af_device_set_attention(d, by);
    return d;
}

static void close_both(af_device *d)
{
    af_device_close(d);
    drop_kept();
    assert_int_equal(dnn_seen.live, 0);
}

/* Rows enough for `auto`, but of a size that has a kernel for Hopper. */
static void case_hopper(rec *r)
{
    static const int32_t b[] = {0, 600, 600, 1190};
    attention(r, &(af_attention_opts){.heads = 4, .kv_heads = 2, .head_dim = 64, .causal = true},
              1200, 3, b);
}

static void run_twice(af_device *d, void (*record)(rec *), af_dtype t)
{
    af_error err = {0};
    rec r = {.t = t};
    CHECK_OK(af_graph_new(&r.g, &err), err);
    record(&r);
    CHECK_OK(af_graph_prepare(r.g, d, &err), err);
    CHECK_OK(rec_write(&r, &err), err);
    CHECK_OK(af_graph_run(r.g, rec_mask(&r), &err), err);
    const af_counters before = af_device_counters(d);
    const int allocs = seen.allocs, live = dnn_seen.live;
    CHECK_OK(af_graph_run(r.g, rec_mask(&r), &err), err);
    const af_counters after = af_device_counters(d);
    assert_int_equal(after.compiles, before.compiles);
    assert_int_equal(after.host_syncs, before.host_syncs);
    assert_int_equal(seen.allocs, allocs);
    assert_int_equal(dnn_seen.live, live);
    rec_clear(&r);
}

static void test_the_graph_describes_the_node(void **state)
{
    static const char *const want[] = {
        "1: type 9 [4 4 256 64] / [131072 64 512 1]", /* q */
        "2: type 9 [4 2 64 256] / [131072 64 1 512]", /* k, transposed */
        "3: type 9 [4 2 256 64] / [131072 64 512 1]", /* v */
        "4: type 9 [4 4 256 64] / [65536 64 256 1]",  /* o */
        "5: type 0 [4 4 256 1] / [1024 1 4 1]",       /* lse [N][H] */
        "6: type 4 [4 1 1 1] / [1 1 1 1]",            /* lengths */
        "8: type 10 [5 1 1 1] / [1 1 1 1]",           /* offsets */
        "11: type 0 [1 1 1 1] / [1 1 1 1] by value",  /* scale */
    };
    static const int kinds[][2] = {{13, 16}, {19, 2}, {22, 2}};
    (void)state;
    af_device *d = open_both(AF_ATTENTION_CUDNN);
    run_twice(d, case_attention, AF_DTYPE_BF16);
    assert_int_equal(dnn_seen.n_tensors, 13);
    for (size_t i = 0; i < AF_LEN(kinds); i++)
        assert_int_equal(dnn_seen.ops[kinds[i][0]], kinds[i][1]);
    for (size_t i = 0; i < AF_LEN(want); i++) {
        bool found = false;
        for (int k = 0; k < dnn_seen.n_tensors; k++)
            found |= strcmp(dnn_seen.tensors[k], want[i]) == 0;
        CHECK_MSG(found, "no tensor is '%s'", want[i]);
    }
    close_both(d);
}

static void test_forced_nodes_run_in_cudnn_and_others_in_own_kernels(void **state)
{
    static const struct {
        const char *why;
        void (*record)(rec *);
        af_dtype t;
        int runs; /* captured once: direct launches are two */
    } rows[] = {
        {"causal bf16", case_attention, AF_DTYPE_BF16, 1},
        {"heads of 128", case_attention_128, AF_DTYPE_BF16, 1},
        {"heads of 80", case_attention_80, AF_DTYPE_BF16, 1},
        {"f32", case_attention, AF_DTYPE_F32, 0},
        {"f16", case_attention, AF_DTYPE_F16, 0},
        {"a window", case_attention_window, AF_DTYPE_BF16, 0},
        {"not causal", case_attention_full, AF_DTYPE_BF16, 0},
        {"heads of 256", case_attention_256, AF_DTYPE_BF16, 0},
        {"a soft cap", case_attention_capped, AF_DTYPE_BF16, 0},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(rows); i++) {
        af_device *d = open_both(AF_ATTENTION_CUDNN);
        run_twice(d, rows[i].record, rows[i].t);
        CHECK_MSG(dnn_seen.runs == rows[i].runs, "%s: %d runs", rows[i].why, dnn_seen.runs);
        assert_int_equal(clocked, 0);
        close_both(d);
    }
}

static void test_own_kernels_never_ask_for_the_library(void **state)
{
    (void)state;
    af_device *d = open_both(AF_ATTENTION_OWN);
    run_twice(d, case_attention_112, AF_DTYPE_BF16);
    assert_null(((af_cuda *)d)->dnn);
    close_both(d);
    d = open_both(AF_ATTENTION_AUTO); /* too few rows; a kernel it does not beat */
    run_twice(d, case_attention_80, AF_DTYPE_BF16);
    run_twice(d, case_hopper, AF_DTYPE_BF16);
    assert_null(((af_cuda *)d)->dnn);
    close_both(d);
}

/* Timed once; the second process reads the choice and the plan, whatever its clock says. */
static void test_a_choice_is_made_once(void **state)
{
    char cmd[128];
    (void)state;
    for (int faster = 0; faster < 2; faster++) {
        snprintf(cmd, sizeof cmd, "%s/afinar", folder);
        CHECK_MSG(af_path_remove(cmd, NULL) == AF_OK, "cannot remove %s", cmd);
        own_ms = 1;
        dnn_ms = faster ? 0.5f : 0.93f; /* not enough below the own kernel */
        af_device *d = open_both(AF_ATTENTION_AUTO);
        run_twice(d, case_attention_112, AF_DTYPE_BF16);
        assert_true(clocked > 0);
        assert_int_equal(dnn_seen.builds, 1);
        const int timed = dnn_seen.runs;
        close_both(d);
        own_ms = faster ? 0.1f : 10; /* now the clock says the opposite */
        d = open_both(AF_ATTENTION_AUTO);
        run_twice(d, case_attention_112, AF_DTYPE_BF16);
        assert_int_equal(clocked, 0);
        assert_int_equal(dnn_seen.builds, 0);
        assert_int_equal(dnn_seen.reads, faster);
        assert_int_equal(dnn_seen.runs, faster);
        assert_true(timed > faster);
        if (!faster)
            assert_null(((af_cuda *)d)->dnn); /* not even loaded */
        close_both(d);
    }
}

static void test_a_damaged_plan_is_built_again(void **state)
{
    char path[256], *file = NULL, **names = NULL;
    uint64_t size = 0;
    int n = 0;
    af_error err = {0};
    (void)state;
    af_device *d = open_both(AF_ATTENTION_CUDNN);
    run_twice(d, case_attention_128, AF_DTYPE_BF16);
    close_both(d);
    snprintf(path, sizeof path, "%s/afinar/cudnn", folder);
    CHECK_OK(af_dir_list(&names, &n, path, &err), err);
    for (int i = 0; i < n; i++) {
        char *one = af_path_join(path, names[i]);
        CHECK_OK(af_file_read(&file, &size, one, 1 << 20, &err), err);
        file[size - 2] ^= 1;
        CHECK_OK(af_file_write(one, file, size, &err), err);
        free(one);
        free(file);
    }
    assert_true(n > 0);
    af_names_free(names, n);
    d = open_both(AF_ATTENTION_CUDNN);
    run_twice(d, case_attention_128, AF_DTYPE_BF16);
    assert_int_equal(dnn_seen.builds, 1);
    close_both(d);
}

static void test_a_refusal_leaves_own_kernels(void **state)
{
    (void)state;
    af_device *d = open_both(AF_ATTENTION_CUDNN);
    dnn_seen.refuse = 4; /* no engine */
    run_twice(d, case_attention_80, AF_DTYPE_BF16);
    dnn_seen.refuse = 15; /* no such graph */
    run_twice(d, case_attention_112, AF_DTYPE_BF16);
    assert_int_equal(dnn_seen.runs, 0);
    dnn_seen.refuse = 0;
    close_both(d);
}

static void test_a_missing_library_is_an_error_only_when_it_is_asked_for(void **state)
{
    af_error err = {0};
    rec r = {.t = AF_DTYPE_BF16};
    (void)state;
    af_device *d = open_both(AF_ATTENTION_CUDNN);
    dnn_seen.dead = true;
    CHECK_OK(af_graph_new(&r.g, &err), err);
    case_attention_112(&r);
    assert_int_equal(af_graph_prepare(r.g, d, &err), AF_EDEVICE);
    CHECK_MSG(strcmp(err.msg, "attention: cudnn: cudnnCreate failed on Fake GPU") == 0, "%s",
              err.msg);
    rec_clear(&r);
    char path[128];
    snprintf(path, sizeof path, "%s/afinar", folder);
    CHECK_OK(af_path_remove(path, &err), err);
    af_device_set_attention(d, AF_ATTENTION_AUTO);
    run_twice(d, case_attention_112, AF_DTYPE_BF16);
    assert_int_equal(dnn_seen.runs, 0);
    close_both(d);
}

static int make_folder(void **state)
{
    (void)state;
    return !mkdtemp(folder) || setenv("XDG_CACHE_HOME", folder, 1);
}

static int drop_folder(void **state)
{
    (void)state;
    return af_path_remove(folder, NULL) != AF_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_graph_describes_the_node),
        cmocka_unit_test(test_forced_nodes_run_in_cudnn_and_others_in_own_kernels),
        cmocka_unit_test(test_own_kernels_never_ask_for_the_library),
        cmocka_unit_test(test_a_choice_is_made_once),
        cmocka_unit_test(test_a_damaged_plan_is_built_again),
        cmocka_unit_test(test_a_refusal_leaves_own_kernels),
        cmocka_unit_test(test_a_missing_library_is_an_error_only_when_it_is_asked_for),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
