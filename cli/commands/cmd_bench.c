/* cmd_bench.c - `afinar bench [MODEL | --shape 135m] [--batch 4] [--seq 2048] [--method lora] ...`.
 */
#include "commands/commands.h"
#include "commands/model_opts.h"

#include "afinar/bench.h"

#include <inttypes.h>

static void print_json(const af_bench_opts *o, const af_bench_result *r)
{
    fputs("{\"kind\": \"afinar\", \"shape\": ", stdout);
    af_cli_json_text(stdout, o->shape, strlen(o->shape));
    printf(", \"mode\": \"%s\", \"dtype\": \"%s\", "
           "\"batch\": %" PRId64 ", \"seq\": %" PRId64 ", \"rank\": %" PRId64
           ", \"device\": \"%s\", ",
           o->method, o->dtype, o->batch, o->seq, o->rank, r->device);
    printf("\"ms_per_step\": %.3f, \"ms_best\": %.3f, \"cpu_ms\": %.3f, \"tok_s\": %.1f, "
           "\"peak_gb\": %.3f, \"planned_gb\": %.3f, \"startup_s\": %.3f, \"first_step_s\": %.3f, ",
           r->ms_per_step, r->ms_best, r->cpu_ms, r->tok_s, r->peak_gb, r->planned_gb, r->startup_s,
           r->first_step_s);
    printf("\"steps\": %" PRId64 ", \"flop_s\": %.4g, \"floor_ms\": %.3f, \"floor_cpu_ms\": %.3f, "
           "\"floor_share\": %.4f, \"attention_ms\": %.3f, \"recompute\": \"%s\", \"loss\": %.9g, ",
           r->steps, r->flops / r->ms_per_step * 1e3, r->floor_ms, r->floor_cpu_ms,
           r->floor_ms / r->ms_per_step, r->attention_ms, r->recompute, r->loss);
    printf("\"kernels\": %" PRIu64 ", \"after_prepare\": {\"compiles\": %" PRIu64
           ", \"module_loads\": %" PRIu64 ", \"allocations\": %" PRIu64 ", \"host_syncs\": %" PRIu64
           ", \"upload_bytes\": %" PRIu64 "}",
           r->counters.launches, r->counters.compiles, r->counters.module_loads,
           r->counters.allocations, r->counters.host_syncs, r->counters.upload_bytes);
    for (int i = 0; i < r->n_ops; i++)
        printf("%s{\"op\": \"%s\", \"phase\": \"%s\", \"nodes\": %" PRId64 ", \"ms\": %.3f}",
               i ? ", " : ", \"ops\": [", r->ops[i].op, r->ops[i].phase, r->ops[i].nodes,
               r->ops[i].ms);
    printf("%s}\n", r->n_ops ? "]" : "");
}

static void print_ops(const af_bench_result *r)
{
    double sum = 0;
    for (int i = 0; i < r->n_ops; i++)
        sum += r->ops[i].ms;
    for (int i = 0; i < r->n_ops; i++)
        printf("%s  %-16s %-9s %6" PRId64 " %10.2f %5.1f %%\n",
               i ? "" : "  op               phase      nodes  ms per step\n", r->ops[i].op,
               r->ops[i].phase, r->ops[i].nodes, r->ops[i].ms, 100 * r->ops[i].ms / sum);
}

static void print_text(const af_bench_opts *o, const af_bench_result *r)
{
    printf("%s, %s, %s, batch %" PRId64 " x %" PRId64 " on %s\n", o->shape, o->method, o->dtype,
           o->batch, o->seq, r->device);
    if (*r->no_gpu)
        printf("  no GPU is used: %s\n", r->no_gpu);
    printf("  ms_per_step    %10.1f   (best %.1f, %" PRId64 " steps, CPU time %.1f)\n",
           r->ms_per_step, r->ms_best, r->steps, r->cpu_ms);
    printf("  tok_s          %10.1f\n", r->tok_s);
    printf("  peak_gb        %10.2f   (planned %.2f, recompute: %s)\n", r->peak_gb, r->planned_gb,
           r->recompute);
    printf("  startup_s      %10.2f\n", r->startup_s);
    printf("  first_step_s   %10.2f\n", r->first_step_s);
    printf("  GFLOP/s        %10.1f\n", r->flops / r->ms_per_step * 1e-6);
    printf("  GEMM floor     %10.1f ms, %.0f %% of the step (CPU time: %.1f, %.0f %%)\n",
           r->floor_ms, 100 * r->floor_ms / r->ms_per_step, r->floor_cpu_ms,
           100 * r->floor_cpu_ms / r->cpu_ms);
    printf("  attention      %10.1f ms alone; GEMMs and attention are %.0f %% of the step\n",
           r->attention_ms, 100 * (r->floor_ms + r->attention_ms) / r->ms_per_step);
    printf("  kernels/step   %10" PRIu64 "\n", r->counters.launches);
    printf("  after prepare: %" PRIu64 " compiles, %" PRIu64 " module loads, %" PRIu64
           " allocations, %" PRIu64 " host syncs, %" PRIu64 " bytes uploaded per step\n",
           r->counters.compiles, r->counters.module_loads, r->counters.allocations,
           r->counters.host_syncs, r->counters.upload_bytes);
}

int cmd_bench(int argc, char **argv)
{
    af_bench_opts o = {.method = "lora",
                       .dtype = "bf16",
                       .memory = "auto",
                       .attention = "auto",
                       .batch = 4,
                       .seq = 2048,
                       .rank = 16};
    const char *arg[1];
    int count;
    af_common common = {0};
    const af_opt opts[] = {
        {0, "shape", AF_OPT_STR, &o.shape, "SHAPE",
         "tiny, 135m, 0.5b, 1.5b, 7b, 30b-a3b, 4b-delta, or a model whose shape to use [135m]"},
        {0, "layers", AF_OPT_I64, &o.layers, "N", "layers, instead of those of a built-in shape"},
        {0, "batch", AF_OPT_I64, &o.batch, "N", "sequences per step [4]"},
        {0, "seq", AF_OPT_I64, &o.seq, "N", "tokens per sequence [2048]"},
        {0, "method", AF_OPT_STR, &o.method, "METHOD", "lora, qlora, oft or full [lora]"},
        {0, "rank", AF_OPT_I64, &o.rank, "N", "rank of the adapter, or inputs of a rotation [16]"},
        {0, "dtype", AF_OPT_STR, &o.dtype, "TYPE", "bf16 or f32 [bf16]"},
        {0, "memory", AF_OPT_STR, &o.memory, "MODE",
         "auto: the fastest plan that fits; min: the smallest [auto]"},
        {0, "recompute", AF_OPT_STR, &o.recompute, "MODE",
         "use this recompute mode: none, cheap, wide, most, host, block or offload"},
        {0, "attention", AF_OPT_STR, &o.attention, "MODE",
         "attention on a GPU: own, cudnn, or auto (the faster one) [auto]"},
        {0, "seconds", AF_OPT_F64, &o.seconds, "N",
         "seconds of timed steps, at least three steps, or one that takes longer [10]"},
        {0, "fp8", AF_OPT_FLAG, &o.fp8, NULL,
         "products with frozen weights in FP8, where that is faster (see the key fp8)"},
        {0, "by-op", AF_OPT_FLAG, &o.by_op, NULL,
         "print the time of each op, slowest first (CPU only)"},
        {0},
    };
    const af_usage usage = {"bench",
                            "Measures training steps with random weights, for a built-in shape or "
                            "the shape of a model.",
                            "[MODEL]",
                            opts,
                            0,
                            1,
                            NULL};
    const af_parsed p = af_opts_parse(&usage, &common, argc, argv, arg, &count);
    if (p != AF_PARSED_OK)
        return af_opts_exit(p);
    if (o.shape && count)
        return af_cli_error(AF_EXIT_USAGE, "bench", "give either --shape or a model, not both");
    o.shape = count ? arg[0] : o.shape ? o.shape : "135m";
    af_cli_log(&common);
    o.device = common.device;
    o.threads = (int)common.threads;
    af_error err = {0};
    af_bench_result r;
    if (af_bench(&o, &r, &err) != AF_OK)
        return af_report("bench", &err);
    if (common.json)
        print_json(&o, &r);
    else
        print_text(&o, &r);
    if (!common.json)
        print_ops(&r);
    return AF_EXIT_OK;
}
