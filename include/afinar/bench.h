/* bench.h - timed training steps of a known shape with random weights. */
#ifndef AFINAR_BENCH_H
#define AFINAR_BENCH_H

#include "afinar/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct af_bench_opts {
    /* tiny, 135m, 0.5b, 1.5b, 7b, 30b-a3b, 4b-delta, or a model: its shape alone */
    const char *shape;
    const char *method;    /* lora, qlora, oft or full */
    const char *dtype;     /* bf16 or f32: of activations and frozen weights */
    const char *memory;    /* auto: the fastest plan that fits; min: the smallest */
    const char *recompute; /* NULL = by memory; else the name of a mode: af_recompute_name */
    const char *attention; /* auto, own or cudnn; NULL = auto */
    const char *device;
    int threads;
    int64_t batch, seq;
    int64_t rank;   /* with oft: inputs of a rotation */
    int64_t layers; /* of a built-in shape, instead of its own; 0 = all */
    double seconds; /* of timed steps, at least three of them, or one that takes longer; 0 = 10 */
    bool by_op;     /* CPU only: time of each op */
    bool fp8;       /* products with frozen weights in FP8, where that is faster */
} af_bench_opts;

/* Time of all nodes of one op in one phase of a step, mean over the timed steps. */
typedef struct af_bench_op {
    const char *op, *phase; /* "linear", "forward" */
    int64_t nodes;
    double ms;
} af_bench_op;

enum { AF_BENCH_OPS_MAX = 512 };

typedef struct af_bench_result {
    char device[160], no_gpu[160]; /* af_device_text, af_device_no_gpu */
    int64_t steps, nodes;
    double startup_s;    /* process creation to ready for the first step */
    double first_step_s; /* the first step alone */
    double ms_per_step;  /* median of the timed steps */
    double ms_best;      /* fastest of them */
    double cpu_ms;       /* CPU time per step, all threads */
    double tok_s;        /* from the median */
    double peak_gb;      /* CPU: peak resident memory of the process; CUDA: planned bytes */
    double planned_gb;   /* planned memory */
    double flops;        /* of one step, recomputation included */
    double floor_ms;     /* the step's projections and head alone, in the same process */
    double floor_cpu_ms;
    double attention_ms;  /* the step's softmax attention alone, both passes */
    double loss;          /* of the last step */
    char recompute[48];   /* recompute mode: "cheap", "wide, 15 of 30 blocks" */
    af_counters counters; /* per timed step, rounded up */
    int n_ops;            /* with by_op: slowest first */
    af_bench_op ops[AF_BENCH_OPS_MAX];
} af_bench_result;

/* Runs the steps. Reads at most the config of a model; writes nothing. AF_EUSAGE for unknown names,
 * AF_ENOMEM when no plan fits, AF_EDEVICE. */
AF_API AF_CHECKED af_status af_bench(const af_bench_opts *o, af_bench_result *out, af_error *err);

/* GFLOP/s of a square GEMM in f32 and in bf16 on a device (af_device_open), a few tenths of a
 * second each. AF_EUSAGE, AF_EDEVICE. */
AF_API AF_CHECKED af_status af_bench_gemm(const char *device, int threads, double *f32,
                                          double *bf16, af_error *err);

#ifdef __cplusplus
}
#endif
#endif
