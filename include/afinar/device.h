/* device.h - where graphs run. */
#ifndef AFINAR_DEVICE_H
#define AFINAR_DEVICE_H

#include "afinar/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct af_device af_device;

/* Opens "cpu", "cuda", "cuda:N" or "auto" (a usable GPU when there is one, else the CPU). Asking
 * for cuda without a usable GPU is an error that says why. `threads`: CPU threads, 0 = every core.
 */
AF_CHECKED af_status af_device_open(af_device **out, const char *name, int threads, af_error *err);
void af_device_close(af_device *d);

/* "cpu" or "cuda". */
const char *af_device_kind(const af_device *d);
/* One line for people: "cpu, 2 threads, neon+bf16" or "cuda:0, NVIDIA H200, 139.8 GiB". Lives as
 * long as d. */
const char *af_device_text(const af_device *d);
/* Bytes that can still be allocated there. */
uint64_t af_device_memory_free(const af_device *d);

/* Products of f32 values in graphs prepared from now on may round their operands to tf32 (11 bits)
 * on a GPU. Off by itself; the CPU takes no notice. */
void af_device_allow_tf32(af_device *d, bool allow);

/* Who computes attention in graphs prepared from now on, on a GPU: own kernels, cuDNN wherever it
 * can (preparing fails where the library is missing), or whichever was faster when this machine
 * first met the shape, which is kept. A device begins with its own; the CPU takes no notice. */
typedef enum af_attention_by {
    AF_ATTENTION_AUTO,
    AF_ATTENTION_OWN,
    AF_ATTENTION_CUDNN
} af_attention_by;
void af_device_set_attention(af_device *d, af_attention_by by);

/* Counters of what a step must not do. All of them stand still after af_graph_prepare (launches
 * aside). upload_bytes is what the host sends beyond batches; values that AF_RECOMPUTE_OFFLOAD
 * moves to host memory and back are part of the step and not counted. */
typedef struct af_counters {
    uint64_t launches, compiles, module_loads, allocations, host_syncs, upload_bytes;
} af_counters;
af_counters af_device_counters(const af_device *d);

#ifdef __cplusplus
}
#endif
#endif
