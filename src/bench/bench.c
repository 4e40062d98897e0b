/* bench.c - `afinar bench`: real training steps of a known shape, weights random, nothing that
 * stays on disk.
 *
 * The graph, its optimizer and its memory plan come from the trainer's own code (bench_model.c).
 * The floor (the time of the GEMMs of such a step alone) is measured in the same
 * process by bench_floor.c. */
#include "base/proc.h"
#include "bench/bench_model.h"
#include "bench/bench_ops.h"
#include "train/step/resident.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

enum { STEPS_MAX = 512, SEQ_MAX = 1 << 20, FIRST_COUNTS = 20 };

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
    if (af_proc_read(text, sizeof text, "/proc/uptime"))
        up = strtod(text, NULL);
    const char *p = af_proc_read(text, sizeof text, "/proc/self/stat") ? strrchr(text, ')') : NULL;
    for (int i = 0; p && i < 20; i++) /* field 22: start time */
        p = strchr(p + 1, ' ');
    if (p)
        ticks = strtoull(p, NULL, 10);
    return up > 0 && ticks ? up - (double)ticks / (double)sysconf(_SC_CLK_TCK) : 0;
}

static af_status step(af_bench_model *b, double *loss, af_error *err)
{
    float value = 0;
    af_status st = af_graph_run(b->step.graph, AF_RUN_STEP, err);
    if (st == AF_OK) /* reading waits for the device */
        st = af_tensor_read(b->step.graph, b->step.loss, &value, sizeof value, err);
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

/* times: NULL, or where the steps' ops are added up. */
static af_status time_steps(af_bench_model *b, af_cpu_times *times, af_bench_result *r,
                            af_error *err)
{
    const double limit = b->o->seconds > 0 ? b->o->seconds : 10;
    double ms[STEPS_MAX], begin = af_bench_now(false), processor = af_bench_now(true);
    af_status st = step(b, &r->loss, err);
    if (st != AF_OK)
        return st;
    r->first_step_s = af_bench_now(false) - begin;
    /* what comes only once is nothing in so long a step of a GPU */
    const bool counts =
        r->first_step_s > FIRST_COUNTS * limit && !af_device_is_cpu(b->model.device);
    if (counts)
        ms[r->steps++] = r->first_step_s * 1e3;
    else
        processor = af_bench_now(true);
    const af_counters before = af_device_counters(b->model.device);
    af_bench_ops_begin(b->model.device, times);
    begin = af_bench_now(false);
    const int least = r->first_step_s > limit ? 1 : 3;
    while (r->steps < STEPS_MAX && !counts &&
           (r->steps < least || af_bench_now(false) - begin < limit)) {
        const double at = af_bench_now(false);
        st = step(b, &r->loss, err);
        if (st != AF_OK)
            return st;
        ms[r->steps++] = (af_bench_now(false) - at) * 1e3;
    }
    af_bench_ops_end(b->model.device, times, r);
    const af_counters after = af_device_counters(b->model.device);
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

static const char *const attentions[] = {
    [AF_ATTENTION_AUTO] = "auto", [AF_ATTENTION_OWN] = "own", [AF_ATTENTION_CUDNN] = "cudnn"};

/* -1: unknown. */
static int attention_by(const char *name)
{
    for (size_t i = 0; i < AF_LEN(attentions) && name; i++)
        if (strcmp(name, attentions[i]) == 0)
            return (int)i;
    return name ? -1 : AF_ATTENTION_AUTO;
}

static af_status check(const af_bench_opts *o, af_error *err)
{
    static const char *const methods[] = {"lora", "qlora", "oft", "full"};
    bool known = false;
    if (!o || !o->shape || !o->method || !o->dtype || !o->memory || !o->device)
        return af_fail(err, AF_EUSAGE,
                       "af_bench: shape, method, dtype, memory and device must be set");
    for (size_t i = 0; i < AF_LEN(methods); i++)
        known |= strcmp(o->method, methods[i]) == 0;
    if (!known)
        return af_fail(err, AF_EUSAGE, "unknown method '%s'; use lora, qlora, oft or full",
                       o->method);
    if (strcmp(o->dtype, "bf16") != 0 && strcmp(o->dtype, "f32") != 0)
        return af_fail(err, AF_EUSAGE, "unknown dtype '%s'; use bf16 or f32", o->dtype);
    if (strcmp(o->memory, "auto") != 0 && strcmp(o->memory, "min") != 0)
        return af_fail(err, AF_EUSAGE, "unknown memory '%s'; use auto or min", o->memory);
    if (attention_by(o->attention) < 0)
        return af_fail(err, AF_EUSAGE, "unknown attention '%s'; use auto, own or cudnn",
                       o->attention);
    if (o->layers < 0 || o->layers > 512)
        return af_fail(err, AF_EUSAGE, "%" PRId64 " layers are not in 1 to 512", o->layers);
    if (o->batch < 1 || o->seq < 2 || o->seq > SEQ_MAX || o->batch > 4096 || o->rank < 1 ||
        o->rank > 1024)
        return af_fail(err, AF_EUSAGE,
                       "batch %" PRId64 " (1 to 4096), seq %" PRId64
                       " (2 to 1048576) or rank %" PRId64 " (1 to 1024) is outside its range",
                       o->batch, o->seq, o->rank);
    if (o->batch * o->seq > INT32_MAX)
        return af_fail(err, AF_EUSAGE, "%" PRId64 " sequences of %" PRId64 " are too many tokens",
                       o->batch, o->seq);
    return AF_OK;
}

af_status af_bench(const af_bench_opts *o, af_bench_result *out, af_error *err)
{
    AF_NEED(err, o, out);
    af_error unread;
    err = af_error_or(err, &unread);
    af_status st = check(o, err);
    if (st != AF_OK)
        return st;
    af_bench_result r = {0};
    af_bench_model b = {0};
    af_cpu_times *times = NULL;
    AF_TRY(af_bench_model_init(&b, o, err));
    AF_TRY(af_device_open(&b.model.device, o->device, o->threads, err));
    af_device_set_attention(b.model.device, (af_attention_by)attention_by(o->attention));
    const bool cpu = af_device_is_cpu(b.model.device);
    if (o->by_op)
        AF_TRY(af_bench_ops_new(&times, b.model.device, err));
    AF_TRY(af_bench_model_plan(&b, err));
    const uint64_t before = af_device_memory_free(b.model.device);
    AF_TRY(af_graph_prepare(b.step.graph, b.model.device, err));
    AF_TRY(af_bench_model_fill(&b, err));
    r.startup_s = since_start();
    AF_TRY(time_steps(&b, times, &r, err));
    r.planned_gb = (double)(b.step.plan.total + af_plan_in_place(&b.step.plan)) / 1e9;
    const uint64_t after = af_device_memory_free(b.model.device); /* others may have freed some */
    r.peak_gb = cpu              ? (double)af_resident_peak() / 1e9
                : before > after ? (double)(before - after) / 1e9
                                 : 0;
    r.flops = b.step.plan.flops;
    r.nodes = b.step.plan.nodes;
    af_memory_mode_name(&b.step, b.step.memory_mode, r.recompute);
    snprintf(r.device, sizeof r.device, "%s", af_device_text(b.model.device));
    snprintf(r.no_gpu, sizeof r.no_gpu, "%s", af_device_no_gpu(b.model.device));
    af_step_graph_close(&b.step); /* its memory is that of the floor now */
    const af_bench_floor_opts f = {.spec = &b.model.own_spec,
                                   .rows = o->batch * o->seq,
                                   .batch = o->batch,
                                   .type = b.model.compute,
                                   .full = strcmp(o->method, "full") == 0,
                                   .seconds = o->seconds > 0 ? o->seconds : 10};
    AF_TRY(af_bench_floor(&f, b.model.device, &r.floor_ms, &r.floor_cpu_ms, err));
    AF_TRY(af_bench_attention(&f, b.model.device, &r.attention_ms, err));
    *out = r;
done:
    free(times);
    af_bench_model_clear(&b);
    return st;
}
