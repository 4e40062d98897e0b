/* bench_ops.h - a step's time by op, for `afinar bench --by-op`. */
#ifndef AF_BENCH_OPS_H
#define AF_BENCH_OPS_H

#include "afinar/bench.h"
#include "backend/cpu/cpu.h"

/* Where the times are added up; the caller frees it. Fails on a device that is not the CPU. */
AF_CHECKED af_status af_bench_ops_new(af_cpu_times **out, const af_device *d, af_error *err);
/* From here to the end every node is timed; nothing happens without `times`. */
void af_bench_ops_begin(af_device *d, af_cpu_times *times);
/* Sets r->ops from the times of r->steps steps. */
void af_bench_ops_end(af_device *d, const af_cpu_times *times, af_bench_result *r);
#endif
