/* cpu_backend.c - runs a planned graph on the CPU, node after node. */
#define _GNU_SOURCE
#include "backend/cpu/cpu.h"
#include "base/proc.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The backend's part of a plan, and the memory of a prepared graph. */
typedef struct cpu_graph {
    uint64_t family_bytes[AF_CPU_FAMILIES]; /* planned */
    uint8_t *arena[AF_ROLE_COUNT];
    uint8_t *family[AF_CPU_FAMILIES]; /* NULL where it did not fit */
} cpu_graph;

static const af_cpu_op *choose(const af_cpu *cpu, const af_node *n)
{
    const af_cpu_op *fast = cpu->twins_only ? NULL : af_cpu_fast(n);
    return fast ? fast : af_cpu_ops[n->op];
}

/* Nodes that need up to this share one workspace, which stays in the caches; the few that need more
 * (the head's logits, attention of many threads) have a range of the activations' arena. */
enum { SHARED_MAX = 8 << 20 };

static af_status cpu_layout(af_device *d, af_graph *g, af_error *err)
{
    const af_cpu *cpu = (const af_cpu *)d;
    uint64_t most = 0, own = 0; /* of the shared workspace; of the families */
    cpu_graph *c = af_arena_take(&g->mem, sizeof *c);
    if (!c)
        return af_fail_nomem(err, "the plan", sizeof *c);
    *c = (cpu_graph){0};
    g->backend = c;
    for (int i = 0; i < g->n_nodes; i++) {
        af_node *n = g->nodes[i];
        if (af_ops[n->op]->view)
            continue;
        const af_cpu_op *op = choose(cpu, n);
        if (!op)
            return af_fail(err, AF_EUNSUPPORTED, "op '%s' has no CPU version", af_ops[n->op]->name);
        const uint64_t work = op->work ? op->work(n, cpu->threads) : 0;
        n->work = work > SHARED_MAX || cpu->work_apart ? work : 0;
        if (!n->work)
            most = AF_MAX(most, work);
    }
    g->returned_bytes = 0;
    for (int i = 0; i < AF_CPU_FAMILIES; i++) {
        uint64_t work = 0;
        c->family_bytes[i] = af_cpu_families[i]->layout(cpu, g, &work);
        most = AF_MAX(most, work);
        own += c->family_bytes[i];
    }
    g->shared_bytes = AF_ALIGN_UP(most, (uint64_t)64);
    g->work_bytes = g->shared_bytes + own;
    return AF_OK;
}

static void cpu_release(af_device *d, af_graph *g)
{
    (void)d;
    cpu_graph *c = g->backend;
    for (int r = 0; r < AF_ROLE_COUNT; r++)
        if (c->arena[r])
            munmap(c->arena[r], g->role_bytes[r]);
    for (int i = 0; i < AF_CPU_FAMILIES; i++)
        if (c->family[i])
            munmap(c->family[i], c->family_bytes[i]);
    memset(c->arena, 0, sizeof c->arena);
    memset(c->family, 0, sizeof c->family);
    for (int i = 0; i < g->n_tensors; i++)
        g->tensors[i]->data = NULL;
}

enum { TOUCH_STEP = 4096, HUGE_PAGE = 2 << 20 };

typedef struct touching {
    uint8_t *from;
    uint64_t bytes;
} touching;

static void touch_pages(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const touching *t = arg;
    for (uint64_t at = (uint64_t)from * HUGE_PAGE; at < AF_MIN((uint64_t)to * HUGE_PAGE, t->bytes);
         at += TOUCH_STEP)
        *(volatile uint8_t *)(t->from + at) = 0;
}

/* Zeroed, page-aligned; taken from the system on first use, or all of it now, by all threads and in
 * huge pages where the system has them: a fault on every 4 KiB of a large model's state costs as
 * much as half a step. */
static af_status map_zeroed(af_cpu *cpu, uint8_t **out, uint64_t bytes, bool now, af_error *err)
{
    if (bytes == 0)
        return AF_OK;
    const uint64_t spare = now && bytes >= HUGE_PAGE ? HUGE_PAGE : 0;
    uint8_t *p =
        mmap(NULL, bytes + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return af_fail_nomem(err, "an arena", bytes);
    cpu->device.counters.allocations++;
    if (spare) { /* an arena begins where a huge page does */
        const uint64_t end = AF_ALIGN_UP(bytes, (uint64_t)sysconf(_SC_PAGESIZE));
        const uint64_t lead =
            AF_ALIGN_UP((uint64_t)(uintptr_t)p, (uint64_t)HUGE_PAGE) - (uintptr_t)p;
        if (lead)
            munmap(p, lead);
        p += lead;
        if (end < bytes + spare - lead)
            munmap(p + end, bytes + spare - lead - end);
        (void)!madvise(p, bytes, MADV_HUGEPAGE); /* without them it is only slower */
    }
    if (now)
        af_pool_run(cpu->pool, (int64_t)((bytes + HUGE_PAGE - 1) / HUGE_PAGE), touch_pages,
                    &(touching){p, bytes});
    *out = p;
    return AF_OK;
}

static void point_tensors(af_graph *g, const cpu_graph *c)
{
    for (int i = 0; i < g->n_tensors; i++) {
        af_tensor *t = g->tensors[i];
        if (t->base)
            continue;
        if (t->bound)
            t->data = (void *)t->bound;
        else if (t == g->grads_flat && g->grads_in_arena)
            t->data = c->arena[AF_ROLE_ACTIVATION];
        else if (t->role != AF_ROLE_ACTIVATION || t->first >= 0)
            t->data = c->arena[t->role] ? c->arena[t->role] + t->offset : NULL;
    }
    for (int i = 0; i < g->n_tensors; i++) {
        af_tensor *t = g->tensors[i];
        if (t->base)
            t->data = t->base->data ? (uint8_t *)t->base->data + t->base_offset : NULL;
    }
}

/* The workspace of all graphs, at least as large as this one needs. */
static af_status grow_shared(af_cpu *cpu, uint64_t bytes, bool now, af_error *err)
{
    if (bytes <= cpu->shared_bytes)
        return AF_OK;
    if (cpu->shared)
        munmap(cpu->shared, cpu->shared_bytes);
    cpu->shared = NULL;
    cpu->shared_bytes = 0;
    const af_status st = map_zeroed(cpu, &cpu->shared, bytes, now, err);
    cpu->shared_bytes = st == AF_OK ? bytes : 0;
    return st;
}

static af_status cpu_prepare(af_device *d, af_graph *g, af_error *err)
{
    af_cpu *cpu = (af_cpu *)d;
    af_status st = AF_OK;
    cpu_graph *c = g->backend;
    const uint64_t free_bytes = d->ops->memory_free(d);
    /* enough for what op families request, too */
    const bool roomy = af_graph_bytes(g) <= free_bytes;
    const uint64_t total =
        roomy ? af_graph_bytes(g) : af_graph_bytes(g) - g->work_bytes + g->shared_bytes;
    if (total > free_bytes)
        AF_TRY(af_fail(
            err, AF_ENOMEM,
            "the graph needs %.2f GiB (weights %.2f, activations %.2f), %.2f GiB are free",
            (double)total / 0x1p30, (double)g->role_bytes[AF_ROLE_WEIGHT] / 0x1p30,
            (double)g->role_bytes[AF_ROLE_ACTIVATION] / 0x1p30, (double)free_bytes / 0x1p30));
    /* a graph that trains takes its memory at once: what the system cannot give shows before the
     * first step, and not at the first long batch */
    const bool now = g->optimized;
    for (int r = 0; r < AF_ROLE_COUNT; r++)
        AF_TRY(map_zeroed(cpu, &c->arena[r], g->role_bytes[r], now, err));
    for (int i = 0; i < AF_CPU_FAMILIES && roomy; i++)
        AF_TRY(map_zeroed(cpu, &c->family[i], c->family_bytes[i], now, err));
    AF_TRY(grow_shared(cpu, g->shared_bytes, now, err));
    point_tensors(g, c);
    for (int i = 0; i < AF_CPU_FAMILIES; i++)
        af_cpu_families[i]->prepare(g, c->family[i]);
    for (int i = 0; i < g->n_nodes; i++)
        g->nodes[i]->exec = af_ops[g->nodes[i]->op]->view ? NULL : (void *)choose(cpu, g->nodes[i]);
done:
    if (st != AF_OK)
        cpu_release(d, g);
    return st;
}

static void run_timed(const af_node *n, const af_cpu_op *op, af_cpu *cpu)
{
    af_cpu_time *t = &cpu->times->of[n->op][n->phase];
    const double begin = af_seconds_now();
    op->run(n, cpu);
    t->seconds += af_seconds_now() - begin;
    t->nodes++;
}

static af_status cpu_run_nodes(af_device *d, af_graph *g, int what, int from, int to, af_error *err)
{
    af_cpu *cpu = (af_cpu *)d;
    static const int bit[] = {[AF_PHASE_FORWARD] = AF_RUN_FORWARD,
                              [AF_PHASE_BACKWARD] = AF_RUN_BACKWARD,
                              [AF_PHASE_UPDATE] = AF_RUN_UPDATE};
    const cpu_graph *c = g->backend;
    cpu->work = cpu->shared;
    cpu->what = what;
    cpu->failed = AF_OK;
    cpu->err = err;
    cpu->grads_spent = g->grads_in_arena;
    for (int i = 0; i < AF_CPU_FAMILIES; i++)
        if (c->family[i])
            af_cpu_families[i]->begin_run(cpu, g);
    for (int i = from; i < to; i++) {
        const af_node *n = g->nodes[i];
        const af_cpu_op *op = n->exec;
        if (!(what & bit[n->phase]) || !op)
            continue;
        cpu->work = n->work ? c->arena[AF_ROLE_ACTIVATION] + n->work_offset : cpu->shared;
        if (cpu->poison)
            af_cpu_poison_before(cpu, n);
        if (cpu->times)
            run_timed(n, op, cpu);
        else
            op->run(n, cpu);
        d->counters.launches++;
        if (cpu->failed != AF_OK)
            return cpu->failed;
        if (cpu->poison)
            af_cpu_poison_after(cpu, n);
    }
    return AF_OK;
}

static af_status cpu_run_node(af_device *d, af_graph *g, const af_node *n, af_error *err)
{
    af_cpu *cpu = (af_cpu *)d;
    const cpu_graph *c = g->backend;
    const af_cpu_op *op = n->exec;
    cpu->failed = AF_OK;
    cpu->err = err;
    cpu->work = n->work ? c->arena[AF_ROLE_ACTIVATION] + n->work_offset : cpu->shared;
    op->run(n, cpu);
    d->counters.launches++;
    return cpu->failed;
}

static af_status cpu_run(af_device *d, af_graph *g, int what, af_error *err)
{
    return cpu_run_nodes(d, g, what, 0, g->n_nodes, err);
}

static af_status cpu_write(af_device *d, af_graph *g, af_tensor *t, const void *data, af_error *err)
{
    (void)d, (void)g, (void)err;
    memcpy(t->data, data, af_tensor_bytes(t));
    for (int i = 0; i < AF_CPU_FAMILIES; i++)
        af_cpu_families[i]->written(t);
    return AF_OK;
}

static af_status cpu_read(af_device *d, af_graph *g, const af_tensor *t, void *data, af_error *err)
{
    (void)d, (void)g, (void)err;
    memcpy(data, t->data, af_tensor_bytes(t));
    return AF_OK;
}

/* What the system can give without swapping, and what the process limit leaves. */
static uint64_t cpu_memory_free(const af_device *d)
{
    (void)d;
    char text[4096];
    af_proc_read(text, sizeof text, "/proc/meminfo");
    const uint64_t kib = af_proc_number(text, "MemAvailable:");
    if (kib)
        return kib * 1024;
    const long pages = sysconf(_SC_AVPHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 ? (uint64_t)pages * (uint64_t)size : UINT64_MAX;
}

static void cpu_close(af_device *d)
{
    af_cpu *cpu = (af_cpu *)d;
    af_pool_free(cpu->pool);
    if (cpu->shared)
        munmap(cpu->shared, cpu->shared_bytes);
    af_cpu_poison_free(cpu);
    free(cpu);
}

static const af_backend_ops cpu_ops = {
    .kind = "cpu",
    .host = true,
    .one_pass = true,
    .layout = cpu_layout,
    .prepare = cpu_prepare,
    .run = cpu_run,
    .run_nodes = cpu_run_nodes,
    .run_node = cpu_run_node,
    .write = cpu_write,
    .read = cpu_read,
    .release = cpu_release,
    .memory_free = cpu_memory_free,
    .close = cpu_close,
};

af_status af_cpu_open(af_device **out, int threads, af_error *err)
{
    af_cpu *cpu = af_calloc(1, sizeof *cpu);
    if (!cpu)
        return af_fail_nomem(err, "the CPU device", sizeof *cpu);
    const af_status st = af_pool_new(&cpu->pool, threads, err);
    if (st != AF_OK) {
        free(cpu);
        return st;
    }
    cpu->device.ops = &cpu_ops;
    cpu->threads = af_pool_threads(cpu->pool);
    snprintf(cpu->device.text, sizeof cpu->device.text, "cpu, %d thread%s, %s", cpu->threads,
             cpu->threads == 1 ? "" : "s", af_cpu_isa());
    *out = &cpu->device;
    return AF_OK;
}
