/* test_cuda_rounded.c - linears with weights that nodes make, in every memory mode, on a driver
 * that only records: the gradient of x finds the matrix of the forward pass, and what is made next
 * to it lies elsewhere than what it uses. */
#include "test.h"

#include "backend/cuda/cuda_graph.h"
#include "backend/fake_driver.h"
#include "graph/graph_access.h"
#include "model/builder/blocks.h"

enum { ROWS = 32, D = 64, LAYERS = 2 };

/* Blocks of three projections; the result of the last one of a block is not rebuilt. */
static af_tensor *record(af_graph *g, af_qat_type kind, af_dtype type)
{
    const af_qat qat = {.type = kind, .group = 16, .inputs = true};
    af_model_leaves l = {.graph = g, .compute = type, .qat = qat};
    af_tensor *x = af_graph_input(g, "x", type, 2, (int64_t[]){ROWS, D});
    for (int i = 0; i < 3 * LAYERS; i++) {
        af_graph_set_block(g, i / 3);
        af_tensor *w = af_graph_param(g, "w", AF_DTYPE_F32, 2, (int64_t[]){D, D});
        w = kind ? af_qat_weight(&l, w, type) : af_ternary_weight(&l, w);
        x = af_add(
            g, x, af_linear(g, af_qat_input(&l, x), &(af_linear_opts){.pieces = 1, .weight = {w}}));
    }
    af_graph_set_block(g, -1);
    return af_sum_all(g, x);
}

/* Does a node of [from, from + count) make what n reads, or write where n reads or works? */
static bool meets(const af_graph *g, const af_node *n, int from, int count, bool memory)
{
    const af_cuda_graph *cg = g->backend;
    for (int i = from; i < from + count; i++)
        for (int k = 0; k < g->nodes[i]->n_out; k++) {
            const af_tensor *y = g->nodes[i]->out[k];
            const uint8_t *at = y->data, *end = at + af_tensor_bytes(y);
            if (!memory && af_node_touches(n, y))
                return true;
            for (int m = 0; memory && m < n->n_in; m++) {
                const uint8_t *x = n->in[m]->data;
                if (x && at && x < end && x + af_tensor_bytes(n->in[m]) > at)
                    return true;
            }
            const uint8_t *work = cg->arena[AF_ROLE_ACTIVATION] + n->work_offset;
            if (memory && n->work && at && work < end && work + n->work > at)
                return true;
        }
    return false;
}

/* Gradients of rounded weights are made on the second stream: how many nodes that need them wait
 * for it. What a LINEAR_DX reads stays until those next to it are done. */
static int waiting(const af_graph *g)
{
    const af_cuda_graph *cg = g->backend;
    int from = 0, count = 0, found = 0;
    for (int i = 0; i < g->n_nodes && g->nodes[i]->phase != AF_PHASE_UPDATE; i++) {
        const int next = cg->plan.on_second[i];
        if (next > 0) {
            from = i + 1, count = next;
            assert_false(meets(g, g->nodes[i], from, count, true));
            i += next;
        } else if (cg->plan.joins[i]) {
            count = 0, found++;
        } else if (count > 0) {
            assert_false(meets(g, g->nodes[i], from, count, false));
        }
    }
    return found;
}

static void test_rounded_weights_in_every_mode(void **state)
{
    (void)state;
    enum { KINDS = AF_QAT_FP8 + 1 }; /* the first: ternary */
    for (int k = 0; k < 2 * KINDS * (AF_RECOMPUTE_OFFLOAD + 1); k++) {
        const af_recompute mode = (af_recompute)(k / KINDS / 2);
        af_error err = {0};
        af_graph *g = NULL;
        af_device *d = open_fake();
        CHECK_OK(af_graph_new(&g, &err), err);
        af_graph_backward(
            g, record(g, (af_qat_type)(k % KINDS), k / KINDS & 1 ? AF_DTYPE_BF16 : AF_DTYPE_F32));
        af_graph_set_recompute(g, mode, LAYERS);
        CHECK_MSG(af_graph_prepare(g, d, &err) == AF_OK, "type %d, mode %s: %s", k % KINDS,
                  af_recompute_name(mode), err.msg);
        const int waits = waiting(g);
        if (k % KINDS == AF_QAT_INT4) /* the others are added to the gradients of parameters */
            assert_true((waits > 0) == (mode < AF_RECOMPUTE_WIDE));
        af_graph_free(g);
        af_device_close(d);
        drop_kept();
    }
}

static af_tensor *coded_weight(af_graph *g)
{
    const int64_t scales = (int64_t)D * D / 64;
    af_tensor *w = af_graph_weight(g, "codes", AF_DTYPE_NF4, 2, (int64_t[]){D, D});
    af_weight_set_quant(
        w, &(af_quant){.block = 64,
                       .round = AF_DTYPE_BF16,
                       .absmax = af_graph_weight(g, "absmax", AF_DTYPE_F32, 1, &scales)});
    return w;
}

/* A base in 4 bits that is written out at each use, with adapters that nodes make: their gradients
 * do not lie where it is written. */
static void test_made_adapters_on_codes(void **state)
{
    (void)state;
    for (int rank = 4; rank <= 64; rank *= 2) {
        af_error err = {0};
        af_graph *g = NULL;
        af_device *d = open_fake();
        bool works = false;
        CHECK_OK(af_graph_new(&g, &err), err);
        af_tensor *x = af_graph_input(g, "x", AF_DTYPE_BF16, 2, (int64_t[]){8 * ROWS, D});
        for (int i = 0; i < 3 * LAYERS; i++) {
            af_linear_opts o = {.pieces = 1, .weight = {coded_weight(g)}, .parts = 1};
            o.part[0] = (af_adapter_part){.rank = rank, .out_rows = D, .scale = 2};
            o.a = af_scale(g, af_graph_param(g, "A", AF_DTYPE_F32, 2, (int64_t[]){rank, D}), 2);
            o.b = af_scale(g, af_graph_param(g, "B", AF_DTYPE_F32, 1, (int64_t[]){rank * D}), 2);
            x = af_linear(g, x, &o);
        }
        af_graph_backward(g, af_sum_all(g, x));
        CHECK_OK(af_graph_prepare(g, d, &err), err);
        for (int i = 0; i < g->n_nodes; i++)
            works |= g->nodes[i]->op == AF_OP_LINEAR_DX && g->nodes[i]->work > 0;
        assert_true(works);
        (void)waiting(g);
        af_graph_free(g);
        af_device_close(d);
        drop_kept();
    }
}

/* Gradients of parameters lie in one tensor and wait for none of one another. */
static void test_plain_weights_wait_for_nothing(void **state)
{
    (void)state;
    af_error err = {0};
    af_graph *g = NULL;
    af_device *d = open_fake();
    int groups = 0;
    CHECK_OK(af_graph_new(&g, &err), err);
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){ROWS, D});
    for (int i = 0; i < LAYERS; i++) {
        af_tensor *norm = af_graph_param(g, "norm", AF_DTYPE_F32, 1, (int64_t[]){D});
        af_tensor *w = af_graph_param(g, "w", AF_DTYPE_F32, 2, (int64_t[]){D, D});
        x = af_add(g, x,
                   af_linear(g, af_rmsnorm(g, x, norm, 1e-6, false),
                             &(af_linear_opts){.pieces = 1, .weight = {w}}));
    }
    af_graph_backward(g, af_sum_all(g, x));
    af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW, .max_grad_norm = 1});
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    assert_int_equal(waiting(g), 0);
    const af_cuda_graph *cg = g->backend;
    for (int i = 0; i < g->n_nodes; i++)
        groups += cg->plan.on_second[i] > 0;
    assert_true(groups >= LAYERS - 1);
    af_graph_free(g);
    af_device_close(d);
    drop_kept();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rounded_weights_in_every_mode),
                                       cmocka_unit_test(test_made_adapters_on_codes),
                                       cmocka_unit_test(test_plain_weights_wait_for_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
