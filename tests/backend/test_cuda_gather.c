/* Weights and parameters that ranks split, on a driver that only records: every rank gets every
 * byte, nodes read what was gathered for their pass, and the GEMMs are those of one process, on
 * which the bits depend. */
#include "backend/case_list.h"
#include "backend/fake_driver.h"

#include "backend/cuda/gemm.h"
#include "graph/graph_access.h"
#include "ops/optim/optimizer.h"

enum { ROWS = 8, I = 96, H = 160, WIDE = 192, RANKS_MAX = 4 };

static af_tensor *coded_weight(af_graph *g)
{
    const int64_t scales = (int64_t)WIDE * H / 64, outer = 1;
    af_tensor *w = af_graph_weight(g, "codes", AF_DTYPE_NF4, 2, (int64_t[]){WIDE, H});
    af_weight_set_quant(
        w, &(af_quant){.block = 64,
                       .nested_block = 256,
                       .round = AF_DTYPE_BF16,
                       .absmax = af_graph_weight(g, "absmax", AF_DTYPE_U8, 1, &scales),
                       .nested = af_graph_weight(g, "nested", AF_DTYPE_F32, 1, &outer)});
    return w;
}

/* Embedding, two pieces with biases, one piece with an adapter, head; blocks as layers have. */
static af_tensor *layers(af_graph *g, bool full)
{
    af_tensor *(*leaf)(af_graph *, const char *, af_dtype, int, const int64_t *) =
        full ? af_graph_param : af_graph_weight;
    const af_dtype t = full ? AF_DTYPE_F32 : AF_DTYPE_BF16;
    af_tensor *ids = af_graph_input(g, "ids", AF_DTYPE_I32, 1, (int64_t[]){ROWS});
    af_tensor *labels = af_graph_input(g, "labels", AF_DTYPE_I32, 1, (int64_t[]){ROWS});
    af_tensor *table = leaf(g, "table", t, 2, (int64_t[]){512, I});
    af_tensor *x = af_embedding(g, ids, table, AF_DTYPE_BF16);
    for (int i = 0; i < 2; i++) {
        af_graph_set_block(g, i);
        af_linear_opts o = {.pieces = 2};
        for (int k = 0; k < 2; k++) {
            o.weight[k] = leaf(g, "w", t, 2, (int64_t[]){H / 2, I});
            o.bias[k] = leaf(g, "bias", t, 1, (int64_t[]){H / 2});
        }
        x = af_linear(g, x, &o);
        o = (af_linear_opts){.pieces = 1};
        o.weight[0] = full ? leaf(g, "v", t, 2, (int64_t[]){WIDE, H}) : coded_weight(g);
        if (!full) {
            o.parts = 1;
            o.part[0] = (af_adapter_part){.rank = 4, .out_rows = WIDE, .scale = 2};
            o.a = af_graph_param(g, "A", AF_DTYPE_F32, 2, (int64_t[]){4, H});
            o.b = af_graph_param(g, "B", AF_DTYPE_F32, 1, (int64_t[]){4 * WIDE});
        }
        x = af_linear(g, x, &o);
        x = af_linear(g, x,
                      &(af_linear_opts){.pieces = 1,
                                        .weight = {leaf(g, "back", t, 2, (int64_t[]){I, WIDE})}});
    }
    af_graph_set_block(g, -1);
    return af_head_loss(g, x, table, labels, &(af_head_opts){0});
}

static af_graph *make_model(af_device *d, int rank, int ranks, bool full, af_recompute mode)
{
    af_graph *g = NULL;
    af_error err = {0};
    CHECK_OK(af_graph_new(&g, &err), err);
    af_graph_set_same_bits(g);
    af_graph_backward(g, layers(g, full));
    if (ranks > 1) {
        af_graph_set_ranks(g, rank, ranks);
        af_graph_set_shard(g, rank, ranks, full ? AF_SHARD_PARAMS : AF_SHARD_WEIGHTS);
    }
    af_graph_set_one_pass(g);
    af_graph_set_recompute(g, mode, 2);
    af_graph_optimizer(g, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW, .max_grad_norm = 1});
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    return g;
}

/* The next GEMM of the graph: bits depend on its shape, not on where its operands lie. */
static const af_cuda_gemm *next_gemm(const af_graph *g, int *node, int *step)
{
    for (; *node < g->n_nodes; ++*node, *step = 0) {
        const af_exec *e = af_exec_of(g->nodes[*node], 0);
        while (e && *step < e->n)
            if (e->step[(*step)++].kind == AF_STEP_GEMM)
                return &e->step[*step - 1].gemm->m;
    }
    return NULL;
}

static bool same_mat(const af_mat *a, const af_mat *b)
{
    return a->rows == b->rows && a->cols == b->cols && a->ld == b->ld && a->dtype == b->dtype &&
           (uintptr_t)a->data % 16 == (uintptr_t)b->data % 16;
}

static int check_gemms(const af_graph *one, const af_graph *g)
{
    int at[2] = {0, 0}, step[2] = {0, 0}, n = 0;
    for (;; n++) {
        const af_cuda_gemm *x = next_gemm(one, &at[0], &step[0]);
        const af_cuda_gemm *y = next_gemm(g, &at[1], &step[1]);
        if (!x || !y) {
            assert_true(!x && !y);
            return n;
        }
        assert_true(same_mat(&x->a, &y->a) && same_mat(&x->b, &y->b) && same_mat(&x->c, &y->c));
        assert_true(x->ta == y->ta && x->tb == y->tb && x->alpha == y->alpha &&
                    x->beta == y->beta && !x->bias == !y->bias);
    }
}

/* What a node reads of other ranks was gathered before it, in its pass, and is held so long. */
static int check_reads(const af_graph *g)
{
    int reads = 0;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            const af_tensor *t = g->nodes[i]->in[k];
            const af_node *from = t->producer;
            if (!from || from->op != AF_OP_RANK_GATHER)
                continue;
            assert_true(from->at < i && from->phase == g->nodes[i]->phase);
            for (int o = 0; o < from->n_out; o++)
                assert_true(from->out[o]->last >= i);
            reads++;
        }
    return reads;
}

/* Does it lie in what n may use while it runs? */
static bool in_workspace(const af_graph *g, const af_node *n, const void *p)
{
    const af_cuda_graph *cg = g->backend;
    const uint8_t *at = p, *work = cg->arena[AF_ROLE_ACTIVATION] + n->work_offset;
    return at >= work && at < work + n->work;
}

/* There, or in an input of n? */
static bool is_of(const af_graph *g, const af_node *n, const void *p)
{
    const uint8_t *at = p;
    bool found = in_workspace(g, n, p);
    for (int k = 0; k < n->n_in; k++) {
        const uint8_t *x = n->in[k]->data;
        found |= at >= x && at < x + af_tensor_extent(n->in[k]);
    }
    return found;
}

/* Is something copied to p by the first k steps? */
static bool is_filled(const af_exec *e, int k, const void *p)
{
    bool found = false;
    for (int i = 0; i < k; i++)
        found |= e->step[i].kind == AF_STEP_LAUNCH &&
                 strcmp(e->step[i].launch->kernel->name, "copy_2d") == 0 &&
                 *(void **)e->step[i].launch->arg[0] == p;
    return found;
}

/* Matrices and biases in the workspace are filled from what their own node has gathered. */
static int check_fills(const af_graph *g)
{
    int fills = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const af_node *n = g->nodes[i];
        const af_exec *e = af_exec_of(n, 0);
        const bool gemms =
            n->op == AF_OP_LINEAR || n->op == AF_OP_LINEAR_DX || n->op == AF_OP_HEAD_LOSS;
        for (int k = 0; gemms && k < e->n; k++) {
            const af_step *s = &e->step[k];
            if (s->kind == AF_STEP_GEMM) {
                assert_true(is_of(g, n, s->gemm->m.b.data));
                const void *bias = s->gemm->m.bias;
                assert_true(!bias || !in_workspace(g, n, bias) || is_filled(e, k, bias));
            }
            const char *name = s->kind == AF_STEP_LAUNCH ? s->launch->kernel->name : "";
            if (strcmp(name, "copy_2d") != 0 && strcmp(name, "nf4_dequant") != 0)
                continue;
            const void *from = *(void **)s->launch->arg[2];
            assert_true(!from || is_of(g, n, from));
            fills++;
        }
    }
    return fills;
}

/* Kernels that load four values at once get them from multiples of 16 bytes. */
static void check_norm(const af_graph *g)
{
    int launches = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const af_exec *e = af_exec_of(g->nodes[i], 0);
        for (int k = 0; g->nodes[i]->op == AF_OP_GRAD_NORM && k < e->n; k++) {
            const af_launch *l = e->step[k].launch;
            if (!l || strcmp(l->kernel->name, "grad_norm_parts") != 0)
                continue;
            assert_int_equal((uintptr_t) * (void **)l->arg[1] % 16, 0);
            launches++;
        }
    }
    assert_true(launches > 0);
}

/* Both sides of a step of messages, which has one peer. */
static void swap_pair(const af_step *s, const af_step *t)
{
    assert_int_equal(s->swaps, t->swaps);
    for (int i = 0; i < s->swaps; i++) {
        assert_int_equal(s->swap[i].send_bytes, t->swap[i].recv_bytes);
        assert_int_equal(s->swap[i].recv_bytes, t->swap[i].send_bytes);
        memcpy(s->swap[i].recv, t->swap[i].send, s->swap[i].recv_bytes);
        memcpy(t->swap[i].recv, s->swap[i].send, t->swap[i].recv_bytes);
    }
}

/* Steps of a gather on the host: the memory of this driver is the host's. */
static void run_gathers(af_graph *const *g, int ranks, int k)
{
    const af_step *step[RANKS_MAX], *end[RANKS_MAX];
    for (int r = 0; r < ranks; r++) {
        const af_exec *e = af_exec_of(g[r]->nodes[k], 0);
        step[r] = e->step;
        end[r] = e->step + e->n;
    }
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (int r = 0; r < ranks; r++) {
            for (; step[r] < end[r] && step[r]->kind == AF_STEP_COPY; step[r]++)
                memcpy(step[r]->to, step[r]->from, step[r]->bytes);
            const int peer = step[r] < end[r] ? step[r]->swap[0].peer : r;
            if (peer == r || step[peer] == end[peer] || step[peer]->kind != AF_STEP_SWAP ||
                step[peer]->swap[0].peer != r)
                continue;
            swap_pair(step[r]++, step[peer]++);
            goes_on = true;
        }
    }
    for (int r = 0; r < ranks; r++)
        CHECK_MSG(step[r] == end[r], "rank %d of %d waits for ever", r, ranks);
}

static uint8_t byte_at(int tensor, int64_t i) { return (uint8_t)(i * 131 + i / 251 + tensor * 7); }

static void check_gather(af_graph *const *g, int ranks, int k)
{
    for (int r = 0; r < ranks; r++) {
        const af_node *n = g[r]->nodes[k];
        for (int i = 0; i < n->n_in; i++) {
            uint64_t from, to;
            af_tensor_piece(n->in[i], &from, &to);
            for (uint64_t b = from; b < to; b++)
                ((uint8_t *)n->in[i]->data)[b - from] = byte_at(i, (int64_t)b);
        }
    }
    run_gathers(g, ranks, k);
    for (int r = 0; r < ranks; r++) {
        const af_node *n = g[r]->nodes[k];
        for (int i = 0; i < n->n_out; i++)
            for (uint64_t b = 0; b < af_tensor_bytes(n->out[i]); b++)
                assert_int_equal(((uint8_t *)n->out[i]->data)[b], byte_at(i, (int64_t)b));
    }
}

static void check_model(af_device *d, int ranks, bool full, af_recompute mode)
{
    af_graph *one = make_model(d, 0, 1, full, mode), *g[RANKS_MAX];
    int gathers = 0;
    for (int r = 0; r < ranks; r++) {
        g[r] = make_model(d, r, ranks, full, mode);
        assert_true(check_gemms(one, g[r]) > 6);
        assert_true(check_reads(g[r]) > 6);
        assert_true(check_fills(g[r]) > 6);
        check_norm(g[r]);
    }
    for (int k = 0; k < g[0]->n_nodes; k++)
        if (g[0]->nodes[k]->op == AF_OP_RANK_GATHER) {
            check_gather(g, ranks, k);
            gathers++;
        }
    assert_true(gathers > 6);
    const af_role role = full ? AF_ROLE_PARAM : AF_ROLE_WEIGHT;
    assert_true(g[0]->role_bytes[role] < one->role_bytes[role] * 3 / 4);
    for (int r = 0; r < ranks; r++)
        af_graph_free(g[r]);
    af_graph_free(one);
}

/* Frozen weights (dense, 4-bit) and parameters in pieces: the GEMMs of one process, over what was
 * gathered for each pass. */
static void test_split_weights_are_gathered(void **state)
{
    (void)state;
    af_device *d = open_fake();
    for (int full = 0; full < 2; full++)
        for (int ranks = 2; ranks <= 4; ranks *= 2)
            for (int mode = AF_RECOMPUTE_NONE; mode <= AF_RECOMPUTE_BLOCK; mode++)
                check_model(d, ranks, full, (af_recompute)mode);
    af_device_close(d);
    drop_kept();
}

/* ---- streams ---- */

/* How far a stream or an event is known to be after the exchanges of the third one: the driver's
 * streams and events are eight bytes each. */
typedef struct seen_gather {
    const uint8_t *from, *to; /* of a weight */
    uint64_t number;          /* of the last message for it */
} seen_gather;

static struct {
    uint64_t messages, checked;
    seen_gather gather[64];
    int gathers;
    void *third;
} order;

static int o_record(void *event, void *stream)
{
    return *(uint64_t *)event = *(uint64_t *)stream, 0;
}

static int o_wait(void *stream, void *event, unsigned flags)
{
    (void)flags;
    return *(uint64_t *)stream = AF_MAX(*(uint64_t *)stream, *(uint64_t *)event), 0;
}

/* A launch whose arguments point into a gathered weight runs after the messages that brought it. */
static int o_launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                    unsigned bz, unsigned smem, void *s, void **args, void **extra)
{
    const fake_func *func = f;
    for (int i = 0; i < func->n; i++)
        for (int k = 0; k < order.gathers && func->pointer[i]; k++) {
            const seen_gather *g = &order.gather[k];
            const uint8_t *p = *(uint8_t **)args[i];
            if (p < g->from || p >= g->to)
                continue;
            assert_true(*(uint64_t *)s >= g->number);
            order.checked++;
        }
    return f_launch(f, gx, gy, gz, bx, by, bz, smem, s, args, extra);
}

static void note_gather(const af_tensor *t, const void *recv)
{
    const uint8_t *x = t->data, *at = recv;
    int old = 0;
    if (at < x || at >= x + af_tensor_extent(t))
        return;
    while (old < order.gathers && order.gather[old].from != x)
        old++;
    assert_true(old < (int)AF_LEN(order.gather));
    order.gathers = AF_MAX(order.gathers, old + 1);
    order.gather[old] = (seen_gather){x, x + af_tensor_extent(t), order.messages};
}

static af_status o_swap(void *user, const af_swap *s, int n, void *stream, af_error *err)
{
    const af_graph *g = user;
    (void)err;
    *(uint64_t *)stream = ++order.messages;
    for (int i = 0; i < g->n_nodes; i++) {
        const af_node *gather = g->nodes[i]->op == AF_OP_RANK_GATHER ? g->nodes[i] : NULL;
        const af_exec *e = gather ? af_exec_of(gather, 0) : NULL;
        for (int step = 0; e && step < e->n; step++)
            for (int k = 0; e->step[step].swap == s && k < n * gather->n_out; k++) {
                order.third = stream;
                if (s[k % n].recv_bytes)
                    note_gather(gather->out[k / n], s[k % n].recv);
            }
    }
    return AF_OK;
}

/* Gathers that are issued before another node that reads gathered weights, and so run next to it.
 */
static int count_ahead(const af_graph *g)
{
    int ahead = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        bool other = false;
        for (int k = i + 1; k < g->n_nodes && g->nodes[i]->op == AF_OP_RANK_GATHER; k++) {
            bool reads = false, mine = false;
            for (int t = 0; t < g->nodes[k]->n_in; t++) {
                const af_node *from = g->nodes[k]->in[t]->producer;
                reads |= from && from->op == AF_OP_RANK_GATHER;
                mine |= from == g->nodes[i];
            }
            if (mine)
                break;
            other |= reads;
        }
        ahead += other;
    }
    return ahead;
}

/* Weights come on the third stream while the node before computes, and whoever reads them waits. */
static void test_readers_wait(void **state)
{
    (void)state;
    af_error err = {0};
    af_driver drv = fake;
    drv.event_record = o_record;
    drv.stream_wait = o_wait;
    drv.launch = o_launch;
    for (int full = 0; full < 2; full++) {
        af_device *d = NULL;
        CHECK_OK(af_cuda_open_with(&d, &drv, 0, &err), err);
        ((af_cuda *)d)->kernels->obtain = fake_obtain;
        memset(&order, 0, sizeof order);
        af_graph *g = make_model(d, 0, 2, full, AF_RECOMPUTE_NONE);
        af_graph_set_exchange(g, &(af_exchange){.swap = o_swap, .user = g});
        CHECK_OK(af_graph_run(g, AF_RUN_GRAD, &err), err);
        assert_true(order.checked > 6 && order.gathers > 2);
        assert_ptr_equal(order.third, ((af_cuda *)d)->third);
        assert_true(count_ahead(g) > 6);
        af_graph_free(g);
        af_device_close(d);
        drop_kept();
    }
}

/* ---- every op that reads weights ---- */

static af_status no_swap(void *user, const af_swap *s, int n, void *stream, af_error *err)
{
    return (void)user, (void)s, (void)n, (void)stream, (void)err, AF_OK;
}

/* False: runs with split weights have no such graph. */
static bool record_case(const test_case *c, rec *r, bool split)
{
    af_error err = {0};
    CHECK_OK(af_graph_new(&r->g, &err), err);
    c->record(r);
    af_graph_set_same_bits(r->g);
    bool weights = false;
    for (int i = 0; i < r->g->n_tensors; i++)
        weights |= r->g->tensors[i]->role == AF_ROLE_WEIGHT && r->g->tensors[i]->ndim > 1;
    if (!weights || !r->g->differentiated || r->g->optimized || strncmp(c->name, "fp8", 3) == 0)
        return false;
    if (split)
        af_graph_set_shard(r->g, 1, 2, AF_SHARD_WEIGHTS);
    return true;
}

static int split_case(af_device *d, const test_case *c)
{
    af_error err = {0};
    rec one = {.t = AF_DTYPE_BF16}, r = {.t = AF_DTYPE_BF16};
    int checked = 0;
    if (record_case(c, &one, false) && record_case(c, &r, true)) {
        CHECK_OK(af_graph_prepare(one.g, d, &err), err);
        CHECK_OK(af_graph_prepare(r.g, d, &err), err);
        af_graph_set_exchange(r.g, &(af_exchange){.swap = no_swap});
        check_gemms(one.g, r.g);
        checked = check_reads(r.g);
        (void)check_fills(r.g);
        CHECK_OK(rec_write(&r, &err), err);
        CHECK_OK(af_graph_run(r.g, rec_mask(&r), &err), err);
    }
    rec_clear(&one);
    rec_clear(&r);
    return checked;
}

static void test_every_op_reads_split_weights(void **state)
{
    (void)state;
    int checked = 0;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        if (cases[i].large)
            continue;
        af_device *d = open_fake();
        checked += split_case(d, &cases[i]);
        af_device_close(d);
        drop_kept();
    }
    assert_true(checked > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_split_weights_are_gathered),
                                       cmocka_unit_test(test_readers_wait),
                                       cmocka_unit_test(test_every_op_reads_split_weights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
