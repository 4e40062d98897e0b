/* test_split.c - gradients, weights and parameters that ranks split (AF_SHARD_*): threads with a
 * graph each, and an exchange through their common memory, give the bits of one graph. */
#include "test.h"

#include "backend/cpu/cpu.h"
#include "graph/graph_access.h"
#include "model/coded/bnb_weight.h"

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
    af_sharding split;
    float param[PARAMS];
    double norm;
    af_plan_info plan;
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
    af_tensor *frozen, *codes; /* dense, read through a view; nf4 with nested scales, read twice */
} net;

static void set_scales(af_graph *g, af_tensor *w)
{
    const af_bnb_weight b = af_bnb_weight_outline(AF_DTYPE_NF4, H * H, H, AF_DTYPE_F32);
    const int64_t blocks = af_bnb_weight_blocks(&b),
                  outer = (blocks + b.nested_block - 1) / b.nested_block;
    af_quant q = {.block = b.block, .nested_block = b.nested_block, .round = b.round};
    q.absmax = af_graph_weight(g, "absmax", AF_DTYPE_U8, 1, &blocks);
    q.nested = af_graph_weight(g, "nested", AF_DTYPE_F32, 1, &outer);
    af_weight_set_quant(w, &q);
}

static af_tensor *record_block(net *n, af_tensor *h)
{
    n->frozen = af_graph_weight(n->g, "frozen", AF_DTYPE_F32, 3, (int64_t[]){2, H / 2, H});
    n->codes = af_graph_weight(n->g, "codes", AF_DTYPE_NF4, 2, (int64_t[]){H, H});
    set_scales(n->g, n->codes);
    const af_linear_opts o = {.weight = {n->codes}, .pieces = 1};
    af_graph_set_block(n->g, 0);
    af_tensor *a = af_linear(n->g, af_mul(n->g, af_linear(n->g, h, &o), n->w[1]), &o);
    af_tensor *f = af_reshape(n->g, n->frozen, 2, (int64_t[]){H, H});
    h = af_add(n->g, h, af_add(n->g, a, af_matmul(n->g, h, f, AF_MATMUL_NN)));
    af_graph_set_block(n->g, -1);
    return h;
}

/* The middle parameter is used twice and more: its gradient has several writers. */
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
    h = record_block(&n, h);
    af_tensor *y = af_matmul(n.g, h, n.w[2], AF_MATMUL_NN);
    af_graph_backward(n.g, af_sum_all(n.g, af_mul(n.g, y, y)));
    af_graph_set_carry(n.g, levels);
    if (me->m->ranks > 1)
        af_graph_set_shard(n.g, me->rank, me->m->ranks, me->split);
    if (me->of_one == 1)
        af_graph_set_one_pass(n.g);
    af_graph_optimizer(n.g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW, .max_grad_norm = 0.5});
    af_graph_set_recompute(n.g, AF_RECOMPUTE_BLOCK, 1);
    CHECK_OK(af_graph_plan(n.g, device, &me->plan, &err), err);
    CHECK_OK(af_graph_prepare(n.g, device, &err), err);
    af_graph_set_exchange(n.g, &(af_exchange){.sum = sum, .gather = gather, .user = me});
    return n;
}

static void fill(float *v, int64_t n, int seed)
{
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)((i * 7919 + seed * 104729) % 2003 - 1001) / 3001.0f;
}

static void write_frozen(const net *n, af_error *err)
{
    static const int64_t count = H * H;
    float *v = calloc((size_t)count, sizeof *v);
    af_bnb_weight b = {0};
    af_quant *q = af_weight_quant(n->codes);
    fill(v, count, 11);
    CHECK_OK(af_tensor_write(n->g, n->frozen, v, (uint64_t)count * sizeof *v, err), *err);
    fill(v, count, 13);
    CHECK_OK(af_bnb_weight_make(&b, AF_DTYPE_NF4, v, count, H, AF_DTYPE_F32, err), *err);
    q->offset = b.offset;
    CHECK_OK(af_tensor_write(n->g, n->codes, b.codes, af_tensor_bytes(n->codes), err), *err);
    CHECK_OK(af_tensor_write(n->g, q->absmax, b.absmax, af_tensor_bytes(q->absmax), err), *err);
    CHECK_OK(af_tensor_write(n->g, q->nested, b.nested, af_tensor_bytes(q->nested), err), *err);
    af_bnb_weight_clear(&b);
    free(v);
}

/* A parameter after the last step, from all ranks where it is split. */
static void read_param(member *me, const net *n, const af_tensor *w, float *to, af_error *err)
{
    const int64_t *cut = af_tensor_cuts(w);
    if (!cut) {
        CHECK_OK(af_tensor_read(n->g, w, to, af_tensor_bytes(w), err), *err);
        return;
    }
    assert_null(af_tensor_host_view(w));
    assert_int_equal(af_tensor_read(n->g, w, to, af_tensor_bytes(w), NULL), AF_EUSAGE);
    if (cut[me->rank + 1] > cut[me->rank])
        memcpy((uint8_t *)to + cut[me->rank], af_tensor_piece_view(w),
               (size_t)(cut[me->rank + 1] - cut[me->rank]));
    gather(me, to, 1, cut, err);
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
    ((af_cpu *)device)->poison = true;
    const net n = make_net(me, device, levels);
    write_frozen(&n, &err);
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
        if (ranks > 1 && me->split < AF_SHARD_PARAMS)
            gather(me, af_tensor_host_view(af_graph_flat_params(n.g)), sizeof(float),
                   af_graph_cuts(n.g), &err);
    }
    for (int i = 0, at = 0; i < 3; at += (int)af_tensor_count(n.w[i]), i++)
        read_param(me, &n, n.w[i], me->param + at, &err);
    af_graph_free(n.g);
    af_device_close(device);
    return NULL;
}

static void run_ranks(member *all, int ranks, int of_one, af_sharding split)
{
    meeting m = {.ranks = ranks};
    pthread_t thread[RANKS_MAX];
    pthread_barrier_init(&m.here, NULL, (unsigned)ranks);
    for (int r = 0; r < ranks; r++) {
        all[r] = (member){.m = &m, .rank = r, .blocks = BLOCKS, .of_one = of_one, .split = split};
        assert_int_equal(pthread_create(&thread[r], NULL, run_member, &all[r]), 0);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    pthread_barrier_destroy(&m.here);
}

/* A rank's share of some bytes, and the gaps between a few tensors. */
static bool is_share(uint64_t bytes, uint64_t whole, int ranks)
{
    return bytes <= whole / (uint64_t)ranks + 8192;
}

static void compare(const member *some, int ranks, const member *one)
{
    for (int r = 0; r < ranks; r++) {
        const af_plan_info *p = &some[r].plan;
        assert_memory_equal(some[r].param, one->param, sizeof one->param);
        assert_true(some[r].norm == one->norm && one->norm > 0.5);
        if (some[r].of_one == 1) /* else they are whole between micro-batches */
            assert_true(is_share(p->grads, one->plan.grads, ranks));
        assert_true(is_share(p->weights, one->plan.weights, ranks) ==
                    (some[r].split >= AF_SHARD_WEIGHTS));
        assert_true(is_share(p->params, one->plan.params, ranks) ==
                    (some[r].split >= AF_SHARD_PARAMS));
    }
}

static void test_ranks_have_the_bits_of_one(void **state)
{
    (void)state;
    static member one[1], some[RANKS_MAX];
    for (int of_one = 1; of_one <= 3; of_one += 2) {
        run_ranks(one, 1, of_one, AF_SHARD_NOTHING);
        for (int split = AF_SHARD_GRADIENTS; split <= AF_SHARD_PARAMS; split++)
            for (int ranks = 2; ranks <= RANKS_MAX; ranks *= 2) {
                run_ranks(some, ranks, of_one, (af_sharding)split);
                compare(some, ranks, one);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks_have_the_bits_of_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
