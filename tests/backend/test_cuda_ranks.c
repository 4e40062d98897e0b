/* Exchanges with other ranks as steps of a GPU's graph, on a driver that only records: which bytes
 * go where, what is counted when a graph is captured, and how long memory is held for a sum that
 * runs next to the backward pass. */
#include "backend/fake_driver.h"

#include "dist/shards.h"
#include "graph/graph_access.h"
#include "graph/graph_test.h"
#include "ops/optim/optimizer.h"

enum { ROWS = 8, I = 96, H = 160, LAYERS = 5, RANKS_MAX = 8, ELEMENTS = 2 * LAYERS * I * H };

typedef struct wire {
    int calls, swaps, rank;
    uint64_t sent, received;
    void *streams[4];
    int n_streams;
} wire;

static af_status swap(void *user, const af_swap *s, int n, void *stream, af_error *err)
{
    wire *w = user;
    (void)err;
    w->calls++;
    int k = 0;
    while (k < w->n_streams && w->streams[k] != stream)
        k++;
    if (k == w->n_streams)
        w->streams[w->n_streams++] = stream;
    for (int i = 0; i < n; i++) {
        assert_true(s[i].peer != w->rank && (s[i].send_bytes || s[i].recv_bytes));
        w->swaps++;
        w->sent += s[i].send_bytes;
        w->received += s[i].recv_bytes;
    }
    return AF_OK;
}

static const af_graph_test *test;

/* Layers of two products each; one gradient run a step. */
static af_graph *make_net(af_device *d, int rank, int ranks, af_sharding split, wire *w)
{
    af_graph *g = NULL;
    af_error err = {0};
    CHECK_OK(af_graph_new(&g, &err), err);
    af_graph_set_test(g, test);
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){ROWS, I});
    for (int i = 0; i < LAYERS; i++) {
        af_tensor *a = af_graph_param(g, "a", AF_DTYPE_F32, 2, (int64_t[]){I, H});
        af_tensor *b = af_graph_param(g, "b", AF_DTYPE_F32, 2, (int64_t[]){H, I});
        x = af_matmul(g, af_matmul(g, x, a, AF_MATMUL_NN), b, AF_MATMUL_NN);
    }
    af_graph_backward(g, af_sum_all(g, af_mul(g, x, x)));
    af_graph_set_ranks(g, rank, ranks);
    if (split)
        af_graph_set_shard(g, rank, ranks, split);
    af_graph_set_one_pass(g);
    af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW, .max_grad_norm = 1});
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    *w = (wire){.rank = rank};
    af_graph_set_exchange(g, &(af_exchange){.swap = swap, .user = w});
    return g;
}

typedef struct total {
    int rank, ranks;
    uint64_t sent;
} total;

static void add_sent(void *user, const int64_t *cut, uint64_t size, bool gathers)
{
    total *t = user;
    t->sent += af_shards_sent(cut, t->rank, t->ranks, 1, size, gathers);
}

/* What nodes send is what a plan says, for every rank and stage; a replay counts as a run. */
static void test_bytes_are_those_of_the_plan(void **state)
{
    (void)state;
    af_error err = {0};
    af_device *d = open_fake();
    for (int ranks = 2; ranks <= RANKS_MAX; ranks++)
        for (int split = AF_SHARD_NOTHING; split <= AF_SHARD_PARAMS; split++) {
            uint64_t sent = 0, received = 0;
            for (int rank = 0; rank < ranks; rank++) {
                wire w;
                af_graph *g = make_net(d, rank, ranks, (af_sharding)split, &w);
                total t = {rank, ranks, 0};
                const uint64_t before = af_device_counters(d).sent_bytes;
                af_graph_exchanges(g, AF_RUN_FORWARD, add_sent, &t);
                af_graph_exchanges(g, AF_RUN_BACKWARD, add_sent, &t);
                af_graph_exchanges(g, AF_RUN_UPDATE, add_sent, &t);
                for (int run = 1; run <= 3; run++) {
                    CHECK_OK(af_graph_run(g, AF_RUN_GRAD, &err), err);
                    CHECK_OK(af_graph_run(g, AF_RUN_UPDATE, &err), err);
                    assert_int_equal(af_device_counters(d).sent_bytes - before,
                                     (uint64_t)run * t.sent);
                    assert_int_equal(w.sent, t.sent); /* captured once */
                }
                sent += w.sent;
                received += w.received;
                assert_true(t.sent > 0);
                af_graph_free(g);
            }
            assert_int_equal(sent, received);
        }
    af_device_close(d);
    drop_kept();
}

/* Whole gradients: every element is summed once, after the last node that adds to it and before the
 * pass ends, and gathered right after; several micro-batches are summed once, by the update. */
static void test_whole_gradients_are_summed_early(void **state)
{
    (void)state;
    af_device *d = open_fake();
    for (int buckets = 0; buckets < 2; buckets++) {
        wire w;
        static const af_graph_test small = {.bucket = 3 * I * H * 4};
        test = buckets ? &small : NULL;
        af_graph *g = make_net(d, 1, 2, AF_SHARD_STATE, &w);
        test = NULL;
        int64_t seen_to = af_count(g->grads_flat);
        int sums = 0;
        for (int i = 0; i < g->n_nodes; i++) {
            const af_node *n = g->nodes[i];
            if (n->op != AF_OP_RANK_SUM)
                continue;
            const af_tensor *x = n->in[0];
            const int64_t from = (int64_t)(x->base_offset / 4);
            assert_int_equal(n->phase, AF_PHASE_BACKWARD);
            assert_int_equal(from + af_count(x), seen_to); /* the last parameters come first */
            assert_int_equal(g->nodes[i + 1]->op, AF_OP_RANK_JOIN);
            assert_ptr_equal(g->nodes[i + 1]->in[0], x);
            for (int k = i + 2; k < g->n_nodes && g->nodes[k]->phase == AF_PHASE_BACKWARD; k++)
                for (int o = 0; o < g->nodes[k]->n_out; o++) {
                    const af_tensor *y = g->nodes[k]->out[o];
                    assert_false(y->base == g->grads_flat && (int64_t)(y->base_offset / 4) >= from);
                }
            seen_to = from;
            sums++;
        }
        assert_int_equal(seen_to, 0);
        assert_int_equal(sums, buckets ? (2 * LAYERS + 2) / 3 : 1);
        af_graph_free(g);
    }
    af_device_close(d);
    drop_kept();
}

/* ---- the steps of a node, run on the host for all ranks ---- */

typedef struct member {
    const af_node *n;
    const af_exec *e;
    int at;      /* its next step */
    bool posted; /* the messages of that step are on their way */
    float x[ELEMENTS], wait[ELEMENTS + RANKS_MAX * 64], own[ELEMENTS];
    float mail[RANKS_MAX][ELEMENTS]; /* from each rank: the messages of one step */
    uint64_t mail_bytes[RANKS_MAX], read_bytes[RANKS_MAX];
} member;

static float *host_of(member *m, const void *p)
{
    const af_node *n = m->n;
    const char *at = p, *x = n->in[0]->data, *w = n->n_out ? n->out[0]->data : NULL;
    if (at >= x && at < x + af_tensor_bytes(n->in[0]))
        return m->x + (at - x) / 4;
    if (w && at >= w && at < w + af_tensor_bytes(n->out[0]))
        return m->wait + (at - w) / 4;
    return m->own; /* the piece, or the place of an empty message */
}

/* One step, unless a message it waits for is not there yet. */
static bool advance(member *all, int rank)
{
    member *m = &all[rank];
    if (m->at == m->e->n)
        return false;
    const af_step *s = &m->e->step[m->at];
    for (int i = 0; i < s->swaps && !m->posted; i++) {
        member *to = &all[s->swap[i].peer];
        memcpy((char *)to->mail[rank] + to->mail_bytes[rank], host_of(m, s->swap[i].send),
               s->swap[i].send_bytes);
        to->mail_bytes[rank] += s->swap[i].send_bytes;
    }
    m->posted = true;
    for (int i = 0; i < s->swaps; i++)
        if (s->swap[i].recv_bytes && !m->mail_bytes[s->swap[i].peer])
            return false;
    for (int i = 0; i < s->swaps; i++) {
        const int peer = s->swap[i].peer;
        memcpy(host_of(m, s->swap[i].recv), (char *)m->mail[peer] + m->read_bytes[peer],
               s->swap[i].recv_bytes);
        m->read_bytes[peer] += s->swap[i].recv_bytes;
        assert_true(m->read_bytes[peer] <= m->mail_bytes[peer]);
        if (m->read_bytes[peer] == m->mail_bytes[peer])
            m->read_bytes[peer] = m->mail_bytes[peer] = 0;
    }
    if (s->kind == AF_STEP_COPY)
        memcpy(host_of(m, s->to), host_of(m, s->from), s->bytes);
    if (s->kind == AF_STEP_LAUNCH) {
        float *to = host_of(m, *(void **)s->launch->arg[0]);
        const float *x = host_of(m, *(void **)s->launch->arg[2]);
        const int64_t count = *(int64_t *)s->launch->arg[4];
        for (int64_t i = 0; i < count; i++)
            to[i] += x[i];
    }
    m->posted = false;
    m->at++;
    return true;
}

static float value(int rank, int64_t i)
{
    return (float)((i * 7919 + rank * 104729) % 2003 - 1001) / 3001.0f;
}

static float tree(int from, int n, int64_t i)
{
    float sum = value(from, i);
    if (n % 2 == 0)
        return tree(from, n / 2, i) + tree(from + n / 2, n / 2, i);
    for (int r = 1; r < n; r++)
        sum += value(from + r, i);
    return sum;
}

/* Node k of every rank's graph. */
static void run_members(member *all, af_graph *const *g, int ranks, int k)
{
    for (int r = 0; r < ranks; r++) {
        member *m = &all[r];
        m->n = g[r]->nodes[k];
        m->e = af_exec_of(m->n, 0);
        m->at = 0;
        assert_int_equal(m->n->op, g[0]->nodes[k]->op);
        for (int64_t i = 0; i < af_count(m->n->in[0]); i++)
            m->x[i] = value(r, i);
    }
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (int r = 0; r < ranks; r++)
            goes_on |= advance(all, r);
    }
    for (int r = 0; r < ranks; r++)
        CHECK_MSG(all[r].at == all[r].e->n, "rank %d of %d waits for ever", r, ranks);
}

static void check_members(const member *all, int ranks)
{
    const int64_t *cut = all[0].n->attr.ranks.cut;
    const bool sums = all[0].n->op == AF_OP_RANK_SUM;
    for (int r = 0; r < ranks; r++)
        for (int owner = 0; owner < ranks; owner++)
            for (int64_t i = cut[owner]; i < cut[owner + 1]; i++)
                if (sums && owner == r)
                    assert_true(all[r].own[i - cut[r]] == tree(0, ranks, i));
                else if (!sums)
                    assert_true(all[r].x[i] == value(owner, i));
}

/* Sums of split gradients: each rank's piece is the tree over the ranks, to the last bit. The
 * parameters come from their owners. */
static void test_sums_are_trees(void **state)
{
    (void)state;
    af_device *d = open_fake();
    member *all = calloc(RANKS_MAX, sizeof *all);
    assert_non_null(all);
    for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
        af_graph *g[RANKS_MAX];
        wire w;
        int checked = 0;
        for (int r = 0; r < ranks; r++)
            g[r] = make_net(d, r, ranks, AF_SHARD_GRADIENTS, &w);
        for (int k = 0; k < g[0]->n_nodes; k++)
            if (g[0]->nodes[k]->op == AF_OP_RANK_SUM || g[0]->nodes[k]->op == AF_OP_RANK_JOIN) {
                run_members(all, g, ranks, k);
                check_members(all, ranks);
                checked++;
            }
        assert_int_equal(checked, 2 * LAYERS + 1);
        for (int r = 0; r < ranks; r++)
            af_graph_free(g[r]);
    }
    free(all);
    af_device_close(d);
    drop_kept();
}

static bool is_pass_sum(const af_node *n)
{
    return n->op == AF_OP_RANK_SUM && n->phase == AF_PHASE_BACKWARD;
}

/* Does another value lie in t's memory at a position after `from` and up to `to`? */
static bool is_reused(const af_graph *g, const af_tensor *t, int from, int to)
{
    for (int i = 0; i < g->n_tensors; i++) {
        const af_tensor *u = g->tensors[i];
        if (u == t || u->base || u->role != AF_ROLE_ACTIVATION || u->first < 0)
            continue;
        const bool apart = u->offset >= t->offset + af_tensor_extent(t) ||
                           t->offset >= u->offset + af_tensor_extent(u);
        if (!apart && u->first > from && u->first <= to)
            return true;
    }
    return false;
}

static void test_memory_of_a_sum_is_held(void **state)
{
    (void)state;
    af_error err = {0};
    af_device *d = open_fake();
    wire w;
    af_graph *g = make_net(d, 0, 2, AF_SHARD_GRADIENTS, &w);
    int at[64], n = 0, end = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        if (is_pass_sum(g->nodes[i]))
            at[n++] = i;
        if (g->nodes[i]->phase == AF_PHASE_BACKWARD)
            end = i;
    }
    assert_int_equal(n, 2 * LAYERS);
    for (int k = 0; k < n; k++) {
        const af_node *s = g->nodes[at[k]];
        const int until = k + AF_EXCHANGES_AHEAD < n ? at[k + AF_EXCHANGES_AHEAD] : end;
        assert_false(is_reused(g, s->in[0], at[k], until));
        assert_false(is_reused(g, s->out[0], at[k], until));
        assert_true(s->in[0]->last >= until && s->out[0]->last >= until);
    }
    /* the gradients' memory is used again, which is what the split is for */
    bool reused = false;
    for (int k = 0; k < n; k++)
        reused |= is_reused(g, g->nodes[at[k]]->in[0], at[k], end);
    assert_true(reused);
    CHECK_OK(af_graph_run(g, AF_RUN_GRAD, &err), err);
    assert_int_equal(w.n_streams, 1);
    assert_ptr_equal(w.streams[0], ((af_cuda *)d)->third);
    CHECK_OK(af_graph_run(g, AF_RUN_UPDATE, &err), err);
    assert_int_equal(w.n_streams, 2);
    assert_ptr_equal(w.streams[1], ((af_cuda *)d)->stream);
    af_graph_free(g);
    af_device_close(d);
    drop_kept();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_are_those_of_the_plan),
        cmocka_unit_test(test_whole_gradients_are_summed_early),
        cmocka_unit_test(test_sums_are_trees),
        cmocka_unit_test(test_memory_of_a_sum_is_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
