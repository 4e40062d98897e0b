/* bench.c - `afinar bench`: real training steps of a known shape, weights random, nothing on disk.
 *
 * The graph, its optimizer and its memory plan come from the trainer's own code. The floor (what
 * the matrix products of such a step cost by themselves) is measured in the same process by
 * bench_floor.c. */
#include "afinar/bench.h"
#include "base/rng.h"
#include "graph/node.h"
#include "train/bench_floor.h"
#include "train/method.h"
#include "train/trainer.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

enum { NOISE = 1 << 16, STEPS_MAX = 512 };

typedef struct bench {
    const af_bench_opts *o;
    af_hf_config config;
    af_model_spec spec;
    af_run run;
    af_trainer t;
    af_dtype *dtype;
    float noise[NOISE];
} bench;

static const af_bench_shape shapes[] = {
    {"tiny", 2, 128, 4, 2, 32, 256, 1024, true, true, 10000.0, 1e-6},
    {"135m", 30, 576, 9, 3, 64, 1536, 49152, true, false, 100000.0, 1e-5},
    {"0.5b", 24, 896, 14, 2, 64, 4864, 151936, true, true, 1000000.0, 1e-6},
    {"1.5b", 28, 1536, 12, 2, 128, 8960, 151936, true, true, 1000000.0, 1e-6},
    {"7b", 28, 3584, 28, 4, 128, 18944, 152064, false, true, 1000000.0, 1e-6},
};

static const af_bench_shape *find_shape(const char *name)
{
    for (size_t i = 0; i < AF_LEN(shapes); i++)
        if (strcmp(shapes[i].name, name) == 0)
            return &shapes[i];
    return NULL;
}

double af_bench_now(bool processor)
{
    struct timespec t;
    clock_gettime(processor ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Seconds since the process was made. */
static double since_start(void)
{
    char text[1024];
    double up = 0;
    unsigned long long ticks = 0;
    FILE *f = fopen("/proc/uptime", "re");
    if (!f || fscanf(f, "%lf", &up) != 1)
        up = 0;
    if (f)
        fclose(f);
    f = fopen("/proc/self/stat", "re");
    const char *p = f && fgets(text, sizeof text, f) ? strrchr(text, ')') : NULL;
    for (int i = 0; p && i < 20; i++) /* field 22: start time */
        p = strchr(p + 1, ' ');
    if (p)
        ticks = strtoull(p, NULL, 10);
    if (f)
        fclose(f);
    return up > 0 && ticks ? up - (double)ticks / (double)sysconf(_SC_CLK_TCK) : 0;
}

static double peak_resident_gb(void)
{
    char line[256];
    double kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %lf kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib * 1024 / 1e9;
}

static af_status make_spec(bench *b, const af_bench_shape *s, af_error *err)
{
    char text[1024];
    const int n = snprintf(
        text, sizeof text,
        "{\"model_type\": \"%s\", \"hidden_act\": \"silu\", \"hidden_size\": %d, "
        "\"intermediate_size\": %d, \"max_position_embeddings\": 32768, "
        "\"num_attention_heads\": %d, \"num_hidden_layers\": %d, \"num_key_value_heads\": %d, "
        "\"rms_norm_eps\": %g, \"rope_theta\": %g, \"tie_word_embeddings\": %s, "
        "\"torch_dtype\": \"bfloat16\", \"vocab_size\": %d, \"head_dim\": %d}",
        s->bias ? "qwen2" : "llama", s->width, s->ffn, s->heads, s->layers, s->kv_heads, s->eps,
        s->theta, s->tied ? "true" : "false", s->vocab, s->head_dim);
    af_status st = af_hf_config_parse(&b->config, text, (uint64_t)n, "bench", err);
    return st == AF_OK ? af_model_spec_init(&b->spec, &b->config, err) : st;
}

static af_status make_run(bench *b, af_error *err)
{
    const bool full = strcmp(b->o->method, "full") == 0;
    char text[1024];
    const int n =
        snprintf(text, sizeof text,
                 "base_model: bench\n%s%s%sdatasets:\n  - path: none\nsequence_len: %" PRId64
                 "\nmicro_batch_size: %" PRId64 "\nlearning_rate: 0.0001\nmax_grad_norm: 1.0\n"
                 "weight_decay: 0.01\noptimizer: adamw_torch\nbf16: %s\ndevice: %s\n",
                 full ? "" : "adapter: ", full ? "" : b->o->method,
                 full ? "" : "\nlora_alpha: 32\nlora_target_linear: true\n", b->o->seq, b->o->batch,
                 strcmp(b->o->dtype, "bf16") == 0 ? "true" : "false", b->o->device);
    char rank[32];
    snprintf(rank, sizeof rank, "lora_r=%" PRId64, b->o->rank);
    const char *overrides[] = {rank};
    return af_run_parse(&b->run, text, (uint64_t)n, "bench", overrides, full ? 0 : 1, false, err);
}

/* Frozen weights in the compute type; nf4 when the base stays in 4 bits. */
static af_status choose_types(bench *b, bool packed, af_error *err)
{
    const af_model_spec *s = &b->spec;
    b->dtype = af_calloc((uint64_t)s->tensors, sizeof *b->dtype);
    if (!b->dtype)
        return af_fail_nomem(err, "the bench", (uint64_t)s->tensors * sizeof *b->dtype);
    for (int i = 0; i < s->tensors; i++)
        b->dtype[i] = packed && s->tensor[i].module >= 0 && s->tensor[i].layer >= 0 ? AF_DTYPE_NF4
                                                                                    : b->t.compute;
    b->t.dtype = b->dtype;
    return AF_OK;
}

/* Scales of the 4-bit weights: blocks of 64, double quantisation in blocks of 256. */
static af_status declare_scales(bench *b, af_error *err)
{
    af_model_leaves *l = &b->t.leaves;
    for (int i = 0; i < b->spec.tensors; i++) {
        af_tensor *t = l->tensor[i];
        if (!t || t->dtype != AF_DTYPE_NF4)
            continue;
        af_quant *q = af_arena_take(&l->arena, sizeof *q);
        if (!q)
            return af_fail_nomem(err, "scales of a 4-bit tensor", sizeof *q);
        const int64_t blocks = (af_count(t) + 63) / 64, outer = (blocks + 255) / 256;
        *q = (af_quant){.block = 64, .nested_block = 256, .round = b->t.compute};
        q->absmax = af_weight(l->graph, "absmax", AF_DTYPE_U8, 1, &blocks);
        q->nested = af_weight(l->graph, "nested", AF_DTYPE_F32, 1, &outer);
        t->quant = q;
    }
    return af_graph_status(l->graph, err);
}

/* Fills a tensor piece by piece: floats of size `scale`, bytes at random. */
static af_status fill(bench *b, af_tensor *t, float scale, float offset, af_error *err)
{
    const uint64_t bytes = af_tensor_bytes(t);
    uint8_t *data = af_calloc(1, bytes + NOISE * sizeof(float));
    if (!data)
        return af_fail_nomem(err, "random weights", bytes);
    if (af_dtype_is_float(t->dtype)) {
        float part[NOISE];
        for (int i = 0; i < NOISE; i++)
            part[i] = b->noise[(i + t->id * 7919) % NOISE] * scale + offset;
        af_convert(data, t->dtype, part, AF_DTYPE_F32, NOISE);
    } else {
        for (int i = 0; i < NOISE; i++)
            data[i] = (uint8_t)af_rng_u32(3, (uint64_t)t->id, (uint64_t)i);
    }
    const uint64_t unit =
        af_dtype_is_float(t->dtype) ? (uint64_t)NOISE * af_dtype_get(t->dtype)->bytes : NOISE;
    for (uint64_t at = unit; at < bytes; at += unit)
        memcpy(data + at, data, AF_MIN(unit, bytes - at));
    const af_status st = af_tensor_write(b->t.graph, t, data, bytes, err);
    free(data);
    return st;
}

static af_status fill_weights(bench *b, af_error *err)
{
    af_status st = AF_OK;
    const af_model_leaves *l = &b->t.leaves;
    for (int i = 0; i < NOISE; i++)
        b->noise[i] = (float)af_rng_normal(1, 2, (uint64_t)i);
    for (int i = 0; i < b->spec.tensors; i++) {
        af_tensor *t = l->tensor[i];
        const bool norm = strstr(b->spec.tensor[i].name, "norm") != NULL;
        AF_TRY(fill(b, t, norm ? 0.0f : 0.02f, norm ? 1.0f : 0.0f, err));
        if (t->quant) {
            AF_TRY(fill(b, t->quant->absmax, 0, 0, err));
            AF_TRY(fill(b, t->quant->nested, 0, 0.04f, err));
        }
    }
    for (int i = 0; i < b->spec.modules; i++)
        if (l->module[i].a) {
            AF_TRY(fill(b, l->module[i].a, 0.02f, 0, err));
            AF_TRY(fill(b, l->module[i].b, 0, 0, err));
        }
    st = af_model_write_rope(&b->t.leaves, b->o->seq, err);
done:
    return st;
}

/* Random ids, labels = the next id, whole sequences: no padding, every token but the last counts.
 */
static af_status fill_batch(bench *b, af_error *err)
{
    af_status st = AF_OK;
    af_trainer *t = &b->t;
    const int64_t N = t->rows_max, T = b->o->seq;
    int32_t *ids = af_calloc((uint64_t)N * 3 + (uint64_t)t->bounds_len, sizeof *ids);
    if (!ids)
        return af_fail_nomem(err, "a batch", (uint64_t)N * 12);
    int32_t *positions = ids + N, *labels = positions + N, *bounds = labels + N;
    for (int64_t i = 0; i < N; i++) {
        ids[i] = (int32_t)af_rng_below(9, 9, (uint64_t)i, (uint64_t)b->spec.vocab);
        positions[i] = (int32_t)(i % T);
    }
    for (int64_t i = 0; i < N; i++)
        labels[i] = i % T == T - 1 ? -100 : ids[i + 1];
    for (int64_t i = 0; i < t->bounds_len; i++)
        bounds[i] = (int32_t)(AF_MIN(i, b->o->batch) * T);
    const float scale = 1.0f / (float)(N - b->o->batch);
    AF_TRY(af_tensor_write(t->graph, t->in.ids, ids, (uint64_t)N * 4, err));
    AF_TRY(af_tensor_write(t->graph, t->in.positions, positions, (uint64_t)N * 4, err));
    AF_TRY(af_tensor_write(t->graph, t->labels, labels, (uint64_t)N * 4, err));
    AF_TRY(af_tensor_write(t->graph, t->in.bounds, bounds, (uint64_t)t->bounds_len * 4, err));
    AF_TRY(af_tensor_write(t->graph, t->scale, &scale, sizeof scale, err));
    af_set_live_rows(t->graph, N);
    af_set_learning_rate(t->graph, 1e-4);
done:
    free(ids);
    return st;
}

static af_status prepare(bench *b, af_error *err)
{
    af_status st = AF_OK;
    af_trainer *t = &b->t;
    const bool min = strcmp(b->o->memory, "min") == 0,
               packed = min && strcmp(b->o->method, "qlora") == 0;
    AF_TRY(choose_types(b, packed, err));
    if (b->run.method != AF_METHOD_FULL) {
        af_adapter_config c;
        af_method_lists lists;
        AF_TRY(af_method_adapter(&c, &lists, &b->run, &b->spec, err));
        AF_TRY(af_adapter_outline(&t->adapter, &c, &b->spec, err));
    }
    t->rows_max = b->o->batch * b->o->seq;
    t->sequences_max = b->o->batch;
    if (min) {
        AF_TRY(af_trainer_record(t, AF_RECOMPUTE_BLOCK, err));
        AF_TRY(declare_scales(b, err));
        AF_TRY(af_graph_plan(t->graph, t->device, &t->plan, err));
    } else {
        AF_TRY(af_trainer_fit(t, af_device_memory_free(t->device), err));
    }
    AF_TRY(af_graph_prepare(t->graph, t->device, err));
    AF_TRY(fill_weights(b, err));
    st = fill_batch(b, err);
done:
    return st;
}

static af_status step(bench *b, double *loss, af_error *err)
{
    float value = 0;
    af_status st = af_graph_run(b->t.graph, AF_RUN_STEP, err);
    if (st == AF_OK) /* reading waits for the device */
        st = af_tensor_read(b->t.graph, b->t.loss, &value, sizeof value, err);
    *loss = (double)value;
    if (st == AF_OK && !isfinite(value))
        st = af_fail(err, AF_EDEVICE, "the loss of a bench step is %g", (double)value);
    return st;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static af_status time_steps(bench *b, af_bench_result *r, af_error *err)
{
    const double limit = b->o->seconds > 0 ? b->o->seconds : 10;
    double ms[STEPS_MAX], begin = af_bench_now(false), processor = 0;
    af_status st = step(b, &r->loss, err);
    if (st != AF_OK)
        return st;
    r->first_step_s = af_bench_now(false) - begin;
    const af_counters before = af_device_counters(b->t.device);
    processor = af_bench_now(true);
    begin = af_bench_now(false);
    while (r->steps < STEPS_MAX && (r->steps < 3 || af_bench_now(false) - begin < limit)) {
        const double at = af_bench_now(false);
        st = step(b, &r->loss, err);
        if (st != AF_OK)
            return st;
        ms[r->steps++] = (af_bench_now(false) - at) * 1e3;
    }
    const af_counters after = af_device_counters(b->t.device);
    const uint64_t n = (uint64_t)r->steps;
    r->cpu_ms = (af_bench_now(true) - processor) * 1e3 / (double)r->steps;
    qsort(ms, (size_t)r->steps, sizeof *ms, compare);
    r->ms_best = ms[0];
    r->ms_per_step = ms[r->steps / 2];
    r->tok_s = (double)(b->o->batch * b->o->seq) / r->ms_per_step * 1e3;
    r->counters = (af_counters){
        .launches = (after.launches - before.launches + n - 1) / n,
        .compiles = (after.compiles - before.compiles + n - 1) / n,
        .module_loads = (after.module_loads - before.module_loads + n - 1) / n,
        .allocations = (after.allocations - before.allocations + n - 1) / n,
        .host_syncs = (after.host_syncs - before.host_syncs + n - 1) / n,
        .upload_bytes = (after.upload_bytes - before.upload_bytes + n - 1) / n,
    };
    return AF_OK;
}

static af_status check(const af_bench_opts *o, af_error *err)
{
    static const char *const methods[] = {"lora", "qlora", "full"};
    bool known = false;
    for (size_t i = 0; i < AF_LEN(methods); i++)
        known |= strcmp(o->method, methods[i]) == 0;
    if (!find_shape(o->shape))
        return af_fail(err, AF_EUSAGE, "unknown shape '%s': tiny, 135m, 0.5b, 1.5b or 7b",
                       o->shape);
    if (!known)
        return af_fail(err, AF_EUSAGE, "unknown method '%s': lora, qlora or full", o->method);
    if (strcmp(o->dtype, "bf16") != 0 && strcmp(o->dtype, "f32") != 0)
        return af_fail(err, AF_EUSAGE, "unknown dtype '%s': bf16 or f32", o->dtype);
    if (strcmp(o->memory, "auto") != 0 && strcmp(o->memory, "min") != 0)
        return af_fail(err, AF_EUSAGE, "unknown memory '%s': auto or min", o->memory);
    if (o->batch < 1 || o->seq < 2 || o->seq > 32768 || o->batch > 4096 || o->rank < 1 ||
        o->rank > 1024)
        return af_fail(err, AF_EUSAGE,
                       "batch %" PRId64 " (1 to 4096), seq %" PRId64
                       " (2 to 32768) or rank %" PRId64 " (1 to 1024) is outside its range",
                       o->batch, o->seq, o->rank);
    return AF_OK;
}

static void close_bench(bench *b)
{
    af_model_leaves_clear(&b->t.leaves);
    af_graph_free(b->t.graph);
    b->t.graph = NULL;
    af_adapter_free(b->t.adapter);
    b->t.adapter = NULL;
    af_trainer_close(&b->t);
    af_model_spec_clear(&b->spec);
    af_hf_config_clear(&b->config);
    af_run_clear(&b->run);
    free(b->dtype);
    free(b);
}

af_status af_bench(const af_bench_opts *o, af_bench_result *out, af_error *err)
{
    static const char *const modes[] = {"none", "cheap", "wide", "block"};
    af_status st = check(o, err);
    if (st != AF_OK)
        return st;
    af_bench_result r = {0};
    bench *b = af_calloc(1, sizeof *b);
    if (!b)
        return af_fail_nomem(err, "the bench", sizeof *b);
    b->o = o;
    const af_bench_shape *shape = find_shape(o->shape);
    AF_TRY(make_spec(b, shape, err));
    AF_TRY(make_run(b, err));
    b->t.run = &b->run;
    b->t.spec = &b->spec;
    AF_TRY(af_device_open(&b->t.device, o->device, o->threads, err));
    const bool cpu = strcmp(af_device_kind(b->t.device), "cpu") == 0;
    b->t.compute = strcmp(o->dtype, "bf16") == 0 ? AF_DTYPE_BF16 : AF_DTYPE_F32;
    AF_TRY(prepare(b, err));
    r.startup_s = since_start();
    AF_TRY(time_steps(b, &r, err));
    r.planned_gb = (double)b->t.plan.total / 1e9;
    r.peak_gb = cpu ? peak_resident_gb() : r.planned_gb;
    r.flops = b->t.plan.flops;
    r.nodes = b->t.plan.nodes;
    r.recompute = modes[b->t.recompute];
    snprintf(r.device, sizeof r.device, "%s", af_device_text(b->t.device));
    const af_bench_floor_opts f = {.shape = shape,
                                   .rows = o->batch * o->seq,
                                   .type = b->t.compute,
                                   .full = strcmp(o->method, "full") == 0};
    AF_TRY(af_bench_floor(&f, b->t.device, &r.floor_ms, &r.floor_cpu_ms, err));
    *out = r;
done:
    close_bench(b);
    return st;
}
