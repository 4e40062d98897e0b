/* test_cuda_kernels.c - the variants of every kernel compile (where NVRTC can be loaded; no GPU is
 * needed), and the cache of machine code survives damage. Of each file as many variants are taken
 * as have every define, to machine code, and those that ordinary runs ask for, to the assembler's
 * text: the assembler takes two thirds of the time. With AF_ALL_ARCHS in the environment (make
 * check-kernels) every variant compiles to machine code for every shipped architecture. */
#define _GNU_SOURCE
#include "test.h"

#include "backend/cuda/kernels.h"
#include "base/file.h"
#include "base/pool.h"

/* The first three have all the code paths: portable, Hopper's, the newest compiler target. The
 * others compile the same text. */
static const char *const archs[] = {"sm_80", "sm_90a", "sm_120", "sm_86", "sm_89", "sm_100"};
enum { JOBS_MAX = 8192, FILE_JOBS_MAX = 1024, FILES_MAX = 256, OPTIONS_MAX = 24 };

typedef struct compile_job {
    const char *file, *defines, *arch;
    bool text; /* no further than to the assembler's text */
    af_error err;
} compile_job;
static compile_job jobs[JOBS_MAX];
static af_kernels kernels; /* only nvrtc and the cache folder are used */

static size_t word_length(const char *w) { return strcspn(w, " "); }
static const char *next_word(const char *w)
{
    w += word_length(w);
    return w + strspn(w, " ");
}

static void compile_text(compile_job *job)
{
    const af_nvrtc *rtc = &kernels.nvrtc;
    const char *header[FILES_MAX], *name[FILES_MAX],
        *option[OPTIONS_MAX] = {"-std=c++17", "-default-device"};
    char text[600], arch[40], log[4000] = "";
    int headers = 0, options = 2;
    size_t bytes = 0, used = 0;
    void *program = NULL;
    for (int i = 0; i < af_kernel_source_count && headers < FILES_MAX; i++) {
        header[headers] = af_kernel_sources[i].text;
        name[headers++] = af_kernel_sources[i].name;
    }
    snprintf(arch, sizeof arch, "--gpu-architecture=compute_%s", job->arch + strlen("sm_"));
    option[options++] = arch;
    if (rtc->quick)
        option[options++] = "--Ofast-compile=max";
    for (const char *w = job->defines; *w && options < OPTIONS_MAX; w = next_word(w)) {
        option[options++] = text + used;
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "-D%.*s", (int)word_length(w), w) + 1;
    }
    const char *source = af_kernel_source(job->file);
    if (rtc->create(&program, source, job->file, headers, header, name) != 0 ||
        rtc->compile(program, options, option) != 0) {
        if (program && rtc->log_size(program, &bytes) == 0 && bytes <= sizeof log)
            (void)!rtc->log(program, log);
        (void)!af_fail(&job->err, AF_EDEVICE, "%s [%s] does not compile for %s: %.170s", job->file,
                       job->defines, job->arch, log);
    }
    if (program)
        rtc->destroy(&program);
}

static void compile_some(void *arg, int64_t from, int64_t to, int share)
{
    (void)arg, (void)share;
    for (int64_t i = from; i < to; i++) {
        af_kernels k = kernels;
        af_module m = {.file = jobs[i].file, .defines = jobs[i].defines};
        snprintf(k.arch, sizeof k.arch, "%s", jobs[i].arch);
        if (jobs[i].text)
            compile_text(&jobs[i]);
        else
            (void)!af_module_obtain(&k, &m, &jobs[i].err);
        free(m.cubin);
    }
}

static bool have_nvrtc(void)
{
    af_error err = {0};
    if (!kernels.nvrtc.lib && af_nvrtc_open(&kernels.nvrtc, 0, &err) != AF_OK) {
        print_message("SKIPPED: %s\n", err.msg);
        return false;
    }
    return true;
}

static bool has_word(const char *defines, const char *word)
{
    const size_t n = word_length(word);
    for (const char *w = defines; *w; w = next_word(w))
        if (word_length(w) == n && memcmp(w, word, n) == 0)
            return true;
    return false;
}

/* How many of its defines none of `n` jobs has. */
static int new_defines(const char *defines, const compile_job *job, int n)
{
    int fresh = 0;
    for (const char *w = defines; *w; w = next_word(w)) {
        int i = 0;
        while (i < n && !has_word(job[i].defines, w))
            i++;
        fresh += i == n;
    }
    return fresh;
}

/* The architecture for which the fewest of these defines were compiled. */
static const char *arch_for(const char *file, const char *defines, const compile_job *job, int n)
{
    const char *best = "sm_90a";
    int most = -1;
    for (int k = 0; k < 3 && !strstr(file, "sm90"); k++) { /* those are empty for others */
        const char *arch = archs[(n + k) % 3];
        int fresh = 0;
        for (const char *w = defines; *w; w = next_word(w)) {
            int i = 0;
            while (i < n && !(strcmp(job[i].arch, arch) == 0 && has_word(job[i].defines, w)))
                i++;
            fresh += i == n;
        }
        if (fresh > most) {
            most = fresh;
            best = arch;
        }
    }
    return best;
}

static int add_job(const af_kernel_text *f, const char *defines, bool text, compile_job *job, int n)
{
    const char *arch = arch_for(f->name, defines, job, n);
    job[n] = (compile_job){.file = f->name, .defines = defines, .arch = arch, .text = text};
    return n + 1;
}

/* Variants of a file, those with most that is new first, until every define is there; then those of
 * ordinary runs. */
static int add_some(const af_kernel_text *f, compile_job *job)
{
    int n = 0;
    for (int most = 1; most > 0;) {
        const char *best = f->variants[0];
        most = 0;
        for (const char *const *v = f->variants; *v; v++) {
            const int fresh = new_defines(*v, job, n);
            if (fresh > most) {
                most = fresh;
                best = *v;
            }
        }
        if (best && (most > 0 || n == 0)) /* a file without defines has one variant */
            n = add_job(f, best, false, job, n);
    }
    for (const char *const *v = f->common; *v; v++) {
        int i = 0;
        while (i < n && strcmp(job[i].defines, *v) != 0)
            i++;
        if (i == n)
            n = add_job(f, *v, true, job, n);
    }
    return n;
}

static int add_all(const af_kernel_text *f, compile_job *job)
{
    int n = 0;
    for (const char *const *v = f->variants; *v; v++)
        for (size_t a = 0; a < AF_LEN(archs); a++)
            job[n++] = (compile_job){.file = f->name, .defines = *v, .arch = archs[a]};
    return n;
}

static void test_every_kernel_compiles(void **state)
{
    int n = 0, bad = 0, texts = 0;
    af_error err = {0};
    af_pool *pool = NULL;
    (void)state;
    if (!have_nvrtc())
        skip_because("no NVRTC");
    const char *build = getenv("AF_BUILD"); /* results are kept there: only changes cost time */
    char *cache = build ? af_path_join(build, "kernel-cache") : NULL;
    if (cache && af_dir_make(cache, &err) == AF_OK)
        kernels.cache = cache;
    const bool all = getenv("AF_ALL_ARCHS") != NULL;
    kernels.no_pack = false; /* what the build has compiled need not be compiled again */
    kernels.nvrtc.quick = kernels.nvrtc.major >= 13; /* a third of the time; the same checks */
    for (int i = 0; i < af_kernel_source_count; i++) {
        assert_true(n + FILE_JOBS_MAX <= JOBS_MAX);
        const int more = (all ? add_all : add_some)(&af_kernel_sources[i], jobs + n);
        assert_true(more <= FILE_JOBS_MAX);
        n += more;
    }
    CHECK_OK(af_pool_new(&pool, 0, &err), err);
    af_pool_run(pool, n, compile_some, NULL);
    af_pool_free(pool);
    for (int i = 0; i < n; i++) {
        texts += jobs[i].text;
        if (jobs[i].err.code) {
            print_error("%s\n", jobs[i].err.msg);
            bad++;
        }
    }
    print_message("%d programs, %d of them as text only, %d compiled by the build\n", n, texts,
                  af_cubin_count);
    free(cache);
    kernels.cache = NULL;
    kernels.nvrtc.quick = false;
    assert_int_equal(bad, 0);
}

static void test_a_damaged_cache_entry_is_rebuilt(void **state)
{
    char folder[] = "/tmp/afinar-kernels-XXXXXX", key[65], name[80];
    af_error err = {0};
    af_kernels k = kernels;
    af_module m = {.file = "gemm.cu", .defines = "AF_T=float AF_C=float"};
    (void)state;
    if (!have_nvrtc() || !af_kernel_source("dev.cuh"))
        skip_because("no NVRTC");
    k.nvrtc = kernels.nvrtc;
    k.no_pack = true;
    k.cache = mkdtemp(folder);
    snprintf(k.arch, sizeof k.arch, "sm_90a");
    assert_non_null(k.cache);
    CHECK_OK(af_module_obtain(&k, &m, &err), err);
    assert_true(m.compiled);
    const uint64_t size = m.size;
    free(m.cubin);
    m.cubin = NULL;
    m.compiled = false;
    CHECK_OK(af_module_obtain(&k, &m, &err), err); /* now from the folder */
    assert_false(m.compiled);
    assert_int_equal(m.size, size);

    af_module_key(&k.nvrtc, k.arch, m.file, m.defines, key);
    snprintf(name, sizeof name, "%s.cubin", key);
    char *path = af_path_join(folder, name), *file = NULL;
    uint64_t n = 0;
    CHECK_OK(af_file_read(&file, &n, path, 1 << 24, &err), err);
    file[n / 2] ^= 1;
    CHECK_OK(af_file_write(path, file, n, &err), err);
    free(m.cubin);
    m.cubin = NULL;
    CHECK_OK(af_module_obtain(&k, &m, &err), err);
    assert_true(m.compiled);
    free(m.cubin);
    m.cubin = NULL;
    m.compiled = false;
    CHECK_OK(af_file_write(path, file, 5, &err), err); /* cut short */
    CHECK_OK(af_module_obtain(&k, &m, &err), err);
    assert_true(m.compiled);
    free(m.cubin);
    free(file);
    free(path);
    CHECK_OK(af_path_remove(folder, &err), err);
}

static void test_keys_depend_on_everything(void **state)
{
    const af_nvrtc a = {.major = 13, .minor = 0}, b = {.major = 12, .minor = 9};
    char key[5][65];
    (void)state;
    af_module_key(&a, "sm_90a", "gemm.cu", "AF_T=bf16", key[0]);
    af_module_key(&b, "sm_90a", "gemm.cu", "AF_T=bf16", key[1]);
    af_module_key(&a, "sm_80", "gemm.cu", "AF_T=bf16", key[2]);
    af_module_key(&a, "sm_90a", "core.cu", "AF_T=bf16", key[3]);
    af_module_key(&a, "sm_90a", "gemm.cu", "AF_T=half", key[4]);
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(key[i], key[k]);
}

static void test_without_a_compiler_the_file_and_architecture_are_named(void **state)
{
    af_kernels k = {.no_pack = true, .arch = "sm_90a"};
    af_module m = {.file = "gemm.cu", .defines = "AF_T=float AF_C=float"};
    af_error err = {0};
    (void)state;
    snprintf(k.nvrtc_err.msg, sizeof k.nvrtc_err.msg, "libnvrtc is not there");
    assert_int_equal(af_module_obtain(&k, &m, &err), AF_EDEVICE);
    assert_non_null(strstr(err.msg, "gemm.cu"));
    assert_non_null(strstr(err.msg, "sm_90a"));
    assert_non_null(strstr(err.msg, "libnvrtc is not there"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kernel_compiles),
        cmocka_unit_test(test_a_damaged_cache_entry_is_rebuilt),
        cmocka_unit_test(test_keys_depend_on_everything),
        cmocka_unit_test(test_without_a_compiler_the_file_and_architecture_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
