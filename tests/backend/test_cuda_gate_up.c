/* Which projections are one launch with the gated unit after them (gate_up.h), on a driver that
 * only records. */
#include "test.h"

#include "backend/case_list.h"
#include "backend/cuda/kernels.h"
#include "backend/fake_driver.h"
#include "ops/glu/gate_up.h"

typedef struct unit_case {
    const char *why;
    int64_t N, D, F;
    int joined; /* launches of the kernel */
    bool bias, clamped, shown, apart;
    bool frozen;   /* no gradient reaches gate and up */
    af_dtype type; /* AF_DTYPE_F32: bf16 */
    int arch;      /* 0: Hopper */
} unit_case;

/* Layers of gate|up, the unit and a projection back to D. */
static af_tensor *units(rec *r, const unit_case *c, int layers)
{
    af_tensor *x = c->frozen ? in_2(r, c->N, c->D) : act_2(r, c->N, c->D);
    for (int i = 0; i < layers; i++) {
        af_graph_set_block(r->g, i);
        af_linear_opts o = {.pieces = 2};
        for (int k = 0; k < 2; k++) {
            o.weight[k] = weight_2(r, r->t, c->F, c->D);
            o.bias[k] = c->bias ? weight_1(r, r->t, c->F) : NULL;
        }
        af_tensor *both = af_linear(r->g, x, &o);
        if (c->shown)
            out(r, both);
        if (c->apart) /* the values of the unit are not those of the projection */
            both = af_scale(r->g, both, 2);
        af_tensor *h = c->clamped ? af_glu_clamped(r->g, both, 7) : af_glu(r->g, both, AF_ACT_SILU);
        o = (af_linear_opts){.pieces = 1, .weight = {weight_2(r, r->t, c->D, c->F)}};
        x = af_linear(r->g, h, &o);
    }
    af_graph_set_block(r->g, -1);
    return c->frozen ? af_add(r->g, x, act_2(r, c->N, c->D)) : x;
}

/* Launches of the kernel by the nodes of a phase, of variants that have `defines`. */
static int launches(const af_graph *g, af_phase phase, const char *defines)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const af_exec *e = g->nodes[i]->phase == phase ? af_exec_of(g->nodes[i], 0) : NULL;
        for (int k = 0; e && k < e->n; k++)
            n += e->step[k].kind == AF_STEP_LAUNCH &&
                 strcmp(e->step[k].launch->kernel->name, "gate_up_sm90") == 0 &&
                 strstr(e->step[k].launch->kernel->module->defines, defines);
    }
    return n;
}

static af_device *prepare(rec *r, const unit_case *c, int layers, af_recompute mode)
{
    af_error err = {0};
    af_device *d = open_fake();
    ((af_cuda *)d)->arch = c->arch ? c->arch : 90;
    *r = (rec){.t = c->type == AF_DTYPE_F32 ? AF_DTYPE_BF16 : c->type, .blank = true};
    CHECK_OK(af_graph_new(&r->g, &err), err);
    finish(r, units(r, c, layers));
    af_graph_set_recompute(r->g, mode, layers);
    CHECK_OK(af_graph_prepare(r->g, d, &err), err);
    return d;
}

static void close_all(rec *r, af_device *d)
{
    rec_clear(r);
    af_device_close(d);
    drop_kept();
}

static void test_other_projections_keep_their_gemm(void **state)
{
    static const unit_case list[] = {
        {"as measured", 1024, 64, 128, 1},
        {"rows after the last whole tile", 1025, 64, 128, 1},
        {"gate and up are outputs", 1024, 64, 128, 1, .shown = true},
        {"few rows", 1023, 64, 128, 0},
        {"an inner dimension that ends inside a stage", 1024, 96, 128, 0},
        {"columns that end inside a tile", 1024, 64, 192, 0},
        {"a bias", 1024, 64, 128, 0, .bias = true},
        {"a clamped unit", 1024, 64, 128, 0, .clamped = true},
        {"an op before the unit", 1024, 64, 128, 0, .apart = true},
        {"another type", 1024, 64, 128, 0, .type = AF_DTYPE_F16},
        {"another architecture", 1024, 64, 128, 0, .arch = 100},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(list); i++) {
        rec r;
        af_device *d = prepare(&r, &list[i], 1, AF_RECOMPUTE_NONE);
        const int n = launches(r.g, AF_PHASE_FORWARD, "");
        int left = 0;
        for (int k = 0; k < r.g->n_nodes; k++)
            left += r.g->nodes[k]->op == AF_OP_GLU;
        CHECK_MSG(n == list[i].joined && left == 1 - n, "%s: %d launches, %d units", list[i].why, n,
                  left);
        close_all(&r, d);
    }
}

/* gate and up that the backward pass makes again are not stored before, and come from the same
 * kernel then. */
static void test_what_is_made_again_is_not_stored(void **state)
{
    static const unit_case c = {"", 1024, 64, 128, 0};
    enum { LAYERS = 3 };
    (void)state;
    for (af_recompute mode = AF_RECOMPUTE_NONE; mode <= AF_RECOMPUTE_OFFLOAD; mode++) {
        rec r;
        af_device *d = prepare(&r, &c, LAYERS, mode);
        const int stored = mode < AF_RECOMPUTE_WIDE ? LAYERS : 0;
        assert_int_equal(launches(r.g, AF_PHASE_FORWARD, "AF_KEEP=1 AF_UNIT=1"), stored);
        assert_int_equal(launches(r.g, AF_PHASE_FORWARD, "AF_KEEP=0 AF_UNIT=1"), LAYERS - stored);
        assert_int_equal(launches(r.g, AF_PHASE_BACKWARD, "AF_KEEP=1 AF_UNIT=0"), LAYERS - stored);
        assert_int_equal(launches(r.g, AF_PHASE_BACKWARD, "AF_UNIT=1"), 0);
        close_all(&r, d);
    }
}

/* Strips of columns by shape, on a GPU of 132 multiprocessors (66 pairs of blocks). */
static void test_the_last_columns_are_halved_where_that_ends_sooner(void **state)
{
    static const struct {
        int64_t M, F, wide, narrow, strips;
    } list[] = {
        {2048, 8960, 128, 512, 74}, /* 8 rounds, then 64 halves instead of 32 whole tiles */
        {2048, 18944, 256, 0, 74},  /* the last round is almost full */
        {2816, 4864, 128, 0, 38},   /* more rows than a band: rows would have other parts */
        {8192, 8960, 256, 0, 35},   /* strips of two tiles */
        {1041, 2304, 128, 640, 23}, {1024, 128, 128, 0, 1},
    };
    af_cuda cu = {.sms = 132};
    (void)state;
    for (size_t i = 0; i < AF_LEN(list); i++) {
        const af_gate_up_cut c = af_gate_up_cut_of(&cu, list[i].M, list[i].F);
        CHECK_MSG(c.wide == list[i].wide && c.narrow == list[i].narrow &&
                      c.strips == list[i].strips,
                  "%d x %d: %d, %d, %d", (int)list[i].M, (int)list[i].F, (int)c.wide, (int)c.narrow,
                  (int)c.strips);
    }
}

/* Nor are those that nothing reads. */
static void test_what_is_read_is_stored(void **state)
{
    (void)state;
    for (int shown = 0; shown < 2; shown++) {
        const unit_case c = {"", 1024, 64, 128, 0, .frozen = true, .shown = shown};
        rec r;
        af_device *d = prepare(&r, &c, 1, AF_RECOMPUTE_NONE);
        assert_int_equal(launches(r.g, AF_PHASE_FORWARD, "AF_KEEP=0 AF_UNIT=1"), 1 - shown);
        assert_int_equal(launches(r.g, AF_PHASE_FORWARD, "AF_KEEP=1 AF_UNIT=1"), shown);
        close_all(&r, d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_projections_keep_their_gemm),
        cmocka_unit_test(test_what_is_made_again_is_not_stored),
        cmocka_unit_test(test_what_is_read_is_stored),
        cmocka_unit_test(test_the_last_columns_are_halved_where_that_ends_sooner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
