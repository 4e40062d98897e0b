/* test_planner.c - properties of the plan on random graphs.
 *
 * A graph is a pure function of a seed: it is built twice, once without and once with recompute and
 * with memory poisoned (outputs before, dead values after each node). Both must give the same bits.
 * The plan itself is checked from the node list alone: what is live when, and what overlaps.
 * AF_PLANNER_GRAPHS and AF_PLANNER_SEED choose other graphs. */
#include "test.h"

#include "backend/cpu/cpu.h"
#include "base/rng.h"
#include "graph/planner.h"

enum { POOL = 24, GRAPHS = 10000, BLOCKS = 3 };

typedef struct maker {
    af_graph *g;
    uint64_t seed, drawn;
    af_tensor *pool[POOL]; /* 2-d values, inputs of further ops */
    int n;
    af_dtype type;
} maker;

static int64_t below(maker *m, int64_t n)
{
    return (int64_t)af_rng_below(m->seed, 9, m->drawn++, (uint64_t)n);
}

static int64_t length(maker *m)
{
    static const int64_t of[] = {1, 2, 3, 5, 17};
    return of[below(m, AF_LEN(of))];
}

static af_tensor *param(maker *m, int64_t rows, int64_t cols)
{
    return af_graph_param(m->g, "p", m->type, 2, (int64_t[]){rows, cols});
}

static af_tensor *vector(maker *m, int64_t n) { return af_graph_param(m->g, "v", m->type, 1, &n); }

static af_tensor *any(maker *m) { return m->pool[below(m, m->n)]; }

/* Something of x's shape: an earlier value, or a new parameter. */
static af_tensor *partner(maker *m, af_tensor *x)
{
    for (int tries = 0; tries < 4; tries++) {
        af_tensor *y = any(m);
        if (af_same_shape(x, y))
            return y;
    }
    return below(m, 2) ? param(m, x->dim[0], x->dim[1]) : param(m, 1, x->dim[1]);
}

static af_tensor *unary(maker *m, af_tensor *x)
{
    static af_tensor *(*const op[])(af_graph *, af_tensor *) = {
        af_tanh, af_sigmoid, af_relu, af_gelu, af_gelu_tanh, af_silu, af_neg};
    const int64_t k = below(m, AF_LEN(op) + 2);
    if (k == (int64_t)AF_LEN(op))
        return af_scale(m->g, x, 0.5);
    return k > (int64_t)AF_LEN(op) ? af_softcap(m->g, x, 2) : op[k](m->g, x);
}

static af_tensor *binary(maker *m, af_tensor *x)
{
    static af_tensor *(*const op[])(af_graph *, af_tensor *, af_tensor *) = {af_add, af_sub,
                                                                             af_mul};
    return op[below(m, AF_LEN(op))](m->g, x, partner(m, x));
}

static af_tensor *matmul(maker *m, af_tensor *x)
{
    const af_matmul_kind kind = (af_matmul_kind)below(m, 4);
    const int64_t K = kind & AF_MATMUL_TN ? x->dim[0] : x->dim[1], N = length(m);
    return af_matmul(m->g, x, kind & AF_MATMUL_NT ? param(m, N, K) : param(m, K, N), kind);
}

static af_tensor *rows_op(maker *m, af_tensor *x)
{
    switch (below(m, 5)) {
    case 0:
        return af_softmax(m->g, x);
    case 1:
        return af_log_softmax(m->g, x);
    case 2:
        return af_dropout(m->g, x, 0.25, (uint64_t)below(m, 100));
    case 3:
        return af_fake_quant(m->g, x, 6, -1, true);
    default:
        return af_layernorm(m->g, x, vector(m, x->dim[1]), vector(m, x->dim[1]), 1e-3);
    }
}

static af_tensor *move(maker *m, af_tensor *x)
{
    switch (below(m, 5)) {
    case 0:
        return af_transpose(m->g, x, (int[]){1, 0});
    case 1:
        return af_reshape(m->g, x, 2, (int64_t[]){x->dim[1], x->dim[0]});
    case 2:
        return af_slice(m->g, x, 0, x->dim[0] / 2, x->dim[0] - x->dim[0] / 2);
    case 3:
        return af_cast(m->g, af_cast(m->g, x, AF_DTYPE_BF16), m->type);
    default:
        return x->dim[1] < 20 ? af_concat(m->g, (af_tensor *[]){x, x}, 2, 1) : x;
    }
}

static af_tensor *reduce(maker *m, af_tensor *x)
{
    static af_tensor *(*const op[])(af_graph *, af_tensor *, int, bool) = {af_sum, af_mean, af_max};
    return op[below(m, 3)](m->g, x, (int)below(m, 2), true);
}

static af_tensor *next(maker *m)
{
    af_tensor *x = any(m);
    switch (below(m, 8)) {
    case 0:
    case 1:
        return unary(m, x);
    case 2:
    case 3:
        return binary(m, x);
    case 4:
        return matmul(m, x);
    case 5:
        return rows_op(m, x);
    case 6:
        return move(m, x);
    default:
        return reduce(m, x);
    }
}

/* Everything about the graph follows from the seed. */
static void build(maker *m)
{
    af_graph *g = m->g;
    m->type = below(m, 2) ? AF_DTYPE_F32 : AF_DTYPE_F64;
    m->pool[m->n++] = af_graph_input(g, "x", m->type, 2, (int64_t[]){length(m), length(m)});
    m->pool[m->n++] = param(m, length(m), length(m));
    const int64_t ops = below(m, 50) ? 4 + below(m, 16) : 80; /* a few deep ones */
    for (int64_t i = 0; i < ops; i++) {
        af_graph_set_block(g, (int)(i * (BLOCKS + 1) / ops) - 1); /* -1, then 0, 1, 2 */
        af_tensor *y = next(m);
        if (below(m, 10) == 0)
            af_graph_output(g, y);
        m->pool[m->n < POOL ? m->n++ : below(m, POOL)] = y;
    }
    af_graph_set_block(g, -1);
    af_tensor *loss = af_mean_all(g, param(m, 1, 1));
    for (int i = 0; i < 3; i++)
        loss = af_add(g, loss, af_mean_all(g, m->pool[m->n - 1 - below(m, AF_MIN(m->n, 4))]));
    af_graph_backward(g, loss);
    if (below(m, 2))
        af_graph_optimizer(g, &(af_optimizer_opts){.kind = (af_optimizer_kind)below(m, 6),
                                                   .weight_decay = 0.01,
                                                   .max_grad_norm = 1});
}

/* ---- the plan, checked from the nodes ---- */

static const af_tensor *root(const af_tensor *t) { return t->base ? t->base : t; }

typedef struct life {
    const af_tensor *t;
    int first, last;
} life;

/* Where it begins in the activations' arena: gradients stored there are views of its beginning.
 */
static uint64_t begin(const af_tensor *t) { return t->base ? t->base_offset : t->offset; }

/* A gradient in that arena, from the first node that uses it. */
static life gradient_life(const af_graph *g, const af_tensor *t)
{
    life x = {t, 0, g->n_nodes};
    for (int k = g->n_nodes - 1; k >= 0; k--) {
        const af_node *n = g->nodes[k];
        for (int j = 0; j < n->n_in + n->n_out; j++)
            if ((j < n->n_in ? n->in[j] : n->out[j - n->n_in]) == t)
                x.first = k;
    }
    return x;
}

static int find_lives(const af_graph *g, life *l)
{
    int n = 0;
    for (int i = 0; i < g->n_tensors; i++) {
        const af_tensor *t = g->tensors[i];
        life x = {t, -1, -1};
        for (int k = 0; k < g->n_nodes && t->role == AF_ROLE_ACTIVATION && !t->base; k++) {
            const af_node *node = g->nodes[k];
            for (int j = 0; j < node->n_out; j++)
                if (root(node->out[j]) == t) {
                    x.first = x.first < 0 ? k : x.first;
                    x.last = k;
                }
            for (int j = 0; j < node->n_in; j++)
                if (root(node->in[j]) == t)
                    x.last = k;
        }
        for (int k = 0; k < g->n_tensors; k++)
            if (g->tensors[k]->keep && root(g->tensors[k]) == t)
                x.last = g->n_nodes;
        if (x.first >= 0)
            l[n++] = x;
        if (g->grads_in_arena && t->role == AF_ROLE_PARAM && t->grad)
            l[n++] = gradient_life(g, t->grad);
    }
    return n;
}

/* b takes over a's memory at the node that computes b: element by element, with no other reader of
 * a. */
static bool takes_over(const af_graph *g, life a, life b)
{
    const af_node *n = g->nodes[b.first];
    const int k = af_ops[n->op]->inplace - 1;
    return a.last == b.first && n->out[0] == b.t && k >= 0 && n->in[k] == a.t &&
           a.t->offset == b.t->offset;
}

/* The workspaces of nodes overlap nothing that is live at that time; returns where the last one
 * ends. */
static uint64_t check_work(const af_graph *g, const life *l, int n, uint64_t seed)
{
    uint64_t end = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const uint64_t from = g->nodes[i]->work_offset, to = from + g->nodes[i]->work;
        for (int k = 0; k < n && to > from; k++) {
            const uint64_t b0 = begin(l[k].t), b1 = b0 + af_tensor_extent(l[k].t);
            CHECK_MSG(i < l[k].first || i > l[k].last || from >= b1 || b0 >= to,
                      "seed %llu: the workspace of node %d overlaps tensor %d",
                      (unsigned long long)seed, i, l[k].t->id);
        }
        end = to > from ? AF_MAX(end, to) : end;
    }
    return end;
}

static void check_plan(const af_graph *g, uint64_t seed)
{
    static life l[4096];
    assert_true(g->n_tensors < (int)AF_LEN(l));
    const int n = find_lives(g, l);
    uint64_t peak = g->grads_in_arena ? af_tensor_extent(g->grads_flat) : 0;
    peak = AF_ALIGN_UP(AF_MAX(peak, check_work(g, l, n, seed)), (uint64_t)256);
    for (int i = 0; i < n; i++) {
        const uint64_t a0 = begin(l[i].t), a1 = a0 + af_tensor_extent(l[i].t);
        peak = AF_MAX(peak, AF_ALIGN_UP(a1, (uint64_t)256));
        for (int k = 0; k < n; k++) {
            const uint64_t b0 = begin(l[k].t), b1 = b0 + af_tensor_extent(l[k].t);
            const bool together = l[i].first <= l[k].last && l[k].first <= l[i].last;
            if (i == k || !together || a0 >= b1 || b0 >= a1)
                continue;
            CHECK_MSG(takes_over(g, l[i], l[k]) || takes_over(g, l[k], l[i]),
                      "seed %llu: tensors %d and %d are alive together and overlap",
                      (unsigned long long)seed, l[i].t->id, l[k].t->id);
        }
    }
    CHECK_MSG(peak == g->role_bytes[AF_ROLE_ACTIVATION], "seed %llu: planned %llu, used %llu",
              (unsigned long long)seed, (unsigned long long)g->role_bytes[AF_ROLE_ACTIVATION],
              (unsigned long long)peak);
    for (int i = 0; i < g->n_nodes; i++)
        assert_int_equal(g->nodes[i]->at, i);
}

/* ---- runs ---- */

typedef struct outcome {
    uint64_t hash;
    bool finite;
} outcome;

static void mix(outcome *o, const af_tensor *t)
{
    const uint8_t *p = t->data;
    const uint64_t bytes = af_tensor_bytes(t);
    for (uint64_t i = 0; i < bytes; i++)
        o->hash = (o->hash ^ p[i]) * UINT64_C(0x100000001b3);
    for (int64_t i = 0; i < af_count(t); i++)
        o->finite &= af_ld(t, i) - af_ld(t, i) == 0;
}

/* Zeros without a sign: what is written instead of added to nothing may be -0. */
static void mix_gradient(outcome *o, af_tensor *t)
{
    for (int64_t i = 0; i < af_count(t); i++)
        if (af_ld(t, i) == 0)
            af_st(t, i, 0);
    mix(o, t);
}

static outcome run(af_graph *g, af_device *d, uint64_t seed)
{
    af_error err = {0};
    outcome o = {UINT64_C(0xcbf29ce484222325), true};
    uint64_t drawn = 0;
    for (int i = 0; i < g->n_tensors; i++) {
        af_tensor *t = g->tensors[i];
        const bool fill = (t->role == AF_ROLE_PARAM && t->grad) ||
                          (t->role == AF_ROLE_INPUT && strcmp(t->name, "x") == 0);
        for (int64_t k = 0; k < af_count(t) && fill; k++)
            af_st(t, k, 2 * af_rng_f64(seed, 3, drawn++) - 1);
    }
    af_graph_set_seed(g, seed);
    af_graph_set_learning_rate(g, 0.01);
    const af_counters before = af_device_counters(d);
    for (int step = 0; step < 2; step++) {
        CHECK_OK(af_graph_run(g, AF_RUN_GRAD, &err), err);
        mix(&o, g->loss);
        for (int i = 0; i < g->n_tensors; i++)
            if (g->tensors[i]->role == AF_ROLE_PARAM && g->tensors[i]->grad)
                mix_gradient(&o, g->tensors[i]->grad);
        if (g->optimized)
            CHECK_OK(af_graph_run(g, AF_RUN_UPDATE, &err), err);
    }
    for (int i = 0; i < g->n_tensors; i++)
        if (g->tensors[i]->role == AF_ROLE_PARAM && g->tensors[i]->grad)
            mix(&o, g->tensors[i]);
    const af_counters after = af_device_counters(d);
    assert_true(after.allocations == before.allocations && after.compiles == before.compiles);
    return o;
}

static int shared; /* graphs whose gradients are stored among the activations */

typedef struct plan_mode {
    af_recompute mode, rest;
    int blocks;
} plan_mode;

static outcome try(uint64_t seed, af_device *d, plan_mode w, bool poison, uint64_t *bytes)
{
    af_error err = {0};
    maker m = {.seed = seed};
    CHECK_OK(af_graph_new(&m.g, &err), err);
    build(&m);
    af_graph_set_recompute(m.g, w.mode, w.blocks);
    af_graph_set_recompute_rest(m.g, w.rest);
    if (m.g->optimized && poison)
        af_graph_set_one_pass(m.g);
    ((af_cpu *)d)->poison = ((af_cpu *)d)->work_apart = poison;
    if (af_graph_prepare(m.g, d, &err) != AF_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, err.msg);
    check_plan(m.g, seed);
    const outcome o = run(m.g, d, seed);
    shared += m.g->grads_in_arena;
    if (bytes)
        *bytes += m.g->role_bytes[AF_ROLE_ACTIVATION];
    af_graph_free(m.g);
    return o;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *s = getenv(name);
    return s ? strtoull(s, NULL, 10) : otherwise;
}

static void test_random_graphs(void **state)
{
    (void)state;
    af_error err = {0};
    af_device *d;
    CHECK_OK(af_cpu_open(&d, 1, &err), err);
    ((af_cpu *)d)->twins_only = true;
    const uint64_t first = number("AF_PLANNER_SEED", 1),
                   end = first + number("AF_PLANNER_GRAPHS", GRAPHS);
    uint64_t graphs = 0, finite = 0, odd = 0, bytes[4] = {0};
    for (uint64_t s = first; s < end; s++) {
        if (!test_takes(s))
            continue;
        graphs++;
        const plan_mode w = {(af_recompute)(s % 4), (af_recompute)(s / 16 % 4),
                             (int)(s / 4 % (BLOCKS + 1))};
        const outcome plain = try(s, d, (plan_mode){0}, false, &bytes[0]);
        const outcome other = try(s, d, w, true, NULL);
        CHECK_MSG(plain.hash == other.hash,
                  "seed %llu: mode %d on %d blocks, %d on the others gives other bits",
                  (unsigned long long)s, w.mode, w.blocks, w.rest);
        finite += plain.finite;
        odd += !plain.finite;
    }
    printf("%llu graphs, %llu with finite results only, %d with gradients among activations\n",
           (unsigned long long)graphs, (unsigned long long)finite, shared);
    assert_true((uint64_t)shared * 20 > graphs);
    assert_true(odd * 20 < graphs); /* else poison would hide among them */
    af_device_close(d);
}

static uint64_t planned(uint64_t seed, af_device *d, bool one_pass)
{
    af_error err = {0};
    maker m = {.seed = seed};
    uint64_t held[AF_ROLE_COUNT] = {0};
    CHECK_OK(af_graph_new(&m.g, &err), err);
    build(&m);
    if (m.g->optimized && one_pass)
        af_graph_set_one_pass(m.g);
    CHECK_OK(af_graph_prepare(m.g, d, &err), err);
    for (int i = 0; i < m.g->n_tensors; i++) {
        const af_tensor *t = m.g->tensors[i];
        const bool moved = t == m.g->grads_flat && m.g->grads_in_arena;
        if (t->role != AF_ROLE_ACTIVATION && !t->base && !t->bound && !moved)
            held[t->role] += af_arena_size(m.g, t);
    }
    for (int r = 0; r < AF_ROLE_COUNT; r++)
        CHECK_MSG(r == AF_ROLE_ACTIVATION || held[r] == m.g->role_bytes[r],
                  "seed %llu: role %d takes %llu bytes, its tensors %llu", (unsigned long long)seed,
                  r, (unsigned long long)m.g->role_bytes[r], (unsigned long long)held[r]);
    const uint64_t bytes = m.g->role_bytes[AF_ROLE_ACTIVATION] + m.g->role_bytes[AF_ROLE_GRADIENT];
    af_graph_free(m.g);
    return bytes;
}

static void test_gradients_among_activations_never_need_more_memory(void **state)
{
    (void)state;
    af_error err = {0};
    af_device *d;
    int fewer = 0;
    CHECK_OK(af_cpu_open(&d, 1, &err), err);
    for (uint64_t s = 1; s <= 60; s++) {
        const uint64_t apart = planned(s, d, false), together = planned(s, d, true);
        CHECK_MSG(together <= apart, "seed %llu: %llu bytes, %llu apart", (unsigned long long)s,
                  (unsigned long long)together, (unsigned long long)apart);
        fewer += together < apart;
    }
    assert_true(fewer > 0);
    af_device_close(d);
}

/* A deep chain, where recompute must save memory and keep the bits. */
static void chain(af_graph *g, int layers, int64_t D)
{
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){64, D});
    for (int i = 0; i < layers; i++) {
        af_graph_set_block(g, i);
        af_tensor *up = af_graph_param(g, "up", AF_DTYPE_F32, 2, (int64_t[]){D, 4 * D});
        af_tensor *down = af_graph_param(g, "down", AF_DTYPE_F32, 2, (int64_t[]){4 * D, D});
        af_tensor *h =
            af_dropout(g, af_gelu(g, af_matmul(g, x, up, AF_MATMUL_NN)), 0.1, (uint64_t)i);
        x = af_add(g, x, af_matmul(g, h, down, AF_MATMUL_NN));
    }
    af_graph_set_block(g, -1);
    af_graph_backward(g, af_mean_all(g, af_mul(g, x, x)));
}

static void test_recompute_saves_memory_and_keeps_the_bits(void **state)
{
    (void)state;
    af_error err = {0};
    af_device *d;
    CHECK_OK(af_cpu_open(&d, 2, &err), err);
    ((af_cpu *)d)->poison = true;
    static const plan_mode modes[] = {
        {AF_RECOMPUTE_NONE, AF_RECOMPUTE_NONE, 6},  {AF_RECOMPUTE_CHEAP, AF_RECOMPUTE_NONE, 6},
        {AF_RECOMPUTE_WIDE, AF_RECOMPUTE_CHEAP, 2}, {AF_RECOMPUTE_WIDE, AF_RECOMPUTE_CHEAP, 4},
        {AF_RECOMPUTE_WIDE, AF_RECOMPUTE_NONE, 6},  {AF_RECOMPUTE_BLOCK, AF_RECOMPUTE_NONE, 6},
    };
    uint64_t bytes[AF_LEN(modes)];
    outcome o[AF_LEN(modes)];
    for (size_t i = 0; i < AF_LEN(modes); i++) {
        af_graph *g;
        CHECK_OK(af_graph_new(&g, &err), err);
        chain(g, 6, 8);
        af_graph_set_recompute(g, modes[i].mode, modes[i].blocks);
        af_graph_set_recompute_rest(g, modes[i].rest);
        CHECK_OK(af_graph_prepare(g, d, &err), err);
        check_plan(g, i);
        bytes[i] = g->role_bytes[AF_ROLE_ACTIVATION];
        o[i] = run(g, d, 5);
        af_graph_free(g);
        printf("activations, mode %d on %d of 6 blocks: %llu bytes\n", modes[i].mode,
               modes[i].blocks, (unsigned long long)bytes[i]);
        assert_true(o[i].hash == o[0].hash && o[i].finite);
        assert_true(i == 0 || bytes[i] < bytes[i - 1] ||
                    (modes[i].mode == AF_RECOMPUTE_BLOCK && bytes[i] == bytes[i - 1]));
    }
    af_device_close(d);
}

enum { CHAIN = 12, CHAIN_BYTES = 64 * 64 * 4 };

/* Activations of a deep chain, of whose values a backend holds some for two nodes more. */
static uint64_t held_bytes(af_device *d, int count)
{
    af_error err = {0};
    af_graph *g;
    CHECK_OK(af_graph_new(&g, &err), err);
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){64, 64});
    af_tensor *w = af_graph_weight(g, "w", AF_DTYPE_F32, 2, (int64_t[]){64, 64});
    for (int i = 0; i < CHAIN; i++)
        x = af_matmul(g, x, w, AF_MATMUL_NN);
    af_graph_output(g, x);
    for (int k = 0; k < count; k++)
        g->nodes[1 + 4 * k]->out[0]->hold_until = 4 + 4 * k;
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    for (int k = 0; k < count; k++)
        for (int i = 2 + 4 * k; i <= 4 + 4 * k && i < CHAIN; i++)
            assert_true(g->nodes[i]->out[0]->offset != g->nodes[1 + 4 * k]->out[0]->offset);
    const uint64_t bytes = g->role_bytes[AF_ROLE_ACTIVATION];
    af_graph_free(g);
    return bytes;
}

static void test_held_memory_is_free_afterwards(void **state)
{
    (void)state;
    af_error err = {0};
    af_device *d;
    CHECK_OK(af_cpu_open(&d, 1, &err), err);
    assert_int_equal(held_bytes(d, 0), 2 * CHAIN_BYTES);
    assert_int_equal(held_bytes(d, 1), 3 * CHAIN_BYTES);
    assert_int_equal(held_bytes(d, 3), 3 * CHAIN_BYTES); /* one after the other in one place */
    af_device_close(d);
}

static void test_results_do_not_depend_on_the_number_of_threads(void **state)
{
    (void)state;
    af_error err = {0};
    outcome o[3];
    for (int i = 0; i < 3; i++) {
        af_device *d;
        CHECK_OK(af_cpu_open(&d, i + 1, &err), err);
        ((af_cpu *)d)->twins_only = true;
        o[i] = (outcome){0};
        for (uint64_t s = 1; s <= 100; s++)
            o[i].hash = o[i].hash * 31 + try(s, d, (plan_mode){0}, false, NULL).hash;
        af_device_close(d);
    }
    assert_true(o[0].hash == o[1].hash && o[0].hash == o[2].hash);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_graphs),
        cmocka_unit_test(test_gradients_among_activations_never_need_more_memory),
        cmocka_unit_test(test_recompute_saves_memory_and_keeps_the_bits),
        cmocka_unit_test(test_held_memory_is_free_afterwards),
        cmocka_unit_test(test_results_do_not_depend_on_the_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
