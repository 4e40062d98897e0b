/* test_split.c - gradients that ranks split (AF_SPLIT_GRADIENTS): threads with a graph each, and
 * an exchange through their common memory, give the bits of one graph. */
#include "test.h"

#include "graph/graph_access.h"

#include <math.h>
#include <pthread.h>

enum { I = 96, H = 200, ROWS = 8, BLOCKS = 4, STEPS = 3, RANKS_MAX = 4 };
enum { PARAMS = I * H + H + H * 3 };

/* What the threads share: where each one's vector lies. */
typedef struct meeting {
    pthread_barrier_t here;
    int ranks;
    float *v[RANKS_MAX];
} meeting;

typedef struct member {
    meeting *m;
    int rank, blocks; /* all blocks of a step */
    int of_one;       /* micro-batches added before the ranks are */
    float param[PARAMS];
    double norm;
    uint64_t grads;
} member;

static float tree(const meeting *m, int from, int n, int64_t i)
{
    return n == 1 ? m->v[from][i] : tree(m, from, n / 2, i) + tree(m, from + n / 2, n / 2, i);
}

static af_status sum(void *user, float *v, const int64_t *cut, af_error *err)
{
    const member *me = user;
    meeting *m = me->m;
    (void)err;
    float *own = malloc((size_t)cut[m->ranks] * sizeof *own + 1);
    m->v[me->rank] = v;
    pthread_barrier_wait(&m->here);
    for (int64_t i = cut[me->rank]; i < cut[me->rank + 1]; i++)
        own[i] = tree(m, 0, m->ranks, i);
    pthread_barrier_wait(&m->here);
    for (int64_t i = 0; i < cut[m->ranks]; i++) /* what others own is lost */
        v[i] = i >= cut[me->rank] && i < cut[me->rank + 1] ? own[i] : NAN;
    free(own);
    return AF_OK;
}

static af_status gather(void *user, void *v, uint64_t size, const int64_t *cut, af_error *err)
{
    const member *me = user;
    meeting *m = me->m;
    (void)err;
    m->v[me->rank] = v;
    pthread_barrier_wait(&m->here);
    for (int r = 0; r < m->ranks; r++)
        if (r != me->rank)
            memcpy((uint8_t *)v + (uint64_t)cut[r] * size,
                   (const uint8_t *)m->v[r] + (uint64_t)cut[r] * size,
                   (uint64_t)(cut[r + 1] - cut[r]) * size);
    pthread_barrier_wait(&m->here);
    return AF_OK;
}

typedef struct net {
    af_graph *g;
    af_tensor *x, *w[3];
    af_plan_info plan;
} net;

/* The middle parameter is used twice: its gradient has two writers. */
static net make_net(member *me, af_device *device, int levels)
{
    net n;
    af_error err = {0};
    CHECK_OK(af_graph_new(&n.g, &err), err);
    n.x = af_graph_input(n.g, "x", AF_DTYPE_F32, 2, (int64_t[]){ROWS, I});
    n.w[0] = af_graph_param(n.g, "a", AF_DTYPE_F32, 2, (int64_t[]){I, H});
    n.w[1] = af_graph_param(n.g, "b", AF_DTYPE_F32, 1, (int64_t[]){H});
    n.w[2] = af_graph_param(n.g, "c", AF_DTYPE_F32, 2, (int64_t[]){H, 3});
    af_tensor *h =
        af_mul(n.g, af_add(n.g, af_matmul(n.g, n.x, n.w[0], AF_MATMUL_NN), n.w[1]), n.w[1]);
    af_tensor *y = af_matmul(n.g, h, n.w[2], AF_MATMUL_NN);
    af_graph_backward(n.g, af_sum_all(n.g, af_mul(n.g, y, y)));
    af_graph_set_carry(n.g, levels);
    if (me->m->ranks > 1)
        af_graph_set_shard(n.g, me->rank, me->m->ranks, AF_SPLIT_GRADIENTS);
    if (me->of_one == 1)
        af_graph_set_one_pass(n.g);
    af_graph_optimizer(n.g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW, .max_grad_norm = 0.5});
    CHECK_OK(af_graph_plan(n.g, device, &n.plan, &err), err);
    CHECK_OK(af_graph_prepare(n.g, device, &err), err);
    af_graph_set_exchange(n.g, &(af_exchange){sum, gather, me});
    return n;
}

static void fill(float *v, int64_t n, int seed)
{
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)((i * 7919 + seed * 104729) % 2003 - 1001) / 3001.0f;
}

static void run_block(const net *n, int micro, af_error *err)
{
    float x[ROWS * I];
    fill(x, ROWS * I, micro + 5);
    CHECK_OK(af_tensor_write(n->g, n->x, x, sizeof x, err), *err);
    CHECK_OK(af_graph_run(n->g, AF_RUN_GRAD, err), *err);
}

static void *run_member(void *arg)
{
    member *me = arg;
    const int ranks = me->m->ranks, own = me->blocks / ranks;
    int levels = 0;
    af_error err = {0};
    af_device *device;
    CHECK_OK(af_device_open(&device, "cpu", 1, &err), err);
    while (1 << levels < own)
        levels++;
    const net n = make_net(me, device, levels);
    me->grads = n.plan.grads;
    float w[I * H];
    for (int i = 0; i < 3; i++) {
        fill(w, af_tensor_count(n.w[i]), i);
        CHECK_OK(af_tensor_write(n.g, n.w[i], w, af_tensor_bytes(n.w[i]), &err), err);
    }
    for (int step = 0; step < STEPS; step++) {
        for (int b = 0; b < own; b++) {
            for (int k = 0; k < me->of_one; k++)
                run_block(&n, ((step * me->blocks) + b * ranks + me->rank) * me->of_one + k, &err);
            CHECK_OK(af_graph_carry(n.g, b, &err), err);
        }
        af_graph_set_learning_rate(n.g, 1e-2);
        CHECK_OK(af_graph_run(n.g, AF_RUN_UPDATE, &err), err);
        CHECK_OK(af_graph_grad_norm(n.g, &me->norm, NULL, &err), err);
        if (ranks > 1)
            gather(me, af_tensor_host_view(af_graph_flat_params(n.g)), sizeof(float),
                   af_graph_cuts(n.g), &err);
    }
    for (int i = 0, at = 0; i < 3; at += (int)af_tensor_count(n.w[i]), i++)
        CHECK_OK(af_tensor_read(n.g, n.w[i], me->param + at, af_tensor_bytes(n.w[i]), &err), err);
    af_graph_free(n.g);
    af_device_close(device);
    return NULL;
}

static void run_ranks(member *all, int ranks, int of_one)
{
    meeting m = {.ranks = ranks};
    pthread_t thread[RANKS_MAX];
    pthread_barrier_init(&m.here, NULL, (unsigned)ranks);
    for (int r = 0; r < ranks; r++) {
        all[r] = (member){.m = &m, .rank = r, .blocks = BLOCKS, .of_one = of_one};
        assert_int_equal(pthread_create(&thread[r], NULL, run_member, &all[r]), 0);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    pthread_barrier_destroy(&m.here);
}

static void test_ranks_have_the_bits_of_one(void **state)
{
    (void)state;
    static member one[1], some[RANKS_MAX];
    for (int of_one = 1; of_one <= 3; of_one += 2) {
        run_ranks(one, 1, of_one);
        for (int ranks = 2; ranks <= RANKS_MAX; ranks *= 2) {
            run_ranks(some, ranks, of_one);
            for (int r = 0; r < ranks; r++) {
                assert_memory_equal(some[r].param, one->param, sizeof one->param);
                assert_true(some[r].norm == one->norm && one->norm > 0.5);
                if (of_one == 1) /* else they are whole between micro-batches */
                    assert_true(some[r].grads < one->grads / (uint64_t)ranks + 8192);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks_have_the_bits_of_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
