/* test_fit.c - which memory mode is chosen: by default, and when memory is short. Plans only,
 * except for the last test, which trains the same bits in every mode. */
#include "test.h"

#include "backend/cpu/cpu.h"
#include "base/rng.h"
#include "bench/bench_model.h"
#include "graph/node.h"
#include "model/engine.h"
#include "ops/common/cpu_fast.h"

#include <math.h>

typedef struct model {
    af_bench_opts o;
    af_bench_model b;
} model;

static void open_model(model *m, const af_bench_shape *own, const char *method, const char *dtype,
                       int64_t batch, int64_t seq)
{
    af_error err = {0};
    *m = (model){.o = {.shape = "135m",
                       .method = method,
                       .dtype = dtype,
                       .memory = "auto",
                       .device = "cpu",
                       .batch = batch,
                       .seq = seq,
                       .rank = 16,
                       .threads = 2}};
    m->b.shape = own;
    CHECK_OK(af_bench_model_init(&m->b, &m->o, &err), err);
    CHECK_OK(af_device_open(&m->b.model.device, "cpu", m->o.threads, &err), err);
    CHECK_OK(af_bench_model_plan(&m->b, &err), err);
}

static bool choose(af_step_graph *t, uint64_t bytes)
{
    af_error err = {0};
    bool fits;
    CHECK_OK(af_memory_choose(t, bytes, &fits, &err), err);
    return fits;
}

static uint64_t total_of(af_step_graph *t, af_memory_mode r)
{
    af_error err = {0};
    CHECK_OK(af_memory_plan(t, r, &err), err);
    return t->plan.total;
}

/* With memory enough: a full run on the CPU rebuilds some blocks where that saves more than it
 * costs; the figures are those of the 135M shape. */
static void test_default_mode(void **state)
{
    static const struct {
        const char *why, *method, *dtype;
        int64_t batch, seq;
        bool some;
        double most; /* GB, including the workspaces of every instruction set */
    } cases[] = {
        {"activations stand out above the gradients", "full", "f32", 2, 512, true, 2.42},
        {"more of them", "full", "f32", 4, 512, true, 2.97},
        {"gradients hide them", "full", "f32", 1, 256, false, 2.18},
        {"half as large", "full", "bf16", 1, 512, false, 2.20},
        {"an adapter", "lora", "f32", 2, 512, false, 1.80},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        model m;
        open_model(&m, NULL, cases[i].method, cases[i].dtype, cases[i].batch, cases[i].seq);
        af_step_graph *t = &m.b.step;
        assert_true(choose(t, UINT64_MAX));
        const af_memory_mode r = t->memory_mode;
        const af_plan_info p = t->plan;
        (void)total_of(t, (af_memory_mode){AF_RECOMPUTE_CHEAP, false, 0});
        const double more = p.flops / t->plan.flops - 1,
                     saved = 1 - (double)p.total / (double)t->plan.total;
        print_message("%s, %s, %d x %d: mode %d on %d blocks, %.3f GB, %.1f %% less memory, "
                      "%.1f %% more work\n",
                      cases[i].method, cases[i].dtype, (int)cases[i].batch, (int)cases[i].seq,
                      r.mode, r.blocks, (double)p.total / 1e9, saved * 100, more * 100);
        CHECK_MSG((r.blocks > 0) == cases[i].some, "%s: %d blocks", cases[i].why, r.blocks);
        CHECK_MSG(r.mode == (cases[i].some ? AF_RECOMPUTE_WIDE : AF_RECOMPUTE_CHEAP), "%s: mode %d",
                  cases[i].why, r.mode);
        CHECK_MSG((double)p.total <= cases[i].most * 1e9, "%s: %.3f GB", cases[i].why,
                  (double)p.total / 1e9);
        CHECK_MSG(more <= 1.0 / 20 && saved >= more, "%s: saves %g for %g", cases[i].why, saved,
                  more);
        af_bench_model_clear(&m.b);
    }
}

static uint64_t fake_free;
static uint64_t fake_memory_free(const af_device *d)
{
    (void)d;
    return fake_free;
}

/* A GPU by name and memory alone: plans are made, nothing runs on it. `auto` is the fastest mode
 * that fits: nothing is rebuilt while there is space for everything. */
static void test_a_gpu_rebuilds_only_what_does_not_fit(void **state)
{
    static const char *const methods[] = {"lora", "full", "qlora"};
    (void)state;
    for (size_t i = 0; i < AF_LEN(methods); i++) {
        af_error err = {0};
        model m;
        open_model(&m, NULL, methods[i], "bf16", 2, 512);
        af_device *d = m.b.model.device;
        const af_backend_ops *cpu = d->ops;
        af_backend_ops fake = *cpu;
        fake.kind = "cuda";
        fake.host = false;
        fake.memory_free = fake_memory_free;
        d->ops = &fake;
        fake_free = UINT64_C(100) << 30; /* of which packed weights take a share, too */
        af_step_graph *t = &m.b.step;
        const uint64_t none = total_of(t, (af_memory_mode){AF_RECOMPUTE_NONE, false, 0}),
                       cheap = total_of(t, (af_memory_mode){AF_RECOMPUTE_CHEAP, false, 0});
        assert_true(cheap < none);
        CHECK_OK(af_memory_fit(t, af_device_memory_free(d), &err), err); /* as bench and train do */
        CHECK_MSG(t->memory_mode.mode == AF_RECOMPUTE_NONE && !t->memory_mode.packed,
                  "%s: mode %d with 100 GiB free", methods[i], t->memory_mode.mode);
        assert_true(choose(t, none) && t->memory_mode.mode == AF_RECOMPUTE_NONE);
        assert_true(choose(t, none - 1) && t->memory_mode.mode == AF_RECOMPUTE_CHEAP);
        d->ops = cpu;
        af_bench_model_clear(&m.b);
    }
}

/* From the default down to the smallest mode: the choice fits, and one block less would not. */
static void test_short_memory_takes_the_fewest_blocks(void **state)
{
    (void)state;
    for (int full = 0; full < 2 && test_takes((size_t)full); full++) {
        model m;
        open_model(&m, NULL, full ? "full" : "lora", "f32", 2, 512);
        af_step_graph *t = &m.b.step;
        assert_true(choose(t, UINT64_MAX));
        const af_memory_mode first = t->memory_mode;
        const uint64_t most = t->plan.total, copies = af_memory_copies(t);
        const uint64_t least = AF_MIN(total_of(t, (af_memory_mode){AF_RECOMPUTE_BLOCK, false, 0}),
                                      total_of(t, (af_memory_mode){AF_RECOMPUTE_WIDE, false, 0}));
        int partial = 0;
        for (int k = 0; k <= 8; k++) {
            const uint64_t bytes = copies + least + (most - least) / 8 * (uint64_t)k;
            assert_true(choose(t, bytes));
            const af_memory_mode r = t->memory_mode;
            char name[AF_MEMORY_MODE_NAME];
            print_message("%.3f GB: %s\n", (double)bytes / 1e9, af_memory_mode_name(t, r, name));
            assert_true(t->plan.total + copies <= bytes);
            if (r.blocks == 0)
                continue;
            partial++;
            const bool at_start = r.mode == first.mode && r.blocks == first.blocks;
            const af_memory_mode before =
                r.blocks > 1 ? (af_memory_mode){r.mode, false, r.blocks - 1}
                             : (af_memory_mode){(af_recompute)(r.mode - 1), false, 0};
            CHECK_MSG(at_start || total_of(t, before) + copies > bytes, "%s is more than needed",
                      af_memory_mode_name(t, r, name));
        }
        assert_true(partial >= 4);
        assert_false(choose(t, copies + least / 2));
        af_bench_model_clear(&m.b);
    }
}

static void test_names(void **state)
{
    (void)state;
    model m;
    char name[AF_MEMORY_MODE_NAME];
    open_model(&m, NULL, "qlora", "bf16", 1, 64);
    assert_string_equal(
        af_memory_mode_name(&m.b.step, (af_memory_mode){AF_RECOMPUTE_WIDE, false, 17}, name),
        "wide, 17 of 30 blocks");
    assert_string_equal(
        af_memory_mode_name(&m.b.step, (af_memory_mode){AF_RECOMPUTE_BLOCK, true, 0}, name),
        "block+4bit");
    af_bench_model_clear(&m.b);
}

static const af_bench_shape small = {"small", 5,    64,      4,    2, 16, 160,  2048,
                                     false,   true, 10000.0, 1e-6, 0, 0,  false};

/* The parameters after three steps of a small model; `file`: its frozen weights are mapped from a
 * file and packed; NULL: they are not. */
static uint8_t *trained(const char *method, const char *dtype, af_memory_mode r, af_map *file,
                        uint64_t *bytes)
{
    af_error err = {0};
    model m;
    open_model(&m, &small, method, dtype, 2, 48);
    af_graph *g = NULL;
    if (file) {
        ((af_cpu *)m.b.model.device)->packing = AF_PACKS_ALL;
        af_map_close(&m.b.model.frozen);
        m.b.model.frozen = *file;
        *file = (af_map){0};
    }
    (void)total_of(&m.b.step, r);
    const bool packs = af_fast_get()->packed_bytes(m.b.model.compute, 64, 64) > 0;
    assert_true(!file || (m.b.step.plan.returned > 0) == packs); /* f32 on AMX has no packed form */
    g = m.b.step.graph;
    CHECK_OK(af_graph_prepare(g, m.b.model.device, &err), err);
    CHECK_OK(af_bench_model_fill(&m.b, &err), err);
    for (int k = 0; k < 3; k++)
        CHECK_OK(af_graph_run(g, AF_RUN_STEP, &err), err);
    *bytes = af_tensor_bytes(g->params_flat);
    uint8_t *v = malloc(*bytes);
    assert_non_null(v);
    CHECK_OK(af_tensor_read(g, g->params_flat, v, *bytes, &err), err);
    af_bench_model_clear(&m.b);
    return v;
}

static void test_every_mode_trains_the_same_bits(void **state)
{
    static const af_memory_mode modes[] = {
        {AF_RECOMPUTE_NONE, false, 0},  {AF_RECOMPUTE_CHEAP, false, 0},
        {AF_RECOMPUTE_WIDE, false, 1},  {AF_RECOMPUTE_WIDE, false, 3},
        {AF_RECOMPUTE_WIDE, false, 0},  {AF_RECOMPUTE_BLOCK, false, 1},
        {AF_RECOMPUTE_BLOCK, false, 4}, {AF_RECOMPUTE_BLOCK, false, 0},
    };
    (void)state;
    for (int k = 0; k < 4; k++) {
        const char *method = k / 2 ? "full" : "lora", *dtype = k % 2 ? "bf16" : "f32";
        uint64_t size, n;
        uint8_t *first = trained(method, dtype, modes[0], NULL, &size);
        for (size_t i = 1; i < AF_LEN(modes); i++) {
            if (!test_takes(i + (size_t)k))
                continue;
            uint8_t *v = trained(method, dtype, modes[i], NULL, &n);
            CHECK_MSG(n == size && memcmp(v, first, size) == 0,
                      "%s, %s: mode %d on %d blocks gives other bits", method, dtype, modes[i].mode,
                      modes[i].blocks);
            free(v);
        }
        free(first);
    }
}

/* Weights whose pages were released once they were packed, and a second graph over them. */
static void test_weights_in_a_file_train_the_same_bits(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        const char *dtype = k ? "bf16" : "f32";
        const af_memory_mode r = {AF_RECOMPUTE_CHEAP, false, 0};
        af_error err = {0};
        af_map file = {0};
        uint64_t size, n;
        if (af_map_temp(&file, 4 << 20, &err) != AF_OK) {
            print_message("skipped: %s\n", err.msg);
            skip_because("no unnamed temporary files here");
        }
        uint8_t *first = trained("lora", dtype, r, NULL, &size),
                *v = trained("lora", dtype, r, &file, &n);
        CHECK_MSG(n == size && memcmp(v, first, size) == 0, "%s: other bits", dtype);
        free(first), free(v);
    }
}

/* Losses of the bench's batch (see fill_batch) by a second graph over the trained one's memory. */
static double loss_of_second_graph(const model *m)
{
    af_error err = {0};
    af_engine e;
    const int64_t B = m->o.batch, T = m->o.seq, V = m->b.model.own_spec.vocab;
    int32_t *ids = calloc((size_t)(2 * B * T), sizeof *ids), *labels = ids + B * T;
    af_feed feed[2] = {{0}};
    const float *rows;
    double sum = 0;
    assert_true(ids && B <= 2);
    for (int64_t i = 0; i < B * T; i++)
        ids[i] = (int32_t)af_rng_below(9, 9, (uint64_t)i, (uint64_t)V);
    for (int64_t i = 0; i < B * T; i++)
        labels[i] = i % T == T - 1 ? -100 : ids[i + 1];
    for (int64_t b = 0; b < B; b++)
        feed[b] = (af_feed){.ids = ids + b * T, .labels = labels + b * T, .n = T};
    const af_engine_from from = {.live = &m->b.step.leaves};
    CHECK_OK(af_engine_open(&e, AF_ENGINE_LOSS, m->b.model.device, &from, B * T, B, &err), err);
    CHECK_OK(af_engine_run(&e, feed, B, &rows, &err), err);
    for (int64_t i = 0; i < B * T; i++)
        sum += (double)rows[2 * i];
    af_engine_close(&e);
    free(ids);
    return sum / (double)(B * (T - 1));
}

static void test_a_second_graph_reads_what_is_being_trained(void **state)
{
    static const struct {
        const char *method, *dtype;
        af_memory_mode memory_mode;
    } cases[] = {
        {"lora", "f32", {AF_RECOMPUTE_CHEAP, false, 0}},
        {"lora", "bf16", {AF_RECOMPUTE_CHEAP, false, 0}},
        {"full", "f32", {AF_RECOMPUTE_WIDE, false, 2}},
        {"full", "bf16", {AF_RECOMPUTE_CHEAP, false, 0}},
        {"qlora", "f32", {AF_RECOMPUTE_CHEAP, false, 0}},
        {"qlora", "f32", {AF_RECOMPUTE_BLOCK, true, 0}},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        float before = 0, after = 0;
        model m;
        open_model(&m, &small, cases[i].method, cases[i].dtype, 2, 48);
        (void)total_of(&m.b.step, cases[i].memory_mode);
        af_graph *g = m.b.step.graph;
        CHECK_OK(af_graph_prepare(g, m.b.model.device, &err), err);
        CHECK_OK(af_bench_model_fill(&m.b, &err), err);
        af_graph_set_learning_rate(g, 0.01);
        for (int k = 0; k < 3; k++) {
            CHECK_OK(af_graph_run(g, k < 2 ? AF_RUN_STEP : AF_RUN_FORWARD, &err), err);
            CHECK_OK(af_tensor_read(g, m.b.step.loss, k ? &after : &before, sizeof after, &err),
                     err);
        }
        const double second = loss_of_second_graph(&m);
        print_message("%s, %s: loss %.6f, then %.6f, in a second graph %.6f\n", cases[i].method,
                      cases[i].dtype, (double)before, (double)after, second);
        CHECK_MSG(fabsf(before - after) > 1e-3f, "nothing was learnt");
        CHECK_MSG(fabs((double)after - second) < 1e-5 * second, "case %zu: %.8g, not %.8g", i,
                  second, (double)after);
        af_bench_model_clear(&m.b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default_mode),
        cmocka_unit_test(test_a_gpu_rebuilds_only_what_does_not_fit),
        cmocka_unit_test(test_short_memory_takes_the_fewest_blocks),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_every_mode_trains_the_same_bits),
        cmocka_unit_test(test_weights_in_a_file_train_the_same_bits),
        cmocka_unit_test(test_a_second_graph_reads_what_is_being_trained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
