/* test_cuda_tiles.c - choices of tiles by the cost models (gemm_cost.c, attention_cost.c): every
 * choice fits its GPU and names a kernel that is built, it is the cheapest that fits, costs grow
 * with the shape, and the model agrees with what an H200 measured. */
#include "test.h"

#include "backend/cuda/gemm_cost.h"
#include "backend/cuda/kernels.h"
#include "ops/attention/attention_cost.h"

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
        if (!test_takes(k))
            continue;
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
        if (!test_takes(k))
            continue;
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

static const af_attention_shape listed_attention[] = {{8192, 4, 28, 4, 128, 0, true, false, false},
                                                      {8192, 4, 28, 4, 128, 0, true, false, true},
                                                      {2048, 4, 14, 2, 64, 0, true, false, false},
                                                      {2048, 4, 14, 2, 64, 0, true, false, true},
                                                      {8192, 1, 8, 4, 256, 1024, true, true, true}};

static void test_choices_are_those_of_the_list(void **state)
{
    char file[512], want[192], line[192];
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
        for (size_t i = 0; i < AF_LEN(listed_attention); i++) {
            const af_attention_shape *s = &listed_attention[i];
            const af_attention_way w = af_attention_choose(&g, s);
            const af_attention_tile *t = &af_attention_tile_list[w.tile];
            snprintf(want, sizeof want,
                     "%s: attention %s, %" PRId64
                     " rows, %d+%d of %d: %d warps of %d, %d streamed, "
                     "%d parts\n",
                     gpus[k].name, s->back ? "backward" : "forward", s->rows, s->heads, s->kv_heads,
                     s->ep, t->warps, t->mt * 16, t->bn, w.splits);
            if (write)
                fputs(want, f);
            else if (!fgets(line, sizeof line, f) || strcmp(line, want) != 0)
                wrong++, print_error("chosen: %s", want);
        }
    }
    fclose(f);
    assert_int_equal(wrong, 0);
}

/* Rates of the table are published numbers, not measured ones: a choice made with them stays good
 * when the GPU's own differ by a third. */
static void test_choices_stay_good_when_rates_are_off(void **state)
{
    double worst = 1, sum = 0;
    int count = 0;
    (void)state;
    for (size_t k = 0; k < AF_LEN(gpus); k++)
        for (size_t i = 0; i < AF_LEN(listed); i++)
            for (int off = 0; off < 8; off++) {
                const af_gpu_rates said = rates(k);
                af_gpu_rates real = said;
                double *rate[] = {&real.mma, &real.l2_bytes, &real.dram_bytes, &real.latency};
                *rate[off / 2] *= off % 2 ? 4.0 / 3 : 0.75;
                const af_gemm_way w = af_gemm_choose(&said, &listed[i], WORKSPACE),
                                  best = af_gemm_choose(&real, &listed[i], WORKSPACE);
                const double loss =
                    af_gemm_cost(&real, &listed[i], w) / af_gemm_cost(&real, &listed[i], best);
                assert_true(loss >= 1);
                worst = AF_MAX(worst, loss);
                sum += loss;
                count++;
            }
    if (getenv("AF_LIST"))
        print_message("a rate off by a third costs %.3f on average, %.3f at most\n", sum / count,
                      worst);
    assert_true(sum / count < 1.02 && worst < 1.3);
}

/* ---- attention ---- */

static void test_every_attention_tile_is_built(void **state)
{
    (void)state;
    for (int i = 0; i < af_attention_tile_count; i++)
        for (int capped = 0; capped < 2; capped++) {
            const af_attention_tile *t = &af_attention_tile_list[i];
            char defines[160];
            snprintf(defines, sizeof defines,
                     "AF_BWD=%d AF_EP=%d AF_WARPS=%d AF_MT=%d AF_BN=%d AF_SOFTCAP=%d AF_VEC=8",
                     t->back, t->ep, t->warps, t->mt, t->bn, capped);
            CHECK_MSG(has_variant("attention.cu", defines) || !(capped ? t->capped : t->plain),
                      "no variant %s", defines);
        }
}

static const int eps[] = {32, 64, 80, 96, 128, 256};

/* Number i of those below; false for heads that no kernel of tensor cores with a soft cap takes. */
static bool attention_shape(af_attention_shape *s, int i)
{
    static const int heads[][2] = {{14, 2}, {28, 4}, {32, 32}, {32, 8}, {8, 1}};
    static const int64_t rows[] = {1, 64, 512, 8192, 131072};
    const int h = i / 2 % 5;
    *s = (af_attention_shape){.back = i % 2,
                              .heads = heads[h][0],
                              .kv_heads = heads[h][1],
                              .rows = rows[i / 10 % 5],
                              .sequences = 1 + i / 50 % 3 * 7,
                              .ep = eps[i / 150 % 6],
                              .causal = i / 900 % 2 == 0,
                              .window = i / 1800 % 2 ? 1024 : 0,
                              .capped = i / 3600 % 2};
    return !s->capped || s->ep == 64 || s->ep == 128 || s->ep == 256;
}
enum { ATTENTION_SHAPES = 7200 };

/* Something fits on every GPU, also heads of 256 in 99 KiB, and it is the cheapest. */
static void test_attention_choices_fit_and_are_the_cheapest(void **state)
{
    af_attention_shape s;
    (void)state;
    for (size_t k = 0; k < AF_LEN(gpus); k++) {
        if (!test_takes(k))
            continue;
        const af_gpu_rates g = rates(k);
        for (int i = 0; i < ATTENTION_SHAPES; i++) {
            if (!attention_shape(&s, i))
                continue;
            const af_attention_way w = af_attention_choose(&g, &s);
            CHECK_MSG(w.tile >= 0, "sm_%d: no tile for heads of %d", gpus[k].arch, s.ep);
            assert_true(af_attention_fits(&g, &s, w));
            assert_true(af_attention_tile_shared(&af_attention_tile_list[w.tile]) <=
                        gpus[k].shared);
            assert_true(s.heads / s.kv_heads % w.splits == 0);
            const double cost = af_attention_cost(&g, &s, w);
            assert_true(cost > 0 && isfinite(cost));
            for (int tile = 0; tile < af_attention_tile_count; tile++)
                for (int splits = 1; splits <= s.heads / s.kv_heads; splits++) {
                    const af_attention_way other = {tile, splits};
                    if (af_attention_fits(&g, &s, other))
                        assert_true(af_attention_cost(&g, &s, other) >= cost);
                }
        }
    }
}

static void test_attention_costs_grow_with_the_shape(void **state)
{
    af_attention_shape s;
    (void)state;
    for (size_t k = 0; k < AF_LEN(gpus); k++) {
        if (!test_takes(k))
            continue;
        const af_gpu_rates g = rates(k);
        for (int i = 0; i < ATTENTION_SHAPES; i++) {
            if (!attention_shape(&s, i))
                continue;
            af_attention_shape more[] = {s, s, s};
            more[0].rows += 128;
            more[1].heads *= 2, more[1].kv_heads *= 2;
            more[2].window = 0;
            for (int tile = 0; tile < af_attention_tile_count; tile++) {
                const af_attention_way w = {tile, 1};
                for (int d = 0; d < 3 && af_attention_fits(&g, &s, w); d++)
                    CHECK_MSG(af_attention_cost(&g, &more[d], w) >=
                                  af_attention_cost(&g, &s, w) * (1 - 1e-12),
                              "sm_%d, tile %d: less when dimension %d grows (case %d)",
                              gpus[k].arch, tile, d, i);
            }
        }
    }
}

/* Four sequences of 2048, causal, forward: what attention.cu took (docs/decisions/0014). */
static void test_the_model_of_attention_agrees_with_an_h200(void **state)
{
    static const struct {
        int heads, kv_heads, ep;
        double ms;
    } seen[] = {{32, 32, 96, 0.387}, {32, 8, 80, 0.352}, {32, 8, 128, 0.558}, {24, 8, 32, 0.163}};
    const af_gpu_rates g = rates(6);
    (void)state;
    for (size_t i = 0; i < AF_LEN(seen); i++) {
        const af_attention_shape s = {8192, 4,     seen[i].heads, seen[i].kv_heads, seen[i].ep, 0,
                                      true, false, false};
        for (int tile = 0; tile < af_attention_tile_count; tile++) {
            const af_attention_way w = {tile, 1};
            if (!af_attention_fits(&g, &s, w))
                continue;
            const af_attention_tile *t = &af_attention_tile_list[tile];
            const double ms = af_attention_cost(&g, &s, w) / g.clock * 1e3;
            if (getenv("AF_LIST"))
                print_message("%d+%d of %d, tile %d: %.3f ms, measured %.3f\n", s.heads, s.kv_heads,
                              s.ep, tile, ms, seen[i].ms);
            if (t->warps == 4 && t->mt == 2) /* the one that was measured */
                CHECK_MSG(fabs(ms / seen[i].ms - 1) < 0.15, "%.3f ms, measured %.3f", ms,
                          seen[i].ms);
        }
    }
}

/* A kernel for few tokens and 4-bit weights fits every GPU (bnb_linear_cuda.c): the defines it is
 * given are those of a variant, which the compiler of a driver-only machine cannot add. */
static void test_warps_for_few_tokens_are_built(void **state)
{
    static const char *const rest[] = {"AF_TOK=8", "AF_TOK=16", "AF_TOK=8 AF_WARPS=16 AF_SLOTS=4",
                                       "AF_TOK=8 AF_WARPS=8 AF_SLOTS=2",
                                       "AF_TOK=16 AF_WARPS=8 AF_SLOTS=2"};
    (void)state;
    for (size_t i = 0; i < AF_LEN(rest) * 2; i++) {
        char defines[96];
        snprintf(defines, sizeof defines, "AF_BOOK=%s_bits %s", i % 2 ? "fp4" : "nf4", rest[i / 2]);
        CHECK_MSG(has_variant("bnb_linear.cu", defines), "no variant %s", defines);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_tile_is_built),
        cmocka_unit_test(test_choices_fit_and_are_the_cheapest),
        cmocka_unit_test(test_costs_grow_with_the_shape),
        cmocka_unit_test(test_the_model_agrees_with_an_h200),
        cmocka_unit_test(test_choices_are_those_of_the_list),
        cmocka_unit_test(test_choices_stay_good_when_rates_are_off),
        cmocka_unit_test(test_every_attention_tile_is_built),
        cmocka_unit_test(test_warps_for_few_tokens_are_built),
        cmocka_unit_test(test_attention_choices_fit_and_are_the_cheapest),
        cmocka_unit_test(test_attention_costs_grow_with_the_shape),
        cmocka_unit_test(test_the_model_of_attention_agrees_with_an_h200),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
