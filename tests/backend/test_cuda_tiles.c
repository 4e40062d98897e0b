/* test_cuda_tiles.c - choices of tiles by the cost models (gemm_cost.c, attention_cost.c): every
 * choice fits its GPU and names a kernel that is built, it is the cheapest that fits, costs grow
 * with the shape, and the model agrees with what an H200 measured. */
#include "test.h"

#include "backend/cuda/gemm_cost.h"
#include "backend/cuda/kernels.h"

#include <inttypes.h>
#include <math.h>

enum { WORKSPACE = 32 << 20 };

static const struct gpu {
    int arch, sms, shared;
    const char *name;
} gpus[] = {{80, 108, 166912, "NVIDIA A100-SXM4-80GB"},
            {86, 82, 101376, "NVIDIA GeForce RTX 3090"},
            {86, 84, 101376, "NVIDIA RTX A6000"},
            {89, 128, 101376, "NVIDIA GeForce RTX 4090"},
            {89, 58, 101376, "NVIDIA L4"},
            {89, 142, 101376, "NVIDIA L40S"},
            {90, 132, 232448, "NVIDIA H200"},
            {100, 148, 232448, "NVIDIA B200"},
            {120, 170, 101376, "NVIDIA GeForce RTX 5090"},
            {121, 48, 101376, "NVIDIA GB10"}};

static af_gpu_rates rates(size_t i)
{
    return af_gpu_rates_of(gpus[i].arch, gpus[i].sms, gpus[i].shared, gpus[i].name);
}

static bool has_variant(const char *file, const char *defines)
{
    const af_kernel_text *t = af_kernel_file(file);
    for (const char *const *v = t ? t->variants : NULL; v && *v; v++)
        if (strcmp(*v, defines) == 0)
            return true;
    return false;
}

static int64_t dims[] = {1,   8,   16,   24,   64,   72,   128,   136,
                         512, 896, 1000, 2048, 4096, 8192, 18944, 151936};
enum { DIMS = (int)AF_LEN(dims) };

/* Shape number i of DIMS^3. */
static af_gemm_shape shape(int i)
{
    return (af_gemm_shape){dims[i % DIMS], dims[i / DIMS % DIMS], dims[i / DIMS / DIMS], 1,
                           i % 3 ? 2 : 4};
}

static void test_every_tile_is_built(void **state)
{
    (void)state;
    for (int i = 1; i < AF_GEMM_TILES; i++)
        for (int k = 0; k < 6; k++) {
            const af_gemm_tile *t = &af_gemm_tiles[i];
            char defines[160];
            snprintf(defines, sizeof defines,
                     "AF_BM=%d AF_BN=%d AF_WM=%d AF_WN=%d AF_STAGES=%d AF_TA=%d AF_TB=%d AF_T=bf16 "
                     "AF_C=%s",
                     t->m, t->n, t->warps_m, t->warps_n, t->stages, k / 2 == 2, k / 2 == 1,
                     k % 2 ? "float" : "bf16");
            CHECK_MSG(has_variant("gemm_tiles.cu", defines), "no variant %s", defines);
        }
    assert_true(has_variant("gemm_join.cu", "AF_C=bf16") &&
                has_variant("gemm_join.cu", "AF_C=float"));
}

/* The cheapest of all that fit, and it fits, found again without af_gemm_choose. */
static void test_choices_fit_and_are_the_cheapest(void **state)
{
    (void)state;
    for (size_t k = 0; k < AF_LEN(gpus); k++) {
        const af_gpu_rates g = rates(k);
        for (int i = 0; i < DIMS * DIMS * DIMS; i++) {
            const af_gemm_shape s = shape(i);
            const int64_t work = i % 5 ? WORKSPACE : 0;
            const af_gemm_way w = af_gemm_choose(&g, &s, work);
            const af_gemm_tile *t = &af_gemm_tiles[w.tile];
            const double cost = af_gemm_cost(&g, &s, w);
            assert_true(w.tile >= 0 && w.tile < AF_GEMM_TILES && w.split >= 1);
            assert_true(af_gemm_fits(&g, &s, w, work));
            assert_true(af_gemm_tile_shared(t) <= gpus[k].shared);
            assert_true(af_gemm_split_bytes(&s, w) <= work);
            assert_true(w.split == 1 || s.K % (8 * w.split) == 0);
            assert_true((s.M + t->m - 1) / t->m <= 65535 && cost > 0 && isfinite(cost));
            for (int tile = 0; tile < AF_GEMM_TILES; tile++)
                for (int split = 1; split <= 16; split *= 2) {
                    const af_gemm_way other = {tile, split};
                    if (af_gemm_fits(&g, &s, other, work))
                        CHECK_MSG(af_gemm_cost(&g, &s, other) >= cost, "sm_%d: %d is cheaper",
                                  gpus[k].arch, tile);
                }
        }
    }
}

static void test_costs_grow_with_the_shape(void **state)
{
    (void)state;
    for (size_t k = 0; k < AF_LEN(gpus); k++) {
        const af_gpu_rates g = rates(k);
        for (int i = 0; i < DIMS * DIMS * DIMS; i += 3)
            for (int w = 0; w < AF_GEMM_TILES * 3; w++) {
                const af_gemm_way way = {w % AF_GEMM_TILES, 1 << w / AF_GEMM_TILES};
                const af_gemm_shape s = shape(i);
                af_gemm_shape more[] = {s, s, s, s};
                more[0].M += 100;
                more[1].N += 72;
                more[2].K += 40;
                more[3].batch++;
                if (!af_gemm_fits(&g, &s, (af_gemm_way){way.tile, 1}, 0))
                    continue;
                for (int d = 0; d < 4; d++)
                    CHECK_MSG(af_gemm_cost(&g, &more[d], way) >=
                                  af_gemm_cost(&g, &s, way) * (1 - 1e-12),
                              "sm_%d, tile %d: %" PRId64 " x %" PRId64 " x %" PRId64
                              " costs less when dimension %d grows",
                              gpus[k].arch, way.tile, s.M, s.N, s.K, d);
            }
    }
}

/* bf16, the first tile, the mean of three transposes (docs/measurements/driver-only-h200.txt). */
static void test_the_model_agrees_with_an_h200(void **state)
{
    static const struct {
        int64_t M, N, K;
        double ms;
    } seen[] = {{8192, 4096, 4096, 0.907}, {8192, 22016, 4096, 5.200}, {4096, 896, 896, 0.035},
                {4096, 9728, 896, 0.322},  {8192, 1536, 8960, 0.704},  {2048, 32000, 4096, 1.903}};
    const af_gpu_rates g = rates(6);
    (void)state;
    for (size_t i = 0; i < AF_LEN(seen); i++) {
        const af_gemm_shape s = {seen[i].M, seen[i].N, seen[i].K, 1, 2};
        const double ms = af_gemm_cost(&g, &s, (af_gemm_way){0, 1}) / g.clock * 1e3;
        if (getenv("AF_LIST"))
            print_message("%5" PRId64 " x %5" PRId64 " x %4" PRId64 ": %.3f ms, measured %.3f\n",
                          s.M, s.N, s.K, ms, seen[i].ms);
        CHECK_MSG(fabs(ms / seen[i].ms - 1) < 0.15, "%.3f ms, measured %.3f", ms, seen[i].ms);
    }
}

/* Real projections, both directions, an adapter, the head, and a few tokens. */
static const af_gemm_shape listed[] = {{8192, 4096, 4096, 1, 2}, {8192, 9728, 896, 1, 2},
                                       {2048, 896, 4864, 1, 2},  {512, 1536, 8960, 1, 2},
                                       {8192, 16, 4096, 1, 2},   {16, 4096, 8192, 1, 4},
                                       {1, 4096, 4096, 1, 2},    {16, 18944, 3584, 1, 2},
                                       {64, 3584, 18944, 1, 2},  {4096, 151936, 896, 1, 2}};

static void test_choices_are_those_of_the_list(void **state)
{
    char file[512], want[128], line[128];
    const char *write = getenv("AF_TILES");
    int wrong = 0;
    (void)state;
    snprintf(file, sizeof file, "%s/cuda/tiles.txt", golden_dir());
    FILE *f = fopen(write ? write : file, write ? "w" : "r");
    CHECK_MSG(f, "cannot open %s", write ? write : file);
    for (size_t k = 0; k < AF_LEN(gpus); k++) {
        const af_gpu_rates g = rates(k);
        for (size_t i = 0; i < AF_LEN(listed); i++) {
            const af_gemm_way w = af_gemm_choose(&g, &listed[i], WORKSPACE);
            const af_gemm_tile *t = &af_gemm_tiles[w.tile];
            snprintf(want, sizeof want,
                     "%s: %" PRId64 " x %" PRId64 " x %" PRId64
                     " by %d x %d, %d stages, %d parts\n",
                     gpus[k].name, listed[i].M, listed[i].N, listed[i].K, t->m, t->n, t->stages,
                     w.split);
            if (write)
                fputs(want, f);
            else if (!fgets(line, sizeof line, f) || strcmp(line, want) != 0)
                wrong++, print_error("chosen: %s", want);
        }
    }
    fclose(f);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_tile_is_built),
        cmocka_unit_test(test_choices_fit_and_are_the_cheapest),
        cmocka_unit_test(test_costs_grow_with_the_shape),
        cmocka_unit_test(test_the_model_agrees_with_an_h200),
        cmocka_unit_test(test_choices_are_those_of_the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
