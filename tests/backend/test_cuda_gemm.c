/* test_cuda_gemm.c - the own GEMM kernels on a GPU against sums in double, at shapes that fill no
 * tile, with every tile of gemm_cost.c, and cuBLASLt's as we call it. AF_SPEED=1 times both at the
 * shapes of real layers, AF_RANK=1 every tile next to what the model says. */
#include "test.h"

#include "backend/compile_all.h"

#include "backend/cuda/cuda_graph.h"
#include "backend/cuda/cuda_test.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/gemm_cost.h"
#include "backend/cuda/kernels.h"
#include "worse.h"

#include <math.h>

enum { CUBLAS, OWN, WAYS };
static const char *const way_name[] = {"cublas", "own"};
static af_device *gpu;

typedef struct gemm_shape {
    int64_t M, N, K;
    int pad, batch; /* values between rows; 0 = 1 */
} gemm_shape;

typedef struct gemm_case {
    gemm_shape s;
    af_dtype t, tc;
    bool ta, tb, bias;
    float alpha, beta;
} gemm_case;

static float value_of(uint64_t i)
{
    uint32_t h = (uint32_t)(i * 2654435761u + 12345u);
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    return (float)((int)(h % 257) - 128) / 128.0f; /* exact in bf16 and f16 */
}

static float get(const void *p, int64_t i, af_dtype t)
{
    return t == AF_DTYPE_F32    ? ((const float *)p)[i]
           : t == AF_DTYPE_BF16 ? af_f32_from_bf16(((const uint16_t *)p)[i])
                                : af_f32_from_f16(((const uint16_t *)p)[i]);
}

static void put(void *p, int64_t i, af_dtype t, float v)
{
    if (t == AF_DTYPE_F32)
        ((float *)p)[i] = v;
    else
        ((uint16_t *)p)[i] = t == AF_DTYPE_BF16 ? af_bf16_from_f32(v) : af_f16_from_f32(v);
}

static void *filled(int64_t n, af_dtype t, uint64_t seed)
{
    void *p = calloc((size_t)n, (size_t)af_dtype_get(t)->bytes);
    assert_non_null(p);
    for (int64_t i = 0; i < n; i++)
        put(p, i, t, value_of((uint64_t)i + seed));
    return p;
}

typedef struct operands { /* on the host and on the device */
    void *host[4], *dev[4];
    int64_t n[4];
    af_cuda_gemm m;
} operands;

static void make(operands *o, const gemm_case *c)
{
    const int64_t B = AF_MAX(c->s.batch, 1), M = c->s.M, N = c->s.N, K = c->s.K;
    const int64_t rows[] = {c->ta ? K : M, c->tb ? N : K, M},
                  cols[] = {c->ta ? M : K, c->tb ? K : N, N};
    af_mat *x[] = {&o->m.a, &o->m.b, &o->m.c};
    int64_t *stride[] = {&o->m.stride_a, &o->m.stride_b, &o->m.stride_c};
    const af_cuda *cu = (af_cuda *)gpu;
    for (int i = 0; i < 4; i++) {
        const af_dtype t = i < 2 ? c->t : c->tc;
        const int64_t ld = i < 3 ? cols[i] + c->s.pad : N;
        o->n[i] = i < 3 ? B * rows[i] * ld : N;
        o->host[i] = filled(o->n[i], t, (uint64_t)i * 77777);
        assert_int_equal(cu->drv->mem_alloc(&o->dev[i], (size_t)o->n[i] * 4), 0);
        if (i < 3) {
            *x[i] = (af_mat){o->dev[i], rows[i], cols[i], ld, t};
            *stride[i] = rows[i] * ld;
        }
    }
    o->m.ta = c->ta, o->m.tb = c->tb, o->m.alpha = c->alpha, o->m.beta = c->beta;
    o->m.batch = c->s.batch;
    o->m.bias = c->bias ? o->dev[3] : NULL;
}

static void unmake(operands *o)
{
    for (int i = 0; i < 4; i++) {
        free(o->host[i]);
        ((af_cuda *)gpu)->drv->mem_free(o->dev[i]);
    }
}

static void upload(const operands *o, const gemm_case *c)
{
    const af_cuda *cu = (af_cuda *)gpu;
    for (int i = 0; i < 4; i++) {
        const size_t size = (size_t)af_dtype_get(i < 2 ? c->t : c->tc)->bytes;
        assert_int_equal(
            cu->drv->copy_up(o->dev[i], o->host[i], (size_t)o->n[i] * size, cu->stream), 0);
    }
    cu->drv->stream_sync(cu->stream);
}

/* Milliseconds of a GEMM, the mean of `repeats`; the result of the last is in o->dev[2]. */
static float run(operands *o, const gemm_case *c, int way, int repeats)
{
    af_cuda *cu = (af_cuda *)gpu;
    af_cuda_graph cg = {0};
    af_node node = {0};
    af_error err = {0};
    bool dirtied = false;
    void *event[2];
    float ms = 0;
    af_cuda_test_on(gpu)->no_cublas = way != CUBLAS;
    cu->cg = &cg;
    cu->err = (af_error){0};
    af_cuda_add_gemm(cu, &node, &o->m);
    CHECK_OK(cu->err.code, cu->err);
    CHECK_OK(af_kernels_build(cu->kernels, cu, &err), err);
    CHECK_OK(af_cuda_gemm_tune(cu, &dirtied, &err), err);
    CHECK_OK(af_kernels_build(cu->kernels, cu, &err), err);
    CHECK_OK(af_cuda_check_launches(cu, &node, &err), err);
    const af_cuda_gemm_plan *p = af_exec_of(&node, 0)->step[0].gemm;
    upload(o, c); /* tuning wrote over them */
    for (int i = 0; i < 2; i++)
        assert_int_equal(cu->drv->event_new(&event[i], 0), 0);
    for (int i = repeats > 1 ? -3 : 0; i < repeats; i++) {
        if (i == 0)
            cu->drv->event_record(event[0], cu->stream);
        CHECK_OK(af_cuda_gemm_issue(cu, p, &err), err);
    }
    cu->drv->event_record(event[1], cu->stream);
    assert_int_equal(cu->drv->event_sync(event[1]), 0);
    cu->drv->event_elapsed(&ms, event[0], event[1]);
    for (int i = 0; i < 2; i++)
        cu->drv->event_free(event[i]);
    af_cuda_gemm_release(cu, af_exec_of(&node, 0)->step[0].gemm);
    af_arena_clear(&cg.mem);
    cu->cg = NULL;
    return ms / (float)repeats;
}

/* The results, and after them the sums of the sizes of what each adds up. */
static double *truth(const operands *o, const gemm_case *c)
{
    const gemm_shape *s = &c->s;
    const int64_t B = AF_MAX(s->batch, 1);
    const af_mat *a = &o->m.a, *b = &o->m.b, *r = &o->m.c;
    const int64_t results = B * s->M * s->N;
    double *t = calloc((size_t)(2 * results), sizeof *t);
    double *bt = calloc((size_t)(s->N * s->K), sizeof *bt),
           *row = calloc((size_t)s->K, sizeof *row);
    for (int64_t z = 0; z < B; z++) {
        for (int64_t n = 0; n < s->N; n++)
            for (int64_t k = 0; k < s->K; k++)
                bt[n * s->K + k] = get(
                    o->host[1], z * o->m.stride_b + (c->tb ? n * b->ld + k : k * b->ld + n), c->t);
        for (int64_t m = 0; m < s->M; m++) {
            for (int64_t k = 0; k < s->K; k++)
                row[k] = get(o->host[0],
                             z * o->m.stride_a + (c->ta ? k * a->ld + m : m * a->ld + k), c->t);
            for (int64_t n = 0; n < s->N; n++) {
                const double old =
                    (double)c->beta *
                    (double)get(o->host[2], z * o->m.stride_c + m * r->ld + n, c->tc);
                const double bias = c->bias ? (double)get(o->host[3], n, c->tc) : 0;
                double sum = 0, size = 0;
                for (int64_t k = 0; k < s->K; k++) {
                    sum += row[k] * bt[n * s->K + k];
                    size += fabs(row[k] * bt[n * s->K + k]);
                }
                double *at = t + (z * s->M + m) * s->N + n;
                at[0] = sum * (double)c->alpha + old + bias;
                at[results] = size * (double)c->alpha + fabs(old) + fabs(bias);
            }
        }
    }
    free(bt);
    free(row);
    return t;
}

/* The largest difference in units of what a value may be off; values between rows must not change.
 * cuBLASLt may split the inner dimension and store partial sums in the type of the result
 * (gemm_tune.c): each is off by half a unit in its last place, however small the sum of them is. */
static double compare(const operands *o, const gemm_case *c, const double *t, const void *got,
                      int way)
{
    const gemm_shape *s = &c->s;
    const double out = c->tc == AF_DTYPE_F32 ? 0 : c->tc == AF_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    double worst = 0;
    for (int64_t r = 0; r < AF_MAX(s->batch, 1) * s->M; r++)
        for (int64_t n = 0; n < o->m.c.ld; n++) {
            const int64_t at = r * o->m.c.ld + n;
            const double v = get(got, at, c->tc);
            if (n >= s->N) {
                CHECK_MSG(v == (double)get(o->host[2], at, c->tc), "a value between rows changed");
                continue;
            }
            const double want = t[r * s->N + n];
            const double size = t[(AF_MAX(s->batch, 1) * s->M + r) * s->N + n];
            const double may =
                out * (way == CUBLAS ? 2 * size : fabs(want) * 1.01) + 1e-6 * (double)s->K + 1e-6;
            worst = worse(worst, fabs(v - want) / may);
        }
    return worst;
}

static void check(const gemm_case *c)
{
    operands o = {0};
    make(&o, c);
    double *t = truth(&o, c);
    const size_t bytes = (size_t)o.n[2] * (size_t)af_dtype_get(c->tc)->bytes;
    void *got[2] = {malloc(bytes), malloc(bytes)};
    const af_cuda *cu = (af_cuda *)gpu;
    for (int way = cu->lt ? CUBLAS : OWN; way < WAYS; way++) {
        for (int again = 0; again < 2; again++) {
            (void)run(&o, c, way, 1);
            assert_int_equal(cu->drv->copy_down(got[again], o.dev[2], bytes, cu->stream), 0);
            cu->drv->stream_sync(cu->stream);
        }
        const double e = compare(&o, c, t, got[0], way);
        print_message("%-8s %s -> %s %c%c %5ld x %5ld x %4ld batch %d beta %g%s: %.3f\n",
                      way_name[way], af_dtype_name(c->t), af_dtype_name(c->tc), c->ta ? 't' : 'n',
                      c->tb ? 't' : 'n', (long)c->s.M, (long)c->s.N, (long)c->s.K, c->s.batch,
                      (double)c->beta, c->bias ? " bias" : "", e);
        CHECK_MSG(e < 1, "%s differs from the sums in double", way_name[way]);
        CHECK_MSG(memcmp(got[0], got[1], bytes) == 0, "%s: other bits the second time",
                  way_name[way]);
    }
    free(got[0]);
    free(got[1]);
    free(t);
    unmake(&o);
}

static void force(int tile, int split)
{
    af_cuda_test *t = af_cuda_test_on(gpu);
    t->gemm_tile = tile + 1;
    t->gemm_split = split;
}

/* Every tile, whole and in two parts, against sums in double; the same bits however it is cut along
 * m and n. */
static void check_tiles(const gemm_case *c)
{
    operands o = {0};
    make(&o, c);
    double *t = truth(&o, c);
    const size_t bytes = (size_t)o.n[2] * (size_t)af_dtype_get(c->tc)->bytes;
    void *first = malloc(bytes), *got = malloc(bytes);
    const af_cuda *cu = (af_cuda *)gpu;
    const bool halves = c->s.K % 16 == 0 && c->s.batch == 0;
    for (int way = 0; way < AF_GEMM_TILES * (halves ? 2 : 1); way++) {
        const int tile = way % AF_GEMM_TILES, split = way < AF_GEMM_TILES ? 1 : 2;
        force(tile, split);
        (void)run(&o, c, OWN, 1);
        assert_int_equal(cu->drv->copy_down(way == 0 ? first : got, o.dev[2], bytes, cu->stream),
                         0);
        cu->drv->stream_sync(cu->stream);
        const double e = compare(&o, c, t, way == 0 ? first : got, OWN);
        CHECK_MSG(e < 1, "tile %d in %d parts differs from the sums in double: %.3f", tile, split,
                  e);
        CHECK_MSG(way == 0 || split > 1 || memcmp(first, got, bytes) == 0,
                  "tile %d: other bits than the first", tile);
    }
    force(-1, 0);
    free(first);
    free(got);
    free(t);
    unmake(&o);
}

static void test_every_tile_agrees_too(void **state)
{
    static const gemm_shape shapes[] = {{3, 5, 8, 3, 0},
                                        {65, 129, 40, 8, 3},
                                        {264, 136, 272, 8, 0},
                                        {16, 1160, 208, 0, 0},
                                        {1288, 24, 64, 8, 0}};
    (void)state;
    if (!gpu)
        skip_because("no GPU");
    for (size_t i = 0; i < AF_LEN(shapes); i++)
        for (int k = 0; k < 6; k++) {
            gemm_case c = {.s = shapes[i],
                           .t = AF_DTYPE_BF16,
                           .tc = k % 2 ? AF_DTYPE_F32 : AF_DTYPE_BF16,
                           .ta = k / 2 == 1,
                           .tb = k / 2 == 2,
                           .bias = k == 4,
                           .alpha = k == 3 ? 0.5f : 1.0f,
                           .beta = k == 2 ? 1.0f : 0.0f};
            check_tiles(&c);
        }
}

static void test_gemms_agree_with_sums_in_double(void **state)
{
    static const gemm_shape shapes[] = {{1, 1, 1, 0, 0},        {3, 5, 7, 2, 0},
                                        {65, 129, 33, 0, 3},    {130, 72, 264, 8, 0},
                                        {128, 136, 40, 8, 2},   {2049, 1157, 72, 3, 0},
                                        {2056, 1160, 72, 0, 0}, {1288, 2056, 200, 8, 0}};
    static const struct {
        af_dtype t, tc;
    } types[] = {{AF_DTYPE_BF16, AF_DTYPE_BF16},
                 {AF_DTYPE_BF16, AF_DTYPE_F32},
                 {AF_DTYPE_F16, AF_DTYPE_F16},
                 {AF_DTYPE_F32, AF_DTYPE_F32}};
    (void)state;
    if (!gpu)
        skip_because("no GPU");
    for (size_t i = 0; i < AF_LEN(shapes); i++)
        for (int k = 0; k < 16; k++) {
            const bool large = shapes[i].M > 1000, f32 = k / 4 == 3;
            if (large && k / 4 >= 2) /* large tiles are for bf16 */
                continue;
            check(&(gemm_case){.s = shapes[i],
                               .t = types[k / 4].t,
                               .tc = types[k / 4].tc,
                               .ta = k & 1,
                               .tb = k & 2,
                               .bias = !f32 && k % 4 == 3,
                               .alpha = k % 4 == 2 ? 0.5f : 1.0f,
                               .beta = k % 4 == 1 ? 1.0f : 0.0f});
        }
}

static void test_speed_of_the_ways(void **state)
{
    static const gemm_shape shapes[] = {{8192, 4096, 4096, 0, 0}, {8192, 22016, 4096, 0, 0},
                                        {4096, 896, 896, 0, 0},   {4096, 9728, 896, 0, 0},
                                        {8192, 1536, 8960, 0, 0}, {2048, 32000, 4096, 0, 0}};
    (void)state;
    if (!gpu || !getenv("AF_SPEED"))
        skip_because("timing was not asked for");
    for (size_t i = 0; i < AF_LEN(shapes); i++)
        for (int k = 0; k < 4; k++) {
            const gemm_shape *s = &shapes[i];
            const gemm_case c = {.s = *s,
                                 .t = AF_DTYPE_BF16,
                                 .tc = AF_DTYPE_BF16,
                                 .ta = k & 1,
                                 .tb = k & 2,
                                 .alpha = 1};
            const double flop = 2.0 * (double)s->M * (double)s->N * (double)s->K;
            operands o = {0};
            make(&o, &c);
            float ms[WAYS] = {0};
            for (int way = ((af_cuda *)gpu)->lt ? CUBLAS : OWN; way < WAYS; way++)
                ms[way] = run(&o, &c, way, 20);
            print_message("%5ld x %5ld x %4ld %c%c:", (long)s->M, (long)s->N, (long)s->K,
                          c.ta ? 't' : 'n', c.tb ? 't' : 'n');
            for (int way = 0; way < WAYS; way++)
                print_message("  %s %.3f ms %.0f TFLOP/s", way_name[way], (double)ms[way],
                              flop / (double)ms[way] / 1e9);
            print_message("  (%.2fx)\n", (double)(ms[OWN] / ms[CUBLAS]));
            unmake(&o);
        }
}

/* One shape: times of every tile and split, what the model says of them, and what its choice loses
 * against the fastest. */
static double rank_tiles(const gemm_shape *s, bool ta, bool tb, const af_gpu_rates *g)
{
    const gemm_case c = {
        .s = *s, .t = AF_DTYPE_BF16, .tc = AF_DTYPE_BF16, .ta = ta, .tb = tb, .alpha = 1};
    const af_gemm_shape shape = {s->M, s->N, s->K, 1, 2};
    const af_gemm_way choice = af_gemm_choose(g, &shape, AF_LT_WORKSPACE);
    operands o = {0};
    float best = 0, chosen = 0;
    make(&o, &c);
    for (int i = 0; i < AF_GEMM_TILES * 4; i++) {
        const af_gemm_way w = {i % AF_GEMM_TILES, 1 << i / AF_GEMM_TILES};
        if (!af_gemm_fits(g, &shape, w, AF_LT_WORKSPACE))
            continue;
        force(w.tile, w.split);
        const float ms = run(&o, &c, OWN, 10);
        const bool is_choice = w.tile == choice.tile && w.split == choice.split;
        print_message("%5ld x %6ld x %5ld %c%c %3d x %3d s%d /%d: %9.2f us, model %9.2f%s\n",
                      (long)s->M, (long)s->N, (long)s->K, ta ? 't' : 'n', tb ? 't' : 'n',
                      af_gemm_tiles[w.tile].m, af_gemm_tiles[w.tile].n,
                      af_gemm_tiles[w.tile].stages, w.split, (double)ms * 1e3,
                      af_gemm_cost(g, &shape, w) / g->clock * 1e6, is_choice ? " *" : "");
        best = best > 0 ? AF_MIN(best, ms) : ms;
        chosen = is_choice ? ms : chosen;
    }
    force(-1, 0);
    unmake(&o);
    return chosen > 0 ? (double)(chosen / best) : NAN;
}

static void test_ranking_of_tiles(void **state)
{
    static const gemm_shape shapes[] = {{8192, 4096, 4096, 0, 0}, {4096, 896, 896, 0, 0},
                                        {4096, 9728, 896, 0, 0},  {2048, 1536, 8960, 0, 0},
                                        {512, 1536, 8960, 0, 0},  {8192, 16, 4096, 0, 0},
                                        {16, 4096, 8192, 0, 0},   {16, 18944, 3584, 0, 0},
                                        {64, 3584, 18944, 0, 0},  {1, 4096, 4096, 0, 0}};
    (void)state;
    if (!gpu || !getenv("AF_RANK"))
        skip_because("ranking was not asked for");
    const af_cuda *cu = (af_cuda *)gpu;
    const af_gpu_rates g = af_gpu_rates_of(cu->arch, cu->sms, cu->smem_max, cu->name);
    double loss = 1;
    for (size_t i = 0; i < AF_LEN(shapes); i++) {
        const double l = rank_tiles(&shapes[i], i == 6, i != 6, &g);
        print_message("choice / fastest: %.3f\n", l);
        loss *= l;
    }
    print_message("choice / fastest, geometric mean: %.3f\n", pow(loss, 1.0 / AF_LEN(shapes)));
}

/* The workspace is made when a graph is prepared: cuBLASLt's, or that of parts. */
static int open_gpu(void **state)
{
    (void)state;
    af_error err = {0};
    af_graph *g = NULL;
    const int64_t dim[2] = {64, 64};
    if (af_cuda_open(&gpu, 0, NULL) != AF_OK)
        return 0;
    compile_file((af_cuda *)gpu, "gemm_tiles.cu");
    CHECK_OK(af_graph_new(&g, &err), err);
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_BF16, 2, dim);
    af_graph_output(g, af_matmul(g, x, x, AF_MATMUL_NN));
    af_cuda_test_on(gpu)->model_tiles = true;
    CHECK_OK(af_graph_prepare(g, gpu, &err), err);
    af_cuda_test_on(gpu)->model_tiles = false;
    af_graph_free(g);
    return 0;
}

static int close_gpu(void **state)
{
    (void)state;
    af_device_close(gpu);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gemms_agree_with_sums_in_double),
                                       cmocka_unit_test(test_every_tile_agrees_too),
                                       cmocka_unit_test(test_ranking_of_tiles),
                                       cmocka_unit_test(test_speed_of_the_ways)};
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
