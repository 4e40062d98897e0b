/* device.h - where graphs run: the CPU with its threads, or a CUDA GPU.
 *
 * A device is used by one thread at a time; several graphs may share it. */
#ifndef AFINAR_DEVICE_H
#define AFINAR_DEVICE_H

#include "afinar/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open device. */
typedef struct af_device af_device;

/* Opens "cpu", "cuda", "cuda:N" or "auto" (a usable GPU if there is one, else the CPU). threads:
 * CPU threads, 0 = all cores. On success *out belongs to the caller; close it with af_device_close.
 * AF_EUSAGE for an unknown name, AF_EDEVICE with the reason when cuda is not usable. */
AF_API AF_CHECKED af_status af_device_open(af_device **out, const char *name, int threads,
                                           af_error *err);
/* Closes a device; its graphs must be freed first. NULL is allowed. */
AF_API void af_device_close(af_device *d);

/* "cpu" or "cuda". Static storage. */
AF_API const char *af_device_kind(const af_device *d);
/* A description: "cpu, 2 threads, neon+bf16" or "cuda:0, NVIDIA H200, 139.8 GiB". Valid until the
 * device is closed. */
AF_API const char *af_device_text(const af_device *d);
/* Why "auto" did not take a GPU; "" when it did, or when the CPU was asked for. Valid until the
 * device is closed. */
AF_API const char *af_device_no_gpu(const af_device *d);
/* Bytes that can still be allocated on the device. */
AF_API uint64_t af_device_memory_free(const af_device *d);

/* Lets matmuls of f32 values in graphs prepared from now on round their operands to tf32 (11 bits)
 * on a GPU. Off by default; ignored on the CPU. */
AF_API void af_device_allow_tf32(af_device *d, bool allow);

/* Attention kernels of a GPU. AUTO: the faster one, timed once per shape and cached on disk; OWN:
 * the kernels of this library; CUDNN: cuDNN where it supports the shape (preparing a graph fails
 * when cuDNN is not installed). */
typedef enum af_attention_by {
    AF_ATTENTION_AUTO,
    AF_ATTENTION_OWN,
    AF_ATTENTION_CUDNN
} af_attention_by;
/* Selects the attention kernels of graphs prepared from now on. OWN by default; ignored on the CPU.
 */
AF_API void af_device_set_attention(af_device *d, af_attention_by by);

/* GEMM kernels of a GPU. AUTO: cuBLASLt where it can be loaded, else the kernels of this library;
 * OWN: always the latter; CUBLAS: preparing a graph fails when cuBLASLt cannot be loaded. */
typedef enum af_gemm_by { AF_GEMM_AUTO, AF_GEMM_OWN, AF_GEMM_CUBLAS } af_gemm_by;
/* Selects the GEMM kernels of graphs prepared from now on. Ignored on the CPU. */
AF_API void af_device_set_gemm(af_device *d, af_gemm_by by);

/* Counters of expensive operations. After af_graph_prepare only launches increases. upload_bytes
 * counts what the host sends apart from batches and from values of AF_RECOMPUTE_OFFLOAD. */
typedef struct af_counters {
    uint64_t launches, compiles, module_loads, allocations, host_syncs, upload_bytes;
    uint64_t sent_bytes; /* by nodes of a GPU, to other ranks */
} af_counters;
/* The counters since the device was opened. */
AF_API af_counters af_device_counters(const af_device *d);

#ifdef __cplusplus
}
#endif
#endif
