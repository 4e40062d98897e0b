/* comm.h - the processes ("ranks") of a run: who they are, bytes between them, and failure.
 *
 * A communicator moves bytes and knows nothing about numbers: the order in which gradients are
 * added is decided in shards.c, so that it is the same over every library. Underneath is one
 * operation, "send to one rank while receiving from another" (wire.h), over TCP or MPI; NCCL does
 * the same between GPUs (comm_device.h) and leaves the host side to those two.
 *
 * NULL is allowed everywhere and means: one process. Then every call is a copy or nothing.
 * Threads: collectives are called by one thread at a time, in the same order on every rank.
 *
 * Failure: a thread per rank (watch.h) notices ranks that die, hang or fail. From then on every
 * call fails with the sentence that names the rank that went first, on every rank the same one. */
#ifndef AF_COMM_H
#define AF_COMM_H

#include "base/base.h"

typedef struct af_comm af_comm;

typedef enum af_comm_backend {
    AF_COMM_AUTO, /* nccl on GPUs, else mpi when the launcher is one, else tcp */
    AF_COMM_MPI,
    AF_COMM_TCP,
    AF_COMM_NCCL, /* between GPUs; the host side as for auto without GPUs */
} af_comm_backend;

typedef struct af_comm_opts {
    af_comm_backend backend;
    double timeout; /* seconds a rank waits for another (ddp_timeout); 0 = 1800 */
    /* Another rank is gone and this one does not return to a collective soon (a long step, a GPU
     * that waits): called once, by the watching thread, with the sentence to print. It should end
     * the process, with status 1. NULL: nobody is called, and the next collective fails. */
    void (*lost)(void *user, const char *why);
    /* Rank 0 has waited for some time for ranks that have not come: who they are; or NULL */
    void (*waits)(void *user, const char *line);
    bool (*stop)(void *user); /* true ends the wait for ranks that have not come; or NULL */
    void *user;
} af_comm_opts;

/* Connects with the other ranks. *out = NULL when this is the only process: then no library is
 * opened and no socket made. */
AF_CHECKED af_status af_comm_open(af_comm **out, const af_comm_opts *o, af_error *err);
/* Waits until every rank has come here, and leaves. After a failure: leaves at once. */
void af_comm_close(af_comm *c);
/* This rank failed: every other one ends with "rank R: WHY". Nothing when one failed before. */
void af_comm_abort(af_comm *c, const char *why);
/* This process failed before it came to af_comm_open (its run file cannot be read): joins the
 * others, at most for 10 s, to tell them why. Nothing when this is the only process, or when mpirun
 * ends the others anyway. */
void af_comm_report(const char *why);
/* Did another rank fail first? Then the error of the call that failed says which and why, and needs
 * no prefix. */
bool af_comm_failed(const af_comm *c);

int af_comm_rank(const af_comm *c);       /* 0 for one process */
int af_comm_size(const af_comm *c);       /* 1 for one process */
int af_comm_local_rank(const af_comm *c); /* among the ranks of this machine */
/* How many ranks run on this machine. */
int af_comm_local_size(const af_comm *c);
/* Whether GPUs exchange by NCCL. For af_comm_device_open (comm_device.h). */
bool af_comm_wants_nccl(const af_comm *c);
/* "tcp", "mpi (Open MPI v4.1.4 ...)": what carries the host side. Borrowed, as long as c. */
const char *af_comm_name(const af_comm *c);

/* `bytes` of rank `root` in everybody's buf. */
AF_CHECKED af_status af_comm_broadcast(af_comm *c, void *buf, uint64_t bytes, int root,
                                       af_error *err);
/* Equal parts in rank order: all has size * bytes. `mine` may be its place in `all`. */
AF_CHECKED af_status af_comm_all_gather(af_comm *c, const void *mine, void *all, uint64_t bytes,
                                        af_error *err);
/* Part r of send (`bytes` each) goes to rank r; part r of recv comes from rank r. The two do not
 * overlap. */
AF_CHECKED af_status af_comm_all_to_all(af_comm *c, const void *send, void *recv, uint64_t bytes,
                                        af_error *err);
/* Both ways with one peer, which calls the same. The sizes of the two messages are known to both;
 * one may be empty. send and recv do not overlap. */
AF_CHECKED af_status af_comm_swap(af_comm *c, int peer, const void *send, uint64_t send_bytes,
                                  void *recv, uint64_t recv_bytes, af_error *err);
AF_CHECKED af_status af_comm_barrier(af_comm *c, af_error *err);
/* Every rank must pass the same bytes: AF_EUSAGE on every rank that names the key and the first two
 * ranks that differ (with their values, when these are short texts). The subject is the key. */
AF_CHECKED af_status af_comm_agree(af_comm *c, const char *key, const void *value, uint64_t bytes,
                                   af_error *err);
/* A wait for the others that is none of these calls (a GPU step with collectives in it): counts as
 * one for the watch, so that it knows who is missing. */
void af_comm_wait_begin(af_comm *c);
void af_comm_wait_end(af_comm *c);
/* Bytes this rank has sent in collectives so far, for plan's figures. */
uint64_t af_comm_bytes(const af_comm *c);
#endif
