/* bench_ops.c - a step's time by op. */
#include "bench/bench_ops.h"

_Static_assert(AF_BENCH_OPS_MAX >= AF_OP_COUNT * (AF_PHASE_UPDATE + 1), "every op in every phase");

af_status af_bench_ops_new(af_cpu_times **out, const af_device *d, af_error *err)
{
    if (!af_device_is_cpu(d))
        return af_fail(
            err, AF_EUSAGE,
            "times per op are available on the CPU only, and this is %s (kernels of a GPU "
            "overlap)",
            af_device_text(d));
    *out = af_calloc(1, sizeof **out);
    return *out ? AF_OK : af_fail_nomem(err, "the times by op", sizeof **out);
}

void af_bench_ops_begin(af_device *d, af_cpu_times *times)
{
    if (times)
        ((af_cpu *)d)->times = times;
}

static int slower_first(const void *a, const void *b)
{
    const double x = ((const af_bench_op *)a)->ms, y = ((const af_bench_op *)b)->ms;
    return (x < y) - (x > y);
}

void af_bench_ops_end(af_device *d, const af_cpu_times *times, af_bench_result *r)
{
    static const char *const phases[] = {[AF_PHASE_FORWARD] = "forward",
                                         [AF_PHASE_BACKWARD] = "backward",
                                         [AF_PHASE_CARRY] = "carry",
                                         [AF_PHASE_UPDATE] = "update"};
    if (!times)
        return;
    ((af_cpu *)d)->times = NULL;
    for (int op = 0; op < AF_OP_COUNT; op++)
        for (int phase = 0; phase <= AF_PHASE_UPDATE; phase++) {
            const af_cpu_time *t = &times->of[op][phase];
            if (t->nodes > 0)
                r->ops[r->n_ops++] =
                    (af_bench_op){af_ops[op]->name, phases[phase], (int64_t)t->nodes / r->steps,
                                  t->seconds * 1e3 / (double)r->steps};
        }
    qsort(r->ops, (size_t)r->n_ops, sizeof *r->ops, slower_first);
}
