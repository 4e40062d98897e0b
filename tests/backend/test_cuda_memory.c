/* test_cuda_memory.c - what the plan of a QLoRA step needs in its smallest mode, at the shapes that
 * are measured on real GPUs: planned over the fake driver, so that a change that makes it grow is
 * seen without one. AF_PEAK=1 prints what lives at the peak. Where there is a GPU, every memory
 * mode must give the same bits. */
#include "test.h"

#include "backend/cuda/cuda_test.h"
#include "backend/cuda/gemm.h"
#include "backend/fake_driver.h"
#include "bench/bench_model.h"
#include "graph/planner.h"

static int by_size(const void *a, const void *b)
{
    const uint64_t x = af_tensor_extent(*(af_tensor *const *)a),
                   y = af_tensor_extent(*(af_tensor *const *)b);
    return x < y ? 1 : x > y ? -1 : 0;
}

static bool alive(const af_tensor *t, int at)
{
    return t->role == AF_ROLE_ACTIVATION && !t->base && t->first >= 0 && t->first <= at &&
           t->last >= at;
}

static void print_peak(const af_graph *g)
{
    uint64_t most = 0;
    int peak = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        uint64_t sum = 0;
        for (int k = 0; k < g->n_tensors; k++)
            sum += alive(g->tensors[k], i) ? af_tensor_extent(g->tensors[k]) : 0;
        if (sum > most) {
            most = sum;
            peak = i;
        }
    }
    af_tensor **list = calloc((size_t)g->n_tensors, sizeof *list);
    int n = 0;
    for (int k = 0; k < g->n_tensors; k++)
        if (alive(g->tensors[k], peak))
            list[n++] = g->tensors[k];
    qsort(list, (size_t)n, sizeof *list, by_size);
    print_message("peak at node %d of %d (%s, block %d, phase %d): %.1f MB of %.1f\n", peak,
                  g->n_nodes, af_ops[g->nodes[peak]->op]->name, g->nodes[peak]->block,
                  (int)g->nodes[peak]->phase, (double)most / 1e6,
                  (double)g->role_bytes[AF_ROLE_ACTIVATION] / 1e6);
    for (int k = 0; k < AF_MIN(n, 24); k++) {
        char text[96];
        const af_node *p = list[k]->producer;
        print_message("  %8.1f MB  %-28s %s, block %d, phase %d, %d to %d\n",
                      (double)af_tensor_extent(list[k]) / 1e6,
                      af_shape_text(list[k], text, sizeof text), p ? af_ops[p->op]->name : "-",
                      p ? p->block : -1, p ? (int)p->phase : -1, list[k]->first, list[k]->last);
    }
    print_message("  %d tensors live\n", n);
    for (int k = AF_MAX(peak - 12, 0); k < AF_MIN(peak + 12, g->n_nodes); k++)
        print_message("   %c %d %s block %d%s\n", k == peak ? '>' : ' ', k,
                      af_ops[g->nodes[k]->op]->name, g->nodes[k]->block,
                      g->nodes[k]->recomputed ? " again" : "");
    free(list);
}

typedef struct memory_case {
    const char *shape;
    int64_t batch, seq;
    const char *memory;
    double limit_gb;
} memory_case;

static af_bench_opts opts_of(const memory_case *c)
{
    return (af_bench_opts){.shape = c->shape,
                           .method = "qlora",
                           .dtype = "bf16",
                           .memory = c->memory,
                           .device = "cuda",
                           .batch = c->batch,
                           .seq = c->seq,
                           .rank = 16};
}

static void print_plan(const char *shape, const char *mode, const af_plan_info *p)
{
    print_message("%s %-12s %7.3f GB (weights %.3f, params %.3f, gradients %.3f, state %.3f, "
                  "activations %.3f, workspace %.3f; host %.3f), %.3e FLOP, effort %.3e\n",
                  shape, mode, (double)p->total / 1e9, (double)p->weights / 1e9,
                  (double)p->params / 1e9, (double)p->grads / 1e9, (double)p->state / 1e9,
                  (double)p->activations / 1e9, (double)p->workspace / 1e9, (double)p->host / 1e9,
                  p->flops, p->effort);
}

/* The fake has no cuBLASLt, whose workspace a real plan counts too. */
static double gigabytes(const af_plan_info *p)
{
    return (double)(p->total + AF_LT_WORKSPACE) / 1e9;
}

static int plan_case(const memory_case *c)
{
    const af_bench_opts o = opts_of(c);
    af_error err = {0};
    af_bench_model b = {0};
    CHECK_OK(af_bench_model_init(&b, &o, &err), err);
    b.model.device = open_fake();
    CHECK_OK(af_bench_model_plan(&b, &err), err);
    print_plan(c->shape, af_recompute_name(b.step.memory_mode.mode), &b.step.plan);
    if (getenv("AF_PEAK"))
        print_peak(b.step.graph);
    bool over = gigabytes(&b.step.plan) > c->limit_gb;
    if (strcmp(c->memory, "min") == 0) /* 7B: what the last block keeps fits below the peak */
        over |= (b.step.memory_mode.blocks == 27) != (strcmp(c->shape, "7b") == 0);
    af_bench_model_clear(&b);
    drop_kept();
    return over;
}

static void test_plans_stay_below_their_limits(void **state)
{
    static const memory_case list[] = {
        {"1.5b", 4, 2048, "min", 2.225},
        {"7b", 4, 2048, "min", 7.93},
        {"1.5b", 4, 2048, "auto", 16.0},
    };
    int over = 0;
    (void)state;
    for (size_t i = 0; i < AF_LEN(list); i++)
        over += plan_case(&list[i]);
    assert_int_equal(over, 0);
}

/* From one mode to the next: less memory, more work. (Between HOST and BLOCK more memory: that one
 * is for those who do not want host memory to be taken. OFFLOAD has values come back that BLOCK
 * makes again: less work.) */
static void test_every_smaller_mode_is_smaller(void **state)
{
    const memory_case c = {"1.5b", 4, 2048, "auto", 0};
    const af_bench_opts o = opts_of(&c);
    af_memory_mode memory_mode[AF_MEMORY_MODES_MAX];
    af_plan_info last = {0};
    af_error err = {0};
    af_bench_model b = {0};
    (void)state;
    CHECK_OK(af_bench_model_init(&b, &o, &err), err);
    b.model.device = open_fake();
    CHECK_OK(af_bench_model_plan(&b, &err), err);
    const int n = af_memory_modes(&b.step, memory_mode);
    assert_int_equal(memory_mode[n - 1].mode, AF_RECOMPUTE_OFFLOAD);
    for (int i = 0; i < n; i++) {
        CHECK_OK(af_memory_plan(&b.step, memory_mode[i], &err), err);
        print_plan(memory_mode[i].packed ? "4-bit" : "dense",
                   af_recompute_name(memory_mode[i].mode), &b.step.plan);
        if (i > 0 && memory_mode[i].packed == memory_mode[i - 1].packed) {
            assert_true(b.step.plan.total < last.total ||
                        memory_mode[i].mode == AF_RECOMPUTE_BLOCK);
            assert_true(b.step.plan.effort >= last.effort ||
                        memory_mode[i].mode == AF_RECOMPUTE_OFFLOAD);
        }
        last = b.step.plan;
    }
    af_bench_model_clear(&b);
    drop_kept();
}

static bool overlap(const af_tensor *a, const af_tensor *b)
{
    const uint64_t ea = a->offset + af_tensor_extent(a), eb = b->offset + af_tensor_extent(b);
    return a->offset < eb && b->offset < ea && a->first <= b->last && b->first <= a->last;
}

/* The node that computes b works in place on a. */
static bool takes_over(const af_tensor *a, const af_tensor *b)
{
    const af_node *n = b->producer;
    const int k = n ? af_ops[n->op]->inplace - 1 : -1;
    return k >= 0 && k < n->n_in && n->in[k] == a && a->last == b->first && a->offset == b->offset;
}

static bool inside(const uint8_t *p, const uint8_t *from, uint64_t bytes)
{
    return p >= from && p < from + bytes;
}

/* Is it an address that node n may have? In the first row of a value of it, or in its workspace.
 * What is not in the arena of activations is not checked. */
static bool may_use(const af_graph *g, const af_node *n, const uint8_t *p)
{
    const af_cuda_graph *cg = g->backend;
    const uint8_t *arena = cg->arena[AF_ROLE_ACTIVATION];
    bool may = !inside(p, arena, g->role_bytes[AF_ROLE_ACTIVATION]) ||
               inside(p, arena + n->work_offset, n->work);
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        const af_tensor *t = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
        t = t->base ? t->base : t;
        may |=
            inside(p, t->data,
                   t->ndim > 1 ? af_tensor_extent(t) / (uint64_t)af_rows(t) : af_tensor_extent(t));
    }
    return may;
}

/* Steps use the values of their node, and no tensor that it had before some came back. */
static int foreign_pointers(const af_graph *g, const af_node *n)
{
    const af_exec *e = af_exec_of(n, 0);
    int bad = 0;
    for (int i = 0; e && i < e->n; i++) {
        const af_step *s = &e->step[i];
        bad += !may_use(g, n, s->to) + !may_use(g, n, s->from);
        if (s->gemm)
            bad += !may_use(g, n, s->gemm->m.a.data) + !may_use(g, n, s->gemm->m.b.data) +
                   !may_use(g, n, s->gemm->m.c.data) + !may_use(g, n, s->gemm->m.add.data);
        for (int k = 0; s->launch && k < s->launch->n_args; k++)
            for (int at = 0; at + 8 <= s->launch->size[k]; at += 8) {
                const uint8_t *p;
                memcpy(&p, (const uint8_t *)s->launch->arg[k] + at, sizeof p);
                bad += !may_use(g, n, p);
            }
    }
    if (bad)
        print_error("%s, block %d: %d arguments outside of it\n", af_ops[n->op]->name, n->block,
                    bad);
    return bad;
}

static bool is_root(const af_tensor *t, const af_tensor *root)
{
    return t == root || t->base == root;
}

/* Where the main stream waits for a copy: copies run one after another, so a wait for a later one
 * will do. */
static int wait_for(const af_cuda_plan *p, const af_move *copy)
{
    int at = -1;
    for (int i = 0; i < p->moves; i++) {
        const af_move *m = &p->move[i];
        const bool waits = m->kind == AF_MOVE_OUT_DONE || m->kind == AF_MOVE_IN_DONE;
        if (waits && m->order >= copy->order && (at < 0 || m->at < at))
            at = m->at;
    }
    return at;
}

/* Copies of one position begin together: the first of them waits for the main stream. */
static bool follows_the_main_stream(const af_cuda_plan *p, int i)
{
    const int at = p->move[i].at;
    for (; i >= 0 && p->move[i].at == at; i--)
        if ((p->move[i].kind == AF_MOVE_OUT || p->move[i].kind == AF_MOVE_IN) && p->move[i].first)
            return true;
    return false;
}

/* While a value leaves, nothing writes to it and its memory is its own; it comes back after that
 * and before it is read. */
static int bad_moves(const af_graph *g)
{
    const af_cuda_plan *p = &((const af_cuda_graph *)g->backend)->plan;
    int bad = 0;
    for (int i = 0; i < p->moves; i++) {
        const af_move *m = &p->move[i];
        const af_tensor *t = m->t;
        const int done = wait_for(p, m);
        if (m->kind == AF_MOVE_OUT || m->kind == AF_MOVE_IN)
            bad += !follows_the_main_stream(p, i);
        if (m->kind == AF_MOVE_OUT) {
            bad += done <= m->at || t->first > m->at || t->last < done; /* waits are issued first */
            for (int k = m->at + 1; k <= done; k++) {
                bad += af_inplace_input(g->nodes[k]) == t;
                for (int o = 0; o < g->nodes[k]->n_out; o++)
                    bad += is_root(g->nodes[k]->out[o], t);
            }
        } else if (m->kind == AF_MOVE_IN) {
            bad += done <= m->at || t->first > m->at;
            for (int k = 0; k < done; k++)
                for (int o = 0; o < g->nodes[k]->n_in; o++)
                    bad += is_root(g->nodes[k]->in[o], t);
            for (int k = 0; k < p->moves; k++)
                bad += p->move[k].kind == AF_MOVE_OUT && p->move[k].host == m->host &&
                       wait_for(p, &p->move[k]) >= m->at;
        }
    }
    return bad;
}

/* So much work per value that the bus has time for all that may move. */
static const af_bench_shape heavy = {"heavy", 6,    256,     2,    1, 128, 32768, 1000,
                                     true,    true, 10000.0, 1e-6, 0, 0,   false};

/* The device memory of what waits in host memory is reused, and a node's workspace is in the same
 * arena: nothing that is live at the same time may share a byte. */
/* Copies back that begin more than a node before their value is read, and x A' of gated units. */
static void count_moves(const af_graph *g, int *ahead, int *low)
{
    const af_cuda_plan *p = &((const af_cuda_graph *)g->backend)->plan;
    for (int i = 0; i < p->moves; i++) {
        const af_move *m = &p->move[i];
        const af_node *n = m->kind == AF_MOVE_OUT ? m->t->producer : NULL;
        *ahead += m->kind == AF_MOVE_IN && wait_for(p, m) > m->at + 1;
        *low += n && n->op == AF_OP_ADAPTER_DOWN && n->in[0]->producer->op == AF_OP_GLU;
    }
}

static void check_overlaps(const af_bench_shape *shape, const char *recompute, int least)
{
    const memory_case c = {"135m", 2, shape ? 512 : 256, "min", 0};
    af_bench_opts o = opts_of(&c);
    af_error err = {0};
    af_bench_model b = {.shape = shape};
    int bad = 0, back = 0, ahead = 0, low = 0;
    o.recompute = recompute;
    o.rank = shape ? 64 : 16; /* x A' is long enough to be moved */
    CHECK_OK(af_bench_model_init(&b, &o, &err), err);
    b.model.device = open_fake();
    CHECK_OK(af_bench_model_plan(&b, &err), err);
    const af_graph *g = b.step.graph;
    for (int i = 0; i < g->n_tensors; i++) {
        const af_tensor *x = g->tensors[i];
        if (x->role != AF_ROLE_ACTIVATION || x->base || x->first < 0)
            continue;
        back += x->fill_from > 0;
        for (int k = 0; k < i; k++) {
            const af_tensor *y = g->tensors[k];
            bad += y->role == AF_ROLE_ACTIVATION && !y->base && y->first >= 0 && overlap(x, y) &&
                   !takes_over(x, y) && !takes_over(y, x);
        }
        for (int k = x->first; k <= AF_MIN(x->last, g->n_nodes - 1); k++) {
            const af_node *n = g->nodes[k];
            bad += n->work && x->offset < n->work_offset + n->work &&
                   n->work_offset < x->offset + af_tensor_extent(x);
        }
    }
    print_message("%d values come back from the host\n", back);
    assert_int_equal(bad, 0);
    assert_int_equal(bad_moves(g), 0);
    count_moves(g, &ahead, &low);
    print_message("%d of them early, %d x A'\n", ahead, low);
    assert_true(ahead > 0 && (!shape || low > 0));
    assert_true(back >= least);
    CHECK_OK(af_graph_prepare(b.step.graph, b.model.device, &err), err);
    for (int i = 0; i < g->n_nodes; i++)
        bad += g->nodes[i]->op == AF_OP_HEAD_LOSS ? 0 : foreign_pointers(g, g->nodes[i]);
    assert_int_equal(bad, 0);
    CHECK_OK(af_bench_model_fill(&b, &err), err);
    CHECK_OK(af_graph_run(b.step.graph, AF_RUN_STEP, &err), err);
    af_bench_model_clear(&b);
    drop_kept();
}

static void test_nothing_alive_overlaps(void **state)
{
    (void)state;
    check_overlaps(NULL, "offload", 25);
    check_overlaps(NULL, "host", 50); /* and results of attention */
    /* inputs, attention, both results of norms, q|k|v of some blocks */
    check_overlaps(&heavy, "offload", 24);
}

/* Bytes of the host that `offload` takes where it may take `most`. */
static uint64_t host_bytes(uint64_t most)
{
    const memory_case c = {"135m", 2, 512, "min", 0};
    af_bench_opts o = opts_of(&c);
    af_error err = {0};
    af_bench_model b = {.shape = &heavy};
    o.recompute = "offload";
    CHECK_OK(af_bench_model_init(&b, &o, &err), err);
    b.model.device = open_fake();
    af_cuda_test_on(b.model.device)->host_free = most;
    CHECK_OK(af_bench_model_plan(&b, &err), err);
    const uint64_t bytes = b.step.plan.host;
    af_bench_model_clear(&b);
    drop_kept();
    return bytes;
}

/* Inputs of blocks count, too, and are moved whatever there is. (Not counted: the embedding, and
 * spare columns of rows.) */
static void test_moved_values_fit_into_host_memory(void **state)
{
    const uint64_t inputs = host_bytes(1), all = host_bytes(UINT64_MAX);
    const uint64_t most = inputs + (all - inputs) / 2;
    const uint64_t some = host_bytes(most);
    (void)state;
    print_message("inputs %.2f MB, all %.2f MB, of %.2f MB: %.2f MB\n", (double)inputs / 1e6,
                  (double)all / 1e6, (double)most / 1e6, (double)some / 1e6);
    assert_true(inputs > 0 && inputs < some && some < all);
    assert_true(some <= most + most / 8);
}

/* What determines the bits of a GEMM: its shape, and the alignment of its operands. Otherwise
 * the program of a kernel. */
static void describe_step(char text[256], const af_node *n, const af_step *s)
{
    if (s->kind == AF_STEP_LAUNCH) {
        snprintf(text, 256, "%s: %s [%s]", af_ops[n->op]->name, s->launch->kernel->name,
                 s->launch->kernel->module->defines);
        return;
    }
    char key[AF_GEMM_KEY];
    af_cuda_gemm_key(s->gemm, false, key);
    snprintf(text, 256, "%s: %s", af_ops[n->op]->name, key);
}

enum { KINDS_MAX = 512 };

typedef struct kinds {
    char text[KINDS_MAX][256];
    int n;
} kinds;

static bool known(const kinds *k, const char *text)
{
    for (int i = 0; i < k->n; i++)
        if (strcmp(k->text[i], text) == 0)
            return true;
    return false;
}

static void collect_kinds(kinds *k, const af_graph *g)
{
    k->n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const af_exec *e = af_exec_of(g->nodes[i], 0);
        for (int s = 0; e && s < e->n; s++) {
            char text[256];
            if (e->step[s].kind != AF_STEP_LAUNCH && e->step[s].kind != AF_STEP_GEMM)
                continue;
            describe_step(text, g->nodes[i], &e->step[s]);
            if (strstr(text, "copy_2d") || strstr(text, "_dequant")) /* these only move values */
                continue;
            assert_true(k->n < KINDS_MAX);
            if (!known(k, text))
                memcpy(k->text[k->n++], text, sizeof text);
        }
    }
}

static int other_kinds(const kinds *a, const kinds *b, const char *mode)
{
    int bad = 0;
    for (int i = 0; i < a->n; i++)
        if (!known(b, a->text[i])) {
            print_error("only with '%s': %s\n", mode, a->text[i]);
            bad++;
        }
    return bad;
}

/* Whatever the shape: every mode runs the same GEMMs by the same algorithms and calls the same
 * kernels, else their bits could not be the same. */
static void test_every_mode_runs_the_same_gemms(void **state)
{
    static const af_bench_shape odd = {"odd", 2,    64,      4,    2, 16, 112,  1000,
                                       true,  true, 10000.0, 1e-6, 0, 0,  false};
    static kinds first, k;
    const char *const types[] = {"bf16", "f32"};
    const int64_t seq[] = {37, 3, 1024}; /* the last: GEMMs add the residual */
    int bad = 0;
    (void)state;
    for (int t = 0; t < 6; t++) {
        memory_case c = {"odd", 4, seq[t / 2], "auto", 0};
        af_bench_opts o = opts_of(&c);
        af_memory_mode memory_mode[AF_MEMORY_MODES_MAX];
        af_error err = {0};
        af_bench_model b = {.shape = &odd};
        o.rank = 4;
        o.dtype = types[t % 2];
        CHECK_OK(af_bench_model_init(&b, &o, &err), err);
        b.model.device = open_fake();
        CHECK_OK(af_bench_model_plan(&b, &err), err);
        const int n = af_memory_modes(&b.step, memory_mode);
        for (int i = 0; i < n; i++) {
            CHECK_OK(af_memory_plan(&b.step, memory_mode[i], &err), err);
            CHECK_OK(af_graph_prepare(b.step.graph, b.model.device, &err), err);
            collect_kinds(i ? &k : &first, b.step.graph);
            bad += i ? other_kinds(&k, &first, af_recompute_name(memory_mode[i].mode)) : 0;
            bad += i ? other_kinds(&first, &k, "all kept, dense") : 0;
        }
        af_bench_model_clear(&b);
        drop_kept();
    }
    assert_int_equal(bad, 0);
}

/* The adapter after some steps of a real shape; false without a GPU. */
static bool train_some(const af_bench_shape *shape, af_memory_mode memory_mode, bool direct,
                       bool one_stream, int steps, float **out, uint64_t *bytes)
{
    const memory_case c = {"135m", shape ? 2 : 16, shape ? 512 : 256, "auto", 0};
    const af_bench_opts o = opts_of(&c);
    af_error err = {0};
    af_bench_model b = {.shape = shape};
    CHECK_OK(af_bench_model_init(&b, &o, &err), err);
    if (af_device_open(&b.model.device, "cuda", 0, &err) != AF_OK) {
        print_message("SKIPPED: %s\n", err.msg);
        af_bench_model_clear(&b);
        return false;
    }
    af_cuda_test_on(b.model.device)->no_capture = direct;
    af_cuda_test_on(b.model.device)->one_stream = one_stream;
    CHECK_OK(af_bench_model_plan(&b, &err), err);
    CHECK_OK(af_memory_plan(&b.step, memory_mode, &err), err);
    CHECK_OK(af_graph_prepare(b.step.graph, b.model.device, &err), err);
    CHECK_OK(af_bench_model_fill(&b, &err), err);
    for (int k = 0; k < steps; k++)
        CHECK_OK(af_graph_run(b.step.graph, AF_RUN_STEP, &err), err);
    const af_tensor *p = b.step.graph->params_flat;
    *bytes = af_tensor_bytes(p);
    *out = calloc(1, *bytes);
    CHECK_OK(af_tensor_read(b.step.graph, p, *out, *bytes, &err), err);
    af_bench_model_clear(&b);
    return true;
}

typedef struct run_mode {
    const char *name;
    af_memory_mode memory_mode;
    bool direct, one_stream;
} run_mode;

/* The first mode is the reference. */
static void compare_modes(const af_bench_shape *shape, const run_mode *w, int n, int steps)
{
    float *first = NULL;
    int bad = 0;
    for (int i = 0; i < n; i++) {
        float *v = NULL;
        uint64_t bytes = 0;
        if (!train_some(shape, w[i].memory_mode, w[i].direct, w[i].one_stream, steps, &v, &bytes))
            skip_because("no GPU");
        const bool same = !first || memcmp(first, v, bytes) == 0;
        print_message("%s, %d steps: %s\n", w[i].name, steps, same ? "same bits" : "OTHER BITS");
        bad += !same;
        if (first)
            free(v);
        else
            first = v;
    }
    free(first);
    assert_int_equal(bad, 0);
}

static void test_every_mode_gives_the_same_bits(void **state)
{
    static const run_mode modes[] = {
        {"dense, all kept", {AF_RECOMPUTE_NONE, false, 0}, false, false},
        {"dense, cheap", {AF_RECOMPUTE_CHEAP, false, 0}, false, false},
        {"dense, wide on 7 of 30 blocks", {AF_RECOMPUTE_WIDE, false, 7}, false, false},
        {"dense, block on 7 of 30 blocks", {AF_RECOMPUTE_BLOCK, false, 7}, false, false},
        {"4 bits, all kept", {AF_RECOMPUTE_NONE, true, 0}, false, false},
        {"4 bits, cheap", {AF_RECOMPUTE_CHEAP, true, 0}, false, false},
        {"4 bits, wide", {AF_RECOMPUTE_WIDE, true, 0}, false, false},
        {"4 bits, most", {AF_RECOMPUTE_MOST, true, 0}, false, false},
        {"4 bits, host", {AF_RECOMPUTE_HOST, true, 0}, false, false},
        {"4 bits, host on 7 of 30 blocks", {AF_RECOMPUTE_HOST, true, 7}, false, false},
        {"4 bits, block", {AF_RECOMPUTE_BLOCK, true, 0}, false, false},
        {"4 bits, offload on 5 blocks", {AF_RECOMPUTE_OFFLOAD, true, 5}, false, false},
        {"4 bits, offload", {AF_RECOMPUTE_OFFLOAD, true, 0}, false, false},
    };
    const int n = AF_LEN(modes);
    (void)state;
    compare_modes(NULL, modes, n, 3);
    compare_modes(&heavy, (const run_mode[]){modes[0], modes[n - 2], modes[n - 1]}, 3, 3);
}

static void test_captured_and_direct_steps_are_the_same_bits(void **state)
{
    static const run_mode modes[] = {
        {"captured", {AF_RECOMPUTE_CHEAP, false, 0}, false, false},
        {"captured again", {AF_RECOMPUTE_CHEAP, false, 0}, false, false},
        {"direct", {AF_RECOMPUTE_CHEAP, false, 0}, true, false},
        {"direct, one stream", {AF_RECOMPUTE_CHEAP, false, 0}, true, true},
        {"direct, host", {AF_RECOMPUTE_HOST, true, 0}, true, false},
        {"direct, offload", {AF_RECOMPUTE_OFFLOAD, true, 0}, true, false},
    };
    (void)state;
    compare_modes(NULL, modes, AF_LEN(modes), 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans_stay_below_their_limits),
        cmocka_unit_test(test_every_smaller_mode_is_smaller),
        cmocka_unit_test(test_nothing_alive_overlaps),
        cmocka_unit_test(test_moved_values_fit_into_host_memory),
        cmocka_unit_test(test_every_mode_runs_the_same_gemms),
        cmocka_unit_test(test_every_mode_gives_the_same_bits),
        cmocka_unit_test(test_captured_and_direct_steps_are_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
