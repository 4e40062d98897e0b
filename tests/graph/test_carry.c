/* test_carry.c - gradients of micro-batches added as a binary tree (af_graph_carry). */
#include "test.h"

#include "graph/graph_access.h"

enum { N = 37, BLOCKS = 8 };

static af_device *device;

static int open_device(void **state)
{
    (void)state;
    return af_device_open(&device, "cpu", 2, NULL) != AF_OK;
}

static int close_device(void **state)
{
    (void)state;
    af_device_close(device);
    return 0;
}

/* loss = sum w * x: the gradient of w is x. */
typedef struct dot {
    af_graph *g;
    af_tensor *x, *w;
    af_plan_info plan;
} dot;

static dot make_chained(int levels, int64_t chain, bool one_pass)
{
    dot d;
    af_error err = {0};
    CHECK_OK(af_graph_new(&d.g, &err), err);
    d.x = af_graph_input(d.g, "x", AF_DTYPE_F32, 1, (int64_t[]){N});
    d.w = af_graph_param(d.g, "w", AF_DTYPE_F32, 1, (int64_t[]){N});
    af_graph_backward(d.g, af_sum_all(d.g, af_mul(d.g, d.w, d.x)));
    af_graph_set_carry(d.g, levels);
    af_graph_set_chain(d.g, chain);
    af_graph_optimizer(d.g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_SGD});
    if (one_pass)
        af_graph_set_one_pass(d.g);
    CHECK_OK(af_graph_plan(d.g, device, &d.plan, &err), err);
    CHECK_OK(af_graph_prepare(d.g, device, &err), err);
    return d;
}

static dot make_dot(int levels, bool one_pass) { return make_chained(levels, 1, one_pass); }

/* Values whose sums round: every order has bits of its own. */
static float value(int block, int i) { return (float)(1 + block * block) / (float)(3 + i); }

/* -w after a step of sgd with rate 1 from zeros: the sum. */
static void sum_blocks(const dot *d, int blocks, int of_one, float *sum)
{
    af_error err = {0};
    const float zero[N] = {0};
    CHECK_OK(af_tensor_write(d->g, d->w, zero, sizeof zero, &err), err);
    for (int b = 0; b < blocks; b++) {
        float x[N];
        for (int i = 0; i < N; i++)
            x[i] = value(b, i);
        CHECK_OK(af_tensor_write(d->g, d->x, x, sizeof x, &err), err);
        CHECK_OK(af_graph_run(d->g, AF_RUN_GRAD, &err), err);
        if ((b + 1) % of_one == 0)
            CHECK_OK(af_graph_carry(d->g, b / of_one, &err), err);
    }
    af_graph_set_learning_rate(d->g, 1);
    CHECK_OK(af_graph_run(d->g, AF_RUN_UPDATE, &err), err);
    CHECK_OK(af_tensor_read(d->g, d->w, sum, N * sizeof *sum, &err), err);
    for (int i = 0; i < N; i++)
        sum[i] = -sum[i];
}

static float tree(int from, int n, int i)
{
    return n == 1 ? value(from, i) : tree(from, n / 2, i) + tree(from + n / 2, n / 2, i);
}

static void test_a_tree_whatever_the_memory(void **state)
{
    (void)state;
    float sum[N];
    bool other = false;
    for (int one_pass = 0; one_pass < 2; one_pass++) {
        const dot d = make_dot(3, one_pass);
        for (int step = 0; step < 2; step++) { /* the second begins from zeros too */
            sum_blocks(&d, BLOCKS, 1, sum);
            for (int i = 0; i < N; i++) {
                float line = 0;
                for (int b = 0; b < BLOCKS; b++)
                    line += value(b, i);
                other |= line != tree(0, BLOCKS, i);
                assert_true(sum[i] == tree(0, BLOCKS, i));
            }
        }
        af_graph_free(d.g);
    }
    assert_true(other); /* else this shows nothing */
}

/* 6 = 2 blocks of 3: inside a block one after another, so that 2 ranks of 3 give the same. */
static void test_an_odd_factor_is_added_in_order(void **state)
{
    (void)state;
    float sum[N];
    const dot d = make_dot(1, false);
    sum_blocks(&d, 6, 3, sum);
    for (int i = 0; i < N; i++) {
        float half[2];
        for (int h = 0; h < 2; h++)
            half[h] = value(3 * h, i) + value(3 * h + 1, i) + value(3 * h + 2, i);
        assert_true(sum[i] == half[0] + half[1]);
    }
    af_graph_free(d.g);
}

/* 12 = 4 blocks of 3, each micro-batch with gradients of its own: what 3, 6 and 12 ranks add. */
static void test_a_chain_of_gradients_of_their_own(void **state)
{
    (void)state;
    float sum[N];
    for (int one_pass = 0; one_pass < 2; one_pass++) {
        const dot d = make_chained(2, 3, one_pass);
        for (int step = 0; step < 2; step++) {
            sum_blocks(&d, 12, 1, sum);
            for (int i = 0; i < N; i++) {
                float quarter[4];
                for (int q = 0; q < 4; q++)
                    quarter[q] = value(3 * q, i) + value(3 * q + 1, i) + value(3 * q + 2, i);
                assert_true(sum[i] == (quarter[0] + quarter[1]) + (quarter[2] + quarter[3]));
            }
        }
        af_graph_free(d.g);
    }
}

static void test_the_plan_has_a_buffer_a_level(void **state)
{
    (void)state;
    const dot none = make_dot(0, false), three = make_dot(3, false);
    assert_int_equal(three.plan.grads, 4 * none.plan.grads);
    af_graph_free(none.g);
    af_graph_free(three.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_tree_whatever_the_memory),
        cmocka_unit_test(test_an_odd_factor_is_added_in_order),
        cmocka_unit_test(test_a_chain_of_gradients_of_their_own),
        cmocka_unit_test(test_the_plan_has_a_buffer_a_level),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
