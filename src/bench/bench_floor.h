/* bench_floor.h - the GEMMs of a training step alone, and its attention alone. */
#ifndef AF_BENCH_FLOOR_H
#define AF_BENCH_FLOOR_H

#include "afinar/graph.h"

typedef struct af_bench_floor_opts {
    const struct af_model_spec *spec;
    int64_t rows, batch; /* of `batch` sequences, equally long */
    af_dtype type;
    bool full;      /* weight gradients too */
    double seconds; /* minimum per part: each kind of layer, and the head; at most one */
} af_bench_floor_opts;

/* Milliseconds (wall, and of the processor) that the projections of all layers and the head take,
 * forward, input gradients and with `full` weight gradients: one layer of each kind is measured and
 * multiplied, on at most 32768 rows, the head on a chunk of a step on a GPU (1280 rows). Experts
 * count as one batched GEMM a projection, every expert with the same number of rows. Medians, as
 * the step's time is one, at the clock that a GPU keeps under such a load. */
AF_CHECKED af_status af_bench_floor(const af_bench_floor_opts *o, af_device *d, double *ms,
                                    double *cpu_ms, af_error *err);

/* Milliseconds that softmax attention of all layers takes, forward and backward, by the kernels of
 * the step: one layer of each kind is measured and multiplied. Latent attention does not count. */
AF_CHECKED af_status af_bench_attention(const af_bench_floor_opts *o, af_device *d, double *ms,
                                        af_error *err);

/* Wall clock, or processor time of the process, in seconds. */
double af_bench_now(bool processor);
#endif
