/* test_cuda_fake.c - the CUDA backend over a recording fake driver (fake_driver.h). Launch geometry
 * and the number and size of every kernel's arguments are checked by prepare against the kernel's
 * own text, and their values against those of launches that passed on a GPU. */
#include "test.h"

#include "backend/case_list.h"
#include "backend/cuda/cuda_test.h"
#include "backend/cuda/gemm.h"
#include "backend/fake_driver.h"

#include <inttypes.h>

enum { STRICT = 1 };

/* NULL, or the name of an op of the graph that has no CUDA version. */
static const char *missing_op(const af_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (!af_ops[g->nodes[i]->op]->view && !af_cuda_ops[g->nodes[i]->op])
            return af_ops[g->nodes[i]->op]->name;
    return NULL;
}

/* What a case launches, including every argument, is what it launched when it passed on a GPU.
 * After an intended change (tested on a GPU) empty tests/golden/cuda/launches.txt and set
 * AF_LAUNCHES to its path. */
static int check_digest(const char *gpu, const char *name, af_dtype t, bool fold)
{
    char line[256], want[256], file[512];
    const char *write = getenv("AF_LAUNCHES");
    snprintf(want, sizeof want, "%s%s %s %s %016" PRIx64 "\n", gpu, name, af_dtype_name(t),
             fold ? "folded" : "beside", seen.digest);
    snprintf(file, sizeof file, "%s/cuda/launches.txt", golden_dir());
    FILE *f = fopen(write ? write : file, write ? "a" : "r");
    CHECK_MSG(f, "cannot open %s", write ? write : file);
    bool found = write && fputs(want, f) >= 0;
    while (!found && fgets(line, sizeof line, f))
        found = strcmp(line, want) == 0;
    fclose(f);
    if (!found)
        print_error("other launches than those that passed on a GPU: %s", want);
    return !found;
}

static int prepare_case(const test_case *c, af_dtype t, bool fold)
{
    af_error err = {0};
    rec r = {.t = t, .blank = true};
    af_device *d = open_fake();
    int failed = 0;
    af_cuda_test_on(d)->no_fold = !fold;
    CHECK_OK(af_graph_new(&r.g, &err), err);
    c->record(&r);
    CHECK_OK(af_graph_status(r.g, &err), err);
    const char *missing = missing_op(r.g);
    if (missing) {
        print_message("%s (%s): op '%s' has no CUDA version yet\n", c->name, af_dtype_name(t),
                      missing);
        failed = STRICT;
    } else if (af_graph_prepare(r.g, d, &err) != AF_OK || rec_write(&r, &err) != AF_OK ||
               af_graph_run(r.g, rec_mask(&r), &err) != AF_OK) {
        print_error("%s (%s): %s\n", c->name, af_dtype_name(t), err.msg);
        failed = err.code != AF_EUNSUPPORTED || STRICT;
    } else {
        failed = check_digest("", c->name, t, fold);
        const af_counters before = af_device_counters(d);
        const int allocs = seen.allocs, syncs = seen.syncs;
        const bool renewed = r.g->renews; /* kernel by kernel; the next update does not */
        CHECK_OK(af_graph_run(r.g, rec_mask(&r), &err), err);
        const af_counters after = af_device_counters(d);
        assert_int_equal(after.compiles, before.compiles);
        assert_int_equal(after.module_loads, before.module_loads);
        assert_int_equal(after.allocations, before.allocations);
        assert_int_equal(after.host_syncs, before.host_syncs);
        assert_int_equal(seen.allocs, allocs);
        assert_int_equal(seen.syncs, syncs);
        assert_int_equal(seen.captures, 1);
        assert_int_equal(seen.graph_launches, 2 - renewed);
        if (renewed)
            assert_true(after.launches - before.launches + 10 < before.launches);
    }
    rec_clear(&r);
    af_device_close(d);
    drop_kept();
    return failed;
}

static void test_every_launcher_passes_what_its_kernel_takes(void **state)
{
    static const af_dtype types[] = {AF_DTYPE_BF16, AF_DTYPE_F32, AF_DTYPE_F16};
    int failed = 0;
    (void)state;
    for (size_t t = 0; t < AF_LEN(types); t++)
        for (size_t i = 0; i < AF_LEN(cases); i++)
            if (!cases[i].large || types[t] == AF_DTYPE_BF16)
                failed += prepare_case(&cases[i], types[t], true);
    for (size_t i = 0; i < AF_LEN(cases); i++)
        if (!cases[i].large)
            failed += prepare_case(&cases[i], AF_DTYPE_BF16, false);
    assert_int_equal(failed, 0);
}

/* Cases whose tiles the cost models choose, one by one for every other GPU. No such launch has run
 * on one: a line of launches.txt that begins with an architecture says what was chosen. */
static bool is_chosen(const char *name)
{
    static const char *const names[] = {"linear",         "lora_high_rank", "matmul_tiles",
                                        "matmul_tn",      "attention",      "attention_128",
                                        "attention_many", "plain_nf4_5",    "plain_nf4_12"};
    for (size_t i = 0; i < AF_LEN(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Kernels and tiles are chosen by compute capability and shared memory: every launch fits into what
 * the other GPUs have (A100; RTX 3090; RTX 4090, L40; RTX 5090). */
static void test_other_gpus_take_every_launch(void **state)
{
    static const struct {
        int arch, sms, shared;
    } gpus[] = {{80, 108, 166912}, {86, 82, 101376}, {89, 128, 101376}, {120, 170, 101376}};
    int failed = 0;
    (void)state;
    for (size_t k = 0; k < AF_LEN(gpus); k++)
        for (size_t i = 0; i < AF_LEN(cases); i++) {
            if (gpus[k].arch < 89 && strncmp(cases[i].name, "fp8", 3) == 0)
                continue; /* has no such units, and says so */
            const bool chosen = is_chosen(cases[i].name);
            if (!chosen && (cases[i].large || !test_takes(i + k)))
                continue;
            af_error err = {0};
            rec r = {.t = chosen || i % 2 ? AF_DTYPE_BF16 : AF_DTYPE_F16, .blank = true};
            af_device *d = open_fake();
            ((af_cuda *)d)->arch = gpus[k].arch;
            ((af_cuda *)d)->sms = gpus[k].sms;
            ((af_cuda *)d)->smem_max = gpus[k].shared;
            CHECK_OK(af_graph_new(&r.g, &err), err);
            cases[i].record(&r);
            if (af_graph_prepare(r.g, d, &err) != AF_OK || rec_write(&r, &err) != AF_OK ||
                af_graph_run(r.g, rec_mask(&r), &err) != AF_OK) {
                print_error("%s on sm_%d: %s\n", cases[i].name, gpus[k].arch, err.msg);
                failed++;
            } else if (chosen) {
                char name[16];
                snprintf(name, sizeof name, "sm_%d: ", gpus[k].arch);
                failed += check_digest(name, cases[i].name, r.t, true);
            }
            rec_clear(&r);
            af_device_close(d);
            drop_kept();
        }
    assert_int_equal(failed, 0);
}

/* Where chosen tiles are neither shipped nor can be compiled, the one that builds ship serves. */
static void test_tiles_that_cannot_be_had_are_not_chosen(void **state)
{
    unsigned shared[2];
    (void)state;
    for (int alone = 0; alone < 2; alone++) {
        af_device *d = open_fake();
        af_cuda *cu = (af_cuda *)d;
        af_cuda_graph cg = {0};
        af_node n = {0};
        static _Alignas(16) char data[16];
        const af_mat x = {data, 16, 4096, 4096, AF_DTYPE_BF16},
                     w = {data, 512, 4096, 4096, AF_DTYPE_BF16},
                     y = {data, 16, 512, 512, AF_DTYPE_BF16};
        cu->arch = 86;
        cu->smem_max = 101376;
        cu->cg = &cg;
        if (alone) { /* a driver that is too old for the pack, and no NVRTC */
            cu->kernels->obtain = af_module_obtain;
            cu->kernels->cuda = 1;
            cu->kernels->nvrtc_tried = true;
        }
        af_cuda_add_gemm(cu, &n, &(af_cuda_gemm){.a = x, .b = w, .c = y, .tb = true, .alpha = 1});
        CHECK_OK(cu->err.code, cu->err);
        shared[alone] = af_exec_of(&n, 0)->step[0].gemm->own->smem;
        af_arena_clear(&cg.mem);
        cu->cg = NULL;
        af_device_close(d);
        drop_kept();
    }
    assert_int_equal(shared[1], 4 * 2 * 10240);
    assert_int_not_equal(shared[0], shared[1]);
}

/* Ops the GPU cannot run yet. Empty when the backend is complete. */
static const af_op not_yet[] = {AF_OP_COUNT};

static void test_every_op_has_a_cuda_version(void **state)
{
    int wrong = 0;
    (void)state;
    for (int op = 0; op < AF_OP_COUNT; op++) {
        bool expected = false;
        for (size_t i = 0; i < AF_LEN(not_yet); i++)
            expected |= (int)not_yet[i] == op;
        if (!af_ops[op] || af_ops[op]->view)
            continue;
        if ((af_cuda_ops[op] == NULL) != expected) {
            print_error("op '%s' %s\n", af_ops[op]->name,
                        expected ? "has a CUDA version: take it off the list"
                                 : "has no CUDA version");
            wrong++;
        }
    }
    if (wrong && !STRICT)
        skip_because("an op has no CUDA version");
    assert_int_equal(wrong, 0);
}

static void test_direct_launches_equal_captured_ones(void **state)
{
    (void)state;
    int count[2];
    for (int direct = 0; direct < 2; direct++) {
        af_error err = {0};
        rec r = {.t = AF_DTYPE_BF16};
        af_device *d = open_fake();
        af_cuda_test_on(d)->no_capture = direct;
        CHECK_OK(af_graph_new(&r.g, &err), err);
        case_linear(&r);
        if (missing_op(r.g))
            skip_because("an op has no CUDA version");
        CHECK_OK(af_graph_prepare(r.g, d, &err), err);
        CHECK_OK(rec_write(&r, &err), err);
        CHECK_OK(af_graph_run(r.g, AF_RUN_GRAD, &err), err);
        count[direct] = seen.launches;
        assert_int_equal(seen.captures, !direct);
        rec_clear(&r);
        af_device_close(d);
        drop_kept();
    }
    assert_int_equal(count[0], count[1]);
}

/* A gated unit that writes only the codes of its rows writes the rows, too, where nodes run one by
 * one: af_fp8_measure reads them. */
static void test_rows_are_written_where_products_are_measured(void **state)
{
    (void)state;
    af_error err = {0};
    rec r = {.t = AF_DTYPE_BF16};
    af_device *d = open_fake();
    CHECK_OK(af_graph_new(&r.g, &err), err);
    case_fp8_glu(&r);
    CHECK_OK(af_graph_prepare(r.g, d, &err), err);
    CHECK_OK(rec_write(&r, &err), err);
    CHECK_OK(af_graph_run(r.g, AF_RUN_GRAD, &err), err); /* makes copies of weights, too */
    const uint64_t first = af_device_counters(d).launches;
    CHECK_OK(af_graph_run(r.g, AF_RUN_GRAD, &err), err);
    const uint64_t step = af_device_counters(d).launches - first;
    CHECK_OK(d->ops->run_nodes(d, r.g, AF_RUN_GRAD, 0, r.g->n_nodes, &err), err);
    assert_int_equal(af_device_counters(d).launches - first - step, step + 2);
    int found = 0;
    for (int i = 0; i < r.g->n_nodes; i++) {
        const af_exec *e = af_exec_of(r.g->nodes[i], 0);
        for (int k = 0; e && k < e->n; k++) {
            if (!e->step[k].probe)
                continue;
            const bool back = r.g->nodes[i]->op == AF_OP_GLU_BWD;
            assert_string_equal(e->step[k].launch->kernel->name, back ? "glu_bwd" : "glu_fwd");
            assert_int_equal(k, e->n - 1); /* after what reads gate and up, which it may replace */
            assert_ptr_equal(*(void **)e->step[k].launch->arg[0], r.g->nodes[i]->out[0]->data);
            found++;
        }
    }
    assert_int_equal(found, 2);
    rec_clear(&r);
    af_device_close(d);
    drop_kept();
}

/* Three chunks of rows; with few labels only the first is worked on. */
static void test_chunks_without_labels_are_left_out(void **state)
{
    int32_t label[21];
    int count[2];
    af_error err = {0};
    rec r = {.t = AF_DTYPE_BF16};
    af_device *d = open_fake();
    (void)state;
    af_cuda_test_on(d)->no_capture = true;
    CHECK_OK(af_graph_new(&r.g, &err), err);
    case_head(&r);
    CHECK_OK(af_graph_prepare(r.g, d, &err), err);
    CHECK_OK(rec_write(&r, &err), err);
    for (int few = 0; few < 2; few++) {
        af_tensor *labels = NULL;
        for (int i = 0; i < r.leaves; i++)
            labels = r.leaf[i].ints ? r.leaf[i].t : labels;
        for (int i = 0; i < 21; i++)
            label[i] = few && i % 4 ? -100 : i;
        CHECK_OK(af_tensor_write(r.g, labels, label, sizeof label, &err), err);
        CHECK_OK(af_graph_run(r.g, AF_RUN_GRAD, &err), err); /* copies of params follow */
        const int before = seen.launches;
        CHECK_OK(af_graph_run(r.g, AF_RUN_GRAD, &err), err);
        count[few] = seen.launches - before;
    }
    assert_int_equal(count[0] - count[1], 2 * 4); /* logits, rows, dh and dw of two chunks */
    rec_clear(&r);
    af_device_close(d);
    drop_kept();
}

/* Every level of rows has its own captured graph; up to 256 rows read 4 bits, so that nothing
 * dequantises a whole matrix. */
static void test_few_live_rows_have_their_own_steps(void **state)
{
    static const int live[] = {100, 64, 9, 8, 1, 65};
    static const int captures[] = {1, 2, 3, 4, 5, 5};
    af_error err = {0};
    rec r = {.t = AF_DTYPE_BF16};
    af_device *d = open_fake();
    (void)state;
    CHECK_OK(af_graph_new(&r.g, &err), err);
    case_generation(&r);
    CHECK_OK(af_graph_prepare(r.g, d, &err), err);
    CHECK_OK(rec_write(&r, &err), err);
    for (size_t i = 0; i < AF_LEN(live); i++) {
        const uint64_t before = af_device_counters(d).launches;
        af_graph_set_live_rows(r.g, live[i]);
        CHECK_OK(af_graph_run(r.g, AF_RUN_FORWARD, &err), err);
        assert_int_equal(seen.captures, captures[i]);
        /* two GEMMs and two of attention */
        assert_int_equal(af_device_counters(d).launches - before, 4);
    }
    assert_int_equal(af_tensor_dim(r.out[0], 0), 100);
    rec_clear(&r);
    af_device_close(d);
    drop_kept();
}

/* The kernel of attention rotates single tokens: a launch less, and only where every sequence has
 * one row at most. */
static void test_single_tokens_have_no_launch_of_rope(void **state)
{
    af_error err = {0};
    rec r = {.t = AF_DTYPE_BF16};
    af_device *d = open_fake();
    uint64_t count[2];
    (void)state;
    CHECK_OK(af_graph_new(&r.g, &err), err);
    case_single_tokens(&r);
    CHECK_OK(af_graph_prepare(r.g, d, &err), err);
    CHECK_OK(rec_write(&r, &err), err);
    for (int one = 0; one < 2; one++) {
        const uint64_t before = af_device_counters(d).launches;
        af_graph_set_one_token(r.g, one, 8);
        af_graph_set_live_rows(r.g, SINGLE_TOKENS);
        CHECK_OK(af_graph_run(r.g, AF_RUN_FORWARD, &err), err);
        count[one] = af_device_counters(d).launches - before;
    }
    assert_int_equal(count[0], 4); /* scale, rope, attention, picked rows */
    assert_int_equal(count[1], 3);
    rec_clear(&r);
    af_device_close(d);
    drop_kept();
}

/* A launch begins early after another one, not after what the host wrote since the last run; the
 * fake driver checks that. */
static void test_launches_begin_early_after_launches_alone(void **state)
{
    af_error err = {0};
    af_graph *g = NULL;
    af_device *d = open_fake();
    float x[2][8] = {{1}}, w[8] = {1};
    (void)state;
    CHECK_OK(af_graph_new(&g, &err), err);
    af_tensor *in = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){2, 8});
    af_tensor *weight = af_graph_weight(g, "w", AF_DTYPE_F32, 1, (int64_t[]){8});
    af_graph_output(g, af_rmsnorm(g, af_rmsnorm(g, in, weight, 1e-6, false), weight, 1e-6, false));
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    CHECK_OK(af_tensor_write(g, weight, w, sizeof w, &err), err);
    af_cuda_test_on(d)->no_capture = true;
    for (int nodes = 0; nodes < 2; nodes++) {
        const int before = seen.early_launches, all = seen.launches;
        CHECK_OK(af_tensor_write(g, in, x, sizeof x, &err), err);
        CHECK_OK(nodes ? d->ops->run_nodes(d, g, AF_RUN_FORWARD, 0, g->n_nodes, &err)
                       : af_graph_run(g, AF_RUN_FORWARD, &err),
                 err);
        assert_int_equal(seen.launches - all, 2);
        assert_int_equal(seen.early_launches - before, 1);
    }
    af_graph_free(g);
    af_device_close(d);
    drop_kept();
}

/* Values that are written and read back, and no node: nothing waits in host memory. */
static void test_a_graph_without_nodes_moves_nothing(void **state)
{
    const float sent = 3;
    float got = 0;
    af_error err = {0};
    af_graph *g = NULL;
    (void)state;
    af_device *d = open_fake();
    CHECK_OK(af_graph_new(&g, &err), err);
    af_tensor *x = af_graph_weight(g, "x", AF_DTYPE_F32, 1, (int64_t[]){1});
    af_graph_set_recompute(g, AF_RECOMPUTE_OFFLOAD, 1);
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    CHECK_OK(af_tensor_write(g, x, &sent, 4, &err), err);
    CHECK_OK(af_tensor_read(g, x, &got, 4, &err), err);
    assert_true(got == sent && g->host_bytes == 0);
    af_graph_free(g);
    af_device_close(d);
    drop_kept();
}

/* What is longer than the ring of pinned memory passes through it in both directions; a number
 * requested before arrives with it, and the next upload overwrites nothing. */
static void test_long_values_come_through_the_ring(void **state)
{
    static const int64_t counts[] = {1 << 14, (1 << 21) + 1, (9 << 21) + 3}; /* 8 MiB a segment */
    af_error err = {0};
    (void)state;
    for (size_t i = 0; i < AF_LEN(counts); i++) {
        const uint64_t n = (uint64_t)counts[i];
        af_graph *g = NULL;
        af_device *d = open_fake();
        CHECK_OK(af_graph_new(&g, &err), err);
        af_tensor *x = af_graph_weight(g, "x", AF_DTYPE_F32, 1, &counts[i]);
        af_tensor *one = af_graph_input(g, "one", AF_DTYPE_F32, 1, (int64_t[]){1});
        af_graph_output(g, af_scale(g, one, 1));
        CHECK_OK(af_graph_prepare(g, d, &err), err);
        float *sent = malloc(n * 4), *got = calloc(n, 4), value = 3, later = 0, last = 5;
        for (uint64_t k = 0; k < n; k++)
            sent[k] = (float)(k % 16777213);
        CHECK_OK(af_tensor_write(g, x, sent, n * 4, &err), err);
        CHECK_OK(af_tensor_write(g, one, &value, 4, &err), err);
        CHECK_OK(af_tensor_read_later(g, one, &later, 4, &err), err);
        CHECK_OK(af_tensor_read(g, x, got, n * 4, &err), err);
        assert_memory_equal(sent, got, n * 4);
        assert_true(later == value);
        CHECK_OK(af_tensor_write(g, one, &last, 4, &err), err);
        CHECK_OK(af_tensor_read(g, x, got, n * 4, &err), err);
        CHECK_OK(af_tensor_read(g, one, &later, 4, &err), err);
        assert_true(later == last && memcmp(sent, got, n * 4) == 0);
        free(sent);
        free(got);
        af_graph_free(g);
        af_device_close(d);
        drop_kept();
    }
}

/* Numbers requested without waiting arrive with the next read, each with the value it had when it
 * was requested. */
static void test_deferred_reads_wait_once(void **state)
{
    enum { MANY = 200 };
    float later[MANY] = {0}, now;
    af_error err = {0};
    rec r = {.t = AF_DTYPE_F32};
    af_device *d = open_fake();
    (void)state;
    CHECK_OK(af_graph_new(&r.g, &err), err);
    case_dropout(&r);
    CHECK_OK(af_graph_prepare(r.g, d, &err), err);
    af_tensor *x = r.leaf[0].t;
    const uint64_t bytes = af_tensor_bytes(x);
    float *v = calloc(1, bytes);
    af_tensor *one = r.g->clock; /* 16 bytes */
    float small[MANY][4] = {{0}};
    const int syncs = seen.syncs;
    for (int i = 0; i < MANY; i++) {
        const float four[4] = {(float)i + 1};
        CHECK_OK(af_tensor_write(r.g, one, four, sizeof four, &err), err);
        CHECK_OK(af_tensor_read_later(r.g, one, small[i], sizeof small[i], &err), err);
        later[i] = small[i][0];
    }
    assert_int_equal(seen.syncs, syncs);
    CHECK_OK(af_tensor_read(r.g, x, v, bytes, &err), err);
    assert_int_equal(seen.syncs, syncs + 1);
    for (int i = 0; i < MANY; i++) {
        now = small[i][0];
        assert_true(later[i] == 0 && now == (float)i + 1);
    }
    free(v);
    rec_clear(&r);
    af_device_close(d);
    drop_kept();
}

/* Long weights are copied by several threads, into segments that they do not fill evenly. */
static void test_long_weights_arrive_whole(void **state)
{
    static const int64_t shapes[][2] = {{3000, 1003}, {3, 3000001}, {5, 64}, {1, 262144}};
    (void)state;
    for (size_t i = 0; i < AF_LEN(shapes); i++) {
        af_error err = {0};
        af_graph *g = NULL;
        af_device *d = open_fake();
        CHECK_OK(af_graph_new(&g, &err), err);
        af_tensor *w = af_graph_weight(g, "w", AF_DTYPE_F32, 2, shapes[i]);
        af_graph_output(g, af_sum_all(g, w));
        CHECK_OK(af_graph_prepare(g, d, &err), err);
        const uint64_t bytes = af_tensor_bytes(w), n = bytes / 4;
        uint32_t *x = malloc(bytes), *y = calloc(1, bytes);
        for (uint64_t k = 0; k < n; k++)
            x[k] = (uint32_t)(k * 2654435761u + 1);
        CHECK_OK(af_tensor_write(g, w, x, bytes, &err), err);
        CHECK_OK(af_tensor_read(g, w, y, bytes, &err), err);
        assert_int_equal(memcmp(x, y, bytes), 0);
        free(x);
        free(y);
        af_graph_free(g);
        af_device_close(d);
        drop_kept();
    }
}

/* A launch that no GPU would take is an error with its kernel's name, before anything runs. */
static void test_bad_launches_are_refused(void **state)
{
    static const struct {
        unsigned grid, block, smem;
        const char *says;
    } wrong[] = {{1, 128, 0, NULL},
                 {1, 1024, 0, NULL},
                 {0, 128, 0, "a grid dimension"},
                 {1, 0, 0, "the block size"},
                 {1, 48, 0, "the block size"},
                 {1, 33, 0, "the block size"},
                 {1, 1056, 0, "the block size"},
                 {1, 4096, 0, "the block size"},
                 {1, 128, 1u << 30, "shared memory"}};
    af_device *d = open_fake();
    (void)state;
    for (size_t i = 0; i < AF_LEN(wrong); i++) {
        af_error err = {0};
        fake_func f = {.name = "test_kernel"};
        af_module m = {.file = "test.cu"};
        af_kernel k = {.name = "test_kernel", .func = &f, .module = &m};
        af_launch l = {.kernel = &k, .block = wrong[i].block, .smem = wrong[i].smem};
        af_step s = {.kind = AF_STEP_LAUNCH, .launch = &l};
        af_exec e[AF_ROW_LEVELS] = {{.step = &s, .n = 1}};
        af_node n = {.exec = e};
        l.grid[0] = wrong[i].grid;
        l.grid[1] = l.grid[2] = 1;
        const af_status st = af_cuda_check_launches((af_cuda *)d, &n, &err);
        CHECK_MSG((st == AF_OK) == (wrong[i].says == NULL), "case %d: %s", (int)i, err.msg);
        CHECK_MSG(!wrong[i].says || (strstr(err.msg, wrong[i].says) && strstr(err.msg, "test_ker")),
                  "case %d: %s", (int)i, err.msg);
    }
    af_device_close(d);
    drop_kept();
}

static void test_a_missing_gpu_is_reported(void **state)
{
    (void)state;
    af_device *d = NULL;
    af_error err = {0};
    assert_int_equal(af_cuda_open_with(&d, &fake, 3, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "GPU 3 does not exist"));
    drop_kept();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op_has_a_cuda_version),
        cmocka_unit_test(test_every_launcher_passes_what_its_kernel_takes),
        cmocka_unit_test(test_other_gpus_take_every_launch),
        cmocka_unit_test(test_tiles_that_cannot_be_had_are_not_chosen),
        cmocka_unit_test(test_direct_launches_equal_captured_ones),
        cmocka_unit_test(test_rows_are_written_where_products_are_measured),
        cmocka_unit_test(test_chunks_without_labels_are_left_out),
        cmocka_unit_test(test_few_live_rows_have_their_own_steps),
        cmocka_unit_test(test_single_tokens_have_no_launch_of_rope),
        cmocka_unit_test(test_launches_begin_early_after_launches_alone),
        cmocka_unit_test(test_a_graph_without_nodes_moves_nothing),
        cmocka_unit_test(test_long_values_come_through_the_ring),
        cmocka_unit_test(test_deferred_reads_wait_once),
        cmocka_unit_test(test_long_weights_arrive_whole),
        cmocka_unit_test(test_bad_launches_are_refused),
        cmocka_unit_test(test_a_missing_gpu_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
