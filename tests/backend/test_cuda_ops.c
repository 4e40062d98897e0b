/* test_cuda_ops.c - every op on the GPU against its CPU twin, on odd shapes, with the GPU's memory
 * poisoned before the run and guards after every tensor checked after it; captured = direct, run =
 * run again, bit for bit. Skips without a GPU. AF_CASE="lora nf4" runs cases whose names begin so,
 * AF_LIST=1 prints every error measured. */
#include "test.h"

#include "backend/compile_all.h"
#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda_graph.h"
#include "backend/cuda/cuda_test.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/kernels.h"
#include "backend/op_compare.h"
#include "graph/graph_test.h"

static void test_every_case_agrees_with_the_cpu(void **state)
{
    static const af_dtype types[] = {AF_DTYPE_F32, AF_DTYPE_BF16, AF_DTYPE_F16};
    int bad = 0;
    (void)state;
    assert_int_equal(wrong_op_errors(), 0);
    if (!gpu)
        skip_because("no GPU");
    for (size_t t = 0; t < AF_LEN(types); t++)
        for (size_t i = 0; i < AF_LEN(cases); i++)
            if (wanted(&cases[i]))
                bad += compare(&cases[i], (how){types[t], AF_RECOMPUTE_NONE, 1, true}, "");
    assert_int_equal(bad, 0);
}

/* Every case whose name begins with one of the names, in bf16 and f16. */
static int compare_chosen(const char *const *names, size_t n, const char *what)
{
    int bad = 0;
    for (size_t i = 0; i < AF_LEN(cases); i++)
        for (size_t k = 0; k < n; k++)
            if (wanted(&cases[i]) && strncmp(cases[i].name, names[k], strlen(names[k])) == 0)
                for (int half = 0; half < 2; half++) {
                    const af_dtype type = half ? AF_DTYPE_F16 : AF_DTYPE_BF16;
                    bad += compare(&cases[i], (how){type, AF_RECOMPUTE_NONE, 1, true}, what);
                }
    return bad;
}

/* Kernels are chosen as on a GPU without Hopper's instructions and cuBLASLt, and with the shared
 * memory of sm_80 and of sm_86: mma.sync and cp.async instead of wgmma and the copy engine, tiles
 * as the cost models choose them. */
static void test_kernels_of_other_gpus_agree_too(void **state)
{
    static const char *const chosen[] = {"attention", "moe",    "scan", "delta",     "adapter",
                                         "linear",    "matmul", "lora", "plain_nf4", "plain_fp4"};
    static const int memory[] = {166912, 101376};
    af_cuda *cu = (af_cuda *)gpu;
    int bad = 0;
    (void)state;
    if (!gpu)
        skip_because("no GPU");
    const int arch = cu->arch, shared = cu->smem_max;
    af_cuda_test_on(gpu)->no_cublas = true;
    cu->arch = AF_MIN(arch, 80);
    for (size_t i = 0; i < AF_LEN(memory); i++) {
        cu->smem_max = AF_MIN(shared, memory[i]);
        bad += compare_chosen(chosen, AF_LEN(chosen), i ? "as sm_86" : "as sm_80");
    }
    af_cuda_test_on(gpu)->no_cublas = false;
    cu->arch = arch;
    cu->smem_max = shared;
    assert_int_equal(bad, 0);
}

/* Blocks that stay on their multiprocessor take several tiles each, as they do on real shapes. */
static void test_few_multiprocessors_agree_too(void **state)
{
    static const char *const chosen[] = {"fp8", "moe", "head", "attention"};
    af_cuda *cu = (af_cuda *)gpu;
    (void)state;
    if (!gpu)
        skip_because("no GPU");
    const int sms = cu->sms;
    cu->sms = 4;
    const int bad = compare_chosen(chosen, AF_LEN(chosen), "4 multiprocessors");
    cu->sms = sms;
    assert_int_equal(bad, 0);
}

/* Without a GPU: the cases themselves are sound. */
static void test_every_case_runs_on_the_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases) && !gpu; i++) {
        if (cases[i].large || !test_takes(i + 1)) /* the third without the longest case */
            continue;
        values v = {0};
        af_error err = {0};
        int worst;
        CHECK_OK(
            run_case(&cases[i], cpu, (how){AF_DTYPE_BF16, AF_RECOMPUTE_NONE, 1, false}, &v, &err),
            err);
        CHECK_MSG(distance(&v, &v, &worst) == 0, "%s is not finite", cases[i].name);
        CHECK_MSG(v.count > 0, "%s compares nothing", cases[i].name);
        clear(&v);
    }
}

static void test_own_gemms_agree_too(void **state)
{
    static const char *const names[] = {
        "matmul",        "matmul_tn", "matmul_batched", "matmul_tiles", "linear",
        "linear_params", "lora",      "head",           "residual",     "residual_full"};
    int bad = 0;
    (void)state;
    if (!gpu)
        skip_because("no GPU");
    af_cuda_test_on(gpu)->no_cublas = true;
    for (size_t k = 0; k < AF_LEN(names); k++)
        for (size_t i = 0; i < AF_LEN(cases); i++)
            if (strcmp(cases[i].name, names[k]) == 0 && wanted(&cases[i])) {
                bad += compare(&cases[i], (how){AF_DTYPE_F32, AF_RECOMPUTE_NONE, 1, false}, "own");
                bad += compare(&cases[i], (how){AF_DTYPE_BF16, AF_RECOMPUTE_NONE, 1, false}, "own");
            }
    af_cuda_test_on(gpu)->no_cublas = false;
    assert_int_equal(bad, 0);
}

/* Operands of 11 bits: no longer f32, still far better than bf16. The fastest kernel is taken, and
 * for a small product that may be one of f32. */
static void test_tf32_gemms_round_their_operands(void **state)
{
    const how h = {AF_DTYPE_F32, AF_RECOMPUTE_NONE, 1, false};
    double most = 0;
    int worst;
    (void)state;
    if (!gpu)
        skip_because("no GPU");
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        values a = {0}, b = {0};
        af_error err = {0};
        if (strncmp(cases[i].name, "matmul", 6) != 0)
            continue;
        af_device_allow_tf32(gpu, true);
        CHECK_OK(run_case(&cases[i], gpu, h, &a, &err), err);
        af_device_allow_tf32(gpu, false);
        CHECK_OK(run_case(&cases[i], cpu, h, &b, &err), err);
        const double e = distance(&a, &b, &worst);
        CHECK_MSG(e < 2e-3, "tf32, %s: %.2e", cases[i].name, e);
        most = AF_MAX(most, e);
        clear(&a);
        clear(&b);
    }
    CHECK_MSG(most > 1e-5, "tf32: %.2e", most);
}

static void test_adapters_in_separate_gemms_agree_too(void **state)
{
    int bad = 0;
    (void)state;
    if (!gpu)
        skip_because("no GPU");
    af_cuda_test_on(gpu)->no_fold = true;
    for (size_t i = 0; i < AF_LEN(cases); i++)
        if ((strncmp(cases[i].name, "lora", 4) == 0 || !strcmp(cases[i].name, "block")) &&
            wanted(&cases[i]))
            bad +=
                compare(&cases[i], (how){AF_DTYPE_BF16, AF_RECOMPUTE_NONE, 1, false}, "separate");
    af_cuda_test_on(gpu)->no_fold = false;
    assert_int_equal(bad, 0);
}

/* Captured, direct, captured again, with recomputation, on one stream, launch after launch: the
 * same bits after some steps. */
static void test_captured_direct_and_repeated_runs_are_the_same_bits(void **state)
{
    static const char *const names[] = {"train", "lora", "attention", "adamw",
                                        "head",  "nf4",  "block",     "residual"};
    int bad = 0;
    (void)state;
    if (!gpu)
        skip_because("no GPU");
    for (size_t k = 0; k < AF_LEN(names); k++)
        for (size_t i = 0; i < AF_LEN(cases); i++) {
            values v[7];
            memset(v, 0, sizeof v);
            af_error err = {0};
            if (strcmp(cases[i].name, names[k]) != 0 || !wanted(&cases[i]))
                continue;
            for (int m = 0; m < 7; m++) {
                const how h = {AF_DTYPE_BF16,
                               m == 3   ? AF_RECOMPUTE_CHEAP
                               : m == 4 ? AF_RECOMPUTE_BLOCK
                                        : AF_RECOMPUTE_NONE,
                               strcmp(names[k], "train") == 0 ? 50 : 3, false};
                af_cuda_test_on(gpu)->one_stream = m == 5;
                af_cuda_test_on(gpu)->no_capture = m == 1;
                af_cuda_test_on(gpu)->no_overlap = m == 6;
                CHECK_OK(run_case(&cases[i], gpu, h, &v[m], &err), err);
                af_cuda_test_on(gpu)->no_capture = af_cuda_test_on(gpu)->one_stream = false;
                af_cuda_test_on(gpu)->no_overlap = false;
                if (!same(&v[0], &v[m])) {
                    print_error("%s: run %d has other bits\n", names[k], m);
                    bad++;
                }
            }
            for (int m = 0; m < 7; m++)
                clear(&v[m]);
        }
    assert_int_equal(bad, 0);
}

/* Graphs prepared from now on use cuDNN where it supports them; false when it is not installed. */
static bool use_cudnn(void)
{
    af_error err = {0};
    af_cuda *cu = (af_cuda *)gpu;
    if (gpu && !cu->dnn && af_dnn_open(cu, NULL, &err) != AF_OK)
        print_message("SKIPPED: %s\n", err.msg);
    if (!gpu || !cu->dnn)
        return false;
    af_device_set_attention(gpu, AF_ATTENTION_CUDNN);
    return true;
}

static int dnn_plans(void)
{
    int n = 0;
    for (const af_dnn_plan *p = ((af_cuda *)gpu)->dnn->plan; p; p = p->next)
        n += p->desc != NULL;
    return n;
}

static void test_attention_by_cudnn_agrees_too(void **state)
{
    static const char *const names[] = {"attention",    "attention_128", "attention_80",
                                        "attention_96", "attention_112", "block"};
    const how h = {AF_DTYPE_BF16, AF_RECOMPUTE_NONE, 1, true};
    int bad = 0;
    (void)state;
    if (!use_cudnn())
        skip_because("no GPU or no cuDNN");
    for (size_t k = 0; k < AF_LEN(names); k++)
        for (size_t i = 0; i < AF_LEN(cases); i++)
            if (strcmp(cases[i].name, names[k]) == 0 && wanted(&cases[i])) {
                const int before = dnn_plans();
                bad += compare(&cases[i], h, "cuDNN");
                CHECK_MSG(dnn_plans() > before || !strcmp(names[k], "block"),
                          "%s did not go to cuDNN", names[k]);
            }
    af_device_set_attention(gpu, AF_ATTENTION_AUTO); /* by its own clock */
    for (size_t i = 0; i < AF_LEN(cases); i++)
        if (strcmp(cases[i].name, "attention_112") == 0 && wanted(&cases[i]))
            bad += compare(&cases[i], h, "auto");
    af_device_set_attention(gpu, AF_ATTENTION_OWN);
    assert_int_equal(bad, 0);
}

static void test_attention_by_cudnn_is_the_same_bits_captured_direct_and_recomputed(void **state)
{
    static const char *const names[] = {"attention", "attention_128", "block"};
    int bad = 0;
    (void)state;
    if (!use_cudnn())
        skip_because("no GPU or no cuDNN");
    for (size_t k = 0; k < AF_LEN(names); k++)
        for (size_t i = 0; i < AF_LEN(cases); i++) {
            values v[4];
            af_error err = {0};
            memset(v, 0, sizeof v);
            if (strcmp(cases[i].name, names[k]) != 0 || !wanted(&cases[i]))
                continue;
            for (int m = 0; m < 4; m++) {
                const how h = {AF_DTYPE_BF16, m == 3 ? AF_RECOMPUTE_BLOCK : AF_RECOMPUTE_NONE, 5,
                               false};
                af_cuda_test_on(gpu)->no_capture = m == 1;
                CHECK_OK(run_case(&cases[i], gpu, h, &v[m], &err), err);
                bad += !same(&v[0], &v[m]);
            }
            af_cuda_test_on(gpu)->no_capture = false;
            for (int m = 0; m < 4; m++)
                clear(&v[m]);
        }
    af_device_set_attention(gpu, AF_ATTENTION_OWN);
    assert_int_equal(bad, 0);
}

/* Quantised weights dequantised once, or at each use: the same bits. */
static void test_shadow_and_scratch_are_the_same_bits(void **state)
{
    values v[2];
    af_error err = {0};
    (void)state;
    if (!gpu)
        skip_because("no GPU");
    memset(v, 0, sizeof v);
    for (size_t i = 0; i < AF_LEN(cases); i++)
        if (strcmp(cases[i].name, "gguf") == 0)
            for (int m = 0; m < 2; m++) {
                af_cuda_test_on(gpu)->scratch = m == 1;
                CHECK_OK(run_case(&cases[i], gpu, (how){AF_DTYPE_BF16, AF_RECOMPUTE_NONE, 2, false},
                                  &v[m], &err),
                         err);
                af_cuda_test_on(gpu)->scratch = false;
            }
    assert_true(same(&v[0], &v[1]));
    clear(&v[0]);
    clear(&v[1]);
}

/* Runs the graph of generation with `live` rows after one with all of them. */
static af_status run_live(af_device *d, af_dtype t, int32_t live, double *got, af_error *err)
{
    af_status st = AF_OK;
    rec r = {.t = t};
    const int32_t bounds[] = {0, live}, start[] = {100 - live};
    AF_TRY(af_graph_new(&r.g, err));
    af_tensor *y = case_generation(&r);
    AF_TRY(af_graph_prepare(r.g, d, err));
    AF_TRY(rec_write(&r, err));
    AF_TRY(af_graph_run(r.g, AF_RUN_FORWARD, err));
    if (d == gpu)
        poison(d, r.g);
    af_graph_set_live_rows(r.g, live);
    for (int i = 0; i < r.leaves; i++)
        if (r.leaf[i].ints)
            AF_TRY(af_tensor_write(r.g, r.leaf[i].t, af_count(r.leaf[i].t) == 2 ? bounds : start,
                                   af_tensor_bytes(r.leaf[i].t), err));
    AF_TRY(af_graph_run(r.g, AF_RUN_FORWARD, err));
    void *raw = calloc(af_tensor_bytes(y), 1);
    st = af_tensor_read(r.g, y, raw, af_tensor_bytes(y), err);
    for (int64_t i = 0; i < live * af_last(y); i++)
        got[i] = af_load_f64(raw, t, (uint64_t)i);
    free(raw);
done:
    rec_clear(&r);
    return st;
}

static void test_few_live_rows_agree_with_the_cpu(void **state)
{
    static const af_dtype types[] = {AF_DTYPE_F32, AF_DTYPE_BF16, AF_DTYPE_F16};
    static const int32_t live[] = {1, 5, 8, 9, 64, 65, 100};
    static double a[6400], b[6400];
    af_error err = {0};
    (void)state;
    if (!gpu)
        skip_because("no GPU");
    for (size_t t = 0; t < AF_LEN(types); t++)
        for (size_t k = 0; k < AF_LEN(live); k++) {
            double d = 0, n = 0;
            CHECK_OK(run_live(gpu, types[t], live[k], a, &err), err);
            CHECK_OK(run_live(cpu, types[t], live[k], b, &err), err);
            for (int i = 0; i < live[k] * 64; i++) {
                d += (a[i] - b[i]) * (a[i] - b[i]);
                n += b[i] * b[i];
            }
            const double e = isfinite(d) ? sqrt(d / n) : 1e30;
            /* 4-bit weights are rounded otherwise than on the CPU */
            CHECK_MSG(e <= (types[t] == AF_DTYPE_F32 ? 2e-5 : 2e-2), "%d rows of %s: %.2e", live[k],
                      af_dtype_name(types[t]), e);
        }
}

static void read_all(rec *r, af_tensor *t, uint8_t *to, af_error *err)
{
    CHECK_OK(af_tensor_read(r->g, t, to, af_tensor_bytes(t), err), *err);
}

/* Rotated by a kernel of its own or by that of attention: the same bits of the cache. Sums over the
 * positions are divided among more warps where few rows are live. */
static void test_single_tokens_are_those_of_other_rows(void **state)
{
    af_error err = {0};
    rec r = {.t = AF_DTYPE_BF16};
    (void)state;
    if (!gpu)
        skip_because("no GPU");
    CHECK_OK(af_graph_new(&r.g, &err), err);
    af_tensor *y = case_single_tokens(&r), *cache = r.out[r.outs - 1];
    CHECK_OK(af_graph_prepare(r.g, gpu, &err), err);
    const uint64_t size = (uint64_t)SINGLE_TOKENS * (uint64_t)af_last(y) * 2,
                   all = af_tensor_bytes(y), held = af_tensor_bytes(cache);
    uint8_t *got = calloc(2, all + held);
    for (int one = 0; one < 2; one++) {
        CHECK_OK(rec_write(&r, &err), err);
        af_graph_set_one_token(r.g, one, 8);
        af_graph_set_live_rows(r.g, SINGLE_TOKENS);
        CHECK_OK(af_graph_run(r.g, AF_RUN_FORWARD, &err), err);
        read_all(&r, y, got + (uint64_t)one * (all + held), &err);
        read_all(&r, cache, got + (uint64_t)one * (all + held) + all, &err);
    }
    double d = 0, n = 0;
    for (uint64_t i = 0; i < size / 2; i++) {
        const double a = af_load_f64(got, AF_DTYPE_BF16, i),
                     b = af_load_f64(got + all + held, AF_DTYPE_BF16, i);
        d += (a - b) * (a - b);
        n += a * a;
    }
    CHECK_MSG(n > 0 && sqrt(d / n) < 5e-3, "error %.2e", sqrt(d / n));
    assert_memory_equal(got + all, got + 2 * all + held, held);
    free(got);
    rec_clear(&r);
}

/* Directly from 4 bits or through the workspace: the same weights, different sums. */
static void test_few_tokens_from_four_bits_agree_with_dequantised(void **state)
{
    static const char *const names[] = {
        "nf4_three",    "nf4_64_tokens", "nf4_many_rows",    "nf4_odd",       "nf4_long",
        "fp4",          "plain_nf4_5",   "plain_nf4_12",     "plain_nf4_17",  "plain_nf4_33",
        "plain_nf4_64", "plain_nf4_100", "plain_nf4_250",    "plain_fp4_256", "plain_nf4_many",
        "plain_nf4_1",  "plain_fp4_2",   "plain_nf4_1_wide", "plain_nf4_rest"};
    af_error err = {0};
    (void)state;
    if (!gpu)
        skip_because("no GPU");
    for (size_t k = 0; k < AF_LEN(names); k++)
        for (size_t i = 0; i < AF_LEN(cases); i++) {
            values v[3];
            int worst;
            memset(v, 0, sizeof v);
            for (int m = 0; m < 3 && strcmp(cases[i].name, names[k]) == 0; m++) {
                const how h = {AF_DTYPE_BF16, AF_RECOMPUTE_NONE, 1, false};
                af_cuda_test_on(gpu)->no_4bit_gemm = m == 2;
                CHECK_OK(run_case(&cases[i], gpu, h, &v[m], &err), err);
                af_cuda_test_on(gpu)->no_4bit_gemm = false;
            }
            const double e = distance(&v[0], &v[2], &worst);
            CHECK_MSG(same(&v[0], &v[1]), "%s: other bits in a second run", names[k]);
            CHECK_MSG(e <= 5e-3, "%s: %.2e", names[k], e);
            for (int m = 0; m < 3; m++)
                clear(&v[m]);
        }
}

static void test_a_step_allocates_compiles_and_waits_for_nothing(void **state)
{
    af_error err = {0};
    rec r = {.t = AF_DTYPE_BF16};
    (void)state;
    if (!gpu)
        skip_because("no GPU");
    CHECK_OK(af_graph_new(&r.g, &err), err);
    case_block(&r);
    CHECK_OK(af_graph_prepare(r.g, gpu, &err), err);
    CHECK_OK(rec_write(&r, &err), err);
    CHECK_OK(af_graph_run(r.g, AF_RUN_GRAD, &err), err);
    const af_counters a = af_device_counters(gpu);
    for (int i = 0; i < 5; i++)
        CHECK_OK(af_graph_run(r.g, AF_RUN_GRAD, &err), err);
    const af_counters b = af_device_counters(gpu);
    assert_true(b.launches > a.launches);
    assert_int_equal(b.compiles, a.compiles);
    assert_int_equal(b.module_loads, a.module_loads);
    assert_int_equal(b.allocations, a.allocations);
    assert_int_equal(b.host_syncs, a.host_syncs);
    assert_int_equal(b.upload_bytes, a.upload_bytes);
    rec_clear(&r);
}

static int open_devices(void **state)
{
    af_error err = {0};
    (void)state;
    if (af_device_open(&gpu, "cuda", 0, &err) != AF_OK)
        print_message("SKIPPED: %s\n", err.msg);
    else
        print_message("%s\n", af_device_text(gpu)), compile_all((af_cuda *)gpu);
    CHECK_OK(af_device_open(&cpu, "cpu", 0, &err), err);
    ((af_cpu *)cpu)->twins_only = true;
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    af_device_close(gpu);
    af_device_close(cpu);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_case_agrees_with_the_cpu),
        cmocka_unit_test(test_kernels_of_other_gpus_agree_too),
        cmocka_unit_test(test_few_multiprocessors_agree_too),
        cmocka_unit_test(test_every_case_runs_on_the_cpu),
        cmocka_unit_test(test_own_gemms_agree_too),
        cmocka_unit_test(test_tf32_gemms_round_their_operands),
        cmocka_unit_test(test_adapters_in_separate_gemms_agree_too),
        cmocka_unit_test(test_captured_direct_and_repeated_runs_are_the_same_bits),
        cmocka_unit_test(test_attention_by_cudnn_agrees_too),
        cmocka_unit_test(test_attention_by_cudnn_is_the_same_bits_captured_direct_and_recomputed),
        cmocka_unit_test(test_shadow_and_scratch_are_the_same_bits),
        cmocka_unit_test(test_few_live_rows_agree_with_the_cpu),
        cmocka_unit_test(test_single_tokens_are_those_of_other_rows),
        cmocka_unit_test(test_few_tokens_from_four_bits_agree_with_dequantised),
        cmocka_unit_test(test_a_step_allocates_compiles_and_waits_for_nothing),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
