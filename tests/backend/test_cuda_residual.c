/* Which projections add the residual to their result (norm_residual.h), on a driver that only
 * records. */
#include "test.h"

#include "backend/case_list.h"
#include "backend/fake_driver.h"
#include "ops/linear/linear_in.h"

typedef struct residual_case {
    const char *why;
    int64_t N;
    int adds;
    bool shown, twice, apart, late;
    bool scaled;   /* the residual is made inside the block, before the projection */
    int rank;      /* of an adapter */
    af_dtype type; /* AF_DTYPE_F32: bf16 */
} residual_case;

enum { D = 64, LAYERS = 3 };

/* Blocks of two projections and two norms, the second one of which begins the next block. */
static af_tensor *layers_of(rec *r, const residual_case *c, int layers)
{
    af_tensor *sum = act_2(r, c->N, D), *y = af_rmsnorm(r->g, sum, weight_1(r, r->t, D), 1e-6, 0);
    for (int i = 0; i < 2 * layers; i++) {
        af_graph_set_block(r->g, i / 2);
        af_linear_opts o = {.pieces = 1, .weight = {weight_2(r, r->t, D, D)}};
        if (c->rank) {
            o.parts = 1;
            o.a = param_n(r, 2, (int64_t[]){c->rank, D}, -1, 1);
            o.b = param_n(r, 1, (int64_t[]){D * c->rank}, -1, 1);
            o.part[0] = (af_adapter_part){0, D, 0, c->rank, 1};
        }
        if (c->scaled)
            sum = af_scale(r->g, sum, 0.5);
        y = af_linear(r->g, y, &o);
        if (c->shown)
            out(r, y);
        if (c->apart)
            y = af_scale(r->g, y, 2);
        if (c->late) /* the residual is made after the projection */
            sum = af_scale(r->g, sum, 0.5);
        af_tensor *again = c->twice ? y : NULL;
        y = af_rmsnorm_add(r->g, y, sum, weight_1(r, r->t, D), 1e-6, 0, &sum);
        if (again)
            y = af_add(r->g, y, again);
    }
    af_graph_set_block(r->g, -1);
    return af_add(r->g, y, sum);
}

static void prepare(rec *r, af_device *d, const residual_case *c, int layers, af_recompute mode)
{
    af_error err = {0};
    *r = (rec){.t = c->type == AF_DTYPE_F32 ? AF_DTYPE_BF16 : c->type, .blank = true};
    CHECK_OK(af_graph_new(&r->g, &err), err);
    finish(r, layers_of(r, c, layers));
    af_graph_set_recompute(r->g, mode, layers);
    CHECK_OK(af_graph_prepare(r->g, d, &err), err);
}

/* Projections of a phase that add, or that do not. */
static int projections(const af_graph *g, af_phase phase, bool adds)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i]->op == AF_OP_LINEAR && g->nodes[i]->phase == phase &&
             (af_linear_in(g->nodes[i]).add != NULL) == adds;
    return n;
}

static int norms(const af_graph *g, af_op op)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i]->op == op && g->nodes[i]->phase == AF_PHASE_FORWARD;
    return n;
}

static void test_other_results_are_added_by_the_norm(void **state)
{
    static const residual_case list[] = {
        {"as measured", 4096, 2},
        {"few rows", 4095, 0},
        {"another type", 4096, 0, .type = AF_DTYPE_F16},
        {"the result is an output", 4096, 0, .shown = true},
        {"the result is read twice", 4096, 0, .twice = true},
        {"an op before the norm", 4096, 0, .apart = true},
        {"a residual that comes later", 4096, 0, .late = true},
        {"a residual of the block", 4096, 2, .scaled = true},
        {"an adapter", 4096, 2, .rank = 64},
        {"an adapter in a GEMM of its own", 4096, 0, .rank = 65},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(list); i++) {
        rec r;
        af_device *d = open_fake();
        prepare(&r, d, &list[i], 1, AF_RECOMPUTE_NONE);
        const int adds = projections(r.g, AF_PHASE_FORWARD, true);
        CHECK_MSG(adds == list[i].adds && norms(r.g, AF_OP_RMSNORM_ADD) == 2 - adds &&
                      norms(r.g, AF_OP_RMSNORM) == 1 + adds,
                  "%s: %d projections add", list[i].why, adds);
        rec_clear(&r);
        af_device_close(d);
        drop_kept();
    }
}

/* The same projections add in every mode, also when the backward pass computes them again: else a
 * mode would have other bits. */
static void test_every_mode_adds_in_the_same_places(void **state)
{
    static const residual_case list[] = {
        {"", 4096, 2 * LAYERS},
        {"a residual of the block", 4096, 2 * LAYERS, .scaled = true},
        {"read twice", 4096, 0, .twice = true},
        {"later", 4096, 0, .late = true},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(list); i++)
        for (af_recompute mode = AF_RECOMPUTE_NONE; mode <= AF_RECOMPUTE_OFFLOAD; mode++) {
            rec r;
            af_device *d = open_fake();
            prepare(&r, d, &list[i], LAYERS, mode);
            const bool adds = list[i].adds > 0;
            const int again = projections(r.g, AF_PHASE_BACKWARD, adds);
            CHECK_MSG(projections(r.g, AF_PHASE_FORWARD, true) == list[i].adds &&
                          projections(r.g, AF_PHASE_BACKWARD, !adds) == 0 &&
                          (again > 0 || mode != AF_RECOMPUTE_BLOCK),
                      "%s, %s", list[i].why, af_recompute_name(mode));
            rec_clear(&r);
            af_device_close(d);
            drop_kept();
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_results_are_added_by_the_norm),
        cmocka_unit_test(test_every_mode_adds_in_the_same_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
