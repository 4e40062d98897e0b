/* bench_model.h - a model of a known shape with random weights, recorded by the trainer's own code:
 * what `afinar bench` times, and what tests of the plan look at. */
#ifndef AF_BENCH_MODEL_H
#define AF_BENCH_MODEL_H

#include "afinar/bench.h"
#include "bench/bench_floor.h"
#include "train/step/memory_fit.h"

typedef struct af_bench_shape {
    const char *name;
    int layers, width, heads, kv_heads, head_dim, ffn, vocab;
    bool tied, bias;
    double theta, eps;
    int experts, experts_used; /* 0 = a dense model; else ffn is that of an expert */
    bool delta;                /* three layers of four are delta nets, as in Qwen3.5 */
} af_bench_shape;

typedef struct af_bench_model {
    const af_bench_opts *o;
    const af_bench_shape *shape; /* NULL where it is a model's */
    af_run_config run;
    af_run_model model; /* the caller sets the device, which is closed with the model */
    af_step_graph step;
} af_bench_model;

/* The spec and the run file of the options; no device is needed yet. *b is empty, or has a shape of
 * the caller's that is used instead of the named one. *b must not move afterwards. */
AF_CHECKED af_status af_bench_model_init(af_bench_model *b, const af_bench_opts *o, af_error *err);
void af_bench_model_clear(af_bench_model *b);
/* Records and plans: the smallest mode (memory: min), or the fastest that fits. */
AF_CHECKED af_status af_bench_model_plan(af_bench_model *b, af_error *err);
/* After prepare: random weights and a batch. */
AF_CHECKED af_status af_bench_model_fill(af_bench_model *b, af_error *err);
#endif
