/* comm_device.h - the same collectives between GPUs, by NCCL, on a CUDA stream.
 *
 * Memory is the device's; a call only enqueues, and may be captured into a CUDA graph. The order of
 * additions is ours (rank_sum_cuda.c), so nothing here adds: all-gather, all-to-all, swap and
 * broadcast of bytes. NCCL is opened at run time (libnccl.so.2, found as the other libraries of
 * NVIDIA); its id travels over the host's communicator.
 *
 * NCCL cannot name a rank that is gone: it waits. Around a wait for the stream, call
 * af_comm_wait_begin and af_comm_wait_end, so that the watch can tell who is missing, and give
 * af_comm_opts a `lost`, because a stream that waits cannot be interrupted. */
#ifndef AF_COMM_DEVICE_H
#define AF_COMM_DEVICE_H

#include "backend/cuda/cuda.h"
#include "dist/comm.h"

typedef struct af_comm_device af_comm_device;

/* A collective: every rank of c calls it, with its own GPU. *out = NULL when c is (one process).
 * cu and c outlive it. AF_EDEVICE when there is no NCCL: the message has the command that brings
 * it. Two ranks on one GPU need NCCL 2.30 and NCCL_MULTI_RANK_GPU_ENABLE=1. */
AF_CHECKED af_status af_comm_device_open(af_comm_device **out, af_comm *c, af_cuda *cu,
                                         af_error *err);
/* The same for a device of any kind: *out = NULL where gradients pass through the host, because the
 * run asks for that or the device is not a GPU. All ranks must have the same kind. */
AF_CHECKED af_status af_comm_device_for(af_comm_device **out, af_comm *c, af_device *device,
                                        af_error *err);
/* Ends at once when a rank is gone. NULL is allowed. */
void af_comm_device_close(af_comm_device *d);
/* "NCCL 2.30.3". Borrowed. */
const char *af_comm_device_name(const af_comm_device *d);

/* As their twins in comm.h; stream NULL: the device's own. */
AF_CHECKED af_status af_comm_device_broadcast(af_comm_device *d, void *buf, uint64_t bytes,
                                              int root, void *stream, af_error *err);
AF_CHECKED af_status af_comm_device_all_gather(af_comm_device *d, const void *mine, void *all,
                                               uint64_t bytes, void *stream, af_error *err);
AF_CHECKED af_status af_comm_device_all_to_all(af_comm_device *d, const void *send, void *recv,
                                               uint64_t bytes, void *stream, af_error *err);
/* Messages with other ranks, as one: both sides list theirs in the same order. */
AF_CHECKED af_status af_comm_device_swap(af_comm_device *d, const af_swap *s, int n, void *stream,
                                         af_error *err);
#endif
