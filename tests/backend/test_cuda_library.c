/* test_cuda_library.c - where NVIDIA's libraries are found: fake trees of a toolkit, of pip's
 * wheels and of conda; and what a device does without them. The library's name is one that no real
 * machine has, so that nothing installed here is found instead. */
#define _GNU_SOURCE
#include "test.h"

#include "afinar/log.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/library.h"
#include "backend/fake_driver.h"
#include "base/file.h"

#include <dlfcn.h>
#include <unistd.h>

static const int majors[] = {13, 12, 0};
static const char *const variables[] = {"AFINAR_CUDA_LIBS", "CUDA_HOME",     "VIRTUAL_ENV",
                                        "CONDA_PREFIX",     "XDG_DATA_HOME", "HOME"};
static char root[64];

static const char *at(const char *fmt, const char *a)
{
    static char path[4][512];
    static int i;
    i = (i + 1) % 4;
    snprintf(path[i], sizeof path[i], fmt, a);
    return path[i];
}

/* A copy, because the loader takes two names of one file for the same library. */
static void copy_to(const char *from, const char *to)
{
    char *data = NULL, folder[512];
    uint64_t n = 0;
    af_error err = {0};
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(to, '/') - to), to);
    CHECK_OK(af_dir_make(folder, &err), err);
    CHECK_OK(af_file_read(&data, &n, from, 1 << 30, &err), err);
    FILE *f = fopen(to, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
    free(data);
}

static void place_library(const char *to)
{
    copy_to(at("%s/tests/fake_nvidia.so", getenv("AF_BUILD") ? getenv("AF_BUILD") : "build"),
            at("%s", to));
}

static int start(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/afinar-library-XXXXXX");
    for (size_t i = 0; i < AF_LEN(variables); i++)
        unsetenv(variables[i]);
    return mkdtemp(root) == NULL;
}

static int stop(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

/* The file that is opened, "" for none. */
static const char *opened(int cuda)
{
    static char path[512];
    void *lib = af_library_open("libaffake", majors, true, cuda);
    path[0] = '\0';
    if (!lib)
        return path;
    snprintf(path, sizeof path, "%s", af_library_file(dlsym(lib, "nvrtcVersion")));
    dlclose(lib);
    return path;
}

static void test_every_layout_is_searched(void **state)
{
    static const struct {
        const char *variable, *value, *file;
    } cases[] = {
        {"CUDA_HOME", "toolkit", "toolkit/lib64/libaffake.so.12"},
        {"CUDA_HOME", "toolkit2", "toolkit2/lib/libaffake.so.13"},
        {"VIRTUAL_ENV", "venv12",
         "venv12/lib/python3.11/site-packages/nvidia/cublas/lib/libaffake.so.12"},
        {"VIRTUAL_ENV", "venv13",
         "venv13/lib/python3.12/site-packages/nvidia/cu13/lib/libaffake.so.13"},
        {"CONDA_PREFIX", "conda", "conda/lib/libaffake.so.12"},
        {"CONDA_PREFIX", "conda2", "conda2/targets/sbsa-linux/lib/libaffake.so.13"},
        {"CONDA_PREFIX", "conda3",
         "conda3/lib/python3.10/site-packages/nvidia/cudnn/lib/libaffake.so.12"},
        {"XDG_DATA_HOME", "data", "data/afinar/cuda/nvidia/cu13/lib/libaffake.so.13"},
        {"HOME", "home", "home/.local/share/afinar/cuda/nvidia/cublas/lib/libaffake.so.12"},
        {"HOME", "home2",
         "home2/.local/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libaffake.so.12"},
        {"AFINAR_CUDA_LIBS", "only", "only/libaffake.so.12"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char file[512], value[256];
        snprintf(file, sizeof file, "%s/%s", root, cases[i].file);
        snprintf(value, sizeof value, "%s/%s", root, cases[i].value);
        place_library(file);
        assert_string_equal(opened(0), "");
        setenv(cases[i].variable, value, 1);
        assert_string_equal(opened(0), file);
        unsetenv(cases[i].variable);
    }
}

static void test_the_driver_decides_between_versions(void **state)
{
    (void)state;
    place_library(at("%s/both/lib/libaffake.so.12", root));
    place_library(at("%s/both/lib/libaffake.so.13", root));
    setenv("CONDA_PREFIX", at("%s/both", root), 1);
    assert_string_equal(opened(12040), at("%s/both/lib/libaffake.so.12", root));
    assert_string_equal(opened(13000), at("%s/both/lib/libaffake.so.13", root));
    assert_string_equal(opened(0), at("%s/both/lib/libaffake.so.13", root));
    unsetenv("CONDA_PREFIX");
}

static void test_a_list_of_folders_hides_all_others(void **state)
{
    char list[256];
    (void)state;
    place_library(at("%s/a/lib/libaffake.so.13", root));
    place_library(at("%s/b/libaffake.so.12", root));
    setenv("CONDA_PREFIX", at("%s/a", root), 1);
    setenv("AFINAR_CUDA_LIBS", at("%s/nothing", root), 1);
    assert_string_equal(opened(0), "");
    snprintf(list, sizeof list, "%s/nothing::%s/b", root, root);
    setenv("AFINAR_CUDA_LIBS", list, 1);
    assert_string_equal(opened(0), at("%s/b/libaffake.so.12", root));
    setenv("AFINAR_CUDA_LIBS", "", 1); /* as good as not set */
    assert_string_equal(opened(0), at("%s/a/lib/libaffake.so.13", root));
    unsetenv("AFINAR_CUDA_LIBS");
    unsetenv("CONDA_PREFIX");
}

static void test_what_does_not_load_is_passed_over(void **state)
{
    (void)state;
    af_error err = {0};
    CHECK_OK(af_dir_make(at("%s/broken/lib64", root), &err), err);
    CHECK_OK(af_file_write(at("%s/broken/lib64/libaffake.so.13", root), "not ELF", 7, &err), err);
    place_library(at("%s/good/lib/libaffake.so.13", root));
    setenv("CUDA_HOME", at("%s/broken", root), 1);
    assert_string_equal(opened(0), "");
    setenv("CONDA_PREFIX", at("%s/good", root), 1);
    assert_string_equal(opened(0), at("%s/good/lib/libaffake.so.13", root));
    unsetenv("CUDA_HOME");
    setenv("CONDA_PREFIX", "good", 1); /* a relative name depends on where one stands */
    assert_string_equal(opened(0), "");
    unsetenv("CONDA_PREFIX");
}

static void test_the_environment_of_the_program_is_searched(void **state)
{
    char program[128], command[300], line[512] = "", self[512];
    (void)state;
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    snprintf(program, sizeof program, "%s/env/bin/probe", root);
    copy_to(self, program);
    place_library(at("%s/env/lib/python3.11/site-packages/nvidia/cu13/lib/libaffake.so.13", root));
    snprintf(command, sizeof command, "chmod +x %s && %s --open", program, program);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_int_equal(pclose(f), 0);
    assert_string_equal(
        line, at("%s/env/lib/python3.11/site-packages/nvidia/cu13/lib/libaffake.so.13\n", root));
}

static void test_the_command_names_wheels_for_the_driver(void **state)
{
    char hint[AF_LIBRARY_HINT];
    (void)state;
    assert_string_equal(af_library_hint(hint, 12040, true, true, true),
                        "pip install --target ~/.local/share/afinar/cuda nvidia-cublas-cu12 "
                        "nvidia-cuda-nvrtc-cu12 nvidia-cudnn-cu12");
    assert_string_equal(af_library_hint(hint, 13000, true, false, true),
                        "pip install --target ~/.local/share/afinar/cuda nvidia-cublas "
                        "nvidia-cudnn-cu13");
    setenv("XDG_DATA_HOME", "/data", 1);
    assert_string_equal(af_library_hint(hint, 13000, false, true, false),
                        "pip install --target /data/afinar/cuda nvidia-cuda-nvrtc");
    unsetenv("XDG_DATA_HOME");
}

static void test_machine_code_runs_on_its_generation(void **state)
{
    (void)state;
    assert_true(af_arch_runs("sm_80", "sm_80"));
    assert_true(af_arch_runs("sm_80", "sm_87") && af_arch_runs("sm_120", "sm_121"));
    assert_false(af_arch_runs("sm_89", "sm_86") || af_arch_runs("sm_80", "sm_90a"));
    assert_false(af_arch_runs("sm_90a", "sm_90a")); /* equal names are compared before */
    assert_false(af_arch_runs("sm_100", "sm_120") || af_arch_runs("sm_120", "sm_100"));
}

/* ---- a device without cuBLASLt ---- */

static char logged[4][512];
static int n_logged;
static void note(void *arg, af_log_level level, const char *text)
{
    (void)arg, (void)level;
    if (n_logged < 4)
        snprintf(logged[n_logged++], sizeof logged[0], "%s", text);
}

/* Prepares a graph with a GEMM twice; returns the status of the first. */
static af_status prepare(af_device *d, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < 2; i++) {
        af_graph *g = NULL;
        af_error mine = {0};
        CHECK_OK(af_graph_new(&g, &mine), mine);
        const int64_t dim[2] = {64, 64};
        af_tensor *x = af_graph_input(g, "x", AF_DTYPE_BF16, 2, dim);
        af_graph_output(g, af_matmul(g, x, x, AF_MATMUL_NN));
        const af_status now = af_graph_prepare(g, d, &mine);
        if (i == 0) {
            st = now;
            *err = mine;
        }
        af_graph_free(g);
    }
    return st;
}

static void test_a_run_without_cublas_says_so_once(void **state)
{
    static const struct {
        af_gemm_by by;
        af_status status;
        int lines;
    } cases[] = {
        {AF_GEMM_AUTO, AF_OK, 1}, {AF_GEMM_OWN, AF_OK, 0}, {AF_GEMM_CUBLAS, AF_EDEVICE, 0}};
    (void)state;
    af_log_set(note, NULL);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_device *d = open_fake();
        af_error err = {0};
        n_logged = 0;
        ((af_cuda *)d)->report_own_gemm = true;
        af_device_set_gemm(d, cases[i].by);
        assert_int_equal(prepare(d, &err), cases[i].status);
        assert_int_equal(n_logged, cases[i].lines);
        const char *said = cases[i].lines ? logged[0] : err.msg;
        if (cases[i].by != AF_GEMM_OWN)
            CHECK_MSG(strstr(said, "cuBLASLt") &&
                          strstr(said, "pip install --target ~/.local/share/afinar/cuda "
                                       "nvidia-cublas` brings it"),
                      "the message was '%s'", said);
        af_device_close(d);
        drop_kept();
    }
    af_log_set(NULL, NULL);
}

static af_lt *open_choices(const af_cuda *cu)
{
    af_lt *lt = af_calloc(1, sizeof *lt);
    assert_non_null(lt);
    af_cuda_gemm_choices_read(lt, cu);
    assert_non_null(lt->path);
    return lt;
}

static void choose(af_lt *lt, const char *key, uint64_t algo)
{
    assert_non_null(af_cuda_gemm_choice_add(lt, key, &(af_lt_algo){{algo}}));
    af_cuda_gemm_choices_write(lt);
}

static uint64_t chosen(const af_lt *lt, const char *key)
{
    const af_cuda_gemm_choice *c = af_cuda_gemm_choice_find(lt, key);
    return c ? c->algo.data[0] : 0;
}

/* Two processes that have read the file before either of them wrote: what both stored is there, and
 * for a shape that both have timed what was stored first. A line that was cut off costs only that
 * line, and a file that cannot be read is replaced. */
static void test_choices_of_gemms_are_not_lost(void **state)
{
    static const af_cuda cu = {.name = "Fake GPU"};
    af_error err = {0};
    (void)state;
    setenv("XDG_CACHE_HOME", root, 1);
    af_lt *a = open_choices(&cu), *b = open_choices(&cu);
    choose(a, "first", 1);
    choose(b, "second", 2);
    choose(b, "both", 3);
    choose(a, "both", 4);
    CHECK_OK(af_file_append(a->path, "cut 0123", 8, false, &err), err);
    choose(a, "last", 5);
    af_lt *c = open_choices(&cu);
    assert_int_equal(c->n, 4);
    assert_int_equal(chosen(c, "first"), 1);
    assert_int_equal(chosen(c, "second"), 2);
    assert_int_equal(chosen(c, "both"), 3);
    assert_int_equal(chosen(c, "last"), 5);
    af_lt_free(b);
    af_lt_free(c);
    assert_int_equal(truncate(a->path, 9 << 20), 0);
    b = open_choices(&cu);
    assert_int_equal(b->n, 0);
    choose(b, "first", 6);
    choose(b, "second", 7);
    c = open_choices(&cu);
    assert_int_equal(c->n, 2);
    af_lt_free(a);
    af_lt_free(b);
    af_lt_free(c);
    unsetenv("XDG_CACHE_HOME");
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--open") == 0)
        return printf("%s\n", opened(0)) < 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_layout_is_searched),
        cmocka_unit_test(test_the_driver_decides_between_versions),
        cmocka_unit_test(test_a_list_of_folders_hides_all_others),
        cmocka_unit_test(test_what_does_not_load_is_passed_over),
        cmocka_unit_test(test_the_environment_of_the_program_is_searched),
        cmocka_unit_test(test_the_command_names_wheels_for_the_driver),
        cmocka_unit_test(test_machine_code_runs_on_its_generation),
        cmocka_unit_test(test_a_run_without_cublas_says_so_once),
        cmocka_unit_test(test_choices_of_gemms_are_not_lost),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
