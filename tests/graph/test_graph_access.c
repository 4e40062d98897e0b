/* test_graph_access.c - the calls of graph_access.h: iteration by role, host views, the quantised
 * form of a weight, and a forward pass that stops at a node. */
#include "test.h"

#include "graph/graph_access.h"

#include <math.h>

static af_device *device;

static int open_device(void **state)
{
    (void)state;
    return af_device_open(&device, "cpu", 1, NULL) != AF_OK;
}

static int close_device(void **state)
{
    (void)state;
    af_device_close(device);
    return 0;
}

/* y = exp(log(x) * w): a negative x is not finite from the first node on. */
typedef struct chain {
    af_graph *g;
    af_tensor *x, *w, *y;
} chain;

static chain make_chain(void)
{
    chain c;
    af_error err = {0};
    CHECK_OK(af_graph_new(&c.g, &err), err);
    af_graph_set_rows(c.g, 4);
    c.x = af_graph_input(c.g, "x", AF_DTYPE_F32, 2, (int64_t[]){4, 3});
    c.w = af_graph_weight(c.g, "w", AF_DTYPE_F32, 1, (int64_t[]){3});
    c.y = af_exp(c.g, af_mul(c.g, af_log(c.g, c.x), c.w));
    af_graph_output(c.g, c.y);
    CHECK_OK(af_graph_prepare(c.g, device, &err), err);
    const float x[12] = {1, 2, 3, 4, -5, 6, 7, 8, 9, 10, 11, 12}, w[3] = {1, 2, 3};
    CHECK_OK(af_tensor_write(c.g, c.x, x, sizeof x, &err), err);
    CHECK_OK(af_tensor_write(c.g, c.w, w, sizeof w, &err), err);
    return c;
}

static void test_tensors_by_role_and_their_memory(void **state)
{
    (void)state;
    const chain c = make_chain();
    assert_ptr_equal(af_graph_next(c.g, AF_ROLE_INPUT, NULL), c.x);
    assert_null(af_graph_next(c.g, AF_ROLE_INPUT, c.x));
    assert_ptr_equal(af_graph_next(c.g, AF_ROLE_WEIGHT, NULL), c.w);
    assert_null(af_graph_next(c.g, AF_ROLE_STATE, NULL));
    assert_int_equal(af_tensor_role(c.y), AF_ROLE_ACTIVATION);
    assert_int_equal(af_tensor_dims(c.x)[0], 4);
    assert_int_equal(af_tensor_last_dim(c.x), 3);
    assert_int_equal(af_tensor_live_count(c.x), 12);
    af_graph_set_live_rows(c.g, 2);
    assert_int_equal(af_tensor_live_count(c.x), 6);
    assert_true(af_tensor_is_stored(c.w));
    assert_false(af_weight_is_bound(c.w));
    assert_float_equal(((const float *)af_tensor_host_view(c.x))[4], -5, 0);
    af_graph_free(c.g);
}

typedef struct seen {
    char ops[256];
    int nodes;
} seen;

static bool stop_at_nan(void *user, const af_ran_node *n)
{
    seen *s = user;
    s->nodes++;
    const size_t at = strlen(s->ops);
    snprintf(s->ops + at, sizeof s->ops - at, "%s ", n->op);
    assert_int_equal(n->block, -1);
    assert_false(n->whole_pass);
    for (int i = 0; i < n->n_out; i++) {
        const float *v = af_tensor_host_view(n->out[i]);
        for (int64_t k = 0; k < af_tensor_live_count(n->out[i]); k++)
            if (!isfinite(v[k]))
                return true;
    }
    return false;
}

static void test_a_run_stops_where_the_predicate_says(void **state)
{
    (void)state;
    af_error err = {0};
    const chain c = make_chain();
    seen s = {0};
    bool stopped = false;
    CHECK_OK(af_graph_run_until(c.g, stop_at_nan, &s, &stopped, &err), err);
    assert_true(stopped);
    assert_int_equal(s.nodes, 1); /* the logarithm */
    float x[12], y[12];
    for (int i = 0; i < 12; i++)
        x[i] = (float)(i + 1);
    CHECK_OK(af_tensor_write(c.g, c.x, x, sizeof x, &err), err);
    s = (seen){0};
    CHECK_OK(af_graph_run_until(c.g, stop_at_nan, &s, &stopped, &err), err);
    assert_false(stopped);
    assert_int_equal(s.nodes, 3);
    CHECK_OK(af_tensor_read(c.g, c.y, y, sizeof y, &err), err);
    float whole[12];
    CHECK_OK(af_graph_run(c.g, AF_RUN_FORWARD, &err), err);
    CHECK_OK(af_tensor_read(c.g, c.y, whole, sizeof whole, &err), err);
    assert_memory_equal(y, whole, sizeof y); /* node by node is the same pass */
    af_graph_free(c.g);
}

static void test_a_run_of_an_unprepared_graph_is_refused(void **state)
{
    (void)state;
    af_error err = {0};
    af_graph *g;
    bool stopped = true;
    CHECK_OK(af_graph_new(&g, &err), err);
    assert_int_equal(af_graph_run_until(g, stop_at_nan, NULL, &stopped, &err), AF_EUSAGE);
    assert_false(stopped);
    af_graph_free(g);
}

static void test_scales_belong_to_weights_and_are_copied(void **state)
{
    (void)state;
    af_error err = {0};
    af_graph *g;
    CHECK_OK(af_graph_new(&g, &err), err);
    af_tensor *w = af_graph_weight(g, "w", AF_DTYPE_NF4, 2, (int64_t[]){4, 64});
    af_quant q = {.block = 64, .absmax = af_graph_weight(g, "s", AF_DTYPE_F32, 1, (int64_t[]){4})};
    assert_null(af_weight_quant(w));
    af_weight_set_quant(w, &q);
    q.block = 0;
    assert_int_equal(af_weight_quant(w)->block, 64);
    af_weight_set_quant(af_graph_input(g, "x", AF_DTYPE_F32, 1, (int64_t[]){4}), &q);
    assert_int_equal(af_graph_status(g, &err), AF_EUSAGE);
    assert_string_equal(err.msg, "set_quant: tensor 'x' is not a weight");
    af_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_by_role_and_their_memory),
        cmocka_unit_test(test_a_run_stops_where_the_predicate_says),
        cmocka_unit_test(test_a_run_of_an_unprepared_graph_is_refused),
        cmocka_unit_test(test_scales_belong_to_weights_and_are_copied),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
