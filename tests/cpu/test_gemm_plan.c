/* test_gemm_plan.c - the plans of CPU GEMMs for every machine of gemm_machine.c, whatever the host:
 * which kernel, and that blocks, steps and cuts keep the promises the loops rely on. Nothing is
 * multiplied and no operand is read. */
#include "test.h"

#include "cpu/gemm/gemm_plan.h"

static const struct {
    const char *isa;
    const af_gemm_machine *m;
} machines[] = {
    {"portable", &af_gemm_machine_portable},
    {"sse2", &af_gemm_machine_sse2},
    {"avx2", &af_gemm_machine_avx2},
    {"avx512", &af_gemm_machine_avx512},
    {"amx", &af_gemm_machine_amx},
    {"neon", &af_gemm_machine_neon},
    {"neondot", &af_gemm_machine_neondot},
    {"neonbf16", &af_gemm_machine_neonbf16},
    {"avx512bf16", &af_gemm_machine_avx512bf16},
};

typedef struct plan_case {
    const char *why;
    int64_t M, N, K;
    af_dtype a, b, c;
    bool ta, tb;
} plan_case;

static af_gemm gemm_of(const plan_case *p)
{
    return (af_gemm){.M = p->M,
                     .N = p->N,
                     .K = p->K,
                     .a = {.ld = p->ta ? p->M : p->K, .dtype = p->a, .trans = p->ta},
                     .b = {.ld = p->tb ? p->K : p->N, .dtype = p->b, .trans = p->tb},
                     .ldc = p->N,
                     .c_dtype = p->c,
                     .alpha = 1};
}

static const plan_case cases[] = {
    {"one value", 1, 1, 1, AF_DTYPE_F32, AF_DTYPE_F32, AF_DTYPE_F32, false, true},
    {"forward f32", 1024, 1536, 576, AF_DTYPE_F32, AF_DTYPE_F32, AF_DTYPE_F32, false, true},
    {"forward bf16", 1024, 1536, 576, AF_DTYPE_BF16, AF_DTYPE_BF16, AF_DTYPE_BF16, false, true},
    {"dX bf16", 1024, 576, 1536, AF_DTYPE_BF16, AF_DTYPE_BF16, AF_DTYPE_BF16, false, false},
    {"rows a page apart", 1024, 576, 2048, AF_DTYPE_BF16, AF_DTYPE_BF16, AF_DTYPE_BF16, false,
     true},
    {"k not a multiple of a tile", 100, 90, 1000, AF_DTYPE_BF16, AF_DTYPE_BF16, AF_DTYPE_BF16,
     false, true},
    {"dW f32", 576, 576, 1024, AF_DTYPE_F32, AF_DTYPE_F32, AF_DTYPE_F32, true, false},
    {"dW bf16", 576, 576, 1024, AF_DTYPE_BF16, AF_DTYPE_BF16, AF_DTYPE_F32, true, false},
    {"logits", 352, 49152, 576, AF_DTYPE_F32, AF_DTYPE_F32, AF_DTYPE_F32, false, true},
    {"dX of the head, bf16", 512, 576, 49152, AF_DTYPE_BF16, AF_DTYPE_BF16, AF_DTYPE_BF16, false,
     false},
    {"dX of the head, f32", 352, 576, 49152, AF_DTYPE_F32, AF_DTYPE_F32, AF_DTYPE_F32, false,
     false},
    {"dW of the head", 49152, 576, 352, AF_DTYPE_BF16, AF_DTYPE_BF16, AF_DTYPE_F32, true, false},
    {"f32 rows, bf16 weights", 1024, 1536, 576, AF_DTYPE_F32, AF_DTYPE_BF16, AF_DTYPE_F32, false,
     true},
    {"f32 rows into bf16", 700, 1210, 1290, AF_DTYPE_F32, AF_DTYPE_F32, AF_DTYPE_BF16, false, true},
    {"bf16 rows, f32 weights", 333, 610, 3000, AF_DTYPE_BF16, AF_DTYPE_F32, AF_DTYPE_BF16, false,
     true},
};
static const int thread_counts[] = {1, 2, 3, 8, 9, 16, 64};

/* Bytes of the panels that a group of steps of one block takes, at most. */
static int64_t panel_bytes(const af_gemm_plan *p, const af_gemm *g, const af_gemm_machine *m)
{
    const int64_t k = AF_MIN(p->total, p->group * p->kc), size = af_value_bytes(p->kind),
                  a = p->own_rows ? 0 : AF_MIN(p->packed_k, k) * size * af_planes_a(p->kind),
                  edge = af_gemm_packs_edge(p, m) ? p->kc * m->tile[p->kind].mr * size : 0;
    return p->mc * a + p->nc * k * size * af_planes_b(p->kind, &g->b) + edge;
}

static void check_plan(const char *isa, const plan_case *c, int threads, const af_gemm_machine *m)
{
    const af_gemm g = gemm_of(c);
    const af_gemm_plan p = af_gemm_plan_make(&g, threads, m), one = af_gemm_plan_make(&g, 1, m);
    const int64_t mr = m->tile[p.kind].mr, nr = m->tile[p.kind].nr, kr = m->tile[p.kind].kr;
#define THAT(x)                                                                                    \
    CHECK_MSG(x, "%s, %s, %d threads: not %s (kc %d, group %d, mc %d, nc %d)", isa, c->why,        \
              threads, #x, (int)p.kc, (int)p.group, (int)p.mc, (int)p.nc)
    THAT(mr > 0 && p.mc > 0 && p.nc > 0 && p.group > 0 && p.strip > 0);
    THAT(p.mc % mr == 0 && p.nc % nr == 0 && p.kc % kr == 0);
    THAT(p.total >= g.K && p.total % kr == 0 && p.packed_k <= p.total);
    THAT(p.all_k == (p.group * p.kc >= p.total));
    THAT(panel_bytes(&p, &g, m) <= af_gemm_panel_bytes(m, threads));
    THAT(p.staged == (c->c == AF_DTYPE_BF16 && p.total > p.kc));
    THAT(!p.staged || (p.mc <= m->scratch_rows && p.nc <= m->scratch_cols));
    /* the order of a sum: by the number of threads only where the kernel is another one, or where
     * sums continue from step to step */
    THAT(p.kind != one.kind || p.kc == one.kc || (p.staged && p.kind == AF_GEMM_BF16));
    const int64_t rows = AF_MIN(p.mc, g.M), cols = AF_MIN(p.nc, g.N);
    const af_gemm_cut cut = af_gemm_plan_cut(&p, rows, cols, threads, m);
    const int64_t tiles = af_ceil_div(rows, mr), panels = af_ceil_div(cols, nr);
    THAT(cut.pieces >= 1 && cut.pieces <= tiles);
    THAT(cut.strips >= 1 && cut.strips <= panels && af_ceil_div(panels, cut.strips) <= p.strip);
    THAT(cut.parts >= 1 && cut.parts <= panels / cut.strips);
#undef THAT
}

static void test_plans_keep_their_promises(void **state)
{
    (void)state;
    for (size_t m = 0; m < AF_LEN(machines); m++)
        for (size_t c = 0; c < AF_LEN(cases); c++)
            for (size_t t = 0; t < AF_LEN(thread_counts); t++)
                check_plan(machines[m].isa, &cases[c], thread_counts[t], machines[m].m);
}

static void test_kernels_by_type_shape_and_threads(void **state)
{
    static const struct {
        const char *why;
        const af_gemm_machine *m;
        plan_case c;
        int threads;
        af_gemm_kind want;
    } kinds[] = {
        {"no bf16 tile",
         &af_gemm_machine_avx512,
         {"", 64, 64, 64, AF_DTYPE_BF16, AF_DTYPE_BF16, AF_DTYPE_BF16, 0, 1},
         1,
         AF_GEMM_F32},
        {"BFMMLA",
         &af_gemm_machine_neonbf16,
         {"", 64, 64, 64, AF_DTYPE_BF16, AF_DTYPE_F32, AF_DTYPE_BF16, 0, 1},
         1,
         AF_GEMM_BF16},
        {"AMX bf16",
         &af_gemm_machine_amx,
         {"", 1, 1, 1, AF_DTYPE_BF16, AF_DTYPE_BF16, AF_DTYPE_BF16, 0, 1},
         16,
         AF_GEMM_BF16},
        {"f32 in planes",
         &af_gemm_machine_amx,
         {"", 1, 32, 32, AF_DTYPE_F32, AF_DTYPE_F32, AF_DTYPE_F32, 0, 1},
         8,
         AF_GEMM_PLANES},
        {"few columns",
         &af_gemm_machine_amx,
         {"", 512, 31, 64, AF_DTYPE_F32, AF_DTYPE_F32, AF_DTYPE_F32, 0, 1},
         1,
         AF_GEMM_F32},
        {"few k's",
         &af_gemm_machine_amx,
         {"", 512, 64, 16, AF_DTYPE_F32, AF_DTYPE_F32, AF_DTYPE_F32, 0, 1},
         1,
         AF_GEMM_F32},
        {"few rows of dW",
         &af_gemm_machine_amx,
         {"", 16, 64, 64, AF_DTYPE_F32, AF_DTYPE_F32, AF_DTYPE_F32, 1, 0},
         1,
         AF_GEMM_F32},
        {"many threads",
         &af_gemm_machine_amx,
         {"", 512, 64, 64, AF_DTYPE_F32, AF_DTYPE_F32, AF_DTYPE_F32, 0, 1},
         9,
         AF_GEMM_F32},
        {"bf16 weights",
         &af_gemm_machine_amx,
         {"", 512, 64, 64, AF_DTYPE_F32, AF_DTYPE_BF16, AF_DTYPE_F32, 0, 1},
         64,
         AF_GEMM_PLANES},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(kinds); i++) {
        const af_gemm g = gemm_of(&kinds[i].c);
        const af_gemm_plan p = af_gemm_plan_make(&g, kinds[i].threads, kinds[i].m);
        CHECK_MSG(p.kind == kinds[i].want, "%s: kernel %d, not %d", kinds[i].why, (int)p.kind,
                  (int)kinds[i].want);
    }
}

/* Rows that are stored as AMX reads them are not packed, unless they conflict in the cache or run
 * along k. */
static void test_what_amx_packs(void **state)
{
    (void)state;
    const af_gemm_machine *m = &af_gemm_machine_amx;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        const af_gemm g = gemm_of(&cases[i]);
        const af_gemm_plan p = af_gemm_plan_make(&g, 2, m);
        const bool in_place = cases[i].a == AF_DTYPE_BF16 && !cases[i].ta && g.K % 32 == 0 &&
                              g.a.ld * 2 % m->alias != 0;
        CHECK_MSG(p.packed_k == (in_place ? 0 : p.total), "%s: %d k's packed", cases[i].why,
                  (int)p.packed_k);
        CHECK_MSG(!p.own_rows || p.kind == AF_GEMM_PLANES || cases[i].ta, "%s", cases[i].why);
    }
    const af_gemm dw = gemm_of(&cases[7]);
    assert_true(af_gemm_plan_make(&dw, 2, m).own_rows);
}

/* f32 rows are read where they lie by the tiles of x86, unless they are far apart or k is not a
 * multiple of what a tile takes. More threads do not mean more blocks. */
static void test_f32_rows_in_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < AF_LEN(machines); i++) {
        const af_gemm_machine *m = machines[i].m;
        plan_case c = {"", 512, 576, 1536, AF_DTYPE_F32, AF_DTYPE_F32, AF_DTYPE_F32, false, true};
        af_gemm g = gemm_of(&c);
        const int threads = m->planes_threads < 16 ? 16 : 2; /* then on the vector unit */
        const af_gemm_plan near = af_gemm_plan_make(&g, threads, m);
        CHECK_MSG((near.packed_k == 0) == m->rows_in_place, "%s", machines[i].isa);
        g.a.ld = AF_GEMM_NEAR + 4;
        assert_int_equal(af_gemm_plan_make(&g, threads, m).packed_k, 1536);
        c.K = 1534;
        g = gemm_of(&c);
        assert_int_equal(af_gemm_plan_make(&g, threads, m).packed_k, 1536);
        const af_gemm dw = gemm_of(&(plan_case){"", 1536, 576, 1024, AF_DTYPE_F32, AF_DTYPE_F32,
                                                AF_DTYPE_F32, true, false});
        const af_gemm_plan p = af_gemm_plan_make(&dw, 64, m);
        CHECK_MSG(p.mc >= 1536 && p.nc >= 576, "%s: mc %d, nc %d", machines[i].isa, (int)p.mc,
                  (int)p.nc);
    }
}

/* So are bf16 rows by the tiles of pairs, if they begin with a pair; a last part of a tile, too. */
static void test_bf16_rows_in_place(void **state)
{
    (void)state;
    const af_gemm_machine *m = &af_gemm_machine_avx512bf16;
    const struct {
        int64_t M, K, ld;
        bool trans, in_place;
    } rows[] = {{1024, 576, 576, false, true},
                {1021, 576, 578, false, true},
                {1024, 576, 577, false, false},
                {1024, 572, 576, false, false},
                {1024, 576, AF_GEMM_NEAR + 2, false, false},
                {1024, 576, 1024, true, false}};
    for (size_t i = 0; i < AF_LEN(rows); i++) {
        af_gemm g = gemm_of(&(plan_case){"", rows[i].M, 1536, rows[i].K, AF_DTYPE_BF16,
                                         AF_DTYPE_BF16, AF_DTYPE_BF16, rows[i].trans, true});
        g.a.ld = rows[i].ld;
        const af_gemm_plan p = af_gemm_plan_make(&g, 2, m);
        assert_int_equal(p.kind, AF_GEMM_BF16);
        CHECK_MSG((p.packed_k == 0) == rows[i].in_place, "%d: %d k's packed", (int)i,
                  (int)p.packed_k);
        assert_false(af_gemm_packs_edge(&p, m) || p.own_rows);
    }
}

/* Rows are split into planes by all threads together, but not once for each block of the head. */
static void test_what_is_split_into_planes_once(void **state)
{
    (void)state;
    const af_gemm_machine *m = &af_gemm_machine_amx;
    static const struct {
        int64_t M, N;
        int threads;
        bool own;
    } splits[] = {{1024, 3072, 2, false},
                  {1024, 3072, 1, true},
                  {1024, 49152, 2, true},
                  {4096, 3072, 2, true},
                  {1024, 576, 2, true}};
    for (size_t i = 0; i < AF_LEN(splits); i++) {
        const af_gemm g = gemm_of(&(plan_case){"", splits[i].M, splits[i].N, 576, AF_DTYPE_F32,
                                               AF_DTYPE_F32, AF_DTYPE_F32, false, true});
        CHECK_MSG(af_gemm_plan_make(&g, splits[i].threads, m).own_rows == splits[i].own,
                  "%d x %d, %d threads", (int)splits[i].M, (int)splits[i].N, splits[i].threads);
    }
}

/* An f32 adapter with bf16 rows is two bf16 terms; packed panels take no memory of the GEMM. */
static void test_terms_and_packed_panels(void **state)
{
    (void)state;
    const af_gemm_machine *m = &af_gemm_machine_amx;
    const af_packed packed = {.rows = AF_DTYPE_BF16};
    af_gemm g = gemm_of(&cases[2]);
    g.terms = 1;
    g.term[0] = (af_gemm_term){16,
                               {.ld = 16, .dtype = AF_DTYPE_BF16},
                               {.ld = 16, .dtype = AF_DTYPE_F32, .trans = true},
                               true};
    af_gemm_plan p = af_gemm_plan_make(&g, 1, m);
    assert_int_equal(p.total, 576 + 2 * 32);
    assert_int_equal(p.packed_k, 2 * 32);
    g.N = 100000;
    p = af_gemm_plan_make(&g, 1, m);
    assert_true(p.nc < g.N);
    g.b.packed = &packed;
    g.terms = 0;
    p = af_gemm_plan_make(&g, 1, m);
    assert_true(p.nc >= g.N);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans_keep_their_promises),
        cmocka_unit_test(test_kernels_by_type_shape_and_threads),
        cmocka_unit_test(test_what_amx_packs),
        cmocka_unit_test(test_f32_rows_in_place),
        cmocka_unit_test(test_bf16_rows_in_place),
        cmocka_unit_test(test_what_is_split_into_planes_once),
        cmocka_unit_test(test_terms_and_packed_panels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
